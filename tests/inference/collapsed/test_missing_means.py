"""Mean rewards over hyperparameters: finite ones against SciPy, infinite ones refused, doubtful ones said."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import integrate, stats

import bayes_mdp as bm
from bayes_mdp.inference.draws.chains import SamplingWarning
from bayes_mdp.inference.untried_rewards import moments_of
from bayes_mdp.models import MDPSpec

SPACE = bm.StateActionSpace(3, 1)
ONE = bm.Transitions([0], [0], [2.0], [1])


def poisson(law, shape: float):
    """Rates of Poisson rewards under an unknown rate."""

    def prior(space):
        above = numpyro.sample("above", law)
        with space.plates():
            probs = numpyro.sample("transition", dist.Dirichlet(jnp.ones(3)))
            rate = numpyro.sample("rate", dist.Gamma(shape, above))
        return MDPSpec(probs, dist.Poisson(rate))

    return prior


def normal_about(law):
    """Normal rewards whose means lie about an unknown one."""

    def prior(space):
        above = numpyro.sample("above", law)
        with space.plates():
            probs = numpyro.sample("transition", dist.Dirichlet(jnp.ones(3)))
            mean = numpyro.sample("mean", dist.Normal(above, 1.0))
        return MDPSpec(probs, dist.Normal(mean, 1.0))

    return prior


def infer(prior, data=None, method="auto"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        return bm.infer(jax.random.key(0), prior, data, space=SPACE, method=method)


@pytest.mark.parametrize(
    ("law", "frozen", "shape"),
    [
        (dist.Exponential(1.0), stats.expon(), 2.0),
        (dist.LogNormal(0.0, 3.0), stats.lognorm(3.0), 0.1),
        (dist.Gamma(3.0, 1.0), stats.gamma(3.0), 1.0),
    ],
)
def test_finite_means_reach_as_far_as_they_have_to(law, frozen, shape):
    """A pair without data: shape E[1 / above]; far out, where the density is 1e-12, there may be a fifth of it."""

    def weighed(log: float, power: float) -> float:
        # above^shape / (above + 1)^(shape + 2): two rewards' worth in one pair
        x = np.exp(log)
        return frozen.pdf(x) * x ** (1.0 + shape - power) / (x + 1.0) ** (shape + 2.0)

    moment, total = (integrate.quad(weighed, -80, 40, (p,), points=[-20, -5, 0, 5], limit=500)[0] for p in (1, 0))
    mean = infer(poisson(law, shape), ONE, "quadrature").mean_mdp()
    np.testing.assert_allclose(np.asarray(mean.reward)[1:, 0], shape * moment / total, rtol=1e-5)


@pytest.mark.parametrize(
    ("prior", "data", "infinite"),
    [
        (poisson(dist.Exponential(1.0), 2.0), None, [True, True, True]),
        (poisson(dist.Gamma(0.5, 1.0), 0.4), ONE, [False, True, True]),  # above^(-.5 + .4 - 1)
        (poisson(dist.Gamma(0.5, 1.0), 0.6), ONE, [False, False, False]),  # above^(-.5 + .6 - 1)
        (poisson(dist.HalfCauchy(1.0), 0.01), ONE, [False, False, False]),  # above^(.01 - 1)
        (normal_about(dist.Cauchy(0.0, 1.0)), None, [True, True, True]),
        (normal_about(dist.Cauchy(0.0, 1.0)), ONE, [False, False, False]),
        (normal_about(dist.StudentT(3.0, 0.0, 1.0)), None, [False, False, False]),
        (normal_about(dist.Normal(0.0, 1e6)), None, [False, False, False]),
    ],
)
def test_infinite_means_are_refused(prior, data, infinite):
    belief = infer(prior, data)
    np.testing.assert_array_equal(belief.missing_means()[:, 0], infinite)
    np.testing.assert_array_equal(np.isnan(moments_of(belief).reward)[:, 0], infinite)
    if any(infinite):
        first = infinite.index(True)
        with pytest.raises(ValueError, match=rf"mean reward of state {first}, action 0 does not exist: it is infinite"):
            belief.mean_mdp()
    else:
        assert np.isfinite(np.asarray(belief.mean_mdp().reward)).all()


def test_a_mean_that_rests_on_few_draws_is_said():
    """E[1 / above] is finite, but has no variance: near zero the density goes as above^(-.5 + .6), k = 1 / 1.1."""
    with pytest.warns(SamplingWarning, match=r"2 pairs \(state 1, action 0 is the first\) rest on few draws"):
        belief = bm.infer(jax.random.key(0), poisson(dist.Gamma(0.5, 1.0), 0.6), ONE, space=SPACE, method="importance")
    assert any("rest on few draws" in problem for problem in belief.problems())
    light = infer(poisson(dist.LogNormal(0.0, 0.5), 1.0), ONE, "importance")
    assert not light.problems()
