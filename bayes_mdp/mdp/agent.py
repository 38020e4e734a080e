"""What an agent is given: the problem, when it plans, where it is (`Agent` itself stands in `protocols`)."""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bayes_mdp.mdp.objectives import Objective, check_objective, require_undiscounted
from bayes_mdp.mdp.space import StateActionSpace, check_space
from bayes_mdp.utils.typing import AnyArray, BoolScalar
from bayes_mdp.utils.validation import check_initial


class Problem(eqx.Module):
    """What an agent is given: sizes, the objective, where episodes start.

    Args:
        space: sizes, names, masks.
        objective: what is maximised.
        initial: probabilities of the first state; None: not given.

    Raises:
        TypeError: no space, no objective. ValueError: `Episodic` with a discount, which no agent plans for; an initial
            distribution that is none.
    """

    space: StateActionSpace
    objective: Objective
    initial: Float[AnyArray, " S"] | None = None

    def __check_init__(self) -> None:
        check_space(self.space)
        check_objective(self.objective)
        require_undiscounted(self.objective, "agents")
        check_initial(self.initial, self.space.n_states)


class ReplanContext(NamedTuple):
    """The arguments of a replanning rule.

    Args:
        time: steps so far.
        step: of the episode.
        starts: whether an episode just began.
        visits, planned_visits: of every pair, now and when the plan in force was made.
        planned_time, previous_time: `time` of the plan in force and of the one before (0 before the second plan).
    """

    time: Int[Array, ""]
    step: Int[Array, ""]
    starts: Bool[Array, ""]
    visits: Float[Array, "*H S A"]
    planned_visits: Float[Array, "*H S A"]
    planned_time: Int[Array, ""]
    previous_time: Int[Array, ""]


@runtime_checkable
class ReplanRule(Protocol):
    """A replanning rule, an `eqx.Module`. The first plan of a run is made in any case."""

    @property
    def period(self) -> int | None:
        """Steps between two plans where they are known before the run, else None."""
        ...

    def due(self, context: ReplanContext) -> Bool[Array, ""]:
        """Whether to plan before the next action.

        Args:
            context: the time, the step and the visits so far.
        """
        ...


ReplanLike: TypeAlias = ReplanRule | int | np.integer | str | Callable[[ReplanContext], BoolScalar]
"""A rule, a number of steps, "episode", "doubling" or a function of the `ReplanContext`."""


class DecisionPoint(NamedTuple):
    """Where an action is needed.

    Args:
        state: its index; the number of states where the episode is over.
        step: of the episode, from 0.
    """

    state: Int[Array, ""]
    step: Int[Array, ""]
