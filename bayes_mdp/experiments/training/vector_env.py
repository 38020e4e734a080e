"""Environments for training on the host: Gymnasium's vector environments, checked, all autoreset modes in one form.

`atari` makes Atari 2600 with the settings of Mnih et al. (2015), through ale-py's vector environment (extra `atari`).
The last part finds deep agents and environments by their names on the command line: settings, observations.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import equinox as eqx
import numpy as np

from bayes_mdp.agents.neural import MLP, NEURAL_AGENTS, Trunk
from bayes_mdp.agents.neural.networks import MinAtarConv, NatureConv
from bayes_mdp.agents.neural.replay import Stack
from bayes_mdp.agents.neural.replay_learning import NeuralAgent, Spec
from bayes_mdp.envs import ENVS, OBSERVED
from bayes_mdp.envs.gymnasium.from_gymnasium import make_by_id
from bayes_mdp.envs.observed.gymnax_env import gymnax_env
from bayes_mdp.envs.observed.one_hot_observations import one_hot
from bayes_mdp.experiments.gymnasium_envs import autoreset_mode, describe_source
from bayes_mdp.experiments.registry_names import find_environment
from bayes_mdp.mdp import Environment, ObservedEnvironment
from bayes_mdp.utils.messages import did_you_mean, install
from bayes_mdp.utils.typing import ArrayLike
from bayes_mdp.utils.validation import check_count, check_name, first_index

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.vector import SyncVectorEnv, VectorEnv


Mask = np.ndarray


class HostStep(NamedTuple):
    """One step of parallel environments: arrays with an entry for each.

    Args:
        observation: the one to act on next.
        reward: for the learner.
        score: for the report: the reward without clipping.
        terminated, truncated: as the replay keeps them. Truncated: the next row does not show what followed.
        happened: false where the step only began a new episode.
        ended: an episode of the environment is over.
        started: for the learner an episode begins with `observation` (also where a life was lost).
        fresh: for the environment one does: no earlier frame belongs to the stack of `observation`.
    """

    observation: np.ndarray
    reward: np.ndarray
    score: np.ndarray
    terminated: Mask
    truncated: Mask
    happened: Mask
    ended: Mask
    started: Mask
    fresh: Mask


class Rules(NamedTuple):
    """How the rewards and ends of an environment are read.

    Args:
        clip_rewards: learn from rewards clipped to [-1, 1]; scores are reported as they are.
        lives: a lost life (`info["lives"]` fell, and is not 0) terminates for the learner; the game goes on.
        stack: how frames are stacked, if observations are stacks; the replay keeps each frame once. None: as they are.
    """

    clip_rewards: bool = False
    lives: bool = False
    stack: Stack | None = None


class HostEnv:
    """Environments that are stepped on the host; `host_env` makes them.

    Args:
        env: E environments of Gymnasium, stepped side by side.
        name: for tables and files.
        rules: as `host_env` makes them of its options.
        source: JSON values of what it was made of.
    """

    def __init__(self, env: "VectorEnv", name: str, rules: Rules, source: object = None) -> None:
        from gymnasium.vector import AutoresetMode

        self.env, self.name, self.rules, self.source = env, name, rules, source
        self.spec = _spec(env, name)
        self.num_envs = self.spec.num_envs
        first: Any = env.single_action_space  # `_spec` has checked that it is Discrete
        self._first_action = int(first.start)
        self.mode: Any = autoreset_mode(env)
        self._modes = AutoresetMode
        self._waiting = np.zeros(self.num_envs, bool)
        self._lives = np.zeros(self.num_envs, np.int64)
        self._last, self._steps = np.zeros(0), 0

    def reset(self, seed: int) -> np.ndarray:
        """First observations [E ...] of episodes; environment i has the seed `seed` + i.

        Raises:
            ValueError, TypeError: see `host_env`.
        """
        obs, info = self.env.reset(seed=seed)
        obs = self._check_and_copy(obs)
        self._waiting[:] = False
        if self.rules.lives:
            if "lives" not in info:
                raise ValueError(f"{self.name} gives no info['lives'], expected it where lives end episodes")
            self._lives = np.array(info["lives"], np.int64)
        self._check_stack(obs, np.ones(self.num_envs, bool))
        self._last = obs
        return obs

    def step(self, action: np.ndarray) -> HostStep:
        """One step of all environments; those whose episode is over begin another.

        Args:
            action: [E], of every environment.

        Raises:
            ValueError: a reward or an observation that is no number, an observation of another shape or type.
        """
        try:
            obs, reward, terminated, truncated, info = self.env.step(np.asarray(action, np.int64) + self._first_action)
        except ValueError as error:  # raised by Gymnasium, which stacks observations before they can be checked
            kind = f"shape {self.spec.observation_shape} and type {self.spec.observation_dtype}"
            why = " ".join(str(error).split())
            raise ValueError(
                f"{self.name} failed at step {self._steps} ({why}); every observation must have {kind}"
            ) from error
        obs, happened, waited = self._check_and_copy(obs), ~self._waiting, self._waiting.copy()
        # A row that only resets (NEXT_STEP) is no transition: its reward and ends do not count.
        score = self._numbers(np.where(happened, reward, 0))
        terminated, truncated = np.array(terminated, bool) & happened, np.array(truncated, bool) & happened
        # Where both are flagged the episode terminated: there is no value beyond to bootstrap from.
        truncated &= ~terminated
        ended = terminated | truncated
        lost = self._lives_lost(info, ended)
        if self.mode is self._modes.NEXT_STEP:
            # The next row holds the final observation, also after a truncation; that row itself is no transition.
            self._waiting, cut, fresh = ended, waited, waited
        else:
            # This row shows the next episode already: the final observation is lost, so the replay has to cut here.
            cut, fresh = truncated, ended
            if self.mode is self._modes.DISABLED and ended.any():
                obs = self._check_and_copy(self.env.reset(options={"reset_mask": ended})[0])
        self._check_stack(obs, fresh)
        self._last, self._steps = obs, self._steps + 1
        reward = np.clip(score, -1, 1) if self.rules.clip_rewards else score
        return HostStep(obs, reward, score, terminated | lost, cut, happened, ended, fresh | lost, fresh)

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _lives_lost(self, info: Mapping[str, object], ended: Mask) -> Mask:
        if not self.rules.lives:
            return np.zeros(self.num_envs, bool)
        lives = np.array(info["lives"], np.int64)
        # The last life ends the game, which `ended` says already.
        lost = (lives < self._lives) & (lives > 0) & ~ended
        self._lives = lives
        return lost

    def _numbers(self, reward: ArrayLike) -> np.ndarray:
        score = np.asarray(reward, np.float32)
        if not np.isfinite(score).all():
            (worst,) = first_index(~np.isfinite(score)) or (0,)
            raise ValueError(
                f"the reward of environment {worst} of {self.name} at step {self._steps} is {score[worst]}, expected "
                "a finite number"
            )
        return score

    def _check_and_copy(self, observation: ArrayLike) -> np.ndarray:
        """A copy of our own (the environment may write into its array again)."""
        obs = np.array(observation)
        expected = (self.num_envs, *self.spec.observation_shape)
        if obs.shape != expected or obs.dtype != self.spec.observation_dtype:
            raise ValueError(
                f"the observations of {self.name} at step {self._steps} have shape {obs.shape} and type {obs.dtype}, "
                f"expected {expected} and {self.spec.observation_dtype}"
            )
        if obs.dtype.kind == "f" and np.isnan(obs).any():
            raise ValueError(
                f"the observation of environment {(first_index(np.isnan(obs)) or (0,))[0]} of {self.name} at step "
                f"{self._steps} holds nan, expected numbers"
            )
        return obs

    def _check_stack(self, obs: np.ndarray, fresh: Mask) -> None:
        stack = self.rules.stack
        if stack is None or self._steps > 1000:
            return
        if obs.shape[1] != stack.size:
            raise ValueError(f"an observation of {self.name} has shape {obs.shape[1:]}, expected {stack.size} frames")
        # The replay keeps the newest frame alone and rebuilds stacks: what it would rebuild is compared with what came.
        filled = np.zeros_like(obs[:, :-1]) if stack.fill == "zeros" else np.repeat(obs[:, -1:], stack.size - 1, 1)
        before = self._last[:, 1:] if len(self._last) else filled
        per_env = (len(obs), *(1,) * (obs.ndim - 1))
        wrong = (obs[:, :-1] != np.where(fresh.reshape(per_env), filled, before)).reshape(len(obs), -1).any(1)
        if wrong.any():
            raise ValueError(
                f"environment {int(np.argmax(wrong))} of {self.name} shows at step {self._steps} frames that are not "
                f"those before it, expected {stack.size} frames, the newest one last, after a reset {stack.fill!r}"
            )


def host_env(
    env: "str | VectorEnv | Sequence[Callable[[], gymnasium.Env]]",
    num_envs: int | None = None,
    *,
    rules: Rules = Rules(),
    name: str | None = None,
    import_module: bool = False,
) -> HostEnv:
    """An environment of Gymnasium for deep agents, stepped on the host.

    A vector environment keeps its autoreset mode. NEXT_STEP: the row of the step that only resets is marked truncated
    (nothing is learnt from it), and a truncated transition is learnt from, as the row after it shows the final
    observation. SAME_STEP and DISABLED: no row is lost, but a truncated transition is not learnt from.

    Args:
        env: a vector environment, an id, or functions that make an environment each (both run in this process, one
            after the other; for many processes pass Gymnasium's `AsyncVectorEnv`).
        num_envs: of an id.
        rules: how rewards and ends are read.
        name: for tables and files; None: that of its specification or class.
        import_module: whether an id of the form "module:Env-v0" may import the module, which runs its code.

    Raises:
        TypeError: none of these; actions that are not discrete; observations that are not one array.
        ValueError: an id that Gymnasium cannot make, or that would import a module; sub-environments with differing
            spaces; an unknown autoreset mode.
    """
    import gymnasium

    made = env
    if isinstance(env, str):
        made = _by_id(env, 1 if num_envs is None else num_envs, import_module)
    elif isinstance(env, Sequence):
        made = _side_by_side(env)
    if not isinstance(made, gymnasium.vector.VectorEnv):
        raise TypeError(
            f"env is a {type(env).__name__}, expected a Gymnasium vector environment, an id, or functions that make one"
        )
    spec = getattr(made, "spec", None)
    known = env if isinstance(env, str) else type(made.unwrapped).__name__
    return HostEnv(made, name or (spec.id if spec is not None else known), rules, describe_source(env))


def _by_id(name: str, num_envs: int, import_module: bool) -> "VectorEnv":
    import gymnasium

    check_count("num_envs", num_envs)
    mode = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}
    make = partial(gymnasium.make_vec, num_envs=num_envs, vectorization_mode="sync", vector_kwargs=mode)
    return make_by_id(make, "env", name, import_module=import_module)


def _side_by_side(makers: "Sequence[Callable[[], gymnasium.Env]]") -> "SyncVectorEnv":
    import gymnasium

    if not makers:
        raise ValueError("env is empty, expected a function that makes an environment for each")
    for i, make in enumerate(makers):
        if not callable(make):
            raise TypeError(f"env[{i}] is {make!r}, expected a function that makes an environment")
    envs = [make() for make in makers]
    for i, env in enumerate(envs):
        for attribute in ("observation_space", "action_space"):
            ours, first = getattr(env, attribute), getattr(envs[0], attribute)
            if ours != first:
                raise ValueError(f"env[{i}]() has {attribute} {ours}, expected that of env[0](): {first}")
    mode = gymnasium.vector.AutoresetMode.SAME_STEP
    return gymnasium.vector.SyncVectorEnv([lambda made=made: made for made in envs], autoreset_mode=mode)


def _spec(env: "VectorEnv", name: str) -> Spec:
    from gymnasium.spaces import Box, Discrete

    actions, obs, num_envs = env.single_action_space, env.single_observation_space, int(env.num_envs)
    if not isinstance(actions, Discrete):
        raise TypeError(f"the actions of {name} are {actions}, expected a Discrete space")
    if not isinstance(obs, Box):
        raise TypeError(f"the observations of {name} are {obs}, expected a Box (one array of numbers)")
    together = env.observation_space
    if together.shape != (num_envs, *obs.shape) or together.dtype != obs.dtype:
        raise ValueError(f"env.observation_space is {together}, expected {num_envs} times {obs}")
    several = getattr(env.action_space, "nvec", np.full(num_envs, actions.n))
    if np.shape(several) != (num_envs,) or (several != actions.n).any():
        raise ValueError(f"env.action_space is {env.action_space}, expected {num_envs} times {actions}")
    return Spec(obs.shape, np.dtype(obs.dtype), int(actions.n), num_envs)


FRAME_SKIP = 4
"""Frames of the emulator that one action lasts."""

TRAINING_FRAMES, EVALUATION_FRAMES = 108_000, 18_000
"""Most frames of an episode: 30 minutes, and 5 in evaluation."""


def atari(
    game: str, num_envs: int = 8, *, evaluation: bool = False, num_threads: int = 0, max_frames: int | None = None
) -> HostEnv:
    """Games of Atari 2600 side by side, as Mnih et al. (2015) set them.

    An observation is the last four frames [4, 84, 84], grey, the newest one last, zeros before the first; each is the
    maximum of two, four frames of the emulator to an action; an episode begins with up to 30 idle frames; actions are
    those that the game has; none is repeated at random.

    In training rewards are clipped to [-1, 1] for the learner, and a lost life terminates for the learner while the
    game goes on (`episodic_life` of ale-py would begin another game with all lives, so that an agent would never play
    its second life; lives are read here instead). What is reported is the unclipped score of whole games. In evaluation
    nothing is clipped, and lives do not count.

    Args:
        game: "montezuma_revenge" or "MontezumaRevenge".
        num_envs: games side by side.
        evaluation: whether it is for evaluation.
        num_threads: of the emulators; 0: as many as fit the machine.
        max_frames: of an episode, then it is truncated; None: 108,000 in training, 18,000 in evaluation.

    Raises:
        ImportError: ale-py is missing. ValueError: an unknown game; a number below 1.
    """
    try:
        from ale_py.vector_env import AtariVectorEnv  # pyright: ignore[reportMissingImports]
        from gymnasium.vector import AutoresetMode
    except ImportError as error:
        raise ImportError(f"Atari needs ale-py: {install('atari')}") from error
    check_count("num_envs", num_envs)
    check_count("num_threads", num_threads, 0)
    frames = (EVALUATION_FRAMES if evaluation else TRAINING_FRAMES) if max_frames is None else max_frames
    check_count("max_frames", frames)
    rom = find_game(game)
    env: Any = AtariVectorEnv(
        rom,
        num_envs,
        num_threads=num_threads,
        max_num_frames_per_episode=frames,
        autoreset_mode=AutoresetMode.SAME_STEP,  # no step is spent on resets
        frameskip=FRAME_SKIP,
        grayscale=True,
        img_height=84,
        img_width=84,
        stack_num=4,
        maxpool=True,
        noop_max=30,
        episodic_life=False,
        life_loss_info=False,
        reward_clipping=False,
        use_fire_reset=False,
        repeat_action_probability=0.0,
    )
    return HostEnv(env, f"atari:{rom}", Rules(not evaluation, not evaluation, Stack(4, "zeros")))


def atari_games() -> list[str]:
    """Names of all games that ale-py ships.

    Raises:
        ImportError: ale-py is missing.
    """
    try:
        from ale_py import roms  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError(f"Atari needs ale-py: {install('atari')}") from error
    return sorted(roms.get_all_rom_ids())


def find_game(name: str) -> str:
    """The name of a game in ale-py's spelling, from any spelling: capitals, spaces and underscores do not matter.

    Raises:
        ImportError: ale-py is missing. ValueError: an unknown game.
    """
    known = {_plain(game): game for game in atari_games()}
    if _plain(name) not in known:
        matches = get_close_matches(_plain(name), known, n=1)
        question = f"; did you mean {known[matches[0]]!r}?" if matches else ""
        raise ValueError(f"game is {name!r}, expected one of ale-py's {len(known)}, such as 'pong'{question}")
    return known[_plain(name)]


def _plain(name: str) -> str:
    return "".join(letter for letter in str(name).lower() if letter.isalnum())


TRUNKS = {"minatar": MinAtarConv, "nature": NatureConv}
Record = TypeVar("Record")

HOSTED = ("atari", "gymnasium")
"""Environments that are stepped on the host, by the word before the colon."""


def find_neural_agent(name: str, settings: Sequence[str] = ()) -> NeuralAgent:
    """A deep agent; `settings` are "field=value", fields of fields with dots: "learning.batch_size=32".

    A value is JSON, or the name of a trunk: "mlp:64,64", "minatar", "nature".

    Raises:
        ValueError: no such agent, field or value.
    """
    check_name("agent", name, NEURAL_AGENTS)
    agent = NEURAL_AGENTS[name]()
    for setting in settings:
        field, equals, text = setting.partition("=")
        if not equals:
            raise ValueError(f"setting is {setting!r}, expected FIELD=VALUE")
        agent = _with(agent, field.split("."), text, field)
    return agent


def find_trunk(text: str) -> Trunk:
    """ "mlp:64,64", "minatar" or "nature".

    Raises:
        ValueError: none of them.
    """
    kind, _, widths = text.partition(":")
    if kind == "mlp" and all(width.isdigit() and int(width) for width in widths.split(",")):
        return MLP(tuple(int(width) for width in widths.split(",")))
    check_name("trunk", text, TRUNKS, ", or mlp:WIDTH,WIDTH,...")
    return TRUNKS[text]()


def find_observed(name: str) -> ObservedEnvironment:
    """An environment for a deep agent.

    "deep_sea:20" and other names of `OBSERVED`; a tabular environment of `ENVS`, observed one-hot; "gymnax:NAME".
    What is stepped on the host ("atari:GAME", "gymnasium:ID") is made by `find_hosted`.

    Raises:
        ValueError: no such environment, or an argument that it does not take. ImportError: gymnax is missing.
    """
    base, _, argument = name.partition(":")
    if base == "gymnax":
        return gymnax_env(argument)
    if base in OBSERVED:
        if argument and not (base.startswith("deep_sea") and argument.isdigit()):
            expected = f"{base}:SIZE, a whole number" if base.startswith("deep_sea") else base
            raise ValueError(f"env is {name!r}, expected {expected}")
        return OBSERVED[base](*([int(argument)] if argument else []))
    also = ", gymnax:NAME, atari:GAME, or gymnasium:ID"
    check_name("env", base, {**OBSERVED, **ENVS}, also)
    environment = find_environment(name)
    assert isinstance(environment, Environment)
    return one_hot(environment)


def find_hosted(name: str, num_envs: int, *, import_module: bool = False) -> tuple[HostEnv, HostEnv]:
    """Environments on the host: one for training and one for evaluation.

    Args:
        name: "atari:GAME" or "gymnasium:ID".
        num_envs: side by side.
        import_module: whether "gymnasium:module:Env-v0" may import the module.

    Raises:
        ValueError: no such game or id; an id that would import a module. ImportError: ale-py is missing.
    """
    base, _, argument = name.partition(":")
    if base == "atari":
        return atari(argument, num_envs), atari(argument, num_envs, evaluation=True)
    training, evaluation = (host_env(argument, num_envs, import_module=import_module) for _ in range(2))
    return training, evaluation


def _with(record: Record, path: list[str], text: str, whole: str) -> Record:
    """The record with one field changed, through its constructor, which checks it."""
    names = [field.name for field in dataclasses.fields(record)] if isinstance(record, eqx.Module) else []
    if not isinstance(record, eqx.Module) or path[0] not in names:
        kind = type(record).__name__
        raise ValueError(
            f"setting {whole!r}: {kind} has no field {path[0]!r}, expected one of {', '.join(names)}"
            f"{did_you_mean(path[0], names)}"
        )
    old = getattr(record, path[0])
    new = _with(old, path[1:], text, whole) if path[1:] else _value(old, text, whole)
    return dataclasses.replace(record, **{path[0]: new})


def _value(old: object, text: str, whole: str) -> object:
    if hasattr(type(old), "num_features"):
        return find_trunk(text)
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = text
    value = tuple(value) if isinstance(value, list) else value
    numbers = (int, float)
    if (
        isinstance(old, numbers)
        and not isinstance(old, bool)
        and (not isinstance(value, numbers) or isinstance(value, bool))
    ):
        raise ValueError(f"setting {whole!r} is {text!r}, expected a number")
    return value
