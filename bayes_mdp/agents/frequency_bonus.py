"""Frequency-based exploration (Wiering and Schmidhuber 1998, *Efficient model-based exploration*; a row of [OIM08]).

Low confidence: the original and its constants were not available, and no fidelity to it is claimed.
"""

from typing import Any

import equinox as eqx
from jaxtyping import Array

from bayes_mdp.agents.empirical import Stats
from bayes_mdp.agents.exploration_reward import ExplorationReward
from bayes_mdp.agents.planners import ExactPlanner, PrioritizedSweeping
from bayes_mdp.agents.replan import EverySteps, ReplanRule, as_rule


class FrequencyBonus(ExplorationReward):
    """Pairs that were used often are avoided: the reward of exploration is -n / scale, n the visits of a pair.

        Qr = mean reward + discount sum_y N(y) / n max Qr(y, .)
        Qe = -n / scale + bonus_discount sum_y N(y) / n max Qe(y, .)

    The two optima are separate; the agent is greedy for Qr + Qe. A pair that was never tried has Qr = 0, Qe = `v_max`;
    no other has a reward of exploration above zero, so that Qe always prefers it, and the sum does where `v_max` is
    large enough. An end is worth nothing, which is more than any pair used is worth in Qe: alone, Qe seeks ends.

    Args:
        scale: visits that cost one unit of the reward.
        v_max: what a pair never tried is worth in Qe, zero or greater; units of the return.
        bonus_discount: of Qe under `Discounted`, in [0, 1); None: that of the objective. Under `Episodic` it is the
            factor of every step of Qe; None: 1.
        explore_prob: None: greedy for the sum. A probability: greedy for Qe with it, at every step anew, else for Qr.
        planner: `ExactPlanner()`, or `PrioritizedSweeping(...)` where there are many states.
        replan: when the policy takes up what was learnt; every step by default.

    Raises:
        ValueError: a number outside its range.
    """

    scale: float | Array = 100.0
    v_max: float | Array = 100.0
    bonus_discount: float | Array | None = None
    explore_prob: float | Array | None = None
    planner: ExactPlanner | PrioritizedSweeping = eqx.field(default=ExactPlanner(), kw_only=True)
    replan: ReplanRule | None = eqx.field(default=EverySteps(1), converter=as_rule, kw_only=True)

    def cost(self, stats: Stats) -> Any:
        """n."""
        return stats.visits
