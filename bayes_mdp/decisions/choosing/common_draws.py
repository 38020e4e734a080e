"""`CommonDraws`: values of many policies in the same draws of an unknown MDP, and how they change with the policy.

The draws are kept as keys and drawn anew for each pass: a thousand draws of a large MDP need not fit in memory. Where
the posterior can draw single pairs, those that no policy of the search can use are never drawn, and the random numbers
are of single precision (a gamma variable of double precision takes four times as long); sums and linear systems are of
double precision throughout.
"""

from collections.abc import Callable
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree, Shaped

from bayes_mdp.decisions.chunks import CHAINS_AT_ONCE, NUMBERS_AT_ONCE, chunks_of, row_faults
from bayes_mdp.decisions.policy_chains import CanSampleEntries, PolicyChains, evaluate_mean, policy_chains, solved
from bayes_mdp.decisions.policy_evaluation import require_endless, require_usable
from bayes_mdp.decisions.start import read_start
from bayes_mdp.mdp import MDP, AverageReward, CanSample, Episodic, Objective, SparseMDP
from bayes_mdp.mdp.labelled_arguments import labels_of
from bayes_mdp.mdp.objectives import step_discount
from bayes_mdp.numerics.products import tensordot
from bayes_mdp.numerics.to_float64 import to_float64
from bayes_mdp.planning import evaluate, occupancy, solve
from bayes_mdp.planning.occupancy import chain_occupancy
from bayes_mdp.planning.outline import draw_shapes, outline
from bayes_mdp.planning.solution import Solution
from bayes_mdp.planning.start_value import value_at_start
from bayes_mdp.utils.memory import free_bytes
from bayes_mdp.utils.typing import AnyArray, InitialLike

BATCH = 4  # policies that are evaluated at once in a large problem
MANY = 16  # and in a small one
FEW = 2  # and where there is but a policy, and one to compare it with
SMALL = 4096  # pairs times outcomes of a small one

MOST_KEPT, KEPT_SHARE = 2.0**31, 0.25  # bytes of draws that are held, at most, and share of the free memory
_ITERATIONS = 200
_BETTER = 1e-11  # share of the largest value by which an action must be better

Policies = Float[AnyArray, "P *H S A"]


class GivenMDPs(eqx.Module):
    """MDPs that are listed, as a belief: the "key" of a draw holds its number.

    Args:
        mdps: with a leading axis W on every array.
    """

    mdps: MDP | SparseMDP

    def sample(self, key: PRNGKeyArray, sample_shape: tuple[int, ...] = ()) -> MDP | SparseMDP:
        """The MDP of this number."""
        return jax.tree.map(lambda x: jnp.asarray(x)[jax.random.key_data(key)[1]], self.mdps)

    @property
    def keys(self) -> Key[Array, " W"]:
        """Of all of them."""
        return _numbered(self.mdps.reward.shape[0])


def _numbered(count: int) -> Key[Array, " W"]:
    """Keys that hold a number each."""
    number = jnp.arange(count, dtype=jnp.uint32)
    words = jnp.stack([jnp.zeros_like(number), number], -1)
    return jax.random.wrap_key_data(words, impl="threefry2x32")


class KeptEntries(eqx.Module):
    """Draws of the entries of the needed pairs that are held in memory; the "key" of a draw holds its number.

    Args:
        probs: in single precision, as they were drawn.
        reward: of all pairs.
    """

    probs: Float[Array, "W E"]
    reward: Float[Array, "W S A"]

    def of(self, key: Array) -> tuple[Float[Array, " E"], Float[Array, "S A"]]:
        """The draw of this number. Traceable."""
        number = jax.random.key_data(key)[1]
        return self.probs[number], self.reward[number]


