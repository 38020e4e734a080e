"""The expected information of a transition: two closed forms, draws, mixtures, listed counts, known rows, ends."""

from typing import Any

import jax
import mpmath
import numpy as np
import pytest
from scipy.special import digamma, entr, gammaln

from bayes_mdp.inference.conjugate.conjugate_posterior import conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows, expected_information, surplus
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.conjugate.rewards import known_rewards
from bayes_mdp.inference.families.normal import NormalBelief
from bayes_mdp.inference.mixtures import mixture
from bayes_mdp.mdp import StateActionSpace, Transitions
from bayes_mdp.mdp.protocols import CanInform

pytestmark = pytest.mark.numerics

S, A = 4, 2
information = jax.jit(expected_information)
tell = jax.jit(lambda belief: belief.expected_information())


def divergence(a, b):
    """KL(Dir(a) || Dir(b)) where b > 0."""
    a, b = a[b > 0], b[b > 0]
    inner = ((a - b) * (digamma(a) - digamma(a.sum()))).sum()
    return gammaln(a.sum()) - gammaln(a).sum() - gammaln(b.sum()) + gammaln(b).sum() + inner


def by_divergence(c):
    """sum_i pbar_i KL(Dir(c + e_i) || Dir(c))."""
    return sum(p * divergence(c + e, c) for p, e in zip(c / c.sum(), np.eye(len(c)), strict=True) if p > 0)


def expected_entropy(c):
    """E[H(p)] of a Dirichlet."""
    return digamma(c.sum() + 1) - (c / c.sum() * digamma(c + 1)).sum()


def concentrations(seed=0):
    rng = np.random.default_rng(seed)
    c = rng.uniform(0.05, 3.0, (S * A, S)) * 10.0 ** rng.integers(0, 3, (S * A, 1))
    c[1, 2] = c[2, 0] = c[2, 3] = 0.0
    c[3] = [0, 2.5, 0, 0]
    return c


@pytest.mark.usefixtures("x64")
def test_the_information_is_the_mean_divergence_of_the_next_belief_and_the_mutual_information():
    c = concentrations()
    answer = np.asarray(information(dirichlet_rows(c, (S, A, S)))).ravel()
    np.testing.assert_allclose(answer, [by_divergence(row) for row in c], rtol=1e-9, atol=1e-14)
    mutual = [entr(row / row.sum()).sum() - expected_entropy(row) for row in c]
    np.testing.assert_allclose(answer, mutual, rtol=1e-8, atol=1e-13)
    assert answer[3] == 0  # one possible outcome


def test_the_information_is_that_of_draws():
    """H(pbar) - mean H(p) over 200,000 numpy draws, within 6 standard errors (false alarms 2e-9).

    The smallest fault that is surely caught is 3 %. The twin, psi(c) in place of psi(c + 1), is caught.
    """
    c = np.array([0.4, 1.0, 2.2, 0.7])
    p = np.random.default_rng(0).dirichlet(c, 200_000)
    entropy = entr(p).sum(-1)
    estimate, error = entr(c / c.sum()).sum() - entropy.mean(), entropy.std() / len(p) ** 0.5
    answer = float(np.asarray(information(dirichlet_rows(np.tile(c, (S * A, 1)), (S, A, S))))[0, 0])
    assert 12 * error < 0.03 * answer
    assert abs(answer - estimate) < 6 * error
    twin = entr(c / c.sum()).sum() - digamma(c.sum()) + (c / c.sum() * digamma(c)).sum()
    assert abs(twin - estimate) > 6 * error


def test_the_surplus_is_accurate_where_large_numbers_cancel():
    at = np.array([0.01, 1.0, 19.5, 20.5, 1e4, 1e7])
    with mpmath.workdps(50):
        exact = np.array([float(mpmath.digamma(mpmath.mpf(x) + 1) - mpmath.log(x)) for x in at])
    one = jax.jit(surplus)
    np.testing.assert_allclose(one(at.astype(np.float32)), exact, rtol=2e-5)
    with jax.enable_x64(True):
        np.testing.assert_allclose(one(at), exact, rtol=2e-12)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("unit", [True, False])
