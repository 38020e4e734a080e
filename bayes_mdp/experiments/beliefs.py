"""The belief at the door of a run: from a prior to arrays, what learns apart from what does not."""

from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from bayes_mdp.agents import ChecksBelief
from bayes_mdp.inference.methods import Method
from bayes_mdp.mdp import CanUpdate, StateActionSpace, Transitions
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.mdp.protocols import CanRefit


@runtime_checkable
class CanList(Protocol):
    """Can keep its counts for listed outcomes only."""

    def listed(self, successor: Any) -> "CanList":
        """The same belief, for whoever knows that nothing but `successor` [*H S A K] will be seen."""
        ...


@runtime_checkable
class CanThin(Protocol):
    """Weighted draws, of which fewer may do."""

    def thinned(self, key: PRNGKeyArray, num: int) -> "CanThin":
        """`num` of the draws, of equal weight. Traceable."""
        ...


def initial_belief(key: Any, prior: Any, space: StateActionSpace, agent: Any, method: str | Method = "auto") -> Any:
    """The belief before the first step: a prior program is inferred without data, a posterior is taken as it is.

    Args:
        key: for draws.
        prior: a program or a posterior.
        space: what the agent is told.
        agent: who will use it.
        method: of the inference of a program.

    Raises:
        TypeError: `prior` is neither a program nor an object that can `update`.
        ValueError, TypeError: the agent cannot use it (an agent that `ChecksBelief`).
    """
    belief = prior
    if not isinstance(prior, CanUpdate):
        if not callable(prior):
            require_ability(prior, CanUpdate, "run")
        from bayes_mdp.inference.route import infer

        belief = infer(key, prior, None, space=space, method=method)
    if isinstance(agent, ChecksBelief):
        agent.check_belief(belief)
    return belief


def thins(belief: Any, prior: Any) -> bool:
    """Whether every run or seed gets draws of its own: of a belief that was inferred from a program, by draws."""
    return belief is not prior and isinstance(belief, CanThin)


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
    """(what updates or refits change, what they leave alone), each with None in place of the other's leaves.

    Carried through a loop for 100 seeds, a table that never changes would be copied 100 times.

    Raises:
        TypeError: an update or a refit changes the structure, shapes or dtypes of the belief, which a compiled loop
            cannot carry.
    """
    change = _changed(belief, "update", transitions, jnp.ones(()))
    if isinstance(belief, CanRefit):
        refitted = _changed(belief, "refit", jax.random.key(0))
        change = [one or other for one, other in zip(change, refitted, strict=True)]
    return eqx.partition(belief, jax.tree.unflatten(jax.tree.structure(belief), change))


def _changed(belief: Any, method: str, *arguments: Any) -> list[bool]:
    """Which leaves a method of the belief changes."""
    leaves, structure = jax.tree.flatten(belief)

    def call(leaves: list[Any]) -> list[Any]:
        new, after = jax.tree.flatten(getattr(jax.tree.unflatten(structure, leaves), method)(*arguments))
        if after != structure or [(x.shape, x.dtype) for x in new] != [(x.shape, x.dtype) for x in leaves]:
            raise TypeError(
                f"{type(belief).__name__}.{method} changes its structure, expected arrays like those before"
            )
        return new

    jaxpr = jax.make_jaxpr(call)(leaves).jaxpr
    return [new is not old for new, old in zip(jaxpr.outvars, jaxpr.invars, strict=True)]


def changing(belief: Any, like: Any) -> Any:
    """The leaves of `belief` where `like`, a first part of `split_constants`, has one."""
    present = jax.tree.map(lambda x: x is not None, like, is_leaf=lambda x: x is None)
    return eqx.filter(belief, present)
