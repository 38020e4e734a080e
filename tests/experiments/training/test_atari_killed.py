"""Atari: 20,000 frames, killed in mid-run, and the bits at the end are those of a run that was not."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from bayes_mdp.experiments import resume

pytest.importorskip("ale_py")

STEPS = 5_000
COMMAND = (
    "import sys, bayes_mdp as bm\n"
    "from bayes_mdp.experiments.training.vector_env import atari\n"
    "from reproductions.ube.atari_agents import atari_agent\n"
    "agent = atari_agent('ube_n_step', learning_starts=1000)\n"
    "seconds = float(sys.argv[3])\n"
    "options = bm.deep.TrainOptions(replay_size=4000, chunk=50, checkpoint_seconds=seconds, progress=False)\n"
    f"bm.deep.train(agent, atari(sys.argv[1], 1), num_steps={STEPS}, path=sys.argv[2], options=options)\n"
)


def _start(game: str, path: Path, seconds: float) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", COMMAND, game, str(path), str(seconds)])


@pytest.mark.slow
@pytest.mark.parametrize("game", ["pong", "montezuma_revenge"])
def test_a_killed_training_ends_bit_for_bit_as_one_that_was_not(game, tmp_path):
    assert _start(game, tmp_path / "once", 1e9).wait() == 0
    killed = _start(game, tmp_path / "twice", 1.0)
    while max(resume.list_checkpoints(tmp_path / "twice" / "checkpoints"), default=0) < STEPS // 3:
        assert killed.poll() is None, "it ended before it could be killed"
        time.sleep(0.1)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    reached = max(resume.list_checkpoints(tmp_path / "twice" / "checkpoints"))
    assert STEPS // 3 <= reached < STEPS
    assert _start(game, tmp_path / "twice", 1e9).wait() == 0
    once, twice = (resume.load_checkpoint(tmp_path / n / "checkpoints", STEPS) for n in ("once", "twice"))
    state = [name for name in once if name.startswith(".") or name == "log episodes"]
    assert {".replay", ".learner", ".env_state"} <= {f".{name.split('.')[1]}" for name in state if "." in name}
    for name in state:
        np.testing.assert_array_equal(once[name], twice[name], err_msg=name)
