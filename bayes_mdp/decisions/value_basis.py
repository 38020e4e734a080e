"""`ValueBasis`: what the value of a policy rests on: data, the prior, or a choice by the same posterior. Host-side.

Its parts: `Unvisited`, the pairs that the policy uses without any data behind them, and `RewardPrior`, how much of the
value stems from the prior of the rewards.
"""

import weakref
from collections.abc import Hashable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Bool, Float

from bayes_mdp.decisions.host_optima import action_values, pair_time
from bayes_mdp.inference.fitted import Fitted
from bayes_mdp.inference.pair_draws import pairs_of_mdp
from bayes_mdp.inference.untried_rewards import UntriedRewards, untried_rewards
from bayes_mdp.inference.wide_law import wide_law
from bayes_mdp.mdp import MDP, CanCount, CanMean, CanSample, Objective, SparseMDP
from bayes_mdp.mdp.protocols import (
    CanBorrow,
    CanCountPrior,
    CanWeighPrior,
    CanWeighRewards,
    PriorWeight,
    describe_weight,
)
from bayes_mdp.numerics.numpy_or_jax import in_numpy
from bayes_mdp.utils.messages import NAMED, amount, count_of, first_names
from bayes_mdp.utils.typing import AnyArray

Pair = tuple[Hashable, ...]


class Unvisited(eqx.Module):
    """What a policy rests on without data.

    A pair without data was never tried where its prior is empty: where that weighs at most about one observation for
    each possible outcome, as flat priors do (`PriorWeight.is_empty`), or its weight is not known. A prior that weighs
    more, such as counts from the literature, is knowledge: such pairs are known by the prior alone.

    Args:
        pairs: names of the pairs, (state, action) or (step, state, action), that the policy uses and that were never
            tried, most used first.
        share: Float64[number of pairs], the part of the policy's time spent in each (discounted, as in the objective).
        states: names of all states that the data never left and in which something was never tried, most used first.
        state_share: Float64[number of states], the part of the policy's time spent in each (zero where not reached).
        weight: Float64[number of pairs], what the prior of each pair weighs, in transitions; nan: not known.
        by_prior: names of the pairs that the policy uses and that are known by the prior alone, most used first.
        by_prior_share, by_prior_weight: of these pairs, as `share` and `weight`.
    """

    pairs: tuple[Pair, ...] = eqx.field(static=True)
    share: Float[np.ndarray, " pairs"]
    states: tuple[Hashable, ...] = eqx.field(static=True)
    state_share: Float[np.ndarray, " states"]
    weight: Float[np.ndarray, " pairs"] = eqx.field(default_factory=lambda: np.zeros(0))
    by_prior: tuple[Pair, ...] = eqx.field(static=True, default=())
    by_prior_share: Float[np.ndarray, " by_prior"] = eqx.field(default_factory=lambda: np.zeros(0))
    by_prior_weight: Float[np.ndarray, " by_prior"] = eqx.field(default_factory=lambda: np.zeros(0))

    @classmethod
    def of(
        cls,
        visits: Float[np.ndarray, "*H S A"],
        time: Float[np.ndarray, "*steps S A"],
        names: Sequence[Sequence[Hashable]],
        unknown: Bool[np.ndarray, "*H S A"] | None = None,
        prior: PriorWeight | None = None,
    ) -> "Unvisited":
        """The pairs of `time` without data.

        Args:
            visits: number of observed transitions from every pair.
            time: occupancy of the policy (any scale); its steps are added where `visits` has none.
            names: along each axis of `visits`.
            unknown: pairs about which something is unknown; the others need no data. None: all.
            prior: what the prior of every pair weighs. None: not known.
        """
        # Occupancy as shares of all time.
        time = np.maximum(time, 0.0) / np.maximum(time, 0.0).sum()
        time = time.sum(0) if time.ndim > visits.ndim else time
        unknown = np.ones(visits.shape, bool) if unknown is None else unknown
        # Without a known weight a prior counts as empty: nothing is claimed of it.
        empty = np.ones(visits.shape, bool) if prior is None else np.asarray(prior.is_empty)
        weight = np.full(visits.shape, np.nan) if prior is None else np.asarray(prior.transitions, np.float64)
        missing = (visits <= 0) & unknown

        def used(chosen: Bool[np.ndarray, "*H S A"]) -> tuple[tuple[Pair, ...], np.ndarray, np.ndarray]:
            """Names, time and prior weight of pairs, most used first."""
            # Pairs that the policy spends time in, in the order of how much.
            index = np.argwhere(chosen & (time > 0))
            index = index[np.argsort(-time[tuple(index.T)], kind="stable")]
            pair_index = tuple(index.T)
            return (
                tuple(tuple(axis[i] for axis, i in zip(names, x, strict=True)) for x in index),
                time[pair_index],
                weight[pair_index],
            )

        pairs, share, pair_weight = used(missing & empty)
        # All axes but the states'.
        state_axes = (*range(visits.ndim - 2), -1)
        # A state is missing if no action of it has been tried and some of its rows are unknown.
        states = np.flatnonzero((visits.sum(state_axes) <= 0) & (unknown & empty).any(state_axes))
        state_time = time.sum(state_axes)
        states = states[np.argsort(-state_time[states], kind="stable")]
        names_of_states = tuple(names[-2][s] for s in states)
        return cls(pairs, share, names_of_states, state_time[states], pair_weight, *used(missing & ~empty))

    @property
    def total(self) -> float:
        """The part of the policy's time spent in pairs that were never tried."""
        return float(self.share.sum())

    def __str__(self) -> str:
        """One line."""
        parts = []
        if self.pairs:
            # Pairs never tried and pairs that only an informative prior knows are two different things.
            weight = describe_weight(self.weight)
            prior_words = f", under a prior that weighs {weight} each" if weight else ""
            pairs = describe_parts(list(zip(self.pairs, self.share, strict=True)))
            parts.append(f"{self.total:.2g} of its time in pairs never tried{prior_words}: {pairs}")
        if self.by_prior:
            share, weight = float(self.by_prior_share.sum()), describe_weight(self.by_prior_weight)
            weight_words = f" (weight of {weight})" if weight else ""
            pairs = describe_parts(list(zip(self.by_prior, self.by_prior_share, strict=True)))
            parts.append(f"{share:.2g} of its time in pairs known by the prior alone{weight_words}: {pairs}")
        if self.states:
            states = describe_pairs([str(s) for s in self.states], self.state_share)
            parts.append(f"states never visited: {states}")
        if not (self.pairs or self.by_prior):
            parts.insert(0, "every pair that the policy uses was tried")
        return "; ".join(parts)


