"""Where a policy spends its time: discounted and average state-action frequencies [PUTERMAN94]."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bayes_mdp.mdp import MDP, AverageReward, Episodic, Objective, PolicyLike, SparseMDP
from bayes_mdp.mdp.hypothesis import check_mdp
from bayes_mdp.mdp.objectives import check_objective, step_discount
from bayes_mdp.planning.linear.systems import solve_chain
from bayes_mdp.planning.policy_arrays import policy_probs
from bayes_mdp.planning.policy_chain import mix
from bayes_mdp.utils.typing import AnyArray, IntScalar
from bayes_mdp.utils.validation import check_initial, check_probability_rows, is_concrete


def occupancy(
    mdp: MDP | SparseMDP,
    policy: PolicyLike,
    objective: Objective,
    initial: Float[AnyArray, " S"] | None = None,
) -> Float[Array, "*H S A"]:
    """State-action occupancy d of a policy: sum of d * reward is its value from `initial`.

    Args:
        mdp, policy, objective: as in `evaluate`.
        initial: [S], distribution of the first state; None: `mdp.initial`.

    Returns:
        Discounted: sum_t discount^t P(s_t, a_t). Episodic: [H S A], discount^t times the probability of each pair
        at each step t. FirstExit: expected number of visits (not finite for a policy that never ends). AverageReward:
        the stationary distribution (`initial` is not needed; a chain with one recurrent class). [PUTERMAN94]
        section 6.9.

    Raises:
        ValueError, TypeError: `initial` is no distribution or missing; as `policy_probs`.
    """
    check_mdp(mdp)
    check_objective(objective)
    if isinstance(objective, AverageReward):
        probs = policy_probs(policy, mdp)
        return chain_occupancy(mix(mdp, probs), objective)[:, None] * probs
    initial = _initial(mdp, initial)
    if isinstance(objective, Episodic):
        probs = policy_probs(policy, mdp, horizon=objective.horizon)
        time = _forward(mdp, jnp.broadcast_to(probs, (objective.horizon, *probs.shape[-2:])), initial)
        if objective.discount == 1:
            return time
        return time * jnp.asarray(objective.discount ** np.arange(objective.horizon), time.dtype)[:, None, None]
    probs = policy_probs(policy, mdp)
    return chain_occupancy(mix(mdp, probs), objective, initial)[:, None] * probs


def chain_occupancy(
    chain: MDP | SparseMDP,
    objective: Objective,
    initial: Float[AnyArray, " S"] | None = None,
    inverse: Float[Array, "S S"] | None = None,
) -> Float[Array, " S"]:
    """Time in the states of a chain (an MDP with one action), as `occupancy`. Traceable.

    Args:
        chain: the chain.
        objective: `Discounted`, `FirstExit` or `AverageReward`.
        initial: distribution of the first state; only `AverageReward` does without.
        inverse: as in `solve_chain`, not for `AverageReward`.
    """
    assert not isinstance(objective, Episodic)
    # mu (I - discount P) = initial: the adjoint of the system of the values.
    if isinstance(objective, AverageReward):
        # From mu (I - P) = 0 and sum mu = 1: mu (I - P + 1 e_0') = e_0'.
        first = jnp.zeros(chain.n_states, chain.reward.dtype).at[0].set(1.0)
        return solve_chain(chain, 1.0, first, first, anchored=True, adjoint=True)
    assert initial is not None
    initial = jnp.asarray(initial)
    discount = jnp.asarray(step_discount(objective), chain.reward.dtype)
    return solve_chain(chain, discount, initial, initial, adjoint=True, inverse=inverse)


def _initial(mdp: MDP | SparseMDP, initial: Float[AnyArray, " S"] | None) -> Float[Array, " S"]:
    initial = mdp.initial if initial is None else initial
    if initial is None:
        raise ValueError("initial is None, expected a distribution over the first state")
    check_initial(initial, mdp.n_states)
    initial = jnp.asarray(initial, mdp.reward.dtype)
    if is_concrete(initial):
        check_probability_rows("initial", initial)
    return initial


def _forward(mdp: MDP | SparseMDP, probs: Float[Array, "H S A"], initial: Float[Array, " S"]) -> Float[Array, "H S A"]:
    """Probability of each pair at each step, by forward recursion."""

    def step(present: Float[Array, " S"], layer: IntScalar) -> tuple[Float[Array, " S"], Float[Array, "S A"]]:
        chain = mix(mdp.at(layer), probs[layer])
        # P' d: the transpose of the expectation over next states, for dense and sparse rows alike.
        push = jax.linear_transpose(lambda v: chain.expected_next(v)[:, 0], present)
        return push(present)[0], present[:, None] * probs[layer]

    return jax.lax.scan(step, initial, jnp.arange(probs.shape[0]))[1]
