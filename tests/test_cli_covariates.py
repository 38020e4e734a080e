"""Covariates in the shell: what `fit` and `decide` print of contexts and subgroups; bad input in one sentence."""

import re

import numpy as np
import pandas as pd
import pytest

import bayes_mdp as bm
from bayes_mdp.inference.context_posterior import ContextPosterior
from tests.test_cli import refused, run

COLUMNS = ["--state", "s", "--action", "a", "--reward", "r", "--next-state", "t", "--subject", "id"]
PRIOR = ["--prior", "dirichlet_bernoulli", "--horizon", 1]
FRAIL = ["--covariates", "frail,age"]


@pytest.fixture
def log(tmp_path):
    """In the frail y is better, in the others x; each was tried 40 times by either at two ages."""
    rows = pd.DataFrame({"s": "here", "a": ["x", "y"] * 80, "t": "here", "id": np.arange(160)})
    rows["frail"] = np.repeat(["yes", "no"], 80)
    rows["age"] = np.tile(np.repeat([1, 2], 2), 40)
    better = np.where(rows["frail"] == "yes", "y", "x")
    rows["r"] = ((rows["a"] == better) | (rows["id"] % 8 == 0)).astype(float)
    path = tmp_path / "log.csv"
    rows.to_csv(path, index=False)
    return path


def test_one_verdict_for_each_subgroup_and_a_page(capsys, log, tmp_path):
    page = tmp_path / "page.html"
    given = ("decide", log, *COLUMNS, *FRAIL, *PRIOR, "--by", "frail", "--policy", "y", "--draws", 400)
    code, out, _ = run(capsys, *given, "--report", page)
    assert code == 0
    assert "for 2 subgroups by frail: a policy is recommended for 1" in out
    assert "frail=yes: 'y': gain" in out and "frail=no: abstain; 'y': gain -" in out
    text = page.read_text()
    assert "A policy is recommended for 1 of 2 subgroups. y for frail=yes." in text
    assert "Not shown to be no worse than what the log did: frail=no." in text and "bayes-mdp decide" in text


def test_a_file_says_who_does_what(capsys, log, tmp_path):
    who = tmp_path / "who.csv"
    pd.DataFrame({"frail": ["yes", "no"], "s": "here", "a": ["y", "x"]}).to_csv(who, index=False)
    given = ("decide", log, *COLUMNS, *FRAIL, *PRIOR, "--by", "frail", "--policy", who, "--draws", 400)
    code, out, _ = run(capsys, *given, "--trial")
    assert code == 0 and "a policy is recommended for 2" in out and "not recorded" not in out
    people = tmp_path / "people.csv"
    pd.DataFrame({"frail": ["yes"] * 3 + ["no"], "age": 2}).to_csv(people, index=False)
    code, out, _ = run(capsys, *given, "--population", people, "--baseline", "x")
    assert code == 0 and "frail=yes: 'who': gain" in out
    pd.DataFrame({"frail": ["yes"], "s": "here", "a": ["y"]}).to_csv(who, index=False)
    refused(
        capsys, "'who.csv' has no row of frail=no, expected all patterns".replace("'who.csv'", repr(str(who))), *given
    )
    pd.DataFrame({"frail": ["yes"] * 2, "s": "here", "a": ["y", "x"]}).to_csv(who, index=False)
    refused(capsys, "frail=yes, has 'here' twice, expected each once", *given)


def test_a_file_says_who_does_what_with_which_probability(capsys, log, tmp_path):
    """A fair coin in the frail, who gain half of what always y brings them."""
    who = tmp_path / "who.csv"
    given = ("decide", log, *COLUMNS, *FRAIL, *PRIOR, "--by", "frail", "--policy", who, "--draws", 400)

    def gain_of_the_frail(probability):
        rows = {"frail": ["yes", "yes", "no"], "s": "here", "a": ["x", "y", "x"]}
        pd.DataFrame(rows | {"probability": [1 - probability, probability, 1.0]}).to_csv(who, index=False)
        code, out, _ = run(capsys, *given, "--baseline", "x")
        match = re.search(r"frail=yes: .*gain (\S+),", out)
        assert code == 0 and match is not None
        return float(match[1])

    assert gain_of_the_frail(0.5) == pytest.approx(gain_of_the_frail(1.0) / 2, rel=1e-3)
    pd.DataFrame({"frail": ["yes", "no"], "s": "here", "a": "y", "probability": [0.7, 1.0]}).to_csv(who, index=False)
    refused(capsys, "policy['here'] sums to 0.7, expected probabilities that sum to 1", *given)


