# pyright: strict, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeStubs=false
"""`decide`: a policy from a log, beside those that were named beforehand, judged against the one in use.

Read and checked arguments (`Problem`); the choice, the judgement in common draws, the checks of the belief; at the end
where the policies differ (`differences`) and what the value of the answer hangs on (`variance_shares`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from bayes_mdp.calibration.criticism.criticise import SAME, CriticiseOptions, Criticism, criticise
from bayes_mdp.decisions.behaviour import AnchoredValue, behaviour_policy
from bayes_mdp.decisions.choosing.budgets import (
    Spender,
    Spending,
    careful_plan,
    check_budgets,
    check_certifiable,
    in_mean_costs,
    mean_program,
    plan_in_draw,
    read_budgets,
    spending_of,
)
from bayes_mdp.decisions.choosing.choose import PolicyChoice, check_choice, choice_spread, choose_first
from bayes_mdp.decisions.choosing.criteria import Criterion, Improvement, read_criterion
from bayes_mdp.decisions.choosing.policy_set import ChooseOptions, PolicyLimits, PolicySet, best_in, policy_set
from bayes_mdp.decisions.confounding import outcomes_of_mdp, tipping_point
from bayes_mdp.decisions.host_optima import action_values, first_order_variance, pair_time
from bayes_mdp.decisions.policy_comparison import PolicyComparison, comparison_of, read_names
from bayes_mdp.decisions.policy_evaluation import (
    PolicyValue,
    policy_values,
    read_action_probs,
    read_start,
    require_end,
    start_of_log,
)
from bayes_mdp.decisions.verdict import Range, check_value_range, verdict_on
from bayes_mdp.inference.fitted import Fitted
from bayes_mdp.inference.pair_draws import Worth, pairs_of_mdp
from bayes_mdp.inference.route import infer
from bayes_mdp.mdp import (
    AverageReward,
    Discounted,
    Episodic,
    FoldedLog,
    HasVariances,
    Log,
    Objective,
    PolicyLike,
    PolicyOrLabels,
    StateActionSpace,
)
from bayes_mdp.mdp.abilities import Sizes, mean_in_float64
from bayes_mdp.mdp.data.log_split import returns_of, split_log
from bayes_mdp.mdp.data.transitions import check_log_labels
from bayes_mdp.mdp.labels import (
    STEP_LEVEL,
    log_behind,
    log_in_words,
    logged_actions,
    logged_steps,
    policy_of,
    step_p_value,
)
from bayes_mdp.mdp.objectives import check_objective
from bayes_mdp.mdp.space import check_horizon, check_space
from bayes_mdp.models.default_prior import default_prior
from bayes_mdp.models.mdp_spec import Prior
from bayes_mdp.recommend.consequences import BY_STEP, MOST_NUMBERS, SHARE, Question, Rule, consequences, rests_on_prior
from bayes_mdp.recommend.decision import BASELINE, CHOSEN, LEFT_OUT, Candidate, Decision, RarelyTried, lead_of
from bayes_mdp.recommend.in_words import key_in_words, prior_in_words
from bayes_mdp.renamed import accepts_moved
from bayes_mdp.utils.messages import see
from bayes_mdp.utils.progress import stage
from bayes_mdp.utils.typing import ArrayLike, InitialLike, RealLike
from bayes_mdp.utils.validation import (
    check_bool,
    check_key,
    check_name,
    check_number,
    check_type,
    described,
)

if TYPE_CHECKING:
    import pandas as pd


LEAST_TRIED = 5
"""Pairs that the data which choose have less often keep the baseline's probability, unless the limits say otherwise."""
LOOKS, MORE = 4, 4
"""Where the draws leave open whether the promise holds, there are up to three times more, four times as many each."""
MOST_PRIOR = 0.5
"""Share of the prior in a value above which nothing is recommended; from `PRIOR_SHARE` on other priors are tried."""
LIKELIER = 0.02
"""Where no policy is as sure as was asked for, the best of those is named that are likelier no worse than worse."""
MOST_PAIRS = 10
"""Of a table of `variance_shares`."""


