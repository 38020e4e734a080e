# pyright: strict, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeStubs=false
"""`criticise`: would this belief mislead a choice of policy? Several checks against the log, and one verdict.

What to try where a check fails (`next_step`) depends on the direction of the difference and on the kind of rows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from bayes_mdp.calibration.belief.draws import check_posterior
from bayes_mdp.calibration.criticism.log_checks import (
    PolicyArray,
    ReturnCheck,
    good_turing,
    new_outcomes,
    return_check,
    value_of_choice,
)
from bayes_mdp.decisions.behaviour import greedy
from bayes_mdp.decisions.host_optima import pair_time
from bayes_mdp.decisions.policy_evaluation import describe_objective, read_action_probs, read_start, start_of_log
from bayes_mdp.decisions.value_basis import PRIOR_SHARE, ValueBasis, describe_parts, value_bases
from bayes_mdp.inference.fitted import NO_PROGRAM
from bayes_mdp.inference.pair_draws import pairs_of_mdp
from bayes_mdp.inference.route import InferredPosterior, infer
from bayes_mdp.mdp import Log, Objective, PolicyLike, PolicyOrLabels
from bayes_mdp.mdp.abilities import mean_in_float64, sizes_of
from bayes_mdp.mdp.data.log_split import split_log
from bayes_mdp.mdp.labels import policy_of
from bayes_mdp.mdp.objectives import check_objective
from bayes_mdp.mdp.protocols import CanBorrow
from bayes_mdp.models.mdp_spec import Prior
from bayes_mdp.renamed import accepts_moved
from bayes_mdp.utils.layout import Part, Section, as_html, as_text
from bayes_mdp.utils.messages import amount, see
from bayes_mdp.utils.progress import bar_of
from bayes_mdp.utils.typing import InitialLike, IntScalar, RealLike
from bayes_mdp.utils.validation import (
    check_bool,
    check_count,
    check_key,
    check_labels,
    check_number,
    check_type,
    described,
)

NEW, WHERE, CHOSEN, RETURNS = "new outcomes", "where they lead", "chosen policy", "returns"
SAME = 1e-6
"""Difference of action probabilities that is rounding: those of a log are in float32."""
ALIKE, LEARNT, INFORMED, SHARED, UNKNOWN = "alike", "learnt", "informed", "shared", "unknown"
KINDS = (ALIKE, LEARNT, INFORMED, SHARED, UNKNOWN)
"""Rows that share nothing, whose prior takes the outcomes of a pair as alike (or so with a concentration that is learnt
from all), or not as alike; rows that share where they lead; not known."""

_POSSIBLE = "say which transitions are possible (support= or successors= of the space; --support FILE in the shell)"
_LESS = "take a smaller concentration of the rows, or one that is learnt (bm.models.unknown_concentration)"
_POOL = "take rows that share where they lead (bm.models.partial_pooling)"
_APART = "take rows that share less of where they lead, such as independent ones (bm.models.dirichlet_normal and kin)"
_COUNTS = "take prior counts that weigh less, or that lead where the log does"
_OBJECTIVE = (
    "is the objective (discount, horizon, ends) that of the log, and does the state hold all that matters for what "
    "follows? bm.calibration.predictive_check, its serial_dependence, tests the latter"
)

NEXT_STEPS = {
    NEW: (
        "take a larger concentration of the rows, or one that is learnt (bm.models.unknown_concentration)",
        f"{_POSSIBLE}, or {_LESS}",
    ),
    CHOSEN: (
        "take a prior that expects such values: compare its rows and rewards with the first half "
        "(bm.calibration.predictive_check)",
        "choose among policies of what was tried often (PolicyLimits(bootstrap_below=...) or (min_count=...); "
        "--bootstrap-below, --min-count in the shell), "
        "collect more data, or take a prior that expects less of what was hardly tried",
    ),
    RETURNS: (_OBJECTIVE, _OBJECTIVE),
}
"""Check -> what to try where the log is above what the belief expects, and where it is below."""

NEXT_STEPS_WHERE = {
    ALIKE: (f"{_POSSIBLE}, or {_POOL}", f"{_POSSIBLE}, or {_LESS}"),
    LEARNT: (f"{_POSSIBLE}, or {_POOL}", _POSSIBLE),
    INFORMED: (_COUNTS, _COUNTS),
    SHARED: (_POSSIBLE, _APART),
    UNKNOWN: (
        f"{_POSSIBLE}, or {_POOL}",
        f"where rows share parameters: {_APART}; where they do not: {_POSSIBLE}, or {_LESS}",
    ),
}
"""The same for "where they lead", by kind of rows. Above: new outcomes lead to states that are reached more often."""


def next_step(check: str, *, above: bool, kind: str, none_new: bool = False) -> str:
    """What to try.

    Args:
        check: its name.
        above: whether the log is above what the belief expects.
        kind: of the rows, see `kind_of_rows`.
        none_new: whether no held-out outcome was new: too many were expected, wherever they lead.
    """
    if check == WHERE and none_new:
        check = NEW
    above_step, below_step = NEXT_STEPS_WHERE[kind] if check == WHERE else NEXT_STEPS[check]
    return above_step if above else below_step


def kind_of_rows(posterior: InferredPosterior) -> str:
    """How the rows are believed: one of `KINDS`.

    Args:
        posterior: any; of a mixture of closed forms, the first is looked at.
    """
    if isinstance(posterior, CanBorrow):
        return SHARED
    # The first component stands for all.
    closed = posterior.reference.exact_part
    if closed is None:
        return UNKNOWN
    rows = closed.transition_probs
    if not rows.independent:
        return SHARED
    # Zero: the outcome is ruled out.
    prior = np.asarray(rows.prior, np.float64)
    possible = prior > 0
    largest, least = np.where(possible, prior, 0.0).max(-1), np.where(possible, prior, np.inf).min(-1)
    # Of outcomes that are possible, all alike, up to rounding of float32.
    alike = (largest <= least * (1 + 1e-5))[possible.any(-1)].all()
    # A mixture of such: its concentration is learnt, from all rows together.
    if posterior.reference is not posterior:
        return LEARNT if alike else SHARED
    return ALIKE if alike else INFORMED


# The checks, one after the other, and the verdict.

CHECKS = (NEW, WHERE, CHOSEN, RETURNS)
LEAST_REPLICATES = 159  # a rank p-value of 2 / (R + 1) is at most .05 / 4


@dataclass(frozen=True)
class Finding:
    """One check.

    Args:
        observed: what the log says.
        expected: what the belief says.
        p_value: of the difference.
        text: both, in words.
        next_step: what to try where it fails.
    """

    observed: float
    expected: float
    p_value: float
    text: str
    next_step: str = ""


@dataclass(frozen=True, eq=False)
class Criticism:
    """Result of `criticise`; `print` shows it, the line that matters first.

    Args:
        findings: name of the check -> what it found: "new outcomes", "where they lead" and "chosen policy" by held-out
            data, with p-values that are exact ranks; "returns", by a normal approximation.
        skipped: name of a check that could not be made -> why.
        bases: "behaviour", "greedy" -> what its value rests on.
        log_density: name of the prior ("this prior" and the rivals) -> log predictive density of the second half given
            the first, for each transition; empty without rivals.
        false_alarm: probability that any check fails though the belief is right, at most (Bonferroni over the checks;
            that of "returns" is approximate).
        objective: of the values.
        start: where episodes start, in words.
    """

    findings: Mapping[str, Finding]
    skipped: Mapping[str, str]
    bases: Mapping[str, ValueBasis | None]
    log_density: Mapping[str, float]
    false_alarm: float
    objective: Objective
    start: str = ""

    @property
    def threshold(self) -> float:
        """A check fails where its p-value is this or less: the probability of a false alarm over the checks made."""
        # Bonferroni, over the checks that were made.
        return self.false_alarm / max(len(self.findings), 1)

    @property
    def alarms(self) -> tuple[str, ...]:
        """Names of the checks that sound, the clearest first."""
        # At most: rank p-values come in steps of 1 / (R + 1).
        failing = [name for name, finding in self.findings.items() if finding.p_value <= self.threshold]
        return tuple(sorted(failing, key=lambda name: self.findings[name].p_value))

    def said(self, name: str) -> str:
        """What a check found and, where it fails, what to try next.

        Args:
            name: of the check.
        """
        return self.findings[name].text + (f"; try: {self.next_step(name)}" if name in self.alarms else "")

    def next_step(self, name: str) -> str:
        """What to try where a check fails, with the page that says more.

        Args:
            name: of the check.
        """
        return f"{self.findings[name].next_step} {see('how-to/check-a-posterior')}"

    @property
    def better_rival(self) -> str | None:
        """The rival prior that predicts the second half best, if it does so better than this prior."""
        # Densities of the same transitions: the larger one predicts them better.
        best = max(self.log_density, key=lambda name: self.log_density[name], default="this prior")
        return None if best == "this prior" else best

    @property
    def headline(self) -> str:
        """The line that matters."""
        if self.alarms:
            return f"this belief does not fit the log: {self.findings[self.alarms[0]].text}"
        # The policy that rests on the prior most.
        share = max((b.prior_share or 0.0 for b in self.bases.values() if b is not None), default=0.0)
        if share > PRIOR_SHARE:
            return f"no check failed, but the prior's share of the rows that a policy uses is {share:.2g}"
        paid = max(
            (b.rewards.share for b in self.bases.values() if b is not None and b.rewards is not None), default=0.0
        )
        if paid > PRIOR_SHARE:
            return f"no check failed, but the prior's share of the rewards of a policy is {paid:.2g}"
        if self.better_rival is not None:
            return f"no check failed, but the prior {self.better_rival!r} predicts the second half of the log better"
        if not self.findings:
            return "no check could be made"
        return "no check failed"

    __str__ = as_text
    _repr_html_ = as_html

    def layout(self) -> Section:
        """A sentence for each check."""
        parts: list[Part] = [f"start: {self.start}"] if self.start else []
        for name, finding in self.findings.items():
            mark = "failed" if name in self.alarms else "passed"
            p_value = f"p = {finding.p_value:.3g}; fails at {self.threshold:.3g} or less"
            parts.append(f"{name} ({mark}, {p_value}): {finding.text}")
            if name in self.alarms:
                parts.append(f"{name}, what to try: {self.next_step(name)}")
        parts += [f"{name}: not checked, {why}" for name, why in self.skipped.items()]
        parts += [f"{name}: {basis}" for name, basis in self.bases.items() if basis is not None]
        for name, basis in self.bases.items():
            if basis is not None and (basis.prior_share or 0.0) > PRIOR_SHARE:
                parts.append(f"{name} rests on the prior most at {describe_parts(basis.weakest)}")
            if basis is not None and basis.rewards is not None and basis.rewards.share > PRIOR_SHARE:
                parts.append(
                    f"{name} rests on the prior of the rewards most at {describe_parts(basis.rewards.weakest)}"
                )
        if self.log_density:
            densities = ", ".join(f"{name} {density:.4g}" for name, density in self.log_density.items())
            parts.append(f"log predictive density of the second half, per transition: {densities}")
        return Section(f"Criticism, {describe_objective(self.objective)}: {self.headline}", parts)


@dataclass(frozen=True)
class CriticiseOptions:
    """Options of `criticise` that seldom change.

    Args:
        num_replicates: of the rank tests, at least 159.
        false_alarm: probability that any check fails although the belief is right.
        choose_by: how a policy is chosen from the posterior of the first half; None: `greedy`.
        by_use: whether pairs weigh by how long that policy is in them, in "new outcomes" and "where they lead"; False:
            by their transitions in the second half. A belief may be wrong where a decision does not look.
        baseline: policy over which "chosen policy" asks for the gain of that policy; None: for its value.

    Raises:
        TypeError, ValueError: one sentence about the option at fault.

    Example:
        >>> bm.calibration.CriticiseOptions(false_alarm=0.01).num_replicates
        199
    """

    num_replicates: IntScalar = 199
    false_alarm: RealLike = 0.05
    choose_by: Callable[[InferredPosterior], PolicyLike] | None = None
    by_use: bool = False
    baseline: PolicyOrLabels | None = None

    def __post_init__(self) -> None:
        check_bool("by_use", self.by_use)
        check_count("num_replicates", self.num_replicates, LEAST_REPLICATES)
        check_number("false_alarm", self.false_alarm, lambda x: (x > 0) & (x < 1), "a number between 0 and 1")
        if self.choose_by is not None and not callable(self.choose_by):
            raise TypeError(
                f"choose_by is {described(self.choose_by)}, expected a function from a posterior to a policy"
            )


@accepts_moved("criticise")
def criticise(
    key: PRNGKeyArray,
    posterior: InferredPosterior,
    log: Log,
    objective: Objective,
    *,
    initial: InitialLike | None = None,
    rivals: Mapping[str, Prior] | None = None,
    options: CriticiseOptions = CriticiseOptions(),
) -> Criticism:
    """Check a belief (a posterior) against the log for faults that mislead the choice of a policy.

    The log is split in two by episodes. The posterior is computed again from the first half, and its predictions are
    compared with the second half: how many outcomes are new in their row (a prior with too small a concentration
    predicts too few, a flat one too many), whether these lead to states that were often reached in the first half (if
    all unseen outcomes are alike under the prior, they may lead anywhere), and the value of the first half's best
    policy under the frequencies of the second half (the optimiser's curse). With the whole log, the value of the
    behaviour is compared with the mean return. Data that are predicted well on average may still give wrong values, and
    the reverse: none of the checks replaces another.

    Args:
        key: of the split and of the replicates.
        posterior: as `infer` returns it, from `log`; rows that do not depend on the step.
        log: as a whole.
        objective: of the values.
        initial: distribution of the first state, as in `policy_value`; None: the log, as often as its episodes begin in
            each state (of one stretch without an end: uniform).
        rivals: name -> prior program, compared by the log predictive density of the second half.
        options: the number of replicates, the level of the tests, how a policy is chosen (see `CriticiseOptions`).

    Raises:
        ValueError, TypeError: a posterior without its program (a loaded one), with rows for every step, or of another
            space than the log; a log of one episode; numbers out of range.

    Example:
        >>> import pandas as pd
        >>> table = pd.DataFrame({"s": "a", "a": ["x", "y"] * 20, "r": [0.0, 1.0] * 20, "t": "a", "end": True})
        >>> log = bm.read_log(table, state="s", action="a", reward="r", next_state="t", terminated="end")
        >>> space, prior = bm.StateActionSpace.from_log(log), bm.models.dirichlet_bernoulli()
        >>> posterior = bm.infer(jax.random.key(0), prior, log, space=space)
        >>> print(bm.criticise(jax.random.key(1), posterior, log, bm.Episodic(1)))
        Criticism, episodes of 1 step: no check failed
        ...
    """
    check_key("key", key)
    check_posterior(posterior, 1)
    check_type("log", log, Log, "a Log (see read_log)")
    check_objective(objective)
    check_type("options", options, CriticiseOptions, "CriticiseOptions")
    num_replicates, false_alarm, choose_by = options.num_replicates, options.false_alarm, options.choose_by
    # The prior is inferred again from half of the log: its program is needed.
    space, program = posterior.space, posterior.program
    rivals = _read_rivals(rivals)
    check_labels("log.states", log.states, space.logged_states)
    if program is None:
        raise ValueError(f"posterior holds no prior to infer again, expected one as infer returns it: {NO_PROGRAM}")
    if space.horizon is not None:
        raise ValueError(
            f"posterior has rows for each of {space.horizon} steps, expected rows that do not depend on it"
        )
    # 1. Halves by episodes, and the belief of the first half alone.
    keys = jax.random.split(key, 5)
    first, second = split_log(keys[0], log)
    start, _, words = read_start(sizes_of(posterior), start_of_log(log) if initial is None else initial, space)
    # Of the first half alone: what follows it is a test.
    half = infer(keys[1], program, first.transitions, space=space)
    findings: dict[str, Finding] = {}
    skipped: dict[str, str] = {}
    # 2. New outcomes of the second half, and where they lead: of all transitions, or of what the policy that the first
    # half chooses would do (the policy knows nothing of the second half, so ranks stay exact).
    kind = kind_of_rows(half)
    policy = np.asarray(greedy(half, objective) if choose_by is None else choose_by(half))
    use = _time_of(half, policy, objective, start) if options.by_use else None
    findings |= _new(keys[2], half, first, second, int(num_replicates), kind, use)
    if WHERE not in findings:
        skipped[WHERE] = "the space has one state for all outcomes that the log does not have"
    # 3. The optimiser's curse: the value of that policy, or its gain, under the frequencies of the second half.
    over = options.baseline
    over = None if over is None else read_action_probs("baseline", over, sizes_of(half), objective, space)
    findings[CHOSEN] = _check_choice(keys[3], half, policy, objective, start, second, int(num_replicates), kind, over)
    # 4. The value of the behaviour against the returns of the log, by the belief from all data.
    check = return_check(keys[4], posterior, log, space, objective, start)
    if isinstance(check, ReturnCheck):
        findings[RETURNS] = Finding(
            check.observed,
            check.expected,
            check.p_value,
            f"episodes of the log return {amount(check.observed)} +- {amount(check.error, 2)}, the belief says that "
            f"the behaviour is worth {amount(check.expected)} +- {amount(check.sd, 2)}",
            next_step(RETURNS, above=check.observed > check.expected, kind=kind),
        )
    else:
        skipped[RETURNS] = check
    # Evidence of the second half given the first, where it has a closed form.
    gained = {"this prior": _log_gain(posterior, half)} if rivals else {}
    for name, prior in rivals.items():
        # The same key: rivals differ by their priors only.
        gained[name] = _log_gain(*(infer(keys[1], prior, part.transitions, space=space) for part in (log, first)))
    # 5. log p(second | first) = log p(both) - log p(first), for each prior with a closed form.
    number = len(second.transitions.state)
    density = {name: gain / number for name, gain in gained.items() if gain is not None}
    bases = _bases(posterior, log, objective, start)
    return Criticism(findings, skipped, bases, density, float(false_alarm), objective, words)


def _read_rivals(rivals: Mapping[str, Prior] | None) -> dict[str, Prior]:
    if rivals is None:
        return {}
    check_type("rivals", rivals, Mapping, "name -> prior program")
    if not all(callable(prior) for prior in rivals.values()):
        raise TypeError(f"rivals is {described(rivals)}, expected name -> prior program")
    return {str(name): prior for name, prior in rivals.items()}


def _time_of(
    half: InferredPosterior,
    policy: Int[np.ndarray, "*H S"] | Float[np.ndarray, "*H S A"],
    objective: Objective,
    start: Float[np.ndarray, " S"],
) -> Float[np.ndarray, "S A"] | None:
    """How long a policy is in each pair of the mean MDP; None: that is not finite."""
    mean = half.mean_mdp()
    # Double precision: times near 1 / (1 - discount) are sums of many steps.
    probs = read_action_probs("policy", policy, mean, objective)
    time = pair_time(*pairs_of_mdp(mean), probs, objective, np.asarray(start, np.float64))
    # Over the steps of an episode.
    time = time.reshape(-1, *time.shape[-2:]).sum(0)
    return time if np.isfinite(time).all() else None


def _new(
    key: PRNGKeyArray,
    half: InferredPosterior,
    first: Log,
    second: Log,
    num_replicates: int,
    kind: str,
    use: Float[np.ndarray, "S A"] | None,
) -> dict[str, Finding]:
    """New outcomes of the second half: how many, and, unless one state stands for all of them, where they lead."""
    space = half.space
    new = new_outcomes(key, half, space, first.transitions, second.transitions, num_replicates, use)
    number, expected = new.share, float(new.share.replicates.mean())
    held_out = "of held-out transitions" if use is None else "of held-out transitions, by use of the chosen policy,"
    how_many = (
        f"{held_out} {number.observed:.2g} had an outcome that was new in its row, the belief expects "
        f"{expected:.2g} (Good-Turing, from the first half alone: {good_turing(first.transitions, space, use):.2g})"
    )
    step = next_step(NEW, above=number.observed > expected, kind=kind)
    findings = {NEW: Finding(number.observed, expected, number.two_sided_p_value, how_many, step)}
    if space.unseen is not None:
        # One state stands for all that is unseen: where it leads says nothing.
        return findings
    came, none_new = new.arrivals, number.observed == 0
    # log(1 + times) averaged: exponentiated it is a geometric mean.
    usual = float(came.replicates.mean())
    seen_factor, usual_factor = amount(np.expm1(came.observed), 2), amount(np.expm1(usual), 2)
    if none_new:
        arrivals = (
            "no held-out outcome was new in its row; the belief expects new ones, which lead to states that the first "
            f"half reached {usual_factor} times (geometric mean)"
        )
    else:
        arrivals = (
            f"outcomes that are new in their row lead to states that the first half reached {seen_factor} times "
            f"(geometric mean), the belief expects {usual_factor} times"
        )
    step = next_step(WHERE, above=came.observed > usual, kind=kind, none_new=none_new)
    findings[WHERE] = Finding(came.observed, usual, came.two_sided_p_value, arrivals, step)
    return findings


def _check_choice(
    key: PRNGKeyArray,
    half: InferredPosterior,
    policy: PolicyArray,
    objective: Objective,
    start: Float[np.ndarray, " S"],
    second: Log,
    num_replicates: int,
    kind: str,
    baseline: Int[np.ndarray, "*B S"] | Float[np.ndarray, "*B S A"] | None,
) -> Finding:
    with bar_of(num_replicates, " replicates") as bar:
        value = value_of_choice(
            key, half, policy, objective, start, second.transitions, num_replicates, bar.update, baseline
        )
    expected = float(value.replicates.mean())
    seen = amount(value.observed)
    if baseline is None:
        worth = f"is worth {seen}"
    elif np.shape(policy) == np.shape(baseline) and np.allclose(policy, baseline, rtol=0.0, atol=SAME):
        worth = "is the baseline, which gains nothing over itself"
    else:
        worth = f"gains {seen} over the baseline"
    # One-sided: a chosen policy disappoints.
    return Finding(
        value.observed,
        expected,
        value.p_low,
        f"the best policy of the first half {worth} in the frequencies of the second; the belief expects "
        f"{amount(expected)} +- {amount(value.replicates.std(ddof=1), 2)} there",
        next_step(CHOSEN, above=value.observed > expected, kind=kind),
    )


def _log_gain(whole: InferredPosterior, half: InferredPosterior) -> float | None:
    """log p(second half | first half), where the evidence has a closed form."""
    before, after = half.known_log_evidence, whole.known_log_evidence
    return None if before is None or after is None else after - before


def _bases(
    posterior: InferredPosterior, log: Log, objective: Objective, start: Float[np.ndarray, " S"]
) -> dict[str, ValueBasis | None]:
    policies = {"behaviour": policy_of(log, posterior.space, objective), "greedy": greedy(posterior, objective)}
    mean = mean_in_float64(posterior)
    probs = [read_action_probs(name, policy, mean, objective) for name, policy in policies.items()]
    # All policies at once: one solution of the mean MDP serves them.
    together = np.stack(np.broadcast_arrays(*probs))
    bases = value_bases(posterior, together, objective, start)
    return dict(zip(policies, bases, strict=True))
