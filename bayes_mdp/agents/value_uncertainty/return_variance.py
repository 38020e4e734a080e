"""The variance of a return, and its two parts: epistemic (more data would remove it) and aleatoric (they would not).

[BMRL19] Markou and Rasmussen, *Bayesian methods for efficient reinforcement learning in tabular problems*, 2019: total
= epistemic + aleatoric. Epistemic is the posterior variance of the value, Var E[return | MDP]; aleatoric the rest,
E Var[return | MDP].
"""

from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bayes_mdp.agents.common.assumptions import RowPosterior, validity
from bayes_mdp.agents.common.value_summary import ValueVariance, labelled
from bayes_mdp.agents.common.variance_equation import (
    Backup,
    back_up,
    combined,
    compiled,
    discount_of,
    horizon_of,
    next_values,
    over_components,
    problem_of,
    why_met_again,
)
from bayes_mdp.agents.value_uncertainty.moment_matching import value_variance
from bayes_mdp.mdp import (
    MDP,
    CanMean,
    CanPredict,
    Objective,
    PolicyOrLabels,
    SparseMDP,
    StateActionSpace,
    Validity,
)
from bayes_mdp.mdp.abilities import can_split, require_ability
from bayes_mdp.planning.episodic import policy_values
from bayes_mdp.planning.policy_arrays import policy_probs
from bayes_mdp.planning.solution import PolicyEvaluation, Solution
from bayes_mdp.utils.validation import check_shape, is_concrete

if TYPE_CHECKING:
    import xarray as xr

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
        return labelled({name: getattr(self, name) for name in names}, space, attributes)


def return_variance(
    posterior: CanMean, policy: PolicyOrLabels, objective: Objective, *, epistemic: ValueVariance | None = None
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
    probs = policy_probs(policy, mean, horizon=horizon_of(objective))
    # The total first; the epistemic part is cut to it, and the rest is aleatoric.
    parts = _parts(posterior, probs, objective)
    again = why_met_again(posterior, mean, policy, objective)
    total = combined(posterior, parts, validity("exact", _ONCE, again))
    if epistemic is None:
        epistemic = value_variance(posterior, policy, objective)
    check_shape("epistemic.q_variance", epistemic.q_variance, total.q_variance.shape, "(step,) state, action")
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
        return policy_values((value.q - value.v[..., None]) ** 2, probs)

    def local(belief: RowPosterior, value: PolicyEvaluation | Solution) -> Pairs:
        # Var[r + g Vbar(s')] and, since the policy draws the next action, g^2 E Var_pi Qbar(s', a').
        assert isinstance(belief, CanPredict)  # as `return_variance` checks
        one_step = jnp.asarray(belief.predictive_variance(next_values(value.v, objective), discount))
        return one_step + discount**2 * _expected(mean, next_values(policy_variance(value), objective))

    solved = back_up(posterior, local, probs, objective)
    return eqx.tree_at(lambda backup: backup.variance.v, solved, solved.variance.v + policy_variance(solved.value))


def _totals(posterior: CanMean, probs: Pairs, objective: Objective) -> Backup:
    return over_components(lambda belief: _total(belief, probs, objective), posterior)


_parts = compiled(_totals)


def _expected(mdp: MDP | SparseMDP, values: States) -> Pairs:
    """sum_s' pbar values(s'), at every step where there are steps."""
    if values.ndim == 1:
        return mdp.expected_next(values)
    return jax.vmap(lambda step, v: mdp.at(step).expected_next(v))(jnp.arange(len(values)), values)


def _validity_of_cut(epistemic: ValueVariance, q: Pairs, v: States, total: Validity) -> Validity:
    """The validity of the epistemic variance after it is cut to a total that may be too small.

    Args:
        epistemic: before the cut.
        q, v: after it.
        total: the validity of the total variance.
    """
    before = epistemic.validity
    if total.kind != "heuristic" or before.kind == "heuristic":
        return before
    if is_concrete(epistemic.q_variance, epistemic.v_variance, q, v) and not (
        np.any(np.asarray(epistemic.q_variance, q.dtype) > q) or np.any(np.asarray(epistemic.v_variance, v.dtype) > v)
    ):
        return before
    return Validity("heuristic", "it may be cut to a total variance that is a heuristic itself")


def _validity_of_rest(total: Validity, epistemic: Validity) -> Validity:
    """The validity of total - epistemic."""
    if "heuristic" in (total.kind, epistemic.kind):
        return Validity("heuristic", "the difference of two variances, one of which is a heuristic")
    if epistemic.kind == "exact":
        return Validity("exact", "the difference of two exact variances")
    return Validity("heuristic", "a lower bound: the exact total less an upper bound of the epistemic variance")
