"""Plans in the mean MDP of a belief: optimistic by visit counts, with dithering, or for information as a reward.

Optimism by visit counts: `CountBonus`, `BEB`, `BOLT`.
`CountBonus` adds a bonus to every reward: the baseline of figures 1 and 2 of [UBE18] O'Donoghue, Osband, Munos and
Mnih, *The Uncertainty Bellman Equation and Exploration*, ICML 2018; with a constant scale it has the form of MBIE-EB
(Strehl and Littman 2008). Standard deviations are added along a path where [UBE18] adds variances, so the bonus of a
long path is too large. `BEB` is the Bayesian exploration bonus: Kolter and Ng, *Near-Bayesian Exploration in Polynomial
Time*, ICML 2009 [BEB09]. `BOLT` has optimistic local transitions in place of a bonus: Araya-Lopez, Thomas and Buffet,
*Near-Optimal BRL using Optimistic Local Transitions*, ICML 2012 [BOLT12].

`EpsilonGreedyMean` is undirected exploration, the epsilon-greedy agent of TabulaRL. `InformationGain` plans to be
surprised: the expected information about the transition rows is a reward, maximised by planning. Sun, Gomez and
Schmidhuber, *Planning to be surprised: optimal Bayesian exploration in dynamic environments*, AGI 2011 [INFO11] (the
expected information of a plan, by value iteration in the mean MDP); Houthooft et al., *VIME: variational information
maximizing exploration*, NeurIPS 2016 [VIME16] (reward + eta * information); Hao and Lattimore, *Regret Bounds for
Information-Directed Reinforcement Learning*, NeurIPS 2022 [IDS22] (the same plan).

The information of one transition is exact (`CanInform`). That of a plan is the sum over its transitions: by the chain
rule exact where rows are independent and none is visited twice (always so where every step has its own rows), too large
where a row is visited again, because the belief is not updated inside the plan. Information about rewards is not
counted: where all rows are known (a bandit, say) the agent is greedy.
"""

from functools import partial
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
from jax import lax, nn
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bayes_mdp.agents.common.mean_model import (
    CountedBelief,
    MeanModel,
    NeedsConcentrations,
    blank_plan,
    effective_horizon,
    mean_model,
    mean_reward_variance,
    plan_for_rewards,
    row_variance_factor,
)
from bayes_mdp.agents.common.replan import ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import EpsilonGreedy, Greedy
from bayes_mdp.agents.common.variance_equation import discount_of
from bayes_mdp.mdp import MDP, CanCount, CanMean, Discounted, Episodic, Objective, PolicyLike, Problem, SparseMDP
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.mdp.agent import ReplanLike
from bayes_mdp.mdp.protocols import CanInform
from bayes_mdp.planning import evaluate, solve
from bayes_mdp.planning.solution import PolicyEvaluation, Solution, no_plan, where_legal
from bayes_mdp.utils.typing import AnyArray, IntScalar, RealLike, RealScalar, Scalar
from bayes_mdp.utils.validation import (
    check_bool,
    check_finite,
    check_fraction,
    check_name,
    check_not_negative,
)

SCHEDULES = ("constant", "log")
Pairs = Float[AnyArray, "*H S A"]
Successors = Int[Array, "S A"]
Support = Bool[AnyArray, "*G S A O"] | None
"""The possible outcomes of every pair; None: all."""

Carry = tuple[Solution, Successors, Bool[Array, ""], Int[Array, ""]]
"""Of the rounds: the plan, the imaginary successors of all pairs, whether the last round changed one, rounds made."""

_MOST_ROUNDS = 50  # of planning and choosing successors; a handful is usual