@dataclass(frozen=True)
class DecideOptions(ChooseOptions):
    """Options of `decide` that seldom change, beside those of `ChooseOptions`.

    Args:
        limits: as in `choose`, but for `bootstrap_below`, which is 5 where neither it nor `min_count` is stated;
            `PolicyLimits(bootstrap_below=0)` lets the policy take any pair. With `budgets` no policy is recommended,
            named ones included, that is not shown to keep each of them with the probability asked for.
        slack: by how much a value below the baseline's still counts as no worse; zero or greater, in units of the
            value.
        num_draws: as in `choose`; there are more draws where these leave the answer open.
        confidence: probability of being no worse than the baseline that is asked for, in (0, 1).
        space: None: `StateActionSpace.from_log(log)`.
        criterion: by which a policy is chosen, as in `choose`.
        split: share of the episodes that choose and do not judge, in [0, 1); 0: the whole log does both.
        initial: distribution of the first state, as in `policy_value`; None: the log, as often as its episodes begin in
            each state (of one stretch without an end: uniform).
        value_range: the lowest and the highest value that a policy can have, if known.
        checks: whether `criticise` runs; without it nothing is recommended.
        observational: whether those who chose the log's actions may have known more than the log holds; False: the
            actions were drawn by chance, as in a trial. If so, a recommendation says how strong such unrecorded causes
            would have to be to undo it (see `bayes_mdp.decisions.tipping_point`).

    Raises:
        TypeError, ValueError: one sentence about the option at fault.

    Example:
        >>> bm.recommend.DecideOptions(criterion="cvar:0.1", split=0.5).checks
        True
    """

    space: StateActionSpace | None = None
    criterion: Criterion | str = "mean"
    split: RealLike = 0.0
    initial: InitialLike | None = None
    value_range: Range | None = None
    checks: bool = True
    observational: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        read_criterion(self.criterion)
        check_number("split", self.split, lambda x: (x >= 0) & (x < 1), "a number from 0 to 1, less than 1")
        check_value_range(self.value_range)
        check_bool("checks", self.checks)
        check_bool("observational", self.observational)
        if self.space is not None:
            check_space(self.space)


