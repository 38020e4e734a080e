"""Policies by label as a table."""

from typing import Any

import numpy as np

from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.recommend.policy_table import policy_table

SPACE = StateActionSpace(2, 2, states=("new", "worn"), actions=("run", "service"))


def test_a_row_for_each_state():
    table = policy_table(SPACE, {"today": [[0.25, 0.75], [1.0, 0.0]], "chosen": np.array([0, 1])}, "wear")
    assert table.columns.tolist() == ["wear", "today", "chosen"]
    assert table.to_numpy().tolist() == [["new", "service 0.75, run 0.25", "run"], ["worn", "run", "service"]]


def test_a_row_for_each_step():
    """Where a policy depends on it; the other is repeated. One that says the same at every step has none."""
    both = {"today": [0, 1], "chosen": [[0, 0], [1, 0], [1, 1]]}
    table = policy_table(SPACE, both, "wear")
    assert table.columns.tolist() == ["step", "wear", "today", "chosen"]
    assert table["step"].tolist() == [0, 0, 1, 1, 2, 2]
    assert table["today"].tolist() == ["run", "service"] * 3
    assert table["chosen"].tolist() == ["run", "run", "service", "run", "service", "service"]
    same = policy_table(SPACE, {"chosen": [[0, 1]] * 5}, "wear")
    assert same.columns.tolist() == ["wear", "chosen"] and len(same) == 2


def test_a_policy_object_has_no_column():
    class Runs:
        def act(self, key, state, step):
            return 0

        def log_prob(self, state, action, step):
            return 0.0

    runs: Any = Runs()
    assert policy_table(SPACE, {"today": runs, "chosen": [0, 1]}, "wear").columns.tolist() == ["wear", "chosen"]
