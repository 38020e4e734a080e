"""Rewards of an environment that the belief of a run cannot hold: refused before the first step, or at the step.

Where the law of the rewards is known (`paid`), every pair that can be reached is looked at before the run. Where it is
not (a law of one's own), `check_paid` returns what the belief can hold, and every reward is compared with it.
"""

from typing import Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Bool, Float, Int

from bayes_mdp.envs.gymnasium.from_gymnasium import ListedReward
from bayes_mdp.experiments.rollout.simulator import Simulator
from bayes_mdp.experiments.rollout.time_loop import RefusedReward
from bayes_mdp.mdp import MDP, NormalReward, RewardLaw, SparseMDP, StateActionSpace
from bayes_mdp.models.mdp_spec import ListedRewards, RewardTable
from bayes_mdp.models.reward_laws import law_at, unwrap
from bayes_mdp.models.reward_support import RewardSupport, make_support, support_of
from bayes_mdp.utils.validation import first_index

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


def held_rewards(belief: object) -> RewardSupport | None:
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
    lead, axes = listed.shape[:batched], listed.ndim - batched - 1
    grid = np.broadcast_to(listed, (*lead, *space.shape, listed.shape[-1]))
    legal = np.ones(space.shape, bool) if space.legal is None else np.broadcast_to(space.legal, space.shape)
    if mdp.legal is not None:
        legal = legal & np.asarray(mdp.legal)[0 if batched else ...]
    # Every outcome of every legal pair, as an index of the tables of the environment and of those of the belief.
    *each, _ = np.nonzero(np.broadcast_to(legal[..., None], grid.shape))
    outcome = grid[np.broadcast_to(legal[..., None], grid.shape)]
    cell = tuple(each[batched:])
    pieces = paid(sim.reward_law, (*each[:batched], *cell[-axes:]), outcome)
    if pieces is None:
        return support
    held = support.at(cell, outcome if space.successors is None else np.asarray(space.place(cell, outcome)))
    for piece in pieces:
        bad = np.broadcast_to(~piece.lies_in(held), outcome.shape)
        if bad.any() and not batched:
            reached = _reached(listed, np.asarray(mdp.initial) > 0, legal if axes == legal.ndim else legal[0], horizon)
            bad = bad & np.broadcast_to(reached, space.shape[:-1])[cell[:-1]]
        index = first_index(bad)
        if index is not None:
            *step, state, action = (int(x[index]) for x in cell)
            where = f"{f'step {step[0]}, ' if step else ''}state {state}, action {action}"
            what = piece.cell(index)
            pays = f"{float(what.low):g}" if what.low == what.high else f"{what.law} rewards ({what})"
            raise ValueError(f"env pays {pays} in {where}, {held.cell(index).expected(of_env=True)}")
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
    place = outcome if space.successors is None else int(space.place(tuple(map(np.asarray, cell)), np.asarray(outcome)))
    held = support.map_arrays(np.asarray).at(cell, place).cell(())
    reward = f"{float(np.asarray(refused.reward)[seed]):g}"
    raise ValueError(
        f"env pays {reward} to seed {seed[0]} at step {time}, in state {state}, action {action}, "
        f"{held.expected(of_env=True)}"
    )


def paid(law: RewardLaw, cell: Cells, outcome: Int[np.ndarray, " P"]) -> list[RewardSupport] | None:
    """What an environment can pay for transitions from `cell` to `outcome`: the union of the parts. Host side.

    Args:
        law: of the rewards.
        cell: index of its tables.
        outcome: index of each outcome, the end included.

    Returns:
        Supports with arrays [P], or none; an entry of which `low` exceeds `high` is empty. None: the law is not known.
    """
    if type(law) is NormalReward:
        where = (*cell, outcome) if law.by_outcome else cell
        mean = np.asarray(law.mean, np.float64)[where]
        if law.scale is None:
            return [make_support(mean, mean)]
        scale = np.asarray(law.scale)
        return [_normal(mean, scale[where] if scale.ndim else scale)]
    if type(law) is ListedReward:
        value = np.asarray(law.value, np.float64)[cell]
        listed = (np.asarray(law.outcome)[cell] == outcome[:, None]) & (np.asarray(law.probability)[cell] > 0)
        return [_where(possible, one) for possible, one in zip(listed.T, value.T, strict=True)]
    if type(law) is ListedRewards:
        return paid(law.table, cell, np.asarray(law.space.place(cell[-len(law.space.shape) :], outcome)))
    if type(law) is not RewardTable:
        return None
    where = (*cell, outcome) if law.by_outcome else cell
    if law.law is None:
        assert law.known is not None  # there is no law
        known = np.asarray(law.known, np.float64)[where]
        return [make_support(known, known)]
    return _pieces(law_at(law.law, where))


def _pieces(law: dist.Distribution) -> list[RewardSupport] | None:
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
            return [_where(one, np.full(one.shape, value)) for one, value in zip(possible, values, strict=True)]
    support = support_of(law)
    return None if support is None else [support]


def _possible(law: dist.Distribution, values: Float[np.ndarray, " V"]) -> Bool[np.ndarray, "V P"]:
    """Whether each value has a probability. NumPyro's densities take a probability of 0 for a very small one."""
    value = values[:, None]
    if isinstance(law, (dist.CategoricalProbs, dist.CategoricalLogits)):
        return np.asarray(law.probs).T > 0
    if isinstance(law, (dist.BernoulliProbs, dist.BernoulliLogits, dist.BinomialProbs, dist.BinomialLogits)):
        probs = np.asarray(law.probs)
        return ((value == 0) | (probs > 0)) & ((value == values.max()) | (probs < 1))
    return np.asarray(law.log_prob(jnp.asarray(value))) > -np.inf


def _normal(mean: np.ndarray, scale: np.ndarray) -> RewardSupport:
    """Every number, but where nothing varies."""
    return make_support(np.where(scale == 0, mean, -np.inf), np.where(scale == 0, mean, np.inf), law="Normal")


def _where(possible: Bool[np.ndarray, " P"], value: np.ndarray) -> RewardSupport:
    """One number where it is possible, else nothing."""
    return make_support(np.where(possible, value, np.inf), np.where(possible, value, -np.inf))


def _reached(
    outcome: Int[np.ndarray, "*H S A K"],
    initial: Bool[np.ndarray, " S"],
    legal: Bool[np.ndarray, "*H S A"],
    horizon: int | None,
) -> Bool[np.ndarray, "*H S"]:
    """The states in which an agent may have to act (at each step, where the environment has steps)."""
    by_step, n_states = outcome.ndim == 4, initial.size
    seen = np.zeros((*outcome.shape[: outcome.ndim - 2],), bool)
    now = initial.copy()
    steps = outcome.shape[0] if by_step else horizon or n_states
    for step in range(steps):
        if by_step:
            seen[step] = now
        else:
            now, seen = now & ~seen, seen | now
        table, allowed = (outcome[step], legal[step]) if by_step else (outcome, legal)
        after = np.zeros(n_states + 1, bool)  # the last: the end
        after[table[now][allowed[now]].ravel()] = True
        now = after[:-1]
    return seen