class CommonDraws(eqx.Module):
    """Draws of a belief about an MDP (built by `draws_of` and `given_draws`). Host-side, float64.

    Args:
        keys: of the draws.
        posterior: what draws.
        chains: for posteriors that can draw single pairs: the pairs that are needed; else None.
        objective: of the values.
        start: distribution of the first state.
        legal: legal actions of the draws; None: all.
        initial_given: whether someone stated `start`.
        kept: the draws, where they are held in memory.
    """

    keys: Shaped[AnyArray, "W ..."]
    posterior: CanSample
    chains: PolicyChains | None
    objective: Objective
    start: Float[np.ndarray, " S"]
    legal: Bool[np.ndarray, "S A"] | None
    initial_given: bool
    shape: tuple[int, ...] = eqx.field(static=True)
    numbers: int = eqx.field(static=True)
    kept: KeptEntries | None = None

    @property
    def num(self) -> int:
        """W, the number of draws."""
        return len(self.keys)

    @property
    def policy_shape(self) -> tuple[int, ...]:
        """(*H, S, A), the shape of a policy for the objective."""
        pairs = self.shape[-2:]
        return (self.objective.horizon, *pairs) if isinstance(self.objective, Episodic) else pairs

    @property
    def batch(self) -> int:
        """How many policies one pass takes."""
        return MANY if self.numbers <= SMALL else BATCH

    def draw_entries(self, key: Array) -> tuple[Float[Array, " E"], Float[Array, "S A"]]:
        """Probabilities of the entries of the needed pairs, and the rewards, in one draw. Traceable."""
        assert self.chains is not None
        if self.kept is not None:
            return self.chains.in_double(*self.kept.of(key))
        return self.chains.draw(self.posterior, key)  # type: ignore[arg-type] - it has entries

    def in_memory(self) -> "CommonDraws":
        """The same draws, held in memory if they fit into a share of it: a search passes over them many times."""
        if self.chains is None:
            return self
        size = self.num * (4.0 * len(self.chains.entries.pair) + 8.0 * np.prod(self.shape))
        if size > min(MOST_KEPT, KEPT_SHARE * free_bytes()):
            return self
        probs, reward = self.over(_entries_of)
        with jax.enable_x64(True):
            kept = KeptEntries(jnp.asarray(probs), jnp.asarray(reward))
            return replace(self, keys=_numbered(self.num), kept=kept)

    def pair_values(
        self, probs: Float[Array, " E"], reward: Float[Array, "S A"], values: Float[Array, " S"]
    ) -> Float[Array, " Q"]:
        """reward + discount sum_s' p values(s') of the needed pairs; the value of an end is zero. Traceable."""
        assert self.chains is not None
        entries = self.chains.entries
        ahead = jnp.append(values, 0.0)[jnp.asarray(entries.next_state)]
        now = reward[jnp.asarray(entries.state), jnp.asarray(entries.action)]
        return now + step_discount(self.objective) * entries.sum_by_pair(probs * ahead)

    def values(self, policies: Policies) -> Float[np.ndarray, "W P"]:
        """The value of every policy in every draw.

        Args:
            policies: action probabilities.

        Raises:
            ValueError: a value that is not finite in some draw, as `policy_value`.
        """
        return self.evaluations(policies)[0]

    def evaluations(self, policies: Policies) -> tuple[Float[np.ndarray, "W P"], Float[np.ndarray, "W P"]]:
        """`values`, and the bounds on their numerical errors."""
        policies = np.asarray(policies, np.float64)
        number, size = len(policies), self.batch
        parts, bounds = [], []
        for first in range(0, number, size):
            some = policies[first : first + size]
            # Two compiled programs for any number: a batch is filled up.
            full = min(FEW, size) if len(some) <= FEW else size
            filled = np.concatenate([some, np.repeat(some[:1], full - len(some), 0)])
            values, gaps, excess, ends = self._evaluated(filled)
            names = [f"policy {first + i}" for i in range(full)]
            if isinstance(self.objective, AverageReward):
                require_endless(ends)
            require_usable(values, gaps, excess, names, self.objective)
            parts.append(values[:, : len(some)])
            bounds.append(gaps[:, : len(some)])
        return np.concatenate(parts, 1), np.concatenate(bounds, 1)

    def _evaluated(self, policies: Float[np.ndarray, "P *H S A"]) -> tuple[np.ndarray, ...]:
        """Values and error bounds [W P], and what shows that a draw is at fault [W 1]."""
        near = self._near(policies)
        found = self.over(_values_of, policies, near, chains=len(policies))

        def without_inverses(far: CommonDraws) -> tuple[np.ndarray, ...]:
            return far.over(_values_of, policies, self._near(policies, inverses=False), chains=len(policies))

        return self._solved_again(found, near, without_inverses)

    def _solved_again(
        self,
        found: tuple[np.ndarray, ...],
        near: "Near | None",
        again: "Callable[[CommonDraws], tuple[np.ndarray, ...]]",
    ) -> tuple[np.ndarray, ...]:
        """The same, but for draws that are too far from the mean for its inverse: those as `again` finds them."""
        if near is None or near.chains.inverse is None:
            return found
        far = np.array([not solved(v, gap, near.mean.gap) for v, gap in zip(*found[:2], strict=True)])
        if far.any():
            for old, new in zip(found, again(replace(self, keys=self.keys[far])), strict=True):
                old[far] = new
        return found

    def _near(self, policies: Float[np.ndarray, "P *H S A"], *, inverses: bool = True) -> "Near | None":
        """The chains of some policies, with what their means are good for; None: whole MDPs are drawn."""
        if self.chains is None:
            return None
        chains = self.chains.reweighted(policies)
        with jax.enable_x64(True):
            # From a start, a chain is one linear system: nothing looks for a policy.
            nowhere = _nowhere(self, len(policies))
            if not inverses or not chains.may_have_inverses(self.objective):
                return Near(chains, nowhere)
            belief = self.posterior
            assert isinstance(belief, CanSampleEntries)
            mean, probs, reward = evaluate_mean(belief, chains, self.objective, nowhere)
            return Near(chains.with_inverses(probs, reward, self.objective), mean)

    def gradient(
        self, policy: Float[AnyArray, "*H S A"], weights: Float[np.ndarray, " W"]
    ) -> Float[np.ndarray, "*H S A"]:
        """Derivative by the action probabilities of sum_w weights_w value_w: sum_w weights_w d_w(s) q_w(s, a).

        d is the (discounted) time in a state, q the value of the pair (Sutton et al. 2000, theorem 1). Zero where the
        action is illegal, or not needed.
        """
        policy, weights = np.asarray(policy, np.float64), np.asarray(weights)
        # A criterion of the tail weighs few of the draws.
        counted = np.flatnonzero(weights) if np.any(weights) else np.arange(1)
        some = replace(self, keys=self.keys[counted])
        (total,) = some.over(_gradient_of, policy, self._near(policy[None]), weights[counted], chains=2, add=True)
        return total

    def gradients(self, policy: Float[AnyArray, "*H S A"]) -> Float[np.ndarray, "W *H S A"]:
        """The derivative of every draw's value by the action probabilities."""
        policy = np.asarray(policy, np.float64)
        (each,) = self.over(_gradients_of, policy, self._near(policy[None]), chains=2)
        return each

    def best(self, near: Float[AnyArray, "*H S A"] | None = None) -> Float[np.ndarray, " W"]:
        """The optimal value of every draw, over all policies that know the draw (and use needed pairs alone).

        Args:
            near: a deterministic policy that is optimal in an MDP like the draws, such as their mean, to start from.

        Raises:
            ValueError: as `values`.
        """
        values, gaps, excess, ends, _ = self._optima(near)
        if isinstance(self.objective, AverageReward):
            require_endless(ends)
        require_usable(values, gaps, excess, ["the best policy"], self.objective)
        return values[:, 0]

    def optimal_policies(self, number: int) -> Float[np.ndarray, "N *H S A"]:
        """The optimal policies of the first draws."""
        *_, actions = eqx.tree_at(lambda d: d.keys, self, self.keys[:number]).over(_best_of, None)
        return np.eye(self.shape[-1])[actions]

    def _optima(self, policy: Float[AnyArray, "*H S A"] | None) -> tuple[np.ndarray, ...]:
        """As `_evaluated`, of the optimal policies, and their actions."""
        near = None if policy is None else self._near(np.asarray(policy, np.float64)[None])
        return self._solved_again(self.over(_best_of, near), near, lambda far: far.over(_best_of, None))

    def over(
        self,
        function: Callable[..., PyTree],
        *arrays: PyTree,
        chains: int = 2,
        add: bool = False,
    ) -> tuple[np.ndarray, ...]:
        """A compiled function of the draws, chunk by chunk. The last array is cut with the keys if `add`.

        Args:
            function: (keys, draws, arrays) -> arrays with a leading axis of draws, or, with `add`, sums over draws.
            arrays: the other arguments.
            chains: how many systems a draw solves at once.
            add: answers are summed.
        """
        draws = self
        with jax.enable_x64(True):
            states = self.shape[-2]
            if draws.chains is None:
                numbers, most = self.numbers + chains * min(states**2, self.numbers), NUMBERS_AT_ONCE
            else:
                numbers, most = draws.chains.numbers + chains * states, CHAINS_AT_ONCE
            what = f"posterior has draws of {states} states and {self.shape[-1]} actions"
            chunks = chunks_of(jnp.asarray(self.keys), numbers, what, most)
            size = chunks.shape[1]
            answers: list[tuple[np.ndarray, ...]] = []
            for i, keys in enumerate(chunks):
                if add:
                    # Draws that fill up the last chunk count nothing.
                    weights = np.zeros(size)
                    part = np.asarray(arrays[-1])[i * size : (i + 1) * size]
                    weights[: len(part)] = part
                    found = function(keys, draws, *arrays[:-1], weights)
                else:
                    found = function(keys, draws, *arrays)
                answers.append(tuple(np.asarray(x) for x in jax.tree.leaves(found)))
        if add:
            return tuple(np.sum(parts, 0) for parts in zip(*answers, strict=True))
        return tuple(np.concatenate(parts)[: self.num] for parts in zip(*answers, strict=True))


