"""[OIM08] tables 1 and 2: agents, bands from made-up totals, tuning on a key of its own, cells that resume."""

import json
from statistics import NormalDist

import jax
import numpy as np
import pytest
import xarray as xr
from matplotlib.colors import same_color

import bayes_mdp as bm
from bayes_mdp.agents import E3, MBIE, MBIEEB, OIM, RMax
from bayes_mdp.experiments.resume import Cells
from bayes_mdp.planning import solve
from reproductions.oim import totals as oim_totals
from reproductions.oim.random_ties import RandomTies
from reproductions.reproduce import reproduce
from reproductions.verdicts import expected_verdicts

pytestmark = pytest.mark.numerics

TABLES = {"oim-table1": oim_totals.RIVER_SWIM, "oim-table2": oim_totals.SIX_ARMS}
tables = pytest.mark.parametrize("name", TABLES)


def made_up(task, means, sd=0.3e6, runs=100):
    """Totals with these means and exactly this standard deviation; a method without one has its published mean."""
    noise = np.tile([-1.0, 1.0], runs // 2) * sd * np.sqrt((runs - 1) / runs)
    total = [means.get(name, task.published[method.row][0]) + noise for name, method in task.methods.items()]
    coords = {"method": list(task.methods), "run": np.arange(runs)}
    return xr.Dataset({"total": (("method", "run"), np.array(total))}, coords=coords)


@tables
def test_the_agents_are_those_that_are_said(name):
    """Three settings of OIM: the tuned one is of its grid, the optimistic one is no less than any value."""
    task = TABLES[name]
    largest = float(solve(task.env().mdp, bm.Discounted(0.95)).v.max())
    made = {
        method: row.make(**{name: x for name, x in row.constants.items() if name != "discount"})
        for method, row in task.methods.items()
    }
    kinds = {"e3": E3, "r_max": RMax, "mbie": MBIE, "mbie_eb": MBIEEB, "oim": OIM}
    for method, agent in made.items():
        assert type(agent) is kinds[task.methods[method].row]
        assert task.methods[method].draws_ties == (isinstance(agent, OIM) != (method in ("oim_first", "mbie_eb_drawn")))
    for method, settings in task.grids.items():
        assert task.methods[method].constants in settings
    assert made["r_max"].v_max == made["mbie"].v_max == made["mbie_eb"].v_max >= largest
    assert made["oim"].v_max < largest * 0.9999 <= made["oim_optimistic"].v_max < made["oim_literal"].v_max
    assert (made["mbie"].transition_width is not None) == (name == "oim-table2")
    for agent in made.values():
        if not isinstance(agent, E3):
            agent.check_optimism(float(np.max(task.env().mdp.reward)))


@tables
def test_bands_are_the_joint_99_percent_interval(name):
    """Published 95 % half-widths as standard errors; the judged rows are those with an expected verdict."""
    task = TABLES[name]
    ours, z = 0.3e6 / 10, NormalDist().inv_cdf
    far = {}
    for method, sign in (("r_max", 1), ("mbie", -1)):
        mean, half = task.published[method]
        far[method] = mean + sign * 1.01 * z(0.995) * np.hypot(half / z(0.975), ours)
    found = {row.quantity: row for row in oim_totals.rows(made_up(task, far), task)}
    assert len(found) == len(task.methods)
    for method, row in task.methods.items():
        shown, (mean, half) = found[row.label], task.published[row.row]
        assert shown.published == mean
        assert shown.half == pytest.approx(z(0.975) * ours, rel=1e-6)
        if not row.judged:
            assert shown.verdict is None and method not in ("r_max", "mbie", "mbie_eb", "oim")
            continue
        band = z(0.995) * np.hypot(half / z(0.975), ours)
        assert shown.band == pytest.approx((mean - band, mean + band), rel=1e-6)
        assert shown.verdict == ("undecided" if method in far else "agrees")
    judged = [row.label for row in task.methods.values() if row.judged]
    assert judged == list(expected_verdicts(name))
    alone = oim_totals.rows(made_up(task, far).isel(run=[0]), task)
    assert all(row.half == np.inf for row in alone)
    drawn = oim_totals.figure(made_up(task, far), task).axes[0]
    assert len(drawn.get_yticklabels()) == len(task.methods)
    assert same_color(drawn.containers[0].lines[0].get_color(), "tab:blue")  # pyright: ignore


def test_tuning_takes_the_largest_mean_by_its_own_key(monkeypatch, capsys):
    asked = []

    def drawn(task, method, constants, key, num_runs, num_steps):
        asked.append((method, key, num_runs, num_steps))
        return np.array([-1500.0, 1500.0]) - abs(constants["v_max"] - 4000.0) - 1e4 * (constants["discount"] < 0.95)

    monkeypatch.setattr(oim_totals, "totals", drawn)
    best = oim_totals.tune(oim_totals.RIVER_SWIM, ["oim"], num_runs=2, num_steps=7)
    assert best == {"oim": {"discount": 0.95, "v_max": 4000.0}}
    assert "-> oim: {'discount': 0.95, 'v_max': 4000.0}" in capsys.readouterr().out
    assert len(asked) == len(oim_totals.RIVER_SWIM.grids["oim"])
    for method, key, *numbers in asked:
        assert (method, numbers) == ("oim", [2, 7])
        assert key == jax.random.key(oim_totals.TUNING_KEY) != jax.random.key(0)


def test_methods_are_played_by_the_same_key_and_resume(key, tmp_path, monkeypatch):
    """Five thousand steps, undiscounted; the discount is that of the method; what is kept is not played again."""
    asked = []

    def drawn(agent, env, *, key, num_steps, num_seeds, objective, options):
        inner = agent.agent if isinstance(agent, RandomTies) else None
        asked.append((type(agent), type(inner), env.name, num_steps, num_seeds, objective))
        values = np.asarray(jax.random.normal(key, (num_seeds, 2)))
        return xr.Dataset({"reward": (("seed", "checkpoint"), values)})

    monkeypatch.setattr(oim_totals, "run", drawn)
    one = {"key": key, "task": oim_totals.SIX_ARMS, "methods": ("mbie", "oim"), "num_runs": 3}
    result = oim_totals.play(**one, cells=Cells(tmp_path / "cells", {}))
    same = ("six_arms", 5000, 3)
    assert asked == [(MBIE, type(None), *same, bm.Discounted(0.95)), (RandomTies, OIM, *same, bm.Discounted(0.9))]
    expected = np.asarray(jax.random.normal(key, (3, 2)), float).sum(1)
    np.testing.assert_array_equal(result["total"], [expected, expected])
    monkeypatch.setattr(oim_totals, "run", None)
    xr.testing.assert_identical(oim_totals.play(**one, cells=Cells(tmp_path / "cells", {})), result)


@pytest.mark.slow
def test_a_short_run_of_six_arms(key):
    """40 steps: OIM meets rooms at random, and nothing pays more than 6000 a step."""
    short = {"key": key, "task": oim_totals.SIX_ARMS, "num_runs": 30, "num_steps": 40}
    total = oim_totals.play(methods=("oim",), **short)["total"].to_numpy()[0]
    assert np.isin(total % 1, 0.0).all() and total.std() > 0
    assert (total >= 0).all() and (total <= 40 * 6000).all()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"methods": ("oim2",)}, "method is 'oim2', expected one of .*; did you mean 'oim'"),
        ({"num_runs": 0}, "num_runs is 0, expected an integer of at least 1"),
        ({"num_steps": 0}, "num_steps is 0, expected an integer of at least 1"),
    ],
)
def test_bad_requests_are_refused(changed, message, key):
    with pytest.raises(ValueError, match=message):
        oim_totals.play(**({"key": key, "task": oim_totals.RIVER_SWIM, "methods": ("oim",)} | changed))


@pytest.mark.slow
@tables
def test_the_tables_have_their_verdicts(name):
    found, _ = reproduce(name)
    assert json.loads(found.attrs["unexpected"]) == []
