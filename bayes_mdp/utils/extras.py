"""What to install for an extra, for messages."""

import re
from importlib import metadata


def install(extra: str) -> str:
    """A command that installs what an extra consists of: "pip install 'optax>=0.2.3' (the extra 'deep')".

    It names the packages and not the extra of this one, so that it works wherever this one was installed from.

    Args:
        extra: one of `[project.optional-dependencies]`.
    """
    try:
        lines = metadata.requires("bayes-mdp") or []
    except metadata.PackageNotFoundError:
        lines = []
    parts = [line.partition(";") for line in lines]
    needed = [name.strip() for name, _, when in parts if re.search(rf"""extra == ['"]{extra}['"]""", when)]
    if not needed:  # run from a checkout that was not installed, or not since the extra was added
        return f"install what pyproject.toml lists for the extra {extra!r}"
    return f"pip install {' '.join(map(repr, needed))} (the extra {extra!r})"