def local_bonus(
    mdp: MDP | SparseMDP,
    visits: Pairs,
    objective: Objective,
    *,
    scale: Scalar = 1.0,
    reward_sd: RealLike = 1.0,
    unvisited: Scalar | None = None,
) -> Pairs:
    """The bonus of every pair: scale * reward_sd / sqrt(n), and `unvisited` where n = 0. Traceable.

    In [UBE18] figure 1 `reward_sd` is the standard deviation of one reward of the pair, and the bonus at n = 0 is
    infinite; MBIE-EB has `reward_sd` 1 and scale beta. Here the bonus at n = 0 is finite: 2 G + max reward_sd, where
    G bounds the return, bonus included, of every plan that meets visited pairs alone. An action that was never tried
    is then better than all such plans in its state; k steps before, the bonus is discounted by k steps.

    Args:
        mdp: the mean MDP.
        visits: n, [*H S A].
        objective: `Discounted` or `Episodic`.
        scale: a number, zero or greater.
        reward_sd: a number or [*H S A], units of the reward.
        unvisited: the bonus of a pair never visited, units of the reward; None: see above. It is not scaled.

    Raises:
        ValueError: another objective, for which the largest return does not exist.
    """
    visited = visits > 0
    # n = 0 is replaced before the division: a derivative through inf would be nan.
    bonus = scale * reward_sd / jnp.sqrt(jnp.where(visited, visits, 1.0))
    if unvisited is None:
        known = visited if mdp.legal is None else visited & mdp.legal
        reward = jnp.abs(where_legal(mdp.reward, mdp.legal, 0.0))
        # G = horizon x (largest |reward| + largest bonus) over visited pairs bounds every return of the known part.
        largest_return = effective_horizon(objective, "a bonus by counts") * (
            jnp.max(reward) + jnp.max(jnp.where(known, bonus, 0.0))
        )
        # Twice that bound outweighs what is lost on the way to the pair.
        first = 2.0 * largest_return + jnp.max(jnp.asarray(reward_sd))
    else:
        first = unvisited
    return jnp.where(visited, bonus, first).astype(mdp.reward.dtype)


def bonus_values(mdp: MDP | SparseMDP, local: Pairs, policy: PolicyLike, objective: Objective) -> PolicyEvaluation:
    """A bonus, propagated by the Bellman equation of a policy: B = local + discount sum P pi B ([UBE18] figure 1).

    Q + B is the optimistic value of the policy. Compare `planning.solve.propagate`, which adds variances.

    Args:
        mdp: the mean MDP; its rewards are not used.
        local: [*H S A], as `local_bonus` gives it.
        policy, objective: as in `planning.evaluate`.

    Raises:
        ValueError, TypeError: as `planning.evaluate`.
    """
    # The bonus takes the place of the reward in the policy's own Bellman equation.
    return evaluate(eqx.tree_at(lambda m: m.reward, mdp, local), policy, objective)


class CountBonusState(eqx.Module):
    """The state of `CountBonus`.

    Args:
        plan: the last one; None under `Episodic`.
        num_plans: made so far.
    """

    plan: Solution | None
    num_plans: Int[Array, ""]


class CountBonus(eqx.Module):
    """Greedy for the optimal plan of the mean MDP whose rewards have the bonus of `local_bonus` added.

    Args:
        scale: beta, in units of the reward (a leaf of the pytree: parameter sweeps can vmap over it).
        schedule: "constant", or "log": beta times log t, t the number of this plan from 1 on. With replan="episode" t
            is the number of the episode, as in [UBE18] figure 2.
        reward_sd, unvisited: as in `local_bonus`.
        replan: as in `PSRL`.

    Raises:
        ValueError: `scale`, `reward_sd` or `unvisited` is negative or not finite; another schedule.
        TypeError: no number, no rule of replanning.
    """

    scale: float | Array = 1.0
    schedule: str = eqx.field(default="constant", static=True)
    reward_sd: RealLike = 1.0
    unvisited: float | Array | None = None
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule)

    def __check_init__(self) -> None:
        check_not_negative("scale", self.scale)
        check_not_negative("reward_sd", self.reward_sd)
        if self.unvisited is not None:
            check_not_negative("unvisited", self.unvisited)
        check_name("schedule", self.schedule, SCHEDULES)

    def init(self, key: PRNGKeyArray, problem: Problem) -> CountBonusState:
        """No plan yet.

        Raises:
            ValueError: an objective other than `Discounted` and `Episodic`.
        """
        del key
        blank = blank_plan(problem, "a bonus by counts")
        return CountBonusState(blank, jnp.zeros((), jnp.int32))

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: CountBonusState, belief: CountedBelief
    ) -> tuple[Greedy, CountBonusState]:
        """Greedy for the optimistic plan; its q is the optimistic value. No random number is used.

        Raises:
            TypeError: `belief` has no mean or no counts.
        """
        del key
        require_ability(belief, CanMean, "CountBonus")
        require_ability(belief, CanCount, "CountBonus")
        mean, number = belief.mean_mdp(), state.num_plans + 1
        # The schedule log k lets the bonus of pairs grow that are not visited.
        scale = self.scale * jnp.log(number.astype(mean.reward.dtype)) if self.schedule == "log" else self.scale
        bonus = local_bonus(
            mean,
            belief.visit_counts(),
            problem.objective,
            scale=scale,
            reward_sd=jnp.asarray(self.reward_sd, mean.reward.dtype),
            unvisited=self.unvisited,
        )
        # The bonus is a reward: one plan of the mean MDP with changed rewards, from the last plan.
        optimistic = eqx.tree_at(lambda m: m.reward, mean, mean.reward + bonus)
        solution = solve(optimistic, problem.objective, start=state.plan)
        policy = Greedy(solution.q, problem.space.legal, best=solution.policy)
        return policy, CountBonusState(None if state.plan is None else solution, number)


