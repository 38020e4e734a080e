"""What messages say about extras."""

import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from bayes_mdp.utils.extras import install

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize("extra", [name for name in PROJECT["optional-dependencies"] if name not in ("docs", "test")])
def test_the_packages_of_an_extra_are_named(extra, monkeypatch):
    lines = [f'{line}; extra == "{name}"' for name, lines in PROJECT["optional-dependencies"].items() for line in lines]
    monkeypatch.setattr(metadata, "requires", lambda name: [*PROJECT["dependencies"], *lines])
    needed = " ".join(map(repr, PROJECT["optional-dependencies"][extra]))
    assert install(extra) == f"pip install {needed} (the extra {extra!r})"


def test_without_an_installation_the_file_is_named(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", missing)
    assert install("deep") == "install what pyproject.toml lists for the extra 'deep'"
