"""The uncertainty Bellman equation whose solution is the posterior variance itself; two agents that plan with it.

[EUBE23] Luis, Bottero, Vinogradska, Berkenkamp and Peters, *Model-Based Uncertainty in Value Functions*, AISTATS 2023:
the local term, in the form with the least Monte Carlo variance, is estimated from sampled MDPs. `ExactUBE` is Thompson
sampling from it. `VarianceOptimism` is the rule of section 5, optimistic policy iteration: greedy for mean + scale * sd
of the values of the policy itself, compared there for three variances, that of the paper, the upper bound of [POMBU20],
and the variance over an ensemble of sampled MDPs.
"""

from functools import partial
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bayes_mdp.agents.common.mean_model import effective_horizon
from bayes_mdp.agents.common.replan import ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import GaussianThompson, Greedy
from bayes_mdp.agents.common.variance_equation import (
    Backup,
    ValueUncertainty,
    combine,
    discount_of,
    next_values,
    only_legal,
    over_components,
    require_variances,
    revisit_reason,
    solve_variance,
)
from bayes_mdp.agents.value_uncertainty.gaussian_thompson import UsesDraws, check_noise, gaussian_policy
from bayes_mdp.agents.value_uncertainty.monte_carlo import check_draws, chunk_size, over_draws
from bayes_mdp.mdp import (
    MDP,
    CanMean,
    CanSample,
    Discounted,
    HasVariances,
    Objective,
    PolicyOrLabels,
    Problem,
    SparseMDP,
)
from bayes_mdp.mdp.abilities import can_split, require_ability
from bayes_mdp.mdp.labels import labels_of, policy_of
from bayes_mdp.mdp.protocols import NamesSharedParameters
from bayes_mdp.mdp.validity import Validity
from bayes_mdp.numerics.fusion import materialise
from bayes_mdp.numerics.products import einsum, tensordot
from bayes_mdp.planning import evaluate
from bayes_mdp.planning.linear_systems import solve_chain
from bayes_mdp.planning.policy_arrays import action_values, follow, policy_probs
from bayes_mdp.planning.solution import PolicyEvaluation, Solution, best_action
from bayes_mdp.planning.solve import check_problem
from bayes_mdp.utils.typing import IntScalar
from bayes_mdp.utils.validation import check_bool, check_count, check_name, check_not_negative

_WHO = "exact.exact_ube"

Parts: TypeAlias = tuple[Float[Array, "*H S A"], Float[Array, "*H S A"], Float[Array, "*H S"]]
"""Of one sampled MDP: (r + g p . Vbar - Qbar)^2, g^2 V_{p, pi}[Q^p - Qbar], V_pi[Q^p - Qbar]."""


@runtime_checkable
class SampledMean(CanSample, CanMean, Protocol):
    """A belief that can sample MDPs and has a mean."""


def exact_ube(
    key: PRNGKeyArray,
    posterior: SampledMean,
    policy: PolicyOrLabels,
    objective: Objective,
    *,
    num_draws: int = 1000,
    clip: bool = False,
) -> ValueUncertainty:
    """Posterior variance of the values of a policy as the solution of an uncertainty Bellman equation.

        w(s, a) = Var[r + g p . Vbar] - g^2 E[ V_{p, pi}[Q^p - Qbar] ],    U = w + g^2 sum pbar pi U

    over sampled MDPs p of the belief: Qbar, Vbar, pbar are those of the mean MDP, V_{p, pi}[f] is the variance of
    f(s', a') under s' ~ p, a' ~ pi [EUBE23]. Without the last term it is the upper bound of [POMBU20]. The
    identity needs every row to be independent of the values that it leads to: independent rows, no unknown pair
    visited twice; otherwise U is a heuristic (the reason is in `validity`). A mixture is taken component by component,
    `num_draws` draws each, then by total variance.

    Host-side: compiles itself; draws are evaluated in chunks.

    Args:
        key: a typed key.
        posterior: any that can sample and has a mean.
        policy: Int[*H S], Float[*H S A], a `Policy`, as in `planning.evaluate`, or by the posterior's labels.
        objective: `Discounted`, `Episodic` or `FirstExit`.
        num_draws: 2 or more.
        clip: raise negative w to zero: no longer exact (never smaller), but a variance of every pair even from few
            draws. Without it only the solution U is kept from falling below zero.

    Raises:
        ValueError, TypeError: as `planning.evaluate`; `AverageReward`; an ability is missing; the variance of a mean
            reward does not exist.
    """
    # All that can be refused is refused before an MDP is drawn.
    check_draws(key, posterior, num_draws, _WHO)
    require_ability(posterior, CanMean, _WHO)
    require_variances(posterior)
    discount_of(objective)
    mean = posterior.mean_mdp()
    check_problem(mean, objective)
    # Labels and `Policy` objects become arrays.
    array = policy_of(policy, labels_of(posterior), objective)
    probs = policy_probs(array, mean, horizon=objective.horizon)
    validity = _validity(posterior, mean, probs, objective, f"{num_draws} draws", clip)
    # Sampled MDPs are evaluated in chunks that fit in memory; only sums are kept.
    chunk = chunk_size(_one_of(posterior), num_draws)
    # One key for all components: they see the same random numbers.
    parts = _solve_components(key, posterior, probs, objective, num_draws, chunk=chunk, clip=clip)
    return combine(posterior, parts, validity)