def describe_parts(parts: Sequence[tuple[Pair, float]]) -> str:
    """The first pairs, each with its part, in size."""
    return describe_pairs([" ".join(map(str, pair)) for pair, _ in parts], [abs(part) for _, part in parts])


def describe_pairs(names: Sequence[str], share: Sequence[float] | Float[np.ndarray, " names"]) -> str:
    """The first names, each with its part."""
    return first_names(
        [f"{name} ({x:.2g})" if x > 0 else f"{name} (not reached)" for name, x in zip(names, share, strict=True)]
    )


class RewardWeights(NamedTuple):
    """The prior's part in each mean reward (nan: known), and the posterior mean less that by data alone."""

    share: Float[np.ndarray, "*H S A"]
    moved: Float[np.ndarray, "*H S A"]


class RewardPrior(eqx.Module):
    """What the prior of the rewards adds to a value.

    A small share can move a value far: where 70 rewards have the mean .003, a prior of mean .5 that weighs two of them
    (a share of .028) makes it .017. So both are stated.

    Args:
        share: pseudo-observations over these and the observed rewards, weighted by the policy's time in each pair whose
            mean reward is unknown (1 where none was seen); zero where all mean rewards are known.
        pull: value of the policy in the mean MDP less that with the mean rewards that data alone give: what these tend
            to as the prior weighs less and less; where a pair has none, the mean of all rewards that were seen. Units
            of the value; nan: a mean by data alone does not exist.
        weakest: the pairs with most of `share`, (state, action) or (step, state, action), and their parts of it.
        moved: the pairs with most of `pull`, on its side of zero, and their parts of it.
    """

    share: float
    pull: float
    weakest: tuple[tuple[Pair, float], ...] = eqx.field(static=True, default=())
    moved: tuple[tuple[Pair, float], ...] = eqx.field(static=True, default=())

    @classmethod
    def of(
        cls, time: Float[np.ndarray, "*H S A"], weights: RewardWeights, names: Sequence[Sequence[Hashable]]
    ) -> "RewardPrior":
        """That of a policy.

        Args:
            time: of the policy in each pair (discounted, as in the objective); with the rewards it makes the value.
            weights: of the pairs.
            names: along each axis of these.
        """
        share, moved = weights
        unknown = ~np.isnan(share) & (time > 0)
        spent = np.where(unknown, time, 0.0)
        # The share of time in a pair times the prior's part in its reward.
        part = spent * np.where(unknown, share, 0.0) / max(spent.sum(), 1e-300)
        # d V / d r(s, a) is the occupancy: what a moved mean reward adds to the value.
        pulls = np.where(unknown, time * moved, 0.0)
        pull = float(pulls.sum())
        side = float(np.sign(pull))
        # The largest pulls in the direction of the whole.
        return cls(float(part.sum()), pull, _most(part, names), _most(pulls * side, names, side))

    def __str__(self) -> str:
        """The end of a sentence on the prior; empty where all mean rewards are known."""
        if not self.share:
            return ""
        pull = "moves the value by an unknown amount"
        if np.isfinite(self.pull):
            pull = f"moves the value by {with_sign(self.pull)}"
        return f"prior's share of its rewards {self.share:.2g}, which {pull}"


