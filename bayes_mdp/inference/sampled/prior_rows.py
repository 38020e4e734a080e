"""`rows_of_prior`: rows of a few draws of the prior; `check_rows_of_prior`: whether they are probabilities."""

from dataclasses import replace
from functools import lru_cache

import jax
import numpy as np
from jaxtyping import Float

from bayes_mdp.inference.draws.methods import NUTS
from bayes_mdp.inference.sampled.recipe import Recipe
from bayes_mdp.utils.validation import ROW_SUM_TOLERANCE, first_index

FEW = 4
"""Draws of the prior whose rows are looked at."""


def rows_of_prior(recipe: Recipe, batch: int) -> Float[np.ndarray, "N *H S A O"]:
    """Rows of `FEW` draws; every batch has draws of its own. Host side, compiled once for a program."""
    return _rows(_common(recipe), batch)


def check_rows_of_prior(recipe: Recipe) -> None:
    """Refuse a program whose rows are no probabilities, or do not sum to one, in a draw of the prior. Looked at once.

    Chains see a density, which such rows only shift: nothing else would notice. Programs that cannot be drawn from
    pass.

    Raises:
        ValueError: names the first wrong row by its labels, and how many are wrong.
    """
    if recipe.drawable and not (recipe.rewards_only or recipe.improper):
        problem = _problem(_common(recipe))
        if problem:
            raise ValueError(problem)


def _common(recipe: Recipe) -> Recipe:
    """The recipe, whatever it is sampled by."""
    return replace(recipe, method=NUTS(num_samples=FEW, num_chains=1))


@lru_cache(maxsize=64)
def _problem(recipe: Recipe) -> str:
    """What is wrong with the rows, in one sentence; empty: nothing."""
    space = recipe.space
    for rows in np.asarray(_rows(recipe, 0), np.float64):
        total = rows.sum(-1)
        tolerance = ROW_SUM_TOLERANCE["float64"]
        impossible = ~(np.isfinite(rows) & (rows >= 0))
        wrong = impossible.any(-1) | ~(np.abs(total - 1.0) <= tolerance)
        index = first_index(wrong)
        if index is None:
            continue
        *step, state, action = index
        where = f"state {space.state_names[state]!r}, action {space.action_names[action]!r}"
        where += f", step {step[0]}" if step else ""
        what = f"sums to {total[index]:.8g}"
        if impossible[index].any():
            what = f"holds {rows[index][impossible[index]][0]:.8g}"
        return (
            f"prior: in a draw of the prior the row transition_probs[{', '.join(map(str, index))}] ({where}) {what}, "
            f"expected probabilities that sum to 1 ({wrong.sum()} of {wrong.size} rows are wrong)"
        )
    return ""


def _rows(recipe: Recipe, batch: int) -> Float[np.ndarray, "N *H S A O"]:
    with jax.enable_x64(True):
        return np.asarray(_compiled(recipe)(jax.random.fold_in(jax.random.key(0), batch)))


@lru_cache(maxsize=64)
def _compiled(recipe: Recipe) -> jax.stages.Wrapped:
    return jax.jit(lambda key: recipe.tables(recipe.draw_prior(key, FEW).sites)[0])
