"""`sweep`: the grid, one Dataset wherever cells are computed, resuming, failures, locks, full disks.

`run` is replaced by a function that is exact and quick, but for one test.
"""

import errno
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import bayes_mdp as bm
from bayes_mdp.agents import PSRL, EpsilonGreedyQ
from bayes_mdp.experiments import run_sweep as home
from bayes_mdp.experiments import sweep_folder, sweep_grid
from bayes_mdp.mdp import Episodic
from bayes_mdp.utils.files import read_json
from tests.options import fold

AGENTS = {"epsilon_greedy_q": {"epsilon": [0.1, 0.2]}, "psrl": {}}
ENVS = {"deep_sea": {"size": [3, 4]}}
PRIORS = {"dirichlet_normal": {"noise_scale": [0.5, 1.0]}}
NUM_CELLS = 2 * 2 * 2 + 2 * 2 * 2  # (learners x envs + psrl x envs x priors) x blocks
OPTIONS = bm.experiments.RunOptions(progress=False)


def fake_run(agent, env, *, objective, key, num_seeds, num_episodes, **others):
    """Rewards are random numbers of the key; a run has as many rows as the environment has steps."""
    if num_episodes == 13:
        raise ValueError("num_episodes is 13, expected another")
    number = objective.horizon
    rewards = np.asarray(jax.random.uniform(key, (num_seeds, number)), np.float64)
    rewards += float(getattr(agent, "epsilon", 0.0))
    return xr.Dataset(
        {
            "reward": (("seed", "episode"), rewards),
            "regret": (("seed", "episode"), np.cumsum(rewards, 1)),
            "visits": (("seed", "state"), np.ones((num_seeds, 2))),
        }
    )


@pytest.fixture
def quick(monkeypatch):
    """`run` as above; the calls so far."""
    calls = []

    def run(*arguments, **named):
        calls.append(arguments)
        return fake_run(*arguments, **named)

    monkeypatch.setattr(home, "run", run)
    monkeypatch.setattr(sweep_folder, "PAUSES", (0.0, 0.0, 0.0))
    return calls


def sweep(path=None, **options):
    arguments: dict[str, Any] = {
        "key": jax.random.key(3),
        "priors": PRIORS,
        "num_episodes": 5,
        "num_seeds": 2,
        "num_blocks": 2,
    }
    given = {"options": OPTIONS, **arguments, **options}
    return bm.sweeps.sweep(AGENTS, ENVS, path=path, **fold(bm.experiments.SweepOptions, given))


def test_the_grid(quick):
    """Learners are not crossed with priors; one key for an environment and a block; rows that are not there are nan."""
    result = sweep()
    assert result.sizes == {"cell": NUM_CELLS, "seed": 2, "episode": 4} and len(quick) == NUM_CELLS
    cells = result.to_dataframe().reset_index().query("seed == 0 and episode == 0")
    learners = cells[cells.agent == "epsilon_greedy_q"]
    assert set(learners.prior) == {""} and set(learners.agent_epsilon) == {0.1, 0.2}
    assert cells.groupby("agent").size().to_dict() == {"epsilon_greedy_q": 8, "psrl": 8}
    # Rewards are those of the key: of environment and block alone, but for epsilon.
    plain = cells.reward - cells.agent_epsilon.fillna(0.0)
    assert plain.round(12).nunique() == 4 == plain.round(12).groupby([cells.env_size, cells.block]).first().size
    last = np.isnan(result["reward"].values[:, 0, -1])
    assert (last == (result["env_size"].values == 3)).all() and (last == np.isnan(result["time"].values[:, -1])).all()
    assert (result["status"] == "finished").all() and "visits" not in result


