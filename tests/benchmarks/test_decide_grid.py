"""The grid of `decide`: a killed run goes on, and a row of the table is that of its logs."""

import json

import pytest
from scipy.stats import norm

from benchmarks import decide_grid

LOG = {
    "seed": 0, "recommended": 1, "harm": 0, "realised": 0.5, "cpu": 1.0, "alarms": [], "better": 1,
    "recommended_better": 1, "coverage": 1, "coverage_decide": 1, "stopped": 0, "true": 2.0, "sd": 1.0,
}  # fmt: skip


def test_a_line_that_a_killed_run_did_not_end_is_asked_again(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(decide_grid, "log_of", lambda world, episodes, rng: None)
    monkeypatch.setattr(decide_grid, "row", lambda world, log, seed: asked.append(seed) or LOG | {"seed": seed})
    decide_grid.main(3, [20], ["maintenance"], tmp_path)
    kept = tmp_path / "maintenance_20.jsonl"
    kept.write_text(kept.read_text()[:-9])  # in the middle of the third log
    decide_grid.main(4, [20], ["maintenance"], tmp_path)
    assert asked == [0, 1, 2, 2, 3]
    assert [json.loads(line)["seed"] for line in kept.read_text().splitlines()] == [0, 1, 2, 3]
    decide_grid.main(0, [20], ["maintenance"], tmp_path)
    assert len(asked) == 5


def test_a_row_of_the_table_is_that_of_its_logs(tmp_path):
    """A log without a candidate is neither better nor covered; of the better ones an efficient test shows some."""
    other = LOG | {"true": 1.5, "sd": 1.0, "recommended": 0, "recommended_better": 0, "coverage": 0, "alarms": ["x"]}
    nothing = {key: LOG[key] for key in ("seed", "realised", "cpu", "alarms")} | {"recommended": 0, "harm": 0}
    worse = LOG | {"true": -1.0, "better": 0, "recommended_better": 0, "harm": 1}
    kept = tmp_path / "near_best_60.jsonl"
    kept.write_text("".join(f"{json.dumps(each)}\n" for each in (LOG, other, nothing, worse)))
    row = decide_grid.summary(kept)
    assert (row["family"], row["episodes"], row["logs"], row["better"]) == ("near_best", 60, 4, 2)
    assert (row["recommended"], row["harm"], row["alarm"]) == (0.5, 0.25, 0.25)
    assert row["coverage"] == pytest.approx(2 / 3)
    z = norm.ppf(0.95)
    assert row["unbiased_test"] == pytest.approx((norm.cdf(2 - z) + norm.cdf(1.5 - z)) / 2)
