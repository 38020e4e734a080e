"""Tabular policies shared by the agents: greedy, Boltzmann, epsilon-greedy, Gaussian Thompson sampling.

A policy is `act(key, state, step) -> action` and `log_prob(state, action, step)`: `act` draws from exp(log_prob), so an
agent is also a likelihood of behaviour. Arrays [*H S A] have the axis H where they depend on the step of an episode. An
illegal action has q (or mean) -inf: its probability is zero. The probability that one of several normal numbers is the
largest is a quadrature where they are independent (`prob_best_factored`), else a lattice rule (`prob_best_joint`).
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr, ndtri
from jax.scipy.stats import norm
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from bayes_mdp.numerics.products import matmul
from bayes_mdp.planning.solution import best_action
from bayes_mdp.renamed import old_attribute
from bayes_mdp.utils.typing import ArrayLike, IntScalar, RealScalar
from bayes_mdp.utils.validation import (
    as_indices,
    as_mask,
    as_real,
    check_finite,
    check_fraction,
    check_index,
    check_not_negative,
    check_shape,
    check_that,
    is_concrete,
    require,
)


def mask_illegal(q: ArrayLike, legal: ArrayLike | None) -> Float[Array, "*H S A"]:
    """`q` with -inf where `legal` [S A] is false.

    Raises:
        ValueError: `q` is not [S A] or [H S A], or nan; `legal` is not [S A].
        TypeError: `q` is no array of numbers, `legal` not one of booleans.
    """
    # Host values are checked; arrays of the device are not copied back for it.
    if is_concrete(q) and not isinstance(q, jax.Array):
        q = as_real("q", q, "a number")
        require(np.isnan(q), "q", q, "a number")
    q = jnp.asarray(q)
    if q.ndim not in (2, 3):
        raise ValueError(f"q has shape {q.shape}, expected [state, action] or [step, state, action]")
    if legal is None:
        return q
    mask = as_mask("legal", legal)
    check_shape("legal", mask, q.shape[-2:], "state, action")
    return jnp.where(mask, q, -jnp.inf)


def lookup(table: Shaped[Array, "..."], axes: int, state: IntScalar, step: IntScalar) -> Shaped[Array, "..."]:
    """The entry of a `table` [*H S ...] for a `state` at a `step`; `axes` is the number of axes that follow S."""
    # A table without the axis of steps is the same at every step.
    return table[state] if table.ndim == 1 + axes else table[step, state]


def _log(probability: Float[Array, ""]) -> Float[Array, ""]:
    return jnp.log(jnp.maximum(probability, 0.0))  # quadrature may give a tiny negative number


class TablePolicy(eqx.Module):
    """A policy made of arrays [*H S A]: its sizes, which the planners compare with those of the MDP."""

    @abc.abstractmethod
    def act(self, key: PRNGKeyArray, state: IntScalar, step: IntScalar = 0) -> Int[Array, ""]:
        """An action."""

    @abc.abstractmethod
    def log_prob(self, state: IntScalar, action: IntScalar, step: IntScalar = 0) -> Float[Array, ""]:
        """Log-probability of an action."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(*H, S, A); without H where the actions do not depend on the step of an episode."""
        return jax.tree.leaves(self)[0].shape

    horizon = old_attribute(
        "policy.horizon is the first of three numbers of policy.shape",
        lambda self: self.shape[0] if len(self.shape) == 3 else None,
    )
    n_states = old_attribute("policy.n_states is policy.shape[-2]", lambda self: self.shape[-2])
    n_actions = old_attribute("policy.n_actions is policy.shape[-1]", lambda self: self.shape[-1])


