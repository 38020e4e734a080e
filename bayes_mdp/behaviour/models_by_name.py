"""The behaviour models that the command line knows by name; a new one is a function and a line of `MODELS`."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bayes_mdp.agents.model_free.soft_q import BoltzmannQ, SoftQ
from bayes_mdp.behaviour.behaviour_model import BehaviourModel, Parameter, Values
from bayes_mdp.behaviour.choice_log import ChoiceLog
from bayes_mdp.behaviour.learner_choices import LearnerChoices
from bayes_mdp.behaviour.two_step import TwoStep
from bayes_mdp.mdp import Objective, Problem, StateActionSpace, Transitions


class ConstantChoices(eqx.Module):
    """A person who does not learn: each action has a fixed probability, the same in every state.

    Parameters: `preference_<action>` of every action but the first, the log-odds against the first.

    Args:
        num_actions: at least 2.
    """

    num_actions: int = eqx.field(static=True)

    @property
    def parameters(self) -> dict[str, Parameter]:
        """The log-odds."""
        return {f"preference_{action}": Parameter("real") for action in range(1, self.num_actions)}

    def init(self, params: Values) -> None:
        """Nothing."""
        del params

    def policy(self, params: Values, state: None, observation: Int[Array, ""]) -> Float[Array, " A"]:
        """The softmax of the log-odds."""
        del state, observation
        odds = [jnp.asarray(params[name]) for name in self.parameters]
        return jax.nn.log_softmax(jnp.stack([jnp.zeros_like(odds[0]), *odds]))

    def update(self, params: Values, state: None, transition: Transitions) -> None:
        """Nothing is learnt."""
        del params, state, transition


def _problem(log: ChoiceLog, objective: Objective) -> Problem:
    """What a learner of the library is told about the task of a log."""
    ends = log.terminated is not None and bool(np.any(log.terminated))
    return Problem(StateActionSpace(len(log.states), len(log.actions), ends=ends), objective)


def _q_learning(agent: type[BoltzmannQ]) -> Callable[[ChoiceLog, Objective], BehaviourModel]:
    def make(log: ChoiceLog, objective: Objective) -> BehaviourModel:
        parameters = {"learning_rate": Parameter("unit"), "sensitivity": Parameter("positive")}
        make_agent = lambda p: agent(temperature=1.0 / p["sensitivity"], learning_rate=p["learning_rate"])  # noqa: E731
        return LearnerChoices(make_agent, parameters, _problem(log, objective))

    return make


def _two_rates(log: ChoiceLog, objective: Objective) -> BehaviourModel:
    names = ("learning_rate_up", "learning_rate_down")
    parameters = {**dict.fromkeys(names, Parameter("unit")), "sensitivity": Parameter("positive")}

    def one(p: Values) -> BoltzmannQ:
        up, down = (p[name] for name in names)
        return BoltzmannQ(1.0 / p["sensitivity"], up, falling_rate=down)

    return LearnerChoices(one, parameters, _problem(log, objective))


def _constant(log: ChoiceLog, objective: Objective) -> BehaviourModel:
    del objective
    if len(log.actions) < 2:
        raise ValueError(f"log has {len(log.actions)} action, expected at least 2 to choose among")
    return ConstantChoices(len(log.actions))


def _two_step(num_parameters: int) -> Callable[[ChoiceLog, Objective], BehaviourModel]:
    def make(log: ChoiceLog, objective: Objective) -> BehaviourModel:
        del objective
        if (len(log.states), len(log.actions)) != (3, 2):
            raise ValueError(
                f"log has {len(log.states)} states and {len(log.actions)} actions, expected 3 and 2: the first stage, "
                "then the two second-stage states, one row for each choice"
            )
        return TwoStep(num_parameters)

    return make


MODELS: dict[str, Callable[[ChoiceLog, Objective], BehaviourModel]] = {
    "q_learning": _q_learning(BoltzmannQ),
    "q_learning_two_rates": _two_rates,
    "soft_q": _q_learning(SoftQ),
    "two_step": _two_step(7),
    "two_step_6": _two_step(6),
    "two_step_4": _two_step(4),
    "constant": _constant,
}
"""Name -> (log, objective) -> model. The objective has a meaning for learners alone."""

DESCRIPTIONS = {
    "q_learning": "Q-learning with a softmax: learning rate, sensitivity (1 / temperature).",
    "q_learning_two_rates": "The same with two learning rates, for positive and negative prediction errors.",
    "soft_q": "Q-learning with a soft maximum in the target.",
    "two_step": "The hybrid learner of the two-step task, seven parameters (Daw 2011).",
    "two_step_6": "The same with lambda = 1.",
    "two_step_4": "The same with one learning rate and one sensitivity.",
    "constant": "Fixed probabilities of the actions: nothing is learnt.",
}