def _one_of(posterior: SampledMean) -> SampledMean:
    """The belief, or the first component of a mixture."""
    return jax.tree.map(lambda x: x[0], posterior.components) if can_split(posterior) else posterior


def _validity(
    posterior: SampledMean,
    mean: MDP | SparseMDP,
    probs: Float[Array, "*H S A"],
    objective: Objective,
    draws: str,
    clip: bool,
) -> Validity:
    rows = posterior.components if can_split(posterior) else posterior
    # Draws alone do not show whether rows are independent.
    if not isinstance(rows, HasVariances):
        return Validity("heuristic", "whether its rows are independent is not known")
    if not rows.independent_rows:
        shared = posterior.shared_parameters if isinstance(posterior, NamesSharedParameters) else None
        return Validity("heuristic", f"rows are not independent ({shared or 'which ones is not known'})")
    # The theorem of [EUBE23] needs an acyclic chain: each unknown pair is met once.
    reason = revisit_reason(posterior, mean, probs, objective)
    if reason is not None:
        return Validity("heuristic", reason)
    known = "independent rows, no unknown pair is visited again"
    if clip:
        clipped = "negative local terms raised to zero"
        return Validity("upper bound", f"{known}; {clipped}, up to Monte Carlo error: {draws}")
    return Validity("exact", f"{known}; up to Monte Carlo error: {draws}")


@partial(jax.jit, static_argnames=("chunk", "clip"))
def _solve_components(
    key: PRNGKeyArray,
    posterior: SampledMean,
    probs: Float[Array, "*H S A"],
    objective: Objective,
    num_draws: IntScalar,
    *,
    chunk: int,
    clip: bool,
) -> Backup:
    settings = _Settings(num_draws, chunk, clip)
    return over_components(lambda rows: _back_up(key, rows, probs, objective, settings), posterior)


class _Settings(NamedTuple):
    """Number of sampled MDPs in total and per chunk, and whether local terms are clipped."""

    num_draws: IntScalar
    chunk: int
    clip: bool


def _back_up(
    key: PRNGKeyArray, posterior: SampledMean, probs: Float[Array, "*H S A"], objective: Objective, settings: _Settings
) -> Backup:
    """Mean values, w and U of a posterior that is no mixture."""
    # Qbar, Vbar: for independent rows that are met once they are the posterior means of the values.
    mean = posterior.mean_mdp()
    value = evaluate(mean, probs, objective)
    return _equation(key, posterior, mean, value, probs, objective, settings)


def _equation(
    key: PRNGKeyArray,
    posterior: SampledMean,
    mean: MDP | SparseMDP,
    value: PolicyEvaluation | Solution,
    probs: Float[Array, "*H S A"],
    objective: Objective,
    settings: _Settings,
) -> Backup:
    """w from the means over sampled MDPs, and U.

    Args:
        key: of the sampled MDPs.
        posterior: no mixture.
        mean: its mean MDP.
        value: values of the policy in the mean MDP.
        probs, objective, how: as in `_back_up`.
    """
    terms = _terms(key, posterior, value, probs, objective, settings)
    # w = Var[r + g p . Vbar] - g^2 E V_{p, pi}[Q^p - Qbar]: the second part is counted again further down the path.
    local = only_legal(terms.one_step - terms.downstream, mean)
    local = jnp.maximum(local, 0.0) if settings.clip else local
    variance = solve_variance(mean, local, probs, objective)
    converged = variance.converged & ~terms.unfinished
    # Var V = E[(sum pi delta)^2] = sum pi U - E V_pi[delta]: the last part is zero for a deterministic policy.
    v = jnp.maximum(variance.v - terms.of_actions, 0.0)
    # Masked by hand: the other fields of the solution stay.
    fields = (v, converged, variance.gap + terms.gap)
    variance = eqx.tree_at(lambda e: (e.v, e.converged, e.gap), variance, fields)
    whole = PolicyEvaluation(value.q, value.v, value.gain, value.converged, value.iterations, value.gap)
    return Backup(whole, local, variance)


