"""Programs that are almost of a form with a closed posterior: forms x mutations, and what is particular to each form.

Nothing here says which of them has a closed form: some mutations leave the posterior conjugate. `test_near_misses` has
every program that detection accepts judged by quadrature. Two states, one action; at most three unknown numbers.
"""

# `numpyro.sample` is typed to return any ArrayLike, and records as JAX arrays: too narrow for tests.
# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportReturnType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false, reportOptionalMemberAccess=false

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import lax
from numpyro import handlers
from numpyro.infer.reparam import LocScaleReparam, TransformReparam

from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.models import MDPSpec, NormalGamma

SPACE = StateActionSpace(2, 1)
ENDING = StateActionSpace(2, 1, ends=True)
ROWS = np.array([[[0.3, 0.7]], [[0.6, 0.4]]])
PAID = np.array([[0.5], [1.5]])
FEATURES = np.array([[[1.0, 2.0]], [[0.5, -1.0]]])
APART = np.array([[1.0], [2.0]])
"""A number for each of the two cells."""
EXACT, ROUNDED = 1e-7, 1e-4
"""Relative error of the log evidence that quadrature allows; of programs that round to float32 themselves."""


class NearMiss(NamedTuple):
    """A program to be judged.

    Args:
        name: form and mutation.
        prior, space: the program.
        tolerance: of its log evidence, relative.
    """

    name: str
    prior: Callable[[StateActionSpace], MDPSpec]
    space: StateActionSpace = SPACE
    tolerance: float = EXACT


class Form(NamedTuple):
    """One unknown number for each of the two cells.

    Args:
        site: makes its prior (a distribution that is made outside of the program is one of float32).
        spec: unknown numbers [2 1] -> what the program returns.
    """

    site: Callable[[], dist.Distribution]
    spec: Callable[[Any], MDPSpec]


def paid_by(law):
    """A form of reward law; the rows are known."""
    return lambda x: MDPSpec(ROWS, law(x))


def moved_by(x):
    """Stay with probability x, go to the other state with 1 - x."""
    return MDPSpec(jnp.stack([x, 1.0 - x], axis=-1), PAID)


def cells(law, name="x"):
    """A site with an element for each cell."""
    with SPACE.plates():
        return numpyro.sample(name, law)


def one(law, name="x"):
    """A site of one element."""
    return numpyro.sample(name, law)


FORMS = {
    "exponential": Form(lambda: dist.Gamma(3.0, 2.0), paid_by(dist.Exponential)),
    "poisson": Form(lambda: dist.Gamma(3.0, 2.0), paid_by(dist.Poisson)),
    "precision": Form(lambda: dist.Gamma(3.0, 2.0), paid_by(lambda tau: dist.Normal(0.5, tau**-0.5))),
    "bernoulli": Form(lambda: dist.Beta(2.0, 1.5), paid_by(dist.Bernoulli)),
    "binomial": Form(lambda: dist.Beta(2.0, 1.5), paid_by(lambda p: dist.Binomial(np.array([[4], [2]]), p))),
    "geometric": Form(lambda: dist.Beta(2.0, 1.5), paid_by(dist.Geometric)),
    "beta row": Form(lambda: dist.Beta(2.0, 1.5), moved_by),
    "normal": Form(lambda: dist.Normal(0.3, 0.8), paid_by(lambda m: dist.Normal(m, 0.6))),
    "affine": Form(lambda: dist.Normal(0.3, 0.8), paid_by(lambda m: dist.Normal(1.0 - APART * m, 0.6))),
    "log-normal": Form(lambda: dist.Normal(0.3, 0.8), paid_by(lambda m: dist.LogNormal(m, 0.6))),
    "regression": Form(
        lambda: dist.Normal(0.3, 0.8), paid_by(lambda w: dist.Normal(jnp.einsum("saf,f->sa", FEATURES, w[:, 0]), 0.6))
    ),
}
"""Each with a posterior in closed form, as it stands."""


# --- functions of the unknown ---------------------------------------------------------------------------------------


@jax.custom_jvp
def misled(x):
    """The identity, with a wrong derivative."""
    return x * 1.0


misled.defjvp(lambda primals, tangents: (misled(*primals), 3.0 * tangents[0]))


@jax.custom_jvp
def hidden(x):
    """The square, with the derivative of the identity."""
    return x * x


hidden.defjvp(lambda primals, tangents: (hidden(*primals), tangents[0]))


def flipped(x):
    """The numbers of the two cells, exchanged."""
    return x[::-1]


VALUES = {
    "square": lambda x: x * x,
    "square as a power": lambda x: x**2,
    "square as an einsum": lambda x: jnp.einsum("sa,sa->sa", x, x),
    "square of custom derivative": hidden,
    "absolute": jnp.abs,
    "root of the square": lambda x: jnp.sqrt(x**2),
    "inverse": lambda x: 1.0 / x,
    "inverse of the inverse": lambda x: 1.0 / (1.0 / x),
    "square over itself": lambda x: x * x / x,
    "exponential": jnp.exp,
    "logarithm of the exponential": lambda x: jnp.log(jnp.exp(x)),
    "logistic": jax.nn.sigmoid,
    "softplus": jax.nn.softplus,
    "tanh": jnp.tanh,
    "floor at 0.2": lambda x: jnp.maximum(x, 0.2),
    "clipped": lambda x: jnp.clip(x, 0.05, 0.95),
    "rounded": lambda x: jnp.round(x, 1),
    "complement": lambda x: 1.0 - x,
    "complement of the complement": lambda x: 1.0 - (1.0 - x),
    "negative": lambda x: -x,
    "coefficient": lambda x: 0.7 * x,
    "coefficient by cell": lambda x: np.array([[1.0], [0.5]]) * x,
    "coefficient off by 1e-9": lambda x: (1.0 + 1e-9) * x,
    "coefficient undone": lambda x: 7.0 * x / 7.0,
    "offset": lambda x: x + 0.1,
    "offset undone": lambda x: x + 0.5 - 0.5,
    "half and a quarter": lambda x: 0.5 * x + 0.25,
    "zero times": lambda x: 0.0 * x + 0.3,
    "minus zero times": lambda x: -0.0 * x + 0.3,
    "zero times in one cell": lambda x: np.array([[1.0], [0.0]]) * x + np.array([[0.0], [0.3]]),
    "underflow": lambda x: x * 1e-200 * 1e-200 + 0.3,
    "overflow": lambda x: x * 1e200 * 1e200 * 0.0 + x,
    "overflow and back": lambda x: x * 1e300 * 1e300 * 1e-300 * 1e-300,
    "times infinity": lambda x: x * jnp.inf,
    "times nan": lambda x: x * jnp.nan,
    "plus nan": lambda x: x + jnp.nan,
    "nan to number": jnp.nan_to_num,
    "product of cells": lambda x: x * flipped(x),
    "sum of cells": lambda x: 0.4 * x + 0.5 * flipped(x),
    "mean of cells": lambda x: jnp.broadcast_to(x.mean(), x.shape),
    "a billionth of the other": lambda x: x + 1e-9 * flipped(x),
    "difference of one and the other": lambda x: x + flipped(x) - flipped(x),
    "largest of cells": lambda x: jnp.broadcast_to(x.max(), x.shape),
    "sorted": lambda x: jnp.sort(x, axis=0),
    "cumulative sum": lambda x: 0.5 * jnp.cumsum(x, axis=0),
    "cumulative product": lambda x: jnp.cumprod(x, axis=0),
    "exchanged": flipped,
    "exchanged by an index": lambda x: x[np.array([1, 0])],
    "exchanged by a matrix": lambda x: np.array([[0.0, 1.0], [1.0, 0.0]]) @ x,
    "matrix": lambda x: np.array([[0.5, 0.25], [0.25, 0.5]]) @ x,
    "first for both": lambda x: x[np.array([0, 0])],
    "gathered by a draw": lambda x: x[(x[:, 0] > 0.5).astype(int)],
    "added twice": lambda x: jnp.zeros((2, 1)).at[np.array([0, 0])].add(0.5 * x) + x,
    "added to each": lambda x: jnp.zeros((2, 1)).at[np.array([1, 0])].add(1.0 * x),
    "set in one cell": lambda x: x.at[0].set(0.4),
    "chosen by itself": lambda x: jnp.where(x > 0.4, x, 0.4),
    "chosen by the other": lambda x: jnp.where(flipped(x) > 0.4, x, 0.4),
    "chosen by itself, the same": lambda x: jnp.where(x > 0.4, x, 1.0 * x),
    "branch on a draw": lambda x: lax.cond(x.sum() > 1.0, lambda y: y, lambda y: 0.5 * y, x),
    "branch that is known": lambda x: lax.cond(jnp.asarray(True), lambda y: y, lambda y: 0.5 * y, x),
    "loop": lambda x: lax.fori_loop(0, 3, lambda i, y: 0.9 * y, x),
    "loop as long as a draw": lambda x: lax.while_loop(lambda y: y.sum() > 1.0, lambda y: 0.5 * y, x),
    "loop over cells": lambda x: lax.scan(lambda c, y: (c + y, 0.4 * (c + y)), jnp.zeros(1), x)[1],
    "stopped gradient": lax.stop_gradient,
    "wrong derivative": misled,
    "integer": lambda x: x.astype(int).astype(float) + 0.5,
    "float16": lambda x: x.astype(jnp.float16).astype(float),
    "bfloat16": lambda x: x.astype(jnp.bfloat16).astype(float),
    "float16 to the end": lambda x: x.astype(jnp.float16),
    "float32": lambda x: x.astype(jnp.float32),
    "float32 constant": lambda x: jnp.float32(0.1) * x,
    "float32 beside 1e4": lambda x: (x + 1e4).astype(jnp.float32).astype(float) - 1e4,
    "error function": lax.erf,
    "self power": lambda x: jnp.abs(x) ** x,
    "callback": lambda x: jax.pure_callback(np.asarray, jax.ShapeDtypeStruct(x.shape, x.dtype), x),
    "random numbers of no site": lambda x: x + jax.random.normal(numpyro.prng_key(), x.shape),
    "complex": lambda x: (x * (1.0 + 2.0j)).real,
    "modulus": lambda x: jnp.abs(x * (0.6 + 0.8j)),
}
"""In place of the unknown itself."""


