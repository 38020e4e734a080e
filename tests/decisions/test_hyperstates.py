"""Codes of counts: vectors as numbers or strings, unions of runs, what is forgotten."""

# pyright: reportArgumentType=false

import numpy as np
import pytest

from bayes_mdp.decisions.bayes_optimum import hyper_problem, union
from bayes_mdp.inference.conjugate.conjugate_posterior import conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.conjugate.rewards import known_rewards
from bayes_mdp.inference.families.bernoulli import BetaBelief
from bayes_mdp.mdp import StateActionSpace

pytestmark = pytest.mark.numerics


def problem_of(horizon=20, n_states=3):
    """Unknown rows and coins, stationary."""
    rows = dirichlet_rows(np.full((2 * n_states, n_states), 0.5), (n_states, 2, n_states))
    rewards = reward_cells(BetaBelief(np.ones(2 * n_states), np.full(2 * n_states, 2.0)), (n_states, 2))
    return hyper_problem(conjugate_posterior(rows, rewards, StateActionSpace(n_states, 2)), horizon)


@pytest.mark.parametrize("words", [1, 2, 3])
def test_a_union_is_what_numpy_finds_unique(words):
    rng = np.random.default_rng(words)
    counts = rng.integers(0, 3, (300, words)).astype(np.uint64) * np.uint64(2**62)
    codes = (counts if words == 1 else counts.view(f"S{8 * words}"))[:, 0]
    merged = union([codes[:100], codes[:0], codes[100:]])
    assert {x.tobytes() for x in counts} == {x.tobytes() for x in merged.view(np.uint64).reshape(-1, words)}
    assert len(merged) == len(np.unique(counts, axis=0))
    assert np.array_equal(np.searchsorted(merged, merged), np.arange(len(merged)))


@pytest.mark.parametrize("horizon", [20, 300])
def test_counts_are_read_back_as_concentrations(horizon):
    """Of a byte each, and of two bytes where an episode can add more: to the last count without a carry."""
    problem, rng = problem_of(horizon), np.random.default_rng(0)
    assert problem.base.size == 30 and problem.num_words == (4 if horizon == 20 else 8)
    counts = rng.integers(0, 20, (50, problem.base.size))
    counts[0] = horizon - 1
    codes = problem.no_counts().repeat(50)
    for row, times in enumerate(counts):
        for counter, n in enumerate(times):
            for _ in range(n):
                codes[row : row + 1] = problem.child(codes[row : row + 1], 0, (int(problem.place[counter]),))
    for counter in range(problem.base.size):
        np.testing.assert_array_equal(problem.concentration(codes, counter), problem.base[counter] + counts[:, counter])


def test_what_no_later_step_uses_is_forgotten():
    """Rows of steps 0 and 1 are one, rows of step 2 another: the first counts matter after step 0, not after step 1."""
    row = np.array([0, 0, 1])[:, None, None] + np.zeros((3, 2, 1), int)
    rows = dirichlet_rows(np.ones((2, 2)), (3, 2, 1, 2), row=row)
    space = StateActionSpace(2, 1, horizon=3)
    problem = hyper_problem(conjugate_posterior(rows, known_rewards(np.zeros((3, 2, 1))), space), 3)
    np.testing.assert_array_equal(problem.place, [0, 1, -1, -1])
    assert [branch.raised for branch in problem.branches(0, 0, 0)] == [[(0,)], [(1,)]]
    assert [branch.raised for branch in problem.branches(1, 0, 0)] == [[()], [()]]
    codes = np.array([1, 2**8], np.uint64)
    np.testing.assert_array_equal(problem.child(codes, 0, ()), codes)
    forgotten = problem.child(codes, 1, ())
    assert not forgotten.any() and len(union([forgotten])) == 1
