"""Detect conjugacy: from a traced prior to the tables of its closed-form posterior, or one sentence why not.

What has to be proven: given the data, the posterior of the program is a product of conjugate posteriors. It is, if

1. nothing but the conjugate sites and the laws has a density that they enter: no factor, observation, mask or scale, no
   site below them (`check_sites`);
2. every entry of a law is one element of a conjugate site, or known (`Probe.select`);
3. these elements make up whole Dirichlet rows, each in every row of the law that uses it (`detect_rows`);
4. and the parameters of each cell of the reward law are those of one conjugate cell (`detect_rewards`).

Then an observed transition multiplies the density of one Dirichlet row by one of its elements, and a reward multiplies
that of one cell by a likelihood of its family: textbook updates (Bernardo and Smith 1994, *Bayesian Theory*, section
5.2). All four are read from the data flow of the program (`probe`), none from values. The result is plain arrays;
`certify` checks them once more, by numbers, on the conditioned model.
"""

from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Int

from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.conjugate.dirichlet_rows import DirichletRows, dirichlet_rows
from bayes_mdp.inference.conjugate.families import BetaBelief, GammaBelief, NormalBelief, NormalGammaBelief
from bayes_mdp.inference.conjugate.layered import conjugate_posterior
from bayes_mdp.inference.conjugate.reward_cells import KnownRewards, RewardCells, known_rewards, reward_cells
from bayes_mdp.inference.detection.assemble import Assembly
from bayes_mdp.inference.detection.dataflow import Entries
from bayes_mdp.inference.detection.probe import Layout, NotConjugate, Probe, first, in_the_way
from bayes_mdp.inference.detection.trace import KNOWN, LAWS, Site
from bayes_mdp.mdp.validation import check_probability_rows, first_index

MEAN_FAMILIES = {
    "Normal": ("Normal", "NormalGamma"),
    "BernoulliProbs": ("Beta",),
    "BernoulliLogits": ("Beta",),
    "Poisson": ("Gamma",),
}
"""Reward law -> the families that are conjugate for its mean."""
PRECISION_FAMILIES = ("Gamma", "NormalGamma")

Elements: TypeAlias = tuple[Int[np.ndarray, " L"], ...]
"""For each parameter of the reward law (the mean first), the element behind each stacked cell."""


class Detected(NamedTuple):
    """A conjugate prior as arrays, and where its parts lie among the elements of the program's sites.

    Args:
        posterior: the belief before any data.
        layout: the elements of all conjugate sites in one vector.
        rows: [M K], the element behind each entry of the stacked Dirichlet rows, -1 for padding.
        possible: [*H S A O], outcomes of legal pairs that can be observed.
        cells: for each parameter of the reward law (the mean first) [L], the element behind each stacked cell.
        assembly: how the parameters of the sites make the prior of `posterior`.
    """

    posterior: ConjugatePosterior
    layout: Layout
    rows: Int[np.ndarray, "M K"]
    possible: Bool[np.ndarray, "*H S A O"]
    cells: Elements
    assembly: Assembly


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
    assembly = Assembly(probe.of("Dirichlet"), program.space.n_outcomes)
    rows, row_elements, possible = detect_rows(probe, assembly)
    # Steps 2 and 4: the rewards.
    rewards, cell_elements, assembly = detect_rewards(probe, assembly, possible)
    # Proven: the posterior after any data is the product of the updated rows and cells.
    posterior = conjugate_posterior(rows, rewards, program.space)
    return Detected(posterior, probe.layout, row_elements, possible, cell_elements, assembly)


# Step 1: no density but those of conjugate sites and laws


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
        if why := _bent(site):
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
    _check_above(probe, conjugate)
    # A site that no law uses would keep its prior, and is most likely a mistake; with values held, another branch may.
    if not probe.held:
        _check_used(probe)