@accepts_moved("decide")
def decide(
    key: PRNGKeyArray,
    prior: Prior | Literal["default"],
    log: Log,
    objective: Objective,
    *,
    policies: Mapping[str, PolicyOrLabels] | None = None,
    baseline: PolicyOrLabels | None = None,
    options: DecideOptions = DecideOptions(),
) -> Decision:
    """Judge policies against the one in use by a log, and recommend one of them or say why not. Host-side.

    Judged are the policies that are named, and the best one that the log supports (see `choose`). What was hardly tried
    misleads such a choice most, so pairs that the log has less than five times keep the probability that the baseline
    gives them, and the rest goes to the best of the others (SPIBB, see `PolicyLimits`).

    A policy is recommended if it is no worse than the baseline with the probability asked for, in draws that did not
    choose it, if prior and data allow a verdict (see `compare_policies`), and if no check of the belief that failed
    (see `criticise`) changes the answer. The probability is that of the posterior: it is right only if prior and model
    are. Where the baseline is what the log did, and that depends on the step of the episode, it is followed step by
    step (`Episodic`), or else judged over the earlier and the later steps too. Of several, the one of the largest mean
    gain is recommended.

    The whole log chooses and judges. The interval of a policy that the log chose is therefore wider than the
    posterior's (see `choice_spread`, a heuristic); for one that was named beforehand it is the posterior's. With
    `options.split` one part of the episodes chooses, and the others judge. Where a check of the rows or of the choice
    failed, the interval holds the gain under the other beliefs to which the check points too.

    Where the baseline is what the log did, its frequencies are drawn too, as in `policy_value`. The policy that the log
    chose keeps many of these frequencies: its probability takes them as known, and its interval is as wide at least as
    that of draws of both.

    Args:
        key: of the split and of all draws.
        prior: program, or "default": `default_prior(log)`.
        log: as a whole; one row for each transition, in the order of time.
        objective: of the values.
        policies: name -> policy that was fixed before anyone saw these data, as in `policy_value`, so also state ->
            action by the labels of the log. Of K > 1 each must be no worse with probability 1 - (1 - confidence) / K.
        baseline: the policy in use, as in `policy_value`, so also state -> action by the labels of the log; None: what
            the log did, as a log in place of a policy is read by `policy_value`.
        options: the space, what is chosen by which criterion and within which limits, how sure a change has to be,
            the first states, the draws (see `DecideOptions`).

    Returns:
        The recommended policy, the reasons, and all that they rest on.

    Raises:
        ValueError, TypeError: as `infer`, `choose`, `compare_policies`, `split_log`, `default_prior`; a space with a
            horizon, whose rows `criticise` cannot judge, with `checks`. All that is known beforehand is refused before
            anything is inferred.

    Example:
        >>> import pandas as pd
        >>> table = pd.DataFrame({"s": "a", "a": ["x", "y"] * 20, "r": [0.0, 1.0] * 20, "t": "a", "end": True})
        >>> log = bm.read_log(table, state="s", action="a", reward="r", next_state="t", terminated="end")
        >>> decision = bm.decide(jax.random.key(0), "default", log, bm.Episodic(1))
        >>> print(decision.headline)
        change to the chosen policy: it gains 0.49..., 95 % interval ...
    """
    check_key("key", key)
    problem = _read_problem(prior, log, objective, policies, baseline, options)
    space, today, begins = problem.space, problem.baseline, problem.initial
    # A key for each step: what is left out changes no other draws.
    keys = jax.random.split(key, 6)
    # Without a split the same data choose and judge.
    first, second = split_log(keys[0], log, problem.split) if problem.split else (log, log)

    # 1. The best policy that the data support; where none is as sure as was asked for, the best of the likely ones.
    with stage("decide: choose a policy"):
        chooser = infer(keys[1], problem.prior, first, space=space)
        choice = _choose(keys[2], chooser, problem)
        problem = problem._replace(spender=_spender(chooser, problem))
    candidates: dict[str, PolicyLike] = {} if choice.found_nothing else {CHOSEN: choice.candidate}
    candidates |= problem.named

    # 2. All of them against the baseline, in common draws, until it is settled whether the promise holds.
    with stage("decide: judge it"):
        judge = infer(keys[1], problem.prior, second, space=space) if problem.split else chooser
        spender = _spender(judge, problem)
        comparison, improvements = _judge(keys[3], judge, problem, candidates, spender)
        spent = {
            name: {} if spender is None else spending_of(value, spender, judge, looks=LOOKS)
            for name, value in comparison.values.items()
        }
        judged = {
            name: _candidate(name, policy, comparison, improvements[name], judge, problem, spent[name])
            for name, policy in candidates.items()
        }
        if CHOSEN in judged:
            by_choice = 1.0 if problem.split else _spread(keys[5], judge, problem, choice, improvements[CHOSEN])
            spread = max(by_choice, _spread_by_frequencies(comparison.values))
            judged[CHOSEN] = replace(judged[CHOSEN], spread=spread)

    # 3. Checks of the belief, and what those that fail change.
    log = replace(log, outcomes={})  # checks are of rows and rewards
    with stage("decide: check the posterior"):
        whole, by_all = judge, None
        if problem.split:
            # The belief of the whole log, beside the one that judges.
            whole = infer(keys[1], problem.prior, log, space=space)
            if CHOSEN in candidates:
                pair = {BASELINE: today, CHOSEN: choice.candidate}
                values = policy_values(keys[5], whole, pair, objective, begins, problem.num_draws)
                by_all = _gain(values, CHOSEN, known=True)
        criticism = None
        if options.checks:
            rule = _rule(problem)
            # Of the choice the gain is asked for, as it is what the decision promises.
            asked = CriticiseOptions(choose_by=rule, by_use=True, baseline=today)
            criticism = criticise(keys[4], whole, log, objective, initial=begins, options=asked)
            judged = _weigh(keys[5], problem, criticism, judged, rule, comparison)
        else:
            judged = {
                name: replace(candidate, doubts=(*candidate.doubts, LEFT_OUT)) for name, candidate in judged.items()
            }

    lead = lead_of(judged)
    # What is shown is what is recommended, or today's practice.
    shown = today if lead is None else candidates[lead]
    start = comparison.values[BASELINE].initial
    return Decision(
        judged,
        today,
        choice,
        comparison,
        criticism,
        differences(judge, shown, today, objective, start),
        variance_shares(judge, shown, objective, start),
        log.source if log.cost is None else f"{log.source} (rewards are minus column {log.cost!r})",
        log.n_transitions,
        problem.split,
        space,
        whole,
        prior_in_words(problem.prior),
        key_in_words(key),
        log.digest or "",
        # Elsewhere than where the log's episodes start, or for another baseline, its returns say nothing.
        _anchor(log, objective, comparison.values) if baseline is None and options.initial is None else None,
        dict(log.columns),
        by_all,
        _rare_pairs(_pair_counts(chooser), space, problem.limits.bootstrap_below or 0),
        problem.practice,
        log.notes,
        spent[BASELINE],
        _tipping(keys[5], judge, problem, shown, start) if options.observational and lead is not None else None,
    )


