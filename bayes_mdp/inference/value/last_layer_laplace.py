"""Laplace's approximation [BS94] on a last layer where targets are not Gaussian: successes, counts.

First the laws of a target y given eta = phi . w, exponential families of one parameter ([BS94] section 5.2) with their
canonical link: log p(y) = (y eta - b(eta)) / dispersion + constant.
"""

from functools import partial
from typing import NamedTuple, Protocol, Self, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bayes_mdp.inference.value.linear_gaussian import (
    check_rows,
    colour_noise,
    shrink_root_one,
)
from bayes_mdp.numerics.products import einsum, matmul
from bayes_mdp.utils.validation import check_count, check_not_negative, check_positive, check_that


@runtime_checkable
class Likelihood(Protocol):
    """b with two derivatives, elementwise; b is convex ([BS94] section 5.2)."""

    @property
    def dispersion(self) -> float | Float[Array, ""]:
        """The target's variance is dispersion b''(`eta`), the variance of a target."""
        ...

    def potential(self, eta: Float[Array, "*K"]) -> Float[Array, "*K"]:
        """b(`eta`), the logarithm of the law's normaliser.

        Args:
            eta: the linear predictor phi . w.
        """
        ...

    def mean(self, eta: Float[Array, "*K"]) -> Float[Array, "*K"]:
        """b'(`eta`), the expected target.

        Args:
            eta: the linear predictor phi . w.
        """
        ...

    def curvature(self, eta: Float[Array, "*K"]) -> Float[Array, "*K"]:
        """b''(`eta`), the variance of a target.

        Args:
            eta: the linear predictor phi . w.
        """
        ...

    def check(self, target: Float[Array | np.ndarray, " K"]) -> None:
        """Raise a ValueError that names the first impossible target.

        Args:
            target: observed values of y.
        """
        ...


class Bernoulli(eqx.Module):
    """A target of 0 or 1, or a share between; logit link ([BS94] section 5.2)."""

    @property
    def dispersion(self) -> float:
        """One, the variance of a target in its unit."""
        return 1.0

    def potential(self, eta: Float[Array, "*K"]) -> Float[Array, "*K"]:
        """log(1 + e^`eta`)."""
        # softplus does not overflow where e^eta does.
        return jax.nn.softplus(eta)

    def mean(self, eta: Float[Array, "*K"]) -> Float[Array, "*K"]:
        """The probability of 1."""
        return jax.nn.sigmoid(eta)

    def curvature(self, eta: Float[Array, "*K"]) -> Float[Array, "*K"]:
        """p (1 - p), a variance."""
        # p (1 - p) as a product of two sigmoids: no cancellation near p = 1.
        return jax.nn.sigmoid(eta) * jax.nn.sigmoid(-eta)

    def check(self, target: Float[Array | np.ndarray, " K"]) -> None:
        """From 0 to 1. TypeError: no numbers."""
        check_that("target", target, lambda y: (y >= 0) & (y <= 1), "a number from 0 to 1 (Bernoulli)")


class Poisson(eqx.Module):
    """A count; log link ([BS94] section 5.2)."""

    @property
    def dispersion(self) -> float:
        """One, the variance of a target in its unit."""
        return 1.0

    def potential(self, eta: Float[Array, "*K"]) -> Float[Array, "*K"]:
        """e^`eta`, the rate."""
        return jnp.exp(eta)

    # An exponential is its own derivative: b' = b'' = b.
    mean = curvature = potential

    def check(self, target: Float[Array | np.ndarray, " K"]) -> None:
        """Zero or more. TypeError: no numbers."""
        check_that("target", target, lambda y: np.isfinite(y) & (y >= 0), "a count, zero or greater (Poisson)")