class Terms(NamedTuple):
    """What is summed over sampled MDPs; moments in squared units of the value.

    Args:
        number: number of sampled MDPs.
        one_step, downstream: the two parts of w, variances.
        of_actions: V_pi[Q^p - Qbar].
        unfinished: whether an evaluation did not converge.
        iterations: the most of an evaluation.
        gap: the largest of an evaluation.
    """

    number: Float[Array, ""]
    one_step: Float[Array, "*H S A"]
    downstream: Float[Array, "*H S A"]
    of_actions: Float[Array, "*H S"]
    unfinished: Bool[Array, ""]
    iterations: Int[Array, ""]
    gap: Float[Array, ""]


def _terms(
    key: PRNGKeyArray,
    posterior: SampledMean,
    value: PolicyEvaluation | Solution,
    probs: Float[Array, "*H S A"],
    objective: Objective,
    settings: _Settings,
) -> Terms:
    """E[(r + g p . Vbar - Qbar)^2], g^2 E[V_{p, pi}[Q^p - Qbar]] and E[V_pi[Q^p - Qbar]].

    Qbar is the mean of r + g p . Vbar whatever the belief, so the variance is a mean square: no degree of freedom is
    lost to a mean of the draws.
    """

    def one(mdp: MDP | SparseMDP) -> tuple[Parts, PolicyEvaluation]:
        # The form of [EUBE23] with the least Monte Carlo variance: differences to the mean values.
        # The sampled MDP's own values of the policy.
        evaluation = evaluate(mdp, probs, objective)
        error = one_step_error(mdp, value.q, value.v, objective)
        deviation = jnp.where(jnp.isfinite(value.q), evaluation.q - value.q, 0.0)
        # V_pi[delta] = E_pi[delta^2] - (E_pi[delta])^2, delta = Q^p - Qbar.
        mean, square = (probs * deviation).sum(-1), (probs * deviation**2).sum(-1)
        return (error**2, next_pair_variance(mdp, mean, square, objective), square - mean**2), evaluation

    def statistics(draws: MDP | SparseMDP, real: Bool[Array, " B"]) -> Terms:
        parts, evaluation = jax.vmap(one)(draws)
        # The last chunk is padded: only real draws count.
        count = jnp.sum(real).astype(evaluation.gap.dtype)
        one_step, downstream, of_actions = (tensordot(real / count, x, axes=1) for x in parts)
        gap = jnp.max(jnp.where(real, evaluation.gap, 0.0))
        unfinished = jnp.any(real & ~evaluation.converged)
        return Terms(count, one_step, downstream, of_actions, unfinished, jnp.max(evaluation.iterations), gap)

    return over_draws(statistics, _merge, key, posterior, settings.num_draws, settings.chunk)


def one_step_error(
    mdp: MDP | SparseMDP, q: Float[Array, "*H S A"], v: Float[Array, "*H S"], objective: Objective
) -> Float[Array, "*H S A"]:
    """r + g p . Vbar - Qbar of a sampled MDP, in units of the reward, zero where illegal.

    The mean of its square is Var[r + g p . Vbar].

    Args:
        mdp: r and p.
        q, v: Qbar and Vbar, values of a policy in the mean MDP.
        objective: `Discounted`, `Episodic` or `FirstExit`.
    """
    # r + g p . Vbar, the target of the sampled rows at the mean values.
    backed_up = mdp.reward + discount_of(objective) * _expected(mdp, next_values(v, objective))
    return jnp.where(jnp.isfinite(q), backed_up - q, 0.0)


