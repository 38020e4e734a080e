"""How a model-based learner plans: exactly at every plan, or by a few backups after every step.

A planner needs the `local` model of an agent only, so any agent of the family can use either.
"""

import warnings
from collections.abc import Callable
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from bayes_mdp.agents.model_based.empirical import (
    ListedTally,
    Local,
    Stats,
    Tally,
    model_of,
    next_states,
    values_of_rows,
)
from bayes_mdp.mdp import Discounted, Episodic, Objective, Problem, StateActionSpace, Transitions
from bayes_mdp.numerics.products import matmul
from bayes_mdp.planning import evaluate, solve
from bayes_mdp.planning.prioritized_sweeping import (
    Backup,
    BackupOf,
    ObservedPredecessors,
    Predecessors,
    Sweeps,
    backed_up,
    pass_on,
    predecessors_of,
)
from bayes_mdp.planning.solution import Solution, best_action
from bayes_mdp.utils.typing import AnyArray, IntScalar, RealScalar, Scalar
from bayes_mdp.utils.validation import check_count, check_that, check_type

_ROUNDS = 64
_LISTED_BELOW = 32  # states: up to here lists of all states are short enough


Table = Float[Array, "*H S A"]
Actions = Int[Array, "*H S"]
NextValues = Float[Array, " K"] | Float[Array, "*pairs K"]
"""Values of the K successors: the same for all pairs (all states), or those of the successors that a pair lists."""
TwoValues = tuple[Float[Array, " S"], Float[Array, " S"]]
"""Vr and Ve."""
Settling = tuple[Solution, Bool[Array, ""], Int[Array, ""]]
"""Of `_settled`: the plan, whether its values moved, rounds made."""


@runtime_checkable
class Explores(Protocol):
    """What a planner needs of an agent: its model of some pairs, and how its two value functions are related.

    `joint`: both follow the greedy policy of their sum; else each is the optimum of its own reward. `own_rows`: the sum
    is the optimum of separate rows (`Local.optimistic`), Qr that of the empirical model, and `local` depends on
    the current values. `discount_of_bonus`: of the exploration values; None: that of the objective.
    """

    joint: ClassVar[bool]
    own_rows: ClassVar[bool]

    @property
    def discount_of_bonus(self) -> RealScalar | None:
        """Discount of the exploration values."""
        ...

    def local(self, stats: Stats, values: Float[Array, "*pairs K"]) -> Local:
        """The optimistic model of some pairs.

        Args:
            stats: what was observed of the pairs.
            values: of the K successors, in units of the return.
        """
        ...


class Split(NamedTuple):
    """Two value functions of a plan: of the rewards and of the exploration bonus. The agent is greedy for the sum.

    Args:
        qr, qe: [*H S A], -inf in both where an action is illegal.
        best: the greedy action of the sum.
        best_r: that of `qr`, without exploration.
    """

    qr: Float[Array, "*H S A"]
    qe: Float[Array, "*H S A"]
    best: Int[Array, "*H S"]
    best_r: Int[Array, "*H S"]


def _chosen(q: Float[Array, "P A"], action: Int[Array, " P"]) -> Float[Array, " P"]:
    return jnp.take_along_axis(q, action[..., None], -1)[..., 0]


def _split(
    agent: Explores, legal: Bool[AnyArray, "P A"] | None, qr: Float[Array, "P A"], qe: Float[Array, "P A"]
) -> tuple[Split, Float[Array, " P"], Float[Array, " P"]]:
    """The split of two tables, and the values of the states."""
    if legal is not None:
        qr, qe = jnp.where(legal, qr, -jnp.inf), jnp.where(legal, qe, -jnp.inf)
    split = Split(qr, qe, best_action(qr + qe), best_action(qr))
    if agent.joint:
        return split, _chosen(qr, split.best), _chosen(qe, split.best)
    vr = jnp.max(qr, -1)
    return split, vr, jnp.max(qr + qe, -1) - vr if agent.own_rows else jnp.max(qe, -1)


