"""Checkpoints of a training, by orbax: everything that it needs to go on, whole or not at all."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayes_mdp.experiments.describe import refuse_another
from bayes_mdp.mdp.files import check_folder, folder_checksum, read_json, write_json

_KEPT = 2
_SEAL = "checksum.json"
_MISSING = "checkpoints need orbax: pip install 'bayes-mdp[deep]'"


def named_arrays(tree: Any) -> dict[str, Any]:
    """The arrays of a tree by their place in it; typed keys as their words, arrays without entries left out."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    arrays = {jax.tree_util.keystr(path): _words(leaf) for path, leaf in leaves}
    return {name: array for name, array in arrays.items() if array.size}


def fill(tree: Any, arrays: Mapping[str, Any], where: str) -> Any:
    """`tree` (arrays, or shapes and types) with the arrays that were saved by `named_arrays`.

    Raises:
        ValueError: a name is missing, or another shape or type was saved: another architecture. Names the first.
    """

    def one(path: Any, leaf: Any) -> Any:
        name = jax.tree_util.keystr(path)
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        like = jax.eval_shape(jax.random.key_data, leaf) if is_key else leaf
        if not np.prod(like.shape, dtype=int):
            return jnp.zeros(like.shape, like.dtype)
        found = arrays.get(name)
        if found is None or found.shape != like.shape or found.dtype != like.dtype:
            there = "nothing" if found is None else f"{found.dtype}{list(found.shape)}"
            raise ValueError(
                f"{where} is a checkpoint of another architecture: {name} is {there} there, "
                f"expected {like.dtype}{list(like.shape)}"
            )
        array = jnp.asarray(found)
        return jax.random.wrap_key_data(array, impl=jax.random.key_impl(leaf)) if is_key else array

    return jax.tree_util.tree_map_with_path(one, tree)


def _words(leaf: Any) -> Any:
    leaf = jnp.asarray(leaf) if not isinstance(leaf, (jax.Array, np.ndarray)) else leaf
    return jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


class Checkpoints:
    """The checkpoints in a folder; the newest two are kept, each whole or not there.

    Args:
        folder: it is made where it does not exist.
        configuration: JSON values, of everything that the training depends on.

    Raises:
        ValueError: the folder holds a training of another configuration. ImportError: orbax is missing.
    """

    def __init__(self, folder: str | Path, configuration: Mapping[str, Any]) -> None:
        try:
            import orbax.checkpoint as ocp
        except ImportError as error:
            raise ImportError(_MISSING) from error
        check_folder(folder)
        self._folder = Path(folder).absolute() / "checkpoints"
        check_folder(self._folder).mkdir(parents=True, exist_ok=True)
        self._orbax = ocp.StandardCheckpointer()
        note = Path(folder) / "configuration.json"
        wanted = json.loads(json.dumps(dict(configuration)))
        if not note.exists():
            write_json(note, wanted)
        else:
            refuse_another(read_configuration(folder), wanted, folder, "another training")
        for entry in self._folder.iterdir():
            if "orbax-checkpoint-tmp" in entry.name or (entry.name.isdigit() and not _is_finished(entry)):
                shutil.rmtree(entry, ignore_errors=True)

    def newest(self) -> int | None:
        """Iterations that were done at the newest checkpoint; None: there is none."""
        return max(finished(self._folder), default=None)

    def save(self, iteration: int, arrays: Mapping[str, Any]) -> None:
        """Keep the arrays as the newest checkpoint.

        Raises:
            OSError: they could not be written; the checkpoint before it stays.
        """
        place = self._folder / str(iteration)
        if _is_finished(place):
            return
        try:
            shutil.rmtree(place, ignore_errors=True)  # killed before its checksum was written
            self._orbax.save(place, dict(arrays))
            self._orbax.wait_until_finished()
            write_json(place / _SEAL, {"files": folder_checksum(place, without=_SEAL)})
        except Exception as error:  # tensorstore raises what it likes
            last = self.newest()
            stays = "there is none before it" if last is None else f"that of iteration {last} stays"
            raise OSError(f"checkpoint {place} could not be written ({_first_line(error)}); {stays}") from error
        for old in sorted(finished(self._folder))[:-_KEPT]:
            shutil.rmtree(self._folder / str(old), ignore_errors=True)

    def load(self, iteration: int) -> dict[str, Any]:
        """The arrays that were kept."""
        return load_arrays(self._folder / str(iteration))


def finished(folder: Path) -> list[int]:
    """The checkpoints in a folder, by iteration; unfinished ones have another name, or no checksum."""
    return [int(entry.name) for entry in folder.iterdir() if _is_finished(entry)] if folder.is_dir() else []


def _is_finished(place: Path) -> bool:
    return place.name.isdigit() and (place / _SEAL).is_file()


def load_arrays(place: Path) -> dict[str, Any]:
    """The arrays of one checkpoint.

    Raises:
        ValueError: it is altered, or cannot be read.
    """
    try:
        import orbax.checkpoint as ocp
    except ImportError as error:
        raise ImportError(_MISSING) from error
    kept = read_json(place / _SEAL, f"the checksum of a checkpoint; remove {place}")
    if kept.get("files") != folder_checksum(place, without=_SEAL):
        raise ValueError(f"{place} is no whole checkpoint (its checksum does not fit); remove it")
    try:
        return dict(ocp.StandardCheckpointer().restore(place.absolute()))
    except Exception as error:
        raise ValueError(f"{place} is no whole checkpoint ({_first_line(error)}); remove it") from error


def read_configuration(folder: str | Path) -> dict[str, Any]:
    """What was trained there.

    Raises:
        FileNotFoundError: nothing was. ValueError: the note of it is altered, or of another version.
    """
    note = Path(folder) / "configuration.json"
    if not note.is_file():
        raise FileNotFoundError(f"{folder} holds no training (there is no {note.name})")
    return read_json(note, "what was trained there, as this version writes it")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
