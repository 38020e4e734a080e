"""`to_arviz` with defaults has an answer for every legal posterior, and says what it leaves out."""

# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false, reportIndexIssue=false
# pyright: reportAttributeAccessIssue=false, reportReturnType=false

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from bayes_mdp import load, save
from bayes_mdp.calibration import to_arviz
from bayes_mdp.calibration.arviz.diagnostics import load_draws, save_draws
from bayes_mdp.inference import SVI, infer
from bayes_mdp.inference.draws.methods import NUTS
from bayes_mdp.inference.sampled.recipe import recipe_for
from bayes_mdp.inference.sampled.sampled_posterior import from_draws
from bayes_mdp.mdp import StateActionSpace, Transitions
from bayes_mdp.models import MDPSpec
from bayes_mdp.utils import memory
from tests.calibration.arviz.routes import hierarchy, route
from tests.calibration.beliefs import collapsed, sampled

SPACE = StateActionSpace(2, 2)
RNG = np.random.default_rng(0)
NUMBER = 40


def _gamma() -> Any:
    return numpyro.sample("x", dist.Gamma(2.0, 1.0))


def _beta() -> Any:
    return numpyro.sample("x", dist.Beta(1.0, 1.0))


def _normal() -> Any:
    return numpyro.sample("x", dist.Normal(0.0, 1.0))


def _flat() -> Any:
    return numpyro.sample("x", dist.ImproperUniform(dist.constraints.real, (), ()))


COUNTS, POSITIVE, REAL = RNG.poisson(2.0, NUMBER) * 1.0, RNG.gamma(2.0, size=NUMBER), RNG.normal(size=NUMBER)
LAWS = {
    "exponential": (lambda: dist.Exponential(_gamma()), POSITIVE),
    "geometric": (lambda: dist.GeometricProbs(_beta()), COUNTS),
    "binomial": (lambda: dist.BinomialProbs(_beta(), 20), COUNTS),
    "log-normal": (lambda: dist.LogNormal(_normal(), 0.5), POSITIVE),
    "categorical": (lambda: dist.CategoricalProbs(numpyro.sample("x", dist.Dirichlet(jnp.ones(12)))), COUNTS),
    "precision": (lambda: dist.Normal(1.0, _gamma() ** -0.5), REAL),
    "affine": (lambda: dist.Normal(1.0 - 2.0 * _normal(), 1.0), REAL),
    "known law": (lambda: dist.Normal(jnp.zeros((2, 2)), 1.0), REAL),
    "cauchy": (lambda: dist.Cauchy(_normal(), 1.0), REAL),
    "laplace": (lambda: dist.Laplace(_normal(), 1.0), REAL),
    "uniform": (lambda: dist.Uniform(-9.0, 9.0 + _gamma()), REAL),
    "improper": (lambda: dist.StudentT(4.0, _flat(), 1.0), REAL),
}
NEEDS_DATA = {"log-normal", "categorical", "known law"}
SAMPLED = {"cauchy", "laplace", "uniform", "improper"}


def _program(law: Any) -> Any:
    def program(space: StateActionSpace) -> MDPSpec:
        with space.plates():
            rows = numpyro.sample("p", dist.Dirichlet(jnp.ones(2)))
            return MDPSpec(rows, reward=law())

    return program


def _left_out(tree: Any) -> dict[str, str]:
    lines = np.atleast_1d(tree["posterior"].attrs.get("left_out", []))
    return dict(str(line).split(": ", 1) for line in lines)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bayes_mdp.inference.draws.chains.SamplingWarning")
@pytest.mark.parametrize("name", LAWS)
def test_every_reward_law(name):
    law, reward = LAWS[name]
    state, action, next_state = (RNG.integers(0, 2, NUMBER) for _ in range(3))
    data = Transitions(state, action, reward, next_state, reward_observed=np.arange(NUMBER) % 7 != 3)
    method: Any = SVI(num_steps=50, num_samples=40) if name in SAMPLED else "exact"
    posterior = infer(jax.random.key(0), _program(law), data, space=SPACE, method=method)
    without, with_data = to_arviz(posterior, num_draws=40), to_arviz(posterior, num_draws=40, data=data)
    assert ("log_likelihood" in _left_out(without)) == (name in NEEDS_DATA)
    assert "log_likelihood" not in _left_out(with_data)
    assert ("prior" in _left_out(without)) == (name == "improper")
    if name == "improper":
        assert "ImproperUniform at 'x'" in _left_out(without)["prior"]
    assert ("x" in with_data["posterior"].data_vars) == (name != "known law")
    assert ("reward_mean" in with_data["posterior"].data_vars) == (name not in ("known law", "precision", "cauchy"))
    likelihood = np.asarray(with_data["log_likelihood"]["observed_transition"])
    assert np.isfinite(likelihood).all() and likelihood.shape[-1] == NUMBER


