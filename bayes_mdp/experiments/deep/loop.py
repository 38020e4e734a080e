"""The compiled loop of training, for an environment in JAX: act, step, remember, learn; seeds side by side."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bayes_mdp.agents.neural.contract import Choice, NeuralAgent, Spec
from bayes_mdp.agents.neural.replay import Replay, Row, add, empty_replay
from bayes_mdp.mdp import HasCells, ObservedEnvironment, TimeStep


class Episode(NamedTuple):
    """The episodes under way: score and length so far."""

    score: Float[Array, " E"]
    length: Int[Array, " E"]


class Now(NamedTuple):
    """All that training needs to go on: a tree of arrays, of one seed.

    Args:
        learner: what the agent has learnt (`NeuralAgent.init`).
        memory: what it needs to act.
        replay: what it remembers.
        world: state of every environment.
        observation: what is seen in each.
        started: where an episode begins.
        episode: of every environment.
    """

    learner: Any
    memory: Any
    replay: Replay
    world: Any
    observation: Array
    started: Bool[Array, " E"]
    episode: Episode


class Seen(NamedTuple):
    """What one iteration reports.

    Args:
        ended: where an episode ended.
        score, length: of the episodes so far, whole where they ended.
        watched: numbers of the learner (`NeuralAgent.learn`).
        cell: where the step began, in an environment that `HasCells`; else ().
    """

    ended: Bool[Array, " E"]
    score: Float[Array, " E"]
    length: Int[Array, " E"]
    watched: dict[str, Float[Array, ""]]
    cell: Any = ()


def spec_of(env: ObservedEnvironment, num_envs: int) -> Spec:
    """What an agent is told of the environment."""
    return Spec(env.observation_shape, env.observation_dtype, env.n_actions, num_envs)


def begin(key: PRNGKeyArray, agent: NeuralAgent, env: ObservedEnvironment, num_envs: int, num_rows: int) -> Now:
    """Everything before the first iteration; the replay holds `num_rows` rows of `num_envs` environments.

    `key` must be another one than that of `iterate`, which draws from it what is drawn here.
    """
    key_learner, key_memory, key_world = jax.random.split(key, 3)
    spec = spec_of(env, num_envs)
    learner, memory = agent.init(key_learner, spec), agent.begin(key_memory, spec)
    world, observation = jax.vmap(env.reset)(jax.random.split(key_world, num_envs))
    nought, no = jnp.zeros(num_envs), jnp.zeros(num_envs, bool)
    kept = extra_of(agent, learner, memory, observation)
    row = Row(observation, jnp.zeros(num_envs, jnp.int32), nought, no, no, kept)
    episode = Episode(nought, jnp.zeros(num_envs, jnp.int32))
    return Now(learner, memory, empty_replay(num_rows, row), world, observation, ~no, episode)


def extra_of(agent: NeuralAgent, learner: Any, memory: Any, observation: Array) -> Any:
    """Shapes and types of `Choice.extra`."""

    def choose() -> Choice:
        started = jnp.ones(len(observation), bool)
        return agent.act(jax.random.key(0), learner, memory, observation, started, jnp.zeros((), jnp.int32))

    return jax.eval_shape(choose).extra


def iterate(
    key: PRNGKeyArray, agent: NeuralAgent, env: ObservedEnvironment, now: Now, iteration: Int[Array, ""]
) -> tuple[Now, Seen]:
    """One step of every environment, and what is learnt from it. Its random numbers hang on (key, iteration) alone."""
    key_act, key_step, key_reset, key_learn = jax.random.split(jax.random.fold_in(key, iteration), 4)
    choice = agent.act(key_act, now.learner, now.memory, now.observation, now.started, iteration)
    step, ended, world, observation = step_all((key_step, key_reset), env, now.world, choice.action)
    cut = step.truncated & ~step.terminated  # an end is an end, whatever the clock says
    row = Row(now.observation, choice.action, step.reward, step.terminated, cut, choice.extra)
    replay = add(now.replay, iteration, row)
    learner, watched = agent.learn(key_learn, now.learner, choice.memory, replay, iteration)
    score, length = now.episode.score + step.score, now.episode.length + 1
    episode = Episode(jnp.where(ended, 0.0, score), jnp.where(ended, 0, length))
    later = Now(learner, choice.memory, replay, world, observation, ended, episode)
    cell = jax.vmap(env.cell)(now.world) if isinstance(env, HasCells) else ()
    return later, Seen(ended, score, length, watched, cell)


def step_all(
    keys: tuple[PRNGKeyArray, PRNGKeyArray], env: ObservedEnvironment, world: Any, action: Int[Array, " E"]
) -> tuple[TimeStep, Bool[Array, " E"], Any, Array]:
    """One step of every environment: what it led to, where it ended an episode, and the worlds and observations to go
    on from, those of a new episode there. `keys`: of the steps, of the new episodes."""
    num_envs = len(action)
    of_steps, of_resets = (jax.random.split(key, num_envs) for key in keys)
    step = jax.vmap(env.step)(of_steps, world, action)
    ended = step.terminated | step.truncated
    world, observation = jax.tree.map(
        lambda new, old: jnp.where(ended.reshape(-1, *(1,) * (new.ndim - 1)), new, old),
        jax.vmap(env.reset)(of_resets),
        (step.state, step.observation),
    )
    return step, ended, world, observation


def run_chunk(
    key: PRNGKeyArray, agent: NeuralAgent, env: ObservedEnvironment, now: Now, iterations: Int[Array, " T"]
) -> tuple[Now, Seen]:
    """Iterations in turn; of what is seen, a row each."""
    return jax.lax.scan(lambda carry, i: iterate(key, agent, env, carry, i), now, iterations)
