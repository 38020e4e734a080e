"""Dirichlet rows against closed-form moments; expectations against the rows that they stand for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayes_mdp.random.dirichlet_draws import dirichlet, dirichlet_expectation, dirichlet_split, scatter_amounts

pytestmark = [pytest.mark.numerics, pytest.mark.optimised]

NUM_DRAWS = 40_000
SIGMAS = 6.5  # false alarm 1e-10 a number, under 1e-7 a test
PRIOR = np.array([0.3, 1.0, 2.5, 0.0, 0.7])
COUNTS = np.array([3.0, 0.0, 1.0])
SUCCESSOR = np.array([1, 0, 4])
VALUES = np.array([0.5, -1.0, 2.0, 7.0, 0.25])


def many(draw):
    """`NUM_DRAWS` draws of a function of a key, as one jitted call, in float64 numpy."""
    return lambda key, *args: np.asarray(
        jax.jit(jax.vmap(draw, (0, *[None] * len(args))))(jax.random.split(key, NUM_DRAWS), *args), np.float64
    )


def posterior(prior):
    concentration = prior.copy()
    np.add.at(concentration, SUCCESSOR, COUNTS)
    return concentration


def covariance(concentration):
    mean = concentration / concentration.sum()
    return mean, (np.diag(mean) - np.outer(mean, mean)) / (concentration.sum() + 1)


def check_moments(rows, concentration):
    """Require the mean to be within `SIGMAS` standard errors; return whether the whole covariance is."""
    mean, cov = covariance(concentration)
    centred = rows - mean
    assert (np.abs(centred.mean(0)) <= SIGMAS * np.sqrt(np.diag(cov) / len(rows)) + 1e-6).all()
    products = centred[:, :, None] * centred[:, None, :]
    error = SIGMAS * products.std(0) / np.sqrt(len(rows)) + 1e-7
    return (np.abs(products.mean(0) - cov) <= error).all()


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_moments_of_dirichlet(dtype, key):
    with jax.enable_x64(dtype == np.float64):
        rows = many(dirichlet)(key, jnp.asarray(PRIOR, dtype))
    assert (rows[:, 3] == 0).all()
    np.testing.assert_allclose(rows.sum(1), 1, atol=4 * np.finfo(dtype).eps)
    assert check_moments(rows, PRIOR)


@pytest.mark.few(1)
@pytest.mark.parametrize("unit_prior", [True, False])
def test_moments_of_the_split_and_its_twin(unit_prior, key):
    """The covariance test sees a twin with ten per cent more concentration."""
    prior = np.ones(5) if unit_prior else PRIOR
    draw = many(lambda k, p, n: dirichlet_split(k, p, n, jnp.asarray(SUCCESSOR), unit_prior=unit_prior))
    rows = draw(key, jnp.asarray(prior, jnp.float32), jnp.asarray(COUNTS, jnp.float32))
    np.testing.assert_allclose(rows.sum(1), 1, atol=1e-6)
    assert check_moments(rows, posterior(prior))
    twin = many(dirichlet)(key, jnp.asarray(1.1 * posterior(prior), jnp.float32))
    assert not check_moments(twin, posterior(prior))


@pytest.mark.some(1)
@pytest.mark.parametrize(("unit_prior", "dtype"), [(True, np.float32), (True, np.float64), (False, np.float32)])
def test_expectation_has_the_law_of_the_rows(dtype, unit_prior, key):
    """Mean and variance `Var_mean(V) / (c0 + 1)`, and the law against numpy's rows; a 10 % twin must be seen."""
    prior = np.ones(5) if unit_prior else PRIOR
    concentration = posterior(prior)
    with jax.enable_x64(dtype == np.float64):
        successor = jnp.asarray(SUCCESSOR, jnp.int32)
        draw = many(lambda k, p, n, v: dirichlet_expectation(k, p, n, successor, v, unit_prior=unit_prior))
        ours = draw(key, *(jnp.asarray(x, dtype) for x in (prior, COUNTS, VALUES)))
    mean, cov = covariance(concentration)
    variance = VALUES @ cov @ VALUES
    assert abs(ours.mean() - mean @ VALUES) < SIGMAS * np.sqrt(variance / NUM_DRAWS)
    squares = (ours - mean @ VALUES) ** 2
    assert abs(squares.mean() - variance) < SIGMAS * squares.std() / np.sqrt(NUM_DRAWS)
    rng = np.random.default_rng(0)
    _, p_value = stats.ks_2samp(ours, rng.dirichlet(concentration + 1e-300, NUM_DRAWS) @ VALUES)
    assert np.asarray(p_value) > 1e-7
    twin = (rng.dirichlet(1.1 * concentration + 1e-300, NUM_DRAWS) @ VALUES - mean @ VALUES) ** 2
    assert abs(twin.mean() - variance) > SIGMAS * twin.std() / np.sqrt(NUM_DRAWS)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("num_outcomes", "dtype"),
    [
        (1, np.float32),
        (2, np.float32),
        (3, np.float64),
        (4, np.float32),
        (9, np.float64),
        (23, np.float32),
    ],
)
def test_every_length_of_row(num_outcomes, dtype, key):
    """The loop and what is left before it: constant values give themselves, an indicator a Beta(1, K - 1) draw."""
    with jax.enable_x64(dtype == np.float64):
        batch = (7, 300)
        prior = jnp.ones((*batch, num_outcomes), dtype)
        none, where = jnp.zeros((*batch, 1), dtype), jnp.zeros((*batch, 1), jnp.int32)
        both = jnp.stack([jnp.full(num_outcomes, 3.0, dtype), jnp.eye(num_outcomes, dtype=dtype)[-1]])
        draw = jax.jit(jax.vmap(lambda v: dirichlet_expectation(key, prior, none, where, v, unit_prior=True)))
        constant, last = np.asarray(draw(both), np.float64)
    np.testing.assert_allclose(constant, 3, rtol=1e-5 if dtype == np.float32 else 1e-13)
    if num_outcomes > 1:
        assert stats.kstest(last.ravel(), stats.beta(1, num_outcomes - 1).cdf).pvalue > 1e-8
        correlation = np.corrcoef(last.reshape(7, 300))
        assert np.abs(correlation - np.eye(7)).max() < SIGMAS / np.sqrt(300)


