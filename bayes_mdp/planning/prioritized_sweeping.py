"""Improved prioritized sweeping (Wiering and Schmidhuber 1998, *Efficient model-based exploration*).

A queue of states, keyed by how far the value of each has moved since it was last passed on. After a change of the model
the state that changed is backed up; then, up to a number of times, the first of the queue is taken out and all actions
of all its predecessors (`Predecessors`, in lists) are backed up. Moore and Atkeson's order (1993), with full backups.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, Float, Int

from bayes_mdp.utils.typing import AnyArray, IntScalar, RealScalar

TOGETHER = 8  # predecessors of one state that are backed up at once


class ObservedPredecessors(eqx.Module):
    """Lists of one length.

    Args:
        lists: Int[S P]; S pads.
    """

    lists: Int[Array, "S P"]

    @property
    def longest(self) -> int:
        """P."""
        return self.lists.shape[1]

    def some(self, state: IntScalar, places: Int[Array, " P"]) -> Int[Array, " P"]:
        """The predecessors of a state at some places of its list, in their order; S beyond its end."""
        n_states, length = self.lists.shape
        # Clipped: a gather beyond the end would read another state's list.
        states = self.lists[jnp.minimum(state, n_states - 1), jnp.minimum(places, length - 1)]
        return jnp.where(places < length, states, n_states)


class Predecessors(eqx.Module):
    """Lists of any length, one after the other: a state that all lead to costs S numbers, not S for every state.

    Args:
        states: Int[N], the lists; what follows the last one is not read.
        first: Int[S + 1], where the list of each state begins; the last entry is the end of all.
    """

    states: Int[Array, " N"]
    first: Int[Array, " S1"]

    @property
    def longest(self) -> int:
        """A bound that is known while a program is traced: that of all lists together."""
        return len(self.states)

    def some(self, state: IntScalar, places: Int[Array, " P"]) -> Int[Array, " P"]:
        """As `ObservedPredecessors.some`."""
        n_states = len(self.first) - 1
        row = jnp.minimum(state, n_states - 1)
        # The list of a state begins at `first`, and what lies beyond it belongs to the next one.
        index = self.first[row] + places
        states = self.states[jnp.minimum(index, self.longest - 1)]
        return jnp.where(index < self.first[row + 1], states, n_states)


def predecessors_of(successor: Int[AnyArray, "S A K"], possible: Bool[AnyArray, "S A K"]) -> Predecessors:
    """The states from which some action can lead to each state, each once, in increasing order. Traceable.

    Args:
        successor: listed next states.
        possible: which of them count; the others may hold anything.
    """
    n_states = successor.shape[0]
    state = jnp.broadcast_to(jnp.arange(n_states, dtype=jnp.int32)[:, None, None], successor.shape).ravel()
    # Pairs that cannot be go to the row S, which is dropped.
    target = jnp.where(jnp.asarray(possible), jnp.asarray(successor, jnp.int32), n_states).ravel()
    # Pairs (next state, state) come in the order of the states; a stable sort by the next state makes equal pairs
    # neighbours, of which the first is kept.
    order = jnp.argsort(target, stable=True)
    target, state = target[order], state[order]
    repeated = (target[1:] == target[:-1]) & (state[1:] == state[:-1])
    distinct = jnp.concatenate([jnp.ones(1, bool), ~repeated]) & (target < n_states)
    size = len(state)
    # Compact lists: each distinct pair moves to its rank, `first` says where the list of each state begins.
    place = jnp.where(distinct, jnp.cumsum(distinct, dtype=jnp.int32) - 1, size)
    number = jnp.zeros(n_states, jnp.int32).at[target].add(distinct.astype(jnp.int32), mode="drop")
    first = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(number, dtype=jnp.int32)])
    return Predecessors(jnp.full(size, n_states, jnp.int32).at[place].set(state, mode="drop"), first)


class Backup(NamedTuple):
    """What a backup of P states gives; M value functions are kept side by side, the first decides what is done.

    Args:
        q: values of pairs.
        values: of the states.
        best: the action that each value function would choose.
    """

    q: Float[Array, "P M A"]
    values: Float[Array, "P M"]
    best: Int[Array, "P M"]


First = tuple[Int[Array, ""], Bool[Array, ""]]
"""Row of the first in the queue, and whether it waits."""

BackupOf = Callable[[Int[Array, " P"], Float[Array, "S M"]], Backup]


class Sweeps(eqx.Module):
    """Values on the way to a fixed point, and the queue.

    Args:
        rows: all that is known of a state in one row, so that one write changes it: M values, M values when they were
            last passed on to the predecessors, M best actions, M x A values of pairs.
        priority: how far the values of a state have been from those last passed on (the largest of the M), 0 where the
            state does not wait. It is kept as a square, state R i + j in row i.
        tops: the largest of every row, so that the first of the queue is found in two looks.
        num_backups: states backed up so far, all actions of one state counted as one.
        num_values: M.
    """

    rows: Float[Array, "S D"]
    priority: Float[Array, "R R"]
    tops: Float[Array, " R"]
    num_backups: Int[Array, ""]
    num_values: int = eqx.field(static=True)

    @classmethod
    def start(cls, first: Backup) -> "Sweeps":
        """Nothing waits in the queue; `first` is a backup of all states."""
        n_states, number = first.values.shape
        # A square queue: the largest of a row and of the row maxima cost O(sqrt S) each, without a heap.
        side = int(np.ceil(np.sqrt(n_states)))
        priority = jnp.zeros((side, side), first.values.dtype)
        return cls(_pack(first, first.values), priority, priority[0], jnp.int32(0), number)

    @property
    def waiting(self) -> Int[Array, ""]:
        """How many states wait."""
        return jnp.sum(self.priority > 0)

    @property
    def values(self) -> Float[Array, "S M"]:
        """Of all states."""
        return self.rows[:, : self.num_values]

    @property
    def reference(self) -> Float[Array, "S M"]:
        """Values when they were last passed on."""
        return self.rows[:, self.num_values : 2 * self.num_values]

    @property
    def best(self) -> Int[Array, "S M"]:
        """Actions."""
        return self.rows[:, 2 * self.num_values : 3 * self.num_values].astype(jnp.int32)

    @property
    def q(self) -> Float[Array, "S M A"]:
        """Values of all pairs."""
        return self.rows[:, 3 * self.num_values :].reshape(len(self.rows), self.num_values, -1)


def _pack(new: Backup, reference: Float[Array, "P M"]) -> Float[Array, "P D"]:
    dtype, q_size = new.values.dtype, new.q.shape[1] * new.q.shape[2]
    # One row: what one write replaces.
    return jnp.concatenate([new.values, reference, new.best.astype(dtype), new.q.reshape(len(reference), q_size)], -1)


def back_up_states(sweeps: Sweeps, backup: BackupOf, states: Int[Array, " P"], threshold: RealScalar) -> Sweeps:
    """Back up some states (an index of S or more: none), and let those wait that moved by more than `threshold`.

    A state that waits goes on waiting until it is passed on, even where its value moves back: others may have been
    backed up in between. Inside a compiled loop tables are changed in place.
    """
    n_states, side = len(sweeps.rows), sweeps.priority.shape[0]
    # Padding reads state S - 1, and its writes are dropped below.
    inside = jnp.minimum(states, n_states - 1)
    new, reference = backup(inside, sweeps.values), sweeps.reference[inside]
    moved = jnp.max(jnp.abs(new.values - reference), -1)
    # By at least the threshold, in the unit of the values.
    waits = jnp.where(moved > threshold, moved, 0.0).astype(sweeps.priority.dtype)
    # Beyond the square where there is no state: what lies outside is dropped.
    row = jnp.where(states < n_states, states // side, side)
    return Sweeps(
        sweeps.rows.at[states].set(_pack(new, reference), mode="drop"),
        sweeps.priority.at[row, states % side].max(waits, mode="drop"),
        sweeps.tops.at[row].max(waits, mode="drop"),
        sweeps.num_backups + jnp.sum(states < n_states).astype(jnp.int32),
        sweeps.num_values,
    )


class _Round(NamedTuple):
    """One turn of the loop of `pass_on`.

    `item`: the state whose predecessors are backed up, from place `place` of its list on; S: none. `left`: states that
    may still be taken out. `first`: row of the first in the queue, and whether it waits.
    """

    sweeps: Sweeps
    item: Int[Array, ""]
    place: Int[Array, ""]
    left: Int[Array, ""]
    first: First
    going: Bool[Array, ""]


def pass_on(
    sweeps: Sweeps,
    backup: BackupOf,
    predecessors: ObservedPredecessors | Predecessors,
    threshold: RealScalar,
    num_pops: IntScalar,
    max_backups: IntScalar | None = None,
) -> Sweeps:
    """Take the first state out of the queue and back up its predecessors, up to `num_pops` times.

    It ends as soon as nothing waits (under `vmap`: in no element of the batch). Predecessors are backed up in the order
    of their list, some at once, and the later ones use the new values of the earlier.

    Args:
        sweeps: from here on.
        backup: the Bellman equation.
        predecessors: of every state.
        threshold: as in `back_up_states`.
        num_pops: may be traced; 0: nothing is done.
        max_backups: no state is taken out once so many have been backed up; None: no limit.
    """
    n_states, length = len(sweeps.rows), predecessors.longest
    together, side = min(TOGETHER, length), sweeps.priority.shape[0]

    def may_pop(sweeps: Sweeps, left: Int[Array, ""], first: First) -> Bool[Array, ""]:
        allowed = first[1] & (left > 0)
        return allowed if max_backups is None else allowed & (sweeps.num_backups < max_backups)

    def turn(now: _Round) -> _Round:
        # A state is taken out only when the list of the last one is done; else its next predecessors come.
        pops = (now.item >= n_states) & may_pop(now.sweeps, now.left, now.first)
        sweeps, first = _pop(now.sweeps, jnp.where(pops, now.first[0], side))
        item, place = jnp.where(pops, first, now.item), jnp.where(pops, 0, now.place)
        listed = predecessors.some(item, place + jnp.arange(together))
        states = jnp.where(item < n_states, listed, n_states)
        # The state that was taken out moves its predecessors, all actions of each.
        sweeps = back_up_states(sweeps, backup, states, threshold)
        place = place + together
        # The list is done where it gave padding, or has no further place.
        item = jnp.where((states[-1] < n_states) & (place < length), item, n_states)
        return next_round(sweeps, item, place, now.left - pops)

    def next_round(sweeps: Sweeps, item: Int[Array, ""], place: Int[Array, ""], left: Int[Array, ""]) -> _Round:
        first = _first(sweeps)
        return _Round(sweeps, item, place, left, first, any_in_batch((item < n_states) | may_pop(sweeps, left, first)))

    start = next_round(sweeps, jnp.int32(n_states), jnp.int32(0), jnp.asarray(num_pops, jnp.int32))
    return lax.while_loop(lambda now: now.going, turn, start).sweeps


def _first(sweeps: Sweeps) -> First:
    """Row of the largest (of equals: the first), and whether it waits."""
    row, top = _largest(sweeps.tops)
    return row, top > 0


def _largest(waiting: Float[Array, " R"]) -> tuple[Int[Array, ""], Float[Array, ""]]:
    """Place of the first of the largest, and the number itself; none is negative.

    Such numbers are in the order of their bits, and XLA vectorises a maximum of integers only: an argmax of 50 numbers
    takes 7 times as long.
    """
    # Non-negative IEEE numbers are ordered as their bits are.
    bits = lax.bitcast_convert_type(waiting, f"int{8 * waiting.dtype.itemsize}")
    top = jnp.max(bits)
    place = jnp.min(jnp.where(bits == top, jnp.arange(len(bits), dtype=jnp.int32), len(bits)))
    return place, lax.bitcast_convert_type(top, waiting.dtype)


def _pop(sweeps: Sweeps, row: Int[Array, ""]) -> tuple[Sweeps, Int[Array, ""]]:
    """The first of a row of the queue waits no more, and its values count as passed on; which state (row R: none, S).

    What is written depends on what was read, a whole row of the queue too: a lone zero in its place would make XLA
    copy the table.
    """
    # Only the row of the state changes: its priority goes to 0 and the maximum of the row is taken again.
    number, side, n_states = sweeps.num_values, len(sweeps.tops), len(sweeps.rows)
    waiting = sweeps.priority[jnp.minimum(row, side - 1)]
    column, _ = _largest(waiting)
    rest = jnp.where(jnp.arange(side) == column, 0.0, waiting)
    state = jnp.where(row < side, row * side + column, n_states)
    passed = sweeps.values[jnp.minimum(state, n_states - 1)]
    taken = Sweeps(
        sweeps.rows.at[state, jnp.arange(number, 2 * number)].set(passed, mode="drop"),
        sweeps.priority.at[row].set(rest, mode="drop"),
        sweeps.tops.at[row].set(_largest(rest)[1], mode="drop"),
        sweeps.num_backups,
        number,
    )
    return taken, state


@custom_vmap
def any_in_batch(flag: Bool[Array, ""]) -> Bool[Array, ""]:
    """Whether it holds in some element of a `vmap`: one number for all, so that a loop on it selects no tables."""
    return flag


@any_in_batch.def_vmap
def _any_in_batch(axis_size: int, batched: list[bool], flag: Bool[Array, "*B"]) -> tuple[Bool[Array, ""], bool]:
    del axis_size
    return any_in_batch(jnp.any(flag, 0) if batched[0] else flag), False
