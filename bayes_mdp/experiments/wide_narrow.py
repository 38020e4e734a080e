"""Joint against factored Gaussian Thompson sampling on WideNarrow ([BMRL19] Markou and Rasmussen, 2019)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from bayes_mdp.agents import CovarianceThompson, ThompsonByDraws
from bayes_mdp.envs.wide_narrow import wide_narrow
from bayes_mdp.experiments.case import RunOptions
from bayes_mdp.experiments.intervals import half_width
from bayes_mdp.experiments.run import run
from bayes_mdp.mdp import Discounted

if TYPE_CHECKING:
    import xarray as xr

DISCOUNT = 0.9
REPLAN = 3  # 2 N + 1 steps, N = 1
WIDTHS = (6, 8, 10, 12)
AGENTS: dict[str, Any] = {
    "covariance, factored": CovarianceThompson(joint=False, replan=REPLAN),
    "covariance, joint": CovarianceThompson(joint=True, replan=REPLAN),
    "draws, factored": ThompsonByDraws(joint=False, replan=REPLAN),
    "draws, joint": ThompsonByDraws(joint=True, replan=REPLAN),
}


def joint_against_factored(
    num_seeds: int = 10,
    *,
    widths: Sequence[int] = (6,),
    agents: Mapping[str, Any] = AGENTS,
    steps_per_action: int = 1000,
    seed: int = 0,
) -> "xr.Dataset":
    """Regret of agents that draw the values of the actions of a state jointly, and of such that draw each by itself.

    All W actions of the wide state lead to one next state, so their values share its uncertainty: a factored draw
    counts it W times. The paper's protocol: N = 1, a new plan every 3 steps, discount .9, Dirichlet(1) rows over all
    states, rewards normal-gamma (0, 4, 3, 3) on (state, action), T = 1000 W steps; regret by optimal gain. The same
    keys for all agents.

    Args:
        num_seeds: 10 in the paper.
        widths: W; the paper has `WIDTHS`. Each takes a minute or two on two cores.
        agents: name -> agent, with `replan` as it is to be (the protocol's: every 3 steps).
        steps_per_action: T / W.
        seed: of the key.

    Returns:
        A Dataset: `regret` [agent, width, seed] at the end, `mean` and `half_width` (95 %) [agent, width].
    """
    import xarray as xr

    lengths = [(width, steps_per_action * width) for width in widths]
    regret = np.array([[_regret(agent, *length, num_seeds, seed) for length in lengths] for agent in agents.values()])
    dims = ("agent", "width")
    half = half_width(np.moveaxis(regret, -1, 0)) if num_seeds > 1 else np.full(regret.shape[:-1], np.inf)
    return xr.Dataset(
        {"regret": ((*dims, "seed"), regret), "mean": (dims, regret.mean(-1)), "half_width": (dims, half)},
        coords={"agent": list(agents), "width": list(widths), "seed": np.arange(num_seeds)},
        attrs={"steps_per_action": steps_per_action, "discount": DISCOUNT},
    )


def _regret(agent: Any, width: int, num_steps: int, num_seeds: int, seed: int) -> np.ndarray:
    """Regret of every seed at the end."""
    from bayes_mdp.models import dirichlet_normal_gamma

    result = run(
        agent,
        wide_narrow(width),
        prior=dirichlet_normal_gamma(1.0, 0.0, 4.0, 3.0, 3.0),
        objective=Discounted(DISCOUNT),
        key=jax.random.key(seed),
        num_steps=num_steps,
        num_seeds=num_seeds,
        regret="average",
        options=RunOptions(num_checkpoints=10, progress=False),
    )
    return result["regret"].values[:, -1]
