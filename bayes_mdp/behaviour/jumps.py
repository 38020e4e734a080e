"""Parameters in which a likelihood of choices jumps, read from the data flow of a model (its jaxprs).

A parameter flows from `init`, `update` and `policy` to the log-probabilities. On the way a comparison, an argmax or a
rounding turns it into a whole number or a truth value, which is constant between the surfaces where it switches. What
such a value selects, indexes or multiplies jumps there, unless both sides agree, as in max(x, y) written as
`where(x > y, x, y)`. Gradients do not see jumps, so samplers that follow gradients must not be used.

Not refused means continuous by the data flow, with these exceptions, which are taken on trust: operations with an own
derivative (`jax.custom_jvp`, `custom_vjp`, linear solves) are as smooth as their rule says, a pole (1 / x at 0) is
never met, and no value is infinite or no number where a guard (`isfinite`, `x > -inf`, `x == 0`) looks. A selection by
a comparison is continuous if its two sides agree at points of its surface, found by bisection between random values of
all that it is made of. This is a check at points, not a proof; what cannot be checked counts as a jump. So do a mask
as a factor, `(x > 0) * x`, an equality of two arrays, and a loop whose number of turns depends on the parameter: what
is refused may well be continuous.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jaxtyping import Array
from scipy import special

from bayes_mdp.behaviour.behaviour_model import BehaviourModel
from bayes_mdp.inference.detection.equations import scan_parts
from bayes_mdp.mdp import Transitions

Item: TypeAlias = tuple[str, bool, int]
"""A parameter; whether it came through `stop_gradient`; of a jump: the predicate of its selection, or -1."""
Items: TypeAlias = frozenset[Item]
NONE: Items = frozenset()


class Flow(NamedTuple):
    """What is known of one array.

    Args:
        term: number of the expression that made it; equal numbers are equal arrays.
        smooth: parameters of which it is a continuous function.
        switch: parameters on which it depends as a whole number or a truth value.
        jump: parameters in which it jumps.
    """

    term: int
    smooth: Items = NONE
    switch: Items = NONE
    jump: Items = NONE

    @property
    def every(self) -> Items:
        """All on which it depends."""
        return self.smooth | self.switch | self.jump


def jumping_parameters(model: BehaviourModel, *, ends: bool = False) -> dict[str, str]:
    """Name of each parameter in which log-probabilities may jump -> the operation that makes them, in words.

    Args:
        model: checked (`check_model`).
        ends: whether records have `terminated`.
    """
    number = jax.ShapeDtypeStruct((), jnp.zeros(()).dtype)
    whole = jax.ShapeDtypeStruct((), jnp.int32)
    params = dict.fromkeys(model.parameters, number)
    names = jax.tree.leaves({name: name for name in params})
    reader = _Reader()
    given = [Flow(reader.atom(), frozenset({(name, False, -1)})) for name in names]

    def updated(params: Any, state: Any, record: tuple[Array, ...]) -> Any:
        return model.update(params, state, Transitions(*record))

    record = (whole, whole, number, whole, *([jax.ShapeDtypeStruct((), bool)] if ends else []))
    first, shape = jax.make_jaxpr(lambda p: jax.tree.map(jnp.asarray, model.init(p)), return_shape=True)(params)
    again = jax.make_jaxpr(updated)(params, shape, record)
    chosen = jax.make_jaxpr(model.policy)(params, shape, whole)
    data = [Flow(reader.atom()) for _ in record]
    # What the state depends on after any number of records: grows until nothing is added.
    state = [reader.renamed(x) for x in reader.read(first, given)]
    state = reader.settled(state, lambda now: reader.read(again, [*given, *now, *data]))
    found = reader.read(chosen, [*given, *state, data[0]])
    bad = {who for x in found for who, *_ in x.jump | x.switch}
    return {name: reader.why.get(name, "a comparison") for name in names if name in bad}


def refuse_jumps(model: BehaviourModel, *, ends: bool = False) -> None:
    """Refuse a model whose likelihood may jump in a parameter, for a sampler that follows gradients.

    Args:
        model, ends: as for `jumping_parameters`.

    Raises:
        ValueError: names the first such parameter, what makes it jump, and what to use instead.
    """
    for name, what in jumping_parameters(model, ends=ends).items():
        raise ValueError(
            f"model may jump in its parameter {name!r} ({what} of what depends on it decides probabilities), which "
            "gradients do not see, expected one that is continuous in it (BoltzmannQ in place of EpsilonGreedyQ), a "
            "known value in its place, or a kernel without gradients, as in NUTS(kernel=numpyro.infer.SA)"
        )


_WORDS = {
    "argmax": "an argmax", "argmin": "an argmin", "sort": "a sort", "top_k": "a sort", "floor": "a rounding",
    "ceil": "a rounding", "round": "a rounding", "sign": "a sign", "convert_element_type": "a conversion to integers",
}  # fmt: skip
_STEPS = ("floor", "ceil", "round", "sign", "rem")
_COMPARISONS: dict[str, Callable[..., Any]] = {
    "gt": np.greater, "ge": np.greater_equal, "lt": np.less, "le": np.less_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    **_COMPARISONS, "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative,
    "max": np.maximum, "min": np.minimum, "abs": np.abs, "exp": np.exp, "log": np.log, "log1p": np.log1p,
    "expm1": np.expm1, "sqrt": np.sqrt, "tanh": np.tanh, "logistic": special.expit, "square": np.square,
    "pow": np.power, "erf": special.erf, "erfc": special.erfc, "sin": np.sin, "cos": np.cos, "and": np.logical_and,
    "or": np.logical_or, "not": np.logical_not, "is_finite": np.isfinite, "sign": np.sign, "floor": np.floor,
    "stop_gradient": lambda x: x, "copy": lambda x: x, "rsqrt": lambda x: 1 / np.sqrt(x),
}  # fmt: skip
_KEEP_SIGN = (
    "add", "mul", "div", "max", "min", "reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "cumsum", "sqrt",
    "square", "stop_gradient", "broadcast_in_dim", "reshape", "squeeze", "transpose", "copy", "abs",
)  # fmt: skip
_POINTS = 64
_EARLY, _HALVINGS = 20, 1100  # a bisection towards 0 ends at the least positive number


class _Reader:
    """Reads jaxprs; numbers expressions, so that equal ones are known to be equal."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._made_of: list[tuple[str, Any, tuple[int, ...], str]] = []
        self._jumps: dict[int, Items] = {}
        self.why: dict[str, str] = {}

    def atom(self, kind: str = "f") -> int:
        """A new expression of which nothing is known."""
        self._made_of.append(("atom", None, (), kind))
        return len(self._made_of) - 1

    def term(self, name: str, params: Any, children: tuple[int, ...], kind: str) -> int:
        """The number of an expression."""
        key = (name, str(params), children)
        if key not in self._numbers:
            self._made_of.append((name, params, children, kind))
            self._numbers[key] = len(self._made_of) - 1
        return self._numbers[key]

    def renamed(self, flow: Flow) -> Flow:
        """The same with an unknown expression: what made it, and what made it jump, is out of sight."""
        term = self.atom(self._made_of[flow.term][3])
        smooth, switch, jump = (frozenset((who, stopped, -1) for who, stopped, _ in items) for items in flow[1:])
        self._jumps[term] = jump
        return Flow(term, smooth, switch, jump)

    def settled(self, state: list[Flow], turn: Callable[[list[Flow]], Sequence[Flow]]) -> list[Flow]:
        """What is carried by a loop, after any number of turns."""
        while True:
            new = [self.renamed(_joined(old, after)) for old, after in zip(state, turn(state), strict=True)]
            if all(one[1:] == two[1:] for one, two in zip(new, state, strict=True)):
                return state
            state = new

    def read(self, closed: ClosedJaxpr, inputs: Sequence[Flow]) -> list[Flow]:
        """The results of a program."""
        consts = [Flow(self._constant(x)) for x in closed.consts]
        return self._run(closed.jaxpr, [*consts, *inputs])

    def _constant(self, value: Any) -> int:
        array = value if isinstance(value, np.ndarray | float | int | bool) else None
        if array is None and isinstance(value, jax.Array) and not jnp.issubdtype(value.dtype, jax.dtypes.extended):
            array = np.asarray(value)
        if array is not None and np.ndim(array) == 0:
            return self.term("literal", float(array), (), _kind(np.asarray(array).dtype))
        return self.atom(_kind(getattr(value, "dtype", np.dtype(float))))

    def _run(self, jaxpr: Jaxpr, inputs: Sequence[Flow]) -> list[Flow]:
        known: dict[Any, Flow] = dict(zip((*jaxpr.constvars, *jaxpr.invars), inputs, strict=True))
        look = lambda v: Flow(self._constant(v.val)) if isinstance(v, Literal) else known[v]  # noqa: E731
        for eqn in jaxpr.eqns:
            known.update(zip(eqn.outvars, self._equation(eqn, [look(v) for v in eqn.invars]), strict=True))
        return [look(v) for v in jaxpr.outvars]

    def _equation(self, eqn: Any, inputs: list[Flow]) -> list[Flow]:
        name, params = eqn.primitive.name, eqn.params
        kinds = [_kind(v.aval.dtype) for v in eqn.outvars]
        if name.startswith(("custom_jvp", "custom_vjp")):
            return self._own_derivative(inputs, kinds)
        if name == "custom_linear_solve":
            # The solution depends on the operator and the right side, whatever the solvers do.
            lengths = params["const_lengths"]
            return self._own_derivative([*inputs[: lengths.matvec], *inputs[sum(lengths) :]], kinds)
        if name == "scan":
            return self._scan(params, inputs, kinds)
        if name == "while":
            return self._while(params, inputs, kinds)
        if name == "cond":
            branches = [self.read(branch, inputs[1:]) for branch in params["branches"]]
            outs = [self.renamed(_joined(*each)) for each in zip(*branches, strict=True)]
            return [self._switched(inputs[0].switch, x, kind) for x, kind in zip(outs, kinds, strict=True)]
        inner = [x for x in params.values() if isinstance(x, ClosedJaxpr | Jaxpr)]
        inner = [] if name.startswith("scatter") else [x if isinstance(x, Jaxpr) else x.jaxpr for x in inner]
        consts = [Flow(self._constant(c)) for x in params.values() if isinstance(x, ClosedJaxpr) for c in x.consts]
        if len(inner) == 1 and len(inner[0].invars) == len(inputs):
            return self._run(inner[0], [*consts, *inputs])
        if inner and any(x.every for x in inputs):
            # A call of unknown kind (a reduction by an own function, say): everything may jump.
            bad = frozenset().union(*(x.every for x in inputs))
            return [self._switched(bad, Flow(self.atom(kind)), kind) for kind in kinds]
        return self._primitive(name, params, inputs, kinds)

    def _primitive(self, name: str, params: Any, inputs: list[Flow], kinds: list[str]) -> list[Flow]:
        smooth, switch, jump = _unions(inputs)
        terms = tuple(x.term for x in inputs)
        plain = {k: v for k, v in params.items() if k not in ("sharding", "out_sharding")}
        made = [self.term(name if i == 0 else f"{name} {i}", plain, terms, kind) for i, kind in enumerate(kinds)]
        literal = self._made_of[terms[0]][0] == "literal" if len(inputs) else False
        if name in ("broadcast_in_dim", "copy") and literal:
            made = [terms[0]]
        if name == "convert_element_type" and kinds[0] == _kind_of(self._made_of[terms[0]]):
            made = [terms[0]]
        if name == "stop_gradient":
            stop = lambda items: frozenset((who, True, origin) for who, _, origin in items)  # noqa: E731
            return [Flow(made[0], stop(smooth), stop(switch), stop(jump))]
        if name == "select_n":
            cases = frozenset().union(*(x.smooth for x in inputs[1:]))
            of_cases = Flow(made[0], cases, frozenset().union(*(x.switch for x in inputs[1:])), jump)
            if kinds[0] == "f" and inputs[0].switch and self._continuous(made[0]):
                # What a guard inside made jump by the same predicate, where(x > 0, log(where(x > 0, x, 1)), -inf), is
                # gone too, unless it came by another way than element by element.
                kept = frozenset(x for x in jump if x[2] != terms[0]) | self._jumps_below(made[0])
                return [of_cases._replace(smooth=cases | inputs[0].switch, jump=kept)]
            by = frozenset((who, stopped, terms[0]) for who, stopped, _ in inputs[0].switch)
            return [self._switched(by, of_cases, kinds[0])]
        outs = []
        for term, kind in zip(made, kinds, strict=True):
            if kind == "f":
                self._jumps[term] = jump | switch
                step = smooth if name in _STEPS or (name == "sort" and len(inputs) > 1) else NONE
                step = NONE if name == "sign" and self._positive(terms[0]) else step
                self._note(step, name)
                outs.append(Flow(term, smooth, NONE, jump | switch | step))
            else:
                fresh = NONE if self._harmless(name, inputs) else smooth | jump
                self._note(fresh, name)
                outs.append(Flow(term, NONE, switch | fresh))
        return outs

    def _note(self, items: Items, name: str) -> None:
        for who, *_ in items:
            self.why.setdefault(who, _WORDS.get(name, "a comparison"))

    def _harmless(self, name: str, inputs: list[Flow]) -> bool:
        """Whether a truth value is the same wherever everything is finite."""
        if name == "is_finite":
            return True
        if name not in _COMPARISONS or len(inputs) != 2:
            return False
        one, two = (self._made_of[x.term] for x in inputs)
        same = inputs[0].term == inputs[1].term
        # exp(x) < 0: never.
        of_zero = [x for x, y in ((inputs[0], two), (inputs[1], one)) if y[0] == "literal" and y[1] == 0]
        if any(self._positive(x.term) for x in of_zero):
            return True
        return same or any(x[0] == "literal" and not np.isfinite(x[1]) for x in (one, two))

    def _switched(self, switch: Items, flow: Flow, kind: str) -> Flow:
        """`flow`, which besides is one of several by a value that switches."""
        if kind == "f":
            return flow._replace(smooth=flow.smooth, jump=flow.jump | switch | flow.switch, switch=NONE)
        return Flow(flow.term, NONE, flow.every | switch)

    def _own_derivative(self, inputs: list[Flow], kinds: list[str]) -> list[Flow]:
        """A rule of derivatives is taken at its word: it covers what was stopped on its way in."""
        live = lambda items: frozenset((who, False, -1) for who, stopped, _ in items if not stopped)  # noqa: E731
        every = frozenset((who, False, -1) for x in inputs for who, *_ in x.every)
        jump = frozenset().union(*(live(x.jump | x.switch) for x in inputs))
        return [
            Flow(self.atom(), every, NONE, jump) if kind == "f" else Flow(self.atom("i"), NONE, every) for kind in kinds
        ]

    def _scan(self, params: Any, inputs: list[Flow], kinds: list[str]) -> list[Flow]:
        fixed, carry, columns = scan_parts(params, inputs)
        carry, columns = [self.renamed(x) for x in carry], [self.renamed(x) for x in columns]
        body = lambda now: self.read(params["jaxpr"], [*fixed, *now, *columns])  # noqa: E731
        state = self.settled(carry, lambda now: body(now)[: len(carry)])
        return [*(self.renamed(x) for x in state), *(self.renamed(x) for x in body(state)[len(carry) :])]

    def _while(self, params: Any, inputs: list[Flow], kinds: list[str]) -> list[Flow]:
        ahead, body = params["cond_nconsts"], params["body_nconsts"]
        of_cond, of_body = inputs[:ahead], inputs[ahead : ahead + body]
        state = [self.renamed(x) for x in inputs[ahead + body :]]
        state = self.settled(state, lambda now: self.read(params["body_jaxpr"], [*of_body, *now]))
        # How often it turns.
        switch = self.read(params["cond_jaxpr"], [*of_cond, *state])[0].switch
        return [self._switched(switch, self.renamed(x), kind) for x, kind in zip(state, kinds, strict=True)]

    def _continuous(self, term: int) -> bool:
        """Whether a selection has the same value on both sides of the surfaces of its predicate."""
        predicate = self._made_of[term][2][0]
        atoms: dict[int, str] = {}
        self._collect(term, atoms, set())
        rng = np.random.default_rng(0)
        one, two = ({a: _sample(rng, kind) for a, kind in atoms.items()} for _ in range(2))
        # What is whole or true or false stays the same on the way from one point to the other.
        two = {a: x if atoms[a] == "f" else one[a] for a, x in two.items()}
        with np.errstate(all="ignore"):
            sides = [np.broadcast_to(self._value(predicate, at, {}), _POINTS).astype(bool) for at in (one, two)]
            crossing = sides[0] != sides[1]
            if not crossing.any():
                return self._exact(predicate)
            low, high = ({a: x[crossing] for a, x in at.items()} for at in (one, two))
            side = sides[0][crossing]
            before = [np.broadcast_to(self._value(term, at, {}), side.shape) for at in (low, high)]
            for halving in range(_HALVINGS):
                if halving == _EARLY:
                    before = [np.broadcast_to(self._value(term, at, {}), side.shape) for at in (low, high)]
                middle = {a: low[a] + 0.5 * (high[a] - low[a]) if atoms[a] == "f" else low[a] for a in low}
                if all(np.all((middle[a] == low[a]) | (middle[a] == high[a])) for a in low):
                    break  # neighbours
                same = np.broadcast_to(self._value(predicate, middle, {}), side.shape).astype(bool) == side
                low = {a: np.where(same, middle[a], low[a]) for a in low}
                high = {a: np.where(same, high[a], middle[a]) for a in high}
            left, right = (np.broadcast_to(self._value(term, at, {}), side.shape) for at in (low, high))
            near = np.abs(left - right) <= 1e-6 * (1.0 + np.abs(left))
            # One side is -inf, the other on its way there, as log(x) beside where(x > 0, log(x), -inf).
            down = lambda x, was, other: np.isneginf(other) & (x < np.minimum(was - 5.0, -15.0))  # noqa: E731
            down = down(left, before[0], right) | down(right, before[1], left)
            return bool(np.all(near | down | (left == right)))

    def _jumps_below(self, term: int) -> Items:
        """The jumps of the parts of an expression that are not made element by element."""
        atoms: dict[int, str] = {}
        self._collect(term, atoms, set())
        return frozenset().union(*(self._jumps.get(atom, NONE) for atom in atoms))

    def _exact(self, predicate: int) -> bool:
        """Whether a truth value is a guard, or an equality with a constant, which holds at single points."""
        name, _, children, _ = self._made_of[predicate]
        if name in ("and", "or", "not"):
            return all(self._exact(child) for child in children)
        if name == "is_finite":
            return True
        return name in ("eq", "ne") and any(self._made_of[child][0] == "literal" for child in children)

    def _positive(self, term: int) -> bool:
        """Whether an expression is above 0 by its form."""
        name, params, children, _ = self._made_of[term]
        if name == "literal":
            return bool(params > 0)
        if name in ("exp", "logistic", "erfc"):
            return True
        return name in _KEEP_SIGN and bool(children) and all(self._positive(child) for child in children)

    def _collect(self, term: int, atoms: dict[int, str], seen: set[int]) -> None:
        """The parts of an expression that are not made element by element."""
        if term in seen:
            return
        seen.add(term)
        name, params, children, kind = self._made_of[term]
        if name == "literal":
            return
        if _function(name, params) is None:
            atoms[term] = kind
            return
        for child in children:
            self._collect(child, atoms, seen)

    def _value(self, term: int, at: dict[int, np.ndarray], memo: dict[int, Any]) -> Any:
        """An expression at points."""
        if term in at:
            return at[term]
        if term not in memo:
            name, params, children, _ = self._made_of[term]
            if name == "literal":
                memo[term] = params
            else:
                function = _function(name, params)
                assert function is not None
                memo[term] = function(*(self._value(child, at, memo) for child in children))
        return memo[term]


