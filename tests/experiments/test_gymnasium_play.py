"""Parallel Gymnasium environments: every autoreset mode gives the transitions that happened, and no others."""

import json
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from bayes_mdp.agents import PSRL
from bayes_mdp.envs import to_gymnasium
from bayes_mdp.experiments import gymnasium_run as playing
from bayes_mdp.experiments.actor import Actor
from bayes_mdp.experiments.gymnasium_envs import ParallelEnvs, open_env
from bayes_mdp.experiments.rollout.time_loop import Layout
from bayes_mdp.experiments.training.vector_env import host_env
from bayes_mdp.mdp import Discounted, Episodic, StateActionSpace
from bayes_mdp.utils.progress import Progress
from tests.experiments.test_gymnasium_run import ENDING, KEY, _run
from tests.experiments.toy import walk_that_ends
from tests.planted_module import ID, NAME, Planted


class Recorder(gymnasium.Wrapper):
    """Writes down what really happened: (lane, state, action, reward, next state, terminated, truncated)."""

    def __init__(self, env, rows, lane):
        super().__init__(env)
        self.rows, self.lane, self.state = rows, lane, None

    def reset(self, *, seed=None, options=None):
        """As it is."""
        self.state, info = self.env.reset(seed=seed, options=options)
        return self.state, info

    def step(self, action):
        """As it is."""
        state = self.state
        self.state, reward, terminated, truncated, info = self.env.step(action)
        self.rows.append((self.lane, state, int(action), reward, self.state, terminated, truncated))
        return self.state, reward, terminated, truncated, info


def _lanes(mode, limit, rows, count=3):
    make = [
        lambda lane=lane: Recorder(to_gymnasium(walk_that_ends(), max_episode_steps=limit), rows, lane)
        for lane in range(count)
    ]
    return SyncVectorEnv(make, autoreset_mode=mode)


def _layout(horizon=None, rows=20):
    """Rows of 5 steps, or episodes."""
    length = horizon or 5
    sizes = {"row_length": length, "segment_length": 1, "chunk_rows": 1, "num_rows": rows, "num_steps": rows * length}
    return Layout(episodic=horizon is not None, ends=True, always=False, ragged=False, values=False, **sizes)


def _counts(rows):
    """[S A O] of recorded transitions."""
    counts = np.zeros((3, 2, 4))
    for _, state, action, _, following, terminated, _ in rows:
        counts[state, action, 3 if terminated else following] += 1
    return counts


def _play_lanes(mode, horizon, limit, rows):
    objective = Discounted(0.9) if horizon is None else Episodic(horizon)
    space = StateActionSpace(3, 2, ends=True)
    actor = Actor(PSRL(4), space, objective=objective, key=KEY, prior=ENDING)
    with Progress(1, 1, show=False) as bar:
        reward = playing.play(ParallelEnvs(_lanes(mode, limit, rows)), actor, _layout(horizon), bar.advance, seed=4)
    return actor, reward


@pytest.mark.parametrize("mode", AutoresetMode)
def test_autoreset_modes(mode):
    """Exactly the transitions that happened, in order, 100 of them; rewards by row; both kinds of ends occur."""
    rows: list[Any] = []
    actor, reward = _play_lanes(mode, None, 3, rows)
    first = rows[:100]
    assert {r[5] for r in first} == {r[6] for r in first} == {True, False}
    np.testing.assert_array_equal(actor.belief.counts, _counts(first))
    np.testing.assert_allclose(reward, np.reshape([r[3] for r in first], (20, 5)).sum(1))
    assert len(rows) <= 102


@pytest.mark.parametrize(("mode", "limit"), [*((mode, 3) for mode in AutoresetMode), (AutoresetMode.DISABLED, None)])
def test_autoreset_modes_with_episodes(mode, limit):
    """20 episodes of at most 3 steps; without a limit of the environment they are cut; each has its own reward."""
    rows: list[Any] = []
    actor, reward = _play_lanes(mode, 3, limit, rows)
    episodes: list[Any] = []
    going: dict[int, int] = {}
    for row in rows:  # numbered as they begin: at the start lane by lane, then in the order in which others ended
        if not episodes:
            episodes = [[], [], []]
            going = {0: 0, 1: 1, 2: 2}
        episodes[going[row[0]]].append(row)
        if row[5] or row[6] or len(episodes[going[row[0]]]) == 3:
            going[row[0]] = len(episodes)
            episodes.append([])
    counted = [row for episode in episodes[:20] for row in episode]
    np.testing.assert_array_equal(actor.belief.counts, _counts(counted))
    np.testing.assert_allclose(reward, [sum(row[3] for row in episode) for episode in episodes[:20]])


def test_a_reset_that_is_learnt_would_be_seen(monkeypatch):
    """The broken twin: the step of NEXT_STEP that only resets is taken for a transition."""
    step = ParallelEnvs.step
    everything = lambda self, *a: (s := step(self, *a))._replace(happened=np.ones(3, bool), begins=s.begins & False)  # noqa: E731
    monkeypatch.setattr(ParallelEnvs, "step", everything)
    rows: list[Any] = []
    with pytest.raises(ValueError, match="no episode goes on"):
        _play_lanes(AutoresetMode.NEXT_STEP, None, 3, rows)


@pytest.mark.slow
def test_other_vector_environments():
    """An episode that goes on past its horizon where it cannot be cut; an unknown mode; lanes that differ."""
    with pytest.raises(ValueError, match=r"env\[\d\] goes on after the last step of an episode of the objective"):
        _run(lambda: _lanes(AutoresetMode.NEXT_STEP, None, []), objective=Episodic(2), num_steps=None, num_episodes=9)
    odd = _lanes(AutoresetMode.NEXT_STEP, 3, [])
    odd.metadata = {}
    with pytest.raises(ValueError, match=r"env.metadata\['autoreset_mode'\] is None, expected one of"):
        _run(odd)
    result = _run(lambda: _lanes(AutoresetMode.SAME_STEP, 3, []), num_steps=33, num_seeds=1)
    assert "differ" in json.loads(result.attrs["regret_unknown"])
    assert result["visits"].values.sum() == 33 and np.isnan(result["regret"].values).all()
    recorded = Recorder(to_gymnasium(walk_that_ends()), [], 0)
    assert "the wrapper Recorder may change" in json.loads(_run(recorded, num_steps=20).attrs["regret_unknown"])
    same = to_gymnasium(walk_that_ends()).environment
    result = _run(SyncVectorEnv([lambda: to_gymnasium(same)] * 2), num_steps=21)
    assert "regret_unknown" not in result.attrs and result["time"].values[-1] == 21


def test_an_id_that_would_import_a_module_is_refused(tmp_path, monkeypatch):
    """Of `run` and of deep agents; a function may import what it likes."""
    planted = Planted(tmp_path, monkeypatch)
    for refuse in (open_env, lambda name: host_env(name, 1)):
        with pytest.raises(ValueError, match="would import the module 'a_planted_module'"):
            refuse(ID)
    assert not planted.imported
    try:
        assert open_env(lambda: gymnasium.make(ID)).n_states == 16 and planted.imported
        assert host_env(f"{NAME}:Seen-v0", 1, import_module=True).num_envs == 1
    finally:
        planted.forget()
