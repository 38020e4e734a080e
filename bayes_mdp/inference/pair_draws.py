"""`PairDraws`: draws of the rows and mean rewards of the pairs that are needed, and of no others, by NumPy.

A policy takes few of the actions, many actions are illegal, and lists of successors are padded to the longest: what is
needed may be a hundredth of a whole MDP. Posteriors that know their rows draw them by `pair_draws(key, needed)`; of
anything else whole MDPs are drawn by JAX. `summarise_draws`: what values in such draws come to.
"""

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, Shaped, UInt32

from bayes_mdp.mdp import MDP, CanSample, SparseMDP
from bayes_mdp.mdp.abilities import CanSize, Sizes, sizes_of
from bayes_mdp.mdp.space import OfSpace
from bayes_mdp.numerics.array_forms import to_float64
from bayes_mdp.random.host_generator import ElementStreams
from bayes_mdp.utils.typing import AnyArray

Keys: TypeAlias = Key[Array, "..."] | UInt32[Array, "... _"]
"""Random keys of many draws, typed or raw."""

COMPONENT = 0
"""Purpose of the random numbers that choose a component or a draw (see `ElementStreams`)."""


class Drawn(NamedTuple):
    """N draws of the rows of Q pairs, and of their mean rewards.

    Args:
        probs: of the E entries of `PairRows`.
        reward: of the pairs.
    """

    probs: Float[np.ndarray, "N E"]
    reward: Float[np.ndarray, "N Q"]


@dataclass(frozen=True, eq=False)
class PairRows:
    """Q pairs in order, and the E possible outcomes (entries) of their rows, one row after the other.

    Args:
        step: of each pair; None: rows are the same at every step.
        state, action: of each pair.
        first: where the entries of each pair begin, and E.
        outcome: of each entry, its number in the rows of the law.
        next_state: of each entry; S is the end of the episode.
        n_states: S.
    """

    step: Int[np.ndarray, " Q"] | None
    state: Int[np.ndarray, " Q"]
    action: Int[np.ndarray, " Q"]
    first: Int[np.ndarray, " Q1"]
    outcome: Int[np.ndarray, " E"]
    next_state: Int[np.ndarray, " E"]
    n_states: int

    @cached_property
    def pair(self) -> Int[np.ndarray, " E"]:
        """The pair of each entry."""
        return np.repeat(np.arange(len(self.state)), np.diff(self.first))

    @cached_property
    def place(self) -> Int[np.ndarray, " E"]:
        """Where each entry lies in a matrix of states by next states and the end, [S S1]."""
        # S next states and the end make rows of S + 1 columns.
        return self.state[self.pair] * (self.n_states + 1) + self.next_state

    @cached_property
    def width(self) -> int | None:
        """Entries of every pair, where all have as many."""
        width = np.diff(self.first)
        return int(width[0]) if len(width) and (width == width[0]).all() else None

    @cached_property
    def in_order(self) -> bool:
        """Whether all pairs have as many entries, whose next states are the first ones in order."""
        width = self.width
        return bool(width) and bool((self.next_state.reshape(-1, width) == np.arange(width)).all())

    @property
    def index(self) -> tuple[Int[np.ndarray, " Q"], ...]:
        """Of the pairs, in arrays [*H S A]."""
        return (self.state, self.action) if self.step is None else (self.step, self.state, self.action)

    def sums(self, values: Float[np.ndarray, "*N E"]) -> Float[np.ndarray, "*N Q"]:
        """The sums of the entries of each pair."""
        if self.width is not None:
            # All pairs have as many outcomes: a reshape, where sums over ragged rows take a reduceat.
            return values.reshape(*values.shape[:-1], -1, self.width).sum(-1)
        return np.add.reduceat(values, self.first[:-1], axis=-1)

    def in_double(self, probs: Float[np.ndarray, "N E"]) -> Float[np.ndarray, "N E"]:
        """Draws in double precision, in which rows sum to one."""
        if probs.dtype == np.float64:
            return probs
        probs = probs.astype(np.float64)
        # Rows of float32 sum to one but for rounding: normalised in double.
        return probs / self.sums(probs)[:, self.pair]

    def possible(
        self, probs: Float[np.ndarray, " E"], used: Bool[np.ndarray, " Q"] | None = None
    ) -> tuple[Int[np.ndarray, " F"], Float[np.ndarray, " F"]]:
        """The entries of one draw that are not zero, and their probabilities, which sum to one in double precision.

        Args:
            probs: of all entries.
            used: the pairs that are asked for; None: all.
        """
        entry = np.flatnonzero(probs != 0)
        entry = entry if used is None else entry[used[self.pair[entry]]]
        positive = probs[entry]
        if positive.dtype == np.float64:
            return entry, positive
        positive, pair = positive.astype(np.float64), self.pair[entry]
        # Normalised among the entries that are left, in double.
        return entry, positive / np.bincount(pair, positive, len(self.state))[pair]

    def cells(self, by_outcome: bool) -> tuple[Int[np.ndarray, "..."], ...]:
        """Index of the cells of a reward law: of the entries, where it depends on the outcome, else of the pairs."""
        # Cells by outcome: one for each entry; else one for each pair.
        return (*(i[self.pair] for i in self.index), self.outcome) if by_outcome else self.index

    def expectation(
        self, probs: Float[np.ndarray, "*N E"], values: Float[np.ndarray, "*N E"]
    ) -> Float[np.ndarray, "*N Q"]:
        """sum of probs values of each pair; an entry of probability zero adds nothing, whatever its value."""
        # 0 * inf would be nan.
        possible = probs > 0
        return self.sums(np.where(possible, probs * np.where(possible, values, 0.0), 0.0))

    def at_step(self, step: int) -> tuple["PairRows", slice | Int[np.ndarray, " P"], slice | Int[np.ndarray, " F"]]:
        """The pairs of a step, all where rows are the same at every step; their numbers, and those of their entries."""
        if self.step is None:
            return self, slice(None), slice(None)
        # Entries of a step lie apart: the pairs of the step are collected with theirs.
        pairs = np.flatnonzero(self.step == step)
        rows, entries = self.take(pairs)
        return rows, pairs, entries

    def take(self, pairs: Int[np.ndarray, " P"]) -> tuple["PairRows", Int[np.ndarray, " F"]]:
        """Some of the pairs, in order, and the numbers of their entries."""
        width = np.diff(self.first)[pairs]
        first = np.concatenate([[0], np.cumsum(width)])
        # Entry numbers of ragged rows, without a loop: a running index plus the shift of each row.
        entries = np.arange(first[-1]) + np.repeat(self.first[pairs] - first[:-1], width)
        step = None if self.step is None else self.step[pairs]
        rows = PairRows(
            step,
            self.state[pairs],
            self.action[pairs],
            first,
            self.outcome[entries],
            self.next_state[entries],
            self.n_states,
        )
        return rows, entries


