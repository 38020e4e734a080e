"""Priors of every shape that `bayes_optimal` takes, each beside the same belief in dictionaries, and a plain recursion.

The recursion memoises over dictionaries of counts and knows nothing of the library.
"""

# `numpyro.sample` is typed to return any ArrayLike: too narrow for tests.
# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false

from functools import cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import bayes_mdp as bm
from bayes_mdp.models import MDPSpec, priors

PAY = np.array([[0.0, 0.1], [0.2, 1.0]])
END = None


class Case(NamedTuple):
    """A program, and the same belief in dictionaries.

    Args:
        prior, space, horizon: the problem.
        row: (step, state, action) -> (leaf or None: known, {next state or END: (place, weight)}).
        pay: (step, state, action, next state or END) -> a number, or (leaf, weight of 0, weight of 1).
        legal: (state, action) pairs that do not exist are left out.
    """

    prior: Any
    space: bm.StateActionSpace
    horizon: int
    row: Any
    pay: Any

    def actions(self, state):
        """Those that exist."""
        return range(self.space.n_actions) if self.space.legal is None else np.flatnonzero(self.space.legal[state])


def plain(case, learns=True, discount=1.0):
    """Values of the first states, and the number of hyper-states met on the way. Not learning: a broken twin."""

    @cache
    def value(step, state, seen):
        return (
            0.0 if step == case.horizon or state is END else max(q(step, state, a, seen) for a in case.actions(state))
        )

    def q(step, state, action, seen):
        counts, total = dict(seen), 0.0
        leaf, outcomes = case.row(step, state, action)
        known = {o: (w if leaf is None else w + counts.get((leaf, p), 0)) for o, (p, w) in outcomes.items()}
        for outcome, (place, _) in outcomes.items():
            after = seen if leaf is None else more(seen, (leaf, place))
            prob, pay = known[outcome] / sum(known.values()), case.pay(step, state, action, outcome)
            if not isinstance(pay, tuple):
                total += prob * (pay + discount * value(step + 1, outcome, after))
                continue
            coin, weights = pay[0], [w + counts.get((pay[0], x), 0) for x, w in enumerate(pay[1:])]
            for x in (0, 1):
                worth = x + discount * value(step + 1, outcome, more(after, (coin, x)))
                total += prob * weights[x] / sum(weights) * worth
        return total

    def more(seen, place):
        if not learns:
            return seen
        counts = dict(seen)
        counts[place] = counts.get(place, 0) + 1
        return frozenset(counts.items())

    values = np.array([value(0, s, frozenset()) for s in range(case.space.n_states)])
    return values, value.cache_info().currsize


def _rows(concentration, plates, space):
    with space.plates(*plates):
        return numpyro.sample("transition", dist.Dirichlet(jnp.asarray(concentration)))


def two_state(space):
    """Four unknown rows, known rewards."""
    return MDPSpec(_rows([1.0, 1.0], (), space), reward=PAY)


def bandit(space):
    """Two arms of unknown probability, nothing else."""
    with space.plates():
        probs = numpyro.sample("arm", dist.Beta(1.0, 1.0))
    return MDPSpec(jnp.ones((1, 2, 1)), reward=dist.Bernoulli(probs))


TURN = np.array([[[0, 1, 2], [1, 2, 0]], [[2, 0, 1], [0, 1, 2]], [[0, 1, 2], [0, 2, 1]]])
KIND = np.array([[0, 1], [1, 1], [2, 0]])


def tied(space):
    """Three kinds of road, six pairs, the outcomes of each turned in its own way; one coin for each state."""
    with numpyro.plate("kind", 3):
        table = numpyro.sample("road", dist.Dirichlet(jnp.array([1.0, 2.0, 0.5])))
    with space.plates("state"):
        coin = numpyro.sample("coin", dist.Beta(0.5, 2.0))
    return MDPSpec(table[KIND[..., None], TURN], reward=dist.Bernoulli(coin))


def scattered(space):
    """Stay, step right, or end from states 0 and 1; state 2 has a known row. A coin by next state, none at the end."""
    with numpyro.plate("place", 2, dim=-2), numpyro.plate("move", 2, dim=-1):
        step = numpyro.sample("step", dist.Dirichlet(jnp.array([0.4, 0.6, 0.3])))
    rows = jnp.zeros((3, 2, 4)).at[2, :, 0].set(0.25).at[2, :, 3].set(0.75)
    for s in range(2):
        rows = rows.at[s, :, s].set(step[s, :, 0]).at[s, :, s + 1].set(step[s, :, 1]).at[s, :, 3].set(step[s, :, 2])
    with numpyro.plate("to", 4, dim=-1):
        coin = numpyro.sample("coin", dist.Beta(jnp.array([1.0, 2.0, 3.0, 0.2]), 1.0))
    return MDPSpec(rows, reward=dist.Bernoulli(jnp.broadcast_to(coin, (3, 2, 4))).to_event(1))


