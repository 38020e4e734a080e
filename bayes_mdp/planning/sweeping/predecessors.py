"""The states from which each state can be reached, in lists: what a sweep backwards through an MDP reads."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from bayes_mdp.utils.typing import AnyArray, IntScalar


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
        found = self.lists[jnp.minimum(state, n_states - 1), jnp.minimum(places, length - 1)]
        return jnp.where(places < length, found, n_states)


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
        at = jnp.minimum(state, n_states - 1)
        where = self.first[at] + places
        found = self.states[jnp.minimum(where, self.longest - 1)]
        return jnp.where(where < self.first[at + 1], found, n_states)


def predecessors_of(successor: Int[AnyArray, "S A K"], possible: Bool[AnyArray, "S A K"]) -> Predecessors:
    """The states from which some action can lead to each state, each once, in increasing order. Traceable.

    Args:
        successor: listed next states.
        possible: which of them count; the others may hold anything.
    """
    n_states = successor.shape[0]
    state = jnp.broadcast_to(jnp.arange(n_states, dtype=jnp.int32)[:, None, None], successor.shape).ravel()
    target = jnp.where(jnp.asarray(possible), jnp.asarray(successor, jnp.int32), n_states).ravel()
    # Pairs (next state, state) come in the order of the states; a stable sort by the next state makes equal pairs
    # neighbours, of which the first is kept.
    order = jnp.argsort(target, stable=True)
    target, state = target[order], state[order]
    again = (target[1:] == target[:-1]) & (state[1:] == state[:-1])
    kept = jnp.concatenate([jnp.ones(1, bool), ~again]) & (target < n_states)
    size = len(state)
    place = jnp.where(kept, jnp.cumsum(kept, dtype=jnp.int32) - 1, size)
    number = jnp.zeros(n_states, jnp.int32).at[target].add(kept.astype(jnp.int32), mode="drop")
    first = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(number, dtype=jnp.int32)])
    return Predecessors(jnp.full(size, n_states, jnp.int32).at[place].set(state, mode="drop"), first)
