"""Small posteriors of every kind that the groups must tell apart, each with the transitions behind it."""

import warnings
from functools import cache
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from bayes_mdp.inference.conjugate.conjugate_posterior import conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.conjugate.rewards import known_rewards
from bayes_mdp.inference.families.bernoulli import BetaBelief
from bayes_mdp.inference.families.normal import NormalBelief, NormalGammaBelief
from bayes_mdp.inference.families.poisson import GammaBelief
from bayes_mdp.mdp import StateActionSpace, Transitions

S, A = 3, 2
NAMES = {"states": ("low", "mid", "high"), "actions": ("stay", "go")}


def _fill(value, size) -> Any:
    return np.full(size, value)


def _spread(size) -> Any:
    return np.linspace(-1.0, 1.0, size)


def _rows(shape, concentration=0.8):
    return dirichlet_rows(np.full((int(np.prod(shape[:-1])), shape[-1]), concentration), shape)


def _normal_gamma():
    space = StateActionSpace(S, A, ends=True, **NAMES)
    size = S * A
    belief = NormalGammaBelief(_spread(size), _fill(1.0, size), _fill(4.0, size), _fill(2.0, size))
    return space, _rows((S, A, S + 1)), reward_cells(belief, (S, A))


def _by_outcome():
    """Rewards depend on the outcome, the noise is known; state 2 is never tried."""
    space, shape = StateActionSpace(S, A), (S, A, S)
    belief = NormalBelief(_spread(18), _fill(2.0, 18), _fill(0.5, 18))
    return space, _rows(shape), reward_cells(belief, shape, by_outcome=True)


def _horizon():
    space = StateActionSpace(S, A, horizon=2, states=("low", 1, ("t", 2)), actions=(0.5, 1.5))
    size = 2 * S * A
    belief = BetaBelief(_fill(1.5, size), _fill(0.5, size))
    return space, _rows((2, S, A, S)), reward_cells(belief, (2, S, A))


def _tied():
    """One row for both actions of a state, the row of state 0 known; one reward for both actions, one reward known."""
    row = np.array([[-1, -1], [0, 0], [1, 1]])
    known = np.zeros((S, A, S))
    known[0] = [0.25, 0.75, 0.0]
    rows = dirichlet_rows(np.full((2, S), 0.8), (S, A, S), row=row, known=known)
    cell = np.array([[0, 0], [1, 1], [2, -1]])
    belief = GammaBelief(_fill(2.0, 3), _fill(1.0, 3))
    rewards = reward_cells(belief, (S, A), cell=cell, known=np.where(cell < 0, -7.0, np.nan))
    return StateActionSpace(S, A), rows, rewards


def _known():
    space = StateActionSpace(S, A)
    return space, _rows((S, A, S)), known_rewards(np.arange(6.0).reshape(S, A))


BUILDERS = {
    "normal_gamma": _normal_gamma,
    "by_outcome": _by_outcome,
    "horizon": _horizon,
    "tied": _tied,
    "known": _known,
}


def _data(name, space, rng, number=80):
    state = rng.integers(0, 2 if name == "by_outcome" else S, number)
    next_state = np.where(state == 0, rng.integers(0, 2, number), rng.integers(0, S, number))
    law = {"horizon": lambda: rng.integers(0, 2, number), "tied": lambda: rng.poisson(2.0, number)}
    reward = law.get(name, lambda: rng.normal(state, 1.0))().astype(float)
    action = rng.integers(0, A, number)
    if name == "known":  # others would contradict the prior
        reward = (A * state + action).astype(float)
    return Transitions(
        state,
        action,
        reward,
        next_state,
        rng.random(number) < 0.1 if space.ends else None,
        step=None if space.horizon is None else rng.integers(0, 2, number),
        reward_observed=np.arange(number) % 7 != 3 if name == "normal_gamma" else None,
    )


@cache
def _make(name):
    space, rows, rewards = BUILDERS[name]()
    prior = conjugate_posterior(rows, rewards, space)
    data = _data(name, space, np.random.default_rng(7))
    with jax.enable_x64(True):
        posterior = jax.tree.map(np.asarray, prior.update(data))
    return SimpleNamespace(name=name, space=space, prior=prior, data=data, posterior=posterior)


@pytest.fixture(params=list(BUILDERS))
def case(request):
    """A posterior, its prior, its data, its space: every kind."""
    return _make(request.param)


@pytest.fixture
def cases():
    """The same by name."""
    return _make


@pytest.fixture(scope="session")
def arviz():
    """ArviZ; 0.23 announces 1.0 when it is imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        import arviz
    return arviz
