"""Both policies of a decision by the labels of its space, state by state."""

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

from bayes_mdp.mdp import Policy, PolicyLike, StateActionSpace

if TYPE_CHECKING:
    import pandas as pd


def policy_table(space: StateActionSpace, policies: Mapping[str, PolicyLike], state: str) -> "pd.DataFrame":
    """A row for each state and, where an array depends on the step, for each step; a column for each policy.

    A `Policy` object, which has no array, is left out.

    Args:
        space: with the labels.
        policies: name -> policy.
        state: name of the column of states.
    """
    import pandas as pd

    described = {
        name: space.describe_policy(policy) for name, policy in policies.items() if not isinstance(policy, Policy)
    }
    stepped = {name: _steps(each) for name, each in described.items()}
    horizon = max(map(len, stepped.values()), default=1)
    columns: dict[str, list[Any]] = {} if horizon == 1 else {"step": []}
    columns |= {state: [], **{name: [] for name in stepped}}
    for step in range(horizon):
        for s in space.state_names:
            if horizon > 1:
                columns["step"].append(step)
            columns[state].append(s)
            for name, each in stepped.items():
                columns[name].append(_action(each[min(step, len(each) - 1)][s]))
    return pd.DataFrame(columns)


def _steps(policy: Any) -> list[dict[Hashable, Any]]:
    """One mapping for each step; one alone where all are the same."""
    steps = policy if isinstance(policy, list) else [policy]
    return steps[:1] if all(step == steps[0] for step in steps) else steps


def _action(given: Any) -> str:
    """ "run", or "run 0.9, service 0.1", the likeliest first."""
    if not isinstance(given, dict):
        return str(given)
    order = sorted(given.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{action} {chance:.2g}" for action, chance in order)
