"""`Verdict`: whether a posterior may decide between policies, or the question is not decided by the data behind it."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float

from bayes_mdp.decisions.policy_evaluation import PolicyValue
from bayes_mdp.decisions.value_basis import PRIOR_SHARE, describe_parts, with_sign
from bayes_mdp.inference.untried_rewards import REMEDY
from bayes_mdp.utils.layout import Bullets, Section, as_html, as_text
from bayes_mdp.utils.messages import amount, count_of, see
from bayes_mdp.utils.typing import RealLike
from bayes_mdp.utils.validation import described

_ROUNDING = 1e-9
LEAST_UNTRIED = 0.01
"""Above this part of its time in untried pairs that look better than all others, a policy is not judged."""

PULL = 0.5
"""From so many standard deviations of a difference on, the pull of the prior of the rewards may be a reason."""
CLEAR = 0.975
"""It is none where the better policy would be better with this probability without it."""

ChosenBy = Literal["", "other data", "these data"]
"""By what the policies were chosen: it is not said; by data that do not judge them; by those that do, and a choice that
allows for it (`decide`)."""

Range = tuple[RealLike, RealLike]
"""The lowest and the highest value that a policy can have."""


class Verdict(eqx.Module):
    """Whether probabilities of being better may be acted on. It abstains; it never says which policy is better.

    Args:
        reasons: why not, one sentence each; empty: no reason was found.
        would_decide: for each reason, what would remove it.
        finding: what was found, with which probability and on which data, in words.
    """

    reasons: tuple[str, ...] = eqx.field(static=True)
    would_decide: tuple[str, ...] = eqx.field(static=True)
    finding: str = eqx.field(static=True, default="")

    @property
    def decided(self) -> bool:
        """Whether there is no reason to abstain."""
        return not self.reasons

    __str__ = as_text
    _repr_html_ = as_html

    def layout(self) -> Section:
        """One sentence, and one for each reason."""
        if self.decided:
            said = f"{self.finding}; " if self.finding else ""
            return Section(f"verdict: {said}no reason was found to distrust this {see('how-to/decide-from-a-log')}")
        reasons = zip(self.reasons, self.would_decide, strict=True)
        return Section(
            f"verdict: not decided by these data {see('how-to/decide-from-a-log')}",
            [Bullets([f"{reason}. What would decide: {cure}" for reason, cure in reasons])],
        )


def verdict_on(
    values: Mapping[str, PolicyValue],
    value_range: Range | None,
    chosen_by: ChosenBy,
    most_prior: float = PRIOR_SHARE,
) -> Verdict:
    """The verdict on policies under one posterior.

    Args:
        values: name -> value.
        value_range: what the user knows of every policy's value; None: nothing.
        chosen_by: what chose the policies.
        most_prior: share of the prior in rows or rewards above which there is no verdict.
    """
    # Reasons in the order in which they weigh: prior of rows, of rewards, untried pairs, impossible values, own
    # choice.
    findings: list[tuple[str, str]] = []
    for name, value in values.items():
        basis = value.basis
        # What the prior mostly decides, data have not shown.
        if basis is not None and basis.prior_share is not None and basis.prior_share > most_prior:
            kind = f" ({basis.prior_kind})" if basis.prior_kind else ""
            trust = (
                "evidence that the source of the prior fits here"
                if basis.informative
                else "a prior that is known to fit"
            )
            findings.append(
                (
                    f"{name}: the prior's share of the rows it uses is {basis.prior_share:.2g}, above {most_prior:g}"
                    f"{kind}",
                    f"data of {describe_parts(basis.weakest)}, or {trust}",
                )
            )
        # Rewards likewise.
        if basis is not None and basis.rewards is not None and basis.rewards.share > most_prior:
            share, weakest = basis.rewards.share, describe_parts(basis.rewards.weakest)
            findings.append(
                (
                    f"{name}: the prior's share of its rewards is {share:.2g}, above {most_prior:g}",
                    f"rewards of {weakest}, or a prior that is known to fit",
                )
            )
        # Pairs that look good because nobody tried them.
        if basis is not None and basis.untried is not None and basis.untried_share > LEAST_UNTRIED:
            findings.append(
                (f"{name}: {basis.untried_share:.2g} of its time in {basis.untried}", f"data of them; or {REMEDY}")
            )
        if value_range is not None:
            findings += _outside(name, value, value_range)
        # A policy that these data chose looks better in them than it is.
        if basis is not None and basis.own_optimum and not chosen_by:
            findings.append(
                (
                    f"{name}: it is the optimum of this posterior's own mean: if the same data chose it, they cannot "
                    "judge it",
                    f"if you fixed {name} before you saw these data: VerdictOptions(held_out=True); if they chose it, "
                    "data that did not (`decide` with `DecideOptions(split=...)`)",
                )
            )
    # Against the best on average: is it ahead only by the prior of the rewards?
    best = max(values, key=lambda name: values[name].mean)
    for name, value in values.items():
        pull = None if name == best else pull_of(best, values[best], name, value)
        if pull is not None:
            findings.append(pull)
    finding = _finding(values, value_range, chosen_by)
    return Verdict(tuple(reason for reason, _ in findings), tuple(cure for _, cure in findings), finding)


def _finding(values: Mapping[str, PolicyValue], value_range: Range | None, chosen_by: ChosenBy) -> str:
    """The best policy, its probability, and what that rests on."""
    names = list(values)
    # How often each is the best, ties shared.
    probs = shares_of_best(np.stack([values[name].draws for name in names], axis=-1))
    best = max(names, key=lambda name: values[name].mean)
    bases = [value.basis for value in values.values() if value.basis is not None]
    known = bases and np.isfinite(bases[0].observed)
    data_words = f" given {count_of(bases[0].observed, 'transition', '.10g')}" if known else ""
    source = f"in {len(values[best].draws)} draws of the posterior{data_words}"
    source += ", which did not choose the policies" if chosen_by == "other data" else ""
    # Equal policies have no order to report.
    if len(names) > 1 and all(np.array_equal(values[name].draws, values[best].draws) for name in names):
        parts = [f"all {len(names)} policies are worth the same {source}"]
    elif len(names) > 1:
        parts = [
            f"{best} is the best of {len(names)} policies with probability {probs[names.index(best)]:.3f} {source}"
        ]
    else:
        parts = [f"{best} is worth {amount(values[best].mean)} on average {source}"]
    # The prior's share is stated if it is known for all of them.
    shares = [basis.prior_share for basis in bases if basis.prior_share is not None]
    if len(shares) < len(names):
        parts.append("what the prior weighs in it is not known")
    else:
        parts.append(f"the prior's share of the rows in use is at most {max(shares):.2g}")
    paid = [basis.rewards for basis in bases if basis.rewards is not None]
    if shares and len(paid) < len(names):
        parts.append("what it weighs in the rewards is not known")
    elif any(of_reward.share for of_reward in paid):
        parts.append(f"that of the rewards is at most {max(of_reward.share for of_reward in paid):.2g}")
        if len(names) > 1:
            rival = max((name for name in names if name != best), key=lambda name: values[name].mean)
            # The pull on a difference is the difference of the pulls.
            pull = _pull(values[best]) - _pull(values[rival])
            parts.append(f"it moves the difference to {rival} by {with_sign(pull)}")
    if value_range is None:
        parts.append("no range of values was stated")
    else:
        low, high = (float(x) for x in value_range)
        parts.append(f"no value lies outside {amount(low, 6)} to {amount(high, 6)}")
    return "; ".join(parts)


class Doubt(NamedTuple):
    """A reason to abstain, and what would remove it."""

    reason: str
    cure: str


def pull_of(best: str, value: PolicyValue, rival: str, other: PolicyValue) -> Doubt | None:
    """Whether a policy is ahead of another one by the prior of the rewards; None: it is not, or that is not known.

    It is if this prior moves the difference in its favour by more than `PULL` standard deviations, and without it the
    policy would not be better with probability `CLEAR`. If prior and model are right and the prior weighs w of w + n
    observations in each pair, the pull is about sqrt(w / n) standard deviations of the difference, either way.

    Args:
        best, value: the better policy, and its value.
        rival, other: the other one, in the same draws.
    """
    gain, pull = value.draws - other.draws, _pull(value) - _pull(other)
    # In standard deviations of the difference; and it matters only if the answer would change without it.
    without = prob_better(gain - pull)
    if not (np.isfinite(pull) and pull > PULL * gain.std(ddof=1) and without < CLEAR):
        return None
    assert value.basis is not None and value.basis.rewards is not None
    assert other.basis is not None and other.basis.rewards is not None
    # Pairs that push the best up, and those that push the rival down.
    pairs = [*value.basis.rewards.moved] if value.basis.rewards.pull > 0 else []
    pairs += [*other.basis.rewards.moved] if other.basis.rewards.pull < 0 else []
    return Doubt(
        f"{best}: the prior of the rewards moves its difference to {rival} by {with_sign(pull)}, and it "
        f"is {amount(float(gain.mean()))}: with the mean rewards of the data alone it would be better with probability "
        f"{without:.3f}, not {prob_better(gain):.3f}",
        f"rewards of {describe_parts(pairs)}, or a prior mean where rewards lie {see('how-to/write-a-prior')}",
    )


def _pull(value: PolicyValue) -> float:
    """What the prior of the rewards adds to a value; nan: not known."""
    return np.nan if value.basis is None or value.basis.rewards is None else value.basis.rewards.pull


def prob_better(gain: Float[np.ndarray, " draws"]) -> float:
    """The share of the draws with a gain; a tie counts half."""
    return float(np.mean((gain > 0) + 0.5 * (gain == 0)))


def _outside(name: str, value: PolicyValue, value_range: Range) -> list[tuple[str, str]]:
    low, high = (float(x) for x in value_range)
    # Rounding and the numerical error of the values are no contradiction.
    slack = _ROUNDING * max(abs(low), abs(high), 1.0) + value.gap
    least, greatest = float(value.draws.min()), float(value.draws.max())
    if least >= low - slack and greatest <= high + slack:
        return []
    # The reward law may be the cause, and another one be ready.
    wide_law = None if value.basis is None else value.basis.wide_law
    keeps = wide_law or "a prior that keeps to the range: known rewards, a known support, an end that is certain"
    return [
        (
            f"{name}: its values go from {amount(least)} to {amount(greatest)}, outside the stated range "
            f"{amount(low, 6)} to {amount(high, 6)}",
            keeps,
        )
    ]


def check_value_range(value_range: Range | None) -> None:
    """Two finite numbers in order, or None.

    Raises:
        TypeError, ValueError: one sentence.
    """
    if value_range is None:
        return
    try:
        low, high = (float(x) for x in value_range)
    except (TypeError, ValueError):
        raise TypeError(f"value_range is {described(value_range)}, expected two numbers (lowest, highest)") from None
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise ValueError(f"value_range is ({low:g}, {high:g}), expected two finite numbers, the lower one first")


def shares_of_best(values: Float[np.ndarray, "draws D"]) -> Float[np.ndarray, " D"]:
    """In what share of the draws each is the best; equal values share a draw."""
    # Draws with several best ones are shared among them.
    best = values == values.max(-1, keepdims=True)
    return (best / best.sum(-1, keepdims=True)).mean(0)
