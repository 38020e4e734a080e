"""Beliefs about Q as plain arrays; independent of the rest of the package."""

from bayes_mdp.inference.value.last_layer_laplace import (
    Bernoulli,
    Gaussian,
    LaplaceFit,
    LastLayerLaplace,
    LastLayerLaplacePrior,
    Likelihood,
    Poisson,
)
from bayes_mdp.inference.value.linear_gaussian import CovarianceGaussian, LinearGaussian, LinearGaussianPrior
from bayes_mdp.inference.value.returns import (
    ACCURATE,
    FAST,
    Quadrature,
    ReturnBelief,
    mixture_update,
    moment_update,
    target,
    value_of_perfect_information,
)
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
