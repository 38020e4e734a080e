"""`infer` changes nothing of the process: compiled programs of others stay, and so do JAX's settings."""

import os
import warnings

import jax
import jax.numpy as jnp
import numpy as np

from bayes_mdp.decisions import policy_value
from bayes_mdp.inference import infer
from bayes_mdp.mdp import Discounted, StateActionSpace, Transitions
from bayes_mdp.models import dirichlet_normal_gamma


def test_infer_and_policy_value_leave_the_process_as_it_is():
    traces = []

    @jax.jit
    def own(x):
        traces.append(x.shape)
        return jnp.sin(x)

    own(np.ones(3))
    before = dict(jax.config.values), dict(os.environ), list(warnings.filters)
    log = Transitions(np.array([0, 1, 0]), np.array([0, 1, 1]), np.ones(3), np.array([1, 0, 0]))
    posterior = infer(jax.random.key(0), dirichlet_normal_gamma(), log, space=StateActionSpace(2, 2))
    policy_value(jax.random.key(1), posterior, np.zeros(2, int), Discounted(0.5), num_draws=10)
    assert (dict(jax.config.values), dict(os.environ), list(warnings.filters)) == before
    # The user's own program is not compiled again.
    own(np.ones(3))
    assert traces == [(3,)]
