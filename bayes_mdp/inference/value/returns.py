"""Normal-gamma beliefs about the mean and the precision of the return of every pair [BQL98].

With it: the law of a one-step target, the myopic value of perfect information (section 4.3 of the paper), and its two
updates: by moments (section 5.1), and of the mixture over the unknown return (section 5.2, `mixture_update`).
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Real

from bayes_mdp.inference.value.student_t import StudentT, expected_excess

Number = float | Real[Array, "..."]
Flag = bool | Bool[Array, "..."]


class ReturnBelief(eqx.Module):
    """precision ~ Gamma(concentration, rate); mean return | precision ~ Normal(loc, 1 / (pseudo_count precision)).

    The belief of [BQL98].
    Elementwise on arrays of one shape, [*H S A] in an agent. All but `loc` are positive. An illegal action has loc
    -inf.

    Args:
        loc: expected return, in units of the reward.
        pseudo_count: weight of `loc`, in returns.
        concentration: of the Gamma law of the precision.
        rate: of that law, in squared units of the reward.
    """

    loc: Float[Array | np.ndarray, "*shape"]
    pseudo_count: Float[Array | np.ndarray, "*shape"]
    concentration: Float[Array | np.ndarray, "*shape"]
    rate: Float[Array | np.ndarray, "*shape"]

    def of_mean(self) -> StudentT:
        """The law of the mean return."""
        scale = jnp.sqrt(self.rate / (self.pseudo_count * self.concentration))
        return StudentT(self.loc, scale, 2.0 * self.concentration)

    def of_next(self) -> StudentT:
        """The predictive law of one return."""
        law = self.of_mean()
        return StudentT(law.loc, law.scale * jnp.sqrt(self.pseudo_count + 1.0), law.dof)

    def mean(self) -> Float[Array | np.ndarray, "*shape"]:
        """Expected mean return."""
        return self.loc

    def variance(self) -> Float[Array, "*shape"]:
        """Variance of the mean return; inf where concentration <= 1."""
        return self.of_mean().variance()

    def sample(self, key: PRNGKeyArray) -> Float[Array, "*shape"]:
        """A draw of the mean returns."""
        return self.of_mean().sample(key)


def target(reward: Number, discount: Number, next_belief: ReturnBelief, over: Flag = False) -> StudentT:
    """The law of reward + discount (next return), elementwise [BQL98].

    Where `over`, nothing follows: the reward itself, with scale 0.

    Args:
        reward: of the step.
        discount: of the next return, from 0 to 1.
        next_belief: of the next pair.
    """
    law, discount = next_belief.of_next(), jnp.where(over, 0.0, discount)
    # loc may be -inf where nothing follows: masked before the product, 0 * inf is nan.
    loc = reward + jnp.where(over, 0.0, discount * jnp.where(over, 0.0, law.loc))
    return StudentT(loc, discount * law.scale, law.dof)


def moment_update(own: ReturnBelief, target: StudentT) -> ReturnBelief:
    """`own` after one return whose first two moments are those of `target` ([BQL98] section 5.1).

    The expected return counts as an observation, so the precision grows too quickly (a known flaw of the rule).
    The rate is inf where the target has no variance (its dof <= 2: the next belief has concentration <= 1).
    """
    # Equations of the normal-gamma update, with the target's mean for the observation and its variance added to the
    # square.
    count = own.pseudo_count + 1.0
    shift = target.loc - own.loc
    rate = own.rate + 0.5 * (target.variance() + own.pseudo_count / count * shift**2)
    return ReturnBelief(own.loc + shift / count, count, own.concentration + 0.5, rate)


def value_of_perfect_information(belief: ReturnBelief) -> Float[Array, "*lead A"]:
    """Expected gain per decision from knowing the mean return of one action exactly before choosing.

    From [BQL98] section 4.3. Actions are the last axis. With a1, a2 the best and the second best by loc:
    E[(mu_a - loc(a1))^+] for a other than a1, E[(loc(a2) - mu_a1)^+] for a1. Never negative; unchanged when all loc
    are shifted. inf where concentration is at most 1/2 (the mean return has no mean), 0 for an illegal action (loc
    -inf) and for the only one.

    Args:
        belief: about the returns of the actions, [... A].
    """
    loc = belief.loc
    best = jnp.arange(loc.shape[-1]) == jnp.argmax(loc, -1, keepdims=True)
    largest = jnp.max(loc, -1, keepdims=True)
    second = jnp.max(jnp.where(best, -jnp.inf, loc), -1, keepdims=True)
    # Knowledge helps if another action turns out better than a1, or a1 worse than a2.
    gap = largest - jnp.where(best, second, loc)
    return expected_excess(gap, belief.of_mean())


# f(x) = log x - digamma(x), without cancellation, and its inverse: the concentration of a gamma law from its moments.
# For tau ~ Gamma(concentration, .): log E[tau] - E[log tau] = f(concentration).

_SHIFT = 8.0
_RANGE = (1e-18, 1e18)
_PAIRS = (0.0, 6.0, 10.0, 12.0)  # (x + j)(x + 7 - j) = x (x + 7) + j (7 - j), j = 0 .. 3
# log z - digamma(z) - 1 / (2 z) = sum_k B_2k / (2 k z^2k); the next term is below 4e-16 of the sum from z = 8 on.
_BERNOULLI = tuple(
    b / d
    for b, d in (
        (1, 12),
        (-1, 120),
        (1, 252),
        (-1, 240),
        (1, 132),
        (-691, 32760),
        (1, 12),
        (-3617, 8160),
        (43867, 14364),
    )
)


def log_minus_digamma(x: Float[Array | np.ndarray, "*shape"]) -> Float[Array, "*shape"]:
    """log x - digamma(x) for x > 0: positive, decreasing, about 1 / x at zero and 1 / (2 x) at infinity.

    From x = 8 on the asymptotic series; below, the recurrence of digamma to x + 8. Relative error below 15 ulp (the
    difference of `jnp.log` and `digamma` has lost all digits at x = 1e16 in float64, 1e7 in float32).
    """
    x = jnp.asarray(x)
    low = x < _SHIFT
    z = jnp.where(low, x + _SHIFT, x)
    square, series = z**-1 * z**-1, jnp.zeros_like(z)
    for coefficient in reversed(_BERNOULLI):
        series = series * square + coefficient
    # digamma(x) = digamma(x + 8) - sum_j 1 / (x + j), j = 0 .. 7, the terms in pairs j and 7 - j
    safe = jnp.where(low, x, 1.0)
    pairs = sum(1.0 / (safe * (safe + 7.0) + pair) for pair in _PAIRS)
    recurrence = (2.0 * safe + 7.0) * pairs - jnp.log1p(_SHIFT / safe)
    return 0.5 / z + series * square + jnp.where(low, recurrence, 0.0)


def inverse_log_minus_digamma(y: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """The x > 0 with log x - digamma(x) = y, for y > 0.

    A closed form within 1.4 %, then three Newton steps in 1 / x. Relative error below 15 ulp: 3.3e-15 in float64 (y
    from 1e-300 to 1e300), 1.8e-6 in float32 (1e-30 to 1e30).
    """
    y = jnp.asarray(y)
    # sqrt((y - 3)^2 + 24 y), no square of y; of the two forms of the root, the one that does not cancel
    root = (y + 9.0) * jnp.sqrt(1.0 - (72.0 / (y + 9.0)) / (y + 9.0))
    start = jnp.where(y < 3.0, (3.0 - y + root) / (12.0 * jnp.minimum(y, 3.0)), 2.0 / (root + y - 3.0))
    middle = (y > _RANGE[0]) & (
        y < _RANGE[1]
    )  # beyond, the start is exact, and the derivative leaves the range of float32
    x = jnp.where(middle, start, 1.0)
    for _ in range(3):
        value, derivative = jax.jvp(log_minus_digamma, (x,), (jnp.ones_like(x),))
        x = x / (1.0 + (value - y) / (derivative * x))
    return jnp.where(middle, x, start)


# Mixture updating, by deterministic quadrature. If the return x were known, the belief would stay normal-gamma; as it
# is not, the posterior is a mixture over x, and the update is the normal-gamma law p that minimises KL(mixture || p).
# Given x every moment is closed form, which leaves one integral, here in units of the own belief: y = (x - loc) / w
# with w^2 = 2 rate (1 + 1 / pseudo_count), so that the rate given x is rate (1 + y^2); and y = d + k u, u of density
# proportional to (1 + u^2)^(-(dof + 1) / 2).

AnyArray = Array | np.ndarray
LEAST_CONCENTRATION = 1.001


class Quadrature(NamedTuple):
    """The accuracy of `mixture_update` ([BQL98] section 5.2).

    Args:
        num_nodes: of the rule.
        tail: -log of the probability of the target that is left out.
    """

    num_nodes: int
    tail: float


FAST = Quadrature(44, 19.0)
ACCURATE = Quadrature(256, 40.0)
_WIDTH, _SHARPEST = (
    1.5,
    2.0,
)  # of the stretch, and of the grid for many degrees of freedom: least error on 40 to 48 nodes
_NEGLIGIBLE = 1e-9


class _Moments(NamedTuple):
    """Under the law of y: E[g], E[y g] / E[g], the variance of y under g, log E[g] - E[log g]; g = 1 / (1 + y^2)."""

    weight: Array
    centre: AnyArray
    variance: Array
    jensen: Array


def mixture_update(own: ReturnBelief, target: StudentT, quadrature: Quadrature = FAST) -> ReturnBelief:
    """`own` after one return of law `target`: the normal-gamma law nearest to the mixture ([BQL98] section 5.2).

    Elementwise. Where the target is known (scale 0) it is the conjugate update. Pseudo-count and concentration may
    fall; the concentration stays at 1.001 or more (`LEAST_CONCENTRATION`), applied before the rate, which keeps E[tau].

    Errors (loc in posterior standard deviations, the others relative). Learning: the target's scale .1 to 10 times the
    own predictive one, concentrations up to 300. Extremes: returns 1000 scales away, scales 1e-6 to 1e6 times.

    * `FAST`, learning: below 1e-6, and 1e-5 in float32. Extremes: 99 % below 2e-2 (the rate; the others less).
    * `ACCURATE`, learning: 1e-13; extremes: below 1e-8. In float32 it gains little.

    Args:
        quadrature: `FAST` or `ACCURATE`, or another number of nodes.
    """
    pseudo, shape = own.pseudo_count, own.concentration + 0.5
    unit = jnp.sqrt(2.0 * own.rate * (1.0 + 1.0 / pseudo))
    # Symmetry: only |d| matters, the sign returns with the mean.
    d = (target.loc - own.loc) / unit
    m = _moments(jnp.abs(d), target.scale / unit * jnp.sqrt(target.dof), target.dof, quadrature)
    # log E[tau] - E[log tau] of the mixture determines the concentration.
    concentration = inverse_log_minus_digamma(log_minus_digamma(shape) + m.jensen)
    concentration = jnp.maximum(concentration, LEAST_CONCENTRATION)
    return ReturnBelief(
        own.loc + unit * jnp.sign(d) * m.centre / (pseudo + 1.0),
        (pseudo + 1.0) / (1.0 + 2.0 * shape / pseudo * m.variance),
        concentration,
        concentration / shape * own.rate / m.weight,
    )


def _moments(
    d: Float[Array | np.ndarray, "*shape"],
    k: Float[Array | np.ndarray, "*shape"],
    dof: Float[Array | np.ndarray, "*shape"],
    quadrature: Quadrature,
) -> _Moments:
    """The four numbers of the projection, d >= 0, k >= 0; differences are formed before sums, against cancellation."""
    weight, v = _nodes(d, k, dof, quadrature)
    d = d[..., None]
    unit = 1.0 + d * d
    r = v * (v + 2.0 * d) / unit  # 1 + y^2 = (1 + d^2) (1 + r)
    g = 1.0 / (1.0 + r)
    total = jnp.sum(weight, -1)

    def mean(x: AnyArray) -> Array:
        return jnp.sum(weight * x, -1) / total

    inner, lost, logs = mean(g), mean(r * g), mean(jnp.log1p(r) - r * g)
    first, second = mean(v * g), mean(v * v * g)
    # log E[g] = log(1 - lost), and log(1 - lost) + lost is its remainder beside the terms of `logs`
    log_inner = jnp.where(lost < 0.5, jnp.log1p(-jnp.minimum(lost, 0.5)), jnp.log(inner))
    unit = unit[..., 0]
    return _Moments(
        inner / unit,
        d[..., 0] + first / inner,
        jnp.maximum(second - first * first / inner, 0.0) / unit,
        jnp.maximum(logs + (log_inner + lost), 0.0),
    )


def _nodes(d: AnyArray, k: AnyArray, dof: AnyArray, quadrature: Quadrature) -> tuple[Array, AnyArray]:
    """Weights and y - d at the nodes [*shape N] of a midpoint rule that resolves both centres, u = 0 and y = 0, however
    narrow either is.

    With u in units of `sharp` (about the width of its density), t = asinh(u) + asinh(d + k u) is a sinh substitution
    around both at once; its inverse is the root of a quadratic, and no singularity of the integrand comes nearer to the
    real t than pi / 2. Far outside both centres t itself grows as a sinh: the tails are heavy, but smooth.
    """
    sharp = jnp.minimum(1.0, jnp.sqrt(_SHARPEST / dof))
    k, edge = k * sharp, _edge(d, k, dof, quadrature.tail) / sharp
    origin = jnp.arcsinh(d)
    low = jnp.arcsinh(d - k * edge) - jnp.arcsinh(edge)
    high = jnp.arcsinh(d + k * edge) + jnp.arcsinh(edge)
    second_root = jnp.clip(-jnp.arcsinh(d / jnp.maximum(k, jnp.finfo(k.dtype).tiny)), low, high)
    middle, width = 0.5 * (origin + second_root), 0.5 * (origin - second_root) + _WIDTH
    first, last = jnp.arcsinh((low - middle) / width), jnp.arcsinh((high - middle) / width)
    place = (jnp.arange(quadrature.num_nodes, dtype=d.dtype) + 0.5) / quadrature.num_nodes
    s = first[..., None] + (last - first)[..., None] * place
    d, k, dof, sharp = d[..., None], k[..., None], dof[..., None], sharp[..., None]
    grow = jnp.exp(s)
    tau = 0.5 * width[..., None] * (grow - 1.0 / grow) + (middle - origin)[..., None]  # t - origin
    u = _invert(d, k, tau)
    v = k * u
    a, b = jnp.sqrt(1.0 + u * u), jnp.sqrt(1.0 + (d + v) ** 2)
    density = jnp.exp(-0.5 * (dof + 1.0) * jnp.log1p((sharp * u) ** 2))
    return (grow + 1.0 / grow) * (a * b / (b + k * a)) * density, v


def _edge(d: AnyArray, k: AnyArray, dof: AnyArray, tail: float) -> Array:
    """Where the density of u is cut: further out where the target is so narrow that its moments live on its tails."""
    ratio = (1.0 + d * d) / jnp.maximum(k * k, _NEGLIGIBLE * (1.0 + d * d))
    decay = (tail + 2.0 * jnp.log(jnp.maximum(ratio, 1.0))) / dof
    edge = jnp.sinh(decay + jnp.log1p(jnp.sqrt(-jnp.expm1(-2.0 * decay))))  # cosh(asinh(edge))^-dof = exp(-decay dof)
    largest = jnp.sqrt(jnp.sqrt(jnp.finfo(d.dtype).max) / 8.0 / (1.0 + k + d))  # squares of sinh t stay finite
    return jnp.minimum(edge, largest)


def _invert(d: AnyArray, k: AnyArray, tau: Array) -> Array:
    """u with asinh(u) + asinh(d + k u) = asinh(d) + tau.

    With S, C the sinh and cosh of that sum: (1 + k^2 + 2 k C) u^2 + 2 d (k + C) u + d^2 - S^2 = 0. S > 0: in the form
    without cancellation around u = 0, S - d from tau.
    """
    half = jnp.exp(0.5 * tau)
    inverse = 1.0 / half
    power = d + jnp.sqrt(1.0 + d * d)
    raised, lowered = power * half, (1.0 / power) * inverse
    excess = 0.5 * (half - inverse) * (raised + lowered)  # S - d
    s = 0.5 * (raised * half - lowered * inverse)
    c = s + lowered * inverse
    shift = d * (k + c)
    root = shift + jnp.abs(s) * jnp.sqrt(1.0 + d * d + k * k + 2.0 * k * c)
    right = s > 0
    return jnp.where(right, excess * (s + d), -root) / jnp.where(right, root, 1.0 + k * k + 2.0 * k * c)
