"""Checks of a belief from one half of a log by the other half: new outcomes, and the chosen policy's value.

Each compares a statistic of the second half with its replicates: rows drawn from the belief of the first half, outcomes
of the second half's own pairs drawn from them. Under the belief data and replicates are exchangeable, so the rank
p-values are valid in any sample size (Rubin 1984, in the held-out form).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from bayes_mdp.calibration.criticism.row_draws import RowDraws, drawn_outcomes, row_draws
from bayes_mdp.inference.conjugate.conjugate_draws import row_concentrations
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.mdp import (
    MDP,
    Discounted,
    Episodic,
    FirstExit,
    Objective,
    SparseMDP,
    StateActionSpace,
    Transitions,
)
from bayes_mdp.mdp.protocols import Posterior
from bayes_mdp.numerics.array_forms import to_float64
from bayes_mdp.planning import evaluate
from bayes_mdp.planning.solution import value_at_start
from bayes_mdp.random.host_generator import host_generator
from bayes_mdp.utils.typing import AnyArray


class Replicated(NamedTuple):
    """A statistic of held-out data and of its replicates.

    Args:
        observed: of the data.
        replicates: [R].
    """

    observed: float
    replicates: Float[np.ndarray, " R"]

    @property
    def p_low(self) -> float:
        """Probability under the belief of a value as low as the data's."""
        return float((1 + np.sum(self.replicates <= self.observed)) / (1 + len(self.replicates)))

    @property
    def p_two_sided(self) -> float:
        """Twice the smaller tail."""
        high = float((1 + np.sum(self.replicates >= self.observed)) / (1 + len(self.replicates)))
        return min(1.0, 2 * min(self.p_low, high))


Progress = Callable[[], object]
"""Called after each replicate."""


class NewOutcomes(NamedTuple):
    """Transitions of the second half whose outcome the first half never had in that pair.

    Args:
        share: of all transitions of the second half.
        arrivals: how often the first half came to the states that they reach, from any pair: the mean of
            log(1 + number) over them; 0 where there are none.
    """

    share: Replicated
    arrivals: Replicated


def new_outcomes(
    key: PRNGKeyArray,
    posterior: Posterior,
    space: StateActionSpace,
    first: Transitions,
    second: Transitions,
    num_replicates: int,
) -> NewOutcomes:
    """How many outcomes of the second half are new in their row, and where they lead.

    A belief whose concentration is wrong expects too many or too few. One that takes all outcomes without data as
    alike, as every symmetric Dirichlet prior does, expects them anywhere, while in most systems they lead to the states
    that are reached often from elsewhere.

    Args:
        key: of the replicates.
        posterior: from the first half.
        space: of the posterior, stationary.
        first, second: the halves.
        num_replicates: R.
    """
    rng = host_generator(key)
    known = np.unique(_codes(first, space))
    state, action = np.asarray(second.state), np.asarray(second.action)
    count = np.zeros((space.n_states, space.n_actions), np.int64)
    np.add.at(count, (state, action), 1)
    came = np.bincount(np.asarray(first.outcome(space.n_states)), minlength=space.n_states + 1)
    familiar = np.log1p(came)

    def arrivals(reached: Int[np.ndarray, " n"]) -> float:
        return float(familiar[reached].mean()) if len(reached) else 0.0

    new = ~np.isin(_codes(second, space), known)
    draw = unseen_outcomes(key, posterior, space, known, count)
    replicates = [draw(rng) for _ in range(num_replicates)]
    numbers = np.array([len(reached) for reached in replicates])
    return NewOutcomes(
        Replicated(float(new.mean()), numbers / len(state)),
        Replicated(
            arrivals(np.asarray(second.outcome(space.n_states))[new]), np.array([arrivals(r) for r in replicates])
        ),
    )


def _codes(transitions: Transitions, space: StateActionSpace) -> Int[np.ndarray, " N"]:
    """One number for each pair and state reached; the end is the state of number S."""
    reached = np.asarray(transitions.outcome(space.n_states)).astype(np.int64)
    pair = np.asarray(transitions.state).astype(np.int64) * space.n_actions + np.asarray(transitions.action)
    return pair * (space.n_states + 1) + reached