# --- the site ------------------------------------------------------------------------------------------------------


def tilted(law, name="Tilted"):
    """A class of the user's: a known one with another density."""

    def log_prob(self, value, intermediates=None):
        return 2.0 * super(kind, self).log_prob(value)

    kind = type(name, (type(law),), {"log_prob": log_prob})
    return kind(*(getattr(law, argument) for argument in _ARGUMENTS[type(law)]))


_ARGUMENTS = {dist.Gamma: ("concentration", "rate"), dist.Beta: ("concentration1", "concentration0")}
_ARGUMENTS[dist.Normal] = ("loc", "scale")


def patched(law):
    """A known law, one object of which has another density."""
    law = type(law)(*(getattr(law, argument) for argument in _ARGUMENTS[type(law)]))
    inner = law.log_prob
    law.log_prob = lambda value, intermediates=None: 2.0 * inner(value)
    return law


def with_parameter(law, change):
    """The same family, its second parameter changed (where the first may be negative that is a scale)."""
    first, second = (getattr(law, argument) for argument in _ARGUMENTS[type(law)])
    return type(law)(first, change(second))


def _factor(law):
    x = cells(law)
    numpyro.factor("belief", -0.5 * (x.sum() - 1.0) ** 2)
    return x


def _constant_factor(law):
    x = cells(law)
    numpyro.factor("belief", 0.3)
    return x


def _survey(law):
    x = cells(law)
    numpyro.sample("survey", dist.Normal(x, 1.0), obs=np.array([[0.4], [0.1]]))
    return x


def _survey_of_its_scale(law):
    x = cells(law)
    numpyro.sample("survey", dist.Normal(0.0, 1.0 + jnp.abs(x[0, 0])), obs=0.2)
    return x


def _child(law):
    x = cells(law)
    numpyro.sample("child", dist.Normal(x[0, 0], 1.0))
    return x


def _hyper(law):
    return cells(with_parameter(law, lambda second: second * numpyro.sample("hyper", dist.Gamma(4.0, 4.0))))


def _chain(law):
    first = one(law, "first")
    second = one(with_parameter(law, lambda scale: scale * jnp.exp(0.5 * first)), "second")
    return jnp.stack([first, second])[:, None]


def _subsampled(law):
    with numpyro.plate("half", 4, subsample_size=2, dim=-2):
        return jnp.broadcast_to(numpyro.sample("x", law), (2, 1))


def _scaled(law, scale=2.0):
    with handlers.scale(scale=scale):
        return cells(law)


def _masked(law):
    with handlers.mask(mask=np.array([[True], [False]])):
        return cells(law)


def _observed_in_part(law):
    values = np.array([[0.4], [0.6]])
    with SPACE.plates():
        return numpyro.sample("x", law, obs=values, obs_mask=np.array([[True], [False]]))


def _blocked(law):
    with handlers.block():
        return cells(law)


def _given(law, handler):
    with handler(data={"x": np.array([[0.4], [0.6]])}):
        return cells(law)


def _reparameterised(law):
    with handlers.reparam(config={"x": LocScaleReparam(0.0)}):
        return cells(law)


def _pair(law):
    return 0.5 * (cells(law, "own") + one(law, "common"))


def _mixed(law):
    parts = type(law)(*(jnp.stack([1.0 * getattr(law, a), 2.0 * getattr(law, a)]) for a in _ARGUMENTS[type(law)]))
    return cells(dist.MixtureSameFamily(dist.Categorical(jnp.array([0.4, 0.6])), parts))


def _renamed_plates(law):
    with numpyro.plate("action", 1), numpyro.plate("own", 2, dim=-2):
        return numpyro.sample("x", law)


OUTSIDE = {type(law): law for law in (dist.Gamma(3.0, 2.3), dist.Beta(2.1, 1.5), dist.Normal(0.3, 0.8))}
"""Made where JAX has 32 bits."""

SITES = {
    "scaled": _scaled,
    "scaled by one": lambda law: _scaled(law, 1.0),
    "masked": _masked,
    "law with a mask": lambda law: cells(law.expand([2, 1]).mask(np.array([[True], [False]])).to_event(2)),
    "factor": _factor,
    "constant factor": _constant_factor,
    "survey": _survey,
    "survey of its scale": _survey_of_its_scale,
    "child": _child,
    "hyperparameter": _hyper,
    "chain": _chain,
    "subsampled": _subsampled,
    "other density": lambda law: cells(tilted(law)),
    "impostor": lambda law: cells(tilted(law, type(law).__name__)),
    "other density of one object": lambda law: cells(patched(law)),
    "observed in part": _observed_in_part,
    "blocked": _blocked,
    "conditioned": lambda law: _given(law, handlers.condition),
    "substituted": lambda law: _given(law, handlers.substitute),
    "intervened": lambda law: _given(law, handlers.do),
    "reparameterised": _reparameterised,
    "mean of two sites": _pair,
    "mixture": _mixed,
    "transformed": lambda law: cells(dist.TransformedDistribution(law, dist.transforms.AffineTransform(0.0, 0.5))),
    "powered": lambda law: cells(dist.TransformedDistribution(law, dist.transforms.PowerTransform(2.0))),
    "delta": lambda law: cells(dist.Delta(0.4)),
    "improper": lambda law: cells(dist.ImproperUniform(law.support, (), ())),
    "param": lambda law: numpyro.param("x", 0.4 * jnp.ones((2, 1))),
    "plates of its own": _renamed_plates,
    "events for plates": lambda law: one(law.expand([2, 1]).to_event(2)),
    "one for both": lambda law: jnp.broadcast_to(one(law), (2, 1)),
    "made outside, float32": lambda law: cells(OUTSIDE[type(law)]),
    "one by one": lambda law: jnp.stack([one(law, f"x{i}") for i in range(2)])[:, None],
}
"""In place of a plain site for each cell."""


def crossed() -> Iterator[NearMiss]:
    """Every form with every mutation."""
    for name, form in FORMS.items():
        for change, function in VALUES.items():
            yield NearMiss(
                f"{name}: {change}",
                lambda space, form=form, function=function: form.spec(function(cells(form.site()))),
                tolerance=ROUNDED if "float32" in change else EXACT,
            )
        for change, draw in SITES.items():
            yield NearMiss(
                f"{name}: {change} site",
                lambda space, form=form, draw=draw: form.spec(draw(form.site())),
                tolerance=ROUNDED if "float32" in change else EXACT,
            )


# --- what is particular to a form: reward laws -----------------------------------------------------------------------
# Each entry is a function without arguments to a reward law; the rows are known.


def of(*parts):
    """A function of some draws: `of(draw, ..., function)` is the thunk of function(draw(), ...)."""
    *draws, function = parts
    return lambda: function(*(draw() for draw in draws))


def mean(name="m"):
    """An unknown mean for each cell."""
    return cells(dist.Normal(0.3, 0.8), name)


def shared_mean():
    """One unknown mean for both cells."""
    return one(dist.Normal(0.3, 0.8), "m")


def precision(name="tau"):
    """An unknown precision for each cell."""
    return cells(dist.Gamma(3.0, 2.0), name)


def shared_precision():
    """One for both cells."""
    return one(dist.Gamma(3.0, 2.0), "tau")


def likely(name="p"):
    """An unknown probability for each cell."""
    return cells(dist.Beta(2.0, 1.5), name)


