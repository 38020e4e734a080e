"""Variances of values take a policy by the labels of the posterior's space: the numbers are those of the array."""

import jax
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.agents.value_uncertainty import exact, moment_matching, monte_carlo, ube
from bayes_mdp.agents.value_uncertainty.exact_ube import exact_ube
from bayes_mdp.agents.value_uncertainty.moment_matching import return_variance

KEY, AIM = jax.random.key(0), bm.Episodic(2)
SPACE = bm.StateActionSpace(2, 2, states=("new", "worn"), actions=("run", "service"))
DATA = bm.Transitions([0, 1, 0, 1], [0, 1, 1, 0], [1.0, 0.0, 0.0, 1.0], [1, 0, 0, 1])
BY_LABEL = {"worn": {"run": 0.25, "service": 0.75}, "new": "run"}
DOORS = {
    "moment_matching": lambda posterior, policy: moment_matching.value_variance(posterior, policy, AIM),
    "ube": lambda posterior, policy: ube.solve(posterior, policy, AIM),
    "exact": lambda posterior, policy: exact.value_covariance(posterior, policy, AIM, allow_cycles=True),
    "return_variance": lambda posterior, policy: return_variance(posterior, policy, AIM),
    "by_draws": lambda posterior, policy: monte_carlo.by_draws(KEY, posterior, policy, AIM, num_draws=4),
    "exact_ube": lambda posterior, policy: exact_ube(KEY, posterior, policy, AIM, num_draws=4),
}


@pytest.fixture(scope="module")
def posterior():
    return bm.infer(KEY, bm.models.dirichlet_bernoulli(), DATA, space=SPACE)


@pytest.mark.parametrize("name", DOORS)
def test_by_label_is_by_array(name, posterior):
    door = DOORS[name]
    ours, theirs = (jax.tree.leaves(door(posterior, policy)) for policy in (BY_LABEL, SPACE.policy(BY_LABEL)))
    assert len(ours) == len(theirs) > 1
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match="policy has no action for 'worn', expected one for every state"):
        door(posterior, {"new": "run"})


def test_an_mdp_has_no_labels():
    mdp = bm.MDP(np.full((2, 2, 2), 0.5), np.zeros((2, 2)))
    with pytest.raises(TypeError, match=r"policy is a mapping, expected an array .* \(see StateActionSpace.policy\)"):
        bm.evaluate(mdp, {"new": "run", "worn": "run"}, AIM)  # type: ignore[arg-type] - the mistake
