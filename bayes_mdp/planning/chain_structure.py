"""The possible transitions of a chain: can a policy meet a state twice, and in which order can values be worked out?

Host side: cycles, and strongly connected components, last ones first.
"""

from graphlib import TopologicalSorter

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from bayes_mdp.mdp import MDP, SparseMDP


def reachable_pairs(mdp: MDP | SparseMDP, pairs: Bool[np.ndarray, "S A"]) -> csr_matrix:
    """Which next states are possible from each state by the `pairs` [S A] given: a sparse S x S matrix of ones."""
    n = mdp.n_states
    if isinstance(mdp, SparseMDP):
        state, action, k = np.nonzero((np.asarray(mdp.probability) > 0) & pairs[..., None])
        target = np.asarray(mdp.successor)[state, action, k]
    else:
        state, target = np.nonzero(((np.asarray(mdp.transition_probs) > 0) & pairs[..., None]).any(1))
    return csr_matrix((np.ones(len(state)), (state, target)), shape=(n, n))


def find_cycle(
    mdp: MDP | SparseMDP, probs: Float[np.ndarray, "S A"], unknown: Bool[np.ndarray, "S A"]
) -> tuple[int, ...] | None:
    """States of a cycle on which the policy `probs` meets an `unknown` pair again; None: there is none.

    Cycles through known pairs alone (absorbing states, say) do not count. `mdp` has no step axis.
    """
    used = np.asarray(probs) > 0
    graph = reachable_pairs(mdp, used)
    component = connected_components(graph, directed=True, connection="strong")[1]
    start, target = reachable_pairs(mdp, used & np.asarray(unknown)).nonzero()
    # An unknown transition within a component can be taken again: the way back exists.
    back = np.flatnonzero(component[start] == component[target])
    if not back.size:
        return None
    return _path(graph, int(target[back[0]]), int(start[back[0]]))


def _path(graph: csr_matrix, start: int, goal: int) -> tuple[int, ...]:
    """A shortest path, by breadth first."""
    came: dict[int, int] = {start: start}
    queue = [start]
    for state in queue:
        if state == goal:
            break
        for next_state in graph.indices[graph.indptr[state] : graph.indptr[state + 1]]:
            if int(next_state) not in came:
                came[int(next_state)] = state
                queue.append(int(next_state))
    path = [goal]
    while path[-1] != start:
        path.append(came[path[-1]])
    return tuple(path[::-1])


def condensation(
    mdp: MDP | SparseMDP, pairs: Bool[np.ndarray, "S A"]
) -> tuple[Int[np.ndarray, " S"], Int[np.ndarray, " S"]]:
    """(order, component): states that can lead back to each other share a component, and are adjacent in the order.

    In the order every state comes after all states outside its component that it can lead to by the `pairs` given.
    """
    # Components form an acyclic graph: sort it topologically, successors first, then its states by that rank.
    graph = reachable_pairs(mdp, pairs)
    count, component = connected_components(graph, directed=True, connection="strong")
    start, target = component[np.asarray(graph.nonzero())]
    after: dict[int, set[int]] = {c: set() for c in range(count)}
    for c, next_component in zip(start.tolist(), target.tolist(), strict=True):
        if c != next_component:
            after[c].add(next_component)
    rank = np.empty(count, int)
    rank[list(TopologicalSorter(after).static_order())] = np.arange(count)
    return np.argsort(rank[component], kind="stable"), component
