"""Priors over MDPs as NumPyro programs, their `joint` model with data, and ready-made ones."""

from bayes_mdp.models.dirichlet import supported_dirichlet
from bayes_mdp.models.hierarchical import (
    clustered_states,
    feature_dynamics,
    robust_rewards,
    shared_rewards,
    sticky,
    unknown_concentration,
)
from bayes_mdp.models.joint import joint, observe, predictive, summarise
from bayes_mdp.models.normal_gamma import NormalGamma, normal
from bayes_mdp.models.priors import (
    dirichlet_bernoulli,
    dirichlet_normal,
    dirichlet_normal_gamma,
    dirichlet_poisson,
    known_rewards,
)
from bayes_mdp.models.registry import PRIORS
from bayes_mdp.models.simulate import environment, random_environment
from bayes_mdp.models.statistics import CategoricalCounts, RewardStatistics, Statistics
from bayes_mdp.models.world import RewardTable, World, check_world, reward_table, to_mdp, transition_table

__all__ = [
    "PRIORS",
    "CategoricalCounts",
    "NormalGamma",
    "RewardStatistics",
    "RewardTable",
    "Statistics",
    "World",
    "check_world",
    "clustered_states",
    "dirichlet_bernoulli",
    "dirichlet_normal",
    "dirichlet_normal_gamma",
    "dirichlet_poisson",
    "environment",
    "feature_dynamics",
    "joint",
    "known_rewards",
    "normal",
    "observe",
    "predictive",
    "random_environment",
    "reward_table",
    "robust_rewards",
    "shared_rewards",
    "sticky",
    "summarise",
    "supported_dirichlet",
    "to_mdp",
    "transition_table",
    "unknown_concentration",
]
