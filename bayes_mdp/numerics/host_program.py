"""Functions of JAX that NumPy code calls with small arrays, without seconds of compilation for milliseconds of work.

`HostProgram`, for many calls, is compiled in half the time. `small_jit`, for a few, is answered by NumPy, equation by
equation of its jaxpr (`evaluate`), and compiled only where it is not small: the certificate of a prior
(`inference/detection/certify.py`) takes 0.03 to 0.06 s so, and 0.4 to 1.0 s compiled as a `HostProgram` is (measured on
a CPU).
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import eval_jaxpr
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal
from jaxtyping import PyTree

from bayes_mdp.numerics.jaxprs import Atom, array_of, equations_for, inner_jaxpr, scan_parts
from bayes_mdp.numerics.numpy_primitives import PRIMITIVES, Array, understood

QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""Compiled in half the time; what LLVM could do better does not show in programs of a few thousand numbers."""
QUICKEST = {**QUICK, "xla_cpu_use_fusion_emitters": False}
"""A third less again for long programs; one of few operations on large arrays runs for up to twice as long."""


def quick_jit(
    function: Callable[..., PyTree], *, options: Mapping[str, bool | int] | None = QUICK
) -> Callable[..., PyTree]:
    """`jax.jit(function)` compiled in half the time, for programs that run for less time than they take to compile.

    Args:
        function: traceable, of trees of arrays; called with arguments of one set of shapes after the other.
        options: of XLA's compiler: `QUICK` or `QUICKEST`; None: compiled as usual.
    """
    compiled: dict[Hashable, Any] = {}

    def call(*args: PyTree) -> PyTree:
        leaves, tree = jax.tree.flatten(args)
        # With 64 bits or without is another program; so is a Python number, which has no dtype of its own.
        kinds = tuple((np.shape(x), getattr(x, "dtype", type(x))) for x in leaves)
        key = tree, kinds, jax.dtypes.canonicalize_dtype(float)
        if key not in compiled:
            lowered = jax.jit(function).lower(*args)
            compiled[key] = _compile(lowered, options)
        return compiled[key](*args)

    return call


class HostProgram:
    """`function` of arrays, from NumPy's to NumPy's: in float64, on the CPU, compiled once for shapes of its arguments.

    Args:
        function: traceable, of trees of arrays.
        quick: compiled in half the time, to run for about twice as long; None: not at all, done by NumPy, where that is
            small (see `small_jit`).
    """

    def __init__(self, function: Callable[..., PyTree], *, quick: bool | None = True) -> None:
        self._answer = small_jit(function) if quick is None else quick_jit(function, options=QUICK if quick else None)

    def __call__(self, *args: PyTree) -> PyTree:
        """The answer for arguments of NumPy, as arrays of NumPy."""
        with jax.enable_x64(True), jax.default_device(jax.local_devices(backend="cpu")[0]):
            return jax.tree.map(np.asarray, self._answer(*args))

    def in_blocks(self, size: int, rows: PyTree, *rest: PyTree) -> PyTree:
        """The answer [N ...] for many rows, which the function maps one by one: `size` rows a call, for one program.

        Args:
            size: of a block; the last one is filled up with copies of its last row.
            rows: the first argument, arrays [N ...].
            rest: the other arguments, the same for all rows.
        """
        number = len(jax.tree.leaves(rows)[0])
        index = [np.minimum(np.arange(i, i + size), number - 1) for i in range(0, number, size)]
        blocks = [self(jax.tree.map(lambda x, i=i: x[i], rows), *rest) for i in index]
        return jax.tree.map(lambda *parts: np.concatenate(parts)[:number], *blocks)


def _compile(lowered: Any, options: Mapping[str, bool | int] | None) -> Any:
    try:
        return lowered.compile(compiler_options=None if options is None else dict(options))
    except (RuntimeError, ValueError):  # another version of XLA need not know these options
        return lowered.compile()


