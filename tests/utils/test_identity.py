"""Two functions have one identity only where they compute the same; `random_functions` makes pairs that nearly do."""

import functools
import os
import random
import subprocess
import sys
import threading
import types
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
import scipy.interpolate
import scipy.stats
import xarray as xr

import bayes_mdp as bm
from bayes_mdp.utils.identity import UNDESCRIBED_DEFAULT, UnidentifiedError, _state, added_defaults, identity
from tests.utils.random_functions import LAYERS, REFUSED, VALUES, pair_of, random_pair, run_program

HOME = """
import functools, operator
import equinox as eqx, jax, jax.numpy as jnp, numpy as np
from dataclasses import dataclass, field
"""

PAIRS = {
    "a constant": ("f = lambda x: x + 1.0", "f = lambda x: x + 2.0"),
    "kinds of one": ("f = lambda x: x + 1", "f = lambda x: x + 1.0"),
    "one and true": ("f = lambda x: x + 1", "f = lambda x: x + True"),
    "signs of zero": ("f = lambda x: x * 0.0", "f = lambda x: x * -0.0"),
    "an operator": ("f = lambda x: x + 1", "f = lambda x: x - 1"),
    "a method": ("f = lambda x: x.sum()", "f = lambda x: x.mean()"),
    "a keyword": ("f = lambda x: jnp.sum(x, axis=0)", "f = lambda x: jnp.sum(x, axis=1)"),
    "a set": ("f = lambda x: x in {1, 2}", "f = lambda x: x in {1, 3}"),
    "a closure": (
        "def mk(c):\n  return lambda x: x + c\nf = mk(1.0)",
        "def mk(c):\n  return lambda x: x + c\nf = mk(50.0)",
    ),
    "a closed array": (
        "def mk(c):\n  return lambda x: x + c\nf = mk(np.zeros(99))",
        "def mk(c):\n  return lambda x: x + c\nf = mk(np.arange(99) == 50)",
    ),
    "a type of an array": (
        "def mk(c):\n  return lambda x: x + c\nf = mk(np.zeros(9))",
        "def mk(c):\n  return lambda x: x + c\nf = mk(np.zeros(9, np.float32))",
    ),
    "a shape": (
        "def mk(c):\n  return lambda x: x + c\nf = mk(jnp.zeros((2, 3)))",
        "def mk(c):\n  return lambda x: x + c\nf = mk(jnp.zeros((3, 2)))",
    ),
    "a key": (
        "def mk(c):\n  return lambda x: x + c\nf = mk(jax.random.key(1))",
        "def mk(c):\n  return lambda x: x + c\nf = mk(jax.random.key(2))",
    ),
    "a mask": (
        "def mk(c):\n  return lambda x: x + c\nf = mk(np.ma.masked_array([1.0, 2.0], [True, False]))",
        "def mk(c):\n  return lambda x: x + c\nf = mk(np.ma.masked_array([1.0, 2.0], [False, True]))",
    ),
    "a closure of a closure": (
        "def mk(c):\n  g = lambda x: x * c\n  return lambda x: g(x)\nf = mk(1)",
        "def mk(c):\n  g = lambda x: x * c\n  return lambda x: g(x)\nf = mk(2)",
    ),
    "a default": ("def f(x, c=1): return x + c", "def f(x, c=2): return x + c"),
    "a default of a keyword": ("def f(x, *, c=1): return x + c", "def f(x, *, c=2): return x + c"),
    "an attribute": ("def f(x): return x + f.c\nf.c = 1", "def f(x): return x + f.c\nf.c = 2"),
    "its own name": ("def f(): return f.__name__", "def f(): return f.__name__\nf.__name__ = 'g'"),
    "a nested function": (
        "def f(x):\n  def g(y): return y + 1\n  return g(x)",
        "def f(x):\n  def g(y): return y + 2\n  return g(x)",
    ),
    "a comprehension": ("f = lambda x: [y + 1 for y in x]", "f = lambda x: [y + 2 for y in x]"),
    "a nested class": (
        "def f(x):\n  class A:\n    c = 1\n  return A.c",
        "def f(x):\n  class A:\n    c = 2\n  return A.c",
    ),
    "a global": ("C = 1\nf = lambda x: x + C", "C = 2\nf = lambda x: x + C"),
    "a global array": ("C = np.zeros(50)\nf = lambda x: x + C", "C = np.ones(50)\nf = lambda x: x + C"),
    "a global of a nested function": (
        "C = 1\ndef f(x):\n  return (lambda y: y + C)(x)",
        "C = 2\ndef f(x):\n  return (lambda y: y + C)(x)",
    ),
    "a global function": (
        "def g(x): return x + 1\nf = lambda x: g(x)",
        "def g(x): return x + 2\nf = lambda x: g(x)",
    ),
    "a global of a global function": (
        "C = 1\ndef g(x): return x + C\nf = lambda x: g(x)",
        "C = 2\ndef g(x): return x + C\nf = lambda x: g(x)",
    ),
    "a name of a library": ("g = jnp.sin\nf = lambda x: g(x)", "g = jnp.cos\nf = lambda x: g(x)"),
    "a shadowed builtin": ("f = lambda x: max(x)", "def max(x): return 0\nf = lambda x: max(x)"),
    "a recursion": (
        "def f(x): return x if x < 1 else f(x - 1)",
        "def f(x): return x if x < 1 else f(x - 2)",
    ),
    "functions that call each other": (
        "def f(x): return g(x)\ndef g(x): return f(x - 1) if x > 0 else 1",
        "def f(x): return g(x)\ndef g(x): return f(x - 1) if x > 0 else 2",
    ),
    "a partial": ("f = functools.partial(operator.add, 1)", "f = functools.partial(operator.add, 2)"),
    "a keyword of a partial": (
        "f = functools.partial(jnp.sum, axis=0)",
        "f = functools.partial(jnp.sum, axis=1)",
    ),
    "a partial of a lambda": (
        "f = functools.partial(lambda x, y: x + y, 1)",
        "f = functools.partial(lambda x, y: x - y, 1)",
    ),
    "self": (
        "class A:\n  def __init__(s, c): s.c = c\n  def m(s, x): return x + s.c\nf = A(1).m",
        "class A:\n  def __init__(s, c): s.c = c\n  def m(s, x): return x + s.c\nf = A(2).m",
    ),
    "a callable": (
        "class A:\n  def __init__(s, c): s.c = c\n  def __call__(s, x): return x + s.c\nf = A(1)",
        "class A:\n  def __init__(s, c): s.c = c\n  def __call__(s, x): return x + s.c\nf = A(2)",
    ),
    "code of a callable": (
        "class A:\n  def __call__(s, x): return x + 1\nf = A()",
        "class A:\n  def __call__(s, x): return x + 2\nf = A()",
    ),
    "an inherited method": (
        "class B:\n  def g(s): return 1\nclass A(B):\n  def __call__(s, x): return s.g()\nf = A()",
        "class B:\n  def g(s): return 2\nclass A(B):\n  def __call__(s, x): return s.g()\nf = A()",
    ),
    "a property": (
        "class A:\n  @property\n  def g(s): return 1\nf = A()",
        "class A:\n  @property\n  def g(s): return 2\nf = A()",
    ),
    "a static method": (
        "class A:\n  @staticmethod\n  def g(): return 1\nf = A()",
        "class A:\n  @staticmethod\n  def g(): return 2\nf = A()",
    ),
    "a class attribute": ("class A:\n  c = 1\nf = A()", "class A:\n  c = 2\nf = A()"),
    "slots": (
        "class A:\n  __slots__ = ('__c',)\n  def __init__(s, c): s.__c = c\nf = A(1)",
        "class A:\n  __slots__ = ('__c',)\n  def __init__(s, c): s.__c = c\nf = A(2)",
    ),
    "a state that pickling hides": (
        "class A:\n  def __init__(s, c): s.c = c\n  def __getstate__(s): return {}\nf = A(1)",
        "class A:\n  def __init__(s, c): s.c = c\n  def __getstate__(s): return {}\nf = A(2)",
    ),
    "a reduction that lies": (
        "class A:\n  def __init__(s, c): s.c = c\n  def __reduce__(s): return (A, (0,))\nf = A(1)",
        "class A:\n  def __init__(s, c): s.c = c\n  def __reduce__(s): return (A, (0,))\nf = A(2)",
    ),
    "a dataclass": ("@dataclass\nclass A:\n  c: int\nf = A(1)", "@dataclass\nclass A:\n  c: int\nf = A(2)"),
    "a default factory": (
        "@dataclass\nclass A:\n  c: list = field(default_factory=lambda: [1])\nf = A",
        "@dataclass\nclass A:\n  c: list = field(default_factory=lambda: [2])\nf = A",
    ),
    "an attribute that is no field": (
        "@dataclass\nclass A:\n  c: int = 0\nf = A()\nf.more = 1",
        "@dataclass\nclass A:\n  c: int = 0\nf = A()\nf.more = 2",
    ),
    "a module of equinox": (
        "class A(eqx.Module):\n  c: jax.Array\n  def __call__(s, x): return x * s.c\nf = A(jnp.ones(40))",
        "class A(eqx.Module):\n  c: jax.Array\n  def __call__(s, x): return x * s.c\nf = A(jnp.zeros(40))",
    ),
    "a method of equinox": (
        "class A(eqx.Module):\n  c: jax.Array\n  def g(s, x): return x * s.c\nf = A(jnp.ones(40)).g",
        "class A(eqx.Module):\n  c: jax.Array\n  def g(s, x): return x * s.c\nf = A(jnp.zeros(40)).g",
    ),
    "code of a module of equinox": (
        "class A(eqx.Module):\n  def __call__(s, x): return x + 1\nf = A()",
        "class A(eqx.Module):\n  def __call__(s, x): return x + 2\nf = A()",
    ),
    "content of a list": ("C = [1, [2]]\nf = lambda x: C", "C = [1, [3]]\nf = lambda x: C"),
    "a list and a tuple": ("C = [1, 2]\nf = lambda x: C", "C = (1, 2)\nf = lambda x: C"),
    "order of a dictionary": ("C = {1: 2, 3: 4}\nf = lambda: C", "C = {3: 4, 1: 2}\nf = lambda: C"),
    "content of a list of one's own": (
        "class L(list): pass\nC = L([1])\nf = lambda: C",
        "class L(list): pass\nC = L([2])\nf = lambda: C",
    ),
    "content of a number of one's own": (
        "class N(float): pass\nC = N(1)\nf = lambda: C",
        "class N(float): pass\nC = N(2)\nf = lambda: C",
    ),
    "a function in a set": ("C = {lambda: 1}\nf = lambda: C", "C = {lambda: 2}\nf = lambda: C"),
    "what jit wraps": ("f = jax.jit(lambda x: x + 1)", "f = jax.jit(lambda x: x + 2)"),
    "what vmap wraps": ("f = jax.vmap(lambda x: x + 1)", "f = jax.vmap(lambda x: x + 2)"),
    "how vmap wraps": ("g = lambda x: x\nf = jax.vmap(g, 0)", "g = lambda x: x\nf = jax.vmap(g, 1)"),
    "what lru_cache wraps": ("f = functools.lru_cache(lambda x: x + 1)", "f = functools.lru_cache(lambda x: x + 2)"),
    "what a decorator wraps": (
        "def d(g):\n  @functools.wraps(g)\n  def h(x): return g(x)\n  return h\n@d\ndef f(x): return 1",
        "def d(g):\n  @functools.wraps(g)\n  def h(x): return g(x)\n  return h\n@d\ndef f(x): return 2",
    ),
    "a derivative of one's own": (
        "@jax.custom_jvp\ndef f(x): return x\nf.defjvp(lambda p, t: (p, t))",
        "@jax.custom_jvp\ndef f(x): return x\nf.defjvp(lambda p, t: (p, 2 * t))",
    ),
    "np.vectorize": ("f = np.vectorize(lambda x: x + 1)", "f = np.vectorize(lambda x: x + 2)"),
    "a bound method of C": ("f = [1].count", "f = [2].count"),
    "a method of C": ("f = str.upper", "f = str.lower"),
    "a stream of random numbers": ("f = np.random.default_rng(1).normal", "f = np.random.default_rng(2).normal"),
    "random.Random": ("import random\nf = random.Random(1).random", "import random\nf = random.Random(2).random"),
    "re": ("import re\nf = re.compile('a').match", "import re\nf = re.compile('b').match"),
    "a generator": ("def f():\n  yield 1", "def f():\n  yield 2"),
    "an exception that is caught": (
        "def f(x):\n  try: return x()\n  except ValueError: return 1",
        "def f(x):\n  try: return x()\n  except KeyError: return 1",
    ),
}


