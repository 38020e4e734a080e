"""What a check looks at unless told otherwise: optimal values, and which action is optimal."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from bayes_mdp.calibration.quantities import Drawn, Quantity
from bayes_mdp.inference.optimal_actions import shared_out
from bayes_mdp.mdp import AverageReward, Objective, StateActionSpace


def values(space: StateActionSpace, objective: Objective) -> dict[str, Quantity]:
    """Optimal values `V(state)`, and `Q(state, action)` where there is a choice; the `gain`, for the average reward.

    Of an episode with a horizon: those of its first step.
    """
    if isinstance(objective, AverageReward):
        return {"gain": lambda drawn: drawn.solution.gain}
    found: dict[str, Quantity] = {f"V({name})": _value(s) for s, name in enumerate(space.state_names)}
    return {**found, **{f"Q({name})": _action_value(*pair) for name, pair in _choices(space).items()}}


def optimal_actions(space: StateActionSpace, objective: Objective) -> dict[str, Quantity]:
    """`optimal(state, action)`, where there is a choice: 1 if the action is optimal (shared out among equals), else 0.

    Empty for the average reward, whose differential values leave it open in states that no optimal policy returns to.
    """
    if isinstance(objective, AverageReward):
        return {}
    return {f"optimal({name})": _is_optimal(*pair) for name, pair in _choices(space).items()}


def _choices(space: StateActionSpace) -> dict[str, tuple[int, int]]:
    """The legal pairs of the states with two actions or more, by their names."""
    legal = np.ones(space.shape[-2:], bool) if space.legal is None else np.asarray(space.legal)
    pairs = np.argwhere(legal & (legal.sum(-1, keepdims=True) > 1))
    return {f"{space.state_names[s]}, {space.action_names[a]}": (int(s), int(a)) for s, a in pairs}


def _value(s: int) -> Quantity:
    return lambda drawn: _first(drawn.solution.v, 1)[s]


def _action_value(s: int, a: int) -> Quantity:
    return lambda drawn: _first(drawn.solution.q, 2)[s, a]


def _is_optimal(s: int, a: int) -> Quantity:
    def quantity(drawn: Drawn) -> Any:
        return shared_out(_first(drawn.solution.q, 2))[s, a]

    return quantity


def _first(array: Any, ndim: int) -> Any:
    """That of the first step, where there are steps."""
    return jnp.asarray(array) if jnp.ndim(array) == ndim else array[0]
