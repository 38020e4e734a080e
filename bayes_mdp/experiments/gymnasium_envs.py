"""Gymnasium environments for `run`: opened, checked, all autoreset modes in one form; what is known of their MDP."""

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Bool, Int, Real

from bayes_mdp.envs import from_gymnasium
from bayes_mdp.envs.gymnasium.from_gymnasium import make_by_id
from bayes_mdp.experiments.describe import Json, describe, describe_by_name
from bayes_mdp.mdp import MDP, Environment, RewardLaw, SparseMDP

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.spaces import Discrete
    from gymnasium.vector import AutoresetMode, VectorEnv

    from bayes_mdp.experiments.run_config import GymnasiumEnv, GymnasiumSource


# Wrappers of Gymnasium that leave transitions and rewards as they are (a time limit is no part of the MDP).
_TRANSPARENT = (
    "TimeLimit",
    "OrderEnforcing",
    "PassiveEnvChecker",
    "RecordEpisodeStatistics",
    "RecordVideo",
    "HumanRendering",
)

Mask: TypeAlias = Bool[np.ndarray, " B"]
States: TypeAlias = Int[np.ndarray, " B"]
_STREAMS = (np.random.Generator, np.random.RandomState, random.Random)
_FIRST_DESCRIPTION: WeakKeyDictionary[object, Json] = WeakKeyDictionary()


class Step(NamedTuple):
    """One step of parallel environments, an entry for each.

    Args:
        next_state: of the transition, also where the episode is over.
        reward, terminated, truncated: of the transition.
        happened: False where the step only began a new episode (nothing to learn).
        begins: a new episode begins.
        observation: the state to act in next.
    """

    next_state: States
    reward: Real[np.ndarray, " B"]
    terminated: Mask
    truncated: Mask
    happened: Mask
    begins: Mask
    observation: States


class SingleEnv:
    """One environment with `Discrete` spaces; states and actions are numbered from 0."""

    num_envs: int | None = None

    def __init__(self, env: "gymnasium.Env") -> None:
        self.env = env
        self._states, self._actions = _spaces(env)
        # Spaces may begin at another number than 0.
        (self.n_states, self._first), (self.n_actions, self._offset) = map(_size, (self._states, self._actions))

    def reset(self, seed: int | None = None) -> int:
        """The first state of an episode.

        Raises:
            ValueError: the environment has other spaces than before.
        """
        observation, _ = self.env.reset(seed=seed)
        self._check_spaces()
        return int(observation) - self._first

    def step(self, action: int) -> tuple[int, float, bool, bool]:
        """Next state, reward, terminated, truncated."""
        observation, reward, terminated, truncated, _ = self.env.step(action + self._offset)
        return int(observation) - self._first, float(reward), bool(terminated), bool(truncated)

    def _check_spaces(self) -> None:
        states, actions = _spaces(self.env)
        for name, now, before in (
            ("action_space", actions, self._actions),
            ("observation_space", states, self._states),
        ):
            if now is not before and _size(now) != _size(before):
                raise ValueError(f"env.{name} is {now} after a reset, expected {before}, as at first")


