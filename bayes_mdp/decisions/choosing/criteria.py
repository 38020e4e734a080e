"""Criteria of choice: one number for the values of a policy in many equally likely MDPs.

All of them but `Percentile`, `ProbabilityOptimal` and `Robust` are a mixture of the mean and of the mean of the lowest
values (`TailMean`), of the values themselves or of the regrets. Every `score` is to be maximised.

`Improvement` says whether a policy is better than a baseline with a stated probability.

A policy that was searched for on some draws looks better there than it is. It is judged on fresh draws: of n of them k
are at least as good as the baseline, and the probability that the posterior gives to this is at least the lower
Clopper-Pearson bound of k in n. The bound fails with probability `MONTE_CARLO_ERROR`, so a recommendation that does not
have the promised posterior probability is made no more often than that.
"""

import math
from typing import ClassVar, TypeAlias

import equinox as eqx
import numpy as np
from jaxtyping import Float
from scipy.special import betaincinv

from bayes_mdp.utils.messages import amount
from bayes_mdp.utils.modules import Module
from bayes_mdp.utils.validation import check_name, check_number, described, require

Values = Float[np.ndarray, " W"]

_ROUNDING = 1e-9


class TailMean(Module):
    """weight * mean + (1 - weight) * CVaR at `level`, of the values or, with `regret`, of minus the regrets.

    The form that the criteria of this file have in common; `CVaR`, `SoftRobust` and the rest are its names.
    CVaR at level a (Rockafellar and Uryasev 2000) is the mean of the lowest share a of the values; at 0 the lowest one.
    """

    weight: float
    level: float
    regret: bool

    def score(self, values: Values, best: Values | None = None) -> float:
        """The criterion, in the unit of `values`.

        Args:
            values: of the policy in each MDP.
            best: the optimal values there, for regrets.
        """
        # Every TailMean is linear in the sorted values: the score is its supergradient times the values.
        return float(self.gradient(values, best) @ self._gains(values, best))

    def gradient(self, values: Values, best: Values | None = None) -> Values:
        """A supergradient by the values: weights of the MDPs, zero or greater, that sum to one."""
        # The mean: equal weights.
        if self.weight == 1.0:
            return np.full(len(values), 1.0 / len(values))
        gains = self._gains(values, best)
        order = np.argsort(gains, kind="stable")
        # The lowest share `level` of the draws; the draw on its edge counts in part.
        # At least one draw: CVaR at level 0 is the minimum.
        share = np.clip(max(self.level * len(gains), 1.0) - np.arange(len(gains)), 0.0, 1.0)
        tail = np.empty(len(gains))
        tail[order] = share / share.sum()
        # weight of the mean, the rest on the tail.
        return self.weight / len(gains) + (1.0 - self.weight) * tail

    def _gains(self, values: Values, best: Values | None) -> Values:
        if not self.regret:
            return values
        assert best is not None
        # Minus the regret: the largest regrets are the lowest gains.
        return values - best


def _check_level(level: float) -> None:
    check_number("level", level, lambda x: (x > 0) & (x <= 1), "a number greater than 0, at most 1")


class ExpectedValue(eqx.Module):
    """The mean of the values: the value of the policy to someone who is indifferent to risk."""

    name: ClassVar[str] = "mean"

    def __str__(self) -> str:
        return "expected value"

    @property
    def form(self) -> TailMean:
        """weight 1 on the mean."""
        return TailMean(1.0, 1.0, False)


class CVaR(eqx.Module):
    """Conditional value at risk: the mean of the lowest share `level` of the values; 1 is `ExpectedValue`.

    Raises:
        ValueError: a level outside (0, 1].
        TypeError: no number.
    """

    level: float
    name: ClassVar[str] = "cvar"

    def __check_init__(self) -> None:
        _check_level(self.level)

    def __str__(self) -> str:
        return f"mean of the lowest {float(self.level):g} of the values (CVaR)"

    @property
    def form(self) -> TailMean:
        """All weight on the tail."""
        return TailMean(0.0, float(self.level), False)


