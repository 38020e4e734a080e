"""An environment as plain arrays, for the numba loops: what can happen, how likely, and what it pays."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayes_mdp.envs.gymnasium.from_gymnasium import ListedReward
from bayes_mdp.experiments.rollout.simulator import Simulator
from bayes_mdp.mdp import NormalReward, RewardLaw
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


def pays_from_a_list(law: RewardLaw) -> bool:
    """Whether the rewards of a law can be listed: known ones, or a few for every outcome."""
    # Exact types: a law derived from one of these may draw otherwise.
    if type(law) is NormalReward:
        return law.scale is None
    return type(law) is ListedReward or (type(law) is RewardTable and law.law is None)


def listed_environment(sim: Simulator) -> ListedEnvironment:
    """The arrays of a simulator of one environment, the same at every step, whose law `pays_from_a_list`."""
    law, outcome = sim.reward_law, sim.outcome
    state, action = (jnp.arange(n)[shape] for n, shape in zip(outcome.shape, _ALONG, strict=False))
    cells = tuple(jnp.broadcast_to(x, outcome.shape) for x in (state, action))
    if isinstance(law, ListedReward):
        reward, *drawn = _listed_rewards(law, outcome)
    else:
        # These draw nothing: any key will do.
        reward = jax.vmap(jax.vmap(jax.vmap(law.sample, (None, 0, 0)), (None, 0, 0)), (None, 0, 0))(
            jax.random.key(0), cells, outcome
        )
        none = np.zeros((0, 1), reward.dtype)
        drawn = [np.full(outcome.shape, -1, np.int32), none, none]
    tables = (outcome, sim.threshold, sim.first_state, sim.first_threshold, reward, *drawn)
    return ListedEnvironment(*(np.ascontiguousarray(x) for x in tables))


_ALONG = (np.s_[:, None, None], np.s_[None, :, None])


def _listed_rewards(
    law: ListedReward, outcome: jax.Array
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """`reward`, `drawn`, `weight` and `value` of the outcomes [S A K], with the arithmetic of `ListedReward.sample`."""
    matches = law.outcome[:, :, None, :] == outcome[..., None]
    each = jnp.where(matches, law.probability[:, :, None, :], 0.0)
    weight, each = np.asarray(jnp.cumsum(each, -1)), np.asarray(each)
    value = np.broadcast_to(np.asarray(law.value)[:, :, None, :], weight.shape)
    # Where all possible entries pay the same, no random number is needed.
    low, high = (f(np.where(each > 0, value, fill), -1) for f, fill in ((np.min, np.inf), (np.max, -np.inf)))
    several = low < high
    drawn = np.full(several.shape, -1, np.int32)
    drawn[several] = np.arange(several.sum())
    return np.where(low <= high, low, 0.0).astype(value.dtype), drawn, weight[several], value[several]
