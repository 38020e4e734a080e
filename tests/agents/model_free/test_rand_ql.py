"""RandQL against a plain transcription that is driven by the same random rates, and the law of the rates."""

from typing import Any, cast

import jax
import numpy as np
import pytest
from scipy import stats

import bayes_mdp as bm
from bayes_mdp.agents import RandQL
from bayes_mdp.agents.model_free import episodic_q
from bayes_mdp.envs import deep_sea
from bayes_mdp.mdp import Discounted, Episodic, Problem
from tests.agents.histories import LEGAL, A, H, S, history, learn, problem

J, KAPPA, PRIOR, LARGEST = 30, 1.5, 0.4, 2.0
SEEN = history(2)


@jax.jit
def cheap_rates(key, visits):
    """In place of `learning_rates`, whose law has a test of its own: it takes seconds to compile."""
    u = jax.random.uniform(key, (2, J))
    return u[0] ** visits, u[1] ** (1 / visits)


def loop(seen, words, *, sampled):
    """The public code of the first author, with the random numbers given; n0 kappa there is PRIOR here."""
    most = LARGEST * (H - np.arange(H))
    q_tilde = np.where(LEGAL, most[:, None, None], -np.inf) * np.ones((J, H, S, A))
    q_bar, n = q_tilde[0].copy(), np.zeros((H, S, A))
    key = jax.random.wrap_key_data(words, impl="threefry2x32")
    for time, (h, s, a, r, after, over) in enumerate(seen):
        n[h, s, a] += 1
        w, w_prior = cheap_rates(jax.random.fold_in(key, time), n[h, s, a])
        following = 0.0
        if not over and h < H - 1:
            following = q_tilde[:, h + 1, after].max(-1) if sampled else min(most[h + 1], q_bar[h + 1, after].max())
        target = np.asarray(w_prior) * (r + following) + (1 - np.asarray(w_prior)) * most[h]
        q_tilde[:, h, s, a] = (1 - np.asarray(w)) * q_tilde[:, h, s, a] + np.asarray(w) * target
        q_bar[h, s, a] = min(q_bar[h, s, a], q_tilde[:, h, s, a].max())
    return q_tilde, q_bar


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("sampled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_ensemble_is_that_of_the_loop(sampled, key, monkeypatch):
    def rates(key, visits, horizon, num, *, inflation, prior_transitions):
        assert (horizon, num) == (H, J)
        return cheap_rates(key, visits)

    monkeypatch.setattr(episodic_q, "learning_rates", rates)
    agent = RandQL(J, inflation=KAPPA, prior_transitions=PRIOR, max_reward=LARGEST, sampled=sampled)
    task = problem(layered=sampled)
    start = agent.init(key, task)
    state = learn(agent, task, start, SEEN)
    q_tilde, q_bar = loop(SEEN, start.words, sampled=sampled)
    np.testing.assert_allclose(np.moveaxis(state.temporary, -1, 0), q_tilde, rtol=1e-12)
    np.testing.assert_allclose(state.acting, q_bar, rtol=1e-12)
    tables = np.asarray(state.temporary if sampled else state.acting[..., None])
    shown = {np.asarray(agent.plan(k, task, state)[0].q).tobytes() for k in jax.random.split(key, 8)}
    assert shown <= {tables[..., j].tobytes() for j in range(tables.shape[-1])}
    assert (len(shown) > 1) == sampled


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_the_law_of_the_rates(key):
    """Kolmogorov-Smirnov of 3000 draws against scipy's Beta; false alarm 1e-7 each (4 tests). Catches a distribution
    function off by .05; the twin counts the visits before this one."""
    for visits, counted, agrees in ((1.0, 1.0, True), (30.0, 30.0, True), (1.0, 0.0, False)):
        laws = stats.beta((H + 1) / KAPPA, (visits + PRIOR) / KAPPA), stats.beta(visits + PRIOR, PRIOR / KAPPA)
        for law, draws in zip(laws, _rates(key, counted), strict=True):
            distance = stats.kstest(draws, law.cdf).statistic * np.sqrt(len(draws))
            assert (distance < 2.9) == agrees


def _rates(key, visits):
    draw = jax.jit(episodic_q.learning_rates, static_argnums=(2, 3))
    draws = [draw(k, visits, H, J, inflation=KAPPA, prior_transitions=PRIOR) for k in jax.random.split(key, 100)]
    return np.moveaxis(np.array(draws), 1, 0).reshape(2, -1)


@pytest.mark.slow
@pytest.mark.parametrize("sampled", [False, True])
def test_it_solves_deep_sea(sampled, key):
    """L = 8: the last 100 of 600 episodes of 5 seeds are worth .9 at least (the optimum is .99)."""
    env, objective = deep_sea(8), Episodic(8)
    result = bm.run(RandQL(sampled=sampled), env, objective=objective, num_episodes=600, num_seeds=5, key=key)
    assert result["reward"].to_numpy()[:, -100:].mean() > 0.9


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: RandQL(0), ValueError, "num_tables is 0, expected an integer of at least 1"),
        (lambda: RandQL(cast(Any, 2.0)), TypeError, r"num_tables is 2\.0"),
        (lambda: RandQL(inflation=0.0), ValueError, r"inflation is 0\.0, expected"),
        (lambda: RandQL(prior_transitions=-1.0), ValueError, r"prior_transitions is -1\.0, expected"),
        (lambda: RandQL(max_reward=np.inf), ValueError, "max_reward is inf, expected"),
        (
            lambda: RandQL().init(jax.random.key(0), Problem(problem(layered=False).space, Discounted(0.9))),
            ValueError,
            "objective is Discounted, expected Episodic for RandQL",
        ),
    ],
)
def test_bad_settings_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()
