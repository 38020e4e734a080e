"""Gamma draws against scipy's distribution functions, in both dtypes, with a broken twin that must be caught."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from bayes_mdp.random import threefry
from bayes_mdp.random.gamma_draws import exponential, gamma, loggamma
from bayes_mdp.random.threefry import fused_key

pytestmark = [pytest.mark.numerics, pytest.mark.optimised]

CONCENTRATIONS = (0.01, 0.3, 1.0, 2.5, 40.0, 1e4)
NUM_DRAWS = 100_000
FALSE_ALARM = 1e-8  # of one Kolmogorov-Smirnov test; every test below makes at most 14 of them
SIGMAS = 6.0  # two-sided false alarm 2e-9


@jax.jit
def draws(key, concentration):
    """Log draws and draws at every concentration, [C, N] each."""
    full = jnp.broadcast_to(concentration[:, None], (len(concentration), NUM_DRAWS))
    log_key, plain = jax.random.split(key)
    return loggamma(log_key, full), gamma(plain, full)


def log_gamma_p_value(log_draw, concentration):
    """KS p-value of log draws; the gamma cdf of their exponential where scipy's loggamma would lose its tail."""
    if concentration < 100:
        return stats.kstest(log_draw, stats.loggamma(concentration).cdf).pvalue
    return stats.kstest(np.exp(log_draw), stats.gamma(concentration).cdf).pvalue


def check_law(key, dtype):
    log_draw, draw = (np.asarray(x) for x in draws(key, jnp.asarray(CONCENTRATIONS, dtype)))
    assert log_draw.dtype == draw.dtype == dtype
    assert np.isfinite(log_draw).all() and np.isfinite(draw).all()
    for row, concentration in enumerate(CONCENTRATIONS):
        exact = log_draw[row].astype(np.float64)
        assert log_gamma_p_value(exact, concentration) > FALSE_ALARM, concentration
        if concentration >= 0.3:  # below, draws underflow
            assert stats.kstest(draw[row].astype(np.float64), stats.gamma(concentration).cdf).pvalue > FALSE_ALARM


def test_law_in_float32(key):
    """False alarm 1e-7; the smallest fault that must be seen is in `test_over_concentrated_twin_is_caught`."""
    check_law(key, np.float32)


@pytest.mark.usefixtures("x64")
def test_law_in_float64(key):
    check_law(key, np.float64)


def test_over_concentrated_twin_is_caught(key):
    """Ten per cent more concentration at the same mean, at every shape."""
    log_draw, _ = draws(key, 1.1 * jnp.asarray(CONCENTRATIONS, jnp.float32))
    for row, concentration in zip(np.asarray(log_draw, np.float64), CONCENTRATIONS, strict=True):
        assert log_gamma_p_value(row - np.log(1.1), concentration) < FALSE_ALARM, concentration


def test_moments_of_the_log(key):
    """digamma and trigamma, to six standard errors: a shape off by 1 % is 3 to 60 of them."""
    log_draw, _ = draws(key, jnp.asarray(CONCENTRATIONS, jnp.float32))
    shape = np.array(CONCENTRATIONS, np.float32).astype(np.float64)
    log_draw = np.asarray(log_draw, np.float64)
    variance, fourth = special.polygamma(1, shape), special.polygamma(3, shape)
    assert (np.abs(log_draw.mean(1) - special.digamma(shape)) < SIGMAS * np.sqrt(variance / NUM_DRAWS) + 1e-6).all()
    error = SIGMAS * np.sqrt((fourth + 2 * variance**2) / NUM_DRAWS)
    assert (np.abs(log_draw.var(1) - variance) < error).all()


