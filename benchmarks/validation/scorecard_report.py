"""The scorecard in words, as a figure, and beside the one that comes with the package (`scorecard.csv`)."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bayes_mdp.utils.validation import check_dataset, check_type
from benchmarks.validation.scorecard import LEVELS
from benchmarks.validation.scorecard_methods import SIMPLER_METHODS
from benchmarks.validation.stored_tables import records_csv, stored_records

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

FILE = "scorecard.csv"
TOLERANCE, LIMIT = 0.1, 3.0  # of the ratio of standard deviations; its standard errors
UNDECIDED = "undecided"


@dataclass(frozen=True)
class Score:
    """One method on one class of problems.

    Args:
        problems, estimator: as in the Dataset of `scorecard`.
        verdict: "calibrated", "too sure", "too wide", "undecided" or "refused"; see `judge`.
        says: the `validity` that the method states.
        sd_ratio: stated over true standard deviation of q.
        coverage_50, coverage_80, coverage_95: of q.
        crps, pair_score, pair_gain: see `scorecard`.
        num_mdps, num_draws: how many MDPs, and draws of methods by draws.
        versions: of what computed it.
    """

    problems: str
    estimator: str
    verdict: str
    says: str
    sd_ratio: float
    coverage_50: float
    coverage_80: float
    coverage_95: float
    crps: float
    pair_score: float
    pair_gain: float
    num_mdps: int
    num_draws: int
    versions: str


def judge(ratio: float, error: float) -> str:
    """The verdict on a ratio of stated over true standard deviation, from its interval of 3 standard errors.

    "calibrated": all of it is within 10 % of one; "too sure": all of it below that band, "too wide": all above;
    "undecided": else, too few MDPs.
    """
    if np.isnan(ratio):
        return "refused"
    low, high = ratio - LIMIT * error, ratio + LIMIT * error
    if low >= 1 - TOLERANCE and high <= 1 + TOLERANCE:
        return "calibrated"
    if high < 1 - TOLERANCE:
        return "too sure"
    return "too wide" if low > 1 + TOLERANCE else UNDECIDED


def scores_of(result: "xr.Dataset") -> list[Score]:
    """The lines of a scorecard; a method that does not apply to a class at all has none."""
    check_dataset("result", result)
    known = json.loads(result.attrs["versions"])
    versions = f"bayes-mdp {known['bayes_mdp']} jax {known['jax']} numpy {known['numpy']}"
    num_mdps, num_draws = int(result.attrs["num_mdps"]), int(result.attrs["num_draws"])
    lines = []
    for kind in result["problems"].values:
        for name in result["estimator"].values:
            one = result.sel(problems=kind, estimator=name)
            crps, pair_score, pair_gain = (float(one[field]) for field in ("crps", "pair_score", "pair_gain"))
            ratio, inside = float(one["sd_ratio"]), one["coverage"].values.tolist()
            verdict, says = judge(ratio, float(one["sd_ratio_error"])), str(one["says"].values)
            if verdict == "refused" and name in SIMPLER_METHODS:
                continue
            numbers = ratio, inside[0], inside[1], inside[2], crps, pair_score, pair_gain
            lines.append(Score(str(kind), str(name), verdict, says, *numbers, num_mdps, num_draws, versions))
    return lines


def describe_scorecard(lines: list[Score]) -> str:
    """A table for a person: a block for each class, a line for each method."""
    check_type("lines", lines, (list, tuple), "a list of scores")
    if not lines:
        return "No method of the scorecard applies to these classes."
    first, width = lines[0], max(len(line.estimator) for line in lines)
    head = f"  {'method':<{width}} {'verdict':<12}{'says':<13}{'sd ratio':>9}"
    head += "".join(f"{f'in {level:.0%}':>8}" for level in LEVELS) + f"{'CRPS':>9}{'pairs':>9}{'gain':>7}"
    text = [
        "What methods state about the values of a policy, against the truth in MDPs drawn from a prior",
        f"{first.num_mdps} MDPs a class, methods by draws {first.num_draws} draws; {first.versions}",
        "sd ratio: stated over true standard deviation of q. in 95%: how often the 95 % interval holds the true q.",
        "pairs: score of v over pairs of states, nats, the less the better; gain: of that, by knowing correlations.",
    ]
    for kind in dict.fromkeys(line.problems for line in lines):
        text += ["", kind, head]
        text += [_line(line, width) for line in lines if line.problems == kind]
    return "\n".join(text)


def _line(line: Score, width: int) -> str:
    start = f"  {line.estimator:<{width}} {line.verdict:<12}{line.says:<13}"
    if line.verdict == "refused":
        return start.rstrip()
    inside = "".join(f"{x:>8.1%}" for x in (line.coverage_50, line.coverage_80, line.coverage_95))
    return f"{start}{line.sd_ratio:>9.3f}{inside}{line.crps:>9.3f}{line.pair_score:>9.3f}{line.pair_gain:>7.2f}"


def scorecard_csv(lines: Iterable[Score]) -> str:
    """As the text of a CSV file."""
    return records_csv(Score, lines)


def stored_scorecard() -> list[Score]:
    """The scorecard that comes with the package."""
    return stored_records(Score, FILE)


def changed_scores(ours: Iterable[Score], stored: Iterable[Score]) -> list[str]:
    """Sentences on what differs from the stored scorecard: verdicts, and what methods say. "undecided" differs from
    nothing: there were too few MDPs."""
    expected = {(line.problems, line.estimator): line for line in stored}
    sentences = []
    for line in ours:
        where = f"{line.estimator}, {line.problems}"
        other = expected.get((line.problems, line.estimator))
        if other is None:
            sentences.append(f"{where}: the stored scorecard has no such line")
            continue
        if line.verdict != other.verdict and UNDECIDED not in (line.verdict, other.verdict):
            sentences.append(f"{where}: verdict is {line.verdict}, stored is {other.verdict}")
        if line.says != other.says:
            sentences.append(f"{where}: says is {line.says!r}, stored is {other.says!r}")
    return sentences


def plot_scorecard(result: "xr.Dataset") -> "Figure":
    """Coverage of each method against what it states, a panel for each class."""
    check_dataset("result", result)
    from matplotlib.figure import Figure

    kinds, names = result["problems"].values, result["estimator"].values
    figure = Figure(figsize=(3.2 * len(kinds) + 2.4, 0.32 * len(names) + 1.4), layout="constrained")
    panels = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
    places = np.arange(len(names))[::-1]
    for axes, kind in zip(panels, kinds, strict=True):
        for i, level in enumerate(LEVELS):
            one = result.sel(problems=kind, level=level)
            color = f"C{i}"
            axes.axvline(level, color=color, linewidth=0.8, linestyle="--")
            axes.errorbar(
                one["coverage"],
                places,
                xerr=one["coverage_half"],
                fmt="o",
                color=color,
                markersize=4,
                label=f"{level:.0%}",
            )
        axes.set_title(str(kind))
        axes.set_xlim(0, 1.02)
        axes.set_xlabel("true values inside")
    panels[0].set_yticks(places, [str(name) for name in names])
    panels[-1].legend(title="stated", fontsize="small")
    return figure
