"""EVPI, EVPPI, EVSI and ENBS: closed forms of the literature, brute force, and what must hold in every model.

The examples are those of Raiffa and Schlaifer's kind: two normal arms, one beta treatment, two beta arms. Their numbers
were computed by other means (normal loss function; sums over beta-binomial data; quadrature).
"""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats

import bayes_mdp as bm
from bayes_mdp.decisions.information.site_information import _fit_ridge, _spline_columns
from bayes_mdp.decisions.policy_comparison import PolicyComparison
from bayes_mdp.decisions.policy_evaluation import PolicyValue
from bayes_mdp.decisions.verdict import Verdict
from bayes_mdp.information import discounted_population
from bayes_mdp.strategies import StrategyDraws

sample: Any = numpyro.sample  # its annotation knows no operators
stats: Any = scipy.stats  # its stubs mix up continuous and discrete laws
KEY = jax.random.key(0)
SD = {"t1": 1000.0, "t2": 1000.0}


def normals():
    return {
        "one": sample("t1", dist.Normal(100.0, 300.0)),
        "two": sample("t2", dist.Normal(0.0, 400.0)),
    }


def treatment():
    return {"treat": 100 * sample("p", dist.Beta(3.0, 7.0)) - 28, "none": 0.0}


def betas():
    p1, p2 = sample("p1", dist.Beta(2.0, 3.0)), sample("p2", dist.Beta(5.0, 6.0))
    return {"one": 1000 * p1, "two": 1000 * p2}


@pytest.fixture(scope="module")
def model():
    return {program.__name__: bm.strategies.decision_model(program) for program in (normals, treatment, betas)}


def is_exact(found, value):
    assert found.standing == "exact" and found.standard_error == 0
    assert found.value == pytest.approx(value, abs=1e-6)


def test_two_normal_arms(model):
    arms = model["normals"]
    is_exact(bm.information.evpi(KEY, arms), 153.447318)
    is_exact(bm.information.evppi(KEY, arms, ["t1"]), 76.270834)
    is_exact(bm.information.evppi(KEY, arms, ["t2"]), 114.537879)
    is_exact(bm.information.evppi(KEY, arms, ["t1", "t2"]), 153.447318)
    for n, both, first in (
        (1, 29.817124, 5.246302),
        (10, 105.131406, 41.847596),
        (100, 146.115572, 70.478439),
        (1000, 152.670477, 75.647248),
    ):
        is_exact(bm.information.evsi(KEY, arms, bm.information.Study({"t1": n, "t2": n}, SD)), both)
        is_exact(bm.information.evsi(KEY, arms, bm.information.Study({"t1": n}, {"t1": 1000.0})), first)
    found = bm.strategies.acceptability(StrategyDraws(("a", "b"), ("cost", "effect"), np.ones((2, 2, 2))), [1.0])
    assert "evpi" in found


def test_the_best_size_of_a_study(model):
    study = bm.information.Study({"t1": 1, "t2": 1}, SD)
    costs = bm.information.StudyEconomics(population=10_000, fixed_cost=50_000, cost_per_size=2 * 500)
    found = bm.information.net_benefit_of_sampling(KEY, model["normals"], study, range(60, 101), economics=costs)
    assert found.best_size == 82
    assert float(found.table["enbs"].max()) == pytest.approx(1_314_254.47, abs=0.005)
    assert "best of these: 82" in str(found)
    none = bm.information.net_benefit_of_sampling(
        KEY, model["normals"], study, [10.0], economics=bm.information.StudyEconomics(population=1, fixed_cost=1e6)
    )
    assert none.best_size == 0 and "none of these pays" in str(none)


def test_one_beta_treatment(model):
    is_exact(bm.information.evpi(KEY, model["treatment"]), 4.583035)
    known = (0.509091, 1.527273, 1.879720, 2.265734, 3.012384, 3.585333, 4.100841, 4.325164, 4.555501)
    for n, value in zip((1, 2, 3, 5, 10, 20, 50, 100, 1000), known, strict=True):
        is_exact(bm.information.evsi(KEY, model["treatment"], bm.information.Study({"p": n})), value)


