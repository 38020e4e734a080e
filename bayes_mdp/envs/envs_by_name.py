"""The environments by name."""

from bayes_mdp.envs.observed.classic_control import cartpole, mountain_car
from bayes_mdp.envs.observed.one_hot_observations import deep_sea_observed, deep_sea_stochastic_observed
from bayes_mdp.envs.papers.chain_mdps import (
    bsuite_deep_sea,
    chain,
    deep_sea,
    deep_sea_continuing,
    loop,
    osband_chain,
    riverswim,
    riverswim_episodic,
    six_arms,
    two_action_chain,
    wide_narrow,
)
from bayes_mdp.envs.papers.mazes import flag_maze, maze_with_subgoals, seven_rooms, slippery_grid
from bayes_mdp.envs.papers.racetrack import mail_robot, racetrack
from bayes_mdp.envs.papers.random_mdps import garnet, prior_mdp
from bayes_mdp.envs.sepsis import icu_sepsis

ENVS = {
    "bsuite_deep_sea": bsuite_deep_sea,
    "chain": chain,
    "deep_sea": deep_sea,
    "deep_sea_continuing": deep_sea_continuing,
    "flag_maze": flag_maze,
    "garnet": garnet,
    "icu_sepsis": icu_sepsis,
    "loop": loop,
    "maze_with_subgoals": maze_with_subgoals,
    "osband_chain": osband_chain,
    "prior_mdp": prior_mdp,
    "racetrack": racetrack,
    "riverswim": riverswim,
    "riverswim_episodic": riverswim_episodic,
    "seven_rooms": seven_rooms,
    "six_arms": six_arms,
    "slippery_grid": slippery_grid,
    "two_action_chain": two_action_chain,
    "wide_narrow": wide_narrow,
}
"""Name -> factory that can be called without arguments (`icu_sepsis` where its extra is installed)."""

SIMULATED = {"mail_robot": mail_robot}
"""Name -> factory of a `SimulatedEnvironment` (too many states for tables) that can be called without arguments."""

OBSERVED = {
    "cartpole": cartpole,
    "deep_sea": deep_sea_observed,
    "deep_sea_stochastic": deep_sea_stochastic_observed,
    "mountain_car": mountain_car,
}
"""Name -> factory of an `ObservedEnvironment` (for deep agents) that can be called without arguments."""
