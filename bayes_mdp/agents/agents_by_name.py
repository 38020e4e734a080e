"""The tabular agents by name: what `bayes-mdp run`, `compare` and the tests of every agent go through."""

from collections.abc import Callable
from typing import Any, TypeAlias

from bayes_mdp.agents.bamcp import BAMCP
from bayes_mdp.agents.model_based.empirical_optimism import (
    E3,
    OIM,
    EpsilonGreedyModel,
    FrequencyBonus,
    RecencyBonus,
    RMax,
)
from bayes_mdp.agents.model_based.mbie import MBIE, MBIEEB, MBIEWS
from bayes_mdp.agents.model_free.bql import BQL
from bayes_mdp.agents.model_free.episodic_q import UCBH, RandQL
from bayes_mdp.agents.model_free.soft_q import BoltzmannQ, SoftQ, SoftQMean
from bayes_mdp.agents.model_free.tabular_q import (
    AnnealedQ,
    EpsilonGreedyQ,
    ErrorBonusQ,
    IEQLPlus,
    OptimisticQ,
    VarianceBonusQ,
)
from bayes_mdp.agents.model_free.trial_learning import TDBMA, SarsaLambda
from bayes_mdp.agents.optimism.k_learning import KLearning
from bayes_mdp.agents.optimism.mean_mdp_plans import (
    BEB,
    BOLT,
    CountBonus,
    EpsilonGreedyMean,
    InformationGain,
    RegularisedIDS,
)
from bayes_mdp.agents.optimism.optimistic_sampling import BOSS, OPSRL, BayesUCBVI
from bayes_mdp.agents.optimism.ucbvi import UCBVI
from bayes_mdp.agents.optimism.ucrl2 import UCFH, UCRL2
from bayes_mdp.agents.optimism.vapor import VAPOR
from bayes_mdp.agents.psrl import PSRL, TSDE, BayesianDP, GaussianPSRL
from bayes_mdp.agents.rlsvi import LMCLSVI, RLSVI
from bayes_mdp.agents.value_uncertainty.exact import CovarianceThompson
from bayes_mdp.agents.value_uncertainty.exact_ube import ExactUBE, VarianceOptimism
from bayes_mdp.agents.value_uncertainty.moment_matching import MomentMatching
from bayes_mdp.agents.value_uncertainty.monte_carlo import MonteCarloThompson
from bayes_mdp.agents.value_uncertainty.ube import UBE
from bayes_mdp.mdp import Agent

AgentClass: TypeAlias = Callable[..., Agent[Any]]
"""Makes an agent from its own options. What the agent needs of its belief (`Any`) depends on the class."""

AGENTS: dict[str, AgentClass] = {
    "psrl": PSRL,
    "bamcp": BAMCP,
    "epsilon_greedy_q": EpsilonGreedyQ,
    "bql": BQL,
    "ube": UBE,
    "moment_matching": MomentMatching,
    "count_bonus": CountBonus,
    "exact_ube": ExactUBE,
    "monte_carlo_thompson": MonteCarloThompson,
    "covariance_thompson": CovarianceThompson,
    "variance_optimism": VarianceOptimism,
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
    "boss": BOSS,
    "lmc_lsvi": LMCLSVI,
    "regularised_ids": RegularisedIDS,
    "tsde": TSDE,
}
