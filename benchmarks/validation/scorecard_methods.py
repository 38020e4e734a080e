"""What each method of the scorecard states about the values of a policy: means, variances, covariances, or draws."""

from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.agents.common.variance_equation import discount_of, next_values, over_components
from bayes_mdp.agents.value_uncertainty import exact, moment_matching, ube
from bayes_mdp.inference.families.normal import NormalBelief
from bayes_mdp.mdp import Episodic, Objective
from bayes_mdp.mdp.abilities import can_split
from bayes_mdp.mdp.protocols import CanSplit
from bayes_mdp.planning import evaluate, solve

VALID_FORMS = tuple(form for form in ube.FORMS if form != "printed")
BY_DRAWS = "by draws"
COMPONENTWISE = (*(f"UBE {form}" for form in VALID_FORMS), "moment matching")
SIMPLER = ("mean hyper-parameter", "marginals")
SIMPLER_METHODS = tuple(f"{method}, {how}" for method in ("UBE dirichlet", "moment matching") for how in SIMPLER)
METHODS = (
    *COMPONENTWISE,
    *SIMPLER_METHODS,
    "exact recursion",
    "exact UBE, unclipped",
    "exact UBE, clipped",
    BY_DRAWS,
)


class StatedValues(eqx.Module):
    """What is stated of the values of a policy at the first step.

    Args:
        mean, variance: [S A], of q.
        v_mean, v_covariance: [S], [S S], of v; methods that know no correlation between states state none.
        draws: [D S A], where the statement is their empirical distribution; else None (a normal distribution).
        says: the `validity` that the method itself states.
    """

    mean: Float[Array, "S A"]
    variance: Float[Array, "S A"]
    v_mean: Float[Array, " S"]
    v_covariance: Float[Array, "S S"]
    draws: Float[Array, "D S A"] | None
    says: str = eqx.field(static=True)


def stated_values(
    key: PRNGKeyArray, posterior: Any, policy: Any, objective: Objective, methods: Iterable[str], num_draws: int
) -> dict[str, StatedValues]:
    """What each method states; those that refuse the belief are left out. Traceable.

    ", marginals" and ", mean hyper-parameter" are what a belief becomes that forgets its mixture: for mixtures only.
    """
    q_max = least_q_max(posterior, policy, objective)
    answers = {}
    for method in methods:
        try:
            answer = _answer(key, method, posterior, policy, objective, q_max, num_draws)
        except ValueError:
            continue
        if answer is not None:
            answers[method] = answer
    return answers


def _answer(
    key: PRNGKeyArray, method: str, posterior: Any, policy: Any, objective: Objective, q_max: Any, num_draws: int
) -> StatedValues | None:
    if method == BY_DRAWS:
        return _by_draws(key, posterior, policy, objective, num_draws)
    if method.startswith("exact UBE"):
        clip = method.endswith(", clipped")
        return _stated(exact.exact_ube(key, posterior, policy, objective, num_draws=num_draws, clip=clip), objective)
    name, comma, how = method.partition(", ")
    if comma:
        if not can_split(posterior):
            return None
        posterior = marginal_posterior(posterior) if how == "marginals" else component_at_mean(posterior)
    if name.startswith("UBE"):
        return _by_ube(name.removeprefix("UBE "), posterior, policy, objective, q_max)
    core = exact.value_covariance if name == "exact recursion" else moment_matching.value_variance
    return _stated(core(posterior, policy, objective), objective)


def _by_ube(form: str, posterior: Any, policy: Any, objective: Objective, q_max: Any) -> StatedValues:
    """With the least q_max, that no trace can prove; the stated validity is the method's own."""
    answer = ube.solve(posterior, policy, objective, q_max=q_max, form=form)
    said = eqx.filter_eval_shape(lambda p, pi: ube.solve(p, pi, objective, form=form), posterior, policy)
    return _stated(eqx.tree_at(lambda a: a.validity, answer, said.validity), objective)


