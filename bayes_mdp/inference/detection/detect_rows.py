"""The sites and the rows of a closed form: steps 1 to 3 of `detect`.

`check_sites`: nothing but the conjugate sites and the laws has a density that the conjugate sites enter (no factor,
observation, mask or scale, no site below them), and each law depends on sites of its conjugate families alone.
`Assembly`: how the parameters of conjugate sites become the stacked arrays of a belief. Which site goes where is found
once; the arithmetic is the same for numbers and inside a trace, where the parameters are functions of hyperparameters.
`detect_rows`: the elements of Dirichlet and Beta sites that make up the rows of the transition law.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int, Real

from bayes_mdp.inference.conjugate.dirichlet_rows import DirichletRows, dirichlet_rows
from bayes_mdp.inference.detection.entries import Entries
from bayes_mdp.inference.detection.probe import Probe, first, in_the_way
from bayes_mdp.inference.detection.trace import KNOWN, Site, site_families
from bayes_mdp.inference.families.family import RewardBelief
from bayes_mdp.numerics.numpy_or_jax import xp
from bayes_mdp.utils.typing import AnyArray
from bayes_mdp.utils.validation import check_probability_rows, first_index

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
    # In the order of the program, so that the same site is named every time.
    for site in probe.layout.shapes:
        for parameter, entries in probe.parameters_of[site].items():
            parents = probe.depends(entries)
            unexplained = parents - frozenset(probe.hyperparameters)
            if unexplained and not _is_noise(probe, site, parameter, parents & conjugate):
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
        _check_sites_in_use(probe)


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
    families = site_families(law)
    check_law(probe, "the transition law", probe.transition, ROW_FAMILIES)
    name = "the known reward" if law == KNOWN else f"the {law} law of the reward"
    # Law by law: a parameter that is not listed has no conjugate family.
    for parameter, entries in probe.reward.items():
        check_law(probe, name, entries, families.get(str(parameter), ()), str(parameter))
    shared = probe.depends(probe.transition) & reward_sites(probe) & frozenset(probe.layout.shapes)
    if shared:
        why = "the transition law and the reward law both depend on it"
        raise in_the_way(probe.program, first(probe.program, shared), why)


def check_law(probe: Probe, law: str, entries: Entries, families: tuple[str, ...], parameter: str = "") -> None:
    """Refuse a law that depends on sites of other families than these.

    Raises:
        NotConjugate: names the first site.
    """
    depends = probe.depends(entries)
    # A noise that hyperparameters alone decide is a parameter of the conjugate site of the mean.
    parents = frozenset(probe.hyperparameters) if parameter == "precision" and entries.free else frozenset()
    wrong = {s.name for s in probe.program.latents if s.name in depends - parents and s.family not in families}
    wrong |= (depends - parents) & frozenset(probe.hyperparameters)
    if wrong:
        expected = f"has a closed form over {' or '.join(families)} sites only" if families else "has no conjugate site"
        raise in_the_way(probe.program, first(probe.program, wrong), f"{law} depends on it, and {expected}")


def check_above(probe: Probe, conjugate: frozenset[str]) -> None:
    """No other density (hyperparameters, factors, observations) depends on a conjugate site: all are above them."""
    for name, (density, scale, possible) in probe.densities.items():
        # Its value, its scale and its support: each may depend on a conjugate site.
        parts = (density, scale, possible)
        conjugate_parents = frozenset().union(*(probe.depends(x) for x in parts if x is not None)) & conjugate
        if name not in conjugate and conjugate_parents:
            why = f"the density of site {name!r} depends on it, so that it has no closed form"
            raise in_the_way(probe.program, first(probe.program, conjugate_parents), why)


def _check_sites_in_use(probe: Probe) -> None:
    used = probe.depends(probe.transition).union(*(probe.depends(entries) for entries in probe.reward.values()))
    for site in probe.sites:
        if site.name not in used:
            raise in_the_way(probe.program, site.name, "neither the transition law nor the reward law depends on it")


Parameters: TypeAlias = Mapping[str, Mapping[str, AnyArray]]
"""{site: {parameter: array}}."""


class Assembly(NamedTuple):
    """Where the parameters of the conjugate sites lie in a belief.

    Args:
        rows: Dirichlet and Beta sites, their rows one above the other, padded to the widest.
        known_width: outcomes of the one unused row that there is where no such site is.
        family: of the belief about rewards; None: they are known, or linear in their sites.
        joint: reward sites, their cells one after the other (normal-gamma: the joint sites).
        plain: means of the pairs of plain sites that make a normal-gamma.
        gammas: precisions of these pairs.
        order: [P], the element of `gammas` for each element of `plain`.
        noise_cell: [L], for normal rewards of known noise, a cell of the reward law for each element of the mean.
        stretch: [L], the precision of what an element is the mean of, over that of the rewards: the square of the
            coefficient of an affine mean, known; None: one.
        known: {parameter of the reward law that the family takes as known: [L]}.
    """

    rows: tuple[Site, ...]
    known_width: int
    family: type[RewardBelief] | None = None
    joint: tuple[Site, ...] = ()
    plain: tuple[Site, ...] = ()
    gammas: tuple[Site, ...] = ()
    order: Int[np.ndarray, " P"] | None = None
    noise_cell: Int[np.ndarray, " L"] | None = None
    stretch: Float[np.ndarray, " L"] | None = None
    known: Mapping[str, Float[np.ndarray, " L"]] | None = None

    def concentration(self, parameters: Parameters) -> Real[AnyArray, "M K"]:
        """Float[M K], the stacked Dirichlet rows, zero where padded."""
        if not self.rows:
            return np.eye(1, self.known_width)
        # Site after site, each row-major: the order that `SiteTable` and `Layout` rely on.
        blocks = [_rows(site, parameters[site.name]) for site in self.rows]
        if len(blocks) == 1:
            return blocks[0]
        # A concentration of zero: no such outcome. Rows of fewer outcomes are padded with it.
        width = max(block.shape[-1] for block in blocks)
        return xp.concatenate([xp.pad(b, ((0, 0), (0, width - b.shape[1]))) for b in blocks])

    def belief(self, parameters: Parameters, precision: Real[AnyArray, "*cells"] | None) -> RewardBelief | None:
        """The belief about the stacked reward cells; None where no family serves them.

        Args:
            parameters: {site: {parameter: array}}.
            precision: [*cells] of the reward law; read for normal rewards of known noise alone.
        """
        if self.family is None:
            return None
        family: Any = self.family  # the fields differ from family to family
        stretch = 1.0 if self.stretch is None else self.stretch
        if len(self.family.sites) == 2:
            paired = self._normal_gamma(parameters)
            # precision' = stretch * precision: of Normal(loc, k precision) and Gamma(a, b), k and b are divided.
            return family(
                paired["loc"], paired["pseudo_count"] / stretch, paired["concentration"], paired["rate"] / stretch
            )
        if self.family.is_vector():
            blocks = [_rows(site, parameters[site.name]) for site in self.joint]
            return family(xp.concatenate(blocks))
        stacked = _join_parameters(self.joint, parameters)
        if self.noise_cell is not None:
            assert precision is not None  # normal rewards whose noise is known have one
            with np.errstate(divide="ignore"):  # a precision of zero is refused later
                noise = (precision.ravel()[self.noise_cell] * stretch) ** -0.5
            return family(stacked["loc"], stacked["precision"] ** -0.5, noise)
        return family(**stacked, **(self.known or {}))

    def _normal_gamma(self, parameters: Parameters) -> dict[str, Real[AnyArray, " L"]]:
        """Joint sites first, then pairs of plain sites."""
        parts = [_join_parameters(self.joint, parameters)] if self.joint else []
        if self.plain:
            # Normal(loc, precision * pseudo_count): the factor that scales the Gamma site is the pseudo-count.
            means, rates = _join_parameters(self.plain, parameters), _join_parameters(self.gammas, parameters)
            pair = {"loc": means["loc"], "pseudo_count": means["precision"]}
            parts.append(pair | {name: value[self.order] for name, value in rates.items()})
        return {name: xp.concatenate([part[name] for part in parts]) for name in parts[0]}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all conjugate sites."""
        return tuple(site.name for site in (*self.rows, *self.joint, *self.plain, *self.gammas))


