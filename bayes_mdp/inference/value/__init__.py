"""Beliefs about Q as plain arrays; independent of the rest of the package."""

from bayes_mdp.inference.value.last_layer_laplace import LaplaceFit, LastLayerLaplace, LastLayerLaplacePrior
from bayes_mdp.inference.value.likelihoods import Bernoulli, Gaussian, Likelihood, Poisson
from bayes_mdp.inference.value.linear_gaussian import CovarianceGaussian, LinearGaussian, LinearGaussianPrior
from bayes_mdp.inference.value.mixture_update import ACCURATE, FAST, Quadrature, mixture_update
from bayes_mdp.inference.value.returns import ReturnBelief, moment_update, target, value_of_perfect_information
from bayes_mdp.inference.value.student_t import StudentT

__all__ = [
    "ACCURATE",
    "FAST",
    "Bernoulli",
    "CovarianceGaussian",
    "Gaussian",
    "LaplaceFit",
    "LastLayerLaplace",
    "LastLayerLaplacePrior",
    "Likelihood",
    "LinearGaussian",
    "LinearGaussianPrior",
    "Poisson",
    "Quadrature",
    "ReturnBelief",
    "StudentT",
    "mixture_update",
    "moment_update",
    "target",
    "value_of_perfect_information",
]
