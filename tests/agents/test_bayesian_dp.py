"""Bayesian DP: PSRL on the support that it was told, refused without one."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.agents import PSRL, BayesianDP
from bayes_mdp.agents.common.replan import EveryEpisode, EverySteps
from bayes_mdp.envs import chain
from bayes_mdp.inference import infer
from bayes_mdp.mdp import Discounted, Problem, StateActionSpace
from bayes_mdp.models import dirichlet_normal

ENV = chain()
SUPPORT = np.asarray(ENV.mdp.transition_probs) > 0  # pyright: ignore[reportAttributeAccessIssue]
SPACE = StateActionSpace(5, 2, support=SUPPORT)
PRIOR = dirichlet_normal(noise_scale=1.0)


@pytest.mark.slow
def test_it_is_psrl_on_the_support(key):
    """The draw that it follows has no probability elsewhere; with the same belief PSRL follows the same draw."""
    belief = infer(key, PRIOR, space=SPACE)
    problem = Problem(SPACE, Discounted(0.95))
    follow = jax.jit(lambda agent: agent.plan(key, problem, agent.init(key, problem), belief)[0].q)
    np.testing.assert_array_equal(follow(BayesianDP()), follow(PSRL()))
    drawn = belief.sample(key, (20,))
    rows = np.asarray(jnp.moveaxis(drawn.transition_probs, 0, -1))
    assert not rows[~SUPPORT].any() and (rows[SUPPORT] > 0).all()


def test_when_it_draws_anew():
    assert BayesianDP(7).replan == EverySteps(7)  # pyright: ignore[reportArgumentType]
    assert isinstance(BayesianDP("episode").replan, EveryEpisode)  # pyright: ignore[reportArgumentType]


def test_a_space_without_support_is_refused(key):
    bare = Problem(replace(SPACE, support=None), Discounted(0.95))
    with pytest.raises(ValueError, match=r"space\.support is None, expected the possible successors .* BayesianDP"):
        BayesianDP().init(key, bare)
    with pytest.raises(ValueError, match=r"space\.support is None"):
        bm.run(BayesianDP(), ENV, prior=PRIOR, objective=Discounted(0.95), num_steps=2, key=key)
