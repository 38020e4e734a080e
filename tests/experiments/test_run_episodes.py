"""`run` measured in trials: reproducible, compiled once, resumable to the bit, regret by its definition, refusals."""

import importlib
import json
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
import numpy as np
import pytest

from bayes_mdp.agents import PSRL, TDBMA, SarsaLambda
from bayes_mdp.envs import mail_robot
from bayes_mdp.experiments import Actor, RunOptions, run
from bayes_mdp.experiments import run_agent as trial_run
from bayes_mdp.experiments.results import load_result
from bayes_mdp.experiments.rollout import sweep_loop as trial_loop
from bayes_mdp.mdp import (
    MDP,
    AverageReward,
    Discounted,
    Environment,
    FirstExit,
    NormalReward,
    StateActionSpace,
)
from bayes_mdp.models import dirichlet_normal_gamma
from bayes_mdp.plots import plot_regret
from tests.options import fold

pytestmark = pytest.mark.numerics

KEY = jax.random.key(3)
QUIET = RunOptions(num_checkpoints=4, progress=False, snapshot_seconds=0.0)
AGENT = TDBMA(trial_steps=12)


def corridor() -> Environment:
    """Three states in a row, 1 a step: action 1 goes on (to the end, from state 2), action 0 back.

    The optimum is -3 from state 0 and -2 from state 1, where three trials in four begin: -2.25.
    """
    rows, ends = np.zeros((3, 2, 3)), np.zeros((3, 2))
    rows[0, 0, 0], rows[1, 0, 0], rows[2, 0, 1], rows[0, 1, 1], rows[1, 1, 2], ends[2, 1] = (1.0,) * 6
    mdp = MDP(rows, -np.ones((3, 2)), end_probs=ends, initial=[0.25, 0.75, 0.0])
    return Environment(mdp, NormalReward(mdp.reward), name="corridor")


def _run(agent: Any = AGENT, env: Any = None, **changes: Any):
    arguments: dict[str, Any] = {
        "objective": FirstExit(),
        "num_episodes": 90,
        "num_seeds": 3,
        "key": KEY,
        "options": QUIET,
    }
    return run(agent, corridor() if env is None else env, **fold(RunOptions, {**arguments, **changes}))


@lru_cache
def _result():
    return _run()


def test_result():
    """Four checkpoints of 23, 23, 23 and 21 trials; regret by its definition; the last trials are nearly the best."""
    result = _result()
    assert result["episode"].values.tolist() == [23, 46, 69, 90]
    reward, length, number = result["reward"].values, result["length"].values, np.array([23, 23, 23, 21])
    assert result["reward"].dims == ("seed", "checkpoint") and reward.shape == (3, 4)
    np.testing.assert_allclose(reward, -length, rtol=1e-6)  # every step costs 1
    np.testing.assert_allclose(length * number, np.round(length * number), atol=1e-4)
    np.testing.assert_allclose(result["regret"], np.cumsum((-2.25 - reward) * number, axis=1), rtol=1e-12)
    decay = result["trace_decay"].values
    assert ((decay > 0) & (decay < 1)).all()
    assert reward[:, -1].mean() > -2.7 and _run().identical(result)


def test_first_seeds_do_not_depend_on_their_number():
    """Seed i is fold_in(key, i); lanes that go on longer leave the others alone."""
    assert _run(num_seeds=1).equals(_result().isel(seed=[0]))


def _compilations():
    return [getattr(f, "_cache_size")() for f in (trial_loop.begin_all, trial_loop.play)]  # noqa: B009 - untyped in jax


def test_other_numbers_do_not_recompile():
    """The same program for another rate, key, and first value; a lambda is a number as well."""
    options = replace(QUIET, compiler="xla")
    _run(options=options)
    before = _compilations()
    agent = TDBMA(trial_steps=12, learning_rate=0.3, epsilon=0.2, initial_q=-1.0)
    other = _run(agent, key=jax.random.key(4), options=options)
    assert _compilations() == before
    assert not np.array_equal(other["reward"], _result()["reward"])


def host_episodes() -> Any:
    """The module that calls numba."""
    pytest.importorskip("numba")
    return importlib.import_module("bayes_mdp.experiments.rollout.host.host_episodes")


