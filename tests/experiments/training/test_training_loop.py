# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
"""The loop of training: what its numbers hang on, its book of episodes, seeds side by side, the replay in place."""

import os
import re
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayes_mdp.agents.neural import DQN, MLP, Epsilon, NeuralUBE, QLearning, UncertaintyHead
from bayes_mdp.agents.neural.replay import Replay, transitions_at
from bayes_mdp.experiments.training import training_loop
from bayes_mdp.experiments.training.training_loop import StepReport, TrainState, begin, run_chunk, spec_of
from tests.agents.neural.walk import ACTIONS, LIMIT, PLACES, Walk
from tests.experiments.generator import DEFAULT_GENERATOR

ENVS, LENGTH, ROWS = 3, 80, 96
LEARNING = QLearning(discount=0.9, batch_size=8, learning_starts=10, learning_rate=1e-2, target_every=5)
AGENT = NeuralUBE(MLP((6,)), LEARNING, UncertaintyHead(4, num_steps=3), beta=2.0)
KEY = jax.random.key(5)

chunk = jax.jit(run_chunk)


def _first(key: Any) -> TrainState:
    return begin(jax.random.fold_in(key, 99), AGENT, Walk(), ENVS, ROWS)


first = jax.jit(_first)


@pytest.fixture(scope="module")
def whole() -> tuple[TrainState, StepReport]:
    """80 iterations at once."""
    return jax.device_get(chunk(KEY, AGENT, Walk(), first(KEY), jnp.arange(LENGTH)))


def test_two_halves_are_the_whole(whole):
    """To the bit: learner, memory, replay, worlds, episodes, all that was seen."""
    now, parts = first(KEY), []
    for half in range(2):
        now, seen = chunk(KEY, AGENT, Walk(), now, half * LENGTH // 2 + jnp.arange(LENGTH // 2))
        parts.append(seen)
    seen = jax.tree.map(lambda *x: np.concatenate(x), *parts)
    jax.tree.map(np.testing.assert_array_equal, (jax.device_get(now), seen), whole)


def test_episodes_add_up(whole):
    """Beside numpy: rows tell where everybody was; score is the reward without noise; cut after nine steps."""
    now, seen = whole
    rows = jax.tree.map(lambda x: x[:LENGTH], now.replay.rows)
    place = np.argmax(rows.observation, -1)
    moved = np.diff(place, axis=0)
    ended = rows.terminated | rows.truncated
    np.testing.assert_array_equal(seen.ended, ended)
    score, length, lengths = np.zeros(ENVS), np.zeros(ENVS, int), []
    for i in range(LENGTH):
        score, length = score + rows.terminated[i] + 0.125 * place[i], length + 1
        np.testing.assert_allclose(seen.score[i], score)
        np.testing.assert_array_equal(seen.length[i], length)
        np.testing.assert_array_equal(rows.truncated[i], (length == LIMIT) & ~rows.terminated[i])
        lengths += length[ended[i]].tolist()
        score, length = np.where(ended[i], 0.0, score), np.where(ended[i], 0, length)
    np.testing.assert_allclose(now.episode.score, score)
    np.testing.assert_array_equal(now.episode.length, length)
    assert np.all(place[1:][ended[:-1]] <= 1)
    meant = np.clip(place + rows.action - 1, 0, PLACES - 1)[:-1] - place[:-1]
    going = ~ended[:-1]
    assert np.all((moved[going] == meant[going]) | (moved[going] == 0))
    assert 0 < np.mean(moved[going] != meant[going]) < 0.4
    assert np.all(place[:-1][rows.terminated[:-1]] == PLACES - 1)
    assert rows.truncated.sum() > 3
    assert rows.terminated.sum() > 3
    assert max(lengths) == LIMIT


def test_cuts_have_no_weight(whole):
    """The rows that a batch may not learn from are those that were cut off."""
    now, _ = whole
    row, env = (x.ravel() for x in np.meshgrid(np.arange(LENGTH), np.arange(ENVS), indexing="ij"))
    batch = transitions_at(jax.tree.map(jnp.asarray, now.replay), row, env)
    np.testing.assert_array_equal(batch.weight, 1.0 - now.replay.rows.truncated[:LENGTH].ravel())


def test_an_end_counts_before_a_cut():
    """A world that says both at once has ended: the row is one to learn from."""

    class Both(Walk):
        """Says that it is cut off whenever it ends."""

        def step(self, key: Any, state: Any, action: Any) -> Any:
            """As the walk."""
            step = super().step(key, state, action)
            return step._replace(truncated=step.truncated | step.terminated)

    agent = DQN(MLP(()), QLearning(), Epsilon(1.0, 1.0))
    start = begin(KEY, agent, Both(), 64, 16)
    rows = jax.device_get(jax.jit(run_chunk)(KEY, agent, Both(), start, jnp.arange(15))[0].replay.rows)
    assert rows.terminated.sum() > 3
    assert not np.any(rows.terminated & rows.truncated)


def test_seeds_side_by_side(whole):
    """Each does what it does alone: the same steps, and parameters to 1e-5 (sums in another order)."""
    keys = jnp.stack([KEY, jax.random.fold_in(KEY, 1)])
    many = jax.jit(jax.vmap(lambda k: run_chunk(k, AGENT, Walk(), _first(k), jnp.arange(LENGTH))))
    now, _ = jax.device_get(many(keys))
    alone, _ = whole
    own = jax.tree.map(lambda x: x[0], now)
    np.testing.assert_array_equal(own.replay.rows.action, alone.replay.rows.action)
    np.testing.assert_array_equal(own.replay.rows.observation, alone.replay.rows.observation)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), own.learner, alone.learner)
    assert np.any(now.replay.rows.action[0] != now.replay.rows.action[1])


