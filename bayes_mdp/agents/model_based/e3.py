"""E3 (Kearns and Singh, *Near-optimal reinforcement learning in polynomial time*, Machine Learning 49, 2002).

Reconstructed: the paper's constants are not usable, and those of the tables of [OIM08] were not available. The results
may differ from the published ones.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bayes_mdp.agents.common.replan import EverySteps, ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import Greedy
from bayes_mdp.agents.model_based.empirical import Local, Stats, Tally, next_states
from bayes_mdp.agents.model_based.empirical_optimism import check_num_visits
from bayes_mdp.agents.model_based.planners import ExactPlanner, ExactState, Split, TwoOptima, check_objective
from bayes_mdp.mdp import Episodic, Problem, Transitions
from bayes_mdp.numerics.products import matmul
from bayes_mdp.planning.solution import best_action
from bayes_mdp.utils.typing import IntScalar, Scalar
from bayes_mdp.utils.validation import check_fraction, check_that


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
        whole = lambda x: np.isfinite(x) & (x >= 1) & (np.floor(x) == x)  # noqa: E731
        check_that("num_explore", self.num_explore, whole, "an integer of at least 1")

    def init(self, key: PRNGKeyArray, problem: Problem) -> E3State:
        """No data.

        Raises:
            ValueError: an objective other than `Discounted` and `Episodic`.
        """
        del key
        check_objective(problem, "E3")
        model = ExactPlanner().init(self._equations(problem), problem, "E3")
        shape, objective = problem.space.shape[:-1], problem.objective
        shape = (objective.horizon, shape[-1]) if isinstance(objective, Episodic) else shape
        return E3State(model, jnp.zeros(shape, bool), jnp.int32(0))

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: E3State, belief: object = None
    ) -> tuple[Greedy, E3State]:
        """Wander, explore or exploit, state by state; q is that of M_exploit."""
        del key, belief
        model, split = self._planned(problem, state.model)
        unknown = self._unknown(problem, model.tally.visits)
        explore = best_action(split.qe)
        tempting = ~unknown & (self._escape(problem, model.tally, split, unknown, explore) > self.threshold)
        # In a known state: continue an exploration, or begin one where the probability of escape is high enough.
        exploring = ~unknown & (tempting | (state.left > 0))
        # Balanced wandering: the least-tried legal action of an unknown state.
        fewest = best_action(_legal_or(-model.tally.visits, problem))
        known = jnp.where(exploring, explore, split.best_r)
        policy = Greedy(split.qr, problem.space.legal, best=jnp.where(unknown, fewest, known))
        return policy, E3State(model, tempting, state.left)

    def greedy(self, problem: Problem, state: E3State) -> Greedy:
        """Exploration switched off: the plan of M_exploit.

        Args:
            problem: what is known of the MDP before any data.
            state: the agent's own.
        """
        split = self._planned(problem, state.model)[1]
        return Greedy(split.qr, problem.space.legal, best=split.best_r)

    def observe(self, problem: Problem, state: E3State, transition: Transitions, weight: Scalar = 1.0) -> E3State:
        """The state after one transition; unchanged where `weight` is 0."""
        model = ExactPlanner().observe(self._equations(problem), problem, state.model, transition, weight)
        layered = state.tempting.ndim == 2
        here = (transition.step, transition.state) if layered else transition.state
        # A tempting state starts a count-down; an unknown state or the end of the episode stops it.
        begun = jnp.where(state.tempting[here], jnp.asarray(self._length(problem), jnp.int32), 0)
        left = jnp.maximum(jnp.where(state.left > 0, state.left, begun) - 1, 0)
        left = jnp.where(self._stops(problem, model.tally, transition), 0, left)
        return E3State(model, state.tempting, jnp.where(jnp.asarray(weight) != 0, left, state.left))

    def _unknown(self, problem: Problem, visits: Float[Array, "*H S A"]) -> Bool[Array, "*H S"]:
        """Where a legal action was tried less than m times."""
        tried, legal = visits >= self.num_visits, problem.space.legal
        return ~jnp.all(tried if legal is None else tried | ~jnp.asarray(legal), -1)

    def _equations(self, problem: Problem) -> TwoOptima:
        """M_exploit is the optimum of the rewards, M_explore that of a reward of 1 in an unknown state."""

        def local(stats: Stats) -> Local:
            unknown = jnp.broadcast_to(self._unknown(problem, stats.visits)[..., None], stats.visits.shape)
            reward, probs = jnp.where(unknown, 0.0, stats.reward), jnp.where(unknown[..., None], 0.0, stats.probs)
            return Local(reward, unknown.astype(reward.dtype), probs)

        return TwoOptima(local)

    def _planned(self, problem: Problem, state: ExactState) -> tuple[ExactState, Split]:
        """The state after a plan, and the two value functions: Qr of M_exploit, Qe of M_explore."""
        equations = self._equations(problem)
        if isinstance(problem.objective, Episodic):
            return state, ExactPlanner().split(equations, problem, state)
        state = ExactPlanner().plan(equations, problem, state)[2]
        exploit, explore = state.plans
        return state, Split(exploit.q, explore.q, explore.policy, exploit.policy)

    def _length(self, problem: Problem) -> IntScalar:
        return problem.objective.horizon if isinstance(problem.objective, Episodic) else self.num_explore

    def _stops(self, problem: Problem, tally: Tally, transition: Transitions) -> Bool[Array, ""]:
        """Whether exploration is over: an unknown state, or the end of an episode."""
        objective, step = problem.objective, transition.step
        over = jnp.asarray(False if transition.terminated is None else transition.terminated)
        unknown = self._unknown(problem, tally.visits)
        if isinstance(objective, Episodic):
            over |= jnp.asarray(step) == objective.horizon - 1
        if unknown.ndim == 2:
            return over | unknown[jnp.minimum(jnp.asarray(step) + 1, unknown.shape[0] - 1), transition.next_state]
        return over | unknown[transition.next_state]

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
            return jnp.max(split.qe, -1)  # one absorbing reward of 1, without a discount: the probability itself
        # P(reach within n steps), by n products with the chain of the policy; unknown states are absorbing.
        chosen = lambda table: jnp.take_along_axis(table, explore[:, None, None], 1)[:, 0]  # noqa: E731
        rows, space = jnp.where(unknown[:, None], 0.0, chosen(tally.stats.probs)), problem.space
        listed = None if space.successors is None else chosen(next_states(space))

        def step(_: IntScalar, reached: Float[Array, " S"]) -> Float[Array, " S"]:
            later = matmul(rows, reached) if listed is None else jnp.sum(rows * reached[listed], -1)
            return jnp.where(unknown, 1.0, later)

        return lax.fori_loop(0, jnp.asarray(self.num_explore, jnp.int32), step, unknown.astype(rows.dtype))


def _legal_or(table: Float[Array, "*H S A"], problem: Problem) -> Float[Array, "*H S A"]:
    return table if problem.space.legal is None else jnp.where(jnp.asarray(problem.space.legal), table, -jnp.inf)
