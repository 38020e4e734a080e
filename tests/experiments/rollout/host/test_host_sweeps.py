"""Prioritized sweeping by numba beside XLA: the same run on random cases, handed over half-way; twins are caught."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents import OIM
from bayes_mdp.agents.model_based.empirical_planning import PrioritizedSweeping
from bayes_mdp.envs import flag_maze
from bayes_mdp.experiments import run
from bayes_mdp.experiments.rollout.execute import Prepared, play_chunk, prepare, start_all
from bayes_mdp.experiments.rollout.time_loop import Carry
from bayes_mdp.experiments.run_config import RunConfig, RunOptions
from bayes_mdp.mdp import Discounted
from tests.experiments.rollout.host.random_runs import random_sweeps

pytestmark = [pytest.mark.numerics, pytest.mark.filterwarnings("ignore:v_max is")]
pytest.importorskip("numba")

from bayes_mdp.experiments.rollout.host import host_sweeps  # noqa: E402
from bayes_mdp.experiments.rollout.host.host_sweeps import HostSweeps  # noqa: E402

Played = tuple[Carry, np.ndarray]
"""The states at the end, and the rewards of all rows."""


def prepared(case: RunConfig) -> tuple[Prepared, Carry]:
    """The run for numba, and its first states."""
    ready = prepare(replace(case, options=replace(case.options, compiler="numba")))
    assert ready.listed is not None
    return ready, start_all(ready.layout, (False, False), ready.setting, ready.keys, ready.belief)


def by_xla(ready: Prepared, carry: Carry, first: int, count: int) -> Played:
    """Some rows (at most `chunk_rows`)."""
    carry, rows = play_chunk(ready.layout, False, ready.setting, ready.keys, carry, jnp.int32(first), jnp.int32(count))
    return carry, np.asarray(rows.reward)[:, :count]


def by_numba(ready: Prepared, carry: Carry, first: int, count: int) -> Played:
    """The same rows by numba."""
    assert ready.listed is not None
    host = HostSweeps(ready.layout, ready.setting, ready.listed, ready.keys, carry, first)
    host.play(count)
    return jax.tree.map(jnp.asarray, host.carry), host.reward[:, first : first + count]


def played(case: RunConfig, *compilers: Any) -> Played:
    """The whole run, chunk by chunk, the compilers in turn."""
    ready, carry = prepared(case)
    rewards, width = [], ready.layout.chunk_rows
    for turn, first in enumerate(range(0, ready.layout.num_rows, width)):
        count = min(width, ready.layout.num_rows - first)
        carry, reward = compilers[turn % len(compilers)](ready, carry, first, count)
        rewards.append(reward)
    return carry, np.concatenate(rewards, 1)


def assert_same(one: Played, other: Played, rtol: float) -> None:
    """Whole numbers (states, visits, lists, counts, actions, states backed up) are equal, sums agree to rounding."""
    for (path, x), (_, y) in zip(*map(jax.tree_util.tree_leaves_with_path, (one, other)), strict=True):
        exact = rtol if np.issubdtype(x.dtype, np.floating) else 0
        np.testing.assert_allclose(x, y, rtol=exact, atol=10 * exact, err_msg=jax.tree_util.keystr(path))
    sweeps = [x[0].agent_state.sweeps for x in (one, other)]
    np.testing.assert_array_equal(one[0].visits, other[0].visits)
    np.testing.assert_array_equal(*(x.rows[..., 4:6] for x in sweeps))


@pytest.mark.parametrize("number", range(24))
@pytest.mark.some(6)
def test_both_compilers_play_the_same_run(number):
    """Random environments, agents and settings, in float64: integers are equal, sums to 1e-12."""
    with jax.enable_x64(True):
        case = random_sweeps(number)
        assert_same(played(case, by_xla), played(case, by_numba), 1e-12)


@pytest.mark.parametrize("number", range(6))
@pytest.mark.some(2)
def test_handed_over_at_every_chunk(number):
    """What a snapshot holds is enough for either compiler."""
    with jax.enable_x64(True):
        case = random_sweeps(number)
        assert_same(played(case, by_xla), played(case, by_numba, by_xla), 1e-12)


def flags(**more: Any) -> RunConfig:
    """OIM in FlagMaze, as in its benchmark."""
    agent = OIM(v_max=0.1, planner=PrioritizedSweeping(5, 1e-4, 3, 26))
    case = RunConfig(agent, flag_maze(), Discounted(0.95), jax.random.key(0), None, 600, None, 2, None, RunOptions())
    return replace(case, **more)


def test_flag_maze_in_float32():
    """The same steps; values are less alike: states whose priorities differ by rounding change places in the queue."""
    (one, paid), (other, earned) = (played(flags(num_steps=400), by) for by in (by_xla, by_numba))
    np.testing.assert_array_equal(one.visits, other.visits)
    np.testing.assert_array_equal(paid, earned)
    for name in ("counts", "successor", "predecessor", "last_use"):
        np.testing.assert_array_equal(*(getattr(x.agent_state.tally, name) for x in (one, other)))
    np.testing.assert_allclose(*(x.agent_state.sweeps.rows[..., :2] for x in (one, other)), atol=0.02)


def test_more_seeds_leave_the_first_ones_as_they_are():
    """Bit by bit."""
    few, many = (played(flags(num_seeds=n), by_numba) for n in (1, 3))
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(x, y[:1]), few, many)


def test_results_of_run(tmp_path):
    """`run` gives the same Dataset by either compiler, written and read back; the attributes say that it was numba."""
    case = random_sweeps(0)
    results = [
        run(
            case.agent,
            case.environment,
            objective=case.objective,
            key=case.key,
            num_steps=case.num_steps,
            num_seeds=case.num_seeds,
            path=tmp_path / f"{compiler}.nc",
            options=replace(case.options, compiler=compiler),
        )
        for compiler in ("xla", "numba")
    ]
    assert results[1].attrs.pop("compiler") == '"numba"'
    assert results[0].attrs == results[1].attrs
    np.testing.assert_array_equal(results[0].visits, results[1].visits)
    for name in ("reward", "regret"):
        np.testing.assert_allclose(results[0][name], results[1][name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("compiler", ["numba", "xla"])
def test_an_interrupted_run_is_resumed_by_either_compiler(tmp_path, monkeypatch, compiler):
    """The loop writes in place: what is interrupted after a call, before Python looks, is told by the snapshot."""
    case, path, calls = random_sweeps(0), tmp_path / "run.nc", []
    parts = {"objective": case.objective, "key": case.key, "num_steps": case.num_steps, "num_seeds": case.num_seeds}

    def result(compiler: str, path: Any = None) -> Any:
        options = replace(case.options, compiler=compiler, num_checkpoints=50)
        return run(case.agent, case.environment, **parts, path=path, options=options)

    def interrupted(*arguments: Any) -> None:
        kept_steps(*arguments)
        calls.append(0)
        if len(calls) == 2:
            raise KeyboardInterrupt

    kept_steps = host_sweeps.kept_steps
    monkeypatch.setattr(host_sweeps, "STEPS_OF_A_CALL", 1)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(host_sweeps, "kept_steps", interrupted)
        result("numba", path)
    assert path.with_name("run.nc.partial").exists()
    resumed, whole = result(compiler, path), result("numba")
    np.testing.assert_array_equal(resumed.visits, whole.visits)
    np.testing.assert_allclose(resumed.reward, whole.reward, rtol=1e-6 if compiler == "xla" else 0)


def last_of_first(values: Any, priority: Any, tops: Any) -> int:
    """Of states that wait equally, the last."""
    if tops.max() <= 0:
        return -1
    row = len(tops) - 1 - int(np.argmax(tops[::-1]))
    column = len(tops) - 1 - int(np.argmax(priority[row][::-1]))
    priority[row, column] = 0
    tops[row] = priority[row].max()
    s = row * len(tops) + column
    values[s, 2:4] = values[s, 0:2]
    return s


def without_bonus(*arguments: Any) -> Any:
    """A model that knows no optimism."""
    reward, bonus, number = pair_model(*arguments)
    return reward, 0 * bonus, number


pair_model = host_sweeps.pair_model
TWINS = {
    "none": {},
    "queue": {"take_out": last_of_first},
    "together": {"TOGETHER": 1},
    "bonus": {"pair_model": without_bonus},
    "key": {"ENV_KEY": 2},
}


@pytest.mark.parametrize("twin", TWINS)
def test_a_broken_twin_is_caught(twin, monkeypatch):
    """The text of the loop run by Python: as it is, it is the run of XLA; with one rule changed, it is not."""
    for name, value in TWINS[twin].items():
        monkeypatch.setattr(host_sweeps, name, value)
    plain: Any = host_sweeps.play_steps
    monkeypatch.setattr(host_sweeps, "kept_steps", plain.py_func)
    with jax.enable_x64(True):
        case = flags(num_steps=300, num_seeds=1)
        right, found = played(case, by_xla), played(case, by_numba)
    if twin == "none":
        assert_same(right, found, 1e-12)
    else:
        with pytest.raises(AssertionError):
            assert_same(right, found, 1e-12)
