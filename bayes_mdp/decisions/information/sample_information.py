"""`evsi`: what a `Study` is worth before deciding; `net_benefit_of_sampling`: what it is worth after paying for it.

A `Study` is data that one could collect about the sites of a decision model before deciding. The model itself simulates
the data, and its posterior is exact: no metamodel is fitted. Where net benefits are of degree one in the studied sites
only their posterior means matter, whose law is summed over data sets (binomial, multinomial, Poisson counts), or is
normal.

Source: Raiffa and Schlaifer (1961), *Applied Statistical Decision Theory*, chapters 4 and 5.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import xarray as xr
from jaxtyping import PRNGKeyArray

from bayes_mdp.decisions.information.expected_gain import check_sizes, value_of_learning
from bayes_mdp.decisions.information.learning_problem import InformationValue, Learned
from bayes_mdp.decisions.strategies.decision_model import DecisionModel
from bayes_mdp.decisions.strategies.site_law import CONJUGATE_DATA, StudiedSite
from bayes_mdp.renamed import accepts_moved
from bayes_mdp.utils.progress import bar_of
from bayes_mdp.utils.typing import ArrayLike
from bayes_mdp.utils.validation import (
    as_real,
    check_count,
    check_finite,
    check_key,
    check_number,
    check_type,
    described,
    require,
)


@dataclass(frozen=True)
class Study:
    """A proposed study: so many observations of named sites, all independent given the sites.

    Beta sites are seen by binomial trials, rows of Dirichlet sites by multinomial ones, gamma sites by Poisson counts
    (the number is the exposure, such as person-years), normal sites by measurements of known sd.

    Args:
        observations: site -> number of observations of each element (row); a number for all, or an array.
        sd: normal site -> standard deviation of one measurement.

    Raises:
        TypeError: no mapping. ValueError: numbers that are negative, or no integers.

    Example:
        >>> study = bm.information.Study({"cured": 10})  # ten persons, of whom each is cured or not
        >>> float(study.scaled(2).observations["cured"])
        20.0
    """

    observations: Mapping[str, ArrayLike]
    sd: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.observations, Mapping) or not self.observations:
            raise TypeError(f"observations is {described(self.observations)}, expected site -> number of observations")
        for name, number in self.observations.items():
            check_finite(f"observations[{name!r}]", number)
            require(np.asarray(number) < 0, f"observations[{name!r}]", number, "a number of at least 0")
        for name, sd in self.sd.items():
            check_number(f"sd[{name!r}]", sd, lambda x: x > 0, "a positive number")
            if name not in self.observations:
                raise ValueError(f"sd has {name!r}, expected sites of observations")

    def __str__(self) -> str:
        """Sites with their numbers."""
        return ", ".join(f"{_number(n)} of {name}" for name, n in self.observations.items())

    def scaled(self, factor: float) -> "Study":
        """The same study with `factor` times as many observations, rounded to integers."""
        # Whole observations: binomial and multinomial sites take no parts.
        rounded = {name: np.rint(np.asarray(n, float) * factor) for name, n in self.observations.items()}
        return Study(rounded, self.sd)

    def sites_of(self, model: DecisionModel) -> dict[str, StudiedSite]:
        """What it sees of each site of a model.

        Args:
            model: whose sites are observed.

        Raises:
            ValueError: a site that the program does not have, that has no conjugate data, or whose elements the numbers
                do not fit; a normal site without sd.
        """
        model.check_sites("observations", self.observations)
        studied = {}
        # Only sites of closed form have exact posteriors of simulated data.
        for name, number in self.observations.items():
            law = model.laws.get(name)
            if law is None or law.family not in CONJUGATE_DATA:
                family = model.trace.families[name]
                kinds = ", ".join(f"{key} ({data})" for key, data in CONJUGATE_DATA.items())
                why = (
                    f"a {family} site" if law is not None or family not in CONJUGATE_DATA else "no site of closed form"
                )
                raise ValueError(f"observations has {name!r}, which is {why}, expected exact sites of {kinds}")
            # A row of a Dirichlet site is observed as a whole.
            rows = law.shape[:-1] if law.family == "Dirichlet" else law.shape
            try:
                numbers = np.broadcast_to(np.asarray(number, float), rows)
            except ValueError:
                raise ValueError(
                    f"observations[{name!r}] has shape {np.shape(number)}, expected a number, or shape {rows}"
                ) from None
            if law.family in ("Beta", "Dirichlet"):
                require(numbers != np.rint(numbers), f"observations[{name!r}]", numbers, "an integer")
            # A normal site is measured with a known sd, and no other site is.
            if (law.family == "Normal") != (name in self.sd):
                expected = "the sd of one measurement" if law.family == "Normal" else f"none: it is a {law.family} site"
                raise ValueError(f"sd[{name!r}] is {self.sd.get(name, 'missing')}, expected {expected}")
            studied[name] = StudiedSite(law, numbers, self.sd.get(name))
        return studied


def _number(n: ArrayLike) -> str:
    array = np.asarray(n)
    return f"{array:g}" if array.ndim == 0 else str(array.tolist())


def evsi(
    key: PRNGKeyArray,
    model: DecisionModel,
    study: Study,
    wtp: float | None = None,
    *,
    num_draws: int | None = None,
    num_inner: int | None = None,
) -> InformationValue:
    """The expected value of sample information: what a study of a given size is worth to the choice of a strategy.

    Args:
        key: of the simulated data, where they are simulated.
        model: the belief.
        study: what would be observed.
        wtp: willingness to pay, as in `evpi`.
        num_draws: simulated data sets (None: 65,536; 16,384 where slopes are averaged; 4,096 with inner points for
            each).
        num_inner: inner points for each, where net benefits have to be averaged (None: 64).

    Raises:
        ValueError, TypeError: as `Study.sites_of` and `net_benefit_weights`.

    Example:
        >>> import numpyro
        >>> import numpyro.distributions as dist
        >>> model = bm.strategies.decision_model(lambda: {"a": numpyro.sample("p", dist.Beta(1.0, 1.0)), "b": 0.5})
        >>> answer = bm.information.evsi(jax.random.key(0), model, bm.information.Study({"p": 1}))
        >>> round(answer.value, 3)  # one observation moves the mean of p to 1/3 or 2/3
        0.083
    """
    check_key("key", key)
    check_type("model", model, DecisionModel, "a decision model")
    check_type("study", study, Study, "a Study")
    check_sizes(num_draws, num_inner)
    # The study's data are what will be learned.
    learned = Learned(studied=study.sites_of(model))
    return value_of_learning(key, model, learned, "EVSI", str(study), wtp, (num_draws, num_inner))


@dataclass(frozen=True)
class SamplingBenefit:
    """Studies of several sizes, and which pays most; `print` shows a table.

    Args:
        table: `evsi`, `standard_error` (of one decision), `population_evsi`, `cost`, `enbs` (of the population) by
            `size`.
        population: number of decisions, discounted.
    """

    table: xr.Dataset
    population: float

    @property
    def best_size(self) -> float:
        """The number of observations with the largest expected net benefit of sampling; 0: no study of these pays."""
        # Zero is always possible: no study at all.
        enbs = self.table["enbs"].values
        return float(self.table["size"].values[int(np.argmax(enbs))]) if np.max(enbs) > 0 else 0.0

    def __str__(self) -> str:
        """A row for each size."""
        lines = [
            f"Expected net benefit of sampling, {self.population:g} decisions",
            "  in the unit of the net benefit: EVSI and its error for one decision, the rest for all of them",
            f"  {'size':>10} {'EVSI':>12} {'error':>9} {'population':>14} {'cost':>14} {'ENBS':>14}",
        ]
        for _, row in self.table.to_dataframe().reset_index().iterrows():
            lines.append(
                f"  {row['size']:>10g} {row['evsi']:>12.6g} {row['standard_error']:>9.2g} "
                f"{row['population_evsi']:>14.6g} {row['cost']:>14.6g} {row['enbs']:>14.6g}"
            )
        best = self.best_size
        # The largest size that was tried may not be the best there is.
        largest = ", the largest: larger ones may pay more" if best == float(self.table["size"].max()) else ""
        lines.append(f"  best of these: {best:g}{largest}" if best else "  none of these pays")
        return "\n".join(lines)


@dataclass(frozen=True)
class StudyEconomics:
    """What a study serves and what it costs, for `net_benefit_of_sampling`.

    Args:
        population: number of decisions that the answer will serve, see `discounted_population`.
        fixed_cost: of a study of any size, in units of the net benefit.
        cost_per_size: of one observation more, in the same units.

    Raises:
        TypeError, ValueError: one sentence about the number at fault.

    Example:
        >>> bm.information.StudyEconomics(population=1000, cost_per_size=2.0).fixed_cost
        0.0
    """

    population: float
    fixed_cost: float = 0.0
    cost_per_size: float = 0.0

    def __post_init__(self) -> None:
        check_number(
            "population", self.population, lambda x: (x >= 0) & np.isfinite(x), "a finite number of at least 0"
        )
        check_number("fixed_cost", self.fixed_cost, np.isfinite, "a finite number")
        check_number("cost_per_size", self.cost_per_size, np.isfinite, "a finite number")


@accepts_moved("information.net_benefit_of_sampling")
def net_benefit_of_sampling(
    key: PRNGKeyArray,
    model: DecisionModel,
    study: Study,
    sizes: Sequence[float],
    wtp: float | None = None,
    *,
    economics: StudyEconomics,
    num_draws: int | None = None,
    num_inner: int | None = None,
) -> SamplingBenefit:
    """Expected net benefit of sampling: population * EVSI(n) - fixed cost - n * cost, for studies of several sizes.

    Args:
        key, model, wtp, num_draws, num_inner: as in `evsi`; all sizes have the same key.
        study: of size 1; size n has n times its observations (rounded).
        sizes: n, numbers of observations, positive.
        economics: how many decisions the study serves, what it costs.

    Raises:
        ValueError: no sizes, or one that is not positive; otherwise as `evsi`.
        TypeError: no `Study`, a size that is no number.

    Example:
        >>> import numpyro
        >>> import numpyro.distributions as dist
        >>> model = bm.strategies.decision_model(lambda: {"a": numpyro.sample("p", dist.Beta(1.0, 1.0)), "b": 0.5})
        >>> study, sizes = bm.information.Study({"p": 1}), [1, 10]
        >>> benefit = bm.information.net_benefit_of_sampling(
        ...     jax.random.key(0), model, study, sizes, economics=bm.information.StudyEconomics(1000, cost_per_size=2.0)
        ... )
        >>> print(benefit)
        Expected net benefit of sampling, 1000 decisions
        ...
    """
    check_type("study", study, Study, "a Study")
    check_type("economics", economics, StudyEconomics, "StudyEconomics")
    population = economics.population
    numbers = np.atleast_1d(as_real("sizes", sizes, "positive numbers"))
    if numbers.ndim != 1 or not numbers.size or np.ndim(sizes) == 0:
        raise ValueError(f"sizes is {described(sizes)}, expected a list of at least one size")
    # A study of size zero is worth nothing, and costs its fixed part.
    require(~(numbers > 0) | np.isinf(numbers), "sizes", numbers, "a positive number")
    results = []
    with bar_of(len(sizes), " studies") as bar:
        for size in sizes:
            scaled = study.scaled(size)
            # The same key for all sizes: the curve is smooth in the size.
            results.append(evsi(key, model, scaled, wtp, num_draws=num_draws, num_inner=num_inner))
            bar.update()
    values = np.array([x.value for x in results])
    # ENBS(n) = population EVSI(n) - fixed cost - n cost.
    costs = economics.fixed_cost + economics.cost_per_size * np.asarray(sizes, float)
    table = xr.Dataset(
        {
            "evsi": ("size", values),
            "standard_error": ("size", np.array([x.standard_error for x in results])),
            "population_evsi": ("size", population * values),
            "cost": ("size", costs),
            "enbs": ("size", population * values - costs),
        },
        {"size": np.asarray(sizes, float)},
    )
    return SamplingBenefit(table, float(population))


def discounted_population(incidence: float, years: int, rate: float = 0.0) -> float:
    """Discounted number of decisions over the life of a technology: incidence * sum_{t < years} (1 + rate)^-t.

    Args:
        incidence: number of decisions per year.
        years: that the technology is in use.
        rate: discount rate per year, no unit.

    Raises:
        ValueError: a negative incidence, no years, a rate of -1 or less.
        TypeError: no number.
    """
    check_number("incidence", incidence, lambda x: (x >= 0) & np.isfinite(x), "a finite number of at least 0")
    check_count("years", years)
    check_number("rate", rate, lambda x: (x > -1) & np.isfinite(x), "a finite number above -1")
    # The first year counts in full.
    return float(incidence * np.sum((1.0 + rate) ** -np.arange(years)))