def _weighed(rows: Float[Array, "*pairs K"], values: Float[Array, "*pairs K"]) -> Float[Array, "*pairs"]:
    """The mean of the values of listed successors."""
    return jnp.sum(rows * values, -1)


def _looked_ahead(
    agent: Explores,
    local: Local,
    discount: RealScalar,
    mean: Callable[[Float[Array, "*pairs K"], NextValues], Float[Array, "*pairs"]],
    vr: NextValues,
    ve: NextValues,
) -> tuple[Float[Array, "*pairs"], Float[Array, "*pairs"]]:
    """Qr and Qe, one step before the values `vr` and `ve`; `mean`: of values, weighed by rows."""
    discount = jnp.asarray(discount)
    # Qr = reward + discount sum_y p(y) Vr(y)
    qr = local.reward + discount * mean(local.probs, vr)
    if agent.own_rows:
        # Qe = Q+ - Qr, Q+ of the optimistic rows
        assert local.optimistic is not None
        return qr, local.bonus + discount * (mean(local.optimistic, vr + ve) - mean(local.probs, vr))
    own = discount if agent.discount_of_bonus is None else jnp.asarray(agent.discount_of_bonus)
    return qr, local.bonus + own * mean(local.probs, ve)


class ExactState(eqx.Module):
    """The state of `ExactPlanner`.

    Args:
        tally: the counts.
        plans: the last solutions: of the sum where it is joint, else of rewards and of bonus; () under `Episodic`.
    """

    tally: Tally
    plans: tuple[Solution, ...]


def check_planner(planner: object) -> None:
    """Refuse what is none of the two planners.

    Args:
        planner: of an agent.

    Raises:
        TypeError: it is none.
    """
    check_type("planner", planner, (ExactPlanner, PrioritizedSweeping), "ExactPlanner() or PrioritizedSweeping()")


class ExactPlanner(eqx.Module):
    """The exact optimum of the optimistic model at every plan, starting from the last one.

    For up to a few hundred states; in a space that lists successors for any number, where plans are not made at every
    step. Under `Episodic` one backward pass.
    """

    def init(self, agent: Explores, problem: Problem) -> ExactState:
        """Nothing counted, no plan.

        Args:
            agent: whose model is planned in.
            problem: what is known of the MDP before any data.

        Raises:
            ValueError: an objective other than `Discounted` and `Episodic`.
        """
        check_objective(problem, type(agent).__name__)
        tally = Tally.empty(problem.space)
        if isinstance(problem.objective, Episodic):
            return ExactState(tally, ())
        blank = Solution.blank(problem.space.shape, legal=problem.space.legal)
        return ExactState(tally, (blank,) if agent.joint else (blank, blank))

    def observe(
        self, agent: Explores, problem: Problem, state: ExactState, transition: Transitions, weight: Scalar
    ) -> ExactState:
        """One transition is counted.

        Args:
            agent, problem: as of `init`.
            state: from `init`, or the last call.
            transition: one.
            weight: 1; where it is 0 nothing is counted.
        """
        del agent
        return ExactState(state.tally.count(problem, transition, weight), state.plans)

    def plan(self, agent: Explores, problem: Problem, state: ExactState) -> tuple[Table, Actions, ExactState]:
        """q of the sum, its greedy actions, and the next state.

        Args:
            agent, problem: as of `init`.
            state: from `init`, or the last call.
        """
        if isinstance(problem.objective, Episodic):
            split = self.split(agent, problem, state)
            return split.qr + split.qe, split.best, state
        plans = _solved(agent, problem, state)
        state = ExactState(state.tally, plans)
        if agent.joint or agent.own_rows:
            return plans[-1].q, plans[-1].policy, state
        q = plans[0].q + plans[1].q
        return q, best_action(q), state

    def split(self, agent: Explores, problem: Problem, state: ExactState) -> Split:
        """The two value functions of the current model.

        Args:
            agent, problem, state: as of `plan`.
        """
        if isinstance(problem.objective, Episodic):
            return _backward(agent, problem, state.tally)
        plans = _solved(agent, problem, state)
        if not (agent.joint or agent.own_rows):
            return _split(agent, None, plans[0].q, plans[1].q)[0]
        qr = plans[0].q if agent.own_rows else _of_rewards(agent, problem, state.tally, plans[0])
        qe = jnp.where(jnp.isfinite(qr), plans[-1].q - qr, -jnp.inf)
        return Split(qr, qe, plans[-1].policy, best_action(qr))

    def check_learnt(self, state: PyTree) -> None:
        """Nothing is lost."""
        del state


