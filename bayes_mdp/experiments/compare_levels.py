"""The two levels that a normalised score lies between: what a random and an optimal policy earn, exactly."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayes_mdp.experiments.regret import optimal_rate
from bayes_mdp.mdp import MDP, AverageReward, Episodic, Objective, SparseMDP, restart_at_ends
from bayes_mdp.planning import evaluate

LEAST_SPAN = 1e-9


class Levels(NamedTuple):
    """Expected reward of an episode under `Episodic`, else of a step in the long run.

    Args:
        random: of the policy that acts uniformly at random (over legal actions).
        optimal: of an optimal policy.
        unknown: why no score can be normalised by them (one of them is then nan, or both are equal); else empty.
    """

    random: float
    optimal: float
    unknown: str = ""


def levels_of(mdp: MDP | SparseMDP, objective: Objective) -> Levels:
    """The levels of an MDP. Host side, float64.

    Without episodes they are gains, whatever the objective: where an end is followed by a new first state, and the
    first state does not matter in the long run. Where it does, they are unknown.
    """
    try:
        optimal = float(optimal_rate(mdp, objective))
        random = _random_rate(mdp, objective)
    except ValueError:  # the one that is left for a checked task
        return Levels(np.nan, np.nan, "the optimal gain depends on the first state")
    if not np.isfinite(random):
        return Levels(np.nan, optimal, "the gain of the random policy depends on the first state")
    if optimal - random <= LEAST_SPAN * max(1.0, abs(optimal)):
        return Levels(random, np.nan, "a random policy is optimal: there is nothing to learn")
    return Levels(random, optimal)


def _random_rate(mdp: Any, objective: Objective) -> float:
    legal = np.ones((mdp.n_states, mdp.n_actions), bool) if mdp.legal is None else np.asarray(mdp.legal)
    episodic = isinstance(objective, Episodic)
    with jax.enable_x64(True):
        wide = jax.tree.map(_wide, mdp)
        wide = wide if episodic else restart_at_ends(wide)
        probs = jnp.asarray(legal / legal.sum(-1, keepdims=True))
        answer = jax.device_get(_evaluate(wide, probs, objective if episodic else AverageReward()))
    if not episodic:
        return float(answer.gain) if np.isfinite(answer.gap) else np.nan
    return float(answer.v[0] @ np.asarray(mdp.initial, np.float64))


_evaluate = jax.jit(evaluate)


def _wide(leaf: Any) -> Any:
    array = np.asarray(leaf)
    return jnp.asarray(array, jnp.float64 if np.issubdtype(array.dtype, np.floating) else None)
