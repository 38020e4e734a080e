"""Detect conjugacy: from a traced prior to the tables of its closed-form posterior, or one sentence why not.

What has to be proven: given the data, the posterior of the program is a product of conjugate posteriors. It is, if

1. nothing but the conjugate sites and the laws has a density that they enter: no factor, observation, mask or scale, no
   site below them (`check_sites`);
2. every entry of a law is one element of a conjugate site, or known (`Probe.select`);
3. these elements make up whole Dirichlet rows, each in every row of the law that uses it (`detect_rows`);
4. and the parameters of each cell of the reward law are those of one conjugate cell, or known (`detect_rewards`), or
   its mean is linear in normal sites (`detect_regression`, below).

Then an observed transition multiplies the density of one Dirichlet row by one of its elements, and a reward multiplies
that of one cell by a likelihood of its family: textbook updates (Bernardo and Smith 1994, *Bayesian Theory*, section
5.2). All four are read from the data flow of the program (`probe`), none from values. The result is plain arrays;
`certify` checks them once more, by numbers, on the conditioned model.

A cell of step 4 has one of three shapes: one unknown parameter (of most families), a mean and a precision that are one
normal-gamma, a precision alone. Normal rewards may be affine: coefficient * x + offset, both known.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import jax
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Bool, Float, Int

from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior, conjugate_posterior
from bayes_mdp.inference.conjugate.regression import RegressionPrior, RegressionRewards, regression_rewards
from bayes_mdp.inference.conjugate.reward_cells import RewardCells, reward_cells
from bayes_mdp.inference.conjugate.rewards import KnownRewards, known_rewards
from bayes_mdp.inference.conjugate.site_table import SiteTable, site_rows
from bayes_mdp.inference.detection.degrees import is_affine
from bayes_mdp.inference.detection.detect_rows import (
    Assembly,
    batch_shape,
    check_sites,
    detect_rows,
    reward_sites,
    row_sites,
)
from bayes_mdp.inference.detection.probe import Layout, NotConjugate, Probe, inside
from bayes_mdp.inference.detection.trace import KNOWN, Site
from bayes_mdp.inference.families.family import families_of, reward_laws
from bayes_mdp.models.mdp_spec import RewardTable, check_mean
from bayes_mdp.models.reward_laws import law_mean
from bayes_mdp.utils.validation import check_positive, first_index

Elements: TypeAlias = tuple[Int[np.ndarray, "..."], ...]
"""For each unknown parameter of the reward law, the element behind each stacked cell."""
Table = Int[np.ndarray, "*cells"]


class Found(NamedTuple):
    """How the cells of a reward law are made of conjugate cells.

    Args:
        assembly: where the parameters of the sites go.
        elements: see `Elements`.
        table: the conjugate cell of each cell of the law, -1: none.
        coefficient, offset: [*cells], the law is that of coefficient * x + offset.
    """

    assembly: Assembly
    elements: Elements
    table: Table
    coefficient: Float[np.ndarray, "*cells"] | float = 1.0
    offset: Float[np.ndarray, "*cells"] | float = 0.0


def detect_rewards(
    probe: Probe, assembly: Assembly, possible: Bool[np.ndarray, "*H S A O"]
) -> tuple[RewardCells | KnownRewards, Elements, Assembly]:
    """The belief about rewards, the elements behind its cells for each parameter of the law, and its assembly.

    Args:
        probe: the program.
        assembly: of the rows.
        possible: the outcomes that can be observed; the reward of another needs no conjugate site.

    Raises:
        NotConjugate: there is none in closed form, and which site is in the way.
        ValueError: a known law without a mean.
    """
    law = probe.program.law
    # Known rewards have no density: all that is to be shown is that they are numbers.
    if law.family == KNOWN:
        probe.select("the reward law", probe.reward["mean"])
        return known_rewards(probe.known(probe.reward["mean"]), by_outcome=law.by_outcome), (), assembly
    observable = np.asarray(possible if law.by_outcome else possible.any(-1))
    # A law without unknowns has a density, and nothing to learn; the sites that `kept` names belong to other branches.
    if all(entries.free for entries in probe.reward.values()) and not reward_sites(probe):
        return _known_law(probe, observable), (), assembly
    if not families_of(law.family):
        families = ", ".join(kind.__name__ for kind in reward_laws())
        raise NotConjugate(
            f"prior: the reward law is {law.family}, which has no conjugate sites (those have: {families})"
        )
    # A precision that depends on a conjugate site makes both parameters of a normal law unknown, or it alone.
    precision = probe.reward.get("precision")
    paired = precision is not None and not precision.free
    find = _one_parameter if not paired else _precision if probe.reward["loc"].free else _normal_gamma
    rewards = find(probe, assembly)
    return _cells(probe, rewards, observable, paired), rewards.elements, rewards.assembly


def _cells(probe: Probe, found: Found, observable: Bool[np.ndarray, "*cells"], paired: bool) -> RewardCells:
    """The belief, with the law of the cells that are known."""
    assembly, table, law = found.assembly, found.table, probe.program.law
    # Proven so far: each cell is one conjugate cell, or depends on none. The latter must be known.
    _check_known(probe, observable & (table < 0))
    # Parameters of the prior of each site, checked.
    sites = (*assembly.joint, *assembly.plain)
    parameters = {site.name: probe.parameters(site) for site in (*sites, *assembly.gammas)}
    precision = probe.reward.get("precision")
    noise = None if precision is None or paired else probe.number(precision, "reward", "precision")
    belief = assembly.belief(parameters, noise)
    assert belief is not None  # the family is set
    known, known_law = None, None
    if (table < 0).any():
        known_law = _law_of_beliefs(_reward_law(probe), belief.law)
        # Mean of a known cell; of a law without one zero, which is not asked for.
        known = np.where(table < 0, np.nan_to_num(np.asarray(law_mean(known_law))), 0.0)
    names = tuple((site.name, _shape(site)) for site in sites)
    return reward_cells(
        belief,
        table.shape,
        by_outcome=law.by_outcome,
        cell=table,
        known=known,
        known_law=known_law,
        sites=names,
        affine=(found.coefficient, found.offset),
    )


def _shape(site: Site) -> tuple[int, ...]:
    return (
        site.shape[:-1]
        if site.family == "NormalGamma"
        else batch_shape(site)
        if site.family == "Dirichlet"
        else site.shape
    )


# Cells without unknowns


def _check_known(probe: Probe, cells: Bool[np.ndarray, "*cells"]) -> None:
    """Refuse cells that no conjugate site serves and whose law is not known either.

    Raises:
        NotConjugate: names a hyperparameter, or the cell.
    """
    for name, entries in probe.reward.items():
        free = entries.element == -1
        # A symbol that is known has a number.
        known = free & probe.symbols.known(entries.offset)
        if known.ndim > cells.ndim:  # a vector of probabilities
            known = known.all(-1)
        index = first_index(cells & ~known)
        if index is None:
            continue
        hyperparameters = probe.depends(entries) & frozenset(probe.hyperparameters)
        if hyperparameters:
            why = f"{name} of the reward of {probe.cell(index)} depends on it and on no conjugate site"
            raise probe.refuse(min(hyperparameters), why)
        raise NotConjugate(
            f"prior: {name} of the {probe.program.law.family} reward of {probe.cell(index)} is neither known nor that "
            "of a conjugate site"
        )


def _known_law(probe: Probe, observable: Bool[np.ndarray, "*cells"]) -> KnownRewards:
    """A reward law that is a distribution without unknowns: `Normal(0.5, 1)`.

    Raises:
        NotConjugate: a parameter depends on a latent site.
        ValueError: it has no mean.
    """
    if families_of(probe.program.law.family):
        _check_known(probe, observable)
    elif any(probe.depends(entries) for entries in probe.reward.values()):
        raise NotConjugate(f"prior: the reward law is {probe.program.law.family} and depends on a latent site")
    law = _reward_law(probe)
    check_mean(RewardTable(law, None, probe.program.law.by_outcome), probe.program.space)
    mean = np.nan_to_num(np.asarray(law_mean(law)))
    return known_rewards(mean, by_outcome=probe.program.law.by_outcome, law=law)


def _reward_law(probe: Probe) -> dist.Distribution:
    """The law itself, in every cell, at some values of the sites: known where it depends on none."""
    program = probe.program
    values = {site.name: inside(site) for site in program.latents if site.name in probe.layout.shapes}
    # Hyperparameters at zero: a known law does not depend on them.
    other_values = {name: np.zeros(x.shape, x.dtype) for name, x in program.values.items() if name not in values}
    table = jax.jit(program.reward_at)({**other_values, **values, **probe.held})
    assert table.law is not None  # it is no array
    return jax.tree.map(np.asarray, table.law)


def _law_of_beliefs(law: dist.Distribution, kind: type[dist.Distribution]) -> dist.Distribution:
    """The same law as beliefs draw it, of type `kind`: with probabilities for logits."""
    if isinstance(law, kind):
        return law
    # `arg_constraints` of NumPyro is a dict of the constructor's arguments.
    return kind(**{name: np.asarray(getattr(law, name)) for name in kind.arg_constraints})


# One unknown parameter


def _number(probe: Probe, elements: Int[np.ndarray, " L"]) -> Int[np.ndarray, " N"]:
    """Element -> its place in `elements`, -1 for others (the last entry is for "no element")."""
    # The last place catches -1.
    place = np.full(probe.layout.size + 1, -1)
    place[elements] = np.arange(len(elements))
    return place


def _elements(probe: Probe, sites: tuple[Site, ...]) -> Int[np.ndarray, " L"]:
    """The elements (of an event: its first entry) of sites, one after the other."""
    elements = [probe.layout.elements(site.name) for site in sites]
    vector = ("NormalGamma", "Dirichlet")
    firsts = [e[..., 0] if site.family in vector else e for e, site in zip(elements, sites, strict=True)]
    return np.concatenate([e.ravel() for e in firsts])


def _one_parameter(probe: Probe, assembly: Assembly) -> Found:
    """Families of one unknown parameter; of normal laws the mean, the noise being known."""
    law = probe.program.law.family
    single = [f for f in families_of(law) if len(f.sites) == 1 and "precision" not in f.sites]
    unknown = [next(iter(f.sites)) for f in single]
    parameter = next((name for name in unknown if not probe.reward[name].free), unknown[0])
    beliefs = {site: f for f in single for site in f.sites.get(parameter, ())}
    entries = probe.reward[parameter]
    sites_needed = probe.depends(entries) | probe.kept
    sites = tuple(site for site in probe.sites if site.name in sites_needed)
    for site in sites:
        if site.family not in beliefs:
            if site.family == "NormalGamma":
                raise probe.refuse(site.name, "the scale of the reward law does not depend on its precision")
            raise probe.refuse(
                site.name, f"{parameter} of the {law} law of the reward depends on it beside other sites"
            )
    family = beliefs[sites[0].family]
    assembly = assembly._replace(family=family, joint=sites)
    if family.is_vector():
        return _categorical(probe, assembly, parameter)
    # Step 2: the parameter of every cell is one element, or known; of a normal law an affine function of one.
    if law == "Normal":
        index, coefficient, offset = _affine(probe)
    else:
        index, coefficient, offset = probe.select("the reward law", entries), np.ones(entries.shape), 0.0
    elements = _elements(probe, sites)
    # Cell of the law -> cell of the belief.
    table = _number(probe, elements)[index]
    if "precision" in probe.reward:
        # Normal rewards also need one known noise for each mean.
        noise_cell, stretch = _noise(probe, table, len(elements), coefficient)
        assembly = assembly._replace(noise_cell=noise_cell, stretch=stretch)
    if family.known:
        known = {name: _known_parameter(probe, name, parameter, table, len(elements)) for name in family.known}
        assembly = assembly._replace(known=known)
    return Found(assembly, (elements,), table, coefficient, offset)


def _affine(probe: Probe) -> tuple[Table, Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"]]:
    """Element, coefficient and offset of the mean of every cell; -1, 1 and 0 where it is known."""
    entries = probe.reward["loc"]
    if not probe.affine(entries).all():
        # Not affine: the refusal names the site.
        probe.select("the reward law", entries)  # says what is in the way
    free = entries.element < 0
    coefficient = np.where(free, 1.0, probe.symbols.values(entries.coefficient))
    return entries.element, coefficient, np.where(free, 0.0, probe.symbols.values(entries.offset))


def _noise(
    probe: Probe, table: Table, size: int, coefficient: Float[np.ndarray, "*cells"]
) -> tuple[Int[np.ndarray, " L"], Float[np.ndarray, " L"] | None]:
    """A cell of the law for each element of the mean, and its squared coefficient: all its cells agree in both.

    x = (reward - offset) / coefficient has coefficient^2 times the precision of the reward; one number for each mean.
    """
    # The same symbol (equal whatever the hyperparameters are), or known and equal.
    ids = np.ascontiguousarray(probe.reward["precision"].offset)
    cell = np.zeros(size, np.int32)
    cell[table[table >= 0]] = np.flatnonzero(table >= 0)
    mean_ids, square = ids.ravel()[cell][table], coefficient**2
    others_square = square.ravel()[cell][table]
    values, mean_values = probe.symbols.values(ids) * square, probe.symbols.values(mean_ids) * others_square
    with np.errstate(invalid="ignore"):
        equal = (ids == mean_ids) & (square == others_square)
        equal |= np.abs(values - mean_values) <= 1e-12 * np.abs(values)
    index = first_index((table >= 0) & ~equal)
    if index is not None:
        site = probe.layout.site(int(probe.reward["loc"].element[index]))
        raise probe.refuse(
            site, f"one of its elements is the mean of cells of different noise ({probe.cell(index)} is one)"
        )
    stretch = square.ravel()[cell]
    return cell, None if (stretch == 1.0).all() else stretch


def _known_parameter(probe: Probe, name: str, unknown: str, table: Table, size: int) -> Float[np.ndarray, " L"]:
    """A parameter beside the unknown one, for each element: known, and one for all cells of an element."""
    entries = probe.reward[name]
    number = probe.symbols.values(entries.offset)
    index = first_index((table >= 0) & ~((entries.element == -1) & probe.symbols.known(entries.offset)))
    parameter = np.ones(size)
    parameter[table[table >= 0]] = number[table >= 0]
    if index is None:
        index = first_index((table >= 0) & (parameter[table] != number))
    if index is not None:
        site = probe.layout.site(int(probe.reward[unknown].element[index]))
        raise probe.refuse(site, f"{name} of {probe.cell(index)} is not known, or not that of its other cells")
    return parameter


def _categorical(probe: Probe, assembly: Assembly, parameter: str) -> Found:
    """Every cell of the law has one whole Dirichlet row as probabilities, value by value in order; or known ones."""
    entries, sites = probe.reward[parameter], assembly.joint
    width = entries.shape[-1]
    # Whole rows: the first element tells the row.
    index = probe.select("the reward law", entries)
    firsts = _elements(probe, sites)
    table = _number(probe, firsts)[index[..., 0]]
    # The elements of a row follow one another.
    whole = (index == index[..., :1] + np.arange(width)).all(-1) & (table >= 0)
    bad = first_index(~whole & ~(index < 0).all(-1))
    narrow = next((site for site in sites if site.shape[-1] != width), None)
    if bad is not None or narrow is not None:
        name = narrow.name if narrow is not None else probe.layout.site(int(index[bad].max()))
        raise probe.refuse(name, "the probabilities of a categorical reward are not one whole row of it, in its order")
    rows = firsts[:, None] + np.arange(width)
    return Found(assembly, (rows,), table)


# Unknown precision


def _precision(probe: Probe, assembly: Assembly) -> Found:
    """Normal rewards of known mean: every precision is a known multiple of one Gamma element.

    reward = mean + factor^-1/2 x, x ~ Normal(0, 1 / element).
    """
    law, entries = probe.program.law.family, probe.reward["precision"]
    sites = tuple(site for site in probe.sites if site.name in probe.depends(entries) | probe.kept)
    not_gamma = next((site for site in sites if site.family != "Gamma"), None)
    if not_gamma is not None:
        raise probe.refuse(not_gamma.name, "the mean of the rewards does not depend on its mean")
    # factor times an element.
    index, factor = _multiples(probe)
    if law != "Normal":
        raise probe.refuse(sites[0].name, "the precision of the rewards is unknown while their mean is known")
    loc, used = probe.reward["loc"], index >= 0
    place = first_index(used & ~probe.symbols.known(loc.offset))
    if place is not None:
        raise probe.refuse(sites[0].name, f"the mean of the reward of {probe.cell(place)} is not known")
    elements = _elements(probe, sites)
    offset = np.where(used, probe.symbols.values(loc.offset), 0.0)
    family = next(family for family in families_of(law) if set(family.sites) == {"precision"})
    assembly = assembly._replace(family=family, joint=sites)
    # precision = factor tau: the reward is scaled by factor^-1/2.
    return Found(assembly, (elements,), _number(probe, elements)[index], factor**-0.5, offset)


def _multiples(probe: Probe) -> tuple[Table, Float[np.ndarray, "*cells"]]:
    """The element that each precision is a known, positive multiple of, and the factor; -1 and 1 where it is known."""
    entries = probe.reward["precision"]
    factor = probe.symbols.values(entries.coefficient)
    with np.errstate(invalid="ignore"):
        multiple = probe.multiples(entries) & probe.symbols.known(entries.coefficient)
        multiple &= (factor > 0) & (factor < np.inf)
    index = first_index((entries.element != -1) & ~multiple)
    if index is not None:
        probe.select("the reward law", entries)  # says what is in the way
    return entries.element, np.where(multiple, factor, 1.0)


def _normal_gamma(probe: Probe, assembly: Assembly) -> Found:
    """Normal-gamma cells, of joint sites first, then of pairs of plain sites."""
    joint, plain, parts = probe.of("NormalGamma"), probe.of("Normal"), []
    gammas = probe.of("Gamma") if plain else ()
    if not joint and not plain:
        raise probe.refuse(
            next(iter(sorted(probe.depends(probe.reward["loc"])))), "it is the mean of rewards of unknown precision"
        )
    if joint:
        # Mean and precision lie side by side in the last axis of the site.
        elements = _elements(probe, joint)
        parts.append((elements, elements + 1))
    order = None
    # A pair of plain sites is proven to be a normal-gamma first; then both kinds are treated alike.
    if plain:
        order, *pair = _pairs(probe, plain)
        parts.append(tuple(pair))
    mean, precision = (np.concatenate(column) for column in zip(*parts, strict=True))
    law = probe.program.law.family
    if law == "Normal":
        loc, coefficient, offset = _affine(probe)
        scale, factor = _multiples(probe)
    else:
        loc, scale = (probe.select("the reward law", probe.reward[name]) for name in ("loc", "precision"))
        coefficient, offset, factor = np.ones(loc.shape), 0.0, np.ones(loc.shape)
    # Both parameters of a cell come from one pair, or neither from any.
    table = _number(probe, mean)[loc]
    index = first_index((table != _number(probe, precision)[scale]) | ((table < 0) & ((loc >= 0) | (scale >= 0))))
    if index is not None:
        element = loc[index] if loc[index] >= 0 else scale[index]
        why = f"in the reward law of {probe.cell(index)} mean and precision do not belong to one normal-gamma site"
        raise probe.refuse(probe.layout.site(int(element)), why)
    # x = (reward - offset) / coefficient has the precision coefficient^2 factor times the element: one for each pair.
    stretched = coefficient**2 * factor
    stretch = np.ones(len(mean))
    stretch[table[table >= 0]] = stretched[table >= 0]
    index = first_index((table >= 0) & ~(np.abs(stretch[table] - stretched) <= 1e-12 * stretched))
    if index is not None:
        why = f"one of its elements is the mean of cells of different noise ({probe.cell(index)} is one)"
        raise probe.refuse(probe.layout.site(int(loc[index])), why)
    assembly = assembly._replace(
        family=next(family for family in families_of(law) if len(family.sites) == 2),
        joint=joint,
        plain=plain,
        gammas=gammas,
        order=order,
        stretch=None if (stretch == 1.0).all() else stretch,
    )
    return Found(assembly, (mean, precision), table, coefficient, offset)


def _pairs(probe: Probe, sites: tuple[Site, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Normal sites whose precision is a known multiple of one element of a Gamma site each: normal-gamma cells.

    mean | precision ~ Normal(loc, precision * pseudo_count) and precision ~ Gamma is the normal-gamma law, if no other
    mean uses that precision.

    Returns the Gamma element of each, and the elements of both.
    """
    rates = probe.of("Gamma")
    if not rates:
        raise probe.refuse(sites[0].name, "the precision of the rewards is unknown and does not scale its own")
    # Normal(loc, factor precision): a factor that is free of conjugate sites, times one element of a Gamma site.
    for site in sites:
        entries = probe.parameters_of[site.name]["precision"]
        if not probe.multiples(entries).all():
            if entries.free:
                why = f"it is the precision of the rewards, and that of site {site.name!r} is no multiple of it"
                raise probe.refuse(rates[0].name, why)
            raise probe.refuse(site.name, "its precision is no multiple of one element of the precision of the rewards")
    precision = np.concatenate([probe.parameters_of[site.name]["precision"].element.ravel() for site in sites])
    elements = _elements(probe, rates)
    # One mean for each precision: with two, the posterior would not be a product over cells.
    uses = np.bincount(precision, minlength=probe.layout.size)[elements]
    index = first_index(uses != 1)
    if index is not None:
        site = probe.layout.site(int(elements[index]))
        raise probe.refuse(site, f"one of its elements scales {uses[index]} means, expected one each")
    return _number(probe, elements)[precision].astype(np.int32), _elements(probe, sites), precision


