"""NUTS, variational inference and Laplace's approximation on whole programs: against closed forms and quadrature.

Moments by NUTS are compared in units of their Monte Carlo standard error (from the effective sample size of the draws),
at six of them: with 24 numbers the false-alarm rate is 5e-8. The smallest fault that a test must catch is kept beside
it. Of variational inference also guides of one's own, and what its loss shows.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints
from numpyro.infer import HMC
from numpyro.infer.autoguide import AutoMultivariateNormal
from scipy import special

from bayes_mdp.inference.draws.methods import NUTS, SVI, Laplace
from bayes_mdp.inference.route import infer
from bayes_mdp.inference.sampled.algorithms import Drawn
from bayes_mdp.inference.sampled.sampled_fit import sampled_fit
from bayes_mdp.mdp import StateActionSpace, Transitions
from bayes_mdp.models import MDPSpec

# pyright: reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false, reportIndexIssue=false


METHOD = NUTS(num_warmup=300, num_samples=1000, num_chains=2)


def errors(small, posterior, data):
    """The largest error of a moment of rows and rewards of the conjugate program, in standard errors."""
    exact, draws = small.normal_oracle(data), posterior.mcmc.draws
    return max(small.worst_error(draws[name], exact[name], exact[name + "_sd"]) for name in ("transition", "reward"))


@pytest.mark.slow
def test_nuts_is_exact_and_compiled_once(small, key):
    """A conjugate program against its closed form, then refitted after more data, and fitted to other data: the program
    is not traced again. It must catch three transitions that are left out of forty (more than ten standard errors).
    """
    prior = small.Traced(small.prior)
    data, more = small.transitions(40, 5), small.transitions(20, 6)
    fit = sampled_fit(prior, small.space, METHOD)
    posterior = fit.on_host(key, data)
    assert errors(small, posterior, data) < 6.0 and posterior.problems() == []
    assert errors(small, posterior, small.first(data, 37)) > 10.0
    traces = prior.traces
    both = jax.tree.map(lambda a, b: np.concatenate([a, b]), data, more)
    renewed = posterior.update(more).refit(jax.random.fold_in(key, 1))
    assert errors(small, renewed, both) < 6.0
    assert not np.any(renewed.log_weights) and float(renewed.visit_counts().sum()) == 60
    shapes = [[(x.shape, x.dtype) for x in jax.tree.leaves(p)] for p in (posterior, renewed)]
    assert shapes[0] == shapes[1] and jax.tree.structure(posterior) == jax.tree.structure(renewed)
    assert prior.traces == traces, "the refit has been compiled anew"
    again = sampled_fit(small.Traced(small.prior), small.space, METHOD).on_host(key, more)
    assert errors(small, again, more) < 6.0


@pytest.mark.slow
def test_student_rewards(small, key):
    """`infer` takes this route by itself where there is no closed form; 8 numbers against quadrature.

    It must catch outliers that count in full, as a normal law counts them (more than ten standard errors).
    """
    data = small.transitions(30, 7, spread=2.0)
    posterior = infer(key, small.student, data, space=small.space)
    assert posterior.method == "nuts" and posterior.problems() == [] and posterior.mcmc is not None
    mean, deviation = small.student_oracle(data)
    assert small.worst_error(posterior.mcmc.draws["loc"], mean, deviation) < 6.0
    cells = [data.reward[(data.state == s) & (data.action == a)] for s, a in np.ndindex(2, 2)]
    twin = np.array([x.sum() / (x.size + 0.25) for x in cells]).reshape(2, 2)
    assert small.worst_error(posterior.mcmc.draws["loc"], twin, deviation) > 10.0


def _uniform(space):
    """Rewards between 0 and an unknown bound: the support depends on it."""
    with space.plates():
        probs = numpyro.sample("probs", dist.Dirichlet(jnp.ones(2)))
        bound = numpyro.sample("bound", dist.Pareto(1.0, 3.0))
    return MDPSpec(probs, dist.Uniform(0.0, bound))


@pytest.mark.slow
def test_a_support_that_depends_on_parameters(small, key):
    """No bound below a reward that was seen (NumPyro's own density does not vanish there); the edge makes trajectories
    diverge, which is said.
    """
    data = small.transitions(30, 8)
    data = Transitions(data.state, data.action, np.random.default_rng(0).uniform(0, 1.5, 30), data.next_state)
    posterior = sampled_fit(_uniform, small.space, METHOD).on_host(key, data)
    largest = np.ones((2, 2))
    np.maximum.at(largest, (data.state, data.action), data.reward)
    assert largest.min() > 1.0
    lowest = np.asarray(posterior.sites["bound"]).min(0)
    assert np.all(lowest >= largest * (1 - 1e-6)) and np.all(lowest < 1.05 * largest)
    assert "diverged" in posterior.problems()[0]


@pytest.mark.slow
def test_a_kernel_of_your_own(small, key):
    """HMC with a fixed number of steps."""
    method = NUTS(500, 2000, 2, kernel=lambda model: HMC(model, num_steps=10, trajectory_length=None))
    data = small.transitions(40, 5)
    posterior = sampled_fit(small.prior, small.space, method).on_host(key, data)
    assert errors(small, posterior, data) < 6.0
    assert posterior.mcmc is not None and np.all(np.asarray(posterior.mcmc.num_steps) == 10)


@pytest.mark.slow
def test_many_data_sets_at_once(small, key):
    """Vmapped over keys and data, each is the posterior of its own data; and refitted in float64, as runs do."""
    sets = [small.transitions(20, seed) for seed in (1, 2, 3)]
    fit = sampled_fit(small.prior, small.space, METHOD)
    stacked = jax.tree.map(lambda *x: np.stack(x), *sets)
    program = jax.jit(jax.vmap(lambda key, data: fit.infer(key, fit.summarise(data))))
    together = program(jax.random.split(key, 3), stacked)
    for i, data in enumerate(sets):
        assert errors(small, jax.tree.map(lambda x, i=i: x[i], together), data) < 6.0
    assert errors(small, jax.tree.map(lambda x: x[0], together), sets[1]) > 10.0
    few = jax.vmap(lambda key, p: p.thinned(key, 50))(jax.random.split(key, 3), together)
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda x: np.array(x, np.float64 if x.dtype == np.float32 else x.dtype), few)
        renewed = jax.jit(jax.vmap(lambda key, p: p.refit(key)))(jax.random.split(key, 3), wide)
    for new, old in zip(jax.tree.leaves(renewed), jax.tree.leaves(few), strict=True):
        assert new.shape == old.shape
    assert renewed.mcmc is None and not np.any(np.asarray(renewed.log_weights))


@pytest.mark.slow
def test_before_data_the_draws_are_those_of_the_prior(small, key):
    """Independent draws, without a chain: moments of Dirichlet(1) and of the standard normal."""
    prior = sampled_fit(small.prior, small.space, METHOD).on_host(key, None)
    assert prior.mcmc is None and prior.num_draws == 2000
    rows, rewards = (np.asarray(prior.sites[name])[None] for name in ("transition", "reward"))
    assert small.worst_error(rows, np.full((2, 2, 2), 0.5), np.full((2, 2, 2), 12**-0.5)) < 6.0
    assert small.worst_error(rewards, np.zeros((2, 2)), np.ones((2, 2))) < 6.0


# pyright: reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false, reportIndexIssue=false


def exact_guide(data=None):
    """The family of the exact posterior: Dirichlet rows, normal rewards."""
    positive = constraints.positive
    concentration = numpyro.param("concentration", jnp.full((2, 2, 2), 2.0), constraint=positive)
    loc = numpyro.param("loc", jnp.zeros((2, 2)))
    scale = numpyro.param("scale", jnp.full((2, 2), 0.5), constraint=positive)
    with StateActionSpace(2, 2).plates():
        numpyro.sample("transition", dist.Dirichlet(concentration))
        numpyro.sample("reward", dist.Normal(loc, scale))


@pytest.mark.slow
@pytest.mark.parametrize(
    "guide",
    [None, AutoMultivariateNormal, lambda model: exact_guide],
    ids=["AutoNormal", "AutoMultivariateNormal", "a program"],
)
def test_svi_is_near_the_exact_posterior(small, key, guide):
    """Means to 0.3 posterior standard deviations (the last steps of the optimiser jitter by 0.1), deviations to 15 %.

    It must catch a guide before it is fitted.
    """
    data = small.transitions(40, 5)
    exact = small.normal_oracle(data)

    def worst(posterior):
        mean, ratio = 0.0, 0.0
        for name in ("transition", "reward"):
            draws = np.asarray(posterior.sites[name], np.float64)
            mean = max(mean, np.abs((draws.mean(0) - exact[name]) / exact[name + "_sd"]).max())
            ratio = max(ratio, np.abs(draws.std(0) / exact[name + "_sd"] - 1).max())
        return mean, ratio

    fit = sampled_fit(small.prior, small.space, SVI(guide=guide, learning_rate=0.003, num_samples=20_000))
    posterior = fit.on_host(key, data)
    assert posterior.losses is not None
    assert posterior.problems() == [] and posterior.losses.shape == (5000,)
    assert worst(posterior)[0] < 0.3 and worst(posterior)[1] < 0.15
    short = sampled_fit(small.prior, small.space, SVI(guide=guide, num_steps=1, num_samples=20_000))
    unfitted = short.on_host(key, data)
    assert "too few to see" in unfitted.problems()[0] and worst(unfitted)[0] > 0.9


def drawn(losses, sites=None):
    return Drawn({"x": np.arange(3.0)} if sites is None else sites, None, np.asarray(losses))


def test_what_the_loss_shows():
    """Settled, falling, broken at the end, broken throughout, cut short."""
    noise = np.random.default_rng(0).normal(size=2000)
    step = np.arange(2000)
    assert drawn(70 + noise).problems() == []
    assert drawn(70 + 50 * np.exp(-step / 100) + noise).problems() == []
    assert "still falling (by 2.5 over the last 500 of 2000 steps)" in drawn(70 - step / 200.0).problems()[0]
    assert "still falling" in drawn(70 + 50 * np.exp(-step / 1000) + noise).problems()[0]
    assert "5 of the last 500 steps" in drawn(np.where(step < 1995, 70 + noise, np.nan)).problems()[0]
    assert "impossible under the prior" in drawn(np.full(2000, np.inf)).problems()[0]
    assert "too few" in drawn(noise[:50]).problems()[0]


def test_draws_that_are_none():
    flat = np.zeros(2000)
    assert "site 'x' are one point" in drawn(flat, {"x": np.ones(3)}).problems()[0]
    assert "site 'x' has draws that are not finite" in drawn(flat, {"x": np.array([1.0, np.nan])}).problems()[0]


# pyright: reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false, reportIndexIssue=false


@pytest.mark.slow
def test_laplace_is_the_normal_at_the_mode(small, key):
    """With two outcomes the unconstrained row is the logit of its first probability, whose mode and curvature are
    log(a / b) and a b / (a + b) for Dirichlet(a, b): 24 moments at six standard errors of 20,000 independent draws,
    false-alarm rate 5e-8. The rewards are exact. It must catch the mode of the row itself, (a - 1) / (a + b - 2).
    """
    data = small.transitions(40, 5)
    posterior = sampled_fit(small.prior, small.space, Laplace(num_samples=20_000)).on_host(key, data)
    assert posterior.problems() == []
    exact, counts = small.normal_oracle(data), np.ones((2, 2, 2))
    np.add.at(counts, (data.state, data.action, data.next_state), 1)
    a, b = counts[..., 0], counts[..., 1]
    logit = special.logit(np.asarray(posterior.sites["transition"], np.float64)[None, ..., 0])
    deviation = np.sqrt((a + b) / (a * b))
    assert small.worst_error(logit, np.log(a / b), deviation) < 6.0
    assert small.worst_error(logit, np.log((a - 1) / (b - 1)), deviation) > 10.0
    rewards = np.asarray(posterior.sites["reward"], np.float64)[None]
    assert small.worst_error(rewards, exact["reward"], exact["reward_sd"]) < 6.0


@pytest.mark.slow
def test_many_data_sets_at_once_are_one_by_one(small, key):
    """No chain is chaotic here: vmapped and alone agree draw by draw."""
    fit = sampled_fit(small.prior, small.space, Laplace(num_samples=50))
    data = jax.tree.map(lambda *x: np.stack(x), *(fit.summarise(small.transitions(20, seed)) for seed in (1, 2, 3)))
    keys = jax.random.split(key, 3)
    together = jax.jit(jax.vmap(fit))(keys, data)
    one = jax.jit(fit)
    for i in range(3):
        alone = one(keys[i], jax.tree.map(lambda x, i=i: x[i], data))
        for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(a[i], b, rtol=1e-3, atol=1e-3)
    assert one._cache_size() == 1
