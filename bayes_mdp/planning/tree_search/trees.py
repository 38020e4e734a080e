"""Trees on the host: made, kept from one decision to the next, and read at the root."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from bayes_mdp.mdp.lazy_belief import LazyBelief
from bayes_mdp.planning.tree_search.kept_tree import KeptTree
from bayes_mdp.planning.tree_search.limits import SLOTS_PER_NODE
from bayes_mdp.planning.tree_search.simulations import Tree, carry_over, fill_slots, slot_of


class RootAnswer(NamedTuple):
    """What the simulations say of the actions at the root.

    Args:
        q: Float64[A], mean return; -inf for actions that are illegal or were never taken.
        visits: Int64[A].
        standard_error: Float64[A], of `q`, as if returns were independent: they are not, the tree learns. nan below
            two visits.
        num_nodes: of the tree.
        depth: of its deepest node.
    """

    q: Float[np.ndarray, " A"]
    visits: Int[np.ndarray, " A"]
    standard_error: Float[np.ndarray, " A"]
    num_nodes: int
    depth: int

    @property
    def action(self) -> int:
        """That of the largest mean return; of several the one taken most often, then the first."""
        best = self.q == self.q.max()
        return int(np.argmax(np.where(best, self.visits, -1)))


def new_tree(num_nodes: int, n_actions: int) -> Tree:
    """A tree of one node, the root, with room for `num_nodes`."""
    slots = 2 ** math.ceil(math.log2(SLOTS_PER_NODE * num_nodes + 1))
    tree = Tree(
        visits=np.empty((num_nodes, n_actions), np.int64),
        q=np.empty((num_nodes, n_actions)),
        squares=np.empty((num_nodes, n_actions)),
        parent=np.empty(num_nodes, np.int64),
        edge=np.empty(num_nodes, np.int64),
        depth=np.empty(num_nodes, np.int64),
        slots=np.full(slots, -1, np.int64),
        used=np.ones(1, np.int64),
        sims=np.zeros(1, np.int64),
    )
    for table in (tree.visits, tree.q, tree.squares, tree.depth):
        table[0] = 0
    tree.parent[0] = tree.edge[0] = -1
    return tree


def root_answer(tree: Tree) -> RootAnswer:
    """What the simulations of a tree say of the actions at its root."""
    visits = tree.visits[0].copy()
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.sqrt(tree.squares[0] / (visits - 1.0) / visits)
    used = int(tree.used[0])
    q = np.where(visits > 0, tree.q[0], -np.inf)
    return RootAnswer(q, visits, np.where(visits > 1, error, np.nan), used, int(tree.depth[:used].max()))


def kept_below(
    tree: Tree, belief: LazyBelief, state: int, step: int, action: int, outcome: int, reward: float, most: int
) -> Tree | None:
    """The part of a tree below a real transition, in a tree of the same size; None: it has no such node.

    Its simulations were drawn from the belief before the transition; those that led here are draws from the belief
    after it (Bayes), where that has learnt from nothing but what the labels of the tree tell apart.

    Args:
        tree: of the decision before.
        belief: as then or now: the labels of rewards are read.
        state, step, action: of the transition.
        outcome: the next state, S for the end.
        reward: that was paid.
        most: nodes that are kept; the oldest ones.
    """
    rows, rewards = belief.rows, belief.rewards
    n_states, n_labels = np.shape(rows.row)[1], np.shape(rewards.cumulative)[2]
    place = 0
    if np.shape(rewards.cell)[3] > 1:
        place = outcome
        if rows.successor is not None:
            listed = np.asarray(rows.successor)[step % len(rows.successor), state, action]
            place = int(np.flatnonzero(listed == outcome)[0])
    cell = np.asarray(rewards.cell)[step % len(rewards.cell), state, action, place]
    label = int(np.argmin(np.abs(np.asarray(rewards.value)[0, cell] - reward))) if n_labels > 1 else 0
    child = int(tree.slots[slot_of(tree, 0, (action * (n_states + 1) + outcome) * n_labels + label)])
    if child < 0:
        return None
    new = new_tree(len(tree.parent), tree.visits.shape[1])
    carry_over(tree, child, new, most)
    return new


def resumed(kept: KeptTree, belief: LazyBelief, state: int, step: int | None, room: int) -> Tree | None:
    """The tree for a decision from that of the decision before; None: it has none there.

    Args:
        kept: the tree before, and the transition that followed.
        belief: as of `kept_below`.
        state: of the decision.
        step: of the episode; None: it is not counted.
        room: nodes that the simulations to come may add.
    """
    used = int(kept.used)
    if not used or int(kept.action) < 0 or int(kept.outcome) != state or step not in (None, int(kept.step) + 1):
        return None
    tree = new_tree(*kept.visits.shape)
    for name in ("visits", "q", "squares", "parent", "edge"):
        getattr(tree, name)[:used] = getattr(kept, name)[:used]
    tree.used[0] = used
    fill_slots(tree)
    where = (int(kept.state), int(kept.step), int(kept.action), int(kept.outcome))
    return kept_below(tree, belief, *where, float(kept.reward), max(1, len(kept.parent) - room))


def stored(tree: Tree, like: KeptTree) -> KeptTree:
    """A tree in the arrays of `like`, which no transition has followed yet."""
    used = int(tree.used[0])

    def padded(name: str) -> np.ndarray:
        old = getattr(like, name)
        new = np.zeros_like(old)
        new[:used] = getattr(tree, name)[:used]
        return new

    tables = {name: padded(name) for name in ("visits", "q", "squares", "parent", "edge")}
    number, none = (np.asarray(x, np.asarray(like.used).dtype) for x in (used, -1))
    return like._replace(**tables, used=number, action=none)