class Detected(NamedTuple):
    """A conjugate prior as arrays, and where its parts lie among the elements of the program's sites.

    Args:
        posterior: the belief before any data.
        layout: the elements of all conjugate sites in one vector.
        rows: [M K], the element behind each entry of the stacked Dirichlet rows, -1 for padding.
        possible: [*H S A O], outcomes of legal pairs that can be observed.
        cells: for each parameter of the reward law (the mean first) [L], the element behind each stacked cell.
        assembly: how the parameters of the sites make the prior of `posterior`.
        constants: {observed site whose density is a known number: its log}.
    """

    posterior: ConjugatePosterior
    layout: Layout
    rows: Int[np.ndarray, "M K"]
    possible: Bool[np.ndarray, "*H S A O"]
    cells: Elements
    assembly: Assembly
    constants: Mapping[str, float] = MappingProxyType({})


def detect(probe: Probe) -> Detected:
    """The closed form of a traced prior. Host side, in float64.

    Raises:
        NotConjugate: there is none, and which site is in the way.
        ValueError: a parameter of a conjugate site is out of its range.
    """
    # Step 1: the sites. From here on the prior density is a product over the conjugate sites, and data enter by the
    # laws alone.
    check_sites(probe, alone=not probe.hyperparameters and not probe.held)
    program = probe.program
    # Steps 2 and 3: the rows. Which entries are known decides which outcomes are possible, and so which rewards matter.
    assembly = Assembly(row_sites(probe), program.space.n_outcomes)
    rows, row_elements, possible = detect_rows(probe, assembly)
    # Steps 2 and 4: the rewards.
    try:
        rewards, cell_elements, assembly = detect_rewards(probe, assembly, possible)
    except NotConjugate as error:
        # No cell by cell: the means may still be linear in sites that cells share. The first refusal says more.
        try:
            rewards, cell_elements, assembly = detect_regression(probe, assembly, possible)
        except NotConjugate:
            raise error from None
    # Proven: the posterior after any data is the product of the updated rows and cells.
    table = SiteTable(
        tuple(probe.layout.shapes.items()),
        site_rows(row_elements, probe.layout.size),
        cell_elements,
        # The tables hold stretch * precision (see `Assembly`).
        None if assembly.stretch is None or len(cell_elements) < 2 else assembly.stretch,
        program.prior,
    )
    posterior = conjugate_posterior(rows, rewards, program.space, table)
    return Detected(posterior, probe.layout, row_elements, possible, cell_elements, assembly, probe.constants)


