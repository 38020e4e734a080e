"""The table of [KL21] figure 2: the levels of our specification, then what the paper says in words.

A level agrees within a factor of 2; how a claim in words is read is said beside it. A time that is not reached counts
as infinite.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bayes_mdp.experiments.intervals import half_width
from reproductions.klearning.deep_sea_methods import METHODS
from reproductions.reproduction import Row

if TYPE_CHECKING:
    import xarray as xr

BUDGET = 100_000
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
    return _mean(f"{name}: episodes over 2^(L - 1), L = {LINE_DEPTH}", samples, (0.0, 1.0))


def _mean(quantity: str, samples: np.ndarray, band: tuple[float, float] | None = None) -> Row:
    if not np.isfinite(samples).all():
        return Row(quantity, None, INFINITE, INFINITE, band)
    half = float(half_width(samples)) if len(samples) > 1 else INFINITE
    return Row(quantity, None, float(samples.mean()), half, band)


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
        table += [_mean(f"{name}, L = {depth}: mean", _times(result, name, depth)) for depth in depths]
        sustained = _times(result, name, depths[-1], "sustained")
        table.append(_mean(f"{name}, L = {depths[-1]}: mean, sustained rule", sustained))
    return table
