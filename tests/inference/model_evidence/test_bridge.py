"""Bridge sampling on programs whose evidence and posterior are known, with exact draws by numpy and scipy: no chains.

|estimate - truth| is at most 5 stated errors: for a normal error of that size one false alarm in 1.7 million, and there
are 11 comparisons (7e-6 in all; the keys are fixed). That the stated errors are the true ones is a test of its own.
"""

# `numpyro.sample` is typed to return any ArrayLike: too narrow for tests.
# pyright: reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false, reportOperatorIssue=false

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.distributions import transforms
from scipy import stats
from scipy.special import betaln, gammaln

from bayes_mdp.inference import model_evidence as bridge
from bayes_mdp.inference.integrals.unconstrained_model import UnconstrainedModel, unconstrain
from bayes_mdp.inference.model_evidence import bridge_density, bridge_sampling, solve_bridge
from bayes_mdp.models import SupportedDirichlet
from bayes_mdp.models.dirichlet_prior import stable_simplex

CHAINS, DRAWS = 2, 400
SEEN = np.array([2.0, 0.0, 3.0, 1.0])
COUNTS = np.array([[0.0, 5.0, 1.0], [9.0, 0.0, 0.0], [1.0, 1.0, 2.0]])


def poisson(data):
    """A positive site: a rate, Gamma(2, 1)."""
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    numpyro.sample("seen", dist.Poisson(rate).expand(data.shape).to_event(1), obs=data)


def poisson_truth(data):
    number, total = len(data), data.sum()
    return gammaln(2 + total) - (2 + total) * np.log1p(number) - gammaln(data + 1).sum()


def rows(data):
    """A simplex in each of three rows, the concentration below one: skewed, and close to its corners."""
    with numpyro.plate("row", 3):
        probs = numpyro.sample("probs", dist.Dirichlet(0.3 * jnp.ones(3)))
    numpyro.factor("seen", jnp.sum(data * jnp.log(probs)))


def rows_truth(data):
    total = gammaln(0.9) - gammaln(0.9 + data.sum(1))
    return (total + (gammaln(0.3 + data) - gammaln(0.3)).sum(1)).sum()


def interval(data):
    """A site between -1 and 2, and normal data."""
    loc = numpyro.sample("loc", dist.Uniform(-1.0, 2.0))
    numpyro.sample("seen", dist.Normal(loc, 1.0).expand(data.shape).to_event(1), obs=data)


def interval_truth(data):
    spread, mean = len(data) ** -0.5, data.mean()
    inside = np.diff(stats.norm.cdf([-1.0, 2.0], mean, spread))[0]
    peak = stats.norm.logpdf(data, mean).sum() - stats.norm.logpdf(0.0, 0.0, spread)
    return peak + np.log(inside) - np.log(3.0)


def interval_draws(rng, shape, data):
    spread, mean = len(data) ** -0.5, data.mean()
    low, high = (-1 - mean) / spread, (2 - mean) / spread
    return {"loc": stats.truncnorm.rvs(low, high, mean, spread, size=shape, random_state=rng)}


CORRELATED = np.array([[1.0, 0.9, 0.3], [0.9, 1.2, 0.5], [0.3, 0.5, 0.8]])


def correlated(data):
    """Three correlated numbers of scales 1, 10 and 100, each seen once with unit noise."""
    scale = jnp.array([1.0, 10.0, 100.0])
    x = numpyro.sample("x", dist.MultivariateNormal(jnp.zeros(3), CORRELATED * scale[:, None] * scale))
    numpyro.sample("seen", dist.Normal(x, 1.0).to_event(1), obs=data)


def correlated_prior():
    scale = np.array([1.0, 10.0, 100.0])
    return CORRELATED * scale[:, None] * scale


def correlated_draws(rng, shape, data):
    gain = correlated_prior() @ np.linalg.inv(correlated_prior() + np.eye(3))
    covariance = correlated_prior() - gain @ correlated_prior()
    return {"x": rng.multivariate_normal(gain @ data, 0.5 * (covariance + covariance.T), shape)}


