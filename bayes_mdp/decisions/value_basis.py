"""`ValueBasis`: what the value of a policy rests on: data, the prior, or a choice by the same posterior. Host-side."""

import weakref
from collections.abc import Hashable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Bool, Float

from bayes_mdp.decisions.host_policy import action_values, pair_time
from bayes_mdp.decisions.reward_prior import RewardPrior, RewardWeights, reward_weights
from bayes_mdp.decisions.unvisited import Pair, Unvisited, describe_parts
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.mixtures import MixturePosterior
from bayes_mdp.inference.pair_draws import pairs_of_mdp
from bayes_mdp.inference.untried_rewards import UntriedRewards, untried_rewards
from bayes_mdp.inference.wide_law import wide_law
from bayes_mdp.mdp import (
    MDP,
    CanBorrow,
    CanCount,
    CanCountPrior,
    CanMean,
    CanSample,
    CanWeighPrior,
    Objective,
    PriorWeight,
    SparseMDP,
)
from bayes_mdp.numerics.numpy_or_jax import in_numpy
from bayes_mdp.utils.messages import amount
from bayes_mdp.utils.typing import AnyArray

PRIOR_SHARE = 0.1
"""Above this prior share a comparison calls itself undecided."""

WEAKEST = 5
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
            of = "it" if self.prior_share is None else "the rewards"
            share += f"; what the prior weighs in {of} is not known"
        elif str(self.rewards):
            share += f"; {self.rewards}"
        return f"{amount(self.transitions, 3)} transitions behind it (effective number){share}"

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

    @property
    def describe_weakest(self) -> str:
        """The weakest pairs, in words."""
        return describe_parts(self.weakest)


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
    if not isinstance(posterior, _Counted):
        return [None] * len(policies)
    if isinstance(posterior, (ConjugatePosterior, MixturePosterior)):
        mdp, pairs = _of_closed_form(posterior)
    else:
        mdp = posterior.mean_mdp()
        pairs = _pairs_of(posterior, mdp)
    times, best = _in_mean(mdp, np.asarray(policies, np.float64), objective, start)
    return [_basis(pairs, time, own) for time, own in zip(times, best, strict=True)]


_last: dict[int, _Pairs] = {}
"""What the last posterior knows, by its identity, while it lives: it never changes, and is asked for many policies."""


def _of_closed_form(posterior: ConjugatePosterior | MixturePosterior) -> tuple[MDP | SparseMDP, _Pairs]:
    """The mean, and what is known of the pairs."""
    pairs = _last.get(id(posterior))

    def mean(belief: ConjugatePosterior | MixturePosterior) -> MDP | SparseMDP:
        nonlocal pairs
        mdp = belief.mean_mdp()
        pairs = _pairs_of(belief, mdp) if pairs is None else pairs
        return mdp

    # All through one door: each closed form by itself would hand its answer to JAX.
    mdp = in_numpy(mean, posterior)
    assert pairs is not None
    if id(posterior) not in _last:
        _last.clear()
        _last[id(posterior)] = pairs
        weakref.finalize(posterior, _last.pop, id(posterior), None)
    return mdp, pairs


def _pairs_of(posterior: _Counted, mdp: MDP | SparseMDP) -> _Pairs:
    visits = np.asarray(posterior.visit_counts(), np.float64)
    share = np.asarray(posterior.prior_share(), np.float64) if isinstance(posterior, CanWeighPrior) else None
    borrowed = np.asarray(posterior.borrowed_share(), np.float64) if isinstance(posterior, CanBorrow) else None
    space = getattr(posterior, "space", None)
    named = (range(mdp.n_states), range(mdp.n_actions)) if space is None else (space.state_names, space.action_names)
    names = [*(range(n) for n in visits.shape[:-2]), *named]
    unknown = np.ones(visits.shape, bool) if share is None else ~np.isnan(share)
    unknown = unknown if mdp.legal is None else unknown & np.asarray(mdp.legal)
    weight = jax.tree.map(np.asarray, posterior.prior_weight()) if isinstance(posterior, CanCountPrior) else None
    reward = reward_weights(posterior, np.asarray(mdp.reward, np.float64))
    untried, wide = untried_rewards(posterior), wide_law(posterior)
    return _Pairs(visits, unknown, names, share, borrowed, weight, untried, wide, reward)


def _basis(pairs: _Pairs, time: Float[np.ndarray, "*steps S A"], own: bool) -> ValueBasis:
    visits, unknown, names, share, weight = pairs.visits, pairs.unknown, pairs.names, pairs.share, pairs.weight
    time = time.sum(0) if time.ndim > visits.ndim else time
    unvisited = Unvisited.of(visits, time, names, unknown, weight)
    untried, untried_share = _untried(pairs.untried, time)
    observed = float(visits.sum())
    paid = None if pairs.reward is None else RewardPrior.of(time, pairs.reward, names)
    # Known rows need no data: time there does not count.
    time = np.where(unknown, np.maximum(time, 0.0), 0.0)
    time = time / max(time.sum(), 1e-300)
    transitions = 1.0 / max(float(np.sum(time**2 / (visits + 1.0))), 1e-300) if time.any() else np.inf
    total = other = informative = None
    weakest: tuple[tuple[Pair, float], ...] = ()
    if share is not None:
        other = None if pairs.borrowed is None else float(np.sum(time * np.nan_to_num(pairs.borrowed)))
        part = time * np.where(unknown, share, 0.0)
        order = np.argsort(-part, axis=None, kind="stable")[:WEAKEST]
        where = [np.unravel_index(i, part.shape) for i in order if part.flat[i] > 0]
        weakest = tuple(
            (tuple(axis[i] for axis, i in zip(names, index, strict=True)), float(part[index])) for index in where
        )
        known = weight is not None and not np.isnan(weight.transitions[part > 0]).any()
        informative = float(part[~weight.is_empty].sum()) if weight is not None and known else None
        total = float(part.sum())
    return ValueBasis(
        unvisited,
        total,
        weakest,
        transitions,
        own,
        other,
        informative,
        untried,
        untried_share,
        observed,
        pairs.wide,
        paid,
    )


def _untried(untried: UntriedRewards | None, time: Float[np.ndarray, "*H S A"]) -> tuple[UntriedRewards | None, float]:
    """Those of the pairs in which a policy spends time, and which part of it."""
    time = np.maximum(time, 0.0)
    used = None if untried is None else untried.among(time > 0)
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
        time, q = pair_time(rows, drawn, policy, objective, start), action_values(rows, drawn, policy, objective)
        known = np.isfinite(q)
        least = _OPTIMAL * max(float(np.abs(q[known]).max(initial=0.0)), 1e-300)
        loss = np.where(known, q, -np.inf).max(-1, keepdims=True) - q
        reached = known & (time.sum(-1, keepdims=True) > 0)
        taken = np.broadcast_to(policy, q.shape) > 0
        no_worse = bool((loss[reached & taken] <= least).all())
        times.append(time)
        best.append(no_worse and bool((loss[reached] > least).any()))
    return times, best
