"""An environment as plain arrays, for the numba loops: what can happen, how likely, and what it pays."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from bayes_mdp.envs.gymnasium.from_gymnasium import ListedReward
from bayes_mdp.experiments.rollout.simulator import Simulator
from bayes_mdp.mdp import NormalReward
from bayes_mdp.models.mdp_spec import RewardTable


class ListedEnvironment(NamedTuple):
    """The arrays of `Simulator`, and rewards.

    Args:
        outcome: Int[S A K], S is the end.
        threshold: Float[S A T].
        first_state: Int[K0]. first_threshold: Float[T0].
        reward: Float[S A K], of every outcome.
        drawn: Int[S A K], the row of `weight` and `value` from which the reward is drawn; -1: it is `reward`.
        weight: Float[M E], cumulative weights of the possible rewards. value: Float[M E], these rewards.
    """

    outcome: np.ndarray
    threshold: np.ndarray
    first_state: np.ndarray
    first_threshold: np.ndarray
    reward: np.ndarray
    drawn: np.ndarray
    weight: np.ndarray
    value: np.ndarray


def listed_environment(sim: Simulator) -> ListedEnvironment:
    """The arrays of a simulator of one environment, the same at every step, whose law `host_choice` admits."""
    law, outcome = sim.reward_law, np.asarray(sim.outcome)
    if isinstance(law, ListedReward):
        reward, *drawn = _listed_rewards(law, outcome)
    else:
        assert isinstance(law, (NormalReward, RewardTable))
        table = np.asarray(law.mean)
        # By pair, or by pair and outcome.
        reward = np.take_along_axis(table, outcome, -1) if law.by_outcome else _for_each(table, outcome)
        none = np.zeros((0, 1), reward.dtype)
        drawn = [np.full(outcome.shape, -1, np.int32), none, none]
    tables = (outcome, sim.threshold, sim.first_state, sim.first_threshold, reward, *drawn)
    return ListedEnvironment(*(np.ascontiguousarray(x) for x in tables))


def _for_each(table: np.ndarray, outcome: np.ndarray) -> np.ndarray:
    return np.broadcast_to(table[..., None], outcome.shape)


def _listed_rewards(law: ListedReward, outcome: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """`reward`, `drawn`, `weight` and `value` of the outcomes [S A K], with the arithmetic of `ListedReward.sample`."""
    matches = np.asarray(law.outcome)[:, :, None, :] == outcome[..., None]
    probability = np.asarray(law.probability)[:, :, None, :]
    each = np.where(matches, probability, np.zeros((), probability.dtype))
    value = np.broadcast_to(np.asarray(law.value)[:, :, None, :], each.shape)
    # Where all possible entries pay the same, no random number is needed.
    low, high = (f(np.where(each > 0, value, fill), -1) for f, fill in ((np.min, np.inf), (np.max, -np.inf)))
    several = low < high
    weight = np.asarray(jnp.cumsum(jnp.asarray(each[several]), -1))
    drawn = np.full(several.shape, -1, np.int32)
    drawn[several] = np.arange(several.sum())
    return np.where(low <= high, low, 0.0).astype(value.dtype), drawn, weight, value[several]
