"""What the tallies count, against a loop; short lists."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents.model_based.empirical_planning import ListedTally, Stats, Tally
from bayes_mdp.mdp import Problem, StateActionSpace, Transitions
from tests.agents.empirical_models import DISCOUNTED, as_transitions, counted
from tests.agents.histories import LEGAL, A, H, S, history, problem

SEEN = history(5)


@jax.jit
def tallied(tally: Any, task: Problem, data: Transitions, weight: Any) -> Any:
    """The tally after a block."""

    def step(tally: Any, seen: Any) -> Any:
        one, used = seen
        new = tally.count(task, one, used) if isinstance(tally, Tally) else tally.count(one, used)
        return new, None

    return jax.lax.scan(step, tally, (data, weight))[0]


def test_a_dense_tally_is_the_loop():
    """Stationary and by steps; what has weight zero leaves no trace, though its reward is no number."""
    expected = counted(SEEN)
    for task in (DISCOUNTED, problem(layered=True)):
        tally = tallied(Tally.empty(task.space), task, *as_transitions(SEEN[:70]))
        rest, weight = as_transitions([(*x[:3], np.nan, *x[4:]) for x in SEEN[70:]])
        again = tallied(tally, task, rest, weight * 0.0)
        for one, other in zip(jax.tree.leaves(tally), jax.tree.leaves(again), strict=True):
            np.testing.assert_array_equal(one, other)
        stats = tallied(again, task, *as_transitions(SEEN[70:])).stats
        if stats.visits.ndim == 3:
            assert stats.visits.shape == (H, S, A)
            by_step = np.zeros((H, S, A))
            for h, s, a, *_ in SEEN:
                by_step[h, s, a] += 1
            np.testing.assert_array_equal(stats.visits, by_step)
            mean = jnp.asarray(expected.reward)
            stats = Stats(stats.visits.sum(0), mean, stats.counts.sum(0), stats.last_use.max(0))
        np.testing.assert_array_equal(stats.visits, expected.n)
        np.testing.assert_allclose(stats.reward, expected.reward, rtol=1e-5)
        np.testing.assert_array_equal(stats.counts, expected.following)
        np.testing.assert_array_equal(stats.last_use, expected.last)
        np.testing.assert_allclose(stats.probs, expected.rows, rtol=1e-6)


def test_a_listed_tally_says_the_same():
    """The counts of the successors and of the predecessors that were seen; an end has none."""
    expected = counted(SEEN)
    tally = tallied(ListedTally.empty(DISCOUNTED.space, S, S), DISCOUNTED, *as_transitions(SEEN))
    stats, successor = tally.stats(jnp.arange(S))
    rows = np.zeros((S, A, S))
    np.add.at(rows, (*np.indices((S, A, S))[:2], np.asarray(successor)), np.asarray(stats.counts))
    np.testing.assert_array_equal(rows, expected.following)
    np.testing.assert_array_equal(stats.visits, expected.n)
    np.testing.assert_allclose(stats.reward, expected.reward, rtol=1e-5)
    np.testing.assert_array_equal(stats.last_use, expected.last)
    leads = expected.following.sum(1) > 0
    for y in range(S):
        found = [int(x) for x in tally.predecessor[y] if x < S]
        assert sorted(found) == np.flatnonzero(leads[:, y]).tolist()
    assert tally.lost == 0
    assert tally.time == len(SEEN)


def test_weight_zero_leaves_a_listed_tally_alone():
    tally = tallied(ListedTally.empty(DISCOUNTED.space, S, S), DISCOUNTED, *as_transitions(SEEN[:50]))
    rest, weight = as_transitions([(*x[:3], np.nan, *x[4:]) for x in SEEN[50:]])
    again = tallied(tally, DISCOUNTED, rest, weight * 0.0)
    for one, other in zip(jax.tree.leaves(tally), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_finds_no_place_is_lost():
    """One successor a pair, two predecessors a state: what does not fit is counted nowhere, and said to be lost."""
    seen, lost, first, before = [], 0, {}, {}
    for x in SEEN:
        _, s, a, _, after, over = x
        fits = over or (first.get((s, a), after) == after and len(before.get(after, set()) | {s}) <= 2)
        lost += not fits
        if fits:
            seen.append(x)
            if not over:
                first[s, a] = after
                before[after] = before.get(after, set()) | {s}
    assert 0 < lost < len(SEEN)
    tally = tallied(ListedTally.empty(DISCOUNTED.space, 1, 2), DISCOUNTED, *as_transitions(SEEN))
    expected = counted(seen)
    assert tally.lost == lost
    np.testing.assert_array_equal(tally.visits, expected.n)
    np.testing.assert_array_equal(tally.counts[..., 0], expected.following.sum(-1))
    np.testing.assert_allclose(tally.total, expected.n * expected.reward, rtol=1e-5)
    assert (np.asarray(tally.visits)[~LEGAL] == 0).all()


def test_counts_that_would_not_fit_in_memory_are_refused():
    """A terabyte, before it is asked for; lists of successors are small."""
    with pytest.raises(ValueError, match=r"^space has 4e?.* counts of next states, about .* GiB .*PrioritizedSweeping"):
        Tally.empty(StateActionSpace(1_000_000, 4))
    assert ListedTally.empty(StateActionSpace(1000, 4), 4, 4).counts.shape == (1000, 4, 4)