def exploration_bonus(
    variance_factor: Pairs, scale: RealScalar, *, visits: Pairs, unknown_reward: Bool[AnyArray, "*H S A"] | None = None
) -> Pairs:
    """The bonus of every pair: scale / (1 + c0), c0 the total concentration of its row.

    The paper's rewards are known, and so is a row of infinite c0: its bonus is zero. Where the row is known and the
    mean reward is not, the visits stand in for c0 (ours: otherwise the agent would never explore such a reward).

    Args:
        variance_factor: 1 / (1 + c0); zero where the row is known.
        scale: beta, zero or greater, units of the reward.
        visits: number of observed transitions from every pair.
        unknown_reward: where the mean reward is unknown; None: nowhere.
    """
    # scale / (1 + c0) is scale times the variance factor.
    bonus = scale * variance_factor
    # A known row has no bonus of its own; the visits then measure what is known of the reward.
    if unknown_reward is None:
        return bonus
    return jnp.where((variance_factor == 0) & unknown_reward, scale / (1.0 + visits), bonus)


class BEB(NeedsConcentrations):
    """Greedy for the optimal plan of the mean MDP with the bonus of `exploration_bonus` added to its rewards [BEB09].

    Q(s, a) = r(s, a) + beta / (1 + c0(s, a)) + discount sum_s' pbar(s' | s, a) max_a' Q(s', a'), with posterior means
    r and pbar: the prior's concentrations count in both. BEB approximates the Bayes-optimal policy, not the optimal
    one: it stops exploring sooner than agents with a bonus of 1 / sqrt(n), and may never find the optimum.

    Args:
        scale: beta (a leaf of the pytree: parameter sweeps can vmap over it); None: 2 H^2, the theory's for rewards in
            [0, 1], with 1 / (1 - discount) for H under `Discounted` (our reading).
        replan: as in `PSRL`.

    Raises:
        ValueError: `scale` is negative or not finite.
        TypeError: no number, no rule of replanning.
    """

    scale: float | Array | None = None
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule)

    def __check_init__(self) -> None:
        if self.scale is not None:
            check_not_negative("scale", self.scale)

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: Solution | None, belief: CountedBelief
    ) -> tuple[Greedy, Solution | None]:
        """Greedy for the optimistic plan; its q is the optimistic value. No random number is used.

        Raises:
            ValueError, TypeError: as `check_belief`.
        """
        del key
        self.check_belief(belief)
        # 2 H^2, the constant of the theorem of [BEB09].
        scale = 2.0 * effective_horizon(problem.objective, "BEB") ** 2 if self.scale is None else self.scale
        visits, unknown = belief.visit_counts(), mean_reward_variance(belief) > 0
        bonus = exploration_bonus(row_variance_factor(belief, "BEB"), scale, visits=visits, unknown_reward=unknown)
        q, best, state = plan_for_rewards(belief, problem, lambda reward: reward + bonus, state, "BEB")
        return Greedy(q, problem.space.legal, best=best), state


