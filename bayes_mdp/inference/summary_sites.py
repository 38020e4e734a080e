"""Latent sites of a posterior in words: how they were drawn, their moments, what is wrong with the draws."""

from typing import Any

import numpy as np
from jaxtyping import Float

from bayes_mdp.inference.chains import Chains
from bayes_mdp.inference.collapsed import CollapsedPosterior
from bayes_mdp.inference.componentwise import Componentwise
from bayes_mdp.inference.derived import tables_of
from bayes_mdp.inference.mixtures import Mixture
from bayes_mdp.inference.sampled.posterior import SampledPosterior

SHOWN_ELEMENTS = 8
"""A site with more elements is shown in one line."""
SHOWN_SITES = 12
WORN = 0.5
PROBS = (0.05, 0.95)


def sites_of(posterior: Any) -> dict[str, Float[np.ndarray, "K ..."]]:
    """Draws of the latent sites: the parents of a collapsed posterior, all of a sampled one."""
    if isinstance(posterior, CollapsedPosterior | Mixture):
        return {name: np.asarray(x, float) for name, x in posterior.hyper.items()}
    if isinstance(posterior, SampledPosterior):
        return {name: np.asarray(x, float) for name, x in posterior.sites.items()}
    return {}


def how(posterior: Any) -> str:
    """The method in words."""
    if isinstance(posterior, Mixture):
        of = f", exact, over the values of {', '.join(map(repr, posterior.hyper))}" if posterior.hyper else ""
        return f"mixture of {posterior.num_components} posteriors in closed form{of}"
    chains: Chains | None = posterior.mcmc
    if isinstance(posterior, CollapsedPosterior):
        drawn = "draws" if chains is None else f"{chains.num_chains} chains of {chains.num_samples} draws"
        return f"collapsed (latent parents by {drawn}, the rest in closed form)"
    if chains is not None:
        return f"{posterior.method} ({chains.num_chains} chains of {chains.num_samples} draws)"
    approximate = ", an approximation" if posterior.method in ("svi", "laplace") else ""
    return f"{posterior.method} ({posterior.num_draws} draws{approximate})"


def problems(posterior: Any) -> list[str]:
    """What a person must know before the draws are used, one sentence each; empty: nothing was seen."""
    if isinstance(posterior, SampledPosterior):
        return posterior.problems()
    if not isinstance(posterior, Componentwise):
        return []
    chains = posterior.mcmc if isinstance(posterior, CollapsedPosterior) else None
    found = [] if chains is None else chains.problems(tables_of(posterior))
    size, number = float(posterior.effective_sample_size()), posterior.num_components
    if isinstance(posterior, CollapsedPosterior) and size < WORN * number:
        found.append(
            f"the weights have an effective sample size of {size:.3g} of {number} components: new data moved the "
            "posterior away from the draws of the parents; call refit(key)"
        )
    return found


def notes(posterior: Any) -> list[str]:
    """What the draws of the chains cannot show, one sentence each (`Chains.notes`)."""
    chains = getattr(posterior, "mcmc", None)
    return [] if chains is None else chains.notes()


def site_lines(posterior: Any) -> list[str]:
    """A table: site, mean, sd, 90 % interval, effective sample size, r-hat (of the chains, where they were run)."""
    sites = sites_of(posterior)
    if not sites:
        return []
    weights, chains = np.asarray(posterior.weights, float), getattr(posterior, "mcmc", None)
    ess = {} if chains is None else chains.ess()
    r_hat = {} if chains is None else chains.r_hat()
    rows = [("site", "mean", "sd", "5 %", "95 %", "ess", "r-hat")]
    for name, values in list(sites.items())[:SHOWN_SITES]:
        # Values that are enumerated are no draws: they have no effective sample size.
        drawn = np.nan if isinstance(posterior, Mixture) else float(1 / (weights**2).sum())
        size = np.full(values.shape[1:], drawn) if name not in ess else ess[name]
        hat = r_hat.get(name, np.full(values.shape[1:], np.nan))
        rows += _rows(name, values, weights, (np.asarray(size), np.asarray(hat)))
    left = len(sites) - SHOWN_SITES
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = [[f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)] for row in rows]
    lines = ["  ".join(["", row[0].ljust(widths[0]), *each[1:]]) for row, each in zip(rows, padded, strict=True)]
    more = [f"  and {left} more"] if left > 0 else []
    return ["Latent sites (posterior)", *lines, *more]


def _rows(name: str, values: np.ndarray, weights: np.ndarray, quality: Any) -> list[tuple[str, ...]]:
    """One line for each element; for a large site the range of the means, the worst of the rest."""
    mean = np.tensordot(weights, values, 1)
    sd = np.sqrt(np.tensordot(weights, (values - mean) ** 2, 1))
    size, hat = quality
    if mean.size > SHOWN_ELEMENTS:
        least = np.min(size[np.isfinite(size)], initial=np.inf)
        most = np.max(hat[np.isfinite(hat)], initial=0.0) or np.nan
        span = f"{mean.min():.3g} to {mean.max():.3g}"
        label = f"{name} {tuple(mean.shape)}"
        return [(label, span, f"<= {sd.max():.3g}", "", "", f">= {least:.0f}", _hat(most, "<= "))]
    low, high = _quantiles(values, weights)
    return [
        (
            name + (str(list(index)) if index else ""),
            *(f"{x[index]:.4g}" for x in (mean, sd, low, high)),
            "-" if np.isnan(size[index]) else f"{size[index]:.0f}",
            _hat(hat[index]),
        )
        for index in np.ndindex(mean.shape)
    ]


def _hat(value: float, prefix: str = "") -> str:
    return "-" if np.isnan(value) else f"{prefix}{value:.3f}"


def _quantiles(values: Float[np.ndarray, "K ..."], weights: np.ndarray) -> list[np.ndarray]:
    """Weighted, by the inverse of the distribution function."""
    order = np.argsort(values, axis=0)
    reach = np.cumsum(weights[order], axis=0)
    ranked = np.take_along_axis(values, order, 0)
    first = [np.argmax(reach >= min(p, 1.0) * reach[-1:], axis=0) for p in PROBS]
    return [np.take_along_axis(ranked, i[None], 0)[0] for i in first]
