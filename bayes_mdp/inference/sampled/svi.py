"""The posterior by stochastic variational inference."""

import warnings
from collections.abc import Mapping
from typing import cast

import jax
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro import handlers
from numpyro import infer as numpyro_infer
from numpyro.infer.autoguide import AutoGuide, AutoNormal
from numpyro.optim import Adam

from bayes_mdp.inference.draws.chains import Model, latent_sites
from bayes_mdp.inference.draws.methods import SVI, Laplace
from bayes_mdp.inference.sampled.conditioned_program import DataStatistics
from bayes_mdp.inference.sampled.sampler_output import Drawn
from bayes_mdp.models.tracing import tracing


def by_svi(key: PRNGKeyArray, model: Model, data_statistics: DataStatistics, method: SVI) -> Drawn:
    """Draws from a guide fitted by the evidence lower bound. Traceable.

    A mean-field guide (the default) ignores posterior correlations: its means are close, its variances can be wrong.

    Raises:
        ValueError: discrete latent sites; a guide that misses a site.
        TypeError: `method.guide` does not return a guide.
    """
    # Maximise the evidence lower bound over the parameters of the guide, then draw from the fitted guide.
    key_fit, key_draw = jax.random.split(key)
    guide = AutoNormal(model) if method.guide is None else method.guide(model)
    if not callable(guide):
        raise TypeError(
            f"method.guide returned a {type(guide).__name__}, expected a NumPyro autoguide or a program, "
            "as in SVI(guide=lambda model: AutoMultivariateNormal(model))"
        )
    params, losses, latents = fit_guide(key_fit, model, guide, data_statistics, method)
    draws: Mapping[str, Array]
    if isinstance(guide, AutoGuide):
        draws = cast(dict[str, Array], guide.sample_posterior(key_draw, params, sample_shape=(method.num_samples,)))
    else:
        draws = numpyro_infer.Predictive(guide, params=params, num_samples=method.num_samples)(
            key_draw, data_statistics
        )
    return Drawn({name: draws[name] for name in latents}, None, losses)


def fit_guide(
    key: PRNGKeyArray, model: Model, guide: Model, data_statistics: DataStatistics, method: SVI | Laplace
) -> tuple[dict[str, Array], Float[Array, " K"], tuple[str, ...]]:
    """Adam on the parameters of `guide`: (parameters, losses, names of the latent sites). Traceable.

    Raises:
        ValueError: discrete latent sites; a guide that misses a site.
    """
    discrete, latents, _ = latent_sites(model, data_statistics)
    if discrete:
        raise ValueError(
            f"site {next(iter(discrete))!r} is discrete, which {type(method).__name__} cannot do, expected continuous "
            "sites, or method=NUTS()"
        )
    svi = numpyro_infer.SVI(model, guide, Adam(method.learning_rate), numpyro_infer.Trace_ELBO())
    with tracing(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Found vars in model but not guide")  # an error below
        # A step that is not finite is not taken: one of them would end everything.
        result = svi.run(key, method.num_steps, data_statistics, progress_bar=False, stable_update=True)
    fitted = handlers.substitute(handlers.seed(guide, key), data=result.params)
    sites = handlers.trace(fitted).get_trace(data_statistics)
    missing = [name for name in latents if name not in sites]
    if missing:
        raise ValueError(
            f"guide: site {missing[0]!r} of the program is missing, expected a guide with all of {', '.join(latents)}"
        )
    return result.params, result.losses, latents
