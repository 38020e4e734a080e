"""[BMRL19] (Markou and Rasmussen 2019), summary of regret in WideNarrow with one wide state.

N = 1, T = 1000 W, a new plan every 3 steps. Three steps are once around the ring, so that a batch holds no two rewards
of one pair: the error of the published code changes nothing here.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.envs.wide_narrow import wide_narrow
from bayes_mdp.experiments.papers.bmrl import METHODS, QUICK, Task, summary
from bayes_mdp.experiments.papers.bmrl_published import WIDE_NARROW
from bayes_mdp.experiments.papers.bmrl_tables import draw_summary, summary_rows
from bayes_mdp.experiments.reproduction import Reproduction, Row
from bayes_mdp.experiments.resume import Cells
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.mdp.validation import check_count

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

WIDTHS = (6, 8, 10, 12)
PERIOD = 3  # 2 N + 1


def narrowed(width: int, widest: int) -> StateActionSpace:
    """The space of WideNarrow of W = `width`, inside that of W = `widest`: programs of one shape are compiled once."""
    legal = np.zeros((PERIOD, widest), bool)
    legal[0, :width], legal[1:, 0] = True, True
    return StateActionSpace(PERIOD, widest, legal=legal)


def regret_in_wide_narrow(
    *,
    key: PRNGKeyArray,
    widths: Sequence[int] = WIDTHS,
    methods: Sequence[str] = tuple(METHODS),
    num_seeds: int = 10,
    steps_per_action: int = 1000,
    cells: Cells | None = None,
) -> "xr.Dataset":
    """The `summary` of WideNarrow.

    Args:
        key: a typed key.
        widths: W, of at least 2.
        methods, num_seeds, cells: as in `summary`.
        steps_per_action: T / W.

    Raises:
        ValueError, TypeError: as `summary`; a width below 2.
    """
    check_count("steps_per_action", steps_per_action)
    for width in widths:
        check_count("width", width, 2)
    env = wide_narrow(max(widths))
    tasks = {width: Task(env, narrowed(width, max(widths)), PERIOD, steps_per_action * width) for width in widths}
    return summary(tasks, key=key, size_name="width", methods=methods, num_seeds=num_seeds, cells=cells)


def rows(result: "xr.Dataset") -> list[Row]:
    """The table: verdicts on every W; see `summary_rows`."""
    return summary_rows(result, WIDE_NARROW, "width", "W", judged=WIDTHS)


def figure(result: "xr.Dataset") -> "Figure":
    """Regret beside the published one."""
    return draw_summary(result, WIDE_NARROW, "width", "WideNarrow, actions of the wide state W")


REPRODUCTION = Reproduction(
    source="[BMRL19] regret in WideNarrow, SPEC 1.10",
    run=regret_in_wide_narrow,
    rows=rows,
    figure=figure,
    quick={"methods": QUICK},
    seconds={"quick": 45.0, "full": 60.0},
)
