"""Random MDPs of one structure (so that programs are shared), compiled planners, and plain numpy oracles."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from bayes_mdp import planning
from bayes_mdp.mdp import MDP, SparseMDP

KINDS = ("random", "periodic", "absorbing", "masked", "ending")


solve, evaluate = jax.jit(planning.solve), jax.jit(planning.evaluate)  # one cache for the session


def arrays(kind, n, n_actions=2, seed=0):
    """(rows, reward, end_probs, legal) in float64 numpy; every kind has the same structure."""
    rng = np.random.default_rng([seed, n, KINDS.index(kind)])
    rows = rng.dirichlet(np.full(n, 0.3), (n, n_actions))
    reward = rng.normal(size=(n, n_actions))
    ends, legal = np.zeros((n, n_actions)), np.ones((n, n_actions), bool)
    if kind == "periodic":
        rows = np.zeros_like(rows)
        for a in range(n_actions):
            rows[np.arange(n), a, (np.arange(n) + 1 + a) % n] = 1.0
    if kind == "absorbing":
        rows[n // 2] = np.eye(n)[n // 2]
        reward[n // 2] = 0.0
    if kind == "masked":
        legal[:, 0] = np.arange(n) % 3 != 0
        reward[~legal] = 1e3
    if kind == "ending":
        ends = rng.uniform(0, 0.3, ends.shape) * (rng.uniform(size=ends.shape) < 0.5)
        rows = rows * (1 - ends[..., None])
    return rows, reward, ends, legal


def make_mdp(rows, reward, ends, legal, dtype=float):
    cast = lambda x: jnp.asarray(x, dtype)  # noqa: E731
    return MDP(cast(rows), cast(reward), end_probs=cast(ends), legal=legal)


def listed(mdp):
    """The same MDP with all states listed, in a scrambled order."""
    order = np.random.default_rng(5).permutation(mdp.n_states)
    successor = np.broadcast_to(order, mdp.transition_probs.shape)
    probability = mdp.transition_probs[..., order]
    return SparseMDP(successor, probability, mdp.reward, end_probs=mdp.end_probs, legal=mdp.legal)


def optimal_discounted(rows, reward, ends, legal, discount):
    """Policy iteration in float64 numpy, to a policy that no action improves by more than 1e-12."""
    n = len(reward)
    states, policy = np.arange(n), np.where(legal, reward, -np.inf).argmax(1)
    while True:
        v = np.linalg.solve(np.eye(n) - discount * rows[states, policy], reward[states, policy])
        q = np.where(legal, reward + discount * rows @ v, -np.inf)
        better = q.max(1) - q[states, policy] > 1e-12 * (1 + np.abs(v).max())
        if not better.any():
            return v
        policy = np.where(better, q.argmax(1), policy)


def all_policies(n, n_actions, legal):
    """Every deterministic policy of a small MDP."""
    for policy in itertools.product(range(n_actions), repeat=n):
        if legal[np.arange(n), policy].all():
            yield np.array(policy)
