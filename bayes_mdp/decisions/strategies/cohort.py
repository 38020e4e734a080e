"""Cohort models: where a cohort is after each cycle, and what that costs or is worth. To be used in NumPyro programs.

A cohort of weight one starts in `initial`; cycle t = 1..T moves it by the matrix of that cycle. What is counted is the
occupancy after t transitions, t = 0..T, each with a weight: a discount of its own for every outcome, and a rule for
what happens within a cycle. Events (moves, what is paid once) do not last: they are discounted, and that rule does not
hold for them. Traced: the functions may be jitted, differentiated and vmapped.

Source: Briggs, Claxton and Sculpher (2006), *Decision Modelling for Health Economic Evaluation*, chapter 2.
"""

from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from bayes_mdp.numerics.products import matmul
from bayes_mdp.utils.typing import AnyArray, ArrayLike
from bayes_mdp.utils.validation import check_count, check_name, check_names, check_number, check_shape, is_concrete

Counting = Literal["start", "end", "half-cycle", "simpson"]


def cohort_trace(
    transition: ArrayLike, initial: ArrayLike, n_cycles: int | None = None
) -> Float[Array, "n_cycles_and_1 S"]:
    """Occupancy of every state after 0, 1, ..., T transitions: shares of the cohort.

    Args:
        transition: [S S], the same in all cycles, or [T S S], one for each cycle. Rows are probabilities, not checked
            here.
        initial: [S], the cohort at the start.
        n_cycles: T; needed with one matrix, and at most the number of matrices with several.

    Raises:
        ValueError: shapes that do not fit; no number of cycles with one matrix.
        TypeError: probabilities that are no numbers, a number of cycles that is no integer.

    Example:
        >>> trace = bm.strategies.cohort_trace([[0.9, 0.1], [0.0, 1.0]], [1.0, 0.0], 2)
        >>> print(np.asarray(trace).round(3))  # alive, dead
        [[1.   0.  ]
         [0.9  0.1 ]
         [0.81 0.19]]
    """
    matrices, start = jnp.asarray(transition, float), jnp.asarray(initial, float)
    if matrices.ndim not in (2, 3):
        # One matrix for all cycles, or one for each.
        raise ValueError(f"transition has shape {matrices.shape}, expected (S, S) or (cycles, S, S)")
    size = matrices.shape[-1]
    check_shape("transition", matrices, (*matrices.shape[:-2], size, size), "[T] S S")
    check_shape("initial", start, (size,), "S")
    if matrices.ndim == 2:
        check_count("n_cycles", n_cycles, 0)
        matrices = jnp.broadcast_to(matrices, (int(n_cycles or 0), size, size))
    elif n_cycles is not None:
        check_count("n_cycles", n_cycles, 0)
        if n_cycles > len(matrices):
            raise ValueError(f"n_cycles is {n_cycles}, expected at most the {len(matrices)} matrices of transition")
        matrices = matrices[:n_cycles]

    # x(t + 1) = x(t) P_t; a scan over the matrices, [T S S].
    def cycle(occupancy: Array, matrix: Array) -> tuple[Array, Array]:
        after = matmul(occupancy, matrix)
        return after, after

    _, later = jax.lax.scan(cycle, start, matrices)
    # The start is t = 0: T + 1 occupancies.
    return jnp.concatenate([start[None], later])


class CycleWeights(np.ndarray):
    """Weights of `cycle_weights`, a NumPy array that knows their discount. What is computed from it is without one.

    Args:
        discount: [T+1], (1 + rate)^-t; None: not known.
    """

    discount: Float[np.ndarray, " n_cycles_and_1"] | None

    def __array_finalize__(self, source: object) -> None:
        """NumPy calls this for what is made from an array: a slice, a copy, a product."""
        del source
        # A slice or a product has other weights: what it was discounted by is lost.
        self.discount = None


