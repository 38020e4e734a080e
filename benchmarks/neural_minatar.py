"""Deep UBE on pixels: MinAtar through gymnax, beside DQN with the same network, replay and gradient steps.

    python benchmarks/neural_minatar.py [--quick] [--game Breakout-MinAtar] [--steps 200000] [--seeds 3]

Mean score of the episodes that ended in each fifth of the run, while learning: DQN with its epsilon, deep UBE with its
optimism. Ten environments, one gradient step on 128 transitions for ten steps, replay of 10,000 (purejaxrl's settings).
Needs gymnax, which needs a JAX below 0.12.
"""

import argparse
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayes_mdp.agents.neural import DQN, MLP, DeepUBE, Epsilon, HashedFeatures, QLearning, UnitPrior
from bayes_mdp.envs import gymnax_env
from bayes_mdp.experiments.training.training_loop import begin, run_chunk

ENVS, REPLAY, SEED = 10, 10_000, 20_260
NET, LEARNING = MLP((120, 84)), QLearning()


def deep(q_max: float, beta: float, bits: int = 8) -> DeepUBE:
    """Eight tables of short codes, so that alike pictures share their units; all in units of q_max."""
    return DeepUBE(
        NET,
        HashedFeatures(8, bits),
        LEARNING,
        UnitPrior(variance=q_max**2),
        local_scale=0.1 * q_max**2,
        q_max=q_max,
        beta=beta,
    )


AGENTS: dict[str, Any] = {
    "dqn": DQN(NET, LEARNING, Epsilon(1.0, 0.05, 25_000)),
    "deep, beta 0.1": deep(5.0, 0.1),
    "deep, beta 0.3": deep(5.0, 0.3),
    "deep, beta 1": deep(5.0, 1.0),
}


def play(agent: Any, game: str, steps: int, seeds: int) -> tuple[np.ndarray, float]:
    """Mean scores [seeds, 5], and environment steps per CPU-second."""
    env, iterations = gymnax_env(game), steps // ENVS

    def one(key: Any) -> Any:
        now = begin(key, agent, env, ENVS, REPLAY // ENVS)
        seen = run_chunk(key, agent, env, now, jnp.arange(iterations))[1]
        ended = seen.ended.reshape(5, -1)
        return jnp.sum(ended * seen.score.reshape(5, -1), 1) / jnp.maximum(jnp.sum(ended, 1), 1)

    keys = jax.random.split(jax.random.key(SEED), seeds)
    program = jax.jit(lambda keys: jax.lax.map(one, keys)).lower(keys).compile()
    start = time.process_time()
    scores = np.asarray(program(keys))
    return scores, seeds * steps / (time.process_time() - start)


def main() -> None:
    """A line an agent, and one a seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed, 20,000 steps")
    parser.add_argument("--game", default="Breakout-MinAtar")
    parser.add_argument("--steps", type=int, default=200_000, help="environment steps, a multiple of 50")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--agents", nargs="+", choices=list(AGENTS), default=list(AGENTS), metavar="AGENT")
    args = parser.parse_args()
    steps, seeds = (20_000, 1) if args.quick else (args.steps, args.seeds)
    print(f"{args.game}, {steps} steps, {seeds} seeds; jax {jax.__version__}", flush=True)
    for name in args.agents:
        scores, speed = play(AGENTS[name], args.game, steps, seeds)
        fifths = " ".join(f"{x:6.2f}" for x in scores.mean(0))
        last = " ".join(f"{x:.2f}" for x in scores[:, -1])
        print(f"{name:<16} {fifths}   last fifth of each seed: {last}   {speed:.0f} steps/CPU-s", flush=True)


if __name__ == "__main__":
    main()
