"""Truths near a log: simulation-based calibration of the posterior that was inferred from it.

Säilynoja, Schmitt, Bürkner and Vehtari (2025), *Posterior SBC: simulation-based calibration checking conditional on
data*: truths are drawn from the posterior given the log, new data from each truth; a truth is then one more draw of the
posterior given log and new data together. It asks whether inference is right where it is used, not all over the prior.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.calibration.ranks import Design, Truth, look_at_draws
from bayes_mdp.calibration.worlds import Law
from bayes_mdp.mdp import Environment, StateActionSpace, Transitions


def truths_near(posterior: Any, log: Transitions, design: Design) -> Callable[[PRNGKeyArray, PRNGKeyArray], Truth]:
    """(key of the truth, key of the data) -> a draw of `posterior`, and the log followed by as many new transitions.

    The new transitions start from the pairs of the log, in its order, and their rewards are seen where its are: states
    and actions are what the likelihood is conditional on, so any choice of them will do.
    """
    seen = _filled(log, design.space)

    def draw_truth(key_truth: PRNGKeyArray, key_data: PRNGKeyArray) -> Truth:
        one = design._replace(num_draws=1)
        law, sites = jax.tree.map(lambda x: x[0], look_at_draws(key_truth, posterior, one, lambda law: law))
        new = _again(key_data, law, seen, design.space)
        return Truth(law, sites, jax.tree.map(lambda *parts: jnp.concatenate(parts), seen, new))

    return draw_truth


def _filled(log: Transitions, space: StateActionSpace) -> Transitions:
    """The log with every column that its replicates have."""
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


def _again(key: PRNGKeyArray, law: Law, seen: Transitions, space: StateActionSpace) -> Transitions:
    """Another outcome and reward of every transition."""
    initial = jnp.full(space.n_states, 1.0 / space.n_states)
    environment = Environment(replace(law.mdp(space), initial=initial), law.rewards)
    step = jnp.zeros_like(seen.state) if seen.step is None else seen.step
    keys = jax.random.split(key, len(seen.state))
    next_state, reward, terminated = jax.vmap(environment.step)(keys, seen.state, seen.action, step)
    return replace(seen, next_state=next_state, reward=reward, terminated=terminated if space.ends else None)
