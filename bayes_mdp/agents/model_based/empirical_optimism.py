"""Learners without a prior: count, build an empirical model, plan in it, follow the plan.

Here: the base class, and the methods of [OIM08] Szita and Lorincz, *The Many Faces of Optimism*, ICML 2008, with a
local model of a line or two: OIM, R-max and the epsilon-greedy baseline.
"""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from bayes_mdp.agents.common.optimism_terms import check_value, warn_of_lost_optimism
from bayes_mdp.agents.common.replan import EverySteps, ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import EpsilonGreedy, Greedy, TablePolicy
from bayes_mdp.agents.model_based.empirical import Local, Stats
from bayes_mdp.agents.model_based.planners import ExactPlanner, PrioritizedSweeping, Split, check_planner
from bayes_mdp.mdp import Problem, Transitions
from bayes_mdp.planning import solve
from bayes_mdp.utils.typing import Scalar
from bayes_mdp.utils.validation import check_bool, check_fraction, check_that


class ModelBased(eqx.Module):
    """A learner that plans in its empirical model, with an exploration bonus added to the rewards.

    A method is defined by `local` alone: reward, exploration bonus and rows of every pair, from its counts. Values
    split into Qr + Qe ([OIM08] section 2.5): `split` shows both, `greedy` follows Qr alone, and `exploit` is the best
    policy of the empirical model.

    Args:
        planner: `ExactPlanner()`, or `PrioritizedSweeping(...)` where there are many states.
        replan: when the policy is updated; every step by default.

    Raises:
        TypeError: no planner, no rule of replanning.
    """

    planner: ExactPlanner | PrioritizedSweeping = eqx.field(default=ExactPlanner(), kw_only=True)
    replan: ReplanRule | None = eqx.field(default=EverySteps(1), converter=as_rule, kw_only=True)
    joint: ClassVar[Any] = True
    own_rows: ClassVar[Any] = False

    def __check_init__(self) -> None:
        check_planner(self.planner)

    @property
    def discount_of_bonus(self) -> Scalar | None:
        """Of the exploration values; None: that of the objective."""
        return None

    @abc.abstractmethod
    def local(self, stats: Stats, values: Float[Array, "*pairs K"]) -> Local:
        """The model of some pairs."""

    def init(self, key: PRNGKeyArray, problem: Problem) -> PyTree:
        """No data.

        Raises:
            ValueError: an objective or a size that the planner does not support.
        """
        del key
        return self.planner.init(self, problem)

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: PyTree, belief: object = None
    ) -> tuple[TablePolicy, PyTree]:
        """Greedy for Qr + Qe."""
        del key, belief
        return self._planned(problem, state)

    def _planned(self, problem: Problem, state: PyTree) -> tuple[Greedy, PyTree]:
        q, best, state = self.planner.plan(self, problem, state)
        return Greedy(q, problem.space.legal, best=best), state

    def observe(self, problem: Problem, state: PyTree, transition: Transitions, weight: Scalar = 1.0) -> PyTree:
        """The state after one transition; unchanged where `weight` is 0."""
        return self.planner.observe(self, problem, state, transition, weight)

    def split(self, problem: Problem, state: PyTree) -> Split:
        """The two value functions, Qr and Qe, and their greedy actions.

        Args:
            problem: what is known of the MDP before any data.
            state: of the planner.
        """
        return self.planner.split(self, problem, state)

    def exploit(self, problem: Problem, state: PyTree) -> Greedy:
        """The best policy of the empirical model, without exploration.

        Pairs that were never tried are not used; a state in which nothing was tried has value 0.

        Args:
            problem, state: as of `split`.
        """
        solution = solve(state.tally.mdp(problem.space), problem.objective)
        return Greedy(solution.q, best=solution.policy)

    def greedy(self, problem: Problem, state: PyTree) -> Greedy:
        """Exploration switched off as in [OIM08]: greedy for Qr.

        Where both parts follow one policy (OIM, R-max, MBIE-EB), Qr is the value of the policy that *explores*, and a
        pair that was never tried has Qr = 0: early on, `exploit` is the better policy.

        Args:
            problem, state: as of `split`.
        """
        split = self.split(problem, state)
        return Greedy(split.qr, problem.space.legal, best=split.best_r)

    def check_learnt(self, state: PyTree) -> None:
        """Warn where the planner's lists were too short for the data."""
        self.planner.check_learnt(state)


class EpsilonGreedyModel(ModelBased):
    """Epsilon-greedy for the optimum of the empirical model: the baseline of [OIM08] table 3.

    No exploration bonus, no prior (`EpsilonGreedyMean` plans in the mean of a posterior): a pair that was never
    tried has value 0. Ties go to the first action.

    Args:
        epsilon: in [0, 1].
        planner, replan: as in `ModelBased`.

    Raises:
        ValueError: `epsilon` lies outside [0, 1].
        TypeError: no number.
    """

    epsilon: float | Array = 0.1

    def __check_init__(self) -> None:
        check_fraction("epsilon", self.epsilon)

    def local(self, stats: Stats, values: Float[Array, "*pairs K"]) -> Local:
        """The empirical model."""
        del values
        return Local(stats.reward, jnp.zeros_like(stats.reward), stats.probs)

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: PyTree, belief: object = None
    ) -> tuple[EpsilonGreedy, PyTree]:
        """Epsilon-greedy for the plan."""
        del key, belief
        policy, state = self._planned(problem, state)
        return EpsilonGreedy(policy.q, self.epsilon, problem.space.legal), state


