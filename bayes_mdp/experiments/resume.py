"""Resuming: what is killed at any time is resumed from its last file, with the same result bit by bit.

Runs, comparisons and trainings do the same three things:

1. Identity: the configuration (see `describe`) is kept as JSON. Work of another configuration is refused, and so is
   work whose configuration cannot be distinguished from another (`refuse_another`).
2. Atomic writes: a file is written beside its place and renamed, so that it is there whole or not at all.
3. Checksum: every file ends with the SHA-256 of its content; a file that is cut or altered is refused.

`Snapshots` is one file of a run in progress, `Cells` a folder with a file for every finished part, `Checkpoints` a
folder with the newest two states of a training. Arrays are npz files without pickles.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Int, PyTree

from bayes_mdp.experiments.describe import Json, first_difference, why_not_identifying
from bayes_mdp.experiments.run_config import SNAPSHOT_SECONDS
from bayes_mdp.models.reward_laws import law_of_parts, named_parts
from bayes_mdp.parallel import ExecutorLike, Task, check_executor, run_tasks
from bayes_mdp.utils.files import check_checksum, check_file, check_folder, read_json, write_json, write_with_checksum
from bayes_mdp.utils.messages import see
from bayes_mdp.utils.progress import bar_of
from bayes_mdp.utils.typing import AnyArray, ArrayLike

Values = dict[str, np.ndarray]
Tree = TypeVar("Tree")
ComputeCell: TypeAlias = Callable[[Path | None], Mapping[str, ArrayLike]]
"""(path beside which it may keep snapshots, or None) -> arrays by name."""
_NOTE = "configuration.json"
_KEPT = 2  # checkpoints
_REMEDY = f"remove it or choose another path {see('how-to/continue-after-a-kill')}"


def refuse_another(there: Json, here: Json, place: str | Path, what: str) -> None:
    """Refuse to resume work of another configuration, or of one that cannot be distinguished from another.

    Args:
        there, here: configurations, of the file and of this call.
        place: of the file.
        what: for the message: "a snapshot of another run".

    Raises:
        ValueError: one sentence.
    """
    # Two checks: what differs for certain is refused first, then what cannot be told apart.
    difference = first_difference(there, here)
    if difference is not None:
        raise ValueError(f"{place} holds {what}: {difference}; {_REMEDY}")
    why = why_not_identifying(here)
    if why is not None:
        raise ValueError(f"{place} may hold {what}, as {why}; {_REMEDY}")


def note_configuration(folder: Path, configuration: Mapping[str, Json], expected: str, what: str) -> None:
    """Write the configuration into a folder, or refuse a folder with the file of another one.

    Args:
        folder: where `configuration.json` is.
        configuration: JSON values.
        expected: description of the file, for the message about a damaged one.
        what: see `refuse_another`.

    Raises:
        ValueError: a damaged file, or another configuration.
    """
    # Through JSON, as what is read back is.
    expected_note = json.loads(json.dumps(dict(configuration)))
    if (folder / _NOTE).exists():
        refuse_another(read_json(folder / _NOTE, expected), expected_note, folder, what)
    else:
        write_json(folder / _NOTE, expected_note)


def read_configuration(folder: str | Path) -> dict[str, Json]:
    """The configuration of the training in a folder.

    Raises:
        FileNotFoundError: there is none. ValueError: its file is altered, or of another version.
    """
    note = Path(folder) / _NOTE
    if not note.is_file():
        raise FileNotFoundError(f"{folder} holds no training (there is no {note.name})")
    return read_json(note, "what was trained there, as this version writes it")


def write_arrays(path: Path, arrays: Mapping[str, ArrayLike]) -> None:
    """Write an npz file, whole or not at all, with its checksum."""

    def write(beside: Path) -> None:
        with beside.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)

    write_with_checksum(path, write)


def read_arrays(path: Path, expected: str) -> Values:
    """The arrays that `write_arrays` wrote.

    Raises:
        ValueError: the file is cut, altered or something else; the message says what was expected.
        OSError: it cannot be read.
    """
    check_checksum(path, expected)
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except Exception as error:  # sealed, but by something else: zipfile raises what it likes
        raise ValueError(f"path is {str(path)!r}, expected {expected}") from error


def arrays_by_name(tree: PyTree) -> dict[str, AnyArray]:
    """The arrays of a tree by their place in it, those of laws by their names; typed keys as their words."""
    names, leaves = jax.tree.leaves(_places(tree)), jax.tree.leaves(tree)
    return {name: _words(leaf) for name, leaf in zip(names, leaves, strict=True)}


def _places(tree: Tree, above: str = "") -> Tree:
    """A tree of the same structure, whose leaves are the places of the arrays."""

    def place(path: tuple[object, ...], leaf: object) -> object:
        name = above + jax.tree_util.keystr(path)
        if not isinstance(leaf, dist.Distribution):
            return name
        # By name: NumPyro has its parameters in another order in every process.
        parameters, static = named_parts(leaf)
        named = {key: _places(value, f"{name}.{key}") for key, value in parameters.items()}
        return law_of_parts(type(leaf), named, static)

    return jax.tree_util.tree_map_with_path(place, tree, is_leaf=lambda x: isinstance(x, dist.Distribution))


def fill(tree: Tree, arrays: Mapping[str, AnyArray], where: str) -> Tree:
    """`tree` (arrays, or shapes and types) with the arrays that `arrays_by_name` gave, in buffers of their own.

    Raises:
        ValueError: a name is missing, or another shape or type was saved: another architecture. Names the first.
    """

    def one(name: str, leaf: PyTree) -> Array:
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        # A typed key is kept as its words, and checked as such.
        like = jax.eval_shape(jax.random.key_data, leaf) if is_key else leaf
        stored = arrays.get(name)
        if stored is None or stored.shape != like.shape or stored.dtype != like.dtype:
            shown = "nothing" if stored is None else f"{stored.dtype}{list(stored.shape)}"
            raise ValueError(
                f"{where} is a checkpoint of another architecture: {name} is {shown} there, "
                f"expected {like.dtype}{list(like.shape)}"
            )
        array = jnp.array(stored)  # a copy: compiled loops donate their state
        return jax.random.wrap_key_data(array, impl=jax.random.key_impl(leaf)) if is_key else array

    leaves, structure = jax.tree.flatten(tree)
    return jax.tree.unflatten(structure, map(one, jax.tree.leaves(_places(tree)), leaves))


def _words(leaf: ArrayLike) -> AnyArray:
    leaf = jnp.asarray(leaf) if not isinstance(leaf, (jax.Array, np.ndarray)) else leaf
    return jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


class Snapshots:
    """The file `<path>.partial` of a run in progress; a context manager around its loop over chunks.

    It keeps the newest state, writes it at most every `seconds` and when the loop is interrupted, and removes the file
    at the end of the loop.

    Args:
        path: of the result; None: nothing is written.
        configuration: JSON values; a snapshot of another configuration is refused.
        seconds: between two snapshots.
    """

    def __init__(
        self, path: str | Path | None, configuration: Mapping[str, Json], *, seconds: float = SNAPSHOT_SECONDS
    ) -> None:
        self._path = None if path is None else check_file(Path(f"{path}.partial"))
        self._configuration, self._seconds = configuration, seconds
        self._written = time.monotonic()
        self._newest: tuple[int | Int[np.ndarray, ""], PyTree, Callable[[], Mapping[str, ArrayLike]]] | None = None

    def __enter__(self) -> "Snapshots":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._path is not None:
            self._path.unlink(missing_ok=True)
        elif self._newest is not None:
            leaves = jax.tree.leaves(self._newest[1])
            # A state that a failed call has already written into cannot be kept.
            if not any(isinstance(leaf, jax.Array) and leaf.is_deleted() for leaf in leaves):
                self._write()

    def keep(
        self, done: int | Int[np.ndarray, ""], carry: PyTree, rows: Callable[[], Mapping[str, ArrayLike]] = dict
    ) -> None:
        """Remember the newest state (it may still be computed).

        Args:
            done: how much is done, in the units of the loop; an array where the loop writes into it and into `carry`.
            carry: the state, a tree of arrays.
            rows: gives the arrays of what was recorded so far, by name; called when they are written.
        """
        self._newest = (done, carry, rows)

    def write_if_old(self) -> None:
        """Write the newest state if the last snapshot is old enough."""
        if time.monotonic() - self._written >= self._seconds:
            self._write()

    def restore(self, carry: Tree) -> tuple[int, Tree, Values]:
        """(how much is done, state, recorded arrays) of the snapshot; where there is none, (0, carry, {}).

        Raises:
            ValueError: the snapshot is cut, altered, or of another configuration.
        """
        if self._path is None or not self._path.exists():
            return 0, carry, {}
        configuration, arrays = read_snapshot(self._path)
        refuse_another(configuration, self._configuration, self._path, "a snapshot of another run")
        done = int(arrays.pop("done"))
        # The prefix keeps the recorded columns apart from the leaves of the state.
        rows = {name[5:]: x for name, x in arrays.items() if name.startswith("rows ")}
        return done, fill(carry, arrays, str(self._path)), rows

    def _write(self) -> None:
        if self._path is None or self._newest is None:
            return
        done, carry, rows = self._newest
        arrays = arrays_by_name(carry) | {f"rows {name}": x for name, x in rows().items()}
        arrays |= {"configuration": np.array(json.dumps(self._configuration)), "done": np.array(done)}
        write_arrays(self._path, {name: np.asarray(x) for name, x in arrays.items()})
        self._written = time.monotonic()


def read_snapshot(path: Path) -> tuple[dict[str, Json], Values]:
    """(configuration, arrays) of a snapshot.

    Raises:
        ValueError: it is cut or altered.
    """
    expected = "a whole snapshot of a run; remove it or choose another path"
    arrays = read_arrays(path, expected)
    if "configuration" not in arrays:
        raise ValueError(f"path is {str(path)!r}, expected {expected}")
    return json.loads(str(arrays.pop("configuration"))), arrays


def folder_of(path: str | Path) -> Path:
    """The folder of the cells of the result under `path`."""
    return Path(f"{path}.cells")


def _on_host(arrays: Mapping[str, ArrayLike]) -> Values:
    return {name: np.asarray(array) for name, array in arrays.items()}


def _compute_cell(compute: ComputeCell) -> Values:
    """In a worker: snapshots within a cell are not kept there."""
    return _on_host(compute(None))


class Cells:
    """The finished parts of a long experiment, by name: an npz file each, in a folder with the configuration.

    Args:
        folder: it is made where it does not exist; None: nothing is kept.
        configuration: JSON values, of everything that the cells depend on.
        executor: where `get_all` computes cells; the same numbers everywhere.

    Raises:
        ValueError: the folder holds cells of another configuration, or is none; a damaged cell (of `get`).
    """

    def __init__(
        self,
        folder: str | Path | None = None,
        configuration: Mapping[str, Json] | None = None,
        executor: ExecutorLike = None,
    ) -> None:
        check_executor(executor)
        self._executor = executor
        self._folder = None if folder is None else check_folder(folder)
        if self._folder is not None:
            self._folder.mkdir(exist_ok=True)
            note = f"the note of finished cells; remove {self._folder}"
            note_configuration(self._folder, configuration or {}, note, "cells of another run")

    def get(self, name: str, compute: ComputeCell) -> Values:
        """The result of `compute` for this name, from this run or from an earlier one.

        Args:
            name: of the cell and of its file.
            compute: (path beside which it may keep snapshots, or None) -> arrays by name.
        """
        file = None if self._folder is None else self._folder / f"{name}.npz"
        if file is None:
            return _on_host(compute(None))
        if not file.exists():
            write_arrays(file, _on_host(compute(file)))
        # Read back also what was just written: both ways give the same.
        return read_arrays(file, "a finished cell, as it was written; remove it to compute it anew")

    def get_all(
        self, computes: Mapping[str, ComputeCell], groups: Sequence[Sequence[str]] | None = None
    ) -> dict[str, Values]:
        """The results of all `computes`, as `get` has each, under a progress bar; with an executor side by side.

        Args:
            computes: by the name of the cell.
            groups: names that share a compiled program: without an executor two groups are computed at a time, in two
                threads. None: one cell after the other.

        Raises:
            RuntimeError: cells that failed on the executor, after all others are finished. Others: as `computes` raise.
        """
        results: dict[str, Values] = {}
        with bar_of(len(computes), " cells", keep=True) as bar:

            def get(name: str, compute: ComputeCell) -> None:
                bar.set_description(name, refresh=False)
                results[name] = self.get(name, compute)
                bar.update()

            def get_group(names: Iterable[str]) -> None:
                for name in names:
                    get(name, computes[name])

            if self._executor is not None:
                self._get_on_executor(computes, get)
            elif groups is None:
                get_group(computes)
            else:
                with ThreadPoolExecutor(2) as pool:  # mostly compilation, which leaves other threads alone
                    list(pool.map(get_group, groups))
        return {name: results[name] for name in computes}

    def _get_on_executor(self, computes: Mapping[str, ComputeCell], get: Callable[[str, ComputeCell], None]) -> None:
        tasks, failed = [], []
        for name, compute in computes.items():
            if self._folder is not None and (self._folder / f"{name}.npz").exists():
                get(name, compute)
            else:
                tasks.append(Task(name, (compute,)))
        for finished in run_tasks(_compute_cell, tasks, self._executor):
            if finished.value is None:
                failed.append(f"{finished.name} ({finished.error})")
            else:
                get(finished.name, lambda path, values=finished.value: values)
        if failed:
            raise RuntimeError(f"{len(failed)} of {len(computes)} cells failed, the others are finished: {failed[0]}")

    def remove(self) -> None:
        """Remove the folder, once the whole result is written."""
        if self._folder is not None:
            shutil.rmtree(self._folder)


class Checkpoints:
    """The newest two states of a training: `<folder>/checkpoints/<iteration>.npz`.

    Args:
        folder: it is made where it does not exist.
        configuration: JSON values, of everything that the training depends on.

    Raises:
        ValueError: the folder holds a training of another configuration.
    """

    def __init__(self, folder: str | Path, configuration: Mapping[str, Json]) -> None:
        check_folder(folder)
        self._folder = Path(folder).absolute() / "checkpoints"
        check_folder(self._folder).mkdir(parents=True, exist_ok=True)
        note = "what was trained there, as this version writes it"
        note_configuration(Path(folder), configuration, note, "another training")
        for half in self._folder.glob(".*.npz"):  # left by a process that was killed while it wrote
            half.unlink(missing_ok=True)

    def newest(self) -> int | None:
        """Iterations that were done at the newest checkpoint; None: there is none."""
        return max(list_checkpoints(self._folder), default=None)

    def save(self, iteration: int, arrays: Mapping[str, ArrayLike]) -> None:
        """Keep the arrays as the newest checkpoint.

        Raises:
            OSError: they could not be written; the checkpoint before it stays.
        """
        place = checkpoint_path(self._folder, iteration)
        if place.exists():
            return
        try:
            write_arrays(place, {name: np.asarray(x) for name, x in arrays.items()})
        except OSError as error:
            last = self.newest()
            stays = "there is none before it" if last is None else f"that of iteration {last} stays"
            why = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
            raise OSError(f"checkpoint {place} could not be written ({why}); {stays}") from error
        for old in sorted(list_checkpoints(self._folder))[:-_KEPT]:
            checkpoint_path(self._folder, old).unlink(missing_ok=True)

    def load(self, iteration: int) -> Values:
        """The arrays that were kept."""
        return load_checkpoint(self._folder, iteration)


def checkpoint_path(folder: Path, iteration: int) -> Path:
    """The file of a checkpoint."""
    return folder / f"{iteration}.npz"


def list_checkpoints(folder: Path) -> list[int]:
    """The checkpoints in a folder, by iteration; unfinished ones have another name."""
    return [int(file.stem) for file in folder.glob("*.npz") if file.stem.isdigit()]


def load_checkpoint(folder: Path, iteration: int) -> Values:
    """The arrays of one checkpoint.

    Raises:
        ValueError: it is altered, or cannot be read.
    """
    place = checkpoint_path(folder, iteration)
    return read_arrays(place, "a whole checkpoint; remove it")
