"""`check_proper`: latent sites that a mask or a scale leaves without a distribution are refused.

A mask leaves a constant, which is a density on a bounded support alone. A scale leaves a power of the density, of which
it is asked whether its integral is finite, by family:

* density x^(a - 1) ... near zero: c (a - 1) + 1 > 0;
* bounded density whose tails fall exponentially: c > 0.

What cannot be shown is refused: another family, and parameters that depend on other sites (the integral is a function
of these, which need not have a mean). `ImproperUniform` says itself that it is improper, and is accepted with data.
"""

import numpy as np

from bayes_mdp.inference.detection.entries import Entries
from bayes_mdp.inference.detection.probe import Probe
from bayes_mdp.inference.detection.trace import Program, Site
from bayes_mdp.numerics.compact import compact

EXPONENTS = {"Dirichlet": ("concentration",), "Beta": ("concentration1", "concentration0"), "Gamma": ("concentration",)}
"""Families of the first kind, and the parameters that are an a."""
LIGHT = frozenset({"Normal", "HalfNormal", "LogNormal", "Laplace", "Exponential", "MultivariateNormal", "Logistic"})
"""Families of the second kind (a log-normal is one on the log scale, whatever the power)."""


def check_proper(program: Program) -> None:
    """Refuse latent sites that a scale or a mask may leave without a distribution.

    Raises:
        ValueError: names the first one.
    """
    bent = [site for site in program.latents if site.scaled or site.masked]
    probe = Probe(program) if any(site.name in program.outputs.powers for site in bent) else None
    for site in bent:
        if site.masked and not site.bounded:
            raise ValueError(
                f"prior: site {site.name!r} is masked (handlers.mask) and unbounded, so that nothing is left of its "
                "prior, expected it without the mask, or dist.ImproperUniform where that is meant"
            )
        if probe is not None and site.name in probe.powers and not _power_is_proper(probe, site):
            raise ValueError(
                f"prior: site {site.name!r} ({site.family}) is scaled (handlers.scale), and this power of its density "
                "is not known to be a distribution, expected the law that is meant, or the power in words: "
                f"numpyro.factor(..., (power - 1) * law.log_prob({site.name}))"
            )


def _power_is_proper(probe: Probe, site: Site) -> bool:
    power = _numbers(probe, probe.powers[site.name])
    if power is None or np.min(power) < 0 or (np.min(power) == 0 and not site.bounded):
        return False
    if np.all(power == 1.0):
        return True
    parameters = probe.parameters_of[site.name].values()  # of the families that have a closed form
    above = [*parameters, *(x for x in probe.densities.get(site.name, ()) if x is not None)]
    if frozenset().union(*map(probe.depends, above)) - {site.name}:
        return False
    if site.family not in EXPONENTS:
        return site.family == "Uniform" or site.family in LIGHT
    exponents = [_numbers(probe, probe.parameters_of[site.name][name]) for name in EXPONENTS[site.family]]
    if any(a is None for a in exponents):
        return bool(np.max(power) <= 1.0)  # c (a - 1) + 1 > 0 whatever a > 0 is
    possible = [np.where(a > 0, a, 1.0) for a in exponents if a is not None]  # zero: an outcome that cannot be
    return all(bool(np.all(np.max(power) * (a - 1.0) + 1.0 > 0)) for a in possible)


def _numbers(probe: Probe, entries: Entries) -> np.ndarray | None:
    """The numbers of an array that depends on no site; None: it depends on some, or cannot be read."""
    if probe.depends(entries) or not entries.free or not probe.symbols.known(compact(entries.offset)).all():
        return None
    return np.asarray(probe.symbols.values(entries.offset))
