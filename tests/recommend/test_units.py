"""What a value is, in words."""

import pytest

from bayes_mdp.mdp import AverageReward, Discounted, Episodic, FirstExit
from bayes_mdp.recommend.units import value_in_words

EARNED, PRICE = {"state": "wear", "reward": "earned"}, {"cost": "price"}


@pytest.mark.parametrize(
    ("objective", "columns", "words"),
    [
        (Discounted(0.95), EARNED, "discounted sum of 'earned' over all steps to come (discount 0.95)"),
        (Episodic(20), EARNED, "sum of 'earned' over an episode of 20 steps"),
        (Episodic(20, 0.9), PRICE, "sum of minus 'price' over an episode of 20 steps, discount 0.9 a step"),
        (AverageReward(), {}, "mean of rewards per step in the long run"),
        (FirstExit(), {"state": "s"}, "sum of rewards until the end, undiscounted"),
    ],
)
def test_values_in_words(objective, columns, words):
    assert value_in_words(objective, columns) == words