def next_pair_variance(
    mdp: MDP | SparseMDP, mean: Float[Array, "*H S"], square: Float[Array, "*H S"], objective: Objective
) -> Float[Array, "*H S A"]:
    """g^2 V_{p, pi}[f] = g^2 (E_p[E_pi[f^2]] - (E_p[E_pi[f]])^2), f a function of the next pair, in any unit.

    Args:
        mdp: p.
        mean, square: E_pi[f] and E_pi[f^2] of every state, in any unit and its square.
        objective: `Discounted`, `Episodic` or `FirstExit`.
    """
    first, second = next_values(mean, objective), next_values(square, objective)
    # Law of total variance over the next pair: E f^2 - (E f)^2.
    return jnp.asarray(discount_of(objective) ** 2 * (_expected(mdp, second) - _expected(mdp, first) ** 2))


def _merge(one: Terms, other: Terms) -> Terms:
    """Means over two chunks together: weighted by their numbers, updated so that an empty `one` is neutral."""
    # Chan, Golub and LeVeque's update for means.
    # An empty chunk has share zero: nothing changes.
    share = other.number / (one.number + other.number)
    return Terms(
        one.number + other.number,
        one.one_step + share * (other.one_step - one.one_step),
        one.downstream + share * (other.downstream - one.downstream),
        one.of_actions + share * (other.of_actions - one.of_actions),
        one.unfinished | other.unfinished,
        jnp.maximum(one.iterations, other.iterations),
        jnp.maximum(one.gap, other.gap),
    )


def _expected(mdp: MDP | SparseMDP, values: Float[Array, "*H S"]) -> Float[Array, "*H S A"]:
    """sum_s' P(s' | s, a) values(s'); an end contributes nothing."""
    return einsum("...saz,...z->...sa", mdp.transition_probs, values)


class ExactUBE(UsesDraws):
    """Greedy for mean + scale * sd * noise: the mean of the posterior-mean MDP, the variance of `exact_ube`.

    From [EUBE23].

    Args:
        num_draws: 2 or more, for every plan.
        clip: raise negative local terms to zero. With few draws many are negative by chance, and their pairs would lose
            their noise.
        scale, noise, replan: as in `ThompsonAgent`.

    Raises:
        ValueError, TypeError: a number of draws below 2; `scale` is negative or not finite; another noise.
    """

    num_draws: int = eqx.field(default=30, static=True)
    clip: bool = eqx.field(default=True, static=True)
    scale: float | Array = 1.0
    noise: str = eqx.field(default="per_plan", static=True)
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule)

    def __check_init__(self) -> None:
        check_noise(self.noise)
        check_count("num_draws", self.num_draws, 2)
        check_bool("clip", self.clip)

    def policy(
        self, key: PRNGKeyArray, problem: Problem, belief: CanMean, mean: MDP | SparseMDP, plan: Solution
    ) -> GaussianThompson:
        """Thompson sampling with the variance over sampled MDPs."""
        assert isinstance(belief, SampledMean)  # as `check_belief` checks
        key_draws, key_noise = jax.random.split(key)
        # Draws and exploration noise from two keys.
        q, variance = self._moments(key_draws, belief, mean, plan, problem.objective)
        return gaussian_policy(key_noise, q, self.scale * jnp.sqrt(variance), problem, self.noise)

    def _moments(
        self, key: PRNGKeyArray, belief: SampledMean, mean: MDP | SparseMDP, plan: Solution, objective: Objective
    ) -> tuple[Float[Array, "*H S A"], Float[Array, "*H S A"]]:
        settings = _Settings(self.num_draws, chunk_size(_one_of(belief), self.num_draws), self.clip)
        # The plan is optimal in the mean MDP; its values are the means.
        probs = policy_probs(plan.policy, mean, horizon=objective.horizon)
        if can_split(belief):
            parts = over_components(lambda rows: _back_up(key, rows, probs, objective, settings), belief)
            answer = combine(belief, parts, Validity("heuristic", "not examined"))
            return answer.q_mean, answer.q_variance
        return plan.q, _equation(key, belief, mean, plan, probs, objective, settings).variance.q


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
        # The same draws in every iteration: else the policy could never settle.
        draws = materialise(belief.sample(key_draws, (self.num_draws,)))

        def improve(loop: Loop) -> Loop:
            policy, _, _, count = loop
            q, variance = policy_moments(draws, mean, policy, objective, variance=self.variance, clip=self.clip)
            # pi_{k+1} = argmax Qbar^k + scale sqrt(U^k), both of pi_k ([EUBE23] section 5)
            optimistic = (q + self.scale * jnp.sqrt(variance)).astype(q.dtype)
            better = _improve_policy(optimistic, policy)
            return better, optimistic, jnp.all(better == policy), count + 1

        # pi_0 at random: no action is favoured before the first evaluation.
        first = _random_policy(key_policy, problem, mean)
        blank = jnp.zeros((*first.shape, mean.n_actions), mean.reward.dtype)
        # Until the policy repeats itself, or the evaluations are used up.
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
    # Qbar and Vbar of this policy: values in the mean MDP, not the mean of sampled values.
    q, v = _values(mean, policy, objective)
    legal = jnp.isfinite(q)
    if variance == "ensemble":
        # Var over the ensemble of values, the upper layer's alternative ([EUBE23], section 5).
        drawn = jax.vmap(lambda mdp: _values(mdp, policy, objective)[0])(draws)
        return q, jnp.var(jnp.where(legal, drawn, 0.0), axis=0, ddof=1)

    def local(mdp: MDP | SparseMDP) -> Pairs:
        # Var[r + g p . Vbar] as a mean square around its mean, which is Qbar.
        one_step = one_step_error(mdp, q, v, objective) ** 2
        # Without the second part it is the upper bound of [POMBU20].
        if variance == "bound":
            return one_step
        # The policy is deterministic: E_pi[f] is f at its action, and E_pi[f^2] the square of that.
        deviation = _values(mdp, policy, objective)[1] - v
        return one_step - next_pair_variance(mdp, deviation, deviation**2, objective)

    added = only_legal(jax.vmap(local)(draws).mean(axis=0), mean)
    # Monte Carlo may make a local term negative; a variance is not.
    added = jnp.maximum(added, 0.0) if clip else added
    return q, _propagate(mean, added, policy, objective)


