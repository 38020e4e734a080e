"""The collapsed route on the hierarchical ready priors, against marginals and quadrature written without it.

`collapsed_oracles` knows numpy and scipy alone. The densities, the weights and the components are checked exactly, the
draws statistically, and so are draws of NumPyro's own NUTS from the whole program, leaves included.
"""

import warnings
from functools import lru_cache
from typing import Any

import jax
import numpy as np
import pytest
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS, DiscreteHMCGibbs
from scipy import integrate, stats

from bayes_mdp.inference import infer
from bayes_mdp.inference.collapsed.hierarchy import find_hierarchy
from bayes_mdp.inference.conjugate.conjugate_posterior import refit
from bayes_mdp.inference.detection.trace import trace_program
from bayes_mdp.inference.draws.chains import SamplingWarning
from bayes_mdp.models import joint
from bayes_mdp.models.joint import summarise
from tests.inference.collapsed_marginals import DATA, REWARDS, SEEN, SPACE, normal_rewards, normal_rewards_by_moments
from tests.inference.collapsed_oracles import CASES, Moments, draw, one_dimension, sticky_rows
from tests.inference.hyper_forms import log_collapsed

MAX_Z = 7.0
KEYS = 8


@lru_cache
def moments(name):
    return CASES[name].moments()


def test_the_oracles_agree_with_themselves():
    """Two forms of one marginal; the trapezoidal rule and adaptive quadrature."""
    for rewards in REWARDS.values():
        expected = normal_rewards(rewards, 0.3, 0.7, 1.2)
        assert normal_rewards_by_moments(rewards, 0.3, 0.7, 1.2) == pytest.approx(expected, rel=1e-10)
    case, largest = CASES["sticky"], CASES["sticky"].log_marginal({"stickiness": 1.5}, SEEN)

    def density(stickiness):
        values = {"stickiness": stickiness}
        return np.exp(case.log_prior(values) + case.log_marginal(values, SEEN) - largest)

    total = integrate.quad(density, 0.0, 60.0, limit=200)[0]
    assert moments("sticky").log_evidence == pytest.approx(np.log(total) + largest, rel=1e-10)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "name",
    [
        "shared_rewards",
        "clustered_states",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("unknown_concentration", "sticky", "feature_dynamics")),
    ],
)
def test_the_collapsed_density_is_the_one_written_out(name, x64):
    """log p(parents, data) at random parents, none of which the hierarchy was found at."""
    rng = np.random.default_rng(0)
    hierarchy, _ = find_hierarchy(trace_program(CASES[name].prior, SPACE), rng)
    assert set(hierarchy.hyperparameters) == set(CASES[name].shapes)
    seen = refit(jax.tree.map(np.array, hierarchy.prior), DATA)
    density = jax.jit(lambda values, seen: log_collapsed(hierarchy, values, seen))
    for _ in range(3):
        values = draw(name, rng)
        expected = CASES[name].log_prior(values) + CASES[name].log_marginal(values, SEEN)
        assert float(density(values, seen)) == pytest.approx(expected, rel=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_weights_and_components_of_prior_draws_are_exact(name, x64):
    """Draws from the prior, moved by data in two blocks: each weight is the marginal likelihood, each mean its own."""
    posterior: Any = infer(jax.random.key(3), CASES[name].prior, space=SPACE, method="collapsed")
    for part in (slice(60), slice(60, None)):
        posterior = posterior.update(jax.tree.map(lambda x, part=part: x[part], DATA))
    chosen = np.argsort(np.asarray(posterior.log_weights))[-20:]
    draws = [{site: np.asarray(x)[n] for site, x in posterior.hyperparameters.items()} for n in chosen]
    expected = np.array([CASES[name].log_marginal(values, SEEN) for values in draws])
    found = np.asarray(posterior.log_weights)[chosen]
    np.testing.assert_allclose(found - found[-1], expected - expected[-1], atol=1e-8)
    for n, values in zip(chosen[-3:], draws[-3:], strict=True):
        mdp, (rows, reward) = posterior.component(int(n)).mean_mdp(), CASES[name].means(values)
        np.testing.assert_allclose(mdp.transition_probs, rows, rtol=1e-9)
        np.testing.assert_allclose(mdp.reward, reward, rtol=1e-9)


def each(chains, function):
    """`function` of every draw of {site: [C N ...]}: {name: [C N]}."""
    num_chains, num_draws = next(iter(chains.values())).shape[:2]
    found = [
        [function({site: x[c, n] for site, x in chains.items()}) for n in range(num_draws)] for c in range(num_chains)
    ]
    return {name: np.array([[one[name] for one in chain] for chain in found]) for name in found[0][0]}


def numbered(rows, reward):
    """Rows and rewards as named numbers."""
    named = {f"row_{i}": x for i, x in enumerate(np.ravel(rows))}
    return named | {f"reward_{i}": x for i, x in enumerate(np.ravel(reward))}


def worst_z(draws: dict[str, np.ndarray], exact: Moments) -> tuple[float, str]:
    """The largest |error of a mean| in Monte Carlo standard errors; numbers that do not vary must be right."""
    expected = exact.mean | numbered(exact.rows, exact.reward)
    worst = (0.0, "")
    for name, x in draws.items():
        deviation = np.sqrt(exact.variance.get(name, x.var()))
        if np.ptp(x) < 1e-9:
            assert x.ravel()[0] == pytest.approx(expected[name], abs=1e-8)
            continue
        error = abs(x.mean() - expected[name]) / (deviation / np.sqrt(effective_sample_size(x)))
        worst = max(worst, (float(error), name))
    return worst


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_collapsed_posterior_is_that_of_quadrature(name, x64):
    """Means of the hyper-parameters, of all rows and rewards; labels of clusters do not enter.

    Key 0 folded with 0 to 7, 32 chains of 500 draws. False alarms: 150 numbers beyond 7 standard errors, under 1e-9 in
    all (1e-7 were effective sample sizes 20 % too large). Smallest fault: with an effective size of 5,000, a mean that
    is off by a tenth of a standard deviation.
    """
    case, runs, means = CASES[name], [], []
    for i in range(KEYS):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SamplingWarning)  # of exchangeable labels
            key = jax.random.fold_in(jax.random.key(0), i)
            posterior: Any = infer(key, case.prior, DATA, space=SPACE, method="collapsed")
        runs.append({site: np.reshape(x, (4, -1, *x.shape[1:])) for site, x in posterior.hyperparameters.items()})
        means.append(posterior.mean_mdp())
    chains = {site: np.concatenate([run[site] for run in runs]) for site in runs[0]}
    draws = each(chains, lambda v: case.functionals(v) | numbered(*case.means(v)))
    average = np.mean([m.transition_probs for m in means], 0), np.mean([m.reward for m in means], 0)
    for label, value in numbered(*average).items():
        assert value == pytest.approx(draws[label].mean(), rel=1e-8)
    z, worst = worst_z(draws, moments(name))
    assert z < MAX_Z, worst
    if name == "sticky":
        assert worst_z(draws, _broken_sticky())[0] > MAX_Z


