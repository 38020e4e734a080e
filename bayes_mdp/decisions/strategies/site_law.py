"""`SiteLaw`: the law of one site of a decision model, its conjugate data, and what data of a study would make of it.

Everything is numpy in float64. Parameters may have axes in front (one law for each simulated data set): they broadcast.
Random numbers come in as uniforms, so that scrambled Sobol points can be used in the place of independent draws.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy import special, stats

from bayes_mdp.utils.typing import ArrayLike

Parameters = Mapping[str, np.ndarray]

CONJUGATE_DATA = {
    "Dirichlet": "multinomial counts",
    "Beta": "binomial counts",
    "Gamma": "Poisson counts",
    "Normal": "normal measurements of known sd",
}
"""Families that data update in closed form, and which data."""
FAMILIES = (*CONJUGATE_DATA, "LogNormal", "Uniform", "MultivariateNormal")
"""Families whose laws are known here; sites of others are drawn by running the program."""
_VECTORS = ("Dirichlet", "MultivariateNormal")
_TINY = 2.0**-53  # 1 - 2^-53 is the largest float below 1


@dataclass(frozen=True)
class SiteLaw:
    """A site whose elements (rows, for vectors) are independent.

    Args:
        family: one of `FAMILIES`.
        parameters: Dirichlet: `concentration` [*B *R K]; Beta: `concentration1`, `concentration0`; Gamma:
            `concentration`, `rate`; Normal: `loc`, `scale`; LogNormal: `loc`, `scale` of the logarithm; Uniform: `low`,
            `high`; MultivariateNormal: `loc` [*B *R K], `scale_tril` [*B *R K K].
        shape: [*R] or [*R K], of a value.
    """

    family: str
    parameters: Parameters
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements of a value."""
        return int(np.prod(self.shape))

    def mean(self) -> Float[np.ndarray, "*value"]:
        """The mean, [*B *shape]."""
        p = self.parameters
        match self.family:
            case "Dirichlet":
                value = p["concentration"] / p["concentration"].sum(-1, keepdims=True)
            case "Beta":
                value = p["concentration1"] / (p["concentration1"] + p["concentration0"])
            case "Gamma":
                value = p["concentration"] / p["rate"]
            case "LogNormal":
                # exp(m + s^2 / 2), the mean of a lognormal.
                value = np.exp(p["loc"] + p["scale"] ** 2 / 2)
            case "Uniform":
                value = (p["low"] + p["high"]) / 2
            case _:
                value = p["loc"]
        return np.asarray(value)

    def sample(self, rng: np.random.Generator, number: int) -> Float[np.ndarray, "number *value"]:
        """Independent draws; the parameters have no axes in front."""
        p, size = self.parameters, (number, *self.shape)
        match self.family:
            case "Dirichlet":
                rows = p["concentration"].reshape(-1, self.shape[-1])
                # One row at a time: numpy's sampler of a row is right for small concentrations too.
                return np.stack([rng.dirichlet(row, number) for row in rows], axis=1).reshape(size)
            case "Beta":
                return rng.beta(p["concentration1"], p["concentration0"], size)
            case "Gamma":
                return rng.gamma(p["concentration"], 1 / p["rate"], size)
        # Others by inversion.
        return self.quantiles(rng.random((number, self.size)))

    def quantiles(self, uniforms: Float[np.ndarray, "number size"]) -> Float[np.ndarray, "number *value"]:
        """Values at uniforms: uniform numbers give values with this law; axes in front of parameters are `number`."""
        # 0 and 1 have infinite quantiles in some families.
        p, u = self.parameters, np.clip(uniforms, _TINY, 1 - _TINY).reshape(-1, *self.shape)
        match self.family:
            case "Dirichlet":
                # In logarithms where the quantile of a gamma is below the smallest float: P(a, x) ~ x^a / Gamma(a + 1).
                a = p["concentration"]
                small = (np.log(u) + special.gammaln(a + 1)) / np.where(a > 0, a, 1)
                plain = special.gammaincinv(a, u)
                with np.errstate(divide="ignore"):
                    logs = np.where(plain > 1e-200, np.log(plain), small)
                # Gammas over their sum, in logarithms: a softmax.
                return special.softmax(np.where(a > 0, logs, -np.inf), axis=-1)
            case "Beta":
                return special.betaincinv(p["concentration1"], p["concentration0"], u)
            case "Gamma":
                return special.gammaincinv(p["concentration"], u) / p["rate"]
            case "LogNormal":
                return np.exp(p["loc"] + p["scale"] * special.ndtri(u))
            case "Uniform":
                return p["low"] + u * (p["high"] - p["low"])
            case "MultivariateNormal":
                # m + L z with L L' the covariance.
                return p["loc"] + np.einsum("...ij,...j->...i", p["scale_tril"], special.ndtri(u))
        return p["loc"] + p["scale"] * special.ndtri(u)

    def partial_moments(
        self, upper: Float[np.ndarray, "..."]
    ) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
        """P(x <= upper) and E[x; x <= upper] of a site of one element."""
        p = {name: value.reshape(()) for name, value in self.parameters.items()}
        mean = self.mean().reshape(())
        match self.family:
            case "Beta":
                # E[x; x <= u] = mean P(a + 1 law <= u): the size-biased law is one of the family.
                a, b, x = p["concentration1"], p["concentration0"], np.clip(upper, 0, 1)
                moments = special.betainc(a, b, x), mean * special.betainc(a + 1, b, x)
            case "Gamma":
                a, x = p["concentration"], np.maximum(upper, 0) * p["rate"]
                moments = special.gammainc(a, x), mean * special.gammainc(a + 1, x)
            case "LogNormal":
                with np.errstate(divide="ignore"):
                    z = (np.log(np.maximum(upper, 0)) - p["loc"]) / p["scale"]
                # E[x; x <= u] of a lognormal: the mean times the law shifted by s^2.
                moments = special.ndtr(z), mean * special.ndtr(z - p["scale"])
            case "Uniform":
                x, width = np.clip(upper, p["low"], p["high"]), p["high"] - p["low"]
                # Uniform: (x^2 - low^2) / 2 width.
                moments = (x - p["low"]) / width, (x**2 - p["low"] ** 2) / (2 * width)
            case _:
                z = (upper - p["loc"]) / p["scale"]
                density = np.where(np.isinf(z), 0.0, stats.norm.pdf(z))
                # E[x; x <= u] = m Phi(z) - s phi(z).
                moments = special.ndtr(z), p["loc"] * special.ndtr(z) - p["scale"] * density
        return np.asarray(moments[0]), np.asarray(moments[1])

    def update(self, data: Parameters) -> "SiteLaw":
        """The law given sufficient statistics, which may have axes in front.

        Args:
            data: Dirichlet: `counts`; Beta: `successes`, `failures`; Gamma: `events`, `exposure`; Normal: `precision`
                (of the measurements' mean), `sum` (precision times mean).
        """
        p = self.parameters
        match self.family:
            case "Dirichlet":
                new = {"concentration": p["concentration"] + data["counts"]}
            case "Beta":
                new = {
                    "concentration1": p["concentration1"] + data["successes"],
                    "concentration0": p["concentration0"] + data["failures"],
                }
            case "Gamma":
                new = {"concentration": p["concentration"] + data["events"], "rate": p["rate"] + data["exposure"]}
            case "Normal":
                # Precisions add; the mean is weighted by them.
                precision = p["scale"] ** -2 + data["precision"]
                new = {
                    "loc": (p["loc"] * p["scale"] ** -2 + data["sum"]) / precision,
                    "scale": precision**-0.5 * np.ones_like(p["loc"]),
                }
            case _:
                raise ValueError(f"no data update a {self.family} site in closed form")
        return site_law(self.family, new, self.shape)


