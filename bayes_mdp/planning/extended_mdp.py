"""Extended value iteration: the best plan over all MDPs of a set, rows and rewards chosen freely in every pair.

Jaksch, Ortner and Auer 2010, *Near-optimal Regret Bounds for Reinforcement Learning*, section 3.1 (average reward);
Dann and Brunskill 2015, algorithm 1 (episodes). The set is a product over pairs, so choosing a pair and a row of its
set are the actions of one larger MDP, and the planners' bounds hold for that.

The best row of a set (`Box`, `L1Ball`): values are shared by all pairs, so one sort of them serves every row of a
sweep. With values v_1 >= ... >= v_O and C_k the mass that the best row puts on the k best outcomes, its value is
v_O + sum_{k < O} C_k (v_k - v_{k+1}). No row is built: a scan over outcomes carries C_k of all pairs.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
import scipy.sparse.linalg
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from bayes_mdp.mdp import MDP, AverageReward, Discounted, Episodic, Objective, SparseMDP
from bayes_mdp.mdp.objectives import require_objective
from bayes_mdp.numerics.products import matmul
from bayes_mdp.planning.bellman import Rounding
from bayes_mdp.planning.episodic import backward_induction
from bayes_mdp.planning.solution import Solution, best_action, where_legal
from bayes_mdp.utils.typing import ArrayLike, IntScalar, RealScalar
from bayes_mdp.utils.validation import ROW_SUM_TOLERANCE, check_shape, is_concrete, require

Number = Float[Array, ""]
Carry = tuple[
    Int[Array, ""],
    Float[Array, " S"],
    Float[Array, " S"],
    Float[Array, "S A"],
    tuple[Number, Number],
    Bool[Array, ""],
]
"""Sweeps, next values, values, their q, the bounds that it proves, whether they are near enough."""

_CAP = 10_000
DENSE_STATES = 256
"""Up to so many states a chain is solved as a dense system."""
_LAZINESS = 0.5  # as in `average`: known rows may form a cycle, on which plain value iteration never settles
Pairs = Float[Array, "S A"]


def outcome_probs(mdp: MDP | SparseMDP) -> Float[Array, "*H S A O"]:
    """Dense rows over outcomes: the next states and, where `mdp` has ends, the end as the last one."""
    dense = mdp.to_dense()
    if dense.end_probs is None:
        return dense.transition_probs
    return jnp.concatenate([dense.transition_probs, dense.end_probs[..., None]], -1)


def as_mask(x: ArrayLike | None) -> Bool[Array, "..."] | None:
    """A boolean array, or None."""
    return None if x is None else jnp.asarray(x, bool)


class L1Ball(eqx.Module):
    """The rows p with ||p - probs||_1 <= radius, on the possible outcomes (Jaksch, Ortner and Auer 2010, section 3.1).

    Args:
        probs: [*H S A O], the centres; O is S, or S + 1 with the end, of value 0, last. A row that sums to one only
            nearly has what is missing on the worst outcome.
        radius: [*H S A], zero or greater; from 2 on every row is in the set.
        support: Bool[*H S A O], the possible outcomes; None: all.

    Raises:
        ValueError: shapes that disagree, a negative radius, a centre with mass on an impossible outcome.
    """

    probs: Float[Array, "*H S A O"] = eqx.field(converter=jnp.asarray)
    radius: Float[Array, "*H S A"] = eqx.field(converter=jnp.asarray)
    support: Bool[Array, "*H S A O"] | None = eqx.field(default=None, converter=as_mask)

    def __check_init__(self) -> None:
        shape = self.probs.shape
        check_shape("radius", self.radius, shape[:-1], "as probs, without its last axis")
        if self.support is not None:
            check_shape("support", self.support, shape, "as probs")
        if is_concrete(self.radius):
            radius = np.asarray(self.radius)
            require(~(radius >= 0), "radius", radius, "a number, zero or greater")
        if self.support is not None and is_concrete(self.probs, self.support):
            probs = np.asarray(self.probs)
            require((probs > 0) & ~np.asarray(self.support), "probs", probs, "0, because support excludes it")

    @property
    def shape(self) -> tuple[int, ...]:
        """(*H, S, A, O)."""
        return self.probs.shape

    def at(self, step: IntScalar) -> "L1Ball":
        """The sets of one step (itself where they do not depend on the step)."""
        return self if self.radius.ndim == 2 else jax.tree.map(lambda x: x[step], self)

    def best_value(self, values: Float[Array, " S"]) -> Float[Array, "S A"]:
        """max of p . values over each set: half the radius to the best outcome, taken from the worst ones.

        For sets without a step axis.
        """
        return _best_expectation(values, self._trace, lambda reached: _best_mass(reached, self.radius / 2), 1.0)

    def best_rows(self, values: Float[Array, " V"]) -> Float[Array, "S A O"]:
        """The rows whose value is `best_value`; of several best outcomes the first gets the mass.

        For sets without a step axis. `values`: of the outcomes; those that are missing at the end have value 0.
        """
        _, order = _rank(values, self.shape[-1])
        # Cumulative masses of the best row, best outcome first; their differences are its probabilities.
        mass = _best_mass(jnp.cumsum(self._trace[..., order], -1), self.radius[..., None] / 2).at[..., -1].set(1.0)
        rows = jnp.diff(mass, axis=-1, prepend=jnp.zeros_like(mass[..., :1]))
        return rows[..., jnp.argsort(order)]

    @property
    def _trace(self) -> Float[Array, "*H S A O"]:
        """A positive trace of every possible outcome: `_best_mass` is 0 above the best of them, and nowhere else."""
        trace = jnp.maximum(self.probs, float(jnp.finfo(self.probs.dtype).tiny))
        return trace if self.support is None else jnp.where(self.support, trace, 0.0)


class Box(eqx.Module):
    """The rows p with lower <= p <= upper in every outcome (Dann and Brunskill 2015; Strehl and Littman 2005).

    Args:
        lower, upper: [*H S A O], O as in `L1Ball`. Impossible outcomes have upper 0.

    Raises:
        ValueError: shapes that disagree, lower > upper, a set without a row (sum lower > 1 or sum upper < 1).
    """

    lower: Float[Array, "*H S A O"] = eqx.field(converter=jnp.asarray)
    upper: Float[Array, "*H S A O"] = eqx.field(converter=jnp.asarray)

    def __check_init__(self) -> None:
        check_shape("upper", self.upper, self.lower.shape, "as lower")
        if not is_concrete(self.lower, self.upper):
            return
        lower, upper = np.asarray(self.lower), np.asarray(self.upper)
        require(~((lower >= 0) & (lower <= upper)), "lower", lower, "a number from 0 to upper")
        spare = ROW_SUM_TOLERANCE.get(str(lower.dtype), 1e-6)
        require(lower.sum(-1) > 1 + spare, "sum of lower", lower.sum(-1), "at most 1")
        require(upper.sum(-1) < 1 - spare, "sum of upper", upper.sum(-1), "at least 1")

    def at(self, step: IntScalar) -> "Box":
        """The sets of one step (itself where they do not depend on the step)."""
        return self if self.lower.ndim == 3 else jax.tree.map(lambda x: x[step], self)

    @property
    def shape(self) -> tuple[int, ...]:
        """(*H, S, A, O)."""
        return self.lower.shape

    def best_value(self, values: Float[Array, " S"]) -> Float[Array, "S A"]:
        """max of p . values over each set: what the lower limits leave is poured from the best outcome down.

        For sets without a step axis.
        """
        # Every outcome has its lower limit; the rest fills the room up to the upper limits, best outcome first.
        rest = 1.0 - jnp.sum(self.lower, -1)
        poured = _best_expectation(values, self.upper - self.lower, lambda room: jnp.minimum(room, rest), rest)
        return matmul(self.lower[..., : values.shape[0]], values) + poured


def _best_mass(reached: Float[Array, "*n"], half: Float[Array, "*#n"]) -> Float[Array, "*n"]:
    """The mass of the best row of a ball on the k best outcomes, from that of the centre and half the radius."""
    return jnp.where(reached > 0, jnp.minimum(reached + half, 1.0), 0.0)


def _best_expectation(
    values: Float[Array, " S"], amount: Float[Array, "S A O"], mass: Callable[[Pairs], Pairs], total: float | Pairs
) -> Float[Array, "S A"]:
    """The expected value of `total` mass, of which mass(sum of the k first amounts) lies on the k best outcomes."""
    ranked, order = _rank(values, amount.shape[-1])
    columns = jnp.moveaxis(amount, -1, 0)

    def add(
        carry: tuple[Pairs, Pairs], outcome: tuple[Int[Array, ""], Float[Array, ""]]
    ) -> tuple[tuple[Pairs, Pairs], None]:
        # Abel summation: C_k times the drop from the k-th value to the next.
        (reached, value), (column, drop) = carry, outcome
        reached = reached + columns[column]
        return (reached, value + drop * mass(reached)), None

    nothing = jnp.zeros_like(columns[0])
    outcomes = (order[:-1], ranked[:-1] - ranked[1:])
    return total * ranked[-1] + lax.scan(add, (nothing, nothing), outcomes, unroll=4)[0][1]


def _rank(values: Float[Array, " S"], n_outcomes: int) -> tuple[Float[Array, " O"], Int[Array, " O"]]:
    """The values of all outcomes from the best down (0 for an end), and which they are."""
    padded = jnp.pad(values, (0, n_outcomes - values.shape[0]))
    order = jnp.argsort(-padded)
    return padded[order], order


class ExtendedMDP(eqx.Module):
    """A set of MDPs: a set of rows for every pair, and the largest plausible mean reward.

    Args:
        rows: `L1Ball` or `Box`.
        reward: [*H S A], the upper ends of the intervals of the mean rewards.
        legal: Bool[S A], which actions exist in which state; None: all.

    Raises:
        ValueError: shapes that disagree.
    """

    rows: L1Ball | Box
    reward: Float[Array, "*H S A"] = eqx.field(converter=jnp.asarray)
    legal: Bool[Array, "S A"] | None = eqx.field(default=None, converter=as_mask)

    def __check_init__(self) -> None:
        shape = self.rows.shape
        check_shape("reward", self.reward, shape[:-1], "as the rows")
        if shape[-1] - shape[-3] not in (0, 1):
            raise ValueError(f"rows have {shape[-1]} outcomes, expected {shape[-3]}, or one more for the end")
        if self.legal is not None:
            check_shape("legal", self.legal, shape[-3:-1], "state, action")

    @property
    def horizon(self) -> int | None:
        """H where the sets depend on the step, else None."""
        return self.reward.shape[0] if self.reward.ndim == 3 else None

    @property
    def ends(self) -> bool:
        """Whether the last outcome of a row is an end."""
        return self.rows.shape[-1] > self.reward.shape[-2]

    def at(self, step: IntScalar) -> "ExtendedMDP":
        """The sets of one step (itself where they do not depend on the step)."""
        return self if self.horizon is None else ExtendedMDP(self.rows.at(step), self.reward[step], self.legal)

    def action_values(self, values: Float[Array, " S"], discount: RealScalar = 1.0) -> Float[Array, "S A"]:
        """One optimistic sweep, q = reward + discount max_p p . values; -inf where an action is illegal."""
        return where_legal(self.reward + discount * self.rows.best_value(values), self.legal)


def solve_extended(
    mdp: ExtendedMDP, objective: Objective, *, tolerance: RealScalar = 0.0, start: Solution | None = None
) -> Solution:
    """The plan that is best in the best MDP of the set, and its optimistic values. Pure and traceable, one element.

    `gap` bounds the distance to the exact optimum over the set, as in `Solution`; for `AverageReward` it is infinite
    where the optimum over the set has no single gain (or none was found). Episodes take one backward pass, the others
    value iteration; under `AverageReward` with a chance of 1/2 to stay, which keeps the order of gains and makes every
    chain aperiodic.

    Args:
        mdp: the set. A step axis H needs `Episodic(H)`.
        objective: `Discounted`, `Episodic` or `AverageReward`.
        tolerance: stop when the proven bounds, on the values or on the gain, are no further apart (Jaksch et al.: the
            span of T v - v, 1 / sqrt(t)); never below what rounding allows. Not used for episodes.
        start: a plan for a similar set to start from.

    Raises:
        ValueError: sizes that do not fit, another objective, ends under `AverageReward`, a negative tolerance.
    """
    _check(mdp, objective, tolerance)
    rounding = _rounding(mdp)
    if isinstance(objective, Episodic):
        return _solve_episodic(mdp, objective, rounding)
    values = jnp.zeros(mdp.reward.shape[-2], mdp.reward.dtype) if start is None else start.v
    # A start without finite values is no start.
    values = jnp.where(jnp.isfinite(values), values, 0.0)
    if isinstance(objective, Discounted):
        return _solve_discounted(mdp, objective.discount, rounding, values, tolerance)
    return _solve_average(mdp, rounding, values - values[0], tolerance)


def _check(mdp: ExtendedMDP, objective: Objective, tolerance: RealScalar) -> None:
    objective = require_objective(objective, "extended planning", Discounted, Episodic, AverageReward)
    if isinstance(objective, Episodic):
        if mdp.horizon not in (None, objective.horizon):
            raise ValueError(f"objective has horizon {objective.horizon}, expected {mdp.horizon}, that of the sets")
    elif mdp.horizon is not None:
        kind = type(objective).__name__
        raise ValueError(f"objective is {kind} and the sets have {mdp.horizon} steps, expected Episodic({mdp.horizon})")
    if isinstance(objective, AverageReward) and mdp.ends:
        raise ValueError("rows have an end, expected none: the average reward needs an MDP that never ends")
    if is_concrete(tolerance):
        require(not tolerance >= 0, "tolerance", tolerance, "a number, zero or greater")


def _rounding(mdp: ExtendedMDP) -> Rounding:
    """Two sums of O terms and one of O products, each over values whose span is at most twice their size."""
    info = jnp.finfo(mdp.reward.dtype)
    terms = 8 * mdp.rows.shape[-1] + 16
    u = terms * float(info.eps) / 2
    size = jnp.max(where_legal(jnp.abs(mdp.reward), mdp.legal, 0.0))
    return Rounding(u / (1 - u) if u < 0.5 else float("inf"), size, terms * float(info.tiny))


def _solve_episodic(mdp: ExtendedMDP, objective: Episodic, rounding: Rounding) -> Solution:
    """Backward induction. A sweep is no expansion (rows sum to one), so the errors of the steps at most add up."""
    horizon, dtype = objective.horizon, mdp.reward.dtype
    sweep = lambda values, layer: mdp.at(layer).action_values(values, objective.discount)  # noqa: E731
    q = backward_induction(sweep, horizon, mdp.reward.shape[-2], dtype=dtype)
    v = jnp.max(q, -1)
    # A sweep at step h uses the values of step h + 1; those after the last step are zero.
    later = jnp.max(jnp.abs(v), -1)[1:]
    error = rounding.factor * (horizon * rounding.reward + jnp.sum(later)) + horizon * rounding.floor
    gap = error * (1 + horizon * float(jnp.finfo(dtype).eps))
    gap = jnp.where(jnp.isfinite(gap), gap, jnp.inf)
    nothing = jnp.full((), jnp.nan, dtype)
    return Solution(q, v, best_action(q), nothing, jnp.isfinite(gap), jnp.int32(horizon), gap)


def _solve_discounted(
    mdp: ExtendedMDP, discount: RealScalar, rounding: Rounding, values: Float[Array, " S"], tolerance: RealScalar
) -> Solution:
    """Value iteration; the answer is moved to the middle of its bounds (Puterman 1994, theorem 6.6.3).

    With T v - v in [low, high], v* lies in T v + k / (1 - k) [low, high]; k is the discount, but may be as little as 0
    where a row can end.
    """
    discount = jnp.asarray(discount, mdp.reward.dtype)
    # k / (1 - k), rounded up; 0 is possible where every row of a pair may end.
    largest_factor = discount / (1 - discount) * (1 + 4 * rounding.factor)
    smallest_factor = jnp.zeros_like(largest_factor) if mdp.ends else largest_factor

    def bounds(low: Number, high: Number) -> tuple[Number, Number]:
        return low * jnp.where(low < 0, largest_factor, smallest_factor), high * jnp.where(
            high > 0, largest_factor, smallest_factor
        )

    sweep = lambda v: mdp.action_values(v, discount)  # noqa: E731
    values, q, (lower, upper), count, done = _iterate(sweep, bounds, rounding, mdp, values, tolerance)
    error = rounding.of_sweep(values)
    shift = jnp.where(jnp.isfinite(upper - lower), (upper + lower) / 2, 0.0)
    # The middle of the bounds halves the error; the gap adds half their width to the rounding of the sweep.
    q = q + shift
    gap = ((upper - lower) / 2 + error) * (1 + rounding.factor) + rounding.factor * jnp.abs(shift)
    gap = jnp.where(jnp.isfinite(gap), gap, jnp.inf)
    nothing = jnp.full((), jnp.nan, q.dtype)
    return Solution(q, jnp.max(q, -1), best_action(q), nothing, done & jnp.isfinite(gap), count, gap)


def _solve_average(mdp: ExtendedMDP, rounding: Rounding, values: Float[Array, " S"], tolerance: RealScalar) -> Solution:
    """Lazy relative value iteration: min (T v - v) <= gain <= max (T v - v) for every v (Puterman 1994, 8.5.5)."""
    sweep, bounds = mdp.action_values, lambda low, high: (low, high)
    _, q, (lower, upper), count, done = _iterate(sweep, bounds, rounding, mdp, values, tolerance, lazy=True)
    gain, gap = (lower + upper) / 2, (upper - lower) / 2 * (1 + rounding.factor)
    q = q - gain
    # Relative values: state 0 has value 0.
    q = q - jnp.max(q[0])
    # Bounds that never meet need not hold one gain of every start: a set of known rows may not be connected.
    gap = jnp.where(done & jnp.isfinite(gap), gap, jnp.inf)
    return Solution(q, jnp.max(q, -1), best_action(q), gain, done & jnp.isfinite(gap), count, gap)


def _iterate(
    sweep: Callable[[Float[Array, " S"]], Float[Array, "S A"]],
    bounds: Callable[[Number, Number], tuple[Number, Number]],
    rounding: Rounding,
    mdp: ExtendedMDP,
    first: Float[Array, " S"],
    tolerance: RealScalar,
    *,
    lazy: bool = False,
) -> tuple[Float[Array, " S"], Float[Array, "S A"], tuple[Number, Number], Int[Array, ""], Bool[Array, ""]]:
    """Values, their sweep, the bounds that it proves, how many, and whether the bounds came near enough."""

    def body(carry: Carry) -> Carry:
        count, v = carry[:2]
        q, error = sweep(v), rounding.of_sweep(v)
        best = jnp.max(q, -1)
        # Bounds from this sweep; `floor` is how near they can get in this arithmetic, so that the loop ends.
        proven = bounds(jnp.min(best - v) - error, jnp.max(best - v) + error)
        floor = bounds(-4 * error, 4 * error)
        done = proven[1] - proven[0] <= jnp.maximum(tolerance, floor[1] - floor[0])
        # Lazy: stay with probability 1/2, which halves the gain and keeps the policy. Relative: state 0 stays at zero.
        later = v + _LAZINESS * (best - v) if lazy else best
        return count + 1, later - later[0] if lazy else later, v, q, proven, done

    infinite = jnp.full((), jnp.inf, mdp.reward.dtype)
    none = (jnp.int32(0), first, first, mdp.reward, (-infinite, infinite), jnp.array(False))
    going = lambda carry: ~carry[-1] & (carry[0] < _CAP)  # noqa: E731
    count, _, values, q, proven, done = jax.lax.while_loop(going, body, none)
    return values, q, proven, count, done


def solve_listed(
    state: Int[np.ndarray, " Q"],
    successor: Int[np.ndarray, "Q K"],
    weight: Float[np.ndarray, "Q K"],
    reward: Float[np.ndarray, " S"],
) -> Float[np.ndarray, " S"]:
    """v with v(s) = reward(s) + sum over the rows q of s and k of weight(q, k) v(successor(q, k)). NumPy, host-side.

    Args:
        state: of each row.
        successor: states; S: the end, whose value is zero.
        weight: zero or greater.
        reward: of each state.
    """
    size = len(reward)
    inside = successor < size
    source = np.broadcast_to(state[:, None], successor.shape)[inside]
    chain = scipy.sparse.csr_matrix((weight[inside], (source, successor[inside])), (size, size))
    # A few hundred states: LAPACK is faster than building a sparse factor.
    if size <= DENSE_STATES:
        return np.linalg.solve(np.eye(size) - chain.toarray(), reward)
    system = scipy.sparse.identity(size, format="csc") - chain
    return scipy.sparse.linalg.splu(scipy.sparse.csc_matrix(system)).solve(reward)


def least_rows(
    lower: Float[np.ndarray, "*rows K"], room: Float[np.ndarray, "*rows K"], worth: Float[np.ndarray, "... K"]
) -> Float[np.ndarray, "*rows K"]:
    """The rows p with lower <= p <= lower + room that sum to one and make sum p worth least.

    Every outcome gets its lower end; the rest goes to the outcomes of the least worth first, each up to its room.

    Args:
        lower: the lower ends; rows that sum to one at most.
        room: the upper ends less these.
        worth: of each outcome, [K] where it is the same in all rows; minus the worth gives the rows of the greatest
            value.
    """
    order = np.argsort(worth, axis=-1, kind="stable")
    shared = order.ndim == 1
    sorted_room = room[..., order] if shared else np.take_along_axis(room, order, -1)
    rest = np.maximum(1.0 - lower.sum(-1, keepdims=True), 0.0)
    taken_before = np.cumsum(sorted_room, -1) - sorted_room
    sorted_added = np.clip(rest - taken_before, 0.0, sorted_room)
    added = np.empty_like(sorted_room)
    if shared:
        added[..., order] = sorted_added
    else:
        np.put_along_axis(added, order, sorted_added, -1)
    return lower + added
