"""[TDBMA10] Algorithms 2 and 3 in plain Python, float64: what `agents.trial` and the loop of trials must equal."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import expit
from scipy.stats import norm


@dataclass
class Statistics:
    """Of the returns of a pair."""

    count: int = 0
    mean: float = 0.0
    variance: float = np.inf
    squares: float = 0.0

    def see(self, ret: float) -> None:
        """One more return."""
        self.count += 1
        gap = ret - self.mean
        self.mean += gap / self.count
        self.squares += gap * (ret - self.mean)
        if self.count > 1:
            self.variance = self.squares / self.count

    def weight(self, q_mc: float, q_td: float) -> float:
        """f(q_mc)^N / (f(q_mc)^N + f(q_td)^N), f the normal density."""
        if self.count == 0 or np.isinf(self.variance):
            return 0.5
        if self.variance == 0.0:
            return 0.5 + 0.5 * float(np.sign(abs(q_td - self.mean) - abs(q_mc - self.mean)))
        law: Any = norm(self.mean, np.sqrt(self.variance))
        return float(expit(self.count * (law.logpdf(q_mc) - law.logpdf(q_td))))


@dataclass
class Learner:
    """Tables by pair, and what a sweep does to them.

    Args:
        q: values by pair (any index).
        rate, discount: learning rate, discount.
        trace_decay: lambda; None: TD-BMA.
        frozen: bootstrap from Q as it was before the sweep.
        statistics: by pair.
    """

    q: np.ndarray
    rate: float
    discount: float
    trace_decay: float | None = None
    frozen: bool = False
    statistics: dict = field(default_factory=dict)

    def sweep(self, trial: list, beyond: float = 0.0) -> tuple[list[float], list[float]]:
        """One backward sweep over [(pair, reward), ...]: returns and weights lambda (nan at the last step)."""
        before, returns, decays = self.q.copy(), [], []
        for t in range(len(trial) - 1, -1, -1):
            pair, reward = trial[t]
            seen = self.statistics.setdefault(pair, Statistics())
            if t == len(trial) - 1:
                ret, decay = reward + self.discount * beyond, np.nan
            else:
                following = (before if self.frozen else self.q)[trial[t + 1][0]]
                q_td, q_mc = reward + self.discount * following, reward + self.discount * returns[0]
                decay = seen.weight(q_mc, q_td) if self.trace_decay is None else self.trace_decay
                ret = reward + self.discount * ((1.0 - decay) * following + decay * returns[0])
            self.q[pair] += self.rate * (ret - self.q[pair])
            seen.see(ret)
            returns.insert(0, ret)
            decays.insert(0, decay)
        return returns, decays

    def table(self, shape: tuple[int, ...]) -> np.ndarray:
        """[*shape 3], count, mean and sum of squared deviations of every pair."""
        table = np.zeros((*shape, 3))
        for pair, seen in self.statistics.items():
            table[pair] = seen.count, seen.mean, seen.squares
        return table
