"""Which rows and rewards of a conjugate posterior are tied: in words, for refusals. Host side."""

from typing import Any

import numpy as np

from bayes_mdp.inference.posterior import ConjugatePosterior
from bayes_mdp.inference.rewards import RewardCells
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.mdp.validation import is_concrete


def describe_ties(posterior: ConjugatePosterior) -> str | None:
    """The first two pairs that share an unknown row, or a mean reward, and the site it comes from; None: no ties."""
    if not is_concrete(posterior):
        return "some rows or rewards are tied"
    rows, rewards, space = posterior.transition_probs, posterior.reward_cells, posterior.space
    if not rows.independent and rows.row is not None:
        return _first("the row", np.asarray(rows.row), rows.sites, space)
    if not rewards.independent and isinstance(rewards, RewardCells) and rewards.cell is not None:
        return _first("the mean reward", np.asarray(rewards.cell), rewards.sites, space)
    return None


def _first(what: str, table: np.ndarray, sites: Any, space: StateActionSpace) -> str | None:
    """`table` [*H S A] or [*H S A O]: leaf of each cell, -1 for none."""
    by_pair = table.reshape(*space.shape, -1)
    owner: dict[int, tuple[int, ...]] = {}
    for pair in np.ndindex(*space.shape):
        for leaf in set(by_pair[pair].tolist()) - {-1}:
            if leaf in owner:
                site = _site(leaf, sites)
                return f"{what} of {_name(owner[leaf], space)} is that of {_name(pair, space)}{site}"
        owner.update(dict.fromkeys(by_pair[pair].tolist(), pair))
    return None


def _name(pair: tuple[int, ...], space: StateActionSpace) -> str:
    *step, state, action = pair
    at = f", step {step[0]}" if step else ""
    return f"state {space.state_names[state]!r}, action {space.action_names[action]!r}{at}"


def _site(leaf: int, sites: Any) -> str:
    """The site that the `leaf`-th stacked leaf belongs to."""
    for name, shape in sites:
        size = int(np.prod(shape))
        if leaf < size:
            return f" (site {name!r})"
        leaf -= size
    return ""
