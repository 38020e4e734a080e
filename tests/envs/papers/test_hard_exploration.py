# pyright: reportAttributeAccessIssue=false, reportOptionalOperand=false
"""DeepSea of bsuite, the chains of TabulaRL, Garnet: rows by literal transcription, optima by the planner."""

import numpy as np
import pytest

from bayes_mdp.envs import bsuite_deep_sea, garnet, osband_chain
from bayes_mdp.envs.papers import random_mdps as garnets
from bayes_mdp.mdp import MDP, Episodic, SparseMDP
from bayes_mdp.planning import solve
from tests.envs.papers.test_papers import finite_horizon

SIZE = 6


def _arrays(env):
    """Rows [*H S A S'], mean rewards and first state, by numpy: `to_dense` compiles for every size."""
    mdp = env.mdp
    successor, probability = np.asarray(mdp.successor), np.asarray(mdp.probability)
    rows = np.zeros((*successor.shape[:-1], mdp.n_states))
    pair = np.indices(successor.shape)[:-1]
    np.add.at(rows, (*pair, successor), probability)
    return rows, np.asarray(mdp.reward), np.asarray(mdp.initial)


def _deep_sea_by_hand(right_action, stochastic):
    """Rows [H S A S'], mean rewards and noise [H S A], cell by cell as bsuite's `_step` runs through them."""
    n = len(right_action)
    rows, reward, noise = np.zeros((n, n, 2, n)), np.zeros((n, n, 2)), np.zeros((n, n, 2))
    for row, column, action in np.ndindex(n, n, 2):
        action_right = action == right_action[row, column]
        if column == n - 1 and action_right:
            reward[row, column, action] += 1.0
        if stochastic and row == n - 1 and column in [0, n - 1]:
            noise[row, column, action] = 1.0
        if action_right:
            succeeds = 1 - 1 / n if stochastic else 1.0
            rows[row, column, action, np.clip(column + 1, 0, n - 1)] += succeeds
            rows[row, column, action, column] += 1 - succeeds
            reward[row, column, action] -= 0.01 / n
        else:
            rows[row, column, action, np.clip(column - 1, 0, n - 1)] += 1.0
    return rows, reward, noise


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("stochastic", [False, True])
@pytest.mark.parametrize("mapping_seed", [None, 3])
def test_deep_sea_is_that_of_bsuite(stochastic, mapping_seed):
    env = bsuite_deep_sea(SIZE, stochastic=stochastic, mapping_seed=mapping_seed)
    drawn = np.random.RandomState(3).binomial(1, 0.5, [SIZE, SIZE])
    right_action = np.ones((SIZE, SIZE)) if mapping_seed is None else drawn
    rows, reward, noise = _deep_sea_by_hand(right_action, stochastic)
    ours, paid, initial = _arrays(env)
    np.testing.assert_allclose(ours, rows, atol=1e-15)
    np.testing.assert_allclose(paid, reward, atol=1e-15)
    scale = env.reward_law.scale
    np.testing.assert_array_equal(np.zeros_like(noise) if scale is None else scale, noise)
    np.testing.assert_array_equal(initial, np.eye(SIZE)[0])
    assert 0 < drawn.sum() < SIZE**2


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("mapping_seed", [None, 3])
def test_optima_of_deep_sea(mapping_seed):
    """Backward induction; bsuite's number for the stochastic one lies below it, it pays for rights that are in vain."""
    plain, env = (bsuite_deep_sea(SIZE, stochastic=x, mapping_seed=mapping_seed) for x in (False, True))
    for each in (plain, env):
        rows, reward, _ = _arrays(each)
        assert finite_horizon(rows, reward, SIZE)[0] == pytest.approx(each.optimum, abs=1e-12)
    p = 1 - 1 / SIZE
    assert env.optimum - (p ** (SIZE - 1) - 0.01) == pytest.approx(0.01 * p**SIZE, abs=1e-12)
    assert plain.optimum == 0.99


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("make", [bsuite_deep_sea, osband_chain])
def test_the_planner_agrees(make):
    env = make(SIZE, stochastic=True)
    assert float(solve(env.mdp, Episodic(SIZE)).v[0, 0]) == pytest.approx(env.optimum, abs=1e-12)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("stochastic", "horizon"), [(False, None), (False, 9), (False, 3), (True, None), (True, 9)])
