"""How far unrecorded causes of the logged actions could move the value of a policy: the marginal sensitivity model.

Somebody chose the actions of the log, and may have seen what the log does not hold. If a cause that is drawn anew at
every step drives both action and outcome, the row that a *policy* meets differs from the row that the log shows:

    P_do(k | s, a) = P(k | s, a) (e + (1 - e) r_k),    1 / factor <= r_k <= factor,    sum_k P(k | s, a) r_k = 1,

with e the probability of the action in the log ([Tan06]; [KZ20] for steps in time). `factor` 1 is a log without such
causes. `value_bounds` are the least and the greatest value over all such rows, which are sharp; what the log itself did
is identified, whatever the factor, and `tipping_point` is the factor from which on a policy may be worth no more.

Causes move where an outcome leads, and the reward that hangs on the outcome; the reward of a pair is taken as it is.

`tilted` moves all rows in one direction instead, r_k proportional to exp(delta score_k), which a prior can be put on
(`tilted_draws`): no data move delta, so that its posterior is its prior.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
from scipy.optimize import brentq

from bayes_mdp.decisions.policy_evaluation import read_action_probs, read_start
from bayes_mdp.inference.draws.weighted_samples import PosteriorSamples, posterior_samples
from bayes_mdp.mdp import MDP, CanSample, Discounted, Episodic, Objective, PolicyLike, SparseMDP, StateActionSpace
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.mdp.hypothesis import check_mdp
from bayes_mdp.numerics.numpy_or_jax import xp
from bayes_mdp.planning.extended_mdp import least_rows, solve_listed
from bayes_mdp.utils.typing import ArrayLike, InitialLike, RealScalar
from bayes_mdp.utils.validation import (
    as_real,
    broadcasts_to,
    check_count,
    check_finite,
    check_key,
    check_number,
    check_probability_rows,
    check_shape,
    check_type,
)

ROUNDS = 1000
"""Of rows that suit the value and values of these rows; a few are enough."""
SETTLED = 1e-12
"""Relative change of the values at which these rounds stop."""
MOST_FACTOR = 1e6
"""A tipping point above it is infinite: nothing that could be left unrecorded is so strong."""


class Bounds(NamedTuple):
    """What a policy may be worth.

    Args:
        low, high: the least and the greatest value, in units of the objective.
    """

    low: float
    high: float


class _Rows(NamedTuple):
    """The rows of an MDP outcome by outcome, of the pairs that are taken at all.

    Args:
        state, action: of each pair, in the order of the states, of which each has one at least.
        probs: of each outcome; the last one ends the episode, where an episode can.
        paid: reward of each outcome.
        after: the state that each leads to; S: the end, whose value is zero.
        in_order: whether the outcomes of all rows are the states in order, and each pair pays the same for all.
    """

    state: Int[np.ndarray, " Q"]
    action: Int[np.ndarray, " Q"]
    probs: Float[np.ndarray, "Q O"]
    paid: Float[np.ndarray, "Q O"]
    after: Int[np.ndarray, "Q O"]
    in_order: bool

    def sums(self, values: Float[np.ndarray, "Q *axes"]) -> Float[np.ndarray, "S *axes"]:
        """Over the pairs of each state."""
        return np.add.reduceat(values, np.flatnonzero(np.diff(self.state, prepend=-1)), axis=0)


class _Case(NamedTuple):
    """What is evaluated: arguments as of `value_bounds`, as NumPy arrays."""

    rows: _Rows
    policy: Float[np.ndarray, "*H S A"]
    logged: Float[np.ndarray, "S A"]
    objective: Objective
    start: Float[np.ndarray, " S"]


def value_bounds(
    mdp: MDP | SparseMDP,
    policy: PolicyLike,
    logged: ArrayLike,
    objective: Objective,
    factor: RealScalar,
    *,
    initial: InitialLike | None = None,
    outcome_reward: ArrayLike | None = None,
) -> Bounds:
    """The least and the greatest value of a policy if hidden confounders change the odds of an action by `factor`.

    Sharp: some rows of the model have these values. The rows of each state and action are found by sorting its outcomes
    by what they are worth; rows and values take turns until the values stay. Host-side, by NumPy.

    Args:
        mdp: as a log without unrecorded causes would have it (the posterior's `mean_mdp()`, one draw of it, maximum
            likelihood).
        policy: Int[*H S] or Float[*H S A].
        logged: Float[S A], how likely the log's own actions are in each state (see `behaviour_policy`).
        objective: Discounted or Episodic.
        factor: 1 or greater, a ratio of odds: by how much the odds of the logged action may differ between subjects
            who look alike in the log.
        initial: distribution of the first state; None: that of the MDP, or else uniform.
        outcome_reward: Float[S A O], broadcast, reward of each outcome (the listed successors of a SparseMDP, then the
            end); None: the reward does not depend on the outcome.

    Raises:
        ValueError: a factor below 1, arrays of other shapes, rows that do not sum to one. TypeError: another objective.

    Example:
        >>> mdp = bm.MDP([[[0.5, 0.5], [0.7, 0.3]], [[0.0, 1.0], [0.0, 1.0]]], [[1.0, 1.0], [0.0, 0.0]])
        >>> half = [[0.5, 0.5], [0.5, 0.5]]
        >>> low, high = bm.decisions.value_bounds(mdp, [1, 1], half, bm.Episodic(2), 2.0, initial=0)
        >>> print(round(low, 3), round(high, 3))  # between .5 * .7 + .5 * .4 and .5 * .7 + .5 * .85
        1.55 1.775
    """
    case = _read(mdp, policy, logged, objective, initial, outcome_reward)
    check_number("factor", factor, lambda x: (x >= 1) & np.isfinite(x), "a finite number, 1 or greater")
    return Bounds(_extreme(case, float(factor), least=True), _extreme(case, float(factor), least=False))


def tipping_point(
    mdp: MDP | SparseMDP,
    policy: PolicyLike,
    logged: ArrayLike,
    objective: Objective,
    *,
    initial: InitialLike | None = None,
    outcome_reward: ArrayLike | None = None,
) -> float:
    """How strong hidden confounders must be before a policy may be no better than what was done in the log.

    Practice as it was has its value by the log itself, whatever drove it. 1: the policy is no better even without any
    unrecorded cause; infinity: no factor up to a million makes it worse.

    Args:
        mdp, policy, objective, initial: as of `value_bounds`.
        logged: Float[S A], likewise.
        outcome_reward: Float[S A O], broadcast, likewise.

    Raises:
        ValueError, TypeError: as `value_bounds`.

    Example:
        >>> mdp = bm.MDP([[[0.5, 0.5], [0.7, 0.3]], [[0.0, 1.0], [0.0, 1.0]]], [[1.0, 1.0], [0.0, 0.0]])
        >>> half = [[0.5, 0.5], [0.5, 0.5]]
        >>> factor = bm.decisions.tipping_point(mdp, [1, 1], half, bm.Discounted(0.9), initial=0)
        >>> 1.0 < factor < 2.0
        True
    """
    case = _read(mdp, policy, logged, objective, initial, outcome_reward)
    # What the log did has its value by the log itself, at factor 1, whatever drove it.
    practice = _extreme(case._replace(policy=case.logged), 1.0, least=True)

    def surplus(log_factor: float) -> float:
        return _extreme(case, float(np.exp(log_factor)), least=True) - practice

    # The value falls in the factor, which is searched on a log scale, from 1 (no unrecorded causes) on.
    return _crossing(surplus, float(np.log(MOST_FACTOR)), lambda log_factor: float(np.exp(log_factor)))


def outcomes_of_mdp(paid: Float[np.ndarray, "S A O"], space: StateActionSpace) -> Float[np.ndarray, "S A O1"]:
    """Rewards by the outcomes of a space in the order of its MDPs, as `outcome_reward` has them.

    Args:
        paid: of each outcome of the space.
        space: of the rewards.
    """
    if space.successors is None or not space.ends:
        return paid
    # A sparse MDP keeps the end apart, after all places; the place that listed it stays, and has probability zero.
    end = np.where(space.successors == space.n_states, paid, 0.0).sum(-1, keepdims=True)
    return np.concatenate([paid, end], -1)


def tipping_tilt(
    mdp: MDP | SparseMDP,
    policy: PolicyLike,
    logged: ArrayLike,
    objective: Objective,
    score: ArrayLike,
    *,
    initial: InitialLike | None = None,
    outcome_reward: ArrayLike | None = None,
) -> float:
    """The delta of `tilted` from which on a policy is worth no more than what the log did; infinity: none up to 100.

    Args:
        mdp, policy, objective, initial: as of `value_bounds`.
        logged: Float[S A], likewise.
        outcome_reward: Float[S A O], broadcast, likewise.
        score: Float[O], or broadcast to [S A O], as of `tilted`, such that a larger delta makes the policy worse.

    Raises:
        ValueError, TypeError: as `value_bounds`.
    """
    case = _read(mdp, policy, logged, objective, initial, outcome_reward)
    rows, shape = case.rows, (*case.logged.shape, case.rows.probs.shape[1])
    scores = np.broadcast_to(_read_score(score, shape), shape)[rows.state, rows.action]
    logged_probs = case.logged[rows.state, rows.action]
    practice = _extreme(case._replace(policy=case.logged), 1.0, least=True)

    def surplus(delta: float) -> float:
        moved = rows._replace(probs=np.asarray(_tilt(rows.probs, logged_probs, scores, delta)))
        return _extreme(case._replace(rows=moved), 1.0, least=True) - practice

    return _crossing(surplus, 100.0, lambda delta: delta)


def tilted(mdp: MDP | SparseMDP, logged: ArrayLike, score: ArrayLike, delta: RealScalar) -> MDP | SparseMDP:
    """The MDP that a policy meets if unrecorded causes move its rows: r_k proportional to exp(delta score_k).

    Traceable in `delta`. Rewards [S A] stay as they are.

    Args:
        mdp: as of `value_bounds`.
        logged: Float[S A], likewise.
        score: Float[O], or broadcast to [S A O]: how an outcome is weighed (0 for the best, 1 for the worst, say).
        delta: log of the ratio between outcomes whose scores differ by one; 0: no unrecorded causes.

    Raises:
        ValueError: shapes that do not fit, practice that does not sum to one. TypeError: no MDP.
    """
    check_mdp(mdp, "mdp")
    taken = _read_log_policy(logged, tuple(mdp.reward.shape))
    # The end is one more outcome: its probability is tilted like the others.
    rows = jnp.asarray(mdp.row_probs)
    if mdp.end_probs is not None:
        rows = jnp.concatenate([rows, jnp.asarray(mdp.end_probs)[..., None]], -1)
    moved = _tilt(rows, jnp.asarray(taken), _read_score(score, rows.shape), delta)
    # And back to where the MDP keeps it.
    probs, ends = (moved, None) if mdp.end_probs is None else (moved[..., :-1], moved[..., -1])
    known = {"end_probs": ends, "legal": mdp.legal, "initial": mdp.initial}
    if isinstance(mdp, SparseMDP):
        return SparseMDP(mdp.successor, probs, mdp.reward, **known)
    return MDP(probs, mdp.reward, **known)


def tilted_draws(
    key: PRNGKeyArray,
    posterior: CanSample,
    logged: ArrayLike,
    score: ArrayLike,
    delta: dist.Distribution | None = None,
    *,
    num_draws: int = 1000,
) -> tuple[PosteriorSamples, Float[np.ndarray, " N"]]:
    """Draws of a posterior, each tilted by its own delta: what is believed of the rows that a policy meets.

    The log cannot tell delta: its draws are those of its prior, and independent of the rows.

    Args:
        key: of the draws.
        posterior: of the log, as without unrecorded causes.
        logged: Float[S A], as of `tilted`.
        score: Float[O], or broadcast to [S A O], likewise.
        delta: prior of delta; None: Normal(0, 0.5).
        num_draws: N.

    Returns:
        The tilted draws as a posterior (for `policy_value`, `choose`, ...), and the delta of each.

    Raises:
        ValueError, TypeError: as `tilted`; a posterior that cannot be sampled.
    """
    require_ability(posterior, CanSample, "tilted_draws")
    check_key("key", key)
    check_count("num_draws", num_draws, 2)
    law = dist.Normal(0.0, 0.5) if delta is None else delta
    check_type("delta", law, dist.Distribution, "a NumPyro distribution")
    # Rows from the posterior, tilts from their prior: the log says nothing of delta.
    of_rows, of_delta = jax.random.split(key)
    with jax.enable_x64(True):
        deltas = jnp.asarray(law.sample(of_delta, (num_draws,)), float)
        mdps = posterior.sample(of_rows, (num_draws,))
        # Each draw has its own tilt.
        moved = jax.vmap(lambda mdp, each: tilted(mdp, logged, score, each))(mdps, deltas)
        return posterior_samples(jax.tree.map(np.asarray, moved)), np.asarray(deltas)


def _read(
    mdp: MDP | SparseMDP,
    policy: PolicyLike,
    logged: ArrayLike,
    objective: Objective,
    initial: InitialLike | None,
    outcome_reward: ArrayLike | None,
) -> _Case:
    check_mdp(mdp, "mdp")
    check_type("objective", objective, (Discounted, Episodic), "Discounted or Episodic")
    pairs = tuple(mdp.reward.shape)
    if len(pairs) != 2:
        raise ValueError(f"mdp has rewards of shape {pairs}, expected one MDP whose rows do not depend on the step")
    taken = _read_log_policy(logged, pairs)
    probs = read_action_probs("policy", policy, mdp, objective)
    used = (probs > 0).reshape(-1, *pairs).any(0) | (taken > 0)
    rows = _rows_of(mdp, outcome_reward, used)
    start = read_start(mdp, initial).probs
    return _Case(rows, probs, taken, objective, start)


def _rows_of(mdp: MDP | SparseMDP, outcome_reward: ArrayLike | None, used: Bool[np.ndarray, "S A"]) -> _Rows:
    state, action = np.nonzero(used)
    probs = np.asarray(mdp.row_probs, np.float64)[used]
    # Dense rows lead to every state in order.
    listed = np.asarray(mdp.successor)[used] if isinstance(mdp, SparseMDP) else np.arange(len(used))
    after = np.broadcast_to(listed, probs.shape)
    if mdp.end_probs is not None:
        ends = np.asarray(mdp.end_probs, np.float64)[used, None]
        probs, after = np.concatenate([probs, ends], -1), np.concatenate([after, np.full(ends.shape, len(used))], -1)
    if outcome_reward is None:
        # A reward of the pair is the same for all outcomes: causes cannot move it.
        paid = np.asarray(mdp.reward, np.float64)[used, None]
    else:
        check_finite("outcome_reward", outcome_reward)
        shape = (*used.shape, probs.shape[1])
        paid = np.asarray(outcome_reward, np.float64)
        if not broadcasts_to(paid.shape, shape):
            raise ValueError(
                f"outcome_reward has shape {paid.shape}, expected one that broadcasts to {shape} (state, action, "
                "outcome)"
            )
        paid = np.broadcast_to(paid, shape)[used]
    in_order = not isinstance(mdp, SparseMDP) and outcome_reward is None
    return _Rows(state, action, probs, np.broadcast_to(paid, probs.shape), after, in_order)


def _extreme(case: _Case, factor: float, *, least: bool) -> float:
    """The least (or greatest) value from the start."""
    if isinstance(case.objective, Episodic):
        return _by_steps(case, case.objective, factor, least)
    return _stationary(case, float(case.objective.discount), factor, least)


def _by_steps(case: _Case, objective: Episodic, factor: float, least: bool) -> float:
    # Backwards: the worst rows of a step depend on the values of the next alone.
    rows = case.rows
    policy = np.broadcast_to(case.policy, (objective.horizon, *case.logged.shape))[:, rows.state, rows.action]
    values = np.zeros(len(case.logged))
    for step in reversed(range(objective.horizon)):
        moved = _worst_rows(case, values, float(objective.discount), factor, least)
        # R_k + discount v_k of the next step.
        worth = rows.paid + float(objective.discount) * np.append(values, 0.0)[rows.after]  # an end has value 0
        values = rows.sums(policy[step] * (moved * worth).sum(-1))
    return float(case.start @ values)


def _stationary(case: _Case, discount: float, factor: float, least: bool) -> float:
    # The adversary's policy iteration: its rows against the values, then the values of these rows. Each round moves the
    # values the same way, and the limit satisfies v(s) = sum_a pi(a|s) min_r sum_k P_do(k) (R_k + discount v_k).
    values = _value_of(case, case.rows.probs, discount)
    for _ in range(ROUNDS):
        rows = _worst_rows(case, values, discount, factor, least)
        before, values = values, _value_of(case, rows, discount)
        # A monotone sequence: once it stays, it is the fixed point.
        if np.abs(values - before).max() <= SETTLED * max(1.0, np.abs(values).max()):
            return float(case.start @ values)
    raise ArithmeticError(f"the worst rows changed in each of {ROUNDS} rounds, expected them to settle")


def _worst_rows(
    case: _Case, values: Float[np.ndarray, " S"], discount: float, factor: float, least: bool
) -> Float[np.ndarray, "Q O"]:
    """P_do of the least (or greatest) sum over outcomes of P_do(k) (R_k + discount v_k).

    The bad ones get all that the factor allows.
    """
    rows, probs = case.rows, case.rows.probs
    if rows.in_order:
        # The outcomes of all rows have one order.
        worth = discount * np.append(values, 0.0)[: probs.shape[1]]
    else:
        worth = rows.paid + discount * np.append(values, 0.0)[rows.after]
    # r_k from 1 / factor to factor: P_k r_k lies in an interval, and the rows sum to one.
    room = probs * (factor - 1.0 / factor)
    # At least P_k / factor each; the rest goes to the outcomes that are worth least, up to P_k factor. For the greatest
    # value the same with the sign reversed.
    moved = least_rows(probs / factor, room, worth if least else -worth)
    chosen = case.logged[rows.state, rows.action, None]
    # With probability e the log's action would have been taken anyway: that part of the row is as logged.
    return chosen * probs + (1.0 - chosen) * moved


def _value_of(case: _Case, probs: Float[np.ndarray, "Q O"], discount: float) -> Float[np.ndarray, " S"]:
    """The values of the policy under given rows: (1 - discount P) v = reward."""
    rows, size = case.rows, len(case.logged)
    weights = case.policy[rows.state, rows.action, None] * probs
    reward = rows.sums((weights * rows.paid).sum(-1))
    if rows.in_order:
        return np.linalg.solve(np.eye(size) - discount * rows.sums(weights)[:, :size], reward)
    return solve_listed(rows.state, rows.after, discount * weights, reward)


def _read_log_policy(logged: ArrayLike, pairs: tuple[int, ...]) -> Float[np.ndarray, "S A"]:
    taken = as_real("logged", logged).astype(np.float64)
    check_shape("logged", taken, pairs, "state, action")
    check_probability_rows("logged", taken)
    return taken


def _read_score(score: ArrayLike, shape: tuple[int, ...]) -> Float[np.ndarray, "..."]:
    check_finite("score", score)
    scores = np.asarray(score, np.float64)
    if not broadcasts_to(scores.shape, shape):
        raise ValueError(
            f"score has shape {scores.shape}, expected one that broadcasts to {shape} (state, action, outcome)"
        )
    return scores


def _tilt(
    probs: Float[Array, "*pairs O"] | Float[np.ndarray, "*pairs O"],
    logged: Float[Array, "*pairs"] | Float[np.ndarray, "*pairs"],
    score: Float[np.ndarray, "..."],
    delta: RealScalar,
) -> Float[Array, "*pairs O"] | Float[np.ndarray, "*pairs O"]:
    """P (e + (1 - e) r), r proportional to exp(delta score) with sum_k P_k r_k = 1."""
    exponent = delta * score
    # Softmax with the largest exponent at zero.
    weights = probs * xp.exp(exponent - xp.max(exponent, axis=-1, keepdims=True))
    # Normalised so that sum_k P_k r_k = 1.
    moved = weights / weights.sum(-1, keepdims=True)
    return logged[..., None] * probs + (1.0 - logged[..., None]) * moved


def _crossing(surplus: Callable[[float], float], largest: float, answer: Callable[[float], float]) -> float:
    """Where a falling function of a number from 0 on is zero, through `answer`; infinity beyond the largest."""
    if surplus(0.0) <= 0.0:
        return float(answer(0.0))
    # Doubled from a small number on: most tipping points are close to none.
    high = 1 / 16
    while high < largest and surplus(high) > 0.0:
        high *= 2
    if surplus(min(high, largest)) > 0.0:
        return float("inf")
    # A bracket, then Brent's method.
    root: Any = brentq(surplus, 0.0, min(high, largest), xtol=1e-13)
    return float(answer(root))
