"""`write_report`: a decision, or a comparison of policies, as one self-contained HTML page."""

import os
from html import escape
from pathlib import Path

from bayes_mdp.calibration.criticism.criticise import Criticism
from bayes_mdp.decisions.policy_comparison import PolicyComparison
from bayes_mdp.decisions.policy_evaluation import describe_start
from bayes_mdp.decisions.verdict import Verdict
from bayes_mdp.mdp import FoldedLog, Log
from bayes_mdp.recommend.comparison_report import comparison_page
from bayes_mdp.recommend.decision import ANCHORED, BASELINE, WORTH, Decision
from bayes_mdp.recommend.in_words import reward_in_words
from bayes_mdp.recommend.page import (
    OPEN_ROWS,
    folded,
    gains_figure,
    html_page,
    html_table,
    pairs_table,
    policy_table,
    values_figure,
    versions,
)
from bayes_mdp.utils.files import write_beside
from bayes_mdp.utils.messages import amount, amounts, see
from bayes_mdp.utils.validation import check_type


def write_report(
    result: Decision | PolicyComparison,
    path: str | os.PathLike[str],
    *,
    baseline: str | None = None,
    log: Log | FoldedLog | None = None,
    command: str = "",
) -> None:
    """Write a decision or a comparison as one HTML page: the answer in words, gains, policies, what they rest on.

    The page loads nothing from elsewhere. The file is written beside and renamed.

    Args:
        result: as `decide` or `compare_policies` returns it.
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
        check_type("result", result, Decision, "a Decision (see decide) or a PolicyComparison (see compare_policies)")
        if baseline is not None or log is not None:
            raise TypeError("baseline and log are given with a Decision, expected them with a comparison")
        page = _page(result, command)
    write_beside(path, lambda beside: Path(beside).write_text(page, encoding="utf-8"))


def _origin(decision: Decision, command: str) -> str:
    """Where the numbers come from, so that they can be had again."""
    return pairs_table(
        {
            "log": f"{decision.source}, {decision.num_transitions:,} transitions",
            "its SHA-256": decision.digest,
            "prior": decision.prior,
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
        "" if decision.rarely_tried is None else f"<p>Limits: {escape(str(decision.rarely_tried))}.</p>",
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
        f"<p>{decision.space.n_states} states{_column(decision, 'state')}, {decision.space.n_actions} actions"
        f"{_column(decision, 'action')}. A value is the {escape(decision.unit)}; "
        f"{escape(describe_start(baseline))}.</p>",
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
    rows = ""
    for _, row in table.iterrows():
        candidate = decision.candidates[str(row["policy"])]
        rows += (
            f"<tr><td>{escape(str(row['policy']))}</td>\n<td>{amount(candidate.mean, 4)}</td>\n"
            f"<td>{amounts(*candidate.interval)}</td>\n<td>{candidate.improvement.prob:.3f}</td>\n"
            f'<td class="words">{escape(candidate.support)}</td>\n'
            f"<td>{escape(str(row['answer']))}</td></tr>"
        )
    titles = ("policy", decision.verb.removesuffix("s"), "95 % interval", "P(no worse)", "what it rests on", "answer")
    head = "\n".join(f"<th>{title}</th>" for title in titles)
    return [
        "<h2>What each policy gains over today's practice</h2>",
        gains_figure(
            {name: (answer.mean, answer.interval) for name, answer in decision.candidates.items()},
            f"gain over the baseline, in units of {reward_in_words(decision.columns)}",
        ),
        f"<table><tr>{head}</tr>\n{rows}</table>",
    ]


def _budgets(decision: Decision) -> list[str]:
    """What each policy spends of each budget, and what one more unit would be worth; nothing where there is none."""
    if not decision.baseline_spending:
        return []
    spent = {BASELINE: decision.baseline_spending}
    spent |= {name: candidate.spending for name, candidate in decision.candidates.items()}
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(line.name)}</td><td>{amount(line.budget.limit)}</td>"
        f"<td>{amount(line.cost.mean)}</td><td>{amounts(*line.cost.interval)}</td><td>{line.over:.3g}</td>"
        f"<td>{line.upper:.3g}</td><td>{1 - line.budget.probability:.3g}</td>"
        f"<td>{'kept' if line.certified else 'not shown to be kept'}</td></tr>"
        for name, policy in spent.items()
        for line in policy.values()
    )
    titles = ("policy", "of", "budget", "expected", "95 % interval", "P(more)", "at most", "allowed", "answer")
    head = "".join(f"<th>{title}</th>" for title in titles)
    prices = "".join(f"<li>Price of {escape(str(line))}.</li>" for line in decision.shadow_prices.values())
    return [
        "<h2>Budgets</h2>",
        "<p>P(more) is the share of fresh draws in which a policy spends more than the budget, at most its upper limit "
        "at a confidence of 95 %.</p>",
        f"<table><tr>{head}</tr>{rows}</table>",
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
    rows = ""
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
        rows += (
            f"<tr><td>{escape(name)}</td><td>{amount(value.mean, 5)}</td><td>{amount(low, 5)} to {amount(high, 5)}</td>"
            f"<td>{share}</td><td>{paid}</td><td>{behind}</td></tr>"
        )
    titles = ("policy", "value", "95 % interval", "prior's share", "that of rewards", "transitions behind it")
    head = "".join(f"<th>{title}</th>" for title in titles)
    return f"<table><tr>{head}</tr>{rows}</table>"


def _anchor_section(decision: Decision) -> str:
    """The anchored values, under their own name."""
    if decision.anchored is None:
        return ""
    rows = ""
    for name, value in decision.anchored.items():
        low, high = value.interval()
        rows += (
            f"<tr><td>{escape(name)}</td><td>{amount(value.mean, 5)}</td><td>{amount(low, 5)} to {amount(high, 5)}</td>"
            f"<td>{amount(value.returns, 5)} +- {amount(value.error, 2)}</td>"
            f"<td>{amount(value.gain.mean(), 3)} +- {amount(value.gain.std(ddof=1), 2)}</td></tr>"
        )
    titles = ("policy", "anchored value", "95 % interval", "mean return", "gain")
    head = "".join(f"<th>{title}</th>" for title in titles)
    return f"<p>Anchored values: {escape(ANCHORED)}.</p><table><tr>{head}</tr>{rows}</table>"


def _verdict(verdict: Verdict) -> str:
    """The verdict on the comparison: its reasons to abstain, and what would remove each."""
    if verdict.decided:
        return f"<p>{escape(str(verdict))}.</p>"
    rows = "".join(
        f'<tr><td>{escape(reason)}</td><td class="words">{escape(cure)}</td></tr>'
        for reason, cure in zip(verdict.reasons, verdict.would_decide, strict=True)
    )
    head = '<tr><th>not decided, because</th><td class="words"><strong>what would decide</strong></td></tr>'
    return f"<table>{head}{rows}</table>"


def _checks(criticism: Criticism) -> str:
    """A row for each check."""
    rows = ""
    for name, finding in criticism.findings.items():
        mark = "failed" if name in criticism.alarms else "passed"
        rows += (
            f'<tr><td>{escape(name)}</td><td class="{mark}">{mark}</td><td>{finding.p_value:.3g}</td>'
            f'<td class="words">{escape(criticism.said(name))}</td></tr>'
        )
    for name, why in criticism.skipped.items():
        rows += f'<tr><td>{escape(name)}</td><td>not made</td><td></td><td class="words">{escape(why)}</td></tr>'
    head = '<tr><th>check</th><th>result</th><th>p</th><td class="words"><strong>what it says</strong></td></tr>'
    behind = ""
    for name, basis in criticism.bases.items():
        if basis is not None:
            weak = f"; rests on the prior most at {basis.describe_weakest}" if basis.weakest else ""
            behind += f'<tr><td>{escape(name)}</td><td class="words">{escape(str(basis) + weak)}</td></tr>'
    behind = f"<p>What values rest on:</p><table>{behind}</table>" if behind else ""
    threshold = f"A check fails where p is {criticism.threshold:.3g} or less." if criticism.findings else ""
    return f"<p>{escape(criticism.headline)}. {threshold}</p><table>{head}{rows}</table>{behind}"
