"""Values of policies in draws of an unknown MDP, by NumPy.

A policy makes a Markov chain of every draw, and its values solve one linear system a draw: many small systems at once
(LAPACK), or larger and listed ones by Krylov iterations. Whatever solved a system, one product with the residual proves
how far the answer may be off. The bounds are those of `bayes_mdp.planning` for an MDP with one action; what NumPy
cannot prove is left infinite, for the planners to try.

The iterations for larger and listed systems are sweeps while they are fast, then restarted BiCGSTAB.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
import scipy.sparse.linalg
from jaxtyping import Bool, Float, Int
from scipy.linalg import lu_factor, lu_solve
from scipy.linalg.lapack import dgetrf, dgetrs  # pyright: ignore[reportAttributeAccessIssue]

from bayes_mdp.inference.pair_draws import Drawn, PairRows, mostly_zero
from bayes_mdp.mdp import MDP, AverageReward, Discounted, Objective
from bayes_mdp.planning import evaluate
from bayes_mdp.planning.occupancy import recurrent_classes

DIRECT = 256  # states up to which dense systems are solved by elimination
DIRECT_SLOW = 512  # and up to which those are that sweeps do not solve fast
DIRECT_UNDISCOUNTED = 1024  # and up to which those of a first exit are: iterations take as long as episodes last
DENSE = 128  # states up to which chains are dense, however few of their entries are possible
IN_CACHE = 2**17  # numbers of a block of draws of which several sums are taken
LARGE_CHAIN = 2**16  # numbers of a chain from which on it is made of whole rows by a sparse product, draw by draw
DENSE_SHARE = 0.25  # of a row that is listed: above, a product with a dense matrix is faster
FACTORED = 128  # states from which on values and times share the factors of their systems, draw by draw
ELIMINATED = 2048  # states up to which a system that iterations do not solve is eliminated as a dense one
_FEW = 8  # successors of a state, on average, up to which it is eliminated as a sparse one
SPARE = 8  # terms of a sweep beside the successors (see `bayes_mdp.planning.bellman`)
_EPS, _TINY = float(np.finfo(np.float64).eps), float(np.finfo(np.float64).tiny)
_SUMS_TO_ONE = 1e-9
Draws = Float[np.ndarray, "N S"]
Numbers = Float[np.ndarray, " N"]
_RESTARTS, _ITERATIONS = 8, 60
_SWEEPS, _FAST = 100, 0.6  # sweeps, while each leaves at most so much of the error


class Values(NamedTuple):
    """Values of one policy in N draws.

    Args:
        first: of the states where an episode starts; `AverageReward`: the gain, whatever the start.
        gap: bound on the error of each draw; infinite where nothing is proven.
    """

    first: Draws
    gap: Numbers

    def at_start(self, objective: Objective, start: Float[np.ndarray, " S"]) -> Numbers:
        """The value from the start, or the gain.

        Args:
            objective: of the values.
            start: distribution of the first state.
        """
        return self.first[:, 0] if isinstance(objective, AverageReward) else self.first @ start


@dataclass(frozen=True, eq=False)
class Chains:
    """The chain of a policy in N draws.

    Args:
        matrix: transition probabilities, dense, or block by block in one sparse matrix [N S, N S].
        reward: of each state.
        terms: of the longest sum in a sweep, for its rounding error.
        size: the largest absolute reward of a pair that the policy takes.
    """

    matrix: Float[np.ndarray, "N S S"] | scipy.sparse.csr_matrix
    reward: Draws
    terms: int
    size: Numbers

    def expected_next(self, values: Draws) -> Draws:
        """P values."""
        if isinstance(self.matrix, np.ndarray):
            return np.matmul(self.matrix, values[..., None])[..., 0]
        return (self.matrix @ values.ravel()).reshape(values.shape)

    def adjoint_next(self, weights: Draws) -> Draws:
        """P' weights."""
        if isinstance(self.matrix, np.ndarray):
            return np.matmul(weights[:, None], self.matrix)[:, 0]
        return (self.matrix.T @ weights.ravel()).reshape(weights.shape)

    @cached_property
    def mass(self) -> Draws:
        """The probability that a state does not end the episode, as computed."""
        if isinstance(self.matrix, np.ndarray):
            return self.matrix.sum(-1)
        return np.asarray(self.matrix.sum(-1)).reshape(self.reward.shape)

    @property
    def factor(self) -> float:
        """Relative rounding error of a sweep: a sum of n terms errs by n u / (1 - n u), u = eps / 2."""
        u = self.terms * _EPS / 2
        return u / (1 - u)

    def sweep_error(self, values: Draws) -> Numbers:
        """Bound on the rounding error of reward + discount * P values."""
        return self.factor * (self.size + np.abs(values).max(-1)) + self.terms * _TINY

    def dense(self, draw: int) -> Float[np.ndarray, "S S"]:
        """The matrix of one draw."""
        if isinstance(self.matrix, np.ndarray):
            return self.matrix[draw]
        size = self.reward.shape[1]
        return self.matrix[draw * size : (draw + 1) * size, draw * size : (draw + 1) * size].toarray()


