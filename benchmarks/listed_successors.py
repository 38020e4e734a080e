"""A posterior over many states with few successors each: seconds and peak memory, and the exponent of growth.

`python -m benchmarks.listed_successors [states transitions]` measures one size in this process: S states, 4 actions,
8 listed successors. Without sizes: S = 10^4 and 10^5, each in a process of its own, since peak memory is that of a
process; 10^6 transitions. CPU seconds, the first call (compilation included) and the second.
"""

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import bayes_mdp as bm

ACTIONS, SUCCESSORS = 4, 8


def measured(name: str, function: Callable[[], Any]) -> Any:
    """The answer, and a line: CPU seconds of the first and the second call, peak memory."""
    seconds = []
    for _ in range(2):
        start = time.process_time()
        answer = jax.block_until_ready(function())
        seconds.append(time.process_time() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"  {name:<28} {seconds[0]:8.2f} {seconds[1]:8.2f} CPU-s   peak {peak:6.2f} GB", flush=True)
    return answer


def random_lists(rng: np.random.Generator, states: int) -> np.ndarray:
    """Int[S A K]: each pair lists its own state and others, at random, each once."""
    listed = rng.integers(states, size=(states, ACTIONS, SUCCESSORS))
    listed[..., 0] = np.arange(states)[:, None]
    listed.sort(-1)
    listed[..., 1:][listed[..., 1:] == listed[..., :-1]] = -1
    return listed


def one_size(states: int, number: int) -> None:
    """All steps of one size."""
    rng = np.random.default_rng(0)
    listed = random_lists(rng, states)
    space = bm.StateActionSpace(states, ACTIONS, successors=listed)
    state, action = rng.integers(states, size=number), rng.integers(ACTIONS, size=number)
    place = rng.integers(SUCCESSORS, size=number)
    while (empty := listed[state, action, place] < 0).any():
        place[empty] = rng.integers(SUCCESSORS, size=empty.sum())
    reward = rng.integers(2, size=number).astype(float)
    data = bm.Transitions(state, action, reward, listed[state, action, place])
    print(f"S = {states:,}, {number:,} transitions")
    key, prior, objective = jax.random.key(0), bm.models.dirichlet_bernoulli(), bm.Discounted(0.95)
    posterior = measured("infer", lambda: bm.infer(key, prior, data, space=space, method="exact"))
    mean = measured("mean_mdp", posterior.mean_mdp)
    plan = measured("solve", lambda: bm.solve(mean, objective))
    print(f"  converged {bool(plan.converged)}, proven gap {float(np.max(plan.gap)):.1e}")
    measured("bellman_variance", lambda: posterior.bellman_variance(plan.v, 0.95))
    measured("one draw, solved", lambda: bm.solve(posterior.sample(key), objective, start=plan).v)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        one_size(*(int(float(x)) for x in sys.argv[1:3]))
    else:
        for size in ("1e4", "1e5"):
            subprocess.run([sys.executable, "-m", "benchmarks.listed_successors", size, "1e6"], check=True)