class Problem(NamedTuple):
    """What is decided, with arguments that were read.

    Args:
        prior, log, objective, space: as of `decide`.
        named: the policies that were named, as arrays where they were by label.
        criterion, limits, confidence, slack, split, num_draws, initial, value_range: as of `DecideOptions`.
        baseline: the policy in use, likewise.
        in_use: the same, or the log where that is what the log did: its frequencies are drawn.
        practice: what it is, in words, where it is what the log did; else "".
        spender: the budgets of the limits, with what the data that choose have learnt of their outcomes; None: there
            are none, or nothing was learnt yet.
    """

    prior: Prior
    log: Log
    objective: Objective
    space: StateActionSpace
    named: dict[str, PolicyLike]
    criterion: Criterion
    limits: PolicyLimits
    baseline: PolicyLike
    in_use: PolicyLike | Log | FoldedLog
    confidence: float
    slack: float
    split: float
    num_draws: int
    initial: InitialLike | None
    value_range: Range | None
    practice: str
    spender: Spender | None = None


def _read_problem(
    prior: Prior | str,
    log: Log,
    objective: Objective,
    policies: Mapping[str, PolicyOrLabels] | None,
    baseline: PolicyOrLabels | None,
    options: DecideOptions,
) -> Problem:
    """The arguments of `decide`, read; refused where they are none."""
    check_type("log", log, Log, "a Log (see read_log)")
    check_objective(objective)
    check_type("options", options, DecideOptions, "DecideOptions")
    if log.covariates is not None:
        raise ValueError(
            "log has covariates, expected one that is read without, or bm.recommend.decide_by_subgroup, which judges "
            f"policies for each subgroup {see('how-to/covariates')}"
        )
    criterion = read_criterion(options.criterion)
    check_choice(criterion, int(options.num_draws), float(options.confidence), safe=True)
    space = StateActionSpace.from_log(log) if options.space is None else options.space
    check_space(space)
    check_log_labels("log", log, space)
    _check_fit(space, objective, options.checks)
    if not np.size(log.transitions.state):
        raise ValueError("log holds no transitions, expected some to choose from")
    begins = start_of_log(log) if options.initial is None else options.initial
    if begins is not None:
        # Refused before anything is inferred.
        space.initial_probs(begins)  # refuses what is none, before anything is inferred
    limits = options.limits
    if limits.budgets is not None:
        _check_budgets(limits, log, space, objective, read_criterion(options.criterion), int(options.num_draws))
    # Unless limits are stated, rare pairs are left to the baseline.
    if limits.bootstrap_below is None and not limits.min_count:
        limits = replace(limits, bootstrap_below=LEAST_TRIED)
    if baseline is None:
        # What the log did, by step where that is to be told.
        today = behaviour_policy(log, space=space, by_step=logged_steps(log, space, objective) or False)
    else:
        today = _read(baseline, "baseline", space, objective)
    logged = log if baseline is None else log_behind(baseline)
    return Problem(
        _read_prior(prior, log, space),
        log,
        objective,
        space,
        _read_policies(policies, space, objective),
        criterion,
        limits,
        today,
        today if logged is None else logged,
        float(options.confidence),
        float(options.slack),
        float(options.split),
        int(options.num_draws),
        begins,
        options.value_range,
        _practice(baseline, log, space, objective),
    )


def _check_budgets(
    limits: PolicyLimits,
    log: Log,
    space: StateActionSpace,
    objective: Objective,
    criterion: Criterion,
    num_draws: int,
) -> None:
    """Refuse budgets that cannot be, before anything is inferred."""
    assert limits.budgets is not None
    check_budgets(limits.budgets, objective, criterion)
    check_certifiable(limits.budgets, num_draws)
    for name, budget in limits.budgets.items():
        if budget.outcome is None:
            check_name("a budget without outcome=", name, log.outcomes, " (see read_log(outcomes=...))")
    known = {name: budget for name, budget in limits.budgets.items() if budget.outcome is not None}
    read_budgets(known, None, Sizes.of(space), space, objective)


def _spender(posterior: Fitted, problem: Problem) -> Spender | None:
    """The budgets, with the outcomes that a posterior has learnt; None: there are no budgets."""
    if problem.limits.budgets is None:
        return None
    return read_budgets(problem.limits.budgets, posterior, Sizes.of(problem.space), problem.space, problem.objective)


def _practice(baseline: PolicyOrLabels | None, log: Log, space: StateActionSpace, objective: Objective) -> str:
    """What the baseline is, in words, where it is what the log did: given as nothing, as the log, or as its array."""
    if baseline is None or log_behind(baseline) is log:
        return log_in_words(log, space, objective)
    # An array that is what the log did, to rounding, is practice.
    if isinstance(baseline, np.ndarray) and np.ndim(baseline) == 2:
        mixture, _ = logged_actions(log, space)
        if np.shape(baseline) == mixture.shape and np.allclose(baseline, mixture, rtol=0.0, atol=SAME):
            return log_in_words(log, space, objective, mixed=True)
    return ""


