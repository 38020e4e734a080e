"""`bayes-mdp decide`: a page of an answer, and wrong input as one sentence and exit code 2."""

import jax
import numpy as np
import pandas as pd
import pytest

import bayes_mdp as bm
from bayes_mdp.decisions import Budget, ChooseOptions, PolicyLimits
from tests.test_cli import refused, run

COLUMNS = ["--state", "s", "--action", "a", "--reward", "r", "--next-state", "s2", "--truncated", "cut"]
PRIOR = ["--prior", "dirichlet_bernoulli", "--discount", 0.5]


@pytest.fixture
def log(tmp_path):
    """Twenty episodes of three steps; in state 0 nobody ever jumps."""
    rng = np.random.default_rng(0)
    state, action = rng.integers(2, size=60), rng.choice(["stay", "go"], size=60)
    action[(np.arange(60) % 7 == 0) & (state == 1)] = "jump"
    cut = np.arange(60) % 3 == 2
    columns = {"s": state, "a": action, "r": (action == "go") * 1.0, "s2": np.roll(state, -1), "cut": cut}
    path = tmp_path / "log.csv"
    pd.DataFrame(columns).to_csv(path, index=False)
    return path


def test_bad_input_is_one_sentence(capsys, log, tmp_path):
    given = ("decide", log, *COLUMNS, *PRIOR, "--draws", 100)
    refused(capsys, "criterion is 'nosuch', expected one of", *given, "--criterion", "nosuch")
    refused(capsys, "level is 2.0, expected a number greater than 0, at most 1", *given, "--criterion", "cvar:2")
    refused(capsys, "confidence is 1.0, expected a number between 0 and 1", *given, "--confidence", 1)
    refused(capsys, "--baseline is 'fly', expected 'behaviour' or an action of the log", *given, "--baseline", "fly")
    refused(capsys, "split is 1.0, expected a number from 0 to 1", *given, "--split", 1)
    one = tmp_path / "one.csv"
    pd.read_csv(log).iloc[:3].assign(over=[0, 0, 1], cut=0).to_csv(one, index=False)
    ended = ("decide", one, *given[2:], "--terminated", "over")
    refused(capsys, "log has 1 episode, expected at least 2 to split it", *ended)


def test_a_baseline_that_takes_forbidden_actions(capsys, log):
    """In state 0 `jump` is not legal: nobody took it there."""
    given = ("decide", log, *COLUMNS, *PRIOR, "--draws", 100, "--no-checks", "--legal", "logged")
    refused(
        capsys,
        "baseline: policy[0] is 'jump', expected an action that is legal in this state",
        *given,
        "--baseline",
        "jump",
    )


def test_a_page_of_the_answer(capsys, log, tmp_path):
    page = tmp_path / "out.html"
    code, out, _ = run(capsys, "decide", log, *COLUMNS, *PRIOR, "--draws", 100, "--no-checks", "--report", page)
    assert code == 0 and "keep the baseline" in out and "the checks of the belief were left out" in out
    assert page.read_text().startswith("<!doctype html>")


def test_rare_pairs_are_told_and_changed(capsys, log):
    """Five by default, unless rare pairs are left out altogether."""
    given = ("decide", log, *COLUMNS, *PRIOR, "--draws", 100, "--no-checks")
    told = "left to the baseline: pairs that the data which choose have less than {} times"
    for more, below in (((), 5), (("--bootstrap-below", 3), 3), (("--min-count", 3), 0), (("--bootstrap-below", 0), 0)):
        code, out, _ = run(capsys, *given, *more)
        shown = " ".join(out.split())
        assert code == 0 and (told.format(below) in shown) is (below > 0)
        assert ("left to the baseline" in shown) is (below > 0)
    refused(capsys, "bootstrap_below is -1, expected", *given, "--bootstrap-below", -1)


def test_a_discounted_episode(capsys, log):
    discounted = ("--prior", "dirichlet_bernoulli", "--discount", 0.5, "--horizon", 3)
    code, out, _ = run(capsys, "decide", log, *COLUMNS, *discounted, "--draws", 100, "--no-checks")
    assert code == 0 and "over an episode of 3 steps, discount 0.5 a step; start: " in out


GIVEN = ("--draws", 100, "--no-checks", "--legal", "logged")


