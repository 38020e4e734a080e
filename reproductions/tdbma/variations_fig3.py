"""[TDBMA10] (Downey and Sanner 2010) figure 3: other learning rates, and the mean lambda over the trials.

On our Curves TD-BMA loses to the best fixed lambda at every learning rate, where the paper's wins at two of three; an
independent program agrees. Full scale shows two variations beside it: speeds up to 3,
and frozen sweeps, in which each step still moves from the present entry. That reading changes nothing: an independent
program ends at -62.0 +- 2.6, and at -63.0 +- 3.0 where all steps of a trial move from the entry before it.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from bayes_mdp.experiments.results import half_width
from reproductions.reproduction import Reproduction, Row, mean_row
from reproductions.tdbma.trainings import (
    ABOVE,
    ALPHA,
    BMA,
    BONFERRONI,
    CHECKPOINTS,
    DOMAINS,
    FIXED,
    FROZEN,
    INFINITE,
    LABELS,
    STAGES,
    Training,
    best_fixed,
    curve,
    gain_row,
    level_rows,
    of_all,
    played,
    samples,
    stages,
    train,
)

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ALPHAS = {"curves": (0.05, 0.15, 0.25), "mail": (0.15, 0.25, 0.35)}
TRACKS = ("cliff", "corner", "curves")
_ONLY_BMA = {BMA: (ALPHA,)}
FULL: Mapping[str, Training] = {
    "curves": Training(of_all(*ALPHAS["curves"]) | {FROZEN: (ALPHA,)}, 90_000),
    "mail": Training(of_all(*ALPHAS["mail"]), 18_000),
    "corner": Training(_ONLY_BMA, 60_000),
    "cliff": Training(_ONLY_BMA, 60_000),
    "curves_speed3": Training(of_all(ALPHA), 60_000),
}
QUICK: Mapping[str, Training] = {
    "curves": Training(of_all(*ALPHAS["curves"]), 9000, 6),
    "mail": Training(of_all(*ALPHAS["mail"]), 600, 4),
    "corner": Training(_ONLY_BMA, 6000, 8),
    "cliff": Training(_ONLY_BMA, 6000, 8),
}
LEVELS = {
    0.05: {9000: (-100.1, -44.6), 60_000: (-46.9, -36.3)},
    0.15: {9000: (-65.1, -50.6), 60_000: (-49.3, -41.9)},
    0.25: {9000: (-69.2, -53.9), 60_000: (-56.3, -48.5)},
}
CLAIMS = {0.05: (-INFINITE, 0.0), 0.15: ABOVE, 0.25: ABOVE}
"""Curves: TD-BMA less the best fixed lambda, after the paper."""
VARIATIONS = {("curves", FROZEN): -62.8, ("curves_speed3", BMA): -65.2, ("curves_speed3", "sarsa_0.2"): -49.7}
SHOWN = (-300.0, -20.0)


def rows(result: "xr.Dataset") -> list[Row]:
    """Levels and claims for Curves, claims for Mail Robot, lambda; every mean of the last tenth for orientation."""
    table = []
    for alpha, levels in LEVELS.items():
        table += level_rows(result, "curves", alpha, levels)
    table += [gain_row(result, "curves", alpha, band) for alpha, band in CLAIMS.items()]
    table += [gain_row(result, "mail", alpha) for alpha in ALPHAS["mail"]]
    for domain in TRACKS:
        table += _lambda_rows(result, domain)
    decays = stages(result, "mail", BMA, ALPHA, "trace_decay")
    table.append(mean_row("mail: mean lambda, last tenth", 0.5, decays[:, -1], (0.4, 0.6)))
    return table + _orientation(result)


def _lambda_rows(result: "xr.Dataset", domain: str) -> list[Row]:
    """ "Generally decreases over time", read as: in no tenth of the trials it is larger than in the first."""
    decays = stages(result, domain, BMA, ALPHA, "trace_decay")
    highest = int(decays.mean(0).argmax())
    return [
        mean_row(
            f"{domain}: mean lambda, highest tenth less first",
            None,
            decays[:, highest] - decays[:, 0],
            (-1.0, 0.0),
            widen=BONFERRONI,
        ),
        mean_row(f"{domain}: mean lambda, last tenth less highest", None, decays[:, -1] - decays[:, highest]),
        *(
            mean_row(f"{domain}: mean lambda, {name} tenth", None, decays[:, stage])
            for stage, name in ((0, "first"), (STAGES - 1, "last"))
        ),
    ]


def _orientation(result: "xr.Dataset") -> list[Row]:
    """The worst TD-BMA against the best SARSA of all learning rates on Mail Robot; every mean of the last tenth."""
    cells = [
        (str(domain), str(agent), float(alpha))
        for domain in result["domain"].to_numpy()
        for agent in result["agent"].to_numpy()
        for alpha in result["alpha"].to_numpy()
        if played(result, str(domain), str(agent), float(alpha))
    ]
    last = {cell: stages(result, *cell)[:, -1] for cell in cells}
    mail = {cell: values for cell, values in last.items() if cell[0] == "mail"}
    worst = min((values for cell, values in mail.items() if cell[1] == BMA), key=np.mean)
    best = max((values for cell, values in mail.items() if cell[1] in FIXED), key=np.mean)
    table = [mean_row("mail: worst TD-BMA less best SARSA, of all alpha and lambda, last tenth", None, worst - best)]
    for (domain, agent, alpha), values in last.items():
        published = VARIATIONS.get((domain, agent)) if alpha == ALPHA else None
        table.append(mean_row(f"{domain}, alpha {alpha}: {LABELS[agent]}, last tenth", published, values))
    return table


def figure(result: "xr.Dataset") -> "Figure":
    """Left and centre: TD-BMA and the best SARSA by learning rate; right: lambda over the share of the trials."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(14.5, 4.8), layout="constrained")
    left, centre, right = drawing.subplots(1, 3)
    for axes, domain in ((left, "curves"), (centre, "mail")):
        _rates(axes, result, domain)
    left.set_ylabel("mean return of a trial")
    left.set_ylim(*SHOWN)
    share = (np.arange(CHECKPOINTS) + 0.5) / CHECKPOINTS
    for number, domain in enumerate(("curves", "mail", "corner", "cliff")):
        decays = samples(result, domain, BMA, ALPHA, "trace_decay")
        mean, half = decays.mean(0), half_width(decays) if len(decays) > 1 else 0.0
        right.plot(share, mean, color=f"C{number}", label=f"{DOMAINS[domain].label}, {len(decays)} seeds")
        right.fill_between(share, mean - half, mean + half, color=f"C{number}", alpha=0.2, linewidth=0)
    right.set_xlabel("share of the trials")
    right.set_ylabel("mean lambda of a step")
    right.set_ylim(0.1, 0.65)
    right.set_title(f"TD-BMA, alpha = {ALPHA}", fontsize=10)
    right.legend(fontsize=8)
    drawing.suptitle("mean over seeds, 95 % interval")
    return drawing


def _rates(axes: "Axes", result: "xr.Dataset", domain: str) -> None:
    """TD-BMA solid, the best fixed lambda of the last tenth dashed; a colour for every learning rate."""
    for number, alpha in enumerate(ALPHAS[domain]):
        best = best_fixed(result, domain, alpha)
        for agent, linestyle in ((BMA, "-"), (best, "--")):
            label = f"{LABELS[agent]}, alpha = {alpha}"
            curve(axes, result, (domain, agent, alpha), color=f"C{number}", label=label, linestyle=linestyle)
    axes.set_xlabel("trials")
    seeds = len(samples(result, domain, BMA, ALPHA))
    axes.set_title(f"{DOMAINS[domain].label}, {seeds} seeds; dashed: the best fixed lambda", fontsize=10)
    axes.legend(fontsize=8)


REPRODUCTION = Reproduction(
    source="[TDBMA10] figure 3: learning rates, mean lambda over trials",
    run=partial(train, plan=FULL),
    rows=rows,
    figure=figure,
    quick={"plan": QUICK},
    seconds={"quick": 240.0, "full": 35000.0},
    one_thread=True,
)
