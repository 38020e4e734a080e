"""[OIM08] (Szita and Lorincz 2008) table 4: Chain, 8 phases of 1000 steps, 256 runs.

The printed R_max is .5, a V_max of 10. Compiling is what costs: both scales are the same.
"""

from bayes_mdp.envs.chain import chain
from reproductions.oim.phase_methods import INFINITE
from reproductions.oim.phases import Published, Task, reproduction

PUBLISHED: Published = {
    "variance_bonus": {5: 2570.0},
    "error_bonus": {5: 2530.0},
    "epsilon_greedy": {1: 1519.0, 2: 1611.0, 8: 1602.0},
    "boltzmann": {1: 1606.0, 2: 1623.0},
    "ieql_plus": {1: 2344.0, 2: 2557.0},
    "bql": {1: 1697.0, 2: 2417.0},
    "bayesian_dp": {1: 3158.0, 2: 3611.0, 8: 3643.0},
    "oim": {1: 3510.0, 2: 3628.0, 8: 3643.0},
}
"""Name of a row -> phase -> reward. The paper prints one value of the bonus methods, of phase 5."""
TASK = Task("Chain", chain, 1000, 10.0, PUBLISHED, 256, (3677.0, 0.5))
CONSTANTS = {
    "variance_bonus": {"learning_rate": 0.1, "scale": 100.0, "half_life": 1.0},
    "error_bonus": {"learning_rate": 0.3, "scale": 100.0, "half_life": INFINITE},
    "epsilon_greedy": {"initial_q": 1.0, "learning_rate": 0.1, "epsilon": 0.2, "half_life": 0.5},
    "epsilon_greedy_nearest": {"initial_q": 0.0, "learning_rate": 0.1, "epsilon": 1.0, "half_life": 0.2},
    "boltzmann": {"learning_rate": 0.1, "temperature": 1.0},
    "boltzmann_nearest": {"learning_rate": 0.1, "temperature": 0.02},
    "ieql_plus": {"theta": 0.9, "learning_rate": 1.0, "rate_power": 0.5},
    "bql": {"update": "moment", "choose": "vpi", "loc": 4.0, "pseudo_count": 1.0, "concentration": 2.0, "rate": 4.0},
    "bql_nearest": {
        "update": "mixture",
        "choose": "thompson",
        "loc": 2.0,
        "pseudo_count": 0.1,
        "concentration": 2.0,
        "rate": 5.0,
    },
    "bayesian_dp": {"every": 0.005, "loc": 0.5, "rate": 0.1},
    "oim": {"v_max": 0.8},
    "oim_literal": {"r_max": 0.5},
    "oim_optimistic": {"v_max": 1.0},
}
"""Chosen by `oim_tuning.tune(TASK)`; a "nearest" setting is left out where it is the tuned one."""

REPRODUCTION = reproduction(
    TASK, CONSTANTS, "[OIM08] table 4, SPEC 1.3 and parts 4 and 5", {"quick": 40.0, "full": 40.0}
)
