"""Laws of a target y given eta = phi . w, canonical link: log p(y) = (y eta - b(eta)) / dispersion + constant.

The exponential families of one parameter ([BS94] section 5.2).
"""

from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bayes_mdp.inference.value.feature_rows import check_positive, require


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
        return jax.nn.softplus(eta)

    def mean(self, eta: Float[Array, "*K"]) -> Float[Array, "*K"]:
        """The probability of 1."""
        return jax.nn.sigmoid(eta)

    def curvature(self, eta: Float[Array, "*K"]) -> Float[Array, "*K"]:
        """p (1 - p), a variance."""
        return jax.nn.sigmoid(eta) * jax.nn.sigmoid(-eta)

    def check(self, target: Float[Array | np.ndarray, " K"]) -> None:
        """From 0 to 1."""
        require("target", target, lambda y: (y >= 0) & (y <= 1), "a number from 0 to 1 (Bernoulli)")


class Poisson(eqx.Module):
    """A count; log link ([BS94] section 5.2)."""

    @property
    def dispersion(self) -> float:
        """One, the variance of a target in its unit."""
        return 1.0

    def potential(self, eta: Float[Array, "*K"]) -> Float[Array, "*K"]:
        """e^`eta`."""
        return jnp.exp(eta)

    def mean(self, eta: Float[Array, "*K"]) -> Float[Array, "*K"]:
        """The rate, e^`eta`."""
        return jnp.exp(eta)

    def curvature(self, eta: Float[Array, "*K"]) -> Float[Array, "*K"]:
        """The rate, e^`eta`."""
        return jnp.exp(eta)

    def check(self, target: Float[Array | np.ndarray, " K"]) -> None:
        """Zero or more."""
        require("target", target, lambda y: np.isfinite(y) & (y >= 0), "a count, zero or greater (Poisson)")


class Gaussian(eqx.Module):
    """A target of known variance; Laplace's approximation is then exact, and `LinearGaussian` cheaper.

    From [BS94] section 5.2.

    Args:
        dispersion: that variance.

    Raises:
        ValueError: `dispersion` is not finite and positive.
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
        """Any finite number."""
        require("target", target, np.isfinite, "a finite number")
