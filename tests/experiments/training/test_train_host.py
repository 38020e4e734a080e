"""`train` with environments on the host: the same report, the same bits after a pause."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.agents.neural import DQN, MLP, Epsilon, QLearning
from bayes_mdp.deep import host_env
from bayes_mdp.experiments.resume import load_checkpoint
from bayes_mdp.experiments.training import training_loop as memory

AGENT = DQN(trunk=MLP((8,)), learning=QLearning(batch_size=4, learning_starts=8), epsilon=Epsilon(steps=200))
OPTIONS = bm.deep.TrainOptions(
    replay_size=64,
    chunk=50,
    checkpoint_seconds=1e9,
    progress=False,
    evaluation=bm.deep.Evaluation(every=200, steps=400),
)


def _train(path, num_steps, **changed):
    env, tried = host_env("CartPole-v1", 2), host_env("CartPole-v1", 2)
    given: Any = {"options": replace(OPTIONS, evaluation_env=tried)} | changed
    return bm.deep.train(AGENT, env, num_steps=num_steps, path=path, **given)


def test_a_training_on_the_host_reports_evaluates_and_goes_on_bit_for_bit(tmp_path):
    once = _train(tmp_path / "once", 400)
    first = _train(tmp_path / "twice", 200)
    twice = _train(tmp_path / "twice", 400)
    assert first.dataset["step"].values[-1] == 200 and twice.dataset["step"].values[-1] == 400
    both = [load_checkpoint(tmp_path / name / "checkpoints", 200) for name in ("once", "twice")]
    state = [name for name in both[0] if name.startswith(".")]
    assert {".env_state", ".replay", ".learner"} <= {
        name[: name.find(".", 1)] for name in state if name.find(".", 1) > 0
    }
    for name in state:
        np.testing.assert_array_equal(both[0][name], both[1][name], err_msg=name)
    for name in ("episode_score", "evaluation_score", "evaluation_step"):
        np.testing.assert_array_equal(once.dataset[name], twice.dataset[name])
    lengths = once.dataset["episode_length"].values[0]
    np.testing.assert_array_equal(lengths, once.dataset["episode_score"].values[0])
    assert np.nansum(lengths) <= 400 and once.dataset["evaluation_episodes"].values[0, 0] >= 1
    loaded = bm.deep.load_training(tmp_path / "once", AGENT, host_env("CartPole-v1", 2))
    assert loaded.values(jnp.zeros((1, 4))).q.shape == (1, 2)
    played = bm.deep.evaluate_agent(loaded, host_env("CartPole-v1", 2), how=bm.deep.Evaluation(every=1, steps=300))
    assert played["episodes"].values[0] >= 1 and played["mean_score"].values[0] > 5


def test_wrong_input(monkeypatch):
    with pytest.raises(ValueError, match="num_seeds is 2, expected 1 for an environment on the host"):
        _train(None, 8, num_seeds=2)
    with pytest.raises(ValueError, match="evaluation_env is None, expected the environments to evaluate in"):
        _train(None, 8, options=OPTIONS)
    monkeypatch.setattr(memory, "free_bytes", lambda: 1000)
    with pytest.raises(ValueError, match=r"replay_size asks for 0\.0 GiB \(64 transitions\)"):
        _train(None, 8)
    assert jax.default_backend()
