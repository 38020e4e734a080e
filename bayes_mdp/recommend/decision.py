"""`Candidate`, a policy that was judged against the one in use, and `Decision`, what `decide` recommends and why."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float

from bayes_mdp.calibration.criticism.criticise import Criticism
from bayes_mdp.decisions.behaviour import AnchoredValue
from bayes_mdp.decisions.choosing.budgets import ShadowPrice, Spending
from bayes_mdp.decisions.choosing.choose import PolicyChoice
from bayes_mdp.decisions.choosing.criteria import Improvement
from bayes_mdp.decisions.policy_comparison import PolicyComparison
from bayes_mdp.decisions.policy_evaluation import AS_DRAWN, describe_start
from bayes_mdp.inference.fitted import Fitted
from bayes_mdp.inference.pair_draws import LEVEL, central_interval
from bayes_mdp.mdp import PolicyLike, StateActionSpace
from bayes_mdp.recommend.consequences import Consequence, sentences
from bayes_mdp.recommend.in_words import value_in_words, with_text_labels
from bayes_mdp.utils.layout import Part, Section, Table, as_html, as_text
from bayes_mdp.utils.messages import amount, amounts, count_of, first_names
from bayes_mdp.utils.typing import RealLike

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Candidate:
    """A policy beside the baseline.

    Args:
        policy: actions [*H S] or their probabilities [*H S A], or a `Policy`.
        improvement: over the baseline, in draws of the posterior that judges.
        named: whether it was named beforehand; if not, the log chose it.
        spread: by which factor its interval is wider than that of the posterior: the larger of that of
            `choice_spread`, where the data that judge it chose it too, and of the drawn frequencies of the log, which
            are no part of its `improvement`; 1 for a policy that was named.
        prior_share: the prior's share of the rows that it uses; None: not known.
        fewest: transitions of the pair that it takes more often than the baseline and that the log has least; None: it
            takes none.
        doubts: why it is not recommended, but for the checks of the belief.
        consequences: of the checks that failed, for this policy.
        spending: name of a budget -> what the policy spends, in the draws that judge.
    """

    policy: PolicyLike
    improvement: Improvement
    named: bool = False
    spread: float = 1.0
    prior_share: float | None = None
    fewest: float | None = None
    doubts: tuple[str, ...] = ()
    consequences: tuple[Consequence, ...] = ()
    spending: Mapping[str, Spending] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        """Mean gain over the baseline, in units of the value."""
        return float(self.improvement.gain.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the gain: see `interval_of`."""
        return self.interval_of(LEVEL)

    def interval_of(self, level: float) -> tuple[float, float]:
        """The posterior's central interval of the gain, widened by `spread`; with those of the answers to failed checks
        of rows and of the choice (see `bayes_mdp.recommend.consequences`).

        Args:
            level: its probability, in (0, 1).
        """
        answers = [consequence.gain for consequence in self.consequences if consequence.widens]
        gains = [self.improvement.gain, *answers]
        ends = np.array([central_interval(gain, level) for gain in gains])
        means, sds = np.array([[gain.mean()] for gain in gains]), np.array([[gain.std()] for gain in gains])
        # The variance that `spread` adds is that of choice and frequencies: it is the same under every belief.
        added = (self.spread**2 - 1.0) * sds[0] ** 2
        factors = np.sqrt(1.0 + np.divide(added, sds**2, out=np.zeros_like(sds), where=sds > 0))
        # Widened about the mean.
        ends = means + factors * (ends - means)
        return float(ends[:, 0].min()), float(ends[:, 1].max())

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it is not recommended; empty: it is worth recommending."""
        return (*self.doubts, *sentences(consequence for consequence in self.consequences if consequence.stops))

    @property
    def worth(self) -> str:
        """Gain and interval in words."""
        return f"{amount(self.mean)}, 95 % interval {amounts(*self.interval)}"

    @property
    def support(self) -> str:
        """What its value rests on, in words."""
        parts = [] if self.fewest is None else [f"least tried pair seen {count_of(self.fewest, 'time', 'g')}"]
        parts += [] if self.prior_share is None else [f"prior's share {self.prior_share:.2g}"]
        return ", ".join(parts) or "not known"


BASELINE, CHOSEN = "baseline", "chosen"
MOST_ROWS = 5  # differences at most that are shown
SCREEN = 24
"""Lines of a terminal: where there is much to say, fewer differences are shown, but two."""
LEFT_OUT = "the checks of the belief were left out (checks=False)"
LEGEND = "lead: over the next action; time: of the chosen policy; transitions: with its action"
NOTHING = "no policy that the log supports is better on average"
MORE = "More: .table(), .comparison, .criticism, .choice, .anchored; bm.recommend.write_report"
WORTH = "What data are worth for the decision: bm.information.next_experiment"
ANCHORED = (
    "mean return of the log plus the gain under the posterior. How often their intervals hold the truth is an "
    "observation, no theorem"
)


class RarelyTried(NamedTuple):
    """The pairs in which a chosen policy may not differ from the baseline.

    Args:
        below: the number of transitions of the data that choose below which a pair is one of them.
        pairs: (state, action), by label.
        of: the number of all legal pairs.
    """

    below: int
    pairs: tuple[tuple[Hashable, Hashable], ...]
    of: int

    def __str__(self) -> str:
        """One sentence."""
        pairs = [f"{action} in {state}" for state, action in self.pairs]
        listed = f": {first_names(pairs)}" if pairs else ""
        return (
            f"left to the baseline: pairs that the data which choose have less than {count_of(self.below, 'time')} "
            f"({len(self.pairs)} of {self.of}{listed}; bootstrap_below={self.below}, --bootstrap-below); worth of "
            "trying them: bm.information.next_experiment"
        )


def lead_of(candidates: Mapping[str, Candidate]) -> str | None:
    """The candidate to speak of: of those without a reason against them the one that gains most, else the surest.

    Args:
        candidates: by name.
    """
    # Of those that nothing speaks against the largest gain; else the one that is surest.
    free = [name for name, candidate in candidates.items() if not candidate.reasons]
    if free:
        return max(free, key=lambda name: candidates[name].mean)
    return max(candidates, key=lambda name: (candidates[name].improvement.prob, candidates[name].mean), default=None)


@dataclass(frozen=True, eq=False)
class Decision:
    """Result of `decide`; `print` shows it, `write_report` makes a page of it.

    Args:
        candidates: name -> policy that was judged: "chosen", which the log chose, if it supports one, and those that
            were named.
        baseline: the policy in use.
        choice: how "chosen" was chosen.
        comparison: all policies and "baseline" under the posterior that judges.
        criticism: of the belief, by the whole log; None: left out.
        differences: of the candidate, see `bayes_mdp.recommend.decide`.
        variance_shares: pairs that the candidate's value is most uncertain about, and their shares of its variance
            (`next_experiment` says what data are worth for the decision); None: not known for this posterior.
        source: of the log.
        num_transitions: of the log.
        split: share of the episodes that chose and did not judge; 0: the whole log did both.
        space: of the policies.
        posterior: of the whole log.
        prior: in words.
        key: of all draws, in words.
        digest: SHA-256 of the log's file; empty: it was none.
        anchored: name -> anchored value (see `anchored_values`), no part of the rule; None: the log has no returns of
            whole episodes, or the baseline or the start was given.
        columns: role ("state", "action", "reward", ...) -> name of the log's column; empty: not known.
        by_all: Float64[num_draws], gain of "chosen" under the posterior of the whole log, in units of the value, no
            part of the rule; None: the whole log judged, or nothing was chosen.
        rarely_tried: the pairs that keep the baseline's probability because the data that choose have them too rarely;
            None: none had to.
        practice: what the baseline is, in words, where it is what the log did; else "".
        left_out: what of the log is no transition, one sentence each.
        baseline_spending: name of a budget -> what the baseline spends, in the draws that judge.
        tipping: the factor of unrecorded causes from which on `lead` may be worth no more than what the log did (see
            `bayes_mdp.decisions.tipping_point`); None: the log is no observation, or it is not known.
    """

    candidates: Mapping[str, Candidate]
    baseline: PolicyLike
    choice: PolicyChoice
    comparison: PolicyComparison
    criticism: Criticism | None
    differences: "pd.DataFrame"
    variance_shares: "pd.DataFrame | None"
    source: str
    num_transitions: int
    split: float
    space: StateActionSpace
    posterior: Fitted
    prior: str = ""
    key: str = ""
    digest: str = ""
    anchored: Mapping[str, AnchoredValue] | None = None
    columns: Mapping[str, Hashable] = field(default_factory=dict)
    by_all: Float[np.ndarray, " num_draws"] | None = None
    rarely_tried: RarelyTried | None = None
    practice: str = ""
    left_out: tuple[str, ...] = ()
    baseline_spending: Mapping[str, Spending] = field(default_factory=dict)
    tipping: float | None = None

    @property
    def shadow_prices(self) -> Mapping[str, ShadowPrice]:
        """Name of a budget -> what one more unit of it would add to the value, by the data that chose."""
        return self.choice.shadow_prices

    @property
    def budget_lines(self) -> tuple[str, ...]:
        """What is spent of each budget, by the policy in question and by the baseline, and its price, in words."""
        # Spending of the policy in question, then of practice.
        spent = {} if self.lead is None else self.candidates[self.lead].spending
        lines = [f"{self.lead}: {line}" for line in spent.values()]
        lines += [f"the baseline: {line}" for line in self.baseline_spending.values()]
        return (*lines, *(f"price of {line}" for line in self.shadow_prices.values()))

    @property
    def belief(self) -> str:
        """The posterior of the whole log, in words."""
        return str(self.posterior)

    @property
    def lead(self) -> str | None:
        """The candidate that is recommended; if none is, the surest one; None: there is no candidate."""
        return lead_of(self.candidates)

    @property
    def candidate(self) -> PolicyLike:
        """The policy of `lead`; the baseline where there is none."""
        return self.baseline if self.lead is None else self.candidates[self.lead].policy

    @property
    def improvement(self) -> Improvement | None:
        """That of `lead` over the baseline."""
        return None if self.lead is None else self.candidates[self.lead].improvement

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why `lead` is not recommended; empty: it is."""
        return (NOTHING,) if self.lead is None else self.candidates[self.lead].reasons

    @property
    def recommended(self) -> bool:
        """Whether a candidate is recommended; if not, the baseline is."""
        return not self.reasons

    @property
    def policy(self) -> PolicyLike:
        """The recommended policy: that of `lead`, or the baseline."""
        return self.candidate if self.recommended else self.baseline

    @property
    def unit(self) -> str:
        """What a value is, in words, by the name of the reward column."""
        return value_in_words(self.comparison.values[BASELINE].objective, self.columns)

    @property
    def costs(self) -> bool:
        """Whether the rewards are minus the costs of a column."""
        return "cost" in self.columns

    @property
    def verb(self) -> str:
        """What a better policy does."""
        return "saves" if self.costs else "gains"

    @property
    def plainly(self) -> str:
        """The answer for who does not want figures of probability, in two sentences."""
        # Costs are minus values.
        baseline = self.comparison.values[BASELINE].mean
        today = f"costs {amount(-baseline)}" if self.costs else f"is worth {amount(baseline)}"
        first = f"Today's practice {today} on average ({self.unit})."
        if self.lead is None:
            return f"{first} The log supports no policy that would do better."
        candidate = self.candidates[self.lead]
        low, high = candidate.interval
        name = "The policy that the log supports best" if self.lead == CHOSEN else f"Policy {self.lead!r}"
        verb = self.verb.removesuffix("s") if self.costs else "add"
        gain = (
            f"would {verb} {amount(candidate.mean)}, by this belief with 95 % between {amount(low)} and {amount(high)}"
        )
        advice = "change to it" if self.recommended else "keep today's practice for now, for the reasons below"
        return f"{first} {name} {gain}: {advice}."

    @property
    def headline(self) -> str:
        """The answer in one sentence."""
        lead = self.lead
        if lead is None:
            return f"keep the baseline: {NOTHING}"
        candidate = self.candidates[lead]
        name = "the chosen policy" if lead == CHOSEN else repr(lead)
        if self.recommended:
            return f"change to {name}: it {self.verb} {candidate.worth}"
        improvement = candidate.improvement
        # The first reason that applies, from the most to the least basic.
        if not improvement.accepted:
            worse = f"{name} {self.verb} {candidate.worth}, and is no worse with probability {improvement.prob:.3f}"
            required = f"{improvement.confidence:.3g} was asked for"
            return f"keep the baseline: {worse}; {required}"
        if LEFT_OUT in candidate.doubts:
            return f"keep the baseline: {LEFT_OUT}, without which nothing is recommended (gain {candidate.worth})"
        if candidate.doubts:
            return f"keep the baseline: these data do not decide for {name} (gain {candidate.worth})"
        failed = sorted({consequence.check for consequence in candidate.consequences if consequence.stops})
        return (
            f"keep the baseline until this is resolved: {name} {self.verb} {candidate.worth}, but the answer changes "
            f"under the belief that a check points to: {', '.join(failed)}"
        )

    @property
    def uncertain(self) -> str:
        """What `variance_shares` is of, in words."""
        named = "baseline" if self.lead is None else "chosen policy" if self.lead == CHOSEN else repr(self.lead)
        return f"What the value of the {named} is most uncertain about"

    @property
    def notes(self) -> tuple[str, ...]:
        """What one should know of the answer: the widened interval, checks that failed and change nothing."""
        notes = [f"of the log: {'; '.join(self.left_out)}"] if self.left_out else []
        drawn = self.comparison.values[BASELINE].by_frequencies is not None
        notes += [f"the baseline is {self.practice}" + (f"; {AS_DRAWN}" if drawn else "")] if self.practice else []
        notes += [] if self.tipping is None or not self.recommended else [hidden_causes(self.tipping)]
        chosen = self.candidates.get(CHOSEN)
        if chosen is not None and not self.split:
            why = "for choice and frequencies" if drawn else "as the same data chose it"
            notes.append(f"{CHOSEN!r}: interval {chosen.spread:.2g} times the posterior's {why} (a heuristic)")
        elif self.split:
            wider = "" if chosen is None else f"; interval {chosen.spread:.2g} times the posterior's for frequencies"
            notes.append(f"{self.split:g} of the log's episodes chose {CHOSEN!r}, the others judged{wider * drawn}")
        weighed = () if self.lead is None else self.candidates[self.lead].consequences
        if any(each.widens for candidate in self.candidates.values() for each in candidate.consequences):
            notes.append("intervals hold what the answers to failed checks of rows or choice say, too")
        notes += sentences(consequence for consequence in weighed if not consequence.stops)
        if self.criticism is not None:
            silent = [name for name in self.criticism.findings if name not in self.criticism.alarms]
            notes.append(f"checks passed: {', '.join(silent) or 'none'}")
            named = {consequence.check for consequence in weighed}
            notes += [
                f"{name} (failed): {self.criticism.said(name)}" for name in self.criticism.alarms if name not in named
            ]
        return tuple(notes)

    def table(self) -> "pd.DataFrame":
        """A row for each candidate: `gain`, `low`, `high` (95 %), `prob` (no worse), `support`, `answer`."""
        import pandas as pd

        rows = [
            {
                "policy": name,
                "gain": candidate.mean,
                "low": candidate.interval[0],
                "high": candidate.interval[1],
                "prob": candidate.improvement.prob,
                "support": candidate.support,
                "answer": "recommended"
                if name == self.lead and self.recommended
                else "kept back"
                if candidate.reasons
                else "as sure",
            }
            for name, candidate in self.candidates.items()
        ]
        columns = ["policy", "gain", "low", "high", "prob", "support", "answer"]
        return pd.DataFrame(rows, columns=columns).sort_values("gain", ascending=False, ignore_index=True)

    __str__ = as_text
    _repr_html_ = as_html

    def layout(self) -> Section:
        """The answer and what it rests on; as text, on one screen."""
        baseline = self.comparison.values[BASELINE]
        low, high = baseline.interval
        costs, worth = f"costs {amount(-baseline.mean)}", f"is worth {amount(baseline.mean)}"
        parts: list[Part] = [
            *(f"because {reason}" for reason in self.reasons),
            f"a value is the {self.unit}; {describe_start(baseline)}",
            f"the baseline {costs}, 95 % interval {amounts(-high, -low)}"
            if self.costs
            else f"the baseline {worth}, 95 % interval {amounts(low, high)}",
        ]
        parts += [self._candidate_table()] if self.candidates else []
        parts += [f"budget: {line}" for line in self.budget_lines]
        parts += [*self.notes, *(f"prior: {line}" for line in self.prior.splitlines())]
        parts += [str(self.rarely_tried)] if self.rarely_tried is not None and self.rarely_tried.pairs else []
        title = f"Decision from {self.source}, {count_of(self.num_transitions, 'transition', ',')}: {self.headline}"
        if len(self.differences):
            # Room for the title of the table, its head, what it means, and the last line.
            shown = min(max(SCREEN - 4 - len(Section(title, parts).lines("")), 2), MOST_ROWS)
            first = f"; the first {shown}" if len(self.differences) > shown else ""
            states = f"{count_of(len(self.differences), 'state')}{first}"
            parts.append(
                Section(
                    f"Where {self.lead} differs from the baseline ({states}):",
                    [_table(self.differences.head(shown)), LEGEND],
                )
            )
        return Section(title, [*parts, MORE])

    def _candidate_table(self) -> Table:
        """A row for each candidate, the largest gain first."""
        rows = []
        # The largest gain first.
        for name, candidate in sorted(self.candidates.items(), key=lambda item: -item[1].mean):
            tried, share = candidate.fewest, candidate.prior_share
            rest = "-" if tried is None else f"{tried:g}", "-" if share is None else f"{share:.2g}"
            rows.append(
                (name, amount(candidate.mean), amounts(*candidate.interval), f"{candidate.improvement.prob:.3f}", *rest)
            )
        gain = self.verb.removesuffix("s")
        return Table(("policy", gain, "95 % interval", "P(no worse)", "least tried", "prior's share"), rows)


