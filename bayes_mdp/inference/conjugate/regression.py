"""`RegressionRewards`: normal rewards whose means are linear in unknown weights, conjugate linear regression.

A reward of cell c is Normal(offset_c + features_c . w, 1 / (noise_precision_c tau)). Either tau is one and the weights
are Normal(loc, precision^-1), or tau ~ Gamma(concentration, rate) and they are Normal(loc, (tau precision)^-1). With
residuals e = reward - offset - features . loc, the data enter by G = sum noise_precision x x', g = sum noise_precision
x e and q = sum noise_precision e^2; after them the precision is P + G and the mean loc + (P + G)^-1 g. Bernardo and
Smith (1994), *Bayesian Theory*, appendix A; Gelman et al. (2013), *Bayesian Data Analysis*, section 14.8.
"""

from dataclasses import replace
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import scipy.linalg
from jaxtyping import Float, Int, PRNGKeyArray

from bayes_mdp.inference.conjugate.rewards import Cells, ComponentPrior, Drawer, Outcome, Rewards, SiteDraws, Weight
from bayes_mdp.inference.conjugate.site_table import Sites
from bayes_mdp.inference.families.family import RewardStreams, log_rising
from bayes_mdp.mdp import Counts, StateActionSpace
from bayes_mdp.models.mdp_spec import RewardTable
from bayes_mdp.models.reward_support import RewardSupport, anything
from bayes_mdp.numerics.numpy_or_jax import pick, xp
from bayes_mdp.random.gamma_draws import gamma
from bayes_mdp.utils.typing import AnyArray, Index, IntScalar, LogDensity, RealScalar

_LOG_2PI = float(np.log(2.0 * np.pi))
LOST_NATS = 1e-6
"""Rounding of the log evidence that is reported."""


class RegressionPrior(eqx.Module):
    """The belief about the weights (and the precision of the noise) before any data.

    Args:
        loc: [D], mean of the weights.
        precision: [D D], their precision, over tau where that is unknown.
        concentration, rate: of tau ~ Gamma; None: it is one.
    """

    loc: Float[AnyArray, " D"]
    precision: Float[AnyArray, "D D"]
    concentration: RealScalar | None = None
    rate: RealScalar | None = None


class _Fit(NamedTuple):
    """The belief after data: mean and Cholesky root [D D] of the precision of the weights; shape and rate of tau."""

    mean: Float[AnyArray, " D"]
    root: Float[AnyArray, "D D"]
    excess: RealScalar
    concentration: RealScalar
    rate: RealScalar


