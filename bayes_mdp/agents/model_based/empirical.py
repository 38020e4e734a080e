"""Counts of a model-based learner without a prior, and the family of Bellman equations built on them.

[OIM08] Szita and Lorincz, *The Many Faces of Optimism*, ICML 2008: most exploration methods plan in the empirical model
with an exploration bonus added to the rewards. `Local` holds both; a method is a rule that computes it from `Stats`.
"""

import math
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bayes_mdp.mdp import MDP, Problem, SparseMDP, StateActionSpace, Transitions
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.typing import AnyArray, IntScalar, Scalar

COPIES = 6  # of the counts: two models made from them, and the buffers of a step
REMEDY = (
    "a space that lists the possible successors (StateActionSpace(successors=...)), or a planner that lists the "
    "observed ones (PrioritizedSweeping), takes less"
)


class Stats(NamedTuple):
    """Counts of some pairs (any leading axes).

    Args:
        visits: n, how often the pair was used; visits missing in `counts` ended the episode.
        reward: mean of the observed rewards, 0 where n = 0.
        counts: counts of K successors.
        last_use: at which step (from 1 on) the pair was last used; 0: never.
        possible: which of the K places hold a next state, where every pair has a list of its own; None: the K are all
            states, or a place without counts holds none.
    """

    visits: Float[Array, "*pairs"]
    reward: Float[Array, "*pairs"]
    counts: Float[Array, "*pairs K"]
    last_use: Int[Array, "*pairs"]
    possible: Bool[AnyArray, "*pairs K"] | None = None

    @property
    def probs(self) -> Float[Array, "*pairs K"]:
        """N(s, a, y) / n, 0 where n = 0."""
        return self.counts / jnp.maximum(self.visits, 1.0)[..., None]


class Local(NamedTuple):
    """One step of an optimistic model: Q = reward + bonus + discount sum_y probs(y) V(y).

    Args:
        reward: expected reward, in units of the reward.
        bonus: exploration bonus, in the same units.
        probs: of the K successors; the missing mass leads to an end of value 0.
    """

    reward: Float[Array, "*pairs"]
    bonus: Float[Array, "*pairs"]
    probs: Float[Array, "*pairs K"]


class Tally(eqx.Module):
    """Counts of all pairs: of every next state or, in a space that lists successors, of every listed one.

    Args:
        visits: n of every pair.
        total: sum of the rewards.
        counts: of the K next states of a row (`row_width`).
        last_use: as in `Stats`.
        time: steps so far.
    """

    visits: Float[Array, "*H S A"]
    total: Float[Array, "*H S A"]
    counts: Float[Array, "*H S A K"]
    last_use: Int[Array, "*H S A"]
    time: Int[Array, ""]

    @classmethod
    def empty(cls, space: StateActionSpace) -> "Tally":
        """No data.

        Args:
            space: whose pairs are counted.

        Raises:
            ValueError: the counts, and a model made of them, would not fit in memory.
        """
        shape = (*space.shape, row_width(space))
        numbers = math.prod(shape)
        check_memory(f"space has {numbers} counts of next states", 4.0 * COPIES * numbers, REMEDY)
        none = jnp.zeros(space.shape)
        return cls(none, none, jnp.zeros(shape), jnp.zeros(space.shape, jnp.int32), jnp.int32(0))

    def count(self, problem: Problem, transition: Transitions, weight: Scalar) -> "Tally":
        """The tally after one transition; unchanged where `weight` is 0.

        Args:
            problem: whose space is looked at.
            transition: one.
        """
        space, used = problem.space, jnp.asarray(weight, self.visits.dtype)
        ended = False if transition.terminated is None else transition.terminated
        cell, time = transition.cell(space), self.time + (used > 0)
        reward = jnp.where(used > 0, used * jnp.asarray(transition.reward), 0.0)
        place = transition.next_state if space.successors is None else space.place(cell, transition.next_state)
        return Tally(
            self.visits.at[cell].add(used),
            self.total.at[cell].add(reward),
            self.counts.at[(*cell, place)].add(jnp.where(ended, 0.0, used)),
            self.last_use.at[cell].set(jnp.where(used > 0, time, self.last_use[cell])),
            time,
        )

    def mdp(self, space: StateActionSpace) -> MDP | SparseMDP:
        """The empirical MDP. Only tried pairs are legal; in a state without one every legal action ends the episode.

        Args:
            space: whose pairs were counted.
        """
        stats = self.stats
        return model_of(space, stats.probs, stats.reward, _usable(stats, space.legal))

    @property
    def stats(self) -> Stats:
        """Of all pairs."""
        return Stats(self.visits, self.total / jnp.maximum(self.visits, 1.0), self.counts, self.last_use)

    def stats_in(self, space: StateActionSpace) -> Stats:
        """Of all pairs, with the places that are possible where the space lists successors.

        Args:
            space: whose pairs were counted.
        """
        listed = space.successors
        return self.stats if listed is None else self.stats._replace(possible=_is_state(space, self.counts))

    def some(self, states: Int[Array, " P"]) -> Stats:
        """Of all pairs of some states, for a tally without an axis of steps.

        Args:
            states: their indices.
        """
        visits = self.visits[states]
        mean = self.total[states] / jnp.maximum(visits, 1.0)
        return Stats(visits, mean, self.counts[states], self.last_use[states])