def draws_of(
    key: PRNGKeyArray,
    posterior: CanSample,
    objective: Objective,
    num_draws: int,
    *,
    initial: InitialLike | None = None,
    needed: Bool[np.ndarray, "S A"] | None = None,
) -> CommonDraws:
    """Draws of a posterior.

    Args:
        key, posterior, objective, initial, num_draws: as in `policy_value`.
        needed: the pairs that the policies to come may use; None: all legal ones.

    Raises:
        ValueError: `initial` is no distribution; one draw does not fit in memory.
    """
    with jax.enable_x64(True):
        return _draws(jax.random.split(key, num_draws), posterior, to_float64(objective), initial, needed)


def given_draws(mdps: MDP | SparseMDP, objective: Objective, *, initial: InitialLike | None = None) -> CommonDraws:
    """Listed MDPs, equally likely, as draws.

    Args:
        mdps: with a leading axis W on every array.
        objective, initial: as in `policy_value`.
    """
    with jax.enable_x64(True):
        listed = GivenMDPs(mdps)
        return _draws(listed.keys, listed, to_float64(objective), initial, None)


def _draws(
    keys: Shaped[Array, "W ..."],
    posterior: CanSample,
    objective: Objective,
    initial: InitialLike | None,
    needed: Bool[np.ndarray, "S A"] | None,
) -> CommonDraws:
    shapes = draw_shapes(keys[0], posterior)
    mdp = outline(keys[0], posterior, shapes.reward.shape)
    start, given, _ = read_start(mdp, initial, labels_of(posterior))
    legal = None if mdp.legal is None else np.asarray(mdp.legal)
    numbers = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(shapes))
    chains = None
    if not isinstance(posterior, GivenMDPs):
        pairs = (np.ones(shapes.reward.shape[-2:], bool) if legal is None else legal) if needed is None else needed
        some = (pairs / np.maximum(pairs.sum(-1, keepdims=True), 1))[None]
        chains = policy_chains(posterior, some, objective, ends=shapes.end_probs is not None)
    if chains is None:
        posterior = to_float64(posterior)
    else:
        # On the device once: every pass, and every chunk of it, takes them again.
        chains = jax.tree.map(jnp.asarray, chains.in_single_precision())
    return CommonDraws(keys, posterior, chains, objective, start, legal, given, tuple(shapes.reward.shape), numbers)


