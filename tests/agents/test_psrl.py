"""PSRL: greedy for a draw, by both paths; warm starts do not change the answer."""

from typing import Any, cast

import equinox as eqx
import jax
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.agents import PSRL, psrl
from bayes_mdp.experiments import RunOptions
from bayes_mdp.mdp import MDP, Discounted, Episodic, Problem, StateActionSpace
from bayes_mdp.planning import solve

H, S, A = 3, 4, 2


class Certain(eqx.Module):
    """A belief that knows the world."""

    mdp: MDP

    def sample(self, key, sample_shape=()):
        """The world."""
        return self.mdp


class Layered(Certain):
    """The same, drawn layer by layer and in no other way."""

    def sample(self, key, sample_shape=()):
        """Not to be asked."""
        raise AssertionError("sample was called")

    def sample_backup(self, key, values, layer):
        """One layer of the world."""
        return self.mdp.reward[layer] + self.mdp.transition_probs[layer] @ values


def _world(shape):
    rng = np.random.default_rng(0)
    rows = rng.dirichlet(np.ones(S), size=shape)
    return MDP(rows, rng.normal(size=shape))


@pytest.mark.parametrize("kind", [Certain, Layered])
def test_episodic(kind, key, monkeypatch):
    """Both paths give the optimal policy of the world."""
    monkeypatch.setattr(psrl, "_LAYERED_ABOVE", 0)
    mdp, problem = _world((H, S, A)), Problem(StateActionSpace(S, A, horizon=H), Episodic(H))
    policy, state = PSRL().plan(key, problem, PSRL().init(key, problem), kind(mdp))
    assert state is None
    assert np.allclose(policy.q, solve(mdp, Episodic(H)).q, atol=1e-5)


def test_discounted_and_legal(key):
    """The optimal policy of the world, from a blank plan and from a warm one; illegal actions never."""
    legal = np.array([[True, True], [True, False], [False, True], [True, True]])
    world, objective = _world((S, A)), Discounted(0.9)
    mdp = MDP(world.transition_probs, world.reward, legal=legal)
    problem = Problem(StateActionSpace(S, A, legal=legal), objective)
    agent = PSRL(5)
    policy, state = agent.plan(key, problem, agent.init(key, problem), Certain(mdp))
    again, _ = agent.plan(key, problem, state, Certain(mdp))
    assert np.allclose(policy.q, solve(mdp, objective).q, atol=1e-4)
    assert np.array_equal(policy.best, again.best) and np.all(legal[np.arange(S), policy.best])


def test_needs_samples(key):
    """A belief that cannot be sampled is refused by name."""
    problem, nothing = Problem(StateActionSpace(S, A), Discounted(0.9)), cast(Any, object())
    with pytest.raises(TypeError, match="PSRL needs a posterior that has sample"):
        PSRL().plan(key, problem, PSRL().init(key, problem), nothing)


@pytest.mark.slow
@pytest.mark.optimised
def test_it_learns_deep_sea():
    """From the prior to the optimum: 8 runs of 150 episodes on a grid of 5 x 5, which random play solves once in 32.

    The regret of an episode is at most .99; the mean of the last 50 is below .1 in every run.
    """
    result = bm.run(
        PSRL(),
        bm.envs.deep_sea(5),
        prior=bm.models.dirichlet_normal(concentration=0.2, noise_scale=0.1),
        objective=Episodic(5),
        num_episodes=150,
        num_seeds=8,
        key=jax.random.key(0),
        options=RunOptions(num_checkpoints=150, progress=False),
    )
    regret = result["regret"].values
    assert regret[:, 20].min() > 0.5, "at first it does not know"
    assert ((regret[:, -1] - regret[:, -51]) / 50 < 0.1).all()
