"""What a model-based learner without a prior has counted, and the one family of Bellman equations built on it.

[OIM08] Szita and Lorincz, *The Many Faces of Optimism*, ICML 2008: most exploration methods plan in the empirical model
with a reward of exploration beside the real one. `Local` is that pair; a method is a rule that makes it from `Stats`.
"""

import math
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bayes_mdp.mdp import MDP, Problem, SparseMDP, StateActionSpace, Transitions
from bayes_mdp.mdp.memory import check_memory
from bayes_mdp.mdp.typing import AnyArray, IntScalar, Scalar

COPIES = 6  # of the counts: two models made of them, and what a step keeps of both
REMEDY = "a planner that lists the successors seen (PrioritizedSweeping) takes less"


class Stats(NamedTuple):
    """What has been counted of some pairs (any leading axes).

    Args:
        visits: n, how often the pair was used; what is missing in `counts` are ends of episodes.
        reward: mean of the rewards seen, 0 where n = 0.
        counts: how often each of K successors followed.
        last_use: at which step (from 1 on) the pair was last used; 0: never.
    """

    visits: Float[Array, "*pairs"]
    reward: Float[Array, "*pairs"]
    counts: Float[Array, "*pairs K"]
    last_use: Int[Array, "*pairs"]

    @property
    def probs(self) -> Float[Array, "*pairs K"]:
        """N(s, a, y) / n, 0 where n = 0."""
        return self.counts / jnp.maximum(self.visits, 1.0)[..., None]


class Local(NamedTuple):
    """One step of an optimistic model: Q = reward + bonus + discount sum_y probs(y) V(y).

    Args:
        reward: what the world is believed to pay, units of the reward.
        bonus: what exploration is worth, in the same units.
        probs: of the K successors; what is missing to one leads where nothing is worth anything.
        optimistic: the rows of the sum, where it has rows of its own (`ModelBased.own_rows`).
    """

    reward: Float[Array, "*pairs"]
    bonus: Float[Array, "*pairs"]
    probs: Float[Array, "*pairs K"]
    optimistic: Float[Array, "*pairs K"] | None = None


class Tally(eqx.Module):
    """Counts of all pairs, dense.

    Args:
        visits: n of every pair.
        total: sum of the rewards.
        counts: of every next state.
        last_use: as in `Stats`.
        time: steps so far.
    """

    visits: Float[Array, "*H S A"]
    total: Float[Array, "*H S A"]
    counts: Float[Array, "*H S A S"]
    last_use: Int[Array, "*H S A"]
    time: Int[Array, ""]

    @classmethod
    def empty(cls, space: StateActionSpace) -> "Tally":
        """Nothing has been seen.

        Raises:
            ValueError: the counts, and a model made of them, would not fit in memory.
        """
        numbers = math.prod((*space.shape, space.n_states))
        check_memory(f"space has {numbers} counts of next states", 4.0 * COPIES * numbers, REMEDY)
        none = jnp.zeros(space.shape)
        rows = jnp.zeros((*space.shape, space.n_states))
        return cls(none, none, rows, jnp.zeros(space.shape, jnp.int32), jnp.int32(0))

    def count(self, problem: Problem, transition: Transitions, weight: Scalar) -> "Tally":
        """The tally after one transition; unchanged where `weight` is 0."""
        used = jnp.asarray(weight, self.visits.dtype)
        ended = False if transition.terminated is None else transition.terminated
        cell, time = transition.cell(problem.space), self.time + (used > 0)
        reward = jnp.where(used > 0, used * jnp.asarray(transition.reward), 0.0)
        return Tally(
            self.visits.at[cell].add(used),
            self.total.at[cell].add(reward),
            self.counts.at[(*cell, transition.next_state)].add(jnp.where(ended, 0.0, used)),
            self.last_use.at[cell].set(jnp.where(used > 0, time, self.last_use[cell])),
            time,
        )

    def mdp(self, legal: Bool[AnyArray, "S A"] | None = None) -> MDP:
        """What was counted as an MDP. Only pairs that were tried are legal; where there is none, an action ends it."""
        stats = self.stats
        return MDP(stats.probs, stats.reward, end_probs=_ends(stats), legal=_usable(stats, legal))

    @property
    def stats(self) -> Stats:
        """Of all pairs."""
        return Stats(self.visits, self.total / jnp.maximum(self.visits, 1.0), self.counts, self.last_use)


