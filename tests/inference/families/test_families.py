# pyright: reportArgumentType=false
"""Conjugate families against numerical integration of prior times likelihood, to 1e-9 in float64."""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, stats

import bayes_mdp.inference.families.family as family_module
from bayes_mdp.inference.families.bernoulli import BetaBelief
from bayes_mdp.inference.families.binomial import BetaBinomialBelief
from bayes_mdp.inference.families.categorical import DirichletCategoricalBelief
from bayes_mdp.inference.families.exponential import GammaExponentialBelief
from bayes_mdp.inference.families.family import RewardBelief, check_conjugacy, register, sum_terms
from bayes_mdp.inference.families.geometric import BetaGeometricBelief
from bayes_mdp.inference.families.log_normal import LogNormalBelief, LogNormalGammaBelief
from bayes_mdp.inference.families.normal import GammaPrecisionBelief, NormalBelief, NormalGammaBelief
from bayes_mdp.inference.families.poisson import GammaBelief

REAL = np.array([0.7, -1.2, 3.1, 0.4, 0.9])
BINARY = np.array([1.0, 0.0, 1.0, 1.0])
COUNTS = np.array([2.0, 0.0, 5.0, 1.0])


def _statistics(rewards):
    return np.array([len(rewards), rewards.mean(), ((rewards - rewards.mean()) ** 2).sum()])


def _line(density, low, high):
    """Evidence, mean and variance by adaptive quadrature of an unnormalised density."""
    moments = [
        integrate.quad(lambda x, k=k: x**k * density(x), low, high, epsabs=0, epsrel=1e-12, limit=400)[0]
        for k in range(3)
    ]
    mean = moments[1] / moments[0]
    return np.log(moments[0]), mean, moments[2] / moments[0] - mean**2


def _normal_gamma():
    belief = NormalGammaBelief(*np.array([0.5, 0.8, 2.5, 1.5]))
    log_tau = np.linspace(-9, 5, 1501)[:, None]
    z = np.linspace(-12, 12, 1201)
    tau = np.exp(log_tau)
    spread = (tau * (belief.pseudo_count + len(REAL))) ** -0.5
    mu = (belief.pseudo_count * belief.loc + REAL.sum()) / (belief.pseudo_count + len(REAL)) + spread * z
    log = stats.gamma.logpdf(tau, belief.concentration, scale=1 / belief.rate) + log_tau + np.log(spread)
    log = log + stats.norm.logpdf(mu, belief.loc, (belief.pseudo_count * tau) ** -0.5)
    log = log + sum(stats.norm.logpdf(r, mu, tau**-0.5) for r in REAL)
    weight = np.exp(log) * np.diff(z)[0] * np.diff(log_tau[:, 0])[0]
    mean = (weight * mu).sum() / weight.sum()
    return belief, REAL, (np.log(weight.sum()), mean, (weight * (mu - mean) ** 2).sum() / weight.sum())


def _normal():
    belief = NormalBelief(*np.array([0.5, 1.7, 0.6]))

    def density(m):
        return np.exp(stats.norm.logpdf(m, 0.5, 1.7) + stats.norm.logpdf(REAL, m, 0.6).sum())

    return belief, REAL, _line(density, -1.5, 3.0)


def _beta():
    belief = BetaBelief(*np.array([1.3, 2.2]))
    ones = BINARY.sum()
    return (
        belief,
        BINARY,
        _line(lambda p: stats.beta.pdf(p, 1.3, 2.2) * p**ones * (1 - p) ** (len(BINARY) - ones), 0.0, 1.0),
    )


def _gamma():
    belief = GammaBelief(*np.array([1.5, 0.7]))
    return (
        belief,
        COUNTS,
        _line(
            lambda rate: stats.gamma.pdf(rate, 1.5, scale=1 / 0.7) * stats.poisson.pmf(COUNTS, rate).prod(), 0.0, 40.0
        ),
    )


