"""Linear-Gaussian beliefs about action values: Q(s, a) = phi(s) . w_a, one Gaussian w_a for every action ([UBE18] 4).

One algebra, two parametrisations of Sigma_a = (I / prior_variance + Phi_a' Phi_a)^-1, the covariance of the weights in
units of the noise: a square root of it (`LinearGaussian`), or the matrix itself (`CovarianceGaussian`).
"""

import abc
from typing import ClassVar, Self

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from bayes_mdp.inference.value.feature_rows import check_positive, check_row_values, check_rows, check_sizes
from bayes_mdp.inference.value.gaussian_algebra import (
    Block,
    Matrices,
    One,
    coloured,
    learn,
    posterior_root,
    predictive,
    shrink_one,
    shrink_root_block,
    shrink_root_one,
    some_root,
)
from bayes_mdp.numerics.products import einsum, matmul


class LastLayerGaussian(eqx.Module):
    """Base of the two: all but what `matrix` is, and how a row shrinks it (`shrinks`: a row alone, a block of rows).

    Args:
        matrix: the parametrisation of Sigma_a, in units of the noise.
        mean: of the weights.
        prior_variance: of every weight before data, in units of the noise.
        noise_variance: of a target around its mean; 1 as in [UBE18].
    """

    matrix: Float[Array, "A D D"]
    mean: Float[Array, "A D"]
    prior_variance: Float[Array, ""]
    noise_variance: Float[Array, ""]
    shrinks: ClassVar[tuple[One, Block | None]]

    @property
    @abc.abstractmethod
    def root(self) -> Matrices:
        """A square root of Sigma_a."""

    @abc.abstractmethod
    def _from_root(self, root: Matrices) -> Matrices:
        """`matrix`, from a square root of Sigma_a."""

    @abc.abstractmethod
    def variance(self, features: Float[Array, "B D"]) -> Float[Array, "B A"]:
        """phi' Sigma_a phi in units of the squared target: of every action's value, noise left out ([UBE18] eq. 4)."""

    def initial_variance(self, features: Float[Array, "B D"]) -> Float[Array, " B"]:
        """What `variance` was before data, the same for every action."""
        return self.noise_variance * self.prior_variance * jnp.sum(features**2, -1)

    def value(self, features: Float[Array, "B D"]) -> Float[Array, "B A"]:
        """Posterior mean of the value of every action."""
        return matmul(features, self.mean.T)

    def log_prob(
        self, features: Float[Array, "K D"], action: Int[Array, " K"], target: Float[Array, " K"]
    ) -> Float[Array, " K"]:
        """Predictive log-density of each target alone; summed over targets in turn it is the log evidence."""
        return predictive(self.value(features), self.variance(features), self.noise_variance, action, target)

    def sample(self, key: PRNGKeyArray) -> Float[Array, "A D"]:
        """Weights drawn from the posterior."""
        return self.mean + jnp.sqrt(self.noise_variance) * coloured(key, self.root)

    def update(
        self,
        features: Float[Array, "K D"],
        action: Int[Array, " K"],
        target: Float[Array, " K"] | None = None,
        weight: Float[Array, " K"] | None = None,
    ) -> Self:
        """After K targets: one by Sherman-Morrison ([UBE18] eq. 5), more in turn, or on a GPU by Woodbury.

        Args:
            features: of the inputs; a row of zeros changes nothing.
            action: of each.
            target: observed; None: the mean is unchanged, only the covariance shrinks.
            weight: multiplicity of each row; 0 leaves a row out; default 1.
        """
        check_rows(features, action, target, weight, self.mean.shape)
        matrix, mean = learn(self.shrinks, self.matrix, self.mean, (features, action, target, weight))
        return type(self)(matrix, mean, self.prior_variance, self.noise_variance)

    def rebuild(
        self,
        features: Float[Array, "K D"],
        action: Int[Array, " K"],
        target: Float[Array, " K"] | None = None,
        weight: Float[Array, " K"] | None = None,
    ) -> Self:
        """The belief from the prior and these rows alone; earlier data are dropped.

        For use when the features have changed: rows of the replay under the current features. Costs about 2 K D^2 an
        action: Cholesky's factor of the precision by the QR of the rows, so that the condition number is not squared.
        Without `target` the mean is that before data, zero. K rows drawn from N steps weigh N / K each.

        Args:
            features, action, target, weight: as in `update`.

        Raises:
            ValueError: a wrong shape, an action that does not exist, an entry that is not finite, a negative weight.
        """
        check_rows(features, action, target, weight, self.mean.shape)
        check_row_values(features, action, target, weight, len(self.mean))
        rows = features, action, target, weight
        root, mean = posterior_root(rows, len(self.mean), self.prior_variance)
        return type(self)(self._from_root(root), mean, self.prior_variance, self.noise_variance)


