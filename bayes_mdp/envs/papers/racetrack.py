"""The racetrack: a car with position and velocity on a text map ([TDBMA10]; Barto, Bradtke and Singh 1995).

Tracks are text maps: those of the papers ([TDBMA10], [TRACK95]) by name, or any other (`read_track`).
"""

import os
from dataclasses import dataclass
from itertools import product
from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np

from bayes_mdp.envs.gymnasium.from_gymnasium import ListedReward
from bayes_mdp.envs.papers.maps import FREE, GRAY, START, WALL, cells_with, check_map, read_map
from bayes_mdp.mdp import Environment, NormalReward, Picture, RewardLaw, SparseMDP, StateActionSpace
from bayes_mdp.utils.validation import check_count, check_name, check_number, check_type

FINISH = "F"
TRACK_CELLS = WALL + GRAY + FREE + START + FINISH

_CLIFF = """
##############
#............#
#............#
#............#
#............#
#SxxxxxxxxxxF#
##############
"""
_CORNER = """
##############
#...........F#
#...........F#
#...........F#
#....xxxxxxxx#
#....x########
#....x########
#....x########
#SS..x########
##############
"""
_CURVES = """
####################
#SS......xxxx......#
#SS......xxxx......#
#SS......xxxx......#
#xxxx....xxxx..xx..#
#xxxx....xxxx..xx..#
#xxxx..........xx..#
#xxxx..........xx..#
#xxxxxxxxxxxxxxxxFF#
####################
"""
_BARTO_L = """
################################FFF
################################...
################################...
################################...
################################...
S..................................
S..................................
S..................................
S..................................
####...............................
########...........................
############.......................
"""
_BARTO_R = """
##########.......#############
######..............##########
##.....................#######
##.......................#####
##.......................#####
##.......................#####
##..........##...........#####
##........#####..........#####
##.......#######.........#####
##......#####...........######
##.....####...........########
##.....####.........##########
##.....####.......############
##.....####.....##############
#......####............#######
#......###...............#####
#.....####................####
#.....####.................###
#.....####..................##
#.....#####..................#
#.....######..................
#.....################........
......#################.......
......#################.......
......#################.......
......#################.......
......#################.......
......#################.......
......#################.......
......#################.......
......#################.......
......#################.......
SSSSSS#################FFFFFFF
"""
TRACKS = {"cliff": _CLIFF, "corner": _CORNER, "curves": _CURVES, "barto_l": _BARTO_L, "barto_r": _BARTO_R}
"""Name -> text of a built-in map."""


@dataclass(frozen=True)
class Track:
    """A text map: `#` wall, `x` gray, `.` track, `S` start, `F` finish. Beyond its border all is wall.

    Whether a finish can be reached depends on the rules: `racetrack` sees to it. Racetracks are from [TRACK95].

    Args:
        name: for tables and files.
        cells: the lines of the map, all of one length; the cell in row 3, column 5 (from 0) is `cells[3][5]`.

    Raises:
        ValueError: no lines, an unknown character, lines of different lengths, no start, no finish.
        TypeError: a name or a line that is no string.

    Example:
        >>> from bayes_mdp.envs.papers.racetrack import Track
        >>> track = Track("straight", ("#####", "#S.F#", "#####"))
        >>> track.starts, track.finishes
        (((1, 1),), ((1, 3),))
    """

    name: str
    cells: tuple[str, ...]

    def __post_init__(self) -> None:
        check_type("name", self.name, str, "a string")
        check_type("cells", self.cells, tuple, "a tuple of the lines of a map")
        for i, line in enumerate(self.cells):
            check_type(f"cells[{i}]", line, str, "a line of a map")
        check_map(f"track {self.name!r}", self.cells, TRACK_CELLS, ((START, "start"), (FINISH, "finish")))

    @property
    def starts(self) -> tuple[tuple[int, int], ...]:
        """(row, column) of every start, counted from 0, in reading order."""
        return cells_with(self.cells, START)

    @property
    def finishes(self) -> tuple[tuple[int, int], ...]:
        """(row, column) of every finish, counted from 0, in reading order."""
        return cells_with(self.cells, FINISH)


