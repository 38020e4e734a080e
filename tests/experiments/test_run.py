"""`run`: reproducible, compiled once, resumable to the bit, regret by its definitions, bad input refused."""

import os
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents import PSRL, EpsilonGreedyQ, Geometric
from bayes_mdp.envs import deep_sea, riverswim
from bayes_mdp.experiments import RunOptions, resume, run
from bayes_mdp.experiments.results import load_result
from bayes_mdp.experiments.rollout import execute as execution
from bayes_mdp.inference import infer
from bayes_mdp.mdp import (
    MDP,
    AverageReward,
    Discounted,
    Environment,
    Episodic,
    FirstExit,
    NormalReward,
    StateActionSpace,
)
from bayes_mdp.models import dirichlet_normal_gamma
from bayes_mdp.planning import evaluate, solve
from bayes_mdp.utils.files import write_with_checksum
from tests.experiments.toy import ToyBelief, two_states, walk_that_ends
from tests.flips import NUMBER, refused_flips
from tests.options import fold

pytestmark = pytest.mark.numerics

KEY = jax.random.key(7)
TOY = ToyBelief.of(3, 2)
QUIET = RunOptions(num_checkpoints=20, progress=False, snapshot_seconds=0.0)


def _toy(agent: Any = PSRL(10), **changes: Any):
    arguments: dict[str, Any] = {
        "prior": TOY,
        "objective": Discounted(0.9),
        "num_steps": 2000,
        "num_seeds": 8,
        "key": KEY,
        "options": QUIET,
    }
    return run(agent, two_states(), **fold(RunOptions, {**arguments, **changes}))


@lru_cache
def _result():
    return _toy()


@pytest.mark.optimised
def test_learns_and_is_reproducible():
    """The last checkpoint earns the optimal gain .9 or nearly; the same key gives the same bits; another key others."""
    result = _result()
    assert result["reward"].dims == ("seed", "checkpoint") and result["time"].values[-1] == 2000
    assert result["reward"].values[:, -1].mean() / 100 > 0.7
    assert result["visits"].values.sum() == 8 * 2000
    assert _toy().identical(result)
    assert not np.array_equal(_toy(key=jax.random.key(8))["reward"], result["reward"])


def test_first_seeds_do_not_depend_on_their_number():
    """Seed i is fold_in(key, i)."""
    few = _toy(num_seeds=1)
    assert np.array_equal(few["reward"].values[0], _result()["reward"].values[0])


def _compilations():
    return getattr(execution.play_chunk, "_cache_size")()  # noqa: B009 - untyped in jax


def test_chunks_do_not_recompile():
    """One trace for all chunks, and none for a second run of the same shape with other numbers."""
    _result()
    before = _compilations()
    _toy(key=jax.random.key(1), objective=Discounted(0.8))
    assert _compilations() == before


def test_ragged_end():
    """A number of steps that is no multiple of the period: the rest is played, and nothing more."""
    result = _toy(num_steps=203, num_seeds=2)
    assert result["visits"].values.sum(axis=(1, 2)).tolist() == [203, 203]
    assert result["time"].values[-1] == 203


class Killed(Exception):
    """Stands for a kill signal."""


@pytest.mark.optimised
def test_a_killed_run_resumes_bit_for_bit(tmp_path, monkeypatch):
    """After a kill in the middle, the same call ends in the same bits; the snapshot is gone; the file says the same."""
    path = tmp_path / "run.nc"
    play, calls = execution.play_chunk, []

    def killed(*arguments):
        calls.append(0)
        if len(calls) == 3:
            raise Killed
        return play(*arguments)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(execution, "play_chunk", killed)
        _toy(path=path)
    assert path.with_name("run.nc.partial").exists() and not path.exists()
    written = lambda: resume.read_snapshot(path.with_name("run.nc.partial"))[0]  # noqa: E731
    whole = written()
    assert refused_flips(path.with_name("run.nc.partial"), written, lambda found: found == whole) == NUMBER
    with pytest.raises(ValueError, match="num_seeds is 8 there and 4 here"):
        _toy(path=path, num_seeds=4)
    resumed = _toy(path=path)
    assert resumed.identical(_result())
    assert not path.with_name("run.nc.partial").exists()
    assert load_result(path).identical(resumed)
    assert refused_flips(path, lambda: load_result(path), resumed.identical) == NUMBER


def test_a_cut_snapshot_is_refused(tmp_path):
    """Its checksum is wrong."""
    path = tmp_path / "run.nc"
    path.with_name("run.nc.partial").write_bytes(b"x" * 100)
    with pytest.raises(ValueError, match="expected a whole snapshot of a run"):
        _toy(path=path)
    write_with_checksum(path.with_name("run.nc.partial"), lambda beside: beside.write_bytes(b"no zip"))
    with pytest.raises(ValueError, match="expected a whole snapshot of a run"):
        _toy(path=path)


