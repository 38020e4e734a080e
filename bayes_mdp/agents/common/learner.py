"""Optional methods of an agent beyond `init` and `plan`, and the table operations of model-free learners."""

from typing import NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree, Real

from bayes_mdp.mdp import Discounted, Episodic, FirstExit, Problem, Transitions
from bayes_mdp.mdp import KeepsAccount as KeepsAccount  # noqa: PLC0414 - public as bayes_mdp.agents.KeepsAccount
from bayes_mdp.mdp import Learner as Learner  # noqa: PLC0414 - likewise
from bayes_mdp.mdp import PlansFromState as PlansFromState  # noqa: PLC0414 - likewise
from bayes_mdp.mdp.objectives import require_objective
from bayes_mdp.planning.solution import where_legal
from bayes_mdp.utils.typing import BoolScalar, Index, RealLike


@runtime_checkable
class ChecksBelief(Protocol):
    """Checks a belief before a run: inside the compiled loop its numbers are traced."""

    def check_belief(self, belief: object) -> None:
        """Raise where the agent cannot use the belief. Host side.

        Args:
            belief: the posterior that a run starts with.

        Raises:
            TypeError, ValueError: one sentence that says what is missing.
        """
        ...


@runtime_checkable
class ChecksOptimism(Protocol):
    """Assumes an optimistic value of unknown pairs; a run checks it against the largest mean reward of a pair."""

    def check_optimism(self, max_reward: float) -> None:
        """Warn where the value of unknown pairs is too small. Host side.

        Args:
            max_reward: the largest mean reward of a pair.
        """
        ...


@runtime_checkable
class ChecksLearnt(Protocol):
    """Checks after a run whether it learned from all the data that it observed."""

    def check_learnt(self, state: PyTree) -> None:
        """Warn where it did not; `state` may have leading axes (seeds). Host side."""
        ...


class Place(NamedTuple):
    """The indices of one transition in a table [*H S A] of values (H under `Episodic`).

    Args:
        pair: index of its pair, (step,) state, action.
        next_row: index of the row of its next state, (next step,) next state.
        ended: whether nothing follows (an end, or the last step of an episode): one, or of the shape of the indices.
        discount: the factor of the next value.
    """

    pair: Index
    next_row: Index
    ended: Bool[Array, "..."]
    discount: Real[Array, ""]


def table_shape(problem: Problem, who: str) -> tuple[int, ...]:
    """The shape [*H S A] of a table of values.

    Args:
        problem: sizes and objective.
        who: whom the message names.

    Raises:
        ValueError: the objective is the average reward, for which there is none.
    """
    require_objective(problem.objective, who, Discounted, Episodic, FirstExit)
    # A discounted table has no axis of steps, even where the space has rows for each.
    shape = problem.space.shape[-2:]
    return (problem.objective.horizon, *shape) if isinstance(problem.objective, Episodic) else shape


def first_table(problem: Problem, value: RealLike, who: str) -> Float[Array, "*H S A"]:
    """A table of q, `value` everywhere but -inf where an action is illegal.

    Args:
        problem: sizes, legal actions and objective.
        value: one number, or one that broadcasts to the table.
        who: whom the message names.

    Raises:
        ValueError: as `table_shape`.
    """
    q = jnp.broadcast_to(jnp.asarray(value, float), table_shape(problem, who))
    legal = problem.space.legal
    return where_legal(q, legal)


def move_towards(
    table: Float[Array, "*shape"], pair: Index, target: RealLike, rate: RealLike, weight: RealLike | BoolScalar
) -> Float[Array, "*shape"]:
    """`table` after a step of size weight * rate towards `target` at `pair`; unchanged where `weight` is 0.

    Args:
        table: values of pairs, -inf where illegal.
        pair: index of the entry, or of several.
        target: in units of the value.
        rate: learning rate, from 0 to 1.
        weight: 0 (or False): the transition is masked out.
    """
    # Q(s, a) += rate (target - Q(s, a)).
    step = weight * rate * (target - table[pair])
    # A product with weight 0 is not enough: a masked target can be inf or nan.
    return table.at[pair].add(jnp.where(jnp.asarray(weight) != 0, step, 0.0))


def place_of(problem: Problem, transition: Transitions) -> Place:
    """The indices of one transition. Traceable.

    Args:
        problem: sizes and objective.
        transition: one.
    """
    objective = problem.objective
    if isinstance(objective, Episodic):
        # A table for every step: the next value is that of step h + 1. The last step has none (`ended`); its index
        # stays inside the table.
        step = jnp.asarray(transition.step)
        last = step == objective.horizon - 1
        pair = (step, transition.state, transition.action)
        next_row = (jnp.minimum(step + 1, objective.horizon - 1), transition.next_state)
    else:
        last, pair, next_row = False, (transition.state, transition.action), (transition.next_state,)
    ended = last if transition.terminated is None else last | transition.terminated
    discount = objective.discount if isinstance(objective, Discounted) else 1.0
    return Place(pair, next_row, jnp.asarray(ended), jnp.asarray(discount))
