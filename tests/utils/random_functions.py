"""Pairs of functions that differ in one value, which lies behind a few layers: closures, defaults, modules, classes.

A layer is source text that takes the expression of a value and makes an object that computes with it; `{e}` is the
expression, `{i}` a number of its own. Layers are put on each other in any order.
"""

import builtins
import random
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import scipy.interpolate
import scipy.linalg

HEAD = """
import asyncio, collections, dataclasses, enum, fractions, functools, itertools, operator, sys, types
import equinox as eqx, jax, jax.numpy as jnp, numpy as np, numpyro.distributions as dist, scipy as sp
def use(*args, **kwargs): return args, kwargs
"""

VALUES = {
    "integers": ("1", "2"),
    "kinds of one": ("1", "1.0"),
    "one and true": ("1", "True"),
    "signs of zero": ("0.0", "-0.0"),
    "text": ("'x'", "'y'"),
    "text and bytes": ("'x'", "b'x'"),
    "None and its name": ("None", "'None'"),
    "keys": ("{1: 2}", "{'1': 2}"),
    "order of keys": ("{1: 2, 3: 4}", "{3: 4, 1: 2}"),
    "sets": ("{1, 2}", "{1, 3}"),
    "a list and a tuple": ("[1, 2]", "(1, 2)"),
    "nesting": ("((1,), 2)", "((1, 2),)"),
    "one entry of an array": ("np.zeros(50)", "np.arange(50.0) == 7"),
    "a width": ("np.zeros(3)", "np.zeros(3, np.float32)"),
    "a shape": ("np.zeros((2, 3))", "np.zeros((3, 2))"),
    "an order in memory": ("np.ones((2, 3))", "np.ones((2, 3), order='F')"),
    "arrays of NumPy and JAX": ("np.ones(3, np.float32)", "jnp.ones(3)"),
    "arrays of objects": ("np.array([1, None])", "np.array([2, None])"),
    "masks": ("np.ma.masked_array([1.0, 2.0], [True, False])", "np.ma.masked_array([1.0, 2.0], [False, True])"),
    "keys of JAX": ("jax.random.key(1)", "jax.random.key(2)"),
    "streams": ("np.random.default_rng(1)", "np.random.default_rng(2)"),
    "code": ("lambda x: x + 1", "lambda x: x - 1"),
    "names in code": ("lambda x: x.sum()", "lambda x: x.min()"),
    "functions of a library": ("jnp.sin", "jnp.cos"),
    "builtins": ("max", "min"),
    "classes": ("int", "float"),
    "laws": ("dist.Normal(0.0, 1.0)", "dist.Normal(0.0, 2.0)"),
    "fractions": ("fractions.Fraction(1, 2)", "fractions.Fraction(1, 3)"),
}

