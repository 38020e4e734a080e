"""Backward recursion in draws of an unknown MDP, and the best policy of every draw, by NumPy.

A policy in one MDP (its time in each pair, the values of all pairs); policies of a finite horizon in many draws; the
best policy of each draw, by policy iteration in many draws at once or backward induction. The value of the best policy
is what a decision maker would get who knew the draw. Bounds are those of `bayes_mdp.planning`: one sweep with the
maximum over the last values. Draws that are not settled so are left to the planners, in JAX.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import Bool, Float, Int

from bayes_mdp.decisions.host_values import (
    SPARE,
    Chains,
    Draws,
    Numbers,
    PolicyPairs,
    Values,
    discounted_bound,
    gain_bound,
    occupancy,
    solve,
    values_and_time,
)
from bayes_mdp.inference.pair_draws import Drawn, PairRows, mostly_zero, pairs_of_mdp
from bayes_mdp.mdp import MDP, AverageReward, Discounted, Episodic, FirstExit, Objective
from bayes_mdp.mdp.protocols import CanMean, HasVariances
from bayes_mdp.numerics.array_forms import to_float64
from bayes_mdp.planning import solve as plan
from bayes_mdp.utils.typing import ArrayLike
from bayes_mdp.utils.validation import ROW_SUM_TOLERANCE


def pair_time(
    rows: PairRows,
    drawn: Drawn,
    policy: Float[np.ndarray, "*H S A"],
    objective: Objective,
    start: Float[np.ndarray, " S"],
) -> Float[np.ndarray, "*steps S A"]:
    """The time of a policy in each pair of one MDP, as `bayes_mdp.planning.occupancy`.

    Args:
        rows, drawn: its pairs, as one draw.
        policy: action probabilities.
        objective: of the values.
        start: distribution of the first state.
    """
    if isinstance(objective, Episodic):
        return episodic_occupancy(rows, drawn, policy, objective, start)[0]
    chains = PolicyPairs(rows, policy).chains(drawn)
    # pi(a | s) times the time in s.
    return occupancy(chains, objective, start)[0][:, None] * policy


def action_values(
    rows: PairRows,
    drawn: Drawn,
    policy: Float[np.ndarray, "*H S A"],
    objective: Objective,
) -> Float[np.ndarray, "*steps S A"]:
    """The values of all pairs of one MDP under a policy (`AverageReward`: but for a constant); nan: there is no pair.

    Args:
        rows, drawn: its pairs, as one draw.
        policy: action probabilities.
        objective: of the values.
    """
    if isinstance(objective, Episodic):
        q = np.full((objective.horizon, *policy.shape[-2:]), np.nan)
        # Backwards: step i of the recursion is step H - 1 - i of the episode.
        for i, step in enumerate(backward(rows, drawn, policy, objective)):
            q[objective.horizon - 1 - i, step.rows.state, step.rows.action] = step.q[0]
        return q
    chains = PolicyPairs(rows, policy).chains(drawn)
    rate = float(objective.discount)
    # Relative values for an average reward: anchored at the first state.
    values = solve(chains, rate, chains.reward, anchored=isinstance(objective, AverageReward))
    q = np.full(policy.shape, np.nan)
    later = np.append(values, np.zeros((1, 1)), -1)
    q[rows.state, rows.action] = (drawn.reward + rate * expected_values(rows, drawn.probs, later))[0]
    return q


def policy_slopes(
    rows: PairRows,
    drawn: Drawn,
    policy: Float[np.ndarray, "*H S A"],
    objective: Objective,
    start: Float[np.ndarray, " S"],
    *,
    pairs: PolicyPairs | None = None,
    reward: Float[np.ndarray, "N steps Q"] | None = None,
) -> Float[np.ndarray, "N *steps S A"]:
    """The derivative of the value of every draw by each action probability; zero where there is no pair.

    It is the (discounted) time in the state times the value of the pair (policy gradient theorem; Sutton et al. 2000,
    theorem 1).

    Args:
        rows, drawn: the pairs.
        policy: action probabilities.
        objective: of the values.
        start: distribution of the first state.
        pairs: those that a stationary policy takes, where they are at hand; None: they are looked up.
        reward: of the pairs at each step of `Episodic`, in place of those of `drawn`; None: those.
    """
    if isinstance(objective, Episodic):
        slopes = np.zeros((len(drawn.probs), objective.horizon, *policy.shape[-2:]))
        time = episodic_occupancy(rows, drawn, policy, objective, start).sum(-1)
        for i, step in enumerate(backward(rows, drawn, policy, objective, reward)):
            # The recursion comes from the last step to the first.
            h = objective.horizon - 1 - i
            slopes[:, h, step.rows.state, step.rows.action] = time[:, h, step.rows.state] * step.q
        return slopes
    chains = (PolicyPairs(rows, policy) if pairs is None else pairs).chains(drawn)
    # Relative values are known but for a constant, which moves no probability from one action to another.
    values, time = values_and_time(chains, objective, start)
    # The end has value zero.
    later = np.append(values, np.zeros((len(values), 1)), -1)
    q = drawn.reward + float(objective.discount) * expected_values(rows, drawn.probs, later)
    slopes = np.zeros((len(q), *policy.shape))
    slopes[:, rows.state, rows.action] = time[:, rows.state] * q
    return slopes


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
        policy: action probabilities, perhaps by step [H S A].
        objective: its horizon and discount.
        start: distribution of the first state.
    """
    num, n_states = len(drawn.probs), rows.n_states
    # The distribution of the state at each step, in every draw.
    present = np.broadcast_to(start, (num, n_states))
    time = np.zeros((num, objective.horizon, *policy.shape[-2:]))
    for h in range(objective.horizon):
        part, _, entries = rows.at_step(h)
        weight = (policy[h] if policy.ndim > 2 else policy)[part.state, part.action]
        # P(s at h) pi_h(a | s).
        taken = present[:, part.state] * weight
        time[:, h, part.state, part.action] = float(objective.discount) ** h * taken
        joint = drawn.probs[:, entries] * taken[:, part.pair]
        reached = (np.arange(num)[:, None] * (n_states + 1) + part.next_state).ravel()
        # Scatter: what arrives in each next state; the end leaves.
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
        policy: action probabilities, perhaps by step [H S A].
        objective: its horizon and discount.
        reward: of the pairs at each step, in place of those of `drawn`; None: those.
    """
    largest, sizes = np.zeros(len(drawn.probs)), []
    values = largest[:, None]
    for step in backward(rows, drawn, policy, objective, reward):
        # Largest reward and largest q of each step: the bound is in these units.
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
        part, pairs_of_step, entries = rows.at_step(h)
        probs = drawn.probs[:, entries]
        paid = (drawn.reward if reward is None else reward[:, h])[:, pairs_of_step]
        # q_h = r + discount E v_h+1, and v_h the mean over the actions: v_h(s) = sum_a pi_h(a | s) q_h(s, a).
        q = paid + float(objective.discount) * expected_values(part, probs, later)
        weight = (policy[h] if policy.ndim > 2 else policy)[part.state, part.action]
        later = np.zeros((num, n_states + 1))
        # Pairs are in the order of their states: one sum for each run.
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
    # Long rows of mostly zeros: entry by entry, draw by draw.
    if mostly_zero(probs):
        expected = np.empty((len(probs), len(rows.state)))
        for n, draw in enumerate(probs):
            entry, positive = rows.possible(draw)
            expected[n] = np.bincount(rows.pair[entry], positive * values[n, rows.next_state[entry]], len(rows.state))
        return expected
    probs = rows.in_double(probs)
    # Dense rows in order: a matrix product for all draws.
    if rows.in_order:
        width = len(rows.next_state) // len(rows.state)
        return np.matmul(probs.reshape(len(probs), -1, width), values[:, :width, None])[..., 0]
    # Ragged rows: gather, multiply, sum by pair.
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
    # A sum of n rounded terms errs by at most gamma_n = n u / (1 - n u) times the sum of their sizes [HIGHAM02].
    terms = int(np.diff(rows.first).max(initial=1)) + SPARE + n_actions + 2
    u = terms * _EPS / 2
    factor, later, error = u / (1 - u), np.zeros_like(largest), np.zeros_like(largest)
    worst = error
    for size in sizes:
        # What a step errs by, and what later errors reach it.
        error = factor * (largest + size + later) + terms * _TINY + float(objective.discount) * error
        worst, later = np.maximum(worst, error), size
    # Rows add up to one but for rounding, so errors grow a little on their way to the first step.
    growth = (1 + ROW_SUM_TOLERANCE["float64"] + factor) ** objective.horizon
    gap = worst * growth * (1 + objective.horizon * _EPS)
    return np.where(np.isfinite(gap), gap, np.inf)


TIE = 1e-12
"""Share of the largest value by which actions differ that are equal but for rounding."""

_ITERATIONS = 200
_BETTER = 1e-11  # share of the largest value by which an action must be better


class Optima(NamedTuple):
    """The best policy of N draws.

    Args:
        values: of the states where an episode starts (`AverageReward`: the gain), and bounds on their errors.
        q: of the pairs; by step where there is a horizon.
        chosen: the pair that each state takes; by step likewise.
    """

    values: Values
    q: Float[np.ndarray, "N *H Q"]
    chosen: Int[np.ndarray, "N *H S"]

    def table(self, rows: PairRows, n_actions: int) -> Float[np.ndarray, "N *H S A"]:
        """q of all actions, -inf where there is no pair."""
        if rows.step is None:
            table = np.full((*self.q.shape[:-1], rows.n_states, n_actions), -np.inf)
            table[..., rows.state, rows.action] = self.q
            return table
        # Pairs of a step lie together; steps with fewer pairs are padded.
        table = np.full((*self.q.shape[:2], rows.n_states, n_actions), -np.inf)
        for h in range(table.shape[1]):
            pairs_of_step = rows.step == h
            table[:, h, rows.state[pairs_of_step], rows.action[pairs_of_step]] = self.q[:, h, : pairs_of_step.sum()]
        return table


@dataclass(frozen=True, eq=False)
class Choices:
    """The pairs of each state, in N draws; every state has one at least.

    Args:
        rows: the pairs.
        probs, reward: draws of them.
    """

    rows: PairRows
    probs: Float[np.ndarray, "N E"]
    reward: Float[np.ndarray, "N Q"]

    @cached_property
    def first(self) -> Int[np.ndarray, " S"]:
        """The first pair of each state."""
        return np.searchsorted(self.rows.state, np.arange(self.rows.n_states))

    @cached_property
    def matrix(self) -> scipy.sparse.csr_matrix | None:
        """Rows of all pairs in all draws [N Q, N S1], where they are listed; None: they are dense."""
        # Dense rows are multiplied as they are.
        rows, num = self.rows, len(self.probs)
        if rows.in_order:
            return None
        # One block-diagonal matrix of all draws: a single sparse product in place of one for each draw.
        offsets, size = np.arange(num, dtype=np.int64)[:, None], rows.n_states + 1
        index = (rows.next_state + size * offsets).ravel()
        pointer = np.append((rows.first[:-1] + rows.first[-1] * offsets).ravel(), num * rows.first[-1])
        return scipy.sparse.csr_matrix((self.probs.ravel(), index, pointer), shape=(num * len(rows.state), num * size))

    def action_values(self, values: Draws, discount: float) -> Float[np.ndarray, "N Q"]:
        """reward + discount E values(next); the value of the end is zero."""
        later = np.append(values, np.zeros((len(values), 1)), -1)
        if self.matrix is None:
            return self.reward + discount * expected_values(self.rows, self.probs, later)
        return self.reward + discount * (self.matrix @ later.ravel()).reshape(self.reward.shape)

    def best(self, q: Float[np.ndarray, "N Q"]) -> Draws:
        """The largest q of each state."""
        # Pairs are sorted by state: the maximum of each run.
        return np.maximum.reduceat(q, self.first, axis=-1)

    def first_best(self, q: Float[np.ndarray, "N Q"]) -> Int[np.ndarray, "N S"]:
        """The first pair of each state that has it."""
        number = np.arange(q.shape[-1])
        # The smallest pair number among those that reach the maximum.
        return np.minimum.reduceat(np.where(q >= self.best(q)[:, self.rows.state], number, len(number)), self.first, -1)

    def chains(self, chosen: Int[np.ndarray, "N S"]) -> Chains:
        """The chain of the chosen pairs of each draw."""
        rows, num, size = self.rows, len(self.probs), self.rows.n_states
        reward = np.take_along_axis(self.reward, chosen, -1)
        n_actions = int(np.diff(np.append(self.first, len(rows.state))).max())
        if self.matrix is None:
            width = rows.width or 0
            # Dense: the chosen row of every state, [N S S]; the last states may follow nowhere.
            table = self.probs.reshape(num, -1, width)[np.arange(num)[:, None], chosen][..., :size]
            if width < size:
                table = np.concatenate([table, np.zeros((num, size, size - width))], -1)
            return Chains(table, reward, size + SPARE + n_actions + 2, np.abs(self.reward).max(-1))
        picked = self.matrix[(chosen + len(rows.state) * np.arange(num)[:, None]).ravel()]
        # The end, S, is no column.
        draw, reached = np.divmod(picked.indices, size + 1)
        data = np.where(reached < size, picked.data, 0.0)
        index = draw * size + np.where(reached < size, reached, 0)
        # Draws stay blocks of one sparse matrix.
        matrix = scipy.sparse.csr_matrix((data, index, picked.indptr), shape=(num * size, num * size))
        widest = int(np.diff(rows.first).max())
        return Chains(matrix, reward, widest + SPARE + n_actions + 2, np.abs(self.reward).max(-1))

    def take(self, draws: Bool[np.ndarray, " N"]) -> "Choices":
        """Some of the draws."""
        return Choices(self.rows, self.probs[draws], self.reward[draws])


def best_policies(
    rows: PairRows, drawn: Drawn, objective: Objective, policy: Float[np.ndarray, "S A"] | None = None
) -> Optima:
    """The best policy of every draw.

    Args:
        rows, drawn: the pairs that may be taken, at least one of each state (and step).
        objective: of the values.
        policy: action probabilities of a policy to start from, such as one that is optimal in an MDP like the draws.
    """
    # All draws are improved together; the few that do not settle go to the planner singly.
    answer = improved_policies(rows, drawn, objective, policy)
    # JAX, one draw at a time: rare, and slow.
    for n in np.flatnonzero(~np.isfinite(answer.values.gap)):
        answer = _with_plan(answer, int(n), rows, drawn, objective)
        if not np.isfinite(answer.values.gap[n]):
            break
    return answer


def improved_policies(
    rows: PairRows, drawn: Drawn, objective: Objective, policy: Float[np.ndarray, "S A"] | None = None
) -> Optima:
    """The best policy of every draw, where NumPy alone settles it; the bound of another draw is infinite.

    Args:
        rows, drawn, objective, policy: as of `best_policies`.
    """
    if isinstance(objective, Episodic):
        return _backward_induction(rows, drawn, objective)
    choices = Choices(rows, *drawn)
    answer, stable = _policy_iteration(choices, objective, _first_policy(choices, objective, policy))
    answer = answer._replace(values=answer.values._replace(gap=np.where(stable, answer.values.gap, np.inf)))
    unsettled = ~np.isfinite(answer.values.gap)
    if isinstance(objective, AverageReward) and unsettled.any():
        answer = _with_lazy_sweeps(answer, choices, unsettled)
    return answer


def _first_policy(
    choices: Choices, objective: Objective, policy: Float[np.ndarray, "S A"] | None
) -> Int[np.ndarray, "N S"]:
    rows, num = choices.rows, len(choices.probs)
    if policy is not None:
        weight = np.broadcast_to(policy[rows.state, rows.action], (num, len(rows.state)))
        return choices.first_best(weight)
    # Greedy by immediate reward is a start for policy iteration.
    if not isinstance(objective, FirstExit):
        return choices.first_best(choices.reward)
    towards, _ = ways_out(rows, choices.probs.mean(0), np.ones(len(rows.state), bool))
    return np.broadcast_to(choices.first_best(towards[None]), (num, rows.n_states)).copy()


def ways_out(
    rows: PairRows, probs: Float[np.ndarray, " E"], allowed: Bool[np.ndarray, " Q"]
) -> tuple[Float[np.ndarray, " Q"], Bool[np.ndarray, " S"]]:
    """Of each pair the probability of a step nearer to the end (zero: it is not on a shortest way), and which states
    can reach it: a policy that takes the likeliest such step everywhere is proper.

    Args:
        rows, probs: of one MDP.
        allowed: which pairs may be taken.
    """
    # States are marked by their distance to the end, which itself is at distance zero.
    reach, towards = np.zeros(rows.n_states + 1, bool), np.zeros(len(rows.state))
    reach[-1] = True
    for _ in range(rows.n_states):
        nearer = rows.sums(probs[None] * reach[rows.next_state])[0]
        new = ~reach[rows.state] & (nearer > 0) & allowed
        if not new.any():
            break
        towards[new] = nearer[new]
        reach[rows.state[new]] = True
    return towards, reach[:-1]


def _policy_iteration(
    choices: Choices, objective: Objective, chosen: Int[np.ndarray, "N S"]
) -> tuple[Optima, Bool[np.ndarray, " N"]]:
    """Howard's policy iteration; the answers, and which draws have a stable policy."""
    rate = float(objective.discount)
    anchored = isinstance(objective, AverageReward)
    chosen = chosen.copy()
    values, q = np.zeros(chosen.shape), np.zeros(choices.reward.shape)
    going, part = np.ones(len(chosen), bool), choices
    guess = None
    with np.errstate(invalid="ignore", over="ignore"):
        # Howard: solve (I - rate P_pi) v = r_pi exactly, then take the best action of every state; the draws that have
        # settled leave, so that later rounds are solved for the few that move on.
        for _ in range(_ITERATIONS):
            chains = part.chains(chosen[going])
            v = solve(chains, rate, chains.reward, anchored=anchored, guess=guess)
            # Gains hold v up to a constant: it is anchored at the first state.
            v = v - v[:, :1] if anchored else v
            now = part.action_values(v, rate)
            # What the present policy is worth in each state, against the best pair.
            current = np.take_along_axis(now, chosen[going], -1)
            # By rounding alone no action is exchanged: equal ones would alternate for ever.
            better = part.best(now) > current + _BETTER * np.abs(now).max(-1, keepdims=True)
            values[going], q[going] = v, now
            moved = better.any(-1)
            chosen[going] = np.where(better, part.first_best(now), chosen[going])
            going[going] = moved
            if not going.any():
                break
            # Draws that are settled leave the system; the others start from their last values.
            part, guess = part.take(moved) if not moved.all() else part, np.where(np.isfinite(v), v, 0.0)[moved]
    stable = ~going & np.isfinite(values).all(-1)
    return _with_bound(choices, objective, values, q, chosen), stable