def read_track(source: "str | os.PathLike[str]", *, name: str | None = None) -> Track:
    """A track by its name, from the text of a map, or from a file with one.

    The built-in maps (`TRACKS`) are "cliff", "corner" and "curves" [TDBMA10], as drawn for this package: the paper's
    are a figure without numbers; and "barto_l" and "barto_r", the two tracks of Barto, Bradtke and Singh (1995), after
    a transcription that was not checked against the paper. `Track` documents the characters. Blank lines around a
    map, common indentation and blanks at the end of a line are dropped; lines and columns in messages are counted
    from 1 in what is left.

    Args:
        source: a name; a map (a str with several lines, or with nothing but the characters of a map); or a path.
        name: of the track; None: that of the built-in map, the file's without its suffix, or "custom".

    Raises:
        TypeError: `source` is neither a str nor a path.
        ValueError: no such name or file, a file that is no text, or a map that is none (see `Track`).
        FileNotFoundError: a path object without a file.

    Example:
        >>> track = bm.envs.read_track("barto_l")
        >>> track.name, len(track.starts) > 1
        ('barto_l', True)
    """
    map_name, cells = read_map("track", source, TRACK_CELLS, TRACKS, ", or a Track")
    return Track(name or map_name, cells)


ACCELERATIONS = tuple(product((-1, 0, 1), repeat=2))
"""(down, right) of every action."""
COAST = ACCELERATIONS.index((0, 0))
CRASHES = ("stop", "restart")
MAX_SWEEPS = 1000


def racetrack(
    track: "str | os.PathLike[str] | Track" = "corner",
    *,
    max_speed: int | None = 2,
    slip: float = 0.0,
    crash: Literal["stop", "restart"] = "stop",
    gray_penalty: float = 100.0,
) -> Environment:
    """A car is driven from a start, drawn uniformly and at rest, to a finish, each action at the price of 1.

    An action is one of 9 accelerations (down, right), each -1, 0 or 1 (action 4 is none); with probability `slip` it is
    ignored. The velocity (v_row, v_column), clipped to `max_speed`, then moves the car through n = max |v| cells, the
    i-th at floor(position + i v / n + 1/2). The first of them that is not track decides: at a wall (or beyond the map)
    the car `crash`es, at a gray cell it goes back to a drawn start at velocity zero for `gray_penalty` in place of 1,
    at a finish the episode ends.

    States are the reachable (row, column, v_row, v_column), the starts first; `racetrack_space` names them. The table
    is a `SparseMDP` in which a restart lists the starts. `optimum` is the best expected sum of rewards of an episode
    without a limit of steps (`FirstExit()`), None where 1000 sweeps of value iteration do not find it.

    [TDBMA10] has neither slip nor restarts after crashes; its figure gives no map, no cap of the speed and no way to
    trace a move: those are ours. The rules of Barto et al. are `max_speed=None, slip=0.1, crash="restart"`.

    Args:
        track: a name, the text of a map, or a file (see `read_track`); or a `Track`.
        max_speed: largest |v_row| and |v_column|; None: no limit.
        slip: probability that an acceleration is ignored.
        crash: "stop": the car stays in the last cell before the wall, at velocity zero; "restart": it goes back to a
            drawn start, at velocity zero. Neither costs more than the action.
        gray_penalty: what a move into a gray cell costs.

    Raises:
        ValueError: as `read_track`; a start from which no finish can be reached, `max_speed` below 1, `slip` outside
            [0, 1), no such `crash`, `gray_penalty` not positive.
        TypeError: as `read_track`; `max_speed` is no integer.

    Example:
        >>> env = bm.envs.racetrack("corner")
        >>> env.mdp.n_actions, env.picture is not None
        (9, True)
    """
    expected = "a probability from 0 up to, but not including, 1"
    check_number("slip", slip, lambda x: 0.0 <= x < 1.0, expected)
    check_number("gray_penalty", gray_penalty, lambda x: 0.0 < x < np.inf, "a finite number greater than zero")
    track = track if isinstance(track, Track) else read_track(track)
    moves = _all_moves(track, max_speed, crash, gray_penalty)
    _require_way(track, moves)
    mdp = _table(moves, slip)
    positions = tuple((float(column), float(row)) for row, column in moves.car[:, :2].tolist())
    return Environment(
        mdp,
        _law(moves, slip, mdp),
        name=f"racetrack_{track.name}",
        optimum=_optimum(moves, slip),
        picture=Picture(positions, track.cells),
    )


def racetrack_space(
    track: "str | os.PathLike[str] | Track" = "corner",
    *,
    max_speed: int | None = 2,
    crash: Literal["stop", "restart"] = "stop",
) -> StateActionSpace:
    """Names for `racetrack` with these arguments: states (row, column, v_row, v_column), actions (down, right).

    `space.states[i]` is state i; rows and columns are counted from 0. Slips and penalties do not change the states. The
    problem is that of [TRACK95].

    Args:
        track, max_speed, crash: as of `racetrack`.

    Raises:
        ValueError, TypeError: as `racetrack`.

    Example:
        >>> space = bm.envs.racetrack_space("corner")
        >>> space.action_names[4], len(space.state_names[0])  # no acceleration; row, column, velocities
        ((0, 0), 4)
    """
    track = track if isinstance(track, Track) else read_track(track)
    moves = _all_moves(track, max_speed, crash, 1.0)
    _require_way(track, moves)
    cars = [tuple(car) for car in moves.car.tolist()]
    return StateActionSpace(len(cars), len(ACCELERATIONS), ends=True, states=cars, actions=ACCELERATIONS)


