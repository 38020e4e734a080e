"""The reward half of `detect`: which leaf is behind each cell of the reward law, and the belief about it."""

from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from bayes_mdp.inference.assemble import Assembly
from bayes_mdp.inference.families import BetaBelief, GammaBelief, NormalBelief, NormalGammaBelief
from bayes_mdp.inference.probe import Probe
from bayes_mdp.inference.refusals import NotConjugate
from bayes_mdp.inference.rewards import KnownRewards, RewardCells, known_rewards, reward_cells
from bayes_mdp.inference.trace import KNOWN, Site
from bayes_mdp.mdp.validation import first_index

Elements = tuple[Int[np.ndarray, " L"], ...]


def detect_rewards(
    probe: Probe, assembly: Assembly, possible: Bool[np.ndarray, "*H S A O"]
) -> tuple[RewardCells | KnownRewards, Elements, Assembly]:
    """The belief about rewards, the elements behind its leaves for each parameter of the law, and its assembly.

    Args:
        probe: the program.
        assembly: of the rows.
        possible: the outcomes that can be seen; the reward of another needs no leaf.

    Raises:
        ValueError: there is none in closed form, and which site is in the way.
    """
    law = probe.program.law
    if law.family == KNOWN:
        _select(probe, "mean")
        return known_rewards(probe.known(probe.reward["mean"]), by_outcome=law.by_outcome), (), assembly
    precision = probe.reward.get("precision")
    paired = precision is not None and not precision.free
    assembly, elements, table = (_normal_gamma if paired else _one_parameter)(probe, assembly)
    index = first_index((possible if law.by_outcome else possible.any(-1)) & (table < 0))
    if index is not None:
        raise NotConjugate(
            f"prior: the {law.family} law of the reward of {probe.cell(index)} depends on no site while others do, "
            "expected a conjugate site in every cell"
        )
    known = np.nan_to_num(probe.known(next(iter(probe.reward.values()))))
    sites = (*assembly.joint, *assembly.plain)
    parameters = {site.name: probe.parameters(site) for site in (*sites, *assembly.gammas)}
    noise = None if precision is None or paired else probe.number(precision, "reward", "precision")
    belief: Any = assembly.belief(parameters, noise)
    names = tuple((site.name, site.shape[: len(site.shape) - (site.family == "NormalGamma")]) for site in sites)
    cells = reward_cells(belief, table.shape, by_outcome=law.by_outcome, cell=table, known=known, sites=names)
    return cells, elements, assembly


def _select(probe: Probe, parameter: str) -> Int[np.ndarray, "*cells"]:
    return probe.select("the reward law", probe.reward[parameter])


def _number(probe: Probe, elements: Int[np.ndarray, " L"]) -> Int[np.ndarray, " N"]:
    """Element -> number of its leaf, -1 for others (the last entry stands for "no element")."""
    leaf_of = np.full(probe.layout.size + 1, -1)
    leaf_of[elements] = np.arange(len(elements))
    return leaf_of


def _elements(probe: Probe, sites: tuple[Site, ...]) -> Int[np.ndarray, " L"]:
    """The elements (of an event: its first entry) of sites, one after the other."""
    elements = [probe.layout.elements(site.name) for site in sites]
    firsts = [e[..., 0] if site.family == "NormalGamma" else e for e, site in zip(elements, sites, strict=True)]
    return np.concatenate([e.ravel() for e in firsts])


def _one_parameter(probe: Probe, assembly: Assembly) -> tuple[Assembly, Elements, np.ndarray]:
    """Beta under Bernoulli, Gamma under Poisson, Normal under Normal of known noise."""
    law = probe.program.law.family
    parameter = "loc" if law == "Normal" else "mean"
    index = _select(probe, parameter)
    wanted = probe.depends(probe.reward[parameter]) | probe.kept
    sites = tuple(site for site in probe.sites if site.name in wanted)
    if sites[0].family == "NormalGamma":
        raise probe.refuse(sites[0].name, "the scale of the reward law does not depend on its precision")
    elements = _elements(probe, sites)
    table = _number(probe, elements)[index]
    noise_cell = _noise(probe, table, len(elements)) if law == "Normal" else None
    family = NormalBelief if law == "Normal" else BetaBelief if sites[0].family == "Beta" else GammaBelief
    assembly = assembly._replace(family=family, joint=sites, noise_cell=noise_cell)
    return assembly, (elements,), table


