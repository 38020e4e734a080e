"""`bayes-mdp next-experiment`: values that a pencil finds, the table as a file, wrong input as one sentence."""

import pandas as pd
import pytest

from tests.test_cli import COLUMNS, refused, run

PAIR = {"s": ["shop"], "a": ["new"]}


@pytest.fixture
def given(tmp_path):
    """Ten trials of `old`, five of them good, and two of `new`, one of them good: both means are one half."""
    log = tmp_path / "log.csv"
    trials = {"s": "shop", "a": ["old"] * 10 + ["new"] * 2, "r": [1.0, 0.0] * 6, "s2": "shop"}
    pd.DataFrame(trials).to_csv(log, index=False)
    return ["next-experiment", log, *COLUMNS, "--prior", "dirichlet_bernoulli", "--horizon", 1]


def test_what_one_trial_adds(capsys, given, tmp_path):
    """New: Beta(2, 2), whose mean becomes 3/5 or 2/5; old: Beta(6, 6), whose mean becomes 7/13 or 6/13."""
    code, out, _ = run(capsys, *given, "--csv", tmp_path / "table.csv")
    assert code == 0 and "0.05" in out and "table: " in out
    assert "start: uniform over the 1 state" in " ".join(out.split())  # of one stretch without an end
    table = pd.read_csv(tmp_path / "table.csv")
    assert table["action"].tolist() == ["new", "old"] and table["state"].tolist() == ["shop", "shop"]
    assert table["value"].tolist() == pytest.approx([(3 / 5 - 1 / 2) / 2, (7 / 13 - 1 / 2) / 2])
    assert table["enumerated"].tolist() == [True, True]


def test_candidates_and_their_prices(capsys, given, tmp_path):
    """`old` is worth less than half as much, at a tenth of the price: it comes first."""
    prices, table = tmp_path / "prices.csv", tmp_path / "table.csv"
    pd.DataFrame({"s": ["shop"] * 2, "a": ["new", "old"], "price": [10.0, 1.0]}).to_csv(prices, index=False)
    code, _, _ = run(capsys, *given, "--candidates", prices, "--csv", table)
    found = pd.read_csv(table)
    assert code == 0 and found["action"].tolist() == ["old", "new"] and found["cost"].tolist() == [1.0, 10.0]
    pd.DataFrame({"s": ["shop"], "a": ["new"]}).to_csv(prices, index=False)
    code, _, _ = run(capsys, *given, "--candidates", prices, "--observations", 2, "--csv", table)
    found = pd.read_csv(table)
    # Two trials of Beta(2, 2): both good with probability 3/10, and the mean is then 4/6; one of them changes nothing.
    assert code == 0 and found["value"].tolist() == pytest.approx([0.3 * (4 / 6 - 1 / 2)])


def test_bad_input_is_one_sentence(capsys, given, tmp_path):
    bad = tmp_path / "bad.csv"

    def refused_candidates(sentence, columns):
        pd.DataFrame(columns).to_csv(bad, index=False)
        refused(capsys, sentence, *given, "--candidates", bad)

    refused_candidates(
        "--candidates: a[0] is 'newe', expected an action of the log; did you mean 'new'?", PAIR | {"a": ["newe"]}
    )
    refused_candidates(
        "--candidates: price[0] is -1.0, expected a finite number greater than zero", PAIR | {"price": -1.0}
    )
    refused_candidates("--candidates: price[0] is 'dear', expected a number greater than 0", PAIR | {"price": "dear"})
    refused_candidates("has no column 'a', expected 's', 'a'", {"s": ["shop"]})
    refused_candidates("has no rows, expected one pair each", {"s": [], "a": []})
    refused(capsys, "--observations is 0, expected an integer of at least 1", *given, "--observations", 0)
    refused(capsys, "--data-sets is 1, expected an integer of at least 2", *given, "--data-sets", 1)
    refused(capsys, "no objective was given", *given[:-2])
    refused(capsys, "which is what is read", *given, "--csv", given[1])
    chains = [*given[: given.index("--prior")], "--prior", "sticky", "--horizon", 1]
    refused(capsys, "--prior is 'sticky', whose posterior has no closed form (route quadrature)", *chains)