def _of_rewards(agent: Explores, problem: Problem, tally: Tally, plan: Solution) -> Float[Array, "S A"]:
    """Qr of the policy that is greedy for the sum."""
    space, stats = problem.space, tally.stats_in(problem.space)
    local = agent.local(stats, _of_rows(space, plan.v, stats))
    mdp = model_of(space, local.probs, local.reward, space.legal)
    qr = evaluate(mdp, plan.policy, problem.objective).q
    return qr if space.legal is None else jnp.where(space.legal, qr, -jnp.inf)


def _of_rows(space: StateActionSpace, values: Float[Array, " S"], stats: Stats) -> Float[Array, "S A K"]:
    """`values` of the next states of every pair."""
    return jnp.broadcast_to(values_of_rows(space, values), stats.counts.shape)


def _solved(agent: Explores, problem: Problem, state: ExactState) -> tuple[Solution, ...]:
    space, stats = problem.space, state.tally.stats_in(problem.space)
    discount = problem.objective.discount  # pyright: ignore[reportAttributeAccessIssue]

    def local_of(values: Float[Array, " S"]) -> Local:
        return agent.local(stats, _of_rows(space, values, stats))

    def solved(
        rows: Float[Array, "S A K"],
        reward: Float[Array, "S A"],
        start: Solution,
        goal: Objective = problem.objective,
    ) -> Solution:
        return solve(model_of(space, rows, reward, space.legal), goal, start=start)

    local = local_of(state.plans[-1].v)
    if agent.joint:
        return (solved(local.probs, local.reward + local.bonus, state.plans[0]),)
    real = solved(local.probs, local.reward, state.plans[0])
    if not agent.own_rows:
        own = discount if agent.discount_of_bonus is None else agent.discount_of_bonus
        return real, solved(local.probs, local.bonus, state.plans[1], Discounted(own))

    # Rows depend on the values: best rows for the last values, a plan for these rows, and so on.
    def improved(plan: Solution) -> Solution:
        local = local_of(plan.v)
        assert local.optimistic is not None
        return solved(local.optimistic, local.reward + local.bonus, plan)

    return real, _settled(improved, state.plans[1])


def _settled(improve: Callable[[Solution], Solution], plan: Solution) -> Solution:
    """Policy iteration over rows: best rows for the last values, then values of these rows, until nothing changes."""

    # The threshold is a few roundings of the largest value.
    def body(loop: Settling) -> Settling:
        plan, _, count = loop
        new = improve(plan)
        moved, size = jnp.max(jnp.abs(new.v - plan.v)), jnp.max(jnp.abs(new.v))
        return new, moved > 64 * float(jnp.finfo(size.dtype).eps) * size, count + 1

    first = (plan, jnp.array(True), jnp.int32(0))
    return lax.while_loop(lambda loop: loop[1] & (loop[2] < _ROUNDS), body, first)[0]


