"""Vector environments for tests: our DeepSea behind Gymnasium's interface, and one that counts."""

from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from bayes_mdp.envs import deep_sea_observed


class SeaVector(VectorEnv):
    """DeepSea without noise, restarted within the step that ended."""

    def __init__(self, size: int, num_envs: int) -> None:
        self.ours, self.num_envs = deep_sea_observed(size), num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.single_action_space: Any = Discrete(2)
        self.single_observation_space: Any = Box(0, 1, (size, size), np.uint8)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        keys = jax.random.split(jax.random.key(0), num_envs)  # not used by DeepSea without noise
        self._reset = jax.jit(lambda: jax.vmap(self.ours.reset)(keys))

        @jax.jit
        def step(state, action):
            out = jax.vmap(self.ours.step)(keys, state, action)
            fresh = jax.vmap(self.ours.reset)(keys)
            ended = out.terminated

            def pick(new, old):
                return jax.numpy.where(ended.reshape(-1, *(1,) * (new.ndim - 1)), new, old)

            state, seen = jax.tree.map(pick, fresh, (out.state, out.observation))
            return state, seen, out.reward, ended

        self._step = step

    def reset(self, *, seed=None, options=None):
        del seed, options
        self.state, seen = self._reset()
        return np.asarray(seen), {}

    def step(self, actions):
        self.state, seen, reward, ended = self._step(self.state, actions)
        ended = np.asarray(ended)
        return np.asarray(seen), np.asarray(reward), ended, np.zeros_like(ended), {}


class Counter(gymnasium.Env):
    """Counts its steps; observation (episode, step); ends after `length` steps, by a time limit or not.

    Args:
        length: of an episode.
        truncates: whether it is cut off, and not over.
        bug: what goes wrong at the fifth step of all: "nan", "shape", or "random" (start drawn without the seed).
    """

    def __init__(self, length: int = 3, truncates: bool = False, bug: str = "") -> None:
        self.observation_space: Any = Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space: Any = Discrete(3)
        self.length, self.truncates, self.bug = length, truncates, bug
        self.episode, self.all, self.start = -1, 0, 0.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode = 0 if seed is not None else self.episode + 1
        self.time, self.start = 0, float(self.np_random.random())
        if self.bug == "random":
            self.start = float(np.random.default_rng().random())
        return self._seen(), {}

    def step(self, action):
        self.time, self.all = self.time + 1, self.all + 1
        over = self.time >= self.length
        reward = float("nan") if self.bug == "nan" and self.all == 5 else 10.0 * self.episode + self.time
        seen = self._seen()
        if self.bug == "shape" and self.all == 5:
            seen = np.zeros(3, np.float32)
        return seen, reward, over and not self.truncates, over and self.truncates, {}

    def _seen(self):
        return np.array([self.episode + self.start, self.time], np.float32)


def counters(mode: AutoresetMode, num_envs: int = 2, **settings: Any) -> gymnasium.vector.SyncVectorEnv:
    """Side by side, with episodes of 3, 4, ... steps."""
    makers = [lambda i=i: Counter(3 + i, **settings) for i in range(num_envs)]
    return gymnasium.vector.SyncVectorEnv(makers, autoreset_mode=mode)