class ListedTally(eqx.Module):
    """Counts of all pairs that list the successors seen, and of every state the predecessors seen. Stationary.

    Args:
        visits, total, last_use, time: as in `Tally`.
        successor: the k-th next state seen (0 where there is none yet; its count is 0).
        counts: of each.
        predecessor: the states that were seen to lead to each state; S pads.
        lost: transitions that found no free place in the lists, and were not counted.
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
        """Nothing has been seen."""
        s, a = space.n_states, space.n_actions
        none, zero = jnp.zeros((s, a)), jnp.int32(0)
        lists = jnp.zeros((s, a, max_successors), jnp.int32)
        predecessor = jnp.full((s, max_predecessors), s, jnp.int32)
        return cls(none, none, jnp.zeros((s, a), jnp.int32), zero, lists, jnp.zeros(lists.shape), predecessor, zero)

    def count(self, transition: Transitions, weight: Scalar) -> "ListedTally":
        """The tally after one transition; unchanged where `weight` is 0."""
        s, a, y = (jnp.asarray(x, jnp.int32) for x in (transition.state, transition.action, transition.next_state))
        ended = jnp.asarray(False if transition.terminated is None else transition.terminated)
        slot, placed = _place(self.successor[s, a], self.counts[s, a] > 0, y)
        before, known = _place(self.predecessor[y], self.predecessor[y] < self.visits.shape[0], s)
        fits = ended | (placed & known)
        used = jnp.where(fits, jnp.asarray(weight, self.visits.dtype), 0.0)
        time, goes_on = self.time + (used > 0), (used > 0) & ~ended
        reward = jnp.where(used > 0, used * jnp.asarray(transition.reward), 0.0)
        return ListedTally(
            self.visits.at[s, a].add(used),
            self.total.at[s, a].add(reward),
            self.last_use.at[s, a].set(jnp.where(used > 0, time, self.last_use[s, a])),
            time,
            self.successor.at[s, a, slot].set(jnp.where(goes_on, y, self.successor[s, a, slot])),
            self.counts.at[s, a, slot].add(jnp.where(goes_on, used, 0.0)),
            self.predecessor.at[y, before].set(jnp.where(goes_on, s, self.predecessor[y, before])),
            self.lost + (~fits & (jnp.asarray(weight) != 0)),
        )

    def mdp(self, legal: Bool[AnyArray, "S A"] | None = None) -> SparseMDP:
        """As `Tally.mdp`."""
        stats, successor = self.stats(jnp.arange(len(self.visits)))
        return SparseMDP(successor, stats.probs, stats.reward, end_probs=_ends(stats), legal=_usable(stats, legal))

    def stats(self, states: Int[Array, " P"]) -> tuple[Stats, Int[Array, "P A K"]]:
        """Of all pairs of some states, and their successors."""
        visits = self.visits[states]
        mean = self.total[states] / jnp.maximum(visits, 1.0)
        return Stats(visits, mean, self.counts[states], self.last_use[states]), self.successor[states]


def _ends(stats: Stats) -> Float[Array, "*pairs"]:
    return jnp.maximum(1.0 - jnp.sum(stats.probs, -1), 0.0)


def _usable(stats: Stats, legal: Bool[AnyArray, "S A"] | None) -> Bool[Array, "S A"]:
    """Pairs that were tried (at some step); where none of a state was, all of its legal ones."""
    tried = jnp.any(stats.visits > 0, tuple(range(stats.visits.ndim - 2)))
    allowed = jnp.ones(tried.shape, bool) if legal is None else jnp.asarray(legal)
    return tried | (allowed & ~jnp.any(tried, -1, keepdims=True))


def _place(
    listed: Int[Array, " K"], taken: Bool[Array, " K"], wanted: IntScalar
) -> tuple[Int[Array, ""], Bool[Array, ""]]:
    """Where `wanted` stands in a list or may be put, and whether there is such a place."""
    here = taken & (listed == wanted)
    fits = here | (~taken & ~jnp.any(here))
    return jnp.argmax(fits), jnp.any(fits)
