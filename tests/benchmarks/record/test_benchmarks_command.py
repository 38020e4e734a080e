"""`python -m benchmarks` with tiny fake benchmarks: what is written, resumed, compared, refused. Nothing is timed."""

import ast
import json
import signal
import subprocess
import sys

import pytest

from benchmarks.__main__ import STORED, main
from benchmarks.record import turns
from benchmarks.record.check import RERUNS
from benchmarks.record.comparison import compare
from benchmarks.record.registry import REGISTRY, Benchmark
from benchmarks.record.run_all import ROOT
from benchmarks.record.stored import Finished, load, new_record, save, to_json
from benchmarks.record.tables import describe_record
from benchmarks.record.turns import Measured, in_turns

HEAD = """import os, signal, sys, time
from pathlib import Path
from benchmarks.record.turns import Measured, Skipped

FOLDER = Path(__file__).parent
NAME = Path(__file__).stem
with (FOLDER / f"{NAME}.runs").open("a") as file:
    file.write(".")
RUNS = len((FOLDER / f"{NAME}.runs").read_text())


def line(ratio, name="task"):
    return Measured(name, "numpy", "step", 1e-3, ratio * 1e-3, (ratio, ratio))


def measure(size):
"""


class Fakes:
    """A maker of benchmarks in a folder, and how often each was run."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, name, *body, **options):
        (self.folder / f"{name}.py").write_text(HEAD + "".join(f"    {text}\n" for text in body))
        return Benchmark(name, name, **options)

    def runs(self, name):
        return len((self.folder / f"{name}.runs").read_text())


@pytest.fixture
def fake(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return Fakes(tmp_path)


def complete(ratios):
    """A record with a line of each ratio."""
    lines = tuple(Measured(name, "numpy", "step", 1e-3, ratio * 1e-3, (ratio,)) for name, ratio in ratios.items())
    return new_record("quick")._replace(benchmarks={"one": Finished(lines)}, complete=True)


def stored(path, ratios):
    """It in a file."""
    save(complete(ratios), path)
    return str(path)


def test_a_run_writes_one_file_and_one_table(fake, tmp_path, capsys):
    """What a benchmark prints does not disturb what it yields."""
    chatty = fake("one", "print('noise')", "yield line(2.0)", "yield Skipped('other', 'polars not installed')",
                  environment={"SEA": "deep"})  # fmt: skip
    assert main(["--out", "run.json"], [chatty, fake("two", "yield line(0.5)")]) == 0
    out, err = capsys.readouterr()
    record, data = load(tmp_path / "run.json"), json.loads((tmp_path / "run.json").read_text())
    assert record.complete and record.size == "quick" and list(record.benchmarks) == ["one", "two"]
    assert record.benchmarks["one"].lines == (Measured("task", "numpy", "step", 1e-3, 2e-3, (2.0, 2.0)),)
    assert {"python", "jax", "numpy", "bayes_mdp"} <= set(data["versions"])
    assert {"processor", "cores"} <= set(data["machine"]) and data["settings"]["turns"] == "5"
    assert data["benchmarks"]["one"]["environment"] == {"OPENBLAS_NUM_THREADS": "1", "SEA": "deep"}
    assert all(one.cost.seconds > 0 and one.cost.peak_mb > 1 for one in record.benchmarks.values())
    table = (tmp_path / "run.md").read_text()
    assert table in out and "| one | task | numpy | 1 ms / step | 2 ms / step | 2.00 | 2.00 to 2.00 |" in table
    assert "- one, other: skipped, polars not installed" in table
    assert "[2/2] two" in err and "task: 0.5 times as fast as numpy" in err and "noise" not in out


def test_a_run_that_was_killed_goes_on(fake, tmp_path):
    """Its first benchmark is not run again, the one that was under way is."""
    fake("one", "yield line(2.0)")
    fake("two", "if RUNS == 1: os.kill(os.getppid(), signal.SIGKILL)", "yield line(3.0)")
    program = """
