"""The oldest versions that pyproject.toml allows, as constraints for pip: `python tools/oldest.py > oldest.txt`.

Every requirement of the package and of its extras with a lower bound `>=` is pinned to it. What those packages need
themselves is pip's choice.
"""

import re
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)\s*>=\s*(?P<oldest>[0-9][^,;\s]*)")
TOOLS = {"ruff", "pyright", "import-linter", "pytest", "pytest-xdist"}
"""They read the code or run the tests; their age says nothing of the library."""


def oldest(text: str) -> dict[str, str]:
    """Name -> oldest version, of the requirements in the text of a pyproject.toml.

    Raises:
        ValueError: a requirement without a lower bound, or two bounds of one package that differ.
    """
    project = tomllib.loads(text)["project"]
    requirements = [
        *project["dependencies"],
        *(x for extra in project["optional-dependencies"].values() for x in extra),
    ]
    found: dict[str, str] = {}
    for requirement in requirements:
        match = REQUIREMENT.match(requirement)
        if match is None:
            raise ValueError(f"{requirement!r} has no lower bound, expected 'name>=version'")
        name, version = match["name"].lower(), match["oldest"]
        if found.setdefault(name, version) != version:
            raise ValueError(f"{name} has two lower bounds, {found[name]} and {version}")
    return found


def main() -> None:
    """Print `name==version`, one a line."""
    for name, version in sorted(oldest(PROJECT.read_text(encoding="utf-8")).items()):
        if name not in TOOLS:
            sys.stdout.write(f"{name}=={version}\n")


if __name__ == "__main__":
    main()