class Greedy(TablePolicy):
    """The action of the largest q; ties go to the first, unless `best` is given.

    Args:
        q: Float[*H S A].
        legal: Bool[S A], or None: all actions whose q is not -inf.
        best: Int[*H S], the actions taken; None: from q. A planner's policy is more than its q: where rewards are
            undiscounted, an action that never ends may tie with one that does.

    Raises:
        ValueError: `best` has another shape, or holds an action that does not exist.
        TypeError: `best` holds no integers.

    Example:
        >>> policy = bm.agents.Greedy(jnp.array([[0.0, 1.0], [3.0, 2.0]]))
        >>> int(policy.act(jax.random.key(0), 1))
        0
    """

    q: Float[Array, "*H S A"]
    best: Int[Array, "*H S"]

    def __init__(self, q: ArrayLike, legal: ArrayLike | None = None, *, best: ArrayLike | None = None) -> None:
        self.q = mask_illegal(q, legal)
        if best is None:
            self.best = best_action(self.q)
            return
        # An array of the device is not copied back to be checked.
        actions = best if isinstance(best, jax.Array) else jnp.asarray(as_indices("best", best, "action"))
        if actions is not best:
            # Actions in range, and one for each state.
            check_index("best", actions, self.shape[-1], "action")
        check_shape("best", actions, self.q.shape[:-1], "(step,) state")
        self.best = actions

    def act(self, key: PRNGKeyArray, state: IntScalar, step: IntScalar = 0) -> Int[Array, ""]:
        """The best action (no random number is used)."""
        del key
        return lookup(self.best, 0, state, step)

    def log_prob(self, state: IntScalar, action: IntScalar, step: IntScalar = 0) -> Float[Array, ""]:
        """0 for the best action, else -inf."""
        return jnp.where(action == lookup(self.best, 0, state, step), 0.0, -jnp.inf).astype(self.q.dtype)


class Boltzmann(TablePolicy):
    """Actions with probability proportional to exp(q / temperature).

    Args:
        q: Float[*H S A].
        temperature: greater than 0; a number.
        legal: Bool[S A], or None.

    Raises:
        ValueError: `temperature` is not greater than 0.
        TypeError: no number.

    Example:
        >>> policy = bm.agents.Boltzmann(jnp.array([[0.0, 1.0]]), temperature=1.0)
        >>> round(float(jnp.exp(policy.log_prob(0, 1))), 3)
        0.731
    """

    q: Float[Array, "*H S A"]
    temperature: RealScalar

    def __init__(self, q: ArrayLike, temperature: RealScalar, legal: ArrayLike | None = None) -> None:
        self.q, self.temperature = mask_illegal(q, legal), temperature
        check_that("temperature", temperature, lambda x: x > 0, "a number greater than 0")

    def act(self, key: PRNGKeyArray, state: IntScalar, step: IntScalar = 0) -> Int[Array, ""]:
        """An action."""
        return jax.random.categorical(key, lookup(self.q, 1, state, step) / self.temperature)

    # log softmax(q / temperature).
    def log_prob(self, state: IntScalar, action: IntScalar, step: IntScalar = 0) -> Float[Array, ""]:
        """Log-probability, exact."""
        return jax.nn.log_softmax(lookup(self.q, 1, state, step) / self.temperature)[action]


class EpsilonGreedy(TablePolicy):
    """The best action (ties: the first), but with probability `epsilon` a legal one drawn uniformly.

    Args:
        q: Float[*H S A].
        epsilon: in [0, 1].
        legal: Bool[S A], or None.

    Raises:
        ValueError: `epsilon` lies outside [0, 1].
        TypeError: no number.

    Example:
        >>> policy = bm.agents.EpsilonGreedy(jnp.array([[0.0, 1.0]]), epsilon=0.1)
        >>> round(float(jnp.exp(policy.log_prob(0, 0))), 3)
        0.05
    """

    q: Float[Array, "*H S A"]
    epsilon: RealScalar

    def __init__(self, q: ArrayLike, epsilon: RealScalar, legal: ArrayLike | None = None) -> None:
        self.q, self.epsilon = mask_illegal(q, legal), epsilon
        check_fraction("epsilon", epsilon)

    def _probs(self, state: IntScalar, step: IntScalar) -> Float[Array, " A"]:
        q = lookup(self.q, 1, state, step)
        allowed = q > -jnp.inf
        best = jnp.arange(q.shape[-1]) == best_action(q)
        # epsilon / A' on each of the A' legal actions, and 1 - epsilon on the best of them.
        return jnp.asarray((1.0 - self.epsilon) * best + self.epsilon * allowed / jnp.sum(allowed))

    def act(self, key: PRNGKeyArray, state: IntScalar, step: IntScalar = 0) -> Int[Array, ""]:
        """An action, by inversion of the distribution function: one uniform number."""
        cumulative = jnp.cumsum(self._probs(state, step))
        u = jax.random.uniform(key, dtype=cumulative.dtype)
        return jnp.sum(u * cumulative[-1] >= cumulative[:-1], dtype=int)

    def log_prob(self, state: IntScalar, action: IntScalar, step: IntScalar = 0) -> Float[Array, ""]:
        """Log-probability, exact."""
        return _log(self._probs(state, step)[action])


