"""Gaussian PSRL: its recursion and its noise against numpy, the frequencies of its actions."""

from typing import Any

import jax
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.agents import GaussianPSRL
from bayes_mdp.agents.psrl import noise_scales
from bayes_mdp.envs import deep_sea
from bayes_mdp.mdp import Discounted, Episodic, Problem, StateActionSpace
from bayes_mdp.models import dirichlet_normal
from tests.agents.value_problems import belief

H, S, A = 3, 3, 2
LEGAL = np.array([[True, True], [True, False], [True, True]])


def posterior(horizon=None) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
    """A belief, its concentrations, mean rewards and their variances; the row of state 2, action 1 is known, and the
    reward of state 0, action 0."""
    rng = np.random.default_rng(5)
    lead = () if horizon is None else (horizon,)
    concentration, known = rng.uniform(0.5, 4, (*lead, S, A, S)), np.zeros((*lead, S, A, S))
    concentration[..., 2, 1, :], known[..., 2, 1, 0] = 0.0, 1.0
    loc, variance = rng.uniform(size=(*lead, S, A)), rng.uniform(0.1, 0.4, (*lead, S, A))
    variance[..., 0, 0] = 0.0
    return belief(concentration, loc, variance, known=known, legal=LEGAL, horizon=horizon), concentration, loc, variance


def task(horizon=None):
    return Problem(StateActionSpace(S, A, horizon=horizon, legal=LEGAL), Episodic(H))


@jax.jit
def planned(key, agent, task, belief):
    return agent.plan(key, task, None, belief)[0].q, noise_scales(belief)


def by_numpy(concentration, loc, reward_noise, row_noise):
    """q of every step, [H N S A], for N draws of the noise [N *H S A]."""
    total = concentration.sum(-1, keepdims=True)
    rows = np.divide(concentration, total, out=np.zeros_like(concentration), where=total > 0)
    rows[..., 2, 1, 0] = 1.0
    number, q, value = len(reward_noise), [], np.zeros((len(reward_noise), S))
    rows, loc = np.broadcast_to(rows, (H, S, A, S)), np.broadcast_to(loc, (H, S, A))
    layers = [np.broadcast_to(x if x.ndim == 4 else x[:, None], (number, H, S, A)) for x in (reward_noise, row_noise)]
    for h in reversed(range(H)):
        ahead = (value @ rows[h].reshape(-1, S).T).reshape(number, S, A)
        now = loc[h] + layers[0][:, h] + ahead + (H - h - 1) * layers[1][:, h]
        q.append(np.where(LEGAL, now, -np.inf))
        value = q[-1].max(-1)
    return np.stack(q[::-1])


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("horizon", [pytest.param(None, marks=pytest.mark.slow), H])
def test_the_recursion_and_its_noise(horizon, key):
    """SPEC 2.7, with the normals that the library drew; what is known has no noise."""
    one, concentration, loc, variance = posterior(horizon)
    q, shown = planned(key, GaussianPSRL(0.7), task(horizon), one)
    z = [np.asarray(jax.random.normal(k, loc.shape)) for k in jax.random.split(key)]
    total = concentration.sum(-1)
    scales = np.sqrt(variance), np.divide(1.0, np.sqrt(total), out=np.zeros_like(total), where=total > 0)
    for ours, theirs in zip(shown, scales, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-12)
    noise = [0.7 * (sd * x)[None] for sd, x in zip(scales, z, strict=True)]
    expected = by_numpy(concentration, loc, *noise)[:, 0]
    np.testing.assert_allclose(q, expected, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_the_frequencies_of_the_first_action_are_those_of_numpy(key):
    """The best action of states 0 and 2 of step 0 in 2e5 draws, against 1e6 of numpy.

    Threshold 5.5 standard errors of the difference of two frequencies: false alarm 1e-7. Caught: a frequency off by
    .007. The twin has noise of transitions half as large.
    """
    number = 1_000_000
    one, concentration, loc, variance = posterior()
    draw = jax.jit(jax.vmap(lambda key: GaussianPSRL().plan(key, task(), None, one)[0].q[0]))
    ours = np.asarray(draw(jax.random.split(key, 200_000)))
    frequency = (ours[..., 1] > ours[..., 0]).mean(0)
    total = concentration.sum(-1)
    sd = np.divide(1.0, np.sqrt(total), out=np.zeros_like(total), where=total > 0)

    def off(factor):
        z = np.random.default_rng(2).standard_normal((2, number, S, A))
        q = by_numpy(concentration, loc, np.sqrt(variance) * z[0], factor * sd * z[1])[0]
        theirs = (q[..., 1] > q[..., 0]).mean(0)
        error = np.sqrt(theirs * (1 - theirs) * (1 / len(ours) + 1 / number))
        return np.max(np.where(error > 0, np.abs(frequency - theirs) / np.maximum(error, 1e-9), 0.0))

    assert off(1.0) < 5.5
    assert off(0.5) > 5.5


@pytest.mark.slow
def test_it_finds_the_goal_of_deep_sea(key):
    """L = 5, 5 seeds: the last 100 of 1000 episodes are worth half of the optimum at least (dithering: .03)."""
    prior = dirichlet_normal(concentration=0.2, scale=1.0, noise_scale=0.1)
    result = bm.run(
        GaussianPSRL(), deep_sea(5), prior=prior, objective=Episodic(5), num_episodes=1000, num_seeds=5, key=key
    )
    assert result["reward"].to_numpy()[:, -100:].mean() > 0.5


def test_bad_settings_are_refused(key):
    nothing: Any = object()
    with pytest.raises(ValueError, match=r"scale is -1\.0, expected"):
        GaussianPSRL(-1.0)
    with pytest.raises(TypeError, match="GaussianPSRL needs a posterior that has mean_mdp"):
        GaussianPSRL().check_belief(nothing)
    with pytest.raises(ValueError, match="objective is Discounted, expected Episodic for GaussianPSRL"):
        GaussianPSRL().init(key, Problem(task().space, Discounted(0.9)))
