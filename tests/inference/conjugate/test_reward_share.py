# pyright: reportArgumentType=false
"""The prior's share of mean rewards, and the means by data alone: by quadrature, by hand, and by least squares."""

from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import bayes_mdp as bm
from bayes_mdp.inference import mixture
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.families.bernoulli import BetaBelief
from bayes_mdp.inference.families.binomial import BetaBinomialBelief
from bayes_mdp.inference.families.categorical import DirichletCategoricalBelief
from bayes_mdp.inference.families.exponential import GammaExponentialBelief
from bayes_mdp.inference.families.geometric import BetaGeometricBelief
from bayes_mdp.inference.families.log_normal import LogNormalBelief, LogNormalGammaBelief
from bayes_mdp.inference.families.normal import GammaPrecisionBelief, NormalBelief, NormalGammaBelief
from bayes_mdp.inference.families.poisson import GammaBelief
from bayes_mdp.mdp import StateActionSpace, Transitions
from bayes_mdp.mdp.protocols import CanWeighRewards
from bayes_mdp.numerics.array_forms import to_float64
from tests.calibration.beliefs import collapsed, sampled
from tests.inference.hospitals import hospital, stays

pytestmark = pytest.mark.numerics

KEY = jax.random.key(0)
UNIT, POSITIVE, REAL = np.linspace(0, 1, 200_001)[1:-1], np.linspace(0, 60, 600_001)[1:], np.linspace(-12, 12, 400_001)


def mean_of(value: np.ndarray, log_density: np.ndarray) -> float:
    """Of a density on a grid of equal steps."""
    weight = np.exp(log_density - log_density.max())
    return float((value * weight).sum() / weight.sum())


def normal_gamma(loc: float, pseudo: float, shape: float, rate: float, x: np.ndarray) -> float:
    """Posterior mean of the mean on a grid over it and the logarithm of the precision."""
    mean, precision = np.linspace(-10, 10, 2001), np.exp(np.linspace(-9, 5, 701))[:, None]
    log = stats.norm.logpdf(mean, loc, (pseudo * precision) ** -0.5) + stats.gamma.logpdf(
        precision, shape, scale=1 / rate
    )
    log = log + np.log(precision) + sum(stats.norm.logpdf(r, mean, precision**-0.5) for r in x)
    return mean_of(np.broadcast_to(mean, log.shape), log)


def categorical(concentration: np.ndarray, x: np.ndarray) -> float:
    """Posterior mean of p1 + 2 p2 on a grid of the simplex."""
    p1, p2 = np.meshgrid(*(np.linspace(0, 1, 801)[1:-1],) * 2)
    p = np.stack([1 - p1 - p2, p1, p2])
    inside = p[0] > 1e-9
    power = concentration - 1 + np.bincount(x.astype(int), minlength=3)
    log = np.where(inside, (power[:, None, None] * np.log(np.where(inside, p, 0.5))).sum(0), -1e9)
    return mean_of(p1 + 2 * p2, log)


def one_dimension(grid: np.ndarray, log_prior: Any, log_density: Any, value: Any = lambda x: x) -> Any:
    """rewards -> the posterior mean of `value` of the parameter."""
    return lambda x: mean_of(value(grid), log_prior(grid) + sum((log_density(r, grid) for r in x), np.zeros(grid.size)))


COUNTS = np.array([0.0, 3.0, 1.0, 2.0, 2.0])


def belief(kind: Any, *numbers: float) -> Any:
    return kind(*map(np.float64, numbers))