def test_everywhere_the_same_and_resumed(quick, tmp_path, caplog):
    """Threads in the place of workers; a finished sweep runs nothing; missing, damaged and strange cells run again."""
    alone = sweep()
    with ThreadPoolExecutor(3) as pool:
        assert sweep(tmp_path / "a", executor=pool).identical(alone)
    assert bm.load(tmp_path / "a" / "results.nc").identical(alone)
    before = len(quick)
    assert sweep(tmp_path / "a").identical(alone) and len(quick) == before
    files = sorted((tmp_path / "a" / "cells").glob("*.npz"))
    whole = files[1].read_bytes()
    files[0].unlink()
    files[1].write_bytes(whole[:700] + bytes([whole[700] ^ 1]) + whole[701:])
    files[2].write_bytes(files[5].read_bytes())  # whole, and of another cell
    (tmp_path / "a" / "cells" / ".half.npz").write_bytes(b"x")
    assert bm.sweeps.sweep_status(tmp_path / "a").finished == NUM_CELLS - 1
    part = bm.load(tmp_path / "a")
    assert [str(x) for x in part["status"].values[:4]] == ["missing", "missing", "missing", "finished"]
    caplog.clear()
    assert sweep(tmp_path / "a").identical(alone) and len(quick) == before + 3
    assert ["run again" in record.message for record in caplog.records] == [True, True]
    assert files[1].read_bytes() == whole and not (tmp_path / "a" / "cells" / ".half.npz").exists()


def test_the_manifest(quick, tmp_path):
    """Keys by which every cell can be run alone, checksums; another configuration is refused."""
    result = sweep(tmp_path / "a")
    manifest = read_json(tmp_path / "a" / "manifest.json", "x")
    assert len(manifest["cells"]) == NUM_CELLS == len(manifest["checksums"]) and manifest["failed"] == {}
    entry = manifest["cells"][3]
    key = jax.random.wrap_key_data(jnp.asarray(entry["key"], jnp.uint32))
    alone = fake_run(EpsilonGreedyQ(epsilon=0.1), None, objective=Episodic(4), key=key, num_seeds=2, num_episodes=5)
    assert np.array_equal(alone["reward"], result["reward"][3])
    for changed in ({"num_seeds": 3}, {"key": jax.random.key(4)}, {"num_episodes": 6}, {"priors": "dirichlet_normal"}):
        with pytest.raises(ValueError, match="holds another sweep"):
            sweep(tmp_path / "a", **changed)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.tex").touch()
    with pytest.raises(ValueError, match=r"holds 'thesis.tex' and no manifest.json"):
        sweep(tmp_path / "b")
    place = tmp_path / "a" / "manifest.json"
    place.write_text(place.read_text().replace('"num_seeds": 2', '"num_seeds": 3'))
    with pytest.raises(ValueError, match="checksum"):
        sweep(tmp_path / "a")


def test_failing_cells_are_reported(monkeypatch, quick, tmp_path, caplog):
    """They are tried again, reported, and run by the next call; the others are as ever."""
    whole, tried = sweep(), []

    def sick(agent, env, **named):
        if isinstance(agent, PSRL) and env.mdp.n_states == 3:
            tried.append(1)
            raise OSError("out of order")
        return fake_run(agent, env, **named)

    monkeypatch.setattr(home, "run", sick)
    result = sweep(tmp_path / "a", retries=1)
    failed = np.asarray(result["status"] == "failed")
    assert failed.sum() == 4 and len(tried) == 8
    assert set(result["error"].values[failed]) == {"OSError: out of order"}
    assert result.isel(cell=~failed).identical(whole.isel(cell=~failed))
    status = bm.sweeps.sweep_status(tmp_path / "a")
    assert len(status.failed) == 4 and "12 of 16 cells finished, 4 failed, 0 left, not running" in str(status)
    assert sum("failed: OSError: out of order" in record.message for record in caplog.records) == 4
    monkeypatch.setattr(home, "run", fake_run)
    assert sweep(tmp_path / "a").identical(whole) and not bm.sweeps.sweep_status(tmp_path / "a").failed
    with pytest.raises(ValueError, match=r"all of the 16 cells failed, the first: num_episodes is 13"):
        sweep(num_episodes=13)


