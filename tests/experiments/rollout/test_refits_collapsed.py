"""The collapsed posterior inside compiled experiments: refits. Slow."""

import json

import jax
import numpy as np
import pytest

from bayes_mdp.agents import PSRL
from bayes_mdp.experiments import RunOptions, run
from bayes_mdp.inference import CollapsedPosterior, infer
from bayes_mdp.mdp import Discounted, StateActionSpace
from bayes_mdp.models import random_environment, unknown_concentration

SPACE = StateActionSpace(3, 2)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["collapsed", "quadrature"])
def test_a_collapsed_belief_is_refitted_in_a_run(method):
    """Without Metropolis steps its weights wear out: chains for all worn seeds in one call, or integrals on the host;
    the same bits twice."""
    prior = unknown_concentration()
    whole = infer(jax.random.key(0), prior, space=SPACE, method=method)
    assert isinstance(whole, CollapsedPosterior) and whole.method == method
    belief = whole.thinned(jax.random.key(1), 16, moves=0)

    def played():
        options = RunOptions(progress=False, num_checkpoints=4, env_prior=prior, refit_every=1, regret="bayes")
        env = random_environment(jax.random.key(0), prior, SPACE, initial=np.full(3, 1 / 3))
        length = {"num_steps": 40, "num_seeds": 2, "options": options}
        return run(PSRL(5), env, prior=belief, objective=Discounted(0.9), key=jax.random.key(2), **length)

    result = played()
    assert result["refits"].values.sum() > 0 and json.loads(result.attrs["refit_cost"])["calls"] > 0
    again = played()
    assert np.array_equal(again["reward"], result["reward"]) and np.array_equal(again["refits"], result["refits"])
