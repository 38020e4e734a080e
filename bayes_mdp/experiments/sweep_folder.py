"""The folder of a sweep: a manifest, one file for every finished cell, one note for every failed cell, a lock.

* `manifest.json`: configuration, versions, key and cells of the sweep; when it is over, the checksum of every cell and
  the sentence of every failure. A sweep of another configuration is refused.
* `cells/NAME.npz`: the arrays of a finished cell and its description, written beside and renamed, with a checksum.
  Writing it twice writes the same: a cell may be computed twice, by a worker that was given up, or by two sweeps.
* `cells/NAME.json`: why a cell failed, until it is finished.
* `lock`: held by the process that runs the sweep; the system releases it when the process ends, however it does.

`sweep_status` says how far the sweep in a folder is, `load_sweep` makes one Dataset of its cells.
"""

import errno
import json
import logging
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from bayes_mdp.experiments.describe import Json
from bayes_mdp.experiments.results import SWEEP_FORMAT, json_attributes
from bayes_mdp.experiments.resume import Values, read_arrays, refuse_another, write_arrays
from bayes_mdp.utils.files import check_checksum, check_folder, read_json, write_json
from bayes_mdp.utils.validation import check_type

if TYPE_CHECKING:
    import xarray as xr


try:
    import fcntl
except ImportError:  # no such locks on Windows: two sweeps on one folder write the same files there
    fcntl = None

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
MANIFEST, LOCK, CELLS, RESULTS = "manifest.json", "lock", "cells", "results.nc"
FORMAT = "bayes_mdp sweep 1"
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
"""Seconds between two tries to write where no space is left on the device: two minutes in all."""
_FULL = (errno.ENOSPC, errno.EDQUOT)
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)
_TRIES = 3
_IDENTITY = ("configuration", "versions", "key")
_CELL = "cell"
_EXPECTED_CELL = "a whole cell of this sweep"
_EXPECTED_MANIFEST = "the manifest of a sweep, as this version writes it"


