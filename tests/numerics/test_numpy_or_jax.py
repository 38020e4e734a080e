"""What is computed by NumPy, what by JAX, and that both give one answer."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.numerics.numpy_or_jax import add_at, as_numpy, concrete_in_numpy, in_numpy, pick, xp

pytestmark = pytest.mark.numerics

TABLE = np.arange(6.0).reshape(3, 2)


def test_numpy_where_all_is_numpy_and_jax_where_anything_is_jax():
    assert type(xp.log1p(TABLE)) is np.ndarray
    assert isinstance(xp.where(jnp.ones(2) > 0, TABLE, 0.0), jax.Array)
    assert isinstance(xp.stack([TABLE, jnp.asarray(TABLE)]), jax.Array)
    traced = jax.jit(lambda x: xp.where(x > 2, xp.gammaln(x + TABLE), np.inf))(TABLE)
    np.testing.assert_allclose(traced, xp.where(TABLE > 2, xp.gammaln(2 * TABLE), np.inf), rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("gammaln", (TABLE + 0.5,)),
        ("digamma", (TABLE + 0.5,)),
        ("softmax", (TABLE[:, 0],)),
        ("cholesky", (np.eye(2) + 0.5,)),
        ("pinv", (np.outer(TABLE[:, 0], TABLE[:, 0]),)),
        ("matmul", (TABLE, TABLE.T)),
    ],
)
def test_both_libraries_agree(name, arguments):
    function = getattr(xp, name)
    with jax.enable_x64(True):
        np.testing.assert_allclose(function(*arguments), function(*map(jnp.asarray, arguments)), rtol=1e-12, atol=1e-14)


def test_no_root_is_nan_as_in_jax():
    matrix = -np.eye(2)
    assert np.isnan(xp.cholesky(matrix)).any() and np.isnan(xp.cholesky(jnp.asarray(matrix))).any()


@pytest.mark.parametrize(
    ("index", "values"),
    [
        (np.array([0, 2, 0, 3, 9]), np.arange(10.0).reshape(5, 2)),
        ((np.array([0, 2, 0, 3]), np.array([1, 0, 1, 0])), np.arange(4.0)),
        ((1, 1), 2.5),
        ((np.array([0, 1]), np.array([2, 0])), 1.0),
    ],
    ids=["rows", "cells", "one", "beyond the second axis"],
)
def test_what_is_added_beyond_an_axis_is_dropped(index, values):
    found = add_at(TABLE, index, values)
    np.testing.assert_array_equal(found, jnp.asarray(TABLE).at[index].add(values, mode="drop"))
    assert type(found) is np.ndarray and found is not TABLE
    np.testing.assert_array_equal(add_at(jnp.asarray(TABLE), index, values), found)


def test_an_index_beyond_the_table_picks_the_last_one():
    np.testing.assert_array_equal(pick(TABLE, np.array([1, 7])), jnp.asarray(TABLE)[np.array([1, 7])])
    np.testing.assert_array_equal(jax.jit(lambda i: pick(TABLE, i))(2), TABLE[2])


@concrete_in_numpy
def inverse(x):
    return {"inverse": 1.0 / x, "in numpy": isinstance(x, np.ndarray)}


def test_at_the_door_arrays_of_jax_go_in_and_come_out():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = inverse(jnp.array([0.0, 3.0]))
    assert found["in numpy"] and isinstance(found["inverse"], jax.Array) and found["inverse"].dtype == jnp.float32
    np.testing.assert_allclose(found["inverse"], [np.inf, 1 / 3], rtol=1e-7)


def test_inside_a_trace_it_is_the_function_itself():
    np.testing.assert_allclose(jax.vmap(lambda x: inverse(x)["inverse"])(jnp.array([2.0, 4.0])), [0.5, 0.25])
    assert jax.grad(lambda x: inverse(x)["inverse"])(2.0) == -0.25


def test_inside_another_call_the_answer_stays_in_float64():
    found = in_numpy(lambda x: inverse(x)["inverse"], np.array([3.0]))
    assert type(found) is np.ndarray and found[0] == 1 / 3
    assert isinstance(inverse(np.array([3.0]))["inverse"], jax.Array)  # and the next call is outside again


def test_an_error_leaves_the_room():
    with pytest.raises(ZeroDivisionError):
        in_numpy(lambda: 1 / 0)
    assert isinstance(inverse(np.ones(1))["inverse"], jax.Array)


def test_keys_stay_keys():
    key, number = as_numpy((jax.random.key(0), np.float64(1.0)))
    assert jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and type(number) is np.ndarray
