"""`sweep`: agents x environments x priors, with their arguments, on one process, on many or on a cluster.

`sweep_grid` makes the cells, `bayes_mdp.parallel` computes them (`CellRunner`: one `run`, of whose result it keeps what
depends on seed and time), `sweep_folder` keeps them and makes one Dataset of them.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.experiments.describe import Json, describe, describe_key, versions
from bayes_mdp.experiments.results import save_result
from bayes_mdp.experiments.resume import Values
from bayes_mdp.experiments.run_agent import run
from bayes_mdp.experiments.run_config import RunOptions, SweepOptions
from bayes_mdp.experiments.sweep_folder import SweepFolder, load_sweep, make_folder, patiently
from bayes_mdp.experiments.sweep_grid import Cell, PartsLike, Variant, make_cells
from bayes_mdp.mdp import Environment, Episodic, Objective
from bayes_mdp.mdp.objectives import check_objective, require_undiscounted
from bayes_mdp.parallel import Task, run_tasks
from bayes_mdp.renamed import accepts_moved
from bayes_mdp.utils.files import check_folder
from bayes_mdp.utils.progress import Progress
from bayes_mdp.utils.validation import check_count, check_key, check_type

if TYPE_CHECKING:
    import xarray as xr


_LOG = logging.getLogger(__name__)


_KEPT = 16  # agents, environments and priors that a process keeps
ROWS = ("checkpoint", "episode")


@dataclass(frozen=True)
class RunSettings:
    """The arguments of `run` that all cells share.

    Args:
        objective: None: episodes of as many steps as the environment has.
        num_steps, num_episodes, num_seeds, regret, options: as in `run`.
    """

    objective: Objective | None
    num_steps: int | None
    num_episodes: int | None
    num_seeds: int
    regret: str | None
    options: RunOptions

    @property
    def description(self) -> dict[str, Json]:
        """JSON values that identify it; what shows progress changes no number."""
        options = replace(self.options, progress=False)
        return {
            "objective": describe(self.objective),
            "num_steps": self.num_steps,
            "num_episodes": self.num_episodes,
            "num_seeds": self.num_seeds,
            "regret": self.regret,
            "options": describe(options, "options"),
        }


class CellRunner:
    """(cell, key) -> arrays. What a cell is made of is kept for the next cells of the same process.

    Args:
        settings: of all cells.
    """

    def __init__(self, settings: RunSettings) -> None:
        self._settings = settings
        self._built: dict[Variant, Any] = {}

    def __call__(self, cell: Cell, key: PRNGKeyArray) -> Values:
        """`reward`, `regret` and what else `run` has [seed, row], `time` [row], `rows` (their name), `regret_unknown`.

        Args:
            cell: of the grid.
            key: of the sweep.

        Raises:
            ValueError, TypeError: as `run`.
        """
        settings, env = self._settings, self._build(cell.env)
        result = run(
            self._build(cell.agent),
            env,
            objective=_objective(settings.objective, env, cell.env.name),
            key=cell.key(key),
            prior=None if cell.prior is None else self._build(cell.prior),
            num_steps=settings.num_steps,
            num_episodes=settings.num_episodes,
            num_seeds=settings.num_seeds,
            options=replace(settings.options, regret=settings.regret, progress=False),
        )
        return cell_values(result)

    def _build(self, variant: Variant) -> Any:
        if variant not in self._built:
            if len(self._built) >= _KEPT:
                del self._built[next(iter(self._built))]
            self._built[variant] = variant.build()
        return self._built[variant]


def _objective(objective: Objective | None, env: object, name: str) -> Objective:
    if objective is not None:
        return objective
    horizon = env.mdp.horizon if isinstance(env, Environment) else None
    if horizon is None:
        raise ValueError(f"objective is None, expected one for envs.{name}, which has no horizon of its own")
    return Episodic(horizon)


def cell_values(result: "xr.Dataset") -> Values:
    """What a sweep keeps of the result of `run`."""
    rows = next(name for name in ROWS if name in result.dims)
    values = {str(name): np.asarray(array) for name, array in result.data_vars.items() if array.dims == ("seed", rows)}
    # The end of every row: steps or episodes so far.
    ends = next((result[name] for name in ("time", "episode") if name in result.coords and name != rows), None)
    values["time"] = np.arange(1, result.sizes[rows] + 1) if ends is None else np.asarray(ends)
    values["rows"] = np.array(rows)
    values["regret_unknown"] = np.array(result.attrs.get("regret_unknown", ""))
    return values


@accepts_moved("sweeps.sweep")
def sweep(
    agents: PartsLike,
    envs: PartsLike,
    *,
    key: PRNGKeyArray,
    priors: PartsLike | None = None,
    objective: Objective | None = None,
    num_steps: int | None = None,
    num_episodes: int | None = None,
    num_seeds: int = 10,
    path: str | Path | None = None,
    options: RunOptions = SweepOptions(),
) -> "xr.Dataset":
    """`run` for every cell of a grid; the same numbers, bit by bit, wherever the cells are computed. Host side.

    The grid is the product of agents, environments, priors and blocks of seeds. Each part is a mapping from names to
    arguments of the factory of that name, where a list is an axis: `{"ube": {"scale": [0.1, 1.0]}, "psrl": {}}` is
    three agents, `{"deep_sea": {"size": [5, 10]}}` two environments. A list of names has no arguments; a name may be
    "module:function" (of `priors`: the program itself); the value may be the agent, the environment or the prior.
    Agents that learn without a prior are run once for all priors (but for each with regret="bayes").

    A cell is one `run` of `num_seeds` seeds in one compiled program. Its key depends on the environment (name and
    arguments) and on the block: all agents and priors meet the same random numbers, whatever else the grid holds.

    A cell that raises or whose worker process dies is tried again `options.retries` times (arguments that `run` refuses
    are not); if it fails to the end it is reported (`status`, `error`) and the others are run.

    With `path`, a folder, every finished cell is kept there as soon as it is finished: the same call resumes after a
    kill, and runs the cells that failed or whose file is damaged again. Cells come back to this process, which writes
    them: workers need not see the folder. Where no space is left on its device, writing is tried again for two minutes.

    Bit-equality is that of XLA: it holds between processes on processors of one type. Workers with other versions of
    the packages that decide numbers are refused.

    Args:
        agents, envs, priors: see above; names of `AGENTS`, of `ENVS` and `SIMULATED` or Gymnasium ids with a table, of
            `PRIORS`.
        key: a typed key.
        objective: None: episodes of as many steps as each environment has.
        num_steps, num_episodes: as in `run`, for all cells. Snapshots within a cell are not kept.
        num_seeds: of a cell.
        path: of the folder: a new one, or that of the same sweep; None: nothing is kept.
        options: those of each run, and where the cells are computed (see `SweepOptions`; `RunOptions` will do).

    Returns:
        A Dataset: `reward`, `regret` and what else `run` returns by time [cell, seed, checkpoint | episode] (nan where
        a cell has fewer rows, or is not finished), `status` [cell] ("finished", "failed"), `error` [cell],
        `regret_unknown` [cell]; coordinates `agent`, `env`, `prior`, `block` [cell], one for every axis (`env_size`,
        `agent_scale`), `time` [cell, checkpoint | episode]. The attributes hold configuration, versions and key as
        JSON. The file is `results.nc` in the folder, which `bm.load` reads, as it does the folder.

    Raises:
        ValueError, TypeError: one sentence about the argument at fault; a grid of no cell or of more than 100,000; the
            folder holds another sweep, or one that runs; every cell failed. ConnectionError: no Dask scheduler at the
            address. OSError: no space left on the device, the folder cannot be written.
        PermissionError: nothing can be written at `path`.

    Example:
        >>> agents = {f"rate {rate}": bm.agents.EpsilonGreedyQ(rate) for rate in (0.1, 0.5)}
        >>> result = bm.sweeps.sweep(
        ...     agents,
        ...     {"chain": bm.envs.chain()},
        ...     key=jax.random.key(0),
        ...     objective=bm.Discounted(0.9),
        ...     num_steps=10,
        ...     num_seeds=2,
        ...     options=bm.experiments.RunOptions(progress=False),
        ... )
        >>> result["regret"].dims
        ('cell', 'seed', 'checkpoint')
    """
    check_key("key", key)
    check_count("num_seeds", num_seeds)
    _check_run(objective, num_steps, num_episodes)
    check_type("options", options, RunOptions, "SweepOptions or RunOptions")
    chosen = options if isinstance(options, SweepOptions) else SweepOptions(**vars(options))
    num_blocks, regret = chosen.num_blocks, chosen.regret
    if path is not None:
        check_folder(path)
    # What describes the runs is the same whichever of the two records was given.
    run_options = replace(chosen.of_each_run, regret=None)
    settings = RunSettings(objective, num_steps, num_episodes, num_seeds, regret, run_options)
    # All that can be refused without the folder is refused before there is one.
    cells = make_cells(agents, envs, priors, num_blocks, all_priors=regret == "bayes")
    names = [cell.file_name(number) for number, cell in enumerate(cells)]
    manifest = _manifest(cells, names, num_blocks, settings, key)
    with _folder(path) as folder, folder.lock():
        folder.begin(manifest)
        tasks = _remaining_tasks(folder, cells, names, key)
        descriptions = {name: cell.description for name, cell in zip(names, cells, strict=True)}
        done = run_tasks(CellRunner(settings), tasks, chosen.executor, retries=chosen.retries)
        with Progress(1, len(cells), show=options.progress, unit=" cells") as bar:
            bar.advance(len(cells) - len(tasks))
            for i, outcome in enumerate(done, len(cells) - len(tasks) + 1):
                if outcome.value is None:
                    folder.keep_failure(outcome.name, outcome.error, outcome.attempts)
                else:
                    folder.keep(outcome.name, descriptions[outcome.name], outcome.value)
                bar.advance(i)
        return _collect(folder, names)


def _check_run(objective: Objective | None, num_steps: int | None, num_episodes: int | None) -> None:
    if objective is not None:
        check_objective(objective)
        require_undiscounted(objective, "runs of agents")
    for name, count in (("num_steps", num_steps), ("num_episodes", num_episodes)):
        if count is not None:
            check_count(name, count)
    if (num_steps is None) == (num_episodes is None):
        complaint = "neither is" if num_steps is None else "both are"
        raise ValueError(f"of num_steps and num_episodes {complaint} given, expected one of the two")


@contextmanager
def _folder(path: str | Path | None) -> Iterator[SweepFolder]:
    if path is not None:
        yield make_folder(path)
        return
    with TemporaryDirectory(prefix="bayes-mdp-sweep-") as place:
        yield make_folder(place)


def _manifest(
    cells: Sequence[Cell], names: Sequence[str], num_blocks: int, settings: RunSettings, key: PRNGKeyArray
) -> dict[str, Json]:
    # Each variant once; dict keeps the order of the grid.
    variants = {
        "agents": dict.fromkeys(cell.agent for cell in cells),
        "envs": dict.fromkeys(cell.env for cell in cells),
        "priors": dict.fromkeys(cell.prior for cell in cells if cell.prior is not None),
    }
    configuration: dict[str, Json] = {
        kind: [variant.description for variant in variants_of_kind] for kind, variants_of_kind in variants.items()
    }
    keys = {(cell.env, cell.block): cell for cell in cells}
    words = {cell_name: describe_key(cell.key(key))["words"] for cell_name, cell in keys.items()}
    entries: list[Json] = [
        {
            "file": name,
            "description": cell.description,
            "coordinates": cell.coordinates,
            "key": words[cell.env, cell.block],
        }
        for name, cell in zip(names, cells, strict=True)
    ]
    configuration |= {"num_cells": len(cells), "num_blocks": num_blocks, **settings.description}
    return {"configuration": configuration, "versions": versions(), "key": describe_key(key), "cells": entries}


def _remaining_tasks(folder: SweepFolder, cells: Sequence[Cell], names: Sequence[str], key: PRNGKeyArray) -> list[Task]:
    return [
        Task(name, (cell, key))
        for name, cell in zip(names, cells, strict=True)
        if not folder.is_finished(name, cell.description)
    ]


def _collect(folder: SweepFolder, names: Sequence[str]) -> "xr.Dataset":
    """The Dataset, also as a file; the end of the manifest.

    Raises:
        ValueError: every cell failed.
    """
    result = load_sweep(folder.folder)
    finished = np.asarray(result["status"] == "finished")
    failed = {name: str(error) for name, error in zip(names, result["error"].values, strict=True) if error}
    checksums = {name: folder.checksum(name) for name, is_done in zip(names, finished, strict=True) if is_done}
    folder.finish(checksums, failed)
    if not finished.any():
        first = next(iter(failed.values()), "unknown")
        raise ValueError(f"all of the {len(names)} cells failed, the first: {first}")
    for name, error in failed.items():
        _LOG.warning("cell %s failed: %s", name, error)
    patiently(lambda: save_result(result, folder.results))
    return result
