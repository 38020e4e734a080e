"""Linear-Gaussian belief about action values: Q(s, a) = phi(s) . w_a, one Gaussian w_a for every action ([UBE18] 4)."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray


class LinearGaussian(eqx.Module):
    """w_a ~ N(mean_a, noise_variance covariance_a), independent between actions.

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
        """phi' Sigma_a phi in units of the squared target: of every action's value, noise left out ([UBE18] eq. 4)."""
        spread = jnp.einsum("bd,ade->abe", features, self.covariance)
        return self.noise_variance * jnp.einsum("abe,be->ba", spread, features)

    def initial_variance(self, features: Float[Array, "B D"]) -> Float[Array, " B"]:
        """What `variance` was before data, the same for every action."""
        return self.noise_variance * self.prior_variance * jnp.sum(features**2, -1)

    def value(self, features: Float[Array, "B D"]) -> Float[Array, "B A"]:
        """Posterior mean of the value of every action."""
        return features @ self.mean.T

    def sample(self, key: PRNGKeyArray) -> Float[Array, "A D"]:
        """Weights drawn from the posterior."""
        root = jnp.linalg.cholesky(self.covariance)
        noise = jax.random.normal(key, self.mean.shape, self.mean.dtype)
        return self.mean + jnp.sqrt(self.noise_variance) * jnp.einsum("ade,ae->ad", root, noise)

    def update(
        self,
        features: Float[Array, "K D"],
        action: Int[Array, " K"],
        target: Float[Array, " K"] | None = None,
        weight: Float[Array, " K"] | None = None,
    ) -> "LinearGaussian":
        """After K targets. One at a time this is Sherman and Morrison's formula ([UBE18] eq. 5), else Woodbury's.

        Args:
            features: where the targets were seen.
            action: of each.
            target: what was seen; None: the mean stays as it is, only the covariance shrinks.
            weight: 0 leaves a row out; default 1.
        """
        chosen = action[:, None] == jnp.arange(len(self.covariance))  # K A
        chosen = chosen if weight is None else chosen * weight[:, None]
        rows = jnp.sqrt(chosen.T[:, :, None].astype(features.dtype)) * features  # A K D, zero where not meant
        spread = rows @ self.covariance  # A K D
        inner = jnp.eye(len(action)) + spread @ rows.swapaxes(1, 2)  # A K K
        if len(action) == 1:
            gain = spread / inner
        else:
            root = jnp.linalg.cholesky(inner)
            gain = jax.scipy.linalg.cho_solve((root, True), spread)
        covariance = self.covariance - spread.swapaxes(1, 2) @ gain
        mean = self.mean
        if target is not None:
            miss = jnp.sqrt(chosen.T) * (target - jnp.einsum("kd,ad->ak", features, self.mean))
            mean = mean + jnp.einsum("akd,ak->ad", gain, miss)
        return eqx.tree_at(lambda b: (b.covariance, b.mean), self, (covariance, mean))


class LinearGaussianPrior(eqx.Module):
    """Independent weights N(0, noise_variance variance).

    Args:
        variance: of a weight, in units of the noise; mu in [UBE18].
        noise_variance: of a target around its mean.
    """

    variance: Any = 1.0
    noise_variance: Any = 1.0

    def belief(self, n_actions: int, num_features: int) -> LinearGaussian:
        """The belief before data."""
        covariance = jnp.broadcast_to(self.variance * jnp.eye(num_features), (n_actions, num_features, num_features))
        mean = jnp.zeros((n_actions, num_features))
        return LinearGaussian(
            covariance, mean, jnp.asarray(self.variance, float), jnp.asarray(self.noise_variance, float)
        )