def test_a_baseline_may_depend_on_covariates(capsys, log, tmp_path):
    """A file that names the frail alone was taken for everybody."""
    who = tmp_path / "who.csv"
    given = ("decide", log, *COLUMNS, *FRAIL, *PRIOR, "--by", "frail", "--policy", "y", "--draws", 400)
    pd.DataFrame({"frail": ["yes"], "s": "here", "a": ["x"]}).to_csv(who, index=False)
    refused(
        capsys, f"--baseline: {str(who)!r} has no row of frail=no, expected all patterns", *given, "--baseline", who
    )
    pd.DataFrame({"frail": ["yes", "no"], "s": "here", "a": ["x", "y"]}).to_csv(who, index=False)
    code, out, _ = run(capsys, *given, "--baseline", who)
    assert code == 0 and re.search(r"frail=no: .*gain 0[, ]", out) and "frail=yes: 'y': gain 0.6" in out, out


def test_a_posterior_in_contexts_is_printed_valued_and_kept(capsys, log, tmp_path):
    kept = tmp_path / "kept.bmdp"
    given = ("fit", log, *COLUMNS, *FRAIL, *PRIOR, "--draws", 64)
    code, out, _ = run(capsys, *given, "--by", "frail", "--save", kept)
    assert code == 0 and "4 contexts of frail" in out
    assert "What was done, given all covariates:" in out and "Value of the policy by subgroup" in out
    assert "policy: what the log did; its frequencies are drawn as well" in out
    assert isinstance(bm.load(kept), ContextPosterior)
    code, again, _ = run(capsys, "fit", kept)
    assert code == 0 and "4 contexts of frail" in again
    refused(capsys, "is a posterior in contexts, without the log", "fit", kept, "--horizon", 1)
    refused(
        capsys, "a posterior in contexts, expected one of a single context", "fit", kept, "--figure", tmp_path / "x.png"
    )
    refused(capsys, "is a posterior in contexts, expected one of a single", "next-experiment", kept, "--horizon", 1)


def test_rows_and_rewards_by_a_formula(capsys, log):
    """The rewards of 0 and 1 are regressed on the terms that the rows have."""
    formula = ("--terms", "frail + action + frail:action", "--method", "laplace")
    code, out, _ = run(capsys, "fit", log, *COLUMNS[:-2], "--states", "here,gone", *FRAIL, *formula)
    assert code == 0 and "reward: logistic regression" in out and "coefficients of rows:" in out
    assert "frail=yes:action=y" in out


def test_bad_input_is_one_sentence(capsys, log, tmp_path):
    decide = ("decide", log, *COLUMNS, *PRIOR, "--policy", "y")
    fit = ("fit", log, *COLUMNS, *PRIOR)
    refused(capsys, "--by is given without covariates, expected --covariates", *decide, "--by", "frail")
    refused(capsys, "--terms is given without covariates", *fit, "--terms", "action")
    refused(capsys, "--method is 'laplace' without covariates", *decide, "--method", "laplace")
    refused(capsys, "--by is missing, expected the covariates that make the subgroups", *decide, *FRAIL)
    refused(capsys, "--policy is missing, expected those to judge", *decide[:-2], *FRAIL, "--by", "frail")
    refused(capsys, "--split is given with covariates", *decide, *FRAIL, "--by", "frail", "--split", 0.5)
    refused(
        capsys, "--criterion is 'cvar:0.1' with covariates", *decide, *FRAIL, "--by", "age", "--criterion", "cvar:0.1"
    )
    refused(capsys, "'fragile' is no covariate, expected one of", *decide, *FRAIL, "--by", "fragile")
    refused(capsys, "--check is given with covariates", *fit, *FRAIL, "--check")
    refused(
        capsys, "--prior is 'dirichlet_bernoulli' with --terms, expected one of them", *fit, *FRAIL, "--terms", "age"
    )
    refused(capsys, "--reference is given without --terms", *fit, *FRAIL, "--reference", "here")
    refused(capsys, "has no column 'nosuch', expected one of", *fit, "--covariates", "nosuch")
    refused(capsys, "varying is ['age'] and process is None", *fit, "--varying", "age")
    changed = tmp_path / "changed.csv"
    pd.read_csv(log).assign(id=1).to_csv(changed, index=False)
    refused(
        capsys, "covariate 'frail' is 'no', and 'yes' in row 1 of the same subject", "fit", changed, *fit[2:], *FRAIL
    )
    refused(capsys, "with chunksize, expected a log that is read as a whole", *fit, *FRAIL, "--chunksize", 10)
    people = tmp_path / "people.csv"
    pd.DataFrame({"frail": ["perhaps"], "age": 2}).to_csv(people, index=False)
    asked = (*decide, *FRAIL, "--by", "frail", "--baseline", "x", "--population", people)
    refused(capsys, "covariate 'frail' is 'perhaps', expected a level of the log: 'no', 'yes'", *asked)
