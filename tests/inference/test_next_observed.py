# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportIndexIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalMemberAccess=false, reportIncompatibleMethodOverride=false
"""Transitions of which it was not observed what followed: rows learn nothing from them, rewards of pairs do.

The oracle is the same data in two parts that every route has known for long: transitions without rewards where both are
complete, and rewards as moments of `Counts`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayes_mdp as bm
from bayes_mdp.inference.mixtures import log_predictive_outcome

SPACE = bm.StateActionSpace(3, 2, ends=True)
KEY = jax.random.key(0)


def log(seed=0, number=60, binary=False):
    """A random log, a third of whose transitions lead to what was not observed."""
    rng = np.random.default_rng(seed)
    led, ended = rng.random(number) < 0.67, rng.random(number) < 0.1
    reward = rng.integers(0, 2, number).astype(float) if binary else rng.normal(size=number)
    return bm.Transitions(
        rng.integers(0, 3, number),
        rng.integers(0, 2, number),
        reward,
        np.where(led, rng.integers(0, 3, number), 2**20),  # not looked at
        terminated=ended & led,
        next_observed=led,
        reward_observed=rng.random(number) < 0.8,
    )


def counts(data, by_outcome=False):
    """Statistics by one loop."""
    n, rewards = np.zeros((3, 2, 4)), {}
    for i in range(len(data.state)):
        pair = int(data.state[i]), int(data.action[i])
        outcome = 3 if data.terminated[i] else int(data.next_state[i])
        if data.next_observed[i]:
            n[(*pair, outcome)] += 1
        if data.reward_observed[i] and (data.next_observed[i] or not by_outcome):
            rewards.setdefault((*pair, outcome) if by_outcome else pair, []).append(float(data.reward[i]))
    moments = np.zeros((3, *(n.shape if by_outcome else n.shape[:-1])))
    for cell, values in rewards.items():
        moments[(slice(None), *cell)] = len(values), np.mean(values), len(values) * np.var(values)
    return bm.Counts(n, *moments)


def mixture(space):
    """A discrete site above rows."""
    scale = numpyro.sample("scale", dist.Categorical(jnp.array([0.5, 0.5])))
    with space.plates():
        probs = numpyro.sample("rows", dist.Dirichlet(jnp.array([0.5, 2.0])[scale] * jnp.ones(space.n_outcomes)))
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    return bm.models.MDPSpec(probs, reward=dist.Normal(mean, 1.0))


def hierarchy(space):
    """A continuous hyperparameter above rows."""
    scale = numpyro.sample("scale", dist.Gamma(2.0, 1.0))
    with space.plates():
        probs = numpyro.sample("rows", dist.Dirichlet(scale * jnp.ones(space.n_outcomes)))
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    return bm.models.MDPSpec(probs, reward=dist.Normal(mean, 1.0))


def by_outcome(space):
    """Rewards that depend on the outcome."""
    with space.plates():
        probs = numpyro.sample("rows", dist.Dirichlet(jnp.ones(space.n_outcomes)))
        mean = numpyro.sample("mean", dist.Normal(jnp.zeros(space.n_outcomes), 1.0).to_event(1))
    return bm.models.MDPSpec(probs, reward=dist.Normal(mean, 1.0).to_event(1))


@pytest.mark.parametrize(
    "prior", [bm.models.dirichlet_normal(), mixture, hierarchy], ids=["closed", "mixture", "hierarchy"]
)
def test_posteriors_are_those_of_the_counts(prior):
    data = log()
    one = bm.infer(KEY, prior, data, space=SPACE)
    two = bm.infer(KEY, prior, counts(data), space=SPACE)
    a, b = one.mean_mdp(), two.mean_mdp()
    np.testing.assert_allclose(a.transition_probs, b.transition_probs, rtol=1e-5)
    np.testing.assert_allclose(a.reward, b.reward, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(*(bm.evidence(x).log_evidence for x in (one, two)), rtol=1e-5)


def test_known_long_form():
    """The closed form against the formula of the rows alone, and without any reward."""
    data = log()
    n = counts(data).transitions
    posterior = bm.infer(KEY, bm.models.dirichlet_normal(), data, space=SPACE)
    prior = np.asarray(bm.infer(KEY, bm.models.dirichlet_normal(), None, space=SPACE).transition_probs.concentration)
    np.testing.assert_allclose(posterior.transition_probs.concentration, prior + n)
    again = bm.infer(KEY, bm.models.dirichlet_normal(), None, space=SPACE).update(data)
    np.testing.assert_allclose(again.transition_probs.concentration, prior + n)
    np.testing.assert_allclose(again.log_evidence, posterior.log_evidence, rtol=1e-6)
    rest = data.with_next_state()
    assert rest.next_observed is None and len(rest.state) == int(np.sum(data.next_observed))


def test_a_reward_that_depends_on_the_outcome_says_nothing_without_it():
    data = log(3)
    one, two = (bm.infer(KEY, by_outcome, x, space=SPACE) for x in (data, data.with_next_state()))
    np.testing.assert_allclose(one.mean_mdp().reward, two.mean_mdp().reward, rtol=1e-6)
    np.testing.assert_allclose(one.log_evidence, two.log_evidence, rtol=1e-6)
    three = bm.infer(KEY, by_outcome, counts(data, by_outcome=True), space=SPACE)
    np.testing.assert_allclose(one.log_evidence, three.log_evidence, rtol=1e-5)


@pytest.mark.filterwarnings("ignore::bayes_mdp.inference.draws.chains.SamplingWarning")
@pytest.mark.parametrize("law", ["pair", "outcome"])
def test_draws_of_a_program_are_weighed_by_what_was_observed(law):
    """Chains of a program without closed form, updated by such rows: log weights are log likelihoods by hand."""

    def prior(space):
        with space.plates():
            logits = numpyro.sample("logits", dist.Normal(0.0, 1.0).expand([space.n_outcomes]).to_event(1))
            mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        scale = jnp.arange(1.0, 1.0 + space.n_outcomes) if law == "outcome" else 1.0
        location = mean[..., None] if law == "outcome" else mean
        reward = dist.Laplace(location, scale)
        return bm.models.MDPSpec(jax.nn.softmax(logits), reward=reward.to_event(1) if law == "outcome" else reward)

    data, later = log(1), log(2, number=8)
    method = bm.inference.NUTS(num_warmup=20, num_samples=30, num_chains=1)
    posterior = bm.infer(KEY, prior, data, space=SPACE, method=method)
    before = np.asarray(posterior.log_weights)
    after = np.asarray(posterior.update(later).log_weights)
    rows, table = np.asarray(posterior.transition_probs), posterior.rewards
    gain = np.zeros(len(before))
    for i in range(8):
        cell, led = (int(later.state[i]), int(later.action[i])), bool(later.next_observed[i])
        outcome = 3 if later.terminated[i] else int(later.next_state[i])
        if led:
            gain += np.log(rows[(slice(None), *cell, outcome)])
        if later.reward_observed[i] and (led or law == "pair"):
            where = (slice(None), *cell, outcome) if law == "outcome" else (slice(None), *cell)
            gain += np.asarray(dist.Laplace(table.law.loc[where], table.law.scale[where]).log_prob(later.reward[i]))
    np.testing.assert_allclose((after - before) - (after - before).max(), gain - gain.max(), atol=2e-4)


def test_what_ended_was_observed():
    with pytest.raises(ValueError, match=r"transitions.terminated\[1\] is True and next_observed\[1\] is False"):
        bm.Transitions([0, 1], [0, 0], None, [0, 0], terminated=[False, True], next_observed=[True, False])


def test_predictive_densities_leave_the_row_out():
    data = log(5, number=12)
    posterior = bm.infer(KEY, bm.models.dirichlet_normal(), log(), space=SPACE)
    found = np.asarray(log_predictive_outcome(posterior, data))
    mean = np.asarray(posterior.transition_probs.mean())
    for i in range(12):
        outcome = 3 if data.terminated[i] else int(data.next_state[i])
        expected = np.log(mean[int(data.state[i]), int(data.action[i]), outcome]) if data.next_observed[i] else 0.0
        np.testing.assert_allclose(found[i], expected, rtol=1e-5)
