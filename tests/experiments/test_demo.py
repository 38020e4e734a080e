"""`bayes-mdp demo`: what it says is true."""

import numpy as np
import pytest

from bayes_mdp.envs import from_gymnasium
from bayes_mdp.experiments import demo
from bayes_mdp.mdp import Discounted
from bayes_mdp.planning import evaluate


def test_the_true_value_is_that_of_the_planner():
    env = from_gymnasium(demo.ENV)
    value = evaluate(env.mdp, demo.POLICIES[demo.EVALUATED], Discounted(demo.DISCOUNT)).v
    assert demo._truth(env) == pytest.approx(float(np.asarray(env.mdp.initial) @ np.asarray(value)), abs=1e-6)
