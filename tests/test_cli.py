"""The command: what it prints, and that wrong input is one sentence and exit code 2."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bayes_mdp.cli import main

COLUMNS = ["--state", "s", "--action", "a", "--reward", "r", "--next-state", "s2"]


@pytest.fixture
def log(tmp_path):
    rng = np.random.default_rng(0)
    state, action = rng.integers(3, size=60), rng.choice(["stay", "go"], size=60)
    next_state = np.where(action == "go", (state + 1) % 3, state)
    path = tmp_path / "log.csv"
    pd.DataFrame({"s": state, "a": action, "r": (next_state == 2).astype(float), "s2": next_state}).to_csv(
        path, index=False
    )
    return path


def run(capsys, *arguments):
    code = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def refused(capsys, sentence, *arguments):
    code, _, error = run(capsys, *arguments)
    assert code == 2
    assert sentence in error
    assert error.startswith("bayes-mdp: error: ") and error.count("\n") == 1, error


def test_a_support_that_contradicts_the_log(capsys, log, tmp_path):
    """The row is named, and the pair by its labels."""
    rows = [(s, a, (s + 1) % 3 if a == "go" else s) for s in range(3) for a in ("stay", "go")]
    rows[3] = (1, "go", 0)
    path = tmp_path / "support.csv"
    pd.DataFrame(rows, columns=["s", "a", "s2"]).to_csv(path, index=False)
    data = pd.read_csv(log)
    row = np.flatnonzero((data.s == 1) & (data.a == "go"))[0]
    sentence = f"transitions.next_state[{row}] is 2, expected an outcome in the known support of state 1, action 'go'"
    refused(capsys, sentence, "fit", log, *COLUMNS, "--support", path)


def test_list_says_of_every_registry_what_its_docstrings_say(capsys):
    from bayes_mdp.agents import AGENTS
    from bayes_mdp.agents.neural import NEURAL_AGENTS
    from bayes_mdp.behaviour.models_by_name import DESCRIPTIONS
    from bayes_mdp.cli.options import METHODS
    from bayes_mdp.envs import ENVS, OBSERVED, SIMULATED
    from bayes_mdp.models import PRIORS

    registries: dict[str, Any] = {
        "agents": AGENTS,
        "environments": ENVS | SIMULATED,
        "priors": PRIORS,
        "deep agents (train)": NEURAL_AGENTS,
        "environments of deep agents (train)": OBSERVED,
        "behaviour models": DESCRIPTIONS,
        "methods": METHODS,
    }
    expected = []
    for title, registry in registries.items():
        expected.append(f"{title}:")
        for name, entry in registry.items():
            text = entry if isinstance(entry, str) else entry.__doc__.strip().splitlines()[0]
            expected.append(f"  {name:<24} {text}")
    code, out, _ = run(capsys, "list")
    assert code == 0 and out.splitlines() == expected


def test_what_computes_nothing_loads_nothing():
    """The list, help, and the refusal of a wrong command line."""
    code = """
import sys
from bayes_mdp.cli import main
for line in (["list"], ["--help"], ["fit", "--help"], ["nosuch"], ["fit", "log.csv"], ["run", "psrl", "chain"]):
    try:
        main(line)
    except SystemExit:
        pass
print([name for name in ("numpy", "scipy", "jax", "equinox", "numpyro", "pandas", "xarray") if name in sys.modules])
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "[]" and shown.stderr.count("error: ") == 3


def test_fit_prints_the_posterior_judges_policies_and_saves(capsys, log, tmp_path):
    import bayes_mdp as bm

    saved = tmp_path / "p.bmdp"
    code, out, _ = run(capsys, "fit", log, *COLUMNS, "--discount", 0.9, "--draws", 50, "--save", saved)
    assert code == 0
    assert "log evidence" in out and "verdict: not decided by these data" in out and "60 transitions" in out
    posterior: Any = bm.load(saved)
    assert posterior.visit_counts().sum() == 60
    code, out, _ = run(capsys, "fit", log, *COLUMNS, "--successors", "observed", "--save", saved)
    listed: Any = bm.load(saved)
    assert code == 0 and listed.space.state_names[-1] == "unseen" and listed.visit_counts().sum() == 60


