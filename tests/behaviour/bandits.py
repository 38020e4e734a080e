"""A two-armed bandit, its learner, and persons who play it."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import bayes_mdp as bm
from bayes_mdp.behaviour import Parameter, simulate

PAID = np.array([[0.3, 0.7]])


@cache
def environment():
    """Of one state and two arms, in single precision whichever test asks first."""
    with jax.enable_x64(False):
        return bm.Environment(bm.MDP(np.ones((1, 2, 1)), PAID, initial=np.ones(1)), dist.Bernoulli(PAID))


class Learner:
    """Moves a value towards the reward; softmax."""

    parameters = {"rate": Parameter("unit"), "beta": Parameter("positive")}  # noqa: RUF012

    def init(self, params):
        return jnp.zeros(2)

    def policy(self, params, q, state):
        return jax.nn.log_softmax(params["beta"] * q)

    def update(self, params, q, transition):
        return q + params["rate"] * (jnp.arange(2) == transition.action) * (transition.reward - q)


MODEL = Learner()
TRUTH = {"rate": np.linspace(0.15, 0.6, 6), "beta": 3.0}


def play(num_choices=40, seed=0):
    return simulate(jax.random.key(seed), MODEL, TRUTH, environment(), num_choices)