def _rows(site: Site, parameters: Mapping[str, AnyArray]) -> Real[AnyArray, "M K"]:
    """Concentrations of the rows of a site; of a Beta site those of an element and of its complement."""
    if site.family == "Dirichlet":
        return parameters["concentration"].reshape(-1, site.shape[-1])
    concentrations = [parameters["concentration1"].ravel(), parameters["concentration0"].ravel()]
    return xp.stack(concentrations, axis=-1)


def _join_parameters(sites: tuple[Site, ...], parameters: Parameters) -> dict[str, Real[AnyArray, " L"]]:
    """Parameters of sites of one family, one after the other."""
    names = tuple(parameters[sites[0].name])
    return {name: xp.concatenate([parameters[site.name][name].ravel() for site in sites]) for name in names}


def detect_rows(
    probe: Probe, assembly: Assembly
) -> tuple[DirichletRows, Int[np.ndarray, "M K"], Bool[np.ndarray, "*H S A O"]]:
    """The Dirichlet rows behind the transition law, the elements behind them, the outcomes that legal pairs can have.

    Raises:
        ValueError: see `detect`.
    """
    program = probe.program
    sites = assembly.rows
    elements = [_site_rows(probe, site) for site in sites]
    if not sites:  # Every row is known: one stacked row that nothing uses, of one outcome and so without a density.
        elements = [np.full((1, program.space.n_outcomes), -1)]
    stacked = _stack(elements, -1)
    prior = np.asarray(assembly.concentration({site.name: probe.parameters(site) for site in sites}))
    # Step 2: every entry of the law is one element (`index`), or known (`fixed`).
    index = _partners(probe, sites, probe.select_or_complement("the transition law", probe.transition))
    fixed = probe.known(probe.transition)
    names = tuple((site.name, batch_shape(site)) for site in sites)
    shape = (*program.space.shape, program.space.n_outcomes)
    legal = True if program.space.legal is None else program.space.legal[..., None]
    # The common case needs no tables: the law is the stacked rows, in their order.
    same = stacked.shape[-1] == index.shape[-1] and np.array_equal(index.ravel(), stacked.ravel())
    if same and not fixed.any():
        return dirichlet_rows(prior, shape, sites=names), stacked, legal & (np.reshape(prior, shape) > 0)
    # Step 3: where each element lies in the stacked rows, and so each entry of the law; the last place is "none".
    row_of, column_of = np.full((2, 2 * probe.layout.size + 1), -1)
    place = np.nonzero(stacked >= 0)
    row_of[stacked[place]], column_of[stacked[place]] = place
    unplaced = first_index((index >= 0) & (row_of[index] < 0))
    if unplaced is not None:
        site = probe.layout.site(int(index[unplaced]) % probe.layout.size)
        why = f"the transition law of {probe.cell(unplaced)} is one less an element of a row of more than two"
        raise probe.refuse(site, why)
    row, column = row_of[index].max(-1), column_of[index]
    _check_whole(probe, stacked, np.where(index >= 0, row_of[index], row[..., None]), column)
    # Proven: a law row with an element is one whole Dirichlet row. The others are known, and must be distributions.
    known = np.where((row < 0)[..., None], fixed, 0.0)
    if (row < 0).any():
        check_probability_rows("prior: transition_probs", np.where((row < 0)[..., None], known, 1.0 / known.shape[-1]))
    rows = dirichlet_rows(prior, shape, row=row, column=column, known=known, sites=names)
    possible = (index >= 0) & (prior[np.maximum(row, 0)[..., None], np.maximum(column, 0)] > 0)
    return rows, stacked, legal & (possible | (known > 0))


