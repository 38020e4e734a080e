"""The belief at the door of a run: from a prior to arrays, what learns apart from what does not."""

from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from bayes_mdp.agents import ChecksBelief
from bayes_mdp.mdp import CanUpdate, StateActionSpace, Transitions
from bayes_mdp.mdp.abilities import require_ability


@runtime_checkable
class CanList(Protocol):
    """Can keep its counts for listed outcomes only."""

    def listed(self, successor: Any) -> "CanList":
        """The same belief, for whoever knows that nothing but `successor` [*H S A K] will be seen."""
        ...


def initial_belief(key: Any, prior: Any, space: StateActionSpace, agent: Any) -> Any:
    """The belief before the first step: a prior program is inferred without data, a posterior is taken as it is.

    Raises:
        TypeError: `prior` is neither a program nor an object that can `update`.
        ValueError, TypeError: the agent cannot use it (an agent that `ChecksBelief`).
    """
    belief = prior
    if not isinstance(prior, CanUpdate):
        if not callable(prior):
            require_ability(prior, CanUpdate, "run")
        from bayes_mdp.inference.route import infer

        belief = infer(key, prior, None, space=space)
    if isinstance(agent, ChecksBelief):
        agent.check_belief(belief)
    return belief


def listed(belief: Any, outcome: Int[Array, "*H S A K"], space: StateActionSpace) -> Any:
    """`belief` with counts for the outcomes of the simulator only, where it can: cheaper, and nothing that it knows."""
    if not isinstance(belief, CanList) or outcome.shape[-1] == space.n_outcomes:
        return belief
    return belief.listed(np.broadcast_to(np.asarray(outcome), (*space.shape, outcome.shape[-1])))


def on_device(tree: Any) -> Any:
    """Arrays and numbers as JAX arrays of JAX's default widths; typed keys stay."""

    def place(leaf: Any) -> Any:
        if isinstance(leaf, jax.Array):
            return leaf
        array = np.asarray(leaf)
        kind = float if np.issubdtype(array.dtype, np.floating) else None
        return jnp.asarray(array, dtype=kind)

    return jax.tree.map(place, tree)


def split_constants(belief: Any, transitions: Transitions) -> tuple[Any, Any]:
    """(what updates change, what they leave alone), each with None in place of the other's leaves.

    Carried through a loop for 100 seeds, a table that never changes would be copied 100 times.

    Raises:
        TypeError: an update changes the structure, shapes or dtypes of the belief, which a compiled loop cannot carry.
    """
    leaves, structure = jax.tree.flatten(belief)

    def update(leaves: list[Any], transitions: Transitions) -> list[Any]:
        new, after = jax.tree.flatten(jax.tree.unflatten(structure, leaves).update(transitions, jnp.ones(())))
        if after != structure or [(x.shape, x.dtype) for x in new] != [(x.shape, x.dtype) for x in leaves]:
            raise TypeError(f"{type(belief).__name__}.update changes its structure, expected arrays like those before")
        return new

    jaxpr = jax.make_jaxpr(update)(leaves, transitions).jaxpr
    same = [new is old for new, old in zip(jaxpr.outvars, jaxpr.invars[: len(leaves)], strict=True)]
    return eqx.partition(belief, jax.tree.unflatten(structure, [not fixed for fixed in same]))


def changing(belief: Any, like: Any) -> Any:
    """The leaves of `belief` where `like`, a first part of `split_constants`, has one."""
    present = jax.tree.map(lambda x: x is not None, like, is_leaf=lambda x: x is None)
    return eqx.filter(belief, present)