def test_fit_refuses_what_it_cannot_read(capsys, log, tmp_path):
    refused(capsys, "'q'", "fit", log, *COLUMNS[:-1], "q")
    refused(capsys, "nothing.csv", "fit", tmp_path / "nothing.csv", *COLUMNS)
    refused(capsys, "prior is 'flat'", "fit", log, *COLUMNS, "--prior", "flat")
    refused(capsys, "discount is 1.0", "fit", log, *COLUMNS, "--discount", 1)
    refused(capsys, "horizon is 0", "fit", log, *COLUMNS, "--horizon", 0)
    empty = tmp_path / "empty.csv"
    empty.write_text("s,a,r,s2\n")
    refused(capsys, "empty.csv", "fit", empty, *COLUMNS)
    bad = tmp_path / "bad.csv"
    bad.write_text("s,a,r,s2\n0,0,1.0,1\n1,0,nan,0\n")
    refused(capsys, "row 2", "fit", bad, *COLUMNS)


def test_run_writes_its_result(capsys, tmp_path):
    import bayes_mdp as bm

    out_file = tmp_path / "run.nc"
    arguments = ("run", "psrl", "riverswim", "--steps", 100, "--seeds", 2, "--replan", 10, "--out", out_file)
    code, out, _ = run(capsys, *arguments)
    assert code == 0 and "2 seeds" in out
    assert bm.load(out_file).sizes["seed"] == 2


def test_run_refuses_names_and_sizes(capsys):
    refused(capsys, "agent is 'dqn'", "run", "dqn", "riverswim", "--steps", 10)
    refused(capsys, "env is 'mars'", "run", "psrl", "mars", "--steps", 10)
    refused(capsys, "did you mean 'psrl'?", "run", "prsl", "riverswim", "--steps", 10)
    refused(capsys, "did you mean 'osband_chain'?", "run", "psrl", "osband-chain:5", "--steps", 10)
    refused(capsys, "mean 'dirichlet_normal'?", "run", "psrl", "chain", "--steps", 1, "--prior", "diriclet_normal")
    refused(capsys, "did you mean 'doubling'?", "run", "psrl", "chain", "--steps", 10, "--replan", "dubling")
    refused(capsys, "which has no size", "run", "psrl", "riverswim:6", "--steps", 10)
    refused(capsys, "needs arguments", "run", "psrl", "riverswim", "--steps", 10, "--prior", "known_rewards")
    refused(capsys, "NoSuch-v0", "run", "psrl", "NoSuch-v0", "--steps", 10)
    refused(capsys, "num_seeds is 0", "run", "psrl", "riverswim", "--steps", 10, "--seeds", 0)
    refused(capsys, "replan is 'often'", "run", "psrl", "riverswim", "--steps", 10, "--replan", "often")
    refused(capsys, "num_episodes", "run", "psrl", "deep_sea:4", "--steps", 10)


def test_run_refuses_an_objective_that_the_agent_has_no_rule_for(capsys):
    refused(
        capsys, "objective is Discounted, expected Episodic for KLearning", "run", "k_learning", "chain", "--steps", 9
    )


@pytest.mark.parametrize(
    ("line", "program"),
    [
        ("reproduce x --full", "reproductions NAME"),
        ("reproduce", "reproductions NAME"),
        ("scorecard --quick", "benchmarks.validation scorecard"),
        ("levels --help", "benchmarks.validation levels"),
    ],
)
def test_what_is_not_in_the_package_says_where_it_is(capsys, line, program):
    refused(capsys, f"is not in the installed package, run `python -m {program}` in a checkout", *line.split())


def test_environments_with_sizes_are_found():
    """The first parameter of a factory is a size where its name says so."""
    from bayes_mdp.experiments.registry_names import find_environment

    for name, sizes in {"bsuite_deep_sea:4": (4, 2), "osband_chain:5": (5, 2), "garnet:7": (7, 2)}.items():
        env: Any = find_environment(name)
        mdp = env.mdp
        assert (mdp.n_states, mdp.n_actions) == sizes


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("run psrl riverswim", "--steps"),
        ("rnu psrl riverswim --steps 10", "did you mean 'run'?"),
        ("run psrl riverswim --steps 10 --regret averge", "did you mean 'average'?"),
    ],
)
def test_an_unknown_word_exits_with_2(capsys, words, shown):
    with pytest.raises(SystemExit) as stop:
        main(words.split())
    assert stop.value.code == 2
    assert shown in capsys.readouterr().err