class Shifted(dist.Normal):
    """A normal law in name: its density is that of another mean."""

    def log_prob(self, value, intermediates=None):
        return super().log_prob(value - 1.0)


class Bounded(dist.GeometricProbs):
    """Geometric, cut off above 5 and not normalised."""

    support = dist.constraints.integer_interval(0, 5)

    def log_prob(self, value, intermediates=None):
        return jnp.where(value <= 5, super().log_prob(value), -jnp.inf)


def _impostor_law(m):
    return type("Normal", (Shifted,), {})(m, 0.6)


NORMAL_LAWS = {
    "noise is exp of the mean": of(mean, lambda m: dist.Normal(m, jnp.exp(m))),
    "noise grows with the mean": of(mean, lambda m: dist.Normal(m, 1.0 + m**2)),
    "noise by the sign of the mean": of(mean, lambda m: dist.Normal(m, jnp.where(m > 0, 1.0, 2.0))),
    "noise is the mean of the other": of(mean, lambda m: dist.Normal(m, 0.5 + flipped(m) ** 2)),
    "noise of a half-normal": lambda: dist.Normal(mean(), one(dist.HalfNormal(1.0), "noise")),
    "noise by cell": lambda: dist.Normal(mean(), 0.5 * APART),
    "negative noise": lambda: dist.Normal(mean(), -0.6),
    "negative noise in one cell": lambda: dist.Normal(mean(), np.array([[0.6], [-0.6]])),
    "no noise": lambda: dist.Normal(mean(), 0.0),
    "infinite noise": lambda: dist.Normal(mean(), np.inf),
    "one mean, two noises": lambda: dist.Normal(shared_mean(), 0.5 * APART),
    "one mean, two noises, 1e-6 apart": lambda: dist.Normal(shared_mean(), np.array([[0.5], [0.5 + 1e-6]])),
    "one mean, two offsets": lambda: dist.Normal(shared_mean() + APART, 0.5),
    "one mean, two coefficients": lambda: dist.Normal(shared_mean() * APART, 0.5),
    "one mean, two signs": lambda: dist.Normal(shared_mean() * np.array([[1.0], [-1.0]]), 0.5),
    "one mean, noise in proportion": lambda: dist.Normal(shared_mean() * APART, 0.5 * APART),
    "one mean and its square": of(shared_mean, lambda m: dist.Normal(jnp.stack([m, m**2])[:, None], 0.5)),
    "one mean and its absolute": of(shared_mean, lambda m: dist.Normal(jnp.stack([m, abs(m)])[:, None], 0.5)),
    "one mean and a known one": lambda: dist.Normal(jnp.where(APART == 1, shared_mean(), 0.7), 0.5 * APART),
    "unknown coefficient": lambda: dist.Normal(one(dist.Normal(1.0, 0.5), "slope") * shared_mean(), 0.5),
    "unknown offset": lambda: dist.Normal(one(dist.Normal(1.0, 0.5), "level") + mean(), 0.5),
    "unknown positive offset": lambda: dist.Normal(one(dist.HalfNormal(1.0), "level") + mean(), 0.5),
    "coefficient of the other mean": of(mean, lambda m: dist.Normal(m * jnp.exp(flipped(m)), 0.5)),
    "ratio of means": of(mean, lambda m: dist.Normal(m / flipped(m), 0.5)),
    "mean times a precision": lambda: dist.Normal(mean() * shared_precision(), 0.5),
    "student": lambda: dist.StudentT(4.0, mean(), 0.6),
    "laplace": lambda: dist.Laplace(mean(), 0.6),
    "logistic law": lambda: dist.Logistic(mean(), 0.6),
    "gumbel": lambda: dist.Gumbel(mean(), 0.6),
    "truncated": lambda: dist.TruncatedNormal(mean(), 0.6, low=-1.0),
    "delta law": lambda: dist.Delta(mean()),
    "shifted class": lambda: Shifted(mean(), 0.6),
    "class of the same name": lambda: _impostor_law(mean()),
    "law with a mask": lambda: dist.Normal(mean(), 0.6).mask(False),
    "law of a mixture": lambda: dist.MixtureSameFamily(
        dist.Categorical(jnp.array([0.4, 0.6])), dist.Normal(mean()[..., None] + jnp.array([0.0, 1.0]), 0.6)
    ),
    "law through a transform": lambda: dist.TransformedDistribution(
        dist.Normal(mean(), 0.6), dist.transforms.AffineTransform(1.0, 2.0)
    ),
    "folded": lambda: dist.FoldedDistribution(dist.Normal(mean(), 0.6)),
    "skewed": lambda: dist.AsymmetricLaplace(mean(), 0.6, 0.5),
    "left censored": lambda: dist.LeftCensoredDistribution(dist.Normal(mean(), 0.6), np.zeros((2, 1))),
    "offset of 1e-13, means of 1e-13": lambda: dist.Normal(cells(dist.Normal(0.0, 1e-13)) + 1e-13, 1e-13),
    "means of 1e8": lambda: dist.Normal(cells(dist.Normal(1e8, 1.0)), 1.0),
    "means of 1e-8": lambda: dist.Normal(cells(dist.Normal(0.0, 1e-8)), 1e-8),
}

PRECISION_LAWS = {
    "squared": lambda: dist.Normal(0.5, 1.0 / precision()),
    "as a scale": lambda: dist.Normal(0.5, precision()),
    "as a variance": lambda: dist.Normal(0.5, precision() ** 0.5),
    "floor of 1e-12, precisions of 1e-13": lambda: dist.Normal(0.5, (cells(dist.Gamma(3.0, 2e13)) + 1e-12) ** -0.5),
    "floor of 1e-12": lambda: dist.Normal(0.5, (precision() + 1e-12) ** -0.5),
    "sum of two": lambda: dist.Normal(0.5, (precision("a") + one(dist.Gamma(3.0, 2.0), "b")) ** -0.5),
    "product of two": lambda: dist.Normal(0.5, (one(dist.Gamma(3.0, 2.0), "a") * shared_precision()) ** -0.5),
    "product of the two cells": of(precision, lambda t: dist.Normal(0.5, (t * flipped(t)) ** -0.5)),
    "multiple": lambda: dist.Normal(0.5, (3.0 * precision()) ** -0.5),
    "negative multiple": lambda: dist.Normal(0.5, (-3.0 * precision()) ** -0.5),
    "multiple by cell": lambda: dist.Normal(0.5 * APART, (APART * precision()) ** -0.5),
    "one, multiple by cell": lambda: dist.Normal(0.5 * APART, (APART * shared_precision()) ** -0.5),
    "one, and a known one": lambda: dist.Normal(0.5, jnp.where(APART == 1, shared_precision(), 2.0) ** -0.5),
    "negative scale": lambda: dist.Normal(0.5, -(precision() ** -0.5)),
    "mean is the precision": of(precision, lambda t: dist.Normal(t, t**-0.5)),
    "mean is the scale": of(precision, lambda t: dist.Normal(t**-0.5, t**-0.5)),
    "mean is the other's": of(precision, lambda t: dist.Normal(flipped(t), t**-0.5)),
    "student, precision": lambda: dist.StudentT(4.0, 0.5, precision() ** -0.5),
    "laplace, rate": lambda: dist.Laplace(0.5, 1.0 / precision()),
    "mean by a bernoulli draw": lambda: dist.Normal(1.0 * one(dist.Bernoulli(0.4), "up"), precision() ** -0.5),
    "unknown positive mean": lambda: dist.Normal(one(dist.HalfNormal(1.0), "m"), shared_precision() ** -0.5),
    "one over the mean of both": lambda: dist.Normal(0.5, precision().mean() ** -0.5),
    "log-normal precision, mean known": lambda: dist.LogNormal(0.5, precision() ** -0.5),
    "precision of exp": lambda: dist.Normal(0.5, jnp.exp(-0.5 * mean())),
}


def _paired(scale, law=dist.Normal, loc=lambda m, tau: m, noise=lambda tau: tau**-0.5, prior_loc=lambda tau: 0.3):
    """One mean whose scale is a function of the one precision."""
    tau = shared_precision()
    m = one(dist.Normal(prior_loc(tau), scale(tau)), "m")
    return law(loc(m, tau) * jnp.ones((2, 1)), noise(tau))


def _joint(law):
    """A function of one normal-gamma (mean, precision)."""
    pair = one(NormalGamma(0.3, 2.0, 3.0, 1.5), "pair")
    return law(pair[0], pair[1])


def _tau_and_means(scale):
    """Two means, one precision: a regression where the scale is right."""
    tau = shared_precision()
    return dist.Normal(cells(dist.Normal(0.3, scale(tau)), "m"), tau**-0.5)


