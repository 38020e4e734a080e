"""Linear-Gaussian beliefs about a last layer, against numpy's float64."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayes_mdp.inference.value import LinearGaussianPrior
from bayes_mdp.inference.value.linear_gaussian import LinearGaussian, learn_block, shrink_root_block, some_root
from tests import tf32

D, PRIOR, NOISE = 16, 100.0, 0.5
ROWS = 100_000
RNG = np.random.default_rng(0)
BOTH = pytest.mark.parametrize("square_root", [True, False])


def features_of(num_rows, kind="relu"):
    """Random rectified units of three inputs, of unit norm (condition of Sigma about 10^7), or Gaussian rows."""
    rng = np.random.default_rng(1)
    if kind == "gaussian":
        return rng.normal(size=(num_rows, D)).astype(np.float32) / np.float32(np.sqrt(D))
    x = np.maximum(rng.normal(size=(num_rows, 6)) @ rng.normal(size=(6, D)), 0)
    x -= x.mean(1, keepdims=True)
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def prior(square_root, **numbers: Any):
    return LinearGaussianPrior(**({"variance": PRIOR, "noise_variance": NOISE} | numbers), square_root=square_root)


def exact(x, y=None, weight=None, variance=PRIOR):
    """Covariance (in units of the noise) and mean of Bayesian linear regression, float64."""
    x, weight = np.asarray(x, np.float64), np.ones(len(x)) if weight is None else weight
    covariance = np.linalg.inv(np.eye(x.shape[1]) / variance + (x.T * weight) @ x)
    return covariance, covariance @ x.T @ (weight * (np.zeros(len(x)) if y is None else y))


@jax.jit
def one_at_a_time(belief, x, action, target):
    """Rows in turn."""
    step = lambda b, row: (b.update(*jax.tree.map(lambda v: v[None], row)), None)  # noqa: E731
    return jax.lax.scan(step, belief, (x, action, target))[0]


def relative_error(belief, action, x, covariance):
    """Largest error of phi' Sigma phi, relative to itself."""
    truth = NOISE * np.einsum("bd,de,be->b", *(np.asarray(v, np.float64) for v in (x, covariance, x)))
    return np.max(np.abs(np.asarray(belief.variance(jnp.asarray(x)))[:, action] / truth - 1))


@pytest.mark.parametrize(
    ("kind", "square_root", "bound"),
    [("relu", True, 1e-2), pytest.param("gaussian", False, 1e-4, marks=pytest.mark.slow)],
)
def test_against_the_direct_inverse_after_many_rows(kind, square_root, bound):
    """10^5 rows in float32; measured 3e-3 and 3e-5 of the variance itself. An action never taken stays untouched."""
    x = features_of(ROWS, kind)
    action, y = jnp.full(ROWS, 1), jnp.asarray(x @ np.linspace(-1, 1, D), jnp.float32)
    belief = one_at_a_time(prior(square_root).belief(3, D), x, action, y)
    covariance, mean = exact(x, np.asarray(y, np.float64))
    assert relative_error(belief, 1, x[:500], covariance) < bound
    found = np.asarray(belief.covariance, np.float64)
    assert np.array_equal(found[1], found[1].T)
    assert np.linalg.eigvalsh(found[1])[0] > 0
    assert np.allclose(belief.mean[1], mean, atol=2e-3)
    assert np.allclose(found[0], PRIOR * np.eye(D))
    assert np.array_equal(belief.mean[0], np.zeros(D))


@pytest.mark.slow
def test_what_the_covariance_loses():
    """On nearly collinear features the covariance form is off by a tenth and more; the root kept three digits."""
    x = features_of(ROWS)
    belief = one_at_a_time(prior(False).belief(3, D), x, jnp.ones(ROWS, int), None)
    assert relative_error(belief, 1, x[:500], exact(x)[0]) > 0.1