_LAZY_SWEEPS, _PATIENCE, _LAZINESS = 16, 20, 0.5


def _with_lazy_sweeps(answer: Optima, choices: Choices, draws: Bool[np.ndarray, " N"]) -> Optima:
    """The answer with that of some draws by relative value iteration (the method of `bayes_mdp.planning.average`).

    Policy iteration is at a loss where a policy on its way has several recurrent classes: it has no single gain, and
    its equations are singular. Sweeps with the maximum need no policy; their span never grows.
    """
    part = choices.take(draws)
    values = np.zeros((len(part.probs), choices.rows.n_states))
    narrowest = np.full(len(values), np.inf)
    stalls = np.zeros(len(values), int)
    with np.errstate(all="ignore"):
        for _ in range(_ITERATIONS):
            for _ in range(_LAZY_SWEEPS):
                # The lazy chain stays with probability 1/2: it has the same policies, half the gain, and no period.
                values = values + _LAZINESS * (part.best(part.action_values(values, 1.0)) - values)
                values = values - values[:, :1]
            q = part.action_values(values, 1.0)
            span = np.ptp(part.best(q) - values, axis=-1)
            # A Howard step: the exact relative values of the greedy policy, kept where they narrow the span.
            chains = part.chains(part.first_best(q))
            exact = solve(chains, 1.0, chains.reward, anchored=True)
            exact = exact - exact[:, :1]
            exact_span = np.ptp(part.best(part.action_values(exact, 1.0)) - exact, axis=-1)
            narrower = exact_span < span  # false for nan
            values = np.where(narrower[:, None], exact, values)
            span = np.where(narrower, exact_span, span)
            scale = chains.size + np.abs(values).max(-1)
            stalls = np.where(span > 0.99 * narrowest, stalls + 1, 0)
            narrowest = span
            settled = (span <= 4 * _EPS * scale) | ((span <= 64 * _EPS * scale) & (stalls > 0))
            if (settled | (stalls >= _PATIENCE)).all():
                break
        q = part.action_values(values, 1.0)
    second = _with_bound(part, AverageReward(), values, q, part.first_best(q))

    def joined(old: np.ndarray, new: np.ndarray) -> np.ndarray:
        together = old.copy()
        together[draws] = new
        return together

    return Optima(
        Values(joined(answer.values.first, second.values.first), joined(answer.values.gap, second.values.gap)),
        joined(answer.q, second.q),
        joined(answer.chosen, second.chosen),
    )


