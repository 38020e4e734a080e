"""Bayesian DP (Strens 2000): one hypothesis is drawn and followed, and drawn anew from time to time."""

import equinox as eqx
from jaxtyping import PRNGKeyArray

from bayes_mdp.agents.psrl import PSRL
from bayes_mdp.agents.replan import ReplanRule, as_rule
from bayes_mdp.mdp import Problem
from bayes_mdp.planning.solution import Solution


class BayesianDP(PSRL):
    """`PSRL` for those who were told the possible successors of every pair, as [OIM08] says of its Bayesian DP.

    The rows are Dirichlet on the support of the space alone: a prior of the package honours it, a program of your own
    should (`models.supported_dirichlet`). A space with its support goes to a run as `RunOptions(space=...)`. What
    Strens prints of intervals and discount is not known to us (SPEC 2.3 of the project): both are yours to choose.

    Args:
        replan: when to draw anew, `resample_every`: a number of steps, "episode", or as in `PSRL`.
    """

    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule)

    def init(self, key: PRNGKeyArray, problem: Problem) -> Solution | None:
        """No plan yet, as in `PSRL`.

        Raises:
            ValueError: the space has no `support`.
        """
        if problem.space.support is None:
            raise ValueError(
                "space.support is None, expected the possible successors of every pair (Bool[S A O]) for BayesianDP; "
                "PSRL asks for none"
            )
        return super().init(key, problem)
