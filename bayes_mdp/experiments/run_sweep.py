"""`sweep`: agents x environments x priors, with their arguments, on one process, on many or on a cluster.

`sweep_grid` makes the cells, `bayes_mdp.parallel` computes them (`CellRunner`: one `run`, of whose result it keeps what
depends on seed and time), `sweep_folder` keeps them and makes one Dataset of them.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.experiments.describe import Json, describe, describe_key, versions
from bayes_mdp.experiments.resume import Values
from bayes_mdp.experiments.run_agent import run
from bayes_mdp.experiments.run_config import RunOptions, SweepOptions, episodes_of
from bayes_mdp.experiments.sweep_folder import RESULTS, SweepFolder, load_sweep, make_folder, patiently
from bayes_mdp.experiments.sweep_grid import Cell, PartsLike, Variant, make_cells
from bayes_mdp.mdp import Objective
from bayes_mdp.mdp.objectives import check_objective, require_undiscounted
from bayes_mdp.parallel import Task, run_tasks
from bayes_mdp.renamed import accepts_moved
from bayes_mdp.utils.files import check_folder, write_netcdf
from bayes_mdp.utils.progress import bar_of
from bayes_mdp.utils.validation import check_count, check_key, check_type

if TYPE_CHECKING:
    import xarray as xr


_LOG = logging.getLogger(__name__)


_KEPT = 16  # agents, environments and priors that a process keeps
ROWS = ("checkpoint", "episode")


class CellRunner:
    """(cell, key) -> arrays. What a cell is made of is kept for the next cells of the same process.

    Args:
        objective: None: episodes of as many steps as the environment has.
        arguments: of `run`, those that all cells share.
    """

    def __init__(self, objective: Objective | None, arguments: Mapping[str, Any]) -> None:
        self._objective, self._arguments = objective, arguments
        self._built: dict[Variant, Any] = {}

    def __call__(self, cell: Cell, key: PRNGKeyArray) -> Values:
        """`reward`, `regret` and what else `run` has [seed, row], `time` [row], `rows` (their name), `regret_unknown`.

        Args:
            cell: of the grid.
            key: of the sweep.

        Raises:
            ValueError, TypeError: as `run`.
        """
        env = self._build(cell.env)
        objective = self._objective or episodes_of(env, f"envs.{cell.env.name}")
        prior = None if cell.prior is None else self._build(cell.prior)
        agent = self._build(cell.agent)
        result = run(agent, env, objective=objective, key=cell.key(key), prior=prior, **self._arguments)
        return cell_values(result)

    def _build(self, variant: Variant) -> Any:
        if variant not in self._built:
            if len(self._built) >= _KEPT:
                del self._built[next(iter(self._built))]
            self._built[variant] = variant.build()
        return self._built[variant]


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
    if path is not None:
        check_folder(path)
    run_options = replace(RunOptions(**{x.name: getattr(chosen, x.name) for x in fields(RunOptions)}), progress=False)
    length = {"num_steps": num_steps, "num_episodes": num_episodes, "num_seeds": num_seeds}
    # All that can be refused without the folder is refused before there is one.
    cells = make_cells(agents, envs, priors, chosen.num_blocks, all_priors=chosen.regret == "bayes")
    settings = {
        "num_cells": len(cells),
        "num_blocks": chosen.num_blocks,
        "objective": describe(objective),
        **length,
        "regret": chosen.regret,
        "options": describe(replace(run_options, regret=None), "options"),
    }
    named = {cell.file_name(number): cell for number, cell in enumerate(cells)}
    with _folder(path) as folder, folder.lock():
        folder.begin(_manifest(named, settings, key))
        tasks = [Task(name, (cell, key)) for name, cell in named.items() if folder.read(name, cell.description) is None]
        runner = CellRunner(objective, {**length, "options": run_options})
        with bar_of(len(cells), " cells", done=len(cells) - len(tasks), keep=True, show=options.progress) as bar:
            for outcome in run_tasks(runner, tasks, chosen.executor, retries=chosen.retries):
                if outcome.value is None:
                    folder.keep_failure(outcome.name, outcome.error, outcome.attempts)
                else:
                    folder.keep(outcome.name, named[outcome.name].description, outcome.value)
                bar.update()
        return _collect(folder, list(named))


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


def _manifest(cells: Mapping[str, Cell], settings: Mapping[str, Json], key: PRNGKeyArray) -> dict[str, Json]:
    # Each variant once; dict keeps the order of the grid.
    variants = {
        "agents": dict.fromkeys(cell.agent for cell in cells.values()),
        "envs": dict.fromkeys(cell.env for cell in cells.values()),
        "priors": dict.fromkeys(cell.prior for cell in cells.values() if cell.prior is not None),
    }
    configuration = {kind: [variant.description for variant in of_kind] for kind, of_kind in variants.items()}
    keys = {(cell.env, cell.block): cell for cell in cells.values()}
    words = {place: describe_key(cell.key(key))["words"] for place, cell in keys.items()}
    entries = [
        {
            "file": name,
            "description": cell.description,
            "coordinates": cell.coordinates,
            "key": words[cell.env, cell.block],
        }
        for name, cell in cells.items()
    ]
    versions_and_key = {"versions": versions(), "key": describe_key(key)}
    return {"configuration": {**configuration, **settings}, **versions_and_key, "cells": entries}


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
    patiently(lambda: write_netcdf(result, folder.folder / RESULTS))
    return result
