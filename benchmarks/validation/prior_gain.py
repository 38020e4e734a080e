"""The gain of a hierarchical prior: PSRL that learns how random all rows are, against PSRL that does not."""

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.agents import PSRL
from bayes_mdp.experiments.results import half_width
from bayes_mdp.experiments.run_agent import run
from bayes_mdp.experiments.run_config import RunOptions
from bayes_mdp.mdp import Discounted, StateActionSpace
from bayes_mdp.models import random_environment

if TYPE_CHECKING:
    import xarray as xr

SPACE = StateActionSpace(8, 2)
CONCENTRATION, NOISE, DISCOUNT, REPLAN = 0.02, 0.1, 0.9, 5


def prior_gain(key: PRNGKeyArray, *, num_seeds: int = 100, num_steps: int = 200) -> "xr.Dataset":
    """Bayes regret of PSRL under the prior that the MDPs are drawn from, and under its flat counterpart. Host side.

    Worlds of 8 states and 2 actions: rows Dirichlet(c, ..., c), one c for all, LogNormal(log .02, .5): nearly
    deterministic; mean rewards Normal(0, 1), noise .1. The hierarchical agent is given this, and infers c from all rows
    at once (a `CollapsedPosterior`); the flat one believes each row by itself, Dirichlet(1, ..., 1). Rewards are
    believed alike, and both meet the same MDPs and the same random numbers of the environment.

    Args:
        key: a typed key.
        num_seeds: sampled MDPs, at least 2.
        num_steps: of each run.

    Returns:
        A Dataset: `regret` [prior, seed, checkpoint], cumulative, of discounted values; `gain` [seed, checkpoint], flat
        minus hierarchical.

    Raises:
        ValueError, TypeError: as `run`.
    """
    import xarray as xr

    hierarchical, flat = _priors()
    results = [_regret(prior, hierarchical, key, num_seeds, num_steps) for prior in (hierarchical, flat)]
    regret = xr.concat(results, "prior").assign_coords(prior=["hierarchical", "flat"])
    return xr.Dataset({"regret": regret, "gain": regret.sel(prior="flat") - regret.sel(prior="hierarchical")})


def describe_prior_gain(result: "xr.Dataset") -> str:
    """Mean regret at a few times, and the paired difference with its 95 % interval."""
    times = result["time"].to_numpy()
    shown = np.unique(np.linspace(0, len(times) - 1, 5).round().astype(int))
    lines = [f"{'steps':>6}{'hierarchical':>14}{'flat':>10}{'flat - hierarchical [95 %]':>34}"]
    for i in shown:
        means = result["regret"].isel(checkpoint=i).mean("seed").to_numpy()
        gain = result["gain"].isel(checkpoint=i).to_numpy()
        half = half_width(gain)
        interval = f"{gain.mean():.2f} [{gain.mean() - half:.2f}, {gain.mean() + half:.2f}]"
        lines.append(f"{times[i]:>6}{means[0]:>14.2f}{means[1]:>10.2f}{interval:>34}")
    return "\n".join([f"Bayes regret of PSRL, {result.sizes['seed']} MDPs drawn from the hierarchical prior", *lines])


def _priors() -> tuple[Any, Any]:
    import numpyro.distributions as dist

    from bayes_mdp.models import dirichlet_normal
    from bayes_mdp.models.hierarchical import unknown_concentration

    rewards = partial(dirichlet_normal, noise_scale=NOISE)
    return unknown_concentration(dist.LogNormal(math.log(CONCENTRATION), 0.5), rewards=rewards), rewards(1.0)


def _regret(prior: Any, worlds: Any, key: PRNGKeyArray, num_seeds: int, num_steps: int) -> "xr.DataArray":
    result = run(
        PSRL(REPLAN),
        random_environment(jax.random.key(0), worlds, SPACE, initial=np.full(SPACE.n_states, 1 / SPACE.n_states)),
        prior=prior,
        objective=Discounted(DISCOUNT),
        key=key,
        num_steps=num_steps,
        num_seeds=num_seeds,
        options=RunOptions(space=SPACE, env_prior=worlds, num_checkpoints=10, regret="bayes"),
    )
    return result["regret"]
