"""`write_report`: a decision, one by subgroup, or a comparison of policies, as one self-contained HTML page.

A decision says what was chosen and whether its checks hold; a decision by subgroup who should get what, how sure that
is, and what would undo it; a comparison the gains over a baseline, and of what they are made.
"""

import os
from collections.abc import Hashable, Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from bayes_mdp.calibration.criticism.criticise import Criticism
from bayes_mdp.decisions.policy_comparison import PolicyComparison
from bayes_mdp.decisions.policy_evaluation import PolicyValue, describe_start
from bayes_mdp.decisions.value_basis import Unvisited, describe_parts
from bayes_mdp.decisions.verdict import Verdict
from bayes_mdp.inference.conjugate.conjugate_posterior import digests_of
from bayes_mdp.inference.pair_draws import central_interval
from bayes_mdp.mdp import FoldedLog, Log, StateActionSpace
from bayes_mdp.mdp.abilities import sizes_of
from bayes_mdp.mdp.data.folded_log import Source
from bayes_mdp.mdp.labels import labels_of
from bayes_mdp.recommend.decision import ANCHORED, BASELINE, WORTH, Decision
from bayes_mdp.recommend.in_words import key_in_words, prior_in_words, reward_in_words, value_in_words
from bayes_mdp.recommend.page import (
    OPEN_ROWS,
    cells_table,
    folded,
    gains_figure,
    gains_of,
    html_page,
    html_table,
    pairs_table,
    policy_table,
    values_figure,
    versions,
)
from bayes_mdp.recommend.subgroups import SubgroupDecision, SubgroupVerdict
from bayes_mdp.utils.axis_labels import shorten
from bayes_mdp.utils.files import write_beside
from bayes_mdp.utils.messages import amount, amounts, count_of, see
from bayes_mdp.utils.validation import check_name, check_type


def write_report(
    result: Decision | PolicyComparison | SubgroupDecision,
    path: str | os.PathLike[str],
    *,
    baseline: str | None = None,
    log: Log | FoldedLog | None = None,
    command: str = "",
) -> None:
    """Write a decision or a comparison as one HTML page: the answer in words, gains, policies, what they rest on.

    The page loads nothing from elsewhere. The file is written beside and renamed.

    Args:
        result: as `decide`, `decide_by_subgroup` or `compare_policies` returns it.
        path: of the page.
        baseline: of a comparison, the policy that the others are compared with; None: its first.
        log: of a comparison, what its posterior has learnt from: for the names of columns (a column of costs is shown
            as costs), the file and its SHA-256; None: values are those of rewards.
        command: the command that makes these numbers again; "": there is none.

    Raises:
        TypeError: neither; options of a comparison with a decision, which has its own. ValueError: a baseline that is
            no policy of the comparison, or the only one; a log that the posterior has not learnt from; of a comparison
            that was not made by `compare_policies`. OSError: the file cannot be written.

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(1, 2)
        >>> posterior = bm.infer(jax.random.key(0), prior, space=space)
        >>> policies = {"today": [0], "B": [1]}
        >>> compared = bm.compare_policies(jax.random.key(1), posterior, policies, bm.Episodic(1), num_draws=50)
        >>> bm.recommend.write_report(compared, "report.html", baseline="today")
    """
    if isinstance(result, PolicyComparison):
        page = comparison_page(result, baseline, log, command)
    else:
        decided = "a Decision (see decide, decide_by_subgroup) or a PolicyComparison (see compare_policies)"
        check_type("result", result, (Decision, SubgroupDecision), decided)
        if baseline is not None or log is not None:
            raise TypeError("baseline and log are given with a Decision, expected them with a comparison")
        page = subgroup_page(result, command) if isinstance(result, SubgroupDecision) else _page(result, command)
    write_beside(path, lambda beside: Path(beside).write_text(page, encoding="utf-8"))


