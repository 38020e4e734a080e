"""What comes in at the door of an `Actor`, checked: its parts once, transitions one by one."""

from math import isfinite
from operator import index
from typing import Any

from bayes_mdp.agents import Learner
from bayes_mdp.agents.trial import LearnsFromTrials
from bayes_mdp.experiments.case import check_agent
from bayes_mdp.mdp import AverageReward, Episodic, StateActionSpace
from bayes_mdp.mdp.objectives import check_objective
from bayes_mdp.mdp.space import check_space
from bayes_mdp.mdp.validation import check_initial, check_key


class ActorChecks:
    """Checks of states, actions and transitions, in plain numbers (about a microsecond each)."""

    def __init__(self, space: StateActionSpace) -> None:
        self._n_states, self._n_actions, self._ends = space.n_states, space.n_actions, space.ends
        self._by_step, self._legal, self._support = space.horizon is not None, space.legal, space.support
        self._masked = space.legal is not None or space.support is not None

    def cell(self, step: int, state: int, action: int) -> int:
        """Position of a pair in a flat list of visits."""
        return ((step * self._n_states if self._by_step else 0) + state) * self._n_actions + action

    def state(self, value: Any, name: str) -> int:
        """The index of a state.

        Raises:
            TypeError: no integer. ValueError: out of range.
        """
        try:
            state = index(value)
        except TypeError as error:
            raise TypeError(f"{name} is {value!r}, expected the index of a state") from error
        if not 0 <= state < self._n_states:
            raise ValueError(f"{name} is {state}, expected a state index from 0 to {self._n_states - 1}")
        return state

    def transition(
        self, step: int, state: Any, action: Any, reward: Any, following: Any
    ) -> tuple[int, int, float, int]:
        """State, action, reward and outcome (S: the end) of a transition; `following` None: it terminated.

        Raises:
            TypeError, ValueError: one sentence about what is wrong.
        """
        state = self.state(state, "observation")
        try:
            action = index(action)
        except TypeError as error:
            raise TypeError(f"action is {action!r}, expected the index of an action") from error
        if not 0 <= action < self._n_actions:
            raise ValueError(f"action is {action}, expected an action index from 0 to {self._n_actions - 1}")
        try:
            reward = float(reward)
        except (TypeError, ValueError) as error:
            raise TypeError(f"reward is {reward!r}, expected a number") from error
        if not isfinite(reward):
            raise ValueError(f"reward is {reward}, expected a finite number")
        if following is not None:
            outcome = self.state(following, "next_observation")
        elif self._ends:
            outcome = self._n_states
        else:
            raise ValueError("terminated is True, expected a space with ends=True")
        if self._masked:
            self._check_masks(step, state, action, outcome)
        return state, action, reward, outcome

    def _check_masks(self, step: int, state: int, action: int, outcome: int) -> None:
        if self._legal is not None and not self._legal[state, action]:
            raise ValueError(f"action is {action}, expected a legal action of state {state}")
        support = self._support
        if support is not None and not support[(step, state, action, outcome)[-support.ndim :]]:
            raise ValueError(
                f"next_observation is {outcome}, expected an outcome in the known support of state {state}, "
                f"action {action}"
            )


def check_actor(agent: Any, space: Any, objective: Any, key: Any, prior: Any, initial: Any) -> None:
    """Refuse what an `Actor` cannot be made of.

    Raises:
        ValueError, TypeError: one sentence about the argument at fault.
    """
    check_agent(agent)
    check_space(space)
    check_objective(objective)
    check_key("key", key)
    horizon = objective.horizon if isinstance(objective, Episodic) else None
    if space.horizon is not None and space.horizon != horizon:
        expected = f"expected Episodic({space.horizon}): space has {space.horizon} steps"
        raise ValueError(f"objective is {objective}, {expected}")
    if space.ends and isinstance(objective, AverageReward):
        raise ValueError("objective is AverageReward, expected another, or a space with ends=False")
    if prior is None and not isinstance(agent, Learner):
        raise ValueError(f"prior is None, expected a prior or a posterior for {type(agent).__name__}")
    own = getattr(prior, "space", space)
    check_space(own, "prior.space")
    if own.shape != space.shape or own.ends != space.ends:
        raise ValueError(
            f"prior is a posterior of shape {own.shape} with ends={own.ends}, expected {space.shape} and {space.ends}"
        )
    check_initial(initial, space.n_states)


def check_lanes(agent: Any, lanes: int | None) -> None:
    """Refuse several parallel environments for an agent that learns from whole trials: it would mix them.

    Raises:
        ValueError: says so.
    """
    if lanes is not None and lanes > 1 and isinstance(agent, LearnsFromTrials):
        name = type(agent).__name__
        raise ValueError(
            f"observation has {lanes} parallel environments, expected one: {name} learns from whole trials"
        )
