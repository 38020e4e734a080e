"""Optimism by visit counts: a bonus of every pair, planned for like a reward in the mean MDP.

The baseline of figures 1 and 2 of [UBE18] O'Donoghue, Osband, Munos and Mnih, *The Uncertainty Bellman Equation and
Exploration*, ICML 2018; with a constant scale it has the form of MBIE-EB (Strehl and Littman 2008). Standard deviations
are added along a path where [UBE18] adds variances, so the bonus of a long path is too large.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from bayes_mdp.agents.common.optimism_terms import blank_plan, effective_horizon
from bayes_mdp.agents.common.replan import ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import Greedy
from bayes_mdp.agents.optimism.counted_belief import CountedBelief
from bayes_mdp.mdp import MDP, CanCount, CanMean, Objective, PolicyLike, Problem, SparseMDP
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.planning import evaluate, solve
from bayes_mdp.planning.solution import PolicyEvaluation, Solution
from bayes_mdp.utils.typing import AnyArray, RealLike, Scalar
from bayes_mdp.utils.validation import check_name, check_not_negative

SCHEDULES = ("constant", "log")

Pairs = Float[AnyArray, "*H S A"]


def local_bonus(
    mdp: MDP | SparseMDP,
    visits: Pairs,
    objective: Objective,
    *,
    scale: Scalar = 1.0,
    reward_sd: RealLike = 1.0,
    unvisited: Scalar | None = None,
) -> Pairs:
    """The bonus of every pair: scale * reward_sd / sqrt(n), and `unvisited` where n = 0. Traceable.

    In [UBE18] figure 1 `reward_sd` is the standard deviation of one reward of the pair, and the bonus at n = 0 is
    infinite; MBIE-EB has `reward_sd` 1 and scale beta. Here the bonus at n = 0 is finite: 2 G + max reward_sd, where
    G bounds the return, bonus included, of every plan that meets visited pairs alone. An action that was never tried
    is then better than all such plans in its state; k steps before, the bonus is discounted by k steps.

    Args:
        mdp: the mean MDP.
        visits: n, [*H S A].
        objective: `Discounted` or `Episodic`.
        scale: a number, zero or greater.
        reward_sd: a number or [*H S A], units of the reward.
        unvisited: the bonus of a pair never visited, units of the reward; None: see above. It is not scaled.

    Raises:
        ValueError: another objective, for which the largest return does not exist.
    """
    visited = visits > 0
    bonus = scale * reward_sd / jnp.sqrt(jnp.where(visited, visits, 1.0))
    if unvisited is None:
        known = visited if mdp.legal is None else visited & mdp.legal
        reward = jnp.abs(mdp.reward if mdp.legal is None else jnp.where(mdp.legal, mdp.reward, 0.0))
        # G = horizon x (largest |reward| + largest bonus) over visited pairs bounds every return of the known part.
        most = effective_horizon(objective, "a bonus by counts") * (
            jnp.max(reward) + jnp.max(jnp.where(known, bonus, 0.0))
        )
        first = 2.0 * most + jnp.max(jnp.asarray(reward_sd))
    else:
        first = unvisited
    return jnp.where(visited, bonus, first).astype(mdp.reward.dtype)


def bonus_values(mdp: MDP | SparseMDP, local: Pairs, policy: PolicyLike, objective: Objective) -> PolicyEvaluation:
    """A bonus, propagated by the Bellman equation of a policy: B = local + discount sum P pi B ([UBE18] figure 1).

    Q + B is the optimistic value of the policy. Compare `planning.variance_backup.propagate`, which adds variances.

    Args:
        mdp: the mean MDP; its rewards are not used.
        local: [*H S A], as `local_bonus` gives it.
        policy, objective: as in `planning.evaluate`.

    Raises:
        ValueError, TypeError: as `planning.evaluate`.
    """
    return evaluate(eqx.tree_at(lambda m: m.reward, mdp, local), policy, objective)


class CountBonusState(eqx.Module):
    """The state of `CountBonus`.

    Args:
        plan: the last one; None under `Episodic`.
        num_plans: made so far.
    """

    plan: Solution | None
    num_plans: Int[Array, ""]


class CountBonus(eqx.Module):
    """Greedy for the optimal plan of the mean MDP whose rewards have the bonus of `local_bonus` added.

    Args:
        scale: beta, in units of the reward (a leaf of the pytree: parameter sweeps can vmap over it).
        schedule: "constant", or "log": beta times log t, t the number of this plan from 1 on. With replan="episode" t
            is the number of the episode, as in [UBE18] figure 2.
        reward_sd, unvisited: as in `local_bonus`.
        replan: as in `PSRL`.

    Raises:
        ValueError: `scale`, `reward_sd` or `unvisited` is negative or not finite; another schedule.
        TypeError: no number, no rule of replanning.
    """

    scale: float | Array = 1.0
    schedule: str = eqx.field(default="constant", static=True)
    reward_sd: RealLike = 1.0
    unvisited: float | Array | None = None
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule)

    def __check_init__(self) -> None:
        check_not_negative("scale", self.scale)
        check_not_negative("reward_sd", self.reward_sd)
        if self.unvisited is not None:
            check_not_negative("unvisited", self.unvisited)
        check_name("schedule", self.schedule, SCHEDULES)

    def init(self, key: PRNGKeyArray, problem: Problem) -> CountBonusState:
        """No plan yet.

        Raises:
            ValueError: an objective other than `Discounted` and `Episodic`.
        """
        del key
        blank = blank_plan(problem, "a bonus by counts")
        return CountBonusState(blank, jnp.zeros((), jnp.int32))

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: CountBonusState, belief: CountedBelief
    ) -> tuple[Greedy, CountBonusState]:
        """Greedy for the optimistic plan; its q is the optimistic value. No random number is used.

        Raises:
            TypeError: `belief` has no mean or no counts.
        """
        del key
        require_ability(belief, CanMean, "CountBonus")
        require_ability(belief, CanCount, "CountBonus")
        mean, number = belief.mean_mdp(), state.num_plans + 1
        scale = self.scale * jnp.log(number.astype(mean.reward.dtype)) if self.schedule == "log" else self.scale
        bonus = local_bonus(
            mean,
            belief.visit_counts(),
            problem.objective,
            scale=scale,
            reward_sd=jnp.asarray(self.reward_sd, mean.reward.dtype),
            unvisited=self.unvisited,
        )
        # The bonus is a reward: one plan of the mean MDP with changed rewards, from the last plan.
        optimistic = eqx.tree_at(lambda m: m.reward, mean, mean.reward + bonus)
        solution = solve(optimistic, problem.objective, start=state.plan)
        policy = Greedy(solution.q, problem.space.legal, best=solution.policy)
        return policy, CountBonusState(None if state.plan is None else solution, number)