def _check_fit(space: StateActionSpace, objective: Objective, checks: bool) -> None:
    """Refuse what would fail when everything is inferred."""
    check_horizon(space, objective)
    require_end(space.ends, objective)
    if isinstance(objective, AverageReward) and space.ends:
        raise ValueError(
            "objective is AverageReward, and episodes end (the log has terminated ones, or the space ends=True), "
            "expected another objective"
        )
    if space.horizon is not None and checks:
        raise ValueError(
            f"space has rows for each of {space.horizon} steps, which the checks cannot judge, expected a space "
            "without horizon (policies of Episodic have steps there too), or DecideOptions(checks=False), which "
            "recommends nothing"
        )


def _read_prior(prior: Prior | str, log: Log, space: StateActionSpace) -> Prior:
    if prior == "default":
        return default_prior(log, space=space)
    if not callable(prior):
        raise TypeError(f'prior is {described(prior)}, expected a program, or "default"')
    return prior


def _read(policy: PolicyOrLabels, name: str, space: StateActionSpace, objective: Objective) -> PolicyLike:
    """A policy as an array, where it is by label; refused where it is none."""
    try:
        array = policy_of(policy, space, objective)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from None
    _action_probs(array, space, objective, name)
    return array


def _read_policies(
    policies: Mapping[str, PolicyOrLabels] | None, space: StateActionSpace, objective: Objective
) -> dict[str, PolicyLike]:
    named = {} if policies is None else read_names(policies)
    for name in (BASELINE, CHOSEN):
        if name in named:
            raise ValueError(f"policies has the name {name!r}, which the answer uses itself, expected another one")
    return {name: _read(policy, f"policies[{name!r}]", space, objective) for name, policy in named.items()}


def _action_probs(
    policy: PolicyLike, space: StateActionSpace, objective: Objective, name: str = "policy"
) -> Float[np.ndarray, "*H S A"]:
    probs = read_action_probs(name, policy, Sizes.of(space), objective, space)
    # The same at every step, where it has none.
    shape = (objective.horizon, *space.shape[-2:]) if isinstance(objective, Episodic) else space.shape
    return np.broadcast_to(probs, shape)


def _pair_counts(posterior: Fitted) -> Float[np.ndarray, "S A"]:
    """How often the data of a posterior have each pair, at any step."""
    return np.asarray(posterior.visit_counts(), np.float64).reshape(-1, *posterior.space.shape[-2:]).sum(0)


def _policy_set(posterior: Fitted, problem: Problem) -> PolicySet:
    """The policies that the limits leave, by the counts of a posterior."""
    baseline = _action_probs(problem.baseline, problem.space, problem.objective)
    return policy_set(problem.limits, problem.space.legal, baseline.shape, _pair_counts(posterior), baseline)


def _rule(problem: Problem) -> Rule:
    """How a policy is chosen from a posterior, but for the criterion: the best of the limits by the mean MDP."""

    def rule(posterior: Fitted) -> PolicyLike:
        policies = _policy_set(posterior, problem)
        mean = mean_in_float64(posterior)
        # With budgets the best plan is one of a constrained program.
        if problem.spender is not None:
            program = mean_program(mean, in_mean_costs(problem.spender), _start(problem), policies)
            return careful_plan(program, problem.spender.limits).policy
        return policies.policy(best_in(mean, problem.objective, policies))

    return rule


def _choose(key: PRNGKeyArray, posterior: Fitted, problem: Problem) -> PolicyChoice:
    """The choice; where it is the baseline, that of the best policy which is likelier no worse than worse."""
    return choose_first(
        key,
        posterior,
        problem.objective,
        problem.criterion,
        problem.baseline,
        problem.initial,
        ChooseOptions(problem.limits, problem.slack, problem.num_draws),
        (problem.confidence, LIKELIER),
    )


def _start(problem: Problem) -> Float[np.ndarray, " S"]:
    """The distribution of the first state."""
    return read_start(Sizes.of(problem.space), problem.initial, problem.space).probs


