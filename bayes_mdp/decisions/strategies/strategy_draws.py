"""`StrategyDraws`: what every strategy costs and brings in common draws of a belief, and its net benefit."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import xarray as xr
from jaxtyping import Float

from bayes_mdp.decisions.strategies.model_trace import VALUE
from bayes_mdp.utils.validation import (
    as_real,
    check_finite,
    check_name,
    check_names,
    check_number,
    check_shape,
    described,
)


@dataclass(frozen=True)
class StrategyDraws:
    """Outcomes of strategies, draw by draw. A draw is one set of parameters, the same for all strategies.

    Args:
        strategies, outcomes: their names.
        values: Float64[draws, strategies, outcomes].
        sites: the parameters that made them, name -> [draws, ...]; needed for regression alone.
        independent: whether the draws are independent (those of Markov chains are not: their Monte Carlo errors are
            larger than what is stated).

    Raises:
        ValueError: shapes that do not fit; a value that is not finite; a name twice.
        TypeError: values that are no numbers, names that cannot be hashed.
    """

    strategies: tuple[str, ...]
    outcomes: tuple[str, ...]
    values: Float[np.ndarray, "draws strategies outcomes"]
    sites: Mapping[str, np.ndarray] = field(default_factory=dict)
    independent: bool = True

    def __post_init__(self) -> None:
        check_names("strategies", self.strategies)
        check_names("outcomes", self.outcomes)
        values = as_real("values", self.values)
        shape = (len(values) if values.ndim else 0, len(self.strategies), len(self.outcomes))
        check_shape("values", values, shape, "draws strategies outcomes")
        if not len(values):
            raise ValueError("values has no draws, expected at least one")
        check_finite("values", values)
        for name, x in self.sites.items():
            if np.shape(x)[:1] != (len(values),):
                raise ValueError(f"sites[{name!r}] has shape {np.shape(x)}, expected {len(values)} draws")
        object.__setattr__(self, "values", values.astype(float))

    @property
    def num_draws(self) -> int:
        """Number of draws."""
        return len(self.values)

    def outcome(self, name: str) -> Float[np.ndarray, "draws strategies"]:
        """One outcome of all strategies, in the unit of the program.

        Args:
            name: of the outcome.

        Raises:
            ValueError: there is no such outcome.
        """
        check_name("outcome", name, self.outcomes)
        return self.values[..., self.outcomes.index(name)]

    def net_benefit(self, wtp: float | None = None) -> Float[np.ndarray, "draws strategies"]:
        """Net benefit, see `net_benefit_weights`.

        Args:
            wtp: willingness to pay, in units of cost per unit of effect.

        Raises:
            ValueError: as `net_benefit_weights`.
        """
        return self.values @ net_benefit_weights(self.outcomes, wtp)

    def to_dataset(self) -> xr.Dataset:
        """Each outcome with dimensions draw, strategy; sites with dimension draw and numbered ones."""
        dims = ("draw", "strategy")
        data: dict[str, tuple[tuple[str, ...], np.ndarray]] = {
            name: (dims, self.values[..., i]) for i, name in enumerate(self.outcomes)
        }
        for name, x in self.sites.items():
            # A site may have the name of an outcome.
            key = f"site_{name}" if name in data else name
            data[key] = (("draw", *(f"{key}_dim_{i}" for i in range(np.ndim(x) - 1))), np.asarray(x))
        coords = {"draw": np.arange(self.num_draws), "strategy": list(self.strategies)}
        return xr.Dataset(data, coords, {"independent_draws": int(self.independent)})


def net_benefit_weights(outcomes: tuple[str, ...], wtp: float | None) -> Float[np.ndarray, " outcomes"]:
    """The weight of each outcome in the net benefit: wtp * effect - cost, or the only outcome as it is.

    Args:
        outcomes: "cost" and "effect", in any order, or one of any name.
        wtp: willingness to pay, the money that a unit of effect is worth; not negative. None with one outcome.

    Raises:
        ValueError: no willingness to pay with costs and effects; one without effects; other outcomes.
        TypeError: no number.
    """
    if set(outcomes) == {"cost", "effect"}:
        if wtp is None:
            raise ValueError("wtp is None, expected the willingness to pay for a unit of 'effect'")
        check_number("wtp", wtp, lambda x: x >= 0, "a number of at least 0")
        return np.array([float(wtp) if name == "effect" else -1.0 for name in outcomes])
    if len(outcomes) != 1:
        names = ", ".join(map(repr, outcomes))
        raise ValueError(f"outcomes are {names}, expected 'cost' and 'effect', or one outcome, for a net benefit")
    if wtp is not None:
        raise ValueError(
            f"wtp is {described(wtp)} without effects (the only outcome is {outcomes[0]!r}), expected None"
        )
    return np.array([-1.0 if outcomes[0] == "cost" else 1.0])


def only_value(strategies: tuple[str, ...], values: Float[np.ndarray, "draws strategies"]) -> StrategyDraws:
    """Draws of one value for each strategy."""
    return StrategyDraws(strategies, (VALUE,), values[..., None])
