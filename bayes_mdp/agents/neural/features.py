"""Features with fixed parameters, on which a belief is never out of date: random units, Fourier, radial, tiles, hashes.

Hashed random features are k tables of codes, sign(W observation), with an exact belief on each table. Related: Tang et
al. 2017 ("#Exploration"), whose counts of such codes (SimHash, Charikar 2002) pay a bonus; here they are the precision
of a belief about the last layer, which the uncertainty Bellman equation propagates. The cost of a state is k look-ups
for any number of states, and the belief has no rank that limits how many it distinguishes.
"""

from itertools import product

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from bayes_mdp.agents.neural.networks import flat
from bayes_mdp.numerics.products import matmul
from bayes_mdp.utils.typing import AnyArray, RealScalar
from bayes_mdp.utils.validation import check_count, check_finite, check_name, check_positive, check_shape, require


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
        # Centred and of unit norm: the prior variance phi' phi is the same at every observation.
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
        # One frequency vector c for every combination of orders along the axes.
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
        # Displacements 1, 3, 5, ... along the axes (Sutton and Barto 2018, 9.5.4): tilings do not line up diagonally.
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


MOST_BITS = 24
COMBINE = ("max", "mean")
NOISE, LEAST_NOISE = 0.02, 1e-6


class HashedFeatures(eqx.Module):
    """k tables of 2^bits units, one active in each: the one whose number has the bits sign(W observation).

    Observations at an angle of t share the unit of a table with probability (1 - t / pi)^bits over the draw of W. So
    those without a common entry (one-hot planes) share one in 2^bits, and similar pictures share some of the k.
    Features are kept in their sparse form: the numbers of the active units, Int[B k], unit u of table j being
    j 2^bits + u.

    Args:
        num_tables: k.
        num_bits: of a code; more bits separate observations that are more alike.

    Raises:
        ValueError: fewer than one table or bit, more than 24 bits.
        TypeError: no integer.
    """

    num_tables: int = eqx.field(default=8, static=True)
    num_bits: int = eqx.field(default=14, static=True)

    def __check_init__(self) -> None:
        check_count("num_tables", self.num_tables)
        check_count("num_bits", self.num_bits)
        if self.num_bits > MOST_BITS:
            raise ValueError(f"num_bits is {self.num_bits}, expected at most {MOST_BITS}")

    def init(self, key: PRNGKeyArray, observation_shape: tuple[int, ...]) -> Float[Array, "I k_bits"]:
        """Network parameters W, standard normal."""
        return jax.random.normal(key, (int(np.prod(observation_shape)), self.num_tables * self.num_bits))

    def apply(self, parameters: Float[Array, "I k_bits"], observation: AnyArray) -> Int[Array, "B k"]:
        """Active units at observations [B ...]."""
        # SimHash: the bits of a code are the signs of random projections.
        signs = (matmul(flat(observation), parameters) > 0).reshape(-1, self.num_tables, self.num_bits)
        # The bits of every table, read as a number; table i then begins at unit i 2^bits.
        code = signs.astype(jnp.int32) @ (1 << jnp.arange(self.num_bits, dtype=jnp.int32))
        return code + (jnp.arange(self.num_tables, dtype=jnp.int32) << self.num_bits)

    def num_features(self, observation_shape: tuple[int, ...]) -> int:
        """Units of all tables."""
        del observation_shape
        return self.num_tables << self.num_bits


