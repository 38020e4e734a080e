"""The agent of expected information: its plan by numpy, exploration only, what it seeks, what it refuses."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import entr

from bayes_mdp.agents import InformationGain
from bayes_mdp.inference.conjugate.conjugate_posterior import conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.inference.conjugate.rewards import known_rewards
from bayes_mdp.mdp import MDP, AverageReward, Discounted, Episodic, Problem, StateActionSpace

H, S, A, DISCOUNT = 5, 4, 2, 0.9
LEGAL = np.ones((S, A), bool)
LEGAL[1, 0] = False


class Belief(eqx.Module):
    """A mean, and what a transition tells."""

    mdp: MDP
    information: Any

    def mean_mdp(self):
        """The mean."""
        return self.mdp

    def expected_information(self):
        """Nats."""
        return self.information


def world(seed=0, *, horizon=None) -> Belief:
    rng = np.random.default_rng(seed)
    size = (S, A) if horizon is None else (horizon, S, A)
    rows = rng.dirichlet(np.ones(S), size=size)
    return Belief(MDP(rows, rng.normal(size=size), legal=LEGAL), jnp.asarray(rng.uniform(0, 1, size)))


def optimal(belief, worth, horizon):
    """q of every step (Episodic), or q* by 400 sweeps (None), by numpy."""
    rows = np.broadcast_to(belief.mdp.transition_probs, (horizon or 400, S, A, S)).astype(float)
    worth = np.where(LEGAL, np.broadcast_to(worth, (len(rows), S, A)), -np.inf)
    v, q = np.zeros(S), []
    for h in reversed(range(len(rows))):
        q.insert(0, worth[h] + (1.0 if horizon else DISCOUNT) * rows[h] @ v)
        v = q[0].max(-1)
    return np.array(q) if horizon else q[0]


@jax.jit
def two_plans(agent, objective, belief):
    key, task = jax.random.key(0), Problem(StateActionSpace(S, A, legal=LEGAL), objective)
    policy, state = agent.plan(key, task, agent.init(key, task), belief)
    return policy.q, agent.plan(key, task, state, belief)[0].q


CASES = [(None, Episodic(H), True), (H, Episodic(H), False), (None, Discounted(DISCOUNT), True)]


@pytest.mark.parametrize(("horizon", "objective", "rewards"), CASES)
def test_the_plan_is_optimal_for_reward_and_information_together(horizon, objective, rewards):
    """Rewards left out in one of the cases; the second plan starts from the first."""
    belief = world(1, horizon=horizon)
    worth = 2.5 * np.asarray(belief.information) + (np.asarray(belief.mdp.reward) if rewards else 0.0)
    q = optimal(belief, worth, H if isinstance(objective, Episodic) else None)
    first, second = two_plans(InformationGain(2.5, rewards=rewards), objective, belief)
    np.testing.assert_allclose(first, q, rtol=1e-4)
    np.testing.assert_allclose(second, q, rtol=1e-4)


def test_it_goes_through_what_it_knows_to_what_it_does_not():
    """A corridor of known steps to a row that nobody has seen; the twin, which counts one step alone, stays."""
    space = StateActionSpace(S, A)
    there = np.zeros((S, A, S))
    for s in range(S):
        there[s, 0, max(s - 1, 0)] = there[s, 1, min(s + 1, S - 1)] = 1000.0
    there[S - 1] = 0.0
    rows = dirichlet_rows(np.ones((S * A, S)), (S, A, S))
    rows = eqx.tree_at(lambda r: r.counts, rows, there.reshape(S * A, S))
    counted = conjugate_posterior(rows, known_rewards(np.zeros((S, A))), space)
    task = Problem(space, Episodic(H))

    @jax.jit
    def plan(belief):
        agent = InformationGain(rewards=False)
        tells = belief.expected_information()
        return agent.plan(jax.random.key(0), task, None, belief)[0].best, jnp.argmax(tells, -1), tells

    best, myopic, tells = plan(counted)
    assert (np.asarray(tells)[:-1] < 0.01).all() and (np.asarray(tells)[-1] > 0.1).all()
    np.testing.assert_array_equal(np.asarray(best)[0, :-1], 1)
    assert np.ptp(np.asarray(tells)[1]) < 1e-6 and np.asarray(myopic).min() == 0


def test_with_rows_of_its_own_for_every_step_a_plan_is_worth_what_the_episode_tells():
    """H(paths) - E[H(paths | rows)] of its policy, 20,000 numpy draws, 6 standard errors (false alarms 2e-9).

    The smallest fault that is surely caught is 5 %. The twin, H times what the first step tells, is caught.
    """
    rng = np.random.default_rng(3)
    prior = rng.uniform(0.3, 2.0, (H, S, A, S))
    rows = dirichlet_rows(prior.reshape(-1, S), prior.shape)
    space = StateActionSpace(S, A, horizon=H)
    belief = conjugate_posterior(rows, known_rewards(np.zeros((H, S, A))), space)
    agent, task = InformationGain(rewards=False), Problem(space, Episodic(H))
    policy = jax.jit(lambda p: agent.plan(jax.random.key(0), task, None, p)[0])(belief)
    best, worth = np.asarray(policy.best), float(policy.q[0, 0].max())
    taken = prior[np.arange(H)[:, None], np.arange(S), best]
    draws = np.stack([[rng.dirichlet(c, 20_000) for c in layer] for layer in taken])  # [H S N S]
    mean = np.broadcast_to((taken / taken.sum(-1, keepdims=True))[:, :, None], draws.shape)
    given, before = path_entropy(draws), path_entropy(mean)[0]
    error = given.std() / len(given) ** 0.5
    assert 12 * error < 0.05 * worth
    assert abs(before - given.mean() - worth) < 6 * error
    first = path_entropy(mean[:1])[0] - path_entropy(draws[:1]).mean()
    assert abs(H * first - worth) > 6 * error


def path_entropy(rows):
    """Entropy of the paths from state 0 of chains [H S N S]: [N]."""
    mass, total = np.eye(S)[0] * np.ones((rows.shape[2], 1)), np.zeros(rows.shape[2])
    for layer in rows:
        total += (mass * entr(layer).sum(-1).T).sum(-1)
        mass = np.einsum("ns,snz->nz", mass, layer)
    return total


class Mute(eqx.Module):
    """A mean, and nothing else."""

    def mean_mdp(self):
        """Never asked for."""


def test_refusals(key):
    with pytest.raises(ValueError, match=r"scale is -1\.0, expected a finite number, zero or greater"):
        InformationGain(-1.0)
    wrong: Any = "no"
    with pytest.raises(TypeError, match="rewards is 'no', expected True or False"):
        InformationGain(rewards=wrong)
    with pytest.raises(ValueError, match="objective is AverageReward, expected Discounted or Episodic"):
        InformationGain().init(key, Problem(StateActionSpace(S, A), AverageReward()))
    with pytest.raises(TypeError, match="InformationGain needs a posterior that has expected_information"):
        InformationGain().check_belief(Mute())
