"""Total hip replacement: published base case and occupancies to every digit, probabilistic numbers to 5 errors.

The probabilistic numbers are those of a NumPy program that shares no code with the package (100,000 draws), with its
Monte Carlo errors. Keys are fixed. Bounds are 5 standard errors of both: a false alarm of 6e-7 where that program's
error dominates, of 2e-4 (t with 15 degrees of freedom) where ours does.
"""

import importlib.util
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import bayes_mdp as bm

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "total_hip.py"
KEY = jax.random.key(0)
# Willingness to pay: mean incremental net benefit, P(NP1 best), EVPI and its error.
TABLE = {
    0: (-98.36, 0.0135, 0.33, 0.01),
    1000: (-53.97, 0.1181, 3.88, 0.05),
    2000: (-9.58, 0.3896, 19.18, 0.11),
    2200: (-0.70, 0.4496, 24.07, 0.13),
    5000: (123.59, 0.8959, 3.76, 0.05),
    10_000: (345.54, 0.9864, 0.61, 0.02),
}
# Published, after 1..8 years: success, revision, revised, dead.
STANDARD = """
0.98000000 0.00000000 0.00000000 0.02000000
0.97265720 0.00077680 0.00000000 0.02656600
0.96516548 0.00097491 0.00075606 0.03310354
0.95757109 0.00115802 0.00166964 0.03960125
0.93783561 0.00132115 0.00268314 0.05816010
0.91838963 0.00145307 0.00379326 0.07636404
0.89924305 0.00157339 0.00496429 0.09421927
0.88040225 0.00168398 0.00618146 0.11173231
"""
NP1 = """
0.98000000 0.00000000 0.00000000 0.02000000
0.97323145 0.00020255 0.00000000 0.02656600
0.96645641 0.00025438 0.00019715 0.03309206
0.95968665 0.00030239 0.00043553 0.03957543
0.94083683 0.00034529 0.00070021 0.05811767
0.92232657 0.00038012 0.00099040 0.07630291
0.90415327 0.00041201 0.00129686 0.09413786
0.88631355 0.00044144 0.00161577 0.11162924
"""


