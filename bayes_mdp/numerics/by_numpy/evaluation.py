"""A traced program (a jaxpr) is evaluated by NumPy, step after step, so that nothing has to be compiled."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

from bayes_mdp.numerics.by_numpy.arrays import Array
from bayes_mdp.numerics.by_numpy.primitives import PRIMITIVES, understood

SECONDS_A_STEP, SECONDS_A_NUMBER = 3e-6, 1e-9
"""What a step of a program costs here, roughly, and what each number does that it makes."""

_CALLS = ("jit", "pjit", "closed_call", "core_call", "remat2", "checkpoint", "custom_jvp_call", "custom_vjp_call")
_LOOPS = {
    "while": {"cond_jaxpr", "cond_nconsts", "body_jaxpr", "body_nconsts"},
    "scan": {"jaxpr", "length", "reverse"},
    "cond": {"branches"},
}
"""And their parameters. How many arguments a scan carries has changed its place: see `_parts_of_scan`."""
_DTYPES = frozenset(
    np.dtype(name) for name in ("bool", "int32", "int64", "uint8", "uint32", "uint64", "float32", "float64")
)

_NOTHING = np.zeros((), bool)
"""In the place of what is not needed."""


class TooLongError(RuntimeError):
    """The loops of a program go on for longer than it was meant to take."""


def supported(jaxpr: Jaxpr) -> bool:
    """Whether every step that a program needs, and of the programs within it, can be done by NumPy."""
    if jaxpr.effects:
        return False
    if not all(_has_numbers(atom.aval) for atom in (*jaxpr.constvars, *jaxpr.invars, *jaxpr.outvars)):
        return False
    # A handler that seeds makes a key that nothing may need: such a step is not done.
    for step, _ in _needed(jaxpr, (True,) * len(jaxpr.outvars)):
        name = step.primitive.name
        loop_or_call = name in _CALLS or (name in _LOOPS and _LOOPS[name] <= set(step.params))
        if not loop_or_call and not understood(name, step.params):
            return False
        if not all(_has_numbers(out.aval) for out in step.outvars):
            return False
        if not all(supported(within) for within in _programs(step)):
            return False
    return True


def seconds(jaxpr: Jaxpr, wanted: tuple[bool, ...] | None = None) -> float:
    """What evaluating a program takes at least, roughly: loops of unknown length count as one turn."""
    total = 0.0
    for step, used in _needed(jaxpr, (True,) * len(jaxpr.outvars) if wanted is None else wanted):
        called = step.primitive.name in _CALLS
        within = sum(seconds(program, used if called else None) for program in _programs(step))
        turns = step.params["length"] if step.primitive.name == "scan" else 1
        total += turns * within if within else _cost(step)
    return total


def evaluate(closed: ClosedJaxpr, arrays: Sequence[Array], most: float) -> list[Array]:
    """The results of a `supported` program.

    Args:
        closed: the program.
        arrays: its arguments.
        most: seconds that it may take, as `seconds` counts them.

    Raises:
        TooLongError: it would take longer.
    """
    with np.errstate(all="ignore"):
        avals: Any = closed.in_avals
        # As JAX takes them: in 32 bits, unless 64 are switched on.
        taken = [x.astype(aval.dtype) for x, aval in zip(arrays, avals, strict=True)]
        return _Run(most).program(closed, taken)


class _Run:
    """One evaluation: what is left of its time."""

    def __init__(self, most: float) -> None:
        self.left = most

    def program(self, closed: ClosedJaxpr, arrays: list[Array], wanted: Sequence[bool] | None = None) -> list[Array]:
        """The results of a program; zero for those that are not wanted (None: all are)."""
        values = dict(zip(closed.jaxpr.constvars, map(np.asarray, closed.consts), strict=True))
        values.update(zip(closed.jaxpr.invars, arrays, strict=True))

        def read(atom: Var | Literal) -> Array:
            aval: Any = atom.aval
            return np.asarray(atom.val, aval.dtype) if isinstance(atom, Literal) else values.get(atom, _NOTHING)

        wanted = (True,) * len(closed.jaxpr.outvars) if wanted is None else tuple(wanted)
        for step, used in _needed(closed.jaxpr, wanted):
            found = self.step(step, [read(atom) for atom in step.invars], used)
            values.update(zip(step.outvars, found, strict=True))
        return [read(atom) if asked else _NOTHING for atom, asked in zip(closed.jaxpr.outvars, wanted, strict=True)]

    def step(self, step: JaxprEqn, arrays: list[Array], used: Sequence[bool]) -> list[Array]:
        """The results of one step, of which some are used."""
        name = step.primitive.name
        if name in _CALLS:
            return self.program(_called(step), arrays, used)
        if name in _LOOPS:
            return getattr(self, f"_{name}")(step.params, arrays)
        self.left -= _cost(step)
        if self.left < 0:
            raise TooLongError
        found = PRIMITIVES[name](*arrays, **step.params)
        found = found if step.primitive.multiple_results or isinstance(found, list) else [found]
        return [np.asarray(x) for x in found]

    def _while(self, params: dict[str, Any], arrays: list[Array]) -> list[Array]:
        asked, turned = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
        carry = arrays[turned:]
        while (going := self.program(params["cond_jaxpr"], arrays[:asked] + carry)[0]).any():
            turned_once = self.program(params["body_jaxpr"], arrays[asked:turned] + carry)
            # Of a batch, what is done stays as it is.
            carry = [
                np.where(going.reshape(going.shape + (1,) * (new.ndim - going.ndim)), new, old) if going.ndim else new
                for new, old in zip(turned_once, carry, strict=True)
            ]
        return carry

    def _scan(self, params: dict[str, Any], arrays: list[Array]) -> list[Array]:
        first, last = _parts_of_scan(params)
        carry, along = arrays[first:last], arrays[last:]
        order = range(params["length"])
        rows: dict[int, list[Array]] = {}
        for i in reversed(order) if params["reverse"] else order:
            found = self.program(params["jaxpr"], [*arrays[:first], *carry, *(x[i] for x in along)])
            carry, rows[i] = found[: len(carry)], found[len(carry) :]
        outs = params["jaxpr"].out_avals[len(carry) :]
        if not rows:
            return [*carry, *(np.zeros((0, *out.shape), out.dtype) for out in outs)]
        return [*carry, *(np.stack([rows[i][k] for i in order]) for k in range(len(outs)))]

    def _cond(self, params: dict[str, Any], arrays: list[Array]) -> list[Array]:
        which = min(max(int(arrays[0]), 0), len(params["branches"]) - 1)
        return self.program(params["branches"][which], arrays[1:])


@lru_cache(maxsize=1024)
def _needed(jaxpr: Jaxpr, wanted: tuple[bool, ...]) -> list[tuple[JaxprEqn, tuple[bool, ...]]]:
    """The steps that the wanted results need, in their order, and which of their own results are used."""
    used = {atom for atom, asked in zip(jaxpr.outvars, wanted, strict=True) if asked and not isinstance(atom, Literal)}
    found = []
    for step in reversed(jaxpr.eqns):
        asked = tuple(out in used for out in step.outvars)
        if any(asked):
            found.append((step, asked))
            used.update(atom for atom in step.invars if not isinstance(atom, Literal))
    return found[::-1]


def _parts_of_scan(params: dict[str, Any]) -> tuple[int, int]:
    """Where the carry of a scan begins and ends among its arguments."""
    if "num_carry" in params:
        return params["num_consts"], params["num_consts"] + params["num_carry"]
    constants, carry, _ = params["ft_in"].unpack()  # jax 0.12
    return len(constants.vals), len(constants.vals) + len(carry.vals)


def _called(step: JaxprEqn) -> ClosedJaxpr:
    found = step.params["jaxpr"] if "jaxpr" in step.params else step.params["call_jaxpr"]
    return found if isinstance(found, ClosedJaxpr) else ClosedJaxpr(found, ())


def _programs(step: JaxprEqn) -> Iterator[Jaxpr]:
    """The programs within a step."""
    if step.primitive.name in _CALLS:
        yield _called(step).jaxpr
    for name in ("cond_jaxpr", "body_jaxpr") if step.primitive.name == "while" else ():
        yield step.params[name].jaxpr
    if step.primitive.name == "scan":
        yield step.params["jaxpr"].jaxpr
    if step.primitive.name == "cond":
        yield from (branch.jaxpr for branch in step.params["branches"])


def _cost(step: JaxprEqn) -> float:
    outs: Any = step.outvars
    return SECONDS_A_STEP + SECONDS_A_NUMBER * sum(out.aval.size for out in outs)


def _has_numbers(aval: Any) -> bool:
    """Whether its values are numbers that NumPy has."""
    if not hasattr(aval, "dtype") or jnp.issubdtype(aval.dtype, jax.dtypes.extended):
        return False
    return np.dtype(aval.dtype) in _DTYPES
