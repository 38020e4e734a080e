"""The belief of a run: from a prior to arrays, its refits, and rewards that it cannot hold.

Beliefs by weighted draws degenerate as data come in (low effective sample size). Those of a run are refitted (inferred
anew) between its chunks, all seeds that need it in one call. A refit is computed in the precision of the run: float64
in a float32 run is not possible, since JAX keeps 32-bit copies of the numpy arrays in a prior program as long as the
compiled run lives, and fails to lower a mixture of both. In float32 the error of a log density reaches one unit after
some 10^6 transitions: beyond, enable x64 for the whole run.

An environment that pays what the belief cannot hold is refused: before the first step where the law of the rewards is
known (`payable_rewards` looks at every pair that can be reached), at the step where it is not (a law of one's own).
"""

import logging
import time
from typing import Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree, UInt32

from bayes_mdp.agents.common.learner import ChecksBelief
from bayes_mdp.envs.gymnasium.from_gymnasium import ListedReward
from bayes_mdp.experiments.rollout.simulator import Simulator
from bayes_mdp.experiments.rollout.time_loop import RefusedReward, RngKeys, changing
from bayes_mdp.experiments.run_config import BeliefTree, PriorLike
from bayes_mdp.inference.draws.methods import Method
from bayes_mdp.mdp import MDP, Agent, CanUpdate, NormalReward, RewardLaw, SparseMDP, StateActionSpace, Transitions
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.mdp.protocols import CanRefit, CanRefitOnHost, CanThin
from bayes_mdp.models.mdp_spec import ListedRewards, RewardTable
from bayes_mdp.models.reward_laws import law_at, unwrap
from bayes_mdp.models.reward_support import RewardSupport, make_support, support_of
from bayes_mdp.numerics.array_forms import place_as
from bayes_mdp.random.threefry import plain_key
from bayes_mdp.utils.typing import AnyArray
from bayes_mdp.utils.validation import first_index

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


@runtime_checkable
class CanForgetProgram(Protocol):
    """A belief that no longer needs the program that it was inferred from."""

    def without_program(self) -> CanUpdate:
        """The same belief, without its program."""
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
        # The program would be part of the compiled run: without it, one compilation serves all priors of one structure.
        belief = belief.without_program() if isinstance(belief, CanForgetProgram) else belief
    if isinstance(agent, ChecksBelief):
        agent.check_belief(belief)
    return belief


def thins(belief: object, prior: PriorLike) -> bool:
    """Whether every run or seed gets draws of its own: of a belief that was inferred from a program, by draws."""
    return belief is not prior and isinstance(belief, CanThin)


def thin(belief: CanUpdate, prior: PriorLike, key: PRNGKeyArray, num: int) -> CanUpdate:
    """`belief` with `num` draws of its own, where `thins`."""
    if not thins(belief, prior):
        return belief
    assert isinstance(belief, CanThin)
    fewer = belief.thinned(key, num)
    assert isinstance(fewer, CanUpdate)
    return fewer


def list_outcomes(belief: Belief, outcome: Int[Array, "*H S A K"], space: StateActionSpace) -> Belief | CanList:
    """`belief` with counts for the outcomes of the simulator only, where it can: cheaper; its numbers stay the same."""
    # Already lists, or a list that would be as long as the rows: nothing is saved.
    if space.successors is not None or not isinstance(belief, CanList) or outcome.shape[-1] == space.n_outcomes:
        return belief
    return belief.listed(np.broadcast_to(np.asarray(outcome), (*space.shape, outcome.shape[-1])))


def on_device(tree: Tree) -> Tree:
    """Arrays and numbers as JAX arrays of JAX's default widths; typed keys stay."""

    def place(leaf: PyTree) -> Array:
        # Arrays of JAX are left where they are; keys would not survive a trip through NumPy.
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
    change = _leaves_changed_by(belief, "update", transitions, jnp.ones(()))
    # Of a refit on the host there is no program to trace: it is made once, and the leaves are compared.
    if isinstance(belief, CanRefit):
        if refits_on_host(belief):
            leaves = zip(jax.tree.leaves(belief.refit(jax.random.key(0))), jax.tree.leaves(belief), strict=True)
            refitted = [new is not old for new, old in leaves]  # a leaf that is the same object was handed on
        else:
            refitted = _leaves_changed_by(belief, "refit", jax.random.key(0))
        change = [by_update or by_refit for by_update, by_refit in zip(change, refitted, strict=True)]
    return eqx.partition(belief, jax.tree.unflatten(jax.tree.structure(belief), change))