def _crossed_pairs():
    """Each mean is scaled by the precision of the other cell."""
    with numpyro.plate("cell", 1):
        first, second = (numpyro.sample(n, dist.Gamma(3.0, 2.0)) for n in ("a", "b"))
        m = numpyro.sample("m", dist.Normal(0.3, second**-0.5))
    return dist.Normal(jnp.stack([m, 0.5 * jnp.ones(1)]), jnp.stack([first, second]) ** -0.5)


NORMAL_GAMMA_LAWS = {
    "pair": lambda: _paired(lambda t: (2.0 * t) ** -0.5),
    "pair, affine": lambda: _paired(lambda t: t**-0.5, loc=lambda m, t: 1.0 - 3.0 * m),
    "pair, noise in proportion": lambda: _paired(lambda t: t**-0.5, noise=lambda t: (5.0 * t) ** -0.5),
    "pair, log-normal": lambda: _paired(lambda t: t**-0.5, law=dist.LogNormal),
    "pair, log-normal, noise in proportion": lambda: _paired(
        lambda t: t**-0.5, law=dist.LogNormal, noise=lambda t: (5.0 * t) ** -0.5
    ),
    "pair, log-normal, affine": lambda: _paired(lambda t: t**-0.5, law=dist.LogNormal, loc=lambda m, t: 1.0 - 3.0 * m),
    "scale does not depend": lambda: _paired(lambda t: 0.8),
    "scale of the precision": lambda: _paired(lambda t: t**0.5),
    "scale of its inverse": lambda: _paired(lambda t: 1.0 / t),
    "scale with a floor": lambda: _paired(lambda t: (t + 1.0) ** -0.5),
    "scale by another power": lambda: _paired(lambda t: t**-0.5, noise=lambda t: 1.0 / t),
    "scale twice": lambda: _paired(lambda t: t**-0.5, noise=lambda t: (t * t) ** -0.5),
    "known noise": lambda: _paired(lambda t: t**-0.5, noise=lambda t: 0.6),
    "mean over the precision": lambda: _paired(lambda t: t**-0.5, loc=lambda m, t: m / t),
    "mean times the root": lambda: _paired(lambda t: t**-0.5, loc=lambda m, t: m * t**0.5),
    "mean plus the precision": lambda: _paired(lambda t: t**-0.5, loc=lambda m, t: m + t),
    "prior mean is the precision": lambda: _paired(lambda t: t**-0.5, prior_loc=lambda t: t),
    "cells of two multiples": lambda: _paired(lambda t: t**-0.5, noise=lambda t: (APART * t) ** -0.5),
    "cells of two coefficients": lambda: _paired(lambda t: t**-0.5, loc=lambda m, t: APART * m),
    "cells of one stretch": lambda: _paired(
        lambda t: t**-0.5, loc=lambda m, t: APART * m, noise=lambda t: APART * t**-0.5
    ),
    "one known cell": lambda: _paired(lambda t: t**-0.5, loc=lambda m, t: jnp.where(APART == 1, m, 0.7)),
    "one known cell of known noise": lambda: _paired(
        lambda t: t**-0.5,
        loc=lambda m, t: jnp.where(APART == 1, m, 0.7),
        noise=lambda t: jnp.where(APART == 1, t**-0.5, 0.9),
    ),
    "two means": lambda: _tau_and_means(lambda t: t**-0.5),
    "two means, unscaled": lambda: _tau_and_means(lambda t: 0.8),
    "two means, one unscaled": lambda: _tau_and_means(lambda t: jnp.where(APART == 1, t**-0.5, 0.8)),
    "two means, two scales": lambda: _tau_and_means(lambda t: (APART * t) ** -0.5),
    "precisions crossed": _crossed_pairs,
    "joint": lambda: _joint(lambda m, t: dist.Normal(m, t**-0.5)),
    "joint, affine": lambda: _joint(lambda m, t: dist.Normal(1.0 - 3.0 * m, t**-0.5)),
    "joint, log-normal": lambda: _joint(lambda m, t: dist.LogNormal(m, t**-0.5)),
    "joint, multiple": lambda: _joint(lambda m, t: dist.Normal(m, (5.0 * t) ** -0.5)),
    "joint, offsets by cell": lambda: _joint(lambda m, t: dist.Normal(m + APART, t**-0.5)),
    "joint, coefficients by cell": lambda: _joint(lambda m, t: dist.Normal(m * APART, t**-0.5)),
    "joint, precision alone": lambda: _joint(lambda m, t: dist.Normal(0.5, t**-0.5)),
    "joint, mean alone": lambda: _joint(lambda m, t: dist.Normal(m, 0.6)),
    "joint, squared": lambda: _joint(lambda m, t: dist.Normal(m, 1.0 / t)),
    "joint, exchanged": lambda: _joint(lambda m, t: dist.Normal(t, jnp.exp(m))),
    "joint, mean of both": lambda: _joint(lambda m, t: dist.Normal(m * t, t**-0.5)),
    "joint, floor": lambda: _joint(lambda m, t: dist.Normal(m, (t + 0.1) ** -0.5)),
    "joint, absolute": lambda: _joint(lambda m, t: dist.Normal(abs(m), t**-0.5)),
    "joint, student": lambda: _joint(lambda m, t: dist.StudentT(5.0, m, t**-0.5)),
    "joint, one known noise": lambda: _joint(lambda m, t: dist.Normal(m, jnp.where(APART == 1, t**-0.5, 0.9))),
    "joint, one known mean": lambda: _joint(lambda m, t: dist.Normal(jnp.where(APART == 1, m, 0.9), t**-0.5)),
    "joint, one known cell": lambda: _joint(
        lambda m, t: dist.Normal(jnp.where(APART == 1, m, 0.9), jnp.where(APART == 1, t**-0.5, 0.9))
    ),
}

LOG_NORMAL_LAWS = {
    "shifted by one": lambda: dist.TransformedDistribution(
        dist.Normal(mean(), 0.6), [dist.transforms.ExpTransform(), dist.transforms.AffineTransform(1.0, 1.0)]
    ),
    "as a transform": lambda: dist.TransformedDistribution(dist.Normal(mean(), 0.6), dist.transforms.ExpTransform()),
    "affine": lambda: dist.LogNormal(1.0 - 0.5 * mean(), 0.6),
    "noise by cell": lambda: dist.LogNormal(mean(), 0.5 * APART),
    "one mean, two noises": lambda: dist.LogNormal(shared_mean(), 0.5 * APART),
    "one mean, one noise": lambda: dist.LogNormal(shared_mean(), 0.5 * np.ones((2, 1))),
    "one known cell": lambda: dist.LogNormal(jnp.where(APART == 1, shared_mean(), 0.7), 0.5 * APART),
    "noise is exp of the mean": of(mean, lambda m: dist.LogNormal(m, jnp.exp(m))),
    "own precision": lambda: dist.LogNormal(shared_mean(), shared_precision() ** -0.5),
    "linear": lambda: dist.LogNormal(FEATURES @ one(dist.Normal(jnp.zeros(2), 1.0).to_event(1), "w"), 0.5),
    "negative noise": lambda: dist.LogNormal(mean(), -0.6),
}