def unseen_outcomes(
    key: PRNGKeyArray,
    posterior: Posterior,
    space: StateActionSpace,
    known: Int[np.ndarray, " n"],
    count: Int[np.ndarray, "S A"],
) -> Callable[[np.random.Generator], Int[np.ndarray, " new"]]:
    """A draw of the outcomes without data that so many transitions of each pair have; the order says nothing.

    Args:
        key: of the rows.
        posterior: the belief about them.
        space: of the posterior.
        known: codes of the outcomes with data, sorted.
        count: transitions of each pair.
    """
    size = space.n_states + 1
    needed = count > 0
    number = count[needed]
    if not (
        isinstance(posterior, ConjugatePosterior)
        and posterior.independent_rows
        and posterior.transition_probs.known is None
    ):
        rows = row_draws(key, posterior, needed)
        base = rows.state.astype(np.int64) * space.n_actions + rows.action
        unseen = ~np.isin(base[:, None] * size + rows.next_state, known)

        def from_rows(rng: np.random.Generator) -> Int[np.ndarray, " new"]:
            part = rows.draw() * unseen
            new = rng.binomial(number, np.clip(part.sum(-1), 0.0, 1.0))
            return rows.next_state.ravel()[drawn_outcomes(rng, part, np.repeat(np.arange(len(new)), new))]

        return from_rows
    # The unseen outcomes of a Dirichlet row together have a beta distribution; which of them it is, is independent of
    # that, and by the Polya urn of their concentrations needs no row (Blackwell and MacQueen 1973).
    entries, weight = row_concentrations(posterior.transition_probs, space, needed)
    pair = entries.pair
    base = entries.state.astype(np.int64) * space.n_actions + entries.action
    unseen = ~np.isin(base[pair] * size + entries.next_state, known)
    old = np.bincount(pair, weight * ~unseen, len(number))
    rest = np.bincount(pair, weight * unseen, len(number))
    ends = np.cumsum(np.bincount(pair, unseen, len(number))).astype(np.int64)
    starts = np.append(0, ends[:-1])
    weight, reached = weight[unseen], entries.next_state[unseen]
    cumulative = np.cumsum(weight)
    before = np.append(0.0, cumulative)[starts]
    mixed = (old > 0) & (rest > 0)

    def from_urns(rng: np.random.Generator) -> Int[np.ndarray, " new"]:
        mass = np.where(mixed, rng.beta(np.where(mixed, rest, 1.0), np.where(mixed, old, 1.0)), rest > 0)
        new = rng.binomial(number, mass)
        urn = np.repeat(np.arange(len(new)), new)
        first = np.repeat(np.cumsum(new) - new, new)
        place = np.arange(len(urn))
        turn = place - first
        # Each is a copy of an earlier one, any of them alike, or drawn afresh, which at first is sure.
        fresh = rng.random(len(urn)) * (rest[urn] + turn) < rest[urn]
        source = np.where(fresh, place, first + (rng.random(len(urn)) * turn).astype(np.int64))
        while not np.array_equal(source, source[source]):
            source = source[source]
        at = np.searchsorted(cumulative, before[urn] + rng.random(len(urn)) * rest[urn], side="right")
        at = np.clip(at, starts[urn], ends[urn] - 1)
        return reached[at[source]]

    return from_urns


def good_turing(transitions: Transitions, space: StateActionSpace) -> float:
    """The share of outcomes, pair by pair, that were seen once: an estimate of how often the next one is new.

    Good (1953); it needs no belief and no second half.
    """
    _, counts = np.unique(_codes(transitions, space), return_counts=True)
    return float((counts == 1).sum() / counts.sum())


def chosen_value(
    key: PRNGKeyArray,
    posterior: Posterior,
    policy: Int[np.ndarray, "*H S"] | Float[np.ndarray, "*H S A"],
    objective: Objective,
    start: Float[np.ndarray, " S"],
    second: Transitions,
    num_replicates: int,
    done: Progress,
) -> Replicated:
    """The value of a policy in the MDP of the second half's frequencies.

    Each row is (counts of the second half + the first half's mean row) / (count + 1); rewards are at their means under
    the first half. A policy that was chosen because its value looks high is worth less there than in replicates,
    unless the belief is right.

    Args:
        key: of the replicates.
        posterior: from the first half.
        policy: chosen from it.
        objective, start: of the value.
        second: the second half.
        num_replicates: R.
        done: called after each replicate.
    """
    rng = host_generator(jax.random.fold_in(key, 1))
    mean = posterior.mean_mdp()
    probs = _action_probs(policy, mean.reward.shape[-1])
    used = np.asarray((probs > 0).reshape(-1, *mean.reward.shape[-2:]).any(0))
    rows = row_draws(key, posterior, used)
    number = np.full(used.shape, -1)
    number[rows.state, rows.action] = np.arange(len(rows.state))
    pair = number[np.asarray(second.state), np.asarray(second.action)]
    inside = pair >= 0
    reached = np.asarray(second.outcome(used.shape[0]))[inside]
    pair = pair[inside]
    place = rows.place(pair, reached)
    value = _value_of(mean, rows, policy, objective, start)

    def statistic(place: Int[np.ndarray, " n"]) -> float:
        counts = np.bincount(place, minlength=rows.mean.size).reshape(rows.mean.shape)
        return value((counts + rows.mean) / (counts.sum(-1, keepdims=True) + 1.0))

    observed = statistic(place)
    replicates = []
    for _ in range(num_replicates):
        replicates.append(statistic(drawn_outcomes(rng, rows.draw(), pair)))
        done()
    return Replicated(observed, np.array(replicates))