class Gaussian(eqx.Module):
    """A target of known variance; Laplace's approximation is then exact, and `LinearGaussian` cheaper.

    From [BS94] section 5.2.

    Args:
        dispersion: that variance.

    Raises:
        ValueError: `dispersion` is not finite and positive. TypeError: no number.
    """

    dispersion: float | Float[Array, ""] = 1.0

    def __check_init__(self) -> None:
        check_positive("dispersion", self.dispersion)

    def potential(self, eta: Float[Array, "*K"]) -> Float[Array, "*K"]:
        """Half a square of `eta`."""
        return 0.5 * eta**2

    def mean(self, eta: Float[Array, "*K"]) -> Float[Array, "*K"]:
        """`eta` itself."""
        return eta

    def curvature(self, eta: Float[Array, "*K"]) -> Float[Array, "*K"]:
        """One, the variance of a target in its unit."""
        return jnp.ones_like(eta)

    def check(self, target: Float[Array | np.ndarray, " K"]) -> None:
        """Any finite number. TypeError: no numbers."""
        check_that("target", target, np.isfinite, "a finite number")


_HALVINGS, _BISECTIONS = 20, 60
Row = tuple[Float[Array, " D"], Int[Array, ""], Float[Array, ""] | None, Float[Array, ""]]
"""Features, action, target, weight / dispersion."""


