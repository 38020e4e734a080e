"""K-learning: values that are optimistic by an exponential utility, a Boltzmann policy, one temperature for both.

Source: [KL21] O'Donoghue, *Variational Bayesian Reinforcement Learning with Regret Bounds*, NeurIPS 2021. Its theorem 1
assumes mean rewards in [0, 1], sigma-sub-Gaussian noise, independent priors, a row of its own for every step. In this
order: the K values; the temperature, by the schedule or the one that makes the bound on the optimal value tightest
((10), (11)); the agent.
"""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bayes_mdp.agents.common.replan import ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import Boltzmann
from bayes_mdp.agents.optimism.k_model import (
    Bonus,
    KMixture,
    KModel,
    KOperator,
    k_operator,
    least_temperature,
    soften,
)
from bayes_mdp.mdp import CanMean, Episodic, Problem
from bayes_mdp.mdp.objectives import require_objective
from bayes_mdp.numerics.array_forms import to_float64
from bayes_mdp.numerics.products import matmul
from bayes_mdp.planning.solution import where_legal
from bayes_mdp.utils.typing import ArrayLike, IntScalar, RealLike, RealScalar
from bayes_mdp.utils.validation import (
    check_count,
    check_positive,
    check_probability_rows,
    check_shape,
    is_concrete,
    require,
)

__all__ = ["k_values", "optimal_temperature"]
"""What the reference tells beside the agents: the mathematics of the paper."""

TEMPERATURES = ("optimal", "schedule")


def k_values(
    posterior: CanMean,
    tau: RealScalar,
    *,
    bonus: str = "paper",
    span: RealLike | None = None,
    noise: RealScalar = 1.0,
    horizon: int | None = None,
) -> Float[Array, "H S A"]:
    """K of every step: equation (6) of [KL21], K = 0 after the last step. Traceable; compiles itself.

    K_l(s, a) = E mu + (noise^2 + span_l^2) / (2 tau max(n, 1)) + sum_s' E P(s' | s, a) tau logsumexp(K_l+1(s') / tau).

    Args:
        posterior: with a mean, visit counts n and the variances of `HasVariances`, or a mixture of such: K is then
            tau log sum_k w_k exp(K_k / tau) over its components (see `KMixture`: the values stay optimistic, the
            theorem on the regret does not hold).
        tau: temperature, greater than 0.
        bonus: "paper"; or "posterior": the posterior variance of the mean reward in place of noise^2 / max(n, 1). The
            paper's needs a prior variance of at most noise^2 to be optimistic.
        span: bound on the difference of values of the next step. None: L - l, the paper's for rewards in [0, 1]. Where
            a row is known there is no such term.
        noise: sigma, the rewards are sigma-sub-Gaussian around their mean ("paper" only).
        horizon: L, where the posterior does not depend on the step.

    Returns:
        [H S A], in units of the reward; -inf where the action is illegal.

    Raises:
        ValueError: `tau` is not positive; another `bonus`; a negative `span` or `noise`; the horizon is
            missing or does not fit; a variance of a mean reward does not exist. TypeError: an ability is missing.
    """
    # Options that are numbers are checked on the host, before anything is compiled.
    check_positive("tau", tau)
    rule = Bonus(bonus, span, noise)
    rule.check_belief(posterior, "k_values")
    return _k_values(posterior, tau, rule, horizon=horizon)


@partial(jax.jit, static_argnames="horizon")
def _k_values(posterior: CanMean, tau: RealScalar, bonus: Bonus, *, horizon: int | None) -> Float[Array, "H S A"]:
    return k_operator(posterior, bonus, horizon=horizon, who="k_values").k_values(tau)


def value(k: ArrayLike, tau: RealScalar) -> Float[Array, "*H S"]:
    """tau logsumexp(k / tau) over actions: the bound on the expected optimal value in (13) of [KL21].

    Args:
        k: [*H S A], -inf where illegal.
        tau: greater than 0.

    Raises:
        ValueError: `tau` is not positive.
        TypeError: no number.
    """
    check_positive("tau", tau)
    return soften(jnp.asarray(k), tau)[0]


