"""`Check`: the result of a check, as numbers, in words and as figures."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from scipy import stats

from bayes_mdp.calibration.simulation_based.ecdf import detectable, simultaneous_band
from bayes_mdp.calibration.simulation_based.sbc_result import remedy
from bayes_mdp.utils.files import read_netcdf, write_netcdf
from bayes_mdp.utils.layout import Facts, Section, as_html, as_text
from bayes_mdp.utils.messages import count_of, first_names
from bayes_mdp.utils.validation import check_type

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


FORMAT = "bayes_mdp check 1"
WIDTH = 100
JOINT, OPTIMAL = "joint", "P(optimal)"
LITTLE = 0.1  # contraction below which the data are hardly informative
STRONG = 3.0  # standard errors above which a mean or a standard deviation of z-scores is reported
NAMED = 4  # quantities in colour
MOST_POINTS = 100  # of one quantity, if each has an error bar
GREY = "0.75"
BAND = {"color": "tab:blue", "alpha": 0.15, "linewidth": 0}
LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class Check:
    """Whether posteriors are calibrated; `print` it for a report in words.

    Args:
        dataset: everything, as an `xarray.Dataset` (see `check`); `bm.load` reads its file.
    """

    dataset: xr.Dataset

    def at(self, false_alarm: float) -> "Check":
        """The same simulations, tested at another probability of a false alarm.

        Args:
            false_alarm: the other probability, between 0 and 1.

        Raises:
            ValueError: it does not lie between 0 and 1.
        """
        if not 0 < false_alarm < 1:
            raise ValueError(f"false_alarm is {false_alarm}, expected a probability between 0 and 1")
        return Check(self.dataset.assign_attrs(false_alarm=false_alarm))

    @property
    def calibrated(self) -> bool:
        """Whether no test rejects."""
        return not self.findings

    @property
    def findings(self) -> tuple[str, ...]:
        """Names of what is not calibrated: quantities, "joint", "P(optimal)"; the clearest first."""
        p_values = self.p_values
        # Bonferroni: each of the tests gets an equal part of the false alarms.
        least = self.dataset.attrs["false_alarm"] / len(p_values)
        return tuple(sorted((name for name, p in p_values.items() if p < least), key=lambda name: p_values[name]))

    @property
    def p_values(self) -> dict[str, float]:
        """Of every test, a probability. Bonferroni: each is compared with `false_alarm` over their number."""
        # Only quantities that vary between truths were tested.
        of_quantities = self._varying["p_value"]
        named = zip(of_quantities["quantity"].to_numpy(), of_quantities.to_numpy(), strict=True)
        tests = {str(name): float(p) for name, p in named}
        for name, variable in ((JOINT, "joint_p_value"), (OPTIMAL, "brier_p_value")):
            if variable in self.dataset:
                tests[name] = float(self.dataset[variable])
        return tests

    @property
    def coverage_error(self) -> tuple[float, float]:
        """The largest |coverage - nominal| over quantities and levels, and its Monte Carlo standard error."""
        error, _, level = self._worst_coverage()
        nominal = float(self.dataset["level"][level])
        # The standard error of a share of N simulations.
        return error, float(np.sqrt(nominal * (1 - nominal) / self.dataset.sizes["simulation"]))

    @property
    def contraction(self) -> float:
        """Mean of 1 - posterior variance / prior variance: 0 if the data are not informative, 1 if all is known."""
        return float(self._varying["contraction"].mean())

    @property
    def z_score(self) -> xr.Dataset:
        """`mean` and `sd` of (truth - posterior mean) / posterior sd of each quantity: 0 and 1 where calibrated.

        The sign is that of the truth: a negative mean: the posterior lies too high.
        """
        z = self._varying["z_score"]
        return xr.Dataset({"mean": z.mean("simulation"), "sd": z.std("simulation", ddof=1)})

    @property
    def verdict(self) -> str:
        """One sentence."""
        attrs, number = self.dataset.attrs, len(self.p_values)
        chance = f"false alarms: at most {attrs['false_alarm']:.2g} of the checks of a calibrated posterior"
        if self.calibrated:
            tried = self.dataset.sizes["simulation"]
            return (
                f"calibrated as far as {count_of(tried, 'simulation')} can tell ({count_of(number, 'test')}; {chance})"
            )
        rejected = f"{len(self.findings)} of {number} tests reject"
        return f"not calibrated: {rejected} ({first_names(self.findings)}; {chance})"

    def to_netcdf(self, path: str | Path) -> None:
        """Write the dataset, atomically; `bm.load` reads it.

        Raises:
            ValueError: `path` is a folder, a device or a pipe.
            OSError: the file cannot be written.
        """
        write_netcdf(self.dataset, path)

    __str__ = as_text
    _repr_html_ = as_html

    def layout(self) -> Section:
        """The verdict, the simulations, each score, and advice."""
        attrs = self.dataset.attrs
        facts = {
            "tried": self._tests_in_words(),
            "coverage": self._coverage(),
            "z-score": self._z_score(),
            "contraction": self._contraction(),
        }
        if "joint_p_value" in self.dataset:
            facts[JOINT] = self._joint()
        if "brier_score" in self.dataset:
            facts[OPTIMAL] = self._optimal()
        facts |= {"verdict": self.verdict, "what to do": self._advice()}
        verdict = "calibrated" if self.calibrated else "NOT CALIBRATED"
        return Section(f"Calibration of {attrs['prior']}, inference {attrs['method']}: {verdict}", [Facts(facts)])

    @property
    def _varying(self) -> xr.Dataset:
        return self.dataset.isel(quantity=np.flatnonzero(self.dataset["varies"].to_numpy()))

    def _worst_coverage(self) -> tuple[float, str, int]:
        coverage = self._varying["coverage"]
        # [quantity, level]: the worst of all.
        error = abs(coverage - coverage["level"]).to_numpy()
        row, column = np.unravel_index(int(error.argmax()), error.shape)
        return float(error[row, column]), str(coverage["quantity"].to_numpy()[row]), int(column)

    def _tests_in_words(self) -> str:
        attrs, sizes = self.dataset.attrs, self.dataset.sizes
        # What no truth varies is reported, not judged.
        constant = sizes["quantity"] - self._varying.sizes["quantity"]
        known = f" ({constant} more are the same in every truth, and left out)" if constant else ""
        return (
            f"{count_of(sizes['simulation'], 'truth')} drawn from {attrs['source']}, "
            f"{count_of(int(attrs['num_transitions']), 'transition')} of each ({attrs['behaviour']}), "
            f"{attrs['num_draws']} draws of each posterior; "
            f"{count_of(self._varying.sizes['quantity'], 'quantity')}{known}, {attrs['objective']}"
        )

    def _coverage(self) -> str:
        error, name, level = self._worst_coverage()
        coverage = self._varying["coverage"]
        mean = float(np.abs(coverage - coverage["level"]).mean())
        return (
            f"largest error {error:.3f} +- {self.coverage_error[1]:.3f} ({name}: its "
            f"{float(coverage['level'][level]):.0%} interval holds the truth in "
            f"{float(coverage.sel(quantity=name)[level]):.0%}), mean {mean:.3f}"
        )

    def _z_score(self) -> str:
        z, number = self.z_score, self.dataset.sizes["simulation"]
        # Standard errors under calibration: 1 / sqrt(N) and 1 / sqrt(2 N).
        mean, sd = z["mean"], z["sd"]
        return (
            f"means {float(mean.min()):.2f} to {float(mean.max()):.2f}, sds {float(sd.min()):.2f} to "
            f"{float(sd.max()):.2f} (0 and 1 expected, +- {number**-0.5:.2f} and about +- {(2 * number) ** -0.5:.2f})"
        )

    def _contraction(self) -> str:
        contraction = self._varying["contraction"].mean("simulation")
        return (
            f"{float(contraction.min()):.2f} to {float(contraction.max()):.2f}, mean {self.contraction:.2f} "
            "(0: the data teach nothing of a quantity, 1: everything)"
        )

    def _joint(self) -> str:
        data = self.dataset
        return (
            f"energy score of the truth {float(data['energy_score'].mean()):.4g}, of the draws in its place "
            f"{float(data['energy_score_draws'].mean()):.4g}; its ranks are uniform with p = "
            f"{float(data['joint_p_value']):.2g}"
        )

    def _optimal(self) -> str:
        data = self.dataset
        score, expected, z = (float(data[f"brier_{name}"]) for name in ("score", "expected", "z"))
        return (
            f"a forecast, scored as such: Brier score {score:.4g}, {expected:.4g} expected of calibrated forecasts "
            f"like these ({z:+.1f} standard errors, p <= {float(data['brier_p_value']):.2g})"
        )

    def _advice(self) -> str:
        attrs, number = self.dataset.attrs, self.dataset.sizes["simulation"]
        if not self.calibrated:
            return f"{self._symptom()} {remedy(attrs['method'])}"
        # The level of a single test decides what it can detect.
        level = float(attrs["false_alarm"]) / len(self.p_values)
        limits = detectable(number, int(attrs["num_draws"]), level).in_words(number)
        if self.contraction < LITTLE:
            return (
                f"more transitions: these teach almost nothing, so that hardly more than the prior is tested; {limits}"
            )
        return f"nothing; {limits}"

    def _symptom(self) -> str:
        """How the clearest finding deviates, by its z-scores or its Brier score."""
        data, number = self.dataset, self.dataset.sizes["simulation"]
        name = next((moment for moment in self.findings if moment not in (JOINT, OPTIMAL)), self.findings[0])
        if name == OPTIMAL:
            sure = float(data["brier_z"]) > 0
            return (
                f"The forecasts of which action is optimal are {'too sure, or wrong' if sure else 'not sure enough'}."
            )
        if name == JOINT:
            # Truths far out among the draws have a high rank of the energy score.
            far_off = float(data["joint_rank"].mean()) > data.attrs["num_draws"] / 2
            return (
                f"The quantities together are off: their draws lie too {'near each other' if far_off else 'far apart'}."
            )
        # z = (truth - mean) / sd: its standard deviation is above one where draws are too narrow.
        mean, sd = (float(self.z_score[moment].sel(quantity=name)) for moment in ("mean", "sd"))
        # In standard errors: sd / sqrt(N) of a mean, about 1 / sqrt(2 N) of a standard deviation.
        words = []
        if abs(mean) > STRONG * sd / number**0.5:
            words.append(f"lies {abs(mean):.2f} posterior sd too {'low' if mean > 0 else 'high'}")
        if abs(sd - 1) > STRONG / (2 * number) ** 0.5:
            words.append("is too narrow (too sure)" if sd > 1 else "is too wide (not sure enough)")
        return f"The posterior of {name} {' and '.join(words) or 'has the wrong shape (see the ECDF)'}."


def load_check(path: str | Path) -> Check:
    """Read a file of `check(path=...)` or `Check.to_netcdf`.

    Args:
        path: of the file.

    Returns:
        The check, as it was written.

    Raises:
        ValueError: the file is truncated or altered (its checksum does not fit), or no check.
        OSError: it cannot be read.
    """
    dataset = read_netcdf(path, "a whole NetCDF file that check(path=...) wrote")
    if dataset.attrs.get("format") != FORMAT:
        raise ValueError(f"path is {str(path)!r} of format {dataset.attrs.get('format')!r}, expected {FORMAT!r}")
    return Check(dataset)


# Figures, one function each, and all of them (`plot_check`). Matplotlib is loaded when one is drawn. The quantities
# with the smallest p-values are drawn in colour and named, the others in grey.


def plot_check(check: Check) -> "Figure":
    """The pictures of a check: recovery, ECDF difference, coverage, z-score, joint score, reliability of P(optimal).

    Args:
        check: result of `check`.

    Raises:
        TypeError: no `Check`.

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(1, 2)
        >>> result = bm.check(jax.random.key(0), prior, space, num_simulations=20, num_transitions=10)
        >>> bm.plots.plot_check(result).savefig("check.png")
    """
    check_type("check", check, Check, "a Check")
    from bayes_mdp.utils.figures import NotebookFigure

    pictures = [plot_recovery, plot_ecdf, plot_coverage, plot_z_score]
    pictures += [plot_joint] if "joint_rank" in check.dataset else []
    pictures += [plot_reliability] if "optimal" in check.dataset else []
    figure = NotebookFigure(figsize=(13.5, 8.0), layout="constrained")
    axes = figure.subplots(2, 3).ravel()
    # A panel for each picture; what is left over is taken away.
    for draw, panel in zip(pictures, axes, strict=False):
        draw(check, axes=panel)
    # A picture that this check has no numbers for leaves its place empty.
    for unused in axes[len(pictures) :]:
        unused.remove()
    state = "calibrated" if check.calibrated else "NOT CALIBRATED"
    attrs, number = check.dataset.attrs, check.dataset.sizes["simulation"]
    figure.suptitle(f"{attrs['prior']}, inference {attrs['method']}, {number} truths from {attrs['source']}: {state}")
    return figure


def plot_recovery(check: Check, *, axes: "Axes | None" = None) -> "Figure":
    """Posterior means and intervals against the truths, in standard deviations of the truths from their mean."""
    figure, panel = _place(axes)
    limits = [0.0, 0.0]
    for name, color, data in _quantities(check, only_named=True):
        # Units of the spread of the truths: quantities of several scales share the picture.
        mean, sd = float(data["truth"].mean()), float(data["truth"].std(ddof=1))
        shown = slice(MOST_POINTS)
        names = ("truth", "posterior_mean", "interval_low", "interval_high")
        truth, middle, low, high = ((data[variable].to_numpy()[shown] - mean) / sd for variable in names)
        # The mean of a skewed posterior may lie outside its interval.
        bars = np.maximum([middle - low, high - middle], 0.0)
        panel.errorbar(truth, middle, bars, fmt="o", color=color, ms=2.5, elinewidth=0.5, alpha=0.6, label=name)
        # The diagonal reaches over all points and bars.
        limits = [min(limits[0], low.min(), truth.min()), max(limits[1], high.max(), truth.max())]
    panel.plot(limits, limits, "k-", linewidth=0.8)
    probability = check.dataset["interval_low"].attrs["probability"]
    panel.set(
        title=f"recovery: posterior mean, {probability:.0%} interval", xlabel="truth (prior sd)", ylabel="posterior"
    )
    panel.legend(fontsize="small")
    return figure


def plot_ecdf(check: Check, *, axes: "Axes | None" = None) -> "Figure":
    """ECDF of the ranks minus that of uniform ranks, with the band of the test."""
    figure, panel = _place(axes)
    num_draws, alarm = int(check.dataset.attrs["num_draws"]), check.dataset.attrs["false_alarm"]
    # Share of ranks below each, of a uniform law.
    x = np.arange(1, num_draws + 2) / (num_draws + 1)
    number = check.dataset.sizes["simulation"]
    # At the level of a single test: a line that leaves it has a small p-value.
    band = simultaneous_band(number, num_draws, alarm / len(check.p_values))
    panel.fill_between(x, band.low / number - x, band.high / number - x, step="post", label="band", **BAND)
    for name, color, data in _quantities(check):
        panel.step(x, _ecdf(data["rank"].to_numpy(), num_draws) - x, where="post", color=color, label=name, linewidth=1)
    if "joint_rank" in check.dataset:
        joint = _ecdf(check.dataset["joint_rank"].to_numpy(), num_draws) - x
        panel.step(x, joint, "k--", where="post", label="joint", linewidth=1)
    panel.axhline(0, color="k", linewidth=0.8)
    panel.set(title="ranks: ECDF difference", xlabel="rank of the truth / draws", ylabel="ECDF - uniform", xlim=(0, 1))
    panel.legend(fontsize="small")
    return figure


def plot_coverage(check: Check, *, axes: "Axes | None" = None) -> "Figure":
    """Fraction of simulations whose central interval holds the truth against its level, and the band of one level."""
    figure, panel = _place(axes)
    number = check.dataset.sizes["simulation"]
    level = np.linspace(0.0, 1.0, 201)
    # Exact binomial bounds at every level.
    low, high = stats.binom.interval(LEVEL, number, level)
    panel.fill_between(level, low / number, high / number, label=f"{LEVEL:.0%} at one level", **BAND)
    for name, color, data in _quantities(check):
        panel.plot(data["level"], data["coverage"], ".-", color=color, label=name, linewidth=1, markersize=3)
    panel.plot([0, 1], [0, 1], "k-", linewidth=0.8)
    panel.set(title="coverage of central intervals", xlabel="nominal", ylabel="coverage", xlim=(0, 1), ylim=(0, 1))
    panel.legend(fontsize="small", loc="upper left")
    return figure


def plot_z_score(check: Check, *, axes: "Axes | None" = None) -> "Figure":
    """z-score of the truth against contraction, a point for each simulation and quantity."""
    figure, panel = _place(axes)
    for name, color, data in _quantities(check):
        panel.plot(data["contraction"], data["z_score"], ".", color=color, label=name, markersize=3, alpha=0.6)
    for z in (-2, 2):
        panel.axhline(z, color="k", linewidth=0.8, linestyle=":")
    panel.axhline(0, color="k", linewidth=0.8)
    panel.set(title="z-score and contraction (2 in 3 within 1)", xlabel="contraction", ylabel="(truth - mean) / sd")
    panel.legend(fontsize="small")
    return figure


def plot_joint(check: Check, *, axes: "Axes | None" = None) -> "Figure":
    """Ranks of the truth's energy score among those of the draws: all quantities together.

    Raises:
        ValueError: the check has only one quantity that varies.
    """
    if "joint_rank" not in check.dataset:
        raise ValueError("check holds one quantity that varies, expected at least two for a joint score")
    figure, panel = _place(axes)
    num_bins = 10
    # Ranks in the middle of their cells, from 0 to 1.
    rank = (check.dataset["joint_rank"].to_numpy() + 0.5) / (int(check.dataset.attrs["num_draws"]) + 1)
    number = len(rank)
    low, high = stats.binom.interval(LEVEL, number, 1 / num_bins)
    panel.axhspan(low / number, high / number, label=f"{LEVEL:.0%} of one bar", **BAND)
    panel.hist(
        rank, np.linspace(0, 1, num_bins + 1).tolist(), weights=np.full(number, 1 / number), color="0.4", rwidth=0.9
    )
    panel.axhline(1 / num_bins, color="k", linewidth=0.8)
    p_value = float(check.dataset["joint_p_value"])
    panel.set(
        title=f"joint energy score of the truth, p = {p_value:.2g}",
        xlabel="rank among the draws (left: too wide, right: too narrow or off)",
        ylabel="share of simulations",
        xlim=(0, 1),
    )
    panel.legend(fontsize="small")
    return figure


def plot_reliability(check: Check, *, axes: "Axes | None" = None) -> "Figure":
    """How often an action was optimal against its posterior probability.

    Raises:
        ValueError: the check has no events of optimal actions.
    """
    if "optimal" not in check.dataset:
        raise ValueError("check holds no probabilities of optimal actions, expected those of an objective with actions")
    figure, panel = _place(axes)
    names = ("forecast", "frequency", "error", "count")
    forecast, frequency, error, count = (check.dataset[f"reliability_{name}"].to_numpy() for name in names)
    # Normal intervals of the frequencies, from their standard errors.
    bars = stats.norm.ppf((1 + LEVEL) / 2) * error
    panel.errorbar(forecast, frequency, bars, fmt="o", color="tab:blue", label=f"{LEVEL:.0%} interval", capsize=2)
    panel.bar(forecast, count / count.sum(), width=0.03, color=GREY, label="share of the forecasts")
    panel.plot([0, 1], [0, 1], "k-", linewidth=0.8)
    score, expected = float(check.dataset["brier_score"]), float(check.dataset["brier_expected"])
    panel.set(
        title=f"P(optimal): Brier score {score:.3f}, {expected:.3f} expected",
        xlabel="forecast",
        ylabel="frequency",
        xlim=(-0.02, 1.02),
        ylim=(-0.02, 1.02),
    )
    panel.legend(fontsize="small", loc="upper left")
    return figure


def _quantities(check: Check, *, only_named: bool = False) -> Iterator[tuple[str | None, str, xr.Dataset]]:
    """Label, colour and data of each quantity that varies; the named ones last, on top."""
    data = check.dataset
    # Smallest p-value first; what does not vary comes last and is cut off.
    order = np.argsort(np.where(data["varies"], data["p_value"], np.inf))[: int(data["varies"].sum())]
    named, unnamed = order[:NAMED], order[NAMED:]
    for index in () if only_named else unnamed:
        yield None, GREY, data.isel(quantity=index)
    for place, index in enumerate(named):
        yield str(data["quantity"].to_numpy()[index]), f"C{place}", data.isel(quantity=index)


def _ecdf(rank: np.ndarray, num_draws: int) -> np.ndarray:
    # Share of the ranks that are at most 0, 1, ..., L.
    return np.cumsum(np.bincount(rank, minlength=num_draws + 1)) / len(rank)


def _place(axes: "Axes | None") -> "tuple[Figure, Axes]":
    """The figure and axes to draw in: a new figure, if no axes are given."""
    from bayes_mdp.utils.figures import place

    return place(axes, (6.4, 4.8))
