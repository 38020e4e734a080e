"""Moment matching: the epistemic variance of Q from the first two moments of the Bellman equation, and of a return.

[BMRL19] Markou and Rasmussen, *Bayesian methods for efficient reinforcement learning in tabular problems*, 2019,
here in closed form. [XIONG22] Xiong, Shen, Cui, Fazel and Du, *Near-Optimal Randomized Exploration for Tabular Markov
Decision Processes*, NeurIPS 2022: one random number for all pairs of a plan.

The variance of a return has two parts, total = epistemic + aleatoric [BMRL19]: epistemic is the posterior variance of
the value, Var E[return | MDP] (more data would remove it), aleatoric the rest, E Var[return | MDP].
"""

from typing import TYPE_CHECKING, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bayes_mdp.agents.common.replan import ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import GaussianThompson
from bayes_mdp.agents.common.variance_equation import (
    Backup,
    Local,
    RowPosterior,
    ValueUncertainty,
    back_up,
    combine,
    compile_solver,
    discount_of,
    moments_of_plan,
    next_values,
    only_legal,
    over_components,
    problem_of,
    revisit_reason,
    reward_size,
    to_labelled_dataset,
    total_variance,
    validity,
)
from bayes_mdp.agents.value_uncertainty.gaussian_thompson import NOISES, UsesRows, check_noise, gaussian_policy
from bayes_mdp.mdp import (
    MDP,
    CanMean,
    Episodic,
    Objective,
    PolicyLike,
    PolicyOrLabels,
    Problem,
    SparseMDP,
    StateActionSpace,
)
from bayes_mdp.mdp.abilities import can_split, require_ability
from bayes_mdp.mdp.objectives import sum_of_discounts
from bayes_mdp.mdp.protocols import CanPredict
from bayes_mdp.mdp.validity import Validity
from bayes_mdp.planning.episodic import mean_over_actions
from bayes_mdp.planning.policy_arrays import action_values, policy_probs
from bayes_mdp.planning.solution import PolicyEvaluation, Solution
from bayes_mdp.utils.typing import RealScalar
from bayes_mdp.utils.validation import check_shape, is_concrete

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["value_variance"]
"""What the reference tells beside the agents: the mathematics of the paper."""


SINGLE = "single"
_SWEEPS = 500  # of a draw with one random number; information travels one step in each
_SETTLED = 1e-5  # of the largest value that a draw may have: smaller changes end its sweeps

Sweep: TypeAlias = tuple[Int[Array, ""], Float[Array, "*H S"], Bool[Array, ""]]
"""Sweeps done, the values, whether they still change."""

_BOUND = "independent rows, no unknown pair is visited again; E[p] in place of E[p^2] can only add"


def value_variance(posterior: CanMean, policy: PolicyOrLabels, objective: Objective) -> ValueUncertainty:
    """Variance of the values of a policy by moment matching ([BMRL19]).

    b(s, a) = Var_pbar[m + discount Vbar] / (c0 + 1) + pbar . v (m only where rewards depend on the outcome), and
    s2 = b + discount^2 sum pbar pi s2. An upper bound of the posterior variance where rows are independent and no
    unknown pair can be visited twice (E[p_i] >= E[p_i^2], and the variance of a mean over actions is at most the mean
    of the variances), much tighter than the uncertainty Bellman equation; on cycles it is too small, often by far.

    Pure and traceable (under a trace nothing can be proven of cycles). A mixture is taken component by component, then
    by total variance.

    Args:
        posterior: with independent rows, or a mixture of such.
        policy: Int[*H S], Float[*H S A], a `Policy`, or by the posterior's labels. A stochastic one by the
            equation for pairs, above.
        objective: `Discounted`, `Episodic` or `FirstExit`.

    Raises:
        ValueError: rows that share parameters other than in a mixture, a variance that does not exist, `AverageReward`;
            as `planning.evaluate`. TypeError: an ability is missing.
    """
    mean, policy = problem_of(posterior, policy, objective, "moment_matching.value_variance")
    parts = _parts(posterior, policy, objective)
    reason = revisit_reason(posterior, mean, policy, objective)
    return combine(posterior, parts, validity("upper bound", _BOUND, reason))


def _local(objective: Objective) -> Local:
    """b(s, a) of `value_variance`, for the values of a plan or of a policy."""
    return lambda posterior, value: _local_variance(posterior, value.v, objective)


def _local_variance(posterior: RowPosterior, v: Float[Array, "*H S"], objective: Objective) -> Float[Array, "*H S A"]:
    # b = Var_p[m + gamma Vbar] / (c0 + 1) + variance of the mean reward: the local terms of [BMRL19] in closed form.
    unknown_rows = jnp.asarray(posterior.transition_variance(next_values(v, objective), discount_of(objective)))
    return unknown_rows + posterior.expected_reward_variance()


