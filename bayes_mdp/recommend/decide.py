"""`decide`: a policy from a log, chosen on one part of it and judged on the other, or the one in use."""

from dataclasses import replace

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from bayes_mdp.calibration.criticism.criticise import Criticism, criticise
from bayes_mdp.decisions.anchored_value import AnchoredValue
from bayes_mdp.decisions.behaviour import behaviour_policy
from bayes_mdp.decisions.choosing.choose import PolicyChoice, choose
from bayes_mdp.decisions.choosing.criteria import Criterion, read_criterion
from bayes_mdp.decisions.choosing.policy_set import PolicyLimits
from bayes_mdp.decisions.choosing.safe_improvement import Improvement
from bayes_mdp.decisions.policy_comparison import PolicyComparison, compare_policies
from bayes_mdp.decisions.policy_evaluation import check_num_draws
from bayes_mdp.decisions.start import start_of_log
from bayes_mdp.decisions.verdict import Range, check_value_range
from bayes_mdp.inference.route import infer
from bayes_mdp.mdp import CanSample, Log, Objective, PolicyLike, PolicyOrLabels, StateActionSpace
from bayes_mdp.mdp.data.episode_returns import returns_of
from bayes_mdp.mdp.data.log_split import split_log
from bayes_mdp.mdp.labelled_arguments import policy_of
from bayes_mdp.mdp.objectives import check_objective
from bayes_mdp.mdp.space import check_space
from bayes_mdp.models.mdp_spec import Prior
from bayes_mdp.recommend.decision import BASELINE, CHOSEN, LEFT_OUT, Decision, RarelyTried
from bayes_mdp.recommend.differences import differences, variance_shares
from bayes_mdp.utils.progress import stage
from bayes_mdp.utils.typing import AnyArray, InitialLike, IntScalar, RealLike
from bayes_mdp.utils.validation import check_bool, check_key, check_labels, check_number, check_type

LEAST_TRIED = 5
"""Pairs that the data which choose have less often keep the baseline's probability, unless the limits say otherwise."""