MOST_NUMBERS = 2**24
"""Features of all cells together, and entries of the precision of the weights."""


# Step 4, where cells share sites: normal rewards whose means are linear in normal sites, whatever the program calls
# them. That they are affine, with known coefficients, is read from the data flow (`degrees`); the coefficients are
# then the derivatives of the means, taken where the sites are zero.


def detect_regression(
    probe: Probe, assembly: Assembly, possible: Bool[np.ndarray, "*H S A O"]
) -> tuple[RegressionRewards, Elements, Assembly]:
    """The belief about rewards with linear means, the elements of the weights (and of the precision), its assembly.

    Args: as `detect_rewards`.

    Raises:
        NotConjugate: the rewards are no regression over conjugate sites; names the site in the way.
        ValueError: a noise that is not positive.
    """
    program = probe.program
    used = reward_sites(probe)
    sites = tuple(site for site in probe.sites if site.name in used)
    weights = tuple(site for site in sites if site.family in ("Normal", "MultivariateNormal"))
    noise = tuple(site for site in sites if site.family == "Gamma")
    # A regression has normal weights and at most one Gamma precision.
    if program.law.family != "Normal" or not weights or len(weights) + len(noise) != len(sites):
        raise NotConjugate("prior: the rewards are no linear regression over normal sites")
    if probe.hyperparameters or probe.held:
        raise NotConjugate("prior: a linear regression has a closed form where its weights have no hyperparameters")
    names = frozenset(site.name for site in weights)
    if not is_affine(program, names, "loc"):
        raise probe.refuse(weights[0].name, "the mean of the rewards is not linear in it, with known coefficients")
    # The derivatives [cells, weights] and the precision [weights, weights] are held whole.
    number = sum(int(np.prod(site.shape)) for site in weights)
    cells = int(np.prod(probe.reward["loc"].shape))
    if number * max(cells, number) > MOST_NUMBERS:
        # Held whole: features of every cell for every weight.
        raise probe.refuse(weights[0].name, f"{number} weights and {cells} cells are too many for one regression")
    elements = np.concatenate([probe.layout.elements(site.name).ravel() for site in weights])
    tau = _noise_element(probe, noise)
    observable = np.asarray(possible if program.law.by_outcome else possible.any(-1))
    precision = _noise_precision(probe, tau, observable)
    # Slopes by automatic differentiation, at zero.
    offset, features = _coefficients(probe, weights)
    finite = np.isfinite(offset) & np.isfinite(features).all(-1)
    index = first_index(observable & ~finite)
    if index is not None:
        raise probe.refuse(weights[0].name, f"a coefficient of it in the reward of {probe.cell(index)} is not finite")
    # Where no reward can be observed the features do not matter.
    offset, features = np.where(finite, offset, 0.0), np.where(finite[..., None], features, 0.0)
    loc, prior_precision = _weights_prior(probe, weights, tau)
    concentration = rate = None
    reward_elements: Elements = (elements,)
    if tau is not None:
        parameters = probe.parameters(noise[0])
        noise_element = tau - int(probe.layout.elements(noise[0].name).min())
        # Of the one element that scales all precisions.
        concentration, rate = (
            np.asarray(parameters[name].ravel()[noise_element]) for name in ("concentration", "rate")
        )
        reward_elements = (elements, np.array([tau]))
    prior = RegressionPrior(loc, prior_precision, concentration, rate)
    shapes = tuple((site.name, site.shape) for site in (*weights, *noise))
    rewards = regression_rewards(prior, features, offset, precision, by_outcome=program.law.by_outcome, sites=shapes)
    return rewards, reward_elements, assembly


