"""Rows in closed form beside sampled rewards: what is proven, and the two parts against independent routes."""

# `numpyro.sample` is typed to return any ArrayLike, and records as JAX arrays: too narrow for tests.
# pyright: reportIndexIssue=false, reportArgumentType=false, reportOperatorIssue=false, reportAttributeAccessIssue=false

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import integrate, stats
from scipy.special import gammaln

import bayes_mdp as bm
from bayes_mdp.inference.detection.trace import trace_program
from bayes_mdp.inference.factorised.factorised_posterior import Factors, prove_factors
from bayes_mdp.inference.factorised.sampled_rewards import SampledRewards
from bayes_mdp.models import MDPSpec

KEY = jax.random.key(0)
SPACE = bm.StateActionSpace(3, 2)
SAMPLER = bm.inference.NUTS(300, 500, 4)
RNG = np.random.default_rng(1)
DATA = bm.Transitions(
    RNG.integers(3, size=30), RNG.integers(2, size=30), RNG.standard_t(4, size=30), RNG.integers(3, size=30)
)


def rows(space, law=None):
    with space.plates():
        return numpyro.sample("transition", dist.Dirichlet(jnp.ones(space.n_outcomes)) if law is None else law)


def student(space):
    with space.plates():
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    return MDPSpec(rows(space), dist.StudentT(4.0, mean, 0.5))


@pytest.fixture(scope="module")
def posterior():
    return bm.infer(KEY, student, DATA, space=SPACE, method="factorised", sampler=SAMPLER)


def test_rows_are_those_of_the_exact_route(posterior):
    def known(space):
        return MDPSpec(rows(space), jnp.zeros((3, 2)))

    assert posterior.method == "factorised" and isinstance(posterior.reward_cells, SampledRewards)
    exact = bm.infer(KEY, known, bm.Transitions(DATA.state, DATA.action, None, DATA.next_state), space=SPACE)
    np.testing.assert_array_equal(posterior.transition_probs.concentration, exact.transition_probs.concentration)
    np.testing.assert_array_equal(posterior.visit_counts(), exact.visit_counts())


def test_the_share_of_the_prior_of_its_rewards_is_not_known(posterior):
    """Rows have one, draws of rewards have none: nothing is printed in its place."""
    assert posterior.reward_share() is None and posterior.data_reward() is None
    assert bm.inference.table(posterior).reward_share.isna().all()
    value = bm.policy_value(KEY, posterior, np.zeros(3, int), bm.Discounted(0.5), num_draws=16)
    assert value.basis is not None and value.basis.rewards is None
    assert "prior's share of the rows it uses 0." in str(value)
    assert "; what the prior weighs in the rewards is not known" in " ".join(str(value).split())


def moments_of_pair(state, action):
    """Mean and variance of the mean reward of a pair, by quadrature."""
    at = (np.asarray(DATA.state) == state) & (np.asarray(DATA.action) == action)
    reward = np.asarray(DATA.reward)[at]

    def density(m):
        return np.exp(stats.norm.logpdf(m) + stats.t.logpdf(reward, 4, m, 0.5).sum())

    total, first, second = (integrate.quad(lambda m, k=k: m**k * density(m), -8, 8, limit=200)[0] for k in range(3))
    return first / total, second / total - (first / total) ** 2


def test_rewards_are_those_of_quadrature(posterior):
    """6 pairs: the mean within 5 standard errors of its effective sample size (false alarm 4e-6, found: 0.2 sd)."""
    ess = posterior.mcmc.ess()["mean"]
    found, spread = posterior.mean_mdp().reward, posterior.reward_variance()
    for pair in np.ndindex(3, 2):
        mean, variance = moments_of_pair(*pair)
        error = np.sqrt(variance / ess[pair])
        assert abs(found[pair] - mean) < 5 * error
        assert abs(spread[pair] / variance - 1) < 5 * np.sqrt(2 / ess[pair]) * 2


