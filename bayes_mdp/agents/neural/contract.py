"""What a deep agent is, for those who train it: `init`, `begin`, `act`, `learn`, `values`."""

from typing import NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from bayes_mdp.agents.neural.replay import Replay
from bayes_mdp.utils.typing import AnyArray

Learner = TypeVar("Learner")

Watched: TypeAlias = dict[str, Float[Array, ""]]
"""Numbers of the learner that are recorded, by name: losses, mean Q, ..."""


class Spec(NamedTuple):
    """What an agent is given about the environments that it learns in.

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


class ActionOutput(NamedTuple):
    """What `act` returns.

    Args:
        action: of every environment.
        memory: what the next `act` needs: noise drawn for an episode, the member that acts, ...
        extra: what the replay keeps beside the transition: any tree of arrays [E ...]; () for nothing.
    """

    action: Int[Array, " E"]
    memory: PyTree
    extra: PyTree = ()


class Values(NamedTuple):
    """Estimates at some observations.

    Args:
        q: action values, in units of the reward.
        sd: their standard deviation as the agent believes it, before any scale; None: it has none.
        u: what the uncertainty Bellman equation says, a variance; None: it has none.
    """

    q: Float[Array, "B A"]
    sd: Float[Array, "B A"] | None = None
    u: Float[Array, "B A"] | None = None


@runtime_checkable
class NeuralAgent(Protocol[Learner]):
    """A deep agent. It holds hyperparameters only; every method is pure and traceable, for E environments at once.

    `iteration` counts steps of all E environments, from 0. It is the same for all seeds: under `vmap` over seeds, a
    condition that depends on it alone stays a branch of the compiled program and does not become a `select`.
    """

    def init(self, key: PRNGKeyArray, spec: Spec) -> Learner:
        """Parameters, optimiser states, posterior: what learning changes.

        Args:
            key: of the first parameters.
            spec: of the environments.
        """
        ...

    def begin(self, key: PRNGKeyArray, spec: Spec) -> PyTree:
        """The memory of `act` before the first step.

        Args:
            key: of what is drawn for the first episodes.
            spec: of the environments.
        """
        ...

    def act(
        self,
        key: PRNGKeyArray,
        learner: Learner,
        memory: PyTree,
        observation: AnyArray,
        started: Bool[Array, " E"],
        iteration: Int[Array, ""],
    ) -> ActionOutput:
        """An action for every environment.

        Args:
            key: of this iteration.
            learner: from `init` or the last `learn`.
            memory: from `begin` or the last `act`.
            observation: [E ...], one of each environment.
            started: where an episode begins.
            iteration: see the class.
        """
        ...

    def learn(
        self, key: PRNGKeyArray, learner: Learner, memory: PyTree, replay: Replay, iteration: Int[Array, ""]
    ) -> tuple[Learner, Watched]:
        """The learner after this iteration, and numbers to record.

        Args:
            key: of this iteration, another than that of `act`.
            learner: from `init` or the last `learn`.
            memory: what `act` left for the next iteration.
            replay: holds the row of this iteration already.
            iteration: see the class.
        """
        ...

    def values(self, learner: Learner, observation: AnyArray) -> Values:
        """Q, its standard deviation and u at B observations.

        Args:
            learner: from `init` or the last `learn`.
            observation: [B ...].
        """
        ...
