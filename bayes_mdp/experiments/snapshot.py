"""Snapshots of a run in progress: a killed run goes on from its last finished chunk, bit for bit.

A snapshot is `<path>.partial`: the arrays of the carry and of the rows so far (npz, no pickle), the configuration as
JSON, and a checksum. It is written beside and renamed, and removed when the run has ended.
"""

import io
import json
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayes_mdp.experiments.case import SNAPSHOT_SECONDS
from bayes_mdp.experiments.describe import refuse_another
from bayes_mdp.experiments.loop import Row
from bayes_mdp.mdp.files import check_file, read_sealed, write_sealed


class Snapshots:
    """Context manager around a run: keeps the newest carry, writes it at most every `seconds`, and when interrupted.

    Args:
        path: of the result; None: nothing is written.
        configuration: JSON values; a snapshot of another configuration is refused.
        seconds: between two snapshots.
    """

    def __init__(
        self, path: str | Path | None, configuration: dict[str, Any], *, seconds: float = SNAPSHOT_SECONDS
    ) -> None:
        self._path = None if path is None else check_file(Path(f"{path}.partial"))
        self._configuration, self._seconds = configuration, seconds
        self._written = time.monotonic()
        self._newest: tuple[int, Any, Any] | None = None

    def __enter__(self) -> "Snapshots":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._path is not None:
            self._path.unlink(missing_ok=True)
        elif self._newest is not None and not any(x.is_deleted() for x in jax.tree.leaves(self._newest[1])):
            self._write()

    def keep(self, rows_done: int, carry: Any, chunks: list[Row]) -> None:
        """Remember the newest chunk (it may still be computed)."""
        self._newest = (rows_done, carry, chunks)

    def write_if_old(self) -> None:
        """Write what is remembered if the last snapshot is old enough."""
        if time.monotonic() - self._written >= self._seconds:
            self._write()

    def restore(self, carry: Any) -> tuple[int, Any, list[Row]]:
        """(rows done, carry, chunks) of the snapshot; where there is none, (0, carry, []).

        Raises:
            ValueError: the snapshot is cut, altered, or of another configuration.
        """
        if self._path is None or not self._path.exists():
            return 0, carry, []
        configuration, arrays = _read(self._path)
        refuse_another(configuration, self._configuration, self._path, "a snapshot of another run")
        leaves, structure = jax.tree.flatten(carry)
        saved = [jnp.array(arrays[f"carry_{i}"]) for i in range(len(leaves))]
        chunk = Row(*(arrays.get(name) for name in Row._fields))
        return int(arrays["rows_done"]), jax.tree.unflatten(structure, saved), [chunk]

    def _write(self) -> None:
        if self._path is None or self._newest is None:
            return
        rows_done, carry, chunks = self._newest
        arrays: dict[str, Any] = {f"carry_{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(carry))}
        arrays |= {name: rows for name, rows in join(chunks, rows_done)._asdict().items() if rows is not None}
        text = np.array(json.dumps(self._configuration))

        def write(beside: Path) -> None:
            with beside.open("wb") as file:
                np.savez(file, configuration=text, rows_done=rows_done, **arrays)

        write_sealed(self._path, write)
        self._written = time.monotonic()


def join(chunks: list[Row], num_rows: int) -> Row:
    """The first `num_rows` rows of chunks [seed, chunk row]; only the last chunk may hold fewer than its width."""

    def column(*parts: Any) -> np.ndarray:
        return np.concatenate([np.asarray(x, np.float64) for x in parts], axis=1)[:, :num_rows]

    return jax.tree.map(column, *chunks)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    content = read_sealed(path, "a whole snapshot of a run; remove it or choose another path")
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        return json.loads(str(arrays.pop("configuration"))), arrays
    except Exception as error:  # sealed, but by something else: zipfile raises what it likes
        raise ValueError(f"path is {str(path)!r}, expected a snapshot of a run; remove it") from error
