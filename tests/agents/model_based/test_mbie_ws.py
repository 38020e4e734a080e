"""MBIE(WS): Wilson's limit as the root of its quadratic, rows and values against loops in numpy."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

from bayes_mdp.agents import MBIEWS
from bayes_mdp.agents.model_based.empirical_planning import ExactPlanner, PrioritizedSweeping
from bayes_mdp.agents.model_based.mbie import favour_best_successor, wilson_upper
from tests.agents.empirical_models import (
    DISCOUNTED,
    EPISODIC,
    FEW,
    GAMMA,
    SEEN,
    Counted,
    counted,
    look,
    optima,
    optimum,
)
from tests.agents.histories import LEGAL, A, H, S

PLANNERS = pytest.mark.parametrize(
    "planner", [ExactPlanner(), PrioritizedSweeping(400, 1e-12)], ids=["exact", "sweeping"]
)


def upper_limit(share: float, n: float, z: float) -> float:
    """The p in [share, 1] at which the data lie z standard deviations below: n (p - share)^2 = z^2 p (1 - p)."""
    if share == 1.0 or z == 0.0:
        return share
    far = lambda p: n * (p - share) ** 2 - z**2 * p * (1 - p)  # noqa: E731
    return float(brentq(far, share + 1e-9, 1.0, xtol=1e-15))  # pyright: ignore


@pytest.mark.usefixtures("x64")
def test_wilson_is_the_root_of_the_quadratic():
    for share, n in ((0.0, 1.0), (0.5, 2.0), (0.3, 10.0), (0.9, 1000.0), (1.0, 3.0), (1.0, 1e6)):
        for z in (0.0, 0.5, 1.96, 4.0):
            np.testing.assert_allclose(wilson_upper(share, n, z), upper_limit(share, n, z), rtol=1e-8, atol=1e-12)


def optimistic_row(counts: np.ndarray, n: Any, worth: np.ndarray, z: float) -> np.ndarray:
    """One row, outcome by outcome; the last is the end."""
    outcomes = np.append(counts, n - counts.sum()) / n
    value = np.append(worth, 0.0)
    best = max((y for y in range(len(outcomes)) if outcomes[y] > 0), key=lambda y: (value[y], -y))
    new = outcomes.copy()
    new[best] = upper_limit(outcomes[best], n, z)
    for y in range(len(outcomes)):
        if y != best and outcomes[y] > 0:
            new[y] = outcomes[y] * (1 - new[best]) / (1 - outcomes[best])
    return new[:-1]


@pytest.mark.usefixtures("x64")
def test_rows_favour_the_most_valuable_successor():
    """Random counts, ends, ties and values of both signs; a row without visits is left alone."""
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 5, (200, 4)) * (rng.random((200, 4)) < 0.6)
    n = counts.sum(-1) + rng.integers(0, 3, 200)
    worth = rng.integers(-3, 4, (200, 4)) * 1.5
    rows = np.asarray(
        favour_best_successor(*(jnp.asarray(x) for x in (counts / np.maximum(n, 1)[:, None], n * 1.0, worth)), z=1.96)
    )
    for row, count, visits, value in zip(rows, counts, n, worth, strict=True):
        expected = optimistic_row(count, visits, value, 1.96) if visits else np.zeros(4)
        np.testing.assert_allclose(row, expected, rtol=1e-8, atol=1e-12)
    assert (rows.sum(-1) <= 1 + 1e-12).all()
    assert ((counts > 0) == (rows > 0))[n > 0].all()


def one_sweep(seen: Counted, values: np.ndarray, v_max: float, z: float, discount: float) -> np.ndarray:
    """Q+ [S A] from values [S], pair by pair."""
    q = np.full((S, A), -np.inf)
    for s, a in np.argwhere(LEGAL):
        q[s, a] = v_max
        if seen.n[s, a]:
            row = optimistic_row(seen.following[s, a], seen.n[s, a], values, z)
            q[s, a] = seen.reward[s, a] + discount * row @ values
    return q


@pytest.mark.few(1)
@PLANNERS
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("history", [SEEN, FEW], ids=["seen", "few"])
def test_greedy_for_the_optimistic_model_and_without_it_for_the_empirical_one(planner, history):
    """The sum is a fixed point of the sweep of the loop; Qr is the optimum of the empirical model, untried pairs 0."""
    agent, seen = MBIEWS(z=1.5, v_max=6.0, planner=planner), counted(history)
    split, policy, greedy = look(agent, DISCOUNTED, history)
    whole = np.asarray(split.qr + split.qe)
    np.testing.assert_allclose(whole, one_sweep(seen, whole.max(-1), 6.0, 1.5, GAMMA), rtol=1e-9)
    np.testing.assert_allclose(split.qr, optimum(seen.reward, seen.rows, GAMMA), rtol=1e-9)
    assert np.max(np.asarray(split.qe)[LEGAL]) > 0.1
    np.testing.assert_allclose(policy.q, whole, rtol=1e-12)
    np.testing.assert_array_equal(policy.best, np.argmax(whole, -1))
    np.testing.assert_array_equal(greedy.best, np.argmax(split.qr, -1))


@pytest.mark.usefixtures("x64")
def test_episodes_by_backward_induction():
    agent, seen = MBIEWS(z=1.5, v_max=6.0), counted(SEEN)
    split = look(agent, EPISODIC, SEEN).split
    values, whole = np.zeros(S), []
    for _ in range(H):
        whole.append(one_sweep(seen, values, 6.0, 1.5, 1.0))
        values = whole[-1].max(-1)
    np.testing.assert_allclose(split.qr + split.qe, np.stack(whole[::-1]), rtol=1e-9)
    np.testing.assert_allclose(split.qr, optima(seen.reward, seen.rows), rtol=1e-9)


@PLANNERS
@pytest.mark.usefixtures("x64")
def test_no_interval_no_optimism(planner):
    """z = 0 and untried pairs worth 0: the empirical model, in both tables."""
    split = look(MBIEWS(z=0.0, v_max=0.0, planner=planner), DISCOUNTED, FEW).split
    np.testing.assert_allclose(np.asarray(split.qe)[LEGAL], 0.0, atol=1e-9)


@pytest.mark.usefixtures("x64")
def test_untried_pairs_attract():
    policy, untried = look(MBIEWS(v_max=50.0), DISCOUNTED, FEW).policy, LEGAL & (counted(FEW).n == 0)
    np.testing.assert_allclose(np.asarray(policy.q)[untried], 50.0)
    assert untried[untried.any(1), np.asarray(policy.best)[untried.any(1)]].all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"z": -1.0}, "z is -1.0, expected a finite number, zero or greater"),
        ({"v_max": np.inf}, "v_max is inf, expected a finite number"),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        MBIEWS(**options)
    with pytest.warns(UserWarning, match="v_max is 100, below the largest reward 200: optimism is lost"):
        MBIEWS().check_optimism(200.0)
