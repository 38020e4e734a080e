"""[OIM08] table 3: the Dataset of a tiny run, cells, and rows and figure of made-up curves."""

from typing import Any

import numpy as np
import pytest
import xarray as xr

from bayes_mdp.experiments.resume import Cells
from reproductions.oim import maze_times as table3
from reproductions.oim.maze_times import LEVELS, METHODS, Plan, first_steps, learn_in_mazes
from reproductions.verdicts import expected_verdicts

pytestmark = pytest.mark.numerics

TINY = Plan(num_mazes=2, num_steps=600, test_every=200, num_runs=3, run_length=100, size=6, first_maze=3)
ANY: Any = "some"


@pytest.mark.slow
def test_a_tiny_run_and_its_cells(key, tmp_path):
    cells = Cells(tmp_path / "x.cells")
    result = learn_in_mazes(key=key, plan=TINY, methods=("oim",), cells=cells)
    assert dict(result.sizes) == {"method": 1, "maze": 2, "test": 3, "level": 3}
    assert result["steps"].to_numpy().tolist() == [200, 400, 600] and result["maze"].to_numpy().tolist() == [3, 4]
    assert np.all(result["solved"] <= result["optimum"] * (1 + 1e-9)) and np.all(result["solved"] > 0)
    assert [file.name for file in tmp_path.glob("x.cells/*.npz")] == ["oim.npz"]
    again = learn_in_mazes(key=key, plan=TINY, methods=("oim",), cells=cells)
    xr.testing.assert_identical(again, result)


def test_the_first_test_at_a_level():
    share = np.array([[0.2, 0.96, 0.94, 0.995], [0.2, 0.3, 0.4, 0.5]])
    steps = np.array([10, 20, 30, 40])
    assert first_steps(share, steps, 0.95).tolist()[0] == 20 and np.isnan(first_steps(share, steps, 0.95)[1])
    assert first_steps(share, steps, 0.99)[0] == 40 and np.isnan(first_steps(share, steps, 0.998)[0])


def made_up(times):
    """Curves that jump to .97 at a time, per maze (nan: never), for all methods."""
    steps, times = np.arange(1, 101) * 1000, np.asarray(times, float)
    share = np.where(steps >= times[:, None], 0.97, 0.3)
    shares = np.broadcast_to(share, (len(METHODS), *share.shape))
    reached = np.stack([first_steps(shares, steps, level) for level in LEVELS], 1)
    full = ("method", "maze", "test")
    return xr.Dataset(
        {
            "total": (full, 8e4 * shares),
            "learning": (full, shares),
            "optimum": ("maze", np.full(len(times), 8.1e4)),
            "solved": ("maze", np.full(len(times), 8e4)),
            "reached": (("method", "level", "maze"), reached),
        },
        coords={"method": list(METHODS), "level": list(LEVELS), "steps": ("test", steps)},
    )


def rows_of(times):
    return {row.quantity: row for row in table3.rows(made_up(times))}


def test_rows_and_verdicts():
    good = rows_of([18_000, 20_000, 22_000, 24_000])
    assert good["OIM, 95.0%: share of the mazes that reach it"].verdict == "agrees"
    steps = good["OIM, 95.0%: steps"]
    assert (steps.ours, steps.published, steps.verdict) == (21_000, 19_000, "agrees")
    assert good["OIM, 99.0%: steps"].verdict is None and np.isnan(good["OIM, 99.0%: steps"].ours)
    assert good["OIM, 99.8%: share of the mazes that reach it"].verdict == "differs"
    assert good["MBIE(WS), 95.0%: steps"].verdict is None and good["MBIE(WS), 95.0%: steps"].published == 25_000
    assert good["eps-greedy, eps = .2, 95.0%: share of the mazes that reach it"].published == 0.0
    assert good["optimum of the discount over the best possible total"].ours == pytest.approx(8 / 8.1)
    assert good["OIM: share of the optimum at the last test"].ours == pytest.approx(0.97)
    slow = rows_of([60_000, 62_000, 64_000, np.nan])
    assert slow["OIM, 95.0%: steps"].verdict == "differs" and slow["OIM, 95.0%: steps"].ours == 62_000
    assert slow["OIM, 95.0%: share of the mazes that reach it"].ours == 0.75
    judged = [name for name, row in good.items() if row.verdict is not None]
    assert judged == list(expected_verdicts("oim-table3"))


def test_the_figure_has_a_line_for_every_method():
    drawing = table3.figure(made_up([18_000, 24_000]))
    left, right = drawing.axes
    assert [line.get_label() for line in left.lines] == [method.label for method in METHODS.values()]
    assert sum(line.get_marker() == "D" for line in right.lines) == 18
    drawing.savefig("/dev/null", format="png", dpi=30)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda key: Plan(num_steps=1500), ValueError, "num_steps is 1500, expected a multiple of test_every, 1000"),
        (lambda key: Plan(num_mazes=0), ValueError, "num_mazes is 0, expected an integer of at least 1"),
        (lambda key: learn_in_mazes(key=key, methods=("omi",)), ValueError, "method is 'omi', .*did you mean 'oim'"),
        (lambda key: learn_in_mazes(key=key, tested=ANY), ValueError, "tested is 'some', expected one of model, agent"),
        (lambda key: learn_in_mazes(key=ANY), TypeError, "key is 'some', expected a typed key"),
    ],
)
def test_bad_settings_are_refused(make, error, message, key):
    with pytest.raises(error, match=message):
        make(key)
