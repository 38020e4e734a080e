"""`PlannerChoices`: a planner with a soft policy as a model of behaviour. It plans once, from its parameters."""

from collections.abc import Callable, Mapping

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bayes_mdp.behaviour.behaviour_model import Parameter, Values, check_function
from bayes_mdp.mdp import MDP, Episodic, Objective, SparseMDP, Transitions
from bayes_mdp.mdp.objectives import check_objective
from bayes_mdp.planning import solve_soft

TEMPERATURE = "temperature"


class Planned(eqx.Module):
    """The plan, log-probabilities [*H S A], and the step of the episode."""

    log_policy: Float[Array, "*H S A"]
    step: Int[Array, ""]


class PlannerChoices(eqx.Module):
    """Choices of a person who plans in a known MDP and chooses with probability softmax(q / temperature).

    q is the fixed point of the soft Bellman equation (`bayes_mdp.planning.solve_soft`): choices as in dynamic discrete
    choice with logit shocks, or in maximum-entropy inverse reinforcement learning. Nothing is learnt from the log.
    Differentiable in all parameters, by one linear solve.

    Args:
        make: parameters -> what the person plans in: `MDP` or `SparseMDP`. Traced: no branch on a number.
        parameters: name -> `Parameter`, those that `make` reads; "temperature" (units of the reward), if there, is that
            of the plan too.
        objective: what the person maximises. Under `Episodic(H)` an episode is over at an end, or after H records.
        temperature: used where it is no parameter, in units of the reward.

    Raises:
        TypeError, ValueError: an argument of another type; an objective without soft plan.
    """

    make: Callable[[Values], MDP | SparseMDP]
    parameters: dict[str, Parameter]
    objective: Objective
    temperature: float | Array

    def __init__(
        self,
        make: Callable[[Values], MDP | SparseMDP],
        parameters: Mapping[str, Parameter],
        objective: Objective,
        *,
        temperature: float | Array = 1.0,
    ) -> None:
        check_function("make", make)
        check_objective(objective)
        self.make, self.parameters = make, dict(parameters)
        self.objective, self.temperature = objective, temperature

    def init(self, params: Values) -> Planned:
        """The plan."""
        # A temperature among the parameters is estimated; else it is the given number.
        temperature = jnp.asarray(params.get(TEMPERATURE, self.temperature), float)
        # Once for each person: `update` changes the step alone.
        plan = solve_soft(self.make(params), self.objective, temperature)
        return Planned(plan.log_policy, jnp.zeros((), jnp.int32))

    def policy(self, params: Values, state: Planned, observation: Int[Array, ""]) -> Float[Array, " A"]:
        """Log-probabilities of the plan."""
        del params
        table = state.log_policy
        # A table by step, or the same at every step.
        return table[state.step, observation] if table.ndim == 3 else table[observation]

    def update(self, params: Values, state: Planned, transition: Transitions) -> Planned:
        """The same plan; under `Episodic` the next step of it."""
        del params
        if not isinstance(self.objective, Episodic):
            return state
        # An episode is over after H choices, or at an end.
        after = state.step + 1
        episode_over = after >= self.objective.horizon
        if transition.terminated is not None:
            episode_over = episode_over | transition.terminated
        # The width of the step stays that of `init`.
        return Planned(state.log_policy, jnp.where(episode_over, 0, after).astype(jnp.int32))
