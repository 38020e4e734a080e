"""`detect_rows`: the rows of a transition law are whole Dirichlet rows (of two outcomes: a Beta and its complement).

Steps 2 and 3 of `detect`. Every entry of the law is one element of a site (or one less an element of a Beta site), or
known; the elements of a row make up one whole site row.
"""

import numpy as np
from jaxtyping import Bool, Int

from bayes_mdp.inference.conjugate.dirichlet_rows import DirichletRows, dirichlet_rows
from bayes_mdp.inference.detection.assemble import Assembly
from bayes_mdp.inference.detection.probe import Probe
from bayes_mdp.inference.detection.trace import Site
from bayes_mdp.utils.validation import check_probability_rows, first_index


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
    # The common case needs no tables: the law is the sites, row by row.
    if _is_identity(index, stacked) and not fixed.any():
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
    partner = np.append(np.arange(2 * size), -1)  # the last place is for "none"
    for site in pairs:
        elements = probe.layout.elements(site.name)
        partner[elements + size] = elements[..., ::-1]
    return partner[index]


def _is_identity(index: Int[np.ndarray, "*H S A O"], stacked: Int[np.ndarray, "M K"]) -> bool:
    """Whether the law is the stacked rows, in their order."""
    return stacked.shape[-1] == index.shape[-1] and np.array_equal(index.ravel(), stacked.ravel())


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
