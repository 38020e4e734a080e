"""Play without learning: the best action with a little chance, or as the agent acts in training."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bayes_mdp.agents.neural.contract import NeuralAgent
from bayes_mdp.agents.neural.dqn import epsilon_greedy
from bayes_mdp.experiments.deep.loop import spec_of, step_all
from bayes_mdp.experiments.deep.options import Evaluation
from bayes_mdp.experiments.deep.vector_env import HostEnv
from bayes_mdp.mdp import ObservedEnvironment


def choose(
    key: PRNGKeyArray, agent: NeuralAgent, learner: Any, memory: Any, observation: Array, started: Any, epsilon: Any
) -> tuple[Int[Array, " E"], Any]:
    """Actions of an evaluation, and the memory of the agent; `epsilon` None: those that `act` takes."""
    if epsilon is not None:
        return epsilon_greedy(key, agent.values(learner, observation).q, epsilon), memory
    late = jnp.asarray(jnp.iinfo(jnp.int32).max // max(len(started), 1))  # schedules have come to their end
    choice = agent.act(key, learner, memory, observation, started, late)
    return choice.action, choice.memory


def play(
    key: PRNGKeyArray,
    agent: NeuralAgent,
    learner: Any,
    env: ObservedEnvironment,
    epsilon: Any,
    shape: tuple[int, int],
) -> tuple[Bool[Array, "T E"], Float[Array, "T E"]]:
    """(where an episode ended, its score there) of T steps of E fresh environments, `shape` (T, E)."""
    num_steps, num_envs = shape
    key_memory, key_world, key_steps = jax.random.split(key, 3)
    memory = agent.begin(key_memory, spec_of(env, num_envs))
    world, observation = jax.vmap(env.reset)(jax.random.split(key_world, num_envs))

    def step(carry: Any, t: Int[Array, ""]) -> tuple[Any, tuple[Array, Array]]:
        memory, world, observation, started, score = carry
        key_act, key_step, key_reset = jax.random.split(jax.random.fold_in(key_steps, t), 3)
        action, memory = choose(key_act, agent, learner, memory, observation, started, epsilon)
        moved, ended, world, observation = step_all((key_step, key_reset), env, world, action)
        score = score + moved.score
        return (memory, world, observation, ended, jnp.where(ended, 0.0, score)), (ended, score)

    start = (memory, world, observation, jnp.ones(num_envs, bool), jnp.zeros(num_envs))
    return jax.lax.scan(step, start, jnp.arange(num_steps))[1]


_play_seeds = jax.jit(jax.vmap(play, in_axes=(0, None, 0, None, None, None)), static_argnums=5)


def play_seeds(
    keys: PRNGKeyArray, agent: NeuralAgent, learner: Any, env: ObservedEnvironment, how: Evaluation
) -> list[np.ndarray]:
    """Scores of the episodes that ended, of each seed; keys and `learner` are [seed ...]. Compiled."""
    shape = (-(-how.steps // how.num_envs), how.num_envs)
    played = _play_seeds(keys, agent, learner, env, how.epsilon, shape)
    ended, score = (np.asarray(x) for x in played)
    return [one[over] for one, over in zip(score, ended, strict=True)]


def play_host(
    key: PRNGKeyArray, agent: NeuralAgent, learner: Any, env: HostEnv, epsilon: float | None, num_steps: int
) -> np.ndarray:
    """Scores of the episodes that ended in so many steps of all the environments together. Host side."""
    key_memory, key_world, key_steps = jax.random.split(key, 3)
    memory = agent.begin(key_memory, env.spec)
    observation = env.reset(int(jax.random.bits(key_world) >> 2))
    started, score, found = np.ones(env.num_envs, bool), np.zeros(env.num_envs), []
    for t in range(-(-num_steps // env.num_envs)):
        chance = jax.random.fold_in(key_steps, t)
        action, memory = _choose(chance, agent, learner, memory, observation, started, epsilon)
        step = env.step(np.asarray(action))
        score = score + step.score
        found.append(score[step.ended])
        score = np.where(step.ended, 0.0, score)
        observation, started = step.observation, step.started
    return np.concatenate(found) if found else np.zeros(0)


_choose = jax.jit(choose)