class ParallelEnvs:
    """Parallel environments (a Gymnasium vector environment), whatever their autoreset mode."""

    def __init__(self, env: "VectorEnv") -> None:
        from gymnasium.vector import AutoresetMode

        self.env, self.num_envs = env, int(env.num_envs)
        self._states, self._actions = _spaces(env)
        (self.n_states, self._first), (self.n_actions, self._offset) = map(_size, (self._states, self._actions))
        self.mode = autoreset_mode(env)
        self._modes = AutoresetMode
        self._waiting = np.zeros(self.num_envs, bool)

    def reset(self, seed: int | None = None) -> States:
        """The first states."""
        observation, _ = self.env.reset(seed=seed)
        self._check_spaces()
        self._waiting[:] = False
        return self._from_zero(observation)

    def step(self, action: Int[np.ndarray, " B"], last: Mask) -> Step:
        """One step; where `last`, the episode ends with it.

        Raises:
            ValueError: the environment goes on there, and cannot be reset on its own.
        """
        observation, reward, terminated, truncated, info = self.env.step(action + self._offset)
        terminated, truncated = np.array(terminated, bool), np.array(truncated, bool)
        observation = self._from_zero(observation)
        # NEXT_STEP: the step after an end ignores the action and returns the first state of a new episode.
        next_state, happened, begins = observation, ~self._waiting, self._waiting.copy()
        # A row that only resets has no transition that could end.
        ended = (terminated | truncated) & happened
        cut = last & happened & ~ended
        if cut.any() and self.mode is not self._modes.DISABLED:
            raise ValueError(
                f"env[{int(np.argmax(cut))}] goes on after the last step of an episode of the objective, expected "
                f"max_episode_steps of its horizon at most, or autoreset_mode {self._modes.DISABLED}"
            )
        if self.mode is self._modes.SAME_STEP and ended.any():
            # SAME_STEP: the observation is already that of the new episode; the last state is in `info`.
            next_state = observation.copy()
            next_state[ended] = [int(x) - self._first for x in np.asarray(info["final_obs"])[ended]]
        step = Step(next_state, np.asarray(reward), terminated, truncated, happened, begins, observation)
        ended = ended | cut
        if ended.any():
            self._check_spaces()
        if self.mode is self._modes.NEXT_STEP:
            # The end is shown now, the first state after the next step.
            self._waiting = ended
            return step
        # DISABLED: reset here, at once, what is over or was cut.
        if self.mode is self._modes.DISABLED and ended.any():
            observation = self._from_zero(self.env.reset(options={"reset_mask": ended})[0])
        return step._replace(begins=ended, observation=observation)

    def _from_zero(self, observation: Int[np.ndarray, " B"]) -> States:
        """States from 0, in an array of our own (the environment may write into its own again)."""
        return np.array(observation) - self._first

    _check_spaces = SingleEnv._check_spaces


def open_env(env: "GymnasiumSource") -> SingleEnv | ParallelEnvs:
    """Open an environment: as it is, a vector environment, an id, or a function that makes one.

    Raises:
        TypeError: none of them. ValueError: an id that Gymnasium cannot make, or that would import a module; spaces
            that are not `Discrete`.
    """
    import gymnasium

    made = env
    if isinstance(env, str):
        remedy = "a function that makes it: lambda: gymnasium.make(...)"
        made = make_by_id(gymnasium.make, "env", env, import_module=False, otherwise=remedy)
    elif callable(env):
        made = env()
    if isinstance(made, gymnasium.vector.VectorEnv):
        return ParallelEnvs(made)
    if isinstance(made, gymnasium.Env):
        return SingleEnv(made)
    label = "env" if made is env else "env()"
    raise TypeError(
        f"{label} is a {type(made).__name__}, expected an Environment, or a Gymnasium environment, vector environment, "
        "id, or function that makes one"
    )


def describe_source(env: "GymnasiumSource | Sequence[Callable[[], gymnasium.Env]]") -> Json:
    """JSON values of the argument `env`: an id; functions by their code and all that it reaches.

    A vector environment is described by the functions that made its environments (they may live in other processes).
    Any other environment is described as it was at the first call: playing changes it, and the same one can go on. Its
    random generators are left out, since `reset` seeds them.
    """
    if isinstance(env, str):
        return env
    if isinstance(env, Sequence):
        return [describe(make, f"env[{i}]") for i, make in enumerate(env)]
    if callable(env):
        return describe(env, "env")
    try:
        description = _FIRST_DESCRIPTION.get(env)
    except TypeError:  # it has no weak references, or no hash
        return _describe_environment(env)
    if description is None:
        description = _FIRST_DESCRIPTION[env] = _describe_environment(env)
    return description


def _describe_environment(env: object) -> Json:
    # The wrappers from the outside in, then the functions that made the environments.
    inner = getattr(env, "unwrapped", env)
    makers = getattr(inner, "env_fns", None)
    if makers is None:
        return describe_by_name(env, "env", without=_STREAMS)
    layers = []
    while env is not inner:
        state = {name: x for name, x in vars(env).items() if name != "env"}
        layers.append(describe_by_name((type(env), state), f"env ({type(env).__name__})", without=_STREAMS))
        env = getattr(env, "env")  # noqa: B009 - of a wrapper
    factories = [describe(make, f"env.env_fns[{i}]") for i, make in enumerate(makers)]
    return {"type": type(inner).__name__, "makers": factories, "wrappers": layers}