def _origin(decision: Decision, command: str) -> str:
    """Where the numbers come from, so that they can be had again."""
    return pairs_table(
        {
            "log": f"{decision.source}, {count_of(decision.num_transitions, 'transition', ',')}",
            "its SHA-256": decision.digest,
            "prior": "; ".join(decision.prior.splitlines()),
            "key": decision.key,
            "version": versions(),
            "command": command,
        }
    )


def _page(decision: Decision, command: str) -> str:
    baseline = decision.comparison.values[BASELINE]
    state, action = (str(decision.columns.get(role, role)) for role in ("state", "action"))
    kind = "answer change" if decision.recommended else "answer"
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in decision.reasons)
    notes = "".join(f"<li>{escape(note)}</li>" for note in decision.notes)
    lead = BASELINE if decision.lead is None else decision.lead
    parts = [
        f"<h1>Decision from {escape(decision.source)}</h1>",
        f'<div class="{kind}"><strong>{escape(decision.headline)}</strong>',
        f"<p>{escape(decision.plainly)}</p>",
        f"<ul>{reasons}</ul>" if reasons else "",
        "</div>",
        *_gains(decision),
        *_budgets(decision),
        f"<ul>{notes}</ul>" if notes else "",
        f"<p>Limits: {escape(str(decision.rarely_tried))}.</p>"
        if decision.rarely_tried is not None and decision.rarely_tried.pairs
        else "",
        f"<h2>Where {escape(lead)} differs from the baseline</h2>" if len(decision.differences) else "",
        "<p>The likeliest actions, those of the largest gains first. Next, lead: the next best action, and by how much "
        "this one is better there, by the posterior that judges: near zero it is a near tie. Time is the share of "
        "the policy's time in the state, transitions are those of the data that judge, with its action, the gain is "
        "what the difference adds to the value.</p>"
        if len(decision.differences)
        else "",
        html_table(
            decision.differences.rename(
                columns={
                    "state": state,
                    "today": f"{action}, {BASELINE}",
                    "today_prob": "its share",
                    "chosen": f"{action}, {lead}",
                    "count": "transitions",
                }
            ),
            "",
        ),
        _policies(decision, state),
        "<h2>What it rests on</h2>",
        f"<p>{count_of(decision.space.n_states, 'state')}{_column(decision, 'state')}, "
        f"{count_of(decision.space.n_actions, 'action')}{_column(decision, 'action')}. "
        f"A value is the {escape(decision.unit)}; {escape(describe_start(baseline))}.</p>",
        _origin(decision, command),
        folded(
            "Checks of the belief", _checks(decision.criticism) if decision.criticism else "<p>They were left out.</p>"
        ),
        folded(
            "Values under the posterior that judges",
            values_figure(decision.comparison.values, "value: mean and 95 % interval")
            + _values(decision)
            + _verdict(decision.comparison.verdict)
            + _anchor_section(decision),
        ),
        folded(
            "How the log's policy was chosen",
            f"<p>By {escape(str(decision.choice.criterion))}: {escape(decision.choice.how)}.</p>",
        ),
        folded(
            decision.uncertain,
            f"<p>Pairs, and their shares of its variance. {escape(WORTH)} "
            f"{escape(see('how-to/value-of-information'))}.</p>"
            + html_table(
                None
                if decision.variance_shares is None
                else decision.variance_shares.rename(
                    columns={"state": state, "action": action, "count": "transitions"}
                ),
                "Not known for this posterior.",
            ),
        ),
        folded("The belief", f"<pre>{escape(decision.belief)}</pre>"),
    ]
    return html_page(f"Decision from {decision.source}", parts)


def _column(decision: Decision, role: str) -> str:
    """Where labels are from, where that is known."""
    name = decision.columns.get(role)
    return "" if name is None else f" (column {escape(repr(str(name)))})"


