"""Classic control as `ObservedEnvironment`s: CartPole-v1, a pole on a cart is kept upright [POLE83]; MountainCar-v0, a
weak car swings itself out of a valley [CAR90].
"""

from typing import ClassVar, NamedTuple

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


class _ClassicControl(eqx.Module):
    """What both have: episodes that are cut."""

    max_steps: eqx.AbstractVar[int]
    kind: ClassVar[str]
    usual_steps: ClassVar[int]

    def __check_init__(self) -> None:
        check_count("max_steps", self.max_steps)

    @property
    def name(self) -> str:
        """For tables and files."""
        return self.kind if self.max_steps == self.usual_steps else f"{self.kind}:{self.max_steps}"


class CartPole(_ClassicControl):
    """See `cartpole`.

    Args:
        max_steps: of an episode.

    Raises:
        ValueError: `max_steps` is below 1. TypeError: no integer.

    Example:
        >>> from bayes_mdp.envs.observed.classic_control import CartPole
        >>> env = CartPole(max_steps=200)
        >>> env.n_actions, env.observation_shape
        (2, (4,))
    """

    max_steps: int = eqx.field(default=500, static=True)
    kind = "cartpole"
    usual_steps = 500
    n_actions = 2  # push to the left, to the right
    observation_shape = (4,)
    observation_dtype = np.dtype(np.float32)

    def reset(self, key: PRNGKeyArray) -> tuple[CartPoleState, Float[Array, "4"]]:
        """All four numbers uniform within 0.05."""
        physics = jax.random.uniform(key, (4,), jnp.float32, -0.05, 0.05)
        return CartPoleState(physics, jnp.zeros((), jnp.int32)), physics

    def step(self, key: PRNGKeyArray, state: CartPoleState, action: IntScalar) -> TimeStep:
        """An Euler step of 0.02 seconds; reward 1, also for the step that lets the pole fall."""
        del key
        physics = _move(state.physics, jnp.where(action == 1, FORCE, -FORCE))
        time = state.time + 1
        terminated = (jnp.abs(physics[0]) > X_LIMIT) | (jnp.abs(physics[2]) > ANGLE_LIMIT)
        truncated = (time >= self.max_steps) & ~terminated
        unit = jnp.ones((), jnp.float32)
        return TimeStep(CartPoleState(physics, time), physics, unit, terminated, truncated, unit)


def _move(physics: Float[Array, "4"], force: Float[Array, ""]) -> Float[Array, "4"]:
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


LEFT, RIGHT, GOAL, MAX_SPEED, ENGINE, PULL = -1.2, 0.6, 0.5, 0.07, 0.001, 0.0025


class MountainCarState(NamedTuple):
    """Physics and clock.

    Args:
        position, velocity: of the car; length of a step is 1.
        time: steps of the episode so far.
    """

    position: Float[Array, ""]
    velocity: Float[Array, ""]
    time: Int[Array, ""]


class MountainCar(_ClassicControl):
    """See `mountain_car`.

    Args:
        max_steps: of an episode.

    Raises:
        ValueError: `max_steps` is below 1. TypeError: no integer.

    Example:
        >>> from bayes_mdp.envs.observed.classic_control import MountainCar
        >>> env = MountainCar(max_steps=100)
        >>> env.n_actions, env.observation_shape
        (3, (2,))
    """

    max_steps: int = eqx.field(default=200, static=True)
    kind = "mountain_car"
    usual_steps = 200
    n_actions = 3  # push to the left, do not push, push to the right
    observation_shape = (2,)
    observation_dtype = np.dtype(np.float32)

    def reset(self, key: PRNGKeyArray) -> tuple[MountainCarState, Float[Array, "2"]]:
        """At rest, position uniform in [-0.6, -0.4]."""
        position = jax.random.uniform(key, (), jnp.float32, -0.6, -0.4)
        state = MountainCarState(position, jnp.zeros((), jnp.float32), jnp.zeros((), jnp.int32))
        return state, jnp.stack([state.position, state.velocity])

    def step(self, key: PRNGKeyArray, state: MountainCarState, action: IntScalar) -> TimeStep:
        """Reward -1 until the goal is reached."""
        del key
        pull = (action - 1) * ENGINE - jnp.cos(3 * state.position) * PULL
        velocity = jnp.clip(state.velocity + pull, -MAX_SPEED, MAX_SPEED)
        position = jnp.clip(state.position + velocity, LEFT, RIGHT)
        velocity = jnp.where((position <= LEFT) & (velocity < 0), 0.0, velocity)
        time = state.time + 1
        terminated = (position >= GOAL) & (velocity >= 0)
        truncated = (time >= self.max_steps) & ~terminated
        next_state = MountainCarState(position, velocity, time)
        cost = -jnp.ones((), jnp.float32)
        return TimeStep(next_state, jnp.stack([position, velocity]), cost, terminated, truncated, cost)


def mountain_car(max_steps: int = 200) -> MountainCar:
    """MountainCar-v0 of Gymnasium [CAR90] in JAX, in float32.

    An episode terminates at the goal, and is truncated after `max_steps`. A step that does both is terminated only
    (Gymnasium's wrapper sets both flags).

    Args:
        max_steps: of an episode; random play hardly ever finds the goal in 200.

    Raises:
        ValueError: `max_steps` below 1. TypeError: it is no integer.

    Example:
        >>> env = bm.envs.mountain_car()
        >>> state, observation = env.reset(jax.random.key(0))
        >>> observation.shape, env.n_actions
        ((2,), 3)
    """
    check_count("max_steps", max_steps)
    return MountainCar(int(max_steps))