def _action_probs(
    policy: Int[np.ndarray, "*H S"] | Float[np.ndarray, "*H S A"], n_actions: int
) -> Float[np.ndarray, "*H S A"]:
    return policy if np.issubdtype(policy.dtype, np.floating) else np.eye(n_actions)[policy]


def _value_of(
    mean: MDP | SparseMDP,
    rows: RowDraws,
    policy: Int[np.ndarray, "*H S"] | Float[np.ndarray, "*H S A"],
    objective: Objective,
    start: Float[np.ndarray, " S"],
) -> Callable[[Float[np.ndarray, "Q K"]], float]:
    """The value of the policy as a function of the rows that it uses."""
    probs = _action_probs(policy, mean.reward.shape[-1])
    if isinstance(objective, Discounted) and probs.ndim == 2:
        return _value_of_chain(mean, rows, probs, float(objective.discount), start)
    # Rows with data have weight wherever the mean has: if its chain ends from everywhere, so do theirs.
    if isinstance(objective, FirstExit) and probs.ndim == 2 and _ends_surely(rows, len(probs)):
        return _value_of_chain(mean, rows, probs, 1.0, start)
    with jax.enable_x64(True):
        wide, aim = to_float64(mean), to_float64(objective)

    def value(new: Float[np.ndarray, "Q K"]) -> float:
        with jax.enable_x64(True):
            return float(_evaluate(wide, (rows.state, rows.action), policy, aim, start, new))

    return value


def _value_of_chain(
    mean: MDP | SparseMDP,
    rows: RowDraws,
    policy: Float[np.ndarray, "S A"],
    discount: float,
    start: Float[np.ndarray, " S"],
) -> Callable[[Float[np.ndarray, "Q K"]], float]:
    """start' (I - discount P)^-1 r, P and r weighed by the probabilities of the actions."""
    size, width = len(policy), rows.next_state.shape[1] - 1
    weight = policy[rows.state, rows.action]
    reward = np.bincount(rows.state, weight * np.asarray(mean.reward, np.float64)[rows.state, rows.action], size)
    flat = np.repeat(rows.state, width) * size + rows.next_state[:, :-1].reshape(-1)

    def value(new: Float[np.ndarray, "Q K"]) -> float:
        chain = np.bincount(flat, (weight[:, None] * new[:, :-1]).reshape(-1), size * size).reshape(size, size)
        return float(start @ np.linalg.solve(np.eye(size) - discount * chain, reward))

    return value


def _ends_surely(rows: RowDraws, n_states: int) -> bool:
    """Whether an end can be reached from every state, by the mean rows of the actions in use."""
    reached = np.append(np.zeros(n_states, bool), True)
    while True:
        steps = ((rows.mean > 0) & reached[rows.next_state]).any(-1)
        now = np.append(np.bincount(rows.state, steps, n_states) > 0, True)
        if np.array_equal(now, reached):
            return bool(now.all())
        reached = now


@eqx.filter_jit
def _evaluate(
    mean: MDP | SparseMDP,
    pairs: tuple[Int[AnyArray, " Q"], Int[AnyArray, " Q"]],
    policy: Int[AnyArray, "*H S"] | Float[AnyArray, "*H S A"],
    objective: Objective,
    start: Float[AnyArray, " S"],
    rows: Float[AnyArray, "Q K"],
) -> Float[Array, ""]:
    probs, ends = jnp.asarray(rows)[:, :-1], jnp.asarray(rows)[:, -1]
    if isinstance(objective, Episodic) or jnp.issubdtype(policy.dtype, jnp.floating):
        # The policy may take several actions in a state: its rows are put into the whole MDP.
        mdp = eqx.tree_at(_stored_rows, mean, _stored_rows(mean).at[pairs].set(probs))
        if mean.end_probs is not None:
            mdp = eqx.tree_at(lambda m: m.end_probs, mdp, mean.end_probs.at[pairs].set(ends))
        return value_at_start(evaluate(mdp, jnp.asarray(policy), objective), objective, start)
    # One action a state: the rows that the policy uses, in the order of the states.
    reward, end_probs = mean.reward[pairs][:, None], None if mean.end_probs is None else ends[:, None]
    if isinstance(mean, SparseMDP):
        chain = SparseMDP(mean.successor[pairs][:, None], probs[:, None], reward, end_probs=end_probs)
    else:
        chain = MDP(probs[:, None], reward, end_probs=end_probs)
    found = evaluate(chain, jnp.zeros(mean.n_states, int), objective)
    return value_at_start(found, objective, start)


def _stored_rows(mdp: MDP | SparseMDP) -> Any:
    # No array where `tree_at` asks which leaf it is.
    return mdp.probability if isinstance(mdp, SparseMDP) else mdp.transition_probs