def _gains(decision: Decision) -> list[str]:
    """The picture of all gains over the baseline, and their table; nothing where there is no candidate."""
    if not decision.candidates:
        return []
    table = decision.table()
    rows = []
    for name, answer in zip(table["policy"].astype(str), table["answer"].astype(str), strict=True):
        candidate = decision.candidates[name]
        gain = (amount(candidate.mean, 4), amounts(*candidate.interval), f"{candidate.improvement.prob:.3f}")
        rows.append((name, *gain, candidate.support, answer))
    head = ("policy", decision.verb.removesuffix("s"), "95 % interval", "P(no worse)", "what it rests on", "answer")
    return [
        "<h2>What each policy gains over today's practice</h2>",
        gains_figure(
            {name: (answer.mean, answer.interval) for name, answer in decision.candidates.items()},
            f"gain over the baseline, in units of {reward_in_words(decision.columns)}",
        ),
        cells_table(head, rows, words=(4,)),
    ]


def _budgets(decision: Decision) -> list[str]:
    """What each policy spends of each budget, and what one more unit would be worth; nothing where there is none."""
    if not decision.baseline_spending:
        return []
    spent = {BASELINE: decision.baseline_spending}
    spent |= {name: candidate.spending for name, candidate in decision.candidates.items()}
    rows = [
        (
            *(name, line.name, amount(line.budget.limit), amount(line.cost.mean), amounts(*line.cost.interval)),
            *(f"{share:.3g}" for share in (line.over, line.upper, 1 - line.budget.probability)),
            "kept" if line.certified else "not shown to be kept",
        )
        for name, policy in spent.items()
        for line in policy.values()
    ]
    head = ("policy", "of", "budget", "expected", "95 % interval", "P(more)", "at most", "allowed", "answer")
    prices = "".join(f"<li>Price of {escape(str(line))}.</li>" for line in decision.shadow_prices.values())
    return [
        "<h2>Budgets</h2>",
        "<p>P(more) is the share of fresh draws in which a policy spends more than the budget, at most its upper limit "
        "at a confidence of 95 %.</p>",
        cells_table(head, rows),
        f"<ul>{prices}</ul>",
    ]


def _policies(decision: Decision, state: str) -> str:
    """All policies by label, folded where they are long."""
    policies = {
        BASELINE: decision.baseline,
        **{name: candidate.policy for name, candidate in decision.candidates.items()},
    }
    table = policy_table(decision.space, policies, state)
    return folded("The policies, state by state", html_table(table, ""), is_open=len(table) <= OPEN_ROWS)


def _values(decision: Decision) -> str:
    rows = []
    for name, value in decision.comparison.values.items():
        low, high = value.interval
        basis = value.basis
        share = "" if basis is None or basis.prior_share is None else f"{basis.prior_share:.2g}"
        share += f" ({basis.informative:.2g} informative)" if basis is not None and basis.informative else ""
        share += "" if basis is None or basis.borrowed is None else f" (borrowed {basis.borrowed:.2g})"
        paid = "not known" if basis is None or basis.rewards is None else f"{basis.rewards.share:.2g}"
        if basis is not None and basis.rewards is not None and basis.rewards.share:
            paid += f" (moves it by {amount(basis.rewards.pull, 2)})"
        behind = "" if basis is None else amount(basis.transitions, 3)
        rows.append((name, amount(value.mean, 5), f"{amount(low, 5)} to {amount(high, 5)}", share, paid, behind))
    head = ("policy", "value", "95 % interval", "prior's share", "that of rewards", "transitions behind it")
    return cells_table(head, rows)


def _anchor_section(decision: Decision) -> str:
    """The anchored values, under their own name."""
    if decision.anchored is None:
        return ""
    rows = []
    for name, value in decision.anchored.items():
        low, high = value.interval()
        returned = f"{amount(value.returns, 5)} +- {amount(value.error, 2)}"
        gain = f"{amount(value.gain.mean(), 3)} +- {amount(value.gain.std(ddof=1), 2)}"
        rows.append((name, amount(value.mean, 5), f"{amount(low, 5)} to {amount(high, 5)}", returned, gain))
    head = ("policy", "anchored value", "95 % interval", "mean return", "gain")
    return f"<p>Anchored values: {escape(ANCHORED)}.</p>{cells_table(head, rows)}"


