"""The belief of a run: from a prior to arrays, and its refits.

Beliefs by weighted draws degenerate as data come in (low effective sample size). Those of a run are refitted (inferred
anew) between its chunks, all seeds that need it in one call. A refit is computed in the precision of the run: float64
in a float32 run is not possible, since JAX keeps 32-bit copies of the numpy arrays in a prior program as long as the
compiled run lives, and fails to lower a mixture of both. In float32 the error of a log density reaches one unit after
some 10^6 transitions: beyond, enable x64 for the whole run.
"""

import logging
import time
from typing import Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key, PRNGKeyArray, PyTree, UInt32

from bayes_mdp.agents import ChecksBelief
from bayes_mdp.experiments.rollout.time_loop import RngKeys, changing
from bayes_mdp.experiments.run_config import BeliefTree, PriorLike
from bayes_mdp.inference.draws.methods import Method
from bayes_mdp.mdp import Agent, CanThin, CanUpdate, StateActionSpace, Transitions
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.mdp.protocols import CanRefit, CanRefitOnHost
from bayes_mdp.numerics.array_forms import place_as
from bayes_mdp.random import plain_key
from bayes_mdp.utils.typing import AnyArray

_STREAM = len(RngKeys._fields) + 1  # the one before it starts the belief of an `Actor`
COSTS = ("seconds", "calls", "compilations")
_LOG = logging.getLogger(__name__)

Belief = TypeVar("Belief")
Tree = TypeVar("Tree")


@runtime_checkable
class CanList(Protocol):
    """A belief that can keep its counts for listed outcomes only."""

    def listed(self, successor: Int[AnyArray, "*H S A K"]) -> "CanList":
        """The same belief, for data with no outcomes but `successor` [*H S A K]."""
        ...


def initial_belief(
    key: PRNGKeyArray, prior: PriorLike, space: StateActionSpace, agent: Agent, method: str | Method = "auto"
) -> CanUpdate:
    """The belief before the first step: a prior program is inferred without data, a posterior is taken as it is.

    Args:
        key: for draws.
        prior: a program or a posterior.
        space: the sizes and masks that the agent is given.
        agent: the agent that plans with it.
        method: of the inference of a program.

    Raises:
        TypeError: `prior` is neither a program nor an object that can `update`.
        ValueError, TypeError: the agent cannot use it (an agent that `ChecksBelief`).
    """
    if isinstance(prior, CanUpdate):
        belief = prior
    else:
        if not callable(prior):
            require_ability(prior, CanUpdate, "run")
        assert prior is not None
        from bayes_mdp.inference.route import infer

        belief = infer(key, prior, None, space=space, method=method)
    if isinstance(agent, ChecksBelief):
        agent.check_belief(belief)
    return belief


def thins(belief: object, prior: PriorLike) -> bool:
    """Whether every run or seed gets draws of its own: of a belief that was inferred from a program, by draws."""
    return belief is not prior and isinstance(belief, CanThin)


def thinned(belief: CanUpdate, prior: PriorLike, key: PRNGKeyArray, num: int) -> CanUpdate:
    """`belief` with `num` draws of its own, where `thins`."""
    if not thins(belief, prior):
        return belief
    assert isinstance(belief, CanThin)
    fewer = belief.thinned(key, num)
    assert isinstance(fewer, CanUpdate)
    return fewer


def listed(belief: Belief, outcome: Int[Array, "*H S A K"], space: StateActionSpace) -> Belief | CanList:
    """`belief` with counts for the outcomes of the simulator only, where it can: cheaper; its numbers stay the same."""
    if space.successors is not None or not isinstance(belief, CanList) or outcome.shape[-1] == space.n_outcomes:
        return belief
    return belief.listed(np.broadcast_to(np.asarray(outcome), (*space.shape, outcome.shape[-1])))


def on_device(tree: Tree) -> Tree:
    """Arrays and numbers as JAX arrays of JAX's default widths; typed keys stay."""

    def place(leaf: PyTree) -> Array:
        if isinstance(leaf, jax.Array):
            return leaf
        array = np.asarray(leaf)
        return place_as(array, float if np.issubdtype(array.dtype, np.floating) else None)

    return jax.tree.map(place, tree)


def split_constants(belief: BeliefTree, transitions: Transitions) -> tuple[BeliefTree, BeliefTree]:
    """(leaves that updates or refits change, the others), each with None in place of the other's leaves.

    Carried through a loop for 100 seeds, a table that never changes would be copied 100 times.

    Raises:
        TypeError: an update or a refit changes the structure, shapes or dtypes of the belief, which a compiled loop
            cannot carry.
    """
    change = _changed(belief, "update", transitions, jnp.ones(()))
    if isinstance(belief, CanRefit):
        refitted = _refitted_leaves(belief) if refits_on_host(belief) else _changed(belief, "refit", jax.random.key(0))
        change = [one or other for one, other in zip(change, refitted, strict=True)]
    return eqx.partition(belief, jax.tree.unflatten(jax.tree.structure(belief), change))