@pytest.fixture(scope="module")
def hip():
    spec: Any = importlib.util.spec_from_file_location("total_hip", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def model(hip):
    return bm.strategies.decision_model(hip.total_hip)


def test_the_published_base_case(hip, model):
    base = model.at(hip.BASE)
    (cost, qaly), (new_cost, new_qaly) = base.values[0]
    assert (f"{cost:.6f}", f"{qaly:.7f}") == ("512.434658", "14.6531896")
    assert (f"{new_cost:.6f}", f"{new_qaly:.8f}") == ("610.311818", "14.69770986")
    assert f"{bm.strategies.cost_effectiveness(base).icer('NP1'):.6f}" == "2198.486665"


@pytest.mark.parametrize(("strategy", "published"), [("standard", STANDARD), ("NP1", NP1)])
def test_the_published_occupancies(hip, strategy, published):
    trace = hip.traces()[strategy]
    shown = "\n".join(" ".join(f"{x:.8f}" for x in row) for row in trace[1:9, 1:])
    assert shown == published.strip()
    np.testing.assert_allclose(trace.sum(1), 1, rtol=1e-12)


def test_the_published_costs_of_single_years(hip):
    """Of revisions and in QALYs, discounted, years 1 to 8."""
    trace = hip.traces()["standard"][1:9]
    cost = trace[:, 2] * hip.REVISION * hip.MONEY[1:9]
    qaly = trace[:, 1:4] @ hip.UTILITY * hip.HEALTH[1:9]
    assert [f"{x:.8f}" for x in cost[[1, 7]]] == ["3.66001356", "5.59337469"]
    assert [f"{x:.8f}" for x in qaly[[0, 7]]] == ["0.82068966", "0.66887542"]


def test_the_base_case_is_the_mean_of_every_site(hip, model):
    assert model.exact and set(hip.BASE) == set(model.sites)
    for name, value in hip.BASE.items():
        np.testing.assert_allclose(model.laws[name].mean(), value, rtol=1e-12)
    utility, cost = model.laws["utility"].parameters, model.laws["revision_cost"].parameters
    a, b = utility["concentration1"], utility["concentration0"]
    np.testing.assert_allclose(np.sqrt(a * b / (a + b) ** 2 / (a + b + 1)), [0.03, 0.03, 0.04])
    assert np.sqrt(cost["concentration"]) / cost["rate"] == pytest.approx(1487)


def test_the_coefficients_have_the_published_covariance(model):
    tril = model.laws["coefficients"].parameters["scale_tril"]
    covariance = tril @ tril.T
    np.testing.assert_allclose(
        np.sqrt(np.diag(covariance)), [0.0474501, 0.207892, 0.0052112, 0.109066, 0.3825815], rtol=1e-9
    )
    shown = {(0, 1): -0.005691, (0, 4): 0.000259, (1, 2): -0.000783, (2, 4): -0.000111, (3, 4): 0.000184}
    for (i, j), value in shown.items():
        assert covariance[i, j] == pytest.approx(value, rel=1e-9)


def test_draws(model):
    draws = model.sample(KEY, 10_000)
    table = bm.strategies.acceptability(draws, list(TABLE))
    for wtp, (gain, chance, evpi, evpi_error) in TABLE.items():
        row = table.sel(wtp=wtp)
        difference = np.diff(draws.net_benefit(wtp), axis=1)
        error = difference.std() * np.sqrt(1 / 10_000 + 1 / 100_000)
        assert abs(difference.mean() - gain) < 5 * error, wtp
        both = np.sqrt(chance * (1 - chance) * (1 / 10_000 + 1 / 100_000))
        assert abs(float(row["prob_best"].sel(strategy="NP1")) - chance) < 5 * both, wtp
        assert abs(float(row["evpi"]) - evpi) < 5 * np.hypot(float(row["evpi_error"]), evpi_error), wtp


@pytest.mark.parametrize("wtp", [2000, 5000])
def test_perfect_information(model, wtp):
    found = bm.information.evpi(KEY, model, wtp, num_draws=1 << 12)
    assert abs(found.value - TABLE[wtp][2]) < 5 * np.hypot(found.standard_error, TABLE[wtp][3])
    assert found.standing == "unbiased" and found.best == ("standard" if wtp == 2000 else "NP1")


def test_the_cost_of_a_revision_enters_by_its_mean(model):
    """Of degree one: lines. All sites together are worth more than any."""
    cost = bm.information.evppi(KEY, model, "revision_cost", 2200, num_draws=1 << 12)
    assert cost.reason.startswith("closed form of lines") and cost.standing == "estimate"
    assert 0 < cost.standard_error < 0.02 * cost.value < 0.02 * TABLE[2200][2]
    # The same by sums over quantiles of the cost, with the others averaged over draws.
    draws = model.sample(KEY, 4096).sites
    fixed = {name: x.copy() for name, x in draws.items()}
    low, high = (
        model.evaluate({**fixed, "revision_cost": np.full(4096, price)}) @ np.array([-1.0, 2200.0])
        for price in (0.0, 1e4)
    )
    gap, slope = (np.diff(x, axis=1)[:, 0] for x in (low, (high - low) / 1e4))
    prices = model.laws["revision_cost"].quantiles((np.arange(2000)[:, None] + 0.5) / 2000)
    at = gap.mean() + slope.mean() * prices
    wanted = np.maximum(at, 0).mean() - max(at.mean(), 0)
    # The mean gap is good to gap.std() / 64 by draws; its slope in the value is at most P(NP1) < 1.
    assert abs(cost.value - wanted) < 5 * gap.std() / 64 + 9 * cost.standard_error


@pytest.mark.slow
def test_the_example_runs(hip, tmp_path, capsys):
    hip.main(tmp_path)
    text = capsys.readouterr().out
    assert "512.43" in text and "2198.486665 (published)" in text and "exact (MultivariateNormal, no data)" in text
    names = {f"total_hip_{x}.png" for x in ("plane", "acceptability", "cohort")}
    assert {path.name for path in tmp_path.iterdir()} == names