CLASS = "class A{i}:\n  def __init__(s, c): s.c = c\n"
MODULE = "M{i} = sys.modules['m{i}'] = types.ModuleType('m{i}')\nM{i}.c = {e}\n"
LAYERS = {
    "a constant": ("", "lambda x=None: ({e})"),
    "a closure": ("def mk{i}(c):\n  return lambda x=None: c", "mk{i}({e})"),
    "a closure of a nested function": ("def mk{i}(c):\n  return lambda x=None: (lambda: c)()", "mk{i}({e})"),
    "a default": ("def f{i}(x=None, c={e}): return c", "f{i}"),
    "a default of a keyword": ("def f{i}(x=None, *, c={e}): return c", "f{i}"),
    "a global": ("C{i} = {e}\ndef f{i}(x=None): return C{i}", "f{i}"),
    "a global of a nested function": ("C{i} = {e}\ndef f{i}(x=None): return [(lambda: C{i})() for _ in x]", "f{i}"),
    "a global of a class in a function": (
        "C{i} = {e}\ndef f{i}(x=None):\n  class A:\n    c = C{i}\n    d = [C{i} for _ in (1, 2)]\n  return A",
        "f{i}",
    ),
    "a global of a coroutine": ("C{i} = {e}\nasync def f{i}(x=None): return C{i}", "f{i}"),
    "a global of a generator": ("C{i} = {e}\ndef f{i}(x=None): yield C{i}", "f{i}"),
    "a shadowed builtin": ("sum = {e}\ndef f{i}(x=None): return sum", "f{i}"),
    "what is called": ("C{i} = {e}\ndef g{i}(): return C{i}\ndef f{i}(x=None): return g{i}()", "f{i}"),
    "what calls it": ("def f{i}(x=None): return g{i}()\ndef g{i}(): return ({e}), f{i}", "f{i}"),
    "an attribute": ("def f{i}(x=None): return f{i}.c\nf{i}.c = {e}", "f{i}"),
    "a decorator": (
        "def d{i}(g):\n  @functools.wraps(g)\n  def h(*a): return g(*a)\n  return h\n"
        "@d{i}\ndef f{i}(x=None): return ({e})",
        "f{i}",
    ),
    "a partial": ("", "functools.partial(use, {e})"),
    "a keyword of a partial": ("", "functools.partial(use, c={e})"),
    "a partial of a function": ("", "functools.partial(lambda x=None: ({e}), 1)"),
    "a bound method": (CLASS + "  def m(s, x=None): return s.c", "A{i}({e}).m"),
    "a callable": (CLASS + "  def __call__(s, x=None): return s.c", "A{i}({e})"),
    "code of a callable": ("class A{i}:\n  def __call__(s, x=None): return ({e})", "A{i}()"),
    "a class": ("class A{i}:\n  c = {e}", "A{i}"),
    "an attribute of a class": ("class A{i}:\n  c = {e}\n  def __call__(s, x=None): return s.c", "A{i}()"),
    "an attribute that was set later": ("class A{i}: pass\nA{i}.c = {e}", "A{i}()"),
    "an inherited attribute": ("class B{i}:\n  c = {e}\nclass A{i}(B{i}): pass", "A{i}()"),
    "an attribute of a metaclass": ("class T{i}(type):\n  c = {e}\nclass A{i}(metaclass=T{i}): pass", "A{i}"),
    "a property": ("class A{i}:\n  @property\n  def c(s): return ({e})", "A{i}()"),
    "a cached property": ("class A{i}:\n  @functools.cached_property\n  def c(s): return ({e})", "A{i}()"),
    "a static method": ("class A{i}:\n  @staticmethod\n  def c(): return ({e})", "A{i}.c"),
    "a class method": ("class A{i}:\n  @classmethod\n  def m(cls): return cls.c\nA{i}.c = {e}", "A{i}.m"),
    "a descriptor": (
        "class D{i}:\n  def __init__(s, c): s.c = c\n  def __get__(s, *a): return s.c\nclass A{i}:\n  d = D{i}({e})",
        "A{i}()",
    ),
    "slots": ("class A{i}:\n  __slots__ = ('__c',)\n  def __init__(s, c): s.__c = c", "A{i}({e})"),
    "a state that pickling hides": (CLASS + "  def __getstate__(s): return {{}}", "A{i}({e})"),
    "a reduction that lies": (CLASS + "  def __reduce__(s): return A{i}, (0,)", "A{i}({e})"),
    "a deque whose reduction lies": (
        "class A{i}(collections.deque):\n  def __reduce__(s): return A{i}, ()",
        "A{i}([{e}])",
    ),
    "attributes that lie": (
        CLASS + "  def __getattribute__(s, n): return 0 if n == 'c' else object.__getattribute__(s, n)",
        "A{i}({e})",
    ),
    "a dictionary that lies": (CLASS + "  __dict__ = {{}}", "A{i}({e})"),
    "a class that lies": (CLASS + "  __class__ = int", "A{i}({e})"),
    "a dataclass": ("@dataclasses.dataclass\nclass A{i}:\n  c: object", "A{i}({e})"),
    "a default factory": (
        "@dataclasses.dataclass\nclass A{i}:\n  c: object = dataclasses.field(default_factory=lambda: ({e}))",
        "A{i}",
    ),
    "metadata of a field": (
        "@dataclasses.dataclass\nclass A{i}:\n  c: int = dataclasses.field(default=0, metadata={{'c': {e}}})",
        "A{i}()",
    ),
    "a class that is made": ("", "type('A{i}', (), {{'c': {e}}})"),
    "a base by super": ("class B{i}:\n  c = {e}\nclass A{i}(B{i}):\n  def m(s): return super().c", "A{i}().m"),
    "a module of equinox": ("class A{i}(eqx.Module):\n  c: object\n  def m(s, x=None): return s.c", "A{i}({e}).m"),
    "a named tuple": ("", "collections.namedtuple('T{i}', 'c')({e})"),
    "a list": ("", "[{e}]"),
    "a tuple": ("", "({e}, 1)"),
    "a dictionary": ("", "{{'c': {e}}}"),
    "a list of one's own": ("class L{i}(list): pass", "L{i}([{e}])"),
    "an attribute of a list": ("class L{i}(list): pass\nl{i} = L{i}()\nl{i}.c = {e}", "l{i}"),
    "an attribute of an array": ("class L{i}(np.ndarray): pass\nl{i} = np.zeros(2).view(L{i})\nl{i}.c = {e}", "l{i}"),
    "a dictionary of one's own": ("class L{i}(dict): pass", "L{i}(c={e})"),
    "a default dictionary": ("", "collections.defaultdict(lambda: ({e}))"),
    "a namespace": ("", "types.SimpleNamespace(c={e})"),
    "a proxy": ("", "types.MappingProxyType({{'c': {e}}})"),
    "an array of objects": ("a{i} = np.empty(2, object)\na{i}[0] = {e}", "a{i}"),
    "an iterator": ("", "iter([{e}])"),
    "a chain": ("", "itertools.chain([{e}])"),
    "a map": ("", "map(lambda x: ({e}), [1])"),
    "a getter": ("C{i} = {e}\nclass A{i}:\n  c = C{i}", "functools.partial(operator.attrgetter('c'), A{i})"),
    "jit": ("", "jax.jit(lambda x: ({e}))"),
    "jit under another name": ("", "functools.wraps(use)(jax.jit(lambda x: ({e})))"),
    "a cache under another name": ("", "functools.wraps(use)(functools.lru_cache(lambda x=None: ({e})))"),
    "a partial under another name": ("", "functools.update_wrapper(functools.partial(use, {e}), use)"),
    "a partial with a name of its own": ("p{i} = functools.partial(use)\np{i}.c = {e}", "p{i}"),
    "a method of C": ("", "[{e}].count"),
    "vmap": ("", "jax.vmap(lambda x: ({e}))"),
    "a cache": ("", "functools.lru_cache(lambda x=None: ({e}))"),
    "a derivative": ("f{i} = jax.custom_jvp(lambda x: x)\nf{i}.defjvp(lambda p, t: ({e}))", "f{i}"),
    "a loop over entries": ("", "np.vectorize(lambda x: ({e}))"),
    "a dispatch": (
        "f{i} = functools.singledispatch(lambda x=None: 0)\nf{i}.register(int, lambda x: ({e}))",
        "f{i}",
    ),
    "a module": (MODULE + "def f{i}(x=None): return M{i}.c", "f{i}"),
    "a module that is handed on": (MODULE + "def g{i}(m): return m.c\ndef f{i}(x=None): return g{i}(M{i})", "f{i}"),
    "a module in a list": (MODULE + "C{i} = [M{i}]\ndef f{i}(x=None): return C{i}[0].c", "f{i}"),
    "a module by a method": (
        MODULE + "class A{i}:\n  def __init__(s, m): s.m = m\n  def __call__(s, x=None): return s.m.c",
        "A{i}(M{i})",
    ),
    "a module by a word": (MODULE + "def f{i}(x=None): return getattr(M{i}, 'c')", "f{i}"),
    "a module by a word elsewhere": (MODULE + "W{i} = 'c'\ndef f{i}(x=None): return getattr(M{i}, W{i})", "f{i}"),
    "a module that is imported": (MODULE + "def f{i}(x=None):\n  import m{i} as m\n  return m.c", "f{i}"),
    "a name that is imported": (MODULE + "def f{i}(x=None):\n  from m{i} import c\n  return c", "f{i}"),
    "a module of a module": (
        MODULE + "P{i} = types.ModuleType('p{i}')\nP{i}.m = M{i}\ndef f{i}(x=None): return P{i}.m.c",
        "f{i}",
    ),
    "a module by its name": (
        MODULE + "import importlib\ndef f{i}(x=None): return importlib.import_module('m{i}').c",
        "f{i}",
    ),
    "a module of sys": (MODULE + "def f{i}(x=None): return sys.modules['m{i}'].c", "f{i}"),
    "a module by parts of a word": (MODULE + "def f{i}(x=None): return getattr(M{i}, 'C'.lower())", "f{i}"),
    "a dictionary of a module": (MODULE + "def f{i}(x=None): return M{i}.__dict__['C'.lower()]", "f{i}"),
    "a module that makes its names": (
        "M{i} = types.ModuleType('m{i}')\nM{i}.__getattr__ = lambda n: ({e})\ndef f{i}(x=None): return M{i}.zzz",
        "f{i}",
    ),
    "a class of a module": (
        "class T{i}(types.ModuleType):\n  c = {e}\nM{i} = T{i}('m{i}')\ndef f{i}(x=None): return M{i}.c",
        "f{i}",
    ),
    "a patched builtin": ("import builtins\nbuiltins.oct = {e}\ndef f{i}(x=None): return oct(x)", "f{i}"),
    "a patch with the name of what was there": (
        "@functools.wraps(sp.linalg.det)\ndef g{i}(x=None): return ({e})\n"
        "sp.linalg.det = g{i}\ndef f{i}(x=None): return sp.linalg.det(x)",
        "f{i}",
    ),
    "a patch in a wrapper with the name of what was there": (
        "sp.linalg.inv = jax.jit(functools.wraps(sp.linalg.inv)(lambda x=None: ({e})))\n"
        "def f{i}(x=None): return sp.linalg.inv(x)",
        "f{i}",
    ),
    "a name that was taken": (
        "def f{i}(x=None): return ({e})\nf{i}.__module__, f{i}.__qualname__ = 'numpy', 'sin'",
        "f{i}",
    ),
    "a patched library": ("sp.linalg.lu = {e}\ndef f{i}(x=None): return sp.linalg.lu", "f{i}"),
    "a patched library that is imported": (
        "sp.linalg.qr = {e}\ndef f{i}(x=None):\n  from scipy.linalg import qr\n  return qr",
        "f{i}",
    ),
    "a module with the name of a library": (
        "M{i} = types.ModuleType('scipy.linalg')\nM{i}.c = {e}\ndef f{i}(x=None): return M{i}.c",
        "f{i}",
    ),
    "a patched class": (
        "sp.interpolate.PPoly.solve = {e}\ndef f{i}(x=None): return sp.interpolate.PPoly.solve",
        "f{i}",
    ),
    "a patched method": (
        "sp.interpolate.PPoly.roots = {e}\ndef f{i}(x=sp.interpolate.PPoly([[1.0]], [0.0, 1.0])): return x.roots",
        "f{i}",
    ),
    "its own words": ("def f{i}(x=None): return f{i}.__doc__\nf{i}.__doc__ = {e}", "f{i}"),
    "its own annotations": (
        "def f{i}(x=None): return f{i}.__annotations__\nf{i}.__annotations__ = dict(c={e})",
        "f{i}",
    ),
    "its own globals": ("C{i} = {e}\ndef f{i}(x=None): return f{i}.__globals__['C{i}']", "f{i}"),
    "eval": ("C{i} = {e}\ndef f{i}(x=None): return eval('C{i}')", "f{i}"),
    "eval in a closure": ("C{i} = {e}\ndef mk{i}(c):\n  return lambda x=None: c('C{i}')", "mk{i}(eval)"),
    "a generator": ("", "((lambda: ({e})) for _ in [1])"),
    "a function behind a ufunc": ("", "np.frompyfunc(lambda x: ({e}), 1, 1)"),
}
REFUSED = {
    "a deque whose reduction lies",
    "jit under another name",
    "a cache under another name",
    "a dictionary that lies",
    "a module by its name",
    "a module of sys",
    "its own words",
    "its own annotations",
    "its own globals",
    "eval",
    "eval in a closure",
    "a generator",
    "an iterator",
    "a chain",
    "a map",
    "a function behind a ufunc",
}
"""Layers that show nothing of what they hold."""


