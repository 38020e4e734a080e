"""200 cells on two workers: a worker killed, the client killed, a damaged cell, two sweeps on one folder.

The result is then, byte for byte, the file of a sweep that nothing disturbed.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bayes_mdp.experiments.sweep_folder import sweep_status

pytestmark = pytest.mark.slow

CONFIG = """
seed = 5
num_episodes = 10
num_seeds = 4
num_blocks = 10

[agents.epsilon_greedy_q]
epsilon = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]

[envs.deep_sea]
size = [3, 4]
"""
NUM_CELLS = 200


def _client(config, folder, executor, **options) -> "subprocess.Popen[Any]":
    program = "import sys; from bayes_mdp.cli import main; sys.exit(main(sys.argv[1:]))"
    if executor.startswith("dask"):  # its processes import the script of their parent
        program = f"if __name__ == '__main__':\n    {program}\n"
    script = config.with_name(f"client_of_{executor.partition(':')[0]}.py")
    script.write_text(program)
    words = [sys.executable, str(script), "sweep", str(config), "--out", str(folder), "--executor", executor]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "JAX_COMPILATION_CACHE_DIR": ""}
    return subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, **options)


def _descendants(process):
    """Processes below one, by /proc: process -> command line."""
    parents, commands = {}, {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(place.name)] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            commands[int(place.name)] = (place / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
    below, last = {process}, set()
    while below != last:
        last = below
        below = below | {one for one, parent in parents.items() if parent in below}
    return {one: commands[one] for one in below - {process}}


def _finished(folder):
    try:
        return sweep_status(folder).finished
    except FileNotFoundError:
        return 0


def _until(holds, seconds=300):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The file of a serial sweep, and its configuration."""
    folder = tmp_path_factory.mktemp("serial")
    config = folder / "config.toml"
    config.write_text(CONFIG)
    assert _client(config, folder / "a", "serial").wait(600) == 0
    return config, (folder / "a" / "results.nc").read_bytes()


@pytest.mark.parametrize("executor", ["processes:2", "dask:2"])
def test_two_workers(undisturbed, tmp_path, executor):
    if executor.startswith("dask"):
        pytest.importorskip("distributed")
    config, expected = undisturbed
    folder = tmp_path / "a"
    first = _client(config, folder, executor)
    _until(lambda: _finished(folder) >= 20)
    below = _descendants(first.pid).items()
    worker = max(one for one, command in below if "popen_loky" in command or "spawn_main" in command)
    os.kill(worker, signal.SIGKILL)
    _until(lambda: _finished(folder) >= 60)
    assert not sweep_status(folder).failed
    first.kill()
    first.wait()
    there = _finished(folder)
    assert 60 <= there < NUM_CELLS
    damaged = sorted((folder / "cells").glob("*.npz"))[7]
    damaged.write_bytes(damaged.read_bytes()[:-200])
    second = _client(config, folder, executor, stderr=subprocess.PIPE)
    _until(lambda: sweep_status(folder).running)
    third = _client(config, folder, "serial", stderr=subprocess.PIPE)
    assert third.wait(300) == 2
    assert b"in which another sweep runs" in (third.communicate()[1] or b"")
    said = second.communicate(timeout=500)[1]
    assert second.returncode == 0, said.decode()
    assert b"the cell is run again" in said
    assert (folder / "results.nc").read_bytes() == expected


def test_ctrl_c(undisturbed, tmp_path):
    """One sentence, exit code 130, no process left; the same command resumes."""
    config, expected = undisturbed
    folder = tmp_path / "a"
    first = _client(config, folder, "processes:2", stderr=subprocess.PIPE, start_new_session=True)
    _until(lambda: _finished(folder) >= 20)
    workers = list(_descendants(first.pid))
    os.killpg(first.pid, signal.SIGINT)  # as a terminal does: all processes get it
    said = first.communicate(timeout=60)[1].decode()
    assert first.returncode == 130 and "interrupted; the same command resumes" in said and "Traceback" not in said
    _until(lambda: not any(Path(f"/proc/{one}").exists() for one in workers), 20)
    assert _client(config, folder, "processes:2").wait(600) == 0
    assert (folder / "results.nc").read_bytes() == expected
