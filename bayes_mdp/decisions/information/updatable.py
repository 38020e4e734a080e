"""`Updatable`: posteriors whose update is exact, and what data can change of them. Host-side."""

from typing import TypeAlias

import numpy as np
from jaxtyping import Bool

from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.inference.conjugate.rewards import KnownRewards
from bayes_mdp.inference.mixtures import Mixture
from bayes_mdp.mdp import Posterior
from bayes_mdp.mdp.abilities import Sizes, by_pattern

Updatable: TypeAlias = ConjugatePosterior | Mixture
"""The posteriors whose update is exact and cheap."""


def require_exact(posterior: Posterior) -> Updatable:
    """The posterior, if it is one.

    Raises:
        TypeError: its update is not exact.
    """
    if isinstance(posterior, Updatable) and posterior.in_closed_form:
        return posterior
    raise TypeError(
        f"next_experiment needs a posterior whose update is exact, got a {type(posterior).__name__}: use "
        + (by_pattern(posterior) or "a posterior in closed form (infer with method='exact'), or a mixture of such")
    )


def unknown_pairs(posterior: Updatable) -> Bool[np.ndarray, "*H S A"]:
    """Legal pairs whose row or reward is not known."""
    parts, space = components(posterior), posterior.space
    legal = Sizes.of(space).possible
    unknown = np.zeros(space.shape, bool)
    for part in parts:
        rewards = part.reward_cells
        # Not "> 0": a variance that does not exist belongs to an unknown reward.
        paid = ~(np.asarray(rewards.variance()) == 0) if rewards.learns else np.zeros(rewards.shape, bool)
        if part.rewards_by_outcome:
            paid = (paid & (np.asarray(part.transition_probs.mean()) > 0)).any(-1)
        # 1 / c0 is 0 where the row is known.
        unknown |= (np.asarray(part.transition_probs.inverse_total()) > 0) | paid
    if laws_tell(posterior):
        return legal
    if len(parts) > 1:
        # Data of a pair that differs between the components say which one holds.
        rows, reward = zip(*(part.mean_rows() for part in parts), strict=True)
        unknown |= np.ptp(np.nan_to_num(np.asarray(rows)), 0).any(-1) | (np.ptp(np.asarray(reward), 0) > 0)
    return legal & unknown


def laws_tell(posterior: Updatable) -> bool:
    """Whether rewards of a known law can say which component of a mixture holds."""
    rewards = posterior.component(0).reward_cells
    several = posterior.log_weights is not None
    return several and isinstance(rewards, RewardCells | KnownRewards) and rewards.known_law is not None


def components(posterior: Updatable) -> list[ConjugatePosterior]:
    """The components of a mixture, or the posterior itself."""
    return [posterior.component(k) for k in range(posterior.num_components)]