LAWS: dict[str, tuple[Any, np.ndarray, Any]] = {
    "normal": (
        belief(NormalBelief, 1.0, 0.7, 1.3),
        np.array([2.0, -1.0, 0.4]),
        one_dimension(REAL, lambda m: stats.norm.logpdf(m, 1.0, 0.7), lambda r, m: stats.norm.logpdf(r, m, 1.3)),
    ),
    "bernoulli": (
        belief(BetaBelief, 2.0, 3.0),
        np.array([1.0, 1.0, 0.0, 1.0]),
        one_dimension(UNIT, lambda p: stats.beta.logpdf(p, 2, 3), lambda r, p: np.log(p if r else 1 - p)),
    ),
    "poisson": (
        belief(GammaBelief, 3.0, 1.5),
        COUNTS,
        one_dimension(POSITIVE, lambda m: stats.gamma.logpdf(m, 3, scale=1 / 1.5), stats.poisson.logpmf),
    ),
    "exponential": (
        belief(GammaExponentialBelief, 6.0, 2.0),
        np.array([0.2, 1.4, 0.6]),
        one_dimension(
            POSITIVE,
            lambda m: stats.gamma.logpdf(m, 6, scale=1 / 2.0),
            lambda r, m: stats.expon.logpdf(r, scale=1 / m),
            lambda m: 1 / m,
        ),
    ),
    "binomial": (
        belief(BetaBinomialBelief, 1.0, 4.0, 4.0),
        COUNTS,
        one_dimension(
            UNIT, lambda p: stats.beta.logpdf(p, 1, 4), lambda r, p: stats.binom.logpmf(r, 4, p), lambda p: 4 * p
        ),
    ),
    "geometric": (
        belief(BetaGeometricBelief, 6.0, 3.0),
        COUNTS,
        one_dimension(
            UNIT,
            lambda p: stats.beta.logpdf(p, 6, 3),
            lambda r, p: np.log(p) + r * np.log1p(-p),
            lambda p: (1 - p) / p,
        ),
    ),
    "normal, noise unknown": (
        belief(NormalGammaBelief, 1.0, 1.5, 4.0, 3.0),
        np.array([2.0, -1.0, 0.4]),
        lambda x: normal_gamma(1.0, 1.5, 4.0, 3.0, x),
    ),
    "categorical": (
        DirichletCategoricalBelief(np.array([[2.0, 3.0, 4.0]])),
        np.array([0.0, 2.0, 2.0, 1.0]),
        lambda x: categorical(np.array([2.0, 3.0, 4.0]), x),
    ),
}


def after(prior: Any, rewards: np.ndarray) -> Any:
    """One cell after these rewards."""
    cells = reward_cells(prior, (1, 1))
    zero = np.zeros(len(rewards), int)
    return cells.observe((zero, zero), zero, rewards, np.ones(len(rewards)))[0]


@pytest.mark.parametrize("law", LAWS)
def test_the_mean_is_split_between_prior_and_data(law, x64):
    """The posterior mean is share * prior mean + (1 - share) * mean of the data, all three by quadrature."""
    prior, rewards, mean_after = LAWS[law]
    before, now, data = mean_after(rewards[:0]), mean_after(rewards), rewards.mean()
    cells = after(prior, rewards)
    np.testing.assert_allclose(cells.prior_share(), (now - data) / (before - data), rtol=2e-3)
    np.testing.assert_allclose(cells.data_mean(), data, rtol=1e-12)
    np.testing.assert_allclose(cells.mean(), now, rtol=2e-3)
    np.testing.assert_allclose(after(prior, rewards[:0]).prior_share(), 1.0)


def test_log_normal_rewards_are_weighed_by_their_logarithms(x64):
    """The share is that of the mean of the logarithms; the mean by data alone that under a prior a million wide."""
    rewards = np.array([1.0, 3.0, 0.5])
    log_prior, log_density = (
        (lambda m: stats.norm.logpdf(m, 0.5, 0.7)),
        (lambda r, m: stats.norm.logpdf(np.log(r), m, 1.3)),
    )
    mean_after, data = one_dimension(REAL, log_prior, log_density), np.log(rewards).mean()
    cells = after(belief(LogNormalBelief, 0.5, 0.7, 1.3), rewards)
    np.testing.assert_allclose(cells.prior_share(), (mean_after(rewards) - data) / (0.5 - data), rtol=1e-5)
    flat = after(belief(LogNormalBelief, 0.5, 1e6, 1.3), rewards)
    np.testing.assert_allclose(cells.data_mean(), flat.mean(), rtol=1e-9)
    unknown = after(belief(LogNormalGammaBelief, 0.5, 1.5, 3.0, 2.0), rewards)
    np.testing.assert_allclose(unknown.prior_share(), 1.5 / 4.5)


def test_a_mean_that_is_known_has_no_share(x64):
    cells = after(belief(GammaPrecisionBelief, 2.0, 1.0), np.array([1.0, -2.0]))
    assert np.isnan(cells.prior_share()).all() and (np.asarray(cells.data_mean()) == 0).all()
    nothing = after(belief(BetaBinomialBelief, 1.0, 1.0, 0.0), np.array([0.0]))  # of no trial
    assert np.isnan(nothing.prior_share()).all()


