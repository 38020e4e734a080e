"""The kinds of posterior that this package analyses, and the first checks of its arguments. Host-side."""

import jax
from jaxtyping import PRNGKeyArray

from bayes_mdp.inference.collapsed.collapsed_posterior import CollapsedPosterior
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.mixtures import Mixture, MixturePosterior
from bayes_mdp.inference.pooled.pooled_posterior import PooledPosterior
from bayes_mdp.inference.sampled.sampled_posterior import SampledPosterior
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
