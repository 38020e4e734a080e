"""A stored posterior where a command takes a log: the same numbers, and one sentence where only a log will do."""

import hashlib
import re

import jax
import numpy as np
import pandas as pd
import pytest

import bayes_mdp as bm
from bayes_mdp.mdp import PolicyOrLabels
from tests.test_cli import refused, run

COLUMNS = ["--state", "s", "--action", "a", "--cost", "paid", "--next-state", "s2", "--truncated", "cut"]


def rows_of(seed: int) -> pd.DataFrame:
    """Ten episodes of four rows from `new`: a machine is worn by `run`, and `fix` makes it new."""
    rng = np.random.default_rng(seed)
    state, action = np.zeros(40, int), rng.integers(2, size=40)
    for i in range(1, 40):
        state[i] = i % 4 > 0 and action[i - 1] == 0 and rng.random() < 0.6
    after = np.append(state[1:], 0)
    names = np.array(["new", "worn"])
    paid = 1.0 + 2.0 * state + 1.5 * action + rng.normal(size=40)
    cut = np.tile([0, 0, 0, 1], 10)
    return pd.DataFrame(
        {"s": names[state], "a": np.array(["run", "fix"])[action], "paid": paid, "s2": names[after], "cut": cut}
    )


@pytest.fixture
def files(tmp_path, capsys):
    """Two logs, and the posterior of the first."""
    for week in (1, 2):
        rows_of(week).to_csv(tmp_path / f"week{week}.csv", index=False)
    paths = [tmp_path / name for name in ("week1.csv", "week2.csv", "p.bmdp")]
    assert run(capsys, "fit", paths[0], *COLUMNS, "--save", paths[2])[0] == 0
    return paths


def test_fit_says_of_a_stored_posterior_what_it_says_of_its_log(capsys, files, tmp_path):
    """But for the cost and the episodes, which the file does not hold; whatever the file is called."""
    log, _, stored = files
    asked = ("--discount", 0.9, "--draws", 50, "--initial", "new", "--min-count", 2)
    code, by_log, _ = run(capsys, "fit", log, *COLUMNS, *asked)
    assert code == 0 and by_log.startswith("Rewards are minus column 'paid'")
    other = tmp_path / "kept"
    other.write_bytes(stored.read_bytes())
    for path in (stored, other):
        code, told, _ = run(capsys, "fit", path, *asked)
        assert code == 0 and told == by_log.split("\n\n", 2)[2]
    assert "logged" in told and "greedy" in told and "start: the given distribution (state new)" in told


def test_fit_draws_the_frequencies_of_what_was_done_as_decide_does(capsys, files):
    """What it says of the log is the value of the log in place of a policy, wider than that of its array."""
    log, _, stored = files
    key, objective = jax.random.key(0), bm.Discounted(0.9)
    done = bm.read_log(rows_of(1), state="s", action="a", cost="paid", next_state="s2", truncated="cut")
    policies: dict[str, PolicyOrLabels] = {"logged": done}
    values = bm.compare_policies(key, bm.load(stored), policies, objective, initial="new", num_draws=50).values
    known = bm.policy_value(key, bm.load(stored), bm.behaviour_policy(done), objective, initial="new")
    assert values["logged"].sd > 1.2 * known.sd
    for source in ((log, *COLUMNS), (stored,)):
        _, told, _ = run(capsys, "fit", *source, "--discount", 0.9, "--draws", 50, "--initial", "new")
        assert "logged: what the log did; its frequencies are drawn as well" in told
        assert f"logged  {values['logged'].mean:.6g}  {values['logged'].sd:.3g}" in told


def test_fit_keeps_draws_of_a_stored_posterior(capsys, files, tmp_path):
    drawn = tmp_path / "draws.nc"
    code, told, _ = run(capsys, "fit", files[2], "--netcdf", drawn)
    assert code == 0 and told.endswith(f"draws: {drawn}\n") and drawn.is_file() and "Policies" not in told


def test_fit_writes_a_report_with_the_command(capsys, files, tmp_path):
    """That of the log has its SHA-256 and costs; that of the stored posterior the same digest, and rewards."""
    log, _, stored = files
    page, digest = tmp_path / "page.html", hashlib.sha256(files[0].read_bytes()).hexdigest()
    asked = ("--horizon", 3, "--draws", 40, "--report", page)
    code, told, _ = run(capsys, "fit", log, *COLUMNS, *asked)
    assert code == 0 and told.endswith(f"report: {page}\n")
    shown = page.read_text()
    assert digest in shown and "Saving over logged" in shown
    assert f"bayes-mdp fit {log} --state s --action a --cost paid --next-state s2 --truncated cut --horizon 3" in shown
    assert run(capsys, "fit", stored, *asked)[0] == 0
    assert digest in page.read_text() and "Gain over logged" in page.read_text()
    refused(capsys, "--report is given without an objective", "fit", stored, "--report", page)


def test_next_experiment_ranks_as_after_the_log(capsys, files, tmp_path):
    """The candidates' file of a stored posterior has the columns state and action."""
    log, _, stored = files
    asked = ("--horizon", 2, "--initial", "new", "--data-sets", 20)
    tables = [tmp_path / "log.csv", tmp_path / "stored.csv"]
    assert run(capsys, "next-experiment", log, *COLUMNS, *asked, "--csv", tables[0])[0] == 0
    code, told, _ = run(capsys, "next-experiment", stored, *asked, "--csv", tables[1])
    assert code == 0 and "Rewards are minus" not in told and tables[0].read_text() == tables[1].read_text()
    pairs = tmp_path / "pairs.csv"
    pd.DataFrame({"state": ["new"], "action": ["fix"], "price": [2.0]}).to_csv(pairs, index=False)
    assert run(capsys, "next-experiment", stored, *asked, "--candidates", pairs, "--csv", tables[1])[0] == 0
    ranked = pd.read_csv(tables[1])
    assert ranked[["state", "action", "cost"]].values.tolist() == [["new", "fix", 2.0]]


