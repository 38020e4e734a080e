"""Rewards taken apart by cells: against quadrature by SciPy, what is found to be apart, proposals that are off."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportOptionalMemberAccess=false
# pyright: reportOptionalSubscript=false, reportIndexIssue=false, reportReturnType=false
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import bayes_mdp as bm
from bayes_mdp.inference.draws.methods import NUTS
from bayes_mdp.inference.factorised import integrate_rewards
from bayes_mdp.inference.factorised.integrate_rewards import CellModel, Profiles, find_cells
from bayes_mdp.inference.integrals.quadrature import NotIntegrableError
from bayes_mdp.inference.sampled.conditioned_program import Rows
from bayes_mdp.inference.sampled.recipe import recipe_for, unconstrained_model
from bayes_mdp.models import MDPSpec

S, A = 3, 2
SPACE = bm.StateActionSpace(S, A)
ROWS = np.full(S, 1.0 / S)


def student(space):
    """One scale, a mean for each pair."""
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with space.plates():
        mean = numpyro.sample("mean", dist.Normal(0.0, 3.0))
    return MDPSpec(ROWS, dist.StudentT(4.0, mean, scale))


def by_state(space):
    """Three numbers are shared; the rewards of a state have one positive mean."""
    with numpyro.plate("number", A):
        spread = numpyro.sample("spread", dist.HalfNormal(2.0))
    share = numpyro.sample("share", dist.Beta(1.0, 9.0))
    with numpyro.plate("state", S):
        mean = numpyro.sample("mean", dist.Gamma(2.0, 1.0))
    shares = jnp.broadcast_to(jnp.stack([1.0 - share, share]), (S, A, 2))
    parts = jnp.stack([spread, 5.0 + spread], -1)
    centres = jnp.broadcast_to(mean[:, None, None], (S, A, 2))
    return MDPSpec(ROWS, dist.MixtureSameFamily(dist.Categorical(probs=shares), dist.Normal(centres, parts)))


def log(num: int = 60, seed: int = 0) -> bm.Transitions:
    """Pair (2, 1) is never tried; one reward is far out."""
    rng = np.random.default_rng(seed)
    state, action = rng.integers(S, size=num), rng.integers(A, size=num)
    action[state == 2] = 0
    reward = 1.0 + state + 0.5 * rng.standard_t(4, size=num)
    reward[0] = 15.0
    return bm.Transitions(state, action, reward, rng.integers(S, size=num))


def inferred(program, data=None):
    return bm.infer(jax.random.key(0), program, log() if data is None else data, space=SPACE, method="importance")


def test_one_shared_number_against_scipy():
    """p(scale, data) as a product of one integral a pair, each by a fine sum; then over the scale."""
    data, wide = log(), np.linspace(-20.0, 25.0, 2001)
    step, prior = wide[1] - wide[0], stats.norm(0.0, 3.0).pdf(wide)

    def given(scale: float) -> tuple[float, np.ndarray]:
        total, means = 0.0, np.zeros((S, A))
        for s in range(S):
            for a in range(A):
                seen = data.reward[(data.state == s) & (data.action == a)]
                logs = stats.t(4.0, loc=wide[:, None], scale=scale).logpdf(seen).sum(-1)
                height = prior * np.exp(logs - logs.max())
                total += np.log(height.sum() * step) + logs.max()
                means[s, a] = (wide * height).sum() / height.sum()
        return total + stats.halfnorm.logpdf(scale), means

    scales = np.exp(np.linspace(-2.5, 2.0, 61))  # the trapezoid rule in the logarithm
    logs, means = zip(*map(given, scales), strict=True)
    logs = np.array(logs) + np.log(scales)
    weights = np.exp(logs - logs.max())
    evidence = np.log(weights.sum() * (np.log(scales[1]) - np.log(scales[0]))) + logs.max()
    weights /= weights.sum()
    belief = inferred(student)
    assert find_cells(belief.rewards.recipe) is not None
    found = belief.rewards.integration
    assert abs(float(found.log_evidence) - evidence) < 6.0 * float(found.error) < 0.05
    worth = float(found.effective)
    assert worth > 3000.0
    sites, own = belief.rewards.sites, np.asarray(belief.rewards.weights, np.float64)
    for drawn, right in ((sites["scale"], weights @ scales), (sites["mean"], np.tensordot(weights, means, 1))):
        mean = np.tensordot(own, drawn, 1)
        spread = np.sqrt(np.tensordot(own, (drawn - mean) ** 2, 1) / worth)
        assert (np.abs(mean - right) < 6.0 * spread).all()
    untried = stats.norm(0.0, 3.0).cdf(np.sort(sites["mean"][:, 2, 1]))
    assert np.abs(untried - np.linspace(0.0, 1.0, len(untried))).max() < 0.04  # Kolmogorov: 1e-5


def test_no_shared_number_against_sums():
    """Pairs that share nothing, each by a fine sum; one has no data, and keeps the prior."""

    def program(space):
        with space.plates():
            mean = numpyro.sample("mean", dist.Normal(0.0, 3.0))
        return MDPSpec(ROWS, dist.StudentT(4.0, mean, 0.5))

    data, wide = log(), np.linspace(-20.0, 25.0, 20001)
    rewards = inferred(program).rewards
    evidence, worth = 0.0, float(rewards.integration.effective)
    drawn, weights = np.asarray(rewards.sites["mean"]), np.asarray(rewards.weights, np.float64)
    assert worth > 3000.0
    for s in range(S):
        for a in range(A):
            seen = np.asarray(data.reward)[(np.asarray(data.state) == s) & (np.asarray(data.action) == a)]
            logs = stats.norm(0.0, 3.0).logpdf(wide) + stats.t(4.0, loc=wide[:, None], scale=0.5).logpdf(seen).sum(-1)
            height = np.exp(logs - logs.max())
            evidence += np.log(height.sum() * (wide[1] - wide[0])) + logs.max()
            mean = (wide * height).sum() / height.sum()
            sd = np.sqrt(((wide - mean) ** 2 * height).sum() / height.sum())
            # Means and standard deviations of `worth` draws: 6 errors, a false alarm in 1e-8.
            assert abs(weights @ drawn[:, s, a] - mean) < 6.0 * sd / worth**0.5
            seen_sd = np.sqrt(weights @ (drawn[:, s, a] - weights @ drawn[:, s, a]) ** 2)
            assert abs(np.log(seen_sd / sd)) < 0.1
    integration = rewards.integration
    assert abs(float(integration.log_evidence) - evidence) < 6.0 * float(integration.error) + 1e-4


def test_many_shared_numbers_agree_with_all_numbers_at_once(monkeypatch):
    apart = inferred(by_state).rewards
    assert apart.integration.effective > 1500.0
    monkeypatch.setattr(integrate_rewards, "cells_of", lambda recipe: None)
    together = inferred(by_state).rewards
    error = np.hypot(float(apart.integration.error), float(together.integration.error))
    assert abs(float(apart.integration.log_evidence) - float(together.integration.log_evidence)) < 6.0 * error < 0.3
    for name, x in apart.sites.items():
        moments = []
        for belief, drawn in ((apart, x), (together, together.sites[name])):
            weights = np.asarray(belief.weights, np.float64)
            mean = np.tensordot(weights, drawn, 1)
            moments.append((mean, np.tensordot(weights**2, (drawn - mean) ** 2, 1)))
        (one, its), (other, others) = moments
        assert (np.abs(one - other) < 6.0 * np.sqrt(its + others)).all(), name


@pytest.mark.parametrize("width", [0.3, 3.0])
def test_what_the_nodes_have_off_is_corrected_or_refused(monkeypatch, width):
    """Nodes three times too near or too far apart: the evidence stays, or the weights are refused."""
    right = inferred(student).rewards.integration
    find = CellModel.find_profiles

    def found(self, shared, draws):
        return [Profiles(each.centre, width * each.width) for each in find(self, shared, draws)]

    monkeypatch.setattr(CellModel, "find_profiles", found)
    off = inferred(student).rewards.integration
    error = np.hypot(float(right.error), float(off.error))
    assert abs(float(off.log_evidence) - float(right.log_evidence)) < 6.0 * error < 0.3


def test_densities_of_draws_that_are_forgotten_are_seen(monkeypatch):
    """A twin that takes the elements for drawn uniformly: nothing of it is believed, or its evidence is off."""
    right = inferred(student).rewards.integration
    draw = CellModel.draw_elements
    monkeypatch.setattr(CellModel, "draw_elements", lambda self, *args: (draw(self, *args)[0], 0.0))
    off = inferred(student).rewards.integration
    assert off.effective < 3000.0 < right.effective


def above(space):
    m = numpyro.sample("m", dist.Normal(0.0, 1.0))
    with space.plates():
        mean = numpyro.sample("mean", dist.Normal(m, 1.0))
    return MDPSpec(ROWS, dist.StudentT(4.0, mean, 1.0))


def two_in_a_cell(space):
    with space.plates():
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        scale = numpyro.sample("scale", dist.Gamma(2.0, 1.0))
    return MDPSpec(ROWS, dist.StudentT(4.0, mean, scale))


def neighbours(space):
    with space.plates():
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    return MDPSpec(ROWS, dist.StudentT(4.0, mean + jnp.roll(mean, 1, 0), 1.0))


def bent(space):
    with space.plates():
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    numpyro.factor("sum to zero", -0.5 * mean.sum() ** 2)
    return MDPSpec(ROWS, dist.StudentT(4.0, mean, 1.0))


def seen_elsewhere(space):
    with space.plates():
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    scale = numpyro.sample("scale", dist.HalfNormal(jnp.exp(mean.mean())))
    return MDPSpec(ROWS, dist.StudentT(4.0, mean, scale))


@pytest.mark.parametrize("program", [above, two_in_a_cell, neighbours, bent, seen_elsewhere])
def test_what_is_not_apart_is_left_as_it_is(program):
    assert find_cells(recipe_for(program, SPACE, NUTS(), rewards_only=True)) is None


def simulated_pits(simulations: int, weight: float = 1.0) -> np.ndarray:
    """Posterior probability below the truth, of the scale and of a mean of `student`: [at most simulations, 2].

    Data that are handed on to chains are left out: the truth decides about that only through the data. `weight` is how
    often each reward counts; but for 1 the posterior is not that of the simulated data.
    """
    rng, pits = np.random.default_rng(5), []
    recipe = recipe_for(student, SPACE, NUTS(), rewards_only=True)
    state, action = np.repeat(np.arange(S), 6), np.arange(18) % A
    where = np.stack([state, action, 0 * action], -1)
    for _ in range(simulations):
        scale, mean = abs(rng.normal()), rng.normal(0.0, 3.0, size=(S, A))
        reward = mean[state, action] + scale * rng.standard_t(4, size=18)
        rows = Rows(np.zeros((S, A, S)), where, reward, np.full(18, weight), np.asarray(18))
        try:
            sites, log_weights, _ = integrate_rewards.integrate_rewards(recipe, rows, rng)
        except NotIntegrableError:
            continue
        below = np.stack([sites["scale"] < scale, sites["mean"][:, 0, 0] < mean[0, 0]])
        pits.append(below @ np.exp(log_weights))
    return np.array(pits)


LEVEL = 2e-7
"""Of each of the four tests of calibration: a false alarm in one of them, fewer than one run in a million."""


def p_values(pits: np.ndarray) -> tuple[float, float]:
    """That probabilities below the truth are uniform (Kolmogorov-Smirnov); that central intervals of .8 cover."""
    inside = int((np.abs(pits - 0.5) < 0.4).sum())
    return stats.kstest(pits, "uniform").pvalue, stats.binomtest(inside, len(pits), 0.8).pvalue


@pytest.mark.slow
def test_truths_are_anywhere_among_weighted_draws():
    """1,000 simulations.

    A distribution function that is off by .14, or intervals of .8 that cover .70, pass one time in a hundred.
    """
    simulated = simulated_pits(1000)
    assert len(simulated) > 980
    for pits in simulated.T:
        assert min(p_values(pits)) > LEVEL


@pytest.mark.slow
def test_a_twin_that_counts_rewards_four_times_is_not_calibrated():
    """Intervals half as wide: those of .8 cover about .48, of a mean and of the scale."""
    for pits in simulated_pits(100, weight=4.0).T:
        assert p_values(pits)[1] < LEVEL


def spread_by_action(space):
    """The pairs of a state have one mean, each action a spread of its own; rewards of state 0 see no element."""
    with numpyro.plate("number", A):
        spread = numpyro.sample("spread", dist.HalfNormal(2.0))
    with numpyro.plate("state", S):
        mean = numpyro.sample("mean", dist.Normal(0.0, 3.0))
    return MDPSpec(ROWS, dist.Laplace(jnp.where(jnp.arange(S) > 0, mean, 1.0)[:, None], spread))


@pytest.mark.parametrize(
    ("program", "closed"), [(student, True), (spread_by_action, True), (by_state, False)], ids=lambda x: str(x)[:18]
)
def test_every_reward_counts_once(program, closed):
    """The terms of the cells add up to the density of the program; weights and many rewards of one pair with them."""
    recipe = recipe_for(program, SPACE, NUTS(), rewards_only=True)
    cells, model = find_cells(recipe), unconstrained_model(recipe)
    assert cells.sites == ("mean",)
    rows = jax.tree.map(np.asarray, recipe.summarise(log(90)))
    rows = replace(rows, weight=rows.weight * np.where(np.arange(90) % 7 == 0, 0.0, 1.0 + 0.5 * (np.arange(90) % 2)))
    apart, rng = CellModel(recipe, cells, rows), np.random.default_rng(0)
    assert (apart._closed is not None) == closed
    size = len(apart.shared), len(apart.elements)
    shared, elements = rng.normal(size=(3, size[0])), rng.normal(size=(3, 17, size[1]))
    rest, each = apart.terms(shared, elements)
    points = np.zeros((3, 17, sum(size)))
    points[..., apart.shared], points[..., apart.elements] = shared[:, None], elements
    expected = model.log_density({}, rows)(points.reshape(51, -1))
    np.testing.assert_allclose((rest[:, None] + each.sum(-1)).ravel(), expected, rtol=1e-9)
    heights, values = apart.place(points.reshape(51, -1))
    np.testing.assert_allclose(heights, expected, rtol=1e-9)
    np.testing.assert_allclose(
        values["mean"].ravel(), model.place(points.reshape(51, -1), {}, rows).values["mean"].ravel()
    )


def test_of_an_element_without_data_the_prior_is_left():
    recipe = recipe_for(student, SPACE, NUTS(), rewards_only=True)
    cells = find_cells(recipe)
    assert cells.element.tolist() == [[0, 1], [2, 3], [4, 5]]
    apart, rng = CellModel(recipe, cells, jax.tree.map(np.asarray, recipe.summarise(log(90)))), np.random.default_rng(0)
    elements = rng.normal(size=(3, 17, 6))
    _, each = apart.terms(rng.normal(size=(3, 1)), elements)
    np.testing.assert_array_equal(apart.seen, [True] * 5 + [False])
    np.testing.assert_allclose(each[..., 5], stats.norm(0.0, 3.0).logpdf(elements[..., 5]), rtol=1e-9)


def test_closed_densities_against_scipy():
    """Weighted sums over the rewards of a cell, for many values of the parameters."""
    rng = np.random.default_rng(0)
    far, weight = 5.0 * rng.standard_cauchy(40), rng.integers(1, 4, size=40) / 2.0
    far[0], loc = 1e100, rng.normal(size=30)
    df, scale = np.exp(rng.normal(1.0, 3.0, size=30)), np.exp(rng.uniform(-1.0, 1.0, size=30))
    laws = {
        dist.StudentT: (far, (df, loc, scale), stats.t(df, loc=loc, scale=scale)),
        dist.Laplace: (np.clip(far, -100.0, 100.0), (loc, scale), stats.laplace(loc=loc, scale=scale)),
    }
    assert laws.keys() == integrate_rewards.CLOSED.keys()
    for law, (reward, parameters, expected) in laws.items():
        found = integrate_rewards.CLOSED[law].log_density(reward, weight, *parameters)
        np.testing.assert_allclose(found, weight @ expected.logpdf(reward[:, None]), rtol=1e-10)