def test_values_of_each_row(key):
    """Values of one row each: where they are equal, as one row shared by all; each row's answer is in its own scale."""
    prior, counts = jnp.ones((4, 2, 6)), jnp.array([[[2.0, 0.0]] * 2] * 4)
    successor = jnp.arange(16).reshape(4, 2, 2) % 6
    draw = jax.jit(lambda v: dirichlet_expectation(key, prior, counts, successor, v, unit_prior=True))
    values, scale = jnp.linspace(-1, 1, 6), jnp.arange(1.0, 9).reshape(4, 2)
    shared = draw(values)
    np.testing.assert_allclose(draw(scale[..., None] * values), scale * shared, rtol=1e-5, atol=1e-5)


def test_tiny_concentrations_never_give_nan(key):
    tiny = jnp.stack([jnp.full(4, c, jnp.float32) for c in (1e-2, 1e-6, 1e-20, 1e-37)])
    rows = many(dirichlet)(key, tiny)
    assert np.isfinite(rows).all()
    np.testing.assert_allclose(rows.sum(-1), 1, atol=1e-6)
    first = rows[:, 0, 0]  # Beta(.01, .03)
    error = SIGMAS * np.sqrt(0.25 * 0.75 / 1.04 / NUM_DRAWS)
    assert abs(first.mean() - 0.25) < error


def test_rows_without_an_outcome_and_invalid_rows(key):
    rows = jax.jit(dirichlet)(key, jnp.array([[0.0, 0.0, 0.0], [0.0, 2.0, 0.0], [1.0, -1.0, 1.0]]))
    np.testing.assert_array_equal(rows[:2], [[0, 0, 0], [0, 1, 0]])
    assert np.isnan(rows[2]).any()


@pytest.mark.parametrize("num_listed", [0, 2, 11])
def test_scatter(num_listed):
    rng = np.random.default_rng(0)
    amounts = rng.random((3, 2, num_listed)).astype(np.float32)
    successor = rng.integers(5, size=amounts.shape)
    expected = np.zeros((3, 2, 5), np.float32)
    for row in np.ndindex(3, 2):
        np.add.at(expected[row], successor[row], amounts[row])
    np.testing.assert_allclose(scatter_amounts(jnp.asarray(amounts), jnp.asarray(successor), 5), expected, rtol=1e-6)


@pytest.mark.slow
def test_vmap_is_the_loop(key):
    keys = jax.random.split(key, 3)
    prior, counts, successor = jnp.ones((6, 2, 6)), jnp.full((6, 2, 1), 2.0), jnp.full((6, 2, 1), 3)

    def one(k, values):
        return dirichlet_expectation(k, prior, counts, successor, values, unit_prior=True)

    values = jnp.arange(18.0).reshape(3, 6)
    together, alone = jax.jit(jax.vmap(one))(keys, values), jax.jit(one)
    for index in range(3):
        np.testing.assert_allclose(together[index], alone(keys[index], values[index]), rtol=1e-5)