def test_two_beta_arms(model):
    found = bm.information.evpi(KEY, model["betas"])
    is_exact(found, 75.524476)
    assert found.numerical_error < 1e-9 and "quadrature" in found.reason
    is_exact(bm.information.evppi(KEY, model["betas"], ["p1"]), 59.548839)
    is_exact(bm.information.evppi(KEY, model["betas"], ["p2"]), 34.712394)
    for n, first, both in ((1, 18.181818, 18.181818), (5, 37.662338, 43.448218), (20, 51.236589, 62.645902)):
        is_exact(bm.information.evsi(KEY, model["betas"], bm.information.Study({"p1": n})), first)
        is_exact(bm.information.evsi(KEY, model["betas"], bm.information.Study({"p1": n, "p2": n})), both)


def three_arms():
    p = sample("p", dist.Dirichlet(np.array([2.0, 1.0, 3.0])))
    g = sample("g", dist.Gamma(2.0, 1.0))
    m = sample("m", dist.Normal(1.0, 1.0))
    return {"a": p[0] * g * 3, "b": 3 * p[1] + 0.8 * m, "c": 0.9 + 0.0 * m, "d": g * m * p[2]}


def numpy_gain(benefit_of, draw, number=400_000):
    """E max - max E by plain draws, with its standard error."""
    rng = np.random.default_rng(5)
    benefit = benefit_of(*draw(rng, number))
    gain = benefit.max(1) - benefit[:, benefit.mean(0).argmax()]
    return gain.mean(), gain.std() / np.sqrt(number)


def arms(p, g, m):
    return np.stack([p[:, 0] * g * 3, 3 * p[:, 1] + 0.8 * m, np.full(len(p), 0.9), g * m * p[:, 2]], axis=1)


def test_sampled_numbers_by_brute_force():
    """False alarm below 1e-6 each: 6 standard errors of both; a fault of 1 % of the EVPI would be seen."""
    belief = bm.strategies.decision_model(three_arms)
    mean_p, means = np.array([2.0, 1.0, 3.0]) / 6, {"g": 2.0, "m": 1.0}

    def rows(n):
        return np.broadcast_to(mean_p, (n, 3))

    cases = {
        ("p", "g", "m"): lambda r, n: (r.dirichlet([2.0, 1.0, 3.0], n), r.gamma(2.0, 1.0, n), r.normal(1.0, 1.0, n)),
        ("p",): lambda r, n: (r.dirichlet([2.0, 1.0, 3.0], n), np.full(n, 2.0), np.full(n, 1.0)),
        ("g", "m"): lambda r, n: (rows(n), r.gamma(2.0, 1.0, n), r.normal(1.0, 1.0, n)),
    }
    for sites, draw in cases.items():
        found = bm.information.evppi(KEY, belief, sites)
        value, error = numpy_gain(arms, draw)
        assert abs(found.value - value) < 6 * np.hypot(error, found.standard_error) + found.numerical_error, sites
        assert found.standing in ("exact", "unbiased")
    # Data of the row and the rate: posterior means by conjugate updates.
    found = bm.information.evsi(KEY, belief, bm.information.Study({"p": 7, "g": 2.5}))

    def data(r, n):
        p, g = r.dirichlet([2.0, 1.0, 3.0], n), r.gamma(2.0, 1.0, n)
        seen = np.array([r.multinomial(7, row) for row in p])
        events = r.poisson(2.5 * g)
        return (np.array([2.0, 1.0, 3.0]) + seen) / 13, (2 + events) / 3.5, np.full(n, means["m"])

    value, error = numpy_gain(arms, data, 100_000)
    assert abs(found.value - value) < 6 * np.hypot(error, found.standard_error) + 1e-9
    assert found.standing == "exact" and "data sets" in found.reason