def _stated(answer: Any, objective: Objective) -> StatedValues:
    alone = jax.vmap(jnp.diag)(jnp.atleast_2d(answer.v_variance)).reshape(*answer.v_variance.shape, -1)
    parts = answer.q_mean, answer.q_variance, answer.v_mean, getattr(answer, "v_covariance", alone)
    mean, variance, v_mean, covariance = (x[0] for x in parts) if isinstance(objective, Episodic) else parts
    return StatedValues(mean, variance, v_mean, covariance, None, answer.validity.kind)


def _by_draws(key: PRNGKeyArray, posterior: Any, policy: Any, objective: Objective, num_draws: int) -> StatedValues:
    q, v = jax.vmap(lambda k: values(posterior.sample(k), policy, objective))(jax.random.split(key, num_draws))
    centred = v - v.mean(0)
    covariance = centred.T @ centred / (num_draws - 1)
    return StatedValues(q.mean(0), q.var(0, ddof=1), v.mean(0), covariance, q, "exact")


def values(mdp: Any, policy: Any, objective: Objective) -> tuple[Float[Array, "S A"], Float[Array, " S"]]:
    """q and v of a policy at the first step."""
    answer = evaluate(mdp, policy, objective)
    return (answer.q[0], answer.v[0]) if isinstance(objective, Episodic) else (answer.q, answer.v)


def greedy_policy(posterior: Any, objective: Objective) -> Any:
    """The optimal policy of the mean MDP."""
    return solve(posterior.mean_mdp(), objective).policy


def least_q_max(posterior: Any, policy: Any, objective: Objective) -> Float[Array, ""]:
    """The least q_max that bounds what the uncertainty Bellman equation multiplies with a row."""

    def bound(belief: Any) -> Float[Array, ""]:
        value = evaluate(belief.mean_mdp(), policy, objective)
        if not belief.rewards_by_outcome:
            return jnp.max(jnp.abs(value.v))
        return jnp.max(belief.row_bound(next_values(value.v, objective), discount_of(objective)))

    if can_split(posterior) or hasattr(posterior, "rewards_by_outcome"):
        return jnp.max(over_components(bound, posterior))
    return jnp.zeros(())


def component_at_mean(posterior: CanSplit) -> Any:
    """One conjugate posterior with the mean of the hyper-parameters in place of their distribution."""

    def mean(array: Any) -> Any:
        floating = jnp.issubdtype(jnp.asarray(array).dtype, jnp.floating)
        return jnp.tensordot(posterior.weights, array, axes=1) if floating else array[0]

    return jax.tree.map(mean, posterior.components)


def marginal_posterior(posterior: CanSplit) -> Any:
    """A conjugate posterior with independent pairs whose marginal means and variances are those of the mixture.

    Rewards: normal with the mean and the variance of each conjugate site. Rows: Dirichlet with the mean row, and the
    total concentration that gives the summed variance of its elements. For normal rewards.
    """
    single = jax.tree.map(lambda array: jnp.asarray(array)[0], posterior.components)
    weights = posterior.weights

    def moments(belief: Any) -> tuple[Any, ...]:
        reward, leaves = belief.reward_cells.site_belief, belief.transition_probs.site_concentration
        total = leaves.sum(-1, keepdims=True)
        row = leaves / total
        return reward.mean(), reward.variance(), row, row * (1 - row) / (total + 1)

    means, variances, rows, spreads = jax.vmap(moments)(posterior.components)

    def joined(mean: Any, within: Any) -> tuple[Any, Any]:
        expected = jnp.tensordot(weights, mean, axes=1)
        return expected, jnp.tensordot(weights, within + (mean - expected) ** 2, axes=1)

    loc, variance = joined(means, variances)
    row, row_variance = joined(rows, spreads)
    total = (row * (1 - row)).sum(-1, keepdims=True) / row_variance.sum(-1, keepdims=True) - 1
    prior: Any = single.reward_cells.prior
    belief = NormalBelief(loc, jnp.sqrt(variance), prior.noise_scale)

    def where(p: Any) -> tuple[Any, ...]:
        rewards, rows = p.reward_cells, p.transition_probs
        return rewards.prior, rewards.data, rows.prior, rows.counts

    _, data, _, counts = where(single)
    return eqx.tree_at(where, single, (belief, jnp.zeros_like(data), row * total, jnp.zeros_like(counts)))
