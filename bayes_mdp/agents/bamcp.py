"""BAMCP, Bayes-adaptive Monte Carlo planning ([BAMCP12], [BAMCP13]) on any posterior.

The agent, and its search inside a compiled program (`search`): for one decision, or under `vmap` for one of each seed.
The program hands its arrays to the host, where every seed has a tree and a random generator of its own; seeds share the
cores by threads. The answer is a function of the key and the arrays alone.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from bayes_mdp.agents.common.replan import EverySteps
from bayes_mdp.agents.common.table_policies import OneAction
from bayes_mdp.mdp import Discounted, Episodic, FirstExit, Policy, Problem, Transitions
from bayes_mdp.mdp.agent import DecisionPoint
from bayes_mdp.mdp.lazy_belief import LazyBelief
from bayes_mdp.mdp.objectives import require_objective
from bayes_mdp.mdp.protocols import CanSampleLazily
from bayes_mdp.planning.kept_tree import (
    INDEX,
    KeptTree,
    check_lazy,
    check_tree,
    empty_tree,
    require_lazy,
    require_numba,
)
from bayes_mdp.utils.memory import usable_cores
from bayes_mdp.utils.typing import AnyArray, IntScalar, RealLike, RealScalar, Scalar
from bayes_mdp.utils.validation import as_python, check_bool, check_count, check_fraction, check_not_negative

KEPT = 4  # nodes for each simulation, where trees are kept


class SearchState(NamedTuple):
    """What BAMCP keeps between two decisions.

    Args:
        rollout_q: Float[S A], values learnt from the transitions of the run, for rollouts.
        kept: the tree of the last decision; None: trees are not kept.
    """

    rollout_q: Float[Array, "S A"]
    kept: KeptTree | None


class BAMCP(eqx.Module):
    """Bayes-adaptive Monte Carlo planning [BAMCP12]: before every step a search of the tree of histories by simulation.

    Each simulation plays in an MDP drawn from the posterior, by UCT inside the tree and at random below it. What a
    history would teach is what the simulations that reach it have in common: no posterior is computed in the tree. The
    action is that of the largest mean return. Where rewards are known or urns, and `max_depth` cuts nothing off, it
    becomes the Bayes-optimal one as the number of simulations grows (theorem 1 of the paper); with few, the search is a
    heuristic, and its values are biased low.

    It takes every posterior that `infer` returns. A Dirichlet row is drawn outcome by outcome and never made; of a
    hierarchy or a mixture a component is drawn first; of draws, one of them. Rewards with finitely many values, in
    closed form, are learnt in the simulations as urns; other rewards are learnt by the bin they fall into
    (`reward_bins`), a restriction; those of `posterior_samples` are not.

    The defaults are those of the authors' program, but for `exploration` and `episodes`. The objective is Discounted,
    Episodic or FirstExit. It needs numba (extra `fast`).

    Args:
        num_simulations: for each decision.
        max_depth: steps of a simulation at most; None: 100, or to the end of the episode if that is further.
        episodes: that a simulation plays at most, the current one included. None: as many as its steps reach, where
            the distribution of first states is known. 1: what is learnt is worth nothing after the end of the episode,
            as in `bayes_optimal`.
        exploration: c of UCT, in units of the return; None: the range of the rewards of one step, zero included, times
            the square root of the number of steps (with their discounts). The authors take the range alone (2, 1 and 3
            in their worlds), which loses up to 13 % of the optimum where rewards add up for long.
        random_rollouts: probability that an action of a rollout is random; otherwise it is greedy for values that
            Q-learning with the rate `learning_rate` has found on the transitions of the run.
        learning_rate: of these.
        keep_tree: whether the part of the tree below what happened is kept for the next decision; of rewards that are
            known, or urns. What misled the last search is kept too: in the double loop it earned less than fresh trees.
        max_nodes: of a tree; None: one for each simulation, or four where trees are kept. A full tree grows no more.
        num_draws: of rewards of laws without an urn, for each decision; of a mixture at least one for each component.
        reward_bins: bins that such rewards are sorted into when a simulation learns from them; 1: it does not.

    Raises:
        ValueError: a number out of range. TypeError: no number.

    Example:
        >>> result = bm.run(
        ...     bm.agents.BAMCP(num_simulations=50),  # needs numba (extra `fast`)
        ...     bm.envs.chain(),
        ...     prior=bm.models.dirichlet_normal(),
        ...     objective=bm.Discounted(0.9),
        ...     num_steps=10,
        ...     key=jax.random.key(0),
        ...     options=bm.experiments.RunOptions(progress=False),
        ... )
        >>> float(result.visits.sum())
        10.0
    """

    num_simulations: int = eqx.field(default=1000, static=True, converter=as_python)
    max_depth: int | None = eqx.field(default=None, static=True, converter=as_python)
    episodes: int | None = eqx.field(default=None, static=True, converter=as_python)
    exploration: RealLike | None = None
    random_rollouts: RealLike = 1.0
    learning_rate: RealLike = 0.2
    keep_tree: bool = eqx.field(default=False, static=True)
    max_nodes: int | None = eqx.field(default=None, static=True, converter=as_python)
    num_draws: int = eqx.field(default=256, static=True, converter=as_python)
    reward_bins: int = eqx.field(default=2, static=True, converter=as_python)

    def __check_init__(self) -> None:
        for name in ("num_simulations", "num_draws", "reward_bins"):
            check_count(name, getattr(self, name))
        for name in ("max_depth", "episodes", "max_nodes"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        if self.exploration is not None:
            check_not_negative("exploration", self.exploration)
        for name in ("random_rollouts", "learning_rate"):
            check_fraction(name, getattr(self, name))
        check_bool("keep_tree", self.keep_tree)

    @property
    def replan(self) -> EverySteps:
        """Before every step."""
        return EverySteps(1)

    @property
    def tree_nodes(self) -> int:
        """Nodes that a tree has room for."""
        return self.max_nodes or 1 + self.num_simulations * (KEPT if self.keep_tree else 1)

    def check_belief(self, belief: object) -> None:
        """Refuse a posterior that is not sampled lazily.

        Raises:
            TypeError: one sentence, with what to do.
        """
        require_lazy(belief, "BAMCP")

    def init(self, key: PRNGKeyArray, problem: Problem) -> SearchState:
        """No tree, and values of zero for rollouts.

        Raises:
            ValueError: the objective is AverageReward; a tree does not fit in memory; several episodes, and it is not
                known where they start. ImportError: numba is missing.
        """
        del key
        require_numba("BAMCP")
        require_objective(problem.objective, "BAMCP", Discounted, Episodic, FirstExit)
        if self.episodes is not None and self.episodes > 1 and problem.initial is None:
            raise ValueError(
                f"episodes is {self.episodes}, expected 1 or None: where the next episodes start is not known (initial)"
            )
        n_actions = problem.space.n_actions
        check_tree(self.tree_nodes, n_actions)
        tree = empty_tree(self.tree_nodes, n_actions) if self.keep_tree else None
        return SearchState(jnp.zeros((problem.space.n_states, n_actions)), tree)

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: SearchState, belief: CanSampleLazily
    ) -> tuple[Policy, SearchState]:
        """Refused: a search needs the state it starts from.

        Raises:
            TypeError: always.
        """
        raise TypeError("BAMCP plans for the state it is in: call plan_from(key, problem, state, belief, at)")

    def plan_from(
        self, key: PRNGKeyArray, problem: Problem, state: SearchState, belief: CanSampleLazily, at: DecisionPoint
    ) -> tuple[OneAction, SearchState]:
        """Search from where the agent is (`PlansFromState`).

        Raises:
            TypeError: the belief is not sampled lazily. ValueError: trees are kept, and the rewards are neither known
                nor urns.
        """
        self.check_belief(belief)
        # One key for the draws of rewards that have no urn, one for the simulations.
        key_draws, key = jax.random.split(key)
        arrays = belief.lazy_belief(key_draws, self.num_draws, self.reward_bins)
        self._check_labels(arrays)
        answer = search(
            key,
            arrays,
            problem,
            at,
            state.rollout_q,
            options=SearchOptions(self.num_simulations, self.max_depth, self.episodes, self.tree_nodes),
            exploration=self.exploration,
            random_rollouts=self.random_rollouts,
            kept=state.kept,
        )
        return OneAction(jnp.asarray(answer.action)), SearchState(state.rollout_q, answer.kept)

    def _check_labels(self, arrays: LazyBelief) -> None:
        if not self.keep_tree:
            return
        rewards = arrays.rewards
        number, n_states, n_actions = rewards.cumulative.shape[2], *arrays.rows.row.shape[1:]
        # Edges mark rewards in bins: a kept tree would have to learn from them too.
        if rewards.edges is not None or (number == 1 and rewards.value.shape[0] > 1):
            raise ValueError(
                "keep_tree is True, expected False: the belief learns from rewards that are neither known nor urns, "
                "and a kept tree has not learnt from them"
            )
        if n_actions * (n_states + 1) * number + n_states > np.iinfo(INDEX).max:
            raise ValueError(
                f"keep_tree is True, expected False: {n_states} states, {n_actions} actions and {number} labels of "
                "rewards are more children of a node than a kept tree can number"
            )

    def account(
        self, problem: Problem, state: SearchState, transition: Transitions, weight: Scalar = 1.0
    ) -> SearchState:
        """One step of Q-learning for the rollouts, and what happened, to find the part of the tree that is kept.

        The table does not depend on the step of an episode, and its last step is one as any other.

        Args:
            problem, state, transition, weight: as of `Learner.observe`.
        """
        # Q(s, a) += alpha (r + gamma max_a' Q(s', a') - Q(s, a)), over legal actions, 0 after an end.
        q, gamma = state.rollout_q, problem.objective.discount
        start, action, next_state = transition.state, transition.action, transition.next_state
        ended = jnp.zeros((), bool) if transition.terminated is None else transition.terminated
        legal = problem.space.legal
        # Illegal actions take no part in the maximum.
        after = q[next_state] if legal is None else jnp.where(jnp.asarray(legal)[next_state], q[next_state], -jnp.inf)
        reward = jnp.asarray(transition.reward)
        target = reward + gamma * jnp.where(ended, 0.0, after.max())
        changed = q.at[start, action].add(self.learning_rate * weight * (target - q[start, action]))
        if state.kept is None:
            return SearchState(changed, None)
        # Without a horizon every step is step 0 of the tree.
        step = transition.step if isinstance(problem.objective, Episodic) and transition.step is not None else 0
        # Outcome S stands for an end: the child that the tree has for it.
        outcome = jnp.where(ended, problem.space.n_states, next_state)
        seen = weight > 0
        # A second transition since the decision: what is below it is not at the root, the tree is dropped.
        used = jnp.where(state.kept.action < 0, state.kept.used, 0)
        happened = {"state": start, "step": step, "action": action, "outcome": outcome, "reward": reward, "used": used}
        # A masked step leaves everything as it is; types stay those of the state of a compiled loop.
        tree = state.kept._replace(
            **{
                name: jnp.where(seen, value, getattr(state.kept, name)).astype(getattr(state.kept, name).dtype)
                for name, value in happened.items()
            }
        )
        return SearchState(changed, tree)


class SearchOptions(NamedTuple):
    """Static numbers of a search.

    Args:
        num_simulations, max_depth, episodes: see `agents.BAMCP`.
        max_nodes: of a tree.
    """

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
    exploration: RealLike | None,
    random_rollouts: RealLike,
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
        exploration: c of UCT, inside the tree; None: `search.default_exploration`.
        random_rollouts: probability that an action below the tree is random.
        kept: the tree of the decision before, to go on with.

    Returns:
        The action, and the tree where one was given.

    Raises:
        ImportError: numba is missing. ValueError: the arrays of the belief do not fit in memory.
    """
    require_numba("a tree search")
    check_lazy(belief)
    objective = problem.objective
    # What the callback may not close over is passed to it: traced arrays only.
    inputs = SearchInput(
        jax.random.key_data(key),
        belief,
        problem.space.legal,
        problem.initial,
        jnp.asarray(at.state, INDEX),
        jnp.asarray(at.step, INDEX),
        jnp.asarray(objective.discount, float),
        jnp.asarray(jnp.nan if exploration is None else exploration, float),
        jnp.asarray(random_rollouts, float),
        jnp.asarray(rollout_q, float),
        kept,
    )
    horizon = objective.horizon
    shape_of = lambda x: jax.ShapeDtypeStruct(jnp.shape(x), x.dtype)  # noqa: E731
    shapes: Any = jax.tree.map(shape_of, SearchOutput(inputs.state, kept))
    # A pure callback: under `vmap` the host gets a leading axis of seeds.
    call = partial(_on_host, horizon, options)
    return jax.pure_callback(call, shapes, inputs, vmap_method="expand_dims")


