"""`prove_hierarchy`: the hierarchy of a program, its closed form compared with the program at several values."""

import numpy as np

from bayes_mdp.inference.collapsed.collapse import EVIDENCE
from bayes_mdp.inference.collapsed.hierarchy import Hierarchy, find_hierarchy
from bayes_mdp.inference.collapsed.hyper_prior import conjugate_inside
from bayes_mdp.inference.detection.certify import certify, invent, site_densities, summarised, tolerance
from bayes_mdp.inference.detection.detect import Detected
from bayes_mdp.inference.detection.probe import NotConjugate
from bayes_mdp.inference.detection.trace import Program
from bayes_mdp.inference.integrals.unconstrained_model import Values
from bayes_mdp.models.joint import OBSERVED_NEXT_STATE, OBSERVED_REWARD


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
    prior = hierarchy.hyper_prior
    held = {name: values[name] for name in prior.held}
    points = prior.unconstrained({name: np.asarray(x)[None] for name, x in values.items()}, held)
    given = float(prior.place(points, held).without_jacobian[0])
    if not abs(given - expected.sum()) <= tolerance(program) * (1.0 + np.abs(expected).sum()):
        raise NotConjugate(
            f"prior: the density of {', '.join(map(repr, hierarchy.hyperparameters))} is {given:.12g} without the "
            f"conjugate sites and {expected.sum():.12g} with them, so that they cannot be integrated out"
        )
