"""NUTS on whole programs: against closed forms and quadrature; one compilation for all data and refits.

Moments are compared in units of their Monte Carlo standard error (from the effective sample size of the draws), at six
of them: with 24 numbers the false-alarm rate is 5e-8. The smallest fault that a test must catch is kept beside it.
"""

# pyright: reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false, reportIndexIssue=false

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import HMC

from bayes_mdp.inference.draws.methods import NUTS
from bayes_mdp.inference.route import infer
from bayes_mdp.inference.sampled.sampled_fit import sampled_fit
from bayes_mdp.mdp import Transitions
from bayes_mdp.models import MDPSpec

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
    program = jax.jit(jax.vmap(lambda key, data: fit(key, fit.summarise(data))))
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
