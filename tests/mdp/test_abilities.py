# pyright: reportArgumentType=false
"""An ability that a posterior has not is refused in one sentence."""

import pytest

from bayes_mdp.mdp import CanSample, HasVariances
from bayes_mdp.mdp.abilities import require_ability


class OnlySamples:
    """A user's own posterior."""

    def sample(self, key, sample_shape=()):
        """Nothing."""


def test_an_ability_that_is_there_is_accepted():
    require_ability(OnlySamples(), CanSample, "PSRL")


def test_what_is_missing_is_named():
    sentence = (
        "moment matching needs a posterior that has bellman_variance, expected_reward_variance, independent_rows, "
        "reward_variance, rewards_by_outcome, row_bound, transition_variance, variance_factor, "
        "got a OnlySamples without bellman_variance"
    )
    with pytest.raises(TypeError, match=sentence):
        require_ability(OnlySamples(), HasVariances, "moment matching")
