"""The kinds of posterior that this package analyses, the first checks of its arguments, and the prior behind each.

Host-side.
"""

from dataclasses import replace
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.inference.collapsed.collapsed_posterior import CollapsedPosterior
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.mixtures import Mixture, MixturePosterior
from bayes_mdp.inference.pooled.pooled_posterior import PooledPosterior
from bayes_mdp.inference.sampled.sampled_posterior import SampledPosterior
from bayes_mdp.models.mdp_spec import Prior
from bayes_mdp.utils.validation import check_count, check_key, described

FittedPosterior = ConjugatePosterior | Mixture | CollapsedPosterior | PooledPosterior | SampledPosterior
"""What each of them says of itself: `bayes_mdp.inference.fitted`."""
Reference = ConjugatePosterior | SampledPosterior
"""What holds the data statistics (`reference`)."""


def check_posterior(posterior: FittedPosterior, num_draws: int) -> None:
    """Refuse anything but a posterior with transition rows and reward laws, and a number of draws below one.

    Raises:
        TypeError: no posterior of this package with rows and reward laws.
        ValueError: no draws.
    """
    if not isinstance(posterior, ConjugatePosterior | MixturePosterior | SampledPosterior):
        raise TypeError(f"posterior is {described(posterior)}, expected one as infer returns it, or a mixture")
    check_count("num_draws", num_draws)


def key_or_first(key: PRNGKeyArray | None) -> PRNGKeyArray:
    """`key`, or `jax.random.key(0)` for None.

    Raises:
        TypeError: no typed key.
    """
    key = jax.random.key(0) if key is None else key
    check_key("key", key)
    return key


def program_of(posterior: object) -> Prior | None:
    """The prior program; None: a posterior that was built without one, or loaded, or is of no kind of this package."""
    if isinstance(posterior, MixturePosterior | SampledPosterior):
        recipe = posterior.drawn_by  # pyright: ignore[reportArgumentType] - all mixtures of this package are fitted
        return posterior.reference.program if recipe is None else recipe.prior  # pyright: ignore
    return getattr(posterior, "program", None)


Exact = TypeVar("Exact", bound=ConjugatePosterior | Mixture)


def before_data(posterior: Exact) -> Exact:
    """The prior of this posterior. Of a mixture: the priors of its components, with their prior weights."""
    if isinstance(posterior, Mixture):
        with jax.enable_x64(True):
            return jax.tree.map(np.asarray, _mixture_before_data(jax.tree.map(np.array, posterior)))
    rows = posterior.transition_probs.unlisted()
    rows = eqx.tree_at(lambda r: r.counts, rows, np.zeros(rows.prior.shape, rows.prior.dtype))
    prior = eqx.tree_at(lambda p: p.transition_probs, posterior, rows)
    return replace(prior, reward_cells=posterior.reward_cells.before_data())


@jax.jit
def _mixture_before_data(posterior: Mixture) -> Mixture:
    """Bayes' rule backwards: prior weight = posterior weight / evidence. What the data have ruled out stays so."""
    evidence = jax.vmap(lambda component: component.log_evidence)(posterior.components)
    components = jax.vmap(before_data)(posterior.components)
    known = posterior.log_prior
    backwards = jnp.where(posterior.log_weights > -jnp.inf, posterior.log_weights - evidence, -jnp.inf)
    weights = backwards if known is None else known - jax.nn.logsumexp(known)
    return replace(posterior, components=components, log_weights=weights)
