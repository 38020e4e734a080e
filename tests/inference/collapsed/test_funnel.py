"""A density without an upper bound, that no mode and no bell covers: handed on, and said."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest

from bayes_mdp.inference import infer
from bayes_mdp.mdp import StateActionSpace, Transitions
from bayes_mdp.models import MDPSpec


def funnel(space):
    """Every state has a stickiness of its own; how different they are goes down to nothing."""
    spread = numpyro.sample("spread", dist.HalfCauchy(1.0))
    with numpyro.plate("which", space.n_states):
        stickiness = jnp.asarray(numpyro.sample("stickiness", dist.LogNormal(0.0, spread)))
    with space.plates():
        rows = 0.5 + stickiness[:, None, None] * jnp.eye(space.n_states)[:, None, :]
        probs = numpyro.sample("transition", dist.Dirichlet(rows))
        paid = numpyro.sample("reward", dist.Beta(1.0, 1.0))
    return MDPSpec(jnp.asarray(probs), dist.Bernoulli(jnp.asarray(paid)))


@pytest.mark.parametrize("number", [3, 12])
def test_a_funnel_is_refused_with_a_reason(number):
    """Its widths differ by more than a covariance in float64 holds: it was LinAlgError."""
    data = Transitions(*(x[:number] for x in ([0, 1, 2, 3] * 3, [0, 1, 1] * 4, [0.0, 1.0] * 6, [0, 1, 5, 3] * 3)))
    with pytest.raises(ValueError, match=r"method is 'importance', and .*, expected 'collapsed'"):
        infer(jax.random.key(0), funnel, data, space=StateActionSpace(8, 2), method="importance")
