"""`CredibleSet`: a set of MDPs, a product over pairs, that holds a stated share of the posterior.

Rows lie within an L1 distance of their means, mean rewards within an interval around theirs. The shape of the set, how
the distances of different pairs compare, is that of the mean distances in one half of the draws. Its size is one factor
for all pairs: an order statistic, over the other half, of the largest distance of a draw in these units. A further draw
of the posterior is exchangeable with that half, so it lies inside the set, as a whole, with at least the stated
probability, for any number of draws, and whether or not pairs are independent (split conformal prediction: Vovk,
Gammerman and Shafer 2005).

The policy that is best in the worst MDP of the set is found by robust dynamic programming (Iyengar 2005).
"""

import math
from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bayes_mdp.decisions.choosing.common_draws import CommonDraws
from bayes_mdp.decisions.choosing.policy_set import PolicySet
from bayes_mdp.inference.pair_draws import PairRows
from bayes_mdp.mdp import MDP, AverageReward, Discounted, Episodic, Objective, SparseMDP
from bayes_mdp.utils.memory import check_memory

_WIDER = 1 + 1e-9  # for rounding: a draw on the edge lies inside
_KNOWN = 1e-9  # distance that is rounding; of rewards as a share of the largest


class CredibleSet(eqx.Module):
    """Rows and rewards that are possible for Q pairs.

    Args:
        state, action: [Q], the pairs.
        successor: Int[Q K], where the places of a row lead; S: the end of the episode.
        probs: [Q K], the centre of the rows.
        possible: Bool[Q K], the places that exist.
        reward: [Q], the centre of the mean rewards.
        radius: [Q], the L1 distance.
        reward_radius: [Q], the half-width of the interval.
        n_states, n_actions: S and A.
        aligned: whether all rows of `successor` are the same.
    """

    state: Int[np.ndarray, " Q"]
    action: Int[np.ndarray, " Q"]
    successor: Int[np.ndarray, "Q K"]
    probs: Float[np.ndarray, "Q K"]
    possible: Bool[np.ndarray, "Q K"]
    reward: Float[np.ndarray, " Q"]
    radius: Float[np.ndarray, " Q"]
    reward_radius: Float[np.ndarray, " Q"]
    n_states: int = eqx.field(static=True)
    n_actions: int = eqx.field(static=True)
    aligned: bool = eqx.field(default=False, static=True)

    def scaled(self, radius: Float[np.ndarray, " Q"], reward_radius: Float[np.ndarray, " Q"]) -> "CredibleSet":
        """The set of other distances around the same centre."""
        return eqx.tree_at(lambda s: (s.radius, s.reward_radius), self, (radius, reward_radius))

    def worst_values(self, values: Float[Array, " S"], discount: float | Array) -> Float[Array, "S A"]:
        """min of reward + discount p . values over the set, for every pair; -inf for others.

        Half of the radius moves from the best outcomes of a row to its worst one (Iyengar 2005, section 4). The end has
        value zero.
        """
        # A place of value zero for the end, number S.
        padded = jnp.append(values, 0.0)
        ahead = padded[jnp.asarray(self.successor)]
        possible, probs = jnp.asarray(self.possible), jnp.asarray(self.probs)
        if self.aligned:
            # All rows list the same places: one order for all. Places that do not exist have no mass to be taken.
            order = jnp.argsort(ahead[0])[::-1]
            ranked, mass = ahead[0][order], probs[:, order]
        else:
            order = jnp.argsort(jnp.where(possible, ahead, -jnp.inf), axis=-1)[:, ::-1]  # from the best down
            ranked, mass = jnp.take_along_axis(ahead, order, -1), jnp.take_along_axis(probs, order, -1)
        # What is taken from the k best: all of them, until half of the radius is gone.
        reached = jnp.cumsum(mass, -1)
        half = jnp.minimum(jnp.asarray(self.radius) / 2, 1.0)[:, None]
        taken = jnp.diff(jnp.minimum(reached, half), axis=-1, prepend=0.0)
        lowest = jnp.min(jnp.where(possible, ahead, jnp.inf), -1)
        moved = jnp.sum(taken, -1) * lowest - jnp.sum(taken * ranked, -1)
        # E p . v at the centre, and what the adversary takes off it.
        mean = jnp.sum(probs * ahead, -1)
        # Worst reward at the lower end of its interval.
        q = jnp.asarray(self.reward - self.reward_radius) + discount * (mean + moved)
        # Pairs that are not in the set are never chosen.
        return jnp.full((self.n_states, self.n_actions), -jnp.inf).at[self.state, self.action].set(q)


