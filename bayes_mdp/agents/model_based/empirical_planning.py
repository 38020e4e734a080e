"""What learners without a prior share: counts, the Bellman equations of an optimistic model made of them, two planners.

[OIM08] Szita and Lorincz, *The Many Faces of Optimism*, ICML 2008: most exploration methods plan in the empirical model
with an exploration bonus added to the rewards. `Local` holds both; a method is a rule that computes it from `Stats`.

Values split into Qr, of the rewards, and Qe, of the exploration bonus ([OIM08] section 2.5); an agent is greedy for the
sum. Papers relate the two in three ways, each told in one class: both are values of one policy (`OnePolicy`), each is
the optimum of its own reward (`TwoOptima`), or the sum is the optimum of other rows (`OwnRows`). A planner is given one
of these and asks nothing else of an agent, so any agent of the family can use either: the exact optimum at every plan,
or a few backups after every step.
"""

import math
import warnings
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from bayes_mdp.mdp import MDP, Discounted, Episodic, Problem, SparseMDP, StateActionSpace, Transitions
from bayes_mdp.mdp.objectives import require_objective
from bayes_mdp.numerics.products import matmul
from bayes_mdp.planning import evaluate, solve
from bayes_mdp.planning.prioritized_sweeping import (
    Backup,
    BackupOf,
    ObservedPredecessors,
    Predecessors,
    Sweeps,
    back_up_states,
    pass_on,
    predecessors_of,
)
from bayes_mdp.planning.solution import Solution, best_action, where_legal
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.messages import count_of
from bayes_mdp.utils.typing import AnyArray, IntScalar, RealScalar, Scalar
from bayes_mdp.utils.validation import check_count, check_that

COPIES = 6  # of the counts: two models made from them, and the buffers of a step
REMEDY = (
    "a space that lists the possible successors (StateActionSpace(successors=...)), or a planner that lists the "
    "observed ones (PrioritizedSweeping), takes less"
)


class Stats(NamedTuple):
    """Counts of some pairs (any leading axes).

    Args:
        visits: n, how often the pair was used; visits missing in `counts` ended the episode.
        reward: mean of the observed rewards, 0 where n = 0.
        counts: counts of K successors.
        last_use: at which step (from 1 on) the pair was last used; 0: never.
        possible: which of the K places hold a next state, where every pair has a list of its own; None: the K are all
            states, or a place without counts holds none.
    """

    visits: Float[Array, "*pairs"]
    reward: Float[Array, "*pairs"]
    counts: Float[Array, "*pairs K"]
    last_use: Int[Array, "*pairs"]
    possible: Bool[AnyArray, "*pairs K"] | None = None

    @property
    def probs(self) -> Float[Array, "*pairs K"]:
        """N(s, a, y) / n, 0 where n = 0."""
        return self.counts / jnp.maximum(self.visits, 1.0)[..., None]


class Local(NamedTuple):
    """One step of an optimistic model: Q = reward + bonus + discount sum_y probs(y) V(y).

    Args:
        reward: expected reward, in units of the reward.
        bonus: exploration bonus, in the same units.
        probs: of the K successors; the missing mass leads to an end of value 0.
    """

    reward: Float[Array, "*pairs"]
    bonus: Float[Array, "*pairs"]
    probs: Float[Array, "*pairs K"]


