"""The collapsed density of every conjugate form, hyperparameters and data, against integrals written without it.

Compared at three values of the hyperparameters, at none of which the hierarchy was found. What no posterior given the
hyperparameters would show (a constant that holds one, and is lost) shows here; twins that lose one are found out.
"""

# pyright: reportArgumentType=false, reportAttributeAccessIssue=false

from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.special import gammaln
from numpyro import handlers
from scipy import special

import bayes_mdp as bm
from bayes_mdp.inference.collapsed import collapse, collapsed_posterior
from bayes_mdp.inference.collapsed.collapse import log_evidence
from bayes_mdp.inference.collapsed.hierarchy import find_hierarchy
from bayes_mdp.inference.conjugate.conjugate_posterior import conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.inference.conjugate.rewards import known_rewards
from bayes_mdp.inference.detection import detect_rows
from bayes_mdp.inference.detection.probe import NotConjugate
from bayes_mdp.inference.detection.trace import trace_program
from bayes_mdp.inference.families import log_normal
from bayes_mdp.inference.families.binomial import BetaBinomialBelief
from bayes_mdp.inference.families.exponential import GammaExponentialBelief
from bayes_mdp.inference.families.normal import NormalBelief
from bayes_mdp.models import MDPSpec
from tests.inference.detection import quadrature_judge
from tests.inference.hyper_forms import FORMS, HYPER, SPACE, Data, log_collapsed, log_prior, program

pytestmark = pytest.mark.usefixtures("x64")

NUMBER = 20
TOLERANCE = 1e-10
"""Relative to the size of the log density; what is seen is 1.3e-13, and 1.5e-4 or more of a twin."""
BY_QUADRATURE = 1e-7
"""Likewise of the quadrature over NumPyro's own density; what is seen is 1e-15."""


def make_data(name, space=None, *, weighted=False):
    """Transitions of a form; with weights, one reward in four is not observed."""
    rng, space = np.random.default_rng(7), space or FORMS[name].space
    state, action = rng.integers(space.n_states, size=NUMBER), rng.integers(space.n_actions, size=NUMBER)
    next_state = rng.integers(space.n_states, size=NUMBER)
    next_state = np.where(state == 0, next_state % 2, next_state)  # what state 0 can lead to in every form
    reward = FORMS[name].rewards(rng, state, action)
    weight = rng.uniform(0.3, 2.5, size=NUMBER) if weighted else np.ones(NUMBER)
    observed = np.arange(NUMBER) % 4 > 0 if weighted else np.ones(NUMBER, bool)
    return Data(state, action, next_state, reward, weight, weight * observed)


def transitions_of(data):
    """The same as the library takes them; what is not observed is nan."""
    observed = data.reward_weight > 0
    reward = np.where(observed, data.reward, np.nan)
    return bm.Transitions(data.state, data.action, reward, data.next_state, reward_observed=observed)


FAR = {"a": 40.0, "b": 9.0, "loc": -2.0}
"""Values that no draw has: large concentrations, a mean far from all data."""


def draws(name, number=2):
    """Hyperparameters from their laws, and `FAR`."""
    rng = np.random.default_rng(11)
    drawn = [{h: HYPER[h][1].rvs(random_state=rng) for h in FORMS[name].hyper} for _ in range(number)]
    return [{h: np.float64(x) for h, x in v.items()} for v in (*drawn, {h: FAR[h] for h in FORMS[name].hyper})]


@lru_cache
def hierarchy_of(name, space=None):
    """The hierarchy of a form, kept from test to test."""
    found, _ = find_hierarchy(trace_program(program(name), space or FORMS[name].space), np.random.default_rng(0))
    assert set(found.hyperparameters) == set(FORMS[name].hyper)
    return found


def seen_of(hierarchy, data):
    """The belief after data, at the parameters that the hierarchy was found with."""

    @jax.jit
    def update(transitions):
        return hierarchy.prior.update(transitions)

    return update(transitions_of(data))


def forms(*quick):
    """All forms; those that are not named are slow."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in FORMS]


SLOW = ("poisson by outcome", "geometric", "log-normal, noise unknown", "affine, noise unknown")


def worst_error(name, hierarchy, *data):
    """The largest error of the collapsed density, relative to the size of the oracle's."""

    @jax.jit
    def density(values, transitions, weight):
        return log_collapsed(hierarchy, values, hierarchy.prior.update(transitions, weight))

    errors = []
    for one in data:
        for values in draws(name):
            expected = log_prior(name, values) + FORMS[name].log_marginal(values, one)
            found = float(density(values, transitions_of(one), one.weight))
            errors.append(abs(found - expected) / abs(expected))
    return max(errors)


