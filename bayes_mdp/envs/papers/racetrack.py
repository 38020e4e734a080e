"""The racetrack: a car with position and velocity on a text map ([TDBMA10]; Barto, Bradtke and Singh 1995).

Tracks are text maps: those of the papers ([TDBMA10], [TRACK95]) by name, or any other (`read_track`).
The Mail Robot ([TDBMA10] section 5) is such a car that fetches mail and brings it where it belongs.
"""

import os
from dataclasses import dataclass
from itertools import product
from math import comb
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

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
    grid = _pad_with_walls(track.cells)

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


def _pad_with_walls(cells: tuple[str, ...]) -> np.ndarray:
    """The characters of the map [rows + 2, columns + 2], walls around it."""
    return np.pad(np.array([list(row) for row in cells]), 1, constant_values=WALL)


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


PICKUP, DESTINATION = "PD"
CELLS = WALL + GRAY + FREE + PICKUP + DESTINATION + START
OFFICE = """
#############
#D....P....D#
#...........#
#..xx..xx...#
#..xx..xx...#
#...........#
#P....S....P#
#..xx..xx...#
#..xx..xx...#
#...........#
#...........#
#D....P....D#
#############
"""
MOST_PICKUPS = 6
MOST_CODES = 2**31 - 1


class RobotState(NamedTuple):
    """The state of a Mail Robot, as three numbers (see `MailRobot`, [TDBMA10]).

    Args:
        car: cell and velocity, a row of `MailRobot.cars`.
        waiting: bit i is set where mail waits at pickup i.
        load: what the holders carry, a row of `MailRobot.loads`.

    Example:
        >>> state = bm.envs.mail_robot().reset(jax.random.key(0))
        >>> int(state.waiting), int(state.load)
        (0, 0)
    """

    car: Int[Array, ""]
    waiting: Int[Array, ""]
    load: Int[Array, ""]


