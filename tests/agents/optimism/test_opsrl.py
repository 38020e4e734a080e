"""OPSRL: the law of its values in closed form, for draws that are cheap; what is refused."""

import jax
import numpy as np
import pytest
from scipy import stats

from bayes_mdp.agents import OPSRL
from bayes_mdp.mdp import AverageReward, Problem, StateActionSpace
from tests.agents.optimism_problems import SD, largest, uniform_belief

NUMBER = 4000


def p_value(sample, law, number):
    """Kolmogorov-Smirnov against the largest of `number` draws of a law."""
    return stats.kstest(np.asarray(sample, float), lambda x: law.cdf(x) ** number).pvalue


def test_opsrl_takes_the_largest_draw(key):
    """At the last step q of state 1 is the largest of 3 normal rewards, at the step before of 3 such backups.

    Kolmogorov-Smirnov at 1e-6 on 4000 values: catches a distance of 0.042. The law of 2 draws, and of rewards without
    inflation, are shown to be caught.
    """
    agent = OPSRL(3, pseudo_count=2.0, pseudo_reward=5.0, inflation=4.0)
    q = np.asarray(largest(jax.random.split(key, NUMBER), uniform_belief(True), agent), float)
    asked = 2.0 + 10.0 * 4.0
    last = q[:, 2, 1] - 1.0 - asked
    assert p_value(last, stats.norm(0, 2 * SD), 3) > 1e-6
    assert p_value(last, stats.norm(0, 2 * SD), 2) < 1e-6 and p_value(last, stats.norm(0, SD), 3) < 1e-6
    # State 0 is paid nothing: what is left at step 1 is P(s' = 1), 3 draws of it, pseudo state one step to go.
    np.testing.assert_allclose(q[:, 2, 0], asked, rtol=1e-6)
    share = (q[:, 1, 0] - asked - 100.0 * 5.0 * 1.0 - q[:, 2, 0]) / (q[:, 2, 1] - q[:, 2, 0])
    sure = np.abs(q[:, 2, 1] - q[:, 2, 0]) > 0.5  # float32 of values of 500
    positive = share[sure & (q[:, 2, 1] > q[:, 2, 0])]
    assert p_value(positive, stats.uniform(), 3) > 1e-6 and p_value(positive, stats.uniform(), 2) < 1e-6
    # Two steps to go at the first one.
    assert (np.abs(q[:, 0, 0] - asked - 1000.0 - q[:, 1].mean(-1)) < 30.0).all()


def test_what_it_cannot_use_is_refused(key):
    problem = Problem(StateActionSpace(2, 1), AverageReward())
    for make, kind, message in (
        (lambda: OPSRL(0), ValueError, "num_draws is 0, expected an integer of at least 1"),
        (lambda: OPSRL(pseudo_count=-1.0), ValueError, "pseudo_count is -1.0, expected a finite number, zero or"),
        (lambda: OPSRL(inflation=0.0), ValueError, "inflation is 0.0, expected a finite number greater than zero"),
        (lambda: OPSRL().init(key, problem), ValueError, "objective is AverageReward, expected Episodic for OPSRL"),
        (
            lambda: OPSRL().check_belief(uniform_belief(True).mdp),
            TypeError,
            "OPSRL needs a posterior that has sample_next, got a MDP without sample_next",
        ),
    ):
        with pytest.raises(kind, match=message):
            make()
