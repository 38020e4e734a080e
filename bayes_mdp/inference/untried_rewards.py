"""`untried_rewards`: pairs that were never tried and from which more reward is expected than from any that was.

Where rewards are costs and the prior of their mean is centred at zero, each action that nobody tried looks free: a
policy that maximises the mean tries them all. Means that lie below those of all tried pairs do not mislead a maximum,
and are not looked for.
"""

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Bool, Float

from bayes_mdp.mdp import CanCount
from bayes_mdp.mdp.space import OfSpace
from bayes_mdp.numerics.numpy_or_jax import as_numpy, in_numpy
from bayes_mdp.utils.messages import count_of, see

if TYPE_CHECKING:
    from bayes_mdp.inference.summary import PairMoments

ROUNDING = 1e-9
ERRORS = 4.0
"""Monte Carlo standard errors by which a mean of draws must lie above those of the tried pairs."""
REMEDY = (
    'give the reward a prior mean where rewards lie, or leave these pairs out (from_log(..., legal="logged"), '
    f"PolicyLimits(min_count=...); in the shell --legal logged, --min-count N) {see('how-to/write-a-prior')}"
)
"""What to do about such pairs."""
TRIED = "the plan may try them for what the prior alone says"
"""What such pairs do to a plan that learns."""


class UntriedRewards(NamedTuple):
    """Pairs without data whose mean reward lies above that of every pair with data.

    Args:
        pairs: which ones.
        reward: mean rewards of all pairs.
        best: the largest mean reward of a pair with data.
    """

    pairs: Bool[np.ndarray, "*H S A"]
    reward: Float[np.ndarray, "*H S A"]
    best: float

    def __str__(self) -> str:
        """How many, and both numbers."""
        number = int(self.pairs.sum())
        low, high = (f"{x:.3g}" for x in self.expected)
        paid = low if low == high else f"{low} to {high}"
        return (
            f"{count_of(number, 'pair')} never tried, whose mean reward ({paid}) lies above that of "
            f"every pair that was tried (at most {self.best:.3g})"
        )

    @property
    def expected(self) -> tuple[float, float]:
        """The smallest and the largest mean reward of these pairs."""
        return float(self.reward[self.pairs].min()), float(self.reward[self.pairs].max())

    def warning(self, consequence: str) -> str:
        """The sentence for a reader.

        Args:
            consequence: of these pairs for what is shown.
        """
        return f"{self}: {consequence}; if that is not meant, {REMEDY}"

    def among(self, used: Bool[np.ndarray, "*H S A"]) -> "UntriedRewards | None":
        """Those of the pairs that a policy uses; None: it uses none."""
        pairs = self.pairs & used
        return self._replace(pairs=pairs) if pairs.any() else None


@runtime_checkable
class HasMoments(OfSpace, CanCount, Protocol):
    """A posterior with means and variances of all pairs."""

    def pair_moments(self) -> "PairMoments":
        """Arrays [*H S A] and [*H S A O]."""
        ...

    def num_rewards_observed(self) -> float | None:
        """Number of observed rewards; None where all rewards are known."""
        ...


def untried_rewards(posterior: object) -> UntriedRewards | None:
    """Pairs that were never tried and from which more is expected than from any pair that was. Host-side.

    Compared are posterior means of the expected reward: of a pair without data that of the prior (given the data of
    other pairs, where rewards share parameters), of one with data the mean of prior and data. Under conjugate priors
    that are alike the former is the larger one if and only if the prior mean lies above the mean of the rewards seen in
    every tried pair. Means of draws must differ by four standard errors.

    Args:
        posterior: as `infer` returns it, or another one.

    Returns:
        The pairs; None: there are none, or it is not known: rewards are known numbers or were never observed, nothing
        was tried, the posterior is of another kind.
    """
    if not isinstance(posterior, HasMoments) or not posterior.num_rewards_observed():
        # Without rewards nothing was tried in this sense.
        return None
    # Legal pairs with data against legal pairs without.
    tried = np.asarray(posterior.visit_counts()) > 0
    legal = True if posterior.space.legal is None else np.asarray(posterior.space.legal)
    untried = ~tried & legal
    if not tried.any() or not untried.any():
        return None
    moments = moments_of(posterior)
    reward, variance = (np.asarray(x, np.float64) for x in (moments.reward, moments.reward_variance))
    # Means that do not exist are no bar.
    means = reward[tried & np.isfinite(reward)]
    if not means.size:
        return None
    # The bar: the best mean reward among pairs that were tried.
    best = float(means.max())
    # About rewards that the program fixes nothing is unknown.
    doubtful = ~(variance <= 0)
    # Rounding, and the Monte Carlo error where means are of draws.
    slack = ROUNDING * np.maximum(np.abs(reward), abs(best)) + _error(posterior, variance)
    pairs = untried & doubtful & (reward > best + slack)
    if not pairs.any():
        return None
    return UntriedRewards(pairs, reward, best)


def _error(posterior: object, variance: Float[np.ndarray, "*H S A"]) -> Float[np.ndarray, "*H S A"] | float:
    """Four Monte Carlo standard errors of the mean rewards; zero in closed form."""
    if not hasattr(posterior, "mcmc"):
        return 0.0
    # Four standard errors of a mean of so many effective draws.
    size = float(np.asarray(getattr(posterior, "effective_sample_size")()))  # noqa: B009 - of no protocol here
    return ERRORS * np.sqrt(np.where(np.isfinite(variance), variance, 0.0) / max(size, 1.0))


def moments_of(posterior: HasMoments) -> "PairMoments":
    """`pair_moments` in NumPy arrays of float64. Host-side: closed forms in NumPy; of draws one compiled program.

    Where it is shown that a mean reward has no expectation it is nan, its variance inf.

    Args:
        posterior: as `infer` returns it, or another one.
    """
    if not hasattr(posterior, "mcmc"):
        return in_numpy(lambda belief: belief.pair_moments(), posterior)
    with jax.enable_x64(True):
        # Copies: JAX may hold 32-bit versions of the arrays themselves.
        moments = as_numpy(_moments_in_jit(jax.tree.map(np.array, posterior)))
    if not isinstance(posterior, _KnowsMissingMeans):
        return moments
    # Draws have a mean even where the law has none.
    missing = posterior.missing_means()
    reward, variance = np.where(missing, np.nan, moments.reward), np.where(missing, np.inf, moments.reward_variance)
    return moments._replace(reward=reward, reward_variance=variance)


@runtime_checkable
class _KnowsMissingMeans(Protocol):
    def missing_means(self) -> Bool[np.ndarray, "*H S A"]: ...


@eqx.filter_jit
def _moments_in_jit(posterior: HasMoments) -> "PairMoments":
    return posterior.pair_moments()
