"""Words of messages: amounts, what to install, pages that exist."""

import email.message
import re
import tomllib
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from bayes_mdp.utils import messages
from bayes_mdp.utils.messages import amount, amounts, count_of, first_names, install, see


@pytest.mark.parametrize(
    ("number", "digits", "text"),
    [
        (0.0, 4, "0"),
        (0.123456, 4, "0.1235"),
        (-12.3456, 4, "-12.35"),
        (149.6, 2, "150"),
        (999.4, 2, "999"),
        (999.7, 4, "999.7"),
        (999.97, 4, "1,000"),
        (15434.4, 4, "15,434"),
        (-15434.6, 2, "-15,435"),
        (9999000.0, 4, "9,999,000"),
        (9999999.9, 4, "1e+07"),
        (1e7, 4, "1e+07"),
        (float("nan"), 4, "nan"),
        (float("-inf"), 4, "-inf"),
        (1e-9, 4, "1e-09"),
    ],
)
def test_how_a_number_is_written(number, digits, text):
    assert amount(number, digits) == text


def test_an_interval():
    assert amounts(8907.7, 21400.2) == "[8,908, 21,400]" and amounts(-0.25, 12.3456, 3) == "[-0.25, 12.3]"


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


ROOT = Path(__file__).resolve().parents[2]
CALL = re.compile(r"""\bsee\(['"]([^'"]+)['"]\)""")


def test_every_page_that_a_message_names_is_there():
    named = {
        page: path.relative_to(ROOT)
        for path in (ROOT / "bayes_mdp").rglob("*.py")
        for page in CALL.findall(path.read_text())
    }
    assert len(named) >= 6
    missing = {page: path for page, path in named.items() if not (ROOT / "docs" / f"{page}.md").is_file()}
    assert not missing


def test_a_message_names_a_page_of_the_site(monkeypatch):
    """Without an address by its name; with one in the metadata of the package, by the address."""
    urls = ["Homepage, https://a.example", "Documentation, https://docs.example/latest/"]
    for given, said in (
        ([], "(see how-to/read-a-log in the documentation)"),
        (urls, "(see https://docs.example/latest/how-to/read-a-log.html)"),
    ):
        made = email.message.Message()
        for url in given:
            made["Project-URL"] = url
        monkeypatch.setattr(metadata, "metadata", lambda package, made=made: made)
        messages._site.cache_clear()
        assert see("how-to/read-a-log") == said
    messages._site.cache_clear()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (first_names("abcde"), "a, b, c, d, e"),
        (first_names(range(8)), "0, 1, 2, 3, 4 and 3 more"),
        (count_of(1, "state"), "1 state"),
        (count_of(0, "state"), "0 states"),
        (count_of(2, "policy"), "2 policies"),
        (count_of(1, "policy"), "1 policy"),
        (count_of(12345, "row", ","), "12,345 rows"),
        (count_of(1.0, "transition", ".10g"), "1 transition"),
        (count_of(1.5, "transition", ".10g"), "1.5 transitions"),
        (count_of(np.int64(1), "pair"), "1 pair"),
        (count_of(amount(1.004, 2), "reward"), "1 reward"),
        (count_of(amount(0.05, 2), "reward"), "0.05 rewards"),
    ],
)
def test_one_thing_is_no_plural(words, expected):
    assert words == expected