def test_chains_of_tabularl(stochastic, horizon):
    n = SIZE
    env = osband_chain(n, horizon=horizon, stochastic=stochastic)
    rows, noise_at = np.zeros((n, 2, n)), {(0, 0), (n - 1, 1)}
    fails = 1 / n if stochastic else 0.0
    for s in range(n):
        rows[s, 0, max(0, s - 1)] = 1.0
        rows[s, 1, min(n - 1, s + 1)] = 1 - fails
        rows[s, 1, max(0, s - 1)] += fails
    ours, paid, initial = _arrays(env)
    np.testing.assert_allclose(ours, rows, atol=1e-15)
    assert {tuple(i) for i in np.argwhere(np.asarray(env.reward_law.scale) == 1.0)} == noise_at
    assert np.asarray(env.reward_law.scale).sum() == 2
    assert paid[n - 1, 1] == 1 and paid.sum() == 1 and initial[0] == 1
    steps = horizon or n
    assert finite_horizon(ours, paid, steps)[0] == pytest.approx(env.optimum, abs=1e-12)
    if not stochastic:
        assert env.optimum == max(0, steps - n + 1)
    elif horizon is None:
        assert env.optimum == pytest.approx((1 - 1 / n) ** (n - 1), abs=1e-12)


def test_garnet_has_its_branching_and_its_law():
    """b distinct successors, uniform on the simplex, uniform over states; means N(0, 1).

    20,000 pairs. The largest of b probabilities has mean (1 + 1/2 + 1/3) / 3 at b = 3; 6 standard errors everywhere:
    false alarms 2e-9 each, 52 comparisons; catches an error of 2 % in the lengths (normalised uniforms: 0.553 for
    0.611) and of 2 % in the rate of a state.
    """
    env = garnet(50, 400, 3, seed=1)
    assert isinstance(env.mdp, SparseMDP)
    successor, probability, mean = (np.asarray(x) for x in (env.mdp.successor, env.mdp.probability, env.mdp.reward))
    pairs = 50 * 400
    assert successor.shape == (50, 400, 3) and np.all(np.diff(successor, axis=-1) > 0)
    largest = probability.max(-1)
    assert abs(largest.mean() - 11 / 18) < 6 * largest.std() / np.sqrt(pairs)
    rates = np.bincount(successor.ravel(), minlength=50) / pairs
    assert np.all(np.abs(rates - 3 / 50) < 6 * np.sqrt(0.06 * 0.94 / pairs))
    assert abs(mean.mean()) < 6 / np.sqrt(pairs) and abs(mean.std() - 1) < 6 / np.sqrt(2 * pairs)


def test_garnets_of_a_seed_are_one_and_full_ones_are_dense():
    first, again, other = garnet(5, 2, 2, seed=7), garnet(5, 2, 2, seed=7), garnet(5, 2, 2, seed=8)
    for one, two in zip(_arrays(first), _arrays(again), strict=True):
        np.testing.assert_array_equal(one, two)
    assert not np.array_equal(first.mdp.reward, other.mdp.reward)
    assert isinstance(garnet(4, 2, 4).mdp, MDP) and isinstance(garnet(4, 2, 1).mdp, SparseMDP)


def test_a_garnet_is_the_same_in_blocks(monkeypatch):
    """Its numbers are those of one order of all states, whatever is in memory at a time."""
    whole = garnet(40, 2, 3, seed=5)
    monkeypatch.setattr(garnets, "BLOCK", 7 * 2 * 40)
    np.testing.assert_array_equal(garnet(40, 2, 3, seed=5).mdp.successor, whole.mdp.successor)
    rng = np.random.default_rng(5)
    by_hand = np.sort(rng.random((40, 2, 40)).argsort(-1)[..., :3], -1)
    np.testing.assert_array_equal(by_hand, whole.mdp.successor)


def test_next_states_of_large_garnets_are_drawn_one_by_one(monkeypatch):
    """Distinct, in order, and every set equally often: 10 sets of 3 of 5 states in 20,000 pairs, 6 standard errors.

    False alarm 2e-8. `MOST_ORDERED` decides; 100,000 states need no order of them.
    """
    monkeypatch.setattr(garnets, "MOST_ORDERED", 0)
    successor = np.asarray(garnet(5, 4000, 3).mdp.successor)
    assert np.all(np.diff(successor, axis=-1) > 0)
    counts = np.unique((2**successor).sum(-1), return_counts=True)[1]
    assert len(counts) == 10
    assert np.all(np.abs(counts - 2000) < 6 * np.sqrt(20_000 * 0.1 * 0.9))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: bsuite_deep_sea(1), "size is 1, expected an integer of at least 2"),
        (lambda: bsuite_deep_sea(5, mapping_seed=-1), "mapping_seed is -1, expected an integer of at least 0"),
        (lambda: osband_chain(1), "n_states is 1, expected an integer of at least 2"),
        (lambda: osband_chain(5, horizon=0), "horizon is 0, expected an integer of at least 1"),
        (lambda: garnet(5, 2, 6), "branching is 6, expected at most 5, the number of states"),
        (lambda: garnet(5, 0), "n_actions is 0, expected an integer of at least 1"),
        (lambda: garnet(5, seed=-1), "seed is -1, expected an integer of at least 0"),
        (lambda: garnet(noise=-0.5), r"noise is -0\.5, expected a finite number"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
