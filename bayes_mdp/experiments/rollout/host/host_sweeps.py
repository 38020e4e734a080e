"""A run of a learner with prioritized sweeping by the numba loop: the arrays of `Carry`, advanced in place.

What a step does is in `sweeping_kernel`. A state can be handed over to the compiled loop of XLA and back between any
two rows: both read and write the same arrays, and draw the same random numbers.
"""

from functools import partial

import jax
import numpy as np
from jaxtyping import Array, Float, Key

from bayes_mdp.agents import MBIE, MBIEEB, OIM, FrequencyBonus, RecencyBonus, RMax
from bayes_mdp.agents.model_based.empirical import ListedTally
from bayes_mdp.agents.model_based.empirical_optimism import ModelBased
from bayes_mdp.agents.model_based.planners import PrioritizedSweeping, SweptState
from bayes_mdp.experiments.rollout.host.listed_environment import ListedEnvironment
from bayes_mdp.experiments.rollout.host.sweeping_kernel import (
    FREQUENCY,
    INTERVAL,
    KNOWN_AFTER,
    OPTIMISTIC_START,
    RECENCY,
    Counts,
    Model,
    Queue,
    Recorded,
    SweepNumbers,
    SweepSizes,
    kept_models,
    kept_steps,
)
from bayes_mdp.experiments.rollout.time_loop import Carry, Layout, RunContext
from bayes_mdp.mdp import Discounted
from bayes_mdp.utils.typing import RealScalar

STEPS_OF_A_CALL = 400_000
"""Of all seeds, at least: about half a second, so that the tables of a seed stay near the processor for a while."""


class HostSweeps:
    """All seeds of a run, played by numba.

    Args:
        layout: the shape of the run.
        setting: what does not change (see `host_choice.why_not_sweeps` for what is supported).
        env: the environment.
        keys: of the seeds.
        carry: their states.
        done: rows that were played.
        reward: of these rows, Float[N done].

    Attributes:
        carry: the states; `play` writes into their arrays.
        done: Int[]: rows that were played, written together with the states.
        reward: Float[N rows], of all rows; zero where they were not played.
    """

    def __init__(
        self,
        layout: Layout,
        setting: RunContext,
        env: ListedEnvironment,
        keys: Key[Array, " N"],
        carry: Carry,
        done: int = 0,
        reward: Float[np.ndarray, "N done"] | None = None,
    ) -> None:
        agent, objective = setting.agent, setting.problem.objective
        assert isinstance(agent, ModelBased) and isinstance(objective, Discounted)
        planner = agent.planner
        assert isinstance(planner, PrioritizedSweeping)
        self.carry: Carry = jax.tree.map(_writable, carry)
        self.done = np.array(done)
        self._keys = np.asarray(jax.random.key_data(keys))
        self._env = env
        legal = setting.problem.space.legal
        self._legal = np.ones(self._env.outcome.shape[:2], bool) if legal is None else np.array(legal, bool)
        which, v_max, width = _model_of(agent)
        self._sizes = SweepSizes(layout.num_steps, layout.row_length, planner.num_pops, which, bool(agent.joint))
        self._arrays = _arrays_of(self.carry)
        kind, shape = self._arrays[1].rows.dtype.type, self._arrays[0].counts.shape
        bonus_discount = objective.discount if agent.discount_of_bonus is None else agent.discount_of_bonus
        numbers = v_max, width, objective.discount, bonus_discount, planner.threshold, 1.0
        self._numbers = SweepNumbers(*(kind(x) for x in numbers))
        self._model = Model(np.zeros(shape[:3], kind), np.zeros(shape[:3], kind), np.zeros(shape, kind))
        kept_models(which, self._numbers, self._arrays[0], self._model)
        self.reward = np.zeros((shape[0], layout.num_rows), kind)
        if reward is not None:
            self.reward[:, :done] = reward
        self._num_rows = layout.num_rows
        self._rows_of_a_call = max(layout.chunk_rows, -(-STEPS_OF_A_CALL // (layout.row_length * shape[0])))

    def play(self, num_rows: int | None = None) -> None:
        """Some more rows of every seed; None: as many as are worth a call."""
        first = int(self.done)
        rows = first, min(first + (num_rows or self._rows_of_a_call), self._num_rows)
        counts, queue = self._arrays
        recorded = Recorded(np.asarray(self.carry.state), np.asarray(self.carry.visits), self.reward)
        state = counts, queue, self._model, recorded
        kept_steps(self._sizes, self._numbers, self._env, self._legal, self._keys, *state, rows, self.done.reshape(1))

    def rows(self) -> dict[str, Float[np.ndarray, "N done"]]:
        """The columns of the rows so far by name, as in `time_loop.Row`."""
        reward = self.reward[:, : int(self.done)].astype(np.float64)
        return {"reward": reward, "regret": np.zeros_like(reward)}


def _writable(array: Array | np.ndarray) -> np.ndarray:
    """A copy. What is zero so far is asked for as such: memory is then taken place by place, when it is written."""
    given = np.asarray(array)
    return np.array(given) if given.any() else np.zeros_like(given)


def _model_of(agent: ModelBased) -> tuple[int, RealScalar, RealScalar]:
    """Which model of a pair an agent has, its value of an untried pair, and its other number."""
    match agent:
        case OIM():
            return OPTIMISTIC_START, agent.v_max, 0.0
        case RMax():
            return KNOWN_AFTER, agent.v_max, agent.num_visits
        case MBIEEB():
            return INTERVAL, agent.v_max, agent.beta
        case MBIE():
            return INTERVAL, agent.v_max, agent.reward_width
        case FrequencyBonus():
            return FREQUENCY, agent.v_max, agent.scale
        case RecencyBonus():
            return RECENCY, agent.v_max, agent.scale
    raise AssertionError(f"agent is a {type(agent).__name__}, expected what `host_choice` admits")


def _arrays_of(carry: Carry) -> tuple[Counts, Queue]:
    """The arrays of the agent's states, without copies."""
    swept = carry.agent_state
    assert isinstance(swept, SweptState) and isinstance(swept.tally, ListedTally)
    counts = Counts._make(np.asarray(getattr(swept.tally, name)) for name in Counts._fields)
    rows, priority, tops = (np.asarray(x) for x in (swept.sweeps.rows, swept.sweeps.priority, swept.sweeps.tops))
    as_bits = partial(np.ndarray.view, dtype=f"i{tops.itemsize}")
    return counts, Queue(rows, priority, tops, as_bits(priority), as_bits(tops), np.asarray(swept.sweeps.num_backups))
