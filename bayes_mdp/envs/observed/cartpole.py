"""CartPole-v1 as an `ObservedEnvironment`: a pole on a cart is kept upright [POLE83]."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from bayes_mdp.mdp import TimeStep
from bayes_mdp.utils.typing import IntScalar
from bayes_mdp.utils.validation import check_count

GRAVITY, MASS_CART, MASS_POLE, HALF_LENGTH, FORCE, SECONDS = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
X_LIMIT, ANGLE_LIMIT = 2.4, 12 * np.pi / 180
_MASS = MASS_CART + MASS_POLE


class CartPoleState(NamedTuple):
    """Physics and clock.

    Args:
        physics: position, velocity, angle, angular velocity; metres, radians, seconds.
        time: steps of the episode so far.
    """

    physics: Float[Array, "4"]
    time: Int[Array, ""]


class CartPole(eqx.Module):
    """See `cartpole`.

    Args:
        max_steps: of an episode.

    Raises:
        ValueError: `max_steps` is below 1. TypeError: no integer.

    Example:
        >>> env = bm.envs.CartPole(max_steps=200)
        >>> env.n_actions, env.observation_shape
        (2, (4,))
    """

    max_steps: int = eqx.field(default=500, static=True)

    def __check_init__(self) -> None:
        check_count("max_steps", self.max_steps)

    @property
    def name(self) -> str:
        """For tables and files."""
        return "cartpole" if self.max_steps == 500 else f"cartpole:{self.max_steps}"

    @property
    def n_actions(self) -> int:
        """Two: push to the left, to the right."""
        return 2

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """(4,)."""
        return (4,)

    @property
    def observation_dtype(self) -> np.dtype:
        """float32."""
        return np.dtype(np.float32)

    def reset(self, key: PRNGKeyArray) -> tuple[CartPoleState, Float[Array, "4"]]:
        """All four numbers uniform within 0.05."""
        physics = jax.random.uniform(key, (4,), jnp.float32, -0.05, 0.05)
        return CartPoleState(physics, jnp.zeros((), jnp.int32)), physics

    def step(self, key: PRNGKeyArray, state: CartPoleState, action: IntScalar) -> TimeStep:
        """An Euler step of 0.02 seconds; reward 1, also for the step that lets the pole fall."""
        del key
        physics = _moved(state.physics, jnp.where(action == 1, FORCE, -FORCE))
        time = state.time + 1
        terminated = (jnp.abs(physics[0]) > X_LIMIT) | (jnp.abs(physics[2]) > ANGLE_LIMIT)
        truncated = (time >= self.max_steps) & ~terminated
        one = jnp.ones((), jnp.float32)
        return TimeStep(CartPoleState(physics, time), physics, one, terminated, truncated, one)


def _moved(physics: Float[Array, "4"], force: Float[Array, ""]) -> Float[Array, "4"]:
    x, speed, angle, spin = physics
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    push = (force + MASS_POLE * HALF_LENGTH * spin**2 * sin) / _MASS
    turn = (GRAVITY * sin - cos * push) / (HALF_LENGTH * (4 / 3 - MASS_POLE * cos**2 / _MASS))
    gain = push - MASS_POLE * HALF_LENGTH * turn * cos / _MASS
    return jnp.stack([x + SECONDS * speed, speed + SECONDS * gain, angle + SECONDS * spin, spin + SECONDS * turn])


def cartpole(max_steps: int = 500) -> CartPole:
    """CartPole-v1 of Gymnasium [POLE83] in JAX, in float32.

    An episode terminates where the cart leaves 2.4 metres or the pole 12 degrees, and is truncated after `max_steps`.
    A step that does both is terminated only (Gymnasium's wrapper sets both flags).

    Args:
        max_steps: of an episode; 500 in v1, 200 in v0.

    Raises:
        ValueError: `max_steps` below 1. TypeError: it is no integer.

    Example:
        >>> env = bm.envs.cartpole()
        >>> state, observation = env.reset(jax.random.key(0))
        >>> step = env.step(jax.random.key(1), state, jnp.int32(1))
        >>> float(step.reward), bool(step.terminated)
        (1.0, False)
    """
    check_count("max_steps", max_steps)
    return CartPole(int(max_steps))
