"""The optimistic agents under `run`: they learn a small DeepSea."""

import pytest

import bayes_mdp as bm
from bayes_mdp.agents import BEB, BOLT, OPSRL, UCBVI, BayesUCBVI
from bayes_mdp.envs import deep_sea
from bayes_mdp.mdp import Episodic
from bayes_mdp.models import dirichlet_normal

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
