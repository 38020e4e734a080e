"""Hashed features: codes by a loop, how often observations share one, the belief beside the linear-Gaussian one."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayes_mdp.agents.neural import MLP, HashedFeatures, OneHotMLP, UnitPrior
from bayes_mdp.inference.value import LinearGaussianPrior
from tests.tf32 import assert_network

FALSE_ALARM = 1e-6


def test_codes_by_a_loop(key):
    """Bit i of table j is the sign of column j bits + i; unit numbers of table j begin at j 2^bits."""
    hashed = HashedFeatures(num_tables=3, num_bits=4)
    seen: Any = np.asarray(jax.random.normal(key, (5, 2, 3)))
    w = hashed.init(jax.random.key(1), (2, 3))
    expected = np.zeros((5, 3), int)
    for b in range(5):
        for table in range(3):
            bits = [float(seen[b].ravel() @ np.asarray(w)[:, 4 * table + i]) > 0 for i in range(4)]
            expected[b, table] = 16 * table + sum(2**i for i in range(4) if bits[i])
    np.testing.assert_array_equal(hashed.apply(w, seen), expected)
    assert hashed.num_features((2, 3)) == 48


@pytest.mark.parametrize("bits", [1, 3])
def test_how_often_units_are_shared(key, bits):
    """In a share (1 - t / pi)^bits of 4,000 tables. A share wrong by 0.05 is found; so is a bit more or less."""
    tables, angle = 4_000, 0.7
    hashed = HashedFeatures(tables, bits)
    pair: Any = np.array([[1.0, 0.0, 0.0], [np.cos(angle), np.sin(angle), 0.0]], np.float32)
    first, second = np.asarray(hashed.apply(hashed.init(key, (3,)), 5 * pair))
    shared = int(np.sum(first == second))

    def p_value(number: int) -> float:
        return float(stats.binomtest(shared, tables, (1 - angle / np.pi) ** number).pvalue)

    assert p_value(bits) > FALSE_ALARM
    assert p_value(bits + 1) < FALSE_ALARM


def test_one_table_is_a_linear_gaussian_belief(key):
    """On the same features written out as zeros and a one, the noise given."""
    rng = np.random.default_rng(0)
    unit, action = rng.integers(0, 5, (30, 1)), rng.integers(0, 2, 30)
    sparse = UnitPrior(variance=3.0, noise=0.25).belief(2, 5)
    full = LinearGaussianPrior(variance=4.0, noise_variance=0.75).belief(2, 5)
    sparse = sparse.update(jnp.asarray(unit[:20]), jnp.asarray(action[:20]))
    for one in range(20, 30):
        sparse = sparse.update(jnp.asarray(unit[one : one + 1]), jnp.asarray(action[one : one + 1]), jnp.zeros(1))
    full = full.update(jnp.eye(5)[unit[:, 0]], jnp.asarray(action))
    everyone: Any = np.arange(5)[:, None]
    np.testing.assert_allclose(sparse.variance(everyone), full.variance(jnp.eye(5)), rtol=1e-5)
    np.testing.assert_allclose(sparse.initial_variance(everyone), full.initial_variance(jnp.eye(5)), rtol=1e-6)


@pytest.mark.parametrize("combine", ["max", "mean"])
def test_tables_together(combine):
    """Counts and noise by a loop over three tables of two units; the action that was never taken knows nothing."""
    units = jnp.array([[0, 2, 4], [0, 2, 5], [1, 3, 5]])
    belief = UnitPrior(variance=2.0, noise=0.1, reward_noise=0.5, threshold=0.03, combine=combine).belief(2, 6)
    belief = belief.update(units[:1], jnp.array([1]), jnp.array([0.4]))
    belief = belief.update(units[:2], jnp.array([1, 1]), jnp.array([-1.0, 0.01]))
    targets = [[] for _ in range(6)]
    for row, target in ((0, 0.4), (0, -1.0), (1, 0.01)):
        for unit in np.asarray(units[row]):
            targets[unit].append(target)
    share = np.ones(6)
    for unit, seen in enumerate(targets):
        if seen:
            size = np.mean(np.square(seen)) / 2
            noise = 0.1 + 0.5 * size / (size + 0.03)
            share[unit] = noise / (noise + len(seen))
    each = 2 * share[np.asarray(units)]
    expected = each.max(1) if combine == "max" else each.mean(1)
    np.testing.assert_allclose(belief.variance(units)[:, 1], expected, rtol=1e-6)
    np.testing.assert_allclose(belief.variance(units)[:, 0], 2.0, rtol=1e-6)


def test_cells_of_a_large_plane_are_told_apart(key):
    """All 5,050 cells that DeepSea of size 100 reaches: each has a unit that none of a visited half has.

    With 2,525 visited, a table hides a cell with probability 0.14, all eight with 2e-7: 5e-4 cells in all expected.
    """
    hashed = HashedFeatures()
    cells = np.flatnonzero(np.tril(np.ones((100, 100))))
    w = hashed.init(key, (100, 100))
    plane = jax.nn.one_hot(cells[:64], 10_000)
    codes = jnp.sum((w[cells] > 0).reshape(-1, 8, 14) << jnp.arange(14), -1) + (jnp.arange(8) << 14)
    np.testing.assert_array_equal(hashed.apply(w, plane.reshape(64, 100, 100)), codes[:64])
    seen = np.random.default_rng(0).permutation(len(cells)) < len(cells) // 2
    belief = UnitPrior(noise=0.01).belief(1, hashed.num_features((100, 100)))
    belief = belief.update(codes[seen], jnp.zeros(seen.sum(), int))
    share = np.asarray(belief.variance(codes))[:, 0]
    np.testing.assert_allclose(share[~seen], 1.0)
    np.testing.assert_allclose(share[seen], 1 / 101, rtol=1e-5)


def test_one_hot_mlp(key):
    """The function of MLP on positions and on nothing at all, and its slope."""
    planes = np.concatenate([np.eye(12), np.zeros((1, 12))]).reshape(13, 3, 4).astype(np.uint8)[[3, 12, 0, 3, 11]]
    dense, sparse = MLP((6, 5)), OneHotMLP((6, 5))
    parameters = dense.init(key, (3, 4))
    jax.tree.map(np.testing.assert_array_equal, parameters, sparse.init(key, (3, 4)))
    weight = np.arange(25.0).reshape(5, 5)

    def total(trunk):
        return jax.value_and_grad(lambda p: jnp.sum(weight * trunk.apply(p, planes)))(parameters)

    jax.tree.map(lambda a, b: assert_network(a, b, rtol=1e-5, atol=1e-5), total(dense), total(sparse))
    assert sparse.num_features((3, 4)) == 5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: HashedFeatures(num_tables=0), "num_tables is 0"),
        (lambda: HashedFeatures(num_bits=30), "num_bits is 30, expected at most 24"),
        (lambda: UnitPrior(combine="median"), "median"),
        (lambda: OneHotMLP(()), "widths is"),
    ],
)
def test_what_is_refused(make, message):
    """One sentence about the argument at fault."""
    with pytest.raises(ValueError, match=message):
        make()


def _u_of_a_way(noise: float, steps: int, discount: float, unvisited_end: bool) -> float:
    """u of the first pair of a chain, by the formula of `DeepUBE` with nu = 0, U = 1, backwards.

    Either every pair was visited once, or all but the last so often that nothing about them is unknown.
    """
    u = 0.0
    for step in reversed(range(steps)):
        kappa = (1.0 if step == steps - 1 else 0.0) if unvisited_end else noise / (noise + 1)
        u = min(discount**2 * (kappa + (1 - kappa) * u), 1.0)
    return u


@pytest.mark.parametrize(("horizon", "discount"), [(50, 0.99), (100, 0.99), (150, 0.995), (60, 0.97)])
def test_noise_for_a_horizon(horizon, discount):
    """Visited once, a whole way has about the u that an unvisited pair at its end gives; four times the noise, more.

    At most as much, as kappa = noise / (1 + noise) and (1 - kappa) were left out; half of it at least.
    """
    noise = float(UnitPrior.for_horizon(horizon, discount).noise)
    assert noise < UnitPrior().noise
    far = _u_of_a_way(noise, horizon, discount, unvisited_end=True)
    once, twin = (_u_of_a_way(x, horizon, discount, unvisited_end=False) for x in (noise, 4 * noise))
    assert 0.5 * far < once <= far < twin


def test_noise_for_a_short_horizon():
    """The default, to which short episodes give no reason; what is no horizon is refused; no overflow."""
    assert [UnitPrior.for_horizon(n).noise for n in (1, 10, 34)] == [UnitPrior().noise] * 3
    assert UnitPrior.for_horizon(35).noise < UnitPrior().noise
    assert UnitPrior.for_horizon(100).noise == pytest.approx(0.0199 / (0.99**-200 - 1), rel=1e-9)
    assert UnitPrior.for_horizon(10_000, 0.5).noise == 1e-6
    with pytest.raises(ValueError, match="discount is 0"):
        UnitPrior.for_horizon(10, 0.0)
    with pytest.raises(ValueError, match="horizon"):
        UnitPrior.for_horizon(0)
