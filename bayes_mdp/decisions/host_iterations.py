"""Linear systems of chains in many draws, by iterations: sweeps while they are fast, then restarted BiCGSTAB."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float

_TINY = float(np.finfo(np.float64).tiny)
_RESTARTS, _ITERATIONS = 8, 60
_SWEEPS, _FAST = 100, 0.6  # sweeps, while each leaves at most so much of the error

Draws = Float[np.ndarray, "N S"]
Numbers = Float[np.ndarray, " N"]


def sweep_while_fast(
    apply: Callable[[Draws], Draws], rhs: Draws, x: Draws, discount: float, precision: float, *, endless: bool
) -> Draws:
    """Value iteration while every sweep cuts the error well: where states mix fast it takes half as long as BiCGSTAB.

    Args:
        apply: I - discount P.
        rhs: rewards.
        x: where it starts.
        discount: below 1.
        precision: as in `solve`.
        endless: whether no episode ends. The constant part of the error, the slowest, is then gone at once.
    """
    width, unit = np.inf, np.abs(rhs).max(-1)
    for _ in range(_SWEEPS):
        change = rhs - apply(x)
        low, high = change.min(-1), change.max(-1)
        x = x + change
        if endless:
            x += ((low + high) / 2 * discount / (1 - discount))[:, None]
        size = high - low if endless else np.maximum(high, -low)
        relative = float((size / np.maximum(np.abs(x).max(-1) + unit, _TINY)).max())
        if relative <= 2 * precision or not relative < _FAST * width:
            break
        width = relative
    return x


def iterate(
    apply: Callable[[Draws], Draws],
    rhs: Draws,
    guess: Draws,
    precondition: Callable[[Draws], Draws] | None,
    precision: float,
) -> tuple[Draws, Bool[np.ndarray, " N"]]:
    """Restarted BiCGSTAB from a guess; the answers, and whether each is about as precise as asked for."""
    x = guess
    residual = rhs - apply(x)
    error = np.abs(residual).max(-1)
    unit = np.abs(rhs).max(-1)
    for _ in range(_RESTARTS):
        noise = precision * (np.abs(x).max(-1) + unit)
        going = error > 4 * noise
        if not going.any():
            break
        # The correction, not x, is solved for: a restart removes the drift of the recursive residual.
        target = np.maximum(1e-5 * np.linalg.norm(residual, axis=-1), noise * rhs.shape[1] ** 0.5)
        moved = x + _bicgstab(apply, residual, precondition, target)
        left = rhs - apply(moved)
        reached = np.abs(left).max(-1)
        better = reached < error
        x, residual = np.where(better[:, None], moved, x), np.where(better[:, None], left, residual)
        improved = (reached < error / 2) & going
        error = np.where(better, reached, error)
        if not improved.any():
            break
    return x, error <= 64 * precision * (np.abs(x).max(-1) + unit)


def _bicgstab(
    apply: Callable[[Draws], Draws],
    rhs: Draws,
    precondition: Callable[[Draws], Draws] | None,
    target: Numbers,
) -> Draws:
    """x with A x near rhs in every draw, from zero (van der Vorst 1992); a draw that breaks down stays where it is.

    Args:
        apply: A.
        rhs: right sides.
        precondition: about the inverse of A; None: none.
        target: size of the residual that is enough.
    """

    def dot(x: Draws, y: Draws) -> Float[np.ndarray, "N 1"]:
        return np.einsum("ns,ns->n", x, y)[:, None]

    def ratio(x: Float[np.ndarray, "N 1"], y: Float[np.ndarray, "N 1"]) -> Float[np.ndarray, "N 1"]:
        return np.where(y != 0, x / np.where(y != 0, y, 1.0), 0.0)

    x, residual, shadow = np.zeros_like(rhs), rhs.copy(), rhs
    rho = alpha = omega = np.ones((len(rhs), 1))
    direction = v = np.zeros_like(rhs)
    with np.errstate(all="ignore"):
        for _ in range(_ITERATIONS):
            if (np.linalg.norm(residual, axis=-1) <= target).all():
                break
            new = dot(shadow, residual)
            direction = residual + ratio(new, rho) * ratio(alpha, omega) * (direction - omega * v)
            rho = new
            smooth = direction if precondition is None else precondition(direction)
            v = apply(smooth)
            alpha = ratio(rho, dot(shadow, v))
            half = residual - alpha * v
            other = half if precondition is None else precondition(half)
            t = apply(other)
            omega = ratio(dot(t, half), dot(t, t))
            x = x + alpha * smooth + omega * other
            residual = half - omega * t
    return np.where(np.isfinite(x).all(-1, keepdims=True), x, 0.0)