def _bent(site: Site) -> str | None:
    """Why the density of a site is not that of its family; None: it is."""
    if site.family == "param":
        return "it is a param, which has no prior"
    if site.family == "Unit":
        return "it is a factor, which no conjugate update absorbs"
    if site.observed:
        return "it is observed inside the prior; hand observations to infer as data"
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
    """The laws depend on sites of their conjugate families alone, and the reward law is one that has such a family."""
    law = probe.program.law.family
    _check_law(probe, "the transition law", probe.transition, ("Dirichlet",))
    means = MEAN_FAMILIES.get(law, ())
    name = "the known reward" if law == KNOWN else f"the {law} law of the reward"
    # Family by family: Dirichlet for outcomes; for rewards those of MEAN_FAMILIES and PRECISION_FAMILIES.
    for parameter, entries in probe.reward.items():
        _check_law(probe, name, entries, PRECISION_FAMILIES if parameter == "precision" else means, str(parameter))
    families = (KNOWN, *(kind.__name__ for kind in LAWS))
    if law not in families or (law != KNOWN and all(entries.free for entries in probe.reward.values())):
        raise NotConjugate(
            f"prior: the reward law is {law} and depends on no site, expected known rewards as an array, or a Normal, "
            "Bernoulli or Poisson law of a conjugate site"
        )


def _check_law(probe: Probe, law: str, entries: Entries, families: tuple[str, ...], parameter: str = "") -> None:
    depends = probe.depends(entries)
    # A noise that hyperparameters alone decide is a parameter of the conjugate site of the mean.
    above = frozenset(probe.hyperparameters) if parameter == "precision" and entries.free else frozenset()
    wrong = {s.name for s in probe.program.latents if s.name in depends - above and s.family not in families}
    wrong |= (depends - above) & frozenset(probe.hyperparameters)
    if wrong:
        expected = f"has a closed form over {' or '.join(families)} sites only" if families else "has no conjugate site"
        raise in_the_way(probe.program, first(probe.program, wrong), f"{law} depends on it, and {expected}")


def _check_above(probe: Probe, conjugate: frozenset[str]) -> None:
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


# Steps 2 and 3: the rows of the transition law are whole Dirichlet rows


def detect_rows(
    probe: Probe, assembly: Assembly
) -> tuple[DirichletRows, Int[np.ndarray, "M K"], Bool[np.ndarray, "*H S A O"]]:
    """The Dirichlet rows behind the transition law, the elements behind them, the outcomes that legal pairs can have.

    Raises:
        ValueError: see `detect`.
    """
    program = probe.program
    sites = assembly.rows
    elements = [probe.layout.elements(site.name).reshape(-1, site.shape[-1]) for site in sites]
    if not sites:  # Every row is known: one stacked row that nothing uses, of one outcome and so without a density.
        elements = [np.full((1, program.space.n_outcomes), -1)]
    stacked = _stack(elements, -1)
    prior = assembly.concentration({site.name: probe.parameters(site) for site in sites})
    # Step 2: every entry of the law is one element (`index`), or known (`fixed`).
    index, fixed = probe.select("the transition law", probe.transition), probe.known(probe.transition)
    names = tuple((site.name, site.shape[:-1]) for site in sites)
    shape = (*program.space.shape, program.space.n_outcomes)
    legal = True if program.space.legal is None else program.space.legal[..., None]
    # The common case needs no tables: the law is the sites, row by row.
    if _is_identity(index, stacked) and not fixed.any():
        return dirichlet_rows(prior, shape, sites=names), stacked, legal & (index >= 0)
    # Step 3: where each element lies in the stacked rows, and so each entry of the law; the last place is "none".
    row_of, column_of = np.full((2, probe.layout.size + 1), -1)
    place = np.nonzero(stacked >= 0)
    row_of[stacked[place]], column_of[stacked[place]] = place
    row, column = row_of[index].max(-1), column_of[index]
    _check_whole(probe, stacked, np.where(index >= 0, row_of[index], row[..., None]), column)
    # Proven: a law row with an element is one whole Dirichlet row. The others are known, and must be distributions.
    known = np.where((row < 0)[..., None], fixed, 0.0)
    if (row < 0).any():
        check_probability_rows("prior: transition_probs", np.where((row < 0)[..., None], known, 1.0 / known.shape[-1]))
    rows = dirichlet_rows(prior, shape, row=row, column=column, known=known, sites=names)
    return rows, stacked, legal & ((index >= 0) | (known > 0))


