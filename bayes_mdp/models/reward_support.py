"""`RewardSupport`: which rewards a law can give. `infer`, `update` and everything that plays a run ask it."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Bool, Float
from numpyro.distributions import constraints

from bayes_mdp.mdp import Counts
from bayes_mdp.models.mdp_spec import RewardTable
from bayes_mdp.models.reward_laws import unwrap
from bayes_mdp.utils.messages import see
from bayes_mdp.utils.typing import AnyArray, ArrayLike, Index, IntScalar
from bayes_mdp.utils.validation import at, first_index, is_concrete

KNOWN_TOLERANCE = 1e-5
"""Relative difference of a known reward and an observed one that is rounding (of float32, of a CSV file)."""
ROUNDING = 1e-6
"""Likewise of the ends of two intervals."""


class RewardSupport(eqx.Module):
    """The rewards that a law can give: in every cell an interval, or the whole numbers in it.

    The arrays have the shape of the cells, [*H S A] or [*H S A O]; or none, where all cells are alike.

    Args:
        low, high: ends of the interval. One number (`low` is `high`) is met up to rounding.
        whole: whether whole numbers alone are rewards.
        above, below: whether `low`, `high` itself is none.
        law: name of the law; None: rewards are known numbers.
        by_outcome: whether the last axis of the cells is the outcome.
    """

    low: Float[AnyArray, "*cells"]
    high: Float[AnyArray, "*cells"]
    whole: Bool[AnyArray, "*cells"]
    above: Bool[AnyArray, "*cells"]
    below: Bool[AnyArray, "*cells"]
    law: str | None = eqx.field(static=True, default=None)
    by_outcome: bool = eqx.field(static=True, default=False)

    def at(self, cell: Index, outcome: IntScalar | AnyArray) -> "RewardSupport":
        """That of (step,) state, action `cell` (and `outcome`), one or many. Traceable."""
        if not jnp.ndim(self.low):
            return self
        index = (*cell, outcome) if self.by_outcome else tuple(cell)
        concrete = is_concrete(index, self.low)
        # Traced indices need arrays of JAX.
        return self.map_arrays(lambda values: (values if concrete else jnp.asarray(values))[index])

    def map_arrays(self, function: Callable[[AnyArray], AnyArray]) -> "RewardSupport":
        """The same with other arrays."""
        parts = map(function, (self.low, self.high, self.whole, self.above, self.below))
        # A scalar of numpy is no array.
        arrays = (np.asarray(part) if isinstance(part, np.generic) else part for part in parts)
        return RewardSupport(*arrays, law=self.law, by_outcome=self.by_outcome)

    @property
    def is_everything(self) -> bool:
        """Whether all cells can give every finite number. Host side."""
        # Without bounds, and not whole.
        unbounded = np.isneginf(self.low) & np.isposinf(self.high)
        return bool(np.all(unbounded & ~np.asarray(self.whole)))

    def holds(self, reward: ArrayLike) -> Bool[AnyArray, "..."]:
        """Whether a reward of the cell is one that it can give. Traceable; broadcasts."""
        if is_concrete(reward, self.low):
            reward, xp = np.asarray(reward, np.float64), np
            if self.is_everything:
                return np.asarray(np.isfinite(reward))
        else:
            reward, xp = jnp.asarray(reward, float), jnp
        # An open end is not met, a closed one is.
        exceeds_low = (reward > self.low) | (~self.above & (reward == self.low))
        under_high = (reward < self.high) | (~self.below & (reward == self.high))
        inside = (
            exceeds_low
            & under_high
            & (reward > -np.inf)
            & (reward < np.inf)
            & (~self.whole | (reward == xp.floor(reward)))
        )
        # One number: up to rounding.
        is_close = abs(reward - self.low) <= KNOWN_TOLERANCE * (1.0 + abs(self.low))
        is_possible = inside | ((self.low == self.high) & ~self.whole & is_close)
        return np.asarray(is_possible) if isinstance(is_possible, np.bool_) else is_possible

    def lies_in(self, other: "RewardSupport") -> Bool[np.ndarray, "..."]:
        """Whether `other` can give all that this one can, cell by cell. Host side; nothing (`low` > `high`) can be."""
        slack = np.where(np.isfinite(other.low), ROUNDING * np.abs(other.low), 0.0)
        # Inside up to rounding; an end of zero is not rounded, and must be open where the other one is.
        low = (self.low > other.low - slack) | ((self.low == other.low) & (~other.above | self.above))
        slack = np.where(np.isfinite(other.high), ROUNDING * np.abs(other.high), 0.0)
        high = (self.high < other.high + slack) | ((self.high == other.high) & (~other.below | self.below))
        single_value = self.low == self.high
        # A single value lies among whole numbers if it is one.
        whole = ~np.asarray(other.whole) | self.whole | (single_value & (np.floor(self.low) == self.low))
        return np.asarray((low & high & whole) | (single_value & other.holds(self.low)) | (self.low > self.high))

    def check(self, name: str, reward: Float[np.ndarray, "*N"], seen: ArrayLike = True) -> None:
        """Refuse rewards of these cells that they cannot give; the message calls them `name`. Host side.

        Args:
            name: for the message.
            reward: one of each cell.
            seen: those that are looked at.

        Raises:
            ValueError: names the first one.
        """
        with np.errstate(invalid="ignore"):
            index = first_index(np.asarray(seen) & ~np.asarray(self.holds(reward)))
        if index is not None:
            value = np.asarray(reward)[index]
            shown = f"{value!s}" if self.law else f"{value:g}"
            raise ValueError(f"{at(name, index)} is {shown}, {self.cell(index).expected()}")

    def check_moments(self, name: str, counts: Counts) -> None:
        """Refuse moments of rewards in these cells that rewards of theirs cannot have. Host side.

        Args:
            name: of `counts`, for the message.
            counts: reward moments in the cells of the law, or by outcome where that law looks at none.

        Raises:
            ValueError: names the first cell: its mean lies outside, or rewards vary where they are one known number.
        """
        count, mean, ss = (np.asarray(x, np.float64) for x in counts.reward_moments)
        by_pair = bool(np.ndim(self.low)) and np.ndim(self.low) < count.ndim
        # Rewards by outcome, and a law that looks at none: its cell holds for every outcome.
        cells = self.map_arrays(lambda x: np.broadcast_to(x[..., None] if by_pair else x, count.shape))
        # The support is convex (or whole numbers, whose mean may be any number between): means can be checked, sums of
        # squares only where the reward is one number.
        seen, single_value = count > 0, (cells.low == cells.high) & ~cells.whole
        slack = np.where(single_value, KNOWN_TOLERANCE, ROUNDING) * (1.0 + np.abs(mean))
        index = first_index(seen & ~((mean >= cells.low - slack) & (mean <= cells.high + slack)))
        if index is not None:
            said = cells.cell(index)
            raise ValueError(f"{at(f'{name}.reward_mean', index)} is {mean[index]:g}, {said.expected(mean=True)}")
        # Root of the mean squared deviation: the same unit as the mean.
        spread = np.sqrt(np.where(seen, ss, 0.0) / np.maximum(count, 1.0))
        index = first_index(single_value & (spread > KNOWN_TOLERANCE * (1.0 + np.abs(mean))))
        if index is not None:
            raise ValueError(
                f"{at(f'{name}.reward_ss', index)} is {ss[index]:g}, and the prior fixes this reward at "
                f"{cells.low[index]:g}: expected zero, rewards that do not vary; where they do, give their law in the "
                "prior (dist.Normal(mean, scale), ...), or data without rewards"
            )

    def cell(self, index: tuple[int, ...]) -> "RewardSupport":
        """That of one cell, by its index in the arrays. Host side."""
        return self.map_arrays(lambda values: np.asarray(values)[index if np.ndim(values) else ()])

    def expected(self, *, mean: bool = False, of_env: bool = False) -> str:
        """What a refusal says of one cell: which rewards are expected, and why.

        Args:
            mean: it is the mean of data that is refused.
            of_env: it is a reward that an environment pays, not one of data.
        """
        if self.law is not None:
            label = f"{'a mean of rewards that are ' if mean else ''}{self}"
            change = "; take a prior whose reward law can give it, or scale the rewards" if of_env else ""
            return f"expected {label} (the reward law is {self.law}){change}"
        otherwise = "" if of_env else ", or data without rewards (reward=None)"
        return (
            f"and the prior fixes this reward at {float(self.low):g}: expected the same; where rewards vary, give "
            f"their law in the prior (dist.Normal(mean, scale), ...){otherwise} {see('how-to/write-a-reward-law')}"
        )

    def __str__(self) -> str:
        """The rewards of one cell in words."""
        low, high = float(self.low), float(self.high)
        if low == high:
            return f"{low:g}"
        if self.whole:
            if high - low == 1:
                return f"{low:g} or {high:g}"
            return f"{low:g}, {low + 1:g}, " + (f"{low + 2:g}, ..." if np.isinf(high) else f"..., {high:g}")
        if np.isinf(low) and np.isinf(high):
            return "a finite number"
        if np.isinf(high):
            return f"a number greater than {low:g}" if self.above else f"a number of {low:g} or more"
        if np.isinf(low):
            return f"a number less than {high:g}" if self.below else f"a number of {high:g} or less"
        ends = f"between {low:g} and {high:g}" if self.above and self.below else f"from {low:g} to {high:g}"
        return f"a number {ends}"


def make_support(
    low: ArrayLike,
    high: ArrayLike,
    *,
    whole: ArrayLike = False,
    above: ArrayLike = False,
    below: ArrayLike = False,
    law: str | None = None,
    by_outcome: bool = False,
) -> RewardSupport:
    """A support whose arrays broadcast to one shape (arguments: see `RewardSupport`). Host side."""
    ends = (np.asarray(x, np.float64) for x in (low, high))
    flags = (np.asarray(x, bool) for x in (whole, above, below))
    return RewardSupport(*map(np.array, np.broadcast_arrays(*ends, *flags)), law=law, by_outcome=by_outcome)


def support_of(law: dist.Distribution | type[dist.Distribution], *, by_outcome: bool = False) -> RewardSupport | None:
    """The support of a law, its parameters known, or of a family, whatever the parameters are. Host side.

    Args:
        law: of one number in every cell, or a family.
        by_outcome: see `RewardSupport`.

    Returns:
        None: it is not known, or it depends on parameters that are not given.
    """
    if isinstance(law, dist.Distribution):
        law = unwrap(law)
        # Its one value is an interval of length zero.
        if isinstance(law, dist.Delta):
            value = np.asarray(law.v)
            return make_support(value, value, law="Delta", by_outcome=by_outcome)
    name = (law if isinstance(law, type) else type(law)).__name__
    # On the class of some laws `support` is a property: `_interval` then says None.
    interval = _interval(getattr(law, "support", None))
    return None if interval is None else make_support(**interval, law=name, by_outcome=by_outcome)


def _interval(support: object) -> dict[str, ArrayLike] | None:
    """A constraint of NumPyro as arguments of `make_support`; None: it is another one, or a property of instances."""
    if isinstance(support, constraints.independent):
        return _interval(support.base_constraint)
    if isinstance(support, type(constraints.boolean)):
        return {"low": 0.0, "high": 1.0, "whole": True}
    if isinstance(support, type(constraints.real)):
        return {"low": -np.inf, "high": np.inf}
    # Whole numbers before intervals: constraints of NumPyro share base classes.
    if isinstance(support, constraints.integer_interval):
        return {"low": support.lower_bound, "high": support.upper_bound, "whole": True}
    if isinstance(support, constraints.integer_greater_than):
        return {"low": support.lower_bound, "high": np.inf, "whole": True}
    if isinstance(support, constraints.greater_than):
        excludes_low = not isinstance(support, constraints.greater_than_eq)
        return {"low": support.lower_bound, "high": np.inf, "above": excludes_low}
    if isinstance(support, constraints.less_than):
        excludes_high = not isinstance(support, constraints.less_than_eq)
        return {"low": -np.inf, "high": support.upper_bound, "below": excludes_high}
    if isinstance(support, constraints.interval):
        is_open = isinstance(support, constraints.open_interval)
        return {"low": support.lower_bound, "high": support.upper_bound, "above": is_open, "below": is_open}
    return None


def anything(law: str | None = None) -> RewardSupport:
    """Every finite number."""
    return make_support(-np.inf, np.inf, law=law)


def union(supports: Sequence[RewardSupport]) -> RewardSupport:
    """The smallest support that holds all of these, of laws of one shape of cells. Host side."""
    low, high, whole, excludes_low, excludes_high = (
        np.stack(np.broadcast_arrays(*parts)) for parts in zip(*map(jax.tree.leaves, supports), strict=True)
    )
    return make_support(
        low.min(0),
        high.max(0),
        whole=whole.all(0),
        # The end is open only if no support that reaches so far has it closed.
        above=(excludes_low | (low > low.min(0))).all(0),
        below=(excludes_high | (high < high.max(0))).all(0),
        law=supports[0].law,
        by_outcome=supports[0].by_outcome,
    )


def support_of_draws(table: RewardTable, law: type[dist.Distribution] | None) -> RewardSupport:
    """What a law can give of which N draws [N *cells] are known, whatever its parameters are. Host side.

    An end of the interval that differs from draw to draw depends on an unknown parameter: other draws may have
    another one, and it is taken for no end at all.

    Args:
        table: the draws.
        law: the family; None: known numbers.
    """
    family = None if law is None else support_of(law)
    if family is not None:
        return family
    draws = support_of(table.law) if table.law is not None else make_support(table.known, table.known)  # pyright: ignore
    if draws is None or not np.ndim(draws.low):
        return draws or anything(getattr(law, "__name__", None))
    low, high, whole, excludes_low, excludes_high = (np.asarray(x) for x in jax.tree.leaves(draws))
    return make_support(
        # An end that all draws share is one of the law.
        np.where((low == low[0]).all(0), low[0], -np.inf),
        np.where((high == high[0]).all(0), high[0], np.inf),
        whole=whole.all(0),
        above=excludes_low.all(0),
        below=excludes_high.all(0),
        law=draws.law,
        by_outcome=table.by_outcome,
    )
