"""`SBC`: the result of simulation-based calibration, as numbers, in words, for ArviZ and as a figure. Host-side.

`remedy` says what to try where simulations show that a method's posteriors are not calibrated.
"""

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from jaxtyping import Float, Int
from scipy import stats

from bayes_mdp.calibration.arviz.generation import Tree, as_tree
from bayes_mdp.calibration.simulation_based import ecdf
from bayes_mdp.calibration.simulation_based.quantities import varying
from bayes_mdp.utils.layout import Section, Table, as_html, as_text
from bayes_mdp.utils.messages import count_of, see

if TYPE_CHECKING:
    from matplotlib.figure import Figure


CLEAR = 4.0  # standard errors above which a deviation is described
LIKELIHOOD = "log_likelihood"
NO_NUMBER = "not a number"


@dataclass(frozen=True, eq=False)
class SBC:
    """Ranks of truths among posterior draws; `print` it for a verdict in words.

    Args:
        dataset: dims simulation, quantity. Variables `rank` (0..num_draws), `truth`, `mean` and `sd` of the draws,
            `finite` (truth and draws).
        false_alarm: probability that a correct posterior is rejected, all quantities together.

    Raises:
        ValueError: `false_alarm` does not lie between 0 and 1.
    """

    dataset: xr.Dataset
    false_alarm: float = 1e-6

    def __post_init__(self) -> None:
        if not 0 < self.false_alarm < 1:
            raise ValueError(f"false_alarm is {self.false_alarm}, expected a probability between 0 and 1")

    def at(self, false_alarm: float) -> "SBC":
        """The same ranks, tested at another probability of a false alarm.

        Args:
            false_alarm: the other probability, between 0 and 1.

        Raises:
            ValueError: it does not lie between 0 and 1.
        """
        return replace(self, false_alarm=false_alarm)

    @property
    def num_simulations(self) -> int:
        """Number of truths, data sets and posteriors."""
        return self.dataset.sizes["simulation"]

    @property
    def num_draws(self) -> int:
        """Number of draws of each posterior."""
        return int(self.dataset.attrs["num_draws"])

    @cached_property
    def judged(self) -> tuple[str, ...]:
        """The quantities that are tested: those that vary between truths."""
        # What all truths share cannot be misjudged.
        varies = varying(self.dataset.truth.values)
        return tuple(name for name, keep in zip(self.dataset.quantity.values.tolist(), varies, strict=True) if keep)

    @cached_property
    def p_values(self) -> dict[str, float]:
        """Exact p-value of each tested quantity (`bayes_mdp.calibration.simulation_based.ecdf.p_value`)."""
        return {name: ecdf.p_value(self._ranks(name), self.num_draws) for name in self.judged}

    @cached_property
    def failures(self) -> dict[str, str]:
        """Quantity -> what is wrong, in words. A quantity fails below `false_alarm` over their number (Bonferroni)."""
        # Whether a quantity fails is decided by its p-value; place and width only describe it.
        wrong = {name: _describe(name, *self.shape(name)) for name, p in self.p_values.items() if p <= self._level}
        # Numbers that are none are a failure of their own.
        for name in self.judged:
            lost = int((~self.dataset.finite.sel(quantity=name).values).sum())
            if lost:
                sentence = f"{NO_NUMBER} in {lost} of {self.num_simulations} simulations"
                wrong[name] = f"{wrong[name]}; {sentence}" if name in wrong else sentence
        return wrong

    @property
    def passed(self) -> bool:
        """Whether no quantity fails; `detectable` tells which faults would have been found."""
        return not self.failures

    @property
    def detectable(self) -> ecdf.Detectable:
        """The smallest faults in one quantity that this number of simulations finds with probability 0.95."""
        return ecdf.detectable(self.num_simulations, self.num_draws, self._level)

    @property
    def ignores_data(self) -> bool:
        """Whether no posterior mean correlates with its truth (by 4 standard errors), the likelihood excepted."""
        # The likelihood varies with the data, whatever the posterior is.
        quantities = [name for name in self.judged if name != LIKELIHOOD]
        # The standard error of a correlation of nothing is 1 / sqrt(N).
        return bool(quantities) and all(
            self._correlation(name) < CLEAR / self.num_simulations**0.5 for name in quantities
        )

    def shape(self, quantity: str) -> tuple[float | None, float | None]:
        """(shift, scale) of the draws, estimated from the ranks as if all distributions were normal.

        Shift: their mean minus the correct one, in standard deviations of the draws. Scale: their standard deviation
        over the correct one. None: within 4 standard errors of a calibrated posterior.

        Args:
            quantity: one of those that were ranked.
        """
        # Normal scores of the ranks: of a calibrated posterior they are standard normal but for the grid, whose own
        # deviation is divided out. Draws too narrow put truths into the tails, so the score's width is the inverse of
        # the scale.
        grid = stats.norm.ppf((np.arange(self.num_draws + 1) + 0.5) / (self.num_draws + 1))
        score = grid[self._ranks(quantity)]
        num, mean, width = len(score), score.mean(), max(score.std() / grid.std(), 1e-9)
        # A mean that is high in rank: draws too low.
        shift = -float(mean) if abs(mean) > CLEAR * max(width, 1e-3) / num**0.5 else None
        scale = 1.0 / float(width) if abs(np.log(width)) > CLEAR / (2 * num) ** 0.5 else None
        return shift, scale

    __str__ = as_text
    _repr_html_ = as_html

    def layout(self) -> Section:
        """The verdict, the faults that could have been found, and a row for each quantity."""
        data = self.dataset.attrs
        rows = [(name, f"{p:.2g}", self.failures.get(name, "no fault seen")) for name, p in self.p_values.items()]
        known = [name for name in self.dataset.quantity.values.tolist() if name not in self.judged]
        rows += [(name, "-", "the same in every truth, not tested") for name in known]
        notes = []
        if not self.passed and self.ignores_data:
            notes.append("no posterior mean follows its truth: the posterior does not depend on the data")
        if not self.passed:
            notes.append(f"what to try: {self._next_step}")
        return Section(
            f"Simulation-based calibration of the method {data['method']!r}: {self.num_simulations} simulations of "
            f"{data.get('data') or count_of(int(data['num_transitions']), 'transition')}, {self.num_draws} draws each",
            [
                f"{'no fault seen' if self.passed else 'WRONG: ' + ', '.join(self.failures)} "
                f"(false alarm {self.false_alarm:.2g} over {len(self.judged)} quantities)",
                self.detectable.in_words(self.num_simulations),
                Table(("quantity", "p", "verdict"), rows, (0, 2)),
                *notes,
            ],
        )

    def to_arviz(self) -> Tree:
        """The ranks as PIT values, (rank + 1/2) / (num_draws + 1), in the group `prior_sbc` (dims chain, draw).

        `InferenceData` (ArviZ 0.x) or `xarray.DataTree` (1.x: `arviz.plot_ecdf_pit` reads it).
        """
        with warnings.catch_warnings():
            # The schema of ArviZ 0.x has no such group.
            warnings.simplefilter("ignore", UserWarning)
            return as_tree({"prior_sbc": self.pit()})

    def pit(self) -> xr.Dataset:
        """One variable for each tested quantity, dims chain (one) and draw (the simulations)."""
        values = {
            name: (("chain", "draw"), (self._ranks(name)[None] + 0.5) / (self.num_draws + 1)) for name in self.judged
        }
        return xr.Dataset(values, {"chain": [0], "draw": self.dataset.simulation.values})

    def plot_ecdf(self) -> "Figure":
        """ECDF of the ranks minus that of uniform ranks, one panel a quantity, with the band of the test."""
        from bayes_mdp.utils.figures import NotebookFigure

        # Three panels in a row, rounded up.
        rows = -(-len(self.judged) // 3)
        figure = NotebookFigure(figsize=(9.0, 2.4 * rows + 0.4), layout="constrained")
        panels = figure.subplots(rows, 3, sharex=True, sharey=True, squeeze=False).ravel()
        band = ecdf.simultaneous_band(self.num_simulations, self.num_draws, self._level)
        uniform = np.arange(1, self.num_draws + 2) / (self.num_draws + 1)
        for name, panel in zip(self.judged, panels, strict=False):
            counts = np.cumsum(np.bincount(self._ranks(name), minlength=self.num_draws + 1))
            low, high = (bound / self.num_simulations - uniform for bound in band)
            panel.fill_between(uniform, low, high, step="post", color="0.85")
            colour = "C3" if name in self.failures else "C0"
            panel.step(uniform, counts / self.num_simulations - uniform, where="post", color=colour)
            panel.set_title(name, fontsize="medium")
        for panel in panels[len(self.judged) :]:
            panel.set_visible(False)
        figure.supxlabel("rank / draws")
        figure.supylabel("ECDF difference")
        return figure

    @property
    def _next_step(self) -> str:
        usual = remedy(self.dataset.attrs["method"])
        if self.ignores_data:
            page = see("how-to/check-a-posterior")
            return f"Is the inference given the data, and does its program observe them? {page}"
        if any(NO_NUMBER in wrong for wrong in self.failures.values()):
            return f"Draws that are no numbers come first: bound the site or reparametrise. {usual}"
        return usual

    @property
    def _level(self) -> float:
        # Bonferroni over the quantities that are tested.
        return self.false_alarm / max(1, len(self.judged))

    def _ranks(self, name: str) -> Int[np.ndarray, " N"]:
        return self.dataset["rank"].sel(quantity=name).values

    def _correlation(self, name: str) -> float:
        truth, mean = (self.dataset[field].sel(quantity=name).values for field in ("truth", "mean"))
        return _rank_correlation(truth, mean)


def _rank_correlation(x: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"]) -> float:
    """Spearman's; zero if one of them is constant."""
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    return float(np.asarray(stats.spearmanr(x, y))[0])


def _describe(name: str, shift: float | None, scale: float | None) -> str:
    parts = []
    if shift is not None and name == LIKELIHOOD:
        parts.append(
            "the draws fit the data better than the truth does: data are overused"
            if shift > 0
            else "the draws fit the data worse than the truth does: data are ignored or underused"
        )
    elif shift is not None:
        parts.append(f"biased: draws too {'high' if shift > 0 else 'low'} by about {abs(shift):.2g} of their deviation")
    if scale is not None:
        parts.append(f"too {'narrow' if scale < 1 else 'wide'}: about {scale:.2f} times the right deviation")
    return ", ".join(parts) or "not uniform, though neither place nor width is clearly off"


APPROXIMATIONS = ("svi", "laplace")
INTEGRALS = ("quadrature", "importance")
CHAINS = ("nuts", "collapsed", "factorised", "gibbs")
CLOSED_FORMS = ("exact", "mixture")


def remedy(method: str) -> str:
    """What to try, and the page that says more.

    Args:
        method: of the inference, as `posterior.method` says; another one is taken as the user's own.
    """
    return f"{_sentence(method)} {see('how-to/check-a-posterior')}"


def _sentence(method: str) -> str:
    if method in APPROXIMATIONS:
        return f"{method} is an approximation: use NUTS (or collapsed, exact) where these quantities matter."
    if method in INTEGRALS:
        return (
            "Truths and data must come from the prior that is inferred. Compare one fit with method='collapsed' "
            "(chains): a mode that no start found is missing here. Where the two differ, report it with this file."
        )
    if method in CHAINS:
        return "Look at r-hat and divergences of one fit; more warm-up, more samples, another parametrisation."
    if method in CLOSED_FORMS:
        return (
            "This route is exact: truths and data must come from the prior that is inferred. Report it with this file."
        )
    return "Compare the prior and the likelihood of this fit with the program that the truths are drawn from."
