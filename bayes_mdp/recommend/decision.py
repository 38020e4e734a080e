"""`Decision`: what `decide` recommends, and everything that it rests on."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from bayes_mdp.calibration.criticism.criticise import Criticism
from bayes_mdp.decisions.anchored_value import AnchoredValue
from bayes_mdp.decisions.choosing.choose import PolicyChoice
from bayes_mdp.decisions.choosing.safe_improvement import Improvement
from bayes_mdp.decisions.policy_comparison import PolicyComparison
from bayes_mdp.decisions.policy_evaluation import describe_start
from bayes_mdp.mdp import PolicyLike, StateActionSpace
from bayes_mdp.mdp.html_text import shown_as_html
from bayes_mdp.mdp.pages import see
from bayes_mdp.recommend.units import value_in_words

if TYPE_CHECKING:
    import pandas as pd

BASELINE, CHOSEN = "baseline", "chosen"
SHOWN = 5
FAR = 2.0
"""Standard deviations of their difference, taken as independent, from which on two gains are called far apart."""
ANCHORED = (
    "mean return of the log plus the gain under the posterior. How often their intervals hold the truth is an "
    "observation, no theorem"
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
        measure_next: pairs whose data would make the value surer; None: not known for this posterior.
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
    """

    candidate: Int[np.ndarray, "*H S"] | Float[np.ndarray, "*H S A"]
    baseline: PolicyLike
    reasons: tuple[str, ...]
    choice: PolicyChoice
    comparison: PolicyComparison
    improvement: Improvement
    criticism: Criticism | None
    differences: "pd.DataFrame"
    measure_next: "pd.DataFrame | None"
    source: str
    num_transitions: int
    split: float
    space: StateActionSpace
    belief: str
    anchored: Mapping[str, AnchoredValue] | None = None
    columns: Mapping[str, Hashable] = field(default_factory=dict)
    by_all: Float[np.ndarray, " num_draws"] | None = None

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
    def headline(self) -> str:
        """The answer in one sentence."""
        gain = self.comparison.difference(CHOSEN, BASELINE)
        low, high = gain.interval
        worth = f"{gain.mean:.4g}, 95 % interval [{low:.4g}, {high:.4g}]"
        if self.recommended:
            return f"change to the chosen policy: it gains {worth} by data that did not choose it"
        return f"keep the baseline: these data do not decide for the chosen policy (gain {worth})"

    @property
    def other_gain(self) -> str:
        """The gain by the whole log in one sentence, and whether it is far from the judged one; empty: not known."""
        if self.by_all is None:
            return ""
        low, high = np.quantile(self.by_all, (0.025, 0.975))
        told = (
            f"by the whole log, which also chose, the gain is {self.by_all.mean():.4g}, 95 % interval "
            f"[{low:.4g}, {high:.4g}]: too high if the prior is wrong"
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
        lines += ["", str(self.choice), "", str(self.comparison), f"  {self.improvement}"]
        lines += [] if self.by_all is None else [f"  {self.other_gain}"]
        if self.anchored is not None:
            lines += ["", f"Anchored values: {ANCHORED}."]
            lines += [f"  {name}: {value}" for name, value in self.anchored.items()]
        if self.criticism is not None:
            lines += ["", str(self.criticism)]
        if len(self.differences):
            lines += ["", f"Where it differs from the baseline ({len(self.differences)} states; the first {SHOWN}):"]
            lines += self.differences.head(SHOWN).to_string(index=False, float_format="{:.3g}".format).splitlines()
        if self.measure_next is not None:
            lines += ["", "What to measure next (pairs, and their shares of what is open):"]
            lines += self.measure_next.head(SHOWN).to_string(index=False, float_format="{:.3g}".format).splitlines()
        return "\n".join(lines)