@pytest.mark.parametrize("build", [_normal_gamma, _normal, _beta, _gamma])
def test_evidence_and_posterior_by_quadrature(x64, build):
    belief, rewards, (log_evidence, mean, variance) = build()
    posterior = belief.after(_statistics(rewards))
    ours = belief.log_marginal(_statistics(rewards)) + belief.log_constant(rewards).sum()
    np.testing.assert_allclose(ours, log_evidence, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(posterior.mean(), mean, rtol=1e-9)
    np.testing.assert_allclose(posterior.variance(), variance, rtol=1e-8)


@pytest.mark.parametrize("build", [_normal_gamma, _normal, _beta, _gamma])
def test_no_data_teach_nothing(x64, build):
    belief, _, _ = build()
    nothing = np.zeros(3)
    assert float(belief.log_marginal(nothing)) == 0.0
    for one, two in zip(jax.tree.leaves(belief.after(nothing)), jax.tree.leaves(belief), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-15)


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("belief", "moments"),
    [
        (NormalGammaBelief(*np.array([0.5, 0.8, 6.0, 1.5])), ("mean", "precision")),
        (BetaBelief(*np.array([1.3, 2.2])), ("probs",)),
        (GammaBelief(*np.array([1.5, 0.7])), ("rate",)),
        (NormalBelief(*np.array([0.5, 1.7, 0.6])), ("mean",)),
    ],
)
def test_draws_have_the_moments_of_the_belief(belief, moments):
    """False alarm: |z| > 6 in two statistics, below 1e-8. Catches 3 % of a standard deviation."""
    number = 40_000
    batch = jax.tree.map(lambda x: np.full(number, x, np.float32), belief)
    drawn = jax.jit(type(belief).sample)(batch, jax.random.key(1))
    assert belief.parameters == moments and len(drawn) == len(moments)
    mean = np.asarray(drawn[0], float)
    variance = float(belief.variance())
    squares = (mean - float(belief.mean())) ** 2
    assert abs(mean.mean() - float(belief.mean())) < 6 * np.sqrt(variance / number)
    assert abs(squares.mean() - variance) < 6 * squares.std() / np.sqrt(number)


def test_evidence_does_not_cancel_at_huge_concentration(x64):
    """gammaln(a + n) - gammaln(a) would be 0 at a = 1e17; the truth is n log a."""
    rows = BetaBelief(np.array(1e17), np.array(1e17))
    np.testing.assert_allclose(rows.log_marginal(np.array([4.0, 0.5, 1.0])), -4 * np.log(2.0), rtol=1e-12)


@pytest.mark.parametrize(
    ("belief", "reward", "sentence"),
    [
        (NormalBelief(0.0, 1.0, 1.0), np.inf, r"x\[1\] is inf, expected a finite number \(the reward law is Normal\)"),
        (BetaBelief(1.0, 1.0), 0.5, r"x\[1\] is 0.5, expected 0 or 1 \(the reward law is BernoulliProbs\)"),
        (GammaBelief(1.0, 1.0), 0.5, r"x\[1\] is 0.5, expected 0, 1, 2, ... \(the reward law is Poisson\)"),
        (GammaBelief(1.0, 1.0), np.inf, r"x\[1\] is inf, expected 0, 1, 2, ..."),
    ],
)
def test_rewards_that_the_law_cannot_give_are_refused(belief, reward, sentence):
    belief.support().check("x", np.array([0.0, 1.0]))
    with pytest.raises(ValueError, match=sentence):
        belief.support().check("x", np.array([1.0, reward]))


@pytest.mark.parametrize(
    ("belief", "sentence"),
    [
        (
            NormalGammaBelief(np.zeros(2), np.array([1.0, 0.0]), np.ones(2), np.ones(2)),
            r"reward.pseudo_count\[1\] is 0",
        ),
        (NormalBelief(np.array([np.nan]), np.ones(1), np.ones(1)), r"reward.loc\[0\] is nan"),
        (GammaBelief(np.ones(1), np.array([-1.0])), r"reward.rate\[0\] is -1"),
    ],
)
def test_what_is_no_belief_is_refused(belief, sentence):
    with pytest.raises(ValueError, match=sentence):
        belief.check("reward")


