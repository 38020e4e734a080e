"""A search inside a compiled program: for one decision, or under `vmap` for one of each seed.

The program hands its arrays to the host, where every seed has a tree and a random generator of its own; seeds share the
cores by threads. The answer is a function of the key and the arrays alone.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, PRNGKeyArray

from bayes_mdp.mdp.agent import DecisionPoint, Problem
from bayes_mdp.mdp.lazy_belief import LazyBelief
from bayes_mdp.mdp.objectives import Episodic, step_discount
from bayes_mdp.planning.tree_search.kept_tree import INDEX, KeptTree
from bayes_mdp.planning.tree_search.limits import check_lazy, require_numba
from bayes_mdp.utils.memory import usable_cores
from bayes_mdp.utils.typing import AnyArray, IntScalar, RealScalar


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
    """What a search says.

    Args:
        action: Int32[], see `RootAnswer.action`.
        kept: the tree, where one was given.
    """

    action: IntScalar
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
    check_lazy(belief)
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
    shape_of = lambda x: jax.ShapeDtypeStruct(jnp.shape(x), x.dtype)  # noqa: E731
    shapes: Any = jax.tree.map(shape_of, SearchOutput(given.state, kept))
    call = partial(_on_host, horizon, options)
    return jax.pure_callback(call, shapes, given, vmap_method="expand_dims")


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
    with ThreadPoolExecutor(max_workers=min(len(places), usable_cores())) as pool:
        answers = list(pool.map(at, places))
    return jax.tree.map(lambda *x: np.reshape(np.stack(x), (*lead, *np.shape(x[0]))), *answers)


def _one(horizon: int | None, options: SearchOptions, given: Any) -> SearchOutput:
    """One decision; `given` is a `SearchInput` of NumPy's arrays."""
    # numba is an extra: what it compiles is imported where it is used.
    from bayes_mdp.planning.tree_search.search import Decision, Search
    from bayes_mdp.planning.tree_search.trees import new_tree, resumed, stored

    n_states, n_actions = given.rollout_q.shape
    if int(given.state) >= n_states:  # the episode is over
        return SearchOutput(INDEX(0), given.kept)
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
    # Values that differ by less than the program's width can tell are equal.
    answer = searched.answer()
    action = answer._replace(q=answer.q.astype(given.rollout_q.dtype)).action
    kept = None if given.kept is None else stored(searched.tree, given.kept)
    return SearchOutput(INDEX(action), kept)
