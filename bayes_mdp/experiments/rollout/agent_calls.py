"""The calls of an agent inside a compiled program, and what is wrong with an answer in one sentence.

Shapes, dtypes and structures are known while a program is traced: a check here costs nothing when it runs.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from bayes_mdp.experiments.run_config import AgentState, BeliefTree
from bayes_mdp.mdp import Agent, DecisionPoint, PlansFromState, Policy, Problem
from bayes_mdp.utils.typing import IntScalar
from bayes_mdp.utils.validation import described


def planned(
    agent: Agent, key: PRNGKeyArray, problem: Problem, state: AgentState, belief: BeliefTree, at: DecisionPoint
) -> tuple[Policy, AgentState]:
    """`agent.plan`, or `agent.plan_from` where it has one, its answer checked. Traceable.

    Args:
        agent: see `Agent`.
        key: of the plan.
        problem: what is known of the MDP before any data.
        state: the agent's own.
        belief: the posterior, or None.
        at: where the next action is needed.

    Raises:
        TypeError: the answer is no pair, its first part no policy, its second part not like `state`.
    """
    name = f"{type(agent).__name__}.plan"
    if isinstance(agent, PlansFromState):
        name = f"{name}_from"
        answer = agent.plan_from(key, problem, state, belief, at)
    else:
        answer = agent.plan(key, problem, state, belief)
    if not (isinstance(answer, tuple) and len(answer) == 2):
        raise TypeError(f"{name} returned {_named(answer)}, expected a pair: (policy, next state)")
    policy, after = answer
    if isinstance(policy, type) or not isinstance(policy, Policy):
        ready = "Greedy(q), Boltzmann(q, temperature), ... of bayes_mdp.agents"
        raise TypeError(f"{name} returned {_named(policy)} as its policy, expected one with act and log_prob: {ready}")
    require_alike(name, state, after)
    return policy, after


def _named(value: object) -> str:
    """A value in a message: a traced array is an array."""
    return "an array" if isinstance(value, jax.Array) else described(value)


def observed(who: str, before: AgentState, after: AgentState) -> AgentState:
    """The state `after` a transition, checked to be like the one before; `who` made it. Raises as `planned`."""
    require_alike(who, before, after)
    return after


def acted(policy: Policy, key: PRNGKeyArray, state: IntScalar, step: IntScalar) -> Int[Array, ""]:
    """`policy.act`, its answer checked. Traceable.

    Raises:
        TypeError: it is not one integer.
    """
    action = jnp.asarray(policy.act(key, state, step))
    if action.shape or not jnp.issubdtype(action.dtype, jnp.integer):
        raise TypeError(
            f"{type(policy).__name__}.act returned {action.dtype} of shape {action.shape}, expected one integer, the "
            "index of an action"
        )
    return action


def require_alike(who: str, before: AgentState, after: AgentState) -> None:
    """Refuse a state that a compiled loop cannot carry: of another structure, shape or dtype than the one before.

    Raises:
        TypeError: it differs; the message names what.
    """
    kinds = [jax.tree.structure(state) for state in (before, after)]
    if kinds[0] != kinds[1]:
        raise TypeError(
            f"{who} returned a state of structure {kinds[1]}, expected that of the state it was given, {kinds[0]}"
        )
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        one, two = jnp.asarray(old), jnp.asarray(new)
        if (one.shape, one.dtype) != (two.shape, two.dtype):
            raise TypeError(
                f"{who} returned a state with {two.dtype} of shape {two.shape}, expected {one.dtype} of shape "
                f"{one.shape} there, as in the state it was given"
            )