def site_law(family: str, parameters: Mapping[str, ArrayLike], shape: tuple[int, ...]) -> SiteLaw:
    """A `SiteLaw` of numbers of any kind."""
    return SiteLaw(family, {name: np.asarray(x, float) for name, x in parameters.items()}, shape)


@dataclass(frozen=True)
class StudiedSite:
    """A site of which a study will see data.

    Args:
        law: before the study; of a family in `CONJUGATE_DATA`.
        number: observations of each element (row, for vectors): trials, or exposure of Poisson counts.
        sd: of one measurement of a normal site.
    """

    law: SiteLaw
    number: Float[np.ndarray, "..."]
    sd: float | None = None

    @property
    def n_uniforms(self) -> int:
        """Uniform numbers that a simulated data set takes."""
        return self.law.size if self.law.family == "Normal" else 2 * self.law.size

    def simulate_law(self, uniforms: Float[np.ndarray, "number n_uniforms"]) -> SiteLaw:
        """The law after a simulated data set, one for each row of uniforms (an axis in front of the parameters)."""
        law, size, n = self.law, self.law.size, self.number
        if law.family == "Normal":
            # The mean of the measurements has the prior's mean; the posterior mean is normal with variance
            # (prior variance) - (posterior variance).
            assert self.sd is not None
            precision = np.broadcast_to(n / self.sd**2, law.shape)
            scale = law.parameters["scale"]
            # Predictive variance of the measurements' mean: prior variance plus sampling variance.
            seen = np.where(precision > 0, scale**2 + 1 / np.where(precision > 0, precision, 1), 0)
            z = special.ndtri(np.clip(uniforms, _TINY, 1 - _TINY)).reshape(-1, *law.shape)
            means = law.parameters["loc"] + np.sqrt(seen) * z
            return law.update({"precision": precision, "sum": precision * means})
        # The site's true value first, then data given it, both by inversion of uniforms.
        truth, u = law.quantiles(uniforms[:, :size]), uniforms[:, size:].reshape(-1, *law.shape)
        match law.family:
            case "Beta":
                # Inversion of the distribution function: a monotone map of uniforms, as Sobol points need.
                seen = stats.binom.ppf(u, n, truth)
                return law.update({"successes": seen, "failures": n - seen})
            case "Gamma":
                return law.update({"events": stats.poisson.ppf(u, n * truth), "exposure": n})
        # Multinomial counts as binomials of what is left, category by category.
        counts, left = np.zeros(truth.shape), np.broadcast_to(n, truth.shape[:-1]).astype(float)
        rest = 1.0 - np.concatenate([np.zeros((*truth.shape[:-1], 1)), np.cumsum(truth, -1)[..., :-1]], axis=-1)
        for k in range(truth.shape[-1] - 1):
            share = np.clip(truth[..., k] / np.maximum(rest[..., k], 1e-300), 0, 1)
            counts[..., k] = stats.binom.ppf(u[..., k], left, share)
            left = left - counts[..., k]
        counts[..., -1] = left
        return law.update({"counts": counts})

    def enumerate_laws(self, most: int) -> tuple[SiteLaw, Float[np.ndarray, " data_sets"]] | None:
        """The law after each possible data set, and the probabilities of these; None: there are more than `most`.

        Poisson counts are enumerated up to a tail of 1e-15.
        """
        law, p = self.law, self.law.parameters
        # One element, or one row.
        if law.family == "Normal" or math.prod(law.shape[:-1] if law.family in _VECTORS else law.shape) != 1:
            return None
        n = float(self.number.reshape(()))
        match law.family:
            case "Beta":
                if n + 1 > most:
                    return None
                seen = np.arange(n + 1)
                a, b = p["concentration1"].reshape(()), p["concentration0"].reshape(())
                # Beta-binomial predictive of the number of successes.
                weights = stats.betabinom.pmf(seen, int(n), a, b)
                data = {"successes": seen, "failures": n - seen}
            case "Gamma":
                a, rate = p["concentration"].reshape(()), p["rate"].reshape(())
                # Counts beyond this have probability 1e-15 together.
                # Negative binomial predictive of a Poisson count.
                last = float(stats.nbinom.isf(1e-15, a, rate / (rate + n)))
                if not last < most:
                    return None
                seen = np.arange(last + 1)
                weights = stats.nbinom.pmf(seen, a, rate / (rate + n))
                data = {"events": seen, "exposure": np.full(len(seen), n)}
            case _:
                concentration = p["concentration"].reshape(-1)
                size = len(concentration)
                # Number of vectors of K counts with sum n.
                if special.comb(n + size - 1, size - 1) > most:
                    return None
                counts = compositions(int(n), size)
                weights = np.exp(_log_dirichlet_multinomial(counts, concentration))
                data = {"counts": counts}
        shaped = {
            name: x.reshape(-1, *(law.shape if name == "counts" else p[next(iter(p))].shape))
            for name, x in data.items()
        }
        # The cut tail of Poisson counts is put back by normalising.
        return law.update(shaped), weights / weights.sum()

    def mean_law(self) -> SiteLaw | None:
        """The law of the posterior mean of a normal site; None for other families."""
        if self.law.family != "Normal":
            return None
        assert self.sd is not None
        p = self.law.parameters
        precision = np.broadcast_to(self.number / self.sd**2, self.law.shape)
        # Prior variance minus posterior variance, without the difference.
        share = p["scale"] ** 2 * precision
        scale = p["scale"] * np.sqrt(share / (1 + share))
        return site_law("Normal", {"loc": p["loc"], "scale": scale}, self.law.shape)


def compositions(total: int, size: int) -> Int[np.ndarray, "number size"]:
    """All vectors of `size` non-negative integers that add up to `total`."""
    if size == 1:
        return np.array([[total]])
    parts = []
    # First part, then all compositions of the rest.
    for first in range(total + 1):
        rest = compositions(total - first, size - 1)
        parts.append(np.hstack([np.full((len(rest), 1), first), rest]))
    return np.vstack(parts)


def _log_dirichlet_multinomial(
    counts: Int[np.ndarray, "number K"], concentration: Float[np.ndarray, " K"]
) -> Float[np.ndarray, " number"]:
    total, n = concentration.sum(), counts.sum(-1)
    # n! / prod n_k! prod rising(a_k, n_k) / rising(sum a, n).
    ways = special.gammaln(n + 1) - special.gammaln(counts + 1).sum(-1)
    rises = (special.gammaln(counts + concentration) - special.gammaln(concentration)).sum(-1)
    return ways + rises - special.gammaln(total + n) + special.gammaln(total)
