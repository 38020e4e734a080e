"""Exploration agents: a belief goes in, a policy comes out. One file per algorithm, named as in its paper."""

from collections.abc import Callable
from typing import Any

from bayes_mdp.agents.learner import Learner, Replans
from bayes_mdp.agents.policies import Boltzmann, EpsilonGreedy, GaussianThompson, Greedy
from bayes_mdp.agents.psrl import PSRL
from bayes_mdp.agents.q_learning import EpsilonGreedyQ
from bayes_mdp.agents.replan import Doubling, EveryEpisode, EverySteps, Geometric, ReplanRule, When

AGENTS: dict[str, Callable[..., Any]] = {"psrl": PSRL, "epsilon_greedy_q": EpsilonGreedyQ}

__all__ = [
    "AGENTS",
    "PSRL",
    "Boltzmann",
    "Doubling",
    "EpsilonGreedy",
    "EpsilonGreedyQ",
    "EveryEpisode",
    "EverySteps",
    "GaussianThompson",
    "Geometric",
    "Greedy",
    "Learner",
    "ReplanRule",
    "Replans",
    "When",
]
