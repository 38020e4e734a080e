"""Linear-Gaussian beliefs about action values: Q(s, a) = phi(s) . w_a, one Gaussian w_a for every action ([UBE18] 4).

One algebra, two parametrisations of Sigma_a = (I / prior_variance + Phi_a' Phi_a)^-1, the covariance of the weights in
units of the noise: a square root of it (`LinearGaussian`), or the matrix itself (`CovarianceGaussian`). First the
checks and the algebra that all beliefs about a last layer share: matrices of A actions, [A D D], updated by rows.
"""

import abc
from collections.abc import Callable
from functools import partial
from typing import ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from bayes_mdp.numerics.products import einsum, matmul
from bayes_mdp.utils.typing import AnyArray
from bayes_mdp.utils.validation import check_count, check_positive


def check_rows(
    features: AnyArray, action: AnyArray, target: AnyArray | None, weight: AnyArray | None, shape: tuple[int, ...]
) -> None:
    """Shapes of K rows for a belief of `shape` (A, D): static, at no cost in a compiled loop."""
    n_actions, width = shape
    if features.ndim != 2 or features.shape[1] != width:
        raise ValueError(
            f"features has shape {features.shape}, expected (K, {width}) (row, feature); actions: {n_actions}"
        )
    for name, values in (("action", action), ("target", target), ("weight", weight)):
        if values is not None and values.shape != features.shape[:1]:
            raise ValueError(f"{name} has shape {values.shape}, expected {features.shape[:1]} (row)")


ShrinkByRow = Callable[[Array, Array, Array, bool], tuple[Array, Array]]
"""(matrices, row, action, masked) -> the matrices after the row, and its gain."""
ShrinkByBlock = Callable[[Array, Array, Array], tuple[Array, Array]]
"""(matrices, rows, actions) -> the matrices after all rows, and the gain of each."""
Matrices = Float[Array, "A D D"]
Rows = tuple[Float[Array, "K D"], Int[Array, " K"], Float[Array, " K"] | None]
"""K rows: features, action, target."""
OneRow = tuple[Float[Array, " D"], Int[Array, ""], Float[Array, ""] | None]


def shrink_one(
    covariance: Matrices, row: Float[Array, " D"], action: Int[Array, ""], masked: bool = False
) -> tuple[Matrices, Float[Array, " D"]]:
    """Sigma - v v' / (1 + n) with v = Sigma row, n = row' v, of this action ([UBE18] eq. 5), and the gain v / (1 + n).

    The subtracted matrix g g' is symmetric to the last bit; v (v / (1 + n))' is not, and its rounding errors grow
    without bound. `masked`: all actions are computed and the others not changed, cheaper than indexing where there are
    two.
    """
    if masked:
        # The row of the action taken, zeros for all others: their matrices change by nothing.
        rows = jnp.where(jnp.arange(len(covariance))[:, None] == action, row, 0.0)
        v = einsum("ade,ae->ad", covariance, rows)
        scale = jax.lax.rsqrt(1 + jnp.maximum(jnp.sum(v * rows, 1, keepdims=True), 0.0))
        g = v * scale
        return covariance - g[:, :, None] * g[:, None, :], jnp.sum(g * scale, 0)
    v = matmul(covariance[action], row)
    scale = jax.lax.rsqrt(1 + jnp.maximum(matmul(row, v), 0.0))
    # Sherman-Morrison, with a root of the denominator in either factor.
    g = v * scale
    return covariance.at[action].add(-g[:, None] * g), g * scale