def _backward(agent: Explores, problem: Problem, tally: Tally) -> Split:
    """Backward induction over the steps of an episode."""
    assert isinstance(problem.objective, Episodic)
    space, legal = problem.space, problem.space.legal
    every = tally.stats_in(space)
    mean = matmul if space.successors is None else _weighed

    def step(values: TwoValues, layer: IntScalar) -> tuple[TwoValues, Split]:
        # At step h the rows see V_{h+1} = Vr + Ve, the values of the policy that acts on the sum.
        stats = every if every.visits.ndim == 2 else jax.tree.map(lambda x: x[layer], every)
        vr, ve = (values_of_rows(space, x, layer) for x in values)
        local = agent.local(stats, jnp.broadcast_to(vr + ve, stats.counts.shape))
        qr, qe = _looked_ahead(agent, local, 1.0, mean, vr, ve)
        split, vr, ve = _split(agent, legal, qr, qe)
        return (vr, ve), split

    none = jnp.zeros(problem.space.n_states)
    return lax.scan(step, (none, none), jnp.arange(problem.objective.horizon), reverse=True)[1]


class SweptState(eqx.Module):
    """The state of `PrioritizedSweeping`.

    Args:
        tally: the counts.
        sweeps: the values, and the queue.
        predecessors: of all states, where the space lists successors; None: those that were observed, in the tally.
    """

    tally: ListedTally | Tally
    sweeps: Sweeps
    predecessors: Predecessors | None = None