@pytest.mark.some(2)
@pytest.mark.parametrize("name", forms(*(FORMS.keys() - SLOW)))
def test_the_collapsed_density_is_the_integral(name):
    """Of data as they are; and raised to powers, a quarter of the rewards not observed."""
    data = [make_data(name, weighted=weighted) for weighted in ([False, True] if FORMS[name].powers else [False])]
    assert worst_error(name, hierarchy_of(name), *data) < TOLERANCE


def without_stretch(hierarchy):
    """The squared coefficients of affine means left out of the noise."""
    detected = hierarchy.detected
    return replace(hierarchy, detected=detected._replace(assembly=detected.assembly._replace(stretch=None)))


def swapped(site, parameters):
    """Rows of a Beta site with its two concentrations exchanged."""
    return _rows(site, parameters)[:, ::-1]


_rows = detect_rows._rows
_exponential, _normal = GammaExponentialBelief.log_marginal, NormalBelief.log_marginal

TWINS = {
    "exponential": (GammaExponentialBelief, "log_marginal", lambda b, x: _exponential(b, x) - gammaln(b.concentration)),
    "log-normal": (log_normal._OfLogarithms, "log_constant", lambda belief, reward: 0.0 * reward),
    "binomial": (BetaBinomialBelief, "log_constant", lambda belief, reward: 0.0 * reward),
    "known state": (NormalBelief, "log_marginal", lambda b, x: _normal(b, x) + x[..., 0] * np.log(1.001)),
    "advance or stay": (detect_rows, "_rows", swapped),
}
"""Form -> what is broken: a normaliser that holds a hyperparameter, a Jacobian, the binomial coefficients, every
density by a thousandth, and which concentration is whose."""


@pytest.mark.some(3)
@pytest.mark.parametrize("name", TWINS)
def test_a_broken_twin_is_found_out(name, monkeypatch):
    hierarchy = hierarchy_of(name)
    monkeypatch.setattr(*TWINS[name])
    assert worst_error(name, hierarchy, make_data(name)) > 1e-4


def test_affine_means_need_the_noise_of_what_they_are_means_of():
    assert worst_error("affine", without_stretch(hierarchy_of("affine")), make_data("affine")) > 1e-2


@pytest.mark.few(1)
@pytest.mark.parametrize("name", forms("precision", "affine"))
def test_gradients_are_those_of_the_integral(name):
    """In every hyperparameter, against differences of fourth order of the oracle."""
    hierarchy, data = hierarchy_of(name), make_data(name)
    seen = seen_of(hierarchy, data)
    gradient = jax.jit(jax.grad(lambda values: log_collapsed(hierarchy, values, seen)))

    def density(values):
        return log_prior(name, values) + FORMS[name].log_marginal(values, data)

    for values in draws(name, 1):
        found = gradient(values)
        for h, x in values.items():
            step = 2e-3 * abs(x)
            at = [density({**values, h: x + k * step}) for k in (-2, -1, 1, 2)]
            expected = (at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * step)
            # The differences: truncated by step^4 / 30 fifth derivatives, rounded; what is seen is 1e-10.
            assert abs(float(found[h]) - expected) < 1e-8 * (1.0 + abs(expected))


@pytest.mark.parametrize("name", forms("binomial"))
def test_classes_of_equal_parameters_give_the_same_evidence(name, monkeypatch):
    """Parameters kept once for each class, and counts in groups, as for large priors: no entry has another's number."""
    monkeypatch.setattr(collapse, "SMALL", 0)
    hierarchy, data = hierarchy_of(name), make_data(name)
    classes = collapse.find_classes(hierarchy)
    seen = seen_of(hierarchy, data)
    values = draws(name)
    stacked = {h: np.stack([v[h] for v in values]) for h in values[0]}
    kept = collapse.compress(hierarchy, classes, stacked)
    for n, v in enumerate(values):
        for leaf, few, number in zip(jax.tree.leaves(hierarchy.parameters(v)), kept, classes.number, strict=True):
            np.testing.assert_allclose(few[n][number], leaf, rtol=1e-12)
        grouped = collapse.grouped(jax.tree.map(np.asarray, seen), classes)
        assert isinstance(grouped, collapse.Grouped)
        expected = float(log_evidence(hierarchy, v, seen))
        assert float(log_evidence(hierarchy, v, grouped)) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("name", forms())