def curved():
    """Not of degree one in r or s: nested."""
    r, s = sample("r", dist.Gamma(8.0, 4.0)), sample("s", dist.Normal(0.0, 0.5))
    u = sample("u", dist.Beta(4.0, 2.0))
    return {"a": jnp.exp(-r) * 8 * u + s**2, "b": 1.2 - 0.3 * jnp.exp(s), "c": 0.4 * r * u}


def curved_benefit(r, s, u):
    return np.stack([np.exp(-r) * 8 * u + s**2, 1.2 - 0.3 * np.exp(s), 0.4 * r * u], axis=-1)


def test_nested_estimates_by_quadrature():
    belief = bm.strategies.decision_model(curved)
    q = (np.arange(2000) + 0.5) / 2000
    r, s = stats.gamma(8, scale=0.25).ppf(q), stats.norm(0, 0.5).ppf(q)
    # Given r: u at its mean 2/3, s averaged; given s likewise.
    mean_s2, mean_es = 0.25, np.exp(0.125)
    given_r = np.stack([np.exp(-r) * 8 * 2 / 3 + mean_s2, np.full(2000, 1.2 - 0.3 * mean_es), 0.4 * r * 2 / 3], axis=1)
    er = np.exp(8 * np.log(4 / 5))
    given_s = np.stack([er * 16 / 3 + s**2, 1.2 - 0.3 * np.exp(s), np.full(2000, 0.4 * 2 * 2 / 3)], axis=1)
    for name, given in (("r", given_r), ("s", given_s)):
        wanted = given.max(1).mean() - given.mean(0).max()
        found = bm.information.evppi(KEY, belief, [name], num_draws=1 << 12, num_inner=256)
        assert found.standing == "estimate" and "inner" in found.reason
        assert abs(found.value - wanted) < 6 * found.standard_error + 2e-3 * wanted, name
    # A study of the rate r: the posterior after x events in 3 years is Gamma(8 + x, 7).
    x = np.arange(120)
    chance = stats.nbinom(8, 4 / 7).pmf(x)
    after = np.stack(
        [
            (7 / 8) ** (8 + x) * 16 / 3 + mean_s2,
            np.full(120, 1.2 - 0.3 * mean_es),
            0.4 * (8 + x) / 7 * 2 / 3,
        ],
        axis=1,
    )
    wanted = chance @ after.max(1) - (chance @ after).max()
    found = bm.information.evsi(KEY, belief, bm.information.Study({"r": 3.0}), num_draws=1 << 12, num_inner=256)
    assert abs(found.value - wanted) < 6 * found.standard_error + 5e-3 * wanted


def prices():
    """Affine in a, b and c together, and not of degree one in r, which is not learned."""
    sample: Any = numpyro.sample
    r, a = sample("r", dist.Gamma(8.0, 4.0)), sample("a", dist.Normal(1.0, 0.5))
    b, c = sample("b", dist.Normal(np.zeros(2), 0.4)), sample("c", dist.Gamma(4.0, 5.0))
    return {"first": a * jnp.exp(-r) - 0.1, "second": b[0] * r**2 / 20, "third": c * jnp.exp(-r) - 0.06, "none": 0.0}


MEAN_EXP, MEAN_SQUARE = (4 / 5) ** 8, (8 / 16 + 2**2) / 20  # E exp(-r), E r^2 / 20