def test_listed_counts_tied_rows_and_known_rows_give_the_same(unit):
    rng = np.random.default_rng(1)
    prior = np.ones((S * A, S)) if unit else rng.uniform(0.1, 2.0, (S * A, S))
    rows = dirichlet_rows(prior, (S, A, S))
    cell = (np.repeat(np.arange(S), 5), np.tile(np.arange(5) % A, S))
    rows = rows.update(cell, (cell[0] + cell[1]) % S, np.ones(5 * S))
    whole = information(rows)
    listed = rows.listed(np.stack([(np.arange(S)[:, None] + np.arange(A)) % S] * 2, -1))
    assert listed.successor is not None
    np.testing.assert_allclose(information(listed), whole, rtol=1e-12)
    tie = np.array([[0, -1], [1, 1], [-1, 2], [2, 0]])
    known = np.broadcast_to(np.eye(S)[:, None], (S, A, S))
    tied = dirichlet_rows(prior[:3], (S, A, S), row=tie, known=known)
    leaves = np.array([by_divergence(row) for row in prior[:3]])
    np.testing.assert_allclose(information(tied), np.where(tie < 0, 0.0, leaves[tie]), rtol=1e-10)


def posterior(prior, *, ends=False):
    space = StateActionSpace(S, A, ends=ends)
    rewards = known_rewards(np.zeros((S, A)))
    return conjugate_posterior(dirichlet_rows(prior, (S, A, space.n_outcomes)), rewards, space)


@pytest.mark.usefixtures("x64")
def test_an_end_is_one_more_outcome_and_data_make_an_observation_tell_less():
    belief = posterior(np.ones((S * A, S + 1)), ends=True)
    assert isinstance(belief, CanInform)
    end = Transitions(np.int32(1), np.int32(0), 0.0, np.int32(2), np.bool_(True), np.bool_(False))
    after = belief.update(end)
    tells = np.asarray(tell(after))
    np.testing.assert_allclose(tells[1, 0], by_divergence(np.array([1.0, 1, 1, 1, 2])), rtol=1e-10)
    np.testing.assert_allclose(tells[0], by_divergence(np.ones(S + 1)), rtol=1e-10)
    assert tells[1, 0] < tells[0, 0]


@pytest.mark.usefixtures("x64")
def test_a_mixture_is_told_about_the_component_too():
    """H(mean row) - E[H(row)], the expectation over components and rows; componentwise it would be too small."""
    c = [concentrations(5), concentrations(6) + 0.1]
    weights = np.array([0.3, 0.7])
    belief = mixture([posterior(each) for each in c], weights=weights)
    assert isinstance(belief, CanInform)
    mean = sum(w * each / each.sum(-1, keepdims=True) for w, each in zip(weights, c, strict=True))
    noise = [sum(w * expected_entropy(each[i]) for w, each in zip(weights, c, strict=True)) for i in range(S * A)]
    exact = entr(mean).sum(-1) - noise
    answer = np.asarray(tell(belief)).ravel()
    np.testing.assert_allclose(answer, exact, rtol=1e-9)
    apart = sum(w * np.array([by_divergence(row) for row in each]) for w, each in zip(weights, c, strict=True))
    assert (answer > apart + 1e-6).all()


def test_rewards_tell_nothing_here():
    one: Any = np.ones(S * A)
    rewards = reward_cells(NormalBelief(one, one, one), (S, A))
    eye = np.broadcast_to(np.eye(S)[:, None], (S, A, S))
    rows = dirichlet_rows(np.ones((1, S)), (S, A, S), row=np.full((S, A), -1), known=eye)
    belief = conjugate_posterior(rows, rewards, StateActionSpace(S, A))
    np.testing.assert_array_equal(tell(belief), 0.0)