def _function(name: str, params: Any) -> Callable[..., Any] | None:
    """What an operation does with each element; None: it is not element by element."""
    if name == "select_n":
        return _selected
    if name == "integer_pow":
        return lambda x: np.asarray(x, float) ** params["y"]
    if name == "convert_element_type":
        return lambda x: x if np.issubdtype(params["new_dtype"], np.floating) else np.trunc(x)
    return _ELEMENTWISE.get(name)


def _selected(which: Any, *cases: Any) -> Any:
    index = np.clip(np.nan_to_num(which).astype(int), 0, len(cases) - 1)
    return np.select([index == i for i in range(len(cases))], cases)


def _unions(flows: Sequence[Flow]) -> tuple[Items, Items, Items]:
    """What several arrays depend on: smoothly, as a switch, with a jump."""
    parts = ([x.smooth for x in flows], [x.switch for x in flows], [x.jump for x in flows])
    smooth, switch, jump = (frozenset().union(*each) for each in parts)
    return smooth, switch, jump


def _joined(*flows: Flow) -> Flow:
    return Flow(flows[0].term, *_unions(flows))


def _kind(dtype: Any) -> str:
    """Of real numbers (f), truth values (b), or whole numbers and keys (i)."""
    if jnp.issubdtype(dtype, jnp.inexact):
        return "f"
    return "b" if jnp.issubdtype(dtype, jnp.bool_) else "i"


def _kind_of(made: tuple[str, Any, tuple[int, ...], str]) -> str:
    return made[3]


def _sample(rng: np.random.Generator, kind: str) -> np.ndarray:
    if kind == "b":
        return rng.random(_POINTS) < 0.5
    if kind == "i":
        return rng.integers(0, 3, _POINTS)
    return rng.normal(size=_POINTS) * rng.choice([0.1, 1.0, 10.0], _POINTS)
