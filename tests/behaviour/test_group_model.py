import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers
from numpyro.infer import SVI, Predictive, Trace_ELBO, autoguide
from numpyro.infer.util import log_density
from numpyro.optim import Adam
from scipy.stats import halfnorm, norm

from bayes_mdp.behaviour import log_likelihood, numpyro_model
from tests.behaviour.bandits import MODEL, play

PERSONS = 6
LINE = np.linspace(-0.5, 0.8, PERSONS)
SITES = {
    "partial": {
        "rate_mean": 0.2,
        "rate_sd": 0.3,
        "rate_z": LINE,
        "beta_mean": 0.7,
        "beta_sd": 0.1,
        "beta_z": -LINE,
    },
    "none": {"rate_line": LINE, "beta_line": 1.0 - LINE},
    "complete": {"rate_line": 0.3, "beta_line": 0.8},
}


def lines(pooling, values, name):
    if pooling == "partial":
        return values[f"{name}_mean"] + values[f"{name}_sd"] * values[f"{name}_z"]
    return np.broadcast_to(values[f"{name}_line"], PERSONS)


def log_prior(pooling, values):
    if pooling != "partial":
        return sum(norm.logpdf(x).sum() for x in values.values())
    found = 0.0
    for name in ("rate", "beta"):
        found += norm.logpdf(values[f"{name}_mean"]) + halfnorm.logpdf(values[f"{name}_sd"], scale=0.2)
        found += norm.logpdf(values[f"{name}_z"]).sum()
    return found


@pytest.mark.parametrize("pooling", SITES)
def test_joint_density_is_prior_times_likelihood(pooling, x64):
    values = SITES[pooling]
    rate, beta = (lines(pooling, values, name) for name in ("rate", "beta"))
    likelihood = log_likelihood(MODEL, {"rate": norm.cdf(rate), "beta": np.exp(beta)}, play()).sum()
    found, trace = log_density(numpyro_model(MODEL, play(), pooling), (), {}, jax.tree.map(jnp.asarray, values))
    assert float(found) == pytest.approx(log_prior(pooling, values) + float(likelihood), rel=1e-10)
    np.testing.assert_allclose(trace["rate"]["value"], norm.cdf(rate if pooling != "complete" else 0.3), rtol=1e-10)


@pytest.mark.slow
def test_seed_predictive_and_svi_run_the_program():
    program = numpyro_model(MODEL, play())
    drawn = handlers.trace(handlers.seed(program, jax.random.key(0))).get_trace()
    assert drawn["choice"]["is_observed"] and drawn["beta"]["value"].shape == (PERSONS,)
    made = Predictive(program, num_samples=3)(jax.random.key(0), predict=True)
    assert made["choice"].shape == (3, PERSONS, 40) and set(np.unique(made["choice"])) == {0, 1}
    guide = autoguide.AutoNormal(program)
    result = SVI(program, guide, Adam(0.02), Trace_ELBO()).run(jax.random.key(1), 150, progress_bar=False)
    assert float(result.losses[-20:].mean()) < float(result.losses[:20].mean())


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="pooling is 'half', expected one of partial, none, complete"):
        numpyro_model(MODEL, play(), "half")  # type: ignore[arg-type]