def test_averages_that_are_affine():
    """One number: closed form. More: points. Both against sums over quantiles to 9 errors: false alarm 1e-7."""
    belief = bm.strategies.decision_model(prices)
    q = (np.arange(20_000) + 0.5) / 20_000
    a, c = stats.norm(1, 0.5).ppf(q), stats.gamma(4, scale=0.2).ppf(q)
    first, third = a * MEAN_EXP - 0.1, c * MEAN_EXP - 0.06
    now = {"first": MEAN_EXP - 0.1, "second": 0.0, "third": 0.8 * MEAN_EXP - 0.06, "none": 0.0}
    for name, values, learned in (("a", first, "first"), ("c", third, "third")):
        others = max(value for strategy, value in now.items() if strategy != learned)
        found = bm.information.evppi(KEY, belief, [name], num_draws=1 << 12)
        assert found.reason.startswith("closed form of lines") and found.best == max(now, key=lambda x: now[x])
        wanted = np.maximum(values, others).mean() - max(now.values())
        assert abs(found.value - wanted) < 9 * found.standard_error + 1e-4 * wanted, name
    # a and b: E max of two normals and two known numbers, by sums over a and a known law of b[0].
    sd = 0.4 * MEAN_SQUARE
    floor = np.maximum(first, max(now["third"], 0.0))
    wanted = (floor + sd * stats.norm.pdf(floor / sd) - floor * stats.norm.sf(floor / sd)).mean() - max(now.values())
    found = bm.information.evppi(KEY, belief, ["a", "b"], num_draws=1 << 14)
    assert "whose slopes are averages" in found.reason and "not decided" not in found.reason
    assert abs(found.value - wanted) < 9 * found.standard_error + 1e-4 * wanted
    # A study of a: its posterior mean is normal.
    after = 0.5 / np.sqrt(1 + 2.0**2 / (9 * 0.5**2))
    wanted = np.maximum((1 + after * stats.norm.ppf(q)) * MEAN_EXP - 0.1, max(now["third"], 0)).mean()
    found = bm.information.evsi(KEY, belief, bm.information.Study({"a": 9}, sd={"a": 2.0}), num_draws=1 << 12)
    assert found.reason.startswith("closed form of lines")
    assert abs(found.value - (wanted - max(now.values()))) < 9 * found.standard_error + 1e-4 * wanted


def test_products_of_what_is_learned_are_no_planes():
    def program():
        r, a = numpyro.sample("r", dist.Gamma(8.0, 4.0)), numpyro.sample("a", dist.Normal(1.0, 0.5))
        return {"go": a * numpyro.sample("b", dist.Normal(1.0, 0.5)) - jnp.exp(r) / 9, "stay": 0.0}

    belief = bm.strategies.decision_model(program)
    found = bm.information.evppi(KEY, belief, ["a", "b"], num_draws=1 << 12, num_inner=64)
    assert "inner ones each" in found.reason
    a, b = (1 + 0.5 * np.random.default_rng(i).standard_normal(400_000) for i in (0, 1))
    gap = a * b - (4 / 3) ** 8 / 9  # E exp(r) of Gamma(8, 4)
    wanted, error = np.maximum(gap, 0).mean() - max(gap.mean(), 0), gap.std() / np.sqrt(len(gap))
    assert abs(found.value - wanted) < 9 * np.hypot(found.standard_error, error)


def random_model(seed):
    """A program of degree one in each of its sites, its sites, and a study."""
    rng = np.random.default_rng(seed)
    kinds = [str(x) for x in rng.choice(["Beta", "Gamma", "Normal", "Dirichlet"], rng.integers(2, 4))]
    number = int(rng.integers(2, 5))
    a, b = rng.uniform(0.5, 5, size=(2, len(kinds)))
    linear, products = rng.normal(size=(number, len(kinds))), rng.normal(size=number)
    concentration = rng.uniform(0.5, 3, 3)

    def program(shift=0.0, scale=1.0, extra=False, order=None):
        x = []
        for i, kind in enumerate(kinds):
            law = {
                "Beta": lambda i=i: dist.Beta(a[i], b[i]),
                "Gamma": lambda i=i: dist.Gamma(a[i], b[i]),
                "Normal": lambda i=i: dist.Normal(a[i], b[i]),
                "Dirichlet": lambda: dist.Dirichlet(concentration),
            }[kind]()
            site = sample(f"x{i}", law)
            x.append(site[0] - 0.5 * site[2] if kind == "Dirichlet" else site)
        sample("unused", dist.Normal(0.0, 1.0))
        values = [
            sum(linear[d, i] * x[i] for i in range(len(kinds))) + products[d] * x[0] * x[1] for d in range(number)
        ]
        found = {f"d{d}": scale * value + shift for d, value in enumerate(values)}
        if extra:
            found["worse"] = found["d0"] - 1.0
        return found if order is None else {name: found[name] for name in order(list(found))}

    def study(n):
        sd = {"x0": 1.3} if kinds[0] == "Normal" else {}
        return bm.information.Study({"x0": n}, sd)

    return program, [f"x{i}" for i in range(len(kinds))], study