@pytest.mark.parametrize("kind", [GammaExponentialBelief, BetaGeometricBelief])
def test_a_prior_without_a_mean_weighs_nothing_and_moves_all_the_same(kind, x64):
    cells = after(belief(kind, 0.5, 2.0), np.array([1.0, 2.0]))
    assert float(np.asarray(cells.prior_share()).max()) == 0.0
    assert np.asarray(cells.mean())[0, 0] > np.asarray(cells.data_mean())[0, 0] == 1.5
    assert float(np.asarray(after(belief(kind, 0.5, 2.0), np.zeros(0)).prior_share()).max()) == 1.0


WEIGHTS: Any = {
    "NormalGammaBelief": lambda b: b.pseudo_count,
    "NormalBelief": lambda b: b.noise_scale**2 / b.scale**2,
    "BetaBelief": lambda b: b.concentration1 + b.concentration0,
    "GammaBelief": lambda b: b.rate,
}


@pytest.mark.some(3)
@pytest.mark.parametrize("name", ["flat", "outcome", "tied", "support", "poisson", "known"])
def test_pairs_by_hand(cases, name):
    """Transition by transition: cells of their own, shared, by outcome, for each step, known; rewards never seen."""
    case = cases(name, number=9)
    posterior: Any = case.prior.update(case.data)
    assert isinstance(posterior, CanWeighRewards)
    rewards, space = case.prior.reward_cells, case.space
    rows = np.asarray(case.prior.update(case.data).transition_probs.mean())
    share, by_data = (np.asarray(x) for x in (posterior.reward_share(), posterior.data_reward()))
    if name == "known":
        assert np.isnan(share).all()
        np.testing.assert_allclose(by_data, rewards.known)
        return
    seen: dict[int, list[float]] = {}
    for cell, outcome, reward in case.each(case.data, space):
        leaf = int(case.oracle.leaf(cell, outcome))
        if reward is not None and leaf >= 0:
            seen.setdefault(leaf, []).append(reward)
    every = np.mean([x for values in seen.values() for x in values])
    never = 0
    for pair in np.ndindex(*space.shape):
        outcomes = [o for o in range(space.n_outcomes) if rows[(*pair, o)] > 0] if rewards.by_outcome else [0]
        parts, means, unknown = [], [], False
        for outcome in outcomes:
            leaf = int(case.oracle.leaf(pair, outcome))
            prob = rows[(*pair, outcome)] if rewards.by_outcome else 1.0
            if leaf < 0:
                means.append(prob * rewards.known[pair])
                continue
            prior, got = case.oracle.belief(leaf), seen.get(leaf, [])
            weight = WEIGHTS[type(prior).__name__](prior)
            parts.append(prob * weight / (weight + len(got)))
            means.append(prob * (np.mean(got) if got else every))
            unknown, never = True, never + (not got)
        np.testing.assert_allclose(share[pair], sum(parts) if unknown else np.nan, rtol=1e-9)
        np.testing.assert_allclose(by_data[pair], sum(means), rtol=1e-9)
    assert never


def test_under_a_right_prior_the_pull_is_as_large_as_said(x64):
    """4,000 means from the prior, n = 40 rewards each, w = 4: sqrt(w / n) sd; five errors, a false alarm in 6e-7."""
    rng = np.random.default_rng(0)
    shape, count, noise = (2000, 2), 40, 2.0
    reward = rng.normal(0.0, 1.0, shape)[..., None] + noise * rng.normal(size=(*shape, count))
    state, action = (np.repeat(x.ravel(), count) for x in np.indices(shape))
    prior = reward_cells(NormalBelief(np.zeros(4000), np.ones(4000), np.full(4000, noise)), shape)
    cells = prior.observe((state, action), np.zeros_like(state), reward.ravel(), np.ones(state.size))[0]
    np.testing.assert_allclose(cells.data_mean(), reward.mean(-1), rtol=1e-9)
    ratio = ((cells.mean() - cells.data_mean()) / np.sqrt(cells.variance())).std()
    expected = np.sqrt(noise**2 / count)
    assert abs(ratio - expected) < 5 * expected / np.sqrt(2 * reward.shape[0] * reward.shape[1])


def test_without_any_data_nothing_is_moved(cases):
    prior = cases("flat").prior
    np.testing.assert_allclose(prior.data_reward(), prior.mean_mdp().reward)
    np.testing.assert_allclose(prior.reward_share(), 1.0)