class Near(eqx.Module):
    """The chains of some policies, and a solution for them to start from.

    Args:
        chains: of P policies, perhaps with the inverses of their systems in the mean of the belief.
        mean: [P S], their values in the mean, or blank.
    """

    chains: PolicyChains
    mean: Solution


@eqx.filter_jit
def _entries_of(keys: Array, draws: CommonDraws) -> PyTree:
    """Probabilities of the entries [C E], and rewards."""
    assert draws.chains is not None
    entries, sample = draws.chains.entries, draws.posterior.sample_entries  # type: ignore[attr-defined] - it has them
    return jax.vmap(lambda key: sample(key, entries))(keys)


@eqx.filter_jit
def _values_of(keys: Array, draws: CommonDraws, policies: Policies, near: Near | None) -> PyTree:
    """Values and error bounds [C P]; then, of the draw, how far rows are from summing to one, and the largest end."""
    objective = draws.objective

    def of_chains(key: Array) -> tuple[Array, ...]:
        assert near is not None
        probs, reward = draws.draw_entries(key)
        found = near.chains.values(probs, reward, objective, near.mean)
        return value_at_start(found, objective, draws.start), found.gap, *near.chains.faults(probs)

    def of_mdps(key: Array) -> tuple[Array, ...]:
        mdp = draws.posterior.sample(key)
        found = jax.vmap(lambda policy: evaluate(mdp, policy, objective))(jnp.asarray(policies))
        return value_at_start(found, objective, draws.start), found.gap, *row_faults(mdp)

    return jax.vmap(of_mdps if near is None else of_chains)(keys)


