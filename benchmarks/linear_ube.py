"""Linear agents on fixed Fourier features, UBE beside epsilon-greedy, ten seeds: `python benchmarks/linear_ube.py`.

MountainCar with its reward of -1 a step, MountainCar that pays 1 at the goal and nothing else, CartPole. All agents
learn Q alike, linear on the same features from the same replay; they differ in how they explore. Per agent: the step at
which the first episode ended well (median over seeds, the last seed, and how many seeds got there), the mean length of
the episodes that ended in each sixth of the run (median over seeds), steps per CPU-second, warm, compilation apart.
`python benchmarks/linear_ube.py mountain_car_sparse` runs one task.
"""

import os

# The iterations are tiny: a second thread of XLA's pool mostly waits for the first.
os.environ.setdefault("NPROC", "1")

import sys
import time
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bayes_mdp.agents.neural import DQN, DeepUBE, Epsilon, NeuralAgent, NeuralUBE, QLearning, UncertaintyHead
from bayes_mdp.agents.neural.features import Box, Fourier
from bayes_mdp.envs.observed.classic_control import MountainCar, cartpole, mountain_car
from bayes_mdp.experiments.training.training_loop import begin, run_chunk
from bayes_mdp.inference.value import LinearGaussianPrior
from bayes_mdp.mdp import ObservedEnvironment, TimeStep

SEEDS, STEPS, REPLAY, WINDOWS = 10, 30_000, 10_000, 6


class GoalOnly(eqx.Module):
    """MountainCar with reward 1 at the goal and 0 elsewhere: nothing tells of the goal before it is reached."""

    car: MountainCar

    @property
    def name(self) -> str:
        """For tables."""
        return "mountain_car_sparse"

    @property
    def n_actions(self) -> int:
        """Three."""
        return self.car.n_actions

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """(2,)."""
        return self.car.observation_shape

    @property
    def observation_dtype(self) -> np.dtype:
        """float32."""
        return self.car.observation_dtype

    def reset(self, key: Any) -> Any:
        """As the car."""
        return self.car.reset(key)

    def step(self, key: Any, state: Any, action: Any) -> TimeStep:
        """As the car, but for the reward."""
        step = self.car.step(key, state, action)
        reward = step.terminated.astype(jnp.float32)
        return step._replace(reward=reward, score=reward)


class Task(NamedTuple):
    """An environment, features on it, and what its values can be.

    Args:
        env: the environment.
        features: trunk of every agent.
        learning: of Q.
        q_max: bound of |Q|.
        goal: whether an episode that terminates ended well (else: one that is cut off).
    """

    env: ObservedEnvironment
    features: Fourier
    learning: QLearning
    q_max: float
    goal: bool


def learning(rate: float, discount: float = 0.99, gradient_steps: int = 1) -> QLearning:
    """Of every agent in a task."""
    return QLearning(
        discount=discount,
        learning_rate=rate,
        gradient_steps=gradient_steps,
        learning_starts=200,
        batch_size=64,
        target_every=100,
    )


CAR = Fourier(Box((-1.2, -0.07), (0.6, 0.07)), 5)
POLE = Fourier(Box((-2.4, -3.0, -0.21, -3.5), (2.4, 3.0, 0.21, 3.5)), 2)
WORLDS = (
    Task(GoalOnly(mountain_car()), CAR, learning(3e-3, discount=0.98, gradient_steps=2), 1.0, True),
    Task(mountain_car(), CAR, learning(1e-2), 100.0, True),
    Task(cartpole(), POLE, learning(3e-3), 100.0, False),
)


def agents(task: Task) -> dict[str, NeuralAgent]:
    """By name; the same learning of Q."""
    dqn = DQN(task.features, task.learning, Epsilon(1.0, 0.05, 5_000))

    def paper(beta: float, num_steps: int = 1) -> NeuralUBE:
        head = UncertaintyHead(width=0, num_steps=num_steps)
        return NeuralUBE(task.features, task.learning, head, LinearGaussianPrior(), beta)

    def deep(beta: float) -> DeepUBE:
        return DeepUBE(
            task.features,
            task.features,
            task.learning,
            LinearGaussianPrior(100.0),
            local_scale=0.01 * task.q_max**2,
            q_max=task.q_max,
            beta=beta,
        )

    return {
        "DQN, epsilon 1 to 0.05": dqn,
        "Algorithm 1, beta 0.01": paper(0.01),
        "Algorithm 1, beta 1": paper(1.0),
        "Algorithm 1, beta 1, n 150": paper(1.0, 150),
        "deep, beta 0.1": deep(0.1),
        "deep, beta 1": deep(1.0),
    }


def play(agent: NeuralAgent, env: ObservedEnvironment) -> tuple[Any, Any, float]:
    """Which steps ended an episode and its length so far, [seeds, steps]; steps per CPU-second."""

    def one(key: Any) -> tuple[Any, Any]:
        key_begin, key_run = jax.random.split(key)
        now = begin(key_begin, agent, env, 1, REPLAY)
        later, seen = run_chunk(key_run, agent, env, now, jnp.arange(STEPS))
        del later
        return seen.ended[:, 0], seen.length[:, 0]

    keys = jax.random.split(jax.random.key(0), SEEDS)
    program = jax.jit(jax.vmap(one)).lower(keys).compile()
    began = time.process_time()
    ended, length = jax.block_until_ready(program(keys))
    return np.asarray(ended), np.asarray(length), SEEDS * STEPS / (time.process_time() - began)


def curve(ended: Any, length: Any, limit: int) -> list[float]:
    """Mean length of the episodes that ended in each sixth of the run (`limit` where none did), median over seeds."""
    sixth = np.arange(STEPS) * WINDOWS // STEPS
    means = []
    for w in range(WINDOWS):
        chosen = [row[over & (sixth == w)] for row, over in zip(length, ended, strict=True)]
        means.append(float(np.median([x.mean() if len(x) else limit for x in chosen])))
    return means


def report(task: Task) -> None:
    """A table, a row an agent."""
    limit = 200 if task.goal else 500
    print(f"\n{task.env.name}: {SEEDS} seeds, {STEPS} steps")
    print(
        f"{'':28s} {'first':>6s} {'last':>6s} {'seeds':>5s}  {'length of episodes by sixths':41s} {'steps/CPU-s':>11s}"
    )
    for name, agent in agents(task).items():
        ended, length, speed = play(agent, task.env)
        well = ended & ((length < limit) == task.goal)
        first = np.where(well.any(1), np.argmax(well, 1) + 1.0, np.inf)
        numbers = f"{np.median(first):6.0f} {first.max():6.0f} {well.any(1).sum():5d}"
        lengths = " ".join(f"{x:6.0f}" for x in curve(ended, length, limit))
        print(f"{name:28s} {numbers}  {lengths} {speed:11.0f}", flush=True)


if __name__ == "__main__":
    for chosen in WORLDS:
        if len(sys.argv) < 2 or chosen.env.name in sys.argv[1:]:
            report(chosen)
