"""The racetrack against a transcription of its rules in plain Python, published counts and returns, drawn steps."""

from collections import Counter
from functools import cache
from math import floor, inf
from typing import Any

import jax
import numpy as np
import pytest

from bayes_mdp.envs import racetrack, racetrack_space, read_track
from bayes_mdp.envs.gymnasium.from_gymnasium import ListedReward
from bayes_mdp.envs.papers.racetrack import Track
from bayes_mdp.mdp import FirstExit, NormalReward
from bayes_mdp.planning import solve

pytestmark = pytest.mark.numerics

ACTIONS = [(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1)]
BARTO: dict[str, Any] = {"max_speed": None, "slip": 0.1, "crash": "restart"}
OPEN = "S..x.\n..S..\n#...F\n.x..F"
"""No wall around it: beyond the border all is wall."""


@cache
def drive(cells, car, acceleration, max_speed, crash):
    """One move by the rules: the next car, "restart" or "end", and the reward in units of one action or of a gray."""
    row, column, *velocity = car
    cap = inf if max_speed is None else max_speed
    down, right = (int(max(-cap, min(cap, v + a))) for v, a in zip(velocity, acceleration, strict=True))
    n = max(abs(down), abs(right))
    last = (row, column)
    for i in range(1, n + 1):
        here = tuple(floor(x + i * v / n + 0.5) for x, v in ((row, down), (column, right)))
        inside = 0 <= here[0] < len(cells) and 0 <= here[1] < len(cells[0])
        cell = cells[here[0]][here[1]] if inside else "#"
        if cell == "F":
            return "end", "action"
        if cell == "x":
            return "restart", "gray"
        if cell == "#":
            return ((*last, 0, 0), "action") if crash == "stop" else ("restart", "action")
        last = here
    return (*last, down, right), "action"


def outcomes(track, car, action, *, max_speed=2, slip=0.0, crash="stop", gray_penalty=100.0):
    """{(next car or "end", reward): probability} of a pair."""
    pay = {"action": -1.0, "gray": -gray_penalty}
    starts = [(*start, 0, 0) for start in track.starts]
    found: dict[Any, float] = {}
    for acceleration, p in ((ACTIONS[action], 1 - slip), ((0, 0), slip)):
        there, reward = drive(track.cells, car, acceleration, max_speed, crash)
        for z in starts if there == "restart" else [there]:
            share = p / len(starts) if there == "restart" else p
            found[z, pay[reward]] = found.get((z, pay[reward]), 0.0) + share
    return {entry: p for entry, p in found.items() if p > 0}


def reachable_cars(track, **rules):
    """Every car that some sequence of actions reaches, the starts first."""
    cars = [(*start, 0, 0) for start in track.starts]
    known = set(cars)
    for car in cars:
        for action in range(9):
            new = {z for z, _ in outcomes(track, car, action, **rules) if z != "end"} - known
            known |= new
            cars += sorted(new)
    return cars


def add(table, entry, p):
    """Repeated entries of a dictionary of probabilities are added."""
    if p > 0:
        table[entry] = table.get(entry, 0.0) + p


def listed(env, names):
    """{(state, action, next name or "end"): probability}, read off the table."""
    mdp, table = env.mdp, {}
    successor, probability, ends = (np.asarray(x) for x in (mdp.successor, mdp.probability, mdp.end_probs))
    for s, a, k in np.argwhere(probability > 0).tolist():
        add(table, (s, a, names[successor[s, a, k]]), float(probability[s, a, k]))
    for s, a in np.argwhere(ends > 0).tolist():
        add(table, (s, a, "end"), float(ends[s, a]))
    return table


def listed_law(law, names):
    """{(state, action, next name or "end", reward): probability}, read off the law."""
    table, (outcome, probability, value) = {}, (np.asarray(x) for x in (law.outcome, law.probability, law.value))
    for s, a, e in np.argwhere(probability > 0).tolist():
        add(table, (s, a, names[outcome[s, a, e]], float(value[s, a, e])), float(probability[s, a, e]))
    return table


RULES = [
    ("cliff", {}),
    ("corner", {"max_speed": 3}),
    ("curves", {"slip": 0.2}),
    (OPEN, {"max_speed": None, "slip": 0.1, "crash": "restart", "gray_penalty": 7.0}),
    (OPEN, {"max_speed": None}),
    ("S" + 17 * "." + "F", BARTO),
]


