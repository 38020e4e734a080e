"""Mail Robot: a racetrack car that fetches mail and brings it where it belongs ([TDBMA10] section 5)."""

import os
from itertools import product
from math import comb
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

from bayes_mdp.envs.papers.maps import FREE, GRAY, START, WALL, cells_with, check_map, read_map
from bayes_mdp.envs.papers.racetrack import ACCELERATIONS, trace_moves
from bayes_mdp.mdp import Picture
from bayes_mdp.utils.validation import check_count, check_number

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
    grid = np.pad(np.array([list(row) for row in cells]), 1, constant_values=WALL)
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
