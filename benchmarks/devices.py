"""Many seeds of PSRL in DeepSea as one compiled program, on one device or on all of a kind.

    python -m benchmarks.devices [--device cpu|gpu] [--seeds 10000] [--size 50] [--episodes 100] [--devices N]

Prints the size of what all seeds carry before the program is compiled (a run whose state alone takes more than half of
the memory is refused), then seconds of compilation and episodes a second. Several CPU devices need
`XLA_FLAGS=--xla_force_host_platform_device_count=N` in the environment. Where JAX has no device of the kind that is
asked for, the program says so and ends with status 2.
"""

import argparse
import resource
import sys
import time
from typing import Any

import jax

from bayes_mdp.agents import PSRL
from bayes_mdp.envs import deep_sea
from bayes_mdp.experiments import RunOptions
from bayes_mdp.experiments.resume import Snapshots
from bayes_mdp.experiments.rollout.execute import execute, prepare, start_all
from bayes_mdp.experiments.run_config import RunConfig, check_case
from bayes_mdp.mdp import Episodic
from bayes_mdp.models import dirichlet_normal
from bayes_mdp.utils.memory import in_words
from bayes_mdp.utils.progress import Progress


def devices_of(kind: str, number: int | None) -> list[Any]:
    """The devices of a kind; ends the program where there are none, or fewer than asked for."""
    try:
        there = jax.devices(kind)
    except RuntimeError as error:
        sys.stderr.write(
            f"--device is {kind}, which JAX does not find here ({error}): install jax for it, or use cpu\n"
        )
        raise SystemExit(2) from error
    if number is not None and number > len(there):
        sys.stderr.write(f"--devices is {number}, expected at most {len(there)}, the {kind} devices that JAX has\n")
        raise SystemExit(2)
    return there[:number]


def main() -> None:
    """One measurement."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--devices", type=int, help="how many; all by default")
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=50, help="L of DeepSea")
    parser.add_argument("--episodes", type=int, default=100)
    given = parser.parse_args()
    devices = devices_of(given.device, given.devices)
    options = RunOptions(devices=devices, progress=False)
    parts = Episodic(given.size), jax.random.key(0), dirichlet_normal(noise_scale=0.1), None
    case = RunConfig(PSRL(), deep_sea(given.size), *parts, given.episodes, given.seeds, "average", options)
    check_case(case)
    prepared = prepare(case)
    own = (prepared.own_env, prepared.own_belief)
    carry = start_all.eval_shape(prepared.layout, own, prepared.setting, prepared.keys, prepared.belief, prepared.mesh)
    size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(carry))
    print(f"DeepSea {given.size}, {given.seeds} seeds on {len(devices)} {given.device} devices")
    print(f"  carried: {in_words(size)}, {in_words(size / len(devices))} on each device")
    seconds = []
    returns = 0.0
    for _ in range(2):
        silent = Progress(given.seeds, given.episodes, show=False)
        start = time.perf_counter()
        returns = execute(prepared, silent, Snapshots(None, {})).reward[:, -1].mean()
        seconds.append(time.perf_counter() - start)
    rate = given.seeds * given.episodes / seconds[1]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"  first call {seconds[0]:.1f} s, second {seconds[1]:.1f} s: {rate:,.0f} episodes a second")
    print(f"  mean return of the last episode {returns:.3f}; peak memory of the host {peak:.2f} GB")


if __name__ == "__main__":
    main()
