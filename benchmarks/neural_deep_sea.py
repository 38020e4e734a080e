"""Deep exploration: episodes until bsuite's DeepSea is solved, by deep agents beside each other, and an ablation.

    python benchmarks/neural_deep_sea.py [--quick] [--sizes 10 20 30] [--agents deep boot ...] [--seeds 10]
        [--stochastic] [--ablation] [--episodes N] [--out FOLDER]

One line a cell: size, agent, seeds solved, median and range of the episode by which a tenth of all had found the
treasure (bsuite's rule), seeds that kept to it (from episode 100 on), median first visit, share of the last 50 episodes
that found it, environment steps per CPU-second, wall seconds. A finished cell is kept in the folder: a run that was
stopped goes on. One CPU thread is best for kernels this small: `NPROC=1`. The seeds are none that settings were chosen
on. bsuite's mapping seed, 42, everywhere.
"""

import argparse
import re
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from neural_deep_sea_places import Places, deep_on_places
from neural_deep_sea_variants import ABLATION

from bayes_mdp.agents.neural import (
    DQN,
    BonusDQN,
    BootstrappedDQN,
    DeepUBE,
    Epsilon,
    NeuralUBE,
    OneHotMLP,
    QLearning,
    UncertaintyHead,
)
from bayes_mdp.envs import deep_sea_observed
from bayes_mdp.experiments.resume import Cells
from bayes_mdp.experiments.rollout.execute import first_visit, sustained_time_to_solve, time_to_solve
from bayes_mdp.experiments.training.training_loop import begin, run_chunk

SEED = 20_262
REPLAY = 50_000  # transitions; fewer where fewer are made
NET = OneHotMLP((64, 64))  # the function of MLP((64, 64)), faster on positions
BATCH = QLearning(learning_rate=1e-3, learning_starts=128, target_every=4)
GREEDY = Epsilon(1.0, 0.05, 1_000)


class OnPlaces(NamedTuple):
    """Stands for `deep_on_places`, which needs the size."""

    horizon: bool


AGENTS: dict[str, Callable[[], Any]] = {
    "deep": lambda: DeepUBE(trunk=NET),
    "deep, places": lambda: OnPlaces(horizon=False),  # the same run, see `neural_deep_sea_places`
    "deep, places, horizon": lambda: OnPlaces(horizon=True),  # with less noise beyond N = 34: `UnitPrior.for_horizon`
    "paper": lambda: NeuralUBE(NET, BATCH, UncertaintyHead(64), beta=0.1),
    "paper, beta 1": lambda: NeuralUBE(NET, BATCH, UncertaintyHead(64), beta=1.0),
    "paper, beta 3": lambda: NeuralUBE(NET, BATCH, UncertaintyHead(64), beta=3.0),
    "paper-150": lambda: NeuralUBE(NET, BATCH, UncertaintyHead(64, num_steps=150), beta=0.1),
    "dqn": lambda: DQN(NET, BATCH, GREEDY),
    "bonus": lambda: BonusDQN(NET, BATCH, GREEDY),
    "boot": lambda: BootstrappedDQN(OneHotMLP((50, 50))),
    **ABLATION,
}


def play(agent: Any, size: int, stochastic: bool, seeds: int, episodes: int) -> dict[str, np.ndarray]:
    """All seeds in turn in one compiled program: which episodes found the treasure, and what it cost."""
    env, steps = deep_sea_observed(size, stochastic=stochastic), episodes * size
    if isinstance(agent, OnPlaces):
        agent, env = deep_on_places(size, agent.horizon), Places(env)
    root = jax.random.fold_in(jax.random.key(SEED), 2 * size + stochastic)

    def one(key: Any) -> Any:
        now = begin(key, agent, env, 1, min(REPLAY, steps + 1))
        return run_chunk(key, agent, env, now, jnp.arange(steps))[1].score[size - 1 :: size, 0] > 0

    start = time.time()
    keys = jax.random.split(root, seeds)
    program = jax.jit(lambda keys: jax.lax.map(one, keys)).lower(keys).compile()
    compiled, cpu = time.time(), time.process_time()
    hits = np.asarray(program(keys))
    return {
        "hits": hits,
        "cpu": np.asarray(time.process_time() - cpu),
        "wall": np.asarray(time.time() - compiled),
        "compile": np.asarray(compiled - start),
    }


