"""Labels of a space at the border of the library. Host-side.

As coordinates, which xarray indexes and NetCDF can hold; and policies and first states that a caller gave by label, as
the arrays that the library computes with.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from bayes_mdp.mdp.by_label import is_by_label
from bayes_mdp.mdp.objectives import Episodic, Objective
from bayes_mdp.mdp.space import END, StateActionSpace

OUTCOME = "next_state"
PLACE = "successor"
"""Of the axis of outcomes where successors are listed: which state a place means differs from pair to pair."""
_KINDS: tuple[type | tuple[type, ...], ...] = ((int, np.integer), (float, np.floating), str)


def labels(names: Sequence[Hashable]) -> np.ndarray:
    """Integers, floats and strings as they are; anything else (tuples, mixed kinds) as text."""
    for kind in _KINDS:
        if all(isinstance(name, kind) and not isinstance(name, bool) for name in names):
            return np.asarray(list(names))
    text = [str(name) for name in names]
    # 1 and "1" are two names.
    return np.asarray(text if len(set(text)) == len(text) else [repr(name) for name in names])


def outcome_axis(space: StateActionSpace) -> str:
    """The name of the axis of outcomes: "next_state", or "successor" where they are listed."""
    return OUTCOME if space.successors is None else PLACE


def listed_names(space: StateActionSpace) -> np.ndarray:
    """The label of each listed successor, [*H S A K] as text; empty where a list is shorter than the axis."""
    names = np.asarray([*map(str, space.state_names), *([END] if space.ends else []), ""], dtype=str)
    assert space.successors is not None
    return names[np.broadcast_to(space.successors, (*space.shape, space.n_outcomes))]


def coordinates(space: StateActionSpace) -> dict[str, np.ndarray]:
    """Labels along `step` (where there is a horizon), `state`, `action` and the outcomes."""
    axes = {"state": labels(space.state_names), "action": labels(space.action_names)}
    if space.horizon is not None:
        axes = {"step": np.arange(space.horizon), **axes}
    return {**axes, outcome_axis(space): labels(space.outcome_names)}


def pair_axes(shape: tuple[int, ...], space: StateActionSpace | None) -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
    """Dims and coordinates of an array [*H S A] by its shape; the names of `space`, where there is one."""
    names = (range(shape[-2]), range(shape[-1])) if space is None else (space.state_names, space.action_names)
    coords = {"state": labels(names[0]), "action": labels(names[1])}
    if len(shape) == 2:
        return ("state", "action"), coords
    return ("step", "state", "action"), {"step": np.arange(shape[0]), **coords}


def labels_of(posterior: object) -> StateActionSpace | None:
    """The space of a posterior; None: it has none, only sizes."""
    space = getattr(posterior, "space", None)
    return space if isinstance(space, StateActionSpace) else None


def policy_of(policy: Any, space: StateActionSpace | None, objective: Objective | None) -> Any:
    """The array of a policy by label; anything else as it is (Any), for whoever reads arrays and `Policy` objects.

    Args:
        policy: what a caller gave for a `PolicyOrLabels`.
        space: whose labels are meant; None: there are none.
        objective: whose steps a list of mappings has; None: not known here.

    Raises:
        TypeError, ValueError: one sentence: as `StateActionSpace.policy`; a policy by label where there is no space; a
            mapping for each step where the objective has none, or another number of them.
    """
    if not is_by_label(policy):
        return policy
    if space is None:
        raise TypeError(
            "policy is a mapping, expected an array or a Policy: there is no space here, whose labels it could mean "
            "(see StateActionSpace.policy)"
        )
    if not isinstance(policy, Mapping) and objective is not None:
        _check_steps(len(policy), objective)
    return space.policy(policy)


def _check_steps(number: int, objective: Objective) -> None:
    """One mapping for each step: only episodes have steps, and each needs one."""
    if not isinstance(objective, Episodic):
        raise ValueError(f"policy is a list of {number} mappings, expected one: {objective} has no steps")
    if number != objective.horizon:
        raise ValueError(
            f"policy is a list of {number} mappings, expected {objective.horizon}, one for each step, or one mapping"
        )
