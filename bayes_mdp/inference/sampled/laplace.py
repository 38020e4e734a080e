"""The posterior by Laplace's approximation."""

import jax
from jaxtyping import PRNGKeyArray
from numpyro.infer.autoguide import AutoLaplaceApproximation

from bayes_mdp.inference.draws.chains import Model
from bayes_mdp.inference.draws.methods import Laplace
from bayes_mdp.inference.sampled.conditioned_program import DataStatistics
from bayes_mdp.inference.sampled.sampler_output import Drawn
from bayes_mdp.inference.sampled.svi import fit_guide


def by_laplace(key: PRNGKeyArray, model: Model, data_statistics: DataStatistics, method: Laplace) -> Drawn:
    """Draws from the normal at the mode of the unconstrained posterior, its precision the curvature there. Traceable.

    The mode of a skewed posterior (a Dirichlet with few counts) is not its mean, and neither is the centre of these
    draws.

    Raises:
        ValueError: discrete latent sites.
    """
    key_fit, key_draw = jax.random.split(key)
    guide = AutoLaplaceApproximation(model)
    params, losses, latents = fit_guide(key_fit, model, guide, data_statistics, method)
    draws = guide.sample_posterior(key_draw, params, sample_shape=(method.num_samples,))
    return Drawn({name: draws[name] for name in latents}, None, losses)
