"""Learners without a prior: count, build an empirical model, plan in it, follow the plan.

The base class; the methods of [OIM08] Szita and Lorincz, *The Many Faces of Optimism*, ICML 2008, with a local model of
a line or two (OIM, R-max and the epsilon-greedy baseline); rewards of exploration by frequency and by recency, a second
value table with its own optimum and discount; and E3, which explores or exploits explicitly. Reconstructed, because the
constants in the tables of [OIM08] were not available, or the original (results may differ): the two rewards of
exploration (Wiering and Schmidhuber, *Efficient model-based exploration*, 1998) and E3 (Kearns and Singh, *Near-optimal
reinforcement learning in polynomial time*, Machine Learning 49, 2002, whose constants are not usable).
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from bayes_mdp.agents.common.mean_model import warn_of_lost_optimism
from bayes_mdp.agents.common.replan import EverySteps, ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import EpsilonGreedy, Greedy, TablePolicy, lookup
from bayes_mdp.agents.model_based.empirical_planning import (
    BellmanEquations,
    ExactPlanner,
    ExactState,
    Local,
    OnePolicy,
    PrioritizedSweeping,
    Split,
    Stats,
    Tally,
    TwoOptima,
    next_states,
)
from bayes_mdp.mdp import Discounted, Episodic, Problem, Transitions
from bayes_mdp.mdp.objectives import require_objective
from bayes_mdp.numerics.products import matmul
from bayes_mdp.planning import solve
from bayes_mdp.planning.solution import best_action, where_legal
from bayes_mdp.utils.typing import IntScalar, Scalar
from bayes_mdp.utils.validation import (
    check_bool,
    check_finite,
    check_fraction,
    check_not_negative,
    check_positive,
    check_that,
    check_type,
    check_whole,
)


class ModelBased(eqx.Module):
    """A learner that plans in its empirical model, with an exploration bonus added to the rewards.

    A method is defined by `local`, reward, exploration bonus and rows of every pair, from its counts, and by
    `equations`, how the values split into Qr + Qe ([OIM08] section 2.5): `split` shows both, `greedy` follows Qr alone,
    and `exploit` is the best policy of the empirical model.

    Args:
        planner: `ExactPlanner()`, or `PrioritizedSweeping(...)` where there are many states.
        replan: when the policy is updated; every step by default.

    Raises:
        TypeError: no planner, no rule of replanning.
    """

    planner: ExactPlanner | PrioritizedSweeping = eqx.field(default=ExactPlanner(), kw_only=True)
    replan: ReplanRule | None = eqx.field(default=EverySteps(1), converter=as_rule, kw_only=True)

    def __check_init__(self) -> None:
        kinds = "ExactPlanner() or PrioritizedSweeping()"
        check_type("planner", self.planner, (ExactPlanner, PrioritizedSweeping), kinds)

    @abc.abstractmethod
    def local(self, stats: Stats) -> Local:
        """The model of some pairs.

        Args:
            stats: what was observed of them.
        """

    @property
    def equations(self) -> BellmanEquations:
        """How Qr and Qe are related: here both are values of the policy that is greedy for the sum."""
        # A subclass changes what it has to: the model (`local`), or how the two tables are related.
        return OnePolicy(self.local)

    def init(self, key: PRNGKeyArray, problem: Problem) -> PyTree:
        """No data.

        Raises:
            ValueError: an objective or a size that the planner does not support.
        """
        del key
        return self.planner.init(self.equations, problem, type(self).__name__)

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: PyTree, belief: object = None
    ) -> tuple[TablePolicy, PyTree]:
        """Greedy for Qr + Qe."""
        del key, belief
        return self._make_plan(problem, state)

    def _make_plan(self, problem: Problem, state: PyTree) -> tuple[Greedy, PyTree]:
        q, best, state = self.planner.plan(self.equations, problem, state)
        # The plan's own actions, not the argmax of q: equal values may have been resolved by the planner.
        return Greedy(q, problem.space.legal, best=best), state

    def observe(self, problem: Problem, state: PyTree, transition: Transitions, weight: Scalar = 1.0) -> PyTree:
        """The state after one transition; unchanged where `weight` is 0."""
        return self.planner.observe(self.equations, problem, state, transition, weight)

    def split(self, problem: Problem, state: PyTree) -> Split:
        """The two value functions, Qr and Qe, and their greedy actions.

        Args:
            problem: what is known of the MDP before any data.
            state: of the planner.
        """
        return self.planner.split(self.equations, problem, state)

    def exploit(self, problem: Problem, state: PyTree) -> Greedy:
        """The best policy of the empirical model, without exploration.

        Pairs that were never tried are not used; a state in which nothing was tried has value 0.

        Args:
            problem, state: as of `split`.
        """
        # Only tried pairs are legal in this MDP: without optimism nothing untried is chosen.
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

    def local(self, stats: Stats) -> Local:
        """The empirical model."""
        return Local(stats.reward, jnp.zeros_like(stats.reward), stats.probs)

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: PyTree, belief: object = None
    ) -> tuple[EpsilonGreedy, PyTree]:
        """Epsilon-greedy for the plan."""
        del key, belief
        policy, state = self._make_plan(problem, state)
        # Epsilon of the time any legal action, whatever the model says of it.
        return EpsilonGreedy(policy.q, self.epsilon, problem.space.legal), state


class OptimisticModel(ModelBased):
    """A `ModelBased` learner in whose model a pair that was never tried has value `v_max`.

    Raises:
        ValueError: `v_max` is not finite. TypeError: no number.
    """

    v_max: eqx.AbstractVar[float | Array]

    def __check_init__(self) -> None:
        check_finite("v_max", self.v_max)

    def check_optimism(self, max_reward: float) -> None:
        """Warn where optimism is lost: `v_max` below the largest reward of one step."""
        warn_of_lost_optimism("v_max", self.v_max, max_reward)


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

    def local(self, stats: Stats) -> Local:
        """The equations above."""
        # One imaginary transition to the garden beside the n observed ones.
        n = stats.visits + 1.0
        # The garden pays nothing on the way and v_max for ever: its part is the bonus v_max / n.
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

    def __check_init__(self) -> None:
        check_num_visits(self.num_visits)
        check_bool("freeze", self.freeze)
        if self.freeze and not isinstance(self.planner, ExactPlanner):
            kind = type(self.planner).__name__
            raise ValueError(f"planner is {kind}, expected ExactPlanner for RMax with freeze")

    def local(self, stats: Stats) -> Local:
        """The equations above."""
        # An unknown pair has neither rows nor rewards: its value is its bonus, v_max, whatever follows.
        known = stats.visits >= self.num_visits
        bonus = jnp.where(known, 0.0, jnp.asarray(self.v_max, float))
        return Local(jnp.where(known, stats.reward, 0.0), bonus, jnp.where(known[..., None], stats.probs, 0.0))

    def observe(self, problem: Problem, state: PyTree, transition: Transitions, weight: Scalar = 1.0) -> PyTree:
        """The state after one transition; unchanged where `weight` is 0, or where the pair is frozen."""
        # A known pair keeps the model of its first m transitions.
        if self.freeze:
            full = state.tally.visits[transition.cell(problem.space)] >= self.num_visits
            # A weight of zero leaves the tally as it is.
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


class Alternates(TablePolicy):
    """Greedy for one of two tables, drawn anew at every step; ties go to the first action.

    Args:
        explore: followed with probability `prob`; -inf where an action is illegal.
        real: values followed otherwise.
        prob: in [0, 1].
    """

    explore: Float[Array, "*H S A"]
    real: Float[Array, "*H S A"]
    prob: Float[Array, ""]

    def _best(self, state: IntScalar, step: IntScalar) -> tuple[Int[Array, ""], Int[Array, ""]]:
        # Ties go to the first action, in both tables.
        return best_action(lookup(self.explore, 1, state, step)), best_action(lookup(self.real, 1, state, step))

    def act(self, key: PRNGKeyArray, state: IntScalar, step: IntScalar = 0) -> Int[Array, ""]:
        """An action."""
        explore, real = self._best(state, step)
        return jnp.where(jax.random.uniform(key) < self.prob, explore, real)

    def log_prob(self, state: IntScalar, action: IntScalar, step: IntScalar = 0) -> Float[Array, ""]:
        """Log-probability, exact."""
        # The two greedy actions may be the same: their probabilities add up.
        explore, real = self._best(state, step)
        return jnp.log(self.prob * (action == explore) + (1.0 - self.prob) * (action == real))


class ExplorationReward(ModelBased):
    """Two optima of the empirical model: of the rewards, Qr, and of a reward of exploration, Qe. See the subclasses.

    Args:
        scale: by which the cost of a pair is divided; greater than zero.
        v_max: value in Qe of a pair never tried, units of the return; zero or greater.
        bonus_discount: discount of the exploration values, in [0, 1); None: that of the objective.
        explore_prob: probability of acting on Qe; None: greedy for the sum Qr + Qe.

    Raises:
        ValueError: a number outside its range. TypeError: no number.
    """

    scale: eqx.AbstractVar[float | Array]
    v_max: eqx.AbstractVar[float | Array]
    bonus_discount: eqx.AbstractVar[float | Array | None]
    explore_prob: eqx.AbstractVar[float | Array | None]

    def __check_init__(self) -> None:
        check_not_negative("v_max", self.v_max)
        check_positive("scale", self.scale)
        if self.explore_prob is not None:
            check_fraction("explore_prob", self.explore_prob)
        if self.bonus_discount is not None:
            expected = "a number from 0 up to, but not including, 1"
            check_that("bonus_discount", self.bonus_discount, lambda x: (x >= 0) & (x < 1), expected)

    @property
    def equations(self) -> BellmanEquations:
        """Two optima, of the rewards and of the reward of exploration."""
        return TwoOptima(self.local, self.bonus_discount)

    @abc.abstractmethod
    def cost(self, stats: Stats) -> Float[Array, "*pairs"]:
        """The cost of a pair that was used, before division by `scale`.

        Args:
            stats: of the pairs.
        """

    def local(self, stats: Stats) -> Local:
        """The mean reward; -cost / scale, or `v_max` where a pair was never tried; the empirical rows."""
        # Costs are below zero and v_max is not: Qe of a pair that was never tried is above all others.
        bonus = jnp.where(stats.visits > 0, -self.cost(stats) / self.scale, self.v_max)
        return Local(stats.reward, bonus, stats.probs)

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: PyTree, belief: object = None
    ) -> tuple[Greedy | Alternates, PyTree]:
        """Greedy for Qr + Qe, or `Alternates`."""
        del key, belief
        policy, state = self._make_plan(problem, state)
        if self.explore_prob is None:
            # Qr and Qe alternate by chance, in place of their sum.
            return policy, state
        split = self.split(problem, state)
        return Alternates(split.qe, split.qr, jnp.asarray(self.explore_prob, split.qr.dtype)), state

    def check_optimism(self, max_reward: float) -> None:
        """Warn where the sum does not favour what is untried: `v_max` below the largest reward of one step."""
        if self.explore_prob is None:
            warn_of_lost_optimism("v_max", self.v_max, max_reward)


class FrequencyBonus(ExplorationReward):
    """Pairs that were used often are avoided: the reward of exploration is -n / scale, n the visits of a pair.

    From [WS98], after [OIM08].

        Qr = mean reward + discount sum_y N(y) / n max Qr(y, .)
        Qe = -n / scale + bonus_discount sum_y N(y) / n max Qe(y, .)

    The two optima are separate; the agent is greedy for Qr + Qe. A pair that was never tried has Qr = 0, Qe = `v_max`;
    no other has a reward of exploration above zero, so that Qe always prefers it, and the sum does where `v_max` is
    large enough. An end has value 0, above every used pair in Qe: alone, Qe prefers ends.

    Args:
        scale: visits that cost one unit of the reward.
        v_max: value in Qe of a pair never tried, zero or greater; units of the return.
        bonus_discount: of Qe under `Discounted`, in [0, 1); None: that of the objective. Under `Episodic` it is the
            factor of every step of Qe; None: 1.
        explore_prob: None: greedy for the sum. A probability: greedy for Qe with it, drawn at every step, else for Qr.
        planner, replan: as in `ModelBased`.

    Raises:
        ValueError: a number outside its range.
    """

    scale: float | Array = 100.0
    v_max: float | Array = 100.0
    bonus_discount: float | Array | None = None
    explore_prob: float | Array | None = None

    def cost(self, stats: Stats) -> Float[Array, "*pairs"]:
        """n, the number of visits.

        Args:
            stats: of the pairs.
        """
        return stats.visits


class RecencyBonus(ExplorationReward):
    """Pairs that were used lately are avoided: the reward of exploration is -t / scale, t the step of the last use.

    From [WS98], after [OIM08].

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

    def cost(self, stats: Stats) -> Float[Array, "*pairs"]:
        """t, the time of the last use.

        Args:
            stats: of the pairs.
        """
        return stats.last_use.astype(stats.visits.dtype)