class Pair(NamedTuple):
    """Two programs that make `f`, and what they are."""

    name: str
    one: str
    other: str


def pair_of(value: str, layers: list[str]) -> Pair:
    """The two values under some layers, the first of which is the innermost."""
    return Pair(" in ".join((value, *layers)), *(_program(text, layers) for text in VALUES[value]))


def random_pair(rng: random.Random, depth: int) -> Pair:
    """A value under `depth` layers."""
    return pair_of(rng.choice(list(VALUES)), rng.sample(list(LAYERS), depth))


def _program(expression: str, layers: list[str]) -> str:
    lines = [HEAD]
    for i, layer in enumerate(layers):
        statements, expression = (part.format(e=f"({expression})", i=i) for part in LAYERS[layer])
        lines.append(statements)
        # From here on the value is known by a name.
        lines.append(f"V{i} = {expression}")
        expression = f"V{i}"
    return "\n".join([*lines, f"f = {expression}"])


@contextmanager
def run_program(text: str, name: str = "a_module_of_mine") -> Iterator[Any]:
    """The `f` of a program; modules that it makes and libraries that it patches are as before afterwards."""
    module, modules = types.ModuleType(name), dict(sys.modules)
    homes = {scipy.linalg: ("lu", "det", "inv", "qr"), scipy.interpolate.PPoly: ("solve", "roots"), builtins: ("oct",)}
    before = [(home, part, getattr(home, part)) for home, parts in homes.items() for part in parts]
    try:
        exec(compile(text, f"<{name}>", "exec"), module.__dict__)
        yield module.f
    finally:
        for home, part, value in before:
            setattr(home, part, value)
        for added in sys.modules.keys() - modules.keys():
            if added[:1] in "mp" and added[1:].isdigit():
                del sys.modules[added]