def error_of(*found):
    """What may lie between estimates; t with 15 degrees of freedom passes 9 with probability 1e-7.

    Where no point found a better strategy there is no standard error: the value is what the points cannot see.
    """
    unseen = 1e-5 * any("nowhere better" in x.reason for x in found)
    return (
        9 * np.hypot.reduce([x.standard_error for x in found]) + sum(x.numerical_error for x in found) + 1e-9 + unseen
    )


@pytest.mark.some(8)
@pytest.mark.parametrize("seed", range(100))
def test_what_holds_in_every_model(seed):
    program, sites, study = random_model(seed)
    belief = bm.strategies.decision_model(program)
    settings: dict[str, Any] = {"num_draws": 1 << 12}
    everything = bm.information.evpi(KEY, belief, **settings)
    # More sites are worth more; all sites are everything.
    nested = [bm.information.evppi(KEY, belief, sites[:k], **settings) for k in range(len(sites) + 1)]
    assert nested[0].value == 0
    for less, more in itertools.pairwise(nested):
        assert less.value <= more.value + error_of(less, more)
    assert abs(nested[-1].value - everything.value) <= error_of(nested[-1], everything)
    assert bm.information.evppi(KEY, belief, ["unused"], **settings).value == 0
    # Larger studies are worth more, and no more than to know the site.
    studies = [bm.information.evsi(KEY, belief, study(n), **settings) for n in (0, 1, 2, 5, 20)]
    assert studies[0].value == pytest.approx(0, abs=1e-9)
    for less, more in zip(studies, [*studies[1:], nested[1]], strict=True):
        assert less.value <= more.value + error_of(less, more)
    large = bm.information.evsi(KEY, belief, study(100_000), **settings)
    assert abs(large.value - nested[1].value) <= error_of(large, nested[1]) + 0.01 * nested[1].value + 1e-6
    # Of the same problem in other words.
    same = {
        "shifted": (program, {"shift": 7.0}, 1.0),
        "scaled": (program, {"scale": 3.0}, 3.0),
        "reordered": (program, {"order": lambda names: names[::-1]}, 1.0),
        "a dominated strategy": (program, {"extra": True}, 1.0),
    }
    for name, (again, how, factor) in same.items():
        other = bm.strategies.decision_model(lambda again=again, how=how: again(**how))
        found = bm.information.evppi(KEY, other, sites[:1], **settings)
        assert abs(found.value - factor * nested[1].value) <= factor * error_of(found, nested[1]) + 1e-9, name
    alone = bm.information.evpi(KEY, belief.select(["d0"]), **settings)
    assert alone.value == 0 and alone.reason == "there is one strategy"


def test_draws_alone():
    """Draws that somebody else made: the same numbers, and the error is stated."""
    draws = bm.strategies.decision_model(betas).sample(KEY, 40_000)
    found = bm.information.evpi(KEY, draws)
    assert abs(found.value - 75.524476) < 5.5 * found.standard_error and found.standing == "unbiased"
    few = bm.information.evpi(
        KEY, StrategyDraws(("a", "b"), ("value",), np.random.default_rng(0).normal(size=(30, 2, 1)))
    )
    assert few.standing == "estimate" and "may be too low" in few.reason


