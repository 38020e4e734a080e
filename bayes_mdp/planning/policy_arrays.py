"""A policy as action probabilities, whatever names it (`policy_probs`), and as a chain, an MDP with one action."""

from functools import reduce
from operator import add
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from bayes_mdp.mdp import MDP, Policy, PolicyLike, SparseMDP
from bayes_mdp.mdp.abilities import Sizes
from bayes_mdp.mdp.labels import policy_of
from bayes_mdp.numerics.products import einsum
from bayes_mdp.planning.solution import where_legal
from bayes_mdp.utils.typing import AnyArray, RealScalar
from bayes_mdp.utils.validation import (
    as_array,
    at,
    check_count,
    check_index,
    check_probabilities,
    check_probability_rows,
    check_type,
    described,
    first_index,
    is_concrete,
)

_APPROXIMATE = 1e-2  # how far from one a row of exp(log_prob) may be: some policies know theirs only by quadrature


@runtime_checkable
class TabularPolicy(Protocol):
    """A policy object made of arrays."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(*H, S, A); without H where it does not depend on the step."""
        ...


def policy_probs(
    policy: PolicyLike, mdp: MDP | SparseMDP | Sizes, *, horizon: int | None = None
) -> Float[Array, "*H S A"]:
    """Action probabilities of `policy`, of the dtype of `mdp`, or of JAX.

    Args:
        policy: Int[*H S] (an action for every state), Float[*H S A] (probabilities) or a `Policy` object, whose
            exp(log_prob) is normalised. Its sizes can be checked where it is a `TabularPolicy`.
        mdp: whose states, actions and legal actions are meant (and a policy object's steps, where it has a horizon); or
            the sizes of a belief.
        horizon: number of steps, where a policy may depend on the step though `mdp` does not.

    Raises:
        ValueError, TypeError: another shape or type, an action out of range or illegal, rows that do not sum to one
            (a policy object: by more than 0.01). Values are not looked into under tracing.
    """
    check_type("mdp", mdp, (MDP, SparseMDP, Sizes), "an MDP or a SparseMDP")
    if horizon is not None:
        check_count("horizon", horizon)
    policy = read_policy(policy, mdp, horizon=horizon)
    if jnp.issubdtype(policy.dtype, jnp.integer):
        if is_concrete(policy):
            # Row k of the identity is the policy that takes action k.
            # By NumPy: nothing is compiled for it.
            return jax.device_put(np.eye(mdp.n_actions, dtype=_dtype(mdp))[np.asarray(policy)])
        return jax.nn.one_hot(policy, mdp.n_actions, dtype=_dtype(mdp))
    return policy


def read_policy(
    policy: PolicyLike, mdp: MDP | SparseMDP | Sizes, *, horizon: int | None = None
) -> Int[Array, "*H S"] | Float[Array, "*H S A"]:
    """As `policy_probs`, but actions stay actions."""
    horizon = horizon or mdp.horizon
    policy = policy_of(policy, None, None)  # refuses labels: an MDP has none
    if isinstance(policy, Policy):
        return _tabulate(policy, mdp, horizon)
    expected = "integers (actions) or floats (probabilities)"
    array = policy if isinstance(policy, jax.Array) else as_array("policy", policy, f"a Policy, {expected}")
    s, a = mdp.n_states, mdp.n_actions
    if jnp.issubdtype(array.dtype, jnp.integer):
        _check_policy_shape(array, (s,), horizon, "an action for every state")
        if is_concrete(array, mdp):
            check_index("policy", array, a, "action")
            _refuse_illegal(np.eye(a)[np.asarray(array)], mdp)
        return jnp.asarray(array)
    # Neither actions nor probabilities.
    if not jnp.issubdtype(array.dtype, jnp.floating):
        got = f"has dtype {array.dtype}" if array.ndim else f"is {described(policy)}"
        raise TypeError(f"policy {got}, expected a Policy, {expected}")
    _check_policy_shape(array, (s, a), horizon, "action probabilities for every state")
    if is_concrete(array, mdp):
        check_probability_rows("policy", array)
        _refuse_illegal(np.asarray(array), mdp)
    return jnp.asarray(array, _dtype(mdp))


def _dtype(mdp: MDP | SparseMDP | Sizes) -> np.dtype:
    return jnp.result_type(float) if isinstance(mdp, Sizes) else mdp.reward.dtype