def _judge(
    key: PRNGKeyArray,
    posterior: Fitted,
    problem: Problem,
    candidates: Mapping[str, PolicyLike],
    spender: Spender | None,
) -> tuple[PolicyComparison, dict[str, Improvement]]:
    """The comparison, with more draws as long as they leave open whether a promise holds."""
    cells = int(np.prod((*problem.space.shape, problem.space.n_outcomes)))
    chosen_by = "other data" if problem.split else "these data"
    # Of several policies that were named the best is taken: all of them together keep the promise.
    shared = 1.0 - (1.0 - problem.confidence) / max(len(problem.named), 1)
    num_draws, policies = problem.num_draws, {BASELINE: problem.in_use, **candidates}
    look, worth = 1, Worth.of(posterior, key)
    while True:
        with stage("policies in common draws"):
            outcomes = None if spender is None else spender.outcomes
            values = policy_values(key, posterior, policies, problem.objective, problem.initial, num_draws, outcomes)
        gains = {name: _gain(values, name, known=name == CHOSEN) for name in candidates}
        improvements = {
            name: Improvement(
                gain,
                problem.slack,
                shared if name in problem.named else problem.confidence,
                LOOKS,
                worth.of_gain(gain, problem.slack),
            )
            for name, gain in gains.items()
        }
        # More draws only where some promise is open, and where what they are picked from can tell more.
        settled = all(improvement.settled for improvement in improvements.values()) or num_draws > MORE * worth.held
        if settled or look == LOOKS or num_draws * MORE * cells > MOST_NUMBERS:
            break
        # Four times as many each time; the looks are accounted for in the interval.
        num_draws, look = num_draws * MORE, look + 1
    comparison = comparison_of(values, key, posterior, policies, problem.objective, problem.value_range, chosen_by)
    return comparison, improvements


def _gain(values: Mapping[str, PolicyValue], name: str, *, known: bool) -> Float[np.ndarray, " num_draws"]:
    """What a policy gains over the baseline in each draw; `known`: where the log's frequencies are what the staff do,
    unless nothing else is uncertain."""
    gain = values[name].draws - values[BASELINE].draws
    drawn = values[BASELINE].by_frequencies
    if drawn is None or not known or (gain + drawn).std() == 0:
        return gain
    return gain + drawn


def _spread_by_frequencies(values: Mapping[str, PolicyValue]) -> float:
    """By how much the interval of the chosen policy's gain is wider where the log's frequencies are drawn too."""
    known = _gain(values, CHOSEN, known=True).std()
    return float(_gain(values, CHOSEN, known=False).std() / known) if known else 1.0


def _candidate(
    name: str,
    policy: PolicyLike,
    comparison: PolicyComparison,
    improvement: Improvement,
    posterior: Fitted,
    problem: Problem,
    spending: dict[str, Spending],
) -> Candidate:
    """A policy, with why the data do not decide for it."""
    # Reasons against it: the promise, the verdict on the data, the budgets.
    doubts = [] if improvement.accepted else [str(improvement)]
    values = {key: comparison.values[key] for key in (BASELINE, name)}
    doubts += verdict_on(values, problem.value_range, "these data", MOST_PRIOR).reasons
    doubts += [f"the budget is not shown to be kept: {spent}" for spent in spending.values() if not spent.certified]
    # Pairs that it takes more often than practice, at any step: what was seen of these matters.
    probs, today = (_action_probs(each, problem.space, problem.objective) for each in (policy, problem.baseline))
    taken = (probs > today + SAME).reshape(-1, *probs.shape[-2:]).any(0)
    basis = comparison.values[name].basis
    return Candidate(
        policy,
        improvement,
        name in problem.named,
        prior_share=None if basis is None else basis.prior_share,
        fewest=float(_pair_counts(posterior)[taken].min()) if taken.any() else None,
        doubts=tuple(doubts),
        spending=spending,
    )


def _spread(
    key: PRNGKeyArray,
    posterior: Fitted,
    problem: Problem,
    choice: PolicyChoice,
    improvement: Improvement,
) -> float:
    """By how much the interval of the chosen policy is widened, as the same data chose it."""
    policies = _policy_set(posterior, problem)
    candidate = _action_probs(choice.candidate, problem.space, problem.objective)
    best = None
    if problem.spender is not None:
        spender, start = in_mean_costs(problem.spender), _start(problem)
        best = lambda rows, drawn: plan_in_draw(rows, drawn, spender, start, policies)  # noqa: E731
    return choice_spread(
        key, posterior, problem.objective, policies, candidate, improvement.gain, initial=problem.initial, best=best
    )


