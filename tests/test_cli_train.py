"""`bayes-mdp train` and `evaluate`."""

import json
import sys

import pytest

from bayes_mdp.cli import main
from bayes_mdp.utils.files import write_json
from tests.planted_module import NAME, Planted

SMALL = ["--set", "trunk=mlp:8", "--set", "learning.batch_size=4", "--set", "learning.learning_starts=8"]


def test_train_then_evaluate(tmp_path, capsys):
    out = tmp_path / "run"
    command = ["train", "dqn", "deep_sea:4", "--steps", "120", "--seeds", "2", "--replay", "64", *SMALL]
    pictures = [tmp_path / "curve.png", tmp_path / "film.png"]
    drawn = ["--figure", str(pictures[0]), "--film", str(pictures[1])]
    assert main([*command, "--out", str(out), *drawn]) == 0
    said = capsys.readouterr().out
    assert "dqn in deep_sea:4, 2 seeds: mean score of the last tenth of 60 episodes" in said
    assert all(picture.stat().st_size > 5000 for picture in pictures)
    assert json.loads((out / "command.json").read_text())["env"] == "deep_sea:4"
    scores = tmp_path / "scores.nc"
    evaluated = ["evaluate", str(out), "--evaluate-steps", "32", "--evaluate-envs", "2", "--out", str(scores)]
    assert main(evaluated) == 0
    assert "seed 1: mean score" in capsys.readouterr().out and scores.is_file()
    assert main([*command, "--out", str(out), "--set", "learning.discount=0.5"]) == 2
    assert "agent.learning.discount is 0.99 there and 0.5 here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["train", "dqn", "deep_se:4", "--steps", "8"], "did you mean 'deep_sea'"),
        (["train", "dqn", "deep_sea:4", "--steps", "0"], "num_steps is 0"),
        (["train", "dqn", "deep_sea:4", "--steps", "8", "--replay", "1"], "replay_size is 1"),
        (
            ["train", "dqn", "deep_sea:4", "--steps", "8", "--out", "/nowhere/at/all"],
            "a folder in a folder that exists",
        ),
        (["evaluate", "nowhere"], "nowhere: no such folder"),
        (["evaluate", "."], "was not written by"),
    ],
)
def test_wrong_input_is_one_sentence(arguments, sentence, capsys):
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert sentence in err and err.count("\n") == 1


def test_environments_of_gymnasium(tmp_path, capsys):
    out = tmp_path / "run"
    command = ["train", "dqn", "gymnasium:CartPole-v1", "--steps", "200", "--envs", "2", "--replay", "64", *SMALL]
    assert main([*command, "--evaluate-every", "100", "--evaluate-steps", "100", "--out", str(out)]) == 0
    assert "dqn in gymnasium:CartPole-v1, 1 seed: mean score of the last tenth" in capsys.readouterr().out
    assert main(["evaluate", str(out), "--evaluate-steps", "100"]) == 0
    assert "seed 0: mean score" in capsys.readouterr().out
    assert main(["train", "dqn", "gymnasium:Pendulum-v1", "--steps", "8"]) == 2
    assert "expected a Discrete space" in capsys.readouterr().err


def test_evaluate_keeps_its_hands_off_the_training(tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["train", "dqn", "deep_sea:4", "--steps", "20", "--replay", "64", *SMALL, "--out", str(out)]) == 0
    played = ["evaluate", str(out), "--evaluate-steps", "8", "--evaluate-envs", "2", "--out"]
    capsys.readouterr()
    for name in ("curves.nc", "command.json", "checkpoints/20.npz"):
        content = (out / name).read_bytes()
        assert main([*played, str(out / name)]) == 2
        assert "which is what is read" in capsys.readouterr().err
        assert (out / name).read_bytes() == content
    for _ in range(2):
        assert main([*played, str(out / "scores.nc")]) == 0
    note = out / "command.json"
    kept = json.loads(note.read_text())
    capsys.readouterr()
    for changed, sentence in (
        (lambda: write_json(note, {"agent": "dqn"}), "has no 'set', expected the note of `bayes-mdp train"),
        (lambda: note.write_text(json.dumps({**kept, "set": 3})), "whose checksum is missing or does not fit"),
        (lambda: note.write_text("{"), "whose checksum is missing or does not fit"),
    ):
        changed()
        assert main(["evaluate", str(out)]) == 2
        error = capsys.readouterr().err
        assert sentence in error and error.count("\n") == 1 and "Traceback" not in error


def test_a_film_needs_a_map_before_the_training_begins(tmp_path, capsys):
    wanted = ["--out", str(tmp_path / "run"), "--film", str(tmp_path / "film.png")]
    assert main(["train", "dqn", "cartpole", "--steps", "8", *wanted]) == 2
    assert "--film is given for cartpole, which has no map" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_folder_imports_no_module(tmp_path, capsys, monkeypatch):
    """Neither of a training that names one, nor of a note that was forged; only what the person names."""
    planted, out = Planted(tmp_path, monkeypatch), tmp_path / "run"
    name = f"gymnasium:{NAME}:Seen-v0"
    command = ["train", "dqn", name, "--steps", "60", "--replay", "64", *SMALL, "--out", str(out)]
    try:
        assert main(command) == 0 and planted.imported, "it was named"
        planted.forget()
        played = ["evaluate", str(out), "--evaluate-steps", "20"]
        capsys.readouterr()
        assert main(played) == 2 and not planted.imported and NAME not in sys.modules
        error = capsys.readouterr().err
        assert f"which imports a module, expected it to be named here as well: --env {name}" in error
        assert error.count("\n") == 1
        assert main([*played, "--env", "gymnasium:CartPole-v1"]) == 2 and not planted.imported
        assert f"expected '{name}', in which" in capsys.readouterr().err
        for forged in (f"{NAME}:Seen-v0", f"gymnasium::{name}", f"atari:{NAME}:x", f"gymnax:{NAME}:x"):
            write_json(out / "command.json", {"agent": "dqn", "set": [], "env": forged, "envs": 1})
            assert main(played) == 2 and not planted.imported and capsys.readouterr().err.count("\n") == 1
        write_json(out / "command.json", {"agent": "dqn", "set": SMALL[1::2], "env": name, "envs": 1})
        assert main([*played, "--env", name]) == 0 and planted.imported
    finally:
        planted.forget()
