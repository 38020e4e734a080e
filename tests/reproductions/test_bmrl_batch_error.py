"""The error of the published code, as a belief: against a transcription in numpy, and inside a compiled run."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

from bayes_mdp.agents import Greedy
from bayes_mdp.agents.common.replan import EverySteps
from bayes_mdp.experiments.rollout.execute import prepare
from bayes_mdp.experiments.run_config import RunConfig, RunOptions
from bayes_mdp.inference.conjugate.rewards import known_rewards
from bayes_mdp.inference.families.normal import NormalGammaBelief
from bayes_mdp.inference.route import infer
from bayes_mdp.mdp import MDP, Discounted, Environment, NormalReward, StateActionSpace, Transitions
from bayes_mdp.models import dirichlet_normal_gamma
from reproductions.bmrl.batch_error import BatchError, with_batch_error
from reproductions.bmrl.q_evolution import played
from reproductions.bmrl.summary_runs import agents_prior

pytestmark = pytest.mark.numerics

S, A = 3, 2
SPACE = StateActionSpace(S, A)
PRIOR = (0.0, 4.0, 3.0, 3.0)
learn = jax.jit(BatchError.update)


@pytest.fixture(scope="module")
def posterior() -> Any:
    return infer(jax.random.key(0), agents_prior(), space=SPACE)


def batch(generator, size, mean=0.5):
    """A block of transitions, and its parts."""
    state, action, following = (generator.integers(0, most, size) for most in (S, A, S))
    reward = generator.normal(mean, 1.0, size)
    return Transitions(state, action, reward, following), (state, action, following, reward)


def transcribed(belief, rewards, *, wrong):
    """Normal-gamma parameters after the rewards of one batch; `wrong`: with the second moment of the published code."""
    loc, count, shape, rate = belief
    n = len(rewards)
    if n == 0:
        return belief
    first = sum(rewards) / n
    second = sum(rewards) ** 2 / n if wrong else sum(r * r for r in rewards) / n
    rate += 0.5 * n * (second - first**2) + n * count * (first - loc) ** 2 / (2 * (count + n))
    return (count * loc + n * first) / (count + n), count + n, shape + n / 2, rate


@pytest.mark.parametrize("amount", [0.0, 1.0])
def test_batches_in_numpy(posterior, amount):
    """Four batches of eight, the last two of each masked; float32 sums on numbers of order one."""
    generator = np.random.default_rng(1)
    belief = with_batch_error(posterior, amount)
    expected = {cell: PRIOR for cell in np.ndindex(S, A, S)}
    weight = np.array([1.0] * 6 + [0.0] * 2)
    largest = 0
    for _ in range(4):
        data, (*cells, reward) = batch(generator, 8)
        belief = learn(belief, data, weight)
        for cell, before in expected.items():
            here = np.all([x == i for x, i in zip(cells, cell, strict=True)], axis=0) & (weight > 0)
            expected[cell] = transcribed(before, reward[here].tolist(), wrong=amount == 1.0)
            largest = max(largest, int(here.sum()))
    assert largest >= 2
    found = belief.posterior.reward
    assert isinstance(found, NormalGammaBelief)
    for cell, wanted in expected.items():
        parts = [np.asarray(x)[cell] for x in (found.loc, found.pseudo_count, found.concentration, found.rate)]
        np.testing.assert_allclose(parts, wanted, rtol=2e-5)
    assert belief.visit_counts().sum() == 24


def test_the_example_of_the_specification(posterior):
    """50 rewards of N(1, .25): the rate grows by 9.2, and by 1176 with the error.

    Both numbers belong to one sample: a mean of .979, and squared deviations of 14.85 in sum. .25 is the variance: the
    sum is then 12.25 +- 2.5 (49 degrees of freedom); were it the standard deviation, 3.1 +- .6.
    """
    mean, deviations = np.sqrt(1176 / (0.5 * 49 * 50 + 50 * 4 / 108)), 14.85
    reward = mean + np.sqrt(deviations / 50) * np.array([1.0, -1.0] * 25)
    zero = np.zeros(50, int)
    data = Transitions(zero, zero, reward, zero)
    rates = [
        float(np.asarray(learn(with_batch_error(posterior, amount), data).posterior.reward.rate)[0, 0, 0])
        for amount in (0.0, 1.0)
    ]
    np.testing.assert_allclose(rates, [3 + 9.2, 3 + 1176], rtol=1e-4)
    assert abs(deviations - 49 * 0.25) < 1.1 * 0.25 * np.sqrt(2 * 49)
    assert abs(deviations - 49 * 0.25**2) > 10 * 0.25**2 * np.sqrt(2 * 49)


def test_one_reward_in_a_batch_is_no_error(posterior):
    """One transition at a time: the same as the truth."""
    data, _ = batch(np.random.default_rng(2), 1)
    one = jax.tree.map(lambda x: x[0], data)
    wrong, true = (learn(with_batch_error(posterior, amount), one).posterior.reward for amount in (1.0, 0.0))
    np.testing.assert_allclose(wrong.rate, true.rate, rtol=1e-6)
    assert true.rate.max() > 3.0


class Guesses(eqx.Module):
    """An agent whose plans are random tables."""

    replan: Any = EverySteps(5)

    def init(self, key, problem):
        """Nothing."""

    def plan(self, key, problem, state, belief):
        """A random table."""
        return Greedy(jax.random.normal(key, problem.space.shape)), state


def test_a_batch_of_a_run_is_what_lies_between_two_plans(key):
    """One state, every reward 2, a plan every 5 of 15 steps, so each batch is of one action: the deviations add up to
    3 (10^2 - 5 2^2) = 240; in batches of 15 steps, 840; of one step, 0."""
    space = StateActionSpace(1, 2)
    mdp = MDP(np.ones((1, 2, 1)), np.full((1, 2), 2.0), initial=np.ones(1))
    env = Environment(mdp, NormalReward(mdp.reward))
    prior = dirichlet_normal_gamma(1.0, *PRIOR, rewards_on="outcome")
    belief = with_batch_error(infer(key, prior, space=space))
    options = RunOptions(space=space, num_checkpoints=1, progress=False)
    case = RunConfig(Guesses(), env, Discounted(0.9), key, belief, 15, None, 2, "oracle_run", options)
    reward, seen = played(prepare(case), watch=True)
    assert reward.tolist() == [30.0, 30.0]
    data = seen[-1][1].posterior.reward_cells.data
    assert data[:, 0].sum() == 15 and data[:, 2].sum() == pytest.approx(240.0)


def test_what_has_no_such_rewards_is_refused(posterior):
    with pytest.raises(TypeError, match="posterior is a BatchError, expected a ConjugatePosterior"):
        with_batch_error(with_batch_error(posterior))
    known = known_rewards(np.zeros((S, A, S)), by_outcome=True)
    with pytest.raises(TypeError, match="rewards of KnownRewards, expected normal-gamma"):
        with_batch_error(eqx.tree_at(lambda p: p.reward_cells, posterior, known))
    with pytest.raises(ValueError, match=r"amount is 0.5, expected 0 \(no error\) or 1"):
        with_batch_error(posterior, 0.5)
