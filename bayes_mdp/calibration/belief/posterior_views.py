"""The kinds of posterior that this package analyses, and what they do not have in common. Host-side."""

from collections.abc import Mapping

import jax
from jaxtyping import PRNGKeyArray, Shaped

from bayes_mdp.inference.collapsed.collapsed_posterior import CollapsedPosterior
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.draws.chains import Chains
from bayes_mdp.inference.mixtures.mixture import Mixture
from bayes_mdp.inference.mixtures.mixture_posterior import MixturePosterior
from bayes_mdp.inference.sampled.sampled_posterior import SampledPosterior
from bayes_mdp.mdp.typing import AnyArray
from bayes_mdp.mdp.validation import check_count, check_key, described
from bayes_mdp.models.mdp_spec import Prior

FittedPosterior = ConjugatePosterior | Mixture | CollapsedPosterior | SampledPosterior


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


def reference(posterior: FittedPosterior) -> ConjugatePosterior | SampledPosterior:
    """The posterior whose data statistics and tables stand for `posterior`: of a mixture its first component."""
    return posterior.component(0) if isinstance(posterior, MixturePosterior) else posterior


def has_prior(posterior: FittedPosterior) -> bool:
    """Whether its prior can be drawn from: the prior is proper, and its program is available if it is needed."""
    if isinstance(posterior, SampledPosterior) and posterior.recipe.improper:
        return False
    return not isinstance(posterior, CollapsedPosterior | SampledPosterior) or program_of(posterior) is not None


def program_of(posterior: FittedPosterior) -> Prior | None:
    """The prior program; None: a single closed form, or a posterior that was loaded without its program."""
    if isinstance(posterior, Mixture):
        return posterior.program
    if isinstance(posterior, SampledPosterior):
        return posterior.recipe.prior
    if isinstance(posterior, CollapsedPosterior) and posterior.hierarchy is not None:
        return posterior.hierarchy.program.prior
    return None


def sites_of(posterior: FittedPosterior) -> Mapping[str, Shaped[AnyArray, "K ..."]]:
    """Draws of the latent sites that the posterior holds by name: site -> [K ...]."""
    if isinstance(posterior, CollapsedPosterior | Mixture):
        return posterior.hyperparameters
    return posterior.sites if isinstance(posterior, SampledPosterior) else {}


def chains_of(posterior: FittedPosterior) -> Chains | None:
    """The Markov chains behind a posterior; None: there are none."""
    return posterior.mcmc if isinstance(posterior, CollapsedPosterior | SampledPosterior) else None
