"""Hierarchical programs of the tests, on three states and two actions."""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

import bayes_mdp as bm
from bayes_mdp.models import MDPSpec, NormalGamma, normal

SPACE = bm.StateActionSpace(3, 2)


def sticky(space):
    stickiness = numpyro.sample("stickiness", dist.HalfNormal(5.0))
    with space.plates():
        probs = numpyro.sample("transition", dist.Dirichlet(0.5 + stickiness * jnp.eye(space.n_states)[:, None, :]))
        reward = numpyro.sample("reward", NormalGamma(0.0, 1.0, 2.0, 1.0))
    return MDPSpec(probs, normal(reward))


def shared_rewards(space):
    """The noise of the law is a hyperparameter too; the means are the conjugate sites."""
    loc = numpyro.sample("loc", dist.Normal(0.0, 2.0))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    with space.plates():
        probs = numpyro.sample("transition", dist.Dirichlet(jnp.ones(space.n_states)))
        mean = numpyro.sample("mean", dist.Normal(loc, scale))
    return MDPSpec(probs, dist.Normal(mean, noise))


def pairs(space):
    """Means whose precision is a multiple of a precision with an unknown rate."""
    shift = numpyro.sample("shift", dist.HalfNormal(1.0))
    with space.plates():
        probs = numpyro.sample("transition", dist.Dirichlet(jnp.ones(space.n_states)))
        precision = numpyro.sample("precision", dist.Gamma(2.0, 1.0 + shift))
        mean = numpyro.sample("mean", dist.Normal(shift, (3.0 * precision) ** -0.5))
    return MDPSpec(probs, dist.Normal(mean, precision**-0.5))


def clusters(space):
    """Two kinds of states, of two concentrations."""
    concentration = jnp.asarray(numpyro.sample("concentration", dist.LogNormal(jnp.zeros(2), 1.0).to_event(1)))
    with numpyro.plate("states", space.n_states):
        kind = jnp.asarray(numpyro.sample("kind", dist.Bernoulli(0.5)))
    with space.plates():
        rows = concentration[kind][:, None, None] * jnp.ones(space.n_states)
        probs = numpyro.sample("transition", dist.Dirichlet(rows))
    return MDPSpec(probs, jnp.zeros(()))