@pytest.mark.parametrize(
    ("baseline", "message"),
    [
        ("0=go,1=fly", "--baseline is 'fly', expected an action of the log"),
        ("0=go,2=go", "--baseline is '2', expected a state of the log"),
        ("0=go,0=go", "--baseline has '0' twice, expected each once"),
        ("0=go,1", "--baseline has '1', expected STATE=ACTION,STATE=ACTION"),
        ("0=go", "baseline: policy has no action for 1, expected one for every state"),
        ("0=jump,1=go", "baseline: policy[0] is 'jump', expected an action that is legal in this state: 'go', 'stay'"),
    ],
)
def test_wrong_baselines(capsys, log, baseline, message):
    refused(capsys, message, "decide", log, *COLUMNS, *PRIOR, *GIVEN, "--baseline", baseline)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"s": [0, 1], "a": ["go", "fly"]}, "--baseline: a[1] is 'fly', expected an action of the log"),
        ({"s": [0, 0], "a": ["go", "go"]}, "--baseline has 0 twice, expected each once"),
        ({"s": [0, 1], "b": ["go", "go"]}, "has no column 'a', expected 's', 'a'"),
        ({"s": [0, 1], "a": ["go", "go"], "probability": [1, 0.5]}, "baseline: policy[1] sums to 0.5, expected"),
    ],
)
def test_wrong_tables(capsys, log, tmp_path, columns, message):
    table = tmp_path / "today.csv"
    pd.DataFrame(columns).to_csv(table, index=False)
    refused(capsys, message, "decide", log, *COLUMNS, *PRIOR, *GIVEN, "--baseline", table)


def test_named_policies(capsys, log, tmp_path):
    """Each by the name of its file, or by what was entered; judged and shown, whatever is recommended."""
    table, page = tmp_path / "plan B.csv", tmp_path / "x.html"
    pd.DataFrame({"s": [0, 1], "a": ["go", "stay"]}).to_csv(table, index=False)
    more = ("--policy", table, "--policy", "0=stay,1=stay", "--report", page)
    code, out, _ = run(capsys, "decide", log, *COLUMNS, *PRIOR, *GIVEN, *more)
    assert code == 0 and "\n  plan B " in out and "\n  0=stay,1=stay " in out
    assert f"bayes-mdp decide {log}" in page.read_text() and "SHA-256" in page.read_text()
    refused(
        capsys, "--policy has 'plan B' twice", "decide", log, *COLUMNS, *PRIOR, "--policy", table, "--policy", table
    )
    refused(
        capsys, "--policy is 'fly', expected an action of the log", "decide", log, *COLUMNS, *PRIOR, "--policy", "fly"
    )


def test_what_was_entered_is_what_is_judged(capsys, log):
    """The baseline in the table of differences, the start in the line above."""
    more = ("--baseline", "0=stay,1=jump", "--initial", "0=0.25,1=0.75")
    code, out, _ = run(capsys, "decide", log, *COLUMNS, *PRIOR, *GIVEN, *more)
    assert code == 0 and "; start: the given distribution (0 0.25, 1 0.75) the " in " ".join(out.split())
    rows = [line.split() for line in out.splitlines()]
    assert ["1", "jump", "1"] in [row[:3] for row in rows] and ["0", "stay", "1"] in [row[:3] for row in rows]


def written_draws(folder):
    """Draws of two chains as Stan's files and as one file of ArviZ's, without rewards; a table of rewards."""
    import xarray as xr

    rows = np.random.default_rng(0).dirichlet([3.0, 2.0], (2, 200, 2, 2))
    labels = {"state": ["well", "ill"], "action": ["wait", "treat"], "after": ["well", "ill"]}
    paid = np.broadcast_to([[1.0, 0.9], [0.2, 8.0]], (2, 200, 2, 2))
    dims = ("chain", "draw", "state", "action")
    days = np.array([[0.0, 1.0], [1.0, 3.0]]) * np.random.default_rng(1).uniform(0.8, 1.2, (2, 200, 1, 1))
    held = xr.Dataset({"P": ((*dims, "after"), rows), "gain": (dims, paid), "days": (dims, days)}, labels)
    held.to_netcdf(folder / "fit.nc", engine="h5netcdf", group="posterior")
    for chain in range(2):
        places = np.ndindex(2, 2, 2)
        columns = {f"P.{s + 1}.{a + 1}.{o + 1}": rows[chain, :, s, a, o] for s, a, o in places}
        pd.DataFrame(columns).to_csv(folder / f"out-{chain}.csv", index=False)
    table = [(s, a, paid[0, 0, i, j]) for i, s in enumerate(labels["state"]) for j, a in enumerate(labels["action"])]
    pd.DataFrame(table, columns=["state", "action", "reward"]).to_csv(folder / "rewards.csv", index=False)


def test_draws_of_another_program(capsys, tmp_path):
    """The same answer from a file of ArviZ and from Stan's files with a table of rewards."""
    written_draws(tmp_path)
    given = ("--discount", 0.9, "--initial", "well", "--baseline", "wait", "--policy", "treat")
    axes = ("--state", "state", "--action", "action", "--next-state", "after", "--reward", "gain")
    code, first, _ = run(capsys, "decide", "--draws", tmp_path / "fit.nc", *axes, *given)
    assert code == 0 and "given by 400 draws (2 chains of 200)" in first and "ill: treat" in first
    files = ("--draws", tmp_path / "out-0.csv", "--draws", tmp_path / "out-1.csv")
    names = ("--states", "well,ill", "--actions", "wait,treat", "--known-reward", tmp_path / "rewards.csv")
    code, second, _ = run(capsys, "decide", *files, *names, *given)
    assert code == 0 and first == second
    # A file of draws in place of the log is one, too.
    code, third, _ = run(capsys, "decide", tmp_path / "fit.nc", *axes, *given)
    assert code == 0 and first == third