def budget(size: int) -> int:
    """Episodes of a seed: up to 400; 2,000 beyond bsuite's sizes."""
    return min(max(15 * size, 150), 400) if size <= 50 else 2_000


def cell_name(name: str, agent: Any, size: int, stochastic: bool, seeds: int, episodes: int) -> str:
    """Of the file; a setting that changes makes another one."""
    setting = zlib.crc32(repr(agent).encode())
    return f"{re.sub('[^a-z0-9]+', '_', name)}-{setting:08x}-{size}-{'ds'[stochastic]}-{seeds}x{episodes}"


def line(size: int, name: str, cell: dict[str, np.ndarray]) -> str:
    """Of the table."""
    hits = cell["hits"]
    solved, kept, first = (f(hits) for f in (time_to_solve, sustained_time_to_solve, first_visit))
    found = np.isfinite(solved)
    shown = np.where(found, solved, np.inf)
    low, middle, high = (f"{x:.0f}" for x in (shown.min(), np.median(shown), shown.max()))
    visit = f"{np.median(np.where(np.isfinite(first), first, np.inf)):.0f}"
    speed = hits.size * size / float(cell["cpu"])
    return (
        f"{size:>4} {name:<28} {found.sum():>3}/{len(hits):<3} {middle:>5} {low + '-' + high:>9} "
        f"{np.isfinite(kept).sum():>3}/{len(hits):<3} {visit:>5} {hits[:, -50:].mean():>5.2f} {speed:>8.0f} "
        f"{float(cell['wall']):>7.0f} {hits.shape[1]:>6}"
    )


HEAD = (
    f"{'N':>4} {'agent':<28} {'solved':>7} {'med':>5} {'range':>9} {'kept':>7} {'first':>5} {'late':>5} "
    f"{'steps/s':>8} {'wall s':>7} {'played':>6}"
)


def main() -> None:
    """Cell by cell, a line each as soon as it is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two seeds, sizes 10 and 12")
    parser.add_argument("--sizes", type=int, nargs="+")
    parser.add_argument("--agents", nargs="+", choices=sorted(AGENTS), metavar="AGENT", help=", ".join(AGENTS))
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--episodes", type=int, help="of a seed; default: by size")
    parser.add_argument("--stochastic", action="store_true")
    parser.add_argument("--ablation", action="store_true", help="deep, and each change between paper and deep undone")
    parser.add_argument("--out", type=Path, help="folder of the finished cells; default: none are kept")
    args = parser.parse_args()
    sizes = args.sizes or ([10, 12] if args.quick else [10, 20, 30])
    seeds = args.seeds or (2 if args.quick else 10)
    names = args.agents or (["deep", *ABLATION] if args.ablation else ["deep", "boot"] if args.quick else ["deep"])
    cells = Cells(args.out, {"seed": SEED, "replay": REPLAY})
    print(f"DeepSea of bsuite, {'stochastic' if args.stochastic else 'deterministic'}; jax {jax.__version__}")
    print(HEAD, flush=True)
    for size in sizes:
        for name in names:
            episodes = args.episodes or (150 if args.quick else budget(size))
            agent = AGENTS[name]()
            cell = cells.get(
                cell_name(name, agent, size, args.stochastic, seeds, episodes),
                lambda _, a=agent, s=size, e=episodes: play(a, s, args.stochastic, seeds, e),
            )
            print(line(size, name, cell), flush=True)


if __name__ == "__main__":
    main()
