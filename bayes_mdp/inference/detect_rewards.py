"""The reward half of `detect`: which leaf is behind each cell of the reward law, and the belief about it."""

from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from bayes_mdp.inference.families import BetaBelief, GammaBelief, NormalBelief, NormalGammaBelief
from bayes_mdp.inference.probe import Probe
from bayes_mdp.inference.rewards import KnownRewards, RewardCells, known_rewards, reward_cells
from bayes_mdp.inference.trace import KNOWN, Site
from bayes_mdp.mdp.validation import first_index

Elements = tuple[Int[np.ndarray, " L"], ...]


def detect_rewards(probe: Probe, possible: Bool[np.ndarray, "*H S A O"]) -> tuple[RewardCells | KnownRewards, Elements]:
    """The belief about rewards, and for each parameter of the law the elements behind its leaves.

    Args:
        probe: the program.
        possible: the outcomes that can be seen; the reward of another needs no leaf.

    Raises:
        ValueError: there is none in closed form, and which site is in the way.
    """
    program, law = probe.program, probe.program.law
    if law.family == KNOWN:
        return known_rewards(probe.answers["reward"]["mean"].zero, by_outcome=law.by_outcome), ()
    if program.law_parents["reward"].get("precision"):
        belief, sites, elements, table = _normal_gamma(probe)
    else:
        belief, sites, elements, table = _one_parameter(probe)
    index = first_index((possible if law.by_outcome else possible.any(-1)) & (table < 0))
    if index is not None:
        raise ValueError(
            f"prior: the {law.family} law of the reward of {probe.cell(index)} depends on no site while others do, "
            "expected a conjugate site in every cell"
        )
    known = np.nan_to_num(next(iter(probe.answers["reward"].values())).zero)
    names = tuple((site.name, site.shape[: len(site.shape) - (site.family == "NormalGamma")]) for site in sites)
    cells = reward_cells(belief, table.shape, by_outcome=law.by_outcome, cell=table, known=known, sites=names)
    return cells, elements


def _select(probe: Probe, parameter: str) -> Int[np.ndarray, "*cells"]:
    parents = probe.program.law_parents["reward"][parameter]
    return probe.select("the reward law", lambda answers: answers["reward"][parameter], parents)


def _number(probe: Probe, elements: Int[np.ndarray, " L"]) -> Int[np.ndarray, " N"]:
    """Element -> number of its leaf, -1 for others (the last entry stands for "no element")."""
    leaf_of = np.full(probe.layout.size + 1, -1)
    leaf_of[elements] = np.arange(len(elements))
    return leaf_of


def _stack(probe: Probe, sites: tuple[Site, ...]) -> tuple[dict[str, Any], Int[np.ndarray, " L"]]:
    """Parameters and elements (of the first entry of an event) of sites of one family, one after the other."""
    parameters = [probe.parameters(site) for site in sites]
    stacked = {name: np.concatenate([p[name].ravel() for p in parameters]) for name in parameters[0]}
    elements = [probe.layout.elements(site.name) for site in sites]
    firsts = [e[..., 0] if site.family == "NormalGamma" else e for e, site in zip(elements, sites, strict=True)]
    return stacked, np.concatenate([e.ravel() for e in firsts])


def _one_parameter(probe: Probe) -> tuple[Any, tuple[Site, ...], Elements, np.ndarray]:
    """Beta under Bernoulli, Gamma under Poisson, Normal under Normal of known noise."""
    parameter = "loc" if probe.program.law.family == "Normal" else "mean"
    wanted = probe.program.law_parents["reward"][parameter]
    sites = tuple(site for site in probe.program.latents if site.name in wanted)
    index = _select(probe, parameter)
    if sites[0].family == "NormalGamma":
        raise probe.refuse(sites[0].name, "the scale of the reward law does not depend on its precision")
    leaves, elements = _stack(probe, sites)
    table = _number(probe, elements)[index]
    if probe.program.law.family == "Normal":
        noise = _noise(probe, table, len(elements))
        belief: Any = NormalBelief(leaves["loc"], leaves["precision"] ** -0.5, noise)
    else:
        belief = (BetaBelief if sites[0].family == "Beta" else GammaBelief)(**leaves)
    return belief, sites, (elements,), table


def _noise(probe: Probe, table: Int[np.ndarray, "*cells"], size: int) -> Any:
    """The known standard deviation of the rewards of each leaf; one leaf has one."""
    scale = probe.answers["reward"]["precision"].zero ** -0.5
    noise = np.ones(size)
    noise[table[table >= 0]] = scale[table >= 0]
    index = first_index((table >= 0) & (np.abs(noise[table] - scale) > 1e-12 * scale))
    if index is not None:
        site = probe.layout.site(int(_select(probe, "loc")[index]))
        raise probe.refuse(
            site, f"one of its elements is the mean of cells of different noise ({probe.cell(index)} is one)"
        )
    return noise


def _normal_gamma(probe: Probe) -> tuple[Any, tuple[Site, ...], Elements, np.ndarray]:
    """Normal-gamma leaves, joint sites first, then pairs of plain sites."""
    joint, plain, parts = probe.sites("NormalGamma"), probe.sites("Normal"), []
    if not joint and not plain:
        raise probe.refuse(
            probe.sites("Gamma")[0].name, "the precision of the rewards is unknown while their mean is known"
        )
    if joint:
        leaves, elements = _stack(probe, joint)
        parts.append((leaves, elements, elements + 1))
    if plain:
        parts.append(_pairs(probe, plain))
    stacked: dict[str, Any] = {name: np.concatenate([part[0][name] for part in parts]) for name in parts[0][0]}
    belief = NormalGammaBelief(**stacked)
    mean, precision = (np.concatenate([p[i] for p in parts]) for i in (1, 2))
    loc, scale = _select(probe, "loc"), _select(probe, "precision")
    table = _number(probe, mean)[loc]
    index = first_index((table != _number(probe, precision)[scale]) | ((table < 0) & ((loc >= 0) | (scale >= 0))))
    if index is not None:
        element = loc[index] if loc[index] >= 0 else scale[index]
        why = f"in the reward law of {probe.cell(index)} mean and precision do not belong to one normal-gamma leaf"
        raise probe.refuse(probe.layout.site(int(element)), why)
    return belief, (*joint, *plain), (mean, precision), table


def _pairs(probe: Probe, sites: tuple[Site, ...]) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """Normal sites whose precision is a known multiple of one element of a Gamma site each: normal-gamma leaves."""
    rates = probe.sites("Gamma")
    for site in sites:
        entries = probe.answers["leaves"][site.name]["precision"]
        if not (entries.single() & (entries.index() >= 0)).all():
            raise probe.refuse(site.name, "its precision is no multiple of one element of the precision of the rewards")
    precision = np.concatenate([probe.answers["leaves"][site.name]["precision"].index().ravel() for site in sites])
    elements = np.concatenate([probe.layout.elements(site.name).ravel() for site in rates])
    uses = np.bincount(precision, minlength=probe.layout.size)[elements]
    index = first_index(uses != 1)
    if index is not None:
        site = probe.layout.site(int(elements[index]))
        raise probe.refuse(site, f"one of its elements scales {uses[index]} means, expected one each")
    leaves, mean = _stack(probe, sites)
    gammas, order = _stack(probe, rates)[0], _number(probe, elements)[precision]
    parameters = {"loc": leaves["loc"], "pseudo_count": leaves["precision"]}
    return parameters | {name: value[order] for name, value in gammas.items()}, mean, precision