def test_a_budget_of_a_variable_of_the_draws(capsys, tmp_path):
    """The same answer as `choose` with the variable as outcome; what cannot be kept is refused with the least cost."""
    written_draws(tmp_path)
    axes = {"state": "state", "action": "action", "outcome": "after"}
    posterior, days = (bm.posterior_from_draws(tmp_path / "fit.nc", "P", name, dims=axes) for name in ("gain", "days"))
    named = ("--state", "state", "--action", "action", "--next-state", "after", "--reward", "gain", "--discount", 0.9)
    given = (
        "decide",
        tmp_path / "fit.nc",
        *named,
        "--initial",
        "well",
        "--outcomes",
        "days",
        "--budget-probability",
        0.8,
    )
    code, out, _ = run(capsys, *given, "--budget", "days=12")
    budgets = {"days": Budget(12.0, 0.8, days)}
    options = ChooseOptions(limits=PolicyLimits(budgets=budgets), num_draws=400)
    choice = bm.choose(jax.random.key(0), posterior, bm.Discounted(0.9), initial="well", options=options)
    assert code == 0 and str(choice) in out and "days: spends" in " ".join(out.split())
    refused(capsys, "budgets['days'].limit is 0.01, expected at least", *given, "--budget", "days=.01")
    refused(capsys, "--outcomes is given with --draws", *given)
    refused(capsys, "--budget is 'cost', expected one of days (columns of --outcomes)", *given, "--budget", "cost=3")


@pytest.mark.parametrize("file", ["fit.nc", "out-0.csv"])
def test_what_needs_data_refuses_draws(capsys, tmp_path, file):
    """One sentence that says where they go, whatever else is given."""
    written_draws(tmp_path)
    path = tmp_path / file
    says = f"{path} holds draws of another program, which learn nothing from new data, expected a log here; "
    for command in ("fit", "next-experiment"):
        refused(capsys, says, command, path)
        refused(capsys, says, command, path, *COLUMNS, "--discount", 0.9)
    refused(capsys, says, "update", path, path, *COLUMNS[:4], "--save", tmp_path / "out.bmdp")
    refused(capsys, says, "calibrate", "dirichlet_bernoulli", "--log", path, *COLUMNS)
    refused(capsys, says, "behaviour", path, "--subject", "s", *COLUMNS[2:6], "--agent", "q_learning")


def test_draws_that_do_not_fit(capsys, tmp_path, log):
    written_draws(tmp_path)
    given = ("decide", "--draws", tmp_path / "fit.nc", "--reward", "gain", "--discount", 0.9)
    refused(capsys, "expected one of them", "decide", log, *given[1:])
    refused(capsys, "--split is given with --draws", *given, "--split", 0.5)
    refused(capsys, "--prior is given with --draws", *given, "--prior", "sticky")
    refused(capsys, "transition is 'Q', expected a variable of the draws", *given, "--transition", "Q")
    refused(capsys, "--states has 3 labels, expected 2", *given, "--states", "a,b,c")
    refused(capsys, "--draws is given as 10 and 20", *given, "--draws", 10, "--draws", 20)
    refused(capsys, "no log is given, expected the name of one, or --draws FILE", "decide", "--discount", 0.9)
    refused(capsys, "--transition is given with a log", "decide", log, *COLUMNS, *PRIOR, "--transition", "P")


def test_a_budget_of_a_column(capsys, log):
    frame = pd.read_csv(log)
    frame["cost"] = 1.0 + 2.0 * (frame["a"] == "go")
    frame.to_csv(log, index=False)
    # Rewards of 0 and 1, costs of 1 and 3: the default prior has a law for each.
    given = ("decide", log, *COLUMNS, "--discount", 0.5, "--draws", 200, "--no-checks")
    code, out, _ = run(capsys, *given, "--outcomes", "cost", "--budget", "cost=5", "--budget-probability", 0.9)
    said = " ".join(out.split())
    assert code == 0 and "cost: spends" in said and "of a budget of 5" in said and "where 0.1 was allowed" in said
    refused(capsys, "--budget is 'cost', expected COLUMN=LIMIT", *given, "--outcomes", "cost", "--budget", "cost")
    refused(capsys, "--budget is 'beds', expected", *given, "--outcomes", "cost", "--budget", "beds=3")
    two = ("--budget", "cost=3", "--budget", "cost=4")
    refused(capsys, "--budget 'cost' is given twice", *given, "--outcomes", "cost", *two)
    refused(capsys, "no policy spends less on average", *given, "--outcomes", "cost", "--budget", "cost=0.5")
