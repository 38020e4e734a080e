"""Rewards from choices, against a grid in plain NumPy, closed forms, and simulated persons."""

import importlib.util
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import NUTS
from numpyro.infer.util import log_density
from scipy import special, stats

import bayes_mdp as bm
from bayes_mdp.calibration.simulation_based import ecdf
from bayes_mdp.inference.draws.chains import run_chains

ROOT = Path(__file__).resolve().parents[2]
DISCOUNT, RATIONALITY = 0.9, 2.0
PLANNERS = pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])


@pytest.fixture(scope="module")
def irl():
    path = ROOT / "examples" / "inverse_reinforcement_learning.py"
    spec: Any = importlib.util.spec_from_file_location("inverse_reinforcement_learning", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def _float64(x64):
    """Everything here is in float64."""


def optimal(u, v, soft, slip=0.1):
    """q* of the corridor of five with rewards (u, 0, 0, 0, v): sweeps in NumPy, of arrays of u and v. [5 2 ...]."""
    zero = np.zeros_like(u)
    reward = np.stack([u, zero, zero, zero, v])
    values = left = right = np.zeros_like(reward)
    for _ in range(330):
        down, up = np.concatenate([values[:1], values[:-1]]), np.concatenate([values[1:], values[-1:]])
        left, right = (
            reward + DISCOUNT * ((1 - slip) * down + slip * up),
            reward + DISCOUNT * ((1 - slip) * up + slip * down),
        )
        values = (
            np.logaddexp(RATIONALITY * left, RATIONALITY * right) / RATIONALITY if soft else np.maximum(left, right)
        )
    return np.stack([left, right], 1)


def log_policy(q):
    """Of a Boltzmann-rational person, [5 2 ...]."""
    return RATIONALITY * q - special.logsumexp(RATIONALITY * q, axis=1, keepdims=True)


class Table(NamedTuple):
    """What a posterior of (u, v) says."""

    log_evidence: float
    u: float
    v: float
    sd_u: float
    sd_v: float
    correlation: float
    prob_v: float
    right_at_2: float


def table(seen, soft, copies=1, points=241):
    """By the sum over a grid on [-6, 6]^2."""
    side = np.linspace(-6, 6, points)
    u, v = np.meshgrid(side, side, indexing="ij")
    logs = log_policy(optimal(u, v, soft))
    log_joint = copies * logs[seen.state, seen.action].sum(0) + stats.norm.logpdf(u) + stats.norm.logpdf(v)
    evidence = special.logsumexp(log_joint) + 2 * np.log(side[1] - side[0])
    weights = np.exp(log_joint - special.logsumexp(log_joint))
    mean = lambda x: float((weights * x).sum())  # noqa: E731
    sd_u, sd_v = (np.sqrt(mean((x - mean(x)) ** 2)) for x in (u, v))
    correlation = mean((u - mean(u)) * (v - mean(v))) / (sd_u * sd_v)
    above = mean((v > u) + 0.5 * (v == u))
    return Table(evidence, mean(u), mean(v), sd_u, sd_v, correlation, above, mean(np.exp(logs[2, 1])))


# The parts, exactly.

Q_AT_0_1 = [
    [4.985968, 5.472404],
    [5.061036, 6.148010],
    [5.694196, 6.982091],
    [6.467534, 7.936753],
    [8.240810, 9.022672],
]


def test_golden_values(irl):
    reward = jnp.asarray(irl.ends_only() @ np.array([0.0, 1.0]))
    q = bm.solve(bm.MDP(irl.corridor(), reward), irl.OBJECTIVE).q
    np.testing.assert_allclose(q, Q_AT_0_1, atol=5e-7)
    np.testing.assert_allclose(optimal(np.array(0.0), np.array(1.0), False), Q_AT_0_1, atol=5e-7)


@PLANNERS
def test_the_program_is_prior_times_likelihood(irl, soft):
    """At the golden points and at others, against sweeps in NumPy."""
    args = (irl.SEEN, irl.corridor(), irl.linear(irl.ends_only()))
    joint = jax.jit(lambda weights: log_density(partial(irl.program, soft=soft), args, {}, {"weights": weights})[0])
    for u, v, golden in ((0.0, 0.0, -8.317766), (0.0, 1.0, -8.577879 if soft else -8.311771), (-1.3, 0.4, None)):
        likelihood = log_policy(optimal(np.array(u), np.array(v), soft))[irl.SEEN.state, irl.SEEN.action].sum()
        if golden is not None:
            assert likelihood == pytest.approx(golden, abs=5e-7)
        prior = stats.norm.logpdf([u, v]).sum()
        assert float(joint(jnp.array([u, v]))) == pytest.approx(likelihood + prior, abs=1e-9)


TABLES = {
    False: Table(-8.1913, -0.7921, 0.3237, 0.7023, 0.3715, 0.255, 0.9750, 0.7207),
    True: Table(-8.1787, -0.8538, 0.2453, 0.6687, 0.3539, 0.299, 0.9827, 0.7508),
}
DIGITS = np.array([1e-4, 1e-4, 1e-4, 1e-4, 1e-4, 1e-3, 1e-4, 1e-4])


@pytest.mark.few(1)
@PLANNERS
def test_posterior_on_a_grid(irl, soft):
    """The published table; with the hard maximum the likelihood has kinks, and the grid an error of 2e-4."""
    error = np.abs(np.subtract(table(irl.SEEN, soft), TABLES[soft]))
    print(error)
    assert np.all(error <= 0.51 * DIGITS + (0.0 if soft else 2e-4))


def test_ten_copies_on_a_grid(irl):
    found = table(irl.SEEN, soft=False, copies=10)
    np.testing.assert_allclose([found.u, found.v, found.sd_u, found.sd_v], [-1.584, 0.315, 0.581, 0.095], atol=7e-4)


@pytest.mark.few(1)
@PLANNERS
def test_change_of_variables(irl, soft):
    """Rewards of values and back; |det dR/dQ| = |det(I - discount P_policy)|, by autodiff and by finite differences."""
    rows = jnp.asarray(irl.corridor())
    q = jax.random.normal(jax.random.key(0), (5, 2))
    reward, log_det = irl.reward_of_values(q, rows, RATIONALITY, soft)
    of_values = lambda q: irl.reward_of_values(q.reshape(5, 2), rows, RATIONALITY, soft)[0].ravel()  # noqa: E731
    jacobian = jax.jacfwd(of_values)(q.ravel())
    assert float(jnp.linalg.slogdet(jacobian)[1]) == pytest.approx(float(log_det), abs=1e-9)
    steps = 1e-6 * np.eye(10)
    differences = np.stack([(of_values(q.ravel() + e) - of_values(q.ravel() - e)) / 2e-6 for e in steps], 1)
    np.testing.assert_allclose(jacobian, differences, atol=1e-8)

    def planned(reward):
        mdp = bm.MDP(rows, reward.reshape(5, 2))
        plan = bm.planning.solve_soft(mdp, irl.OBJECTIVE, 1 / RATIONALITY) if soft else bm.solve(mdp, irl.OBJECTIVE)
        return plan.q.ravel()

    # The planner inverts it, and its implicit derivative is the inverse of the derivative.
    found, derivative = jax.jit(lambda r: (planned(r), jax.jacrev(planned)(r)))(reward.ravel())
    np.testing.assert_allclose(found, q.ravel(), atol=1e-9)
    np.testing.assert_allclose(derivative @ jacobian, np.eye(10), atol=1e-9)
    assert -float(jnp.linalg.slogdet(derivative)[1]) == pytest.approx(float(log_det), abs=1e-9)


@PLANNERS
def test_shaping_and_scale_change_no_choice(irl, soft):
    rows = irl.corridor()
    rng = np.random.default_rng(0)
    reward, potential = rng.normal(size=(5, 2)), 3 * rng.normal(size=5)
    shaped = reward + DISCOUNT * rows @ potential - potential[:, None]
    probs = jax.jit(lambda reward, rationality: irl.choice_log_probs(reward, rows, rationality, soft))
    first = probs(reward, RATIONALITY)
    np.testing.assert_allclose(probs(shaped, RATIONALITY), first, atol=1e-10)
    np.testing.assert_allclose(probs(5 * reward, RATIONALITY / 5), first, atol=1e-10)
    assert np.abs(probs(2 * reward, RATIONALITY) - first).max() > 0.1
    # The basis spans exactly these.
    basis = irl.shaping_directions(rows, DISCOUNT).reshape(-1, 10)
    np.testing.assert_allclose(basis @ basis.T, np.eye(5), atol=1e-12)
    np.testing.assert_allclose(basis.T @ basis @ (shaped - reward).ravel(), (shaped - reward).ravel(), atol=1e-12)


# By NUTS. Statistical tests: 6 Monte Carlo errors, of near-normal means: 2e-9 a comparison.


def check_mean(draws, mean, margin=0.0):
    """Of draws [C N]."""
    error = draws.std() / effective_sample_size(draws) ** 0.5
    assert draws.mean() == pytest.approx(mean, abs=6 * error + margin)


@pytest.mark.slow
@pytest.mark.parametrize(("soft", "copies"), [(False, 1), (True, 1), (False, 10)])
def test_nuts_finds_the_posterior_of_the_grid(irl, soft, copies):
    rows = irl.corridor()
    seen = irl.Demonstrations(*(np.tile(x, copies) for x in irl.SEEN))
    draws = irl.infer(jax.random.key(copies), partial(irl.program, seen, rows, irl.linear(irl.ends_only()), soft=soft))
    u, v = np.moveaxis(draws["weights"], -1, 0)
    expected = table(irl.SEEN, soft, copies)
    for x, mean, sd in ((u, expected.u, expected.sd_u), (v, expected.v, expected.sd_v)):
        check_mean(x, mean, 2e-4)
        check_mean((x - mean) ** 2, sd**2, 2e-4)
    covariance = expected.correlation * expected.sd_u * expected.sd_v
    check_mean((u - expected.u) * (v - expected.v), covariance, 2e-4)
    if copies == 1:
        check_mean((v > u).astype(float), expected.prob_v, 2e-4)
    probs = jax.jit(jax.vmap(lambda reward: jnp.exp(irl.choice_log_probs(reward, rows, RATIONALITY, soft)[2, 1])))
    right = np.asarray(probs(draws["reward"].reshape(-1, 5, 2))).reshape(u.shape)
    check_mean(right, expected.right_at_2, 2e-4)


@pytest.mark.slow
def test_values_as_unknowns_have_the_same_posterior(irl):
    """Change of variables: means and squares of all rewards are within 6 Monte Carlo errors (20 comparisons: 4e-8)."""
    rows = irl.corridor()
    prior = irl.linear(np.eye(10).reshape(5, 2, 10))
    first = irl.infer(jax.random.key(0), partial(irl.program, irl.SEEN, rows, prior, soft=True))["reward"]
    second = irl.infer(jax.random.key(1), partial(irl.program_in_values, irl.SEEN, rows, soft=True))["reward"]
    for power, s, a in np.ndindex(2, 5, 2):
        x, y = (draws[..., s, a] ** (power + 1) for draws in (first, second))
        error = np.sqrt(sum(z.var() / effective_sample_size(z) for z in (x, y)))
        assert x.mean() == pytest.approx(y.mean(), abs=6 * error)


@pytest.mark.slow
def test_what_is_not_identified_keeps_its_prior(irl):
    """Five directions of shaping, and size over rationality: still N(0, 1). What is identified is not."""
    rows = irl.corridor()
    prior = irl.linear(np.eye(10).reshape(5, 2, 10))
    reward = irl.infer(jax.random.key(2), partial(irl.program, irl.SEEN, rows, prior))["reward"]
    for direction in irl.shaping_directions(rows, DISCOUNT):
        along = np.einsum("cnsa,sa->cn", reward, direction)
        check_mean(along, 0.0)
        check_mean(along**2, 1.0)
    preferred = (reward[..., 4, 1] - reward[..., 4, 0]) / np.sqrt(2)
    assert abs(preferred.mean()) > 0.1 or preferred.std() < 0.9
    prior, rationality = irl.sized(irl.ends_only())
    draws = irl.infer(jax.random.key(3), partial(irl.program, irl.SEEN, rows, prior, rationality))
    difference, total = ((draws["log_size"] + sign * draws["log_rationality"]) / np.sqrt(2) for sign in (-1, 1))
    check_mean(difference, 0.0)
    check_mean(difference**2, 1.0)
    assert total.std() < 0.9


SIMULATIONS, DRAWS = 200, 63


@pytest.mark.slow
@PLANNERS
def test_values_elsewhere_are_covered(irl, soft):
    """Persons with rewards from the prior, twelve choices each; their values in a slippery corridor.

    Ranks of the true value at state 2 among the draws by NUTS: uniform, and 90 % intervals cover; false alarms 1e-6
    each. Draws that are shrunk to half their width about their mean are found out.
    """
    rows, elsewhere = irl.corridor(), irl.corridor(slip=0.4)
    model = lambda seen: irl.program(seen, rows, irl.linear(irl.ends_only()), soft=soft)  # noqa: E731
    method = bm.inference.NUTS(200, 6 * DRAWS, 1, kernel=partial(NUTS, target_accept_prob=0.9))

    @jax.jit
    def values_elsewhere(key, seen):
        """Of state 2, by every sixth draw."""
        weights = run_chains(key, model, seen, method).draws["weights"][0, ::6]
        return irl.transfer(jnp.einsum("saf,nf->nsa", irl.ends_only(), weights), elsewhere)[:, 2]

    rng, ranks, narrow = np.random.default_rng(0), [], []
    for seed in range(SIMULATIONS):
        u, v = rng.normal(size=2)
        probs = np.exp(log_policy(optimal(u, v, soft)))
        state = rng.integers(5, size=12)
        seen = irl.Demonstrations(state, (rng.random(12) < probs[state, 1]).astype(int))
        draws = np.asarray(values_elsewhere(jax.random.key(seed), seen))
        truth = optimal(u, v, False, slip=0.4)[2].max()
        ranks.append((draws < truth).sum())
        narrow.append((draws.mean() + 0.5 * (draws - draws.mean()) < truth).sum())
    p_value, ranks = ecdf.p_value(np.array(ranks), DRAWS), np.array(ranks)
    inside, share = int(((ranks >= 3) & (ranks <= DRAWS - 3)).sum()), (DRAWS - 5) / (DRAWS + 1)
    print(f"values elsewhere: p = {p_value:.3f}, {inside} of {SIMULATIONS} in intervals of {share:.3f}")
    assert p_value > 1e-6
    assert stats.binomtest(inside, SIMULATIONS, share).pvalue > 1e-6
    assert ecdf.p_value(np.array(narrow), DRAWS) < 1e-6


@pytest.mark.slow
def test_the_example_runs(irl, capsys):
    irl.main()
    text = capsys.readouterr().out
    assert "hard: u -0." in text and "along shaping (prior 0 +- 1)" in text
