"""An environment of gymnax as an `ObservedEnvironment`: MinAtar, bsuite, classic control in JAX."""

from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from bayes_mdp.mdp import TimeStep
from bayes_mdp.utils.validation import check_name

_MINATAR = "-MinAtar"


class GymnaxEnv(eqx.Module):
    """See `gymnax_env`.

    Args:
        env: of gymnax.
        params: its parameters.
        observation_shape, observation_dtype: of an observation.

    Example:
        >>> env = bm.envs.gymnax_env("CartPole-v1")  # needs gymnax
        >>> env.observation_shape
        (4,)
    """

    env: Any = eqx.field(static=True)
    params: PyTree
    observation_shape: tuple[int, ...] = eqx.field(static=True)
    observation_dtype: np.dtype = eqx.field(static=True)

    @property
    def name(self) -> str:
        """For tables and files."""
        return f"gymnax:{self.env.name}"

    @property
    def n_actions(self) -> int:
        """Of its discrete action space."""
        return int(self.env.action_space(self.params).n)

    def reset(self, key: PRNGKeyArray) -> tuple[PyTree, Array]:
        """The environment's own."""
        observation, state = self.env.reset_env(key, self.params)
        # Python numbers among the state have a type that changes with the first step: a compiled loop needs it fixed.
        state = jax.tree.map(lambda x: jax.lax.convert_element_type(x, jnp.asarray(x).dtype), state)
        return state, jnp.asarray(observation, self.observation_dtype)

    def step(self, key: PRNGKeyArray, state: PyTree, action: Int[Array, ""]) -> TimeStep:
        """The environment's own, without its autoreset; a step that ends the episode and its time is terminated."""
        observation, next_state, reward, terminated, _ = self.env.step_env(key, state, action, self.params)
        terminated = jnp.asarray(terminated, bool)
        truncated = jnp.asarray(self.env.is_truncated(next_state, self.params), bool) & ~terminated
        next_state = jax.tree.map(lambda new, old: jnp.asarray(new, jnp.result_type(old)), next_state, state)
        reward = jnp.asarray(reward, jnp.float32)
        observed = jnp.asarray(observation, self.observation_dtype)
        return TimeStep(next_state, observed, reward, terminated, truncated, reward)


def gymnax_env(name_or_env: Any, params: PyTree = None) -> GymnaxEnv:
    """An environment of gymnax, 1.0 or later, for deep agents.

    Episodes are not restarted, so that the last observation of an episode is kept; a time limit
    (`params.max_steps_in_episode`) truncates. MinAtar's planes of zeros and ones are kept as bytes.

    Args:
        name_or_env: "Breakout-MinAtar", or what `gymnax.make` returned first.
        params: of the environment; None: its default.

    Raises:
        ImportError: gymnax is missing (it does not go with jax 0.12). ValueError: an unknown name. TypeError: no
            environment of gymnax, actions that are not discrete, an observation that is not one array.

    Example:
        >>> env = bm.envs.gymnax_env("CartPole-v1")  # needs gymnax
        >>> env.n_actions
        2
    """
    title = name_or_env if isinstance(name_or_env, str) else type(name_or_env).__name__
    gymnax = _gymnax(title)
    env = _make(name_or_env) if isinstance(name_or_env, str) else name_or_env
    if not isinstance(env, gymnax.environments.environment.Environment):
        raise TypeError(f"name_or_env is {env!r}, expected a name or an environment of gymnax")
    params = env.default_params if params is None else params
    actions = env.action_space(params)
    if type(actions).__name__ != "Discrete":
        raise TypeError(f"the actions of {env.name} are {actions!r}, expected a Discrete space")
    shaped, _ = jax.eval_shape(env.reset_env, jax.random.key(0), params)
    if not isinstance(shaped, jax.ShapeDtypeStruct):
        raise TypeError(f"an observation of {env.name} is a {type(shaped).__name__}, expected one array")
    kind = np.uint8 if env.name.endswith(_MINATAR) else shaped.dtype
    return GymnaxEnv(env, params, tuple(shaped.shape), np.dtype(kind))


@lru_cache(maxsize=64)  # the same object each time: a program that was compiled for it is found again
def _make(name: str) -> Any:
    gymnax = _gymnax(name)
    check_name("name_or_env", name, sorted(gymnax.registered_envs))
    return gymnax.make(name)[0]


def _gymnax(what: str) -> Any:
    try:
        import gymnax  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError(
            f"{what!r} needs gymnax: pip install 'gymnax>=1.0' (gymnax 1.0.1 goes with jax below 0.12)"
        ) from error
    return gymnax
