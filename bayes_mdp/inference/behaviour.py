"""Policies to judge: `greedy` (the best in the mean MDP) and `behaviour_policy` (what the log did). Host-side."""

import logging

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int

from bayes_mdp.inference.policy_value import to_float64
from bayes_mdp.mdp import MDP, CanMean, Log, Objective, SparseMDP, StateActionSpace
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.planning import solve

SHOWN = 10

logger = logging.getLogger(__name__)


def greedy(posterior: CanMean, objective: Objective) -> Int[np.ndarray, "*H S"]:
    """The optimal policy of the posterior mean MDP (certainty equivalence). Compiles itself, works in float64.

    Raises:
        TypeError: the posterior has no `mean_mdp`.
        ValueError: the objective does not fit the MDP (see `solve`).
    """
    require_ability(posterior, CanMean, "greedy")
    with jax.enable_x64(True):
        return np.asarray(_greedy(to_float64(posterior.mean_mdp()), to_float64(objective)))


def behaviour_policy(log: Log, *, space: StateActionSpace | None = None) -> Float[np.ndarray, "S A"]:
    """How often each action was taken in each state of the log: Float64[S A], rows sum to one.

    A state that the log never left gets all (legal) actions equally, and is named in a warning of the logger.

    Args:
        log: see `read_log`.
        space: for its legal actions; None: all are.

    Raises:
        TypeError: `log` is no `Log`.
        ValueError: `space` has other sizes than the log.
    """
    if not isinstance(log, Log):
        raise TypeError(f"log is a {type(log).__name__}, expected a Log (see read_log)")
    counts = np.zeros((len(log.states), len(log.actions)))
    if space is not None and space.shape[-2:] != counts.shape:
        raise ValueError(f"space has shape {space.shape[-2:]} (state, action), expected {counts.shape} as the log")
    np.add.at(counts, (np.asarray(log.transitions.state), np.asarray(log.transitions.action)), 1.0)
    unseen = counts.sum(-1) == 0
    counts[unseen] = 1.0 if space is None or space.legal is None else space.legal[unseen]
    if unseen.any():
        names = [str(log.states[s]) for s in np.flatnonzero(unseen)]
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        logger.warning(
            "behaviour_policy: all actions equally likely in states never seen: %s%s", ", ".join(names[:SHOWN]), more
        )
    return counts / counts.sum(-1, keepdims=True)


@eqx.filter_jit
def _greedy(mdp: MDP | SparseMDP, objective: Objective) -> Int[Array, "*H S"]:
    return solve(mdp, objective).policy
