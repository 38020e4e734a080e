"""The bounds of K-learning: lemma 6 and its counterexample, the regret bound from its parts, the Gaussian bandit."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

import bayes_mdp as bm
from bayes_mdp.agents import PSRL, KLearning
from bayes_mdp.agents.common.mean_model import MeanModel
from bayes_mdp.agents.optimism.k_learning import minimise, schedule
from bayes_mdp.agents.optimism.k_model import KModel, soften
from bayes_mdp.mdp import MDP, Episodic, StateActionSpace
from bayes_mdp.models import dirichlet_bernoulli, random_environment


def pigeonhole_bound(number: int, rounds: Any, *, printed: bool = False) -> Any:
    """A bound on E sum_t sum_i p_i^t / max(n_i^t, 1), over rounds that each pick an index i by p^t: lemma 6 of [KL21].

    m (1 + log N) as printed, which holds for 1 / (n + 1); m (2 + log N) is true.
    """
    return number * ((1.0 if printed else 2.0) + np.log(rounds))


def bayes_regret_bound(
    episodes: Any, *, noise: float, horizon: int, num_states: int, num_actions: int, printed: bool = False
) -> Any:
    """A bound on the Bayes regret of K-learning after T = L N steps, theorem 1 of [KL21].

    With X = (noise^2 + L^2) S A T log A and l = log N the theorem prints 2 sqrt(X (1 + l)), (12). Its proof counts
    visits by n + 1 where the algorithm has max(n, 1), for which m (2 + log N) is true in place of lemma 6. What then
    holds is sqrt(X) (sqrt(1 + l) + (2 + l) / sqrt(1 + l)).
    """
    episodes = np.asarray(episodes, float)
    square = (noise**2 + horizon**2) * num_states * num_actions * episodes * horizon * np.log(num_actions)
    root = np.sqrt(1.0 + np.log(episodes))
    return np.sqrt(square) * (2.0 * root if printed else root + (root**2 + 1.0) / root)


def visited(indices: np.ndarray, number: int, *, plus_one: bool = False) -> float:
    """sum_t 1 / max(n, 1) (or n + 1) along a deterministic process, n counted before t."""
    counts, total = [0] * number, 0.0
    for i in indices:
        total += 1 / (counts[i] + 1 if plus_one else max(counts[i], 1))
        counts[i] += 1
    return total


def test_lemma_6_as_printed_is_broken_by_one_index_and_two_rounds():
    process = np.zeros(2, int)
    assert visited(process, 1) == 2.0 > pigeonhole_bound(1, 2, printed=True)
    assert visited(process, 1, plus_one=True) == 1.5 <= pigeonhole_bound(1, 2, printed=True)


@pytest.mark.parametrize("number", [1, 3, 10])
def test_the_repaired_lemma_holds_and_the_printed_one_for_n_plus_one(number):
    rng, broken = np.random.default_rng(number), 0
    for rounds in (1, 2, 5, 30, 1000):
        for process in (np.arange(rounds) % number, rng.integers(0, number, rounds), np.zeros(rounds, int)):
            assert visited(process, number) <= pigeonhole_bound(number, rounds)
            assert visited(process, number, plus_one=True) <= pigeonhole_bound(number, rounds, printed=True)
            broken += visited(process, number) > pigeonhole_bound(number, rounds, printed=True)
    assert (broken > 0) == (number == 1)  # of these processes


@pytest.mark.parametrize("printed", [False, True])
def test_the_regret_bound_is_the_sum_of_its_two_parts(printed):
    """Lemma 3: entropy sum_t tau_t L log A, and uncertainty X / (2 tau_N) times the pigeonhole sum over A S pairs."""
    sizes: Any = {"noise": 0.7, "horizon": 4, "num_states": 12, "num_actions": 3}
    square = 0.7**2 + 4**2
    for episodes in (1, 10, 1000):
        taus = np.asarray(schedule(np.arange(1, episodes + 1), **sizes))
        uncertainty = square / (2 * taus[-1]) * pigeonhole_bound(36, episodes, printed=printed)
        bound = bayes_regret_bound(episodes, printed=printed, **sizes)
        limit = np.sqrt(square * 36 * 4 * episodes * np.log(3) * (1 + np.log(episodes)))
        assert taus.sum() * 4 * np.log(3) <= limit * (1 + 1e-12)
        np.testing.assert_allclose(bound, limit + uncertainty)
    assert np.all(bayes_regret_bound([1, 10], **sizes) > bayes_regret_bound([1, 10], printed=True, **sizes))


def exp_utility(x, mean, sd, tau):
    """exp(x / tau) times the normal density."""
    return np.exp(x / tau - 0.5 * ((x - mean) / sd) ** 2) / np.sqrt(2 * np.pi * sd**2)


def bandit(mean: np.ndarray, sd: np.ndarray) -> tuple[float, float, np.ndarray]:
    """Optimal temperature, bound and K of independent Gaussian beliefs: an episode of one step from one state."""
    model = MeanModel(jnp.asarray(mean)[None, None], MDP(np.ones((1, len(mean), 1)), mean[None]), None, 1)
    best = minimise(KModel(model, jnp.asarray(0.5 * sd**2)[None, None]), jnp.ones(1))
    return float(best.tau), float(soften(best.k[0, 0], best.tau)[0]), np.asarray(best.k[0, 0])


@pytest.mark.usefixtures("x64")
def test_the_gaussian_bandit_is_its_closed_form():
    """Section 3.1: K is the certainty equivalent tau log E exp(Q / tau); equal arms have tau = sd / sqrt(2 log A)."""
    mean, sd = np.array([0.0, 0.5, -0.2]), np.array([1.0, 0.2, 2.0])
    tau, bound, k = bandit(mean, sd)
    for m, s, found in zip(mean, sd, k, strict=True):
        peak = m + s**2 / tau
        integral = quad(exp_utility, peak - 12 * s, peak + 12 * s, args=(m, s, tau), epsabs=0, epsrel=1e-13)[0]
        np.testing.assert_allclose(found, tau * np.log(integral), rtol=1e-12)
    best: Any = minimize_scalar(
        lambda t: t * logsumexp((mean + sd**2 / (2 * t)) / t), bounds=(0.1, 5), method="bounded"
    )
    np.testing.assert_allclose(bound, best.fun, rtol=1e-12)
    tau, bound, _ = bandit(np.zeros(3), np.full(3, 3.0))
    np.testing.assert_allclose(tau, 3 / np.sqrt(2 * np.log(3)), rtol=1e-14)
    np.testing.assert_allclose(bound, 3 * np.sqrt(2 * np.log(3)), rtol=1e-14)


@pytest.mark.slow
def test_the_bayes_regret_is_below_the_repaired_bound(key):
    """Bandits of two Bernoulli arms under uniform priors: 50 of them, 4000 episodes of one step.

    Means over seeds at 5 standard errors: false alarm below 1e-6 (measured: 6 to 12 times below the bound at 100
    seeds). What is surely caught loses more than the bound at the end, 0.134 an episode: a twin that plays uniformly,
    1/6, is. The optimal temperature loses less than the schedule (measured: 17 +- 0.9 against 37 +- 2.1).
    """
    space, episodes = StateActionSpace(1, 2, horizon=1), 4000
    prior = dirichlet_bernoulli()
    env = random_environment(jax.random.key(0), prior, space, initial=np.array([1.0]))
    bound = bayes_regret_bound(np.arange(1, episodes + 1), noise=0.5, horizon=1, num_states=1, num_actions=2)
    options: Any = {"prior": prior, "objective": Episodic(1), "num_episodes": episodes, "num_seeds": 50, "key": key}
    agents = {
        "optimal": KLearning(noise=0.5),
        "schedule": KLearning("schedule", noise=0.5),
        "psrl": PSRL(),
        "twin": KLearning(1e6, noise=0.5),
    }
    last = {}
    for name, agent in agents.items():
        regret = bm.run(agent, env, options=bm.experiments.RunOptions(regret="bayes"), **options)["regret"].to_numpy()
        above = regret.mean(0) + 5 * regret.std(0, ddof=1) / np.sqrt(len(regret))
        assert np.all(above < bound) == (name != "twin")
        last[name] = regret[:, -1].mean()
    assert last["optimal"] < last["schedule"]
