"""`on_demand` computes where it is needed, and there alone."""

import jax
import jax.numpy as jnp
import numpy as np

from bayes_mdp.numerics.fusion import on_demand


def costly(x):
    return jnp.linalg.inv(x + 3.0 * jnp.eye(3))


def program(needed, x):
    return on_demand(needed, x, costly, x)


def unguarded(needed, x):
    return jax.lax.while_loop(lambda c: c[1], lambda c: (costly(x), jnp.array(False)), (x, needed))[0]


def test_it_computes_where_it_is_needed():
    x = np.linspace(-1.0, 1.0, 9).reshape(3, 3).astype(np.float32)
    needed = jnp.array([True, False, True])
    found = jax.jit(jax.vmap(program, (0, None)))(needed, x)
    np.testing.assert_array_equal(found[1], x)
    np.testing.assert_array_equal(found[0], found[2])
    assert not np.allclose(found[0], x)


def test_the_computation_stays_inside_the_loop_that_guards_it():
    """What does not depend on the carry of a batched loop is moved out of it. Seen in the compiled program: without the
    barrier the factorisation stands at the top, where it runs every time."""

    def at_the_top(function):
        batched = jax.jit(jax.vmap(function))
        text = batched.lower(jnp.array([False, False]), jnp.ones((2, 3, 3))).compile().as_text() or ""
        assert "getrf" in text
        return "getrf" in text[text.index("ENTRY") :]

    assert at_the_top(unguarded)
    assert not at_the_top(program)
