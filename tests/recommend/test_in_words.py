"""What a value is, the prior and the key, in words."""

import jax
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.mdp import AverageReward, Discounted, Episodic, FirstExit
from bayes_mdp.recommend.in_words import key_in_words, prior_in_words, value_in_words

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


def test_priors_are_told_by_name(tmp_path):
    space = bm.StateActionSpace(2, 2)
    arrays = bm.infer(jax.random.key(0), bm.models.dirichlet_bernoulli(np.ones((2, 2, 2))), None, space=space)
    assert prior_in_words(arrays.program) == (
        "dirichlet_bernoulli (concentration an array (2, 2, 2), concentration1 1.0, concentration0 1.0, rewards_on "
        "state_action)"
    )
    bm.save(arrays, tmp_path / "p.bmdp")
    assert (
        prior_in_words(getattr(bm.load(tmp_path / "p.bmdp"), "program", None))
        == "not known: the posterior does not hold it"
    )

    def own(space):
        return bm.models.dirichlet_bernoulli()(space)

    assert prior_in_words(own) == "test_priors_are_told_by_name"
    assert prior_in_words(None) == "not known: the posterior does not hold it"


def test_a_key_in_words_makes_the_key_again():
    assert key_in_words(jax.random.key(7)) == "jax.random.key(7)"
    key = jax.random.split(jax.random.key(7))[1]
    kind, _, numbers = key_in_words(key).partition(" of ")
    data = np.array(numbers.split(", "), np.uint32)
    again = jax.random.wrap_key_data(jax.numpy.asarray(data), impl=kind)
    assert jax.random.bits(again) == jax.random.bits(key)
