"""Draws of the whole law of a transition from a posterior: transition rows together with the law of one reward.

`sample` of a posterior gives an `MDP` with mean rewards. The likelihood of data needs the law of the rewards as well.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro import handlers

from bayes_mdp.calibration.belief.posterior_views import FittedPosterior
from bayes_mdp.inference.collapsed.collapsed_posterior import CollapsedPosterior
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.inference.conjugate.rewards import Drawn, KnownRewards
from bayes_mdp.inference.families.family import RewardStreams
from bayes_mdp.inference.mixtures import MixturePosterior
from bayes_mdp.mdp import MDP, SparseMDP, StateActionSpace, Transitions
from bayes_mdp.models.isolate import traced_alone
from bayes_mdp.models.mdp_spec import MDPSpec, Prior, RewardTable, reward_table, transition_table
from bayes_mdp.random.host_generator import draw_dirichlet_rows, host_generator
from bayes_mdp.utils.typing import AnyArray, IntScalar


class Law(NamedTuple):
    """The law of one transition of a space.

    Args:
        rows: probabilities of the outcomes.
        rewards: the law of one reward in every cell.
    """

    rows: Float[Array, "*H S A O"]
    rewards: RewardTable

    def mdp(self, space: StateActionSpace) -> MDP | SparseMDP:
        """Its rows and the mean of its rewards."""
        rows, mean = self.rows, self.rewards.mean
        if self.rewards.by_outcome:
            mean = (rows * mean).sum(-1)
        return space.mdp(rows, mean)

    def noise(self) -> Float[Array, "*H S A"]:
        """Variance of one reward around the mean of its cell, averaged over outcomes; zero where rewards are known."""
        law = self.rewards.law
        noise = jnp.zeros_like(self.rewards.mean) if law is None else law.variance
        return (self.rows * noise).sum(-1) if self.rewards.by_outcome else noise

    def log_likelihood(self, transitions: Transitions, space: StateActionSpace) -> Float[Array, ""]:
        """log p(next states, rewards | states, actions) of the transitions; what was not observed adds nothing."""
        cell, outcome = transitions.cell(space), transitions.outcome(space)
        total = transitions.row_weight(jnp.log(self.rows[(*cell, outcome)])).sum()
        law = self.rewards.at(cell, outcome)
        if transitions.reward is None or not isinstance(law, dist.Distribution):
            return total
        density = jnp.asarray(law.log_prob(transitions.reward))
        counted, _ = transitions.observed_rewards(jnp.ones(density.shape), by_outcome=self.rewards.by_outcome)
        return total + jnp.where(counted != 0, density, 0.0).sum()


def law_of_spec(spec: MDPSpec, space: StateActionSpace) -> Law:
    """The law that a prior program returned, with parameters broadcast to all pairs."""
    return Law(transition_table(spec, space), reward_table(spec, space))


@traced_alone
def law_of_sites(sites: dict[str, Array], prior: Prior, space: StateActionSpace) -> Law:
    """The law that the program returns when its latent sites have these values."""
    with handlers.seed(rng_seed=0), handlers.substitute(data=sites):
        return law_of_spec(prior(space), space)


def sample_law(key: PRNGKeyArray, posterior: FittedPosterior, space: StateActionSpace) -> Law:
    """One draw from a posterior in closed form, or from a mixture of such. Traceable.

    Raises:
        TypeError: another posterior.
    """
    if isinstance(posterior, MixturePosterior):
        key_component, key = jax.random.split(key)
        posterior = posterior.draw_component(key_component)
    if isinstance(posterior, ConjugatePosterior):
        return _sample_conjugate(key, posterior)
    raise TypeError(f"posterior is a {type(posterior).__name__}, expected one whose reward law can be drawn")


def _sample_conjugate(key: PRNGKeyArray, posterior: ConjugatePosterior) -> Law:
    key_rows, key_rewards = jax.random.split(key)
    rows = posterior.transition_probs.sample(key_rows)
    return _law(posterior, rows, posterior.reward_cells.sample_sites(key_rewards))


def _law(posterior: ConjugatePosterior, rows: Float[Array, "*H S A O"], drawn: Drawn) -> Law:
    """The law for one draw of the rows and of the parameters of the rewards."""
    cells = posterior.reward_cells
    if isinstance(cells, RewardCells) and cells.known is not None and cells.known_law is None:
        # Known numbers beside unknown laws: normal ones have no variance.
        mean, noise = cells.gather_drawn(drawn)
        law = dist.Normal(mean, jnp.sqrt(noise)) if cells.law is dist.Normal else cells.law(mean)
        return Law(rows, RewardTable(law, None, cells.by_outcome))
    return Law(rows, cells.table_of(drawn))


class SiteDraws(NamedTuple):
    """One draw of the conjugate sites of each component of a posterior.

    Args:
        rows: [K M O], of the rows.
        rewards: each parameter of the rewards [K M ...].
    """

    rows: Float[AnyArray, "K M O"]
    rewards: Drawn

    def law(self, posterior: CollapsedPosterior, k: IntScalar) -> Law:
        """The law that is drawn from component `k`. Traceable."""
        component = posterior.component(k)
        rows = component.transition_probs.gather(jnp.asarray(self.rows)[k])
        return _law(component, jnp.asarray(rows), tuple(jnp.asarray(x)[k] for x in self.rewards))


def draw_components_on_host(key: PRNGKeyArray, posterior: CollapsedPosterior) -> SiteDraws | None:
    """One draw of the conjugate sites of each component, by NumPy; None: its rewards are of a kind that JAX draws.

    Compiling a sampler takes longer than many such draws.

    Args:
        key: of all draws.
        posterior: of some components.
    """
    data = posterior.data_statistics
    rewards, values = data.reward_cells, [np.asarray(x, np.float64) for x in posterior.values]
    if not isinstance(rewards, RewardCells | KnownRewards):
        return None
    rng = host_generator(key)
    leaves = [x[:, np.asarray(i)] for x, i in zip(values, posterior.index, strict=True)]
    concentration = leaves[0] + np.asarray(data.transition_probs.dense_counts, np.float64)
    rows = draw_dirichlet_rows(rng, concentration)
    if not isinstance(rewards, RewardCells):
        return SiteDraws(rows, ())
    prior = jax.tree.unflatten(jax.tree.structure(rewards.prior), leaves[1:])
    after = prior.after(np.asarray(rewards.data, np.float64))
    streams = RewardStreams(jax.random.fold_in(key, 1), np.arange(len(rewards.data)))
    return SiteDraws(rows, after.draw(streams, len(rows)))
