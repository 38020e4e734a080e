"""One hierarchy by quadrature, importance sampling and chains: the same posterior; and what is done with it later."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportReturnType=false
# pyright: reportOptionalMemberAccess=false
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.special import gammaln

import bayes_mdp as bm
from bayes_mdp.experiments import Actor, RunOptions
from bayes_mdp.inference.draws.methods import NUTS
from bayes_mdp.models import MDPSpec, NormalGamma, normal
from tests.experiments.toy import two_states
from tests.inference.hierarchies import SPACE, sticky

KEY = jax.random.key(3)


def two_numbers(space):
    stickiness = numpyro.sample("stickiness", dist.HalfNormal(5.0))
    loc = numpyro.sample("loc", dist.Normal(0.0, 2.0))
    with space.plates():
        probs = numpyro.sample("transition", dist.Dirichlet(0.5 + stickiness * jnp.eye(space.n_states)[:, None, :]))
        reward = numpyro.sample("reward", NormalGamma(loc, 1.0, 2.0, 1.0))
    return MDPSpec(probs, normal(reward))


def transitions(seed: int = 0, num: int = 60) -> bm.Transitions:
    rng = np.random.default_rng(seed)
    state, action, following = rng.integers(3, size=num), rng.integers(2, size=num), rng.integers(3, size=num)
    following = np.where(rng.random(num) < 0.5, state, following)
    return bm.Transitions(state, action, 1.0 + rng.normal(size=num), following)


@lru_cache
def by(method: str) -> bm.inference.CollapsedPosterior:
    options: Any = {"sampler": NUTS(500, 1000, 2)} if method == "collapsed" else {}
    return bm.infer(KEY, two_numbers, transitions(), space=SPACE, method=method, **options)


def moments(belief) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations of the hyperparameters."""
    weights = np.asarray(belief.weights, np.float64)
    values = np.stack([np.asarray(belief.hyperparameters[name], np.float64) for name in ("stickiness", "loc")])
    mean = values @ weights
    return mean, np.sqrt(np.maximum(values**2 @ weights - mean**2, 0.0))


POLICY, OBJECTIVE = np.array([0, 1, 0]), bm.Discounted(0.9)


def value_of(belief) -> np.ndarray:
    return np.asarray(bm.policy_value(KEY, belief, POLICY, OBJECTIVE, num_draws=4000).draws)


@pytest.mark.parametrize("method", ["importance", pytest.param("collapsed", marks=pytest.mark.slow)])
def test_the_routes_agree(method):
    """Six standard errors of what the draws are worth; the grid has none."""
    grid, other = by("quadrature"), by(method)
    assert grid.method == "quadrature" and other.method == method
    mean, sd = moments(grid)
    if method == "importance":
        worth = float(other.integration.effective)
    else:
        worth = min(float(np.min(x)) for x in other.mcmc.ess().values())
    assert worth > 100
    found, spread = moments(other)
    assert (np.abs(found - mean) < 6.0 * sd / np.sqrt(worth)).all()
    np.testing.assert_allclose(spread, sd, rtol=6.0 * 1.5 / np.sqrt(worth))
    exact, estimate = bm.evidence(grid), bm.evidence(other, KEY)
    assert abs(estimate.log_evidence - exact.log_evidence) < 6.0 * estimate.standard_error < 0.6
    for table in ("transition_probs", "reward"):
        right, seen = (np.asarray(getattr(belief.mean_mdp(), table)) for belief in (grid, other))
        # A conditional mean varies by less than a unit of reward, or a fifth of probability, over the hyperparameters.
        assert np.abs(right - seen).max() < 6.0 * (0.2 if table == "transition_probs" else 0.5) / np.sqrt(worth)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["importance", "collapsed"])
def test_values_of_policies_agree(method):
    """Kolmogorov-Smirnov at 1e-7 of 4,000 values, and their means within six standard errors."""
    right, seen = value_of(by("quadrature")), value_of(by(method))
    assert stats.ks_2samp(right, seen).pvalue > 1e-7
    assert abs(right.mean() - seen.mean()) < 6.0 * np.hypot(right.std(), seen.std()) / np.sqrt(300)


@pytest.mark.parametrize("method", ["quadrature", pytest.param("importance", marks=pytest.mark.slow)])
def test_updates_in_blocks_are_all_data_at_once(method):
    blocks = [jax.tree.map(lambda x, i=i: x[i : i + 20], transitions()) for i in (0, 20, 40)]
    belief = bm.infer(KEY, two_numbers, blocks[0], space=SPACE, method=method)
    for block in blocks[1:]:
        belief = belief.update(block)
    assert belief.method == method
    once, (mean, sd) = by(method), moments(by("quadrature"))
    worth = np.inf if method == "quadrature" else min(float(x.integration.effective) for x in (belief, once))
    found, again = bm.evidence(belief), bm.evidence(once)
    allowed = 1e-6 if method == "quadrature" else 6.0 * np.hypot(found.standard_error, again.standard_error)
    assert abs(found.log_evidence - again.log_evidence) <= allowed
    assert (np.abs(moments(belief)[0] - mean) <= 1e-5 + 6.0 * 1.5 * sd / np.sqrt(worth)).all()


