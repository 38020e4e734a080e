"""The two-step task (Daw and others 2011): its environment, and its data as records of one choice each."""

from collections.abc import Hashable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bayes_mdp.behaviour.choice_log import ChoiceLog
from bayes_mdp.utils.typing import ArrayLike, RealScalar
from bayes_mdp.utils.validation import as_indices, as_mask, check_number, check_shape, require

STATES = ("first stage", "second stage 1", "second stage 2")


class TwoStepTask(eqx.Module):
    """Choose one of two actions, go to one of two states, choose again, get a reward of 0 or 1.

    The four reward probabilities do a Gaussian random walk, one step a trial, reflected at both bounds; they begin
    uniform between the bounds. A trial is two records; see `TwoStep` for states and actions.

    Args:
        common: probability of the common transition.
        drift: standard deviation of a step of the walk.
        low, high: bounds of the reward probabilities.

    Raises:
        ValueError: a number outside its range.
        TypeError: no number.
    """

    common: RealScalar = 0.7
    drift: RealScalar = 0.025
    low: RealScalar = 0.25
    high: RealScalar = 0.75

    def __check_init__(self) -> None:
        for name in ("common", "low", "high"):
            check_number(name, getattr(self, name), lambda x: (x >= 0) & (x <= 1), "a number from 0 to 1")
        check_number("drift", self.drift, lambda x: (x >= 0) & np.isfinite(x), "a finite number of at least 0")

    @property
    def states(self) -> tuple[str, ...]:
        """Labels."""
        return STATES

    @property
    def actions(self) -> tuple[int, ...]:
        """Labels."""
        return (0, 1)

    def reset(self, key: PRNGKeyArray) -> Float[Array, "2 2"]:
        """The reward probabilities of the first trial, by second-stage state and action."""
        return jax.random.uniform(key, (2, 2), minval=self.low, maxval=self.high)

    def begin(self, key: PRNGKeyArray, task_state: Float[Array, "2 2"]) -> Int[Array, ""]:
        """The first state of a trial: 0."""
        del key, task_state
        return jnp.int32(0)

    def step(
        self, key: PRNGKeyArray, task_state: Float[Array, "2 2"], state: Int[Array, ""], action: Int[Array, ""]
    ) -> tuple[Float[Array, "2 2"], Int[Array, ""], Float[Array, ""], Bool[Array, ""]]:
        """One record: (task state, next state, reward, terminated)."""
        key_move, key_reward, key_walk = jax.random.split(key, 3)
        at_first = state == 0
        rare = jax.random.uniform(key_move) >= self.common
        following = 1 + jnp.where(rare, 1 - action, action)
        chance = task_state[jnp.maximum(state - 1, 0), action]
        paid = jax.random.uniform(key_reward) < chance
        reward = jnp.where(at_first, 0.0, paid).astype(float)
        walked = _reflected(task_state + self.drift * jax.random.normal(key_walk, (2, 2)), self.low, self.high)
        task_state = jnp.where(at_first, task_state, walked)
        return task_state, jnp.where(at_first, following, state).astype(jnp.int32), reward, ~at_first


def _reflected(x: Float[Array, "2 2"], low: RealScalar, high: RealScalar) -> Float[Array, "2 2"]:
    """`x` folded back into [low, high] at both ends, however far it is outside."""
    width = jnp.asarray(high) - low
    phase = jnp.mod(x - low, 2.0 * jnp.maximum(width, jnp.finfo(x.dtype).tiny))
    return jnp.asarray(low + jnp.where(phase > width, 2.0 * width - phase, phase))


def two_step_log(
    first: ArrayLike,
    second_state: ArrayLike,
    second: ArrayLike,
    reward: ArrayLike,
    *,
    observed: ArrayLike | None = None,
    subjects: Sequence[Hashable] | None = None,
) -> ChoiceLog:
    """Trials of the two-step task, one entry each, as a `ChoiceLog` of two records a trial.

    Args:
        first: Int[P N], first-stage action, 0 or 1.
        second_state: Int[P N], 1 or 2; action a of the first stage leads to 1 + a commonly.
        second: Int[P N], second-stage action, 0 or 1.
        reward: Float[P N].
        observed: Bool[P N], false for padding and missed trials; None: all were observed.
        subjects: labels of the persons.

    Raises:
        ValueError, TypeError: as `ChoiceLog`; a second-stage state that is neither 1 nor 2.
    """
    first, at, second = (
        np.asarray(as_indices(name, x, what))
        for name, x, what in (("first", first, "action"), ("second_state", second_state, "state"),
                              ("second", second, "action"))
    )  # fmt: skip
    seen = np.ones(first.shape, bool) if observed is None else np.asarray(as_mask("observed", observed))
    reward = np.asarray(reward, np.float64)
    for name, x in (("second_state", at), ("second", second), ("reward", reward), ("observed", seen)):
        check_shape(name, x, first.shape, "as first")
    require(seen & (at != 1) & (at != 2), "second_state", at, "1 or 2")
    # Two records a trial, one after the other.
    pairs = lambda one, two: np.stack([one, two], axis=-1).reshape(len(first), -1)  # noqa: E731
    zero = np.zeros_like(first)
    return ChoiceLog(
        pairs(zero, at),
        pairs(first, second),
        pairs(0.0 * reward, reward),
        pairs(at, at),
        pairs(zero == 1, zero == 0),
        pairs(seen, seen),
        subjects=subjects,
        states=STATES,
        actions=(0, 1),
    )