def test_the_ridge_is_that_of_scikit_learn():
    """Weights and fits, for targets that are in need of a small and of a large weight; some columns are copies."""
    linear_model = pytest.importorskip("sklearn.linear_model", reason="compares with scikit-learn")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 60))
    x = np.concatenate([x, x[:, :3]], 1)
    x -= x.mean(0)
    strong, weak = x[:, :2] + 0.1 * rng.normal(size=(200, 2)), rng.normal(size=(200, 2))
    for y, fit in zip((strong, weak), _fit_ridge(x, (strong, weak)), strict=True):
        scale = y.std(0)
        model = linear_model.RidgeCV(np.logspace(-6, 3, 10)).fit(x, y / scale)
        np.testing.assert_allclose(fit, model.predict(x) * scale, rtol=0, atol=1e-8)


@pytest.mark.parametrize("elements", [1, 2, 5, 6])
def test_the_splines_are_those_of_scikit_learn(elements):
    """Sites that vary freely, in two values, hardly ever, and not at all; products of pairs up to four."""
    preprocessing = pytest.importorskip("sklearn.preprocessing", reason="compares with scikit-learn")
    rng = np.random.default_rng(0)
    kinds = [
        rng.normal(size=300),
        rng.integers(2, size=300),
        np.arange(300) < 12,
        rng.gamma(0.1, size=300),
        np.ones(300),
    ]
    x = np.stack(kinds[:elements], -1).astype(float)
    varying = x[:, x.std(0) > 0]
    columns = preprocessing.SplineTransformer(6, knots="quantile", include_bias=False).fit_transform(varying)
    if 1 < varying.shape[1] <= 4:
        columns = preprocessing.PolynomialFeatures(2, interaction_only=True, include_bias=False).fit_transform(columns)
    expected = preprocessing.StandardScaler().fit_transform(columns)
    np.testing.assert_allclose(_spline_columns(x), expected, rtol=1e-9, atol=1e-9)


def test_regression():
    draws = bm.strategies.decision_model(betas).sample(KEY, 4000)
    found = bm.information.evppi(KEY, draws, ["p1"])
    assert abs(found.value - 59.548839) < 6 * found.standard_error + 1.0
    assert found.standing == "estimate" and found.useless is not None and 0 <= found.useless < 5
    assert "random order" in str(found)
    both = bm.information.evppi(KEY, draws, ["p1", "p2"])
    assert abs(both.value - 75.524476) < 6 * both.standard_error + 1.0


def hierarchy():
    top = sample("top", dist.Normal(0.0, 1.0))
    low = sample("low", dist.Normal(top, 1.0))
    return {"act": low, "wait": 0.1}


def test_sites_that_depend_on_others_are_regressed():
    belief = bm.strategies.decision_model(hierarchy)
    # low given top is normal with mean top: E max(top, .1) - .1; low alone has variance 2.
    for name, sd in (("top", 1.0), ("low", np.sqrt(2.0))):
        found = bm.information.evppi(KEY, belief, [name], num_draws=8000)
        wanted = sd * stats.norm.pdf(0.1 / sd) - 0.1 * stats.norm.sf(0.1 / sd)
        assert "regressed" in found.reason
        assert abs(found.value - wanted) < 6 * found.standard_error + 0.01
    both = bm.information.evppi(KEY, belief, ["top", "low"])
    assert both.standing == "unbiased" and "Sobol" in both.reason
    assert abs(both.value - wanted) < 9 * both.standard_error


def by_nuts():
    p = sample("p", dist.Beta(2.0, 2.0))
    sample("y", dist.Binomial(20, p**2), obs=5)
    q = sample("q", dist.Beta(3.0, 4.0))
    return {"a": p, "b": 1.1 * q}


