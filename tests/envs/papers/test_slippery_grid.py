"""SlipperyGrid: rows by plain loops over coordinates, gains by the shortest expected way and by policy iteration."""

from typing import Any

import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.envs import slippery_grid
from tests.envs.papers.test_papers import arrays, optimal_gain

MOVES = [(-1, 0), (0, 1), (1, 0), (0, -1)]
UNKNOWN: Any = "some"


def by_hand(size, slip):
    """Rows [S 4 S] and rewards [S 4]: a move, or one of the two at right angles to it, stopped by the border."""
    last = size**2 - 1
    rows, reward = np.zeros((last + 1, 4, last + 1)), np.zeros((last + 1, 4))
    for r, c in np.ndindex(size, size):
        for a, (down, right) in enumerate(MOVES):
            if size * r + c == last:
                rows[last, a, 0], reward[last, a] = 1.0, 1.0
                continue
            for (i, j), share in (((down, right), 1 - slip), ((right, down), slip / 2), ((-right, -down), slip / 2)):
                there = np.clip((r + i, c + j), 0, size - 1)
                rows[size * r + c, a, size * there[0] + there[1]] += share
    return rows, reward


def steps_to_the_end(rows):
    """Least expected number of steps from the first cell to the last, by value iteration."""
    v = np.zeros(len(rows))
    for _ in range(2000):
        v = 1.0 + (rows @ v).min(-1)
        v[-1] = 0.0
    return v[0]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("size", "slip"), [(5, 0.2), (10, 0.2), (2, 0.0), (3, 0.5)])
def test_every_row_follows_the_rules(size, slip):
    env = slippery_grid(size, slip=slip)
    rows, reward, initial = arrays(env)
    expected, paid = by_hand(size, slip)
    np.testing.assert_allclose(rows, expected, atol=1e-12)
    np.testing.assert_array_equal(reward, paid)
    assert initial[0] == initial.sum() == 1.0
    assert env.name == f"slippery_grid_{size}" and env.mdp.n_states == size**2


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("size", [5, 10])
def test_the_optimum(size):
    """One reward in a way there and one step back: the stored gain, that of `solve`, that of policy iteration."""
    env, (rows, reward) = slippery_grid(size), by_hand(size, 0.2)
    gain = 1.0 / (1.0 + steps_to_the_end(rows))
    assert env.optimum == pytest.approx(gain, abs=1e-11)
    assert bm.solve(env.mdp, bm.AverageReward()).gain == pytest.approx(gain, abs=1e-6)
    assert optimal_gain(rows, reward) == pytest.approx(gain, abs=1e-9)
    # Without slips 2 (size - 1) steps, then one.
    straight = bm.solve(slippery_grid(size, slip=0.0).mdp, bm.AverageReward()).gain
    assert straight == pytest.approx(1 / (2 * size - 1), abs=1e-6)


def test_only_the_grids_of_the_paper_have_a_stored_optimum():
    assert slippery_grid(5, slip=0.1).optimum is None and slippery_grid(6).optimum is None


def test_its_picture():
    """Cells in reading order: one spot a state, start and goal in opposite corners."""
    picture: Any = slippery_grid(3).picture
    assert picture.cells == ("S..", "...", "..G")
    assert picture.positions[:4] == ((0.0, 0.0), (1.0, 0.0), (2.0, 0.0), (0.0, 1.0))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: slippery_grid(1), ValueError, "size is 1, expected an integer of at least 2"),
        (lambda: slippery_grid(UNKNOWN), TypeError, "size is 'some', expected an integer"),
        (lambda: slippery_grid(slip=1.5), ValueError, r"slip is 1\.5, expected a probability"),
    ],
)
def test_bad_settings_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()
