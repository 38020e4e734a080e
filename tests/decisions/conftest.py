"""The conjugate beliefs of the inference tests."""

import pytest

from tests.inference.conftest import make_case


@pytest.fixture
def cases(x64):
    """`make_case`, in float64."""
    return make_case
