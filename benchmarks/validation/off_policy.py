"""Off-policy estimators of the value of a policy from a log, for comparison with posteriors. Plain numpy.

rho_t is the product up to step t of target over behaviour probability of the actions taken; R the discounted return of
an episode of T steps; averages are over episodes.

* IS: mean of rho_T R. WIS: the same, divided by the mean of rho_T.
* PDIS: mean of sum_t discount^t rho_t r_t. PDWIS: each step divided by the mean of rho_t of its own; an episode that
  has ended keeps its last weight. (Precup, Sutton and Singh 2000, *Eligibility traces for off-policy policy
  evaluation*, ICML; Thomas 2015, *Safe reinforcement learning*, thesis.)
* DR: mean of sum_t discount^t (rho_t (r_t - q(s_t, a_t)) + rho_{t-1} v(s_t)) (Jiang and Li 2016, *Doubly robust
  off-policy value evaluation for reinforcement learning*, ICML).
* FQE: the value of the first states under the fitted q of the policy. Tabular, iterated to the end, that is the value
  of the policy in the maximum-likelihood MDP; a pair without data is worth 0.

Intervals are percentiles over resampled episodes, `bootstrap`: the same resamples can serve every estimator. The
behaviour, which the weights need, may itself be estimated: `with_unknown_behaviour`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int

Steps = Float[np.ndarray, "N T"]
Resamples = Float[np.ndarray, "B N"]
PairTable = Float[np.ndarray, "S A"]

ENDED = -1
ONLY_END_PAYS = (
    "PDWIS: rewards come only with the last step of an episode and episodes differ in length; those that ended early "
    "keep their weight in the mean of every later step, which biases the estimate towards zero"
)
NO_WEIGHT = "every weight is zero: the policy never acts as the log does, and the estimate is undefined"


@dataclass(frozen=True)
class Episodes:
    """A log of N episodes, padded to T steps.

    Args:
        states, actions: Int[N T], indices.
        rewards: Float[N T].
        mask: Bool[N T], the steps that happened: the first ones of each episode, at least one. Padding of other arrays
            is not looked at.
        behaviour, target: Float[N T], the probability that the behaviour and the policy to judge give to the action
            that was taken.
        reached: Int[N], the state after the last step where the log cuts an episode, -1 where it ended; None: all
            ended. DR and FQE go on from there; the other estimators take what was not seen as zero.

    Raises:
        ValueError: shapes that do not fit, a mask with a hole, indices below zero, a number that is not finite, a
            probability out of its range: the episode and the step are named. An action that was taken had a positive
            behaviour probability.
    """

    states: Int[np.ndarray, "N T"]
    actions: Int[np.ndarray, "N T"]
    rewards: Steps
    mask: Bool[np.ndarray, "N T"]
    behaviour: Steps
    target: Steps
    reached: Int[np.ndarray, " N"] | None = None

    def __post_init__(self) -> None:
        mask = np.asarray(self.mask, bool)
        if mask.ndim != 2 or 0 in mask.shape:
            raise ValueError(f"mask has shape {mask.shape}, expected [episode, step], at least one of each")
        wrong = ~mask[:, 0] | (mask[:, 1:] & ~mask[:, :-1]).any(1)
        if wrong.any():
            raise ValueError(f"mask[{wrong.argmax()}] has a hole, expected steps from the first on, at least one")
        object.__setattr__(self, "mask", mask)
        for name, kind, filler in (
            ("states", int, 0),
            ("actions", int, 0),
            ("rewards", float, 0.0),
            ("behaviour", float, 1.0),
            ("target", float, 1.0),
        ):
            given = np.asarray(getattr(self, name))
            if given.shape != mask.shape:
                raise ValueError(f"{name} has shape {given.shape}, expected {mask.shape}, as mask")
            if kind is int and given.dtype.kind not in "iu":
                raise ValueError(f"{name} has dtype {given.dtype}, expected integers")
            object.__setattr__(self, name, np.where(mask, given, filler).astype(kind))
        self._require(self.states >= 0, "states", "an index of 0 or more")
        self._require(self.actions >= 0, "actions", "an index of 0 or more")
        self._require(np.isfinite(self.rewards), "rewards", "a finite number")
        self._require(
            (self.behaviour > 0) & (self.behaviour <= 1), "behaviour", "above 0 and at most 1: the action was taken"
        )
        self._require((self.target >= 0) & (self.target <= 1), "target", "a probability")
        if self.reached is not None:
            reached = np.asarray(self.reached)
            if reached.shape != mask.shape[:1] or reached.dtype.kind not in "iu" or (reached < ENDED).any():
                raise ValueError("reached is expected to have one state for each episode, or -1 where it ended")
            object.__setattr__(self, "reached", reached)

    def _require(self, right: Bool[np.ndarray, "N T"], name: str, expected: str) -> None:
        if not right.all():
            episode, step = np.argwhere(~right)[0]
            found = getattr(self, name)[episode, step]
            raise ValueError(f"{name} of episode {episode}, step {step} is {found}, expected {expected}")

    @property
    def next_states(self) -> Int[np.ndarray, "N T"]:
        """The state after every step, -1 for an end (and for padding)."""
        after = np.full(self.mask.shape, ENDED)
        after[:, :-1] = np.where(self.mask[:, 1:], self.states[:, 1:], ENDED)
        if self.reached is not None:
            after[np.arange(len(after)), self.mask.sum(1) - 1] = self.reached
        return after

    @property
    def weights(self) -> Steps:
        """rho_t; an episode that has ended keeps its last."""
        return np.cumprod(self.target / self.behaviour, 1)

    def returns(self, discount: float) -> Float[np.ndarray, " N"]:
        """Discounted sum of the rewards of every episode."""
        return self.rewards @ _powers(self, discount)


def episodes_of(
    states: Int[np.ndarray, "N T"],
    actions: Int[np.ndarray, "N T"],
    rewards: Steps,
    mask: Bool[np.ndarray, "N T"],
    behaviour: PairTable,
    policy: PairTable,
    reached: Int[np.ndarray, " N"] | None = None,
) -> Episodes:
    """`Episodes` from tables of action probabilities.

    Raises:
        ValueError: as `Episodes`; rows that are no distributions, a state or action that they lack; a state of the log
            where the policy may act as the behaviour never does (names the first episode and step there).
    """
    mask = np.asarray(mask, bool)
    behaviour, policy = _policy("behaviour", behaviour), _policy("policy", policy)
    if behaviour.shape != policy.shape:
        raise ValueError(f"behaviour has shape {behaviour.shape}, expected {policy.shape}, as policy")
    one = np.ones(np.shape(states))
    log = Episodes(states, actions, rewards, mask, one, one, reached)
    for name, most in (("states", len(policy)), ("actions", policy.shape[1])):
        log._require(getattr(log, name) < most, name, f"an index below {most}")
    uncovered = ((behaviour == 0) & (policy > 0)).any(1)[log.states] & mask
    if uncovered.any():
        episode, step = np.argwhere(uncovered)[0]
        state = log.states[episode, step]
        raise ValueError(
            f"episode {episode}, step {step}: the policy may take an action in state {state} that has behaviour "
            "probability 0, expected above 0 wherever the policy acts"
        )
    pair = (log.states, log.actions)
    return replace(log, behaviour=behaviour[pair], target=policy[pair])


@dataclass(frozen=True)
class Estimate:
    """An estimate of the value of a policy.

    Args:
        value: of the log as it is; NaN where it is undefined.
        resampled: Float[B], of every resample; empty without.
        effective_sample_size: (sum rho_T)^2 / sum rho_T^2 over episodes; NaN where no weight enters (FQE), or all are
            zero.
        warnings: what speaks against the estimate, in words.
    """

    value: float
    resampled: Float[np.ndarray, " B"]
    effective_sample_size: float
    warnings: tuple[str, ...] = ()

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """The central percentiles of the resamples, of which those without an estimate are left out.

        Raises:
            ValueError: there are no resamples with an estimate.
        """
        defined = self.resampled[np.isfinite(self.resampled)]
        if not len(defined):
            raise ValueError("no resample has an estimate, expected resamples=bootstrap(...) and weights above 0")
        low, high = np.quantile(defined, [0.5 - level / 2, 0.5 + level / 2])
        return float(low), float(high)


Estimator: TypeAlias = Callable[..., Estimate]
"""Called as (log, resamples=...): one of the functions below, its other arguments bound by `functools.partial`."""


def bootstrap(rng: np.random.Generator, log: Episodes, number: int) -> Resamples:
    """How often each episode is in each of `number` resamples of the log."""
    size = len(log.mask)
    return rng.multinomial(size, np.full(size, 1 / size), number).astype(float)


def effective_sample_size(log: Episodes) -> float:
    """(sum rho_T)^2 / sum rho_T^2 over episodes: N where policy and behaviour agree. NaN where all weights are zero."""
    last = log.weights[:, -1]
    return float(last.sum() ** 2 / (last**2).sum()) if last.any() else float("nan")


def importance_sampling(log: Episodes, discount: float = 1.0, *, resamples: Resamples | None = None) -> Estimate:
    """IS. Unbiased with known behaviour; its variance grows exponentially with the length of episodes."""
    products = log.weights[:, -1] * log.returns(discount)
    return _estimate(log, resamples, lambda counts: counts @ products / counts.sum(1))


def weighted_importance_sampling(
    log: Episodes, discount: float = 1.0, *, resamples: Resamples | None = None
) -> Estimate:
    """WIS. Within the range of the returns of the log; biased towards the behaviour's where weights are few."""
    last, returns = log.weights[:, -1], log.returns(discount)
    return _estimate(log, resamples, lambda counts: _ratio(counts @ (last * returns), counts @ last))


