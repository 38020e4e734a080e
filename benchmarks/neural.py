"""Speed and cost of deep agents: `python benchmarks/neural.py [--device cpu|gpu] [speed] [cost] [frames]`.

* speed: steps per CPU-second and compile seconds of DQN and UBE at purejaxrl's settings of DQN (10 environments, MLP
  120-84, batch 128, one update per 10 steps, Adam 2.5e-4, target every 50 updates, replay of 10,000), whole runs of
  100,000 steps from scratch in one program. The peer in the same run is rejax's DQN (same settings, no double
  Q-learning, evaluation taken out); it and MinAtar need gymnax, and rejax's imports need TensorFlow Probability.
* cost: UBE over DQN in pairs that take turns. "conv": Nature's network, stacks of 4 frames of 84 x 84 bytes of a
  synthetic environment (a frame costs nothing), one environment, batch 32 every 4 steps, u head of 512 on the 512
  features, centred RMSProp; "MLP": the settings of `speed` on CartPole. Median ratio, and the 2nd and 9th of ten (97.9
  % of a median).
* frames: environment steps per second of wall clock on the device, UBE with 150-step targets beside DQN on the
  synthetic frames, 128 environments side by side, batch 512; MinAtar Breakout, 128 environments, beside rejax's DQN.
  On a GPU: `python benchmarks/neural.py --device gpu frames`. Without gymnax the second is out, and so it was
  when this was measured on an H100 (docs/measured/speed.md).

CPU time is of the process, with one thread for XLA (NPROC=1) on `--device cpu`.
"""

import argparse
import importlib
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

if "gpu" not in sys.argv:
    os.environ.setdefault("NPROC", "1")  # read when the backend starts
    os.environ.setdefault("JAX_PLATFORMS", "cpu")

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bayes_mdp.agents.neural import DQN, MLP, DeepUBE, Epsilon, NeuralUBE, QLearning, RandomFeatures, UncertaintyHead
from bayes_mdp.agents.neural.networks import NatureConv
from bayes_mdp.envs.observed.classic_control import cartpole
from bayes_mdp.experiments.training.training_loop import begin, run_chunk
from bayes_mdp.inference.value import LinearGaussianPrior
from bayes_mdp.mdp import TimeStep

STEPS, ENVS, ROUNDS, PAIRS = 100_000, 10, 5, 10
PUREJAXRL = QLearning(learning_rate=2.5e-4, batch_size=128, learning_starts=10_000, target_every=50)
NATURE = QLearning(learning_rate=2.5e-4, optimizer="rmsprop", batch_size=32, learning_starts=32, train_every=4)


