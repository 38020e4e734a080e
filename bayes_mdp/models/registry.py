"""`PRIORS`: the ready priors by name."""

from collections.abc import Callable

from bayes_mdp.models.hierarchical import (
    clustered_states,
    feature_dynamics,
    robust_rewards,
    shared_rewards,
    sticky,
    unknown_concentration,
)
from bayes_mdp.models.mdp_spec import Prior
from bayes_mdp.models.partial_pooling import partial_pooling
from bayes_mdp.models.priors import (
    dirichlet_bernoulli,
    dirichlet_normal,
    dirichlet_normal_gamma,
    dirichlet_poisson,
    known_rewards,
)

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
