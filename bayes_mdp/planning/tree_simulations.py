"""The simulations of Bayes-adaptive Monte Carlo planning (Guez, Silver and Dayan 2012, algorithm 1), compiled by numba.

A node of the tree is a history: the actions and outcomes since the root. An MDP is drawn once at the root of every
simulation, and never looked at again but where the simulation goes: the rows of the posterior given a history need not
be computed, since a history is reached as often as the MDPs that lead there are drawn (root sampling, theorem 1 there).
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from bayes_mdp.numerics.numba_function import code_of, compiled, kept

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


@compiled
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


@compiled
def draw(urns: Urns, component: int, urn: int, simulation: int, rng: np.random.Generator) -> int:
    """What an urn gives next in this simulation.

    With concentrations a of total a0 and n outcomes so far, outcome k has probability (a_k + n_k) / (a0 + n): with
    probability n / (a0 + n) it is a copy of an earlier one, chosen uniformly.
    """
    sums = urns.cumulative[component, urn]
    total = sums[-1]
    most = total * LARGEST  # less than the total, whatever is rounded: places of probability zero are never drawn
    if not urns.learns[urn]:
        return below(sums, min(rng.random() * total, most))
    # The first time in this simulation nothing was drawn yet.
    count = urns.size[urn] if urns.stamp[urn] == simulation else 0
    u = rng.random() * (total + count)
    found = below(sums, min(u, most)) if u < total else urns.drawn[urn, min(int(u - total), count - 1)]
    urns.drawn[urn, count] = found
    urns.size[urn] = count + 1
    urns.stamp[urn] = simulation
    return found


@compiled
def slot_of(tree: Tree, parent: int, edge: int) -> int:
    """The slot of a child: the one that holds it, or the free one where it belongs."""
    mask = len(tree.slots) - 1
    mixed = (np.int64(parent) * np.int64(1000003) + np.int64(edge)) * SALT
    slot = (mixed ^ (mixed >> np.int64(29))) & mask
    while True:
        node = tree.slots[slot]
        if node == NONE or (tree.parent[node] == parent and tree.edge[node] == edge):
            return int(slot)
        slot = (slot + 1) & mask


@compiled
def child_of(tree: Tree, parent: int, edge: int) -> int:
    """A child; -1 where there was none: it is added then, if there is room, and what follows is a rollout."""
    slot = slot_of(tree, parent, edge)
    child = tree.slots[slot]
    if child == NONE:
        add_node(tree, slot, parent, edge)
    return child


@compiled
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


@compiled
def greedy(actions: np.ndarray, q: np.ndarray, rng: np.random.Generator) -> int:
    """The action of the largest value, ties at random."""
    chosen, best, ties = actions[0], -np.inf, 0
    for action in actions:
        if q[action] > best:
            chosen, best, ties = action, q[action], 1
        elif q[action] == best:
            ties += 1
            if rng.random() * ties < 1.0:
                chosen = action
    return chosen


@compiled
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
        scores[action] = np.inf if number == 0 else q[action] + exploration * np.sqrt(log_total / number)
    return greedy(actions, scores, rng)


@compiled
def back_up(
    tree: Tree, nodes: np.ndarray, taken: np.ndarray, paid: np.ndarray, length: int, in_tree: int, discount: float
) -> None:
    """Running means of the returns from every step in the tree on."""
    total = 0.0
    for t in range(length - 1, -1, -1):
        total = paid[t] + discount * total
        if t < in_tree:
            node, action = nodes[t], taken[t]
            tree.visits[node, action] += 1
            change = total - tree.q[node, action]
            tree.q[node, action] += change / tree.visits[node, action]
            tree.squares[node, action] += change * (total - tree.q[node, action])


@compiled
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
            if model.outcome.size:
                outcome = model.outcome[h if model.outcome.shape[0] > 1 else 0, state, action, column]
            place = outcome if model.cell.shape[3] > 1 else 0
            cell = model.cell[h if model.cell.shape[0] > 1 else 0, state, action, place]
            label = draw(rewards, of_rewards, cell, simulation, rng) if n_labels > 1 else 0
            taken[t] = action
            paid[t] = model.value[of_value, cell, label]
            length = t + 1
            if model.successor.size:
                outcome = model.successor[h if model.successor.shape[0] > 1 else 0, state, action, outcome]
            step += 1
            over = outcome >= n_states or step == rules.horizon
            if over and episodes == 1:
                break
            # 4. Down to the child of this outcome, and after an episode from there to that of the new first state.
            if node >= 0:
                node = child_of(tree, node, (action * n_outcomes + outcome) * n_labels + label)
            state = outcome
            if over:
                state, step, episodes = below(model.initial, rng.random() * model.initial[-1]), 0, episodes - 1
                if node >= 0:
                    node = child_of(tree, node, model.row.shape[2] * n_outcomes * n_labels + state)
        back_up(tree, nodes, taken, paid, length, in_tree, rules.discount)


@compiled
def fill_slots(tree: Tree) -> None:
    """The slots and depths of a tree whose nodes are there."""
    for node in range(1, tree.used[0]):
        tree.slots[slot_of(tree, tree.parent[node], tree.edge[node])] = node
        tree.depth[node] = tree.depth[tree.parent[node]] + 1


@compiled
def carry_over(tree: Tree, child: int, new: Tree, most: int) -> None:
    """Copy the part of a tree below `child` into `new`, an empty one, with `child` as its root.

    At most `most` nodes, the oldest ones: what follows needs room, or the tree could not grow where it has to.
    """
    number = np.full(tree.used[0], NONE, np.int64)
    number[child] = 0
    new.visits[0], new.q[0], new.squares[0] = tree.visits[child], tree.q[child], tree.squares[child]
    for node in range(child + 1, tree.used[0]):  # parents come before their children
        parent = number[tree.parent[node]]
        if parent == NONE or new.used[0] >= most:
            continue
        edge = int(tree.edge[node])
        at = add_node(new, slot_of(new, int(parent), edge), int(parent), edge)
        new.visits[at], new.q[at], new.squares[at] = tree.visits[node], tree.q[node], tree.squares[node]
        number[node] = at


CODE = code_of(__file__, Path(__file__).parents[1] / "numerics/numba_function.py")


def _kept(code: int):
    @kept
    def run(
        tree: Tree,
        model: Model,
        rows: Urns,
        rewards: Urns,
        rules: Rules,
        rollout_q: np.ndarray,
        number: int,
        rng: np.random.Generator,
    ) -> None:
        if code >= 0:  # always: what it closes over is part of its name on disk
            simulate(tree, model, rows, rewards, rules, rollout_q, number, rng)

    return run


run_simulations = _kept(CODE)
"""`simulate` with its machine code kept on disk."""
