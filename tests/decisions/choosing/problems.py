"""Small problems of choice, and their answers by dense solves in plain numpy."""

from itertools import product
from typing import Any

import equinox as eqx
import jax
import numpy as np

from bayes_mdp.decisions.choosing.common_draws import CommonDraws, given_draws
from bayes_mdp.decisions.choosing.criteria import Criterion, needs_best, scored
from bayes_mdp.decisions.choosing.deterministic_search import Problem
from bayes_mdp.decisions.choosing.policy_set import PolicyLimits, PolicySet, policy_set
from bayes_mdp.mdp import MDP, Discounted

GAMMA = 0.9
REWARD = np.array([[9, 6, 10], [10, 10, 0], [3, 4, 3]]) / 10
_WORLDS = """
442 280 055 271 046 424 316 127 613
442 451 271 271 163 631 316 280 019
442 370 145 271 541 145 316 325 901
442 316 901 271 415 271 316 532 172
442 163 424 271 325 712 316 118 631
"""
ROWS = np.array([[int(digit) for digit in word] for word in _WORLDS.split()]).reshape(5, 3, 3, 3) / 10
"""The five worlds of the reference example, [world, state, action, next state]; three states, three actions."""
START = np.eye(3)[0]
POLICIES = np.array(list(product(range(3), repeat=3)))


def mdps(rows: np.ndarray, reward: np.ndarray) -> MDP:
    """Stacked MDPs; one reward [S, A] for all, or one each [W, S, A]."""
    with jax.enable_x64(True):
        wide = np.broadcast_to(reward, rows.shape[:-1])
        return MDP(jax.numpy.asarray(rows, float), jax.numpy.asarray(wide, float))


def worlds(indices: Any = slice(None)) -> CommonDraws:
    """The five worlds, or some of them, as draws."""
    return given_draws(mdps(ROWS[indices], REWARD), Discounted(GAMMA), initial=START)


def everything(n_states: int = 3, n_actions: int = 3, stochastic: bool = False) -> PolicySet:
    """The set of all policies."""
    return policy_set(PolicyLimits(stochastic=stochastic), None, (n_states, n_actions), None, None)


def problem(draws: CommonDraws, criterion: Criterion) -> Problem:
    """The best policy of all by this criterion."""
    form = scored(criterion)
    return Problem(draws, form, everything(*draws.shape[-2:]), draws.best() if needs_best(form) else None)


def dense_value(rows: np.ndarray, reward: np.ndarray, probs: np.ndarray, gamma: float, start: np.ndarray) -> float:
    """start . (I - gamma P)^-1 r of one policy in one MDP."""
    p, r = np.einsum("sa,saz->sz", probs, rows), np.einsum("sa,sa->s", probs, reward)
    return float(start @ np.linalg.solve(np.eye(len(rows)) - gamma * p, r))


def dense_table(rows: np.ndarray, reward: np.ndarray, gamma: float, start: np.ndarray) -> np.ndarray:
    """[P, W] values of all deterministic policies, in the order of `itertools.product`."""
    n_states, n_actions = rows.shape[1:3]
    states, table = np.arange(n_states), []
    for choice in product(range(n_actions), repeat=n_states):
        chains = np.eye(n_states) - gamma * rows[:, states, choice]
        gains = np.broadcast_to(reward, rows.shape[:-1])[:, states, choice]
        table.append(np.linalg.solve(chains, gains[..., None])[..., 0] @ start)
    return np.array(table)


def lowest_mean(values: np.ndarray, level: float) -> float:
    """The mean of the lowest share `level`, by Rockafellar and Uryasev's maximum over the values themselves."""
    return max(float(y - np.maximum(y - values, 0.0).mean() / level) for y in values)


def exceeded(values: np.ndarray, level: float) -> float:
    """sup {y: P(value >= y) >= 1 - level}."""
    return max(float(y) for y in values if np.mean(values >= y) >= 1 - level - 1e-9)


def random_problem(seed: int, n_states: int, n_actions: int, num: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows [W, S, A, S] of Dirichlet draws and one reward."""
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.full(n_states, 0.5), (num, n_states, n_actions))
    return rows, rng.normal(size=(n_states, n_actions))


class DirichletRows(eqx.Module):
    """Rows of independent Dirichlet laws, known rewards: a conjugate belief that is drawn whole."""

    concentration: Any
    reward: Any
    counts: Any = None

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> MDP:
        rows = jax.random.dirichlet(key, jax.numpy.asarray(self.concentration), (*sample_shape, *self.reward.shape))
        return MDP(rows, jax.numpy.broadcast_to(self.reward, (*sample_shape, *self.reward.shape)))

    def mean_mdp(self) -> MDP:
        weight = jax.numpy.asarray(self.concentration)
        return MDP(weight / weight.sum(-1, keepdims=True), jax.numpy.asarray(self.reward))

    def visit_counts(self) -> Any:
        return jax.numpy.zeros(self.reward.shape) if self.counts is None else jax.numpy.asarray(self.counts)