def _spaces(env: "GymnasiumEnv") -> "tuple[Discrete, Discrete]":
    """Observation and action space of the environment (of each one of a vector environment).

    Raises:
        ValueError: one is not `Discrete`.
    """
    from gymnasium.spaces import Discrete

    single = "single_" if hasattr(env, "single_action_space") else ""
    spaces = [getattr(env, f"{single}{name}_space") for name in ("observation", "action")]
    for name, space in zip(("observation", "action"), spaces, strict=True):
        if not isinstance(space, Discrete):
            raise ValueError(f"env.{single}{name}_space is {space}, expected Discrete")
    return spaces[0], spaces[1]


def _size(space: "Discrete") -> tuple[int, int]:
    return int(space.n), int(space.start)


def autoreset_mode(env: "VectorEnv") -> "AutoresetMode":
    """The `AutoresetMode` of a vector environment.

    Raises:
        ValueError: it names none.
    """
    from gymnasium.vector import AutoresetMode

    mode = env.metadata.get("autoreset_mode")
    try:
        return AutoresetMode(mode)
    except ValueError as error:
        modes = ", ".join(f"{m!s}" for m in AutoresetMode)
        raise ValueError(f"env.metadata['autoreset_mode'] is {mode!r}, expected one of {modes}") from error


class Known(NamedTuple):
    """The true MDP and the law of its rewards, or None and why not; `ours`: it is simulated by this package."""

    mdp: MDP | SparseMDP | None
    why: str = ""
    ours: bool = False
    law: RewardLaw | None = None


def known_mdp(env: "GymnasiumEnv") -> Known:
    """The MDP of an environment, or of all environments of a vector environment if they have the same one."""
    import gymnasium

    if isinstance(env, gymnasium.Env):
        return _known(env)
    inner = getattr(env, "envs", None)
    if not inner:
        return Known(None, f"{type(env).__name__} does not show its environments")
    if env.unwrapped is not env:
        return Known(None, f"the wrapper {type(env).__name__} may change what is shown")
    # Parallel environments are one MDP if they share its table.
    first = inner[0].unwrapped
    all_alike = all(
        getattr(e.unwrapped, "environment", None) is getattr(first, "environment", None)
        and getattr(e.unwrapped, "P", None) == getattr(first, "P", None)
        for e in inner
    )
    return _known(inner[0]) if all_alike else Known(None, "the parallel environments differ")


def _known(env: "gymnasium.Env") -> Known:
    import gymnasium

    inner = env.unwrapped
    while env is not inner:
        name = type(env).__name__
        if name not in _TRANSPARENT or not type(env).__module__.startswith("gymnasium."):
            return Known(None, f"the wrapper {name} may change the table of the environment")
        assert isinstance(env, gymnasium.Wrapper)
        env = env.env
    ours = getattr(inner, "environment", None)
    if isinstance(ours, Environment):
        return Known(ours.mdp, ours=True, law=ours.reward_law)
    try:
        table = from_gymnasium(inner)
        return Known(table.mdp, law=table.reward_law)
    except ValueError as error:
        return Known(None, str(error))


def describe_env(source: "GymnasiumSource", env: "GymnasiumEnv", num_envs: int | None) -> dict[str, Json]:
    """JSON values: the argument of `run`, the name of the environment, how it was made, its wrappers."""
    import gymnasium

    inner = env.unwrapped
    wrappers, outer = [], env
    while isinstance(outer, (gymnasium.Wrapper, gymnasium.vector.VectorWrapper)):
        wrappers.append(type(outer).__name__)
        outer = outer.env
    spec = env.spec
    return {
        "source": describe_source(source),
        "code": None if spec is None else describe(type(inner), "env"),
        "type": f"{type(inner).__module__}.{type(inner).__qualname__}",
        "id": None if spec is None else spec.id,
        "arguments": None if spec is None else describe(dict(spec.kwargs)),
        "max_episode_steps": None if spec is None else spec.max_episode_steps,
        "wrappers": wrappers,
        "environment": describe(getattr(inner, "environment", None)),
        "num_envs": num_envs,
        "autoreset_mode": str(env.metadata.get("autoreset_mode")) if num_envs else None,
    }