def _with_bound(
    choices: Choices,
    objective: Objective,
    values: Draws,
    q: Float[np.ndarray, "N Q"],
    chosen: Int[np.ndarray, "N S"],
) -> Optima:
    """The answer and its bound from one sweep with the maximum."""
    chains = choices.chains(chosen)
    mass = choices.rows.sums(np.where(choices.rows.next_state < choices.rows.n_states, choices.probs, 0.0))
    best = choices.best(q)
    if isinstance(objective, Discounted):
        # One application of T brackets v*: of the change T v - v the least and greatest part, times 1 / (1 - discount).
        bound = discounted_bound(chains, best - values, values, float(objective.discount), mass)
        known = np.isfinite(bound.gap)[:, None]
        shift = np.where(known, bound.shift[:, None], 0.0)
        # The middle of the bracket, and half its width as gap.
        return Optima(Values(best + shift, bound.gap), q + shift, chosen)
    if isinstance(objective, AverageReward):
        gain, gap = gain_bound(chains, best - values, values, mass)
        q = q - gain[:, None]
        return Optima(Values(np.broadcast_to(gain[:, None], values.shape).copy(), gap), q, chosen)
    return Optima(Values(best, _exit_gap(choices, chains, values, q, chosen)), q, chosen)


def _exit_gap(
    choices: Choices,
    chains: Chains,
    values: Draws,
    q: Float[np.ndarray, "N Q"],
    chosen: Int[np.ndarray, "N S"],
) -> Numbers:
    """Bound on the best undiscounted values (see `bayes_mdp.planning.first_exit`), from the steps of the policy.

    With n - P n > noise for its actions and n >= 0 it is proper, and v* >= v - c n, with c its largest residual over
    the least n - P n. Above, v + c n is superharmonic for the least c with q + c P n <= v + c n for every pair.
    """
    # Expected steps n = 1 + P n to the end under the policy: where they are finite and positive it is proper.
    steps = solve(chains, 1.0, np.ones_like(values))
    with np.errstate(all="ignore"):
        error = chains.sweep_error(values)[:, None]
        noise = chains.factor * 2 * np.abs(steps).max(-1) + chains.terms * _TINY
        # -P n alone: the pairs' action values with rewards of zero.
        without_reward = Choices(choices.rows, choices.probs, np.zeros_like(choices.reward))
        descent = steps[:, choices.rows.state] - without_reward.action_values(steps, 1.0) - noise[:, None]
        progress = np.take_along_axis(descent, chosen, -1).min(-1)
        slack = values[:, choices.rows.state] - q - error
        residual = np.abs(np.take_along_axis(q, chosen, -1) - values).max(-1) + error[:, 0]
        needed = np.where(slack < 0, np.where(descent > 0, -slack / np.where(descent > 0, descent, 1.0), np.inf), 0.0)
        c = needed.max(-1) * (1 + chains.factor)
        # The inequality is checked again with the c that was computed: c itself is rounded.
        spare = 2 * _EPS * (np.abs(slack) + c[:, None] * np.abs(descent))
        fits = (slack + c[:, None] * descent >= spare).all(-1)
        moved = np.abs(choices.best(q) - values).max(-1) + error[:, 0]
        # Below: v* >= v - residual / progress n. Above: v* <= v + c n. The wider of the two is the gap.
        gap = (np.maximum(c, residual / progress) * steps.max(-1) + moved) * (1 + chains.factor)
        proven = (steps.min(-1) >= 0) & (progress > 0) & fits & np.isfinite(gap)
    return np.where(proven, gap, np.inf)