MAX_ITERATIONS = 60
LARGEST_STEP = 3.0  # in log tau
PATIENCE = 12  # Newton steps before they are doubled, one after the other, as long as the root is not enclosed


def schedule(
    t: RealLike,
    *,
    noise: RealScalar,
    horizon: int,
    num_states: int,
    num_actions: int,
    span: RealScalar | None = None,
) -> RealLike:
    """tau_t = sqrt((noise^2 + L^2) S A (1 + log t) / (4 L t log A)), equation (10) of [KL21], in units of the reward.

    Traceable in t.

    Args:
        t: number of the episode, from 1 on.
        noise: sigma, the rewards are sigma-sub-Gaussian around their mean.
        horizon: L, steps of an episode.
        num_states: S, the states of all steps together.
        num_actions: A.
        span: in place of L in L^2, the bound on the values of an episode (0 where transitions are known).

    Raises:
        ValueError: `num_actions` below 2 (log A = 0), `t` below 1, a negative `noise` or `span`, a size below 1.
        TypeError: no number.
    """
    require_choice(num_actions)
    for name, size in (("horizon", horizon), ("num_states", num_states)):
        require(size < 1, name, size, "an integer of at least 1")
    Bonus("paper", span, noise)  # which checks its numbers
    if is_concrete(t):
        require(~(np.asarray(t) >= 1), "t", t, "the number of an episode, 1 or greater")
    # NumPy for numbers, JAX for a traced t: one formula for both.
    xp = np if is_concrete(t, noise, span) else jnp
    square = noise**2 + (horizon if span is None else span) ** 2
    return xp.sqrt(square * num_states * num_actions * (1 + xp.log(t)) / (4 * horizon * t * np.log(num_actions)))


def require_choice(num_actions: int) -> None:
    """Refuse a single action.

    Raises:
        ValueError: `num_actions` is below 2.
    """
    if num_actions < 2:
        raise ValueError(
            f"num_actions is {num_actions}, expected at least 2: with a single action log A is 0, and no temperature "
            "is best"
        )


class OptimalTemperature(eqx.Module):
    """The solution of problem (11) of [KL21].

    Args:
        tau: the optimal temperature; 0 where no bonus is left (`k` is then the optimal q of the mean MDP).
        objective: E_rho[tau logsumexp(K_1 / tau)], an upper bound of the expected optimal value.
        gap: duality gap, a bound on how far `objective` is above the least one (rounding apart).
        iterations: Newton steps.
        converged: the last step was at the level of rounding, or a lower tau cannot improve the objective.
        k: [H S A], K at `tau`.
    """

    tau: Float[Array, ""]
    objective: Float[Array, ""]
    gap: Float[Array, ""]
    iterations: Int[Array, ""]
    converged: Bool[Array, ""]
    k: Float[Array, "H S A"]


def optimal_temperature(
    posterior: CanMean,
    initial: ArrayLike,
    *,
    bonus: str = "paper",
    span: RealLike | None = None,
    noise: RealScalar = 1.0,
    horizon: int | None = None,
    start: float | None = None,
) -> OptimalTemperature:
    """The temperature of problem (11) of [KL21]. Host-side: compiles itself, works in float64.

    At a fixed temperature the smallest feasible K of (11) is the recursion (6), which is monotone: what is left is
    one convex, smooth function of tau (see `minimise`, which is traceable).

    Args:
        posterior, bonus, span, noise, horizon: as in `k_learning.k_values`.
        initial: [S], distribution of the first state.
        start: a temperature to start from; it changes the effort, not the answer.

    Returns:
        Numbers as numpy scalars.

    Raises:
        ValueError, TypeError: as `k_values`; a single action; `initial` is no distribution; `start` is not positive.
    """
    rule = Bonus(bonus, span, noise)
    check_probability_rows("initial", initial)
    if start is not None:
        check_positive("start", start)
    # Newton steps to the square root of eps: float64, whatever the caller's precision.
    with jax.enable_x64(True):
        posterior64, rho = to_float64((posterior, np.asarray(initial, np.float64)))
        return jax.device_get(_solve(posterior64, rho, rule, start or 0.0, horizon=horizon))