def imaginary_share(variance_factor: Float[Array, "*H S A"], eta: RealScalar) -> Float[Array, "*H S A"]:
    """eta / (c0 + eta), the weight of `eta` imaginary transitions in a row; zero where the row is known.

    ptilde = (c + eta e_s*) / (c0 + eta) = (1 - share) pbar + share e_s*.

    Args:
        variance_factor: 1 / (c0 + 1) of each row, a factor.
        eta: imaginary transitions, a count.
    """
    # c0 = (1 - f) / f: multiplied through by f, so that f = 0 (c0 infinite) gives 0.
    weight = variance_factor * eta
    return weight / (1.0 - variance_factor + weight)


def episodic_values(
    model: MeanModel, share: Float[Array, "*H S A"], *, support: Support = None, ends: bool = False
) -> Float[Array, "H S A"]:
    """q of every step: r + max_s* ptilde . v, s* the imaginary successor of the largest value.

    The paper tries every successor; one maximum over the possible ones gives the same.

    Args:
        model: the mean model.
        share: as `imaginary_share` gives it, [*H S A].
        support: Bool[*H S A O], the possible outcomes; None: all states and, where `ends`, the end.
        ends: whether episodes can end; the end is then a possible successor of value 0.
    """

    def backup(layer: IntScalar, values: Float[Array, " S"]) -> Float[Array, "S A"]:
        # (1 - share) E[p . v] + share max v, written so that share = 0 leaves the mean row untouched.
        possible = support if support is None or support.ndim == 3 else jnp.asarray(support)[layer]
        mean, best = model.expected_next(values, layer), jnp.max(_outcome_values(values, possible, ends), -1)
        return model.at(model.reward, layer) + mean + model.at(share, layer) * (best - mean)

    return model.backward(backup)


def plan_with_choices(
    mean: MDP | SparseMDP, share: Pairs, discount: RealScalar, *, support: Support = None, start: Solution | None = None
) -> Solution:
    """The optimal plan where every pair also chooses its imaginary successor: plans and choices in turn until stable.

    Each turn improves the values, which are then those of the optimality equation of BOLT. Traceable.

    Args:
        mean: the mean MDP, stationary.
        share: as `imaginary_share` gives it, [S A].
        discount: a number.
        support: as in `episodic_values`, [S A O].
        start: a plan to start from; None: a blank one.
    """
    mdp = mean.to_dense()
    ends, size = mdp.end_probs is not None, mdp.reward.shape
    start = Solution.blank(size, legal=mdp.legal, dtype=mdp.reward.dtype) if start is None else start

    # Given the successors the model is an ordinary MDP; given its values each pair picks the best outcome.
    def choice(solution: Solution) -> Successors:
        return jnp.broadcast_to(jnp.argmax(_outcome_values(solution.v, support, ends), -1), size)

    def round_(carry: Carry) -> Carry:
        solution, successor, _, number = carry
        solution = solve(_imagine(mdp, share, successor), Discounted(discount), start=solution)
        improved = choice(solution)
        # Stable when no pair chooses another successor.
        return solution, improved, jnp.any(improved != successor), number + 1

    first = (start, choice(start), jnp.array(True), jnp.int32(0))
    return lax.while_loop(lambda carry: carry[2] & (carry[3] < _MOST_ROUNDS), round_, first)[0]


def _imagine(mdp: MDP, share: Pairs, successor: Successors) -> MDP:
    """The mean MDP with its rows moved towards one outcome of every pair (index S: the end)."""
    # An outcome of index S has no row of ones: its mass goes to the end.
    rows = nn.one_hot(successor, mdp.n_states, dtype=mdp.transition_probs.dtype)
    probs = (1.0 - share)[..., None] * mdp.transition_probs + share[..., None] * rows
    ends = None if mdp.end_probs is None else (1.0 - share) * mdp.end_probs + share * (successor == mdp.n_states)
    return MDP(probs, mdp.reward, end_probs=ends, legal=mdp.legal, initial=mdp.initial)


def _outcome_values(values: Float[Array, " S"], support: Support, ends: bool) -> Float[Array, "*pairs O"]:
    """Values of the outcomes, -inf where one is impossible; an end has value 0."""
    # The end is one more outcome, of value zero.
    outcomes = jnp.append(values, 0.0) if ends else values
    return outcomes if support is None else jnp.where(support, outcomes, -jnp.inf)


