"""Planning: a known MDP and an objective to the optimum, with a proven bound on its error.

Start with `solve` (the best policy) and `evaluate` (a given one). `solve_soft` plans with a soft maximum, `occupancy`
says where a policy spends its time.
"""

from typing import TYPE_CHECKING

from bayes_mdp.planning.occupancy import occupancy
from bayes_mdp.planning.soft import solve_soft
from bayes_mdp.planning.solve import evaluate, solve
from bayes_mdp.renamed import with_old_names

__all__ = [
    "evaluate",
    "occupancy",
    "solve",
    "solve_soft",
]

if not TYPE_CHECKING:  # a type checker takes no name of 0.2
    __getattr__ = with_old_names(__name__)