def _made(text: str, name: str = "a_module_of_mine") -> Any:
    module = types.ModuleType(name)
    exec(compile(HOME + text, f"<{name}>", "exec"), module.__dict__)
    return module.f


@pytest.mark.parametrize("name", PAIRS)
def test_nearly_equal_functions_are_told_apart_and_equal_ones_are_not(name):
    one, other = PAIRS[name]
    assert identity(_made(one)) == identity(_made(one)), "the same text twice"
    assert identity(_made(one)) != identity(_made(other))


def some_programs():
    """One under each layer, and some under several."""
    rng = random.Random(1)
    pairs = [pair_of("one entry of an array", [layer]) for layer in LAYERS]
    return [pair.one for pair in (*pairs, *(random_pair(rng, 3) for _ in range(30)))]


def _identity_of(text):
    """The identity of the `f` of a program; None: it has none."""
    with run_program(text) as function:
        try:
            return identity(function)
        except UnidentifiedError:
            return None


def _check_pair(pair):
    one, again, other = map(_identity_of, (pair.one, pair.one, pair.other))
    assert one == again, f"the same text twice: {pair.name}"
    assert one is None or one != other, pair.name
    assert one is not None or not REFUSED.isdisjoint(pair.name.split(" in ")), pair.name


@pytest.mark.parametrize("layer", LAYERS)
def test_a_value_counts_wherever_a_function_finds_it(layer):
    """Or there is no identity: never one for both."""
    for value in ("integers", "code", "one entry of an array"):
        _check_pair(pair_of(value, [layer]))


