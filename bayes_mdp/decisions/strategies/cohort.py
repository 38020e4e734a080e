"""Cohort models: where a cohort is after each cycle, and what that costs or is worth. To be used in NumPyro programs.

A cohort of weight one starts in `initial`; cycle t = 1..T moves it by the matrix of that cycle. What is counted is the
occupancy after t transitions, t = 0..T, each with a weight: a discount of its own for every outcome, and a rule for
what happens within a cycle. Traced: the functions may be jitted, differentiated and vmapped.

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
        >>> trace = bm.cohort_trace([[0.9, 0.1], [0.0, 1.0]], [1.0, 0.0], 2)
        >>> print(np.asarray(trace).round(3))  # alive, dead
        [[1.   0.  ]
         [0.9  0.1 ]
         [0.81 0.19]]
    """
    matrices, start = jnp.asarray(transition, float), jnp.asarray(initial, float)
    if matrices.ndim not in (2, 3):
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

    def cycle(occupancy: Array, matrix: Array) -> tuple[Array, Array]:
        after = matmul(occupancy, matrix)
        return after, after

    _, later = jax.lax.scan(cycle, start, matrices)
    return jnp.concatenate([start[None], later])


def cycle_weights(
    n_cycles: int, rate: float | Float[AnyArray, ""] = 0.0, counting: Counting = "end"
) -> Float[AnyArray, " n_cycles_and_1"]:
    """The weight of the occupancy after t = 0..T transitions: (1 + rate)^-t times the share that is counted.

    In NumPy's float64 where the rate is a number: computed outside a program it has the digits that it has inside.

    Args:
        n_cycles: T.
        rate: discount rate of a cycle, above -1.
        counting: "start" counts cycles by the occupancy at their start (t = 0..T-1), "end" at their end (1..T),
            "half-cycle" by the mean of the two (Simpson's rule is "simpson": 1/3, 4/3, 2/3, ..., 4/3, 1/3, T even).

    Raises:
        ValueError: see the arguments. TypeError: a number of cycles that is no integer.

    Example:
        >>> print(bm.cycle_weights(2, rate=0.03).round(3))  # of cycles counted at their end
        [0.    0.971 0.943]
    """
    check_count("n_cycles", n_cycles)
    check_name("counting", counting, get_args(Counting))
    known = is_concrete(rate)
    if known:
        check_number("rate", rate, lambda x: x > -1, "a number above -1")
    share = np.ones(n_cycles + 1)
    if counting == "start":
        share[-1] = 0
    elif counting == "end":
        share[0] = 0
    elif counting == "half-cycle":
        share[[0, -1]] = 0.5
    else:
        if n_cycles % 2:
            raise ValueError(f"n_cycles is {n_cycles}, expected an even number for counting='simpson'")
        share[1::2], share[2:-1:2], share[[0, -1]] = 4 / 3, 2 / 3, 1 / 3
    if known:
        return share * (1.0 + float(rate)) ** -np.arange(n_cycles + 1)
    return jnp.asarray(share) * (1.0 + jnp.asarray(rate, float)) ** -jnp.arange(n_cycles + 1)


def cohort_total(
    trace: Float[AnyArray, "n_cycles_and_1 S"],
    per_state: ArrayLike,
    weights: ArrayLike,
    *,
    per_transition: ArrayLike | None = None,
    transition: ArrayLike | None = None,
) -> Float[Array, ""]:
    """An outcome of a cohort: sum over t of weight_t (occupancy_t . per_state + moves_t . per_transition).

    It has the unit of `per_state`, a cycle's.

    Args:
        trace: occupancies, as of `cohort_trace`.
        per_state: [S] or [T+1 S], of a cycle in each state.
        weights: [T+1], of `cycle_weights` or one's own.
        per_transition: [S S], of each move, counted when it has happened (t = 1..T).
        transition: [S S] or [T S S], as in `cohort_trace`; needed with `per_transition`.

    Raises:
        ValueError: shapes that do not fit; moves without `transition`.

    Example:
        >>> trace = bm.cohort_trace([[0.9, 0.1], [0.0, 1.0]], [1.0, 0.0], 2)  # alive, dead
        >>> round(float(bm.cohort_total(trace, [1.0, 0.0], bm.cycle_weights(2))), 3)  # 0.9 + 0.81 years
        1.71
    """
    number, size = trace.shape
    values, share = jnp.asarray(per_state, float), jnp.asarray(weights, float)
    check_shape("weights", share, (number,), "T+1")
    check_shape("per_state", values, (number, size) if values.ndim == 2 else (size,), "[T+1] S")
    total = jnp.sum(share[:, None] * trace * values)
    if per_transition is None:
        return total
    if transition is None:
        raise ValueError("transition is None, expected the matrices of the cycles with per_transition")
    moves, matrices = jnp.asarray(per_transition, float), jnp.asarray(transition, float)
    check_shape("per_transition", moves, (size, size), "S S")
    if matrices.ndim == 3 and len(matrices) < number - 1:
        raise ValueError(f"transition has {len(matrices)} matrices, expected those of all {number - 1} cycles")
    gained = jnp.sum((matrices[: number - 1] if matrices.ndim == 3 else matrices) * moves, axis=-1)
    return total + jnp.sum(share[1:, None] * trace[:-1] * gained)


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