def test_a_site_without_closed_form_is_averaged_over():
    belief = bm.strategies.decision_model(by_nuts, key=KEY, num_warmup=300, num_samples=1000, num_chains=2)
    assert not belief.exact and "p []: drawn by NUTS, given y" in str(belief)
    grid = (np.arange(4000) + 0.5) / 4000
    weight = stats.beta(2, 2).pdf(grid) * stats.binom(20, grid**2).pmf(5)
    mean_p = weight @ grid / weight.sum()
    q = stats.beta(3, 4).ppf(grid)
    wanted = np.maximum(mean_p, 1.1 * q).mean() - max(mean_p, 1.1 * 3 / 7)
    found = bm.information.evppi(KEY, belief, ["q"], num_draws=1 << 12, num_inner=512)
    assert abs(found.value - wanted) < 9 * found.standard_error + 0.003
    assert found.standing == "estimate"
    with pytest.raises(ValueError, match="'p', which is no site of closed form, expected exact sites"):
        bm.information.evsi(KEY, belief, bm.information.Study({"p": 10}))
    with pytest.raises(ValueError, match="key is None, expected a key: site 'p' has no closed form"):
        bm.strategies.decision_model(by_nuts)


@pytest.mark.slow
def test_policies_in_common_draws_are_a_decision_set():
    space = bm.StateActionSpace(2, 2)
    posterior = bm.infer(KEY, bm.models.dirichlet_normal_gamma(), space=space)
    policies = {"first": [0, 0], "second": [1, 1]}
    comparison = bm.compare_policies(KEY, posterior, policies, bm.Discounted(0.5), num_draws=200)
    found = bm.information.evpi(KEY, comparison)
    draws = np.stack([comparison.values[name].draws for name in policies], axis=1)
    assert found.value == pytest.approx(draws.max(1).mean() - draws.mean(0).max())
    assert found.strategies == ("first", "second")


def test_population():
    assert discounted_population(100, 3, 0.1) == pytest.approx(100 * (1 + 1 / 1.1 + 1 / 1.21))


def curved_names():
    return {"a": sample("rate_hd", dist.Normal(0.0, 1.0)), "b": 0.0}


def inverse():
    return {"a": 1 / sample("x", dist.Normal(0.0, 1.0))}


def test_wrong_input(model):
    arms, one = model["normals"], model["treatment"]
    for call, says in (
        (
            lambda: bm.information.evppi(KEY, arms, ["rate of P"]),
            "sites has 'rate of P', expected sites of the program: 't1', 't2'",
        ),
        (
            lambda: bm.information.evppi(KEY, bm.strategies.decision_model(curved_names), ["rate_HD"]),
            "did you mean 'rate_hd'",
        ),
        (lambda: bm.information.evpi(KEY, arms, 1000.0), "wtp is 1000.0 without effects"),
        (
            lambda: bm.information.evsi(KEY, arms, bm.information.Study({"t1": 3})),
            r"sd\['t1'\] is missing, expected the sd of one measurement",
        ),
        (
            lambda: bm.information.evsi(KEY, one, bm.information.Study({"p": 3}, {"p": 1.0})),
            r"sd\['p'\] is 1.0, expected none",
        ),
        (
            lambda: bm.information.evsi(KEY, one, bm.information.Study({"p": 2.5})),
            r"observations\['p'\] is 2.5, expected an integer",
        ),
        (
            lambda: bm.information.evsi(KEY, one, bm.information.Study({"p": [1, 2]})),
            r"has shape \(2,\), expected a number, or shape \(\)",
        ),
        (lambda: bm.information.Study({"p": -1}), r"observations\['p'\] is -1"),
        (lambda: bm.information.Study({"p": 1}, {"q": 1.0}), "sd has 'q', expected sites of observations"),
        (lambda: arms.select(["one", "three"]), "strategies has 'three'"),
        (lambda: arms.select([]), "strategies is empty"),
        (lambda: arms.at({"t1": [1.0, 2.0]}), r"values\['t1'\] has shape \(2,\)"),
        (lambda: arms.at({"t": 1.0}), "values has 't'"),
        (
            lambda: bm.information.net_benefit_of_sampling(
                KEY, one, bm.information.Study({"p": 1}), [], economics=bm.information.StudyEconomics(population=1)
            ),
            "sizes is",
        ),
        (
            lambda: bm.information.net_benefit_of_sampling(
                KEY, one, bm.information.Study({"p": 1}), [0], economics=bm.information.StudyEconomics(population=1)
            ),
            r"sizes\[0\] is 0",
        ),
        (
            lambda: bm.strategies.decision_model(lambda: {"a": 1 / sample("x", dist.Normal(0.0, 1.0))}).at({"x": 0.0}),
            "is inf",
        ),
    ):
        with pytest.raises(ValueError, match=says):
            call()
    wrong: Any = "model"
    for bad in (
        lambda: bm.information.Study({}),
        lambda: bm.information.evpi(KEY, wrong),
        lambda: bm.information.evsi(KEY, arms, wrong),
    ):
        with pytest.raises(TypeError):
            bad()


