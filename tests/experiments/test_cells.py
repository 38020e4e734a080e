"""Cells: computed once, kept, refused where the configuration is another; `reproduce` goes on after a kill."""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure

import bayes_mdp as bm
from bayes_mdp.experiments.reproduction import SCALES, Reproduction, Row
from bayes_mdp.experiments.resume import Cells
from bayes_mdp.mdp.files import write_sealed
from tests.flips import NUMBER, refused_flips

home: Any = import_module("bayes_mdp.experiments.reproduce")
CALLS: list[str] = []


class Killed(Exception):
    """Stands for a kill signal."""


def _squares(*, key, number=4, cells=None):
    del key

    def square(i):
        CALLS.append(f"cell-{i}")
        if len(CALLS) == 3:
            raise Killed
        return {"square": i**2, "part": np.arange(i) / 3}

    with (cells or Cells()).expect(number) as kept:
        found = [kept.get(f"cell-{i}", lambda path, i=i: square(i)) for i in range(number)]
    parts = [values["part"].sum() for values in found]
    return xr.Dataset({"square": ("i", [int(v["square"]) for v in found]), "part": ("i", parts)})


@pytest.fixture
def squares(monkeypatch):
    """An experiment in cells, which is killed at its third."""
    module: Any = ModuleType("squares")
    rows = lambda result: [Row("last", 9.0, float(result["square"][-1]), band=(9.0, 9.0))]  # noqa: E731
    module.REPRODUCTION = Reproduction("[X]", _squares, rows, lambda result: Figure(), {}, dict.fromkeys(SCALES, 1.0))
    monkeypatch.setitem(sys.modules, "squares", module)
    monkeypatch.setitem(home.REPRODUCTIONS, "squares", "squares")
    monkeypatch.setattr(home, "expected_verdicts", lambda name: {"last": "agrees"})
    CALLS.clear()
    return module


def test_a_killed_reproduction_goes_on_from_its_last_cell(squares, tmp_path, key):
    path = tmp_path / "squares.nc"
    with pytest.raises(Killed):
        bm.reproduce("squares", key=key, path=path)
    folder = tmp_path / "squares.nc.cells"
    assert sorted(p.name for p in folder.iterdir()) == ["cell-0.npz", "cell-1.npz", "configuration.json"]
    with pytest.raises(
        ValueError, match=r"squares\.nc\.cells holds cells of another run: configuration\.scale is 'quick'"
    ):
        bm.reproduce("squares", key=key, path=path, scale="full")
    resumed, _ = bm.reproduce("squares", key=key, path=path)
    assert CALLS == ["cell-0", "cell-1", "cell-2", "cell-2", "cell-3"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["squares.json", "squares.nc", "squares.png"]
    whole, _ = bm.reproduce("squares", key=key)
    xr.testing.assert_identical(whole, resumed)
    assert "cells" not in resumed.attrs["configuration"]


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
    write_sealed(folder / "three.npz", lambda beside: beside.write_bytes(b"no zip"))
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
    with Cells().expect(1) as cells:
        assert cells.get("x", lambda path: {"given": path is None})["given"]
    cells.remove()
