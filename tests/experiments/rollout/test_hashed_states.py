"""`HashedStates` against a dict: rows, losses, refusals, and tables that stay in place in a compiled loop."""

import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.experiments.rollout.sweep_loop import BUCKET, HashedStates, HashIndex
from tests.experiments.generator import DEFAULT_GENERATOR

pytestmark = pytest.mark.numerics


class Counter(eqx.Module):
    """An environment whose states are their codes; action a adds a + 1, and 9 or more ends it."""

    name: str = eqx.field(default="counter", static=True)
    n_actions: int = eqx.field(default=2, static=True)
    num_codes: int = eqx.field(default=2**31 - 1, static=True)
    picture: Any = None

    def reset(self, key):
        return jax.random.randint(key, (), 0, 4)

    def step(self, key, state, action):
        del key
        return state + action + 1, state.astype(float), state + action + 1 >= 9

    def code(self, state):
        return state


@jax.jit
def _locate_all(world: HashedStates, index: HashIndex, codes: Any, acts: Any) -> Any:
    """Rows, losses so far and occupied rows after each look-up."""

    def one(index: HashIndex, x: Any) -> Any:
        index, row = world.locate(index, *x)
        return index, (row, index.lost)

    return jax.lax.scan(one, index, (codes, acts))


def _run(num_rows: int, codes: Any, acts: Any = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    world = HashedStates(Counter(), num_rows)
    codes = jnp.asarray(codes, jnp.int32)
    acts = jnp.ones(codes.shape, bool) if acts is None else jnp.asarray(acts)
    index, (rows, lost) = _locate_all(world, world.index(), codes, acts)
    return np.asarray(index.codes), np.asarray(rows), np.asarray(lost)


ROWS, LOOKUPS = 4096, 20_000


def _random_lookups(number_of_codes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    codes = rng.choice(2**31 - 1, number_of_codes, replace=False)
    return codes[rng.integers(0, number_of_codes, LOOKUPS)], rng.random(LOOKUPS) < 0.7


@pytest.mark.parametrize("load", [0.3, 0.8])
def test_rows_are_those_of_a_dict(load):
    """Below the stated load every code keeps a row of its own; nothing is entered where `acts` is false."""
    codes, acts = _random_lookups(int(load * ROWS))
    table, rows, lost = _run(ROWS, codes, acts)
    held: dict[int, int] = {}
    for code, row, act in zip(codes.tolist(), rows.tolist(), acts.tolist(), strict=True):
        if act or code in held:
            assert held.setdefault(code, row) == row
        assert 0 <= row < ROWS
    assert len(set(held.values())) == len(held) > 0.95 * load * ROWS
    assert {code: int(np.flatnonzero(table == code)[0]) for code in held} == held
    assert np.sum(table != -1) == len(held) and lost[-1] == 0


@pytest.mark.parametrize("stride", [1, 64, 3025])
def test_codes_in_a_row_are_spread(stride):
    """Codes in arithmetic progression, as of neighbouring states: no loss at 80 %, one in 500 at most at 90 %."""
    codes = np.arange(ROWS * 9 // 10) * stride
    table, rows, lost = _run(ROWS, np.pad(codes, (0, LOOKUPS - len(codes)), mode="edge"))
    rows, lost = rows[: len(codes)], lost[: len(codes)]
    assert lost[int(0.8 * ROWS)] == 0 and lost[-1] <= len(codes) // 500
    assert len(np.unique(rows)) == np.sum(table != -1) == len(codes) - lost[-1]


def test_beyond_its_rows_states_share_and_are_counted():
    """Twice as many codes as rows: a loss is a look-up of a code without a row, and its row that of another code."""
    codes, acts = _random_lookups(2 * ROWS)
    table, rows, lost = _run(ROWS, codes, acts)
    assert np.all(table != -1) and len(np.unique(table)) == ROWS
    entered = set(table.tolist())
    losses, before = np.diff(lost, prepend=0), set()
    for code, row, act, loss in zip(codes.tolist(), rows.tolist(), acts.tolist(), losses.tolist(), strict=True):
        owner = int(table[row])
        if act:
            assert loss == (code not in entered)
            before.add(owner)
            assert owner in before and (owner == code) == (not loss)
        else:
            assert loss == 0
    assert 0.2 * LOOKUPS < lost[-1] < LOOKUPS


def test_one_bucket():
    """The smallest table: 16 rows from the left, the last one for the seventeenth code and all that follow."""
    codes = [*range(100, 120), 100, 115, 119]
    table, rows, lost = _run(BUCKET, codes)
    assert rows.tolist() == [*range(16), 15, 15, 15, 15, 0, 15, 15] and table.tolist() == [*range(100, 116)]
    assert lost[-1] == 5
    world = HashedStates(Counter(), BUCKET)
    acts = jnp.arange(23) < 22  # the last look-up, of a code without a row, does not count
    index, _ = _locate_all(world, world.index(), jnp.asarray(codes, jnp.int32), acts)
    assert int(index.lost) == 4


def test_the_rest_is_the_environment():
    env, key = Counter(), jax.random.key(3)
    world = HashedStates(env, 16)
    assert int(world.reset(key, 0.5)) == int(env.reset(key))
    state, reward, ended = world.step(key, 0.5, jnp.int32(7), jnp.int32(1))
    assert (int(state), float(reward), bool(ended)) == (9, 7.0, True)


@pytest.mark.parametrize("num_rows", [8, 100, 2**31])
def test_other_numbers_of_rows_are_refused(num_rows):
    with pytest.raises(ValueError, match=f"num_rows is {num_rows}, expected "):
        HashedStates(Counter(), num_rows)


def _made(world: HashedStates, lanes: int, whole: bool) -> list[str]:
    """The kinds of instructions that make something of the size of the tables, in a loop over lanes and steps."""

    def play(index: HashIndex, states: Any) -> Any:
        def one(index: HashIndex, state: Any) -> Any:
            after, row = world.locate(index, state, state % 2 == 0)
            return (jax.tree.map(lambda a, b: jnp.where(row > 2, a, b), after, index) if whole else after), row

        def body(_: Any, loop: Any) -> Any:
            index, states, total = loop
            index, row = jax.vmap(one)(index, states)
            return index, (states * 5 + row) % 1000, total + row

        return jax.lax.fori_loop(0, 100, body, (index, states, states))

    index = jax.tree.map(lambda x: jnp.broadcast_to(x, (lanes, *x.shape)), world.index())
    program = jax.jit(play, donate_argnums=0).lower(index, jnp.arange(lanes)).compile(DEFAULT_GENERATOR).as_text()
    assert program is not None
    return re.findall(rf"= s32\[{lanes},{world.num_rows}\]\S* ([\w-]+)\(", program)


def test_the_table_stays_in_place():
    """In a loop, as that of trials, one scatter makes the keys, and nothing copies them; a choice of tables would."""
    world = HashedStates(Counter(), 2048)
    made = [kind for kind in _made(world, 3, False) if kind not in ("parameter", "get-tuple-element", "bitcast")]
    assert set(made) <= {"scatter", "fusion"} and made.count("scatter") == 1 and made.count("fusion") <= 1
    assert {"select", "copy"} & set(_made(world, 3, True))