@pytest.mark.few(2)
@pytest.mark.parametrize(("source", "rules"), RULES)
def test_every_row_follows_the_rules(source, rules):
    """States, rows, ends, mean rewards and their law of every pair, against the plain transcription."""
    track = read_track(source)
    env = racetrack(track, **rules)
    space = racetrack_space(track, **{name: x for name, x in rules.items() if name in ("max_speed", "crash")})
    cars = space.state_names
    starts = [(*start, 0, 0) for start in track.starts]
    assert list(cars[: len(starts)]) == starts and space.action_names == tuple(ACTIONS)
    assert len(set(cars)) == len(cars) == env.mdp.n_states and set(cars) == set(reachable_cars(track, **rules))
    law: Any = env.reward_law
    reward = np.asarray(env.mdp.reward)
    rows, paid, mean = {}, {}, np.zeros(reward.shape)
    for s, a in np.ndindex(*reward.shape):
        for (z, r), p in outcomes(track, cars[s], a, **rules).items():
            add(rows, (s, a, z), p)
            add(paid, (s, a, z, r), p)
            mean[s, a] += p * r
    assert listed(env, cars) == pytest.approx(rows, abs=1e-6)
    np.testing.assert_allclose(reward, mean, rtol=1e-6)
    if isinstance(law, ListedReward):
        assert listed_law(law, [*cars, "end"]) == pytest.approx(paid, abs=1e-6)
    else:
        np.testing.assert_array_equal(law.mean, reward)
        assert len(paid) == len(rows)  # one reward for an outcome
        np.testing.assert_allclose([mean[entry[:2]] for entry in paid], [entry[3] for entry in paid])


@pytest.mark.parametrize(
    ("track", "max_speed", "n_states", "value"),
    [
        ("cliff", 2, 637, -6.0),
        ("cliff", 3, 782, -5.0),
        ("corner", 2, 653, -7.0),
        ("corner", 3, 793, -6.0),
        ("curves", 2, 970, -38 / 3),
        ("curves", 3, 1134, -37 / 3),
    ],
)
def test_the_published_numbers(track, max_speed, n_states, value):
    env: Any = racetrack(track, max_speed=max_speed)
    assert env.mdp.n_states == n_states and env.name == f"racetrack_{track}"
    assert env.optimum == pytest.approx(value, abs=1e-12)
    starts = len(read_track(track).starts)
    assert env.mdp.successor.shape == (n_states, 9, starts)  # a restart lists the starts, all else is one successor
    assert isinstance(env.reward_law, NormalReward) and env.reward_law.scale is None


def iterate(env, sweeps=3000):
    """Optimal values by value iteration on the table."""
    mdp = env.mdp
    successor, probability, reward = (np.asarray(x, float) for x in (mdp.successor, mdp.probability, mdp.reward))
    v = np.zeros(len(reward))
    for _ in range(sweeps):
        v = (reward + np.sum(probability * v[successor.astype(int)], -1)).max(-1)
    return v


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("source", "rules"), [RULES[3], ("corner", {"slip": 0.3}), RULES[5]])
def test_the_optimum_is_that_of_the_table(source, rules):
    env = racetrack(source, **rules)
    assert env.optimum == pytest.approx(np.asarray(env.mdp.initial) @ iterate(env, 300), rel=1e-8)


def test_an_optimum_that_is_not_found_is_none():
    """A gray moat that is met in 999 of 1000 moves: thousands of sweeps."""
    assert racetrack("xxxxxx\nxS..Fx\nxxxxxx", slip=0.9995).optimum is None


def test_barriers_may_be_passed_between_two_corners():
    """A diagonal move has no cell between: what counts is the move, not the neighbourhood of the cells."""
    env = racetrack("S#\n#F")
    assert env.optimum == -1.0


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("track", "rules", "n_states", "value"),
    [
        ("cliff", {}, 637, -6.0),
        ("corner", {"max_speed": 3}, 793, -6.0),
        ("curves", {}, 970, -38 / 3),
        ("barto_l", BARTO, 9306, -13.322537976),
        ("barto_r", BARTO, 20706, -23.892731901),
    ],
)
def test_the_planner_finds_the_optimum(track, rules, n_states, value):
    """`solve` with `FirstExit`; Barto's tracks under his rules: our counts and values, by two programs."""
    env = racetrack(track, **rules)
    mdp: Any = env.mdp
    solution = solve(mdp, FirstExit())
    assert mdp.n_states == n_states and env.optimum == pytest.approx(value, abs=1e-7)
    assert float(mdp.initial @ solution.v) == pytest.approx(value, abs=1e-7)


NUM_DRAWS = 20_000


def largest_deviation(drawn, track, cars, **rules):
    """Largest |z| of the frequencies {(s, a): {(next, reward): number}}; infinite where the impossible came."""
    worst = 0.0
    for (s, a), numbers in drawn.items():
        expected = outcomes(track, cars[s], a, **rules)
        if set(numbers) - set(expected):
            return inf
        for entry, p in expected.items():
            spread = np.sqrt(p * (1 - p) / NUM_DRAWS)
            worst = max(worst, abs(numbers.get(entry, 0) / NUM_DRAWS - p) / (spread or 1e-9))
    return worst