def _is_identity(index: Int[np.ndarray, "*H S A O"], stacked: Int[np.ndarray, "M K"]) -> bool:
    """Whether the law is the stacked rows, in their order."""
    return stacked.shape[-1] == index.shape[-1] and np.array_equal(index.ravel(), stacked.ravel())


def _stack(blocks: list[np.ndarray], padding: int) -> np.ndarray:
    """Blocks [m k] one above the other, padded on the right to the widest."""
    width = max(block.shape[1] for block in blocks)
    return np.concatenate([np.pad(b, ((0, 0), (0, width - b.shape[1])), constant_values=padding) for b in blocks])


def _check_whole(
    probe: Probe,
    stacked: Int[np.ndarray, "M K"],
    rows: Int[np.ndarray, "*H S A O"],
    column: Int[np.ndarray, "*H S A O"],
) -> None:
    """Every row of the law holds each column of one stacked row once, and nothing known beside it; or it is known.

    Less would not be conjugate: the part of a Dirichlet row that is left out has no density of its own, and a sum of
    known and unknown probabilities is no element.

    `rows` and `column` place each entry of the law in `stacked`; `rows` is the row's own where the entry has none.
    """
    # Sorted columns: an element that is used twice has itself as neighbour.
    row, ordered = rows.max(-1), np.sort(column, axis=-1)
    twice = ((np.diff(ordered, axis=-1) == 0) & (ordered[..., 1:] >= 0)).any(-1)
    width = np.append((stacked >= 0).sum(-1), 0)
    reasons: tuple[tuple[Bool[np.ndarray, "*H S A"], str], ...] = (
        ((rows != row[..., None]).any(-1), "mixes two of its rows"),
        (twice, "holds one of its elements twice"),
        ((column >= 0).sum(-1) != width[row], "leaves out an element of its row"),
        (np.any(np.abs(probe.known(probe.transition)) > 0, axis=-1), "holds known probabilities beside its row"),
    )
    for bad, why in reasons:
        index = first_index(bad & (row >= 0))
        if index is not None:
            site = probe.layout.site(int(stacked[row[index], 0]))
            raise probe.refuse(site, f"the transition law of {probe.cell(index)} {why}")


# Steps 2 and 4: every cell of the reward law has the parameters of one conjugate cell


def detect_rewards(
    probe: Probe, assembly: Assembly, possible: Bool[np.ndarray, "*H S A O"]
) -> tuple[RewardCells | KnownRewards, Elements, Assembly]:
    """The belief about rewards, the elements behind its cells for each parameter of the law, and its assembly.

    Args:
        probe: the program.
        assembly: of the rows.
        possible: the outcomes that can be observed; the reward of another needs no conjugate site.

    Raises:
        ValueError: there is none in closed form, and which site is in the way.
    """
    law = probe.program.law
    # Known rewards have no density: all that is to be shown is that they are numbers.
    if law.family == KNOWN:
        _select(probe, "mean")
        return known_rewards(probe.known(probe.reward["mean"]), by_outcome=law.by_outcome), (), assembly
    # A precision that depends on a conjugate site makes the law a normal with both parameters unknown.
    precision = probe.reward.get("precision")
    paired = precision is not None and not precision.free
    assembly, elements, table = (_normal_gamma if paired else _one_parameter)(probe, assembly)
    # Proven so far: each cell is one conjugate cell or known. A belief has one family, so where a reward can be
    # observed, none may be known.
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
    belief = assembly.belief(parameters, noise)
    assert belief is not None  # the law is not that of known rewards
    names = tuple((site.name, site.shape[: len(site.shape) - (site.family == "NormalGamma")]) for site in sites)
    cells = reward_cells(belief, table.shape, by_outcome=law.by_outcome, cell=table, known=known, sites=names)
    return cells, elements, assembly


