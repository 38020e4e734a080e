"""TD-BMA and SARSA(lambda) on the Corner track beside numba (`benchmarks/td_bma.py`): lines of the record."""

from collections.abc import Iterator

import jax
import numpy as np

from bayes_mdp.agents import TDBMA, SarsaLambda
from bayes_mdp.envs import racetrack
from bayes_mdp.experiments import RunOptions
from bayes_mdp.experiments.rollout.simulator import simulator
from bayes_mdp.experiments.run_config import RunConfig
from bayes_mdp.experiments.sweep_run import prepare
from bayes_mdp.mdp import FirstExit
from benchmarks.record.turns import Measured, Size, in_turns
from benchmarks.td_bma import SEEDS, TRIALS, by_numba, by_run


def measure(size: Size) -> Iterator[Measured]:
    """A step of the car. Both play the same number of trials, each with its own random numbers."""
    env = racetrack("corner")
    options = RunOptions(progress=False)
    for agent in (TDBMA(),) if size == "check" else (TDBMA(), SarsaLambda(trace_decay=0.2)):
        case = RunConfig(agent, env, FirstExit(), jax.random.key(0), None, None, TRIALS, SEEDS, None, options)
        ours = lambda prepared=prepare(case): by_run(prepared)[0]  # noqa: E731
        peer = lambda agent=agent: by_numba(simulator(env), np.asarray(env.mdp.reward), agent)[0]  # noqa: E731
        name = f"{type(agent).__name__}, Corner, {SEEDS} seeds, {TRIALS} trials"
        yield in_turns(name, "step", ours, "numba", peer, size, units=(ours(), peer()))
