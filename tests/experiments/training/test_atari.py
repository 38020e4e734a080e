"""Atari: the settings, lives and scores, and a training that is resumed bit for bit. Needs ale-py."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents.neural import DQN, Epsilon, NeuralUBE, QLearning, UncertaintyHead
from bayes_mdp.agents.neural.networks import Filters, NatureConv
from bayes_mdp.agents.neural.replay import Stack, transitions_at
from bayes_mdp.experiments.training.host_training import begin_host, restore_host, run_chunk_host
from bayes_mdp.experiments.training.vector_env import atari, atari_games, find_game

TINY = NatureConv((Filters(4, 8, 8), Filters(4, 4, 4)), 8)
LEARNING = QLearning(batch_size=4, learning_starts=16, train_every=4, optimizer="rmsprop", huber=True)
KEY = jax.random.key(1)


def test_without_ale_py_it_says_how_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ale_py", None)
    monkeypatch.setitem(sys.modules, "ale_py.vector_env", None)
    for call in (lambda: atari("pong"), atari_games):
        with pytest.raises(ImportError, match=r"Atari needs ale-py: pip install 'ale-py>=.*the extra 'atari'"):
            call()


def test_names_of_games():
    pytest.importorskip("ale_py")
    spellings = ("montezuma_revenge", "MontezumaRevenge", "Montezuma Revenge")
    assert {find_game(name) for name in spellings} == {"montezuma_revenge"}
    assert (find_game("Q*bert"), find_game("SpaceInvaders"), len(atari_games())) == ("qbert", "space_invaders", 108)
    with pytest.raises(ValueError, match=r"game is \"Montezuma's\", .* did you mean 'montezuma_revenge'\?"):
        find_game("Montezuma's")
    with pytest.raises(ValueError, match=r"game is 'chess2000x', expected one of ale-py's 108, such as 'pong'$"):
        find_game("chess2000x")
    with pytest.raises(ValueError, match="num_envs is 0"):
        atari("pong", 0)


def test_lives_and_scores_of_breakout():
    """A life lost terminates for the learner; the score is that of the whole game, whose five lives are played."""
    pytest.importorskip("ale_py")
    env = atari("Breakout", 2)
    assert (env.name, env.spec.observation_shape, env.spec.n_actions) == ("atari:breakout", (4, 84, 84), 4)
    seen, rng = env.reset(3), np.random.default_rng(0)
    assert not seen[:, :3].any() and seen[:, 3].any()
    deaths, games, score, before = np.zeros(2), [], np.zeros(2), seen
    while len(games) < 4:
        step = env.step(rng.integers(0, 4, 2))
        deaths += step.terminated
        score += step.score
        rolls = (step.observation[:, :3] == before[:, 1:]).all((1, 2, 3))
        np.testing.assert_array_equal(rolls, ~step.fresh)
        for e in np.flatnonzero(step.ended):
            games.append(deaths[e])
            deaths[e] = score[e] = 0
        assert not (step.ended & ~step.terminated).any() and (step.started == step.terminated).all()
        before = step.observation
    assert games == [5.0] * 4
    env.close()


def test_scores_are_reported_unclipped_and_evaluation_clips_nothing():
    pytest.importorskip("ale_py")
    train, evaluate = atari("MsPacman", 1), atari("MsPacman", 1, evaluation=True, max_frames=400)
    for env in (train, evaluate):
        env.reset(0)
    rng = np.random.default_rng(0)
    for i in range(100):
        action = rng.integers(0, 9, 1)
        learnt, reported = train.step(action), evaluate.step(action)
        assert learnt.reward[0] == np.clip(learnt.score[0], -1, 1)
        assert reported.reward[0] == reported.score[0] == learnt.score[0]
        if i < 99:
            np.testing.assert_array_equal(learnt.observation, reported.observation)
        else:
            assert reported.truncated[0] and reported.ended[0] and not reported.terminated[0]
    assert train.rules == (True, True, Stack(4, "zeros"))
    for env in (train, evaluate):
        env.close()


def test_pong_is_resumed_bit_for_bit():
    pytest.importorskip("ale_py")
    _resumed(DQN(trunk=TINY, learning=LEARNING, epsilon=Epsilon(1.0, 0.1, 200)), "pong", 60, 25)


def test_montezuma_is_resumed_bit_for_bit():
    pytest.importorskip("ale_py")
    agent = NeuralUBE(trunk=TINY, learning=LEARNING, head=UncertaintyHead(width=4))
    _resumed(agent, "montezuma_revenge", 60, 25)


@pytest.mark.slow
@pytest.mark.parametrize("game", ["pong", "montezuma_revenge"])
def test_twenty_thousand_frames_are_resumed_bit_for_bit(game):
    pytest.importorskip("ale_py")
    learning = QLearning(batch_size=32, learning_starts=400, train_every=4, optimizer="rmsprop", huber=True)
    for agent in (
        DQN(trunk=NatureConv(), learning=learning, epsilon=Epsilon(steps=2000)),
        NeuralUBE(trunk=NatureConv(), learning=learning),
    ):
        _resumed(agent, game, 1250, 400)


def _resumed(agent, game, num_iterations, anchor_every):
    """Four games side by side, 16 frames an iteration: once straight, once with a pause."""
    half = num_iterations // 2
    env = atari(game, 4)
    now = begin_host(KEY, agent, env, num_iterations // 2, anchor_every)
    now, _ = run_chunk_host(KEY, agent, env, now, range(half))
    pause = jax.tree.map(np.array, now)
    now, seen = run_chunk_host(KEY, agent, env, now, range(half, num_iterations))
    env.close()
    env = atari(game, 4)
    restore_host(env, pause)
    later, seen_later = run_chunk_host(KEY, agent, env, pause, range(half, num_iterations))
    env.close()
    for x, y in zip(jax.tree.leaves((now, seen)), jax.tree.leaves((later, seen_later)), strict=True):
        np.testing.assert_array_equal(x, y)
    losses = np.asarray(seen.watched["loss"])
    assert np.nansum(losses) > 0 and np.isfinite(losses).mean() > 0.2  # no loss where no step was due
    replay = now.replay
    newest = transitions_at(replay, jnp.full(4, (num_iterations - 2) % replay.shape[0]), jnp.arange(4))
    assert replay.rows.observation.shape[2:] == (84, 84) and newest.observation.shape == (4, 4, 84, 84)
