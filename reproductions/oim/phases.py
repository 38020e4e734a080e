"""[OIM08] (Szita and Lorincz 2008) tables 4 to 6: reward in phases of one long run, on Chain, Loop and FlagMaze.

Nothing is reset between the phases. The paper prints neither the discount nor most constants: the discount is .95 here,
and constants are chosen from those of `phase_methods` on other random numbers (see `tune`). It prints no intervals: a
row agrees within t sqrt(s^2 / N + s^2 / n) + .5 of the published number, the 99 % interval of the difference of two
means, s our standard deviation over runs, N their number of runs, n ours, t the quantile of Student's law with n - 1
degrees of freedom (2.6 for 256 runs, 5.8 for 4), .5 the rounding.

Rows of methods whose form is known are judged; those of bonus methods, IEQL+ and Bayesian DP, which had to be
reconstructed, and of OIM with constants that were not tuned are shown without a verdict. Ties are broken at random
(`RandomTies`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from bayes_mdp.experiments.resume import Cells
from bayes_mdp.experiments.rollout.regret import optimal_plan
from bayes_mdp.experiments.run_agent import run
from bayes_mdp.experiments.run_config import RunOptions
from bayes_mdp.mdp import Discounted, Environment, SparseMDP, StateActionSpace
from bayes_mdp.utils.validation import check_count, check_key, check_name
from reproductions.oim.phase_methods import DISCOUNT, GRIDS, METHODS, TUNING_KEY, Scales, build
from reproductions.reproduction import Reproduction, Row

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

PHASES = 8
OBJECTIVE = Discounted(DISCOUNT)
ROUNDING = 0.5
_EQUAL = 1e-3
OPTIMUM = "optimal policy"

Published = Mapping[str, Mapping[int, float]]
"""Name of a method -> phase -> reward."""


@dataclass(frozen=True)
class Task:
    """An environment of the tables.

    Args:
        name: for figures and cells.
        make: makes it.
        phase_steps: steps of a phase.
        max_reward: the largest reward of one step, the unit of the constants.
        published: the rows of the table.
        published_runs: that they are means of.
        optimum: of a phase, as printed, and how far ours may be from it.
        sweeping: OIM plans by prioritized sweeping; False: exactly, at every step.
        discounts: those that are tried.
    """

    name: str
    make: Callable[[], Environment]
    phase_steps: int
    max_reward: float
    published: Published
    published_runs: int
    optimum: tuple[float, float]
    sweeping: bool = False
    discounts: tuple[float, ...] = (DISCOUNT,)

    @cached_property
    def env(self) -> Environment:
        """The environment."""
        return self.make()

    @cached_property
    def scales(self) -> Scales:
        """What constants are measured in, at the usual discount."""
        return self.scales_at(DISCOUNT)

    def scales_at(self, discount: float) -> Scales:
        """The largest reward, the largest optimal value at a discount, the steps of a phase."""
        values = optimal_plan(self.env.mdp, Discounted(discount)).q
        return Scales(self.max_reward, float(np.max(np.asarray(values))), self.phase_steps, self.sweeping)

    @cached_property
    def given(self) -> StateActionSpace:
        """The space with its list of successors."""
        mdp = self.env.mdp
        dense = mdp.to_dense() if isinstance(mdp, SparseMDP) else mdp
        return StateActionSpace(mdp.n_states, mdp.n_actions, support=np.asarray(dense.transition_probs) > 0)


def rewards(
    task: Task, settings: tuple[str, Mapping[str, Any]], key: PRNGKeyArray, num_runs: int, num_phases: int = PHASES
) -> Float[np.ndarray, "run phase"]:
    """Reward of every phase of every run.

    Args:
        task: where.
        settings: (kind of agent, constants), as for `phase_methods.build`; `discount` among them: not .95.
        key: a typed key.
        num_runs: independent runs.
        num_phases: of a run.
    """
    kind, constants = settings
    discount = constants.get("discount", DISCOUNT)
    scales = task.scales if discount == DISCOUNT else task.scales_at(discount)
    agent, prior = build(kind, {name: x for name, x in constants.items() if name != "discount"}, scales)
    result = run(
        agent,
        task.env,
        prior=prior,
        objective=Discounted(discount),
        key=key,
        num_steps=num_phases * task.phase_steps,
        num_seeds=num_runs,
        options=RunOptions(num_checkpoints=num_phases, progress=False, space=None if prior is None else task.given),
    )
    return result["reward"].to_numpy()


def tune(
    task: Task, kinds: Sequence[str] = tuple(GRIDS), *, num_runs: int = 32, num_phases: int = PHASES
) -> dict[str, dict[str, Any]]:
    """Print what every setting of the grids earns, and return the best ones by name of the method.

    Args:
        task: where.
        kinds: keys of `GRIDS`.
        num_runs, num_phases: of every setting.

    Returns:
        "tuned": the setting with the largest mean reward (of several within .1 % of it, which so few runs cannot tell
        apart, the middle one of the grid: the edge of a plateau is fragile); "nearest": that with the least sum of
        squared distances from the published phases.
    """
    chosen: dict[str, dict[str, Any]] = {}
    for kind in kinds:
        key = jax.random.key(TUNING_KEY)
        grid = [_with(discount, c) for discount in task.discounts for c in GRIDS[kind]]
        means = np.array([rewards(task, (kind, c), key, num_runs, num_phases).mean(0) for c in grid])
        for constants, mean in zip(grid, means, strict=True):
            print(f"{kind} {constants}: {mean.mean() / optimum_of(task):.3f}, phases {np.round(mean, 1)}", flush=True)
        for name, method in METHODS.items():
            if method.kind != kind or method.choice == "given":
                continue
            beside = {p: x for p, x in task.published.get(method.row, {}).items() if p <= num_phases}
            off = [sum((mean[p - 1] - x) ** 2 for p, x in beside.items()) for mean in means]
            tuned = _middle_of_the_best(means.mean(1))
            nearest = tuned if off[tuned] == min(off) else int(np.argmin(off))
            chosen[name] = dict(grid[tuned if method.choice == "tuned" else nearest])
            print(f"-> {name}: {chosen[name]}", flush=True)
    return chosen


def _with(discount: float, constants: Mapping[str, Any]) -> dict[str, Any]:
    return dict(constants) if discount == DISCOUNT else {**constants, "discount": discount}


def _middle_of_the_best(means: np.ndarray) -> int:
    best = np.flatnonzero(means >= (1 - _EQUAL) * means.max())
    return int(best[len(best) // 2])


def play(
    *,
    key: PRNGKeyArray,
    task: Task,
    constants: Mapping[str, Mapping[str, Any]],
    methods: Sequence[str],
    num_runs: int,
    cells: Cells | None = None,
) -> "xr.Dataset":
    """All methods of a table. The same key for all.

    Args:
        key: a typed key.
        task: where.
        constants: name of a method -> its constants.
        methods: of `constants`.
        num_runs: 256 in tables 4 and 5, 20 in table 6.
        cells: keeps every finished method.

    Returns:
        A Dataset: `reward` [method, run, phase]; `published` [method, phase] (nan: not printed); `constants` [method],
        as text; `optimum` of a phase.

    Raises:
        ValueError, TypeError: an unknown method, a count below 1, no typed key.
    """
    check_key("key", key)
    check_count("num_runs", num_runs)
    for name in methods:
        check_name("method", name, constants)
    kinds: dict[str, list[str]] = {}
    for name in methods:
        kinds.setdefault(METHODS[name].kind, []).append(name)
    _ = task.scales, task.given
    settings = {name: (METHODS[name].kind, constants[name]) for name in methods}
    computes = {
        name: lambda _, chosen=chosen: {"reward": rewards(task, chosen, key, num_runs)}
        for name, chosen in settings.items()
    }
    found = (cells or Cells()).get_all(computes, _slowest_first(kinds))
    return _dataset(task, constants, {name: values["reward"] for name, values in found.items()})


def _slowest_first(kinds: Mapping[str, list[str]]) -> list[list[str]]:
    """Methods that share a compiled program, in the order in which they should begin."""
    slow = ("bayesian_dp", "oim", "bql")
    return [kinds[kind] for kind in sorted(kinds, key=lambda kind: slow.index(kind) if kind in slow else len(slow))]


def _dataset(
    task: Task, constants: Mapping[str, Mapping[str, Any]], found: Mapping[str, Float[np.ndarray, "run phase"]]
) -> "xr.Dataset":
    import xarray as xr

    phases, reward = np.arange(1, PHASES + 1), np.array(list(found.values()))
    printed = [[task.published[METHODS[name].row].get(int(p), np.nan) for p in phases] for name in found]
    text = [
        ", ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in constants[n].items())
        for n in found
    ]
    return xr.Dataset(
        {
            "reward": (("method", "run", "phase"), reward, {"long_name": "reward of a phase"}),
            "published": (("method", "phase"), np.array(printed)),
            "constants": ("method", text, {"long_name": "in units of the task; chosen with another key"}),
            "optimum": ((), optimum_of(task)),
        },
        coords={"method": list(found), "run": np.arange(reward.shape[1]), "phase": phases},
    )


def optimum_of(task: Task) -> float:
    """The optimal gain times the steps of a phase."""
    assert task.env.optimum is not None
    return float(task.env.optimum) * task.phase_steps


def band_of(published: float, published_runs: int, samples: Any) -> tuple[float, float] | None:
    """Where our mean over `samples` [run] must lie to agree; None: one run gives no standard deviation."""
    if len(samples) < 2:
        return None
    error = np.std(samples, ddof=1) * np.sqrt(1 / published_runs + 1 / len(samples))
    half = float(_quantile(0.99, len(samples)) * error + ROUNDING)
    return published - half, published + half


def _quantile(level: float, number: int) -> float:
    """Two-sided, of Student's law: quick runs are few."""
    from scipy.stats import t

    return float(t.ppf((1 + level) / 2, number - 1))