def _weigh(
    key: PRNGKeyArray,
    problem: Problem,
    criticism: Criticism,
    judged: dict[str, Candidate],
    rule: Rule,
    comparison: PolicyComparison,
) -> dict[str, Candidate]:
    """The candidates, those that would be recommended with what the failed checks change for them."""
    # Only what would be recommended needs further questions.
    sure = {name: candidate for name, candidate in judged.items() if not candidate.reasons}
    checks = criticism.alarms
    if any(rests_on_prior(comparison.values[name].basis) for name in (BASELINE, *sure)):
        checks = (*checks, SHARE)
    if problem.practice and np.ndim(problem.baseline) == 2 and step_p_value(problem.log) <= STEP_LEVEL:  # type: ignore[arg-type]
        checks = (*checks, BY_STEP)
    if not checks or not sure:
        return judged
    question = Question(
        key,
        problem.prior,
        problem.log,
        problem.space,
        problem.objective,
        problem.initial,
        rule,
        problem.baseline,
        {name: candidate.policy for name, candidate in sure.items()},
        CHOSEN if CHOSEN in sure else None,
        problem.slack,
        problem.confidence,
        problem.num_draws,
    )
    answers = consequences(question, checks, {name: candidate.mean for name, candidate in sure.items()})
    return judged | {name: replace(sure[name], consequences=tuple(changes)) for name, changes in answers.items()}


def _rare_pairs(seen: Float[np.ndarray, "S A"], space: StateActionSpace, below: int) -> RarelyTried | None:
    """The legal pairs that keep the baseline's probability; None: none is asked to."""
    if not below:
        return None
    legal = np.ones(seen.shape, bool) if space.legal is None else np.asarray(space.legal)
    # Pairs below the count, by label.
    rare = [(space.state_names[s], space.action_names[a]) for s, a in np.argwhere(legal & (seen < below))]
    return RarelyTried(below, tuple(rare), int(legal.sum()))


def _tipping(
    key: PRNGKeyArray, posterior: Fitted, problem: Problem, policy: PolicyLike, start: ArrayLike
) -> float | None:
    """The factor of unrecorded causes from which on a policy may be worth no more than what the log did, in the mean
    MDP; None where practice, or the rows, depend on the step, or values are no discounted or finite sums."""
    objective, logged = problem.objective, problem.baseline
    if not problem.practice or np.ndim(logged) != 2 or problem.space.horizon is not None:  # type: ignore[arg-type]
        return None
    if not isinstance(objective, Discounted | Episodic):
        return None
    paid = posterior.mean_outcome_reward(key)
    paid = None if paid is None else outcomes_of_mdp(paid, problem.space)
    return tipping_point(
        mdp=mean_in_float64(posterior),
        policy=policy,
        logged=np.asarray(logged),
        objective=objective,
        initial=np.asarray(start),
        outcome_reward=paid,
    )


def _anchor(log: Log, objective: Objective, values: Mapping[str, PolicyValue]) -> dict[str, AnchoredValue] | None:
    """Of all policies: the baseline is worth the returns, another its gain more. None: the log has no returns."""
    returns = returns_of(log, objective)
    if isinstance(returns, str):
        return None
    # Over what was done, not what staff would do again: the mean return has the same luck in its actions.
    gains = {name: _gain(values, name, known=True) for name in values if name != BASELINE}
    # A gain of zero: the baseline over itself.
    return {
        name: AnchoredValue.of(gain, returns)
        for name, gain in {BASELINE: np.zeros_like(values[BASELINE].draws), **gains}.items()
    }


