"""`Environment`: an MDP that can be simulated, and the laws of its rewards."""

from typing import Protocol, cast, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bayes_mdp.mdp.hypothesis import MDP, SparseMDP, check_mdp
from bayes_mdp.mdp.picture import Picture
from bayes_mdp.mdp.reward_distribution import (
    DistributionReward,
    RewardDistribution,
    check_distribution,
    is_distribution,
)
from bayes_mdp.utils.typing import AnyArray, Index, IntScalar, RealLike
from bayes_mdp.utils.validation import check_bool, check_finite, check_not_negative, check_type, described, is_concrete


@runtime_checkable
class RewardLaw(Protocol):
    """The law of one reward of an environment."""

    def sample(self, key: PRNGKeyArray, cell: Index, outcome: IntScalar) -> Float[Array, ""]:
        """One reward of a transition.

        Args:
            key: of the draw.
            cell: (step,) state, action: indices.
            outcome: index of the next state; S for an end.
        """
        ...


class NormalReward(eqx.Module):
    """Rewards N(mean, scale^2); `scale` None: the reward is its mean, no random number is drawn.

    Args:
        mean: Float[*H S A], or Float[*H S A O] where the reward depends on the outcome (`by_outcome`).
        scale: standard deviation. None, a number, or an array of the shape of `mean`; zero or greater.

    Raises:
        ValueError, TypeError: a mean that is not finite, a scale that is negative or of another shape.
    """

    mean: Float[AnyArray, "*cells"]
    scale: RealLike | None = None
    by_outcome: bool = eqx.field(default=False, static=True)

    def __check_init__(self) -> None:
        check_bool("by_outcome", self.by_outcome)
        if is_concrete(self.mean):
            check_finite("mean", self.mean)
        if self.scale is not None:
            check_not_negative("scale", self.scale)
            if np.shape(self.scale) not in ((), np.shape(self.mean)):
                raise ValueError(f"scale has shape {np.shape(self.scale)}, expected () or {np.shape(self.mean)}")

    def sample(self, key: PRNGKeyArray, cell: Index, outcome: IntScalar) -> Float[Array, ""]:
        """One reward of a cell.

        Args:
            key, cell, outcome: as of `RewardLaw.sample`.
        """
        where = (*cell, outcome) if self.by_outcome else cell
        mean = jnp.asarray(self.mean)[where]
        if self.scale is None:
            return mean
        scale = jnp.asarray(self.scale)
        return mean + (scale[where] if scale.ndim else scale) * jax.random.normal(key, dtype=mean.dtype)


def as_reward_law(law: RewardLaw | RewardDistribution) -> RewardLaw:
    """`law` itself, or a distribution as a law.

    Raises:
        TypeError: neither.
    """
    if is_distribution(law):
        return DistributionReward(law)
    if isinstance(law, type) or not callable(getattr(law, "sample", None)):
        expected = "a NumPyro distribution, or a law with sample (see RewardLaw)"
        raise TypeError(f"reward_law is {described(law)}, expected {expected}")
    return cast(RewardLaw, law)  # it is no distribution


class Environment(eqx.Module):
    """What can be simulated: the true MDP and the law of its rewards. Pure functions of a key.

    Args:
        mdp: the truth; `mdp.reward` is the mean of `reward_law`, `mdp.initial` must be given.
        reward_law: how one reward is drawn: a NumPyro distribution of numbers, a `NormalReward`, or any `RewardLaw`.
            The batch shape of a distribution broadcasts to (*H, S, A) and its mean is `mdp.reward`; where rewards
            depend on the outcome it has event shape (O,) (`.to_event(1)`): next states and, where there are ends, the
            end.
        name: for tables and files.
        optimum: optimal gain (continuing) or optimal value of an episode (episodic), where it is known.
        picture: how it is drawn; None: its states in a ring.

    Raises:
        TypeError: no MDP, a law without `sample`, a name that is no string, an optimum that is no number.
        ValueError: an MDP without initial distribution; a distribution of another shape, or whose mean is not
            `mdp.reward` (up to rounding, where the action is legal).

    Example:
        >>> mdp = bm.MDP([[[0.5, 0.5]], [[0.5, 0.5]]], [[0.0], [1.0]], initial=[1.0, 0.0])
        >>> env = bm.Environment(mdp, bm.mdp.NormalReward(mdp.reward, 0.1), name="coin")
        >>> int(env.reset(jax.random.key(0)))
        0
    """

    mdp: MDP | SparseMDP
    reward_law: RewardLaw = eqx.field(converter=as_reward_law)
    name: str = eqx.field(default="environment", static=True)
    optimum: float | None = eqx.field(default=None, static=True)
    picture: Picture | None = eqx.field(default=None, static=True)

    def __check_init__(self) -> None:
        check_mdp(self.mdp)
        if isinstance(self.reward_law, DistributionReward):
            check_distribution(self.reward_law, self.mdp)
        check_type("name", self.name, str, "a string")
        if self.optimum is not None:
            check_finite("optimum", self.optimum)
        check_type("picture", self.picture, (Picture, type(None)), "a Picture or None")
        if self.mdp.initial is None:
            raise ValueError("mdp.initial is None, expected a distribution over the first state")

    def reset(self, key: PRNGKeyArray) -> Int[Array, ""]:
        """The first state of an episode.

        Args:
            key: of the draw.
        """
        initial = jnp.asarray(self.mdp.initial)
        return _pick(jax.random.uniform(key, dtype=initial.dtype), initial)

    def step(
        self, key: PRNGKeyArray, state: IntScalar, action: IntScalar, step: IntScalar = 0
    ) -> tuple[Int[Array, ""], Float[Array, ""], Bool[Array, ""]]:
        """One transition: (next_state, reward, terminated). Where it terminates, next_state is the state it left.

        Args:
            key: of this transition.
            state, action: their indices.
            step: of the episode; read where the MDP has a table for every step.
        """
        key_next, key_reward = jax.random.split(key)
        mdp = self.mdp
        cell = (state, action) if mdp.horizon is None else (step, state, action)
        row = mdp.row_probs[cell]
        end_prob = None if mdp.end_probs is None else mdp.end_probs[cell]
        # One uniform picks a successor or, as index K, the end.
        pick = _pick(jax.random.uniform(key_next, dtype=row.dtype), row, end_prob)
        terminated = pick >= row.shape[-1]
        listed = jnp.minimum(pick, row.shape[-1] - 1)
        next_state = mdp.successor[cell][listed] if isinstance(mdp, SparseMDP) else listed
        outcome = jnp.where(terminated, mdp.n_states, next_state)
        reward = self.reward_law.sample(key_reward, cell, outcome)
        return jnp.where(terminated, state, next_state), reward, terminated


def _pick(u: Float[Array, ""], row: Float[Array, " K"], end_prob: Float[Array, ""] | None = None) -> Int[Array, ""]:
    """Index drawn from `row` by inversion; K is the end. An entry of probability zero is never drawn."""
    # The number of cumulative sums at or below u times the total: rows that sum to one only nearly are normalised.
    cumulative = jnp.cumsum(row)
    if end_prob is None:
        cumulative, total = cumulative[:-1], cumulative[-1]
    else:
        total = cumulative[-1] + end_prob
    return jnp.sum(u * total >= cumulative, dtype=int)
