"""`PolicyChains`: draws of the Markov chains that given policies make of an unknown MDP, without drawing the MDP.

Only the pairs that a policy uses are drawn, and of their rows only the outcomes that are possible; the values of a
policy need no more. The draws are those of whole MDPs with the same keys, but for rounding.
"""

from dataclasses import replace
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bayes_mdp.inference.conjugate.row_entries import RowEntries
from bayes_mdp.mdp import MDP, Discounted, Episodic, FirstExit, Objective, SparseMDP
from bayes_mdp.numerics.by_numpy.small_jit import small_jit
from bayes_mdp.planning.linear.systems import DIRECT, LISTED_DIRECT
from bayes_mdp.planning.rounding import Mixed
from bayes_mdp.planning.solution import Solution
from bayes_mdp.planning.solve import evaluate_mixed
from bayes_mdp.utils.typing import AnyArray

DENSE_SHARE = 0.25  # of a row that is listed: above, a product with a dense matrix is faster
NEIGHBOURS = 0.25  # of the probability: from here on moves to neighbours are worth a preconditioner
SMALL = 128  # states whose chains are always dense
_TIMES_MEAN_GAP, _SMALL_GAP = 16.0, 1e-9  # error bounds of draws, in those of the mean, and in the largest value


@runtime_checkable
class CanSampleEntries(Protocol):
    """Draws some of its rows without the others."""

    def row_entries(self, needed: Bool[np.ndarray, "S A"]) -> RowEntries | None:
        """The possible outcomes of the needed pairs; None: it can only be drawn whole. Host side."""
        ...

    def sample_entries(self, key: PRNGKeyArray, entries: RowEntries) -> tuple[Float[Array, " E"], Float[Array, "S A"]]:
        """Probabilities of the entries, and expected rewards of all pairs: those of `sample` with this key."""
        ...

    def mean_entries(self, entries: RowEntries) -> tuple[Float[Array, " E"], Float[Array, "S A"]]:
        """Their posterior means."""
        ...


