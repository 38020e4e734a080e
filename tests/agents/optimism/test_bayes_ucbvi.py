"""Bayes-UCBVI: the quantile of a law that is known, for draws that are cheap; what is refused."""

from typing import Any, cast

import jax
import numpy as np
import pytest
from scipy import stats

from bayes_mdp.agents import BayesUCBVI
from bayes_mdp.mdp import AverageReward, Episodic, Problem, StateActionSpace
from tests.agents.optimism_problems import SD, uniform_belief


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_bayes_ucbvi_takes_a_quantile(level, key):
    """At the last step that of a normal reward.

    The level of the answer, F(q), has a standard error of sqrt(level (1 - level) / 20000): |z| < 5.5, false alarm below
    1e-7. Catches 0.02 in the level (0.0085 at 0.95).
    """
    agent = BayesUCBVI(20_000, quantile=level, pseudo_count=0.0, pseudo_reward=0.0)
    q = jax.jit(agent.values, static_argnums=2)(key, uniform_belief(True), Episodic(3))[..., 0]
    assert abs(stats.norm(1 + 10.0, SD).cdf(float(q[2, 1])) - level) < 5.5 * np.sqrt(level * (1 - level) / 20_000)


def test_what_it_cannot_use_is_refused(key):
    problem = Problem(StateActionSpace(2, 1), AverageReward())
    for make, kind, message in (
        (lambda: BayesUCBVI(cast(Any, 2.0)), TypeError, "num_draws is 2.0, expected an integer of at least 1"),
        (lambda: BayesUCBVI(quantile=1.0), ValueError, "quantile is 1.0, expected a number between 0 and 1"),
        (lambda: BayesUCBVI(pseudo_reward=np.nan), ValueError, "pseudo_reward is nan, expected a finite number"),
        (lambda: BayesUCBVI().init(key, problem), ValueError, "is AverageReward, expected Episodic for BayesUCBVI"),
        (
            lambda: BayesUCBVI().check_belief(uniform_belief(True).mdp),
            TypeError,
            "BayesUCBVI needs a posterior that has sample_next, got a MDP without sample_next",
        ),
    ):
        with pytest.raises(kind, match=message):
            make()
