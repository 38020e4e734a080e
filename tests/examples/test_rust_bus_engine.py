"""Rust's bus engines as a structural model, against the published tables, plain NumPy and an integrated posterior.

The log lies outside the project: in the folder BAYES_MDP_DATA, or in ../shared/data beside the checkout. Without it
only the model itself is tested, on made-up numbers of months.
"""

import importlib.util
import os
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import NUTS
from numpyro.infer.util import log_density
from scipy import stats

import bayes_mdp as bm
from bayes_mdp.calibration.simulation_based import ecdf
from bayes_mdp.inference.draws.chains import run_chains
from benchmarks import rust_numpy

ROOT = Path(__file__).resolve().parents[2]
LOG = Path(os.environ.get("BAYES_MDP_DATA", ROOT.parent / "shared" / "data")) / "bus_engine_replacement.csv"
needs_log = pytest.mark.skipif(not LOG.is_file(), reason=f"{LOG.name} is absent (set BAYES_MDP_DATA to its folder)")
BETA = 0.9999
FALSE_ALARM = 1e-6


@pytest.fixture(scope="module")
def rust():
    spec: Any = importlib.util.spec_from_file_location("rust_bus_engine", ROOT / "examples" / "rust_bus_engine.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def _float64(x64):
    """Everything here is in float64."""


@pytest.fixture(scope="module")
def group4(rust):
    return rust.read(LOG, (4,))


# The model, without data.


def made_up(n):
    """Numbers of months by bin and choice, and by increment."""
    rng = np.random.default_rng(0)
    return rng.poisson(30.0 * np.stack([np.ones(n), np.linspace(0.0, 0.3, n)], 1)).astype(float), np.array([9.0, 20, 3])


@pytest.fixture(scope="module")
def functions(rust):
    """Log-likelihoods and their derivatives, compiled once."""
    return jax.jit(lambda *args: (rust.log_likelihoods(*args), jax.jacrev(rust.log_likelihoods)(*args)))


@pytest.mark.parametrize("beta", [BETA, 0.0])
def test_likelihood_and_gradient_agree_with_newton_on_ev(functions, beta):
    """Implicit derivatives of `solve_soft` against Rust's, by hand, of the other equation."""
    choices, increments = made_up(30)
    theta = np.array([7.0, 12.0, 0.3, 0.6])
    values, scores, _ = rust_numpy.log_probs(theta, 30, beta)
    found, gradient = functions(theta, choices, increments, beta)
    np.testing.assert_allclose(found[0], (choices * values).sum(), rtol=1e-10)
    np.testing.assert_allclose(found[1], increments @ np.log([0.3, 0.6, 0.1]), rtol=1e-12)
    np.testing.assert_allclose(gradient[0], np.einsum("xa,xak->k", choices, scores), rtol=1e-8)
    np.testing.assert_allclose(gradient[1], [0, 0, 9 / 0.3 - 30, 20 / 0.6 - 30], atol=1e-10)


def test_replacing_moves_on_as_a_month_in_bin_0(rust):
    theta3 = jnp.array([0.2, 0.5, 0.3])
    mdp = rust.bus_mdp(jnp.array([10.0, 2.0]), theta3, 6)
    rows = np.asarray(mdp.transition_probs)
    np.testing.assert_allclose(rows[:, 0], rust_numpy.kernel(np.asarray(theta3), 6))
    np.testing.assert_allclose(rows[:, 1], np.broadcast_to([0.2, 0.5, 0.3, 0, 0, 0], (6, 6)))
    np.testing.assert_allclose(mdp.reward[3], [-0.006, -10])


@pytest.mark.parametrize("full", [False, True])
def test_the_program_is_prior_times_likelihood(rust, full):
    choices, increments = made_up(30)
    theta3 = np.array([0.25, 0.65, 0.1]) if full else increments / increments.sum()
    sites = {"RC": jnp.array(8.0), "theta11": jnp.array(3.0)} | ({"theta3": jnp.asarray(theta3)} if full else {})
    found, _ = log_density(partial(rust.program, full=full), (choices, increments), {}, sites)
    values, _, _ = rust_numpy.log_probs(np.array([8.0, 3.0, *theta3[:-1]]), 30, BETA)
    prior = stats.lognorm.logpdf(8.0, 1, scale=10) + stats.lognorm.logpdf(3.0, 1, scale=2)
    mileages = stats.dirichlet.logpdf(theta3, np.ones(3)) + increments @ np.log(theta3) if full else 0.0
    np.testing.assert_allclose(found, prior + (choices * values).sum() + mileages, rtol=1e-10)


def test_a_group_without_replacements_has_no_estimate(rust):
    sample = rust.Sample(np.array([0, 1, 1, 2]), np.zeros(4, int), np.array([0, 1, 0, 1]), 30)
    with pytest.raises(ValueError, match="no engine was replaced"):
        rust.estimate(sample)


# The published sample, group 4.


@needs_log
def test_the_published_sample(group4):
    assert len(group4.bin) == 4292 and group4.replaced.sum() == 33
    np.testing.assert_array_equal(group4.increments, [1682, 2555, 55])


@needs_log
def test_goldens(rust, group4):
    """Log-likelihoods and gradients at round numbers, and what a dearer engine would do."""
    functions = jax.jit(lambda *args: (rust.log_likelihoods(*args), jax.jacrev(rust.log_likelihoods)(*args)))
    counts = group4.choices, group4.increments, BETA
    found, gradient = functions(np.array([10.0, 2.0, *group4.frequencies[:-1]]), *counts)
    np.testing.assert_allclose(found[0], -164.375753, atol=5e-7)
    np.testing.assert_allclose(gradient[0, :2], [-2.146392, 6.205248], atol=6e-7)
    found, gradient = functions(np.array([10.0, 2.0, 0.39, 0.6]), *counts)
    np.testing.assert_allclose(found.sum(), -3306.593773, atol=6e-7)
    expected = [-2.129163, 6.161409, -1161.534352, -1228.948897]
    np.testing.assert_allclose(gradient.sum(0), expected, rtol=1e-9, atol=1.5e-6)
    by_hand = np.einsum("xa,xak->k", group4.choices, rust_numpy.log_probs(np.array([10, 2, 0.39, 0.6]), 90, BETA)[1])
    np.testing.assert_allclose(gradient[0], by_hand, rtol=1e-7)


REPLACE = [0.00004212, 0.00130847, 0.01075539, 0.03452315, 0.06494604, 0.07270831]


@needs_log
def test_estimate_of_group_4(rust, group4):
    """Rust's table IX, 90 bins: the estimate, its BHHH standard errors, the policy, and replacements a year."""
    found = rust.estimate(group4)
    assert printed(found.theta, 4) == ["10.0750", "2.2930", "0.3919", "0.5953"]
    assert printed(found.se_bhhh[:2], 3) == ["1.582", "0.639"]
    assert printed([found.log_likelihoods.sum(), found.log_likelihoods[0]], 3) == ["-3304.155", "-163.584"]
    second = rust_numpy.nfxp(group4.bin, group4.replaced, group4.increment, 90, BETA)
    np.testing.assert_allclose(found.theta, second.theta, atol=1e-5)
    np.testing.assert_allclose(found.se_bhhh, second.se, rtol=1e-5)
    # What is known of the policy is known at the estimate in two steps.
    theta = rust.estimate(group4, full=False).theta
    assert theta[0] == pytest.approx(10.0749422, abs=2e-5)
    policy = np.exp(rust.with_scores(theta, 90, BETA)[0][0])
    np.testing.assert_allclose(policy[[0, 20, 40, 60, 80, 89], 1], REPLACE, atol=2e-8)


def printed(numbers, digits):
    return [f"{x:.{digits}f}" for x in numbers]


@needs_log
@pytest.mark.slow
def test_demand_at_the_estimate(rust, group4):
    """At the printed estimate of the costs given the frequencies (two steps)."""
    theta = rust.estimate(group4, full=False).theta
    yearly = jax.jit(lambda rc: rust.replacements(jnp.stack([rc, theta[1]]), group4.frequencies, 90))
    np.testing.assert_allclose([yearly(4.0), yearly(theta[0])], [15.975931, 4.853002], atol=2e-5)


# The tables.

PUBLISHED = {
    # n, beta, groups: RC, se, theta11, se, theta3, log-likelihood, as published; what comes out otherwise.
    (90, BETA, (1, 2, 3)): (
        "11.7270 2.602 4.8259 1.792 0.3010 0.6884 -2708.366",
        {"theta11": "4.8258"},
    ),
    (90, BETA, (4,)): ("10.0750 1.582 2.2930 0.639 0.3919 0.5953 -3304.155", {}),
    (90, BETA, (1, 2, 3, 4)): ("9.7558 1.227 2.6275 0.618 0.3489 0.6394 -6055.250", {}),
    # Likely misprints: the likelihood and the standard error of RC. The rest differs by one in the last digit.
    (90, 0.0, (1, 2, 3)): (
        "8.2985 1.042 109.9031 26.163 0.3010 0.6884 -2710.746",
        {"RC": "8.2986", "se RC": "1.046", "theta11": "109.9032", "se theta11": "26.164", "all": "-2710.724"},
    ),
    (90, 0.0, (4,)): (
        "7.6358 0.720 71.5133 13.778 0.3919 0.5953 -3306.028",
        {"all": "-3306.029", "se theta11": "13.779"},
    ),
    (90, 0.0, (1, 2, 3, 4)): ("7.3055 0.507 70.2769 10.750 0.3488 0.6394 -6061.641", {"RC": "7.3056"}),
    (175, BETA, (1, 2, 3)): ("11.7257 2.597 2.4569 0.912 0.0937 0.4475 0.4459 0.0127 -3993.991", {}),
    # A misprint: 10.896.
    (175, BETA, (4,)): ("10.896 1.581 1.1732 0.327 0.1191 0.5762 0.2868 0.0158 -4495.135", {"RC": "10.0896"}),
    (175, BETA, (1, 2, 3, 4)): (
        "9.7687 1.226 1.3428 0.315 0.1071 0.5152 0.3621 0.0143 -8607.889",
        {"theta32": "0.3622"},
    ),
    (175, 0.0, (1, 2, 3)): ("8.2969 - 56.1657 - - - - - -3996.353", {"theta11": "56.1656"}),
    (175, 0.0, (4,)): ("7.6423 - 36.6692 - - - - - -4496.997", {}),
    (175, 0.0, (1, 2, 3, 4)): ("7.3113 - 36.0175 - - - - - -8614.238", {}),
}


@needs_log
@pytest.mark.slow
@pytest.mark.parametrize("column", PUBLISHED, ids=str)
def test_the_published_tables(rust, column):
    """Rust's tables IX and X to every printed digit, but for the cells that are listed; and plain NumPy to 1e-5."""
    n, beta, groups = column
    row, otherwise = PUBLISHED[column]
    sample = rust.read(LOG, groups, n)
    found = rust.estimate(sample, beta)
    theta3 = found.theta[2 : 4 if n == 90 else 6]
    costs = [found.theta[0], found.se_bhhh[0], found.theta[1], found.se_bhhh[1]]
    names = ["RC", "se RC", "theta11", "se theta11", *(f"theta3{j}" for j in range(len(theta3))), "all"]
    numbers = [*costs, *theta3, found.log_likelihoods.sum()]
    for name, text, number in zip(names, row.split(), numbers, strict=True):
        if text != "-":
            expected = otherwise.get(name, text)
            digits = len(expected.split(".")[1])
            print(f"{column} {name}: {number:.{digits + 2}f}, published {text}, difference {number - float(text):.1e}")
            assert f"{number:.{digits}f}" == expected
    second = rust_numpy.nfxp(sample.bin, sample.replaced, sample.increment, n, beta)
    np.testing.assert_allclose(found.theta, second.theta, rtol=1e-5)
    assert found.log_likelihoods.sum() == pytest.approx(second.log_likelihood, abs=1e-6)
    np.testing.assert_allclose(found.se_bhhh, second.se, rtol=1e-4)


AS_THEY_ARE = {
    # groups: N, replaced, RC, theta11, ll of choices, ll of transitions, the same without a future.
    (1, 2, 3): (3864, 27, 12.0326, 5.1120, -131.2127, -2560.8607, 8.4423, 114.916, -133.3252),
    (3,): (3312, 27, 11.6339, 4.8459, -130.7929, -2204.2297, 8.2142, 109.751, -132.6432),
    (4,): (4292, 33, 10.0975, 2.3065, -163.2717, -3123.3666, 7.6483, 71.978, -165.0994),
    (1, 2, 3, 4): (8156, 60, 9.7935, 2.6656, -299.1958, -5723.4585, 7.3130, 70.811, -305.6454),
    (5,): (1500, 11, 10.9954, 2.4060, -55.3369, -1071.6609, 8.3135, 88.717, -55.3113),
    (6,): (1250, 7, 6.6488, 0.6486, -41.7901, -824.2768, 6.1001, 36.579, -42.1196),
    (7,): (2250, 27, 13.8380, 5.1772, -116.1746, -1525.1503, 7.5398, 101.211, -118.9913),
    (8,): (2250, 19, 13.7223, 4.1041, -88.9427, -1305.8312, 7.3454, 94.125, -93.1422),
}


def as_they_are(rust, groups):
    """Every row of the log one decision; transitions of kept months alone."""
    log: Any = pd.read_csv(LOG)
    log = log[log.model.isin([rust.GROUPS[g] for g in groups])]
    kept: Any = log[log.action == 0]
    return rust.Sample(log.state.to_numpy(), log.action.to_numpy(), (kept.next_state - kept.state).to_numpy(), 90)


@needs_log
@pytest.mark.slow
@pytest.mark.parametrize("groups", AS_THEY_ARE, ids=str)
def test_rows_as_they_are(rust, groups):
    """What comes out without Rust's shift of a month, in two steps."""
    number, replaced, *expected = AS_THEY_ARE[groups]
    sample = as_they_are(rust, groups)
    assert (len(sample.bin), sample.replaced.sum()) == (number, replaced)
    found, myopic = (rust.estimate(sample, beta, full=False) for beta in (BETA, 0.0))
    numbers = [*found.theta[:2], *found.log_likelihoods, *myopic.theta[:2], myopic.log_likelihoods[0]]
    for number, value in zip(numbers, expected, strict=True):
        digits = 3 if value > 30 else 4
        assert f"{number:.{digits}f}" == f"{value:.{digits}f}"


# The posterior.


def integrated(choices, theta3, n):
    """Mean, sd, correlation of RC and theta11 and the log evidence, on a grid around the mode, in NumPy alone."""
    guess = np.zeros(n)

    def log_joint(z):
        nonlocal guess
        values, _, guess = rust_numpy.log_probs(np.array([*np.exp(z), *theta3[:-1]]), n, BETA, guess)
        return (choices * values).sum() + stats.norm.logpdf(z, np.log([10.0, 2.0])).sum()

    # Where and how wide it is in log RC, log theta11: Newton's method by finite differences.
    z, h = np.log([10.0, 2.0]), 1e-3
    steps, hess = h * np.eye(2), -np.eye(2)
    for _ in range(12):
        grad = np.array([log_joint(z + e) - log_joint(z - e) for e in steps]) / (2 * h)
        both = [
            [log_joint(z + a + b) - log_joint(z + a - b) - log_joint(z - a + b) + log_joint(z - a - b) for b in steps]
            for a in steps
        ]
        hess = np.array(both) / (4 * h**2)
        z = z - np.clip(np.linalg.solve(hess, grad), -0.3, 0.3)
    # The trapezoid rule, of more than algebraic order for what fades at both ends.
    root, side = np.linalg.cholesky(np.linalg.inv(-hess)), np.linspace(-9, 9, 61)
    points = z + np.stack(np.meshgrid(side, side, indexing="ij"), -1).reshape(-1, 2) @ root.T
    log_values = np.array([log_joint(point) for point in points])
    assert max(log_values.reshape(61, 61)[edge].max() for edge in (0, -1)) < log_values.max() - 12
    weights = np.exp(log_values - log_values.max())
    evidence = log_values.max() + np.log(weights.sum() * (side[1] - side[0]) ** 2 * np.linalg.det(root))
    costs, weights = np.exp(points), weights / weights.sum()
    mean = weights @ costs
    covariance = (costs - mean).T * weights @ (costs - mean)
    sd = np.sqrt(np.diag(covariance))
    return mean, sd, covariance[0, 1] / sd.prod(), evidence


@needs_log
@pytest.mark.slow
def test_posterior_by_integration(rust, group4):
    """The targets of the published sample and of the rows as they are."""
    mean, sd, correlation, evidence = integrated(group4.choices, group4.frequencies, 90)
    assert printed([*mean, *sd, correlation], 4) == ["10.0847", "2.2908", "1.3076", "0.5328", "0.9124"]
    assert f"{evidence:.5f}" == "-167.98557"
    raw = as_they_are(rust, (4,))
    mean, sd, correlation, evidence = integrated(raw.choices, raw.frequencies, 90)
    assert printed([*mean, *sd, correlation], 4) == ["10.1062", "2.3035", "1.3159", "0.5360", "0.9125"]
    assert f"{evidence:.5f}" == "-167.66967"


def check_moments(draws, mean, sd):
    """Means and deviations of draws [C N] within 6 Monte Carlo errors (of normals, or 1e-8 false alarms)."""
    size = effective_sample_size(draws)
    assert draws.mean() == pytest.approx(mean, abs=6 * sd / size**0.5)
    square = (draws - mean) ** 2
    assert square.mean() == pytest.approx(sd**2, abs=6 * square.std() / effective_sample_size(square) ** 0.5)


@needs_log
@pytest.mark.slow
def test_posterior_by_nuts(rust, group4):
    """Means and deviations within 6 Monte Carlo errors; enough effective draws."""
    draws = rust.infer(jax.random.key(1), group4)
    for name, mean, sd in (("RC", 10.0847, 1.3076), ("theta11", 2.2908, 0.5328)):
        assert effective_sample_size(draws[name]) > 300
        check_moments(draws[name], mean, sd)
    assert np.corrcoef(draws["RC"].ravel(), draws["theta11"].ravel())[0, 1] == pytest.approx(0.9124, abs=0.05)


def simulated(rust, seed, truth, theta3, n, months=116, buses=37):
    """Buses from new, by the policy of the NumPy route: months by bin and choice."""
    rng = np.random.default_rng(seed)
    probs = np.exp(rust_numpy.log_probs(np.array([*truth, *theta3[:-1]]), n, BETA)[0][:, 1])
    bins, counts = np.zeros(buses, int), np.zeros((n, 2))
    for _ in range(months):
        replaced = rng.random(buses) < probs[bins]
        np.add.at(counts, (bins, replaced.astype(int)), 1.0)
        bins = np.minimum(np.where(replaced, 0, bins) + rng.choice(len(theta3), size=buses, p=theta3), n - 1)
    return counts


SIMULATIONS, DRAWS, SBC_BINS = 200, 63, 30


@pytest.mark.slow
def test_the_posterior_is_calibrated(rust):
    """Simulation-based calibration of NUTS: truths from the prior, 37 buses for 116 months each.

    30 bins of 15,000 miles, which the buses cross three times as slowly; the rest is the model of the data. False
    alarms: 1e-6 a quantity. Such a test sees a posterior that is a third too narrow or half too wide (`detectable`), as
    its broken twin is.
    """
    theta3 = np.array([0.78, 0.21, 0.01])
    method = bm.inference.NUTS(200, 4 * DRAWS, 1, kernel=partial(NUTS, dense_mass=True))
    start = bm.planning.solve_soft(rust.bus_mdp(jnp.array([10.0, 2.0]), theta3, SBC_BINS), bm.Discounted(BETA), 1.0)
    model = lambda choices: rust.program(choices, 1e4 * theta3, start)  # noqa: E731
    sample = jax.jit(lambda key, choices: run_chains(key, model, choices, method).draws)
    rng, ranks, narrow = np.random.default_rng(0), [], []
    for seed in range(SIMULATIONS):
        truth = np.exp(np.log([10.0, 2.0]) + rng.normal(size=2))
        draws = sample(jax.random.key(seed), simulated(rust, seed, truth, theta3, SBC_BINS))
        log_costs = np.log(np.stack([draws["RC"][0], draws["theta11"][0]], 1)[::4])
        for kept, values in ((ranks, log_costs), (narrow, log_costs.mean(0) + 0.55 * (log_costs - log_costs.mean(0)))):
            both = np.stack([values[:, 0], values[:, 1], values[:, 1] - values[:, 0]])
            level = np.log(truth)
            kept.append((both < np.array([level[0], level[1], level[1] - level[0]])[:, None]).sum(1))
    p_values = [ecdf.p_value(np.array(ranks)[:, i], DRAWS) for i in range(3)]
    print(f"SBC of RC, theta11, their ratio: p = {p_values}")
    assert min(p_values) > FALSE_ALARM
    assert ecdf.detectable(SIMULATIONS, DRAWS, FALSE_ALARM).narrow > 0.6
    assert min(ecdf.p_value(np.array(narrow)[:, i], DRAWS) for i in range(3)) < FALSE_ALARM


@needs_log
@pytest.mark.slow
def test_the_example_runs(rust, capsys, tmp_path):
    rust.main(LOG, tmp_path / "demand.png")
    text = capsys.readouterr().out
    assert "4292 months, 33 replacements" in text and "RC       10.0750 (1.5816)" in text
    assert (tmp_path / "demand.png").stat().st_size > 10_000