def per_decision(log: Episodes, discount: float = 1.0, *, resamples: Resamples | None = None) -> Estimate:
    """PDIS. Unbiased with known behaviour; a reward is weighted by what led to it alone."""
    sums = (log.weights * log.rewards) @ _powers(log, discount)
    return _estimate(log, resamples, lambda counts: counts @ sums / counts.sum(1))


def per_decision_weighted(log: Episodes, discount: float = 1.0, *, resamples: Resamples | None = None) -> Estimate:
    """PDWIS. An ended episode keeps its weight: where only the end pays the estimate is biased, and says so."""
    weights, powers = log.weights, _powers(log, discount)
    products = weights * log.rewards
    estimate = _estimate(log, resamples, lambda counts: _ratio(counts @ products, counts @ weights) @ powers)
    return replace(estimate, warnings=(*estimate.warnings, ONLY_END_PAYS)) if only_the_end_pays(log) else estimate


def doubly_robust(
    log: Episodes,
    discount: float = 1.0,
    *,
    policy: PairTable,
    q: PairTable | None = None,
    resamples: Resamples | None = None,
) -> Estimate:
    """DR, per decision. An episode that the log cuts goes on with v of the state reached.

    Args:
        policy: the one that `log.target` has the probabilities of.
        q: its action values; None: those of FQE, from the same log, fitted anew in each resample.

    Raises:
        ValueError: a policy, or a q, that does not fit the log.
    """
    policy = _fitting_policy(log, policy)
    n_states, n_actions = policy.shape
    if q is not None:
        q = np.asarray(q, float)
        if q.shape != policy.shape or not np.isfinite(q).all():
            raise ValueError(f"q has shape {q.shape}, expected finite numbers of shape {policy.shape}, as policy")
    weights, powers = log.weights, _powers(log, discount)
    sums = (weights * log.rewards) @ powers
    # The rest is linear in q: coefficients [episode, state, action], the same for every resample.
    episode = np.broadcast_to(np.arange(len(weights))[:, None], weights.shape)
    before = np.concatenate([np.ones((len(weights), 1)), weights[:, :-1]], 1)
    taken, entered = np.zeros((len(weights), n_states, n_actions)), np.zeros((len(weights), n_states))
    np.add.at(taken, (episode, log.states, log.actions), np.where(log.mask, powers * weights, 0.0))
    np.add.at(entered, (episode, log.states), np.where(log.mask, powers * before, 0.0))
    if log.reached is not None:
        cut = np.flatnonzero(log.reached != ENDED)
        lengths = log.mask.sum(1)[cut]
        np.add.at(entered, (cut, log.reached[cut]), discount**lengths * weights[cut, lengths - 1])
    coefficients = (entered[..., None] * policy - taken).reshape(len(weights), -1)

    def values(counts: Resamples) -> Float[np.ndarray, " B"]:
        fitted = fitted_q(log, counts, discount, policy) if q is None else q[None]
        part = ((counts @ coefficients) * fitted.reshape(len(fitted), -1)).sum(1)
        return (counts @ sums + part) / counts.sum(1)

    return _estimate(log, resamples, values)


