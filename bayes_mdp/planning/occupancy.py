"""Where a policy spends its time, and where it can go: frequencies of pairs, and the possible transitions of a chain.

Discounted and average state-action frequencies [PUTERMAN94]. On the host: can a policy meet a state twice (cycles), and
in which order can values be worked out (strongly connected components, last ones first)?
"""

from graphlib import TopologicalSorter

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from bayes_mdp.mdp import MDP, AverageReward, Episodic, FirstExit, Objective, PolicyLike, SparseMDP
from bayes_mdp.planning.linear_systems import solve_chain
from bayes_mdp.planning.policy_arrays import mix, policy_probs
from bayes_mdp.planning.solve import check_problem, in_one_dtype, require_exit
from bayes_mdp.utils.typing import AnyArray, IntScalar
from bayes_mdp.utils.validation import check_initial, check_probability_rows, is_concrete


def occupancy(
    mdp: MDP | SparseMDP,
    policy: PolicyLike,
    objective: Objective,
    initial: Float[AnyArray, " S"] | None = None,
) -> Float[Array, "*H S A"]:
    """State-action occupancy d of a policy: sum of d * reward is its value from `initial`.

    Args:
        mdp, policy, objective: as in `evaluate`.
        initial: [S], distribution of the first state; None: `mdp.initial`.

    Returns:
        Discounted: sum_t discount^t P(s_t, a_t). Episodic: [H S A], discount^t times the probability of each pair
        at each step t. FirstExit: expected number of visits. AverageReward: the stationary distribution (`initial` is
        not needed). [PUTERMAN94] section 6.9. Under tracing what would be refused is not finite.

    Raises:
        ValueError, TypeError: as `evaluate`; `initial` is no distribution or missing; for `AverageReward`, a chain with
            several recurrent classes: the time in each depends on the start.

    Example:
        >>> mdp = bm.MDP([[[0.9, 0.1]], [[0.3, 0.7]]], [[0.0], [1.0]])
        >>> print(np.asarray(bm.planning.occupancy(mdp, [0, 0], bm.AverageReward())).round(3).ravel())
        [0.75 0.25]
    """
    check_problem(mdp, objective)
    mdp = in_one_dtype(mdp)
    if isinstance(objective, AverageReward):
        probs = policy_probs(policy, mdp)
        chain = mix(mdp, probs)
        # The stationary distribution of the chain, times the policy.
        # The anchored system has one solution where there is one recurrent class.
        time = chain_occupancy(chain, objective)
        if is_concrete(chain):
            _require_one_class(chain)
        else:
            # In a trace nothing can be refused: nan where there are several classes.
            time = jnp.where(_all_lead_to(chain, jnp.argmax(time)), time, jnp.nan)
        return time[:, None] * probs
    initial = _initial(mdp, initial)
    if isinstance(objective, Episodic):
        probs = policy_probs(policy, mdp, horizon=objective.horizon)
        # Probabilities of the first state, pushed forward step by step.
        time = _forward(mdp, jnp.broadcast_to(probs, (objective.horizon, *probs.shape[-2:])), initial)
        if objective.discount == 1:
            return time
        # Step h counts discount^h.
        return time * jnp.asarray(objective.discount ** np.arange(objective.horizon), time.dtype)[:, None, None]
    probs = policy_probs(policy, mdp)
    chain = mix(mdp, probs)
    if isinstance(objective, FirstExit) and is_concrete(chain):
        require_exit(chain, "the policy")
    return chain_occupancy(chain, objective, initial)[:, None] * probs


def chain_occupancy(
    chain: MDP | SparseMDP,
    objective: Objective,
    initial: Float[AnyArray, " S"] | None = None,
) -> Float[Array, " S"]:
    """Time in the states of a chain (an MDP with one action), as `occupancy`. Traceable; looks for no reason to refuse.

    Args:
        chain: the chain; of `AverageReward` with one recurrent class and without ends.
        objective: `Discounted`, `FirstExit` or `AverageReward`.
        initial: distribution of the first state; only `AverageReward` does without.
    """
    assert not isinstance(objective, Episodic)
    # mu (I - discount P) = initial: the adjoint of the system of the values.
    if isinstance(objective, AverageReward):
        # From mu (I - P) = 0 and sum mu = 1: mu (I - P + 1 e_0') = e_0'.
        first = jnp.zeros(chain.n_states, chain.reward.dtype).at[0].set(1.0)
        return solve_chain(chain, 1.0, first, first, anchored=True, adjoint=True)
    assert initial is not None
    initial = jnp.asarray(initial)
    discount = jnp.asarray(objective.discount, chain.reward.dtype)
    return solve_chain(chain, discount, initial, initial, adjoint=True)


def recurrent_classes(graph: csr_matrix) -> tuple[Int[np.ndarray, " S"], Int[np.ndarray, " C"]]:
    """The class of each state, by the edges between states, and which classes are never left. Host-side."""
    number, component = connected_components(graph, directed=True, connection="strong")
    # Edges as pairs of components.
    # A class is left where an edge goes to another component; a recurrent one is never left.
    start, target = component[np.asarray(graph.nonzero())]
    return component, np.setdiff1d(np.arange(number), start[start != target])