def centre(draws: CommonDraws, mean: MDP | SparseMDP | None) -> CredibleSet:
    """The mean of the posterior, with distances zero.

    Args:
        draws: of the posterior; their pairs are those of the set.
        mean: the posterior's mean; None: that of the draws.

    Raises:
        ValueError: draws that depend on the step; rows over all states do not fit in memory.
    """
    rows = draws.rows
    if rows.step is not None:
        raise ValueError("posterior has draws that depend on the step, expected draws that do not with Robust")
    # Rows padded to the longest: [Q K].
    width = int(np.diff(rows.first).max())
    check_memory(f"posterior has {len(rows.state)} pairs of up to {width} outcomes", 64.0 * len(rows.state) * width)
    probs, reward = _mean_of(draws) if mean is None else _entries_of(mean, rows)
    # Place of an entry within its row.
    place = np.arange(len(rows.pair)) - rows.first[rows.pair]
    table, possible = np.zeros((len(rows.state), width)), np.zeros((len(rows.state), width), bool)
    reached = np.full((len(rows.state), width), rows.n_states, np.int32)
    table[rows.pair, place], possible[rows.pair, place] = probs, True
    reached[rows.pair, place] = rows.next_state
    aligned = bool(np.all(reached == reached[0]))
    nothing = np.zeros(len(rows.state))
    return CredibleSet(
        rows.state,
        rows.action,
        reached,
        table,
        possible,
        reward,
        nothing,
        nothing,
        rows.n_states,
        draws.sizes.n_actions,
        aligned=aligned,
    )


def _mean_of(draws: CommonDraws) -> tuple[Float[np.ndarray, " E"], Float[np.ndarray, " Q"]]:
    # Sums over blocks: draws of all pairs are never in memory together.
    probs, reward = np.zeros(len(draws.rows.pair)), np.zeros(len(draws.rows.state))
    for _, drawn in draws.blocks():
        probs += drawn.probs.sum(0) / draws.num
        reward += drawn.reward.sum(0) / draws.num
    return probs, reward


def _entries_of(mdp: MDP | SparseMDP, rows: PairRows) -> tuple[Float[np.ndarray, " E"], Float[np.ndarray, " Q"]]:
    """Probabilities of the entries in one MDP, and rewards of the pairs."""
    state, action = rows.state[rows.pair], rows.action[rows.pair]
    dense = np.asarray(mdp.to_dense().transition_probs if isinstance(mdp, SparseMDP) else mdp.transition_probs)
    # The end is no state of the rows: it has a table of its own.
    inside = rows.next_state < rows.n_states
    probs = np.where(inside, dense[state, action, np.where(inside, rows.next_state, 0)], 0.0)
    if mdp.end_probs is not None:
        probs = np.where(inside, probs, np.asarray(mdp.end_probs)[state, action])
    return probs.astype(np.float64), np.asarray(mdp.reward, np.float64)[rows.state, rows.action]


def credible_set(draws: CommonDraws, mean: MDP | SparseMDP | None, confidence: float) -> CredibleSet:
    """The set of posterior probability `confidence` (see the top of this file).

    Raises:
        ValueError: too few draws for the confidence.
    """
    middle = centre(draws, mean)
    first = draws.num // 2
    # The share of the second half that must lie inside, so that one more draw does with the stated probability.
    # Split conformal: the ceil((n + 1) confidence)-th smallest of n distances.
    rank = math.ceil(confidence * (draws.num - first + 1) - 1e-9)
    if rank > draws.num - first:
        least = 2 * math.ceil(confidence / (1 - confidence) - 1e-9) - 1
        raise ValueError(
            f"num_draws is {draws.num}, expected at least {least}: a credible set of probability {confidence:g} is "
            "measured on half of the draws"
        )
    rows, rewards = (np.zeros(len(middle.state)) for _ in range(2))
    # Mean distances of the first half are the shape of the set.
    for distances in _distances(draws, middle, slice(first)):
        rows, rewards = rows + distances[0].sum(0) / first, rewards + distances[1].sum(0) / first
    # Pairs that no draw moves still need a positive unit to divide by.
    shape = np.maximum(rows, 1e-12), np.maximum(rewards, 1e-12 * np.abs(middle.reward).max() + 1e-300)
    largest = np.concatenate(
        [
            # The largest distance over all pairs: the set holds a draw only if it holds all of its rows.
            np.maximum((distances[0] / shape[0]).max(-1), (distances[1] / shape[1]).max(-1))
            for distances in _distances(draws, middle, slice(first, None))
        ]
    )
    # Wider by a rounding error, so that the draw on the edge is inside.
    factor = float(np.sort(largest)[rank - 1]) * _WIDER
    # What no draw moves but for rounding is known: a radius of its size would be lost again in every step without end.
    known = _KNOWN, _KNOWN * np.abs(middle.reward).max()
    return middle.scaled(
        *(np.where(factor * x <= least, 0.0, factor * x) for x, least in zip(shape, known, strict=True))
    )


def _distances(
    draws: CommonDraws, middle: CredibleSet, which: slice
) -> Iterator[tuple[Float[np.ndarray, "N Q"], Float[np.ndarray, "N Q"]]]:
    """L1 distances of the rows of some draws from the centre, and absolute differences of the rewards."""
    rows = draws.rows
    # The centre of each entry, by its place in its row.
    centre = middle.probs[rows.pair, np.arange(len(rows.pair)) - rows.first[rows.pair]]
    for _, drawn in draws.blocks(which):
        yield rows.sums(np.abs(drawn.probs - centre)), np.abs(drawn.reward - middle.reward)


