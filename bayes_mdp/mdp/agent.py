"""The contract of an agent: what one must have (`Agent`), and what one that learns by itself has too (`Learner`)."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from bayes_mdp.mdp.data.transitions import Transitions
from bayes_mdp.mdp.objectives import Objective, check_objective, require_undiscounted
from bayes_mdp.mdp.protocols import Policy
from bayes_mdp.mdp.space import StateActionSpace, check_space
from bayes_mdp.utils.typing import AnyArray, BoolScalar, Scalar
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

P_contra = TypeVar("P_contra", contravariant=True)


@runtime_checkable
class Agent(Protocol[P_contra]):
    """A belief goes in, a policy comes out: what `bm.run`, `bm.Actor` and `bm.compare` take.

    An agent is an `eqx.Module` that holds hyperparameters and nothing else. Three members are required:

    * `replan`, an attribute: when to plan. None (before every episode under `Episodic`, every 20 steps otherwise), a
      number k (every k steps), "episode", "doubling" (when the visits of a pair have doubled), a function of the
      `ReplanContext`, or a rule of `bayes_mdp.agents` such as `Geometric(1.5)`. The first step is always planned.
    * `init(key, problem)`: the agent's own state before any plan, any tree of arrays; None for an agent without one.
    * `plan(key, problem, state, belief)`: (policy, next state), whenever `replan` says so.

    Between two plans the policy acts and the belief learns: `belief.update` is called by the loop, not by the agent.
    `problem` is a `Problem`: `problem.space` has the sizes S and A, H where rows depend on the step, and the legal
    actions; `problem.objective` says what is maximised; `problem.initial` is Float[S] or None. `belief` is a posterior
    (see `Posterior`): an agent asks for abilities (`CanSample`, `CanMean`, ...), never for a class, and `P_contra` is
    the type of those that `plan` needs. A policy is anything with `act` and `log_prob` (see `Policy`);
    `bayes_mdp.agents` has ready ones: `Greedy(q)`, `Boltzmann(q, temperature)`, `EpsilonGreedy(q, epsilon)`, with q
    Float[S, A], or Float[H, S, A] where it depends on the step.

    `init`, `plan` and the policy are traced by JAX, for all seeds at once: arrays in, arrays out, no Python branch on a
    number. The next state has the structure, shapes and dtypes of the one before, the policy those of the last plan.
    Strings, functions and sizes among the hyperparameters are static: `eqx.field(static=True)`.

    Optional members, each a protocol of `bayes_mdp.agents`:

    * `observe(problem, state, transition, weight)` (`Learner`): the agent learns by itself, in its own state. It needs
      no prior, and its `plan` gets None as belief.
    * `plan_from(key, problem, state, belief, at)` (`PlansFromState`): the agent plans for one state at a time.
    * `account(problem, state, transition, weight)` (`KeepsAccount`): it sees the transitions beside its belief.
    * `check_belief(belief)` (`ChecksBelief`): refuse a belief before the run, with one sentence.
    * `check_learnt(state)` (`ChecksLearnt`), `check_optimism(max_reward)` (`ChecksOptimism`): warnings.

    A complete agent, greedy for the mean of a few draws (a test runs it)::

        import equinox as eqx
        import jax
        from bayes_mdp.agents import Greedy
        from bayes_mdp.planning import solve


        class MeanOfDraws(eqx.Module):
            num_draws: int = eqx.field(default=5, static=True)
            replan: int = eqx.field(default=10, static=True)

            def init(self, key, problem):
                return None

            def plan(self, key, problem, state, belief):
                q = jax.vmap(lambda mdp: solve(mdp, problem.objective).q)(belief.sample(key, (self.num_draws,)))
                return Greedy(q.mean(axis=0), problem.space.legal), state
    """

    # It is a `ReplanLike` or None. `Any`, because pyright takes a field with a converter for a descriptor of its own,
    # which is of no other type.
    @property
    def replan(self) -> Any:
        """When to plan: a `ReplanLike` or None, see the class. An attribute is enough."""
        ...

    def init(self, key: PRNGKeyArray, problem: Problem, /) -> PyTree:
        """The agent's own state before any plan.

        Args:
            key: of the agent's start.
            problem: what is known of the MDP before any data.

        Raises:
            ValueError, TypeError: an objective or a space that the agent cannot plan for, in one sentence.
        """
        ...

    def plan(self, key: PRNGKeyArray, problem: Problem, state: PyTree, belief: P_contra, /) -> tuple[Policy, PyTree]:
        """A policy and the next state.

        Args:
            key: of this plan, for agents that draw.
            problem: what is known of the MDP before any data.
            state: the agent's own, from `init`, the last plan or (of a `Learner`) the last transition.
            belief: the posterior given all data so far, with the abilities that the agent needs; None for a `Learner`.

        Raises:
            TypeError: an ability is missing (`bayes_mdp.mdp.abilities.require_ability` says which).
        """
        ...


class DecisionPoint(NamedTuple):
    """Where an action is needed.

    Args:
        state: its index; the number of states where the episode is over.
        step: of the episode, from 0.
    """

    state: Int[Array, ""]
    step: Int[Array, ""]


@runtime_checkable
class PlansFromState(Agent[P_contra], Protocol[P_contra]):
    """An agent that plans for the state it is in, not for all: one that searches. It plans before every step."""

    def plan_from(
        self, key: PRNGKeyArray, problem: Problem, state: PyTree, belief: P_contra, at: DecisionPoint, /
    ) -> tuple[Policy, PyTree]:
        """A policy for this state and step alone, and the next state of the agent; called in place of `plan`.

        Args:
            key, problem, state, belief: as of `plan`.
            at: where the action is needed.
        """
        ...


@runtime_checkable
class KeepsAccount(Protocol):
    """An agent with a belief that sees every transition as well, and keeps what it needs of it in its own state."""

    def account(self, problem: Problem, state: PyTree, transition: Transitions, weight: Scalar = 1.0, /) -> PyTree:
        """The state after one transition.

        Args:
            problem, state, transition, weight: as of `Learner.observe`.
        """
        ...


@runtime_checkable
class Learner(Agent[None], Protocol):
    """An agent that learns by itself: what it learns is in its own state; it needs no prior and no posterior."""

    def observe(self, problem: Problem, state: PyTree, transition: Transitions, weight: Scalar = 1.0, /) -> PyTree:
        """The state after one transition, with the structure, shapes and dtypes of the one before.

        Args:
            problem: what is known of the MDP before any data.
            state: the agent's own, from `init`, the last plan or the last transition.
            transition: one: `state`, `action` and `next_state` are Int[""], `reward` is Float[""], `terminated`
                Bool[""] (None where no transition can end), `step` Int[""] under `Episodic` (else None).
            weight: 1; where it is 0 the state is unchanged.
        """
        ...