class Frames(eqx.Module):
    """Four frames of 84 x 84 bytes that cost nothing: a fixed picture whose bits change with the clock."""

    @property
    def name(self) -> str:
        """For tables."""
        return "frames"

    @property
    def n_actions(self) -> int:
        """Six, as in Pong."""
        return 6

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Of a stack of four frames."""
        return (4, 84, 84)

    @property
    def observation_dtype(self) -> np.dtype:
        """Bytes."""
        return np.dtype(np.uint8)

    def reset(self, key: Any) -> Any:
        """At a random time."""
        clock = jax.random.randint(key, (), 0, 256)
        return clock, self._seen(clock)

    def step(self, key: Any, state: Any, action: Any) -> TimeStep:
        """Reward where the action fits the clock; an end after 256 steps on average."""
        clock = state + 1
        reward = (clock % 6 == action).astype(jnp.float32)
        return TimeStep(clock, self._seen(clock), reward, jax.random.uniform(key) < 1 / 256, jnp.bool_(False), reward)

    def _seen(self, clock: Any) -> Any:
        picture = (np.arange(4 * 84 * 84) * 2654435761 >> 24 & 255).astype(np.uint8).reshape(4, 84, 84)
        return jnp.bitwise_xor(picture, (clock & 255).astype(jnp.uint8))


class Program:
    """A compiled run from scratch: `steps` environment steps of `envs` environments.

    Args:
        run: of a key.
        steps: environment steps of a call.
    """

    def __init__(self, run: Callable[[Any], Any], steps: int) -> None:
        self.steps = steps
        began = time.perf_counter()
        self._run = jax.jit(run).lower(jax.random.key(0)).compile()
        self.compile_s = time.perf_counter() - began

    def seconds(self, seed: int) -> tuple[float, float]:
        """CPU and wall of a call."""
        cpu, wall = time.process_time(), time.perf_counter()
        jax.block_until_ready(self._run(jax.random.key(seed)))
        return time.process_time() - cpu, time.perf_counter() - wall


def ours(agent: Any, env: Any, envs: int, steps: int, rows: int) -> Program:
    """An agent of this package."""

    def run(key: Any) -> Any:
        key_begin, key_run = jax.random.split(key)
        now = begin(key_begin, agent, env, envs, rows)
        now, seen = run_chunk(key_run, agent, env, now, jnp.arange(steps // envs))
        return now.learner, seen.watched

    return Program(run, steps)


class FiveValues:
    """An environment of gymnax whose `step` answers as rejax expects: one flag for both ways to end."""

    def __init__(self, env: Any) -> None:
        self._env, self.observation_space, self.action_space = env, env.observation_space, env.action_space

    def reset(self, key: Any, params: Any) -> Any:
        """Numbers of fixed types: a loop needs them."""
        seen, state = self._env.reset(key, params)
        return seen, jax.tree.map(lambda x: jax.lax.convert_element_type(x, jnp.asarray(x).dtype), state)

    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        """With the restart of gymnax."""
        seen, later, reward, *ends, info = self._env.step(key, state, action, params)
        later = jax.tree.map(lambda new, old: jnp.asarray(new, jnp.result_type(old)), later, state)
        return seen, later, jnp.asarray(reward, jnp.float32), ends[0] | ends[-1], info


def rejax(name: str, envs: int, steps: int, batch: int) -> Program | None:
    """rejax's DQN, or None where it cannot be imported."""
    try:
        # TensorFlow Probability, which distrax imports, looks for a table that JAX no longer has; nothing here uses it.
        xla: Any = importlib.import_module("jax.interpreters.xla")
        if not hasattr(xla, "pytype_aval_mappings"):
            xla.pytype_aval_mappings = {np.ndarray: None}
        from flax import linen as nn  # pyright: ignore[reportMissingImports]
        from rejax import DQN as RejaxDQN  # pyright: ignore[reportMissingImports]
        from rejax.networks import DiscreteQNetwork, EpsilonGreedyPolicy  # pyright: ignore[reportMissingImports]
    except (ImportError, AttributeError) as error:
        print(f"rejax is left out: {error}")
        return None
    algorithm = RejaxDQN.create(
        env=name, num_envs=envs, buffer_size=10_000 // envs * envs, fill_buffer=10_000 // envs * envs, batch_size=batch,
        learning_rate=2.5e-4, total_timesteps=steps, eval_freq=steps, target_update_freq=500 // envs * envs or envs,
        gamma=0.99, ddqn=False, skip_initial_evaluation=True,
    )  # fmt: skip
    network = EpsilonGreedyPolicy(DiscreteQNetwork)(
        hidden_layer_sizes=(120, 84), action_dim=algorithm.agent.action_dim, activation=nn.relu
    )
    algorithm = algorithm.replace(agent=network, env=FiveValues(algorithm.env), eval_callback=lambda *_: ())
    return Program(algorithm.train, steps)


def minatar() -> Any:
    """Breakout, or None without gymnax."""
    try:
        from bayes_mdp.envs import gymnax_env

        return gymnax_env("Breakout-MinAtar")
    except ImportError as error:
        print(f"MinAtar is left out: {error}")
        return None


def rounds(programs: dict[str, Program | None], number: int) -> dict[str, np.ndarray]:
    """CPU and wall seconds [number, 2] of each, in turns, after one call that does not count."""
    known = {name: program for name, program in programs.items() if program is not None}
    for program in known.values():
        program.seconds(0)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in known}
    for i in range(number):
        order = list(known) if i % 2 else list(known)[::-1]
        for name in order:
            found[name].append(known[name].seconds(i + 1))
    return {name: np.array(values) for name, values in found.items()}


def show(title: str, programs: dict[str, Program | None], found: dict[str, np.ndarray], peer: str) -> None:
    """Steps per second of CPU and wall, compilation, and the ratio to the peer."""
    print(f"\n{title}")
    print(f"{'':34s}{'steps / CPU-s':>14s}{'steps / wall-s':>15s}{'compile s':>11s}{'/ ' + peer:>14s}")
    for name, seconds in found.items():
        program = programs[name]
        assert program is not None
        cpu, wall = program.steps / np.median(seconds, 0)
        ratio = np.median(found[peer][:, 0] / seconds[:, 0]) if peer in found else np.nan
        print(f"{name:34s}{cpu:14,.0f}{wall:15,.0f}{program.compile_s:11.1f}{ratio:14.2f}")