class _Moves(NamedTuple):
    """Where every action leads when it is not ignored.

    Args:
        car: Int[S 4], row, column and velocity of every state; the starts first.
        landing: Int[S 9], the next state, S for a restart, S + 1 for the end.
        reward: Float[S 9].
        num_starts: number of starts.
    """

    car: np.ndarray
    landing: np.ndarray
    reward: np.ndarray
    num_starts: int

    @property
    def restart(self) -> int:
        return len(self.car)

    @property
    def end(self) -> int:
        return len(self.car) + 1

    def next_values(self, values: np.ndarray) -> np.ndarray:
        """[S 9], values of where a move leads."""
        return np.append(values, (values[: self.num_starts].mean(), 0.0))[self.landing]


def _all_moves(track: Track, max_speed: int | None, crash: str, gray_penalty: float) -> _Moves:
    """The states that can be reached, by breadth-first search over the moves, and all moves from them."""
    if max_speed is not None:
        check_count("max_speed", max_speed)
    check_name("crash", crash, CRASHES)
    shape = (len(track.cells), len(track.cells[0]))
    # From rest to v takes 1 + ... + v cells in one direction; beyond `fastest` every move leaves the map.
    fastest = int((np.sqrt(8 * max(shape) + 1) - 1) / 2) + 1
    limit = fastest if max_speed is None else min(max_speed, fastest)
    sizes, offset = (*shape, 2 * limit + 1, 2 * limit + 1), np.array([0, 0, limit, limit])
    grid = _pad_with_walls(track)

    def number(cars: np.ndarray) -> np.ndarray:
        return np.asarray(np.ravel_multi_index(tuple(np.moveaxis(cars + offset, -1, 0)), sizes))

    def drive(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        cars = np.stack(np.unravel_index(numbers, sizes), -1) - offset
        after, met = trace_moves(grid, cars, limit)
        on = (met == FREE) | (met == WALL) if crash == "stop" else met == FREE
        return number(after), met, on

    starts = np.array([(*start, 0, 0) for start in track.starts])
    reached = frontier = number(starts)
    while len(frontier):
        after, _, on = drive(frontier)
        frontier = np.setdiff1d(after[on], reached)
        reached = np.concatenate([reached, frontier])
    after, met, on = drive(reached)
    order = np.argsort(reached)
    known = np.minimum(np.searchsorted(reached, after, sorter=order), len(reached) - 1)
    landing = np.where(on, order[known], np.where(met == FINISH, len(reached) + 1, len(reached)))
    reward = np.where(met == GRAY, -float(gray_penalty), -1.0)
    cars = np.stack(np.unravel_index(reached, sizes), -1) - offset
    return _Moves(cars, landing, reward, len(starts))


def _pad_with_walls(track: Track) -> np.ndarray:
    """The characters of the map [rows + 2, columns + 2], walls around it."""
    return np.pad(np.array([list(row) for row in track.cells]), 1, constant_values=WALL)


def trace_moves(grid: np.ndarray, cars: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """One move of every car [N 4] with every acceleration: the car after it [N 9 4], and what stopped it [N 9].

    After it the car is in the last free cell; a car that did not stop is `FREE`, one that met a wall has velocity zero.
    `grid` has a border of walls, which is not counted in the positions of cars.
    """
    velocity = np.clip(cars[:, None, 2:] + np.array(ACCELERATIONS), -limit, limit)
    first = np.broadcast_to(cars[:, None, :2], velocity.shape)
    length = np.abs(velocity).max(-1)
    position, met = first, np.full(length.shape, FREE)
    for i in range(1, int(length.max()) + 1):
        n = np.maximum(length, 1)[..., None]
        cell = first + (2 * i * velocity + n) // (2 * n)
        row, column = (np.clip(cell[..., axis] + 1, 0, grid.shape[axis] - 1) for axis in (0, 1))
        cell_kind, moving = grid[row, column], (met == FREE) & (i <= length)
        stops = np.isin(cell_kind, (WALL, GRAY, FINISH))
        met = np.where(moving & stops, cell_kind, met)
        position = np.where((moving & ~stops)[..., None], cell, position)
    velocity = np.where((met == WALL)[..., None], 0, velocity)
    return np.concatenate([position, velocity], -1), met


def _require_way(track: Track, moves: _Moves) -> None:
    """Refuse a start from which no sequence of moves (restarts among them) reaches a finish."""
    reach, before = np.zeros(len(moves.car), bool), -1
    while reach.sum() > before:
        before = int(reach.sum())
        known = np.append(reach, np.array([reach[: moves.num_starts].any(), True]))
        reach = np.any(known[moves.landing], -1)
    lost = np.flatnonzero(~reach[: moves.num_starts])
    if len(lost):
        row, column = moves.car[lost[0], :2] + 1
        raise ValueError(
            f"track {track.name!r} has no way to a finish from the start at line {row}, column {column}, "
            "expected one from every start (lines and columns are counted from 1)"
        )


def _parts(x: np.ndarray, slip: float) -> list[tuple[np.ndarray, float]]:
    """An array [S 9] of what actions do, with its probability, and of what is done where they are ignored."""
    return [(x, 1.0 - slip), (np.broadcast_to(x[:, [COAST]], x.shape), slip)][: 2 if slip else 1]


def _table(moves: _Moves, slip: float) -> SparseMDP:
    """Rows list where the action leads, where coasting leads, and the starts where a restart is possible."""
    size, starts = len(moves.car), range(moves.num_starts)
    parts = _parts(moves.landing, slip)
    restarts, ends = (np.sum([p * (x == landing) for x, p in parts], 0) for landing in (moves.restart, moves.end))
    share = restarts / moves.num_starts
    listed = [(np.where(x < size, x, 0), p * (x < size)) for x, p in parts]
    listed += [(np.full(share.shape, start), share) for start in starts]
    successor, probability = (np.stack(x, -1) for x in zip(*listed, strict=True))
    successor, probability = _drop_impossible(probability, successor, probability)
    reward = np.sum([p * x for x, p in _parts(moves.reward, slip)], 0)
    initial = (np.arange(size) < moves.num_starts) / moves.num_starts
    # Made JAX's here: a conversion by dtype would compile a program for every shape.
    probability, reward, ends, initial = map(jnp.asarray, (probability, reward, ends, initial))
    return SparseMDP(successor, probability, reward, end_probs=ends, initial=initial)


def _law(moves: _Moves, slip: float, mdp: SparseMDP) -> RewardLaw:
    """The reward of the pair; where a slip decides between two, it is listed by outcome."""
    if slip == 0 or np.all(moves.reward == moves.reward[:, [COAST]]):
        return NormalReward(mdp.reward)
    size, n = len(moves.car), moves.num_starts
    entries = []
    for (landing, p), (reward, _) in zip(_parts(moves.landing, slip), _parts(moves.reward, slip), strict=True):
        restarts = landing == moves.restart
        entries.append((np.minimum(landing, size), p * ~restarts, reward))
        entries += [(np.full(landing.shape, start), p * restarts / n, reward) for start in range(n)]
    outcome, probability, value = (np.stack(x, -1) for x in zip(*entries, strict=True))
    outcome, probability, value = _drop_impossible(probability, outcome, probability, value)
    return ListedReward(*map(jnp.asarray, (outcome, probability, value)))


def _drop_impossible(probability: np.ndarray, *arrays: np.ndarray) -> list[np.ndarray]:
    """The arrays [S 9 W] without the entries of probability zero, as far as all rows have some to spare."""
    width = max(1, int((probability > 0).sum(-1).max()))
    order = np.argsort(probability <= 0, axis=-1, kind="stable")[..., :width]
    return [np.take_along_axis(x, order, -1) for x in arrays]


def _optimum(moves: _Moves, slip: float) -> float | None:
    """Mean of the optimal values of the starts, by value iteration to a relative error of 1e-9.

    Costs rise from zero and stay below the optimal ones, J*. Where a sweep changes them by at most delta and an action
    costs at least c, those of the greedy policy, J, exceed the sweep's by at most delta times its expected actions, of
    which there are at most J / c: the sweep's lie between (1 - delta / c) J* and J*.
    """
    least, values = -moves.reward.max(), np.zeros(len(moves.car))
    for _ in range(MAX_SWEEPS):
        q = np.sum([p * x for x, p in _parts(moves.reward + moves.next_values(values), slip)], 0)
        new = np.max(q, -1)
        if np.max(np.abs(new - values)) <= 1e-9 * least:
            return float(new[: moves.num_starts].mean())
        values = new
    return None
