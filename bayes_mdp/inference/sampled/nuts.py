"""The posterior by Hamiltonian Monte Carlo."""

import jax
from jaxtyping import PRNGKeyArray

from bayes_mdp.inference.draws.chains import Model, run_chains
from bayes_mdp.inference.draws.methods import NUTS
from bayes_mdp.inference.sampled.conditioned_program import DataStatistics
from bayes_mdp.inference.sampled.sampler_output import Drawn


def by_nuts(key: PRNGKeyArray, model: Model, data_statistics: DataStatistics, method: NUTS) -> Drawn:
    """All draws of all chains, one chain after the other. Traceable.

    Raises:
        ValueError, TypeError: as `run_chains`.
    """
    chains = run_chains(key, model, data_statistics, method)
    sites = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), chains.draws)
    return Drawn(sites, chains, None)
