"""`Candidate`: a policy that might replace the one in use, what it gains, and why it may not be recommended."""

from dataclasses import dataclass

import numpy as np

from bayes_mdp.decisions.choosing.criteria import Improvement
from bayes_mdp.mdp import PolicyLike
from bayes_mdp.recommend.consequences import Consequence
from bayes_mdp.utils.messages import amount, amounts


@dataclass(frozen=True, eq=False)
class Candidate:
    """A policy beside the baseline.

    Args:
        policy: actions [*H S] or their probabilities [*H S A], or a `Policy`.
        improvement: over the baseline, in draws of the posterior that judges.
        named: whether it was named beforehand; if not, the log chose it.
        spread: by which factor its interval is wider than that of the posterior, because the data that judge it chose
            it too (see `choice_spread`); 1 for a policy that was named, or chosen by other data.
        prior_share: the prior's share of the rows that it uses; None: not known.
        fewest: transitions of the pair that it takes more often than the baseline and that the log has least; None: it
            takes none.
        doubts: why it is not recommended, but for the checks of the belief.
        consequences: of the checks that failed, for this policy.
    """

    policy: PolicyLike
    improvement: Improvement
    named: bool = False
    spread: float = 1.0
    prior_share: float | None = None
    fewest: float | None = None
    doubts: tuple[str, ...] = ()
    consequences: tuple[Consequence, ...] = ()

    @property
    def mean(self) -> float:
        """Mean gain over the baseline, in units of the value."""
        return float(self.improvement.gain.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the gain: the posterior's, widened by `spread`."""
        low, high = np.quantile(self.improvement.gain, (0.025, 0.975))
        return self.mean + self.spread * float(low - self.mean), self.mean + self.spread * float(high - self.mean)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it is not recommended; empty: it is worth recommending."""
        return (*self.doubts, *(str(each) for each in self.consequences if each.stops))

    @property
    def worth(self) -> str:
        """Gain and interval in words."""
        return f"{amount(self.mean)}, 95 % interval {amounts(*self.interval)}"

    @property
    def support(self) -> str:
        """What its value rests on, in words."""
        parts = [] if self.fewest is None else [f"least tried pair seen {self.fewest:g} times"]
        parts += [] if self.prior_share is None else [f"prior's share {self.prior_share:.2g}"]
        return ", ".join(parts) or "not known"