def with_sign(number: float) -> str:
    """A change in two digits, with its sign."""
    return f"{'+' if number > 0 else ''}{amount(number, 2)}"


def reward_weights(posterior: object, reward: Float[np.ndarray, "*H S A"]) -> RewardWeights | None:
    """What the prior of the rewards weighs in each pair, and moves; None: the posterior does not know it.

    Args:
        posterior: that judges.
        reward: its means.
    """
    if not isinstance(posterior, CanWeighRewards):
        return None
    share, by_data = posterior.reward_share(), posterior.data_reward()
    if share is None or by_data is None:
        return None
    # Posterior mean less the mean by data alone: by how much the prior moves it.
    return RewardWeights(np.asarray(share, np.float64), reward - np.asarray(by_data, np.float64))


def _most(
    part: Float[np.ndarray, "*H S A"], names: Sequence[Sequence[Hashable]], sign: float = 1.0
) -> tuple[tuple[Pair, float], ...]:
    """The pairs with the largest positive parts, with their names; times `sign`."""
    order = np.argsort(-part, axis=None, kind="stable")[:NAMED]
    largest = [np.unravel_index(i, part.shape) for i in order if part.flat[i] > 0]
    return tuple((tuple(axis[i] for axis, i in zip(names, x, strict=True)), float(sign * part[x])) for x in largest)


PRIOR_SHARE = 0.1
"""Above this prior share a comparison calls itself undecided."""

_ROUNDING = 1e-6
_OPTIMAL = 1e-9  # share of the largest value by which an action must be better


class _Pairs(NamedTuple):
    """What a posterior knows of its pairs, whichever policies use them.

    Args:
        visits: number of observed transitions.
        unknown: whether anything is unknown.
        names: along each axis.
        share, borrowed, weight, untried, wide: see `ValueBasis`; None: not known.
        reward: the prior's part in the mean rewards, and what it adds to them (see `reward_weights`).
    """

    visits: Float[np.ndarray, "*H S A"]
    unknown: Bool[np.ndarray, "*H S A"]
    names: Sequence[Sequence[Hashable]]
    share: Float[np.ndarray, "*H S A"] | None
    borrowed: Float[np.ndarray, "*H S A"] | None
    weight: PriorWeight | None
    untried: UntriedRewards | None
    wide: str | None
    reward: RewardWeights | None


@runtime_checkable
class _Counted(CanCount, CanMean, Protocol):
    """A posterior with counts and a mean."""


