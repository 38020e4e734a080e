"""The prior of a posterior in closed form: the same tables without data."""

from dataclasses import replace
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.mixtures import Mixture

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
