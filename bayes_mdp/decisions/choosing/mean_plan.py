"""The best policy of a set in one MDP: `solve` where nothing is fixed, else policy iteration."""

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int

from bayes_mdp.decisions.choosing.policy_set import PolicySet
from bayes_mdp.mdp import MDP, Objective, SparseMDP
from bayes_mdp.numerics.by_numpy.small_jit import small_jit
from bayes_mdp.planning import evaluate, solve
from bayes_mdp.utils.typing import AnyArray

_MOST = 200
_BETTER = 1e-11  # share of the largest value


def best_in(mdp: MDP | SparseMDP, objective: Objective, policies: PolicySet) -> Int[np.ndarray, "*H S"]:
    """The choice that is optimal in `mdp` among the policies of the set. Host-side, float64.

    With fixed probabilities the problem is an MDP again, whose actions are mixtures (SPIBB; Laroche et al. 2019,
    theorem 2): policy iteration from the best of immediate rewards, which ends at the optimum.

    Args:
        mdp: known, in float64.
        objective: of the policy.
        policies: the set.
    """
    with jax.enable_x64(True):
        if policies.whole:
            legal = policies.free if mdp.legal is None else policies.free & np.asarray(mdp.legal)
            limited = eqx.tree_at(lambda m: m.legal, mdp, jax.numpy.asarray(legal), is_leaf=lambda x: x is None)
            return np.asarray(_optimum(limited, objective))
        choice = policies.best(np.broadcast_to(np.asarray(mdp.reward), policies.fixed.shape))
        for _ in range(_MOST):
            q = np.asarray(_pair_values(mdp, policies.policy(choice), objective))
            q = np.where(np.isfinite(q), q, 0.0)
            new = policies.best(q)
            kept, best = (np.take_along_axis(q, c[..., None], -1)[..., 0] for c in (choice, new))
            better = (best - kept > _BETTER * max(float(np.abs(q).max()), 1e-300)) & policies.open_states
            if not better.any():
                break
            choice = np.where(better, new, choice)
        return choice


@small_jit
def _optimum(mdp: MDP | SparseMDP, objective: Objective) -> Int[Array, "*H S"]:
    return solve(mdp, objective).policy


@small_jit
def _pair_values(
    mdp: MDP | SparseMDP, policy: Float[AnyArray, "*H S A"], objective: Objective
) -> Float[Array, "*H S A"]:
    return evaluate(mdp, policy, objective).q
