# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
"""The replay beside a list of rows; what is drawn, and how often."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayes_mdp.agents.neural.replay import (
    Batch,
    Replay,
    Row,
    add,
    empty_replay,
    replay_bytes,
    sample,
    transitions_at,
)

ROWS, ENVS, DRAWS, FALSE_ALARM = 7, 3, 4096, 1e-6
LAST = 40


def row_of(i: int) -> Row:
    """Row i of the run: numbers that tell which row and environment they are of; some ends, some cuts."""
    envs = np.arange(ENVS)
    number = 10 * i + envs
    return Row(
        np.stack([number, number + 1000], 1).astype(np.int16),
        (number % 4).astype(np.int32),
        np.float32(number / 8),
        (number % 5) == 0,
        (number % 5) == 1,
        {"member": np.float32(-number)},
    )


@pytest.fixture(scope="module")
def filled() -> dict[int, Replay]:
    """The replay after iterations 0 to 40."""
    adds = jax.jit(add)
    replay, after = empty_replay(ROWS, row_of(0)), {}
    for i in range(LAST + 1):
        replay = after[i] = adds(replay, i, row_of(i))
    return after


draw = jax.jit(sample, static_argnums=3)
at = jax.jit(transitions_at)


@jax.jit
def newest(replay: Replay, iteration: jax.Array) -> Batch:
    """The newest transition of every environment whose next row exists: that of the iteration before."""
    row = jnp.broadcast_to((iteration - 1) % ROWS, (ENVS,))
    return transitions_at(replay, row, jnp.arange(ENVS))


def _check(batch: Any, iteration: int) -> None:
    """Every transition of a batch is that of the run, and what follows it is the next row of the run."""
    places, envs = (np.asarray(x) for x in batch.place)
    ages = (iteration - places) % ROWS
    for b, (i, e) in enumerate(zip(iteration - ages, envs, strict=True)):
        own, following = row_of(int(i)), row_of(int(i) + 1)
        assert batch.weight[b] == (0.0 if own.truncated[e] else 1.0)
        expected = (own.observation[e], own.action[e], own.reward[e], own.terminated[e], following.observation[e])
        expected = (*expected, following.action[e], own.extra["member"][e], following.extra["member"][e])
        found = (*batch[:5], batch.next_action, batch.extra["member"], batch.next_extra["member"])
        for a, x in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a[b], x)


@pytest.mark.parametrize("iteration", [1, 2, ROWS - 2, ROWS - 1, ROWS, ROWS + 1, 3 * ROWS - 1, LAST])
def test_draws_are_transitions_of_the_run(key, filled, iteration):
    """All whose next row is there can be drawn and no others: 4096 draws of at most 18 miss one once in e^228."""
    batch = jax.device_get(draw(key, filled[iteration], iteration, DRAWS))
    ages = (iteration - batch.place[0]) % ROWS
    found = set(zip(ages.tolist(), batch.place[1].tolist(), strict=True))
    assert found == {(age, e) for age in range(1, min(iteration, ROWS - 1) + 1) for e in range(ENVS)}
    _check(jax.tree.map(lambda x: x[:64], batch), iteration)


def test_last_transitions(filled):
    """Those of the iteration before, of every environment in order."""
    for iteration in (1, ROWS, LAST):
        batch = jax.device_get(newest(filled[iteration], iteration))
        assert batch.place[0].tolist() == [(iteration - 1) % ROWS] * ENVS
        assert batch.place[1].tolist() == [0, 1, 2]
        _check(batch, iteration)


def test_a_cut_cannot_be_learnt_from_an_end_can(filled):
    """The weights that the losses multiply with."""
    rows = filled[LAST].rows
    yes, no = jnp.ones((ROWS, ENVS), bool), jnp.zeros((ROWS, ENVS), bool)
    for terminated, truncated, weight in ((no, yes, 0.0), (yes, no, 1.0), (no, no, 1.0)):
        replay = Replay(rows._replace(terminated=terminated, truncated=truncated))
        assert np.all(at(replay, jnp.array([0, 3]), jnp.array([1, 2])).weight == weight)


def _p_value(index: Any) -> float:
    counts = np.zeros((ROWS, ENVS))
    np.add.at(counts, tuple(np.asarray(x) for x in index), 1)
    kept = counts[np.arange(ROWS) != LAST % ROWS]
    return float(stats.chisquare(kept.ravel()).pvalue)


def test_uniform(key, filled):
    """Chi-square of 10 x 4096 draws over 18 transitions. The twin draws one transition a fifth more often."""
    keys = jax.random.split(key, 10)
    index = [np.concatenate(x) for x in zip(*(draw(k, filled[LAST], LAST, DRAWS).place for k in keys), strict=True)]
    assert _p_value(index) > FALSE_ALARM
    share = np.ones((ROWS, ENVS))
    share[LAST % ROWS], share[2, 1] = 0.0, 1.2
    drawn = np.random.default_rng(0).choice(share.size, 10 * DRAWS, p=(share / share.sum()).ravel())
    assert _p_value(np.unravel_index(drawn, share.shape)) < FALSE_ALARM


def test_size_is_told_before_it_is_allocated():
    """Bytes of arrays, from shapes alone."""
    row = row_of(0)
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), row)
    made = sum(x.nbytes for x in jax.tree.leaves(empty_replay(ROWS, row)))
    assert replay_bytes(ROWS, row) == replay_bytes(ROWS, shapes) == made
    assert replay_bytes(10**9, shapes) == 10**9 * ENVS * (4 + 4 + 4 + 1 + 1 + 4)