def _leaves_changed_by(belief: BeliefTree, method: str, *arguments: PyTree) -> list[bool]:
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
        # Beliefs by weighted draws degenerate: those with few effective draws left are inferred anew.
        due = np.asarray(_due(belief, self._constants))
        seeds = np.flatnonzero(due)
        if not seeds.size:
            return belief, due
        began = time.perf_counter()
        # Padded to a power of two: at most log2(N) + 1 programs are compiled. On the host there is none.
        size = seeds.size if self._on_host else 1 << (seeds.size - 1).bit_length()
        padded = np.concatenate([seeds, np.repeat(seeds[:1], size - seeds.size)])
        keys = _wrap_keys(np.asarray(jax.random.key_data(self._keys))[padded], self._keys)
        refit = refit_by_numpy if self._on_host else refit_by_jax
        renewed = refit(keys, jax.tree.map(lambda leaf: np.asarray(leaf)[padded], belief), self._constants, row)
        belief = self._write(belief, seeds, renewed)
        # Compilation is part of the seconds: it is part of what a refit costs.
        self._seconds, self._calls = self._seconds + time.perf_counter() - began, self._calls + 1
        self._sizes.update(() if self._on_host else (size,))
        _LOG.info("%d: %d of %d beliefs inferred anew, %.1f s so far", row, seeds.size, due.size, self._seconds)
        return belief, due

    def _write(self, belief: BeliefTree, seeds: Int[np.ndarray, " n"], renewed: BeliefTree) -> BeliefTree:
        def one(old: AnyArray, new: AnyArray) -> Array:
            # On the host: a scatter would be compiled for every number of seeds.
            array = np.array(old)
            array[seeds] = new[: seeds.size]
            return jnp.asarray(array)

        return jax.tree.map(one, belief, renewed)

    @property
    def cost(self) -> dict[str, float]:
        """Seconds (compilation included), calls and programs compiled (or taken from those of a run before)."""
        return dict(zip(COSTS, (round(self._seconds, 3), self._calls, len(self._sizes)), strict=True))


def refit_by_jax(keys: Key[Array, " n"], belief: BeliefTree, constants: BeliefTree, row: int) -> BeliefTree:
    """The beliefs [n ...] inferred anew, as numpy arrays."""
    return jax.device_get(_refit_all(keys, belief, constants, np.uint32(row)))


def refit_by_numpy(keys: Key[Array, " n"], belief: BeliefTree, constants: BeliefTree, row: int) -> BeliefTree:
    """The same, one after the other in NumPy."""
    # Once for all seeds: the constants are not copied for each.
    fixed = jax.tree.map(np.asarray, constants)
    renewed = []
    for i, key in enumerate(np.asarray(jax.random.key_data(keys))):  # a slice of keys would be compiled for each
        refit_key = jax.random.fold_in(jax.random.fold_in(_wrap_keys(key, keys), _STREAM), row)
        part = jax.tree.map(lambda leaf, i=i: leaf[i], belief)
        renewed.append(changing(eqx.combine(part, fixed).refit(refit_key), part))
    return jax.tree.map(lambda *leaves: np.stack(leaves), *renewed)


def _wrap_keys(data: UInt32[np.ndarray, "*n 2"], keys: Key[Array, " N"]) -> Key[Array, "*n"]:
    """Keys of these bits, of the kind of `keys`."""
    return jax.random.wrap_key_data(jnp.asarray(data), impl=jax.random.key_impl(keys))


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


MOST_VALUES = 64
"""Of a law with more values the ends are looked at, not each of them."""

Cells = tuple[Int[np.ndarray, " P"], ...]
"""An index for each axis of a table, P each."""


@runtime_checkable
class HasRewardSupport(Protocol):
    """A posterior that says which rewards it can learn from."""

    def reward_support(self) -> RewardSupport:
        """In every cell of its reward law."""
        ...


def learnable_rewards(belief: object) -> RewardSupport | None:
    """The rewards that a belief can hold; None: all numbers, or it does not say."""
    if not isinstance(belief, HasRewardSupport):
        return None
    support = belief.reward_support()
    return None if support.is_everything else support


