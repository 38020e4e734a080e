"""Files that appear whole or not at all, and that are read as they were written or not at all.

A sealed file ends with a line that holds the SHA-256 of all bytes before it. Readers of NetCDF (HDF5) and npz (zip)
pass over it, so that such a file stays what it is to every other program.
"""

import errno
import hashlib
import io
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from bayes_mdp.utils.validation import check_type

if TYPE_CHECKING:
    import xarray as xr


AnyPath = str | os.PathLike[str]
_SEAL = b"\nbayes_mdp sha256 "
_SEAL_LENGTH = len(_SEAL) + 2 * hashlib.sha256().digest_size + 1
_CHECKSUM = "sha256"
_BLOCK = 2**20
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISLNK, "a link that leads in a circle"),
)


def check_file(path: AnyPath, name: str = "path") -> Path:
    """Where a file under `path` is written: there is nothing yet or a regular file. Links are followed.

    Raises:
        ValueError: there is something else (a folder, a device, a pipe, a socket). FileNotFoundError: no such folder.
        PermissionError: nothing can be written in the folder. TypeError: no path.
    """
    check_type(name, path, (str, os.PathLike), "a path")
    place = Path(os.path.realpath(path))
    kind = _kind(place)
    if kind not in (None, "a file"):
        raise ValueError(f"{name} is {str(path)!r}, {kind}, expected a file, or a name that is not taken")
    if not place.parent.is_dir():
        raise FileNotFoundError(f"{name} is {str(path)!r}, expected a file in a folder that exists")
    _check_writable(place.parent, path, name)
    return place


def check_folder(path: AnyPath, name: str = "path") -> Path:
    """Where a folder under `path` is, or can be made, with those above it. Links are followed.

    Raises:
        ValueError: there, or above, is something else. PermissionError: nothing can be written there.
        TypeError: no path.
    """
    check_type(name, path, (str, os.PathLike), "a path")
    place = Path(os.path.realpath(path))
    existing = next(folder for folder in (place, *place.parents) if _kind(folder) is not None)
    if not existing.is_dir():
        problem = _kind(existing) if existing == place else f"which lies in {str(existing)!r}, {_kind(existing)}"
        raise ValueError(f"{name} is {str(path)!r}, {problem}, expected a folder, or a name that is not taken")
    _check_writable(existing, path, name)
    return place


@contextmanager
def new_folder(path: AnyPath, name: str = "path") -> Iterator[Path]:
    """The folder, made where it does not exist; if the block fails, what was made and is still empty is removed.

    Raises:
        ValueError, PermissionError: see `check_folder`.
    """
    place = check_folder(path, name)
    made = [folder for folder in (place, *place.parents) if not folder.exists()]
    place.mkdir(parents=True, exist_ok=True)
    try:
        yield place
    except BaseException:
        for folder in made:
            try:
                folder.rmdir()
            except OSError:
                break
        raise


def write_beside(path: AnyPath, write: Callable[[Path], object]) -> None:
    """Call `write` with the path of a temporary file beside `path` (same ending), and rename it to `path`.

    The content is on the disk before the file has its name. If anything fails, the temporary file is removed and what
    was under `path` stays. A link stays a link: the file that it leads to is replaced.

    Raises:
        ValueError, OSError: see `check_file`; the file cannot be written (a full device: the sentence names `path`);
            whatever `write` raises.
    """
    place = check_file(path)
    temporary = place.with_name(f".{uuid4().hex}.{place.name[-32:]}")
    try:
        write(temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, place)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise OSError(error.errno, "no space left on the device for", str(path)) from error
        raise


def read_bytes(path: AnyPath, expected: str = "a file") -> bytes:
    """The content of a regular file.

    Raises:
        TypeError: no path. FileNotFoundError: there is none. ValueError: it is something else (a pipe would block).
        OSError: it cannot be read.
    """
    _check_readable(path, expected)
    return Path(path).read_bytes()


def write_with_checksum(path: AnyPath, write: Callable[[Path], object]) -> None:
    """As `write_beside`; the file ends with its checksum."""

    def write_and_seal(beside: Path) -> None:
        write(beside)
        with beside.open("rb+") as file:
            digest = hashlib.file_digest(file, _CHECKSUM).hexdigest()
            file.seek(0, os.SEEK_END)
            file.write(_SEAL + digest.encode() + b"\n")

    write_beside(path, write_and_seal)


