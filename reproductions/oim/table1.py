"""[OIM08] (Szita and Lorincz 2008) table 1: RiverSwim. See `oim_totals`."""

from bayes_mdp.agents import E3, MBIE, MBIEEB, OIM, RMax
from bayes_mdp.envs.riverswim import riverswim
from reproductions.oim.totals import Method, Task, grid, reproduction

R_MAX = 10_000.0
V_MAX = 200_000.0
"""R_MAX / (1 - .95)."""

METHODS = {
    "e3": Method("E3, tuned", "e3", E3, {"num_visits": 16, "threshold": 0.1}),
    "r_max": Method("R-max", "r_max", RMax, {"num_visits": 16, "v_max": V_MAX}, True),
    "mbie": Method("MBIE", "mbie", MBIE, {"reward_width": 0.3 * R_MAX, "transition_width": None, "v_max": V_MAX}, True),
    "mbie_eb": Method("MBIE-EB", "mbie_eb", MBIEEB, {"beta": 0.4 * R_MAX, "v_max": V_MAX}, True),
    "oim": Method("OIM, tuned", "oim", OIM, {"discount": 0.95, "v_max": 3000.0}, True, draws_ties=True),
    "oim_literal": Method("OIM, printed R_max", "oim", OIM, {"v_max": 40_000.0}, draws_ties=True),
    "oim_optimistic": Method("OIM, optimistic", "oim", OIM, {"v_max": 16_800.0}, draws_ties=True),
}
"""R-max (by a secondary source), MBIE, MBIE-EB: constants of Strehl and Littman's experiments. max V* is 16795.6."""

TASK = Task(
    label="RiverSwim",
    env=riverswim,
    published={
        "e3": (3.020e6, 0.027e6),
        "r_max": (3.014e6, 0.039e6),
        "mbie": (3.168e6, 0.023e6),
        "mbie_eb": (3.093e6, 0.023e6),
        "oim": (3.201e6, 0.016e6),
    },
    methods=METHODS,
    grids={
        "e3": grid("num_visits threshold", *[(m, p) for m in (8, 12, 16, 20, 24) for p in (0.1, 0.5)]),
        "oim": grid(
            "discount v_max",
            *[(0.95, v) for v in (2e3, 3e3, 4e3, 5e3, 6e3, 8e3, 10e3, 15e3, 20e3)],
            *[(0.9, v) for v in (1e3, 2e3, 3e3, 5e3, 10e3, 20e3)],
        ),
    },
)

REPRODUCTION = reproduction(TASK, "[OIM08] table 1, SPEC 1.1, 2.15 and 2.16", {"quick": 20.0, "full": 45.0})