def _backward_induction(rows: PairRows, drawn: Drawn, objective: Episodic) -> Optima:
    num, n_states, horizon = len(drawn.probs), rows.n_states, objective.horizon
    size = len(rows.state) if rows.step is None else int(np.bincount(rows.step).max())
    # After the last step nothing is to come.
    later = np.zeros((num, n_states))
    q = np.full((num, horizon, size), -np.inf)
    chosen = np.zeros((num, horizon, n_states), int)
    largest, sizes = np.abs(drawn.reward).max(-1), []
    whole = Choices(rows, *drawn)
    for h in reversed(range(horizon)):
        rows_of_step, pairs_of_step, entries = rows.at_step(h)
        part = (
            whole
            if rows_of_step is rows
            else Choices(rows_of_step, drawn.probs[:, entries], drawn.reward[:, pairs_of_step])
        )
        now = part.action_values(later, float(objective.discount))
        q[:, h, : now.shape[-1]] = now
        # Greedy with respect to exact values of the next step: optimal.
        chosen[:, h] = part.first_best(now)
        later = part.best(now)
        sizes.append(np.abs(now).max(-1))
    n_actions = int(np.bincount(rows.state).max())
    return Optima(Values(later, recursion_error(rows, sizes, largest, objective, n_actions)), q, chosen)