class Tally(eqx.Module):
    """Counts of all pairs: of every next state or, in a space that lists successors, of every listed one.

    Args:
        visits: n of every pair.
        total: sum of the rewards.
        counts: of the K next states of a row: all, or those that a pair lists (and a place for the end).
        last_use: as in `Stats`.
        time: steps so far.
    """

    visits: Float[Array, "*H S A"]
    total: Float[Array, "*H S A"]
    counts: Float[Array, "*H S A K"]
    last_use: Int[Array, "*H S A"]
    time: Int[Array, ""]

    @classmethod
    def empty(cls, space: StateActionSpace) -> "Tally":
        """No data.

        Args:
            space: whose pairs are counted.

        Raises:
            ValueError: the counts, and a model made of them, would not fit in memory.
        """
        shape = (*space.shape, space.n_states if space.successors is None else space.n_outcomes)
        numbers = math.prod(shape)
        check_memory(f"space has {numbers} counts of next states", 4.0 * COPIES * numbers, REMEDY)
        none = jnp.zeros(space.shape)
        return cls(none, none, jnp.zeros(shape), jnp.zeros(space.shape, jnp.int32), jnp.int32(0))

    def count(self, problem: Problem, transition: Transitions, weight: Scalar) -> "Tally":
        """The tally after one transition; unchanged where `weight` is 0.

        Args:
            problem: whose space is looked at.
            transition: one.
        """
        # A visit that ended the episode has no next state: the missing mass of the row is the probability of an end.
        space, used = problem.space, jnp.asarray(weight, self.visits.dtype)
        ended = False if transition.terminated is None else transition.terminated
        cell, time = transition.cell(space), self.time + (used > 0)
        # A masked reward may be anything, nan included.
        reward = jnp.where(used > 0, used * jnp.asarray(transition.reward), 0.0)
        # In a listed space the column of a successor is its place in the list of the pair.
        place = transition.next_state if space.successors is None else space.place(cell, transition.next_state)
        # Scatters in place: under jit no copy of the counts is made.
        return Tally(
            self.visits.at[cell].add(used),
            self.total.at[cell].add(reward),
            self.counts.at[(*cell, place)].add(jnp.where(ended, 0.0, used)),
            self.last_use.at[cell].set(jnp.where(used > 0, time, self.last_use[cell])),
            time,
        )

    def mdp(self, space: StateActionSpace) -> MDP | SparseMDP:
        """The empirical MDP. Only tried pairs are legal; in a state without one every legal action ends the episode.

        Args:
            space: whose pairs were counted.
        """
        stats = self.stats
        return model_of(space, stats.probs, stats.reward, _usable(stats, space.legal))

    @property
    def stats(self) -> Stats:
        """Of all pairs."""
        return Stats(self.visits, self.total / jnp.maximum(self.visits, 1.0), self.counts, self.last_use)

    def stats_in(self, space: StateActionSpace) -> Stats:
        """Of all pairs, with the places that are possible where the space lists successors.

        Args:
            space: whose pairs were counted.
        """
        listed = space.successors
        return self.stats if listed is None else self.stats._replace(possible=_is_state(space, self.counts))

    def some(self, states: Int[Array, " P"]) -> Stats:
        """Of all pairs of some states, for a tally without an axis of steps.

        Args:
            states: their indices.
        """
        visits = self.visits[states]
        mean = self.total[states] / jnp.maximum(visits, 1.0)
        return Stats(visits, mean, self.counts[states], self.last_use[states])


def next_states(space: StateActionSpace) -> Int[Array, "*H S A K"]:
    """The listed next states as indices; state 0 at a place that holds none (-1, or the end), where nothing counts.

    Args:
        space: one that lists successors.
    """
    listed = jnp.asarray(space.successors)
    # Index 0 stands in for places that hold no state; their counts are zero, so that it is never read.
    return jnp.where((listed >= 0) & (listed < space.n_states), listed, 0)


def values_of_rows(space: StateActionSpace, values: Float[Array, " S"], step: IntScalar = 0) -> Float[Array, "*#S K"]:
    """`values` of the states as those of the next states of a row, at one step: [S], or [S A K] in a listed space.

    Args:
        space: any.
        step: of the episode, where lists depend on it.
    """
    if space.successors is None:
        return values
    listed = next_states(space)
    # Gathered once a plan: the values of the listed successors, [S A K].
    return values[listed if listed.ndim == 3 else listed[step]]


def model_of(
    space: StateActionSpace,
    probs: Float[Array, "*H S A K"],
    reward: Float[Array, "*H S A"],
    legal: Bool[AnyArray, "S A"] | None,
) -> MDP | SparseMDP:
    """The MDP with these rows of next states; the mass that a row lacks ends the episode.

    Args:
        space: of the pairs.
        probs: of the K next states of a row.
        reward: mean reward of each pair.
        legal: which pairs may be used; None: all.
    """
    # Ends are not counted: they are what is missing in a row.
    ends = jnp.maximum(1.0 - jnp.sum(probs, -1), 0.0)
    if space.successors is None:
        return MDP(probs, reward, end_probs=ends, legal=legal)
    # The empty places keep probability zero, and may name any state.
    listed = jnp.broadcast_to(next_states(space), probs.shape)
    return SparseMDP(listed, probs, reward, end_probs=ends, legal=legal)


