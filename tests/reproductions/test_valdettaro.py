"""The reproduction of [VALDETTARO24]: the gradient by differences, the optimum by all policies, a small run."""

import itertools

import jax
import numpy as np
import pytest

from reproductions.valdettaro import synthetic_worlds as worlds

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


def test_the_optimum_is_the_best_of_all_policies():
    rows, reward, _ = problem(1)
    best = worlds.optimum(rows[0], reward)
    values = {p: worlds.values(rows, reward, np.eye(5)[list(p)]).mean() for p in itertools.product(range(5), repeat=5)}
    assert values[tuple(best.tolist())] == pytest.approx(max(values.values()), abs=1e-8)


def test_the_ascent_ascends():
    """From the softened optimum of the mean to a higher mean value in draws that it has not seen."""
    _, reward, rng = problem(1)
    concentration = np.ones((5, 5, 5))
    concentration[..., 0] += 1
    drawn = worlds.draw_rows(rng, concentration, 4000)
    first = worlds.optimum(concentration / concentration.sum(-1, keepdims=True), reward)
    ends = [worlds.ascend(rng, concentration, reward, first, steps, 64) for steps in (0, 50)]
    before, after = (worlds.values(drawn, reward, policy).mean() for policy in ends)
    assert after > before


@pytest.mark.slow
def test_a_small_run():
    result = worlds.run(jax.random.key(0), runs=2, visits=(2,), steps=20, batch=16, num_eval=200)
    assert result["posterior"].shape == (1, 2, 4) and np.isfinite(result["truth"]).all()
    rows = worlds.rows(result)
    assert len(rows) == 8 and sum(row.band is not None for row in rows) == 2
    worlds.figure(result)
