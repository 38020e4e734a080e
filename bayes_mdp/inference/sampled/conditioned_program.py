"""The data of a sampled posterior, and the program conditioned on it: statistics, or the rewards one by one."""

from collections.abc import Callable
from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int, Shaped
from numpyro.distributions import constraints

from bayes_mdp.inference.families.family import absorb, split, statistics
from bayes_mdp.mdp import Counts, StateActionSpace, Transitions
from bayes_mdp.models.dirichlet_prior import stable_simplex
from bayes_mdp.models.joint import OBSERVED_NEXT_STATE, OBSERVED_REWARD, observe
from bayes_mdp.models.mdp_spec import MDPSpec, Prior, check_spec, reward_table, transition_table
from bayes_mdp.models.sufficient_statistics import CategoricalCounts, RewardSums, Statistics, log_base_measure
from bayes_mdp.utils.typing import AnyArray, ArrayLike, Index


class Rows(eqx.Module):
    """Transitions for a reward law without sufficient statistics: counts of outcomes, and a buffer of M rewards.

    Args:
        transitions: [*H S A O], observations of each outcome.
        where: [M D], (step,) state, action and outcome of each reward.
        reward: [M].
        weight: [M], the power of its likelihood; zero: the entry is free.
        used: number of observed rewards. More than M: the buffer overflowed.
    """

    transitions: Float[AnyArray, "*H S A O"]
    where: Int[AnyArray, "M D"]
    reward: Float[AnyArray, " M"]
    weight: Float[AnyArray, " M"]
    used: Int[AnyArray, ""] | np.integer

    @property
    def capacity(self) -> int:
        """M."""
        return self.reward.shape[0]


DataStatistics = Statistics | Rows


class RewardRows(dist.Distribution):
    """Rewards of law `law`, the density of each raised to a power; weight zero: anything, of density one.

    Unlike NumPyro's own densities it is zero outside a support that depends on parameters (Uniform, say).
    """

    arg_constraints: dict[str, constraints.Constraint] = {}  # noqa: RUF012 - as NumPyro declares it
    pytree_data_fields = ("law", "weight")

    def __init__(
        self, law: dist.Distribution, weight: Float[AnyArray, "*M"], *, validate_args: bool | None = None
    ) -> None:
        self.law, self.weight = law, weight
        super().__init__(jnp.shape(weight), (), validate_args=validate_args)

    @property
    def support(self) -> constraints.Constraint:
        """Any number: what the law cannot give has density zero."""
        return constraints.real

    def log_prob(self, value: ArrayLike, intermediates: object = None) -> Float[Array, "..."]:
        """Weight times log density, and 0 with gradient 0 where the weight is 0."""
        del intermediates
        law, observed = self.law, self.weight != 0
        support = law.support
        assert support is not None
        value = jnp.asarray(value, int if law.is_discrete else float)  # some laws index by the value
        possible = support(value)
        # an impossible value is replaced by a possible one: a masked nan would still poison the gradient
        density = law.log_prob(jnp.where(observed & possible, value, support.feasible_like(value)))
        return jnp.where(observed, self.weight * jnp.where(possible, density, -jnp.inf), 0.0)


def conditioned(prior: Prior, space: StateActionSpace, *, rewards_only: bool = False) -> Callable[..., MDPSpec]:
    """`bayes_mdp.models.joint` for `DataStatistics`: a program `model(data_statistics=None) -> MDPSpec`.

    Its Dirichlet sites have the support of `stable_simplex`: chains and integrals on the unconstrained scale do not
    round small probabilities. With `rewards_only` it has no `observed_next_state`: its density is that of the rewards
    given the outcomes.
    """

    def model(data_statistics: DataStatistics | None = None) -> MDPSpec:
        # Stick-breaking on logits: small probabilities do not round to zero on the unconstrained scale.
        with stable_simplex():
            spec = prior(space)
        check_spec(spec, space)
        # Rewards one by one, or by sufficient statistics.
        if isinstance(data_statistics, Rows):
            _observe_rows(spec, space, data_statistics, rewards_only)
        elif data_statistics is not None:
            observe(spec, space, data_statistics, rewards_only=rewards_only)
        return spec

    return model


