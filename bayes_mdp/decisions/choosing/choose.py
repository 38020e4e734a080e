# pyright: strict, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeStubs=false
"""`choose`: the policy that is best by a criterion under a posterior, judged on draws that did not choose it.

`choice_spread` says how much wider the interval of a gain must be because the same data chose the policy, a heuristic.
Of many policies the one that looks best in the data looks better there than it is. Its posterior interval is right for
a policy that was named beforehand and, if prior and model are right, on average over worlds; where those in charge do
well already, it holds the truth too seldom. Had the data been others, another policy would have been chosen, which adds
variance that the interval does not have. Other data are imitated by draws of the posterior: in each the best policy of
the same set is found, and its gain over the candidate there is compared with the one that it has on average over the
draws. The variance of this difference is added to that of the gain. How often such intervals hold the truth is measured
(docs/measured/decisions.md), not proven.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from bayes_mdp.decisions.choosing.budgets import (
    ShadowPrice,
    Spending,
    check_budgets,
    check_certifiable,
    read_budgets,
    search_within_budgets,
    shadow_prices,
    spending_of,
)
from bayes_mdp.decisions.choosing.common_draws import CommonDraws, draws_of
from bayes_mdp.decisions.choosing.credible_set import centre, credible_set, robust_plan
from bayes_mdp.decisions.choosing.criteria import (
    Criterion,
    Improvement,
    Robust,
    Scored,
    draws_for,
    needs_best,
    no_worse,
    read_criterion,
    scored,
    tail_share,
)
from bayes_mdp.decisions.choosing.policy_search import Found, Problem, ascend, climb, enumerate_policies
from bayes_mdp.decisions.choosing.policy_set import (
    Budget,
    ChooseOptions,
    PolicyLimits,
    PolicySet,
    best_in,
    improve,
    policy_set,
)
from bayes_mdp.decisions.host_optima import ways_out
from bayes_mdp.decisions.policy_evaluation import (
    PolicyValue,
    Start,
    describe_law,
    describe_objective,
    describe_start,
    effective_of,
    late_bases,
    policy_values,
    read_action_probs,
    read_start,
    require_end,
)
from bayes_mdp.decisions.verdict import pull_of
from bayes_mdp.inference.pair_draws import (
    Drawn,
    HoldsDraws,
    PairRows,
    Worth,
    limit_draws,
    summarise_draws,
)
from bayes_mdp.inference.untried_rewards import REMEDY
from bayes_mdp.mdp import (
    MDP,
    CanCount,
    CanMean,
    CanSample,
    Episodic,
    FirstExit,
    Objective,
    PolicyOrLabels,
    SparseMDP,
    StateActionSpace,
)
from bayes_mdp.mdp.abilities import Sizes, mean_in_float64, require_ability, sizes_of
from bayes_mdp.mdp.labels import labels_of
from bayes_mdp.mdp.objectives import check_objective
from bayes_mdp.renamed import accepts_moved
from bayes_mdp.utils.layout import Part, Section, as_html, as_text
from bayes_mdp.utils.messages import amount, amounts
from bayes_mdp.utils.progress import bar_of, stage
from bayes_mdp.utils.typing import InitialLike
from bayes_mdp.utils.validation import check_key, described

TAIL_DRAWS = 20  # fewest draws that a criterion of the tail may rest on
THRESHOLDS = (5, 10, 20, 50, 100)  # counts below which candidates keep to the baseline
DRAWN_STARTS = 4  # optimal policies of single draws that a search starts from
ASCENTS = 2  # starts that are improved, the best ones
STRICTER = 0.5  # of the allowed probability of harm, that a candidate may use on the draws that choose it
RESAMPLES = 200
FEW_DRAWS = 64  # of a large problem, that a search has at least


class PolicyChoice(eqx.Module):
    """A policy that was chosen, what it is worth, and what that rests on; `print` shows it in words.

    Args:
        policy: Int64[*H S] (one action in every state) or Float64[*H S A] (action probabilities): the chosen policy, or
            the baseline where `abstained`.
        criterion: by which it was chosen.
        score: the criterion's value for the candidate in fresh draws, which did not choose it. For `Robust` the worst
            value over the set.
        score_error: Monte Carlo standard error of `score` (`Robust`: 0).
        claimed: the criterion's value in the draws that chose the candidate: too high, the more the longer the search.
        value: the candidate's value in the fresh draws.
        how: how it was found.
        exact: whether no deterministic policy of the allowed set has a higher `claimed` (`Robust`: worst value).
        baseline: the baseline's value in the same fresh draws; None: no baseline was given.
        improvement: the candidate against the baseline; None: no baseline was given.
        abstained: whether the baseline is returned because the improvement is not sure enough, or whether budgets are
            not kept surely enough (`within_budgets`).
        candidate: the policy that was judged: `policy`, unless `abstained`.
        spending: name of a budget -> what the candidate spends, in the fresh draws.
        shadow_prices: name of a budget -> what one more unit of it would add to the value.
    """

    policy: Int[np.ndarray, "*H S"] | Float[np.ndarray, "*H S A"]
    criterion: Criterion
    score: float
    score_error: float
    claimed: float
    value: PolicyValue
    how: str
    exact: bool
    baseline: PolicyValue | None
    improvement: Improvement | None
    abstained: bool
    candidate: Int[np.ndarray, "*H S"] | Float[np.ndarray, "*H S A"]
    spending: dict[str, Spending] = eqx.field(default_factory=dict)
    shadow_prices: dict[str, ShadowPrice] = eqx.field(default_factory=dict)

    @property
    def within_budgets(self) -> bool:
        """Whether fresh draws show that the candidate keeps every budget as surely as asked; True: there is none."""
        return all(spent.certified for spent in self.spending.values())

    @property
    def found_nothing(self) -> bool:
        """Whether the candidate is the baseline itself."""
        return self.abstained and np.array_equal(self.candidate, self.policy)

    __str__ = as_text
    _repr_html_ = as_html

    def layout(self) -> Section:
        """How it was chosen, and what it is worth."""
        parts: list[Part] = [
            f"how: {self.how}",
            f"{self.criterion}: {amount(self.score, 6)} (Monte Carlo error {amount(self.score_error, 2)}) in "
            f"{len(self.value.draws)} fresh draws; {amount(self.claimed, 6)} in those that chose it",
            f"value in the fresh draws: mean {amount(self.value.mean, 6)}, sd {amount(self.value.sd, 3)}, "
            f"95 % interval {amounts(*self.value.interval, 6)}",
            describe_start(self.value),
            "this is the value under the posterior that chose it: if the prior is wrong, or its data few, it is too "
            "high (judge it on data that did not choose it)",
        ]
        if self.value.basis is not None and self.value.basis.untried is not None:
            parts.append(f"{self.value.basis.untried_share:.2g} of its time in {self.value.basis.untried}: {REMEDY}")
        parts += describe_law(self.value.basis)
        parts += [f"budget of {line}" for line in self.spending.values()]
        parts += [f"price of {line}" for line in self.shadow_prices.values()]
        if self.improvement is not None and not self.found_nothing:
            parts.append(str(self.improvement))
        if self.baseline is not None and not self.found_nothing and self.value.mean > self.baseline.mean:
            doubt = pull_of("candidate", self.value, "the baseline", self.baseline)
            parts += [] if doubt is None else [doubt.reason]
        if self.abstained and self.improvement is not None:
            no_better = "no better policy was found"
            reason = no_better if self.improvement.accepted else "these data do not show that the candidate is no worse"
            if not self.within_budgets:
                reason = "fresh draws do not show that the candidate keeps the budgets; nor is it said that it does"
            parts.append(f"the baseline is returned: {reason}")
        elif self.abstained:
            parts.append("it abstains: fresh draws do not show that this policy keeps the budgets; do not rely on it")
        return Section(f"Policy chosen by {self.criterion}, {describe_objective(self.value.objective)}", parts)


@accepts_moved("choose")
def choose(
    key: PRNGKeyArray,
    posterior: CanSample,
    objective: Objective,
    criterion: Criterion | str = "mean",
    *,
    baseline: PolicyOrLabels | None = None,
    initial: InitialLike | None = None,
    options: ChooseOptions = ChooseOptions(),
) -> PolicyChoice:
    """Choose a policy under a posterior. On the host, by NumPy, in float64.

    The policy is found by a search on draws of the posterior, and evaluated on as many fresh draws. With a `baseline`
    the returned policy satisfies P(value >= baseline - slack) >= confidence under the posterior (both of the options),
    or it is the baseline (see `Improvement`). This probability is that of the posterior: it is right only if prior and
    model are.

    If there are at most 4096 deterministic policies, all are tried. Otherwise (choosing for several MDPs at once is
    NP-hard) a local search starts from the optimum of the mean MDP, from those of some draws and, with a baseline, from
    policies that follow it where data are few; it ends at a local optimum.

    Args:
        key: random; the draws of the search and those of the judgement.
        posterior: anything that can `sample`.
        objective: Discounted, Episodic, AverageReward or FirstExit.
        criterion: `ExpectedValue`, `CVaR`, `Percentile`, `SoftRobust`, `Regret`, `ProbabilityOptimal`, `Robust` of
            `bayes_mdp.decisions`, or its name with its numbers, such as "mean", "cvar:0.1", "robust:0.95".
        baseline: the policy in use, as in `policy_value`.
        initial: distribution of the first state, as in `policy_value`.
        options: limits of the policies, the slack, the confidence, the number of draws (see `ChooseOptions`).

    Returns:
        The policy, its value in fresh draws, and how it compares with the baseline.

    Raises:
        ValueError, TypeError: as `policy_value`; too few draws for the tail of the criterion or for the confidence; a
            baseline that takes actions the space forbids; limits that leave no policy, or none that ends (`FirstExit`,
            which leaves out those that need not end in some draw); a budget that no policy is within on average (the
            least possible cost is named).

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(1, 2)
        >>> data = bm.Transitions([0] * 20, [0, 1] * 10, [0.0, 1.0] * 10, [0] * 20)
        >>> posterior = bm.infer(jax.random.key(0), prior, data, space=space)
        >>> choice = bm.choose(jax.random.key(1), posterior, bm.Episodic(1))
        >>> choice.policy.tolist()
        [[1]]
    """
    if type(options) is not ChooseOptions:  # those of `decide` would be forgotten in silence
        raise TypeError(f"options is {described(options)}, expected ChooseOptions")
    confidences = (float(options.confidence),)
    return choose_first(key, posterior, objective, criterion, baseline, initial, options, confidences)


def choose_first(
    key: PRNGKeyArray,
    posterior: CanSample,
    objective: Objective,
    criterion: Criterion | str,
    baseline: PolicyOrLabels | None,
    initial: InitialLike | None,
    options: ChooseOptions,
    confidences: Sequence[float],
) -> PolicyChoice:
    """`choose` with the first of some confidences at which the search ends at another policy than the baseline.

    Args:
        key, posterior, objective, criterion, baseline, initial: as of `choose`.
        options: likewise, but for the confidence.
        confidences: in place of it, one at least, falling; all searches pass over the same draws.
    """
    require_ability(posterior, CanSample, "choose")
    check_key("key", key)
    check_objective(objective)
    criterion = read_criterion(criterion)
    limits, slack = options.limits, float(options.slack)
    # What chooses does not judge: fresh draws, or of a fixed number of draws the other half.
    searched, judged = posterior.halves() if isinstance(posterior, HoldsDraws) else (posterior, posterior)
    # As many draws as there are to search by; the judge has its own.
    searched, num_draws = limit_draws(searched, int(options.num_draws))
    check_choice(criterion, num_draws, confidences[0], baseline is not None)
    # Two keys: the draws that judge are independent of those that choose.
    search_key, judge_key = jax.random.split(key)
    sizes, space = sizes_of(posterior), labels_of(posterior)
    require_end(sizes.ends, objective)
    start = read_start(sizes, initial, space)
    today = None if baseline is None else read_action_probs("baseline", baseline, sizes, objective, space)
    mean = mean_in_float64(posterior) if isinstance(posterior, CanMean) else None
    counts = np.asarray(posterior.visit_counts()) if isinstance(posterior, CanCount) else None
    steps = (objective.horizon, *sizes.shape[-2:]) if isinstance(objective, Episodic) else sizes.shape
    if today is not None:
        # One that does not depend on the step is the same at every step.
        today = np.broadcast_to(today, steps)
    sets = _policy_sets(limits, sizes.legal, steps, counts, today)
    needed = _pairs_to_search(sets, today, criterion)
    # A tail rests on a share of the draws: so many that it has at least TAIL_DRAWS.
    fewest = None
    if not isinstance(criterion, Robust):
        fewest = max(FEW_DRAWS, int(np.ceil(TAIL_DRAWS / tail_share(criterion) - 1e-9)))
    if limits.budgets is not None:
        return _within_budgets(
            (search_key, judge_key),
            _Belief(posterior, searched, judged, mean, sizes, space, objective, start, num_draws),
            limits.budgets,
            criterion,
            sets,
            today,
            confidences,
            slack,
        )
    search = draws_of(search_key, searched, objective, num_draws, initial=initial, needed=needed, fewest=fewest)
    _require_way_out(search, sets[0][1], space)
    # Policy iteration in each draw starts from the optimum of the mean MDP, which is near most optima.
    twice = not isinstance(criterion, Robust) and needs_best(scored(criterion))
    near_optima = _near_optima(search, mean) if twice else None

    def best_at(confidence: float) -> Found:
        if isinstance(criterion, Robust):
            return _robust(criterion, search, mean, objective, sets[0][1])
        form = scored(criterion)
        return _search(form, search, sets, mean, objective, limits, today, near_optima, confidence, slack)

    with stage("policies searched"):
        result, confidence = _first_change(best_at, confidences, today)
    del search  # the draws that it holds
    if needed is not None:
        # Nothing but the pairs of the policies that are judged.
        # The judge draws rows of two policies at most: a small part of the MDP.
        taken = result.policy > 0 if today is None else (result.policy > 0) | (today > 0)
        needed = np.asarray(taken.reshape(-1, *needed.shape).any(0))
    # Optima of the draws take a second pass.
    judge = draws_of(judge_key, judged, objective, num_draws, initial=initial, needed=needed, keep=twice)
    made = judged, judge_key
    with stage("policy in fresh draws"):
        return _judge(result, criterion, judge, posterior, today, near_optima, confidence, slack, start.words, made)


def _pairs_to_search(
    sets: list[tuple[str, PolicySet]], today: Float[np.ndarray, "*H S A"] | None, criterion: Criterion
) -> Bool[np.ndarray, "S A"] | None:
    """The pairs that a search looks at; None: all legal ones."""
    if not isinstance(criterion, Robust) and needs_best(scored(criterion)):
        return None  # regrets are those of the best of all legal policies
    # Everything that the largest set can take, and what the baseline does.
    needed = np.logical_or.reduce([policies.used for _, policies in sets])
    return needed if today is None else needed | (today > 0).reshape(-1, *needed.shape).any(0)


class _Belief(NamedTuple):
    """What `choose` has read of a posterior: the part to search, the part to judge by, and what they have in common."""

    posterior: CanSample
    searched: CanSample
    judged: CanSample
    mean: MDP | SparseMDP | None
    sizes: Sizes
    space: StateActionSpace | None
    objective: Objective
    start: Start
    num_draws: int


def _within_budgets(
    keys: tuple[PRNGKeyArray, PRNGKeyArray],
    belief: _Belief,
    budgets: Mapping[str, Budget],
    criterion: Criterion,
    sets: list[tuple[str, PolicySet]],
    today: Float[np.ndarray, "*H S A"] | None,
    confidences: Sequence[float],
    slack: float,
) -> PolicyChoice:
    """The choice within budgets: searched by linear programs, judged in fresh draws; arguments as read above."""
    posterior, searched, judged, mean, sizes, space, objective, start, num_draws = belief
    check_budgets(budgets, objective, criterion)
    require_ability(posterior, CanMean, "choose with budgets")
    assert mean is not None
    check_certifiable(budgets, num_draws)
    spender = read_budgets(budgets, posterior, sizes, space, objective)
    # Given draws are halved, and learnt outcomes with them.
    first, second = spender.halves() if isinstance(posterior, HoldsDraws) else (spender, spender)

    def best_at(confidence: float) -> Found:
        # On the draws that choose, a policy may use half of the allowed risk: it looks better there than it is.
        promise = (1.0 - STRICTER * (1.0 - confidence), slack)
        return search_within_budgets(keys[0], searched, first, mean, sets, start.probs, num_draws, today, promise)

    with stage("policies searched"):
        result, confidence = _first_change(best_at, confidences, today)
    with stage("policy in fresh draws"):
        judge = draws_of(keys[1], judged, objective, num_draws, initial=start.probs if start.given else None)
        made = judged, keys[1]
        choice = _judge(result, criterion, judge, posterior, today, None, confidence, slack, start.words, made)
        named = {"candidate": result.policy}
        value = policy_values(keys[1], judged, named, objective, start.probs, num_draws, second.outcomes)["candidate"]
        spending = spending_of(value, second, posterior)
        prices = shadow_prices(keys[1], judged, second, mean, start.probs, sets[0][1], num_draws)
    choice = replace(choice, spending=spending, shadow_prices=prices)
    if choice.within_budgets:
        return choice
    # It abstains. Without a baseline there is nothing to return but the candidate, which says so.
    return replace(choice, abstained=True, policy=choice.candidate if today is None else _plain(today))


def _first_change(
    best_at: Callable[[float], Found], confidences: Sequence[float], today: Float[np.ndarray, "*H S A"] | None
) -> tuple[Found, float]:
    """What a search ends at, and the confidence: the first that is not the baseline, or the last."""
    for confidence in confidences[:-1]:
        result = best_at(confidence)
        if today is None or not np.array_equal(result.policy, today):
            return result, confidence
    return best_at(confidences[-1]), confidences[-1]


def check_choice(criterion: Criterion, num_draws: int, confidence: float, safe: bool) -> None:
    """Refuse too few draws for what is asked of them.

    Args:
        criterion, confidence: as of `choose`.
        num_draws: as of `ChooseOptions`.
        safe: whether the choice is judged against a baseline.

    Raises:
        ValueError: one sentence.
    """
    share = tail_share(criterion)
    # A criterion of the worst 5 % of 400 draws rests on 20 of them.
    if share * num_draws < TAIL_DRAWS - 1e-9 and not isinstance(criterion, Robust):
        least = int(np.ceil(TAIL_DRAWS / share - 1e-9))
        raise ValueError(
            f"num_draws is {num_draws}, expected at least {least}: the criterion ({criterion}) rests on a share of "
            f"{share:g} of the draws, {TAIL_DRAWS} of them at least"
        )
    # All draws no worse shows at most error^(1 / n).
    if safe and num_draws < draws_for(confidence):
        raise ValueError(
            f"num_draws is {num_draws}, expected at least {draws_for(confidence)}: fewer cannot show a probability of "
            f"{confidence:g}"
        )


def _policy_sets(
    limits: PolicyLimits,
    legal: Bool[np.ndarray, "S A"] | None,
    shape: tuple[int, ...],
    counts: Float[np.ndarray, "*steps S A"] | None,
    today: Float[np.ndarray, "*H S A"] | None,
) -> list[tuple[str, PolicySet]]:
    """The set of the limits, and smaller ones that keep to the baseline where data are few."""
    sets = [("the optimum of the mean MDP", policy_set(limits, legal, shape, counts, today))]
    if today is None or counts is None:
        return sets
    for threshold in THRESHOLDS:
        if threshold > (limits.bootstrap_below or 0):
            name = (
                "the optimum of the mean MDP that follows the baseline where actions were seen less than "
                f"{threshold} times"
            )
            smaller = policy_set(limits, legal, shape, counts, today, threshold)
            # Where the limits forbid what the baseline does, it cannot be followed.
            if sets[0][1].contains(smaller.policy(smaller.best(np.zeros(shape)))):
                sets.append((name, smaller))
    return sets


def _search(
    criterion: Scored,
    draws: CommonDraws,
    sets: list[tuple[str, PolicySet]],
    mean: MDP | SparseMDP | None,
    objective: Objective,
    limits: PolicyLimits,
    today: Float[np.ndarray, "*H S A"] | None,
    near: Float[np.ndarray, "*H S A"] | None,
    confidence: float,
    slack: float,
) -> Found:
    """The best policy that was found; the baseline where no other may be chosen."""
    # Regrets need the optimum of every draw.
    best = draws.best(near) if needs_best(criterion) else None
    feasible, stay = None, None
    if today is not None:
        base = draws.evaluations(today[None], names=["baseline"])[0][:, 0]
        # Stricter on the searched draws than what is promised, for the same reason as with budgets.
        share = 1.0 - STRICTER * (1.0 - confidence)
        feasible = lambda values: no_worse(values, base, slack, share)  # noqa: E731
        # Staying with the baseline is always among the options.
        stay = Found(today, base, criterion.score(base, best), "no other policy is as sure: the baseline", False)
    main = Problem(draws, criterion, sets[0][1], best, feasible)
    # Few deterministic policies are tried one by one: exact on these draws.
    results = [enumerate_policies(main)]
    if results[0] is None or today is not None:
        starts = _starts(main, sets, mean, objective)
        # With a baseline the smaller sets are searched too, since they are safer.
        used_starts = starts if results[0] is None else [start for start in starts if start[1] is not sets[0][1]]
        results += _ascents(main, used_starts)
    ends = [result for result in results if result is not None]
    if limits.stochastic:
        # Randomised policies: gradient ascent from the best deterministic ones.
        ends = sorted(ends, key=lambda result: -result.score)[:ASCENTS]
        ends = [climb(main, result) if main.policies.contains(result.policy) else result for result in ends]
    ends += [stay] if stay is not None else []
    if not ends:
        raise ValueError("limits leave no policy with a finite value in every draw, expected at least one")
    return max(ends, key=lambda result: result.score)


def _require_way_out(draws: CommonDraws, policies: PolicySet, space: StateActionSpace | None) -> None:
    """Refuse a set of policies none of which ends, where values are sums until the end; by the first draw."""
    if not isinstance(draws.objective, FirstExit):
        return
    rows, (_, drawn) = draws.rows, next(draws.blocks(slice(1)))
    _, reach = ways_out(rows, drawn.probs[0], policies.used[rows.state, rows.action])
    stuck = np.flatnonzero(~reach)
    if len(stuck):
        state = stuck[0] if space is None else repr(space.state_names[stuck[0]])
        raise ValueError(
            f"objective is FirstExit, and no allowed policy ends from state {state}, expected limits, legal actions "
            "and a support (StateActionSpace) that leave a way out of every state"
        )


def _near_optima(draws: CommonDraws, mean: MDP | SparseMDP | None) -> Float[np.ndarray, "*H S A"] | None:
    """The optimum of the mean MDP, from which policy iteration in every draw starts; None where that is of no use."""
    if mean is None or isinstance(draws.objective, Episodic):
        return None
    all_policies = policy_set(PolicyLimits(), draws.sizes.legal, draws.policy_shape, None, None)
    return np.eye(draws.sizes.n_actions)[best_in(mean, draws.objective, all_policies)]


SearchStart = tuple[str, PolicySet, Int[np.ndarray, "*H S"]]


def _starts(
    main: Problem, sets: list[tuple[str, PolicySet]], mean: MDP | SparseMDP | None, objective: Objective
) -> list[SearchStart]:
    """Where searches begin."""
    starts: list[SearchStart] = []
    if mean is not None:
        starts += [(name, policies, best_in(mean, objective, policies)) for name, policies in sets]
    # The optimum of the mean is where to begin for a mean; a tail, or a posterior without a mean, asks for others.
    # A constant gradient is that of the mean: for it the mean MDP's optimum is a good start.
    if mean is None or main.criterion.gradient(np.arange(2.0), np.ones(2)).std() > 0:
        number = min(DRAWN_STARTS, main.draws.num)
        for i, policy in enumerate(main.draws.optimal_policies(number)):
            starts.append((f"the optimum of draw {i}", main.policies, main.policies.best(policy)))
    return starts


def _ascents(main: Problem, starts: list[SearchStart]) -> list[Found | None]:
    """Ascents from the best of the starts."""
    if not starts:
        return []
    # All starts in one batch of values.
    values = main.draws.values(np.stack([policies.policy(choice) for _, policies, choice in starts]))
    free = Problem(main.draws, main.criterion, main.policies, main.best)
    # By score under the baseline's constraint first, then without it.
    order = np.lexsort((-free.scores(values), -main.scores(values)))[:ASCENTS]
    climbed = []
    for index in order:
        name, policies, choice = starts[index]
        climbed.append(ascend(Problem(main.draws, main.criterion, policies, main.best, main.feasible), choice, name))
    return climbed


def _robust(
    criterion: Robust, draws: CommonDraws, mean: MDP | SparseMDP | None, objective: Objective, policies: PolicySet
) -> Found:
    # Without a radius the set is calibrated on the draws; a given one is centred at the mean.
    if criterion.radius is None:
        members = credible_set(draws, mean, float(criterion.confidence))
        set_words = f"a set that has at least {float(criterion.confidence):g} of the posterior"
    else:
        members = centre(draws, mean)
        shape = draws.sizes.shape[-2:]
        if criterion.radius.shape != shape:
            raise ValueError(f"radius has shape {criterion.radius.shape}, expected {shape} (state, action)")
        # L1 distances for rows; given ones leave the mean rewards as they are.
        members = members.scaled(criterion.radius[members.state, members.action], np.zeros(len(members.state)))
        set_words = "the given set"
    plan = robust_plan(members, objective, policies)
    # Rectangular sets: the worst case is a dynamic program, exact.
    policy = policies.policy(plan.choice)
    score = float(plan.values @ draws.start)
    return Found(policy, np.full(draws.num, score), score, f"robust dynamic programming over {set_words}", True)


def _judge(
    found: Found,
    criterion: Criterion,
    judge: CommonDraws,
    posterior: CanSample,
    today: Float[np.ndarray, "*H S A"] | None,
    near: Float[np.ndarray, "*H S A"] | None,
    confidence: float,
    slack: float,
    start: str,
    judged_by: tuple[object, PRNGKeyArray],
) -> PolicyChoice:
    """The answer, from the fresh draws, which the belief of `judged_by` holds, or makes under a key."""
    # Candidate and baseline in the same draws: their difference has none of the common noise.
    policies = np.stack([found.policy] if today is None else [found.policy, today])
    values, gaps = judge.evaluations(policies, names=["the chosen policy", "baseline"][: len(policies)])
    worth = Worth.of(limit_draws(judged_by[0], len(values))[0], judged_by[1])
    bases = late_bases(posterior, policies, judge.objective, judge.start)
    judged = [
        PolicyValue(
            draws,
            *summarise_draws(draws),
            float(gap.max()),
            judge.start,
            judge.initial_given,
            basis,
            judge.objective,
            start=start,
            effective=effective_of(worth, draws),
        )
        for draws, gap, basis in zip(values.T, gaps.T, bases, strict=True)
    ]
    if isinstance(criterion, Robust):
        score, error = found.score, 0.0
    else:
        form = scored(criterion)
        # The criterion on fresh draws; on those that chose the policy it is biased upwards.
        best = judge.best(near) if needs_best(form) else None
        score = form.score(values[:, 0], best)
        # Resamples are of independent draws; of others fewer are as good.
        error = _score_error(form, values[:, 0], best) * (len(values) / worth.number(values[:, 0])) ** 0.5
    candidate = chosen = _plain(found.policy)
    improvement, abstained = None, False
    if today is not None:
        gain = values[:, 0] - values[:, 1]
        improvement = Improvement(gain, float(slack), float(confidence), worth=worth.of_gain(gain, float(slack)))
        abstained = np.array_equal(found.policy, today) or not improvement.accepted
        chosen = _plain(today) if abstained else candidate
    return PolicyChoice(
        chosen,
        criterion,
        score,
        error,
        claimed=found.score,
        value=judged[0],
        how=found.how,
        exact=found.exact,
        baseline=None if today is None else judged[1],
        improvement=improvement,
        abstained=abstained,
        candidate=candidate,
    )


def _score_error(criterion: Scored, values: Float[np.ndarray, " W"], best: Float[np.ndarray, " W"] | None) -> float:
    """Standard error of the criterion by the bootstrap over draws, with fixed resamples."""
    # A fixed seed: the same values have the same error each time.
    picks = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    scores = [criterion.score(values[pick], None if best is None else best[pick]) for pick in picks]
    return float(np.std(scores, ddof=1))


def _plain(policy: Float[np.ndarray, "*H S A"]) -> Int[np.ndarray, "*H S"] | Float[np.ndarray, "*H S A"]:
    """Actions where the policy is deterministic, else its probabilities."""
    return policy.argmax(-1) if np.all(policy.max(-1) == 1.0) else policy


NUM_CHOICES, FEW_CHOICES = 40, 20
"""Draws in which the choice is repeated; in a large problem."""
LARGE = 2**16
"""Numbers of a draw from which on a problem is large."""


def choice_spread(
    key: PRNGKeyArray,
    posterior: CanSample,
    objective: Objective,
    policies: PolicySet,
    candidate: Float[np.ndarray, "*H S A"],
    gain: Float[np.ndarray, " num_draws"],
    *,
    initial: InitialLike | None = None,
    best: Callable[[PairRows, Drawn], Float[np.ndarray, "*H S A"]] | None = None,
) -> float:
    """By which factor the interval of a gain is widened about its mean; 1: nothing else could have been chosen.

    Args:
        key: of the draws.
        posterior: that chose the candidate.
        objective, initial: of the values.
        policies: the set from which it was chosen.
        candidate: its action probabilities.
        gain: of the candidate over the baseline, in draws of the posterior that judges.
        best: the best policy of the set in one draw, where budgets are to be kept; None: by policy iteration.
    """
    # One policy alone could have been chosen, or the gain is certain: nothing to widen.
    if not policies.open_states.any() or gain.var() == 0:
        return 1.0
    needed = policies.used | (candidate > 0).reshape(-1, *policies.free.shape).any(0)
    draws = draws_of(key, posterior, objective, NUM_CHOICES, initial=initial, needed=needed, fewest=FEW_CHOICES)
    # Policy improvement in each draw starts from the candidate's own choice.
    start = np.where(policies.free, candidate - policies.fixed, -np.inf).argmax(-1)
    rivals = []
    number = min(draws.num, NUM_CHOICES if draws.numbers < LARGE else FEW_CHOICES)
    with bar_of(number, " choices") as bar:
        for draw_numbers, drawn in draws.blocks(slice(number)):
            for i in range(len(draw_numbers)):
                in_draw = Drawn(drawn.probs[i : i + 1].astype(np.float64), drawn.reward[i : i + 1].astype(np.float64))
                rivals.append(
                    policies.policy(improve(draws.rows, in_draw, objective, policies, start))
                    if best is None
                    else best(draws.rows, in_draw)
                )
                bar.update(1)
    diagonal = np.arange(number)
    # ahead[w, i]: the policy that is best in draw i, over the candidate, in draw w.
    values = draws.values(np.stack([candidate, *rivals]))
    # In the place of a rival that need not end in some draw the candidate stays.
    values = np.where(np.isneginf(values), values[:, :1], values)
    ahead = values[:, 1:] - values[:, :1]
    # How far ahead a rival looks in the draw that made it, over how far it is on average: optimism of a choice.
    optimism = ahead[diagonal, diagonal] - ahead.mean(0)
    # Variance of the gain and of that optimism add up; a factor of standard deviations.
    return float(np.sqrt(1.0 + optimism.var() / gain.var()))
