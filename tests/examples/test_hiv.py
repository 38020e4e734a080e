"""The HIV model: published base case to every digit, exact rows, and values of information against other programs.

The probabilistic numbers are those of a NumPy program that shares no code with the package (400,000 draws; sums over
nodes of the relative risk, good to about 1 %), with its Monte Carlo errors. Keys are fixed. Bounds are 5 standard
errors of both: a false alarm of 6e-7 where that program's error dominates, of 2e-4 (t with 15 degrees of freedom) where
ours does.
"""

import importlib.util
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import bayes_mdp as bm

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "hiv.py"
KEY = jax.random.key(0)
# Willingness to pay: mean incremental net benefit, P(combination best), EVPI, and errors of the first and the last.
TABLE = {
    5000: (-1241.8, 0.2154, 221.81, 2.8, 1.00),
    6000: (-310.5, 0.4362, 549.44, 2.9, 1.52),
    7000: (620.9, 0.6489, 469.66, 3.0, 1.53),
    8000: (1552.3, 0.7994, 245.36, 3.1, 1.14),
    10_000: (3415.0, 0.9426, 63.78, 3.4, 0.59),
}
TRIALS = {
    6000: {25: 11.45, 50: 27.93, 100: 50.39, 200: 73.57, 400: 92.65, 1600: 113.48},
    7000: {25: 4.26, 50: 16.19, 100: 37.12, 200: 61.61, 400: 83.22, 1600: 107.82},
}