def shrink_root_one(
    root: Matrices, row: Float[Array, " D"], action: Int[Array, ""], masked: bool = False
) -> tuple[Matrices, Float[Array, " D"]]:
    """A square root of Sigma after a row: S - c S f f', f = S' row, c = 1 / (1 + n + sqrt(1 + n)) (Potter 1963)."""
    if masked:
        rows = jnp.where(jnp.arange(len(root))[:, None] == action, row, 0.0)
        f = einsum("ad,ade->ae", rows, root)
        total = 1 + jnp.sum(f * f, 1, keepdims=True)
        v = einsum("ade,ae->ad", root, f)
        return root - (v / (total + jnp.sqrt(total)))[:, :, None] * f[:, None, :], jnp.sum(v / total, 0)
    f = matmul(row, root[action])
    total = 1 + matmul(f, f)
    v = matmul(root[action], f)
    return root.at[action].add(-(v / (total + jnp.sqrt(total)))[:, None] * f), v / total


def shrink_root_block(
    root: Matrices, rows: Float[Array, "K D"], action: Int[Array, " K"]
) -> tuple[Matrices, Float[Array, "A K D"]]:
    """The same for K rows at once, and the gain of every row, zero for the other actions.

    S - S Q' (I + P)^-1 Q, with F = rows S, L L' = I + F F', P = L^-1 and Q = L^-1 F (Andrews 1968). Cholesky's factor
    of I + F F' loses what I adds to rows that are nearly alike, all of it at a prior variance of 10^6 and 128 rows. So
    (P Q) are (I F) with orthonormal rows, by CholeskyQR with a shift and two repetitions (Fukaya, Kannan, Nakatsukasa,
    Yamamoto and Yanagisawa 2020): products and small triangles alone, which a GPU does quickly.
    """
    # Rows of every action; zeros where another one was taken.
    of_action = jnp.where((action == jnp.arange(len(root))[:, None])[:, :, None], rows, 0.0)
    f = matmul(of_action, root)
    eye = jnp.eye(len(action), dtype=f.dtype)
    stacked = jnp.concatenate([jnp.broadcast_to(eye, (len(root), *eye.shape)), f], 2)
    for shift in (4.0 * jnp.finfo(f.dtype).eps, 0.0, 0.0):
        # Square the stack, factorise, divide: after three rounds its rows are orthonormal to rounding.
        square = matmul(stacked, stacked.swapaxes(1, 2))
        # At first more than what rounding has made of the smallest eigenvalue, which is 1; the repetitions undo it.
        raised = shift * jnp.trace(square, axis1=1, axis2=2)[:, None, None]
        lower = jnp.linalg.cholesky(square + raised * eye)
        stacked = jax.scipy.linalg.solve_triangular(lower, stacked, lower=True)
    # Orthonormal (P Q): P = L^-1, Q = L^-1 F without forming I + F F'.
    p, q = stacked[:, :, : len(action)], stacked[:, :, len(action) :]
    v = matmul(root, q.swapaxes(1, 2))
    later = root - matmul(v, jax.scipy.linalg.solve_triangular(eye + p, q, lower=True))
    return later, matmul(v, p).swapaxes(1, 2)


def learn(
    shrinks: tuple[ShrinkByRow, ShrinkByBlock | None],
    matrix: Matrices,
    mean: Float[Array, "A D"],
    rows: tuple[Float[Array, "K D"], Int[Array, " K"], Float[Array, " K"] | None, Float[Array, " K"] | None],
) -> tuple[Matrices, Float[Array, "A D"]]:
    """Matrix and mean after K rows: features, action, target, weight. `shrinks`: by a row, by a block (None: never)."""
    features, action, target, weight = rows
    # A row of weight w counts as sqrt(w) times the row and its target.
    if weight is not None:
        root = jnp.sqrt(weight)
        features = features * root[:, None]
        target = None if target is None else target * root
    # With one or two actions computing all of them is cheaper than an indexed update.
    learn_row = partial(_learn_one, shrinks[0], masked=len(matrix) <= 2)
    if len(action) == 1:
        return learn_row((matrix, mean), jax.tree.map(lambda x: x[0], (features, action, target)))
    learn_row = partial(_learn_one, shrinks[0], masked=False)

    def in_turn(now: tuple[Array, Array], rows: Rows) -> tuple[Array, Array]:
        return jax.lax.scan(lambda x, row: (learn_row(x, row), None), now, rows)[0]

    now, scaled = (matrix, mean), (features, action, target)
    if shrinks[1] is None:
        return in_turn(now, scaled)
    # On a CPU one row after the other takes a tenth to the whole of a block's time (D 84 to 512, K 10 to 512).
    return jax.lax.platform_dependent(now, scaled, cpu=in_turn, default=partial(learn_block, shrinks[1]))