def test_a_product_that_is_not_symmetric_is_caught():
    """v (v / (1 + n))' in place of g g': with a wide prior its rounding grows to the size of the answer."""
    x = features_of(20_000, "gaussian")

    def step(s, row):
        v = s @ row
        return s - jnp.outer(v, v / (1 + row @ v)), None

    broken = jax.jit(lambda s: jax.lax.scan(step, s, x)[0])(1e4 * jnp.eye(D))
    ours = one_at_a_time(prior(False, variance=1e4).belief(3, D), x, jnp.zeros(len(x), int), None).covariance[0]
    truth = exact(x, variance=1e4)[0]
    assert np.max(np.abs(ours - truth)) < 1e-4 * np.max(truth)
    assert np.max(np.abs(broken - truth)) > 1e-2 * np.max(truth)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("n_actions", "square_root"),
    [(2, True), (3, False), *(pytest.param(*x, marks=pytest.mark.slow) for x in ((3, True), (2, False)))],
)
def test_mixed_actions_weights_and_blocks(n_actions, square_root, x64):
    """In turn and as a block: the closed form of every action, to rounding; masked and picked alike."""
    x, y = RNG.normal(size=(12, D)), RNG.normal(size=12)
    action, weight = RNG.integers(0, n_actions, 12), np.where(np.arange(12) == 5, 0.0, RNG.uniform(0.2, 3, 12))
    rows = [jnp.asarray(v) for v in (x, action, y, weight)]
    start = prior(square_root).belief(n_actions, D)
    single = start
    for k in range(12):
        single = single.update(*(v[k : k + 1] for v in rows))
    beliefs = [single, start.update(*rows)]
    if isinstance(start, LinearGaussian):
        scaled = rows[0] * jnp.sqrt(rows[3])[:, None], rows[1], rows[2] * jnp.sqrt(rows[3])
        root, mean = learn_block(shrink_root_block, (start.root, start.mean), scaled)
        beliefs.append(LinearGaussian(root, mean, start.prior_variance, start.noise_variance))
    for belief in beliefs:
        for a in range(n_actions):
            mine = action == a
            covariance, mean = exact(x[mine], y[mine], weight[mine])
            assert np.allclose(belief.covariance[a], covariance, rtol=1e-8, atol=1e-8)
            assert np.allclose(belief.mean[a], mean, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    ("variance", "bound", "products"),
    [
        (1e6, 1e-2, "tf32"),
        (1e8, 1e-1, "tf32"),
        pytest.param(1e6, 1e-2, "float32", marks=pytest.mark.slow),
        pytest.param(1e2, 5e-4, "tf32", marks=pytest.mark.slow),
    ],
)
def test_blocks_of_128_rows_with_a_wide_prior(variance, bound, products, request):
    """In turn, and at once as a GPU does: rows of four kinds, all alike or of any direction, in one block and in eight.

    By Cholesky's factor of I + F F' the variances are nan, or wrong by .7 and more, from a prior variance of 1e6 on.
    """
    if products == "tf32":
        request.getfixturevalue("gpu_products")
    rng = np.random.default_rng(5)
    kinds = [
        np.eye(D)[rng.integers(0, 4, (8, 128))],
        np.repeat(rng.normal(size=(8, 1, D)), 128, 1) / 4,
        rng.normal(size=(8, 128, D)) / 4,
        np.maximum(rng.normal(size=(8, 128, D)) + 0.5, 0) / 4,
    ]
    blocks = np.stack(kinds).astype(np.float32)
    target, action = (blocks @ np.linspace(-1, 1, D)).astype(np.float32), rng.integers(0, 2, (8, 128))

    def learnt(blocks: Any, target: Any) -> Any:
        def step(belief: Any, rows: Any) -> Any:
            belief = belief.update(*rows)
            return belief, (belief.variance(blocks[0]), belief.value(blocks[0]))

        return jax.lax.scan(step, prior(True, variance=variance).belief(2, D), (blocks, action, target))[1]

    found = [np.asarray(x) for x in jax.jit(jax.vmap(learnt))(blocks, target)]
    for kind, (x, y) in enumerate(zip(blocks.astype(float), target.astype(float), strict=True)):
        for count in (1, 8):
            for a in range(2):
                mine = action[:count] == a
                covariance, mean = exact(x[:count][mine], y[:count][mine], variance=variance)
                truth = NOISE * np.einsum("bd,de,be->b", x[0], covariance, x[0])
                tf32.MEASURED.append(float(np.max(np.abs(found[0][kind, count - 1, :, a] / truth - 1))))
                np.testing.assert_allclose(found[0][kind, count - 1, :, a], truth, rtol=bound)
                np.testing.assert_allclose(found[1][kind, count - 1, mine[0], a], (x[0] @ mean)[mine[0]], atol=bound)


