"""[KL21] (O'Donoghue 2021) figure 2: episodes until DeepSea is solved, against its depth L.

Solved by the paper's literal rule, and by the sustained one. Where the paper's words do not follow from what it prints,
the verdict is "differs" and stays so (SPEC Part 7, 13 of the project).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.experiments.papers.klearning import METHODS, case
from bayes_mdp.experiments.papers.klearning_fig2_rows import rows
from bayes_mdp.experiments.reproduction import Reproduction
from bayes_mdp.experiments.resume import Cells
from bayes_mdp.experiments.time_to_solve import play_until_solved
from bayes_mdp.mdp.validation import check_count, check_key, check_name

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

BUDGET, SEEDS = 100_000, 5
DEPTHS = (5, 10, 15, 20, 25, 30, 35, 40, 45, 50)
DITHERING = ("epsilon_greedy_q", "epsilon_greedy_mean", "soft_q", "soft_q_mean", "soft_q_known")
DITHERING_DEPTHS = (*range(4, 17), *DEPTHS[3:])
FULL: dict[str, dict[int, int]] = {
    name: dict.fromkeys(DITHERING_DEPTHS if name in DITHERING else DEPTHS, BUDGET) for name in METHODS
}
_EFFICIENT = ("psrl", "psrl_known", "k_optimal_known", "k_schedule_known", "k_optimal_known_counts")
_SCALING = ("rlsvi", "ucbvi_scaled", "beb_scaled")
QUICK: dict[str, dict[int, int]] = {
    **{name: {5: 3000, 10: 5000} for name in METHODS},
    **{name: {5: 3000, 10: 5000, 20: 5000} for name in (*_EFFICIENT, *_SCALING)},
    "k_optimal_known": {5: 3000, 10: 5000, 20: 5000, 50: 5000},
    "epsilon_greedy_q": dict.fromkeys((5, 6, 10, 16), BUDGET),
    "soft_q": dict.fromkeys((5, 10, 14), BUDGET),
}


def solving_times(
    *,
    key: PRNGKeyArray,
    plan: Mapping[str, Mapping[int, int]] = FULL,
    num_seeds: int = SEEDS,
    cells: Cells | None = None,
) -> "xr.Dataset":
    """Episodes to solve DeepSea by method and depth. The same key for all: they meet the same random numbers.

    Args:
        key: a typed key.
        plan: method -> depth -> the most episodes that are played (1e5 in the paper).
        num_seeds: 5 in the paper.
        cells: keeps every finished (method, depth).

    Returns:
        A Dataset over [agent, depth]: `budget`, the most episodes (0: not tried), `played`; and with [seed] `literal`,
        `sustained` and `first_visit`, in episodes, nan where unsolved or not tried (see `Solved`).

    Raises:
        ValueError, TypeError: an unknown method, a count below 1, no typed key.
    """
    import xarray as xr

    check_key("key", key)
    check_count("num_seeds", num_seeds)
    for name in plan:
        check_name("method", name, METHODS)
    depths = sorted({depth for budgets in plan.values() for depth in budgets})
    shape = (len(plan), len(depths))
    found = {name: np.full((*shape, num_seeds), np.nan) for name in ("literal", "sustained", "first_visit")}
    found |= {name: np.zeros(shape, int) for name in ("budget", "played")}
    todo = [(i, name, depth, most) for i, name in enumerate(plan) for depth, most in plan[name].items()]
    with (cells or Cells()).expect(len(todo)) as kept:
        for i, name, depth, most in todo:
            check_count("budget", most)
            trial = case(name, depth, key, most, num_seeds)
            values = kept.get(f"{name}-{depth}", lambda path, trial=trial: play_until_solved(trial, path)._asdict())
            at = (i, depths.index(depth))
            found["budget"][at], found["played"][at] = most, values["episodes"]
            for rule in ("literal", "sustained", "first_visit"):
                found[rule][at] = values[rule]
    by_cell = ("agent", "depth")
    return xr.Dataset(
        {
            name: (by_cell if values.ndim == 2 else (*by_cell, "seed"), values, {"units": "episodes"})
            for name, values in found.items()
        },
        coords={"agent": list(plan), "depth": depths, "seed": np.arange(num_seeds)},
    )


def figure(result: "xr.Dataset") -> "Figure":
    """Mean episodes over depth, lines by the literal rule, rings by the sustained one; only where all seeds solved."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    colours = colormaps["tab20"].colors  # pyright: ignore[reportAttributeAccessIssue]
    drawing = Figure(figsize=(12.5, 6.0), layout="constrained")
    panels = drawing.subplots(1, 2, sharey=True)
    depths = result["depth"].to_numpy()
    for axes, known in zip(panels, (False, True), strict=True):
        names = [name for name in map(str, result["agent"].to_numpy()) if (METHODS[name].dynamics == "known") == known]
        unsolved = [METHODS[name].label for name in names if not _solved(result, name).any()]
        for number, name in enumerate(name for name in names if METHODS[name].label not in unsolved):
            _line(axes, result, name, colours[(2 * number + number // 10) % 20])
        axes.plot(depths, 2.0 ** (depths - 1.0), color="0.5", linestyle=":", label="2^(L - 1)")
        axes.set_yscale("log")
        axes.set_ylim(1, 2 * BUDGET)
        note = f"\nnot solved: {', '.join(unsolved)}" if unsolved else ""
        axes.set_title(("transitions known" if known else "transitions unknown, or no model") + note, fontsize=9)
        axes.set_xlabel("depth L")
        axes.legend(fontsize=7, ncols=2, loc="lower right")
    panels[0].set_ylabel("episodes to solve")
    seeds = result.sizes["seed"]
    drawing.suptitle(f"DeepSea: mean of {seeds} seeds; lines: literal rule, rings: sustained rule")
    return drawing


def _solved(result: "xr.Dataset", name: str) -> np.ndarray:
    """[depth], whether all seeds are solved by the literal rule."""
    return np.asarray(np.isfinite(result["literal"].sel(agent=name).to_numpy()).all(-1))


def _line(axes: Any, result: "xr.Dataset", name: str, colour: Any) -> None:
    depths, solved, one = result["depth"].to_numpy(), _solved(result, name), result.sel(agent=name)
    literal, sustained = (one[rule].to_numpy().mean(-1) for rule in ("literal", "sustained"))
    axes.plot(depths[solved], literal[solved], color=colour, marker=".", label=METHODS[name].label)
    axes.plot(depths, sustained, color=colour, linestyle="", marker="o", markerfacecolor="none", markersize=7)


REPRODUCTION = Reproduction(
    source="[KL21] figure 2, SPEC 1.8 and Part 7",
    run=solving_times,
    rows=rows,
    figure=figure,
    quick={"plan": QUICK},
    seconds={"quick": 240.0, "full": 16000.0},
)
