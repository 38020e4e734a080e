"""A replay that keeps a frame once: its stacks against those that were seen, across resets and the ring's seam."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents.neural.replay import (
    Row,
    Stack,
    add,
    empty_replay,
    replay_bytes,
    sample,
    transitions_at,
)

ENVS, ROWS, SIDE = 3, 11, 2


def history(fill, num_steps=40, size=4):
    """Observations of environments that restart at random, as a frame-stacking environment shows them."""
    rng = np.random.default_rng(0)
    seen = np.zeros((num_steps, ENVS, size, SIDE, SIDE), np.uint8)
    fresh = rng.random((num_steps, ENVS)) < 0.25
    fresh[0] = True
    for t in range(num_steps):
        for e in range(ENVS):
            frame = rng.integers(1, 256, (SIDE, SIDE))
            if fresh[t, e]:
                seen[t, e, :-1] = 0 if fill == "zeros" else frame
            else:
                seen[t, e, :-1] = seen[t - 1, e, 1:]
            seen[t, e, -1] = frame
    ended = np.roll(fresh, -1, 0)
    terminated = ended & (rng.random(ended.shape) < 0.5)
    return seen, fresh, terminated, ended & ~terminated


def rows_of(fill, size=4):
    seen, fresh, terminated, truncated = history(fill, size=size)
    action = np.arange(len(seen) * ENVS).reshape(-1, ENVS)
    done, cut = jnp.asarray(terminated), jnp.asarray(truncated)
    return Row(jnp.asarray(seen), jnp.asarray(action), jnp.asarray(action * 0.5), done, cut, (), jnp.asarray(fresh))


def filled(rows, stack, upto):
    """Replay after the rows 0..upto."""
    start = empty_replay(ROWS, jax.tree.map(lambda x: x[0], rows), stack)
    indices = jnp.arange(len(rows.action))
    return jax.jit(
        lambda now, last: jax.lax.scan(
            lambda r, i: (
                jax.tree.map(lambda new, old: jnp.where(i <= last, new, old), add(r, i, at(rows, i)), r),
                None,
            ),
            now,
            indices,
        )[0]
    )(start, upto)


def at(rows, i):
    return jax.tree.map(lambda x: x[i], rows)


@pytest.mark.parametrize("fill", ["zeros", "first"])
def test_stacks_are_those_that_were_seen(fill):
    rows = rows_of(fill)
    stack, plain = Stack(4, fill), None
    look = jax.jit(transitions_at)
    for upto in (3, ROWS - 1, ROWS, 25, 39):
        ours, theirs = filled(rows, stack, upto), filled(rows, plain, upto)
        assert ours.rows.observation.shape == (ROWS, ENVS, SIDE, SIDE)
        oldest = max(0, upto - ROWS + 4)  # what `sample` draws from
        number, env = map(jnp.asarray, np.mgrid[oldest:upto, 0:ENVS].reshape(2, -1))
        batch, expected = look(ours, number % ROWS, env), look(theirs, number % ROWS, env)
        np.testing.assert_array_equal(batch.observation, rows.observation[number, env])
        follows = ~np.asarray(rows.fresh)[number + 1, env]
        assert follows.any()
        for name in ("next_observation", "observation", "action", "reward", "terminated", "weight", "next_action"):
            np.testing.assert_array_equal(getattr(batch, name)[follows], getattr(expected, name)[follows])
        newest = look(ours, jnp.full(ENVS, (upto - 1) % ROWS), jnp.arange(ENVS))
        np.testing.assert_array_equal(newest.observation, rows.observation[upto - 1])


def test_samples_never_reach_beyond_the_seam(key):
    """Every drawn stack is one that was seen. A reach of one row less would meet a frame of 11 rows later: of the
    11 x 3 oldest places about (3/4)^3 show it; 3,000 draws miss one of 24 places with probability 24 x (23/24)^3000 <
    1e-54."""
    rows = rows_of("zeros")
    for upto in (1, 4, 10, 11, 30, 39):
        batch = jax.jit(sample, static_argnums=3)(key, filled(rows, Stack(4), upto), jnp.asarray(upto), 3000)
        number = np.asarray(batch.action) // ENVS
        np.testing.assert_array_equal(batch.observation, rows.observation[number, batch.place[1]])
        np.testing.assert_array_equal(number % ROWS, batch.place[0])
        expected = {n * ENVS + e for n in range(max(0, upto - ROWS + 4), upto) for e in range(ENVS)}
        assert set(np.asarray(batch.action).tolist()) == expected


def test_a_frame_takes_a_quarter():
    rows = at(rows_of("zeros"), 0)
    numbers = ENVS * (4 + 4 + 1 + 1 + 1)  # action, reward, ends, fresh
    assert replay_bytes(10, rows, Stack(4)) == 10 * (ENVS * SIDE**2 + numbers)
    assert replay_bytes(10, rows) == 10 * (4 * ENVS * SIDE**2 + numbers)


def test_refusals():
    rows = at(rows_of("zeros"), 0)
    with pytest.raises(
        ValueError, match=r"an observation has shape \(4, 2, 2\), expected 3 frames along its first axis"
    ):
        empty_replay(9, rows, Stack(3))
    with pytest.raises(ValueError, match=r"stack.fill is 'ones', expected 'zeros' or 'first'"):
        empty_replay(9, rows, Stack(4, "ones"))
    with pytest.raises(ValueError, match="num_rows is 4, expected more than the 4 frames"):
        empty_replay(4, rows, Stack(4))
    with pytest.raises(ValueError, match=r"row.fresh is None, expected where episodes begin"):
        empty_replay(9, rows._replace(fresh=None), Stack(4))
