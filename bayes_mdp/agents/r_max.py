"""R-max (Brafman and Tennenholtz, *R-MAX*, JMLR 3, 2002), the form of [OIM08]'s tables (SPEC 2.16 of the project)."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from bayes_mdp.agents.empirical import Local, Stats
from bayes_mdp.agents.model_based import ModelBased
from bayes_mdp.agents.optimism import check_value, warn_of_lost_optimism
from bayes_mdp.agents.planners import ExactPlanner, PrioritizedSweeping, check_planner
from bayes_mdp.agents.replan import EverySteps, ReplanRule, as_rule
from bayes_mdp.mdp import Problem, Transitions
from bayes_mdp.mdp.validation import check_bool, check_that


class RMax(ModelBased):
    """A pair is worth `v_max` until it was used m times; from then on it is what was seen of it. Greedy in that model.

        Q = v_max                                            n < m
        Q = Rhat + discount sum_y phat(y) V(y)               n >= m

    The first line is all exploration (Qe), the second what the world pays (Qr); with exploration switched off an
    unknown pair is worth nothing.

    Args:
        v_max: R_max / (1 - discount); units of the return. Under `Episodic` the same at every step.
        num_visits: m, at least 1.
        freeze: what comes after the m-th use of a pair is not counted; else the model goes on learning (the same
            theorems hold for both).
        planner: `ExactPlanner()`, or `PrioritizedSweeping(...)` where there are many states.
        replan: when the policy takes up what was learnt; every step by default.

    Raises:
        ValueError: `v_max` is not finite, `num_visits` is less than 1 or infinite, `PrioritizedSweeping` with `freeze`.
    """

    v_max: float | Array = 100.0
    num_visits: int | Array = 5
    freeze: bool = eqx.field(default=False, static=True, kw_only=True)
    planner: ExactPlanner | PrioritizedSweeping = eqx.field(default=ExactPlanner(), kw_only=True)
    replan: ReplanRule | None = eqx.field(default=EverySteps(1), converter=as_rule, kw_only=True)
    joint: ClassVar[bool] = True

    def __check_init__(self) -> None:
        check_value("v_max", self.v_max)
        check_num_visits(self.num_visits)
        check_bool("freeze", self.freeze)
        check_planner(self.planner)
        if self.freeze and not isinstance(self.planner, ExactPlanner):
            kind = type(self.planner).__name__
            raise ValueError(f"planner is {kind}, expected ExactPlanner for RMax with freeze")

    def local(self, stats: Stats, worth: Any) -> Local:
        """The equations above."""
        del worth
        known = stats.visits >= self.num_visits
        bonus = jnp.where(known, 0.0, jnp.asarray(self.v_max, float))
        return Local(jnp.where(known, stats.reward, 0.0), bonus, jnp.where(known[..., None], stats.probs, 0.0))

    def observe(self, problem: Problem, state: Any, transition: Transitions, weight: Any = 1.0) -> Any:
        """The state after one transition; unchanged where `weight` is 0, or where the pair is frozen."""
        if self.freeze:
            full = state.tally.visits[transition.cell(problem.space)] >= self.num_visits
            weight = jnp.where(full, 0.0, weight)
        return super().observe(problem, state, transition, weight)

    def check_optimism(self, max_reward: float) -> None:
        """Warn where optimism is lost: `v_max` below the largest reward of one step."""
        warn_of_lost_optimism("v_max", self.v_max, max_reward)


def check_num_visits(value: Any) -> None:
    """Refuse a number of visits below 1, where it can be seen.

    Raises:
        ValueError: as said.
    """
    check_that("num_visits", value, lambda x: (x >= 1) & np.isfinite(x), "a number of at least 1")
