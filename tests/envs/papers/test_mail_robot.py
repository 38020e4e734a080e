"""Mail Robot against a plain simulation of its rules, the laws of its draws, its codes, and every refusal."""

import math
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.envs import SIMULATED, mail_robot
from bayes_mdp.envs.papers.racetrack import MailRobot, RobotState
from bayes_mdp.mdp import SimulatedEnvironment

pytestmark = pytest.mark.numerics

SMALL = """
    #########
    #P..#..D#
    #.x...xx#
    #D.S.xP.#
    #..##..D#
    #########
"""


@jax.jit
def _play(robot: MailRobot, words: Any, actions: Any) -> Any:
    """States and rewards of one long trial, from the start."""

    def one(state: RobotState, x: Any) -> Any:
        after, reward = robot.transition(x[0], state, x[1])
        return after, (after, reward)

    return jax.lax.scan(one, robot.reset(jax.random.key(0)), (words, actions))[1]


@jax.jit
def _step(robot: MailRobot, words: Any, state: RobotState, action: Any) -> Any:
    return robot.transition(words, state, action)


class PlainRobot:
    """The rules, one after the other, on lists and dictionaries."""

    def __init__(self, cells: tuple[str, ...], max_speed: int, interval: float, holders: int) -> None:
        self.cells, self.max_speed, self.interval, self.holders = cells, max_speed, interval, holders
        self.pickups = self._where("P")
        self.destinations = self._where("D")
        self.position, self.velocity = self._where("S")[0], (0, 0)
        self.waiting = dict.fromkeys(self.pickups, False)
        self.carried: list[tuple[int, int]] = []

    def _where(self, kind: str) -> list[tuple[int, int]]:
        return [(r, c) for r, row in enumerate(self.cells) for c, cell in enumerate(row) if cell == kind]

    def _cell(self, row: int, column: int) -> str:
        inside = 0 <= row < len(self.cells) and 0 <= column < len(self.cells[0])
        return self.cells[row][column] if inside else "#"

    def step(self, words: list[int], action: int) -> float:
        gray = self._drive(action // 3 - 1, action % 3 - 1)
        reward = -100.0 if gray or self._cell(*self.position) == "x" else 0.0
        if self.waiting.get(self.position) and len(self.carried) < self.holders:
            self.waiting[self.position] = False
            self.carried.append(self.destinations[(words[1] >> 8) * len(self.destinations) >> 24])
        reward += 4.0 * self.carried.count(self.position)
        self.carried = [place for place in self.carried if place != self.position]
        for i in self._arrived(words[0]):
            self.waiting[self.pickups[i]] = True
        return reward

    def _drive(self, down: int, right: int) -> bool:
        limit, gray = self.max_speed, False
        v = [max(-limit, min(limit, self.velocity[0] + down)), max(-limit, min(limit, self.velocity[1] + right))]
        n, first = max(map(abs, v)), self.position
        self.velocity = (v[0], v[1])
        for i in range(1, n + 1):
            row, column = (math.floor(first[k] + i * v[k] / n + 0.5) for k in (0, 1))
            if self._cell(row, column) == "#":
                self.velocity = (0, 0)
                break
            self.position = (row, column)
            gray = gray or self._cell(row, column) == "x"
        return gray

    def _arrived(self, word: int) -> list[int]:
        """The set in which the word falls when all sets, numbered by their bits, lie side by side."""
        p, n, total = 1.0 / self.interval, len(self.pickups), 0.0
        for members in range(2**n):
            total += math.prod(p if members >> i & 1 else 1.0 - p for i in range(n))
            if word < round(total * 2**32) or members == 2**n - 1:
                return [i for i in range(n) if members >> i & 1]
        raise AssertionError

    def seen(self) -> tuple[Any, ...]:
        counts = tuple(self.carried.count(place) for place in self.destinations)
        return *self.position, *self.velocity, tuple(self.waiting.values()), counts


STEPS = 6000
CASES = [
    ({}, 30.0),
    ({"max_speed": 3, "arrival_interval": 2.0, "num_holders": 2}, 2.0),
    ({"layout": SMALL, "arrival_interval": 4.0, "num_holders": 3}, 4.0),
]


def _words(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**32, (STEPS, 2), dtype=np.uint32)


@pytest.mark.parametrize(("options", "interval"), CASES)
def test_steps_are_those_of_the_rules(options, interval):
    """6,000 random actions: positions, velocities, mail and rewards, each as in the plain simulation."""
    robot = mail_robot(**options)
    words, actions = _words(1), np.random.default_rng(2).integers(0, 9, STEPS)
    states, rewards = jax.tree.map(np.asarray, _play(robot, words, jnp.asarray(actions)))
    assert robot.picture.cells is not None
    plain = PlainRobot(robot.picture.cells, options.get("max_speed", 2), interval, options.get("num_holders", 4))
    cars, loads = np.asarray(robot.cars), np.asarray(robot.loads)
    met: Counter[str] = Counter()
    for t in range(STEPS):
        reward = plain.step(words[t].tolist(), int(actions[t]))
        waiting = tuple(bool(states.waiting[t] >> i & 1) for i in range(len(plain.pickups)))
        found = (*cars[states.car[t]].tolist(), waiting, tuple(loads[states.load[t]].tolist()))
        assert found == plain.seen() and rewards[t] == reward, t
        met.update({"gray": reward < -50, "delivered": reward % 100 > 0, "full": len(plain.carried) == plain.holders})
        met.update({"waits": all(waiting)})
    assert min(met["gray"], met["delivered"], met["full"] or "layout" not in options, met["waits"]) > 0, met


def test_many_pieces_are_delivered_at_once():
    """One holder of two for each destination: 8 for two pieces, and the other stays."""
    robot = mail_robot()
    loads = np.asarray(robot.loads).tolist()
    corner = int(np.flatnonzero((np.asarray(robot.cars) == (1, 1, 0, 0)).all(-1))[0])
    state = RobotState(jnp.int32(corner), jnp.int32(0), jnp.int32(loads.index([2, 0, 1, 0])))
    after, reward = _step(robot, jnp.zeros(2, jnp.uint32), state, jnp.int32(4))
    assert float(reward) == 8.0 and loads[int(after.load)] == [0, 0, 1, 0]


def test_codes_are_one_to_one():
    """Every code below `num_codes` is that of the state it stands for, and `loads` lists every multiset once."""
    robot = mail_robot()
    assert robot.num_codes == 121 * 25 * 16 * 70
    codes = jnp.arange(robot.num_codes)
    same, state = jax.jit(jax.vmap(lambda code: (robot.code(robot.decode(code)) == code, robot.decode(code))))(codes)
    assert bool(jnp.all(same))
    for field, size in zip(state, (121 * 25, 16, 70), strict=True):
        assert int(field.min()) == 0 and int(field.max()) == size - 1
    held = {tuple(np.bincount(four, minlength=5)[:4].tolist()) for four in np.ndindex(5, 5, 5, 5)}
    loads = [tuple(load) for load in np.asarray(robot.loads).tolist()]
    assert len(loads) == len(held) == 70 and set(loads) == held
    assert len({tuple(car) for car in np.asarray(robot.cars).tolist()}) == 121 * 25


def test_words_become_sets_and_destinations():
    """Arrivals are independent with probability 1 / 30, within 2^-32 each; destinations get equal shares of the words.

    Exact: the lengths of the pieces of the word, not draws.
    """
    robot = mail_robot()
    edges = [0, *np.asarray(robot.arrivals).astype(int).tolist(), 2**32]
    chance = np.diff(edges) / 2**32
    bits = np.array([[members >> i & 1 for i in range(4)] for members in range(16)])
    np.testing.assert_allclose(chance, np.prod(np.where(bits, 1 / 30, 29 / 30), axis=-1), rtol=0, atol=2.0**-32)
    np.testing.assert_allclose(chance @ bits, 1 / 30, rtol=0, atol=2.0**-29)
    pickup = int(np.flatnonzero(np.asarray(robot.pickup) == 1)[12])
    state = RobotState(jnp.int32(pickup), jnp.int32(1), jnp.int32(0))
    seconds = [q * 2**30 + d for q in range(1, 4) for d in (-1, 0)] + [0, 2**32 - 1]
    words = jnp.asarray([[0, second] for second in seconds], jnp.uint32)
    assert np.asarray(robot.cars)[pickup, 2:].tolist() == [0, 0]
    after = jax.jit(jax.vmap(lambda w: robot.transition(w, state, jnp.int32(4))[0]))(words)
    drawn = np.argmax(np.asarray(robot.loads)[np.asarray(after.load)], -1)
    assert drawn.tolist() == [0, 1, 1, 2, 2, 3, 0, 3] and not np.any(np.asarray(after.waiting))


def test_keys_become_independent_words(key):
    """A robot at rest on a pickup for 20,000 steps: the law of intervals and of destinations.

    Mail is taken in the step after the one of its arrival. False-alarm rate 1e-6 for each of five binomial counts:
    4.9 standard deviations. Caught: an interval of 25 or 36, a destination with a share of 0.18 in place of 0.25.
    """
    robot = mail_robot(num_holders=1)
    row, column = 1, 6
    car = int(np.flatnonzero((np.asarray(robot.cars) == (row, column, 0, 0)).all(-1))[0])

    @jax.jit
    def stay(keys: Any) -> Any:
        def one(waiting: Any, key: Any) -> Any:
            state = RobotState(jnp.int32(car), waiting, jnp.int32(0))
            after, _, ended = robot.step(key, state, jnp.int32(4))
            return after.waiting, (after.waiting, after.load, ended)

        return jax.lax.scan(one, jnp.int32(0), keys)[1]

    waiting, load, ended = map(np.asarray, stay(jax.random.split(key, 20_000)))
    assert not ended.any()
    here = (waiting & 1) == 1
    # In every step the mail of the step before is taken, so that every step is a trial.
    taken = np.flatnonzero(load > 0)
    assert np.array_equal(taken, np.flatnonzero(here)[np.flatnonzero(here) < 19_999] + 1)
    _within(here.sum(), 20_000, 1 / 30)
    carried = np.asarray(robot.loads)[load[taken]]
    for count in carried.sum(0):
        _within(count, len(taken), 0.25)
    assert np.all(waiting[2000:] >= 14)  # the other three wait, and stay


def _within(count: Any, number: int, probability: float) -> None:
    """A binomial count within 4.9 standard deviations."""
    sd = math.sqrt(number * probability * (1 - probability))
    assert abs(count - number * probability) < 4.9 * sd, (count, number)


def test_it_is_a_simulated_environment():
    for name, factory in SIMULATED.items():
        env = factory()
        assert isinstance(env, SimulatedEnvironment) and env.name == name
        assert 0 < env.num_codes < 2**31 and env.n_actions == 9
        start = env.reset(jax.random.key(0))
        assert env.picture is not None and env.picture.cells is not None
        x, y = env.position(start).tolist()
        assert env.picture.cells[y][x] == "S" and (x, y) == (6, 6)
        assert env.position(jax.tree.map(lambda leaf: leaf[None], start)).tolist() == [[6, 6]]


def test_maps_of_ones_own(tmp_path):
    """From a file; sizes follow the map."""
    path = tmp_path / "mine.txt"
    path.write_text("SPD\n...\n")
    robot = mail_robot(path, max_speed=1, num_holders=2)
    assert robot.num_codes == 6 * 9 * 2 * 3 and robot.picture.cells == ("SPD", "...")
    assert mail_robot(SMALL).num_codes == 25 * 25 * 4 * 35
    assert np.asarray(mail_robot("SPD", arrival_interval=1.0).arrivals).tolist() == [0]


CELL = "(lines and columns are counted from 1)"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layout": "S.F\nPPD"}, f"layout 'custom' has 'F' at line 1, column 3, expected one of # x . P D S {CELL}"),
        ({"layout": "SP\nD"}, "layout 'custom' has 1 cells in line 2, expected 2, as in line 1 (lines are counted"),
        ({"layout": "PD."}, "layout 'custom' has no start, expected at least one S in its line"),
        ({"layout": "S.\n.D"}, "layout 'custom' has no pickup, expected at least one P in the 2 lines"),
        ({"layout": "S.\n.P"}, "layout 'custom' has no destination, expected at least one D in the 2 lines"),
        (
            {"layout": "SPD\n.S."},
            f"layout 'custom' has 2 starts, one too many at line 2, column 2, expected at most 1 {CELL}",
        ),
        (
            {"layout": "SPPPPPPPD"},
            f"layout 'custom' has 7 pickups, one too many at line 1, column 8, expected at most 6 {CELL}",
        ),
        (
            {"layout": "SPD\n###\n.D."},
            f"layout 'custom' has a destination at line 3, column 2 that no way leads to, expected one from the start "
            f"{CELL}",
        ),
        ({"layout": "ofice"}, "layout is 'ofice', expected a map of several lines, or a file that exists"),
        ({"max_speed": 0}, "max_speed is 0, expected an integer of at least 1"),
        ({"num_holders": 0}, "num_holders is 0, expected an integer of at least 1"),
        (
            {"max_speed": 40, "num_holders": 6},
            "the robot has 2,667,440,160 states (121 cells, velocities to 40, 4 pickups, 210 loads), "
            "expected at most 2^31 - 1",
        ),
        ({"arrival_interval": 0.5}, "arrival_interval is 0.5, expected a finite number of at least 1"),
        ({"arrival_interval": math.nan}, "arrival_interval is nan, expected a finite number of at least 1"),
        ({"delivery_reward": math.inf}, "delivery_reward is inf, expected a finite number"),
        ({"gray_penalty": math.nan}, "gray_penalty is nan, expected a finite number"),
    ],
)
def test_bad_arguments_are_refused(options, message):
    with pytest.raises(ValueError) as error:
        mail_robot(**options)
    assert str(error.value).startswith(message)


def test_a_layout_of_another_kind_is_refused():
    number: Any = 3
    with pytest.raises(TypeError, match="layout is of type int, expected a map as text, a path"):
        mail_robot(number)
