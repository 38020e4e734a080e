"""Seeds on several devices: the numbers of one device, bit for bit, in one process with four devices of the CPU."""

import json
import os
import subprocess
import sys
from functools import cache

import jax
import pytest

import bayes_mdp as bm
from bayes_mdp.experiments import run_config
from bayes_mdp.experiments.rollout import execute
from tests.options import fold

HERE = os.path.dirname(bm.__path__[0])
PROGRAM = """
import json, pathlib, tempfile
import jax, numpy as np
import bayes_mdp as bm
from bayes_mdp.experiments.rollout import execute

ENV, KEY = bm.envs.riverswim_episodic(), jax.random.key(0)

def played(devices, agent, path=None, **more):
    options = bm.experiments.RunOptions(devices=devices, progress=False, snapshot_seconds=0.0)
    return bm.run(agent, ENV, prior=bm.models.dirichlet_normal_gamma(), objective=bm.Episodic(20), num_episodes=130,
                  num_seeds=8, key=KEY, options=options, path=path, **more)

def same(one, other):
    return all(np.array_equal(one[name], other[name]) for name in one)

def interrupted(path):
    "A run on one device that stops after a chunk, resumed on four."
    play, calls = execute.play_chunk, []
    def stops(*arguments):
        calls.append(0)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return play(*arguments)
    execute.play_chunk = stops
    try:
        played(None, bm.agents.PSRL(), path)
    except KeyboardInterrupt:
        pass
    execute.play_chunk = play
    assert pathlib.Path(path + ".partial").exists()
    return played(4, bm.agents.PSRL(), path)

learner = bm.agents.EpsilonGreedyQ()
answers = {"devices": len(jax.devices()), "learner": same(played(None, learner), played(4, learner))}
if SLOW:
    one = played(None, bm.agents.PSRL())
    answers["four"] = same(one, played(4, bm.agents.PSRL()))
    answers["listed"] = same(one, played(jax.devices()[2:4], bm.agents.PSRL()))
    with tempfile.TemporaryDirectory() as folder:
        answers["resumed"] = same(one, interrupted(folder + "/run.nc"))
    rule = bm.agents.PSRL(replan="doubling")
    answers["branch"] = same(*(played(n, rule, regret="bayes") for n in (None, 4)))
print(json.dumps(answers))
"""


@cache
def answers(slow):
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    environment["PYTHONPATH"] = HERE
    program = f"SLOW = {slow}\n{PROGRAM}"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_four_devices_give_the_numbers_of_one():
    assert answers(False) == {"devices": 4, "learner": True}


@pytest.mark.slow
def test_posterior_sampling_branches_own_environments_and_snapshots():
    """A plan when a count doubles waits for the seeds of its own device only; a snapshot knows nothing of devices."""
    parts = ("learner", "four", "listed", "resumed", "branch")
    assert answers(True) == {"devices": 4} | dict.fromkeys(parts, True)


@pytest.mark.parametrize(
    ("devices", "error", "message"),
    [
        (0, ValueError, "options.devices is 0, expected an integer of at least 1"),
        ("cpu", TypeError, "options.devices is 'cpu', expected an integer of at least 1"),
        (10**6, ValueError, "options.devices is 1000000, expected at most"),
        ([], ValueError, "options.devices has 0 devices"),
        (["gpu"], TypeError, r"options.devices\[0\] is 'gpu', expected a device"),
        ([jax.devices()[0]] * 2, ValueError, "options.devices has 2 devices, 1 different ones, expected each once"),
    ],
)
def test_what_are_no_devices(devices, error, message):
    with pytest.raises(error, match=message):
        bm.experiments.RunOptions(devices=devices)


def run(env, **more):
    prior, given = bm.models.dirichlet_normal_gamma(), fold(bm.experiments.RunOptions, more)
    return bm.run(bm.agents.PSRL(), env, key=jax.random.key(0), prior=prior, **given)


def test_seeds_that_cannot_be_cut(monkeypatch):
    monkeypatch.setattr(run_config.jax, "devices", lambda: [f"device {i}" for i in range(3)])
    with pytest.raises(ValueError, match="num_seeds is 10, expected a multiple of 3, the number of devices"):
        run_config.seed_mesh(3, 10)


def test_seeds_that_do_not_fit(monkeypatch):
    """Refused before they are started, by the size of what every seed carries."""
    monkeypatch.setattr(execute, "memory_limit", lambda: 10_000)
    with pytest.raises(
        ValueError, match=r"^num_seeds is 100, about .* MiB of memory, expected at most .* more devices"
    ):
        run(bm.envs.riverswim_episodic(), objective=bm.Episodic(20), num_episodes=2, num_seeds=100)


def test_runs_on_the_host_have_no_devices():
    with pytest.raises(ValueError, match=r"options\.devices is given, expected None for a Gymnasium environment"):
        run("FrozenLake-v1", objective=bm.Discounted(0.9), num_steps=3, options=bm.experiments.RunOptions(devices=1))