def read_with_checksum(path: AnyPath, expected: str) -> bytes:
    """The content of a sealed file, without its last line.

    Args:
        path: of the file.
        expected: what it should be, for the sentence: "a whole NetCDF file that ... wrote".

    Raises:
        ValueError: its checksum is missing or does not fit: it is cut, altered, or of another program.
        OSError: see `read_bytes`.
    """
    whole = read_bytes(path, expected)
    content, seal = whole[:-_SEAL_LENGTH], whole[-_SEAL_LENGTH:]
    if seal != _SEAL + hashlib.sha256(content).hexdigest().encode() + b"\n":
        problem = "whose checksum does not fit" if _SEAL in whole else "which has no checksum"
        raise ValueError(f"path is {str(path)!r}, {problem}, expected {expected}")
    return content


def check_checksum(path: AnyPath, expected: str) -> str:
    """Check the last line of a sealed file that may be large: it is read block by block.

    Args, Raises: as of `read_with_checksum`.

    Returns:
        The checksum.
    """
    _check_readable(path, expected)
    digest, left = hashlib.sha256(), max(os.path.getsize(path) - _SEAL_LENGTH, 0)
    with open(path, "rb") as file:
        while left and (block := file.read(min(left, _BLOCK))):
            digest.update(block)
            left -= len(block)
        seal = file.read()
    if seal != _SEAL + digest.hexdigest().encode() + b"\n":
        problem = "whose checksum does not fit" if seal.startswith(_SEAL) else "which has no checksum"
        raise ValueError(f"path is {str(path)!r}, {problem}, expected {expected}")
    return digest.hexdigest()


def write_json(path: AnyPath, values: Mapping[str, object]) -> None:
    """Write JSON, beside and then renamed, with a checksum of the values among them."""
    content = json.loads(json.dumps(dict(values)))
    text = json.dumps({**content, _CHECKSUM: _checksum(content)}, indent=1)
    write_beside(path, lambda beside: beside.write_text(text + "\n", encoding="utf-8"))


def read_json(path: AnyPath, expected: str) -> dict[str, Any]:
    """The values that `write_json` wrote.

    Raises:
        ValueError: they are not those that were written: the file is altered, or of another program or version.
        OSError: see `read_bytes`.
    """
    text = read_bytes(path, expected)
    try:
        values = json.loads(text)
        fits = values.pop(_CHECKSUM) == _checksum(values)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        fits, values = False, {}
    if not fits:
        raise ValueError(f"path is {str(path)!r}, whose checksum is missing or does not fit, expected {expected}")
    return values


def write_netcdf(dataset: "xr.Dataset", path: AnyPath) -> None:
    """Write NetCDF with a checksum at its end, beside and then renamed: never half a file under `path`.

    Raises:
        ValueError, OSError: see `bayes_mdp.utils.files.check_file`.
    """
    write_with_checksum(path, lambda beside: dataset.to_netcdf(beside, engine="h5netcdf"))


def read_netcdf(path: AnyPath, expected: str = "a whole NetCDF file, as this package wrote it") -> "xr.Dataset":
    """What `write_netcdf` wrote.

    Raises:
        ValueError: the file is cut, altered, or not ours. OSError: it cannot be read.
    """
    import xarray as xr

    content = read_with_checksum(path, expected)
    try:
        return xr.load_dataset(io.BytesIO(content), engine="h5netcdf")
    except Exception as error:  # HDF5 raises what it likes
        raise ValueError(f"path is {str(path)!r}, which is no NetCDF, expected {expected}") from error


def _checksum(values: object) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _kind(place: Path) -> str | None:
    """What is there, in words; None: nothing."""
    try:
        mode = os.lstat(place).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    return next((words for test, words in _KINDS if test(mode)), "a file")


def _check_readable(path: AnyPath, expected: str) -> None:
    check_type("path", path, (str, os.PathLike), "a path")
    kind = _kind(Path(os.path.realpath(path)))
    if kind is None:
        raise FileNotFoundError(f"path is {str(path)!r}, which does not exist, expected {expected}")
    if kind != "a file":
        raise ValueError(f"path is {str(path)!r}, {kind}, expected {expected}")


def _check_writable(folder: Path, path: AnyPath, name: str) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"{name} is {str(path)!r}, expected a folder that can be written to")
