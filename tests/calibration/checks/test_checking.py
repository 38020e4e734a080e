"""`check`: what it simulates, reports and refuses."""

import os
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from bayes_mdp.calibration.checks import checking as door
from bayes_mdp.calibration.checks.check_result import Check, load_check
from bayes_mdp.calibration.checks.checking import CheckOptions, check
from bayes_mdp.calibration.simulation_based.quantities import optimal_actions, values
from bayes_mdp.mdp import AverageReward, Counts, Discounted, Episodic, Log, StateActionSpace, Transitions
from bayes_mdp.models.priors import known_rewards
from tests.calibration.simulated import checked, draw, simulations
from tests.flips import NUMBER, refused_flips
from tests.options import fold

SPACE = StateActionSpace(2, 2, states=("x", "y"), actions=("stay", "go"))
PRIOR = known_rewards(np.eye(2))
NAMES = ["V(x)", "V(y)", "Q(x, stay)", "Q(x, go)", "Q(y, stay)", "Q(y, go)"]
NAMES += [f"optimal({state}, {action})" for state in "xy" for action in ("stay", "go")]


@pytest.fixture
def simulated(monkeypatch):
    """`check` without its simulations: what it asked for, and normal posteriors in their place."""
    asked = {}

    def run(key, design, fit, num, attributes, path, executor=None):
        asked.update(design=design, attributes=attributes, path=path)
        return simulations(design.quantities, num, num_draws=design.num_draws)

    monkeypatch.setattr(door, "run_simulations", run)
    return asked


def test_the_dataset_is_what_the_simulations_say(key, simulated):
    answer = check(key, PRIOR, SPACE, num_simulations=60, options=CheckOptions(num_draws=30))
    assert list(simulated["design"].quantities) == NAMES
    assert simulated["design"].num_transitions == 40 and simulated["design"].draw_truth is None
    data, (truth, draws) = answer.dataset, draw(60, num_draws=30)
    assert dict(data.sizes) == {"simulation": 60, "quantity": 6, "pair": 4, "level": data.sizes["level"], "bin": 10}
    of_pairs = data.sel(quantity=NAMES[2:6])
    mean, sd = draws.mean(1), np.sqrt(((draws - draws.mean(1, keepdims=True)) ** 2).sum(1) / 29)
    np.testing.assert_allclose(of_pairs["z_score"], (truth - mean) / sd)
    np.testing.assert_allclose(of_pairs["contraction"], 1 - sd**2 / truth.var(0, ddof=1))
    np.testing.assert_allclose(data["forecast"].sel(pair="x, stay"), (draws[..., 0] >= draws[..., 1]).mean(1))
    np.testing.assert_allclose(data["optimal"].sel(pair="y, go"), truth[:, 2] < truth[:, 3])
    assert answer.contraction == pytest.approx(float(data["contraction"].mean()))
    assert answer.z_score["mean"].sel(quantity="Q(y, go)") == pytest.approx(((truth - mean) / sd)[:, 3].mean())
    gap = abs(data["coverage"] - data["level"])
    error, monte_carlo = answer.coverage_error
    level = float(data["level"][int(gap.max("quantity").to_numpy().argmax())])
    assert error == pytest.approx(float(gap.max()))
    assert monte_carlo == pytest.approx(np.sqrt(level * (1 - level) / 60))


def test_a_right_posterior_passes_and_wrong_ones_are_named():
    """Right: no p-value below 1e-6 / 6 (a false alarm once in 1e6). Wrong: draws .6 as wide, or .6 sd off."""
    right = checked().at(1e-6)
    assert right.calibrated and "calibrated as far as 200 simulations" in right.verdict
    narrow, high = checked(scale=0.6), checked(shift=0.3)
    assert set(narrow.findings) >= {"joint", "Q(x, 0)"} and "too narrow" in str(narrow)
    assert not high.calibrated and "too high" in str(high)
    assert "NOT CALIBRATED" in str(high) and "not calibrated: " in high.verdict
    with pytest.raises(ValueError, match="false_alarm is 2"):
        right.at(2)


def test_false_alarms_come_as_often_as_said():
    """60 checks of right posteriors at .5: Bonferroni allows half, more than 48 alarms come once in 1e6.

    Broken twin: draws .7 as wide alarm more often than that.
    """
    alarms, broken = (
        sum(not checked(60, num_draws=19, seed=seed, scale=scale).at(0.5).calibrated for seed in range(60))
        for scale in (1.0, 0.7)
    )
    assert 2 < alarms <= 48 < broken


