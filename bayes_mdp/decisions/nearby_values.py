"""Discounted values of policies that differ in a few states, in large draws: one elimination a draw for all of them.

With A = I - k P of one policy, another one has A - k E D: D are the changes of its rows in the states where it differs,
E puts them there. Its values are u + k G (I - k D G)^-1 D u for u = A^-1 r and G = A^-1 E (Woodbury; Golub and Van Loan
2013, *Matrix Computations*, section 2.1.4): a system of as many equations as there are such states.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse
from jaxtyping import Int
from scipy.linalg import lu_factor, lu_solve

from bayes_mdp.decisions.host_values import ELIMINATED, Chains, PolicyPairs, Values, discounted_bound
from bayes_mdp.inference.pair_draws import Drawn

LEAST_POLICIES = 8
"""Policies from which on an elimination is faster than iterations for each."""
MOST_CHANGED = 1 / 8
"""Share of the states in which policies may differ."""


@dataclass(frozen=True, eq=False)
class NearbyPolicies:
    """Policies as a first one, and what changes.

    Args:
        first: the first policy.
        changed: states in which some policy differs from it.
        changes: for each policy the states where it differs, by number among `changed`, and the change of its mean over
            the pairs there [C Q].
    """

    first: PolicyPairs
    changed: Int[np.ndarray, " D"]
    changes: list[tuple[Int[np.ndarray, " C"], scipy.sparse.csr_array]]

    @classmethod
    def of(cls, policies: Sequence[PolicyPairs]) -> "NearbyPolicies | None":
        """None: they are few, differ in many states, or are not made of whole rows.

        Args:
            policies: the pairs that they take.
        """
        if len(policies) < LEAST_POLICIES or not all(policy.is_large for policy in policies):
            return None
        first = policies[0]
        differences = [scipy.sparse.csr_array(policy.average - first.average) for policy in policies]
        states = [np.flatnonzero(abs(difference).sum(-1)) for difference in differences]
        changed = np.unique(np.concatenate(states))
        if first.n_states > ELIMINATED or len(changed) > MOST_CHANGED * first.n_states:
            return None
        parts = [
            (np.searchsorted(changed, where), difference[where])
            for where, difference in zip(states, differences, strict=True)
        ]
        return cls(first, changed, parts)

    def values(self, drawn: Drawn, discount: float) -> list[Values]:
        """Values of each policy, with proven bounds.

        Args:
            drawn: in double precision.
            discount: below 1.
        """
        size, num = self.first.n_states, len(drawn.probs)
        values = np.empty((len(self.changes), num, size))
        gaps = np.empty((len(self.changes), num))
        for n in range(num):
            # Whole, with the end: a part of it would be copied for each product.
            table, paid = drawn.probs[n].reshape(len(drawn.reward[n]), -1), drawn.reward[n]
            rows, reward = (self.first.average @ table)[:, :size], self.first.average @ paid
            # Right sides: the rewards, and a one in each state that changes.
            sides = np.zeros((size, 1 + len(self.changed)))
            sides[:, 0] = reward
            sides[self.changed, 1 + np.arange(len(self.changed))] = 1.0
            solved = lu_solve(lu_factor(np.eye(size) - discount * rows), sides)
            mass = np.repeat(rows.sum(-1)[None], len(self.changes), 0)
            v, swept = np.empty_like(mass), np.repeat(reward[None], len(self.changes), 0)
            for i, (places, change) in enumerate(self.changes):
                where, influence = self.changed[places], solved[:, 1 + places]
                moved, more = (change @ table)[:, :size], change @ paid
                plain = solved[:, 0] + influence @ more
                small = np.eye(len(places)) - discount * moved @ influence
                v[i] = plain + discount * influence @ np.linalg.solve(small, moved @ plain)
                swept[i, where] += more + discount * (moved @ v[i])
                mass[i, where] += moved.sum(-1)
            # One sweep of all of them, which says how far they are off.
            swept += discount * (v @ rows.T)
            # A sum of the first policy's row and of the change: twice as many terms.
            numbers = (np.broadcast_to(x, (len(v), *np.shape(x))) for x in (rows, reward, np.abs(paid).max()))
            matrix, rewards, largest = numbers
            chains = Chains(matrix, rewards, 2 * self.first.terms, largest)
            bound = discounted_bound(chains, swept - v, v, discount, mass)
            values[:, n], gaps[:, n] = swept + bound.shift[:, None], bound.gap
        return [Values(*answer) for answer in zip(values, gaps, strict=True)]