_SWEEPS = 100_000
_NEAR = 1e-13  # change of a sweep, as a share of the largest value, that ends the sweeps

Loop = tuple[Float[Array, " S"], Float[Array, ""], Int[Array, ""]]
"""Values, largest change, sweeps."""


class RobustPlan(eqx.Module):
    """The plan.

    Args:
        choice: Int[*H S], the free action in every state.
        values: [S], the worst values of the policy from every first state.
        gap: bound on the error of `values`, in exact arithmetic; infinite where none is proven.
    """

    choice: Int[np.ndarray, "*H S"]
    values: Float[np.ndarray, " S"]
    gap: float


def robust_plan(members: CredibleSet, objective: Objective, policies: PolicySet) -> RobustPlan:
    """The best policy of the set in the worst MDP, whose rows the adversary chooses pair by pair (and step by step).

    Raises:
        ValueError: `AverageReward`, for which no bound is known here; sweeps that do not settle (`FirstExit`, where the
            worst MDP need not end).
    """
    if isinstance(objective, AverageReward):
        raise ValueError("objective is AverageReward, expected Discounted, Episodic or FirstExit with Robust")
    with jax.enable_x64(True):
        free, fixed, mass = (jnp.asarray(x) for x in (policies.free, policies.fixed, policies.mass))
        if isinstance(objective, Episodic):
            shape = (objective.horizon, *free.shape)
            fixed, mass = jnp.broadcast_to(fixed, shape), jnp.broadcast_to(mass, shape[:-1])
            # Backwards: the adversary chooses anew at each step.
            q = _backward(members, objective.discount, free, fixed, mass)
            choice = np.argmax(np.where(np.asarray(free), np.asarray(q), -np.inf), -1)
            return RobustPlan(choice, np.asarray(_state_values(q[0], free, fixed[0], mass[0])), 0.0)
        discounted = isinstance(objective, Discounted)
        discount = jnp.asarray(objective.discount if discounted else 1.0)
        values, change, sweeps = _sweeps(members, discount, free, fixed, mass)
        # Values that grow without end: the worst MDP need not end an episode.
        scale = max(float(jnp.max(jnp.abs(values))), 1e-300)
        if not np.isfinite(scale) or (float(change) > 1e-6 * scale and int(sweeps) >= _SWEEPS):
            raise ValueError(
                f"objective is {type(objective).__name__}: the worst values did not settle in {_SWEEPS} sweeps, "
                "expected a set in which every policy ends (or Discounted)"
            )
        q = members.worst_values(values, discount)
        choice = np.argmax(np.where(np.asarray(free), np.asarray(q), -np.inf), -1)
    rate = float(discount)
    # The sweep is a contraction: what is left is at most change * discount / (1 - discount).
    gap = float(change) * rate / (1 - rate) if discounted and rate < 1 else np.inf
    return RobustPlan(choice, np.asarray(values), gap)


def _state_values(
    q: Float[Array, "S A"], free: Bool[Array, "S A"], fixed: Float[Array, "S A"], mass: Float[Array, " S"]
) -> Float[Array, " S"]:
    """The fixed part of the policy, and the best free action with the rest of the probability."""
    # nan of pairs that the fixed part never takes must not spread.
    known = jnp.where(fixed > 0, q, 0.0)
    best = jnp.max(jnp.where(free, q, -jnp.inf), -1)
    # Where no probability is left there may be no free action: -inf times zero is no number.
    return jnp.sum(fixed * known, -1) + mass * jnp.where(mass > 0, best, 0.0)


@eqx.filter_jit
def _sweeps(
    members: CredibleSet,
    discount: Float[Array, ""],
    free: Bool[Array, "S A"],
    fixed: Float[Array, "S A"],
    mass: Float[Array, " S"],
) -> Loop:
    def body(loop: Loop) -> Loop:
        values, _, count = loop
        # One sweep of the robust Bellman operator.
        new = _state_values(members.worst_values(values, discount), free, fixed, mass)
        return new, jnp.max(jnp.abs(new - values)), count + 1

    def going(loop: Loop) -> Bool[Array, ""]:
        values, change, count = loop
        return (change > _NEAR * jnp.max(jnp.abs(values))) & (count < _SWEEPS)

    return jax.lax.while_loop(going, body, body((jnp.zeros(members.n_states), jnp.array(jnp.inf), jnp.int32(0))))


@eqx.filter_jit
def _backward(
    members: CredibleSet,
    discount: float,
    free: Bool[Array, "S A"],
    fixed: Float[Array, "H S A"],
    mass: Float[Array, "H S"],
) -> Float[Array, "H S A"]:
    def step(values: Float[Array, " S"], layer: tuple[Array, Array]) -> tuple[Array, Array]:
        q = members.worst_values(values, discount)
        # The values of a step, from those of the step after it.
        return _state_values(q, free, *layer), q

    return jax.lax.scan(step, jnp.zeros(members.n_states), (fixed, mass), reverse=True)[1]
