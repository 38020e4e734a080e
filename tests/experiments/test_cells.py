"""Cells: computed once, kept, refused where the configuration is another or the file is damaged."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from bayes_mdp.experiments.resume import Cells
from bayes_mdp.utils.files import write_with_checksum
from tests.flips import NUMBER, refused_flips


def test_damaged_cells_are_refused(tmp_path):
    """150 single bits of a cell and of the note of their configuration; a cell that is none."""
    folder, values = tmp_path / "x.cells", {"a": np.arange(40) / 7, "b": np.array("text")}
    kept = Cells(folder, {"a": [1, 2.5]})
    never = lambda path: pytest.fail("it was computed again")  # noqa: E731
    kept.get("one", lambda path: values)
    same = lambda found: all(np.array_equal(found[name], values[name]) for name in values)  # noqa: E731
    assert refused_flips(folder / "one.npz", lambda: kept.get("one", never), same) == NUMBER
    note = folder / "configuration.json"
    assert refused_flips(note, lambda: Cells(folder, {"a": [1, 2.5]}), lambda found: True) > 0.8 * NUMBER
    np.savez(folder / "two.npz", **values)
    write_with_checksum(folder / "three.npz", lambda beside: beside.write_bytes(b"no zip"))
    for name in ("two", "three"):
        with pytest.raises(ValueError, match="expected a finished cell"):
            kept.get(name, never)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ValueError, match="a file, expected a folder"):
        Cells(tmp_path / "file", {})


def test_cells_through_a_link(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "x.cells").symlink_to(tmp_path / "there")
    kept = Cells(tmp_path / "x.cells", {})
    kept.get("one", lambda path: {"a": 1})
    kept.remove()
    assert not (tmp_path / "there").exists()


def test_cells_without_a_folder_keep_nothing():
    cells = Cells()
    assert cells.get("x", lambda path: {"given": path is None})["given"]
    cells.remove()


def test_all_cells_at_once(tmp_path):
    """One after the other, in two threads, on an executor: the same, in the order that was asked for."""
    computes = {name: lambda path, name=name: {"length": len(name)} for name in ("one", "three", "eleven")}
    found = []
    with ThreadPoolExecutor(2) as pool:
        for folder, groups, executor in (
            (None, None, None),
            ("a", [["eleven", "one"], ["three"]], None),
            ("b", None, pool),
            (None, None, pool),
        ):
            place = None if folder is None else tmp_path / folder
            values_by_name = Cells(place, {}, executor).get_all(computes, groups)
            found.append({name: int(values["length"]) for name, values in values_by_name.items()})
    assert all(list(one.items()) == [("one", 3), ("three", 5), ("eleven", 6)] for one in found)
    assert sorted(file.name for file in (tmp_path / "b").glob("*.npz")) == ["eleven.npz", "one.npz", "three.npz"]


def test_a_cell_that_fails_on_an_executor(tmp_path):
    """The others are kept, and not computed again."""
    computed = []

    def compute(path, name):
        if name == "sick":
            raise ValueError("it cannot be")
        return {"x": 1}

    computes = {name: lambda path, name=name: compute(path, name) for name in ("first", "sick", "last")}
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(RuntimeError, match=r"1 of 3 cells failed, the others are finished: sick .it cannot be"):
            Cells(tmp_path / "a", {}, pool).get_all(computes)
        healthy = {name: lambda path, name=name: computed.append(name) or {"x": 1} for name in computes}
        Cells(tmp_path / "a", {}).get_all(healthy)
    assert computed == ["sick"]
    with pytest.raises(ValueError, match="did you mean 'processes'"):
        Cells(executor="process")
