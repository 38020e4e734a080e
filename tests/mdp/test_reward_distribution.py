"""`Environment(mdp, distribution)`: the law of every cell, in every kind of simulation, and what does not fit.

Statistical: fixed keys, Kolmogorov-Smirnov or mean of 4,000 draws a cell, false-alarm rate 1e-7 a test (5.5 standard
errors); a neighbouring cell's law, whose mean is half a standard deviation away, is 30 standard errors off.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.stats import kstest

from bayes_mdp.agents import PSRL
from bayes_mdp.envs import to_gymnasium
from bayes_mdp.experiments import Actor, RunOptions, run
from bayes_mdp.experiments.rollout.simulator import simulator
from bayes_mdp.mdp import MDP, Environment, Episodic, NormalReward, SparseMDP, StateActionSpace
from bayes_mdp.mdp.environment import DistributionReward
from bayes_mdp.models import dirichlet_normal

S, A, H = 3, 2, 4
ROWS = np.random.default_rng(0).dirichlet(np.ones(S), (S, A))
ENDS = np.array([[0.2, 0.0], [0.0, 0.1], [0.3, 0.0]])
CELLS = np.arange(1.0, 1 + S * A).reshape(S, A) / 7
BY_OUTCOME = np.random.default_rng(1).normal(size=(S, A, S + 1))
START = np.eye(S)[0]
NUM, Z = 4_000, 5.5

LAWS = {
    "normal": (dist.Normal(CELLS, 0.5), CELLS),
    "one for all": (dist.Normal(0.3, 1.0), np.full((S, A), 0.3)),
    "by action": (dist.Normal(np.array([0.1, 0.6]), 0.2), np.broadcast_to([0.1, 0.6], (S, A))),
    "by state": (dist.Gamma(2.0, 1.0 / CELLS[:, :1]), np.broadcast_to(2 * CELLS[:, :1], (S, A))),
    "bernoulli": (dist.Bernoulli(CELLS / 2), CELLS / 2),
    "expanded": (dist.Exponential(2.0).expand((S, A)), np.full((S, A), 0.5)),
    "categorical": (dist.Categorical(np.array([0.2, 0.3, 0.5])), np.full((S, A), 1.3)),
    "mixture": (
        dist.MixtureSameFamily(dist.Categorical(np.array([0.25, 0.75])), dist.Normal(np.array([0.0, 4.0]), 1.0)),
        np.full((S, A), 3.0),
    ),
}


def environment(law, reward, *, ends=False, sparse=False, horizon=None):
    rows = ROWS * (1 - ENDS[..., None]) if ends else ROWS
    reward, end_probs = np.array(reward), ENDS if ends else None
    if horizon is not None:
        rows, reward = (np.broadcast_to(x, (horizon, *x.shape)) for x in (rows, reward))
        end_probs = np.broadcast_to(ENDS, (horizon, S, A)) if ends else None
    if sparse:
        order = np.broadcast_to(np.array([2, 0, 1]), rows.shape)
        probs = np.take_along_axis(rows, order, -1)
        return Environment(SparseMDP(order, probs, reward, end_probs=end_probs, initial=START), law)
    return Environment(MDP(rows, reward, end_probs=end_probs, initial=START), law)


def outcome_law():
    """(law, the mean rewards that follow): normal, of another mean for every outcome, the end included."""
    rows = np.concatenate([ROWS * (1 - ENDS[..., None]), ENDS[..., None]], -1)
    return dist.Normal(BY_OUTCOME, 0.1).to_event(1), (rows * BY_OUTCOME).sum(-1)


@pytest.mark.few(3)
@pytest.mark.parametrize("name", LAWS)
def test_every_cell_has_its_law(name, key):
    """In a step and in the table of a compiled run: the same law in every cell."""
    law, mean = LAWS[name]
    env = environment(law, mean)
    keys = jax.random.split(key, NUM)
    full = law.expand((S, A)) if law.batch_shape != (S, A) else law
    variance = full.variance if name != "categorical" else np.full((S, A), 0.61)
    for where in (env.reward_law, simulator(env).reward_law):
        draws = jax.jit(lambda cell, w=where: jax.vmap(lambda k: w.sample(k, cell, 0))(keys))
        for cell in ((0, 0), (0, 1), (2, 1)):
            drawn = np.asarray(draws(cell), np.float64)
            error = np.sqrt(np.asarray(variance)[cell] / NUM)
            assert abs(drawn.mean() - mean[cell]) < Z * error, cell


def test_the_whole_law_not_its_mean_alone(key):
    """Kolmogorov-Smirnov of the rewards of `step` against scipy."""
    env = environment(*LAWS["by state"])
    rewards = jax.jit(jax.vmap(lambda k: env.step(k, 1, 0)[1]))(jax.random.split(key, NUM))
    assert kstest(np.asarray(rewards), "gamma", (2.0, 0.0, CELLS[1, 0])).pvalue > 1e-7


@pytest.mark.parametrize("sparse", [False, True])
def test_rewards_by_outcome(sparse, key):
    """The reward of a transition belongs to its outcome, the end included: within 6 of .1 around its mean."""
    law, mean = outcome_law()
    env = environment(law, mean, ends=True, sparse=sparse)
    assert isinstance(env.reward_law, DistributionReward)
    next_state, reward, over = jax.jit(jax.vmap(lambda k: env.step(k, 2, 0)))(jax.random.split(key, 500))
    outcome = np.where(over, S, next_state)
    assert len(set(outcome)) == S + 1
    assert np.abs(np.asarray(reward) - BY_OUTCOME[2, 0, outcome]).max() < 0.6


@pytest.mark.parametrize("horizon", [pytest.param(None, marks=pytest.mark.slow), H])
def test_run_actor_and_gymnasium(horizon):
    """All three simulate it; a run earns what the same normal law as `NormalReward` earns, on average.

    A mean over 240 episodes of 4 rewards with standard deviation .4 or less: 5.5 standard errors of the difference are
    .4 at most. Without rewards the mean would be off by 2.
    """
    env = environment(dist.Normal(CELLS, 0.1), CELLS, horizon=horizon)
    space = StateActionSpace(S, A, horizon=horizon)
    prior, objective = dirichlet_normal(noise_scale=0.1), Episodic(H)
    options = RunOptions(space=space, progress=False)
    more = {"prior": prior, "objective": objective, "num_episodes": 30, "num_seeds": 8, "options": options}
    plain = Environment(env.mdp, NormalReward(env.mdp.reward, 0.1))
    results = [run(PSRL(), each, key=jax.random.key(0), **more) for each in (env, plain)]
    totals = [float(result.reward.mean()) for result in results]
    assert totals[0] > 1.0 and abs(totals[0] - totals[1]) < 0.4
    gym, actor = to_gymnasium(env), Actor(PSRL(), space, objective=objective, key=jax.random.key(0), prior=prior)
    observation, _ = gym.reset(seed=0)
    actor.reset(observation)
    rewards = []
    for _ in range(H):
        action = actor.act(observation)
        following, reward, over, cut, _ = gym.step(action)
        rewards.append(float(reward) - CELLS[observation, action])
        actor.observe(observation, action, reward, following, over, cut)
        observation = following
    assert np.abs(rewards).max() < 0.6 and np.std(rewards) > 0


SHAPES = [dist.Normal(np.zeros(5), 1.0), dist.Normal(np.zeros((S, A, S)), 1.0), dist.Normal(np.zeros((S, A, 7)), 1.0)]
SHAPES += [SHAPES[2].to_event(1), dist.Normal(np.zeros((S, A)), 1.0).to_event(2)]


@pytest.mark.parametrize("law", SHAPES)
def test_a_shape_that_does_not_fit_is_refused(law):
    with pytest.raises(ValueError, match=r"^reward_law has batch shape .* expected a law of one number .*\(3, 2\)"):
        environment(law, np.zeros((S, A)))


def test_another_mean_is_refused():
    """The first pair is named; a difference of rounding is none, and one of 1e-4 is."""
    off = CELLS.copy()
    off[2, 1] += 1e-4
    with pytest.raises(ValueError, match=r"^reward_law has mean 0\.857143 at \[2, 1\].*, expected mdp\.reward\[2, 1\]"):
        environment(dist.Normal(CELLS, 1.0), off)
    environment(dist.Normal(np.float32(CELLS), 1.0), CELLS * (1 + 3e-7))
    law, mean = outcome_law()
    with pytest.raises(ValueError, match=r"^reward_law has mean .* at \[0, 0\]"):
        environment(law, mean + 0.1, ends=True)
    # Without an end the law has an entry for an outcome that is not there.
    with pytest.raises(ValueError, match=r"expected a law of one number .*\(3, 2, 3\)"):
        environment(law, mean)


def test_where_an_action_is_illegal_nothing_is_compared():
    legal = np.ones((S, A), bool)
    legal[1, 1] = False
    other = np.where(legal, CELLS, 9.0)
    assert Environment(MDP(ROWS, other, legal=legal, initial=START), dist.Normal(CELLS, 1.0))


def test_a_law_without_a_mean_is_refused():
    with pytest.raises(ValueError, match=r"^reward_law has no mean at \[0, 0\]"):
        environment(dist.Cauchy(0.0, 1.0), np.zeros((S, A)))


@pytest.mark.parametrize("law", [3, None, "normal", dist.Normal, np.zeros((S, A)), lambda key: 0.0])
def test_no_law_is_refused(law):
    with pytest.raises(TypeError, match=r"^reward_law is .*, expected a NumPyro distribution, or a law with sample"):
        environment(law, np.zeros((S, A)))


def test_traceable():
    """Made inside `jit`, where means have no values, and of traced parameters."""

    @jax.jit
    def reward(loc, key):
        env = Environment(MDP(ROWS, loc, initial=START), dist.Normal(loc, 1e-3))
        return env.step(key, 2, 1)[1]

    assert abs(float(reward(jnp.asarray(CELLS), jax.random.key(0))) - CELLS[2, 1]) < 0.01
