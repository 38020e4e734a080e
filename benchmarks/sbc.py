"""Simulation-based calibration beside simuk, the package of the ArviZ developers: `python -m benchmarks.sbc`.

One model, S = A = 2, 20 transitions, Dirichlet rows and normal-gamma rewards, NUTS with 200 + 200 steps in one chain.
simuk compiles a program for every simulation, so it gets few; ours compiles one for all of them. CPU time of the
process, compilation included: it is what a person waits for. simuk 0.3 needs Python 3.12 and ArviZ 1.x; where it is not
installed, ours is measured alone.
"""

import time
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist

from bayes_mdp.calibration import SbcOptions
from bayes_mdp.calibration.simulation_based.prior_sbc import sbc
from bayes_mdp.inference.draws.methods import NUTS
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.models.normal_gamma_distribution import NormalGamma
from bayes_mdp.models.priors import dirichlet_normal_gamma
from benchmarks.record.turns import Measured, Size, from_turns

SPACE, STEPS = StateActionSpace(2, 2), 20
OURS, THEIRS = 256, 4
WARMUP, SAMPLES = 200, 200


def ours() -> tuple[float, float]:
    """CPU and wall seconds of all simulations."""
    prior = dirichlet_normal_gamma(1.0, 0.0, 1.0, 3.0, 2.0)
    method = NUTS(WARMUP, SAMPLES, 1)
    cpu, wall = time.process_time(), time.perf_counter()
    sbc(jax.random.key(0), prior, SPACE, num_simulations=OURS, options=SbcOptions(num_transitions=STEPS, method=method))
    return time.process_time() - cpu, time.perf_counter() - wall


def theirs() -> tuple[float, float]:
    """The same of simuk."""
    import simuk

    state, action = np.random.default_rng(0).integers(0, 2, (2, STEPS))

    def model(next_state: Any = None, reward: Any = None) -> None:
        with SPACE.plates():
            rows = numpyro.sample("transition", dist.Dirichlet(np.ones(2)))
            law = numpyro.sample("law", NormalGamma(0.0, 1.0, 3.0, 2.0))
        with numpyro.plate("row", STEPS):
            mean, precision = law[state, action, 0], law[state, action, 1]
            numpyro.sample("next_state", dist.Categorical(rows[state, action]), obs=next_state)
            numpyro.sample("reward", dist.Normal(mean, precision**-0.5), obs=reward)

    cpu, wall = time.process_time(), time.perf_counter()
    check = simuk.SBC(
        numpyro.infer.NUTS(model),
        num_simulations=THEIRS,
        sample_kwargs={"num_warmup": WARMUP, "num_samples": SAMPLES},
        seed=1,
        data_dir={"next_state": np.zeros(STEPS, int), "reward": np.zeros(STEPS)},
        progress_bar=False,
    )
    check.run_simulations()
    return time.process_time() - cpu, time.perf_counter() - wall


def measure(size: Size) -> Iterator[Measured]:
    """Lines of the record: a simulation, compilation included."""
    turns = [(ours()[0] / OURS, theirs()[0] / THEIRS) for _ in range(5 if size == "full" else 2)]
    yield from_turns(f"S = A = 2, {STEPS} transitions, NUTS", "simulation", "simuk", turns)


def main() -> None:
    """Print seconds per simulation of both, and their ratio."""
    cost = {}
    for name, run, number in (("ours", ours, OURS), ("simuk", theirs, THEIRS)):
        if name == "simuk" and find_spec("simuk") is None:
            continue
        cost[name] = [x / number for x in run()]
        print(f"{name:6} {cost[name][0]:8.3f} CPU s, {cost[name][1]:8.3f} s a simulation", flush=True)
    if "simuk" in cost:
        print(f"simuk / ours: {cost['simuk'][0] / cost['ours'][0]:.0f} times the CPU time")


if __name__ == "__main__":
    main()