def _broken_sticky():
    """The posterior under HalfNormal(2) in place of HalfNormal(5)."""
    return one_dimension("stickiness", stats.halfnorm(scale=2), sticky_rows)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_nuts_on_the_whole_program_is_that_of_quadrature_too(name, x64):
    """NumPyro's own NUTS (Gibbs around it for the clusters) on `joint`: neither the collapsing nor the oracle in it.

    Key 1, 4 chains of 1500 draws. False alarms: as above. Smallest fault: with an effective size of 500, a mean that is
    off by a third of a standard deviation.
    """
    case, model = CASES[name], joint(CASES[name].prior, SPACE)
    kernel = NUTS(model, target_accept_prob=0.95)
    chain_method: Any = "vectorized"
    if "cluster" in case.shapes:
        kernel, chain_method = DiscreteHMCGibbs(kernel, modified=True), jax.vmap
    mcmc = MCMC(kernel, num_warmup=500, num_samples=1500, num_chains=4, chain_method=chain_method, progress_bar=False)
    mcmc.run(jax.random.key(1), summarise(case.prior, SPACE, DATA))
    chains = {site: np.asarray(x) for site, x in mcmc.get_samples(group_by_chain=True).items()}

    def numbers(v):
        reward = v["reward"] if v["reward"].ndim == 2 else v["reward"][..., 0]
        return case.functionals(v) | numbered(v["transition"], reward)

    z, worst = worst_z(each(chains, numbers), moments(name))
    assert z < MAX_Z, worst