def test_worlds_by_name_and_argument():
    from bayes_mdp.experiments.registry_names import find_environment

    found: Any = [find_environment(name) for name in ("racetrack:cliff", "prior_mdp:2", "mail_robot")]
    assert found[0].name == "racetrack_cliff"
    assert found[1].optimum == pytest.approx(0.70100, abs=5e-6)
    assert found[2].n_actions == 9
    with pytest.raises(ValueError, match=r"track of racetrack is 'clif', expected one of .*; did you mean 'cliff'"):
        find_environment("racetrack:clif")
    with pytest.raises(ValueError, match="mail_robot, which has no size"):
        find_environment("mail_robot:3")


@pytest.mark.parametrize("option", ["--save", "--netcdf", "--figure"])
def test_what_is_read_is_never_written_over(capsys, tmp_path, log, option):
    """By its own name, by a link to it, by another name of the same file."""
    content = log.read_bytes()
    (tmp_path / "link.png").symlink_to(log)
    os.link(log, tmp_path / "other.png")
    for path in (log, tmp_path / "link.png", tmp_path / "other.png", tmp_path / "." / "log.csv"):
        refused(capsys, f"{option} is '{path}', which is what is read", "fit", log, *COLUMNS, option, path)
    assert log.read_bytes() == content and (tmp_path / "link.png").is_symlink()


def test_nothing_is_written_where_a_later_option_is_wrong(capsys, tmp_path, log):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.iterdir())
    kept = ("--save", tmp_path / "p.bmdp")
    for sentence, *more in (
        ("--netcdf is", "--netcdf", tmp_path / "folder"),
        ("--netcdf is", "--netcdf", tmp_path / "nowhere" / "x.nc"),
        ("which is also --save", "--netcdf", tmp_path / "p.bmdp"),
        ("a pipe, expected a file", "--figure", tmp_path / "pipe"),
        ("expected a name that ends in one of", "--figure", tmp_path / "x.odd"),
        ("expected a name that ends in one of", "--figure", tmp_path / "x"),
        ("--draws is 0, expected an integer of at least 2", "--discount", 0.9, "--draws", 0),
    ):
        refused(capsys, sentence, "fit", log, *COLUMNS, *kept, *more)
    refused(capsys, "num_seeds is 0", "compare", "--quick", "--seeds", 0, "--out", tmp_path / "new" / "folder")
    for command in (("compare", "--quick"), ("demo",)):
        refused(capsys, "a pipe, expected a folder", *command, "--out", tmp_path / "pipe")
    assert sorted(tmp_path.iterdir()) == before and stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_figure_on_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    from bayes_mdp.cli.options import save_figure

    def full(self, path, **options):
        Path(path).write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", full)
    with pytest.raises(OSError, match="no space left on the device for"):
        save_figure(Figure(), tmp_path / "x.png")
    assert not list(tmp_path.iterdir())


def test_fit_takes_shards_and_update_learns_the_next_one(capsys, log, tmp_path):
    import bayes_mdp as bm

    frame, saved, later = pd.read_csv(log), tmp_path / "p.bmdp", tmp_path / "q.bmdp"
    parts = [tmp_path / f"part{i}.csv" for i in range(3)]
    for i, part in enumerate(parts):
        frame.iloc[20 * i : 20 * (i + 1)].to_csv(part, index=False)
    shards = ("fit", *parts[:2], *COLUMNS, "--discount", 0.9, "--draws", 50, "--save", saved)
    code, out, _ = run(capsys, *shards, "--chunksize", 7)
    assert code == 0 and "40 transitions" in out and "logged" in out
    code, out, _ = run(capsys, "update", saved, parts[2], *COLUMNS, "--save", later)
    assert code == 0 and "60 transitions" in out
    posterior: Any = bm.load(later)
    assert posterior.visit_counts().sum() == 60 and len(posterior.sources) == 3
    refused(capsys, "part1.csv was learnt from already", "update", later, parts[1], *COLUMNS, "--save", tmp_path / "r")
    half = ("update", later, parts[1], *COLUMNS, "--allow-duplicates", "--discount-data", 0.5, "--save", tmp_path / "r")
    assert run(capsys, *half)[0] == 0
    halved: Any = bm.load(tmp_path / "r")
    assert halved.visit_counts().sum() == 50
    refused(capsys, "--check is given with 2 logs", "fit", *parts[:2], *COLUMNS, "--check")
    refused(capsys, "part0.csv has the content of part0.csv", "fit", parts[0], parts[0], *COLUMNS)


