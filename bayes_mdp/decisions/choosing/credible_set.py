"""`CredibleSet`: a set of MDPs, a product over pairs, that holds a stated share of the posterior.

Rows lie within an L1 distance of their means, mean rewards within an interval around theirs. The shape of the set, how
the distances of different pairs compare, is that of the mean distances in one half of the draws. Its size is one factor
for all pairs: an order statistic, over the other half, of the largest distance of a draw in these units. A further draw
of the posterior is exchangeable with that half, so it lies inside the set, as a whole, with at least the stated
probability, for any number of draws, and whether or not pairs are independent (split conformal prediction: Vovk,
Gammerman and Shafer 2005).
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from bayes_mdp.decisions.choosing.common_draws import CommonDraws
from bayes_mdp.mdp import MDP, SparseMDP
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
        every = jnp.append(values, 0.0)
        ahead = every[jnp.asarray(self.successor)]
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
        mean = jnp.sum(probs * ahead, -1)
        q = jnp.asarray(self.reward - self.reward_radius) + discount * (mean + moved)
        return jnp.full((self.n_states, self.n_actions), -jnp.inf).at[self.state, self.action].set(q)


def centre(draws: CommonDraws, mean: MDP | SparseMDP | None) -> CredibleSet:
    """The mean of the posterior, with distances zero.

    Args:
        draws: of the posterior; where they are of single pairs, these are the pairs.
        mean: the posterior's mean; None: that of the draws.

    Raises:
        ValueError: draws that depend on the step; rows over all states do not fit in memory.
    """
    if draws.shape[:-2]:
        raise ValueError("posterior has draws that depend on the step, expected draws that do not with Robust")
    n_states, n_actions = draws.shape[-2:]
    if draws.chains is not None:
        entries = draws.chains.entries
        with jax.enable_x64(True):
            probs, reward = (np.asarray(x) for x in draws.posterior.mean_entries(entries))  # type: ignore[attr-defined]
        state, action, pair = (np.asarray(x) for x in (entries.state, entries.action, entries.pair))
        place = np.arange(len(pair)) - np.searchsorted(pair, pair)
        width = int(place.max()) + 1
        check_memory(f"posterior has {len(state)} pairs of up to {width} outcomes", 64.0 * len(state) * width)
        rows, possible = np.zeros((len(state), width)), np.zeros((len(state), width), bool)
        reached = np.full((len(state), width), n_states, np.int32)
        rows[pair, place], possible[pair, place] = probs, entries.possible
        reached[pair, place] = np.asarray(entries.next_state)
        reward = reward[state, action]
        aligned = bool(np.all(reached == reached[0]))
    else:
        mean = _mean_of(draws) if mean is None else mean
        legal = np.ones((n_states, n_actions), bool) if draws.legal is None else draws.legal
        state, action = np.nonzero(legal)
        rows, reached = _lists(mean, state, action)
        possible = reached >= 0
        places = np.append(np.arange(n_states), n_states)[: reached.shape[1]]
        aligned = not isinstance(mean, SparseMDP)
        reached = np.where(possible, reached, places if aligned else n_states).astype(np.int32)
        reward = np.asarray(mean.reward, np.float64)[state, action]
    nothing = np.zeros(len(state))
    rows = rows * possible
    return CredibleSet(
        state, action, reached, rows, possible, reward, nothing, nothing, n_states, n_actions, aligned=aligned
    )


def credible_set(draws: CommonDraws, mean: MDP | SparseMDP | None, confidence: float) -> CredibleSet:
    """The set of posterior probability `confidence` (see the top of this file).

    Raises:
        ValueError: too few draws for the confidence.
    """
    middle = centre(draws, mean)
    first = draws.num // 2
    # The share of the second half that must lie inside, so that one more draw does with the stated probability.
    rank = math.ceil(confidence * (draws.num - first + 1) - 1e-9)
    if rank > draws.num - first:
        least = 2 * math.ceil(confidence / (1 - confidence) - 1e-9) - 1
        raise ValueError(
            f"num_draws is {draws.num}, expected at least {least}: a credible set of probability {confidence:g} is "
            "measured on half of the draws"
        )
    halves = [eqx.tree_at(lambda d: d.keys, draws, keys) for keys in (draws.keys[:first], draws.keys[first:])]
    rows, rewards = halves[0].over(_distances, middle)
    shape = np.maximum(rows.mean(0), 1e-12), np.maximum(rewards.mean(0), 1e-12 * np.abs(middle.reward).max() + 1e-300)
    (largest,) = halves[1].over(_largest, middle.scaled(*shape))
    factor = float(np.sort(largest)[rank - 1]) * _WIDER
    # What no draw moves but for rounding is known: a radius of its size would be lost again in every step without end.
    known = _KNOWN, _KNOWN * np.abs(middle.reward).max()
    return middle.scaled(
        *(np.where(factor * x <= least, 0.0, factor * x) for x, least in zip(shape, known, strict=True))
    )


def _mean_of(draws: CommonDraws) -> MDP | SparseMDP:
    with jax.enable_x64(True):
        every = jax.vmap(draws.posterior.sample)(jnp.asarray(draws.keys))
        dense = jax.vmap(lambda m: m.to_dense())(every) if isinstance(every, SparseMDP) else every
        return jax.tree.map(lambda x: jnp.mean(x, 0), eqx.tree_at(lambda m: m.legal, dense, None, is_leaf=_is_none))


def _is_none(x: object) -> bool:
    return x is None


def _lists(
    mdp: MDP | SparseMDP, state: Int[np.ndarray, " Q"], action: Int[np.ndarray, " Q"]
) -> tuple[Float[np.ndarray, "Q K"], Int[np.ndarray, "Q K"]]:
    """Rows and successors of pairs, -1 where there is none, S for the end."""
    if isinstance(mdp, SparseMDP):
        rows = np.asarray(mdp.probability, np.float64)[state, action]
        reached = np.where(rows > 0, np.asarray(mdp.successor)[state, action], -1)
    else:
        rows = np.asarray(mdp.transition_probs, np.float64)[state, action]
        reached = np.where(rows > 0, np.arange(mdp.n_states), -1)
    if mdp.end_probs is not None:
        ends = np.asarray(mdp.end_probs, np.float64)[state, action][:, None]
        rows = np.concatenate([rows, ends], -1)
        reached = np.concatenate([reached, np.where(ends > 0, mdp.n_states, -1)], -1)
    return rows, reached


def _differences(key: Array, draws: CommonDraws, middle: CredibleSet) -> tuple[Float[Array, " Q"], Float[Array, " Q"]]:
    """L1 distances of the rows of a draw from the centre, and absolute differences of the rewards."""
    state, action = jnp.asarray(middle.state), jnp.asarray(middle.action)
    if draws.chains is not None:
        entries = draws.chains.entries
        probs, reward = draws.draw_entries(key)
        central, _ = draws.posterior.mean_entries(entries)  # type: ignore[attr-defined]
        rows = entries.sum_by_pair(jnp.abs(probs - central))
    else:
        mdp = draws.posterior.sample(key)
        dense = mdp.to_dense() if isinstance(mdp, SparseMDP) else mdp
        outcomes = dense.transition_probs
        ends = jnp.zeros_like(dense.reward) if dense.end_probs is None else dense.end_probs
        outcomes = jnp.concatenate([outcomes, ends[..., None]], -1)[state, action]
        there = jnp.take_along_axis(outcomes, jnp.asarray(middle.successor), -1)
        inside = jnp.where(jnp.asarray(middle.possible), there, 0.0)
        # Mass that the centre does not list counts in full.
        rows = jnp.sum(jnp.abs(inside - middle.probs), -1) + jnp.maximum(1.0 - jnp.sum(inside, -1), 0.0)
        reward = dense.reward
    return rows, jnp.abs(reward[state, action] - middle.reward)


@eqx.filter_jit
def _distances(keys: Array, draws: CommonDraws, middle: CredibleSet) -> PyTree:
    return jax.vmap(lambda key: _differences(key, draws, middle))(keys)


@eqx.filter_jit
def _largest(keys: Array, draws: CommonDraws, middle: CredibleSet) -> PyTree:
    """The largest distance of each draw, in units of the radii."""

    def one(key: Array) -> tuple[Array]:
        rows, rewards = _differences(key, draws, middle)
        return (jnp.maximum(jnp.max(rows / middle.radius), jnp.max(rewards / middle.reward_radius)),)

    return jax.vmap(one)(keys)
