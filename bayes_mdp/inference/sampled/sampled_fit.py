"""`sampled_fit`: the sampled route, with the data as arguments."""

from collections.abc import Mapping
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro.distributions import biject_to
from numpyro.infer.util import potential_energy

from bayes_mdp.inference.compiled_fit import Fit
from bayes_mdp.inference.conjugate.conjugate_posterior import padded_log
from bayes_mdp.inference.draws.chains import traced_latents
from bayes_mdp.inference.draws.methods import NUTS, SVI, Method
from bayes_mdp.inference.sampled.conditioned_program import DataStatistics, add_data, conditioned, with_capacity
from bayes_mdp.inference.sampled.impossible_data import PossibleOutcomes
from bayes_mdp.inference.sampled.prior_rows import check_drawn_rows, check_rows_of_prior, rows_of_prior
from bayes_mdp.inference.sampled.recipe import Recipe, recipe_for
from bayes_mdp.inference.sampled.sampled_posterior import SampledPosterior, after_on_host, from_draws, posterior_after
from bayes_mdp.mdp import Counts, StateActionSpace, Transitions
from bayes_mdp.models.isolate import isolated_prior
from bayes_mdp.models.mdp_spec import Prior
from bayes_mdp.models.tracing import traced_alone, tracing
from bayes_mdp.utils.typing import AnyArray, ArrayLike


def sampled_fit(prior: Prior, space: StateActionSpace, method: Method) -> Fit[SampledPosterior]:
    """Inference of any program by NUTS, variational inference or Laplace. Host side; nothing is compiled yet.

    Programs that compute the same share one fit.

    Args:
        prior: a NumPyro program, space -> `MDPSpec`.
        space: what is known before any data.
        method: `NUTS(...)`, `SVI(...)` or `Laplace(...)`.

    Raises:
        ValueError: no latent site, two sites of one name or with a name of the library's own, a site to be enumerated.
        TypeError: the program does not return a `MDPSpec`; a method that is none of the records.
    """
    with tracing():
        return _fit_of(recipe_for(isolated_prior(prior), space, method))


STEP = 1e-3
"""Of the difference quotient in `_check_gradient`."""
SLOPE_TOLERANCE = 1e-5
"""Relative."""


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
        statistics = statistics_on_host(recipe, data)
        if not isinstance(recipe.method, NUTS):
            _check_gradient(recipe, statistics)
        posterior = jax.tree.map(np.asarray, after_on_host(recipe, key, statistics))
        check_drawn_rows(recipe, posterior.transition_probs)
        return posterior

    return Fit(recipe.name, recipe.space, recipe.summarise, infer, on_host)


def _starts_elsewhere(method: Method) -> bool:
    """Whether the user's own kernel or guide decides where to start."""
    return (isinstance(method, NUTS) and method.kernel is not None) or (
        isinstance(method, SVI) and method.guide is not None
    )


def _check_gradient(recipe: Recipe, data_statistics: DataStatistics) -> None:
    """Refuse a program whose gradient is not that of its density (stop_gradient, a derivative of the user's own).

    NUTS stays right with a wrong gradient, since its draws are accepted by the density itself; an optimiser does not.
    Looked at is one direction at two points, so that this is a heuristic.

    Raises:
        ValueError: the slopes differ.
    """
    assert recipe.prior is not None
    model = conditioned(recipe.prior, recipe.space, rewards_only=recipe.rewards_only)
    sites = [site for site in traced_latents(model, data_statistics) if not site["fn"].support.is_discrete]
    rng = np.random.default_rng(0)
    # The shapes of the sites on the unconstrained scale.
    shapes = {site["name"]: biject_to(site["fn"].support).inverse_shape(site["fn"].shape()) for site in sites}

    @jax.jit
    @traced_alone
    def potential(point: Mapping[str, ArrayLike]) -> Float[Array, ""]:
        return jnp.asarray(potential_energy(model, (data_statistics,), {}, point))

    wrong = []
    for _ in range(2):
        point, direction = ({name: rng.normal(size=shape) for name, shape in shapes.items()} for _ in range(2))
        _, slope = jax.jvp(potential, (point,), (direction,))
        # Two difference quotients: what they differ by is their own error, of curvature and of rounding.
        measured = [
            sum(sign * potential({n: x + sign * step * direction[n] for n, x in point.items()}) for sign in (1, -1))
            / (2 * step)
            for step in (STEP, 2 * STEP)
        ]
        allowed = 10 * abs(measured[0] - measured[1]) + SLOPE_TOLERANCE * (1.0 + abs(slope) + abs(measured[0]))
        wrong.append(bool(abs(slope - measured[0]) > allowed))
    if all(wrong):
        raise ValueError(
            f"prior: the gradient of its density is not what the density itself shows (stop_gradient, or a derivative "
            f"of your own?), so that {type(recipe.method).__name__} would stop elsewhere, expected jax.numpy alone, or "
            "method=NUTS(), which needs no right gradient"
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
