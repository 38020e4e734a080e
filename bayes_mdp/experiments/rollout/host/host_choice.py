"""Which compiler makes the loop of a run: XLA for every run, numba for some.

numba's loop is a plain one on the processor: it visits one state after the other, of one seed after the other, and does
only what is due. XLA plays all seeds at once, computes both sides of every branch and masks one. Where an agent touches
one state at a time the plain loop is several times faster; where it plans over all states, or on a GPU, XLA is.

numba plays (everything else is XLA's):

* runs in whole episodes of `TDBMA` and `SarsaLambda` (`why_not_episodes`);
* runs in steps, under `Discounted`, of `OIM`, `RMax`, `MBIEEB`, `MBIE` without a transition width, `FrequencyBonus` and
  `RecencyBonus` without `explore_prob`, with `PrioritizedSweeping` in lists of observed states, a plan at every step,
  and a regret that needs no values of policies (`why_not_sweeps`);

in an `Environment` that is the same at every step and whose rewards are known, or a list for every outcome. Both loops
draw the same random numbers and sum in the same order, but XLA may round a product and a sum once, numba rounds twice:
results agree to rounding, and where two actions nearly tie a trajectory can part from the other.

The choice does not depend on the size of a run: the first seeds would then depend on the number of seeds.

An environment as plain arrays, for the numba loops: what can happen, how likely, and what it pays.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Key

from bayes_mdp.agents import MBIE, MBIEEB, OIM, TDBMA, FrequencyBonus, RecencyBonus, RMax, SarsaLambda
from bayes_mdp.agents.model_based.empirical_optimism import ModelBased
from bayes_mdp.agents.model_based.empirical_planning import PrioritizedSweeping
from bayes_mdp.envs.gymnasium.from_gymnasium import ListedReward
from bayes_mdp.experiments.rollout.simulator import Simulator
from bayes_mdp.experiments.rollout.sweep_loop import EpisodeContext, TabularStates
from bayes_mdp.experiments.rollout.time_loop import Layout, RunContext
from bayes_mdp.mdp import NormalReward, RewardLaw
from bayes_mdp.models.mdp_spec import RewardTable
from bayes_mdp.utils.messages import install


def chooses_numba(compiler: str, why_not: str | None) -> bool:
    """Whether numba plays a run.

    Args:
        compiler: "auto", "xla" or "numba", as `RunOptions.compiler`.
        why_not: why numba cannot play it; None: it can.

    Raises:
        ValueError: "numba", which cannot play it. ImportError: "numba", which is not installed. One sentence each.
    """
    if compiler == "xla" or (compiler == "auto" and why_not is not None):
        return False
    if why_not is not None:
        raise ValueError(f"options.compiler is 'numba', expected 'auto' or 'xla': {why_not}")
    try:
        import numba
    except ImportError as error:  # not there, or not with this version of NumPy
        if compiler == "auto":
            return False
        raise ImportError(f"options.compiler is 'numba', which is missing: {install('fast')}") from error
    del numba
    return True


def why_not_episodes(setting: EpisodeContext, keys: Key[Array, " N"]) -> str | None:
    """Why numba cannot play a run in whole episodes; None: it can."""
    if type(setting.agent) not in (TDBMA, SarsaLambda):  # a derived agent may learn otherwise
        return f"agent is a {type(setting.agent).__name__}, not TDBMA or SarsaLambda"
    if not isinstance(setting.env, TabularStates):
        return "the states of env are not listed"
    return _why_not_here(keys) or _why_not_in(setting.env.simulator)


SWEPT = (OIM, RMax, MBIEEB, MBIE, FrequencyBonus, RecencyBonus)


def why_not_sweeps(
    layout: Layout, setting: RunContext, keys: Key[Array, " N"], *, own_env: bool, mesh: Mesh | None
) -> str | None:
    """Why numba cannot play a run in steps; None: it can. `own_env`, `mesh`: as in `execute.Prepared`."""
    agent, space = setting.agent, setting.problem.space
    if type(agent) not in SWEPT:
        return f"agent is a {type(agent).__name__}, not one of {', '.join(kind.__name__ for kind in SWEPT)}"
    assert isinstance(agent, ModelBased)
    if not isinstance(agent.planner, PrioritizedSweeping) or space.successors is not None:
        return "agent.planner is not PrioritizedSweeping in a space that lists no successors"
    if isinstance(agent, (FrequencyBonus, RecencyBonus)) and agent.explore_prob is not None:
        return "agent.explore_prob is given"
    if layout.episodic or not layout.always or layout.segment_length != 1:
        return "the agent does not plan at every step, without a horizon"
    if layout.values or own_env:
        return "its regret needs values of policies, or environments that are drawn"
    if setting.target is not None or mesh is not None:
        return "options.target or options.devices is given"
    return _why_not_here(keys) or _why_not_in(setting.simulator)


def _why_not_here(keys: jax.Array) -> str | None:
    platforms = {device.platform for device in keys.devices()}
    return None if platforms == {"cpu"} else f"the run is on {', '.join(sorted(platforms))}"


def _why_not_in(sim: Simulator) -> str | None:
    if sim.outcome.ndim != 3:
        return "env changes with the step, or with the seed"
    return None if _pays_from_a_list(sim.reward_law) else "the rewards of env are drawn from a law"


def _pays_from_a_list(law: RewardLaw) -> bool:
    # Exact types: a law derived from one of these may draw otherwise.
    if type(law) is NormalReward:
        return law.scale is None
    return type(law) is ListedReward or (type(law) is RewardTable and law.law is None)


class ListedEnvironment(NamedTuple):
    """The arrays of `Simulator`, and rewards.

    Args:
        outcome: Int[S A K], S is the end.
        threshold: Float[S A T].
        first_state: Int[K0]. first_threshold: Float[1 1 T0], as of the one pair that leads to it.
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


