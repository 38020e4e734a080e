"""OIM, the optimistic initial model ([OIM08] Szita and Lorincz, *The Many Faces of Optimism*, ICML 2008, section 3)."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from bayes_mdp.agents.empirical import Local, Stats
from bayes_mdp.agents.model_based import ModelBased
from bayes_mdp.agents.optimism import check_value, warn_of_lost_optimism
from bayes_mdp.agents.planners import ExactPlanner, PrioritizedSweeping, check_planner
from bayes_mdp.agents.replan import EverySteps, ReplanRule, as_rule


class OIM(ModelBased):
    """Every pair has, beside what was seen, led once to a garden of Eden worth `v_max`; greedy in that model.

    With n visits, N(y) of them to y, and C the sum of the rewards,

        Qr = C / (n + 1) + discount sum_y N(y) / (n + 1) Qr(y, a_y)
        Qe = v_max / (n + 1) + discount sum_y N(y) / (n + 1) Qe(y, a_y),        a_y = argmax (Qr + Qe)(y, .)

    ([OIM08] algorithm 1; the step to the garden is not discounted: the reward R_max is paid on arrival, and
    R_max + discount v_max = v_max). Qr + Qe >= Q* - eps holds for `v_max` large enough (lemma 4.2). The constants that
    do best, and those of the paper's tables, lie below the largest value, and are not optimistic in that sense.

    Args:
        v_max: value of the garden, R_max / (1 - discount) of the paper; units of the return. Under `Episodic` the same
            at every step.
        planner: `ExactPlanner()`, or `PrioritizedSweeping(...)` where there are many states.
        replan: when the policy takes up what was learnt; every step by default.

    Raises:
        ValueError: `v_max` is not finite.
    """

    v_max: float | Array = 100.0
    planner: ExactPlanner | PrioritizedSweeping = eqx.field(default=ExactPlanner(), kw_only=True)
    replan: ReplanRule | None = eqx.field(default=EverySteps(1), converter=as_rule, kw_only=True)
    joint: ClassVar[bool] = True

    def __check_init__(self) -> None:
        check_value("v_max", self.v_max)
        check_planner(self.planner)

    def local(self, stats: Stats, worth: Any) -> Local:
        """The equations above."""
        del worth
        seen = stats.visits + 1.0
        reward = stats.reward * stats.visits / seen
        return Local(reward, jnp.asarray(self.v_max) / seen, stats.counts / seen[..., None])

    def check_optimism(self, max_reward: float) -> None:
        """Warn where optimism is lost: `v_max` below the largest reward of one step."""
        warn_of_lost_optimism("v_max", self.v_max, max_reward)