def test_the_loop_goes_on_where_the_unrolled_rounds_stop(key, monkeypatch):
    concentration = jnp.full(20_000, 0.5)
    unrolled = jax.jit(lambda k: gamma(k, concentration))(key)
    module = importlib.import_module("bayes_mdp.random.gamma_draws")  # in the package, its function hides it
    monkeypatch.setattr(module, "_UNROLLED_ROUNDS", 1)
    looped = jax.jit(lambda k: gamma(k, concentration))(key)
    np.testing.assert_allclose(looped, unrolled, rtol=2e-6)


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_edges(dtype, key):
    with jax.enable_x64(dtype == np.float64):
        info = np.finfo(dtype)
        shape = jnp.array([0.0, info.tiny, 1e-30, info.max / 4, -1.0, np.nan, np.inf], dtype)
        draw, log_draw = jax.jit(lambda k: (gamma(k, shape), loggamma(k, shape)))(key)
        draw, log_draw = np.asarray(draw), np.asarray(log_draw)
    assert (draw[:3] == 0).all() and np.isclose(draw[3], info.max / 4) and np.isnan(draw[4:]).all()
    assert np.isneginf(log_draw[0]) and np.isfinite(log_draw[1:4]).all() and np.isnan(log_draw[4:]).all()


def test_vmap_is_the_loop(key):
    keys, shape = jax.random.split(key, 3), jnp.array([[0.2, 3.0], [1.0, 50.0]])
    one = jax.jit(lambda k: (loggamma(k, shape), exponential(k, (2, 3))))
    together = jax.jit(jax.vmap(one))(keys)
    for index in range(3):
        for batched, alone in zip(together, one(keys[index]), strict=True):
            np.testing.assert_allclose(batched[index], alone, rtol=3e-6, atol=1e-6)


def test_plain_keys_give_the_same_numbers(key):
    draw = jax.jit(lambda k: gamma(k, jnp.array([0.2, 3.0])))
    np.testing.assert_array_equal(draw(key), draw(fused_key(key)))


def test_exponential_in_float32_is_the_logarithm_of_its_word():
    """Within 3e-7, relatively, at random words and at both ends."""
    ends = np.arange(2048, dtype=np.uint32) << np.uint32(9)
    words = np.concatenate([ends, ~ends, np.random.default_rng(0).integers(2**32, size=200_000, dtype=np.uint32)])
    draw = np.asarray(jax.jit(lambda w: threefry.exponentials((w, w), jnp.float32)[0])(words), np.float64)
    np.testing.assert_allclose(draw, -np.log(((words >> 9) + 0.5) * 2.0**-23), rtol=3e-7)


def test_normal_in_float32_is_the_quantile_of_its_word(key):
    bits = jax.random.bits(key, (200_000,))
    normal = jax.jit(lambda w: threefry.normal_and_exponential([(w, w)])[0])(bits)
    assert stats.kstest(np.asarray(normal, np.float64), stats.norm.cdf).pvalue > FALSE_ALARM
    words = np.random.default_rng(0).integers(2**32, size=200_000, dtype=np.uint32)
    words[:4] = 0, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF
    exact = special.ndtri((((words.view(np.int32) >> 8) | 1) * 2.0**-23 + 1) / 2)
    np.testing.assert_allclose(jax.jit(threefry.normal_from_word)(words), exact, rtol=2e-6, atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exponential_law(dtype, key):
    with jax.enable_x64(dtype == np.float64):
        draw = np.asarray(jax.jit(lambda k: exponential(k, (NUM_DRAWS,), dtype))(key))
    assert draw.dtype == dtype and (draw > 0).all()
    assert stats.kstest(draw.astype(np.float64), stats.expon.cdf).pvalue > FALSE_ALARM
    assert stats.kstest(1.05 * draw.astype(np.float64), stats.expon.cdf).pvalue < FALSE_ALARM  # 5 % off is seen


def test_exponentials_and_gammas_of_one_key_are_independent(key):
    first, second = jax.jit(lambda k: (exponential(k, (NUM_DRAWS,)), gamma(k, jnp.ones(NUM_DRAWS))))(key)
    assert abs(np.corrcoef(first, second)[0, 1]) < SIGMAS / np.sqrt(NUM_DRAWS)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="inspects a program compiled for a CPU")
def test_what_rejected_draws_need_stays_in_their_loop():
    """Of many seeds, few kernels stand before the loop that draws again: 7, and 20 before its arguments were tied to
    the round and sums of the key were left in it. Each takes some 20 ms to compile, and runs at every call."""
    keys = jax.random.split(fused_key(jax.random.key(0)), 20)
    program = jax.jit(jax.vmap(loggamma, (0, None))).lower(keys, jnp.ones(36)).compile().as_text() or ""
    entry = program[program.index("ENTRY") :]
    assert 0 < entry.count(" fusion(") <= 10