def _observe_rows(spec: MDPSpec, space: StateActionSpace, data_statistics: Rows, rewards_only: bool) -> None:
    # Transitions by their counts: a multinomial log-likelihood without its coefficient.
    if not rewards_only:
        with space.plates():
            numpyro.sample(
                OBSERVED_NEXT_STATE, CategoricalCounts(transition_table(spec, space)), obs=data_statistics.transitions
            )
    if data_statistics.capacity:
        # The law in the cells of the rewards, one for each row of the buffer.
        *cell, outcome = jnp.moveaxis(data_statistics.where, -1, 0)
        law = reward_table(spec, space).at(tuple(cell), outcome)
        with numpyro.plate("row", data_statistics.capacity):
            numpyro.sample(OBSERVED_REWARD, RewardRows(law, data_statistics.weight), obs=data_statistics.reward)


def rows_of(transitions: Transitions, space: StateActionSpace, *, by_outcome: bool) -> Rows:
    """All of `transitions`, in a buffer that holds just them. Traceable."""
    # Empty arrays of the right size, then one update: one way to add data.
    size = jnp.size(transitions.state)
    empty = Rows(
        jnp.zeros((*space.shape, space.n_outcomes)),
        jnp.zeros((size, len(space.shape) + 1), jnp.int32),
        jnp.zeros(size),
        jnp.zeros(size),
        jnp.zeros((), jnp.int32),
    )
    if not size:
        return empty
    rows = add_data(empty, transitions, jnp.ones(jnp.shape(transitions.state)), space, None, by_outcome=by_outcome)
    assert isinstance(rows, Rows)
    return rows


def add_data(
    data_statistics: DataStatistics,
    transitions: Transitions,
    weight: Float[AnyArray, "*N"],
    space: StateActionSpace,
    law: type[dist.Distribution] | None,
    *,
    by_outcome: bool,
) -> DataStatistics:
    """`data_statistics` and `transitions`, with the weights of an update. Traceable; scalars are scattered in place.

    Args:
        law: type of the reward law; None: rewards are known, or `data_statistics` holds rows.
        by_outcome: whether the law of a reward depends on the outcome.
    """
    reward_cell = (*transitions.cell(space), transitions.outcome(space))
    # Transitions first: a masked next state has row weight zero.
    if isinstance(data_statistics, Rows):
        number = _add(data_statistics.transitions, reward_cell, transitions.row_weight(weight))
        data_statistics = replace(data_statistics, transitions=number)
    else:
        number = _add(data_statistics.counts.transitions, reward_cell, transitions.row_weight(weight))
        counts = Counts(number, *data_statistics.counts.reward_moments)
        data_statistics = Statistics(counts, data_statistics.log_base)
    if transitions.reward is None:
        return data_statistics
    weight, reward = transitions.observed_rewards(jnp.asarray(weight), by_outcome=by_outcome)
    return add_rewards(data_statistics, reward_cell, reward, weight, law)


def add_rewards(
    data_statistics: DataStatistics,
    where: Index,
    reward: Float[AnyArray, "*N"],
    weight: Float[AnyArray, "*N"],
    law: type[dist.Distribution] | None,
) -> DataStatistics:
    """`data_statistics` with single rewards at (step,) state, action and outcome `where`; the transitions stay.

    Args:
        law: type of the reward law; None: rewards are known, or `data_statistics` holds rows.
    """
    if isinstance(data_statistics, Rows):
        return _add_rows(data_statistics, where, jnp.atleast_1d(reward), jnp.atleast_1d(weight))
    if law is None:
        return data_statistics
    counts = data_statistics.counts
    shape = jnp.shape(counts.reward_count)
    index = where if len(shape) == len(where) else where[:-1]
    # Reward moments of the cells as one table [cells 3]: one gather and one scatter for each update.
    # Moments are merged, not added: `absorb` does it at repeated places too.
    flat = jnp.ravel_multi_index(tuple(jnp.asarray(i) for i in index), shape, mode="clip")
    table = absorb(
        statistics(*counts.reward_moments).reshape(-1, 3), flat, statistics(weight, reward, jnp.zeros_like(reward))
    )
    moments = (part.reshape(shape) for part in split(table))
    base = jnp.where(weight != 0, weight * log_base_measure(law, reward), 0.0)
    # The base measure of each reward: it is no part of the moments, but of the density.
    return Statistics(Counts(counts.transitions, *moments), _add(data_statistics.log_base, index, base))