def test_ctrl_c_leaves_the_finished_cells(monkeypatch, quick, tmp_path):
    whole, calls = sweep(), []

    def interrupted(*arguments, **named):
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return fake_run(*arguments, **named)

    monkeypatch.setattr(home, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sweep(tmp_path / "a")
    assert bm.sweeps.sweep_status(tmp_path / "a")[:2] == (NUM_CELLS, 5)
    assert sweep(tmp_path / "a").identical(whole) and len(calls) == NUM_CELLS + 1


def test_a_full_disk(monkeypatch, quick, tmp_path, caplog):
    """For a while: the same result, and said. For good: one sentence, and what was finished stays."""
    whole, write, left = sweep(), sweep_folder.write_arrays, [3]

    def full(path, arrays):
        if left[0] > 0:
            left[0] -= 1
            raise OSError(errno.ENOSPC, "no space left on the device for", str(path))
        write(path, arrays)

    monkeypatch.setattr(sweep_folder, "write_arrays", full)
    assert sweep(tmp_path / "a").identical(whole)
    assert sum("no space left" in record.message for record in caplog.records) == 3
    left[0] = 0
    monkeypatch.setattr(home, "run_tasks", _after_five(home.run_tasks, left))
    with pytest.raises(OSError, match="no space left"):
        sweep(tmp_path / "b")
    left[0] = 0
    monkeypatch.setattr(home, "run_tasks", home_run_tasks)
    assert bm.sweeps.sweep_status(tmp_path / "b").finished == 5 and sweep(tmp_path / "b").identical(whole)


home_run_tasks = home.run_tasks


def _after_five(run_tasks, left):
    """The disk is full for good from the sixth cell on."""

    def limited(*arguments, **named):
        for number, one in enumerate(run_tasks(*arguments, **named)):
            if number == 5:
                left[0] = 100
            yield one

    return limited


def test_two_sweeps_on_one_folder(monkeypatch, quick, tmp_path):
    """The second is refused while the first runs; where there are no locks both write the same."""
    whole, running, go_on = sweep(), threading.Event(), threading.Event()

    def slow(*arguments, **named):
        running.set()
        assert go_on.wait(60)
        return fake_run(*arguments, **named)

    monkeypatch.setattr(home, "run", slow)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(sweep, tmp_path / "a")
        assert running.wait(60)
        assert bm.sweeps.sweep_status(tmp_path / "a").running
        with pytest.raises(ValueError, match=r"in which another sweep runs .process [0-9]+ on"):
            sweep(tmp_path / "a")
        go_on.set()
        assert first.result().identical(whole)
    assert not bm.sweeps.sweep_status(tmp_path / "a").running
    monkeypatch.setattr(sweep_folder, "fcntl", None)
    monkeypatch.setattr(home, "run", lambda *a, **k: (time.sleep(0.002), fake_run(*a, **k))[1])
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(sweep, tmp_path / "b") for _ in range(2)]
        assert all(one.result().identical(whole) for one in both)


class Doubtful(eqx.Module):
    """An agent of the test."""

    epsilon: float = 0.5
    replan: None = None

    def init(self, key, problem):
        """No state."""

    def plan(self, key, problem, state, belief):
        """Never asked."""
        raise AssertionError


def doubtful(epsilon=0.5):
    """For "module:function"."""
    return Doubtful(epsilon)


def test_objects_and_imported_names(quick, tmp_path):
    """Agents, environments and priors themselves; factories of the user, with arguments."""
    agents = {"mine": Doubtful(0.25), f"{__name__}:doubtful": {"epsilon": [0.5, 0.75]}}
    envs = {"lake": bm.envs.deep_sea(3), "deep_sea:4": {}}
    priors = {"own": bm.models.dirichlet_normal()}
    options: dict[str, Any] = {"key": jax.random.key(0), "num_episodes": 3, "num_seeds": 2, "options": OPTIONS}
    result = bm.sweeps.sweep(agents, envs, priors=priors, path=tmp_path / "a", **options)
    assert result.sizes["cell"] == 6 and set(result["env"].values) == {"lake", "deep_sea:4"}
    gained = result["reward"].sel(seed=0, episode=0).values - np.array([0.25, 0.25, 0.5, 0.5, 0.75, 0.75])
    np.testing.assert_allclose(gained, np.tile(gained[:2], 3))
    assert bm.sweeps.sweep(agents, envs, priors=priors, path=tmp_path / "a", **options).identical(result)


