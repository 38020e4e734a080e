"""What is in the way of an exact posterior, read off the sites of a traced program: one sentence, naming the site."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from bayes_mdp.inference.trace import KNOWN, LAWS, Program, Site

if TYPE_CHECKING:
    from bayes_mdp.inference.dataflow import Entries
    from bayes_mdp.inference.probe import Probe

MEAN_LEAVES = {
    "Normal": ("Normal", "NormalGamma"),
    "BernoulliProbs": ("Beta",),
    "BernoulliLogits": ("Beta",),
    "Poisson": ("Gamma",),
}
PRECISION_LEAVES = ("Gamma", "NormalGamma")


class NotConjugate(ValueError):
    """There is no closed form.

    Args:
        message: one sentence.
        site: what is in the way, where it is one site.
    """

    def __init__(self, message: str, site: str | None = None) -> None:
        super().__init__(message)
        self.site = site


def in_the_way(program: Program, name: str, why: str) -> NotConjugate:
    """The error for site `name`; `why` continues "is in the way of an exact posterior: "."""
    family = next((site.family for site in program.sites if site.name == name), "random numbers of no site")
    message = (
        f"prior: site {name!r} ({family}) is in the way of an exact posterior: {why}. "
        "method='auto' samples what has no closed form"
    )
    return NotConjugate(message, name)


def check_sites(probe: "Probe", *, alone: bool) -> None:
    """Refuse programs whose sites rule out a closed form.

    Args:
        probe: the program.
        alone: whether the leaves have to be all there is; else factors and observations may stand above them.

    Raises:
        NotConjugate: factors, observations and parameters inside the prior; scaled or masked sites; leaves below other
            leaves; laws that depend on another kind of site; sites that nothing uses.
    """
    program = probe.program
    for site in program.sites if alone else probe.sites:
        if why := _bent(site):
            raise in_the_way(program, site.name, why)
    leaves = frozenset(probe.layout.shapes)
    for site in leaves:
        for parameter, entries in probe.leaves[site].items():
            parents = probe.depends(entries)
            if parents - frozenset(probe.parents) and not _is_noise(probe, site, parameter, parents & leaves):
                parent = first(program, parents - frozenset(probe.parents))
                raise in_the_way(
                    program, parent, f"{parameter} of site {site!r} depends on it, so that leaf has no closed form"
                )
    _check_laws(probe)
    _check_above(probe, leaves)
    if not probe.held:
        _check_used(probe)


def _check_above(probe: "Probe", leaves: frozenset[str]) -> None:
    """What is no leaf (parents, factors, observations) has a density that no leaf goes into: it stands above them."""
    for name, (density, scale, possible) in probe.densities.items():
        below = frozenset().union(*(probe.depends(x) for x in (density, scale, possible) if x is not None)) & leaves
        if name not in leaves and below:
            why = f"the density of site {name!r} depends on it, so that it has no closed form"
            raise in_the_way(probe.program, first(probe.program, below), why)


def first(program: Program, names: Iterable[str]) -> str:
    """The first of `names` in the order of the program."""
    return next((site.name for site in program.sites if site.name in set(names)), next(iter(names)))


def _bent(site: Site) -> str | None:
    if site.family == "param":
        return "it is a param, which has no prior"
    if site.family == "Unit":
        return "it is a factor, which no conjugate leaf absorbs"
    if site.observed:
        return "it is observed inside the prior; hand observations to infer as data"
    if site.scaled:
        return "its density is scaled (handlers.scale, or a plate with subsampling)"
    return "a mask hides part of its density" if site.masked else None


def _is_noise(probe: "Probe", leaf: str, parameter: str, parents: frozenset[str]) -> bool:
    """Whether it is a pair of plain sites that makes a normal-gamma: a mean whose precision depends on a Gamma site."""
    family = {site.name: site.family for site in probe.sites}
    precision = probe.reward.get("precision")
    noise = frozenset() if precision is None else probe.depends(precision)
    gammas = all(family[parent] == "Gamma" and parent in noise for parent in parents)
    return family[leaf] == "Normal" and parameter == "precision" and bool(parents) and gammas


def _check_laws(probe: "Probe") -> None:
    law = probe.program.law.family
    _check_law(probe, "the transition law", probe.transition, ("Dirichlet",))
    means = MEAN_LEAVES.get(law, ())
    name = "the known reward" if law == KNOWN else f"the {law} law of the reward"
    for parameter, entries in probe.reward.items():
        _check_law(probe, name, entries, PRECISION_LEAVES if parameter == "precision" else means, parameter)
    families = (KNOWN, *(kind.__name__ for kind in LAWS))
    if law not in families or (law != KNOWN and all(entries.free for entries in probe.reward.values())):
        raise NotConjugate(
            f"prior: the reward law is {law} and depends on no site, expected known rewards as an array, or a Normal, "
            "Bernoulli or Poisson law of a conjugate site"
        )


def _check_law(
    probe: "Probe", law: str, entries: "Entries", leaves: tuple[str, ...], parameter: str | None = None
) -> None:
    depends = probe.depends(entries)
    # A noise that parents alone decide is a parameter of the leaf of the mean.
    above = frozenset(probe.parents) if parameter == "precision" and entries.free else frozenset()
    wrong = {s.name for s in probe.program.latents if s.name in depends - above and s.family not in leaves}
    wrong |= (depends - above) & frozenset(probe.parents)
    if wrong:
        expected = f"has a closed form over {' or '.join(leaves)} sites only" if leaves else "has no conjugate site"
        raise in_the_way(probe.program, first(probe.program, wrong), f"{law} depends on it, and {expected}")


def _check_used(probe: "Probe") -> None:
    used = probe.depends(probe.transition).union(*(probe.depends(entries) for entries in probe.reward.values()))
    for site in probe.sites:
        if site.name not in used:
            raise in_the_way(probe.program, site.name, "neither the transition law nor the reward law depends on it")
