# pyright: reportArgumentType=false, reportAttributeAccessIssue=false
"""Predictive checks: what they must see, what they must let pass.

Observed and replicated data come from one belief with known rows (concentrations of 10^6), so that p-values under the
right model are uniform: each test states what chance there is of a false alarm at its fixed key.
"""

from functools import cache
from typing import Any

import jax
import matplotlib
import numpy as np
import pytest

from bayes_mdp.calibration.predictive.predictive_check import Sample, predictive_check
from bayes_mdp.inference.conjugate.conjugate_posterior import conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.families.normal import NormalBelief
from bayes_mdp.mdp import Counts, StateActionSpace, Transitions
from tests.calibration.beliefs import collapsed, sampled, transitions

SPACE = StateActionSpace(2, 1, states=("rain", "sun"), actions=("wait",))
ROWS = np.array([[0.7, 0.3], [0.4, 0.6]])
NUM_DRAWS = 200


def _walk(number, order, noise) -> Transitions:
    """A path whose next state depends on the state, and with `order` 2 on the state before as well."""
    rng = np.random.default_rng(5)
    states = [0, 0]
    for _ in range(number):
        looked = states[-1] if order == 1 else states[-1] ^ states[-2]
        states.append(int(rng.random() < ROWS[looked, 1]))
    path = np.array(states[1:])
    rewards = noise(rng, number)
    return Transitions(path[:-1], np.zeros(number, int), rewards, path[1:])


@cache
def _check(order: int, heavy: bool) -> Any:
    """A belief with a flat prior on the rows, and rewards that are standard normal under it."""
    data = _walk(400, order, (lambda rng, n: rng.standard_t(1.5, n)) if heavy else (lambda rng, n: rng.normal(size=n)))
    rows = dirichlet_rows(np.ones((2, 2)), (2, 1, 2))
    rewards = reward_cells(NormalBelief(np.zeros(2), np.ones(2), np.ones(2)), (2, 1))
    with jax.enable_x64(True):
        posterior = jax.tree.map(np.asarray, conjugate_posterior(rows, rewards, SPACE).update(data))
    return predictive_check(posterior, data, num_draws=NUM_DRAWS), posterior, data


def test_data_of_the_model_are_no_surprise():
    """Seven p-values above .01. At another key one is below with a chance of 7 % at most (they are dependent)."""
    found = _check(1, False)[0]
    assert found.surprises == []
    assert "No statistic is surprising" in str(found)
    assert all(0.0 <= each.p_overall <= 1.0 for each in found.comparisons.values())


def test_a_process_of_second_order_is_seen_by_serial_dependence():
    """The state before moves the next state by .3: G is above 30 where replicates have a mean of 2."""
    found = _check(2, False)[0]
    assert found.surprises == ["serial_dependence"]
    each = found.comparisons["serial_dependence"]
    assert each.observed.min() > 20 > np.quantile(each.replicated, 0.99)


def test_heavy_tails_are_seen_by_the_extremes():
    found = _check(1, True)[0]
    assert {"reward_min", "reward_max"} <= set(found.surprises)
    assert "reward_max" in str(found) and "Surprising at the 1 % level" in str(found)


def test_p_values_are_those_of_the_draws():
    each = _check(1, False)[0].comparisons["reward_mean"]
    by_hand = [np.mean(each.replicated[:, s, 0] > each.observed[:, s, 0]) for s in range(2)]
    np.testing.assert_allclose(each.p[:, 0], by_hand)
    p = each.p_overall - 0.5 / (NUM_DRAWS + 1)  # the data, one hit of `p_overall`, are half of one here
    assert each.error == pytest.approx(np.sqrt(p * (1 - p) / NUM_DRAWS), rel=1e-6)


def test_the_table_and_the_picture():
    found = _check(1, False)[0]
    table = found.table()
    assert table.row_discrepancy.dims == ("quantity", "state", "action")
    assert list(table.state.values) == ["rain", "sun"]
    assert table.serial_dependence.sel(quantity="p") == found.comparisons["serial_dependence"].p
    assert table.reward_sd.attrs["p_overall"] == found.comparisons["reward_sd"].p_overall
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure = found.plot()
    assert len(figure.axes) == len(found.comparisons)
    pyplot.close(figure)


def test_statistics_of_one_s_own():
    _, posterior, data = _check(1, False)

    def longest_run(sample: Sample) -> int:
        same = np.diff(np.flatnonzero(np.diff(sample.outcome, prepend=-1, append=-1)))
        return int(same.max())

    found = predictive_check(posterior, data, statistics={"longest_run": longest_run}, num_draws=50)
    assert list(found.comparisons) == ["longest_run"] and 0 < found.comparisons["longest_run"].p < 1
    sizes = iter(range(1000))
    with pytest.raises(ValueError, match=r"statistics\['odd'\] has shapes .*, expected one shape"):
        predictive_check(posterior, data, statistics={"odd": lambda _: np.zeros(next(sizes) % 2 + 1)}, num_draws=3)


@pytest.mark.slow
def test_before_data_it_is_the_prior_that_is_checked():
    """Rewards of 20 under a mean that is standard normal a priori."""
    _, posterior, data = _check(1, False)
    far = Transitions(data.state, data.action, np.asarray(data.reward) + 20.0, data.next_state)
    with jax.enable_x64(True):
        learnt = jax.tree.map(np.asarray, _prior(posterior).update(far))
    prior = predictive_check(learnt, far, num_draws=NUM_DRAWS, group="prior")
    assert "reward_mean" in prior.surprises
    assert str(prior).startswith("Prior predictive check: 200 replicates of 400 transitions")


def _prior(posterior):
    rewards = reward_cells(posterior.reward_cells.prior, (2, 1))
    return conjugate_posterior(dirichlet_rows(np.ones((2, 2)), (2, 1, 2)), rewards, SPACE)


@pytest.mark.slow
def test_chains_and_laws_without_statistics_are_checked_too():
    data = transitions()
    for posterior in (collapsed(), sampled()):
        found = predictive_check(posterior, data, num_draws=40)
        assert set(found.comparisons) >= {"serial_dependence", "reward_max"}
        assert len(found.comparisons["serial_dependence"].replicated) == 40


def test_what_cannot_be_checked_is_refused():
    _, posterior, data = _check(1, False)
    with pytest.raises(ValueError, match="data holds no transitions"):
        predictive_check(posterior, Counts.of(data, SPACE))
    with pytest.raises(ValueError, match="group is 'both', expected one of posterior, prior"):
        predictive_check(posterior, data, group="both")
    wrong: Any = object()
    with pytest.raises(TypeError, match="posterior is a object"):
        predictive_check(wrong, data)
