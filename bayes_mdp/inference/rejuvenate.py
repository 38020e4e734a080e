"""Weighted draws of latent parents kept alive inside a compiled loop: resampling, then Metropolis steps.

Resampling is systematic (Carpenter, Clifford and Fearnhead 1999). The proposals are differences of draws (ter Braak
2006, *A Markov chain Monte Carlo version of the genetic algorithm Differential Evolution*), each half of the draws
moved by differences of the other half, so that the target stays invariant; they need no tuning to its scale. Discrete
parents are moved by a new value for one element. The target is the collapsed density: weights stay exact.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
from numpyro import handlers
from numpyro.infer.util import constrain_fn, potential_energy, unconstrain_fn

from bayes_mdp.inference.collapse import collapsed_model
from bayes_mdp.inference.compact import compress
from bayes_mdp.models.tracing import traced_alone

if TYPE_CHECKING:
    from bayes_mdp.inference.collapsed import CollapsedPosterior

JITTER = 1e-4
JUMP_SHARE = 0.1  # of the proposals take the whole difference: from mode to mode
MAX_FLIPS = 8


def systematic(key: PRNGKeyArray, weights: Float[Array, " K"], num: int) -> Int[Array, " num"]:
    """Indices of `num` draws by weight, each within one of its expected number; never one of weight zero."""
    total = jnp.cumsum(weights)
    # In (0, 1]: the first draw that reaches a point has added to the sum.
    points = (jnp.arange(1, num + 1) - jax.random.uniform(key)) / num
    return jnp.searchsorted(total, points * total[-1])


def rejuvenate(posterior: "CollapsedPosterior", learnt: Bool[Array, ""]) -> "CollapsedPosterior":
    """Resample the components where they are worn out, and move each `posterior.moves` times. Traceable.

    Args:
        posterior: after an update.
        learnt: whether that taught anything; where it did not, nothing moves.
    """
    assert posterior.hierarchy is not None
    # The data are in the weights: seeds that have seen different things move differently.
    stream = jax.random.wrap_key_data(jnp.asarray(posterior.stream))
    key = jax.random.fold_in(stream, jnp.sum(posterior.visit_counts()).astype(jnp.int32))
    salt = jax.lax.bitcast_convert_type(jnp.asarray(posterior.log_weights, jnp.float32).sum(), jnp.int32)
    key_resample, key_move = jax.random.split(jax.random.fold_in(key, salt))
    worn, number = learnt & posterior.needs_refit(), posterior.num_components
    chosen = jnp.where(worn, systematic(key_resample, posterior.weights, number), jnp.arange(number))
    log_weights = jnp.where(worn, 0.0, posterior.log_weights)
    hyper = _moved(key_move, posterior, {name: jnp.asarray(x)[chosen] for name, x in posterior.hyper.items()})
    values = compress(posterior.hierarchy, posterior._classes(), hyper)
    hyper, values = jax.tree.map(
        lambda new, old: jnp.where(learnt, new.astype(old.dtype), old),
        (hyper, values),
        (posterior.hyper, posterior.values),
    )
    return replace(posterior, hyper=hyper, values=values, log_weights=log_weights)


@traced_alone
def _moved(key: PRNGKeyArray, posterior: Any, hyper: dict[str, Array]) -> dict[str, Array]:
    """Every component after `moves` Metropolis steps."""
    model, seen = collapsed_model(posterior.hierarchy), posterior.seen
    choices = discrete_values(posterior)
    fixed = {name: x for name, x in hyper.items() if name in choices}
    free = {name: x for name, x in hyper.items() if name not in choices}

    def conditioned(values: dict[str, Any]) -> Any:
        return handlers.condition(model, data=values)

    if free:
        start = jax.vmap(lambda f, d: unconstrain_fn(handlers.seed(conditioned(d), 0), (seen,), {}, f))(free, fixed)
    else:
        start = {}
    _, unravel = ravel_pytree(jax.tree.map(lambda x: x[0], start))

    def energy(point: Array, values: dict[str, Array]) -> Array:
        return jnp.asarray(potential_energy(handlers.seed(conditioned(values), 0), (seen,), {}, unravel(point)))

    points = jax.vmap(lambda x: ravel_pytree(x)[0])(start)
    state = points, fixed, jax.vmap(energy)(points, fixed)
    for step in range(posterior.moves):
        each = jax.random.fold_in(key, step)
        if free:
            state = _by_differences(each, state, energy)
        if fixed:
            state = _by_flips(jax.random.fold_in(each, 2), state, energy, choices)
    points, fixed, _ = state
    if free:
        free = jax.vmap(lambda x, d: constrain_fn(handlers.seed(conditioned(d), 0), (seen,), {}, unravel(x)))(
            points, fixed
        )
    return {name: ({**free, **fixed})[name].astype(x.dtype) for name, x in hyper.items()}


def _by_differences(key: PRNGKeyArray, state: Any, energy: Any) -> Any:
    """One step of every component: each half by differences of the other."""
    points, fixed, energies = state
    number, size = points.shape
    half = number // 2
    for turn, (mine, others) in enumerate(((slice(0, half), (half, number)), (slice(half, number), (0, half)))):
        keys = jax.random.split(jax.random.fold_in(key, turn), 5)
        mover = points[mine]
        count = others[1] - others[0]
        a = jax.random.randint(keys[0], (len(mover),), 0, count)
        b = (a + jax.random.randint(keys[1], (len(mover),), 1, count)) % count
        jump = jax.random.uniform(keys[2], (len(mover), 1)) < JUMP_SHARE
        scale = jnp.where(jump, 1.0, 2.38 / np.sqrt(2.0 * size))
        noise = JITTER * jax.random.normal(keys[3], mover.shape)
        proposed = mover + scale * (points[others[0] + a] - points[others[0] + b]) + noise
        values = jax.tree.map(lambda x, mine=mine: x[mine], fixed)
        after = jax.vmap(energy)(proposed, values)
        accept = jnp.log(jax.random.uniform(keys[4], (len(mover),))) < energies[mine] - after
        points = points.at[mine].set(jnp.where(accept[:, None], proposed, mover))
        energies = energies.at[mine].set(jnp.where(accept, after, energies[mine]))
    return points, fixed, energies


def _by_flips(key: PRNGKeyArray, state: Any, energy: Any, choices: dict[str, np.ndarray]) -> Any:
    """New values for single elements of the discrete parents, one after the other."""
    points, fixed, energies = state
    number = len(energies)
    elements = [(name, i) for name, x in fixed.items() for i in range(int(np.prod(x.shape[1:], dtype=int)))]
    for flip in range(min(len(elements), MAX_FLIPS)):
        keys = jax.random.split(jax.random.fold_in(key, flip), 3)
        place = jax.random.randint(keys[0], (number,), 0, len(elements))
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
def discrete_values(posterior: Any) -> dict[str, np.ndarray]:
    """{discrete parent: the values that its elements can have}."""
    hierarchy = posterior.hierarchy
    found: dict[str, np.ndarray] = {}

    def look(key: PRNGKeyArray) -> None:
        with handlers.block(), handlers.trace() as trace, handlers.seed(rng_seed=key):
            hierarchy.program.prior(hierarchy.program.space)
        for name in hierarchy.parents:
            if trace[name]["fn"].support.is_discrete:
                with jax.ensure_compile_time_eval():
                    found[name] = np.asarray(trace[name]["fn"].enumerate_support(expand=False)).ravel()

    jax.eval_shape(look, jax.random.key(0))
    return found
