"""`to_gymnasium`: an `Environment` as a Gymnasium environment: inversion on the host, in numpy and plain numbers."""

from bisect import bisect_right
from typing import NamedTuple, SupportsIndex

import gymnasium
import jax
import numpy as np
from gymnasium.utils import seeding
from jaxtyping import Array, Float, UInt32

from bayes_mdp.mdp import Environment, NormalReward, RewardLaw, SparseMDP
from bayes_mdp.utils.typing import Index, IntScalar
from bayes_mdp.utils.validation import as_index, check_count


def to_gymnasium(env: Environment, *, seed: int | None = None, max_episode_steps: int | None = None) -> "TabularEnv":
    """`env` as a Gymnasium environment, simulated on the host in numpy: about two microseconds a step.

    Observations and actions are indices (`Discrete`). An end of the MDP terminates; so does the last of the H steps of
    an MDP whose rows depend on the step, since nothing lies beyond. Where some actions are illegal,
    `info["action_mask"]` (int8 [A]) marks the legal ones of the state, and an illegal action is an error.
    `.environment` keeps `env`. Rewards of other laws than `NormalReward` are drawn with JAX, in batches.

    Args:
        env: what is simulated.
        seed: of the first `reset` that has none; None: of the operating system.
        max_episode_steps: episodes are truncated after so many steps; None: never.

    Raises:
        TypeError: `env` is no Environment.
        ValueError: `max_episode_steps` or `seed` is out of range.

    Example:
        >>> env = bm.envs.to_gymnasium(bm.envs.chain(), seed=0)
        >>> env.reset()[0]
        0
    """
    if not isinstance(env, Environment):
        raise TypeError(f"env is a {type(env).__name__}, expected an Environment")
    if max_episode_steps is not None:
        check_count("max_episode_steps", max_episode_steps)
    if seed is not None:
        check_count("seed", seed, 0)
    return TabularEnv(env, seed=seed, max_episode_steps=max_episode_steps)


_BATCH = 256


class Cell(NamedTuple):
    """A row, listed: `thresholds` are cumulative probabilities of all but the last of `outcomes` (S: the end)."""

    thresholds: list[float]
    outcomes: list[int]

    def pick(self, uniform: float) -> int:
        """The outcome of a uniform number; one of probability zero is never picked."""
        return self.outcomes[bisect_right(self.thresholds, uniform)]


