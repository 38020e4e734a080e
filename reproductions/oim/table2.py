"""[OIM08] (Szita and Lorincz 2008) table 2: SixArms. See `oim_totals`.

Few runs find the best arm, and those that do earn up to 29e6: the totals have heavy tails. OIM agrees at the edge of
the joint interval, 8.9e6 +- .5e6 where 10.0e6 +- .7e6 are published; 5000 runs with another key earn 9.2e6 +- .2e6.
Which action takes a tie moves it by more than that.
"""

from bayes_mdp.agents import E3, MBIE, MBIEEB, OIM, RMax
from bayes_mdp.envs.six_arms import six_arms
from reproductions.oim.totals import Method, Task, grid, reproduction

R_MAX = 6000.0
V_MAX = 120_000.0
"""R_MAX / (1 - .95)."""

_MBIE_EB = {"beta": 0.8 * R_MAX, "v_max": V_MAX}
_OIM = {"discount": 0.9, "v_max": 50_000.0}
METHODS = {
    "e3": Method("E3, tuned", "e3", E3, {"num_visits": 5, "threshold": 0.1}),
    "r_max": Method("R-max, tuned", "r_max", RMax, {"num_visits": 6, "v_max": V_MAX}, True),
    "mbie": Method("MBIE", "mbie", MBIE, {"reward_width": 0.3 * R_MAX, "transition_width": 0.08, "v_max": V_MAX}, True),
    "mbie_eb": Method("MBIE-EB", "mbie_eb", MBIEEB, _MBIE_EB, True),
    "oim": Method("OIM, tuned", "oim", OIM, _OIM, True, draws_ties=True),
    "oim_literal": Method("OIM, printed R_max", "oim", OIM, {"v_max": 200_000.0}, draws_ties=True),
    "oim_optimistic": Method("OIM, optimistic", "oim", OIM, {"v_max": V_MAX}, draws_ties=True),
    "mbie_eb_drawn": Method("MBIE-EB, ties drawn", "mbie_eb", MBIEEB, _MBIE_EB, draws_ties=True),
    "oim_first": Method("OIM, tuned, ties to the first", "oim", OIM, _OIM),
}
"""MBIE, MBIE-EB: constants of Strehl and Littman's experiments. max V* is that of the last room, `V_MAX`."""

TASK = Task(
    label="SixArms",
    env=six_arms,
    published={
        "e3": (1.623e6, 0.244e6),
        "r_max": (2.819e6, 0.256e6),
        "mbie": (9.205e6, 0.559e6),
        "mbie_eb": (9.486e6, 0.587e6),
        "oim": (10.007e6, 0.654e6),
    },
    methods=METHODS,
    grids={
        "e3": grid("num_visits threshold", *[(m, p) for m in (3, 4, 5, 6, 8) for p in (0.1, 0.5)]),
        "r_max": grid("v_max num_visits", *[(V_MAX, m) for m in (2, 3, 4, 5, 6, 7, 8, 12)]),
        "oim": grid(
            "discount v_max",
            *[(0.95, v) for v in (2e4, 4e4, 6e4, 7e4, 8e4, 9e4, 10e4, 11e4, 12e4)],
            *[(0.9, v) for v in (1e4, 2e4, 3e4, 4e4, 5e4, 6e4)],
        ),
    },
)

REPRODUCTION = reproduction(
    TASK,
    "[OIM08] table 2, SPEC 1.2, 2.15 and 2.16",
    {"quick": 30.0, "full": 150.0},
    only_full=("mbie_eb_drawn", "oim_first"),
)
