"""Pooled plants: routes, predictions and borrowing against plain NumPy, and what a plant without data has.

Keys and logs are fixed, so a test passes or fails for good; the bounds of what is drawn say how far chance could go.
"""

import importlib.util
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.special import gammaln

import bayes_mdp as bm

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "pooled_sites.py"
KEY = jax.random.key(0)
RUNS, SERVICES = np.array([0, 1, 2]), np.array([1, 2, 3])  # the wears from which a change is unknown


@pytest.fixture(scope="module")
def ps():
    spec: Any = importlib.util.spec_from_file_location("pooled_sites", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def space(ps):
    return ps.plants(3)


@pytest.fixture(scope="module")
def log(ps, space):
    """Forty months of the first plant, twenty of the second, none of the third."""
    world = ps.world(jax.random.key(5), ps.partial_pooling, space)
    return ps.log_of(np.random.default_rng(0), world, (40, 20, 0))


def counted(log, number):
    """[plant, run or service, wear, changed or not], a transition at a time."""
    counts = np.zeros((number, 2, 3, 2))
    for state, action, then in zip(log.state, log.action, log.next_state, strict=True):
        plant, wear = divmod(int(state), 4)
        unknown = {0: wear < 3, 1: wear > 0, 2: False}[int(action)]
        if unknown:
            counts[plant, action, wear - (action == 1), int(state == then)] += 1
    return counts


def chance(posterior):
    """[plant, run or service, wear], the mean probability of a change."""
    moves = np.asarray(posterior.mean_mdp().probability)[..., 1].reshape(-1, 4, 3)
    return np.stack([moves[:, RUNS, 0], moves[:, SERVICES, 1]], axis=1)


A, B = np.array([[1.0], [1.0]]), np.array([[2.0], [1.0]])


def test_the_routes(ps, space):
    found = {name: bm.explain(prior, space).route for name, prior in ps.PRIORS.items()}
    assert found == {"no_pooling": "exact", "full_pooling": "exact", "partial_pooling": "importance"}


def test_what_is_known(ps, space):
    """Only the plant's own neighbours can follow; a replacement is sure; rewards are output less costs."""
    world = ps.world(KEY, ps.no_pooling, space)
    rows = np.asarray(world.to_dense().transition_probs).reshape(3, 4, 3, 3, 4)
    for plant in range(3):
        assert not np.delete(rows[plant], plant, axis=2).any()
        own = rows[plant, :, :, plant]
        np.testing.assert_array_equal(own[:, 2], np.eye(4)[[0, 0, 0, 0]])
        np.testing.assert_array_equal(own[3, 0] + own[0, 1], [1, 0, 0, 1])  # broken and running, new and serviced
        assert np.all((own[:, 0] > 0) == (np.eye(4) + np.eye(4, k=1) > 0))
        assert np.all((own[:, 1] > 0) == (np.eye(4) + np.eye(4, k=-1) > 0))
    np.testing.assert_array_equal(world.reward[4:8], [[10, 2, -30], [8, 0, -30], [4, -4, -30], [-20, -28, -30]])


def test_closed_forms(ps, space, log):
    """Beta posteriors of each plant's own counts; full pooling: of their sums, equally in all plants."""
    counts = counted(log, 3)
    alone: Any = bm.infer(KEY, ps.no_pooling, log, space=space, method="exact")
    np.testing.assert_allclose(chance(alone), (A + counts[..., 0]) / (A + B + counts.sum(-1)), rtol=1e-6)
    pooled: Any = bm.infer(KEY, ps.full_pooling, log, space=space, method="exact")
    total = counts.sum(0)
    expected = (A + total[..., 0]) / (A + B + total.sum(-1))
    np.testing.assert_allclose(chance(pooled), np.broadcast_to(expected, (3, 2, 3)), rtol=1e-6)
    assert np.abs(chance(alone) - chance(pooled)).max() > 0.05  # the two differ here
    # The log evidence: a Beta function for each cell.
    for posterior, cells in ((alone, counts), (pooled, total)):
        found = log_beta(A + cells[..., 0], B + cells[..., 1]) - log_beta(A, B)
        np.testing.assert_allclose(float(posterior.log_evidence), found.sum(), rtol=1e-5)


def log_beta(a, b):
    return gammaln(a) + gammaln(b) - gammaln(a + b)


def test_a_log_of_all_plants_in_one_is_the_same_to_full_pooling(ps, space, log):
    """Every month moved to the first plant: the same posterior."""
    moved = bm.Transitions(log.state % 4, log.action, log.reward, log.next_state % 4)
    first, second = (bm.infer(KEY, ps.full_pooling, data, space=space) for data in (log, moved))
    np.testing.assert_allclose(chance(first), chance(second), rtol=1e-12)


def pooled_by_quadrature(counts, number=40):
    """Mean probability of a change under partial pooling: sums over a grid of (typical, log alike) for each cell.

    Given `alike` the six cells are independent, so that typical is summed out cell by cell.

    Returns:
        [plant, run or service, wear]; and the mean of the typical probabilities [run or service, wear].
    """
    z, weight = np.polynomial.hermite_e.hermegauss(30)
    alike = np.exp(np.log(10.0) + z)
    nodes, weights = np.polynomial.legendre.leggauss(number)
    typical = (nodes + 1) / 2
    m, k = typical[:, None], alike[None]
    evidence, mean, of_typical = np.zeros((2, 3, 30)), np.zeros((len(counts), 2, 3, 30)), np.zeros((2, 3, 30))
    for a in range(2):
        for wear in range(3):
            density = weights / 2 * typical ** (A[a, 0] - 1) * (1 - typical) ** (B[a, 0] - 1)
            density /= density.sum()
            yes, no = counts[:, a, wear, 0, None, None], counts[:, a, wear, 1, None, None]
            likelihood = np.exp((log_beta(k * m + yes, k * (1 - m) + no) - log_beta(k * m, k * (1 - m))).sum(0))
            evidence[a, wear] = density @ likelihood
            share = density[:, None] * likelihood / evidence[a, wear]
            mean[:, a, wear] = (share * (k * m + yes) / (k + yes + no)).sum(1)
            of_typical[a, wear] = (share * m).sum(0)
    weight = weight * evidence.prod((0, 1))
    weight /= weight.sum()
    return mean @ weight, of_typical @ weight


@pytest.fixture(scope="module")
def partial(ps, space, log):
    return bm.infer(KEY, ps.partial_pooling, log, space=space, sampler=bm.inference.NUTS(300, 500, 4))


def test_partial_pooling_by_quadrature(ps, log, partial):
    """All probabilities of a change, and the predictive density of a later log.

    Posterior deviations are below .22 and the draws are worth 2,000 independent ones or more: .03 is six standard
    errors, a false alarm of 2e-9 for each of 18 numbers. Plants that are taken as alike are out by .11.
    """
    expected, _ = pooled_by_quadrature(counted(log, 3))
    finer, _ = pooled_by_quadrature(counted(log, 3), 80)
    np.testing.assert_allclose(expected, finer, atol=2e-3)  # the quadrature itself
    found = chance(partial)
    assert np.abs(found - expected).max() < 0.03
    total = counted(log, 3).sum(0)
    assert np.abs((A + total[..., 0]) / (A + B + total.sum(-1)) - expected).max() > 0.09
    # A later log: its density by the mean rows of the quadrature.
    later = ps.log_of(np.random.default_rng(1), partial.mean_mdp(), (50, 50, 50))
    counts = counted(later, 3)
    score = (counts[..., 0] * np.log(expected) + counts[..., 1] * np.log(1 - expected)).sum() / 150
    assert abs(ps.log_predictive(partial, later).mean() - score) < 0.02


def test_predictions_one_by_one(ps, space, log):
    """Of the exact routes, against a loop over the transitions."""
    later = ps.log_of(np.random.default_rng(2), ps.world(KEY, ps.no_pooling, space), (9, 9, 9))
    posterior, counts = bm.infer(KEY, ps.no_pooling, log, space=space), counted(log, 3)
    expected = []
    for state, action, then in zip(later.state, later.action, later.next_state, strict=True):
        plant, wear = divmod(int(state), 4)
        if action == 2 or (action == 0 and wear == 3) or (action == 1 and wear == 0):
            expected.append(0.0)
            continue
        yes, no = counts[plant, action, wear - (action == 1)]
        p = (A[action, 0] + yes) / (A[action, 0] + B[action, 0] + yes + no)
        expected.append(np.log(1 - p if then == state else p))
    np.testing.assert_allclose(ps.log_predictive(posterior, later), expected, rtol=1e-5)


def test_a_plant_without_data_has_the_pooled_mean(log, partial):
    """Its mean probabilities are the posterior means of the typical ones: E[change] = E[typical], draw by draw.

    The components have the same draws on both sides: equal to rounding. Those of the first plant differ.
    """
    typical = np.average(partial.hyperparameters["typical"], axis=0, weights=partial.weights)
    np.testing.assert_allclose(chance(partial)[2], typical, rtol=1e-5)
    assert np.abs(chance(partial)[0] - typical).max() > 0.02
    assert np.abs(pooled_by_quadrature(counted(log, 3))[1] - typical).max() < 0.03


def test_what_the_estimate_leaves_out(ps, space, log, partial):
    """The plug-in has the same draws' mean as typical, exact, and less variance in the plant without data."""
    prior = ps.plugged_in(partial)
    plugged = bm.infer(KEY, prior, log, space=space)
    assert plugged.method == "exact"
    typical = np.average(partial.hyperparameters["typical"], axis=0, weights=partial.weights)
    np.testing.assert_allclose(chance(plugged)[2], typical, rtol=1e-5)
    both = {"drawn": partial, "plugged": plugged}
    drawn = {n: np.asarray(ps.listed(p.sample(KEY, (2000,))).probability)[:, 8:, :, 1] for n, p in both.items()}
    unknown = drawn["drawn"].std(0) > 0
    assert unknown.sum() == 6
    # Of 2,000 draws: the relative error of a mean variance over six cells is below 2 %, and 5 % is what is asked.
    assert drawn["drawn"][:, unknown].var(0).mean() > 1.05 * drawn["plugged"][:, unknown].var(0).mean()


def test_values_are_those_of_the_planner(ps):
    """A policy in one plant alone, by a plain recursion."""
    space = ps.plants(2)
    mdp = ps.world(KEY, ps.partial_pooling, space)
    dense = np.asarray(mdp.to_dense().transition_probs, float)
    for p, policy in enumerate(ps.POLICIES.values()):
        value, action = np.zeros(8), np.tile(policy, 2)
        for _ in range(24):
            value = ps.rewards(2)[np.arange(8), action] + dense[np.arange(8), action] @ value
        two = bm.evaluate(mdp, action, ps.TWO_YEARS).v[0]
        np.testing.assert_allclose(two, value, rtol=1e-4)
        assert p or value[0] != value[4]


@pytest.mark.slow
def test_exploration_borrows(ps):
    """Plants that are alike: an agent that pools loses less, seed by seed, by six standard errors.

    By chance alone a false alarm of 3e-7 (t with 39 degrees of freedom); what must be caught is an agent that learns
    about every plant from its own months alone, whose gain is zero on average.
    """
    runs = ps.explore(KEY, ps.full_pooling, bm.agents.PSRL(), 30, 40)
    regret = {name: run["regret"].values[:, -1] for name, run in runs.items()}
    for name in ("full_pooling", "partial_pooling"):
        gain = regret["no_pooling"] - regret[name]
        assert gain.mean() > 6 * gain.std(ddof=1) / np.sqrt(40)
    assert set(runs) == set(ps.PRIORS) and all((x >= -1e-3).all() for x in regret.values())


@pytest.mark.slow
def test_calibration_and_picture(ps, tmp_path):
    found = ps.calibration(KEY, ps.partial_pooling, 2)
    assert found.sizes == {"belief": 4, "world": 2, "plant": 3}
    assert np.all(found["width"] > 0) and np.all(found["loss"] >= 0) and np.all(found["score"] < 0)
    figure = ps.picture({"a": ps.explore(KEY, ps.no_pooling, bm.agents.PSRL(), 2, 2)})
    figure.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_alike_has_the_prior_that_the_page_states(ps):
    assert isinstance(ps.ALIKE, dist.LogNormal)
    np.testing.assert_allclose([ps.ALIKE.loc, ps.ALIKE.scale], [np.log(10), 1], rtol=1e-6)