class E3State(eqx.Module):
    """Counts, the last plans, and the current exploration.

    Args:
        model: counts, and the solutions of M_exploit and M_explore.
        tempting: known states from which the last plan begins to explore.
        left: remaining steps of exploration.
    """

    model: ExactState
    tempting: Bool[Array, "*H S"]
    left: Int[Array, ""]


class E3(eqx.Module):
    """Explicit explore or exploit: exploit where no unknown state is likely to be reached soon, else explore.

    A state is known when all its legal actions were tried m times. In an unknown state the least-tried action is taken
    (balanced wandering). Plans are made in two models, which agree with the data in known states:

    * M_exploit: unknown states are absorbing and pay nothing.
    * M_explore: known states pay nothing, unknown states are absorbing and pay R_max, whose size does not matter.

    In a known state the plan of M_explore is followed for `num_explore` steps, or to an unknown state, if in the model
    it reaches one within so many steps with more than the probability `threshold`; else one step of M_exploit's.
    Under `Episodic` exploration goes on to the end of the episode, and `num_explore` is not used.

    Not available: m, threshold and number of steps of the tables of [OIM08].

    Args:
        num_visits: m, at least 1.
        threshold: in [0, 1].
        num_explore: H, at least 1.
        replan: when the policy is updated; every step by default. Between plans the choice between exploring and
            exploiting is kept.

    Raises:
        ValueError: a number outside its range.
        TypeError: no number, no rule of replanning.
    """

    num_visits: int | Array = 5
    threshold: float | Array = 0.05
    num_explore: int | Array = eqx.field(default=20, kw_only=True)
    replan: ReplanRule | None = eqx.field(default=EverySteps(1), converter=as_rule, kw_only=True)

    def __check_init__(self) -> None:
        check_num_visits(self.num_visits)
        check_fraction("threshold", self.threshold)
        check_whole("num_explore", self.num_explore)

    def init(self, key: PRNGKeyArray, problem: Problem) -> E3State:
        """No data.

        Raises:
            ValueError: an objective other than `Discounted` and `Episodic`.
        """
        del key
        require_objective(problem.objective, "E3", Discounted, Episodic)
        model = ExactPlanner().init(self._equations(problem), problem, "E3")
        shape, objective = problem.space.shape[:-1], problem.objective
        shape = (objective.horizon, shape[-1]) if isinstance(objective, Episodic) else shape
        return E3State(model, jnp.zeros(shape, bool), jnp.int32(0))

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: E3State, belief: object = None
    ) -> tuple[Greedy, E3State]:
        """Wander, explore or exploit, state by state; q is that of M_exploit."""
        del key, belief
        # M_exploit and M_explore share the rows, so that one state of plans holds both.
        model, split = self._make_plan(problem, state.model)
        unknown = self._unknown(problem, model.tally.visits)
        explore = best_action(split.qe)
        tempting = ~unknown & (self._escape(problem, model.tally, split, unknown, explore) > self.threshold)
        # In a known state: continue an exploration, or begin one where the probability of escape is high enough.
        exploring = ~unknown & (tempting | (state.left > 0))
        # Balanced wandering: the least-tried legal action of an unknown state.
        fewest = best_action(where_legal(-model.tally.visits, problem.space.legal))
        known = jnp.where(exploring, explore, split.best_r)
        policy = Greedy(split.qr, problem.space.legal, best=jnp.where(unknown, fewest, known))
        return policy, E3State(model, tempting, state.left)

    def greedy(self, problem: Problem, state: E3State) -> Greedy:
        """Exploration switched off: the plan of M_exploit.

        Args:
            problem: what is known of the MDP before any data.
            state: the agent's own.
        """
        split = self._make_plan(problem, state.model)[1]
        return Greedy(split.qr, problem.space.legal, best=split.best_r)

    def observe(self, problem: Problem, state: E3State, transition: Transitions, weight: Scalar = 1.0) -> E3State:
        """The state after one transition; unchanged where `weight` is 0."""
        model = ExactPlanner().observe(self._equations(problem), problem, state.model, transition, weight)
        layered = state.tempting.ndim == 2
        row = (transition.step, transition.state) if layered else transition.state
        # Under a horizon exploration may last to the end of the episode.
        # A tempting state starts a count-down; an unknown state or the end of the episode stops it.
        length = problem.objective.horizon if isinstance(problem.objective, Episodic) else self.num_explore
        begun = jnp.where(state.tempting[row], jnp.asarray(length, jnp.int32), 0)
        # The step that was just made is one of the count.
        left = jnp.maximum(jnp.where(state.left > 0, state.left, begun) - 1, 0)
        left = jnp.where(self._stops(problem, model.tally, transition), 0, left)
        return E3State(model, state.tempting, jnp.where(jnp.asarray(weight) != 0, left, state.left))

    def _unknown(self, problem: Problem, visits: Float[Array, "*H S A"]) -> Bool[Array, "*H S"]:
        """Where a legal action was tried less than m times."""
        tried, legal = visits >= self.num_visits, problem.space.legal
        return ~jnp.all(tried if legal is None else tried | ~jnp.asarray(legal), -1)

    def _equations(self, problem: Problem) -> TwoOptima:
        """M_exploit is the optimum of the rewards, M_explore that of a reward of 1 in an unknown state."""

        # Unknown states are absorbing in both models; the reward of 1 is paid once, so Qe is the discounted chance of
        # reaching one.
        def local(stats: Stats) -> Local:
            unknown = jnp.broadcast_to(self._unknown(problem, stats.visits)[..., None], stats.visits.shape)
            # A reward of 1 once, no rewards before: Qe is the chance of escape, discounted.
            reward, probs = jnp.where(unknown, 0.0, stats.reward), jnp.where(unknown[..., None], 0.0, stats.probs)
            return Local(reward, unknown.astype(reward.dtype), probs)

        return TwoOptima(local)

    def _make_plan(self, problem: Problem, state: ExactState) -> tuple[ExactState, Split]:
        """The state after a plan, and the two value functions: Qr of M_exploit, Qe of M_explore."""
        equations = self._equations(problem)
        if isinstance(problem.objective, Episodic):
            return state, ExactPlanner().split(equations, problem, state)
        # Under a discount the two plans start from the last ones.
        state = ExactPlanner().plan(equations, problem, state)[2]
        exploit, explore = state.plans
        return state, Split(exploit.q, explore.q, explore.policy, exploit.policy)

    def _stops(self, problem: Problem, tally: Tally, transition: Transitions) -> Bool[Array, ""]:
        """Whether exploration is over: an unknown state, or the end of an episode."""
        objective, step = problem.objective, transition.step
        ended = jnp.asarray(False if transition.terminated is None else transition.terminated)
        unknown = self._unknown(problem, tally.visits)
        if isinstance(objective, Episodic):
            # The next state must be known too, at its own step.
            ended |= jnp.asarray(step) == objective.horizon - 1
        if unknown.ndim == 2:
            return ended | unknown[jnp.minimum(jnp.asarray(step) + 1, unknown.shape[0] - 1), transition.next_state]
        return ended | unknown[transition.next_state]

    def _escape(
        self,
        problem: Problem,
        tally: Tally,
        split: Split,
        unknown: Bool[Array, "*H S"],
        explore: Int[Array, "*steps S"],
    ) -> Float[Array, "*steps S"]:
        """The probability that the plan of M_explore reaches an unknown state in time, [*H S]."""
        if isinstance(problem.objective, Episodic):
            # The plan of M_explore moves the chain.
            return jnp.max(split.qe, -1)  # one absorbing reward of 1, without a discount: the probability itself
        # P(reach within n steps), by n products with the chain of the policy; unknown states are absorbing.
        chosen = lambda table: jnp.take_along_axis(table, explore[:, None, None], 1)[:, 0]  # noqa: E731
        # An unknown state is absorbing: its row leads nowhere, and its probability of having been reached stays 1.
        rows, space = jnp.where(unknown[:, None], 0.0, chosen(tally.stats.probs)), problem.space
        listed = None if space.successors is None else chosen(next_states(space))

        # P(reached within n + 1 steps) = one step of the chain on P(within n).
        def step(_: IntScalar, reached: Float[Array, " S"]) -> Float[Array, " S"]:
            later = matmul(rows, reached) if listed is None else jnp.sum(rows * reached[listed], -1)
            return jnp.where(unknown, 1.0, later)

        return lax.fori_loop(0, jnp.asarray(self.num_explore, jnp.int32), step, unknown.astype(rows.dtype))
