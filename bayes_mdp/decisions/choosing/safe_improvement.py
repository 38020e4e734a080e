"""`Improvement`: whether a policy is better than a baseline with a stated probability, on draws that did not choose it.

A policy that was searched for on some draws looks better there than it is. It is judged on fresh draws: of n of them k
are at least as good as the baseline, and the probability that the posterior gives to this is at least the lower
Clopper-Pearson bound of k in n. The bound fails with probability `MONTE_CARLO_ERROR`, so a recommendation that does not
have the promised posterior probability is made no more often than that.
"""

import equinox as eqx
import numpy as np
from jaxtyping import Float
from scipy.stats import beta

from bayes_mdp.utils.messages import amount

MONTE_CARLO_ERROR = 0.01


class Improvement(eqx.Module):
    """A candidate against the baseline, in draws that were not used to choose it.

    Args:
        gain: Float64[num_draws], value of the candidate minus that of the baseline, draw by draw.
        slack: how much worse than the baseline counts as no worse, in units of the value.
        confidence: what the probability of P(gain >= -slack) must be.
        looks: how often it may be asked whether it is, with more draws each time: they share the error.
    """

    gain: Float[np.ndarray, " num_draws"]
    slack: float
    confidence: float
    looks: int = 1

    @property
    def prob(self) -> float:
        """Share of the draws in which the candidate is no worse."""
        return float(np.mean(self.gain >= -self.slack))

    @property
    def prob_at_least(self) -> float:
        """Lower bound on the posterior probability, from the number of draws (one-sided, 99 %)."""
        return self._share_at_least(int(np.sum(self.gain >= -self.slack)))

    @property
    def prob_at_most(self) -> float:
        """Upper bound on it, likewise."""
        return 1.0 - self._share_at_least(int(np.sum(self.gain < -self.slack)))

    def _share_at_least(self, count: int) -> float:
        """The lower Clopper-Pearson bound of so many of the draws."""
        error = MONTE_CARLO_ERROR / self.looks
        return float(beta.ppf(error, count, len(self.gain) - count + 1)) if count else 0.0

    @property
    def settled(self) -> bool:
        """Whether more draws would hardly change the answer."""
        return self.accepted or self.prob_at_most < self.confidence

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
    return int(np.ceil(np.log(MONTE_CARLO_ERROR) / np.log(confidence)))


def no_worse(
    values: Float[np.ndarray, "W P"], baseline: Float[np.ndarray, " W"], slack: float, share: float
) -> np.ndarray:
    """Which policies are no worse than the baseline in at least this share of the draws: Bool[P]."""
    return np.mean(values >= baseline[:, None] - slack, 0) >= share - 1e-12