class LastLayerLaplace(eqx.Module):
    """w_a ~ N(mean_a, root_a root_a'), independent between actions; a target has mean b'(phi . w_a).

    The covariance is that of Laplace's approximation [BS94]. Same interface as `LinearGaussian`: `NeuralUBE` accepts
    either, and so does `DeepUBE` with `shrink=False`. They give
    no targets: rows are then weighted by b'' at the current mean.

    Args:
        mean: the most probable weights after `fit`; an approximation of them after `update`.
        root: any square root of the inverse Hessian, the covariance of the weights.
        prior_variance: of every weight before data.
        likelihood: of a target given phi . w_a.
        of_response: `value` and `variance` are those of the expected target b'(phi . w_a), by the delta method; else of
            phi . w_a itself, whose variance never grows with data.
    """

    mean: Float[Array, "A D"]
    root: Float[Array, "A D D"]
    prior_variance: Float[Array, ""]
    likelihood: Likelihood
    of_response: bool = eqx.field(static=True)

    @property
    def covariance(self) -> Float[Array, "A D D"]:
        """Of the weights: the inverse Hessian."""
        return matmul(self.root, self.root.swapaxes(1, 2))

    def variance(self, features: Float[Array, "B D"]) -> Float[Array, "B A"]:
        """Variance of `value`: phi' Sigma_a phi, for the expected target times b''(phi . mean_a)^2."""
        # phi' S S' phi as a sum of squares: never negative, whatever the rounding.
        variance = jnp.sum(einsum("bd,ade->bae", features, self.root) ** 2, -1)
        if not self.of_response:
            return variance
        # Delta method: Var b'(eta) is b''(eta)^2 Var eta.
        return self.likelihood.curvature(matmul(features, self.mean.T)) ** 2 * variance

    def initial_variance(self, features: Float[Array, "B D"]) -> Float[Array, " B"]:
        """What `variance` was before data, the same for every action."""
        variance = self.prior_variance * jnp.sum(features**2, -1)
        # Without data eta = 0, and b''(0) the slope of the response.
        return self.likelihood.curvature(jnp.zeros_like(variance)) ** 2 * variance if self.of_response else variance

    def value(self, features: Float[Array, "B D"]) -> Float[Array, "B A"]:
        """Expected target of every action at the mean weights; phi . mean_a if not `of_response`.

        Args:
            features: of B inputs.
        """
        eta = matmul(features, self.mean.T)
        return self.likelihood.mean(eta) if self.of_response else eta

    def sample(self, key: PRNGKeyArray) -> Float[Array, "A D"]:
        """Weights drawn from the approximation."""
        return self.mean + colour_noise(key, self.root)

    def update(
        self,
        features: Float[Array, "K D"],
        action: Int[Array, " K"],
        target: Float[Array, " K"] | None = None,
        weight: Float[Array, " K"] | None = None,
    ) -> Self:
        """The belief after K targets, one by one: each time Laplace's approximation of belief times likelihood.

        Earlier rows are not used again, so the order matters slightly and the mean is only near the most probable one
        of all data (`fit`). Without `target` the mean is unchanged.

        Args:
            features: of the inputs; a row of zeros changes nothing.
            action: of each.
            target: observed, in the unit of its law (a reward, 0 or 1, a count).
            weight: multiplicity of a row; 0 leaves a row out; default 1.

        Raises:
            ValueError: a wrong shape.
        """
        check_rows(features, action, target, weight, self.mean.shape)
        count = jnp.ones(len(action), features.dtype) if weight is None else weight
        # Exponential families enter by weight / dispersion alone.
        rows = features, action, target, count / self.likelihood.dispersion
        if len(action) == 1:
            mean, root = self._learn((self.mean, self.root), jax.tree.map(lambda x: x[0], rows))
        else:
            mean, root = jax.lax.scan(lambda now, row: (self._learn(now, row), None), (self.mean, self.root), rows)[0]
        return eqx.tree_at(lambda b: (b.mean, b.root), self, (mean, root))

    def _learn(self, now: tuple[Array, Array], row: Row) -> tuple[Array, Array]:
        (mean, root), (x, action, target, scale) = now, row
        # The linear predictor before the row.
        eta = matmul(x, mean[action])
        if target is not None:
            # One target depends on the scalar eta = x . w alone: find its mode, then move w along Sigma x.
            variance = jnp.sum(matmul(x, root[action]) ** 2)
            eta = most_probable(self.likelihood, eta, variance * scale, target)
            gradient = scale * (target - self.likelihood.mean(eta))
            # The mean moves along Sigma x, by the gradient at the mode.
            mean = mean.at[action].add(gradient * matmul(root[action], matmul(x, root[action])))
        # One row moves the covariance by rank one: the root shrinks along Sigma x, by the curvature at the new mode.
        curvature = scale * self.likelihood.curvature(eta)
        return mean, shrink_root_one(root, jnp.sqrt(curvature) * x, action)[0]

    def fit(
        self,
        features: Float[Array, "K D"],
        action: Int[Array, " K"],
        target: Float[Array, " K"],
        weight: Float[Array, " K"] | None = None,
        *,
        max_iterations: int = 50,
        tolerance: float = 1e-4,
    ) -> "LaplaceFit":
        """The belief from the prior and these rows alone: most probable weights by Newton's method, inverse Hessian.

        Args:
            features: of the inputs.
            action: of each.
            target: observed, in the unit of its law (a reward, 0 or 1, a count).
            weight: multiplicity of a row; 0 leaves a row out; default 1.
            max_iterations: Newton steps an action; each is halved until the posterior increases.
            tolerance: of the last Newton step, in posterior standard deviations.

        Raises:
            ValueError: a wrong shape, an action that does not exist, a target outside the range of the likelihood, an
                entry that is not finite, a negative weight.
            TypeError: `max_iterations` is no integer, an entry no number.
        """
        check_rows(features, action, target, weight, self.mean.shape)
        for name, values in (("features", features), ("target", target)):
            check_that(name, values, np.isfinite, "a finite number")
        last = len(self.mean) - 1
        check_that("action", action, lambda a: (a >= 0) & (a <= last), f"an action index from 0 to {last}")
        if weight is not None:
            check_not_negative("weight", weight)
        self.likelihood.check(target)
        check_count("max_iterations", max_iterations)
        check_positive("tolerance", tolerance)
        count = jnp.ones(len(action), features.dtype) if weight is None else weight
        # Actions share no weights: one Newton search each, in which the rows of the others have weight zero.
        scales = jnp.where(action == jnp.arange(len(self.mean))[:, None], count, 0.0) / self.likelihood.dispersion
        of_action = partial(_newton, self.likelihood, features, target, self.prior_variance, max_iterations, tolerance)
        mean, root, *diagnostics = jax.lax.map(of_action, scales)
        return LaplaceFit(eqx.tree_at(lambda b: (b.mean, b.root), self, (mean, root)), *diagnostics)