COUNT_LAWS = {
    "binomial: unknown total": lambda: dist.Binomial(4 + one(dist.Bernoulli(0.5), "more"), likely()),
    "binomial: total by the draw": of(likely, lambda p: dist.Binomial(jnp.round(6 * p), p)),
    "binomial: one probability, two totals": lambda: dist.Binomial(np.array([[4], [2]]), one(dist.Beta(2.0, 1.5), "p")),
    "binomial: no trials in a cell": lambda: dist.Binomial(np.array([[4], [0]]), likely()),
    "binomial: half a trial": lambda: dist.Binomial(2.5, likely()),
    "binomial: one known cell": lambda: dist.Binomial(
        np.array([[4], [9]]), jnp.where(APART == 1, one(dist.Beta(2.0, 1.5), "p"), 0.8)
    ),
    "binomial: logits": of(likely, lambda p: dist.Binomial(4, logits=jnp.log(p) - jnp.log1p(-p))),
    "binomial: twice the logits": of(likely, lambda p: dist.Binomial(4, logits=2.0 * (jnp.log(p) - jnp.log1p(-p)))),
    "binomial: log as logits": lambda: dist.Binomial(4, logits=jnp.log(likely())),
    "binomial: zero inflated": lambda: dist.ZeroInflatedDistribution(dist.Binomial(4, likely()), gate=0.2),
    "binomial: beta-binomial of sites": lambda: dist.BetaBinomial(1.0 + precision(), 2.0, 4),
    "binomial: one probability and its complement": of(
        lambda: one(dist.Beta(2.0, 1.5), "p"), lambda p: dist.Binomial(4, jnp.stack([p, 1.0 - p])[:, None])
    ),
    "bernoulli: one probability and its complement": of(
        lambda: one(dist.Beta(2.0, 1.5), "p"), lambda p: dist.Bernoulli(jnp.stack([p, 1.0 - p])[:, None])
    ),
    "bernoulli: product": lambda: dist.Bernoulli(one(dist.Beta(2.0, 1.5), "p") * one(dist.Beta(2.0, 1.5), "q")),
    "bernoulli: noisy or": lambda: dist.Bernoulli(
        1.0 - (1.0 - one(dist.Beta(2.0, 1.5), "p")) * (1.0 - one(dist.Beta(2.0, 1.5), "q"))
    ),
    "bernoulli: lapse": lambda: dist.Bernoulli(0.05 + 0.9 * likely()),
    "bernoulli: uniform": lambda: dist.Bernoulli(cells(dist.Uniform(0.0, 1.0))),
    "bernoulli: kumaraswamy": lambda: dist.Bernoulli(cells(dist.Kumaraswamy(2.0, 1.0))),
    "bernoulli: an entry of a dirichlet": lambda: dist.Bernoulli(one(dist.Dirichlet(jnp.ones(2)), "d")[0]),
    "bernoulli: gamma": lambda: dist.Bernoulli(1.0 - jnp.exp(-precision())),
    "bernoulli: logistic normal": lambda: dist.Bernoulli(logits=mean()),
    "bernoulli: probit": lambda: dist.Bernoulli(jax.scipy.stats.norm.cdf(mean())),
    "geometric: complement": lambda: dist.Geometric(1.0 - likely()),
    "geometric: logits": of(likely, lambda p: dist.Geometric(logits=jnp.log(p) - jnp.log1p(-p))),
    "geometric: cut off": lambda: Bounded(likely()),
    "geometric: zero inflated": lambda: dist.ZeroInflatedDistribution(dist.Geometric(likely()), gate=0.2),
    "geometric: negative binomial": lambda: dist.NegativeBinomialProbs(1.0, likely()),
    "geometric: one known cell": lambda: dist.Geometric(jnp.where(APART == 1, one(dist.Beta(2.0, 1.5), "p"), 0.8)),
    "geometric: product": of(likely, lambda p: dist.Geometric(p * flipped(p))),
    "exponential: rate twice": of(precision, lambda x: dist.Exponential(x * flipped(x))),
    "exponential: scale": lambda: dist.Exponential(1.0 / precision()),
    "exponential: gamma law": lambda: dist.Gamma(1.0, precision()),
    "exponential: weibull": lambda: dist.Weibull(1.0 / precision(), 1.0),
    "exponential: one known cell": lambda: dist.Exponential(jnp.where(APART == 1, shared_precision(), 0.8)),
    "exponential: offset of 1e-13, rates of 1e-13": lambda: dist.Exponential(cells(dist.Gamma(3.0, 2e13)) + 1e-13),
    "exponential: rates of 1e-13": lambda: dist.Exponential(cells(dist.Gamma(3.0, 2e13))),
    "exponential: exp of a normal": lambda: dist.Exponential(jnp.exp(mean())),
    "exponential: competing": lambda: dist.Exponential(precision("a") + one(dist.Gamma(3.0, 2.0), "b")),
    "exponential: chi-squared": lambda: dist.Exponential(cells(dist.Chi2(4.0))),
    "exponential: exponential site": lambda: dist.Exponential(cells(dist.Exponential(2.0))),
    "exponential: inverse gamma": lambda: dist.Exponential(cells(dist.InverseGamma(4.0, 2.0))),
    "poisson: sum": lambda: dist.Poisson(precision("a") + one(dist.Gamma(3.0, 2.0), "b")),
    "poisson: zero inflated": lambda: dist.ZeroInflatedPoisson(0.2, precision()),
    "poisson: exposure": lambda: dist.Poisson(APART * precision()),
    "poisson: gamma-poisson of sites": lambda: dist.GammaPoisson(precision(), 2.0),
    "poisson: one known cell": lambda: dist.Poisson(jnp.where(APART == 1, shared_precision(), 0.8)),
}


def three(name="d", concentration=(1.0, 2.0, 1.5)):
    """One unknown vector of probabilities."""
    return one(dist.Dirichlet(jnp.array(concentration)), name)


def both(first, second):
    """A vector of probabilities for each cell."""
    return dist.Categorical(jnp.stack([first, second])[:, None])


CATEGORICAL_LAWS = {
    "one for both": of(three, lambda d: both(d, d)),
    "turned in one cell": of(three, lambda d: both(d, d[np.array([1, 0, 2])])),
    "turned in both": of(three, lambda d: both(d[::-1], d[::-1])),
    "one known": lambda: both(three(), jnp.array([0.2, 0.3, 0.5])),
    "one with a known entry": of(three, lambda d: both(d, jnp.array([d[0], d[1] + d[2], 0.0]))),
    "mixed with a constant": of(three, lambda d: both(d, 0.5 * d + 0.5 / 3)),
    "renormalised slice": of(three, lambda d: both(d[:2] / d[:2].sum(), d[:2] / d[:2].sum())),
    "slice": of(three, lambda d: both(d[:2], d[:2])),
    "slice and rest": of(three, lambda d: both(*2 * [jnp.array([d[0], 1.0 - d[0]])])),
    "squared": of(three, lambda d: both(*2 * [d**2 / (d**2).sum()])),
    "logits": of(three, lambda d: dist.Categorical(logits=jnp.log(jnp.stack([d, d])[:, None]))),
    "tempered logits": of(three, lambda d: dist.Categorical(logits=2.0 * jnp.log(jnp.stack([d, d])[:, None]))),
    "logits of a slice": of(three, lambda d: dist.Categorical(logits=jnp.log(jnp.stack([d[:2]] * 2)[:, None]))),
    "softmax of it": of(three, lambda d: both(*2 * [jax.nn.softmax(d)])),
    "twice an entry": of(three, lambda d: both(d, jnp.array([d[0], d[0], 1.0 - 2.0 * d[0]]))),
    "of two": of(
        lambda: one(dist.Dirichlet(jnp.ones(2)), "d"),
        lambda: one(dist.Dirichlet(jnp.ones(2)), "e"),
        lambda d, e: both(d, jnp.array([e[0], d[1]])),
    ),
    "a beta and its complement": of(
        lambda: one(dist.Beta(2.0, 1.5), "p"), lambda p: both(*2 * [jnp.array([p, 1.0 - p])])
    ),
    "narrow and padded": of(lambda: one(dist.Dirichlet(jnp.ones(2)), "d"), lambda d: both(*2 * [jnp.append(d, 0.0)])),
    "two sites": lambda: both(
        one(dist.Dirichlet(jnp.array([1.0, 2.0])), "d"), one(dist.Dirichlet(jnp.array([0.5, 1.0])), "e")
    ),
    "two sites crossed": of(
        lambda: one(dist.Dirichlet(jnp.array([1.0, 2.0])), "d"),
        lambda: one(dist.Dirichlet(jnp.array([0.5, 1.0])), "e"),
        lambda d, e: both(jnp.array([d[0], e[1]]), jnp.array([e[0], d[1]])),
    ),
    "stick breaking": of(
        lambda: one(dist.Beta(2.0, 1.5), "v"),
        lambda: one(dist.Beta(2.0, 1.5), "w"),
        lambda v, w: both(*2 * [jnp.array([v, w * (1.0 - v), (1.0 - w) * (1.0 - v)])]),
    ),
    "gammas": of(lambda: one(dist.Gamma(jnp.ones(3), 1.0).to_event(1), "g"), lambda g: both(*2 * [g / g.sum()])),
    "hyperparameter": of(
        lambda: one(dist.Gamma(3.0, 2.0), "c"),
        lambda c: both(*2 * [one(dist.Dirichlet(c * jnp.ones(2)), "d")]),
    ),
    "floor": of(three, lambda d: both(*2 * [jnp.maximum(d, 1e-6)])),
    "one less the others": of(three, lambda d: both(*2 * [jnp.array([d[0], d[1], 1.0 - d[0] - d[1]])])),
    "float32 vector": of(lambda: three().astype(jnp.float32), lambda d: both(d, d)),
    "sorted vector": of(three, lambda d: both(*2 * [jnp.sort(d)])),
    "rolled by a draw": of(three, lambda d: both(*2 * [jnp.roll(d, (d[0] > 0.5).astype(int))])),
}


def weights(law=None, name="w"):
    """Two unknown weights."""
    return one(dist.Normal(jnp.array([0.2, -0.1]), 0.9).to_event(1) if law is None else law, name)


def linear(w, scale=0.6, features=FEATURES):
    """Normal rewards of linear means."""
    return dist.Normal(jnp.asarray(features) @ w, scale)


COVARIANCE = np.array([[1.0, 0.4], [0.4, 0.5]])


def _horseshoe():
    local = one(dist.HalfCauchy(jnp.ones(2)).to_event(1), "local")
    return linear(weights(dist.Normal(jnp.zeros(2), local).to_event(1)))


