"""[KL21] (O'Donoghue 2021) figure 2: episodes until DeepSea is solved, against its depth L.

Solved by the paper's literal rule, and by the sustained one. The table has the levels that our constants lead to, then
what the paper states in words. A level agrees within a factor of 2; how words are read is stated beside each. A time
that is not reached counts as infinite. Where the words do not follow from what the paper prints, the verdict is
"differs" and stays so.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.experiments.results import half_width
from bayes_mdp.experiments.resume import Cells, ComputeCell
from bayes_mdp.experiments.rollout.execute import play_until_solved
from bayes_mdp.utils.validation import check_count, check_key, check_name
from reproductions.klearning.deep_sea_methods import METHODS, case
from reproductions.reproduction import Reproduction, Row, mean_row

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
    # 2,000 episodes at L = 20 show who is left behind: PSRL needs 440 there, the grey line is 520,000.
    **{name: {5: 3000, 10: 5000, 20: 2000} for name in METHODS},
    **{name: {5: 3000, 10: 5000, 20: 5000} for name in (*_EFFICIENT, *_SCALING)},
    "k_optimal_known": {5: 3000, 10: 5000, 20: 5000, 50: 5000},
    "epsilon_greedy_q": dict.fromkeys((5, 6, 10, 16), BUDGET),
    "soft_q": dict.fromkeys((5, 10, 14), BUDGET),
}
INFINITE = float("inf")
LEVELS: dict[tuple[str, int], float] = {
    ("k_optimal_known", 5): 6.0,
    ("k_optimal_known", 10): 36.0,
    ("k_optimal_known", 20): 122.0,
    ("k_optimal_known", 50): 1580.0,
    ("k_optimal_known_counts", 5): 14.0,
    ("k_optimal_known_counts", 10): 59.0,
    ("k_optimal_known_counts", 20): 270.0,
    ("psrl", 5): 16.0,
    ("psrl", 10): 64.0,
    ("psrl", 20): 420.0,
    ("psrl_known", 5): 10.0,
    ("psrl_known", 10): 26.0,
    ("psrl_known", 20): 98.0,
    ("epsilon_greedy_q", 5): 189.0,
    ("epsilon_greedy_q", 10): 6674.0,
}
LARGEST = {"epsilon_greedy_q": 6, "soft_q": 14}
PAPERS = ("rlsvi", "ucbvi", "ucb_h", "beb", "psrl", "k_optimal", "k_schedule")
READINGS = ("k_optimal_span1", "k_schedule_span1", "k_optimal_known", "k_schedule_known")
OURS = ("ucbvi_scaled", "ucb_h_scaled", "beb_scaled")
RIVALS = ("rlsvi", "ucbvi_scaled", "ucb_h_scaled", "beb_scaled")
NOT_PLOTTED = ("bolt", "ucfh", "ucrl2")
LINE_DEPTH = 10
GROWTH = (("epsilon_greedy_q", 5, 10), ("soft_q", 5, 10))
LEAST_GROWTH = 1.5


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
    computes: dict[str, ComputeCell] = {}
    for _, name, depth, most in todo:
        check_count("budget", most)
        trial = case(name, depth, key, most, num_seeds)
        computes[f"{name}-{depth}"] = lambda path, trial=trial: play_until_solved(trial, path)._asdict()
    played = (cells or Cells()).get_all(computes)
    for i, name, depth, most in todo:
        values, at = played[f"{name}-{depth}"], (i, depths.index(depth))
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


def rows(result: "xr.Dataset") -> list[Row]:
    """The table of a Dataset of `solving_times`: rows for the methods and depths that were tried."""
    table = [_level(result, name, depth) for name, depth in LEVELS if _tried(result, name, depth)]
    if _tried(result, "k_optimal_known", 50):
        sustained = _times(result, "k_optimal_known", 50, "sustained")
        table.append(_median("sustained rule: k_optimal_known, L = 50", 1580.0, sustained))
    table += [_largest(result, name, depth) for name, depth in LARGEST.items() if name in _methods(result)]
    table += [_growth(result, *cells) for cells in GROWTH if all(_tried(result, cells[0], L) for L in cells[1:])]
    table += [_below_the_line(result, name) for name in (*PAPERS, *READINGS, *OURS) if _tried(result, name, LINE_DEPTH)]
    table += [_schedule_over_optimal(result, reading) for reading in ("_span1", "_known") if _both(result, reading)]
    table += _fastest_rival(result)
    table += [
        _ratio(
            f"{METHODS[name].label} / epsilon-greedy Q, L = 5",
            result,
            (name, 5),
            ("epsilon_greedy_q", 5),
            (0.5, INFINITE),
        )
        for name in NOT_PLOTTED
        if _tried(result, name, 5) and _tried(result, "epsilon_greedy_q", 5)
    ]
    return table + _orientation(result)


def _methods(result: "xr.Dataset") -> list[str]:
    return [str(name) for name in result["agent"].to_numpy()]


def _tried(result: "xr.Dataset", name: str, depth: int) -> bool:
    return _budget(result, name, depth) > 0


def _budget(result: "xr.Dataset", name: str, depth: int) -> int:
    if name not in _methods(result) or depth not in result["depth"].to_numpy():
        return 0
    return int(result["budget"].sel(agent=name, depth=depth))


def _times(result: "xr.Dataset", name: str, depth: int, rule: str = "literal") -> np.ndarray:
    """[seed], infinite where unsolved."""
    return np.nan_to_num(result[rule].sel(agent=name, depth=depth).to_numpy(), nan=INFINITE)


def _level(result: "xr.Dataset", name: str, depth: int) -> Row:
    return _median(f"{name}, L = {depth}", LEVELS[name, depth], _times(result, name, depth))


def _median(quantity: str, published: float, samples: np.ndarray) -> Row:
    """A median; half the range of five seeds covers it with 94 %."""
    finite = np.isfinite(samples).all()
    half = float(np.ptp(samples)) / 2 if finite else INFINITE
    return Row(quantity, published, float(np.median(samples)), half, (published / 2, published * 2))


def _largest(result: "xr.Dataset", name: str, published: int) -> Row:
    """The largest depth of which all seeds are solved: between the largest that is, and the next that was tried."""
    depths = [int(depth) for depth in result["depth"].to_numpy() if _tried(result, name, int(depth))]
    solved = [depth for depth in depths if np.isfinite(_times(result, name, depth)).all()]
    low = max(solved, default=0)
    high = min((depth for depth in depths if depth > low), default=INFINITE) - 1
    decided = all(_budget(result, name, depth) >= BUDGET for depth in depths) and high < INFINITE
    ours, half = ((low + high) / 2, (high - low) / 2) if decided else (float(low), INFINITE)
    return Row(f"{name}: largest L solved within 1e5", float(published), ours, half, (published, published))


def _growth(result: "xr.Dataset", name: str, low: int, high: int) -> Row:
    """ "Time exponential in the size", read as: mean episodes grow by 1.5 or more with every unit of L.

    The interval is by linearisation, seeds paired; where the larger depth is not solved the factor is infinite.
    """
    quantity = f"{name}: growth of episodes per unit of L, L = {low} to {high}"
    ratio = _ratio(quantity, result, (name, high), (name, low), (LEAST_GROWTH, INFINITE))
    factor = ratio.ours ** (1 / (high - low))
    half = ratio.half / ratio.ours * factor / (high - low) if np.isfinite(factor) else INFINITE
    return replace(ratio, ours=factor, half=half)


def _below_the_line(result: "xr.Dataset", name: str) -> Row:
    """ "Scales gracefully", read as: below the grey line 2^(L - 1) at L = 10."""
    samples = _times(result, name, LINE_DEPTH) / 2.0 ** (LINE_DEPTH - 1)
    return mean_row(f"{name}: episodes over 2^(L - 1), L = {LINE_DEPTH}", None, samples, (0.0, 1.0))


def _both(result: "xr.Dataset", reading: str) -> bool:
    return all(_tried(result, f"k_{rule}{reading}", LINE_DEPTH) for rule in ("optimal", "schedule"))


def _schedule_over_optimal(result: "xr.Dataset", reading: str) -> Row:
    """ "The optimal choice performs slightly better", read as: fewer episodes on average at L = 10."""
    quantity = f"K-learning{reading.replace('_', ', ')}: schedule / optimal, L = {LINE_DEPTH}"
    above, below = ((f"k_{rule}{reading}", LINE_DEPTH) for rule in ("schedule", "optimal"))
    return _ratio(quantity, result, above, below, (1.0, INFINITE))


def _fastest_rival(result: "xr.Dataset") -> list[Row]:
    """ "Clearly Thompson sampling and K-learning are the most efficient", read as: the best rival takes longer."""
    tried = [name for name in RIVALS if _tried(result, name, LINE_DEPTH)]
    if not tried:
        return []
    best = min(tried, key=lambda name: _times(result, name, LINE_DEPTH).mean())
    return [
        _ratio(
            f"fastest rival / {name}, L = {LINE_DEPTH}", result, (best, LINE_DEPTH), (name, LINE_DEPTH), (1.0, INFINITE)
        )
        for name in ("psrl", "k_optimal", "k_optimal_span1")
        if _tried(result, name, LINE_DEPTH)
    ]


def _ratio(quantity: str, result: "xr.Dataset", above: tuple[str, int], below: tuple[str, int], band: Any) -> Row:
    """The ratio of the mean times of two cells, its interval by linearisation; infinite or 0 where one is unsolved."""
    top, bottom = _times(result, *above), _times(result, *below)
    if not np.isfinite(bottom).all():
        return Row(quantity, None, 0.0 if np.isfinite(top).all() else float("nan"), 0.0, band)
    if not np.isfinite(top).all():
        return Row(quantity, None, INFINITE, INFINITE, band)
    ratio = float(top.mean() / bottom.mean())
    half = float(half_width((top - ratio * bottom) / bottom.mean())) if len(top) > 1 else INFINITE
    return Row(quantity, None, ratio, half, band)


def _orientation(result: "xr.Dataset") -> list[Row]:
    """Every cell without a verdict, the deepest of a method by the sustained rule as well."""
    table = []
    for name in _methods(result):
        depths = [int(depth) for depth in result["depth"].to_numpy() if _tried(result, name, int(depth))]
        table += [mean_row(f"{name}, L = {depth}: mean", None, _times(result, name, depth)) for depth in depths]
        sustained = _times(result, name, depths[-1], "sustained")
        table.append(mean_row(f"{name}, L = {depths[-1]}: mean, sustained rule", None, sustained))
    return table


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
    source="[KL21] figure 2: episodes until DeepSea is solved",
    run=solving_times,
    rows=rows,
    figure=figure,
    quick={"plan": QUICK},
    seconds={"quick": 330.0, "full": 16000.0},
)