class SweepFolder:
    """The files of one sweep.

    Args:
        folder: it exists.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    # ------------------------------------------------------------------------------------------------ manifest
    def read_manifest(self) -> dict[str, Json]:
        """What `begin` and `finish` wrote.

        Raises:
            FileNotFoundError: there is none. ValueError: it is altered, or of another format.
        """
        place = self.folder / MANIFEST
        if not place.is_file():
            raise FileNotFoundError(f"{str(self.folder)!r} holds no sweep (there is no {MANIFEST})")
        manifest = read_json(place, _EXPECTED_MANIFEST)
        if manifest.get("format") != FORMAT:
            raise ValueError(f"path is {str(place)!r} of format {manifest.get('format')!r}, expected {FORMAT!r}")
        return manifest

    def begin(self, manifest: Mapping[str, Json]) -> None:
        """Write the manifest of a new sweep; of one that is resumed compare it.

        Raises:
            ValueError: the folder holds a sweep of another configuration, or other files.
        """
        expected = json.loads(json.dumps({"format": FORMAT, **manifest}))
        place = self.folder / MANIFEST
        if place.exists():
            stored = self.read_manifest()
            before, now = ({name: manifest_of[name] for name in _IDENTITY} for manifest_of in (stored, expected))
            refuse_another(before, now, self.folder, "another sweep")
            return
        (self.folder / CELLS).mkdir(exist_ok=True)
        patiently(lambda: write_json(place, expected))

    def finish(self, checksums: Mapping[str, str], failed: Mapping[str, str]) -> None:
        """Note in the manifest that the sweep is over: checksums of the finished cells, sentences of the failed."""
        manifest = self.read_manifest() | {"checksums": dict(checksums), "failed": dict(failed)}
        patiently(lambda: write_json(self.folder / MANIFEST, manifest))

    # --------------------------------------------------------------------------------------------------- cells
    def _place(self, name: str, ending: str) -> Path:
        """Of a finished cell ("npz"), or of the note of a failed one ("json")."""
        return self.folder / CELLS / f"{name}.{ending}"

    def keep(self, name: str, description: Mapping[str, Json], values: Values) -> None:
        """Write a finished cell, and forget that it failed.

        Raises:
            OSError: it cannot be written; where no space is left on the device, after two minutes.
        """
        arrays = values | {_CELL: np.array(json.dumps(dict(description)))}
        patiently(lambda: write_arrays(self._place(name, "npz"), arrays))
        self._place(name, "json").unlink(missing_ok=True)

    def keep_failure(self, name: str, error: str, attempts: int) -> None:
        """Write why a cell failed."""
        patiently(lambda: write_json(self._place(name, "json"), {"error": error, "attempts": attempts}))

    def read(self, name: str, description: Mapping[str, Json]) -> Values | None:
        """The arrays of a finished cell; None: there is none. Of a damaged file a warning is logged."""
        place = self._place(name, "npz")
        try:
            values = read_arrays(place, _EXPECTED_CELL)
        except FileNotFoundError:
            return None
        except ValueError as error:
            _LOG.warning("%s; the cell is run again", error)
            return None
        cell = values.pop(_CELL, None)
        if cell is None or json.loads(str(cell)) != json.loads(json.dumps(dict(description))):
            _LOG.warning("path is %r, which holds another cell; the cell is run again", str(place))
            return None
        return values

    def checksum(self, name: str) -> str:
        """Of the file of a finished cell."""
        return check_checksum(self._place(name, "npz"), _EXPECTED_CELL)

    def failure(self, name: str) -> str:
        """Why a cell failed; empty: it did not, as far as is known."""
        try:
            return str(read_json(self._place(name, "json"), "the note of a failed cell")["error"])
        except FileNotFoundError:
            return ""
        except (ValueError, KeyError):
            return "the note of its failure is damaged"

    def counts(self, names: Sequence[str]) -> tuple[int, list[str]]:
        """(number of finished cells, names of the failed ones), by the names of their files alone."""
        files = {file.name for file in (self.folder / CELLS).glob("*.*")}
        finished = sum(f"{name}.npz" in files for name in names)
        return finished, [name for name in names if f"{name}.json" in files and f"{name}.npz" not in files]

    # ---------------------------------------------------------------------------------------------------- lock
    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder: one sweep at a time.

        Where the file system has no locks, two sweeps write the same files.

        Raises:
            ValueError: another sweep runs in it.
        """
        place = self.folder / LOCK
        with place.open("a+", encoding="utf-8") as file:
            has_lock = _lock(file.fileno())
            for _ in range(_TRIES):  # `is_running` of another process holds it for an instant
                if has_lock is not False:
                    break
                time.sleep(0.05)
                has_lock = _lock(file.fileno())
            if has_lock is False:
                file.seek(0)
                raise ValueError(
                    f"path is {str(self.folder)!r}, in which another sweep runs ({file.read().strip() or 'unknown'}), "
                    "expected a folder that no other sweep writes"
                )
            if has_lock:
                file.truncate(0)
                file.write(f"process {os.getpid()} on {platform.node()}\n")
                file.flush()
                for half in (self.folder / CELLS).glob(".*"):  # of a process that was killed while it wrote
                    half.unlink(missing_ok=True)
            yield

    def is_running(self) -> bool:
        """Whether a process holds the folder."""
        try:
            with (self.folder / LOCK).open("r", encoding="utf-8") as file:
                return _lock(file.fileno()) is False
        except OSError:
            return False


def make_folder(path: str | Path) -> SweepFolder:
    """The folder under `path`, made where it does not exist.

    Raises:
        ValueError: there is something else, or it holds other files. PermissionError: nothing can be written there.
        TypeError: no path.
    """
    place = check_folder(path)
    names = [file.name for file in place.iterdir()] if place.is_dir() else []
    # Where there are no locks, another process may be writing the same manifest just now.
    strange = sorted(name for name in names if not name.startswith(".") and name not in (LOCK, CELLS))
    if strange and MANIFEST not in names:
        raise ValueError(
            f"path is {str(path)!r}, which holds {strange[0]!r} and no {MANIFEST}, expected a new or an "
            "empty folder, or that of a sweep"
        )
    place.mkdir(parents=True, exist_ok=True)
    return SweepFolder(place)


