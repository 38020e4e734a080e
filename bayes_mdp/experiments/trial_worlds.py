"""What the loop of trials asks of a world: where a state has its row in the tables, a first state, a step."""

from typing import Any, Protocol

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from bayes_mdp.experiments.simulator import Simulator


class World(Protocol):
    """An environment inside the loop of trials. Every function is for one lane, and traceable."""

    def index(self) -> Any:
        """What a lane keeps to find rows; None: a state is its row."""
        ...

    def locate(self, index: Any, state: Any, acts: Any) -> tuple[Any, Int[Array, ""]]:
        """The index, and the row of a state; a new state gets a row where `acts`."""
        ...

    def reset(self, key: Key[Array, ""], u: Any) -> Any:
        """The first state of a trial, from a key or a uniform number."""
        ...

    def step(
        self, key: Key[Array, ""], u: Any, state: Any, action: Any
    ) -> tuple[Any, Float[Array, ""], Bool[Array, ""]]:
        """(next state, reward, ended); after an end the state is of no account."""
        ...


class TabularWorld(eqx.Module):
    """A world whose states are listed: outcomes by inversion of one uniform number."""

    simulator: Simulator

    def index(self) -> None:
        """None: a state is its row."""

    def locate(self, index: None, state: Any, acts: Any) -> tuple[None, Int[Array, ""]]:
        """The state."""
        del index, acts
        return None, state

    def reset(self, key: Key[Array, ""], u: Any) -> Int[Array, ""]:
        """The first state."""
        del key
        return self.simulator.first(u)

    def step(
        self, key: Key[Array, ""], u: Any, state: Any, action: Any
    ) -> tuple[Int[Array, ""], Float[Array, ""], Bool[Array, ""]]:
        """One transition."""
        sim = self.simulator
        cell = sim.cell(state, action, 0)
        outcome = sim.next_outcome(u, cell)
        n_states = sim.outcome.shape[-3]
        return jnp.minimum(outcome, n_states - 1), sim.reward_law.sample(key, cell, outcome), outcome == n_states
