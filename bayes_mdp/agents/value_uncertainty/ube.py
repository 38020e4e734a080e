"""The uncertainty Bellman equation: a bound on the posterior variance of Q, and Thompson sampling from it.

[UBE18] O'Donoghue, Osband, Munos and Mnih, *The Uncertainty Bellman Equation and Exploration*, ICML 2018; [BMRL19]
Markou and Rasmussen, *Bayesian methods for efficient reinforcement learning in tabular problems*, 2019. The local
variance as printed in either is not a bound; the forms here are.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from bayes_mdp.agents.common.replan import ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import GaussianThompson
from bayes_mdp.agents.common.variance_equation import (
    Backup,
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
    require_rows,
    revisit_reason,
    reward_size,
)
from bayes_mdp.agents.value_uncertainty.gaussian_thompson import UsesRows, check_noise, gaussian_policy
from bayes_mdp.mdp import (
    MDP,
    CanMean,
    Episodic,
    FirstExit,
    HasVariances,
    Objective,
    PolicyLike,
    PolicyOrLabels,
    Problem,
    SparseMDP,
)
from bayes_mdp.mdp.abilities import can_split
from bayes_mdp.mdp.objectives import sum_of_discounts
from bayes_mdp.mdp.validity import Validity
from bayes_mdp.planning.solution import Solution
from bayes_mdp.utils.typing import RealScalar
from bayes_mdp.utils.validation import check_name, check_not_negative, is_concrete

__all__ = ["solve"]
"""What the reference tells beside the agents: the mathematics of the paper."""

FORMS = ("ratio", "dirichlet", "twice", "printed", "count")

Pairs = Float[Array, "*H S A"]


def local_uncertainty(
    posterior: CanMean, objective: Objective, *, q_max: RealScalar | None = None, form: str = "ratio"
) -> Pairs:
    """nu of the uncertainty Bellman equation: the local variance of each pair. Traceable.

    Rewards on (s, a): Var(mean reward) + discount^2 q_max^2 k; on (s, a, s'): pbar . Var(mean reward) + q_max^2 k,
    without the square of the discount, because the row then multiplies r + discount V. k is the variance factor of the
    row (`variance_factor`).

    Args:
        posterior: with independent rows (of a mixture: `jax.vmap` over its `components`).
        objective: `Discounted`, `Episodic` or `FirstExit`.
        q_max: a bound on |posterior-mean value| (of reward + discount value where rewards depend on the outcome), in
            units of the value. None: max |mean reward| times the sum of discount^t over all steps (undiscounted
            episodes: the horizon).
        form: "ratio", "dirichlet", "twice", "count": bounds; "printed": [UBE18] lemma 1, no bound in general. See
            `variance_factor` of the posterior.

    Returns:
        [*H S A], squared units of the value; zero where the action is illegal.

    Raises:
        ValueError: rows that share parameters, a mixture, a variance that does not exist, a `q_max` that is negative
            or not finite (or None under `FirstExit`), another form. TypeError: an ability is missing.
    """
    if can_split(posterior):
        raise ValueError("posterior is a mixture, expected one of its components (jax.vmap over them, or ube.solve)")
    require_rows(posterior, "ube.local_uncertainty")
    _check_options(q_max, form)
    discount_of(objective)
    # Without a bound of the caller's, that of the mean rewards.
    bound = default_q_max(posterior, objective) if q_max is None else q_max
    local = over_components(lambda rows: _local(rows, objective, bound, form), posterior)
    return only_legal(local, posterior.mean_mdp())


def solve(
    posterior: CanMean,
    policy: PolicyOrLabels,
    objective: Objective,
    *,
    q_max: RealScalar | None = None,
    form: str = "ratio",
) -> ValueUncertainty:
    """The solution of the uncertainty Bellman equation of a policy.

    [UBE18] equation 6, with the square of the discount: u = nu + discount^2 sum pbar pi u. u bounds the posterior
    variance of Q from above where rows are independent, no unknown pair can be visited twice and the form is a bound;
    `validity` records whether that was proven. Pure and traceable (under a trace nothing can be proven of cycles). A
    mixture is taken component by component, then by total variance.

    Args:
        posterior, objective, q_max, form: as `local_uncertainty`; mixtures of posteriors with independent rows too.
        policy: Int[*H S], Float[*H S A], a `Policy`, as in `planning.evaluate`, or by the posterior's labels.

    Raises:
        ValueError: as `local_uncertainty` (but for mixtures) and `planning.evaluate`; a `q_max` below a |posterior-mean
            value|, which it must bound (the state is named).
        TypeError: no number.
    """
    _check_options(q_max, form)
    mean, policy = problem_of(posterior, policy, objective, "ube.solve")
    bound = jnp.asarray(default_q_max(posterior, objective) if q_max is None else q_max, mean.reward.dtype)
    parts = _parts(posterior, policy, objective, bound, form=form)
    # A bound of the user's own is compared with the mean values; the default is one by construction.
    not_compared = None
    if q_max is not None:
        concrete = is_concrete(bound, parts.value)
        not_compared = None if concrete else "inside a trace q_max is not compared with the values"
        if concrete:
            _require_bound(posterior, parts, objective, bound)
    # A pair that may be visited again makes the bound a heuristic.
    reason = revisit_reason(posterior, mean, policy, objective) or not_compared
    proven = form != "printed" or _covers(posterior, parts, objective, bound)
    return combine(posterior, parts, _validity(form, reason, proven, bound), bound)


def default_q_max(posterior: CanMean, objective: Objective) -> Float[Array, ""]:
    """max |mean reward| times the sum of discount^t over the steps: a bound on every posterior-mean value.

    Mean rewards are those of (s, a), or of every possible outcome where rewards depend on it, so that reward + discount
    value is bounded too; of legal pairs, and over all components of a mixture.

    Args:
        posterior: the belief.
        objective: any but `FirstExit`.

    Raises:
        ValueError: `FirstExit`, which has no such bound.
    """
    if isinstance(objective, FirstExit):
        raise ValueError("q_max is None, expected a bound on |values| under FirstExit, where none follows from rewards")

    def largest(belief: RowPosterior) -> Float[Array, ""]:
        mean = belief.mean_mdp()
        return jnp.max(only_legal(reward_size(belief, mean), mean))

    # sum discount^t |r| <= max |r| times the sum of discount^t over the steps
    reward = jnp.max(over_components(largest, posterior))
    if isinstance(objective, Episodic):
        return reward * sum_of_discounts(objective)
    return reward / (1 - discount_of(objective))


def _back_up(posterior: CanMean, policy: PolicyLike, objective: Objective, bound: RealScalar, form: str) -> Backup:
    def one(belief: RowPosterior) -> Backup:
        return back_up(belief, lambda each, _: _local(each, objective, bound, form), policy, objective)

    return over_components(one, posterior)


_parts = compile_solver(_back_up, "form")


def _row_term(posterior: RowPosterior, objective: Objective, q_max: RealScalar, form: str) -> Pairs:
    """The part of unknown rows: Var[sum p x] <= k q_max^2 for |x| <= q_max (times discount^2 where x = V)."""
    # [UBE18] lemma 1 with the constants of the form; discount^2 because a variance is a square.
    factor = q_max if posterior.rewards_by_outcome else discount_of(objective) * q_max
    return jnp.asarray(factor**2 * posterior.variance_factor(form))


def _local(posterior: RowPosterior, objective: Objective, q_max: RealScalar, form: str) -> Pairs:
    """The part of unknown rows and that of unknown rewards."""
    return _row_term(posterior, objective, q_max, form) + posterior.expected_reward_variance()


def _check_options(q_max: RealScalar | None, form: str) -> None:
    check_name("form", form, FORMS)
    if q_max is not None:
        check_not_negative("q_max", q_max)
        if jnp.shape(q_max):
            raise ValueError(f"q_max has shape {jnp.shape(q_max)}, expected one number")


def _require_bound(posterior: CanMean, parts: Backup, objective: Objective, q_max: RealScalar) -> None:
    """Refuse a `q_max` that a posterior-mean value exceeds by more than its numerical error. Host side."""
    split = can_split(posterior)
    rows = posterior.components if split else posterior
    assert isinstance(rows, HasVariances)  # as `problem_of` checks
    by_outcome = rows.rewards_by_outcome

    def size(belief: RowPosterior, part: Backup) -> tuple[Float[Array, "..."], Float[Array, ""]]:
        # |V| alone, or |r + discount V| where the row multiplies both.
        if not by_outcome:
            return jnp.abs(part.value.v), part.value.gap
        values = next_values(part.value.v, objective)
        return only_legal(belief.row_bound(values, discount_of(objective)), belief.mean_mdp()), part.value.gap

    sizes, gap = (np.asarray(x) for x in over_components(size, posterior, parts))
    # Refused only where the numerical error of the values cannot explain it.
    worst = np.unravel_index(np.argmax(sizes), sizes.shape)
    if sizes[worst] - np.max(gap) <= float(q_max) * (1 + 1e-6):
        return
    quantity = f"|{'reward + discount value' if by_outcome else 'value'}|"
    # The place of the worst value, without the axis of components.
    index = tuple(int(i) for i in (worst[1:] if split else worst))
    raise ValueError(
        f"q_max is {float(q_max):.6g}, expected at least {sizes[worst]:.6g}, the largest posterior-mean {quantity}: "
        f"that of {_place(posterior, index, by_outcome)}"
    )


def _place(posterior: CanMean, index: tuple[int, ...], pair: bool) -> str:
    """The name of a state, of an index in [*H S] or (`pair`) [*H S A]."""
    *step, state = index[:-1] if pair else index
    space = getattr(posterior, "space", None)  # a posterior of a user's own may have none
    name = state if space is None else space.state_names[state]
    action = ""
    if pair:
        action = f", action {index[-1] if space is None else space.action_names[index[-1]]!r}"
    return f"state {name!r}{action}" + (f", step {step[0]}" if step else "")


def _covers(posterior: CanMean, parts: Backup, objective: Objective, q_max: RealScalar) -> bool:
    """Whether the "printed" term is nowhere below the variance Var[P . x] that it should bound, x at its mean.

    That is what the proof of the bound needs; it holds wherever the mean values lie in an interval of length q_max.
    """

    def short(belief: RowPosterior, part: Backup) -> Bool[Array, ""]:
        # Var[p . x] at the mean values, against the printed term.
        needed = belief.transition_variance(next_values(part.value.v, objective), discount_of(objective))
        excess = needed - _row_term(belief, objective, q_max, "printed") * (1 + 1e-5)
        return jnp.any(only_legal(excess, belief.mean_mdp()) > 0)

    is_short = over_components(short, posterior, parts)
    return is_concrete(is_short) and not np.any(np.asarray(is_short))


def _validity(form: str, revisits: str | None, proven: bool, q_max: RealScalar) -> Validity:
    used = f"q_max = {float(q_max):.6g}" if is_concrete(q_max) else "a traced q_max"
    # Doubts in order of weight: cycles, the form, then the bound as it is.
    if revisits is not None:
        return Validity("heuristic", f"{revisits}; {used}")
    if not proven:
        reason = f'"printed" is a bound only where values lie in an interval of length q_max, not shown here; {used}'
        return Validity("heuristic", reason)
    interval = ", whose length the values stay within" if form == "printed" else ""
    return Validity(
        "upper bound", f'independent rows, no unknown pair is visited again; form "{form}", {used}{interval}'
    )


class UBE(UsesRows):
    """Greedy for mean + scale * sd * noise: the mean of the posterior-mean MDP, the variance of `ube.solve`.

    From [UBE18]. With its defaults it explores little better than at random in DeepSea and RiverSwim, for two reasons.
    Its variance is a bound, far above the variance of the value: a known `q_max`, form="dirichlet" and a smaller scale
    help. And noise is drawn for each pair by itself, so that the many decisions on the way to a far reward do not agree
    (docs/explanation/thompson-noise.md). In DeepSea of size 10, in 300 episodes of 10 seeds, it hardly ever visits the
    reward with the defaults, nor with smaller scales; with all three changes one seed does in .84 of its episodes, and
    most never. The medians of `PSRL` and `MomentMatching(noise="single")` are .56 and .53.

    Args:
        q_max: as in `local_uncertainty` (an array leaf); it is not compared with the values.
        form: as in `local_uncertainty`; "ratio" holds for every posterior with variances, "dirichlet" is never larger
            and needs Dirichlet rows.
        scale: zeta, a factor of the noise, zero or greater; 1 in theory.
        noise: "per_plan": one draw of the noise for the length of a plan; "per_step": a new one at each step.
        replan: when the agent plans again, as in `ThompsonAgent`.

    Raises:
        ValueError: `scale` or `q_max` is negative or not finite; another form or noise.
        TypeError: no number, no rule of replanning.

    Example:
        >>> result = bm.run(
        ...     bm.agents.UBE(scale=0.5),
        ...     bm.envs.chain(),
        ...     prior=bm.models.dirichlet_normal(),
        ...     objective=bm.Discounted(0.9),
        ...     num_steps=50,
        ...     key=jax.random.key(0),
        ...     options=bm.experiments.RunOptions(progress=False),
        ... )
        >>> float(result.visits.sum())
        50.0
    """

    scale: float | Array = 1.0
    q_max: float | Array | None = None
    form: str = eqx.field(default="ratio", static=True)
    noise: str = eqx.field(default="per_plan", static=True)
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule)

    def __check_init__(self) -> None:
        check_noise(self.noise)
        _check_options(self.q_max, self.form)

    def policy(
        self, key: PRNGKeyArray, problem: Problem, belief: CanMean, mean: MDP | SparseMDP, plan: Solution
    ) -> GaussianThompson:
        """Thompson sampling with variance u of the uncertainty Bellman equation.

        Raises:
            ValueError, TypeError: not inside a trace: as `ube.solve`.
        """
        objective = problem.objective
        # u of the plan itself: the policy that is optimal in the mean MDP is evaluated, not that which will act.
        bound = default_q_max(belief, objective) if self.q_max is None else self.q_max
        q, u = moments_of_plan(belief, lambda each, _: _local(each, objective, bound, self.form), mean, plan, objective)
        # The mean of the plan, and sqrt(u) as standard deviation.
        return gaussian_policy(key, q, self.scale * jnp.sqrt(u), problem, self.noise)
