"""`UnconstrainedModel`: a NumPyro model's density on the unconstrained scale, at many points, called from NumPy."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree
from numpyro import handlers
from numpyro.distributions import biject_to, transforms
from numpyro.infer.util import constrain_fn, log_density

from bayes_mdp.inference.integrals.importance import draw_roughly
from bayes_mdp.inference.integrals.quadrature import LogDensity, NotIntegrableError, find_modes
from bayes_mdp.models.isolate import traced_alone
from bayes_mdp.numerics.host_program import HostProgram
from bayes_mdp.utils.typing import AnyArray

BLOCK, NUMBERS_AT_ONCE = 128, 2**22
"""Points of one call of the traced program, and numbers of data (times points)."""
STARTS = (0.0, -3.0, 3.0)
"""Of all numbers, on the unconstrained scale, where the modes of a prior are looked for."""
DISCRETE_DRAWS = 4
"""Joint values of discrete sites of which values of the others are drawn."""
NUM_DRAWS = 256

Values: TypeAlias = Mapping[str, AnyArray | np.generic]
"""{site: its value, or values [N ...]}."""


class Placed(NamedTuple):
    """What a model says at points u.

    Args:
        log_density: log p(x(u)) + log |dx / du|, the data included.
        without_jacobian: log p(x(u)).
        values: {site: [N ...]}, x(u).
    """

    log_density: Float[np.ndarray, " N"]
    without_jacobian: Float[np.ndarray, " N"]
    values: dict[str, np.ndarray]


class UnconstrainedModel:
    """The density of the latent sites of a model; those that are discrete are held.

    Args:
        model: a NumPyro program of one argument, the data.
        free: {continuous latent site: shape and dtype of its value}.
        held: {discrete latent site: likewise}.
        choices: {discrete latent site: the values of one element}, of those that have a finite list.
        outline: shapes and dtypes of data; None: the model runs without.
    """

    def __init__(
        self,
        model: Callable[[PyTree], object],
        free: Mapping[str, jax.ShapeDtypeStruct],
        held: Mapping[str, jax.ShapeDtypeStruct],
        choices: Mapping[str, np.ndarray],
        outline: PyTree = None,
    ) -> None:
        self._model, self.free, self.held, self._outline = model, dict(free), dict(held), outline
        self.choices = {name: choices[name] for name in held if name in choices}

    @property
    def names(self) -> tuple[str, ...]:
        """All sites."""
        return (*self.free, *self.held)

    @property
    def is_listed(self) -> bool:
        """Whether every discrete site has a finite list of values."""
        return len(self.choices) == len(self.held)

    @cached_property
    def _shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        fixed = {name: jnp.zeros(x.shape, x.dtype) for name, x in self.held.items()}
        if not self.free:
            # A model without continuous sites has no point to place.
            return {}
        return jax.eval_shape(lambda x, data: self._to_values(x, fixed, data), dict(self.free), self._outline)

    @cached_property
    def dimension(self) -> int:
        """Unconstrained continuous numbers."""
        return sum(int(np.prod(x.shape)) for x in self._shapes.values())

    @cached_property
    def places(self) -> dict[str, np.ndarray]:
        """{continuous site: where its numbers are in a point}, in the unconstrained shape of the site."""
        places, start = {}, 0
        # ravel_pytree sorts names: places follow the same order.
        for name in sorted(self._shapes):  # the order of a tree
            shape = self._shapes[name].shape
            places[name] = np.arange(start, start + int(np.prod(shape))).reshape(shape)
            start += places[name].size
        return places

    def split(self, point: Float[AnyArray, " D"]) -> dict[str, AnyArray]:
        """{continuous site: its numbers in a point}, in the unconstrained shape of the site."""
        return {name: point[place] for name, place in self.places.items()}

    @traced_alone
    def densities(self, free: Mapping[str, Array], data: PyTree) -> tuple[dict[str, tuple[Array, Array]], Any]:
        """{site: (log density, log |dx / du|)} at unconstrained values, and what the model returns there. Traceable.

        The model has no discrete sites.

        Args:
            free: {site: value on the unconstrained scale}.
            data: of the model.
        """
        model = self._condition({})
        # Constrained values first: supports may depend on other sites.
        values: Any = constrain_fn(model, (data,), {}, dict(free))
        logs_and_slopes = {}
        with handlers.trace() as trace:
            returned = handlers.substitute(model, data=values)(data)
        for name, site in trace.items():
            if site["type"] == "sample":
                logs = site["fn"].log_prob(site["value"])
                slope = jnp.zeros(())
                if name in free:
                    # log |dx / du| of the bijection, evaluated at u and x.
                    slope = biject_to(site["fn"].support).log_abs_det_jacobian(free[name], site["value"])
                logs_and_slopes[name] = logs, jnp.asarray(slope)
        return logs_and_slopes, returned

    def _unravel(self, point: Float[Array, " D"]) -> dict[str, Array]:
        zeros = {name: jnp.zeros(x.shape, float) for name, x in self._shapes.items()}
        return ravel_pytree(zeros)[1](point)

    def _condition(self, held: Values) -> Callable[[PyTree], object]:
        data: Any = {name: jnp.asarray(x) for name, x in held.items()}
        # A seed for what is neither held nor substituted: nothing.
        return handlers.seed(handlers.condition(self._model, data=data), 0)

    @traced_alone
    def _to_values(self, values: Values, held: Values, data: PyTree) -> dict[str, Array]:
        given: Any = {name: jnp.asarray(values[name]) for name in self.free}
        # Supports may depend on other sites.
        trace = handlers.trace(handlers.substitute(self._condition(held), data=given)).get_trace(data)
        return {name: unconstrain(biject_to(trace[name]["fn"].support), x) for name, x in given.items()}

    @traced_alone
    def place_one(self, point: Float[Array, " D"], held: Values, data: PyTree) -> tuple[Array, Array, dict[str, Array]]:
        """What the model says at one point: the fields of `Placed`. Traceable.

        Args:
            point: on the unconstrained scale.
            held: values of the discrete sites.
            data: of the model.
        """
        model, free = self._condition(held), self._unravel(point)
        # Discrete sites are held; continuous ones come from the point.
        values = {**(constrain_fn(model, (data,), {}, free) if free else {}), **held}
        values = {name: jnp.asarray(values[name]) for name in self.names}
        height, trace = log_density(model, (data,), {}, values)
        # The density is over u: the Jacobians of all sites are added.
        slopes = [
            biject_to(trace[name]["fn"].support).log_abs_det_jacobian(x, values[name]).sum() for name, x in free.items()
        ]
        return jnp.asarray(height + sum(slopes)), jnp.asarray(height), values

    @cached_property
    def _place_programs(self) -> dict[bool | None, HostProgram]:
        place_all = jax.vmap(self.place_one, in_axes=(0, None, None))
        # Three programs: compiled quickly, compiled well, or run by NumPy.
        return {quick: HostProgram(place_all, quick=quick) for quick in (True, False, None)}

    @cached_property
    def _free_program(self) -> HostProgram:
        def flat(values: Values, held: Values, data: PyTree) -> Array:
            return ravel_pytree(self._to_values(values, held, data))[0]

        return HostProgram(jax.vmap(flat, in_axes=(0, None, None)))

    def unconstrained(self, values: Values, held: Values, data: PyTree = None) -> Float[np.ndarray, "N D"]:
        """Points u of values [N ...] of the continuous sites.

        Args:
            values: of at least these.
            held: of the discrete ones.
            data: of the model.
        """
        if not self.free:
            # Without continuous sites a point has no numbers; the batch is read off any site.
            return np.zeros((len(np.asarray(next(iter(values.values())))), 0))
        free = {name: np.asarray(values[name], np.float64) for name in self.free}
        return self._free_program.in_blocks(_block(data), free, held, data)

    def place(
        self, points: Float[np.ndarray, "N D"], held: Values, data: PyTree = None, *, quick: bool = True
    ) -> Placed:
        """What the model says at points.

        Args:
            points: on the unconstrained scale.
            held: values of the discrete sites.
            data: of the model.
            quick: compiled in half the time, to run for about twice as long. Without data it is done by NumPy.
        """
        # Without data the program is small: NumPy runs it faster than XLA compiles it.
        return Placed(
            *self._place_programs[None if data is None else quick].in_blocks(_block(data), points, held, data)
        )

    def log_density(self, held: Values, data: PyTree = None) -> LogDensity:
        """Points -> their log densities; minus infinity where that is no number.

        Args:
            held: values of the discrete sites.
            data: of the model.
        """

        def density(points: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
            logs = self.place(points, held, data).log_density
            return np.where(np.isnan(logs), -np.inf, logs)

        return density

    def draws(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Values all over the density without data, in the order of chance: {site: [256 ...]}.

        Nothing is drawn by JAX: compiling a sampler for a few numbers takes longer than an integral over them. These
        are weighted draws about the modes, resampled.

        Args:
            rng: of the draws.

        Raises:
            NotIntegrableError: no place of positive density was found.
        """
        # Some joint values of the discrete sites, at random; the rest is drawn about its modes given these.
        chosen = [
            {name: rng.choice(self.choices[name], site.shape) for name, site in self.held.items()}
            for _ in range(DISCRETE_DRAWS if self.held else 1)
        ]
        parts = []
        for fixed in chosen:
            points = self.points(rng, fixed, NUM_DRAWS // len(chosen))
            if points is not None:
                parts.append(self.place(points, fixed).values)
        if not parts:
            raise NotIntegrableError("no place where the sites have a positive density was found")
        joined = {name: np.concatenate([part[name] for part in parts]) for name in self.names}
        order = rng.permutation(len(next(iter(joined.values()))))
        return {name: x[order] for name, x in joined.items()}

    def points(self, rng: np.random.Generator, held: Values, num: int = NUM_DRAWS) -> Float[np.ndarray, "num D"] | None:
        """What `draws` are made of: draws of the continuous numbers on the unconstrained scale; None: no density.

        Args:
            rng: of the draws.
            held: values of the discrete sites.
            num: how many.
        """
        # Starts at the middle and to both sides of the unconstrained scale, and some far out.
        # Only places of positive density can start a search.
        density = self.log_density(held)
        starts = np.asarray(STARTS)[:, None] * np.ones(self.dimension)
        starts = np.concatenate([starts, 10.0 * rng.standard_normal((len(STARTS), self.dimension))])
        if not self.dimension:
            return np.zeros((num, 0)) if np.isfinite(density(starts[:1])[0]) else None
        starts = starts[np.isfinite(density(starts))][: len(STARTS)]
        if not len(starts):
            return None
        modes = find_modes(density, starts, np.ones(self.dimension))
        try:
            # Rough weighted draws: they only show where the density is.
            return draw_roughly(rng, density, modes, num)
        except NotIntegrableError:  # tails that t distributions do not cover: the places will do
            return modes[0].point + rng.standard_normal((num, self.dimension)) @ modes[0].root.T


def _block(data: PyTree) -> int:
    """Points of one call: fewer where the data are large."""
    size = sum(np.size(x) for x in jax.tree.leaves(data))
    return int(np.clip(NUMBERS_AT_ONCE // max(size, 1), 1, BLOCK))


def unconstrain(transform: transforms.Transform[Any], value: Float[Array, "..."]) -> Float[Array, "..."]:
    """The unconstrained numbers behind a value. Traceable.

    Args:
        transform: from these to the support of the value.
        value: inside the support.
    """
    base = transform
    while isinstance(base, transforms.IndependentTransform):
        base = base.base_transform
    if not isinstance(base, transforms.StickBreakingTransform):
        return jnp.asarray(transform.inv(value))
    # Stick breaking: what is left after entry k is the sum of the later ones. NumPyro takes 1 minus the sum of the
    # earlier ones, which cancels where little is left.
    left = jnp.flip(jnp.cumsum(jnp.flip(value, -1), axis=-1), -1)[..., 1:]
    number = value.shape[-1] - 1
    return jnp.log(value[..., :-1]) - jnp.log(left) + jnp.log(number - jnp.arange(number))
