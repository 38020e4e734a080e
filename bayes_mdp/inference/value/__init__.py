"""Beliefs about Q as plain arrays; nothing here imports the rest of the package."""

from bayes_mdp.inference.value.linear_gaussian import LinearGaussian, LinearGaussianPrior
from bayes_mdp.inference.value.mixture_update import ACCURATE, FAST, Quadrature, mixture_update
from bayes_mdp.inference.value.moment_update import moment_update
from bayes_mdp.inference.value.returns import ReturnBelief, target
from bayes_mdp.inference.value.student_t import StudentT
from bayes_mdp.inference.value.vpi import value_of_perfect_information

__all__ = [
    "ACCURATE",
    "FAST",
    "LinearGaussian",
    "LinearGaussianPrior",
    "Quadrature",
    "ReturnBelief",
    "StudentT",
    "mixture_update",
    "moment_update",
    "target",
    "value_of_perfect_information",
]