def epsilon_greedy_action(
    u: RealScalar, q: Float[Array, " A"], epsilon: RealScalar, *, masked: bool = True
) -> Int[Array, ""]:
    """The action of `EpsilonGreedy` from one uniform number: below epsilon, u / epsilon picks the legal action.

    Args:
        u: in [0, 1).
        q: of the actions of a state, -inf where one is illegal.
        epsilon: in [0, 1].
        masked: False: all actions are legal (saves a cumulative sum).
    """
    # Given u < epsilon, u / epsilon is uniform again: no second random number is needed.
    share = u / jnp.maximum(epsilon, jnp.finfo(q.dtype).tiny)
    # Legal actions are counted; the one of rank floor(share * number) is drawn.
    if masked:
        rank = jnp.cumsum(q > -jnp.inf)
        drawn = jnp.sum(rank <= jnp.floor(share * rank[-1]), dtype=jnp.int32)
    else:
        drawn = jnp.floor(share * q.shape[-1]).astype(jnp.int32)
    return jnp.where(u < epsilon, jnp.minimum(drawn, q.shape[-1] - 1), best_action(q))


class GaussianThompson(TablePolicy):
    """The best action of a Gaussian draw of q(state, .): a new draw at every step, or one for the whole plan (`hold`).

    Given the object, `act` draws from exp(log_prob): with `noise` the policy is deterministic. The probability of an
    action before the noise is drawn is `log_prob` of the policy without `noise`.

    Args:
        mean: Float[*H S A].
        sd: Float[*H S A], zero or greater: the actions of a state are independent (factored); or
        factor: Float[*H S A A], lower Cholesky factor of the covariance of the actions of each state (joint).
            One of both.
        noise: Float[*H S A], standard normal draws for the whole plan, or None: new ones at every step.
        legal: Bool[S A], or None.

    Raises:
        ValueError: not exactly one of `sd` and `factor`, or shapes that do not fit.
    """

    mean: Float[Array, "*H S A"]
    sd: Float[Array, "*H S A"] | None
    factor: Float[Array, "*H S A A"] | None
    noise: Float[Array, "*H S A"] | None

    def __init__(
        self,
        mean: ArrayLike,
        sd: ArrayLike | None = None,
        *,
        factor: ArrayLike | None = None,
        noise: ArrayLike | None = None,
        legal: ArrayLike | None = None,
    ) -> None:
        self.mean = mask_illegal(mean, legal)
        for name, option in (("sd", sd), ("factor", factor), ("noise", noise)):
            if option is not None and not isinstance(option, jax.Array) and is_concrete(option):
                (check_not_negative if name == "sd" else check_finite)(name, option)
        self.sd, self.factor, self.noise = (None if x is None else jnp.asarray(x) for x in (sd, factor, noise))
        # Independent noise by sd, correlated noise by a factor.
        if (sd is None) == (factor is None):
            raise ValueError("sd and factor: expected exactly one of them")
        shape, n_actions = self.mean.shape, self.mean.shape[-1]
        for name, array, expected in (
            ("sd", sd, shape),
            ("factor", factor, (*shape, n_actions)),
            ("noise", noise, shape),
        ):
            if array is not None and np.shape(array) != expected:
                raise ValueError(f"{name} has shape {np.shape(array)}, expected {expected}")

    def hold(self, key: PRNGKeyArray) -> "GaussianThompson":
        """The same policy with one draw of the noise, used at every step.

        Args:
            key: of the draw.
        """
        # One draw for the whole plan, as in posterior sampling.
        noise = jax.random.normal(key, self.mean.shape, self.mean.dtype)
        return GaussianThompson(self.mean, self.sd, factor=self.factor, noise=noise)

    def draw(self, key: PRNGKeyArray | None, state: IntScalar, step: IntScalar = 0) -> Float[Array, " A"]:
        """A draw of the values of all actions in `state` at `step`.

        With `noise` that of the plan; `key` is then not used.
        """
        mean = lookup(self.mean, 1, state, step)
        if self.noise is not None:
            z = lookup(self.noise, 1, state, step)
        else:
            assert key is not None  # only a policy with noise is called without a key
            z = jax.random.normal(key, mean.shape, mean.dtype)
        if self.sd is not None:
            # Independent actions; below: L z, correlated ones.
            return mean + lookup(self.sd, 1, state, step) * z
        assert self.factor is not None  # as `__init__` checks
        return mean + matmul(lookup(self.factor, 2, state, step), z)

    def act(self, key: PRNGKeyArray, state: IntScalar, step: IntScalar = 0) -> Int[Array, ""]:
        """The best action of the draw; ties go to the first."""
        return best_action(self.draw(key, state, step))

    def log_prob(self, state: IntScalar, action: IntScalar, step: IntScalar = 0) -> Float[Array, ""]:
        """Log-probability that `action` is the best of a draw.

        With `noise`: 0 or -inf. Two actions: exact. More, factored: quadrature, absolute error below 1e-6 in float32
        and 1e-9 in float64. More, joint: a deterministic lattice rule [GENZ92], absolute error about 1e-3.
        """
        mean = lookup(self.mean, 1, state, step)
        if self.noise is not None:
            return jnp.where(action == best_action(self.draw(None, state, step)), 0.0, -jnp.inf).astype(mean.dtype)
        # Two actions: a difference of normals, exact.
        two = mean.shape[-1] == 2
        if self.sd is None:
            assert self.factor is not None  # as `__init__` checks
            factor = lookup(self.factor, 2, state, step)
            return _log_prob_of_two(mean, factor, action) if two else _log(prob_best_joint(mean, factor, action))
        sd = lookup(self.sd, 1, state, step)
        return _log_prob_of_two(mean, jnp.diag(sd), action) if two else _log(prob_best_factored(mean, sd, action))