def test_worlds_have_noise_of_their_own(key):
    """Rewards minus their mean are N(0, 1), independent between environments and steps (false alarm 1e-6 each).

    64 x 63 numbers: a correlation of .1, or one noise for two environments, is caught.
    """
    agent = DQN(MLP(()), QLearning(), Epsilon(1.0, 1.0))
    start = begin(jax.random.fold_in(key, 1), agent, Walk(), 64, 64)
    rows = jax.device_get(jax.jit(run_chunk)(key, agent, Walk(), start, jnp.arange(63))[0].replay.rows)
    rows = jax.tree.map(lambda x: x[:63], rows)
    noise = rows.reward - rows.terminated - 0.125 * np.argmax(rows.observation, -1)
    assert stats.kstest(noise.ravel(), "norm").pvalue > 1e-6
    for a, b in ((noise[:, 1:], noise[:, :-1]), (noise[1:], noise[:-1])):
        assert stats.pearsonr(a.ravel(), b.ravel()).pvalue > 1e-6
    assert stats.chisquare(np.bincount(rows.action.ravel(), minlength=ACTIONS)).pvalue > 1e-6


BIG = 1013


def _written(agent: Any) -> set[str]:
    """What the compiled chunk does to an array of the size of the replay's observations."""
    start = jax.eval_shape(lambda: begin(KEY, agent, Walk(), ENVS, BIG))
    program = jax.jit(run_chunk, donate_argnums=3).lower(KEY, agent, Walk(), start, jnp.arange(8))
    text: Any = program.compile(DEFAULT_GENERATOR).as_text()
    found = set()
    for operation, rest in re.findall(rf"= u8\[{BIG},{ENVS},{PLACES}\]\S* ([\w-]+)\((.*)", text):
        called = re.search(r"calls=(%?[\w.-]+)", rest)
        if operation == "fusion" and called:
            body = text[text.index(f"\n{called[1]} ") :]
            body = body[: body.index("\n}")]
            operation = "dynamic-update-slice" if " dynamic-update-slice(" in body else "fusion"
        found.add(operation)
    return found - {"parameter", "get-tuple-element", "bitcast"}


class Rewrites(DQN):
    """A twin that needs the replay as it was beside what it becomes: the replay has to be copied in each iteration."""

    def learn(self, key: Any, learner: Any, memory: Any, replay: Any, iteration: Any) -> Any:
        """Learns from another replay than the one that is kept."""
        rows = replay.rows._replace(observation=replay.rows.observation.at[0].set(0))
        return super().learn(key, learner, memory, Replay(rows), iteration)


@pytest.mark.slow
def test_the_replay_is_written_in_place():
    """One row an iteration: nothing else makes an array of its size (UBE learns Q as DQN does); a twin is caught."""
    small = QLearning(batch_size=8, learning_starts=1)
    assert _written(NeuralUBE(MLP((6,)), small, UncertaintyHead(4))) == {"dynamic-update-slice"}
    assert _written(Rewrites(MLP((6,)), small)) > {"dynamic-update-slice"}


def test_spec():
    """What an agent is told."""
    assert spec_of(Walk(), 7) == ((PLACES,), np.dtype(np.uint8), ACTIONS, 7)


@pytest.mark.skipif(os.environ.get("BAYES_MDP_TYPES", "off") != "off", reason="its stand-ins have no types")
@pytest.mark.parametrize(("terminated", "truncated"), [(False, True), (True, False), (True, True)])
def test_an_end_is_an_end_and_a_cut_is_none(monkeypatch, terminated, truncated):
    """What is kept of the last step of an episode: values go on after a cut alone."""
    step, rows = (
        SimpleNamespace(reward=0.0, score=0.0, terminated=np.array([terminated]), truncated=np.array([truncated])),
        [],
    )
    monkeypatch.setattr(training_loop, "step_all", lambda *_: (step, np.array([True]), None, None))
    monkeypatch.setattr(training_loop, "add", lambda replay, iteration, row: rows.append(row))
    choice = SimpleNamespace(action=0, memory=None, extra=())
    agent: Any = SimpleNamespace(act=lambda *_: choice, learn=lambda *_: (None, ()))
    now: Any = SimpleNamespace(
        learner=None,
        memory=None,
        observation=0.0,
        started=None,
        env_state=None,
        replay=None,
        episode=SimpleNamespace(score=np.zeros(1), length=np.zeros(1, int)),
    )
    env: Any = SimpleNamespace()
    training_loop.iterate(jax.random.key(0), agent, env, now, jnp.int32(1))
    assert (rows[0].terminated.item(), rows[0].truncated.item()) == (terminated, truncated and not terminated)
