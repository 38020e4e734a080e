"""Linear algebra shared by beliefs about a last layer: matrices of A actions, [A D D], updated by rows of features."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from bayes_mdp.numerics.products import einsum, matmul

One = Callable[[Array, Array, Array, bool], tuple[Array, Array]]
Block = Callable[[Array, Array, Array], tuple[Array, Array]]
Matrices = Float[Array, "A D D"]
Rows = tuple[Float[Array, "K D"], Int[Array, " K"], Float[Array, " K"] | None]
"""K rows: features, action, target."""
Row = tuple[Float[Array, " D"], Int[Array, ""], Float[Array, ""] | None]


def shrink_one(
    covariance: Matrices, row: Float[Array, " D"], action: Int[Array, ""], masked: bool = False
) -> tuple[Matrices, Float[Array, " D"]]:
    """Sigma - v v' / (1 + n) with v = Sigma row, n = row' v, of this action ([UBE18] eq. 5), and the gain v / (1 + n).

    The subtracted matrix g g' is symmetric to the last bit; v (v / (1 + n))' is not, and its rounding errors grow
    without bound. `masked`: all actions are computed and the others not changed, cheaper than indexing where there are
    two.
    """
    if masked:
        rows = jnp.where(jnp.arange(len(covariance))[:, None] == action, row, 0.0)
        v = einsum("ade,ae->ad", covariance, rows)
        scale = jax.lax.rsqrt(1 + jnp.maximum(jnp.sum(v * rows, 1, keepdims=True), 0.0))
        g = v * scale
        return covariance - g[:, :, None] * g[:, None, :], jnp.sum(g * scale, 0)
    v = matmul(covariance[action], row)
    scale = jax.lax.rsqrt(1 + jnp.maximum(matmul(row, v), 0.0))
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
    both = jnp.concatenate([jnp.broadcast_to(eye, (len(root), *eye.shape)), f], 2)
    for shift in (4.0 * jnp.finfo(f.dtype).eps, 0.0, 0.0):
        square = matmul(both, both.swapaxes(1, 2))
        # At first more than what rounding has made of the smallest eigenvalue, which is 1; the repetitions undo it.
        raised = shift * jnp.trace(square, axis1=1, axis2=2)[:, None, None]
        lower = jnp.linalg.cholesky(square + raised * eye)
        both = jax.scipy.linalg.solve_triangular(lower, both, lower=True)
    p, q = both[:, :, : len(action)], both[:, :, len(action) :]
    v = matmul(root, q.swapaxes(1, 2))
    later = root - matmul(v, jax.scipy.linalg.solve_triangular(eye + p, q, lower=True))
    return later, matmul(v, p).swapaxes(1, 2)


def learn(
    shrinks: tuple[One, Block | None],
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
    one = partial(_learn_one, shrinks[0], masked=len(matrix) <= 2)
    if len(action) == 1:
        return one((matrix, mean), jax.tree.map(lambda x: x[0], (features, action, target)))
    one = partial(_learn_one, shrinks[0], masked=False)

    def in_turn(now: tuple[Array, Array], rows: Rows) -> tuple[Array, Array]:
        return jax.lax.scan(lambda x, row: (one(x, row), None), now, rows)[0]

    now, scaled = (matrix, mean), (features, action, target)
    if shrinks[1] is None:
        return in_turn(now, scaled)
    # On a CPU one row after the other takes a tenth to the whole of a block's time (D 84 to 512, K 10 to 512).
    return jax.lax.platform_dependent(now, scaled, cpu=in_turn, default=partial(learn_block, shrinks[1]))


def learn_block(block: Block, now: tuple[Array, Array], rows: Rows) -> tuple[Matrices, Float[Array, "A D"]]:
    """Matrix and mean after K rows (features, action, target or None) at once."""
    (matrix, mean), (features, action, target) = now, rows
    matrix, gain = block(matrix, features, action)
    if target is None:
        return matrix, mean
    miss = target - jnp.sum(features * mean[action], 1)
    return matrix, mean + einsum("akd,k->ad", gain, miss)


def _learn_one(shrink: One, now: tuple[Array, Array], row: Row, masked: bool) -> tuple[Array, Array]:
    (matrix, mean), (x, action, target) = now, row
    matrix, gain = shrink(matrix, x, action, masked)
    return matrix, mean if target is None else mean.at[action].add(gain * (target - matmul(x, mean[action])))


def posterior_root(
    rows: tuple[Float[Array, "K D"], Int[Array, " K"], Float[Array, " K"] | None, Float[Array, " K"] | None],
    n_actions: int,
    prior_variance: Float[Array, ""],
) -> tuple[Matrices, Float[Array, "A D"]]:
    """A square root of (I / prior_variance + Phi_a' W Phi_a)^-1, and the mean, from K rows.

    R' R = precision, R from the QR factorisation of the rows: forming the precision itself would square the condition
    number.
    """
    features, action, target, weight = rows
    root = jnp.ones(len(action), features.dtype) if weight is None else jnp.sqrt(weight)
    goal = jnp.zeros_like(root) if target is None else target
    eye = jnp.eye(features.shape[1], dtype=features.dtype)

    def of(a: Array) -> tuple[Array, Array]:
        scale = jnp.where(action == a, root, 0.0)
        # The prior is D more rows: I / sqrt(prior_variance), with target 0.
        stacked = jnp.concatenate([features * scale[:, None], eye / jnp.sqrt(prior_variance)])
        goals = jnp.concatenate([goal * scale, jnp.zeros(len(eye), eye.dtype)])
        q, r = jnp.linalg.qr(stacked)
        solve = jax.scipy.linalg.solve_triangular
        return solve(r, eye), solve(r, matmul(q.T, goals))

    return jax.lax.map(of, jnp.arange(n_actions))


def predictive(
    mean: Float[Array, "K A"],
    variance: Float[Array, "K A"],
    noise: Float[Array, ""],
    action: Int[Array, " K"],
    target: Float[Array, " K"],
) -> Float[Array, " K"]:
    """Log-density of targets under N(mean, variance + noise) of their action."""
    loc, epistemic = (jnp.take_along_axis(x, action[:, None], 1)[:, 0] for x in (mean, variance))
    return jax.scipy.stats.norm.logpdf(target, loc, jnp.sqrt(epistemic + noise))


def coloured(key: PRNGKeyArray, root: Matrices) -> Float[Array, "A D"]:
    """Draws of N(0, root root')."""
    return einsum("ade,ae->ad", root, jax.random.normal(key, root.shape[:2], root.dtype))


def some_root(covariance: Matrices) -> Matrices:
    """Cholesky's factor; where rounding has left the covariance indefinite, the root of its positive part."""
    lower = jnp.linalg.cholesky(covariance)

    def positive_part() -> Matrices:
        values, vectors = jnp.linalg.eigh(covariance)
        return vectors * jnp.sqrt(jnp.maximum(values, 0.0))[:, None, :]

    return jax.lax.cond(jnp.all(jnp.isfinite(lower)), lambda: lower, positive_part)
