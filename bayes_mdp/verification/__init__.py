"""Posteriors as interval MDPs: for model checkers (Storm, PRISM), and robust values of intervals of your own.

Start with `export_interval_mdp`, which writes the intervals that hold all rows of a posterior with a stated
probability; `load_interval_mdp` reads such a file, and `robust_values` computes its least and greatest values with a
proven error.
"""

from bayes_mdp.verification.credible_intervals import credible_intervals, export_interval_mdp
from bayes_mdp.verification.interval_files import load_interval_mdp, write_interval_mdp
from bayes_mdp.verification.interval_mdp import interval_mdp, robust_values

__all__ = [
    "credible_intervals",
    "export_interval_mdp",
    "interval_mdp",
    "load_interval_mdp",
    "robust_values",
    "write_interval_mdp",
]