def cycle_weights(
    n_cycles: int, rate: float | Float[AnyArray, ""] = 0.0, counting: Counting = "end"
) -> Float[AnyArray, " n_cycles_and_1"]:
    """The weight of the occupancy after t = 0..T transitions: (1 + rate)^-t times the share that is counted.

    In NumPy's float64 where the rate is a number: computed outside a program it has the digits that it has inside.
    `cohort_total` then knows the discount of moves and of what is paid once, too: that without the share.

    Args:
        n_cycles: T.
        rate: discount rate of a cycle, above -1.
        counting: "start" counts cycles by the occupancy at their start (t = 0..T-1), "end" at their end (1..T),
            "half-cycle" by the mean of the two (Simpson's rule is "simpson": 1/3, 4/3, 2/3, ..., 4/3, 1/3, T even).

    Raises:
        ValueError: see the arguments. TypeError: a number of cycles that is no integer.

    Example:
        >>> print(bm.strategies.cycle_weights(2, rate=0.03).round(3))  # of cycles counted at their end
        [0.    0.971 0.943]
    """
    check_count("n_cycles", n_cycles)
    check_name("counting", counting, get_args(Counting))
    # A traced rate keeps its gradient; a number stays in NumPy's float64.
    known = is_concrete(rate)
    if known:
        check_number("rate", rate, lambda x: x > -1, "a number above -1")
    share = np.ones(n_cycles + 1)
    # Rules for when within a cycle moves happen: at its start, its end, in the middle, or Simpson's rule over cycles.
    if counting == "start":
        share[-1] = 0
    elif counting == "end":
        share[0] = 0
    elif counting == "half-cycle":
        share[[0, -1]] = 0.5
    else:
        # Simpson's rule: 1/3, 4/3, 2/3, 4/3, ..., 1/3.
        if n_cycles % 2:
            raise ValueError(f"n_cycles is {n_cycles}, expected an even number for counting='simpson'")
        share[1::2], share[2:-1:2], share[[0, -1]] = 4 / 3, 2 / 3, 1 / 3
    if known:
        # (1 + rate)^-t, kept beside the weights for what is paid once.
        discount = (1.0 + float(rate)) ** -np.arange(n_cycles + 1)
        weights = (share * discount).view(CycleWeights)
        weights.discount = discount
        return weights
    return jnp.asarray(share) * (1.0 + jnp.asarray(rate, float)) ** -jnp.arange(n_cycles + 1)


def cohort_total(
    trace: Float[AnyArray, "n_cycles_and_1 S"],
    per_state: ArrayLike,
    weights: ArrayLike,
    *,
    per_transition: ArrayLike | None = None,
    transition: ArrayLike | None = None,
    once: ArrayLike | None = None,
    event_weights: ArrayLike | None = None,
) -> Float[Array, ""]:
    """An outcome of a cohort: of cycles spent in states, of moves, and of what is paid once.

    The sum over t of weight_t occupancy_t . per_state + discount_t (moves_t . per_transition + occupancy_t . once_t).
    It has the unit of `per_state`, a cycle's. Moves happen and payments are made at one time, so that of the weights
    the discount alone is theirs, whatever the `counting`: a move of cycle t is counted at its end.

    Args:
        trace: occupancies, as of `cohort_trace`.
        per_state: [S] or [T+1 S], of a cycle in each state.
        weights: [T+1], of `cycle_weights` or one's own.
        per_transition: [S S], of each move, counted when it has happened (t = 1..T).
        transition: [S S] or [T S S], as in `cohort_trace`; needed with `per_transition`.
        once: [S], paid at the start by those who are in each state, or [T+1 S], paid once after t transitions.
        event_weights: [T+1], of moves and of what is paid once; None: the discount (1 + rate)^-t of the `weights`,
            which those of `cycle_weights` know (of a rate that is a number), one's own do not.

    Raises:
        ValueError: shapes that do not fit; moves without `transition`; moves, or what is paid once, with weights of
            one's own and without `event_weights`; `per_state` of one time alone, of which the weights count a part.

    Example:
        >>> matrix = [[0.8, 0.2], [0.0, 1.0]]  # alive, dead
        >>> trace = bm.strategies.cohort_trace(matrix, [1.0, 0.0], 1)
        >>> weights = bm.strategies.cycle_weights(1, counting="half-cycle")
        >>> round(float(bm.strategies.cohort_total(trace, [1.0, 0.0], weights)), 3)  # years: (1 + 0.8) / 2
        0.9
        >>> dying = {"per_transition": [[0.0, 100.0], [0.0, 0.0]], "transition": matrix}
        >>> round(float(bm.strategies.cohort_total(trace, [0.0, 0.0], weights, **dying)), 3)  # 20 % die, at 100 each
        20.0
        >>> at_start = [500.0, 0.0]  # an operation
        >>> round(float(bm.strategies.cohort_total(trace, [0.0, 0.0], weights, once=at_start)), 3)
        500.0
    """
    number, size = trace.shape
    values, share = jnp.asarray(per_state, float), jnp.asarray(weights, float)
    check_shape("weights", share, (number,), "T+1")
    check_shape("per_state", values, (number, size) if values.ndim == 2 else (size,), "[T+1] S")
    if event_weights is not None:
        check_shape("event_weights", jnp.asarray(event_weights), (number,), "T+1")
    _refuse_part_of_one_time(values, weights)
    # sum over t and s of weight(t) occupancy(t, s) value(s).
    total = jnp.sum(share[:, None] * trace * values)
    if per_transition is None and once is None:
        return total
    if per_transition is not None and transition is None:
        raise ValueError("transition is None, expected the matrices of the cycles with per_transition")
    # Moves and payments are at one time: the discount alone.
    discount = _event_discount(weights, event_weights, number)
    if once is not None:
        paid = jnp.asarray(once, float)
        check_shape("once", paid, (number, size) if paid.ndim == 2 else (size,), "[T+1] S")
        # By time: paid by all who are in the state at t; else by the cohort at the start.
        total += jnp.sum(discount[:, None] * trace * paid) if paid.ndim == 2 else discount[0] * jnp.sum(trace[0] * paid)
    if per_transition is None or transition is None:
        return total
    moves, matrices = jnp.asarray(per_transition, float), jnp.asarray(transition, float)
    check_shape("per_transition", moves, (size, size), "S S")
    if matrices.ndim == 3 and len(matrices) < number - 1:
        raise ValueError(f"transition has {len(matrices)} matrices, expected those of all {number - 1} cycles")
    # Moves of cycle t count at t + 1: sum over s, s' of occupancy(t, s) P(s' | s) value(s, s').
    gained = jnp.sum((matrices[: number - 1] if matrices.ndim == 3 else matrices) * moves, axis=-1)
    return total + jnp.sum(discount[1:, None] * trace[:-1] * gained)