def fitted_q_evaluation(
    log: Episodes, discount: float = 1.0, *, policy: PairTable, resamples: Resamples | None = None
) -> Estimate:
    """FQE: mean over episodes of v at the first state. Needs no behaviour probabilities.

    Raises:
        ValueError: a policy that does not fit the log; without discount, one that need not end in the model.
    """
    policy = _fitting_policy(log, policy)
    first = np.eye(len(policy))[log.states[:, 0]]

    def values(counts: Resamples) -> Float[np.ndarray, " B"]:
        v = (fitted_q(log, counts, discount, policy) * policy).sum(-1)
        return ((counts @ first) * v).sum(1) / counts.sum(1)

    return replace(_estimate(log, resamples, values), effective_sample_size=float("nan"))


def fitted_q(log: Episodes, counts: Resamples, discount: float, policy: PairTable) -> Float[np.ndarray, "B S A"]:
    """Action values of `policy` in the maximum-likelihood MDP of every resample; 0 for a pair without data.

    Raises:
        ValueError: the linear system is singular (without discount, a policy that need not end).
    """
    n_states, n_actions = policy.shape
    episode, step = np.nonzero(log.mask)
    state, action, after = (x[episode, step] for x in (log.states, log.actions, log.next_states))
    outcome = np.where(after == ENDED, n_states, after)
    # Only triples that were seen are counted, [episode, triple]; a resample is one product with its counts.
    shape = (n_states, n_actions, n_states + 1)
    seen, which = np.unique(np.ravel_multi_index((state, action, outcome), shape), return_inverse=True)
    tally, paid = np.zeros((2, len(log.mask), len(seen)))
    np.add.at(tally, (episode, which), 1.0)
    np.add.at(paid, (episode, which), log.rewards[episode, step])
    rows = np.zeros((len(counts), *shape))
    rewards = np.zeros_like(rows)
    index = (slice(None), *np.unravel_index(seen, shape))
    rows[index], rewards[index] = counts @ tally, counts @ paid
    visits = np.maximum(rows.sum(-1), 1.0)
    reward, rows = rewards.sum(-1) / visits, rows[..., :n_states] / visits[..., None]
    chain = np.einsum("bsaz,sa->bsz", rows, policy)
    try:
        v = np.linalg.solve(np.eye(n_states) - discount * chain, (reward * policy).sum(-1)[..., None])[..., 0]
    except np.linalg.LinAlgError as error:
        raise ValueError("in the model of the log the policy need not end, expected a discount below 1") from error
    return reward + discount * np.einsum("bsaz,bz->bsa", rows, v)