def row_width(space: StateActionSpace) -> int:
    """K, the next states of a row that are counted: all, or those that a pair lists (and a place for the end).

    Args:
        space: any.
    """
    return space.n_states if space.successors is None else space.n_outcomes


def next_states(space: StateActionSpace) -> Int[Array, "*H S A K"]:
    """The listed next states as indices; state 0 at a place that holds none (-1, or the end), where nothing counts.

    Args:
        space: one that lists successors.
    """
    listed = jnp.asarray(space.successors)
    return jnp.where((listed >= 0) & (listed < space.n_states), listed, 0)


def values_of_rows(space: StateActionSpace, values: Float[Array, " S"], step: IntScalar = 0) -> Float[Array, "*#S K"]:
    """`values` of the states as those of the next states of a row, at one step: [S], or [S A K] in a listed space.

    Args:
        space: any.
        step: of the episode, where lists depend on it.
    """
    if space.successors is None:
        return values
    listed = next_states(space)
    return values[listed if listed.ndim == 3 else listed[step]]


def model_of(
    space: StateActionSpace,
    probs: Float[Array, "*H S A K"],
    reward: Float[Array, "*H S A"],
    legal: Bool[AnyArray, "S A"] | None,
) -> MDP | SparseMDP:
    """The MDP with these rows of next states; the mass that a row lacks ends the episode.

    Args:
        space: of the pairs.
        probs: of the K next states of a row.
        reward: mean reward of each pair.
        legal: which pairs may be used; None: all.
    """
    ends = jnp.maximum(1.0 - jnp.sum(probs, -1), 0.0)
    if space.successors is None:
        return MDP(probs, reward, end_probs=ends, legal=legal)
    listed = jnp.broadcast_to(next_states(space), probs.shape)
    return SparseMDP(listed, probs, reward, end_probs=ends, legal=legal)


def _is_state(space: StateActionSpace, counts: Float[Array, "*H S A K"]) -> Bool[Array, "*H S A K"]:
    listed = jnp.asarray(space.successors)
    return jnp.broadcast_to((listed >= 0) & (listed < space.n_states), counts.shape)