def list_environment(sim: Simulator) -> ListedEnvironment:
    """The arrays of a simulator of one environment, the same at every step, whose law `host_choice` admits."""
    law, outcome = sim.reward_law, np.asarray(sim.outcome)
    if isinstance(law, ListedReward):
        reward, *drawn = _list_rewards(law, outcome)
    else:
        assert isinstance(law, (NormalReward, RewardTable))
        table = np.asarray(law.mean)
        if law.by_outcome:
            reward = np.take_along_axis(table, outcome, -1)
        else:
            reward = np.broadcast_to(table[..., None], outcome.shape)
        none = np.zeros((0, 1), reward.dtype)
        drawn = [np.full(outcome.shape, -1, np.int32), none, none]
    first_threshold = np.asarray(sim.first_threshold)[None, None]
    tables = (outcome, sim.threshold, sim.first_state, first_threshold, reward, *drawn)
    return ListedEnvironment(*(np.ascontiguousarray(x) for x in tables))


def _list_rewards(law: ListedReward, outcome: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """`reward`, `drawn`, `weight` and `value` of the outcomes [S A K], with the arithmetic of `ListedReward.sample`."""
    # Matches [S A K E]: which entries of the list belong to outcome k of a pair.
    matches = np.asarray(law.outcome)[:, :, None, :] == outcome[..., None]
    probability = np.asarray(law.probability)[:, :, None, :]
    weights = np.where(matches, probability, np.zeros((), probability.dtype))
    # Sums in JAX's own order, so that a draw is the same to the last bit.
    value = np.broadcast_to(np.asarray(law.value)[:, :, None, :], weights.shape)
    # Where all possible entries pay the same, no random number is needed.
    low, high = (f(np.where(weights > 0, value, fill), -1) for f, fill in ((np.min, np.inf), (np.max, -np.inf)))
    several = low < high
    # Only the outcomes with several values have a row of weights; `drawn` says which.
    weight = np.asarray(jnp.cumsum(jnp.asarray(weights[several]), -1))
    drawn = np.full(several.shape, -1, np.int32)
    drawn[several] = np.arange(several.sum())
    return np.where(low <= high, low, 0.0).astype(value.dtype), drawn, weight, value[several]
