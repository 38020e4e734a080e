"""The page of a comparison: its numbers are those of the draws, costs are costs, and it says how to repeat it."""

import hashlib
import html
import pickle
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

import bayes_mdp as bm
from bayes_mdp.recommend import write_report
from bayes_mdp.recommend.report import gains_section
from tests.envs.logs.random_logs import fold_log
from tests.recommend.test_report import check, read

ODD = "<b>B & co</b>"
COLUMNS: dict[str, Any] = {"state": "wear", "action": "deed", "cost": "paid", "next_state": "after"}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A machine that wears when it runs, and costs more then; both actions are tried everywhere."""
    rng, state, rows = np.random.default_rng(0), 0, []
    for _ in range(200):
        action = int(rng.integers(2))
        after = 0 if action else max(state, int(rng.random() < 0.3))
        rows.append((("new", "worn")[state], ("run", "fix")[action], 1.0 + 6 * state + action + rng.normal(), after))
        state = after
    table = pd.DataFrame(rows, columns=["wear", "deed", "paid", "after"])
    path = tmp_path_factory.mktemp("log") / "machines.csv"
    table.assign(after=[("new", "worn")[x] for x in table["after"]]).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def compared(file):
    """A log, and three policies by its posterior."""
    log = bm.read_log(file, **COLUMNS)
    posterior = bm.infer(
        jax.random.key(0), bm.models.dirichlet_normal(noise_scale=2.0), log, space=bm.StateActionSpace.from_log(log)
    )
    policies = {"staff": bm.behaviour_policy(log), ODD: {"new": "run", "worn": "fix"}, "always fix": [0, 0]}
    return log, bm.compare_policies(jax.random.key(7), posterior, policies, bm.Discounted(0.5), num_draws=100)


def squeezed(path):
    return " ".join(check(path).text.split())


def cells(text: str) -> list[list[str]]:
    """The rows of all tables of a page, as text."""
    rows = [row.split("</tr>")[0] for row in text.split("<tr")[1:]]
    return [
        [html.unescape(cell.split("<")[0]) for cell in row.replace('<td class="words">', "<td>").split("<td>")[1:]]
        for row in rows
    ]


def test_gains_and_costs_are_those_of_the_draws(compared, file, tmp_path):
    log, comparison = compared
    path = tmp_path / "page.html"
    write_report(comparison, path, baseline="staff", log=log)
    text, rows = squeezed(path), {row[0]: row for row in cells(read(path)[0]) if row and row[0] in comparison.values}
    staff = comparison.values["staff"].draws
    assert float(rows["staff"][1]) == pytest.approx(-staff.mean(), rel=1e-4) and rows["staff"][2:5] == ["-", "-", "-"]
    for name in (ODD, "always fix"):
        gain = comparison.values[name].draws - staff
        cost, saving, interval, prob, behind = rows[name][1:6]
        assert float(cost) == pytest.approx(-comparison.values[name].draws.mean(), rel=1e-4) and float(cost) > 0
        assert float(saving) == pytest.approx(gain.mean(), rel=1e-3)
        ends = [float(x) for x in interval.strip("[]").split(", ")]
        assert ends == pytest.approx(np.quantile(gain, [0.025, 0.975]), rel=1e-3)
        assert float(prob) == pytest.approx((gain > 0).mean(), abs=6e-4)
        basis = comparison.values[name].basis
        assert basis is not None and float(behind) == pytest.approx(basis.transitions, rel=1e-2)
        assert rows[name][8] == "no pair"
    gain = comparison.values[ODD].draws - staff
    assert f"The best of 2 policies, {ODD}, saves {gain.mean():.4g} of 'paid' compared with staff, 95 %" in text
    assert "A cost is the discounted sum of 'paid' over all steps to come (discount 0.5); start: uniform" in text
    assert "Saving over staff" in text and "Here values are rewards, which are minus the costs." in text
    # The policies by label, open, under the log's name of the states; statistics and the belief are folded.
    states = {row[0]: row[1:] for row in cells(read(path)[0]) if row and row[0] in ("new", "worn")}
    assert f"wear staff {ODD} always fix" in text and states["new"][1:] == ["run", "fix"]
    fixed = pd.read_csv(file).query("wear == 'worn'")["deed"].eq("fix").mean()
    assert states["worn"][1:] == ["fix", "fix"] and f"fix {fixed:.2g}" in states["worn"][0]
    shown = read(path)[0]
    assert shown.count("<details>") == 2 and shown.count("<details open>") == 1 and shown.count("<svg") == 1
    assert str(comparison).split("\n", 1)[0] in html.unescape(shown)


def test_it_says_how_to_repeat_it(compared, file, tmp_path):
    log, comparison = compared
    path, command = tmp_path / "page.html", "bayes-mdp fit 'a & b.csv' --discount 0.5"
    write_report(comparison, path, log=log, command=command)
    told = {row[0]: row[1] for row in cells(read(path)[0]) if len(row) == 2}
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert told["log machines.csv"] == f"SHA-256 {digest}, 200 rows" and told["command"] == command
    assert told["columns"] == "state 'wear', action 'deed', cost 'paid', next_state 'after'"
    assert told["prior"] == (
        "dirichlet_normal (concentration 1.0, loc 0.0, scale 1.0, noise_scale 2.0, rewards_on state_action)"
    )
    assert told["draws"] == "100, key jax.random.key(7)" and bm.__version__ in told["version"]
    # Without the log the posterior's own digests are told; a key that is no seed by its numbers.
    posterior = comparison.compared.posterior
    key = jax.random.split(jax.random.key(0))[0]
    again = bm.compare_policies(key, posterior, comparison.compared.policies, bm.Episodic(3), num_draws=20)
    write_report(again, path)
    told = {row[0]: row[1] for row in cells(read(path)[0]) if len(row) == 2}
    assert told["logs that the posterior has learnt from"] == f"SHA-256 {digest}" and "command" not in told
    numbers = ", ".join(map(str, np.asarray(jax.random.key_data(key)).tolist()))
    assert told["draws"].endswith(f"of {numbers}")
    assert "gains" in squeezed(path) and "of reward compared with staff" in squeezed(path)


def test_costs_of_folded_logs_are_costs_too(compared, file, tmp_path):
    _, comparison = compared
    path = tmp_path / "page.html"
    write_report(comparison, path, log=fold_log(file, **COLUMNS))
    assert "Saving over staff" in squeezed(path) and "log machines.csv SHA-256" in squeezed(path)


def test_a_worse_policy_and_reasons_to_abstain(compared, tmp_path):
    """A loss is told as one, with its interval the other way round; each reason has what settles it."""
    _, comparison = compared
    path = tmp_path / "page.html"
    best = bm.compare_policies(
        jax.random.key(0),
        comparison.compared.posterior,
        {ODD: comparison.compared.policies[ODD], "always fix": [0, 0]},
        bm.Discounted(0.5),
        num_draws=50,
    )
    write_report(best, path)
    loss = best.values[ODD].draws - best.values["always fix"].draws
    low, high = np.quantile(loss, [0.025, 0.975])
    text = squeezed(path)
    assert (
        f"always fix loses {loss.mean():.4g} of reward compared with {ODD}, 95 % interval [{low:.4g}, {high:.4g}]"
        in text
    )
    assert not best.verdict.decided and 'class="answer"' in path.read_text()
    for reason, cure in zip(best.verdict.reasons, best.verdict.would_decide, strict=True):
        assert f"{reason}.To settle it: {cure}." in text
    remedy = "VerdictOptions(held_out=True); if they chose it, data that did not"
    assert f"if you fixed {ODD} before you saw these data: {remedy}" in text


def test_what_is_no_report_is_refused(compared, decided, tmp_path):
    log, comparison = compared
    path = tmp_path / "page.html"
    with pytest.raises(ValueError, match=r"baseline is 'stuff', expected one of staff, .*did you mean 'staff'"):
        write_report(comparison, path, baseline="stuff")
    other = replace(log, digest="0" * 64)
    with pytest.raises(ValueError, match=r"log is machines\.csv .SHA-256 000000000000.*has not learnt"):
        write_report(comparison, path, log=other)
    bad: Any = 3
    with pytest.raises(TypeError, match="log is 3, expected a Log"):
        write_report(comparison, path, log=bad)
    alone = replace(comparison, values={"staff": comparison.values["staff"]})
    with pytest.raises(ValueError, match="result has 'staff' alone"):
        write_report(alone, path)
    with pytest.raises(TypeError, match="baseline and log are given with a Decision"):
        write_report(decided(), path, baseline="x")
    # What is pickled has no posterior, whose prior may be a program.
    kept = pickle.loads(pickle.dumps(comparison))
    np.testing.assert_array_equal(kept.values[ODD].draws, comparison.values[ODD].draws)
    with pytest.raises(ValueError, match="expected one that compare_policies made"):
        write_report(kept, path)
    assert not path.exists()


def test_pairs_that_nobody_tried_are_counted():
    data = bm.Transitions([0] * 4, [0] * 4, [1.0, 0.0, 1.0, 1.0], [0] * 4)
    posterior = bm.infer(jax.random.key(0), bm.models.dirichlet_bernoulli(), data, space=bm.StateActionSpace(1, 2))
    compared = bm.compare_policies(jax.random.key(0), posterior, {"old": [0], "new": [1]}, bm.Episodic(2), num_draws=20)
    rows = {row[0]: row for row in cells("".join(gains_section(compared, "old", {}))) if row}
    assert rows["old"][-1] == "no pair" and rows["new"][-1] == "1 pair, 1 of its time"
