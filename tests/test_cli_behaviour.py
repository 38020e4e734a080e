"""`bayes-mdp behaviour`: a log goes in; estimates, a comparison and a figure come out. Wrong input: one sentence."""

# pyright: reportArgumentType=false, reportCallIssue=false

import re

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from bayes_mdp.behaviour import ChoiceLog
from bayes_mdp.behaviour.models_by_name import DESCRIPTIONS, MODELS
from bayes_mdp.cli import main
from bayes_mdp.mdp import Discounted

NAMES = ["--subject", "id", "--action", "side", "--reward", "paid"]


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Four persons who repeat what was paid more often than chance."""
    rng = np.random.default_rng(0)
    rows = []
    for person in "abcd":
        worth = np.zeros(2)
        for trial in range(60):
            action = int(rng.random() < 1.0 / (1.0 + np.exp(-4.0 * (worth[1] - worth[0]))))
            paid = float(rng.random() < (0.3, 0.7)[action])
            worth[action] += 0.3 * (paid - worth[action])
            rows.append((person, trial, ("left", "right")[action], paid))
    path = tmp_path_factory.mktemp("behaviour") / "log.csv"
    pd.DataFrame(rows, columns=["id", "trial", "side", "paid"]).to_csv(path, index=False)
    return path


def test_estimates_and_table(log, tmp_path, capsys):
    table = tmp_path / "table.csv"
    command = ["behaviour", str(log), *NAMES, "--agent", "constant", "--table", str(table)]
    assert main([*command, "--warmup", "100", "--samples", "50", "--chains", "2"]) == 0
    assert "Parameters of 4 subjects from 240 choices" in capsys.readouterr().out
    found = pd.read_csv(table)
    parameters = len(set(found["parameter"].tolist()))
    assert parameters >= 1 and len(found) == parameters * (1 + 4)
    low, mean, high = (found[name].to_numpy() for name in ("q05", "mean", "q95"))
    assert (low < mean).all() and (mean < high).all()


@pytest.mark.slow
def test_estimates_comparison_table_and_figure(log, tmp_path, capsys):
    out = {name: tmp_path / f"{name}.{end}" for name, end in (("table", "csv"), ("netcdf", "nc"), ("figure", "png"))}
    options = [text for name, path in out.items() for text in (f"--{name}", str(path))]
    command = ["behaviour", str(log), *NAMES, "--agent", "q_learning", "--against", "constant"]
    assert main([*command, *options, "--warmup", "100", "--samples", "50", "--chains", "2"]) == 0
    said = capsys.readouterr()
    assert "Parameters of 4 subjects from 240 choices" in said.out
    assert said.out.index("q_learning", said.out.index("elpd")) < said.out.index("constant", said.out.index("elpd"))
    assert "q_learning: 4 subjects, 240 choices, pooling none" in said.err  # the figure shows both
    table = pd.read_csv(out["table"])
    assert set(table["parameter"]) == {"learning_rate", "sensitivity"} and len(table) == 2 * (1 + 4)
    assert np.all(table["q05"] < table["mean"]) and np.all(table["mean"] < table["q95"])
    assert all(path.stat().st_size > 1000 for name, path in out.items() if name != "table")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (["--agent", "q_lerning"], r"agent is 'q_lerning', expected one of .*; did you mean 'q_learning'\?"),
        (["--agent", "constant", "--subject", "who"], "subject is column 'who', which .* has not"),
        (["--agent", "constant", "--reward", "side"], r"row 1 \(line 2\): reward 'side' is 'left', expected a finite"),
        (["--agent", "two_step"], "log has 1 states and 2 actions, expected 3 and 2"),
        (["--agent", "constant", "--chains", "0"], "num_chains is 0"),
        (["--agent", "constant", "--figure", "f.xyz"], "--figure is 'f.xyz', expected a name that ends in one of"),
    ],
)
def test_wrong_input_is_one_sentence(log, capsys, changed, message):
    assert main(["behaviour", str(log), *NAMES, *changed]) == 2
    said = capsys.readouterr().err.strip()
    assert len(said.splitlines()) == 1
    assert re.search(message, said), said


def test_every_model_by_name_describes_itself_and_takes_its_log():
    assert set(MODELS) == set(DESCRIPTIONS)
    for name, make in MODELS.items():
        states = 3 if name.startswith("two_step") else 1
        zero = np.zeros((1, 2), int)
        empty = ChoiceLog(zero, zero, zero.astype(float), zero, states=range(states), actions=("left", "right"))
        model = make(empty, Discounted(0.5))
        centre = {name: parameter.constrain(0.0) for name, parameter in model.parameters.items()}
        log_probs = np.asarray(model.policy(centre, model.init(centre), jnp.int32(0)))
        assert abs(np.exp(log_probs).sum() - 1.0) < 1e-6, name


def test_a_fit_is_no_stranger_to_the_plots():
    from bayes_mdp.experiments.plots.decision_plots import plot_learning_curve, plot_shrinkage

    for plot in (plot_learning_curve, plot_shrinkage):
        with pytest.raises(TypeError, match=r"posterior is .*, expected what bayes_mdp.behaviour.fit returns"):
            plot(3)