@pytest.mark.parametrize("taken", ["run.nc", "run.nc.partial"])
def test_what_is_no_file_is_noticed_before_the_run(tmp_path, monkeypatch, taken):
    """A pipe where the result or its snapshot goes; a link leads to the file."""
    path = tmp_path / "run.nc"
    with monkeypatch.context() as patch:
        patch.setattr(
            import_module("bayes_mdp.experiments.run_agent"), "prepare", lambda case: pytest.fail("it was prepared")
        )
        os.mkfifo(tmp_path / taken)
        with pytest.raises(ValueError, match=f"{taken}', a pipe, expected a file"):
            _toy(path=path)
    (tmp_path / taken).unlink()
    (tmp_path / "there").mkdir()
    path.symlink_to(tmp_path / "there" / "result.nc")
    result = _toy(path=path)
    assert path.is_symlink() and load_result(tmp_path / "there" / "result.nc").identical(result)


def test_rules_that_depend_on_data():
    """Doubling and geometric rules plan seldom, and learn as well."""
    for rule in ("doubling", Geometric(1.3)):
        result = _toy(PSRL(rule), num_seeds=4)
        assert result["reward"].values[:, -1].mean() / 100 > 0.6


def test_a_branch_equals_no_branch():
    """The same plans at the same times, asked for as a function: the same visits as the period that is known."""
    asked = _toy(PSRL(lambda moment: moment.time % 10 == 0), num_seeds=2)
    assert np.array_equal(asked["visits"], _result()["visits"].values[:2])


def test_average_regret_is_gain_times_steps_minus_reward():
    """With the gain of the planner in float64."""
    result = _result()
    gain = float(solve(two_states().mdp, AverageReward()).gain)
    expected = gain * result["time"].values - np.cumsum(result["reward"].values, 1)
    assert np.allclose(result["regret"], expected, atol=1e-2)


def test_objective_regret_of_a_fixed_policy():
    """An agent that never learns and always acts alike: each step loses V* - V at the state it is in."""
    agent = EpsilonGreedyQ(learning_rate=0.0, epsilon=0.0, replan=100)
    result = _toy(agent, regret="objective", num_steps=400, num_seeds=2)
    mdp, objective = two_states().mdp, Discounted(0.9)
    gap = solve(mdp, objective).v - evaluate(mdp, jnp.zeros(3, int), objective).v
    expected = result["visits"].values.sum(-1) @ np.asarray(gap)
    assert np.allclose(result["regret"].values[:, -1], expected, rtol=1e-4)


@pytest.mark.optimised
def test_episodic_regret():
    """An agent that never learns loses E V* - E V every episode; where it replans inside episodes, the same."""
    mdp = two_states().mdp
    lost = (solve(mdp, Episodic(5)).v[0] - evaluate(mdp, jnp.zeros(3, int), Episodic(5)).v[0])[0]
    for every in (None, 2):
        agent = EpsilonGreedyQ(learning_rate=0.0, epsilon=0.0, replan=every)
        result = _toy(agent, objective=Episodic(5), num_steps=None, num_episodes=30, num_seeds=2)
        assert np.allclose(result["regret"].values, float(lost) * np.arange(1, 31), rtol=1e-4)
    average = _toy(agent, objective=Episodic(5), num_steps=None, num_episodes=30, num_seeds=2, regret="average")
    value = float(solve(mdp, Episodic(5)).v[0, 0])
    assert np.allclose(average["regret"], value * np.arange(1, 31) - np.cumsum(average["reward"].values, 1), atol=1e-3)


@pytest.mark.slow
def test_oracle_run():
    """The oracle meets the same random numbers: an agent that is optimal from the start has no regret at all."""
    optimal = np.asarray(solve(two_states().mdp, Discounted(0.9)).policy)
    legal = np.eye(2, dtype=bool)[optimal]
    random, knows = EpsilonGreedyQ(epsilon=1.0), RunOptions(space=StateActionSpace(3, 2, legal=legal), progress=False)
    result = _toy(random, regret="oracle_run", options=knows)
    assert np.array_equal(result["regret"], np.zeros_like(result["regret"]))
    assert _toy(random, regret="oracle_run")["regret"].values[:, -1].mean() > 100


@pytest.mark.optimised
def test_ends():
    """Restarts in a run without episodes; in an episode, nothing after the end."""
    space = {"prior": ToyBelief.of(3, 2, ends=True), "num_seeds": 4, "key": KEY, "options": QUIET}
    result = run(PSRL(5), walk_that_ends(), objective=Discounted(0.9), num_steps=1000, **space)
    assert result["visits"].values.sum() == 4000 and result["reward"].values[:, -1].mean() > 12
    result = run(PSRL(), walk_that_ends(), objective=Episodic(6), num_episodes=100, **space)
    assert set(np.unique(result["reward"])) <= {0.0, 1.0} and result["reward"].values[:, 50:].mean() > 0.9
    assert result["visits"].values.sum() < 4 * 600


