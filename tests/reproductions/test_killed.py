"""A killed experiment of many parts goes on from those that were finished."""

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure

from bayes_mdp.experiments.resume import Cells
from reproductions import reproduce as home
from reproductions.reproduce import reproduce
from reproductions.reproduction import SCALES, Reproduction, Row

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

    computes = {f"cell-{i}": lambda path, i=i: square(i) for i in range(number)}
    found = (cells or Cells()).get_all(computes).values()
    parts = [values["part"].sum() for values in found]
    return xr.Dataset({"square": ("i", [int(v["square"]) for v in found]), "part": ("i", parts)})


@pytest.fixture
def squares(monkeypatch):
    """An experiment in cells, which is killed at its third."""
    module: Any = ModuleType("squares")
    rows = lambda result: [Row("last", 9.0, float(result["square"][-1]), band=(9.0, 9.0))]  # noqa: E731
    module.REPRODUCTION = Reproduction("[X]", _squares, rows, lambda result: Figure(), {}, dict.fromkeys(SCALES, 1.0))
    monkeypatch.setitem(sys.modules, "squares", module)
    monkeypatch.setitem(home.REPRODUCTIONS, "squares", "squares:REPRODUCTION")
    monkeypatch.setattr(home, "expected_verdicts", lambda name: {"last": "agrees"})
    CALLS.clear()
    return module


def test_a_killed_reproduction_goes_on_from_its_last_cell(squares, tmp_path, key):
    path = tmp_path / "squares.nc"
    with pytest.raises(Killed):
        reproduce("squares", key=key, path=path)
    folder = tmp_path / "squares.nc.cells"
    assert sorted(p.name for p in folder.iterdir()) == ["cell-0.npz", "cell-1.npz", "configuration.json"]
    with pytest.raises(
        ValueError, match=r"squares\.nc\.cells holds cells of another run: configuration\.scale is 'quick'"
    ):
        reproduce("squares", key=key, path=path, scale="full")
    resumed, _ = reproduce("squares", key=key, path=path)
    assert CALLS == ["cell-0", "cell-1", "cell-2", "cell-2", "cell-3"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["squares.json", "squares.nc", "squares.png"]
    whole, _ = reproduce("squares", key=key)
    xr.testing.assert_identical(whole, resumed)
    assert "cells" not in resumed.attrs["configuration"]