def _awkward(space: StateActionSpace) -> MDPSpec:
    """Names of ArviZ's and of the space, and a plate with the name of a dimension."""
    with space.plates():
        rows = numpyro.sample("transition_probs", dist.Dirichlet(jnp.ones(2)))
        mean = numpyro.sample("scope/mean", dist.Normal(0.0, 1.0))
    numpyro.deterministic("chain", mean.sum())
    numpyro.deterministic("next_state", mean.max())
    numpyro.deterministic("sample", 1.0)
    with numpyro.plate("draw", 3):
        numpyro.deterministic("three", jnp.arange(3.0))
    return MDPSpec(rows, reward=dist.StudentT(5.0, mean, 1.0))


def test_awkward_names_are_exported_and_read_back(arviz, tmp_path):
    recipe = recipe_for(_awkward, SPACE, NUTS(0, 10, 2))
    empty = np.zeros(0, int)
    seen = recipe.summarise(Transitions(empty, empty, np.zeros(0), empty))
    drawn = jax.jit(recipe.draw_prior)(jax.random.key(0))
    posterior = jax.tree.map(np.asarray, jax.jit(lambda d, s: from_draws(recipe, d, s))(drawn, seen))
    tree = to_arviz(posterior, num_draws=20)
    names = {"transition_probs_site", "scope.mean", "chain_site", "next_state_site", "sample_site", "three"}
    assert names <= set(tree["posterior"].data_vars)
    assert tree["posterior"]["three"].dims == ("chain", "draw", "three_dim_0")
    assert _left_out(tree)["observed_data"] == "no transition has been observed"
    save_draws(tree, tmp_path / "draws.nc")
    back = load_draws(tmp_path / "draws.nc")
    np.testing.assert_array_equal(back["posterior"]["scope.mean"], tree["posterior"]["scope.mean"])
    assert len(arviz.summary(tree, var_names=["scope.mean", "chain_site"])) == 5


def _bent(space: StateActionSpace) -> MDPSpec:
    spec = hierarchy(space)
    numpyro.factor("bend", -jnp.sum(jnp.asarray(spec.transition_probs) ** 2))
    return spec


def test_a_program_that_a_factor_bends_has_no_prior_draws():
    posterior = route("sampled").posterior
    recipe = recipe_for(_bent, posterior.space, posterior.recipe.method)
    tree = to_arviz(replace(posterior, recipe=recipe), num_draws=20)
    why = "the program has a factor, an observation, a scale or a mask: running it does not draw from the prior"
    assert _left_out(tree) == {"prior": why, "prior_predictive": why}


def test_loaded_posteriors_have_sites_and_no_deterministics(tmp_path):
    posterior = route("exact").posterior
    save(posterior, tmp_path / "posterior")
    tree = to_arviz(load(tmp_path / "posterior"), num_draws=20)
    assert {"p", "m"} <= set(tree["posterior"].data_vars) and "odds" not in tree["posterior"].data_vars
    assert tree["posterior"]["m"].dims[2:] == ("m_dim_0", "m_dim_1")
    assert set(_left_out(tree)) == {"deterministics", "sample_stats"}
    assert set(tree["log_prior"].data_vars) == {"transition_probs", "rewards"}


@pytest.mark.some(3)
@pytest.mark.parametrize("number", [1, 2, 3, 7, 10, 18])
def test_any_number_of_draws(number):
    """Four chains, three or two where the number divides into them, of four draws at least; otherwise one."""
    tree = to_arviz(route("exact").posterior, num_draws=number, log_likelihood="none")
    sizes = dict(tree["posterior"].sizes)
    assert sizes["chain"] * sizes["draw"] == number
    assert sizes["chain"] == {10: 2, 18: 3}.get(number, 1)
    assert {"m", "odds", "reward_mean"} <= set(tree["posterior"].data_vars)


def test_fewer_draws_than_chains():
    tree = to_arviz(route("sampled").posterior, num_draws=2)
    assert dict(tree["posterior"].sizes)["chain"] == 4 and dict(tree["posterior"].sizes)["draw"] == 1


def test_float32_and_posteriors_without_a_program():
    assert {"p", "odds"} <= set(to_arviz(_narrow(route("exact").posterior), num_draws=8)["posterior"].data_vars)
    for posterior in (collapsed(), replace(sampled(), recipe=replace(sampled().recipe, prior=None))):
        assert "deterministics" in _left_out(to_arviz(posterior, num_draws=8))


def _narrow(posterior: Any) -> Any:
    return jax.tree.map(jnp.asarray, posterior)


def test_groups_that_would_not_fit_in_memory_are_left_out(monkeypatch):
    """The draws fit, the predictive groups beside them do not; a log-likelihood that is asked for is not dropped."""
    posterior = route("exact").posterior
    # Half of what is free may be taken; all groups take 760,000 bytes by the estimate, the posterior alone 370,000.
    monkeypatch.setattr(memory, "NEGLIGIBLE", 0)
    monkeypatch.setattr(memory, "free_bytes", lambda: 2 * 700_000)
    tree = to_arviz(posterior, num_draws=400)
    assert "400 draws of it would not fit in memory" in _left_out(tree)["prior_predictive"]
    assert "posterior" not in _left_out(tree)
    monkeypatch.setattr(memory, "free_bytes", lambda: 2 * 100_000)
    with pytest.raises(ValueError, match=r"num_draws is 400, about .* of memory, expected at most"):
        to_arviz(posterior, num_draws=400)