class BOLT(NeedsConcentrations):
    """Greedy for the plan in which every pair has `eta` imaginary transitions to its best successor [BOLT12].

    Q(s, a) = r(s, a) + discount max_s* ptilde(s, a) . V with ptilde of `imaginary_share` and posterior means r, pbar:
    the prior's concentrations count. Known rows have no imaginary transitions. Rewards are not changed: the paper's
    are known (see `max_reward`).

    Args:
        eta: number of imaginary transitions (a leaf of the pytree); None: H, the theory's, 1 / (1 - discount) under
            `Discounted` (our reading).
        max_reward: the largest mean reward. A pair of unknown mean reward then has `eta` imaginary rewards of this
            size beside the observed ones (ours; TabulaRL adds a slack to the mean); None: the mean.
        replan: as in `PSRL`.

    Raises:
        ValueError: `eta` is negative or not finite, `max_reward` not finite.
        TypeError: no number, no rule of replanning.
    """

    eta: float | Array | None = None
    max_reward: float | Array | None = eqx.field(default=None, kw_only=True)
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule, kw_only=True)

    def __check_init__(self) -> None:
        if self.eta is not None:
            check_not_negative("eta", self.eta)
        if self.max_reward is not None:
            check_finite("max_reward", self.max_reward)

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: Solution | None, belief: CountedBelief
    ) -> tuple[Greedy, Solution | None]:
        """Greedy for the optimistic plan; its q is the optimistic value. No random number is used.

        Raises:
            ValueError, TypeError: as `check_belief`.
        """
        del key
        self.check_belief(belief)
        objective, space = problem.objective, problem.space
        eta = effective_horizon(objective, "BOLT") if self.eta is None else self.eta
        reward = belief.mean_mdp().reward
        # Imaginary rewards too, where means are unknown.
        reward = self._reward(belief, reward, eta).astype(reward.dtype)
        share = imaginary_share(row_variance_factor(belief, "BOLT"), eta).astype(reward.dtype)
        if isinstance(objective, Episodic):
            model = eqx.tree_at(lambda m: m.reward, mean_model(belief, objective, "BOLT"), reward)
            return Greedy(
                episodic_values(model, share, support=space.support_mask(), ends=space.ends), space.legal
            ), None
        mean = eqx.tree_at(lambda m: m.reward, belief.mean_mdp(), reward)
        solution = plan_with_choices(mean, share, discount_of(objective), support=space.support_mask(), start=state)
        return Greedy(solution.q, space.legal, best=solution.policy), solution

    def _reward(self, belief: CountedBelief, reward: Pairs, eta: RealScalar) -> Pairs:
        """Mean rewards, with the imaginary ones where the mean is unknown."""
        if self.max_reward is None:
            return reward
        # eta imaginary rewards of `max_reward` beside n observed ones: share eta / (n + eta).
        unknown = mean_reward_variance(belief) > 0
        share = jnp.where(unknown, eta / jnp.maximum(belief.visit_counts() + eta, 1e-30), 0.0)
        return reward + share * jnp.maximum(self.max_reward - reward, 0.0)


class EpsilonGreedyMean(eqx.Module):
    """Epsilon-greedy for the optimal plan of the posterior-mean MDP, under any objective.

    Args:
        epsilon: in [0, 1].
        replan: as in `PSRL`.

    Raises:
        ValueError: `epsilon` lies outside [0, 1].
        TypeError: no number, no rule of replanning.
    """

    epsilon: float | Array = 0.1
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule)

    def __check_init__(self) -> None:
        check_fraction("epsilon", self.epsilon)

    def check_belief(self, belief: object) -> None:
        """Refuse a belief without a mean.

        Raises:
            TypeError: no mean.
        """
        require_ability(belief, CanMean, "EpsilonGreedyMean")

    def init(self, key: PRNGKeyArray, problem: Problem) -> Solution | None:
        """No plan yet; the state is the last plan, for a warm start (none is needed for episodes)."""
        del key
        return no_plan(problem)

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: Solution | None, belief: CanMean
    ) -> tuple[EpsilonGreedy, Solution | None]:
        """Epsilon-greedy for the plan. No random number is used.

        Raises:
            TypeError: `belief` has no mean. ValueError: as `planning.solve`.
        """
        del key
        self.check_belief(belief)
        # The mean rewards as they are: all exploration is in the policy.
        q, _, state = plan_for_rewards(belief, problem, lambda reward: reward, state, "EpsilonGreedyMean")
        return EpsilonGreedy(q, self.epsilon, problem.space.legal), state