def _is_state(space: StateActionSpace, counts: Float[Array, "*H S A K"]) -> Bool[Array, "*H S A K"]:
    listed = jnp.asarray(space.successors)
    return jnp.broadcast_to((listed >= 0) & (listed < space.n_states), counts.shape)


class ListedTally(eqx.Module):
    """Counts of all pairs with lists of observed successors, and of observed predecessors of states. Stationary.

    Args:
        visits, total, last_use, time: as in `Tally`.
        successor: the k-th observed next state (0 where there is none yet; its count is 0).
        counts: of each.
        predecessor: observed predecessors of each state, padded with S.
        lost: transitions that did not fit in the lists and were not counted.
    """

    visits: Float[Array, "S A"]
    total: Float[Array, "S A"]
    last_use: Int[Array, "S A"]
    time: Int[Array, ""]
    successor: Int[Array, "S A K"]
    counts: Float[Array, "S A K"]
    predecessor: Int[Array, "S P"]
    lost: Int[Array, ""]

    @classmethod
    def empty(cls, space: StateActionSpace, max_successors: int, max_predecessors: int) -> "ListedTally":
        """No data.

        Args:
            space: whose pairs are counted.
            max_successors: K, next states of a pair at most.
            max_predecessors: of a state, at most.
        """
        s, a = space.n_states, space.n_actions
        # S in a list of predecessors marks a free place.
        none, zero = jnp.zeros((s, a)), jnp.int32(0)
        lists = jnp.zeros((s, a, max_successors), jnp.int32)
        predecessor = jnp.full((s, max_predecessors), s, jnp.int32)
        return cls(none, none, jnp.zeros((s, a), jnp.int32), zero, lists, jnp.zeros(lists.shape), predecessor, zero)

    def count(self, transition: Transitions, weight: Scalar) -> "ListedTally":
        """The tally after one transition; unchanged where `weight` is 0.

        Args:
            transition: one.
        """
        s, a, y = (jnp.asarray(x, jnp.int32) for x in (transition.state, transition.action, transition.next_state))
        ended = jnp.asarray(False if transition.terminated is None else transition.terminated)
        # A successor that fits in its list may have a predecessor that does not: then nothing is counted.
        slot, placed = _place(self.successor[s, a], self.counts[s, a] > 0, y)
        before, known = _place(self.predecessor[y], self.predecessor[y] < self.visits.shape[0], s)
        # An end needs no place in either list.
        fits = ended | (placed & known)
        used = jnp.where(fits, jnp.asarray(weight, self.visits.dtype), 0.0)
        time, continues = self.time + (used > 0), (used > 0) & ~ended
        reward = jnp.where(used > 0, used * jnp.asarray(transition.reward), 0.0)
        return ListedTally(
            self.visits.at[s, a].add(used),
            self.total.at[s, a].add(reward),
            self.last_use.at[s, a].set(jnp.where(used > 0, time, self.last_use[s, a])),
            time,
            self.successor.at[s, a, slot].set(jnp.where(continues, y, self.successor[s, a, slot])),
            self.counts.at[s, a, slot].add(jnp.where(continues, used, 0.0)),
            self.predecessor.at[y, before].set(jnp.where(continues, s, self.predecessor[y, before])),
            # Lost transitions are counted, so that `check_learnt` can warn.
            self.lost + (~fits & (jnp.asarray(weight) != 0)),
        )

    def mdp(self, space: StateActionSpace) -> SparseMDP:
        """The empirical MDP, as `Tally.mdp`.

        Args:
            space: whose pairs were counted.
        """
        stats, successor = self.stats(jnp.arange(len(self.visits)))
        ends = jnp.maximum(1.0 - jnp.sum(stats.probs, -1), 0.0)
        return SparseMDP(successor, stats.probs, stats.reward, end_probs=ends, legal=_usable(stats, space.legal))

    def stats(self, states: Int[Array, " P"]) -> tuple[Stats, Int[Array, "P A K"]]:
        """Of all pairs of some states, and their successors.

        Args:
            states: their indices.
        """
        visits = self.visits[states]
        mean = self.total[states] / jnp.maximum(visits, 1.0)
        return Stats(visits, mean, self.counts[states], self.last_use[states]), self.successor[states]


