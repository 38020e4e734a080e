"""`plan_bayes_adaptive`: what to do now, where what will be learnt counts too: a search by simulation. Host side."""

import time
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from bayes_mdp.decisions.policy_evaluation import describe_objective
from bayes_mdp.inference.draws.weighted_samples import WeightedSamples
from bayes_mdp.inference.untried_rewards import TRIED, UntriedRewards, untried_rewards
from bayes_mdp.mdp import Objective, StateActionSpace
from bayes_mdp.mdp.objectives import Discounted, Episodic, FirstExit, require_objective
from bayes_mdp.mdp.protocols import CanSampleLazily
from bayes_mdp.mdp.space import check_horizon, check_space
from bayes_mdp.planning.kept_tree import check_lazy, check_tree, require_lazy, require_numba
from bayes_mdp.random.host_generator import host_generator
from bayes_mdp.renamed import accepts_moved
from bayes_mdp.utils.layout import Section, Table, as_html, as_text
from bayes_mdp.utils.messages import count_of
from bayes_mdp.utils.progress import bar_of
from bayes_mdp.utils.validation import (
    check_count,
    check_key,
    check_not_negative,
    check_positive,
    check_type,
    label_list,
)

if TYPE_CHECKING:
    import xarray as xr

    from bayes_mdp.planning.tree_search import Search


WHO = "plan_bayes_adaptive"
DEFAULT_SIMULATIONS = 10_000
MOST_NODES = 1_000_000  # where max_nodes is not given
FIRST_AT_ONCE = 64  # simulations before the first look at the clock
TICK = 0.1  # seconds between two looks, about


class BayesAdaptivePlan(eqx.Module):
    """What a search advises in one state; `print` shows it in words.

    Args:
        action: index of the action with the largest mean return.
        q: Float64[A], mean return of the simulations that begin with an action, -inf where it is illegal or was never
            tried. Biased low: most of these simulations were played before the tree knew what to do next, and beyond it
            actions are random. It ranks actions; it is not the value of the plan.
        visits: Int[A], how many simulations began with it.
        standard_error: Float64[A], of `q`, as if simulations were independent (they are not); nan below two visits.
        num_simulations: in all.
        num_nodes: of the tree: histories.
        depth: of its deepest node, in steps.
        seconds: wall time of the simulations.
        state: where the action is needed, an index.
        step: of the episode.
        objective: of the search.
        space: sizes and names.
        full: whether the tree had no room for more nodes.
        untried: the pairs that were never tried and whose mean reward, the prior's, lies above that of every pair that
            was (see `untried_rewards`); None: there are none, or it is not known.

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(1, 2)
        >>> posterior = bm.infer(jax.random.key(0), prior, space=space)
        >>> plan = bm.decisions.plan_bayes_adaptive(
        ...     jax.random.key(1), posterior, 0, bm.Episodic(2), num_simulations=100
        ... )
        >>> plan.q.shape, int(plan.visits.sum())
        ((2,), 100)
    """

    action: int
    q: Float[np.ndarray, " A"]
    visits: Int[np.ndarray, " A"]
    standard_error: Float[np.ndarray, " A"]
    num_simulations: int
    num_nodes: int
    depth: int
    seconds: float
    state: int
    step: int
    objective: Objective
    space: StateActionSpace
    full: bool = False
    untried: UntriedRewards | None = None

    __str__ = as_text
    _repr_html_ = as_html

    def layout(self) -> Section:
        """The action, what was searched, and a row for each action that was tried."""
        # Most tried first: the search has put its trust there.
        names = self.space.action_names
        rows = [
            (str(names[a]), f"{self.q[a]:.5g} +- {self.standard_error[a]:.2g}", str(self.visits[a]))
            for a in np.argsort(-self.visits, kind="stable")
            # An action that was never tried has no mean to show.
            if self.visits[a]
        ]
        situation = f"state {self.space.state_names[self.state]!r}, {describe_objective(self.objective)}"
        return Section(
            f"Bayes-adaptive plan in {situation}: action {names[self.action]!r}",
            [
                Table(("action", "mean return", "simulations"), rows),
                f"{count_of(self.num_simulations, 'simulation')}, {count_of(self.num_nodes, 'history')}, "
                f"up to {count_of(self.depth, 'step')} ahead, "
                f"{self.seconds:.2g} s{' (the tree is full: max_nodes)' if self.full else ''}",
                "mean returns rank actions; they are biased low and are not the value of the plan",
                *([] if self.untried is None else [self.untried.warning(TRIED)]),
            ],
        )

    def to_dataset(self) -> "xr.Dataset":
        """`q`, `visits` and `standard_error` [action], the rest as attributes."""
        import xarray as xr

        columns = {"q": self.q, "visits": self.visits, "standard_error": self.standard_error}
        return xr.Dataset(
            {name: ("action", values) for name, values in columns.items()},
            {"action": [str(name) for name in self.space.action_names]},
            {
                "chosen": str(self.space.action_names[self.action]),
                "state": str(self.space.state_names[self.state]),
                "step": self.step,
                "objective": repr(self.objective),
                "num_simulations": self.num_simulations,
                "num_nodes": self.num_nodes,
                "depth": self.depth,
                "seconds": self.seconds,
                "tree_full": int(self.full),
            },
        )