class PolicyChains(eqx.Module):
    """The chains of P policies in one draw after another (built by `policy_chains`).

    Args:
        entries: the outcomes of the pairs that any of the policies uses.
        weights: [P Q], how likely a policy takes the action of each pair.
        place: [S L], the entries of each state, E where there are fewer; None: chains are dense.
        n_states, n_actions: S and A.
        ends: whether episodes can end.
        neighbours: whether much of the probability leads to the states before and after.
        deterministic: whether every policy takes one pair in a state.
        inverse: [P S S], of I - discount P for the chains in the mean, in float32: draws are near; None: not known.
    """

    entries: RowEntries
    weights: Float[AnyArray, "P Q"]
    place: Int[AnyArray, "S L"] | None
    n_states: int = eqx.field(static=True)
    n_actions: int = eqx.field(static=True)
    ends: bool = eqx.field(static=True)
    neighbours: bool = eqx.field(static=True)
    deterministic: bool = eqx.field(default=False, static=True)
    inverse: Float[AnyArray, "P S S"] | None = None

    @property
    def numbers(self) -> int:
        """How many numbers one draw holds, its chains included."""
        row = self.n_states if self.place is None else self.place.shape[-1]
        return 4 * len(self.entries.pair) + len(self.weights) * self.n_states * row

    def values(
        self,
        probs: Float[Array, " E"],
        reward: Float[Array, "S A"],
        objective: Objective,
        start: Solution | None = None,
    ) -> Solution:
        """The values of all policies in one draw, [P S]: one batch.

        Args:
            probs: of the entries.
            reward: of all pairs.
            objective: stationary.
            start: values [P S] of similar chains, to start from.
        """
        pairs = (jnp.asarray(self.entries.state), jnp.asarray(self.entries.action))
        mixed = Mixed(self.n_actions, jnp.max(jnp.abs(reward[pairs])))

        def one(chain: MDP | SparseMDP, start: Solution | None, inverse: Float[Array, "S S"] | None) -> Solution:
            return evaluate_mixed(chain, objective, mixed, start, neighbours=self.neighbours, inverse=inverse)

        inverse = None if self.inverse is None else jnp.asarray(self.inverse)
        # XLA adds the rows of a batch of large chains one number at a time: they are made one after the other.
        weights, make = jnp.asarray(self.weights, probs.dtype), lambda w: self.chain(w, probs, reward)
        in_turn = self.n_states > DIRECT and not self.deterministic
        chains = jax.lax.map(make, weights) if in_turn else jax.vmap(make)(weights)
        return jax.vmap(one)(chains, start, inverse)

    def in_single_precision(self) -> "PolicyChains":
        """The same with random numbers of single precision, which take a fourth of the time. Host side."""
        return eqx.tree_at(lambda c: c.entries.concentration, self, np.asarray(self.entries.concentration, np.float32))

    def draw(self, posterior: CanSampleEntries, key: PRNGKeyArray) -> tuple[Float[Array, " E"], Float[Array, "S A"]]:
        """Probabilities of the entries and rewards of one draw, whatever the random numbers in double precision."""
        return self.in_double(*posterior.sample_entries(key, self.entries))

    def in_double(
        self, probs: Float[Array, " E"], reward: Float[Array, "S A"]
    ) -> tuple[Float[Array, " E"], Float[Array, "S A"]]:
        """A draw in double precision. Traceable."""
        if probs.dtype == jnp.float32:
            # Rows sum to one in double precision.
            probs = probs.astype(jnp.float64)
            probs = probs / self.entries.to_entries(self.entries.sum_by_pair(probs))
        return probs, reward.astype(jnp.float64)

    def may_have_inverses(self, objective: Objective) -> bool:
        """Whether inverses of similar chains are of use: dense ones that are not solved by elimination."""
        solvable = isinstance(objective, Discounted | FirstExit)
        return self.place is None and self.n_states > DIRECT and solvable

    def with_inverses(
        self, probs: Float[AnyArray, " E"], reward: Float[AnyArray, "S A"], objective: Objective
    ) -> "PolicyChains":
        """The same, with the inverses of these chains where later ones profit. Host side.

        Only of dense chains that are not solved by elimination; not for the average reward.

        Args:
            probs: of the entries, the mean.
            reward: of all pairs.
            objective: of the evaluation.
        """
        if not self.may_have_inverses(objective):
            return self
        discount = float(objective.discount) if isinstance(objective, Discounted) else 1.0
        inverses = np.empty((len(self.weights), self.n_states, self.n_states), np.float32)
        for k, weights in enumerate(np.asarray(self.weights)):
            chain = _compiled_chain(self, jnp.asarray(weights), jnp.asarray(probs), jnp.asarray(reward))
            matrix = np.eye(self.n_states) - discount * np.asarray(chain.transition_probs)[:, 0]
            try:
                inverses[k] = np.linalg.inv(matrix)
            except np.linalg.LinAlgError:  # some state never ends
                return self
        return eqx.tree_at(lambda c: c.inverse, self, jnp.asarray(inverses), is_leaf=lambda x: x is None)

    def chain(
        self, weights: Float[Array, " Q"], probs: Float[Array, " E"], reward: Float[Array, "S A"]
    ) -> MDP | SparseMDP:
        """The chain of a policy that takes the pairs with these weights."""
        entries, n = self.entries, self.n_states
        origin, action, pair, reached = (
            jnp.asarray(x) for x in (entries.state, entries.action, entries.pair, entries.next_state)
        )
        mean_reward = jnp.zeros((n, 1), reward.dtype).at[origin, 0].add(weights * reward[origin, action])
        if entries.width == n + self.ends and self.place is None:
            # Every pair has all outcomes, in their order: rows are added to rows, or taken as they are.
            rows = probs.reshape(-1, n + self.ends)
            if self.deterministic:
                number = jnp.where(weights > 0, jnp.arange(len(weights)), -1)
                taken = jnp.maximum(jax.ops.segment_max(number, origin, n, indices_are_sorted=True), 0)
                mixed = rows[taken]
            else:
                rows = weights[:, None] * rows
                mixed = jnp.zeros((n, n + self.ends), rows.dtype).at[origin].add(rows, indices_are_sorted=True)
            return MDP(mixed[:, None, :n], mean_reward, end_probs=mixed[:, n:] if self.ends else None)
        # Joint probabilities of action and outcome.
        state, joint = origin[pair], weights[pair] * probs
        ended = jnp.where(reached == n, joint, 0.0)
        ends = jnp.zeros((n, 1), joint.dtype).at[state, 0].add(ended) if self.ends else None
        if self.place is None:
            # The end, S, is no column: it is dropped.
            rows = jnp.zeros((n, n), joint.dtype).at[state, reached].add(joint, mode="drop")
            return MDP(rows[:, None], mean_reward, end_probs=ends)
        place = jnp.asarray(self.place)
        listed = jnp.append(jnp.where(reached == n, 0.0, joint), 0.0)[place]
        successor = jnp.append(jnp.where(reached == n, 0, reached), 0)[place]
        return SparseMDP(successor[:, None], listed[:, None], mean_reward, end_probs=ends)

    def reweighted(self, policies: Float[np.ndarray, "P S A"]) -> "PolicyChains":
        """The same for other policies, which take no pair that is not among the entries. Host side."""
        weights = np.asarray(policies)[:, np.asarray(self.entries.state), np.asarray(self.entries.action)]
        # Inverses are those of the policies before.
        return replace(self, weights=weights, inverse=None, deterministic=_deterministic(policies))

    def faults(self, probs: Float[Array, " E"]) -> tuple[Float[Array, " 1"], Float[Array, " 1"]]:
        """How far the rows are from summing to one, and the largest probability of an end in any of them."""
        entries = self.entries
        total = entries.sum_by_pair(probs)
        ended = jnp.where(jnp.asarray(entries.next_state) == self.n_states, probs, 0.0)
        return jnp.max(jnp.abs(total - 1.0))[None], jnp.max(ended)[None]


