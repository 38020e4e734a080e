"""`check_sites`: nothing but the conjugate sites and the laws has a density that the conjugate sites enter.

Step 1 of `detect`: no factor, observation, mask or scale, no site below them; and each law depends on sites of its
conjugate families alone.
"""

from bayes_mdp.inference.detection.entries import Entries
from bayes_mdp.inference.detection.probe import Probe, first, in_the_way
from bayes_mdp.inference.detection.trace import KNOWN, Site, site_families

ROW_FAMILIES = ("Dirichlet", "Beta")
"""Sites whose elements can be the probabilities of a row."""


def row_sites(probe: Probe) -> tuple[Site, ...]:
    """The sites of the rows, in order: what the transition law depends on, and Dirichlet sites that nothing uses."""
    used, paid = probe.depends(probe.transition) | probe.kept_rows, reward_sites(probe)
    rows = [s for s in probe.of(*ROW_FAMILIES) if s.name in used or (s.family == "Dirichlet" and s.name not in paid)]
    return tuple(rows)


def reward_sites(probe: Probe) -> frozenset[str]:
    """The conjugate sites that the reward law depends on, and those that belong to its tables, used or not."""
    return probe.kept.union(*(probe.depends(entries) for entries in probe.reward.values()))


def check_sites(probe: Probe, *, alone: bool) -> None:
    """Refuse programs whose sites rule out a closed form.

    Args:
        probe: the program.
        alone: whether the conjugate sites have to be all there is; else factors and observations may be above them.

    Raises:
        NotConjugate: factors, observations and parameters inside the prior; scaled or masked sites; conjugate sites
            below others; laws that depend on another kind of site; sites that nothing uses.
    """
    program = probe.program
    # The density of every site is that of its family: nothing observes, scales or masks it.
    for site in program.sites if alone else probe.sites:
        if (why := bent(site)) and site.name not in probe.constants:
            raise in_the_way(program, site.name, why)
    # The parameters of conjugate sites are free of conjugate sites, so that these are independent before any data; the
    # one exception is the pair of plain sites that is a normal-gamma.
    conjugate = frozenset(probe.layout.shapes)
    for site in conjugate:
        for parameter, entries in probe.parameters_of[site].items():
            above = probe.depends(entries)
            unexplained = above - frozenset(probe.hyperparameters)
            if unexplained and not _is_noise(probe, site, parameter, above & conjugate):
                raise in_the_way(
                    program,
                    first(program, unexplained),
                    f"{parameter} of site {site!r} depends on it, so that site has no closed form",
                )
    # The likelihood enters through the two laws, which must depend on conjugate sites of the right families alone.
    _check_laws(probe)
    # No other factor of the joint density holds a conjugate site. Proven: prior density = product over these sites.
    check_above(probe, conjugate)
    # A site that no law uses would keep its prior, and is most likely a mistake; with values held, another branch may.
    if not probe.held:
        _check_used(probe)


def bent(site: Site) -> str | None:
    """Why the density of a site is not that of its family; None: it is."""
    if site.family == "param":
        return "it is a param, which has no prior"
    if site.family == "Unit":
        return "it is a factor, which no conjugate update absorbs"
    if site.observed:
        return "it is observed inside the prior; hand transitions and rewards of this MDP to infer as data"
    if site.scaled:
        return "its density is scaled (handlers.scale, or a plate with subsampling)"
    return "a mask hides part of its density" if site.masked else None


def _is_noise(probe: Probe, site: str, parameter: str, above: frozenset[str]) -> bool:
    """Whether it is a pair of plain sites that makes a normal-gamma: a mean whose precision depends on a Gamma site."""
    family = {site.name: site.family for site in probe.sites}
    precision = probe.reward.get("precision")
    # The one dependence between conjugate sites that is conjugate: the Gamma site is also the noise of the rewards.
    noise = frozenset() if precision is None else probe.depends(precision)
    gammas = all(family[name] == "Gamma" and name in noise for name in above)
    return family[site] == "Normal" and parameter == "precision" and bool(above) and gammas


def _check_laws(probe: Probe) -> None:
    """The laws depend on sites of their conjugate families alone, no site serves both."""
    law = probe.program.law.family
    check_law(probe, "the transition law", probe.transition, ROW_FAMILIES)
    name = "the known reward" if law == KNOWN else f"the {law} law of the reward"
    # Law by law: a parameter that is not listed has no conjugate family.
    families = site_families(law)
    for parameter, entries in probe.reward.items():
        check_law(probe, name, entries, families.get(str(parameter), ()), str(parameter))
    both = probe.depends(probe.transition) & reward_sites(probe) & frozenset(probe.layout.shapes)
    if both:
        why = "the transition law and the reward law both depend on it"
        raise in_the_way(probe.program, first(probe.program, both), why)


def check_law(probe: Probe, law: str, entries: Entries, families: tuple[str, ...], parameter: str = "") -> None:
    """Refuse a law that depends on sites of other families than these.

    Raises:
        NotConjugate: names the first site.
    """
    depends = probe.depends(entries)
    # A noise that hyperparameters alone decide is a parameter of the conjugate site of the mean.
    above = frozenset(probe.hyperparameters) if parameter == "precision" and entries.free else frozenset()
    wrong = {s.name for s in probe.program.latents if s.name in depends - above and s.family not in families}
    wrong |= (depends - above) & frozenset(probe.hyperparameters)
    if wrong:
        expected = f"has a closed form over {' or '.join(families)} sites only" if families else "has no conjugate site"
        raise in_the_way(probe.program, first(probe.program, wrong), f"{law} depends on it, and {expected}")


def check_above(probe: Probe, conjugate: frozenset[str]) -> None:
    """No other density (hyperparameters, factors, observations) depends on a conjugate site: all are above them."""
    for name, (density, scale, possible) in probe.densities.items():
        # Its value, its scale and its support: each may depend on a conjugate site.
        parts = (density, scale, possible)
        below = frozenset().union(*(probe.depends(x) for x in parts if x is not None)) & conjugate
        if name not in conjugate and below:
            why = f"the density of site {name!r} depends on it, so that it has no closed form"
            raise in_the_way(probe.program, first(probe.program, below), why)


def _check_used(probe: Probe) -> None:
    used = probe.depends(probe.transition).union(*(probe.depends(entries) for entries in probe.reward.values()))
    for site in probe.sites:
        if site.name not in used:
            raise in_the_way(probe.program, site.name, "neither the transition law nor the reward law depends on it")
