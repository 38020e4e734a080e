"""`SimulatedEnvironment`: what can be simulated and has too many states to list."""

from typing import Protocol, runtime_checkable

from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from bayes_mdp.mdp.picture import Picture
from bayes_mdp.utils.typing import IntScalar


@runtime_checkable
class SimulatedEnvironment(Protocol):
    """An environment without tables. A state is any tree of arrays; every function is pure and traceable."""

    @property
    def name(self) -> str:
        """For tables and files."""
        ...

    @property
    def n_actions(self) -> int:
        """A, the number of actions."""
        ...

    @property
    def num_codes(self) -> int:
        """Codes of states are integers from 0 to below it; at most 2^31 - 1."""
        ...

    @property
    def picture(self) -> Picture | None:
        """Its map, or None."""
        ...

    def reset(self, key: PRNGKeyArray) -> PyTree:
        """The first state of an episode.

        Args:
            key: of the first state.
        """
        ...

    def step(
        self, key: PRNGKeyArray, state: PyTree, action: IntScalar
    ) -> tuple[PyTree, Float[Array, ""], Bool[Array, ""]]:
        """One transition: (next state, reward, terminated).

        Args:
            key: of the transition.
            state: from `reset` or the last `step`.
            action: its index.
        """
        ...

    def code(self, state: PyTree) -> Int[Array, ""]:
        """The number of a state: states that an agent can tell apart have different ones.

        Args:
            state: from `reset` or `step`.
        """
        ...
