"""`NormalGamma`: the conjugate prior of a normal law's mean and precision, as a NumPyro distribution."""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool, Float, PRNGKeyArray
from numpyro.distributions import constraints
from numpyro.distributions.transforms import ParameterFreeTransform, biject_to
from numpyro.distributions.util import promote_shapes, validate_sample

from bayes_mdp.utils.typing import AnyArray, ArrayLike, BoolScalar, RealLike
from bayes_mdp.utils.validation import as_real, check_finite, check_positive, is_concrete


class _MeanPrecision(constraints.ParameterFreeConstraint):
    """A real number (the mean) and a positive one (the precision)."""

    event_dim = 1

    def __call__(self, x: Float[AnyArray, "*batch 2"]) -> BoolScalar | Bool[AnyArray, "*batch"]:
        # The first is true of every number but nan.
        return (x[..., 0] == x[..., 0]) & (x[..., 1] > 0)

    def feasible_like(self, prototype: Float[AnyArray, "*batch 2"]) -> Float[Array, "*batch 2"]:
        return jnp.broadcast_to(jnp.array([0.0, 1.0]), jnp.shape(prototype))


mean_precision = _MeanPrecision()


class MeanPrecisionTransform(ParameterFreeTransform):
    """(u, v) -> (u, exp(v)): from the plane to a mean and a precision."""

    @property
    def domain(self) -> constraints.Constraint:
        """The plane."""
        return constraints.real_vector

    @property
    def codomain(self) -> constraints.Constraint:
        """A mean and a precision."""
        return mean_precision

    def __call__(self, x: Float[AnyArray, "*batch 2"]) -> Float[Array, "*batch 2"]:
        return jnp.stack([x[..., 0], jnp.exp(x[..., 1])], axis=-1)

    def _inverse(self, y: Float[AnyArray, "*batch 2"]) -> Float[Array, "*batch 2"]:
        return jnp.stack([y[..., 0], jnp.log(y[..., 1])], axis=-1)

    def log_abs_det_jacobian(
        self, x: Float[AnyArray, "*batch 2"], y: Float[AnyArray, "*batch 2"], intermediates: None = None
    ) -> Float[AnyArray, "*batch"]:
        """log |d(mean, precision) / d(u, v)| = v."""
        return x[..., 1]


biject_to.register(_MeanPrecision, lambda constraint: MeanPrecisionTransform())


