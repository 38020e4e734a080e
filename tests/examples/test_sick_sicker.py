"""Sick-Sicker: both published tables to every digit, the published EVPI, and values of information to 5 errors.

The values of information are those of NumPy programs that share no code with the package, with their Monte Carlo
errors. Keys are fixed. Bounds are 5 standard errors of both: a false alarm of 6e-7 where that program's error
dominates, of 2e-4 (t with 15 degrees of freedom) where ours does.
"""

import importlib.util
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import bayes_mdp as bm

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "sick_sicker.py"
KEY = jax.random.key(0)
EVPI = {75_000: (6770.0, 21.4), 100_000: (2796.2, 16.1), 120_000: (10_147.0, 33.7)}
EVPI_BY_AGE = {75_000: (2569.7, 13.0), 100_000: (7659.3, 25.4), 120_000: (2357.8, 14.7)}
# Willingness to pay, site: EVPPI and its error.
SINGLE = {
    (75_000, "c_S2"): (331.4, 2.4),
    (75_000, "c_trtB"): (5008.2, 23.5),
    (75_000, "u_H"): (30.9, 0.3),
    (75_000, "u_S1"): (341.7, 2.3),
    (75_000, "u_S2"): (832.0, 4.9),
    (75_000, "u_trtA"): (0.0, 0.0),
    (75_000, "c_H"): (0.0, 0.0),
    (100_000, "c_trtA"): (361.7, 5.6),
    (100_000, "c_trtB"): (58.3, 2.5),
    (100_000, "u_S1"): (847.3, 10.8),
    (120_000, "c_trtA"): (5504.4, 24.4),
    (120_000, "u_S1"): (7489.3, 35.8),
    (120_000, "u_trtA"): (2602.5, 11.2),
    (120_000, "u_S2"): (0.0, 0.0),
}
BOTH = {75_000: (341.7, 2.3), 100_000: (1010.7, 12.1), 120_000: (7942.9, 37.7)}  # u_S1 and u_trtA
RATES = {75_000: (3811.6, 17.6), 100_000: (21.5, 1.2), 120_000: (3158.8, 14.5)}  # all of them
AFFINE = {75_000: (5300.3, 24.9), 100_000: (2166.4, 19.5), 120_000: (9660.6, 44.7)}  # costs and utilities
# By another NumPy program: 100 values of the rate, the others in 10,000 common draws, several times.
SINGLE_RATES = {
    (75_000, "r_HD"): (1789.0, 10.9),
    (75_000, "r_HS1"): (1829.1, 24.9),
    (75_000, "r_S1H"): (1425.2, 12.9),
    (75_000, "hr_trtB"): (1543.5, 11.2),
    (120_000, "r_HD"): (1623.7, 10.0),
    (120_000, "r_S1S2"): (2615.2, 8.4),
    (120_000, "hr_trtB"): (421.9, 6.9),
}