@compile_solver
def _parts(posterior: CanMean, policy: PolicyLike, objective: Objective) -> Backup:
    # Component by component; `combine` adds what lies between their means.
    return over_components(lambda belief: back_up(belief, _local(objective), policy, objective), posterior)


class MomentMatching(UsesRows):
    """Greedy for mean + scale * sd * noise: the mean of the posterior-mean MDP, the variance of `value_variance`.

    Args:
        scale, replan: as in `ThompsonAgent`.
        noise: "per_plan", "per_step": as in `ThompsonAgent`. "single": one standard normal number z for all pairs of a
            plan, inside the Bellman equation ([XIONG22]; `single_draw`). Independent numbers cancel along a way of
            many steps, and the variance is that of the plan that is best in the mean MDP: where that plan does not
            feel a distant reward, no scale makes the agent look for it. With one number uncertainty adds up along the
            way. It costs up to 500 sweeps a plan.

    Raises:
        ValueError: `scale` is negative or not finite; another noise.
    """

    scale: float | Array = 1.0
    noise: str = eqx.field(default="per_plan", static=True)
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule)

    def __check_init__(self) -> None:
        check_noise(self.noise, (*NOISES, SINGLE))

    def policy(
        self, key: PRNGKeyArray, problem: Problem, belief: CanMean, mean: MDP | SparseMDP, plan: Solution
    ) -> GaussianThompson:
        """Thompson sampling with variance s2 of moment matching."""
        if self.noise == SINGLE:
            return self._single(key, problem, belief, plan)
        # Mean and variance of the plan's values, then one Gaussian draw of them.
        q, s2 = moments_of_plan(belief, _local(problem.objective), mean, plan, problem.objective)
        return gaussian_policy(key, q, self.scale * jnp.sqrt(s2), problem, self.noise)

    def _single(self, key: PRNGKeyArray, problem: Problem, belief: CanMean, plan: Solution) -> GaussianThompson:
        # The same number for every pair: errors do not cancel along a way.
        z = jax.random.normal(key, (), plan.v.dtype)
        mean, variance = single_draw(belief, self.scale * z, problem.objective, plan.v)
        noise = jnp.full(mean.shape, z)
        return GaussianThompson(mean, self.scale * jnp.sqrt(variance), noise=noise, legal=problem.space.legal)


def single_draw(
    belief: CanMean, z: RealScalar, objective: Objective, start: Float[Array, "*H S"]
) -> tuple[Float[Array, "*H S A"], Float[Array, "*H S A"]]:
    """Mean and local variance of q one step ahead of the values of a draw with one random number. Traceable.

    The draw solves v(s) = max_a q(s, a), q = m + discount pbar . v + z sqrt(b(v)), with b of `value_variance` at the
    drawn v: every error of a row or a reward has the same sign and size in standard deviations, so that they add up
    along a way. As in [XIONG22] values are clipped: to those of mean rewards that are all |z| standard deviations away.
    The equation is no contraction: it is swept until the values settle, 500 times at most, from `start` on; exact for
    episodes, by H sweeps.

    Args:
        belief: with independent rows, or a mixture of such (mean and total variance over its components, one step).
        z: the number, times the scale of the noise.
        objective: `Discounted` or `Episodic`.
        start: values to begin with.
    """

    def one_step(v: Float[Array, "*H S"]) -> tuple[Float[Array, "*H S A"], Float[Array, "*H S A"]]:
        parts = over_components(lambda each: _one_step(each, v, objective), belief)
        # Of a mixture the moments over its components.
        return total_variance(belief.weights, *parts) if can_split(belief) else parts

    # No reward of the draw is larger than this, so no value should be.
    size = jnp.max(over_components(lambda each: _largest_reward(each, z), belief))
    episodic = isinstance(objective, Episodic)
    top = size * sum_of_discounts(objective) if episodic else size / (1 - discount_of(objective))

    def body(loop: Sweep) -> Sweep:
        number, v, _ = loop
        # One z for all pairs: v = max_a (mean + z sd), swept until it stays.
        q, variance = one_step(v)
        new = jnp.clip(jnp.max(q + z * jnp.sqrt(variance), axis=-1), -top, top).astype(v.dtype)
        return number + 1, new, jnp.max(jnp.abs(new - v)) > _SETTLED * top

    limit = objective.horizon if episodic else _SWEEPS  # after sweep k the last k steps of an episode are right
    begin = jnp.int32(0), start, jnp.asarray(True)
    _, v, _ = jax.lax.while_loop(lambda loop: (loop[0] < limit) & loop[2], body, begin)
    return one_step(v)


