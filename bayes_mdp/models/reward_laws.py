"""Reward laws as tables: any NumPyro distribution over (step,) state, action (, outcome), broadcast and looked up."""

from collections.abc import Callable, Mapping
from functools import partial
from operator import itemgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float, PyTree
from numpyro.distributions import constraints

from bayes_mdp.numerics.products import matmul
from bayes_mdp.utils.typing import AnyArray, Index


def unwrap(law: dist.Distribution) -> dist.Distribution:
    """`law` without `to_event` and `expand`, which only move or broadcast its batch dimensions."""
    while isinstance(law, (dist.Independent, dist.ExpandedDistribution)):
        law = law.base_dist
    return law


def named_parts(law: dist.Distribution) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters of a law and what is static of it, by name, sorted.

    NumPyro's own order of both is that of a set, another one in every process: whatever outlives a process, or is to be
    the same in all of them, goes by name.

    Args:
        law: not unwrapped.
    """
    of_parameters, of_static = _fields(type(law))
    parameters, static = law.tree_flatten()
    return _sorted(of_parameters, parameters), _sorted(of_static, static)


def without_laws(tree: PyTree) -> PyTree:
    """A tree with the parameters of its laws, by name, in place of these: its leaves have one order in all processes.

    Args:
        tree: any.
    """

    def one(x: object) -> object:
        return without_laws(named_parts(x)[0]) if isinstance(x, dist.Distribution) else x

    return jax.tree.map(one, tree, is_leaf=_is_law)


def law_of_parts(kind: type[dist.Distribution], parameters: Mapping[str, Any], static: Mapping[str, Any]) -> Any:
    """The law that `named_parts` took apart.

    Args:
        kind: its type.
        parameters, static: by name.

    Raises:
        KeyError: one is missing.
    """
    of_parameters, of_static = _fields(kind)
    return kind.tree_unflatten(tuple(static[x] for x in of_static), tuple(parameters[x] for x in of_parameters))


def _sorted(names: tuple[str, ...], values: tuple[Any, ...]) -> dict[str, Any]:
    return dict(sorted(zip(names, values, strict=True), key=itemgetter(0)))


def _fields(kind: type[dist.Distribution]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(kind.gather_pytree_data_fields()), tuple(kind.gather_pytree_aux_fields())


def tabulate(law: dist.Distribution, shape: tuple[int, ...]) -> dist.Distribution:
    """The law of a scalar with every parameter broadcast to `shape`; `to_event` and `expand` are undone.

    Args:
        law: a distribution whose batch and event dimensions together broadcast to `shape`.

    Raises:
        ValueError: a parameter does not broadcast to `shape`.
    """

    def broadcast(parameter: AnyArray | float, extra: tuple[int, ...], event_dim: int) -> Array:
        # Axes of an event of the parameter itself, such as the probabilities of a categorical law, stay last.
        event = jnp.shape(parameter)[jnp.ndim(parameter) - event_dim :]
        return jnp.broadcast_to(parameter, (*shape, *extra, *event))

    return _map_parameters(law, broadcast, shape)


def law_at(table: dist.Distribution, index: Index) -> dist.Distribution:
    """The law in one cell, or in a batch of cells: `index` is a tuple of integers or integer arrays of one shape.

    Args:
        table: a law from `tabulate`, one index for each of its axes.
    """
    # `asarray`: a table of numpy arrays takes traced indices too.
    return _map_parameters(
        table,
        lambda parameter, extra, event_dim: jnp.asarray(parameter)[index],
        jnp.broadcast_shapes(*map(jnp.shape, index)),
    )


def reshape_law(table: dist.Distribution, shape: tuple[int, ...]) -> dist.Distribution:
    """A law from `tabulate` in as many cells of another shape.

    Args:
        table: the law.
        shape: of its cells.
    """
    size = len(table.batch_shape)
    return _map_parameters(
        table, lambda parameter, extra, event_dim: jnp.reshape(parameter, (*shape, *jnp.shape(parameter)[size:])), shape
    )


def law_of_first(laws: dist.Distribution) -> dist.Distribution:
    """The first of the laws that `jax.vmap` returned."""
    return _map_parameters(laws, lambda parameter, extra, event_dim: jnp.asarray(parameter)[0], laws.batch_shape)


def law_mean(law: dist.Distribution) -> Float[Array, "..."]:
    """The mean of a law of numbers, with its batch shape; nan where none exists, or NumPyro has none."""
    probs = _category_probs(law)
    if probs is not None:  # NumPyro's own is nan: categories need not be numbers, rewards are
        return matmul(probs, jnp.arange(probs.shape[-1], dtype=probs.dtype))
    try:
        mean = jnp.asarray(law.mean)
    except NotImplementedError:
        return jnp.full(law.batch_shape, jnp.nan)
    # A mean that NumPyro calls infinite is none for a value.
    return jnp.where(jnp.isfinite(mean), mean, jnp.nan)


def law_variance(law: dist.Distribution) -> Float[Array, "..."]:
    """The variance of a law of numbers, with its batch shape."""
    probs = _category_probs(law)
    if probs is None:
        return jnp.asarray(law.variance)
    # E[(k - E k)^2] over the categories.
    deviation = jnp.arange(probs.shape[-1], dtype=probs.dtype) - law_mean(law)[..., None]
    return (probs * deviation**2).sum(-1)


def _category_probs(law: dist.Distribution) -> Float[Array, "... K"] | None:
    """Probabilities of the values 0 .. K - 1 of a categorical law; None: it is none."""
    law = unwrap(law)
    return jnp.asarray(law.probs) if isinstance(law, (dist.CategoricalProbs, dist.CategoricalLogits)) else None


WITH_MEAN = (
    dist.Normal,
    dist.BernoulliProbs,
    dist.BernoulliLogits,
    dist.Poisson,
    dist.Beta,
    dist.Gamma,
    dist.Exponential,
    dist.Laplace,
    dist.LogNormal,
    dist.Uniform,
    dist.BinomialProbs,
    dist.BinomialLogits,
    dist.GeometricProbs,
    dist.GeometricLogits,
    dist.CategoricalProbs,
    dist.CategoricalLogits,
)
"""Families that always have a mean; that of others must be looked at to know that it exists."""
WITHOUT_MEAN = (dist.Cauchy, dist.HalfCauchy, dist.Levy)
"""Families that have none, whatever their parameters."""


def _map_parameters(
    law: dist.Distribution,
    function: Callable[..., AnyArray],
    batch_shape: tuple[int, ...],
    extra: tuple[int, ...] = (),
) -> dist.Distribution:
    """`law` with batch shape `(*batch_shape, *extra)` and `function(parameter, extra, event_dim)` for each parameter.

    `extra` is the mixture axis of nested components. Flattening sees nested laws, transforms and masks alike.
    """
    law = unwrap(law)
    named, static = named_parts(law)

    def one(name: str, value: dist.Distribution | AnyArray | float) -> dist.Distribution | AnyArray:
        if isinstance(value, dist.Distribution):
            # The components of a mixture have one axis more than their cells.
            inner = value.batch_shape[-1:] if name == "_component_distribution" else ()
            return _map_parameters(value, function, batch_shape, extra + inner)
        return function(value, extra, _event_dim(type(law), name))

    # By name: a program in another order is not found among those that were kept.
    mapped = {name: jax.tree.map(partial(one, name), value, is_leaf=_is_law) for name, value in named.items()}
    result = law_of_parts(type(law), mapped, static)
    # The shape that NumPyro would have computed in `__init__`, which unflattening does not call.
    result._batch_shape = (*batch_shape, *extra)
    return result


def _event_dim(kind: type[dist.Distribution], name: str) -> int:
    """Event dimensions of a parameter; those that depend on the law are none, since the law is that of a number.

    A law may keep a parameter of the class that it is derived from (the probabilities of an ordered-logistic one).
    """
    # The first class in the order of resolution that names the parameter.
    stated = (getattr(base, "arg_constraints", {}).get(name) for base in kind.__mro__)
    constraint = next((x for x in stated if x is not None), None)
    return 0 if constraint is None or constraints.is_dependent(constraint) else constraint.event_dim


def _is_law(value: object) -> bool:
    return isinstance(value, dist.Distribution)
