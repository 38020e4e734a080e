"""Optimistic policy iteration: greedy for mean + scale * sd of the values of the policy itself.

[EUBE23] Luis, Bottero, Vinogradska, Berkenkamp and Peters, *Model-Based Uncertainty in Value Functions*, AISTATS 2023,
section 5, where the rule is compared for three variances: that of the paper, the upper bound of [POMBU20], and the
variance over an ensemble of sampled MDPs.
"""

from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bayes_mdp.agents.common.optimism_terms import effective_horizon
from bayes_mdp.agents.common.replan import ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import Greedy
from bayes_mdp.agents.common.variance_equation import horizon_of, only_legal, require_variances, solve_variance
from bayes_mdp.agents.value_uncertainty.exact_ube import SampledMean, next_pair_variance, one_step_error
from bayes_mdp.mdp import MDP, CanMean, CanSample, Discounted, Objective, Problem, SparseMDP
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.numerics.fusion import computed_once
from bayes_mdp.planning import evaluate
from bayes_mdp.planning.linear.systems import solve_chain
from bayes_mdp.planning.policy_chain import action_values, follow
from bayes_mdp.planning.solution import best_action
from bayes_mdp.utils.validation import check_bool, check_count, check_name, check_not_negative

VARIANCES = ("exact", "bound", "ensemble")

Pairs = Float[Array, "*H S A"]
States = Float[Array, "*H S"]
Loop: TypeAlias = tuple[Int[Array, "*H S"], Pairs, Bool[Array, ""], Int[Array, ""]]
"""Policy, optimistic values of the policy before it, whether the two are the same, number of evaluations."""


class VarianceOptimism(eqx.Module):
    """Policy iteration with optimistic values: mean + scale * sd, both of the policy that is evaluated.

    pi_0 is drawn uniformly among the legal actions, and

        pi_{k+1}(s) = argmax_a Qbar^k(s, a) + scale * sqrt(U^k(s, a)),

    Qbar^k the values of pi_k in the mean MDP, U^k a variance of its values over `num_draws` sampled MDPs, which are
    drawn once a plan. It ends when the policy stays the same, which nothing guarantees, or after `num_iterations`
    evaluations. An action that is as good as the best one to within rounding is kept. A mixture counts as one belief:
    its mean MDP, MDPs sampled from it.

    Args:
        variance: U. "exact": the solution of the uncertainty Bellman equation of `exact_ube`, the posterior variance
            itself where its theorem holds; "bound": the same equation without its last term, an upper bound there
            [POMBU20]; "ensemble": the unbiased variance of the values in the sampled MDPs.
        scale: standard deviations that are added; zero or greater (an array leaf, so that sweeps vmap over it).
        num_draws: 2 or more, for every plan.
        clip: of "exact": raise negative local terms to zero, see `ExactUBE`.
        num_iterations: the most evaluations of a plan; 40 in the published program of [EUBE23].
        replan: as in `PSRL`.

    Raises:
        ValueError, TypeError: another variance; `scale` is negative or not finite; a number of draws below 2 or of
            iterations below 1.
    """

    variance: str = eqx.field(default="exact", static=True)
    scale: float | Array = 1.0
    num_draws: int = eqx.field(default=30, static=True)
    clip: bool = eqx.field(default=True, static=True)
    num_iterations: int = eqx.field(default=40, static=True)
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule)

    def __check_init__(self) -> None:
        check_name("variance", self.variance, VARIANCES)
        check_not_negative("scale", self.scale)
        check_count("num_draws", self.num_draws, 2)
        check_bool("clip", self.clip)
        check_count("num_iterations", self.num_iterations)

    def check_belief(self, belief: object) -> None:
        """Refuse a belief that a plan cannot use (inside a trace: by its abilities alone).

        Raises:
            ValueError: a variance of a mean reward does not exist. TypeError: the belief cannot sample, or has no mean.
        """
        require_ability(belief, CanSample, "VarianceOptimism")
        require_ability(belief, CanMean, "VarianceOptimism")
        require_variances(belief)

    def init(self, key: PRNGKeyArray, problem: Problem) -> None:
        """No state.

        Raises:
            ValueError: an objective other than `Discounted` and `Episodic`.
        """
        del key
        effective_horizon(problem.objective, "VarianceOptimism")

    def plan(self, key: PRNGKeyArray, problem: Problem, state: None, belief: SampledMean) -> tuple[Greedy, None]:
        """Greedy for the optimistic values of the last policy that was evaluated.

        Raises:
            ValueError, TypeError: as `check_belief`.
        """
        del state
        self.check_belief(belief)
        key_draws, key_policy = jax.random.split(key)
        mean, objective = belief.mean_mdp(), problem.objective
        draws = computed_once(belief.sample(key_draws, (self.num_draws,)))

        def improve(loop: Loop) -> Loop:
            policy, _, _, count = loop
            q, variance = policy_moments(draws, mean, policy, objective, variance=self.variance, clip=self.clip)
            optimistic = (q + self.scale * jnp.sqrt(variance)).astype(q.dtype)
            better = _improved(optimistic, policy)
            return better, optimistic, jnp.all(better == policy), count + 1

        first = _random_policy(key_policy, problem, mean)
        blank = jnp.zeros((*first.shape, mean.n_actions), mean.reward.dtype)
        going = lambda loop: ~loop[2] & (loop[3] < self.num_iterations)  # noqa: E731
        start = first, blank, jnp.array(False), jnp.int32(0)
        policy, optimistic, _, _ = lax.while_loop(going, improve, start)
        return Greedy(optimistic, problem.space.legal, best=policy), None


