"""What the experiments ask of an agent beyond `init` and `plan`."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, Float

from bayes_mdp.agents.common.replan import ReplanRule
from bayes_mdp.mdp import AverageReward, Discounted, Episodic, Problem, Transitions


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


@runtime_checkable
class ChecksOptimism(Protocol):
    """Counts on a value of what is unknown; a run tells it the largest mean reward of a pair."""

    def check_optimism(self, max_reward: float) -> None:
        """Warn where the value of what is unknown is too small. Host side."""
        ...


@runtime_checkable
class ChecksLearnt(Protocol):
    """Can tell, after a run, that it could not learn from all that it saw."""

    def check_learnt(self, state: Any) -> None:
        """Warn where it did not; `state` may have leading axes (seeds). Host side."""
        ...


class Place(NamedTuple):
    """Where one transition stands in a table [*H S A] of values (H under `Episodic`).

    Args:
        here: index of its pair.
        there: index of the row of the state that it leads to, of the next step.
        over: whether nothing follows: an end, or the last step.
        discount: the factor of what follows.
    """

    here: tuple[Any, ...]
    there: tuple[Any, ...]
    over: Any
    discount: Any


def table_shape(problem: Problem, who: str) -> tuple[int, ...]:
    """The shape [*H S A] of a table of values.

    Raises:
        ValueError: the objective is the average reward, for which there is none.
    """
    if isinstance(problem.objective, AverageReward):
        raise ValueError(f"objective is AverageReward, expected Discounted, Episodic or FirstExit for {who}")
    shape = problem.space.shape[-2:]
    return (problem.objective.horizon, *shape) if isinstance(problem.objective, Episodic) else shape


def first_table(problem: Problem, value: Any, who: str) -> Float[Array, "*H S A"]:
    """A table of q, `value` everywhere but -inf where an action is illegal. Raises as `table_shape`."""
    q, legal = jnp.broadcast_to(jnp.asarray(value, float), table_shape(problem, who)), problem.space.legal
    return q if legal is None else jnp.where(legal, q, -jnp.inf)


def moved_towards(table: Any, here: tuple[Any, ...], target: Any, rate: Any, weight: Any) -> Float[Array, "*H S A"]:
    """`table` after a step of size weight * rate towards `target` at `here`; unchanged where `weight` is 0."""
    step = weight * rate * (target - table[here])
    return table.at[here].add(jnp.where(jnp.asarray(weight) != 0, step, 0.0))  # what is masked can be inf or nan


def episode_length(problem: Problem, who: str) -> int:
    """H, for a learner of episodes.

    Raises:
        ValueError: another objective.
    """
    objective = problem.objective
    if not isinstance(objective, Episodic):
        raise ValueError(f"objective is {type(objective).__name__}, expected Episodic for {who}")
    return objective.horizon


def place_of(problem: Problem, transition: Transitions) -> Place:
    """Where one transition stands. Traceable."""
    objective = problem.objective
    if isinstance(objective, Episodic):
        step = jnp.asarray(transition.step)
        last = step == objective.horizon - 1
        here = (step, transition.state, transition.action)
        there = (jnp.minimum(step + 1, objective.horizon - 1), transition.next_state)
    else:
        last, here, there = False, (transition.state, transition.action), (transition.next_state,)
    over = last if transition.terminated is None else last | transition.terminated
    return Place(here, there, over, objective.discount if isinstance(objective, Discounted) else 1.0)
