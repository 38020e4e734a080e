"""Policies within budgets: the linear program over occupancies, a chance constraint over a posterior, shadow prices.

`OccupancyProgram` is the program of one MDP (Puterman 1994, section 6.9; Altman 1999, *Constrained Markov Decision
Processes*, chapter 3): x(s, a) is the expected (discounted) time in a pair, its flow through the states is known,
reward and costs are linear in it, and a vertex of the program with K budgets mixes actions in at most K states. Exact,
to the precision of the solver. `budget_plan` is for a known MDP.

Over a posterior the occupancies differ from draw to draw and share the policy alone: the program is not convex.
`search_within_budgets` therefore searches along one line: the program of the mean MDP with budgets that are tightened
by m standard deviations of their costs, m as small as draws of the search allow. That is a heuristic; what it leads to
is judged in fresh draws (`spending_of`): an upper limit of the probability of more than the budget, by draws that chose
nothing. `pareto_front` shows value against budget. Host-side.

Those limits, first, are of Clopper and Pearson (1934): they hold for independent draws that chose nothing. Draws of
chains repeat each other, picks from weighted draws fall on the heavy ones again and again: they count as the
independent draws that they are worth (`independent_draws`), which makes the limit approximate. `scenario_draws` is for
linear programs that keep their constraints in all of the draws that chose.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray
from scipy import sparse
from scipy.optimize import linprog
from scipy.stats import beta, binom

from bayes_mdp.decisions.choosing.criteria import no_worse
from bayes_mdp.decisions.choosing.policy_search import Found
from bayes_mdp.decisions.choosing.policy_set import Budget, ChooseOptions, PolicyLimits, PolicySet, policy_set
from bayes_mdp.decisions.outcomes import (
    LearntReward,
    Outcome,
    OutcomeValue,
    PairReward,
    read_outcome,
)
from bayes_mdp.decisions.policy_evaluation import (
    PolicyValue,
    describe_objective,
    policy_values,
    read_start,
    require_end,
)
from bayes_mdp.inference.fitted import Fitted
from bayes_mdp.inference.pair_draws import (
    Drawn,
    HoldsDraws,
    KnowsWorth,
    ListsMDPs,
    PairRows,
    central_interval,
    limit_draws,
    pair_draws,
    pairs_of_mdp,
)
from bayes_mdp.mdp import (
    MDP,
    AverageReward,
    CanCount,
    CanMean,
    CanSample,
    Episodic,
    FirstExit,
    Objective,
    PolicyOrLabels,
    SparseMDP,
    StateActionSpace,
)
from bayes_mdp.mdp.abilities import Sizes, learnt_outcomes, mean_in_float64, require_ability, sizes_of
from bayes_mdp.mdp.labels import labels_of
from bayes_mdp.mdp.objectives import check_fit, check_objective
from bayes_mdp.utils.layout import Section, Table, as_html, as_text
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.messages import amount, amounts
from bayes_mdp.utils.typing import InitialLike, IntScalar, RealScalar
from bayes_mdp.utils.validation import check_count, check_key, check_name, check_number, check_type, described

if TYPE_CHECKING:
    import pandas as pd


CERTAIN = 0.95
"""Confidence of the upper limit on the probability of spending more than a budget."""
LIKELY = 0.9
"""With this probability a policy that just passes in the draws of the search passes in the fresh ones."""


def upper_limit(over: int, number: int, confidence: float = CERTAIN) -> float:
    """The upper limit of a probability after so many hits in independent draws (Clopper and Pearson 1934).

    Args:
        over: number of hits.
        number: of draws.
        confidence: of the limit.
    """
    # Clopper-Pearson: the quantile of Beta(hits + 1, misses).
    return 1.0 if over >= number else float(beta.ppf(confidence, over + 1, number - over))


def limit_of_share(share: float, number: int, confidence: float = CERTAIN) -> float:
    """`upper_limit` where so many independent draws stand for more of them: the number of hits is rounded up.

    Args:
        share: of the draws that are hits.
        number: of independent draws that they are worth.
        confidence: of the limit.
    """
    return upper_limit(int(np.ceil(share * number - 1e-9)), number, confidence)


def most_over(number: int, allowed: float, confidence: float = CERTAIN) -> int:
    """The most draws over a budget that still certify this probability; -1: no number of draws would do.

    Args:
        number: of draws.
        allowed: probability of more than the budget.
        confidence: of the limit.
    """
    # Upper limits rise with the number of hits: how many of them suffice, less the one of no hit.
    hits = np.arange(number)
    return int(np.sum(beta.ppf(confidence, hits + 1, number - hits) <= allowed)) - 1


@cache
def most_in_search(number: int, allowed: float) -> int:
    """Draws over a budget that the search lets a policy have, so that it likely passes in as many fresh ones.

    Args:
        number: of draws.
        allowed: probability of more than the budget.
    """
    limit = most_over(number, allowed)
    # From the loosest target down to the first one that likely passes again in fresh draws.
    for number_over in range(limit, 0, -1):
        if binom.cdf(limit, number, number_over / number) >= LIKELY:
            return number_over
    return 0


def independent_draws(
    belief: object, costs: Float[np.ndarray, " N"], over: Bool[np.ndarray, " N"], allowed: float
) -> int:
    """How many independent draws the share of draws over a budget is worth.

    All of them where each is a fresh draw of the posterior. Draws in the order of their chains: the least effective
    number (by autocorrelation, and the spread among chains) of the costs, of whether they exceed the budget, and of
    whether they lie in the tail of the allowed probability: where none of the draws exceeds the budget, the tail stands
    for what was not seen. Draws that were picked at random from chains, or by weights: what is held is worth so many
    (`KnowsWorth`), and picking adds its own error. Chains are assumed to have mixed, which no draws can show, and
    weights to be worth as much to the tail as to the mean.

    Args:
        belief: that was drawn from, as `limit_draws` gave it.
        costs: in the draws.
        over: which exceed the budget.
        allowed: probability of more than the budget.
    """
    number = len(costs)
    if isinstance(belief, HoldsDraws):
        # Where nothing exceeded the budget the costs tell of autocorrelation only in the middle; the tail counts.
        tail = costs > np.quantile(costs, 1.0 - allowed)
        worth = min(belief.effective_number(x.astype(float)) for x in (costs, over, tail))
    elif isinstance(belief, KnowsWorth):
        # Picked at random, so that two errors add up: that of what is held, and that of the picking.
        worth = 1.0 / (1.0 / number + 1.0 / max(belief.worth_of_picks(), 1.0))
    else:
        return number
    # Rounded down: too few draws make the limit too high, never too low.
    return max(1, min(number, int(worth + 1e-9)))


def scenario_draws(variables: IntScalar, allowed: RealScalar, failure: RealScalar) -> int:
    """How many independent draws a convex program has to keep its constraint in, all of them.

    Its optimum then breaks the constraint with a probability of at most `allowed`, but for draws of a probability of at
    most `failure` (Campi and Garatti 2008): the least N with P(Binomial(N, allowed) < variables) <= failure. Proven for
    programs that are convex whatever is drawn. With occupancies as variables that is so where transition rows are known
    and costs are drawn; where rows are drawn it is not, and held-out draws have to judge (`Budget.probability`).

    Args:
        variables: of the program, less its equations that are independent: of occupancies S (A - 1).
        allowed: probability of breaking the constraint, in (0, 1).
        failure: with which the draws may mislead, in (0, 1).

    Raises:
        ValueError: no variable, a probability outside (0, 1). TypeError: no such numbers.

    Example:
        >>> bm.decisions.scenario_draws(4, 0.05, 1e-3)
        257
    """
    check_count("variables", variables)
    for name, value in (("allowed", allowed), ("failure", failure)):
        check_number(name, value, lambda x: (x > 0) & (x < 1), "a number between 0 and 1")

    def enough(number: int) -> bool:
        return bool(binom.cdf(int(variables) - 1, number, float(allowed)) <= float(failure))

    # The tail falls as the number grows: doubling, then halving.
    low, high = int(variables) - 1, int(variables)
    while not enough(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


BISECTIONS = 20
"""Steps of the search for the least margin."""
ROUNDING = 1e-8
"""Share of a budget by which a cost may exceed it and count as within: the precision of the linear programs."""
SMALL = 1e-9
"""Probability of an action, or share of the time in a state, that is rounding of the program."""
PRICED, LARGE_PRICED, LARGE = 200, 20, 2**14
"""Draws in which prices are computed; in a large problem; variables of a large one."""
POINTS = 21
"""Budgets of a Pareto front."""
NO_PRICE = 1e-9
"""A price is zero below this share of the value's scale over the cost's."""


class OccupancyPlan(NamedTuple):
    """A vertex of an `OccupancyProgram`.

    Args:
        policy: action probabilities.
        value: of it in the MDP of the program.
        costs: of it there, one for each budget.
        prices: what one more unit of each budget would add to the value (duals; zero or greater).
    """

    policy: Float[np.ndarray, "*H S A"]
    value: float
    costs: Float[np.ndarray, " K"]
    prices: Float[np.ndarray, " K"]


@dataclass(frozen=True, eq=False)
class OccupancyProgram:
    """max x.r over occupancies x >= 0 of one MDP, within budgets x.c_k <= b_k.

    What a policy does where it is free to choose is one variable for each (step,) state and free action: with
    probabilities that are fixed (`PolicySet`) the actions of the program are mixtures of those of the MDP.

    Args:
        flow: sparse [states, variables], what each variable adds to the time in each state, and takes from it.
        inflow: the right side: how often an episode begins in each state.
        reward: of the variables.
        costs: of the variables, one row for each budget.
        layer, state, action: of the variables; `layer` is the step where the policy depends on it, else zero.
        policies: the set that is searched.
    """

    flow: sparse.csr_array
    inflow: Float[np.ndarray, " F"]
    reward: Float[np.ndarray, " n"]
    costs: Float[np.ndarray, "K n"]
    layer: Int[np.ndarray, " n"]
    state: Int[np.ndarray, " n"]
    action: Int[np.ndarray, " n"]
    policies: PolicySet

    @cached_property
    def units(self) -> tuple[float, Float[np.ndarray, " K"]]:
        """The largest reward and the largest cost of each budget: tolerances of the solver are absolute."""
        largest = np.abs(self.costs).max(-1, initial=0.0)
        return float(np.abs(self.reward).max(initial=0.0)) or 1.0, np.where(largest > 0, largest, 1.0)

    def solve(self, limits: Float[np.ndarray, " K"] | None) -> OccupancyPlan | None:
        """The best policy within these budgets (None: without any); None: no policy is within them.

        Args:
            limits: of each budget, in its unit.
        """
        unit, units = self.units
        solution = self._optimise(-self.reward / unit, None if limits is None else limits / units)
        # linprog minimises: reward with a minus sign.
        if solution is None:
            return None
        time, values, marginals = solution
        # Duals in the units of the caller: value per unit of the outcome. A budget can only help: prices are not
        # negative.
        prices = np.maximum(-marginals, 0.0) * unit / units if limits is not None else np.zeros(len(units))
        prices = np.where(prices * units < NO_PRICE * unit, 0.0, prices)
        # Advantages under the duals say what is best in states that the plan never visits.
        q = (self.reward - prices @ self.costs) / unit - self.flow.T @ -values
        # x(s, a) says how often; the policy is x over its sum in the state.
        return OccupancyPlan(self._policy(time, q), float(self.reward @ time), self.costs @ time, prices)

    def least(self, budget: int, limits: Float[np.ndarray, " K"] | None = None) -> float:
        """The least that any policy spends of one budget, within the others where these are given; inf: none is."""
        # The cost of one budget takes the place of the reward; its own limit is lifted.
        _, units = self.units
        other_limits = None
        if limits is not None:
            other_limits = limits / units
            other_limits[budget] = np.inf
        solution = self._optimise(self.costs[budget] / units[budget], other_limits)
        return np.inf if solution is None else float(self.costs[budget] @ solution[0])

    def largest_margin(self, limits: Float[np.ndarray, " K"], spread: Float[np.ndarray, " K"]) -> float:
        """The largest m for which some policy is within the budgets limits - m * spread."""
        _, units = self.units
        size = len(self.reward)
        answer = linprog(
            # One more variable, m, to be maximised: costs x + m spread <= limits.
            np.append(np.zeros(size), -1.0),
            A_ub=np.column_stack([self.costs / units[:, None], spread / units]),
            b_ub=limits / units,
            # The margin takes no part in the flow: a column of zeros.
            A_eq=sparse.hstack([self.flow, sparse.csr_array((len(self.inflow), 1))], format="csr"),
            b_eq=self.inflow,
            bounds=[*[(0.0, None)] * size, (None, None)],
            method="highs-ds",
        )
        _require_solution(answer)
        return float(answer.x[-1])

    def _optimise(
        self, weights: Float[np.ndarray, " n"], limits: Float[np.ndarray, " K"] | None
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " F"], Float[np.ndarray, " K"]] | None:
        """The occupancy of the least weight, with the duals of flow and budgets; None: there is none."""
        # Infinite limits bind nothing, and have no row.
        rows = None if limits is None else np.flatnonzero(np.isfinite(limits))
        # The dual simplex ends at a vertex: no more states mix actions than there are budgets.
        answer = linprog(
            weights,
            A_ub=None if rows is None else (self.costs / self.units[1][:, None])[rows],
            b_ub=None if rows is None or limits is None else limits[rows],
            A_eq=self.flow,
            b_eq=self.inflow,
            method="highs-ds",
            options={"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9},
        )
        # Status 2 of linprog: no feasible point.
        if answer.status == 2:
            return None
        _require_solution(answer)
        marginals = np.zeros(len(self.costs))
        if rows is not None:
            marginals[rows] = answer.ineqlin.marginals
        # Rounding of the solver may leave -1e-12.
        return np.maximum(answer.x, 0.0), answer.eqlin.marginals, marginals

    def _policy(self, time: Float[np.ndarray, " n"], q: Float[np.ndarray, " n"]) -> Float[np.ndarray, "*H S A"]:
        """What an occupancy does in each state; in states that it never visits, the action of the largest q."""
        shape = self.policies.fixed.shape
        index = (self.layer, self.state, self.action) if len(shape) == 3 else (self.state, self.action)
        taken, best = np.zeros(shape), np.full(shape, -np.inf)
        taken[index], best[index] = time, q
        total = taken.sum(-1, keepdims=True)
        # States that the plan never visits: the action of the largest advantage under the duals.
        greedy = np.eye(shape[-1])[best.argmax(-1)]
        # Below SMALL of the most visited state, what is left is rounding of the solver.
        share = np.where(
            total > SMALL * max(float(total.max(initial=0.0)), 1e-300), taken / np.maximum(total, 1e-300), greedy
        )
        share = np.where(share < SMALL, 0.0, share)
        # Choices among the free actions, mixed with what is fixed.
        return self.policies.mixed(share / share.sum(-1, keepdims=True))


def _require_solution(answer: object) -> None:
    if getattr(answer, "status", 4) != 0:
        raise ValueError(
            f"the linear program of the budgets was not solved: {getattr(answer, 'message', 'no message')} (rewards or "
            "costs of very different sizes? state them in other units)"
        )


def occupancy_program(
    rows: PairRows,
    probs: Float[np.ndarray, " E"],
    reward: Float[np.ndarray, "*H Q"],
    costs: Float[np.ndarray, "K *G Q"],
    summed: tuple[Objective, list[Objective]],
    start: Float[np.ndarray, " S"],
    policies: PolicySet,
) -> OccupancyProgram:
    """The program of one MDP.

    Args:
        rows: the pairs that the policies of the set use.
        probs: of their outcomes.
        reward, costs: of the pairs, perhaps by step; one for each budget.
        summed: how the reward is summed, and each cost (the same rate but under `Episodic`).
        start: distribution of the first state.
        policies: the set.
    """
    objective, by_cost = summed
    episodic = isinstance(objective, Episodic)
    # Stationary objectives have one layer of variables, episodes one for each step.
    steps = objective.horizon if episodic else 1
    n_states, number = rows.n_states, len(costs)
    # In an episode the discount stands in the weights of the steps, else in the flow.
    rate = 1.0 if episodic else float(objective.discount)
    rates = [float(x.discount) for x in (objective, *by_cost)]
    flows, parts = [], []
    for h in range(steps):
        part, pairs_of_step, entries = rows.at_step(h)
        # What is fixed may differ by step, or not.
        fixed, mass = (x[h] if x.ndim > y else x for x, y in ((policies.fixed, 2), (policies.mass, 1)))
        state, action, mixture = _mixtures(part, fixed, mass, policies.free)
        # What a variable brings: the mean over the actions that it mixes, at the weight of its step.
        paid = np.stack([x[h] if x.ndim == 2 else x for x in (reward, *costs)])[:, pairs_of_step]
        weights = np.array([discount**h if episodic else 1.0 for discount in rates])
        parts.append((np.full(len(state), h), state, action, weights[:, None] * (mixture @ paid.T).T))
        # Time that leaves a state, and what of it arrives in the next ones; an end leaves the process.
        transitions = sparse.csr_array(
            (probs[entries], (part.pair, part.next_state)), shape=(len(part.state), n_states + 1)
        )
        # Rows: time that leaves state s, one for each variable of s.
        out = sparse.csr_array((np.ones(len(state)), (state, np.arange(len(state)))), shape=(n_states, len(state)))
        # Columns of the next states, without the end.
        arrives = sparse.csr_array(mixture @ transitions)[:, :n_states]
        flows.append((out, sparse.csr_array(rate * arrives.T)))
    # Conservation of flow: x leaves s = start(s) + rate * what arrives in s (Puterman 1994, section 6.9).
    inflow = np.zeros(steps * n_states)
    inflow[:n_states] = start
    if episodic:
        # Block bidiagonal: layer h + 1 receives what layer h sends.
        blocks: list[list[sparse.csr_array | None]] = [[None] * steps for _ in range(steps)]
        for h, (out, arriving) in enumerate(flows):
            blocks[h][h] = out
            if h + 1 < steps:
                blocks[h + 1][h] = -arriving
        flow = sparse.csr_array(sparse.block_array(blocks))
    else:
        flow = sparse.csr_array(flows[0][0] - flows[0][1])
    layer, state, action = (np.concatenate([part[i] for part in parts]) for i in range(3))
    values = np.concatenate([part[3] for part in parts], -1)
    return OccupancyProgram(flow, inflow, values[0], values[1 : 1 + number], layer, state, action, policies)


def _mixtures(
    rows: PairRows, fixed: Float[np.ndarray, "S A"], mass: Float[np.ndarray, " S"], free: Bool[np.ndarray, "S A"]
) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"], sparse.csr_array]:
    """State and free action of the variables of one step, and the shares of the pairs that each of them mixes."""
    # Where nothing is left to choose, any free action stands for the fixed row.
    open_pairs = free & ((mass > 0)[:, None] | (np.arange(free.shape[1]) == free.argmax(-1)[:, None]))
    state, action = np.nonzero(open_pairs)
    # The fixed part of the row, and the free mass on the action of the variable.
    weight = fixed[state].copy()
    weight[np.arange(len(state)), action] += mass[state]
    number = np.full(free.shape, -1)
    # Where each pair lies among the rows of the program.
    number[rows.state, rows.action] = np.arange(len(rows.state))
    variable, taken = np.nonzero(weight)
    pair = number[state[variable], taken]
    shape = (len(state), len(rows.state))
    return state, action, sparse.csr_array((weight[variable, taken], (variable, pair)), shape=shape)


def check_budgets(budgets: Mapping[str, Budget], objective: Objective, criterion: object) -> None:
    """Refuse budgets under an objective, or a criterion, that the linear program is not of.

    Args:
        budgets: name -> budget.
        objective: of the values.
        criterion: of the choice.

    Raises:
        ValueError: one sentence.
    """
    if not budgets:
        raise ValueError("budgets is empty, expected at least one budget by the name of its outcome, or None")
    if isinstance(objective, AverageReward):
        raise ValueError(
            "objective is AverageReward with budgets, expected Discounted, Episodic or FirstExit: without an end or a "
            "discount the best policy within a budget may depend on where the process began"
        )
    # A vertex of the program maximises the mean: no other criterion is linear in the occupancies of one MDP.
    if str(criterion) not in ("mean", "expected value"):
        raise ValueError(
            f"criterion is {criterion} with budgets, expected 'mean': the linear program is of the mean MDP"
        )


@dataclass(frozen=True, eq=False)
class Spender:
    """The outcomes that budgets are of, read.

    Args:
        budgets: name -> budget.
        outcomes: name -> known numbers, or the posterior that learnt them.
        known: name -> the rewards of known outcomes.
        summed: of each outcome, in order.
        objective: of the values.
    """

    budgets: Mapping[str, Budget]
    outcomes: "Mapping[str, Outcome | CanSample]"
    known: Mapping[str, PairReward]
    summed: list[Objective]
    objective: Objective

    @property
    def limits(self) -> Float[np.ndarray, " K"]:
        """What may be spent."""
        return np.array([budget.limit for budget in self.budgets.values()])

    def over(self, costs: Float[np.ndarray, "N K"]) -> Bool[np.ndarray, "N K"]:
        """Where a cost is more than the budget, rounding apart."""
        # The solver meets a budget only to its precision.
        return costs > self.limits + ROUNDING * np.maximum(np.abs(self.limits), np.abs(costs).max(initial=0.0))

    def drawn_from(self, name: str, posterior: object) -> list[object]:
        """What the draws of a cost come from: the rows of the posterior in use, and what learnt the outcome."""
        # Rows in closed form are drawn afresh, however its rewards are, of which a known outcome knows nothing.
        exact = posterior.exact_part if isinstance(posterior, Fitted) else None
        outcome = self.outcomes[name]
        return [exact or posterior, *([] if isinstance(outcome, Outcome) else [outcome])]

    def worth(self, name: str, posterior: object, costs: Float[np.ndarray, " N"], over: Bool[np.ndarray, " N"]) -> int:
        """How many independent draws the share over a budget is worth: the least of what they were drawn from."""
        allowed = 1.0 - self.budgets[name].probability
        beliefs = [limit_draws(belief, len(costs))[0] for belief in self.drawn_from(name, posterior)]
        return min(independent_draws(belief, costs, over, allowed) for belief in beliefs)

    def halves(self) -> tuple["Spender", "Spender"]:
        """For each half of the draws of a posterior that holds a fixed number: what learnt an outcome is halved too."""
        halves = {
            name: outcome.halves() if isinstance(outcome, HoldsDraws) else (outcome, outcome)
            for name, outcome in self.outcomes.items()
        }
        first, second = ({name: pair[i] for name, pair in halves.items()} for i in (0, 1))
        return replace(self, outcomes=first), replace(self, outcomes=second)

    def paid_in_mean(self, rows: PairRows, probs: Float[np.ndarray, "1 E"]) -> Float[np.ndarray, "K *H Q"]:
        """The costs of pairs in the mean MDP."""
        costs = []
        for name, outcome in self.outcomes.items():
            # Known numbers have no uncertainty; learnt ones enter by their posterior means.
            if name in self.known:
                costs.append(self.known[name].of_pairs(rows, probs, self.objective.horizon)[0])
                continue
            assert isinstance(outcome, CanMean)
            mean = np.asarray(mean_in_float64(outcome).reward, np.float64)
            costs.append(self._by_step(mean[rows.index] if mean.ndim == len(rows.index) else mean[rows.index[-2:]]))
        return np.stack(costs)

    def paid_in_draws(
        self, key: PRNGKeyArray, posterior: CanSample, used: Bool[np.ndarray, "*layers S A"], num: int
    ) -> tuple[PairRows, Drawn, Float[np.ndarray, "K N *H Q"]]:
        """Draws of the pairs, and their costs there."""
        posterior, num = limit_draws(posterior, num)
        draws = pair_draws(key, posterior, used)
        drawn = draws.draw(num)
        costs = []
        for name, outcome in self.outcomes.items():
            if name in self.known:
                costs.append(self.known[name].of_pairs(draws.rows, drawn.probs, self.objective.horizon))
            # Under the same key a learnt outcome has the same rows: a draw is one world.
            else:
                assert not isinstance(outcome, Outcome)
                learnt = LearntReward.of(key, name, limit_draws(outcome, num)[0], used).of_pairs(drawn)
                costs.append(np.stack([self._by_step(table) for table in learnt]))
        return draws.rows, drawn, np.stack(costs)

    def _by_step(self, paid: Float[np.ndarray, " Q"]) -> Float[np.ndarray, "*H Q"]:
        horizon = self.objective.horizon
        # Costs of a pair are the same at each step.
        return paid if horizon is None else np.broadcast_to(paid, (horizon, len(paid)))


def read_budgets(
    budgets: Mapping[str, Budget],
    posterior: object,
    sizes: Sizes,
    space: StateActionSpace | None,
    objective: Objective,
) -> Spender:
    """The outcomes behind budgets.

    Args:
        budgets: name -> budget.
        posterior: that may have learnt some of them.
        sizes, space: of it; None: it has no labels.
        objective: of the values.

    Raises:
        ValueError: an outcome that is not known; numbers that do not fit; a discount of its own, but under `Episodic`.
        TypeError: a posterior without a mean; no outcome at all.
    """
    learnt = learnt_outcomes(posterior)
    outcomes: dict[str, Outcome | CanSample] = {}
    for name, budget in budgets.items():
        source = budget.outcome
        # Without a source the outcome is one that was learnt from the log, by its name.
        if source is None:
            if name not in learnt:
                known = ", ".join(map(repr, learnt)) or "none"
                raise ValueError(
                    f"budgets[{name!r}].outcome is None, and the posterior has learnt no outcome of this name (it has: "
                    f"{known}), expected read_log(..., outcomes=[{name!r}]), or Budget(limit, outcome=...)"
                )
            outcomes[name] = learnt[name]
        elif isinstance(source, Outcome | CanSample):
            outcomes[name] = source
        # A function of labels: evaluated once for every legal pair.
        elif callable(source):
            outcomes[name] = Outcome(_by_label(f"budgets[{name!r}].outcome", source, sizes, space))
        else:
            try:
                outcomes[name] = Outcome(source)  # pyright: ignore[reportArgumentType] - it says what is no number
            except (TypeError, ValueError) as error:
                raise type(error)(f"budgets[{name!r}].outcome: {error}") from None
        if not isinstance(outcomes[name], Outcome):
            require_ability(outcomes[name], CanMean, f"budgets[{name!r}]")
    read = {
        name: read_outcome(name, outcome, sizes.shape, sizes.ends, objective)
        for name, outcome in outcomes.items()
        if isinstance(outcome, Outcome)
    }
    rate = float(objective.discount)
    for name, (_, summed) in read.items():
        # One linear program has one discount in its flow.
        if not isinstance(objective, Episodic) and float(summed.discount) != rate:
            raise ValueError(
                f"budgets[{name!r}].outcome has discount {float(summed.discount):g} and the objective {rate:g}, "
                "expected the same: occupancies of two discounts are not those of one linear program (Episodic takes "
                "both)"
            )
    summed = [read[name][1] if name in read else objective for name in outcomes]
    return Spender(dict(budgets), outcomes, {name: outcome[0] for name, outcome in read.items()}, summed, objective)


def _by_label(
    what: str, function: Callable[..., object], sizes: Sizes, space: StateActionSpace | None
) -> Float[np.ndarray, "S A"]:
    """The numbers of a function of labels, zero where an action is illegal."""
    states = range(sizes.n_states) if space is None else space.state_names
    actions = range(sizes.n_actions) if space is None else space.action_names
    legal = np.ones((sizes.n_states, sizes.n_actions), bool) if sizes.legal is None else sizes.legal
    paid = np.zeros(legal.shape)
    # Illegal pairs are never taken: zero will do.
    for s, a in np.argwhere(legal):
        number = function(states[s], actions[a])
        try:
            paid[s, a] = float(number)  # pyright: ignore[reportArgumentType] - anything may be returned
        except (TypeError, ValueError):
            raise TypeError(
                f"{what}({states[s]!r}, {actions[a]!r}) is {number!r:.40}, expected a number: the cost of the action"
            ) from None
    return paid


def mean_program(
    mean: MDP | SparseMDP, spender: Spender, start: Float[np.ndarray, " S"], policies: PolicySet
) -> OccupancyProgram:
    """The program of the mean MDP.

    Args:
        mean: the MDP.
        spender: the outcomes.
        start: distribution of the first state.
        policies: the set.

    Raises:
        ValueError: a policy of the set that never ends, under `FirstExit`.
    """
    shape = np.shape(mean.reward)
    rows, drawn = pairs_of_mdp(mean, np.broadcast_to(policies.used, shape))
    _require_proper(rows, drawn.probs[0], spender.objective, policies)
    steps = policies.fixed.shape[0] if policies.fixed.ndim == 3 else 1
    # About 200 bytes for an entry of the sparse system and what HiGHS makes of it.
    check_memory("the linear program of the budgets", 200.0 * steps * len(rows.pair), "fewer outcomes take less")
    costs = spender.paid_in_mean(rows, drawn.probs)
    return occupancy_program(
        rows, drawn.probs[0], drawn.reward[0], costs, (spender.objective, spender.summed), start, policies
    )


def _require_proper(rows: PairRows, probs: Float[np.ndarray, " E"], objective: Objective, policies: PolicySet) -> None:
    """Refuse a set of policies some of which never end: their occupancy is infinite, and the program may have none.

    States that an action can stay within for ever are left by removing, until nothing changes, every state whose
    actions all may lead outside.
    """
    if not isinstance(objective, FirstExit):
        return
    # The end is outside: a place more, for next_state S.
    inside = np.append(np.ones(rows.n_states, bool), False)
    possible = probs > 0
    while True:
        # Peeling: a state goes that cannot stay inside whatever it does.
        leaves = rows.sums((possible & ~inside[rows.next_state]).astype(float)) > 0
        stays = np.zeros(rows.n_states + 1, bool)
        # A state stays if some free action stays.
        np.logical_or.at(stays, rows.state, ~leaves)
        # A fixed row takes all of its actions: it stays where each of them does.
        if not policies.whole:
            fixed = policies.fixed[rows.state, rows.action] > 0
            np.logical_and.at(stays, rows.state[fixed & leaves], False)
        new = inside & stays
        if (new == inside).all():
            break
        inside = new
    if inside.any():
        raise ValueError(
            f"budgets under FirstExit: from state {int(np.flatnonzero(inside)[0])} some allowed policy never ends, "
            "expected that all do (limits.allowed, or Discounted or Episodic): what it spends would be infinite"
        )


def require_feasible(program: OccupancyProgram, spender: Spender, where: str) -> None:
    """Refuse budgets that no policy is within, with the least that is possible.

    Args:
        program: of the MDP.
        spender: the budgets.
        where: of which MDP, in words.

    Raises:
        ValueError: names the first budget, and the least cost.
    """
    limits = spender.limits
    if program.solve(limits) is not None:
        return
    # Which budget cannot be kept even alone, with the least that is possible.
    for i, name in enumerate(spender.budgets):
        least = program.least(i)
        if least > limits[i]:
            raise ValueError(
                f"budgets[{name!r}].limit is {limits[i]:g}, expected at least {least:.6g}: no policy spends less "
                + where
            )
    name = next(iter(spender.budgets))
    # All can alone: within the others, the first one needs this much.
    least = program.least(0, limits.copy())
    reached = (
        "no policy is within the others" if np.isinf(least) else f"within the others it spends {least:.6g} at least"
    )
    raise ValueError(
        f"budgets cannot be kept together {where}: each can alone, and of {name!r} {reached}, where the limit is "
        f"{limits[0]:g}"
    )


def careful_plan(program: OccupancyProgram, limits: Float[np.ndarray, " K"]) -> OccupancyPlan:
    """The best plan within these budgets or, where there is none, within budgets raised alike as little as that takes.

    Args:
        program: of the MDP.
        limits: of each budget.
    """
    plan = program.solve(limits)
    if plan is None:
        # All limits are raised by the same share of their size, as little as makes the program feasible.
        unit = np.maximum(np.abs(limits), program.units[1])
        raised = limits - (program.largest_margin(limits, unit) - ROUNDING) * unit
        plan = program.solve(raised)
    assert plan is not None
    return plan


def in_mean_costs(spender: Spender) -> Spender:
    """The same budgets, with the posterior mean of what was learnt in place of it: for other draws of the rows.

    Args:
        spender: the budgets.
    """
    known = {}
    for name, outcome in spender.outcomes.items():
        if not isinstance(outcome, Outcome):
            assert isinstance(outcome, CanMean)
            known[name] = PairReward(np.asarray(mean_in_float64(outcome).reward, np.float64))
    return replace(spender, known={**spender.known, **known})


class Spending(eqx.Module):
    """What a policy spends of one budget, in draws that did not choose it.

    Args:
        name: of the outcome.
        budget: of it.
        cost: what it spends, in the draws.
        over: share of the draws in which it spends more than the budget.
        upper: upper limit of the probability of that, at a confidence of 95 % (Clopper and Pearson 1934); of several
            looks at the draws the confidence is shared.
        fresh: whether the draws are independent draws of the posterior; if not, as of a chain, `upper` is approximate.
        independent: number of independent draws that these count as for `upper`, a count; None: all of them.
        listed: number of MDPs in the list that they are picks of, a count: `upper` is about that list; None: there is
            no list.
    """

    name: str = eqx.field(static=True)
    budget: Budget = eqx.field(static=True)
    cost: OutcomeValue
    over: float
    upper: float
    fresh: bool = True
    independent: int | None = eqx.field(static=True, default=None)
    listed: int | None = eqx.field(static=True, default=None)

    @property
    def certified(self) -> bool:
        """Whether the probability of more than the budget is small enough, at the confidence of the limit."""
        return self.upper <= 1.0 - self.budget.probability + 1e-12

    def __str__(self) -> str:
        """One sentence."""
        allowed = 1.0 - self.budget.probability
        limit = f"at most {self.upper:.3g} at 95 % confidence, {len(self.cost.draws)} draws"
        if self.independent is not None:
            limit += f" worth {self.independent} independent ones"
        if self.listed is not None:
            limit += f" of the {self.listed} listed MDPs, which are taken to be all that may be, at their weights"
        limit += "" if self.fresh else ", approximate: the draws are those of a chain, or reweighted"
        return (
            f"{self.name}: spends {amount(self.cost.mean)} on average, 95 % interval {amounts(*self.cost.interval)}, "
            f"of a budget of {amount(self.budget.limit)}; more than that with probability {self.over:.3g} ({limit}), "
            f"where {allowed:.3g} was allowed: {'kept' if self.certified else 'not shown to be kept'}"
        )


def check_certifiable(budgets: Mapping[str, Budget], num_draws: int) -> None:
    """Refuse too few draws to certify anything.

    Args:
        budgets: name -> budget.
        num_draws: of the judgement.

    Raises:
        ValueError: how many are needed.
    """
    for name, budget in budgets.items():
        if most_over(num_draws, 1.0 - budget.probability) < 0:
            # All draws within: 1 - p^n >= CERTAIN gives the least n.
            least = int(np.ceil(np.log(1.0 - CERTAIN) / np.log(budget.probability)))
            raise ValueError(
                f"num_draws is {num_draws}, expected at least {least}: fewer cannot show that budgets[{name!r}] is "
                f"kept with probability {budget.probability:g}"
            )


class Evaluated(NamedTuple):
    """A plan in the draws of the search.

    Args:
        plan: of the mean MDP.
        values: in each draw.
        costs: in each draw, of each budget.
        passes: whether every budget is kept in enough of the draws.
    """

    plan: OccupancyPlan
    values: Float[np.ndarray, " N"]
    costs: Float[np.ndarray, "N K"]
    passes: bool


def search_within_budgets(
    key: PRNGKeyArray,
    posterior: CanSample,
    spender: Spender,
    mean: MDP | SparseMDP,
    sets: list[tuple[str, PolicySet]],
    start: Float[np.ndarray, " S"],
    num_draws: int,
    today: Float[np.ndarray, "*H S A"] | None,
    promise: tuple[float, float],
) -> Found:
    """The best policy that was found within the budgets, by draws that judge nothing else.

    Args:
        key: of the draws.
        posterior: that is searched.
        spender: the budgets and their outcomes.
        mean: its mean MDP.
        sets: of policies, the first is that of the limits.
        start: distribution of the first state.
        num_draws: of the search.
        today: the baseline.
        promise: (share of the draws in which a policy has to be no worse than the baseline, slack).

    Raises:
        ValueError: no policy is within a budget in the mean MDP; the least possible cost is named.
    """
    held, _ = limit_draws(posterior, num_draws)

    def kept(costs: Float[np.ndarray, "N K"]) -> bool:
        """Whether every budget is kept in so many of the draws that it likely is in as many fresh ones."""
        over = spender.over(costs)
        for k, (name, budget) in enumerate(spender.budgets.items()):
            allowed = 1.0 - budget.probability
            number = spender.worth(name, held, costs[:, k], over[:, k])
            # As counts of independent draws: autocorrelated ones are fewer.
            if over[:, k].mean() * number > most_in_search(number, allowed) + 1e-9:
                return False
        return True

    def evaluate(plan: OccupancyPlan) -> Evaluated:
        values, costs = _in_draws(key, posterior, spender, plan.policy, start, num_draws)
        return Evaluated(plan, values, costs, kept(costs))

    # The mean MDP first: what is impossible there has no margin to search.
    first = mean_program(mean, spender, start, sets[0][1])
    require_feasible(first, spender, "on average (in the posterior's mean MDP)")
    # Smaller sets keep to the baseline where data are few.
    programs = [first, *(mean_program(mean, spender, start, policies) for _, policies in sets[1:])]
    results = [_least_margin(program, spender, evaluate) for program in programs]
    options = [
        Found(result.plan.policy, result.values, float(result.values.mean()), method, False)
        for result, method in results
        if result.passes
    ]
    # With a baseline, options have to be as sure as promised; the baseline itself is one if it keeps the budgets.
    if today is not None and options:
        values, costs = _in_draws(key, posterior, spender, today, start, num_draws)
        share, slack = promise
        sure = [option for option in options if no_worse(option.values[:, None], values, slack, share)[0]]
        if not sure and kept(costs):
            method = "no other policy within the budgets is as sure: the baseline"
            sure = [Found(today, values, float(values.mean()), method, False)]
        options = sure or options
    if options:
        return max(options, key=lambda result: result.score)
    # No margin is enough: the policy of the largest one is the most careful that there is.
    careful, method = results[0]
    return Found(careful.plan.policy, careful.values, float(careful.values.mean()), method, False)


def _in_draws(
    key: PRNGKeyArray,
    posterior: CanSample,
    spender: Spender,
    policy: Float[np.ndarray, "*H S A"],
    start: Float[np.ndarray, " S"],
    num_draws: int,
) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, "N K"]]:
    """Value and costs of a policy in draws; those of a key are the same for all policies."""
    value = policy_values(key, posterior, {"policy": policy}, spender.objective, start, num_draws, spender.outcomes)[
        "policy"
    ]
    return value.draws, costs_of(value, spender)


def costs_of(value: PolicyValue, spender: Spender) -> Float[np.ndarray, "N K"]:
    """The costs of a policy in the draws of its value, of each budget.

    Args:
        value: with the outcomes of the budgets.
        spender: the budgets.
    """
    return np.stack([value.outcomes[name].draws for name in spender.budgets], -1)


def _least_margin(
    program: OccupancyProgram, spender: Spender, evaluate: Callable[[OccupancyPlan], Evaluated]
) -> tuple[Evaluated, str]:
    """The plan of the least margin below the budgets that passes in the draws, or the most careful one."""
    method = "linear program of the mean MDP"
    limits = spender.limits
    # Without budgets: if that keeps them, they bind nowhere.
    free = program.solve(None)
    assert free is not None
    best = evaluate(free)
    if best.passes:
        return best, f"{method}: the budgets bind nowhere"
    plain = program.solve(limits)
    # The margin is in standard deviations of what the free policy costs.
    # Standard deviations of the costs are the unit of the margin; a cost without any needs none.
    spread = best.costs.std(0)
    spread = np.where(spread > ROUNDING * np.maximum(np.abs(best.costs).max(0), np.abs(limits)), spread, 0.0)
    if plain is not None:
        # Budgets as stated, without a margin: passing is possible, and then less may do.
        tried = evaluate(plain)
        if tried.passes or not spread.any():
            best = tried
            if not spread.any():
                return best, method
            # It may be that less than the budget's mean is enough: from a margin at which nothing binds up to none.
            excess = np.where(spread > 0, (free.costs - limits) / np.where(spread > 0, spread, 1.0), 0.0)
            return _bisect(program, limits, spread, evaluate, (-float(excess.max()), 0.0), best, method)
    elif not spread.any():
        return best, f"{method}: no policy of this set is within the budgets"
    # The largest margin at which any policy is feasible bounds the search.
    high = program.largest_margin(limits, spread) * (1 - 1e-9) if plain is not None else -1.0
    plan = program.solve(limits - high * spread) if high > 0 else plain
    if plan is None:
        return best, f"{method}: no policy of this set is within the budgets"
    best = evaluate(plan)
    if not best.passes:
        return (
            best,
            f"{method}: no policy keeps the budgets surely enough in the draws of the search; the most careful one",
        )
    return _bisect(program, limits, spread, evaluate, (0.0, high), best, method)


def _bisect(
    program: OccupancyProgram,
    limits: Float[np.ndarray, " K"],
    spread: Float[np.ndarray, " K"],
    evaluate: Callable[[OccupancyPlan], Evaluated],
    between: tuple[float, float],
    best: Evaluated,
    how: str,
) -> tuple[Evaluated, str]:
    """Bisection between a margin that is too small and one that passes: of those that pass, the best on average."""
    low, high = between
    margin = high
    for _ in range(BISECTIONS):
        if high - low <= 1e-3 * max(abs(low), abs(high), 1e-3):
            break
        # The share of draws that pass grows with the margin: bisection, as if it were monotone.
        middle = (low + high) / 2
        plan = program.solve(limits - middle * spread)
        tried = None if plan is None else evaluate(plan)
        if tried is not None and tried.passes:
            high = middle
            if tried.values.mean() >= best.values.mean():
                best, margin = tried, middle
        else:
            low = middle
    return best, f"{how}, with budgets {_below(margin)}"


def _below(margin: float) -> str:
    if abs(margin) < 1e-9:
        return "as stated"
    side = "below" if margin > 0 else "above"
    return f"{amount(abs(margin), 3)} standard deviations {side} the stated ones"


def spending_of(value: PolicyValue, spender: Spender, posterior: object, *, looks: int = 1) -> dict[str, Spending]:
    """What a policy spends, by draws that did not choose it.

    Args:
        value: in these draws, with the outcomes of the budgets.
        spender: the budgets.
        posterior: that was drawn from.
        looks: at how many sizes of the draws one may stop; the confidence is shared among them.
    """
    costs = costs_of(value, spender)
    over = spender.over(costs)
    # Several looks share the error (Bonferroni).
    confidence = 1.0 - (1.0 - CERTAIN) / looks
    answers = {}
    for i, (name, budget) in enumerate(spender.budgets.items()):
        share = float(over[:, i].mean())
        number = spender.worth(name, posterior, costs[:, i], over[:, i])
        answers[name] = Spending(
            name,
            budget,
            value.outcomes[name],
            share,
            limit_of_share(share, number, confidence),
            all(map(_is_fresh, spender.drawn_from(name, posterior))),
            None if number == len(costs) else number,
            _listed(spender.drawn_from(name, posterior)),
        )
    return answers


def _is_fresh(belief: object) -> bool:
    """Whether each draw of it is a new one."""
    picked = isinstance(belief, KnowsWorth) and np.isfinite(belief.worth_of_picks())
    return not (picked or isinstance(belief, HoldsDraws))


def _listed(beliefs: list[object]) -> int | None:
    """How many MDPs the first list among these beliefs has, from which draws are picked; None: there is no list."""
    lists = [x.num_listed for x in beliefs if isinstance(x, ListsMDPs) and not isinstance(x, HoldsDraws)]
    return lists[0] if lists else None


class ShadowPrice(eqx.Module):
    """What one more unit of a budget would add to the value of the best policy within it.

    Duals of linear programs are constant in pieces and often zero: the price of the mean MDP may be one that no draw
    has. It is no price of the chosen policy's own margin.

    Args:
        name: of the outcome.
        mean_world: the price in the mean MDP, at the stated budget; in units of the value by those of the outcome.
        draws: in draws of the posterior, in which a planner knows the draw; nan: in this one no policy is within the
            budget.
    """

    name: str = eqx.field(static=True)
    mean_world: float
    draws: Float[np.ndarray, " N"]

    @property
    def infeasible(self) -> float:
        """Share of the draws in which no policy is within the budget."""
        return float(np.isnan(self.draws).mean())

    @property
    def zeros(self) -> float:
        """Share of the other draws in which the price is zero: the budget does not bind."""
        known = self.draws[~np.isnan(self.draws)]
        return float((known == 0).mean()) if len(known) else np.nan

    @property
    def interval(self) -> tuple[float, float]:
        """The central 95 % of the draws in which there is a price, in units of the value by those of the outcome."""
        known = self.draws[~np.isnan(self.draws)]
        return (np.nan, np.nan) if not len(known) else central_interval(known)

    def __str__(self) -> str:
        """One sentence or two."""
        never = f"; in {self.infeasible:.2g} of the draws no policy is within the budget" if self.infeasible else ""
        if np.isnan(self.zeros):
            return f"{self.name}: no price: in no draw is any policy within the budget"
        return (
            f"{self.name}: one more unit of the budget would add {amount(self.mean_world, 3)} to the value in the mean "
            f"MDP; in 95 % of the draws {amounts(*self.interval, 3)}, in {100 * self.zeros:.0f} % nothing{never}"
        )


def plan_in_draw(
    rows: PairRows, drawn: Drawn, spender: Spender, start: Float[np.ndarray, " S"], policies: PolicySet
) -> Float[np.ndarray, "*H S A"]:
    """The best policy within the budgets in one draw, with known costs.

    Args:
        rows, drawn: the pairs, as one draw.
        spender: the budgets, all of known outcomes (`in_mean_costs`).
        start: distribution of the first state.
        policies: the set.
    """
    horizon = spender.objective.horizon
    costs = np.stack([outcome.of_pairs(rows, drawn.probs, horizon)[0] for outcome in spender.known.values()])
    summed = (spender.objective, spender.summed)
    program = occupancy_program(rows, drawn.probs[0], drawn.reward[0], costs, summed, start, policies)
    return careful_plan(program, spender.limits).policy


def shadow_prices(
    key: PRNGKeyArray,
    posterior: CanSample,
    spender: Spender,
    mean: MDP | SparseMDP,
    start: Float[np.ndarray, " S"],
    policies: PolicySet,
    num_draws: int,
) -> dict[str, ShadowPrice]:
    """The price of every budget, in the mean MDP and in draws.

    Args:
        key: of the draws.
        posterior: of the MDP.
        spender: the budgets.
        mean: the mean MDP.
        start: distribution of the first state.
        policies: the set.
        num_draws: at most.
    """
    limits = spender.limits
    plan = mean_program(mean, spender, start, policies).solve(limits)
    # Prices are duals of the mean program; in draws they say how far these can be relied on.
    in_mean = np.full(len(limits), np.nan) if plan is None else plan.prices
    size = int(policies.used.sum()) * (policies.fixed.shape[0] if policies.fixed.ndim == 3 else 1)
    number = min(num_draws, PRICED if size < LARGE else LARGE_PRICED)
    shape = np.shape(mean.reward)
    # Common draws of rows and of all costs.
    rows, drawn, costs = spender.paid_in_draws(key, posterior, np.broadcast_to(policies.used, shape), number)
    prices = np.full((len(drawn.probs), len(limits)), np.nan)
    for i in range(len(prices)):
        program = occupancy_program(
            rows, drawn.probs[i], drawn.reward[i], costs[:, i], (spender.objective, spender.summed), start, policies
        )
        plan = program.solve(limits)
        # A draw without any policy within the budget has no price: nan.
        if plan is not None:
            prices[i] = plan.prices
    return {name: ShadowPrice(name, float(in_mean[i]), prices[:, i]) for i, name in enumerate(spender.budgets)}


class BudgetPlan(eqx.Module):
    """The best policy of a known MDP within budgets; `print` shows it in words.

    Args:
        policy: action probabilities.
        value: of it.
        costs: name -> what it spends, in units of the outcome.
        prices: name -> what one more unit of the budget would add to the value.
        mixes: the (step and) states in which it mixes actions, at most one for each budget.
        objective: of the value.
        budgets: name -> budget.
    """

    policy: Float[np.ndarray, "*H S A"]
    value: float
    costs: dict[str, float]
    prices: dict[str, float]
    mixes: tuple[tuple[int, ...], ...]
    objective: Objective
    budgets: dict[str, Budget] = eqx.field(static=True)

    __str__ = as_text
    _repr_html_ = as_html

    def layout(self) -> Section:
        """What `print` and a notebook show of it."""
        parts = [f"value {amount(self.value, 6)}"]
        for name, budget in self.budgets.items():
            parts.append(
                f"{name}: spends {amount(self.costs[name], 6)} of {amount(budget.limit, 6)}; one more unit would add "
                f"{amount(self.prices[name])}"
            )
        mixed_states = ", ".join(str(mix[0]) if len(mix) == 1 else f"{mix[1]} at step {mix[0]}" for mix in self.mixes)
        parts.append(f"actions are mixed in state {mixed_states}" if mixed_states else "one action in every state")
        return Section(f"Policy within budgets, {describe_objective(self.objective)}", parts)


def budget_plan(
    mdp: MDP | SparseMDP,
    objective: Objective,
    budgets: Mapping[str, Budget],
    *,
    initial: InitialLike | None = None,
    limits: PolicyLimits = PolicyLimits(),
) -> BudgetPlan:
    """The best policy of a known MDP within budgets, by a linear program over occupancies. Host-side, in float64.

    Args:
        mdp: known.
        objective: Discounted, Episodic or FirstExit (where every allowed policy ends).
        budgets: name -> budget, with its outcome as known numbers; probabilities mean nothing where nothing is unknown.
        initial: distribution of the first state, as in `policy_value`.
        limits: `allowed` of them.

    Returns:
        The optimum, exact to the precision of the solver (about 1e-9 of the largest reward), and its duals.

    Raises:
        ValueError: no policy is within a budget (the least possible cost is named), an objective that has no such
            program, numbers that do not fit. TypeError: an outcome that is no numbers.

    Example:
        >>> mdp = bm.MDP([[[0.9, 0.1], [0.95, 0.05]], [[0.2, 0.8], [0.6, 0.4]]], [[1.0, 1.0], [0.3, 0.3]])
        >>> cost = bm.decisions.Budget(2.0, outcome=[[0.0, 1.0], [0.0, 1.0]])
        >>> plan = bm.decisions.budget_plan(mdp, bm.Discounted(0.9), {"cost": cost}, initial=[0.5, 0.5])
        >>> round(plan.value, 4), round(plan.prices["cost"], 4)
        (8.6613, 0.046)
    """
    check_objective(objective)
    check_type("mdp", mdp, (MDP, SparseMDP), "an MDP")
    check_type("limits", limits, PolicyLimits, "PolicyLimits")
    check_type("budgets", budgets, Mapping, "name of an outcome -> Budget")
    PolicyLimits(budgets=budgets)  # refuses what is no budget
    check_budgets(budgets, objective, "mean")
    shape = np.shape(mdp.reward)
    check_fit(objective, shape)
    sizes = Sizes(shape, mdp.end_probs is not None, None if mdp.legal is None else np.asarray(mdp.legal))
    require_end(sizes.ends, objective)
    steps = (objective.horizon, *shape[-2:]) if isinstance(objective, Episodic) else shape
    policies = policy_set(limits, sizes.legal, steps, None, None)
    spender = read_budgets(budgets, mdp, sizes, None, objective)
    start = read_start(mdp, initial).probs
    program = mean_program(mdp, spender, start, policies)
    require_feasible(program, spender, "in this MDP")
    plan = program.solve(spender.limits)
    assert plan is not None
    # States in which the vertex mixes actions, at most one for each budget.
    mixed = np.argwhere(plan.policy.max(-1) < 1 - SMALL)
    names = list(budgets)
    return BudgetPlan(
        plan.policy,
        plan.value,
        dict(zip(names, map(float, plan.costs), strict=True)),
        dict(zip(names, map(float, plan.prices), strict=True)),
        tuple(tuple(map(int, index)) for index in mixed),
        objective,
        dict(budgets),
    )


@dataclass(frozen=True, eq=False)
class ParetoFront:
    """Value against budget under a posterior; `print` shows it, `plots.plot_pareto` draws it.

    Args:
        name: of the outcome.
        budget: Float64[B], expected costs in the mean MDP, from the least possible one to that of the free optimum.
        policies: Float64[B *H S A], the best policy of the mean MDP within each.
        in_mean: Float64[B], its value in the mean MDP.
        price: Float64[B], what one more unit of the budget adds there; falls as the budget grows.
        values: Float64[B N], in draws of the posterior.
        costs: Float64[B N], in the same draws, in units of the outcome.
        objective: of the values.
    """

    name: str
    budget: Float[np.ndarray, " B"]
    policies: Float[np.ndarray, "B *H S A"]
    in_mean: Float[np.ndarray, " B"]
    price: Float[np.ndarray, " B"]
    values: Float[np.ndarray, "B N"]
    costs: Float[np.ndarray, "B N"]
    objective: Objective

    def table(self) -> "pd.DataFrame":
        """A row for each budget: `budget`, `in_mean`, `price`; `value` and `cost` with `_low` and `_high` (95 %)."""
        import pandas as pd

        columns = {"budget": self.budget, "in_mean": self.in_mean, "price": self.price}
        for column, draws in (("value", self.values), ("cost", self.costs)):
            low, high = np.quantile(draws, (0.025, 0.975), axis=-1)
            columns |= {column: draws.mean(-1), f"{column}_low": low, f"{column}_high": high}
        return pd.DataFrame(columns)

    __str__ = as_text
    _repr_html_ = as_html

    def layout(self) -> Section:
        """What `print` and a notebook show of it."""
        table = self.table()
        columns = ("budget", "value", "value_low", "value_high", "price")
        rows = [[amount(x) for x in row] for row in table[list(columns)].to_numpy()]
        head = (f"{self.name}, at most", "value", "95 % from", "to", "one more unit adds")
        title = f"Value against {self.name}, {describe_objective(self.objective)}, {self.values.shape[1]} draws"
        return Section(title, [Table(head, rows, words=())])


def pareto_front(
    key: PRNGKeyArray,
    posterior: CanSample,
    objective: Objective,
    outcome: str | Mapping[str, object] = "cost",
    *,
    initial: InitialLike | None = None,
    points: IntScalar = POINTS,
    options: ChooseOptions = ChooseOptions(),
) -> ParetoFront:
    """The best value for every budget of one outcome, in the mean MDP, and what it is worth in draws. Host-side.

    The policies are optimal in the mean MDP; that no policy is better under the posterior is not shown (the program
    over a posterior is not convex).

    Args:
        key: of the draws.
        posterior: anything that can `sample` and has a mean.
        objective: Discounted, Episodic or FirstExit (where every allowed policy ends).
        outcome: the name of one that the posterior has learnt; or {name: what it is, as `Budget.outcome`}.
        initial: distribution of the first state, as in `policy_value`.
        points: number of budgets, at least 2.
        options: `limits` (`allowed`, `min_count` of them), and `num_draws`, in which each policy is evaluated; there is
            no baseline, so that the others say nothing.

    Raises:
        ValueError, TypeError: as `choose` with budgets.

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(1, 2)
        >>> data = bm.Transitions([0] * 20, [0, 1] * 10, [0.0, 1.0] * 10, [0] * 20)
        >>> posterior = bm.infer(jax.random.key(0), prior, data, space=space)
        >>> front = bm.decisions.pareto_front(
        ...     jax.random.key(1), posterior, bm.Episodic(2), {"cost": [[1.0, 3.0]]}, points=3
        ... )
        >>> front.budget.round(6).tolist()
        [2.0, 4.0, 6.0]
    """
    require_ability(posterior, CanSample, "pareto_front")
    require_ability(posterior, CanMean, "pareto_front")
    check_key("key", key)
    check_objective(objective)
    if type(options) is not ChooseOptions:  # those of `decide` would be forgotten in silence
        raise TypeError(f"options is {described(options)}, expected ChooseOptions")
    check_count("points", points, 2)
    name, source = _one_outcome(outcome, tuple(learnt_outcomes(posterior)))
    # The limit of the budget is varied below: any number will do here.
    budgets = {name: Budget(0.0, outcome=source)}
    check_budgets(budgets, objective, "mean")
    sizes, space = sizes_of(posterior), labels_of(posterior)
    check_fit(objective, sizes.shape)
    require_end(sizes.ends, objective)
    start = read_start(sizes, initial, space).probs
    assert isinstance(posterior, CanMean)
    mean = mean_in_float64(posterior)
    counts = np.asarray(posterior.visit_counts()) if isinstance(posterior, CanCount) else None
    steps = (objective.horizon, *sizes.shape[-2:]) if isinstance(objective, Episodic) else sizes.shape
    policies = policy_set(options.limits, sizes.legal, steps, counts, None)
    spender = read_budgets(budgets, posterior, sizes, space, objective)
    program = mean_program(mean, spender, start, policies)
    # Ends of the front: the free optimum, and the least that is possible.
    free, least = program.solve(None), program.least(0)
    assert free is not None
    # From the least cost, rounding apart, to that of the free optimum, where the price is zero.
    budget = np.linspace(least, max(float(free.costs[0]), least), int(points))
    slack = ROUNDING * max(float(np.abs(budget).max()), 1e-300)
    solved = [(level, program.solve(np.array([level + slack]))) for level in budget]
    # Nearly none is left out: each budget is at least the least cost, rounding apart.
    feasible = [(level, plan) for level, plan in solved if plan is not None]
    # All policies of the front in common draws: differences between points have little noise.
    named: dict[str, PolicyOrLabels] = {str(i): plan.policy for i, (_, plan) in enumerate(feasible)}
    answers = policy_values(key, posterior, named, objective, start, int(options.num_draws), spender.outcomes).values()
    return ParetoFront(
        name,
        np.array([level for level, _ in feasible]),
        np.stack([plan.policy for _, plan in feasible]),
        np.array([plan.value for _, plan in feasible]),
        np.array([float(plan.prices[0]) for _, plan in feasible]),
        np.stack([answer.draws for answer in answers]),
        np.stack([answer.outcomes[name].draws for answer in answers]),
        objective,
    )


def _one_outcome(outcome: str | Mapping[str, object], learnt: tuple[str, ...]) -> tuple[str, object]:
    """The name of an outcome, and what it is; None: it was learnt."""
    if isinstance(outcome, Mapping):
        named = list(outcome.items())
        if len(named) != 1 or not isinstance(named[0][0], str) or named[0][1] is None:
            raise ValueError(f"outcome is {outcome!r}, expected one name, and what it is, as {{'cost': [[0.0, 1.0]]}}")
        return named[0]
    check_type("outcome", outcome, str, "the name of an outcome, or one name and what it is")
    check_name("outcome", outcome, learnt or ("",))
    return outcome, None
