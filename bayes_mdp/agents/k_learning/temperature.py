"""The temperature of K-learning: the schedule, and the one that makes the bound on the optimal value tightest.

Source: [KL21] O'Donoghue, *Variational Bayesian Reinforcement Learning with Regret Bounds*, NeurIPS 2021, (10), (11).
"""

from functools import partial
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bayes_mdp.agents.k_learning.k_mixture import KMixture, KOperator, k_operator
from bayes_mdp.agents.k_learning.k_model import KModel, check_options, least_temperature, soften
from bayes_mdp.mdp import CanMean
from bayes_mdp.numerics.products import matmul
from bayes_mdp.utils.typing import ArrayLike, IntScalar, RealLike, RealScalar
from bayes_mdp.utils.validation import check_positive, check_probability_rows, check_shape, is_concrete, require

MAX_ITERATIONS = 60
LARGEST_STEP = 3.0  # in log tau
Tree = TypeVar("Tree")
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
    check_options("paper", span, noise)
    if is_concrete(t):
        require(~(np.asarray(t) >= 1), "t", t, "the number of an episode, 1 or greater")
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
    check_options(bonus, span, noise)
    check_probability_rows("initial", initial)
    if start is not None:
        check_positive("start", start)
    with jax.enable_x64(True):
        wide, rho = _wide(posterior), jnp.asarray(np.array(initial, np.float64))
        answer = _solve(wide, rho, bonus=bonus, span=span, noise=noise, horizon=horizon, start=start or 0.0)
        return jax.device_get(answer)


def _wide(tree: Tree) -> Tree:
    """Copies in JAX arrays, floats in float64."""

    def widen(array: ArrayLike) -> Array:
        floating = jnp.issubdtype(jnp.result_type(array), jnp.floating)
        return jnp.asarray(np.array(array, np.float64 if floating else None))

    return jax.tree.map(widen, tree)


@partial(jax.jit, static_argnames=("bonus", "horizon"))
def _solve(
    posterior: CanMean,
    initial: Float[Array, " S"],
    *,
    bonus: str,
    span: RealLike | None,
    noise: RealScalar,
    horizon: int | None,
    start: RealScalar,
) -> OptimalTemperature:
    model = k_operator(posterior, bonus=bonus, span=span, noise=noise, horizon=horizon, who="optimal_temperature")
    return minimise(model, initial, start)


class _Search(NamedTuple):
    """State of the search for log tau: the point, its bracket, |tau J'| at the last point, the step from there."""

    log_tau: Float[Array, ""]
    below: Float[Array, ""]
    above: Float[Array, ""]
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
    eps, tiny = float(jnp.finfo(dtype).eps), float(jnp.finfo(dtype).tiny)
    initial, start = jnp.asarray(initial, dtype), jnp.asarray(start, dtype)
    # tau^2 of the optimum is of the order of the sum of numerators over that of entropies, both bounded here; the
    # bracket is that centre times eps to 1 / eps.
    most = model.scale()
    certain = most == 0.0
    largest_entropy = horizon * np.log(n_actions)
    centre = 0.5 * jnp.log(jnp.where(certain, 1.0, most) / largest_entropy)
    limits = centre + np.log(eps), centre - np.log(eps)
    first = jnp.where(start > 0, jnp.clip(jnp.log(jnp.maximum(start, tiny)), *limits), centre)
    tolerance = 4.0 * eps**0.5  # the error after a Newton step is of the order of its square

    def going(at: _Search) -> Bool[Array, ""]:
        return (jnp.abs(at.step) > tolerance) & (at.iterations < MAX_ITERATIONS)

    def advance(at: _Search) -> _Search:
        return _advance(at, *derivatives(model, initial, jnp.exp(at.log_tau)), limits)

    far = jnp.asarray(jnp.inf, dtype)
    began = _Search(first, *limits, far, jnp.where(certain, 0.0, far), jnp.zeros((), jnp.int32))
    end = jax.lax.while_loop(going, advance, began)
    tau = jnp.where(certain, least_temperature(dtype), jnp.exp(end.log_tau))
    k, objective, gap = _certify(model, initial, tau)
    tau = jnp.where(certain, 0.0, tau)
    return OptimalTemperature(tau, objective, gap, end.iterations, jnp.abs(end.step) <= tolerance, k)