def _tabulate(policy: Policy, mdp: MDP | SparseMDP | Sizes, horizon: int | None) -> Float[Array, "*H S A"]:
    """exp(log_prob) over the grid of steps, states and actions, each row over its sum."""
    if isinstance(policy, TabularPolicy):
        _check_sizes(policy, mdp, horizon)
    # Actions innermost, then states, then steps: the axes come out as [step, state, action].
    per_action = jax.vmap(policy.log_prob, (None, 0, None))
    per_state = jax.vmap(per_action, (0, None, None))
    grid = jnp.arange(mdp.n_states), jnp.arange(mdp.n_actions)
    if horizon is None:
        log_probs = per_state(*grid, jnp.zeros((), jnp.int32))
    else:
        log_probs = jax.vmap(per_state, (None, None, 0))(*grid, jnp.arange(horizon))
    # In log-probabilities small ones keep their digits until here.
    probs = jnp.exp(log_probs).astype(_dtype(mdp))
    total = jnp.sum(probs, -1)
    if is_concrete(probs, mdp):
        check_probabilities("policy", probs)
        index = first_index(np.abs(np.asarray(total) - 1) > _APPROXIMATE)
        if index is not None:
            raise ValueError(f"{at('policy', index)} sums to {total[index]:.8g}, expected a row that sums to 1")
        _refuse_illegal(np.asarray(probs), mdp)
    return probs / total[..., None]


def _check_sizes(policy: TabularPolicy, mdp: MDP | SparseMDP | Sizes, horizon: int | None) -> None:
    if len(policy.shape) not in (2, 3):
        raise ValueError(f"policy.shape is {policy.shape}, expected (states, actions) or (steps, states, actions)")
    *steps, n_states, n_actions = policy.shape
    size, expected = (n_states, n_actions), (mdp.n_states, mdp.n_actions)
    if size != expected:
        raise ValueError(f"policy is for {size} states and actions, expected {expected}, those of the MDP")
    if steps not in ([], [horizon]):
        allowed = "a policy that does not depend on the step" if horizon is None else f"{horizon}, those of an episode"
        raise ValueError(f"policy has {steps[0]} steps, expected {allowed}")


def _check_policy_shape(array: AnyArray, size: tuple[int, ...], horizon: int | None, what: str) -> None:
    allowed = [size] if horizon is None else [size, (horizon, *size)]
    if tuple(array.shape) not in allowed:
        shapes = " or ".join(map(str, allowed))
        raise ValueError(f"policy has shape {tuple(array.shape)}, expected {shapes} ({what})")


def _refuse_illegal(probs: np.ndarray, mdp: MDP | SparseMDP | Sizes) -> None:
    if mdp.legal is None:
        return
    index = first_index((probs > 0) & ~np.asarray(mdp.legal))
    if index is not None:
        *state, action = index
        raise ValueError(f"{at('policy', tuple(state))} takes action {action}, expected a legal action of the state")


_FEW = 8  # up to so many actions a selection by comparisons beats a gather
UNROLLED = 32  # listed successors; more are summed over the last axis


def action_values(mdp: MDP | SparseMDP, values: Float[Array, " S"], discount: RealScalar = 1.0) -> Float[Array, "S A"]:
    """One sweep, q = reward + discount * E values(next); -inf where an action is illegal."""
    return where_legal(mdp.reward + discount * mdp.expected_next(values), mdp.legal)


def action_values_by_column(
    mdp: MDP | SparseMDP, values: Float[Array, " S"], discount: RealScalar = 1.0
) -> Float[Array, "S A"]:
    """`action_values`, twice as fast on lists of a few successors, for sweeps that store q itself.

    XLA on CPU sums a short last axis by a scalar loop; written out, the terms are vectors. If max_a q alone is used,
    XLA fuses these sums into the maximum, which is five times slower: use `action_values` there.
    """
    if isinstance(mdp, MDP) or mdp.successor.shape[-1] > UNROLLED:
        # Long or dense rows: a product of a matrix is faster than gathers.
        return action_values(mdp, values, discount)
    # One gather per column of the lists, summed elementwise: no reduction over a short axis.
    terms = (mdp.probability[..., k] * values[mdp.successor[..., k]] for k in range(mdp.successor.shape[-1]))
    return where_legal(mdp.reward + discount * reduce(add, terms), mdp.legal)


def at_policy(q: Shaped[Array, "S A *rest"], policy: Int[AnyArray, " S"]) -> Shaped[Array, "S *rest"]:
    """q[s, policy[s]], for every state."""
    if q.shape[1] > _FEW:
        index = policy.reshape(-1, *(1,) * (q.ndim - 1))
        return jnp.take_along_axis(q, index, axis=1)[:, 0]
    # Few actions: selections fuse with what produced q.
    chosen = q[:, 0]
    for a in range(1, q.shape[1]):
        chosen = jnp.where((policy == a).reshape(-1, *(1,) * (q.ndim - 2)), q[:, a], chosen)
    # -inf at illegal pairs is never selected.
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
        # A K successors for each state: the K of every action, weighted by its probability.
        weights = (probs[..., None] * mdp.probability).reshape(listed)
        return SparseMDP(mdp.successor.reshape(listed), weights, reward, end_probs=ends)
    # P_pi = sum_a pi(a | s) P(. | s, a).
    rows = einsum("sa,saz->sz", probs, mdp.transition_probs)
    return MDP(rows[:, None], reward, end_probs=ends)
