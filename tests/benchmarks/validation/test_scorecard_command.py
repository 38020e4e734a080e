"""The command `scorecard`, with a small scorecard in place of the measured one: what it prints and writes."""

import json
import sys

import numpy as np
import pytest
import xarray as xr

from benchmarks.validation.__main__ import main
from benchmarks.validation.scorecard import LEVELS, QUICK
from benchmarks.validation.scorecard_report import stored_scorecard


@pytest.fixture
def asked(monkeypatch):
    """The size of each scorecard that was asked for; its lines are those of one class of the stored one."""
    calls = []
    stored = [line for line in stored_scorecard() if line.problems == "acyclic"]

    def scorecard(key, **size):
        calls.append((int(np.asarray(key._base_array)[-1]), size))
        ratio = np.array([[line.sd_ratio for line in stored]])
        ratio[0, 0] *= 1.0 if len(calls) == 1 else 0.1
        inside = np.array([[(line.coverage_50, line.coverage_80, line.coverage_95) for line in stored]])
        dims = ("problems", "estimator")
        numbers = {name: (dims, 0 * ratio) for name in ("crps", "pair_score", "pair_gain", "sd_ratio_error")}
        return xr.Dataset(
            {
                **numbers,
                "sd_ratio": (dims, ratio),
                "coverage": ((*dims, "level"), inside),
                "coverage_half": ((*dims, "level"), 0 * inside),
                "says": (dims, np.array([[line.says for line in stored]])),
            },
            {"problems": ["acyclic"], "estimator": [line.estimator for line in stored], "level": list(LEVELS)},
            {
                "versions": json.dumps({"bayes_mdp": "1", "jax": "2", "numpy": "3"}),
                "num_mdps": "200",
                "num_draws": "300",
            },
        )

    monkeypatch.setattr(sys.modules["benchmarks.validation.scorecard"], "scorecard", scorecard)
    return calls


def test_scorecard_prints_writes_and_tells_surprises(capsys, tmp_path, asked):
    """Code 0 where it is the stored one, 1 and a sentence where the first method claims a tenth."""
    file, figure = tmp_path / "scorecard.nc", tmp_path / "scorecard.png"
    code = main(["scorecard", "--quick", "--seed", "3", "--out", str(file), "--figure", str(figure)])
    out = capsys.readouterr().out
    assert code == 0 and "acyclic" in out and "by draws" in out and "NOT AS EXPECTED" not in out
    assert xr.load_dataset(file).sizes["estimator"] > 5 and figure.stat().st_size > 1000
    assert main(["scorecard"]) == 1
    (sentence,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("NOT AS EXPECTED: ")]
    assert "verdict is too sure" in sentence
    assert asked == [(3, QUICK), (0, {})]


def test_scorecard_refuses_a_folder_that_is_not_there(capsys, tmp_path, asked):
    assert main(["scorecard", "--out", str(tmp_path / "nowhere" / "s.nc")]) == 2
    assert "a folder that exists" in capsys.readouterr().err and asked == []