@pytest.mark.slow
def test_a_prior_program_and_bayes_regret():
    """A NumPyro prior over steps: PSRL solves DeepSea; with a world for every seed the regret is not negative."""
    from bayes_mdp.models import dirichlet_normal

    arguments = {"prior": dirichlet_normal(noise_scale=0.1), "objective": Episodic(4), "num_seeds": 6, "key": KEY}
    result = run(PSRL(), deep_sea(4), num_episodes=200, options=QUIET, **arguments)
    assert result["visits"].dims == ("seed", "step", "state", "action")
    assert result["reward"].values[:, -50:].mean() > 0.8
    bayes = run(PSRL(), deep_sea(4), num_episodes=40, options=replace(QUIET, regret="bayes"), **arguments)
    each = np.diff(bayes["regret"].values, axis=1)
    assert np.all(each > -1e-4) and each[:, -10:].mean() < each[:, :10].mean()


BAD = [
    ({"num_seeds": 0}, "num_seeds is 0"),
    ({"num_steps": None}, "num_steps"),
    ({"num_episodes": 3}, "measured in num_steps"),
    ({"objective": Episodic(5)}, "measured in num_episodes"),
    ({"prior": None}, "prior is None"),
    ({"prior": 3}, "posterior that has update"),
    ({"key": 0}, "key is 0, expected a typed key"),
    ({"regret": "loss"}, "regret is 'loss'"),
    ({"regret": "bayes"}, "prior is no NumPyro program"),
    ({"objective": FirstExit(), "regret": "objective"}, "FirstExit"),
    ({"options": RunOptions(space=StateActionSpace(2, 2))}, r"space has \(2, 2\)"),
    ({"num_steps": 2**31}, "at most"),
]


@pytest.mark.parametrize(("changes", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_input(changes, message):
    """One sentence each."""
    with pytest.raises((ValueError, TypeError), match=message):
        _toy(**changes)


def test_a_layered_environment_has_one_objective():
    """DeepSea of 4 steps with a discount, or with 5 steps."""
    lengths: Any = ((Discounted(0.9), {"num_steps": 10}), (Episodic(5), {"num_episodes": 10}))
    for objective, length in lengths:
        with pytest.raises(ValueError, match=r"expected Episodic\(4\)"):
            run(PSRL(), deep_sea(4), prior=TOY, objective=objective, key=KEY, **length)


@pytest.mark.parametrize(
    "prior_space, sentence",
    [
        (StateActionSpace(4, 2), "space has"),
        pytest.param(StateActionSpace(3, 2, ends=True), None, marks=pytest.mark.slow),
        (StateActionSpace(3, 2), "ends=False"),
    ],
)
def test_a_posterior_of_another_space_is_refused(key, prior_space, sentence):
    env = Environment(
        MDP(jnp.full((3, 2, 3), 0.3), jnp.zeros((3, 2)), end_probs=jnp.full((3, 2), 0.1), initial=jnp.ones(3) / 3),
        NormalReward(jnp.zeros((3, 2))),
    )
    posterior = infer(key, dirichlet_normal_gamma(), space=prior_space)
    arguments = {"objective": Discounted(0.9), "key": key, "num_steps": 4}
    if sentence is None:
        assert run(PSRL(2), env, prior=posterior, **arguments)["visits"].sum() == 4
    else:
        with pytest.raises(ValueError, match=sentence):
            run(PSRL(2), env, prior=posterior, **arguments)


def test_the_oracle_of_a_first_exit_problem_leaves(key):
    """Staying ties with leaving in q where nothing is discounted: the planner's policy leaves."""
    rows = jnp.zeros((2, 2, 2)).at[:, 0].set(jnp.eye(2)).at[0, 1, 1].set(1.0)
    ends, reward = jnp.zeros((2, 2)).at[1, 1].set(1.0), jnp.zeros((2, 2)).at[1, 1].set(1.0)
    mdp = MDP(rows, reward, end_probs=ends, initial=jnp.array([1.0, 0.0]))
    result = run(
        EpsilonGreedyQ(epsilon=1.0),
        Environment(mdp, NormalReward(reward)),
        objective=FirstExit(),
        num_steps=400,
        options=RunOptions(regret="oracle_run"),
        key=key,
    )
    assert float(result["reward"].sum() + result["regret"][0, -1]) == 200.0


def test_a_folder_that_is_not_there_is_noticed_first(key, tmp_path):
    with pytest.raises(FileNotFoundError, match="folder that exists"):
        run(
            EpsilonGreedyQ(),
            riverswim(),
            objective=Discounted(0.9),
            num_steps=5,
            key=key,
            path=tmp_path / "no" / "x.nc",
        )


def test_options_are_checked_where_they_are_made():
    with pytest.raises(ValueError, match="num_checkpoints is 0"):
        RunOptions(num_checkpoints=0)


def test_every_seed_and_every_environment_has_a_key_of_its_own():
    keys = execution._streams(jax.random.key(0), np.arange(3))
    words = np.concatenate([np.asarray(jax.random.key_data(x)).reshape(-1, 2) for x in keys])
    assert len(words) == 7 == len(np.unique(words, axis=0))
