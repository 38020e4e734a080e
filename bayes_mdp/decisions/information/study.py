"""`Study`: data that one could collect about the sites of a decision model before deciding."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from bayes_mdp.decisions.strategies.decision_model import DecisionModel
from bayes_mdp.decisions.strategies.site_law import CONJUGATE_DATA, StudiedSite
from bayes_mdp.utils.typing import ArrayLike
from bayes_mdp.utils.validation import check_finite, check_number, described, require


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
        >>> study = bm.Study({"cured": 10})  # ten persons, of whom each is cured or not
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
        for name, number in self.observations.items():
            law = model.laws.get(name)
            if law is None or law.family not in CONJUGATE_DATA:
                family = model.trace.families[name]
                kinds = ", ".join(f"{key} ({data})" for key, data in CONJUGATE_DATA.items())
                why = (
                    f"a {family} site" if law is not None or family not in CONJUGATE_DATA else "no site of closed form"
                )
                raise ValueError(f"observations has {name!r}, which is {why}, expected exact sites of {kinds}")
            rows = law.shape[:-1] if law.family == "Dirichlet" else law.shape
            try:
                numbers = np.broadcast_to(np.asarray(number, float), rows)
            except ValueError:
                raise ValueError(
                    f"observations[{name!r}] has shape {np.shape(number)}, expected a number, or shape {rows}"
                ) from None
            if law.family in ("Beta", "Dirichlet"):
                require(numbers != np.rint(numbers), f"observations[{name!r}]", numbers, "an integer")
            if (law.family == "Normal") != (name in self.sd):
                expected = "the sd of one measurement" if law.family == "Normal" else f"none: it is a {law.family} site"
                raise ValueError(f"sd[{name!r}] is {self.sd.get(name, 'missing')}, expected {expected}")
            studied[name] = StudiedSite(law, numbers, self.sd.get(name))
        return studied


def _number(n: ArrayLike) -> str:
    array = np.asarray(n)
    return f"{array:g}" if array.ndim == 0 else str(array.tolist())