WRONG = [
    ({"agents": {}}, "the grid has 0 cells, as agents is empty"),
    ({"agents": {"psrl": {"replan": []}}}, r"the grid has 0 cells, as agents.psrl.replan is empty"),
    (
        {"agents": {"ube": {"scale": [0.1] * 5000}}, "num_blocks": 2000},
        r"the grid has 40000000 cells \(5000 agents x 2 envs",
    ),
    ({"agents": {"usb": {}}}, "did you mean 'ube'"),
    ({"agents": {"ube": {"scales": 1.0}}}, "an argument of agents.ube is 'scales', .* did you mean 'scale'"),
    ({"agents": {"ube": {"scale": "x"}}}, "agents.ube: "),
    ({"agents": {"ube": {"scale": None}}}, "agents.ube.scale is None"),
    ({"agents": {"ube": 3}}, "agents.ube is 3, expected arguments by name"),
    ({"agents": 3}, "agents is 3, expected names"),
    ({"agents": ["psrl", "psrl"]}, "'psrl' twice"),
    ({"agents": "tests:nothing"}, "that can be imported"),
    ({"envs": {"deep_see": {}}}, "did you mean 'deep_sea'"),
    ({"envs": {"deep_sea": {"size": [3, "x"]}}}, "envs.deep_sea: size"),
    ({"envs": {"x": PSRL()}}, "envs.x is a PSRL, expected an Environment"),
    ({"priors": {"dirichlet_normal": {"noise": 3}}}, "an argument of priors.dirichlet_normal is 'noise'"),
    ({"priors": None}, "priors is empty, expected at least one: the agent 'psrl' needs a prior"),
    ({"num_steps": 5}, "both are given"),
    ({"num_episodes": None}, "neither is given"),
    ({"executor": "process"}, "did you mean 'processes'"),
    ({"regret": "no"}, "regret is 'no'"),
    ({"retries": -1}, "retries is -1"),
    ({"path": 3}, "path is 3"),
]


@pytest.mark.parametrize(("changed", "says"), WRONG)
def test_wrong_input(quick, changed, says):
    arguments: dict[str, Any] = {
        "agents": {"psrl": {}},
        "envs": ENVS,
        "priors": PRIORS,
        "key": jax.random.key(0),
        "num_episodes": 3,
    }
    with pytest.raises((ValueError, TypeError), match=says):
        bm.sweeps.sweep(**fold(bm.experiments.SweepOptions, {**arguments, **changed}))
    assert not quick


def test_no_sweep(tmp_path):
    for read in (bm.load, bm.sweeps.sweep_status):
        with pytest.raises(FileNotFoundError, match="holds no sweep"):
            read(tmp_path)
        with pytest.raises(TypeError, match="path is 3"):
            read(cast(str, 3))


def test_real_runs_on_two_threads(tmp_path):
    """Q-learning, as `run` runs it."""
    options: dict[str, Any] = {
        "key": jax.random.key(0),
        "num_episodes": 6,
        "num_seeds": 2,
    }
    with ThreadPoolExecutor(2) as pool:
        result = bm.sweeps.sweep(
            {"epsilon_greedy_q": {"epsilon": [0.0, 0.5]}},
            "deep_sea:3",
            options=bm.experiments.SweepOptions(executor=pool, regret="average", progress=False),
            **options,
        )
    key = jax.random.wrap_key_data(jnp.asarray(_key_of("deep_sea:3")))
    alone = bm.run(
        EpsilonGreedyQ(epsilon=0.5),
        bm.envs.deep_sea(3),
        objective=Episodic(3),
        options=bm.experiments.RunOptions(regret="average"),
        **options | {"key": key},
    )
    for name in ("reward", "regret"):
        assert np.array_equal(alone[name], result[name][1])


def _key_of(env):
    cell = sweep_grid.Cell(sweep_grid.Variant("agents", "x"), sweep_grid.Variant("envs", env), None, 0)
    return jax.random.key_data(cell.key(jax.random.key(0)))


def test_columns_of_other_kinds():
    """Text and truth values as text, whole numbers as integers, an axis that a cell does not have as nan or empty."""
    cells = [{"coordinates": {"a": 1, "b": 0.5, "c": "x"}}, {"coordinates": {"a": 2, "c": True}}]
    columns = sweep_folder._columns(cells)
    assert columns["a"].dtype == np.int64 and np.isnan(columns["b"][1]) and columns["c"].tolist() == ["x", "true"]


def test_pauses_are_two_minutes():
    assert sum(sweep_folder.PAUSES) == pytest.approx(120, rel=0.05)