def _noise(probe: Probe, table: Int[np.ndarray, "*cells"], size: int) -> Int[np.ndarray, " L"]:
    """A cell of each leaf; all cells of a leaf have the same known noise."""
    # Of one symbol (equal whatever the parents are), or known and equal.
    ids = np.ascontiguousarray(probe.reward["precision"].offset)
    cell = np.zeros(size, np.int32)
    cell[table[table >= 0]] = np.flatnonzero(table >= 0)
    other = ids.ravel()[cell][table]
    values, others = probe.symbols.values(ids), probe.symbols.values(other)
    with np.errstate(invalid="ignore"):
        same = (ids == other) | (np.abs(values - others) <= 1e-12 * np.abs(values))
    index = first_index((table >= 0) & ~same)
    if index is not None:
        site = probe.layout.site(int(_select(probe, "loc")[index]))
        raise probe.refuse(
            site, f"one of its elements is the mean of cells of different noise ({probe.cell(index)} is one)"
        )
    return cell


def _normal_gamma(probe: Probe, assembly: Assembly) -> tuple[Assembly, Elements, np.ndarray]:
    """Normal-gamma leaves, joint sites first, then pairs of plain sites."""
    joint, plain, parts = probe.of("NormalGamma"), probe.of("Normal"), []
    gammas = probe.of("Gamma") if plain else ()
    if not joint and not plain:
        raise probe.refuse(
            probe.of("Gamma")[0].name, "the precision of the rewards is unknown while their mean is known"
        )
    if joint:
        elements = _elements(probe, joint)
        parts.append((elements, elements + 1))
    order = None
    if plain:
        order, *pair = _pairs(probe, plain)
        parts.append(tuple(pair))
    mean, precision = (np.concatenate(column) for column in zip(*parts, strict=True))
    loc, scale = _select(probe, "loc"), _select(probe, "precision")
    table = _number(probe, mean)[loc]
    index = first_index((table != _number(probe, precision)[scale]) | ((table < 0) & ((loc >= 0) | (scale >= 0))))
    if index is not None:
        element = loc[index] if loc[index] >= 0 else scale[index]
        why = f"in the reward law of {probe.cell(index)} mean and precision do not belong to one normal-gamma leaf"
        raise probe.refuse(probe.layout.site(int(element)), why)
    assembly = assembly._replace(family=NormalGammaBelief, joint=joint, plain=plain, gammas=gammas, order=order)
    return assembly, (mean, precision), table


def _pairs(probe: Probe, sites: tuple[Site, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Normal sites whose precision is a known multiple of one element of a Gamma site each: normal-gamma leaves.

    Returns the Gamma leaf of each, and the elements of both.
    """
    rates = probe.of("Gamma")
    if not rates:
        raise probe.refuse(sites[0].name, "the precision of the rewards is unknown and does not scale its own")
    for site in sites:
        entries = probe.leaves[site.name]["precision"]
        if not probe.multiples(entries).all():
            if entries.free:
                why = f"it is the precision of the rewards, and that of site {site.name!r} is no multiple of it"
                raise probe.refuse(rates[0].name, why)
            raise probe.refuse(site.name, "its precision is no multiple of one element of the precision of the rewards")
    precision = np.concatenate([probe.leaves[site.name]["precision"].element.ravel() for site in sites])
    elements = _elements(probe, rates)
    uses = np.bincount(precision, minlength=probe.layout.size)[elements]
    index = first_index(uses != 1)
    if index is not None:
        site = probe.layout.site(int(elements[index]))
        raise probe.refuse(site, f"one of its elements scales {uses[index]} means, expected one each")
    return _number(probe, elements)[precision].astype(np.int32), _elements(probe, sites), precision
