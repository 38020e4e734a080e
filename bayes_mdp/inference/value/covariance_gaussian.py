"""`LinearGaussian` that keeps the covariances themselves, by the formulas of [UBE18]."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from bayes_mdp.inference.value.feature_rows import check_row_values, check_rows
from bayes_mdp.inference.value.gaussian_algebra import (
    coloured,
    learn,
    posterior_root,
    predictive,
    shrink_block,
    shrink_one,
    some_root,
)


class CovarianceGaussian(eqx.Module):
    """w_a ~ N(mean_a, noise_variance covariance_a), independent between actions.

    Methods and units are those of `LinearGaussian`. In float32 the error of phi' Sigma_a phi is not relative to itself,
    but 1e-6 to 1e-4 of |phi|^2 times the largest variance left. With nearly collinear features smaller variances are
    noise, Sigma_a becomes indefinite, and then it grows: with a prior variance of 100 and |phi| = 1 it was NaN between
    2 x 10^5 and 10^6 rows. Rebuild before that, or keep the square root.

    Args:
        covariance: Sigma_a = (I / prior_variance + Phi_a' Phi_a)^-1, in units of the noise.
        mean: of the weights.
        prior_variance: of every weight before data, in units of the noise.
        noise_variance: of a target around its mean; 1 as in [UBE18].
    """

    covariance: Float[Array, "A D D"]
    mean: Float[Array, "A D"]
    prior_variance: Float[Array, ""]
    noise_variance: Float[Array, ""]

    def variance(self, features: Float[Array, "B D"]) -> Float[Array, "B A"]:
        """phi' Sigma_a phi, of every action's value, noise left out."""
        spread = jnp.einsum("bd,ade->abe", features, self.covariance)
        return self.noise_variance * jnp.maximum(jnp.einsum("abe,be->ba", spread, features), 0.0)

    def initial_variance(self, features: Float[Array, "B D"]) -> Float[Array, " B"]:
        """What `variance` was before data, the same for every action."""
        return self.noise_variance * self.prior_variance * jnp.sum(features**2, -1)

    def value(self, features: Float[Array, "B D"]) -> Float[Array, "B A"]:
        """Posterior mean of the value of every action."""
        return features @ self.mean.T

    def log_prob(
        self, features: Float[Array, "K D"], action: Int[Array, " K"], target: Float[Array, " K"]
    ) -> Float[Array, " K"]:
        """Predictive log-density of each target alone."""
        return predictive(self.value(features), self.variance(features), self.noise_variance, action, target)

    def sample(self, key: PRNGKeyArray) -> Float[Array, "A D"]:
        """Weights drawn from the posterior, through the Cholesky factors."""
        return self.mean + jnp.sqrt(self.noise_variance) * coloured(key, some_root(self.covariance))

    def update(
        self,
        features: Float[Array, "K D"],
        action: Int[Array, " K"],
        target: Float[Array, " K"] | None = None,
        weight: Float[Array, " K"] | None = None,
    ) -> "CovarianceGaussian":
        """After K targets; arguments as in `LinearGaussian.update`."""
        check_rows(features, action, target, weight, self.mean.shape)
        shrinks = shrink_one, shrink_block
        covariance, mean = learn(shrinks, self.covariance, self.mean, (features, action, target, weight))
        return CovarianceGaussian(covariance, mean, self.prior_variance, self.noise_variance)

    def rebuild(
        self,
        features: Float[Array, "K D"],
        action: Int[Array, " K"],
        target: Float[Array, " K"] | None = None,
        weight: Float[Array, " K"] | None = None,
    ) -> "CovarianceGaussian":
        """The belief from the prior and these rows alone, as `LinearGaussian.rebuild`."""
        check_rows(features, action, target, weight, self.mean.shape)
        check_row_values(features, action, target, weight, len(self.mean))
        rows = features, action, target, weight
        root, mean = posterior_root(rows, len(self.mean), self.prior_variance)
        return CovarianceGaussian(root @ root.swapaxes(1, 2), mean, self.prior_variance, self.noise_variance)
