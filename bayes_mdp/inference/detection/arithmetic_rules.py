"""Rules of arithmetic, entry by entry: each states an identity of real numbers.

In this order: any function of symbols; sums; products and quotients; powers; logarithms and what undoes them.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from jax.extend.core import JaxprEqn
from jaxtyping import Bool

from bayes_mdp.inference.detection.entries import (
    NONE,
    OPAQUE,
    Domain,
    Entries,
    EntriesRule,
    Rule,
    Value,
    compacted,
    elements_of,
    entrywise,
    of_entries,
    plain,
    sites_of,
    symbolic,
    widened,
)
from bayes_mdp.inference.detection.equations import array_of
from bayes_mdp.inference.detection.symbols import Symbols
from bayes_mdp.utils.typing import ArrayLike

_ENTRYWISE = """
max min rem exp2 expm1 tanh sin cos tan asin acos atan sinh cosh asinh acosh atanh cbrt abs sign floor ceil round
is_finite not and or xor eq ne lt le gt ge clamp lgamma digamma erf erfc erf_inv atan2 nextafter igamma igammac
regularized_incomplete_beta shift_left shift_right_logical shift_right_arithmetic population_count reduce_precision
"""
"""Functions of single entries about which nothing is stated but that they are functions."""


def _elementwise(domain: Domain, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    params = tuple(sorted((key, str(value)) for key, value in equation.params.items()))
    dtype = str(array_of(equation.outvars[0]).dtype)
    return entrywise(domain, (equation.primitive.name, dtype, params), operands)


def _convert(domain: Domain, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    """Between floats of 32 and 64 bits an element stays itself (rounded). An integer is made of it by a jump."""
    dtype = array_of(equation.outvars[0]).dtype
    if dtype in (np.float32, np.float64):
        return operands[0]
    return _elementwise(domain, equation, operands)


def is_zero(domain: Domain, x: Entries) -> Bool[np.ndarray, "..."]:
    """Which entries are known to be zero."""
    zero = domain.symbols.known(x.offset) & (domain.symbols.values(x.offset) == 0.0)
    return np.asarray((x.element == NONE) & zero)


def _add(domain: Domain, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    """(offset + coefficient x^power) + c: the offset moves."""
    x, y = map(plain, operands)
    return sum_of(domain, x, y)


def sum_of(domain: Domain, x: Entries, y: Entries) -> Entries:
    """x + y where one of the two is free of conjugate sites, or both hold one element."""
    (x, y), shape = compacted(x, y)
    symbols = domain.symbols
    # One of the two must be free of conjugate sites; the other keeps its element, power and coefficient.
    first = y.element == NONE
    element = np.where(first, x.element, np.where(x.element == NONE, y.element, OPAQUE))
    coefficient = np.where(first, x.coefficient, y.coefficient)
    # c x^p + d x^p = (c + d) x^p; c + d = 0 leaves the offsets: p + (1 - p) is one.
    both = (x.element >= 0) & (x.element == y.element) & (x.power == y.power)
    if both.any():
        total = symbols.arithmetic("add", np.add, x.coefficient, y.coefficient)
        gone = symbols.known(total) & (symbols.values(total) == 0.0)
        element = np.where(both, np.where(gone, NONE, x.element), element)
        coefficient = np.where(both, total, coefficient)
    answer = Entries(
        element=element,
        power=np.where(first, x.power, y.power),
        coefficient=coefficient,
        offset=symbols.arithmetic("add", np.add, x.offset, y.offset),
        sites=sites_of(x, y),
    )
    return widened(answer, shape)


def _neg(domain: Domain, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    return _negative(domain, plain(operands[0]))


def _negative(domain: Domain, x: Entries) -> Entries:
    turned = {
        name: domain.symbols.arithmetic("neg", np.negative, getattr(x, name)) for name in ("coefficient", "offset")
    }
    return replace(x, **turned)


def _sub(domain: Domain, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    x, y = operands
    through = (x.transform, y.transform)
    if through == ("log", "log1m") and np.array_equal(x.element, y.element):
        return replace(x, transform="logit", sites=sites_of(x, y))  # log x - log(1 - x)
    x, y = plain(x), plain(y)
    free = (x.element == NONE) & (y.element == NONE)
    if free.all():
        ids = domain.symbols.arithmetic("sub", np.subtract, x.offset, y.offset)
        return symbolic(ids, sites_of(x, y), domain.symbols)
    return sum_of(domain, x, _negative(domain, y))


def _mul(domain: Domain, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    """c (offset + coefficient x^power), x^p x^q = x^(p + q), and 0 times anything finite."""
    x, y = map(plain, operands)
    return product_of(domain, x, y, "mul", np.multiply)


def _div(domain: Domain, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    x, y = map(plain, operands)
    if _is_odds(domain, x, y):
        return replace(x, transform="odds", sites=sites_of(x, y))
    if (y.element != NONE).any():
        inverse = _power(domain, y, -1.0)
        ids = domain.symbols.arithmetic("div", np.divide, x.offset, y.offset)
        answer = product_of(domain, x, inverse, "mul", np.multiply)
        free = (x.element == NONE) & (y.element == NONE)
        return replace(answer, offset=np.where(free, ids, answer.offset))
    return product_of(domain, x, y, "div", np.divide)


def _is_odds(domain: Domain, x: Entries, y: Entries) -> bool:
    """x / (1 - x) of one element between zero and one."""
    symbols = domain.symbols
    if x.shape != y.shape or not _is_element(domain, x) or not np.array_equal(x.element, y.element):
        return False
    complement = symbols.equals(y.coefficient, -1.0) & symbols.equals(y.offset, 1.0) & (y.power == 1.0)
    return bool((complement & domain.unit[x.element]).all())


def _is_element(domain: Domain, x: Entries) -> bool:
    """Every entry is one element itself."""
    symbols = domain.symbols
    form = (x.element >= 0) & (x.power == 1.0) & symbols.equals(x.coefficient, 1.0) & symbols.equals(x.offset, 0.0)
    return x.transform is None and x.element.size > 0 and bool(form.all())


def product_of(domain: Domain, x: Entries, y: Entries, name: str, function: Callable[..., np.ndarray]) -> Entries:
    """x * y or x / y where one of the two is free of conjugate sites, or both hold one element."""
    (x, y), shape = compacted(x, y)
    symbols = domain.symbols
    x_free, y_free = x.element == NONE, y.element == NONE
    zero = is_zero(domain, x) | (is_zero(domain, y) & (name == "mul"))
    factor = np.where(y_free, y.offset, x.offset)  # the one that is free of conjugate sites
    offset = np.where(y_free, x.offset, y.offset)
    coefficient = np.where(y_free, x.coefficient, y.coefficient)
    element = np.where(y_free, x.element, np.where(x_free, y.element, OPAQUE))
    power = np.where(y_free, x.power, y.power)
    # factor (offset + coefficient x^power): both symbols are scaled.
    scaled = symbols.arithmetic(name, function, coefficient, factor)
    moved = symbols.arithmetic(name, function, offset, factor)
    # c x^p d x^q = c d x^(p + q), without offsets; p + q = 0 is the number c d.
    both = (x.element >= 0) & (x.element == y.element)
    both &= symbols.equals(x.offset, 0.0) & symbols.equals(y.offset, 0.0)
    if both.any():
        element, power = np.where(both, x.element, element), np.where(both, x.power + y.power, power)
        scaled = np.where(both, symbols.arithmetic("mul", np.multiply, x.coefficient, y.coefficient), scaled)
        moved = np.where(both, symbols.zero, moved)
        gone = both & (power == 0.0)  # x / x
        element, moved = np.where(gone, NONE, element), np.where(gone, scaled, moved)
    # 0 times an element is 0: a mask of zeros and ones selects.
    element, moved = np.where(zero, NONE, element), np.where(zero, symbols.zero, moved)
    return widened(Entries(element, power, scaled, moved, sites_of(x, y)), shape)


def _power(domain: Domain, x: Entries, exponent: ArrayLike) -> Entries:
    """(c x^p)^q = c^q x^(p q): for whole q always, for others where c and x are positive. No offset."""
    symbols, exponent = domain.symbols, np.broadcast_to(np.asarray(exponent, float), x.shape)
    q = symbols.constants(exponent)
    whole = (exponent == np.round(exponent)) & (x.power == np.round(x.power))
    at = np.maximum(x.element, 0)
    positive = domain.positive[at] if domain.positive.size else np.zeros(x.shape, bool)
    coefficient = symbols.values(x.coefficient)
    # The sign of an unknown coefficient is not known: where it is negative both sides are nan.
    signed = ~symbols.known(x.coefficient) | (coefficient > 0)
    valid = symbols.equals(x.offset, 0.0) & symbols.known(x.offset) & (exponent != 0) & (whole | (positive & signed))
    element = np.where(x.element == NONE, NONE, np.where((x.element >= 0) & valid, x.element, OPAQUE))
    return Entries(
        element=element,
        power=np.asarray(x.power * exponent),
        coefficient=symbols.arithmetic("pow", np.power, x.coefficient, q),
        offset=np.where(x.element == NONE, symbols.arithmetic("pow", np.power, x.offset, q), symbols.zero),
        sites=x.sites,
    )


def _fixed_power(exponent: float) -> EntriesRule:
    return lambda domain, equation, operands: _power(domain, plain(operands[0]), exponent)


def _integer_pow(domain: Domain, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    return _power(domain, plain(operands[0]), float(equation.params["y"]))


def _pow(domain: Domain, equation: JaxprEqn, inputs: list[Value]) -> Entries:
    base, exponent = inputs
    if not isinstance(exponent, Entries):
        return _power(domain, plain(domain.entries(base)), exponent)
    return _elementwise(domain, equation, [domain.entries(base), exponent])


def _log(domain: Domain, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    x, symbols = operands[0], domain.symbols
    if x.transform == "odds":
        return replace(x, transform="logit")
    if _is_element(domain, x) and domain.positive[x.element].all():
        return replace(x, transform="log")
    if _is_complement(domain, x, 1.0):
        return replace(_as_element(x, symbols), transform="log1m")
    return _elementwise(domain, equation, operands)


def _log1p(domain: Domain, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    x = operands[0]
    if _is_complement(domain, x, 0.0):
        return replace(_as_element(x, domain.symbols), transform="log1m")
    return _elementwise(domain, equation, operands)


def _is_complement(domain: Domain, x: Entries, offset: float) -> bool:
    """offset - x, of elements between zero and one."""
    symbols = domain.symbols
    form = (x.element >= 0) & (x.power == 1.0) & symbols.equals(x.coefficient, -1.0) & symbols.equals(x.offset, offset)
    return x.transform is None and x.element.size > 0 and bool(form.all()) and bool(domain.unit[x.element].all())


def _as_element(x: Entries, symbols: Symbols) -> Entries:
    return replace(elements_of(x.element, "", symbols), sites=x.sites)


def _exp(domain: Domain, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    x = operands[0]
    return replace(x, transform=None) if x.transform == "log" else _elementwise(domain, equation, operands)


def _logistic(domain: Domain, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    x = operands[0]
    return replace(x, transform=None) if x.transform == "logit" else _elementwise(domain, equation, operands)


ARITHMETIC_RULES: dict[str, Rule] = {
    **of_entries(
        {
            **dict.fromkeys(_ENTRYWISE.split(), _elementwise),
            "convert_element_type": _convert,
            "add": _add,
            "sub": _sub,
            "neg": _neg,
            "mul": _mul,
            "div": _div,
            "integer_pow": _integer_pow,
            "square": _fixed_power(2.0),
            "sqrt": _fixed_power(0.5),
            "rsqrt": _fixed_power(-0.5),
            "log": _log,
            "log1p": _log1p,
            "exp": _exp,
            "logistic": _logistic,
        }
    ),
    "pow": _pow,
}
"""Primitive -> its rule."""