def batch_shape(site: Site) -> tuple[int, ...]:
    """Shape of the rows of a site: every element of a Beta site is a row."""
    return site.shape if site.family == "Beta" else site.shape[:-1]


def _site_rows(probe: Probe, site: Site) -> Int[np.ndarray, "M K"]:
    """The elements of a site, row by row; of a Beta site each element e and its complement, N + e."""
    elements = probe.layout.elements(site.name)
    if site.family == "Beta":
        return np.stack([elements.ravel(), elements.ravel() + probe.layout.size], axis=-1)
    return elements.reshape(-1, site.shape[-1])


def _partners(probe: Probe, sites: tuple[Site, ...], index: Int[np.ndarray, "..."]) -> Int[np.ndarray, "..."]:
    """Each element (or complement, N + e) itself; for a complement in a Dirichlet row of two the other element."""
    size, pairs = probe.layout.size, [s for s in sites if s.family == "Dirichlet" and s.shape[-1] == 2]
    if not pairs:
        return index
    # In a row of two, 1 - x is the other element: Beta sites and Dirichlet rows of two then look alike.
    partner = np.append(np.arange(2 * size), -1)  # the last place is for "none"
    for site in pairs:
        elements = probe.layout.elements(site.name)
        partner[elements + size] = elements[..., ::-1]
    return partner[index]


def _stack(blocks: list[np.ndarray], padding: int) -> np.ndarray:
    """Blocks [m k] one above the other, padded on the right to the widest."""
    if len(blocks) == 1:
        return blocks[0]
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
            site = probe.layout.site(int(stacked[row[index]].min()))
            raise probe.refuse(site, f"the transition law of {probe.cell(index)} {why}")
