"""MBIE-EB against plain sweeps of its equation, on a fixed history."""

from typing import Any

import numpy as np
import pytest

from bayes_mdp.agents import MBIEEB
from bayes_mdp.agents.model_based.empirical_planning import ExactPlanner, PrioritizedSweeping
from tests.agents.empirical_models import DISCOUNTED, EPISODIC, FEW, GAMMA, SEEN, counted, look, optima, optimum
from tests.agents.histories import LEGAL

PLANNERS = pytest.mark.parametrize(
    "planner", [ExactPlanner(), PrioritizedSweeping(400, 1e-12)], ids=["exact", "sweeping"]
)


def with_bonus(seen: Any, beta: float, v_max: float) -> tuple[np.ndarray, np.ndarray]:
    """Rewards with the bonus, and rows."""
    count = counted(seen)
    return np.where(count.n > 0, count.reward + beta / np.sqrt(np.maximum(count.n, 1)), v_max), count.rows


@pytest.mark.few(1)
@pytest.mark.usefixtures("x64")
@PLANNERS
@pytest.mark.parametrize("seen", [SEEN, FEW], ids=["long", "few"])
def test_it_is_the_equation(planner, seen):
    """After few steps some pairs were never tried: they are worth v_max."""
    found = look(MBIEEB(0.7, 20.0, planner=planner), DISCOUNTED, seen)
    q = optimum(*with_bonus(seen, 0.7, 20.0), GAMMA)
    np.testing.assert_allclose(found.policy.q, q, rtol=1e-8)
    never = LEGAL & (counted(seen).n == 0)
    assert never.any() == (seen is FEW)
    np.testing.assert_allclose(q[never], 20.0)
    np.testing.assert_allclose((found.split.qr + found.split.qe)[LEGAL], q[LEGAL], rtol=1e-8)
    assert (np.asarray(found.split.qr)[never] == 0).all()


@pytest.mark.usefixtures("x64")
def test_without_a_bonus_it_is_the_empirical_plan():
    count = counted(SEEN)
    found = look(MBIEEB(0.0, 20.0), DISCOUNTED, SEEN)
    np.testing.assert_allclose(found.policy.q, optimum(count.reward, count.rows, GAMMA), rtol=1e-8)
    np.testing.assert_allclose(np.asarray(found.split.qe)[LEGAL], 0.0, atol=1e-9)


@pytest.mark.usefixtures("x64")
def test_episodes_by_backward_induction():
    found = look(MBIEEB(0.7, 3.0), EPISODIC, FEW)
    np.testing.assert_allclose(found.policy.q, optima(*with_bonus(FEW, 0.7, 3.0)), rtol=1e-9)


def test_lost_optimism_is_warned_of():
    with pytest.warns(UserWarning, match="v_max is 100, below the largest reward 3000: optimism is lost"):
        MBIEEB().check_optimism(3000.0)
    MBIEEB(v_max=3000.0).check_optimism(3000.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MBIEEB(-1.0), r"beta is -1\.0, expected a finite number, zero or greater"),
        (lambda: MBIEEB(np.nan), "beta is nan, expected"),
        (lambda: MBIEEB(v_max=np.nan), "v_max is nan, expected a finite number"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
