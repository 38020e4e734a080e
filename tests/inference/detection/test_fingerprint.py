"""Programs share proofs and compiled code if they compute the same, and only then. Nothing here is compiled."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest

from bayes_mdp.inference.detection.trace import trace_program
from bayes_mdp.inference.draws.methods import NUTS
from bayes_mdp.inference.sampled.recipe import recipe_for
from bayes_mdp.models import MDPSpec
from tests.inference.hierarchies import SPACE


def under(hyper, function=jnp.asarray):
    """Sticky rows under a hyperprior, through a function."""

    def prior(space):
        stickiness = function(numpyro.sample("stickiness", hyper))
        with space.plates():
            probs = numpyro.sample("transition", dist.Dirichlet(0.5 + stickiness * jnp.eye(3)[:, None, :]))
        return MDPSpec(probs, jnp.zeros(()))

    return prior


def clipped():
    """A new function with a derivative of its own, as each import of a module would make it."""

    @jax.custom_jvp
    def clip(x):
        return jnp.maximum(x, 0.1)

    clip.defjvp(lambda primals, tangents: (clip(*primals), tangents[0]))
    return clip


def improper(support):
    """A density of one on a support that NumPyro does not check."""
    return dist.ImproperUniform(support, (), (), validate_args=False)


def recipe(prior, space):
    """The sampled route's own digest."""
    return recipe_for(prior, space, NUTS())


@pytest.mark.parametrize("trace", [trace_program, recipe])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (dist.HalfNormal(5.0), dist.HalfNormal(2.0)),
        (dist.Gamma(2.0, 1.0), dist.LogNormal(2.0, 1.0)),
        # The same log density, on another support.
        (dist.Uniform(0.0, 1.0, validate_args=False), dist.Uniform(1.0, 2.0, validate_args=False)),
        (improper(dist.constraints.positive), improper(dist.constraints.real)),
    ],
    ids=["scale", "family", "support", "improper"],
)
def test_programs_that_differ_in_the_hyper_prior_alone(trace, one, other):
    assert trace(under(one), SPACE) == trace(under(one), SPACE)
    assert trace(under(one), SPACE) != trace(under(other), SPACE)


@pytest.mark.parametrize("trace", [trace_program, recipe])
@pytest.mark.parametrize("make", [clipped, lambda: jax.nn.relu, lambda: jax.nn.softplus])
def test_functions_with_derivatives_of_their_own_are_stable(trace, make):
    first, second = (trace(under(dist.HalfNormal(5.0), make()), SPACE) for _ in range(2))
    assert first == second and hash(first) == hash(second)
    assert first != trace(under(dist.HalfNormal(5.0)), SPACE)
