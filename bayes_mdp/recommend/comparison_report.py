"""The page of a comparison of policies: the answer in two sentences, gains over a baseline, policies, how to repeat."""

from collections.abc import Hashable, Mapping
from html import escape
from typing import Any

import numpy as np

from bayes_mdp.decisions.policy_comparison import PolicyComparison
from bayes_mdp.decisions.policy_evaluation import PolicyValue, describe_start
from bayes_mdp.decisions.value_basis import Unvisited
from bayes_mdp.decisions.verdict import Verdict
from bayes_mdp.inference.conjugate.conjugate_posterior import digests_of
from bayes_mdp.mdp import FoldedLog, Log, StateActionSpace
from bayes_mdp.mdp.abilities import sizes_of
from bayes_mdp.mdp.data.folded_log import Source
from bayes_mdp.mdp.labels import labels_of
from bayes_mdp.recommend.in_words import key_in_words, prior_in_words, value_in_words
from bayes_mdp.recommend.page import (
    OPEN_ROWS,
    folded,
    gains_figure,
    gains_of,
    html_page,
    html_table,
    pairs_table,
    policy_table,
    versions,
)
from bayes_mdp.utils.axis_labels import shorten
from bayes_mdp.utils.messages import amount, amounts
from bayes_mdp.utils.validation import check_name, check_type


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
    unit = value_in_words(value.objective, _with_costs(columns))
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
        pairs_table(_origin(comparison, log, columns) | {"command": command}),
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


def _with_costs(columns: Mapping[str, Hashable]) -> Mapping[str, Hashable]:
    """The columns, where costs are shown as costs and not as minus rewards."""
    return {"reward": columns["cost"]} if "cost" in columns else columns


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


def _origin(
    comparison: PolicyComparison, log: Log | FoldedLog | None, columns: Mapping[str, Hashable]
) -> dict[str, str]:
    """What the numbers were made from."""
    assert comparison.compared is not None  # `comparison_page` has refused it
    posterior, key = comparison.compared.posterior, comparison.compared.key
    origin: dict[str, str] = {}
    for source in () if log is None else _sources(log):
        origin[f"log {source.name}"] = f"SHA-256 {source.digest}, {source.rows:,} rows"
    if isinstance(log, Log) and log.digest is None:
        origin["log"] = f"{log.source}, {log.n_transitions:,} transitions"
    if log is None and (learnt := _digests(posterior)):
        origin["logs that the posterior has learnt from"] = f"SHA-256 {', '.join(row.hex() for row in learnt)}"
    origin["columns"] = ", ".join(f"{role} {str(name)!r}" for role, name in columns.items())
    origin["prior"] = prior_in_words(getattr(posterior, "program", None))
    value = next(iter(comparison.values.values()))
    origin["draws"] = f"{len(value.draws):,}, key {key_in_words(key)}"
    origin["version"] = versions()
    return origin
