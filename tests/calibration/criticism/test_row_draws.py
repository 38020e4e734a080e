"""Rows of some pairs: they have the law of those of whole MDPs; outcomes as often as the rows say."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import bayes_mdp as bm
from bayes_mdp.calibration.criticism.log_checks import RowDraws, draw_counts, draw_outcomes, row_draws
from bayes_mdp.mdp import Log, SparseMDP, StateActionSpace, Transitions

S, A = 4, 2
KEY = jax.random.key(3)
NEEDED = np.array([[1, 0], [1, 1], [0, 1], [1, 0]], bool)


def posterior_of(kind: str) -> Any:
    """40 transitions, of which some end."""
    rng = np.random.default_rng(2)
    state, action, reached = rng.integers(S, size=40), rng.integers(A, size=40), rng.integers(S, size=40)
    log = Log(Transitions(state, action, None, reached, rng.random(40) < 0.2), tuple("abcd"), ("go", "stay"))
    if kind == "observed":
        space = StateActionSpace.from_log(log, successors="observed")
        return bm.infer(KEY, bm.models.known_rewards(0.0), log, space=space)
    known: Any = {}
    if kind == "listed":  # the end before the states: its empty place is that of state 0 too
        known["successors"] = np.broadcast_to([4, 3, 2, 1, 0, -1], (S, A, 6))
    if kind == "support":
        possible = rng.random((S, A, S + 1)) < 0.3
        possible[state, action, np.asarray(log.transitions.outcome(S))] = True
        possible[~possible.any(-1), -1] = True
        known["support"] = possible
    space = StateActionSpace(S, A, ends=True, states=log.states, actions=log.actions, **known)
    return bm.infer(KEY, bm.models.known_rewards(0.0, 0.5), log, space=space)


def by_state(rows: RowDraws, probs: np.ndarray, n_states: int) -> np.ndarray:
    """[Q S+1]: probabilities by the state that is reached, then of the end."""
    found = np.zeros((len(rows.state), n_states + 1))
    np.add.at(found, (np.arange(len(rows.state))[:, None], rows.next_state), probs)
    return found


def whole(mdp: Any, needed: np.ndarray) -> np.ndarray:
    """The same rows of an MDP."""
    rows, ends = np.asarray(mdp.row_probs, float)[needed], np.zeros(needed.sum())
    if mdp.end_probs is not None:
        ends = np.asarray(mdp.end_probs, float)[needed]
    found = np.zeros((len(rows), mdp.n_states + 1))
    listed = isinstance(mdp, SparseMDP)
    reached = np.asarray(mdp.successor)[needed] if listed else np.tile(np.arange(mdp.n_states), (len(rows), 1))
    np.add.at(found, (np.arange(len(rows))[:, None], reached), rows)
    found[:, -1] += ends
    return found


@pytest.mark.some(2)
@pytest.mark.parametrize("kind", ["dense", "support", "listed", "observed", "mixture"])
def test_rows_have_the_law_of_the_belief(kind):
    """Means and second moments of 3,000 draws against those of whole MDPs drawn by JAX: 6.5 standard errors."""
    posterior = posterior_of("dense" if kind == "mixture" else kind)
    if kind == "mixture":
        one = jax.tree.map(jnp.asarray, posterior)
        posterior = bm.inference.mixture([one, one], weights=[0.5, 0.5])
    size = posterior.space.n_states
    needed = np.concatenate([NEEDED, np.zeros((size - S, A), bool)])
    rows = row_draws(KEY, posterior, needed)
    np.testing.assert_array_equal(np.stack([rows.state, rows.action]), np.nonzero(needed))
    np.testing.assert_allclose(
        by_state(rows, rows.mean, size), whole(posterior.mean_mdp(), needed), rtol=1e-5, atol=1e-7
    )
    drawn = np.array([by_state(rows, rows.draw(), size) for _ in range(3000)])
    np.testing.assert_allclose(drawn.sum(-1), 1.0, rtol=1e-12)
    mdps = jax.jit(jax.vmap(posterior.sample))(jax.random.split(jax.random.key(4), 3000))
    others = np.array([whole(jax.tree.map(lambda x, n=n: x[n], mdps), needed) for n in range(3000)])
    for power in (1, 2):
        x, y = drawn**power, others**power
        assert (np.abs(x.mean(0) - y.mean(0)) <= 6.5 * np.sqrt((x.var(0) + y.var(0)) / 3000) + 1e-6).all()


def test_a_place_is_found_by_the_state_that_was_reached():
    """The first place of a state that is listed twice."""
    listed = np.array([[2, 0, 2, 4], [3, 0, 0, 4]])
    rows = RowDraws(np.array([0, 1]), np.array([0, 0]), listed, np.zeros((2, 4)), lambda: np.zeros((2, 4)))
    np.testing.assert_array_equal(
        rows.place(np.array([0, 0, 0, 1, 1, 1]), np.array([2, 0, 4, 3, 0, 4])), [0, 1, 3, 4, 5, 7]
    )


@pytest.mark.parametrize("by", ["outcome", "count"])
def test_outcomes_are_as_frequent_as_their_rows_say(by):
    """Chi-square of 20,000 outcomes from three rows, at 1e-6; what has probability zero never comes."""
    probs = np.array([[0.7, 0.1, 0.2, 0.0], [0.0, 0.0, 1.0, 0.0], [0.01, 0.0, 0.5, 0.49]])
    pair = np.random.default_rng(0).integers(3, size=20_000)
    if by == "outcome":
        place = draw_outcomes(np.random.default_rng(1), probs, pair)
        np.testing.assert_array_equal(place // 4, pair)
        counts = np.bincount(place, minlength=12).reshape(3, 4)
    else:
        counts = draw_counts(np.random.default_rng(1), probs, pair)
        np.testing.assert_array_equal(counts.sum(-1), np.bincount(pair))
    expected = counts.sum(-1, keepdims=True) * probs
    assert (counts[probs == 0] == 0).all()
    some = probs > 0
    statistic = ((counts - expected)[some] ** 2 / expected[some]).sum()
    assert stats.chi2.sf(statistic, some.sum() - 3) > 1e-6


def test_few_transitions_and_many_vary_alike():
    """Variance and covariance of counts, of either way to draw them, against those of a multinomial."""
    probs = np.array([[0.7, 0.1, 0.2, 0.0], [0.25, 0.25, 0.25, 0.25]])
    for number in (3, 30):  # 6 and 60 transitions, in a table of 8
        pair, rng = np.repeat([0, 1], number), np.random.default_rng(number)
        counts = np.array([draw_counts(rng, probs, pair) for _ in range(20_000)])
        for row, drawn in zip(probs, np.moveaxis(counts, 1, 0), strict=True):
            expected = number * (np.diag(row) - np.outer(row, row))
            np.testing.assert_allclose(drawn.mean(0), number * row, atol=6 * np.sqrt(number / 4 / 20_000))
            np.testing.assert_allclose(np.cov(drawn.T), expected, atol=6 * number / 2 / np.sqrt(20_000))


def test_no_outcomes_of_no_transitions():
    assert len(draw_outcomes(np.random.default_rng(0), np.full((2, 2), 0.5), np.zeros(0, int))) == 0
