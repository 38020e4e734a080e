"""Simulations for one decision in one tree (`Search`), and what the tree says at its root. Host side, by numba."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from bayes_mdp.mdp.lazy_belief import LazyBelief, LazyRewards, LazyRows
from bayes_mdp.planning.kept_tree import SLOTS_PER_NODE, KeptTree, search_depth
from bayes_mdp.planning.tree_simulations import (
    Model,
    Rules,
    Tree,
    Urns,
    carry_over,
    fill_slots,
    run_simulations,
    slot_of,
)


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


class Decision(NamedTuple):
    """Where a decision is, and what is summed.

    Args:
        state, step: the state, and the step of the episode.
        horizon: steps of an episode; None: it goes on until it ends.
        discount: of the next step.
        episodes: that a simulation plays at most, this one included; None: as many as its steps reach.
    """

    state: int
    step: int
    horizon: int | None
    discount: float
    episodes: int | None = 1


def default_exploration(rewards: LazyRewards, depth: int, discount: float) -> float:
    """c of UCT: the range of the rewards of a step, zero included, times the square root of the number of steps.

    The range is over all cells, also those of illegal pairs; where values differ by component, of their means over
    components plus and minus a standard deviation. Steps are counted with their discounts. The bonus of UCT is meant
    for returns in [0, 1]; the scale of a return is its range. By the square root, as of sums of independent rewards, it
    is less for long simulations. Measured on 22 problems with exact values (`benchmarks/bayes_adaptive.py`).
    """
    mean, sd = rewards.value.mean(0), rewards.value.std(0)
    reach = float(max((mean + sd).max(), 0.0) - min((mean - sd).min(), 0.0)) or 1.0
    steps = depth if discount >= 1.0 else (1.0 - discount**depth) / (1.0 - discount)
    return reach * steps**0.5


class Search:
    """One decision: simulations from a state, as many as are asked for, in one tree.

    Args:
        belief: arrays of NumPy, as in `LazyBelief`.
        legal: Bool[S A]; None: all actions.
        initial: Float[S], distribution of the first state of the next episodes; None: not known, one episode is played.
        decision: where it is, and what is summed.
        exploration: c of UCT; None: see `default_exploration`.
        random_rollouts: probability that an action of a rollout is random.
        rollout_q: Float[S A], in which it is greedy otherwise.
        max_depth: steps of a simulation at most; None: see `search_depth`.
        rng: of the simulations.
        tree: to go on with; it is changed.
    """

    def __init__(
        self,
        belief: LazyBelief,
        legal: Bool[np.ndarray, "S A"] | None,
        initial: Float[np.ndarray, " S"] | None,
        decision: Decision,
        *,
        exploration: float | None,
        random_rollouts: float,
        rollout_q: Float[np.ndarray, "S A"],
        max_depth: int | None,
        rng: np.random.Generator,
        tree: Tree,
    ) -> None:
        episodes = 1 if initial is None else decision.episodes
        depth = search_depth(decision.horizon, decision.step, max_depth, decision.discount, episodes)
        if exploration is None:
            exploration = default_exploration(belief.rewards, depth, decision.discount)
        self._rules = Rules(
            decision.state,
            decision.step,
            decision.horizon or 0,
            episodes or depth,
            depth,
            decision.discount,
            float(exploration),
            float(random_rollouts),
        )
        self._model = _model(belief, legal, initial, rollout_q.shape)
        self._rows, self._rewards = _urns(belief.rows, depth), _urns(belief.rewards, depth)
        self._rollout_q = np.ascontiguousarray(rollout_q, np.float64)
        self._rng = rng
        self.tree = tree

    def run(self, num_simulations: int) -> None:
        """So many more simulations."""
        run_simulations(
            self.tree,
            self._model,
            self._rows,
            self._rewards,
            self._rules,
            self._rollout_q,
            num_simulations,
            self._rng,
        )

    def answer(self) -> RootAnswer:
        """What all simulations so far say."""
        return root_answer(self.tree)


def _model(
    belief: LazyBelief,
    legal: Bool[np.ndarray, "S A"] | None,
    initial: Float[np.ndarray, " S"] | None,
    shape: tuple[int, ...],
) -> Model:
    allowed = np.ones(shape, bool) if legal is None else np.asarray(legal)
    rows, rewards = belief.rows, belief.rewards
    row, tables = _whole(rows.row), (rows.row, rows.outcome, rows.successor, rewards.cell)
    steps = max(len(table) for table in tables if table is not None)
    return Model(
        weights=np.cumsum(np.asarray(belief.weights, np.float64)),
        row=np.ascontiguousarray(np.broadcast_to(row, (steps, *row.shape[1:]))),
        outcome=_whole(rows.outcome),
        successor=_whole(rows.successor),
        cell=_whole(rewards.cell),
        value=np.ascontiguousarray(rewards.value, np.float64),
        actions=np.argsort(~allowed, axis=1, kind="stable"),
        num_actions=allowed.sum(1),
        initial=np.cumsum(np.zeros(0) if initial is None else np.asarray(initial, np.float64)),
    )


def _whole(table: object) -> Int[np.ndarray, "..."]:
    return np.zeros((0, 0, 0, 0), np.int64) if table is None else np.ascontiguousarray(table, np.int64)


def _urns(part: LazyRows | LazyRewards, depth: int) -> Urns:
    cumulative = np.ascontiguousarray(part.cumulative, np.float64)
    number = cumulative.shape[1]
    learns = np.ascontiguousarray(part.learns, np.bool_)
    size, stamp = np.zeros((2, number), np.int64)
    # Memory of pages that are never written is never taken.
    drawn = np.zeros((number if learns.any() else 1, depth), np.int32)
    return Urns(cumulative, learns, size, stamp, drawn)


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
