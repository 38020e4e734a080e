"""The compiled half of an `Actor`: learn from a buffer, plan, write the actions of the next steps into a table.

A table holds one action for every state and every step until the next plan, `policy.act(key of the step, state, step)`.
Only one state of a row is ever met, and rows have keys of their own: the actions that are taken have the exact law of
the policy, whatever it is, and no random number is drawn on the host. The keys are those of a compiled run.

Everything goes in as flat leaves: to walk a tree of records would cost more than the call.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, UInt32

from bayes_mdp.agents import Learner
from bayes_mdp.experiments.loop import Streams, observe_block, streams
from bayes_mdp.inference.posterior import ConjugatePosterior
from bayes_mdp.inference.sampling import fused_key
from bayes_mdp.mdp import Episodic, Problem, Transitions


class Block(NamedTuple):
    """A buffer of transitions; those from `count` on are masked.

    Args:
        columns: Int[4 N]: step of the episode, state, action, outcome (S: the end).
        reward: Float[N].
        count: how many there are.
    """

    columns: Any
    reward: Any
    count: Any


class Programs(NamedTuple):
    """Compiled functions of (leaves, ...), shared by all actors of one structure.

    Args:
        plan: (leaves, block, words, clock) -> (changed leaves, policy, table); clock: Int[1 + lanes], time, lane times.
        learn: (leaves, block) -> changed leaves.
        act: (leaves, policy, words, clock) -> table.
        num_fixed: the leaves from this one on change: belief and state of the agent.
    """

    plan: Callable[..., Any]
    learn: Callable[..., Any]
    act: Callable[..., Any]
    num_fixed: int


@partial(jax.jit, static_argnums=0)
def begin(structure: Any, leaves: list[Any], words: UInt32[Array, "2"]) -> Any:
    """The state of an agent before any plan; `leaves` are those of (agent, problem)."""
    agent, problem = jax.tree.unflatten(structure, leaves)
    return agent.init(_streams(words).init, problem)


@lru_cache(maxsize=128)
def programs(structure: Any, num_fixed: int, lanes: int | None, num_rows: int) -> Programs:
    """The programs for trees (agent, problem, belief, state) of one structure.

    Args:
        structure: of the tree.
        num_fixed: leaves of (agent, problem).
        lanes: number of parallel environments, None: one, without an axis.
        num_rows: K, rows of a table [K S] or [lanes K S].
    """

    def changed(belief: Any, state: Any) -> list[Any]:
        return jax.tree.leaves((belief, state))

    def learn(leaves: list[Any], block: Block) -> list[Any]:
        agent, problem, belief, state = jax.tree.unflatten(structure, leaves)
        return changed(*_learn(agent, problem, belief, state, block))

    def act(leaves: list[Any], policy: Any, words: Any, clock: Any) -> Array:
        return _table(policy, jax.tree.unflatten(structure, leaves)[1], words, clock, lanes, num_rows)

    def plan(leaves: list[Any], block: Block, words: Any, clock: Any) -> tuple[list[Any], Any, Array]:
        agent, problem, belief, state = jax.tree.unflatten(structure, leaves)
        belief, state = _learn(agent, problem, belief, state, block)
        key = jax.random.fold_in(_streams(words).plan, clock[0])
        policy, state = agent.plan(key, problem, state, belief)
        if jax.tree.structure((agent, problem, belief, state)) != structure:
            raise TypeError(f"{type(agent).__name__}.plan changes the structure of its state, expected one like before")
        return changed(belief, state), policy, _table(policy, problem, words, clock, lanes, num_rows)

    return Programs(jax.jit(plan), jax.jit(learn), jax.jit(act), num_fixed)


def _streams(words: UInt32[Array, "2"]) -> Streams:
    return streams(fused_key(jax.random.wrap_key_data(words)))


def _learn(agent: Any, problem: Problem, belief: Any, state: Any, block: Block) -> tuple[Any, Any]:
    """(belief, the agent's own state) after the data of a buffer."""
    step, place, action, outcome = block.columns
    last = problem.space.n_states
    terminated = outcome == last if problem.space.ends else None
    following = jnp.minimum(outcome, last - 1)
    when = step if isinstance(problem.objective, Episodic) else None
    data = Transitions(place, action, block.reward, following, terminated, None, when)
    if isinstance(agent, Learner):
        return belief, observe_block(agent, problem, state, data, _weight(block))
    learnt = _one_by_one(belief, data, block.count) if isinstance(belief, ConjugatePosterior) else None
    learnt = belief.update(data, _weight(block)) if learnt is None else learnt
    if jax.tree.structure(learnt) != jax.tree.structure(belief):
        raise TypeError(f"{type(belief).__name__}.update changes its structure, expected arrays like those before")
    return learnt, state


def _weight(block: Block) -> Array:
    return (jnp.arange(len(block.reward)) < block.count).astype(block.reward.dtype)


def _one_by_one(belief: Any, data: Transitions, count: Any) -> Any:
    """`belief` after the first `count` transitions: on CPU, updates in place cost less than one scatter of a block.

    The leading axis of one keeps them in place (XLA would copy the tables otherwise).
    """

    def see(i: Any, belief: Any) -> Any:
        one = jax.tree.map(lambda x: x[i][None], data)
        return jax.vmap(lambda b, x: b.update(x))(belief, one)

    lifted = jax.tree.map(lambda x: x[None], belief)
    return jax.tree.map(lambda x: x[0], lax.fori_loop(0, count, see, lifted))


def _table(policy: Any, problem: Problem, words: Any, clock: Any, lanes: int | None, num_rows: int) -> Array:
    """Actions [K S] (or [lanes K S]) from the time of each lane on."""
    states, objective = jnp.arange(problem.space.n_states), problem.objective
    key = _streams(words).act

    def row(key: Any, time: Any) -> Array:
        step = time % objective.horizon if isinstance(objective, Episodic) else jnp.zeros_like(time)
        return jax.vmap(lambda s: policy.act(jax.random.fold_in(key, time), s, step))(states)

    def lane(key: Any, first: Any) -> Array:
        return jax.vmap(partial(row, key))(first + jnp.arange(num_rows)).astype(jnp.int32)

    if lanes is None:
        return lane(key, clock[1])
    return jax.vmap(lambda b: lane(jax.random.fold_in(key, b), clock[1 + b]))(lax.iota(jnp.int32, lanes))