def test_a_prior_that_learns_a_log_is_the_posterior_of_the_log():
    """Also where it was made without data, by draws: their weights alone have an error of 1 in 100 here."""
    belief = bm.infer(KEY, two_numbers, space=SPACE).update(transitions())
    assert abs(bm.evidence(belief).log_evidence - bm.evidence(by("quadrature")).log_evidence) < 1e-6
    np.testing.assert_allclose(belief.mean_mdp().reward, by("quadrature").mean_mdp().reward, rtol=1e-5)


@pytest.mark.parametrize("method", ["quadrature", "importance"])
def test_a_file_keeps_the_integral(tmp_path, method):
    belief, path = by(method), tmp_path / "belief"
    bm.save(belief, path)
    loaded = bm.load(path)
    assert loaded.method == method
    for name in ("log_evidence", "error", "effective", "pareto_k"):
        np.testing.assert_array_equal(getattr(loaded.integration, name), getattr(belief.integration, name))
    assert bm.evidence(loaded).log_evidence == bm.evidence(belief).log_evidence
    np.testing.assert_array_equal(moments(loaded), moments(belief))


def test_thinned_draws_are_those_of_the_continuous_posterior():
    """Of one number, by its distribution function on a dense grid: 2 exp(-2 2.7^2) < 1e-6 for independent draws."""
    data = transitions()
    belief = bm.infer(KEY, sticky, data, space=SPACE)
    assert belief.method == "quadrature"
    draws = np.asarray(belief.thinned(jax.random.key(5), 1000).hyperparameters["stickiness"], np.float64)
    assert len(np.unique(draws)) == 1000
    counts = np.zeros((3, 2, 3))
    np.add.at(counts, (data.state, data.action, data.next_state), 1)
    x = np.linspace(1e-6, 40.0, 20_001)
    a = 0.5 + x[:, None, None, None] * np.eye(3)[:, None]
    a = np.broadcast_to(a, (len(x), 3, 2, 3))
    logs = (gammaln(a + counts) - gammaln(a)).sum((1, 2, 3)) + stats.halfnorm(scale=5.0).logpdf(x)
    logs = logs + (gammaln(a.sum(-1)) - gammaln(a.sum(-1) + counts.sum(-1))).sum((1, 2))
    cdf = np.cumsum(np.exp(logs - logs.max()))
    seen = np.interp(np.sort(draws), x, cdf / cdf[-1])
    assert np.abs(seen - (np.arange(1000) + 0.5) / 1000).max() * np.sqrt(1000) < 2.7


@pytest.mark.parametrize("method", ["quadrature", pytest.param("importance", marks=pytest.mark.slow)])
def test_a_refit_on_the_host_is_the_same_when_repeated(method):
    belief = by(method).thinned(jax.random.key(1), 32)
    one, again, other = (belief.refit(jax.random.key(seed)) for seed in (2, 2, 3))
    for name, x in one.hyperparameters.items():
        np.testing.assert_array_equal(x, again.hyperparameters[name])
        assert len(np.unique(x)) == 32 and np.any(x != other.hyperparameters[name])


@pytest.mark.slow
def test_psrl_with_refits_is_the_same_when_repeated():
    """Refits on the host inside `run`, and `Actor`: the same key, the same rewards and actions."""
    belief = replace(bm.infer(KEY, two_numbers, space=SPACE).thinned(jax.random.key(1), 16), share=0.95)
    assert belief.refits_on_host and belief.method == "quadrature"
    options = RunOptions(progress=False, num_checkpoints=4, refit_every=1)

    def played():
        length = {"num_steps": 40, "num_seeds": 2, "options": options}
        return bm.run(bm.agents.PSRL(5), two_states(), prior=belief, objective=OBJECTIVE, key=KEY, **length)

    one, again = played(), played()
    assert one["refits"].values.sum() > 0
    for name in ("reward", "refits"):
        np.testing.assert_array_equal(one[name], again[name])

    def acted():
        actor, taken = Actor(bm.agents.PSRL(5), SPACE, objective=OBJECTIVE, key=KEY, prior=belief), []
        actor.reset(0)
        for _ in range(40):
            taken.append(int(actor.act(0)))
            actor.observe(0, 0, 0.0, 2, False, False)
            actor.observe(2, 0, 0.3, 0, False, False)
        return taken, actor.refits.cost["calls"]

    assert acted() == acted() and acted()[1] > 0
