"""The data of a sampled posterior, and the program conditioned on it: statistics, or the rewards one by one."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int, Shaped
from numpyro.distributions import constraints

from bayes_mdp.inference.conjugate.reward_statistics import absorb, split, statistics
from bayes_mdp.mdp import Counts, StateActionSpace, Transitions
from bayes_mdp.mdp.typing import AnyArray, ArrayLike, Index
from bayes_mdp.models.joint import OBSERVED_NEXT_STATE, OBSERVED_REWARD, observe
from bayes_mdp.models.mdp_spec import MDPSpec, Prior, check_spec, reward_table, transition_table
from bayes_mdp.models.sufficient_statistics import CategoricalCounts, Statistics, log_base_measure


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


Seen = Statistics | Rows


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
        law, seen = self.law, self.weight != 0
        support = law.support
        assert support is not None
        value = jnp.asarray(value, int if law.is_discrete else float)  # some laws index by the value
        possible = support(value)
        # an impossible value is replaced by a possible one: a masked nan would still poison the gradient
        density = law.log_prob(jnp.where(seen & possible, value, support.feasible_like(value)))
        return jnp.where(seen, self.weight * jnp.where(possible, density, -jnp.inf), 0.0)


def conditioned(prior: Prior, space: StateActionSpace) -> Callable[..., MDPSpec]:
    """`bayes_mdp.models.joint` for `Seen`: a program `model(seen=None) -> MDPSpec`."""

    def model(seen: Seen | None = None) -> MDPSpec:
        spec = prior(space)
        check_spec(spec, space)
        if isinstance(seen, Rows):
            _observe_rows(spec, space, seen)
        elif seen is not None:
            observe(spec, space, seen)
        return spec

    return model


def _observe_rows(spec: MDPSpec, space: StateActionSpace, seen: Rows) -> None:
    # Transitions by their counts: a multinomial log-likelihood without its coefficient.
    with space.plates():
        numpyro.sample(OBSERVED_NEXT_STATE, CategoricalCounts(transition_table(spec, space)), obs=seen.transitions)
    if seen.capacity:
        *cell, outcome = jnp.moveaxis(seen.where, -1, 0)
        law = reward_table(spec, space).at(tuple(cell), outcome)
        with numpyro.plate("row", seen.capacity):
            numpyro.sample(OBSERVED_REWARD, RewardRows(law, seen.weight), obs=seen.reward)


def rows_of(transitions: Transitions, space: StateActionSpace) -> Rows:
    """All of `transitions`, in a buffer that holds just them. Traceable."""
    size = jnp.size(transitions.state)
    empty = Rows(
        jnp.zeros((*space.shape, space.n_outcomes)),
        jnp.zeros((size, len(space.shape) + 1), jnp.int32),
        jnp.zeros(size),
        jnp.zeros(size),
        jnp.zeros((), jnp.int32),
    )
    return _see_rows(empty, transitions, jnp.ones(jnp.shape(transitions.state)), space) if size else empty


def see(
    seen: Seen,
    transitions: Transitions,
    weight: Float[AnyArray, "*N"],
    space: StateActionSpace,
    law: type[dist.Distribution] | None,
) -> Seen:
    """`seen` and `transitions`, with the weights of an update. Traceable; scalars are scattered in place.

    Args:
        law: type of the reward law; None: rewards are known, or `seen` holds rows.
    """
    if isinstance(seen, Rows):
        return _see_rows(seen, transitions, weight, space)
    counts = seen.counts
    cell, outcome = transitions.cell(space), transitions.outcome(space.n_states)
    where = (*cell, outcome)
    number = _added(counts.transitions, where, weight)
    if transitions.reward is None or law is None:
        return Statistics(Counts(number, *counts.reward_moments), seen.log_base)
    weight, reward = transitions.observed_rewards(jnp.asarray(weight))
    shape = jnp.shape(counts.reward_count)
    index = where if len(shape) == len(where) else cell
    # Reward moments of the cells as one table [cells 3]: one gather and one scatter for each update.
    flat = jnp.ravel_multi_index(tuple(jnp.asarray(i) for i in index), shape, mode="clip")
    table = absorb(
        statistics(*counts.reward_moments).reshape(-1, 3), flat, statistics(weight, reward, jnp.zeros_like(reward))
    )
    moments = (part.reshape(shape) for part in split(table))
    base = jnp.where(weight != 0, weight * log_base_measure(law, reward), 0.0)
    return Statistics(Counts(number, *moments), _added(seen.log_base, index, base))


def _see_rows(seen: Rows, transitions: Transitions, weight: Float[AnyArray, "*N"], space: StateActionSpace) -> Rows:
    where = (*transitions.cell(space), transitions.outcome(space.n_states))
    number = _added(seen.transitions, where, weight)
    if transitions.reward is None:
        return Rows(number, seen.where, seen.reward, seen.weight, seen.used)
    weight, reward = (jnp.atleast_1d(x) for x in transitions.observed_rewards(jnp.asarray(weight)))
    # Rewards of non-zero weight go to the next free entries; masked ones are sent out of range and dropped.
    taken = weight != 0
    place = jnp.where(taken, seen.used + jnp.cumsum(taken) - 1, seen.capacity)
    index = jnp.stack([jnp.broadcast_to(i, weight.shape) for i in where], axis=-1).astype(seen.where.dtype)
    return Rows(
        number,
        jnp.asarray(seen.where).at[place].set(index, mode="drop"),
        jnp.asarray(seen.reward).at[place].set(reward.astype(seen.reward.dtype), mode="drop"),
        jnp.asarray(seen.weight).at[place].set(weight.astype(seen.weight.dtype), mode="drop"),
        seen.used + taken.sum(dtype=seen.used.dtype),
    )


def with_capacity(seen: Seen, more: int) -> Seen:
    """`seen` with a buffer that can take `more` rewards yet. Host side."""
    if not isinstance(seen, Rows):
        return seen
    missing = max(int(seen.used) + more - seen.capacity, 0)
    if not missing:
        return seen

    def pad(column: Shaped[AnyArray, "M *rest"]) -> Shaped[np.ndarray, "N *rest"]:
        return np.pad(np.asarray(column), [(0, missing)] + [(0, 0)] * (np.ndim(column) - 1))

    return Rows(seen.transitions, pad(seen.where), pad(seen.reward), pad(seen.weight), seen.used)


def outcome_counts(seen: Seen) -> Float[AnyArray, "*H S A O"]:
    """Number of observations of each outcome."""
    return seen.transitions if isinstance(seen, Rows) else seen.counts.transitions


def _added(table: Float[AnyArray, "*cells"], index: Index, amount: Float[AnyArray, "*N"]) -> Float[Array, "*cells"]:
    table = jnp.asarray(table)
    return table.at[index].add(jnp.asarray(amount).astype(table.dtype))
