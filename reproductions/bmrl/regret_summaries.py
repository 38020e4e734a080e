"""[BMRL19] (Markou and Rasmussen 2019), summaries of regret: continuing DeepSea, WideNarrow, PriorMDP.

DeepSea: T = 1250 N, a new plan every N + 1 steps, rewards with noise of standard deviation delta: the text has none,
the published curves were made with it.

WideNarrow: one wide state (N = 1), T = 1000 W, a new plan every 3 steps. Three steps are once around the ring, so that
a batch holds no two rewards of one pair: the error of the published code changes nothing here.

PriorMDP: four environments drawn from a prior, 4 states, 2 actions, seeds 0 to 3, T = 5000. The published interval
between two plans is a number left over from another loop; ours is N_s + 1 = 5 steps.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.envs.papers.chain_mdps import LEFT, RIGHT, deep_sea_continuing, wide_narrow
from bayes_mdp.envs.papers.random_mdps import prior_mdp
from bayes_mdp.experiments.resume import Cells
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.utils.validation import check_count
from reproductions.bmrl import published_regret as published
from reproductions.bmrl.summary_runs import METHODS, QUICK, Task, summary
from reproductions.bmrl.summary_tables import Table, draw_summary, summary_rows
from reproductions.reproduction import Reproduction

if TYPE_CHECKING:
    import xarray as xr

SIZES = (4, 6, 8, 10, 12)
WATCHED_SIZE = 4


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
        tasks, key=key, size_name="n_states", methods=methods, num_seeds=num_seeds, watched=WATCHED_SIZE, cells=cells
    )


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


ENV_SEEDS = (0, 1, 2, 3)
N_STATES, N_ACTIONS = 4, 2
WATCHED_SEED = 0


def regret_in_prior_mdp(
    *,
    key: PRNGKeyArray,
    env_seeds: Sequence[int] = ENV_SEEDS,
    methods: Sequence[str] = tuple(METHODS),
    num_seeds: int = 10,
    steps_per_state: int = 1250,
    period: int = N_STATES + 1,
    cells: Cells | None = None,
) -> "xr.Dataset":
    """The `summary` of PriorMDP; what is believed of Q is kept for seed 0.

    Args:
        key: a typed key.
        env_seeds: of the environments.
        methods, num_seeds, cells: as in `summary`.
        steps_per_state: T / N_s.
        period: steps between two plans.

    Raises:
        ValueError, TypeError: as `summary`; a count below 1.
    """
    check_count("steps_per_state", steps_per_state)
    check_count("period", period)
    space = StateActionSpace(N_STATES, N_ACTIONS)
    tasks = {
        seed: Task(prior_mdp(seed, N_STATES, N_ACTIONS), space, period, steps_per_state * N_STATES)
        for seed in env_seeds
    }
    return summary(
        tasks, key=key, size_name="env_seed", methods=methods, num_seeds=num_seeds, watched=WATCHED_SEED, cells=cells
    )


def _reproduction(
    source: str,
    run: "Callable[..., xr.Dataset]",
    table: Table,
    *,
    pairs: Sequence[tuple[int, int]] = (),
    quick: Mapping[str, Any] | None = None,
    seconds: float = 60.0,
) -> Reproduction:
    """The experiment of a summary.

    Args:
        source, run: of the `Reproduction`.
        table: what is published of it.
        pairs: states and actions of which Q is drawn.
        quick: options at quick scale, beside the methods.
        seconds: at full scale.
    """
    return Reproduction(
        source=source,
        run=run,
        rows=partial(summary_rows, table=table),
        figure=partial(draw_summary, table=table, pairs=pairs),
        quick={**(quick or {}), "methods": QUICK},
        seconds={"quick": 45.0, "full": seconds},
    )


DEEP_SEA = _reproduction(
    "[BMRL19] regret in continuing DeepSea",
    regret_in_deep_sea,
    Table(published.DEEP_SEA, "n_states", "N", (WATCHED_SIZE,), "continuing DeepSea, number of states N"),
    pairs=[(0, LEFT), (0, RIGHT), (WATCHED_SIZE - 1, LEFT), (WATCHED_SIZE - 1, RIGHT)],
    quick={"sizes": (WATCHED_SIZE,)},
    seconds=400.0,
)
WIDE_NARROW = _reproduction(
    "[BMRL19] regret in WideNarrow",
    regret_in_wide_narrow,
    Table(published.WIDE_NARROW, "width", "W", WIDTHS, "WideNarrow, actions of the wide state W"),
)
PRIOR_MDP = _reproduction(
    "[BMRL19] regret in PriorMDP",
    regret_in_prior_mdp,
    Table(published.PRIOR_MDP, "env_seed", "seed", ENV_SEEDS, "PriorMDP, seed of the environment"),
    pairs=[(state, action) for state in range(2) for action in range(N_ACTIONS)],
)