def _half_width(samples: Any) -> Any:
    """Half the width of the 95 % interval of the mean over the first axis; one sample has none."""
    number = len(samples)
    if number < 2:
        return np.full(np.shape(samples)[1:], np.inf)
    return _quantile(0.95, number) * np.std(samples, axis=0, ddof=1) / np.sqrt(number)


def phase_rows(result: "xr.Dataset", task: Task) -> list[Row]:
    """The table: every method in the phases that are printed for some method; the optimum first."""
    known = np.isfinite(result["published"].to_numpy()).any(0)
    phases = [int(p) for p in result["phase"].to_numpy()[known]]
    printed, tolerance = task.optimum
    table = [Row(OPTIMUM, printed, float(result["optimum"]), 0.0, (printed - tolerance, printed + tolerance))]
    for name in map(str, result["method"].to_numpy()):
        method = METHODS[name]
        for phase in phases:
            at = {"method": name, "phase": phase}
            samples, beside = result["reward"].sel(at).to_numpy(), float(result["published"].sel(at))
            published = beside if np.isfinite(beside) else None
            judged = method.judged and published is not None
            band = band_of(beside, task.published_runs, samples) if judged else None
            table.append(
                Row(
                    f"{method.label}, phase {phase}",
                    published,
                    float(samples.mean()),
                    float(_half_width(samples)),
                    band,
                )
            )
    return table