class OptimisticModel(ModelBased):
    """A `ModelBased` learner in whose model a pair that was never tried has value `v_max`.

    Raises:
        ValueError: `v_max` is not finite. TypeError: no number.
    """

    @property
    @abc.abstractmethod
    def first_value(self) -> Scalar:
        """`v_max`."""

    def __check_init__(self) -> None:
        check_value("v_max", vars(self)["v_max"])  # anything as yet: `first_value` promises a number

    def check_optimism(self, max_reward: float) -> None:
        """Warn where optimism is lost: `v_max` below the largest reward of one step."""
        warn_of_lost_optimism("v_max", self.first_value, max_reward)


class OIM(OptimisticModel):
    """Optimistic initial model ([OIM08] section 3): every pair has one extra transition to a state of value `v_max`.

    The agent is greedy in that model, whose extra state is the "garden of Eden" of the paper.

    With n visits, N(y) of them to y, and C the sum of the rewards,

        Qr = C / (n + 1) + discount sum_y N(y) / (n + 1) Qr(y, a_y)
        Qe = v_max / (n + 1) + discount sum_y N(y) / (n + 1) Qe(y, a_y),        a_y = argmax (Qr + Qe)(y, .)

    ([OIM08] algorithm 1; the step to the garden is not discounted: the reward R_max is paid on arrival, and
    R_max + discount v_max = v_max). Qr + Qe >= Q* - eps holds for `v_max` large enough (lemma 4.2). The constants that
    perform best, and those of the paper's tables, are below the largest value, hence not optimistic in that sense.

    Args:
        v_max: value of the garden, R_max / (1 - discount) of the paper; units of the return. Under `Episodic` the same
            at every step.
        planner, replan: as in `ModelBased`.

    Raises:
        ValueError: `v_max` is not finite.
    """

    v_max: float | Array = 100.0

    @property
    def first_value(self) -> Scalar:
        """`v_max`."""
        return self.v_max

    def local(self, stats: Stats, values: Float[Array, "*pairs K"]) -> Local:
        """The equations above."""
        del values
        # One imaginary transition to the garden beside the n observed ones.
        n = stats.visits + 1.0
        reward = stats.reward * stats.visits / n
        return Local(reward, jnp.asarray(self.v_max) / n, stats.counts / n[..., None])


class RMax(OptimisticModel):
    """R-max (Brafman and Tennenholtz, JMLR 3, 2002): a pair has value `v_max` until it was used m times.

    From then on its empirical model is used; the agent is greedy in that model (as in the tables of [OIM08]).

        Q = v_max                                            n < m
        Q = Rhat + discount sum_y phat(y) V(y)               n >= m

    The first line is all exploration (Qe), the second the observed reward (Qr); with exploration switched off an
    unknown pair has value 0.

    Args:
        v_max: R_max / (1 - discount); units of the return. Under `Episodic` the same at every step.
        num_visits: m, at least 1.
        freeze: transitions after the m-th use of a pair are not counted; otherwise the model continues to learn (the
            same theorems hold for both).
        planner, replan: as in `ModelBased`.

    Raises:
        ValueError: `v_max` is not finite, `num_visits` is less than 1 or infinite, `PrioritizedSweeping` with `freeze`.
        TypeError: no number, `freeze` is no bool.
    """

    v_max: float | Array = 100.0
    num_visits: int | Array = 5
    freeze: bool = eqx.field(default=False, static=True, kw_only=True)

    @property
    def first_value(self) -> Scalar:
        """`v_max`."""
        return self.v_max

    def __check_init__(self) -> None:
        check_num_visits(self.num_visits)
        check_bool("freeze", self.freeze)
        if self.freeze and not isinstance(self.planner, ExactPlanner):
            kind = type(self.planner).__name__
            raise ValueError(f"planner is {kind}, expected ExactPlanner for RMax with freeze")

    def local(self, stats: Stats, values: Float[Array, "*pairs K"]) -> Local:
        """The equations above."""
        del values
        known = stats.visits >= self.num_visits
        bonus = jnp.where(known, 0.0, jnp.asarray(self.v_max, float))
        return Local(jnp.where(known, stats.reward, 0.0), bonus, jnp.where(known[..., None], stats.probs, 0.0))

    def observe(self, problem: Problem, state: PyTree, transition: Transitions, weight: Scalar = 1.0) -> PyTree:
        """The state after one transition; unchanged where `weight` is 0, or where the pair is frozen."""
        if self.freeze:
            full = state.tally.visits[transition.cell(problem.space)] >= self.num_visits
            weight = jnp.where(full, 0.0, weight)
        return super().observe(problem, state, transition, weight)


def check_num_visits(value: object) -> None:
    """Refuse a number of visits below 1, where it is not traced.

    Args:
        value: of the option.

    Raises:
        ValueError: as said.
        TypeError: no number.
    """
    check_that("num_visits", value, lambda x: (x >= 1) & np.isfinite(x), "a number of at least 1")