@partial(jax.jit, static_argnames="horizon")
def _solve(
    posterior: CanMean, initial: Float[Array, " S"], bonus: Bonus, start: RealScalar, *, horizon: int | None
) -> OptimalTemperature:
    return minimise(k_operator(posterior, bonus, horizon=horizon, who="optimal_temperature"), initial, start)


class _Search(NamedTuple):
    """State of the search for log tau: the point, its bracket, |tau J'| at the last point, the step from there."""

    log_tau: Float[Array, ""]
    lower: Float[Array, ""]
    upper: Float[Array, ""]
    gradient: Float[Array, ""]
    step: Float[Array, ""]
    iterations: Int[Array, ""]


def minimise(model: KOperator, initial: Float[Array, " S"], start: RealScalar = 0.0) -> OptimalTemperature:
    """Solve (11) by Newton steps in log tau, kept in a bracket. Pure, traceable, in the dtype of the model.

    Where the objective falls, the step is Newton's in log tau; where it rises, that of the function a / tau + b tau
    with the same J' and J''. Neither overshoots by much there.

    Args:
        model: of `k_operator`.
        initial: [S], distribution of the first state.
        start: a temperature to start from; 0: none.

    Returns:
        The temperature, the value of the problem there, and how it was found.

    Raises:
        ValueError: a single action, another shape of `initial`.
    """
    horizon, n_states, n_actions = model.sizes
    check_shape("initial", initial, (n_states,), "state")
    require_choice(n_actions)
    dtype = model.dtype
    # Smallest positive numbers of the dtype: logarithms and quotients stay finite.
    eps, tiny = float(jnp.finfo(dtype).eps), float(jnp.finfo(dtype).tiny)
    initial, start = jnp.asarray(initial, dtype), jnp.asarray(start, dtype)
    # tau^2 of the optimum is of the order of the sum of numerators over that of entropies, both bounded here; the
    # bracket is that centre times eps to 1 / eps.
    scale = model.scale()
    # No numerator, no bonus: the optimum is at tau = 0, and is not searched for.
    certain = scale == 0.0
    largest_entropy = horizon * np.log(n_actions)
    centre = 0.5 * jnp.log(jnp.where(certain, 1.0, scale) / largest_entropy)
    limits = centre + np.log(eps), centre - np.log(eps)
    first = jnp.where(start > 0, jnp.clip(jnp.log(jnp.maximum(start, tiny)), *limits), centre)
    tolerance = 4.0 * eps**0.5  # the error after a Newton step is of the order of its square

    def going(search: _Search) -> Bool[Array, ""]:
        return (jnp.abs(search.step) > tolerance) & (search.iterations < MAX_ITERATIONS)

    def advance(search: _Search) -> _Search:
        return _advance(search, *derivatives(model, initial, jnp.exp(search.log_tau)), limits)

    infinite = jnp.asarray(jnp.inf, dtype)
    # The bracket at first is everything that can be the optimum.
    began = _Search(first, *limits, infinite, jnp.where(certain, 0.0, infinite), jnp.zeros((), jnp.int32))
    end = jax.lax.while_loop(going, advance, began)
    # Without any bonus the optimal temperature is 0: K is then the value of the mean MDP.
    tau = jnp.where(certain, least_temperature(dtype), jnp.exp(end.log_tau))
    # The dual (27) at the occupancy of this policy says how far the objective may be from the optimum.
    k, objective, gap = _certify(model, initial, tau)
    tau = jnp.where(certain, 0.0, tau)
    return OptimalTemperature(tau, objective, gap, end.iterations, jnp.abs(end.step) <= tolerance, k)