def _with_tau(scale, noise=lambda t: t**-0.5, law=None):
    """Weights of scale `scale(tau)` under noise `noise(tau)`."""
    tau = shared_precision()
    law = dist.Normal(jnp.array([0.2, -0.1]), scale(tau)).to_event(1) if law is None else law(tau)
    return linear(weights(law), noise(tau))


def _two_taus():
    taus = cells(dist.Gamma(3.0, 2.0), "tau")
    return dist.Normal(FEATURES[..., 0] * one(dist.Normal(0.0, taus[0, 0] ** -0.5), "w"), taus**-0.5)


def _two_taus_of_one_each():
    tau, rho = one(dist.Gamma(3.0, 2.0), "tau"), one(dist.Gamma(3.0, 2.0), "rho")
    return dist.Normal(FEATURES[..., 0] * one(dist.Normal(0.0, rho**-0.5), "w"), tau**-0.5)


def _sampled_intercept(law):
    return dist.Normal(FEATURES[..., 0] * one(dist.Normal(0.0, 1.0), "w") + one(law, "level"), 0.6)


def _reparam_weights(strategy):
    with handlers.reparam(config={"w": strategy}):
        return linear(numpyro.sample("w", dist.Normal(jnp.zeros(2), 1.3).to_event(1)))


def _transformed_weights():
    base = dist.Normal(jnp.zeros(2), 1.0)
    with handlers.reparam(config={"w": TransformReparam()}):
        law = dist.TransformedDistribution(base, dist.transforms.AffineTransform(0.4, 2.0)).to_event(1)
        return linear(numpyro.sample("w", law))


def _masked_weights():
    with handlers.mask(mask=False):
        return weights()


REGRESSION_LAWS = {
    "noise by cell": lambda: linear(weights(), 0.5 * APART),
    "no noise": lambda: linear(weights(), 0.0),
    "multivariate": lambda: linear(weights(dist.MultivariateNormal(jnp.zeros(2), COVARIANCE))),
    "multivariate by precision": lambda: linear(
        weights(dist.MultivariateNormal(jnp.zeros(2), precision_matrix=COVARIANCE))
    ),
    "multivariate by root": lambda: linear(
        weights(dist.MultivariateNormal(jnp.ones(2), scale_tril=np.array([[1.0, 0.0], [-0.3, 0.4]])))
    ),
    "multivariate of low rank": lambda: linear(
        weights(dist.LowRankMultivariateNormal(jnp.zeros(2), jnp.ones((2, 1)), jnp.ones(2)))
    ),
    "multivariate, a hyperparameter": lambda: linear(
        weights(dist.MultivariateNormal(jnp.zeros(2), one(dist.Gamma(3.0, 2.0), "c") * COVARIANCE))
    ),
    "multivariate, scaled by tau": lambda: _with_tau(
        None, law=lambda t: dist.MultivariateNormal(jnp.zeros(2), COVARIANCE / t)
    ),
    "multivariate, tau in the noise alone": lambda: _with_tau(
        None, law=lambda t: dist.MultivariateNormal(jnp.zeros(2), COVARIANCE)
    ),
    "multivariate, as cells": lambda: dist.Normal(
        weights(dist.MultivariateNormal(jnp.zeros(2), COVARIANCE))[:, None], 0.6
    ),
    "random walk": lambda: linear(weights(dist.GaussianRandomWalk(1.0, 2))),
    "student weights": lambda: linear(weights(dist.StudentT(4.0, jnp.zeros(2), 1.0).to_event(1))),
    "multivariate student": lambda: linear(weights(dist.MultivariateStudentT(4.0, jnp.zeros(2), jnp.eye(2)))),
    "laplace weights": lambda: linear(weights(dist.Laplace(jnp.zeros(2), 1.0).to_event(1))),
    "horseshoe": _horseshoe,
    "truncated weights": lambda: linear(weights(dist.TruncatedNormal(jnp.zeros(2), 1.0, low=0.0).to_event(1))),
    "other density": lambda: linear(weights(Shifted(jnp.zeros(2), 1.0).to_event(1))),
    "tau": lambda: _with_tau(lambda t: (2.0 * t) ** -0.5),
    "tau, noise in proportion": lambda: _with_tau(lambda t: t**-0.5, lambda t: (APART * t) ** -0.5),
    "tau in the noise alone": lambda: _with_tau(lambda t: 0.8),
    "tau in the weights alone": lambda: _with_tau(lambda t: t**-0.5, lambda t: 0.6),
    "tau in one weight": lambda: _with_tau(lambda t: jnp.stack([t**-0.5, jnp.ones(())])),
    "tau of another power": lambda: _with_tau(lambda t: 1.0 / t),
    "tau with a floor": lambda: _with_tau(lambda t: (t + 0.1) ** -0.5),
    "tau with a floor of 1e-12": lambda: _with_tau(lambda t: (t + 1e-12) ** -0.5),
    "tau in one cell": lambda: _with_tau(lambda t: t**-0.5, lambda t: jnp.where(APART == 1, t**-0.5, 0.6)),
    "tau in the features": of(shared_precision, lambda t: dist.Normal(t * (FEATURES @ weights()), t**-0.5)),
    "tau as a scale": lambda: _with_tau(lambda t: t, lambda t: t),
    "two taus": _two_taus,
    "two taus, of one each": _two_taus_of_one_each,
    "unknown features": lambda: linear(weights(), features=FEATURES * one(dist.Normal(1.0, 0.5), "g")),
    "feature chosen by a draw": of(weights, lambda w: linear(w, features=jnp.where(w[0] > 0, 1.0, 2.0) * FEATURES)),
    "interaction": of(weights, lambda w: dist.Normal(FEATURES[..., 0] * w[0] * w[1], 0.6)),
    "interaction beside": of(weights, lambda w: dist.Normal(FEATURES @ w + 0.1 * w[0] * w[1], 0.6)),
    "absolute weights": lambda: linear(jnp.abs(weights())),
    "exponential weights": lambda: linear(jnp.exp(weights())),
    "rectified": lambda: dist.Normal(jax.nn.relu(FEATURES @ weights()), 0.6),
    "leaky": lambda: dist.Normal(jax.nn.leaky_relu(FEATURES @ weights(), 0.5), 0.6),
    "tanh of the sum": lambda: dist.Normal(jnp.tanh(FEATURES @ weights()), 0.6),
    "sorted weights": lambda: linear(jnp.sort(weights())),
    "normalised weights": of(weights, lambda w: linear(w / jnp.linalg.norm(w))),
    "largest": of(weights, lambda w: dist.Normal(jnp.max(FEATURES * w, axis=-1), 0.6)),
    "branch": of(weights, lambda w: linear(lax.cond(w[0] > 0, lambda v: v, lambda v: 2.0 * v, w))),
    "branch between the same": of(weights, lambda w: linear(lax.cond(w[0] > 0, lambda v: v, lambda v: 1.0 * v, w))),
    "noise is a weight": of(weights, lambda w: linear(w, jnp.exp(w[0]))),
    "improper intercept": lambda: _sampled_intercept(dist.ImproperUniform(dist.constraints.real, (), ())),
    "intercept": lambda: _sampled_intercept(dist.Normal(1.0, 3.0)),
    "intercept of a half-normal": lambda: _sampled_intercept(dist.HalfNormal(1.0)),
    "intercept as a param": lambda: dist.Normal(FEATURES @ weights() + numpyro.param("level", 0.3), 0.6),
    "intercept, squared": lambda: dist.Normal(FEATURES[..., 0] * weights()[0] + shared_mean() ** 2, 0.6),
    "sum of effects": lambda: dist.Normal(shared_mean() + cells(dist.Normal(0.0, 1.0), "e"), 0.6),
    "effects below a level": lambda: dist.Normal(cells(dist.Normal(shared_mean(), 1.0), "e"), 0.6),
    "level of the effects": of(shared_mean, lambda m: dist.Normal(m + cells(dist.Normal(m, 1.0), "e"), 0.6)),
    "cumulative": lambda: linear(jnp.cumsum(weights())),
    "differences": lambda: linear(jnp.diff(weights(), prepend=0.0)),
    "einsum": lambda: dist.Normal(jnp.einsum("saf,f->sa", FEATURES, weights()), 0.6),
    "sum of products": lambda: dist.Normal((FEATURES * weights()).sum(-1), 0.6),
    "python sum": of(weights, lambda w: dist.Normal(FEATURES[..., 0] * w[0] + FEATURES[..., 1] * w[1], 0.6)),
    "vmap": of(weights, lambda w: dist.Normal(jax.vmap(jax.vmap(lambda x: x @ w))(FEATURES), 0.6)),
    "loop over features": of(
        weights, lambda w: dist.Normal(lax.scan(lambda c, x: (c, (x * w).sum(-1)), 0.0, jnp.asarray(FEATURES))[1], 0.6)
    ),
    "split": of(
        weights, lambda w: dist.Normal(sum(FEATURES[..., i] * part[0] for i, part in enumerate(jnp.split(w, 2))), 0.6)
    ),
    "fft": lambda: linear(jnp.fft.fft(weights()).real),
    "solved": lambda: linear(jnp.linalg.solve(COVARIANCE, weights())),
    "convolved": lambda: linear(jnp.convolve(weights(), jnp.array([1.0, 0.5]), mode="same")),
    "stopped gradient, all weights": lambda: linear(lax.stop_gradient(weights())),
    "wrong derivative, all weights": lambda: linear(misled(weights())),
    "square of custom derivative, all weights": lambda: linear(hidden(weights())),
    "matrix of a triangle": lambda: linear(jnp.tril(jnp.ones((2, 2))) @ weights()),
    "float16 weights": lambda: linear(weights().astype(jnp.float16)),
    "float16 means": lambda: dist.Normal((FEATURES @ weights()).astype(jnp.float16), jnp.float16(0.6)),
    "float32 weights": lambda: linear(weights().astype(jnp.float32), features=np.float32(FEATURES)),
    "features of nan": lambda: linear(weights(), features=FEATURES * np.nan),
    "features of infinity": lambda: linear(weights(), features=np.where(FEATURES == 2.0, np.inf, FEATURES)),
    "features of zero": lambda: linear(weights(), features=0.0 * FEATURES),
    "features of 1e3": lambda: linear(weights(), features=1e3 * FEATURES),
    "features of 1e-8": lambda: linear(weights(), features=1e-8 * FEATURES),
    "collinear features": lambda: linear(weights(), features=np.ones((2, 1, 2))),
    "features of integers": lambda: linear(weights(), features=np.array([[[1, 2]], [[3, -1]]])),
    "second order": of(weights, lambda w: dist.Normal(FEATURES @ w + 1e-7 * (w @ w), 0.6)),
    "second order of 1e-10": of(weights, lambda w: dist.Normal(FEATURES @ w + 1e-10 * (w @ w), 0.6)),
    "reparameterised": lambda: _reparam_weights(LocScaleReparam(0.3)),
    "masked weights": of(_masked_weights, linear),
    "transform reparameterised": _transformed_weights,
    "poisson regression": lambda: dist.Poisson(jnp.exp(FEATURES @ weights())),
    "logistic regression": lambda: dist.Bernoulli(logits=FEATURES @ weights()),
    "student noise": lambda: dist.StudentT(4.0, FEATURES @ weights(), 0.6),
}


