"""Likelihoods on sufficient statistics: the density of a sequence of transitions at a cost that does not grow with it.

Every log density here is that of the *sequence* of observed next states or rewards given the states and actions: no
multinomial coefficient, every base measure included. It equals the sum of the log densities of the single data.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float
from numpyro.distributions import constraints

from bayes_mdp.mdp import Counts, StateActionSpace, Transitions
from bayes_mdp.mdp.data.transitions import pool_moments
from bayes_mdp.models.reward_support import support_of
from bayes_mdp.numerics.numpy_or_jax import add_at, xp
from bayes_mdp.utils.typing import AnyArray, ArrayLike, RealLike
from bayes_mdp.utils.validation import check_probabilities, check_shape, is_concrete, require

RewardSums = tuple[type[dist.Distribution], Float[np.ndarray, "K 3"]]
"""The family of a reward law; count, mean and squared deviations of the rewards of K groups."""

ROUNDING = 1e-5
"""By how much a mean of ones that was summed in float32 may exceed one."""


class CategoricalCounts(dist.Distribution):
    """How often each outcome was observed, in the order of the data: log density sum_o counts_o log probs_o.

    Args:
        probs: Float[*batch O], probabilities. A zero there costs nothing where its count is zero.
        validate_args: as of NumPyro.

    Raises:
        ValueError: one number, or an entry that is negative or not finite. TypeError: no numbers.

    Example:
        >>> from bayes_mdp.models.sufficient_statistics import CategoricalCounts
        >>> law = CategoricalCounts(np.array([0.25, 0.75]))
        >>> round(float(np.exp(law.log_prob(np.array([1.0, 2.0])))), 4)  # 0.25 * 0.75 ** 2
        0.1406
    """

    arg_constraints: dict[str, constraints.Constraint] = {  # noqa: RUF012 - as NumPyro declares it
        "probs": constraints.independent(constraints.nonnegative, 1)
    }

    def __init__(self, probs: Float[AnyArray, "*batch O"], *, validate_args: bool | None = None) -> None:
        if is_concrete(probs):
            check_probabilities("probs", probs)
        if not jnp.ndim(probs):
            raise ValueError(f"probs is {probs}, expected an array of probabilities")
        self.probs = jnp.asarray(probs)
        super().__init__(jnp.shape(probs)[:-1], jnp.shape(probs)[-1:], validate_args=validate_args)

    @property
    def support(self) -> constraints.Constraint:
        """Vectors of non-negative numbers."""
        return constraints.independent(constraints.nonnegative, 1)

    def log_prob(self, value: ArrayLike, intermediates: object = None) -> Float[Array, "..."]:
        """Log-probability of any one sequence with these counts; `value` is [... O]."""
        del intermediates
        # 0 log 0 = 0: an outcome that was never seen may be impossible.
        return jnp.sum(_times_log(jnp.asarray(value), self.probs), axis=-1)


class RewardStatistics(dist.Distribution):
    """Statistics of rewards drawn from `law`, with the density of their sequence.

    A value has event shape [4]: count, mean, sum of squared deviations, and the sum of the log base measures
    (see `log_base_measure`). A Bernoulli or Poisson law does not look at the squared deviations.

    Args:
        law: a Normal, Bernoulli or Poisson law.
        validate_args: as of NumPyro.

    Raises:
        TypeError: a law without sufficient statistics.

    Example:
        >>> from bayes_mdp.models.sufficient_statistics import RewardStatistics
        >>> import numpyro.distributions as dist
        >>> law = RewardStatistics(dist.Bernoulli(0.5))
        >>> value = np.array([3.0, 1.0, 0.0, 0.0])  # three rewards, all of them 1
        >>> round(float(np.exp(law.log_prob(value))), 3)  # 1/2 ** 3
        0.125
    """

    arg_constraints: dict[str, constraints.Constraint] = {}  # noqa: RUF012 - as NumPyro declares it
    pytree_data_fields = ("law",)

    def __init__(self, law: dist.Distribution, *, validate_args: bool | None = None) -> None:
        if not has_statistics(law):
            raise TypeError(
                f"law is a {type(law).__name__}, expected one of {', '.join(k.__name__ for k in _LOG_DENSITY)}"
            )
        self.law = law
        super().__init__(law.batch_shape, (4,), validate_args=validate_args)

    @property
    def support(self) -> constraints.Constraint:
        """Vectors of four numbers."""
        return constraints.real_vector

    def log_prob(self, value: ArrayLike, intermediates: object = None) -> Float[Array, "..."]:
        """Log density of any one sequence with these statistics, `value` [... 4]."""
        del intermediates
        # The four statistics.
        count, mean, deviations, log_base = jnp.moveaxis(jnp.asarray(value), -1, 0)
        density = _LOG_DENSITY[type(self.law)](self.law, count, mean, deviations)
        # Nothing observed has density one, also where the law is none (the parameters of an illegal action).
        return jnp.where(count != 0, density, 0.0) + log_base


class Statistics(eqx.Module):
    """Everything that a prior with a Normal, Bernoulli, Poisson or known reward law needs of the data.

    Args:
        counts: counts of outcomes, and moments of rewards in the cells of the law.
        log_base: Float[*cells], sum of the log base measures of the rewards of each cell (zero but for Poisson).

    Example:
        >>> from bayes_mdp.models.joint import summarise
        >>> space = bm.StateActionSpace(2, 1)
        >>> data = bm.Transitions([0, 1], [0, 0], [0.0, 1.0], [1, 1])
        >>> statistics = summarise(bm.models.dirichlet_bernoulli(), space, data)
        >>> statistics.counts.reward_count.tolist()
        [[1.0], [1.0]]
    """

    counts: Counts
    log_base: Float[AnyArray, "*cells"]

    @classmethod
    def of(
        cls, transitions: Transitions, space: StateActionSpace, law: type[dist.Distribution] | None, by_outcome: bool
    ) -> "Statistics":
        """Statistics of `transitions` for a reward law of this type. Traceable.

        Args:
            transitions: the data.
            space: of the data.
            law: type of the reward law; None: known rewards.
            by_outcome: whether its parameters depend on the outcome.

        Raises:
            ValueError, TypeError: transitions that the space or the law cannot hold (not inside a trace).
        """
        counts = Counts.of(transitions, space, by_outcome=by_outcome)
        check_rewards(law, transitions)
        if transitions.reward is None or law is None or law is dist.Normal:
            # NumPy, not eager JAX, which would compile it.
            return cls(counts, (np if is_concrete(counts) else jnp).zeros_like(counts.reward_count))
        # Bernoulli and Poisson: a base measure, or a support to check.
        index = transitions.cell(space) + ((transitions.outcome(space),) if by_outcome else ())
        number = np if is_concrete(transitions, counts) else jnp
        rewards, index = number.asarray(transitions.reward, float), tuple(map(number.asarray, index))
        zeros = number.zeros(counts.reward_count.shape, counts.reward_count.dtype)
        log_base = log_base_measure(law, rewards)
        # A reward without its outcome counts nowhere where the law looks at outcomes.
        counted, _ = transitions.observed_rewards(xp.ones_like(log_base), by_outcome=by_outcome)
        return cls(counts, add_at(zeros, index, xp.where(counted != 0, log_base, 0.0)))

    @property
    def reward_value(self) -> Float[Array, "*cells 4"]:
        """The value of a `RewardStatistics` site."""
        counts = self.counts
        parts = (counts.reward_count, counts.reward_mean, counts.reward_ss, self.log_base)
        return jnp.stack([jnp.asarray(part, dtype=float) for part in parts], axis=-1)


def has_statistics(law: object) -> bool:
    """Whether a law, or a type of law, has sufficient statistics here: Normal, Bernoulli, Poisson, not wrapped."""
    return (law if isinstance(law, type) else type(law)) in _LOG_DENSITY


def log_base_measure(law: type[dist.Distribution], reward: Float[AnyArray, "*N"]) -> Float[AnyArray, "*N"]:
    """The part of the log density of one reward that no parameter changes, minus infinity outside the support."""
    if law is dist.Normal:
        return xp.zeros_like(reward)
    if law is dist.Poisson:
        # -log r!, and -inf for what is no count.
        counts = (reward >= 0) & (reward == xp.floor(reward))
        return xp.where(counts, -xp.gammaln(xp.where(counts, reward, 0.0) + 1), -np.inf)
    return xp.where((reward == 0) | (reward == 1), 0.0, -np.inf)


def check_rewards(law: type[dist.Distribution] | None, transitions: Transitions) -> None:
    """Refuse rewards that a law of this type (None: known rewards) cannot give, whatever its parameters.

    Raises:
        ValueError: names the first row.
    """
    if law is None or transitions.reward is None or not is_concrete(transitions):
        return
    # A reward that is missing is a placeholder.
    observed = True if transitions.reward_observed is None else np.asarray(transitions.reward_observed)
    check_reward_values(law, "transitions.reward", np.asarray(transitions.reward, float), observed)


def check_reward_values(
    law: type[dist.Distribution], name: str, reward: np.ndarray, observed: ArrayLike = True
) -> None:
    """The same for an array of rewards that the message calls `name`; those that were not `observed` are not checked.

    Args:
        law: type of the reward law.
        name: for the message.
        reward: [N].
        observed: Bool[N], or True: all.

    Raises:
        ValueError: names the first one.
    """
    support = support_of(law)
    if support is not None:  # else it depends on the parameters
        support.check(name, reward, observed)


def check_counts(
    counts: Counts, space: StateActionSpace, law: type[dist.Distribution] | None, by_outcome: bool, name: str = "data"
) -> None:
    """Refuse counts of another shape, that are none, of what `space` rules out, or of rewards that the law cannot give.

    Args:
        law: type of the reward law; None: rewards need only be finite.
        by_outcome: whether that law depends on the outcome; where not, rewards by outcome are accepted too.
        name: what the message calls `counts`.

    Raises:
        ValueError: one sentence with the field and the first offending cell.
    """
    full = (*space.shape, space.n_outcomes)
    check_shape(f"{name}.transitions", counts.transitions, full, "as the space, then outcome")
    if by_outcome:
        check_shape(f"{name}.reward_count", counts.reward_count, full, "the reward law depends on the outcome")
    elif tuple(counts.reward_count.shape) not in (space.shape, full):
        check_shape(f"{name}.reward_count", counts.reward_count, space.shape, "as the space")
    for field in ("reward_mean", "reward_ss"):
        check_shape(f"{name}.{field}", getattr(counts, field), counts.reward_count.shape, "as reward_count")
    if not is_concrete(counts):
        return
    n, rewards = np.asarray(counts.transitions), np.asarray(counts.reward_count)
    for field, values in (("transitions", n), ("reward_count", rewards)):
        require(~(np.isfinite(values) & (values >= 0)), f"{name}.{field}", values, "a finite number, zero or greater")
    if space.legal is not None:
        # Nothing can have followed a pair that does not exist.
        require(~space.legal[..., None] & (n > 0), f"{name}.transitions", n, "0 (an illegal action)")
    if space.possible is not None:
        require(~space.possible & (n > 0), f"{name}.transitions", n, "0 (an outcome outside the known support)")
    _check_moments(counts, law, name)


def fit_counts(
    counts: Counts, space: StateActionSpace, law: type[dist.Distribution] | None, by_outcome: bool, name: str = "data"
) -> Counts:
    """Checked counts for the cells of a reward law: rewards by outcome are pooled where it does not look at outcomes,
    and moments of no rewards (they may be nan) are zero. Traceable; arguments and errors: see `check_counts`.
    """
    check_counts(counts, space, law, by_outcome, name)
    count = xp.asarray(counts.reward_count, float)
    # Traceable: moments of nothing may be nan, and nan times zero is nan.
    mean, ss = (xp.where(count > 0, x, 0.0) for x in (counts.reward_mean, counts.reward_ss))
    counts = Counts(counts.transitions, count, mean, ss)
    if by_outcome or count.shape == space.shape:
        return counts
    # Rewards by outcome say more than such a law asks for: pooled to [*H S A].
    return Counts(counts.transitions, *pool_moments(counts.reward_moments, lambda x: x.sum(-1), lambda x: x[..., None]))


def _check_moments(counts: Counts, law: type[dist.Distribution] | None, name: str) -> None:
    """Observed rewards have finite moments; those of 0 and 1, or of 0, 1, 2, ..., have a mean in their range."""
    n, mean, deviations = (np.asarray(x, float) for x in counts.reward_moments)
    seen = n > 0
    require(seen & ~np.isfinite(mean), f"{name}.reward_mean", mean, "a finite number")
    bad = seen & ~(np.isfinite(deviations) & (deviations >= 0))
    require(bad, f"{name}.reward_ss", deviations, "a finite number, zero or greater")
    if law is dist.Poisson:
        require(seen & (mean < 0), f"{name}.reward_mean", mean, "zero or greater (the reward law is Poisson)")
    if law in (dist.BernoulliProbs, dist.BernoulliLogits):
        outside = seen & ((mean < -ROUNDING) | (mean > 1 + ROUNDING))
        require(outside, f"{name}.reward_mean", mean, "from 0 to 1 (a Bernoulli reward law)")
        # for rewards that are 0 or 1, and for no others, the squared deviations add to n mean (1 - mean)
        bad = seen & (np.abs(deviations - n * mean * (1 - mean)) > 1e-4 * np.maximum(n, 1.0))
        require(bad, f"{name}.reward_ss", deviations, "that of rewards that are 0 or 1 (a Bernoulli reward law)")


def _times_log(count: RealLike, prob: RealLike) -> AnyArray:
    """count * log(prob), and 0 with gradient 0 where the count is 0."""
    positive = count > 0
    return jnp.where(positive, count * jnp.log(jnp.where(positive, prob, 1.0)), 0.0)


def _normal(law: dist.Normal, count: AnyArray, mean: AnyArray, deviations: AnyArray) -> AnyArray:
    # sum (r - loc)^2 = sum (r - mean)^2 + n (mean - loc)^2: no cancellation.
    loc, scale = jnp.asarray(law.loc), jnp.asarray(law.scale)
    squares = deviations + count * (mean - loc) ** 2
    return -count * (jnp.log(scale) + 0.5 * jnp.log(2 * jnp.pi)) - 0.5 * squares / scale**2


def _bernoulli_probs(law: dist.BernoulliProbs, count: AnyArray, mean: AnyArray, deviations: AnyArray) -> AnyArray:
    # n mean ones and n (1 - mean) zeros.
    del deviations
    probs = jnp.asarray(law.probs)
    return _times_log(count * mean, probs) + _times_log(count * (1 - mean), 1 - probs)


def _bernoulli_logits(law: dist.BernoulliLogits, count: AnyArray, mean: AnyArray, deviations: AnyArray) -> AnyArray:
    # log p = logit - softplus(logit), log (1 - p) = -softplus(logit).
    del deviations
    return count * (mean * law.logits - jax.nn.softplus(law.logits))


def _poisson(law: dist.Poisson, count: AnyArray, mean: AnyArray, deviations: AnyArray) -> AnyArray:
    # sum r log(rate) - n rate; the factorials are in the base measure.
    del deviations
    rate = jnp.asarray(law.rate)
    return _times_log(count * mean, rate) - count * rate


_LOG_DENSITY: dict[type[dist.Distribution], Callable[..., AnyArray]] = {
    dist.Normal: _normal,
    dist.BernoulliProbs: _bernoulli_probs,
    dist.BernoulliLogits: _bernoulli_logits,
    dist.Poisson: _poisson,
}