def _log_prob_of_two(mean: Float[Array, " 2"], factor: Float[Array, "2 2"], action: IntScalar) -> Float[Array, ""]:
    """Exact: the difference of two normal numbers is normal. A tie without variance goes to the first action."""
    # P(x_a > x_b) = Phi((m_a - m_b) / sd(x_a - x_b)), sd the norm of the difference of two rows of the factor.
    gap = mean[action] - mean[1 - action]
    sd = jnp.linalg.norm(factor[action] - factor[1 - action])
    certain = (gap > 0) | ((gap == 0) & (action == 0))
    sure = (sd == 0) | ~jnp.isfinite(gap)  # no variance, or an illegal action: 0 or 1
    inside = norm.logcdf(jnp.where(sure, 0.0, gap / jnp.where(sd == 0, 1.0, sd)))
    return jnp.where(sure, jnp.where(certain, 0.0, -jnp.inf), inside)


class OneAction(eqx.Module):
    """The action of one state and step, for agents that plan for these alone.

    Args:
        action: Int[].
    """

    action: Int[Array, ""]

    def act(self, key: PRNGKeyArray, state: IntScalar, step: IntScalar) -> Int[Array, ""]:
        """The action, wherever it is asked for."""
        del key, state, step
        return self.action

    def log_prob(self, state: IntScalar, action: IntScalar, step: IntScalar) -> Float[Array, ""]:
        """Zero for the action, minus infinity for every other."""
        del state, step
        return jnp.where(action == self.action, 0.0, -jnp.inf)


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_KINKS = np.array([-8.0, -4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 8.0])
_RANGE = 8.5
_NUM_POINTS = 1021