MOST_SECONDS = 0.03
"""Programs that NumPy takes longer for, roughly, are compiled: that takes ten times as long or more, but only once."""
SECONDS_PER_EQUATION, SECONDS_PER_NUMBER = 3e-6, 1e-9
"""What an equation costs here, roughly, and what each number does that it makes."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class _Traced(NamedTuple):
    """A function at one set of shapes: its jaxpr, the tree of its results, whether it is small, and compiled."""

    closed: ClosedJaxpr
    tree: Any
    small: bool
    compiled: Callable[..., Any]


class SmallJit(Generic[Parameters, Result]):
    """See `small_jit`."""

    def __init__(self, function: Callable[Parameters, Result], most: float) -> None:
        self._function, self._most = function, most
        self._traced: dict[Hashable, _Traced] = {}

    def __call__(self, *args: Parameters.args, **_: Parameters.kwargs) -> Result:
        leaves, tree = jax.tree.flatten(args)
        default_float = jax.dtypes.canonicalize_dtype(float)  # in another width it is another program
        key = tree, tuple((jnp.shape(x), jnp.result_type(x)) for x in leaves), default_float
        if key not in self._traced:
            self._traced[key] = self._trace(args)
        traced = self._traced[key]
        if traced.small:
            with suppress(TooLongError):
                arrays = [np.asarray(x) for x in leaves]
                return jax.tree.unflatten(traced.tree, evaluate(traced.closed, arrays, self._most))
        return jax.tree.unflatten(traced.tree, traced.compiled(traced.closed.consts, leaves))

    def _trace(self, args: tuple[PyTree, ...]) -> _Traced:
        function: Callable[..., Any] = self._function
        closed, results = jax.make_jaxpr(function, return_shape=True)(*args)
        # Arrays that the function closes over are arguments: as constants they would be folded when it is compiled, in
        # seconds for a million numbers, and kept in memory a second time.
        compiled = jax.jit(lambda consts, leaves: eval_jaxpr(closed.jaxpr, consts, *leaves))
        small = can_evaluate(closed.jaxpr) and seconds(closed.jaxpr) <= self._most
        return _Traced(closed, jax.tree.structure(results), small, compiled)


def small_jit(function: Callable[Parameters, Result], *, most: float = MOST_SECONDS) -> SmallJit[Parameters, Result]:
    """`function` of trees of arrays, by NumPy where it is small, else compiled once for shapes of its arguments.

    Small: it has no random numbers, no derivative, and takes NumPy no more than `most` seconds; how long loops go on is
    seen when they run. Results of a small program are those of the compiled one but for rounding.

    Args:
        function: traceable, of positional arguments; it returns arrays alone.
        most: seconds.
    """
    return SmallJit(function, most)


class TooLongError(RuntimeError):
    """The loops of a program go on for longer than it was meant to take."""


_LOOPS = {
    "while": {"cond_jaxpr", "cond_nconsts", "body_jaxpr", "body_nconsts"},
    "scan": {"jaxpr", "length", "reverse"},
    "cond": {"branches"},
}
"""And their parameters. How many arguments a scan carries has changed its place: see `scan_parts`."""
_DTYPES = frozenset(
    np.dtype(name) for name in ("bool", "int32", "int64", "uint8", "uint32", "uint64", "float32", "float64")
)
_NOTHING = np.zeros((), bool)
"""In the place of what is not needed."""


def can_evaluate(jaxpr: Jaxpr) -> bool:
    """Whether every equation that a program needs, and of the programs within it, can be done by NumPy."""
    if jaxpr.effects:
        return False
    if not all(_has_numbers(atom) for atom in (*jaxpr.constvars, *jaxpr.invars, *jaxpr.outvars)):
        return False
    # A handler that seeds makes a key that nothing may need: such an equation is not done.
    for equation, _ in equations_for(jaxpr, (True,) * len(jaxpr.outvars)):
        name, params = equation.primitive.name, equation.params
        within = list(_programs(equation))
        loop = name in _LOOPS and _LOOPS[name] <= set(params)
        if not (loop or inner_jaxpr(equation) is not None or understood(name, params)):
            return False
        if not all(map(_has_numbers, equation.outvars)) or not all(map(can_evaluate, within)):
            return False
    return True


def _has_numbers(atom: Atom) -> bool:
    """Whether its values are numbers that NumPy has."""
    dtype = getattr(atom.aval, "dtype", None)
    return dtype is not None and not jnp.issubdtype(dtype, jax.dtypes.extended) and np.dtype(dtype) in _DTYPES


def seconds(jaxpr: Jaxpr, wanted: tuple[bool, ...] | None = None) -> float:
    """What evaluating a program takes at least, roughly: loops of unknown length count as one turn."""
    # A rough count: each equation costs a constant and something for each number that it makes.
    total = 0.0
    for equation, used in equations_for(jaxpr, (True,) * len(jaxpr.outvars) if wanted is None else wanted):
        is_call = inner_jaxpr(equation) is not None
        within = sum(seconds(program, used if is_call else None) for program in _programs(equation))
        turns = equation.params["length"] if equation.primitive.name == "scan" else 1
        total += turns * within if within else _cost(equation)
    return total


def _programs(equation: JaxprEqn) -> Iterator[Jaxpr]:
    """The programs within an equation."""
    name, params = equation.primitive.name, equation.params
    if (inner := inner_jaxpr(equation)) is not None:
        yield inner.jaxpr
    elif name == "while":
        yield from (params[part].jaxpr for part in ("cond_jaxpr", "body_jaxpr"))
    elif name == "scan":
        yield params["jaxpr"].jaxpr
    elif name == "cond":
        yield from (branch.jaxpr for branch in params["branches"])


def _cost(equation: JaxprEqn) -> float:
    return SECONDS_PER_EQUATION + SECONDS_PER_NUMBER * sum(array_of(out).size for out in equation.outvars)


def evaluate(closed: ClosedJaxpr, arrays: Sequence[Array], most: float) -> list[Array]:
    """The results of a `can_evaluate` program.

    Args:
        closed: the program.
        arrays: its arguments.
        most: seconds that it may take, as `seconds` counts them.

    Raises:
        TooLongError: it would take longer.
    """
    with np.errstate(all="ignore"):
        # As JAX takes them: in 32 bits, unless 64 are switched on.
        taken = [x.astype(array_of(v).dtype) for x, v in zip(arrays, closed.jaxpr.invars, strict=True)]
        return _Evaluation(most).program(closed, taken)


@dataclass
class _Evaluation:
    """One evaluation, and what is left of its time in seconds."""

    left: float

    def program(self, closed: ClosedJaxpr, arrays: list[Array], needed: tuple[bool, ...] | None = None) -> list[Array]:
        """The results of a program; `_NOTHING` for those that are not wanted (None: all are)."""
        jaxpr = closed.jaxpr
        needed = (True,) * len(jaxpr.outvars) if needed is None else needed
        values = dict(zip(jaxpr.constvars, map(np.asarray, closed.consts), strict=True))
        values.update(zip(jaxpr.invars, arrays, strict=True))

        def read(atom: Atom) -> Array:
            if isinstance(atom, Literal):
                return np.asarray(atom.val, cast(Any, atom.aval).dtype)
            return values.get(atom, _NOTHING)

        for equation, used in equations_for(jaxpr, needed):
            results = self._equation(equation, [read(atom) for atom in equation.invars], used)
            values.update(zip(equation.outvars, results, strict=True))
        return [read(atom) if is_needed else _NOTHING for atom, is_needed in zip(jaxpr.outvars, needed, strict=True)]

    def _equation(self, equation: JaxprEqn, arrays: list[Array], used: tuple[bool, ...]) -> list[Array]:
        """The results of one equation, of which some are used."""
        name = equation.primitive.name
        if (inner := inner_jaxpr(equation)) is not None:
            return self.program(inner, arrays, used)
        if name in _LOOPS:
            return getattr(self, f"_{name}")(equation.params, arrays)
        self.left -= _cost(equation)
        if self.left < 0:
            raise TooLongError
        results = PRIMITIVES[name](*arrays, **equation.params)
        if not equation.primitive.multiple_results and not isinstance(results, list):
            results = [results]
        return [np.asarray(x) for x in results]

    def _while(self, params: dict[str, Any], arrays: list[Array]) -> list[Array]:
        of_condition, start = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
        carry = arrays[start:]
        while (going := self.program(params["cond_jaxpr"], arrays[:of_condition] + carry)[0]).any():
            turned = self.program(params["body_jaxpr"], arrays[of_condition:start] + carry)
            # Of a batch, what is done stays as it is.
            carry = [
                np.where(going.reshape(going.shape + (1,) * (new.ndim - going.ndim)), new, old) if going.ndim else new
                for new, old in zip(turned, carry, strict=True)
            ]
        return carry

    def _scan(self, params: dict[str, Any], arrays: list[Array]) -> list[Array]:
        consts, carry, columns = scan_parts(params, arrays)
        order = range(params["length"])
        rows: dict[int, list[Array]] = {}
        for i in reversed(order) if params["reverse"] else order:
            outputs = self.program(params["jaxpr"], [*consts, *carry, *(x[i] for x in columns)])
            carry, rows[i] = outputs[: len(carry)], outputs[len(carry) :]
        shapes = params["jaxpr"].out_avals[len(carry) :]
        if not rows:
            return [*carry, *(np.zeros((0, *shape.shape), shape.dtype) for shape in shapes)]
        return [*carry, *(np.stack([rows[i][k] for i in order]) for k in range(len(shapes)))]

    def _cond(self, params: dict[str, Any], arrays: list[Array]) -> list[Array]:
        branch = min(max(int(arrays[0]), 0), len(params["branches"]) - 1)
        return self.program(params["branches"][branch], arrays[1:])
