"""The oldest versions that pyproject.toml allows."""

import pytest

from tools.oldest import PROJECT, oldest

HEAD = '[project]\nname = "x"\ndependencies = ["jax>=0.8", "numba>=0.60,<1"]\n[project.optional-dependencies]\n'


def test_bounds_of_package_and_extras():
    found = oldest(HEAD + 'deep = ["optax>=0.2.3"]\nfast = ["numba>=0.60,<1"]\n')
    assert found == {"jax": "0.8", "numba": "0.60", "optax": "0.2.3"}


def test_a_requirement_without_a_bound_is_refused():
    with pytest.raises(ValueError, match="'optax' has no lower bound, expected 'name>=version'"):
        oldest(HEAD + 'deep = ["optax"]\n')


def test_two_bounds_are_refused():
    with pytest.raises(ValueError, match=r"numba has two lower bounds, 0\.60 and 0\.61"):
        oldest(HEAD + 'fast = ["numba>=0.61"]\n')


def test_the_project_has_a_bound_for_each():
    found = oldest(PROJECT.read_text())
    assert {"jax", "numpyro", "numpy", "arviz", "cvxpy"} <= set(found)