def _nowhere(draws: CommonDraws, number: int) -> Solution:
    """No plan yet of so many chains, to start linear systems with."""
    return jax.vmap(lambda _: Solution.blank((draws.shape[-2], 1), dtype=jnp.float64))(jnp.arange(number))


def _one_gradient(
    key: Array, draws: CommonDraws, policy: Float[Array, "*H S A"], near: Near | None
) -> Float[Array, "*H S A"]:
    """d(s) q(s, a) in one draw."""
    objective = draws.objective
    if near is None:
        mdp = draws.posterior.sample(key)
        q = evaluate(mdp, policy, objective).q
        time = occupancy(mdp, policy, objective, draws.start).sum(-1)
        slope = time[..., None] * jnp.where(jnp.isfinite(q), q, 0.0)
        return slope if mdp.legal is None else jnp.where(mdp.legal, slope, 0.0)
    chains = near.chains
    probs, reward = draws.draw_entries(key)
    values = jax.tree.map(lambda x: x[0], chains.values(probs, reward, objective, near.mean))
    chain = chains.chain(jnp.asarray(chains.weights)[0], probs, reward)
    inverse = None if chains.inverse is None else jnp.asarray(chains.inverse)[0]
    time = chain_occupancy(chain, objective, draws.start, inverse)
    q = draws.pair_values(probs, reward, values.v)
    state, action = jnp.asarray(chains.entries.state), jnp.asarray(chains.entries.action)
    return jnp.zeros(policy.shape).at[state, action].set(time[state] * q)


@eqx.filter_jit
def _gradient_of(
    keys: Array,
    draws: CommonDraws,
    policy: Float[AnyArray, "*H S A"],
    near: Near | None,
    weights: Float[AnyArray, " C"],
) -> PyTree:
    policy = jnp.asarray(policy)
    each = jax.vmap(lambda key: _one_gradient(key, draws, policy, near))(keys)
    return tensordot(weights, each, axes=1)


