# pyright: reportArgumentType=false
"""Conjugate beliefs of every shape that the tables allow, data for them, and an oracle in plain numpy and scipy."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from bayes_mdp.inference.conjugate.conjugate_posterior import conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.conjugate.rewards import KnownRewards, known_rewards
from bayes_mdp.inference.families.bernoulli import BetaBelief
from bayes_mdp.inference.families.normal import NormalBelief, NormalGammaBelief
from bayes_mdp.inference.families.poisson import GammaBelief
from bayes_mdp.mdp import StateActionSpace, Transitions

S, A = 3, 2


def _family(name, size, rng):
    positive = lambda low, high: rng.uniform(low, high, size)  # noqa: E731
    if name == "normal_gamma":
        return NormalGammaBelief(rng.normal(size=size), positive(0.5, 2), positive(3, 5), positive(0.5, 2))
    if name == "normal":
        return NormalBelief(rng.normal(size=size), positive(0.5, 2), positive(0.5, 2))
    if name == "beta":
        return BetaBelief(positive(0.5, 2), positive(0.5, 2))
    return GammaBelief(positive(0.5, 3), positive(0.5, 2))


def _flat(rng):
    space = StateActionSpace(S, A)
    rows = dirichlet_rows(rng.uniform(0.2, 3, (S * A, S)), (S, A, S))
    return space, rows, reward_cells(_family("normal_gamma", S * A, rng), (S, A))


def _outcome(rng):
    space = StateActionSpace(S, A, ends=True, states=("a", ("b", 1), 2.5), actions=("left", True))
    shape = (S, A, S + 1)
    rows = dirichlet_rows(rng.uniform(0.2, 3, (S * A, S + 1)), shape)
    return space, rows, reward_cells(_family("normal_gamma", S * A * (S + 1), rng), shape, by_outcome=True)


def _tied(rng):
    """Rows tied over actions and turned by one outcome for the second; rewards by outcome, tied within a row."""
    row = np.tile(np.arange(S)[:, None], (1, A))
    column = np.stack([np.tile(np.arange(S), (S, 1)), np.tile(np.roll(np.arange(S), 1), (S, 1))], axis=1)
    rows = dirichlet_rows(rng.uniform(0.2, 3, (S, S)), (S, A, S), row=row, column=column)
    cell = np.arange(S * A * S).reshape(S, A, S) // 2
    rewards = reward_cells(_family("normal", 9, rng), (S, A, S), by_outcome=True, cell=cell)
    return StateActionSpace(S, A), rows, rewards


def _support(rng):
    """Two steps; two possible outcomes in each row; one row known; one reward known; ends."""
    horizon, outcomes = 2, S + 1
    shape = (horizon, S, A, outcomes)
    row = np.arange(-1, horizon * S * A - 1).reshape(horizon, S, A)
    column = np.full(shape, -1)
    for index in np.ndindex(*shape[:-1]):
        column[(*index, rng.permutation(outcomes)[:2])] = [1, 0]
    known = np.zeros(shape)
    known[0, 0, 0] = [0.25, 0, 0, 0.75]
    prior = rng.uniform(0.5, 3, (horizon * S * A - 1, 2))
    rows = dirichlet_rows(prior, shape, row=row, column=column, known=known)
    cell = np.roll(row.ravel(), 3).reshape(row.shape)
    value = np.where(cell < 0, 0.5, np.nan)
    rewards = reward_cells(_family("beta", row.size - 1, rng), row.shape, cell=cell, known=value)
    return StateActionSpace(S, A, horizon=horizon, ends=True), rows, rewards


def _poisson(rng):
    legal = np.array([[True, True], [True, False], [False, True]])
    space = StateActionSpace(S, A, legal=legal)
    rows = dirichlet_rows(np.ones((S * A, S)), (S, A, S))
    return space, rows, reward_cells(_family("gamma", S * A, rng), (S, A))


def _known(rng):
    space = StateActionSpace(S, A, horizon=2)
    rows = dirichlet_rows(rng.uniform(0.2, 3, (2 * S * A, S)), (2, S, A, S))
    return space, rows, known_rewards(rng.normal(size=(2, S, A)))


_BUILDERS = {
    "flat": _flat,
    "outcome": _outcome,
    "tied": _tied,
    "support": _support,
    "poisson": _poisson,
    "known": _known,
}


def _reward(rng, rewards, number):
    kind = type(rewards.prior).__name__ if hasattr(rewards, "prior") else ""
    if kind == "BetaBelief":
        return rng.integers(0, 2, number).astype(float)
    return rng.poisson(2.0, number).astype(float) if kind == "GammaBelief" else rng.normal(2.0, 1.5, number)


def _data(rng, space, rows, rewards, number):
    """Transitions to outcomes that the prior allows, uniformly."""
    probs = np.asarray(rows.mean())
    cells = np.argwhere(np.broadcast_to(True if space.legal is None else space.legal, probs.shape[:-1]))
    cells = cells[rng.integers(0, len(cells), number)]
    outcome = np.array([rng.choice(np.flatnonzero(probs[tuple(cell)] > 0)) for cell in cells])
    terminated = outcome == space.n_states if space.ends else None
    state, action = cells[:, -2], cells[:, -1]
    following = np.where(outcome == space.n_states, state, outcome)
    seen = rng.random(number) < 0.9
    drawn = _reward(rng, rewards, number)
    # A known reward is what is paid: another one contradicts the prior.
    drawn = rewards.known[tuple(cells.T)] if isinstance(rewards, KnownRewards) else drawn
    reward = np.where(seen, drawn, np.nan)
    step = None if space.horizon is None else cells[:, 0]
    return Transitions(state, action, reward, following, terminated, step=step, reward_observed=seen)


def take(transitions, index):
    """Some of the transitions."""
    return Transitions(
        *(
            None if x is None else x[index]
            for x in (
                transitions.state,
                transitions.action,
                transitions.reward,
                transitions.next_state,
                transitions.terminated,
                transitions.truncated,
                transitions.step,
            )
        ),
        reward_observed=transitions.reward_observed[index],
    )


def _predictive_reward(belief, rewards):
    """The frozen scipy law of the next reward, and the parameters of the belief, from the list of the rewards seen."""
    kind, values = type(belief).__name__, {k: float(v) for k, v in vars(belief).items()}
    n, total = len(rewards), float(np.sum(rewards))
    if kind == "NormalGammaBelief":
        loc, lam, al, be = (values[k] for k in ("loc", "pseudo_count", "concentration", "rate"))
        for r in rewards:
            be += lam * (r - loc) ** 2 / (2 * (lam + 1))
            loc, lam, al = (lam * loc + r) / (lam + 1), lam + 1, al + 0.5
        return stats.t(2 * al, loc, np.sqrt(be * (lam + 1) / (al * lam))), (loc, lam, al, be)
    if kind == "NormalBelief":
        precision = 1 / values["scale"] ** 2 + n / values["noise_scale"] ** 2
        loc = (values["loc"] / values["scale"] ** 2 + total / values["noise_scale"] ** 2) / precision
        scale = precision**-0.5
        return stats.norm(loc, np.hypot(scale, values["noise_scale"])), (loc, scale, values["noise_scale"])
    if kind == "BetaBelief":
        a, b = values["concentration1"] + total, values["concentration0"] + n - total
        return stats.betabinom(1, a, b), (a, b)
    a, b = values["concentration"] + total, values["rate"] + n
    return stats.nbinom(a, b / (b + 1)), (a, b)


class Oracle:
    """One transition at a time, in dictionaries: the leaf of a cell by name, the rewards seen there as a list."""

    def __init__(self, posterior):
        self.rows, self.rewards, self.space = posterior.transition_probs, posterior.reward_cells, posterior.space
        self.concentration = np.array(self.rows.prior)
        self.seen = {}
        self.log_evidence = 0.0
        self.visits = np.zeros(self.space.shape)

    def _row(self, cell, outcome):
        shape = self.rows.shape[:-1]
        row = np.ravel_multi_index(cell, shape) if self.rows.row is None else self.rows.row[cell]
        return row, outcome if self.rows.column is None else self.rows.column[(*cell, outcome)]

    def leaf(self, cell, outcome):
        where = (*cell, outcome) if self.rewards.by_outcome else cell
        cells = self.rewards.cell
        return np.ravel_multi_index(where, self.rewards.shape) if cells is None else cells[where]

    def belief(self, leaf):
        prior = self.rewards.prior
        return type(prior)(**{name: values[leaf] for name, values in vars(prior).items()})

    def log_predictive(self, cell, outcome, reward):
        """(outcome, reward): log densities of the next transition; reward None: missing."""
        row, column = self._row(cell, outcome)
        if row < 0:
            next_state = np.log(self.rows.known[(*cell, outcome)])
        else:
            next_state = np.log(self.concentration[row, column] / self.concentration[row].sum())
        if reward is None or not hasattr(self.rewards, "prior") or self.leaf(cell, outcome) < 0:
            return next_state, 0.0
        leaf = self.leaf(cell, outcome)
        law, _ = _predictive_reward(self.belief(leaf), self.seen.get(leaf, []))
        name = "logpmf" if isinstance(law.dist, stats.rv_discrete) else "logpdf"
        return next_state, getattr(law, name)(reward)

    def see(self, cell, outcome, reward):
        self.log_evidence += sum(self.log_predictive(cell, outcome, reward))
        row, column = self._row(cell, outcome)
        if row >= 0:
            self.concentration[row, column] += 1
        if reward is not None and hasattr(self.rewards, "prior"):
            self.seen.setdefault(self.leaf(cell, outcome), []).append(reward)
        self.visits[cell] += 1

    def parameters(self, leaf):
        return _predictive_reward(self.belief(leaf), self.seen.get(leaf, []))[1]


def each(transitions, space):
    """(cell, outcome, reward or None) of every transition."""
    cells = np.stack([np.asarray(i) for i in transitions.cell(space)], axis=-1)
    outcomes = np.asarray(transitions.outcome(space))
    for cell, outcome, reward, seen in zip(
        cells, outcomes, transitions.reward, transitions.reward_observed, strict=True
    ):
        yield tuple(int(i) for i in cell), int(outcome), float(reward) if seen else None


@pytest.fixture(params=list(_BUILDERS))
def case(request, x64):
    """A belief before data, data, and the tools to check it with."""
    return make_case(request.param)


def make_case(name, number=60):
    rng = np.random.default_rng(sum(map(ord, name)))
    space, rows, rewards = _BUILDERS[name](rng)
    prior = conjugate_posterior(rows, rewards, space)
    data = _data(rng, space, rows, rewards, number)
    return SimpleNamespace(name=name, space=space, prior=prior, data=data, oracle=Oracle(prior), take=take, each=each)


@pytest.fixture
def case_builder():
    """`make_case`, in JAX's default width."""
    return make_case


@pytest.fixture
def cases(x64):
    """`make_case`, in float64."""
    return make_case