class TabularEnv(gymnasium.Env):
    """See `to_gymnasium`, which makes it.

    Args:
        seed, max_episode_steps: as of `to_gymnasium`.

    Attributes:
        environment: the `Environment` that is simulated.
    """

    metadata: dict[str, object] = {"render_modes": []}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(
        self, environment: Environment, *, seed: int | None = None, max_episode_steps: int | None = None
    ) -> None:
        mdp = environment.mdp
        self.environment = environment
        self.observation_space = gymnasium.spaces.Discrete(mdp.n_states)
        self.action_space = gymnasium.spaces.Discrete(mdp.n_actions)
        self.render_mode = None
        self._limit = max_episode_steps
        self._n_states, self._n_actions, self._horizon = mdp.n_states, mdp.n_actions, mdp.horizon
        self._legal = None if mdp.legal is None else np.asarray(mdp.legal, np.int8)
        self._first = _cell(np.asarray(mdp.initial, np.float64), None)
        # Rows are listed at their first use: most of a large table is never visited.
        self._cells: dict[tuple[int, ...], Cell] = {}
        law = environment.reward_law
        self._rewards = NormalRewards(law) if isinstance(law, NormalReward) else DrawnRewards(law)
        self._state, self._step = -1, 0
        if seed is not None:
            self._np_random, self._np_random_seed = seeding.np_random(seed)

    def __str__(self) -> str:
        return f"<TabularEnv<{self.environment.name}>>"

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[int, dict[str, np.ndarray]]:
        """A new episode; with a `seed`, the random numbers start anew.

        Returns:
            The first state, one number, and a dictionary whose "action_mask" [A] says what is legal there.
        """
        super().reset(seed=seed, options=options)
        if seed is not None:
            self._rewards.forget()
        self._state, self._step = self._first.pick(self.np_random.random()), 0
        return self._state, self._info()

    def step(self, action: SupportsIndex) -> tuple[int, float, bool, bool, dict[str, np.ndarray]]:
        """One transition. Where it terminates, the observation is the state it left.

        Returns:
            The next state and the reward, one number each; whether the episode terminated, and whether it reached its
            limit; "action_mask" [A] as of `reset`.

        Raises:
            gymnasium.error.ResetNeeded: no episode goes on.
            ValueError, TypeError: the action is out of range or illegal in this state.
        """
        state, rng = self._state, self.np_random
        if state < 0:
            raise gymnasium.error.ResetNeeded("step was called where no episode goes on, expected reset() first")
        pair = (state, self._action(action))
        cell = pair if self._horizon is None else (self._step, *pair)
        row = self._cells.get(cell)
        if row is None:
            row = self._cells[cell] = self._row(cell)
        outcome = row.pick(rng.random())
        reward = self._rewards.draw(rng, cell, outcome)
        self._step += 1
        # The last of H steps terminates: nothing lies beyond it.
        terminated = outcome == self._n_states or self._step == self._horizon
        truncated = not terminated and self._step == self._limit
        next_state = state if outcome == self._n_states else outcome
        info = self._info(next_state)
        self._state = -1 if terminated or truncated else next_state
        return next_state, reward, terminated, truncated, info

    def _action(self, action: SupportsIndex) -> int:
        chosen = as_index("action", action, self._n_actions, "an action")
        if self._legal is not None and not self._legal[self._state, chosen]:
            raise ValueError(f"action is {chosen}, expected a legal action of state {self._state}")
        return chosen

    def _info(self, state: int | None = None) -> dict[str, np.ndarray]:
        if self._legal is None:
            return {}
        return {"action_mask": self._legal[self._state if state is None else state].copy()}

    def _row(self, cell: tuple[int, ...]) -> Cell:
        mdp = self.environment.mdp
        end = 0.0 if mdp.end_probs is None else np.asarray(mdp.end_probs)[cell]
        listed = isinstance(mdp, SparseMDP)
        row = np.asarray(mdp.probability if listed else mdp.transition_probs)[cell]
        names = np.asarray(mdp.successor)[cell] if listed else np.arange(self._n_states)
        return _cell(np.append(row, end).astype(np.float64), np.append(names, self._n_states))


def _cell(row: np.ndarray, names: np.ndarray | None) -> Cell:
    possible = np.flatnonzero(row > 0)
    cumulative = np.cumsum(row[possible])
    outcomes = possible if names is None else names[possible]
    # Relative to the total; the last outcome takes up the rounding error.
    return Cell((cumulative[:-1] / cumulative[-1]).tolist(), outcomes.tolist())


class NormalRewards:
    """Rewards of a `NormalReward`, by numpy."""

    def __init__(self, law: NormalReward) -> None:
        self._by_outcome = law.by_outcome
        self._mean = np.asarray(law.mean)
        self._scale = None if law.scale is None else np.broadcast_to(np.asarray(law.scale), self._mean.shape)

    def forget(self) -> None:
        """Nothing is kept."""

    def draw(self, rng: np.random.Generator, cell: tuple[int, ...], outcome: int) -> float:
        """One reward."""
        index = (*cell, outcome) if self._by_outcome else cell
        mean = self._mean.item(index)
        return mean if self._scale is None else mean + self._scale.item(index) * rng.standard_normal()


class DrawnRewards:
    """Rewards of any law: a batch of draws for a cell and an outcome, used up one by one."""

    def __init__(self, law: RewardLaw) -> None:
        self._law = law
        self._kept: dict[tuple[int, ...], list[float]] = {}

    def forget(self) -> None:
        """Start anew, with a new seed."""
        self._kept.clear()

    def draw(self, rng: np.random.Generator, cell: tuple[int, ...], outcome: int) -> float:
        """One reward."""
        buffer = self._kept.setdefault((*cell, outcome), [])
        if not buffer:
            # A key of JAX from the generator of Gymnasium, so that its seed decides.
            words = rng.integers(2**32, size=2, dtype=np.uint32)
            buffer.extend(np.asarray(_batch(self._law, words, cell, outcome), np.float64).tolist())
        return buffer.pop()


@jax.jit
def _batch(law: RewardLaw, words: UInt32[Array, "2"], cell: Index, outcome: IntScalar) -> Float[Array, " N"]:
    keys = jax.random.split(jax.random.wrap_key_data(words), _BATCH)
    return jax.vmap(lambda key: law.sample(key, cell, outcome))(keys)
