"""Parameters in which a likelihood of choices jumps, read from the data flow of a model (its jaxprs).

A parameter flows from `init`, `update` and `policy` to the log-probabilities. On the way a comparison, an argmax or a
rounding turns it into a whole number or a truth value, which is constant between the surfaces where it switches. What
such a value selects, indexes or multiplies jumps there, unless both sides agree, as in max(x, y) written as
`where(x > y, x, y)`. Gradients do not see jumps, so samplers that follow gradients must not be used.

Not refused means continuous by the data flow, with these exceptions, which are taken on trust: operations with an own
derivative (`jax.custom_jvp`, `custom_vjp`, linear solves) are as smooth as their rule says, values are finite and a
pole (1 / x at 0) is never met but where one stands beside a selection that switches there, and no value is infinite or
no number where a guard (`isfinite`, `x > -inf`, `x == 0`) looks. What a comparison of c and d selects jumps nowhere if
the expression is the same for both outcomes once c = d is put into it: `where(x > y, x, y)`, `where(e >= 0, up, down) *
e`, `(x > 0) * x`, `sign(e) * e`. That is a proof, by substitution and the rules of `_put`; no numbers are tried. What
is not proven counts as a jump, and what is refused may well be continuous.
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
from bayes_mdp.mdp import Transitions
from bayes_mdp.numerics.jaxprs import scan_parts

Item: TypeAlias = tuple[str, bool, int]
"""A parameter; whether it came through `stop_gradient`; of a jump: the expression that switches, or -1 (not known)."""
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
    parameter_flows = [Flow(reader.atom(), frozenset({(name, False, -1)})) for name in names]

    def update_from_record(params: Any, state: Any, record: tuple[Array, ...]) -> Any:
        return model.update(params, state, Transitions(*record))

    # One record: state, action, reward, next state, and perhaps whether it ended.
    record = (whole, whole, number, whole, *([jax.ShapeDtypeStruct((), bool)] if ends else []))
    # Three data flows: parameters to the first state; state and record to the next state; state to log-probabilities.
    init_jaxpr, shape = jax.make_jaxpr(lambda p: jax.tree.map(jnp.asarray, model.init(p)), return_shape=True)(params)
    update_jaxpr = jax.make_jaxpr(update_from_record)(params, shape, record)
    policy_jaxpr = jax.make_jaxpr(model.policy)(params, shape, whole)
    data = [Flow(reader.atom()) for _ in record]
    # What the state depends on after any number of records: grows until nothing is added.
    state = [reader.rename(x) for x in reader.read(init_jaxpr, parameter_flows)]
    state = reader.iterate_until_stable(state, lambda now: reader.read(update_jaxpr, [*parameter_flows, *now, *data]))
    log_probs = reader.read(policy_jaxpr, [*parameter_flows, *state, data[0]])
    # Log-probabilities may jump in these, or be whole numbers made of them.
    bad = {who for x in log_probs for who, *_ in x.jump | x.switch}
    return {name: reader.why.get(name, "a comparison") for name in names if name in bad}


def refuse_jumps(model: BehaviourModel, *, ends: bool = False) -> None:
    """Refuse a model whose likelihood may jump in a parameter, for a sampler that follows gradients.

    Args:
        model, ends: as for `jumping_parameters`.

    Raises:
        ValueError: names the first such parameter, what makes it jump, and what to use instead.
    """
    for name, operation in jumping_parameters(model, ends=ends).items():
        raise ValueError(
            f"model may jump in its parameter {name!r} ({operation} of what depends on it decides probabilities), "
            "which gradients do not see, expected one that is continuous in it (BoltzmannQ in place of EpsilonGreedyQ; "
            "two rates of an error e as up * jnp.maximum(e, 0) + down * jnp.minimum(e, 0)), a known value "
            "in its place, or a kernel without gradients, as in NUTS(kernel=numpyro.infer.SA)"
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
    "stop_gradient": lambda x: x, "copy": lambda x: x, "spread": lambda x: x, "rsqrt": lambda x: 1 / np.sqrt(x),
}  # fmt: skip
_SAME = ("stop_gradient", "copy", "spread")
_SPREADS = ("broadcast_in_dim", "reshape", "squeeze", "expand_dims")
_ZERO_AT_ZERO = ("neg", "abs", "square", "sqrt", "tanh", "expm1", "log1p", "erf", *_SAME)
"""Functions of one number that are 0 at 0 alone."""
_FLAT = ("max", "min", "select_n", "floor", "sign", "convert_element_type")
"""Functions that may be constant where their arguments are not: an equality with a constant may hold for long."""
_COMMUTE = ("add", "mul", "max", "min")
_KEEP_SIGN = (
    "add", "mul", "div", "max", "min", "reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "cumsum", "sqrt",
    "square", "stop_gradient", "broadcast_in_dim", "reshape", "squeeze", "transpose", "copy", "abs", "spread",
)  # fmt: skip
_POINTS = 64
_ROUNDING = 1e-6  # of constants, in float32


class _Reader:
    """Reads jaxprs; numbers expressions, so that equal ones are known to be equal."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._made_of: list[tuple[str, Any, tuple[int, ...], str]] = []
        self._jumps: dict[int, Items] = {}
        self._switches: dict[int, Items] = {}
        self._flips: dict[int, frozenset[int]] = {}
        self._put_in: dict[tuple[int, int, int], dict[int, int]] = {}
        self._known_surfaces: dict[int, list[dict[int, int]] | None] = {}
        self.why: dict[str, str] = {}

    def atom(self, kind: str = "f") -> int:
        """A new expression of which nothing is known."""
        self._made_of.append(("atom", None, (), kind))
        return len(self._made_of) - 1

    def term(self, name: str, params: Any, children: tuple[int, ...], kind: str) -> int:
        """The number of an expression."""
        # An expression is known by its operation, its options and its parts.
        key = (name, str(params), children)
        if key not in self._numbers:
            self._made_of.append((name, params, children, kind))
            self._numbers[key] = len(self._made_of) - 1
        return self._numbers[key]

    def rename(self, flow: Flow) -> Flow:
        """The same with an unknown expression: what made it, and what made it jump, is out of sight."""
        term = self.atom(self._made_of[flow.term][3])
        smooth, switch, jump = (frozenset((who, stopped, -1) for who, stopped, _ in items) for items in flow[1:])
        self._jumps[term] = jump
        return Flow(term, smooth, switch, jump)

    def iterate_until_stable(self, state: list[Flow], turn: Callable[[list[Flow]], Sequence[Flow]]) -> list[Flow]:
        """What is carried by a loop, after any number of turns."""
        # Sets of parameters only grow from turn to turn, and are finite: it ends.
        while True:
            pairs = zip(state, turn(state), strict=True)
            new = [self.rename(Flow(old.term, *_unions((old, after)))) for old, after in pairs]
            if all(new_flow[1:] == old_flow[1:] for new_flow, old_flow in zip(new, state, strict=True)):
                return state
            state = new

    def read(self, closed: ClosedJaxpr, inputs: Sequence[Flow]) -> list[Flow]:
        """The results of a program."""
        consts = [Flow(self._constant(x)) for x in closed.consts]
        return self._run(closed.jaxpr, [*consts, *inputs])

    def _constant(self, value: Any) -> int:
        # Only single numbers are read: the rules know no arrays of constants.
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
            outs = self._equation(eqn, [look(v) for v in eqn.invars])
            for flow in outs:
                self._jumps[flow.term] = self._jumps.get(flow.term, NONE) | flow.jump
                self._switches[flow.term] = self._switches.get(flow.term, NONE) | flow.switch
            known.update(zip(eqn.outvars, outs, strict=True))
        return [look(v) for v in jaxpr.outvars]

    def _equation(self, eqn: Any, inputs: list[Flow]) -> list[Flow]:
        name, params = eqn.primitive.name, eqn.params
        # Dtypes decide: whole numbers and truth values are constant between switches.
        kinds = [_kind(v.aval.dtype) for v in eqn.outvars]
        # Rules by kind of equation: own derivatives, loops, branches, calls, then single primitives.
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
            outs = zip(*branches, kinds, strict=True)
            # A branch is a selection by its index.
            return [self._primitive("select_n", {}, [inputs[0], *cases], [kind])[0] for *cases, kind in outs]
        inner = [x for x in params.values() if isinstance(x, ClosedJaxpr | Jaxpr)]
        inner = [] if name.startswith("scatter") else [x if isinstance(x, Jaxpr) else x.jaxpr for x in inner]
        consts = [Flow(self._constant(c)) for x in params.values() if isinstance(x, ClosedJaxpr) for c in x.consts]
        if len(inner) == 1 and len(inner[0].invars) == len(inputs):
            return self._run(inner[0], [*consts, *inputs])
        if inner and any(x.every for x in inputs):
            # A call of unknown kind (a reduction by an own function, say): everything may jump.
            bad = frozenset().union(*(x.every for x in inputs))
            return [self._switch(bad, Flow(self.atom(kind)), kind) for kind in kinds]
        if name in _SPREADS and eqn.invars[0].aval.size == 1:
            name = "spread"  # one number in several places: element by element
        return self._primitive(name, params, inputs, kinds)

    def _primitive(self, name: str, params: Any, inputs: list[Flow], kinds: list[str]) -> list[Flow]:
        smooth, switch, jump = _unions(inputs)
        terms = tuple(x.term for x in inputs)
        plain = {k: v for k, v in params.items() if k not in ("sharding", "out_sharding")}
        made = [self.term(name if i == 0 else f"{name} {i}", plain, terms, kind) for i, kind in enumerate(kinds)]
        literal = self._made_of[terms[0]][0] == "literal" if len(inputs) else False
        # A conversion that changes no kind, or a constant in several places, is its argument.
        alike = name == "convert_element_type" and kinds[0] == self._made_of[terms[0]][3]
        if alike or (literal and name in ("spread", "copy")):
            return [inputs[0]]
        if name == "stop_gradient":
            stop = lambda items: frozenset((who, True, origin) for who, _, origin in items)  # noqa: E731
            return [Flow(made[0], stop(smooth), stop(switch), stop(jump))]
        if name == "select_n":
            return [self._selected(made[0], terms, inputs, kinds[0])]
        outs = []
        for term, kind in zip(made, kinds, strict=True):
            if kind == "f":
                step = smooth if name in _STEPS or (name == "sort" and len(inputs) > 1) else NONE
                step = NONE if name == "sign" and self._positive(terms[0]) else step
                self._note(step, name)
                # Which expression switches: the sign, or the truth value that becomes a number.
                step = _by(step, term if name == "sign" else -1)
                switched = _by(switch, terms[0] if name == "convert_element_type" else -1)
                flips = frozenset(flip for *_, flip in step | switched if flip >= 0)
                outs.append(Flow(term, smooth, NONE, self._left(term, jump | switched | step, flips)))
            else:
                fresh = NONE if self._harmless(name, inputs) else _by(smooth | jump, -1)
                self._note(fresh, name)
                outs.append(Flow(term, NONE, switch | fresh))
        return outs

    def _selected(self, term: int, terms: tuple[int, ...], inputs: list[Flow], kind: str) -> Flow:
        """One of several, by a value that may switch."""
        smooth, switch, jump = _unions(inputs[1:])
        flow = Flow(term, smooth, switch, jump | inputs[0].jump)
        selector_items = _by(inputs[0].switch, terms[0])
        if kind != "f" or not selector_items:
            return self._switch(selector_items, flow, kind)
        flips = frozenset() if self._never(terms[0]) else frozenset({terms[0]})
        left = self._left(term, flow.jump | _by(switch, -1) | (selector_items if flips else NONE), flips)
        return Flow(term, smooth | inputs[0].switch, NONE, left)

    def _left(self, term: int, jump: Items, own: frozenset[int]) -> Items:
        """Of the jumps of an expression, those that are not proven to be none.

        A factor that is 0 where a part of it switches takes the jump away, and a pole there may bring it back.
        """
        name, params, children, _ = self._made_of[term]
        if _function(name, params) is None:
            return jump
        cases = children[1:] if name == "select_n" else children
        # All that switches below this expression and was not yet shown to cancel out.
        flips = own.union(*(self._flips.get(child, frozenset()) for child in cases))
        self._flips[term] = flips
        if not flips:
            return jump
        jumps_below = self._jumps_below(term)
        for flip in flips:
            # A proof takes the jump away; else it stays (or comes back, at a pole).
            if self._proven(term, flip):
                jump = frozenset(x for x in jump if x[2] != flip or x in jumps_below) | self._jumps_of_comparison(flip)
            else:
                jump |= _by(self._switches.get(flip, NONE) or self._jumps.get(flip, NONE), flip)
        return jump

    def _note(self, items: Items, name: str) -> None:
        for who, *_ in items:
            self.why.setdefault(who, _WORDS.get(name, "a comparison"))

    def _harmless(self, name: str, inputs: list[Flow]) -> bool:
        """Whether a truth value is the same wherever everything is finite."""
        if name == "is_finite":
            return True
        if name not in _COMPARISONS or len(inputs) != 2:
            return False
        left, right = (self._made_of[x.term] for x in inputs)
        equal = inputs[0].term == inputs[1].term
        # exp(x) < 0: never.
        of_zero = [x for x, y in ((inputs[0], right), (inputs[1], left)) if y[0] == "literal" and y[1] == 0]
        if any(self._positive(x.term) for x in of_zero):
            return True
        return equal or any(x[0] == "literal" and not np.isfinite(x[1]) for x in (left, right))

    def _switch(self, switch: Items, flow: Flow, kind: str) -> Flow:
        """`flow`, which besides is one of several by a value that switches."""
        if kind == "f":
            return flow._replace(smooth=flow.smooth, jump=flow.jump | switch | flow.switch, switch=NONE)
        return Flow(flow.term, NONE, flow.every | switch)

    def _own_derivative(self, inputs: list[Flow], kinds: list[str]) -> list[Flow]:
        """A rule of derivatives is taken at its word: it covers what was stopped on its way in."""
        live = lambda items: frozenset((who, False, -1) for who, stopped, _ in items if not stopped)  # noqa: E731
        # Whatever the rule hides, the result depends on all that went in.
        dependences = frozenset((who, False, -1) for x in inputs for who, *_ in x.every)
        jump = frozenset().union(*(live(x.jump | x.switch) for x in inputs))
        return [
            Flow(self.atom(), dependences, NONE, jump) if kind == "f" else Flow(self.atom("i"), NONE, dependences)
            for kind in kinds
        ]

    def _scan(self, params: Any, inputs: list[Flow], kinds: list[str]) -> list[Flow]:
        fixed, carry, columns = scan_parts(params, inputs)
        # What is carried, and what is read step by step, is a new unknown in every turn.
        carry, columns = [self.rename(x) for x in carry], [self.rename(x) for x in columns]
        body = lambda now: self.read(params["jaxpr"], [*fixed, *now, *columns])  # noqa: E731
        state = self.iterate_until_stable(carry, lambda now: body(now)[: len(carry)])
        return [*(self.rename(x) for x in state), *(self.rename(x) for x in body(state)[len(carry) :])]

    def _while(self, params: Any, inputs: list[Flow], kinds: list[str]) -> list[Flow]:
        ahead, body = params["cond_nconsts"], params["body_nconsts"]
        of_cond, of_body = inputs[:ahead], inputs[ahead : ahead + body]
        state = [self.rename(x) for x in inputs[ahead + body :]]
        state = self.iterate_until_stable(state, lambda now: self.read(params["body_jaxpr"], [*of_body, *now]))
        # How often it turns.
        switch = self.read(params["cond_jaxpr"], [*of_cond, *state])[0].switch
        return [self._switch(switch, self.rename(x), kind) for x, kind in zip(state, kinds, strict=True)]

    def _proven(self, term: int, flip: int) -> bool:
        """Whether an expression is the same whatever the outcome of a part that switches, wherever that may switch."""
        surfaces = self._surfaces(flip)
        if not surfaces:
            return False
        outcomes = (-1.0, 0.0, 1.0) if self._made_of[flip][0] == "sign" else (0.0, 1.0)
        # On every surface c = d: put both outcomes of the comparison in, and compare the two expressions that come out.
        # Surfaces are where the two sides are equal; off them nothing switches.
        for place in range(len(surfaces)):
            first, *rest = (self._put(term, flip, place, i) for i in range(len(outcomes)))
            if not all(self._equal(first, case) for case in rest):
                return False
        return True

    def _equal(self, one: int, two: int) -> bool:
        x, y = (self._made_of[term] for term in (one, two))
        if x[0] == y[0] == "literal":
            close = np.isfinite(x[1]) and abs(x[1] - y[1]) <= _ROUNDING * (1.0 + abs(x[1]))
            return x[1] == y[1] or bool(close)
        return one == two

    def _jumps_of_comparison(self, flip: int) -> Items:
        """The jumps of the numbers that a value compares: it may switch there too, off its surfaces."""
        name, _, children, kind = self._made_of[flip]
        if name in _COMPARISONS or (name == "sign" and kind == "f"):
            return _by(frozenset().union(*(self._jumps.get(self._plain(child), NONE) for child in children)), -1)
        if kind == "f":
            return NONE
        return frozenset().union(*(self._jumps_of_comparison(child) for child in children))

    def _surfaces(self, flip: int) -> list[dict[int, int]] | None:
        """Where a value may switch: each surface as expressions with what they are there; None: not known."""
        if flip not in self._known_surfaces:
            self._known_surfaces[flip] = self._find_surfaces(flip)
        return self._known_surfaces[flip]

    def _find_surfaces(self, flip: int) -> list[dict[int, int]] | None:
        name, _, children, kind = self._made_of[flip]
        if name == "sign" and kind == "f":
            return self._surface(children[0], self._literal(0.0))
        kinds = [self._made_of[child][3] for child in children]
        # A truth value, or one that became an integer: the index of a branch.
        known = kind == "b" or (name in ("convert_element_type", *_SAME) and kinds[0] != "f")
        if kind == "f" or not known:
            return None
        if not self._switches.get(flip, NONE):
            return []
        if name in _COMPARISONS:
            return self._surface(*children)
        # A logical combination switches at most where one of its parts does.
        if name in ("and", "or", "not", "convert_element_type", *_SAME):
            parts = [self._surfaces(child) for child in children]
            return None if any(part is None for part in parts) else [x for part in parts for x in part or []]
        return None

    def _surface(self, left: int, right: int) -> list[dict[int, int]] | None:
        """That right numbers are equal; None: they are no numbers. Where they jump is another matter."""
        left, right = self._plain(left), self._plain(right)
        numbers = [x for x in (left, right) if self._made_of[x][0] != "literal"]
        if any(self._made_of[x][3] != "f" for x in numbers):
            return None
        if self._made_of[left][0] == "literal":
            left, right = right, left
        if self._made_of[right][0] != "literal":
            zero, kind = self._literal(0.0), "f"
            left, right = (
                (right, left) if self._holds(left, right) else (left, right)
            )  # what is replaced is no part of the other
            # On the surface the two are the same expression, and their difference is zero either way round.
            differences = {self.term("sub", {}, pair, kind): zero for pair in ((left, right), (right, left))}
            return [differences | {right: left}] if left != right else []
        values = {left: right}
        if self._made_of[right][1] == 0:
            name, params, children, _ = self._made_of[left]
            # f(x) = 0 where x = 0 alone: the surface is that of the innermost argument.
            while name in _ZERO_AT_ZERO or (name == "integer_pow" and params["y"] > 0):
                left = self._plain(children[0])
                values[left] = right
                name, params, children, _ = self._made_of[left]
            if name == "sub":
                u, v = (self._plain(child) for child in children)
                values |= {self.term("sub", {}, pair, "f"): right for pair in ((u, v), (v, u))}
                u, v = (v, u) if self._made_of[v][0] == "literal" or self._holds(u, v) else (u, v)
                values |= {} if u == v else {v: u}
        return [values]

    def _literal(self, value: float) -> int:
        return self.term("literal", value + 0.0, (), "f")  # no -0.0

    def _plain(self, term: int) -> int:
        """What an expression repeats."""
        while self._made_of[term][0] in _SAME:
            term = self._made_of[term][2][0]
        return term

    def _holds(self, term: int, part: int) -> bool:
        # Depth first through the parts, each once.
        """Whether an expression has a part."""
        waiting, seen = [term], {term}
        while waiting:
            new = {child for child in self._made_of[waiting.pop()][2] if child not in seen}
            seen |= new
            waiting += new
        return part in seen

    def _put(self, term: int, flip: int, place: int, outcome: int) -> int:
        """An expression on a surface of `flip`, by one of its outcomes, in short form; other switches stay unknown."""
        memo = self._put_in.setdefault((flip, place, outcome), {})
        if term not in memo:
            memo[term] = self._put_anew(term, flip, place, outcome)
        return memo[term]

    def _put_anew(self, term: int, flip: int, place: int, outcome: int) -> int:
        name, params, children, kind = self._made_of[term]
        if term == flip:
            return self._literal(float(outcome - 1 if name == "sign" else outcome))
        surfaces = self._surfaces(flip)
        assert surfaces is not None
        if term in surfaces[place]:
            target = surfaces[place][term]
            return target if self._made_of[target][0] == "literal" else self._put(target, flip, place, outcome)
        # What switches elsewhere is the same for both outcomes.
        if name == "literal" or _function(name, params) is None or kind != "f":
            return self._literal(params) if name == "literal" else term
        parts = [self._put(child, flip, place, outcome) for child in children]
        if name in _SAME:
            return parts[0]
        made = [self._made_of[x] for x in parts]
        numbers = [x[1] for x in made if x[0] == "literal"]
        if name == "select_n":
            if made[0][0] == "literal":
                return parts[1 + int(np.clip(made[0][1], 0, len(parts) - 2))]
            return parts[1] if len(set(parts[1:])) == 1 else self.term(name, params, tuple(parts), kind)
        if name == "convert_element_type" and not numbers:
            return self.term(name, params, tuple(parts), kind)
        # All arguments are numbers: so is the result.
        if len(numbers) == len(parts):
            function = _function(name, params)
            assert function is not None
            with np.errstate(all="ignore"):
                value = float(function(*numbers))
            return self.atom() if np.isnan(value) else self._literal(value)  # equal to nothing
        return self._simplify(name, params, parts, kind)

    def _simplify(self, name: str, params: Any, parts: list[int], kind: str) -> int:
        """x + 0, 1 x, 0 x (x is finite), x - x, max(x, x)."""
        # The constants among the parts.
        number = {x: self._made_of[x][1] for x in parts if self._made_of[x][0] == "literal"}
        variable = [x for x in parts if x not in number]
        if name in _COMMUTE:
            parts = sorted(parts)
        if name == "add" and 0 in number.values():
            return variable[0]
        if name == "mul" and 0 in number.values():
            return self._literal(0.0)
        if name == "mul" and 1 in number.values():
            return variable[0]
        if name == "sub" and parts[0] == parts[1]:
            return self._literal(0.0)
        if name in ("sub", "div") and number.get(parts[1]) == (0 if name == "sub" else 1):
            return parts[0]
        if name == "div" and number.get(parts[0]) == 0:
            return self._literal(0.0)
        if name in ("max", "min") and parts[0] == parts[1]:
            return parts[0]
        return self.term(name, params, tuple(parts), kind)

    def _never(self, predicate: int) -> bool:
        """Whether a guard is never met, on trust: an equality with a constant that holds for no random numbers."""
        atoms: dict[int, str] = {}
        parts: set[int] = set()
        self._collect(predicate, atoms, parts)
        if not self._exact(predicate) or any(self._made_of[x][0] in _FLAT for x in parts):
            return False
        # An equality of continuous numbers has probability zero; if it holds for none of these random points it is
        # never met.
        rng = np.random.default_rng(0)
        with np.errstate(all="ignore"):
            outcomes = self._value(predicate, {a: _sample(rng, kind) for a, kind in atoms.items()}, {})
        # All alike: the guard never switches.
        return len(np.unique(np.broadcast_to(outcomes, _POINTS).astype(bool))) == 1

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
        if name not in ("eq", "ne") or not any(self._made_of[child][0] == "literal" for child in children):
            return False
        variable = [child for child in children if self._made_of[child][0] != "literal"]
        return all(self._made_of[x][3] == "f" and not self._jumps.get(x, NONE) for x in variable)

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


def _by(items: Items, flip: int) -> Items:
    """The same, as jumps where `flip` switches."""
    return frozenset((who, stopped, flip) for who, stopped, _ in items)


def _unions(flows: Sequence[Flow]) -> tuple[Items, Items, Items]:
    """What several arrays depend on: smoothly, as a switch, with a jump."""
    parts = ([x.smooth for x in flows], [x.switch for x in flows], [x.jump for x in flows])
    smooth, switch, jump = (frozenset().union(*sets) for sets in parts)
    return smooth, switch, jump


def _kind(dtype: Any) -> str:
    """Of real numbers (f), truth values (b), or whole numbers and keys (i)."""
    if jnp.issubdtype(dtype, jnp.inexact):
        return "f"
    return "b" if jnp.issubdtype(dtype, jnp.bool_) else "i"


def _sample(rng: np.random.Generator, kind: str) -> np.ndarray:
    if kind == "b":
        return rng.random(_POINTS) < 0.5
    if kind == "i":
        return rng.integers(0, 3, _POINTS)
    return rng.normal(size=_POINTS) * rng.choice([0.1, 1.0, 10.0], _POINTS)
