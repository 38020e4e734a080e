"""The marginal model: a prior program with its conjugate sites integrated out, as NumPyro's kernels get it.

log p(h, data) = log p(h) + log evidence of the conjugate sites given h, for hyperparameters h: Dirichlet-multinomial
rows, normal-gamma and other conjugate marginals. The density of h stays NumPyro's own.
"""

from collections.abc import Callable
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jaxtyping import Array, Float
from numpyro import handlers
from numpyro.infer.util import log_density

from bayes_mdp.inference.collapsed.compression import Grouped
from bayes_mdp.inference.collapsed.hierarchy import Hierarchy, Values, conjugate_inside, find_hierarchy
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.detection.certify import certify, invent, site_densities, summarised, tolerance
from bayes_mdp.inference.detection.detect import Detected
from bayes_mdp.inference.detection.probe import NotConjugate
from bayes_mdp.inference.detection.trace import Program
from bayes_mdp.inference.draws.chains import Site
from bayes_mdp.models.joint import OBSERVED_NEXT_STATE, OBSERVED_REWARD
from bayes_mdp.models.tracing import traced_alone

EVIDENCE = "collapsed_evidence"


def collapsed_model(hierarchy: Hierarchy) -> Callable[[ConjugatePosterior | Grouped], None]:
    """The NumPyro model `model(data_statistics)` of the hyperparameters alone, given the statistics of the data."""

    def model(data_statistics: ConjugatePosterior | Grouped) -> None:
        numpyro.factor(EVIDENCE, log_evidence(hierarchy, _run_hyperparameters(hierarchy), data_statistics))

    return model


def log_evidence(
    hierarchy: Hierarchy, values: Values, data_statistics: ConjugatePosterior | Grouped
) -> Float[Array, ""]:
    """log p(data of `data_statistics` | hyperparameters), the conjugate sites integrated out."""
    if isinstance(data_statistics, Grouped):
        return data_statistics.log_evidence(hierarchy.given(values, data_statistics.data_statistics))
    return jnp.asarray(hierarchy.given(values, data_statistics).log_evidence)


@traced_alone
def log_collapsed(hierarchy: Hierarchy, values: Values, data_statistics: ConjugatePosterior) -> Float[Array, ""]:
    """log p(hyperparameters, data), for values in their own supports (no Jacobian)."""
    return jnp.asarray(
        log_density(handlers.seed(collapsed_model(hierarchy), 0), (data_statistics,), {}, dict(values))[0]
    )


def _run_hyperparameters(hierarchy: Hierarchy) -> dict[str, Array]:
    """Run the program with its conjugate sites hidden; the values of the hyperparameters."""
    program = hierarchy.program
    dummies = conjugate_inside(program, hierarchy.hyperparameters)

    def hidden(message: Site) -> bool:
        return message.get("name") in dummies or message["type"] == "deterministic"

    # A conjugate site at any value of its support: hidden, it adds no density, and nothing below reads it.
    with handlers.trace() as trace, handlers.block(hide_fn=hidden), handlers.substitute(data=dummies):
        program.prior(program.space)
    return {name: jnp.asarray(trace[name]["value"]) for name in hierarchy.hyperparameters}


def prove_hierarchy(program: Program, rng: np.random.Generator) -> Hierarchy:
    """The hierarchy of a program, certified at several values of its hyperparameters. Host side.

    Raises:
        NotConjugate: there is none, or its densities are not those of the program.
        ValueError: a parameter of a conjugate site is out of its range.
    """
    if any(site.name == EVIDENCE for site in program.sites):
        raise NotConjugate(f"prior: site {EVIDENCE!r} has a name of the library's own, expected another name")
    # Structure by data flow, then numbers: at further hyperparameter values the closed form must match the program.
    hierarchy, forms = find_hierarchy(program, rng)
    # The first values only gave the tables; at the others the closed form is compared with the program.
    for values, detected in forms[1:]:
        certify(program, detected, rng, held=values)
        _check_prior(hierarchy, values, detected, rng)
    return hierarchy


def recheck(hierarchy: Hierarchy, draws: dict[str, np.ndarray], rng: np.random.Generator) -> None:
    """The certificate again, at draws [N ...] of the hyperparameters from the posterior: where it is about to be used.

    Raises:
        NotConjugate: the closed form is not that of the program there.
    """
    for n in range(len(next(iter(draws.values())))):
        values = {name: x[n] for name, x in draws.items()}
        certify(hierarchy.program, hierarchy.at(values), rng, held=values)


def _check_prior(hierarchy: Hierarchy, values: Values, detected: Detected, rng: np.random.Generator) -> None:
    """The marginal model without data has the density of the hyperparameters that the whole program has.

    With it and the certificate of the conjugate sites, every factor of p(h, conjugate sites, data) has been compared.
    """
    # Compare log p(h) of the marginal model without data with the densities of the h sites in the full program.
    program, transitions = hierarchy.program, invent(detected, rng)
    values_of_all = {**conjugate_inside(program, hierarchy.hyperparameters), **values}
    found = site_densities(program, values_of_all, summarised(program, transitions))
    # Without the conjugate sites and the data, what is left is the density of the hyperparameters.
    below = {*detected.layout.shapes, OBSERVED_NEXT_STATE, OBSERVED_REWARD}
    expected = np.array([value for name, value in found.items() if name not in below])
    given = float(_compiled_prior(hierarchy)(dict(values)))
    if not abs(given - expected.sum()) <= tolerance(program) * (1.0 + np.abs(expected).sum()):
        raise NotConjugate(
            f"prior: the density of {', '.join(map(repr, hierarchy.hyperparameters))} is {given:.12g} without the "
            f"conjugate sites and {expected.sum():.12g} with them, so that they cannot be integrated out"
        )


@lru_cache(maxsize=64)
def _compiled_prior(hierarchy: Hierarchy) -> Callable[[Values], Float[Array, ""]]:
    return jax.jit(lambda values: log_collapsed(hierarchy, values, jax.tree.map(jnp.asarray, hierarchy.prior)))
