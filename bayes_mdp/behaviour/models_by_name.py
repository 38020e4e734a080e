"""Behaviour models that have a name (`ready_model`, `bayes-mdp list`); a new one is a function and a line of `MODELS`.

Rivals that any account of learning has to beat: fixed probabilities, win-stay lose-shift, a habit (choice kernel), and
Q-learning with a habit. Source: Wilson and Collins (2019), *Ten simple rules for the computational modeling of
behavioral data*.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from bayes_mdp.agents.model_free.soft_q import BoltzmannQ, SoftQ
from bayes_mdp.behaviour.behaviour_model import BehaviourModel, Parameter, Values
from bayes_mdp.behaviour.choice_log import ChoiceLog
from bayes_mdp.behaviour.learner_choices import LearnerChoices
from bayes_mdp.behaviour.two_step import TwoStep
from bayes_mdp.mdp import Discounted, Objective, Problem, StateActionSpace, Transitions
from bayes_mdp.mdp.objectives import check_objective
from bayes_mdp.utils.validation import check_name, check_type


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
        # The first action is the reference: log-odds zero.
        odds = [jnp.asarray(params[name]) for name in self.parameters]
        return jax.nn.log_softmax(jnp.stack([jnp.zeros_like(odds[0]), *odds]))

    def update(self, params: Values, state: None, transition: Transitions) -> None:
        """Nothing is learnt."""
        del params, state, transition


class WinStayLoseShift(eqx.Module):
    """A person who repeats in each state what was last good there and leaves what was not, with some noise.

    Parameter: `noise` in (0, 1), the probability to choose at random instead.

    Args:
        num_states, num_actions: of the task.
        good: a reward above this number is good.
    """

    num_states: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    good: float = eqx.field(static=True)

    @property
    def parameters(self) -> dict[str, Parameter]:
        """The noise."""
        return {"noise": Parameter("unit")}

    def init(self, params: Values) -> Float[Array, "S A"]:
        """The probabilities of the next choice without noise: uniform in every state."""
        del params
        return jnp.full((self.num_states, self.num_actions), 1 / self.num_actions)

    def policy(self, params: Values, state: Float[Array, "S A"], observation: Int[Array, ""]) -> Float[Array, " A"]:
        """A mixture of the rule and a uniform choice."""
        noise = params["noise"]
        # With probability `noise` any action, the ruled one included.
        return jnp.log((1 - noise) * state[observation] + noise / self.num_actions)

    def update(self, params: Values, state: Float[Array, "S A"], transition: Transitions) -> Float[Array, "S A"]:
        """Stay after a good reward; after another one, each of the other actions is equally likely."""
        del params
        stay = jnp.arange(self.num_actions) == transition.action
        # After a loss the share of each other action is 1 / (A - 1).
        rule = jnp.where(jnp.asarray(transition.reward) > self.good, stay, ~stay / max(self.num_actions - 1, 1))
        return state.at[transition.state].set(rule)


class ChoiceKernel(eqx.Module):
    """A person who tends to repeat choices, whatever came of them; with a learner, one who learns beside the habit.

    The habit of the chosen action moves to 1, those of the others to 0, by the share `habit_rate`. Log-odds of an
    action: `habit_sensitivity` times its habit, and the learner's.

    Args:
        num_states, num_actions: of the task.
        learner: adds its log-odds and parameters; None: there is the habit alone.
    """

    num_states: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    learner: LearnerChoices | None = None

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Those of the habit, then those of the learner."""
        learnt = {} if self.learner is None else dict(self.learner.parameters)
        return {"habit_rate": Parameter("unit"), "habit_sensitivity": Parameter("positive"), **learnt}

    def init(self, params: Values) -> tuple[Float[Array, "S A"], PyTree]:
        """No habit, and what the learner begins with."""
        # Its state stands beside the habit.
        learnt = None if self.learner is None else self.learner.init(self._of_learner(params))
        return jnp.zeros((self.num_states, self.num_actions)), learnt

    def policy(
        self, params: Values, state: tuple[Float[Array, "S A"], PyTree], observation: Int[Array, ""]
    ) -> Float[Array, " A"]:
        """The softmax of the sum of both log-odds: a constant in the learner's log-probabilities cancels."""
        habit, learnt = state
        odds = params["habit_sensitivity"] * habit[observation]
        if self.learner is not None:
            # Log-probabilities are log-odds up to a constant.
            odds = odds + self.learner.policy(self._of_learner(params), learnt, observation)
        return jax.nn.log_softmax(odds)

    def update(
        self, params: Values, state: tuple[Float[Array, "S A"], PyTree], transition: Transitions
    ) -> tuple[Float[Array, "S A"], PyTree]:
        """habit <- habit + habit_rate (chosen - habit) in the state that was seen."""
        habit, learnt = state
        chosen = (jnp.arange(self.num_actions) == transition.action).astype(habit.dtype)
        # A delta rule whose target is 1 for the chosen action, 0 for the others.
        habit = habit.at[transition.state].add(params["habit_rate"] * (chosen - habit[transition.state]))
        if self.learner is not None:
            learnt = self.learner.update(self._of_learner(params), learnt, transition)
        return habit, learnt

    def _of_learner(self, params: Values) -> Values:
        assert self.learner is not None
        # A learner refuses what is no parameter of its own.
        return {name: params[name] for name in self.learner.parameters}


ReadyModel = Callable[[ChoiceLog, Objective], BehaviourModel]
"""Makes a model of the sizes of a log."""