@dataclass(frozen=True, eq=False)
class PairDraws:
    """A stream of draws of pairs: every call of `draw` has the next ones.

    Args:
        rows: which pairs and entries.
        draw: number -> so many further draws.
    """

    rows: PairRows
    draw: Callable[[int], Drawn]


@runtime_checkable
class CanDrawPairs(CanSize, Protocol):
    """Draws the rows and mean rewards of some pairs without those of others."""

    def pair_draws(self, key: PRNGKeyArray, needed: Bool[np.ndarray, "*H S A"]) -> PairDraws:
        """Draws of the needed pairs; the same key gives a pair the same draws, whichever others are needed."""
        ...


@runtime_checkable
class CanDrawOutcome(Protocol):
    """Draws an outcome that was learnt beside the reward of another posterior, in the draws of that one's rows."""

    def outcome_draws(self, key: PRNGKeyArray, name: str, needed: Bool[np.ndarray, "*H S A"]) -> PairDraws:
        """The rows of `pair_draws` under the same key, and rewards of random numbers that the name seeds."""
        ...


@runtime_checkable
class HoldsDraws(OfSpace, Protocol):
    """A belief that is a fixed number of draws: each is used once, as none can be drawn anew."""

    @property
    def num_held(self) -> int:
        """How many there are."""
        ...

    def thinned(self, num: int) -> Self:
        """`num` of them at most, evenly spaced and as many of each chain; all where there are no more."""
        ...

    def halves(self) -> tuple[Self, Self]:
        """Two disjoint halves: one to choose by, one to judge by."""
        ...

    def by_chain(self) -> dict[str, Float[np.ndarray, "C N *axes"]]:
        """The draws by variable, with the axes of chains and draws: "transition_probs" and "reward_mean"."""
        ...

    def effective_number(self, values: Float[np.ndarray, " N"]) -> float:
        """How many independent draws are worth as much to the mean of `values`, one number for each draw in order."""
        ...