def _changed(belief: BeliefTree, method: str, *arguments: PyTree) -> list[bool]:
    """Which leaves a method of the belief changes."""
    leaves, structure = jax.tree.flatten(belief)

    def call(leaves: list[Array]) -> list[Array]:
        new, after = jax.tree.flatten(getattr(jax.tree.unflatten(structure, leaves), method)(*arguments))
        if after != structure or [(x.shape, x.dtype) for x in new] != [(x.shape, x.dtype) for x in leaves]:
            raise TypeError(
                f"{type(belief).__name__}.{method} changes its structure, expected arrays like those before"
            )
        return new

    # A leaf is constant where the method hands the traced input itself on: the output variable is the input variable.
    jaxpr = jax.make_jaxpr(call)(leaves).jaxpr
    return [new is not old for new, old in zip(jaxpr.outvars, jaxpr.invars, strict=True)]


def refits_on_host(belief: object) -> bool:
    """Whether a refit of the belief is no program of JAX."""
    return isinstance(belief, CanRefitOnHost) and belief.refits_on_host


def _refitted_leaves(belief: CanRefit) -> list[bool]:
    """Which leaves a refit on the host changes; it is made once."""
    refitted = belief.refit(jax.random.key(0))
    return [new is not old for new, old in zip(jax.tree.leaves(refitted), jax.tree.leaves(belief), strict=True)]


class Refits:
    """Refits the beliefs of a run that need it, and counts what that costs. Host side.

    Args:
        keys: of the seeds.
        belief: before any data, the leaves that change.
        constants: the leaves that do not.

    Attributes:
        needed: whether the belief is one that can need a refit.
    """

    def __init__(self, keys: Key[Array, " N"], belief: BeliefTree, constants: BeliefTree) -> None:
        self.needed = isinstance(belief, CanRefit)
        self._on_host = refits_on_host(eqx.combine(belief, constants))
        self._keys, self._constants = plain_key(keys), constants
        self._seconds, self._calls, self._sizes = 0.0, 0, set[int]()

    def renew(self, belief: BeliefTree, row: int) -> tuple[BeliefTree, Bool[np.ndarray, " N"]]:
        """The beliefs [N ...] before a row (for an `Actor`: a time), refitted where needed, and which were refitted.

        Draws depend on the seed and the row alone: a run that is resumed here ends in the same bits.
        """
        due = np.asarray(_due(belief, self._constants))
        seeds = np.flatnonzero(due)
        if not seeds.size:
            return belief, due
        began = time.perf_counter()
        # Padded to a power of two: at most log2(N) + 1 programs are compiled. On the host there is none.
        size = seeds.size if self._on_host else 1 << (seeds.size - 1).bit_length()
        padded = np.concatenate([seeds, np.repeat(seeds[:1], size - seeds.size)])
        renewed = (refitted_on_host if self._on_host else refitted)(
            self._keys[padded], _take(belief, padded), self._constants, row
        )
        belief = self._write(belief, seeds, renewed)
        self._seconds, self._calls = self._seconds + time.perf_counter() - began, self._calls + 1
        self._sizes.update(() if self._on_host else (size,))
        _LOG.info("%d: %d of %d beliefs inferred anew, %.1f s so far", row, seeds.size, due.size, self._seconds)
        return belief, due

    def _write(self, belief: BeliefTree, seeds: Int[np.ndarray, " n"], renewed: BeliefTree) -> BeliefTree:
        def one(old: AnyArray, new: AnyArray) -> Array:
            array = np.array(old)
            array[seeds] = new[: seeds.size]
            return jnp.asarray(array)

        return jax.tree.map(one, belief, renewed)

    @property
    def cost(self) -> dict[str, float]:
        """Seconds (compilation included), calls and programs compiled (or taken from those of a run before)."""
        return dict(zip(COSTS, (round(self._seconds, 3), self._calls, len(self._sizes)), strict=True))


def refitted(keys: Key[Array, " n"], belief: BeliefTree, constants: BeliefTree, row: int) -> BeliefTree:
    """The beliefs [n ...] inferred anew, as numpy arrays."""
    return jax.device_get(_refit_all(keys, belief, constants, np.uint32(row)))


def refitted_on_host(keys: Key[Array, " n"], belief: BeliefTree, constants: BeliefTree, row: int) -> BeliefTree:
    """The same, one after the other in NumPy."""
    fixed = jax.tree.map(np.asarray, constants)
    renewed = []
    for i in range(len(keys)):
        key = jax.random.fold_in(jax.random.fold_in(keys[i], _STREAM), row)
        part = jax.tree.map(lambda leaf, i=i: leaf[i], belief)
        renewed.append(changing(eqx.combine(part, fixed).refit(key), part))
    return jax.tree.map(lambda *leaves: np.stack(leaves), *renewed)


@jax.jit
def _due(belief: BeliefTree, constants: BeliefTree) -> Bool[Array, " N"]:
    """Which beliefs have a low effective sample size."""
    return jax.vmap(lambda one: eqx.combine(one, constants).needs_refit())(belief)


@jax.jit
def _refit_all(keys: Key[Array, " n"], belief: BeliefTree, constants: BeliefTree, row: UInt32[Array, ""]) -> BeliefTree:
    def one(key: Key[Array, ""], part: BeliefTree) -> BeliefTree:
        key = jax.random.fold_in(jax.random.fold_in(key, _STREAM), row)
        return changing(eqx.combine(part, constants).refit(key), part)

    return jax.vmap(one)(keys, belief)


def _take(belief: BeliefTree, seeds: Int[np.ndarray, " n"]) -> BeliefTree:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[seeds], belief)
