# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false, reportOptionalSubscript=false
"""Posteriors over small MDPs, and draws of the values of a policy by plain numpy: the oracle of the variances.

Nothing here calls the package but to build the posterior: rows are normalised numpy gammas, values a numpy solve.
"""

from typing import Any, NamedTuple

import numpy as np

from bayes_mdp.inference.conjugate.conjugate_posterior import conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.families.normal import NormalGammaBelief
from bayes_mdp.mdp import StateActionSpace

Z = 6.0  # two-sided false-alarm rate 2e-9 an entry


class Case(NamedTuple):
    """A posterior in numbers: concentrations [*H S A O] (rows of one possible outcome are known), rewards.

    Args:
        concentration: the last outcome is the end where there is one more than states.
        loc, variance: [*H S A] or [*H S A O], of the normal-gamma mean reward; variance 0: known.
        policy: [*H S A].
        discount: a number; layered cases take 1.
        legal: [S A] or None.
    """

    concentration: np.ndarray
    loc: np.ndarray
    variance: np.ndarray
    policy: np.ndarray
    discount: float = 1.0
    legal: np.ndarray | None = None

    @property
    def posterior(self) -> Any:
        """The conjugate posterior."""
        c, shape = self.concentration, self.concentration.shape
        n_states = shape[-3]
        horizon = shape[0] if c.ndim == 4 else None
        space = StateActionSpace(n_states, shape[-2], horizon=horizon, ends=shape[-1] > n_states, legal=self.legal)
        flat = c.reshape(-1, shape[-1])
        unknown = (flat > 0).sum(-1) > 1
        row = np.where(unknown, np.cumsum(unknown) - 1, -1).reshape(shape[:-1])
        known = np.where(unknown[:, None], 0.0, flat / flat.sum(-1, keepdims=True)).reshape(shape)
        rows = dirichlet_rows(flat[unknown], shape, row=row, known=known)
        variance = self.variance.ravel()
        cell = np.where(variance > 0, np.cumsum(variance > 0) - 1, -1).reshape(self.variance.shape)
        loc, variance = self.loc.ravel()[variance > 0], variance[variance > 0]
        # variance = rate / (pseudo_count (concentration - 1)), concentration large: no heavy tails
        belief = NormalGammaBelief(loc, np.full(len(loc), 2.0), np.full(len(loc), 51.0), 100.0 * variance)
        by_outcome = self.loc.shape == shape
        rewards = reward_cells(belief, self.loc.shape, by_outcome=by_outcome, cell=cell, known=self.loc)
        return conjugate_posterior(rows, rewards, space)

    def draw(self, seed: int, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows [N *H S A O] and rewards [N *H S A]."""
        rng = np.random.default_rng(seed)
        gamma = rng.standard_gamma(np.broadcast_to(self.concentration, (number, *self.concentration.shape)))
        rows = gamma / gamma.sum(-1, keepdims=True)
        known = (self.concentration > 0).sum(-1) == 1
        rows = np.where(known[..., None], self.concentration > 0, rows)
        precision = rng.standard_gamma(51.0, (number, *self.loc.shape))
        noise = rng.standard_normal((number, *self.loc.shape)) / np.sqrt(precision)
        reward = self.loc + noise * np.sqrt(50.0 * self.variance)
        return rows, (rows * reward).sum(-1) if self.loc.shape == self.concentration.shape else reward

    def values(self, seed: int, number: int) -> tuple[np.ndarray, np.ndarray]:
        """q [N *H S A] and v [N *H S] of the policy in each draw."""
        rows, reward = self.draw(seed, number)
        n_states = rows.shape[-3]
        rows = rows[..., :n_states]
        if self.concentration.ndim == 3:
            chain = np.einsum("sa,nsaz->nsz", self.policy, rows)
            pay = np.einsum("sa,nsa->ns", self.policy, reward)
            v = np.linalg.solve(np.eye(n_states) - self.discount * chain, pay[..., None])[..., 0]
            return reward + self.discount * np.einsum("nsaz,nz->nsa", rows, v), v
        after, q, v = np.zeros((number, n_states)), [], []
        for h in reversed(range(rows.shape[1])):
            q.append(reward[:, h] + np.einsum("nsaz,nz->nsa", rows[:, h], after))
            after = np.einsum("sa,nsa->ns", self.policy[h], q[-1])
            v.append(after)
        return np.stack(q[::-1], 1), np.stack(v[::-1], 1)


def layered(seed: int = 0, *, by_outcome: bool = False, ends: bool = False, horizon: int = 4) -> Case:
    """4 steps, 3 states, 2 actions, nothing known; a stochastic policy."""
    rng = np.random.default_rng(seed)
    pairs = (horizon, 3, 2)
    rows = (*pairs, 3 + ends)
    cells = rows if by_outcome else pairs
    policy = rng.dirichlet(np.ones(2), size=pairs[:2])
    return Case(rng.uniform(0.5, 3, rows), rng.normal(size=cells), rng.uniform(0.1, 0.5, cells), policy)


def not_levelled(seed: int = 0, *, by_outcome: bool = False) -> Case:
    """6 states; s leads to all later ones and to the end, at different distances. State 0 and 2 act at random.

    What the policy does not do may lead anywhere: action 2 of every state, and action 1 of states 1 and 3.
    """
    rng = np.random.default_rng(seed)
    c = rng.uniform(0.5, 2.0, (6, 3, 7))
    later = np.triu(np.ones((6, 6)), 1)
    c[:, :2, :6] *= later[:, None]
    c[[1, 3], 1] = rng.uniform(0.5, 2.0, (2, 7))
    policy = np.eye(3)[np.zeros(6, int)]
    policy[0], policy[2] = [0.3, 0.7, 0.0], [0.6, 0.4, 0.0]
    cells = c.shape if by_outcome else c.shape[:-1]
    return Case(c, rng.normal(size=cells), rng.uniform(0.1, 0.5, cells), policy, 0.9)


def with_known_cycles() -> Case:
    """As `not_levelled`, with a known ring 1 -> 2 -> 1 that unknown actions leave, and a known absorbing state 5."""
    case = not_levelled(1)
    c, loc, variance, policy = (x.copy() for x in case[:4])
    c[1, 0], c[2, 0], c[5] = np.eye(7)[2], np.eye(7)[1], np.eye(7)[5]
    c[[1, 2], 1, :3] = 0.0
    variance[[1, 2], 0] = variance[5] = 0.0
    policy[1], policy[2], policy[5] = [0.5, 0.5, 0.0], [0.7, 0.3, 0.0], [1.0, 0.0, 0.0]
    return Case(c, loc, variance, policy, 0.9)


def moments(x: np.ndarray, y: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Covariance of draws x [N ... A] with y [N ... B], and its standard error: [... A B]."""
    x = x - x.mean(0)
    y = x if y is None else y - y.mean(0)
    product = x[..., :, None] * y[..., None, :]
    return product.mean(0), product.std(0) / len(x) ** 0.5


def worst(ours: Any, estimate: np.ndarray, error: np.ndarray) -> float:
    """The largest difference in standard errors; an entry without error must agree to 1e-9."""
    off = np.abs(np.asarray(ours) - estimate)
    return float(np.max(np.where(error > 1e-12, off / np.maximum(error, 1e-12), np.where(off < 1e-9, 0.0, np.inf))))
