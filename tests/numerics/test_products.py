"""Every product of float32 arrays that planners and posteriors make asks for full precision.

On a CPU the default is full precision too, so that no result shows a product that was forgotten; programs do.
"""

import ast
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.agents import AGENTS, Learner
from bayes_mdp.experiments.rollout.run_beliefs import on_device
from bayes_mdp.inference.value import linear_gaussian as algebra
from bayes_mdp.mdp import PlansFromState, Problem
from bayes_mdp.numerics.products import einsum, matmul, tensordot
from tests.tf32 import loose, off

S, A = 5, 2
SPACE = bm.StateActionSpace(S, A, support=np.ones((S, A, S), bool))
PRODUCTS = {"dot", "einsum", "inner", "matmul", "tensordot", "vdot", "vecdot", "matvec", "vecmat"}


def numbers(*shape: int) -> Any:
    return np.random.default_rng(0).random(shape, np.float32) + 0.1


ROWS, REWARD = numbers(S, A, S), numbers(S, A)
ROWS /= ROWS.sum(-1, keepdims=True)


def mdp(reward: Any) -> bm.MDP:
    return bm.MDP(jnp.asarray(ROWS), reward, initial=jnp.full(S, 0.2))


def test_a_loose_product_is_found():
    """Within loops and branches too."""

    def nested(product: Any) -> Any:
        def body(_: Any, x: Any) -> Any:
            return jax.lax.cond(x[0, 0] > 0, lambda y: product(y, y), lambda y: y, x)

        return jax.vmap(lambda y: jax.lax.fori_loop(0, 2, body, y))

    x = jnp.zeros((3, 4, 4))
    for forgotten in (jnp.matmul, lambda a, b: a @ b, lambda a, b: jnp.einsum("ij,jk->ik", a, b)):
        assert len(loose(jax.make_jaxpr(nested(forgotten))(x))) == 1
    for full in (matmul, lambda a, b: einsum("ij,jk->ik", a, b), lambda a, b: tensordot(a, b, 1)):
        assert loose(jax.make_jaxpr(nested(full))(x)) == []


@pytest.mark.parametrize(
    "objective", [bm.Episodic(4), bm.Discounted(0.9), bm.AverageReward()], ids=lambda x: type(x).__name__
)
def test_planners(objective):
    """One problem, and several with the same rows."""
    policy = numbers(S, A) / numbers(S, A).sum(-1, keepdims=True)

    def values(reward: Any) -> Any:
        return bm.solve(mdp(reward), objective).v, bm.evaluate(mdp(reward), policy, objective).v

    assert loose(jax.make_jaxpr(values)(REWARD)) == []
    assert loose(jax.make_jaxpr(jax.vmap(values))(numbers(3, S, A))) == []


def posterior() -> Any:
    state, action = np.indices((S, A)).reshape(2, -1)
    log = bm.Transitions(state, action, numbers(S * A), state[::-1].copy())
    return bm.infer(jax.random.key(0), bm.models.dirichlet_normal(noise_scale=0.1), log, space=SPACE)


def test_posteriors():
    """Expectations of several functions at once, and variances."""
    belief, values = on_device(posterior()), numbers(3, S)

    def says(belief: Any) -> Any:
        mean = belief.mean_mdp()
        return jax.vmap(lambda v: (mean.expected_next(v), belief.bellman_variance(v, 0.9)))(values)

    assert loose(jax.make_jaxpr(says)(belief)) == []


PLANNED = sorted(name for name in AGENTS if not isinstance(AGENTS[name](), Learner | PlansFromState) and name != "tsde")


@pytest.mark.some(6)
@pytest.mark.parametrize("name", PLANNED)
def test_plans_of_agents(name):
    """Several plans in one program."""
    agent, problem, belief = on_device((AGENTS[name](), Problem(SPACE, bm.Episodic(4), jnp.full(S, 0.2)), posterior()))

    def plans(keys: Any) -> Any:
        return jax.vmap(lambda key: agent.plan(key, problem, agent.init(key, problem), belief)[0])(keys)

    assert loose(jax.make_jaxpr(plans)(jax.random.split(jax.random.key(0), 3))) == []


def test_products_by_name_are_made_here_alone():
    """No file but `products.py` calls `jnp.einsum`, `jnp.matmul` and the like."""
    found = []
    for path in Path(bm.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())) if path.name != "products.py" else ():
            if isinstance(node, ast.Attribute) and node.attr in PRODUCTS and ast.unparse(node.value) == "jnp":
                found.append(f"{path.name}:{node.lineno}")
    assert found == []


def test_results_are_those_of_the_defaults(key):
    """Bit for bit where the default is float32; of NumPy's arrays NumPy's, in their own width."""
    x, y = jax.random.normal(key, (2, 3, 40, 40))
    if off() < 1e-5:
        np.testing.assert_array_equal(matmul(x, y), x @ y)
        np.testing.assert_array_equal(einsum("nij,njk->nik", x, y), jnp.einsum("nij,njk->nik", x, y))
        np.testing.assert_array_equal(tensordot(x[0], y[0], 1), jnp.tensordot(x[0], y[0], 1))
    wide = np.asarray(x, np.float64)
    found = matmul(wide, wide)
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.float64
    # float32 against float64: sums of 40 products, where 11 bits would be off by 1e-3 or more
    np.testing.assert_allclose(matmul(x, x), found, atol=2e-5)


def test_beliefs_about_a_last_layer():
    """A block of rows at once, as on a GPU, and a single one; the covariance itself takes rows one by one."""
    matrix, action = jnp.broadcast_to(jnp.eye(4), (3, 4, 4)), jnp.array([0, 2, 0, 1, 1])
    assert loose(jax.make_jaxpr(algebra.shrink_root_block)(matrix, numbers(5, 4), action)) == []
    for one in (algebra.shrink_one, algebra.shrink_root_one):
        for masked in (False, True):
            program = jax.make_jaxpr(lambda m, x, one=one, masked=masked: one(m, x, jnp.array(1), masked))
            assert loose(program(matrix, numbers(4))) == []
