"""Cells: the parts of a long experiment, each kept as soon as it is finished: a killed one goes on from there."""

import io
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from bayes_mdp.experiments.describe import refuse_another
from bayes_mdp.experiments.progress import Progress
from bayes_mdp.mdp.files import check_folder, read_json, read_sealed, write_json, write_sealed

Values = dict[str, np.ndarray]


def folder_of(path: str | Path) -> Path:
    """The folder of the cells of the result under `path`."""
    return Path(f"{path}.cells")


class Cells:
    """Keeps what is computed by name in a folder: the configuration as JSON, an npz file for every finished cell.

    Args:
        folder: it is made where it does not exist; None: nothing is kept.
        configuration: JSON values, of everything that the cells depend on.

    Raises:
        ValueError: the folder holds cells of another configuration, or is none; a damaged cell (of `get`).
    """

    def __init__(self, folder: str | Path | None = None, configuration: Mapping[str, Any] | None = None) -> None:
        self._folder = None if folder is None else check_folder(folder)
        self._bar: Progress | None = None
        self._done = 0
        if self._folder is not None:
            self._open(self._folder, json.loads(json.dumps(dict(configuration or {}))))

    def _open(self, folder: Path, configuration: dict[str, Any]) -> None:
        folder.mkdir(exist_ok=True)
        note = folder / "configuration.json"
        if not note.exists():
            write_json(note, configuration)
            return
        there = read_json(note, f"the note of finished cells; remove {folder}")
        refuse_another(there, configuration, folder, "cells of another run")

    def expect(self, number: int) -> "Cells":
        """The same cells, to be used in a `with` statement: a progress bar over `number` of them."""
        self._bar, self._done = Progress(1, number, unit=" cells"), 0
        return self

    def __enter__(self) -> "Cells":
        assert self._bar is not None
        self._bar.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._bar is not None
        self._bar.__exit__(kind, error, trace)
        self._bar = None

    def get(self, name: str, compute: Callable[[Path | None], Mapping[str, Any]]) -> Values:
        """What `compute` returned for this name, in this run or in one before it.

        Args:
            name: of the cell and of its file.
            compute: (path beside which it may keep snapshots, or None) -> arrays by name.
        """
        if self._bar is not None:
            self._bar.describe(name)
        values = self._load_or_compute(name, compute)
        self._done += 1
        if self._bar is not None:
            self._bar.advance(self._done)
        return values

    def _load_or_compute(self, name: str, compute: Callable[[Path | None], Mapping[str, Any]]) -> Values:
        if self._folder is None:
            return _arrays(compute(None))
        file = self._folder / f"{name}.npz"
        if not file.exists():
            values = _arrays(compute(file))
            write_sealed(file, lambda beside: np.savez(beside, **values))  # pyright: ignore[reportArgumentType]
        return _read(file)

    def remove(self) -> None:
        """Remove the folder: for whoever has the whole result on the disk."""
        if self._folder is not None:
            shutil.rmtree(self._folder)


def _read(file: Path) -> Values:
    content = read_sealed(file, "a finished cell, as it was written; remove it to compute it anew")
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as kept:
            return {entry: kept[entry] for entry in kept.files}
    except Exception as error:  # sealed, but by something else: zipfile raises what it likes
        raise ValueError(f"path is {str(file)!r}, expected a finished cell; remove it to compute it anew") from error


def _arrays(values: Mapping[str, Any]) -> Values:
    return {name: np.asarray(value) for name, value in values.items()}
