"""Draws of the prior behind a posterior. Host-side."""

import math
from typing import cast

import jax
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray
from numpyro import handlers

from bayes_mdp.calibration.belief.before_data import before_data
from bayes_mdp.calibration.belief.closed_form_draws import block_size
from bayes_mdp.calibration.belief.draws import Draws, of_tables, run_in_parts
from bayes_mdp.calibration.belief.parameter_draws import check_draws, draw
from bayes_mdp.calibration.belief.posterior_views import FittedPosterior
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.mixtures import Mixture
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.models.isolate import traced_alone
from bayes_mdp.models.mdp_spec import MDPSpec, Prior, RewardTable, reward_table, transition_table


def draw_prior(key: PRNGKeyArray, posterior: FittedPosterior, num_draws: int) -> Draws:
    """Independent draws of the prior, with the values of all sites of the program that are known.

    Raises:
        ValueError: it cannot be drawn from (`why_no_prior`).
    """
    why = posterior.why_no_prior()
    if why is not None:
        raise ValueError(f"posterior has no prior to draw from, expected a proper one and its program: {why}")
    if isinstance(posterior, ConjugatePosterior | Mixture) and posterior.in_closed_form:
        return draw(key, before_data(posterior), num_draws)
    check_draws(posterior, num_draws)
    program = posterior.program
    assert program is not None  # else there is no prior
    return draw_program(key, program, posterior.space, num_draws)


def draw_program(key: PRNGKeyArray, prior: Prior, space: StateActionSpace, num_draws: int) -> Draws:
    """Independent draws of the program, with every latent site in `run.sites`."""
    size = block_size(math.prod((*space.shape, space.n_outcomes)))

    @jax.jit
    def block(keys: Key[Array, " N"]) -> tuple[Array, RewardTable, dict[str, Array]]:
        return jax.vmap(lambda each: _run_program(prior, space, each))(keys)

    drawn = [block(jax.random.split(each, size)) for each in jax.random.split(key, -(-num_draws // size))]
    probs, rewards, sites = jax.tree.map(lambda *parts: np.concatenate(parts)[:num_draws], *drawn)
    return of_tables(probs, rewards, run_in_parts(num_draws, sites))


@traced_alone
def _run_program(
    prior: Prior, space: StateActionSpace, key: PRNGKeyArray
) -> tuple[Float[Array, "*H S A O"], RewardTable, dict[str, Array]]:
    """Rows, reward law and latent sites of one draw."""
    with handlers.trace() as traced:
        spec = cast(MDPSpec, handlers.seed(prior, key)(space))
    drawn = {name: site for name, site in traced.items() if site["type"] == "sample" and not site["is_observed"]}
    latent = {name: site["value"] for name, site in drawn.items()}
    return transition_table(spec, space), reward_table(spec, space), latent
