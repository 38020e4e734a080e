"""The algorithms that draw from a posterior, NUTS, variational inference and Laplace's method, and what they hand over.

`Drawn` holds the draws, and says whether they can be trusted.
"""

import warnings
from collections.abc import Mapping
from typing import cast

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro import handlers
from numpyro import infer as numpyro_infer
from numpyro.infer.autoguide import AutoGuide, AutoLaplaceApproximation, AutoNormal
from numpyro.optim import Adam

from bayes_mdp.inference.draws.chains import NO_TABLES, Chains, Model, Scalars, latent_sites, run_chains
from bayes_mdp.inference.draws.methods import NUTS, SVI, Laplace
from bayes_mdp.inference.sampled.conditioned_program import DataStatistics
from bayes_mdp.models.isolate import tracing
from bayes_mdp.utils.typing import AnyArray

WINDOW = 0.25
"""Share of the steps of an optimiser that is compared with the share before it."""
MIN_WINDOW = 25
"""Steps of such a share, below which their mean is too noisy."""
MAX_FALL = 0.1
"""Fall of the mean loss between the two, in nats, that counts as "still falling"."""
MAX_NOISE = 3.0
"""Standard errors that it must exceed."""


class Drawn(eqx.Module):
    """Draws of the latent sites from one run of one algorithm.

    Args:
        sites: site -> [N ...].
        mcmc: the chains, for MCMC; else None.
        losses: [K], the negative evidence lower bound (Laplace: the negative log density) at every step of the
            optimiser, for what optimises; else None.
    """

    sites: Mapping[str, AnyArray]
    mcmc: Chains | None
    losses: Float[AnyArray, " K"] | None

    def problems(self, tables: Mapping[str, Scalars] = NO_TABLES) -> list[str]:
        """Problems to know of before these draws are used, one sentence each. Host side.

        Args:
            tables: as for `Chains.problems`.
        """
        if self.mcmc is not None:
            return self.mcmc.problems(tables)
        return _optimiser(self.losses) + _degenerate(self.sites)


def few_draws_left(effective: float, num_draws: int) -> list[str]:
    """A sentence, where new data have left the weights worth fewer than two draws; else none.

    Args:
        effective: sample size of the weights.
        num_draws: that they are of.
    """
    # Below two effective draws the weights describe one point.
    if effective >= 2.0 or num_draws <= 1:
        return []
    return [
        f"the weights have an effective sample size of {effective:.3g} of {num_draws} draws: new data moved the "
        "posterior away from the draws; call refit(key)"
    ]


def _optimiser(losses: Float[AnyArray, " K"] | None) -> list[str]:
    if losses is None:
        return []
    losses = np.asarray(losses, np.float64)
    finite = np.isfinite(losses)
    if not finite.any():
        return [
            "the loss is not finite at any step: the data are impossible under the prior wherever it looked; compare "
            "the rewards with the support of the reward law, the transitions with rows that hold zeros"
        ]
    # The last two windows of the loss are compared: a fall larger than its noise means no convergence yet.
    width = int(WINDOW * len(losses))
    if width < MIN_WINDOW:
        return [f"the optimiser made {len(losses)} steps, too few to see whether it arrived: give more (num_steps=)"]
    before, after = losses[-2 * width : -width], losses[-width:]
    if not np.isfinite(after).all():
        bad = int((~np.isfinite(after)).sum())
        return [f"the loss is not finite at {bad} of the last {width} steps: give a smaller learning_rate"]
    fall = before.mean() - after.mean()
    # Standard error of the difference of two means of a window each.
    noise = np.sqrt((before.var() + after.var()) / width)
    if fall > max(MAX_FALL, MAX_NOISE * noise):
        return [
            f"the loss is still falling (by {fall:.2g} over the last {width} of {len(losses)} steps): give more steps "
            "(num_steps=) or a larger learning_rate"
        ]
    return []


def _degenerate(sites: Mapping[str, AnyArray]) -> list[str]:
    """Sites whose draws are not finite, or one point."""
    for name, values in sites.items():
        array = np.asarray(values)
        # Finite and not one point: all that can be seen of independent draws.
        if not np.isfinite(array).all():
            return [f"site {name!r} has draws that are not finite: give a smaller learning_rate, or method=NUTS()"]
        if len(array) > 1 and array.size and (array == array[:1]).all():
            return [
                f"the draws of site {name!r} are one point (the curvature at the mode is not positive, or the guide is "
                "a Delta): use SVI with AutoNormal, or NUTS"
            ]
    return []


def by_nuts(key: PRNGKeyArray, model: Model, data_statistics: DataStatistics, method: NUTS) -> Drawn:
    """All draws of all chains, one chain after the other. Traceable.

    Raises:
        ValueError, TypeError: as `run_chains`.
    """
    chains = run_chains(key, model, data_statistics, method)
    # [C N ...] to [C N ...] flattened, chain after chain.
    sites = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), chains.draws)
    return Drawn(sites, chains, None)


def by_svi(key: PRNGKeyArray, model: Model, data_statistics: DataStatistics, method: SVI) -> Drawn:
    """Draws from a guide fitted by the evidence lower bound. Traceable.

    A mean-field guide (the default) ignores posterior correlations: its means are close, its variances can be wrong.

    Raises:
        ValueError: discrete latent sites; a guide that misses a site.
        TypeError: `method.guide` does not return a guide.
    """
    # Maximise the evidence lower bound over the parameters of the guide, then draw from the fitted guide.
    # AutoNormal is mean-field: independent normals on the unconstrained scale.
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
    # A program of the user's as guide: its own draws.
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
    # The fitted guide is run once more to see which sites it has.
    fitted = handlers.substitute(handlers.seed(guide, key), data=result.params)
    sites = handlers.trace(fitted).get_trace(data_statistics)
    missing = [name for name in latents if name not in sites]
    if missing:
        raise ValueError(
            f"guide: site {missing[0]!r} of the program is missing, expected a guide with all of {', '.join(latents)}"
        )
    return result.params, result.losses, latents


def by_laplace(key: PRNGKeyArray, model: Model, data_statistics: DataStatistics, method: Laplace) -> Drawn:
    """Draws from the normal at the mode of the unconstrained posterior, its precision the curvature there. Traceable.

    The mode of a skewed posterior (a Dirichlet with few counts) is not its mean, and neither is the centre of these
    draws.

    Raises:
        ValueError: discrete latent sites.
    """
    key_fit, key_draw = jax.random.split(key)
    # The optimiser finds the mode; the normal there is the approximation.
    guide = AutoLaplaceApproximation(model)
    params, losses, latents = fit_guide(key_fit, model, guide, data_statistics, method)
    draws = guide.sample_posterior(key_draw, params, sample_shape=(method.num_samples,))
    return Drawn({name: draws[name] for name in latents}, None, losses)
