"""BOSS: its plan by numpy in the explicit merged MDP, the bound, listed successors, when it draws, what it refuses."""

from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents import BOSS, PSRL, Reached
from bayes_mdp.agents.optimism.optimistic_sampling import merge_draws
from bayes_mdp.experiments.actor import ReplanStats, host_rule
from bayes_mdp.mdp import MDP, AverageReward, Discounted, Episodic, Problem, SparseMDP, StateActionSpace
from bayes_mdp.planning import solve

H, S, A, K, DISCOUNT = 3, 4, 2, 3, 0.9
LEGAL = np.array([[True, True], [True, False], [False, True], [True, True]])


class Draws(eqx.Module):
    """A belief whose draws are given."""

    mdps: Any

    def sample(self, key, sample_shape=()):
        """All of them."""
        return self.mdps


def draws(seed=0, *, layered, ends=True, legal=True):
    """K random MDPs, with every array once for each."""
    rng, size = np.random.default_rng(seed), (K, H, S, A) if layered else (K, S, A)
    full = rng.dirichlet(np.full(S + 1, 0.4), size=size)
    rows, over = (full[..., :S], full[..., S]) if ends else (full[..., :S] / full[..., :S].sum(-1, keepdims=True), None)
    mask = np.broadcast_to(LEGAL, (K, S, A)) if legal else None
    one = lambda r, x, e, m: MDP(r, x, end_probs=e, legal=m)  # noqa: E731
    arrays = [None if x is None else jnp.asarray(x) for x in (rows, rng.normal(size=size), over, mask)]
    return jax.vmap(one, [None if x is None else 0 for x in arrays])(*arrays)


def sweep(rows, reward, v, discount):
    """max over (action, draw) of reward + discount P v, in the explicit merged MDP; [S A] by the best draw."""
    q = np.full((S, A), -np.inf)
    for s, a in np.argwhere(LEGAL):
        q[s, a] = max(reward[k, s, a] + discount * rows[k, s, a] @ v for k in range(len(rows)))
    return q


def by_numpy(mdps, horizon, indices=tuple(range(K))):
    """q of every step (Episodic), or q* by 400 sweeps (None), of the merged MDP of some draws."""
    keep = list(indices)
    rows, reward = (np.asarray(x, float)[keep] for x in (mdps.transition_probs, mdps.reward))
    v, q = np.zeros(S), []
    for h in reversed(range(horizon or 400)):
        now = (rows, reward) if reward.ndim == 3 else (rows[:, h], reward[:, h])
        q.insert(0, sweep(*now, v, 1.0 if horizon else DISCOUNT))
        v = q[0].max(-1)
    return np.array(q) if horizon else q[0]


@pytest.mark.parametrize(
    ("objective", "layered"), [(Episodic(H), True), (Episodic(H), False), (Discounted(DISCOUNT), False)]
)
def test_the_plan_is_value_iteration_in_the_merged_mdp(objective, layered, key):
    """By numpy, pair (action, draw) by pair. Its values are at least those of every draw alone, by numpy too."""
    mdps, horizon = draws(layered=layered), H if isinstance(objective, Episodic) else None
    task = Problem(StateActionSpace(S, A, horizon=H if layered else None, ends=True, legal=LEGAL), objective)
    agent = BOSS(K)
    plan = jax.jit(lambda state: agent.plan(key, task, state, Draws(mdps)))
    policy, state = plan(agent.init(key, task))
    expected = by_numpy(mdps, horizon)
    np.testing.assert_allclose(policy.q, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(policy.best, expected.argmax(-1))
    if state is not None:  # a warm start changes nothing
        np.testing.assert_array_equal(plan(state)[0].best, policy.best)
    alone = np.stack([by_numpy(mdps, horizon, (k,)).max(-1) for k in range(K)])
    merit = expected.max(-1)
    assert (merit >= alone - 1e-9).all() and (merit > alone.max(0) + 0.01).any()


def test_the_gain_of_the_merged_mdp_is_at_least_that_of_every_draw():
    """The average reward: rows without ends, every pair of draws."""
    mdps = draws(layered=False, ends=False)
    best = float(solve(merge_draws(mdps), AverageReward()).gain)
    alone = [float(solve(jax.tree.map(lambda x, k=k: x[k], mdps), AverageReward()).gain) for k in range(K)]
    assert best > max(alone) + 0.01


def test_one_draw_is_posterior_sampling_and_equal_draws_are_one(key):
    mdps, task = draws(layered=False), Problem(StateActionSpace(S, A, ends=True, legal=LEGAL), Discounted(DISCOUNT))
    first = jax.tree.map(lambda x: x[:1], mdps)
    same = jax.tree.map(lambda x: jnp.repeat(x[:1], K, 0), mdps)
    alone = PSRL().plan(key, task, PSRL().init(key, task), Draws(jax.tree.map(lambda x: x[0], mdps)))[0]
    for number, batch in ((1, first), (K, same)):
        agent = BOSS(number)
        policy = agent.plan(key, task, agent.init(key, task), Draws(batch))[0]
        np.testing.assert_allclose(policy.q, alone.q, rtol=1e-5)
        np.testing.assert_array_equal(policy.best, alone.best)


def test_listed_successors(key):
    """Draws that list their successors give the plan of the dense ones."""
    dense = draws(layered=False, legal=False)
    listed = jnp.broadcast_to(jnp.arange(S), (K, S, A, S))
    sparse = jax.vmap(lambda z, p, r, e: SparseMDP(z, p, r, end_probs=e))(
        listed, dense.transition_probs, dense.reward, dense.end_probs
    )
    task, agent = Problem(StateActionSpace(S, A, ends=True), Discounted(DISCOUNT)), BOSS(K)
    one, other = (agent.plan(key, task, agent.init(key, task), Draws(x))[0] for x in (dense, sparse))
    np.testing.assert_allclose(one.q, other.q, rtol=1e-5)


def test_it_draws_when_a_pair_has_been_visited_often_enough_for_the_first_time():
    """The paper's counter, by a plain loop over random pairs."""
    rng, needed = np.random.default_rng(0), 4
    visited = rng.choice(6, 60, p=[0.5, 0.2, 0.1, 0.1, 0.08, 0.02])
    host, stats, planned = host_rule(Reached(needed)), ReplanStats((3, 2)), []
    count, expected = np.zeros(6), []
    for time, pair in enumerate(visited, 1):
        count[pair] += 1
        if count[pair] == needed:
            expected.append(time)
        stats.time += 1
        stats.visits[pair] += 1
        if host.due(stats) is not None:
            planned.append(time)
            stats.note_plan(time)
            host.note_plan(stats)
    assert planned == expected and len(expected) >= 4


def test_refusals(key):
    with pytest.raises(ValueError, match="num_draws is 0, expected an integer of at least 1"):
        BOSS(0)
    task, nothing = Problem(StateActionSpace(S, A), Discounted(0.9)), cast(Any, object())
    with pytest.raises(TypeError, match="BOSS needs a posterior that has sample"):
        BOSS().plan(key, task, BOSS().init(key, task), nothing)
