"""What is in the way of an exact posterior, read off the sites of a traced program: one sentence, naming the site."""

from collections.abc import Iterable

from bayes_mdp.inference.trace import KNOWN, LAWS, Program, Site

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
    family = next(site.family for site in program.sites if site.name == name)
    message = (
        f"prior: site {name!r} ({family}) is in the way of an exact posterior: {why}. "
        "method='auto' samples what has no closed form"
    )
    return NotConjugate(message, name)


def check_sites(program: Program) -> None:
    """Refuse programs whose sites rule out a closed form.

    Raises:
        NotConjugate: factors, observations and parameters inside the prior; scaled or masked sites; leaves with latent
            parents; laws that depend on another kind of site; sites that nothing uses.
    """
    for site in program.sites:
        if why := _bent(site):
            raise in_the_way(program, site.name, why)
    for leaf, parameters in program.parents.items():
        for parameter, parents in parameters.items():
            if parents and not _is_noise(program, leaf, parameter, parents):
                parent = first(program, parents)
                raise in_the_way(
                    program, parent, f"{parameter} of site {leaf!r} depends on it, so that leaf has no closed form"
                )
    _check_laws(program)
    _check_used(program)


def first(program: Program, names: Iterable[str]) -> str:
    """The first of `names` in the order of the program."""
    return next(site.name for site in program.sites if site.name in set(names))


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


def _is_noise(program: Program, leaf: str, parameter: str, parents: frozenset[str]) -> bool:
    """Whether it is a pair of plain sites that makes a normal-gamma: a mean whose precision depends on a Gamma site."""
    family = {site.name: site.family for site in program.latents}
    noise = program.law_parents["reward"].get("precision", frozenset())
    gammas = all(family[parent] == "Gamma" and parent in noise for parent in parents)
    return family[leaf] == "Normal" and parameter == "precision" and gammas


def _check_laws(program: Program) -> None:
    law = program.law.family
    _check_law(program, "the transition law", program.law_parents["transition"], ("Dirichlet",))
    means = MEAN_LEAVES.get(law, ())
    name = "the known reward" if law == KNOWN else f"the {law} law of the reward"
    for parameter, parents in program.law_parents["reward"].items():
        _check_law(program, name, parents, PRECISION_LEAVES if parameter == "precision" else means)
    if law not in (KNOWN, *(kind.__name__ for kind in LAWS)) or (not _reward_parents(program) and law != KNOWN):
        raise NotConjugate(
            f"prior: the reward law is {law} and depends on no site, expected known rewards as an array, or a Normal, "
            "Bernoulli or Poisson law of a conjugate site"
        )


def _check_law(program: Program, law: str, parents: frozenset[str], leaves: tuple[str, ...]) -> None:
    wrong = {site.name for site in program.latents if site.name in parents and site.family not in leaves}
    if wrong:
        expected = f"has a closed form over {' or '.join(leaves)} sites only" if leaves else "has no conjugate site"
        raise in_the_way(program, first(program, wrong), f"{law} depends on it, and {expected}")


def _reward_parents(program: Program) -> frozenset[str]:
    return frozenset().union(*program.law_parents["reward"].values())


def _check_used(program: Program) -> None:
    used = program.law_parents["transition"] | _reward_parents(program)
    for site in program.latents:
        if site.name not in used:
            raise in_the_way(program, site.name, "neither the transition law nor the reward law depends on it")