KNOWN_LAWS = {
    "normal": lambda: dist.Normal(PAID, 0.6),
    "laplace": lambda: dist.Laplace(PAID, 0.6),
    "mixture of normals": lambda: dist.MixtureSameFamily(
        dist.Categorical(jnp.array([0.4, 0.6])), dist.Normal(jnp.array([0.0, 1.0]), jnp.array([1.0, 2.0]))
    ),
    "mixture of laplaces": lambda: dist.MixtureSameFamily(
        dist.Categorical(jnp.array([0.4, 0.6])), dist.Laplace(jnp.array([0.0, 1.0]), jnp.array([1.0, 2.0]))
    ),
    "shifted class": lambda: Shifted(PAID, 0.6),
    "tilted class": lambda: tilted(dist.Normal(0.5, 0.6)),
    "class of the same name": lambda: _impostor_law(0.5),
    "zero inflated poisson": lambda: dist.ZeroInflatedDistribution(dist.Poisson(0.3), gate=0.2),
    "zero inflated geometric": lambda: dist.ZeroInflatedDistribution(dist.Geometric(0.3), gate=0.2),
    "with a mask": lambda: dist.Normal(0.5, 0.6).mask(False),
    "truncated from below": lambda: dist.TruncatedNormal(0.5, 0.6, low=0.0),
    "truncated from above": lambda: dist.TruncatedNormal(0.5, 0.6, high=0.7),
    "uniform": lambda: dist.Uniform(-1.0, 2.0),
    "beta": lambda: dist.Beta(2.0, 3.0),
    "cauchy": lambda: dist.Cauchy(0.5, 0.6),
    "categorical": lambda: dist.Categorical(jnp.array([0.2, 0.5, 0.3])),
    "categorical of logits": lambda: dist.Categorical(logits=jnp.array([0.2, 0.5, 0.3])),
    "binomial": lambda: dist.Binomial(np.array([[4], [2]]), 0.3),
    "geometric of logits": lambda: dist.Geometric(logits=0.3),
    "random numbers of no site": lambda: dist.Normal(jax.random.normal(numpyro.prng_key()), 1.0),
    "unused site": lambda: (mean(), dist.Normal(PAID, 0.6))[1],
    "site times zero": lambda: dist.Normal(PAID + 0.0 * mean(), 0.6),
    "site that branches on nothing": lambda: dist.Normal(jnp.where(mean() > 0, PAID, PAID), 0.6),
    "site that branches": lambda: dist.Normal(jnp.where(mean() > 0, PAID, 0.0), 0.6),
    "bernoulli site": lambda: dist.Normal(PAID * one(dist.Bernoulli(0.4), "b"), 0.6),
    "factor": lambda: (numpyro.factor("f", 0.3), dist.Normal(PAID, 0.6))[1],
}
"""No unknown, or nearly none."""


# --- what is particular to rows ---------------------------------------------------------------------------------------
# Each entry is a function without arguments to what the program returns.


def row(*entries):
    """Entries [2 1] each, as rows."""
    return jnp.stack([jnp.broadcast_to(x, (2, 1)) for x in entries], axis=-1)


def single(name="p"):
    """One unknown probability."""
    return one(dist.Beta(2.0, 1.5), name)


def known_pay(rows):
    """Rewards that are numbers."""
    return MDPSpec(rows, PAID)


def _chain_of_rows():
    """The prior of the second row depends on the first."""
    p = single("p")
    q = one(dist.Beta(1.0 + p, 1.0), "q")
    return jnp.array([[[p, 1.0 - p]], [[q, 1.0 - q]]])


TWO_OUTCOMES = {
    "stay or go": of(likely, lambda p: row(p, 1.0 - p)),
    "go or stay": of(likely, lambda p: row(1.0 - p, p)),
    "one for both": of(single, lambda p: row(p, 1.0 - p)),
    "one, turned in one state": of(single, lambda p: jnp.array([[[p, 1.0 - p]], [[1.0 - p, p]]])),
    "complement of the other": of(likely, lambda p: row(p, 1.0 - flipped(p))),
    "complement of another site": lambda: row(single("p"), 1.0 - single("q")),
    "no complement": of(likely, lambda p: row(p, p)),
    "square": of(likely, lambda p: row(p**2, 1.0 - p**2)),
    "root": of(likely, lambda p: row(jnp.sqrt(p), 1.0 - jnp.sqrt(p))),
    "lapse": of(likely, lambda p: row(0.05 + 0.9 * p, 0.95 - 0.9 * p)),
    "leak of 1e-9": of(likely, lambda p: row((1.0 - 1e-9) * p, 1.0 - p)),
    "leak of 1e-6": of(likely, lambda p: row(p, (1.0 - 1e-6) - p)),
    "clipped": of(likely, lambda p: row(jnp.clip(p, 0.01, 0.99), 1.0 - jnp.clip(p, 0.01, 0.99))),
    "rounded": of(likely, lambda p: row(jnp.round(p, 2), 1.0 - jnp.round(p, 2))),
    "normalised": of(likely, lambda p: row(p, 1.0 - p) / row(p, 1.0 - p).sum(-1, keepdims=True)),
    "logistic": of(mean, lambda z: row(jax.nn.sigmoid(z), jax.nn.sigmoid(-z))),
    "logits of a beta": of(likely, lambda p: jax.nn.softmax(row(jnp.log(p), jnp.log1p(-p)))),
    "gamma ratio": of(lambda: single("p"), lambda: single("q"), lambda a, b: row(a / (a + b), b / (a + b))),
    "uniform": of(lambda: cells(dist.Uniform(0.0, 1.0)), lambda p: row(p, 1.0 - p)),
    "kumaraswamy": of(lambda: cells(dist.Kumaraswamy(2.0, 1.0)), lambda p: row(p, 1.0 - p)),
    "chosen by itself": of(likely, lambda p: row(jnp.where(p > 0.5, p, 0.5), jnp.where(p > 0.5, 1.0 - p, 0.5))),
    "sorted row": of(likely, lambda p: jnp.sort(row(p, 1.0 - p), axis=-1)),
    "product": of(likely, lambda p: row(p * flipped(p), 1.0 - p * flipped(p))),
    "mean of both": of(likely, lambda p: row(p.mean(), 1.0 - p.mean())),
    "float32 row": of(lambda: likely().astype(jnp.float32), lambda p: row(p, 1.0 - p)),
    "float16 row": of(likely, lambda p: row(p, 1.0 - p).astype(jnp.float16)),
    "scaled site": of(lambda: _scaled(dist.Beta(2.0, 1.5)), lambda p: row(p, 1.0 - p)),
    "one known row": of(single, lambda p: jnp.array([[[p, 1.0 - p]], [[0.3, 0.7]]])),
    "one known entry": of(single, lambda p: jnp.array([[[p, 1.0 - p]], [[p, 0.7]]])),
    "one absorbing row": of(single, lambda p: jnp.array([[[p, 1.0 - p]], [[0.0, 1.0]]])),
    "dirichlet": lambda: cells(dist.Dirichlet(jnp.array([2.0, 1.5])), "d"),
    "dirichlet, one less the other": of(
        lambda: cells(dist.Dirichlet(jnp.array([2.0, 1.5])), "d"), lambda d: row(d[..., 0], 1.0 - d[..., 0])
    ),
    "dirichlet, one less each": lambda: 1.0 - cells(dist.Dirichlet(jnp.array([2.0, 1.5])), "d"),
    "dirichlet, turned in one state": of(
        lambda: one(dist.Dirichlet(jnp.array([2.0, 1.5])), "d"), lambda d: jnp.stack([d, d[::-1]])[:, None]
    ),
    "dirichlet of two cells": of(
        lambda: cells(dist.Dirichlet(jnp.array([2.0, 1.5])), "d"), lambda d: row(d[..., 0], flipped(d)[..., 1])
    ),
    "dirichlet of three, folded": of(three, lambda d: row(d[0] + d[1], d[2])),
    "dirichlet of three, cut": of(three, lambda d: row(d[0], d[1])),
    "dirichlet of three, renormalised": of(three, lambda d: row(d[0] / (d[0] + d[1]), d[1] / (d[0] + d[1]))),
    "dirichlet, tempered": of(
        lambda: cells(dist.Dirichlet(jnp.array([2.0, 1.5])), "d"), lambda d: d**2 / (d**2).sum(-1, keepdims=True)
    ),
    "dirichlet, smoothed": lambda: 0.9 * cells(dist.Dirichlet(jnp.array([2.0, 1.5])), "d") + 0.05,
    "tiny offset, tiny probabilities": of(lambda: cells(dist.Beta(1.0, 1e12)), lambda p: row(p + 1e-12, 1.0 - p)),
    "slip of another": of(
        lambda: single("p"), lambda: single("q"), lambda p, q: row(p * q + (1 - p) * (1 - q), p * (1 - q) + (1 - p) * q)
    ),
    "chain of sites": _chain_of_rows,
}

