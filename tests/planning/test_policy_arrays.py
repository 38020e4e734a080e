"""Whatever names a policy becomes probabilities, or a sentence that says why not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.mdp import MDP, Discounted, Episodic
from bayes_mdp.planning.policy_arrays import policy_probs
from tests.planning.planning_problems import arrays, evaluate, make_mdp

MDP6 = make_mdp(*arrays("masked", 6))
FREE6 = MDP(MDP6.transition_probs, MDP6.reward)


class Lazy:
    """A policy object that takes action 1 more often the later it is."""

    def act(self, key, state, step):
        return jax.random.bernoulli(key, self._late(step)).astype(int)

    def log_prob(self, state, action, step):
        return jnp.log(jnp.where(action == 1, self._late(step), 1 - self._late(step)))

    def _late(self, step):
        return (step + 1) / 10


def test_actions_and_probabilities():
    np.testing.assert_array_equal(policy_probs(np.ones(6, int), MDP6), np.eye(2)[np.ones(6, int)])
    probs = np.tile([0.0, 1.0], (4, 6, 1))
    np.testing.assert_array_equal(policy_probs(probs, MDP6, horizon=4), probs)
    assert policy_probs(np.ones(6, int).tolist(), MDP6).shape == (6, 2)


def test_policy_objects():
    np.testing.assert_allclose(policy_probs(Lazy(), FREE6), np.tile([0.9, 0.1], (6, 1)), rtol=1e-6)
    steps = policy_probs(Lazy(), FREE6, horizon=3)
    np.testing.assert_allclose(steps[:, 0, 1], [0.1, 0.2, 0.3], rtol=1e-6)


class Table:
    """A policy object that knows its sizes."""

    def __init__(self, probs):
        self.probs = jnp.asarray(probs)
        self.shape = self.probs.shape

    def act(self, key, state, step):
        return jax.random.categorical(key, self.log_prob(state, slice(None), step))

    def log_prob(self, state, action, step):
        return jnp.log(self.probs[state, action] if self.probs.ndim == 2 else self.probs[step, state, action])


HALF = np.full((6, 2), 0.5)


@pytest.mark.parametrize(
    ("policy", "mdp", "horizon", "message"),
    [
        (Table(HALF), MDP6, None, r"policy\[0\] takes action 0, expected a legal action of the state"),
        (Lazy(), MDP6, 3, r"policy\[0, 0\] takes action 0, expected a legal action of the state"),
        (Table(0.8 * HALF), FREE6, None, r"policy\[0\] sums to 0\.8.*, expected a row that sums to 1"),
        (Table(np.nan * HALF), FREE6, None, r"policy\[0, 0\] is nan, expected a probability"),
        (Table(HALF[:5]), FREE6, None, r"policy is for \(5, 2\) states and actions, expected \(6, 2\)"),
        (Table(np.full((6, 3), 1 / 3)), FREE6, None, r"policy is for \(6, 3\) states and actions, expected \(6, 2\)"),
        (Table([HALF] * 3), FREE6, None, "policy has 3 steps, expected a policy that does not depend on the step"),
        (Table([HALF] * 3), FREE6, 6, "policy has 3 steps, expected 6, those of an episode"),
        (
            Table(HALF[0]),
            FREE6,
            None,
            r"policy.shape is \(2,\), expected \(states, actions\) or",
        ),
    ],
)
def test_bad_policy_objects(policy, mdp, horizon, message):
    with pytest.raises(ValueError, match=message):
        policy_probs(policy, mdp, horizon=horizon)


def test_rows_known_by_quadrature_are_normalised(x64):
    """Some policies know their probabilities to 1e-3; their rows still sum to one."""
    np.testing.assert_allclose(policy_probs(Table(1.002 * HALF), FREE6), HALF, rtol=1e-12)
    assert policy_probs(Table([HALF] * 3), FREE6, horizon=3).shape == (3, 6, 2)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (np.full(6, 2), r"policy\[0\] is 2, expected an action index from 0 to 1"),
        (np.zeros(6, int), r"policy\[0\] takes action 0, expected a legal action"),
        (np.zeros(5, int), r"policy has shape \(5,\), expected \(6,\) \(an action for every state\)"),
        (np.full((6, 3), 1 / 3), r"policy has shape \(6, 3\), expected \(6, 2\)"),
        (np.full((6, 2), 0.4), r"policy\[0\] sums to 0.8"),
        (np.full((6, 2), 0.5), r"policy\[0\] takes action 0, expected a legal action"),
        (np.full((6, 2), np.nan), r"policy\[0, 0\] is nan, expected a probability"),
        (np.ones((4, 6), int), r"policy has shape \(4, 6\), expected \(6,\)"),
    ],
)
def test_bad_policies(policy, message):
    with pytest.raises(ValueError, match=message.replace("a action", "an? action")):
        policy_probs(policy, MDP6)


def test_a_policy_of_no_number():
    with pytest.raises(TypeError, match="policy has dtype bool"):
        policy_probs(np.ones(6, bool), MDP6)


def test_traced_policies_are_not_looked_into():
    value = evaluate(MDP6, jnp.ones(6, int), Discounted(0.9))
    mixed = evaluate(MDP6, jnp.tile(jnp.array([0.0, 1.0]), (6, 1)), Discounted(0.9))
    np.testing.assert_allclose(value.v, mixed.v, rtol=1e-5)
    assert evaluate(MDP6, jnp.ones((7, 6), int), Episodic(7)).v.shape == (7, 6)
