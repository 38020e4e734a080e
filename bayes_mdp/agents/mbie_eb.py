"""MBIE-EB (Strehl and Littman, *An analysis of model-based interval estimation*, JCSS 74, 2008, section 2.3)."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from bayes_mdp.agents.empirical import Local, Stats
from bayes_mdp.agents.model_based import ModelBased
from bayes_mdp.agents.optimism import check_value, warn_of_lost_optimism
from bayes_mdp.agents.planners import ExactPlanner, PrioritizedSweeping, check_planner
from bayes_mdp.agents.replan import EverySteps, ReplanRule, as_rule
from bayes_mdp.mdp.validation import check_not_negative


class MBIEEB(ModelBased):
    """The empirical model with a bonus that falls as 1 / sqrt(n).

        Q = v_max                                                        n = 0
        Q = Rhat + beta / sqrt(n) + discount sum_y phat(y) V(y)          n > 0

    Args:
        beta: units of the reward; in [OIM08]'s tables .4 R_max (RiverSwim) and .8 R_max (SixArms). 0: the empirical
            plan, in which what was never tried is worth `v_max`.
        v_max: R_max / (1 - discount); units of the return. Under `Episodic` the same at every step.
        planner: `ExactPlanner()`, or `PrioritizedSweeping(...)` where there are many states.
        replan: when the policy takes up what was learnt; every step by default.

    Raises:
        ValueError: `beta` is negative or not finite, `v_max` is not finite.
    """

    beta: float | Array = 1.0
    v_max: float | Array = 100.0
    planner: ExactPlanner | PrioritizedSweeping = eqx.field(default=ExactPlanner(), kw_only=True)
    replan: ReplanRule | None = eqx.field(default=EverySteps(1), converter=as_rule, kw_only=True)
    joint: ClassVar[bool] = True

    def __check_init__(self) -> None:
        check_not_negative("beta", self.beta)
        check_value("v_max", self.v_max)
        check_planner(self.planner)

    def local(self, stats: Stats, worth: Any) -> Local:
        """The equations above."""
        del worth
        return Local(stats.reward, interval_bonus(stats, self.beta, self.v_max), stats.probs)

    def check_optimism(self, max_reward: float) -> None:
        """Warn where optimism is lost: `v_max` below the largest reward of one step."""
        warn_of_lost_optimism("v_max", self.v_max, max_reward)


def interval_bonus(stats: Stats, width: Any, v_max: Any) -> Any:
    """width / sqrt(n), `v_max` where n = 0."""
    seen = stats.visits > 0
    return jnp.where(seen, width / jnp.sqrt(jnp.where(seen, stats.visits, 1.0)), jnp.asarray(v_max, float))