class UnitBelief(eqx.Module):
    """Every table's belief: Q(s, a) = w_a[unit of s], weights independent, N(0, variance) before data.

    One-hot features keep the posterior independent: count and noise of each unit are all of it. The noise around a
    unit's mean is unknown, and one target does not separate it from the mean: it is taken as `noise` where targets are
    close to zero, and rises to `reward_noise` more where their mean square is beyond `threshold`. So a state without
    rewards is known after one visit, and one with rewards is visited again.

    Args:
        count: number of targets.
        square: sum of their squares, in squared units of the reward.
        variance_before: of every weight before data, in units of the squared target.
        noise, reward_noise, threshold: see above, as shares of `variance_before`.
        combine: the tables are k beliefs about the same value that group states in different ways. "max": the
            variance of the most uncertain one, in which a state shares its unit least (so a new state is unknown as
            long as one of its k units is new); "mean" of the tables' variances.
    """

    count: Float[Array, "D A"]
    square: Float[Array, "D A"]
    variance_before: Float[Array, ""]
    noise: Float[Array, ""]
    reward_noise: Float[Array, ""]
    threshold: Float[Array, ""]
    combine: str = eqx.field(static=True)

    def variance(self, features: Int[AnyArray, "B k"]) -> Float[Array, "B A"]:
        """Of the mean value of every action, noise left out."""
        count, square = self.count[features], self.square[features]  # B k A
        # The spread of the targets says whether rewards differ here: only then reward noise counts.
        mean_square = square / jnp.maximum(count, 1) / self.variance_before
        noise = self.noise + self.reward_noise * mean_square / (mean_square + self.threshold)
        # Posterior variance of a N(0, 1) weight after `count` targets with this noise.
        share = noise / (noise + count)
        # Tables collide by chance; the least visited unit of a state ("max") is the one that collides least.
        return self.variance_before * (jnp.max(share, 1) if self.combine == "max" else jnp.mean(share, 1))

    def initial_variance(self, features: Int[AnyArray, "B k"]) -> Float[Array, " B"]:
        """What `variance` was before data."""
        return jnp.full(len(features), self.variance_before)

    def update(
        self, features: Int[AnyArray, "K k"], action: Int[AnyArray, " K"], target: Float[AnyArray, " K"] | None = None
    ) -> "UnitBelief":
        """After K targets; None: of size zero."""
        place = (features, action[:, None])
        square = self.square if target is None else self.square.at[place].add(target[:, None] ** 2)
        return eqx.tree_at(lambda b: (b.count, b.square), self, (self.count.at[place].add(1.0), square))


class UnitPrior(eqx.Module):
    """Independent weights N(0, variance) on the units of `HashedFeatures`.

    Args:
        variance: of a weight, in units of the squared reward: q_max^2 of `DeepUBE`.
        noise: of targets close to zero, as a share of `variance`: a visit leaves noise / (noise + 1) of it unknown.
        reward_noise: added to it where targets are not close to zero.
        threshold: mean square of targets, as a share of `variance`, that counts as half not close to zero.
        combine: see `UnitBelief`.

    Raises:
        ValueError: `combine` is another name.
    """

    variance: RealScalar = 1.0
    noise: RealScalar = NOISE
    reward_noise: RealScalar = 1.0
    threshold: RealScalar = 0.001
    combine: str = eqx.field(default="max", static=True)

    def __check_init__(self) -> None:
        check_name("combine", self.combine, COMBINE)

    def belief(self, n_actions: int, num_features: int) -> UnitBelief:
        """The belief before data."""
        nothing = jnp.zeros((num_features, n_actions))
        variance, noise = jnp.asarray(self.variance, float), jnp.asarray(self.noise, float)
        reward_noise, threshold = jnp.asarray(self.reward_noise, float), jnp.asarray(self.threshold, float)
        return UnitBelief(nothing, nothing, variance, noise, reward_noise, threshold, self.combine)

    @classmethod
    def for_horizon(cls, horizon: int, discount: float = 0.99) -> "UnitPrior":
        """The prior with which one visit of every pair lets the last unvisited one, H steps away, stand out.

        What remains unknown about visited pairs adds up along an episode of H steps: u of its first pair is about
        kappa U (1 - gamma^2H) / (1 - gamma^2) (kappa, U as in `DeepUBE`). A pair never tried after H steps makes it
        gamma^2H U. With kappa = `noise`, about that of one visit, both are equal at
        `noise` = (1 - gamma^2) / (gamma^-2H - 1), here between 1e-6 and the default: at gamma = .99 the default up to
        H = 34, .0115 at 50, .0031 at 100.

        A heuristic, for long episodes without noise: the smaller `noise` is, the more is a single visit believed.

        Args:
            horizon: H, steps of an episode.
            discount: gamma of the agent, in (0, 1].

        Raises:
            ValueError: `horizon` below 1, `discount` outside (0, 1]. TypeError: `horizon` is no integer.
        """
        check_count("horizon", horizon)
        if not 0 < discount <= 1:
            raise ValueError(f"discount is {discount}, expected a number greater than 0, at most 1")
        # sum over t < H of gamma^2t, over gamma^2H: all visited pairs of the way against one at its end.
        with np.errstate(over="ignore"):  # infinite where gamma^2H is no float: the least noise
            ratio = float(np.sum(np.float64(discount) ** (-2.0 * np.arange(1, horizon + 1))))
        return cls(noise=min(NOISE, max(LEAST_NOISE, 1 / ratio)))