def _noise_element(probe: Probe, noise: tuple[Site, ...]) -> int | None:
    """The one Gamma element that scales every precision; None: noise is known.

    Raises:
        NotConjugate: there are several.
    """
    if not noise:
        return None
    size = sum(int(np.prod(site.shape)) for site in noise)
    if size != 1:
        raise probe.refuse(noise[0].name, f"a linear regression has one unknown precision, and here are {size}")
    return int(probe.layout.elements(noise[0].name).ravel()[0])


def _noise_precision(
    probe: Probe, tau: int | None, observable: Bool[np.ndarray, "*cells"]
) -> Float[np.ndarray, "*cells"]:
    """The known precision of every cell, over tau where that is unknown; one where no reward can be observed.

    Raises:
        NotConjugate: it is not known, or does not scale with tau.
        ValueError: it is not positive.
    """
    entries = probe.reward["precision"]
    symbols = probe.symbols
    # With an unknown tau the precision must be a known multiple of it, and that multiple is what is returned.
    if tau is None:
        known, ids = (entries.element == -1) & symbols.known(entries.offset), entries.offset
    else:
        known, ids = probe.multiples(entries) & symbols.known(entries.coefficient), entries.coefficient
    index = first_index(observable & ~known)
    if index is not None:
        depends = sorted(probe.depends(entries)) or [probe.program.latents[0].name]
        raise probe.refuse(
            depends[0], f"the precision of the reward of {probe.cell(index)} is no known multiple of one"
        )
    precision = np.where(observable, symbols.values(ids), 1.0)
    check_positive("prior: precision of the rewards", precision)
    return precision