def differences(
    posterior: Fitted, chosen: PolicyLike, baseline: PolicyLike, objective: Objective, start: ArrayLike
) -> "pd.DataFrame":
    """A row for each state in which the policies differ, the most valuable first.

    Columns: `state`; `today`, the baseline's likeliest action, and `today_prob`; `chosen`, the other's likeliest
    action; `next`, the next best one (None: no other is legal), and `lead`; `time`, the part of the chosen policy's
    time that it spends there; `count`, transitions of the posterior from that state with the chosen action; `gain`,
    what the difference adds to the value. All values are those of the mean MDP. Gains add up to the difference of the
    policies' values there (Kakade and Langford 2002, lemma 6.1), in the average reward to that of the gains; steps of
    `Episodic` are added. The lead is the value of one step of the chosen action less that of one step of the next best,
    following the chosen policy afterwards; near zero: a near tie; negative: this posterior prefers the other. Leads of
    `Episodic` are means over its steps, by the time that the chosen policy spends there.

    Args:
        posterior: that judges.
        chosen, baseline: policies.
        objective, start: of the values.
    """
    import pandas as pd

    space = posterior.space
    time, gain, both_probs, q = _in_mean(posterior, chosen, baseline, objective, start)
    first, second = both_probs
    counts = np.asarray(posterior.visit_counts())
    # A state differs where any of its steps does: means over the steps may agree.
    different = np.abs(first - second).max(-1) > SAME
    weights = np.maximum(time, 1e-300)
    # One row for all steps of a state: each step weighs as the time that is spent there.
    mean = lambda probs: (probs * weights[..., None]).sum(0) / weights.sum(0)[:, None]  # noqa: E731
    stacked = time.ndim == 2
    first, second, q = (mean(x) if stacked else x for x in (first, second, q))
    gain, time = (x.sum(0) if stacked else x for x in (gain, time))
    counts = counts.sum(0) if counts.ndim == 3 else counts
    differing = np.flatnonzero(different.any(0) if stacked else different)
    differing = differing[np.argsort(-np.abs(gain[differing]), kind="stable")]
    # The likeliest action of each.
    new, old = first.argmax(-1), second.argmax(-1)
    # The best of the other actions; an illegal one is -inf.
    rest = np.where(np.arange(q.shape[-1]) == new[:, None], -np.inf, q)
    following = rest.argmax(-1)
    alone = np.isneginf(rest.max(-1))
    return pd.DataFrame(
        {
            "state": [space.state_names[s] for s in differing],
            "today": [space.action_names[old[s]] for s in differing],
            "today_prob": second[differing, old[differing]],
            "chosen": [space.action_names[new[s]] for s in differing],
            "next": [None if alone[s] else space.action_names[following[s]] for s in differing],
            "lead": [np.nan if alone[s] else q[s, new[s]] - q[s, following[s]] for s in differing],
            "time": time[differing] / max(time.sum(), 1e-300),
            "count": counts[differing, new[differing]],
            "gain": gain[differing],
        }
    )


def _in_mean(
    posterior: Fitted, chosen: PolicyLike, baseline: PolicyLike, objective: Objective, start: ArrayLike
) -> tuple[
    Float[np.ndarray, "*H S"], Float[np.ndarray, "*H S"], Float[np.ndarray, "2 *H S A"], Float[np.ndarray, "*H S A"]
]:
    """Time of the chosen policy, what its differences add, both policies, and the chosen one's values of actions."""
    mdp, first = posterior.mean_mdp(), np.asarray(start, np.float64)
    named = (("chosen", chosen), ("baseline", baseline))
    probs = [read_action_probs(name, policy, mdp, objective) for name, policy in named]
    if isinstance(objective, Episodic):
        probs = [np.broadcast_to(x, (objective.horizon, *x.shape[-2:])) for x in probs]
    rows, drawn = pairs_of_mdp(mdp)
    time = pair_time(rows, drawn, probs[0], objective, first).sum(-1)
    q = np.nan_to_num(action_values(rows, drawn, probs[1], objective), posinf=0.0, neginf=0.0)
    after = action_values(rows, drawn, probs[0], objective)
    # time (pi - pi0) q: the performance difference lemma, which adds up to the difference of the values.
    gain = time * np.sum((probs[0] - probs[1]) * q, -1)
    return time, gain, np.stack(probs), np.where(np.isnan(after), -np.inf, after)


def variance_shares(
    posterior: Fitted, chosen: PolicyLike, objective: Objective, start: ArrayLike
) -> "pd.DataFrame | None":
    """The pairs that the value of the chosen policy is most uncertain about: `state`, `action`, `count`, `share`.

    What data of a pair are worth for the decision is another question: `next_experiment` answers it.

    `share` is the pair's part of the first-order variance of the value, time^2 times the variance of its row's
    expectation (exact for rows met at most once). None: the posterior has dependent rows, or no variances; rows for
    every step; the objective is `AverageReward`.

    Args:
        posterior: that judges.
        chosen: the policy.
        objective, start: of the value.
    """
    import pandas as pd

    if isinstance(objective, AverageReward | Episodic) or posterior.space.horizon is not None:
        return None
    if not isinstance(posterior, HasVariances) or not posterior.independent_rows:
        return None
    probs = read_action_probs("chosen", chosen, Sizes.of(posterior.space), objective)
    _, part = first_order_variance(posterior, probs, objective, start)
    if not np.isfinite(part).all() or part.sum() <= 0:
        return None
    # The largest parts first.
    order = np.argsort(-part, axis=None, kind="stable")[:MOST_PAIRS]
    pairs = [np.unravel_index(i, part.shape) for i in order if part.flat[i] > 0]
    counts, space = np.asarray(posterior.visit_counts()), posterior.space
    return pd.DataFrame(
        {
            "state": [space.state_names[s] for s, _ in pairs],
            "action": [space.action_names[a] for _, a in pairs],
            "count": [counts[pair] for pair in pairs],
            "share": [float(part[pair] / part.sum()) for pair in pairs],
        }
    )