@dataclass(frozen=True)
class SearchOptions:
    """Options of `plan_bayes_adaptive`: how long and how it searches.

    Args:
        max_seconds: of wall time, at most (checked about ten times a second); None: no bound.
        max_depth: steps of a simulation at most; None: 100, or to the end of the episode under `Episodic`.
        exploration: c of UCT; None: the range of the rewards of one step, times the square root of their number.
        max_nodes: of the tree; None: one for each simulation, a million at most. A full tree grows no more.
        num_draws: of rewards of laws without an urn.
        reward_bins: see `agents.BAMCP`.

    Raises:
        TypeError, ValueError: one sentence about the option at fault.

    Example:
        >>> bm.decisions.SearchOptions(max_seconds=1.0).num_draws
        1000
    """

    max_seconds: float | None = None
    max_depth: int | None = None
    exploration: float | None = None
    max_nodes: int | None = None
    num_draws: int = 1000
    reward_bins: int = 2

    def __post_init__(self) -> None:
        for name in ("max_depth", "max_nodes"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        check_count("num_draws", self.num_draws)
        check_count("reward_bins", self.reward_bins)
        if self.max_seconds is not None:
            check_positive("max_seconds", self.max_seconds)
        if self.exploration is not None:
            check_not_negative("exploration", self.exploration)


@accepts_moved("decisions.plan_bayes_adaptive")
def plan_bayes_adaptive(
    key: PRNGKeyArray,
    belief: CanSampleLazily,
    state: Hashable,
    objective: Objective,
    *,
    step: int = 0,
    num_simulations: int | None = None,
    options: SearchOptions = SearchOptions(),
) -> BayesAdaptivePlan:
    """The action to take now, by Bayes-adaptive Monte Carlo planning (Guez, Silver and Dayan 2012, 2013).

    As `agents.BAMCP`, for one decision: simulations in MDPs drawn from the posterior search the tree of what may be
    done and seen. As their number grows the action becomes the Bayes-optimal one, on the conditions given there; with
    few it is a heuristic, and how many are enough is not known beforehand: see whether more of them, or another
    `options.exploration`, change the action. `bayes_optimal` is exact where problems are small. It needs numba (extra
    `fast`).

    Args:
        key: a typed key; with a budget of time alone, the number of simulations depends on the machine.
        belief: a posterior; also the prior, `infer(key, prior, None, space=space)`.
        state: where the action is needed: its name in the space, or its index where states have no names.
        objective: Discounted, Episodic or FirstExit.
        step: of the episode, under `Episodic`.
        num_simulations: at most; None: 10,000, or with `options.max_seconds` as many as fit.
        options: wall time, depth, exploration, size of the tree (see `SearchOptions`).

    Raises:
        ValueError: a state that is none, a budget of zero, another horizon than that of the space,
            AverageReward, a tree that does not fit in memory. TypeError: a belief that cannot be sampled lazily.
            ImportError: numba is missing.

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(1, 2)
        >>> data = bm.Transitions([0] * 4, [0, 1, 0, 1], [0.0, 1.0, 0.0, 1.0], [0] * 4)
        >>> posterior = bm.infer(jax.random.key(0), prior, data, space=space)
        >>> plan = bm.decisions.plan_bayes_adaptive(
        ...     jax.random.key(1), posterior, 0, bm.Episodic(3), num_simulations=2000
        ... )
        >>> plan.action  # needs numba (extra `fast`)
        1
    """
    require_numba(WHO)
    check_key("key", key)
    require_objective(objective, WHO, Discounted, Episodic, FirstExit)
    require_lazy(belief, WHO)
    space = _space_of(belief)
    index = _index_of(state, space)
    check_horizon(space, objective)
    _check_step(step, objective)
    if num_simulations is not None:
        check_count("num_simulations", num_simulations)
    check_type("options", options, SearchOptions, "SearchOptions")
    max_seconds = options.max_seconds
    # Without any budget a default number; with seconds alone, until they are over.
    limit = DEFAULT_SIMULATIONS if num_simulations is None and max_seconds is None else num_simulations
    # At most one new history a simulation.
    nodes = options.max_nodes or 1 + min(limit or MOST_NODES, MOST_NODES)
    check_tree(nodes, space.n_actions)
    # Draws and arrays are made once, the search itself is compiled.
    search = _search(key, belief, space, objective, _Settings(index, step, nodes, options))
    seconds = _run(search, limit, max_seconds)
    answer = search.answer()
    return BayesAdaptivePlan(
        answer.action,
        answer.q,
        answer.visits,
        answer.standard_error,
        int(answer.visits.sum()),
        answer.num_nodes,
        answer.depth,
        seconds,
        index,
        step,
        objective,
        space,
        # The tree is full if it holds all nodes and more simulations than nodes were played.
        # Every simulation adds one node at most, so that a full tree was cut short.
        bool(answer.num_nodes == nodes and nodes <= answer.visits.sum()),
        untried_rewards(belief),
    )


class _Settings(NamedTuple):
    """Checked arguments of a search: indices, the size of the tree, and the options of `plan_bayes_adaptive`."""

    state: int
    step: int
    max_nodes: int
    options: SearchOptions


def _search(
    key: PRNGKeyArray, belief: CanSampleLazily, space: StateActionSpace, objective: Objective, settings: _Settings
) -> "Search":
    # numba is an extra: what it compiles is imported where it is used.
    from bayes_mdp.planning.tree_search import Decision, Search, new_tree

    # Draws of the belief and random numbers of the search: two keys.
    key_draws, key_search = jax.random.split(key)
    options = settings.options
    # Shapes first: what cannot be searched is refused before anything is drawn.
    shapes = jax.eval_shape(lambda: belief.lazy_belief(key_draws, options.num_draws, options.reward_bins))
    check_lazy(shapes)
    with jax.enable_x64(True):
        arrays = jax.tree.map(np.asarray, belief.lazy_belief(key_draws, options.num_draws, options.reward_bins))
    horizon = objective.horizon
    discount = float(np.asarray(objective.discount))
    return Search(
        arrays,
        space.legal,
        None,
        Decision(settings.state, settings.step, horizon, discount),
        exploration=options.exploration,
        random_rollouts=1.0,
        # Rollouts are random: no values are known beyond the tree.
        rollout_q=np.zeros((space.n_states, space.n_actions)),
        max_depth=options.max_depth,
        rng=host_generator(key_search),
        tree=new_tree(settings.max_nodes, space.n_actions),
    )


def _run(search: "Search", num_simulations: int | None, max_seconds: float | None) -> float:
    """Simulations until a budget is used up, in blocks between which the clock (and Ctrl-C) is looked at; seconds."""
    began = time.perf_counter()
    done, at_once, elapsed = 0, FIRST_AT_ONCE, 0.0
    with bar_of(num_simulations, " simulations", what="searching") as bar:
        # Blocks that double, cut to what is left of the budget.
        while (num_simulations is None or done < num_simulations) and (max_seconds is None or elapsed < max_seconds):
            num_next = at_once if num_simulations is None else min(at_once, num_simulations - done)
            search.run(num_next)
            done += num_next
            bar.update(num_next)
            elapsed = time.perf_counter() - began
            # Measured rate, so that the clock is looked at about every TICK seconds.
            rate = done / max(elapsed, 1e-6)
            left = TICK if max_seconds is None else min(TICK, max(max_seconds - elapsed, 0.0))
            # Ctrl-C is seen between blocks.
            at_once = max(1, min(2 * at_once, int(rate * left)))
    return elapsed


def _space_of(belief: object) -> StateActionSpace:
    """The space of a posterior; of draws without one, their sizes."""
    if isinstance(belief, WeightedSamples) and not hasattr(belief, "space"):
        mdps = belief.mdps
        # Masks of all draws are the same: the first one's.
        legal = None if mdps.legal is None else np.asarray(mdps.legal)[0]
        ends = mdps.end_probs is not None
        size = np.shape(mdps.reward)  # [N *H S A]
        horizon = size[1] if len(size) == 4 else None
        return StateActionSpace(mdps.n_states, mdps.n_actions, horizon=horizon, ends=ends, legal=legal)
    space = getattr(belief, "space", None)
    check_space(space, "belief.space")
    assert isinstance(space, StateActionSpace)
    return space


def _index_of(state: Hashable, space: StateActionSpace) -> int:
    """The index of a state by its name, or by itself where states have no names."""
    if state in space.state_names:
        return space.state_names.index(state)
    raise ValueError(f"state is {state!r}, expected one of {label_list(space.state_names)}")


def _check_step(step: int, objective: Objective) -> None:
    """Refuse a step that no episode has."""
    check_count("step", step, 0)
    last = objective.horizon - 1 if isinstance(objective, Episodic) else 0
    if step > last:
        expected = f"at most {last}" if isinstance(objective, Episodic) else "0: steps count under Episodic alone"
        raise ValueError(f"step is {step}, expected {expected}")
