"""Posterior draws that are exact, and fast on CPU under `jit` and `vmap`: gamma, Dirichlet, normal-gamma."""

from bayes_mdp.random.dirichlet import dirichlet, dirichlet_expectation, dirichlet_split
from bayes_mdp.random.gamma import exponential, gamma, loggamma, normal_gamma
from bayes_mdp.random.threefry import fused_key, plain_key

__all__ = [
    "dirichlet",
    "dirichlet_expectation",
    "dirichlet_split",
    "exponential",
    "fused_key",
    "gamma",
    "loggamma",
    "normal_gamma",
    "plain_key",
]
