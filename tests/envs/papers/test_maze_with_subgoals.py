"""MazeWithSubgoals: every row, the counts and the ways of its mazes, by plain loops over its map."""

from typing import Any

import numpy as np
import pytest

from bayes_mdp.envs import maze_with_subgoals

MOVES = [(-1, 0), (0, 1), (1, 0), (0, -1)]
UNKNOWN: Any = "some"


def cells_of(env) -> Any:
    return env.picture.cells


def ways(cells):
    """Every cell that can be reached from the start, by breadth-first search, through goals too."""
    reached, frontier = {(1, 1)}, [(1, 1)]
    while frontier:
        r, c = frontier.pop()
        new = {(r + i, c + j) for i, j in MOVES if cells[r + i][c + j] != "#"} - reached
        reached |= new
        frontier += new
    return reached


@pytest.mark.parametrize("seed", range(4))
def test_counts_and_ways(seed):
    cells = cells_of(maze_with_subgoals(seed))
    assert [len(line) for line in cells] == [50] * 50
    ring = [cells[r][c] for r in range(50) for c in range(50) if {r, c} & {0, 49}]
    inner = "".join(line[1:-1] for line in cells[1:-1])
    assert set(ring) == {"#"} and len(ring) == 196
    assert (cells[1][1], cells[48][48], cells[1][48], cells[48][1]) == ("S", "G", "g", "g")
    kinds = {kind: inner.count(kind) for kind in "SGg#x."}
    assert kinds == {"S": 1, "G": 1, "g": 2, "#": 460, "x": 460, ".": 1380}  # 20 % of 48^2 - 4 cells each
    assert {(48, 48), (1, 48), (48, 1)} <= ways(cells)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("size", "options", "p_other"), [(50, {}, 0.025), (5, {"slip": 0.4}, 0.1), (6, {}, 0.025)])
def test_every_row_follows_the_rules(size, options, p_other):
    """Where each move leads, what it pays, how likely it is: the intended one .925, each other one .025."""
    env: Any = maze_with_subgoals(1, size, **options)
    cells, mdp, law = cells_of(env), env.mdp, env.reward_law
    successor, probability, value = (np.asarray(x) for x in (law.outcome, law.probability, law.value))
    np.testing.assert_array_equal(mdp.successor, successor)
    np.testing.assert_array_equal(mdp.probability, probability)
    assert mdp.reward.shape == (size**2, 4) and np.argmax(mdp.initial) == size + 1 and mdp.end_probs is None
    mean = np.asarray(mdp.reward)
    pays = {"G": 1000.0, "g": 500.0, "x": -10.0, ".": -1.0, "S": -1.0}
    for r, c in np.ndindex(size, size):
        happens = []
        for i, j in MOVES:
            inside = 0 <= r + i < size and 0 <= c + j < size
            kind = cells[r + i][c + j] if inside else "#"
            there = (r, c) if kind == "#" else (1, 1) if kind in "Gg" else (r + i, c + j)
            happens.append((there[0] * size + there[1], pays.get(kind, -2.0)))
        for a in range(4):
            row, cell = [1 - 3 * p_other if b == a else p_other for b in range(4)], (r * size + c, a)
            entries = zip(successor[cell].tolist(), value[cell].tolist(), probability[cell].tolist(), strict=True)
            found, expected = {}, {}
            for table, of in ((found, entries), (expected, ((*x, p) for x, p in zip(happens, row, strict=True)))):
                for z, paid, p in of:
                    table[z, paid] = table.get((z, paid), 0.0) + p
            assert found == pytest.approx(expected)
            assert mean[cell] == pytest.approx(sum(p * x[1] for x, p in zip(happens, row, strict=True)))


def goal_of(env, discount):
    """(row, column) of the goal to which the optimal policy leads from the start where no action is replaced."""
    cells = cells_of(env)
    mean, probability = np.asarray(env.mdp.reward, float), np.asarray(env.mdp.probability, float)
    after, value, q = np.asarray(env.mdp.successor)[:, 0], np.zeros(2500), mean
    for _ in range(int(np.log(1e-3) / np.log(discount)) + 200):
        q = mean + discount * np.einsum("sab,sb->sa", probability, value[after])
        value = q.max(-1)
    state = 51
    for _ in range(200):
        row, column = divmod(state, 50)
        action = q[state].argmax()
        there = row + MOVES[action][0], column + MOVES[action][1]
        if cells[there[0]][there[1]] in "Gg":
            return there
        state = after[state, action]
    raise AssertionError("no goal in 200 steps")


@pytest.mark.parametrize(("seed", "near"), [(0, (48, 48)), (3, (1, 48)), (4, (48, 1))])
def test_the_discount_decides_between_the_goals(seed, near):
    """At .98 a near goal wins in most mazes, at .995 the far one."""
    env = maze_with_subgoals(seed)
    assert goal_of(env, 0.995) == (48, 48)
    assert goal_of(env, 0.98) == near


def test_seeds_and_shares():
    assert cells_of(maze_with_subgoals(5)) == cells_of(maze_with_subgoals(5)) != cells_of(maze_with_subgoals(6))
    plain = "".join(cells_of(maze_with_subgoals(0, 10, blocked=0.0, punishing=0.5)))
    assert plain.count("#") == 36 and plain.count("x") == 30
    assert "".join(cells_of(maze_with_subgoals(0, 5, blocked=0.0, punishing=1.0))).count("x") == 5
    assert maze_with_subgoals(7, 10).name == "maze_with_subgoals_10_seed_7"
    assert "".join(cells_of(maze_with_subgoals(0, 5, blocked=0.5, punishing=0.5))).count("#") == 16 + 2


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: maze_with_subgoals(0, 4), ValueError, "size is 4, expected an integer of at least 5"),
        (lambda: maze_with_subgoals(-1), ValueError, "seed is -1, expected an integer of at least 0"),
        (lambda: maze_with_subgoals(UNKNOWN), TypeError, "seed is 'some', expected an integer of at least 0"),
        (lambda: maze_with_subgoals(slip=1.5), ValueError, r"slip is 1\.5, expected a number from 0 to 1"),
        (lambda: maze_with_subgoals(blocked=-0.2), ValueError, r"blocked is -0\.2, expected a number from 0 to 1"),
        (
            lambda: maze_with_subgoals(blocked=0.6, punishing=0.6),
            ValueError,
            r"blocked \+ punishing is 1\.2, expected at most 1: no cell is both",
        ),
        (
            lambda: maze_with_subgoals(blocked=0.6),
            ValueError,
            r"blocked is 0\.6, expected a smaller share: none of 1000 mazes has a way to every goal",
        ),
    ],
)
def test_bad_settings_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(("size", "blocked"), [(5, 0.2), (6, 0.3), (12, 0.4)])
def test_a_way_leads_to_every_goal_that_passes_no_other(size, blocked):
    """Entering a subgoal is a new start: what lies behind it alone is out of reach."""
    for seed in range(8):
        env = maze_with_subgoals(seed, size, blocked=blocked)
        mdp: Any = env.mdp
        law: Any = env.reward_law
        successor, probability, paid = (np.asarray(x) for x in (mdp.successor, mdp.probability, law.value))
        met, todo, found = {int(np.argmax(mdp.initial))}, [int(np.argmax(mdp.initial))], set()
        while todo:
            at = todo.pop()
            for after, chance, reward in zip(
                successor[at].ravel(), probability[at].ravel(), paid[at].ravel(), strict=True
            ):
                if chance > 0:
                    found.add(float(reward))
                    if int(after) not in met:
                        met.add(int(after))
                        todo.append(int(after))
        assert {1000.0, 500.0} <= found
