"""`improper_sites`: latent sites without a distribution of their own, so that only data can give them a posterior.

A site may be improper by itself; masked, which leaves a constant; or scaled, which leaves a power of its density. Of a
power c it is asked whether its integral is finite, by family:

* density x^(a - 1) ... near zero: c (a - 1) + 1 > 0;
* bounded density whose tails fall exponentially: c > 0;
* density |x|^-(t + 1) far out: c (t + 1) > 1.

What cannot be shown (another family, numbers that depend on other sites) counts as improper.
"""

from collections.abc import Mapping

import numpy as np

from bayes_mdp.inference.detection.entries import Entries
from bayes_mdp.inference.detection.probe import Probe
from bayes_mdp.inference.detection.program_cache import program_cache
from bayes_mdp.inference.detection.trace import Program, Site
from bayes_mdp.numerics.compact import compact

EXPONENTS = {"Dirichlet": ("concentration",), "Beta": ("concentration1", "concentration0"), "Gamma": ("concentration",)}
"""Families of the first kind, and the parameters that are an a."""
LIGHT = frozenset({"Normal", "HalfNormal", "LogNormal", "Laplace", "Exponential", "MultivariateNormal", "Logistic"})
"""Families of the second kind (a log-normal is one on the log scale, whatever the power)."""
IMPROPER_UNIFORM = "ImproperUniform, which without data is no distribution"


@program_cache
def improper_sites(program: Program) -> dict[str, str]:
    """{latent site that is not known to have a proper prior: why, in words that continue "site 'x' is "}."""
    bent = [site for site in program.latents if site.scaled or site.masked]
    probe = Probe(program) if any(site.scaled for site in bent) else None
    found = {}
    for site in program.latents:
        if site.family == "ImproperUniform":
            found[site.name] = IMPROPER_UNIFORM
        elif site.masked and not site.bounded:
            found[site.name] = "masked (handlers.mask) and unbounded, which without data is no distribution"
        elif site.name in program.outputs.powers and not (probe and _power_is_proper(probe, site)):
            found[site.name] = "scaled (handlers.scale), and this power of its density is not known to be a distribution"
    return found


def refuse_improper(improper: Mapping[str, str]) -> None:
    """Refuse to infer without data what has no proper prior.

    Args:
        improper: {site: why}.

    Raises:
        ValueError: names the first improper site.
    """
    for name, why in improper.items():
        raise ValueError(f"prior: site {name!r} is {why}, expected a proper prior, or data")


def _power_is_proper(probe: Probe, site: Site) -> bool:
    power = _numbers(probe, probe.powers[site.name])
    if power is None or np.min(power) < 0:
        return False
    if np.min(power) == 0 and not site.bounded:
        return False
    if site.family == "Uniform" or site.family in LIGHT:
        return True
    if site.family not in EXPONENTS:
        return bool(np.all(power == 1.0))
    if np.max(power) <= 1.0:  # whatever a > 0 is
        return True
    parameters = [_numbers(probe, probe.parameters_of[site.name][name]) for name in EXPONENTS[site.family]]
    if any(a is None for a in parameters):
        return False
    possible = [np.where(a > 0, a, 1.0) for a in parameters if a is not None]  # zero: an outcome that cannot be
    return all(bool(np.all(np.max(power) * (a - 1.0) + 1.0 > 0)) for a in possible)


def _numbers(probe: Probe, entries: Entries) -> np.ndarray | None:
    """The numbers of an array that depends on no site; None: it depends on some, or cannot be read."""
    if probe.depends(entries) or not entries.free or not probe.symbols.known(compact(entries.offset)).all():
        return None
    return np.asarray(probe.symbols.values(entries.offset))
