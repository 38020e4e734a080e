"""Codes of counts: bit fields, unions of runs, what is forgotten."""

# pyright: reportArgumentType=false

import numpy as np
import pytest

from bayes_mdp.decisions.bayes_optimum import WORD_BITS, child, hyper_problem, search_key, union
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
    codes = rng.integers(0, 4, (300, words)).astype(np.uint64) * np.uint64(2**62)
    merged = union([codes[:100], codes[:0], codes[100:]])
    np.testing.assert_array_equal(merged, np.unique(codes, axis=0))
    assert np.array_equal(np.searchsorted(search_key(merged), search_key(merged)), np.arange(len(merged)))


def test_counters_fit_into_their_words_and_do_not_overlap():
    counters = problem_of().counters
    assert counters.num_words == 3 and counters.base.size == 30
    used = np.zeros((counters.num_words, WORD_BITS), int)
    for word, shift, width in zip(counters.word, counters.shift, counters.width, strict=True):
        assert width == 5  # 19 counts can matter
        used[word, shift : shift + width] += 1
    assert used.max() == 1


def test_counts_are_read_back_as_concentrations():
    counters, rng = problem_of().counters, np.random.default_rng(0)
    counts = rng.integers(0, 20, (50, counters.base.size))
    codes = np.zeros((50, counters.num_words), np.uint64)
    for row, times in enumerate(counts):
        for counter, n in enumerate(times):
            for _ in range(n):
                codes[row] += np.array(counters.increment((counter,), 0), np.uint64)
    for counter in range(counters.base.size):
        expected = counters.base[counter] + counts[:, counter]
        np.testing.assert_array_equal(counters.concentration(codes, counter), expected)


def test_what_no_later_step_uses_is_forgotten():
    """Rows of steps 0 and 1 are one, rows of step 2 another: the first counts matter after step 0, not after step 1."""
    row = np.array([0, 0, 1])[:, None, None] + np.zeros((3, 2, 1), int)
    rows = dirichlet_rows(np.ones((2, 2)), (3, 2, 1, 2), row=row)
    space = StateActionSpace(2, 1, horizon=3)
    counters = hyper_problem(conjugate_posterior(rows, known_rewards(np.zeros((3, 2, 1))), space), 3).counters
    np.testing.assert_array_equal(counters.width, [1, 1, 0, 0])
    assert counters.increment((1,), 0) == (2,) and counters.increment((1,), 1) == (0,)
    assert counters.kept(0) is None
    forgotten = child(np.array([[1], [2]], np.uint64), counters.kept(1), (0,))
    assert not forgotten.any() and len(union([forgotten])) == 1
