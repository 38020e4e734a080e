"""Policies and first states that a caller gave by label, as the arrays that the library computes with. Host-side."""

from collections.abc import Mapping
from typing import Any

from bayes_mdp.mdp.by_label import is_by_label
from bayes_mdp.mdp.objectives import Episodic, Objective
from bayes_mdp.mdp.space import StateActionSpace


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