class ListedTally(eqx.Module):
    """Counts of all pairs with lists of observed successors, and of observed predecessors of states. Stationary.

    Args:
        visits, total, last_use, time: as in `Tally`.
        successor: the k-th observed next state (0 where there is none yet; its count is 0).
        counts: of each.
        predecessor: observed predecessors of each state, padded with S.
        lost: transitions that did not fit in the lists and were not counted.
    """

    visits: Float[Array, "S A"]
    total: Float[Array, "S A"]
    last_use: Int[Array, "S A"]
    time: Int[Array, ""]
    successor: Int[Array, "S A K"]
    counts: Float[Array, "S A K"]
    predecessor: Int[Array, "S P"]
    lost: Int[Array, ""]

    @classmethod
    def empty(cls, space: StateActionSpace, max_successors: int, max_predecessors: int) -> "ListedTally":
        """No data.

        Args:
            space: whose pairs are counted.
            max_successors: K, next states of a pair at most.
            max_predecessors: of a state, at most.
        """
        s, a = space.n_states, space.n_actions
        none, zero = jnp.zeros((s, a)), jnp.int32(0)
        lists = jnp.zeros((s, a, max_successors), jnp.int32)
        predecessor = jnp.full((s, max_predecessors), s, jnp.int32)
        return cls(none, none, jnp.zeros((s, a), jnp.int32), zero, lists, jnp.zeros(lists.shape), predecessor, zero)

    def count(self, transition: Transitions, weight: Scalar) -> "ListedTally":
        """The tally after one transition; unchanged where `weight` is 0.

        Args:
            transition: one.
        """
        s, a, y = (jnp.asarray(x, jnp.int32) for x in (transition.state, transition.action, transition.next_state))
        ended = jnp.asarray(False if transition.terminated is None else transition.terminated)
        # A successor that fits in its list may have a predecessor that does not: then nothing is counted.
        slot, placed = _place(self.successor[s, a], self.counts[s, a] > 0, y)
        before, known = _place(self.predecessor[y], self.predecessor[y] < self.visits.shape[0], s)
        fits = ended | (placed & known)
        used = jnp.where(fits, jnp.asarray(weight, self.visits.dtype), 0.0)
        time, continues = self.time + (used > 0), (used > 0) & ~ended
        reward = jnp.where(used > 0, used * jnp.asarray(transition.reward), 0.0)
        return ListedTally(
            self.visits.at[s, a].add(used),
            self.total.at[s, a].add(reward),
            self.last_use.at[s, a].set(jnp.where(used > 0, time, self.last_use[s, a])),
            time,
            self.successor.at[s, a, slot].set(jnp.where(continues, y, self.successor[s, a, slot])),
            self.counts.at[s, a, slot].add(jnp.where(continues, used, 0.0)),
            self.predecessor.at[y, before].set(jnp.where(continues, s, self.predecessor[y, before])),
            self.lost + (~fits & (jnp.asarray(weight) != 0)),
        )

    def mdp(self, space: StateActionSpace) -> SparseMDP:
        """The empirical MDP, as `Tally.mdp`.

        Args:
            space: whose pairs were counted.
        """
        stats, successor = self.stats(jnp.arange(len(self.visits)))
        ends = jnp.maximum(1.0 - jnp.sum(stats.probs, -1), 0.0)
        return SparseMDP(successor, stats.probs, stats.reward, end_probs=ends, legal=_usable(stats, space.legal))

    def stats(self, states: Int[Array, " P"]) -> tuple[Stats, Int[Array, "P A K"]]:
        """Of all pairs of some states, and their successors.

        Args:
            states: their indices.
        """
        visits = self.visits[states]
        mean = self.total[states] / jnp.maximum(visits, 1.0)
        return Stats(visits, mean, self.counts[states], self.last_use[states]), self.successor[states]


def _usable(stats: Stats, legal: Bool[AnyArray, "S A"] | None) -> Bool[Array, "S A"]:
    """Pairs tried at some step; in a state without one, all legal pairs."""
    tried = jnp.any(stats.visits > 0, tuple(range(stats.visits.ndim - 2)))
    allowed = jnp.ones(tried.shape, bool) if legal is None else jnp.asarray(legal)
    return tried | (allowed & ~jnp.any(tried, -1, keepdims=True))


def _place(
    listed: Int[Array, " K"], taken: Bool[Array, " K"], wanted: IntScalar
) -> tuple[Int[Array, ""], Bool[Array, ""]]:
    """The index of `wanted` in a list, or of the first free place, and whether there is one."""
    here = taken & (listed == wanted)
    fits = here | (~taken & ~jnp.any(here))
    return jnp.argmax(fits), jnp.any(fits)