@pytest.mark.parametrize("value", VALUES)
def test_values_are_told_apart(value):
    _check_pair(pair_of(value, ["a closure"]))


@pytest.mark.parametrize("number", [60, pytest.param(1500, marks=pytest.mark.slow)])
def test_a_value_counts_under_any_layers(number, key):
    rng = random.Random(int(jax.random.key_data(key)[-1]))
    for _ in range(number):
        _check_pair(random_pair(rng, rng.randint(2, 4)))


def test_names_that_a_library_loads_when_they_are_asked_for_change_nothing():
    program = "import bayes_mdp as bm, scipy\nf = lambda: (bm.agents.UCRL2, scipy.fft.fft, bm.envs.chain)"
    names = [(home, name) for home, name in ((bm.agents, "UCRL2"), (bm.envs, "chain")) if name in vars(home)]
    for home, name in names:
        delattr(home, name)
    before = identity(_made(program))
    assert _made(program)() is not None and identity(_made(program)) == before


def _frame(values=(1, 2), name=None, unit=1, **options):
    frame = pd.DataFrame({"a": list(values), "b": ["x", "y"]}, **options)
    frame.index.name, frame.attrs["unit"] = name, unit
    return frame


def _graph(weight):
    graph = pytest.importorskip("networkx").Graph()
    graph.add_edge(1, 2, weight=weight)
    return graph