def hidden_causes(factor: float) -> str:
    """How strong a cause that the log does not record would have to be to undo a recommendation, in one sentence.

    Args:
        factor: as `bayes_mdp.decisions.tipping_point` returns it.
    """
    known = "rewards are taken as they are"
    # An infinite factor: next states do not matter.
    if factor == float("inf"):
        return f"no unrecorded difference between those treated and the others undoes it by next states alone ({known})"
    strength = f"by a factor of {factor:.3g}" if factor > 1.0 else "at all"
    return f"holds unless those treated differ from the others, in ways not recorded, {strength} (odds; {known})"


def _table(frame: "pd.DataFrame") -> Table:
    """The frame's cells as text, numbers with three digits."""
    from pandas.api.types import is_numeric_dtype

    shown = with_text_labels(frame.rename(columns={"count": "transitions"}))
    columns = [
        [str(x) if not isinstance(x, float) else "-" if np.isnan(x) else short(x) for x in shown[name]]
        for name in shown.columns
    ]
    words = [i for i, name in enumerate(shown.columns) if not is_numeric_dtype(shown[name])]
    return Table(list(map(str, shown.columns)), list(zip(*columns, strict=True)), words)


def short(number: RealLike) -> str:
    """Three digits, for tables.

    Args:
        number: of a cell.
    """
    return amount(number, 3)
