"""Recency-based exploration (Wiering and Schmidhuber 1998, *Efficient model-based exploration*; a row of [OIM08]).

Low confidence: the original and its constants were not available, and no fidelity to it is claimed.
"""

from typing import Any

import equinox as eqx
from jaxtyping import Array

from bayes_mdp.agents.empirical import Stats
from bayes_mdp.agents.exploration_reward import ExplorationReward
from bayes_mdp.agents.planners import ExactPlanner, PrioritizedSweeping
from bayes_mdp.agents.replan import EverySteps, ReplanRule, as_rule


class RecencyBonus(ExplorationReward):
    """Pairs that were used lately are avoided: the reward of exploration is -t / scale, t the step of the last use.

        Qr = mean reward + discount sum_y N(y) / n max Qr(y, .)
        Qe = -t / scale + bonus_discount sum_y N(y) / n max Qe(y, .)

    Steps are counted from the beginning of the run, so that a reward of exploration changes only where its pair is
    used. A pair that was never tried has Qr = 0, Qe = `v_max`; no other has a reward of exploration above zero, so that
    Qe always prefers it.

    Args:
        scale: steps that cost one unit of the reward.
        v_max, bonus_discount, explore_prob, planner, replan: as in `FrequencyBonus`.

    Raises:
        ValueError: a number outside its range.
    """

    scale: float | Array = 1000.0
    v_max: float | Array = 100.0
    bonus_discount: float | Array | None = None
    explore_prob: float | Array | None = None
    planner: ExactPlanner | PrioritizedSweeping = eqx.field(default=ExactPlanner(), kw_only=True)
    replan: ReplanRule | None = eqx.field(default=EverySteps(1), converter=as_rule, kw_only=True)

    def cost(self, stats: Stats) -> Any:
        """t."""
        return stats.last_use.astype(stats.visits.dtype)