class SoftRobust(eqx.Module):
    """weight * expected value + (1 - weight) * CVaR at `level`.

    Args:
        level: share of the worst draws that CVaR averages; in (0, 1].
        weight: of the expected value, from 0 to 1.

    Raises:
        ValueError: a level outside (0, 1], a weight outside [0, 1].
        TypeError: no number.
    """

    level: float
    weight: float = 0.5
    name: ClassVar[str] = "soft-robust"

    def __check_init__(self) -> None:
        _check_level(self.level)
        check_number("weight", self.weight, lambda x: (x >= 0) & (x <= 1), "a number from 0 to 1")

    def __str__(self) -> str:
        weight = float(self.weight)
        return f"{weight:g} expected value + {1 - weight:g} CVaR at {float(self.level):g}"

    @property
    def form(self) -> TailMean:
        """The mixture."""
        return TailMean(float(self.weight), float(self.level), False)


class Regret(eqx.Module):
    """Regret, as a criterion: minus the mean of its largest share `level` over the draws; 0: minus the largest.

    The regret in an MDP is the value of its own optimal policy minus that of the policy. At level 1 this chooses as
    `ExpectedValue` does.

    Raises:
        ValueError: a level outside [0, 1].
        TypeError: no number.
    """

    level: float = 0.0
    name: ClassVar[str] = "regret"

    def __check_init__(self) -> None:
        check_number("level", self.level, lambda x: (x >= 0) & (x <= 1), "a number from 0 to 1")

    def __str__(self) -> str:
        level = float(self.level)
        return f"minus the mean of the largest {level:g} of the regrets" if level else "minus the largest regret"

    @property
    def form(self) -> TailMean:
        """The lowest of minus the regrets."""
        return TailMean(0.0, float(self.level), True)


class Percentile(Module):
    """The value that is exceeded with probability 1 - level: sup {y: P(value >= y) >= 1 - level} (Delage, Mannor 2010).

    Args:
        level: 1 minus the probability with which the value is exceeded; in (0, 1].

    Raises:
        ValueError: a level outside (0, 1].
        TypeError: no number.
    """

    level: float
    name: ClassVar[str] = "percentile"

    def __check_init__(self) -> None:
        _check_level(self.level)

    def __str__(self) -> str:
        return f"percentile at {float(self.level):g}"

    def rank(self, num: int) -> int:
        """How many of the `num` largest values must reach it: the percentile is the smallest of these."""
        # _ROUNDING: 0.9 * 10 is a little more than 9 in floating point.
        return max(1, math.ceil((1.0 - float(self.level)) * num - _ROUNDING))

    def score(self, values: Values, best: Values | None = None) -> float:
        """The criterion, in the unit of `values`.

        Args:
            values: of the policy in each draw.
            best: not used.
        """
        # The k-th largest value is the supremum that is exceeded with the probability asked for.
        return float(np.sort(values)[-self.rank(len(values))])

    def gradient(self, values: Values, best: Values | None = None) -> Values:
        """All weight on the draw at the percentile.

        Args:
            values, best: as of `score`.
        """
        # The draw at the percentile alone moves it.
        ranked_draw = np.argsort(values, kind="stable")[-self.rank(len(values))]
        return np.eye(len(values))[ranked_draw]


class ProbabilityOptimal(Module):
    """The probability that the policy's regret is at most `tolerance` (in units of the value).

    Raises:
        ValueError: a negative tolerance.
        TypeError: no number.
    """

    tolerance: float = 0.0
    name: ClassVar[str] = "probability-optimal"

    def __check_init__(self) -> None:
        check_number("tolerance", self.tolerance, lambda x: (x >= 0) & np.isfinite(x), "a number, zero or greater")

    def __str__(self) -> str:
        return f"probability that the regret is at most {float(self.tolerance):g}"

    def score(self, values: Values, best: Values | None = None) -> float:
        """The criterion; values that are equal to rounding count as equal.

        Args:
            values: of the policy in each draw.
            best: the optimal value in each draw; needed.
        """
        assert best is not None
        # Values are equal up to rounding relative to the optimum.
        slack = float(self.tolerance) + _ROUNDING * np.maximum(np.abs(best), 1.0)
        return float(np.mean(best - values <= slack))

    def gradient(self, values: Values, best: Values | None = None) -> Values:
        """A direction to search in, no gradient (there is none): that of the mean.

        Args:
            values, best: as of `score`.
        """
        return np.full(len(values), 1.0 / len(values))


