"""[TDBMA10] (Downey and Sanner 2010) section 4: TD-BMA against SARSA with fixed lambda, on racetracks and Mail Robot.

The paper prints no maps: ours are easier. Neither does it say which of several
best actions is taken: ours is the first. An independent program shows how much that matters on our tracks: with ties
drawn at random all methods gain up to 5 % in the end, and a third in the first trials.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from bayes_mdp.agents.model_free.trial_learning import TDBMA, EpisodeLearner, SarsaLambda
from bayes_mdp.envs.papers.racetrack import mail_robot, racetrack
from bayes_mdp.experiments.results import half_width
from bayes_mdp.experiments.resume import Cells, ComputeCell
from bayes_mdp.experiments.run_agent import run
from bayes_mdp.experiments.run_config import RunOptions
from bayes_mdp.mdp import Discounted, FirstExit, Objective
from bayes_mdp.utils.validation import check_count, check_key, check_name
from reproductions.reproduction import Row, mean_row

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

ALPHA, EPSILON = 0.15, 0.05
BMA, FROZEN = "td_bma", "td_bma_frozen"
FIXED = {f"sarsa_{decay}": decay for decay in (0.2, 0.4, 0.6, 0.8)}
LABELS = {BMA: "TD-BMA", FROZEN: "TD-BMA, frozen sweeps"} | {name: f"SARSA({decay})" for name, decay in FIXED.items()}
CHECKPOINTS, STAGES = 60, 10
MEASURES = {
    "reward": "mean return of a trial, undiscounted",
    "length": "mean steps of a trial",
    "trace_decay": "mean weight lambda of a step",
}
INFINITE = float("inf")
ABOVE = (0.0, INFINITE)
BONFERRONI = 2.807034 / 1.959964  # normal quantiles of .05 / 10 and .05, two-sided


@dataclass(frozen=True)
class Domain:
    """A domain of the paper.

    Args:
        label: for figures.
        env: makes it.
        objective: gamma of the paper.
        trial_steps: a trial is cut after so many.
        table_rows: of a domain whose states are not listed.
        batch: so many seeds are played at once.
    """

    label: str
    env: Callable[[], Any]
    objective: Objective
    trial_steps: int = 200
    table_rows: int = 2**18
    batch: int = 100


def _track(label: str, track: str, max_speed: int = 2) -> Domain:
    return Domain(label, lambda: racetrack(track, max_speed=max_speed), FirstExit())


DOMAINS = {
    "cliff": _track("Racetrack Cliff", "cliff"),
    "corner": _track("Racetrack Corner", "corner"),
    "curves": _track("Racetrack Curves", "curves"),
    "curves_speed3": _track("Racetrack Curves, speeds to 3", "curves", 3),
    "mail": Domain("Mail Robot", mail_robot, Discounted(0.9), 300, 2**18, 10),
}


@dataclass(frozen=True)
class Training:
    """What is played in one domain.

    Args:
        alphas: agent -> learning rates.
        num_trials: a multiple of 60, the number of checkpoints.
        num_seeds: 100 in the paper.
    """

    alphas: Mapping[str, tuple[float, ...]]
    num_trials: int
    num_seeds: int = 100


def of_all(*alphas: float) -> dict[str, tuple[float, ...]]:
    """TD-BMA and every fixed lambda, with these learning rates."""
    return dict.fromkeys((BMA, *FIXED), alphas)


def make_agent(name: str, alpha: float, trial_steps: int) -> EpisodeLearner:
    """The agent of that name, with the paper's epsilon."""
    options: dict[str, Any] = {"learning_rate": alpha, "epsilon": EPSILON, "trial_steps": trial_steps}
    if name in FIXED:
        return SarsaLambda(trace_decay=FIXED[name], **options)
    return TDBMA(frozen=name == FROZEN, **options)