def _values(mdp: MDP | SparseMDP, policy: Int[Array, "*H S"], objective: Objective) -> tuple[Pairs, States]:
    """Values of pairs and states: by `evaluate` in episodes, else by one linear system, without its bound on errors."""
    if not isinstance(objective, Discounted):
        answer = evaluate(mdp, policy, objective)
        return answer.q, answer.v
    # v = r_pi + g P_pi v, for all draws at once under `vmap`; nothing here needs the bound of `evaluate`.
    chain = follow(mdp, policy)
    rate = jnp.asarray(objective.discount, mdp.reward.dtype)
    v = solve_chain(chain, rate, chain.reward[:, 0], jnp.zeros(mdp.n_states, mdp.reward.dtype))
    return action_values(mdp, v, rate), v


def _propagate(mean: MDP | SparseMDP, local: Pairs, policy: Int[Array, "*H S"], objective: Objective) -> Pairs:
    """U = local + g^2 sum pbar pi U, nowhere negative."""
    if not isinstance(objective, Discounted):
        return solve_variance(mean, local, policy, objective).q
    # A Bellman equation with rewards `local` and discount g^2.
    q, _ = _values(eqx.tree_at(lambda mdp: mdp.reward, mean, local), policy, Discounted(objective.discount**2))
    return jnp.maximum(only_legal(q, mean), 0.0)


def _improve_policy(q: Pairs, policy: Int[Array, "*H S"]) -> Int[Array, "*H S"]:
    """The best actions, with those of `policy` where they are as good to within rounding."""
    # Ties that rounding breaks now one way, now the other would keep the iteration going.
    largest = jnp.max(q, -1)
    unit = float(jnp.finfo(q.dtype).eps) * jnp.max(jnp.abs(largest))
    current = jnp.take_along_axis(q, policy[..., None], -1)[..., 0]
    return jnp.where(current >= largest - 8 * unit, policy, best_action(q)).astype(policy.dtype)


def _random_policy(key: PRNGKeyArray, problem: Problem, mean: MDP | SparseMDP) -> Int[Array, "*H S"]:
    """A legal action of every state, and step where the plan has steps, drawn uniformly."""
    horizon = problem.objective.horizon
    shape = (mean.n_states,) if horizon is None else (horizon, mean.n_states)
    legal = jnp.ones((mean.n_states, mean.n_actions), bool) if mean.legal is None else jnp.asarray(mean.legal)
    # Uniform over the legal actions: equal logits.
    return jax.random.categorical(key, jnp.where(legal, 0.0, -jnp.inf), shape=shape).astype(jnp.int32)
