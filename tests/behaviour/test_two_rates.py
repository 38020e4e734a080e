"""Q-learning with two learning rates: the likelihood by a loop in numpy, and its parameters from choices."""

from functools import cache

import jax
import numpy as np
import pytest
from scipy import stats

import bayes_mdp as bm
from bayes_mdp.agents import BoltzmannQ
from bayes_mdp.behaviour import ChoiceLog, LearnerChoices, Parameter, fit, log_likelihood, simulate
from bayes_mdp.behaviour.models_by_name import MODELS
from bayes_mdp.mdp import Problem
from tests.behaviour.bandits import environment

AIM = bm.Discounted(0.5)
NAMES = ("learning_rate_up", "learning_rate_down", "sensitivity")
SPACE = bm.StateActionSpace(1, 2)


def blank(number=1, length=3):
    """A log of one state and two actions, to make the model of a name."""
    zero = np.zeros((number, length), int)
    return ChoiceLog(zero, zero, zero + 0.0, zero, states=(0,), actions=(0, 1))


@cache
def model():
    return MODELS["q_learning_two_rates"](blank(), AIM)


def by_loop(action, reward, up, down, beta):
    """log P of every choice [..., T]: parameters broadcast, all in numpy."""
    shape = np.broadcast_shapes(np.shape(up), np.shape(down), np.shape(beta), np.shape(action)[:-1])
    q, found = np.zeros((*shape, 2)), []
    for t in range(np.shape(action)[-1]):
        scores = np.asarray(beta)[..., None] * q
        chosen = (np.arange(2) == np.asarray(action)[..., t, None]) & np.ones((*shape, 1), bool)
        found.append((scores * chosen).sum(-1) - np.logaddexp(scores[..., 0], scores[..., 1]))
        error = np.asarray(reward)[..., t] + 0.5 * q.max(-1) - (q * chosen).sum(-1)
        q = q + chosen * (np.where(error >= 0, up, down) * error)[..., None]
    return np.stack(found, -1)


def test_the_likelihood_is_that_of_a_loop(x64):
    truth = {"learning_rate_up": [0.1, 0.7, 0.4], "learning_rate_down": [0.6, 0.2, 0.4], "sensitivity": 3.0}
    log = simulate(jax.random.key(0), model(), truth, environment(), 40)
    found = np.asarray(log_likelihood(model(), truth, log))
    up, down = (np.array(truth[name]) for name in NAMES[:2])
    np.testing.assert_allclose(found, by_loop(log.action, log.reward, up, down, 3.0), rtol=0, atol=1e-12)
    # Where both rates are one, it is Q-learning.
    same = {"learning_rate": 0.4, "sensitivity": 3.0}
    of_one = np.asarray(log_likelihood(MODELS["q_learning"](blank(), AIM), same, log))
    np.testing.assert_allclose(found[2], of_one[2], rtol=0, atol=1e-12)
    assert np.abs(found[:2] - of_one[:2]).max() > 0.1


def test_one_rate_is_the_same_agent_as_before_and_a_rate_outside_is_refused():
    assert BoltzmannQ(0.2, 0.3).falling_rate is None
    with pytest.raises(ValueError, match=r"falling_rate is 1\.5"):
        BoltzmannQ(0.2, 0.3, falling_rate=1.5)


def test_parameters_are_recovered():
    """Posteriors on a grid by the loop, of choices that the package simulated: as `own_parameters.recovered`.

    Truths are drawn from the grid, so that the randomised probability integral transforms are uniform: Kolmogorov and
    Smirnov at 3e-7 for each of two rates, sees a distribution function that is off by .2 with 256 persons. With
    the rates exchanged it fails.
    """
    rng, number, grid = np.random.default_rng(5), 256, np.linspace(0.03, 0.97, 14)
    index = rng.integers(len(grid), size=(2, number))
    truth = {NAMES[0]: grid[index[0]], NAMES[1]: grid[index[1]], NAMES[2]: np.full(number, 4.0)}
    log = simulate(jax.random.key(7), model(), truth, environment(), 80)
    up, down = np.meshgrid(grid, grid, indexing="ij")
    total = by_loop(log.action[:, None, None], log.reward[:, None, None], up, down, np.full((1, 1, 1), 4.0)).sum(-1)
    weight = np.exp(total - total.max((1, 2), keepdims=True))
    weight /= weight.sum((1, 2), keepdims=True)

    def transforms(place, axis):
        share = weight.sum(axis)
        mass = share[np.arange(number), place]
        pit = share.cumsum(-1)[np.arange(number), place] - mass * rng.random(number)
        return pit, share @ grid**2 - (share @ grid) ** 2

    for place, axis in ((index[0], 2), (index[1], 1)):
        pit, variance = transforms(place, axis)
        assert stats.kstest(pit, "uniform").pvalue > 3e-7
        assert variance.mean() < 0.8 * grid.var()
    exchanged, _ = transforms(index[1], 2)
    assert stats.kstest(exchanged, "uniform").pvalue < 3e-7


@pytest.mark.slow
def test_nuts_has_the_posterior_of_the_loop():
    """Two rates of all persons, the sensitivity known: means by quadrature. `where` in a model of one's own too."""

    class Own:
        parameters = {"up": Parameter("unit"), "down": Parameter("unit")}  # noqa: RUF012

        def init(self, params):
            return jax.numpy.zeros(2)

        def policy(self, params, q, state):
            return jax.nn.log_softmax(3.0 * q)

        def update(self, params, q, transition):
            error = transition.reward + 0.5 * q.max() - q[transition.action]
            return q.at[transition.action].add(jax.numpy.where(error >= 0, params["up"], params["down"]) * error)

    ready = LearnerChoices(
        lambda p: BoltzmannQ(1.0 / 3.0, p["up"], falling_rate=p["down"]), Own.parameters, Problem(SPACE, AIM)
    )
    log = simulate(jax.random.key(1), ready, {"up": [0.5] * 8, "down": [0.2] * 8}, environment(), 80)
    nodes = np.linspace(-4.0, 4.0, 81)
    rate = np.asarray(Parameter("unit").constrain(nodes), float)
    up, down = np.meshgrid(rate, rate, indexing="ij")
    total = by_loop(log.action[:, None, None], log.reward[:, None, None], up, down, np.full((1, 1, 1), 3.0)).sum(
        (0, -1)
    )
    log_weight = total - 0.5 * nodes[:, None] ** 2 - 0.5 * nodes**2
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    for model in (ready, Own()):
        posterior = fit(jax.random.key(2), model, log, pooling="complete", sampler=bm.inference.NUTS(300, 1000, 2))
        for name, share in (("up", weight.sum(1)), ("down", weight.sum(0))):
            mean = share @ rate
            sd = np.sqrt(share @ rate**2 - mean**2)
            # At least 300 effective draws: five standard errors, false alarm 6e-7 each; sees a shift of .3 sd.
            assert float(np.min(posterior.mcmc.ess()[f"{name}_line"])) > 300
            assert abs(np.asarray(posterior.params[name], float).mean() - mean) < 5 * sd / np.sqrt(300)
