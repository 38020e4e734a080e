"""What the data flow says of degrees and selections, against numbers: random programs, linear and others."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from bayes_mdp.inference.detection.degrees import HIGHER, is_affine, output_flows, site_flow
from bayes_mdp.inference.detection.trace import trace_program
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.models import MDPSpec

SIZE = 3
KNOWN = np.array([0.5, -1.5, 2.0])


def loop(x):
    return jax.lax.fori_loop(0, 3, lambda i, v: v * 1.5 + KNOWN[0], x)


def scanned(x, y):
    """x multiplied by y in each turn: of a higher degree in y."""
    return jax.lax.scan(lambda v, _: (v * y, v), x, None, length=3)[0]


def collected(x, y):
    return jax.lax.scan(lambda v, row: (v + row, v * KNOWN), x, jnp.stack([y, 2 * y]))[1].sum(0)


UNARY = {
    "scale": lambda x: x * KNOWN,
    "divide": lambda x: x / KNOWN,
    "shift": lambda x: x + 1.0,
    "negate": lambda x: -x,
    "reverse": lambda x: x[::-1],
    "take": lambda x: x[np.array([2, 0, 0])],
    "slice": lambda x: jnp.concatenate([x[1:], x[:1]]),
    "sum": lambda x: jnp.broadcast_to(x.sum(), (SIZE,)),
    "cumsum": jnp.cumsum,
    "matrix": lambda x: x @ np.arange(9.0).reshape(3, 3),
    "set": lambda x: jnp.zeros(SIZE).at[1].set(x[2]),
    "add_at": lambda x: jnp.ones(SIZE).at[np.array([0, 0])].add(x[:2]),
    "pad": lambda x: jnp.pad(x, (1, 1))[:SIZE],
    "jitted": jax.jit(lambda x: 2 * x - 1),
    "loop": loop,
    "branch": lambda x: jax.lax.cond(KNOWN[0] > 0, lambda v: v, lambda v: 2 * v, x),
    "where_known": lambda x: jnp.where(KNOWN > 0, x, 1.0),
    # not affine
    "exp": jnp.exp,
    "square": jnp.square,
    "inverse": lambda x: 1 / (3 + x),
    "floor": jnp.floor,
    "absolute": jnp.abs,
    "rounded": lambda x: x.astype(int).astype(float),
    "narrow": lambda x: x.astype(jnp.float16).astype(float),
    "sorted": jnp.sort,
    "clipped": lambda x: jnp.clip(x, -0.1, 0.1),
    "where": lambda x: jnp.where(x > 0, 1.0, 0.0),
    "branch_on": lambda x: jax.lax.cond(x[0] > 0, lambda v: v, lambda v: -v, x),
    "index": lambda x: jnp.asarray(KNOWN)[(x > 0).astype(int)],
    "while": lambda x: jax.lax.while_loop(lambda v: v[0] < 5, lambda v: v + 1, x),
    "largest": lambda x: jnp.maximum(x, 0.0),
    "scanned_square": lambda x: jax.lax.scan(lambda v, r: (v, v * r), x, x[None])[1][0],
    "custom": jax.nn.relu,
}
BINARY = {
    "add": jnp.add,
    "subtract": jnp.subtract,
    "multiply": jnp.multiply,
    "dot": lambda x, y: jnp.broadcast_to(x @ y, (SIZE,)),
    "outer": lambda x, y: jnp.outer(x, y)[:, 1],
    "join": lambda x, y: jnp.concatenate([x, y])[2:5],
    "divide": lambda x, y: x / (4 + y),
    "larger": jnp.maximum,
    "chosen": lambda x, y: jnp.where(x > y, x, y),
    "scanned": scanned,
    "collected": collected,
    "power": lambda x, y: (3 + jnp.abs(x)) ** y,
}


def random_program(rng):
    """An expression of some operations over the sites a and b, and its text."""
    names = [str(rng.choice(list(UNARY))) for _ in range(rng.integers(1, 4))]
    more = [str(rng.choice(list(UNARY))) for _ in range(rng.integers(0, 3))]
    join, last = str(rng.choice(list(BINARY))), str(rng.choice(["a", "b", "both"]))

    def program(a, b):
        x = a
        for name in names:
            x = UNARY[name](x)
        y = {"a": a, "b": b, "both": a + b}[last]
        for name in more:
            y = UNARY[name](y)
        return BINARY[join](x, y)

    return program, f"{join}({'.'.join(names)} of a, {'.'.join(more)} of {last})"


def flow_of(program):
    with jax.enable_x64(True):
        closed = jax.make_jaxpr(program)(jnp.zeros(SIZE), jnp.zeros(SIZE))
    return output_flows(closed.jaxpr, [site_flow("a"), site_flow("b")])[0]


def runs_along_lines(function, rng):
    """On random segments: the middle and a point far out are where a line is."""
    for _ in range(6):
        start, step = rng.normal(size=(2, SIZE)) * 1.5
        values = [np.asarray(function(start + t * step)) for t in (0.0, 0.5, 1.0, 3.0)]
        if not np.allclose(values[1], (values[0] + values[2]) / 2, rtol=1e-9, atol=1e-9):
            return False
        if not np.allclose(values[3], values[0] + 3 * (values[2] - values[0]), rtol=1e-8, atol=1e-8):
            return False
    return True


def check(program, text, rng):
    """What is claimed of a program holds; returns whether something was claimed."""
    flow = flow_of(program)
    with jax.enable_x64(True):
        compiled = jax.jit(program)
        other = rng.normal(size=SIZE)
        for name, held in (("a", lambda x: compiled(x, other)), ("b", lambda x: compiled(other, x))):
            if flow.degrees.get(name, 0) < HIGHER:
                assert runs_along_lines(held, rng), f"{name} in {text}"
            if name not in flow.degrees:
                assert np.array_equal(held(rng.normal(size=SIZE)), held(rng.normal(size=SIZE))), f"{name} in {text}"
        if flow.selects is not None:
            ones, numbered = np.ones(SIZE), 1.0 + np.arange(SIZE)
            at = [compiled(x, x) for x in (ones, numbered, np.zeros(SIZE))]
            index = np.asarray(at[1]) / np.asarray(at[0])
            assert np.isin(np.rint(index), [1, 2, 3]).all() and np.allclose(index, np.rint(index)), text
            assert not np.any(at[2]), text
    return min(flow.degrees.get("a", 0), flow.degrees.get("b", 0)) < HIGHER or flow.selects is not None


@pytest.mark.parametrize("seed", range(6))
def test_random_programs_are_what_is_claimed_of_them(seed):
    rng = np.random.default_rng(seed)
    claimed = sum(check(*random_program(rng), rng) for _ in range(25))
    assert claimed >= 8  # not all is called of higher degree


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6, 40))
def test_more_random_programs(seed):
    rng = np.random.default_rng(seed)
    for _ in range(60):
        check(*random_program(rng), rng)


LINEAR = "scale divide shift negate reverse take slice sum cumsum matrix set add_at pad jitted loop branch where_known"
SELECTING = "scale divide negate reverse take slice"


@pytest.mark.parametrize("name", list(UNARY))
def test_one_operation(name):
    flow = flow_of(lambda a, b: UNARY[name](a))
    assert flow.degrees == {"a": 1 if name in LINEAR.split() else HIGHER}
    assert flow.selects == ("a" if name in SELECTING.split() else None)


def test_products_of_different_sites_are_of_degree_one_in_each():
    assert flow_of(lambda a, b: jnp.outer(a, b) @ KNOWN).degrees == {"a": 1, "b": 1}
    assert flow_of(lambda a, b: a * b * a).degrees == {"a": HIGHER, "b": 1}
    assert flow_of(collected).degrees == {"a": 1, "b": 1}
    assert flow_of(scanned).degrees == {"a": 1, "b": HIGHER}


def test_a_known_number_among_the_entries_is_no_selection():
    assert flow_of(lambda a, b: jnp.concatenate([a[:2], KNOWN[:1]])).selects is None
    assert flow_of(lambda a, b: jnp.concatenate([a[:2], b[:1]])).selects is None
    assert flow_of(lambda a, b: a + 0.0 * b).selects is None


KEY = jax.random.key(0)


@jax.jit
def _called(key, x):
    return jax.random.normal(key), 2.0 * x


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda key, x: x + 1.0, False),
        (lambda key, x: x + jax.random.normal(key), True),
        (lambda key, x: _called(key, x)[1], False),
        (lambda key, x: _called(key, x)[0], True),
        (lambda key, x: jnp.where(jax.random.bernoulli(key), 1.0, x), True),
        (lambda key, x: jax.lax.scan(lambda c, _: (c + jax.random.uniform(key), None), x, None, 3)[0], True),
        (lambda key, x: jax.lax.while_loop(lambda c: c < 1.0, lambda c: c + jax.random.uniform(key), x), True),
    ],
)
def test_dependence_on_a_key(function, expected):
    closed = jax.make_jaxpr(function)(KEY, jnp.ones(()))
    assert ("key" in output_flows(closed.jaxpr, [site_flow("key"), site_flow("x")])[0].sites) is expected


SPACE = StateActionSpace(2, 2)
MEANS = {
    "sum": (lambda w, v, h: w + 2.0 * v - 1.0, True),
    "matrix": (lambda w, v, h: jnp.array([[1.0, 2.0], [0.0, 1.0]]) * (w @ KNOWN[:2]), True),
    "loop": (lambda w, v, h: jax.lax.scan(lambda c, x: (c + x, None), v[0], w)[0], True),
    "known": (lambda w, v, h: KNOWN[0] + 0.0 * h.shape[0], True),
    "of a product": (lambda w, v, h: w * v, False),
    "of another site": (lambda w, v, h: w + h, False),
    "by another site": (lambda w, v, h: w * h, False),
    "of a square": (lambda w, v, h: jnp.square(w), False),
    "where": (lambda w, v, h: jnp.where(w > 0, w, v), False),
}


@pytest.mark.parametrize("name", MEANS)
def test_a_mean_is_affine_in_sites_together(name):
    """Degree one in each of two sites is not enough: their product is no linear regression."""
    mean, expected = MEANS[name]

    def prior(space):
        w, v, h = (numpyro.sample(site, dist.Normal(0.0, 1.0).expand((2,)).to_event(1)) for site in "wvh")
        return MDPSpec(np.full(2, 0.5), dist.Normal(jnp.broadcast_to(mean(w, v, h), (2, 2)), 1.0))

    with jax.enable_x64(True):
        assert is_affine(trace_program(prior, SPACE), frozenset("wv"), "loc") is expected