class LinearGaussian(LastLayerGaussian):
    """w_a ~ N(mean_a, noise_variance root_a root_a'), independent between actions; `matrix` is `root`.

    From [UBE18] section 4. A square root is stored, any S_a with S_a S_a' = Sigma_a (not triangular): no variance
    is negative, and in float32 the error of phi' Sigma_a phi is relative: after 10^5 rows below 1e-4 for features
    of good condition, 4e-3 for nearly collinear ones (condition of Sigma_a 10^7), 7e-2 after 4 x 10^6 rows of
    those. At a prior variance of 10^6 the first rows leave up to 1e-3, a first block of 128 rows on a GPU
    4e-3; later rows take it away.
    """

    shrinks: ClassVar[tuple[One, Block | None]] = (shrink_root_one, shrink_root_block)

    @property
    def root(self) -> Matrices:
        """S_a."""
        return self.matrix

    @property
    def covariance(self) -> Matrices:
        """Sigma_a."""
        return matmul(self.matrix, self.matrix.swapaxes(1, 2))

    def _from_root(self, root: Matrices) -> Matrices:
        return root

    def variance(self, features: Float[Array, "B D"]) -> Float[Array, "B A"]:
        """phi' Sigma_a phi, as the squared norm of phi' S_a."""
        return self.noise_variance * jnp.sum(einsum("bd,ade->bae", features, self.matrix) ** 2, -1)


class CovarianceGaussian(LastLayerGaussian):
    """w_a ~ N(mean_a, noise_variance covariance_a), independent between actions; `matrix` is `covariance`.

    By the formulas of [UBE18]. In float32 the error of phi' Sigma_a phi is not relative, but 1e-6 to 1e-4 of |phi|^2
    times the largest remaining variance. With nearly collinear features smaller variances are noise, Sigma_a becomes
    indefinite, and errors grow: with a prior variance of 100 and |phi| = 1 it was NaN between 2 x 10^5 and 10^6 rows.
    Rebuild before that, or keep the square root. Rows are taken in turn on every device.
    """

    shrinks: ClassVar[tuple[One, Block | None]] = (shrink_one, None)

    @property
    def root(self) -> Matrices:
        """Cholesky's factor of Sigma_a, or the root of its positive part."""
        return some_root(self.matrix)

    @property
    def covariance(self) -> Matrices:
        """Sigma_a."""
        return self.matrix

    def _from_root(self, root: Matrices) -> Matrices:
        return matmul(root, root.swapaxes(1, 2))

    def variance(self, features: Float[Array, "B D"]) -> Float[Array, "B A"]:
        """phi' Sigma_a phi, not below zero."""
        projected = einsum("bd,ade->abe", features, self.matrix)
        return self.noise_variance * jnp.maximum(einsum("abe,be->ba", projected, features), 0.0)


class LinearGaussianPrior(eqx.Module):
    """Independent weights N(0, noise_variance variance).

    Args:
        variance: of a weight, in units of the noise; mu in [UBE18].
        noise_variance: variance of a target around its mean.
        square_root: keep a square root of every covariance, not the covariance (`CovarianceGaussian`), which may be up
            to a third cheaper and is less exact.

    Raises:
        ValueError: a variance that is not finite and positive.
    """

    variance: float | Float[Array, ""] = 1.0
    noise_variance: float | Float[Array, ""] = 1.0
    square_root: bool = eqx.field(default=True, static=True)

    def __check_init__(self) -> None:
        check_positive("variance", self.variance)
        check_positive("noise_variance", self.noise_variance)

    def belief(self, n_actions: int, num_features: int) -> LinearGaussian | CovarianceGaussian:
        """The belief before data.

        Raises:
            ValueError: a number below 1. TypeError: no integer.
        """
        check_sizes(n_actions=n_actions, num_features=num_features)
        variance, noise = jnp.asarray(self.variance, float), jnp.asarray(self.noise_variance, float)
        scale = jnp.sqrt(variance) if self.square_root else variance
        matrix = jnp.broadcast_to(scale * jnp.eye(num_features), (n_actions, num_features, num_features))
        mean = jnp.zeros((n_actions, num_features))
        return (LinearGaussian if self.square_root else CovarianceGaussian)(matrix, mean, variance, noise)