class Robust(eqx.Module):
    """The worst value over a credible set of MDPs that has the probability `confidence`, a product over pairs.

    The set: every row within an L1 distance of its posterior mean, every mean reward within an interval around its own
    (Iyengar 2005; Nilim and El Ghaoui 2005). Distances are in proportion to the mean distances of the draws; one factor
    for all pairs is such that the share `confidence` of the draws lies inside as a whole (not pair by pair).

    Args:
        confidence: posterior probability of the set, in (0, 1).
        radius: Float[S A], L1 distances of one's own, in place of those from the draws; rewards are then at their
            means, and nothing is claimed of the set's probability.

    Raises:
        ValueError: a confidence outside (0, 1), a radius that is negative or no number.
        TypeError: no number.
    """

    confidence: float = 0.95
    radius: Float[np.ndarray, "S A"] | None = eqx.field(
        default=None, converter=lambda x: None if x is None else np.asarray(x, np.float64)
    )
    name: ClassVar[str] = "robust"

    def __check_init__(self) -> None:
        check_number("confidence", self.confidence, lambda x: (x > 0) & (x < 1), "a number between 0 and 1")
        if self.radius is not None:
            require(~(self.radius >= 0), "radius", self.radius, "a number, zero or greater")

    def __str__(self) -> str:
        if self.radius is not None:
            return "worst value over the given L1 distances"
        return f"worst value over a credible set of probability {float(self.confidence):g}"


Criterion: TypeAlias = ExpectedValue | CVaR | SoftRobust | Regret | Percentile | ProbabilityOptimal | Robust
"""How the values of a policy in many MDPs become one number."""

Scored: TypeAlias = TailMean | Percentile | ProbabilityOptimal
"""Criteria of the values in the draws."""

_KINDS = (ExpectedValue, CVaR, SoftRobust, Regret, Percentile, ProbabilityOptimal, Robust)
_BY_NAME = {kind.name: kind for kind in _KINDS}


def scored(criterion: ExpectedValue | CVaR | SoftRobust | Regret | Percentile | ProbabilityOptimal) -> Scored:
    """The form of a criterion that scores values."""
    return criterion if isinstance(criterion, (Percentile, ProbabilityOptimal)) else criterion.form


def needs_best(criterion: Scored) -> bool:
    """Whether it compares with the optimal value of each MDP."""
    return isinstance(criterion, ProbabilityOptimal) or (isinstance(criterion, TailMean) and criterion.regret)


def tail_share(criterion: Criterion) -> float:
    """The share of the draws that the criterion rests on."""
    if isinstance(criterion, Robust):
        return 1.0 if criterion.radius is not None else max(1.0 - float(criterion.confidence), 0.0)
    if isinstance(criterion, (CVaR, SoftRobust, Percentile)):
        return float(criterion.level)
    # Level 0 is the largest regret, which all draws decide.
    return float(criterion.level) or 1.0 if isinstance(criterion, Regret) else 1.0


