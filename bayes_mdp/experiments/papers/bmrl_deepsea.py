"""[BMRL19] (Markou and Rasmussen 2019), summary of regret in continuing DeepSea.

T = 1250 N, a new plan every N + 1 steps, rewards with noise of standard deviation delta: the text has none, the
published curves were made with it (SPEC 1.9 of the project).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jaxtyping import PRNGKeyArray

from bayes_mdp.envs.deep_sea_continuing import LEFT, RIGHT, deep_sea_continuing
from bayes_mdp.experiments.papers.bmrl import METHODS, QUICK, Task, summary
from bayes_mdp.experiments.papers.bmrl_published import DEEP_SEA
from bayes_mdp.experiments.papers.bmrl_tables import draw_summary, summary_rows
from bayes_mdp.experiments.reproduction import Reproduction, Row
from bayes_mdp.experiments.resume import Cells
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.mdp.validation import check_count

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

SIZES = (4, 6, 8, 10, 12)
WATCHED = 4


def regret_in_deep_sea(
    *,
    key: PRNGKeyArray,
    sizes: Sequence[int] = SIZES,
    methods: Sequence[str] = tuple(METHODS),
    num_seeds: int = 10,
    steps_per_state: int = 1250,
    cells: Cells | None = None,
) -> "xr.Dataset":
    """The `summary` of continuing DeepSea; what is believed of Q is kept for N = 4.

    Args:
        key: a typed key.
        sizes: N, of at least 3.
        methods, num_seeds, cells: as in `summary`.
        steps_per_state: T / N.

    Raises:
        ValueError, TypeError: as `summary`; a size below 3.
    """
    check_count("steps_per_state", steps_per_state)
    tasks = {
        size: Task(
            deep_sea_continuing(size, noise="delta"), StateActionSpace(size, 2), size + 1, steps_per_state * size
        )
        for size in sizes
    }
    return summary(
        tasks, key=key, size_name="n_states", methods=methods, num_seeds=num_seeds, watched=WATCHED, cells=cells
    )


def rows(result: "xr.Dataset") -> list[Row]:
    """The table: verdicts on N = 4, and on how many sizes agree; see `summary_rows`."""
    return summary_rows(result, DEEP_SEA, "n_states", "N", judged=(WATCHED,))


def figure(result: "xr.Dataset") -> "Figure":
    """Regret beside the published one; what is believed of Q in the first and the last state of N = 4."""
    pairs = [(0, LEFT), (0, RIGHT), (WATCHED - 1, LEFT), (WATCHED - 1, RIGHT)]
    return draw_summary(result, DEEP_SEA, "n_states", "continuing DeepSea, number of states N", pairs)


REPRODUCTION = Reproduction(
    source="[BMRL19] regret in DeepSea, SPEC 1.9",
    run=regret_in_deep_sea,
    rows=rows,
    figure=figure,
    quick={"sizes": (WATCHED,), "methods": QUICK},
    seconds={"quick": 45.0, "full": 400.0},
)
