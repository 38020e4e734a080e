"""[OIM08] (Szita and Lorincz 2008) table 6: FlagMaze, 8 phases of 20,000 steps, 20 runs.

The printed R_max is .005, a V_max of .1. The bonus methods have no row. The paper prints no discount, and here it
decides: the policy that is optimal at .95 earns 1345 of 1884 a phase, at .97 and .98 1866, at .99 all. So .95 and .99
are tried. One flag a trip is worth 1251, two 1591: the published rows but that of Bayesian DP stay with one. Quick
scale leaves Bayesian DP out, whose plans cost more than all the rest.
"""

from bayes_mdp.envs.flag_maze import flag_maze
from reproductions.oim.phases import Published, Task, reproduction

PUBLISHED: Published = {
    "epsilon_greedy": {1: 655.0, 2: 1135.0, 8: 1147.0},
    "boltzmann": {1: 195.0, 2: 1024.0},
    "ieql_plus": {1: 269.0, 2: 253.0},
    "bql": {1: 818.0, 2: 1100.0},
    "bayesian_dp": {1: 750.0, 2: 1763.0, 8: 1864.0},
    "oim": {1: 1133.0, 2: 1169.0, 8: 1171.0},
}
"""Name of a row -> phase -> reward. The paper prints one value of the bonus methods, of phase 5."""
TASK = Task("FlagMaze", flag_maze, 20_000, 3.0, PUBLISHED, 20, (1890.0, 10.0), sweeping=True, discounts=(0.95, 0.99))
CONSTANTS = {
    "epsilon_greedy": {"initial_q": 1.0, "learning_rate": 0.5, "epsilon": 0.2, "half_life": 0.5, "discount": 0.99},
    "boltzmann": {"learning_rate": 0.5, "temperature": 0.02},
    "boltzmann_nearest": {"learning_rate": 0.5, "temperature": 0.05, "discount": 0.99},
    "ieql_plus": {"theta": 0.9, "learning_rate": 0.5, "rate_power": 0.0},
    "bql": {
        "update": "mixture",
        "choose": "vpi",
        "loc": 1.0,
        "pseudo_count": 1.0,
        "concentration": 2.0,
        "rate": 1.0,
        "discount": 0.99,
    },
    "bql_nearest": {
        "update": "mixture",
        "choose": "vpi",
        "loc": 0.0,
        "pseudo_count": 1.0,
        "concentration": 2.0,
        "rate": 1.0,
        "discount": 0.99,
    },
    "bayesian_dp": {"every": 0.01, "loc": 0.0, "rate": 0.0001, "discount": 0.98},
    "oim": {"v_max": 0.8, "discount": 0.99},
    "oim_nearest": {"v_max": 0.025},
    "oim_literal": {"r_max": 0.005},
    "oim_optimistic": {"v_max": 1.0, "discount": 0.99},
}
"""Chosen by `oim_tuning.tune(TASK, num_runs=4, num_phases=3)`; a "nearest" setting that is the tuned one is left out.

Bayesian DP by hand, from twelve settings with 2 or 4 runs: a draw every 100 steps earns more (1026, 1630 and 1709 in
three phases, 400: 546, 1234, 1497) and takes twice as long.
"""

REPRODUCTION = reproduction(
    TASK,
    CONSTANTS,
    "[OIM08] table 6, SPEC 1.5 and parts 4 and 5",
    {"quick": 80.0, "full": 340.0},
    only_full=("bayesian_dp",),
)