def _coefficients(
    probe: Probe, weights: tuple[Site, ...]
) -> tuple[Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells D"]]:
    """Means where all weights are zero, and their derivatives: exact, for they are affine."""
    program = probe.program
    # Sites beside the weights: any value will do, the mean is free of them.
    other_values = {site.name: inside(site) for site in program.latents if site not in weights}

    def mean(flat: Float[jax.Array, " D"]) -> Float[jax.Array, "*cells"]:
        values, start = {}, 0
        for site in weights:
            stop = start + int(np.prod(site.shape))
            values[site.name] = flat[start:stop].reshape(site.shape)
            start = stop
        return program.evaluate({**other_values, **values})["reward"]["loc"]

    zero = np.zeros(sum(int(np.prod(site.shape)) for site in weights))
    # Affine: value and slope at one point are all of it.
    offset, slopes = jax.jit(lambda x: (mean(x), jax.jacfwd(mean)(x)))(zero)
    return np.asarray(offset, np.float64), np.asarray(slopes, np.float64)


def _weights_prior(
    probe: Probe, weights: tuple[Site, ...], tau: int | None
) -> tuple[Float[np.ndarray, " D"], Float[np.ndarray, "D D"]]:
    """Mean and precision of all weights together; the precision over tau, where that is unknown.

    Raises:
        NotConjugate: the precision of a weight does not scale with that of the rewards.
    """
    locs, blocks = [], []
    for site in weights:
        parameters = probe.parameters(site)
        locs.append(parameters["loc"].ravel())
        if site.family == "MultivariateNormal":
            if tau is not None:
                raise probe.refuse(site.name, "its covariance does not scale with the unknown precision of the rewards")
            # The precision of each row: (L L')^-1.
            roots = parameters["scale_tril"].reshape(-1, site.shape[-1], site.shape[-1])
            blocks.extend(np.linalg.inv(root @ root.T) for root in roots)
            continue
        entries = probe.parameters_of[site.name]["precision"]
        scaled = (probe.multiples(entries) & (entries.element == tau)).all() if tau is not None else entries.free
        if not scaled:
            raise probe.refuse(site.name, "its precision is no multiple of the unknown precision of the rewards")
        blocks.extend(np.array([[x]]) for x in parameters["precision"].ravel())
    # Weights of different sites are independent before data: their precision is block diagonal.
    size = sum(len(x) for x in locs)
    precision, start = np.zeros((size, size)), 0
    for block in blocks:
        stop = start + len(block)
        precision[start:stop, start:stop] = block
        start = stop
    return np.concatenate(locs), precision