def test_the_dataset_is_written_and_read_whole(key, simulated, tmp_path):
    path = tmp_path / "check.nc"
    answer = check(key, PRIOR, SPACE, num_simulations=40, options=CheckOptions(num_draws=20), path=path)
    assert str(simulated["path"]) == f"{path}.partial" and list(tmp_path.iterdir()) == [path]
    found = xr.load_dataset(path, engine="h5netcdf")
    xr.testing.assert_identical(found, answer.dataset)
    assert str(Check(found)) == str(answer)
    xr.testing.assert_identical(load_check(path).dataset, found)
    assert refused_flips(path, lambda: load_check(path).dataset, answer.dataset.identical) == NUMBER
    Check(found.assign_attrs(format="other")).to_netcdf(path)
    with pytest.raises(ValueError, match="of format 'other', expected 'bayes_mdp check 1'"):
        load_check(path)
    assert {"key", "versions", "method", "precision", "prior", "objective"} <= found.attrs.keys()


def test_paths_are_looked_at_before_any_work(key, tmp_path, monkeypatch):
    monkeypatch.setattr(door, "fit_for", lambda *arguments, **options: pytest.fail("it was inferred"))
    os.mkfifo(tmp_path / "x.nc.partial")
    for name in ("x.nc.partial", "x.nc"):
        with pytest.raises(ValueError, match=r"x\.nc\.partial', a pipe, expected a file"):
            check(key, PRIOR, SPACE, path=tmp_path / name)


def test_what_cannot_be_checked_is_refused_in_one_sentence(key, simulated):
    log = Transitions(np.array([0]), np.array([0]), None, np.array([1]))
    for match, options in (
        ("num_simulations is 3", {"num_simulations": 3}),
        ("num_draws is 3", {"num_draws": 3}),
        ("num_transitions is 0", {"num_transitions": 0}),
        ("false_alarm is 0", {"false_alarm": 0}),
        ("num_transitions is given with data", {"data": log, "num_transitions": 5}),
        ("behaviour is given with data", {"data": log, "behaviour": np.array([0, 0])}),
    ):
        with pytest.raises(ValueError, match=match):
            check(key, PRIOR, SPACE, **fold(CheckOptions, options))
    named = StateActionSpace(2, 2, states=("a", "b"), actions=("l", "r"))
    for labels, name in (((("b", "a"), ("l", "r")), "states"), ((("a", "b"), ("r", "l")), "actions")):
        with pytest.raises(ValueError, match=rf"data\.{name} are .*, expected those of the space"):
            check(key, PRIOR, named, data=Log(log, *labels))
    with pytest.raises(TypeError, match="data is a Counts"):
        check(key, PRIOR, SPACE, data=Counts(*(np.zeros((1, 1, 1)),) * 4))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="AverageReward"):
        check(key, PRIOR, StateActionSpace(2, 2, ends=True), objective=AverageReward())


def test_default_quantities_are_named_and_read_the_first_step():
    solution = SimpleNamespace(v=jnp.arange(6.0).reshape(3, 2), q=jnp.arange(12.0).reshape(3, 2, 2), gain=7.0)
    drawn: Any = SimpleNamespace(solution=solution)

    legal = np.array([[True, False], [True, True]])
    space = StateActionSpace(2, 2, horizon=3, legal=legal)
    found = {name: float(f(drawn)) for name, f in values(space, Episodic(3)).items()}
    assert found == {"V(0)": 0.0, "V(1)": 1.0, "Q(1, 0)": 2.0, "Q(1, 1)": 3.0}
    best = {name: float(f(drawn)) for name, f in optimal_actions(space, Episodic(3)).items()}
    assert best == {"optimal(1, 0)": 0.0, "optimal(1, 1)": 1.0}
    assert [f(drawn) for f in values(SPACE, AverageReward()).values()] == [7.0]
    assert not optimal_actions(SPACE, AverageReward()) and len(values(SPACE, Discounted(0.9))) == 6


@pytest.mark.slow
def test_an_exact_posterior_is_calibrated_over_the_prior_and_near_a_log_and_a_sharper_one_is_not(key, monkeypatch):
    """Right: no p-value below 1e-6 / 8. Broken twin: every datum counted four times."""
    rng = np.random.default_rng(0)
    log = Transitions(rng.integers(2, size=30), rng.integers(2, size=30), None, rng.integers(2, size=30))
    prior = known_rewards(jnp.array([[0.0, 1.0], [0.5, 0.2]]))
    for data in (None, log):
        assert (
            check(key, prior, SPACE, data=data, num_simulations=500, options=CheckOptions(num_draws=100))
            .at(1e-6)
            .calibrated
        )
    fit_for = door.fit_for

    def broken(*arguments, **options):
        fit = fit_for(*arguments, **options)

        def summarise(transitions):
            return fit.summarise(jax.tree.map(lambda x: jnp.concatenate([x] * 4), transitions))

        return replace(fit, summarise=summarise)

    monkeypatch.setattr(door, "fit_for", broken)
    for data in (None, log):
        answer = check(key, prior, SPACE, data=data, num_simulations=500, options=CheckOptions(num_draws=100)).at(1e-6)
        assert not answer.calibrated and "joint" in answer.findings
