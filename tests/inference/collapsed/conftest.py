"""Plain numerics: one version of Python is enough for this folder."""

from pathlib import Path

from tests.numerics import mark_numerics


def pytest_collection_modifyitems(items):
    mark_numerics(items, Path(__file__).parent)