FAMILIES = {
    NormalBelief: (lambda a, _: (NormalBelief(a, a, a), (-a,)), lambda a, _: stats.norm(-a, a)),
    NormalGammaBelief: (lambda a, b: (NormalGammaBelief(a, a, a, a), (a, b)), lambda a, b: stats.norm(a, b**-0.5)),
    GammaPrecisionBelief: (lambda a, _: (GammaPrecisionBelief(a, a), (a,)), lambda a, _: stats.norm(0, a**-0.5)),
    LogNormalBelief: (lambda a, b: (LogNormalBelief(a, a, a), (b,)), lambda a, b: stats.lognorm(a, scale=np.exp(b))),
    LogNormalGammaBelief: (
        lambda a, b: (LogNormalGammaBelief(a, a, a, a), (a, b)),
        lambda a, b: stats.lognorm(b**-0.5, scale=np.exp(a)),
    ),
    BetaBelief: (lambda _, b: (BetaBelief(b, b), (b / 3,)), lambda _, b: stats.bernoulli(1 - b / 3)),
    BetaBinomialBelief: (
        lambda a, b: (BetaBinomialBelief(a, a, np.floor(9 * a)), (b / 3,)),
        lambda a, b: stats.binom(np.floor(9 * a), b / 3),
    ),
    BetaGeometricBelief: (lambda a, b: (BetaGeometricBelief(a, a), (b / 3,)), lambda _, b: stats.geom(b / 3, loc=-1)),
    GammaBelief: (lambda a, _: (GammaBelief(a, a), (40 * a,)), lambda a, _: stats.poisson(40 * a)),
    GammaExponentialBelief: (
        lambda a, _: (GammaExponentialBelief(a, a), (a,)),
        lambda a, _: stats.expon(scale=1 / a),
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_rewards_are_quantiles_of_their_law(family):
    rng = np.random.default_rng(0)
    a, b, uniform = rng.uniform(0.05, 2.0, 500), rng.uniform(0.05, 2.9, 500), rng.uniform(1e-9, 1 - 1e-9, 500)
    make, law = FAMILIES[family]
    belief, drawn = make(a, b)
    found, wanted = belief.quantile(drawn, uniform), law(a, b).ppf(uniform)
    if family is BetaBelief:  # it is one below p, not above 1 - p
        found = 1 - found
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


def test_values_of_a_categorical_reward():
    probs = np.array([[0.2, 0.0, 0.5, 0.3, 0.0]] * 6)
    uniform = np.array([1e-16, 0.19999, 0.20001, 0.69999, 0.70001, 1 - 1e-16])
    found = DirichletCategoricalBelief(probs).quantile((probs,), uniform)
    assert found.tolist() == [0, 0, 2, 2, 3, 3]
    density = sum_terms(DirichletCategoricalBelief(probs).log_density(found, (probs,)))
    np.testing.assert_allclose(np.exp(density), [0.2, 0.2, 0.5, 0.5, 0.3, 0.3])


def test_extreme_parameters_have_quantiles():
    """Probabilities of zero and one, no trial, a rate beyond whole numbers: finite, and in the support."""
    uniform = np.array([2.0**-54, 0.5, 1 - 2.0**-53])
    for p, count in ((0.0, 3.0), (1.0, 3.0), (0.5, 0.0), (1e-300, 1e5), (1 - 1e-16, 1e5)):
        probs, total = np.full(3, p), np.full(3, count)
        found = BetaBinomialBelief(np.ones(3), np.ones(3), total).quantile((probs,), uniform)
        assert ((found >= 0) & (found <= count)).all()
    for rate in (0.0, 1e-320, 1e17, 1e300):
        found = GammaBelief(np.ones(3), np.ones(3)).quantile((np.full(3, rate),), uniform)
        assert np.isfinite(found).all() and (np.diff(found) >= 0).all() and found[1] == pytest.approx(rate, rel=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_log_density_is_that_of_scipy(family):
    """It is compared with NumPyro's in every proof; here with a third route."""
    rng = np.random.default_rng(1)
    a, b, uniform = rng.uniform(0.05, 2.0, 50), rng.uniform(0.05, 2.9, 50), rng.uniform(0.01, 0.99, 50)
    make, law = FAMILIES[family]
    belief, drawn = make(a, b)
    if family is BetaBelief:
        drawn = (1.0 - drawn[0],)
    reward, peer = law(a, b).ppf(uniform), law(a, b)
    wanted = peer.logpmf(reward) if hasattr(peer.dist, "_pmf") else peer.logpdf(reward)
    np.testing.assert_allclose(sum_terms(belief.log_density(reward, drawn)), wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_parts_of_a_family_fit(family):
    """Bayes' rule; a posterior that counts a reward twice breaks it."""
    rng = np.random.default_rng(2)
    a, b, element = rng.uniform(0.05, 2.0, 50), rng.uniform(0.05, 2.9, 50), rng.integers(50, size=200)
    belief, drawn = FAMILIES[family][0](a, b)
    each = jax.tree.map(lambda x: x[element], belief)
    reward = each.quantile(tuple(x[element] for x in drawn), rng.uniform(0.01, 0.99, 200))
    check_conjugacy(belief, reward, element, drawn)

    class Twice(family):
        def after(self, statistics):
            return family.after(family.after(self, statistics), statistics)

    with pytest.raises(ValueError, match="Twice: prior times likelihood is"):
        check_conjugacy(Twice(*jax.tree.leaves(belief)), reward, element, drawn)


def test_every_family_is_registered_and_tested():
    def below(parent):
        return {parent, *(x for child in parent.__subclasses__() for x in below(child))}

    of_package = {family for family in below(RewardBelief) if family.__module__.startswith("bayes_mdp")}
    # A base with an underscore holds what several families share.
    inside = {family for family in of_package if not family.__name__.startswith("_")} - {RewardBelief}
    assert inside == {*FAMILIES, DirichletCategoricalBelief} == set(family_module.FAMILIES)


def test_a_family_that_is_there_is_not_replaced(monkeypatch):
    monkeypatch.setattr(family_module, "FAMILIES", list(family_module.FAMILIES))
    same_law = type("OtherBelief", (BetaBelief,), {"__module__": __name__})
    with pytest.raises(ValueError, match="OtherBelief has the law BernoulliProbs with probs unknown, which BetaB"):
        register(same_law)
    with pytest.raises(ValueError, match="a family BetaBelief is there"):
        register(type("BetaBelief", (BetaBelief,), {"__module__": __name__}))
    law = type("Poisson", (dist.Poisson,), {})
    with pytest.raises(ValueError, match="there are two laws called Poisson"):
        register(type("OtherBelief", (GammaBelief,), {"__module__": __name__, "laws": {law: lambda law: {}}}))
    assert all(
        a is b for a, b in zip(family_module.FAMILIES, [register(f) for f in [*family_module.FAMILIES]], strict=True)
    )


MOMENTS = [
    (NormalBelief(*np.array([0.5, 1.7, 0.6])), stats.norm(0.5, 1.7), lambda x: stats.norm(x, 0.6)),
    (LogNormalBelief(*np.array([0.5, 0.7, 0.6])), stats.norm(0.5, 0.7), lambda x: stats.lognorm(0.6, scale=np.exp(x))),
    (GammaPrecisionBelief(*np.array([3.5, 0.7])), stats.gamma(3.5, scale=1 / 0.7), lambda x: stats.norm(0, x**-0.5)),
    (BetaBelief(*np.array([1.3, 2.2])), stats.beta(1.3, 2.2), stats.bernoulli),
    (BetaBinomialBelief(*np.array([1.3, 2.2, 4.0])), stats.beta(1.3, 2.2), lambda x: stats.binom(4, x)),
    (BetaGeometricBelief(*np.array([5.5, 2.2])), stats.beta(5.5, 2.2), lambda x: stats.geom(x, loc=-1)),
    (GammaBelief(*np.array([1.5, 0.7])), stats.gamma(1.5, scale=1 / 0.7), stats.poisson),
    (
        GammaExponentialBelief(*np.array([5.5, 0.7])),
        stats.gamma(5.5, scale=1 / 0.7),
        lambda x: stats.expon(scale=1 / x),
    ),
]


@pytest.mark.parametrize(("belief", "prior", "law"), MOMENTS, ids=[type(belief).__name__ for belief, *_ in MOMENTS])
def test_moments_are_integrals_over_the_parameter(belief, prior, law):
    """Mean, spread of the mean, noise: what Bayes' rule does not compare."""
    places, weights = np.polynomial.legendre.leggauss(400)
    # By x = F^-1(u), u pressed towards both ends, where F^-1 is steep: u = s^4 (35 - 84 s + 70 s^2 - 20 s^3).
    s = (places + 1) / 2
    u, weights = s**4 * (35 - 84 * s + 70 * s**2 - 20 * s**3), weights / 2 * 140 * (s * (1 - s)) ** 3
    # A far tail by the probability above it, which does not round to zero.
    above = (s[::-1] ** 4) * (35 - 84 * s[::-1] + 70 * s[::-1] ** 2 - 20 * s[::-1] ** 3)
    x = np.where(u < 0.5, prior.ppf(u), prior.isf(above))
    mean, noise = law(x).mean(), law(x).var()
    expected = weights @ mean
    np.testing.assert_allclose(belief.mean(), expected, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(belief.variance(), weights @ (mean - expected) ** 2, rtol=1e-5, atol=1e-12)
    np.testing.assert_allclose(belief.noise(), weights @ noise, rtol=1e-5)


def test_moments_of_a_categorical_reward():
    concentration, values = np.array([1.3, 0.4, 2.2]), np.arange(3)
    belief, rows = DirichletCategoricalBelief(concentration), stats.dirichlet(concentration)
    variance = values @ rows.cov() @ values
    np.testing.assert_allclose(belief.mean(), rows.mean() @ values, rtol=1e-12)
    np.testing.assert_allclose(belief.variance(), variance, rtol=1e-12)
    noise = rows.mean() @ values**2 - (variance + (rows.mean() @ values) ** 2)
    np.testing.assert_allclose(belief.noise(), noise, rtol=1e-12)