def _verdict(verdict: Verdict) -> str:
    """The verdict on the comparison: its reasons to abstain, and what would remove each."""
    if verdict.decided:
        return f"<p>{escape(str(verdict))}.</p>"
    reasons = zip(verdict.reasons, verdict.would_decide, strict=True)
    return cells_table(("not decided, because", "what would decide"), list(reasons), words=(1,))


def _checks(criticism: Criticism) -> str:
    """A row for each check."""
    rows = [
        (name, "failed" if name in criticism.alarms else "passed", f"{finding.p_value:.3g}", criticism.said(name))
        for name, finding in criticism.findings.items()
    ]
    rows += [(name, "not made", "", why) for name, why in criticism.skipped.items()]
    bases = {
        name: f"{basis}; rests on the prior most at {describe_parts(basis.weakest)}" if basis.weakest else str(basis)
        for name, basis in criticism.bases.items()
        if basis is not None
    }
    threshold = f"A check fails where p is {criticism.threshold:.3g} or less." if criticism.findings else ""
    return (
        f"<p>{escape(criticism.headline)}. {threshold}</p>"
        + cells_table(("check", "result", "p", "what it says"), rows, words=(3,), marks=("failed", "passed"))
        + (f"<p>What values rest on:</p>{pairs_table(bases)}" if bases else "")
    )


TIPPING = (
    "The tipping point of a recommendation is how much, in odds, causes that the log does not record would have to "
    "separate those treated from the others before the policy may be worth no more than practice. Near 1 a small "
    "difference undoes it. Such causes move what follows; rewards are taken as they are."
)


def subgroup_page(decision: SubgroupDecision, command: str) -> str:
    """The page, as HTML.

    Args:
        decision: as `decide_by_subgroup` returns it.
        command: that makes the numbers again; "": there is none.
    """
    recommended = [str(verdict.pattern) for verdict in decision.verdicts.values() if verdict.recommended is not None]
    silent = [str(verdict.pattern) for verdict in decision.verdicts.values() if verdict.recommended is None]
    kind = "answer change" if recommended else "answer"
    title = f"Decision from {decision.source}, by {', '.join(decision.by)}"
    verdicts = {"everybody": decision.whole, **{str(v.pattern): v for v in decision.verdicts.values()}}
    observed = any(verdict.tipping for verdict in verdicts.values())
    baseline = "the policy in use" if decision.has_baseline else "what the log did"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<div class="{kind}"><strong>{_headline(decision, recommended)}</strong>',
        f"<p>Not shown to be no worse than {baseline}: {escape('; '.join(silent))}.</p>" if silent else "",
        f"<ul><li>{escape(decision.differ)}</li>"
        "<li>each verdict has the probability that was asked for on its own, not all of them together</li></ul>",
        "</div>",
        f"<h2>What each policy gains over {baseline}</h2>",
        gains_figure(_subgroup_gains(verdicts), f"gain, in units of {reward_in_words(decision.columns)}"),
        _verdicts(verdicts),
        f"<p>{TIPPING}</p>" if observed else "",
        "<h2>What it rests on</h2>",
        f"<p>A value is the {escape(value_in_words(decision.objective, decision.columns))}.</p>",
        pairs_table(
            {
                "log": f"{decision.source}, {count_of(decision.num_transitions, 'transition', ',')}",
                "its SHA-256": decision.digest or "",
                "contexts": str(decision.posterior.contexts),
                "policies": ", ".join(decision.whole.improvements),
                "probability asked for": f"{next(iter(decision.whole.improvements.values())).confidence:g}",
                "version": versions(),
                "command": command,
            }
        ),
        folded("The belief", f"<pre>{escape(str(decision.posterior))}</pre>"),
        folded("All verdicts in words", f"<pre>{escape(str(decision))}</pre>"),
    ]
    return html_page(title, parts)


def _headline(decision: SubgroupDecision, recommended: list[str]) -> str:
    number = len(decision.verdicts)
    if not recommended:
        return f"No policy is recommended for any of {number} subgroups."
    patterns: dict[str, list[str]] = {}
    for verdict in decision.verdicts.values():
        if verdict.recommended is not None:
            patterns.setdefault(verdict.recommended, []).append(str(verdict.pattern))
    said = "; ".join(f"{name} for {', '.join(who)}" for name, who in patterns.items())
    return escape(f"A policy is recommended for {len(recommended)} of {number} subgroups. {said}.")