def _deterministic(policies: Float[AnyArray, "P S A"]) -> bool:
    return bool(np.all(np.max(np.asarray(policies), -1) == 1.0))


@small_jit
def evaluate_mean(
    posterior: CanSampleEntries, chains: PolicyChains, objective: Objective, start: Solution | None = None
) -> tuple[Solution, Float[Array, " E"], Float[Array, "S A"]]:
    """The chains in the mean of the belief, near its draws, in float64; probabilities and rewards of the mean.

    Args:
        posterior, chains, objective: as in `policy_chains`.
        start: as in `PolicyChains.values`.
    """
    entries = eqx.tree_at(lambda e: e.concentration, chains.entries, jnp.asarray(chains.entries.concentration, float))
    probs, reward = (x.astype(jnp.float64) for x in posterior.mean_entries(entries))
    return chains.values(probs, reward, objective, start), probs, reward


@small_jit
def _mean_of(entries: RowEntries) -> Float[AnyArray, " E"]:
    return entries.mean()


def solved(values: Float[AnyArray, "*C P"], gaps: Float[AnyArray, "*C P"], mean_gap: Float[AnyArray, " P"]) -> bool:
    """Whether draws that were solved with the inverses of the mean have proven errors that do not matter. Host side.

    Args:
        values, gaps: with error bounds.
        mean_gap: error bounds of the mean.
    """
    gaps, scale = np.asarray(gaps), np.max(np.abs(np.asarray(values)))
    return bool(np.all(gaps <= np.maximum(_TIMES_MEAN_GAP * np.asarray(mean_gap), _SMALL_GAP * scale)))


@eqx.filter_jit
def _compiled_chain(
    chains: PolicyChains, weights: Float[Array, " Q"], probs: Float[Array, " E"], reward: Float[Array, "S A"]
) -> MDP | SparseMDP:
    return chains.chain(weights, probs, reward)


def policy_chains(
    posterior: object, policies: Float[AnyArray, "P *H S A"], objective: Objective, *, ends: bool
) -> PolicyChains | None:
    """The chains of policies under a posterior; None where whole MDPs have to be drawn. Host side.

    Args:
        posterior: of `CanSampleEntries`.
        policies: action probabilities.
        objective: of the evaluation; `Episodic`: None.
        ends: whether episodes can end.
    """
    if isinstance(objective, Episodic) or not isinstance(posterior, CanSampleEntries):
        return None
    probs = np.asarray(policies)
    entries = posterior.row_entries(np.asarray((probs > 0).any(0)))
    if entries is None:
        return None
    n_states, n_actions = probs.shape[-2:]
    state = np.asarray(entries.state)[np.asarray(entries.pair)]
    first = np.searchsorted(state, np.arange(n_states + 1))
    longest = int(np.diff(first).max())
    dense = n_states <= SMALL or (n_states <= LISTED_DIRECT and longest > DENSE_SHARE * n_states)
    place = None
    if not dense:
        place = first[:-1, None] + np.arange(longest)
        place = np.where(place < first[1:, None], place, len(state)).astype(np.int32)
    weights = probs[:, np.asarray(entries.state), np.asarray(entries.action)]
    near = np.abs(np.asarray(entries.next_state) - state) == 1
    share = float((np.asarray(_mean_of(entries)) * near).sum()) / len(entries.state)
    near_moves = share > NEIGHBOURS
    return PolicyChains(entries, weights, place, n_states, n_actions, ends, near_moves, _deterministic(probs))
