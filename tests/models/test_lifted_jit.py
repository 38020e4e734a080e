"""`lifted_jit`: the arrays of a closure are arguments of the compiled program."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bayes_mdp.models.lifted_jit import lifted_jit


def test_it_computes_the_function_and_compiles_once_for_a_shape():
    table, traces = np.arange(6.0).reshape(2, 3), []

    def scaled(x, *, by):
        traces.append(x.shape)
        return {"answer": jnp.sum(jnp.asarray(table) * x) * by}

    compiled = lifted_jit(scaled)
    for x in (np.ones(3), 2 * np.ones(3)):
        np.testing.assert_allclose(compiled(x, by=np.float32(2.0))["answer"], 2 * (table * x).sum())
    assert len(traces) == 1
    compiled(np.ones((2, 3)), by=np.float32(2.0))
    assert len(traces) == 2
    with jax.enable_x64(True):
        assert compiled(np.ones(3), by=2.0)["answer"].dtype == jnp.float64


def test_no_large_constant_is_left_in_the_program():
    table = np.random.default_rng(0).normal(size=4099)
    function = lambda x: jnp.sum(jnp.sin(jnp.asarray(table)) * x)  # noqa: E731
    assert "dense<" in jax.jit(function).lower(1.0).as_text()
    lifted = lifted_jit(function)
    assert np.isclose(lifted(1.0), np.sin(table).sum(), rtol=1e-4)
    (traced,) = lifted._traced.values()
    program: Any = eqx.filter_jit(lambda f, x: f(x))
    text = program.lower(traced, 1.0).lowered.as_text()
    # The table is an argument: no line spells its 4,099 numbers.
    assert "tensor<4099xf32>" in text and max(map(len, text.splitlines())) < 4099
