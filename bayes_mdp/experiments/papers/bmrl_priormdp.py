"""[BMRL19] (Markou and Rasmussen 2019), summary of regret in four environments drawn from a prior.

4 states, 2 actions, seeds 0 to 3, T = 5000. The published interval between two plans is a number left over from another
loop (SPEC 1.11 of the project); ours is N_s + 1 = 5 steps.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jaxtyping import PRNGKeyArray

from bayes_mdp.envs.prior_mdp import prior_mdp
from bayes_mdp.experiments.papers.bmrl import METHODS, QUICK, Task, summary
from bayes_mdp.experiments.papers.bmrl_published import PRIOR_MDP
from bayes_mdp.experiments.papers.bmrl_tables import draw_summary, summary_rows
from bayes_mdp.experiments.reproduction import Reproduction, Row
from bayes_mdp.experiments.resume import Cells
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.mdp.validation import check_count

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

ENV_SEEDS = (0, 1, 2, 3)
N_STATES, N_ACTIONS = 4, 2
WATCHED = 0


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
        tasks, key=key, size_name="env_seed", methods=methods, num_seeds=num_seeds, watched=WATCHED, cells=cells
    )


def rows(result: "xr.Dataset") -> list[Row]:
    """The table: verdicts on every environment; see `summary_rows`."""
    return summary_rows(result, PRIOR_MDP, "env_seed", "seed", judged=ENV_SEEDS)


def figure(result: "xr.Dataset") -> "Figure":
    """Regret beside the published one; what is believed of Q in the first two states of seed 0."""
    pairs = [(state, action) for state in range(2) for action in range(N_ACTIONS)]
    return draw_summary(result, PRIOR_MDP, "env_seed", "PriorMDP, seed of the environment", pairs)


REPRODUCTION = Reproduction(
    source="[BMRL19] regret in PriorMDP, SPEC 1.11",
    run=regret_in_prior_mdp,
    rows=rows,
    figure=figure,
    quick={"methods": QUICK},
    seconds={"quick": 45.0, "full": 60.0},
)
