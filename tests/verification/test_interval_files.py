"""Files of interval MDPs: what was written comes back; what is damaged is named, and never read as something else."""

import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.verification import interval_mdp, load_interval_mdp, robust_values, write_interval_mdp
from tests.verification.problems import random_model, random_problem

FORMATS = ("drn", "umb", "tra")
DRN = """// a comment
@type: MDP
@value_type: double-interval
@parameters

@reward_models
cost
@nr_states
3
@nr_choices
3
@model
state 0 [0.5] init
	action wait [[1, 1]]
		1 : [0.6, 0.8]
		2 : [1/5,0.4]
state 1 [0] done
	action 0 [0]
		1 : 1
state 2 [0]
	action 0 [0]
		2 : [1, 1]
"""


@pytest.mark.parametrize("form", FORMATS)
def test_what_was_written_comes_back(form, tmp_path):
    for number in range(8):
        model = random_model(number)
        write_interval_mdp(model, tmp_path / f"x.{form}")
        again = load_interval_mdp(tmp_path / f"x.{form}")
        for name in ("first_choice", "first_entry", "successor", "lower", "upper"):
            assert np.array_equal(getattr(model, name), getattr(again, name)), name
        assert np.array_equal(again.rewards["reward"], model.rewards["reward"])
        assert np.array_equal(again.labels["done"], model.labels["done"]) and again.initial == model.initial


@pytest.mark.parametrize("form", FORMATS)
def test_names_of_states_and_actions(form, tmp_path):
    """As model checkers take them; those of states are labels."""
    space = bm.StateActionSpace(2, 2, states=("well", "ill, badly"), actions=("do nothing", "treat"))
    rows = np.full((2, 2, 2), 0.5)
    model = interval_mdp(rows, rows, np.zeros((2, 2)), bm.Discounted(0.9), space=space, initial=np.array([0.0, 1.0]))
    write_interval_mdp(model, tmp_path / f"x.{form}")
    again = load_interval_mdp(tmp_path / f"x.{form}")
    assert again.state_names[:2] == ("well", "ill__badly") and set(again.labels) >= {"done", "well"}
    assert again.action_names[:2] == ("do_nothing", "treat")
    assert again.initial == 1


def test_a_text_of_another_program(tmp_path):
    """Comments, fractions, plain probabilities, rewards as intervals of a point, rewards of states."""
    (tmp_path / "x.drn").write_text(DRN)
    model = load_interval_mdp(tmp_path / "x.drn")
    assert model.rewards["cost"].tolist() == [1.5, 0.0, 0.0] and model.action_names[0] == "wait"
    assert model.lower.tolist() == [0.6, 0.2, 1.0, 1.0]
    assert robust_values(model, rows="least").initial == pytest.approx(0.6)


BAD_DRN = {
    "cut": (DRN[: DRN.index("state 2")], "has 2 states, expected 3"),
    "no model": (DRN[: DRN.index("@model")], "has no line '@model'"),
    "another kind": (DRN.replace("MDP", "CTMC"), "has @type: CTMC, expected MDP or DTMC"),
    "another value": (DRN.replace("double-interval", "parametric"), "has @value_type: parametric"),
    "parameters": (DRN.replace("@parameters\n", "@parameters\np q\n"), r"has parameters \(p q\)"),
    "no number": (DRN.replace("0.6, 0.8", "0.6, high"), "line 15 of .* has 'high', expected a number"),
    "half an interval": (DRN.replace("[0.6, 0.8]", "[0.6]"), r"line 15 of .* has '\[0.6\]', expected \[lower, upper\]"),
    "empty": (DRN.replace("0.6, 0.8", "0.8, 0.6"), r"state '0', action 'wait' to 'done' is \[0.8, 0.6\]"),
    "no row": (DRN.replace("0.6, 0.8", "0.9, 0.95"), "hold no distribution: their lower ends sum to 1.1"),
    "elsewhere": (DRN.replace("2 : [1/5", "9 : [1/5"), "line 16 of .* has '9', expected an integer from 0 to 2"),
    "order": (DRN.replace("state 1", "state 2", 1), "line 17 of .* is state 2, expected state 1"),
    "rewards": (DRN.replace("[[1, 1]]", "[1, 2]"), "line 14 of .* has 2 rewards, expected 1"),
    "interval of rewards": (DRN.replace("[[1, 1]]", "[[1, 2]]"), "intervals of rewards are not read"),
    "no start": (DRN.replace(" init", ""), "has 0 states with the label 'init'"),
    "nonsense": (DRN.replace("\t\t1 : 1\n", "\t\tgo there\n"), "line 19 of .* is 'go there', expected 'STATE :"),
    "twice": (DRN.replace("2 : [1/5", "1 : [1/5"), "has two intervals to 'done'"),
    "size": (DRN.replace("@nr_states\n3", "@nr_states\n-3"), "@nr_states of .* has '-3'"),
    "nothing": ("", "has no line '@model'"),
}


@pytest.mark.parametrize("case", BAD_DRN)
def test_a_bad_text_is_named(case, tmp_path):
    text, says = BAD_DRN[case]
    (tmp_path / "x.drn").write_text(text)
    with pytest.raises(ValueError, match=says):
        load_interval_mdp(tmp_path / "x.drn")


@pytest.mark.parametrize("form", FORMATS)
def test_damage_is_one_sentence(form, tmp_path):
    """Cut anywhere, or with bytes that are others: one sentence, or a model whose rows hold; no other exception."""
    rng = np.random.default_rng(0)
    write_interval_mdp(interval_mdp(*random_problem(3)), tmp_path / f"x.{form}")
    whole = (tmp_path / f"x.{form}").read_bytes()
    refused = 0
    for _ in range(120):
        damaged = bytearray(whole)
        if rng.integers(2):
            damaged = damaged[: rng.integers(len(whole))]
        else:
            for at in rng.integers(len(whole), size=rng.integers(1, 4)):
                damaged[at] = rng.integers(256)
        (tmp_path / f"x.{form}").write_bytes(damaged)
        try:
            load_interval_mdp(tmp_path / f"x.{form}")
        except ValueError as error:
            assert len(str(error)) < 500 and "\n" not in str(error)
            refused += 1
    assert refused > 60


def test_prism_needs_its_labels_and_rewards_of_choices(tmp_path):
    write_interval_mdp(random_model(0), tmp_path / "x.tra")
    rewards = tmp_path / "x.reward.trew"
    lines = rewards.read_text().splitlines()
    words = lines[2].split()
    rewards.write_text("\n".join([*lines[:2], " ".join([*words[:3], "99.5"]), *lines[3:]]))
    with pytest.raises(ValueError, match=r"expected one for all of a choice"):
        load_interval_mdp(tmp_path / "x.tra")
    (tmp_path / "x.lab").unlink()
    with pytest.raises(FileNotFoundError, match=r"x.lab' is not there, expected the labels"):
        load_interval_mdp(tmp_path / "x.tra")


def test_other_names(tmp_path):
    with pytest.raises(ValueError, match=r"expected a name that ends in .drn, .umb, .tra"):
        write_interval_mdp(random_model(0), tmp_path / "x.json")
    with pytest.raises(ValueError, match=r"expected a name that ends in .drn, .umb, .tra"):
        load_interval_mdp(tmp_path / "x.json")
    with pytest.raises(FileNotFoundError, match=r"which is not there"):
        load_interval_mdp(tmp_path / "none.drn")
