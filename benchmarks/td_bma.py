"""Speed of TD-BMA on the Corner track, 1 and 100 seeds, beside a numba loop in the same run:
`python benchmarks/td_bma.py`.

Environment steps per CPU-second of the process (all threads), warm, compilation apart: the median over repeats, in
which all take turns. `run` by XLA and by numba (`RunOptions(compiler=...)`), and a peer: a plain numba loop in float64
with numba's generator, which keeps no log. All play the same number of trials by the same rules ([TDBMA10] Algorithms 1
and 3).
"""

import os

# The iterations are tiny: a second thread of XLA's pool mostly waits for the first, which costs up to 3 x the CPU time.
os.environ.setdefault("NPROC", "1")

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numba
import numpy as np

from bayes_mdp.agents import TDBMA, SarsaLambda
from bayes_mdp.agents.model_free.trial_learning import EpisodeLearner
from bayes_mdp.envs import racetrack
from bayes_mdp.experiments import RunOptions
from bayes_mdp.experiments.resume import Snapshots
from bayes_mdp.experiments.rollout.simulator import Simulator, simulator
from bayes_mdp.experiments.run_agent import PreparedEpisodes, play_episodes, prepare_episodes
from bayes_mdp.experiments.run_config import RunConfig
from bayes_mdp.mdp import FirstExit
from bayes_mdp.utils.progress import Progress

SEEDS, TRIALS, REPEATS = (1, 100), 1000, 5
BMA = -1.0  # in place of a fixed lambda


@numba.njit
def search(u: float, threshold: np.ndarray) -> int:
    """How many thresholds a uniform number reaches."""
    k = 0
    while k < threshold.size and u >= threshold[k]:
        k += 1
    return k


@numba.njit
def weight(q_mc: float, q_td: float, count: float, mean: float, squares: float) -> float:
    """Lambda of TD-BMA from the statistics of the returns of a pair."""
    if count < 2 or q_mc == q_td:
        return 0.5
    evidence = (q_td - mean) ** 2 - (q_mc - mean) ** 2
    if squares == 0.0:
        return 0.5 + 0.5 * np.sign(evidence)
    return 1.0 / (1.0 + np.exp(-count * count * evidence / (2.0 * squares)))


@numba.njit
def peer(
    outcome: np.ndarray,
    threshold: np.ndarray,
    first_state: np.ndarray,
    first_threshold: np.ndarray,
    reward: np.ndarray,
    agent: tuple[float, float, float, int],
    num_trials: int,
) -> tuple[int, float]:
    """All trials of one seed: steps, and the mean return of the last tenth. `agent`: rate, epsilon, lambda, steps."""
    rate, epsilon, trace_decay, most = agent
    n_states, n_actions = reward.shape
    q, statistics = np.zeros((n_states, n_actions)), np.zeros((n_states, n_actions, 3))
    states, actions, rewards = np.zeros(most, np.int64), np.zeros(most, np.int64), np.zeros(most)
    steps, late = 0, 0.0
    for trial in range(num_trials):
        state, length = first_state[search(np.random.random(), first_threshold)], 0
        while length < most and state < n_states:
            if np.random.random() < epsilon:
                action = int(np.random.random() * n_actions)
            else:
                action = 0
                for a in range(1, n_actions):
                    if q[state, a] > q[state, action]:
                        action = a
            states[length], actions[length], rewards[length] = state, action, reward[state, action]
            state = outcome[state, action, search(np.random.random(), threshold[state, action])]
            length += 1
        ret = next_value = 0.0
        for t in range(length - 1, -1, -1):
            s, a = states[t], actions[t]
            count, mean, squares = statistics[s, a]
            q_td, q_mc = rewards[t] + next_value, rewards[t] + ret
            decay = weight(q_mc, q_td, count, mean, squares) if trace_decay < 0.0 else trace_decay
            ret = q_td + decay * (q_mc - q_td)
            q[s, a] += rate * (ret - q[s, a])
            gap = ret - mean
            mean += gap / (count + 1)
            statistics[s, a, 0], statistics[s, a, 1] = count + 1, mean
            statistics[s, a, 2] = squares + gap * (ret - mean)
            next_value = q[s, a]
        steps += length
        if trial >= num_trials - num_trials // 10:
            late += rewards[:length].sum() / (num_trials // 10)
    return steps, late


def by_peer(sim: Simulator, reward: np.ndarray, agent: EpisodeLearner, num_seeds: int) -> tuple[int, float]:
    """Steps of all seeds, and the mean return of the last tenth of their trials."""
    tables: Any = tuple(
        np.asarray(x) for x in (sim.outcome, sim.threshold, sim.first_state, sim.first_threshold, reward)
    )
    trace_decay = float(agent.trace_decay) if isinstance(agent, SarsaLambda) else BMA
    numbers = (float(agent.learning_rate), float(agent.epsilon), trace_decay, agent.trial_steps)
    one_seed: Any = peer
    played = [one_seed(*tables, numbers, TRIALS) for _ in range(num_seeds)]
    return sum(steps for steps, _ in played), statistics.mean(late for _, late in played)


def by_run(prepared: PreparedEpisodes) -> tuple[int, float]:
    """The same of the loop of `run`."""
    log = np.asarray(play_episodes(prepared, Progress(1, 1, show=False), Snapshots(None, {})).log, np.float64)
    tenth = prepared.layout.num_rows // 10
    return int(log[..., 1].sum()), float(log[:, -tenth:, 0].sum(1).mean() / (tenth * prepared.layout.per_row))


def speed(play: Callable[[], tuple[int, float]]) -> tuple[float, float]:
    """Steps per CPU-second, and what was learnt."""
    began = time.process_time()
    steps, late = play()
    return steps / (time.process_time() - began), late


def report(agent: EpisodeLearner, num_seeds: int) -> None:
    """Speeds, their ratios to the peer, and the mean returns, which ought to be alike."""
    env = racetrack("corner")

    def prepared(compiler: str) -> PreparedEpisodes:
        options = RunOptions(progress=False, compiler=compiler)
        arguments = FirstExit(), jax.random.key(0), None, None, TRIALS, num_seeds, None, options
        return prepare_episodes(RunConfig(agent, env, *arguments))

    runs, parts = [prepared(name) for name in ("xla", "numba")], (simulator(env), np.asarray(env.mdp.reward), agent)
    plays = [partial(by_run, one) for one in runs] + [partial(by_peer, *parts, num_seeds)]
    began = time.process_time()
    for play in plays:
        play()
    took = time.process_time() - began
    turns = np.array([[speed(play) for play in plays] for _ in range(REPEATS)])
    xla, ours, theirs = np.median(turns[..., 0], axis=0) / 1e6
    ratios, late = np.median(turns[:, :2, 0] / turns[:, 2:, 0], axis=0), turns[..., 1].mean(0)
    print(
        f"{type(agent).__name__:12s} {num_seeds:4d} seeds: run by XLA {xla:6.2f} M steps per CPU-second, by numba "
        f"{ours:6.2f} M, peer {theirs:6.2f} M; ratios {ratios[0]:.2f}, {ratios[1]:.2f}; first calls {took:.1f} CPU-s"
    )
    print(f"{'':12s} mean return of the last tenth {late.round(1)}; optimum {env.optimum:.1f}", flush=True)


if __name__ == "__main__":
    for number in SEEDS:
        report(TDBMA(), number)
        report(SarsaLambda(trace_decay=0.2), number)