def _problem(log: ChoiceLog, objective: Objective) -> Problem:
    """What a learner of the library is told about the task of a log."""
    # An end exists for the learner only if the log has one.
    ends = log.terminated is not None and bool(np.any(log.terminated))
    return Problem(StateActionSpace(len(log.states), len(log.actions), ends=ends), objective)


def _q_learning(agent: type[BoltzmannQ]) -> Callable[[ChoiceLog, Objective], LearnerChoices]:
    def make(log: ChoiceLog, objective: Objective) -> LearnerChoices:
        parameters = {"learning_rate": Parameter("unit"), "sensitivity": Parameter("positive")}
        # Persons are described by a sensitivity, agents by a temperature.
        make_agent = lambda p: agent(temperature=1.0 / p["sensitivity"], learning_rate=p["learning_rate"])  # noqa: E731
        return LearnerChoices(make_agent, parameters, _problem(log, objective))

    return make


def _two_rates(log: ChoiceLog, objective: Objective) -> BehaviourModel:
    names = ("learning_rate_up", "learning_rate_down")
    parameters = {**dict.fromkeys(names, Parameter("unit")), "sensitivity": Parameter("positive")}

    def one(p: Values) -> BoltzmannQ:
        up, down = (p[name] for name in names)
        # The rate of rises, and `falling_rate` for negative errors.
        return BoltzmannQ(1.0 / p["sensitivity"], up, falling_rate=down)

    return LearnerChoices(one, parameters, _problem(log, objective))


def _constant(log: ChoiceLog, objective: Objective) -> BehaviourModel:
    del objective
    if len(log.actions) < 2:
        raise ValueError(f"log has {len(log.actions)} action, expected at least 2 to choose among")
    return ConstantChoices(len(log.actions))


def _win_stay(log: ChoiceLog, objective: Objective) -> BehaviourModel:
    del objective
    rewards = np.asarray(log.reward)[np.asarray(log.observed)]
    # Half-way between the worst and the best reward: .5 of rewards 0 and 1, 0 of gains and losses of one size.
    return WinStayLoseShift(len(log.states), len(log.actions), float(rewards.min() + rewards.max()) / 2)


def _habit(learner: Callable[[ChoiceLog, Objective], LearnerChoices] | None) -> ReadyModel:
    def make(log: ChoiceLog, objective: Objective) -> ChoiceKernel:
        learnt = None if learner is None else learner(log, objective)
        return ChoiceKernel(len(log.states), len(log.actions), learnt)

    return make


def _two_step(num_parameters: int) -> ReadyModel:
    def make(log: ChoiceLog, objective: Objective) -> BehaviourModel:
        del objective
        # Index 0 is the first stage, 1 and 2 the second.
        if (len(log.states), len(log.actions)) != (3, 2):
            raise ValueError(
                f"log has {len(log.states)} states and {len(log.actions)} actions, expected 3 and 2: the first stage, "
                "then the two second-stage states, one row for each choice"
            )
        return TwoStep(num_parameters)

    return make


MODELS: dict[str, ReadyModel] = {
    "q_learning": _q_learning(BoltzmannQ),
    "q_learning_two_rates": _two_rates,
    "q_learning_habit": _habit(_q_learning(BoltzmannQ)),
    "soft_q": _q_learning(SoftQ),
    "two_step": _two_step(7),
    "two_step_6": _two_step(6),
    "two_step_4": _two_step(4),
    "win_stay_lose_shift": _win_stay,
    "habit": _habit(None),
    "constant": _constant,
}
"""Name -> (log, objective) -> model. The objective has a meaning for learners alone."""

DESCRIPTIONS = {
    "q_learning": "Q-learning with a softmax: learning rate, sensitivity (1 / temperature).",
    "q_learning_two_rates": "The same with two learning rates, for positive and negative prediction errors.",
    "q_learning_habit": "Q-learning beside a habit (choice kernel) that repeats choices.",
    "soft_q": "Q-learning with a soft maximum in the target.",
    "two_step": "The hybrid learner of the two-step task, seven parameters (Daw 2011).",
    "two_step_6": "The same with lambda = 1.",
    "two_step_4": "The same with one learning rate and one sensitivity.",
    "win_stay_lose_shift": "Repeats what was last good in a state, leaves what was not, with noise.",
    "habit": "A choice kernel: repeats choices, whatever came of them.",
    "constant": "Fixed probabilities of the actions: nothing is learnt.",
}


def ready_model(name: str, log: ChoiceLog, objective: Objective | None = None) -> BehaviourModel:
    """A behaviour model by its name, of the sizes of a log: "q_learning", "q_learning_two_rates", "habit", ...

    Args:
        name: one of `bayes-mdp list`, under behaviour models.
        log: what it will be fitted to.
        objective: what learners look ahead to; None: nothing where there is one state, else `Discounted(0.9)`.

    Raises:
        ValueError: another name; a log of other sizes than the model is for. TypeError: no log.

    Example:
        >>> log = bm.behaviour.ChoiceLog([[0, 0]], [[0, 1]], [[1.0, 0.0]], [[0, 0]])  # one state
        >>> list(bm.behaviour.ready_model("q_learning_two_rates", log).parameters)
        ['learning_rate_up', 'learning_rate_down', 'sensitivity']
    """
    check_name("name", name, MODELS)
    check_type("log", log, ChoiceLog, "a ChoiceLog")
    if objective is not None:
        check_objective(objective)
    # One state: a bandit, in which nothing follows.
    return MODELS[name](log, Discounted(0.9 if len(log.states) > 1 else 0.0) if objective is None else objective)