def test_drawn_steps_have_their_frequencies(key):
    """Restarts, slips and their rewards: 20,000 steps from 12 pairs, at most 8 entries each.

    6 sd: false alarms below 96 * 2e-9 = 2e-7. Caught: a slip off by 0.02, as the twin shows.
    """
    track = read_track(OPEN)
    rules: dict[str, Any] = {"slip": 0.2, "gray_penalty": 7.0}
    env, cars = racetrack(track, **rules), racetrack_space(track).state_names
    mixed = [(s, a) for s in range(len(cars)) for a in range(9) if len(outcomes(track, cars[s], a, **rules)) > 2]
    pairs = [*mixed[:: len(mixed) // 9][:9], (0, 4), (1, 8), (len(cars) - 1, 0)]
    draw = jax.jit(jax.vmap(jax.vmap(env.step, (0, None, None)), (0, 0, 0)))
    steps = draw(jax.random.split(key, (len(pairs), NUM_DRAWS)), *np.array(pairs).T)
    drawn = {}
    for pair, row in zip(pairs, zip(*map(np.asarray, steps), strict=True), strict=True):
        numbers = Counter(zip(*(x.tolist() for x in row), strict=True))
        drawn[pair] = {("end" if ended else cars[z], paid): n for (z, paid, ended), n in numbers.items()}
    assert len(drawn) == 12 and largest_deviation(drawn, track, cars, **rules) < 6
    assert largest_deviation(drawn, track, cars, slip=0.22, gray_penalty=7.0) > 6


def test_the_picture_is_the_map_and_the_places_of_the_cars():
    cars: Any = racetrack_space().state_names
    picture: Any = racetrack().picture
    assert picture.cells == read_track("corner").cells
    assert picture.positions == tuple((float(car[1]), float(car[0])) for car in cars)
    assert all(picture.cells[int(y)][int(x)] in ".S" for x, y in picture.positions)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("####\n#S##\n####\n#SF#\n####", "from the start at line 2, column 2"),
        ("SS.#F", "from the start at line 1, column 1"),
        ("S.F.S#S", "from the start at line 1, column 7"),
        ("Sx#S#F", "from the start at line 1, column 1"),
    ],
)
def test_a_start_without_a_way_is_refused(source, message):
    wanted = (
        f"track 'custom' has no way to a finish {message}, expected one from every start "
        "(lines and columns are counted from 1)"
    )
    for refuse in (racetrack, racetrack_space):
        with pytest.raises(ValueError) as error:
            refuse(source)
        assert str(error.value) == wanted


def test_a_restart_is_a_way():
    """A start behind a moat, or where crashes restart, gets to the finish from another start, which needs 2 actions.

    Its value solves v = -cost + (v - 2) / 2: -202 across the moat, -4 by crashes; `optimum` is the mean with -2.
    """
    assert racetrack("Sx#S.F").optimum == pytest.approx(-(202 + 2) / 2)
    assert racetrack("S##S.F", crash="restart").optimum == pytest.approx(-(4 + 2) / 2)
    with pytest.raises(ValueError, match="line 1, column 1"):
        racetrack("S##S.F")


UNKNOWN: Any = "bounce"


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"max_speed": 0}, "max_speed is 0, expected an integer of at least 1"),
        ({"slip": 1.0}, r"slip is 1\.0, expected a probability from 0 up to, but not including, 1"),
        ({"slip": np.nan}, "slip is nan, expected a probability"),
        ({"crash": UNKNOWN}, "crash is 'bounce', expected one of stop, restart"),
        ({"gray_penalty": 0.0}, r"gray_penalty is 0\.0, expected a finite number greater than zero"),
        ({"track": "curve"}, "track is 'curve', expected one of cliff, .*; did you mean 'curves'"),
    ],
)
def test_bad_rules_are_refused(rules, message):
    with pytest.raises(ValueError, match=message):
        racetrack(**rules)


def test_a_speed_is_a_whole_number():
    speed: Any = 1.5
    with pytest.raises(TypeError, match=r"max_speed is 1\.5, expected an integer of at least 1"):
        racetrack(max_speed=speed)


def test_a_users_file(tmp_path):
    (tmp_path / "ring.txt").write_text("#####\n#S.F#\n#####\n")
    env = racetrack(tmp_path / "ring.txt")
    assert env.name == "racetrack_ring" and env.optimum == -2.0 == racetrack(Track("it", ("S.F",))).optimum