def _usable(stats: Stats, legal: Bool[AnyArray, "S A"] | None) -> Bool[Array, "S A"]:
    """Pairs tried at some step; in a state without one, all legal pairs."""
    # Where nothing was tried the row is empty: every action ends the episode with value 0.
    # Over all leading axes: tried at any step.
    tried = jnp.any(stats.visits > 0, tuple(range(stats.visits.ndim - 2)))
    allowed = jnp.ones(tried.shape, bool) if legal is None else jnp.asarray(legal)
    return tried | (allowed & ~jnp.any(tried, -1, keepdims=True))


def _place(
    listed: Int[Array, " K"], taken: Bool[Array, " K"], item: IntScalar
) -> tuple[Int[Array, ""], Bool[Array, ""]]:
    """The index of `wanted` in a list, or of the first free place, and whether there is one."""
    # Lists are filled from the left: the first place that holds `wanted` or is free, found without a branch.
    is_item = taken & (listed == item)
    fits = is_item | (~taken & ~jnp.any(is_item))
    return jnp.argmax(fits), jnp.any(fits)


_ROUNDS = 64
_LISTED_BELOW = 32  # states: up to here lists of all states are short enough


Table = Float[Array, "*H S A"]
Actions = Int[Array, "*H S"]
NextValues = Float[Array, " K"] | Float[Array, "*pairs K"]
"""Values of the K successors: the same for all pairs (all states), or those of the successors that a pair lists."""
TwoValues = tuple[Float[Array, " S"], Float[Array, " S"]]
"""Vr and Ve."""
Plans: TypeAlias = tuple[Solution, ...]
"""The last solutions: one of the sum (`OnePolicy`), else two."""
Settling = tuple[Solution, Bool[Array, ""], Int[Array, ""]]
"""Of `_iterate_rows_until_stable`: the plan, whether its values moved, rounds made."""
LocalModel: TypeAlias = Callable[[Stats], Local]
"""Counts of some pairs -> the optimistic model of these pairs."""
OptimisticRows: TypeAlias = Callable[[Stats, Float[Array, "*pairs K"]], Float[Array, "*pairs K"]]
"""(counts of some pairs, values of the K successors of each, in units of the return) -> rows that favour these."""
Mean: TypeAlias = Callable[[Float[Array, "*pairs K"], NextValues], Float[Array, "*pairs"]]
"""(rows, values of the successors) -> the mean of the values."""


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


def _greedy_split(legal: Bool[AnyArray, "P A"] | None, qr: Float[Array, "P A"], qe: Float[Array, "P A"]) -> Split:
    """Two tables, -inf where illegal, and the greedy actions of the sum and of the rewards."""
    # -inf in both tables: an illegal action is greedy for neither.
    qr, qe = where_legal(qr, legal), where_legal(qe, legal)
    return Split(qr, qe, best_action(qr + qe), best_action(qr))


def _solve_rows(
    problem: Problem,
    rows: Float[Array, "S A K"],
    reward: Float[Array, "S A"],
    start: Solution,
    discount: RealScalar | None = None,
) -> Solution:
    """The optimum of the MDP with these rows and rewards; `discount`: None: that of the objective."""
    goal = problem.objective if discount is None else Discounted(discount)
    # The rows, rewards and start are all that differs between the plans of a method.
    return solve(model_of(problem.space, rows, reward, problem.space.legal), goal, start=start)


class OnePolicy(NamedTuple):
    """Qr and Qe are values of one policy, which is greedy for their sum ([OIM08] algorithm 1).

    The sum is the optimum of one MDP, whose rewards are reward + bonus.

    Args:
        local: the optimistic model.
    """

    local: LocalModel

    num_plans = 1  # of the sum

    def back_up(
        self,
        stats: Stats,
        legal: Bool[AnyArray, "P A"] | None,
        discount: RealScalar,
        mean: Mean,
        vr: NextValues,
        ve: NextValues,
    ) -> tuple[Split, Float[Array, " P"], Float[Array, " P"]]:
        """Both tables look ahead with the same rows and discount; both values are those of the greedy action a_y."""
        local, discount = self.local(stats), jnp.asarray(discount)
        # Qr = reward + discount sum p Vr, Qe = bonus + discount sum p Ve ([OIM08] section 2.5)
        qr = local.reward + discount * mean(local.probs, vr)
        qe = local.bonus + discount * mean(local.probs, ve)
        split = _greedy_split(legal, qr, qe)
        # The maximum is over the sum; each part takes its own value at that action, not its own maximum.
        chosen = lambda q: jnp.take_along_axis(q, split.best[..., None], -1)[..., 0]  # noqa: E731
        return split, chosen(split.qr), chosen(split.qe)

    def solve(self, problem: Problem, stats: Stats, plans: Plans) -> Plans:
        """The optimum for reward + bonus."""
        local = self.local(stats)
        # [OIM08] section 2.5: one policy for both, so that the sum is the optimum of summed rewards.
        return (_solve_rows(problem, local.probs, local.reward + local.bonus, plans[0]),)

    def sum_of(self, plans: Plans) -> tuple[Table, Actions]:
        """The plan itself."""
        return plans[0].q, plans[0].policy

    def split(self, problem: Problem, stats: Stats, plans: Plans) -> Split:
        """Qr by evaluation of the plan with the rewards alone; Qe is the rest of the sum."""
        local, space, plan = self.local(stats), problem.space, plans[0]
        # Qr is a value, not an optimum: of the policy that maximises the sum.
        qr = evaluate(model_of(space, local.probs, local.reward, space.legal), plan.policy, problem.objective).q
        return _rest_of_sum(where_legal(qr, space.legal), plan)


