"""The kinds of posterior that this package analyses: what they do not have in common, and the prior behind each."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float, PRNGKeyArray, Shaped

from bayes_mdp.inference.collapsed.collapsed_posterior import CollapsedPosterior
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.draws.chains import Chains
from bayes_mdp.inference.draws.methods import NUTS
from bayes_mdp.inference.factorised.factorised_posterior import FactorisedPosterior
from bayes_mdp.inference.mixtures.mixture import Mixture
from bayes_mdp.inference.mixtures.mixture_posterior import MixturePosterior
from bayes_mdp.inference.pooled.pooled_posterior import PooledPosterior
from bayes_mdp.inference.sampled.recipe import Recipe
from bayes_mdp.inference.sampled.sampled_posterior import SampledPosterior
from bayes_mdp.models.mdp_spec import Prior
from bayes_mdp.utils.typing import AnyArray
from bayes_mdp.utils.validation import check_count, check_key, described

FittedPosterior = ConjugatePosterior | Mixture | CollapsedPosterior | PooledPosterior | SampledPosterior
Reference = ConjugatePosterior | SampledPosterior  # what holds the data statistics
NO_PROGRAM = "the posterior was built without a program, or loaded from a file, which holds none"


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


def reference(posterior: FittedPosterior) -> Reference:
    """The posterior whose data statistics and tables stand for `posterior`: of a mixture its first component."""
    return posterior.component(0) if isinstance(posterior, MixturePosterior) else posterior


def rewards_by_outcome(of: Reference) -> bool:
    """Whether the cells of the reward law have the outcome as last axis."""
    return of.rewards.by_outcome if isinstance(of, SampledPosterior) else of.rewards_by_outcome


def law_of_one_reward(of: Reference) -> type[dist.Distribution] | None:
    """The type of the law of one reward; None: rewards are known numbers."""
    if not isinstance(of, SampledPosterior):
        return of.reward_cells.law
    return None if of.rewards.law is None else type(of.rewards.law)


def why_no_prior(posterior: FittedPosterior) -> str | None:
    """Why its prior cannot be drawn from, in words; None: it can."""
    if isinstance(posterior, Mixture):
        known = posterior.log_prior is not None or np.isfinite(_evidence(posterior)).all()
        return None if known else "the evidence of a component is not known, nor the weights before the data"
    recipe = recipe_of(posterior)
    if isinstance(posterior, ConjugatePosterior) and recipe is None:
        return None
    if recipe is not None and recipe.improper:
        names = ", ".join(map(repr, recipe.improper))
        return f"the prior is improper: ImproperUniform at {names} is no distribution to draw from"
    if program_of(posterior) is None:
        return NO_PROGRAM
    if isinstance(posterior, PooledPosterior):
        return posterior.why_no_prior()
    drawable = recipe is not None and recipe.drawable
    if isinstance(posterior, CollapsedPosterior):
        drawable = posterior.hierarchy is not None and posterior.hierarchy.program.drawable
    bent = "the program has a factor, an observation, a scale or a mask: running it does not draw from the prior"
    return None if drawable else bent


def recipe_of(posterior: FittedPosterior) -> Recipe | None:
    """How its draws were made: of a whole program, or of the rewards beside exact rows; None: by no such recipe."""
    if isinstance(posterior, FactorisedPosterior):
        return posterior.rewards.recipe
    return posterior.recipe if isinstance(posterior, SampledPosterior) else None


def _evidence(posterior: Mixture) -> Float[np.ndarray, " K"]:
    """Log evidence of the components that the data leave possible; zero for others."""
    possible = np.isfinite(np.asarray(posterior.log_weights))
    return np.array(
        [float(posterior.component(k).log_evidence) if each else 0.0 for k, each in enumerate(possible.tolist())]
    )


def program_of(posterior: object) -> Prior | None:
    """The prior program; None: a posterior that was built without one, or loaded, or is of no kind of this package."""
    if isinstance(posterior, SampledPosterior):
        return posterior.recipe.prior
    if isinstance(posterior, CollapsedPosterior):
        return None if posterior.hierarchy is None else posterior.hierarchy.program.prior
    return getattr(posterior, "program", None)


def nuts_options(posterior: FittedPosterior) -> NUTS | None:
    """How its chains were run; None: by no chains."""
    if isinstance(posterior, CollapsedPosterior):
        return posterior.options
    recipe = recipe_of(posterior)
    return recipe.method if recipe is not None and isinstance(recipe.method, NUTS) else None


def sites_of(posterior: FittedPosterior) -> Mapping[str, Shaped[AnyArray, "K ..."]]:
    """Draws of the latent sites that the posterior holds by name: site -> [K ...]."""
    if isinstance(posterior, CollapsedPosterior | Mixture | PooledPosterior):
        return posterior.hyperparameters
    if isinstance(posterior, FactorisedPosterior):
        return posterior.rewards.sites
    return posterior.sites if isinstance(posterior, SampledPosterior) else {}


def chains_of(posterior: FittedPosterior) -> Chains | None:
    """The Markov chains behind a posterior; None: there are none."""
    by_chains = isinstance(posterior, CollapsedPosterior | FactorisedPosterior | PooledPosterior | SampledPosterior)
    return posterior.mcmc if by_chains else None


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
