"""BOLT: Bayesian optimistic local transitions.

Araya-Lopez, Thomas and Buffet, *Near-Optimal BRL using Optimistic Local Transitions*, ICML 2012 [BOLT12].
"""

import equinox as eqx
import jax.numpy as jnp
from jax import lax, nn
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bayes_mdp.agents.common.mean_model import MeanModel, mean_model
from bayes_mdp.agents.common.optimism_terms import (
    NeedsConcentrations,
    effective_horizon,
    row_variance_factor,
    unknown_reward,
)
from bayes_mdp.agents.common.replan import ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import Greedy
from bayes_mdp.agents.common.variance_equation import discount_of
from bayes_mdp.agents.optimism.counted_belief import CountedBelief
from bayes_mdp.mdp import MDP, Discounted, Episodic, Problem, SparseMDP
from bayes_mdp.planning import solve
from bayes_mdp.planning.solution import Solution
from bayes_mdp.utils.typing import AnyArray, IntScalar, RealScalar
from bayes_mdp.utils.validation import check_finite, check_not_negative, is_concrete

Pairs = Float[Array, "*H S A"]
Successors = Int[Array, "S A"]
Support = Bool[AnyArray, "*G S A O"] | None
"""The possible outcomes of every pair; None: all."""
Carry = tuple[Solution, Successors, Bool[Array, ""], Int[Array, ""]]
"""Of the rounds: the plan, the imaginary successors of all pairs, whether the last round changed one, rounds made."""
_MOST_ROUNDS = 50  # of planning and choosing successors; a handful is usual


def imagined_share(variance_factor: Pairs, eta: RealScalar) -> Pairs:
    """eta / (c0 + eta), the weight of `eta` imaginary transitions in a row; zero where the row is known.

    ptilde = (c + eta e_s*) / (c0 + eta) = (1 - share) pbar + share e_s*. `variance_factor` is 1 / (c0 + 1).
    """
    # c0 = (1 - f) / f: multiplied through by f, so that f = 0 (c0 infinite) gives 0.
    weight = variance_factor * eta
    return weight / (1.0 - variance_factor + weight)


def episodic_values(
    model: MeanModel, share: Pairs, *, support: Support = None, ends: bool = False
) -> Float[Array, "H S A"]:
    """q of every step: r + max_s* ptilde . v, s* the imaginary successor of the largest value.

    The paper tries every successor; one maximum over the possible ones gives the same.

    Args:
        model: the mean model.
        share: as `imagined_share` gives it, [*H S A].
        support: Bool[*H S A O], the possible outcomes; None: all states and, where `ends`, the end.
        ends: whether episodes can end; the end is then a possible successor of value 0.
    """

    def backup(layer: IntScalar, values: Float[Array, " S"]) -> Float[Array, "S A"]:
        mean, best = model.expected_next(values, layer), jnp.max(_outcome_values(values, _at(support, layer), ends), -1)
        return model.at(model.reward, layer) + mean + model.at(share, layer) * (best - mean)

    return model.backward(backup)


def discounted_plan(
    mean: MDP | SparseMDP, share: Pairs, discount: RealScalar, *, support: Support = None, start: Solution | None = None
) -> Solution:
    """The optimal plan where every pair also chooses its imaginary successor: plans and choices in turn until stable.

    Each turn improves the values, which are then those of the optimality equation of BOLT. Traceable.

    Args:
        mean: the mean MDP, stationary.
        share: as `imagined_share` gives it, [S A].
        discount: a number.
        support: as in `episodic_values`, [S A O].
        start: a plan to start from; None: a blank one.
    """
    mdp = mean.to_dense() if isinstance(mean, SparseMDP) else mean
    ends, size = mdp.end_probs is not None, mdp.reward.shape
    start = Solution.blank(size, legal=mdp.legal, dtype=mdp.reward.dtype) if start is None else start

    # Given the successors the model is an ordinary MDP; given its values each pair picks the best outcome.
    def choice(solution: Solution) -> Successors:
        return jnp.broadcast_to(jnp.argmax(_outcome_values(solution.v, support, ends), -1), size)

    def round_(carry: Carry) -> Carry:
        solution, successor, _, number = carry
        solution = solve(_imagine(mdp, share, successor), Discounted(discount), start=solution)
        improved = choice(solution)
        return solution, improved, jnp.any(improved != successor), number + 1

    first = (start, choice(start), jnp.array(True), jnp.int32(0))
    return lax.while_loop(lambda carry: carry[2] & (carry[3] < _MOST_ROUNDS), round_, first)[0]


def _imagine(mdp: MDP, share: Pairs, successor: Successors) -> MDP:
    """The mean MDP with its rows moved towards one outcome of every pair (index S: the end)."""
    rows = nn.one_hot(successor, mdp.n_states, dtype=mdp.transition_probs.dtype)
    probs = (1.0 - share)[..., None] * mdp.transition_probs + share[..., None] * rows
    ends = None if mdp.end_probs is None else (1.0 - share) * mdp.end_probs + share * (successor == mdp.n_states)
    return MDP(probs, mdp.reward, end_probs=ends, legal=mdp.legal, initial=mdp.initial)


def _outcome_values(values: Float[Array, " S"], support: Support, ends: bool) -> Float[Array, "*pairs O"]:
    """Values of the outcomes, -inf where one is impossible; an end has value 0."""
    outcomes = jnp.append(values, 0.0) if ends else values
    return outcomes if support is None else jnp.where(support, outcomes, -jnp.inf)


def _at(support: Support, layer: IntScalar) -> Bool[AnyArray, "S A O"] | None:
    return support if support is None or support.ndim == 3 else jnp.asarray(support)[layer]


class BOLT(NeedsConcentrations):
    """Greedy for the plan in which every pair has `eta` imaginary transitions to its best successor [BOLT12].

    Q(s, a) = r(s, a) + discount max_s* ptilde(s, a) . V with ptilde of `imagined_share` and posterior means r, pbar:
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
        if self.max_reward is not None and is_concrete(self.max_reward):
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
        reward = self._reward(belief, reward, eta).astype(reward.dtype)
        share = imagined_share(row_variance_factor(belief, "BOLT"), eta).astype(reward.dtype)
        if isinstance(objective, Episodic):
            model = eqx.tree_at(lambda m: m.reward, mean_model(belief, objective, "BOLT"), reward)
            return Greedy(
                episodic_values(model, share, support=space.support_mask(), ends=space.ends), space.legal
            ), None
        mean = eqx.tree_at(lambda m: m.reward, belief.mean_mdp(), reward)
        solution = discounted_plan(mean, share, discount_of(objective), support=space.support_mask(), start=state)
        return Greedy(solution.q, space.legal, best=solution.policy), solution

    def _reward(self, belief: CountedBelief, reward: Pairs, eta: RealScalar) -> Pairs:
        """Mean rewards, with the imaginary ones where the mean is unknown."""
        if self.max_reward is None:
            return reward
        # eta imaginary rewards of `max_reward` beside n observed ones: share eta / (n + eta).
        share = jnp.where(unknown_reward(belief), eta / jnp.maximum(belief.visit_counts() + eta, 1e-30), 0.0)
        return reward + share * jnp.maximum(self.max_reward - reward, 0.0)
