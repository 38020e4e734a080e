"""R-max against plain sweeps of its own model, on a fixed history; known and unknown pairs, frozen or not."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents import RMax
from bayes_mdp.agents.model_based.empirical_planning import ExactPlanner, PrioritizedSweeping
from bayes_mdp.mdp import AverageReward, Problem
from tests.agents.empirical_models import DISCOUNTED, EPISODIC, FEW, GAMMA, SEEN, counted, look, optima, optimum
from tests.agents.histories import LEGAL

KEY = jax.random.key(0)


def test_freezing_asks_for_exact_plans():
    with pytest.raises(ValueError, match="planner is PrioritizedSweeping, expected ExactPlanner for RMax with freeze"):
        RMax(1.0, freeze=True, planner=PrioritizedSweeping())


def first_uses(seen: Any, m: int) -> list[Any]:
    """The history without what comes after the m-th use of a pair."""
    used: dict[Any, int] = {}
    kept = []
    for x in seen:
        used[x[1:3]] = used.get(x[1:3], 0) + 1
        if used[x[1:3]] <= m:
            kept.append(x)
    return kept


def tables(seen: Any, m: int, v_max: float) -> tuple[np.ndarray, np.ndarray]:
    """Rewards and rows of the model: an unknown pair pays v_max and leads nowhere."""
    count = counted(seen)
    known = count.n >= m
    return np.where(known, count.reward, v_max), np.where(known[..., None], count.rows, 0.0)


@pytest.mark.some(1)
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("planner", "freeze"),
    [(ExactPlanner(), False), (ExactPlanner(), True), (PrioritizedSweeping(400, 1e-12), False)],
    ids=["exact", "frozen", "sweeping"],
)
def test_it_is_the_model_in_which_unknown_pairs_are_worth_v_max(planner, freeze):
    """m = 7: some pairs are known, one is not, two are not far from it. Qr is 0 where nothing is known."""
    m, v_max = 7, 8.0
    n = counted(SEEN).n[LEGAL]
    assert (n < m).any() and (n > m).any()
    found = look(RMax(v_max, m, freeze=freeze, planner=planner), DISCOUNTED, SEEN)
    reward, rows = tables(first_uses(SEEN, m) if freeze else SEEN, m, v_max)
    q = optimum(reward, rows, GAMMA)
    np.testing.assert_allclose(found.policy.q, q, rtol=1e-8)
    np.testing.assert_array_equal(found.policy.best, q.argmax(-1))
    unknown = LEGAL & (counted(SEEN).n < m)
    np.testing.assert_allclose(np.asarray(found.policy.q)[unknown], v_max, rtol=1e-8)
    assert (np.asarray(found.split.qr)[unknown] == 0).all()


@pytest.mark.usefixtures("x64")
def test_to_freeze_changes_the_model_and_the_limits():
    """m = 1: one use is enough (the empirical plan where all pairs were used); m beyond all counts: nothing is known.

    A model frozen at m = 3 is another one: the test above would see a freeze that does nothing.
    """
    count = counted(SEEN)
    assert (count.n[LEGAL] >= 1).all()
    np.testing.assert_allclose(
        look(RMax(8.0, 1), DISCOUNTED, SEEN).policy.q, optimum(count.reward, count.rows, GAMMA), rtol=1e-8
    )
    none = np.asarray(look(RMax(8.0, 1000), DISCOUNTED, SEEN).policy.q)
    np.testing.assert_allclose(none[LEGAL], 8.0, rtol=1e-8)
    one, other = (look(RMax(8.0, 3, freeze=freeze), DISCOUNTED, SEEN).policy.q for freeze in (False, True))
    assert np.abs(one - other)[LEGAL].max() > 0.05


@pytest.mark.usefixtures("x64")
def test_episodes_by_backward_induction():
    reward, rows = tables(FEW, 2, 3.0)
    np.testing.assert_allclose(look(RMax(3.0, 2), EPISODIC, FEW).policy.q, optima(reward, rows), rtol=1e-9)


def test_lost_optimism_is_warned_of():
    with pytest.warns(UserWarning, match="v_max is 100, below the largest reward 3000: optimism is lost"):
        RMax(100.0).check_optimism(3000.0)
    RMax(v_max=3000.0).check_optimism(3000.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RMax(np.inf), "v_max is inf, expected a finite number"),
        (lambda: RMax(num_visits=0), "num_visits is 0, expected a number of at least 1"),
        (lambda: RMax(num_visits=jnp.array([3, 0])), r"num_visits\[1\] is 0, expected"),
        (lambda: RMax().init(KEY, Problem(DISCOUNTED.space, AverageReward())), "objective is AverageReward, expected"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