def _add_rows(
    data_statistics: Rows, where: Index, reward: Float[AnyArray, "*N"], weight: Float[AnyArray, "*N"]
) -> Rows:
    # Rewards of non-zero weight go to the next free entries; masked ones are sent out of range and dropped.
    taken = weight != 0
    place = jnp.where(taken, data_statistics.used + jnp.cumsum(taken) - 1, data_statistics.capacity)
    index = jnp.stack([jnp.broadcast_to(i, weight.shape) for i in where], axis=-1).astype(data_statistics.where.dtype)
    return Rows(
        data_statistics.transitions,
        jnp.asarray(data_statistics.where).at[place].set(index, mode="drop"),
        jnp.asarray(data_statistics.reward).at[place].set(reward.astype(data_statistics.reward.dtype), mode="drop"),
        jnp.asarray(data_statistics.weight).at[place].set(weight.astype(data_statistics.weight.dtype), mode="drop"),
        data_statistics.used + taken.sum(dtype=data_statistics.used.dtype),
    )


def with_capacity(data_statistics: DataStatistics, more: int) -> DataStatistics:
    """`data_statistics` with a buffer that can take `more` rewards yet. Host side."""
    if not isinstance(data_statistics, Rows):
        return data_statistics
    # A buffer grows on the host alone: inside a compiled loop its size is fixed.
    missing = max(int(data_statistics.used) + more - data_statistics.capacity, 0)
    if not missing:
        return data_statistics

    def pad(column: Shaped[AnyArray, "M *rest"]) -> Shaped[np.ndarray, "N *rest"]:
        return np.pad(np.asarray(column), [(0, missing)] + [(0, 0)] * (np.ndim(column) - 1))

    return Rows(
        data_statistics.transitions,
        pad(data_statistics.where),
        pad(data_statistics.reward),
        pad(data_statistics.weight),
        data_statistics.used,
    )


def outcome_counts(data_statistics: DataStatistics) -> Float[AnyArray, "*H S A O"]:
    """Number of observations of each outcome."""
    return data_statistics.transitions if isinstance(data_statistics, Rows) else data_statistics.counts.transitions


def num_rewards(data: DataStatistics) -> float:
    """Number of observed rewards. Host side."""
    number = np.asarray(data.weight) != 0 if isinstance(data, Rows) else np.asarray(data.counts.reward_count)
    return float(number.sum())


def overflow(rows: Rows, law: type[dist.Distribution] | None) -> str:
    """In words, that a buffer of rewards is too small. Host side."""
    return (
        f"the buffer of the belief is for {rows.capacity} rewards and holds {int(rows.used)} (a "
        f"{getattr(law, '__name__', 'known')} law keeps each one), expected a larger buffer: "
        "posterior.reserve(num_transitions) before it is used in a compiled loop"
    )


def _add(table: Float[AnyArray, "*cells"], index: Index, amount: Float[AnyArray, "*N"]) -> Float[Array, "*cells"]:
    table = jnp.asarray(table)
    return table.at[index].add(jnp.asarray(amount).astype(table.dtype))


def sums_of(law: type[dist.Distribution] | None, data: DataStatistics) -> RewardSums | None:
    """The law, and sums of the rewards of data; those that are kept one by one are groups of one. Host side."""
    if law is None:
        return None
    if isinstance(data, Rows):
        seen = np.asarray(data.weight) != 0
        reward, weight = np.asarray(data.reward)[seen], np.asarray(data.weight)[seen]
        return law, np.stack([weight, reward, np.zeros_like(reward)], -1)
    moments = (np.asarray(x).ravel() for x in data.counts.reward_moments)
    return law, np.stack(list(moments), -1)