def only_the_end_pays(log: Episodes) -> bool:
    """Whether rewards come only with the last step of episodes, which differ in length."""
    lengths = log.mask.sum(1)
    last = np.arange(log.mask.shape[1]) == lengths[:, None] - 1
    return bool(log.rewards.any() and not log.rewards[~last].any() and (lengths != lengths[0]).any())


def behaviour_posterior(log: Episodes, n_states: int, n_actions: int, prior: float | PairTable = 1.0) -> PairTable:
    """Dirichlet parameters of the behaviour in every state: `prior` (0 where an action is illegal) plus counts.

    Raises:
        ValueError: a prior that is negative or not finite; a state without any weight; a state or action of the log
            beyond the sizes; an action of the log that the prior calls illegal.
    """
    alpha = np.broadcast_to(np.asarray(prior, float), (n_states, n_actions)).copy()
    if not np.isfinite(alpha).all() or (alpha < 0).any() or not alpha.any(1).all():
        raise ValueError("prior is expected to be finite, 0 or more, and above 0 for some action of every state")
    for name, most in (("states", n_states), ("actions", n_actions)):
        log._require(getattr(log, name) < most, name, f"an index below {most}")
    log._require((alpha[log.states, log.actions] > 0) | ~log.mask, "actions", "an action of positive prior")
    np.add.at(alpha, (log.states[log.mask], log.actions[log.mask]), 1.0)
    return alpha


