"""Effective samples per CPU-second, collapsed against whole programs: `python benchmarks/collapsed.py [--large]`.

The five hierarchical ready priors, S = 10, A = 2, 1000 transitions. Both routes are NUTS with the same options
(4 chains, 500 + 500 steps, float64), on the hyperparameters alone or on the whole program. What is counted is the
smallest effective sample size among the hyper-parameters (for the clusters, which have exchangeable labels: of numbers
that do not depend on labels). CPU time of the process, all threads; compilation apart. `--large`: `infer` at S = 500,
A = 4, with 10^6 transitions, everything in it (proof, compilation, statistics, draws).
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from numpyro.diagnostics import effective_sample_size

from bayes_mdp.inference import fit_for, infer
from bayes_mdp.inference.draws.chains import run_chains
from bayes_mdp.inference.draws.methods import NUTS
from bayes_mdp.mdp import StateActionSpace, Transitions
from bayes_mdp.models import (
    clustered_states,
    feature_dynamics,
    joint,
    shared_rewards,
    sticky,
    summarise,
    unknown_concentration,
)

S, A, NUMBER = 10, 2, 1000
DISTANCE = np.arange(S)[None, :] - np.arange(S)[:, None]
FEATURES = np.stack([np.abs(DISTANCE), DISTANCE], -1)[:, None] / S
PRIORS = {
    "unknown_concentration": (unknown_concentration(), ("concentration",)),
    "sticky": (sticky(), ("stickiness",)),
    "shared_rewards": (shared_rewards(), ("reward_loc", "reward_scale", "noise_scale")),
    "clustered_states": (clustered_states(), ()),
    "feature_dynamics": (feature_dynamics(FEATURES), ("coefficients", "strength")),
}


def simulate(size: int, actions: int, number: int, stickiness: float = 3.0) -> Transitions:
    """Sticky rows; rewards high in every other state."""
    rng = np.random.default_rng(0)
    rows = rng.gamma(0.5 + stickiness * np.eye(size)[:, None, :], size=(size, actions, size))
    cumulative = (rows / rows.sum(-1, keepdims=True)).cumsum(-1)
    state, action = rng.integers(size, size=number), rng.integers(actions, size=number)
    uniform, next_state = rng.random(number), np.empty(number, int)
    for part in np.array_split(np.arange(number), max(number // 20000, 1)):
        below = cumulative[state[part], action[part]] < uniform[part, None]
        next_state[part] = np.minimum(below.sum(-1), size - 1)
    return Transitions(state, action, 2.0 * (state % 2) + rng.normal(size=number), next_state)


def numbers(draws: dict[str, Any], sites: tuple[str, ...]) -> dict[str, np.ndarray]:
    """What is looked at, each [C N]."""
    if sites:
        flat = {site: np.reshape(draws[site], (*draws[site].shape[:2], -1)) for site in sites}
        return {f"{site}[{i}]": x[..., i] for site, x in flat.items() for i in range(x.shape[-1])}
    cluster = np.asarray(draws["cluster"])[..., 0]
    own = {name: np.asarray(draws[f"cluster_{name}"]) for name in ("concentration", "loc")}
    found = {
        f"{name} of state {s}": np.take_along_axis(x, cluster[..., s : s + 1], -1)[..., 0]
        for name, x in own.items()
        for s in (0, 1)
    }
    return found | {"size of the cluster of state 0": (cluster == cluster[..., :1]).sum(-1).astype(float)}


def measure(task: str, call: Callable[[Any], dict[str, Any]], sites: tuple[str, ...]) -> float:
    """Effective samples per CPU-second of a compiled call, whose first run is apart."""
    began = time.process_time()
    jax.block_until_ready(call(jax.random.key(0)))
    first, began = time.process_time() - began, time.process_time()
    draws = jax.block_until_ready(call(jax.random.key(1)))
    seconds = time.process_time() - began
    sizes = {name: effective_sample_size(x) for name, x in numbers(draws, sites).items() if np.ptp(x) > 0}
    worst = min(sizes, key=lambda name: sizes[name])
    print(
        f"{task:34s} {sizes[worst] / seconds:9.1f} effective samples / s   ({sizes[worst]:6.0f} of {worst}, "
        f"{seconds:6.2f} s; compiled in {first - seconds:5.1f} s)",
        flush=True,
    )
    return float(sizes[worst]) / seconds


def compare(name: str) -> None:
    """One prior, both routes."""
    prior, sites = PRIORS[name]
    space, data, options = StateActionSpace(S, A), simulate(S, A, NUMBER), NUTS()
    fit = fit_for(prior, space, "collapsed")
    seen, counted = fit.summarise(data), summarise(prior, space, data)
    collapsed = jax.jit(lambda key: _by_chain(fit(key, seen).hyperparameters, options.num_chains))
    whole = jax.jit(lambda key: run_chains(key, joint(prior, space), counted, options).draws)
    rates = [measure(f"{name}, {who}", call, sites) for who, call in (("collapsed", collapsed), ("whole", whole))]
    print(f"{name:34s} {rates[0] / rates[1]:9.1f} times as many", flush=True)


def _by_chain(draws: dict[str, Any], num_chains: int) -> dict[str, Any]:
    return {site: x.reshape(num_chains, -1, *x.shape[1:]) for site, x in draws.items()}


def large() -> None:
    """The whole of `infer`."""
    data, space = simulate(500, 4, 10**6, 20.0), StateActionSpace(500, 4)
    for run in ("first", "second"):
        wall, began = time.perf_counter(), time.process_time()
        posterior = infer(jax.random.key(0), sticky(), data, space=space, method="collapsed")
        wall, seconds = time.perf_counter() - wall, time.process_time() - began
        draws = np.asarray(posterior.hyperparameters["stickiness"])
        size = effective_sample_size(draws.reshape(4, -1))
        print(
            f"S = 500, A = 4, 10^6 transitions, {run} call {seconds:6.1f} CPU-s, {wall:6.1f} s; "
            f"stickiness {draws.mean():.2f} +- {draws.std():.2f} (20), {size:.0f} effective samples",
            flush=True,
        )


if __name__ == "__main__":
    if "--large" in sys.argv:
        large()
    else:
        with jax.enable_x64(True):
            for each in PRIORS:
                compare(each)
