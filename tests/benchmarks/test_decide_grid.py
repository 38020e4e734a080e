"""The grid of `decide`: a killed run goes on, and a row of the table is that of its logs."""

import pandas as pd
import pytest
from scipy.stats import norm

from benchmarks import decide_grid

LOG = {
    "family": "near_best", "episodes": 60, "prior": "default", "seed": 0, "recommended": 1, "harm": 0, "stopped": 0,
    "alarms": "none", "followed": "", "cpu": 1.0, "better": 1, "coverage": 1, "coverage_decide": 1, "true": 2.0,
    "possible": 4.0, "sd": 1.0,
}  # fmt: skip


def test_a_line_that_a_killed_run_did_not_end_is_asked_again(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(decide_grid, "log_of", lambda world, episodes, rng: None)
    path = tmp_path / "logs.csv"
    row = {name: LOG[name] for name in ("recommended", "harm", "stopped", "alarms", "followed", "cpu")}
    monkeypatch.setattr(decide_grid, "row", lambda world, log, seed, prior: asked.append(seed) or {"seed": seed, **row})
    decide_grid.main(3, [20], ["maintenance"], "default", path)
    path.write_text(path.read_text()[:-9])  # in the middle of the third log
    decide_grid.main(4, [20], ["maintenance"], "default", path)
    first = decide_grid.FRESH
    assert asked == [first + number for number in (0, 1, 2, 2, 3)]
    assert decide_grid.read_logs(path)["seed"].tolist() == [*range(first, first + 4)]
    decide_grid.main(0, [20], ["maintenance"], "default", path)
    assert len(asked) == 5


def test_a_line_holds_what_decide_said(tmp_path):
    """To five digits; what is not said of a log without a candidate is empty."""
    path = tmp_path / "logs.csv"
    decide_grid.add_log(path, LOG | {"true": 123.45678, "alarms": "new outcomes; returns"})
    decide_grid.add_log(path, {name: LOG[name] for name in [*LOG][:10]})
    first, second = decide_grid.read_logs(path).to_dict("records")
    assert first["true"] == 123.46 and first["alarms"] == "new outcomes; returns" and first["better"] == 1
    assert pd.isna(second["true"]) and pd.isna(second["coverage"]) and second["alarms"] == "none"


def test_a_row_of_the_table_is_that_of_its_logs(tmp_path):
    """A log without a candidate is neither better nor covered; of the better ones an efficient test shows some."""
    path = tmp_path / "logs.csv"
    other = LOG | {"true": 1.5, "recommended": 0, "coverage": 0, "alarms": "x"}
    nothing = {name: LOG[name] for name in [*LOG][:10]} | {"recommended": 0}
    worse = LOG | {"true": -1.0, "better": 0, "harm": 1, "alarms": ""}
    for each in (LOG, other, nothing, worse):
        decide_grid.add_log(path, each)
    (row,) = decide_grid.table(decide_grid.read_logs(path)).to_dict("records")
    assert (row["family"], row["episodes"], row["logs"], row["better"]) == ("near_best", 60, 4, 2)
    assert (row["recommended"], row["harm"]) == (0.5, 0.25)
    assert (row["asked"], row["alarm"]) == (3, 1)
    assert row["coverage"] == pytest.approx(2 / 3)
    assert row["realised"] == pytest.approx((2 / 4 + 0 + 0 - 1 / 4) / 4)
    z = norm.ppf(0.95)
    assert row["unbiased_test"] == pytest.approx((norm.cdf(2 - z) + norm.cdf(1.5 - z)) / 2)