def test_a_horizon_and_a_discount_are_a_discounted_episode(capsys, log):
    arguments = ("fit", log, *COLUMNS, "--horizon", 5, "--draws", 50)
    code, out, _ = run(capsys, *arguments, "--discount", 0.9)
    assert code == 0 and "episodes of 5 steps, discount 0.9" in out
    code, out, _ = run(capsys, *arguments, "--discount", 1)
    assert code == 0 and "episodes of 5 steps\n" in out
    refused(capsys, "discount is 1.5, expected a number above 0 and at most 1", *arguments, "--discount", 1.5)
    for other in ("horizon", "discount"):
        refused(
            capsys,
            f"--first-exit is given with --{other}, expected one objective",
            *("fit", log, *COLUMNS, f"--{other}", 1, "--first-exit"),
        )
    refused(
        capsys,
        "objective is Episodic(horizon=3, discount=0.9), expected Episodic(3): runs of agents take no discount",
        *("run", "psrl", "chain", "--horizon", 3, "--discount", 0.9, "--episodes", 2),
    )


MODEL = """import numpyro
import numpyro.distributions as dist


def strategies():
    p, q = numpyro.sample("p", dist.Beta(2.0, 3.0)), numpyro.sample("q", dist.Beta(5.0, 6.0))
    one, two = {"cost": 0.0, "effect": p}, {"cost": 0.02 * q, "effect": q}
    return {"one": one, "two": two, "worse": {"cost": 3.0, "effect": 0.0}}


def values():
    return {"one": numpyro.sample("p", dist.Beta(2.0, 3.0)), "none": 0.3}
"""


def test_evaluate_decision(tmp_path, capsys):
    import bayes_mdp as bm

    (tmp_path / "model.py").write_text(MODEL)
    program, out = f"{tmp_path}/model.py:strategies", tmp_path / "out"
    line = ["evaluate-decision", program, "--strategies", "one,two", "--wtp", "0:1000", "--draws", "500", "--out", out]
    code, shown, _ = run(capsys, *line, "--sites", "p;q", "--study", "p=5,q=5")
    assert code == 0
    assert "p []: exact (Beta, no data)" in shown and "worse" not in shown
    # At 1000 the costs hardly count: two beta arms, see tests/decisions/information.
    assert "EVPPI of p, willingness to pay 1000: 59." in shown
    assert "EVSI of 5 of p, 5 of q, willingness to pay 1000: 43." in shown
    names = {path.name for path in out.iterdir()}
    assert names == {"strategies.nc", "acceptability.png", "expected_loss.png", "plane.png"}
    result = bm.load(out / "strategies.nc")
    assert result["cost"].dims == ("draw", "strategy") and result.sizes["draw"] == 500
    assert '"wtp": "0:1000"' in result.attrs["configuration"]


def test_evaluate_decision_of_values(tmp_path, capsys, monkeypatch):
    (tmp_path / "own_model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    code, shown, _ = run(capsys, "evaluate-decision", "own_model:values", "--draws", "500")
    assert code == 0 and "P(best)" in shown and "EVPI of everything" in shown and "exact: closed form of lines" in shown
    refused(capsys, "wtp is 5.0 without effects", "evaluate-decision", "own_model:values", "--wtp", "5")
    refused(capsys, "wtp is None, expected the willing", "evaluate-decision", "own_model:strategies")
    refused(capsys, "did you mean 'one'", "evaluate-decision", "own_model:values", "--strategies", "ones")
    refused(capsys, "sites has 'q', expected sites", "evaluate-decision", "own_model:values", "--sites", "q")
    refused(capsys, "which has 'p' twice, expected", "evaluate-decision", "own_model:values", "--study", "p=5,p=9")
    refused(capsys, "--sites[1] is 'p' again, expected", "evaluate-decision", "own_model:values", "--sites", "p,p")
    refused(capsys, "expected FILE.py:FUNCTION or MODULE:FUNCTION", "evaluate-decision", "none.py:values")


def test_a_reader_that_has_enough_is_no_error():
    """As `bayes-mdp list | head -n 1`: the pipe is closed while the command still writes."""
    command = f"{sys.executable} -u -m bayes_mdp.cli list | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert done.stdout == "agents:\n" and done.stderr == ""


@pytest.mark.parametrize(("arguments", "level"), [([], "3"), (["--verbose"], "1")])
def test_alarms_of_the_compiler_stay_off_the_screen(arguments, level, monkeypatch):
    """XLA reads the variable when it is loaded: 3 keeps all but what ends the process to itself."""
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")  # as the package sets it
    monkeypatch.setattr(sys, "argv", ["bayes-mdp", "--no-cache", *arguments, "list"])
    assert main() == 0
    assert os.environ.get("TF_CPP_MIN_LOG_LEVEL") == level