class MailRobot(eqx.Module):
    """The Mail Robot of [TDBMA10]; `mail_robot` makes it.

    C cars (cells x velocities), L loads, P pickups, D destinations; all are numbered in the map's reading order.

    Args:
        name, n_actions, num_codes, picture: as in `SimulatedEnvironment`.
        cars: Int[C 4], (row, column, v_row, v_column).
        loads: Int[L D], pieces for every destination: holders are alike, so that it does not matter which holds what.
        start: the first car.
        moved: Int[C A], the car after a move.
        pickup: Int[C], the bit of the pickup at the cell of a car, 0: none.
        destination: Int[C], the destination there, D: none.
        taken: Int[L D], the load with one more piece; -1: no holder is free.
        left: Int[L D+1], the load after delivery to a destination.
        pieces: Int[L D+1], how many are delivered.
        meets_gray: Bool[C A], whether a move costs the penalty.
        arrivals: UInt32[2^P - 1], cumulative probabilities of the sets of pickups where mail arrives, times 2^32.
        delivery_reward, gray_penalty: per piece; per move.

    Example:
        >>> env = bm.envs.mail_robot()
        >>> state = env.reset(jax.random.key(0))
        >>> state, reward, terminated = env.step(jax.random.key(1), state, jnp.int32(4))
        >>> float(reward), bool(terminated)
        (0.0, False)
    """

    cars: Int[Array, "C 4"]
    loads: Int[Array, "L D"]
    start: Int[Array, ""]
    moved: Int[Array, "C A"]
    pickup: Int[Array, " C"]
    destination: Int[Array, " C"]
    taken: Int[Array, "L D"]
    left: Int[Array, "L D1"]
    pieces: Int[Array, "L D1"]
    meets_gray: Bool[Array, "C A"]
    arrivals: UInt32[Array, " M"]
    delivery_reward: Float[Array, ""]
    gray_penalty: Float[Array, ""]
    num_codes: int = eqx.field(static=True)
    picture: Picture = eqx.field(static=True)
    name: str = eqx.field(default="mail_robot", static=True)
    n_actions: int = eqx.field(default=len(ACCELERATIONS), static=True)

    def reset(self, key: PRNGKeyArray) -> RobotState:
        """At the start, at rest, without mail anywhere."""
        del key
        nothing = jnp.zeros((), jnp.int32)
        return RobotState(self.start, nothing, nothing)

    def step(
        self, key: PRNGKeyArray, state: RobotState, action: Int[Array, ""]
    ) -> tuple[RobotState, Float[Array, ""], Bool[Array, ""]]:
        """One transition: (next state, reward, False)."""
        after, reward = self.transition(jax.random.bits(key, (2,), jnp.uint32), state, action)
        return after, reward, jnp.zeros((), bool)

    def transition(
        self, words: UInt32[Array, " 2"], state: RobotState, action: Int[Array, ""]
    ) -> tuple[RobotState, Float[Array, ""]]:
        """(next state, reward), from the random words of a step.

        Args:
            words: [2], random words of 32 bits: for the arrivals, and for the destination.
            state: of the robot.
            action: index of the action.
        """
        car = self.moved[state.car, action]
        # Of the second word 24 bits: times D they still are 32 bits.
        drawn = ((words[1] >> 8) * self.taken.shape[1]) >> 24
        new_load = self.taken[state.load, drawn.astype(jnp.int32)]
        pickup_bits = self.pickup[car]
        takes = ((state.waiting & pickup_bits) != 0) & (new_load >= 0)
        load = jnp.where(takes, new_load, state.load)
        waiting = jnp.where(takes, state.waiting & ~pickup_bits, state.waiting)
        destination = self.destination[car]
        arrived = jnp.sum(words[0] >= self.arrivals, dtype=jnp.int32)
        reward = self.delivery_reward * self.pieces[load, destination]
        reward = reward - jnp.where(self.meets_gray[state.car, action], self.gray_penalty, 0.0)
        return RobotState(car, waiting | arrived, self.left[load, destination]), reward

    def code(self, state: RobotState) -> Int[Array, ""]:
        """The number of a state, below `num_codes`."""
        sets = self.arrivals.shape[0] + 1
        return (state.car * sets + state.waiting) * self.loads.shape[0] + state.load

    def decode(self, code: Int[Array, ""]) -> RobotState:
        """The state with this number.

        Args:
            code: as `code` gives it.
        """
        rest, load = jnp.divmod(code, self.loads.shape[0])
        return RobotState(*jnp.divmod(rest, self.arrivals.shape[0] + 1), load)

    def position(self, state: RobotState) -> Int[Array, "*N 2"]:
        """(x, y), column and row on the map, as `plot_trajectory` takes them; of one state or of many.

        Args:
            state: of the robot, one or N.
        """
        return self.cars[state.car, 1::-1]


