"""[BMRL19] (Markou and Rasmussen 2019) WideNarrow: joint against factored Gaussian Thompson sampling.

All W actions of the wide state lead to one next state, so their values share its uncertainty: a factored draw counts it
W times. The paper prints no numbers of regret.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from bayes_mdp.agents import CovarianceThompson, MonteCarloThompson
from bayes_mdp.envs.papers.chain_mdps import wide_narrow
from bayes_mdp.experiments.results import half_width
from bayes_mdp.experiments.rollout.regret import optimal_plan
from bayes_mdp.experiments.run_agent import run
from bayes_mdp.experiments.run_config import RunOptions
from bayes_mdp.mdp import Discounted
from bayes_mdp.utils.validation import check_count, check_key
from reproductions.reproduction import Reproduction, Row

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

DISCOUNT = 0.9
REPLAN = 3  # 2 N + 1 steps, N = 1
WIDTHS = (6, 8, 10, 12)
GAIN, VALUE = 1 / 6, (1.845018, 1.494465, 1.660517)  # optimal, N = 1
BANDS = {"covariance": None, "draws": (1.0, float("inf"))}
AGENTS: dict[str, Any] = {
    "covariance, factored": CovarianceThompson(joint=False, replan=REPLAN),
    "covariance, joint": CovarianceThompson(joint=True, replan=REPLAN),
    "draws, factored": MonteCarloThompson(joint=False, replan=REPLAN),
    "draws, joint": MonteCarloThompson(joint=True, replan=REPLAN),
}


def joint_against_factored(
    *,
    key: PRNGKeyArray,
    num_seeds: int = 10,
    widths: Sequence[int] = WIDTHS,
    steps_per_action: int = 1000,
    agents: Mapping[str, Any] = AGENTS,
) -> "xr.Dataset":
    """Regret of agents that draw the values of the actions of a state jointly, and of such that draw each by itself.

    The paper's protocol: N = 1, a new plan every 3 steps, discount .9, Dirichlet(1) rows over all states, rewards
    normal-gamma (0, 4, 3, 3) on (state, action), T = 1000 W steps; regret by optimal gain. The same key for all agents.

    Args:
        key: a typed key.
        num_seeds: 10 in the paper.
        widths: W.
        steps_per_action: T / W.
        agents: name -> agent, with `replan` as it is to be (the protocol's: every 3 steps).

    Returns:
        A Dataset: `regret` [agent, width, seed] at the end; of the environment, `gain` [width] and `value`
        [width, state], optimal.

    Raises:
        ValueError, TypeError: a count below 1, a width below 2, no typed key.
    """
    import xarray as xr

    check_key("key", key)
    check_count("num_seeds", num_seeds)
    check_count("steps_per_action", steps_per_action)
    envs = [wide_narrow(width) for width in widths]
    regret = [
        [_regret(agent, env, key, num_seeds, steps_per_action * env.mdp.n_actions) for env in envs]
        for agent in agents.values()
    ]
    values = [optimal_plan(env.mdp, Discounted(DISCOUNT)).v for env in envs]  # pyright: ignore[reportArgumentType]
    return xr.Dataset(
        {
            "regret": (("agent", "width", "seed"), np.array(regret), {"long_name": "regret at the end"}),
            "gain": ("width", [env.optimum for env in envs], {"long_name": "optimal gain"}),
            "value": (("width", "state"), np.array(values), {"long_name": "optimal value"}),
        },
        coords={"agent": list(agents), "width": list(widths), "seed": np.arange(num_seeds)},
    )


def _regret(agent: Any, env: Any, key: PRNGKeyArray, num_seeds: int, num_steps: int) -> Float[np.ndarray, " seeds"]:
    """Regret of every seed at the end."""
    from bayes_mdp.models import dirichlet_normal_gamma

    result = run(
        agent,
        env,
        prior=dirichlet_normal_gamma(1.0, 0.0, 4.0, 3.0, 3.0),
        objective=Discounted(DISCOUNT),
        key=key,
        num_steps=num_steps,
        num_seeds=num_seeds,
        options=RunOptions(num_checkpoints=10, regret="average"),
    )
    return result["regret"].to_numpy()[:, -1]


def rows(result: "xr.Dataset") -> list[Row]:
    """The table: optimal values, then how much more a factored draw loses: for every W, and the least of them.

    The verdict is on draws. The closed covariance is shown for orientation: on a ring it is that of independent copies.
    """
    table = [Row("optimal gain", GAIN, float(result["gain"][0]), band=(GAIN - 1e-6, GAIN + 1e-6))]
    for state, published in enumerate(VALUE):
        ours = float(result["value"][0, state])
        table.append(Row(f"V*, state {state}", published, ours, band=(published - 2e-6, published + 2e-6)))
    regret = {str(name): result["regret"].to_numpy()[i] for i, name in enumerate(result["agent"].to_numpy())}
    for way in BANDS:
        table += _ratios(way, result["width"].to_numpy(), regret[f"{way}, factored"], regret[f"{way}, joint"])
    return table


def _ratios(way: str, widths: np.ndarray, factored: np.ndarray, joint: np.ndarray) -> list[Row]:
    """Regret of factored over joint; over the same seeds, intervals by linearisation."""
    means = factored.mean(-1), joint.mean(-1)
    ratio = means[0] / means[1]
    linear = (factored - ratio[:, None] * joint) / means[1][:, None]
    half = half_width(linear.T) if linear.shape[-1] > 1 else np.full(len(widths), np.inf)
    least = int(ratio.argmin())
    each = [
        Row(f"{way}: factored / joint, W = {width}", None, float(x), float(h))
        for width, x, h in zip(widths, ratio, half, strict=True)
    ]
    name = f"{way}: factored / joint, the least"
    return [*each, Row(name, None, float(ratio[least]), float(half[least]), BANDS[way])]


def figure(result: "xr.Dataset") -> "Figure":
    """Mean regret at the end over W, with 95 % intervals."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = drawing.subplots()
    widths, num_seeds = result["width"].to_numpy(), result.sizes["seed"]
    for i, name in enumerate(result["agent"].to_numpy()):
        regret = result["regret"].to_numpy()[i].T
        half = half_width(regret) if num_seeds > 1 else np.zeros(len(widths))
        beside = widths + 0.08 * (i - (result.sizes["agent"] - 1) / 2)  # so that intervals do not hide each other
        axes.errorbar(beside, regret.mean(0), half, label=name, marker="o", capsize=3, linewidth=1.2)
    axes.set_xticks(widths)
    axes.set_xlabel("actions of the wide state, W")
    axes.set_ylabel("regret at the end")
    axes.set_ylim(bottom=0)
    axes.set_title(f"WideNarrow: mean of {num_seeds} seeds, 95 % interval")
    axes.legend()
    return drawing


REPRODUCTION = Reproduction(
    source="[BMRL19] WideNarrow: joint and factored Gaussian Thompson sampling",
    run=joint_against_factored,
    rows=rows,
    figure=figure,
    quick={"widths": (6,)},
    seconds={"quick": 60.0, "full": 400.0},
)
