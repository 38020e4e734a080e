"""`RewardPrior`: how much of the value of a policy stems from the prior of the rewards. Host-side, numpy."""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float

from bayes_mdp.decisions.unvisited import SHOWN, Pair
from bayes_mdp.mdp import CanWeighRewards
from bayes_mdp.utils.messages import amount


class RewardWeights(NamedTuple):
    """The prior's part in each mean reward (nan: known), and the posterior mean less that by data alone."""

    share: Float[np.ndarray, "*H S A"]
    moved: Float[np.ndarray, "*H S A"]


class RewardPrior(eqx.Module):
    """What the prior of the rewards adds to a value.

    A small share can move a value far: where 70 rewards have the mean .003, a prior of mean .5 that weighs two of them
    (a share of .028) makes it .017. So both are stated.

    Args:
        share: pseudo-observations over these and the observed rewards, weighted by the policy's time in each pair whose
            mean reward is unknown (1 where none was seen); zero where all mean rewards are known.
        pull: value of the policy in the mean MDP less that with the mean rewards that data alone give: what these tend
            to as the prior weighs less and less; where a pair has none, the mean of all rewards that were seen. Units
            of the value; nan: a mean by data alone does not exist.
        weakest: the pairs with most of `share`, (state, action) or (step, state, action), and their parts of it.
        moved: the pairs with most of `pull`, on its side of zero, and their parts of it.
    """

    share: float
    pull: float
    weakest: tuple[tuple[Pair, float], ...] = eqx.field(static=True, default=())
    moved: tuple[tuple[Pair, float], ...] = eqx.field(static=True, default=())

    @classmethod
    def of(
        cls, time: Float[np.ndarray, "*H S A"], weights: RewardWeights, names: Sequence[Sequence[Hashable]]
    ) -> "RewardPrior":
        """That of a policy.

        Args:
            time: of the policy in each pair (discounted, as in the objective); with the rewards it makes the value.
            weights: of the pairs.
            names: along each axis of these.
        """
        share, moved = weights
        unknown = ~np.isnan(share) & (time > 0)
        spent = np.where(unknown, time, 0.0)
        part = spent * np.where(unknown, share, 0.0) / max(spent.sum(), 1e-300)
        pulls = np.where(unknown, time * moved, 0.0)
        pull = float(pulls.sum())
        side = float(np.sign(pull))
        return cls(float(part.sum()), pull, _most(part, names), _most(pulls * side, names, side))

    def __str__(self) -> str:
        """The end of a sentence on the prior; empty where all mean rewards are known."""
        if not self.share:
            return ""
        pull = "moves the value by an unknown amount"
        if np.isfinite(self.pull):
            pull = f"moves the value by {'+' if self.pull > 0 else ''}{amount(self.pull, 2)}"
        return f"prior's share of its rewards {self.share:.2g}, which {pull}"


def reward_weights(posterior: object, reward: Float[np.ndarray, "*H S A"]) -> RewardWeights | None:
    """What the prior of the rewards weighs in each pair, and moves; None: the posterior does not know it.

    Args:
        posterior: that judges.
        reward: its means.
    """
    if not isinstance(posterior, CanWeighRewards):
        return None
    share, by_data = posterior.reward_share(), posterior.data_reward()
    if share is None or by_data is None:
        return None
    return RewardWeights(np.asarray(share, np.float64), reward - np.asarray(by_data, np.float64))


def _most(
    part: Float[np.ndarray, "*H S A"], names: Sequence[Sequence[Hashable]], sign: float = 1.0
) -> tuple[tuple[Pair, float], ...]:
    """The pairs with the largest positive parts, with their names; times `sign`."""
    order = np.argsort(-part, axis=None, kind="stable")[:SHOWN]
    where = [np.unravel_index(i, part.shape) for i in order if part.flat[i] > 0]
    return tuple((tuple(axis[i] for axis, i in zip(names, x, strict=True)), float(sign * part[x])) for x in where)
