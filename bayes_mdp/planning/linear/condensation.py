"""In which order can the values of a chain be worked out? Host side: strongly connected components, last ones first."""

from graphlib import TopologicalSorter

import numpy as np
from jaxtyping import Bool, Int
from scipy.sparse.csgraph import connected_components

from bayes_mdp.mdp import MDP, SparseMDP
from bayes_mdp.planning.linear.structure import reachable_pairs


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