# The leaves are arrays of the host; what a class of JAX holds is not typed there.
def _on_host(horizon: int | None, options: SearchOptions, inputs: Any) -> SearchOutput:
    inputs = jax.tree.map(np.asarray, inputs)
    # Axes that `vmap` has put in front: one tree for each of their indices.
    lead = np.broadcast_shapes(*(np.shape(x)[: inputs.state.ndim] for x in jax.tree.leaves(inputs)))
    if not lead:
        return _search_once(horizon, options, inputs)

    def search_at(place: tuple[int, ...]) -> SearchOutput:
        # An array without an axis of seeds has an axis of one in its place.
        pick = lambda x: x[tuple(min(i, n - 1) for i, n in zip(place, x.shape, strict=False))]  # noqa: E731
        return _search_once(horizon, options, jax.tree.map(pick, inputs))

    # numba releases the interpreter's lock, so seeds search side by side.
    places = list(np.ndindex(*lead))
    with ThreadPoolExecutor(max_workers=min(len(places), usable_cores())) as pool:
        answers = list(pool.map(search_at, places))
    return jax.tree.map(lambda *x: np.reshape(np.stack(x), (*lead, *np.shape(x[0]))), *answers)


def _search_once(horizon: int | None, options: SearchOptions, inputs: Any) -> SearchOutput:
    """One decision; `given` is a `SearchInput` of NumPy's arrays."""
    # numba is an extra: what it compiles is imported where it is used.
    from bayes_mdp.planning.tree_search import Decision, Search, new_tree, resume, store_tree

    n_states, n_actions = inputs.rollout_q.shape
    if int(inputs.state) >= n_states:  # the episode is over
        return SearchOutput(INDEX(0), inputs.kept)
    # The subtree below what happened, if there is one; else a new tree.
    tree = None
    if inputs.kept is not None:
        step = None if horizon is None else int(inputs.step)
        tree = resume(inputs.kept, inputs.belief, int(inputs.state), step, options.num_simulations)
    # nan stands for the default, which depends on the rewards of the belief.
    exploration = float(inputs.exploration)
    searched = Search(
        inputs.belief,
        inputs.legal,
        inputs.initial,
        Decision(int(inputs.state), int(inputs.step), horizon, float(inputs.discount), options.episodes),
        exploration=None if np.isnan(exploration) else exploration,
        random_rollouts=float(inputs.random_rollouts),
        rollout_q=inputs.rollout_q,
        max_depth=options.max_depth,
        rng=np.random.default_rng(np.asarray(inputs.words, np.uint32)),
        tree=new_tree(options.max_nodes, n_actions) if tree is None else tree,
    )
    searched.run(options.num_simulations)
    # Values that differ by less than the program's width can tell are equal.
    answer = searched.answer()
    action = answer._replace(q=answer.q.astype(inputs.rollout_q.dtype)).action
    stored_tree = None if inputs.kept is None else store_tree(searched.tree, inputs.kept)
    return SearchOutput(INDEX(action), stored_tree)
