"""What differs between kinds of posteriors when they are shown to ArviZ. Host-side."""

from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.calibration.draws import Draws, check_draws, draw, reference
from bayes_mdp.calibration.observed import Data, Rows, before_data, observe
from bayes_mdp.calibration.programs import draw_program
from bayes_mdp.calibration.runs import Run
from bayes_mdp.inference.chains import Chains
from bayes_mdp.inference.collapsed import CollapsedPosterior
from bayes_mdp.inference.componentwise import Componentwise
from bayes_mdp.inference.mixtures import Mixture
from bayes_mdp.inference.posterior import ConjugatePosterior
from bayes_mdp.inference.sampled.posterior import SampledPosterior
from bayes_mdp.mdp import Log, Transitions
from bayes_mdp.mdp.validation import check_count, check_key, check_name, described


def check_posterior(posterior: Any, num_draws: int) -> None:
    """Refuse what cannot be shown.

    Raises:
        TypeError: no posterior of this package with rows and reward laws.
        ValueError: no draws.
    """
    if not isinstance(posterior, ConjugatePosterior | Componentwise | SampledPosterior):
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


def draws_and_rows(key: PRNGKeyArray, posterior: Any, data: Data, num_draws: int, group: str) -> tuple[Draws, Rows]:
    """Draws of the "posterior" or the "prior", and the transitions one by one.

    Raises:
        ValueError, TypeError: as `to_arviz`; data that are sums.
    """
    check_posterior(posterior, num_draws)
    check_name("group", group, ("posterior", "prior"))
    check_draws(posterior, num_draws, _number_of(data))
    rows, _ = observe(reference(posterior), data)
    if rows is None:
        raise ValueError("data holds no transitions, expected those that the posterior was inferred from")
    return (draw if group == "posterior" else draw_prior)(key, posterior, num_draws), rows


def _number_of(data: Data) -> int:
    """Transitions, where `data` holds them one by one."""
    data = data.transitions if isinstance(data, Log) else data
    return int(np.size(data.state)) if isinstance(data, Transitions) else 0


def draw_prior(key: PRNGKeyArray, posterior: Any, num_draws: int) -> Draws:
    """Draws of the belief before any data, with the sites that the posterior draws.

    Raises:
        ValueError: the posterior was loaded from a file and has no program, or its prior is improper.
    """
    if not isinstance(posterior, CollapsedPosterior | SampledPosterior):
        return draw(key, before_data(posterior), num_draws)
    check_draws(posterior, num_draws)
    if not has_prior(posterior):
        raise ValueError("the posterior has no proper prior program (one that was loaded has none), expected one")
    drawn = draw_program(key, program_of(posterior), posterior.space, num_draws)
    sites = {name: drawn.run.sites[name] for name in sites_of(posterior)}
    return drawn._replace(run=Run(sites))


def has_prior(posterior: Any) -> bool:
    """Whether draws before any data can be made."""
    if isinstance(posterior, SampledPosterior) and posterior.recipe.improper:
        return False
    return not isinstance(posterior, CollapsedPosterior | SampledPosterior) or program_of(posterior) is not None


def program_of(posterior: Any) -> Any:
    """The prior program behind a posterior that is no single closed form; None: there is none at hand."""
    if isinstance(posterior, Mixture):
        return posterior.program
    if isinstance(posterior, SampledPosterior):
        return posterior.recipe.prior
    if isinstance(posterior, CollapsedPosterior) and posterior.hierarchy is not None:
        return posterior.hierarchy.program.prior
    return None


def sites_of(posterior: Any) -> dict[str, Any]:
    """The latent sites that the posterior draws by name: site -> [K ...]."""
    if isinstance(posterior, CollapsedPosterior | Mixture):
        return posterior.hyper
    return posterior.sites if isinstance(posterior, SampledPosterior) else {}


def chains_of(posterior: Any) -> Chains | None:
    """The chains behind a posterior."""
    return posterior.mcmc if isinstance(posterior, CollapsedPosterior | SampledPosterior) else None


def method_of(posterior: Any) -> str:
    """How it was inferred, in one word."""
    return posterior.method
