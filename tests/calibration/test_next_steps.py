"""Every check that can fail says what to try next, and the page that it names speaks of it."""

import itertools
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import bayes_mdp as bm
from bayes_mdp.calibration.arviz import sensitivity
from bayes_mdp.calibration.arviz.diagnostics import Diagnosis
from bayes_mdp.calibration.criticism import criticise
from bayes_mdp.calibration.criticism.criticise import Criticism, Finding
from bayes_mdp.calibration.predictive import check_choices, comparisons, loo_pit, predictive_check
from bayes_mdp.calibration.predictive.comparisons import Comparison
from bayes_mdp.calibration.predictive.loo_pit import LooPit, Pit
from bayes_mdp.calibration.predictive.predictive_check import PredictiveCheck
from bayes_mdp.calibration.simulation_based import sbc_result
from bayes_mdp.calibration.simulation_based.sbc_result import SBC
from bayes_mdp.inference.draws.chains import Chains
from bayes_mdp.inference.route import METHODS
from bayes_mdp.utils.messages import see
from tests.text import unwrapped

SEE = see("how-to/check-a-posterior")
PAGE = (Path(__file__).resolve().parents[2] / "docs/how-to/check-a-posterior.md").read_text()


@pytest.mark.parametrize("name", criticise.CHECKS)
@pytest.mark.parametrize("above", [False, True])
def test_checks_against_the_log(name, above):
    step = criticise.next_step(name, above=above, kind=criticise.ALIKE)

    def made(p_value):
        findings = {name: Finding(0.0, 1.0, p_value, "what it says", step)}
        return Criticism(findings, {}, {}, {}, 0.05, bm.Discounted(0.9))

    failed, passed = made(0.001), made(0.9)
    assert len(step) > 20 and f"{name}, what to try: {step} {SEE}" in unwrapped(failed)
    assert escape(step) in failed._repr_html_()
    assert failed.said(name) == f"what it says; try: {step} {SEE}"
    assert "what to try" not in str(passed) and passed.said(name) == "what it says"
    assert name in PAGE


def test_there_is_none_too_many():
    assert {*criticise.NEXT_STEPS, criticise.WHERE} == set(criticise.CHECKS)
    assert set(criticise.NEXT_STEPS_WHERE) == set(criticise.KINDS)
    statistics = set(predictive_check.TRANSITIONS) | set(predictive_check.REWARDS)
    assert set(predictive_check.NEXT_STEPS) == statistics and all(name in PAGE for name in statistics)
    assert set(check_choices.NEXT_STEPS) == {*check_choices.CHOICE_STATISTICS, check_choices.LIKELIHOOD}
    faults = {loo_pit.HIGH, loo_pit.LOW, loo_pit.NARROW, loo_pit.WIDE}
    assert set(loo_pit.NEXT_STEPS) == {"next_state", "reward"}
    assert all(set(steps) == faults for steps in loo_pit.NEXT_STEPS.values())
    on_prior = {verdict for (prior, _), verdict in sensitivity.VERDICTS.items() if prior}
    assert set(sensitivity.NEXT_STEPS) == on_prior
    kinds = (sbc_result.APPROXIMATIONS, sbc_result.INTEGRALS, sbc_result.CHAINS, sbc_result.CLOSED_FORMS)
    assert sorted(itertools.chain(*kinds)) == sorted(set(METHODS) - {"auto"})
    assert "## When a check fails" in PAGE


def test_predictive_checks():
    rng = np.random.default_rng(0)
    replicated = rng.normal(size=999)

    def comparison(observed) -> Comparison:
        return comparisons.compare_statistic(np.full(999, observed), replicated, 1)

    space = bm.StateActionSpace(2, 1)
    for name, steps in predictive_check.NEXT_STEPS.items():
        for value, step in zip((9.0, -9.0), steps, strict=True):
            comparisons_of = {name: comparison(value), "calm": comparison(0.0), "my own": comparison(9.0)}
            found = PredictiveCheck(comparisons_of, "posterior", 10, space)
            text = unwrapped(found)
            assert text.endswith(f"{SEE} {name}, what to try: {step} my own, what to try: {comparisons.OWN}")
            assert "what to try" in found._repr_html_()
    calm = PredictiveCheck({"reward_mean": comparison(0.0)}, "posterior", 10, space)
    assert "what to try" not in str(calm)