def _scattered_row(step, s, a):
    if s == 2:
        return None, {0: (0, 0.25), END: (0, 0.75)}
    return ("step", s, a), {s: (0, 0.4), s + 1: (1, 0.6), END: (2, 0.3)}


def layered(space):
    """Rows of steps 0 and 2 are one, rows of step 1 and of the last are known; a coin for each action
    in the first two steps, others in the last two."""
    with space.plates("state", "action"):
        table = numpyro.sample("transition", dist.Dirichlet(jnp.array([0.7, 1.2])))
    with numpyro.plate("half", 2, dim=-2), numpyro.plate("which", 2, dim=-1):
        coin = numpyro.sample("coin", dist.Beta(1.0, jnp.array([[1.0, 1.5], [3.0, 2.0]])))
    known = jnp.broadcast_to(jnp.array([0.3, 0.7]), (2, 2, 2))
    rows = jnp.stack([table, known, table, known])
    return MDPSpec(rows, reward=dist.Bernoulli(coin[jnp.array([0, 0, 1, 1])][:, None, :]))


LEGAL = np.array([[True, False], [True, True]])
BY_OUTCOME = np.array([[[0.5, -1.0], [9.0, 9.0]], [[0.1, 0.2], [2.0, -0.3]]])
SUPPORT = np.array([[[True, True], [True, True]], [[True, True], [False, True]]])


def partly(space):
    """An action that does not exist, an outcome that cannot happen, known rewards by outcome."""
    return priors.known_rewards(BY_OUTCOME, 0.8)(space)


def fresh(space):
    """A row of its own at every step: nothing that is learnt is ever of use."""
    return MDPSpec(_rows([1.0, 2.0], (), space), reward=PAY)


def _pair(alpha):
    return lambda step, s, a: ((s, a), {o: (o, w) for o, w in enumerate(alpha)})


def _partly_row(step, s, a):
    return (s, a), {o: (o, 0.8) for o in range(2) if SUPPORT[s, a, o]}


S2 = bm.StateActionSpace(2, 2)
CASES = {
    "two_state": Case(two_state, S2, 6, _pair([1, 1]), lambda t, s, a, o: PAY[s, a]),
    "bandit": Case(
        bandit, bm.StateActionSpace(1, 2), 9, lambda *_: (None, {0: (0, 1.0)}), lambda t, s, a, o: (("arm", a), 1, 1)
    ),
    "tied": Case(
        tied,
        bm.StateActionSpace(3, 2),
        4,
        lambda t, s, a: (("road", KIND[s, a]), {o: (k, (1.0, 2.0, 0.5)[k]) for o, k in enumerate(TURN[s, a])}),
        lambda t, s, a, o: (("coin", s), 2.0, 0.5),
    ),
    "scattered": Case(
        scattered,
        bm.StateActionSpace(3, 2, ends=True),
        5,
        _scattered_row,
        lambda t, s, a, o: (("coin", o), 1.0, (1.0, 2.0, 3.0, 0.2)[3 if o is END else o]),
    ),
    "layered": Case(
        layered,
        bm.StateActionSpace(2, 2, horizon=4),
        4,
        lambda t, s, a: (None, {0: (0, 0.3), 1: (0, 0.7)}) if t % 2 else ((s, a), {0: (0, 0.7), 1: (1, 1.2)}),
        lambda t, s, a, o: (("coin", t // 2, a), ((1.0, 1.5), (3.0, 2.0))[t // 2][a], 1.0),
    ),
    "partly": Case(
        partly,
        bm.StateActionSpace(2, 2, legal=LEGAL, support=SUPPORT),
        5,
        _partly_row,
        lambda t, s, a, o: BY_OUTCOME[s, a, o],
    ),
    "fresh": Case(
        fresh,
        bm.StateActionSpace(2, 2, horizon=5),
        5,
        lambda t, s, a: ((t, s, a), {0: (0, 1.0), 1: (1, 2.0)}),
        lambda t, s, a, o: PAY[s, a],
    ),
}
