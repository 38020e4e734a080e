"""What an `Actor` carries: belief, plan in force, its table of actions on the host, transitions not yet learnt from."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Int, Key

from bayes_mdp.experiments.actor_programs import Block, begin, programs
from bayes_mdp.experiments.beliefs import on_device
from bayes_mdp.experiments.refits import Refits
from bayes_mdp.mdp import Problem

MOST_BUFFERED = 256
MOST_ACTIONS = 65_536  # of a table


class ActorCore:
    """Belief and plan of an agent; compiled calls happen in `plan`, `refill` and when the buffer is full.

    Args:
        agent, problem, belief: as in a compiled run (belief None: the agent has its own).
        key: a typed key; its streams are those of one seed of a compiled run.
        lanes: number of parallel environments, None: one, whose actions are scalars.
        period: steps until the next plan, where that is known or likely: decides sizes only.
    """

    def __init__(self, agent: Any, problem: Problem, belief: Any, *, key: Key, lanes: int | None, period: int) -> None:
        fixed, changing = on_device((agent, problem)), on_device(belief)
        leaves, structure = jax.tree.flatten(fixed)
        self._words = jax.device_put(np.asarray(jax.random.key_data(key)))
        state = begin(structure, leaves, self._words)
        self._leaves, self._structure = jax.tree.flatten((*fixed, changing, state))
        n_states, width = problem.space.n_states, lanes or 1
        self.num_rows = max(1, min(-(-period // width), MOST_ACTIONS // (n_states * width)))
        self._size = min(period, MOST_BUFFERED) + width - 1
        self._programs = programs(self._structure, len(leaves), lanes, self.num_rows)
        self._owns_belief = belief is None
        alone, rest = eqx.partition(changing, eqx.is_array)
        self.refits = Refits(key[None], alone, rest)
        self._dtype = jax.dtypes.canonicalize_dtype(float)
        self._table: Int[np.ndarray, "*lanes K S"] | None = None
        self.policy: Any = None
        self._empty()

    def _empty(self) -> None:
        # New arrays: the old ones may still be read by a call.
        self._columns = np.zeros((4, self._size), np.int32)
        self._reward = np.zeros(self._size, self._dtype)
        self._count = 0

    def add(self, step: int, state: int, action: int, outcome: int, reward: float) -> None:
        """Keep a transition until the next plan; a full buffer is learnt from at once."""
        if self._count == self._size:
            self._leaves = self._learnt()
            self._empty()
        i, columns = self._count, self._columns
        columns[0, i], columns[1, i], columns[2, i], columns[3, i] = step, state, action, outcome
        self._reward[i] = reward
        self._count = i + 1

    def _block(self) -> Block:
        return Block(self._columns, self._reward, self._count)

    def _learnt(self) -> list[Any]:
        return [*self._leaves[: self._programs.num_fixed], *self._programs.learn(self._leaves, self._block())]

    def plan(self, time: int, lane_times: list[int]) -> None:
        """Learn from what is buffered, infer anew a belief that is worn out, plan, fill the table."""
        if self.refits.needed:
            self._renew(time)
        clock = np.array([time, *lane_times], np.int32)
        changed, self.policy, table = self._programs.plan(self._leaves, self._block(), self._words, clock)
        self._leaves[self._programs.num_fixed :] = changed
        self._table = np.asarray(table)
        self._empty()

    def _renew(self, time: int) -> None:
        if self._count:
            self._leaves = self._learnt()
            self._empty()
        agent, problem, belief, state = jax.tree.unflatten(self._structure, self._leaves)
        fresh, worn = self.refits.renew(jax.tree.map(lambda x: np.asarray(x)[None], belief), time)
        if worn.any():
            self._leaves = jax.tree.leaves((agent, problem, jax.tree.map(lambda x: x[0], fresh), state))

    def refill(self, time: int, lane_times: list[int]) -> None:
        """Actions of the same plan from `lane_times` on."""
        clock = np.array([time, *lane_times], np.int32)
        self._table = np.asarray(self._programs.act(self._leaves, self.policy, self._words, clock))

    def action(self, *where: int) -> int:
        """The entry (lane,) row, state of the table."""
        return self._table.item(*where)  # type: ignore[union-attr]

    @property
    def belief(self) -> Any:
        """The posterior (or the agent's own belief), buffered data included; nothing changes by looking."""
        leaves = self._learnt() if self._count else self._leaves
        return jax.tree.unflatten(self._structure, leaves)[3 if self._owns_belief else 2]
