"""PSRL in plain numpy, batched over seeds: the peer of `psrl.py`. One seed is a batch of one."""

from typing import Any

import numpy as np


def riverswim(env: Any, num_steps: int, every: int, num_seeds: int, discount: float = 0.95) -> np.ndarray:
    """Total rewards [N] on RiverSwim; Dirichlet(1), normal-gamma (0, 1, 2, 1), policy iteration, warm."""
    rng, seeds = np.random.default_rng(0), np.arange(num_seeds)
    cumulative = np.cumsum(np.asarray(env.mdp.transition_probs, float), -1)
    paid = np.asarray(env.reward_law.mean, float)
    n_states, n_actions = cumulative.shape[:2]
    shape = (num_seeds, n_states, n_actions)
    counts, n, mean, ss = np.zeros((*shape, n_states)), np.zeros(shape), np.zeros(shape), np.zeros(shape)
    policy, state, total = np.zeros(shape[:2], int), rng.integers(1, 3, num_seeds), np.zeros(num_seeds)
    for t in range(num_steps):
        if t % every == 0:
            rows, reward = _draw_normal_gamma(rng, counts, n, mean, ss)
            policy = _policy_iteration(rows, reward, discount, policy)
        action = policy[seeds, state]
        u = rng.random(num_seeds)
        next_state = (u[:, None] >= cumulative[state, action]).sum(-1)
        earned = paid[state, action, next_state]
        cell = (seeds, state, action)
        counts[(*cell, next_state)] += 1
        n[cell] += 1
        shift = earned - mean[cell]
        mean[cell] += shift / n[cell]
        ss[cell] += shift * (earned - mean[cell])
        total, state = total + earned, next_state
    return total


def _draw_normal_gamma(rng: Any, counts: Any, n: Any, mean: Any, ss: Any) -> tuple[np.ndarray, np.ndarray]:
    rows = rng.standard_gamma(1.0 + counts)
    rows /= rows.sum(-1, keepdims=True)
    weight = 1.0 + n
    rate = 1.0 + ss / 2 + n * mean**2 / (2 * weight)
    precision = rng.standard_gamma(2.0 + n / 2) / rate
    return rows, n * mean / weight + rng.standard_normal(n.shape) / np.sqrt(weight * precision)


def _policy_iteration(rows: np.ndarray, reward: np.ndarray, discount: float, policy: np.ndarray) -> np.ndarray:
    eye = np.eye(rows.shape[1])
    for _ in range(64):
        chosen = np.take_along_axis(rows, policy[:, :, None, None], 2)[:, :, 0]
        gain = np.take_along_axis(reward, policy[:, :, None], 2)[:, :, 0]
        values = np.linalg.solve(eye - discount * chosen, gain[..., None])[..., 0]
        q = reward + discount * np.einsum("nsaz,nz->nsa", rows, values)
        better = q.max(-1) > np.take_along_axis(q, policy[:, :, None], 2)[:, :, 0] + 1e-9
        if not better.any():
            break
        policy = np.where(better, q.argmax(-1), policy)
    return policy


def deep_sea(size: int, num_episodes: int, num_seeds: int, noise: float = 0.1) -> np.ndarray:
    """Total rewards [N] on [KL21]'s DeepSea; a Dirichlet(1) over the next layer, N(0, 1) rewards with known noise."""
    rng, seeds = np.random.default_rng(0), np.arange(num_seeds)
    shape = (num_seeds, size, size, 2)
    counts, n, total_reward = np.zeros((*shape, size)), np.zeros(shape), np.zeros(shape)
    total = np.zeros(num_seeds)
    for _ in range(num_episodes):
        values, policy = np.zeros((num_seeds, size)), np.zeros((num_seeds, size, size), int)
        for layer in reversed(range(size)):
            rows = rng.standard_gamma(1.0 + counts[:, layer])
            backup = np.einsum("nsaz,nz->nsa", rows, values) / rows.sum(-1)
            q = _draw_normal(rng, n[:, layer], total_reward[:, layer], noise) + backup
            policy[:, layer], values = q.argmax(-1), q.max(-1)
        column = np.zeros(num_seeds, int)
        for layer in range(size):
            action = policy[seeds, layer, column]
            mean = -0.01 / size * action + ((layer == size - 1) & (column == size - 1) & (action == 1))
            earned = mean + noise * rng.standard_normal(num_seeds)
            next_state = np.clip(column + 2 * action - 1, 0, size - 1)
            cell = (seeds, layer, column, action)
            counts[(*cell, next_state)] += 1
            n[cell] += 1
            total_reward[cell] += earned
            total, column = total + earned, next_state
    return total


def _draw_normal(rng: Any, n: np.ndarray, total: np.ndarray, noise: float) -> np.ndarray:
    precision = 1.0 + n / noise**2
    return total / noise**2 / precision + rng.standard_normal(n.shape) / np.sqrt(precision)


def chain(env: Any, horizon: int, num_episodes: int, num_seeds: int, noise: float = 0.1) -> np.ndarray:
    """Total rewards [N] in a stationary MDP, episodes of `horizon` steps; Dirichlet(1), N(0, 1) rewards."""
    rng, seeds = np.random.default_rng(0), np.arange(num_seeds)
    cumulative, reward = np.cumsum(np.asarray(env.mdp.transition_probs, float), -1), np.asarray(env.mdp.reward, float)
    n_states, n_actions = reward.shape
    shape = (num_seeds, n_states, n_actions)
    counts, n, total_reward = np.zeros((*shape, n_states)), np.zeros(shape), np.zeros(shape)
    total = np.zeros(num_seeds)
    for _ in range(num_episodes):
        rows = rng.standard_gamma(1.0 + counts)
        rows /= rows.sum(-1, keepdims=True)
        drawn = _draw_normal(rng, n, total_reward, noise)
        values, policy = np.zeros((num_seeds, n_states)), np.zeros((num_seeds, horizon, n_states), int)
        for step in reversed(range(horizon)):
            q = drawn + (rows.reshape(num_seeds, -1, n_states) @ values[..., None]).reshape(shape)
            policy[:, step], values = q.argmax(-1), q.max(-1)
        state = np.zeros(num_seeds, int)
        for step in range(horizon):
            action = policy[seeds, step, state]
            next_state = (rng.random(num_seeds)[:, None] >= cumulative[state, action, :-1]).sum(-1)
            cell = (seeds, state, action)
            counts[(*cell, next_state)] += 1
            n[cell] += 1
            total_reward[cell] += reward[state, action]
            total, state = total + reward[state, action], next_state
    return total
