"""Beliefs about returns, and the mixture projection worked out the long way: no substitution, dyadic pieces."""

import numpy as np
from scipy.special import digamma

from bayes_mdp.inference.value.returns import ReturnBelief
from bayes_mdp.inference.value.student_t import StudentT

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_STEPS = 2.0 ** np.arange(-8.0, 60.0, 0.5)


def learning(rng, size):
    """What learning meets: own predictive scale 1, that of the target .1 to 10, returns mostly within 9 scales."""
    return _cases(rng, size, (1.001, 300.0), (0.5, 1e3), (0.1, 10.0), rng.normal(0.0, 3.0, size))


def extreme(rng, size):
    """Targets up to 1000 scales away and 10^6 times as wide or as narrow; also concentrations below 1."""
    distance = rng.choice([-1.0, 1.0], size) * _log_uniform(rng, (1e-3, 1e3), size)
    return _cases(rng, size, (0.55, 1e5), (1e-2, 1e5), (1e-6, 1e6), distance)


def _log_uniform(rng, ends, size):
    return np.exp(rng.uniform(*np.log(ends), size))


def _cases(rng, size, concentrations, pseudo_counts, scales, distance):
    concentration, following = (_log_uniform(rng, concentrations, size) for _ in range(2))
    pseudo = _log_uniform(rng, pseudo_counts, size)
    own = ReturnBelief(rng.normal(size=size), pseudo, concentration, concentration * pseudo / (pseudo + 1.0))
    return own, StudentT(own.loc + distance, _log_uniform(rng, scales, size), 2.0 * following)


def moments_of_mixture(own, law):
    """E[tau], E[mu tau] / E[tau], Var-like E[mu^2 tau] - E[mu tau]^2 / E[tau], log E[tau] - E[log tau], of scalars.

    Integrated over the return x by Gauss-Legendre on pieces that grow by sqrt(2) from either centre.
    """
    width = np.sqrt(2.0 * own.rate * (own.pseudo_count + 1.0) / own.pseudo_count)
    steps = np.concatenate([-_STEPS[::-1], [0.0], _STEPS])
    away = law.loc - own.loc
    edges = np.sort(np.concatenate([steps * law.scale, steps * width - away]))  # from the centre of the law
    half = 0.5 * np.diff(edges)[:, None]
    x = (0.5 * (edges[1:] + edges[:-1])[:, None] + half * _NODES).ravel()
    weight = (half * _WEIGHTS).ravel() * np.exp(-0.5 * (law.dof + 1) * np.log1p(x**2 / (law.dof * law.scale**2)))
    weight /= weight.sum()
    shape, count = own.concentration + 0.5, own.pseudo_count + 1.0
    share = (away + x) / width
    g = 1.0 / (1.0 + share**2)
    mean_g = weight @ g
    shift = (weight @ (g * x)) / mean_g
    spread = shape / own.rate * (weight @ (g * ((x - shift) / count) ** 2)) + 1.0 / count
    part = g / mean_g - 1.0
    jensen = weight @ (part - np.where(part > -0.5, np.log1p(np.maximum(part, -0.5)), np.log(g / mean_g)))
    mean_tau = shape / own.rate * mean_g
    return mean_tau, own.loc + (away + shift) / count, spread, _gap(shape) + jensen


def _gap(x):
    return np.log(x) - digamma(x) if x < 1e3 else 1 / (2 * x) + 1 / (12 * x**2) - 1 / (120 * x**4)


def errors(found, own, law):
    """Of one answer: loc in standard deviations of the mean; pseudo-count, log E - E log, E[tau], relative.

    The concentration enters through the function that it inverts: where it stands at its floor, that is not compared.
    """
    mean_tau, loc, spread, gap = moments_of_mixture(own, law)
    sd = np.sqrt(spread / mean_tau)
    at_floor = found.concentration <= 1.001 * (1 + 1e-6)
    concentration = 0.0 if at_floor else _gap(found.concentration) / gap - 1.0
    return np.abs(
        [
            (found.loc - loc) / sd,
            found.pseudo_count * spread - 1.0,
            concentration,
            found.concentration / found.rate / mean_tau - 1.0,
        ]
    )