def learn_block(block: ShrinkByBlock, now: tuple[Array, Array], rows: Rows) -> tuple[Matrices, Float[Array, "A D"]]:
    """Matrix and mean after K rows (features, action, target or None) at once."""
    (matrix, mean), (features, action, target) = now, rows
    matrix, gain = block(matrix, features, action)
    if target is None:
        return matrix, mean
    # The innovation of every row under the means before the block.
    innovation = target - jnp.sum(features * mean[action], 1)
    return matrix, mean + einsum("akd,k->ad", gain, innovation)


def _learn_one(shrink: ShrinkByRow, now: tuple[Array, Array], row: OneRow, masked: bool) -> tuple[Array, Array]:
    (matrix, mean), (x, action, target) = now, row
    matrix, gain = shrink(matrix, x, action, masked)
    # Kalman update of the mean: gain times innovation.
    return matrix, mean if target is None else mean.at[action].add(gain * (target - matmul(x, mean[action])))


def predictive(
    mean: Float[Array, "K A"],
    variance: Float[Array, "K A"],
    noise: Float[Array, ""],
    action: Int[Array, " K"],
    target: Float[Array, " K"],
) -> Float[Array, " K"]:
    """Log-density of targets under N(mean, variance + noise) of their action."""
    # The variance of a target: that of its mean, plus the noise.
    loc, epistemic = (jnp.take_along_axis(x, action[:, None], 1)[:, 0] for x in (mean, variance))
    return jax.scipy.stats.norm.logpdf(target, loc, jnp.sqrt(epistemic + noise))


def colour_noise(key: PRNGKeyArray, root: Matrices) -> Float[Array, "A D"]:
    """Draws of N(0, root root')."""
    return einsum("ade,ae->ad", root, jax.random.normal(key, root.shape[:2], root.dtype))


def some_root(covariance: Matrices) -> Matrices:
    """Cholesky's factor; where rounding has left the covariance indefinite, the root of its positive part."""
    lower = jnp.linalg.cholesky(covariance)

    def positive_part() -> Matrices:
        # Negative eigenvalues are rounding: they count as zero.
        values, vectors = jnp.linalg.eigh(covariance)
        return vectors * jnp.sqrt(jnp.maximum(values, 0.0))[:, None, :]

    # Cholesky fails (nan) on a matrix that rounding has made indefinite: only then the slower eigenvalues.
    return jax.lax.cond(jnp.all(jnp.isfinite(lower)), lambda: lower, positive_part)


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
    shrinks: ClassVar[tuple[ShrinkByRow, ShrinkByBlock | None]]

    @property
    @abc.abstractmethod
    def root(self) -> Matrices:
        """A square root of Sigma_a."""

    @abc.abstractmethod
    def variance(self, features: Float[Array, "B D"]) -> Float[Array, "B A"]:
        """phi' Sigma_a phi in units of the squared target: of every action's value, noise left out ([UBE18] eq. 4)."""

    def initial_variance(self, features: Float[Array, "B D"]) -> Float[Array, " B"]:
        """What `variance` was before data, the same for every action."""
        # Before data Sigma_a = prior_variance I: the variance is that times |phi|^2.
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
        # mean + sqrt(noise) S z has covariance noise S S'.
        return self.mean + jnp.sqrt(self.noise_variance) * colour_noise(key, self.root)

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


