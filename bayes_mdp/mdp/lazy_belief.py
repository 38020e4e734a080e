"""`LazyBelief`: a posterior as plain arrays from which one row at a time is drawn, for planners that simulate.

A simulation in an MDP drawn from the posterior needs the rows that it meets and no others. Where a row is Dirichlet it
needs not even the row, only its outcomes: the first comes from the mean of the row, the next ones from the mean given
those before (Blackwell and MacQueen 1973, the urn of Polya). The outcomes then have exactly the law that they have if
the row is drawn first and kept, and no gamma variate is drawn. Rewards with finitely many values likewise.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from bayes_mdp.utils.typing import AnyArray


class LazyRows(NamedTuple):
    """Site rows: what rows of the MDP have in common is one site row.

    Args:
        cumulative: [R M K], running sums of the concentrations of M site rows over K columns, which do not rise where a
            concentration is zero; component c has the entry c modulo R.
        learns: [M], whether an outcome changes what is believed of the next: an urn. False: the row is known.
        row: [T S A], the site row of each pair; T steps, or one for all of them (of each table by itself).
        outcome: [T S A K], the outcome of each column; None: the column.
        successor: [T S A O], the state of each outcome, S for the end; None: the outcome.
    """

    cumulative: Float[AnyArray, "R M K"]
    learns: Bool[AnyArray, " M"]
    row: Int[AnyArray, "T S A"]
    outcome: Int[AnyArray, "T S A K"] | None = None
    successor: Int[AnyArray, "T S A O"] | None = None


class LazyRewards(NamedTuple):
    """Reward cells: what is paid, and what can be told of it afterwards.

    Args:
        cumulative: [Q L J], running sums of the concentrations of J labels of L reward cells; component c has the entry
            c modulo Q.
        learns: [L], as in `LazyRows`.
        value: [V L J], what is paid with each label, in units of the reward; component c has the entry c modulo V.
        cell: [T S A W], the reward cell of each pair (W = 1) or of each of its outcomes (W = O).
        edges: [L J - 1], where a label is the bin of a reward: the edges between the bins; None: a label is a value.
    """

    cumulative: Float[AnyArray, "Q L J"]
    learns: Bool[AnyArray, " L"]
    value: Float[AnyArray, "V L J"]
    cell: Int[AnyArray, "T S A W"]
    edges: Float[AnyArray, "L J-1"] | None = None


class LazyBelief(NamedTuple):
    """A mixture of C components, in each of which rows and rewards are independent.

    Args:
        weights: [C], probabilities of the components.
        rows, rewards: of every component.
    """

    weights: Float[AnyArray, " C"]
    rows: LazyRows
    rewards: LazyRewards


def lazy_bytes(belief: LazyBelief) -> int:
    """Bytes of the arrays."""
    arrays = [*belief.rows, *belief.rewards, belief.weights]
    return sum(int(np.prod(np.shape(x))) * 8 for x in arrays if x is not None)
