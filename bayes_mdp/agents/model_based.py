"""What the model-based learners without a prior share: they count, make a local model, plan in it, act on the plan."""

import abc
from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import PRNGKeyArray

from bayes_mdp.agents.empirical import Local, Stats
from bayes_mdp.agents.planners import ExactPlanner, PrioritizedSweeping, Split
from bayes_mdp.agents.policies import Greedy
from bayes_mdp.agents.replan import ReplanRule
from bayes_mdp.mdp import Problem, Transitions
from bayes_mdp.planning import solve


class ModelBased(eqx.Module):
    """A learner that plans in its empirical model, with a reward of exploration beside the real one.

    A method is its `local` alone. Values come apart as Qr + Qe ([OIM08] section 2.5): `split` shows both, `greedy`
    follows Qr alone, and `exploit` is the best policy of what was counted; no learning anew.
    """

    planner: eqx.AbstractVar[ExactPlanner | PrioritizedSweeping]
    replan: eqx.AbstractVar[ReplanRule | None]
    joint: eqx.AbstractClassVar[bool]
    own_rows: ClassVar[bool] = False

    @property
    def bonus_discount(self) -> Any:
        """Of the exploration values; None: that of the objective."""
        return None

    @abc.abstractmethod
    def local(self, stats: Stats, worth: Any) -> Local:
        """The model of some pairs."""

    def init(self, key: PRNGKeyArray, problem: Problem) -> Any:
        """Nothing has been seen.

        Raises:
            ValueError: an objective or a size that the planner does not take.
        """
        del key
        return self.planner.init(self, problem)

    def plan(self, key: PRNGKeyArray, problem: Problem, state: Any, belief: Any = None) -> tuple[Any, Any]:
        """Greedy for Qr + Qe."""
        del key, belief
        q, best, state = self.planner.plan(self, problem, state)
        return Greedy(q, problem.space.legal, best=best), state

    def observe(self, problem: Problem, state: Any, transition: Transitions, weight: Any = 1.0) -> Any:
        """The state after one transition; unchanged where `weight` is 0."""
        return self.planner.observe(self, problem, state, transition, weight)

    def split(self, problem: Problem, state: Any) -> Split:
        """The two value functions, Qr and Qe, and their greedy actions."""
        return self.planner.split(self, problem, state)

    def exploit(self, problem: Problem, state: Any) -> Greedy:
        """The best policy of the model that was counted: what one would do who had to stop learning now.

        Pairs that were never tried are not used; a state in which nothing was tried is worth nothing.
        """
        tally, legal = state.tally, problem.space.legal
        solution = solve(tally.mdp(legal), problem.objective)
        return Greedy(solution.q, best=solution.policy)

    def greedy(self, problem: Problem, state: Any) -> Greedy:
        """Exploration switched off as in [OIM08]: greedy for Qr.

        Where both parts follow one policy (OIM, R-max, MBIE-EB), Qr is the value of the policy that *explores*, and a
        pair that was never tried has Qr = 0: early on, `exploit` is the better guide.
        """
        split = self.split(problem, state)
        return Greedy(split.qr, problem.space.legal, best=split.best_r)

    def check_learnt(self, state: Any) -> None:
        """Warn where the planner's lists were too short for what was seen."""
        self.planner.check_learnt(state)