def patiently(write: Callable[[], T]) -> T:
    """`write`, again and again where no space is left on the device.

    Raises:
        OSError: it is still so after all of `PAUSES`; anything else that `write` raises, at once.
    """
    for pause in PAUSES:
        try:
            return write()
        except OSError as error:
            if error.errno not in _FULL:
                raise
            _LOG.warning("%s; trying again in %g s", error, pause)
            time.sleep(pause)
    return write()


def _lock(file: int) -> bool | None:
    """Whether the lock was taken; None: there are no locks here."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return None
        raise
    return True


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


def sweep_status(path: str | os.PathLike[str]) -> SweepStatus:
    """How far the sweep in a folder is; also while it runs.

    Args:
        path: of the folder.

    Raises:
        FileNotFoundError: it holds no sweep. ValueError: its manifest is altered. TypeError: no path.

    Example:
        >>> result = bm.sweeps.sweep(
        ...     {"q": bm.agents.EpsilonGreedyQ()},
        ...     {"chain": bm.envs.chain()},
        ...     key=jax.random.key(0),
        ...     objective=bm.Discounted(0.9),
        ...     num_steps=10,
        ...     path="sweep",
        ...     options=bm.experiments.RunOptions(progress=False),
        ... )
        >>> bm.sweeps.sweep_status("sweep")
        SweepStatus(total=1, finished=1, failed={}, running=False)
    """
    folder = _folder(path)
    names = [cell["file"] for cell in folder.read_manifest()["cells"]]
    finished, failed = folder.counts(names)
    return SweepStatus(len(names), finished, {name: folder.failure(name) for name in failed}, folder.is_running())


def load_sweep(path: str | os.PathLike[str]) -> "xr.Dataset":
    """The Dataset of the cells that are finished, as `sweep` returns it; also while it runs.

    Args:
        path: of the folder.

    Returns:
        As of `sweep`; cells that are not finished are nan, their `status` is "failed" or "missing". A damaged file is
        a missing cell (the log has a warning).

    Raises:
        FileNotFoundError: it holds no sweep. ValueError: its manifest is altered. TypeError: no path.

    Example:
        >>> result = bm.sweeps.sweep(
        ...     {"q": bm.agents.EpsilonGreedyQ()},
        ...     {"chain": bm.envs.chain()},
        ...     key=jax.random.key(0),
        ...     objective=bm.Discounted(0.9),
        ...     num_steps=10,
        ...     path="sweep",
        ...     options=bm.experiments.RunOptions(progress=False),
        ... )
        >>> bm.load("sweep").sizes == result.sizes
        True
    """
    folder = _folder(path)
    manifest = folder.read_manifest()
    cells = manifest["cells"]
    values = [folder.read(cell["file"], cell["description"]) for cell in cells]
    errors = [
        folder.failure(cell["file"]) if cell_values is None else ""
        for cell, cell_values in zip(cells, values, strict=True)
    ]
    return sweep_dataset(manifest, values, errors)


def _folder(path: str | os.PathLike[str]) -> SweepFolder:
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
    finished = [cell_values for cell_values in values if cell_values is not None]
    # Cells may have different numbers of rows: nan after the last one.
    num_rows, num_seeds = (
        max((len(cell_values["time"]) for cell_values in finished), default=0),
        manifest["configuration"]["num_seeds"],
    )
    rows = str(finished[0]["rows"]) if finished else "checkpoint"
    names = sorted({name for cell_values in finished for name in cell_values if name not in _LEFT_OUT})
    tables = {name: np.full((len(cells), num_seeds, num_rows), np.nan) for name in names}
    times = np.full((len(cells), num_rows), np.nan)
    for i, cell_values in enumerate(values):
        if cell_values is not None:
            times[i, : len(cell_values["time"])] = cell_values["time"]
            for name in names:
                if name in cell_values:
                    tables[name][i, :, : cell_values[name].shape[1]] = cell_values[name]
    status = [
        "finished" if cell_values is not None else "failed" if error else "missing"
        for cell_values, error in zip(values, errors, strict=True)
    ]
    unknown = ["" if cell_values is None else str(cell_values["regret_unknown"]) for cell_values in values]
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
    result.attrs = json_attributes(SWEEP_FORMAT, {name: manifest[name] for name in _IDENTITY})
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