def _look_up(index):
    return index.get_loc(index[0]), index.is_unique, index.is_monotonic_increasing, index.get_indexer(index[:1])


def _use_frame(frame):
    return frame.loc[0], frame["a"], _look_up(frame.index), _look_up(frame.columns), frame.groupby("a").sum(), frame.T


def _labelled(value, unit=1):
    return xr.Dataset({"a": ("x", [1.0, value])}, coords={"x": [0, 1]}, attrs={"unit": unit})


OBJECTS = {
    "values of a frame": (_frame, lambda: _frame((1, 3)), _use_frame),
    "types of a frame": (_frame, lambda: _frame().astype({"a": np.int32}), _use_frame),
    "rows of a frame": (_frame, lambda: _frame(index=[0, 2]), _use_frame),
    "columns of a frame": (_frame, lambda: _frame().rename(columns={"b": "c"}), _use_frame),
    "a name of an index": (_frame, lambda: _frame(name="row"), _use_frame),
    "attributes of a frame": (_frame, lambda: _frame(unit=2), _use_frame),
    "a series": (lambda: pd.Series([1.0, 2.0]), lambda: pd.Series([1.0, 3.0]), lambda x: (x.loc[0], x.mean())),
    "a name of a series": (lambda: pd.Series([1], name="s"), lambda: pd.Series([1], name="t"), lambda x: x.loc[0]),
    "missing text": (
        lambda: pd.Series(["a", None], dtype="string"),
        lambda: pd.Series(["a", "b"], dtype="string"),
        str,
    ),
    "an index": (lambda: pd.Index(["a", "b"]), lambda: pd.Index(["a", "c"]), _look_up),
    "dates": (lambda: pd.date_range("2020", periods=3), lambda: pd.date_range("2021", periods=3), _look_up),
    "labels of levels": (
        lambda: pd.MultiIndex.from_tuples([(1, "a"), (2, "b")]),
        lambda: pd.MultiIndex.from_tuples([(1, "a"), (2, "c")]),
        _look_up,
    ),
    "names of levels": (
        lambda: pd.MultiIndex.from_tuples([(1, "a")], names=["p", "q"]),
        lambda: pd.MultiIndex.from_tuples([(1, "a")], names=["p", "r"]),
        _look_up,
    ),
    "categories": (
        lambda: pd.Categorical(["a", "b"]),
        lambda: pd.Categorical(["a", "b"], ordered=True),
        lambda x: _look_up(x.categories),
    ),
    "a data set": (lambda: _labelled(1.0), lambda: _labelled(2.0), lambda x: (x.sel(x=0), x.indexes, x.mean())),
    "attributes of a data set": (lambda: _labelled(1.0), lambda: _labelled(1.0, 2), lambda x: x.sel(x=0)),
    "an array with labels": (lambda: _labelled(1.0).a, lambda: _labelled(2.0).a, lambda x: (x.sel(x=0), x.indexes)),
    "a spline": (
        lambda: scipy.interpolate.CubicSpline([0, 1, 2], [0, 1, 3]),
        lambda: scipy.interpolate.CubicSpline([0, 1, 2], [0, 1, 4]),
        lambda x: x(0.5),
    ),
    "an interpolation": (
        lambda: scipy.interpolate.interp1d([0, 1], [0, 1]),
        lambda: scipy.interpolate.interp1d([0, 1], [0, 2]),
        lambda x: x(0.5),
    ),
    "a law of SciPy": (
        lambda: scipy.stats.norm(0, 1),
        lambda: scipy.stats.norm(0, 2),
        lambda x: (x.pdf(0.2), x.rvs(2), x.ppf(0.1)),
    ),
    "a graph": (lambda: _graph(1), lambda: _graph(2), lambda x: (x.edges, x.adj, x.degree, x.nodes)),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_of_packages_are_what_they_hold_whatever_they_have_cached(name):
    make, make_other, use = OBJECTS[name]
    value = make()
    before = identity(lambda: value)
    use(value)
    assert identity(lambda: value) == before
    value = make()
    assert identity(lambda: value) == before
    value = make_other()
    assert identity(lambda: value) != before


def test_the_state_of_a_library_is_no_part_of_what_uses_it():
    function = _made("import os, random\nf = lambda: (random.random(), np.random.normal(), jax.config, os.environ)")
    before = identity(function)
    assert np.random.normal() != random.random()
    assert identity(function) == before


def test_the_identity_is_that_of_another_process():
    """Whatever the hash seed and the addresses are; closures and globals included."""
    text = "\n".join(
        [
            "import sys; sys.path[:0] = sys.argv[1:]",
            "from tests.utils.test_identity import PAIRS, _identity_of, _made, some_programs",
            "from bayes_mdp.utils.identity import identity",
            "print('\\n'.join(identity(_made(text)) for pair in PAIRS.values() for text in pair))",
            "print('\\n'.join(str(_identity_of(text)) for text in some_programs()))",
        ]
    )
    environment = {**os.environ, "PYTHONHASHSEED": "5"}
    command = [sys.executable, "-c", text, str(Path(__file__).parents[2])]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
    expected = [identity(_made(text)) for pair in PAIRS.values() for text in pair]
    assert found == expected + [str(_identity_of(text)) for text in some_programs()]


@pytest.mark.parametrize("edit", ["\n\n# a comment\n", "'''words'''\n"])
def test_places_and_words_do_not_matter(edit):
    assert identity(_made(edit + "def f(x):\n  return x + 1")) == identity(_made("def f(x):\n  return x + 1"))
    one, other = (_made(f'def f(x):\n  """{words}"""\n  return x + 1') for words in ("one", "two"))
    assert identity(one) == identity(other)
    returned = [_made(f"def f(x):\n  return {words!r}") for words in ("one", "two")]
    assert identity(returned[0]) != identity(returned[1])


def test_one_name_in_two_modules():
    text = "f = lambda x: x + 1"
    assert identity(_made(text, "one_of_mine")) != identity(_made(text, "other_of_mine"))


def test_modules_of_the_person_are_looked_into(tmp_path, monkeypatch):
    """A constant of a module that is imported above, inside the function, or asked for by a word."""
    monkeypatch.syspath_prepend(tmp_path)
    for head, body in (
        ("import constants_of_mine", "return x + constants_of_mine.C"),
        ("", "import constants_of_mine\n  return x + constants_of_mine.C"),
        ("", "from constants_of_mine import C\n  return x + C"),
        ("import constants_of_mine", "return x + getattr(constants_of_mine, 'C')"),
        ("import constants_of_mine as c\ndef g(x): return c.UNUSED", "return g(x) + c.C"),
    ):
        found = []
        for number in (1, 2):
            (tmp_path / "constants_of_mine.py").write_text(f"C = {number}\nUNUSED = 3\n")
            sys.modules.pop("constants_of_mine", None)
            sys.path_importer_cache.clear()
            module = types.ModuleType("constants_of_mine")
            exec((tmp_path / "constants_of_mine.py").read_text(), module.__dict__)
            monkeypatch.setitem(sys.modules, "constants_of_mine", module)
            found.append(identity(_made(f"{head}\ndef f(x):\n  {body}")))
        assert found[0] != found[1], body


@dataclass
class Node:
    """May lead to itself."""

    value: int
    following: Any = None


def test_what_leads_to_itself_ends():
    def ring(*values):
        nodes = [Node(value) for value in values]
        for node, following in zip(nodes, [*nodes[1:], nodes[0]], strict=True):
            node.following = following
        return nodes[0]

    assert identity(ring(1, 2)) == identity(ring(1, 2)) != identity(ring(1, 3))
    held: list[Any] = [1]
    held.append(held)
    assert identity(held) != identity([1, [1]])
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(UnidentifiedError, match="prior is nested too deeply"):
        identity(deep, "prior")
    while deep:  # or the collector recurses
        deep = deep[0]


def test_what_is_computed_once_and_kept_changes_nothing():
    class Lazy:
        @functools.cached_property
        def table(self):
            return np.zeros(3)

    lazy, law = Lazy(), dist.MultivariateNormal(jnp.zeros(2), jnp.eye(2))
    before = identity(lazy), identity(law)
    assert lazy.table is lazy.table and law.covariance_matrix is not None
    assert (identity(lazy), identity(law)) == before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("a generator", (i for i in range(3))),
        ("a lock", threading.Lock()),
        ("an open file", sys.__stdout__),
        ("a function behind a ufunc", np.frompyfunc(lambda x: x, 1, 1)),
        ("eval", lambda x: eval("x")),
        ("globals", lambda x: globals()["x"]),
    ],
)
def test_what_hides_what_it_does_has_no_identity(name, value):
    with pytest.raises(UnidentifiedError, match=r"^prior.*, which does not show what it does$") as caught:
        identity({"x": value}, "prior")
    assert "\n" not in str(caught.value)


