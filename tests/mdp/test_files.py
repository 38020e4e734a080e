"""A file is whole or not there."""

import errno

import pytest

from bayes_mdp.mdp.files import write_beside


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
