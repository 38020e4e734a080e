import jax
import jax.numpy as jnp
import pytest

from bayes_mdp.behaviour.key_dependence import depends_on

KEY = jax.random.key(0)


@jax.jit
def _called(key, x):
    return jax.random.normal(key), 2.0 * x


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda key, x: x + 1.0, False),
        (lambda key, x: x + jax.random.normal(key), True),
        (lambda key, x: _called(key, x)[1], False),
        (lambda key, x: _called(key, x)[0], True),
        (lambda key, x: jnp.where(jax.random.bernoulli(key), 1.0, x), True),
        (lambda key, x: jax.lax.scan(lambda c, _: (c + jax.random.uniform(key), None), x, None, 3)[0], True),
    ],
)
def test_dependence_is_read_from_the_data_flow(function, expected):
    assert depends_on(function, KEY, jnp.ones(())) is expected
