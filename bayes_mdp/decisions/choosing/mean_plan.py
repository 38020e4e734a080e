"""The best policy of a set in one MDP: the optimum where nothing is fixed, else policy iteration. Host-side."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int

from bayes_mdp.decisions.choosing.policy_set import PolicySet
from bayes_mdp.decisions.host_optima import TIE, best_policies
from bayes_mdp.decisions.host_policy import action_values
from bayes_mdp.inference.pair_draws import Drawn, PairRows, legal_pairs, pairs_of_mdp
from bayes_mdp.mdp import MDP, Objective, SparseMDP
from bayes_mdp.numerics.array_forms import to_float64
from bayes_mdp.planning import Solution, solve

_MOST = 200
_BETTER = 1e-11  # share of the largest value


def best_in(mdp: MDP | SparseMDP, objective: Objective, policies: PolicySet) -> Int[np.ndarray, "*H S"]:
    """The choice that is optimal in `mdp` among the policies of the set, in float64.

    With fixed probabilities the problem is an MDP again, whose actions are mixtures (SPIBB; Laroche et al. 2019,
    theorem 2): policy iteration from the best of immediate rewards, which ends at the optimum.

    Args:
        mdp: known.
        objective: of the policy.
        policies: the set.
    """
    if policies.whole:
        return optimum(mdp, objective, policies.free)[0]
    rows, drawn = pairs_of_mdp(mdp)
    immediate = policies.best(np.broadcast_to(np.asarray(mdp.reward, np.float64), policies.fixed.shape))
    return improve(rows, drawn, objective, policies, immediate)


def improve(
    rows: PairRows, drawn: Drawn, objective: Objective, policies: PolicySet, choice: Int[np.ndarray, "*H S"]
) -> Int[np.ndarray, "*H S"]:
    """Policy iteration from a choice to one that is optimal in one MDP among the policies of the set.

    Args:
        rows, drawn: the pairs of the MDP, as one draw.
        objective: of the policy.
        policies: the set.
        choice: where to begin.
    """
    for _ in range(_MOST):
        q = action_values(rows, drawn, policies.policy(choice), objective)
        q = np.where(np.isfinite(q), q, 0.0)
        new = policies.best(q)
        kept, best = (np.take_along_axis(q, c[..., None], -1)[..., 0] for c in (choice, new))
        better = (best - kept > _BETTER * max(float(np.abs(q).max()), 1e-300)) & policies.open_states
        if not better.any():
            break
        choice = np.where(better, new, choice)
    return choice


def optimum(
    mdp: MDP | SparseMDP, objective: Objective, allowed: Bool[np.ndarray, "S A"] | None = None
) -> tuple[Int[np.ndarray, "*H S"], Solution | None]:
    """The optimal actions, of equal ones the first; and the planner's solution, where NumPy proved no bound.

    Args:
        mdp: known.
        objective: of the policy.
        allowed: which actions may be taken; None: all legal ones.
    """
    legal = legal_pairs(mdp)
    legal = legal if allowed is None else legal & allowed
    rows, drawn = pairs_of_mdp(mdp, legal)
    answer = best_policies(rows, drawn, objective)
    if np.isfinite(answer.values.gap[0]):
        q = answer.table(rows, mdp.n_actions)[0]
        least = TIE * np.abs(q[np.isfinite(q)]).max(initial=0.0)
        return (q >= q.max(-1, keepdims=True) - least).argmax(-1), None
    with jax.enable_x64(True):
        mask = jnp.asarray(legal if legal.ndim == 2 else legal[0])
        limited = eqx.tree_at(lambda m: m.legal, to_float64(mdp), mask, is_leaf=lambda x: x is None)
        solution = _solve(limited, objective)
    return np.asarray(solution.policy), solution


@eqx.filter_jit
def _solve(mdp: MDP | SparseMDP, objective: Objective) -> Solution:
    return solve(mdp, objective)