def first_order_variance(
    posterior: CanMean, policy: Float[np.ndarray, "S A"], objective: Discounted | FirstExit, start: ArrayLike
) -> tuple[Float[np.ndarray, " S"], Float[np.ndarray, "S A"]]:
    """Values of a policy in the mean MDP, and what each pair adds to the variance of its value from the start.

    To first order in the rows, which are independent: time^2 times the variance of what the row leads to. It costs no
    draws; what it leaves out are terms of second order, of the size of the variances times the time in a loop.

    Args:
        posterior: with variances, and independent rows.
        policy: action probabilities.
        objective, start: of the value.
    """
    with jax.enable_x64(True):
        believed = to_float64(posterior)
        assert isinstance(believed, HasVariances)
        rows, drawn = pairs_of_mdp(believed.mean_mdp())
        q = action_values(rows, drawn, policy, objective)
        # Of actions that it takes: an illegal one has no value.
        values = (policy * np.where(policy > 0, q, 0.0)).sum(-1)
        # Var over rows of p . v, for the values of the mean MDP.
        spread = np.asarray(believed.bellman_variance(jnp.asarray(values), float(objective.discount)))
    time = pair_time(rows, drawn, policy, objective, np.asarray(start, np.float64))
    # Rows are independent: variances add, each by the square of its time.
    return values, np.where(time > 0, time**2 * spread, 0.0)


