"""The marginal model: a prior program with its conjugate sites integrated out, as NumPyro's kernels get it.

log p(h, data) = log p(h) + log evidence of the conjugate sites given h, for hyperparameters h: Dirichlet-multinomial
rows, normal-gamma and other conjugate marginals. The density of h stays NumPyro's own. In this order: large
priors and large data in few numbers (`Classes`, `Grouped`); the model; Metropolis steps of draws inside a compiled loop
(`moved`).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpyro import handlers
from numpyro.infer.util import constrain_fn, potential_energy, unconstrain_fn

from bayes_mdp.inference.collapsed.hierarchy import EVIDENCE, Hierarchy, hyperparameters_alone, with_parameters
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.inference.families.family import log_rising
from bayes_mdp.inference.integrals.unconstrained_model import Values
from bayes_mdp.models.isolate import traced_alone
from bayes_mdp.utils.typing import AnyArray

# Prior parameters: a hierarchical prior has few distinct numbers (a sticky prior two: beside and on the diagonal),
# however many entries its rows have. They are kept once for each class of entries that are always equal, which is read
# from the data flow of the program: the same operations on the same hyperparameters and constants.
#
# Counts: the log evidence of Dirichlet rows is a sum over the observed entries. A million transitions of a prior with a
# few distinct concentrations hold a few hundred different (concentration, count) pairs; each is weighed once.

SMALL = 4096
"""Entries up to which the chains take every count by itself, and the parameters of all draws are held at once."""


class Classes(NamedTuple):
    """For every parameter array: the class of each entry [shape], and one entry (flat) of each class [G]."""

    number: tuple[Int[AnyArray, "..."], ...]
    first: tuple[Int[AnyArray, " G"], ...]


def prior_arrays(posterior: ConjugatePosterior) -> list[AnyArray]:
    """The prior parameter arrays of a posterior: concentrations, then those of the rewards."""
    rewards = posterior.reward_cells
    belief = rewards.prior if isinstance(rewards, RewardCells) else None
    return jax.tree.leaves((posterior.transition_probs.prior, belief))


def with_prior_arrays(posterior: ConjugatePosterior, leaves: Sequence[AnyArray]) -> ConjugatePosterior:
    """`posterior` with other prior parameters, as `prior_arrays` lists them."""
    rewards = posterior.reward_cells
    belief = None
    if isinstance(rewards, RewardCells):
        belief = jax.tree.unflatten(jax.tree.structure(rewards.prior), leaves[1:])
    return with_parameters(posterior, leaves[0], belief)


@lru_cache(maxsize=64)
def find_classes(hierarchy: Hierarchy) -> Classes:
    """The classes of entries that are equal whatever the hyperparameters are, by the data flow. Host side."""
    # 0, 1, ... for the different symbols.
    index = [np.unique(x, return_inverse=True)[1].astype(np.int32).reshape(x.shape) for x in hierarchy.symbols]
    first = tuple(np.unique(i, return_index=True)[1].astype(np.int32) for i in index)
    return Classes(tuple(index), first)


def compress(hierarchy: Hierarchy, classes: Classes, values: Values) -> tuple[Float[Array, "N _"], ...]:
    """The parameters of each class at `values` {hyperparameter: [N ...]}. Traceable."""

    def one(value: Values) -> tuple[Array, ...]:
        leaves = jax.tree.leaves(hierarchy.parameters(value))
        return tuple(jnp.asarray(leaf).ravel()[first] for leaf, first in zip(leaves, classes.first, strict=True))

    # `lax.map` holds the full arrays of one draw at a time.
    large = sum(i.size for i in classes.number) > SMALL
    return lax.map(one, dict(values)) if large else jax.vmap(one)(dict(values))


class Grouped(eqx.Module):
    """Statistics of the data, with the counts of the rows in groups.

    Args:
        data_statistics: the statistics of all data.
        entry: [U], a concentration (flat) of each group.
        count: [U], the count of each group; 0: padding.
        times: [U], how many entries it has.
    """

    data_statistics: ConjugatePosterior
    entry: Int[AnyArray, " U"]
    count: Float[AnyArray, " U"]
    times: Float[AnyArray, " U"]

    def log_evidence(self, posterior: ConjugatePosterior) -> Float[Array, ""]:
        """The log evidence of `posterior`, which has the same data and its own prior parameters. Traceable."""
        rows, rewards = posterior.transition_probs, posterior.reward_cells
        prior = jnp.asarray(rows.prior)
        # sum over groups of (entries in the group) * log rising(concentration, count); empty entries add zero.
        rising = jnp.sum(self.times * log_rising(prior.ravel()[self.entry], self.count))
        total = rising - log_rising(prior.sum(-1), jnp.asarray(rows.counts).sum(-1)).sum()
        total += jnp.where(jnp.isnan(posterior.constant), 0.0, posterior.constant)
        return total + rewards.log_evidence() if isinstance(rewards, RewardCells) else total


def grouped(data_statistics: ConjugatePosterior, classes: Classes) -> ConjugatePosterior | Grouped:
    """The same with its counts in groups where it is large; the arrays are padded to a power of two. Host side."""
    counts = np.asarray(data_statistics.transition_probs.counts).ravel()
    if counts.size <= SMALL:
        return data_statistics
    place = np.flatnonzero(counts)
    # Group by (class of the concentration, count): both equal means equal terms of the evidence.
    pairs = np.stack([np.asarray(classes.number[0]).ravel()[place].astype(float), counts[place]])
    _, first, times = np.unique(pairs, axis=1, return_index=True, return_counts=True)
    padding = (1 << max(len(first) - 1, 63).bit_length()) - len(first)
    entry = np.append(place[first], np.full(padding, place[0] if len(place) else 0)).astype(np.int32)
    count, times = (np.append(x, np.zeros(padding)) for x in (counts[place[first]], times.astype(float)))
    return Grouped(data_statistics, entry, count, times)


@lru_cache(maxsize=64)
def hyperparameter_model(hierarchy: Hierarchy) -> Callable[[ConjugatePosterior | Grouped], None]:
    """The NumPyro model `model(data_statistics)` of the hyperparameters alone, given the statistics of the data.

    One object for equal hierarchies: what is compiled for it is compiled once.
    """

    def model(data_statistics: ConjugatePosterior | Grouped) -> None:
        numpyro.factor(
            EVIDENCE,
            log_evidence(
                hierarchy, hyperparameters_alone(hierarchy.program, hierarchy.hyperparameters), data_statistics
            ),
        )

    return model


def log_evidence(
    hierarchy: Hierarchy, values: Values, data_statistics: ConjugatePosterior | Grouped
) -> Float[Array, ""]:
    """log p(data of `data_statistics` | hyperparameters), the conjugate sites integrated out (relative, see there)."""
    parameters = hierarchy.parameters(values)
    if isinstance(data_statistics, Grouped):
        return data_statistics.log_evidence(with_parameters(data_statistics.data_statistics, *parameters))
    return jnp.asarray(with_parameters(data_statistics, *parameters).relative_log_evidence)


# Resampling leaves copies; Metropolis steps make them differ again ("resample-move", Gilks and Berzuini 2001). The
# proposals are differences of draws (ter Braak 2006, *A Markov chain Monte Carlo version of the genetic algorithm
# Differential Evolution*), each half of the draws moved by differences of the other half, so that the target stays
# invariant; they need no tuning to its scale. Discrete hyperparameters are moved by a new value for one element.

JITTER = 1e-4
JUMP_SHARE = 0.1  # of the proposals take the whole difference: from mode to mode
MAX_FLIPS = 8

State: TypeAlias = tuple[Float[Array, "K D"], dict[str, Array], Float[Array, " K"]]
"""Of K draws: unconstrained continuous hyperparameters, discrete ones {site: [K ...]}, potential energies."""
Energy: TypeAlias = Callable[[Float[Array, " D"], dict[str, Array]], Float[Array, ""]]
"""The potential energy, minus the log density, of one draw."""


@traced_alone
def moved(
    key: PRNGKeyArray,
    hierarchy: Hierarchy,
    data_statistics: ConjugatePosterior,
    hyperparameters: Mapping[str, AnyArray],
    num_moves: int,
) -> dict[str, Array]:
    """Draws of the hyperparameters after Metropolis steps that leave their posterior given the data invariant.

    Traceable.

    Args:
        key: of the proposals.
        hierarchy: the program.
        data_statistics: the statistics of all data.
        hyperparameters: {site: [K ...]}, the draws; at least 8 of them, for the differences.
        num_moves: steps of every draw.
    """
    model, supports = hyperparameter_model(hierarchy), hierarchy.program.supports
    latents = [site for site in hierarchy.program.latents if site.name in hierarchy.hyperparameters]
    choices = {site.name: supports[site.name] for site in latents if site.discrete}
    fixed = {name: jnp.asarray(x) for name, x in hyperparameters.items() if name in choices}
    free = {name: jnp.asarray(x) for name, x in hyperparameters.items() if name not in choices}

    def condition(values: dict[str, Array]) -> Callable[..., object]:
        return handlers.condition(model, data={**values})

    # Continuous hyperparameters move on the unconstrained scale, the discrete ones held; the density has its Jacobian.
    if free:
        start = jax.vmap(lambda f, d: unconstrain_fn(handlers.seed(condition(d), 0), (data_statistics,), {}, f))(
            free, fixed
        )
    else:
        start = {}
    _, unravel = ravel_pytree(jax.tree.map(lambda x: x[0], start))

    def energy(point: Float[Array, " D"], values: dict[str, Array]) -> Float[Array, ""]:
        return jnp.asarray(
            potential_energy(handlers.seed(condition(values), 0), (data_statistics,), {}, unravel(point))
        )

    points = jax.vmap(lambda x: ravel_pytree(x)[0])(start)
    state = points, fixed, jax.vmap(energy)(points, fixed)
    for step in range(num_moves):
        step_key = jax.random.fold_in(key, step)
        if free:
            state = _by_differences(step_key, state, energy)
        if fixed:
            state = _by_flips(jax.random.fold_in(step_key, 2), state, energy, choices)
    points, fixed, _ = state
    if free:
        free = jax.vmap(lambda x, d: constrain_fn(handlers.seed(condition(d), 0), (data_statistics,), {}, unravel(x)))(
            points, fixed
        )
    return {name: ({**free, **fixed})[name].astype(x.dtype) for name, x in hyperparameters.items()}


def _by_differences(key: PRNGKeyArray, state: State, energy: Energy) -> State:
    """One step of every component: each half by differences of the other."""
    points, fixed, energies = state
    number, size = points.shape
    half = number // 2
    for turn, (mine, other_half) in enumerate(((slice(0, half), (half, number)), (slice(half, number), (0, half)))):
        keys = jax.random.split(jax.random.fold_in(key, turn), 5)
        # Each of my half takes the difference of two draws a != b of the other half: that half is fixed meanwhile, so
        # the proposal is symmetric.
        mover = points[mine]
        count = other_half[1] - other_half[0]
        a = jax.random.randint(keys[0], (len(mover),), 0, count)
        b = (a + jax.random.randint(keys[1], (len(mover),), 1, count)) % count
        jump = jax.random.uniform(keys[2], (len(mover), 1)) < JUMP_SHARE
        # 2.38 / sqrt(2 size) is the optimal scale for a normal target; a whole difference leads from mode to mode.
        scale = jnp.where(jump, 1.0, 2.38 / np.sqrt(2.0 * size))
        noise = JITTER * jax.random.normal(keys[3], mover.shape)
        proposed = mover + scale * (points[other_half[0] + a] - points[other_half[0] + b]) + noise
        values = jax.tree.map(lambda x, mine=mine: x[mine], fixed)
        after = jax.vmap(energy)(proposed, values)
        # Metropolis: accept with probability min(1, exp(energy before - energy after)).
        accept = jnp.log(jax.random.uniform(keys[4], (len(mover),))) < energies[mine] - after
        points = points.at[mine].set(jnp.where(accept[:, None], proposed, mover))
        energies = energies.at[mine].set(jnp.where(accept, after, energies[mine]))
    return points, fixed, energies


def _by_flips(key: PRNGKeyArray, state: State, energy: Energy, choices: dict[str, np.ndarray]) -> State:
    """New values for single elements of the discrete hyperparameters, one after the other."""
    points, fixed, energies = state
    number = len(energies)
    elements = [(name, i) for name, x in fixed.items() for i in range(int(np.prod(x.shape[1:], dtype=int)))]
    for flip in range(min(len(elements), MAX_FLIPS)):
        keys = jax.random.split(jax.random.fold_in(key, flip), 3)
        place = jax.random.randint(keys[0], (number,), 0, len(elements))
        # One element, chosen uniformly among all, gets a value drawn uniformly: a symmetric proposal.
        proposed, start = {}, 0
        for name, x in fixed.items():
            size = int(np.prod(x.shape[1:], dtype=int))
            new = jax.random.choice(
                jax.random.fold_in(keys[1], start), jnp.asarray(choices[name], x.dtype), (number, 1)
            )
            hit = jnp.arange(size) == (place - start)[:, None]
            proposed[name] = jnp.where(hit, new, x.reshape(number, size)).reshape(x.shape)
            start += size
        after = jax.vmap(energy)(points, proposed)
        accept = jnp.log(jax.random.uniform(keys[2], (number,))) < energies - after
        fixed = {
            name: jnp.where(accept.reshape(-1, *[1] * (x.ndim - 1)), proposed[name], x) for name, x in fixed.items()
        }
        energies = jnp.where(accept, after, energies)
    return points, fixed, energies
