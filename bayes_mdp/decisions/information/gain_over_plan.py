"""What a better policy would gain over the present plan after new data, in the mean MDP after them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from bayes_mdp.decisions.backward_recursion import episodic_values
from bayes_mdp.decisions.choosing.mean_plan import optimum
from bayes_mdp.decisions.chunks import COPIES
from bayes_mdp.decisions.host_optima import best_policies
from bayes_mdp.decisions.host_values import PolicyPairs, Values, proven
from bayes_mdp.decisions.information.data_sets import MeanMDPs
from bayes_mdp.decisions.information.updatable import Updatable
from bayes_mdp.decisions.perfect_information import why_not_mean_mdp
from bayes_mdp.decisions.policy_evaluation import describe_objective
from bayes_mdp.inference.pair_draws import Drawn, PairRows
from bayes_mdp.mdp import MDP, AverageReward, Episodic, FirstExit, Objective, SparseMDP, Validity
from bayes_mdp.planning.solve import check_problem, refuse_improper
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.progress import bar_of

NUMBERS_AT_ONCE = 2**21  # float64 numbers of mean MDPs, and of their chains, that are planned at once: 16 MiB
_EPS = float(np.finfo(np.float64).eps)


def validity_after_data(posterior: Updatable) -> Validity:
    """Whether the gain in the mean MDP is the expected value of sample information. Host side."""
    # Data change neither which rows are unknown nor their independence: what holds now holds after every data set.
    why = why_not_mean_mdp(posterior)
    if why is None:
        return Validity("exact", "the EVSI over fixed policies (but for Monte Carlo error)")
    return Validity(
        "heuristic",
        "what planning anew in the mean MDP would gain there, where the value of a policy need not be its value "
        f"averaged over what is unknown: {why}",
    )


@dataclass(frozen=True, eq=False)
class PresentPlan:
    """The best policy of the present mean MDP, to compare others with (made by `present_plan`).

    Args:
        rows: the pairs of the mean MDP.
        objective: of the policies.
        start: distribution of the first state.
        policy: its actions.
        probs: the same as probabilities.
    """

    rows: PairRows
    objective: Objective
    start: Float[np.ndarray, " S"]
    policy: Int[np.ndarray, "*H S"]
    probs: Float[np.ndarray, "*H S A"]

    def kept(self, drawn: Drawn) -> tuple[Float[np.ndarray, " D"], Float[np.ndarray, " D"]]:
        """The value of this plan in every MDP, and bounds on the errors."""
        if isinstance(self.objective, Episodic):
            return self._at_start(episodic_values(self.rows, drawn, self.probs, self.objective))
        return self._at_start(proven(PolicyPairs(self.rows, self.probs).chains(drawn), self.objective))

    def gain(self, drawn: Drawn) -> tuple[Float[np.ndarray, " D"], float]:
        """What the best policy of every MDP gains over this plan, and the largest numerical error.

        Raises:
            ValueError: a value is not finite.
        """
        stationary = not isinstance(self.objective, Episodic)
        answer = best_policies(self.rows, drawn, self.objective, self.probs if stationary else None)
        best, error = self._at_start(answer.values)
        # Where the best policy is this plan there is nothing to gain.
        other = np.ones(len(best), bool)
        if stationary:
            other = (self.rows.action[answer.chosen] != self.policy).any(-1)
        kept = best.copy()
        if other.any():
            kept[other], gap = self.kept(Drawn(drawn.probs[other], drawn.reward[other]))
            error[other] += gap
        if not np.isfinite(error).all():
            raise ValueError(
                f"objective is {describe_objective(self.objective)}, expected one for which the present plan and the "
                "best policy have a finite value after all data sets"
            )
        # The best policy is no worse: what lies within the numerical error is nothing.
        return np.where(best - kept > error, best - kept, 0.0), float(error.max())

    def _at_start(self, values: Values) -> tuple[Float[np.ndarray, " D"], Float[np.ndarray, " D"]]:
        if isinstance(self.objective, AverageReward):
            return values.first[:, 0], values.gap
        # A sum of S products is rounded by S eps of the largest value at most.
        rounding = len(self.start) * _EPS * np.abs(values.first).max(-1)
        return values.first @ self.start, values.gap + rounding


def present_plan(
    means: MeanMDPs, mean: MDP | SparseMDP, objective: Objective, start: Float[np.ndarray, " S"]
) -> tuple[PresentPlan, float, float]:
    """The plan of the present mean MDP, its value, and a bound on the error of that.

    Raises:
        ValueError: no policy is best, or has a finite value.
    """
    check_problem(mean, objective)
    policy, solution = optimum(mean, objective)
    if solution is not None and isinstance(objective, FirstExit):
        refuse_improper(mean, solution)
    plan = PresentPlan(means.rows, objective, start, policy, np.eye(mean.n_actions)[policy])
    solved = solution is None or np.isfinite(float(solution.gap))
    (value,), (gap,) = plan.kept(means.now) if solved else (np.zeros(1), np.full(1, np.inf))
    if not np.isfinite(gap):
        raise ValueError(
            f"objective is {describe_objective(objective)}, expected one for which the mean MDP has a best policy of "
            "finite value"
        )
    return plan, float(value), float(gap)


def chunk_of(means: MeanMDPs, number: int, width: int) -> int:
    """How many data sets are planned at once, as many as memory allows. Host side.

    Args:
        means: the mean MDPs.
        number: of all data sets.
        width: numbers that a data set takes beside its mean MDP.

    Raises:
        ValueError: one would not fit in memory.
    """
    n_states, n_actions = means.space.n_states, means.space.n_actions
    size = means.numbers + n_states**2 + width
    what = f"posterior has mean MDPs of {n_states} states and {n_actions} actions"
    check_memory(what, 8.0 * COPIES * size, "listed successors take less")
    return max(1, min(number, NUMBERS_AT_ONCE // size))


@contextmanager
def counter(total: int) -> Iterator[Callable[[int], object]]:
    """A progress bar."""
    with bar_of(total, " data sets", what="planning") as bar:
        yield bar.update