class Killed(Exception):
    """Stands for a kill signal."""


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("compiler", "signal"), [("xla", Killed), ("numba", KeyboardInterrupt), ("xla", KeyboardInterrupt)]
)
def test_a_killed_run_resumes_bit_for_bit(tmp_path, monkeypatch, compiler, signal):
    """After a kill in the middle, the same call ends in the same bits; the snapshot is gone; the file says the same."""
    path, options = tmp_path / "run.nc", replace(QUIET, compiler=compiler)
    part, name = (trial_run, "play") if compiler == "xla" else (host_episodes(), "play_all_seeds")
    play, calls = getattr(part, name), []

    def killed(*arguments):
        calls.append(0)
        played = play(*arguments)  # numba writes in place: the snapshot has to tell how far it came
        if len(calls) == 3:
            raise signal
        return played

    monkeypatch.setattr(trial_run, "CHUNKS", 1)
    monkeypatch.setattr(trial_run, "CHUNKS_BY_NUMBA", 1)
    with monkeypatch.context() as patch, pytest.raises(signal):
        patch.setattr(part, name, killed)
        _run(path=path, options=options)
    assert path.with_name("run.nc.partial").exists() and not path.exists()
    with pytest.raises(ValueError, match="num_seeds is 3 there and 4 here"):
        _run(path=path, num_seeds=4, options=options)
    resumed = _run(path=path, options=options)
    assert resumed.identical(_run(options=options))
    assert not path.with_name("run.nc.partial").exists()
    assert load_result(path).identical(resumed)


def test_plot():
    """Regret over trials."""
    figure = plot_regret(_result())
    axes = figure.axes[0]
    assert axes.get_xlabel() == "episode"
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), [23, 46, 69, 90])


@pytest.mark.slow
def test_unknown_regret():
    """Under `Discounted`, and where no policy ends: nan, and why."""
    result = _run(objective=Discounted(0.9))
    assert np.isnan(result["regret"]).all() and "undiscounted" in result.attrs["regret_unknown"]
    mdp = MDP(np.ones((1, 2, 1)), np.zeros((1, 2)), initial=[1.0])
    endless = _run(env=Environment(mdp, NormalReward(mdp.reward)), num_episodes=2, num_seeds=1)
    assert "never ends" in endless.attrs["regret_unknown"]
    assert (endless["length"] == 12).all()


def test_states_that_are_not_listed():
    """Rows of a hash table: 64 rows are too few, `overflow` says so; regret is not known."""
    options = RunOptions(table_rows=64, num_checkpoints=2, progress=False)
    result = _run(env=mail_robot(), num_episodes=20, num_seeds=2, options=options)
    assert 0.02 < float(result.attrs["overflow"]) < 1.0 and "not listed" in result.attrs["regret_unknown"]
    assert json.loads(result.attrs["configuration"])["table_rows"] == 64
    assert result["length"].values.max() <= 12 and np.isfinite(result["reward"]).all()


BAD = [
    ({"agent": PSRL()}, "measured in num_steps.*only agents that learn from whole episodes count them, unlike PSRL"),
    ({"objective": AverageReward()}, "AverageReward runs are measured in num_steps"),
    ({"num_steps": 5}, "measured in num_episodes, expected it and not num_steps$"),
    ({"num_episodes": 0}, "num_episodes is 0"),
    ({"num_seeds": 0}, "num_seeds is 0"),
    ({"env": 3}, "env is a int, expected an Environment or a SimulatedEnvironment"),
    ({"regret": "oracle_run"}, "regret is 'oracle_run', expected 'average' or None"),
    ({"agent": TDBMA(replan=10)}, r"replan is EverySteps.*, expected EveryLearnedEpisode\(\)"),
    (
        {"env": mail_robot, "options": RunOptions(table_rows=100)},
        "options.table_rows: num_rows is 100, expected a power",
    ),
    ({"env": mail_robot, "agent": PSRL(), "num_episodes": None, "num_steps": 5}, "env is a MailRobot, whose states"),
    ({"options": RunOptions(env_prior=dirichlet_normal_gamma())}, "options.env_prior is given"),
    (
        {"options": RunOptions(compiler="numba"), "env": mail_robot},
        "options.compiler is 'numba'.* are not listed",
    ),
    ({"options": RunOptions(target=np.ones((3, 2), bool))}, "options.target is given"),
    ({"options": RunOptions(space=StateActionSpace(4, 2, ends=True))}, r"space has \(4, 2\)"),
]


@pytest.mark.parametrize(("changes", "message"), BAD, ids=[message[:30] for _, message in BAD])
def test_refused(changes, message):
    """One sentence about the argument at fault."""
    with pytest.raises((ValueError, TypeError), match=message) as error:
        # Made here: it is simulated, and every file is imported wherever tests are collected.
        _run(**{name: mail_robot() if value is mail_robot else value for name, value in changes.items()})
    assert "\n" not in str(error.value)


def test_parallel_environments_are_refused():
    """Trials of several would be mixed."""
    space = StateActionSpace(3, 2, ends=True)
    actor = Actor(AGENT, space, objective=FirstExit(), key=KEY)
    with pytest.raises(ValueError, match="has 2 parallel environments, expected one: TDBMA learns from whole episodes"):
        actor.reset([0, 1])


@pytest.mark.slow
def test_steps_go_through_the_other_loop():
    """With `num_steps` a trial learner is a learner like others."""
    result = _run(SarsaLambda(trial_steps=12), objective=Discounted(0.9), num_episodes=None, num_steps=40)
    assert "visits" in result
