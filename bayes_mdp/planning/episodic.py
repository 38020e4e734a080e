"""Episodes of a fixed number of steps: backward induction [PUTERMAN94]."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float

from bayes_mdp.mdp import MDP, SparseMDP
from bayes_mdp.planning.bellman import HardMax, Max, Rounding
from bayes_mdp.planning.policy_arrays import action_values
from bayes_mdp.planning.solution import where_legal
from bayes_mdp.utils.typing import AnyArray, IntScalar
from bayes_mdp.utils.validation import (
    ROW_SUM_TOLERANCE,
    as_mask,
    check_count,
    check_probability_rows,
    described,
    is_concrete,
)

Backup = Callable[[Float[Array, " S"], IntScalar], Float[Array, "S A"]]


def backward_induction(
    backup: Backup,
    horizon: int,
    n_states: int,
    *,
    legal: Bool[AnyArray, "S A"] | None = None,
    policy: Float[AnyArray, "*P S A"] | None = None,
    dtype: DTypeLike = float,
) -> Float[Array, "H S A"]:
    """q of every step of an episode, from the last step to the first ([PUTERMAN94]).

    Args:
        backup: (values of the next states, step) -> reward + E values(next) for every pair, e.g. one layer of a
            posterior drawn while it is planned with: `lambda v, h: posterior.sample_backup(keys[h], v, h)`.
        horizon: H, number of steps.
        n_states: S.
        legal: which actions exist; the others get -inf.
        policy: probabilities of actions to average over; None: the best action.
        dtype: of the values.

    Raises:
        TypeError, ValueError: a backup that cannot be called, a size that is no integer of at least 1, a mask of
            another shape.
    """
    if not callable(backup):
        raise TypeError(f"backup is {described(backup)}, expected a function of values and step")
    check_count("horizon", horizon)
    check_count("n_states", n_states)
    mask = None if legal is None else as_mask("legal", legal)
    if mask is not None and (mask.ndim != 2 or mask.shape[0] != n_states):
        raise ValueError(f"legal has shape {mask.shape}, expected ({n_states}, A) (state, action)")
    if policy is not None and is_concrete(policy):
        check_probability_rows("policy", policy)
    probs = None if policy is None else jnp.asarray(policy)
    if probs is not None and (probs.ndim not in (2, 3) or probs.shape[-2] != n_states):
        raise ValueError(
            f"policy has shape {probs.shape}, expected (({horizon},) {n_states}, A) ((step,) state, action)"
        )

    value = _value(HardMax() if probs is None else probs)
    return _recursion(lambda v, layer: where_legal(backup(v, layer), mask), value, horizon, n_states, dtype)


def _value(choice: Max | Float[Array, "*P S A"]) -> Callable[[Float[Array, "S A"], IntScalar], Float[Array, " S"]]:
    """(q, step) -> v: the maximum, or the mean over the probabilities of a policy."""
    if isinstance(choice, Max):
        return lambda q, _: choice.value(q)
    return lambda q, layer: mean_over_actions(q, choice[layer] if choice.ndim == 3 else choice)


def _recursion(
    backup: Backup,
    value: Callable[[Float[Array, "S A"], IntScalar], Float[Array, " S"]],
    horizon: int,
    n_states: int,
    dtype: DTypeLike,
) -> Float[Array, "H S A"]:
    """v_H = 0, q_t = backup(v_t+1), v_t = value(q_t): from the last step to the first."""

    def step(values: Float[Array, " S"], layer: IntScalar) -> tuple[Float[Array, " S"], Float[Array, "S A"]]:
        q = backup(values, layer)
        return value(q, layer), q

    return jax.lax.scan(step, jnp.zeros(n_states, dtype), jnp.arange(horizon), reverse=True)[1]


def mean_over_actions(q: Float[Array, "*H S A"], probs: Float[Array, "*P S A"]) -> Float[Array, "*H S"]:
    """sum_a probs q; an action of probability zero counts nothing, whatever its q."""
    # Infinite values leave before the product: the derivative by a probability of zero is q.
    return jnp.sum(probs * jnp.where((probs > 0) | jnp.isfinite(q), q, 0.0), -1)


def induce(
    mdp: MDP | SparseMDP,
    horizon: int,
    rounding: Rounding,
    choice: Max | Float[Array, "*P S A"] = HardMax(),
    *,
    reward: Float[Array, "H S A"] | None = None,
    discount: float = 1.0,
) -> tuple[Float[Array, "H S A"], Float[Array, "H S"], Float[Array, ""]]:
    """q, v and a bound on their rounding error, of the maximum or of the probabilities of a policy.

    `reward` replaces that of `mdp` where it alone depends on the step; `discount` is that of `Episodic`.

    The bound: let e_t be what step t itself errs by, computed q_t against the exact sweep of the computed v_t+1, which
    `Rounding` bounds (the product with the discount and the rounding of the discount included). The exact sweep carries
    an error of v_t+1 on at most discount * (row sum) times, and neither maximum nor mean makes it larger, so that
    |q_t - q*_t| <= e_t + discount (row sum) |v_t+1 - v*_t+1|: the bound is the largest over t of
    sum_k discount^k e_t+k, times what rows that sum to one only within the tolerance of `MDP` can add.
    """

    def backup(values: Float[Array, " S"], layer: IntScalar) -> Float[Array, "S A"]:
        now = mdp.at(layer)
        now = now if reward is None else eqx.tree_at(lambda m: m.reward, now, reward[layer])
        return action_values(now, values, discount)

    dtype = mdp.reward.dtype
    q = _recursion(backup, _value(choice), horizon, mdp.n_states, dtype)
    v = choice.value(q) if isinstance(choice, Max) else mean_over_actions(q, choice)
    # One sweep errs by factor (reward + |values|); errors of later steps reach earlier ones through rows that sum to
    # one only within the tolerance, hence the growth factor.
    fixed, rounding, choice = jax.lax.stop_gradient((q, rounding, choice))
    # Bounds are constants to differentiation, and -inf of an illegal action has no rounding.
    size = jnp.max(jnp.where(jnp.isneginf(fixed), 0.0, jnp.abs(fixed)), axis=(-2, -1))
    if isinstance(choice, Max):
        size = size + choice.excess(mdp.n_actions)
    errors = rounding.factor * (rounding.reward + size + jnp.roll(size, -1).at[-1].set(0.0)) + rounding.floor
    if isinstance(choice, Max):
        errors = errors + choice.uncertainty(mdp.n_actions)
    growth = (1 + ROW_SUM_TOLERANCE.get(str(dtype), 1e-5) + rounding.factor) ** horizon
    gap = _accumulate(errors, discount) * growth * (1 + horizon * float(jnp.finfo(dtype).eps))
    return q, v, jnp.where(jnp.isfinite(gap), gap, jnp.inf)


def _accumulate(errors: Float[Array, " H"], discount: float) -> Float[Array, ""]:
    """The largest over t of sum_k discount^k errors_t+k, for errors that are not negative."""
    if discount == 1:
        return jnp.sum(errors)  # that of the first step

    def step(later: Float[Array, ""], own: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        # Horner's scheme backwards over the steps.
        total = own + discount * later
        return total, total

    return jnp.max(jax.lax.scan(step, jnp.zeros((), errors.dtype), errors, reverse=True)[1])
