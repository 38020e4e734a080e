"""Beliefs about returns, and the two updates, against quadrature that uses no substitution."""

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import digamma

from bayes_mdp.inference.value.returns import ACCURATE, FAST, ReturnBelief, mixture_update, moment_update, target
from bayes_mdp.inference.value.student_t import StudentT, standard_draws
from tests.inference.value.return_problems import errors, extreme, learning, moments_of_mixture

OWN, NEXT, REWARD, DISCOUNT = (0.7, 2.3, 2.2, 1.9), (1.2, 1.5, 2.5, 2.0), 0.3, 0.9
SIZE = 24
_project = jax.jit(mixture_update, static_argnums=2)
_moment = jax.jit(lambda own, *of: moment_update(own, target(*of)))
_target = jax.jit(target)


def belief(numbers):
    """`SIZE` times the same."""
    return ReturnBelief(*(jnp.asarray(np.full(SIZE, x)) for x in numbers))


def project(own, law, quadrature):
    """The compiled update."""
    return _project(*jax.tree.map(jnp.asarray, (own, law)), quadrature)


def worst(problem, quadrature):
    """Errors of every case [N 4], columns as `errors`."""
    found = jax.tree.map(lambda x: np.asarray(x, float), project(problem[0], problem[1], quadrature))

    def one(tree, k):
        return jax.tree.map(lambda x: float(x[k]), tree)

    size = len(problem[0].loc)
    return np.array([errors(one(found, k), one(problem[0], k), one(problem[1], k)) for k in range(size)])


def same(found, expected, rtol):
    """Every case has these four numbers."""
    return all(np.allclose(x, y, rtol=rtol, atol=0) for x, y in zip(jax.tree.leaves(found), expected, strict=True))


def test_moments_of_a_belief(key):
    """Mean and variance of the mean return and of the next return; a draw."""
    some = belief(OWN)
    assert np.allclose(some.mean(), 0.7) and np.allclose(some.variance(), 1.9 / (2.3 * 1.2))
    assert np.allclose(some.of_next().variance(), 1.9 / 1.2 * 3.3 / 2.3)
    assert np.isinf(belief((0.0, 1.0, 1.0, 1.0)).variance()).all()
    found, draws = jax.jit(lambda b, k: (b.sample(k), standard_draws(k, 2.0 * b.concentration)))(some, key)
    assert np.allclose(found, np.asarray(draws) * np.sqrt(1.9 / (2.3 * 2.2)) + 0.7, rtol=1e-5)


def test_the_example_of_the_specification(x64):
    """Mixture, moment, and a return that is known: both are then the conjugate update."""
    own, law = belief(OWN), _target(REWARD, DISCOUNT, belief(NEXT), False)
    expected = (0.8555638094536, 2.386473301589, 2.223271638929, 1.959653400379)
    assert same(project(own, law, ACCURATE), expected, 1e-12)
    assert same(project(own, law, FAST), expected, 1e-7)
    assert same(
        _moment(own, REWARD, DISCOUNT, belief(NEXT), False), (0.9060606060606, 3.3, 2.7, 2.9611393939394), 1e-12
    )
    known = _target(REWARD, DISCOUNT, belief(NEXT), True)
    expected = ((2.3 * 0.7 + 0.3) / 3.3, 3.3, 2.7, 1.9 + 0.5 * 2.3 / 3.3 * (REWARD - 0.7) ** 2)
    assert same(project(own, known, FAST), expected, 1e-12)
    assert same(_moment(own, REWARD, DISCOUNT, belief(NEXT), True), expected, 1e-12)


def test_the_oracle_against_adaptive_quadrature():
    """The pieces of the oracle, and SciPy on the literal expectations of the specification."""
    own = ReturnBelief(*map(np.asarray, OWN))
    scale = DISCOUNT * np.sqrt(2.0 * 2.5 / (2.5 * 1.5))
    law = StudentT(*map(np.asarray, (REWARD + DISCOUNT * 1.2, scale, 5.0)))
    frozen: Any = stats.t(law.dof, law.loc, law.scale)
    density = frozen.pdf

    def expect(f):
        ends = [-np.inf, -40.0, -3.0, 0.7, 1.4, 5.0, 40.0, np.inf]
        return sum(integrate.quad(lambda x: f(x) * density(x), *piece, epsabs=1e-13)[0] for piece in pairwise(ends))

    def centre(x):
        return (2.3 * 0.7 + x) / 3.3

    def precision(x):
        return 2.7 / (1.9 + 2.3 * (x - 0.7) ** 2 / 6.6)

    tau, mu_tau = expect(precision), expect(lambda x: centre(x) * precision(x))
    square = expect(lambda x: 1 / 3.3 + centre(x) ** 2 * precision(x)) - mu_tau**2 / tau
    logs = np.log(tau) - digamma(2.7) - expect(lambda x: np.log(precision(x) / 2.7))
    assert np.allclose(moments_of_mixture(own, law), (tau, mu_tau / tau, square, logs), rtol=1e-9)


def test_projection(x64):
    """The moments that define it: 1e-6 where learning goes, 1e-8 in extremes where that is asked for."""
    usual, far = learning(np.random.default_rng(0), SIZE), extreme(np.random.default_rng(1), SIZE)
    assert worst(usual, FAST).max() < 1e-6
    assert worst(usual, ACCURATE).max() < 1e-10
    assert worst(far, ACCURATE).max() < 1e-8
    assert worst(far, FAST).max() < 0.1


@pytest.mark.slow
def test_projection_in_float32():
    """Of inputs that float32 holds exactly: 1e-5 where learning goes, E[tau] also at the floor of the concentration."""
    usual = jax.tree.map(lambda x: x.astype(np.float32), learning(np.random.default_rng(0), SIZE))
    assert worst(usual, FAST).max() < 1e-5
    own = belief((0.0, 1e-3, 1.1, 1.0))
    wide = StudentT(jnp.asarray(np.linspace(-1e4, 1e4, SIZE)), jnp.logspace(-6, 8, SIZE), jnp.full(SIZE, 1.2))
    found = project(own, wide, FAST)  # far beyond what float32 resolves: finite and proper all the same
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(found))
    assert (found.concentration >= np.float32(1.001)).all() and (found.concentration == np.float32(1.001)).any()
    assert (found.pseudo_count > 0).all() and (found.rate > 0).all()


@pytest.mark.slow
def test_projection_of_ten_thousand_cases(x64):
    """1e-8 everywhere: returns 1000 standard deviations away, either belief 10^6 times tighter than the other."""
    assert worst(extreme(np.random.default_rng(2), 10_000), ACCURATE).max() < 1e-8
    assert worst(learning(np.random.default_rng(3), 10_000), FAST).max() < 1e-6


def test_moment_update_without_a_variance(x64):
    """The next belief has concentration <= 1: the rate says so; a return that is known is not concerned."""
    own, wide = belief(OWN), belief((1.0, 1.0, 0.9, 1.0))
    assert np.isinf(_moment(own, REWARD, DISCOUNT, wide, False).rate).all()
    assert np.isfinite(_moment(own, REWARD, DISCOUNT, wide, True).rate).all()