@runtime_checkable
class InformedBelief(CanMean, CanInform, Protocol):
    """A posterior with a mean MDP and the expected information of a transition."""


class InformationGain(eqx.Module):
    """Greedy for the optimal plan of the mean MDP with rewards: mean reward + scale * expected information [INFO11].

    Where rewards are known it is regularised information-directed sampling [IDS22], number for number: with Dirichlet
    rows of concentrations c, total c0, mean p, the information of a pair, E_theta KL(P_theta || Pbar), is
    sum_j p_j (psi(c_j + 1) - psi(c0 + 1) - log p_j). That paper has rows of their own for every step of an episode.
    Where steps share rows, the values of the mean MDP are not E[V], and information is counted anew at every visit
    inside an episode, so it is overestimated.

    Args:
        scale: units of the reward per nat, zero or greater (a leaf of the pytree: parameter sweeps can vmap over it).
        rewards: False: exploration only, the information alone is planned for.
        replan: as in `PSRL`.

    Raises:
        ValueError, TypeError: `scale` is negative or not finite; `rewards` is no bool.
    """

    scale: float | Array = 1.0
    rewards: bool = eqx.field(default=True, static=True, kw_only=True)
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule, kw_only=True)

    def __check_init__(self) -> None:
        check_not_negative("scale", self.scale)
        check_bool("rewards", self.rewards)

    def init(self, key: PRNGKeyArray, problem: Problem) -> Solution | None:
        """No plan yet; the state is the last plan, for a warm start (none is needed for episodes).

        Raises:
            ValueError: an objective other than `Discounted` and `Episodic`.
        """
        del key
        return blank_plan(problem, "InformationGain")

    def check_belief(self, belief: object) -> None:
        """Refuse a belief without a mean or without `expected_information`.

        Raises:
            TypeError: an ability is missing.
        """
        require_ability(belief, CanMean, "InformationGain")
        require_ability(belief, CanInform, "InformationGain", instead="CountBonus")

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: Solution | None, belief: InformedBelief
    ) -> tuple[Greedy, Solution | None]:
        """Greedy for the plan; its q is reward and information together. No random number is used.

        Raises:
            TypeError: as `check_belief`.
        """
        del key
        self.check_belief(belief)
        rewards = partial(self._add_information, belief=belief)
        q, best, state = plan_for_rewards(belief, problem, rewards, state, "InformationGain")
        return Greedy(q, problem.space.legal, best=best), state

    def _add_information(self, reward: Float[Array, "*H S A"], belief: InformedBelief) -> Float[Array, "*H S A"]:
        # Nats times units of reward per nat: from here on information is a reward like any other.
        information = (jnp.asarray(self.scale) * belief.expected_information()).astype(reward.dtype)
        return reward + information if self.rewards else information


def RegularisedIDS(scale: float | Array = 1.0, *, replan: ReplanLike | None = None) -> InformationGain:
    """argmax over policies of E[V] + scale * information, by dynamic programming in the mean MDP [IDS22].

    The reward of a pair is its mean reward + scale * E_theta KL(P_theta || Pbar). With Dirichlet rows of concentrations
    c, total c0, mean p: sum_j p_j (psi(c_j + 1) - psi(c0 + 1) - log p_j). That is the expected information of one
    transition about its row, so this is `InformationGain(scale)` under the name of the paper, number for number. The
    paper's problem is episodes in which every step has its own rows, independent under the posterior, and rewards
    are known: there the values of the mean MDP are E[V], and the sum over an episode is the information that it
    gives. Beyond it:

    * Rows that steps share: the values of the mean MDP are not E[V], and information is counted anew at every visit
      inside an episode, so it is overestimated.
    * Unknown rewards: their posterior mean is planned for. What a transition tells about its mean reward is not in the
      information: the bonus is that of the row alone, and zero where the row is known.

    Args:
        scale: lambda, units of the reward per nat, zero or greater (a leaf of the pytree: parameter sweeps can vmap
            over it). That of the theory depends on the number of episodes; 1 is our choice.
        replan: as in `PSRL`.

    Raises:
        ValueError: `scale` is negative or not finite.
    """
    return InformationGain(scale, replan=as_rule(replan))
