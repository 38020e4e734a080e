"""Features with fixed parameters, on which a belief is never out of date: random units, Fourier, radial, tiles."""

from itertools import product

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.agents.neural.networks import flat
from bayes_mdp.numerics.products import matmul
from bayes_mdp.utils.typing import AnyArray, RealScalar
from bayes_mdp.utils.validation import check_count, check_finite, check_positive, check_shape, require


class RandomFeatures(eqx.Module):
    """phi = relu(W observation), W of N(0, 1), centred over the units, of unit norm.

    Args:
        num_units: D. A linear-Gaussian belief distinguishes about so many states.

    Raises:
        ValueError: a number that is too small. TypeError: no integer.
    """

    num_units: int = eqx.field(default=512, static=True)

    def __check_init__(self) -> None:
        check_count("num_units", self.num_units, 2)

    def init(self, key: PRNGKeyArray, observation_shape: tuple[int, ...]) -> Float[Array, "I D"]:
        """Network parameters W, standard normal."""
        return jax.random.normal(key, (int(np.prod(observation_shape)), self.num_units))

    def apply(self, parameters: Float[Array, "I D"], observation: AnyArray) -> Float[Array, "B D"]:
        """Features of observations [B ...]; no gradient reaches W."""
        x = jax.nn.relu(matmul(flat(observation), jax.lax.stop_gradient(parameters)))
        x = x - jnp.mean(x, 1, keepdims=True)
        return x / jnp.maximum(jnp.linalg.norm(x, axis=1, keepdims=True), 1e-6)

    def num_features(self, observation_shape: tuple[int, ...]) -> int:
        """D."""
        del observation_shape
        return self.num_units


class Box(eqx.Module):
    """Bounds of an observation of d numbers; what lies outside counts as the bound.

    Args:
        low, high: of every number, in its own unit.

    Raises:
        ValueError: bounds of two lengths, that are not finite, or with `high` not above `low`. TypeError: no numbers.
    """

    low: tuple[float, ...] = eqx.field(static=True, converter=lambda x: tuple(map(float, x)))
    high: tuple[float, ...] = eqx.field(static=True, converter=lambda x: tuple(map(float, x)))

    def __check_init__(self) -> None:
        low, high = np.asarray(self.low), np.asarray(self.high)
        check_shape("high", high, low.shape, "number")
        check_finite("low", low)
        check_finite("high", high)
        require(high <= low, "high", high, "more than low")

    def unit(self, observation: AnyArray) -> Float[Array, "B d"]:
        """Observations as points of the unit cube.

        Args:
            observation: [B ...].

        Raises:
            ValueError: observations of another number of entries.
        """
        x, low = flat(observation), np.asarray(self.low, np.float32)
        check_shape("observation", x, (len(x), len(low)), "one, number of the box")
        return jnp.clip((x - low) / (np.asarray(self.high, np.float32) - low), 0.0, 1.0)


class _OfBox(eqx.Module):
    """Base of the features of a point of a box: nothing is drawn, nothing is learnt."""

    box: Box

    def init(self, key: PRNGKeyArray, observation_shape: tuple[int, ...]) -> tuple[()]:
        """Nothing to learn.

        Raises:
            ValueError: an observation is no point of the box.
        """
        del key
        self._dimensions(observation_shape)
        return ()

    def _dimensions(self, observation_shape: tuple[int, ...]) -> int:
        """d, which the box and the observation must agree on."""
        size = int(np.prod(observation_shape))
        if size != len(self.box.low):
            raise ValueError(
                f"observation_shape is {observation_shape}, {size} numbers, expected the {len(self.box.low)} of the box"
            )
        return size


