"""`reproduce`: verdicts, the table, what is written, what is refused; on an experiment of three numbers."""

import json
import os
import sys
from inspect import Parameter
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure

import bayes_mdp as bm
from bayes_mdp.experiments.describe import key_from
from reproductions import reproduce as home
from reproductions.__main__ import main
from reproductions.reproduce import reproduce
from reproductions.reproduction import SCALES, Reproduction, Row
from reproductions.verdicts import expected_verdicts, table, unexpected

INFINITE = float("inf")


def toy_run(*, key, num_seeds=50):
    return xr.Dataset({"total": ("seed", np.asarray(jax.random.normal(key, (num_seeds,))) + 5.0)})


def toy_rows(result):
    total = result["total"].to_numpy()
    half = 1.96 * total.std() / np.sqrt(len(total))
    return [
        Row("mean", 5.0, float(total.mean()), float(half), (4.0, 6.0)),
        Row("largest", 7.0, float(total.max())),
    ]


def toy_figure(result):
    figure = Figure()
    figure.subplots().plot(result["total"].to_numpy())
    return figure


TOY = Reproduction("[TOY] figure 1", toy_run, toy_rows, toy_figure, {"num_seeds": 20}, dict.fromkeys(SCALES, 1.0))


@pytest.fixture
def toy(monkeypatch):
    """The toy as a registered experiment; returns the expected verdicts, which a test may change."""
    module: Any = ModuleType("toy_experiment")
    module.REPRODUCTION = TOY
    expected = {"mean": "agrees"}
    monkeypatch.setitem(sys.modules, "toy_experiment", module)
    monkeypatch.setitem(home.REPRODUCTIONS, "toy", "toy_experiment:REPRODUCTION")
    monkeypatch.setattr(home, "expected_verdicts", lambda name: expected)
    return expected


@pytest.mark.parametrize(
    ("ours", "half", "band", "verdict"),
    [
        (10.0, 0.5, (8.0, 14.0), "agrees"),
        (8.0, 9.0, (8.0, 14.0), "agrees"),
        (7.0, 1.5, (8.0, 14.0), "undecided"),
        (15.0, 1.5, (8.0, 14.0), "undecided"),
        (7.0, 0.5, (8.0, 14.0), "differs"),
        (15.0, 0.5, (8.0, 14.0), "differs"),
        (44.0, 0.0, (45.0, INFINITE), "differs"),
        (450.0, 0.0, (45.0, INFINITE), "agrees"),
        (450.0, 0.0, None, None),
    ],
)
def test_the_verdict_of_a_row(ours, half, band, verdict):
    assert Row("x", 11.0, ours, half, band).verdict == verdict


def test_what_is_not_expected_is_said():
    agrees, open_, differs = (Row(name, 1.0, x, 0.5, (0.0, 2.0)) for name, x in (("a", 1.0), ("b", 2.4), ("c", 9.0)))
    shown = Row("d", 1.0, 9.0)
    kept = {"a": "agrees", "b": "undecided", "c": "differs"}
    assert unexpected([agrees, open_, differs, shown], kept, "full") == []
    assert unexpected([agrees], {"a": "differs"}, "quick") == ["a: the verdict is 'agrees', expected 'differs'"]
    assert unexpected([differs], {"c": "agrees"}, "quick") == ["c: the verdict is 'differs', expected 'agrees'"]
    assert unexpected([open_], {"b": "agrees"}, "quick") == []
    assert unexpected([open_], {"b": "agrees"}, "full") == ["b: the verdict is 'undecided', expected 'agrees'"]
    assert unexpected([open_], {}, "quick") == ["b: the verdict is 'undecided', expected 'no such row'"]
    assert unexpected([shown], {"a": "agrees"}, "full") == ["a: there is no such row, expected 'agrees'"]


def test_the_table_shows_all_that_was_asked_for():
    text = table(
        [Row("low", 1.0, 2.0, 0.25, (1.5, 2.5)), Row("high", 60.0, 58.1, 13.0, (45.0, INFINITE)), Row("z", 1, 2)]
    )
    lines = [line.split() for line in text.splitlines()]
    assert lines[1] == ["low", "1", "2", "+-", "0.25", "1.5", "to", "2.5", "agrees"]
    assert lines[2] == ["high", "60", "58.1", "+-", "13", ">=", "45", "agrees"]
    assert lines[3] == ["z", "1", "2", "exact"]
    assert "none" in table([Row("never reached", 1.0, float("nan"), INFINITE)]).split()
    assert "<= 3" in table([Row("most", 1.0, 2.0, 0.0, (-INFINITE, 3.0))])


UNJUDGED = ("ube-table1", "ube-fig5", "bamcp-worlds")
"""Atari: weeks of one seed, and no interval is published. [BAMCP12]: its numbers are recalled."""


