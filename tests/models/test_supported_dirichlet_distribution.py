"""`SupportedDirichlet`: densities, draws and the transform of rows with impossible outcomes."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats
from numpyro.distributions import biject_to
from numpyro.infer.util import potential_energy, unconstrain_fn

from bayes_mdp.models import SupportedDirichlet
from bayes_mdp.models.dirichlet_prior import StickBreakingRows, SupportedSimplex


def random_rows(seed, shape=(4, 3, 5)):
    """(possible, concentrations): rows of one to K possible outcomes."""
    rng = np.random.default_rng(seed)
    possible = rng.random(shape) < rng.uniform(0.2, 1.0, (*shape[:-1], 1))
    possible[..., rng.integers(shape[-1])] = True
    return possible, rng.gamma(1.0, size=shape) + 0.01


@pytest.mark.parametrize("seed", range(3))
def test_the_density_is_that_of_a_dirichlet_on_the_possible_outcomes(seed, x64):
    possible, concentration = random_rows(seed)
    law = SupportedDirichlet(concentration, possible)
    rows = np.asarray(law.sample(jax.random.key(seed)))
    found = np.asarray(law.log_prob(rows))
    for index in np.ndindex(possible.shape[:-1]):
        mask = possible[index]
        expected = 0.0
        if mask.sum() > 1:
            expected = scipy.stats.dirichlet.logpdf(rows[index][mask], concentration[index][mask])
        assert found[index] == pytest.approx(expected, rel=1e-10, abs=1e-10)
    assert (rows[~possible] == 0).all()
    # Without impossible outcomes it is NumPyro's own.
    plain, full = dist.Dirichlet(concentration), SupportedDirichlet(concentration, np.ones(possible.shape, bool))
    inside = plain.sample(jax.random.key(1))
    np.testing.assert_allclose(full.log_prob(inside), plain.log_prob(inside), rtol=1e-12)


def test_draws_have_the_moments_of_the_law(x64):
    """20,000 draws of 12 rows: means and variances within 6 standard errors (false alarm below 1e-6 in 120 tests)."""
    possible, concentration = random_rows(3)
    law, number = SupportedDirichlet(concentration, possible), 20_000
    draws = np.asarray(law.sample(jax.random.PRNGKey(0), (number,)))
    error = np.sqrt(np.asarray(law.variance) / number) + 1e-12
    assert (np.abs(draws.mean(0) - law.mean) <= 6 * error).all()
    fourth = ((draws - draws.mean(0)) ** 4).mean(0)
    error = np.sqrt(fourth / number) + 1e-12
    assert (np.abs(draws.var(0) - law.variance) <= 6 * error).all()
    # A Dirichlet over all outcomes would fail: its means differ by more than that.
    wrong = concentration / concentration.sum(-1, keepdims=True)
    assert (np.abs(draws.mean(0) - wrong) > 6 * np.sqrt(np.asarray(law.variance) / number)).any()


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(3))
def test_the_transform_is_a_bijection_with_its_jacobian(seed, x64):
    possible, _ = random_rows(seed)
    transform = biject_to(SupportedSimplex(possible))
    free = int((possible.sum(-1) - 1).sum())
    assert transform.inverse_shape((7, *possible.shape)) == (7, free)
    assert transform.forward_shape((7, free)) == (7, *possible.shape)
    x = np.random.default_rng(seed).normal(scale=2.0, size=free)
    rows = transform(x)
    assert np.all(SupportedSimplex(possible)(rows))
    np.testing.assert_allclose(transform._inverse(rows), x, atol=1e-9)
    # The Jacobian of each row by automatic differentiation: all its outcomes but the last are free.
    jacobian = np.asarray(jax.jacobian(transform)(x))
    found, start = np.asarray(transform.log_abs_det_jacobian(x, rows)), 0
    for index in np.ndindex(possible.shape[:-1]):
        outcomes = np.flatnonzero(possible[index])[:-1]
        own = jacobian[index][outcomes][:, start : start + len(outcomes)]
        start += len(outcomes)
        assert found[index] == pytest.approx(np.linalg.slogdet(own)[1], abs=1e-9)
    np.testing.assert_allclose(transform(np.zeros(free)), possible / possible.sum(-1, keepdims=True), rtol=1e-12)


def test_extreme_values_stay_rows(x64):
    possible = np.array([[True, False, True, True], [False, True, False, False]])
    transform = StickBreakingRows(SupportedSimplex(possible))
    for x in ([500.0, -500.0], [-500.0, 500.0], [-800.0, -800.0]):
        rows = transform(jnp.array(x))
        np.testing.assert_allclose(rows.sum(-1), 1.0, rtol=1e-12)
        assert jnp.isfinite(transform.log_abs_det_jacobian(jnp.array(x), rows)).all()
        assert jnp.isfinite(transform._inverse(rows)).all()
        slope = jax.grad(lambda x, y: transform.log_abs_det_jacobian(x, y).sum())(jnp.array(x), rows)
        assert jnp.isfinite(slope).all()


@pytest.mark.parametrize("x", [[60.0, -3.0], [300.0, 200.0], [-400.0, -200.0], [-100.0, 90.0]])
def test_far_out_it_comes_back(x, x64):
    """What is left of a stick after all but 1e-26 of it was taken is known, too: a difference would give zero."""
    transform = StickBreakingRows(SupportedSimplex(np.array([[True, False, True, True]])))
    np.testing.assert_allclose(transform._inverse(transform(jnp.array(x))), x, rtol=1e-12)
    rows = transform(jnp.array(x) * 1e4)
    assert ((rows > 0) == np.array([True, False, True, True])).all()
    assert jnp.isfinite(transform.log_abs_det_jacobian(jnp.array(x) * 1e4, rows)).all()


def test_numpyro_takes_it_as_a_site(x64):
    """The potential of NumPyro, batch of chains included, is minus density and Jacobian."""
    possible, concentration = random_rows(4)

    def model():
        with numpyro.plate("state", 4, dim=-2), numpyro.plate("action", 3, dim=-1):
            numpyro.sample("row", SupportedDirichlet(concentration, possible))

    law = SupportedDirichlet(concentration, possible)
    rows = law.mean
    free = unconstrain_fn(model, (), {}, {"row": rows})
    found = potential_energy(model, (), {}, free)
    expected = law.log_prob(rows).sum() + biject_to(law.support).log_abs_det_jacobian(free["row"], rows).sum()
    assert float(found) == pytest.approx(-float(expected), rel=1e-10)
    chains = jax.vmap(lambda x: potential_energy(model, (), {}, {"row": x}))(jnp.stack([free["row"]] * 3))
    np.testing.assert_allclose(chains, found)
    copy = jax.tree.unflatten(jax.tree.structure(law), jax.tree.leaves(law))
    np.testing.assert_array_equal(copy.log_prob(rows), law.log_prob(rows))


@pytest.mark.parametrize(
    ("concentration", "possible", "sentence"),
    [
        ([[1.0, 2.0]], [[False, False]], r"possible\[0\] is False, expected at least one possible outcome"),
        ([[1.0, -2.0]], [[True, True]], r"concentration\[0, 1\] is -2.0, expected a finite number greater than zero"),
        ([[1.0, 2.0]], [[True]], r"possible has shape \(1, 1\), expected \(1, 2\)"),
    ],
)
def test_wrong_arguments(concentration, possible, sentence):
    with pytest.raises(ValueError, match=sentence):
        SupportedDirichlet(np.array(concentration), np.array(possible))


def test_few_possible_outcomes_are_read_alone(monkeypatch):
    """The density of rows that are mostly impossible is the same by either way, a batch of values too."""
    possible = np.arange(12) < np.array([[2], [3], [1]])
    law = SupportedDirichlet(np.array([[0.4], [2.0], [1.0]]) * np.ones(12), possible)
    rows = law.sample(jax.random.key(0), (4,))
    few = law.log_prob(rows)
    monkeypatch.setattr("bayes_mdp.models.dirichlet_prior.SPARSE", 0.0)
    np.testing.assert_allclose(few, law.log_prob(rows), rtol=1e-5, atol=1e-5)
    assert few.shape == (4, 3)