PAIR = np.array([0.5, 30.0, -20.0])
CASES = {
    "positive": (
        poisson,
        SEEN,
        lambda rng, shape, data: {"rate": rng.gamma(2 + data.sum(), size=shape) / (1 + len(data))},
        poisson_truth(SEEN),
    ),
    "simplex": (
        rows,
        COUNTS,
        lambda rng, shape, data: {"probs": np.stack([rng.dirichlet(0.3 + row, shape) for row in data], -2)},
        rows_truth(COUNTS),
    ),
    "interval": (interval, SEEN, interval_draws, interval_truth(SEEN)),
    "correlated": (
        correlated,
        PAIR,
        correlated_draws,
        stats.multivariate_normal(np.zeros(3), correlated_prior() + np.eye(3)).logpdf(PAIR),
    ),
}


def estimate(name, key, rng, draws=DRAWS):
    model, data, draw, _ = CASES[name]
    return bridge_sampling(key, model, data, draw(rng, (CHAINS, draws), data))


@pytest.mark.parametrize("name", CASES)
def test_the_evidence_is_that_of_the_closed_form(name, key):
    found, truth = estimate(name, key, np.random.default_rng(1)), CASES[name][-1]
    assert found.problems == () and found.method == "bridge"
    assert abs(found.log_evidence - truth) <= 5 * found.standard_error
    assert 1e-4 < found.standard_error < 0.1
    assert (found.dimension, found.num_draws) == ({"simplex": 6, "correlated": 3}.get(name, 1), CHAINS * DRAWS // 2)


SMALL = 0.05


def small(data, law):
    """Rows of a small concentration: one draw of two outcomes in twelve leaves less than 2e-16 to the last one."""
    with numpyro.plate("row", 3):
        probs = numpyro.sample("probs", law(SMALL * jnp.ones((3, 3))))
    numpyro.factor("seen", jnp.sum(jnp.where(data > 0, data * jnp.log(jnp.where(data > 0, probs, 1.0)), 0.0)))


def test_rows_of_a_small_concentration(key):
    """Dirichlet-multinomial in closed form; NumPyro's own transform, which rounds, is off by more than 10 errors."""
    possible = np.ones((3, 3), bool)
    with jax.enable_x64(True):  # draws on the log scale, by gamma variables
        draws = SupportedDirichlet(SMALL + COUNTS, possible).sample(jax.random.key(3), (4, 1000))
        draws = {"probs": np.asarray(draws)}
    total = gammaln(3 * SMALL) - gammaln(3 * SMALL + COUNTS.sum(1))
    truth = (total + (gammaln(SMALL + COUNTS) - gammaln(SMALL)).sum(1)).sum()
    plain = partial(small, law=dist.Dirichlet)
    for model in (stable_simplex(plain), partial(small, law=lambda x: SupportedDirichlet(x, possible))):
        found = bridge_sampling(key, model, COUNTS, draws)
        assert found.problems == () and 1e-3 < found.standard_error < 0.1
        assert abs(found.log_evidence - truth) <= 5 * found.standard_error
    rounded = bridge_sampling(key, plain, COUNTS, draws)
    assert abs(rounded.log_evidence - truth) > 10 * rounded.standard_error


def everything(data):
    """One site of every kind; nothing is observed: the evidence is one."""
    del data
    wide = numpyro.sample("wide", dist.HalfCauchy(1.0))
    numpyro.sample("inside", dist.Uniform(0.0, wide))  # a support that depends on another site
    numpyro.sample("angle", dist.Uniform(-3.0, 3.0))
    numpyro.sample("weights", dist.Dirichlet(jnp.array([0.5, 1.0, 2.0])).expand([2]).to_event(1))
    numpyro.sample("cholesky", dist.LKJCholesky(3, 2.0))
    ordered = dist.TransformedDistribution(dist.Normal(0.0, 1.0).expand([3]).to_event(1), transforms.OrderedTransform())
    numpyro.sample("ordered", ordered)
    loc = numpyro.sample("loc", dist.Normal(0.0, 3.0))
    numpyro.sample("around", dist.Normal(loc, 0.1))


def draws_of_everything(key, shape):
    number = int(np.prod(shape))

    def one(key):
        trace = handlers.trace(handlers.seed(everything, key)).get_trace(None)
        return {name: site["value"] for name, site in trace.items()}

    with jax.enable_x64(True):
        flat = jax.jit(jax.vmap(one))(jax.random.split(key, number))
        return {name: np.asarray(x).reshape(*shape, *x.shape[1:]) for name, x in flat.items()}


def test_every_kind_of_site_and_a_missing_jacobian(key, monkeypatch):
    """Draws of the prior: the evidence of nothing is one. Without the Jacobians it is off by more than 50 errors."""
    draws = draws_of_everything(key, (4, 1000))
    found = bridge_sampling(key, everything, None, draws)
    assert found.dimension == 1 + 1 + 1 + 4 + 3 + 3 + 1 + 1 and found.problems == ()
    assert abs(found.log_evidence) <= 5 * found.standard_error and 1e-3 < found.standard_error < 0.1
    place = UnconstrainedModel.place

    def without_jacobian(*args, **options):
        placed = place(*args, **options)
        return placed._replace(log_density=placed.without_jacobian)

    monkeypatch.setattr(UnconstrainedModel, "place", without_jacobian)
    broken = bridge_sampling(key, partial(everything), None, draws)
    assert abs(broken.log_evidence) > 50 * broken.standard_error


def test_wrong_draws_are_seen(key):
    """Draws of the prior in place of the posterior of twice the data: more than 5 errors off, or no overlap."""
    model, data, draw, _ = CASES["positive"]
    twice = np.concatenate([data, data])
    draws = draw(np.random.default_rng(0), (CHAINS, 4000), data)
    found = bridge_sampling(key, model, twice, draws)
    assert abs(found.log_evidence - poisson_truth(twice)) > 5 * found.standard_error


def autoregressive(rng, shape, coefficient):
    """Standard normal numbers, each chain with this autocorrelation."""
    x = rng.standard_normal(shape)
    for n in range(1, shape[1]):
        x[:, n] = coefficient * x[:, n - 1] + np.sqrt(1 - coefficient**2) * x[:, n]
    return x


SHAPE, DIMENSION = 0.5, 4


def logarithms_of_gamma(rows):
    """Log density of independent log x, x ~ Gamma(1/2, 1): skewed, with an exponential tail."""
    return (SHAPE * rows - np.exp(rows) - gammaln(SHAPE)).sum(1)


def squares_of_errors(coefficient, shape=(4, 500), number=60):
    """Mean of (error / stated error)^2 of 60 estimates from draws of this autocorrelation, mean effective size."""
    rng, found, grid = np.random.default_rng(0), [], np.linspace(-6.0, 6.0, 4001)
    quantiles = np.log(stats.gamma(SHAPE).ppf(stats.norm.cdf(grid)))
    for i in range(number):
        normal = autoregressive(rng, (*shape, DIMENSION), coefficient)
        rows = np.interp(normal, grid, quantiles)
        proposal = bridge.fit_proposal(rows[:, : shape[1] // 2].reshape(-1, DIMENSION))
        found.append(bridge_density(jax.random.key(i), logarithms_of_gamma, proposal, rows[:, shape[1] // 2 :]))
    z = np.array([each.log_evidence / each.standard_error for each in found])
    return np.mean(z**2), np.mean([each.effective_draws for each in found])


@pytest.mark.slow
def test_the_stated_error_is_the_true_one(monkeypatch):
    """Independent and correlated draws; 60 estimates each. Under exact errors the mean square is 1 +- 0.18, by
    chi-square outside [0.3, 2.15] with probability 1e-6. The twin takes correlated draws for independent ones.
    """
    for coefficient in (0.0, 0.9):
        square, effective = squares_of_errors(coefficient)
        assert 0.3 < square < 2.15
        assert effective > 800 if coefficient == 0 else effective < 400
    monkeypatch.setattr(bridge, "_effective", lambda values: float(values.size))
    assert squares_of_errors(0.9)[0] > 2.5


def test_the_fixed_point_is_that_of_the_iteration():
    """Meng and Wong's iteration as they wrote it, with these shares, ends where the search does."""
    rng = np.random.default_rng(0)
    # p = 3 Normal(1, 1), q = Normal(0, 1): log(p / q) = log 3 + x - 1/2
    of = lambda x: np.log(3.0) + x - 0.5  # noqa: E731
    posterior, proposal = of(rng.normal(1.0, 1.0, (2, 300))), of(rng.normal(0.0, 1.0, 600))
    found = solve_bridge(posterior, proposal)
    share = bridge._effective(posterior) / (bridge._effective(posterior) + 600)
    ratio = 1.0
    for _ in range(200):
        above = np.mean(np.exp(proposal) / (share * np.exp(proposal) + (1 - share) * ratio))
        ratio = above / np.mean(1.0 / (share * np.exp(posterior) + (1 - share) * ratio))
    assert found.log_ratio == pytest.approx(np.log(ratio), abs=1e-9)
    assert abs(found.log_ratio - np.log(3.0)) < 5 * found.error
    shifted = solve_bridge(posterior - 5000.0, proposal - 5000.0)  # nothing overflows
    assert shifted.log_ratio == pytest.approx(np.log(ratio) - 5000.0, abs=1e-8)
    assert shifted.error == pytest.approx(found.error, rel=1e-6)


def test_one_compilation_for_all_data_and_numbers_of_draws(key):
    traces = []

    def counted(data):
        traces.append(None)
        poisson(data)

    rng, draw = np.random.default_rng(0), CASES["positive"][2]
    bridge_sampling(key, counted, SEEN, draw(rng, (2, 200), SEEN))
    alone = len(traces)
    again = SEEN + 1
    found = bridge_sampling(key, counted, again, draw(rng, (3, 300), again))
    assert len(traces) - alone == 1  # the check of its sites is made for every data
    assert abs(found.log_evidence - poisson_truth(again)) <= 5 * found.standard_error


def modes(number, spread):
    """The integral of `number` densities, each with modes at -9 and 9, from draws of all modes."""

    def model(data):
        del data
        x = numpyro.sample("x", dist.Normal(0.0, 100.0).expand([number]).to_event(1))
        each = [dist.Normal(loc, spread).log_prob(x) for loc in (-9.0, 9.0)]
        log_density = jnp.logaddexp(*each) - jnp.log(2.0)
        numpyro.factor("seen", log_density.sum() - dist.Normal(0.0, 100.0).log_prob(x).sum())

    rng, shape = np.random.default_rng(0), (2, 1000, number)
    return model, {"x": 9.0 * rng.choice([-1, 1], shape) + spread * rng.standard_normal(shape)}


def test_posteriors_that_no_normal_covers_are_reported(key):
    """Four modes: unreliable, and said to be. 4,096 modes: no estimate."""
    model, draws = modes(2, 0.3)
    found = bridge_sampling(key, model, None, draws)
    assert "posterior and normal proposal overlap in" in found.problems[0] and "unreliable" in str(found)
    assert abs(found.log_evidence) <= 5 * found.standard_error and found.standard_error > 0.1
    for spread, sentence in ((1.0, "posterior and normal proposal do not overlap"), (0.01, "no fixed point within")):
        model, draws = modes(12, spread)
        with pytest.raises(ValueError, match=sentence):
            bridge_sampling(key, model, None, draws)


def _discrete(data):
    numpyro.sample("kind", dist.Bernoulli(0.5))
    poisson(data)


def _improper(data):
    numpyro.sample("rate", dist.ImproperUniform(dist.constraints.positive, (), ()))


RATE = {"rate": np.linspace(1.0, 2.0, 400).reshape(2, 200)}


@pytest.mark.parametrize(
    ("model", "draws", "sentence"),
    [
        (_discrete, RATE, "site 'kind' is discrete, over which bridge sampling does not integrate"),
        (_improper, RATE, "site 'rate' is ImproperUniform, whose density has no normalising constant"),
        (poisson, {"speed": RATE["rate"]}, "draws: 'rate' is a latent site without draws, expected draws of rate"),
        (poisson, {**RATE, "speed": RATE["rate"]}, "draws: 'speed' is no latent site of the program"),
        (poisson, {"rate": np.ones(4)}, "expected [chains draws ...] alike for every site"),
        (
            poisson,
            {"rate": np.ones((2, 40))},
            "leave 40 for each half, and there are 1 unconstrained numbers",
        ),
        (poisson, {"rate": np.ones((2, 200))}, "vary in fewer than 1 directions"),
        (poisson, {"rate": np.zeros((2, 200))}, "200 of 200 draws of the posterior lie on the edge of the support"),
        (
            lambda data: numpyro.sample("rows", dist.Gamma(np.ones((2, 3))).to_event(2)),
            {"rows": np.where(np.arange(6).reshape(2, 3) == 4, 0.0, np.ones((2, 200, 2, 3)))},
            "in the first of them site 'rows'[1, 1] is -inf on the unconstrained scale",
        ),
        (lambda data: None, RATE, "the program has no latent site"),
        (
            lambda data: numpyro.sample("rate", dist.Normal(0, 1).expand([30]).to_event(1)),
            {"rate": np.ones((4, 100, 30))},
            "leave 200 for each half, and there are 30 unconstrained numbers, expected at least 300 draws (10 for "
            "each): NUTS(num_samples=150)",
        ),
    ],
)
def test_what_cannot_be_estimated_is_refused(model, draws, sentence, key):
    with pytest.raises(ValueError) as caught:
        bridge_sampling(key, model, SEEN, draws)
    assert sentence in str(caught.value) and "\n" not in str(caught.value)


def test_densities_that_are_no_numbers(key):
    """At draws of the posterior: refused. At some proposals: taken for zero, and said."""

    def broken(edge):
        def model(data):
            rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
            numpyro.factor("nan", jnp.where(rate > edge, jnp.nan, 0.0))

        return model

    rate = {"rate": np.random.default_rng(0).gamma(2.0, size=(2, 500))}
    said = r"the log density is not finite at .*; in the first of them site 'rate' is .* on the unconstrained scale\)"
    with pytest.raises(ValueError, match=said):
        bridge_sampling(key, broken(1.0), SEEN, rate)
    found = bridge_sampling(key, broken(rate["rate"].max() * 1.001), SEEN, rate)
    assert "the density is not a number at" in found.problems[0]
    assert abs(found.log_evidence) < 0.05


def test_the_key_is_checked():
    with pytest.raises(TypeError, match="key is 0, expected a typed key"):
        bridge_sampling(0, poisson, SEEN, RATE)


def test_a_site_of_one_value_has_dimension_zero(key):
    """A row with one outcome: its density at the draw is the evidence."""

    def sure(data):
        numpyro.sample("row", dist.Dirichlet(jnp.ones(1)))
        numpyro.factor("seen", data)

    found = bridge_sampling(key, sure, np.float64(-3.5), {"row": np.ones((2, 50, 1))})
    assert found.log_evidence == pytest.approx(-3.5) and found.standard_error == 0 and found.method == "exact"


def test_beta_by_stick_breaking_and_by_the_interval(key):
    """The same posterior as a simplex of two and as a number between 0 and 1: both are the beta function."""

    def two(data):
        probs = numpyro.sample("probs", dist.Dirichlet(jnp.array([0.1, 0.1])))
        numpyro.factor("seen", jnp.sum(data * jnp.log(probs)))

    def one(data):
        prob = numpyro.sample("prob", dist.Beta(0.1, 0.1))
        numpyro.factor("seen", data[0] * jnp.log(prob) + data[1] * jnp.log1p(-prob))

    data = np.array([4.0, 1.0])
    prob = np.random.default_rng(0).beta(4.1, 1.1, (CHAINS, DRAWS))
    truth = betaln(4.1, 1.1) - betaln(0.1, 0.1)
    for model, draws in ((two, {"probs": np.stack([prob, 1 - prob], -1)}), (one, {"prob": prob})):
        found = bridge_sampling(key, model, data, draws)
        assert abs(found.log_evidence - truth) <= 5 * found.standard_error < 0.5


def test_sticks_of_a_simplex_are_numpyros():
    """Of four sizes, each stick by its own logit: there and back."""
    value = np.array([[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.15, 0.05]], np.float32)
    sticks = unconstrain(transforms.StickBreakingTransform(), jnp.asarray(value))
    np.testing.assert_allclose(transforms.StickBreakingTransform()(sticks), value, rtol=1e-5)
