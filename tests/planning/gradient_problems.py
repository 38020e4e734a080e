"""Smooth families of MDPs, what planners make of them as one number, and central differences of fourth order."""

import jax
import jax.numpy as jnp
import numpy as np

from bayes_mdp import planning
from bayes_mdp.mdp import MDP, AverageReward, Discounted, Episodic, FirstExit, SparseMDP
from bayes_mdp.planning.solution import SoftSolution

OBJECTIVES = ("discounted", "episodic", "average", "first_exit")
PLANNERS = ("solve", "evaluate", "solve_soft")


def parameters(n, n_actions=3, listed=4, discount=0.9, seed=0):
    """Where the family is looked at; every entry may be moved a little in any direction."""
    rng = np.random.default_rng([seed, n])
    size = (n, n_actions)
    return {
        "reward": rng.normal(size=size),
        "rows": rng.normal(size=(*size, listed)),
        "ends": rng.normal(size=size) - 1.5,
        "policy": rng.normal(size=size),
        "patience": -np.log1p(-discount) * np.ones(()),
        "log_temperature": np.log(0.4) * np.ones(()),
    }


def river(p, b, r0):
    """Six states in a row, of DECISIONS: left and right, the current takes back."""
    n = 6
    rows = np.zeros((3, n, 2, n))  # constant, times p, times b
    for s in range(n):
        rows[0, s, 0, max(s - 1, 0)] = 1
        rows[0, s, 1, s] = 1
        if s < n - 1:
            rows[1, s, 1, s + 1] += 1
            rows[1, s, 1, s] -= 1
        if s > 0:
            rows[2, s, 1, s - 1] += 1
            rows[2, s, 1, s] -= 1
    reward = jnp.zeros((n, 2)).at[0, 0].set(r0).at[-1, 1].set(1.0)
    return MDP(rows[0] + p * rows[1] + b * rows[2], reward)


def mdp_at(theta, kind, sparse, steps=None):
    """The MDP of `theta`, a third of its pairs illegal; with ends but for the average reward."""
    n, n_actions, listed = theta["rows"].shape
    rng = np.random.default_rng(7)
    legal = np.ones((n, n_actions), bool)
    legal[np.arange(n) % 3 > 0, 1] = False
    successor = np.stack([rng.permutation(n)[:listed] for _ in range(n * n_actions)]).reshape(n, n_actions, listed)
    successor[..., 0] = np.where(legal, (np.arange(n)[:, None] + 1) % n, successor[..., 0])  # one class of states
    # Under discounting ends are rare: what is left of a discount of .9999 is about that.
    scale = 1e-4 if kind == "discounted" else 0.5
    ends = None if kind == "average" else scale * jax.nn.sigmoid(theta["ends"])
    inside = 1.0 if ends is None else 1 - ends[..., None]
    weights = jax.nn.softmax(theta["rows"]) * inside
    mdp = SparseMDP(successor, weights, theta["reward"], end_probs=ends, legal=legal)
    mdp = mdp if sparse else mdp.to_dense()
    if steps is None:
        return mdp
    # Rewards that fall from step to step.
    layer = jnp.arange(1.0, steps + 1)
    spread = lambda x: jnp.broadcast_to(x, (steps, *x.shape))  # noqa: E731
    reward = spread(mdp.reward) / layer[:, None, None]
    ends = spread(mdp.end_probs)
    if isinstance(mdp, SparseMDP):
        return SparseMDP(spread(mdp.successor), spread(mdp.probability), reward, end_probs=ends, legal=mdp.legal)
    return MDP(spread(mdp.transition_probs), reward, end_probs=ends, legal=mdp.legal)


def answer(theta, planner, kind, sparse, steps=None):
    """What the planner says."""
    mdp = mdp_at(theta, kind, sparse, steps)
    discount = 1 - jnp.exp(-theta["patience"])
    objective = {
        "discounted": Discounted(discount),
        "episodic": Episodic(steps or 5),
        "average": AverageReward(),
        "first_exit": FirstExit(),
    }[kind]
    if planner == "solve":
        return planning.solve(mdp, objective)
    if planner == "solve_soft":
        return planning.solve_soft(mdp, objective, jnp.exp(theta["log_temperature"]))
    assert mdp.legal is not None
    probs = jax.nn.softmax(jnp.where(mdp.legal, theta["policy"], -jnp.inf))
    return planning.evaluate(mdp, probs, objective)


def summary(theta, planner, kind, sparse, steps=None):
    """One number of everything that has a derivative, and the answer."""
    found = answer(theta, planner, kind, sparse, steps)
    rng = np.random.default_rng(3)
    weight = lambda x: rng.normal(size=x.shape)  # noqa: E731
    total = jnp.sum(weight(found.v) * found.v)
    total += jnp.sum(weight(found.q) * jnp.where(jnp.isfinite(found.q), found.q, 0.0))
    if kind == "average":
        total += 5 * found.gain
    if isinstance(found, SoftSolution):
        total += jnp.sum(weight(found.policy) * found.policy)
        total += jnp.sum(weight(found.q) * jnp.where(jnp.isfinite(found.log_policy), found.log_policy, 0.0))
    return total, found


def moved(theta, way, by):
    """theta + by * way."""
    return jax.tree.map(lambda x, d: x + by * d, theta, way)


def direction(theta, seed=1):
    """Every entry moves."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: rng.normal(size=x.shape), theta)


def difference(f, theta, way, step):
    """Derivative of `f` along `way` by central differences of fourth order."""
    at = lambda k: f(moved(theta, way, k * step))  # noqa: E731
    near, far = jax.tree.map(jnp.subtract, at(1), at(-1)), jax.tree.map(jnp.subtract, at(2), at(-2))
    return jax.tree.map(lambda a, b: (8 * a - b) / (12 * step), near, far)


def dot(x, y):
    """Inner product of trees."""
    return float(sum(jnp.sum(a * b) for a, b in zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True)))


def size(x):
    """Euclidean length of a tree."""
    return dot(x, x) ** 0.5
