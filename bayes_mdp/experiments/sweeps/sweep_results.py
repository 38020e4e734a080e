"""What is in the folder of a sweep: how far it is, and one Dataset of all its cells."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bayes_mdp.experiments.describe import Json
from bayes_mdp.experiments.results import SWEEP_FORMAT
from bayes_mdp.experiments.resume import Values
from bayes_mdp.experiments.sweeps.sweep_folder import SweepFolder
from bayes_mdp.utils.validation import check_type

if TYPE_CHECKING:
    import os

    import xarray as xr

_LEFT_OUT = ("time", "rows", "regret_unknown")


class SweepStatus(NamedTuple):
    """How far a sweep is.

    Args:
        total: number of cells.
        finished: of them, by the names of the files.
        failed: name of a cell -> its sentence.
        running: whether a process works on the folder.
    """

    total: int
    finished: int
    failed: dict[str, str]
    running: bool

    def __str__(self) -> str:
        """One line, and one for every failed cell."""
        left = self.total - self.finished - len(self.failed)
        state = "running" if self.running else "not running"
        line = f"{self.finished} of {self.total} cells finished, {len(self.failed)} failed, {left} left, {state}"
        return "\n".join([line, *(f"  {name}: {error}" for name, error in self.failed.items())])


def sweep_status(path: "str | os.PathLike[str]") -> SweepStatus:
    """How far the sweep in a folder is; also while it runs.

    Args:
        path: of the folder.

    Raises:
        FileNotFoundError: it holds no sweep. ValueError: its manifest is altered. TypeError: no path.

    Example:
        >>> result = bm.sweep(
        ...     {"q": bm.agents.EpsilonGreedyQ()},
        ...     {"chain": bm.envs.chain()},
        ...     key=jax.random.key(0),
        ...     objective=bm.Discounted(0.9),
        ...     num_steps=10,
        ...     path="sweep",
        ...     options=bm.RunOptions(progress=False),
        ... )
        >>> bm.sweep_status("sweep")
        SweepStatus(total=1, finished=1, failed={}, running=False)
    """
    folder = _folder(path)
    names = [cell["file"] for cell in folder.read_manifest()["cells"]]
    finished, failed = folder.counts(names)
    return SweepStatus(len(names), finished, {name: folder.failure(name) for name in failed}, folder.is_running())


def load_sweep(path: "str | os.PathLike[str]") -> "xr.Dataset":
    """The Dataset of the cells that are finished, as `sweep` returns it; also while it runs.

    Args:
        path: of the folder.

    Returns:
        As of `sweep`; cells that are not finished are nan, their `status` is "failed" or "missing". A damaged file is
        a missing cell (the log has a warning).

    Raises:
        FileNotFoundError: it holds no sweep. ValueError: its manifest is altered. TypeError: no path.

    Example:
        >>> result = bm.sweep(
        ...     {"q": bm.agents.EpsilonGreedyQ()},
        ...     {"chain": bm.envs.chain()},
        ...     key=jax.random.key(0),
        ...     objective=bm.Discounted(0.9),
        ...     num_steps=10,
        ...     path="sweep",
        ...     options=bm.RunOptions(progress=False),
        ... )
        >>> bm.load_sweep("sweep").sizes == result.sizes
        True
    """
    folder = _folder(path)
    manifest = folder.read_manifest()
    cells = manifest["cells"]
    values: list[Values | None] = []
    for cell in cells:
        there = folder.is_finished(cell["file"], cell["description"])
        values.append(folder.read(cell["file"], cell["description"]) if there else None)
    errors = [folder.failure(cell["file"]) if one is None else "" for cell, one in zip(cells, values, strict=True)]
    return sweep_dataset(manifest, values, errors)


def _folder(path: "str | os.PathLike[str]") -> SweepFolder:
    import os

    check_type("path", path, (str, os.PathLike), "a path")
    return SweepFolder(Path(path))


def sweep_dataset(manifest: Mapping[str, Json], values: Sequence[Values | None], errors: Sequence[str]) -> "xr.Dataset":
    """One Dataset of all cells (see `sweep`).

    Args:
        manifest: of the sweep.
        values: of every cell; None: it is not finished.
        errors: why it failed; empty where it did not.
    """
    import xarray as xr

    cells = manifest["cells"]
    found = [one for one in values if one is not None]
    # Cells may have different numbers of rows: nan after the last one.
    num_rows, num_seeds = max((len(one["time"]) for one in found), default=0), manifest["configuration"]["num_seeds"]
    rows = str(found[0]["rows"]) if found else "checkpoint"
    names = sorted({name for one in found for name in one if name not in _LEFT_OUT})
    tables = {name: np.full((len(cells), num_seeds, num_rows), np.nan) for name in names}
    times = np.full((len(cells), num_rows), np.nan)
    for i, one in enumerate(values):
        if one is not None:
            times[i, : len(one["time"])] = one["time"]
            for name in names:
                if name in one:
                    tables[name][i, :, : one[name].shape[1]] = one[name]
    status = [
        "finished" if one is not None else "failed" if error else "missing"
        for one, error in zip(values, errors, strict=True)
    ]
    unknown = ["" if one is None else str(one["regret_unknown"]) for one in values]
    dims = ("cell", "seed", rows)
    result = xr.Dataset(
        {
            **{name: (dims, table) for name, table in tables.items()},
            "status": ("cell", _texts(status)),
            "error": ("cell", _texts(errors)),
            "regret_unknown": ("cell", _texts(unknown)),
        },
        coords={
            "cell": np.arange(len(cells)),
            "seed": np.arange(num_seeds),
            "time": (("cell", rows), times, {"long_name": "steps or episodes so far"}),
            **{name: ("cell", column) for name, column in _columns(cells).items()},
        },
    )
    kept = {name: json.dumps(manifest[name]) for name in ("configuration", "versions", "key")}
    result.attrs = {"format": SWEEP_FORMAT, **kept}
    return result


def _columns(cells: Sequence[Mapping[str, Json]]) -> dict[str, np.ndarray]:
    """Names, block and axes of all cells: numbers (nan: the cell has no such axis), otherwise texts (empty)."""
    names = list(dict.fromkeys(name for cell in cells for name in cell["coordinates"]))
    columns = {}
    for name in names:
        values = [cell["coordinates"].get(name) for cell in cells]
        if all(value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)) for value in values):
            whole = all(isinstance(value, int) for value in values)
            columns[name] = np.array([np.nan if x is None else x for x in values], np.int64 if whole else np.float64)
        else:
            columns[name] = _texts(["" if x is None else x if isinstance(x, str) else json.dumps(x) for x in values])
    return columns


def _texts(values: Sequence[str]) -> np.ndarray:
    return np.array(list(values), object)
