"""Whole episodes by numba beside XLA: the same run on random cases, handed over half-way, and twins that are caught."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents import TDBMA
from bayes_mdp.envs import racetrack
from bayes_mdp.experiments.resume import Snapshots
from bayes_mdp.experiments.rollout.sweep_loop import FINISHED, SeedState, begin_all, play
from bayes_mdp.experiments.run_agent import PreparedEpisodes, play_episodes, prepare_episodes
from bayes_mdp.experiments.run_config import RunConfig
from bayes_mdp.mdp import FirstExit
from bayes_mdp.utils.progress import Progress
from tests.experiments.rollout.host.random_runs import QUIET, random_trials

pytestmark = pytest.mark.numerics
pytest.importorskip("numba")

from bayes_mdp.experiments.rollout.host import host_episodes  # noqa: E402
from bayes_mdp.experiments.rollout.host.host_draws import fold_in  # noqa: E402
from bayes_mdp.experiments.rollout.host.host_episodes import HostEpisodes  # noqa: E402


def prepared(case: RunConfig, compiler: str) -> PreparedEpisodes:
    """The run, for one compiler."""
    return prepare_episodes(replace(case, options=replace(case.options, compiler=compiler)))


def played(case: RunConfig, compiler: str) -> SeedState:
    """All seeds at their ends."""
    ready = prepared(case, compiler)
    assert (ready.listed is not None) == (compiler == "numba")
    return play_episodes(ready, Progress(1, 1, show=False), Snapshots(None, {}))


def assert_same(one: SeedState, other: SeedState, rtol: float) -> None:
    """Whole numbers are equal, sums agree to rounding."""
    for name in ("phase", "episode", "state", "at"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    log, logged = np.asarray(one.log), np.asarray(other.log)
    np.testing.assert_array_equal(log[..., [1, 3]], logged[..., [1, 3]])
    for x, y in zip(jax.tree.leaves((log, one.tables)), jax.tree.leaves((logged, other.tables)), strict=True):
        np.testing.assert_allclose(x, y, rtol=rtol, atol=10 * rtol)


@pytest.mark.parametrize("number", range(24))
@pytest.mark.some(4)
def test_both_compilers_play_the_same_run(number):
    """Random environments, agents and settings, in float64: integers are equal, sums to 1e-12."""
    with jax.enable_x64(True):
        case = random_trials(number)
        assert_same(played(case, "xla"), played(case, "numba"), 1e-12)


def test_float32():
    """In the default precision: integers are equal on a run without a near tie, sums agree to rounding."""
    case = random_trials(5)
    assert_same(played(case, "xla"), played(case, "numba"), 2e-6)


def test_corner_track():
    """TD-BMA on the track of its benchmark, where every action costs 1."""
    case = RunConfig(TDBMA(), racetrack("corner"), FirstExit(), jax.random.key(0), None, None, 60, 2, None, QUIET)
    assert_same(played(case, "xla"), played(case, "numba"), 1e-5)


def handed_over(case: RunConfig) -> SeedState:
    """The run with another compiler for every chunk."""
    layout, setting, keys, listed = prepared(case, "numba")
    assert listed is not None
    seeds, done = begin_all(layout, setting, keys), 0
    while not np.all(np.asarray(seeds.phase) == FINISHED):
        if done % 2:
            host = HostEpisodes(layout, setting, listed, keys, seeds, done)
            host.play(1)
            seeds = jax.tree.map(jnp.asarray, host.seeds)
        else:
            seeds = play(layout, setting, keys, seeds, jnp.array([done, done + 1], jnp.int32))
        done += 1
    assert done > 2
    return seeds


@pytest.mark.parametrize("number", [1, 4, 13, 18])
@pytest.mark.some(2)
def test_handed_over_at_every_chunk(number):
    """In the middle of an episode and of a sweep: what a snapshot holds is enough for either compiler."""
    with jax.enable_x64(True):
        case = random_trials(number)
        assert_same(played(case, "xla"), handed_over(case), 1e-12)


def test_more_seeds_leave_the_first_ones_as_they_are():
    """Bit by bit."""
    case = random_trials(7)
    few, many = played(replace(case, num_seeds=1), "numba"), played(replace(case, num_seeds=5), "numba")
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(x, y[:1]), few, many)


def last_of_largest(q: Any, first: int, n_actions: int) -> int:
    """Another rule for ties."""
    return n_actions - 1 - int(np.argmax(q[first : first + n_actions][::-1]))


def no_weight(*arguments: Any) -> Any:
    """Lambda 0."""
    return arguments[-1] - arguments[-1]


def next_fold(key: Any, number: int) -> Any:
    """The words of the chunk after this one."""
    return fold_in(key, number + 1)


TWINS = {
    "none": {},
    "ties": {"first_of_largest": last_of_largest},
    "counter": {"fold_in": next_fold},
    "weight": {"weight_by_averages": no_weight},
    "chunk": {"CHUNK": 127},
}


@cache
def on_the_corner_track(compiler: str) -> SeedState:
    """A few episodes in float64."""
    with jax.enable_x64(True):
        agent, env = TDBMA(trial_steps=40), racetrack("corner")
        return played(RunConfig(agent, env, FirstExit(), jax.random.key(0), None, None, 10, 1, None, QUIET), compiler)


@pytest.mark.parametrize("twin", TWINS)
def test_a_broken_twin_is_caught(twin, monkeypatch):
    """The text of the loop run by Python: as it is, it is the run of XLA; with one rule changed, it is not."""
    for name, value in TWINS[twin].items():
        monkeypatch.setattr(host_episodes, name, value)
    plain: Any = host_episodes.play_seeds
    monkeypatch.setattr(host_episodes, "play_all_seeds", plain.py_func)
    right, found = on_the_corner_track("xla"), on_the_corner_track.__wrapped__("numba")
    if twin == "none":
        assert_same(right, found, 1e-12)
    else:
        with pytest.raises(AssertionError):
            assert_same(right, found, 1e-12)
