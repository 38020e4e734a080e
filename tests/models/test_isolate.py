"""User code on its own arrays sees no difference between a process that has inferred and one that has not."""

# ruff: noqa: PLW0108 (the functions are the cases)
import functools
import os
import subprocess
import sys
import types

import jax
import numpy as np
import pytest

from bayes_mdp.models.isolate import isolated

K = np.eye(3)
SETTINGS = types.ModuleType("user_settings")
SETTINGS.K = np.eye(3)  # type: ignore[attr-defined]


class Holder:
    """A prior with a table as attribute."""

    def __init__(self, table):
        self.table = table

    def __call__(self, x):
        return x * self.table

    def method(self, x):
        return x * self.table


def closure():
    table = np.eye(3)
    return lambda x: x * table, table


def nested():
    table = np.eye(3)

    def inner(x):
        return x * table

    return lambda x: inner(x), table


def in_a_container():
    tables = {"a": [np.eye(3)]}
    return lambda x: x * tables["a"][0], tables["a"][0]


def default():
    table = np.eye(3)

    def function(x, table=table):
        return x * table

    return function, table


def keyword_default():
    table = np.eye(3)

    def function(x, *, table=table):
        return x * table

    return function, table


def partial():
    table = np.eye(3)
    return functools.partial(lambda table, x: x * table, table), table


def attribute():
    table = np.eye(3)
    return Holder(table), table


def method():
    table = np.eye(3)
    return Holder(table).method, table


def jitted():
    table = np.eye(3)
    inner = jax.jit(lambda x: x * table)
    return lambda x: inner(x), table


def cached():
    table = np.eye(3)

    @functools.lru_cache
    def scale(power):
        return table**power

    return lambda x: x * scale(1), table


def recursive():
    table = np.eye(3)

    def function(x, depth=2):
        return function(x, depth - 1) if depth else x * table

    return function, table


def global_array():
    return lambda x: x * K, K


def module_attribute():
    return lambda x: x * SETTINGS.K, SETTINGS.K


MAKERS = [
    closure,
    nested,
    in_a_container,
    default,
    keyword_default,
    partial,
    attribute,
    method,
    jitted,
    cached,
    recursive,
    global_array,
    module_attribute,
]


@pytest.mark.some(5)
@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_a_program_runs_in_both_precisions_and_leaves_the_users_array_alone(make):
    program, table = make()
    own = isolated(program)
    with jax.enable_x64(True):
        assert jax.jit(own)(2.0).dtype == np.float64
        kept = jax.make_jaxpr(own)(1.0)
    for _ in range(2):
        np.testing.assert_array_equal(jax.jit(own)(np.float32(2.0)), 2.0 * np.eye(3))
    np.testing.assert_array_equal(jax.jit(lambda x: x * table)(np.float32(3.0)), 3.0 * np.eye(3))
    np.testing.assert_array_equal(jax.jit(program)(np.float32(3.0)), 3.0 * np.eye(3))
    with jax.enable_x64(True):
        assert jax.jit(own)(2.0).dtype == np.float64
    assert kept


def test_what_holds_no_array_is_shared():
    calls = []

    def program(x):
        calls.append(x)
        return x

    isolated(program)(1)
    assert calls == [1]


def test_the_copy_is_made_at_once():
    table = np.eye(3)
    own = isolated(lambda x: x * table)
    table[:] = 7.0
    assert own(1.0)[0, 0] == 1.0


USER = """
import sys, threading
import jax, jax.numpy as jnp, numpy as np, numpyro, numpyro.distributions as dist
import bayes_mdp as bm
from bayes_mdp.models import MDPSpec
infers, wide, threads = (word == "1" for word in sys.argv[1:])
jax.config.update("jax_enable_x64", wide)
K = np.eye(2)[:, None, :] + 0.5
P = np.full((2, 1, 2), 0.5)
R = np.array([[0.0], [1.0]])
space = bm.StateActionSpace(2, 1)

def prior(space):
    with space.plates():
        probs = numpyro.sample("transition", dist.Dirichlet(jnp.asarray(K)))
        mean = numpyro.sample("mean", dist.Normal(R, 1.0))
    return MDPSpec(probs, dist.Normal(mean, 1.0))

data = bm.Transitions([0, 1, 1], [0, 0, 0], [0.5, 1.0, 2.0], [1, 1, 0])
if infers:
    posterior = bm.infer(jax.random.key(0), prior, data, space=space)
    tree = bm.to_arviz(posterior, key=jax.random.key(0), data=data, num_draws=20)

def user():
    found = [jax.jit(lambda x: x * K)(np.float32(2.0)), jnp.sum(K * R), jax.grad(lambda x: (x * K).sum())(1.0)]
    found.append(bm.solve(bm.MDP(P, R), bm.Discounted(0.5)).q)
    return [(str(x.dtype), np.asarray(x).tolist()) for x in map(np.asarray, found)]

if threads:
    results = [None] * 4
    def work(i):
        results[i] = user()
    pool = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    [t.start() for t in pool]; [t.join() for t in pool]
    assert all(r == results[0] for r in results)
    print(results[0])
else:
    print(user())
env = bm.models.environment(MDPSpec(P, dist.Normal(R, 1.0)), space, np.array([1.0, 0.0]))
result = bm.run(
    bm.agents.PSRL(), env, prior=prior, objective=bm.Discounted(0.9), num_steps=20, num_seeds=1, key=jax.random.key(0)
)
print({name: x.values.tolist() for name, x in result.data_vars.items() if name in ("reward", "regret")})
"""


SLOW = [pytest.param(wide, threads, marks=pytest.mark.slow) for wide, threads in (("1", "0"), ("0", "1"), ("1", "1"))]


@pytest.mark.slow
@pytest.mark.parametrize(("wide", "threads"), [("0", "0"), *SLOW])
def test_user_code_sees_no_difference_with_and_without_an_infer_before_it(wide, threads, tmp_path):
    """In fresh processes: jit, numpy arithmetic, a gradient, `solve`, `run` on the arrays that a prior closes over."""
    (tmp_path / "user.py").write_text(USER)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    said = [
        subprocess.run(
            [sys.executable, "user.py", infers, wide, threads],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        for infers in ("0", "1")
    ]
    assert [run.returncode for run in said] == [0, 0], said[1].stderr[-2000:]
    assert said[0].stdout == said[1].stdout
