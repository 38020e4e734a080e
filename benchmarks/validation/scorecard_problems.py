"""Where the scorecard draws its MDPs from, what is observed of them, and the posterior."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import PRNGKeyArray

from bayes_mdp.inference.mixtures import mixture
from bayes_mdp.mdp import MDP, Episodic, Objective, Transitions
from benchmarks.validation.random_beliefs import ACTIONS, STATES, known_noise_belief, random_problem

CLASSES = ("acyclic", "cyclic", "tied", "hierarchical")
NUM_TRANSITIONS = 24
HIERARCHICAL_HORIZON, HIERARCHICAL_TRANSITIONS = 4, 12
LEVEL_SCALE, REWARD_SCALE, CONCENTRATION = 1.0, 0.3, 1000.0
NUM_LEVELS = 15


class ScoredClass(NamedTuple):
    """A prior over MDPs with normal rewards of noise 1, and its inference.

    Args:
        draw: key -> MDP.
        infer: (key, transitions) -> posterior. Traceable.
        objective: what policies are judged by.
        num_transitions: how many are observed of an MDP.
    """

    draw: Callable[[PRNGKeyArray], Any]
    infer: Callable[[PRNGKeyArray, Transitions], Any]
    objective: Objective
    num_transitions: int = NUM_TRANSITIONS


def scored_class(kind: str) -> ScoredClass:
    """A class of `CLASSES`.

    "acyclic", "cyclic" and "tied" are those of `random_beliefs` (rewards on the pair, one belief of each, as the
    prior). "hierarchical": the mean rewards of all steps, states and actions vary by .3 around a level that is unknown,
    Normal(0, 1) on a grid of 15 points, so that the belief is a `Mixture` and exact; 4 steps, rows all but known.
    """
    belief, objective, number = _hierarchical(), Episodic(HIERARCHICAL_HORIZON), HIERARCHICAL_TRANSITIONS
    if kind != "hierarchical":
        (belief, objective), number = random_problem(kind, "pair", 1), NUM_TRANSITIONS
    belief = jax.tree.map(jnp.asarray, belief)
    return ScoredClass(belief.sample, lambda _, data: belief.update(data), objective, number)


def _hierarchical() -> Any:
    levels = LEVEL_SCALE * np.linspace(-2.5, 2.5, NUM_LEVELS)
    pairs = (HIERARCHICAL_HORIZON, STATES, ACTIONS)
    rows = np.full((*pairs, STATES), CONCENTRATION)
    parts = [known_noise_belief(rows, np.full(pairs, level), np.full(pairs, REWARD_SCALE), False) for level in levels]
    return mixture(parts, weights=np.exp(-0.5 * (levels / LEVEL_SCALE) ** 2))


def observe(key: PRNGKeyArray, mdp: MDP, objective: Objective, num_transitions: int) -> Transitions:
    """Transitions of a policy that acts at random, from a random state (at the beginning of every episode)."""
    horizon = objective.horizon if isinstance(objective, Episodic) else None
    n_states, n_actions = mdp.reward.shape[-2:]

    def move(state: Any, x: Any) -> tuple[Any, Transitions]:
        key, time = x
        step = None if horizon is None else time % horizon
        starts = time == 0 if step is None else step == 0
        key_start, key_action, key_next, key_reward = jax.random.split(key, 4)
        state = jnp.where(starts, jax.random.randint(key_start, (), 0, n_states), state)
        action = jax.random.randint(key_action, (), 0, n_actions)
        cell = (state, action) if step is None else (step, state, action)
        next_state = jax.random.categorical(key_next, jnp.log(mdp.transition_probs[cell]))
        reward = mdp.reward[cell] + jax.random.normal(key_reward)
        return next_state, Transitions(state, action, reward, next_state, None, None, step)

    times = jnp.arange(num_transitions)
    return lax.scan(move, jnp.zeros((), times.dtype), (jax.random.split(key, num_transitions), times))[1]
