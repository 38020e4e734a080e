"""`bayes-mdp compare` with made-up scores in the place of played ones: what is asked for, printed, written, refused."""

import re
import sys

import jax
import numpy as np
import pytest
import xarray as xr

from bayes_mdp.agents import AGENTS
from bayes_mdp.cli import main
from bayes_mdp.experiments.compare_agents import DEFAULT_PROBLEMS, PROBLEMS, QUICK_AGENTS, QUICK_PROBLEMS
from bayes_mdp.experiments.ranking import leaderboard


@pytest.fixture
def asked(monkeypatch):
    """What each comparison was asked for: agents, problems, and the other arguments."""
    calls = []

    def compare(agents, envs, **arguments):
        calls.append((agents, tuple(envs), arguments))
        size = len(agents), len(envs)
        scores = np.random.default_rng(0).uniform(size=(*size, arguments["num_seeds"]))
        nothing = np.full(size, "", object)
        variables = {
            "score": (("agent", "env", "seed"), scores),
            "refused": (("agent", "env"), nothing),
            "unscored": ("env", nothing[0]),
        }
        result = xr.Dataset(variables, {"agent": list(agents), "env": list(envs)})
        return result.merge(leaderboard(result, key=jax.random.key(0), num_resamples=20))

    monkeypatch.setattr(sys.modules["bayes_mdp.experiments.compare_agents"], "compare", compare)
    return calls


def test_compare_asks_prints_and_draws(capsys, tmp_path, asked):
    """Names, seeds, seed and constants reach `compare`; --quick chooses where nothing is named."""
    out = tmp_path / "board"
    words = ["--agents", "ucbvi, psrl", "--envs", "chain", "--seeds", "3", "--seed", "7", "--out", str(out)]
    assert main(["compare", *words]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"\b1 +(ucbvi|psrl)\b", shown)
    assert f"result: {out / 'compare.nc'}" in shown and (out / "compare.png").stat().st_size > 1000
    assert main(["compare", *words[2:], "--quick", "--constants", "default"]) == 0
    assert main(["compare", "--out", str(out)]) == 0
    assert main(["compare", "--quick", "--agents", "all", "--out", str(out)]) == 0
    assert main(["compare", "--agents", "psrl", "--envs", "all", "--out", str(out)]) == 0
    (first, *_), *_ = asked
    assert first["ucbvi"].bonus_scale == 0.03
    assert asked[1][0]["ucbvi"].bonus_scale == 1.0
    assert [tuple(agents) for agents, _, _ in asked] == [
        ("ucbvi", "psrl"),
        QUICK_AGENTS,
        tuple(AGENTS),
        tuple(AGENTS),
        ("psrl",),
    ]
    expected = [("chain",), ("chain",), DEFAULT_PROBLEMS, QUICK_PROBLEMS, tuple(PROBLEMS)]
    assert [envs for _, envs, _ in asked] == expected
    assert asked[0][2]["num_seeds"] == 3 and asked[0][2]["path"] == out / "compare.nc"
    assert jax.random.key_data(asked[0][2]["key"]).tolist() == [0, 7]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--agents", "prsl"], "agent is 'prsl'"),
        (["--agents", "psrl,prsl"], "did you mean 'psrl'?"),
        (["--envs", "riverswin"], "did you mean 'riverswim'?"),
        (["--agents", "psrl", "--envs", "chain,chain"], "envs holds 'chain' twice"),
    ],
)
def test_compare_refuses_names_in_one_sentence(capsys, tmp_path, words, sentence):
    """Code 2, and no folder is left."""
    assert main(["compare", *words, "--out", str(tmp_path / "board")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("bayes-mdp: error: ") and sentence in error and error.count("\n") == 1
    assert not (tmp_path / "board").exists()


def test_a_comparison_that_is_interrupted_says_that_it_goes_on(capsys, tmp_path, monkeypatch):
    """Code 130."""

    def interrupted(*agents_and_envs, **arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["bayes_mdp.experiments.compare_agents"], "compare", interrupted)
    assert main(["compare", "--quick", "--out", str(tmp_path / "board")]) == 130
    assert "the same command resumes from what was finished" in capsys.readouterr().err
