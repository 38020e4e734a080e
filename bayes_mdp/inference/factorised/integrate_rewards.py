"""The posterior of what is behind the rewards by importance sampling, where it has no closed form: no chains."""

from contextlib import suppress
from functools import lru_cache

import jax
import numpy as np
from jaxtyping import Float

from bayes_mdp.inference.draws.chains import traced_latents
from bayes_mdp.inference.factorised.cells import CellModel, find_cells, integrate_cells
from bayes_mdp.inference.factorised.sampled_rewards import SampledRewards
from bayes_mdp.inference.integrals.importance import (
    MOST_NUMBERS,
    effective_size,
    integrate_by_draws,
    smooth_tail,
    standard_error,
)
from bayes_mdp.inference.integrals.integration import Integration, integration_of
from bayes_mdp.inference.integrals.modes import search
from bayes_mdp.inference.integrals.quadrature import NotIntegrableError
from bayes_mdp.inference.integrals.unconstrained_model import UnconstrainedModel, Values
from bayes_mdp.inference.sampled.conditioned_program import DataStatistics, Rows, conditioned
from bayes_mdp.inference.sampled.recipe import Recipe
from bayes_mdp.numerics.host_program import HostProgram


def can_be_integrated(recipe: Recipe) -> bool:
    """Whether its sites are proper, continuous and not too many for importance sampling."""
    model = model_of(recipe)
    return not recipe.improper and not model.held and model.dimension <= MOST_NUMBERS


DRAWS = 1000
"""Whose reward laws are computed at once."""


@lru_cache(maxsize=64)
def model_of(recipe: Recipe) -> UnconstrainedModel:
    """The density of the sites behind the rewards, given data.

    Args:
        recipe: of the rewards.
    """
    assert recipe.prior is not None
    model = conditioned(recipe.prior, recipe.space, rewards_only=recipe.rewards_only)
    sites = traced_latents(model, None)
    shapes = {site["name"]: jax.ShapeDtypeStruct(np.shape(site["value"]), site["value"].dtype) for site in sites}
    discrete = {site["name"] for site in sites if site["fn"].support.is_discrete}
    free = {name: x for name, x in shapes.items() if name not in discrete}
    return UnconstrainedModel(model, free, {name: shapes[name] for name in discrete}, {})


cells_of = lru_cache(maxsize=64)(find_cells)


def integrate_rewards(
    recipe: Recipe, data: DataStatistics, rng: np.random.Generator, near: Values | None = None
) -> tuple[dict[str, np.ndarray], Float[np.ndarray, " N"], Integration]:
    """Draws of the sites {site: [N ...]}, their log weights, and how good they are. Host side.

    Args:
        recipe: of the rewards.
        data: all data.
        rng: of the draws.
        near: values [n ...] of the sites about which the posterior is expected; None: nothing is known.

    Raises:
        NotIntegrableError: the weights are not to be relied on; says why.
    """
    model = model_of(recipe)
    expected = None if near is None else model.unconstrained(near, {}, data)
    # Draws of the prior show the scale of every number.
    draws, cells, found = model.unconstrained(model.draws(rng), {}), cells_of(recipe), None
    if cells is not None and isinstance(data, Rows):
        with suppress(NotIntegrableError):  # all numbers at once, below
            found = integrate_cells(CellModel(model, cells, data), rng, draws, expected)
    if found is None:
        density = model.log_density({}, data)
        looked = search(density, draws, expected)
        if looked is None:
            raise NotIntegrableError("no draw of the prior has a finite density")
        drawn = integrate_by_draws(rng, density, looked.modes)
        found = drawn, model.place(drawn.points, {}, data).values
    drawn, values = found
    integration = integration_of(drawn.log_evidence, drawn.error, drawn.effective, drawn.pareto_k, model.dimension)
    return values, drawn.log_weights, integration


def weighted_rewards(
    recipe: Recipe, data: DataStatistics, rng: np.random.Generator, near: Values | None = None
) -> SampledRewards:
    """The belief about the rewards by importance sampling. Host side.

    Raises:
        NotIntegrableError: as `integrate_rewards`, whose arguments these are.
    """
    sites, log_weights, integration = integrate_rewards(recipe, data, rng, near)
    table = _tables(recipe).in_blocks(DRAWS, sites)
    return SampledRewards(  # pyright: ignore[reportCallIssue] (it takes abstract variables for fields)
        sites, table, log_weights, data, None, recipe, integration
    )


@lru_cache(maxsize=64)
def _tables(recipe: Recipe) -> HostProgram:
    return HostProgram(recipe.reward_tables)


def rate_weights(log_weights: Float[np.ndarray, " N"], log_evidence: float, numbers: int) -> Integration:
    """The record of an integral whose draws have these weights.

    Args:
        log_weights: of the draws, up to a constant.
        log_evidence: log of the integral.
        numbers: continuous numbers that were integrated over.
    """
    smoothed, k = smooth_tail(log_weights)
    error = standard_error(log_weights)
    return integration_of(log_evidence, error, effective_size(smoothed), k, numbers)
