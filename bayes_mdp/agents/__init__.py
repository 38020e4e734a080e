"""Exploration agents: a belief goes in, a policy comes out. One file per algorithm, named as in its paper."""

from collections.abc import Callable
from typing import Any

from bayes_mdp.agents.beb import BEB
from bayes_mdp.agents.bolt import BOLT
from bayes_mdp.agents.bql import BQL
from bayes_mdp.agents.by_draws import ThompsonByDraws
from bayes_mdp.agents.count_bonus import CountBonus
from bayes_mdp.agents.e3 import E3
from bayes_mdp.agents.exact import CovarianceThompson
from bayes_mdp.agents.exact_ube import ExactUBE
from bayes_mdp.agents.exploration_reward import FrequencyBonus, RecencyBonus
from bayes_mdp.agents.gaussian_psrl import GaussianPSRL
from bayes_mdp.agents.information_gain import InformationGain
from bayes_mdp.agents.k_learning import KLearning
from bayes_mdp.agents.learner import ChecksBelief, ChecksLearnt, ChecksOptimism, Learner, Replans
from bayes_mdp.agents.mbie import MBIE, MBIEEB
from bayes_mdp.agents.mbie_ws import MBIEWS
from bayes_mdp.agents.mean_greedy import EpsilonGreedyMean
from bayes_mdp.agents.model_based import OIM, EpsilonGreedyModel, RMax
from bayes_mdp.agents.moment_matching import MomentMatching
from bayes_mdp.agents.optimistic_sampling import OPSRL, BayesUCBVI
from bayes_mdp.agents.planners import ExactPlanner, PrioritizedSweeping
from bayes_mdp.agents.policies import Boltzmann, EpsilonGreedy, GaussianThompson, Greedy
from bayes_mdp.agents.psrl import PSRL, BayesianDP
from bayes_mdp.agents.rand_ql import RandQL
from bayes_mdp.agents.replan import Doubling, EveryEpisode, EverySteps, Geometric, ReplanRule, When
from bayes_mdp.agents.rlsvi import RLSVI
from bayes_mdp.agents.soft_q import BoltzmannQ, SoftQ, SoftQMean
from bayes_mdp.agents.tabular_q import AnnealedQ, EpsilonGreedyQ, ErrorBonusQ, IEQLPlus, OptimisticQ, VarianceBonusQ
from bayes_mdp.agents.trial import TDBMA, LearnsFromTrials, SarsaLambda
from bayes_mdp.agents.ube import UBE
from bayes_mdp.agents.ucb_h import UCBH
from bayes_mdp.agents.ucbvi import UCBVI
from bayes_mdp.agents.ucfh import UCFH
from bayes_mdp.agents.ucrl2 import UCRL2
from bayes_mdp.agents.vapor import VAPOR

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
    "k_learning": KLearning,
    "information_gain": InformationGain,
    "vapor": VAPOR,
    "bayes_ucbvi": BayesUCBVI,
    "beb": BEB,
    "bolt": BOLT,
    "opsrl": OPSRL,
    "ucbvi": UCBVI,
    "rlsvi": RLSVI,
    "gaussian_psrl": GaussianPSRL,
    "ucb_h": UCBH,
    "rand_ql": RandQL,
    "soft_q": SoftQ,
    "soft_q_mean": SoftQMean,
    "boltzmann_q": BoltzmannQ,
    "epsilon_greedy_mean": EpsilonGreedyMean,
    "ucrl2": UCRL2,
    "ucfh": UCFH,
    "sarsa_lambda": SarsaLambda,
    "td_bma": TDBMA,
    "oim": OIM,
    "r_max": RMax,
    "mbie": MBIE,
    "mbie_eb": MBIEEB,
    "e3": E3,
    "mbie_ws": MBIEWS,
    "frequency_bonus": FrequencyBonus,
    "recency_bonus": RecencyBonus,
    "epsilon_greedy_model": EpsilonGreedyModel,
    "optimistic_q": OptimisticQ,
    "ieql_plus": IEQLPlus,
    "variance_bonus_q": VarianceBonusQ,
    "error_bonus_q": ErrorBonusQ,
    "bayesian_dp": BayesianDP,
    "annealed_q": AnnealedQ,
}

__all__ = [
    "AGENTS",
    "BEB",
    "BOLT",
    "BQL",
    "E3",
    "MBIE",
    "MBIEEB",
    "MBIEWS",
    "OIM",
    "OPSRL",
    "PSRL",
    "RLSVI",
    "TDBMA",
    "UBE",
    "UCBH",
    "UCBVI",
    "UCFH",
    "UCRL2",
    "VAPOR",
    "AnnealedQ",
    "BayesUCBVI",
    "BayesianDP",
    "Boltzmann",
    "BoltzmannQ",
    "ChecksBelief",
    "ChecksLearnt",
    "ChecksOptimism",
    "CountBonus",
    "CovarianceThompson",
    "Doubling",
    "EpsilonGreedy",
    "EpsilonGreedyMean",
    "EpsilonGreedyModel",
    "EpsilonGreedyQ",
    "ErrorBonusQ",
    "EveryEpisode",
    "EverySteps",
    "ExactPlanner",
    "ExactUBE",
    "FrequencyBonus",
    "GaussianPSRL",
    "GaussianThompson",
    "Geometric",
    "Greedy",
    "IEQLPlus",
    "InformationGain",
    "KLearning",
    "Learner",
    "LearnsFromTrials",
    "MomentMatching",
    "OptimisticQ",
    "PrioritizedSweeping",
    "RMax",
    "RandQL",
    "RecencyBonus",
    "ReplanRule",
    "Replans",
    "SarsaLambda",
    "SoftQ",
    "SoftQMean",
    "ThompsonByDraws",
    "VarianceBonusQ",
    "When",
]