def read_criterion(criterion: "Criterion | str") -> Criterion:
    """A criterion, or its name with its numbers: "mean", "cvar:0.1", "soft-robust:0.1:0.5", "robust:0.95".

    Raises:
        TypeError: neither. ValueError: an unknown name, numbers that do not fit.
    """
    if isinstance(criterion, _KINDS):
        return criterion
    if not isinstance(criterion, str):
        raise TypeError(f"criterion is {described(criterion)}, expected a criterion or its name, such as 'cvar:0.1'")
    name, *numbers = criterion.split(":")
    check_name("criterion", name, _BY_NAME)
    try:
        # A name and its numbers, split at colons.
        return _BY_NAME[name](*map(float, numbers))
    # A wrong number of numbers is a TypeError of the constructor.
    except TypeError:
        raise ValueError(f"criterion is {criterion!r}, expected {_usage(name)}") from None
    except ValueError as error:
        if "could not convert" in str(error):
            raise ValueError(f"criterion is {criterion!r}, expected {_usage(name)}") from None
        raise


def _usage(name: str) -> str:
    numbers = {"mean": "", "soft-robust": ":LEVEL or soft-robust:LEVEL:WEIGHT", "robust": ":CONFIDENCE"}
    if name == "probability-optimal":
        return "probability-optimal or probability-optimal:TOLERANCE"
    return name + numbers.get(name, ":LEVEL")


MONTE_CARLO_ERROR = 0.01


class Improvement(eqx.Module):
    """A candidate against the baseline, in draws that were not used to choose it.

    Args:
        gain: Float64[num_draws], value of the candidate minus that of the baseline, draw by draw.
        slack: how much worse than the baseline counts as no worse, in units of the value.
        confidence: what the probability of P(gain >= -slack) must be.
        looks: how often it may be asked whether it is, with more draws each time: they share the error.
        worth: how many independent draws a draw is worth, in (0, 1]: fewer than one where chains made them.
    """

    gain: Float[np.ndarray, " num_draws"]
    slack: float
    confidence: float
    looks: int = 1
    worth: float = 1.0

    @property
    def prob(self) -> float:
        """Share of the draws in which the candidate is no worse."""
        return float(np.mean(self.gain >= -self.slack))

    @property
    def prob_at_least(self) -> float:
        """Lower bound on the posterior probability, from the number of draws (one-sided, 99 %)."""
        return self._share_at_least(int(np.sum(self.gain >= -self.slack)))

    def _share_at_least(self, count: int) -> float:
        """The lower Clopper-Pearson bound of so many of the draws, as of fewer where these are autocorrelated."""
        # Looks share the error (Bonferroni).
        error = MONTE_CARLO_ERROR / self.looks
        missed = len(self.gain) - count
        # Clopper-Pearson with effective numbers of hits and misses; no hit shows nothing.
        return float(betaincinv(self.worth * count, self.worth * missed + 1, error)) if count else 0.0

    @property
    def settled(self) -> bool:
        """Whether more draws would hardly change the answer."""
        # Accepted, or so low that more draws would not make it: by the upper bound on the probability, likewise.
        return self.accepted or 1.0 - self._share_at_least(int(np.sum(self.gain < -self.slack))) < self.confidence

    @property
    def accepted(self) -> bool:
        """Whether that bound reaches the confidence."""
        return self.prob_at_least >= self.confidence

    def __str__(self) -> str:
        """One sentence."""
        slack = f" by more than {amount(self.slack)}" if self.slack else ""
        verdict = "reached" if self.accepted else "not reached"
        return (
            f"P(no worse than the baseline{slack}) is {self.prob:.3f} in {len(self.gain)} draws that did not choose it "
            f"(at least {self.prob_at_least:.3f}, allowing for their number); {self.confidence:g} was asked for: "
            f"{verdict}"
        )


def draws_for(confidence: float) -> int:
    """The fewest draws that can show this confidence: all of them no worse, and (error)^(1 / n) >= confidence."""
    # n draws, all no worse: the bound is error^(1 / n).
    return int(np.ceil(np.log(MONTE_CARLO_ERROR) / np.log(confidence)))


def no_worse(
    values: Float[np.ndarray, "W P"], baseline: Float[np.ndarray, " W"], slack: float, share: float
) -> np.ndarray:
    """Which policies are no worse than the baseline in at least this share of the draws: Bool[P]."""
    return np.mean(values >= baseline[:, None] - slack, 0) >= share - 1e-12
