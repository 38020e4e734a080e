"""Optimistic policy iteration: its variances and its loop against plain numpy from the equations."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.agents import AGENTS, VarianceOptimism
from bayes_mdp.agents.value_uncertainty.exact_ube import VARIANCES, policy_moments
from bayes_mdp.mdp import MDP, AverageReward, Discounted, Episodic, Problem, StateActionSpace
from tests.agents.value_problems import small

LEGAL = np.array([[True, True], [True, False], [True, True]])


def evaluated(rows, reward, policy, discount):
    """(q [S A], v [S]) of a policy by a dense solve."""
    at = np.arange(len(reward)), policy
    v = np.linalg.solve(np.eye(len(reward)) - discount * rows[at], reward[at])
    return reward + discount * rows @ v, v


def moments(draws, mean, policy, discount, variance, clip):
    """(Qbar, U) from the equations of the paper, pair by pair, next pair by next pair.

    draws: list of (rows [S A S], reward [S A]); mean: one such pair.
    """
    q, v = evaluated(mean[0], mean[1], policy, discount)
    own = [evaluated(rows, reward, policy, discount) for rows, reward in draws]
    if variance == "ensemble":
        values = np.stack([one[0] for one in own])
        return q, ((values - values.mean(0)) ** 2).sum(0) / (len(draws) - 1)
    local = np.zeros(q.shape)
    for s, a in np.ndindex(q.shape):
        for (rows, reward), (_, own_v) in zip(draws, own, strict=True):
            local[s, a] += (reward[s, a] + discount * rows[s, a] @ v - q[s, a]) ** 2 / len(draws)
            if variance == "exact":
                f = own_v - v
                average = sum(p * x for p, x in zip(rows[s, a], f, strict=True))
                spread = sum(p * (x - average) ** 2 for p, x in zip(rows[s, a], f, strict=True))
                # The rows of the tests have no end, so this is E_p[f^2] - E_p[f]^2.
                local[s, a] -= discount**2 * spread / len(draws)
    local = np.maximum(local, 0.0) if clip else local
    u, _ = evaluated(mean[0], local, policy, discount**2)
    return q, np.maximum(u, 0.0)


def arrays(seed, number, n_states=4, n_actions=2):
    """`number` random MDPs as (rows, reward), and another for the mean."""
    rng = np.random.default_rng(seed)
    make = lambda: (  # noqa: E731
        rng.dirichlet(np.full(n_states, 0.5), size=(n_states, n_actions)),
        rng.normal(size=(n_states, n_actions)),
    )
    return [make() for _ in range(number)], make()


def stacked(draws):
    return MDP(jnp.stack([x for x, _ in draws]), jnp.stack([y for _, y in draws]))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("clip", [True, False])
def test_the_variances_are_those_of_the_equations(variance, clip):
    """Mean and draws unrelated, so that every term counts; the three variances differ, so a wrong one is caught."""
    draws, mean = arrays(0, 3)
    policy, discount = np.array([1, 0, 1, 1]), 0.9
    q, u = policy_moments(
        stacked(draws), MDP(*mean), jnp.asarray(policy), Discounted(discount), variance=variance, clip=clip
    )
    expected = {name: moments(draws, mean, policy, discount, name, clip) for name in VARIANCES}
    np.testing.assert_allclose(q, expected[variance][0], rtol=1e-9)
    np.testing.assert_allclose(u, expected[variance][1], rtol=1e-9)
    for other in {*VARIANCES} - {variance}:
        assert np.max(np.abs(np.asarray(u) - expected[other][1])) > 0.1


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("variance", VARIANCES)
def test_episodes_are_the_layered_mdp(variance):
    """H steps with the step written into the state: the same numbers, undiscounted, by a plain loop over steps."""
    (draws, mean), horizon = arrays(1, 3), 3
    policy = np.random.default_rng(2).integers(0, 2, (horizon, 4))
    q, u = policy_moments(
        stacked(draws), MDP(*mean), jnp.asarray(policy), Episodic(horizon), variance=variance, clip=False
    )

    def unfolded(rows, reward):
        big = np.zeros((horizon + 1, 4, 2, horizon + 1, 4))
        pay = np.zeros((horizon + 1, 4, 2))
        for step in range(horizon):
            big[step, :, :, step + 1], pay[step] = rows, reward
        big[horizon, :, :, horizon] = np.eye(4)[:, None]  # the end: nothing is paid
        return big.reshape(-1, 2, 4 * (horizon + 1)), pay.reshape(-1, 2)

    whole = np.concatenate([policy.ravel(), np.zeros(4, int)])
    rate = 1 - 1e-12  # the unfolded chain never ends, but pays nothing there
    expected = moments([unfolded(*d) for d in draws], unfolded(*mean), whole, rate, variance, False)
    np.testing.assert_allclose(q, expected[0][: 4 * horizon].reshape(horizon, 4, 2), rtol=1e-6)
    np.testing.assert_allclose(u, expected[1][: 4 * horizon].reshape(horizon, 4, 2), rtol=1e-6, atol=1e-9)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("most", [1, 40])
def test_a_plan_is_the_loop(variance, most, key):
    """The same draws and first policy: improvements by a numpy loop until nothing changes, or as often as allowed."""
    posterior, objective, scale = small(legal=LEGAL), Discounted(0.8), 0.7
    problem = Problem(posterior.space, objective)
    agent = VarianceOptimism(variance, scale, num_draws=4, num_iterations=most)
    policy, state = agent.plan(key, problem, agent.init(key, problem), posterior)
    key_draws, key_policy = jax.random.split(key)
    batch, mean = posterior.sample(key_draws, (4,)), posterior.mean_mdp()
    draws = [(np.asarray(batch.transition_probs[i]), np.asarray(batch.reward[i])) for i in range(4)]
    whole = np.asarray(mean.transition_probs), np.asarray(mean.reward)
    actions = np.asarray(jax.random.categorical(key_policy, jnp.where(jnp.asarray(LEGAL), 0.0, -jnp.inf)))
    assert np.all(LEGAL[np.arange(3), actions])
    optimistic = np.zeros(LEGAL.shape)
    for _ in range(most):
        q, u = moments(draws, whole, actions, 0.8, variance, True)
        optimistic = np.where(LEGAL, q + scale * np.sqrt(u), -np.inf)
        before, actions = actions, optimistic.argmax(-1)
        if np.array_equal(before, actions):
            break
    np.testing.assert_allclose(policy.q, optimistic, rtol=1e-7)
    assert np.array_equal(policy.best, actions) and state is None


def test_without_optimism_it_is_policy_iteration(key):
    """Scale 0: the optimal plan of the mean MDP, whatever the first policy; a scale changes the values alone."""
    posterior, objective = small(), Discounted(0.8)
    problem = Problem(posterior.space, objective)
    best = bm.solve(posterior.mean_mdp(), objective)
    plans = jax.jit(jax.vmap(lambda k: VarianceOptimism(scale=0.0, num_draws=2).plan(k, problem, None, posterior)[0]))
    policy = plans(jax.random.split(key, 5))
    np.testing.assert_allclose(policy.q, np.broadcast_to(best.q, (5, 3, 2)), rtol=1e-4, atol=1e-5)
    assert np.array_equal(policy.best, np.broadcast_to(best.policy, (5, 3)))
    assert AGENTS["variance_optimism"] is VarianceOptimism


def test_first_policies_are_uniform(key):
    """One step without values: all legal actions tie, and the first policy is kept.

    Each of 4,000 plans draws 3 actions; a share of .5 is off by .0396 with a probability of 6e-7 (5 standard errors).
    """
    n = 4000
    space = StateActionSpace(3, 2, horizon=1)
    posterior = bm.infer(key, bm.models.known_rewards(0.0), None, space=space)
    problem = Problem(space, Episodic(1))
    agent = VarianceOptimism(num_draws=2)
    plan = jax.jit(jax.vmap(lambda k: agent.plan(k, problem, None, posterior)[0].best))
    share = np.asarray(plan(jax.random.split(key, n))).mean((0, 1))
    np.testing.assert_allclose(share, 0.5, atol=5 * 0.5 / n**0.5)


@pytest.mark.slow
@pytest.mark.parametrize("variance", VARIANCES)
def test_it_explores_deep_sea(variance, key):
    """6 columns: random play finds the goal once in 64 episodes; all 5 seeds find it in 60, and then keep to it."""
    goal = np.zeros((6, 6, 2), bool)
    goal[-1, -1, 1] = True
    prior, options = (
        bm.models.dirichlet_normal(1 / 6, 0.0, 1.0, 0.1),
        bm.experiments.RunOptions(target=goal, progress=False),
    )
    more: dict[str, Any] = {"num_episodes": 120, "num_seeds": 5, "key": key, "options": options}
    result = bm.run(VarianceOptimism(variance), bm.envs.deep_sea(6), prior=prior, objective=Episodic(6), **more)
    hits = result["target_visits"].to_numpy() > 0
    assert np.all(hits[:, :60].any(-1)) and np.all(hits[:, 60:].mean(-1) > 0.5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: VarianceOptimism("true"), "variance is 'true', expected"),
        (lambda: VarianceOptimism(scale=-1.0), r"scale is -1\.0, expected a finite number, zero or greater"),
        (lambda: VarianceOptimism(num_draws=1), "num_draws is 1, expected an integer of at least 2"),
        (lambda: VarianceOptimism(num_iterations=0), "num_iterations is 0, expected an integer of at least 1"),
        (
            lambda: VarianceOptimism().init(jax.random.key(0), Problem(StateActionSpace(2, 2), AverageReward())),
            "objective is AverageReward, expected Discounted or Episodic for VarianceOptimism",
        ),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ValueError, match=message):
        make()
