"""Moments of unknown rewards; under `run` the optimistic agents learn a small DeepSea."""

import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.agents import BEB, BOLT, OPSRL, UCBVI, BayesUCBVI
from bayes_mdp.agents.common.mean_model import reward_moments
from bayes_mdp.envs import deep_sea
from bayes_mdp.inference import mixture
from bayes_mdp.mdp import Episodic
from bayes_mdp.models import dirichlet_normal
from tests.agents.believed import Case
from tests.agents.optimism_problems import LEGAL, S, world

SIZE = 4
AGENTS = [
    UCBVI("simplified", bonus_scale=0.2),
    UCBVI("hoeffding", bonus_scale=1e-3, min_reward=-0.01),
    UCBVI("bernstein", bonus_scale=1e-3, min_reward=-0.01),
    BEB(1.0),
    BOLT(1.0, max_reward=1.0),
    BayesUCBVI(),
    OPSRL(),
    OPSRL(4, inflation=1.5),
]


def test_rewards_of_a_mixture_are_unknown_where_its_components_differ():
    """All but one are known in both components: the total variance is w (1 - w) d^2, exactly zero where they agree."""
    one = world(0, steps=False)
    unknown = np.zeros_like(one.loc)
    unknown[0, 1] = 0.2
    loc = one.loc + np.where(np.arange(S)[:, None] == 3, 0.5, 0.0)
    parts = [Case(one.concentration, each, unknown, 0 * unknown, legal=LEGAL).posterior for each in (one.loc, loc)]
    mean, variance, _ = reward_moments(mixture(parts, weights=np.array([0.3, 0.7])))
    np.testing.assert_allclose(mean, 0.3 * one.loc + 0.7 * loc, rtol=1e-6)
    np.testing.assert_allclose(variance, unknown + 0.21 * (loc - one.loc) ** 2, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: type(agent).__name__)
def test_they_learn_deep_sea(agent, key):
    """300 episodes, 5 seeds: more than half of the optimal return in the last 100 (at random: one episode in 16)."""
    prior = dirichlet_normal(concentration=0.1, noise_scale=0.1)
    result = bm.run(
        agent, deep_sea(SIZE), prior=prior, objective=Episodic(SIZE), num_episodes=300, num_seeds=5, key=key
    )
    reward = result["reward"].to_numpy().reshape(5, -1)
    returns = reward[:, -reward.shape[1] // 3 :].sum() / (5 * 100)
    assert returns > 0.5