class PrioritizedSweeping(eqx.Module):
    """Improved prioritized sweeping after every step: a few backups where the model has just changed. Discounted.

    Args:
        num_pops: most states taken from the queue after a step; all predecessors of each are backed up.
        threshold: units of the reward; a state is queued when its value changed by more.
        max_successors: K, next states that a pair can have; None: all (up to 32 states).
        max_predecessors: P, states from which a state can be reached; None: all (up to 32 states). Transitions
            that do not fit are not learnt from; the tally counts them as `lost`. In a space that lists its successors
            both lists are known, and neither number is used.

    Raises:
        ValueError, TypeError: a number outside its range.
    """

    num_pops: int = eqx.field(default=10, static=True)
    threshold: float | Array = 1e-3
    max_successors: int | None = eqx.field(default=None, static=True)
    max_predecessors: int | None = eqx.field(default=None, static=True)

    def __check_init__(self) -> None:
        check_count("num_pops", self.num_pops)
        for name in ("max_successors", "max_predecessors"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        check_that("threshold", self.threshold, lambda x: x >= 0, "a number, zero or greater")

    def init(self, agent: Explores, problem: Problem) -> SweptState:
        """No data; the values are those of the model without data.

        Args:
            agent: whose model is planned in.
            problem: what is known of the MDP before any data.

        Raises:
            ValueError: an objective other than `Discounted`; more than 32 states, no length of the lists, and a space
                that does not list successors.
        """
        check_objective(problem, "prioritized sweeping", (Discounted,))
        space, n = problem.space, problem.space.n_states
        if space.successors is not None:
            known = Tally.empty(space)
            return SweptState(known, _first_sweeps(agent, problem, known), _predecessors(space))
        for name in ("max_successors", "max_predecessors"):
            if getattr(self, name) is None and n > _LISTED_BELOW:
                raise ValueError(
                    f"{name} is None, expected a number of states: the space has {n}, and does not list successors"
                )
        tally = ListedTally.empty(space, self.max_successors or n, self.max_predecessors or n)
        return SweptState(tally, _first_sweeps(agent, problem, tally))

    def observe(
        self, agent: Explores, problem: Problem, state: SweptState, transition: Transitions, weight: Scalar
    ) -> SweptState:
        """One transition is counted, its state backed up, then up to `num_pops` states are passed on.

        Args:
            agent, problem: as of `init`.
            state: from `init`, or the last call.
            transition: one.
            weight: 1; where it is 0 nothing is counted.
        """
        tally, lists, active = state.tally, state.predecessors, jnp.asarray(weight) != 0
        if isinstance(tally, ListedTally):
            tally = tally.count(transition, weight)
            lists = ObservedPredecessors(tally.predecessor)
        else:
            tally = tally.count(problem, transition, weight)
            assert lists is not None
        backup, n = _backup(agent, problem, tally), problem.space.n_states
        # Back up the state that was left, then pass its change on to predecessors. A masked step has index S: no state.
        here = jnp.where(active, transition.state, n)
        sweeps = backed_up(state.sweeps, backup, jnp.atleast_1d(here), self.threshold)
        num_pops = jnp.where(active, self.num_pops, 0)
        return SweptState(tally, pass_on(sweeps, backup, lists, self.threshold, num_pops), state.predecessors)

    def plan(self, agent: Explores, problem: Problem, state: SweptState) -> tuple[Table, Actions, SweptState]:
        """q of the sum, its greedy actions, and the state, unchanged.

        Args:
            agent, problem: as of `init`.
            state: from `init`, or the last call.
        """
        del agent, problem
        return jnp.sum(state.sweeps.q, 1), state.sweeps.best[:, 0], state

    def split(self, agent: Explores, problem: Problem, state: SweptState) -> Split:
        """The two current value functions.

        Args:
            agent, problem, state: as of `plan`.
        """
        del agent, problem
        return Split(*jnp.moveaxis(state.sweeps.q, 1, 0), *state.sweeps.best.T)

    def check_learnt(self, state: PyTree) -> None:
        """Warn where the lists were too short."""
        lost = int(np.sum(state.tally.lost)) if isinstance(state.tally, ListedTally) else 0
        if lost:
            warnings.warn(
                f"{lost} transitions were not learnt from: max_successors is {self.max_successors}, max_predecessors "
                f"{self.max_predecessors}, expected larger numbers",
                UserWarning,
                stacklevel=2,
            )


def _first_sweeps(agent: Explores, problem: Problem, tally: ListedTally | Tally) -> Sweeps:
    """The values of a model without data."""
    n = problem.space.n_states
    return Sweeps.start(_backup(agent, problem, tally)(jnp.arange(n), jnp.zeros((n, 2))))


def _predecessors(space: StateActionSpace) -> Predecessors:
    """The states from which each can be reached, by the lists of the space."""
    listed = jnp.asarray(space.successors)
    possible = (listed >= 0) & (listed < space.n_states)
    return predecessors_of(listed, possible if space.legal is None else possible & space.legal[..., None])


def _backup(agent: Explores, problem: Problem, tally: ListedTally | Tally) -> BackupOf:
    """The Bellman equation of an agent, for some states."""
    discount = problem.objective.discount  # pyright: ignore[reportAttributeAccessIssue]
    legal = None if problem.space.legal is None else jnp.asarray(problem.space.legal)
    listed = next_states(problem.space) if isinstance(tally, Tally) else None

    def backup(states: Int[Array, " P"], values: Float[Array, "S 2"]) -> Backup:
        if isinstance(tally, ListedTally):
            stats, successor = tally.stats(states)
        else:
            assert listed is not None
            stats, successor = tally.some(states), listed[states]
        later = values[successor]
        vr, ve = later[..., 0], later[..., 1]
        local = agent.local(stats, vr + ve)
        qr, qe = _looked_ahead(agent, local, discount, _weighed, vr, ve)
        split, vr, ve = _split(agent, None if legal is None else legal[states], qr, qe)
        both = zip((split.qr, vr, split.best), (split.qe, ve, split.best_r), strict=True)
        return Backup(*(jnp.stack(pair, 1) for pair in both))

    return backup


def check_objective(problem: Problem, who: str, allowed: tuple[type, ...] = (Discounted, Episodic)) -> None:
    """Refuse an objective that is not in `allowed`; `who` is the agent's name for the message.

    Args:
        problem: whose objective is looked at.

    Raises:
        ValueError: as said.
    """
    if not isinstance(problem.objective, allowed):
        names = " or ".join(kind.__name__ for kind in allowed)
        raise ValueError(f"objective is {type(problem.objective).__name__}, expected {names} for {who}")