class ValueBasis(eqx.Module):
    """What the value of a policy rests on.

    Pairs about which nothing is unknown are left out of everything. Time is that in the mean MDP (discounted, as in the
    objective).

    Args:
        unvisited: the pairs that the policy uses without data: never tried, or known by the prior alone.
        prior_share: the prior's part in the rows that the policy uses (prior concentration over posterior
            concentration; 1 where a reward is unknown and was never seen), weighted by its time there; None: the
            posterior does not know it (draws of a whole program). Where rows share their parameters by
            `partial_pooling`, what data of other pairs say of a row is not the prior's.
        borrowed: the part of these rows that is, at most, from data of other pairs, which the prior takes to be alike:
            right so far as they are. None: rows do not borrow, or the posterior does not know it.
        informative: the part of `prior_share` that is from rows and rewards whose prior is informative (see
            `Unvisited`): knowledge that was put in, right so far as its source fits; the rest is from priors that say
            as good as nothing. None: what the prior weighs is not known.
        weakest: the pairs with most of it, (state, action) or (step, state, action), and their parts of `prior_share`.
        transitions: effective number of observed transitions behind the value: 1 / sum of time^2 / (count + 1). The
            variance of a mean over the policy's rows falls with it.
        own_optimum: whether the policy is optimal in the mean MDP of this posterior, and others are not: chosen and
            judged by the same data, its value is too high wherever the prior is wrong.
        untried: the pairs that the policy uses, that were never tried and whose mean reward lies above that of every
            pair that was (see `untried_rewards`); None: there are none, or it is not known.
        untried_share: the part of the policy's time spent in these.
        observed: number of transitions that the posterior has learnt from, of all pairs; nan: not known.
        wide_law: that the reward law of the prior allows more than all rewards seen, and which one fits them (see
            there), one sentence; None: nothing of the kind is known.
        rewards: what the prior of the rewards adds to the value; None: the posterior does not know it (draws).
    """

    unvisited: Unvisited
    prior_share: float | None
    weakest: tuple[tuple[Pair, float], ...] = eqx.field(static=True)
    transitions: float
    own_optimum: bool
    borrowed: float | None = None
    informative: float | None = None
    untried: UntriedRewards | None = None
    untried_share: float = 0.0
    observed: float = np.nan
    wide_law: str | None = eqx.field(static=True, default=None)
    rewards: RewardPrior | None = None

    def __str__(self) -> str:
        """One line."""
        share = ""
        if self.prior_share is not None:
            share = f"; prior's share of the rows it uses {self.prior_share:.2g}"
        if self.informative:
            share += f" ({self.informative:.2g} of it informative)"
        if self.borrowed is not None:
            share += f", borrowed from other pairs at most {self.borrowed:.2g}"
        if self.rewards is None:
            subject = "it" if self.prior_share is None else "the rewards"
            share += f"; what the prior weighs in {subject} is not known"
        elif str(self.rewards):
            share += f"; {self.rewards}"
        return f"{count_of(amount(self.transitions, 3), 'transition')} behind it (effective number){share}"

    @property
    def prior_kind(self) -> str:
        """Which kind of prior `prior_share` is from, as the end of a sentence; empty: not known."""
        if self.informative is None or self.prior_share is None:
            return ""
        rest = self.prior_share - self.informative
        if rest <= _ROUNDING * self.prior_share:
            return "all of it from informative priors, which weigh more than one transition for each possible outcome"
        empty = "from priors that weigh at most one transition for each possible outcome"
        if self.informative <= _ROUNDING * self.prior_share:
            return f"all of it {empty}"
        return f"{rest:.2g} of it {empty}, {self.informative:.2g} from informative ones"


def value_bases(
    posterior: CanSample, policies: Float[AnyArray, "P *H S A"], objective: Objective, start: Float[np.ndarray, " S"]
) -> list[ValueBasis | None]:
    """What each policy's value rests on; None where the posterior has no mean or no counts.

    Args:
        posterior: the belief.
        policies: action probabilities.
        objective: of the values.
        start: distribution of the first state.
    """
    # Without counts there is nothing to say.
    if not isinstance(posterior, _Counted):
        return [None] * len(policies)
    # Closed forms answer in NumPy; of draws one compiled mean serves.
    if isinstance(posterior, Fitted) and posterior.reference.exact_part is not None:
        mdp, pairs = _of_closed_forms(posterior)
    else:
        mdp = posterior.mean_mdp()
        pairs = _pairs_of(posterior, mdp)
    times, best = _in_mean(mdp, np.asarray(policies, np.float64), objective, start)
    return [_basis(pairs, time, is_best) for time, is_best in zip(times, best, strict=True)]


_last: dict[int, _Pairs] = {}
"""What the last posterior knows, by its identity, while it lives: it never changes, and is asked for many policies."""


def _of_closed_forms(posterior: Fitted) -> tuple[MDP | SparseMDP, _Pairs]:
    """The mean, and what is known of the pairs."""
    pairs = _last.get(id(posterior))

    def mean(belief: Fitted) -> MDP | SparseMDP:
        nonlocal pairs
        mdp = belief.mean_mdp()
        pairs = _pairs_of(belief, mdp) if pairs is None else pairs
        return mdp

    # All through one door: each closed form by itself would hand its answer to JAX.
    mdp = in_numpy(mean, posterior)
    assert pairs is not None
    if id(posterior) not in _last:
        # Only the last posterior is remembered, and forgotten when it dies.
        _last.clear()
        _last[id(posterior)] = pairs
        weakref.finalize(posterior, _last.pop, id(posterior), None)
    return mdp, pairs


