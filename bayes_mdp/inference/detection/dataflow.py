"""What every entry of a program's arrays is made of, read from its data flow (the jaxpr), never from values.

The jaxpr is run on descriptions in place of numbers: `entries` says what a description can say, `movement_rules`,
`arithmetic_rules` and `sum_rules` what each primitive makes of it. The rules are an allow-list; each states an identity
of real arithmetic or moves entries about. A primitive without a rule gives opaque entries if a conjugate site goes in,
and new symbols otherwise: a rule that is missing costs a closed form, and never makes a wrong one. Control flow counts
as data flow: what a predicate, an index or a loop depends on, its results depend on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

from bayes_mdp.inference.detection.arithmetic_rules import ARITHMETIC_RULES
from bayes_mdp.inference.detection.entries import OPAQUE, Domain, Entries, Rule, Value, concatenated, mapped, symbolic
from bayes_mdp.inference.detection.equations import Atom, array_of, body_of, needed_equations, scan_parts
from bayes_mdp.inference.detection.known_numbers import computed, known
from bayes_mdp.inference.detection.movement_rules import MOVEMENT_RULES
from bayes_mdp.inference.detection.sum_rules import SUM_RULES
from bayes_mdp.utils.typing import ArrayLike

MAX_TURNS = 256
"""Turns of a loop that are read one by one."""

RULES: dict[str, Rule] = {**MOVEMENT_RULES, **ARITHMETIC_RULES, **SUM_RULES}
"""The allow-list. What is not here is opaque as soon as a conjugate site goes in."""


@dataclass(frozen=True, eq=False)
class Reader:
    """Runs a jaxpr on descriptions. Host side; 64-bit mode; nothing of the user's Python runs.

    Args:
        domain: what the descriptions are made of.
    """

    domain: Domain

    def read(
        self, closed: ClosedJaxpr, inputs: Sequence[Value], wanted: Sequence[bool] | None = None
    ) -> list[Value | None]:
        """The outputs of `closed` at these inputs; None for those that are not wanted, which cost nothing."""
        jaxpr = closed.jaxpr
        needed = [True] * len(jaxpr.outvars) if wanted is None else list(wanted)
        outvars = [atom for atom, need in zip(jaxpr.outvars, needed, strict=True) if need]
        found = iter(self._run(jaxpr, closed.consts, inputs, outvars))
        return [next(found) if need else None for need in needed]

    def _run(
        self, jaxpr: Jaxpr, consts: Sequence[ArrayLike], inputs: Sequence[Value], outvars: Sequence[Atom] | None = None
    ) -> list[Value]:
        wanted = jaxpr.outvars if outvars is None else outvars
        values: dict[Var, Value] = {}
        values.update(zip(jaxpr.constvars, map(known, consts), strict=True))
        values.update(zip(jaxpr.invars, inputs, strict=True))

        def value(atom: Atom) -> Value:
            return known(atom.val) if isinstance(atom, Literal) else values[atom]

        for equation in needed_equations(jaxpr, wanted):
            outputs = self._equation(jaxpr, equation, [value(atom) for atom in equation.invars])
            values.update(zip(equation.outvars, outputs, strict=True))
        return [value(atom) for atom in wanted]

    def _equation(self, jaxpr: Jaxpr, equation: JaxprEqn, inputs: list[Value]) -> list[Value]:
        # In this order: enter calls, take known branches, compute numbers, apply the rule; else nothing is known.
        name, inner = equation.primitive.name, body_of(equation)
        if inner is not None:
            return self._run(*inner, inputs)
        if name == "cond" and not isinstance(inputs[0], Entries):
            # A branch that is known: only this one happens.
            branches = equation.params["branches"]
            branch = branches[int(np.clip(inputs[0], 0, len(branches) - 1))]
            return self._run(branch.jaxpr, branch.consts, inputs[1:])
        numbers = [x for x in inputs if not isinstance(x, Entries)]
        if len(numbers) == len(inputs):
            return [*computed(jaxpr, equation, numbers)]
        try:
            found = self._by_rule(equation, inputs)
        except KeyError:  # another version of JAX gives the primitive other parameters
            found = None
        return self._unknown(equation, inputs) if found is None else found

    def _by_rule(self, equation: JaxprEqn, inputs: list[Value]) -> list[Value] | None:
        """The outputs by the rule of the primitive; None: there is none, or it does not apply."""
        name = equation.primitive.name
        if name == "split":
            return self._split(equation, self.domain.entries(inputs[0]))
        if name in ("scan", "while"):
            return (self._scan if name == "scan" else self._while)(equation, inputs)
        rule = RULES.get(name)
        if rule is None or len(equation.outvars) != 1:
            return None
        found = rule(self.domain, equation, inputs)
        return None if found is None else [found]

    def _split(self, equation: JaxprEqn, x: Entries) -> list[Value]:
        """Pieces along an axis."""
        axis, stops = equation.params["axis"], np.cumsum(equation.params["sizes"])
        places = [range(stop - size, stop) for stop, size in zip(stops, equation.params["sizes"], strict=True)]
        return [mapped(x, lambda f, at=at: np.take(f, at, axis)) for at in places]

    def _scan(self, equation: JaxprEqn, inputs: list[Value]) -> list[Value] | None:
        """A loop of fixed length, turn by turn: what counts the turns is known in each. None: it is too long."""
        params = equation.params
        length, body = params["length"], params["jaxpr"]
        if length > MAX_TURNS:
            return None
        consts, carry, columns = scan_parts(params, inputs)
        num_carry, rows = len(carry), []
        # Unrolled: consts and carry as they are, one row of each column in each turn.
        for turn in range(length):
            at = length - 1 - turn if params["reverse"] else turn
            given = [mapped(x, lambda f, at=at: f[at]) if isinstance(x, Entries) else known(x[at]) for x in columns]
            outputs = self._run(body.jaxpr, body.consts, [*consts, *carry, *given])
            carry = outputs[:num_carry]
            rows.append(outputs[num_carry:])
        if params["reverse"]:
            rows.reverse()
        return [*carry, *(self._stacked(column) for column in zip(*rows, strict=True))]

    def _stacked(self, column: Sequence[Value]) -> Value:
        if not any(isinstance(x, Entries) for x in column):
            return np.stack([np.asarray(x) for x in column])
        return concatenated([self.domain.entries(x) for x in column], np.stack)

    def _while(self, equation: JaxprEqn, inputs: list[Value]) -> list[Value] | None:
        """A loop whose condition is known in every turn. None: it depends on a latent site, or it is too long."""
        params = equation.params
        split = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
        consts, body_consts, carry = inputs[: split[0]], inputs[split[0] : split[1]], inputs[split[1] :]
        condition, body = params["cond_jaxpr"], params["body_jaxpr"]
        for _ in range(MAX_TURNS):
            goes_on = self._run(condition.jaxpr, condition.consts, [*consts, *carry])[0]
            if isinstance(goes_on, Entries):
                return None
            if not goes_on:
                return list(carry)
            carry = self._run(body.jaxpr, body.consts, [*body_consts, *carry])
        return None

    def _unknown(self, equation: JaxprEqn, inputs: list[Value]) -> list[Value]:
        """Anything else: free of conjugate sites where all inputs are."""
        given = [self.domain.entries(x) for x in inputs]
        sites = frozenset().union(*(x.sites for x in given))
        # The safe answer: new symbols, equal to nothing else; opaque as soon as a conjugate site goes in.
        outputs: list[Value] = []
        for variable in equation.outvars:
            answer = symbolic(self.domain.symbols.fresh(array_of(variable).shape), sites, self.domain.symbols)
            if not all(x.free for x in given):
                answer = replace(answer, element=np.broadcast_to(OPAQUE, answer.shape))
            outputs.append(answer)
        return outputs