def speed() -> None:
    """At purejaxrl's settings."""
    for title, env, name in (
        ("CartPole", cartpole(), "CartPole-v1"),
        ("MinAtar Breakout, flattened", minatar(), "Breakout-MinAtar"),
    ):
        if env is None:
            continue
        agents = {
            "DQN": DQN(MLP(), PUREJAXRL),
            "UBE, paper": NeuralUBE(MLP(), PUREJAXRL, beta=0.1),
            "UBE, paper, u linear in phi": NeuralUBE(MLP(), PUREJAXRL, UncertaintyHead(0), beta=0.1),
            "UBE, paper, 150 steps": NeuralUBE(MLP(), PUREJAXRL, UncertaintyHead(num_steps=150), beta=0.1),
        }
        programs: dict[str, Program | None] = {
            who: ours(agent, env, ENVS, STEPS, 10_000 // ENVS) for who, agent in agents.items()
        }
        programs["rejax DQN"] = rejax(name, ENVS, STEPS, 128)
        show(f"speed: {title}, {STEPS:,} steps", programs, rounds(programs, ROUNDS), "rejax DQN")


def cost() -> None:
    """UBE over DQN."""
    frames = 400
    conv = {
        "DQN": DQN(NatureConv(), NATURE),
        "UBE, paper": NeuralUBE(NatureConv(), NATURE),
        "UBE, paper, 150 steps": NeuralUBE(NatureConv(), NATURE, UncertaintyHead(num_steps=150)),
        "UBE, deep (512 random features)": DeepUBE(NatureConv(), RandomFeatures(), NATURE, LinearGaussianPrior(100.0)),
    }
    flat = {
        "DQN": DQN(MLP(), PUREJAXRL),
        "UBE, paper": NeuralUBE(MLP(), PUREJAXRL),
        "UBE, paper, u linear in phi": NeuralUBE(MLP(), PUREJAXRL, UncertaintyHead(0)),
    }
    for title, agents, env, envs, steps, rows in (
        ("conv: Nature's network on synthetic frames", conv, Frames(), 1, frames, 1000),
        ("MLP: CartPole", flat, cartpole(), ENVS, STEPS, 1000),
    ):
        programs: dict[str, Program | None] = {
            name: ours(agent, env, envs, steps, rows) for name, agent in agents.items()
        }
        found = rounds(programs, PAIRS)
        show(f"cost: {title}", programs, found, "DQN")
        for name in list(agents)[1:]:
            ratio = np.sort(found[name][:, 0] / found["DQN"][:, 0])
            low, high = ratio[1], ratio[-2]
            print(f"{name} / DQN: {statistics.median(ratio):.3f}, {low:.3f} to {high:.3f}")


def frames(device: str) -> None:
    """Environment steps per second of wall clock."""
    envs, batch = (128, 512) if device == "gpu" else (8, 32)
    steps = envs * (4000 if device == "gpu" else 40)
    learning = QLearning(learning_rate=1e-4, batch_size=batch, learning_starts=4 * envs, train_every=4)
    programs: dict[str, Program | None] = {
        "DQN": ours(DQN(NatureConv(), learning), Frames(), envs, steps, 256),
        "UBE, paper, 150 steps": ours(
            NeuralUBE(NatureConv(), learning, UncertaintyHead(num_steps=150)), Frames(), envs, steps, 256
        ),
    }
    print(f"\n{jax.devices()[0].device_kind}, {envs} environments, batch {batch} every 4 iterations")
    show("frames: Nature's network on synthetic frames", programs, rounds(programs, 3), "DQN")
    env = minatar()
    if env is None:
        return
    steps = envs * (20_000 if device == "gpu" else 2000)
    learning = QLearning(batch_size=128, learning_starts=10_000, target_every=50)
    programs = {
        "UBE, paper": ours(NeuralUBE(MLP(), learning, beta=0.1), env, envs, steps, 80),
        "DQN": ours(DQN(MLP(), learning, Epsilon()), env, envs, steps, 80),
        "rejax DQN": rejax("Breakout-MinAtar", envs, steps, 128),
    }
    show("frames: MinAtar Breakout", programs, rounds(programs, 5), "rejax DQN")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", choices=["speed", "cost", "frames", []], default=["speed", "cost"])
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    asked = parser.parse_args()
    if asked.device == "gpu" and jax.default_backend() != "gpu":
        raise SystemExit(f"--device gpu: JAX runs on {jax.default_backend()}, expected a GPU (is jax[cuda13] there?)")
    for table in asked.tables:
        {"speed": speed, "cost": cost, "frames": lambda: frames(asked.device)}[table]()
