"""SevenRooms: rows by plain loops over its map, doors and ways by a breadth-first search, values by a plain sweep."""

from typing import Any

import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.envs import seven_rooms

MOVES = [(-1, 0), (0, 1), (1, 0), (0, -1)]
PAYS = {"G": 1.0, "g": 0.1, "S": 0.01}
UNKNOWN: Any = "some"
MAP = """
.....#.....#.....#.....#.....
.....#.....#.....#.....#.....
..g.................S........
.....#.....#.....#.....#.....
.....#.....#.....#.....#.....
##########################.##
##################.....#.....
##################.....#.....
##################..G........
##################.....#.....
##################.....#.....
"""


def cells_drawn(env: Any) -> list[str]:
    return list(env.picture.cells)


def dense(env: Any) -> tuple[np.ndarray, np.ndarray]:
    """Rows [S 4 S] and mean rewards [S 4]."""
    mdp = env.mdp.to_dense()
    return np.asarray(mdp.transition_probs), np.asarray(mdp.reward)


def cells_of(env) -> dict[tuple[int, int], str]:
    """(row, column) -> character of every free cell, in reading order: the order of the states."""
    return {(r, c): kind for r, line in enumerate(cells_drawn(env)) for c, kind in enumerate(line) if kind != "#"}


def steps_from(cells, start) -> dict[tuple[int, int], int]:
    """Length of the shortest way to every free cell."""
    found, frontier = {start: 0}, [start]
    for r, c in frontier:  # grows while it is read: breadth first
        for i, j in MOVES:
            there = r + i, c + j
            if there in cells and there not in found:
                found[there] = found[r, c] + 1
                frontier.append(there)
    return found


def place_of(cells, kind):
    (place,) = (place for place, found in cells.items() if found == kind)
    return place


@pytest.mark.parametrize(
    ("arguments", "states", "to_goal", "to_bait"),
    [({}, 181, 18, 18), ({"per_row": 7}, 181, 18, 18), ({"num_rooms": 3, "room_size": 3}, 29, 4, 4)],
)
def test_rooms_doors_and_ways(arguments, states, to_goal, to_bait):
    """n rooms of k x k cells and n - 1 doors; all cells are joined, and each door is the only way on."""
    env = seven_rooms(**arguments)
    cells = cells_of(env)
    assert len(cells) == env.mdp.n_states == states
    assert env.picture is not None and env.picture.positions == tuple((float(c), float(r)) for r, c in cells)
    start = place_of(cells, "S")
    ways = steps_from(cells, start)
    assert len(ways) == states
    assert (ways[place_of(cells, "G")], ways[place_of(cells, "g")]) == (to_goal, to_bait)
    # A door lies in a line that belongs to no room; without it, what lies beyond cannot be reached.
    pitch = arguments.get("room_size", 5) + 1
    doors = [(r, c) for r, c in cells if r % pitch == pitch - 1 or c % pitch == pitch - 1]
    assert len(doors) == arguments.get("num_rooms", 7) - 1
    for door in doors:
        rest = {place: kind for place, kind in cells.items() if place != door}
        assert len(steps_from(rest, start)) < len(rest)


def test_the_line_of_rooms_folds():
    """Five rooms to the right, one down, one to the left; the start in the fourth."""
    assert cells_drawn(seven_rooms()) == MAP.split()
    assert cells_of(seven_rooms(4, 1, per_row=1)) == {
        (0, 0): "g",
        (1, 0): ".",
        (2, 0): ".",
        (3, 0): ".",
        (4, 0): "S",
        (5, 0): ".",
        (6, 0): "G",
    }


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("arguments", "slip"), [({}, 0.05), ({"num_rooms": 4, "room_size": 2, "slip": 0.4}, 0.4)])
def test_every_row_follows_the_rules(arguments, slip):
    """The chosen way where it is free, else another free one; a wall and the goal hold the agent."""
    env = seven_rooms(**arguments)
    cells, (rows, reward) = cells_of(env), dense(env)
    number = {place: i for i, place in enumerate(cells)}
    initial = np.asarray(env.mdp.initial)
    np.testing.assert_allclose(rows.sum(-1), 1.0, atol=1e-12)
    assert initial[number[place_of(cells, "S")]] == np.sum(initial) == 1.0
    for (r, c), kind in cells.items():
        free = [(r + i, c + j) for i, j in MOVES if (r + i, c + j) in cells]
        for a, (i, j) in enumerate(MOVES):
            chosen, expected = (r + i, c + j), np.zeros(len(cells))
            if kind == "G" or chosen not in cells:
                expected[number[r, c]] = 1.0
            else:
                for place in free:
                    others = len(free) - 1
                    share = slip / others if others else 0.0
                    expected[number[place]] = 1.0 - share * others if place == chosen else share
            np.testing.assert_allclose(rows[number[r, c], a], expected, atol=1e-12)
            assert reward[number[r, c], a] == PAYS.get(kind, 0.0)


@pytest.mark.usefixtures("x64")
def test_the_value_of_an_episode():
    """40 steps by a plain sweep over dense rows: 20.29 as documented; without slips 18 steps, then 22 times 1."""
    for slip, expected in ((0.05, 20.2947), (0.0, 22.01)):
        env = seven_rooms(slip=slip)
        rows, reward = dense(env)
        v = np.zeros(len(reward))
        for _ in range(40):
            v = (reward + rows @ v).max(-1)
        assert v[np.argmax(np.asarray(env.mdp.initial))] == pytest.approx(expected, abs=1e-4)
        assert bm.solve(env.mdp, bm.Episodic(40)).v[0] == pytest.approx(v, abs=1e-9)


@pytest.mark.slow
def test_it_is_drawn():
    """By its map: one picture of 11 x 29 cells."""
    drawn = bm.plots.plot_env(seven_rooms())
    (image,) = drawn.axes[0].get_images()
    assert image.get_size() == (11, 29)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: seven_rooms(2), ValueError, "num_rooms is 2, expected an integer of at least 3"),
        (lambda: seven_rooms(room_size=0), ValueError, "room_size is 0, expected an integer of at least 1"),
        (lambda: seven_rooms(per_row=0), ValueError, "per_row is 0, expected an integer of at least 1"),
        (lambda: seven_rooms(UNKNOWN), TypeError, "num_rooms is 'some', expected an integer"),
        (lambda: seven_rooms(slip=1.5), ValueError, r"slip is 1\.5, expected a number from 0 to 1"),
    ],
)
def test_bad_settings_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()
