"""`rows_of_prior`: rows of draws of the prior; `check_rows_of_prior`, `check_drawn_rows`: whether rows are right."""

from dataclasses import replace
from functools import lru_cache

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from bayes_mdp.inference.draws.methods import NUTS
from bayes_mdp.inference.sampled.recipe import Recipe
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.utils.validation import ROW_SUM_TOLERANCE, first_index

FEW = 4
"""Draws of the prior whose rows are looked at."""
BATCHES = 16
"""Batches of such draws until a draw is possible: a factor may rule some out."""


def rows_of_prior(recipe: Recipe, batch: int) -> Float[np.ndarray, "N *H S A O"]:
    """Rows of `FEW` draws; every batch has draws of its own. Host side, compiled once for a program."""
    return _rows(_common(recipe), batch)


def check_rows_of_prior(recipe: Recipe) -> None:
    """Refuse a program whose rows are no probabilities, or do not sum to one, in a draw of the prior. Looked at once.

    Chains see a density, which such rows only shift: nothing else would notice. Factors, observations, scales and masks
    move the prior, not the values that its sites can have: draws of the sites are looked at, but for those that a
    factor makes impossible. What cannot be drawn passes here, and is looked at afterwards (`check_drawn_rows`).

    Raises:
        ValueError: names the first wrong row by its labels, and how many are wrong.
    """
    if not (recipe.rewards_only or recipe.improper):
        problem = _problem(_common(recipe))
        if problem:
            raise ValueError(problem)


def check_drawn_rows(recipe: Recipe, rows: Float[np.ndarray, "N *H S A O"]) -> None:
    """Likewise for the rows of posterior draws; rows that are not finite are reported with the chains.

    Raises:
        ValueError: as `check_rows_of_prior`.
    """
    if not recipe.rewards_only:
        problem = _wrong_row(recipe.space, rows[np.isfinite(rows).reshape(len(rows), -1).all(1)], "posterior")
        if problem:
            raise ValueError(problem)


def _common(recipe: Recipe) -> Recipe:
    """The recipe, whatever it is sampled by."""
    return replace(recipe, method=NUTS(num_samples=FEW, num_chains=1))


@lru_cache(maxsize=64)
def _problem(recipe: Recipe) -> str:
    """What is wrong with the rows, in one sentence; empty: nothing."""
    for batch in range(BATCHES):
        with jax.enable_x64(True):
            rows, possible = map(np.asarray, _compiled(recipe)(_key(batch)))
        if possible.any():
            return _wrong_row(recipe.space, rows[possible], "prior")
    return ""


def _wrong_row(space: StateActionSpace, draws: Float[np.ndarray, "N *H S A O"], of: str) -> str:
    """What is wrong with the first wrong row of a draw, in one sentence; empty: nothing."""
    for rows in draws:
        rows = np.asarray(rows, np.float64)
        total = rows.sum(-1)
        tolerance = ROW_SUM_TOLERANCE[str(draws.dtype)]
        impossible = ~(np.isfinite(rows) & (rows >= 0))
        wrong = impossible.any(-1) | ~(np.abs(total - 1.0) <= tolerance)
        if space.legal is not None:
            wrong &= np.asarray(space.legal)
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
            f"prior: in a draw of the {of} the row transition_probs[{', '.join(map(str, index))}] ({where}) {what}, "
            f"expected probabilities that sum to 1 ({wrong.sum()} of {wrong.size} rows are wrong)"
        )
    return ""


def _rows(recipe: Recipe, batch: int) -> Float[np.ndarray, "N *H S A O"]:
    with jax.enable_x64(True):
        return np.asarray(_compiled(recipe)(_key(batch))[0])


def _key(batch: int) -> PRNGKeyArray:
    return jax.random.fold_in(jax.random.key(0), batch)


@lru_cache(maxsize=64)
def _compiled(recipe: Recipe) -> jax.stages.Wrapped:
    """key -> rows of draws of the sites, and whether each draw is possible under factors and observations."""

    def draw(key: PRNGKeyArray) -> tuple[Float[Array, "N *H S A O"], Bool[Array, " N"]]:
        sites = recipe.draw_prior(key, FEW).sites
        return recipe.tables(sites)[0], recipe.possible(sites)

    return jax.jit(draw)
