"""The page of a decision by subgroup: who should get what, how sure that is, and what would undo it."""

from html import escape

from bayes_mdp.decisions.outcomes import central_interval
from bayes_mdp.recommend.in_words import reward_in_words, value_in_words
from bayes_mdp.recommend.page import folded, gains_figure, html_page, pairs_table, versions
from bayes_mdp.recommend.subgroups import SubgroupDecision, SubgroupVerdict
from bayes_mdp.utils.messages import amount, amounts

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
        gains_figure(_gains(verdicts), f"gain, in units of {reward_in_words(decision.columns)}"),
        _verdicts(verdicts),
        f"<p>{TIPPING}</p>" if observed else "",
        "<h2>What it rests on</h2>",
        f"<p>A value is the {escape(value_in_words(decision.objective, decision.columns))}.</p>",
        pairs_table(
            {
                "log": f"{decision.source}, {decision.num_transitions:,} transitions",
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


def _gains(every: dict[str, SubgroupVerdict]) -> dict[str, tuple[float, tuple[float, float]]]:
    """Mean and 95 % interval of the gain of every policy in every subgroup."""
    gains = {}
    for who, verdict in every.items():
        for name, improvement in verdict.improvements.items():
            shown = f"{name}, {who}" if len(verdict.improvements) > 1 else who
            gains[shown] = (float(improvement.gain.mean()), central_interval(improvement.gain))
    return gains


def _verdicts(every: dict[str, SubgroupVerdict]) -> str:
    """A row for each subgroup and policy."""
    rows = ""
    for who, verdict in every.items():
        for name, improvement in verdict.improvements.items():
            answer = "recommended" if verdict.recommended == name else "no" if verdict.recommended else "abstain"
            factor = verdict.tipping.get(name)
            hidden = "-" if factor is None else "none" if factor == float("inf") else f"{max(factor, 1.0):.3g}"
            interval = amounts(*central_interval(improvement.gain))
            rows += (
                f'<tr><td class="words">{escape(who)}</td>\n<td>{verdict.share:.3g}</td>\n'
                f'<td class="words">{escape(name)}</td>\n<td>{amount(improvement.gain.mean(), 4)}</td>\n'
                f"<td>{interval}</td>\n<td>{improvement.prob:.3f}</td>\n<td>{answer}</td>\n<td>{hidden}</td></tr>"
            )
    titles = ("subgroup", "share", "policy", "gain", "95 % interval", "P(no worse)", "answer", "tipping point")
    head = "\n".join(f"<th>{title}</th>" for title in titles)
    return f"<table><tr>{head}</tr>\n{rows}</table>"