def test_every_experiment_is_complete_and_has_its_verdicts():
    for name in home.REPRODUCTIONS:
        experiment = home.find_reproduction(name)
        assert set(experiment.seconds) == set(SCALES)
        assert set(experiment.quick) <= set(experiment.options("full"))
        assert all(value is not Parameter.empty for value in experiment.options("full").values())
        assert set(expected_verdicts(name).values()) <= {"agrees", "undecided", "differs"}
        assert bool(expected_verdicts(name)) != (name in UNJUDGED)
    assert expected_verdicts("nothing") == {}


def test_a_result_is_written_read_and_played_again(toy, tmp_path, capsys, key):
    path = tmp_path / "toy.nc"
    result, figure = reproduce("toy", scale="full", key=key, path=path)
    printed = capsys.readouterr().out
    assert printed.startswith("toy ([TOY] figure 1), full scale: about 1 s") and "agrees" in printed
    assert isinstance(figure, Figure) and path.with_suffix(".png").stat().st_size > 1000
    read = bm.load(path)
    xr.testing.assert_identical(read, result)
    configuration, verdicts = (json.loads(read.attrs[name]) for name in ("configuration", "verdicts"))
    assert configuration == {"name": "toy", "source": "[TOY] figure 1", "scale": "full", "options": {"num_seeds": 50}}
    assert [row["verdict"] for row in verdicts] == ["agrees", None]
    assert json.loads(read.attrs["unexpected"]) == [] and "jax" in json.loads(read.attrs["versions"])
    again, _ = reproduce("toy", scale="full", key=key_from(json.loads(read.attrs["key"])))
    xr.testing.assert_identical(again, result)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["toy.json", "toy.nc", "toy.png"]
    assert json.loads(path.with_suffix(".json").read_text())["configuration"] == configuration


def test_quick_is_the_default_and_an_unexpected_verdict_is_kept(toy, capsys):
    toy["mean"] = "differs"
    result, _ = reproduce("toy")
    assert result.sizes["seed"] == 20
    assert json.loads(result.attrs["unexpected"]) == ["mean: the verdict is 'agrees', expected 'differs'"]
    assert "NOT AS EXPECTED: mean" in capsys.readouterr().out


def test_the_command_ends_with_1_where_a_verdict_is_unexpected(toy, tmp_path, capsys):
    folder = tmp_path / "new" / "folder"
    assert main(["toy", "--full", "--seed", "3", "--out", str(folder)]) == 0
    assert sorted(p.name for p in folder.iterdir()) == ["toy-full.json", "toy-full.nc", "toy-full.png"]
    assert str(folder / "toy-full.png") in capsys.readouterr().out
    expected, _ = reproduce("toy", scale="full", key=jax.random.key(3))
    xr.testing.assert_identical(bm.load(folder / "toy-full.nc"), expected)
    toy["mean"] = "differs"
    assert main(["toy", "--out", str(tmp_path)]) == 1
    assert (tmp_path / "toy-quick.nc").exists()


def test_the_command_lists_every_experiment(capsys):
    assert main(["list"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines] == list(home.REPRODUCTIONS)
    assert all(line[1].startswith("[") for line in lines)


def test_the_command_refuses_what_is_wrong_and_leaves_nothing(capsys, tmp_path):
    folder = tmp_path / "new"
    os.mkfifo(tmp_path / "pipe")
    for line, sentence in (
        (["ube-fig9", "--out", str(folder)], "name is 'ube-fig9', expected one of ube-fig2"),
        (["wide-narrow", "--frames", "5", "--out", str(folder)], "options of wide-narrow"),
        (["wide-narrow", "--out", str(tmp_path / "pipe")], "a pipe, expected a folder"),
    ):
        assert main(line) == 2
        error = capsys.readouterr().err
        assert error.startswith("python -m reproductions: error: ") and sentence in error and error.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["pipe"]


def test_what_is_refused(tmp_path, key):
    with pytest.raises(ValueError, match="name is 'fig9', expected one of ube-fig2"):
        reproduce("fig9")
    with pytest.raises(ValueError, match="scale is 'huge', expected one of quick, full"):
        reproduce("ube-fig2", scale="huge")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="key is 0, expected a typed key"):
        reproduce("ube-fig2", key=0)  # pyright: ignore[reportArgumentType]
    with pytest.raises(FileNotFoundError, match="expected a file in a folder that exists"):
        reproduce("ube-fig2", key=key, path=tmp_path / "none" / "x.nc")


@pytest.mark.slow
def test_ube_fig2_has_its_verdicts(capsys):
    """500 seeds of 1000 episodes: UBE 11 +- 3, the best bonus at least 45, at least three times as much."""
    result, _ = reproduce("ube-fig2", scale="full")
    assert json.loads(result.attrs["unexpected"]) == []
    assert len(json.loads(result.attrs["verdicts"])) == 13
    assert "best bonus / UBE, t = 1000" in capsys.readouterr().out
