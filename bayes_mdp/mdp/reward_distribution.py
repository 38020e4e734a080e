"""A NumPyro distribution as the law of the rewards of an environment. NumPyro is not imported: its methods are used."""

from typing import Protocol, TypeGuard, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.mdp.hypothesis import MDP, SparseMDP
from bayes_mdp.utils.typing import ArrayLike, Index, IntScalar
from bayes_mdp.utils.validation import first_index, is_concrete

MEAN_TOLERANCE = 1e-5
"""Relative difference of two mean rewards that is rounding, of sums in float32 too."""


@runtime_checkable
class RewardDistribution(Protocol):
    """What is used of a NumPyro distribution."""

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Its axes: (step,) state, action, or what broadcasts to them."""
        ...

    @property
    def event_shape(self) -> tuple[int, ...]:
        """(), or (O,) after `.to_event(1)`: an entry for each outcome."""
        ...

    def sample(self, key: PRNGKeyArray, sample_shape: tuple[int, ...] = ()) -> ArrayLike:
        """A reward in every cell."""
        ...


class DistributionReward(eqx.Module):
    """Rewards with the law `law` in every cell; a `RewardLaw`.

    Every draw is one of all cells, of which one is used: `run` makes a table of parameters of it, and looks them up.

    Args:
        law: a distribution of numbers. Its batch shape broadcasts to (*H, S, A); with event shape (O,) (`.to_event(1)`)
            rewards depend on the outcome: a next state, or S for an end.
    """

    law: RewardDistribution

    @property
    def by_outcome(self) -> bool:
        """Whether rewards depend on the outcome."""
        return bool(self.law.event_shape)

    @property
    def mean(self) -> Float[Array, "..."]:
        """Mean rewards, in the shape of `law`: it broadcasts to [*H S A], or to [*H S A O] where `by_outcome`.

        nan where there is none, or NumPyro knows none.
        """
        shape = (*self.law.batch_shape, *self.law.event_shape)
        try:
            mean = jnp.asarray(self.law.mean, float)  # type: ignore[attr-defined] - not all have one, see below
        except (NotImplementedError, AttributeError):
            mean = jnp.full(shape, jnp.nan)
        if getattr(self.law, "has_enumerate_support", False) and not self.by_outcome:
            # Categories 0 .. K - 1 have no mean in NumPyro; as rewards they are numbers: sum_x x p(x).
            values = self.law.enumerate_support()  # type: ignore[attr-defined] - as `has_enumerate_support` says
            sums = jnp.sum(values * jnp.exp(self.law.log_prob(values)), axis=0)  # type: ignore[attr-defined] - likewise
            mean = jnp.where(jnp.isnan(mean), sums, mean)
        return jnp.broadcast_to(jnp.where(jnp.isfinite(mean), mean, jnp.nan), shape)

    def sample(self, key: PRNGKeyArray, cell: Index, outcome: IntScalar) -> Float[Array, ""]:
        """One reward of one cell (see `RewardLaw`)."""
        draws = jnp.asarray(self.law.sample(key), float)
        where = ((*cell, outcome) if self.by_outcome else cell)[-draws.ndim :] if draws.ndim else ()
        # An axis of size 1 broadcasts: the same law at every index.
        return draws[tuple(0 if size == 1 else i for size, i in zip(draws.shape, where, strict=True))]


def is_distribution(law: object) -> TypeGuard[RewardDistribution]:
    """Whether it is a distribution (its class is none)."""
    return not isinstance(law, type) and isinstance(law, RewardDistribution)


def check_distribution(law: DistributionReward, mdp: MDP | SparseMDP) -> None:
    """Refuse a distribution that does not fit an MDP, in shape or in mean.

    Args:
        law: of the rewards.
        mdp: its `reward` must be the mean of `law`, up to rounding, where actions are legal: the optimum of an
            environment follows from it.

    Raises:
        ValueError: a shape that does not broadcast; a mean that does not exist; another one, naming the first pair.
    """
    batch, event, pairs = law.law.batch_shape, law.law.event_shape, mdp.reward.shape
    outcomes = mdp.n_states + (mdp.end_probs is not None)
    axes = "step, state, action" if mdp.horizon is not None else "state, action"
    if not _broadcasts(batch, pairs) or event not in ((), (1,), (outcomes,)):
        raise ValueError(
            f"reward_law has batch shape {batch} and event shape {event}, expected a law of one number for each pair, "
            f"of a shape that broadcasts to {pairs} ({axes}), or to {(*pairs, outcomes)} and .to_event(1) where "
            "rewards depend on the outcome"
        )
    if not is_concrete(law, mdp):
        return
    mean, reward = np.asarray(law.mean, np.float64), np.asarray(mdp.reward, np.float64)
    size = np.abs(mean)
    if law.by_outcome:
        mean, size = _averaged(mean, mdp), _averaged(size, mdp)
    mean, size = np.broadcast_to(mean, pairs), np.maximum(np.broadcast_to(size, pairs), np.abs(reward))
    legal = True if mdp.legal is None else np.asarray(mdp.legal)
    index = first_index(legal & ~(np.abs(mean - reward) <= MEAN_TOLERANCE * size))  # nan is refused too
    if index is not None:
        found = "no mean" if np.isnan(mean[index]) else f"mean {mean[index]:.6g}"
        raise ValueError(
            f"reward_law has {found} at {list(index)} ({axes}), expected mdp.reward{list(index)}, {reward[index]:.6g}: "
            "the mean of the rewards, from which optimal values follow"
        )


def _broadcasts(shape: tuple[int, ...], full: tuple[int, ...]) -> bool:
    pairs = zip(reversed(shape), reversed(full), strict=False)
    return len(shape) <= len(full) and all(size in (1, target) for size, target in pairs)


def _averaged(values: Float[np.ndarray, "..."], mdp: MDP | SparseMDP) -> Float[np.ndarray, "*H S A"]:
    """sum_o P(o | s, a) values(s, a, o); an outcome of probability zero counts nothing, even nan."""
    pairs, last = mdp.reward.shape, mdp.n_states
    listed = isinstance(mdp, SparseMDP)
    probs = np.asarray(mdp.probability if listed else mdp.transition_probs, np.float64)
    full = np.broadcast_to(values, (*pairs, last + (mdp.end_probs is not None)))
    at_next = np.take_along_axis(full, np.asarray(mdp.successor), -1) if listed else full[..., :last]
    total = np.where(probs > 0, probs * at_next, 0.0).sum(-1)
    if mdp.end_probs is None:
        return total
    ends = np.asarray(mdp.end_probs, np.float64)
    return total + np.where(ends > 0, ends * full[..., last], 0.0)
