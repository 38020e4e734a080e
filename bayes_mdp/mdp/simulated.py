"""`SimulatedEnvironment`: what can be simulated and has too many states to list."""

from typing import Protocol, runtime_checkable

from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from bayes_mdp.mdp.picture import Picture
from bayes_mdp.mdp.typing import IntScalar


@runtime_checkable
class SimulatedEnvironment(Protocol):
    """An environment without tables. A state is any tree of arrays; every function is pure and traceable.

    `name`: for tables and files. `n_actions`: A. `num_codes`: codes of states are integers below it (at most 2^31 - 1).
    `picture`: its map, or None.
    """

    @property
    def name(self) -> str: ...

    @property
    def n_actions(self) -> int: ...

    @property
    def num_codes(self) -> int: ...

    @property
    def picture(self) -> Picture | None: ...

    def reset(self, key: PRNGKeyArray) -> PyTree:
        """The first state of an episode."""
        ...

    def step(
        self, key: PRNGKeyArray, state: PyTree, action: IntScalar
    ) -> tuple[PyTree, Float[Array, ""], Bool[Array, ""]]:
        """One transition: (next state, reward, terminated)."""
        ...

    def code(self, state: PyTree) -> Int[Array, ""]:
        """The number of a state: states that an agent can tell apart have different ones."""
        ...
