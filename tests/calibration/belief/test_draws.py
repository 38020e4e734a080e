# pyright: reportArgumentType=false
"""Rewards of every law: sums against single rewards, fresh rewards against the mean and variance of the law.

Moments are compared with |z| < 6.5 at a fixed key: a false-alarm rate below 1e-9 for the numbers that are compared.
"""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

from bayes_mdp.calibration.belief.draws import Moments, RewardDraws, has_sums
from bayes_mdp.inference.fitted import mean_of
from bayes_mdp.models.mdp_spec import RewardTable

N, CELLS = 4000, (2,)
RNG = np.random.default_rng(0)
POSITIVE, PROBS, FOUR = (np.broadcast_to(np.array(x), (N, *CELLS)).copy() for x in ([0.7, 2.0], [0.3, 0.8], [4.0, 4.0]))
LAWS = {
    "normal": ((dist.Normal, POSITIVE, POSITIVE), RNG.normal(size=5)),
    "bernoulli": ((dist.BernoulliProbs, PROBS), np.array([0.0, 1.0, 1.0, 0.0, 1.0])),
    "poisson": ((dist.Poisson, POSITIVE), np.array([0.0, 3.0, 1.0, 2.0, 2.0])),
    "exponential": ((dist.Exponential, POSITIVE), RNG.gamma(1.0, size=5)),
    "binomial": ((dist.BinomialProbs, PROBS, FOUR), np.array([0.0, 4.0, 1.0, 2.0, 2.0])),
    "geometric": ((dist.GeometricProbs, PROBS), np.array([0.0, 3.0, 1.0, 2.0, 0.0])),
    "laplace": ((dist.Laplace, POSITIVE, POSITIVE), RNG.normal(size=5)),
    "lognormal": ((dist.LogNormal, POSITIVE, 0.3 * POSITIVE), RNG.gamma(1.0, size=5)),
}


def draws_of(family: type[dist.Distribution], *parameters: np.ndarray) -> RewardDraws:
    """Draws of a law; its arrays have a leading axis that its batch shape does not show, as under vmap."""
    with jax.enable_x64(True):
        law = jax.tree.map(np.asarray, jax.jit(jax.vmap(family))(*parameters))
    table = RewardTable(law, None, False)
    return RewardDraws(law, mean_of(table), np.zeros(parameters[0].shape[1:], bool), False)


def draws(name: str) -> RewardDraws:
    """N equal draws of a law in two cells."""
    return draws_of(*LAWS[name][0])


@pytest.mark.parametrize("name", [name for name, ((family, *_), _) in LAWS.items() if has_sums(family)])
def test_the_density_of_sums_is_that_of_the_rewards_but_for_a_constant(name):
    """The constant (the base measure) is the same for all parameters: differences between the two cells agree."""
    rewards = LAWS[name][1]
    where = (np.repeat([0, 1], rewards.size),)
    both = np.tile(rewards, 2)
    each = draws(name).log_prob(both, np.ones(both.shape, bool), where)[0].reshape(2, -1).sum(1)
    moments = [np.full(2, x) for x in (rewards.size, rewards.mean(), ((rewards - rewards.mean()) ** 2).sum())]
    sums = draws(name).log_prob_of_sums(Moments(*moments), (np.array([0, 1]),))[0]
    assert sums[0] - sums[1] == pytest.approx(each[0] - each[1], rel=1e-9)


def test_laws_without_sums_are_refused():
    with pytest.raises(ValueError, match="the rewards of a Laplace law have none, expected the transitions"):
        draws("laplace").log_prob_of_sums(Moments(np.ones(2), np.ones(2), np.zeros(2)), (np.array([0, 1]),))


@pytest.mark.parametrize("name", LAWS)
def test_sums_of_fresh_rewards_have_the_moments_of_the_law(name):
    """Three rewards in one cell, none in the other."""
    family, *parameters = LAWS[name][0]
    law = family(*(x[0, 0] for x in parameters))
    total = draws(name).total(np.random.default_rng(1), np.array([3.0, 0.0]), (...,))
    assert total.shape == (N, 2) and not total[:, 1].any()
    mean, variance = 3 * float(law.mean), 3 * float(law.variance)
    assert abs(total[:, 0].mean() - mean) < 6.5 * np.sqrt(variance / N)
    square = (total[:, 0] - mean) ** 2
    assert abs(square.mean() - variance) < 6.5 * square.std() / np.sqrt(N)


def test_missing_and_known_rewards_have_no_density():
    some = draws("normal")._replace(known=np.array([False, True]))
    where = (np.array([0, 0, 1]),)
    found = some.log_prob(np.array([0.5, np.nan, 9.0]), np.array([True, False, True]), where)
    assert found.shape == (N, 3) and (found[:, 0] != 0).all() and not found[:, 1:].any()
    total = some.total(np.random.default_rng(0), np.array([1.0, 2.0]), (...,))
    assert (total[:, 1] == 2 * some.mean[:, 1]).all()


def test_what_is_shown_is_what_differs_between_draws():
    scale = np.linspace(1.0, 2.0, 6).reshape(3, 2)
    some = draws_of(dist.Normal, np.zeros((3, 2)), scale)
    assert list(some.variables()) == ["reward_precision"]
    np.testing.assert_allclose(some.variables()["reward_precision"], scale**-2.0, rtol=1e-12)
    assert list(draws_of(dist.Laplace, scale, scale).variables()) == ["reward_mean"]
    # Of one draw nothing differs; a Cauchy law has no mean.
    assert list(draws_of(dist.Normal, scale[:1], scale[:1]).variables()) == ["reward_mean", "reward_precision"]
    assert (
        draws_of(dist.Cauchy, scale, scale).variables() == {} == draws_of(dist.Cauchy, scale[:1], scale[:1]).variables()
    )