class LaplaceFit(NamedTuple):
    """The result of `LastLayerLaplace.fit`, per action: Laplace's approximation [BS94].

    Args:
        belief: mode and inverse Hessian.
        converged: the last Newton step was within the tolerance.
        iterations: Newton steps taken.
        error: upper bound on |mean - most probable weights|: the prior's variance times the norm of the gradient (the
            log-posterior is strongly concave); exact but for the rounding of the gradient.
        step: length of a further Newton step in posterior standard deviations.
    """

    belief: LastLayerLaplace
    converged: Bool[Array, " A"]
    iterations: Int[Array, " A"]
    error: Float[Array, " A"]
    step: Float[Array, " A"]


class LastLayerLaplacePrior(eqx.Module):
    """Independent weights N(0, variance), for Laplace's approximation [BS94].

    Args:
        likelihood: of a target: `Bernoulli()`, `Poisson()`, `Gaussian(variance)`, or an own `Likelihood`.
        variance: of a weight.
        of_response: as in `LastLayerLaplace`.

    Raises:
        ValueError: `variance` is not finite and positive. TypeError: no number.
    """

    likelihood: Likelihood = Bernoulli()
    variance: float | Float[Array, ""] = 1.0
    of_response: bool = eqx.field(default=True, static=True)

    def __check_init__(self) -> None:
        check_positive("variance", self.variance)

    def belief(self, n_actions: int, num_features: int) -> LastLayerLaplace:
        """The belief before data.

        Raises:
            ValueError: a number below 1. TypeError: no integer.
        """
        check_count("n_actions", n_actions)
        check_count("num_features", num_features)
        variance = jnp.asarray(self.variance, float)
        root = jnp.broadcast_to(jnp.sqrt(variance) * jnp.eye(num_features), (n_actions, num_features, num_features))
        mean = jnp.zeros((n_actions, num_features))
        # Numbers of the likelihood become arrays: a change of them does not compile anew.
        likelihood = jax.tree.map(lambda x: jnp.asarray(x, float), self.likelihood)
        return LastLayerLaplace(mean, root, variance, likelihood, self.of_response)


def most_probable(
    likelihood: Likelihood, loc: Float[Array, ""], variance: Float[Array, ""], target: Float[Array, ""]
) -> Float[Array, ""]:
    """eta of largest N(eta; loc, variance) p(target | eta), dispersion 1: Newton's steps in a bracket or its middle."""
    farthest = loc + variance * (target - likelihood.mean(loc))  # the solution is between `loc` and this

    def residual(eta: Array) -> Array:
        return eta - loc - variance * (target - likelihood.mean(eta))  # increasing in eta

    def continues(now: tuple[Array, ...]) -> Array:
        *_, eta, _, moved, i = now
        # As far as rounding of eta allows.
        return (i < _BISECTIONS) & (moved > 4 * jnp.finfo(eta.dtype).eps * (1 + jnp.abs(eta)))

    def step(now: tuple[Array, ...]) -> tuple[Array, ...]:
        low, high, eta, before, _, i = now
        miss = residual(eta)
        # The residual increases in eta: its sign tells on which side of the solution eta lies.
        low, high = jnp.where(miss < 0, eta, low), jnp.where(miss < 0, high, eta)
        newton, middle = eta - miss / (1 + variance * likelihood.curvature(eta)), 0.5 * (low + high)
        # Newton's step if it stays in the bracket and halves the residual, else bisection.
        good = (newton >= low) & (newton <= high) & (jnp.abs(miss) <= 0.5 * before)
        later = jnp.where(good, newton, middle)
        return low, high, later, jnp.abs(miss), jnp.abs(later - eta), i + 1

    # The solution lies between the belief's mean and where the gradient at it leads: b' is increasing.
    unbounded = jnp.full_like(loc, jnp.inf)
    start = jnp.minimum(loc, farthest), jnp.maximum(loc, farthest), loc, unbounded, unbounded, jnp.zeros((), jnp.int32)
    return jax.lax.while_loop(continues, step, start)[2]


