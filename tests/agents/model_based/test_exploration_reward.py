"""Frequency and recency bonus against value iteration in numpy on a fixed history."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents import FrequencyBonus, Greedy, RecencyBonus
from bayes_mdp.agents.model_based.empirical_optimism import Alternates
from bayes_mdp.agents.model_based.empirical_planning import ExactPlanner, PrioritizedSweeping
from tests.agents.empirical_models import DISCOUNTED, EPISODIC, FEW, GAMMA, KEY, SEEN, counted, look, optima, optimum
from tests.agents.histories import LEGAL, H

SWEEPING = PrioritizedSweeping(400, 1e-12)
COST = {FrequencyBonus: lambda seen: seen.n, RecencyBonus: lambda seen: seen.last}
METHODS = pytest.mark.parametrize("method", COST)


def bonus(method: Any, seen: Any, scale: float, v_max: float) -> np.ndarray:
    """[S A], from the counts of the loop."""
    return np.where(seen.n > 0, -COST[method](seen) / scale, v_max)


@pytest.mark.some(2)
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("method", "planner", "discount"),
    [(FrequencyBonus, ExactPlanner(), 0.5), (FrequencyBonus, SWEEPING, None), (RecencyBonus, SWEEPING, 0.5)],
)
def test_two_optima_and_greedy_for_their_sum(method, planner, discount):
    """Each of its own reward, each with its own discount; `greedy` is the optimum of the empirical model."""
    agent = method(7.0, 3.0, discount, planner=planner)
    for history in (SEEN, FEW):
        seen = counted(history)
        qr = optimum(seen.reward, seen.rows, GAMMA)
        qe = optimum(bonus(method, seen, 7.0, 3.0), seen.rows, GAMMA if discount is None else discount)
        split, policy, greedy = look(agent, DISCOUNTED, history)
        np.testing.assert_allclose(split.qr, qr, rtol=1e-9)
        np.testing.assert_allclose(split.qe, qe, rtol=1e-9)
        np.testing.assert_allclose(policy.q, qr + qe, rtol=1e-9)
        np.testing.assert_array_equal(policy.best, np.argmax(qr + qe, -1))
        np.testing.assert_array_equal(greedy.best, np.argmax(qr, -1))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("method", "discount"), [(FrequencyBonus, None), (RecencyBonus, 0.5)])
def test_episodes_by_backward_induction(method, discount):
    agent, seen = method(7.0, 3.0, discount), counted(SEEN)
    split = look(agent, EPISODIC, SEEN).split
    np.testing.assert_allclose(split.qr, optima(seen.reward, seen.rows), rtol=1e-9)
    qe = optima(bonus(method, seen, 7.0, 3.0), seen.rows, 1.0 if discount is None else discount, H)
    np.testing.assert_allclose(split.qe, qe, rtol=1e-9)


@pytest.mark.few(1)
@METHODS
def test_a_pair_never_tried_looks_best(method):
    """In the exploration table also where it is worth 0 there; in the sum where its worth exceeds what is known."""
    seen = counted(FEW)
    untried = LEGAL & (seen.n == 0)
    both = untried.any(1) & (LEGAL & (seen.n > 0)).any(1)
    assert both.any()
    for v_max in (0.0, 50.0):
        split = look(method(7.0, v_max, planner=SWEEPING), DISCOUNTED, FEW).split
        chosen = [split.qe, split.qr + split.qe] if v_max else [split.qe]
        for q in map(np.asarray, chosen):
            assert untried[both, np.argmax(q[both], -1)].all()


def test_used_often_is_not_used_lately():
    """The two methods part where a pair was used thrice, long ago, and the other once, just now."""
    past = [(0, 0, 0, 0.0, 0, False)] * 3 + [(0, 0, 1, 0.0, 0, False)]
    best = []
    for method in COST:
        best.append(int(look(method(1.0, planner=SWEEPING), DISCOUNTED, past).policy.best[0]))
    assert best == [1, 0]


@METHODS
def test_acting_on_the_exploration_table_with_a_probability(method):
    """Greedy for Qe with probability .3, else for Qr; 0 and 1 are the two greedy policies."""
    split, policy, _ = look(method(7.0, 3.0, explore_prob=0.3, planner=SWEEPING), DISCOUNTED, SEEN)
    assert isinstance(policy, Alternates)
    s, a = jnp.indices(LEGAL.shape)
    explore, real = (np.argmax(q, -1)[:, None] == a for q in (split.qe, split.qr))
    assert (explore != real).any()
    probs = np.exp(jnp.vectorize(policy.log_prob)(s, a))
    np.testing.assert_allclose(probs, 0.3 * explore + 0.7 * real, rtol=1e-5)
    for prob, q in ((0.0, split.qr), (1.0, split.qe)):
        sure = Alternates(split.qe, split.qr, jnp.asarray(prob))
        actions = jax.vmap(lambda s, sure=sure: sure.act(KEY, s))(jnp.arange(len(LEGAL)))
        np.testing.assert_array_equal(actions, Greedy(q).best)


def test_optimism_is_asked_for_the_sum_alone():
    with pytest.warns(UserWarning, match=r"v_max is 100, below the largest reward 3000: optimism is lost, expected"):
        FrequencyBonus().check_optimism(3000.0)
    RecencyBonus(explore_prob=0.1).check_optimism(3000.0)


@METHODS
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": 0.0}, "scale is 0.0, expected a finite number greater than zero"),
        ({"v_max": -1.0}, "v_max is -1.0, expected a finite number, zero or greater"),
        ({"bonus_discount": 1.0}, "bonus_discount is 1.0, expected a number from 0 up to, but not including, 1"),
        ({"explore_prob": 1.5}, "explore_prob is 1.5, expected a number from 0 to 1"),
    ],
)
def test_what_is_refused(method, options, message):
    with pytest.raises(ValueError, match=message):
        method(**options)
