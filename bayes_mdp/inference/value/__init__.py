"""Beliefs about Q as plain arrays; independent of the rest of the package.

Start with `LinearGaussianPrior`, the last layer of `bm.agents.neural.NeuralUBE`; `LastLayerLaplacePrior` has targets
that are counts or shares (`Poisson`, `Bernoulli`).
"""

from typing import TYPE_CHECKING

from bayes_mdp.inference.value.last_layer_laplace import Bernoulli, Gaussian, LastLayerLaplacePrior, Likelihood, Poisson
from bayes_mdp.inference.value.linear_gaussian import LinearGaussianPrior
from bayes_mdp.renamed import with_old_names

__all__ = [
    "Bernoulli",
    "Gaussian",
    "LastLayerLaplacePrior",
    "Likelihood",
    "LinearGaussianPrior",
    "Poisson",
]

if not TYPE_CHECKING:  # a type checker takes no name of 0.2
    __getattr__ = with_old_names(__name__)
