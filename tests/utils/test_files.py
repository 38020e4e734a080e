"""A file is whole or not there."""

import errno
import json
import os
import socket
import stat

import numpy as np
import pytest
import xarray as xr

from bayes_mdp.utils.files import (
    check_file,
    check_folder,
    new_folder,
    read_bytes,
    read_json,
    read_netcdf,
    read_with_checksum,
    write_beside,
    write_json,
    write_netcdf,
    write_with_checksum,
)
from tests.flips import NUMBER, refused_flips


def test_the_content_appears_and_nothing_else(tmp_path):
    for content in (b"one", b"two"):
        write_beside(tmp_path / "x.nc", lambda beside, content=content: beside.write_bytes(content))
        assert (tmp_path / "x.nc").read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == ["x.nc"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_failure_leaves_what_was_there(tmp_path, error):
    path = tmp_path / "x.nc"
    path.write_bytes(b"old")

    def write(beside):
        assert beside.parent == tmp_path and beside.suffix == ".nc"
        beside.write_bytes(b"half")
        raise error

    with pytest.raises(error):
        write_beside(str(path), write)
    assert path.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["x.nc"]


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_beside(tmp_path / "no" / "x", lambda beside: beside.write_bytes(b""))


def test_a_full_device_is_named_with_the_file(tmp_path):
    def write(beside):
        beside.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "can't synchronously write data (file write failed: ...)")

    path = tmp_path / "result.nc"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match=r"no space left on the device for: '.*result\.nc'"):
        write_beside(path, write)
    assert [x.name for x in tmp_path.iterdir()] == ["result.nc"] and path.read_bytes() == b"old"


@pytest.mark.parametrize("kind", ["folder", "pipe", "socket", "device", "circle"])
def test_what_is_no_file_is_never_replaced(tmp_path, kind):
    path = _made(tmp_path, kind)
    before = os.lstat(path)
    for refuse in (check_file, lambda path: write_beside(path, lambda beside: beside.write_bytes(b"new"))):
        with pytest.raises(ValueError, match=rf"^path is '.*{path.name}', {WORDS[kind]}.*, expected a file"):
            refuse(path)
    with pytest.raises(ValueError, match=WORDS[kind]):
        read_bytes(path)
    assert os.lstat(path).st_mode == before.st_mode and [x.name for x in tmp_path.iterdir()] == [path.name]


WORDS = {"folder": "a folder", "pipe": "a pipe", "socket": "a socket", "device": "a device", "circle": "a link"}


def _made(folder, kind):
    path = folder / "x"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(os.path.relpath(path))
    elif kind == "circle":
        path.symlink_to(path)
    else:
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("only root makes devices")
    return path


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_a_link(tmp_path, exists):
    (tmp_path / "there").mkdir()
    link, target = tmp_path / "x.nc", tmp_path / "there" / "y.nc"
    link.symlink_to(target)
    if exists:
        target.write_bytes(b"old")
    write_beside(link, lambda beside: beside.write_bytes(b"new"))
    assert link.is_symlink() and target.read_bytes() == b"new" and not target.is_symlink()
    assert [x.name for x in target.parent.iterdir()] == ["y.nc"]


def test_a_link_to_a_pipe_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "x").symlink_to(tmp_path / "pipe")
    with pytest.raises(ValueError, match="a pipe"):
        write_beside(tmp_path / "x", lambda beside: beside.write_bytes(b""))
    assert (tmp_path / "x").is_symlink() and stat.S_ISFIFO((tmp_path / "x").stat().st_mode)


def test_a_long_name_leaves_room_for_the_temporary_one(tmp_path):
    path = tmp_path / ("x" * 250 + ".nc")
    write_beside(path, lambda beside: beside.write_bytes(b"new"))
    assert path.read_bytes() == b"new"


def test_a_folder_is_made_only_for_what_succeeds(tmp_path):
    with pytest.raises(KeyError), new_folder(tmp_path / "a" / "b") as folder:
        assert folder.is_dir()
        raise KeyError
    assert not list(tmp_path.iterdir())
    with new_folder(tmp_path / "a" / "b"):
        pass
    with pytest.raises(KeyError), new_folder(tmp_path / "a" / "b" / "c") as folder:
        (folder / "kept").write_bytes(b"")
        raise KeyError
    assert (tmp_path / "a" / "b" / "c" / "kept").is_file()
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file", tmp_path / "file" / "c"):
        with pytest.raises(ValueError, match="a file, expected a folder"):
            check_folder(path)


def test_sealed_content_comes_back_or_not_at_all(tmp_path):
    path, content = tmp_path / "x", bytes(range(256))
    write_with_checksum(path, lambda beside: beside.write_bytes(content))
    assert path.read_bytes().startswith(content + b"\nbayes_mdp sha256 ")
    read = lambda: read_with_checksum(path, "it as it was")  # noqa: E731
    assert refused_flips(path, read, lambda found: found == content) == NUMBER
    whole = path.read_bytes()
    for cut in (0, 1, 100, len(content), len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match="expected it as it was"):
            read()
    path.write_bytes(content)
    with pytest.raises(ValueError, match="which has no checksum, expected it as it was"):
        read()


def test_json_comes_back_or_not_at_all(tmp_path):
    path, values = tmp_path / "x.json", {"a": [1, 2.5, None, {"b": "text"}], "c": True}
    write_json(path, values)
    assert json.loads(path.read_text())["a"] == values["a"]
    assert refused_flips(path, lambda: read_json(path, "it"), lambda found: found == values) > 0.8 * NUMBER
    for text in ("", "[]", "3", "{}", '{"a": 1}', "[" * 100_000):
        path.write_text(text)
        with pytest.raises(ValueError, match="whose checksum is missing or does not fit, expected it"):
            read_json(path, "it")


def test_a_dataset_comes_back_or_not_at_all(tmp_path):
    """150 single bits of a NetCDF file; any program opens it."""
    path = tmp_path / "x.nc"
    data = xr.Dataset({"x": ("a", np.arange(50) / 7), "s": ("a", [f"n{i}" for i in range(50)])}, attrs={"f": "text"})
    write_netcdf(data, path)
    assert xr.load_dataset(path).identical(read_netcdf(path))
    assert refused_flips(path, lambda: read_netcdf(path), data.identical) == NUMBER
    data.to_netcdf(path, engine="h5netcdf")
    with pytest.raises(ValueError, match="which has no checksum, expected a whole NetCDF file"):
        read_netcdf(path)
    write_with_checksum(path, lambda beside: beside.write_bytes(b"no NetCDF"))
    with pytest.raises(ValueError, match="which is no NetCDF, expected"):
        read_netcdf(path)
