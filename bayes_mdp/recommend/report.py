"""`write_report`: a decision as one self-contained HTML page, readable on a screen and on paper."""

import hashlib
import os
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from bayes_mdp.calibration.criticism.criticise import Criticism
from bayes_mdp.decisions.policy_evaluation import describe_start
from bayes_mdp.decisions.verdict import Verdict
from bayes_mdp.recommend.decision import ANCHORED, BASELINE, WORTH, Decision, short
from bayes_mdp.recommend.policy_table import policy_table
from bayes_mdp.recommend.report_figures import gains_figure, values_figure
from bayes_mdp.recommend.units import reward_in_words
from bayes_mdp.utils.amounts import amount, amounts
from bayes_mdp.utils.files import write_beside
from bayes_mdp.utils.pages import see
from bayes_mdp.utils.validation import check_type

if TYPE_CHECKING:
    import pandas as pd

ROWS = 200  # of a table, at most
OPEN_ROWS = 20  # of a table that is shown without a click

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.answer { border-left: .4rem solid #b50; padding: .6rem 1rem; background: #fdf6ef; }
.answer.change { border-color: #17663a; background: #eef8f1; }
table { border-collapse: collapse; font-size: .9rem; display: block; overflow-x: auto; }
th, td { padding: .2rem .8rem .2rem 0; text-align: right; }
th:first-child, td:first-child, td.words { text-align: left; }
tr { border-bottom: 1px solid #ddd; } td { vertical-align: top; } td.failed { color: #b50; font-weight: bold; }
pre { white-space: pre-wrap; font-size: .8rem; background: #f6f6f6; padding: .6rem; }
details { margin: 1rem 0; } summary { cursor: pointer; } .origin th { text-align: left; font-weight: normal; }
svg { width: 100%; max-width: 38rem; height: auto; }
@media print { body { font-size: 11pt; margin: 0; max-width: none; } h2 { break-after: avoid; }
  tr, svg, .answer { break-inside: avoid; } details { display: none; } pre { background: none; } }
"""


def write_report(
    decision: Decision,
    path: str | os.PathLike[str],
    *,
    command: str | None = None,
    file: str | os.PathLike[str] | None = None,
) -> None:
    """Write a decision as one HTML page: the answer, the gains of all candidates, the policies, what it rests on.

    The page loads nothing from elsewhere. The file is written beside and renamed.

    Args:
        decision: as `decide` returns it.
        path: of the page.
        command: that made it, for the page; None: it is not shown.
        file: of the log, whose SHA-256 the page then states.

    Raises:
        TypeError: no decision. ValueError, OSError: the file cannot be written, or that of the log not read.
    """
    check_type("decision", decision, Decision, "a Decision (see decide)")
    page = _page(decision, _origin(decision, command, file))
    write_beside(path, lambda beside: Path(beside).write_text(page, encoding="utf-8"))


def _origin(decision: Decision, command: str | None, file: str | os.PathLike[str] | None) -> str:
    """Where the numbers come from, so that they can be had again."""
    rows = {"log": f"{decision.source}, {decision.num_transitions:,} transitions"}
    if file is not None:
        rows["its SHA-256"] = hashlib.sha256(Path(file).read_bytes()).hexdigest()
    rows |= {"prior": decision.prior} if decision.prior else {}
    rows |= {"key": decision.key} if decision.key else {}
    rows["version"] = f"bayes_mdp {version('bayes-mdp')}"
    rows |= {"command": command} if command else {}
    cells = "".join(
        f'<tr><th>{escape(name)}</th>\n<td class="words">{escape(text)}</td></tr>\n' for name, text in rows.items()
    )
    return f'<table class="origin">{cells}</table>'


def _page(decision: Decision, origin: str) -> str:
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
        f"<ul>{notes}</ul>" if notes else "",
        "" if decision.rarely_tried is None else f"<p>Limits: {escape(str(decision.rarely_tried))}.</p>",
        f"<h2>Where {escape(lead)} differs from the baseline</h2>" if len(decision.differences) else "",
        "<p>The likeliest actions, those of the largest gains first. Next, lead: the next best action, and by how much "
        "this one is better there, by the posterior that judges: near zero it is a near tie. Time is the share of "
        "the policy's time in the state, transitions are those of the data that judge, with its action, the gain is "
        "what the difference adds to the value.</p>"
        if len(decision.differences)
        else "",
        _table(
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
        origin,
        _folded(
            "Checks of the belief", _checks(decision.criticism) if decision.criticism else "<p>They were left out.</p>"
        ),
        _folded(
            "Values under the posterior that judges",
            values_figure(decision.comparison.values, "value: mean and 95 % interval")
            + _values(decision)
            + _verdict(decision.comparison.verdict)
            + _anchored(decision),
        ),
        _folded(
            "How the log's policy was chosen",
            f"<p>By {escape(str(decision.choice.criterion))}: {escape(decision.choice.how)}.</p>",
        ),
        _folded(
            decision.uncertain,
            f"<p>Pairs, and their shares of its variance. {escape(WORTH)} "
            f"{escape(see('how-to/value-of-information'))}.</p>"
            + _table(
                None
                if decision.variance_shares is None
                else decision.variance_shares.rename(
                    columns={"state": state, "action": action, "count": "transitions"}
                ),
                "Not known for this posterior.",
            ),
        ),
        _folded("The belief", f"<pre>{escape(decision.belief)}</pre>"),
    ]
    title = escape(f"Decision from {decision.source}")
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>'
    body = "\n".join(part for part in parts if part)
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n'
    )


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


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
            f'<td class="words">{escape(str(row["answer"]))}</td></tr>'
        )
    titles = ("policy", decision.verb.removesuffix("s"), "95 % interval", "P(no worse)", "what it rests on", "answer")
    head = "\n".join(f"<th>{title}</th>" for title in titles)
    return [
        "<h2>What each policy gains over today's practice</h2>",
        gains_figure(
            {name: (each.mean, each.interval) for name, each in decision.candidates.items()},
            f"gain over the baseline, in units of {reward_in_words(decision.columns)}",
        ),
        f"<table><tr>{head}</tr>{rows}</table>",
    ]


def _policies(decision: Decision, state: str) -> str:
    """All policies by label, folded where they are long."""
    policies = {BASELINE: decision.baseline, **{name: each.policy for name, each in decision.candidates.items()}}
    table = policy_table(decision.space, policies, state)
    is_open = " open" if len(table) <= OPEN_ROWS else ""
    return f"<details{is_open}><summary>The policies, state by state</summary>{_table(table, '')}</details>"


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


def _anchored(decision: Decision) -> str:
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


def _table(frame: "pd.DataFrame | None", nothing: str) -> str:
    if frame is None or not len(frame):
        return f"<p>{nothing}</p>"
    table = frame.head(ROWS).to_html(index=False, border=0, float_format=short, na_rep="-", escape=True)
    more = len(frame) - ROWS
    return table + (f"<p>and {more} more.</p>" if more > 0 else "")
