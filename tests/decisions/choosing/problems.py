"""Small problems of choice, and their answers by dense solves in plain numpy."""

from itertools import product
from typing import Any

import equinox as eqx
import jax
import numpy as np

from bayes_mdp.decisions.choosing.common_draws import CommonDraws, draws_of
from bayes_mdp.decisions.choosing.criteria import Criterion, Robust, needs_best, scored
from bayes_mdp.decisions.choosing.policy_search import Problem
from bayes_mdp.decisions.choosing.policy_set import PolicyLimits, PolicySet, policy_set
from bayes_mdp.inference.pair_draws import PairDraws, WholeDraws, draws_of_pairs, whole_draws
from bayes_mdp.mdp import MDP, Discounted, Objective, SparseMDP
from bayes_mdp.mdp.abilities import Sizes

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
    """Stacked MDPs; one reward [S, A] for all, or one each [W, S, A]. What a row lacks of one ends the episode."""
    with jax.enable_x64(True):
        wide = np.broadcast_to(reward, rows.shape[:-1])
        ends = np.maximum(1.0 - rows.sum(-1), 0.0)
        ends = jax.numpy.asarray(ends) if ends.max() > 1e-6 else None
        return MDP(jax.numpy.asarray(rows, float), jax.numpy.asarray(wide, float), end_probs=ends)


class Listed:
    """A belief whose draws are these MDPs, one after the other; every array has an axis of draws in front."""

    def __init__(self, mdps: MDP | SparseMDP) -> None:
        self.mdps = mdps

    def sizes(self) -> Sizes:
        """Those of each."""
        first = jax.tree.map(lambda x: np.asarray(x)[0], self.mdps)
        return Sizes(first.reward.shape, first.end_probs is not None, first.legal, first.initial)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> MDP | SparseMDP:
        """Not asked for: it gives pairs."""
        raise NotImplementedError

    def pair_draws(self, key: Any, needed: np.ndarray) -> PairDraws:
        """They begin anew with each stream."""
        listed, used = whole_draws(self.mdps), 0

        def more(count: int) -> WholeDraws:
            nonlocal used
            used += count
            return listed.take((slice(used - count, used),))

        return draws_of_pairs(more, needed, self.sizes())


def given_draws(mdps: MDP | SparseMDP, objective: Objective, *, initial: Any = None) -> CommonDraws:
    """Listed MDPs, equally likely, as draws."""
    belief: Any = Listed(mdps)
    return draws_of(jax.random.key(0), belief, objective, len(mdps.reward), initial=initial)


def worlds(indices: Any = slice(None)) -> CommonDraws:
    """The five worlds, or some of them, as draws."""
    return given_draws(mdps(ROWS[indices], REWARD), Discounted(GAMMA), initial=START)


def everything(n_states: int = 3, n_actions: int = 3) -> PolicySet:
    """The set of all policies."""
    return policy_set(PolicyLimits(), None, (n_states, n_actions), None, None)


def problem(draws: CommonDraws, criterion: Criterion) -> Problem:
    """The best policy of all by this criterion."""
    assert not isinstance(criterion, Robust)
    form = scored(criterion)
    return Problem(draws, form, everything(*draws.policy_shape[-2:]), draws.best() if needs_best(form) else None)


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


MOST = 24
"""The largest concentration of `DirichletRows`."""


class DirichletRows(eqx.Module):
    """Rows of independent Dirichlet laws with whole concentrations, known rewards: a belief that is drawn whole.

    A gamma variable is a sum of exponential ones, which compile in no time.
    """

    concentration: Any
    reward: Any

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> MDP:
        parts = jax.random.exponential(key, (*sample_shape, *self.concentration.shape, MOST))
        used = jax.numpy.arange(MOST) < jax.numpy.asarray(self.concentration)[..., None]
        weight = jax.numpy.sum(parts * used, -1)
        reward = jax.numpy.broadcast_to(jax.numpy.asarray(self.reward), weight.shape[:-1])
        return MDP(weight / weight.sum(-1, keepdims=True), reward)

    def mean_mdp(self) -> MDP:
        weight = jax.numpy.asarray(self.concentration, float)
        return MDP(weight / weight.sum(-1, keepdims=True), jax.numpy.asarray(self.reward))

    def visit_counts(self) -> Any:
        weight = jax.numpy.asarray(self.concentration, float)
        return (weight - 1).sum(-1)


def learnt(seed: int, n_states: int = 3, n_actions: int = 3, steps: int = 40) -> DirichletRows:
    """Flat rows after some transitions of random pairs of an MDP that the prior drew."""
    rng = np.random.default_rng(seed)
    truth = rng.dirichlet(np.ones(n_states), (n_states, n_actions))
    counts = np.ones((n_states, n_actions, n_states), int)
    for _ in range(steps):
        state, action = rng.integers(n_states), rng.integers(n_actions)
        counts[state, action, rng.choice(n_states, p=truth[state, action])] += 1
    return DirichletRows(np.minimum(counts, MOST), rng.normal(size=(n_states, n_actions)))


def true_probability(
    belief: DirichletRows, policy: np.ndarray, baseline: np.ndarray, start: np.ndarray, gamma: float, number: int
) -> float:
    """P(value of the policy >= that of the baseline) in fresh draws by numpy."""
    rng = np.random.default_rng(12345)
    weight = rng.standard_gamma(np.asarray(belief.concentration), (number, *belief.concentration.shape))
    rows = weight / weight.sum(-1, keepdims=True)
    values = []
    for probs in (policy, baseline):
        chains = np.eye(len(start)) - gamma * np.einsum("sa,wsaz->wsz", probs, rows)
        gains = np.einsum("sa,sa->s", probs, belief.reward)
        values.append(np.linalg.solve(chains, np.broadcast_to(gains[:, None], (number, len(start), 1)))[..., 0] @ start)
    return float(np.mean(values[0] >= values[1] - 1e-12))