def _subgroup_gains(every: dict[str, SubgroupVerdict]) -> dict[str, tuple[float, tuple[float, float]]]:
    """Mean and 95 % interval of the gain of every policy in every subgroup."""
    gains = {}
    for who, verdict in every.items():
        for name, improvement in verdict.improvements.items():
            shown = f"{name}, {who}" if len(verdict.improvements) > 1 else who
            gains[shown] = (float(improvement.gain.mean()), central_interval(improvement.gain))
    return gains


def _verdicts(every: dict[str, SubgroupVerdict]) -> str:
    """A row for each subgroup and policy."""
    rows = []
    for who, verdict in every.items():
        for name, improvement in verdict.improvements.items():
            answer = "recommended" if verdict.recommended == name else "no" if verdict.recommended else "abstain"
            factor = verdict.tipping.get(name)
            hidden = "-" if factor is None else "none" if factor == float("inf") else f"{max(factor, 1.0):.3g}"
            mean, interval = amount(improvement.gain.mean(), 4), amounts(*central_interval(improvement.gain))
            numbers = (mean, interval, f"{improvement.prob:.3f}", answer, hidden)
            rows.append((who, f"{verdict.share:.3g}", name, *numbers))
    head = ("subgroup", "share", "policy", "gain", "95 % interval", "P(no worse)", "answer", "tipping point")
    return cells_table(head, rows, words=(0, 2))


def comparison_page(
    comparison: PolicyComparison, baseline: str | None, log: Log | FoldedLog | None, command: str
) -> str:
    """The page, as HTML.

    Args:
        comparison: as `compare_policies` made it.
        baseline: name of the policy in use; None: the first.
        log: of the posterior; None: it is not said which.
        command: that makes the numbers again; "": there is none.

    Raises:
        TypeError, ValueError: as `write_report`.
    """
    if comparison.compared is None:
        raise ValueError("result is a PolicyComparison that was put together, expected one that compare_policies made")
    # The first policy that was named, unless another is said to be in use.
    baseline = next(iter(comparison.values)) if baseline is None else baseline
    check_name("baseline", baseline, tuple(comparison.values))
    if len(comparison.values) < 2:
        raise ValueError(f"result has {baseline!r} alone, expected a policy that is compared with it")
    if log is not None:
        check_type("log", log, (Log, FoldedLog), "a Log or a FoldedLog")
        _check_source(comparison.compared.posterior, log)
    columns = _columns(log)
    posterior = comparison.compared.posterior
    space = labels_of(posterior) or StateActionSpace(*sizes_of(posterior).shape[-2:])
    value, alternatives = comparison.values[baseline], [name for name in comparison.values if name != baseline]
    table = policy_table(space, comparison.compared.policies, str(columns.get("state", "state")))
    # Costs are shown as costs, not as minus rewards.
    unit = value_in_words(value.objective, {"reward": columns["cost"]} if "cost" in columns else columns)
    printed = "" if "cost" not in columns else "<p>Here values are rewards, which are minus the costs.</p>"
    parts = [
        f"<h1>{escape(', '.join(alternatives))} compared with {escape(baseline)}</h1>",
        _answer(comparison, baseline, columns),
        f"<p>A {_words(columns)[0]} is the {escape(unit)}; {escape(describe_start(value))}.</p>",
        *gains_section(comparison, baseline, columns),
        "<h2>The policies</h2>",
        folded("State by state", html_table(table, "None of them is an array."), is_open=len(table) <= OPEN_ROWS),
        "<h2>What this rests on</h2>",
        folded("Statistics", f"{printed}<pre>{escape(str(comparison))}</pre>"),
        folded("The belief", f"<pre>{escape(str(posterior))}</pre>"),
        "<h2>To get these numbers again</h2>",
        pairs_table(_comparison_origin(comparison, log, columns) | {"command": command}),
    ]
    return html_page(f"{', '.join(alternatives)} compared with {baseline}", parts)


