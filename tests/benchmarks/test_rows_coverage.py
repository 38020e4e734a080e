"""Coverage of regressions of rows: the world by hand, a run that goes on, and what a cell of the table says."""

import json

import numpy as np
import pytest

import bayes_mdp as bm
from benchmarks import rows_coverage
from benchmarks.rows_coverage import COLUMNS, POLICIES, START, rows_of, values_of


@pytest.mark.parametrize("route", ["nuts", "gibbs"])
def test_rows_are_those_of_the_laws_and_values_those_of_the_planner(route):
    rng = np.random.default_rng(0)
    b = rng.normal(size=(5, 2))
    rows = rows_of(route, b)
    eta = COLUMNS[17] @ b
    if route == "nuts":
        expected = np.exp([0.0, *eta]) / np.exp([0.0, *eta]).sum()
    else:
        p = 1 / (1 + np.exp(-eta))
        expected = [p[0], (1 - p[0]) * p[1], (1 - p[0]) * (1 - p[1])]
    np.testing.assert_allclose(rows[17], expected, rtol=1e-12)
    values = values_of(rows.reshape(1, 8, 2, 2, 3))[0]
    types = []
    for table in rows.reshape(8, 2, 2, 3):
        paid = (table * rows_coverage.REWARD[0]).sum(-1)
        mdp = bm.MDP(table[..., :2], paid, end_probs=table[..., 2])
        types.append([np.asarray(bm.evaluate(mdp, p, bm.Discounted(0.95)).v) @ START for p in POLICIES.values()])
    np.testing.assert_allclose(values, [*np.mean(types, 0), types[7][0]], rtol=1e-4)


def test_a_killed_run_goes_on_and_cells_grow_together(tmp_path, monkeypatch):
    asked = []

    def row(route, size, seed, space):
        asked.append((size, seed))
        return {"seed": seed, "u": [0.5] * 13, "problems": [], "cpu": 1.0}

    monkeypatch.setattr(rows_coverage, "whole_space", lambda: None)
    monkeypatch.setattr(rows_coverage, "row", row)
    rows_coverage.main(2, ["gibbs"], [40, 600], tmp_path)
    assert asked == [(40, 0), (600, 0), (40, 1), (600, 1)]
    kept = tmp_path / "gibbs_600.jsonl"
    kept.write_text(kept.read_text()[:-9])  # in the middle of the second log
    rows_coverage.main(2, ["gibbs"], [40, 600], tmp_path)
    assert asked[4:] == [(600, 1)]
    assert len(kept.read_text().splitlines()) == 2


def test_a_cell_says_what_its_logs_say(tmp_path):
    """Ranks that are even are held in 90 of 100; ranks that are all high are told by the least p-value."""
    kept = tmp_path / "laplace_40.jsonl"
    u = (np.arange(100) + 0.5) / 100
    lines = [{"seed": i, "u": [x] * 13, "problems": [], "pareto_k": 0.1, "cpu": 1.0} for i, x in enumerate(u)]
    refused = {"seed": 100, "refused": "Pareto k", "cpu": 1.0}
    kept.write_text("".join(f"{json.dumps(each)}\n" for each in [*lines, refused]))
    told = rows_coverage.summary("laplace", 40, tmp_path)
    assert told is not None
    assert (told["logs"], told["refused"], told["coefficients"], told["values"]) == (101, 1, 0.9, 0.9)
    assert told["sbc_p"] == 1.0
    kept.write_text("".join(f"{json.dumps(each | {'u': [0.97] * 13})}\n" for each in lines))
    told = rows_coverage.summary("laplace", 40, tmp_path)
    assert told is not None and told["sbc_p"] == 0.0 and told["values"] == 0.0
    assert rows_coverage.summary("nuts", 40, tmp_path) is None


def test_one_log_by_the_library():
    """The rank of the truth of every quantity, by draws about the mode."""
    told = rows_coverage.row("laplace", 40, 0, rows_coverage.whole_space())
    assert len(told["u"]) == len(rows_coverage.QUANTITIES) == 13 and all(0 <= u <= 1 for u in told["u"])