def decide(  # noqa: PLR0913 - what is believed, chosen, compared and promised
    key: PRNGKeyArray,
    prior: Prior,
    log: Log,
    objective: Objective,
    *,
    space: StateActionSpace | None = None,
    criterion: Criterion | str = "mean",
    limits: PolicyLimits = PolicyLimits(),
    baseline: PolicyOrLabels | None = None,
    confidence: RealLike = 0.95,
    slack: RealLike = 0.0,
    split: RealLike = 0.5,
    initial: InitialLike | None = None,
    value_range: Range | None = None,
    num_draws: IntScalar = 400,
    checks: bool = True,
) -> Decision:
    """Choose a policy from a log and judge it, or recommend the one in use and say why. Host-side.

    The log is split by episodes. A policy is chosen with the first part (see `choose`). Pairs that were hardly tried
    mislead such a choice most, so by default those that the first part has less than five times keep the probability
    that the baseline gives them, and the rest goes to the best of the others; where a state has none, the policy
    follows the baseline (SPIBB, see `PolicyLimits`). The policy is compared with the baseline in common draws from the
    posterior of the second part, which was not used for the choice. It is recommended
    if it is no worse than the baseline with the probability asked for, the comparison reaches a verdict (see
    `compare_policies`) and no check of the belief fails (see `criticise`). This probability is that of the posterior:
    it is right only if prior and model are.

    If the baseline is the behaviour of the log, the anchored values of both policies are shown too (see
    `anchored_values`): the mean return of the whole log, and the gain under the posterior of the second part. They do
    not enter the decision. Nor does the gain under the posterior of the whole log, which is shown beside the judgement.
    If prior and model are right it is the better estimate, since it uses all data: with the second part alone, a
    pooling prior estimates the rows of seldom tried actions from other actions. If they are wrong it may be far too
    high.

    Args:
        key: of the split and of all draws.
        prior: program.
        log: as a whole; one row for each transition, in the order of time.
        objective: of the values.
        space: None: `StateActionSpace.from_log(log)`.
        criterion, slack, num_draws: as in `choose`.
        limits: as in `choose`, but for `bootstrap_below`, which is 5 where neither it nor `min_count` is stated;
            `PolicyLimits(bootstrap_below=0)` lets the policy take any pair.
        baseline: the policy in use, as in `policy_value`, so also state -> action by the labels of the log; None: what
            the log did (`behaviour_policy`).
        confidence: probability of being no worse than the baseline, in (0, 1).
        split: share of the episodes with which the policy is chosen, in [0, 1); 0: the whole log chooses and judges,
            and nothing is recommended.
        initial: distribution of the first state, as in `policy_value`; None: the log, as often as its episodes begin in
            each state (of one stretch without an end: uniform).
        value_range: the lowest and the highest value that a policy can have, if known.
        checks: whether `criticise` runs; without it nothing is recommended.

    Returns:
        The recommended policy, the reasons, and all that they rest on.

    Raises:
        ValueError, TypeError: as `infer`, `choose`, `compare_policies`, `split_log`.

    Example:
        >>> import pandas as pd
        >>> table = pd.DataFrame({"s": "a", "a": ["x", "y"] * 20, "r": [0.0, 1.0] * 20, "t": "a", "end": True})
        >>> log = bm.read_log(table, state="s", action="a", reward="r", next_state="t", terminated="end")
        >>> prior, objective = bm.models.dirichlet_bernoulli(), bm.Episodic(1)
        >>> decision = bm.decide(jax.random.key(0), prior, log, objective, num_draws=100, checks=False)
        >>> print(decision.headline)
        keep the baseline: these data do not decide for the chosen policy ...
    """
    check_key("key", key)
    check_type("log", log, Log, "a Log (see read_log)")
    check_objective(objective)
    check_type("limits", limits, PolicyLimits, "PolicyLimits")
    criterion = read_criterion(criterion)
    check_number("split", split, lambda x: (x >= 0) & (x < 1), "a number from 0 to 1, less than 1")
    check_value_range(value_range)
    check_bool("checks", checks)
    check_num_draws(num_draws, 64)
    check_number("confidence", confidence, lambda x: (x > 0) & (x < 1), "a number between 0 and 1")
    check_number("slack", slack, lambda x: (x >= 0) & np.isfinite(x), "a number, zero or greater")
    space = StateActionSpace.from_log(log) if space is None else space
    check_space(space)
    check_labels("log.states", log.states, space.logged_states)
    check_labels("log.actions", log.actions, space.action_names)
    if not np.size(log.transitions.state):
        raise ValueError("log holds no transitions, expected some to choose from")
    keys = jax.random.split(key, 6)
    first, second = split_log(keys[0], log, split) if float(split) > 0 else (log, log)
    begins = start_of_log(log) if initial is None else initial
    if begins is not None:
        space.initial_probs(begins)  # refuses what is none, before anything is inferred
    today = behaviour_policy(log, space=space) if baseline is None else _read_baseline(baseline, space, objective)
    if limits.bootstrap_below is None and not limits.min_count:
        limits = replace(limits, bootstrap_below=LEAST_TRIED)
    with stage("decide: choose a policy"):
        chooser = infer(keys[1], prior, first, space=space)
        choice = choose(
            keys[2],
            chooser,
            objective,
            criterion,
            limits=limits,
            baseline=today,
            confidence=float(confidence),
            slack=float(slack),
            initial=begins,
            num_draws=int(num_draws),
        )
    with stage("decide: judge it"):
        judge = infer(keys[1], prior, second, space=space)
        comparison = compare_policies(
            keys[3],
            judge,
            {BASELINE: today, CHOSEN: choice.candidate},
            objective,
            initial=begins,
            num_draws=int(num_draws),
            value_range=value_range,
            held_out=float(split) > 0,
        )
    start = comparison.values[CHOSEN].initial
    gain = comparison.difference(CHOSEN, BASELINE).draws
    improvement = Improvement(gain, float(slack), float(confidence))
    with stage("decide: check the posterior"):
        whole, by_all = judge, None
        if float(split) > 0:
            whole = infer(keys[1], prior, log, space=space)
            by_all = _gain(keys[5], whole, today, choice.candidate, objective, begins, int(num_draws))
        criticism = criticise(keys[4], whole, log, objective, initial=begins) if checks else None
    reasons = _reasons(choice, comparison, improvement, criticism)
    return Decision(
        choice.candidate,
        today,
        reasons,
        choice,
        comparison,
        improvement,
        criticism,
        differences(judge, choice.candidate, today, objective, start),
        variance_shares(judge, choice.candidate, objective, start),
        log.source if log.cost is None else f"{log.source} (rewards are minus column {log.cost!r})",
        len(log.transitions.state),
        float(split),
        space,
        str(whole),
        # Elsewhere than where the log's episodes start, or for another baseline, its returns say nothing.
        _anchored(log, objective, gain) if baseline is None and initial is None else None,
        dict(log.columns),
        by_all,
        _rarely_tried(chooser.visit_counts(), space, limits.bootstrap_below or 0),
    )


