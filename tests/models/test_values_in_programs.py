"""Planners as parts of NumPyro programs: the posterior of a parameter that is seen through optimal values alone.

Every method is compared with the same posterior on a grid, for which the planner is called point by point.
"""

# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportIndexIssue=false

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO
from numpyro.infer.autoguide import AutoLaplaceApproximation, AutoNormal

import bayes_mdp as bm

DISCOUNT = bm.Discounted(0.9)
EFFORT = np.array([[0.0, -0.4], [0.0, -0.4], [1.0, 1.0]])
CHOICES = np.array([[6, 14], [9, 11]])
"""Of 20 persons in states 0 and 1: how many waited, how many worked."""
WORTH = np.array([3.1, 2.7, 3.4])
"""What three appraisers say of a start in state 0."""


def machine(success):
    """Waiting stays, working moves one state up with probability `success`; state 2 pays and may fall back."""
    stay = jnp.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.3, 0.0, 0.7]])
    up = jnp.array([[-1.0, 1.0, 0.0], [0.0, -1.0, 1.0], [0.0, 0.0, 0.0]])
    return bm.MDP(jnp.stack([stay, stay + success * up], axis=1), jnp.asarray(EFFORT))


def soft(choices=None):
    """Choices by a soft planner, of an unknown success and temperature."""
    success = numpyro.sample("success", dist.Beta(2.0, 2.0))
    temperature = numpyro.sample("temperature", dist.LogNormal(-0.5, 0.5))
    plan = bm.planning.solve_soft(machine(success), DISCOUNT, temperature)
    numpyro.deterministic("value", plan.v)
    with numpyro.plate("state", 2):
        numpyro.sample("choices", dist.Multinomial(20, plan.policy[:2]), obs=choices)


def hard(worth=None):
    """Appraisals of the optimal value, of an unknown success and noise."""
    success = numpyro.sample("success", dist.Beta(2.0, 2.0))
    temperature = numpyro.sample("temperature", dist.LogNormal(-0.5, 0.5))
    value = numpyro.deterministic("value", bm.solve(machine(success), DISCOUNT).v)
    with numpyro.plate("appraiser", 3):
        numpyro.sample("worth", dist.Normal(value[0], temperature), obs=worth)


def fixed(worth=None):
    """Appraisals of the value of a known policy."""
    success = numpyro.sample("success", dist.Beta(2.0, 2.0))
    temperature = numpyro.sample("temperature", dist.LogNormal(-0.5, 0.5))
    policy = jnp.array([[0.2, 0.8], [0.1, 0.9], [0.5, 0.5]])
    value = numpyro.deterministic("value", bm.evaluate(machine(success), policy, DISCOUNT).v)
    with numpyro.plate("appraiser", 3):
        numpyro.sample("worth", dist.Normal(value[0], temperature), obs=worth)


PROGRAMS = {"soft": (soft, {"choices": CHOICES}), "hard": (hard, {"worth": WORTH}), "fixed": (fixed, {"worth": WORTH})}


def grid(program, data, size=120):
    """Mean and standard deviation of (success, log temperature), by a sum over a grid."""
    success = (np.arange(size) + 0.5) / size
    log_temperature = np.linspace(-3.5, 2.5, size)

    @jax.jit
    @jax.vmap
    def density(s, t):
        values = {"success": s, "temperature": jnp.exp(t)}
        # The density of the logarithm: times the temperature.
        return numpyro.infer.util.log_density(handlers.seed(program, 0), (), data, values)[0] + t

    points = np.stack([x.ravel() for x in np.meshgrid(success, log_temperature, indexing="ij")])
    log_weights = np.asarray(density(*points))
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    mean = points @ weights
    return mean, np.sqrt((points - mean[:, None]) ** 2 @ weights)


def draws_of(samples):
    return np.stack([np.asarray(samples["success"]), np.log(np.asarray(samples["temperature"]))])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:There are not enough devices:UserWarning")