def test_new_data_reweight_by_their_likelihood(posterior):
    more = bm.Transitions([0, 1, 2], [0, 1, 0], [0.3, -0.2, np.nan], [1, 2, 0], reward_observed=[True, True, False])
    after = posterior.update(more)
    draws = np.asarray(posterior.reward_cells.sites["mean"])
    gain = stats.t.logpdf(0.3, 4, draws[:, 0, 0], 0.5) + stats.t.logpdf(-0.2, 4, draws[:, 1, 1], 0.5)
    found = np.asarray(after.log_weights) - np.asarray(posterior.log_weights)
    np.testing.assert_allclose(found - found.max(), gain - gain.max(), atol=1e-9)
    one_by_one = posterior
    for i in range(3):
        one = jax.tree.map(lambda x, i=i: np.asarray(np.asarray(x)[i]), more)
        one_by_one = one_by_one.update(one)
    np.testing.assert_allclose(one_by_one.log_weights, after.log_weights, atol=1e-9)
    rows_after, rows_before = (x.transition_probs.concentration for x in (after, posterior))
    assert np.asarray(rows_after - rows_before).sum() == 3 and after.visit_counts().sum() == 33
    masked = posterior.update(more, np.zeros(3))
    np.testing.assert_array_equal(masked.log_weights, posterior.log_weights)


@pytest.mark.slow
def test_bellman_variance_is_that_of_draws(posterior):
    """Independent parts: the variance of r + 0.9 P v over 4000 draws (false alarm 1e-6, found: 15 %)."""
    values = jnp.array([0.0, 1.0, 3.0])
    mdps = posterior.sample(jax.random.key(5), (4000,))
    backup = np.asarray(mdps.reward + 0.9 * mdps.transition_probs @ values)
    np.testing.assert_allclose(backup.var(0), np.asarray(posterior.bellman_variance(values, 0.9)), rtol=0.15)
    joint = np.cov(np.asarray(mdps.reward)[:, 0, 0], np.asarray(mdps.transition_probs)[:, 0, 0, 0])
    assert abs(joint[0, 1]) < 5 * np.sqrt(joint[0, 0] * joint[1, 1] / 4000)


def test_it_is_saved_thinned_refitted_and_not_merged(posterior, tmp_path):
    bm.save(posterior, tmp_path / "p")
    loaded = bm.load(tmp_path / "p")
    np.testing.assert_array_equal(loaded.mean_mdp().reward, posterior.mean_mdp().reward)
    with pytest.raises(ValueError, match="loaded and has no program"):
        loaded.refit(KEY)
    fewer = posterior.thinned(KEY, 64)
    assert fewer.num_draws == 64 and fewer.mcmc is None and not bool(fewer.needs_refit())
    assert fewer.refit(jax.random.key(2)).num_draws == 64
    with pytest.raises(TypeError, match=r"posteriors\[0\] is a FactorisedPosterior, whose rewards are draws, expected"):
        bm.inference.merge([posterior, posterior])
    with pytest.raises(ValueError, match=r"expected bayes_mdp\.evidence"):
        posterior.log_evidence  # noqa: B018
    assert "factorised (rows in closed form" in str(posterior)


@pytest.mark.slow
def test_an_agent_learns_with_it():
    """PSRL in a compiled run: draws of every seed, reweighted, refitted where they are worn."""
    env = bm.models.random_environment(jax.random.key(3), poisson, SPACE, initial=np.array([1.0, 0.0, 0.0]))
    options = bm.experiments.RunOptions(num_particles=32)
    result = bm.run(
        bm.agents.PSRL(),
        env,
        prior=poisson,
        objective=bm.Discounted(0.9),
        num_steps=12,
        num_seeds=2,
        key=KEY,
        options=options,
    )
    assert np.isfinite(np.asarray(result.regret)).all()


def poisson(space):
    """A law with sufficient statistics, and sites that are not conjugate."""
    with space.plates():
        rate = numpyro.sample("rate", dist.LogNormal(0.0, 1.0))
    return MDPSpec(rows(space), dist.Poisson(rate))


LAWS = {
    "Bernoulli": lambda z: dist.Bernoulli(logits=z),
    "Poisson": lambda z: dist.Poisson(jnp.exp(z)),
    "Exponential": lambda z: dist.Exponential(jnp.exp(z)),
    "Normal": lambda z: dist.Normal(jnp.tanh(z), 1.0),
}


