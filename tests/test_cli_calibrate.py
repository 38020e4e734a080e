"""`bayes-mdp calibrate` and `fit --check`: what they pass on, exit codes, wrong input."""

import numpy as np
import pandas as pd
import pytest

from bayes_mdp.calibration.checks import checking as door
from bayes_mdp.cli import main
from bayes_mdp.mdp import Discounted, Episodic
from tests.calibration.simulated import checked

SIZES = ("--states", 2, "--actions", 2)
COLUMNS = ("--state", "s", "--action", "a", "--next-state", "s2", "--reward", "r")


@pytest.fixture
def log(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "log.csv"
    columns = {"s": rng.integers(2, size=9), "a": np.arange(9) % 2, "s2": rng.integers(2, size=9)}
    pd.DataFrame({**columns, "r": rng.normal(size=9)}).to_csv(path, index=False)
    return path


@pytest.fixture
def asked(monkeypatch):
    """The arguments of `check`, whose answer is made up: wrong where the seed is 1, an interrupt where it is 2."""
    seen = {}

    def check(key, prior, space, *, options, **more):
        seen.update(vars(options), **more, prior=prior, space=space)
        seed = int(np.asarray(door.jax.random.key_data(key))[-1])
        if seed == 2:
            raise KeyboardInterrupt
        return checked(50, scale=0.3 if seed == 1 else 1.0)

    monkeypatch.setattr(door, "check", check)
    return seen


def run(capsys, *arguments):
    code = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def calibrate(capsys, *arguments):
    return run(capsys, "calibrate", "dirichlet_normal_gamma", *arguments)


def refused(capsys, sentence, *arguments):
    code, _, error = calibrate(capsys, *arguments)
    assert code == 2 and sentence in error
    assert error.startswith("bayes-mdp: error: ") and error.count("\n") == 1, error


def test_the_objective_is_passed_on(capsys, asked):
    for given, objective in (
        (("--horizon", 3), Episodic(3)),
        (("--horizon", 3, "--discount", 0.5), Episodic(3, 0.5)),
        (("--discount", 0.5), Discounted(0.5)),
    ):
        assert calibrate(capsys, *SIZES, *given)[0] == 0 and asked["objective"] == objective


def test_the_verdict_is_printed_and_is_the_exit_code(capsys, asked, tmp_path):
    options = ("--simulations", 50, "--draws", 30, "--transitions", 20, "--method", "nuts", "--discount", 0.8)
    code, out, _ = calibrate(capsys, *SIZES, *options, "--figure", tmp_path / "check.png", "--ends")
    assert code == 0 and "calibrated as far as 50" in out and (tmp_path / "check.png").exists()
    assert asked["method"] == "nuts" and asked["objective"] == Discounted(0.8)
    assert (asked["num_simulations"], asked["num_draws"], asked["num_transitions"]) == (50, 30, 20)
    assert asked["space"].shape == (2, 2) and asked["space"].ends and asked["data"] is None
    code, out, _ = calibrate(capsys, *SIZES, "--seed", 1, "--horizon", 3, "--by-step")
    assert code == 1 and "NOT CALIBRATED" in out
    assert asked["objective"] == Episodic(3) and asked["space"].shape == (3, 2, 2) and asked["method"] == "auto"


def test_an_interrupt_is_130_and_says_what_is_kept(capsys, asked, tmp_path):
    code, _, error = calibrate(capsys, *SIZES, "--seed", 2, "--out", tmp_path / "check.nc")
    assert code == 130 and error == "bayes-mdp: interrupted; the same command resumes from what was finished\n"
    code, _, error = calibrate(capsys, *SIZES, "--seed", 2)
    assert code == 130 and error == "bayes-mdp: interrupted\n"


def test_a_log_gives_the_space_and_the_data(capsys, asked, log):
    code, out, _ = calibrate(capsys, "--log", log, *COLUMNS)
    assert code == 0 and "coverage" in out
    assert asked["data"].source == "log.csv" and asked["space"].shape == (2, 2) and asked["num_transitions"] is None


def test_fit_checks_around_its_log(capsys, asked, log):
    code, out, _ = run(capsys, "fit", log, *COLUMNS, "--check")
    assert code == 0 and "log evidence" in out and "Calibration of" in out
    assert asked["data"].source == "log.csv" and asked["objective"] is None and asked["method"] == "auto"
    code, _, _ = run(capsys, "fit", log, *COLUMNS, "--check", "--seed", 1)
    assert code == 1


def test_wrong_input_is_one_sentence(capsys, log, tmp_path):
    refused(capsys, "--states is missing")
    refused(capsys, "--actions is missing", "--states", 2)
    refused(capsys, "n_actions is 0", "--states", 2, "--actions", 0)
    refused(capsys, "num_simulations is 3", *SIZES, "--simulations", 3)
    refused(capsys, "--state names a column", *SIZES, "--state", "s")
    refused(capsys, "--by-step is given without --horizon", *SIZES, "--by-step")
    refused(capsys, "discount is 1.0", *SIZES, "--discount", 1)
    refused(capsys, "a folder that exists", *SIZES, "--out", tmp_path / "nowhere" / "check.nc")
    refused(capsys, "--transitions is given with --log", "--log", log, *COLUMNS, "--transitions", 2)
    refused(capsys, "--states: 'two' is no integer", "--states", "two", "--actions", 2)
    refused(capsys, "--action is missing", "--log", log, "--state", "s")
    refused(capsys, "nothing.csv", "--log", tmp_path / "nothing.csv", *COLUMNS)
    code, _, error = run(capsys, "calibrate", "flat", *SIZES)
    assert code == 2 and "prior is 'flat'" in error
    with pytest.raises(SystemExit) as stop:
        main(["calibrate", "sticky", "--method", "magic"])
    assert stop.value.code == 2


def test_list_names_the_methods(capsys):
    code, out, _ = run(capsys, "list")
    assert code == 0 and all(f"\n  {name} " in out for name in ("exact", "collapsed", "nuts", "svi", "laplace"))
