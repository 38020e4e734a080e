"""`LayeredPosterior`: a posterior over independent steps can be drawn while it is planned with, layer by layer."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.conjugate.dirichlet_rows import DirichletRows
from bayes_mdp.inference.conjugate.rewards import Rewards
from bayes_mdp.inference.conjugate.site_table import SiteTable
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.utils.typing import AnyArray, IntScalar
from bayes_mdp.utils.validation import check_shape


class LayeredPosterior(ConjugatePosterior):
    """A `ConjugatePosterior` whose steps are independent: it can also be sampled and averaged one step at a time."""

    def sample_backup(self, key: PRNGKeyArray, values: Float[AnyArray, " S"], layer: IntScalar) -> Float[Array, "S A"]:
        """Step `layer` of a fresh draw, applied to the `values` of the states that it leads to.

        sum_s' P(s' | s, a) (r(s, a, s') + values(s')); the value of an end is 0. Each layer needs its own key.
        """
        key_rows, key_rewards = jax.random.split(key)
        rows, rewards = self.transition_probs.at_step(layer), self.reward_cells.at_step(layer)
        value = self.space.values_after(values, layer)
        reward = rewards.sample(key_rewards)
        if rewards.by_outcome:
            return (rows.sample(key_rows) * (reward + value)).sum(-1)
        return jnp.asarray(reward) + rows.sample_expectation(key_rows, value)

    def expected_next(self, values: Float[AnyArray, " S"], layer: IntScalar) -> Float[Array, "S A"]:
        """sum_s' E[P(s' | s, a)] values(s') at step `layer`; the value of an end is 0. Listed counts build no rows."""
        return self.transition_probs.at_step(layer).expectation(self.space.values_after(values, layer))


def conjugate_posterior(
    transition_probs: DirichletRows, rewards: Rewards, space: StateActionSpace, sites: SiteTable | None = None
) -> ConjugatePosterior:
    """The belief before any data; a `LayeredPosterior` where the space has a horizon and all rows are independent.

    Args: see `ConjugatePosterior`.

    Raises:
        ValueError: rows or rewards do not have the shape of `space`.
    """
    size = (*space.shape, space.n_outcomes)
    check_shape("transition_probs", transition_probs, size, "(step,) state, action, outcome")
    check_shape("rewards", rewards, size if rewards.by_outcome else space.shape, "the cells of the reward law")
    counted = transition_probs.independent and transition_probs.known is None
    visits = None if counted else np.zeros(space.shape)
    constant = np.zeros(())
    layered = space.horizon is not None and transition_probs.independent and rewards.independent
    kind = LayeredPosterior if layered else ConjugatePosterior
    return kind(transition_probs, rewards, space, visits, constant, sites)