_solve = eqx.filter_jit(plan)


def _with_plan(answer: Optima, draw: int, rows: PairRows, drawn: Drawn, objective: Objective) -> Optima:
    """The answer with that of the planner for one draw."""
    n_states, n_actions = rows.n_states, int(rows.action.max()) + 1
    table, reward = np.zeros((n_states, n_actions, n_states + 1)), np.zeros((n_states, n_actions))
    legal = np.zeros((n_states, n_actions), bool)
    legal[rows.state, rows.action] = True
    # The draw as an MDP of the planner; an illegal pair has a row too, which nothing reads.
    table[~legal, 0] = 1.0
    table[rows.state[rows.pair], rows.action[rows.pair], rows.next_state] = drawn.probs[draw]
    reward[rows.state, rows.action] = drawn.reward[draw]
    with jax.enable_x64(True):
        ends = jnp.asarray(table[..., -1]) if (rows.next_state == n_states).any() else None
        mdp = MDP(jnp.asarray(table[..., :-1]), jnp.asarray(reward), end_probs=ends, legal=jnp.asarray(legal))
        solution = _solve(mdp, objective)
    first, gap = answer.values.first.copy(), answer.values.gap.copy()
    q, chosen = answer.q.copy(), answer.chosen.copy()
    gain = isinstance(objective, AverageReward)
    first[draw] = float(solution.gain) if gain else np.asarray(solution.v)
    gap[draw] = float(solution.gap)
    q[draw] = np.asarray(solution.q)[rows.state, rows.action]
    number = np.zeros((n_states, n_actions), int)
    number[rows.state, rows.action] = np.arange(len(rows.state))
    chosen[draw] = number[np.arange(n_states), np.asarray(solution.policy)]
    return Optima(Values(first, gap), q, chosen)