def draw_phases(result: "xr.Dataset", task: Task) -> "Figure":
    """Reward over the phases: means with 95 % intervals, published values as crosses; a line for the optimum."""
    from matplotlib.figure import Figure

    names = [str(name) for name in result["method"].to_numpy()]
    phases, runs = result["phase"].to_numpy(), result.sizes["run"]
    columns = 4
    drawing = Figure(figsize=(3.2 * columns, 2.4 * -(-len(names) // columns)), layout="constrained")
    panels = np.atleast_1d(drawing.subplots(-(-len(names) // columns), columns, sharex=True, sharey=True)).ravel()
    for panel, name in zip(panels, names, strict=False):
        samples = result["reward"].sel({"method": name}).to_numpy()
        half = _half_width(samples) if runs > 1 else np.zeros(len(phases))
        panel.errorbar(phases, samples.mean(0), half, color="C0", marker="o", markersize=3, capsize=2, linewidth=1.0)
        panel.plot(phases, result["published"].sel({"method": name}), "x", color="C3", markersize=8)
        panel.axhline(float(result["optimum"]), color="0.5", linestyle="--", linewidth=0.8)
        panel.set_title(METHODS[name].label, fontsize=9)
    for panel in panels[len(names) :]:
        panel.set_axis_off()
    drawing.supxlabel("phase")
    drawing.supylabel("reward of a phase")
    drawing.suptitle(f"{task.name}: mean of {runs} runs, 95 % interval; crosses: published; dashed: optimal")
    return drawing


def reproduction(
    task: Task,
    constants: Mapping[str, Mapping[str, Any]],
    source: str,
    seconds: Mapping[str, float],
    *,
    only_full: Sequence[str] = (),
) -> Reproduction:
    """The experiment of a table; `only_full`: methods that quick scale leaves out. Runs are those of the paper."""
    return Reproduction(
        source=source,
        run=partial(play, task=task, constants=constants, methods=tuple(constants), num_runs=task.published_runs),
        rows=partial(phase_rows, task=task),
        figure=partial(draw_phases, task=task),
        quick={"methods": tuple(name for name in constants if name not in only_full)},
        seconds=seconds,
        one_thread=True,
    )
