"""Priors over MDPs as NumPyro programs, their `joint` model with data, and ready-made ones (`PRIORS`, by name)."""

from collections.abc import Callable

from bayes_mdp.models.default_prior import default_prior
from bayes_mdp.models.dirichlet_prior import SupportedDirichlet, supported_dirichlet
from bayes_mdp.models.hierarchical import (
    clustered_states,
    feature_dynamics,
    robust_rewards,
    shared_rewards,
    sticky,
    unknown_concentration,
)
from bayes_mdp.models.joint import joint, observe, predictive, summarise
from bayes_mdp.models.mdp_spec import (
    MDPSpec,
    Prior,
    RewardTable,
    check_spec,
    environment,
    random_environment,
    reward_table,
    to_mdp,
    transition_table,
)
from bayes_mdp.models.normal_gamma_distribution import NormalGamma, normal
from bayes_mdp.models.partial_pooling import partial_pooling
from bayes_mdp.models.priors import (
    dirichlet_bernoulli,
    dirichlet_normal,
    dirichlet_normal_gamma,
    dirichlet_poisson,
    known_rewards,
)
from bayes_mdp.models.regression_rewards import linear_rewards, logistic_rewards, poisson_rewards
from bayes_mdp.models.regression_rows import RegressionOptions, hazard_rows, logit_rows, ordinal_rows, stick_rows
from bayes_mdp.models.sufficient_statistics import CategoricalCounts, RewardStatistics, Statistics

__all__ = [
    "PRIORS",
    "CategoricalCounts",
    "MDPSpec",
    "NormalGamma",
    "RegressionOptions",
    "RewardStatistics",
    "RewardTable",
    "Statistics",
    "SupportedDirichlet",
    "check_spec",
    "clustered_states",
    "default_prior",
    "dirichlet_bernoulli",
    "dirichlet_normal",
    "dirichlet_normal_gamma",
    "dirichlet_poisson",
    "environment",
    "feature_dynamics",
    "hazard_rows",
    "joint",
    "known_rewards",
    "linear_rewards",
    "logistic_rewards",
    "logit_rows",
    "normal",
    "observe",
    "ordinal_rows",
    "partial_pooling",
    "poisson_rewards",
    "predictive",
    "random_environment",
    "reward_table",
    "robust_rewards",
    "shared_rewards",
    "stick_rows",
    "sticky",
    "summarise",
    "supported_dirichlet",
    "to_mdp",
    "transition_table",
    "unknown_concentration",
]

PRIORS: dict[str, Callable[..., Prior]] = {
    "dirichlet_normal_gamma": dirichlet_normal_gamma,
    "dirichlet_normal": dirichlet_normal,
    "dirichlet_bernoulli": dirichlet_bernoulli,
    "dirichlet_poisson": dirichlet_poisson,
    "known_rewards": known_rewards,
    "unknown_concentration": unknown_concentration,
    "sticky": sticky,
    "shared_rewards": shared_rewards,
    "clustered_states": clustered_states,
    "feature_dynamics": feature_dynamics,
    "robust_rewards": robust_rewards,
    "partial_pooling": partial_pooling,
}
