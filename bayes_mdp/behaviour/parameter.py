"""`Parameter`: where a parameter of a behaviour model lives, and its hierarchical prior over persons."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array, Float

from bayes_mdp.utils.typing import ArrayLike, RealLike
from bayes_mdp.utils.validation import as_real, described, require

Support: TypeAlias = Literal["unit", "positive", "real"] | tuple[float, float]
"""(0, 1), above 0, any number, or between two numbers."""


@dataclass(frozen=True, eq=False)
class Parameter:
    """One parameter: its support, and what is believed about it before data.

    On the real line a person's value is normal around the group's mean; from there it is mapped to the support: by the
    normal distribution function (scaled) to an interval, by exp to positive numbers. With the default prior (that of
    hBayesDM, Ahn, Haines and Zhang 2017) a value in an interval whose group has no spread is uniform there.

    Args:
        support: "unit", "positive", "real", or an interval (low, high).
        group_mean: prior of the group's mean on the line, a NumPyro distribution. Where persons are not pooled, or
            pooled completely, it is the prior of each value on the line.
        group_sd: prior of the standard deviation between persons on the line.

    Raises:
        ValueError, TypeError: another support, a prior that is no distribution of one number.
    """

    support: Support = "unit"
    group_mean: dist.Distribution = field(default_factory=lambda: dist.Normal(0.0, 1.0))
    group_sd: dist.Distribution = field(default_factory=lambda: dist.HalfNormal(0.2))

    def __post_init__(self) -> None:
        words = ("unit", "positive", "real")
        pair = isinstance(self.support, tuple) and len(self.support) == 2
        if not (pair or (isinstance(self.support, str) and self.support in words)):
            raise ValueError(
                f"support is {described(self.support)}, expected one of {', '.join(words)}, or (low, high)"
            )
        if pair:
            low, high = as_real("support", self.support)
            if not (np.isfinite(low) and np.isfinite(high) and low < high):
                raise ValueError(f"support is {self.support}, expected (low, high) with low below high")
        for name in ("group_mean", "group_sd"):
            law = getattr(self, name)
            if not isinstance(law, dist.Distribution) or law.batch_shape or law.event_shape:
                raise TypeError(f"{name} is {described(law)}, expected a NumPyro distribution of one number")

    @property
    def bounds(self) -> tuple[float, float]:
        """The ends of the support, in the unit of the parameter."""
        if isinstance(self.support, tuple):
            return self.support
        return {"unit": (0.0, 1.0), "positive": (0.0, np.inf), "real": (-np.inf, np.inf)}[self.support]

    def constrain(self, line: RealLike) -> Float[Array, "..."]:
        """From the real line to the support, elementwise: of the shape of `line`. Traceable.

        Args:
            line: on the real line (no unit), one number or an array.
        """
        x = jnp.asarray(line, float)
        if self.support == "real":
            return x
        if self.support == "positive":
            return jnp.exp(x)
        low, high = self.bounds
        return low + (high - low) * ndtr(x)

    def unconstrain(self, value: RealLike) -> Float[Array, "..."]:
        """The inverse of `constrain`, from the support to the real line, of the shape of `value`. Traceable.

        Args:
            value: in the support, one number or an array.
        """
        x = jnp.asarray(value, float)
        if self.support == "real":
            return x
        if self.support == "positive":
            return jnp.log(x)
        low, high = self.bounds
        return ndtri((x - low) / (high - low))

    def check(self, name: str, values: ArrayLike) -> None:
        """Refuse a value outside the support (its ends are allowed). Host side.

        Args:
            name: of the argument, for the message.
            values: one number or an array of any shape.

        Raises:
            ValueError, TypeError: names the first.
        """
        low, high = self.bounds
        array = as_real(name, values)
        expected = f"a number from {low:g} to {high:g}" if np.isfinite(high) else "a finite number"
        expected = "a finite number of at least 0" if self.support == "positive" else expected
        require(~(np.isfinite(array) & (array >= low) & (array <= high)), name, array, expected)
