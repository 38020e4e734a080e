"""Can a policy meet a state twice? Host side: the possible transitions, and cycles in them."""

import numpy as np
from jaxtyping import Bool, Float
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