def _newton(
    likelihood: Likelihood,
    features: Float[Array, "K D"],
    target: Float[Array, " K"],
    prior_variance: Float[Array, ""],
    max_iterations: int,
    tolerance: float,
    scale: Float[Array, " K"],
) -> tuple[Array, ...]:
    """Mode, root of the inverse Hessian, converged, iterations, error and step of one action; `scale` weighs rows."""
    halves, counts = 0.5 ** jnp.arange(_HALVINGS), scale > 0  # 0 times infinity is no number

    def log_posterior(w: Array, eta: Array) -> Array:
        return (
            # Log likelihood in canonical form, y eta - b(eta), less |w|^2 / 2 v of the prior.
            jnp.sum(scale * (target * eta - likelihood.potential(eta)), -1) - 0.5 * jnp.sum(w**2, -1) / prior_variance
        )

    def newton(w: Array) -> tuple[Array, Array, Array]:
        """Gradient, root of the inverse Hessian, Newton's direction."""
        eta = matmul(features, w)
        miss = jnp.where(counts, scale * (target - likelihood.mean(eta)), 0.0)
        # Gradient of the log posterior: Phi' (y - b') - w / v.
        gradient = matmul(features.T, miss) - w / prior_variance
        weight = jnp.where(counts, scale * likelihood.curvature(eta), 0.0)
        # Hessian Phi' W Phi + I / v with W = b'': the inverse of R of the QR of the weighted rows, and of the prior as
        # D more rows. Forming the Hessian itself would square the condition number.
        eye = jnp.eye(len(w), dtype=w.dtype)
        r = jnp.linalg.qr(jnp.concatenate([features * jnp.sqrt(weight)[:, None], eye / jnp.sqrt(prior_variance)]))[1]
        root = jax.scipy.linalg.solve_triangular(r, eye)
        # Newton's direction H^-1 gradient = root root' gradient.
        return gradient, root, matmul(root, matmul(root.T, gradient))

    def step(now: tuple[Array, ...]) -> tuple[Array, ...]:
        w, i, _, _, direction, decrement = now
        tries, eta, slope_of_eta = w + halves[:, None] * direction, matmul(features, w), matmul(features, direction)
        # All halvings at once: features @ (w + t d) = eta + t (features @ d). Armijo's rule picks the longest.
        increased = log_posterior(tries, eta + halves[:, None] * slope_of_eta)
        enough = increased >= log_posterior(w, eta) + 1e-4 * halves * decrement**2
        # Near the mode an increase is below rounding: take Newton's full step there.
        w = jnp.where(jnp.any(enough) & (decrement > 1e-2), tries[jnp.argmax(enough)], tries[0])
        return (w, i + 1, *_with_decrement(newton(w)))

    start = jnp.zeros(features.shape[1], features.dtype)
    now = (start, jnp.zeros((), jnp.int32), *_with_decrement(newton(start)))
    w, i, gradient, root, _, decrement = jax.lax.while_loop(
        lambda x: (x[1] < max_iterations) & (x[-1] > tolerance), step, now
    )
    return w, root, decrement <= tolerance, i, prior_variance * jnp.linalg.norm(gradient), decrement


def _with_decrement(newton: tuple[Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
    gradient, root, direction = newton
    # The decrement |root' gradient|: the length of the step in units of the posterior.
    return gradient, root, direction, jnp.linalg.norm(matmul(root.T, gradient))