def _advance(
    search: _Search,
    value: Float[Array, ""],
    gradient: Float[Array, ""],
    curvature: Float[Array, ""],
    limits: tuple[Float[Array, ""], Float[Array, ""]],
) -> _Search:
    """One step from J, tau J' and tau^2 J'' at the point; half of the bracket where it leaves it or gains too little.

    No step where tau J', which bounds what a lower temperature can gain, is far below the rounding error of J.
    """
    # J' < 0: the optimum lies above; J' > 0: below. Until both ends have been found (`enclosed`), steps grow.
    eps = float(jnp.finfo(gradient.dtype).eps)
    lower, upper = (
        jnp.where(gradient < 0, search.log_tau, search.lower),
        jnp.where(gradient < 0, search.upper, search.log_tau),
    )
    enclosed = (lower > limits[0]) & (upper < limits[1])
    longer = jnp.where(enclosed, 1.0, 2.0 ** jnp.maximum(search.iterations - PATIENCE, 0).astype(gradient.dtype))
    target = jnp.clip(search.log_tau + longer * _step(gradient, curvature), *limits)
    # Bisect where Newton's step leaves the bracket, or is long and has not halved the gradient.
    is_long = jnp.abs(target - search.log_tau) > eps**0.25
    slow = is_long & enclosed & (jnp.abs(gradient) > 0.5 * search.gradient)
    target = jnp.where(slow | (target < lower) | (target > upper), 0.5 * (lower + upper), target)
    target = jnp.where(jnp.abs(gradient) <= eps**2 * jnp.abs(value), search.log_tau, target)
    return _Search(target, lower, upper, jnp.abs(gradient), target - search.log_tau, search.iterations + 1)


def _step(gradient: Float[Array, ""], curvature: Float[Array, ""]) -> Float[Array, ""]:
    """The step in log tau from tau J' and tau^2 J''."""
    least = jnp.finfo(gradient.dtype).tiny
    # Newton in log tau where J falls; where it rises J is near c / tau + tau e, whose minimum is reached in closed
    # form.
    # J' rises through zero: Newton's step from the left does not overshoot by much.
    falling = -gradient / jnp.maximum(gradient + curvature, least)
    # c / tau + e tau has its minimum where tau^2 = c / e: half a log1p of the ratio.
    rising = -0.5 * jnp.log1p(2.0 * jnp.maximum(gradient, 0.0) / jnp.maximum(curvature, least))
    return jnp.clip(jnp.where(gradient > 0, rising, falling), -LARGEST_STEP, LARGEST_STEP)