def prob_best_factored(mean: Float[Array, " A"], sd: Float[Array, " A"], action: IntScalar) -> Float[Array, ""]:
    """P(argmax = action) of independent normals: int phi(z) prod_b Phi((mean_a + sd_a z - mean_b) / sd_b) dz.

    Gauss-Legendre on pieces that resolve every factor, however narrow. Standard deviations below eps times the largest
    are raised to that. Of the actions with standard deviation zero only the first of the largest mean can win, as in
    `argmax`.

    Args:
        mean: value of each action; -inf where it is illegal.
        sd: standard deviation of each.
        action: index of the action.
    """
    # Ties of actions without variance are decided beforehand: all but the first get mean -inf.
    fixed = sd == 0
    winner = jnp.argmax(jnp.where(fixed, mean, -jnp.inf))
    mean = jnp.where(fixed & (jnp.arange(mean.shape[-1]) != winner), -jnp.inf, mean)
    floor = jnp.maximum(jnp.finfo(mean.dtype).eps * jnp.max(sd), jnp.finfo(mean.dtype).tiny)
    scale = jnp.maximum(sd, floor)
    is_other = jnp.arange(mean.shape[-1]) != action
    # In units of z, the value of `action`: the factor of b is Phi((z - centre_b) / width_b).
    centre = (mean - mean[action]) / scale[action]
    width = scale / scale[action]
    # The pieces end around the step of every factor (`_KINKS` widths from its centre) and on a coarse grid of z.
    kinks = jnp.where(is_other[:, None], centre[:, None] + width[:, None] * _KINKS, 0.0).ravel()
    kinks = jnp.where(jnp.isfinite(kinks), kinks, 0.0)
    edges = jnp.sort(jnp.clip(jnp.concatenate([kinks, jnp.linspace(-_RANGE, _RANGE, 13)]), -_RANGE, _RANGE))
    # Gauss-Legendre on every piece: between two kinks the integrand is smooth.
    half = 0.5 * jnp.diff(edges)[:, None]
    z = 0.5 * (edges[1:] + edges[:-1])[:, None] + half * _NODES
    cdf = ndtr((z[..., None] - centre) / width)
    density = jnp.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    inside = jnp.sum(half * _WEIGHTS * density * jnp.prod(jnp.where(is_other, cdf, 1.0), axis=-1))
    # No variance at all: the answer is 0 or 1. An illegal action (mean -inf) has probability zero.
    certain = (jnp.max(sd) == 0) & (mean[action] > -jnp.inf)
    answer = jnp.where(certain, (jnp.argmax(mean) == action).astype(mean.dtype), inside)
    return jnp.where(mean[action] > -jnp.inf, answer, 0.0)


def prob_best_joint(mean: Float[Array, " A"], factor: Float[Array, "A A"], action: IntScalar) -> Float[Array, ""]:
    """P(argmax = action) of jointly normal numbers with covariance factor factor^T.

    The orthant probability of the differences by Genz's sequential conditioning [GENZ92], on a fixed lattice of 1021
    points with the tent transformation: deterministic, absolute error about 1e-3.

    Args:
        mean: value of each action; -inf where it is illegal.
        factor: a square root of their covariance.
        action: index of the action.
    """
    # `action` is the best where all differences to the others are positive: an orthant of a Gaussian.
    other_actions = jnp.nonzero(jnp.arange(mean.shape[-1]) != action, size=mean.shape[-1] - 1)[0]
    gap = mean[action] - mean[other_actions]
    rows = factor[action] - factor[other_actions]
    # Correlated actions can make the covariance of the differences singular: a small relative jitter.
    jitter = 1e-6 * jnp.sum(rows**2, axis=-1) + jnp.finfo(mean.dtype).tiny
    lower = jnp.linalg.cholesky(matmul(rows, rows.T) + jnp.diag(jitter))
    probability = jnp.mean(
        jax.vmap(_orthant_integrand, in_axes=(None, None, 0))(gap, lower, _lattice(rows.shape[0], mean.dtype))
    )
    return jnp.where(mean[action] > -jnp.inf, probability, 0.0)


def _lattice(dimension: int, dtype: DTypeLike) -> Float[Array, "N D"]:
    """Richtmyer points in the unit cube: multiples of square roots of primes modulo 1, folded by 1 - |2 x - 1|."""
    primes = [p for p in range(2, 8 * dimension + 16) if all(p % q for q in range(2, int(p**0.5) + 1))]
    # Square roots of primes are linearly independent over the rationals: the points fill the cube evenly.
    steps = np.sqrt(np.array(primes[:dimension], float))
    points = np.arange(1, _NUM_POINTS + 1)[:, None] * steps % 1.0
    return jnp.asarray(1.0 - np.abs(2.0 * points - 1.0), dtype)


def _orthant_integrand(gap: Float[Array, " D"], lower: Float[Array, "D D"], u: Float[Array, " D"]) -> Float[Array, ""]:
    """The integrand at one point: prod_i P(y_i < upper_i | earlier y)."""
    tiny = jnp.finfo(gap.dtype).eps
    # Genz 1992: one variable after the other, each truncated to where its constraint holds given those before.
    y, probability = [], jnp.ones((), gap.dtype)
    for i in range(gap.shape[0]):
        shift = gap[i] + sum((lower[i, j] * y[j] for j in range(i)), jnp.zeros((), gap.dtype))
        mass = ndtr(shift / lower[i, i])
        probability = probability * mass
        # Given that the difference is positive, gap + L y > 0: y_i > -shift / L_ii.
        y.append(-ndtri(jnp.clip(u[i] * mass, tiny, 1.0 - tiny)))
    return probability
