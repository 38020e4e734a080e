"""VAPOR: the policy of an occupancy that approximates the posterior probability that a pair is on the optimal path.

[VAPOR23] Tarbouriech, Lattimore and O'Donoghue, *Probabilistic Inference in Reinforcement Learning Done Right*, NeurIPS
2023. Over the occupancies d [H S A] of the posterior-mean MDP, with r the mean reward of a pair and sigma its
sub-Gaussian scale, into which the uncertainty of its row is moved,

    maximise  sum d r + sum sigma phi(d),    phi(d) = d sqrt(-2 log d),

which is max_d min_tau sum d (r + sigma^2 / (2 tau)) - tau d log d, a temperature tau for every pair. The dual has no
constraints and a closed form: for any values V [H S], V_H = 0,

    D(V) = initial . V_0 + sum g(r + P V_next - V),    g(x) = max_{0 <= d <= 1} d x + sigma phi(d)
                                                            = sigma exp(-t^2/2) / t,    y = x / sigma,

where d = exp(-t^2/2) attains it, with t = (sqrt(y^2 + 4) - y) / 2. It bounds the optimum from above.

The method (ours, no claim of the paper): given the masses m of the present occupancy, one backward pass finds the V at
which the d of every state add up to m, and with it a policy and a bound; one forward pass gives its occupancy; the next
one lies between, where the concave objective is largest. A fixed point satisfies the conditions of optimality.

Where only rewards are unknown, and sigma is right for them, the optimum is at least the posterior mean of the optimal
value. Here sigma^2 is twice temperature times bonus of K-learning (`k_learning`): the two agents differ in one
temperature for all pairs (K-learning) and one for each (VAPOR), and in the entropy that it multiplies, that of the
actions in a state (K-learning) and that of the pairs of a step (VAPOR). The constant of the transition term was not
compared with the paper's text; `span` can express a larger one. In this order: the program and its solution; the
program of a belief; the agent.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bayes_mdp.agents.common.replan import ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import Boltzmann
from bayes_mdp.agents.common.variance_equation import require_variances
from bayes_mdp.agents.optimism.k_model import Bonus, k_model
from bayes_mdp.mdp import CanCount, CanMean, Episodic, HasVariances, Problem
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.mdp.objectives import require_objective
from bayes_mdp.numerics.products import matmul
from bayes_mdp.planning.extended_mdp import as_mask
from bayes_mdp.planning.solution import where_legal
from bayes_mdp.utils.typing import ArrayLike, IntScalar, RealLike, RealScalar
from bayes_mdp.utils.validation import (
    check_count,
    check_finite,
    check_positive,
    check_probability_rows,
    check_shape,
    is_concrete,
    require,
)

ExpectedNext = Callable[[Float[Array, " S"], IntScalar], Float[Array, "S A"]]

Values = Float[Array, " S"]
Number = Float[Array, ""]

_NEWTON_STEPS = 14
_HALVINGS = 22


def _float(x: ArrayLike) -> Array:
    return x if isinstance(x, jax.Array) else jnp.asarray(x, float)


class VaporProblem(eqx.Module):
    """What VAPOR maximises over occupancies.

    Args:
        reward: [H S A], mean reward.
        sigma: [H S A], sub-Gaussian scale of what is unknown of a pair, units of the reward; zero: nothing is.
        initial: [S], distribution of the first state.
        legal: Bool[S A], or None.

    Raises:
        ValueError: shapes disagree, a number is not finite, a sigma is negative, `initial` is no distribution.
    """

    reward: Float[Array, "H S A"] = eqx.field(converter=_float)
    sigma: Float[Array, "H S A"] = eqx.field(converter=_float)
    initial: Float[Array, " S"] = eqx.field(converter=_float)
    legal: Bool[Array, "S A"] | None = eqx.field(default=None, converter=as_mask)

    def __check_init__(self) -> None:
        shape = jnp.shape(self.reward)
        if len(shape) != 3:
            raise ValueError(f"reward has shape {shape}, expected [step, state, action]")
        check_shape("sigma", self.sigma, shape, "as reward")
        check_shape("initial", self.initial, shape[1:2], "state")
        if self.legal is not None:
            check_shape("legal", self.legal, shape[1:], "state, action")
        if is_concrete(self):
            check_finite("reward", self.reward)
            sigma = np.asarray(self.sigma)
            require(~(np.isfinite(sigma) & (sigma >= 0)), "sigma", sigma, "a finite number, zero or greater")
            check_probability_rows("initial", self.initial)

    def objective(self, occupancy: Float[Array, "H S A"]) -> Float[Array, ""]:
        """sum d r + sum sigma d sqrt(-2 log d)."""
        return jnp.sum(occupancy * self.reward) + jnp.sum(self.sigma * occupancy * _depth(occupancy))

    def scale(self) -> Float[Array, ""]:
        """Sum over steps of the largest |r| + sigma: the unit of the tolerance."""
        return jnp.sum(jnp.max(where_legal(jnp.abs(self.reward) + self.sigma, self.legal, 0.0), axis=(-2, -1)))


class VaporPlan(eqx.Module):
    """An occupancy, its policy, and how far it may be from optimal.

    Args:
        occupancy: [H S A], probability of each pair at each step.
        policy: [H S A], probabilities of actions; also in states that are never reached.
        value: the objective at `occupancy`.
        bound: an upper bound of the optimum (the dual), but for rounding.
        converged: bound - value is at most the tolerance.
        iterations: backward passes.
    """

    occupancy: Float[Array, "H S A"]
    policy: Float[Array, "H S A"]
    value: Float[Array, ""]
    bound: Float[Array, ""]
    converged: Bool[Array, ""]
    iterations: Int[Array, ""]

    @property
    def gap(self) -> Float[Array, ""]:
        """bound - value: an optimal occupancy is better by at most this."""
        return jnp.maximum(self.bound - self.value, 0.0)


def solve_vapor(
    problem: VaporProblem,
    expected_next: ExpectedNext,
    *,
    start: Float[Array, "H S A"] | None = None,
    num_iterations: IntScalar = 100,
    tolerance: RealScalar = 1e-3,
    smoothing: RealScalar = 0.01,
) -> VaporPlan:
    """Solve VAPOR's program. Pure and traceable, one element.

    Where no sigma is much smaller than the largest, the gap fell by a constant factor an iteration in all our trials. A
    sigma below `smoothing` times the largest is raised to that while it is searched (not in `value` and `bound`):
    without kinks the search does not zigzag. What is lost shows in the gap.

    Args:
        problem: rewards, scales, initial distribution.
        expected_next: (values of the next states, step) -> sum_s' P(s' | s, a) values(s') [S A]; it must be linear in
            the values, and zero at an end.
        start: [H S A], a policy to start from; None: uniform over legal actions.
        num_iterations: at most so many backward passes.
        tolerance: the gap that is enough, in units of `problem.scale()`.
        smoothing: see above, greater than 0.

    Raises:
        ValueError: `start` has another shape, `tolerance` or `smoothing` is not positive; not inside a trace.
    """
    for name, number in (("tolerance", tolerance), ("smoothing", smoothing)):
        check_positive(name, number)
    probs = _uniform(problem) if start is None else jnp.asarray(start, problem.reward.dtype)
    check_shape("start", probs, problem.reward.shape, "step, state, action")
    # Where sigma is 0 the objective has kinks: small sigmas are raised while it is searched.
    searched = eqx.tree_at(lambda p: p.sigma, problem, jnp.maximum(problem.sigma, smoothing * _unit(problem)))
    enough = tolerance * problem.scale()

    def improve(search: _Search) -> _Search:
        # Backward: values, policy and dual bound for the present masses. Forward: the occupancy of that policy.
        response, bounds = _respond(problem, searched, expected_next, search.occupancy.sum(-1))
        towards = occupancy_of(response, problem.initial, expected_next)
        # The set of occupancies is convex and the objective concave: the best point between the two is no worse.
        step = _line_search(searched, search.occupancy, towards)
        occupancy = (1.0 - step) * search.occupancy + step * towards
        values = problem.objective(occupancy), searched.objective(occupancy)
        # Every D(V) is an upper bound; the least so far is kept.
        bounds = jax.tree.map(jnp.minimum, bounds, search.bounds)
        return _Search(occupancy, response, values, bounds, search.iterations + 1)

    def going(search: _Search) -> Bool[Array, ""]:
        # Stop at the gap of the problem itself, or when the smoothed search has nothing left to gain.
        gap, searched_gap = (bound - value for bound, value in zip(search.bounds, search.values, strict=True))
        return (search.iterations < num_iterations) & ~(gap <= enough) & ~(searched_gap <= enough / 8)

    occupancy = occupancy_of(probs, problem.initial, expected_next)
    infinite = jnp.full((), jnp.inf, occupancy.dtype)
    values = problem.objective(occupancy), searched.objective(occupancy)
    first = _Search(occupancy, probs, values, (infinite, infinite), jnp.zeros((), jnp.int32))
    end = lax.while_loop(going, improve, first)
    value, bound = end.values[0], end.bounds[0]
    return VaporPlan(end.occupancy, _policy_of(end), value, bound, bound - value <= enough, end.iterations)


def occupancy_of(
    policy: Float[Array, "H S A"], initial: Float[Array, " S"], expected_next: ExpectedNext
) -> Float[Array, "H S A"]:
    """Probability of each pair at each step under a policy, by the transpose of `expected_next`."""

    def step(present: Float[Array, " S"], layer: IntScalar) -> tuple[Float[Array, " S"], Float[Array, "S A"]]:
        pairs = present[:, None] * policy[layer]
        push = jax.linear_transpose(lambda values: expected_next(values, layer), present)
        return push(pairs)[0], pairs

    return lax.scan(step, jnp.asarray(initial, policy.dtype), jnp.arange(policy.shape[0]))[1]


class _Search(NamedTuple):
    """The present occupancy; values and bounds of the problem and of what is searched in its place."""

    occupancy: Float[Array, "H S A"]
    response: Float[Array, "H S A"]
    values: tuple[Float[Array, ""], Float[Array, ""]]
    bounds: tuple[Float[Array, ""], Float[Array, ""]]
    iterations: Int[Array, ""]


def _policy_of(search: _Search) -> Float[Array, "H S A"]:
    """Of the occupancy; where that never comes, the last response."""
    mass = search.occupancy.sum(-1, keepdims=True)
    reached = mass > _tiny(mass)
    return jnp.where(reached, search.occupancy / jnp.where(reached, mass, 1.0), search.response)


def _tiny(like: Array) -> float:
    return float(jnp.finfo(like.dtype).tiny ** 0.8)


def _unit(problem: VaporProblem) -> Float[Array, ""]:
    """The largest sigma; where everything is known the largest |reward|, or 1."""
    sigma, reward = (jnp.max(where_legal(jnp.abs(x), problem.legal, 0.0)) for x in (problem.sigma, problem.reward))
    return jnp.where(sigma > 0, sigma, jnp.where(reward > 0, reward, 1.0))


def _uniform(problem: VaporProblem) -> Float[Array, "H S A"]:
    legal = where_legal(jnp.ones_like(problem.reward), problem.legal, 0.0)
    return legal / legal.sum(-1, keepdims=True)


def _depth(occupancy: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """t = sqrt(-2 log d), finite where d is 0."""
    return jnp.sqrt(-2.0 * jnp.log(jnp.clip(occupancy, _tiny(occupancy), 1.0)))


def _gradient(occupancy: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """phi'(d) = t - 1 / t, finite at d = 0 and d = 1."""
    t = jnp.sqrt(-2.0 * jnp.log(jnp.clip(occupancy, _tiny(occupancy), 1.0 - jnp.finfo(occupancy.dtype).eps)))
    return t - 1.0 / t


def _maximiser(advantage: Float[Array, "*n"], sigma: Float[Array, "*n"]) -> tuple[Float[Array, "*n"], ...]:
    """t of the d that attains g(advantage), and hypot(y, 2)."""
    # t = (sqrt(y^2 + 4) - y) / 2; for y > 0 in the form without cancellation.
    y = advantage / sigma
    root = jnp.hypot(y, 2.0)
    return jnp.where(y < 0, 0.5 * (root - y), 2.0 / (root + jnp.maximum(y, 0.0))), root


def _value_of_mass(q: Float[Array, "S A"], sigma: Float[Array, "S A"], mass: Float[Array, " S"]) -> Float[Array, " S"]:
    """v at which the d of the actions add up to `mass`: Newton's method on the logarithm, kept within a bracket."""
    mass = jnp.clip(mass, _tiny(mass), 1.0 - jnp.finfo(mass.dtype).eps)
    # One action may carry the whole mass (lower end), or the best one at least mass / A (upper end): phi' at these.
    low = jnp.max(q + sigma * _gradient(mass)[:, None], -1)
    high = jnp.max(q + sigma * _gradient(mass / q.shape[-1])[:, None], -1)
    target = jnp.log(mass)

    def step(_: IntScalar, bracket: tuple[Values, Values, Values]) -> tuple[Values, Values, Values]:
        low, high, v = bracket
        # log d = -t^2 / 2 for every action; their sum over actions against the target, on the log scale.
        t, root = _maximiser(q - v[:, None], sigma)
        logs = -0.5 * t**2
        excess = jax.nn.logsumexp(logs, -1) - target
        # d log(d) / dv = -t^2 / (sigma hypot(y, 2)); an illegal action has weight zero and an infinite derivative
        weight = jax.nn.softmax(logs, -1)
        derivative = jnp.sum(jnp.where(weight > 0, weight * t**2 / (sigma * root), 0.0), -1)
        low, high = jnp.where(excess > 0, v, low), jnp.where(excess > 0, high, v)
        # A Newton step that leaves the bracket is replaced by its middle.
        new = v + excess / derivative
        return low, high, jnp.where((new >= low) & (new <= high), new, 0.5 * (low + high))

    return lax.fori_loop(0, _NEWTON_STEPS, step, (low, high, high))[2]


def _respond(
    problem: VaporProblem, searched: VaporProblem, expected_next: ExpectedNext, mass: Float[Array, "H S"]
) -> tuple[Float[Array, "H S A"], tuple[Number, ...]]:
    """The policy of the values at which the d of every state add up to its mass; the dual D there, of both problems."""

    def step(
        values: Float[Array, " S"], layer: IntScalar
    ) -> tuple[Values, tuple[Float[Array, "S A"], tuple[Number, ...]]]:
        q = where_legal(problem.reward[layer] + expected_next(values, layer), problem.legal)
        v = _value_of_mass(q, searched.sigma[layer], mass[layer])
        # The policy is d over its sum; D adds g(advantage) of every pair to the value of the start.
        advantage = q - v[:, None]
        probs = jax.nn.softmax(-0.5 * _maximiser(advantage, searched.sigma[layer])[0] ** 2, -1)
        return v, (probs, tuple(jnp.sum(_conjugate(advantage, p.sigma[layer])) for p in (problem, searched)))

    end = jnp.zeros_like(problem.reward[0, :, 0])
    first, (policy, conjugates) = lax.scan(step, end, jnp.arange(problem.reward.shape[0]), reverse=True)
    return policy, tuple(matmul(problem.initial, first) + jnp.sum(terms) for terms in conjugates)


def _conjugate(advantage: Float[Array, "S A"], sigma: Float[Array, "S A"]) -> Float[Array, "S A"]:
    """g; without any sigma the positive part. An illegal action (-inf) has none."""
    unknown = sigma > 0
    t, _ = _maximiser(advantage, jnp.where(unknown, sigma, 1.0))
    return jnp.where(unknown, sigma * jnp.exp(-0.5 * t**2) / t, jnp.maximum(advantage, 0.0))


def _line_search(
    searched: VaporProblem, current: Float[Array, "H S A"], response: Float[Array, "H S A"]
) -> Float[Array, ""]:
    """Where the concave objective is largest between two occupancies, by halving on its derivative."""
    direction = response - current

    def halve(_: IntScalar, bracket: tuple[Number, Number]) -> tuple[Number, Number]:
        low, high = bracket
        middle = 0.5 * (low + high)
        # Directional derivative sum (d' - d) (r + sigma phi'(d)); positive: the maximum is further on.
        gradient = searched.reward + searched.sigma * _gradient(current + middle * direction)
        rising = jnp.sum(jnp.where(direction == 0, 0.0, direction * gradient)) > 0
        return jnp.where(rising, middle, low), jnp.where(rising, high, middle)

    zero = jnp.zeros((), current.dtype)
    return lax.fori_loop(0, _HALVINGS, halve, (zero, zero + 1.0))[1]


def vapor_problem(
    posterior: CanMean,
    initial: ArrayLike,
    *,
    bonus: str = "paper",
    span: RealLike | None = None,
    noise: RealScalar = 1.0,
    horizon: int | None = None,
) -> tuple[VaporProblem, ExpectedNext]:
    """VAPOR's program for a belief: mean rewards and sigma, and the mean rows as a function. Traceable.

    sigma^2 = (noise^2 + span_l^2) / max(n, 1) with bonus="paper", n the visits: posterior means and visit counts
    replace the paper's estimates, and a Dirichlet prior with concentration -> 0 gives the empirical ones.

    Args:
        posterior: with a mean, visit counts and the variances of `HasVariances`.
        initial: [S], distribution of the first state.
        bonus, span, noise, horizon: as in `k_learning.k_values`.

    Raises:
        ValueError, TypeError: as `k_learning.k_values`; `initial` is no distribution.
    """
    model = k_model(posterior, Bonus(bonus, span, noise), horizon=horizon, who="VAPOR")
    # K-learning's bonus is sigma^2 / (2 tau): the same sub-Gaussian scale of a pair, without the temperature.
    sigma = jnp.sqrt(2.0 * model.numerator)
    reward = jnp.broadcast_to(model.mean.reward, sigma.shape)
    problem = VaporProblem(reward, sigma, jnp.asarray(initial, reward.dtype), model.mean.legal)
    return problem, model.mean.expected_next


class VaporPolicy(Boltzmann):
    """Actions with probability proportional to the occupancy of their pairs; `q` are log-probabilities.

    Args:
        plan: occupancy, objective, bound of the optimum.
    """

    plan: VaporPlan

    def __init__(self, plan: VaporPlan) -> None:
        self.plan = plan
        super().__init__(jnp.log(plan.policy), jnp.ones((), plan.policy.dtype))

    @property
    def occupancy(self) -> Float[Array, "H S A"]:
        """d: approximately the posterior probability that a pair is on the optimal path."""
        return self.plan.occupancy


class VAPOR(eqx.Module):
    """VAPOR [VAPOR23] for `Episodic` objectives: solve the program before every plan, act by its occupancy.

    Args:
        bonus, span, noise: as in `k_learning.k_values`.
        num_iterations: largest number of passes of the solver per plan; it starts from the policy of the last plan.
        tolerance: the gap of the objective at which the solver stops (see `solve_vapor`).
        replan: as in `PSRL`.

    Raises:
        ValueError, TypeError: another bonus, a negative `span` or `noise`, no iterations, a tolerance that is not
            positive.
    """

    bonus: str = eqx.field(default="paper", static=True)
    span: float | Array | None = eqx.field(default=None, kw_only=True)
    noise: float | Array = eqx.field(default=1.0, kw_only=True)
    num_iterations: int = eqx.field(default=30, static=True, kw_only=True)
    tolerance: float | Array = eqx.field(default=1e-3, kw_only=True)
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule, kw_only=True)

    def __check_init__(self) -> None:
        Bonus(self.bonus, self.span, self.noise)  # which checks its numbers
        check_count("num_iterations", self.num_iterations)
        check_positive("tolerance", self.tolerance)

    def init(self, key: PRNGKeyArray, problem: Problem) -> Float[Array, "H S A"]:
        """The state is the last policy: uniform over legal actions before any plan.

        Raises:
            ValueError: an objective other than `Episodic`; no initial distribution.
        """
        del key
        space, horizon = problem.space, require_objective(problem.objective, "VAPOR", Episodic).horizon
        if problem.initial is None:
            raise ValueError("initial is None, expected a distribution over the first state for VAPOR")
        pairs = jnp.ones(space.shape[-2:]) if space.legal is None else jnp.asarray(space.legal, float)
        return jnp.broadcast_to(pairs / pairs.sum(-1, keepdims=True), (horizon, *pairs.shape))

    def check_belief(self, belief: object) -> None:
        """Refuse a belief that a plan cannot use (inside a trace: by its methods alone).

        Raises:
            ValueError: with bonus="posterior", a variance of a mean reward does not exist. TypeError: no mean, counts
                or variances.
        """
        for ability in (CanMean, CanCount, HasVariances):
            require_ability(belief, ability, "VAPOR", instead="KLearning")
        if self.bonus == "posterior":
            require_variances(belief)

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: Float[Array, "H S A"], belief: CanMean
    ) -> tuple[VaporPolicy, Float[Array, "H S A"]]:
        """The policy of the occupancy, and its probabilities. No random number is used.

        Raises:
            TypeError: an ability is missing. ValueError: as `init`.
        """
        del key
        assert problem.initial is not None  # as `init` checks
        # One temperature a pair, all of them inside the program: none is chosen here.
        program, expected_next = vapor_problem(
            belief,
            problem.initial,
            bonus=self.bonus,
            span=self.span,
            noise=self.noise,
            horizon=require_objective(problem.objective, "VAPOR", Episodic).horizon,
        )
        # A warm start from the last policy; the solver stops at a proven gap, or after so many passes.
        plan = solve_vapor(
            program, expected_next, start=state, num_iterations=self.num_iterations, tolerance=self.tolerance
        )
        return VaporPolicy(plan), plan.policy.astype(state.dtype)