def train(*, key: PRNGKeyArray, plan: Mapping[str, Training], cells: Cells | None = None) -> "xr.Dataset":
    """Learning curves by domain, agent and learning rate. The same key for all.

    Args:
        key: a typed key.
        plan: domain -> what is played there.
        cells: keeps every finished (domain, agent, learning rate, batch of seeds).

    Returns:
        A Dataset over [domain, agent, alpha, seed, checkpoint], the mean over the trials since the checkpoint before:
        `reward`, the return, undiscounted and under the policy that explores; `length`, in steps; `trace_decay`, lambda
        (all nan where nothing was played). `trials` [domain, checkpoint], how many so far; `overflow` [domain, agent,
        alpha], the share of steps in states that had to share a row of the table (nan: all states are listed).

    Raises:
        ValueError, TypeError: an unknown domain or agent, a number of trials that is no multiple of 60, no typed key.
    """
    check_key("key", key)
    _check(plan)
    result = _empty(plan)
    batches = [
        (name, agent, alpha, batch)
        for name, training in plan.items()
        for agent, alphas in training.alphas.items()
        for alpha in alphas
        for batch in range(-(-training.num_seeds // DOMAINS[name].batch))
    ]
    computes: dict[str, ComputeCell] = {}
    places = {}
    for name, agent, alpha, batch in batches:
        at = {"domain": name, "agent": agent, "alpha": alpha}
        first = batch * DOMAINS[name].batch
        number = min(DOMAINS[name].batch, plan[name].num_seeds - first)
        cell = f"{name}-{agent}-{alpha}-{batch}"
        places[cell] = at, slice(first, first + number - 1)
        computes[cell] = lambda path, at=at, batch=batch, number=number: _play(
            **at,
            key=jax.random.fold_in(key, batch),
            num_trials=plan[at["domain"]].num_trials,
            num_seeds=number,
            path=path,
        )
    played = (cells or Cells()).get_all(computes)
    for cell, (at, seeds) in places.items():
        values = played[cell]
        for measure in MEASURES:
            result[measure].loc[at | {"seed": seeds}] = values[measure]
        result["overflow"].loc[at] = max(float(values["overflow"]), float(result["overflow"].sel(at).fillna(-1.0)))
    return result


def _check(plan: Mapping[str, Training]) -> None:
    for name, training in plan.items():
        check_name("domain", name, DOMAINS)
        check_count("num_seeds", training.num_seeds)
        check_count("num_trials", training.num_trials)
        if training.num_trials % CHECKPOINTS:
            raise ValueError(f"num_trials is {training.num_trials}, expected a multiple of {CHECKPOINTS}")
        for agent in training.alphas:
            check_name("agent", agent, LABELS)


def _empty(plan: Mapping[str, Training]) -> "xr.Dataset":
    """The Dataset before anything is played."""
    import xarray as xr

    every = [training.alphas for training in plan.values()]
    agents = [agent for agent in LABELS if any(agent in alphas for alphas in every)]
    rates = sorted({rate for alphas in every for rates in alphas.values() for rate in rates})
    seeds = max(training.num_seeds for training in plan.values())
    by_cell, shape = ("domain", "agent", "alpha"), (len(plan), len(agents), len(rates))
    ends = np.arange(1, CHECKPOINTS + 1) / CHECKPOINTS
    trials = [np.rint(training.num_trials * ends).astype(int) for training in plan.values()]
    dims = (*by_cell, "seed", "checkpoint")
    empty = np.full((*shape, seeds, CHECKPOINTS), np.nan)
    return xr.Dataset(
        {measure: (dims, empty.copy(), {"long_name": name}) for measure, name in MEASURES.items()}
        | {"overflow": (by_cell, np.full(shape, np.nan), {"long_name": "share of steps without a row of their own"})},
        coords={
            "domain": list(plan),
            "agent": agents,
            "alpha": rates,
            "seed": np.arange(seeds),
            "checkpoint": np.arange(CHECKPOINTS),
            "trials": (("domain", "checkpoint"), np.array(trials), {"long_name": "trials so far"}),
        },
    )


def _play(
    *, domain: str, agent: str, alpha: float, key: PRNGKeyArray, num_trials: int, num_seeds: int, path: Path | None
) -> dict[str, Any]:
    """One cell; snapshots lie beside its file."""
    where = DOMAINS[domain]
    beside = None if path is None else path.with_suffix(".run.nc")
    found = run(
        make_agent(agent, alpha, where.trial_steps),
        where.env(),
        objective=where.objective,
        key=key,
        num_episodes=num_trials,
        num_seeds=num_seeds,
        path=beside,
        options=RunOptions(num_checkpoints=CHECKPOINTS, progress=False, table_rows=where.table_rows),
    )
    values: dict[str, Any] = {measure: found[measure].to_numpy() for measure in MEASURES}
    if beside is not None:
        beside.unlink()
    return values | {"overflow": float(found.attrs.get("overflow", "nan"))}


def played(result: "xr.Dataset", domain: str, agent: str, alpha: float) -> bool:
    """Whether there is anything of this cell."""
    known = domain in result["domain"] and agent in result["agent"] and alpha in result["alpha"]
    return bool(known and np.isfinite(result["reward"].sel(domain=domain, agent=agent, alpha=alpha)).any())


def samples(
    result: "xr.Dataset", domain: str, agent: str, alpha: float, measure: str = "reward"
) -> Float[np.ndarray, "seed checkpoint"]:
    """A learning curve of every seed that was played."""
    values = result[measure].sel(domain=domain, agent=agent, alpha=alpha).to_numpy()
    return values[np.isfinite(values).any(-1)]


def stages(
    result: "xr.Dataset", domain: str, agent: str, alpha: float, measure: str = "reward"
) -> Float[np.ndarray, "seed 10"]:
    """Means over each tenth of the trials."""
    curves = samples(result, domain, agent, alpha, measure)
    return np.nanmean(curves.reshape(len(curves), STAGES, -1), -1)


def best_fixed(result: "xr.Dataset", domain: str, alpha: float, stage: int = -1) -> str:
    """The fixed lambda with the largest mean return in a tenth of the trials: chosen afterwards, which flatters it."""
    means = {
        name: stages(result, domain, name, alpha)[:, stage].mean()
        for name in FIXED
        if played(result, domain, name, alpha)
    }
    return max(means, key=lambda name: means[name])


def level_rows(result: "xr.Dataset", domain: str, alpha: float, levels: Mapping[int, tuple[float, float]]) -> list[Row]:
    """TD-BMA and the best fixed lambda against an independent program: a level agrees within a tenth of it.

    Args:
        levels: trials -> (TD-BMA, best fixed lambda), mean return in the last tenth of so many trials. Of those that
            were played the most decide; where fewer were played nothing is decided.
    """
    ends = result["trials"].sel(domain=domain).to_numpy()
    trials = max((number for number in levels if number <= ends[-1]), default=None)
    within = ends > 0.9 * (trials or ends[-1])
    within &= ends <= (trials or ends[-1])
    means = {
        name: samples(result, domain, name, alpha)[:, within].mean(-1)
        for name in (BMA, *FIXED)
        if played(result, domain, name, alpha)
    }
    best = max((name for name in means if name != BMA), key=lambda name: means[name].mean())
    table = []
    for (what, name), published in zip(
        (("TD-BMA", BMA), ("best fixed lambda", best)), levels[trials or min(levels)], strict=True
    ):
        band = (min(0.9 * published, 1.1 * published), max(0.9 * published, 1.1 * published))
        row = mean_row(f"{domain}, alpha {alpha}: {what}, mean return", published, means[name], band)
        table.append(row if trials else replace(row, half=INFINITE))
    return table


def gain_row(result: "xr.Dataset", domain: str, alpha: float, band: tuple[float, float] = ABOVE) -> Row:
    """TD-BMA less the best fixed lambda in the last tenth of the trials."""
    quantity = f"{domain}, alpha {alpha}: TD-BMA less best fixed lambda, last tenth"
    return mean_row(quantity, None, gain(result, domain, alpha), band)


def worst_stage_row(result: "xr.Dataset", domain: str, alpha: float) -> Row:
    """ "At all stages of learning", read as: also in the tenth of the trials where TD-BMA gains least.

    The interval is that of Bonferroni for ten tenths.
    """
    gains = [gain(result, domain, alpha, stage) for stage in range(STAGES)]
    least = min(gains, key=np.mean)
    quantity = f"{domain}, alpha {alpha}: TD-BMA less best fixed lambda, worst tenth"
    return mean_row(quantity, None, least, ABOVE, widen=BONFERRONI)


def gain(result: "xr.Dataset", domain: str, alpha: float, stage: int = -1) -> Float[np.ndarray, " seed"]:
    """TD-BMA less the best fixed lambda in a tenth of the trials, seed by seed."""
    best = best_fixed(result, domain, alpha, stage)
    return stages(result, domain, BMA, alpha)[:, stage] - stages(result, domain, best, alpha)[:, stage]


def curve(
    axes: "Axes", result: "xr.Dataset", cell: tuple[str, str, float], *, color: str, label: str, linestyle: str = "-"
) -> None:
    """Draw a learning curve with its interval, from the middle of the trials of each checkpoint.

    Args:
        cell: (domain, agent, alpha).
        color, label, linestyle: of the line.
    """
    values, ends = samples(result, *cell), result["trials"].sel(domain=cell[0]).to_numpy()
    middle, mean = ends - ends[0] / 2, values.mean(0)
    half = half_width(values) if len(values) > 1 else np.zeros_like(mean)
    axes.plot(middle, mean, linewidth=1.3, color=color, label=label, linestyle=linestyle)
    axes.fill_between(middle, mean - half, mean + half, color=color, alpha=0.2, linewidth=0)