class Fourier(_OfBox):
    """cos(pi c . x) / sqrt(D) for every c in {0, ..., order}^d (Konidaris, Osentoski and Thomas 2011), |phi| <= 1.

    Args:
        box: where x is 0 and 1.
        order: of the highest frequency of every number; D = (order + 1)^d.

    Raises:
        ValueError: a number that is too small. TypeError: no integer.
    """

    order: int = eqx.field(default=5, static=True)

    def __check_init__(self) -> None:
        check_count("order", self.order)

    def apply(self, parameters: tuple[()], observation: AnyArray) -> Float[Array, "B D"]:
        """Features of observations [B ...]."""
        del parameters
        frequency = np.array(list(product(range(self.order + 1), repeat=len(self.box.low))), np.float32)
        return jnp.cos(matmul(np.pi * self.box.unit(observation), frequency.T)) / np.sqrt(len(frequency))

    def num_features(self, observation_shape: tuple[int, ...]) -> int:
        """D."""
        return (self.order + 1) ** self._dimensions(observation_shape)


class RadialBasis(_OfBox):
    """Gaussian bumps on a grid, of unit norm.

    Args:
        box: where the grid begins and ends.
        per_axis: centres along every number; D = per_axis^d.
        width: standard deviation of a bump, in steps of the grid.

    Raises:
        ValueError: a number that is too small. TypeError: no number.
    """

    per_axis: int = eqx.field(default=8, static=True)
    width: RealScalar = 1.0

    def __check_init__(self) -> None:
        check_count("per_axis", self.per_axis, 2)
        check_positive("width", self.width)

    def apply(self, parameters: tuple[()], observation: AnyArray) -> Float[Array, "B D"]:
        """Features of observations [B ...]."""
        del parameters
        steps = (self.per_axis - 1) * self.box.unit(observation)
        # A bump in d dimensions is a product of bumps along the axes: d small tables in place of per_axis^d distances.
        bumps = jnp.exp(-0.5 * ((steps[:, :, None] - np.arange(self.per_axis)) / self.width) ** 2)  # B d C
        x = jnp.ones((len(steps), 1))
        for axis in range(steps.shape[1]):
            x = (x[:, :, None] * bumps[:, axis, None, :]).reshape(len(steps), -1)
        return x / jnp.linalg.norm(x, axis=1, keepdims=True)

    def num_features(self, observation_shape: tuple[int, ...]) -> int:
        """D."""
        return self.per_axis ** self._dimensions(observation_shape)


class Tiles(_OfBox):
    """Tile coding (Sutton and Barto 2018, 9.5.4): 1 / sqrt(num_tilings) at the tile of every tiling, of unit norm.

    Tiling k is moved by k (1, 3, 5, ...) / num_tilings of a tile.

    Args:
        box: what one tiling covers.
        per_axis: tiles along every number.
        num_tilings: D = num_tilings (per_axis + 1)^d.

    Raises:
        ValueError: a number that is too small. TypeError: no integer.
    """

    per_axis: int = eqx.field(default=8, static=True)
    num_tilings: int = eqx.field(default=8, static=True)

    def __check_init__(self) -> None:
        check_count("per_axis", self.per_axis)
        check_count("num_tilings", self.num_tilings)

    def apply(self, parameters: tuple[()], observation: AnyArray) -> Float[Array, "B D"]:
        """Features of observations [B ...]."""
        del parameters
        x = self.per_axis * self.box.unit(observation)
        odd = 2 * np.arange(x.shape[1]) + 1
        shift = (np.arange(self.num_tilings)[:, None] * odd / self.num_tilings % 1).astype(np.float32)  # T d
        side = self.per_axis + 1
        # The tile along every axis, then its number in the tiling, digits to base `side`.
        cell = jnp.minimum(jnp.floor(x[:, None] + shift), self.per_axis).astype(jnp.int32)  # B T d
        place = cell @ (side ** np.arange(x.shape[1])).astype(np.int32)
        hot = jax.nn.one_hot(place, side ** x.shape[1]) / np.sqrt(self.num_tilings)
        return hot.reshape(len(x), -1)

    def num_features(self, observation_shape: tuple[int, ...]) -> int:
        """D."""
        return self.num_tilings * (self.per_axis + 1) ** self._dimensions(observation_shape)
