"""K-learning in plain numpy: the recursion (6), and the derivative of J from the occupancy of its policy.

Nothing here calls the package. Everything is analytic in tau, so that complex steps differentiate it to rounding.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq


class Plain(NamedTuple):
    """One problem (11): reward, numerator [H S A], rows [H S A S], initial [S], legal [S A]."""

    reward: np.ndarray
    numerator: np.ndarray
    rows: np.ndarray
    initial: np.ndarray
    legal: np.ndarray

    def k(self, tau: Any) -> np.ndarray:
        """K of every step."""
        return self._backward(tau)[0]

    def objective(self, tau: Any) -> Any:
        """J."""
        return self.initial @ self._backward(tau)[1]

    def gradient(self, tau: Any) -> Any:
        """J' = E - C / tau^2, C and E expectations under the policy of K, by a forward pass."""
        k, present, total = self.k(tau), self.initial.astype(complex), 0.0
        for h in range(len(k)):
            x = np.where(self.legal, k[h] - k[h].real.max(-1, keepdims=True), 0.0) / tau
            weight = np.where(self.legal, np.exp(x), 0.0)
            z = weight.sum(-1, keepdims=True)
            probs = weight / z
            entropy = -(probs * (x - np.log(z))).sum(-1)
            occupancy = present[:, None] * probs
            total = total + (present * entropy).sum() - (occupancy * self.numerator[h]).sum() / tau**2
            present = np.einsum("sa,saz->z", occupancy, self.rows[h])
        return total if np.iscomplexobj(tau) else total.real

    def brent(self) -> float:
        """The optimal temperature by Brent's method on J'."""
        root: Any = brentq(lambda x: self.gradient(np.exp(x)) * np.exp(x), -16.0, 12.0, xtol=1e-15)
        return float(np.exp(root))

    def bellman(self) -> np.ndarray:
        """Optimal q without any bonus."""
        values, q = np.zeros(len(self.initial)), []
        for h in reversed(range(len(self.reward))):
            q.append(np.where(self.legal, self.reward[h] + self.rows[h] @ values, -np.inf))
            values = q[-1].max(-1)
        return np.stack(q[::-1])

    def _backward(self, tau: Any) -> tuple[np.ndarray, np.ndarray]:
        values, k = np.zeros(len(self.initial)), []
        for h in reversed(range(len(self.reward))):
            q = self.reward[h] + self.numerator[h] / tau + self.rows[h] @ values
            k.append(np.where(self.legal, q, -np.inf))
            best = k[-1].real.max(-1)
            weight = np.where(self.legal, np.exp(np.where(self.legal, q - best[:, None], 0.0) / tau), 0.0)
            values = best + tau * np.log(weight.sum(-1))
        return np.stack(k[::-1]), values


def plain(seed: int, shape: tuple[int, int, int] = (6, 5, 3), *, illegal: bool = True) -> Plain:
    """A random problem, rewards and bonuses over orders of magnitude; with ends, and illegal actions."""
    rng = np.random.default_rng(seed)
    n_states = shape[1]
    rows = rng.dirichlet(np.full(n_states + 1, 0.3), size=shape)[..., :-1]
    reward = rng.normal(size=shape) * 10.0 ** rng.uniform(-2, 1)
    numerator = 10.0 ** rng.uniform(-4, 1, size=shape) * (rng.random(shape) < 0.7)
    legal = np.ones(shape[1:], bool)
    if illegal:
        legal[0, 1] = legal[n_states - 1, 0] = False
    return Plain(reward, np.where(legal, numerator, 0.0), rows, rng.dirichlet(np.ones(n_states)), legal)


def deep_sea_problem(size: int, *, known: bool, number: int, seed: int = 0) -> Plain:
    """DeepSea after `number` episodes that each go right with a probability of their own."""
    rng = np.random.default_rng(seed)
    column = np.arange(size)
    moves = np.stack([np.maximum(column - 1, 0), np.minimum(column + 1, size - 1)], -1)
    counts = np.zeros((size, size, 2, size))
    for right in rng.random(number):
        state = 0
        for h in range(size):
            action = int(rng.random() < right)
            counts[h, state, action, moves[state, action]] += 1
            state = moves[state, action]
    visits = counts.sum(-1)
    reward = np.zeros((size, size, 2))
    reward[:, :, 1] -= 0.01 / size
    reward[-1, -1, 1] += 1.0
    later = np.arange(size - 1, -1, -1.0)[:, None, None]
    rows = np.broadcast_to(np.eye(size)[moves], counts.shape) if known else (counts + 1) / (visits[..., None] + size)
    numerator = 0.5 / (1 + visits / 0.01) if known else (1 + later**2) / (2 * np.maximum(visits, 1))
    return Plain(reward * visits / (visits + 0.01), numerator, rows, np.eye(size)[0], np.ones((size, 2), bool))