def policy_moments(
    draws: MDP | SparseMDP,
    mean: MDP | SparseMDP,
    policy: Int[Array, "*H S"],
    objective: Objective,
    *,
    variance: str = "exact",
    clip: bool = True,
) -> tuple[Pairs, Pairs]:
    """(Qbar, U): values of a policy in the mean MDP, and a variance of its values over sampled MDPs. Traceable.

    Args:
        draws: sampled MDPs, with a leading axis on every array.
        mean: the mean MDP of their belief.
        policy: an action for every state (and step, under `Episodic`).
        objective: `Discounted` or `Episodic`.
        variance, clip: as in `VarianceOptimism`.

    Returns:
        [*H S A] both; U in squared units of the value, zero where the action is illegal.
    """
    q, v = _values(mean, policy, objective)
    legal = jnp.isfinite(q)
    if variance == "ensemble":
        drawn = jax.vmap(lambda mdp: _values(mdp, policy, objective)[0])(draws)
        return q, jnp.var(jnp.where(legal, drawn, 0.0), axis=0, ddof=1)

    def local(mdp: MDP | SparseMDP) -> Pairs:
        # Var[r + g p . Vbar] as a mean square around its mean, which is Qbar.
        one_step = one_step_error(mdp, q, v, objective) ** 2
        if variance == "bound":
            return one_step
        # The policy is deterministic: E_pi[f] is f at its action, and E_pi[f^2] the square of that.
        own = _values(mdp, policy, objective)[1] - v
        return one_step - next_pair_variance(mdp, own, own**2, objective)

    added = only_legal(jax.vmap(local)(draws).mean(axis=0), mean)
    added = jnp.maximum(added, 0.0) if clip else added
    return q, _propagated(mean, added, policy, objective)


def _values(mdp: MDP | SparseMDP, policy: Int[Array, "*H S"], objective: Objective) -> tuple[Pairs, States]:
    """Values of pairs and states: by `evaluate` in episodes, else by one linear system, without its bound on errors."""
    if not isinstance(objective, Discounted):
        answer = evaluate(mdp, policy, objective)
        return answer.q, answer.v
    chain = follow(mdp, policy)
    rate = jnp.asarray(objective.discount, mdp.reward.dtype)
    v = solve_chain(chain, rate, chain.reward[:, 0], jnp.zeros(mdp.n_states, mdp.reward.dtype))
    return action_values(mdp, v, rate), v


def _propagated(mean: MDP | SparseMDP, local: Pairs, policy: Int[Array, "*H S"], objective: Objective) -> Pairs:
    """U = local + g^2 sum pbar pi U, nowhere negative."""
    if not isinstance(objective, Discounted):
        return solve_variance(mean, local, policy, objective).q
    q, _ = _values(eqx.tree_at(lambda mdp: mdp.reward, mean, local), policy, Discounted(objective.discount**2))
    return jnp.maximum(only_legal(q, mean), 0.0)


def _improved(q: Pairs, policy: Int[Array, "*H S"]) -> Int[Array, "*H S"]:
    """The best actions, with those of `policy` where they are as good to within rounding."""
    largest = jnp.max(q, -1)
    unit = float(jnp.finfo(q.dtype).eps) * jnp.max(jnp.abs(largest))
    own = jnp.take_along_axis(q, policy[..., None], -1)[..., 0]
    return jnp.where(own >= largest - 8 * unit, policy, best_action(q)).astype(policy.dtype)


def _random_policy(key: PRNGKeyArray, problem: Problem, mean: MDP | SparseMDP) -> Int[Array, "*H S"]:
    """A legal action of every state, and step where the plan has steps, drawn uniformly."""
    horizon = horizon_of(problem.objective)
    shape = (mean.n_states,) if horizon is None else (horizon, mean.n_states)
    legal = jnp.ones((mean.n_states, mean.n_actions), bool) if mean.legal is None else jnp.asarray(mean.legal)
    return jax.random.categorical(key, jnp.where(legal, 0.0, -jnp.inf), shape=shape).astype(jnp.int32)
