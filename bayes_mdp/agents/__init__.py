"""Exploration agents: a belief goes in, a policy comes out. One file per algorithm, named as in its paper."""

from collections.abc import Callable
from typing import Any

from bayes_mdp.agents.bql import BQL
from bayes_mdp.agents.by_draws import ThompsonByDraws
from bayes_mdp.agents.count_bonus import CountBonus
from bayes_mdp.agents.covariance_thompson import CovarianceThompson
from bayes_mdp.agents.exact_ube import ExactUBE
from bayes_mdp.agents.learner import ChecksBelief, Learner, Replans
from bayes_mdp.agents.moment_matching import MomentMatching
from bayes_mdp.agents.policies import Boltzmann, EpsilonGreedy, GaussianThompson, Greedy
from bayes_mdp.agents.psrl import PSRL
from bayes_mdp.agents.q_learning import EpsilonGreedyQ
from bayes_mdp.agents.replan import Doubling, EveryEpisode, EverySteps, Geometric, ReplanRule, When
from bayes_mdp.agents.ube import UBE

AGENTS: dict[str, Callable[..., Any]] = {
    "psrl": PSRL,
    "epsilon_greedy_q": EpsilonGreedyQ,
    "bql": BQL,
    "ube": UBE,
    "moment_matching": MomentMatching,
    "count_bonus": CountBonus,
    "exact_ube": ExactUBE,
    "thompson_by_draws": ThompsonByDraws,
    "covariance_thompson": CovarianceThompson,
}

__all__ = [
    "AGENTS",
    "BQL",
    "PSRL",
    "UBE",
    "Boltzmann",
    "ChecksBelief",
    "CountBonus",
    "CovarianceThompson",
    "Doubling",
    "EpsilonGreedy",
    "EpsilonGreedyQ",
    "EveryEpisode",
    "EverySteps",
    "ExactUBE",
    "GaussianThompson",
    "Geometric",
    "Greedy",
    "Learner",
    "MomentMatching",
    "ReplanRule",
    "Replans",
    "ThompsonByDraws",
    "When",
]
