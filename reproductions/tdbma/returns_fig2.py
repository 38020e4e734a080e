"""[TDBMA10] (Downey and Sanner 2010) figure 2: mean return over trials, TD-BMA against SARSA with fixed lambda.

What the paper states in words is tested on our tracks; the levels are those of an independent program on the same
tracks (for fewer trials a second one, in C, which takes the first of several best actions).
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from reproductions.reproduction import Reproduction, Row, mean_row
from reproductions.tdbma.trainings import (
    ALPHA,
    BMA,
    DOMAINS,
    FIXED,
    LABELS,
    STAGES,
    Training,
    curve,
    gain_row,
    level_rows,
    of_all,
    played,
    samples,
    stages,
    train,
    worst_stage_row,
)

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

FULL: Mapping[str, Training] = {
    "cliff": Training(of_all(ALPHA), 60_000),
    "corner": Training(of_all(ALPHA), 60_000),
    "mail": Training(of_all(ALPHA), 45_000),
}
QUICK: Mapping[str, Training] = {
    "cliff": Training(of_all(ALPHA), 15_000, 20),
    "corner": Training(of_all(ALPHA), 15_000, 20),
    "mail": Training(of_all(ALPHA), 600, 6),
}
LEVELS = {
    "cliff": {15_000: (-9.77, -11.21), 60_000: (-9.05, -9.98)},
    "corner": {15_000: (-8.87, -9.51), 60_000: (-8.23, -8.63)},
}
PAPER_TRIALS = {"cliff": 16_000, "corner": 35_000, "mail": 45_000}
"""Where the axes of the paper end."""
SHOWN = {"cliff": (-40.0, -5.0), "corner": (-40.0, -5.0)}


def rows(result: "xr.Dataset") -> list[Row]:
    """Levels on the tracks; how much better TD-BMA is in the last and in the worst tenth; every mean of the last."""
    table = []
    for domain, levels in LEVELS.items():
        table += level_rows(result, domain, ALPHA, levels)
    for domain in FULL:
        table += [gain_row(result, domain, ALPHA), worst_stage_row(result, domain, ALPHA)]
    for domain in FULL:
        for agent in (BMA, *FIXED):
            for stage, name in ((0, "first"), (STAGES - 1, "last")):
                values = stages(result, domain, agent, ALPHA)[:, stage]
                table.append(mean_row(f"{domain}: {LABELS[agent]}, {name} tenth", None, values))
    return table


def figure(result: "xr.Dataset") -> "Figure":
    """Three panels: mean return over trials with 95 % intervals; dotted: where the paper's axis ends."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(14.0, 4.6), layout="constrained")
    for axes, domain in zip(drawing.subplots(1, 3), FULL, strict=True):
        for number, agent in enumerate((BMA, *reversed(FIXED))):
            if played(result, domain, agent, ALPHA):
                curve(axes, result, (domain, agent, ALPHA), color=f"C{number}", label=LABELS[agent])
        ends = result["trials"].sel(domain=domain).to_numpy()
        if ends[-1] > PAPER_TRIALS[domain]:
            axes.axvline(PAPER_TRIALS[domain], color="0.5", linestyle=":")
        if domain in SHOWN:
            axes.set_ylim(*SHOWN[domain])
        axes.set_title(f"{DOMAINS[domain].label}, {len(samples(result, domain, BMA, ALPHA))} seeds", fontsize=10)
        axes.set_xlabel("trials")
        axes.legend(fontsize=8)
    drawing.axes[0].set_ylabel("mean return of a trial")
    drawing.suptitle(f"alpha = {ALPHA}: mean over seeds, 95 % interval")
    return drawing


REPRODUCTION = Reproduction(
    source="[TDBMA10] figure 2: mean return over trials, TD-BMA and SARSA",
    run=partial(train, plan=FULL),
    rows=rows,
    figure=figure,
    quick={"plan": QUICK},
    seconds={"quick": 120.0, "full": 25000.0},
    one_thread=True,
)
