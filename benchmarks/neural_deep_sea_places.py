"""The same runs faster: DeepSea observed as the number of the diver's cell, networks and hash that look up its row.

Parameters, their draws and every function of them are those of one-hot planes of N x N; a plane of 10,000 zeros and a
one is neither kept nor multiplied by. For sizes beyond 50.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bayes_mdp.agents.neural import MLP, DeepUBE, HashedFeatures, UnitPrior
from bayes_mdp.agents.neural.networks import dense
from bayes_mdp.envs.observed.one_hot_observations import DeepSeaObserved
from bayes_mdp.mdp import TimeStep


class Places(eqx.Module):
    """DeepSea whose observation is row N + column."""

    env: DeepSeaObserved

    @property
    def name(self) -> str:
        """For tables and files."""
        return f"{self.env.name}:places"

    @property
    def n_actions(self) -> int:
        """Two."""
        return 2

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """A number."""
        return (1,)

    @property
    def observation_dtype(self) -> np.dtype:
        """Of it."""
        return np.dtype(np.int32)

    def reset(self, key: Any) -> tuple[Any, Any]:
        """Cell 0."""
        state = self.env.reset(key)[0]
        return state, self._observation(state)

    def step(self, key: Any, state: Any, action: Any) -> TimeStep:
        """As the environment does."""
        step = self.env.step(key, state, action)
        return step._replace(observation=self._observation(step.state))

    def _observation(self, state: Any) -> Any:
        return (state.row * self.env.size + state.column)[None]


class PlaceMLP(eqx.Module):
    """The function of `OneHotMLP` on planes."""

    places: int = eqx.field(static=True)
    widths: tuple[int, ...] = eqx.field(default=(64, 64), static=True)

    def init(self, key: Any, observation_shape: tuple[int, ...]) -> Any:
        """As for planes."""
        del observation_shape
        return MLP(self.widths).init(key, (self.places,))

    def apply(self, parameters: Any, observation: Any) -> Any:
        """The first layer looks up a row."""
        first, *others = parameters
        x = jax.nn.relu(first.weight[observation[:, 0]] + first.bias)
        for layer in others:
            x = jax.nn.relu(dense(layer, x))
        return x

    def num_features(self, observation_shape: tuple[int, ...]) -> int:
        """The last width."""
        del observation_shape
        return self.widths[-1]


class PlaceHash(HashedFeatures):
    """The codes of `HashedFeatures` on planes."""

    places: int = eqx.field(default=0, static=True)

    def init(self, key: Any, observation_shape: tuple[int, ...]) -> Any:
        """As for planes."""
        del observation_shape
        return super().init(key, (self.places,))

    def apply(self, parameters: Any, observation: Any) -> Any:
        """Signs of a row."""
        signs = (parameters[observation[:, 0]] > 0).reshape(-1, self.num_tables, self.num_bits)
        code = signs.astype(jnp.int32) @ (1 << jnp.arange(self.num_bits, dtype=jnp.int32))
        return code + (jnp.arange(self.num_tables, dtype=jnp.int32) << self.num_bits)


def deep_on_places(size: int, horizon: bool = False) -> DeepUBE:
    """`DeepUBE()` for `Places`; `horizon`: with the noise of `UnitPrior.for_horizon`."""
    prior = UnitPrior.for_horizon(size) if horizon else UnitPrior()
    return DeepUBE(trunk=PlaceMLP(size**2), features=PlaceHash(places=size**2), posterior=prior)
