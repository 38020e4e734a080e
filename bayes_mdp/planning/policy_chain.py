"""A policy in an MDP is a Markov chain with rewards: an MDP with one action. Sweeps over either."""

from functools import reduce
from operator import add

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from bayes_mdp.mdp import MDP, SparseMDP
from bayes_mdp.numerics.products import einsum
from bayes_mdp.utils.typing import AnyArray, RealScalar

_FEW = 8  # up to so many actions a selection by comparisons beats a gather
UNROLLED = 32  # listed successors; more are summed over the last axis


def action_values(mdp: MDP | SparseMDP, values: Float[Array, " S"], discount: RealScalar = 1.0) -> Float[Array, "S A"]:
    """One sweep, q = reward + discount * E values(next); -inf where an action is illegal."""
    return _of_pairs(mdp, discount, mdp.expected_next(values))


def unrolled_action_values(
    mdp: MDP | SparseMDP, values: Float[Array, " S"], discount: RealScalar = 1.0
) -> Float[Array, "S A"]:
    """`action_values`, twice as fast on lists of a few successors, for sweeps that store q itself.

    XLA on CPU sums a short last axis by a scalar loop; written out, the terms are vectors. If max_a q alone is used,
    XLA fuses these sums into the maximum, which is five times slower: use `action_values` there.
    """
    if isinstance(mdp, MDP) or mdp.successor.shape[-1] > UNROLLED:
        return action_values(mdp, values, discount)
    terms = (mdp.probability[..., k] * values[mdp.successor[..., k]] for k in range(mdp.successor.shape[-1]))
    return _of_pairs(mdp, discount, reduce(add, terms))


def _of_pairs(mdp: MDP | SparseMDP, discount: RealScalar, after: Float[Array, "S A"]) -> Float[Array, "S A"]:
    """q from the expected values of the next states."""
    q = mdp.reward + discount * after
    return q if mdp.legal is None else jnp.where(mdp.legal, q, -jnp.inf)


def at_policy(q: Shaped[Array, "S A *rest"], policy: Int[AnyArray, " S"]) -> Shaped[Array, "S *rest"]:
    """q[s, policy[s]], for every state."""
    if q.shape[1] > _FEW:
        index = policy.reshape(-1, *(1,) * (q.ndim - 1))
        return jnp.take_along_axis(q, index, axis=1)[:, 0]
    # Few actions: selections fuse with what produced q.
    chosen = q[:, 0]
    for a in range(1, q.shape[1]):
        chosen = jnp.where((policy == a).reshape(-1, *(1,) * (q.ndim - 2)), q[:, a], chosen)
    return chosen


def follow(mdp: MDP | SparseMDP, policy: Int[AnyArray, " S"]) -> MDP | SparseMDP:
    """The chain of a deterministic policy, as an MDP with one action."""
    pick = lambda x: None if x is None else at_policy(x, policy)[:, None]  # noqa: E731
    ends, reward = pick(mdp.end_probs), pick(mdp.reward)
    if isinstance(mdp, SparseMDP):
        return SparseMDP(pick(mdp.successor), pick(mdp.probability), reward, end_probs=ends)
    return MDP(pick(mdp.transition_probs), reward, end_probs=ends)


def mix(mdp: MDP | SparseMDP, probs: Float[Array, "S A"]) -> MDP | SparseMDP:
    """The chain of a stochastic policy, as an MDP with one action; a sparse chain lists A K successors."""
    # An action of probability zero counts nothing, but its probability has a derivative.
    reward = jnp.where((probs > 0) | jnp.isfinite(mdp.reward), mdp.reward, 0)
    reward = jnp.sum(probs * reward, -1, keepdims=True)
    ends = None if mdp.end_probs is None else jnp.sum(probs * mdp.end_probs, -1, keepdims=True)
    if isinstance(mdp, SparseMDP):
        listed = (mdp.n_states, 1, -1)
        weights = (probs[..., None] * mdp.probability).reshape(listed)
        return SparseMDP(mdp.successor.reshape(listed), weights, reward, end_probs=ends)
    # P_pi = sum_a pi(a | s) P(. | s, a).
    rows = einsum("sa,saz->sz", probs, mdp.transition_probs)
    return MDP(rows[:, None], reward, end_probs=ends)