@runtime_checkable
class KnowsWorth(Protocol):
    """A belief that knows what picks from the draws it holds are worth: weighted ones, or those of chains."""

    def worth_of_picks(self) -> float:
        """How many independent draws of the posterior any number of its draws is worth at most; inf: each is fresh."""
        ...


@runtime_checkable
class KnowsPicks(KnowsWorth, Protocol):
    """Such a belief that knows what it picked."""

    def picks(self, key: PRNGKeyArray, num: int) -> Int[np.ndarray, " N"] | None:
        """Which component each of the first draws of pairs under a key is of; None: not known."""
        ...


@runtime_checkable
class ListsMDPs(Protocol):
    """A belief that is a list of MDPs with weights."""

    @property
    def num_listed(self) -> int:
        """How many there are."""
        ...


Belief = TypeVar("Belief")


FEW_OF = 2**14
"""Entries of a draw from which on it pays to leave out those that are zero, where most are."""


def mostly_zero(probs: Float[np.ndarray, "N E"]) -> bool:
    """Whether draws are long and most of their entries are zero: rows of small concentrations give few outcomes more
    than rounding."""
    return bool(probs.shape[1] >= FEW_OF and len(probs) > 0 and np.count_nonzero(probs[0]) < probs.shape[1] // 4)


def limit_draws(posterior: Belief, num_draws: int) -> tuple[Belief, int]:
    """The belief and the number of draws to take of it: no more than it holds, where it is a fixed number of draws.

    Args:
        posterior: any belief.
        num_draws: that were asked for.
    """
    if not isinstance(posterior, HoldsDraws):
        return posterior, num_draws
    # A belief of N draws has no more than N to give.
    thinned = posterior.thinned(num_draws)
    return thinned, thinned.num_held


class Worth(NamedTuple):
    """What draws are worth: of N draws the mean has the error of fewer independent ones where a belief holds what it
    draws from.

    Given draws, in the order of their chains, say so themselves (`HoldsDraws`). Others are picked, with replacement,
    from draws or components that chains or weights made: what these are worth, W, limits all that is made of them. With
    a share b of the variance between them the mean has the variance sd^2 (1 / N + b / W).

    Args:
        belief: what was drawn from, as `limit_draws` gave it.
        key: of the draws.
        held: W; inf: each draw is fresh, or the belief says it draw by draw.
    """

    belief: object
    key: PRNGKeyArray
    held: float

    @classmethod
    def of(cls, belief: object, key: PRNGKeyArray) -> "Worth":
        """That of draws of pairs under a key."""
        if isinstance(belief, HoldsDraws) or not isinstance(belief, KnowsWorth):
            return cls(belief, key, np.inf)
        return cls(belief, key, belief.worth_of_picks())

    def number(self, values: Float[np.ndarray, " N"]) -> float:
        """How many independent draws the mean of these values, one for each draw in order, is worth: N at most."""
        if isinstance(self.belief, HoldsDraws):
            return self.belief.effective_number(values)
        if not np.isfinite(self.held):
            return float(len(values))
        picks = self.belief.picks(self.key, len(values)) if isinstance(self.belief, KnowsPicks) else None
        share = 1.0 if picks is None else share_between(picks, values)
        return 1.0 / (1.0 / len(values) + share / max(self.held, 1.0))

    def of_gain(self, gain: Float[np.ndarray, " N"], slack: float) -> float:
        """How many independent draws one of these is worth, in (0, 1]: to the mean gain, or to the share that is no
        worse, whichever is less.

        Args:
            gain: of each draw.
            slack: by how much a loss counts as no worse.
        """
        return min(self.number(gain), self.number((gain >= -slack) * 1.0)) / len(gain)


def share_between(group: Int[np.ndarray, " N"], values: Float[np.ndarray, " N"]) -> float:
    """The share of the variance that lies between groups, from 0 to 1, by a one-way analysis of variance.

    Args:
        group: of each value.
        values: one for each draw.
    """
    _, place, size = np.unique(group, return_inverse=True, return_counts=True)
    total, left = float(values.var(ddof=1)), len(values) - len(size)
    # No group has two values: nothing tells them apart from what lies within.
    if left == 0 or total == 0:
        return 1.0
    means = np.bincount(place, values) / size
    within = float(((values - means[place]) ** 2).sum()) / left
    return float(np.clip(1.0 - within / total, 0.0, 1.0))


LEVEL = 0.95
"""Of central intervals."""


def summarise_draws(draws: Float[np.ndarray, " N"]) -> tuple[float, float, tuple[float, float]]:
    """Mean, standard deviation and central 95 % interval.

    Args:
        draws: of a value.
    """
    # The sample standard deviation: draws stand for the posterior.
    return float(draws.mean()), float(draws.std(ddof=1)), central_interval(draws)


def central_interval(draws: Float[np.ndarray, " N"], level: float = LEVEL) -> tuple[float, float]:
    """Central interval of draws, of one at least.

    Args:
        draws: of a value.
        level: its probability, in (0, 1).
    """
    # Equal tails.
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def pair_draws(key: PRNGKeyArray, posterior: CanSample, needed: Bool[np.ndarray, "*H S A"]) -> PairDraws:
    """A stream of draws of the needed pairs of any belief.

    Args:
        key: of the draws.
        posterior: the belief. One that only samples whole MDPs is asked for these.
        needed: which pairs.
    """
    if isinstance(posterior, CanDrawPairs):
        return posterior.pair_draws(key, needed)
    return pair_draws_of_samples(key, posterior, needed)


def varies(values: Shaped[np.ndarray, "K *axes"]) -> bool:
    """Whether the first axis makes a difference."""
    # A view that repeats one entry has no stride.
    return values.strides[0] != 0 and not bool((values == values[:1]).all())


def key_of_outcome(key: PRNGKeyArray, name: str) -> PRNGKeyArray:
    """The key of the rewards of an outcome: given the rows it is independent of the reward, and of other outcomes."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()))


def pair_draws_of_samples(key: PRNGKeyArray, posterior: CanSample, needed: Bool[np.ndarray, "*H S A"]) -> PairDraws:
    """`pair_draws` by whole MDPs that the belief samples, in JAX."""
    used = 0

    def whole(num: int) -> WholeDraws:
        # Each draw has a key of its own, by its number: blocks of any size give the same draws.
        nonlocal used
        numbers = np.arange(used, used + num, dtype=np.uint32)
        used += num
        # In float64 whatever the caller's precision: draws are used in double.
        with jax.enable_x64(True):
            return whole_draws(_sample(to_float64(posterior), _keys(key, numbers)))

    return draws_of_pairs(whole, needed, sizes_of(posterior))


_keys = jax.jit(jax.vmap(jax.random.fold_in, in_axes=(None, 0)))
"""(key, numbers [N]) -> a key for each number."""


@eqx.filter_jit
def _sample(posterior: CanSample, keys: Keys) -> MDP | SparseMDP:
    return jax.vmap(posterior.sample)(keys)


class WholeDraws(NamedTuple):
    """N whole MDPs as plain arrays; the fields are those of `MDP`, or of `SparseMDP` where `successor` is given."""

    probs: Float[AnyArray, "N *H S A K"]
    reward: Float[AnyArray, "N *H S A"]
    ends: Float[AnyArray, "N *H S A"] | None
    successor: Int[AnyArray, "N *H S A K"] | None

    def take(self, index: tuple[Int[np.ndarray, " M"] | slice, ...]) -> "WholeDraws":
        """The part at this index of draws, or of draws and pairs."""
        ends, successor = (None if x is None else np.asarray(x)[index] for x in (self.ends, self.successor))
        return WholeDraws(np.asarray(self.probs)[index], np.asarray(self.reward)[index], ends, successor)


def whole_draws(mdps: MDP | SparseMDP) -> WholeDraws:
    """MDPs with a leading axis on every array (but perhaps on masks and starts) as plain arrays."""
    ends = None if mdps.end_probs is None else np.asarray(mdps.end_probs)
    successor = np.asarray(mdps.successor) if isinstance(mdps, SparseMDP) else None
    return WholeDraws(np.asarray(mdps.row_probs), np.asarray(mdps.reward), ends, successor)


def draws_of_pairs(whole: Callable[[int], WholeDraws], needed: Bool[np.ndarray, "*H S A"], sizes: Sizes) -> PairDraws:
    """The needed pairs of whole MDPs.

    Args:
        whole: number -> so many MDPs.
        needed: which pairs.
        sizes: of the MDPs.
    """
    index = np.nonzero(needed)
    width = sizes.n_states + sizes.ends
    # Rows of whole MDPs are dense: every state, and the end, is an entry of every pair.
    outcomes = np.tile(np.arange(width), len(index[0]))
    first = np.arange(0, len(outcomes) + 1, width)
    step = index[0] if len(index) == 3 else None
    rows = PairRows(step, index[-2], index[-1], first, outcomes, outcomes, sizes.n_states)

    def draw(num: int) -> Drawn:
        # The needed pairs are taken out before anything is converted.
        drawn = whole(num).take((slice(None), *index))
        probs = np.asarray(drawn.probs, np.float64)
        if drawn.successor is not None:
            probs = _dense(np.asarray(drawn.successor), probs, sizes.n_states)
        if drawn.ends is not None:
            probs = np.concatenate([probs, np.asarray(drawn.ends, np.float64)[..., None]], -1)
        return Drawn(probs.reshape(num, -1), np.asarray(drawn.reward, np.float64))

    return PairDraws(rows, draw)


def legal_pairs(mdp: MDP | SparseMDP) -> Bool[np.ndarray, "*H S A"]:
    """The pairs that exist."""
    shape = mdp.reward.shape
    return np.ones(shape, bool) if mdp.legal is None else np.broadcast_to(np.asarray(mdp.legal), shape)


def pairs_of_mdp(mdp: MDP | SparseMDP, needed: Bool[np.ndarray, "*H S A"] | None = None) -> tuple[PairRows, Drawn]:
    """Pairs of one MDP with their possible outcomes, as one draw; None: all legal pairs."""
    index = np.nonzero(legal_pairs(mdp) if needed is None else needed)
    probs, reward, ends, successor = whole_draws(mdp).take(index)
    # Listed successors give next states; dense rows count through them.
    probs, n_states = np.asarray(probs, np.float64), mdp.n_states
    reached = np.broadcast_to(np.arange(n_states), probs.shape) if successor is None else np.asarray(successor)
    if ends is not None:
        probs = np.concatenate([probs, np.asarray(ends, np.float64)[:, None]], -1)
        reached = np.concatenate([reached, np.full((len(reached), 1), n_states)], -1)
    pair, place = np.nonzero(probs)
    # A successor that is listed twice has both probabilities.
    # Equal (pair, next state) are one entry, whose probabilities add up.
    entry, slot = np.unique(pair * (n_states + 1) + reached[pair, place], return_inverse=True)
    pair, next_state = np.divmod(entry, n_states + 1)
    first = np.searchsorted(pair, np.arange(len(probs) + 1))
    step = index[0] if len(index) == 3 else None
    rows = PairRows(step, index[-2], index[-1], first, next_state, next_state, n_states)
    weight = np.bincount(slot, probs[np.nonzero(probs)], len(entry))
    return rows, Drawn(weight[None], np.asarray(reward, np.float64)[None])


def _dense(
    successor: Int[np.ndarray, "N Q K"], probs: Float[np.ndarray, "N Q K"], n_states: int
) -> Float[np.ndarray, "N Q S"]:
    """Rows from lists of successors; one that is listed twice has both probabilities."""
    # A flat place for each (draw, pair, next state): one bincount adds duplicates.
    size = successor.shape[:-1]
    place = np.arange(math.prod(size)).reshape(size)[..., None] * n_states + successor
    return np.bincount(place.ravel(), probs.ravel(), math.prod(size) * n_states).reshape(*size, n_states)


def draws_of_sample(
    key: PRNGKeyArray,
    sample: WholeDraws,
    weights: Float[AnyArray, " K"],
    needed: Bool[np.ndarray, "*H S A"],
    sizes: Sizes,
) -> PairDraws:
    """Draws, with replacement, of weighted hypotheses.

    Args:
        key: of the draws.
        sample: the hypotheses.
        weights: of them.
        needed: which pairs.
        sizes: of the MDPs.
    """
    choose = draw_by_weight(key, weights)
    return draws_of_pairs(lambda num: sample.take((choose(num),)), needed, sizes)


def draw_by_weight(key: PRNGKeyArray, weights: Float[AnyArray, " K"]) -> Callable[[int], Int[np.ndarray, " N"]]:
    """A stream of indices of components, or of draws, by weight."""
    stream = ElementStreams(key, COMPONENT, np.zeros(1, int))
    # Inverse of the cumulative weights: one uniform number for each choice.
    cumulative = np.cumsum(np.asarray(weights, np.float64))
    # Of the last one that is possible, so that rounding of the sum chooses none of weight zero.
    last = int(np.flatnonzero(np.asarray(weights) > 0)[-1])

    def draw(num: int) -> Int[np.ndarray, " N"]:
        index = np.searchsorted(cumulative, stream.uniforms(num)[:, 0] * cumulative[-1], side="right")
        return np.minimum(index, last)

    return draw