@pytest.mark.parametrize("name", ["fixed", "soft", "hard"])
def test_nuts_has_the_moments_of_the_grid(name, x64):
    """Within 6 standard errors of the mean (false alarm 2e-9 a number); deviations within a tenth."""
    program, data = PROGRAMS[name]
    mcmc = MCMC(NUTS(program), num_warmup=500, num_samples=2000, progress_bar=False)
    mcmc.run(jax.random.key(0), **data)
    draws = draws_of(mcmc.get_samples())
    mean, sd = grid(program, data)
    size = [numpyro.diagnostics.effective_sample_size(x[None]) for x in draws]
    assert (np.abs(draws.mean(1) - mean) < 6 * sd / np.sqrt(size)).all()
    assert (np.abs(draws.std(1) / sd - 1) < 0.1).all()
    # The deterministic of a draw is the plan for this draw.
    one = {k: v[7] for k, v in mcmc.get_samples().items()}
    again = handlers.trace(handlers.substitute(handlers.seed(program, 0), one)).get_trace(**data)
    np.testing.assert_allclose(one["value"], again["value"]["value"], rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_laplace_and_svi_find_the_posterior(name, x64):
    """A normal approximation: the mode of the grid to .3 of its deviations, widths to a third."""
    program, data = PROGRAMS[name]
    mean, sd = grid(program, data)
    for guide, loss in ((AutoLaplaceApproximation(program), Trace_ELBO()), (AutoNormal(program), Trace_ELBO(8))):
        svi = SVI(program, guide, numpyro.optim.Adam(0.02), loss)
        found = svi.run(jax.random.key(1), 3000, progress_bar=False, **data)
        assert np.isfinite(found.losses).all()
        draws = draws_of(guide.sample_posterior(jax.random.key(2), found.params, sample_shape=(4000,)))
        assert (np.abs(draws.mean(1) - mean) < 0.4 * sd).all()
        assert (np.abs(draws.std(1) / sd - 1) < 0.4).all()


def test_predictive_and_seed(x64):
    drawn = Predictive(soft, num_samples=40)(jax.random.key(0))
    assert drawn["choices"].shape == (40, 2, 2) and (drawn["choices"].sum(-1) == 20).all()
    trace = handlers.trace(handlers.seed(soft, 3)).get_trace()
    success, temperature = trace["success"]["value"], trace["temperature"]["value"]
    np.testing.assert_allclose(
        trace["value"]["value"], bm.planning.solve_soft(machine(success), DISCOUNT, temperature).v
    )


def hospitals(stays=None):
    """A plate of groups, a parameter and a plan each."""
    level = numpyro.sample("level", dist.Normal(0.0, 1.0))
    with numpyro.plate("hospital", 4):
        logit = numpyro.sample("logit", dist.Normal(level, 0.7))
    plans = jax.vmap(lambda s: bm.planning.solve_soft(machine(s), DISCOUNT, 0.3))(jax.nn.sigmoid(logit))
    with numpyro.plate("hospital", 4):
        numpyro.sample("choices", dist.Binomial(30, plans.policy[:, 0, 1]), obs=stays)


def test_a_plate_over_groups(x64):
    """The gradient of the joint density is that of finite differences, group by group."""
    data = np.array([3, 20, 28, 12])

    def potential(flat):
        return numpyro.infer.util.log_density(hospitals, (data,), {}, {"level": flat[0], "logit": flat[1:]})[0]

    at, step = jnp.array([0.2, -1.0, 0.3, 0.8, -0.4]), 1e-5
    found = jax.jit(jax.grad(potential))(at)
    value = jax.jit(jax.vmap(potential))
    apart = (value(at + step * jnp.eye(5)) - value(at - step * jnp.eye(5))) / (2 * step)
    np.testing.assert_allclose(found, apart, rtol=1e-6)