def _select(probe: Probe, parameter: str) -> Int[np.ndarray, "*cells"]:
    return probe.select("the reward law", probe.reward[parameter])


def _number(probe: Probe, elements: Int[np.ndarray, " L"]) -> Int[np.ndarray, " N"]:
    """Element -> its place in `elements`, -1 for others (the last entry is for "no element")."""
    place = np.full(probe.layout.size + 1, -1)
    place[elements] = np.arange(len(elements))
    return place


def _elements(probe: Probe, sites: tuple[Site, ...]) -> Int[np.ndarray, " L"]:
    """The elements (of an event: its first entry) of sites, one after the other."""
    elements = [probe.layout.elements(site.name) for site in sites]
    firsts = [e[..., 0] if site.family == "NormalGamma" else e for e, site in zip(elements, sites, strict=True)]
    return np.concatenate([e.ravel() for e in firsts])


def _one_parameter(probe: Probe, assembly: Assembly) -> tuple[Assembly, Elements, Int[np.ndarray, "*cells"]]:
    """Beta under Bernoulli, Gamma under Poisson, Normal under Normal of known noise.

    Returns the assembly, the elements of the mean, and which of them each cell of the law selects (-1: none).
    """
    law = probe.program.law.family
    parameter = "loc" if law == "Normal" else "mean"
    # Step 2: the mean of every cell is one element, or known.
    index = _select(probe, parameter)
    wanted = probe.depends(probe.reward[parameter]) | probe.kept
    sites = tuple(site for site in probe.sites if site.name in wanted)
    if sites[0].family == "NormalGamma":
        raise probe.refuse(sites[0].name, "the scale of the reward law does not depend on its precision")
    elements = _elements(probe, sites)
    # Step 4: cell of the law -> cell of the belief. The families are conjugate by `_check_laws`; normal rewards also
    # need one known noise for each mean.
    table = _number(probe, elements)[index]
    noise_cell = _noise(probe, table, len(elements)) if law == "Normal" else None
    family = NormalBelief if law == "Normal" else BetaBelief if sites[0].family == "Beta" else GammaBelief
    assembly = assembly._replace(family=family, joint=sites, noise_cell=noise_cell)
    return assembly, (elements,), table


def _noise(probe: Probe, table: Int[np.ndarray, "*cells"], size: int) -> Int[np.ndarray, " L"]:
    """A cell of the law for each element of the mean; all cells of one element have the same known noise."""
    # The same symbol (equal whatever the hyperparameters are), or known and equal.
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


def _normal_gamma(probe: Probe, assembly: Assembly) -> tuple[Assembly, Elements, Int[np.ndarray, "*cells"]]:
    """Normal-gamma cells, of joint sites first, then of pairs of plain sites.

    Returns the assembly, the elements of mean and precision, and which pair each cell of the law selects (-1: none).
    """
    joint, plain, parts = probe.of("NormalGamma"), probe.of("Normal"), []
    gammas = probe.of("Gamma") if plain else ()
    if not joint and not plain:
        raise probe.refuse(
            probe.of("Gamma")[0].name, "the precision of the rewards is unknown while their mean is known"
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
    loc, scale = _select(probe, "loc"), _select(probe, "precision")
    # Both parameters of a cell come from one pair, or neither from any.
    table = _number(probe, mean)[loc]
    index = first_index((table != _number(probe, precision)[scale]) | ((table < 0) & ((loc >= 0) | (scale >= 0))))
    if index is not None:
        element = loc[index] if loc[index] >= 0 else scale[index]
        why = f"in the reward law of {probe.cell(index)} mean and precision do not belong to one normal-gamma site"
        raise probe.refuse(probe.layout.site(int(element)), why)
    assembly = assembly._replace(family=NormalGammaBelief, joint=joint, plain=plain, gammas=gammas, order=order)
    return assembly, (mean, precision), table


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
