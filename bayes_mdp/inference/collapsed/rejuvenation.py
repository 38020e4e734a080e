"""Metropolis steps for draws of hyperparameters inside a compiled loop, on the collapsed density.

Resampling leaves copies; these steps make them differ again ("resample-move", Gilks and Berzuini 2001). The proposals
are differences of draws (ter Braak 2006, *A Markov chain Monte Carlo version of the genetic algorithm Differential
Evolution*), each half of the draws moved by differences of the other half, so that the target stays invariant; they
need no tuning to its scale. Discrete hyperparameters are moved by a new value for one element.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro import handlers
from numpyro.infer.util import constrain_fn, potential_energy, unconstrain_fn

from bayes_mdp.inference.collapsed.collapse import collapsed_model
from bayes_mdp.inference.collapsed.hierarchy import Hierarchy
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.models.tracing import traced_alone
from bayes_mdp.utils.typing import AnyArray

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
    model = collapsed_model(hierarchy)
    choices = discrete_values(hierarchy)
    fixed = {name: jnp.asarray(x) for name, x in hyperparameters.items() if name in choices}
    free = {name: jnp.asarray(x) for name, x in hyperparameters.items() if name not in choices}

    def conditioned(values: dict[str, Array]) -> Callable[..., object]:
        return handlers.condition(model, data={**values})

    # Continuous hyperparameters move on the unconstrained scale, the discrete ones held; the density has its Jacobian.
    if free:
        start = jax.vmap(lambda f, d: unconstrain_fn(handlers.seed(conditioned(d), 0), (data_statistics,), {}, f))(
            free, fixed
        )
    else:
        start = {}
    _, unravel = ravel_pytree(jax.tree.map(lambda x: x[0], start))

    def energy(point: Float[Array, " D"], values: dict[str, Array]) -> Float[Array, ""]:
        return jnp.asarray(
            potential_energy(handlers.seed(conditioned(values), 0), (data_statistics,), {}, unravel(point))
        )

    points = jax.vmap(lambda x: ravel_pytree(x)[0])(start)
    state = points, fixed, jax.vmap(energy)(points, fixed)
    for step in range(num_moves):
        each = jax.random.fold_in(key, step)
        if free:
            state = _by_differences(each, state, energy)
        if fixed:
            state = _by_flips(jax.random.fold_in(each, 2), state, energy, choices)
    points, fixed, _ = state
    if free:
        free = jax.vmap(
            lambda x, d: constrain_fn(handlers.seed(conditioned(d), 0), (data_statistics,), {}, unravel(x))
        )(points, fixed)
    return {name: ({**free, **fixed})[name].astype(x.dtype) for name, x in hyperparameters.items()}


def _by_differences(key: PRNGKeyArray, state: State, energy: Energy) -> State:
    """One step of every component: each half by differences of the other."""
    points, fixed, energies = state
    number, size = points.shape
    half = number // 2
    for turn, (mine, others) in enumerate(((slice(0, half), (half, number)), (slice(half, number), (0, half)))):
        keys = jax.random.split(jax.random.fold_in(key, turn), 5)
        # Each of my half takes the difference of two draws a != b of the other half: that half is fixed meanwhile, so
        # the proposal is symmetric.
        mover = points[mine]
        count = others[1] - others[0]
        a = jax.random.randint(keys[0], (len(mover),), 0, count)
        b = (a + jax.random.randint(keys[1], (len(mover),), 1, count)) % count
        jump = jax.random.uniform(keys[2], (len(mover), 1)) < JUMP_SHARE
        # 2.38 / sqrt(2 size) is the optimal scale for a normal target; a whole difference leads from mode to mode.
        scale = jnp.where(jump, 1.0, 2.38 / np.sqrt(2.0 * size))
        noise = JITTER * jax.random.normal(keys[3], mover.shape)
        proposed = mover + scale * (points[others[0] + a] - points[others[0] + b]) + noise
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


@traced_alone
def discrete_values(hierarchy: Hierarchy) -> dict[str, np.ndarray]:
    """{discrete hyperparameter: the values that its elements can have}."""
    found: dict[str, np.ndarray] = {}

    def look(key: PRNGKeyArray) -> None:
        with handlers.block(), handlers.trace() as trace, handlers.seed(rng_seed=key):
            hierarchy.program.prior(hierarchy.program.space)
        for name in hierarchy.hyperparameters:
            if trace[name]["fn"].support.is_discrete:
                with jax.ensure_compile_time_eval():
                    found[name] = np.asarray(trace[name]["fn"].enumerate_support(expand=False)).ravel()

    jax.eval_shape(look, jax.random.key(0))
    return found
