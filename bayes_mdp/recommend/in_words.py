"""What a report says in words: what its values are sums of, the prior, the key that makes its draws again."""

import inspect
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.mdp import AverageReward, Discounted, Episodic, Objective
from bayes_mdp.mdp.by_label import ProductLabel
from bayes_mdp.models.default_prior import DefaultPrior
from bayes_mdp.models.mdp_spec import Prior
from bayes_mdp.utils.messages import count_of
from bayes_mdp.utils.typing import AnyArray

if TYPE_CHECKING:
    import pandas as pd


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
        discounting = "" if objective.discount == 1 else f", discount {objective.discount:g} a step"
        return f"sum of {reward} over an episode of {count_of(objective.horizon, 'step')}{discounting}"
    if isinstance(objective, AverageReward):
        return f"mean of {reward} per step in the long run"
    return f"sum of {reward} until the end, undiscounted"


def reward_in_words(columns: Mapping[str, Hashable]) -> str:
    """The column of the rewards by its name, "minus" that of costs, or "rewards" where neither is known.

    Args:
        columns: role -> name of the column (see `Log`).
    """
    if "cost" in columns:
        return f"minus {str(columns['cost'])!r}"
    return repr(str(columns["reward"])) if "reward" in columns else "rewards"


def prior_in_words(program: Prior | None) -> str:
    """The program of a prior by its name, with the numbers and the sizes of the arrays that its factory was given.

    Args:
        program: the prior; None: not known, as that of a loaded posterior. What `default_prior` makes tells itself.
    """
    if program is None:
        return "not known: the posterior does not hold it"
    if isinstance(program, DefaultPrior):
        return str(program)
    program = inspect.unwrap(program)
    # The hyperparameters of a factory are the free variables of the program that it returns.
    code, cells = getattr(program, "__code__", None), getattr(program, "__closure__", None) or ()
    parts: list[str] = []
    for name, cell in zip(() if code is None else code.co_freevars, cells, strict=True):
        captured = cell.cell_contents if isinstance(cell.cell_contents, dict) else {name: cell.cell_contents}
        parts += [f"{variable} {x}" for variable, x in captured.items() if isinstance(x, bool | int | float | str)]
        parts += [
            f"{variable} an array {np.shape(x)}" for variable, x in captured.items() if isinstance(x, list | AnyArray)
        ]
    name = getattr(program, "__qualname__", type(program).__name__).split(".<locals>")[0]
    return f"{name} ({', '.join(parts)})" if parts else name


def key_in_words(key: PRNGKeyArray) -> str:
    """`jax.random.key(0)`, where that makes the key; else its kind and its numbers.

    Args:
        key: one typed key.
    """
    # `jax.random.key(seed)` keeps the seed as its last word.
    data = [int(x) for x in np.asarray(jax.random.key_data(key)).ravel()]
    made = jax.random.key(data[-1])
    if key.dtype == made.dtype and np.array_equal(jax.random.key_data(made), jax.random.key_data(key)):
        return f"jax.random.key({data[-1]})"
    return f"{jax.random.key_impl(key)} of {', '.join(map(str, data))}"


def with_text_labels(frame: "pd.DataFrame") -> "pd.DataFrame":
    """The table with labels of several columns as text, which pandas would write without the names of their parts.

    Args:
        frame: to be shown.
    """
    return frame.map(lambda cell: str(cell) if isinstance(cell, ProductLabel) else cell)
