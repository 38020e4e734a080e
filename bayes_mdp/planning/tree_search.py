"""Bayes-adaptive Monte Carlo planning (Guez, Silver and Dayan 2012, algorithm 1): simulations in a tree, by numba.

A node of the tree is a history: the actions and outcomes since the root. An MDP is drawn once at the root of every
simulation, and never looked at again but where the simulation goes: the rows of the posterior given a history need not
be computed, since a history is reached as often as the MDPs that lead there are drawn (root sampling, theorem 1 there).

First one simulation, compiled; then `Search`, the simulations for one decision, and what the tree says at its root.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from bayes_mdp.mdp.lazy_belief import LazyBelief, LazyRewards, LazyRows
from bayes_mdp.numerics.numba_function import cache_on_disk, compile_loop
from bayes_mdp.planning.kept_tree import SLOTS_PER_NODE, KeptTree, search_depth

NONE = -1  # no node, no step
LARGEST = 1.0 - 2.0**-52
SALT = np.int64(-7046029254386353131)  # odd: multiplying by it permutes 64-bit numbers


class Tree(NamedTuple):
    """A tree of up to N nodes, the root first; a child has a larger number than its parent.

    Args:
        visits: Int64[N A], simulations that took an action in a node.
        q: Float64[N A], mean return of these from there on.
        squares: Float64[N A], sum of the squared deviations of these returns from their mean.
        parent, edge, depth: Int64[N], of each node: where it hangs, by which action and label, how deep.
        slots: Int64[M], the nodes by hash of (parent, edge), M a power of two; -1: free.
        used: Int64[1], number of nodes.
        sims: Int64[1], number of simulations so far.
    """

    visits: np.ndarray
    q: np.ndarray
    squares: np.ndarray
    parent: np.ndarray
    edge: np.ndarray
    depth: np.ndarray
    slots: np.ndarray
    used: np.ndarray
    sims: np.ndarray


class Urns(NamedTuple):
    """The arrays of `LazyRows`, or of `LazyRewards`, that are drawn from.

    Args:
        cumulative: Float64[R M K], running sums of concentrations.
        learns: Bool[M].
        size: Int64[M], scratch: number of outcomes of each urn in this simulation.
        stamp: Int64[M], scratch: the simulation that these belong to.
        drawn: Int32[M D], scratch: these outcomes.
    """

    cumulative: np.ndarray
    learns: np.ndarray
    size: np.ndarray
    stamp: np.ndarray
    drawn: np.ndarray


class Model(NamedTuple):
    """The rest of a `LazyBelief`, and which actions are legal; arrays of size zero stand for None.

    Args:
        weights: Float64[C], running sums of the weights of the components.
        row: Int64[T S A]; outcome: Int64[T S A K]; successor: Int64[T S A O]; see `LazyRows`.
        cell: Int64[T S A W]; value: Float64[V L J]; see `LazyRewards`.
        actions: Int64[S A], the legal actions of each state, first; num_actions: Int64[S], how many they are.
        initial: Float64[S], running sums of the distribution of the first state of an episode; of size zero: not known.
    """

    weights: np.ndarray
    row: np.ndarray
    outcome: np.ndarray
    successor: np.ndarray
    cell: np.ndarray
    value: np.ndarray
    actions: np.ndarray
    num_actions: np.ndarray
    initial: np.ndarray


class Rules(NamedTuple):
    """Numbers of a search.

    Args:
        state, step: of the root.
        horizon: steps of an episode; 0: it goes on until it ends.
        episodes: that a simulation plays at most, the one of the root included.
        depth: D, steps of a simulation at most.
        discount: of the next step.
        exploration: c of UCT.
        random_rollouts: probability that an action of a rollout is random, not greedy in `rollout_q`.
    """

    state: int
    step: int
    horizon: int
    episodes: int
    depth: int
    discount: float
    exploration: float
    random_rollouts: float


@compile_loop
def below(cumulative: np.ndarray, u: float) -> int:
    """The first place whose running sum exceeds `u`: by bisection."""
    low, high = 0, len(cumulative) - 1
    while low < high:
        middle = (low + high) // 2
        if cumulative[middle] > u:
            high = middle
        else:
            low = middle + 1
    return low


@compile_loop
def draw(urns: Urns, component: int, urn: int, simulation: int, rng: np.random.Generator) -> int:
    """What an urn gives next in this simulation.

    With concentrations a of total a0 and n outcomes so far, outcome k has probability (a_k + n_k) / (a0 + n): with
    probability n / (a0 + n) it is a copy of an earlier one, chosen uniformly.
    """
    sums = urns.cumulative[component, urn]
    total = sums[-1]
    largest = total * LARGEST  # less than the total, whatever is rounded: places of probability zero are never drawn
    if not urns.learns[urn]:
        return below(sums, min(rng.random() * total, largest))
    # The first time in this simulation nothing was drawn yet.
    count = urns.size[urn] if urns.stamp[urn] == simulation else 0
    # Polya's urn: what was drawn in this simulation weighs 1 each beside the prior and data (`total`).
    u = rng.random() * (total + count)
    outcome = below(sums, min(u, largest)) if u < total else urns.drawn[urn, min(int(u - total), count - 1)]
    urns.drawn[urn, count] = outcome
    urns.size[urn] = count + 1
    urns.stamp[urn] = simulation
    return outcome


@compile_loop
def slot_of(tree: Tree, parent: int, edge: int) -> int:
    """The slot of a child: the one that holds it, or the free one where it belongs."""
    # Open addressing with linear probing: the number of slots is a power of two.
    mask = len(tree.slots) - 1
    mixed = (np.int64(parent) * np.int64(1000003) + np.int64(edge)) * SALT
    slot = (mixed ^ (mixed >> np.int64(29))) & mask
    while True:
        node = tree.slots[slot]
        if node == NONE or (tree.parent[node] == parent and tree.edge[node] == edge):
            return int(slot)
        slot = (slot + 1) & mask


@compile_loop
def child_of(tree: Tree, parent: int, edge: int) -> int:
    """A child; -1 where there was none: it is added then, if there is room, and what follows is a rollout."""
    slot = slot_of(tree, parent, edge)
    child = tree.slots[slot]
    if child == NONE:
        add_node(tree, slot, parent, edge)
    return child


@compile_loop
def add_node(tree: Tree, slot: int, parent: int, edge: int) -> int:
    """A new child in a free slot; -1 where the tree is full."""
    node = tree.used[0]
    if node == len(tree.parent):
        return NONE
    tree.used[0] = node + 1
    tree.visits[node, :] = 0
    tree.q[node, :] = 0.0
    tree.squares[node, :] = 0.0
    tree.parent[node] = parent
    tree.edge[node] = edge
    tree.depth[node] = tree.depth[parent] + 1
    tree.slots[slot] = node
    return node


@compile_loop
def greedy(actions: np.ndarray, q: np.ndarray, rng: np.random.Generator) -> int:
    """The action of the largest value, ties at random."""
    chosen, best, ties = actions[0], -np.inf, 0
    for action in actions:
        if q[action] > best:
            chosen, best, ties = action, q[action], 1
        elif q[action] == best:
            # Reservoir sampling among ties: the k-th stays with probability 1 / k.
            ties += 1
            if rng.random() * ties < 1.0:
                chosen = action
    return chosen


@compile_loop
def uct(
    tree: Tree, node: int, actions: np.ndarray, exploration: float, scores: np.ndarray, rng: np.random.Generator
) -> int:
    """The action of largest Q + c sqrt(log(N + 1) / n); one that was never taken first; `scores` [A] is scratch."""
    visits, q = tree.visits[node], tree.q[node]
    total = 0
    for action in actions:
        total += visits[action]
    log_total = np.log(total + 1.0)
    for action in actions:
        number = visits[action]
        # UCB1 (Auer, Cesa-Bianchi and Fischer 2002) on the counts of this history.
        scores[action] = np.inf if number == 0 else q[action] + exploration * np.sqrt(log_total / number)
    return greedy(actions, scores, rng)


@compile_loop
def back_up(
    tree: Tree, nodes: np.ndarray, taken: np.ndarray, paid: np.ndarray, length: int, in_tree: int, discount: float
) -> None:
    """Running means of the returns from every step in the tree on."""
    total = 0.0
    for t in range(length - 1, -1, -1):
        # The return from step t on; steps below the tree are part of it, but have no node.
        total = paid[t] + discount * total
        if t < in_tree:
            node, action = nodes[t], taken[t]
            # Welford's update: mean, and sum of squared deviations for the standard error.
            tree.visits[node, action] += 1
            change = total - tree.q[node, action]
            tree.q[node, action] += change / tree.visits[node, action]
            tree.squares[node, action] += change * (total - tree.q[node, action])


@cache_on_disk
def simulate(
    tree: Tree,
    model: Model,
    rows: Urns,
    rewards: Urns,
    rules: Rules,
    rollout_q: np.ndarray,
    number: int,
    rng: np.random.Generator,
) -> None:
    """`number` simulations from the root."""
    n_states, n_labels = model.row.shape[1], rewards.cumulative.shape[2]
    periods, n_outcomes = model.row.shape[0], n_states + 1
    nodes = np.empty(rules.depth, np.int64)
    taken = np.empty(rules.depth, np.int64)
    paid = np.empty(rules.depth)
    scores = np.empty(model.row.shape[2])
    for _ in range(number):
        simulation = tree.sims[0] + 1
        tree.sims[0] = simulation
        # 1. Root sampling: the component now, rows and rewards when they are met.
        component = below(model.weights, rng.random() * model.weights[-1]) if len(model.weights) > 1 else 0
        # One table may serve all components: then its axis has length 1.
        of_rows, of_rewards = component % rows.cumulative.shape[0], component % rewards.cumulative.shape[0]
        of_value = component % model.value.shape[0]
        node, state, length, in_tree = 0, rules.state, 0, 0
        step, episodes = rules.step, rules.episodes
        for t in range(rules.depth):
            # 2. UCT inside the tree, the rollout policy below it.
            number_of_actions = model.num_actions[state]
            if node >= 0:
                action = uct(tree, node, model.actions[state, :number_of_actions], rules.exploration, scores, rng)
                nodes[t], in_tree = node, t + 1
            elif rules.random_rollouts >= 1.0 or rng.random() < rules.random_rollouts:
                action = model.actions[state, int(rng.random() * number_of_actions)]
            else:
                action = greedy(model.actions[state, :number_of_actions], rollout_q[state], rng)
            # 3. One step of the drawn MDP.
            h = step % periods if periods > 1 else 0
            column = draw(rows, of_rows, model.row[h, state, action], simulation, rng)
            outcome = column
            # Rows are urns over columns; a table says which outcome a column is.
            if model.outcome.size:
                outcome = model.outcome[h if model.outcome.shape[0] > 1 else 0, state, action, column]
            place = outcome if model.cell.shape[3] > 1 else 0
            cell = model.cell[h if model.cell.shape[0] > 1 else 0, state, action, place]
            # The label of the reward is part of what is observed: it has a branch of its own.
            label = draw(rewards, of_rewards, cell, simulation, rng) if n_labels > 1 else 0
            taken[t] = action
            paid[t] = model.value[of_value, cell, label]
            length = t + 1
            if model.successor.size:
                outcome = model.successor[h if model.successor.shape[0] > 1 else 0, state, action, outcome]
            step += 1
            ended = outcome >= n_states or step == rules.horizon
            if ended and episodes == 1:
                break
            # 4. Down to the child of this outcome, and after an episode from there to that of the new first state.
            if node >= 0:
                node = child_of(tree, node, (action * n_outcomes + outcome) * n_labels + label)
            state = outcome
            if ended:
                state, step, episodes = below(model.initial, rng.random() * model.initial[-1]), 0, episodes - 1
                if node >= 0:
                    node = child_of(tree, node, model.row.shape[2] * n_outcomes * n_labels + state)
        back_up(tree, nodes, taken, paid, length, in_tree, rules.discount)


@compile_loop
def fill_slots(tree: Tree) -> None:
    """The slots and depths of a tree whose nodes are there."""
    for node in range(1, tree.used[0]):
        # Hashes are not stored: they follow from parent and edge.
        tree.slots[slot_of(tree, tree.parent[node], tree.edge[node])] = node
        tree.depth[node] = tree.depth[tree.parent[node]] + 1


@compile_loop
def carry_over(tree: Tree, child: int, new: Tree, most: int) -> None:
    """Copy the part of a tree below `child` into `new`, an empty one, with `child` as its root.

    At most `most` nodes, the oldest ones: what follows needs room, or the tree could not grow where it has to.
    """
    number = np.full(tree.used[0], NONE, np.int64)
    number[child] = 0
    new.visits[0], new.q[0], new.squares[0] = tree.visits[child], tree.q[child], tree.squares[child]
    # Nodes beyond the room are left out, and with them all below.
    for node in range(child + 1, tree.used[0]):  # parents come before their children
        parent = number[tree.parent[node]]
        if parent == NONE or new.used[0] >= most:
            continue
        edge = int(tree.edge[node])
        copy = add_node(new, slot_of(new, int(parent), edge), int(parent), edge)
        new.visits[copy], new.q[copy], new.squares[copy] = tree.visits[node], tree.q[node], tree.squares[node]
        number[node] = copy


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
    # Sum of discounts of the remaining steps: the standard deviation of a sum grows as its square root.
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
        # Without a distribution of first states no further episode can begin.
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
        simulate(
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
    # Tables with an axis of steps need the step of the decision; others have one entry.
    steps = max(len(table) for table in tables if table is not None)
    return Model(
        weights=np.cumsum(np.asarray(belief.weights, np.float64)),
        row=np.ascontiguousarray(np.broadcast_to(row, (steps, *row.shape[1:]))),
        outcome=_whole(rows.outcome),
        successor=_whole(rows.successor),
        cell=_whole(rewards.cell),
        value=np.ascontiguousarray(rewards.value, np.float64),
        # Legal actions first, in their order; `num_actions` says how many.
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
    # At most half of the slots are filled, so that a probe is short.
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
    # Rows of nodes are cleared when they are added; that of the root is here.
    for table in (tree.visits, tree.q, tree.squares, tree.depth):
        table[0] = 0
    tree.parent[0] = tree.edge[0] = -1
    return tree


def root_answer(tree: Tree) -> RootAnswer:
    """What the simulations of a tree say of the actions at its root."""
    visits = tree.visits[0].copy()
    with np.errstate(divide="ignore", invalid="ignore"):
        # Standard error of the mean, from Welford's sum of squares.
        error = np.sqrt(tree.squares[0] / (visits - 1.0) / visits)
    used = int(tree.used[0])
    q = np.where(visits > 0, tree.q[0], -np.inf)
    return RootAnswer(q, visits, np.where(visits > 1, error, np.nan), used, int(tree.depth[:used].max()))


def subtree_below(
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


def resume(kept: KeptTree, belief: LazyBelief, state: int, step: int | None, room: int) -> Tree | None:
    """The tree for a decision from that of the decision before; None: it has none there.

    Args:
        kept: the tree before, and the transition that followed.
        belief: as of `subtree_below`.
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
    transition = (int(kept.state), int(kept.step), int(kept.action), int(kept.outcome))
    return subtree_below(tree, belief, *transition, float(kept.reward), max(1, len(kept.parent) - room))


def store_tree(tree: Tree, like: KeptTree) -> KeptTree:
    """A tree in the arrays of `like`, which no transition has followed yet."""
    used = int(tree.used[0])

    def pad(name: str) -> np.ndarray:
        old = getattr(like, name)
        new = np.zeros_like(old)
        new[:used] = getattr(tree, name)[:used]
        return new

    tables = {name: pad(name) for name in ("visits", "q", "squares", "parent", "edge")}
    number, none = (np.asarray(x, np.asarray(like.used).dtype) for x in (used, -1))
    return like._replace(**tables, used=number, action=none)
