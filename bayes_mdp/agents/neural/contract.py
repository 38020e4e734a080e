"""What a deep agent is, for those who train it: `init`, `begin`, `act`, `learn`, `values`."""

from typing import Any, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bayes_mdp.agents.neural.replay import Replay

Learner = TypeVar("Learner")


class Spec(NamedTuple):
    """What an agent is told of the environments that it learns in.

    Args:
        observation_shape: of one observation.
        observation_dtype: of its entries.
        n_actions: A.
        num_envs: E, environments that are stepped side by side.
    """

    observation_shape: tuple[int, ...]
    observation_dtype: np.dtype
    n_actions: int
    num_envs: int


class LastLayer(Protocol):
    """A belief about the last layer: how sure is the value of every action at some features. `update` is traceable."""

    def variance(self, features: Float[Array, "B D"]) -> Float[Array, "B A"]:
        """Of the value of every action."""
        ...

    def initial_variance(self, features: Float[Array, "B D"]) -> Float[Array, " B"]:
        """What it was before data."""
        ...

    def update(
        self, features: Float[Array, "K D"], action: Int[Array, " K"], target: Float[Array, " K"] | None = None
    ) -> Self:
        """After the actions were taken at these features; `target`: the rewards there, where the agent knows them."""
        ...


class LastLayerPrior(Protocol):
    """Makes that belief before data."""

    def belief(self, n_actions: int, num_features: int) -> LastLayer:
        """For D features."""
        ...


class ActionOutput(NamedTuple):
    """What `act` answers.

    Args:
        action: of every environment.
        memory: what the next `act` needs: noise held for an episode, the member that acts, ...
        extra: what the replay keeps beside the transition: any tree of arrays [E ...]; () for nothing.
    """

    action: Int[Array, " E"]
    memory: Any
    extra: Any = ()


class Values(NamedTuple):
    """What a person wants to see at some observations.

    Args:
        q: action values, in units of the reward.
        sd: their standard deviation as the agent believes it, before any scale; None: it has none.
        u: what the uncertainty Bellman equation says, sd^2; None: it has none.
    """

    q: Float[Array, "B A"]
    sd: Float[Array, "B A"] | None = None
    u: Float[Array, "B A"] | None = None


@runtime_checkable
class NeuralAgent(Protocol[Learner]):
    """A deep agent. It holds hyper-parameters only; everything is pure and traceable, for E environments at once.

    `iteration` counts steps of all E environments, from 0; it is the same for all seeds, so that what hangs on it alone
    is a branch in the compiled program and not a choice between two results.
    """

    def init(self, key: PRNGKeyArray, spec: Spec) -> Learner:
        """Parameters, optimiser states, posterior: what learning changes."""
        ...

    def begin(self, key: PRNGKeyArray, spec: Spec) -> Any:
        """The memory of `act` before the first step."""
        ...

    def act(
        self,
        key: PRNGKeyArray,
        learner: Learner,
        memory: Any,
        observation: Array,
        started: Bool[Array, " E"],
        iteration: Int[Array, ""],
    ) -> ActionOutput:
        """An action for every environment, `observation` [E ...]; `started`: where an episode begins."""
        ...

    def learn(
        self, key: PRNGKeyArray, learner: Learner, memory: Any, replay: Replay, iteration: Int[Array, ""]
    ) -> tuple[Learner, dict[str, Float[Array, ""]]]:
        """The learner after this iteration, and numbers to watch.

        The replay holds the row of this iteration already; `memory` is what `act` left for the next iteration.
        """
        ...

    def values(self, learner: Learner, observation: Array) -> Values:
        """Q, its standard deviation and u at observations [B ...]."""
        ...