def check_paid(
    support: RewardSupport,
    sim: Simulator,
    mdp: MDP | SparseMDP,
    space: StateActionSpace,
    *,
    horizon: int | None = None,
    batched: bool = False,
) -> RewardSupport | None:
    """Refuse an environment that pays what a belief cannot hold. Host side, before the first step.

    Args:
        support: what the belief of the agent can hold.
        sim: of the environment.
        mdp: of the environment: its first states and illegal actions.
        space: of the belief.
        horizon: steps of an episode; None: no limit.
        batched: the arrays of `sim` have an axis of environments.

    Returns:
        What each reward must be compared with, as the law of the environment is not known; None: nothing.

    Raises:
        ValueError: names the first state and action that can be reached, what is paid there, and the law.
    """
    listed = np.asarray(sim.outcome)
    # The leading axis of a batch of environments, and the axes of an index of its tables: (step,) state, action.
    lead, axes = listed.shape[:batched], listed.ndim - batched - 1
    grid = np.broadcast_to(listed, (*lead, *space.shape, listed.shape[-1]))
    legal = np.ones(space.shape, bool) if space.legal is None else np.broadcast_to(space.legal, space.shape)
    if mdp.legal is not None:
        legal = legal & np.asarray(mdp.legal)[0 if batched else ...]
    # Every outcome of every legal pair, as an index of the tables of the environment and of those of the belief.
    *indices, _ = np.nonzero(np.broadcast_to(legal[..., None], grid.shape))
    outcome = grid[np.broadcast_to(legal[..., None], grid.shape)]
    cell = tuple(indices[batched:])
    pieces = payable_rewards(sim.reward_law, (*indices[:batched], *cell[-axes:]), outcome)
    if pieces is None:
        return support
    learnable = support.at(cell, outcome if space.successors is None else np.asarray(space.place(cell, outcome)))
    for piece in pieces:
        bad = np.broadcast_to(~piece.lies_in(learnable), outcome.shape)
        # A pair that no first state leads to is never paid; reachability is only computed where something is wrong.
        if bad.any() and not batched:
            reached = _reachable_states(
                listed, np.asarray(mdp.initial) > 0, legal if axes == legal.ndim else legal[0], horizon
            )
            bad = bad & np.broadcast_to(reached, space.shape[:-1])[cell[:-1]]
        index = first_index(bad)
        if index is not None:
            *step, state, action = (int(x[index]) for x in cell)
            label = f"{f'step {step[0]}, ' if step else ''}state {state}, action {action}"
            paid_rewards = piece.cell(index)
            pays = (
                f"{float(paid_rewards.low):g}"
                if paid_rewards.low == paid_rewards.high
                else f"{paid_rewards.law} rewards ({paid_rewards})"
            )
            raise ValueError(f"env pays {pays} in {label}, {learnable.cell(index).expected(of_env=True)}")
    return None


def refuse_paid(refused: RefusedReward, support: RewardSupport, space: StateActionSpace) -> None:
    """Refuse a run in which a reward was paid that the belief cannot hold. Host side, after a chunk.

    Args:
        refused: of every seed.
        support: what the belief can hold.
        space: of the belief.

    Raises:
        ValueError: names the seed, the step, state and action, the reward and the law.
    """
    seed = first_index(np.asarray(refused.time) >= 0)
    if seed is None:
        return
    time, step, state, action, outcome = (int(np.asarray(x)[seed]) for x in refused[:-1])
    cell = (state, action) if space.horizon is None else (step, state, action)
    # A support of listed outcomes is indexed by place in the list.
    place = outcome if space.successors is None else int(space.place(tuple(map(np.asarray, cell)), np.asarray(outcome)))
    learnable = support.map_arrays(np.asarray).at(cell, place).cell(())
    reward = f"{float(np.asarray(refused.reward)[seed]):g}"
    raise ValueError(
        f"env pays {reward} to seed {seed[0]} at step {time}, in state {state}, action {action}, "
        f"{learnable.expected(of_env=True)}"
    )


