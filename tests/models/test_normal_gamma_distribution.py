"""`NormalGamma` against scipy's densities, autodiff's Jacobian and a posterior in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats
from numpyro.infer import MCMC, NUTS

from bayes_mdp.models.normal_gamma_distribution import NormalGamma, mean_precision, normal

HYPER = (np.array([-1.0, 0.5]), np.array([0.3, 4.0]), np.array([[0.4], [2.5], [30.0]]), np.array(1.5))


def test_log_prob_is_that_of_gamma_times_normal(x64):
    loc, pseudo_count, concentration, rate = HYPER
    value = np.array([[[0.3, 0.2], [1.0, 2.0]], [[-2.0, 1e-3], [0.5, 9.0]], [[0.0, 1.0], [3.0, 20.0]]])
    mean, precision = value[..., 0], value[..., 1]
    expected = scipy.stats.gamma.logpdf(precision, concentration, scale=1 / rate)
    expected = expected + scipy.stats.norm.logpdf(mean, loc, (pseudo_count * precision) ** -0.5)
    np.testing.assert_allclose(NormalGamma(*HYPER).log_prob(jnp.asarray(value)), expected, rtol=1e-12)


def test_mean_and_variance_are_those_of_the_marginals():
    law = NormalGamma(0.5, np.array([0.3, 4.0]), 2.5, 1.5)
    student = scipy.stats.t(2 * 2.5, loc=0.5, scale=np.sqrt(1.5 / (2.5 * np.array([0.3, 4.0]))))
    gamma = scipy.stats.gamma(2.5, scale=1 / 1.5)
    np.testing.assert_allclose(law.mean, np.stack([student.mean(), np.full(2, gamma.mean())], -1), rtol=1e-6)
    np.testing.assert_allclose(law.variance, np.stack([student.var(), np.full(2, gamma.var())], -1), rtol=1e-6)


def test_moments_that_do_not_exist_are_not_made_up():
    law = NormalGamma(0.0, 1.0, jnp.array([0.5, 1.0, 1.5]), 1.0)
    np.testing.assert_array_equal(np.isnan(law.mean[:, 0]), [True, False, False])
    assert np.isnan(law.variance[0, 0]) and np.isinf(law.variance[1, 0]) and np.isfinite(law.variance[2, 0])


def test_draws_have_the_law(key):
    """Kolmogorov-Smirnov on 3 x 3 samples of 50,000, each at 1e-7 (false alarms < 1e-6).

    It must catch a scale of the mean that is 10 % off (distance .023 where .0125 is allowed).
    """
    loc, pseudo_count, rate = 0.5, 0.3, 1.5
    concentration = np.array([0.4, 2.5, 40.0])
    draws = jax.jit(lambda key: NormalGamma(loc, pseudo_count, concentration, rate).sample(key, (50_000,)))(key)
    mean, precision = np.moveaxis(np.asarray(draws, np.float64), -1, 0)
    for i, shape in enumerate(concentration):
        student = scipy.stats.t(2 * shape, loc=loc, scale=np.sqrt(rate / (shape * pseudo_count)))
        score = (mean[:, i] - loc) * np.sqrt(pseudo_count * precision[:, i])
        assert scipy.stats.kstest(mean[:, i], student.cdf).pvalue > 1e-7
        assert scipy.stats.kstest(score, "norm").pvalue > 1e-7
        assert scipy.stats.kstest(precision[:, i], scipy.stats.gamma(shape, scale=1 / rate).cdf).pvalue > 1e-7


def test_draws_stay_finite_and_positive_where_the_precision_underflows(key):
    draws = jax.jit(lambda key: NormalGamma(0.0, 1e-3, 1e-3, 1e3).sample(key, (2_000,)))(key)
    assert np.isfinite(draws).all() and (draws[:, 1] > 0).all()


def test_bijection_round_trip_and_jacobian(x64):
    bijection = dist.biject_to(NormalGamma().support)
    x = jnp.array([[0.3, -2.0], [-5.0, 1.7]])
    y = bijection(x)
    assert jnp.all(mean_precision(y))
    np.testing.assert_allclose(bijection.inv(y), x, rtol=1e-14)
    expected = [jnp.linalg.slogdet(jax.jacfwd(bijection)(point))[1] for point in x]
    np.testing.assert_allclose(bijection.log_abs_det_jacobian(x, y), expected, rtol=1e-14)
    assert bijection.domain.event_dim == bijection.codomain.event_dim == 1


def test_constraint_knows_what_is_possible():
    possible = mean_precision(jnp.array([[0.0, 1.0], [0.0, 0.0], [0.0, -1.0], [jnp.nan, 1.0], [0.0, jnp.nan]]))
    np.testing.assert_array_equal(possible, [True, False, False, False, False])
    assert jnp.all(mean_precision(mean_precision.feasible_like(jnp.zeros((3, 2)))))


@pytest.mark.slow
def test_it_is_a_pytree_that_jits_vmaps_and_expands():
    law, value = NormalGamma(*HYPER), jnp.array([0.3, 2.0])
    leaves, tree = jax.tree.flatten(law)
    again = jax.tree.unflatten(tree, leaves)
    assert (again.batch_shape, again.event_shape) == (law.batch_shape, law.event_shape) == ((3, 2), (2,))
    expected = law.log_prob(value)
    np.testing.assert_allclose(jax.jit(lambda law: law.log_prob(value))(law), expected, rtol=1e-6)
    mapped = jax.vmap(lambda loc: NormalGamma(loc, 1.0, 2.0, 1.0).log_prob(value))(HYPER[0])
    np.testing.assert_allclose(mapped, NormalGamma(HYPER[0], 1.0, 2.0, 1.0).log_prob(value), rtol=1e-6)
    np.testing.assert_allclose(law.expand((4, 3, 2)).log_prob(value)[2], expected, rtol=1e-6)
    assert law.to_event(1).batch_shape == (3,) and law.to_event(1).event_shape == (2, 2)
    assert law.expand((4, 3, 2)).shape() == (4, 3, 2, 2)


@pytest.mark.parametrize(
    ("argument", "sentence"),
    [
        ({"pseudo_count": [1.0, 0.0]}, r"pseudo_count\[1\] is 0.0, expected a finite number greater than zero"),
        ({"concentration": -1.0}, "concentration is -1.0, expected a finite number greater than zero"),
        ({"rate": [[1.0, np.nan]]}, r"rate\[0, 1\] is nan, expected a finite number greater than zero"),
        ({"loc": np.inf}, "loc is inf, expected a finite number"),
    ],
)
def test_a_bad_hyper_parameter_is_named(argument, sentence):
    with pytest.raises(ValueError, match=sentence):
        NormalGamma(**{name: np.asarray(value) for name, value in argument.items()})


def test_out_of_support_values_are_validated():
    with pytest.warns(UserWarning, match="Out-of-support"):
        NormalGamma(validate_args=True).log_prob(np.array([0.0, -1.0]))


@pytest.mark.slow
def test_nuts_finds_the_posterior_in_closed_form(key):
    """Posterior mean and log-precision from 1,000 draws of NUTS.

    Tolerance .25 posterior standard deviations: false alarms < 1e-6 with an effective sample size of 400 (z = 5).
    It must catch a Jacobian left out (log-precision off by about .4 standard deviations).
    """
    reward = np.array([1.2, 0.7, 1.9, 1.1])
    concentration, rate = 2.0 + reward.size / 2, 1.0 + 0.5 * reward.var() * reward.size
    rate += 0.5 * reward.size / (1 + reward.size) * reward.mean() ** 2
    loc, pseudo_count = reward.sum() / (1 + reward.size), 1.0 + reward.size

    def model():
        mean_and_precision = numpyro.sample("reward", NormalGamma())
        with numpyro.plate("row", reward.size):
            numpyro.sample("observed", normal(mean_and_precision), obs=reward)

    kernel = NUTS(model, target_accept_prob=0.9)
    mcmc = MCMC(kernel, num_warmup=300, num_samples=1_000, progress_bar=False)
    mcmc.run(key)
    draws = np.asarray(mcmc.get_samples()["reward"])
    sd = np.sqrt(rate / (pseudo_count * (concentration - 1)))
    assert abs(draws[:, 0].mean() - loc) < 0.25 * sd
    log_precision = scipy.stats.loggamma(concentration)
    expected = log_precision.mean() - np.log(rate)
    assert abs(np.log(draws[:, 1]).mean() - expected) < 0.25 * log_precision.std()