class PolicyPairs:
    """Which pairs a stationary policy takes, and where their entries lie in its chain. Made once for all draws.

    Args:
        rows: all pairs that are drawn.
        policy: action probabilities.
    """

    def __init__(self, rows: PairRows, policy: Float[np.ndarray, "S A"]) -> None:
        self.n_states, self.n_actions = policy.shape
        self._every = rows
        weight = policy[rows.state, rows.action]
        self.pairs = np.flatnonzero(weight > 0)
        self.every_entry = len(self.pairs) == len(rows.state)
        self.state, self.action = rows.state[self.pairs], rows.action[self.pairs]
        self.weight = weight[self.pairs]
        self.deterministic = bool((self.weight == 1).all())
        widths = np.diff(rows.first)[self.pairs]
        self._number = int(widths.sum())
        self.longest = int(np.bincount(self.state, widths, self.n_states).max())
        # Short lists of successors in many states stay sparse; everything else is eliminated densely.
        sparse = self.longest <= DENSE_SHARE * self.n_states
        self.is_dense = self.n_states <= DENSE or not sparse
        # All rows list every state in order: they are taken whole, not entry by entry, unless most entries are zero.
        width = rows.width or 0
        large = self.n_states * width >= LARGE_CHAIN
        whole = self.is_dense and (large or not self.deterministic) and width in (self.n_states, self.n_states + 1)
        self._width: int = width if whole and rows.in_order else 0
        self.is_large = large and self._width > 0

    # What follows has a number for each entry: it is worked out where it is needed.

    @cached_property
    def _taken(self) -> tuple[PairRows, Int[np.ndarray, " F"]]:
        """The pairs that the policy takes, and the numbers of their entries."""
        return self._every.take(self.pairs)

    @cached_property
    def _inside(self) -> Bool[np.ndarray, " F"]:
        """Which entries do not end the episode."""
        return self._taken[0].next_state < self.n_states

    @cached_property
    def _place(self) -> tuple[Int[np.ndarray, " G"], Int[np.ndarray, " G"]]:
        """State and next state of these."""
        rows = self._taken[0]
        return rows.state[rows.pair][self._inside], rows.next_state[self._inside]

    @cached_property
    def _is_whole(self) -> bool:
        """Whether these are all states after all states, in order, one pair each."""
        states = np.tile(np.arange(self.n_states), self.n_states)
        return self.deterministic and np.array_equal(self._place[1], states)

    @property
    def terms(self) -> int:
        """Of the longest sum in a sweep."""
        return (self.n_states if self.is_dense else self.longest) + SPARE + self.n_actions + 2

    @cached_property
    def average(self) -> scipy.sparse.csr_array:
        """[S Q], the mean over the actions of each state."""
        shape = self.n_states, len(self._every.state)
        return scipy.sparse.csr_array((self.weight, (self.state, self.pairs)), shape=shape)

    @property
    def numbers(self) -> int:
        """How many numbers the chain of a draw has, with what its system takes."""
        return self._number + (self.n_states**2 if self.is_dense else 8 * self.n_states)

    def chains(self, drawn: Drawn) -> Chains:
        """The chain in every draw."""
        pair_reward = drawn.reward[:, self.pairs].astype(np.float64, copy=False)
        reward, size = self.by_state(pair_reward), np.abs(pair_reward).max(-1)
        terms = self.terms
        if self.is_dense and not self.is_large and mostly_zero(drawn.probs):
            return Chains(self._of_possible(drawn.probs), reward, terms, size)
        if self._width:
            return Chains(self._of_whole_rows(drawn.probs), reward, terms, size)
        rows, entries = self._taken
        probs = drawn.probs if self.every_entry else drawn.probs[:, entries]
        scale = None if self.deterministic else self.weight
        if probs.dtype == np.float32:
            # Rows sum to one in double precision.
            probs = probs.astype(np.float64)
            scale = (1.0 if scale is None else scale) / rows.sums(probs)
        if scale is not None:
            # The mean over actions is taken of probabilities: each entry is scaled by the weight of its pair.
            probs = probs * np.repeat(scale, np.diff(rows.first), axis=-1)
        return Chains(self._matrix(probs), reward, terms, size)

    def with_reward(self, chains: Chains, reward: Float[np.ndarray, "N Q"]) -> Chains:
        """The same chains with other rewards of all pairs."""
        mine = reward[:, self.pairs]
        return replace(chains, reward=self.by_state(mine), size=np.abs(mine).max(-1))

    def by_state(self, values: Float[np.ndarray, "N Q"]) -> Draws:
        """The mean over the actions of each state, of numbers of its pairs."""
        if self.deterministic:
            return values
        return np.add.reduceat(values * self.weight, np.searchsorted(self.state, np.arange(self.n_states)), -1)

    def _of_whole_rows(self, probs: Float[np.ndarray, "N E"]) -> Float[np.ndarray, "N S S"]:
        """The mean over the actions of each state: a first action of every state, a second one, ..."""
        table, size = probs.reshape(len(probs), -1, self._width), self.n_states
        if self.is_large:
            # One draw fills the cache: a product with the policy as a sparse matrix reads it once.
            table = self._every.in_double(probs).reshape(table.shape)
            return np.stack([(self.average @ draw)[:, :size] for draw in table])
        matrix = np.zeros((len(probs), size, size))
        # The 1st, 2nd, ... pair of its state: pairs of one rank belong to different states, and add to different rows.
        rank_of_pair = np.arange(len(self.pairs)) - np.searchsorted(self.state, self.state)
        for rank in range(int(rank_of_pair.max(initial=0)) + 1):
            members = np.flatnonzero(rank_of_pair == rank)
            pairs, state = self.pairs[members], self.state[members]
            # So few draws at a time that they stay in the cache.
            step = max(1, IN_CACHE // (len(members) * self._width))
            for first in range(0, len(probs), step):
                block = slice(first, first + step)
                rows = table[block, pairs].astype(np.float64, copy=False)
                if probs.dtype == np.float32:  # rows sum to one in double precision
                    rows /= rows.sum(-1, keepdims=True)
                if not self.deterministic:
                    rows *= self.weight[members, None]
                matrix[block, state] += rows[..., :size]
        return matrix

    def _of_possible(self, probs: Float[np.ndarray, "N E"]) -> Float[np.ndarray, "N S S"]:
        """The mean over the actions of each state, of the entries that are not zero: draw by draw, entry by entry."""
        rows, size = self._every, self.n_states
        used, weight = np.zeros(len(rows.state), bool), np.zeros(len(rows.state))
        used[self.pairs], weight[self.pairs] = True, self.weight
        matrix = np.empty((len(probs), size, size))
        for n, draw in enumerate(probs):
            entry, positive = rows.possible(draw, None if self.every_entry else used)
            positive *= weight[rows.pair[entry]]
            # Several actions of a state add to one place; the end, S, is no column.
            table = np.bincount(rows.place[entry], positive, size * (size + 1))
            matrix[n] = table.reshape(size, size + 1)[:, :size]
        return matrix

    @cached_property
    def _places(self) -> scipy.sparse.csr_array:
        """[S S, F]: one where an entry lies in the matrix."""
        entry = np.flatnonzero(self._inside)
        state, after = self._place
        place = state * self.n_states + after
        shape = self.n_states**2, len(self._inside)
        return scipy.sparse.csr_array((np.ones(len(entry)), (place, entry)), shape=shape)

    def _matrix(self, probs: Float[np.ndarray, "N F"]) -> Float[np.ndarray, "N S S"] | scipy.sparse.csr_matrix:
        num, size = len(probs), self.n_states
        if self.is_dense and not self.deterministic:
            # All draws in one product: several actions of a state add to one place.
            return np.ascontiguousarray((self._places @ probs.T).T).reshape(num, size, size)
        probs = probs if self._inside.all() else probs[:, self._inside]
        if self.is_dense:
            if self._is_whole:
                return probs.reshape(num, size, size)
            matrix = np.zeros((num, size * size))
            state, after = self._place
            matrix[:, state * size + after] = probs
            return matrix.reshape(num, size, size)
        state, after = self._place
        first = np.searchsorted(state, np.arange(size))
        offsets = np.arange(num, dtype=np.int64)[:, None]
        index = (after + size * offsets).ravel()
        pointer = np.append((first + len(state) * offsets).ravel(), num * len(state))
        return scipy.sparse.csr_matrix((probs.ravel(), index, pointer), shape=(num * size, num * size))


def proven(chains: Chains, objective: Objective, precision: float = _EPS) -> Values:
    """Values, or the gain, of a stationary policy; the planner, in JAX, settles a gain that a linear system does not.

    Args:
        chains: of the policy.
        objective: Discounted, FirstExit or AverageReward.
        precision: of discounted values, as in `solve`.
    """
    if isinstance(objective, Discounted):
        return _discounted_values(chains, float(objective.discount), precision)
    if not isinstance(objective, AverageReward):
        return _first_exit(chains)
    answer = _average(chains)
    gain, gap = answer.first.copy(), answer.gap.copy()
    for n in np.flatnonzero(~np.isfinite(gap)).tolist():
        # Several recurrent classes may have one gain: value iteration settles it.
        with jax.enable_x64(True):
            mdp = MDP(jnp.asarray(chains.dense(n))[:, None], jnp.asarray(chains.reward[n])[:, None])
            plan = _evaluate(mdp, jnp.zeros(mdp.n_states, int), objective)
        gain[n], gap[n] = float(plan.gain), float(plan.gap)
        if not np.isfinite(gap[n]):
            break
    return Values(gain, gap)


_evaluate = eqx.filter_jit(evaluate)


def _discounted_values(chains: Chains, discount: float, precision: float) -> Values:
    values = solve(chains, discount, chains.reward, precision=precision)
    # One sweep after the solution: it both corrects the values and says how far they may be off.
    swept = chains.reward + discount * chains.expected_next(values)
    bound = discounted_bound(chains, swept - values, values, discount, chains.mass)
    return Values(swept + np.where(np.isfinite(bound.gap), bound.shift, 0.0)[:, None], bound.gap)


class Bound(NamedTuple):
    """How far swept values move to the middle of what is proven, and how far they may then be off."""

    shift: Numbers
    gap: Numbers


def discounted_bound(
    chains: Chains, change: Draws, values: Draws, discount: float, mass: Float[np.ndarray, "N _"]
) -> Bound:
    """From one sweep T v over discounted values, of a policy or with the maximum over pairs.

    With T v - v in [low, high] the values lie in T v + k / (1 - k) [low, high], k the discounted chance of going on
    (MacQueen 1966; Puterman 1994, theorem 6.6.3).

    Args:
        chains: for the rounding error of a sweep.
        change: T v - v.
        values: v.
        discount: below 1.
        mass: of every pair, the probability that it does not end the episode.
    """
    error = chains.sweep_error(values)
    # Rounding widens the interval first; then each end takes the k that moves it further out.
    low, high = change.min(-1) - error, change.max(-1) + error
    k_min = discount * mass.min(-1) * (1 - chains.factor)
    k_max = discount * (mass.max(-1) * (1 + chains.factor) + chains.terms * _TINY)
    upper = high * _later(np.where(high > 0, k_max, k_min), chains)
    lower = low * _later(np.where(low < 0, k_max, k_min), chains)
    shift, width = (upper + lower) / 2, (upper - lower) / 2
    gap = (width + error) * (1 + chains.factor) + chains.factor * np.abs(shift)
    return Bound(shift, np.where(np.isfinite(width), gap, np.inf))


def _later(k: Numbers, chains: Chains) -> Numbers:
    """k / (1 - k) rounded up, infinite from k = 1 on."""
    k = k * (1 + chains.factor)
    return np.where(k < 1, k / np.where(k < 1, 1 - k, 1.0), np.inf)


def _first_exit(chains: Chains) -> Values:
    # The steps to the end, n = 1 + P n, are solved beside the values: they bound what an error of a step adds up to.
    rewards, unit_rewards = chains.reward, np.ones_like(chains.reward)
    if isinstance(chains.matrix, np.ndarray) and rewards.shape[1] <= DIRECT_UNDISCOUNTED:
        # One elimination for both right sides.
        system = np.eye(rewards.shape[1]) - chains.matrix
        values, steps = np.moveaxis(_eliminate(system, np.stack([rewards, unit_rewards], -1)), -1, 0)
    else:
        values, steps = solve(chains, 1.0, rewards), solve(chains, 1.0, unit_rewards)
    with np.errstate(all="ignore"):
        swept = chains.reward + chains.expected_next(values)
        error = chains.sweep_error(values)
        # With n = `steps`, n >= 0 and n - P n > noise everywhere the policy ends, and v lies within c n of its values,
        # c the largest residual over the least n - P n (see `bayes_mdp.planning.first_exit`).
        longest = np.abs(steps).max(-1)
        noise = chains.factor * 2 * longest + chains.terms * _TINY
        progress = (steps - chains.expected_next(steps)).min(-1) - noise
        residual = np.abs(swept - values).max(-1) + error
        c = residual / progress * (1 + chains.factor) * (1 + 4 * _EPS)
        gap = (c * longest + residual) * (1 + chains.factor)
        proven = (steps.min(-1) >= 0) & (progress > 0) & np.isfinite(gap)
    return Values(swept, np.where(proven, gap, np.inf))


def _average(chains: Chains) -> Values:
    # x = h + g solves x - P x + x[0] = r: one equation for the gain and the relative values.
    x = solve(chains, 1.0, chains.reward, anchored=True)
    with np.errstate(all="ignore"):
        values = x - x[:, :1]
        change = chains.reward + chains.expected_next(values) - values
    gain, gap = gain_bound(chains, change, values, chains.mass)
    return Values(np.broadcast_to(gain[:, None], values.shape), gap)


def gain_bound(chains: Chains, change: Draws, values: Draws, mass: Float[np.ndarray, "N _"]) -> tuple[Numbers, Numbers]:
    """Gain and error bound from one sweep T v over relative values, of a policy or with the maximum over pairs.

    min (T v - v) <= gain <= max (T v - v) for rows that sum to one (Puterman 1994, theorem 8.5.5); rows that sum to
    1 + d shift T v by d max |v|. Infinite where the span is not near rounding: there need be no single gain.

    Args:
        chains: for the rounding error of a sweep.
        change: T v - v.
        values: v.
        mass: of every pair, the probability that it does not end the episode.
    """
    with np.errstate(all="ignore"):
        low, high = change.min(-1), change.max(-1)
        largest = np.abs(values).max(-1)
        allowance = 2 * chains.sweep_error(values) + (np.abs(mass - 1).max(-1) + chains.factor) * largest
        gap = (high - low) / 2 + allowance
        # Where the gain depends on the start, any span is rounding to the huge values of a singular system.
        is_close = high - low <= 64 * _EPS * (chains.size + largest)
        known = is_close & ((gap <= 2 * chains.size) | (chains.size == 0)) & np.isfinite(gap)
        return (low + high) / 2, np.where(known, gap, np.inf)


def occupancy(chains: Chains, objective: Objective, start: Float[np.ndarray, " S"]) -> Draws:
    """Time in each state, as `bayes_mdp.planning.occupancy`; for AverageReward nan where there are several classes.

    Args:
        chains: of a stationary policy.
        objective: Discounted, FirstExit or AverageReward.
        start: distribution of the first state.
    """
    # mu (I - discount P) = start: the adjoint of the system of the values.
    if not isinstance(objective, AverageReward):
        discount = float(objective.discount)
        return solve(chains, discount, np.broadcast_to(start, chains.reward.shape).copy(), adjoint=True)
    # From mu (I - P) = 0 and sum mu = 1: mu (I - P + 1 e_0') = e_0'.
    first = np.zeros_like(chains.reward)
    first[:, 0] = 1.0
    time = solve(chains, 1.0, first, anchored=True, adjoint=True)
    classes = (recurrent_classes(scipy.sparse.csr_matrix(chains.dense(n) > 0))[1] for n in range(len(time)))
    single_class = np.array([len(recurrent) == 1 for recurrent in classes])
    return np.where(single_class[:, None], time, np.nan)


def values_and_time(chains: Chains, objective: Objective, start: Float[np.ndarray, " S"]) -> tuple[Draws, Draws]:
    """Values of a policy (`AverageReward`: but for a constant), and `occupancy`, without bounds.

    Args:
        chains: of a stationary policy.
        objective: Discounted, FirstExit or AverageReward.
        start: distribution of the first state.
    """
    rate, size = float(objective.discount), chains.reward.shape[1]
    average = isinstance(objective, AverageReward)
    largest = max(DIRECT, DIRECT_SLOW) if rate < 1 else DIRECT_UNDISCOUNTED
    if average or not isinstance(chains.matrix, np.ndarray) or not FACTORED <= size <= largest:
        return solve(chains, rate, chains.reward, anchored=average), occupancy(chains, objective, start)
    # One factor of each system serves both: x of I - k P, and mu of its transpose.
    values, time = np.empty_like(chains.reward), np.empty_like(chains.reward)
    for n, matrix in enumerate(chains.matrix):
        # Of the transposed system, which LAPACK reads without a copy.
        lu, pivot, info = dgetrf((np.eye(size) - rate * matrix).T, overwrite_a=True)
        if info > 0:  # singular
            values[n] = time[n] = np.nan
            continue
        values[n], time[n] = dgetrs(lu, pivot, chains.reward[n], trans=1)[0], dgetrs(lu, pivot, start)[0]
    return values, time


def solve(
    chains: Chains,
    discount: float,
    rhs: Draws,
    *,
    anchored: bool = False,
    adjoint: bool = False,
    guess: Draws | None = None,
    precision: float = _EPS,
) -> Draws:
    """x with (I - discount P) x = rhs in every draw; not finite where a system is singular.

    Small dense systems by elimination, larger ones too where sweeps are slow. Others by BiCGSTAB, those that it does
    not solve with the inverse of the mean chain as preconditioner, and what is left by elimination.

    Args:
        chains: P.
        discount: at most 1.
        rhs: right sides.
        anchored: add x[0] to every equation: regular for discount 1 and one recurrent class.
        adjoint: solve the transposed systems.
        guess: where iterations start; None: from the right sides.
        precision: share of the answer, of about which size iterations leave a residual.
    """
    size = rhs.shape[1]
    if isinstance(chains.matrix, np.ndarray) and size <= (DIRECT if discount < 1 or anchored else DIRECT_UNDISCOUNTED):
        system = np.eye(size) - discount * chains.matrix
        return _eliminate(system, rhs[..., None], anchored, adjoint)[..., 0]

    def apply(x: Draws) -> Draws:
        if adjoint:
            y = x - discount * chains.adjoint_next(x)
            if anchored:
                y[:, 0] += x.sum(-1)
            return y
        y = x - discount * chains.expected_next(x)
        return y + x[:, :1] if anchored else y

    x = rhs if guess is None else guess
    if not (anchored or adjoint) and discount < 1:
        endless = bool((np.abs(chains.mass - 1) < _SUMS_TO_ONE).all())
        x = sweep_while_fast(apply, rhs, x, discount, precision, endless=endless)
    direct = isinstance(chains.matrix, np.ndarray) and size <= DIRECT_SLOW
    if direct:
        # Nothing but sweeps is faster than elimination.
        error, unit = (np.abs(y).max(-1) for y in (rhs - apply(x), rhs))
        x, done = x.copy(), error <= 4 * precision * (np.abs(x).max(-1) + unit)
    else:
        x, done = iterate(apply, rhs, x, None, precision)
    if not direct and (~done).sum() > 1 and size <= ELIMINATED:  # a single one is eliminated sooner than inverted
        mean = np.mean([chains.dense(n) for n in range(min(len(rhs), 32))], 0)
        system = np.eye(size) - discount * mean
        system = _anchor(system) if anchored else system
        try:
            inverse = np.linalg.inv(system.T if adjoint else system)
        except np.linalg.LinAlgError:
            inverse = None
        if inverse is not None:
            second, solved = iterate(apply, rhs, x, lambda y: y @ inverse.T, precision)
            x, done = np.where((solved & ~done)[:, None], second, x), done | solved
    for n in np.flatnonzero(~done).tolist():
        x[n] = _eliminate_one(chains, n, discount, rhs[n], anchored, adjoint)
    return x


def _anchor(system: Float[np.ndarray, "*N S S"]) -> Float[np.ndarray, "*N S S"]:
    system = system.copy()
    system[..., 0] += 1.0
    return system


def _eliminate(
    system: Float[np.ndarray, "N S S"], rhs: Float[np.ndarray, "N S K"], anchored: bool = False, adjoint: bool = False
) -> Float[np.ndarray, "N S K"]:
    """Several right sides at once; nan where a system is singular."""
    if anchored:
        system[..., 0] += 1.0
    system = np.swapaxes(system, -1, -2) if adjoint else system
    try:
        return np.linalg.solve(system, rhs)
    except np.linalg.LinAlgError:  # one of them is singular, and LAPACK answers none
        x = np.full_like(rhs, np.nan)
        for n in range(len(rhs)):
            try:
                x[n] = np.linalg.solve(system[n], rhs[n])
            except np.linalg.LinAlgError:
                continue
        return x


def _eliminate_one(
    chains: Chains, draw: int, discount: float, rhs: Float[np.ndarray, " S"], anchored: bool, adjoint: bool
) -> Float[np.ndarray, " S"]:
    size, block = len(rhs), None
    if not isinstance(chains.matrix, np.ndarray):
        block = chains.matrix[draw * size : (draw + 1) * size, draw * size : (draw + 1) * size]
    if size <= ELIMINATED and (block is None or block.nnz > _FEW * size):
        system = np.eye(size) - discount * chains.dense(draw)
        return _eliminate(system[None], rhs[None, :, None], anchored, adjoint)[0, :, 0]
    if block is None:
        return np.full(size, np.nan)
    # Few successors: the factors stay sparse. The column that anchors is full, and the factorisation takes it last.
    system = scipy.sparse.identity(size) - discount * block
    if anchored:
        system = system + scipy.sparse.csr_matrix((np.ones(size), (np.arange(size), np.zeros(size, int))), (size, size))
    system = system.tocsc()
    try:
        return scipy.sparse.linalg.splu(system).solve(rhs, "T" if adjoint else "N")
    except RuntimeError:  # singular
        return np.full(size, np.nan)


def row_faults(rows: PairRows, drawn: Drawn) -> tuple[Numbers, Numbers]:
    """Of each draw: how far its rows are from summing to one, and the largest probability of an end."""
    excess = np.abs(rows.sums(drawn.probs) - 1.0).max(-1)
    end = np.flatnonzero(rows.next_state == rows.n_states)
    return excess, drawn.probs[:, end].max(-1, initial=0.0)


def used_pairs(policies: Float[np.ndarray, "P *H S A"], horizon: int | None) -> Bool[np.ndarray, "*layers S A"]:
    """The pairs that some policy takes at some step; by step where rows are.

    Args:
        policies: action probabilities.
        horizon: steps of the rows; None: they are the same at every step.
    """
    used = np.any(policies > 0, axis=0)
    if horizon is None:
        return np.any(used, axis=0) if used.ndim == 3 else used
    return np.broadcast_to(used, (horizon, *used.shape[-2:]))


def sweep_while_fast(
    apply: Callable[[Draws], Draws], rhs: Draws, x: Draws, discount: float, precision: float, *, endless: bool
) -> Draws:
    """Value iteration while every sweep cuts the error well: where states mix fast it takes half as long as BiCGSTAB.

    Args:
        apply: I - discount P.
        rhs: rewards.
        x: where it starts.
        discount: below 1.
        precision: as in `solve`.
        endless: whether no episode ends. The constant part of the error, the slowest, is then gone at once.
    """
    width, unit = np.inf, np.abs(rhs).max(-1)
    for _ in range(_SWEEPS):
        change = rhs - apply(x)
        low, high = change.min(-1), change.max(-1)
        x = x + change
        if endless:
            # The middle of the bounds of MacQueen (1966) on what is still missing.
            x += ((low + high) / 2 * discount / (1 - discount))[:, None]
        size = high - low if endless else np.maximum(high, -low)
        relative = float((size / np.maximum(np.abs(x).max(-1) + unit, _TINY)).max())
        if relative <= 2 * precision or not relative < _FAST * width:
            break
        width = relative
    return x


def iterate(
    apply: Callable[[Draws], Draws],
    rhs: Draws,
    guess: Draws,
    precondition: Callable[[Draws], Draws] | None,
    precision: float,
) -> tuple[Draws, Bool[np.ndarray, " N"]]:
    """Restarted BiCGSTAB from a guess; the answers, and whether each is about as precise as asked for."""
    x = guess
    residual = rhs - apply(x)
    error = np.abs(residual).max(-1)
    unit = np.abs(rhs).max(-1)
    for _ in range(_RESTARTS):
        noise = precision * (np.abs(x).max(-1) + unit)
        going = error > 4 * noise
        if not going.any():
            break
        # The correction, not x, is solved for: a restart removes the drift of the recursive residual.
        target = np.maximum(1e-5 * np.linalg.norm(residual, axis=-1), noise * rhs.shape[1] ** 0.5)
        moved = x + _bicgstab(apply, residual, precondition, target)
        left = rhs - apply(moved)
        reached = np.abs(left).max(-1)
        better = reached < error
        x, residual = np.where(better[:, None], moved, x), np.where(better[:, None], left, residual)
        improved = (reached < error / 2) & going
        error = np.where(better, reached, error)
        if not improved.any():
            break
    return x, error <= 64 * precision * (np.abs(x).max(-1) + unit)


def _bicgstab(
    apply: Callable[[Draws], Draws],
    rhs: Draws,
    precondition: Callable[[Draws], Draws] | None,
    target: Numbers,
) -> Draws:
    """x with A x near rhs in every draw, from zero (van der Vorst 1992); a draw that breaks down stays where it is.

    Args:
        apply: A.
        rhs: right sides.
        precondition: about the inverse of A; None: none.
        target: size of the residual that is enough.
    """

    def dot(x: Draws, y: Draws) -> Float[np.ndarray, "N 1"]:
        return np.einsum("ns,ns->n", x, y)[:, None]

    # A breakdown, a division by zero, leaves the draw where it is.
    def ratio(x: Float[np.ndarray, "N 1"], y: Float[np.ndarray, "N 1"]) -> Float[np.ndarray, "N 1"]:
        return np.where(y != 0, x / np.where(y != 0, y, 1.0), 0.0)

    x, residual, shadow = np.zeros_like(rhs), rhs.copy(), rhs
    rho = alpha = omega = np.ones((len(rhs), 1))
    direction = v = np.zeros_like(rhs)
    with np.errstate(all="ignore"):
        for _ in range(_ITERATIONS):
            if (np.linalg.norm(residual, axis=-1) <= target).all():
                break
            # The direction of biconjugate gradients, preconditioned.
            new = dot(shadow, residual)
            direction = residual + ratio(new, rho) * ratio(alpha, omega) * (direction - omega * v)
            rho = new
            smooth = direction if precondition is None else precondition(direction)
            v = apply(smooth)
            alpha = ratio(rho, dot(shadow, v))
            # Half a step along it, then one that makes the residual smallest along t.
            half = residual - alpha * v
            preconditioned = half if precondition is None else precondition(half)
            t = apply(preconditioned)
            omega = ratio(dot(t, half), dot(t, t))
            x = x + alpha * smooth + omega * preconditioned
            residual = half - omega * t
    # The caller corrects what is left: zero is a safe start where a draw ended in nan.
    return np.where(np.isfinite(x).all(-1, keepdims=True), x, 0.0)


LEAST_POLICIES = 8
"""Policies from which on an elimination is faster than iterations for each."""
MOST_CHANGED = 1 / 8
"""Share of the states in which policies may differ."""


@dataclass(frozen=True, eq=False)
class NearbyPolicies:
    """Policies of a large problem that differ in a few states: a first one, and what changes.

    Their discounted values take one elimination a draw. With A = I - k P of one policy, another one has A - k E D: D
    are the changes of its rows in the states where it differs, E puts them there. Its values are
    u + k G (I - k D G)^-1 D u for u = A^-1 r and G = A^-1 E (Woodbury; Golub and Van Loan 2013, *Matrix Computations*,
    section 2.1.4): a system of as many equations as there are such states.

    Args:
        first: the first policy.
        changed: states in which some policy differs from it.
        changes: for each policy the states where it differs, by number among `changed`, and the change of its mean over
            the pairs there [C Q].
    """

    first: PolicyPairs
    changed: Int[np.ndarray, " D"]
    changes: list[tuple[Int[np.ndarray, " C"], scipy.sparse.csr_array]]

    @classmethod
    def of(cls, policies: Sequence[PolicyPairs]) -> "NearbyPolicies | None":
        """None: they are few, differ in many states, or are not made of whole rows.

        Args:
            policies: the pairs that they take.
        """
        if len(policies) < LEAST_POLICIES or not all(policy.is_large for policy in policies):
            return None
        first = policies[0]
        differences = [scipy.sparse.csr_array(policy.average - first.average) for policy in policies]
        states = [np.flatnonzero(abs(difference).sum(-1)) for difference in differences]
        changed = np.unique(np.concatenate(states))
        if first.n_states > ELIMINATED or len(changed) > MOST_CHANGED * first.n_states:
            return None
        parts = [
            (np.searchsorted(changed, differing), difference[differing])
            for differing, difference in zip(states, differences, strict=True)
        ]
        return cls(first, changed, parts)

    def values(self, drawn: Drawn, discount: float) -> list[Values]:
        """Values of each policy, with proven bounds.

        Args:
            drawn: in double precision.
            discount: below 1.
        """
        size, num = self.first.n_states, len(drawn.probs)
        values = np.empty((len(self.changes), num, size))
        gaps = np.empty((len(self.changes), num))
        for n in range(num):
            # Whole, with the end: a part of it would be copied for each product.
            table, paid = drawn.probs[n].reshape(len(drawn.reward[n]), -1), drawn.reward[n]
            rows, reward = (self.first.average @ table)[:, :size], self.first.average @ paid
            # Right sides: the rewards, and a one in each state that changes.
            sides = np.zeros((size, 1 + len(self.changed)))
            sides[:, 0] = reward
            sides[self.changed, 1 + np.arange(len(self.changed))] = 1.0
            solved = lu_solve(lu_factor(np.eye(size) - discount * rows), sides)
            mass = np.repeat(rows.sum(-1)[None], len(self.changes), 0)
            v, swept = np.empty_like(mass), np.repeat(reward[None], len(self.changes), 0)
            for i, (places, change) in enumerate(self.changes):
                differing, influence = self.changed[places], solved[:, 1 + places]
                moved, extra = (change @ table)[:, :size], change @ paid
                plain = solved[:, 0] + influence @ extra
                small = np.eye(len(places)) - discount * moved @ influence
                v[i] = plain + discount * influence @ np.linalg.solve(small, moved @ plain)
                swept[i, differing] += extra + discount * (moved @ v[i])
                mass[i, differing] += moved.sum(-1)
            # One sweep of all of them, which says how far they are off.
            swept += discount * (v @ rows.T)
            # A sum of the first policy's row and of the change: twice as many terms.
            numbers = (np.broadcast_to(x, (len(v), *np.shape(x))) for x in (rows, reward, np.abs(paid).max()))
            matrix, rewards, largest = numbers
            chains = Chains(matrix, rewards, 2 * self.first.terms, largest)
            bound = discounted_bound(chains, swept - v, v, discount, mass)
            values[:, n], gaps[:, n] = swept + bound.shift[:, None], bound.gap
        return [Values(*answer) for answer in zip(values, gaps, strict=True)]