def _require_one_class(chain: MDP | SparseMDP) -> None:
    """Refuse a chain with several recurrent classes. Host-side.

    Raises:
        ValueError: names a state of each of two.
    """
    component, recurrent = recurrent_classes(reachable_pairs(chain, np.ones((chain.n_states, 1), bool)))
    if len(recurrent) > 1:
        first, second = sorted(int(np.flatnonzero(component == c)[0]) for c in recurrent)[:2]
        raise ValueError(
            f"the policy has {len(recurrent)} recurrent classes (state {first} is in one, state {second} in another), "
            "expected one: the time in each depends on the start (AverageReward)"
        )


def _all_lead_to(chain: MDP | SparseMDP, state: IntScalar) -> Bool[Array, ""]:
    """Whether a chain comes to a state from all others, without ends. Traceable.

    Then its one recurrent class is that of the state. If there is one class, the state of most time is in it; if there
    are several, no state is reached from all.
    """
    fixed = jax.lax.stop_gradient(chain)

    def step(carry: tuple[Bool[Array, " S"], Bool[Array, ""]]) -> tuple[Bool[Array, " S"], Bool[Array, ""]]:
        # Backwards: states of which some transition leads to those known to reach the target.
        reach, _ = carry
        further = reach | (fixed.expected_next(reach.astype(fixed.reward.dtype))[:, 0] > 0)
        return further, jnp.any(further != reach)

    # The target alone, then all that lead to it, until nothing is added.
    alone = jnp.arange(chain.n_states) == state
    reach, _ = jax.lax.while_loop(lambda carry: carry[1], step, (alone, jnp.array(True)))
    return jnp.all(reach) if fixed.end_probs is None else jnp.all(reach) & ~jnp.any(fixed.end_probs > 0)


def _initial(mdp: MDP | SparseMDP, initial: Float[AnyArray, " S"] | None) -> Float[Array, " S"]:
    initial = mdp.initial if initial is None else initial
    if initial is None:
        raise ValueError("initial is None, expected a distribution over the first state")
    check_initial(initial, mdp.n_states)
    initial = jnp.asarray(initial, mdp.reward.dtype)
    if is_concrete(initial):
        check_probability_rows("initial", initial)
    return initial


def _forward(mdp: MDP | SparseMDP, probs: Float[Array, "H S A"], initial: Float[Array, " S"]) -> Float[Array, "H S A"]:
    """Probability of each pair at each step, by forward recursion."""

    def step(present: Float[Array, " S"], layer: IntScalar) -> tuple[Float[Array, " S"], Float[Array, "S A"]]:
        chain = mix(mdp.at(layer), probs[layer])
        # P' d: the transpose of the expectation over next states, for dense and sparse rows alike.
        push = jax.linear_transpose(lambda v: chain.expected_next(v)[:, 0], present)
        return push(present)[0], present[:, None] * probs[layer]

    return jax.lax.scan(step, initial, jnp.arange(probs.shape[0]))[1]


def reachable_pairs(mdp: MDP | SparseMDP, pairs: Bool[np.ndarray, "S A"]) -> csr_matrix:
    """Which next states are possible from each state by the `pairs` [S A] given: a sparse S x S matrix of ones."""
    n = mdp.n_states
    if isinstance(mdp, SparseMDP):
        state, action, k = np.nonzero((np.asarray(mdp.probability) > 0) & pairs[..., None])
        target = np.asarray(mdp.successor)[state, action, k]
    # An action of probability zero leads nowhere.
    else:
        state, target = np.nonzero(((np.asarray(mdp.transition_probs) > 0) & pairs[..., None]).any(1))
    return csr_matrix((np.ones(len(state)), (state, target)), shape=(n, n))


def find_cycle(
    mdp: MDP | SparseMDP, probs: Float[np.ndarray, "S A"], unknown: Bool[np.ndarray, "S A"]
) -> tuple[int, ...] | None:
    """States of a cycle on which the policy `probs` meets an `unknown` pair again; None: there is none.

    Cycles through known pairs alone (absorbing states, say) do not count. `mdp` has no step axis.
    """
    # The graph of what the policy does.
    used = np.asarray(probs) > 0
    graph = reachable_pairs(mdp, used)
    component = connected_components(graph, directed=True, connection="strong")[1]
    start, target = reachable_pairs(mdp, used & np.asarray(unknown)).nonzero()
    # An unknown transition within a component can be taken again: the way back exists.
    back = np.flatnonzero(component[start] == component[target])
    if not back.size:
        return None
    # From the end of that transition back to its beginning: with it a cycle.
    return _path(graph, int(target[back[0]]), int(start[back[0]]))


def _path(graph: csr_matrix, start: int, goal: int) -> tuple[int, ...]:
    """A shortest path, by breadth first."""
    # Where each state was reached from.
    came_from: dict[int, int] = {start: start}
    queue = [start]
    for state in queue:
        if state == goal:
            break
        for next_state in graph.indices[graph.indptr[state] : graph.indptr[state + 1]]:
            if int(next_state) not in came_from:
                came_from[int(next_state)] = state
                queue.append(int(next_state))
    # Backwards from the goal.
    path = [goal]
    while path[-1] != start:
        path.append(came_from[path[-1]])
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
    # Edges between different components only; TopologicalSorter lists successors before predecessors.
    start, target = component[np.asarray(graph.nonzero())]
    after: dict[int, set[int]] = {c: set() for c in range(count)}
    for c, next_component in zip(start.tolist(), target.tolist(), strict=True):
        if c != next_component:
            after[c].add(next_component)
    rank = np.empty(count, int)
    rank[list(TopologicalSorter(after).static_order())] = np.arange(count)
    # Stable: states of one component stay in the order of their numbers.
    return np.argsort(rank[component], kind="stable"), component
