"""Loop against its transitions, written out."""

import numpy as np
import pytest

from bayes_mdp.envs import loop
from tests.envs.papers.test_papers import arrays, finite_horizon, optimal_gain

A = {0: 1, 1: 2, 2: 3, 3: 4, 4: 0, 5: 0, 6: 0, 7: 0, 8: 0}
B = {0: 5, 1: 2, 2: 3, 3: 4, 4: 0, 5: 6, 6: 7, 7: 8, 8: 0}


@pytest.mark.usefixtures("x64")
def test_every_transition_and_the_gain():
    env = loop()
    rows, reward, initial = arrays(env)
    for s in range(9):
        assert [rows[s, a, there[s]] for a, there in enumerate((A, B))] == [1, 1]
        assert reward[s].tolist() == [{4: 1, 8: 2}.get(s, 0)] * 2
    assert initial[0] == 1
    assert env.optimum == 0.4 == pytest.approx(optimal_gain(rows, reward))
    assert initial @ finite_horizon(rows, reward, 1000) == 400
    always_a = np.linalg.matrix_power(rows[:, 0], 5)[0]
    assert always_a[0] == 1  # the right loop has 5 steps: a gain of .2