def _rest_of_sum(qr: Float[Array, "S A"], plan: Solution) -> Split:
    """The split of a plan of the sum: Qe = Q+ - Qr, where -inf - -inf would be nan."""
    qe = jnp.where(jnp.isfinite(qr), plan.q - qr, -jnp.inf)
    return Split(qr, qe, plan.policy, best_action(qr))


class TwoOptima(NamedTuple):
    """Qr and Qe are each the optimum of its own reward: they need not agree on what is best to do later.

    Args:
        local: the optimistic model.
        bonus_discount: of the exploration values; None: that of the objective.
    """

    local: LocalModel
    bonus_discount: Scalar | None = None

    num_plans = 2  # of the rewards, of the bonus

    def back_up(
        self,
        stats: Stats,
        legal: Bool[AnyArray, "P A"] | None,
        discount: RealScalar,
        mean: Mean,
        vr: NextValues,
        ve: NextValues,
    ) -> tuple[Split, Float[Array, " P"], Float[Array, " P"]]:
        """Each table has its own discount, and its own maximum as value."""
        local, discount = self.local(stats), jnp.asarray(discount)
        qr = local.reward + discount * mean(local.probs, vr)
        of_bonus = discount if self.bonus_discount is None else jnp.asarray(self.bonus_discount)
        # Discounts may differ: exploration may look less far ahead than the rewards.
        split = _greedy_split(legal, qr, local.bonus + of_bonus * mean(local.probs, ve))
        return split, jnp.max(split.qr, -1), jnp.max(split.qe, -1)

    def solve(self, problem: Problem, stats: Stats, plans: Plans) -> Plans:
        """Two optima of the same rows."""
        local = self.local(stats)
        # Each optimum starts from its own last plan.
        real = _solve_rows(problem, local.probs, local.reward, plans[0])
        # Same rows, other rewards, and perhaps another discount.
        return real, _solve_rows(problem, local.probs, local.bonus, plans[1], self.bonus_discount)

    def sum_of(self, plans: Plans) -> tuple[Table, Actions]:
        """Greedy for the sum of the two optima, which is no optimum itself."""
        q = plans[0].q + plans[1].q
        return q, best_action(q)

    def split(self, problem: Problem, stats: Stats, plans: Plans) -> Split:
        """The two plans."""
        del problem, stats
        return _greedy_split(None, plans[0].q, plans[1].q)


