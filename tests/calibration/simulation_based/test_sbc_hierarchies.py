"""Ranks of hyperparameters inferred by quadrature and by importance sampling; what is done wrong is seen.

A prior of one number or of three; the twins forget weights, a Jacobian, one mode of two.
"""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayes_mdp as bm
from bayes_mdp.inference.collapsed import collapsed_posterior
from bayes_mdp.inference.collapsed import integrate as integration
from bayes_mdp.inference.collapsed.integrate import Integrated, integrate
from bayes_mdp.models import MDPSpec, NormalGamma, normal

SPACE = bm.StateActionSpace(2, 2)
KEY = jax.random.key(11)


def sticky(space):
    stickiness = numpyro.sample("stickiness", dist.Gamma(2.0, 0.4))
    with space.plates():
        probs = numpyro.sample("transition", dist.Dirichlet(0.5 + stickiness * jnp.eye(space.n_states)[:, None, :]))
        reward = numpyro.sample("reward", NormalGamma(0.0, 1.0, 2.0, 1.0))
    return MDPSpec(probs, normal(reward))


def bimodal(space):
    """Rewards show the square of a number, not its sign."""
    root = numpyro.sample("root", dist.Normal(0.0, 2.0))
    with space.plates():
        probs = numpyro.sample("transition", dist.Dirichlet(jnp.ones(space.n_states)))
        reward = numpyro.sample("reward", NormalGamma(root**2, 4.0, 2.0, 1.0))
    return MDPSpec(probs, normal(reward))


def shared_rewards(space):
    loc = numpyro.sample("loc", dist.Normal(0.0, 2.0))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    noise = numpyro.sample("noise", dist.LogNormal(0.0, 0.5))
    with space.plates():
        probs = numpyro.sample("transition", dist.Dirichlet(jnp.ones(space.n_states)))
        mean = numpyro.sample("mean", dist.Normal(loc, scale))
    return MDPSpec(probs, dist.Normal(mean, noise))


PRIORS = {"quadrature": (sticky, ("stickiness",)), "importance": (shared_rewards, ("loc", "scale", "noise"))}


def ranks(prior, names: tuple[str, ...], method: str, num: int = 300):
    quantities = {name: lambda drawn, name=name: drawn.sites[name] for name in names}
    quantities["first row"] = lambda drawn: drawn.mdp.transition_probs[0, 0, 0]
    quantities["first reward"] = lambda drawn: drawn.mdp.reward[0, 0]
    return bm.calibration.sbc(
        KEY,
        prior,
        SPACE,
        num_simulations=num,
        options=bm.calibration.SbcOptions(num_draws=63, num_transitions=20, method=method, quantities=quantities),
    )


@pytest.mark.slow
@pytest.mark.parametrize("method", PRIORS)
def test_the_ranks_are_uniform(method):
    """1,000 simulations, at a false alarm of 1e-6, all quantities together; the interval of 52 ranks of 64 covers."""
    result = ranks(*PRIORS[method], method, num=1000)
    assert result.passed, str(result)
    for name in result.judged:
        rank = result.dataset["rank"].sel(quantity=name).values
        covered = ((rank >= 6) & (rank < 58)).mean()
        assert abs(covered - 52 / 64) < 5.0 * np.sqrt(52 / 64 * 12 / 64 / 1000), (name, covered)


def weights_forgotten(*arguments, draws: int, **options) -> Integrated:
    """The nodes, or draws, of an integral at random, whatever their weight."""
    whole = integrate(*arguments, **options)
    chosen = np.random.default_rng(0).integers(len(whole.log_weights), size=draws)
    values = {name: x[chosen] for name, x in whole.hyperparameters.items()}
    parameters = tuple(x[chosen] for x in whole.parameters)
    return Integrated(values, parameters, np.full(draws, -np.log(draws)), whole.integration)


def no_jacobian(self, points, held):
    without = self.marginal.prior.place(points, held).without_jacobian
    return without + self.log_evidence(self.marginal.place(points, held).parameters)


def one_mode(self, points, held):
    placed = self.marginal.place(points, held)
    return np.where(points[:, 0] > 0.0, placed.log_prior + self.log_evidence(placed.parameters), -np.inf)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["weights", "jacobian", "one mode"])
def test_a_broken_integral_is_seen(fault, monkeypatch):
    if fault == "weights":
        monkeypatch.setattr(collapsed_posterior, "integrate", weights_forgotten)
    else:
        monkeypatch.setattr(integration.Given, "log_density", no_jacobian if fault == "jacobian" else one_mode)
    prior, names = (bimodal, ("root",)) if fault == "one mode" else PRIORS["quadrature"]
    result = ranks(prior, names, "quadrature")
    assert names[0] in result.failures, str(result)


@pytest.mark.slow
def test_both_modes_are_drawn():
    assert ranks(bimodal, ("root",), "quadrature").passed