@pytest.mark.parametrize("name", ["next_state", "reward"])
def test_each_way_in_which_predictions_are_off(name):
    even = (np.arange(400) + 0.5) / 400
    shapes = {
        loo_pit.HIGH: even**0.3,
        loo_pit.LOW: even**3,
        loo_pit.NARROW: np.where(even < 0.5, even**3, 1 - (1 - even) ** 3),
        loo_pit.WIDE: 0.25 + even / 2,
    }
    for fault, values in shapes.items():
        pit = Pit(values, 1e-6)
        assert pit.fault == fault
        text = unwrapped(LooPit({name: pit}, 0.0))
        assert f"what to try: {loo_pit.NEXT_STEPS[name][fault]} {SEE}" in text
    fine = unwrapped(LooPit({name: Pit(even, 0.9)}, 0.25))
    assert "what to try" not in fine and loo_pit.UNRELIABLE in fine


def test_prior_sensitivity():
    def text(*verdicts):
        rows = [(f"q{i}", 0.1, 0.1, verdict) for i, verdict in enumerate(verdicts)]
        table = pd.DataFrame(rows, columns=["quantity", "prior", "likelihood", "verdict"])
        return unwrapped(sensitivity.PriorSensitivity(table, ("a",), (0.05, 0.05), 100))

    for verdict, step in sensitivity.NEXT_STEPS.items():
        assert f"{verdict}, what to try: {step} {SEE}" in text(verdict)
    assert "what to try" not in text("rests on the data", "moves with neither")


def calibration(method, ranks, finite=True, truth=None) -> SBC:
    """Simulation-based calibration of one quantity with these ranks among 99 draws."""
    number = len(ranks)
    truth = np.linspace(-1.0, 1.0, number) if truth is None else truth
    columns: dict[str, Any] = {"rank": ranks, "truth": truth, "mean": truth, "sd": np.ones(number)}
    columns["finite"] = np.full(number, finite)
    data = xr.Dataset({name: (("simulation", "quantity"), np.asarray(x)[:, None]) for name, x in columns.items()})
    data = data.assign_coords(quantity=["theta"], simulation=np.arange(number))
    return SBC(data.assign_attrs(method=method, num_draws="99", num_transitions="10"), 1e-3)


def test_simulation_based_calibration():
    even, low = np.arange(200) * 99 // 200, np.zeros(200, int)
    for method in METHODS[1:]:
        assert "what to try" not in unwrapped(calibration(method, even))
        text = unwrapped(calibration(method, low))
        assert f"what to try: {sbc_result.remedy(method)}" in text and text.endswith(SEE)
    assert "exact" not in sbc_result.remedy("factorised") + sbc_result.remedy("gibbs") + sbc_result.remedy("own")
    assert "no numbers come first" in unwrapped(calibration("nuts", even, finite=False))
    careless = calibration("nuts", low)
    careless.dataset["mean"] = xr.zeros_like(careless.dataset["mean"])
    assert "Is the inference given the data" in unwrapped(careless)


def moving(shift=0.0, number=200) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(2, number)) + np.array([[0.0], [shift]])


PROBLEMS = {
    "impossible": Chains({"x": moving()}, log_density=np.full((2, 200), -np.inf)),
    "no numbers": Chains({"x": np.full((2, 200), np.nan)}),
    "unmoved": Chains({"x": np.zeros((2, 200))}),
    "labels": Chains({"k": np.repeat([[0], [1]], 200, 1), "x": moving()}, discrete=("k",)),
    "divergences": Chains({"x": moving()}, diverging=np.arange(400).reshape(2, 200) == 0),
    "modes": Chains({"x": moving(9.0)}),
    "mixing": Chains({"x": np.cumsum(moving(), axis=1)}),
    "few": Chains({"x": moving(number=20)}),
}
REMEDIES = ("give", "reparametrise", "compare", "start elsewhere", "order them", "sum it out", "take smaller steps")


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.filterwarnings("ignore")
def test_problems_of_chains_say_what_to_do(name):
    problems = PROBLEMS[name].problems()
    assert problems
    for problem in problems:
        assert any(word in problem for word in REMEDIES)
    text = unwrapped(Diagnosis("nuts", None, 400, 0, 400.0, problems, []))
    assert text.endswith(f"What each problem means, and what to try: {SEE}")
    assert SEE not in unwrapped(Diagnosis("nuts", None, 400, 0, 400.0, [], []))
