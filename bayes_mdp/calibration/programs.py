"""Draws of a prior program, before any data, and the log density of its sites. Host-side."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float, PRNGKeyArray
from numpyro import handlers

from bayes_mdp.calibration.draws import Draws, block_size, of_tables
from bayes_mdp.calibration.runs import Run
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.mdp.space import PLATE_NAMES
from bayes_mdp.models.joint import Prior
from bayes_mdp.models.tracing import traced_alone
from bayes_mdp.models.world import reward_table, transition_table


def draw_program(key: PRNGKeyArray, prior: Prior, space: StateActionSpace, num_draws: int) -> Draws:
    """Independent draws of the program, with every latent site in `run.sites`."""
    size = block_size(math.prod((*space.shape, space.n_outcomes)))

    @jax.jit
    def block(keys: PRNGKeyArray) -> Any:
        return jax.vmap(lambda each: _one(prior, space, each))(keys)

    drawn = [block(jax.random.split(each, size)) for each in jax.random.split(key, -(-num_draws // size))]
    probs, rewards, sites = jax.tree.map(lambda *parts: np.concatenate(parts)[:num_draws], *drawn)
    return of_tables(probs, rewards, Run(sites))


@traced_alone
def _one(prior: Prior, space: StateActionSpace, key: PRNGKeyArray) -> tuple[Any, Any, dict[str, Any]]:
    with handlers.trace() as traced:
        world: Any = handlers.seed(prior, key)(space)
    return transition_table(world, space), reward_table(world, space), _values(traced)


def _values(traced: Mapping[str, Any]) -> dict[str, Any]:
    return {name: site["value"] for name, site in traced.items() if is_latent(site)}


def is_latent(site: Mapping[str, Any]) -> bool:
    """Whether a site of a trace is drawn, and not observed."""
    return site["type"] == "sample" and not site["is_observed"]


@traced_alone
def site_dims(prior: Prior, space: StateActionSpace) -> dict[str, tuple[str | None, ...]]:
    """Site -> the plate of the space along each of its axes; None: another axis."""
    found: dict[str, tuple[str | None, ...]] = {}

    def program(key: PRNGKeyArray) -> None:
        traced = handlers.trace(handlers.seed(prior, key)).get_trace(space)
        for name, site in traced.items():
            if is_latent(site):
                found[name] = _axes(site)

    jax.eval_shape(program, jax.random.key(0))
    return found


def _axes(site: Mapping[str, Any]) -> tuple[str | None, ...]:
    batch = len(site["fn"].batch_shape)
    axes: list[str | None] = [None] * jnp.ndim(site["value"])
    for frame in site["cond_indep_stack"]:
        place = batch + frame.dim
        if frame.name in PLATE_NAMES and jnp.shape(site["value"])[place] == frame.size:
            axes[place] = frame.name
    return tuple(axes)


def log_prior(
    prior: Prior, space: StateActionSpace, sites: Mapping[str, Float[np.ndarray, "N ..."]]
) -> dict[str, Float[np.ndarray, " N"]]:
    """Log density of each of `sites` given its parents, in float64, at N values of them.

    What of the program is not in `sites` is drawn anew: it must not be among their parents.
    """

    def one(values: Mapping[str, Any]) -> dict[str, Any]:
        substituted = handlers.substitute(handlers.seed(prior, jax.random.key(0)), data=dict(values))
        traced = handlers.trace(substituted).get_trace(space)
        return {name: _log_density(traced[name]) for name in values}

    with jax.enable_x64(True):
        density = jax.jit(jax.vmap(one))(jax.tree.map(np.array, dict(sites)))
        return {name: np.asarray(values) for name, values in density.items()}


def _log_density(site: Mapping[str, Any]) -> Any:
    law: dist.Distribution = site["fn"]
    terms = law.log_prob(site["value"])
    return jnp.sum(terms if site["scale"] is None else site["scale"] * terms)