def mail_robot(
    layout: "str | os.PathLike[str] | None" = None,
    *,
    max_speed: int = 2,
    arrival_interval: float = 30.0,
    num_holders: int = 4,
    delivery_reward: float = 4.0,
    gray_penalty: float = 100.0,
) -> MailRobot:
    """A robot fetches mail at the pickups and delivers it; gray cells cost. Episodes do not end by themselves.

    It moves as the car of `racetrack`: 9 accelerations (down, right), velocity clipped to `max_speed`, a move traced
    cell by cell, a stop before a wall. Then, in this order:

    1. where the cells of the move, or the one where it ends, are gray, it costs `gray_penalty`, once;
    2. where the move ends on a pickup with mail, and a holder is free, the robot takes it, and learns its destination;
    3. where the move ends on a destination, it delivers all pieces for it, each for `delivery_reward`;
    4. at every pickup where none waits, mail arrives with probability 1 / `arrival_interval`.

    What it drives over and does not stop on is neither taken nor delivered (the robot need not be at rest). The
    destination is uniform and drawn when mail is taken, which is the same as at its arrival: nobody can see it before.
    How long mail will take to arrive cannot be seen either, but it does not depend on the past: the states are Markov.

    [TDBMA10] gives neither map nor cap of the speed, and of the arrivals only their mean interval: these are ours, and
    so are 2 to 4 where, by the paper, mail is taken and delivered, and gray squares are encountered.

    Args:
        layout: a map, as text or a file: `#` wall, `x` gray, `.` free, `P` pickup, `D` destination, `S` the start;
            None: an office of 11 x 11 cells (`OFFICE`), P amid its edges, D in its corners, and four gray blocks.
        max_speed: largest |v_row| and |v_column|.
        arrival_interval: mean number of steps until mail arrives where none waits.
        num_holders: how many pieces it can carry.
        delivery_reward: for a delivered piece.
        gray_penalty: what a move through gray cells, or a step on one, costs.

    Raises:
        ValueError: a map that is none, without pickups, destinations or a start, with more than one start or more than
            six pickups; a pickup or destination that cannot be reached; more than 2^31 - 1 states; `max_speed`,
            `num_holders` or `arrival_interval` below 1; a reward or penalty that is not finite.
        TypeError: `layout` is neither text nor path; `max_speed` or `num_holders` is no integer.
        FileNotFoundError: a path object without a file.

    Example:
        >>> env = bm.envs.mail_robot()
        >>> state = env.reset(jax.random.key(0))
        >>> env.n_actions, int(env.code(state)) < env.num_codes
        (9, True)
    """
    check_count("max_speed", max_speed)
    check_count("num_holders", num_holders)
    check_number("arrival_interval", arrival_interval, lambda x: 1.0 <= x < np.inf, "a finite number of at least 1")
    check_number("delivery_reward", delivery_reward, np.isfinite, "a finite number")
    check_number("gray_penalty", gray_penalty, np.isfinite, "a finite number")
    name, cells = read_map("layout", OFFICE if layout is None else layout, CELLS)
    _check_cells(f"layout {name!r}", cells)
    pickups, destinations = cells_with(cells, PICKUP), cells_with(cells, DESTINATION)
    num_loads = comb(num_holders + len(destinations), len(destinations))
    num_codes = _num_codes(cells, max_speed, len(pickups), num_loads)
    loads = _counts(num_holders, len(destinations))
    cars, moved, meets_gray = _locomotion(cells, max_speed)
    start = int(np.flatnonzero((cars == (*cells_with(cells, START)[0], 0, 0)).all(-1))[0])
    _check_reach(f"layout {name!r}", cells, cars, moved, start)
    numbers = {place: 1 << i for i, place in enumerate(pickups)} | {p: i for i, p in enumerate(destinations)}
    cells_of_cars = [(cells[row][column], numbers.get((row, column), 0)) for row, column in cars[:, :2].tolist()]
    pickup = [number if kind == PICKUP else 0 for kind, number in cells_of_cars]
    destination = [number if kind == DESTINATION else len(destinations) for kind, number in cells_of_cars]
    integers = (cars, loads, start, moved, pickup, destination, *_holders(loads))
    return MailRobot(
        *(jnp.asarray(np.asarray(x, np.int32)) for x in integers),
        meets_gray=jnp.asarray(meets_gray),
        arrivals=jnp.asarray(_arrivals(1.0 / arrival_interval, len(pickups))),
        delivery_reward=jnp.asarray(float(delivery_reward)),
        gray_penalty=jnp.asarray(float(gray_penalty)),
        num_codes=num_codes,
        picture=Picture((), cells),
    )


def _check_cells(what: str, cells: tuple[str, ...]) -> None:
    """A map, with one start, some pickups and some destinations."""
    check_map(what, cells, CELLS, ((START, "start"), (PICKUP, "pickup"), (DESTINATION, "destination")))
    for kind, name, limit in ((START, "starts", 1), (PICKUP, "pickups", MOST_PICKUPS)):
        places = cells_with(cells, kind)
        if len(places) > limit:
            row, column = places[limit]
            raise ValueError(
                f"{what} has {len(places)} {name}, one too many at line {row + 1}, column {column + 1}, "
                f"expected at most {limit} (lines and columns are counted from 1)"
            )