@pytest.mark.few(1)
@BOTH
def test_what_is_read(square_root, x64):
    """Value, variance before and after, and the evidence as a product of predictive densities."""
    x, y = RNG.normal(size=(7, D)), RNG.normal(size=7)
    start, action = prior(square_root).belief(2, D), jnp.zeros(7, int)
    belief, log_evidence = start, 0.0
    for k in range(7):
        row = jnp.asarray(x[k : k + 1]), action[:1], jnp.asarray(y[k : k + 1])
        log_evidence += float(belief.log_prob(*row)[0])
        belief = belief.update(*row)
    covariance, mean = exact(x, y)
    probe = jnp.asarray(RNG.normal(size=(4, D)))
    spread = NOISE * np.einsum("bd,de,be->b", probe, covariance, probe)
    assert np.allclose(belief.variance(probe)[:, 0], spread)
    assert np.allclose(belief.value(probe)[:, 0], probe @ mean)
    assert np.allclose(start.variance(probe), np.asarray(start.initial_variance(probe))[:, None])
    assert np.allclose(start.initial_variance(probe), NOISE * PRIOR * np.sum(probe**2, 1))
    law: Any = stats.multivariate_normal
    truth = law(np.zeros(7), NOISE * (np.eye(7) + PRIOR * x @ x.T)).logpdf(y)
    assert np.isclose(log_evidence, truth)
    silent = start.update(jnp.asarray(x), action)
    assert np.allclose(silent.covariance, belief.covariance)
    assert np.array_equal(silent.mean, np.zeros((2, D)))


@BOTH
def test_draws(square_root, key):
    """Mean and covariance of 40,000 draws: every entry within 6 standard errors (false alarms < 1e-6 in 6 + 36 + ...).

    Draws without the noise's variance (sd off by 1.4) are caught.
    """
    d, n = 3, 40_000
    x, y = RNG.normal(size=(6, d)).astype(np.float32), RNG.normal(size=6).astype(np.float32)
    belief = prior(square_root).belief(2, d).update(jnp.asarray(x), jnp.zeros(6, int), jnp.asarray(y))
    draws = np.asarray(jax.vmap(belief.sample)(jax.random.split(key, n)))
    for a, (covariance, mean) in enumerate((exact(x, y), (PRIOR * np.eye(d), np.zeros(d)))):
        covariance = NOISE * covariance
        scale = np.sqrt(np.diag(covariance))
        assert np.all(np.abs(draws[:, a].mean(0) - mean) < 6 * scale / np.sqrt(n) + 1e-5)
        off = np.abs(np.cov(draws[:, a].T) - covariance) / np.outer(scale, scale)
        assert np.all(off < 6 * np.sqrt(2 / n) + 1e-4)
    assert np.all(np.abs(np.corrcoef(draws.reshape(n, -1).T)[:d, d:]) < 6 / np.sqrt(n))


def test_a_draw_where_rounding_has_left_no_cholesky_factor():
    """The positive part's root."""
    broken = jnp.diag(jnp.array([2.0, -1e-7, 1.0]))[None]
    root = np.asarray(some_root(broken))[0]
    assert np.allclose(root @ root.T, np.diag([2.0, 0.0, 1.0]), atol=1e-6)


def test_wrong_priors():
    with pytest.raises(ValueError, match="variance is 0, expected a finite number greater than zero"):
        LinearGaussianPrior(variance=0)
    with pytest.raises(ValueError, match="noise_variance is nan"):
        LinearGaussianPrior(noise_variance=float("nan"))
    with pytest.raises(ValueError, match="num_features is 0, expected an integer of at least 1"):
        LinearGaussianPrior().belief(2, 0)