def _event_discount(
    weights: ArrayLike, event_weights: ArrayLike | None, number: int
) -> Float[Array, " n_cycles_and_1"]:
    """What moves and payments at t = 0..T count.

    Raises:
        ValueError: it is not given, and the weights do not know it; a shape that does not fit.
    """
    event_weights = getattr(weights, "discount", None) if event_weights is None else event_weights
    if event_weights is None:
        raise ValueError(
            "event_weights is None, and the weights are not as `cycle_weights` made them from a number, so that their "
            "discount is not known, expected the weights [T+1] of moves and of what is paid once, such as "
            "(1 + rate) ** -np.arange(T + 1)"
        )
    discount = jnp.asarray(event_weights, float)
    check_shape("event_weights", discount, (number,), "T+1")
    return discount


def _refuse_part_of_one_time(values: Float[Array, "*n_cycles_and_1 S"], weights: ArrayLike) -> None:
    """Refuse values of one time t alone where the rule for what happens within a cycle does not count them in full.

    No course of a cost within cycles is meant by that: neither a payment nor a cost of one cycle.

    Raises:
        ValueError: names t, and what it would count for.
    """
    discount = getattr(weights, "discount", None)
    # Only concrete values tell that all but one time are zero.
    if values.ndim != 2 or discount is None or not is_concrete(values):
        return
    times = np.flatnonzero(np.asarray(values).any(-1))
    if len(times) != 1 or len(values) == 1:
        return
    t = int(times[0])
    # The share is what the rule counts, without the discount.
    share = float(np.asarray(weights)[t] / discount[t])
    if abs(share - 1.0) > 1e-9:
        raise ValueError(
            f"per_state is 0 but at t = {t}, of which these weights count {share:.3g}, expected values of all cycles, "
            "or what is paid once in `once`, which counts in full"
        )


def trace_dataset(traces: dict[str, ArrayLike], states: tuple[str, ...]) -> xr.Dataset:
    """Cohort traces by name as a labelled Dataset.

    Args:
        traces: name of a strategy -> [T+1 S].
        states: names of the states.

    Returns:
        `occupancy` with dimensions strategy, cycle (0..T), state.

    Raises:
        ValueError: no traces; traces of different shapes; other numbers of names.
        TypeError: names that are no sequence, or cannot be hashed.
    """
    check_names("states", states)
    if not traces:
        raise ValueError("traces is empty, expected at least one trace by its name")
    arrays = {name: np.asarray(trace, float) for name, trace in traces.items()}
    first = next(iter(arrays.values()))
    for name, array in arrays.items():
        check_shape(f"traces[{name!r}]", array, (len(first), len(states)), "T+1 S")
    return xr.Dataset(
        {"occupancy": (("strategy", "cycle", "state"), np.stack(list(arrays.values())))},
        {"strategy": list(arrays), "cycle": np.arange(len(first)), "state": list(states)},
    )