class OwnRows(NamedTuple):
    """The sum Q+ is the optimum of rows of its own, which favour its values; Qr that of the empirical rows.

    Args:
        local: reward, bonus and empirical rows.
        rows: the rows of Q+ for the values of Q+.
    """

    local: LocalModel
    rows: OptimisticRows

    num_plans = 2  # of the rewards, of the sum

    def back_up(
        self,
        stats: Stats,
        legal: Bool[AnyArray, "P A"] | None,
        discount: RealScalar,
        mean: Mean,
        vr: NextValues,
        ve: NextValues,
    ) -> tuple[Split, Float[Array, " P"], Float[Array, " P"]]:
        """Qe = Q+ - Qr, where the rows of Q+ are chosen for the values V+ = Vr + Ve."""
        local, discount = self.local(stats), jnp.asarray(discount)
        # The rows are chosen for V+ = Vr + Ve, the values that the agent is greedy for.
        rows = self.rows(stats, jnp.broadcast_to(vr + ve, stats.counts.shape))
        qr = local.reward + discount * mean(local.probs, vr)
        qe = local.bonus + discount * (mean(rows, vr + ve) - mean(local.probs, vr))
        split = _greedy_split(legal, qr, qe)
        # Vr is the maximum of Qr, and Ve what V+ has beyond it: their sum is V+ = max (Qr + Qe).
        best = jnp.max(split.qr, -1)
        return split, best, jnp.max(split.qr + split.qe, -1) - best

    def solve(self, problem: Problem, stats: Stats, plans: Plans) -> Plans:
        """The optimum of the empirical rows, then policy iteration over policies and rows together."""
        local, space = self.local(stats), problem.space
        real = _solve_rows(problem, local.probs, local.reward, plans[0])

        # Q+ = reward + bonus + discount max over rows of sum p V+. Rows depend on the values: best rows for the last
        # values, a plan for these rows, and so on.
        def improve(plan: Solution) -> Solution:
            # The values of the successors of each pair, in the shape of the counts.
            values = jnp.broadcast_to(values_of_rows(space, plan.v), stats.counts.shape)
            return _solve_rows(problem, self.rows(stats, values), local.reward + local.bonus, plan)

        return real, _iterate_rows_until_stable(improve, plans[1])

    def sum_of(self, plans: Plans) -> tuple[Table, Actions]:
        """The plan of the optimistic rows."""
        return plans[1].q, plans[1].policy

    def split(self, problem: Problem, stats: Stats, plans: Plans) -> Split:
        """Qr is the first plan; Qe the rest of the second."""
        del problem, stats
        return _rest_of_sum(plans[0].q, plans[1])


BellmanEquations: TypeAlias = OnePolicy | TwoOptima | OwnRows
"""The equations of an agent: one step of both value functions, and their fixed point under a discount.

* `num_plans`: what `solve` starts from and returns.
* `back_up(stats, legal, discount, mean, vr, ve)`: one step before the values `vr` and `ve`. Qr and Qe of some states,
  and the values Vr and Ve of these states, from the counts of their pairs, the actions that may be used (None:
  all), the discount (1 in episodes), the mean of values weighed by rows, and the values of the successors.
* `solve(problem, stats, plans)`: the fixed point under `Discounted`, from the last plans on.
* `sum_of(plans)`: Qr + Qe of the plans, and its greedy actions.
* `split(problem, stats, plans)`: both value functions of the plans that `solve` found.
"""


def _iterate_rows_until_stable(improve: Callable[[Solution], Solution], plan: Solution) -> Solution:
    """Policy iteration over rows: best rows for the last values, then values of these rows, until nothing changes."""

    # The threshold is a few roundings of the largest value.
    def body(loop: Settling) -> Settling:
        plan, _, count = loop
        new = improve(plan)
        moved, size = jnp.max(jnp.abs(new.v - plan.v)), jnp.max(jnp.abs(new.v))
        # In roundings of the largest value: below that, rows and plan alternate without getting better.
        return new, moved > 64 * float(jnp.finfo(size.dtype).eps) * size, count + 1

    first = (plan, jnp.array(True), jnp.int32(0))
    return lax.while_loop(lambda loop: loop[1] & (loop[2] < _ROUNDS), body, first)[0]


def _weigh(rows: Float[Array, "*pairs K"], values: Float[Array, "*pairs K"]) -> Float[Array, "*pairs"]:
    """The mean of the values of listed successors."""
    return jnp.sum(rows * values, -1)


class ExactState(eqx.Module):
    """The state of `ExactPlanner`.

    Args:
        tally: the counts.
        plans: the last solutions; () under `Episodic`.
    """

    tally: Tally
    plans: Plans