@pytest.mark.some(4)
@pytest.mark.parametrize("improper", [False, True])
@pytest.mark.parametrize("law", LAWS)
def test_rows_are_certified_whatever_the_law_of_rewards(law, improper):
    """The certificate of the rows invents transitions; what these hold of rewards is not looked at."""

    def program(space):
        probs = rows(space)
        level = numpyro.sample("level", dist.ImproperUniform(dist.constraints.real, (), ())) if improper else 0.0
        with space.plates():
            z = numpyro.sample("z", dist.Normal(level, 1.0))
        return MDPSpec(probs, LAWS[law](z))

    proved = prove_factors(trace_program(program, SPACE))
    assert isinstance(proved, Factors)


# What is not two factors


def shared_hyperparameter(space):
    level = numpyro.sample("level", dist.HalfNormal(1.0))
    with space.plates():
        mean = numpyro.sample("mean", dist.Normal(0.0, level))
    return MDPSpec(rows(space, dist.Dirichlet((0.1 + level) * jnp.ones(3))), dist.StudentT(4.0, mean, 1.0))


def reward_of_row(space):
    probs = rows(space)
    return MDPSpec(probs, dist.StudentT(4.0, probs[..., 0], 1.0))


def factor_of_both(space):
    probs = rows(space)
    with space.plates():
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    numpyro.factor("tie", -((mean[0, 0] - probs[0, 0, 0]) ** 2))
    return MDPSpec(probs, dist.StudentT(4.0, mean, 1.0))


def prior_of_reward_from_row(space):
    probs = rows(space)
    with space.plates():
        mean = numpyro.sample("mean", dist.Normal(probs[..., 0], 1.0))
    return MDPSpec(probs, dist.StudentT(4.0, mean, 1.0))


def scale_of_reward_site_from_row(space):
    """The row enters the scale of another site's density alone."""
    probs = rows(space)
    with space.plates():
        mean = numpyro.sample("mean", dist.StudentT(3.0, 0.0, 1.0 + probs[..., 0]))
    return MDPSpec(probs, dist.Normal(mean, 1.0))


def softmax_rows(space):
    with space.plates():
        logits = numpyro.sample("logits", dist.Normal(jnp.zeros(3), 1.0).to_event(1))
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    return MDPSpec(jax.nn.softmax(logits), dist.StudentT(4.0, mean, 1.0))


def masked_rows(space):
    with numpyro.handlers.mask(mask=np.arange(2) > 0):
        probs = rows(space)
    with space.plates():
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    return MDPSpec(probs, dist.StudentT(4.0, mean, 1.0))


@pytest.mark.parametrize(
    ("prior", "site"),
    [
        (shared_hyperparameter, "level"),
        (reward_of_row, "transition"),
        (factor_of_both, "transition"),
        (prior_of_reward_from_row, "transition"),
        (scale_of_reward_site_from_row, "transition"),
        (softmax_rows, "logits"),
        (masked_rows, "transition"),
    ],
)
def test_what_is_not_two_factors_is_refused(prior, site):
    with pytest.raises(ValueError, match=f"site '{site}'|no site is left"):
        bm.infer(KEY, prior, DATA, space=SPACE, method="factorised")
    assert bm.explain(prior, SPACE).route == "nuts"


def test_evidence_is_that_of_both_parts(posterior):
    """Rows by their closed form, rewards by 6 quadratures: within 5 stated errors (false alarm 6e-7)."""
    found = bm.evidence(posterior)
    counts = np.zeros((3, 2, 3))
    np.add.at(counts, (DATA.state, DATA.action, DATA.next_state), 1)
    from_rows = (gammaln(3.0) - gammaln(3.0 + counts.sum(-1)) + gammaln(1.0 + counts).sum(-1)).sum()
    from_rewards = 0.0
    for pair in np.ndindex(3, 2):
        at = (np.asarray(DATA.state) == pair[0]) & (np.asarray(DATA.action) == pair[1])
        reward = np.asarray(DATA.reward)[at]
        shift = stats.t.logpdf(reward, 4, 0.0, 0.5).sum()

        def density(m, reward=reward, shift=shift):
            return np.exp(stats.norm.logpdf(m) + stats.t.logpdf(reward, 4, m, 0.5).sum() - shift)

        from_rewards += np.log(integrate.quad(density, -8, 8, limit=200)[0]) + shift
    assert 0 < found.standard_error < 0.1
    assert abs(found.log_evidence - from_rows - from_rewards) < 5 * found.standard_error
