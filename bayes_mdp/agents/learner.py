"""What the experiments ask of an agent beyond `init` and `plan`."""

from typing import Any, Protocol, runtime_checkable

from bayes_mdp.agents.replan import ReplanRule
from bayes_mdp.mdp import Problem, Transitions


@runtime_checkable
class Replans(Protocol):
    """Says when it plans; None leaves it to the objective (`replan.rule_for`)."""

    replan: ReplanRule | None


@runtime_checkable
class Learner(Protocol):
    """Carries a belief of its own, in its state: no prior, no posterior (model-free agents)."""

    def observe(self, problem: Problem, state: Any, transition: Transitions, weight: Any = 1.0) -> Any:
        """The state after one transition; where `weight` is 0 it is unchanged."""
        ...


@runtime_checkable
class ChecksBelief(Protocol):
    """Can refuse a belief before a run: inside the compiled loop its numbers are not seen."""

    def check_belief(self, belief: Any) -> None:
        """Raise one sentence where the agent cannot use the belief. Host side."""
        ...