def test_weights_of_prior_draws_are_the_integrals(name, monkeypatch):
    """Draws from the prior, moved by data in two blocks, of all rows at once and one by one."""
    before: Any = bm.infer(jax.random.key(3), program(name), None, space=FORMS[name].space, method="collapsed")
    before = before.thinned(jax.random.key(4), 8, moves=0)
    data = make_data(name)
    values = [{h: np.float64(x[k]) for h, x in before.hyperparameters.items()} for k in range(8)]
    expected = np.array([FORMS[name].log_marginal(v, data) for v in values])
    for dense in (collapsed_posterior.DENSE, 0):
        monkeypatch.setattr(collapsed_posterior, "DENSE", dense)
        update = jax.jit(lambda posterior, transitions: posterior.update(transitions))
        after = before
        for at in (slice(NUMBER // 2), slice(NUMBER // 2, None)):
            after = update(after, jax.tree.map(lambda x, at=at: x[at], transitions_of(data)))
        found = np.asarray(after.log_weights)
        np.testing.assert_allclose(found - found[0], expected - expected[0], atol=1e-9)


@pytest.mark.parametrize("name", forms("exponential"))
def test_quadrature_over_the_density_of_numpyro_agrees(name):
    """The whole program as NumPyro has it, its hyperparameters observed at their values: neither code is shared."""
    space = bm.StateActionSpace(*FORMS[name].small)
    data = make_data(name, space)
    transitions = bm.Transitions(data.state, data.action, data.reward, data.next_state)
    hierarchy, values = hierarchy_of(name, space), draws(name)[0]
    expected = quadrature_judge.log_integral(handlers.condition(program(name), values), space, transitions)
    found = float(jax.jit(lambda v, seen: log_collapsed(hierarchy, v, seen))(values, seen_of(hierarchy, data)))
    assert abs(found - expected) < BY_QUADRATURE * abs(expected)


def _mean(space, h):
    with space.plates():
        return numpyro.sample("mean", dist.Normal(0.0, h["a"]))


def _tau(space, h):
    with space.plates():
        return numpyro.sample("tau", dist.Gamma(2.0, h["a"]))


IN_THE_LAW = {
    "offset": lambda space, h: dist.Normal(_mean(space, h) + h["b"], 1.0),
    "coefficient": lambda space, h: dist.Normal(h["b"] * _mean(space, h), 1.0),
    "noise of a known mean": lambda space, h: dist.Normal(_mean(space, h).at[0].set(1.5), h["b"]),
    "factor of a precision": lambda space, h: dist.Normal(0.0, (h["b"] * _tau(space, h)) ** -0.5),
    "factor of a rate": lambda space, h: dist.Poisson(h["b"] * _tau(space, h)),
}


@pytest.mark.parametrize("name", IN_THE_LAW)
def test_a_hyperparameter_in_the_law_is_refused(name):
    """The constants of a form are those of a known law: under such a hyperparameter they would not be constant."""

    def prior(space):
        h = {h: numpyro.sample(h, HYPER[h][0]) for h in ("a", "b")}
        return MDPSpec(np.array([0.3, 0.7]), IN_THE_LAW[name](space, h))

    with pytest.raises(NotConjugate):
        find_hierarchy(trace_program(prior, SPACE), np.random.default_rng(0))


def test_a_hyperprior_in_single_precision_is_no_obstacle():
    """A law that the user made outside the program has arrays of 32 bits: its density is compared as closely as these.

    Its density differs by 5e-7 with and without the conjugate sites, which is rounding.
    """
    single = dist.Beta(jnp.float32(1.0), jnp.float32(5.0))

    def prior(space):
        typical = numpyro.sample("typical", single)
        alike = numpyro.sample("alike", dist.LogNormal(np.log(20.0), 1.0))
        with numpyro.plate("state", space.n_states):
            there = numpyro.sample("there", dist.Beta(alike * typical, alike * (1 - typical)))
        return MDPSpec(jnp.stack([1 - there, there], -1)[:, None], jnp.zeros((2, 1)))

    assert bm.explain(prior, bm.StateActionSpace(2, 1)).route == "quadrature"


def test_counts_in_groups_have_the_evidence_of_all_counts(monkeypatch):
    """Each pair of concentration and count is weighed once, as often as it occurs; by scipy, entry by entry."""
    monkeypatch.setattr(collapse, "SMALL", 0)
    rng = np.random.default_rng(3)
    prior, counts = rng.choice([0.5, 2.0], (9, 9)), rng.integers(3, size=(9, 9)).astype(float)
    state, outcome = np.indices(prior.shape).reshape(2, -1)
    rows = dirichlet_rows(prior, (9, 1, 9)).update((state, np.zeros(81, int)), outcome, counts.ravel())
    posterior = conjugate_posterior(rows, known_rewards(np.zeros((9, 1))), bm.StateActionSpace(9, 1))
    _, first, number = np.unique(prior, return_index=True, return_inverse=True)
    groups = collapse.grouped(posterior, collapse.Classes((number.reshape(prior.shape),), (first,)))
    assert isinstance(groups, collapse.Grouped) and groups.times.max() > 5
    entries = special.gammaln(prior + counts) - special.gammaln(prior)
    totals = special.gammaln((prior + counts).sum(-1)) - special.gammaln(prior.sum(-1))
    np.testing.assert_allclose(groups.log_evidence(posterior), entries.sum() - totals.sum(), rtol=1e-10)
