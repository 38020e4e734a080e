"""Draws of pairs from Dirichlet rows and beliefs about rewards, or from mixtures of these, by NumPy."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from bayes_mdp.inference.conjugate.dirichlet_rows import DirichletRows
from bayes_mdp.inference.conjugate.rewards import ComponentPrior
from bayes_mdp.inference.pair_draws import Drawn, PairDraws, PairRows
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.random.host_generator import SMALL, ElementStreams

if TYPE_CHECKING:
    from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior

BLOCK = 2**21  # concentrations of components that are held at once
ROWS = 1
"""Purpose of the random numbers of rows (see `ElementStreams`)."""


@dataclass(frozen=True, eq=False)
class Components:
    """The priors of K components that share their data, and a stream of draws of these.

    Args:
        choose: number -> the components of so many draws.
        row_prior: (components [N], elements [U] of the stacked site rows) -> concentrations before data.
        range_of: elements -> the smallest and largest of these over all components.
        reward_prior: (components [N], elements [M] of the reward sites) -> the beliefs before data; None: they are
            the same in all components.
    """

    choose: Callable[[int], Int[np.ndarray, " N"]]
    row_prior: Callable[[Int[np.ndarray, " N"], Int[np.ndarray, " U"]], Float[np.ndarray, "N U"]]
    range_of: Callable[[Int[np.ndarray, " U"]], tuple[Float[np.ndarray, " U"], Float[np.ndarray, " U"]]]
    reward_prior: ComponentPrior | None

    @classmethod
    def of(
        cls,
        choose: Callable[[int], Int[np.ndarray, " N"]],
        row_prior: Callable[[Int[np.ndarray, " N"], Int[np.ndarray, " U"]], Float[np.ndarray, "N U"]],
        reward_prior: ComponentPrior | None,
        number: int,
    ) -> "Components":
        """Components 0 to number - 1 (arguments: see the class)."""

        def range_of(element: Int[np.ndarray, " U"]) -> tuple[Float[np.ndarray, " U"], Float[np.ndarray, " U"]]:
            # In blocks: there may be a thousand components with a million elements.
            step = max(1, BLOCK // max(len(element), 1))
            parts = [row_prior(np.arange(k, min(k + step, number)), element) for k in range(0, number, step)]
            return np.min([x.min(0) for x in parts], 0), np.max([x.max(0) for x in parts], 0)

        return cls(choose, row_prior, range_of, reward_prior)


def conjugate_pair_draws(
    key: PRNGKeyArray,
    posterior: "ConjugatePosterior",
    needed: Bool[np.ndarray, "*H S A"],
    components: Components | None = None,
) -> PairDraws:
    """A stream of draws of the needed pairs.

    Args:
        key: of the draws.
        posterior: the belief; with `components` its data, and what all components share.
        needed: which pairs.
        components: of a mixture; None: the belief itself.
    """
    rows, draw_rows = _rows(key, posterior.transition_probs, posterior.space, needed, components)
    prior = None if components is None else components.reward_prior
    draw_rewards = posterior.reward_cells.drawer(key, rows.cells(posterior.rewards_by_outcome), prior)

    def draw(num: int) -> Drawn:
        component = None if components is None else components.choose(num)
        probs, reward = draw_rows(num, component), draw_rewards(num, component)
        if posterior.rewards_by_outcome:
            reward = rows.expectation(probs, reward)
        return Drawn(probs, reward)

    return PairDraws(rows, draw)


def row_concentrations(
    belief: DirichletRows, space: StateActionSpace, needed: Bool[np.ndarray, "*H S A"]
) -> tuple[PairRows, Float[np.ndarray, " E"]]:
    """The possible outcomes of needed rows of which none is known, and their concentrations after data.

    Args:
        belief: about the rows.
        space: its space.
        needed: which pairs.
    """
    index = np.nonzero(needed)
    concentration = np.asarray(belief.concentration, np.float64)[index]
    pair, outcome = np.nonzero(concentration)
    first = np.searchsorted(pair, np.arange(len(concentration) + 1))
    step = index[0] if len(index) == 3 else None
    next_state = _reached(space, index, pair, outcome)
    rows = PairRows(step, index[-2], index[-1], first, outcome, next_state, space.n_states)
    return rows, concentration[pair, outcome]


def _rows(
    key: PRNGKeyArray,
    belief: DirichletRows,
    space: StateActionSpace,
    needed: Bool[np.ndarray, "*H S A"],
    components: Components | None,
) -> tuple[PairRows, Callable[[int, Int[np.ndarray, " N"] | None], Float[np.ndarray, "N E"]]]:
    """The possible outcomes of the needed rows, and (number, components) -> draws of their probabilities."""
    index = np.nonzero(needed)
    size = belief.shape[-1]
    site_row = np.arange(needed.size).reshape(needed.shape)[index] if belief.row is None else _at(belief.row, index)
    column = np.broadcast_to(np.arange(size), (len(site_row), size))
    column = column if belief.column is None else _at(belief.column, index)
    inside = (site_row >= 0)[:, None] & (column >= 0)
    # Whole site rows are drawn, once for all pairs that share them.
    used, place = np.unique(site_row[site_row >= 0], return_inverse=True)
    concentration, most, elements = _concentrations(belief, used, components)
    slot = np.zeros(len(site_row), int)
    slot[site_row >= 0] = place
    possible = np.zeros(column.shape, bool)
    possible[inside] = (most > 0)[np.broadcast_to(slot[:, None], column.shape)[inside], column[inside]]
    known = None
    if belief.known is not None:
        known = np.where((site_row < 0)[:, None], _at(belief.known, index), 0.0).astype(np.float64)
        possible |= known > 0
    pair, outcome = np.nonzero(possible)
    first = np.searchsorted(pair, np.arange(len(site_row) + 1))
    step = index[0] if len(index) == 3 else None
    next_state = _reached(space, index, pair, outcome)
    rows = PairRows(step, index[-2], index[-1], first, outcome, next_state, space.n_states)
    # Where each entry lies among the positive elements of the used site rows.
    taken, position = most > 0, np.full(most.shape, -1)
    position[taken] = np.arange(taken.sum())
    drawn_first = np.concatenate([[0], np.cumsum(taken.sum(-1))])
    chosen = inside[pair, outcome]
    source = np.zeros(len(pair), int)
    source[chosen] = position[slot[pair[chosen]], column[pair[chosen], outcome[chosen]]]
    fixed = None if known is None else known[pair, outcome]
    in_order = fixed is None and len(source) == taken.sum() and bool((source == np.arange(len(source))).all())
    streams = ElementStreams(key, ROWS, used)
    # By the belief, not by a draw: which numbers a row is made from must not depend on blocks.
    small = np.where(taken, concentration, 0.0).max(-1) < SMALL
    alpha, flat = concentration[taken], elements[taken]
    counts = None if components is None else _counts(belief, used)[taken]

    def draw(num: int, component: Int[np.ndarray, " N"] | None) -> Float[np.ndarray, "N E"]:
        each = alpha
        if components is not None and component is not None:
            each = components.row_prior(component, flat) + counts
        drawn = streams.dirichlets(num, each, drawn_first, small)
        if in_order:
            return drawn
        if fixed is None:
            return drawn[:, source]
        filled = np.broadcast_to(fixed, (num, len(fixed))).copy()
        filled[:, chosen] = drawn[:, source[chosen]]
        return filled

    return rows, draw


def _counts(belief: DirichletRows, used: Int[np.ndarray, " R"]) -> Float[np.ndarray, "R K"]:
    """Counts of every column of some site rows."""
    counts = np.asarray(belief.counts, np.float64)[used]
    if belief.successor is None:
        return counts
    dense = np.zeros((len(used), belief.prior.shape[1]))
    np.add.at(dense, (np.arange(len(used))[:, None], np.asarray(belief.successor)[used]), counts)
    return dense


def _concentrations(
    belief: DirichletRows, used: Int[np.ndarray, " R"], components: Components | None
) -> tuple[Float[np.ndarray, "R K"], Float[np.ndarray, "R K"], Int[np.ndarray, "R K"]]:
    """Least and largest concentrations after data of some site rows, and the numbers of their elements."""
    width = belief.prior.shape[1]
    elements = used[:, None] * width + np.arange(width)
    counts = _counts(belief, used)
    if components is None:
        after = np.asarray(belief.prior, np.float64)[used] + counts
        return after, after, elements
    least, most = (x.reshape(elements.shape) for x in components.range_of(elements.ravel()))
    return least + counts, most + counts, elements


def _at(table: object, index: tuple[Int[np.ndarray, " Q"], ...]) -> np.ndarray:
    return np.asarray(table)[index]


def _reached(
    space: StateActionSpace,
    index: tuple[Int[np.ndarray, " Q"], ...],
    pair: Int[np.ndarray, " E"],
    outcome: Int[np.ndarray, " E"],
) -> Int[np.ndarray, " E"]:
    """The next state of each entry, S for the end."""
    if space.successors is None:
        return outcome
    listed = np.asarray(space.successors)
    where = index if listed.ndim == 4 else index[-2:]
    reached = listed[(*(i[pair] for i in where), outcome)]
    # An illegal pair without a successor stays where it is.
    return np.where(reached < 0, index[-2][pair], reached)
