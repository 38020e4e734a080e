"""`sampled_fit`: the sampled route, with the data as arguments."""

from collections.abc import Mapping
from functools import lru_cache, partial

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from bayes_mdp.inference.compiled_fit import Fit
from bayes_mdp.inference.conjugate.refit import padded_log
from bayes_mdp.inference.draws.methods import NUTS, SVI, Method
from bayes_mdp.inference.sampled.conditioned_program import DataStatistics, add_data, with_capacity
from bayes_mdp.inference.sampled.impossible_data import PossibleOutcomes
from bayes_mdp.inference.sampled.prior_rows import check_drawn_rows, check_rows_of_prior, rows_of_prior
from bayes_mdp.inference.sampled.recipe import Recipe, recipe_for
from bayes_mdp.inference.sampled.sampled_posterior import SampledPosterior, after_on_host, from_draws, posterior_after
from bayes_mdp.mdp import Counts, StateActionSpace, Transitions
from bayes_mdp.models.isolate import isolated_prior
from bayes_mdp.models.mdp_spec import Prior
from bayes_mdp.models.tracing import tracing
from bayes_mdp.utils.typing import AnyArray


def sampled_fit(
    prior: Prior, space: StateActionSpace, method: Method, improper: Mapping[str, str] | None = None
) -> Fit[SampledPosterior]:
    """Inference of any program by NUTS, variational inference or Laplace. Host side; nothing is compiled yet.

    Programs that compute the same share one fit.

    Args:
        prior: a NumPyro program, space -> `MDPSpec`.
        space: what is known before any data.
        method: `NUTS(...)`, `SVI(...)` or `Laplace(...)`.
        improper: as for `recipe_for`.

    Raises:
        ValueError: no latent site, two sites of one name or with a name of the library's own, a site to be enumerated.
        TypeError: the program does not return a `MDPSpec`; a method that is none of the records.
    """
    with tracing():
        return _fit_of(recipe_for(isolated_prior(prior), space, method, improper=improper))


@lru_cache(maxsize=64)
def _fit_of(recipe: Recipe) -> Fit[SampledPosterior]:
    def infer(key: PRNGKeyArray, data_statistics: DataStatistics) -> SampledPosterior:
        return posterior_after(recipe, key, data_statistics)

    nothing = jax.jit(lambda key, data_statistics: from_draws(recipe, recipe.draw_prior(key), data_statistics))

    possible = PossibleOutcomes(recipe.space, partial(rows_of_prior, recipe))

    def on_host(key: PRNGKeyArray, data: Transitions | Counts | None) -> SampledPosterior:
        check_rows_of_prior(recipe)
        if data is None:
            data = no_transitions()
            if recipe.drawable:
                return jax.tree.map(np.asarray, nothing(key, statistics_on_host(recipe, data)))
        elif not (recipe.improper or recipe.rewards_only or _starts_elsewhere(recipe.method)):
            possible.check(data)
        posterior = jax.tree.map(np.asarray, after_on_host(recipe, key, statistics_on_host(recipe, data)))
        check_drawn_rows(recipe, posterior.transition_probs)
        return posterior

    return Fit(recipe.name, recipe.space, recipe.summarise, infer, on_host)


def _starts_elsewhere(method: Method) -> bool:
    """Whether the user's own kernel or guide decides where to start."""
    return (isinstance(method, NUTS) and method.kernel is not None) or (
        isinstance(method, SVI) and method.guide is not None
    )


def statistics_on_host(recipe: Recipe, data: Transitions | Counts) -> DataStatistics:
    """`recipe.summarise(data)`, checked, and counted by a program that logs of many lengths share.

    Where single rewards are kept the buffer is filled up to a power of two, so that their algorithms are shared too.

    Raises:
        ValueError, TypeError: data that the space or the prior cannot hold.
    """
    if not isinstance(data, Transitions):
        return recipe.summarise(data)
    # The data are no arguments here: their values are looked into, and nothing is computed.
    with tracing():
        shapes = jax.eval_shape(lambda: recipe.summarise(data))
    empty = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
    if not np.size(data.state):
        return empty
    # Padded to a power of two with weights zero: logs of many lengths share one compiled program.
    padded, weight = padded_log(data)
    return _add(recipe, with_capacity(empty, len(weight)), padded, weight)


@partial(jax.jit, static_argnums=0)
def _add(
    recipe: Recipe, data_statistics: DataStatistics, transitions: Transitions, weight: Float[AnyArray, " M"]
) -> DataStatistics:
    return add_data(data_statistics, transitions, weight, recipe.space, recipe.statistics_law)


def no_transitions() -> Transitions:
    """No transitions."""
    whole = np.zeros(0, int)
    return Transitions(whole, whole, np.zeros(0), whole, step=whole)
