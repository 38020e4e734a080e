"""`bayes-mdp sweep`, `status`, `results`: a small sweep of made-up runs from its file to its Dataset."""

import re

import numpy as np
import pytest
import xarray as xr

import bayes_mdp as bm
from bayes_mdp import parallel
from bayes_mdp.cli import main
from bayes_mdp.experiments import run_sweep

CONFIG = """
num_episodes = 3
num_seeds = 2
[agents]
epsilon_greedy_q = {epsilon = [0.1, 0.2]}
[envs]
deep_sea = {size = 3}
"""


@pytest.fixture
def config(tmp_path, monkeypatch):
    """A file; of its two runs the second fails while `sick` is not empty."""

    def run(agent, env, *, num_seeds, **others):
        if float(agent.epsilon) == 0.2 and sick:
            raise OSError("out of order")
        rewards = np.ones((num_seeds, 3)) * float(agent.epsilon)
        return xr.Dataset({name: (("seed", "episode"), rewards) for name in ("reward", "regret")})

    sick = [True]
    monkeypatch.setattr(run_sweep, "run", run)
    (tmp_path / "grid.toml").write_text(CONFIG)
    return tmp_path / "grid.toml", sick


def test_from_the_file_to_the_result(config, tmp_path, capsys):
    path, sick = config
    assert main(["sweep", str(path), "--retries", "0"]) == 1
    said = capsys.readouterr()
    assert "epsilon_greedy_q deep_sea block=0 agent_epsilon=0.2: failed OSError: out of order" in said.out
    assert main(["status", str(tmp_path / "grid")]) == 1
    assert "1 of 2 cells finished, 1 failed, 0 left, not running" in capsys.readouterr().out
    assert main(["results", str(tmp_path / "grid"), "--out", str(tmp_path / "part.nc")]) == 1
    assert bm.load(tmp_path / "part.nc")["status"].values.tolist() == ["finished", "failed"]
    sick.clear()
    capsys.readouterr()
    assert main(["sweep", str(path)]) == 0
    said = capsys.readouterr()
    assert "agent_epsilon=0.2: reward 0.6, regret 0.2" in said.out and not said.err
    assert f"result: {tmp_path / 'grid' / 'results.nc'}" in said.out
    assert main(["status", str(tmp_path / "grid")]) == main(["results", str(tmp_path / "grid")]) == 0
    assert main(["sweep", str(path), "--out", str(tmp_path / "other"), "--executor", "serial"]) == 0
    results = [bm.load(tmp_path / name / "results.nc") for name in ("grid", "other")]
    assert results[0].identical(results[1])


def test_wrong_input(config, tmp_path, capsys):
    """Exit code 2 and one sentence."""
    path, _ = config

    def written(text):
        other = tmp_path / f"{len(list(tmp_path.iterdir()))}.toml"
        other.write_text(text)
        return str(other)

    calls = [
        (["sweep", str(tmp_path / "no.toml")], "no.toml: no such file"),
        (["sweep", str(tmp_path)], "is a folder, expected a file"),
        (["status", str(tmp_path / "no")], "no: no such folder"),
        (["sweep", str(path), "--executor", "process"], "did you mean 'processes'"),
        (["sweep", str(path), "--executor", "http:/x"], "'http:/x', expected the address of a Dask scheduler"),
        (["sweep", str(path), "--out", str(tmp_path)], r"which holds '.*' and no manifest.json, expected a new or an"),
        (["sweep", str(path), "--retries", "-1"], "retries is -1"),
        (
            ["sweep", written("num_seedz = 3\n" + CONFIG), "--out", str(tmp_path / "x")],
            "'num_seedz', expected one of .* did you mean 'num_seeds'",
        ),
        (
            ["sweep", written("num_blocks = 10_000_000\n" + CONFIG), "--out", str(tmp_path / "x")],
            r"cells \(.* blocks\), expected at most 100000",
        ),
        (
            ["sweep", written(CONFIG.replace("size = 3", "size = []")), "--out", str(tmp_path / "x")],
            "the grid has 0 cells, as",
        ),
        (["sweep", str(path), "--out", str(path)], "a file, expected a folder"),
        (["status", str(tmp_path)], "holds no sweep"),
        (["results", str(tmp_path)], "holds no sweep"),
        (["results", str(tmp_path), "--out", str(tmp_path / "no" / "x.nc")], "a folder that exists"),
    ]
    for words, says in calls:
        assert main(words) == 2
        error = capsys.readouterr().err
        assert re.search(says, error) and len(error.splitlines()) == 1
    # Nothing that was refused leaves a folder or a lock behind.
    assert not (tmp_path / "x").exists() and not list(tmp_path.glob("lock*"))
    (tmp_path / "plain").write_text(CONFIG)
    assert main(["sweep", str(tmp_path / "plain")]) == 2
    assert "--out is missing" in capsys.readouterr().err


def test_many_cells_are_not_all_listed(monkeypatch):
    from bayes_mdp.cli import run

    monkeypatch.setattr(run, "_MOST_LINES", 1)
    missing = {"status": ("cell", ["missing"] * 3), "error": ("cell", [""] * 3)}
    result = xr.Dataset(missing, {"cell": range(3), "agent": ("cell", ["a", "b", "c"]), "seed": [0]})
    assert run.summary_of_sweep(result).splitlines() == ["3 cells, 1 seed each", "  a: missing", "  ... and 2 more"]


def test_a_scheduler_that_does_not_answer(config, tmp_path, capsys, monkeypatch):
    """One sentence with the address, after the time that Dask is given."""
    pytest.importorskip("distributed", reason="the extra cluster is not installed")
    monkeypatch.setattr(parallel, "DASK_TIMEOUT", 1)
    path, _ = config
    assert main(["sweep", str(path), "--out", str(tmp_path / "x"), "--executor", "tcp://127.0.0.1:9"]) == 2
    error = capsys.readouterr().err
    assert "executor is 'tcp://127.0.0.1:9', where no Dask scheduler answered within 1 s" in error
    assert len(error.splitlines()) == 1
