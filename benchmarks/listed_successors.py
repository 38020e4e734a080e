"""A posterior over many states with few successors each: seconds and peak memory, and the exponent of growth.

`python -m benchmarks.listed_successors [states transitions draws]` measures one size in this process: S states, 4
actions, 8 listed successors. Without sizes: S = 10^4 and 10^5, each in a process of its own, since peak memory is that
of a process; 10^6 transitions, 100 draws. CPU seconds of every step, compilation included, and the total.

The steps: posterior, mean, certified optimum of the mean, value of that policy with its standard deviation (UBE, moment
matching, draws), a plan for one draw (PSRL) that starts from the plan of the mean.
"""

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

import bayes_mdp as bm
from bayes_mdp.agents.value_uncertainty import moment_matching, ube

ACTIONS, SUCCESSORS = 4, 8


def measured(name: str, function: Callable[[], Any]) -> Any:
    """The answer, and a line: CPU seconds, seconds, peak memory so far."""
    cpu, wall = time.process_time(), time.perf_counter()
    answer = jax.block_until_ready(function())
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"  {name:<28} {cpu:8.2f} CPU-s {wall:8.2f} s   peak {peak:6.2f} GB", flush=True)
    return answer


def random_lists(rng: np.random.Generator, states: int) -> np.ndarray:
    """Int[S A K]: each pair lists its own state and others, at random, each once."""
    listed = rng.integers(states, size=(states, ACTIONS, SUCCESSORS))
    listed[..., 0] = np.arange(states)[:, None]
    listed.sort(-1)
    listed[..., 1:][listed[..., 1:] == listed[..., :-1]] = -1
    return listed


def random_log(rng: np.random.Generator, listed: np.ndarray, number: int) -> bm.Transitions:
    """Transitions from random pairs to random places of their lists, rewards 0 or 1."""
    states = len(listed)
    state, action = rng.integers(states, size=number), rng.integers(ACTIONS, size=number)
    place = rng.integers(SUCCESSORS, size=number)
    while (empty := listed[state, action, place] < 0).any():
        place[empty] = rng.integers(SUCCESSORS, size=empty.sum())
    reward = rng.integers(2, size=number).astype(np.float32)
    return bm.Transitions(state, action, reward, listed[state, action, place])


def one_size(states: int, number: int, draws: int) -> None:
    """All steps of one size."""
    rng = np.random.default_rng(0)
    listed = random_lists(rng, states)
    space = bm.StateActionSpace(states, ACTIONS, successors=listed)
    data = random_log(rng, listed, number)
    print(f"S = {states:,}, {number:,} transitions")
    start = time.process_time()
    key, prior, objective = jax.random.key(0), bm.models.dirichlet_bernoulli(), bm.Discounted(0.95)
    posterior = measured("infer", lambda: bm.infer(key, prior, data, space=space, method="exact"))
    del data
    mean = measured("mean_mdp", posterior.mean_mdp)
    plan = measured("solve the mean", lambda: bm.solve(mean, objective))
    print(f"    converged {bool(plan.converged)}, proven gap {float(np.max(plan.gap)):.1e}")
    drawn = measured("one draw", lambda: posterior.sample(key))
    psrl = measured("solve a draw (PSRL)", lambda: bm.solve(drawn, objective, start=plan))
    print(f"    converged {bool(psrl.converged)}, proven gap {float(np.max(psrl.gap)):.1e}")
    del drawn, psrl, mean
    first = np.zeros(states)
    first[0] = 1.0
    for name, variance in (("UBE", ube.solve), ("moment matching", moment_matching.value_variance)):
        found = measured(name, partial(variance, posterior, plan.policy, objective))
        print(f"    value of state 0: {float(found.v_mean[0]):.4f}, sd {float(found.v_variance[0]) ** 0.5:.4f}")
        del found
    value = measured(
        f"{draws} draws of the value",
        lambda: bm.policy_value(key, posterior, plan.policy, objective, initial=first, num_draws=draws),
    )
    print(f"    value of state 0: {value.mean:.4f}, sd {value.sd:.4f}, numerical error {value.gap:.1e}")
    print(f"  total {time.process_time() - start:.1f} CPU-s")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        one_size(*(int(float(x)) for x in (*sys.argv[1:4], "100")[:3]))
    else:
        for size in ("1e4", "1e5"):
            subprocess.run([sys.executable, "-m", "benchmarks.listed_successors", size, "1e6", "100"], check=True)
