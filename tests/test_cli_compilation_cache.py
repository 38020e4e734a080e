"""Compiled programs are kept for the next command: where, how many, and when not."""

import os
import subprocess
import sys
import time

import pytest

from bayes_mdp.cli import keep_compiled_programs, trim

LOG = "s,a,r,s2\n0,0,0,1\n1,0,1,0\n0,1,1,1\n"
LINE = ["fit", "log.csv", "--state", "s", "--action", "a", "--reward", "r", "--next-state", "s2"]


def command(folder, *options, **variables):
    """Run a command in a process of its own; returns the files of the cache."""
    (folder / "log.csv").write_text(LOG)
    environment = {name: x for name, x in os.environ.items() if name not in ("JAX_COMPILATION_CACHE_DIR", "XLA_FLAGS")}
    # All programs are kept: which take long to compile differs from run to run.
    environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    environment |= {"BAYES_MDP_CACHE": str(folder / "cache"), "BAYES_MDP_TYPES": "off", **variables}
    line = [sys.executable, "-m", "bayes_mdp.cli", *options, *LINE]
    done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {path.name for path in folder.glob("cache/*/*")}


def test_the_second_command_finds_the_programs_of_the_first(tmp_path):
    first = command(tmp_path)
    assert any(name.endswith("-cache") for name in first)
    assert command(tmp_path) == first


@pytest.mark.slow
def test_it_can_be_switched_off(tmp_path):
    assert command(tmp_path, "--no-cache") == set()
    assert command(tmp_path, BAYES_MDP_CACHE="off") == set()
    assert command(tmp_path, JAX_COMPILATION_CACHE_DIR=str(tmp_path / "own")) == set()
    assert list((tmp_path / "own").iterdir())


def test_the_least_recently_used_goes_first(tmp_path):
    for age, name in enumerate(("new", "middle", "old")):
        (tmp_path / name).write_bytes(bytes(100))
        when = time.time() - 1000 * age
        os.utime(tmp_path / name, (when, when))
    trim(tmp_path, 250)
    assert {path.name for path in tmp_path.iterdir()} == {"new", "middle"}
    trim(tmp_path, 100)
    assert {path.name for path in tmp_path.iterdir()} == {"new"}


def test_a_process_with_jax_in_it_is_left_alone(monkeypatch, tmp_path):
    monkeypatch.setenv("BAYES_MDP_CACHE", str(tmp_path))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    assert keep_compiled_programs() is None and not list(tmp_path.iterdir())
