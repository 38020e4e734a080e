"""Random beliefs on which variances of values are measured: acyclic, cyclic, tied, mixture. Plain numpy.

The first problem of each class but "tied" is a counterexample: the printed form of UBE states half of the variance on
it; that of "cyclic" are self-loops, where the uncertainty Bellman equation states too little.
"""

from typing import Any

import equinox as eqx
import numpy as np

from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior, conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.families.normal import NormalBelief
from bayes_mdp.inference.mixtures import mixture
from bayes_mdp.mdp import Discounted, Episodic, Objective, StateActionSpace

CLASSES = ("acyclic", "cyclic", "tied", "mixture")
REWARDS = ("pair", "outcome")
STATES, ACTIONS, HORIZON, DISCOUNT = 3, 2, 3, 0.8
_TINY = 1e-6  # scale of a reward that is as good as known


def random_problem(kind: str, rewards: str, seed: int) -> tuple[Any, Objective]:
    """A belief and an objective; all of one kind share their shapes.

    Args:
        kind: of `CLASSES`. "acyclic": rows of their own at each of 3 steps; "cyclic": one row for all time, discount
            .8; "tied": as acyclic, rows shared by the actions and rewards by states and steps; "mixture": of two
            acyclic ones.
        rewards: "pair" or "outcome": on (s, a) or on (s, a, s').
        seed: 0 gives the counterexample (tied: as the others).
    """
    rng = np.random.default_rng([seed, CLASSES.index(kind), REWARDS.index(rewards)])
    by_outcome = rewards == "outcome"
    if kind == "cyclic":
        return (_self_loops(by_outcome) if seed == 0 else _belief(rng, None, by_outcome)), Discounted(DISCOUNT)
    objective = Episodic(HORIZON)
    if kind == "mixture":
        parts = [_fork(by_outcome) if seed == 0 else _belief(rng, HORIZON, by_outcome) for _ in range(2)]
        return mixture(parts, weights=rng.uniform(0.2, 0.8, 2)), objective
    if kind == "tied":
        return _tied(rng, by_outcome), objective
    return (_fork(by_outcome) if seed == 0 else _belief(rng, HORIZON, by_outcome)), objective


def _shape(horizon: int | None) -> tuple[int, ...]:
    return (STATES, ACTIONS) if horizon is None else (horizon, STATES, ACTIONS)


def _normal(loc: Any, scale: Any) -> NormalBelief:
    """Normal rewards of noise 1; float64 numpy arrays, as on the host."""
    noise: Any = np.ones(loc.shape)
    return NormalBelief(loc, scale, noise)


def known_noise_belief(prior: np.ndarray, loc: np.ndarray, scale: np.ndarray, by_outcome: bool) -> ConjugatePosterior:
    """Independent rows with concentrations `prior` [*H S A S] and normal rewards [*cells] of noise 1."""
    pairs = prior.shape[:-1]
    rows = dirichlet_rows(prior.reshape(-1, STATES), prior.shape)
    belief = _normal(loc.ravel(), scale.ravel())
    rewards = reward_cells(belief, prior.shape if by_outcome else pairs, by_outcome=by_outcome)
    horizon = None if len(pairs) == 2 else pairs[0]
    return conjugate_posterior(rows, rewards, StateActionSpace(STATES, ACTIONS, horizon=horizon))


def _belief(rng: np.random.Generator, horizon: int | None, by_outcome: bool) -> ConjugatePosterior:
    pairs = _shape(horizon)
    rows = (*pairs, STATES)
    cells = rows if by_outcome else pairs
    belief = known_noise_belief(
        rng.uniform(0.3, 1.5, rows), rng.normal(size=cells), rng.uniform(0.1, 0.5, cells), by_outcome
    )
    counts = rng.integers(0, 3, (int(np.prod(pairs)), STATES)).astype(float)
    return eqx.tree_at(lambda p: p.transition_probs.counts, belief, counts)


def _fork(by_outcome: bool) -> ConjugatePosterior:
    """State 0 leads to a state of value 1 or to one of value -1, by a Dirichlet(a, a) row; all else is known."""
    pairs = _shape(HORIZON)
    prior = np.broadcast_to(2.5 * np.eye(STATES)[:, None], (*pairs, STATES)).copy()
    prior[0, 0] = [0.0, 1.5, 1.5]
    loc = np.zeros((*pairs, STATES) if by_outcome else pairs)
    loc[1, 1], loc[1, 2] = 1.0, -1.0
    return known_noise_belief(prior, loc, np.full(loc.shape, _TINY), by_outcome)


def _self_loops(by_outcome: bool) -> ConjugatePosterior:
    """Known self-loops with unknown rewards: the variance of the value is (1 + g) / (1 - g) times that of the UBE."""
    pairs = _shape(None)
    prior = np.broadcast_to(2.5 * np.eye(STATES)[:, None], (*pairs, STATES))
    loc = np.zeros((*pairs, STATES) if by_outcome else pairs)
    return known_noise_belief(prior, loc, np.full(loc.shape, 0.5), by_outcome)


def _tied(rng: np.random.Generator, by_outcome: bool) -> ConjugatePosterior:
    """Rows shared by the actions of a state, mean rewards by all states and steps."""
    pairs = _shape(HORIZON)
    shape = (*pairs, STATES)
    leaf_rows = np.arange(HORIZON * STATES).reshape(HORIZON, STATES, 1)
    row = np.broadcast_to(leaf_rows, pairs)
    rows = dirichlet_rows(rng.uniform(0.5, 3.0, (HORIZON * STATES, STATES)), shape, row=row)
    cells = shape if by_outcome else pairs
    size = cells[-1]
    belief = _normal(rng.normal(size=size), rng.uniform(0.1, 0.5, size))
    cell = np.broadcast_to(np.arange(size), cells)
    rewards = reward_cells(belief, cells, by_outcome=by_outcome, cell=cell)
    return conjugate_posterior(rows, rewards, StateActionSpace(STATES, ACTIONS, horizon=HORIZON))