@pytest.fixture(scope="module")
def hiv():
    spec: Any = importlib.util.spec_from_file_location("hiv", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def model(hiv):
    return bm.strategies.decision_model(hiv.hiv)


def test_the_published_base_case(hiv, model):
    base = model.at(hiv.BASE)
    printed = [(f"{cost:.7f}", f"{years:.7f}") for cost, years in base.values[0]]
    assert printed == [("44663.4535637", "7.9912066"), ("50601.6513312", "8.9373889")]
    assert f"{bm.strategies.cost_effectiveness(base).icer('comb'):.5f}" == "6275.95560"


def test_rows_are_exact(hiv, model):
    """A Dirichlet posterior: transitions seen plus the weight of the prior."""
    for name, seen in hiv.SEEN.items():
        law = model.laws[name]
        assert law.family == "Dirichlet"
        np.testing.assert_array_equal(law.parameters["concentration"], np.array(seen) + hiv.WEIGHT)
    assert model.exact and [sum(seen) for seen in hiv.SEEN.values()] == [1734, 1258, 1749]
    assert np.exp(hiv.LOG_RR_SD * 1.959964) == pytest.approx(np.sqrt(0.710 / 0.365))


def test_the_cohort(hiv):
    """Two years of the combination by hand; the other year is monotherapy's matrix alone."""
    traces = hiv.traces()
    mono = np.array([[1251, 350, 116, 17], [0, 731, 512, 15], [0, 0, 1312, 437], [0, 0, 0, 1]], float)
    mono /= mono.sum(1, keepdims=True)
    both = 0.509 * mono
    both[range(4), range(4)] = 1 - (both.sum(1) - both.diagonal())
    np.testing.assert_allclose(traces["comb"][3], np.eye(4)[0] @ both @ both @ mono, rtol=1e-12)
    np.testing.assert_allclose(traces["mono"][3], np.eye(4)[0] @ mono @ mono @ mono, rtol=1e-12)


@pytest.fixture(scope="module")
def durations(hiv):
    return bm.strategies.decision_model(hiv.hiv_durations)


def test_the_number_of_years(hiv, durations):
    """Net benefits of 0, 2 and 20 years of the combination to the cent, and the best number of years."""
    base = durations.at(hiv.BASE)
    best = {}
    for wtp, shown in {
        5000: (-4707.42, -5914.71, -10456.39),
        6000: (3283.79, 3022.68, 3421.62),
        7000: (11274.99, 11960.07, 17299.62),
        10_000: (35248.61, 38772.24, 58933.64),
    }.items():
        benefit = base.net_benefit(wtp)[0]
        np.testing.assert_allclose(benefit[[0, 2, 20]], shown, atol=0.00501)
        best[wtp] = int(np.argmax(benefit))
    assert best == {5000: 0, 6000: 18, 7000: 19, 10_000: 20}


def test_draws(model):
    """Mean incremental net benefit, P(best) and EVPI of draws."""
    draws = model.sample(KEY, 20_000)
    table = bm.strategies.acceptability(draws, list(TABLE))
    for wtp, (gain, chance, evpi, gain_error, evpi_error) in TABLE.items():
        row = table.sel(wtp=wtp)
        difference = np.diff(draws.net_benefit(wtp), axis=1)
        error = np.hypot(difference.std() / np.sqrt(len(difference)), gain_error)
        assert abs(difference.mean() - gain) < 5 * error, wtp
        both = np.sqrt(chance * (1 - chance) * (1 / 20_000 + 1 / 400_000))
        assert abs(float(row["prob_best"].sel(strategy="comb")) - chance) < 5 * both, wtp
        assert abs(float(row["evpi"]) - evpi) < 5 * np.hypot(float(row["evpi_error"]), evpi_error), wtp
    mean = draws.values.mean(0)
    error = draws.values.std(0) / np.sqrt(20_000)
    # To the printed digits of the other program: errors of 40 in costs, and those of life-years as ours, times 1/20.
    assert np.all(np.abs(mean[:, 0] - [44664, 50563]) < 5 * np.hypot(error[:, 0], 40))
    assert np.all(np.abs(mean[:, 1] - [8.0015, 8.9328]) < 5 * error[:, 1] * np.sqrt(1.05) + 5e-5)


@pytest.mark.parametrize("wtp", [6000, 10_000])
def test_perfect_information(model, wtp):
    found = bm.information.evpi(KEY, model, wtp, num_draws=1 << 13)
    assert abs(found.value - TABLE[wtp][2]) < 5 * np.hypot(found.standard_error, TABLE[wtp][4])
    assert found.standing == "unbiased" and found.best == ("mono" if wtp == 6000 else "comb")
    assert found.strategies == ("mono", "comb")


def test_the_value_of_parameters(hiv, model):
    """At 6,000: costs 471 by lines over averaged slopes, rows worth nothing; the relative risk needs inner points."""
    costs = bm.information.evppi(KEY, model, hiv.COSTS, 6000, num_draws=1 << 12)
    assert costs.standing == "estimate" and "whose slopes are averages" in costs.reason
    assert abs(costs.value - 471) < 5 * costs.standard_error + 0.01 * 471
    settings: Any = {"num_draws": 1 << 9, "num_inner": 32}
    rows = bm.information.evppi(KEY, model, hiv.ROWS, 6000, **settings)
    assert rows.value < 1e-9
    risk = bm.information.evppi(KEY, model, "log_rr", 6000, **settings)
    assert risk.standing == "estimate" and "inner ones each" in risk.reason
    assert abs(risk.value - 122.24) < 5 * risk.standard_error + 0.01 * 122.24
    assert rows.value < risk.value < costs.value < TABLE[6000][2]


def test_a_trial_of_a_hundred_events(hiv, model):
    found = bm.information.evsi(KEY, model, hiv.TRIAL.scaled(100), 6000, num_draws=1 << 9, num_inner=32)
    assert found.standing == "estimate" and found.about == "100 of log_rr"
    assert abs(found.value - TRIALS[6000][100]) < 5 * found.standard_error + 0.01 * TRIALS[6000][100]


@pytest.mark.slow
@pytest.mark.parametrize("wtp", TRIALS)
def test_trials(hiv, model, wtp):
    for events, wanted in TRIALS[wtp].items():
        found = bm.information.evsi(KEY, model, hiv.TRIAL.scaled(events), wtp, num_draws=1 << 12, num_inner=128)
        assert abs(found.value - wanted) < 5 * found.standard_error + 0.01 * wanted, events


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wtp", "risk", "costs"), [(5000, 0.04, 170), (6000, 122.24, 471), (7000, 118.19, 402), (10_000, 8.55, 46)]
)
def test_the_value_of_parameters_closely(hiv, model, wtp, risk, costs):
    """The other program's sums are good to about 1 % (its numbers are printed to .005, those of costs to .5)."""
    found = bm.information.evppi(KEY, model, "log_rr", wtp, num_draws=1 << 12, num_inner=128)
    assert abs(found.value - risk) < 5 * found.standard_error + 0.01 * risk + 0.005
    found = bm.information.evppi(KEY, model, hiv.COSTS, wtp)
    assert abs(found.value - costs) < 5 * found.standard_error + 0.01 * costs + 0.5


@pytest.mark.slow
def test_the_decision_set_matters(durations):
    """Over 21 durations EVPI at 6,000 is 2,601 +- 27: five times that of the two strategies."""
    found = bm.information.evpi(KEY, durations, 6000, num_draws=1 << 14)
    assert abs(found.value - 2601) < 5 * np.hypot(found.standard_error, 27)
    assert len(found.strategies) == 21 and found.best == "18 years"


@pytest.mark.slow
def test_the_example_runs(hiv, tmp_path, capsys):
    hiv.main(tmp_path)
    text = capsys.readouterr().out
    assert "44663.45" in text and "50601.6513312" in text and "exact (Dirichlet, given from_A_seen)" in text
    assert "best of these: 200" in text
    assert {path.name for path in tmp_path.iterdir()} == {f"hiv_{x}.png" for x in ("plane", "acceptability", "cohort")}
