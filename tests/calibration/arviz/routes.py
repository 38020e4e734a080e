# pyright: reportArgumentType=false, reportOperatorIssue=false, reportCallIssue=false, reportIndexIssue=false
# pyright: reportAttributeAccessIssue=false, reportReturnType=false
"""One program for each route of inference, with deterministics, and its posterior given the same transitions."""

from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from bayes_mdp.inference import NUTS, infer
from bayes_mdp.inference.draws.chains import Chains
from bayes_mdp.inference.sampled.recipe import recipe_for
from bayes_mdp.inference.sampled.sampled_posterior import from_draws
from bayes_mdp.mdp import StateActionSpace, Transitions
from bayes_mdp.models import MDPSpec

SPACE = StateActionSpace(3, 2, states=("low", "mid", "high"), actions=("stay", "go"))
NUMBER = 60
CHAINS, SAMPLES = 4, 100


@cache
def transitions() -> Transitions:
    """Rewards grow with the state."""
    rng = np.random.default_rng(0)
    state, action, next_state = (rng.integers(0, size, NUMBER) for size in (3, 2, 3))
    return Transitions(state, action, rng.normal(state, 1.0), next_state)


def _rest(space: StateActionSpace, concentration: Any) -> MDPSpec:
    """Conjugate rows and mean rewards, with deterministics in plates, in one plate, in none."""
    with space.plates():
        p = numpyro.sample("p", dist.Dirichlet(concentration * jnp.ones(3)))
        m = numpyro.sample("m", dist.Normal(0.0, 2.0))
    return _with_deterministics(space, p, m)


def _with_deterministics(space: StateActionSpace, p: Any, m: Any) -> MDPSpec:
    with space.plates():
        numpyro.deterministic("odds", p[..., 0] / (1.0 - p[..., 0]))
    with space.plates("state"):
        numpyro.deterministic("best", m.max(-1))
    numpyro.deterministic("spread", m.max() - m.min())
    return MDPSpec(p, reward=dist.Normal(m, 1.0))


def plain(space: StateActionSpace) -> MDPSpec:
    """Conjugate throughout."""
    return _rest(space, 1.5)


def either(space: StateActionSpace) -> MDPSpec:
    """A mixture of two closed forms."""
    sparse = numpyro.sample("sparse", dist.Bernoulli(0.4))
    return _rest(space, jnp.where(sparse, 0.5, 4.0))


def hierarchy(space: StateActionSpace) -> MDPSpec:
    """Conjugate given a hyperparameter, which is a vector in a plate of its own."""
    with numpyro.plate("factor", 2):
        scale = numpyro.sample("scale", dist.Gamma(2.0, 1.0))
    numpyro.deterministic("total", scale.sum())
    return _rest(space, scale.sum())


def ordered(space: StateActionSpace) -> MDPSpec:
    """Conjugate rows; mean rewards under a common scale, which no closed form has: the two are apart."""
    spread = numpyro.sample("scale", dist.HalfNormal(2.0))
    with space.plates():
        p = numpyro.sample("p", dist.Dirichlet(jnp.full(3, 1.5)))
        m = numpyro.sample("m", dist.Laplace(0.0, spread))
    return _with_deterministics(space, p, m)


class Route(NamedTuple):
    """A program, its posterior, and how the draws come."""

    program: Any
    posterior: Any
    method: str
    chains: int


def _stand_in() -> Any:
    """A sampled posterior whose chains are draws of the prior: no NUTS is compiled."""
    recipe = recipe_for(hierarchy, SPACE, NUTS(0, SAMPLES, CHAINS))
    drawn = jax.jit(recipe.draw_prior)(jax.random.key(0))
    posterior = jax.jit(lambda d, s: from_draws(recipe, d, s))(drawn, recipe.summarise(transitions()))
    split = {name: np.asarray(x).reshape(CHAINS, SAMPLES, *x.shape[1:]) for name, x in posterior.sites.items()}
    rng, shape = np.random.default_rng(4), (CHAINS, SAMPLES)
    stats: Any = (np.zeros(shape, bool), np.full(shape, 0.8), np.full(shape, 7), rng.normal(size=shape))
    chains = Chains(split, *stats, energy=rng.normal(size=shape))
    return jax.tree.map(np.asarray, replace(posterior, mcmc=chains))


@cache
def route(name: str) -> Route:
    """The posterior of a route: "exact", "mixture", "sampled" (a stand-in); slow ones by their methods' names."""
    data, key = transitions(), jax.random.key(0)
    if name == "exact":
        return Route(plain, infer(key, plain, data, space=SPACE), "exact", 4)
    if name == "mixture":
        return Route(either, infer(key, either, data, space=SPACE), "mixture", 4)
    if name == "sampled":
        return Route(hierarchy, _stand_in(), "nuts", CHAINS)
    program: Any = ordered if name == "factorised" else hierarchy
    posterior = infer(key, program, data, space=SPACE, method=name, sampler=NUTS(200, SAMPLES, CHAINS))
    return Route(program, posterior, name, CHAINS)
