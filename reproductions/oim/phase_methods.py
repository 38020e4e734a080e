"""The methods of [OIM08] tables 4 to 6: how their constants make an agent, what was tried, how they were chosen.

All settings of `GRIDS` were tried with `TUNING_KEY`, which no reported run uses. "tuned" has the largest reward over
all phases; "nearest" comes nearest to the published row: it shows whether some constants lead there, no more. Units:
the largest reward of a step (temperatures, priors, bonuses), the largest optimal value (v_max, initial_q), a phase
(half-lives, intervals between draws).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bayes_mdp.agents import BQL, OIM, AnnealedQ, BayesianDP, BoltzmannQ, ErrorBonusQ, IEQLPlus, VarianceBonusQ
from bayes_mdp.agents.model_based.empirical_planning import ExactPlanner, PrioritizedSweeping
from reproductions.oim.random_ties import RandomTies

DISCOUNT = 0.95
TUNING_KEY = 2008
INFINITE = float("inf")
Constants = Mapping[str, Any]


@dataclass(frozen=True)
class Scales:
    """Units of the constants of a task.

    Args:
        reward: the largest reward of one step.
        value: the largest optimal value of a state.
        phase: steps of a phase.
        sweeping: prioritized sweeping for OIM; False: exact plans.
    """

    reward: float
    value: float
    phase: int
    sweeping: bool = False


@dataclass(frozen=True)
class Method:
    """A row of ours.

    Args:
        label: for table and figure.
        row: the published row that it is compared with.
        kind: of agent, as for `build`.
        judged: whether it gets a verdict.
        choice: of its constants, "tuned", "nearest", or "given".
    """

    label: str
    row: str
    kind: str
    judged: bool = False
    choice: str = "tuned"


METHODS: dict[str, Method] = {
    "variance_bonus": Method("QL + variance bonus", "variance_bonus", "variance_bonus"),
    "error_bonus": Method("QL + error bonus", "error_bonus", "error_bonus"),
    "epsilon_greedy": Method("QL eps-greedy", "epsilon_greedy", "epsilon_greedy", True),
    "epsilon_greedy_nearest": Method("QL eps-greedy, nearest", "epsilon_greedy", "epsilon_greedy", True, "nearest"),
    "boltzmann": Method("QL Boltzmann", "boltzmann", "boltzmann", True),
    "boltzmann_nearest": Method("QL Boltzmann, nearest", "boltzmann", "boltzmann", True, "nearest"),
    "ieql_plus": Method("IEQL+", "ieql_plus", "ieql_plus"),
    "bql": Method("Bayesian QL", "bql", "bql", True),
    "bql_nearest": Method("Bayesian QL, nearest", "bql", "bql", True, "nearest"),
    "bayesian_dp": Method("Bayesian DP", "bayesian_dp", "bayesian_dp"),
    "oim": Method("OIM", "oim", "oim", True),
    "oim_nearest": Method("OIM, nearest", "oim", "oim", True, "nearest"),
    "oim_literal": Method("OIM, printed R_max", "oim", "oim", choice="given"),
    "oim_optimistic": Method("OIM, optimistic", "oim", "oim", choice="given"),
}


def grid(names: str, *rows: tuple[Any, ...]) -> tuple[dict[str, Any], ...]:
    """Constants by name, one setting a row."""
    return tuple(dict(zip(names.split(), row, strict=True)) for row in rows)


BQL_CONSTANTS = "update choose loc pseudo_count concentration rate"
_BONUS = [(rate, scale, life) for rate in (0.1, 0.3) for scale in (10.0, 100.0) for life in (1.0, INFINITE)]
GRIDS: dict[str, tuple[dict[str, Any], ...]] = {
    "variance_bonus": grid("learning_rate scale half_life", *_BONUS),
    "error_bonus": grid("learning_rate scale half_life", *_BONUS),
    "epsilon_greedy": grid(
        "initial_q learning_rate epsilon half_life",
        *[
            (first, rate, *schedule)
            for first in (0.0, 1.0)
            for rate in (0.1, 0.5, 1.0)
            for schedule in ((0.1, INFINITE), (0.2, 0.5), (1.0, 0.2), (1.0, 0.5))
        ],
    ),
    "boltzmann": grid(
        "learning_rate temperature", *[(a, t) for a in (0.1, 0.5) for t in (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)]
    ),
    "ieql_plus": grid(
        "theta learning_rate rate_power",
        *[(theta, *rate) for theta in (0.05, 0.5, 0.9) for rate in ((0.1, 0.0), (0.5, 0.0), (1.0, 0.5))],
    ),
    "bql": grid(
        BQL_CONSTANTS,
        *[
            (update, choose, *prior)
            for update, choose in (("mixture", "vpi"), ("mixture", "thompson"), ("moment", "vpi"))
            for prior in (
                (0.0, 1.0, 2.0, 1.0),
                (0.0, 4.0, 3.0, 3.0),
                (1.0, 1.0, 2.0, 1.0),
                (2.0, 1.0, 2.0, 1.0),
                (2.0, 0.1, 2.0, 5.0),
                (4.0, 1.0, 2.0, 4.0),
            )
        ],
    ),
    "bayesian_dp": grid(
        "every loc rate",
        *[(0.005, 0.0, rate) for rate in (1e-4, 1e-3, 1e-2, 0.1, 1.0)],
        (0.005, 0.5, 0.1),
        *[(0.02, loc, rate) for loc, rate in ((0.0, 1e-4), (0.0, 0.1), (0.0, 1.0), (0.5, 0.1))],
    ),
    "oim": grid("v_max", *[(v,) for v in (0.025, 0.1, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1)]),
}
"""What was tried for every kind of agent."""


def build(kind: str, constants: Constants, scales: Scales) -> tuple[Any, Any]:
    """(agent, prior; None: it carries its own belief).

    Args:
        kind: a key of `GRIDS`.
        constants: the names of its grid; of "oim" `r_max`, in units of the task, in place of `v_max`, too.
        scales: the units.
    """
    c, unit = dict(constants), scales.reward
    if kind == "bayesian_dp":
        return BayesianDP(max(1, round(c["every"] * scales.phase))), _prior(c["loc"] * unit, c["rate"] * unit**2)  # pyright: ignore[reportArgumentType]
    if "half_life" in c:
        c["half_life"] *= scales.phase
    if kind == "epsilon_greedy":
        agent: Any = AnnealedQ(**(c | {"initial_q": c["initial_q"] * scales.value}))
    elif kind == "boltzmann":
        agent = BoltzmannQ(c["temperature"] * unit, c["learning_rate"])
    elif kind == "ieql_plus":
        agent = IEQLPlus(max_reward=unit, **c)
    elif kind == "variance_bonus":
        agent = VarianceBonusQ(initial_bonus=2 * unit, prior_sd=unit, **c)
    elif kind == "error_bonus":
        agent = ErrorBonusQ(initial_bonus=2 * unit, **c)
    elif kind == "bql":
        agent = BQL(**(c | {"loc": c["loc"] * unit, "rate": c["rate"] * unit**2}))
    else:
        v_max = c["v_max"] * scales.value if "v_max" in c else c["r_max"] / (1 - DISCOUNT)
        planner = PrioritizedSweeping(10, 1e-4 * scales.value, 4, 32) if scales.sweeping else ExactPlanner()
        agent = OIM(v_max=v_max, planner=planner)
    return RandomTies(agent), None


def _prior(loc: float, rate: float) -> Any:
    """Dirichlet(1) on the listed successors; mean rewards normal-gamma (loc, 1, 2, rate)."""
    from bayes_mdp.models import dirichlet_normal_gamma

    return dirichlet_normal_gamma(1.0, loc, 1.0, 2.0, rate)