def _num_codes(cells: tuple[str, ...], max_speed: int, num_pickups: int, num_loads: int) -> int:
    """The number of states; refused where a code would not fit in 31 bits."""
    size = sum(len(row) - row.count(WALL) for row in cells)
    num_codes = size * (2 * max_speed + 1) ** 2 * 2**num_pickups * num_loads
    if num_codes > MOST_CODES:
        raise ValueError(
            f"the robot has {num_codes:,} states ({size} cells, velocities to {max_speed}, {num_pickups} pickups, "
            f"{num_loads} loads), expected at most 2^31 - 1"
        )
    return num_codes


def _locomotion(cells: tuple[str, ...], max_speed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cars [C 4]; the car after every move [C A]; whether it met gray, or stands on it [C A]."""
    grid = _pad_with_walls(cells)
    places = np.argwhere(grid != WALL) - 1
    speeds = range(-max_speed, max_speed + 1)
    velocities = np.array(list(product(speeds, speeds)))
    cars = np.concatenate([np.repeat(places, len(velocities), 0), np.tile(velocities, (len(places), 1))], -1)
    after, _ = trace_moves(np.where(grid == GRAY, FREE, grid), cars, max_speed)
    _, met = trace_moves(grid, cars, max_speed)
    number = np.full(grid.shape, -1)
    number[grid != WALL] = np.arange(len(places))
    row, column = after[..., 0] + 1, after[..., 1] + 1
    speed = (after[..., 2] + max_speed) * len(speeds) + after[..., 3] + max_speed
    return cars, number[row, column] * len(velocities) + speed, (met == GRAY) | (grid[row, column] == GRAY)


def _check_reach(what: str, cells: tuple[str, ...], cars: np.ndarray, moved: np.ndarray, start: int) -> None:
    """A move ends on every pickup and destination."""
    reached = np.zeros(len(cars), bool)
    frontier = np.array([start])
    while len(frontier):
        reached[frontier] = True
        frontier = np.unique(moved[frontier])
        frontier = frontier[~reached[frontier]]
    visited = {(int(row), int(column)) for row, column in cars[reached, :2]}
    for kind, name in ((PICKUP, "pickup"), (DESTINATION, "destination")):
        for row, column in cells_with(cells, kind):
            if (row, column) not in visited:
                raise ValueError(
                    f"{what} has a {name} at line {row + 1}, column {column + 1} that no way leads to, "
                    "expected one from the start (lines and columns are counted from 1)"
                )


def _holders(loads: list[tuple[int, ...]]) -> tuple[list[list[int]], list[list[int]], list[list[int]]]:
    """Of every load: with one piece more, after delivery, pieces delivered (as in `MailRobot`)."""
    number = {load: i for i, load in enumerate(loads)}

    def replace_load(load: tuple[int, ...], at: int, count: int) -> int:
        return number.get((*load[:at], count, *load[at + 1 :]), -1)

    taken = [[replace_load(load, d, count + 1) for d, count in enumerate(load)] for load in loads]
    left = [[*(replace_load(load, d, 0) for d in range(len(load))), i] for i, load in enumerate(loads)]
    return taken, left, [[*load, 0] for load in loads]


def _counts(total: int, size: int) -> list[tuple[int, ...]]:
    """All tuples of `size` counts whose sum is at most `total`, in lexicographic order."""
    if size == 0:
        return [()]
    return [(first, *rest) for first in range(total + 1) for rest in _counts(total - first, size - 1)]


def _arrivals(probability: float, num_pickups: int) -> np.ndarray:
    """Cumulative probabilities of the sets of pickups, but for the last one, times 2^32: one word decides on a set."""
    members = np.array([bin(i).count("1") for i in range(2**num_pickups)])
    chance = probability**members * (1.0 - probability) ** (num_pickups - members)
    return np.minimum(np.round(np.cumsum(chance)[:-1] * 2.0**32), 2.0**32 - 1).astype(np.uint32)