def gains_section(comparison: PolicyComparison, baseline: str, columns: Mapping[str, Hashable]) -> list[str]:
    """The forest of gains over the baseline, and the table: value, gain, interval, P, and what supports it.

    Args:
        comparison: of the policies.
        baseline: name of the policy that the others are compared with.
        columns: role -> name of the log's column; of a column of costs values are shown as costs.
    """
    import pandas as pd

    measure, gained, _, _ = _words(columns)
    # Costs are shown as they were logged: minus the rewards.
    sign = -1 if "cost" in columns else 1
    order = sorted((name for name in comparison.values if name != baseline), key=lambda x: -comparison.values[x].mean)
    rows: list[dict[str, Any]] = []
    for name in [baseline, *order]:
        value, row = comparison.values[name], {}
        if name != baseline:
            gain = comparison.difference(name, baseline)
            row = {
                f"{gained} over {baseline}": amount(gain.mean),
                "95 % interval": amounts(*gain.interval),
                "P(better)": f"{gain.prob_better:.3f}",
            }
        rows.append({"policy": name, measure: amount(sign * value.mean, 5), **row, **_support(value)})
    # The columns of the policies that have a gain come first, the baseline's cells there are empty.
    # The baseline has the first row.
    table = pd.DataFrame(rows[1:] + rows[:1]).iloc[[len(rows) - 1, *range(len(rows) - 1)]]
    label = f"{gained} over {shorten(baseline)}, in units of {_reward(columns)}"
    return [
        f"<h2>{gained.capitalize()} over {escape(baseline)}</h2>",
        gains_figure(gains_of(comparison, baseline), label),
        "<p>Mean and 95 % interval of the difference in common draws of the posterior; at the black line there is none."
        "</p>",
        html_table(table, ""),
    ]


def _support(value: PolicyValue) -> dict[str, str]:
    """What the value of a policy rests on: transitions, the prior, pairs that nobody tried; empty: not known."""
    basis = value.basis
    if basis is None:
        return {}
    return {
        "transitions behind it": amount(basis.transitions, 3),
        "prior's share of rows": "not known" if basis.prior_share is None else f"{basis.prior_share:.2g}",
        "prior's share of rewards": "not known" if basis.rewards is None else f"{basis.rewards.share:.2g}",
        "never tried": _untried_words(basis.unvisited),
    }


def _untried_words(unvisited: Unvisited) -> str:
    number = len(unvisited.pairs)
    return "no pair" if not number else f"{number} pair{'s' * (number > 1)}, {unvisited.share.sum():.2g} of its time"


def _answer(comparison: PolicyComparison, baseline: str, columns: Mapping[str, Hashable]) -> str:
    """Two sentences, then the reasons to abstain, each with what would settle it."""
    _, _, better, worse = _words(columns)
    alternatives = [name for name in comparison.values if name != baseline]
    best = max(alternatives, key=lambda name: comparison.values[name].mean)
    gain, reward = comparison.difference(best, baseline), _reward(columns)
    low, high = gain.interval
    # The sentence is about the best of several.
    said = best if len(alternatives) == 1 else f"The best of {len(alternatives)} policies, {best},"
    if gain.mean > 0:
        said += f" {better.format(amount(gain.mean), reward)}"
        interval = amounts(low, high)
    else:
        said += f" {worse.format(amount(-gain.mean), reward)}"
        interval = amounts(-high, -low)
    said += (
        f" compared with {baseline}, 95 % interval {interval}; that it is the better one has probability "
        f"{gain.prob_better:.3f}."
    )
    verdict = comparison.verdict
    known = f"{_transitions(comparison.values[best])} behind the posterior"
    if verdict.decided:
        trust = f"With {known} no reason was found to distrust this, if prior and model are right."
    else:
        trust = f"With {known} this is not decided: see what would settle it."
    # Green where the answer is decided and the whole interval is a gain.
    kind = "answer change" if verdict.decided and low > 0 else "answer"
    return f'<div class="{kind}"><p><strong>{escape(said)}</strong> {escape(trust)}</p>{_reasons(verdict)}</div>'


