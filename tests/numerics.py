"""The mark `numerics` for all tests of a folder, for the `conftest.py` of that folder."""

from pathlib import Path

import pytest


def mark_numerics(items: list[pytest.Item], folder: Path) -> None:
    """Mark the tests below `folder`: their outcome does not depend on other libraries, one version of Python is enough.

    A single file says `pytestmark = pytest.mark.numerics` instead.
    """
    for item in items:
        if item.path.is_relative_to(folder):
            item.add_marker(pytest.mark.numerics)
