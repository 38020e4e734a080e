"""In which order can the values of a chain be worked out? Host side: strongly connected components, last ones first."""

from graphlib import TopologicalSorter

import numpy as np
from jaxtyping import Bool, Int
from scipy.sparse.csgraph import connected_components

from bayes_mdp.mdp import MDP, SparseMDP
from bayes_mdp.planning.structure import reachable_pairs


def condensation(
    mdp: MDP | SparseMDP, pairs: Bool[np.ndarray, "S A"]
) -> tuple[Int[np.ndarray, " S"], Int[np.ndarray, " S"]]:
    """(order, component): states that can lead back to each other share a component, and stand together in the order.

    In the order every state comes after all states outside its component that it can lead to by the `pairs` given.
    """
    graph = reachable_pairs(mdp, pairs)
    count, component = connected_components(graph, directed=True, connection="strong")
    start, target = component[np.asarray(graph.nonzero())]
    after: dict[int, set[int]] = {c: set() for c in range(count)}
    for c, following in zip(start.tolist(), target.tolist(), strict=True):
        if c != following:
            after[c].add(following)
    rank = np.empty(count, int)
    rank[list(TopologicalSorter(after).static_order())] = np.arange(count)
    return np.argsort(rank[component], kind="stable"), component