def _reasons(verdict: Verdict) -> str:
    rows = "".join(
        f"<li>{escape(reason)}.<br>To settle it: {escape(cure)}.</li>"
        for reason, cure in zip(verdict.reasons, verdict.would_decide, strict=True)
    )
    return f"<ul>{rows}</ul>" if rows else ""


def _transitions(value: PolicyValue) -> str:
    observed = np.nan if value.basis is None else value.basis.observed
    return f"{observed:,.10g} transitions" if np.isfinite(observed) else "what data are"


def _words(columns: Mapping[str, Hashable]) -> tuple[str, str, str, str]:
    """What a value is called, a gain, and how a policy is said to be better or worse by an amount of rewards."""
    if "cost" in columns:
        return "cost", "saving", "saves {} of {}", "costs {} more of {}"
    return "value", "gain", "gains {} of {}", "loses {} of {}"


def _reward(columns: Mapping[str, Hashable]) -> str:
    """The column that is summed."""
    role = "cost" if "cost" in columns else "reward"
    return repr(str(columns[role])) if role in columns else "reward"


def _columns(log: Log | FoldedLog | None) -> dict[str, Hashable]:
    """Role -> column; of folded logs that of the costs, where it is that of all."""
    if log is None:
        return {}
    if isinstance(log, Log):
        return dict(log.columns)
    # Logs with different columns have no common name for them.
    costs = {source.cost for source in log.sources}
    cost = next(iter(costs)) if len(costs) == 1 else None
    return {} if cost is None else {"cost": cost}


def _sources(log: Log | FoldedLog) -> tuple[Source, ...]:
    """The files that were read as a whole; none: it was no file, or a part of one."""
    if isinstance(log, FoldedLog):
        return log.sources
    rows = log.n_transitions
    return () if log.digest is None else (Source(log.source, log.digest, rows, log.cost),)


def _digests(posterior: object) -> list[bytes]:
    """SHA-256 of each log that the posterior has learnt from; none: it does not keep them."""
    digests = getattr(posterior, "sources", None)
    return [] if digests is None else [bytes(row) for row in np.asarray(digests)]


def _check_source(posterior: object, log: Log | FoldedLog) -> None:
    """Refuse a file that the posterior says it has not learnt from."""
    learnt = _digests(posterior)
    if not learnt:
        return
    sources = _sources(log)
    for source, row in zip(sources, digests_of(sources), strict=True):
        # A log that the posterior has not learnt from would be a wrong origin.
        if bytes(row) not in learnt:
            raise ValueError(
                f"log is {source.name} (SHA-256 {source.digest[:12]}...), from which the posterior of the comparison "
                "has not learnt, expected one of its logs"
            )


def _comparison_origin(
    comparison: PolicyComparison, log: Log | FoldedLog | None, columns: Mapping[str, Hashable]
) -> dict[str, str]:
    """What the numbers were made from."""
    assert comparison.compared is not None  # `comparison_page` has refused it
    posterior, key = comparison.compared.posterior, comparison.compared.key
    origin: dict[str, str] = {}
    for source in () if log is None else _sources(log):
        origin[f"log {source.name}"] = f"SHA-256 {source.digest}, {count_of(source.rows, 'row', ',')}"
    if isinstance(log, Log) and log.digest is None:
        origin["log"] = f"{log.source}, {count_of(log.n_transitions, 'transition', ',')}"
    if log is None and (learnt := _digests(posterior)):
        origin["logs that the posterior has learnt from"] = f"SHA-256 {', '.join(row.hex() for row in learnt)}"
    origin["columns"] = ", ".join(f"{role} {str(name)!r}" for role, name in columns.items())
    origin["prior"] = prior_in_words(getattr(posterior, "program", None))
    value = next(iter(comparison.values.values()))
    origin["draws"] = f"{len(value.draws):,}, key {key_in_words(key)}"
    origin["version"] = versions()
    return origin