def test_a_curved_number_is_integrated_and_says_how_well():
    """One site of higher degree: a quadrature with kinks, against a sum over 10^6 quantiles."""

    def program():
        r = sample("r", dist.Gamma(3.0, 2.0))
        return {"a": jnp.exp(-r), "b": 0.3 * r, "c": 0.4}

    found = bm.information.evpi(KEY, bm.strategies.decision_model(program))
    r = stats.gamma(3, scale=0.5).ppf((np.arange(10**6) + 0.5) / 10**6)
    benefit = np.stack([np.exp(-r), 0.3 * r, np.full(10**6, 0.4)], axis=1)
    wanted = benefit.max(1).mean() - benefit.mean(0).max()
    assert found.value == pytest.approx(wanted, rel=1e-5)
    assert found.standing in ("exact", "estimate") and found.standard_error == 0
    assert abs(found.value - wanted) <= found.numerical_error + 1e-5 * wanted
    assert (found.standing == "exact") == (found.numerical_error <= 1e-6 * found.value)


def test_many_data_sets_beside_a_quadrature_are_points():
    """200,000 data sets times 8,192 nodes are not tried."""

    def program():
        p, q = sample("p", dist.Beta(2.0, 2.0)), sample("q", dist.Beta(2.0, 2.0))
        x, y = sample("x", dist.Normal(0.4, 0.2)), sample("y", dist.Normal(0.5, 0.2))
        return {"a": p * x, "b": q * y, "c": 0.25}

    belief = bm.strategies.decision_model(program)
    study = bm.information.Study({"p": 100, "q": 100, "x": 4, "y": 4}, {"x": 1.0, "y": 1.0})
    found = bm.information.evsi(KEY, belief, study, num_draws=1 << 12)
    assert found.standing == "unbiased" and "Sobol" in found.reason
    assert found.value <= bm.information.evpi(KEY, belief, num_draws=1 << 12).value


def test_a_printed_number_says_what_it_counts():
    """Of a decision model one decision; of policies one start of what the objective sums up, or one step."""
    values = np.array([[[1.0], [0.0]], [[0.0], [4.0]]])
    draws = bm.strategies.StrategyDraws(("a", "b"), ("net benefit",), values)
    assert "\n  in the unit of the net benefit, for one decision\n" in str(bm.information.evpi(KEY, draws))
    units = [
        (bm.Discounted(0.9), "per start of a process, in units of the value (discounted sum of rewards)"),
        (bm.Episodic(2), "per start of an episode, in units of the value (sum of rewards of an episode)"),
        (bm.FirstExit(), "per start of an episode, in units of the value (sum of rewards until the end)"),
        (bm.AverageReward(), "per step, in units of the reward"),
    ]
    for objective, unit in units:
        each = {
            name: PolicyValue(x[:, 0], 0.0, 1.0, (0.0, 1.0), 0.0, np.ones(1), False, None, objective)
            for name, x in (("a", values[:, 0]), ("b", values[:, 1]))
        }
        compared = PolicyComparison(each, {"a": 0.5, "b": 0.5}, Verdict((), ()))
        found = bm.information.evpi(KEY, compared)
        assert found.value == 0.5 and f"\n  {unit}\n" in str(found)