def behaviour_draws(rng: np.random.Generator, alpha: PairTable, number: int) -> Float[np.ndarray, "D S A"]:
    """Draws of the behaviour from its posterior."""
    gamma = rng.standard_gamma(alpha, (number, *alpha.shape))
    return gamma / gamma.sum(-1, keepdims=True)


def with_unknown_behaviour(
    estimator: Estimator,
    log: Episodes,
    alpha: PairTable,
    rng: np.random.Generator,
    *,
    number: int = 200,
    resample: bool = True,
) -> Estimate:
    """An estimate with the behaviour estimated from the log, whose uncertainty reaches the resamples.

    The behaviour of `log` is not looked at. (Behaviour frequencies of the same log can make weighted estimators
    steadier than the true behaviour; draws around them add width all the same: they are not conditioned on returns.)

    Args:
        estimator: takes (log, resamples=...), as `functools.partial(per_decision, discount=.9)` does.
        log: the episodes; target probabilities are used.
        alpha: as `behaviour_posterior` returns it.
        rng: of the draws.
        number: of draws.
        resample: each draw of the behaviour meets one resample of the episodes; False: the episodes as they are, what
            comes from the behaviour alone.

    Returns:
        The estimate at the posterior mean of the behaviour, and one for every draw in `resampled`.
    """
    pair = (log.states, log.actions)
    centre = replace(log, behaviour=(alpha / alpha.sum(1, keepdims=True))[pair])
    counts = bootstrap(rng, log, number) if resample else np.ones((number, len(log.mask)))
    draws = behaviour_draws(rng, alpha, number)
    resampled = [
        estimator(replace(log, behaviour=draw[pair]), resamples=row[None]).resampled[0]
        for draw, row in zip(draws, counts, strict=True)
    ]
    return replace(estimator(centre, resamples=None), resampled=np.array(resampled))


def _powers(log: Episodes, discount: float) -> Float[np.ndarray, " T"]:
    if not 0 <= discount <= 1:
        raise ValueError(f"discount is {discount}, expected a number from 0 to 1")
    return discount ** np.arange(log.mask.shape[1])


def _ratio(top: Any, bottom: Any) -> Any:
    """top / bottom, NaN where there is no weight."""
    return np.where(bottom > 0, top / np.where(bottom > 0, bottom, 1.0), np.nan)


def _estimate(
    log: Episodes, resamples: Resamples | None, values: Callable[[Resamples], Float[np.ndarray, " B"]]
) -> Estimate:
    size = len(log.mask)
    if resamples is None:
        resamples = np.zeros((0, size))
    if resamples.ndim != 2 or resamples.shape[1] != size:
        raise ValueError(f"resamples has shape {resamples.shape}, expected [resample, {size}]")
    found = values(np.concatenate([np.ones((1, size)), resamples]))
    warnings = (NO_WEIGHT,) if np.isnan(found[0]) else ()
    return Estimate(float(found[0]), found[1:], effective_sample_size(log), warnings)


def _policy(name: str, probs: PairTable) -> PairTable:
    """Action probabilities in every state."""
    probs = np.asarray(probs, float)
    if probs.ndim != 2:
        raise ValueError(f"{name} has shape {probs.shape}, expected [state, action]")
    right = (probs >= 0).all(1) & (abs(probs.sum(1) - 1) < 1e-6)
    if not right.all():
        raise ValueError(f"{name}[{right.argmin()}] is {probs[right.argmin()]}, expected probabilities that sum to 1")
    return probs


def _fitting_policy(log: Episodes, policy: PairTable) -> PairTable:
    """`policy`, which has every state and action of the log and its target probabilities."""
    policy = _policy("policy", policy)
    for name, most in (("states", policy.shape[0]), ("actions", policy.shape[1])):
        log._require(getattr(log, name) < most, name, f"an index below {most}, as policy has")
    if log.reached is not None and (log.reached >= len(policy)).any():
        raise ValueError(f"reached of episode {(log.reached >= len(policy)).argmax()} is no state of policy")
    same = abs(policy[log.states, log.actions] - log.target) < 1e-6
    log._require(same | ~log.mask, "target", "the probability that policy gives to the action")
    return policy
