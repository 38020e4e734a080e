"""Predictive densities of a conjugate posterior: of the next transition, in closed form.

They are the marginal of one more observation: c / sum(c) for the outcome; Student-t, normal, Bernoulli or negative
binomial for the reward (Murphy 2007, *Conjugate Bayesian analysis of the Gaussian distribution*).
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.families.family import log_rising
from bayes_mdp.mdp import Transitions, check_transitions
from bayes_mdp.numerics.numpy_or_jax import pick
from bayes_mdp.utils.typing import ArrayLike, Index
from bayes_mdp.utils.validation import check_type, is_concrete


def log_predictive_outcome(posterior: ConjugatePosterior, transitions: Transitions) -> Float[Array, "*N"]:
    """Log-probability of the next state (or end) of each transition, each by itself; -inf where it is impossible.

    Zero where it was not observed what followed.

    Raises:
        ValueError, TypeError: transitions that the space cannot hold (not inside a trace).
    """
    place = _place(posterior, transitions)
    return transitions.row_weight(jnp.log(pick(posterior.transition_probs.mean(), place)))


def log_predictive_reward(posterior: ConjugatePosterior, transitions: Transitions) -> Float[Array, "*N"]:
    """Log density of the reward of each transition, each by itself; zero where it is known, missing or not observed.

    Raises:
        ValueError, TypeError: transitions that the space cannot hold (not inside a trace).
    """
    *cell, outcome = _place(posterior, transitions)
    if transitions.reward is None:
        return jnp.zeros(jnp.shape(transitions.state))
    weight = jnp.ones(jnp.shape(transitions.state))
    seen = transitions.observed_rewards(weight, by_outcome=posterior.rewards_by_outcome)[0] != 0
    reward = jnp.asarray(transitions.reward, float)
    if is_concrete(reward):
        where = tuple(cell), np.asarray(outcome)
        posterior.reward_cells.check_rewards("transitions.reward", *where, np.asarray(reward), np.asarray(seen))
    return jnp.asarray(posterior.reward_cells.log_predictive(tuple(cell), outcome, reward, seen.astype(float)))


def log_predictive(posterior: ConjugatePosterior, transitions: Transitions) -> Float[Array, "*N"]:
    """Log density of outcome and reward of each transition, each by itself given the data of `posterior` alone.

    Args:
        transitions: N, each predicted by itself.

    Raises:
        ValueError, TypeError: transitions that the space cannot hold (not inside a trace).
    """
    return log_predictive_outcome(posterior, transitions) + log_predictive_reward(posterior, transitions)


def log_gain(posterior: ConjugatePosterior, transition: Transitions, weight: ArrayLike) -> Float[Array, ""]:
    """By how much `posterior.update(transition, weight)` of one transition raises the log evidence. Checks nothing.

    It is log E[likelihood^weight]: `log_predictive` for weight 1, zero for weight 0 (whatever the transition holds).
    """
    rows, rewards = posterior.transition_probs, posterior.reward_cells
    cell, outcome = transition.cell(posterior.space), transition.outcome(posterior.space)
    weight = jnp.asarray(weight, float)
    row_weight = transition.row_weight(weight)
    # log E[p_o^w] = rising(c_o, w) / rising(c0, w); known rows (no concentration) are exact powers.
    concentration = jnp.asarray(pick(rows.concentration, cell))
    seen, total = concentration[outcome], concentration.sum(-1)
    rising = log_rising(jnp.where(seen > 0, seen, 1.0), row_weight) - log_rising(
        jnp.where(total > 0, total, 1.0), row_weight
    )
    gain = jnp.where(seen > 0, rising, row_weight * jnp.log(pick(rows.mean(), (*cell, outcome))))
    gain = jnp.where(row_weight != 0, gain, 0.0)
    if transition.reward is None:
        return gain
    weight, reward = transition.observed_rewards(weight, by_outcome=posterior.rewards_by_outcome)
    return gain + rewards.log_predictive(cell, outcome, reward, weight)


def _place(posterior: ConjugatePosterior, transitions: Transitions) -> Index:
    check_type("posterior", posterior, ConjugatePosterior, "a ConjugatePosterior")
    check_type("transitions", transitions, Transitions, "Transitions")
    if is_concrete(transitions):
        check_transitions(transitions, posterior.space)
    outcome = transitions.outcome(posterior.space)
    return (*transitions.cell(posterior.space), outcome)
