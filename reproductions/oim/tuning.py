"""How the constants of [OIM08] tables 4 to 6 were chosen: every setting of `GRIDS`, with a key of its own."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from reproductions.oim.phase_methods import DISCOUNT, GRIDS, METHODS, TUNING_KEY
from reproductions.oim.phases import PHASES, Task, optimum_of, rewards

_EQUAL = 1e-3


def tune(
    task: Task, kinds: Sequence[str] = tuple(GRIDS), *, num_runs: int = 32, num_phases: int = PHASES
) -> dict[str, dict[str, Any]]:
    """Print what every setting of the grids earns, and return the best ones by name of the method.

    Args:
        task: where.
        kinds: keys of `GRIDS`.
        num_runs, num_phases: of every setting.

    Returns:
        "tuned": the setting with the largest mean reward (of several within .1 % of it, which so few runs cannot tell
        apart, the middle one of the grid: the edge of a plateau is fragile); "nearest": that with the least sum of
        squared distances from the published phases.
    """
    chosen: dict[str, dict[str, Any]] = {}
    for kind in kinds:
        key = jax.random.key(TUNING_KEY)
        grid = [_with(discount, c) for discount in task.discounts for c in GRIDS[kind]]
        means = np.array([rewards(task, (kind, c), key, num_runs, num_phases).mean(0) for c in grid])
        for constants, mean in zip(grid, means, strict=True):
            print(f"{kind} {constants}: {mean.mean() / optimum_of(task):.3f}, phases {np.round(mean, 1)}", flush=True)
        for name, method in METHODS.items():
            if method.kind != kind or method.choice == "given":
                continue
            beside = {p: x for p, x in task.published.get(method.row, {}).items() if p <= num_phases}
            off = [sum((mean[p - 1] - x) ** 2 for p, x in beside.items()) for mean in means]
            tuned = _middle_of_the_best(means.mean(1))
            nearest = tuned if off[tuned] == min(off) else int(np.argmin(off))
            chosen[name] = dict(grid[tuned if method.choice == "tuned" else nearest])
            print(f"-> {name}: {chosen[name]}", flush=True)
    return chosen


def _with(discount: float, constants: Mapping[str, Any]) -> dict[str, Any]:
    return dict(constants) if discount == DISCOUNT else {**constants, "discount": discount}


def _middle_of_the_best(means: np.ndarray) -> int:
    best = np.flatnonzero(means >= (1 - _EQUAL) * means.max())
    return int(best[len(best) // 2])
