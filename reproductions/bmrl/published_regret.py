"""What [BMRL19] (Markou and Rasmussen 2019) plots of regret, digitised: mean and standard deviation over 10 seeds.

Regret at the end over the reward of the oracle, from the three summaries of regret of the published version. Digitised
to +-.005; a standard deviation of .018 is an upper bound, the marker hides it.
"""

READING = 0.005
SEEDS = 10
HIDDEN = 0.018

Published = dict[str, dict[int, tuple[float, float]]]
"""Method -> size -> (mean, standard deviation)."""

DEEP_SEA: Published = {
    "q_learning": {4: (0.652, 0.035), 6: (0.886, 0.112), 8: (1.036, HIDDEN), 10: (1.029, HIDDEN), 12: (1.019, HIDDEN)},
    "bql": {4: (0.130, 0.049), 6: (0.168, 0.034), 8: (0.281, 0.049), 10: (0.565, 0.145), 12: (0.917, 0.064)},
    "psrl": {4: (0.068, 0.036), 6: (0.092, 0.021), 8: (0.130, HIDDEN), 10: (0.174, HIDDEN), 12: (0.230, HIDDEN)},
    "ube": {4: (0.531, 0.031), 6: (0.746, 0.027), 8: (0.871, 0.022), 10: (0.919, HIDDEN), 12: (0.950, HIDDEN)},
    "mm": {4: (0.353, 0.049), 6: (0.570, 0.031), 8: (0.757, 0.021), 10: (0.863, 0.037), 12: (0.913, HIDDEN)},
}
"""By number of states."""

WIDE_NARROW: Published = {
    "q_learning": {6: (0.499, 0.048), 8: (0.551, 0.077), 10: (0.595, 0.053), 12: (0.635, 0.065)},
    "bql": {6: (0.339, 0.112), 8: (0.439, 0.046), 10: (0.489, 0.047), 12: (0.482, 0.088)},
    "psrl": {6: (0.053, 0.134), 8: (0.101, 0.093), 10: (0.057, 0.054), 12: (0.075, 0.051)},
    "ube": {6: (0.033, 0.070), 8: (0.069, 0.068), 10: (0.052, 0.083), 12: (0.086, 0.070)},
    "mm": {6: (0.147, 0.105), 8: (0.183, 0.080), 10: (0.183, 0.073), 12: (0.200, 0.052)},
}
"""By number of actions of the wide state."""

PRIOR_MDP: Published = {
    "q_learning": {0: (0.735, 0.054), 1: (0.533, 0.052), 2: (0.670, 0.043), 3: (0.424, 0.037)},
    "bql": {0: (0.241, 0.090), 1: (0.361, 0.109), 2: (0.259, 0.085), 3: (0.254, 0.050)},
    "psrl": {0: (0.111, 0.068), 1: (0.190, 0.128), 2: (0.029, 0.048), 3: (0.048, 0.057)},
    "ube": {0: (0.274, 0.068), 1: (0.453, 0.138), 2: (0.226, 0.058), 3: (0.205, 0.086)},
    "mm": {0: (0.256, 0.048), 1: (0.252, 0.136), 2: (0.118, 0.059), 3: (0.137, 0.054)},
}
"""By seed of the environment."""
