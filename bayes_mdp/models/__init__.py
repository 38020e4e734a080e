"""Priors over MDPs as NumPyro programs, ready-made ones (`PRIORS`, by name) and what your own needs.

Start with `default_prior` (a log, and nothing else known) or `dirichlet_normal_gamma` (unknown rows and rewards). A
program returns an `MDPSpec`; `logit_rows` and `linear_rewards` are regressions on covariates; `joint` and
`predictive` are the conditioned programs, for those who call NumPyro themselves.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

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
from bayes_mdp.models.joint import joint, predictive
from bayes_mdp.models.mdp_spec import MDPSpec, Prior, environment, random_environment
from bayes_mdp.models.normal_gamma_distribution import NormalGamma, normal
from bayes_mdp.models.partial_pooling import partial_pooling
from bayes_mdp.models.priors import (
    dirichlet_bernoulli,
    dirichlet_normal,
    dirichlet_normal_gamma,
    dirichlet_poisson,
    known_rewards,
)
from bayes_mdp.models.regressions import (
    RegressionOptions,
    hazard_rows,
    linear_rewards,
    logistic_rewards,
    logit_rows,
    ordinal_rows,
    poisson_rewards,
    stick_rows,
)
from bayes_mdp.renamed import with_old_names

__all__ = [
    "PRIORS",
    "MDPSpec",
    "NormalGamma",
    "RegressionOptions",
    "SupportedDirichlet",
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
    "ordinal_rows",
    "partial_pooling",
    "poisson_rewards",
    "predictive",
    "random_environment",
    "robust_rewards",
    "shared_rewards",
    "stick_rows",
    "sticky",
    "supported_dirichlet",
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

if not TYPE_CHECKING:  # a type checker takes no name of 0.2
    __getattr__ = with_old_names(__name__)
