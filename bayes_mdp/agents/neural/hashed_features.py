"""Hashed random features: k tables of codes, sign(W observation), and an exact belief on each table.

The relative is Tang et al. 2017 ("#Exploration"), whose counts of such codes (SimHash, Charikar 2002) pay a bonus; here
they are the precision of a belief about the last layer, which the uncertainty Bellman equation carries on. The cost of
a state is k look-ups whatever the number of states seen, and there is no rank at which the belief is used up.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from bayes_mdp.agents.neural.networks import flat
from bayes_mdp.mdp.validation import check_count, check_name

MOST_BITS = 24
COMBINE = ("max", "mean")


class HashedFeatures(eqx.Module):
    """k tables of 2^bits units, one active in each: the one whose number has the bits sign(W observation).

    Observations at an angle of t share the unit of a table with probability (1 - t / pi)^bits over the draw of W. So
    those without a common entry (one-hot planes) share one in 2^bits, and similar pictures share some of the k.
    Features are kept in their sparse form: the numbers of the active units, Int[B k], unit u of table j being
    j 2^bits + u.

    Args:
        num_tables: k.
        num_bits: of a code; more of them tell more alike observations apart.

    Raises:
        ValueError: fewer than one table or bit, more than 24 bits.
    """

    num_tables: int = eqx.field(default=8, static=True)
    num_bits: int = eqx.field(default=14, static=True)

    def __check_init__(self) -> None:
        check_count("num_tables", self.num_tables)
        check_count("num_bits", self.num_bits)
        if self.num_bits > MOST_BITS:
            raise ValueError(f"num_bits is {self.num_bits}, expected at most {MOST_BITS}")

    def init(self, key: PRNGKeyArray, observation_shape: tuple[int, ...]) -> Float[Array, "I k_bits"]:
        """W."""
        return jax.random.normal(key, (int(np.prod(observation_shape)), self.num_tables * self.num_bits))

    def apply(self, parameters: Float[Array, "I k_bits"], observation: Array) -> Int[Array, "B k"]:
        """Active units at observations [B ...]."""
        signs = (flat(observation) @ parameters > 0).reshape(-1, self.num_tables, self.num_bits)
        code = signs.astype(jnp.int32) @ (1 << jnp.arange(self.num_bits, dtype=jnp.int32))
        return code + (jnp.arange(self.num_tables, dtype=jnp.int32) << self.num_bits)

    def num_features(self, observation_shape: tuple[int, ...]) -> int:
        """Units of all tables."""
        del observation_shape
        return self.num_tables << self.num_bits


class UnitBelief(eqx.Module):
    """Every table's belief: Q(s, a) = w_a[unit of s], weights independent, N(0, variance) before data.

    One-hot features keep the posterior independent, so `precision` is all of it. The tables are k beliefs on the same
    value that share states in different ways; `combine` says which is believed.

    Args:
        precision: of every weight: 1 / prior variance + count, in units of the noise.
        prior_variance: of every weight before data, in units of the noise.
        combine: "max": the most uncertain table, that in which a state shares its unit least (so what has never been
            seen is unknown as long as one of the k units is new); "mean" of the tables' variances.
    """

    precision: Float[Array, "D A"]
    prior_variance: Float[Array, ""]
    combine: str = eqx.field(static=True)

    def variance(self, features: Int[Array, "B k"]) -> Float[Array, "B A"]:
        """Of the value of every action, in units of the noise."""
        precision = self.precision[features]  # B k A
        if self.combine == "max":
            return 1 / jnp.min(precision, 1)
        return jnp.mean(1 / precision, 1)

    def initial_variance(self, features: Int[Array, "B k"]) -> Float[Array, " B"]:
        """What `variance` was before data."""
        return jnp.full(len(features), self.prior_variance)

    def update(self, features: Int[Array, "K k"], action: Int[Array, " K"]) -> "UnitBelief":
        """After K targets."""
        return eqx.tree_at(lambda b: b.precision, self, self.precision.at[features, action[:, None]].add(1.0))


class UnitPrior(eqx.Module):
    """Independent weights N(0, variance) on the units of `HashedFeatures`.

    Args:
        variance: of a weight, in units of the noise: one visit leaves the share 1 / (1 + variance) of it unknown.
        combine: see `UnitBelief`.

    Raises:
        ValueError: `combine` is another name.
    """

    variance: Any = 100.0
    combine: str = eqx.field(default="max", static=True)

    def __check_init__(self) -> None:
        check_name("combine", self.combine, COMBINE)

    def belief(self, n_actions: int, num_features: int) -> UnitBelief:
        """The belief before data."""
        variance = jnp.asarray(self.variance, float)
        return UnitBelief(jnp.full((num_features, n_actions), 1 / variance), variance, self.combine)
