"""`PolicyLimits`: what a policy may do, as a user says it; `PolicySet`: the same as arrays, for the searches.

`Budget`: what it may spend; `bayes_mdp.decisions.choosing.budgets` plans within it. `ChooseOptions`: how one is chosen.

`best_in` is the best policy of a set in one MDP: the optimum where nothing is fixed, else by policy iteration.
Host-side.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from bayes_mdp.decisions.host_optima import TIE, action_values, best_policies, ways_out
from bayes_mdp.decisions.policy_evaluation import check_num_draws
from bayes_mdp.inference.pair_draws import Drawn, PairRows, legal_pairs, pairs_of_mdp
from bayes_mdp.mdp import MDP, FirstExit, Objective, SparseMDP
from bayes_mdp.mdp.labelled_tables import refuse_labels
from bayes_mdp.numerics.array_forms import to_float64
from bayes_mdp.planning import solve
from bayes_mdp.planning.solution import Solution
from bayes_mdp.utils.modules import Module
from bayes_mdp.utils.typing import AnyArray, IntScalar, RealLike
from bayes_mdp.utils.validation import as_mask, check_bool, check_count, check_number, check_shape, check_type, require


@dataclass(frozen=True, eq=False)
class Budget:
    """What a policy may spend of one outcome, such as costs or bed days: `PolicyLimits(budgets={name: Budget(...)})`.

    Args:
        limit: most of it that may be expected: summed as the objective sums rewards (discounted, of an episode, until
            the end), from the same start. In units of the outcome.
        probability: with which the expected sum is within the limit, under the posterior; in (0, 1).
        outcome: what the outcome is: known numbers [S A] (or as of `Outcome`), a function (state's label, action's
            label) -> number, an `Outcome`, or a posterior whose rewards it is. None: the posterior has learnt it, under
            the name of the budget (see `read_log(outcomes=...)`).

    Raises:
        ValueError: a limit that is not finite, a probability outside (0, 1). TypeError: no numbers.

    Example:
        >>> limits = bm.decisions.PolicyLimits(budgets={"cost": bm.decisions.Budget(22.0, probability=0.9)})
        >>> limits.budgets["cost"].limit
        22.0
    """

    limit: float
    probability: float = 0.95
    outcome: object = None

    def __post_init__(self) -> None:
        check_number("limit", self.limit, np.isfinite, "a finite number")
        check_number("probability", self.probability, lambda x: (x > 0) & (x < 1), "a number between 0 and 1")
        object.__setattr__(self, "limit", float(self.limit))
        object.__setattr__(self, "probability", float(self.probability))


def _allowed(actions: object) -> np.ndarray | None:
    refuse_labels("allowed", actions)
    return None if actions is None else np.asarray(as_mask("allowed", actions))


class PolicyLimits(eqx.Module):
    """Which policies `choose` and `decide` may take: legal actions, what was tried often enough, budgets.

    Args:
        allowed: Bool[S A], the actions that may be taken; None: all legal ones.
        min_count: only actions that the data have at least so often in the state. Where a state has none, the policy
            follows the baseline there, or, without one, the actions that the data have most often.
        bootstrap_below: with a baseline: actions that the data have less often than this keep the probability that the
            baseline gives them, the rest of the probability is free (SPIBB; Laroche, Trichelair and Tachet des Combes
            2019). None: not stated, which is zero; `decide` then takes 5, unless `min_count` is stated.
        max_change: with a baseline: the part of the decisions that may differ from it, in every state: the policy is
            (1 - max_change) baseline + max_change any policy, so that no state's probabilities are further from the
            baseline's than this (total variation).
        stochastic: whether what is free may be a mixture of actions, or is one action in every state.
        budgets: name of an outcome -> what may be spent of it. A policy within K budgets may have to mix actions, in at
            most K states, whatever `stochastic` says.

    Raises:
        ValueError: a count below 0, a change outside (0, 1]. TypeError: no mask, no bool, budgets that are none.
    """

    allowed: Bool[np.ndarray, "S A"] | None = eqx.field(default=None, converter=_allowed)
    min_count: int = 0
    bootstrap_below: int | None = None
    max_change: float = 1.0
    stochastic: bool = False
    budgets: Mapping[str, Budget] | None = None

    def __check_init__(self) -> None:
        check_count("min_count", self.min_count, 0)
        if self.bootstrap_below is not None:
            check_count("bootstrap_below", self.bootstrap_below, 0)
        check_number("max_change", self.max_change, lambda x: (x > 0) & (x <= 1), "a number greater than 0, at most 1")
        check_bool("stochastic", self.stochastic)
        if self.budgets is not None:
            check_type("budgets", self.budgets, Mapping, "name of an outcome -> Budget")
            for name, budget in self.budgets.items():
                check_type("a name of budgets", name, str, "text")
                check_type(f"budgets[{name!r}]", budget, Budget, "a Budget(limit)")


@dataclass(frozen=True)
class ChooseOptions:
    """Options of `choose` and of `pareto_front` that seldom change; `decide` has them too (see `DecideOptions`).

    Args:
        limits: which policies may be chosen. With `budgets` the criterion is "mean", and the policy is found by linear
            programs (see `bayes_mdp.decisions.Budget`). `choose` abstains where the fresh draws do not show, at a
            confidence of 95 %, that every budget is kept with the probability asked for: the policy is then the
            baseline or, without one, the candidate all the same.
        slack: by how much a value below the baseline's still counts as no worse; zero or greater, in units of the
            value.
        num_draws: draws of the search, and of the judgement. In a large problem the search has the first of them only:
            as many as have 67 million numbers, but 64 at least, and 20 in the tail of the criterion (`Robust`: all).
        confidence: probability of being no worse than the baseline, in (0, 1).

    Raises:
        TypeError, ValueError: one sentence about the option at fault.

    Example:
        >>> bm.decisions.ChooseOptions(limits=bm.decisions.PolicyLimits(min_count=3)).num_draws
        400
    """

    limits: PolicyLimits = field(default_factory=PolicyLimits)
    slack: RealLike = 0.0
    num_draws: IntScalar = 400
    confidence: RealLike = 0.95

    def __post_init__(self) -> None:
        check_type("limits", self.limits, PolicyLimits, "PolicyLimits")
        check_number("slack", self.slack, lambda x: (x >= 0) & np.isfinite(x), "a number, zero or greater")
        check_num_draws(self.num_draws, 64)
        check_number("confidence", self.confidence, lambda x: (x > 0) & (x < 1), "a number between 0 and 1")


class PolicySet(Module):
    """The policies fixed + mass * choice, where `choice` is any policy over the free actions.

    Args:
        fixed: [*H S A], probabilities that every policy of the set has.
        mass: [*H S], the probability that is left to the choice.
        free: Bool[S A], the actions that it may take.
    """

    fixed: Float[np.ndarray, "*H S A"]
    mass: Float[np.ndarray, "*H S"]
    free: Bool[np.ndarray, "S A"]

    @property
    def whole(self) -> bool:
        """Whether nothing is fixed."""
        return bool(np.all(self.mass == 1.0))

    @property
    def used(self) -> Bool[np.ndarray, "S A"]:
        """The pairs that any of its policies can use."""
        # Where no mass is free nothing is chosen.
        chosen = np.any((self.mass > 0).reshape(-1, len(self.free)), axis=0)
        return (self.free & chosen[:, None]) | np.any((self.fixed > 0).reshape(-1, *self.free.shape), axis=0)

    @property
    def open_states(self) -> Bool[np.ndarray, "*H S"]:
        """Where there is a choice: more than one free action, with some probability."""
        return (self.mass > 0) & (self.free.sum(-1) > 1)

    @property
    def count(self) -> float:
        """The number of its deterministic choices."""
        # A product over states, in floats: it overflows to infinity, not to a wrong integer.
        return math.prod(np.where(self.open_states, self.free.sum(-1), 1).ravel().astype(float).tolist())

    def policy(self, choice: Int[AnyArray, "*P S"]) -> Float[np.ndarray, "*P S A"]:
        """The policies of deterministic choices, an action for every state (and step)."""
        # One-hot choices.
        return self.mixed(np.eye(self.free.shape[-1])[np.asarray(choice)])

    def mixed(self, choice: Float[AnyArray, "*P S A"]) -> Float[np.ndarray, "*P S A"]:
        """The policies of stochastic choices."""
        return self.fixed + self.mass[..., None] * np.asarray(choice)

    def best(self, q: Float[AnyArray, "*H S A"]) -> Int[np.ndarray, "*H S"]:
        """The free action of the largest q in every state; the first of equal ones."""
        return np.argmax(np.where(self.free, np.asarray(q), -np.inf), -1)

    def contains(self, policy: Float[AnyArray, "*H S A"]) -> bool:
        """Whether a policy is one of the set, to rounding."""
        # What is left after the fixed part must be free, and not negative.
        rest = np.asarray(policy) - self.fixed
        return bool(np.all(rest >= -1e-9) and np.all(np.where(self.free, 0.0, rest) <= 1e-9))


def policy_set(
    limits: PolicyLimits,
    legal: Bool[AnyArray, "S A"] | None,
    shape: tuple[int, ...],
    counts: Float[AnyArray, "*steps S A"] | None,
    baseline: Float[AnyArray, "*H S A"] | None,
    threshold: IntScalar | None = None,
) -> PolicySet:
    """The arrays of `limits`.

    Args:
        limits: of the user.
        legal: the legal actions; None: all.
        shape: (*H, S, A), that of a policy.
        counts: data of every pair; None where the posterior has none.
        baseline: action probabilities.
        threshold: `bootstrap_below`, in place of that of `limits`.

    Raises:
        ValueError: a mask of another shape, or that leaves a state without an action; limits that need a baseline, or
            counts, without them.
    """
    pairs = shape[-2:]
    # Legal actions, less what the user does not allow.
    free = np.ones(pairs, bool) if legal is None else np.asarray(legal, bool)
    if limits.allowed is not None:
        check_shape("allowed", limits.allowed, pairs, "state, action")
        free = free & limits.allowed
        require(~free.any(-1), "allowed", limits.allowed.any(-1), "at least one legal action in every state")
    # SPIBB: pairs that were seen less often than this follow the baseline.
    threshold_count = limits.bootstrap_below or 0 if threshold is None else int(threshold)
    if (threshold_count or limits.max_change < 1) and baseline is None:
        name = "max_change" if limits.max_change < 1 else "bootstrap_below"
        raise ValueError(f"{name} is given without a baseline, expected the policy that it is measured from")
    if (threshold_count or limits.min_count) and counts is None:
        name = "min_count" if limits.min_count else "bootstrap_below"
        raise ValueError(f"{name} is given, and the posterior does not count its data, expected one that does")
    fixed, mass = np.zeros(shape), np.ones(shape[:-1])
    # Steps are added up: an action was tried if it was at any step.
    seen = None if counts is None else np.asarray(counts, np.float64).reshape(-1, *pairs).sum(0)
    if limits.min_count and seen is not None:
        often = free & (seen >= limits.min_count)
        none = ~often.any(-1)
        # A state with no action tried often enough: the baseline there, or the most frequent actions.
        if baseline is None:
            free_counts = np.where(free, seen, -1.0)
            often[none] = (free_counts == free_counts.max(-1, keepdims=True))[none]
        else:
            fixed[..., none, :], mass[..., none] = np.asarray(baseline)[..., none, :], 0.0
            often[none] = free[none]
        free = often
    if baseline is not None:
        fixed, mass = _around(
            np.asarray(baseline, np.float64), seen, threshold_count, limits.max_change, free, fixed, mass
        )
        free = free & ~(seen < threshold_count) if threshold_count and seen is not None else free
        # A state without a free action follows the baseline: any action stands for it.
        free = np.where(free.any(-1, keepdims=True), free, True)
    return PolicySet(fixed, mass, free)


def _around(
    baseline: Float[np.ndarray, "*H S A"],
    seen: Float[np.ndarray, "S A"] | None,
    below: int,
    change: float,
    free: Bool[np.ndarray, "S A"],
    fixed: Float[np.ndarray, "*H S A"],
    mass: Float[np.ndarray, "*H S"],
) -> tuple[Float[np.ndarray, "*H S A"], Float[np.ndarray, "*H S"]]:
    """What the baseline fixes: rare actions, and the part of the decisions that may not change."""
    # What the baseline does with rare actions is kept as it is.
    fixed_part = baseline * (seen < below) if below and seen is not None else np.zeros_like(baseline)
    rare = (seen < below) if below and seen is not None else np.zeros(free.shape, bool)
    # Where no action is left to choose, the whole row is the baseline's.
    closed = ~(free & ~rare).any(-1) | (mass == 0)
    fixed_part = np.where(closed[..., None], baseline, fixed_part)
    # At most `change` of each row may differ: the rest is the baseline's, whatever is chosen.
    fixed_part = (1 - change) * baseline + change * fixed_part
    return fixed_part, np.maximum(1.0 - fixed_part.sum(-1), 0.0) * ~closed


_MOST = 200
_BETTER = 1e-11  # share of the largest value


def best_in(mdp: MDP | SparseMDP, objective: Objective, policies: PolicySet) -> Int[np.ndarray, "*H S"]:
    """The choice that is optimal in `mdp` among the policies of the set, in float64.

    With fixed probabilities the problem is an MDP again, whose actions are mixtures (SPIBB; Laroche et al. 2019,
    theorem 2): policy iteration from the best of immediate rewards, which ends at the optimum.

    Args:
        mdp: known.
        objective: of the policy.
        policies: the set.
    """
    if policies.whole:
        return optimum(mdp, objective, policies.free)[0]
    rows, drawn = pairs_of_mdp(mdp)
    if isinstance(objective, FirstExit):
        # A policy that ends: what leads nearer to the end.
        towards = np.zeros(policies.fixed.shape)
        towards[rows.state, rows.action], _ = ways_out(rows, drawn.probs[0], policies.used[rows.state, rows.action])
        return improve(rows, drawn, objective, policies, policies.best(towards))
    # Good immediate rewards are a start; any choice would do.
    immediate = policies.best(np.broadcast_to(np.asarray(mdp.reward, np.float64), policies.fixed.shape))
    return improve(rows, drawn, objective, policies, immediate)


def improve(
    rows: PairRows, drawn: Drawn, objective: Objective, policies: PolicySet, choice: Int[np.ndarray, "*H S"]
) -> Int[np.ndarray, "*H S"]:
    """Policy iteration from a choice to one that is optimal in one MDP among the policies of the set.

    Args:
        rows, drawn: the pairs of the MDP, as one draw.
        objective: of the policy.
        policies: the set.
        choice: where to begin.
    """
    for _ in range(_MOST):
        # q under the present policy; unreachable pairs have none and do not matter.
        q = action_values(rows, drawn, policies.policy(choice), objective)
        q = np.where(np.isfinite(q), q, 0.0)
        new = policies.best(q)
        current, best = (np.take_along_axis(q, c[..., None], -1)[..., 0] for c in (choice, new))
        # Only improvements beyond rounding, or equal actions would alternate.
        better = (best - current > _BETTER * max(float(np.abs(q).max()), 1e-300)) & policies.open_states
        if not better.any():
            break
        choice = np.where(better, new, choice)
    return choice


def optimum(
    mdp: MDP | SparseMDP, objective: Objective, allowed: Bool[np.ndarray, "S A"] | None = None
) -> tuple[Int[np.ndarray, "*H S"], Solution | None]:
    """The optimal actions, of equal ones the first; and the planner's solution, where NumPy proved no bound.

    Args:
        mdp: known.
        objective: of the policy.
        allowed: which actions may be taken; None: all legal ones.
    """
    legal = legal_pairs(mdp)
    legal = legal if allowed is None else legal & allowed
    rows, drawn = pairs_of_mdp(mdp, legal)
    answer = best_policies(rows, drawn, objective)
    # NumPy has proven its bound: no planner is needed.
    if np.isfinite(answer.values.gap[0]):
        q = answer.table(rows, mdp.n_actions)[0]
        least = TIE * np.abs(q[np.isfinite(q)]).max(initial=0.0)
        # The first of the actions that are equal but for rounding.
        return (q >= q.max(-1, keepdims=True) - least).argmax(-1), None
    with jax.enable_x64(True):
        mask = jnp.asarray(legal if legal.ndim == 2 else legal[0])
        limited = eqx.tree_at(lambda m: m.legal, to_float64(mdp), mask, is_leaf=lambda x: x is None)
        solution = _solve(limited, objective)
    return np.asarray(solution.policy), solution


_solve = eqx.filter_jit(solve)