def _one_step(
    belief: RowPosterior, v: Float[Array, "*H S"], objective: Objective
) -> tuple[Float[Array, "*H S A"], Float[Array, "*H S A"]]:
    """Mean and variance of q of one component, for given values."""
    mean = belief.mean_mdp()
    variance = only_legal(_local_variance(belief, v, objective), mean)
    if not isinstance(objective, Episodic):
        return action_values(mean, v, discount_of(objective)), variance
    steps = jnp.arange(objective.horizon)
    discount = discount_of(objective)
    # Every step backs up with its own rows and the values of the step after it.
    backup_at = jax.vmap(lambda h, after: action_values(mean.at(h), after, discount))
    return backup_at(steps, next_values(v, objective)), variance


def _largest_reward(belief: RowPosterior, z: RealScalar) -> Float[Array, ""]:
    mean = belief.mean_mdp()
    size = reward_size(belief, mean) + jnp.abs(z) * jnp.sqrt(belief.expected_reward_variance())
    return jnp.max(only_legal(size, mean))


Pairs = Float[Array, "*H S A"]
States = Float[Array, "*H S"]

_ONCE = "independent rows, each unknown one visited at most once: the return has the law that the mean MDP gives it"


class ReturnVariance(eqx.Module):
    """The variance of the return from every pair (`q_*`) and state (`v_*`), in squared units of the return.

    total = epistemic + aleatoric, entry by entry; zero where the action is illegal.

    Args:
        q_mean, v_mean: expected return, [*H S A] and [*H S]; -inf where the action is illegal.
        total, v_total: variance of the return when MDP, rewards, next states and actions are all drawn.
        epistemic, v_epistemic: variance of the expected return over the posterior.
        aleatoric, v_aleatoric: posterior mean of the variance of the return in one MDP.
        converged, iterations, gap: of the solver of `total`.
        validity, epistemic_validity, aleatoric_validity: whether each of the three is exact, and why.
    """

    q_mean: Pairs
    v_mean: States
    total: Pairs
    v_total: States
    epistemic: Pairs
    v_epistemic: States
    aleatoric: Pairs
    v_aleatoric: States
    converged: Bool[Array, ""]
    iterations: Int[Array, ""]
    gap: Float[Array, ""]
    validity: Validity
    epistemic_validity: Validity
    aleatoric_validity: Validity

    def __str__(self) -> str:
        parts = {"total": self.v_total, "epistemic": self.v_epistemic, "aleatoric": self.v_aleatoric}
        validities = (self.validity, self.epistemic_validity, self.aleatoric_validity)
        sds = {name: np.sqrt(np.asarray(x)) for name, x in parts.items()}
        lines = [
            f"  {name}: sd from {sd.min():.3g} to {sd.max():.3g} ({why})"
            for (name, sd), why in zip(sds.items(), validities, strict=True)
        ]
        return "\n".join(["Variance of the return of a policy", *lines])

    def to_dataset(self, space: StateActionSpace | None = None) -> "xr.Dataset":
        """As xarray: dims `step` (where there is a horizon), `state`, `action`, labelled by the names of `space`."""
        names = ("q_mean", "v_mean", "total", "v_total", "epistemic", "v_epistemic", "aleatoric", "v_aleatoric")
        validities = ("validity", "epistemic_validity", "aleatoric_validity")
        attributes = {name: str(getattr(self, name)) for name in validities}
        return to_labelled_dataset({name: getattr(self, name) for name in names}, space, attributes)


