"""Policies of a finite horizon in draws of an unknown MDP, by backward recursion in NumPy, and their time in pairs."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from bayes_mdp.decisions.host_iterations import Draws, Numbers
from bayes_mdp.decisions.host_values import SPARE, Values
from bayes_mdp.inference.pair_draws import Drawn, PairRows
from bayes_mdp.mdp import Episodic
from bayes_mdp.utils.validation import ROW_SUM_TOLERANCE

_EPS, _TINY = float(np.finfo(np.float64).eps), float(np.finfo(np.float64).tiny)


def episodic_occupancy(
    rows: PairRows,
    drawn: Drawn,
    policy: Float[np.ndarray, "*H S A"],
    objective: Episodic,
    start: Float[np.ndarray, " S"],
) -> Float[np.ndarray, "N steps S A"]:
    """discount^t times the probability of each pair at each step t.

    Args:
        rows, drawn: the pairs.
        policy: action probabilities, perhaps by step.
        objective: its horizon and discount.
        start: distribution of the first state.
    """
    num, n_states = len(drawn.probs), rows.n_states
    present = np.broadcast_to(start, (num, n_states))
    time = np.zeros((num, objective.horizon, *policy.shape[-2:]))
    for h in range(objective.horizon):
        part, _, entries = rows.at_step(h)
        weight = (policy[h] if policy.ndim == 3 else policy)[part.state, part.action]
        taken = present[:, part.state] * weight
        time[:, h, part.state, part.action] = float(objective.discount) ** h * taken
        joint = drawn.probs[:, entries] * taken[:, part.pair]
        reached = (np.arange(num)[:, None] * (n_states + 1) + part.next_state).ravel()
        present = np.bincount(reached, joint.ravel(), num * (n_states + 1)).reshape(num, -1)[:, :n_states]
    return time


def episodic_values(
    rows: PairRows,
    drawn: Drawn,
    policy: Float[np.ndarray, "*H S A"],
    objective: Episodic,
    reward: Float[np.ndarray, "N steps Q"] | None = None,
) -> Values:
    """Values of a policy of a finite horizon, by backward recursion.

    Args:
        rows, drawn: the pairs; where rows differ by step all of these.
        policy: action probabilities, perhaps by step.
        objective: its horizon and discount.
        reward: of the pairs at each step, in place of those of `drawn`; None: those.
    """
    largest, sizes = np.zeros(len(drawn.probs)), []
    values = largest[:, None]
    for step in backward(rows, drawn, policy, objective, reward):
        largest = np.maximum(largest, np.abs(step.reward[:, step.taken]).max(-1))
        sizes.append(np.abs(step.q[:, step.taken]).max(-1))
        values = step.values
    return Values(values, recursion_error(rows, sizes, largest, objective, policy.shape[-1]))


class BackwardStep(NamedTuple):
    """One step of the recursion, in N draws.

    Args:
        rows: its pairs.
        q, reward: of these.
        taken: which of them the policy takes.
        values: of the states.
    """

    rows: PairRows
    q: Float[np.ndarray, "N Q"]
    reward: Float[np.ndarray, "N Q"]
    taken: Bool[np.ndarray, " Q"]
    values: Draws


def backward(
    rows: PairRows,
    drawn: Drawn,
    policy: Float[np.ndarray, "*H S A"],
    objective: Episodic,
    reward: Float[np.ndarray, "N steps Q"] | None = None,
) -> Iterator[BackwardStep]:
    """The steps of `episodic_values`, from the last to the first (arguments: as there)."""
    num, n_states = len(drawn.probs), rows.n_states
    later = np.zeros((num, n_states + 1))
    for h in reversed(range(objective.horizon)):
        part, here, entries = rows.at_step(h)
        probs = drawn.probs[:, entries]
        paid = (drawn.reward if reward is None else reward[:, h])[:, here]
        # q_h = r + discount E v_h+1, and v_h the mean over the actions: v_h(s) = sum_a pi_h(a | s) q_h(s, a).
        q = paid + float(objective.discount) * expected_values(part, probs, later)
        weight = (policy[h] if policy.ndim == 3 else policy)[part.state, part.action]
        later = np.zeros((num, n_states + 1))
        used, first = np.unique(part.state, return_index=True)
        later[:, used] = np.add.reduceat(np.where(weight > 0, q * weight, 0.0), first, axis=-1)
        yield BackwardStep(part, q, paid, weight > 0, later[:, :n_states])


def expected_values(
    rows: PairRows, probs: Float[np.ndarray, "N E"], values: Float[np.ndarray, "N S1"]
) -> Float[np.ndarray, "N Q"]:
    """sum over the entries of each pair of probability times value of the next state (of the end last).

    Args:
        rows, probs: entries.
        values: of the states and of the end.
    """
    width = rows.width
    if width is not None and (rows.next_state == np.tile(np.arange(width), len(rows.state))).all():
        return np.matmul(probs.reshape(len(probs), -1, width), values[:, :width, None])[..., 0]
    return rows.sums(probs * values[:, rows.next_state])


def recursion_error(
    rows: PairRows, sizes: list[Numbers], largest: Numbers, objective: Episodic, n_actions: int
) -> Numbers:
    """Bound on the rounding error of a backward recursion (see `bayes_mdp.planning.episodic.induce`).

    Args:
        rows: the pairs.
        sizes: the largest |q| of each step, from the last to the first.
        largest: the largest absolute reward.
        objective: its horizon and discount.
        n_actions: A.
    """
    terms = int(np.diff(rows.first).max(initial=1)) + SPARE + n_actions + 2
    u = terms * _EPS / 2
    factor, later, error = u / (1 - u), np.zeros_like(largest), np.zeros_like(largest)
    worst = error
    for size in sizes:
        # What a step errs by, and what later errors reach it.
        error = factor * (largest + size + later) + terms * _TINY + float(objective.discount) * error
        worst, later = np.maximum(worst, error), size
    growth = (1 + ROW_SUM_TOLERANCE["float64"] + factor) ** objective.horizon
    gap = worst * growth * (1 + objective.horizon * _EPS)
    return np.where(np.isfinite(gap), gap, np.inf)