@pytest.fixture(scope="module")
def sick():
    spec: Any = importlib.util.spec_from_file_location("sick_sicker", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def model(sick):
    return bm.strategies.decision_model(sick.sick_sicker)


@pytest.fixture(scope="module")
def by_age(sick):
    return bm.strategies.decision_model(sick.sick_sicker_by_age)


def near(found, wanted, error):
    """Numbers are printed to a tenth."""
    return abs(found.value - wanted) < 5 * np.hypot(found.standard_error, error) + 0.05


@pytest.mark.parametrize("which", ["one mortality", "by age"])
def test_the_published_tables(sick, model, by_age, which):
    base = model.at(sick.BASE) if which == "one mortality" else by_age.at(sick.BASE_BY_AGE)
    published = {
        "one mortality": ["SoC 151580 20.711", "A 284805 21.499", "B 259100 22.184", "AB 378875 23.137"],
        "by age": ["SoC 116374 18.879", "A 218789 19.636", "B 202536 20.199", "AB 296300 21.097"],
    }[which]
    rows = zip(base.strategies, base.values[0], strict=True)
    assert [f"{name} {cost:.0f} {qaly:.3f}" for name, (cost, qaly) in rows] == published
    table = bm.strategies.cost_effectiveness(base)
    icers = ("72988", "125764") if which == "one mortality" else ("65288", "104461")
    assert (f"{table.icer('B'):.0f}", f"{table.icer('AB'):.0f}") == icers
    assert str(table.table["status"].sel(strategy="A").values) == "dominated" and np.isnan(table.icer("A"))


def test_the_life_table_and_the_weights(sick):
    table = np.loadtxt(EXAMPLE.with_name("lifetable_2015.csv"), delimiter=",", skiprows=3)
    np.testing.assert_array_equal(table[:, 0], np.arange(25, 100))
    np.testing.assert_array_equal(table[[0, -1], 1], [0.001014, 0.339149])
    share = sick.WEIGHTS * 1.03 ** np.arange(76)
    np.testing.assert_allclose(share, [1 / 3, *[2 / 3, 4 / 3] * 37, 1 / 3])


def test_the_base_case_is_not_the_mean(model):
    """The mean utility of the healthy is .985: standard of care 151,368 and 20.551 on average (100,000 draws)."""
    assert model.laws["u_H"].mean() == pytest.approx(200 / 203)
    draws = model.sample(KEY, 4096)
    mean, error = draws.values[:, 0].mean(0), draws.values[:, 0].std(0) * np.sqrt(1 / 4096 + 1 / 100_000)
    assert np.all(np.abs(mean - [151_368, 20.551]) < 5 * error)
    assert mean[1] + 10 * error[1] < 20.711  # of the base case


def test_each_site_enters_as_it_does(sick, model):
    """Costs and utilities of degree one, and affine together; rates not."""
    degrees = model.degrees(np.array([-1.0, 1.0]))
    affine = [*sick.COSTS, *sick.UTILITIES]
    assert {name for name, degree in degrees.items() if degree == 1} == set(affine)
    assert set(degrees) == set(model.sites) and model.jointly_affine(affine) and model.exact


@pytest.mark.few(2)
@pytest.mark.parametrize("wtp", EVPI)
def test_perfect_information(model, wtp):
    found = bm.information.evpi(KEY, model, wtp, num_draws=1 << 12)
    assert near(found, *EVPI[wtp]) and found.standing in ("unbiased", "estimate")
    # At 75,000 and 120,000 two means are so near that few draws leave open which is the best.
    assert found.best in {75_000: ("SoC", "B"), 100_000: ("B",), 120_000: ("B", "AB")}[wtp]


def test_the_published_value_of_perfect_information(sick, by_age):
    """7,836 from 1,000 draws, of which the sd is 360; and the other program's number."""
    found = bm.information.evpi(KEY, by_age, 100_000, num_draws=1 << 12)
    assert near(found, *EVPI_BY_AGE[100_000])
    assert abs(found.value - sick.PUBLISHED_EVPI_BY_AGE) < 4 * 360


@pytest.mark.some(2)
@pytest.mark.parametrize(("wtp", "site"), SINGLE)
def test_the_value_of_a_cost_or_a_utility(model, wtp, site):
    found = bm.information.evppi(KEY, model, site, wtp, num_draws=1 << 11)
    assert near(found, *SINGLE[wtp, site])
    assert found.standing == "estimate" and found.reason.startswith("closed form of lines")


@pytest.mark.few(1)
@pytest.mark.parametrize("wtp", [120_000, 75_000, 100_000])
def test_the_value_of_groups(sick, model, wtp):
    """Costs and utilities: points whose slopes are averages. Rates: the others are at their means, unbiased points."""
    both = bm.information.evppi(KEY, model, ("u_S1", "u_trtA"), wtp, num_draws=1 << 11)
    assert near(both, *BOTH[wtp]) and "whose slopes are averages" in both.reason
    affine = bm.information.evppi(KEY, model, (*sick.COSTS, *sick.UTILITIES), wtp, num_draws=1 << 11)
    assert near(affine, *AFFINE[wtp]) and "whose slopes are averages" in affine.reason
    rates = bm.information.evppi(KEY, model, (*sick.RATES, *sick.DEATH, *sick.RATIOS), wtp, num_draws=1 << 11)
    assert near(rates, *RATES[wtp]) and "inner" not in rates.reason
    assert both.value < affine.value < EVPI[wtp][0] and rates.value < EVPI[wtp][0]


def test_a_study_is_worth_less_than_knowledge(model):
    """Of the utility in S1, by people who say whether they are well: posterior means are all that matters."""
    values = [
        bm.information.evsi(KEY, model, bm.information.Study({"u_S1": n}), 120_000, num_draws=1 << 9) for n in (10, 100)
    ]
    assert all("whose slopes are averages" in found.reason for found in values)
    few, many = (found.value for found in values)
    assert 0 < few < many < SINGLE[120_000, "u_S1"][0] - 10 * values[1].standard_error


@pytest.mark.slow
@pytest.mark.parametrize(("wtp", "site"), SINGLE_RATES)
def test_the_value_of_a_rate(model, wtp, site):
    found = bm.information.evppi(KEY, model, site, wtp, num_draws=1 << 10, num_inner=128)
    assert near(found, *SINGLE_RATES[wtp, site]) and "inner ones each" in found.reason


@pytest.mark.slow
@pytest.mark.parametrize("wtp", EVPI_BY_AGE)
def test_perfect_information_by_age(by_age, wtp):
    found = bm.information.evpi(KEY, by_age, wtp, num_draws=1 << 15)
    assert near(found, *EVPI_BY_AGE[wtp])


@pytest.mark.slow
def test_the_example_runs(sick, tmp_path, capsys):
    sick.main(tmp_path)
    text = capsys.readouterr().out
    assert "151579.87" in text and "116374.45" in text and "published, from 1,000 draws: 7836" in text
    kinds = ("plane", "acceptability", "cohort")
    names = {f"{program}_{kind}.png" for program in ("sick_sicker", "sick_sicker_by_age") for kind in kinds}
    assert {path.name for path in tmp_path.iterdir()} == names
