"""Improved prioritized sweeping (Wiering and Schmidhuber 1998, *Efficient model-based exploration*).

A queue of states, keyed by how far the value of each has moved since it was last passed on. After a change of the model
the state that changed is backed up; then, up to a number of times, the first of the queue is taken out and all actions
of all its predecessors are backed up. Moore and Atkeson's order (1993), with full backups.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from bayes_mdp.mdp import MDP, Discounted, SparseMDP
from bayes_mdp.mdp.validation import is_concrete
from bayes_mdp.planning.discounted import bounded
from bayes_mdp.planning.rounding import Rounding
from bayes_mdp.planning.solution import Solution, best_action
from bayes_mdp.planning.solve import check_problem


class Backup(NamedTuple):
    """What a backup of P states gives; M value functions are kept side by side, the first decides what is done.

    Args:
        q: values of pairs.
        values: of the states.
        best: the action that each value function would choose.
    """

    q: Float[Array, "M P A"]
    values: Float[Array, "M P"]
    best: Int[Array, "M P"]


BackupOf = Callable[[Int[Array, " P"], Float[Array, "M S"]], Backup]
PredecessorsOf = Callable[[Int[Array, ""]], Int[Array, " P"]]


class Sweeps(eqx.Module):
    """Values on the way to a fixed point, and the queue.

    Args:
        q, values, best: as in `Backup`, of all states.
        reference: the values when they were last passed on to the predecessors.
        priority: how far `values` lies from `reference` (the largest of the M), 0 where the state does not wait. It is
            kept as a square, so that the first of the queue is found by columns.
        num_backups: states backed up so far, all actions of one state counted as one.
    """

    q: Float[Array, "M S A"]
    values: Float[Array, "M S"]
    best: Int[Array, "M S"]
    reference: Float[Array, "M S"]
    priority: Float[Array, "R R"]
    num_backups: Int[Array, ""]

    @classmethod
    def start(cls, q: Float[Array, "M S A"], values: Float[Array, "M S"], best: Int[Array, "M S"]) -> "Sweeps":
        """Nothing waits in the queue."""
        side = int(np.ceil(np.sqrt(values.shape[1])))
        return cls(q, values, best, values, jnp.zeros((side, side), values.dtype), jnp.int32(0))

    @property
    def waiting(self) -> Int[Array, ""]:
        """How many states wait."""
        return jnp.sum(self.priority > 0)


def backed_up(sweeps: Sweeps, backup: BackupOf, states: Int[Array, " P"], threshold: Any) -> Sweeps:
    """Back up some states (S or more stands for none), and let those wait that moved by more than `threshold`.

    Tables are changed in place where this stands in a compiled loop, because nothing is chosen by branches.
    """
    n_states = sweeps.values.shape[1]
    new = backup(jnp.minimum(states, n_states - 1), sweeps.values)
    moved = jnp.max(jnp.abs(new.values - sweeps.reference[:, jnp.minimum(states, n_states - 1)]), 0)
    side = sweeps.priority.shape[0]
    # Beyond the square where there is no state: what lies outside is dropped.
    row = jnp.where(states < n_states, states // side, side)
    waits = jnp.where(moved > threshold, moved, 0.0).astype(sweeps.priority.dtype)
    return Sweeps(
        sweeps.q.at[:, states].set(new.q, mode="drop"),
        sweeps.values.at[:, states].set(new.values, mode="drop"),
        sweeps.best.at[:, states].set(new.best, mode="drop"),
        sweeps.reference,
        sweeps.priority.at[row, states % side].set(waits, mode="drop"),
        sweeps.num_backups + jnp.sum(states < n_states).astype(jnp.int32),
    )


def pass_on(
    sweeps: Sweeps, backup: BackupOf, predecessors: PredecessorsOf, threshold: Any, active: Any = True
) -> Sweeps:
    """Take the first state out of the queue and back up its predecessors; nothing where none waits or not `active`."""
    n_states, side = sweeps.values.shape[1], sweeps.priority.shape[0]
    column = jnp.argmax(jnp.max(sweeps.priority, 0))
    row = jnp.argmax(sweeps.priority[:, column])
    waits = (sweeps.priority[row, column] > 0) & active
    first = jnp.where(waits, row * side + column, n_states)
    inside = jnp.minimum(first, n_states - 1)
    sweeps = eqx.tree_at(
        lambda s: (s.reference, s.priority),
        sweeps,
        (
            sweeps.reference.at[:, first].set(sweeps.values[:, inside], mode="drop"),
            sweeps.priority.at[jnp.where(waits, row, side), column].set(0.0, mode="drop"),
        ),
    )
    listed = jnp.where(waits, predecessors(inside), n_states)
    return backed_up(sweeps, backup, listed, threshold)


def predecessor_lists(successor: Any, probability: Any) -> np.ndarray:
    """Int[S P]: the states from which some action can lead to each state; S pads short lists. Host side.

    Args:
        successor: Int[S A K]. probability: Float[S A K].
    """
    successor, probability = np.asarray(successor), np.asarray(probability)
    n_states = successor.shape[0]
    state = np.broadcast_to(np.arange(n_states)[:, None, None], successor.shape)
    pairs = np.unique(np.stack([successor, state], -1)[probability > 0], axis=0)
    number = np.bincount(pairs[:, 0], minlength=n_states)
    place = np.arange(len(pairs)) - np.repeat(np.cumsum(number) - number, number)
    lists = np.full((n_states, max(1, int(number.max(initial=0)))), n_states)
    lists[pairs[:, 0], place] = pairs[:, 1]
    return lists


def solve_by_priority(
    mdp: MDP | SparseMDP,
    objective: Discounted,
    *,
    threshold: float = 1e-6,
    start: Solution | None = None,
    changed: Any = None,
    max_backups: int = 10_000_000,
) -> tuple[Solution, int]:
    """Plan by prioritized sweeping in a known MDP: where few rows changed since `start`, few states are backed up.

    The answer carries the bounds of one full sweep over the final values, as `solve` does. `converged`: the queue ran
    empty; |v - v*| is then about threshold / (1 - discount).

    Args:
        mdp: dense or sparse, concrete (predecessors are listed on the host).
        objective: `Discounted`.
        threshold: units of the reward; a state waits where its value moved by more.
        start: a plan for a similar MDP. None: zero values.
        changed: Int[C], the states whose rows or rewards differ from those of `start`; None: all.
        max_backups: of states, about.

    Returns:
        The solution, and how many states were backed up.

    Raises:
        ValueError: another objective, a step axis, traced probabilities.
    """
    if not isinstance(objective, Discounted):
        raise ValueError(f"objective is {type(objective).__name__}, expected Discounted for prioritized sweeping")
    check_problem(mdp, objective)
    if not is_concrete(mdp):
        raise ValueError("mdp is traced, expected numbers: predecessors are listed on the host")
    if isinstance(mdp, SparseMDP):
        successor, probability = mdp.successor, mdp.probability
    else:
        probability = mdp.transition_probs
        successor = jnp.broadcast_to(jnp.arange(mdp.n_states), probability.shape)
    lists = jnp.asarray(predecessor_lists(successor, probability))
    values = jnp.zeros(mdp.n_states, mdp.reward.dtype) if start is None else start.v
    states = jnp.arange(mdp.n_states) if changed is None else jnp.atleast_1d(jnp.asarray(changed))
    legal = jnp.ones(mdp.reward.shape, bool) if mdp.legal is None else mdp.legal
    known = (successor, probability, mdp.reward, legal, lists)
    values, number, empty = _run(known, objective.discount, values, states, threshold, max_backups)
    q, gap = bounded(mdp, jnp.asarray(objective.discount, mdp.reward.dtype), Rounding.of(mdp), values)
    nothing = jnp.full((), jnp.nan, q.dtype)
    solution = Solution(q, jnp.max(q, -1), best_action(q), nothing, empty & jnp.isfinite(gap), number, gap)
    return solution, int(number)


@jax.jit
def _run(known: Any, discount: Any, values: Any, states: Any, threshold: Any, max_backups: Any) -> Any:
    successor, probability, reward, legal, lists = known

    def backup(states: Any, values: Any) -> Backup:
        following = jnp.sum(probability[states] * values[0][successor[states]], -1)
        q = jnp.where(legal[states], reward[states] + discount * following, -jnp.inf)
        return Backup(q[None], jnp.max(q, -1)[None], best_action(q)[None])

    first = Sweeps.start(reward[None], values[None], jnp.zeros((1, len(values)), jnp.int32))
    sweeps = backed_up(first, backup, states, threshold)
    going = lambda s: (s.waiting > 0) & (s.num_backups < max_backups)  # noqa: E731
    step = lambda s: pass_on(s, backup, lambda j: lists[j], threshold)  # noqa: E731
    sweeps = lax.while_loop(going, step, sweeps)
    return sweeps.values[0], sweeps.num_backups, sweeps.waiting == 0