FEATURES = np.array([[[1.0, 0.0, 0.0]], [[1.0, 1.0, 0.0]], [[0.0, 2.0, 0.0]], [[0.0, 0.0, 1.0]]])


@pytest.mark.parametrize("known_noise", [True, False])
def test_linear_rewards(known_noise):
    """The variance of a mean after data over that before; least squares, and the prior where the data say nothing."""

    def program(space: StateActionSpace) -> bm.models.MDPSpec:
        tau = 1.0 if known_noise else numpyro.sample("tau", dist.Gamma(3.0, 2.0))
        weights = numpyro.sample("w", dist.Normal(np.ones(3), (0.5 / tau) ** 0.5).to_event(1))
        return bm.models.MDPSpec(np.full(4, 0.25), dist.Normal(FEATURES @ weights, tau**-0.5))

    state, reward = np.array([0, 1, 2, 0, 1]), np.array([3.0, 1.0, -2.0, 2.0, 0.5])
    data = Transitions(state, np.zeros(5, int), reward, np.zeros(5, int))
    posterior: Any = bm.infer(KEY, program, data, space=StateActionSpace(4, 1))
    x, cells = FEATURES[state, 0], FEATURES[:, 0]
    precision = np.eye(3) / 0.5
    spread = [np.einsum("ci,ij,cj->c", cells, np.linalg.inv(p), cells) for p in (precision, precision + x.T @ x)]
    with jax.enable_x64(True):
        wide: Any = to_float64(posterior)
        np.testing.assert_allclose(wide.reward_share()[:, 0], spread[1] / spread[0], rtol=1e-9)
        expected = cells @ np.array([*np.linalg.lstsq(x[:, :2], reward, rcond=None)[0], 1.0])
        np.testing.assert_allclose(wide.data_reward()[:, 0], expected, rtol=1e-9)
    assert spread[1][3] / spread[0][3] == 1.0  # nothing was seen of the third weight


def test_mixtures_average_and_draws_do_not_know(cases):
    shared = collapsed()
    strengths = [shared.component(k) for k in range(shared.num_components)]
    weight = np.asarray(shared.weights)
    for method in ("reward_share", "data_reward"):
        each = np.stack([np.asarray(getattr(one, method)()) for one in strengths])
        np.testing.assert_allclose(getattr(shared, method)(), np.tensordot(weight, each, 1), rtol=1e-5)
    case, other = cases("flat", number=9), cases("flat", number=30)
    components = [case.prior.update(case.data), other.prior.update(other.data)]
    both = mixture(components, weights=[0.2, 0.8])
    expected = [np.asarray(one.reward_share()) for one in components]
    np.testing.assert_allclose(np.asarray(both.reward_share()), 0.2 * expected[0] + 0.8 * expected[1], rtol=1e-12)
    assert not isinstance(sampled(), CanWeighRewards)


def test_pooled_rows_have_rewards_of_their_own():
    """Not by the draws of the rows: Beta(1, 1) over two and the number of rewards seen."""
    prior = bm.models.partial_pooling(bm.models.dirichlet_bernoulli)
    posterior: Any = bm.infer(KEY, prior, space=hospital()).update(stays(40).transitions)
    visits = np.asarray(posterior.visit_counts())
    np.testing.assert_allclose(posterior.reward_share(), 2 / (2 + visits), rtol=1e-6)


def test_the_table_and_the_summary_say_it():
    """70 rewards beside Beta(1, 1): a share of .028; one reward beside it: two thirds."""
    data = Transitions(np.zeros(71, int), np.r_[np.zeros(70, int), 1], np.zeros(71), np.zeros(71, int))
    posterior: Any = bm.infer(KEY, bm.models.dirichlet_bernoulli(), data, space=StateActionSpace(1, 2))
    frame: Any = bm.inference.table(posterior).set_index("action")
    np.testing.assert_allclose(frame.reward_share[[0, 1]], [2 / 72, 2 / 3], rtol=1e-6)
    said = " ".join(str(posterior).split())
    assert (
        "In 1 of 2 tried pairs the prior of the reward outweighs the rewards that were seen (median share 0.67)" in said
    )


def test_rewards_of_three_values_are_all_counted():
    """The statistics of a categorical law of three values are no moments."""
    cells = after(DirichletCategoricalBelief(np.ones((1, 3))), np.array([1.0, 2.0, 2.0, 0.0]))
    assert cells.num_rewards_observed() == 4.0
