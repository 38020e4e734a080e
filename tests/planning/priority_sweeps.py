"""Prioritized sweeping of a known MDP until its queue is empty: what learners do at every step, run to the end."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bayes_mdp.mdp import MDP, Discounted, SparseMDP
from bayes_mdp.planning.bellman import Rounding
from bayes_mdp.planning.discounted import sweep_with_bounds
from bayes_mdp.planning.prioritized_sweeping import (
    Backup,
    Predecessors,
    Sweeps,
    back_up_states,
    pass_on,
    predecessors_of,
)
from bayes_mdp.planning.solution import Solution, best_action
from bayes_mdp.utils.typing import ArrayLike, IntScalar, RealScalar


def solve_by_priority(
    mdp: MDP | SparseMDP,
    objective: Discounted,
    *,
    threshold: float = 1e-6,
    start: Solution | None = None,
    changed: ArrayLike | None = None,
    max_backups: int = 10_000_000,
) -> tuple[Solution, int]:
    """The solution, with the bounds of one full sweep over the final values, and how many states were backed up.

    `converged`: the queue ran empty. No value has then moved by more than twice the threshold since the states before
    it were backed up, so that |v - v*| <= 2 threshold discount / (1 - discount), where `start` solves all but what
    `changed` names.

    Args:
        mdp: dense or sparse.
        objective: discounted.
        threshold: a state waits where its value moved by more.
        start: a plan for a similar MDP. None: zero values.
        changed: [C], the states whose rows or rewards differ from those of `start`; None: all.
        max_backups: of states; at most the predecessors of one state more.
    """
    listed = list_rows(mdp)
    values = jnp.zeros(mdp.n_states, mdp.reward.dtype) if start is None else start.v
    states = np.arange(mdp.n_states) if changed is None else np.atleast_1d(np.asarray(changed, int))
    values, number, empty = _run(listed, objective.discount, values, jnp.asarray(states), threshold, max_backups)
    q, gap = sweep_with_bounds(mdp, jnp.asarray(objective.discount, mdp.reward.dtype), Rounding.of(mdp), values)
    nothing = jnp.full((), jnp.nan, q.dtype)
    solution = Solution(q, jnp.max(q, -1), best_action(q), nothing, empty & jnp.isfinite(gap), number, gap)
    return solution, int(number)


class ListedRows(NamedTuple):
    """An MDP as lists of K next states of every pair, and the predecessors of every state."""

    successor: Int[Array, "S A K"]
    probability: Float[Array, "S A K"]
    reward: Float[Array, "S A"]
    legal: Bool[Array, "S A"]
    predecessors: Predecessors


def list_rows(mdp: MDP | SparseMDP) -> ListedRows:
    """The lists of an MDP, dense or sparse."""
    if isinstance(mdp, SparseMDP):
        successor, probability = mdp.successor, mdp.probability
    else:
        probability = mdp.transition_probs
        successor = jnp.broadcast_to(jnp.arange(mdp.n_states), probability.shape)
    legal = jnp.ones(mdp.reward.shape, bool) if mdp.legal is None else mdp.legal
    predecessors = predecessors_of(successor, (probability > 0) & legal[..., None])
    return ListedRows(successor, probability, mdp.reward, legal, predecessors)


@jax.jit
def _run(
    listed: ListedRows,
    discount: RealScalar,
    values: Float[Array, " S"],
    states: Int[Array, " P"],
    threshold: RealScalar,
    max_backups: IntScalar,
) -> tuple[Float[Array, " S"], Int[Array, ""], Bool[Array, ""]]:
    successor, probability, reward, legal, predecessors = listed

    def backup(states: Int[Array, " P"], values: Float[Array, "S M"]) -> Backup:
        next_value = jnp.sum(probability[states] * values[successor[states], 0], -1)
        q = jnp.where(legal[states], reward[states] + discount * next_value, -jnp.inf)
        return Backup(q[:, None], jnp.max(q, -1)[:, None], best_action(q)[:, None])

    nowhere = jnp.zeros((len(values), 1), jnp.int32)
    # Only values are read from here on: q and actions of these rows are placeholders.
    first = Sweeps.start(Backup(jnp.zeros_like(reward)[:, None], values[:, None], nowhere))
    sweeps = back_up_states(first, backup, states, threshold)
    sweeps = pass_on(sweeps, backup, predecessors, threshold, 2**31 - 1, max_backups)
    return sweeps.values[:, 0], sweeps.num_backups, sweeps.waiting == 0