def test_explain_says_how_a_stored_posterior_was_inferred(capsys, files):
    code, told, _ = run(capsys, "explain", files[2])
    assert code == 0 and "method         mixture of" in told and "40 transitions, 40 rewards" in told
    refused(capsys, "--states is given with", "explain", files[2], "--states", 2)


def test_what_only_a_log_has_is_refused(capsys, files, tmp_path):
    log, other, stored = files
    alone = f"is given with {stored}, a stored posterior, expected it with a log alone"
    for option, *value in (
        ("--state", "s"),
        ("--next-state", "s2"),
        ("--states", "new,worn"),
        ("--missing-reward", "ignore"),
        ("--prior", "dirichlet_normal"),
        ("--method", "exact"),
        ("--legal", "logged"),
        ("--known-reward", "x.csv"),
        ("--chunksize", 5),
        ("--check",),
        ("--save", tmp_path / "q.bmdp"),
    ):
        refused(capsys, f"{option} {alone}", "fit", stored, option, *value)
    refused(capsys, f"--cost {alone}", "next-experiment", stored, "--cost", "paid", "--horizon", 2)
    refused(
        capsys,
        "--initial is 'logged' with a stored posterior, which does not say",
        "fit",
        stored,
        "--initial",
        "logged",
    )
    refused(capsys, f"{stored} is a stored posterior, expected it alone", "fit", log, stored, *COLUMNS)
    refused(capsys, "--action is missing, expected the name of the column of the action in", "fit", log, "--state", "s")
    refused(capsys, "nothing.bmdp: no such file", "fit", tmp_path / "nothing.bmdp")
    (tmp_path / "cut.bmdp").write_bytes(stored.read_bytes()[:-3])
    refused(capsys, "cut.bmdp is cut or altered", "next-experiment", tmp_path / "cut.bmdp", "--horizon", 2)
    mdps = bm.MDP(np.full((3, 2, 2, 2), 0.5), np.zeros((3, 2, 2)))
    bm.save(bm.inference.posterior_samples(mdps), tmp_path / "draws.bmdp")
    refused(capsys, "draws.bmdp holds draws of MDPs without labels", "fit", tmp_path / "draws.bmdp")
    a_log = f"{stored} is a stored posterior, expected a log here"
    refused(capsys, a_log, "decide", stored, "--horizon", 2)
    refused(capsys, a_log, "update", stored, stored, *COLUMNS, "--save", tmp_path / "q.bmdp")
    refused(capsys, a_log, "calibrate", "dirichlet_normal", "--log", stored, *COLUMNS)
    who = ("--subject", "s", "--action", "a", "--reward", "r", "--agent", "q_learning")
    refused(capsys, a_log, "behaviour", stored, *who)
    assert other.is_file() and not (tmp_path / "q.bmdp").exists()


def test_update_prints_rows_added_and_values_before_and_after(capsys, files, tmp_path):
    """The values are those of `compare_policies` with both posteriors; what was done is counted in the tables."""
    first, second, stored = files
    more = ("update", stored, second, *COLUMNS, "--save", tmp_path / "q.bmdp")
    code, told, _ = run(capsys, *more, "--horizon", 4, "--initial", "new", "--draws", 64)
    assert code == 0 and "Rows added: 40 of week2.csv, with 40 transitions\n" in told
    assert "transitions that the posterior rests on: 40 before, 80 after" in told
    both = pd.concat([pd.read_csv(path) for path in (first, second)])
    counts = pd.crosstab(both.s, both.a).loc[["new", "worn"], ["fix", "run"]].to_numpy()
    done = counts / counts.sum(1, keepdims=True)
    for i, path in enumerate((stored, tmp_path / "q.bmdp")):
        value = bm.policy_value(
            jax.random.key(0), bm.load(path), done, bm.Episodic(4), initial=[1.0, 0.0], num_draws=64
        )
        shown = re.findall(r"(-?[0-9.]+) \[(-?[0-9.]+), (-?[0-9.]+)\]", told.split("  logged  ", 1)[1])[i]
        assert [float(x) for x in shown] == pytest.approx([value.mean, *value.interval], rel=1e-3)
    code, told, _ = run(capsys, *more, "--discount-data", 0.5)
    assert code == 0 and "40 before, 60 after" in told and "no values before and after: no objective was given" in told


def test_update_refuses_what_does_not_learn(capsys, files, tmp_path):
    drawn = bm.infer(jax.random.key(0), bm.models.partial_pooling(), None, space=bm.StateActionSpace(2, 2))
    bm.save(drawn, tmp_path / "pooled.bmdp")
    message = "is a PooledPosterior, expected a posterior in closed form or a mixture of such"
    refused(capsys, message, "update", tmp_path / "pooled.bmdp", files[1], *COLUMNS, "--save", tmp_path / "q.bmdp")


def test_the_version_is_told(capsys):
    with pytest.raises(SystemExit) as told:
        run(capsys, "--version")
    assert told.value.code == 0 and capsys.readouterr().out == f"bayes-mdp {bm.__version__}\n"
