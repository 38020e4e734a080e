"""Credible sets hold what they promise, as a whole."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.optimize import linprog

from bayes_mdp.decisions.choosing.common_draws import CommonDraws, draws_of
from bayes_mdp.decisions.choosing.credible_set import CredibleSet, centre, credible_set
from bayes_mdp.mdp import MDP, Discounted
from tests.decisions.choosing.problems import DirichletRows, learnt
from tests.inference.policy_problems import posterior

pytestmark = pytest.mark.numerics

RATE = 1e-6
BELIEF = learnt(0, steps=10)


def mean_of(belief: Any = BELIEF) -> MDP:
    """In double precision."""
    with jax.enable_x64(True):
        return belief.mean_mdp()


def draws(seed: int, number: int, belief: Any = BELIEF) -> CommonDraws:
    """Of the belief."""
    return draws_of(jax.random.key(seed), belief, Discounted(0.9), number)


def distances(members: CredibleSet, belief: DirichletRows, seed: int, number: int) -> np.ndarray:
    """L1 distances of fresh rows from the centre, by numpy: [draw, pair]."""
    rng = np.random.default_rng(seed)
    weight = rng.standard_gamma(np.asarray(belief.concentration), (number, *belief.concentration.shape))
    rows = weight / weight.sum(-1, keepdims=True)
    return np.abs(rows[:, members.state, members.action] - members.probs).sum(-1)


def least_covered(number: int, calibrated: int, confidence: float) -> int:
    """With fewer of so many fresh draws inside than this the promise is broken, but for one set in a million.

    The share that a set holds is a beta variable over the draws that measured it.
    """
    rank = int(np.ceil(confidence * (calibrated + 1) - 1e-9))
    return int(stats.betabinom.ppf(RATE, number, rank, calibrated + 1 - rank))


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
def test_fresh_draws_lie_inside_as_a_whole(confidence):
    """Of 4000; the broken twin, whose radii are quantiles pair by pair, is caught, and so is one a tenth smaller."""
    members = credible_set(draws(0, 1000), mean_of(), confidence)
    fresh = distances(members, BELIEF, 1, 4000)
    least = least_covered(4000, 500, confidence)
    assert (fresh <= members.radius).all(-1).sum() >= least
    pairwise = np.quantile(distances(members, BELIEF, 2, 500), confidence, axis=0)
    assert (fresh <= pairwise).all(-1).sum() < least
    assert (fresh <= 0.9 * members.radius).all(-1).sum() < least
    # What is known has no distance: a radius of the size of rounding would be lost in every step of a long stay.
    assert (members.reward_radius == 0).all()


def test_a_known_row_has_no_distance():
    """Draws agree on one row but for rounding, on the others they do not."""

    class OneKnown(DirichletRows):
        def sample(self, key, sample_shape=()):
            mdp = super().sample(key, sample_shape)
            row = jnp.eye(mdp.n_states, dtype=mdp.transition_probs.dtype)[1] * (1 - 1e-15)
            return MDP(mdp.transition_probs.at[1, 0].set(row), mdp.reward)

    belief = OneKnown(BELIEF.concentration, BELIEF.reward)
    members = credible_set(draws(0, 100, belief), None, 0.9)
    known = (members.state == 1) & (members.action == 0)
    assert (members.radius[known] == 0).all() and (members.radius[~known] > 1e-3).all()


@pytest.mark.slow
def test_small_sets_hold_on_average():
    """1000 sets, each from 20 draws, and one fresh draw each.

    The broken twin shapes and measures the set on the same draws.
    """
    number, inside, members = 1000, 0, centre(draws(0, 20), mean_of())
    for seed in range(number):
        members = credible_set(draws(seed, 20), mean_of(), 0.9)
        inside += (distances(members, BELIEF, seed, 1) <= members.radius).all()
    least = stats.binom.ppf(RATE, number, 0.9)
    assert inside >= least
    twin = 0
    for seed in range(number):
        rows = distances(members, BELIEF, number + seed, 21)
        shape = rows[:20].mean(0)
        largest = np.sort((rows[:20] / shape).max(-1))[int(np.ceil(0.9 * 20)) - 1]
        twin += (rows[20] <= largest * shape).all()
    assert twin < least


def test_a_larger_confidence_is_a_larger_set():
    """In proportion to the mean distances."""
    sets = [credible_set(draws(0, 400), mean_of(), c) for c in (0.5, 0.9, 0.99)]
    factors = [members.radius / sets[0].radius for members in sets]
    assert all(np.ptp(factor) < 1e-9 for factor in factors)
    assert 1 < factors[1][0] < factors[2][0]


def test_the_centre():
    """Means of all legal pairs; ends and zeros are places of their own, or none."""
    belief = posterior(ends=True)
    members = centre(draws(0, 4, belief), belief.mean_mdp())
    mean = belief.mean_mdp()
    assert members.successor.max() == mean.n_states and members.probs.shape == (8, 5)
    np.testing.assert_allclose(members.probs[:, :4].reshape(4, 2, 4), np.asarray(mean.transition_probs), rtol=1e-6)
    np.testing.assert_allclose(members.probs[:, 4].reshape(4, 2), np.asarray(mean.end_probs), rtol=1e-6)
    np.testing.assert_allclose(members.probs.sum(-1), 1.0, rtol=1e-6)
    np.testing.assert_array_equal(members.radius, 0)


def test_unknown_rewards_are_part_of_the_set():
    """Rewards that vary with the draw: the interval holds them."""

    class Rewarded(DirichletRows):
        def sample(self, key, sample_shape=()):
            mdp = super().sample(key, sample_shape)
            noise = jax.random.uniform(jax.random.fold_in(key, 1), mdp.reward.shape, minval=-1.0, maxval=1.0)
            return MDP(mdp.transition_probs, mdp.reward + noise)

    belief = Rewarded(BELIEF.concentration, BELIEF.reward)
    members = credible_set(draws(0, 1000, belief), mean_of(belief), 0.9)
    with jax.enable_x64(True):
        fresh = jax.vmap(belief.sample)(jax.random.split(jax.random.key(7), 2000))
    rows = np.abs(np.asarray(fresh.transition_probs)[:, members.state, members.action] - members.probs).sum(-1)
    rewards = np.abs(np.asarray(fresh.reward)[:, members.state, members.action] - members.reward)
    inside = (rows <= members.radius).all(-1) & (rewards <= members.reward_radius).all(-1)
    least = least_covered(2000, 500, 0.9)
    assert inside.sum() >= least
    alone = credible_set(draws(0, 1000), mean_of(), 0.9)
    assert ((rows <= alone.radius).all(-1) & (rewards <= np.quantile(rewards, 0.9, 0)).all(-1)).sum() < least


def test_too_few_draws_are_refused():
    """On half of them a set must be measured."""
    with pytest.raises(ValueError, match=r"num_draws is 36, expected at least 37: a credible set of probability 0\.95"):
        credible_set(draws(0, 36), mean_of(), 0.95)
    credible_set(draws(0, 37), mean_of(), 0.95)


def test_one_order_for_all_rows_is_the_order_of_each():
    """Rows that list the same places, some of which do not exist for some: the same worst values by either route."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        possible = rng.random((6, 4)) < 0.7
        possible[:, 0] = True
        probs = rng.dirichlet(np.ones(4), 6) * possible
        probs /= probs.sum(-1, keepdims=True)
        places = np.broadcast_to(np.arange(4, dtype=np.int32), (6, 4))
        pairs = np.repeat(np.arange(3), 2), np.tile(np.arange(2), 3)
        radius, nothing = rng.uniform(0, 2, 6), rng.uniform(0, 1, 6)
        sets = [
            CredibleSet(*pairs, places, probs, possible, rng.normal(size=6), radius, nothing, 3, 2, aligned=aligned)
            for aligned in (True, False)
        ]
        sets[1] = eqx.tree_at(lambda s: s.reward, sets[1], sets[0].reward)
        with jax.enable_x64(True):
            values = jnp.asarray(rng.normal(size=3).round(1))  # with ties
            one, each = (np.asarray(members.worst_values(values, 0.9)) for members in sets)
        np.testing.assert_allclose(one, each, rtol=1e-12)