@eqx.filter_jit
def _gradients_of(keys: Array, draws: CommonDraws, policy: Float[AnyArray, "*H S A"], near: Near | None) -> PyTree:
    policy = jnp.asarray(policy)
    return jax.vmap(lambda key: _one_gradient(key, draws, policy, near))(keys)


@eqx.filter_jit
def _best_of(keys: Array, draws: CommonDraws, near: Near | None) -> PyTree:
    """As `_values_of`, of the optimal policy; and its actions."""
    objective = draws.objective

    def of_mdps(key: Array) -> tuple[Array, ...]:
        mdp = draws.posterior.sample(key)
        found = solve(mdp, objective)
        return value_at_start(found, objective, draws.start)[None], found.gap[None], *row_faults(mdp), found.policy

    return jax.vmap(of_mdps if draws.chains is None else lambda key: _best_chain(key, draws, near))(keys)


Iterate = tuple[Int[Array, " Q"], Solution, Bool[Array, ""], Int[Array, ""]]
"""Which pairs are taken (1, or 0), the values of that policy, whether it is stable, iterations."""


def _best_chain(key: Array, draws: CommonDraws, near: Near | None) -> tuple[Array, ...]:
    """Policy iteration over the needed pairs of one draw, whose last evaluation bounds the error.

    It starts from the policy of `near`, whose systems all others are close to, or from the best immediate rewards.
    """
    chains, objective = draws.chains, draws.objective
    assert chains is not None
    entries, size = chains.entries, draws.shape[-2]
    state, action = jnp.asarray(entries.state), jnp.asarray(entries.action)
    number = jnp.arange(len(entries.state))
    probs, reward = draws.draw_entries(key)

    def taken(q: Float[Array, " Q"]) -> Int[Array, " Q"]:
        """The first best pair of every state."""
        best = jax.ops.segment_max(q, state, size, indices_are_sorted=True)
        first = jax.ops.segment_min(jnp.where(q >= best[state], number, len(number)), state, size)
        return (number == first[state]).astype(jnp.int32)

    def body(loop: Iterate) -> Iterate:
        chosen, before, _, count = loop
        weights = chosen.astype(jnp.float64)[None]
        inverse = None if near is None else near.chains.inverse
        some = replace(chains, weights=weights, deterministic=True, inverse=inverse)
        # The values of the policy before are where the next linear system starts.
        guess = jax.tree.map(lambda x: x[None], replace(before, v=jnp.where(jnp.isfinite(before.v), before.v, 0.0)))
        found = jax.tree.map(lambda x: x[0], some.values(probs, reward, objective, guess))
        q = draws.pair_values(probs, reward, found.v)
        now = jax.ops.segment_sum(jnp.where(chosen == 1, q, 0.0), state, size, indices_are_sorted=True)
        least = _BETTER * jnp.max(jnp.abs(q))
        better = jax.ops.segment_max(q, state, size, indices_are_sorted=True) > now + least
        new = jnp.where(better[state], taken(q), chosen)
        return new, found, ~jnp.any(better), count + 1

    if near is None:
        start, guess = taken(reward[state, action]), _nowhere(draws, 1)
    else:
        start, guess = (jnp.asarray(near.chains.weights)[0] > 0).astype(jnp.int32), near.mean
    first = start, jax.tree.map(lambda x: x[0], guess), jnp.array(False), jnp.int32(0)
    chosen, found, stable, _ = jax.lax.while_loop(lambda loop: ~loop[2] & (loop[3] < _ITERATIONS), body, first)
    value = value_at_start(found, objective, draws.start)
    actions = jnp.zeros(size, jnp.int32).at[state].add(chosen * action)
    return jnp.where(stable, value, jnp.nan)[None], found.gap[None], *chains.faults(probs), actions
