"""FlagMaze against a transcription of its rules in plain Python and the published gains."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from bayes_mdp.envs import flag_maze

PAPER = ["SWF.W.G", ".W..W..", ".......", "WW...WW", "......F", "F.....W"]
UP, RIGHT, DOWN, LEFT = (-1, 0), (0, 1), (1, 0), (0, -1)
ACTIONS = [UP, RIGHT, DOWN, LEFT]
CELLS = [(r, c) for r, line in enumerate(PAPER) for c, cell in enumerate(line) if cell != "W"]
FLAGS = [cell for cell in CELLS if PAPER[cell[0]][cell[1]] == "F"]
SIDES = {0: [(1, 0.05), (3, 0.05)], 1: [(0, 0.05), (2, 0.05)], 2: [(1, 0.05), (3, 0.05)], 3: [(0, 0.05), (2, 0.05)]}


def move(cell, held, action):
    """The cell and the flags after a move that happens, and what it pays."""
    there = cell[0] + action[0], cell[1] + action[1]
    there = there if there in CELLS else cell
    if PAPER[there[0]][there[1]] == "G":
        return (0, 0), 0, bin(held).count("1")
    return there, held | (1 << FLAGS.index(there) if there in FLAGS else 0), 0


@cache
def by_hand():
    """Next state and payment of each of the four moves: [264 4]."""
    after, paid = np.zeros((264, 4), int), np.zeros((264, 4))
    for i, cell in enumerate(CELLS):
        for held in range(8):
            for a, action in enumerate(ACTIONS):
                there, flags, paid[8 * i + held, a] = move(cell, held, action)
                after[8 * i + held, a] = 8 * CELLS.index(there) + flags
    return after, paid


def gain(mix, extra_step=False):
    """Optimal gain by relative value iteration (half lazy); mix[a, b]: probability that b happens where a is meant."""
    after, paid = by_hand()
    if extra_step:  # a state of its own behind the goal
        far = ~np.isin(np.arange(264) // 8, [CELLS.index((0, 0)), CELLS.index((1, 0))])
        after = np.vstack([np.where((after == 0) & far[:, None], 264, after), np.zeros((1, 4), int)])
        paid = np.vstack([paid, np.zeros((1, 4))])
    v = np.zeros(len(after))
    for _ in range(20_000):
        change = ((paid + v[after]) @ mix.T).max(-1) - v
        v = v + 0.5 * change
        v -= v[0]
        if np.ptp(change) < 1e-10:
            return change[0]
    raise AssertionError("value iteration did not stop")


def mixed(entries):
    mix = np.zeros((4, 4))
    for a, row in entries.items():
        for b, p in row:
            mix[a, b] += p
    return mix


KEEP = {a: [(a, 0.9)] for a in range(4)}


@pytest.mark.parametrize(
    ("mix", "extra_step", "total"),
    [
        (mixed({a: KEEP[a] + SIDES[a] for a in range(4)}), False, 1884.4),
        (mixed({a: [*KEEP[a], ((a + 1) % 4, 0.1)] for a in range(4)}), False, 1888.4),
        (mixed({a: KEEP[a] + SIDES[a] for a in range(4)}), True, 1826.8),
        (mixed({a: KEEP[a] + [(b, 0.025) for b in range(4)] for a in range(4)}), False, 1923.7),
        (np.eye(4), False, 2142.9),
    ],
)
def test_readings_of_the_slip(mix, extra_step, total):
    """The transcription has the published gains, times 20,000; the first reading is the environment's."""
    assert 20_000 * gain(mix, extra_step) == pytest.approx(total, abs=0.05)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("slip", [0.1, 0.0])
def test_every_row_follows_the_rules(slip):
    env: Any = flag_maze(slip)
    mdp, (after, paid) = env.mdp, by_hand()
    assert mdp.reward.shape == (264, 4) and np.argmax(mdp.initial) == 0
    listed, mean = np.asarray(mdp.successor), np.asarray(mdp.reward)
    law = env.reward_law
    np.testing.assert_array_equal(law.outcome, listed)
    np.testing.assert_array_equal(law.probability, mdp.probability)
    probability, value = np.asarray(mdp.probability), np.asarray(law.value)
    for s, a in np.ndindex(264, 4):
        found: dict[Any, float] = {}
        for entry in zip(listed[s, a].tolist(), value[s, a].tolist(), probability[s, a].tolist(), strict=True):
            found[entry[:2]] = found.get(entry[:2], 0.0) + entry[2]
        expected: dict[Any, float] = {}
        for b, p in [(a, 1 - slip), *((b, slip / 2) for b, _ in SIDES[a])]:
            expected[after[s, b], paid[s, b]] = expected.get((after[s, b], paid[s, b]), 0.0) + p
        assert found == pytest.approx(expected)
        assert mean[s, a] == pytest.approx(sum(p * r for (_, r), p in expected.items()))


def test_the_optimum_is_that_of_the_paper():
    assert flag_maze().optimum == pytest.approx(gain(mixed({a: KEEP[a] + SIDES[a] for a in range(4)})), abs=1e-10)
    assert flag_maze(0.2).optimum is None and flag_maze(layout="Sf\n.G").optimum is None


def test_twenty_combinations_never_occur():
    reached, frontier = {0}, [0]
    env: Any = flag_maze()
    successor = np.asarray(env.mdp.successor)
    while frontier:
        new = set(successor[frontier.pop()].ravel().tolist()) - reached
        reached |= new
        frontier += new
    never = {(CELLS[s // 8], s % 8) for s in set(range(264)) - reached}
    without = {(flag, held) for j, flag in enumerate(FLAGS) for held in range(8) if not held & (1 << j)}
    assert never == without | {((0, 6), held) for held in range(8)} and len(never) == 20


def test_a_maze_of_ones_own():
    env: Any = flag_maze(0.0, layout="S.f\n..G")
    assert env.name == "flag_maze" and env.mdp.reward.shape == (12, 4)
    after, reward = np.asarray(env.mdp.successor)[..., 0], np.asarray(env.mdp.reward)
    s, trip = 0, []
    for action in (1, 1, 2):
        trip.append((int(after[s, action]), float(reward[s, action])))
        s = after[s, action]
    assert trip == [(2, 0.0), (5, 0.0), (0, 1.0)]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: flag_maze(-0.1), r"slip is -0\.1, expected a probability"),
        (lambda: flag_maze(layout="S.\n.G"), "layout has no flag, expected at least one f in the 2 lines"),
        (lambda: flag_maze(layout="S.f\n.G"), "layout has 2 cells in line 2, expected 3"),
        (lambda: flag_maze(layout="SSf\n..G"), "layout has 2 cells S, expected one start"),
        (lambda: flag_maze(layout="S.f\nG.G"), "layout has 2 cells G, expected one goal"),
        (lambda: flag_maze(layout="SfG" + 12 * "f"), "layout has 13 flags, expected at most 12"),
        (lambda: flag_maze(layout="S#G\nf#."), "layout has no way from the start S to the goal G, expected one"),
        (lambda: flag_maze(layout="S.f\n..X"), "layout has 'X' at line 2, column 3, expected one of S G f # ."),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
