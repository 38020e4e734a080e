"""`Decision`: what `decide` recommends, and everything that it rests on."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from bayes_mdp.calibration.criticism.criticise import Criticism
from bayes_mdp.decisions.anchored_value import AnchoredValue
from bayes_mdp.decisions.choosing.choose import PolicyChoice
from bayes_mdp.decisions.choosing.safe_improvement import Improvement
from bayes_mdp.decisions.policy_comparison import PolicyComparison
from bayes_mdp.decisions.policy_evaluation import describe_start
from bayes_mdp.mdp import PolicyLike, StateActionSpace
from bayes_mdp.recommend.units import value_in_words
from bayes_mdp.utils.amounts import amount, amounts
from bayes_mdp.utils.html_text import shown_as_html
from bayes_mdp.utils.pages import see
from bayes_mdp.utils.typing import RealLike

if TYPE_CHECKING:
    import pandas as pd

BASELINE, CHOSEN = "baseline", "chosen"
SHOWN = 5
FAR = 2.0
"""Standard deviations of their difference, taken as independent, from which on two gains are called far apart."""
LEFT_OUT = "the checks of the belief were left out (checks=False)"
LEGEND = (
    "today, today_prob: the baseline's likeliest action, and its probability",
    "next, lead: the next best action, and by how much the chosen one is better there, by the posterior that judges",
    "time: share of the chosen policy's; transitions: of the part that judges, with the chosen action",
)
WORTH = "What data are worth for the decision: bm.next_experiment"
ANCHORED = (
    "mean return of the log plus the gain under the posterior. How often their intervals hold the truth is an "
    "observation, no theorem"
)


class RarelyTried(NamedTuple):
    """The pairs in which a candidate may not differ from the baseline.

    Args:
        below: the number of transitions of the part that chooses below which a pair is one of them.
        pairs: how many are.
        of: the number of all legal pairs.
    """

    below: int
    pairs: int
    of: int

    def __str__(self) -> str:
        """One sentence."""
        return (
            f"pairs seen less than {self.below} times by the data that choose keep the baseline's probability "
            f"({self.pairs} of {self.of}; PolicyLimits(bootstrap_below={self.below}), in the shell --bootstrap-below)"
        )


@dataclass(frozen=True, eq=False)
class Decision:
    """Result of `decide`; `print` shows it, `write_report` makes a page of it.

    Args:
        candidate: Int64[*H S] or Float64[*H S A], the policy that was chosen from the first part of the log.
        baseline: the policy in use.
        reasons: why the candidate is not recommended; empty: it is.
        choice: how it was chosen.
        comparison: both policies ("baseline", "chosen") under the posterior of the second part.
        improvement: the candidate against the baseline, in the same draws.
        criticism: of the belief, by the whole log; None: left out.
        differences: see `bayes_mdp.recommend.differences`.
        variance_shares: pairs that the candidate's value is most uncertain about, and their shares of its variance
            (`next_experiment` says what data are worth for the decision); None: not known for this posterior.
        source: of the log.
        num_transitions: of the log.
        split: share of the episodes that chose.
        space: of the policies.
        belief: the posterior of the whole log, in words.
        anchored: "baseline", "chosen" -> anchored value (see `anchored_values`): beside `comparison`, no part of the
            rule; None: the log has no returns of whole episodes, or the baseline or the start was given.
        columns: role ("state", "action", "reward", ...) -> name of the log's column; empty: not known.
        by_all: Float64[num_draws], gain of the candidate under the posterior of the whole log, in units of the value:
            beside `improvement`, no part of the rule; None: the whole log judged.
        rarely_tried: the pairs that keep the baseline's probability because the data that choose have them too rarely;
            None: none had to.
    """

    candidate: Int[np.ndarray, "*H S"] | Float[np.ndarray, "*H S A"]
    baseline: PolicyLike
    reasons: tuple[str, ...]
    choice: PolicyChoice
    comparison: PolicyComparison
    improvement: Improvement
    criticism: Criticism | None
    differences: "pd.DataFrame"
    variance_shares: "pd.DataFrame | None"
    source: str
    num_transitions: int
    split: float
    space: StateActionSpace
    belief: str
    anchored: Mapping[str, AnchoredValue] | None = None
    columns: Mapping[str, Hashable] = field(default_factory=dict)
    by_all: Float[np.ndarray, " num_draws"] | None = None
    rarely_tried: RarelyTried | None = None

    @property
    def recommended(self) -> bool:
        """Whether the candidate is recommended; if not, the baseline is."""
        return not self.reasons

    @property
    def policy(self) -> PolicyLike:
        """The recommended policy: the candidate, or the baseline."""
        return self.candidate if self.recommended else self.baseline

    @property
    def unit(self) -> str:
        """What a value is, in words, by the name of the reward column."""
        return value_in_words(self.comparison.values[CHOSEN].objective, self.columns)

    @property
    def unchanged(self) -> bool:
        """Whether no better policy was found: the candidate is the baseline."""
        return self.choice.abstained and np.array_equal(np.asarray(self.candidate), np.asarray(self.choice.policy))

    @property
    def headline(self) -> str:
        """The answer in one sentence."""
        if self.unchanged:
            return "keep the baseline: no better policy was found"
        gain = self.comparison.difference(CHOSEN, BASELINE)
        worth = f"{amount(gain.mean)}, 95 % interval {amounts(*gain.interval)}"
        if self.recommended:
            return f"change to the chosen policy: it gains {worth} by data that did not choose it"
        if not self.comparison.verdict.decided or not self.improvement.accepted:
            return f"keep the baseline: these data do not decide for the chosen policy (gain {worth})"
        if self.criticism is None:
            return f"keep the baseline: {LEFT_OUT}, without which nothing is recommended (gain {worth})"
        failed = self.criticism.alarms
        checks = "a check of the belief failed" if len(failed) == 1 else f"{len(failed)} checks of the belief failed"
        slack = f" by more than {amount(self.improvement.slack)}" if self.improvement.slack else ""
        return (
            f"keep the baseline until this is resolved: the gain is {worth}, and P(no worse than the baseline{slack}) "
            f"is {self.improvement.prob:.3f}, as sure as was asked for, but {checks}: {', '.join(failed)}"
        )

    @property
    def uncertain(self) -> str:
        """What `variance_shares` is of, in words."""
        policy = "baseline" if self.unchanged else "chosen policy"
        return f"What the value of the {policy} is most uncertain about"

    @property
    def other_gain(self) -> str:
        """The gain by the whole log in one sentence, and whether it is far from the judged one; empty: not known."""
        if self.by_all is None:
            return ""
        low, high = np.quantile(self.by_all, (0.025, 0.975))
        told = (
            f"by the whole log, which also chose, the gain is {amount(self.by_all.mean())}, 95 % interval "
            f"{amounts(low, high)}: too high if the prior is wrong"
        )
        judged = self.improvement.gain
        apart = abs(self.by_all.mean() - judged.mean())
        if apart > FAR * np.hypot(self.by_all.std(ddof=1), judged.std(ddof=1)):
            told += f". This is far from the judgement {see('how-to/decide-from-a-log')}"
        return told

    _repr_html_ = shown_as_html

    def __str__(self) -> str:
        """The answer, the reasons, and the parts."""
        whole = "the whole log chose and judged" if not self.split else f"{self.split:g} of its episodes chose"
        lines = [f"Decision from {self.source}, {self.num_transitions:,} transitions ({whole}): {self.headline}"]
        lines += [f"  because {reason}" for reason in self.reasons]
        lines.append(f"  a value is the {self.unit}; {describe_start(self.comparison.values[CHOSEN])}")
        lines += [] if self.rarely_tried is None else [f"  {self.rarely_tried}"]
        if self.unchanged:
            lines += ["", "The baseline, by the posterior that judges:"]
            lines += [f"  {line}" for line in str(self.comparison.values[BASELINE]).splitlines()]
        else:
            lines += ["", str(self.choice), "", str(self.comparison), f"  {self.improvement}"]
            lines += [] if self.by_all is None else [f"  {self.other_gain}"]
        if self.anchored is not None:
            shown = [BASELINE] if self.unchanged else [*self.anchored]
            lines += ["", f"Anchored values: {ANCHORED}."]
            lines += [f"  {name}: {self.anchored[name]}" for name in shown]
        if self.criticism is not None:
            lines += ["", str(self.criticism)]
        if len(self.differences):
            first = f"; the first {SHOWN}" if len(self.differences) > SHOWN else ""
            lines += [
                "",
                f"Where it differs from the baseline ({_states(len(self.differences))}{first}):",
                *_rows(self.differences),
                *(f"  {line}" for line in LEGEND),
            ]
        if self.variance_shares is not None:
            lines += ["", f"{self.uncertain} (pairs, and their shares of its variance):", *_rows(self.variance_shares)]
            lines += [f"  {WORTH} {see('how-to/value-of-information')}"]
        return "\n".join(lines)


def _states(number: int) -> str:
    return f"{number} state{'' if number == 1 else 's'}"


def _rows(frame: "pd.DataFrame") -> list[str]:
    """The first rows, line by line."""
    shown = frame.head(SHOWN).rename(columns={"count": "transitions"})
    return shown.to_string(index=False, float_format=short, na_rep="-").splitlines()


def short(number: RealLike) -> str:
    """Three digits, for tables.

    Args:
        number: of a cell.
    """
    return amount(number, 3)