class LinearGaussian(LastLayerGaussian):
    """w_a ~ N(mean_a, noise_variance root_a root_a'), independent between actions; `matrix` is `root`.

    From [UBE18] section 4. A square root is stored, any S_a with S_a S_a' = Sigma_a (not triangular): no variance
    is negative, and in float32 the error of phi' Sigma_a phi is relative: after 10^5 rows below 1e-4 for features
    of good condition, 4e-3 for nearly collinear ones (condition of Sigma_a 10^7), 7e-2 after 4 x 10^6 rows of
    those. At a prior variance of 10^6 the first rows leave up to 1e-3, a first block of 128 rows on a GPU
    4e-3; later rows take it away.
    """

    shrinks: ClassVar[tuple[ShrinkByRow, ShrinkByBlock | None]] = (shrink_root_one, shrink_root_block)

    @property
    def root(self) -> Matrices:
        """S_a."""
        return self.matrix

    @property
    def covariance(self) -> Matrices:
        """Sigma_a."""
        return matmul(self.matrix, self.matrix.swapaxes(1, 2))

    def variance(self, features: Float[Array, "B D"]) -> Float[Array, "B A"]:
        """phi' Sigma_a phi, as the squared norm of phi' S_a."""
        # |phi' S_a|^2: a sum of squares cannot be negative.
        return self.noise_variance * jnp.sum(einsum("bd,ade->bae", features, self.matrix) ** 2, -1)


class CovarianceGaussian(LastLayerGaussian):
    """w_a ~ N(mean_a, noise_variance covariance_a), independent between actions; `matrix` is `covariance`.

    By the formulas of [UBE18]. In float32 the error of phi' Sigma_a phi is not relative, but 1e-6 to 1e-4 of |phi|^2
    times the largest remaining variance. With nearly collinear features smaller variances are noise, Sigma_a becomes
    indefinite, and errors grow: with a prior variance of 100 and |phi| = 1 it was NaN between 2 x 10^5 and 10^6 rows.
    Before that let rows of the replay update a fresh belief, or keep the square root. Rows are taken in turn on every
    device.
    """

    shrinks: ClassVar[tuple[ShrinkByRow, ShrinkByBlock | None]] = (shrink_one, None)

    @property
    def root(self) -> Matrices:
        """Cholesky's factor of Sigma_a, or the root of its positive part."""
        return some_root(self.matrix)

    @property
    def covariance(self) -> Matrices:
        """Sigma_a."""
        return self.matrix

    def variance(self, features: Float[Array, "B D"]) -> Float[Array, "B A"]:
        """phi' Sigma_a phi, not below zero."""
        projected = einsum("bd,ade->abe", features, self.matrix)
        # Rounding may make phi' Sigma_a phi negative: cut off at zero.
        return self.noise_variance * jnp.maximum(einsum("abe,be->ba", projected, features), 0.0)


class LinearGaussianPrior(eqx.Module):
    """Independent weights N(0, noise_variance variance).

    Args:
        variance: of a weight, in units of the noise; mu in [UBE18].
        noise_variance: variance of a target around its mean.
        square_root: keep a square root of every covariance, not the covariance (`CovarianceGaussian`), which may be up
            to a third cheaper and is less exact.

    Raises:
        ValueError: a variance that is not finite and positive. TypeError: no number.
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
        check_count("n_actions", n_actions)
        check_count("num_features", num_features)
        variance, noise = jnp.asarray(self.variance, float), jnp.asarray(self.noise_variance, float)
        # A root of variance I is sqrt(variance) I.
        scale = jnp.sqrt(variance) if self.square_root else variance
        matrix = jnp.broadcast_to(scale * jnp.eye(num_features), (n_actions, num_features, num_features))
        mean = jnp.zeros((n_actions, num_features))
        return (LinearGaussian if self.square_root else CovarianceGaussian)(matrix, mean, variance, noise)