def derivatives(
    model: KOperator, initial: Float[Array, " S"], tau: RealScalar
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
    """J(tau) = E_rho[tau logsumexp(K_1(tau) / tau)], tau J'(tau) and tau^2 J''(tau), carried through (6).

    With p = softmax(K / tau), H its entropy and v = tau logsumexp(K / tau): tau v' = tau H + p . tau K' and
    tau^2 v'' = p . tau^2 K'' + Var_p(tau K' - K) / tau. In a mixture v is that of K_k + tau log w_k over components and
    actions together.

    Args:
        model: of `k_operator`.
        initial: distribution of the first state.
        tau: temperature, greater than 0.
    """
    if isinstance(model, KMixture):
        first = jax.vmap(lambda part: _change(part, tau, _changes(part, tau, first=1), 0))(model.parts)  # K 3 S A
        # tau d/dtau of tau log w is tau log w, tau^2 d^2/dtau^2 of it is 0.
        changes = jnp.concatenate([model.add_log_weights(tau, first[:, :2]), first[:, 2:]], 1)
        # The first step weighs components and actions together, by one softmax.
        value, gradient, curvature = matmul(_soft_change(_over_actions(changes), tau), initial)
        return value, gradient, curvature
    value, gradient, curvature = matmul(_changes(model, tau), initial)
    return value, gradient, curvature


def _changes(model: KModel, tau: RealScalar, first: int = 0) -> Float[Array, "3 S"]:
    """v, tau v' and tau^2 v'' of step `first`."""

    def step(later: Float[Array, "3 S"], layer: IntScalar) -> tuple[Float[Array, "3 S"], None]:
        return _soft_change(_change(model, tau, later, layer), tau), None

    # After the last step nothing follows.
    end = jnp.zeros((3, model.sizes[1]), model.dtype)
    return jax.lax.scan(step, end, jnp.arange(first, model.mean.horizon), reverse=True)[0]


def _change(model: KModel, tau: RealScalar, later: Float[Array, "3 S"], layer: IntScalar) -> Float[Array, "3 S A"]:
    """K, tau K' and tau^2 K'' of one step from v, tau v' and tau^2 v'' of the next; K is -inf where illegal."""
    # tau d/dtau of the bonus c / tau is -c / tau, tau^2 d^2/dtau^2 is 2 c / tau.
    bonus = model.numerator[layer] / tau
    # E of the next values, derivatives carried along: they are linear in the rows.
    after = jax.vmap(model.mean.expected_next, (0, None))(later, layer)
    k = model.mean.at(model.mean.reward, layer) + bonus + after[0]
    return jnp.stack([where_legal(k, model.mean.legal), after[1] - bonus, after[2] + 2.0 * bonus])


def _soft_change(change: Float[Array, "3 S A"], tau: RealScalar) -> Float[Array, "3 S"]:
    """v, tau v' and tau^2 v'' of the states from those of K."""
    k, first, second = change
    # d(tau logsumexp(K / tau)) / dtau = entropy + E[K'], times tau.
    v, probs, entropy = soften(k, tau)
    moved = jnp.where(jnp.isfinite(k), first - k, 0.0)  # tau K' - K
    # d^2 (tau logsumexp(K / tau)): the variance of tau K' - K under the policy, over tau.
    squares = (moved - jnp.sum(probs * moved, -1, keepdims=True)) ** 2 / tau
    return jnp.stack([v, tau * entropy + jnp.sum(probs * first, -1), jnp.sum(probs * (second + squares), -1)])


def _over_actions(components: Float[Array, "K M S A"]) -> Float[Array, "M S KA"]:
    """Components and actions as one axis."""
    flat = jnp.moveaxis(components, 0, -2)
    return flat.reshape(*flat.shape[:-2], -1)


def _certify(
    model: KOperator, initial: Float[Array, " S"], tau: RealScalar
) -> tuple[Float[Array, "H S A"], Float[Array, ""], Float[Array, ""]]:
    """K and J at `tau`, and the duality gap of the occupancy of its policy.

    For that occupancy, feasible in the dual (27), C the expected sum of numerators and E that of entropies:
    J(tau) = reward + C / tau + tau E, and the dual objective is reward + 2 sqrt(C E). In a mixture the occupancy
    chooses a component too, and E has the entropy of that choice relative to the weights.
    """
    if isinstance(model, KMixture):
        after, k = jax.vmap(lambda part: _sums(part, tau, first=1))(model.parts)
        # The first step of a mixture mixes over components and actions at once; later ones stay apart.
        # Each component's sums after the first step, then the choice of component.
        now, first = jax.vmap(lambda part, later: _sum(part, tau, later, 0))(model.parts, after)
        # log w of the components is part of the entropy term: it multiplies tau as the entropy does.
        weights = jnp.broadcast_to(model.log_weights[:, None, None], first.shape)
        rest = jnp.stack([model.add_log_weights(tau, first), now[:, 0], now[:, 1] + weights], 1)
        # The first step adds its own numerators and entropies.
        value, numerators, entropy = matmul(_soft_sum(_over_actions(rest), tau), initial)
        k = model.mix_components(tau, jnp.concatenate([first[:, None], k], 1))
        entropy = jnp.maximum(entropy, 0.0)  # below zero the bound is that of tau to infinity: the gap is not small
    else:
        last, k = _sums(model, tau)
        value, numerators, entropy = matmul(last, initial)
    # J - dual = C / tau + tau E - 2 sqrt(C E), as a square: never negative by rounding.
    return k, value, (jnp.sqrt(numerators / tau) - jnp.sqrt(tau * entropy)) ** 2


def _sums(model: KModel, tau: RealScalar, first: int = 0) -> tuple[Float[Array, "3 S"], Float[Array, "layers S A"]]:
    """v and, under the policy, expected sums of numerators and of entropies from step `first` on; K of these steps."""

    def step(later: Float[Array, "3 S"], layer: IntScalar) -> tuple[Float[Array, "3 S"], Float[Array, "S A"]]:
        sums, k = _sum(model, tau, later, layer)
        return _soft_sum(jnp.stack([k, *sums]), tau), k

    end = jnp.zeros((3, model.sizes[1]), model.dtype)
    return jax.lax.scan(step, end, jnp.arange(first, model.mean.horizon), reverse=True)


def _sum(
    model: KModel, tau: RealScalar, later: Float[Array, "3 S"], layer: IntScalar
) -> tuple[Float[Array, "2 S A"], Float[Array, "S A"]]:
    """Sums of numerators and of entropies after a pair of one step, and its K (-inf where illegal)."""
    numerator = model.numerator[layer]
    # The recursion (6) with sums in place of derivatives.
    after = jax.vmap(model.mean.expected_next, (0, None))(later, layer)
    k = where_legal(model.mean.at(model.mean.reward, layer) + numerator / tau + after[0], model.mean.legal)
    return jnp.stack([numerator + after[1], after[2]]), k


def _soft_sum(sums: Float[Array, "3 S A"], tau: RealScalar) -> Float[Array, "3 S"]:
    """v and expected sums of the states, from K and sums of the pairs."""
    k, numerators, entropies = sums
    v, probs, entropy = soften(k, tau)
    # The entropy of the choice, and what follows it.
    return jnp.stack([v, jnp.sum(probs * numerators, -1), entropy + jnp.sum(probs * entropies, -1)])


class TemperatureRule(eqx.Module):
    """A temperature that depends on the belief or the time: see `name`.

    Args:
        name: "optimal", the solution of problem (11), or "schedule", equation (10).

    Raises:
        ValueError: another name.
    """

    name: str = eqx.field(static=True)

    def __check_init__(self) -> None:
        if self.name not in TEMPERATURES:
            words = ", ".join(map(repr, TEMPERATURES))
            raise ValueError(f"temperature is {self.name!r}, expected {words} or a number greater than 0")


def _as_temperature(
    temperature: str | TemperatureRule | RealScalar,
) -> TemperatureRule | RealScalar:
    if isinstance(temperature, str):
        return TemperatureRule(temperature)
    if not isinstance(temperature, TemperatureRule):
        check_positive("temperature", temperature)
    return temperature


class KLearningState(eqx.Module):
    """The state of `KLearning`.

    Args:
        temperature: of the last plan, in units of the reward; 0: none.
        num_plans: so far.
    """

    temperature: Float[Array, ""]
    num_plans: Int[Array, ""]


class KLearning(eqx.Module):
    """K-learning, algorithm 1 of [KL21], for `Episodic` objectives.

    The theorem on its regret assumes independent rows. For a mixture (a collapsed posterior too) K joins those of the
    components by their exponential utilities (see `KMixture`), and for draws it has the moments of the draws: both are
    heuristics.

    Args:
        temperature: "optimal": that of problem (11), solved before every plan; "schedule": (10), t the number of this
            plan from 1 on; or a number (an array leaf, so that sweeps vmap over it).
        bonus, span, noise: as in `k_values`. `span`, where given, also replaces L in the L^2 of the schedule.
        num_states: S of the schedule, the states of all steps together; None: steps times states.
        replan: as in `PSRL`.

    Raises:
        ValueError: an unknown option, a temperature that is not positive, a negative `span` or `noise`.
        TypeError: no number, no rule of replanning.

    Example:
        >>> result = bm.run(
        ...     bm.agents.KLearning(),
        ...     bm.envs.riverswim_episodic(),
        ...     prior=bm.models.dirichlet_normal(),
        ...     objective=bm.Episodic(20),
        ...     num_episodes=3,
        ...     key=jax.random.key(0),
        ...     options=bm.experiments.RunOptions(progress=False),
        ... )
        >>> float(result.visits.sum())
        60.0
    """

    temperature: TemperatureRule | RealScalar = eqx.field(default="optimal", converter=_as_temperature)
    bonus: str = eqx.field(default="paper", static=True, kw_only=True)
    span: float | Array | None = eqx.field(default=None, kw_only=True)
    noise: float | Array = eqx.field(default=1.0, kw_only=True)
    num_states: int | None = eqx.field(default=None, static=True, kw_only=True)
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule, kw_only=True)

    def __check_init__(self) -> None:
        _ = self._rule  # which checks its numbers
        if self.num_states is not None:
            check_count("num_states", self.num_states)

    @property
    def _rule(self) -> Bonus:
        return Bonus(self.bonus, self.span, self.noise)

    def init(self, key: PRNGKeyArray, problem: Problem) -> KLearningState:
        """No plan yet.

        Raises:
            ValueError: an objective other than `Episodic`; a single action, unless the temperature is a number; with
                "optimal", no initial distribution.
        """
        del key
        require_objective(problem.objective, "KLearning", Episodic)
        if isinstance(self.temperature, TemperatureRule):
            require_choice(problem.space.n_actions)
            # The optimal temperature weighs the first states: it has to know where episodes begin.
            if self.temperature.name == "optimal" and problem.initial is None:
                raise ValueError("initial is None, expected a distribution over the first state for KLearning")
        return KLearningState(jnp.zeros(()), jnp.zeros((), jnp.int32))

    def check_belief(self, belief: object) -> None:
        """Refuse a belief that a plan cannot use (inside a trace: by its methods alone).

        Raises:
            ValueError: with bonus="posterior", a variance of a mean reward does not exist. TypeError: no mean, counts
                or variances.
        """
        self._rule.check_belief(belief, "KLearning")

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: KLearningState, belief: CanMean
    ) -> tuple[Boltzmann, KLearningState]:
        """The policy (9) at the temperature of this plan: probabilities proportional to exp(K / tau). No random number.

        Where no bonus is left the optimal temperature is 0: the policy is then greedy in the mean MDP.

        Raises:
            TypeError: an ability is missing. ValueError: as `init`.
        """
        del key
        number, horizon = state.num_plans + 1, require_objective(problem.objective, "KLearning", Episodic).horizon
        model = k_operator(belief, self._rule, horizon=horizon, who="KLearning")
        tau, k = self._choose(model, problem, state.temperature, number)
        state = KLearningState(jnp.asarray(tau, state.temperature.dtype), number)
        # At temperature zero the policy is greedy: the least positive temperature stands for it.
        return Boltzmann(k, jnp.maximum(tau, least_temperature(k.dtype))), state

    def _choose(
        self, model: KOperator, problem: Problem, last: Float[Array, ""], number: Int[Array, ""]
    ) -> tuple[RealScalar, Float[Array, "H S A"]]:
        """The temperature of a plan, and K there."""
        if not isinstance(self.temperature, TemperatureRule):
            return self.temperature, model.k_values(self.temperature)
        if self.temperature.name == "optimal":
            # From the last temperature: a few Newton steps where the belief has changed little.
            best = minimise(model, jnp.asarray(problem.initial), last)
            return best.tau, best.k
        space, horizon = problem.space, model.sizes[0]
        tau = schedule(
            number.astype(model.dtype),
            noise=self.noise,
            horizon=horizon,
            num_states=self.num_states or horizon * space.n_states,
            num_actions=space.n_actions,
            span=self.span,
        )
        tau = jnp.maximum(tau, least_temperature(model.dtype))  # 0 without noise and span
        return tau, model.k_values(tau)
