"""TD-BMA and SARSA(lambda) on the Corner track beside numba (`benchmarks/td_bma.py`): lines of the record."""

from collections.abc import Iterator

import jax
import numpy as np

from bayes_mdp.agents import TDBMA, SarsaLambda
from bayes_mdp.envs import racetrack
from bayes_mdp.experiments import RunOptions
from bayes_mdp.experiments.rollout.simulator import simulator
from bayes_mdp.experiments.run_agent import prepare_episodes
from bayes_mdp.experiments.run_config import RunConfig
from bayes_mdp.mdp import FirstExit
from benchmarks.record.turns import Measured, Size, in_turns
from benchmarks.td_bma import SEEDS, TRIALS, by_peer, by_run


def measure(size: Size) -> Iterator[Measured]:
    """A step of the car, by the loop of `run` in numba. Both play as many trials, each with its own random numbers."""
    env = racetrack("corner")
    options = RunOptions(progress=False)
    for agent in (TDBMA(),) if size == "check" else (TDBMA(), SarsaLambda(trace_decay=0.2)):
        for seeds in SEEDS[-1:] if size == "check" else SEEDS:
            case = RunConfig(agent, env, FirstExit(), jax.random.key(0), None, None, TRIALS, seeds, None, options)
            ours = lambda prepared=prepare_episodes(case): by_run(prepared)[0]  # noqa: E731
            parts = simulator(env), np.asarray(env.mdp.reward), agent, seeds
            peer = lambda parts=parts: by_peer(*parts)[0]  # noqa: E731
            name = f"{type(agent).__name__}, Corner, {seeds} seed{'s' if seeds > 1 else ''}, {TRIALS} trials"
            yield in_turns(name, "step", ours, "numba", peer, size, units=(ours(), peer()))