class RegressionRewards(Rewards):
    """The belief about rewards with linear means (built by `regression_rewards`).

    Args:
        prior: before any data.
        features: [*cells D].
        offset: [*cells].
        noise_precision: [*cells], known; times tau, where that is unknown.
        gram: [D D], G of the data.
        moment: [D], g.
        square: q.
        count: number of observed rewards.
        by_outcome: whether the last axis of the cells is the outcome.
        independent: no weight is used by two pairs.
        sites: (name, shape) of the sites of weights, in order, and of the precision.
    """

    prior: RegressionPrior
    features: Float[AnyArray, "*cells D"]
    offset: Cells
    noise_precision: Cells
    gram: Float[AnyArray, "D D"]
    moment: Float[AnyArray, " D"]
    square: RealScalar
    count: RealScalar
    by_outcome: bool = eqx.field(static=True)
    independent: bool = eqx.field(static=True)
    sites: Sites = eqx.field(static=True, default=())
    distinct: ClassVar[bool] = False  # type: ignore[override] - cells share weights
    law: ClassVar[type[dist.Distribution] | None] = dist.Normal
    has_constant: ClassVar[bool] = True  # the known precisions enter the density by their logarithms

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """Shape of the cells."""
        return np.shape(self.offset)

    @property
    def _known_noise(self) -> bool:
        return self.prior.concentration is None

    def _fit(self) -> _Fit:
        gram, moment = xp.asarray(self.gram), xp.asarray(self.moment)
        # P + G = root root': one Cholesky for the mean, the variances and the evidence.
        root = xp.cholesky(xp.asarray(self.prior.precision, gram.dtype) + gram)
        # (P + G)^-1 g, the shift of the mean away from the prior's.
        shift = xp.cho_solve((root, True), moment)
        # q - g' (P + G)^-1 g, what the weights do not explain; rounding must not make it negative.
        excess = xp.maximum(self.square - xp.matmul(moment, shift), 0.0)
        concentration, rate = self.prior.concentration, self.prior.rate
        unit = xp.ones((), gram.dtype)
        after = (unit, unit) if concentration is None or rate is None else (concentration, rate)
        # tau ~ Gamma(a + n / 2, b + excess / 2).
        if not self._known_noise:
            after = (after[0] + 0.5 * xp.asarray(self.count), after[1] + 0.5 * excess)
        return _Fit(xp.asarray(self.prior.loc) + shift, root, excess, *(xp.asarray(x) for x in after))

    def _noise_scale(self, fit: _Fit) -> RealScalar:
        """E[1 / tau]; inf where it does not exist."""
        if self._known_noise:
            return xp.ones(())
        less_one = fit.concentration - 1.0
        return xp.where(less_one > 0, fit.rate / xp.where(less_one > 0, less_one, 1.0), np.inf)

    def _quadratic(self, fit: _Fit, x: Float[AnyArray, "*cells D"]) -> Float[AnyArray, "*cells"]:
        """x' (P + G)^-1 x of every cell."""
        flat = x.reshape(-1, x.shape[-1])
        # x' (P + G)^-1 x = |root^-1 x|^2: not negative, whatever the rounding.
        half = xp.solve_triangular(fit.root, flat.T, lower=True)
        return (half**2).sum(0).reshape(x.shape[:-1])

    def mean(self) -> Cells:
        """Expected mean reward; nan where it does not exist (a concentration of tau <= 1/2)."""
        fit = self._fit()
        mean = self.offset + xp.matmul(xp.asarray(self.features), fit.mean)
        return mean if self._known_noise else xp.where(fit.concentration > 0.5, mean, np.nan)

    def variance(self) -> Cells:
        """Variance of the mean reward."""
        fit = self._fit()
        spread = self._quadratic(fit, xp.asarray(self.features))
        return xp.where(spread > 0, spread * self._noise_scale(fit), 0.0)

    def noise(self) -> Cells:
        """Expected variance of one reward around its mean."""
        return self._noise_scale(self._fit()) / xp.asarray(self.noise_precision)

    def prior_share(self) -> Cells:
        """Variance of the mean after data over that before, tau given; nan where the mean is known.

        The mean of a cell weighs as many rewards as the noise of one is larger than its variance: with independent
        cells, pseudo-observations over these and the data.
        """
        features = xp.asarray(self.features)
        before, after = (self._quadratic(x._fit(), features) for x in (self.before_data(), self))
        # A share of variances, not of counts: cells that share weights have no counts of their own.
        return xp.where(before > 0, after / xp.where(before > 0, before, 1.0), np.nan)

    def data_mean(self) -> Cells:
        """Least squares; what the data say nothing of is that of the prior."""
        # The limit of loc + (e P + G)^-1 g for e -> 0, along the weights that G determines.
        shift = xp.matmul(xp.pinv(xp.asarray(self.gram), hermitian=True), xp.asarray(self.moment))
        return self.offset + xp.matmul(xp.asarray(self.features), xp.asarray(self.prior.loc) + shift)

    def sample_sites(self, key: PRNGKeyArray) -> SiteDraws:
        """One draw of (weights [D],), or of (weights, tau [1])."""
        fit = self._fit()
        key_tau, key_weights = jax.random.split(key)
        # Standard normal numbers, coloured by the inverse of the root.
        z = jax.random.normal(key_weights, fit.mean.shape, fit.mean.dtype)
        # root' u = z has the covariance (P + G)^-1.
        around = jax.scipy.linalg.solve_triangular(fit.root, z, trans="T", lower=True)
        if self._known_noise:
            return (fit.mean + around,)
        # tau is drawn first; given it the covariance of the weights shrinks by 1 / tau.
        tau = gamma(key_tau, jnp.asarray(fit.concentration)[None]) / fit.rate
        return fit.mean + around * tau**-0.5, tau

    def drawer(self, key: PRNGKeyArray, place: Index, prior: ComponentPrior | None = None) -> Drawer:
        """A stream of draws of the mean rewards of some cells, by NumPy (see `Rewards.drawer`)."""
        mean, root, _, concentration, rate = (np.asarray(x, np.float64) for x in self._fit())
        features, offset = (np.asarray(x, np.float64)[place] for x in (self.features, self.offset))
        # One stream for the weights, which all cells share.
        streams = RewardStreams(key, np.zeros(1, int))

        def draw(num: int, _: Int[np.ndarray, " N"] | None) -> Float[np.ndarray, "N cells"]:
            # root' u = z has the covariance (P + G)^-1.
            z = streams.normal.normals(num, len(mean))[:, 0]
            around = scipy.linalg.solve_triangular(root.T, z.T, lower=False).T
            if not self._known_noise:
                log_tau = streams.gamma.log_gammas(num, concentration[None]) - np.log(rate)
                around = around * np.exp(-0.5 * log_tau)
            # All cells of a draw by one product: means [N cells].
            return offset + (mean + around) @ features.T

        return draw

    def gather_from_draw(self, drawn: SiteDraws) -> tuple[Cells, Cells]:
        """Mean and variance of one reward in every cell for such a draw."""
        tau = 1.0 if self._known_noise else drawn[1][0]
        # The noise of a cell is 1 / (precision tau): mean and variance of one reward.
        mean = self.offset + xp.matmul(xp.asarray(self.features), drawn[0])
        return mean, 1.0 / (xp.asarray(self.noise_precision) * tau)

    def table_of(self, drawn: SiteDraws) -> RewardTable:
        """The law of one reward in every cell for such a draw."""
        mean, noise = self.gather_from_draw(drawn)
        return RewardTable(dist.Normal(mean, xp.sqrt(noise)), None, self.by_outcome)

    def variance_of_average(self, probs: Float[AnyArray, "*H S A O"]) -> Float[AnyArray, "*H S A"]:
        """Var[sum_o probs_o features_o . w]."""
        fit = self._fit()
        # The average over outcomes is linear in w: its features are averaged.
        average = (xp.asarray(probs)[..., None] * self.features).sum(-2)
        spread = self._quadratic(fit, average)
        return xp.where(spread > 0, spread * self._noise_scale(fit), 0.0)

    def shared_parameters(self, space: StateActionSpace) -> str | None:
        """That pairs share weights, and their site; None: they do not."""
        if self.independent:
            return None
        names = ", ".join(repr(name) for name, _ in self.sites)
        return f"mean rewards of several pairs are linear in the same weights (site {names})"

    def _residual(self, place: Index, reward: Weight) -> tuple[AnyArray, AnyArray, AnyArray]:
        """Features, noise precision and residual (from the prior mean) of rewards."""
        x = pick(self.features, place)
        residual = reward - pick(self.offset, place) - xp.matmul(x, xp.asarray(self.prior.loc, x.dtype))
        return xp.asarray(x), xp.asarray(pick(self.noise_precision, place)), xp.asarray(residual)

    def _add(
        self, x: AnyArray, precision: AnyArray, residual: AnyArray, weight: Weight, ss: AnyArray | float
    ) -> "RegressionRewards":
        """After `weight` rewards for each row, of mean residual `residual` and squared deviations `ss`."""
        # Masked rewards may be anything: they must not poison the sums.
        residual = xp.where(xp.asarray(weight) != 0, residual, 0.0)
        # Normal equations: G += X' W X, g += X' W e, q += e' W e.
        scaled = x * xp.asarray(weight * precision)[..., None]
        flat, flat_scaled = x.reshape(-1, x.shape[-1]), scaled.reshape(-1, x.shape[-1])
        square = xp.sum(precision * (weight * residual**2 + ss))
        return replace(
            self,
            gram=xp.asarray(self.gram) + xp.matmul(flat_scaled.T, flat),
            moment=xp.asarray(self.moment) + xp.matmul(flat_scaled.T, xp.ravel(residual)),
            square=xp.asarray(self.square) + square,
            count=xp.asarray(self.count) + xp.sum(weight),
        )

    def observe(
        self, cell: Index, outcome: Outcome, reward: Weight, weight: Weight
    ) -> tuple["RegressionRewards", RealScalar]:
        """The belief after rewards at cells; see `Rewards.observe`."""
        x, precision, residual = self._residual(self.place(cell, outcome), reward)
        # The known precisions enter the density by their logarithms alone.
        return self._add(x, precision, residual, weight, 0.0), xp.sum(0.5 * weight * xp.log(precision))

    def observe_counts(self, counts: Counts, weight: RealScalar) -> tuple["RegressionRewards", RealScalar]:
        """The belief after moments of rewards in every cell."""
        # Counts suffice: n rewards of mean m and scatter ss are n rewards at m, plus ss.
        count, mean, ss = (xp.asarray(x) for x in counts.reward_moments)
        x, precision, residual = self._residual(tuple(xp.indices(self.shape)), mean)
        # n rewards of one cell are one row of n times its precision, plus their scatter.
        after = self._add(x, precision, residual, count * weight, ss * weight)
        return after, xp.sum(0.5 * weight * count * xp.log(precision))

    def log_predictive(self, cell: Index, outcome: Outcome, reward: Weight, weight: Weight) -> LogDensity:
        """The marginal of one more reward under the belief after data."""
        fit = self._fit()
        x, precision, _ = self._residual(self.place(cell, outcome), reward)
        weight = xp.asarray(weight)
        taken = weight != 0
        offset = pick(self.offset, self.place(cell, outcome))
        residual = xp.where(taken, reward - offset - xp.matmul(x, fit.mean), 0.0)
        # One more row of precision w: the determinant grows by 1 + w s, the excess by w e^2 / (1 + w s), s = x' V x.
        data_precision = weight * precision
        growth = 1.0 + data_precision * self._quadratic(fit, x)
        extra = data_precision * residual**2 / growth
        density = 0.5 * weight * (xp.log(precision) - _LOG_2PI) - 0.5 * xp.log(growth)
        if self._known_noise:
            return xp.where(taken, density - 0.5 * extra, 0.0)
        rising = log_rising(fit.concentration, 0.5 * weight) - fit.concentration * xp.log1p(0.5 * extra / fit.rate)
        return xp.where(taken, density + rising - 0.5 * weight * xp.log(fit.rate + 0.5 * extra), 0.0)

    def log_evidence(self) -> RealScalar:
        """Log density of the observed rewards, as a sequence, less the logarithms of the known precisions."""
        fit, count = self._fit(), xp.asarray(self.count)
        # log evidence: half the log ratio of determinants before and after, and the excess of the residuals.
        before = xp.cholesky(xp.asarray(self.prior.precision, fit.root.dtype))
        # 0.5 (log det P - log det (P + G)): logarithms of diagonals of the Cholesky roots.
        shrink = (xp.log(xp.diagonal(before)) - xp.log(xp.diagonal(fit.root))).sum() - 0.5 * count * _LOG_2PI
        if self.prior.concentration is None or self.prior.rate is None:
            return shrink - 0.5 * fit.excess
        # (b / (b + excess / 2))^a, and Gamma(a + n / 2) / Gamma(a) b'^(-n / 2).
        growth = xp.log1p(0.5 * fit.excess / self.prior.rate)
        rising = log_rising(self.prior.concentration, 0.5 * count)
        return shrink + rising - self.prior.concentration * growth - 0.5 * count * xp.log(fit.rate)

    def support(self) -> RewardSupport:
        """Every finite number."""
        return anything("Normal")

    def before_data(self) -> "RegressionRewards":
        """The belief before any data."""
        parts = (self.gram, self.moment, self.square, self.count)
        zeros = tuple(xp.zeros_like(xp.asarray(x)) for x in parts)
        return eqx.tree_at(lambda r: (r.gram, r.moment, r.square, r.count), self, zeros)

    def merge(self, other: Rewards) -> "RegressionRewards":
        """The belief after the data of both."""
        assert isinstance(other, RegressionRewards)  # `merge` has compared the priors
        parts = [(r.gram, r.moment, r.square, r.count) for r in (self, other)]
        sums = tuple(xp.asarray(x) + y for x, y in zip(*parts, strict=True))
        return eqx.tree_at(lambda r: (r.gram, r.moment, r.square, r.count), self, sums)

    def discount_data(self, factor: RealScalar) -> "RegressionRewards":
        """The belief after the same data, each reward counted `factor` times."""
        parts = (self.gram, self.moment, self.square, self.count)
        return eqx.tree_at(lambda r: (r.gram, r.moment, r.square, r.count), self, tuple(x * factor for x in parts))

    def at_step(self, step: IntScalar) -> "RegressionRewards":
        """The belief about the rewards of one step."""
        parts = tuple(jnp.asarray(x)[step] for x in (self.features, self.offset, self.noise_precision))
        return eqx.tree_at(lambda r: (r.features, r.offset, r.noise_precision), self, parts)

    def problems(self) -> list[str]:
        """That the evidence has lost digits: rewards far from the prior mean, in units of their noise."""
        # q and g' (P + G)^-1 g cancel: what is left of their difference is rounded as they are.
        lost = float(self.square) * float(np.finfo(np.asarray(self.gram).dtype).eps)
        if not lost > LOST_NATS:
            return []
        return [
            f"the log evidence of the regression is accurate to about {lost:.1g} nats: the rewards are very far from "
            "their prior mean in units of their noise; centre them, or state their noise"
        ]

    def num_rewards_observed(self) -> float:
        """Number of observed rewards."""
        return float(self.count)


def regression_rewards(
    prior: RegressionPrior,
    features: Float[np.ndarray, "*cells D"],
    offset: Float[np.ndarray, "*cells"],
    noise_precision: Float[np.ndarray, "*cells"],
    *,
    by_outcome: bool = False,
    sites: Sites = (),
) -> RegressionRewards:
    """The belief before any data (arguments: see `RegressionRewards`). Host side."""
    size = features.shape[-1]
    # Pairs are independent where each weight belongs to one pair, and neither prior nor noise ties weights.
    pairs = (features != 0).reshape(-1, features.shape[-2] if by_outcome else 1, size).any(1)
    diagonal = np.count_nonzero(prior.precision - np.diag(np.diagonal(prior.precision))) == 0
    alone = bool((pairs.sum(0) <= 1).all() and diagonal and prior.concentration is None)
    return RegressionRewards(  # pyright: ignore[reportCallIssue] (it takes abstract variables for fields)
        prior=prior,
        features=features,
        offset=offset,
        noise_precision=noise_precision,
        gram=np.zeros((size, size)),
        moment=np.zeros(size),
        square=np.zeros(()),
        count=np.zeros(()),
        by_outcome=by_outcome,
        independent=alone,
        sites=sites,
    )