def _rarely_tried(visits: Float[AnyArray, "*H S A"], space: StateActionSpace, below: int) -> RarelyTried | None:
    """How many legal pairs keep the baseline's probability; None: none is asked to."""
    if not below:
        return None
    seen = np.asarray(visits, np.float64).reshape(-1, space.n_states, space.n_actions).sum(0)
    legal = np.ones(seen.shape, bool) if space.legal is None else np.asarray(space.legal)
    return RarelyTried(below, int((legal & (seen < below)).sum()), int(legal.sum()))


def _gain(
    key: PRNGKeyArray,
    posterior: CanSample,
    baseline: PolicyLike,
    candidate: PolicyLike,
    objective: Objective,
    initial: InitialLike | None,
    num_draws: int,
) -> Float[np.ndarray, " num_draws"]:
    """The gain of the candidate in draws of a posterior."""
    policies = {BASELINE: baseline, CHOSEN: candidate}
    compared = compare_policies(key, posterior, policies, objective, initial=initial, num_draws=num_draws)
    return compared.difference(CHOSEN, BASELINE).draws


def _anchored(log: Log, objective: Objective, gain: Float[np.ndarray, " num_draws"]) -> dict[str, AnchoredValue] | None:
    """Both policies: the baseline is worth the returns, the chosen one its gain more. None: the log has no returns."""
    returns = returns_of(log, objective)
    if isinstance(returns, str):
        return None
    return {BASELINE: AnchoredValue.of(0.0 * gain, returns), CHOSEN: AnchoredValue.of(gain, returns)}


def _read_baseline(baseline: PolicyOrLabels, space: StateActionSpace, objective: Objective) -> PolicyLike:
    """The policy in use as an array, where it is by label."""
    try:
        return policy_of(baseline, space, objective)
    except (TypeError, ValueError) as error:
        raise type(error)(f"baseline: {error}") from None


def _reasons(
    choice: PolicyChoice, comparison: PolicyComparison, improvement: Improvement, criticism: Criticism | None
) -> tuple[str, ...]:
    """Why the chosen policy is not recommended; none: it is."""
    if choice.abstained and np.array_equal(np.asarray(choice.candidate), np.asarray(choice.policy)):
        # The judge has nothing to compare, and checks would not change that.
        return (
            "no other policy was found that is better than the baseline on average, and no worse with the probability "
            f"asked for ({improvement.confidence:g}), by the data that choose",
        )
    reasons = list(comparison.verdict.reasons)
    if not improvement.accepted:
        reasons.append(str(improvement))
    if criticism is None:
        reasons.append(LEFT_OUT)
    else:
        reasons += [f"{name}: {criticism.said(name)}" for name in criticism.alarms]
    return tuple(reasons)
