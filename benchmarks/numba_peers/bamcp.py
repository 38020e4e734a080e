"""BAMCP as one would write it with numba for Dirichlet rows and known rewards: algorithm 1 of Guez, Silver and Dayan.

A row is drawn as a whole when a simulation first meets it (gamma variables over their sum) and kept to the end of that
simulation; the children of a node are a table [node, action, next state]. No urns, hashes or components: an independent
route to the same laws, and the peer of `benchmarks/bayes_adaptive.py`.
"""

import numba
import numpy as np
from jaxtyping import Float, Int


@numba.njit(nogil=True)
def search(  # noqa: PLR0912, PLR0915 - one loop, told from top to bottom
    concentration: Float[np.ndarray, "S A S"],
    reward: Float[np.ndarray, "S A"],
    state: int,
    depth: int,
    discount: float,
    exploration: float,
    num_simulations: int,
    rng: np.random.Generator,
) -> tuple[Int[np.ndarray, " A"], Float[np.ndarray, " A"]]:
    """Visits and mean returns of the actions at the root."""
    n_states, n_actions = reward.shape
    visits = np.zeros((num_simulations + 1, n_actions), np.int64)
    q = np.zeros((num_simulations + 1, n_actions))
    child = np.zeros((num_simulations + 1, n_actions, n_states), np.int64)  # 0: none
    row = np.zeros((n_states, n_actions, n_states))
    drawn_in = np.full((n_states, n_actions), -1)
    nodes, actions = np.zeros(depth, np.int64), np.zeros(depth, np.int64)
    paid = np.zeros(depth)
    used = 1
    for simulation in range(num_simulations):
        node, s, inside = 0, state, 0
        for t in range(depth):
            if node >= 0:
                total = visits[node].sum()
                best, ties, action = -np.inf, 0, 0
                for a in range(n_actions):
                    n = visits[node, a]
                    score = np.inf if n == 0 else q[node, a] + exploration * np.sqrt(np.log(total + 1) / n)
                    if score > best:
                        best, ties, action = score, 1, a
                    elif score == best:
                        ties += 1
                        if rng.random() < 1 / ties:
                            action = a
                nodes[t] = node
                inside = t + 1
            else:
                action = int(rng.random() * n_actions)
            if drawn_in[s, action] != simulation:
                drawn_in[s, action] = simulation
                for o in range(n_states):
                    row[s, action, o] = rng.standard_gamma(concentration[s, action, o])
                row[s, action] /= row[s, action].sum()
            u, o = rng.random(), 0
            while o < n_states - 1 and u >= row[s, action, o]:
                u -= row[s, action, o]
                o += 1
            actions[t] = action
            paid[t] = reward[s, action]
            if node >= 0:
                after = child[node, action, o]
                if after == 0:
                    child[node, action, o] = used
                    used += 1
                    node = -1
                else:
                    node = after
            s = o
        total_return = 0.0
        for t in range(depth - 1, -1, -1):
            total_return = paid[t] + discount * total_return
            if t < inside:
                node, action = nodes[t], actions[t]
                visits[node, action] += 1
                q[node, action] += (total_return - q[node, action]) / visits[node, action]
    return visits[0], q[0]
