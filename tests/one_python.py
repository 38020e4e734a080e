"""The mark `numerics` for all tests of a folder."""

import os
from pathlib import Path

import pytest

FOLDERS = (
    "agents",
    "calibration/criticism",
    "decisions/choosing",
    "decisions/information",
    "inference/conjugate",
    "inference/families",
    "inference/value",
    "planning",
)
"""Below `tests`. Outcomes do not depend on other libraries there: one version of Python is enough."""


def mark_numerics(items: list[pytest.Item]) -> None:
    """Mark the tests of `FOLDERS`. A single file says `pytestmark = pytest.mark.numerics` instead."""
    folders = tuple(f"{Path(__file__).parent / folder}{os.sep}" for folder in FOLDERS)
    for item in items:
        # As text: comparing paths part by part took a twentieth of the time of collecting.
        if str(item.path).startswith(folders):
            item.add_marker(pytest.mark.numerics)
