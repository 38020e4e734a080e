"""The conditioned model against densities written by hand, on every form of data."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats
from numpyro.infer import Predictive
from numpyro.infer.util import log_density

from bayes_mdp.mdp import Counts, Log, StateActionSpace, Transitions
from bayes_mdp.models import (
    MDPSpec,
    NormalGamma,
    dirichlet_normal,
    dirichlet_poisson,
    joint,
    known_rewards,
    normal,
    predictive,
)
from bayes_mdp.models.joint import summarise
from bayes_mdp.models.sufficient_statistics import Statistics

N = 60
SPACES = {
    "plain": StateActionSpace(3, 2),
    "ends": StateActionSpace(3, 2, ends=True),
    "steps": StateActionSpace(3, 2, horizon=4, ends=True),
    "legal": StateActionSpace(3, 2, legal=np.array([[1, 1], [1, 0], [0, 1]], bool)),
}


def transitions(space, reward=None, seed=0) -> Any:
    rng = np.random.default_rng(seed)
    state, outcome = rng.integers(3, size=N), rng.integers(space.n_outcomes, size=N)
    action = rng.integers(2, size=N)
    if space.legal is not None:
        action = np.where(space.legal[state, action], action, 1 - action)
    step = None if space.horizon is None else rng.integers(space.horizon, size=N)
    next_state, ended = np.where(outcome == 3, 0, outcome), outcome == 3
    reward = rng.normal(size=N) if reward is None else reward
    return Transitions(state, action, reward, next_state, ended, step=step)


def prior(space):
    """Normal-gamma rewards of every pair."""
    with space.plates():
        probs = numpyro.sample("p", dist.Dirichlet(jnp.full(space.n_outcomes, 0.7)))
        reward = numpyro.sample("r", NormalGamma(0.0, 0.5, 3.0, 2.0))
    return MDPSpec(probs, normal(reward))


def values(space, seed=1):
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.ones(space.n_outcomes), space.shape)
    return {"p": probs, "r": np.stack([rng.normal(size=space.shape), rng.gamma(3.0, 1.0, space.shape)], -1)}


def prior_density(space, sites):
    mean, precision = np.moveaxis(sites["r"], -1, 0)
    rows = sites["p"].reshape(-1, space.n_outcomes)
    density = sum(scipy.stats.dirichlet.logpdf(row, np.full(space.n_outcomes, 0.7)) for row in rows)
    density += scipy.stats.gamma.logpdf(precision, 3.0, scale=0.5).sum()
    return density + scipy.stats.norm.logpdf(mean, 0.0, (0.5 * precision) ** -0.5).sum()


def data_density(space, sites, data):
    cell = (data.state, data.action) if space.horizon is None else (data.step, data.state, data.action)
    outcome = np.where(data.terminated, 3, data.next_state)
    mean, precision = np.moveaxis(sites["r"][cell], -1, 0)
    density = np.log(sites["p"][(*cell, outcome)]).sum()
    return density + scipy.stats.norm.logpdf(data.reward, mean, precision**-0.5).sum()


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["plain", "steps"])
def test_log_joint_is_the_one_written_by_hand(name, x64):
    space = SPACES[name]
    data, sites = transitions(space), values(space)
    before, after = prior_density(space, sites), data_density(space, sites, data)
    model = joint(prior, space)
    assert log_density(model, (), {}, sites)[0] == pytest.approx(before, rel=1e-10)
    for form in (data, summarise(prior, space, data)):
        assert log_density(model, (form,), {}, sites)[0] == pytest.approx(before + after, rel=1e-10)


def test_every_form_of_data_is_the_same_data(x64):
    space = SPACES["legal"]
    data, sites = transitions(space), values(space)
    log, expected = Log(data, ("a", "b", "c"), ("l", "r")), summarise(prior, space, data)
    for form in (log, Counts.of(data, space), expected):
        actual = summarise(prior, space, form)
        for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
            np.testing.assert_array_equal(a, b)
    density = log_density(joint(prior, space), (log,), {}, sites)[0]
    assert float(density) == pytest.approx(prior_density(space, sites) + data_density(space, sites, data), rel=1e-10)


def test_a_log_whose_labels_have_another_order_is_refused(x64):
    """Its numbers would be those of other states and actions."""
    named = StateActionSpace(3, 2, states=("a", "b", "c"), actions=("l", "r"))
    data = Transitions([0, 1], [0, 1], [0.0, 1.0], [1, 2])
    for labels, name in (((("c", "b", "a"), ("l", "r")), "states"), ((("a", "b", "c"), ("r", "l")), "actions")):
        with pytest.raises(ValueError, match=rf"data\.{name} are .*, expected those of the space"):
            summarise(dirichlet_normal(), named, Log(data, *labels))


@pytest.mark.parametrize("shape", [(), (3, 2), (3, 2, 4)])
def test_known_rewards_say_nothing_whatever_their_shape(shape, x64):
    space = SPACES["ends"]
    data, sites = transitions(space, reward=np.zeros(N)), {"transition": values(space)["p"]}
    belief = known_rewards(np.zeros(shape))
    model = joint(belief, space)
    before = log_density(model, (), {}, sites)[0]
    after = [log_density(model, (form,), {}, sites)[0] for form in (data, summarise(belief, space, data))]
    assert after[0] == after[1] != before


def by_outcome(space):
    """Poisson rewards that depend on the outcome, tied over actions."""
    with space.plates("state"):
        probs = numpyro.sample("p", dist.Dirichlet(jnp.ones(space.n_outcomes)))
        rate = numpyro.sample("r", dist.Gamma(2.0, jnp.ones(space.n_outcomes)).to_event(1))
    return MDPSpec(probs, dist.Poisson(rate).to_event(1))


def test_tied_poisson_rewards_by_outcome(x64):
    space, rng = SPACES["ends"], np.random.default_rng(3)
    data = transitions(space, reward=rng.poisson(2.0, N) * 1.0)
    sites = {"p": rng.dirichlet(np.ones(4), (3, 1)), "r": rng.gamma(2.0, 1.0, (3, 1, 4))}
    outcome = np.where(data.terminated, 3, data.next_state)
    expected = np.log(sites["p"][data.state, 0, outcome]).sum()
    expected += scipy.stats.poisson.logpmf(data.reward, sites["r"][data.state, 0, outcome]).sum()
    model = joint(by_outcome, space)
    before = log_density(model, (), {}, sites)[0]
    for form in (data, summarise(by_outcome, space, data)):
        assert log_density(model, (form,), {}, sites)[0] - before == pytest.approx(expected, rel=1e-10)
    with pytest.raises(ValueError, match=r"data.reward_count has shape \(3, 2\), expected \(3, 2, 4\)"):
        log_density(model, (Counts.of(data, space),), {}, sites)
    with pytest.raises(ValueError, match="the density of Poisson rewards needs the factorial"):
        log_density(model, (Counts.of(data, space, by_outcome=True),), {}, sites)


def test_statistics_by_outcome_are_pooled_for_a_law_of_pairs(x64):
    space = SPACES["ends"]
    data, sites, model = transitions(space), values(SPACES["ends"]), joint(prior, SPACES["ends"])
    expected = float(log_density(model, (data,), {}, sites)[0])
    fine = Counts.of(data, space, by_outcome=True)
    for form in (fine, Statistics.of(data, space, dist.Normal, True)):
        assert log_density(model, (form,), {}, sites)[0] == pytest.approx(expected, rel=1e-10)


def heavy(space):
    """Student rewards: no sufficient statistics."""
    with space.plates():
        probs = numpyro.sample("p", dist.Dirichlet(jnp.ones(space.n_outcomes)))
        loc = numpyro.sample("r", dist.Normal(0.0, 1.0))
    return MDPSpec(probs, dist.StudentT(3.0, loc, 0.5))


def test_a_law_without_statistics_keeps_the_rows(x64):
    space = SPACES["steps"]
    full, rng = transitions(space), np.random.default_rng(5)
    seen = rng.random(N) < 0.7
    reward = np.where(seen, full.reward, np.nan)
    data: Any = Transitions(
        *(full.state, full.action, reward, full.next_state, full.terminated), step=full.step, reward_observed=seen
    )
    sites = {"p": rng.dirichlet(np.ones(4), space.shape), "r": rng.normal(size=space.shape)}
    cell, outcome = (data.step, data.state, data.action), np.where(data.terminated, 3, data.next_state)
    expected = np.log(sites["p"][(*cell, outcome)]).sum()
    expected += scipy.stats.t.logpdf(data.reward, 3.0, sites["r"][cell], 0.5)[seen].sum()
    model = joint(heavy, space)
    before = log_density(model, (), {}, sites)[0]
    assert summarise(heavy, space, data) is data
    assert log_density(model, (data,), {}, sites)[0] - before == pytest.approx(expected, rel=1e-10)
    gradient = jax.grad(lambda r: log_density(model, (data,), {}, sites | {"r": r})[0])(sites["r"])
    assert np.isfinite(gradient).all()
    with pytest.raises(TypeError, match="data is a Counts, expected Transitions or a Log: a StudentT law needs every"):
        log_density(model, (Counts.of(data, space),), {}, sites)


def test_laws_that_index_by_the_value_take_whole_rewards(x64):
    space = SPACES["plain"]
    spec = MDPSpec(jnp.full((1, 1, 3), 1 / 3), dist.Categorical(probs=jnp.array([0.2, 0.3, 0.5])))
    model = joint(lambda space: spec, space)
    data = transitions(space, reward=np.arange(N) % 3 * 1.0)
    expected = N * np.log(1 / 3) + N / 3 * np.log([0.2, 0.3, 0.5]).sum()
    assert log_density(model, (data,), {}, {})[0] == pytest.approx(expected, rel=1e-10)
    with pytest.raises(ValueError, match=r"transitions.reward\[1\] is 0.5, expected an integer \(a CategoricalProbs"):
        log_density(model, (transitions(space, reward=np.arange(N) * 0.5),), {}, {})


def test_known_rewards_and_missing_rewards_add_nothing(x64):
    space = SPACES["plain"]
    data, sites = transitions(space), values(space)
    program = known_rewards(np.zeros((3, 2)))
    trace = numpyro.handlers.trace(numpyro.handlers.substitute(joint(program, space), {"transition": sites["p"]}))
    assert "observed_reward" not in trace.get_trace(data)
    without = Transitions(data.state, data.action, None, data.next_state)
    expected = prior_density(space, sites) + np.log(sites["p"][data.state, data.action, data.next_state]).sum()
    assert log_density(joint(prior, space), (without,), {}, sites)[0] == pytest.approx(expected, rel=1e-10)
    assert log_density(joint(heavy, space), (without,), {}, {"p": sites["p"], "r": sites["r"][..., 0]})[0] < 0


def test_new_data_do_not_recompile():
    space, traces = SPACES["plain"], []

    @jax.jit
    def density(data, sites):
        traces.append(1)
        return log_density(joint(prior, space), (data,), {}, sites)[0]

    sites = values(space)
    first, second = (density(summarise(prior, space, transitions(space, seed=i)), sites) for i in (0, 1))
    assert len(traces) == 1 and first != second


def test_bad_programs_and_bad_data_get_one_sentence():
    space, data = SPACES["plain"], transitions(SPACES["plain"])
    nothing: Any = {}
    pair: Any = lambda space: (1, 2)  # noqa: E731
    factory: Any = lambda space: dirichlet_normal()  # noqa: E731
    with pytest.raises(TypeError, match="the prior returned a tuple, expected a MDPSpec"):
        joint(pair, space)(data)
    with pytest.raises(TypeError, match="the prior returned a function, expected a MDPSpec"):
        summarise(factory, space, data)
    with pytest.raises(TypeError, match="data is a dict, expected Transitions, a Log, Counts or Statistics"):
        summarise(prior, space, nothing)
    with pytest.raises(ValueError, match=r"transitions.action\[\d+\] is \d, expected a legal action of state \d"):
        summarise(prior, SPACES["legal"], data)
    with pytest.raises(
        ValueError, match=r"transitions.reward\[0\] is .*, expected 0, 1, 2, ... \(the reward law is Poi"
    ):
        summarise(dirichlet_poisson(), space, data)


def test_predictive_draws_have_the_frequencies_of_the_row(key):
    """Frequencies of 4 outcomes over 20,000 draws, and a mean reward, within 5.5 standard errors (false alarms < 1e-6).

    It must catch an outcome read from a neighbouring row (frequencies differ by more than .05 somewhere).
    """
    space, rng = SPACES["ends"], np.random.default_rng(7)
    sites = {"p": rng.dirichlet(np.ones(4), (3, 1)), "r": rng.gamma(2.0, 1.0, (3, 1, 4))}
    fixed = numpyro.handlers.substitute(predictive(by_outcome, space), {k: jnp.asarray(v) for k, v in sites.items()})
    n = 20_000
    state, action = np.repeat([2, 1], n), np.zeros(2 * n, int)
    draws = jax.jit(lambda key: Predictive(fixed, num_samples=1)(key, state, action))(key)
    outcome, reward = (np.asarray(draws[f"observed_{name}"][0])[:n] for name in ("next_state", "reward"))
    probs = sites["p"][2, 0]
    assert (abs(np.bincount(outcome, minlength=4) / n - probs) < 5.5 * np.sqrt(probs * (1 - probs) / n)).all()
    common = int(probs.argmax())
    rate, seen = sites["r"][2, 0, common], outcome == common
    assert abs(reward[seen].mean() - rate) < 5.5 * np.sqrt(rate / seen.sum())
