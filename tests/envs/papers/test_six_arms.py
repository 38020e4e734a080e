"""SixArms against its table, written out, and its published values."""

import numpy as np
import pytest

from bayes_mdp.envs import six_arms
from tests.envs.papers.test_papers import arrays, finite_horizon, optimal_gain, optimal_q

WIN, PAY = [1, 0.15, 0.10, 0.05, 0.03, 0.01], [50, 133, 300, 800, 1660, 6000]


@pytest.mark.usefixtures("x64")
def test_every_row_is_that_of_the_table():
    rows, reward, initial = arrays(six_arms())
    assert rows.shape == (7, 6, 7) and initial.tolist() == [1, 0, 0, 0, 0, 0, 0]
    for k in range(1, 7):
        room = {k: WIN[k - 1], 0: 1 - WIN[k - 1]}
        np.testing.assert_allclose(rows[0, k - 1], [room.get(z, 0) for z in range(7)], atol=1e-15)
        assert reward[0, k - 1] == 0
        for a in range(6):
            stays = a == k - 1 if k > 1 else a in (0, 1, 2, 3, 5)
            assert rows[k, a, k if stays else 0] == 1 and reward[k, a] == (PAY[k - 1] if stays else 0)


@pytest.mark.usefixtures("x64")
def test_the_published_values():
    env = six_arms()
    rows, reward, initial = arrays(env)
    assert env.optimum == 6000 == pytest.approx(optimal_gain(rows, reward, np.array([5, 4, 0, 0, 0, 0, 5])))
    centre = optimal_q(rows, reward, 0.95)[0]
    np.testing.assert_allclose(centre, [17291.6, 18065.2, 18110.7, 18156.2, 18601.8, 19159.7], atol=0.05)
    assert initial @ finite_horizon(rows, reward, 5000) == pytest.approx(6000 * 4900, rel=1e-4)
