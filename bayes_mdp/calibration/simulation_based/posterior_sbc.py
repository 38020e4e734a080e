"""Posterior SBC: simulation-based calibration conditional on a log.

Säilynoja, Schmitt, Bürkner and Vehtari (2025), *Posterior SBC: simulation-based calibration checking conditional on
data*: truths are drawn from the posterior given the log, and new data from each truth. A truth is then distributed as a
draw of the posterior given log and new data together. This checks inference near the log, not all over the prior.
"""

from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.calibration.belief.posterior_views import FittedPosterior
from bayes_mdp.calibration.belief.transition_law import Law
from bayes_mdp.calibration.simulation_based.ranks import Design, Truth, look_at_draws
from bayes_mdp.mdp import Environment, StateActionSpace, Transitions
from bayes_mdp.models.mdp_spec import RewardTable, reward_law
from bayes_mdp.models.reward_laws import law_of_first


def truths_near(
    posterior: FittedPosterior, log: Transitions, design: Design
) -> Callable[[PRNGKeyArray, PRNGKeyArray], Truth]:
    """(key of the truth, key of the data) -> a draw of `posterior`, and the log followed by as many new transitions.

    The new transitions start from the pairs of the log, in its order, and their rewards are observed where its are. The
    likelihood is conditional on states and actions, so any choice of them is valid.
    """
    observed = _filled(log, design.space)

    def draw_truth(key_truth: PRNGKeyArray, key_data: PRNGKeyArray) -> Truth:
        one = design._replace(num_draws=1)
        laws, sites = look_at_draws(key_truth, posterior, one, lambda law: law)
        rewards = laws.rewards
        known = None if rewards.known is None else rewards.known[0]
        of_one = None if rewards.law is None else law_of_first(rewards.law)
        law = Law(laws.rows[0], RewardTable(of_one, known, rewards.by_outcome))
        sites = {name: values[0] for name, values in sites.items()}
        new = _again(key_data, law, observed, design.space)
        return Truth(law, sites, jax.tree.map(lambda *parts: jnp.concatenate(parts), observed, new))

    return draw_truth


def _filled(log: Transitions, space: StateActionSpace) -> Transitions:
    """The log with all columns that its replicates have."""
    number = np.size(log.state)
    zero, no = np.zeros(number, np.int32), np.zeros(number, bool)
    return Transitions(
        np.array(log.state, np.int32),
        np.array(log.action, np.int32),
        np.zeros(number) if log.reward is None else np.array(log.reward, np.float64),
        np.array(log.next_state, np.int32),
        (no if log.terminated is None else np.array(log.terminated)) if space.ends else None,
        step=None if space.horizon is None else (zero if log.step is None else np.array(log.step, np.int32)),
        reward_observed=no if log.reward is None else log.reward_observed,
    )


def _again(key: PRNGKeyArray, law: Law, log: Transitions, space: StateActionSpace) -> Transitions:
    """A new outcome and reward from the pair of every transition."""
    initial = jnp.full(space.n_states, 1.0 / space.n_states)
    environment = Environment(replace(law.mdp(space), initial=initial), reward_law(law.rewards, space))
    step = jnp.zeros_like(log.state) if log.step is None else log.step
    keys = jax.random.split(key, len(log.state))
    next_state, reward, terminated = jax.vmap(environment.step)(keys, log.state, log.action, step)
    return replace(log, next_state=next_state, reward=reward, terminated=terminated if space.ends else None)
