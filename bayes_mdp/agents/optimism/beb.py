"""BEB: the Bayesian exploration bonus.

Kolter and Ng, *Near-Bayesian Exploration in Polynomial Time*, ICML 2009 [BEB09].
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from bayes_mdp.agents.common.mean_model import plan_for_rewards
from bayes_mdp.agents.common.optimism_terms import (
    NeedsConcentrations,
    effective_horizon,
    row_variance_factor,
    unknown_reward,
)
from bayes_mdp.agents.common.replan import ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import Greedy
from bayes_mdp.agents.optimism.counted_belief import CountedBelief
from bayes_mdp.mdp import Problem
from bayes_mdp.planning.solution import Solution
from bayes_mdp.utils.typing import AnyArray, RealScalar
from bayes_mdp.utils.validation import check_not_negative

Pairs = Float[AnyArray, "*H S A"]


def exploration_bonus(
    variance_factor: Pairs, scale: RealScalar, *, visits: Pairs, unknown_reward: Bool[AnyArray, "*H S A"] | None = None
) -> Pairs:
    """The bonus of every pair: scale / (1 + c0), c0 the total concentration of its row.

    The paper's rewards are known, and so is a row of infinite c0: its bonus is zero. Where the row is known and the
    mean reward is not, the visits stand in for c0 (ours: otherwise the agent would never explore such a reward).

    Args:
        variance_factor: 1 / (1 + c0); zero where the row is known.
        scale: beta, zero or greater, units of the reward.
        visits: number of observed transitions from every pair.
        unknown_reward: where the mean reward is unknown; None: nowhere.
    """
    bonus = scale * variance_factor
    # A known row has no bonus of its own; the visits then measure what is known of the reward.
    if unknown_reward is None:
        return bonus
    return jnp.where((variance_factor == 0) & unknown_reward, scale / (1.0 + visits), bonus)


class BEB(NeedsConcentrations):
    """Greedy for the optimal plan of the mean MDP with the bonus of `exploration_bonus` added to its rewards [BEB09].

    Q(s, a) = r(s, a) + beta / (1 + c0(s, a)) + discount sum_s' pbar(s' | s, a) max_a' Q(s', a'), with posterior means
    r and pbar: the prior's concentrations count in both. BEB approximates the Bayes-optimal policy, not the optimal
    one: it stops exploring sooner than agents with a bonus of 1 / sqrt(n), and may never find the optimum.

    Args:
        scale: beta (a leaf of the pytree: parameter sweeps can vmap over it); None: 2 H^2, the theory's for rewards in
            [0, 1], with 1 / (1 - discount) for H under `Discounted` (our reading).
        replan: as in `PSRL`.

    Raises:
        ValueError: `scale` is negative or not finite.
        TypeError: no number, no rule of replanning.
    """

    scale: float | Array | None = None
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule)

    def __check_init__(self) -> None:
        if self.scale is not None:
            check_not_negative("scale", self.scale)

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: Solution | None, belief: CountedBelief
    ) -> tuple[Greedy, Solution | None]:
        """Greedy for the optimistic plan; its q is the optimistic value. No random number is used.

        Raises:
            ValueError, TypeError: as `check_belief`.
        """
        del key
        self.check_belief(belief)
        scale = 2.0 * effective_horizon(problem.objective, "BEB") ** 2 if self.scale is None else self.scale
        visits, unknown = belief.visit_counts(), unknown_reward(belief)
        bonus = exploration_bonus(row_variance_factor(belief, "BEB"), scale, visits=visits, unknown_reward=unknown)
        q, best, state = plan_for_rewards(belief, problem, lambda reward: reward + bonus, state, "BEB")
        return Greedy(q, problem.space.legal, best=best), state
