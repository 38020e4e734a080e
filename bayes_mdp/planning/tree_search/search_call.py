"""A search inside a compiled program: for one decision, or under `vmap` for one of each seed.

The program hands its arrays to the host, where every seed has a tree and a random generator of its own; seeds share the
cores by threads. The answer is a function of the key and the arrays alone.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from bayes_mdp.mdp.agent import DecisionPoint, Problem
from bayes_mdp.mdp.lazy_belief import LazyBelief, lazy_bytes
from bayes_mdp.mdp.memory import check_memory
from bayes_mdp.mdp.objectives import Episodic, step_discount
from bayes_mdp.mdp.typing import AnyArray, IntScalar, RealScalar
from bayes_mdp.planning.tree_search.kept_tree import INDEX, KeptTree
from bayes_mdp.planning.tree_search.limits import require_numba


class SearchOptions(NamedTuple):
    """Static numbers of a search: see `agents.BAMCP`."""

    num_simulations: int
    max_depth: int | None
    episodes: int | None
    max_nodes: int


class SearchInput(NamedTuple):
    """The arrays of one decision.

    Args:
        words: Uint32[K], of the key.
        belief: of the decision.
        legal: Bool[S A], or None.
        initial: Float[S], or None.
        state, step: where it is; state S: there is nothing to decide.
        discount, exploration, random_rollouts: numbers; exploration nan: the default.
        rollout_q: Float[S A].
        kept: the tree of the decision before, or None.
    """

    words: AnyArray
    belief: LazyBelief
    legal: Bool[AnyArray, "S A"] | None
    initial: Float[AnyArray, " S"] | None
    state: IntScalar
    step: IntScalar
    discount: RealScalar
    exploration: RealScalar
    random_rollouts: RealScalar
    rollout_q: Float[AnyArray, "S A"]
    kept: KeptTree | None


class SearchOutput(NamedTuple):
    """What the root says: see `RootAnswer`; `kept`: the tree, where one was given."""

    q: Float[AnyArray, " A"]
    visits: Int[AnyArray, " A"]
    standard_error: Float[AnyArray, " A"]
    num_nodes: IntScalar
    depth: IntScalar
    kept: KeptTree | None


def search(
    key: PRNGKeyArray,
    belief: LazyBelief,
    problem: Problem,
    at: DecisionPoint,
    rollout_q: Float[AnyArray, "S A"],
    *,
    options: SearchOptions,
    exploration: RealScalar | None,
    random_rollouts: RealScalar,
    kept: KeptTree | None = None,
) -> SearchOutput:
    """Search from a state. Traceable.

    Args:
        key: of the simulations.
        belief: now.
        problem: its objective is Discounted, Episodic or FirstExit.
        at: where to decide; state S: there is nothing to decide.
        rollout_q: in which actions of rollouts that are not random are greedy.
        options: static numbers.
        exploration: c of UCT; None: `search.default_exploration`.
        random_rollouts: probability that an action of a rollout is random.
        kept: the tree of the decision before, to go on with.

    Raises:
        ImportError: numba is missing. ValueError: the arrays of the belief do not fit in memory.
    """
    require_numba("a tree search")
    needed = 3.0 * lazy_bytes(belief)
    check_memory("the belief has all its components as arrays", needed, "thin it: fewer draws take less")
    objective = problem.objective
    given = SearchInput(
        jax.random.key_data(key),
        belief,
        problem.space.legal,
        problem.initial,
        jnp.asarray(at.state, INDEX),
        jnp.asarray(at.step, INDEX),
        jnp.asarray(step_discount(objective), float),
        jnp.asarray(jnp.nan if exploration is None else exploration, float),
        jnp.asarray(random_rollouts, float),
        jnp.asarray(rollout_q, float),
        kept,
    )
    horizon = objective.horizon if isinstance(objective, Episodic) else None
    shapes = _shapes(given, rollout_q.shape[-1])
    call = partial(_on_host, horizon, options)
    return jax.pure_callback(call, shapes, given, vmap_method="expand_dims")


def _shapes(given: SearchInput, n_actions: int) -> SearchOutput:
    wide = jnp.zeros(0).dtype
    row, count = jax.ShapeDtypeStruct((n_actions,), wide), jax.ShapeDtypeStruct((n_actions,), INDEX)
    number = jax.ShapeDtypeStruct((), INDEX)
    kept = None if given.kept is None else jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), given.kept)
    return SearchOutput(row, count, row, number, number, kept)  # type: ignore[arg-type]


# The leaves are arrays of the host; what a class of JAX holds is not typed there.
def _on_host(horizon: int | None, options: SearchOptions, given: Any) -> SearchOutput:
    given = jax.tree.map(np.asarray, given)
    lead = np.broadcast_shapes(*(np.shape(x)[: given.state.ndim] for x in jax.tree.leaves(given)))
    if not lead:
        return _one(horizon, options, given)

    def at(place: tuple[int, ...]) -> SearchOutput:
        # An array without an axis of seeds has an axis of one in its place.
        pick = lambda x: x[tuple(min(i, n - 1) for i, n in zip(place, x.shape, strict=False))]  # noqa: E731
        return _one(horizon, options, jax.tree.map(pick, given))

    places = list(np.ndindex(*lead))
    with ThreadPoolExecutor(max_workers=min(len(places), _cores())) as pool:
        answers = list(pool.map(at, places))
    return jax.tree.map(lambda *x: np.reshape(np.stack(x), (*lead, *np.shape(x[0]))), *answers)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _one(horizon: int | None, options: SearchOptions, given: Any) -> SearchOutput:
    """One decision; `given` is a `SearchInput` of NumPy's arrays."""
    # numba is an extra: what it compiles is imported where it is used.
    from bayes_mdp.planning.tree_search.search import Decision, Search
    from bayes_mdp.planning.tree_search.trees import new_tree, resumed, stored

    n_states, n_actions = given.rollout_q.shape
    wide = given.rollout_q.dtype
    if int(given.state) >= n_states:  # the episode is over
        zero = np.zeros(n_actions, wide)
        nothing = INDEX(0)
        return SearchOutput(zero, zero.astype(INDEX), zero, nothing, nothing, given.kept)
    tree = None
    if given.kept is not None:
        step = None if horizon is None else int(given.step)
        tree = resumed(given.kept, given.belief, int(given.state), step, options.num_simulations)
    exploration = float(given.exploration)
    searched = Search(
        given.belief,
        given.legal,
        given.initial,
        Decision(int(given.state), int(given.step), horizon, float(given.discount), options.episodes),
        exploration=None if np.isnan(exploration) else exploration,
        random_rollouts=float(given.random_rollouts),
        rollout_q=given.rollout_q,
        max_depth=options.max_depth,
        rng=np.random.default_rng(np.asarray(given.words, np.uint32)),
        tree=new_tree(options.max_nodes, n_actions) if tree is None else tree,
    )
    searched.run(options.num_simulations)
    answer = searched.answer()
    kept = None if given.kept is None else stored(searched.tree, given.kept)
    return SearchOutput(
        answer.q.astype(wide),
        answer.visits.astype(INDEX),
        answer.standard_error.astype(wide),
        INDEX(answer.num_nodes),
        INDEX(answer.depth),
        kept,
    )