def return_variance(
    posterior: CanMean, policy: PolicyOrLabels, objective: Objective, *, epistemic: ValueUncertainty | None = None
) -> ReturnVariance:
    """Variance of the return of a policy under a posterior, split into epistemic and aleatoric. Traceable.

    Total, of the return G from (s, a), by the law of total variance over next state, reward and next action:

        Var G(s, a) = Var[r + discount Vbar(s')] + discount^2 pbar . Var G(s'),
        Var G(s') = sum_a' pi Var G(s', a') + Var_pi Qbar(s', a'),

    the first term the posterior predictive one (`predictive_variance`), all means those of the mean MDP. It is exact
    where rows are independent and no unknown pair can be visited twice: every step of a trajectory then uses a new row,
    and its law is that of the mean MDP with predictive rewards. A mixture is taken component by component, then by
    total variance.

    Args:
        posterior: with independent rows, or a mixture of such.
        policy: Int[*H S], Float[*H S A], a `Policy`, as in `planning.evaluate`, or by the posterior's labels.
        objective: `Discounted`, `Episodic` or `FirstExit`.
        epistemic: the posterior variance of the values, of this posterior, policy and objective
            (`exact.value_covariance`, say); None: by moment matching, an upper bound where the total is exact. Where
            it exceeds the total, the total takes its place: the aleatoric variance is never negative.

    Raises:
        ValueError: as `moment_matching.value_variance`; an `epistemic` of another shape.
        TypeError: an ability is missing.
    """
    who = "return_variance"
    mean, policy = problem_of(posterior, policy, objective, who)
    require_ability(posterior.components if can_split(posterior) else posterior, CanPredict, who)
    probs = policy_probs(policy, mean, horizon=objective.horizon)
    # The total first; the epistemic part is cut to it, and the rest is aleatoric.
    parts = _return_parts(posterior, probs, objective)
    reason = revisit_reason(posterior, mean, policy, objective)
    # Exact where each unknown row is met at most once: the return then has the law of the mean MDP.
    total = combine(posterior, parts, validity("exact", _ONCE, reason))
    # Nothing given: the bound of moment matching stands for the epistemic part.
    if epistemic is None:
        epistemic = value_variance(posterior, policy, objective)
    check_shape("epistemic.q_variance", epistemic.q_variance, total.q_variance.shape, "(step,) state, action")
    # What is only an upper bound of the epistemic part may exceed the total: it is cut there.
    q, v = (
        jnp.minimum(jnp.asarray(part, whole.dtype), whole)
        for part, whole in ((epistemic.q_variance, total.q_variance), (epistemic.v_variance, total.v_variance))
    )
    epistemic_validity = _validity_of_cut(epistemic, q, v, total.validity)
    return ReturnVariance(
        total.q_mean,
        total.v_mean,
        total.q_variance,
        total.v_variance,
        q,
        v,
        total.q_variance - q,
        total.v_variance - v,
        total.converged,
        total.iterations,
        total.gap,
        total.validity,
        epistemic_validity,
        _validity_of_rest(total.validity, epistemic_validity),
    )


def _total(posterior: RowPosterior, probs: Pairs, objective: Objective) -> Backup:
    """The equation of one posterior with independent rows; the variance of v includes that of the first action."""
    mean, discount = posterior.mean_mdp(), discount_of(objective)

    def policy_variance(value: PolicyEvaluation | Solution) -> States:
        """Var_pi Qbar(s, a)."""
        # E[(Q - V)^2] over the policy's actions.
        return mean_over_actions((value.q - value.v[..., None]) ** 2, probs)

    def local(belief: RowPosterior, value: PolicyEvaluation | Solution) -> Pairs:
        # Var[r + g Vbar(s')] and, since the policy draws the next action, g^2 E Var_pi Qbar(s', a').
        assert isinstance(belief, CanPredict)  # as `return_variance` checks
        one_step = jnp.asarray(belief.predictive_variance(next_values(value.v, objective), discount))
        return one_step + discount**2 * _expected(mean, next_values(policy_variance(value), objective))

    solved = back_up(posterior, local, probs, objective)
    return eqx.tree_at(lambda backup: backup.variance.v, solved, solved.variance.v + policy_variance(solved.value))


@compile_solver
def _return_parts(posterior: CanMean, probs: Pairs, objective: Objective) -> Backup:
    return over_components(lambda belief: _total(belief, probs, objective), posterior)


def _expected(mdp: MDP | SparseMDP, values: States) -> Pairs:
    """sum_s' pbar values(s'), at every step where there are steps."""
    if values.ndim == 1:
        return mdp.expected_next(values)
    return jax.vmap(lambda step, v: mdp.at(step).expected_next(v))(jnp.arange(len(values)), values)


def _validity_of_cut(epistemic: ValueUncertainty, q: Pairs, v: States, total: Validity) -> Validity:
    """The validity of the epistemic variance after it is cut to a total that may be too small.

    Args:
        epistemic: before the cut.
        q, v: after it.
        total: the validity of the total variance.
    """
    before = epistemic.validity
    if total.kind != "heuristic" or before.kind == "heuristic":
        return before
    # Inside a trace nothing is compared: the doubt stays.
    if is_concrete(epistemic.q_variance, epistemic.v_variance, q, v) and not (
        np.any(np.asarray(epistemic.q_variance, q.dtype) > q) or np.any(np.asarray(epistemic.v_variance, v.dtype) > v)
    ):
        return before
    return Validity("heuristic", "it may be cut to a total variance that is a heuristic itself")


def _validity_of_rest(total: Validity, epistemic: Validity) -> Validity:
    """The validity of total - epistemic."""
    if "heuristic" in (total.kind, epistemic.kind):
        return Validity("heuristic", "the difference of two variances, one of which is a heuristic")
    # Exact less exact; below: an exact total less an upper bound is only a lower bound.
    if epistemic.kind == "exact":
        return Validity("exact", "the difference of two exact variances")
    return Validity("heuristic", "a lower bound: the exact total less an upper bound of the epistemic variance")