def payable_rewards(law: RewardLaw, cell: Cells, outcome: Int[np.ndarray, " P"]) -> list[RewardSupport] | None:
    """What an environment can pay for transitions from `cell` to `outcome`: the union of the parts. Host side.

    Args:
        law: of the rewards.
        cell: index of its tables.
        outcome: index of each outcome, the end included.

    Returns:
        Supports with arrays [P], or none; an entry of which `low` exceeds `high` is empty. None: the law is not known.
    """
    if type(law) is NormalReward:
        entry = (*cell, outcome) if law.by_outcome else cell
        mean = np.asarray(law.mean, np.float64)[entry]
        if law.scale is None:
            return [make_support(mean, mean)]
        scale = np.asarray(law.scale)
        return [_normal(mean, scale[entry] if scale.ndim else scale)]
    if type(law) is ListedReward:
        value = np.asarray(law.value, np.float64)[cell]
        # [P E]: which entries of the list belong to the outcome of each transition, and can happen.
        listed = (np.asarray(law.outcome)[cell] == outcome[:, None]) & (np.asarray(law.probability)[cell] > 0)
        return [_where(possible, value_of_entry) for possible, value_of_entry in zip(listed.T, value.T, strict=True)]
    if type(law) is ListedRewards:
        return payable_rewards(law.table, cell, np.asarray(law.space.place(cell[-len(law.space.shape) :], outcome)))
    if type(law) is not RewardTable:
        return None
    entry = (*cell, outcome) if law.by_outcome else cell
    if law.law is None:
        assert law.known is not None  # there is no law
        known = np.asarray(law.known, np.float64)[entry]
        return [make_support(known, known)]
    return _pieces(law_at(law.law, entry))


def _pieces(law: dist.Distribution) -> list[RewardSupport] | None:
    # A law in disguise (masked, expanded, independent) is what it wraps.
    law = unwrap(law)
    if isinstance(law, dist.Normal):
        return [_normal(np.asarray(law.loc, np.float64), np.asarray(law.scale))]
    if law.has_enumerate_support:
        try:
            values = np.asarray(law.enumerate_support(expand=False), np.float64).ravel()
        except NotImplementedError:  # their number differs from cell to cell
            values = np.zeros(0)
        if 0 < values.size <= MOST_VALUES:
            possible = _possible(law, values)
            return [
                _where(is_possible, np.full(is_possible.shape, value))
                for is_possible, value in zip(possible, values, strict=True)
            ]
    support = support_of(law)
    return None if support is None else [support]


def _possible(law: dist.Distribution, values: Float[np.ndarray, " V"]) -> Bool[np.ndarray, "V P"]:
    """Whether each value has a probability. NumPyro's densities take a probability of 0 for a very small one."""
    value = values[:, None]
    if isinstance(law, (dist.CategoricalProbs, dist.CategoricalLogits)):
        return np.asarray(law.probs).T > 0
    if isinstance(law, (dist.BernoulliProbs, dist.BernoulliLogits, dist.BinomialProbs, dist.BinomialLogits)):
        probs = np.asarray(law.probs)
        # NumPyro clips probabilities, so 0 and the number of trials are compared with the probability itself.
        return ((value == 0) | (probs > 0)) & ((value == values.max()) | (probs < 1))
    return np.asarray(law.log_prob(jnp.asarray(value))) > -np.inf


def _normal(mean: np.ndarray, scale: np.ndarray) -> RewardSupport:
    """Every number, but where nothing varies."""
    return make_support(np.where(scale == 0, mean, -np.inf), np.where(scale == 0, mean, np.inf), law="Normal")


def _where(possible: Bool[np.ndarray, " P"], value: np.ndarray) -> RewardSupport:
    """One number where it is possible, else nothing."""
    return make_support(np.where(possible, value, np.inf), np.where(possible, value, -np.inf))


def _reachable_states(
    outcome: Int[np.ndarray, "*H S A K"],
    initial: Bool[np.ndarray, " S"],
    legal: Bool[np.ndarray, "*H S A"],
    horizon: int | None,
) -> Bool[np.ndarray, "*H S"]:
    """The states in which an agent may have to act (at each step, where the environment has steps)."""
    by_step, n_states = outcome.ndim == 4, initial.size
    seen = np.zeros((*outcome.shape[: outcome.ndim - 2],), bool)
    now = initial.copy()
    # A breadth-first search over S states ends after S steps at most.
    steps = outcome.shape[0] if by_step else horizon or n_states
    # Breadth first: states that some action leads to, step by step.
    for step in range(steps):
        if by_step:
            seen[step] = now
        else:
            # Only the states that are new go on.
            now, seen = now & ~seen, seen | now
        table, allowed = (outcome[step], legal[step]) if by_step else (outcome, legal)
        after = np.zeros(n_states + 1, bool)  # the last: the end
        after[table[now][allowed[now]].ravel()] = True
        now = after[:-1]
    return seen