from pathlib import Path
from benchmarks.record.registry import Benchmark
from benchmarks.record.run_all import run_all
run_all([Benchmark("one", "one"), Benchmark("two", "two")], "full", Path("run.json"), print)
"""

    def run():
        return subprocess.run([sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{program}"],
                              stdout=subprocess.PIPE, text=True, check=False)  # fmt: skip

    assert run().returncode == -9
    assert not load(tmp_path / "run.json").complete and [*load(tmp_path / "run.json").benchmarks] == ["one"]
    again = run()
    assert again.returncode == 0 and "[1/2] one: in the file already" in again.stdout
    record = load(tmp_path / "run.json")
    assert record.complete and [line.ratio for _, line in record.lines()] == [2.0, 3.0]
    assert fake.runs("one") == 1 and fake.runs("two") == 2
    assert not list(tmp_path.glob(".*json"))


def test_ctrl_c_leaves_a_file_of_what_was_finished(fake, tmp_path, capsys):
    two = fake("two", "os.kill(os.getppid(), signal.SIGINT); time.sleep(100)", "yield line(3.0)")
    # A process that was started in the background may ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main(["--out", "run.json"], [fake("one", "yield line(2.0)"), two]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert "the same command resumes" in capsys.readouterr().err
    record = load(tmp_path / "run.json")
    assert not record.complete and [*record.benchmarks] == ["one"] and "incomplete" in describe_record(record)


@pytest.mark.parametrize(
    ("complete", "size", "word"), [(True, "quick", "complete"), (False, "full", "another size")]
)  # fmt: skip
def test_another_run_is_not_overwritten(fake, tmp_path, capsys, complete, size, word):
    save(new_record(size)._replace(complete=complete), tmp_path / "run.json")
    one = fake("one", "yield line(2.0)")
    assert main(["--out", "run.json"], [one]) == 2
    assert word in capsys.readouterr().err and load(tmp_path / "run.json").size == size
    assert main(["--out", "run.json", "--overwrite"], [one]) == 0
    assert load(tmp_path / "run.json").complete


def test_a_missing_peer_is_said_and_a_failure_costs_nothing_but_itself(fake, tmp_path, capsys):
    benchmarks = [
        fake("lone", "yield line(2.0)", needs=("json", "no_such_peer")),
        fake("broken", "yield line(2.0)", "raise RuntimeError('values differ')"),
        fake("dead", "os._exit(3)", "yield"),
        fake("whole", "yield line(4.0)"),
    ]
    assert main(["--out", "run.json"], benchmarks) == 1
    out, err = capsys.readouterr()
    assert "skipped: no_such_peer not installed (pip install no_such_peer)" in err
    assert "- broken: failed, RuntimeError: values differ (exit code 1)" in out
    assert "- dead: failed, it said nothing (exit code 3)" in out
    done = load(tmp_path / "run.json").benchmarks
    assert (
        done["lone"].skipped and not done["lone"].lines and len(done["broken"].lines) == len(done["whole"].lines) == 1
    )
    assert main(["--list"], benchmarks) == 0 and "no_such_peer not installed" in capsys.readouterr().out


def test_a_comparison_marks_a_fall(fake, tmp_path, capsys):
    """Exactly .7 is no fall; a line of one run alone is named."""
    old = stored(tmp_path / "old.json", {"fell": 10.0, "held": 10.0, "gone": 10.0})
    one = fake("one", "yield line(6.9, 'fell')", "yield line(7.0, 'held')", "yield line(1.0, 'new')")
    assert main(["--out", "run.json", "--compare", old], [one]) == 1
    out = capsys.readouterr().out
    assert "| one | fell | numpy | 10.00 | 6.90 | 0.69 | below 0.7 |" in out
    assert "| one | held | numpy | 10.00 | 7.00 | 0.70 |  |" in out
    assert "| one | new | numpy |  | 1.00 |  | not stored |" in out
    assert "| one | gone | numpy | 10.00 |  |  | not measured |" in out
    assert out.count("FELL") == 1 and "FELL: one, fell, beside numpy: 10.00 is now 6.90" in out
    assert main(["--from", "run.json", "--compare", "run.json"], [one]) == 0 and fake.runs("one") == 1


def test_another_processor_has_another_floor():
    """.6 of the stored ratio has fallen on the processor of the stored run, not on another; .4 has on both."""
    old, new = complete({"a": 10.0, "b": 10.0}), complete({"a": 6.0, "b": 4.0})
    assert [one.fell for one in compare(old, new)] == [True, True]
    moved = new._replace(machine={**new.machine, "processor": "another"})
    assert [one.fell for one in compare(old, moved)] == [False, True]


@pytest.mark.parametrize(("low", "code", "runs"), [("RUNS < 3", 0, 3), ("True", 1, RERUNS + 1), ("False", 0, 1)])
def test_a_check_measures_a_fall_again(fake, tmp_path, capsys, low, code, runs):
    """A ratio has fallen that fell in every run; what is not part of the check is not run."""
    old = stored(tmp_path / "old.json", {"task": 10.0, "of a larger run": 1.0})
    one = fake("one", f"yield line(5.0 if {low} else 9.0)", in_check=True)
    assert main(["--check", "--compare", old], [one, fake("two", "yield line(1.0)")]) == code
    out = capsys.readouterr().out
    assert fake.runs("one") == runs and not (tmp_path / "two.runs").exists()
    assert ("FELL" in out) == bool(code) and "of a larger run" not in out


def test_another_machine_is_named(tmp_path, capsys):
    stored(tmp_path / "new.json", {"task": 1.0})
    new = load(tmp_path / "new.json")
    save(new._replace(machine={**new.machine, "processor": "abacus"}), tmp_path / "old.json")
    assert main(["--from", str(tmp_path / "new.json"), "--compare", str(tmp_path / "old.json")], []) == 0
    assert "processor: abacus in the stored run of" in capsys.readouterr().out


def broken_files():
    """Contents that are no record, and a word of the sentence."""
    whole = json.loads(json.dumps(to_json(complete({"task": 1.0}))))
    one = whole["benchmarks"]["one"]

    def changed(**fields):
        return json.dumps({**whole, **fields})

    line = {**one["lines"][0], "ratios": [-1.0]}
    return {
        "empty": ("", "not JSON"),
        "cut": (json.dumps(whole)[:-20], "not JSON"),
        "bytes": (b"\xff\x00", "not JSON"),
        "list": ("[]", "format"),
        "other": (changed(format="bayes_mdp benchmarks, 0"), "measure it again"),
        "size": (changed(size="huge"), "broken"),
        "lines": (changed(benchmarks={"one": {}}), "broken"),
        "ratio": (changed(benchmarks={"one": {**one, "lines": [line]}}), "no positive ratio"),
        "text": (changed(benchmarks="one"), "broken"),
    }


@pytest.mark.parametrize("kind", broken_files())
def test_a_broken_file_is_refused_in_one_sentence(fake, tmp_path, capsys, kind):
    """Before anything is run."""
    content, word = broken_files()[kind]
    (tmp_path / "old.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    one = fake("one", "yield line(2.0)")
    for options in (["--compare", "old.json"], ["--from", "old.json"], ["--out", "old.json"]):
        assert main(options, [one]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1 and word in err and "old.json" in err
    assert not (tmp_path / "one.runs").exists()


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--compare", "nowhere.json"], "nowhere.json"),
        (["--out", "run.txt"], "ends in .json"),
        (["--check", "--only", "one"], "--list"),
        (["--only", "oen"], "one"),
        (["--quick", "--full"], "not allowed"),
        (["--quickly"], "unrecognized"),
    ],
)
def test_bad_options_get_a_sentence(fake, capsys, options, word):
    registry = [fake("one", "yield line(2.0)")]
    try:
        code = main(options, registry)
    except SystemExit as end:
        code = end.code
    err = capsys.readouterr().err
    assert code == 2 and word in err and "Traceback" not in err


def test_a_line_counts_the_turns(monkeypatch):
    """On a clock that only the calls move; a call of ours does four steps, one of the peer's two."""
    now = [0.0]
    monkeypatch.setattr(turns.time, "process_time", lambda: now[0])
    calls = {"ours": 0, "theirs": 0}

    def call(name, seconds):
        calls[name] += 1
        now[0] += seconds

    one = in_turns("task", "step", lambda: call("ours", 1.0), "numpy", lambda: call("theirs", 1.5), "check",
                   units=(4.0, 2.0))  # fmt: skip
    assert (one.ours, one.theirs, one.ratio) == (0.25, 0.75, 3.0) and len(one.ratios) == turns.REPEATS["check"]
    assert calls == dict.fromkeys(calls, 2 + turns.REPEATS["check"])
    calls["ours"] = 0
    one = in_turns("task", "step", lambda: call("ours", turns.LEAST_SECONDS / 8), "numpy",
                   lambda: call("theirs", 1.5), "check")  # fmt: skip
    assert calls["ours"] == 2 + 8 * turns.REPEATS["check"] and one.ours == pytest.approx(turns.LEAST_SECONDS / 8)


def test_every_benchmark_of_the_record_can_be_measured():
    """The file is there and has the function; the stored run is complete, and holds what `--check` measures."""
    for benchmark in REGISTRY:
        tree = ast.parse((ROOT / f"{benchmark.module.replace('.', '/')}.py").read_text())
        assert "measure" in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, benchmark.name
    record = load(STORED)
    assert record.complete and record.size != "check"
    assert {*record.benchmarks} <= {one.name for one in REGISTRY}
    assert not [name for name, one in record.benchmarks.items() if one.failed]
    assert all(record.benchmarks[one.name].lines for one in REGISTRY if one.in_check)
    assert not any(one.fell for one in compare(record, record))