def test_traced_values_have_no_identity():
    def f(x):
        with pytest.raises(UnidentifiedError, match=r"prior.x is a traced value"):
            identity(lambda: x, "prior")
        return x

    jax.eval_shape(f, 1.0)


def test_libraries_are_known_by_name_and_version():
    for value in (jnp.sin, jax.nn.relu, np.sin, len, dist.Normal, eqx.Module, random.random, functools.partial, jax):
        assert identity(value) == identity(value)


def test_a_default_that_was_added_later_changes_nothing():
    """As if the field were not there; another value is another record."""

    @dataclass
    class Old:
        horizon: int

    @dataclass
    class New:
        horizon: int
        discount: float = field(default=1.0, metadata={UNDESCRIBED_DEFAULT: True})

    assert added_defaults(New(3)) == added_defaults(New(3, discount=1)) == ["discount"]
    assert added_defaults(New(3, 0.9)) == added_defaults(Old(3)) == added_defaults(New) == added_defaults(3) == []
    assert identity(New(3)) == identity(New(3, 1.0)) != identity(New(3, 0.9)) != identity(New(3, 0.8))
    assert identity(lambda: bm.Episodic(3)) != identity(lambda: bm.Episodic(3, 0.9))
    states = [_state(bm.Episodic(3, discount), "x") for discount in (1.0, 0.9)]
    assert ["discount" in state for state in states] == [False, True]