def test_the_worst_values_are_those_of_linear_programs():
    """Rows within an L1 distance, each in an order of its own: p = centre + up - down, sum of up and down <= radius."""
    rng = np.random.default_rng(0)
    successor, values = np.array([[0, 1, 2], [2, 3, 1], [1, 2, 0]]), np.array([0.5, 2.0, -1.0, 0.0])
    probs, radius = rng.dirichlet(np.ones(3), 3), np.array([0.3, 1.1, 0.0])
    reward, width = rng.normal(size=3), np.array([0.2, 0.0, 0.5])
    pairs = np.arange(3), np.zeros(3, int)
    members = CredibleSet(*pairs, successor, probs, np.ones((3, 3), bool), reward, radius, width, 3, 1)
    with jax.enable_x64(True):
        found = np.asarray(members.worst_values(jnp.asarray(values[:3]), 0.9))[:, 0]
    for i in range(3):
        change = np.concatenate([values[successor[i]], -values[successor[i]]])
        bounds = [(0, None)] * 3 + [(0, p) for p in probs[i]]
        program = linprog(change, np.ones((1, 6)), radius[i], [[1] * 3 + [-1] * 3], 0.0, bounds)
        expected = reward[i] - width[i] + 0.9 * (probs[i] @ values[successor[i]] + program.fun)
        assert found[i] == pytest.approx(expected, abs=1e-9)
