"""LMC-LSVI: the law of its weights against the recursion of the paper, its stationary law, targets, what it refuses."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.agents import LMCLSVI
from bayes_mdp.agents.rlsvi import LangevinState, langevin_law
from bayes_mdp.mdp import Discounted, Episodic, Problem
from tests.agents.histories import LEGAL, A, H, S, history, learn, problem

SEEN, NUMBER = history(0), 20_000
BETA, RIDGE, MAX_REWARD = 3.0, 0.7, 0.6
FEATURES = np.random.default_rng(5).normal(size=(S, A, 3))
THRESHOLD = 6.5
"""Standard errors: at most 100 numbers a test, false alarm below 1e-8."""


def agent_of(features, **options):
    more = {"inverse_temperature": BETA, "regularization": RIDGE, "max_reward": MAX_REWARD, **options}
    return LMCLSVI(features, **more)


def started(agent, task, weights=None):
    """The state after the history; the weights of the plan before, if they are given."""
    state = learn(agent, task, agent.init(jax.random.key(0), task), SEEN)
    return state if weights is None else LangevinState(state.data, jnp.asarray(weights), state.plans)


def drawn(agent, task, state, key):
    """(q, weights) of many plans."""

    def one(k):
        policy, after = agent.plan(k, task, state)
        return policy.q, after.weights

    q, weights = jax.jit(jax.vmap(one))(jax.random.split(key, NUMBER))
    return np.asarray(q), np.asarray(weights)


def regressions(features, q, *, layered):
    """Of every step: Lambda [d d] and, for every draw, b = sum_i phi_i y_i [N d], one transition at a time."""
    phi = np.eye(S * A).reshape(S, A, -1) if features is None else features
    size, found = phi.shape[-1], []
    for h in range(H):
        gram, score = RIDGE * np.eye(size), np.zeros((len(q), size))
        following = np.zeros((len(q), S)) if h == H - 1 else q[:, h + 1].max(-1)
        for step, s, a, reward, after, over in SEEN:
            if not layered or step == h:
                gram += np.outer(phi[s, a], phi[s, a])
                score += np.outer(reward + (0.0 if over else following[:, after]), phi[s, a])
        found.append((gram, score))
    return found


def moments(gram, score, start, eta, num_steps, *, noise):
    """Mean [N d] and covariance [d d] after the steps of w <- w - 2 eta (Lambda w - b) + sqrt(noise) xi, one by one."""
    mean, cov, move = np.broadcast_to(start, score.shape), np.zeros_like(gram), np.eye(len(gram)) - 2 * eta * gram
    for _ in range(num_steps):
        mean, cov = mean @ move + 2 * eta * score, move @ cov @ move + noise * np.eye(len(gram))
    return mean, cov


def worst(residual, cov):
    """The largest deviation of mean and covariance of normal residuals [N d] from 0 and `cov`, in standard errors."""
    num, spread = len(residual), np.diag(cov)
    mean = np.abs(residual.mean(0)) / np.sqrt(spread / num)
    error = np.sqrt((np.outer(spread, spread) + cov**2) / num)
    return max(mean.max(), (np.abs(residual.T @ residual / num - cov) / error).max())


CASES = [(None, True, 3, 0.25), (None, False, 7, 0.9), (FEATURES, True, 7, 0.8), (FEATURES, False, 5, 0.25)]


@pytest.mark.usefixtures("x64")
@pytest.mark.some(3)
@pytest.mark.parametrize(("features", "layered", "num_steps", "step_size"), CASES)
def test_the_law_of_the_weights_is_that_of_the_recursion(features, layered, num_steps, step_size, key):
    """20,000 plans, every step of the episode: mean and covariance after J steps of the recursion, taken one by one.

    Caught: a variance off by 7 %, a mean by .05 standard deviations. The twin with noise sqrt(eta / beta), and the one
    that starts from zero, are caught.
    """
    agent, task = agent_of(features, num_steps=num_steps, step_size=step_size), problem(layered=layered)
    size = S * A if features is None else 3
    start = np.random.default_rng(7).normal(scale=3.0, size=(H, size))
    q, weights = drawn(agent, task, started(agent, task, start), key)
    for h, (gram, score) in enumerate(regressions(features, q, layered=layered)):
        eta = step_size / np.linalg.eigvalsh(gram)[-1]
        mean, cov = moments(gram, score, start[h], eta, num_steps, noise=2 * eta / BETA)
        assert worst(weights[:, h] - mean, cov) < THRESHOLD
        assert worst(weights[:, h] - mean, cov / 2) > THRESHOLD
        forgetful = moments(gram, score, 0.0, eta, num_steps, noise=0.0)[0]
        assert worst(weights[:, h] - forgetful, cov) > THRESHOLD
        phi = np.eye(S * A).reshape(S, A, -1) if features is None else features
        linear = np.einsum("nd,sad->nsa", weights[:, h], phi)
        capped = np.where(LEGAL, np.minimum(linear, (H - h) * MAX_REWARD), -np.inf)
        np.testing.assert_allclose(q[:, h], capped, rtol=1e-12, atol=1e-12)
    assert (q == MAX_REWARD).any()  # the cap binds somewhere


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("features", [None, FEATURES], ids=["one feature a pair", "features"])
def test_with_small_steps_it_is_the_posterior_of_a_regression(features, key):
    """N(w_hat, Lambda^-1 / (2 beta)) by linear algebra: eta a thousandth of the stable range, J a million.

    Caught: a variance off by 7 %. The twin with noise sqrt(eta / beta) has half the variance and is caught.
    """
    agent, task = agent_of(features, num_steps=1_000_000, step_size=1e-3), problem(layered=True)
    q, weights = drawn(agent, task, started(agent, task), key)
    for h, (gram, score) in enumerate(regressions(features, q, layered=True)):
        cov = np.linalg.inv(gram) / (2 * BETA)
        residual = weights[:, h] - np.linalg.solve(gram, score.T).T
        assert worst(residual, cov) < THRESHOLD
        assert worst(residual, cov / 2) > THRESHOLD


def test_the_default_number_of_steps_forgets_the_start(key):
    """In float32, after 3 plans: what is left of the weights before is 1 / (4 H k) at most."""
    agent, task = agent_of(FEATURES), problem(layered=True)
    plan = jax.jit(lambda state, k: agent.plan(k, task, state)[1].weights)
    state = started(agent, task)
    one, other = (LangevinState(state.data, jnp.full((H, 3), w), state.plans + 2) for w in (0.0, 1000.0))
    moved = np.abs(np.asarray(plan(one, key)) - np.asarray(plan(other, key)))[-1]
    assert 0 < moved.max() <= 1000.0 * np.sqrt(3) / (4 * H * 3)


@pytest.mark.usefixtures("x64")
def test_one_coordinate_in_closed_form():
    """Slope 1 forgets at once; beyond it the sign alternates; a tiny slope loses no digits."""
    law: Any = lambda slope, steps: langevin_law(  # noqa: E731
        jnp.array([5.0]), jnp.ones(1), jnp.ones(1), step_size=slope / 2, num_steps=steps, inverse_temperature=2.0
    )
    np.testing.assert_allclose(law(1.0, 1), [[1.0], [np.sqrt(1 / 2)]])
    np.testing.assert_allclose(law(1.5, 3)[0], 1.0 + 4.0 * (-0.5) ** 3)
    np.testing.assert_allclose(law(1e-9, 4), [[5.0 - 4 * 4e-9], [np.sqrt(4 * 1e-9 / 2)]], rtol=1e-8)


@pytest.mark.slow
def test_it_solves_deep_sea(key):
    """L = 10: the last 100 of 400 episodes of 10 seeds are worth .9 at least (the optimum is .99), as of `RLSVI`.

    The numbers are those of RLSVI(0.1, 1.0): 1 / (2 beta) = .1^2, 2 beta lambda = 1.
    """
    agent = LMCLSVI(inverse_temperature=50.0, regularization=0.01)
    result = bm.run(agent, bm.envs.deep_sea(10), objective=Episodic(10), num_episodes=400, num_seeds=10, key=key)
    assert result["reward"].to_numpy()[:, -100:].mean() > 0.9


def test_bad_settings_are_refused():
    start: Any = lambda agent, objective: agent.init(  # noqa: E731
        jax.random.key(0), Problem(problem(layered=False).space, objective)
    )
    for make, message in [
        (lambda: LMCLSVI(step_size=1.0), r"step_size is 1\.0, expected a number between 0 and 1"),
        (lambda: LMCLSVI(inverse_temperature=0.0), r"inverse_temperature is 0\.0, expected a finite number greater"),
        (lambda: LMCLSVI(num_steps=0), "num_steps is 0, expected an integer of at least 1"),
        (lambda: LMCLSVI(np.ones((S, A))), r"features has shape \(4, 2\), expected \[state, action, feature\]"),
        (lambda: LMCLSVI(np.full((S, A, 1), np.nan)), r"features.* is nan, expected"),
        (lambda: start(LMCLSVI(np.ones((S, 3, 1))), Episodic(H)), r"features has shape \(4, 3, 1\), expected \(4, 2"),
        (lambda: start(LMCLSVI(), Discounted(0.9)), "objective is Discounted, expected Episodic for LMCLSVI"),
    ]:
        with pytest.raises(ValueError, match=message):
            make()
