"""What strategies cost and bring in common draws of a belief (`StrategyDraws`), side by side: `cost_effectiveness`.

Net benefit, incremental ratios with dominance, acceptability, expected loss.

Sources: Briggs, Claxton and Sculpher (2006), *Decision Modelling for Health Economic Evaluation*; Fenwick, Claxton and
Sculpher (2001), *Representing uncertainty: the role of cost-effectiveness acceptability curves*; Alarid-Escudero et al.
(2019), *A need for change! A coding framework for improving transparency in decision modeling* (expected loss).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import xarray as xr
from jaxtyping import Float

from bayes_mdp.decisions.verdict import shares_of_best
from bayes_mdp.utils.layout import Section, Table, as_html, as_text
from bayes_mdp.utils.typing import ArrayLike
from bayes_mdp.utils.validation import (
    as_real,
    check_finite,
    check_name,
    check_names,
    check_number,
    check_shape,
    check_type,
    described,
    require,
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
            # Every site has one value for each draw.
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
        # Linear in the outcomes: one product for all draws and strategies.
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
    # wtp * effect - cost, in units of cost.
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
    # A cost alone is to be small.
    return np.array([-1.0 if outcomes[0] == "cost" else 1.0])


FRONTIER, DOMINATED, EXTENDED = "frontier", "dominated", "extendedly dominated"


@dataclass(frozen=True)
class CostEffectiveness:
    """Mean costs and effects of strategies, cheapest first; `print` shows the table.

    Args:
        table: by `strategy`: `cost`, `effect`; `status`; of strategies on the frontier `incremental_cost`,
            `incremental_effect` and `icer` against the strategy before on the frontier (nan for others and the first).
    """

    table: xr.Dataset

    def icer(self, strategy: str) -> float:
        """The incremental cost-effectiveness ratio of a strategy; nan: it has none.

        Args:
            strategy: its name.

        Raises:
            KeyError: there is no such strategy.
        """
        return float(self.table["icer"].sel(strategy=strategy))

    __str__ = as_text
    _repr_html_ = as_html

    def layout(self) -> Section:
        """A row for each strategy, cheapest first; each one of the frontier is compared with the one before on it."""
        rows = []
        for name in self.table["strategy"].values:
            row = self.table.sel(strategy=name)
            status = str(row["status"].values)
            added = ["", "", "" if status == FRONTIER else status]
            if np.isfinite(float(row["icer"])):
                added = [
                    f"{float(row['incremental_cost']):,.2f}",
                    f"{float(row['incremental_effect']):.5f}",
                    f"{float(row['icer']):,.2f}",
                ]
            rows.append([str(name), f"{float(row['cost']):,.2f}", f"{float(row['effect']):.5f}", *added])
        head = ("strategy", "cost", "effect", "+ cost", "+ effect", "ICER")
        return Section("Mean costs and effects; ICER: cost of one more unit of effect", [Table(head, rows)])


def cost_effectiveness(draws: StrategyDraws) -> CostEffectiveness:
    """Mean costs and effects, incremental ratios along the frontier, and who is dominated.

    A strategy is dominated by one that costs no more and brings no less (and not both the same), and extendedly
    dominated where a mixture of two others is better: where its ratio is above that of the next strategy.

    Args:
        draws: of the outcomes "cost" and "effect".

    Raises:
        TypeError: no draws of strategies. ValueError: outcomes other than "cost" and "effect".

    Example:
        >>> costs_effects = np.array([[[10.0, 1.0], [30.0, 1.5]]] * 2)  # draw, strategy, outcome
        >>> draws = bm.strategies.StrategyDraws(("usual", "new"), ("cost", "effect"), costs_effects)
        >>> bm.strategies.cost_effectiveness(draws).icer("new")  # 20 more buy half a unit of effect
        40.0
    """
    check_type("draws", draws, StrategyDraws, "draws of strategies")
    cost, effect = draws.outcome("cost").mean(0), draws.outcome("effect").mean(0)
    # By cost, and of equal costs the more effective first.
    order = np.lexsort((-effect, cost))
    cost, effect = cost[order], effect[order]
    # Everybody is on the frontier until somebody beats them.
    status = np.full(len(order), FRONTIER, dtype=object)
    # Strong dominance: another strategy costs no more, brings no less, and is better in one of these.
    for i in range(len(order)):
        better = (cost <= cost[i]) & (effect >= effect[i]) & ((cost < cost[i]) | (effect > effect[i]))
        if better.any():
            status[i] = DOMINATED
    ratio = np.full((3, len(order)), np.nan)
    # Extended dominance: a falling ratio means that a mixture of the neighbours is better; one at a time, then again.
    while True:
        frontier = np.flatnonzero(status == FRONTIER)
        steps = np.diff(cost[frontier]), np.diff(effect[frontier])
        # Two strategies that are the same in both: no step, no ratio.
        with np.errstate(divide="ignore", invalid="ignore"):
            icer = steps[0] / steps[1]
        falling = np.flatnonzero(icer[:-1] > icer[1:])
        if not len(falling):
            break
        # The first offender leaves; ratios of the rest change, and are looked at again.
        status[frontier[falling[0] + 1]] = EXTENDED
    # Increments of what is left: each against the one before.
    ratio[:, frontier[1:]] = (*steps, icer)
    names = [draws.strategies[i] for i in order]
    columns = dict(zip(("incremental_cost", "incremental_effect", "icer"), ratio, strict=True))
    arrays = {"cost": cost, "effect": effect, "status": status.astype(str), **columns}
    return CostEffectiveness(xr.Dataset({key: ("strategy", x) for key, x in arrays.items()}, {"strategy": names}))


def acceptability(draws: StrategyDraws, wtp: ArrayLike) -> xr.Dataset:
    """How each strategy stands at several willingnesses to pay.

    Args:
        draws: of costs and effects.
        wtp: [W], willingnesses to pay, in units of cost per unit of effect, not negative.

    Returns:
        By `wtp` and `strategy`: `net_benefit` (mean), `prob_best` (the acceptability curves; equal net benefits share a
        draw), `expected_loss` (mean shortfall to the best of the draw). By `wtp`: `best` (of the highest mean),
        `frontier` (`prob_best` of `best`, which need not be the largest), `evpi` and `evpi_error` (Monte Carlo).

    Raises:
        ValueError: no willingness to pay, a negative one; draws without costs and effects. TypeError: no numbers.

    Example:
        >>> costs_effects = np.array([[[10.0, 1.0], [30.0, 1.5]]] * 2)  # draw, strategy, outcome
        >>> draws = bm.strategies.StrategyDraws(("usual", "new"), ("cost", "effect"), costs_effects)
        >>> table = bm.strategies.acceptability(draws, [10.0, 100.0])  # 20 more buy half a unit of effect
        >>> table["best"].values.tolist()
        ['usual', 'new']
    """
    check_type("draws", draws, StrategyDraws, "draws of strategies")
    grid = as_wtp(wtp)
    columns: dict[str, list[np.ndarray]] = {"net_benefit": [], "prob_best": [], "expected_loss": []}
    best, evpi, error = [], [], []
    for value in grid:
        benefit = draws.net_benefit(float(value))
        # The best in each draw, [draws, 1].
        top = benefit.max(1, keepdims=True)
        columns["net_benefit"].append(benefit.mean(0))
        columns["prob_best"].append(shares_of_best(benefit))
        # Expected loss of each strategy; that of the best one is the EVPI.
        columns["expected_loss"].append((top - benefit).mean(0))
        chosen = int(np.argmax(benefit.mean(0)))
        # The best strategy on average is the one adopted; what it loses against the best in each draw is the EVPI.
        gain = top[:, 0] - benefit[:, chosen]
        best.append(chosen)
        evpi.append(gain.mean())
        # One draw has no standard error.
        error.append(gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else np.inf)
    table = {name: (("wtp", "strategy"), np.stack(rows)) for name, rows in columns.items()}
    # Acceptability frontier: P(best) of the strategy with the largest mean.
    frontier = np.stack(columns["prob_best"])[np.arange(len(grid)), best]
    alone = {"best": np.array(draws.strategies)[best], "frontier": frontier, "evpi": evpi, "evpi_error": error}
    return xr.Dataset(
        {**table, **{name: ("wtp", np.asarray(x)) for name, x in alone.items()}},
        {"wtp": grid, "strategy": list(draws.strategies)},
    )


def as_wtp(wtp: ArrayLike) -> Float[np.ndarray, " wtp"]:
    """Willingnesses to pay as numbers.

    Raises:
        ValueError, TypeError: none, negative ones, no numbers.
    """
    grid = np.atleast_1d(np.asarray(as_real("wtp", wtp, "numbers of at least 0"), float))
    if not grid.size:
        raise ValueError("wtp is empty, expected at least one willingness to pay")
    check_finite("wtp", grid)
    require(grid < 0, "wtp", grid, "a number of at least 0")
    return grid
