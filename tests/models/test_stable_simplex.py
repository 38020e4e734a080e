"""`stable_simplex`: NumPyro's stick breaking without its rounding, and the sites that get it."""

# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.distributions import biject_to, transforms
from numpyro.infer.util import potential_energy

from bayes_mdp.models import SupportedDirichlet
from bayes_mdp.models.dirichlet_prior import StableDirichlet, StableSimplex, StableStickBreaking, stable_simplex

ROWS = StableStickBreaking()


@pytest.mark.parametrize("seed", range(3))
def test_it_is_stick_breaking_of_numpyro_where_that_does_not_round(seed, x64):
    x = np.random.default_rng(seed).normal(scale=2.0, size=(5, 4))
    plain, y = transforms.StickBreakingTransform(), ROWS(x)
    np.testing.assert_allclose(y, plain(x), rtol=1e-12)
    np.testing.assert_allclose(ROWS.inv(y), x, atol=1e-12)
    np.testing.assert_allclose(ROWS.log_abs_det_jacobian(x, y), plain.log_abs_det_jacobian(x, plain(x)), rtol=1e-10)
    jacobian = jax.vmap(jax.jacobian(lambda row: ROWS(row)[:-1]))(x)
    np.testing.assert_allclose(ROWS.log_abs_det_jacobian(x, y), np.linalg.slogdet(jacobian)[1], rtol=1e-10)


@pytest.mark.parametrize("x", [[60.0, -3.0], [300.0, 200.0], [-400.0, -200.0], [-100.0, 90.0]])
def test_far_out_it_comes_back(x, x64):
    """NumPyro's own keeps 2e-16 of the stick: 60 comes back as 36."""
    x = jnp.array(x)
    np.testing.assert_allclose(ROWS.inv(ROWS(x)), x, rtol=1e-12)
    if x[0] > 50:
        plain = transforms.StickBreakingTransform()
        assert abs(jnp.asarray(ROWS.inv(plain(x)))[0] - x[0]) > 20
    for beyond in (1e4 * x, -1e4 * x):  # off zero, with numbers for slopes
        assert (ROWS(beyond) > 0).all() and jnp.isfinite(ROWS.inv(ROWS(beyond))).all()
        assert jnp.isfinite(jax.grad(lambda v: ROWS(v)[0] + ROWS.log_abs_det_jacobian(v, ROWS(v)))(beyond)).all()


def laws():
    """Site -> law, shape of a draw: what gets another support, and what does not."""
    return {
        "plain": dist.Dirichlet(jnp.ones(3)),
        "expanded": dist.Dirichlet(jnp.ones(3)).expand([2]),
        "event": dist.Dirichlet(jnp.arange(1.0, 7.0).reshape(2, 3)).expand([4, 2]).to_event(1),
        "supported": SupportedDirichlet(np.ones((2, 3)), np.array([[True, True, False], [True] * 3])),
        "normal": dist.Normal(jnp.zeros(2), 1.0).to_event(1),
    }


def program():
    for name, law in laws().items():
        numpyro.sample(name, law)
    numpyro.sample("seen", dist.Dirichlet(jnp.ones(2)), obs=jnp.array([0.25, 0.75]))
    with numpyro.plate("state", 3, dim=-2), numpyro.plate("action", 2, dim=-1):
        numpyro.sample("rows", dist.Dirichlet(0.5 * jnp.ones(3)))


def test_which_sites_it_changes(x64):
    """Latent Dirichlet sites, inside expand, to_event and plates; draws and densities stay as they are."""
    before = handlers.trace(handlers.seed(program, 0)).get_trace()
    after = handlers.trace(handlers.seed(stable_simplex(program), 0)).get_trace()
    changed = {
        name for name, site in after.items() if "Dirichlet" in _inner(site) and _inner(site) != _inner(before[name])
    }
    assert changed == {"plain", "expanded", "event", "rows"}
    assert all(_inner(after[name]) == "StableDirichlet" for name in changed)
    for name in before:
        if before[name]["type"] != "sample":
            continue
        old, new = before[name]["fn"], after[name]["fn"]
        assert (old.batch_shape, old.event_shape) == (new.batch_shape, new.event_shape)
        np.testing.assert_array_equal(before[name]["value"], after[name]["value"])
        np.testing.assert_allclose(old.log_prob(before[name]["value"]), new.log_prob(before[name]["value"]))
    free = {name: biject_to(after[name]["fn"].support).inv(after[name]["value"]) for name in [*laws(), "rows"]}
    energies = [potential_energy(handlers.seed(each, 0), (), {}, free) for each in (program, stable_simplex(program))]
    np.testing.assert_allclose(*energies, rtol=1e-10)


def _inner(site):
    law = site.get("fn")
    while isinstance(law, dist.Independent | dist.ExpandedDistribution):
        law = law.base_dist
    return type(law).__name__


def test_the_support_is_a_simplex():
    support = StableDirichlet(jnp.ones(3)).support
    assert bool(support(jnp.array([0.2, 0.3, 0.5]))) and not bool(support(jnp.array([0.2, 0.3, 0.6])))
    assert support == StableSimplex() and hash(support) == hash(StableSimplex())
    np.testing.assert_allclose(support.feasible_like(jnp.zeros((2, 4))), 0.25)
    copy = jax.tree.unflatten(jax.tree.structure(support), jax.tree.leaves(support))
    assert copy == support