class NormalGamma(dist.Distribution):
    """precision ~ Gamma(concentration, rate); mean | precision ~ Normal(loc, 1 / (pseudo_count * precision)).

    A draw has event shape [2]: the mean and the precision of a normal law. Bernardo and Smith (1994), section 5.2.

    Args:
        loc, pseudo_count, concentration, rate: numbers or arrays that broadcast to the batch shape; all but `loc` are
            positive. `loc` is in units of the reward, `rate` in their square; the others count observations.
        validate_args: as of NumPyro.

    Raises:
        ValueError: `loc` is not finite, another is not finite and positive (concrete values only).

    Example:
        >>> law = bm.models.NormalGamma(np.zeros(3), 1.0, 2.0, 1.0)
        >>> law.batch_shape, law.event_shape  # the mean and the precision of three rewards
        ((3,), (2,))
    """

    arg_constraints: dict[str, constraints.Constraint] = {  # noqa: RUF012 - as NumPyro declares it
        "loc": constraints.real,
        "pseudo_count": constraints.positive,
        "concentration": constraints.positive,
        "rate": constraints.positive,
    }
    reparametrized_params: list[str] = list(arg_constraints)  # noqa: RUF012

    loc: Float[AnyArray, "..."]
    pseudo_count: Float[AnyArray, "..."]
    concentration: Float[AnyArray, "..."]
    rate: Float[AnyArray, "..."]

    def __init__(
        self,
        loc: RealLike = 0.0,
        pseudo_count: RealLike = 1.0,
        concentration: RealLike = 2.0,
        rate: RealLike = 1.0,
        *,
        validate_args: bool | None = None,
    ) -> None:
        parameters = {"loc": loc, "pseudo_count": pseudo_count, "concentration": concentration, "rate": rate}
        for name, value in parameters.items():
            (check_finite if name == "loc" else check_positive)(name, value)
        promoted: Any = promote_shapes(*parameters.values())
        # Arrays of one number of axes: NumPyro's flattening expects that.
        self.loc, self.pseudo_count, self.concentration, self.rate = promoted
        batch_shape = jnp.broadcast_shapes(*map(jnp.shape, parameters.values()))
        super().__init__(batch_shape, (2,), validate_args=validate_args)

    @property
    def support(self) -> constraints.Constraint:
        """A real number and a positive one."""
        return mean_precision

    def sample(self, key: PRNGKeyArray | None, sample_shape: tuple[int, ...] = ()) -> Float[Array, "*shape 2"]:
        """Draws of (mean, precision); a precision that underflows is the smallest positive number."""
        assert key is not None  # NumPyro's own annotation has None
        key_precision, key_mean = jax.random.split(key)
        shape = (*sample_shape, *self.batch_shape)
        # The precision first, then the mean given it.
        precision = jax.random.gamma(key_precision, self.concentration, shape) / self.rate
        precision = jnp.maximum(precision, jnp.finfo(precision.dtype).tiny)
        noise = jax.random.normal(key_mean, shape, precision.dtype)
        mean = self.loc + noise / (jnp.sqrt(self.pseudo_count) * jnp.sqrt(precision))
        return jnp.stack([mean, precision], axis=-1)

    @validate_sample
    def log_prob(self, value: ArrayLike, intermediates: object = None) -> Float[AnyArray, "..."]:
        """Log density of `value`, (mean, precision) [... 2], with respect to their product Lebesgue measure."""
        del intermediates
        value = jnp.asarray(value)
        mean, precision = value[..., 0], value[..., 1]
        # log Gamma(precision) + log Normal(mean), the powers of the precision collected in one term.
        gamma = self.concentration * jnp.log(self.rate) - gammaln(self.concentration) - self.rate * precision
        normal = jnp.log(self.pseudo_count / (2 * jnp.pi)) - self.pseudo_count * precision * (mean - self.loc) ** 2
        return gamma + (self.concentration - 0.5) * jnp.log(precision) + 0.5 * normal

    @property
    def mean(self) -> Float[Array, "*batch 2"]:
        """(loc, concentration / rate); the mean has none where concentration <= 1/2 (nan)."""
        loc = jnp.where(self.concentration > 0.5, self.loc, jnp.nan)
        return self._stack(loc, self.concentration / self.rate)

    @property
    def variance(self) -> Float[Array, "*batch 2"]:
        # The mean is Student-t with 2 concentration degrees of freedom: above one it has a mean, above two a
        # variance.
        """Of the mean (infinite where concentration <= 1, nan where it has no mean) and of the precision."""
        excess = jnp.where(self.concentration > 1, self.concentration - 1, 1.0)
        infinite = jnp.where(self.concentration > 0.5, jnp.inf, jnp.nan)
        of_mean = jnp.where(self.concentration > 1, self.rate / (self.pseudo_count * excess), infinite)
        return self._stack(of_mean, self.concentration / self.rate**2)

    def _stack(self, first: Float[AnyArray, "..."], second: Float[AnyArray, "..."]) -> Float[Array, "*batch 2"]:
        return jnp.stack([jnp.broadcast_to(x, self.batch_shape) for x in (first, second)], axis=-1)


def normal(mean_precision: ArrayLike) -> dist.Normal:
    """The normal law whose mean and precision, `mean_precision` [*batch 2], were drawn from a `NormalGamma`.

    Raises:
        ValueError, TypeError: a last axis of another length, numbers out of their range (concrete values only).

    Example:
        >>> law = bm.models.normal(np.array([2.0, 4.0]))  # mean 2, precision 4
        >>> float(law.mean), float(law.variance)
        (2.0, 0.25)
    """
    if is_concrete(mean_precision):
        mean_precision = as_real("mean_precision", mean_precision, "a mean and a precision")
    values = jnp.asarray(mean_precision)
    if values.shape[-1:] != (2,):
        raise ValueError(f"mean_precision has shape {values.shape}, expected [..., 2]")
    if is_concrete(values):
        check_finite("mean_precision", values)
        check_positive("mean_precision[..., 1]", values[..., 1])
    # NumPyro's Normal takes a scale: 1 / sqrt(precision).
    return dist.Normal(values[..., 0], values[..., 1] ** -0.5)
