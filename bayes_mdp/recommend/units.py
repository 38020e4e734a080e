"""What a value of a decision is a sum of, in words: its objective, and the column that the rewards are from."""

from collections.abc import Hashable, Mapping

from bayes_mdp.mdp import AverageReward, Discounted, Episodic, Objective


def reward_in_words(columns: Mapping[str, Hashable]) -> str:
    """The column of the rewards by its name, "minus" that of costs, or "rewards" where neither is known.

    Args:
        columns: role -> name of the column (see `Log`).
    """
    if "cost" in columns:
        return f"minus {str(columns['cost'])!r}"
    return repr(str(columns["reward"])) if "reward" in columns else "rewards"


def value_in_words(objective: Objective, columns: Mapping[str, Hashable]) -> str:
    """What a value is: "discounted sum of 'earned' over all steps to come (discount 0.95)".

    Args:
        objective: of the value.
        columns: role -> name of the column.
    """
    reward = reward_in_words(columns)
    if isinstance(objective, Discounted):
        return f"discounted sum of {reward} over all steps to come (discount {float(objective.discount):g})"
    if isinstance(objective, Episodic):
        each = "" if objective.discount == 1 else f", discount {objective.discount:g} a step"
        return f"sum of {reward} over an episode of {objective.horizon} steps{each}"
    if isinstance(objective, AverageReward):
        return f"mean of {reward} per step in the long run"
    return f"sum of {reward} until the end, undiscounted"
