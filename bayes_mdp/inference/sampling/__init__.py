"""Posterior draws that are exact, and fast on CPU under `jit` and `vmap`: gamma, Dirichlet, normal-gamma."""

from bayes_mdp.inference.sampling.dirichlet import dirichlet, dirichlet_expectation, dirichlet_split
from bayes_mdp.inference.sampling.gamma import exponential, gamma, loggamma
from bayes_mdp.inference.sampling.normal_gamma import normal_gamma
from bayes_mdp.inference.sampling.threefry import fused_key, plain_key

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