THREE_OUTCOMES = {
    "leaky": of(likely, lambda p: row(0.9 * p, 0.9 * (1.0 - p), 0.1)),
    "leak beside": of(likely, lambda p: row(p, 0.9 - p, 0.1)),
    "unknown leak": of(lambda: single("p"), lambda: single("e"), lambda p, e: row((1 - e) * p, (1 - e) * (1 - p), e)),
    "unknown leak, another order": of(
        lambda: single("p"), lambda: single("e"), lambda p, e: row(e * p, 1.0 - e, e * (1 - p))
    ),
    "beta beside zero": of(likely, lambda p: row(p, 0.0, 1.0 - p)),
    "beta beside 1e-13": of(likely, lambda p: row(p, 1e-13, 1.0 - p)),
    "beta twice": of(likely, lambda p: row(p, 1.0 - p, p)),
    "halves": of(likely, lambda p: row(0.5 * p, 1.0 - p, 0.5 * p)),
    "two betas": of(lambda: single("p"), lambda: single("q"), lambda p, q: row(p, q, 1.0 - p - q)),
    "binomial row": of(likely, lambda p: row(p**2, 2 * p * (1 - p), (1 - p) ** 2)),
    "padded dirichlet": of(lambda: one(dist.Dirichlet(jnp.array([2.0, 1.5])), "d"), lambda d: row(d[0], d[1], 0.0)),
    "dirichlet scattered": of(three, lambda d: jnp.stack([d, d[np.array([2, 0, 1])]])[:, None]),
    "dirichlet with a known end": of(
        lambda: one(dist.Dirichlet(jnp.array([2.0, 1.5])), "d"), lambda d: row(0.8 * d[0], 0.8 * d[1], 0.2)
    ),
    "one less the others": of(three, lambda d: row(d[0], d[1], 1.0 - d[0] - d[1])),
    "beta row and dirichlet row": of(
        single,
        lambda: one(dist.Dirichlet(jnp.array([2.0, 1.5])), "d"),
        lambda p, d: jnp.array([[[p, 0.0, 1.0 - p]], [[d[0], d[1], 0.0]]]),
    ),
    "beta in a dirichlet row": of(
        single, lambda: one(dist.Dirichlet(jnp.array([2.0, 1.5])), "d"), lambda p, d: row(p, d[0], d[1])
    ),
    "stick breaking": of(
        lambda: single("v"), lambda: single("w"), lambda v, w: row(v, w * (1.0 - v), (1.0 - w) * (1.0 - v))
    ),
}


def _with_row(law):
    """The element of the row is in the reward too."""
    p = likely()
    return MDPSpec(row(p, 1.0 - p), law(p))


def _reward_above_row():
    """The prior of the row depends on the mean reward."""
    m = shared_mean()
    p = one(dist.Beta(1.0 + m**2, 1.0), "p")
    return MDPSpec(row(p, 1.0 - p), dist.Normal(m, 0.6))


BOTH_LAWS = {
    "row element is paid": lambda: _with_row(dist.Bernoulli),
    "row complement is paid": lambda: _with_row(lambda p: dist.Bernoulli(1.0 - p)),
    "row element in a mean": lambda: _with_row(lambda p: dist.Normal(2.0 * p, 0.6)),
    "row element in a known reward": lambda: _with_row(lambda p: 2.0 * p),
    "row element in a noise": lambda: _with_row(lambda p: dist.Normal(PAID, 0.5 + p)),
    "row element times zero": lambda: _with_row(lambda p: dist.Normal(0.0 * p + PAID, 0.5)),
    "row element, cancelled": lambda: _with_row(lambda p: dist.Normal(p - p + PAID, 0.5)),
    "dirichlet in both": of(
        lambda: cells(dist.Dirichlet(jnp.array([2.0, 1.5])), "d"), lambda d: MDPSpec(d, dist.Categorical(d))
    ),
    "reward parameter in a concentration": _reward_above_row,
    "row and reward, independent": of(
        single, shared_mean, lambda p, m: MDPSpec(row(p, 1.0 - p), dist.Normal(1.0 - 2.0 * m, 0.6))
    ),
    "by outcome": lambda: MDPSpec(ROWS, dist.Normal(mean()[..., None] * jnp.array([1.0, -2.0]), 0.6).to_event(1)),
    "by outcome, complement": of(
        likely, lambda p: MDPSpec(ROWS, dist.Bernoulli(jnp.stack([p, 1.0 - p], axis=-1)).to_event(1))
    ),
    "by outcome, noise in proportion": lambda: MDPSpec(
        ROWS, dist.Normal(mean()[..., None] * jnp.array([1.0, -2.0]), jnp.array([0.5, 1.0])).to_event(1)
    ),
    "by outcome, categorical of the outcome": lambda: MDPSpec(
        ROWS, dist.Categorical(jnp.broadcast_to(three(), (2, 1, 2, 3))).to_event(1)
    ),
}


def particular() -> Iterator[NearMiss]:
    """The mutations of one form alone."""
    laws = {
        "normal": NORMAL_LAWS,
        "precision": PRECISION_LAWS,
        "normal-gamma": NORMAL_GAMMA_LAWS,
        "log-normal": LOG_NORMAL_LAWS,
        "counts": COUNT_LAWS,
        "categorical": CATEGORICAL_LAWS,
        "regression": REGRESSION_LAWS,
        "known": KNOWN_LAWS,
    }
    for form, table in laws.items():
        for change, law in table.items():
            tolerance = ROUNDED if "float32" in change else EXACT
            yield NearMiss(f"{form}: {change}", lambda space, law=law: MDPSpec(ROWS, law()), tolerance=tolerance)
    for change, rows in TWO_OUTCOMES.items():
        tolerance = ROUNDED if "float32" in change else EXACT
        yield NearMiss(f"row: {change}", lambda space, rows=rows: known_pay(rows()), tolerance=tolerance)
    for change, rows in THREE_OUTCOMES.items():
        yield NearMiss(f"row of three: {change}", lambda space, rows=rows: known_pay(rows()), ENDING)
    for change, spec in BOTH_LAWS.items():
        yield NearMiss(f"both laws: {change}", lambda space, spec=spec: spec())
