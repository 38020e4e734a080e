"""The reproduction of [VALDETTARO24]: the gradient by differences, the optimum by all policies, a small run."""

import itertools

import jax
import numpy as np
import pytest

from reproductions.valdettaro import synthetic_worlds as worlds
from reproductions.valdettaro.uniform_lanes import lanes_of, multiply_uniform

pytestmark = pytest.mark.numerics


def problem(number=20):
    """Rows of some MDPs, and rewards."""
    rng = np.random.default_rng(0)
    return worlds.draw_rows(rng, np.ones((5, 5, 5)), number), rng.normal(size=5), rng


def test_the_gradient_is_the_difference_quotient():
    rows, reward, rng = problem()
    logits, step = rng.normal(size=(5, 5)), 1e-5
    found = worlds.gradient(rows, reward, worlds.softmax(logits))
    for index in np.ndindex(5, 5):
        moved = np.zeros((5, 5))
        moved[index] = step
        up, down = (worlds.values(rows, reward, worlds.softmax(logits + s * moved)).mean() for s in (1, -1))
        assert found[index] == pytest.approx((up - down) / (2 * step), abs=1e-5)


@pytest.mark.parametrize("seed", [0, 2**127 + 12345])
def test_lanes_make_the_numbers_of_the_generator(seed):
    """Bit for bit those of NumPy, one problem after the other, over a leap; and the generator is not moved."""
    rng, twin = np.random.default_rng(seed), np.random.default_rng(seed)
    counts = np.array([[1, 3], [0, 7]])
    lanes, products = lanes_of(rng, 5, 11), np.empty((2, 2, 5))
    for _ in range(3):
        multiply_uniform(lanes, counts, products)
        numbers = 1.0 - twin.random((5, 11))
        expected = [numbers[:, 0], numbers[:, 1:4].prod(-1), np.ones(5), numbers[:, 4:].prod(-1)]
        np.testing.assert_allclose(products.reshape(4, 5), expected, rtol=1e-15)
        np.testing.assert_array_equal(products[0, 0], numbers[:, 0])
    assert rng.random() == np.random.default_rng(seed).random()


def test_the_ascent_leaves_the_generator_behind_its_draws():
    _, reward, _ = problem(1)
    rng, twin = np.random.default_rng(5), np.random.default_rng(5)
    worlds.ascend(rng, np.full((5, 5, 5), 2), reward, np.zeros(5, int), 3, 4)
    twin.random(3 * 4 * 250)
    assert rng.random() == twin.random()


def test_the_optimum_is_the_best_of_all_policies():
    rows, reward, _ = problem(1)
    best = worlds.optimum(rows[0], reward)
    values = {p: worlds.values(rows, reward, np.eye(5)[list(p)]).mean() for p in itertools.product(range(5), repeat=5)}
    assert values[tuple(best.tolist())] == pytest.approx(max(values.values()), abs=1e-8)


def test_draws_of_the_ascent_have_the_right_moments():
    """One step of 200,000 draws against the gradient in draws by NumPy: within 5 errors of both (2e-5 for 25 numbers).

    A concentration that is one too small in one place (the twin) moves it by more than 20.
    """
    _, reward, rng = problem(1)
    concentration, first = np.ones((5, 5, 5), int), np.zeros(5, int)
    concentration[0, 0] = (1, 2, 3, 4, 11)
    start = np.full((5, 5), worlds.SOFTNESS / 4)
    start[:, 0] = 1 - worlds.SOFTNESS
    ours = np.log(worlds.ascend(rng, concentration, reward, first, 1, 200_000)) - np.log(start)
    ours -= ours.mean(-1, keepdims=True)

    def by_numpy(concentration):
        """Mean gradient of 20 batches, and its error."""
        each = np.stack(
            [worlds.gradient(worlds.draw_rows(rng, concentration, 10_000), reward, start) for _ in range(20)]
        )
        each = worlds.LEARNING_RATE * (each - each.mean(-1, keepdims=True))
        return each.mean(0), each.std(0, ddof=1) / 20**0.5

    mean, error = by_numpy(concentration)
    assert (np.abs(ours - mean) < 5 * 2**0.5 * error).all()
    wrong = concentration.copy()
    wrong[0, 0, 4] = 1
    mean, error = by_numpy(wrong)
    assert (np.abs(ours - mean) > 20 * error).any()


def test_the_ascent_ascends():
    """From the softened optimum of the mean to a higher mean value in draws that it has not seen."""
    _, reward, rng = problem(1)
    concentration = np.ones((5, 5, 5), int)
    concentration[..., 0] += 1
    drawn = worlds.draw_rows(rng, concentration, 4000)
    first = worlds.optimum(concentration / concentration.sum(-1, keepdims=True), reward)
    ends = [worlds.ascend(rng, concentration, reward, first, steps, 64) for steps in (0, 50)]
    before, after = (worlds.values(drawn, reward, policy).mean() for policy in ends)
    assert after > before


@pytest.mark.slow
def test_a_small_run():
    options = {"visits": (2,), "steps": 20, "batch": 16, "num_eval": 200}
    result = worlds.run(key=jax.random.key(0), runs=2, **options)
    assert result["posterior"].shape == (1, 2, 5) and np.isfinite(result["truth"]).all()
    rows = worlds.rows(result)
    assert len(rows) == 14 and sum(row.band is not None for row in rows) == 2
    worlds.figure(result)
    # What a run gets depends on its number alone: a longer study begins with a shorter one.
    shorter = worlds.run(key=jax.random.key(0), runs=1, **options)
    np.testing.assert_array_equal(shorter["posterior"], result["posterior"].isel(run=slice(1)))