class ExactPlanner(eqx.Module):
    """The exact optimum of the optimistic model at every plan, starting from the last one.

    For up to a few hundred states; in a space that lists successors for any number, where plans are not made at every
    step. Under `Episodic` one backward pass.
    """

    def init(self, equations: BellmanEquations, problem: Problem, who: str) -> ExactState:
        """Nothing counted, no plan.

        Args:
            equations: of the agent.
            problem: what is known of the MDP before any data.
            who: the agent's name for the messages.

        Raises:
            ValueError, TypeError: an objective other than `Discounted` and `Episodic`.
        """
        require_objective(problem.objective, who, Discounted, Episodic)
        tally = Tally.empty(problem.space)
        # One backward pass under `Episodic` needs nothing to start from.
        if isinstance(problem.objective, Episodic):
            return ExactState(tally, ())
        blank = Solution.blank(problem.space.shape, legal=problem.space.legal)
        return ExactState(tally, (blank,) * equations.num_plans)

    def observe(
        self,
        equations: BellmanEquations,
        problem: Problem,
        state: ExactState,
        transition: Transitions,
        weight: Scalar,
    ) -> ExactState:
        """One transition is counted.

        Args:
            equations, problem: as of `init`.
            state: from `init`, or the last call.
            transition: one.
            weight: 1; where it is 0 nothing is counted.
        """
        del equations
        # Counting is all: the model is built when a plan is made.
        return ExactState(state.tally.count(problem, transition, weight), state.plans)

    def plan(
        self, equations: BellmanEquations, problem: Problem, state: ExactState
    ) -> tuple[Table, Actions, ExactState]:
        """q of the sum, its greedy actions, and the next state.

        Args:
            equations, problem: as of `init`.
            state: from `init`, or the last call.
        """
        if isinstance(problem.objective, Episodic):
            # Under `Episodic` a plan is made from the counts alone: one backward pass needs no start.
            split = _backward(equations, problem, state.tally)
            return split.qr + split.qe, split.best, state
        plans = equations.solve(problem, state.tally.stats_in(problem.space), state.plans)
        return *equations.sum_of(plans), ExactState(state.tally, plans)

    def split(self, equations: BellmanEquations, problem: Problem, state: ExactState) -> Split:
        """The two value functions of the current model.

        Args:
            equations, problem, state: as of `plan`.
        """
        if isinstance(problem.objective, Episodic):
            return _backward(equations, problem, state.tally)
        stats = state.tally.stats_in(problem.space)
        return equations.split(problem, stats, equations.solve(problem, stats, state.plans))

    def check_learnt(self, state: PyTree) -> None:
        """Nothing is lost."""
        del state