def _pairs_of(posterior: _Counted, mdp: MDP | SparseMDP) -> _Pairs:
    visits = np.asarray(posterior.visit_counts(), np.float64)
    share = np.asarray(posterior.prior_share(), np.float64) if isinstance(posterior, CanWeighPrior) else None
    borrowed = np.asarray(posterior.borrowed_share(), np.float64) if isinstance(posterior, CanBorrow) else None
    # Labels where the posterior has a space, numbers else.
    space = getattr(posterior, "space", None)
    named = (range(mdp.n_states), range(mdp.n_actions)) if space is None else (space.state_names, space.action_names)
    names = [*(range(n) for n in visits.shape[:-2]), *named]
    # Nan stands for a known pair: no share of it can be the prior's.
    unknown = np.ones(visits.shape, bool) if share is None else ~np.isnan(share)
    unknown = unknown if mdp.legal is None else unknown & np.asarray(mdp.legal)
    weight = jax.tree.map(np.asarray, posterior.prior_weight()) if isinstance(posterior, CanCountPrior) else None
    reward = reward_weights(posterior, np.asarray(mdp.reward, np.float64))
    untried, wide_row_law = untried_rewards(posterior), wide_law(posterior)
    return _Pairs(visits, unknown, names, share, borrowed, weight, untried, wide_row_law, reward)


def _basis(pairs: _Pairs, time: Float[np.ndarray, "*steps S A"], own: bool) -> ValueBasis:
    visits, unknown, names, share, weight = pairs.visits, pairs.unknown, pairs.names, pairs.share, pairs.weight
    # Time by step is added up where the data are not by step.
    time = time.sum(0) if time.ndim > visits.ndim else time
    unvisited = Unvisited.of(visits, time, names, unknown, weight)
    untried, untried_share = _untried_part(pairs.untried, time)
    observed = float(visits.sum())
    paid = None if pairs.reward is None else RewardPrior.of(time, pairs.reward, names)
    # Known rows need no data: time there does not count.
    time = np.where(unknown, np.maximum(time, 0.0), 0.0)
    time = time / max(time.sum(), 1e-300)
    # The variance of a mean of rows with n + 1 observations each, at weights t: 1 / sum t^2 / (n + 1) observations are
    # worth as much.
    transitions = 1.0 / max(float(np.sum(time**2 / (visits + 1.0))), 1e-300) if time.any() else np.inf
    total = borrowed_share = informative = None
    weakest: tuple[tuple[Pair, float], ...] = ()
    if share is not None:
        borrowed_share = None if pairs.borrowed is None else float(np.sum(time * np.nan_to_num(pairs.borrowed)))
        # The share is a mean over the policy's time: pairs count by how long it stays there.
        part = time * np.where(unknown, share, 0.0)
        weakest = _most(part, names)
        # One unknown weight among the pairs in use leaves the split unknown.
        known = weight is not None and not np.isnan(weight.transitions[part > 0]).any()
        informative = float(part[~weight.is_empty].sum()) if weight is not None and known else None
        total = float(part.sum())
    return ValueBasis(
        unvisited,
        total,
        weakest,
        transitions,
        own,
        borrowed_share,
        informative,
        untried,
        untried_share,
        observed,
        pairs.wide,
        paid,
    )


def _untried_part(
    untried: UntriedRewards | None, time: Float[np.ndarray, "*H S A"]
) -> tuple[UntriedRewards | None, float]:
    """Those of the pairs in which a policy spends time, and which part of it."""
    time = np.maximum(time, 0.0)
    used = None if untried is None else untried.among(time > 0)
    # The part of its time that a policy spends in pairs that only look good.
    return used, 0.0 if used is None else float(time[used.pairs].sum() / time.sum())


def _in_mean(
    mdp: MDP | SparseMDP,
    policies: Float[np.ndarray, "P *H S A"],
    objective: Objective,
    start: Float[np.ndarray, " S"],
) -> tuple[list[Float[np.ndarray, "*steps S A"]], list[bool]]:
    """The time of every policy in each pair, and whether it alone is optimal where it comes."""
    rows, drawn = pairs_of_mdp(mdp)
    times, best = [], []
    for policy in policies:
        # Occupancy and action values in the mean MDP, by the policy's own linear system.
        time, q = pair_time(rows, drawn, policy, objective, start), action_values(rows, drawn, policy, objective)
        known = np.isfinite(q)
        least = _OPTIMAL * max(float(np.abs(q[known]).max(initial=0.0)), 1e-300)
        # How much each action loses against the best of its state.
        loss = np.where(known, q, -np.inf).max(-1, keepdims=True) - q
        reached = known & (time.sum(-1, keepdims=True) > 0)
        taken = np.broadcast_to(policy, q.shape) > 0
        # Optimal where it comes: no action that it takes loses anything.
        no_worse = bool((loss[reached & taken] <= least).all())
        times.append(time)
        # And not by lack of choice: some action that it could take is worse.
        best.append(no_worse and bool((loss[reached] > least).any()))
    return times, best