def _advance(
    at: _Search,
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
    below, above = jnp.where(gradient < 0, at.log_tau, at.below), jnp.where(gradient < 0, at.above, at.log_tau)
    enclosed = (below > limits[0]) & (above < limits[1])
    longer = jnp.where(enclosed, 1.0, 2.0 ** jnp.maximum(at.iterations - PATIENCE, 0).astype(gradient.dtype))
    target = jnp.clip(at.log_tau + longer * _step(gradient, curvature), *limits)
    # Bisect where Newton's step leaves the bracket, or is long and has not halved the gradient.
    far = jnp.abs(target - at.log_tau) > eps**0.25
    slow = far & enclosed & (jnp.abs(gradient) > 0.5 * at.gradient)
    target = jnp.where(slow | (target < below) | (target > above), 0.5 * (below + above), target)
    target = jnp.where(jnp.abs(gradient) <= eps**2 * jnp.abs(value), at.log_tau, target)
    return _Search(target, below, above, jnp.abs(gradient), target - at.log_tau, at.iterations + 1)


def _step(gradient: Float[Array, ""], curvature: Float[Array, ""]) -> Float[Array, ""]:
    """The step in log tau from tau J' and tau^2 J''."""
    least = jnp.finfo(gradient.dtype).tiny
    falling = -gradient / jnp.maximum(gradient + curvature, least)
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
        each = jnp.concatenate([model.weighed(tau, first[:, :2]), first[:, 2:]], 1)
        value, gradient, curvature = matmul(_soft_change(_over_actions(each), tau), initial)
        return value, gradient, curvature
    value, gradient, curvature = matmul(_changes(model, tau), initial)
    return value, gradient, curvature


def _changes(model: KModel, tau: RealScalar, first: int = 0) -> Float[Array, "3 S"]:
    """v, tau v' and tau^2 v'' of step `first`."""

    def step(later: Float[Array, "3 S"], layer: IntScalar) -> tuple[Float[Array, "3 S"], None]:
        return _soft_change(_change(model, tau, later, layer), tau), None

    end = jnp.zeros((3, model.sizes[1]), model.dtype)
    return jax.lax.scan(step, end, jnp.arange(first, model.mean.horizon), reverse=True)[0]


def _change(model: KModel, tau: RealScalar, later: Float[Array, "3 S"], layer: IntScalar) -> Float[Array, "3 S A"]:
    """K, tau K' and tau^2 K'' of one step from v, tau v' and tau^2 v'' of the next; K is -inf where illegal."""
    # tau d/dtau of the bonus c / tau is -c / tau, tau^2 d^2/dtau^2 is 2 c / tau.
    bonus = model.numerator[layer] / tau
    after = jax.vmap(model.mean.expected_next, (0, None))(later, layer)
    k = model.mean.at(model.mean.reward, layer) + bonus + after[0]
    return jnp.stack([model.masked(k), after[1] - bonus, after[2] + 2.0 * bonus])


def _soft_change(change: Float[Array, "3 S A"], tau: RealScalar) -> Float[Array, "3 S"]:
    """v, tau v' and tau^2 v'' of the states from those of K."""
    k, first, second = change
    v, probs, entropy = soften(k, tau)
    moved = jnp.where(jnp.isfinite(k), first - k, 0.0)  # tau K' - K
    squares = (moved - jnp.sum(probs * moved, -1, keepdims=True)) ** 2 / tau
    return jnp.stack([v, tau * entropy + jnp.sum(probs * first, -1), jnp.sum(probs * (second + squares), -1)])


def _over_actions(each: Float[Array, "K M S A"]) -> Float[Array, "M S KA"]:
    """Components and actions as one axis."""
    joined = jnp.moveaxis(each, 0, -2)
    return joined.reshape(*joined.shape[:-2], -1)


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
        now, first = jax.vmap(lambda part, later: _sum(part, tau, later, 0))(model.parts, after)
        weights = jnp.broadcast_to(model.log_weights[:, None, None], first.shape)
        rest = jnp.stack([model.weighed(tau, first), now[:, 0], now[:, 1] + weights], 1)
        value, numerators, entropy = matmul(_soft_sum(_over_actions(rest), tau), initial)
        k = model.joined(tau, jnp.concatenate([first[:, None], k], 1))
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
    after = jax.vmap(model.mean.expected_next, (0, None))(later, layer)
    k = model.masked(model.mean.at(model.mean.reward, layer) + numerator / tau + after[0])
    return jnp.stack([numerator + after[1], after[2]]), k


def _soft_sum(each: Float[Array, "3 S A"], tau: RealScalar) -> Float[Array, "3 S"]:
    """v and expected sums of the states, from K and sums of the pairs."""
    k, numerators, entropies = each
    v, probs, entropy = soften(k, tau)
    return jnp.stack([v, jnp.sum(probs * numerators, -1), entropy + jnp.sum(probs * entropies, -1)])