def _backward(equations: BellmanEquations, problem: Problem, tally: Tally) -> Split:
    """Backward induction over the steps of an episode."""
    assert isinstance(problem.objective, Episodic)
    space = problem.space
    all_stats = tally.stats_in(space)
    # Dense rows by a matrix product, listed ones entry by entry.
    mean = matmul if space.successors is None else _weigh

    def step(values: TwoValues, layer: IntScalar) -> tuple[TwoValues, Split]:
        # At step h the rows see V_{h+1} = Vr + Ve, the values of the policy that acts on the sum.
        stats = all_stats if all_stats.visits.ndim == 2 else jax.tree.map(lambda x: x[layer], all_stats)
        vr, ve = (values_of_rows(space, x, layer) for x in values)
        split, vr, ve = equations.back_up(stats, space.legal, 1.0, mean, vr, ve)
        return (vr, ve), split

    none = jnp.zeros(problem.space.n_states)
    # V_H = 0: nothing follows the last step.
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

    def init(self, equations: BellmanEquations, problem: Problem, who: str) -> SweptState:
        """No data; the values are those of the model without data.

        Args:
            equations: of the agent.
            problem: what is known of the MDP before any data.
            who: not used.

        Raises:
            ValueError, TypeError: an objective other than `Discounted`; more than 32 states, no length of the lists,
                and a space that does not list successors.
        """
        del who
        require_objective(problem.objective, "prioritized sweeping", Discounted)
        space, n = problem.space, problem.space.n_states
        if space.successors is not None:
            known = Tally.empty(space)
            # Known lists: no bound on the number of observed successors is needed.
            return SweptState(known, _first_sweeps(equations, problem, known), _predecessors(space))
        for name in ("max_successors", "max_predecessors"):
            if getattr(self, name) is None and n > _LISTED_BELOW:
                raise ValueError(
                    f"{name} is None, expected a number of states: the space has {n}, and does not list successors"
                )
        tally = ListedTally.empty(space, self.max_successors or n, self.max_predecessors or n)
        return SweptState(tally, _first_sweeps(equations, problem, tally))

    def observe(
        self,
        equations: BellmanEquations,
        problem: Problem,
        state: SweptState,
        transition: Transitions,
        weight: Scalar,
    ) -> SweptState:
        """One transition is counted, its state backed up, then up to `num_pops` states are passed on.

        Args:
            equations, problem: as of `init`.
            state: from `init`, or the last call.
            transition: one.
            weight: 1; where it is 0 nothing is counted.
        """
        tally, lists, active = state.tally, state.predecessors, jnp.asarray(weight) != 0
        if isinstance(tally, ListedTally):
            tally = tally.count(transition, weight)
            # Predecessors change with the data: those observed so far.
            lists = ObservedPredecessors(tally.predecessor)
        else:
            tally = tally.count(problem, transition, weight)
            assert lists is not None
        backup, n = _backup(equations, problem, tally), problem.space.n_states
        # Back up the state that was left, then pass its change on to predecessors. A masked step has index S: no state.
        state_index = jnp.where(active, transition.state, n)
        sweeps = back_up_states(state.sweeps, backup, jnp.atleast_1d(state_index), self.threshold)
        num_pops = jnp.where(active, self.num_pops, 0)
        return SweptState(tally, pass_on(sweeps, backup, lists, self.threshold, num_pops), state.predecessors)

    def plan(
        self, equations: BellmanEquations, problem: Problem, state: SweptState
    ) -> tuple[Table, Actions, SweptState]:
        """q of the sum, its greedy actions, and the state, unchanged.

        Args:
            equations, problem: as of `init`.
            state: from `init`, or the last call.
        """
        del equations, problem
        # The sum over the two parts [S 2 A], and its greedy actions.
        return jnp.sum(state.sweeps.q, 1), state.sweeps.best[:, 0], state

    def split(self, equations: BellmanEquations, problem: Problem, state: SweptState) -> Split:
        """The two current value functions.

        Args:
            equations, problem, state: as of `plan`.
        """
        del equations, problem
        return Split(*jnp.moveaxis(state.sweeps.q, 1, 0), *state.sweeps.best.T)

    def check_learnt(self, state: PyTree) -> None:
        """Warn where the lists were too short."""
        lost = int(np.sum(state.tally.lost)) if isinstance(state.tally, ListedTally) else 0
        if lost:
            warnings.warn(
                f"{count_of(lost, 'transition')} {'was' if lost == 1 else 'were'} not learnt from: max_successors is "
                f"{self.max_successors}, max_predecessors {self.max_predecessors}, expected larger numbers",
                UserWarning,
                stacklevel=2,
            )


def _first_sweeps(equations: BellmanEquations, problem: Problem, tally: ListedTally | Tally) -> Sweeps:
    """The values of a model without data."""
    n = problem.space.n_states
    return Sweeps.start(_backup(equations, problem, tally)(jnp.arange(n), jnp.zeros((n, 2))))


def _predecessors(space: StateActionSpace) -> Predecessors:
    """The states from which each can be reached, by the lists of the space."""
    # Known lists: every state that can lead here is one, observed or not, so that no change is lost.
    listed = jnp.asarray(space.successors)
    possible = (listed >= 0) & (listed < space.n_states)
    return predecessors_of(listed, possible if space.legal is None else possible & space.legal[..., None])


def _backup(equations: BellmanEquations, problem: Problem, tally: ListedTally | Tally) -> BackupOf:
    """The equations of an agent, for some states."""
    discount = problem.objective.discount  # pyright: ignore[reportAttributeAccessIssue]
    legal = None if problem.space.legal is None else jnp.asarray(problem.space.legal)
    listed = next_states(problem.space) if isinstance(tally, Tally) else None

    def backup(states: Int[Array, " P"], values: Float[Array, "S 2"]) -> Backup:
        if isinstance(tally, ListedTally):
            stats, successor = tally.stats(states)
        else:
            assert listed is not None
            stats, successor = tally.some(states), listed[states]
        # One state at a time, the same equations as the exact planner's: values of the listed successors alone.
        later = values[successor]
        vr, ve = later[..., 0], later[..., 1]
        # [P A], of the states that are backed up.
        may = None if legal is None else legal[states]
        split, vr, ve = equations.back_up(stats, may, discount, _weigh, vr, ve)
        # Parts side by side on axis 1: rewards, exploration.
        parts = zip((split.qr, vr, split.best), (split.qe, ve, split.best_r), strict=True)
        return Backup(*(jnp.stack(pair, 1) for pair in parts))

    return backup
