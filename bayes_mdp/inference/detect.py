"""Detect conjugacy: from a traced prior to the tables of its closed-form posterior, or one sentence why not.

Three steps, each on the data flow of the program (`probe`), none on values: no site rules it out (`refusals`), every
entry of a law is one element of a leaf or known (`Probe.select`), the selected elements form whole rows (here) and
whole cells (`detect_rewards`). That is the proof. What comes out is plain arrays; `certify` checks them once more, by
numbers, on the conditioned model.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from bayes_mdp.inference.assemble import Assembly
from bayes_mdp.inference.detect_rewards import detect_rewards
from bayes_mdp.inference.layered import conjugate_posterior
from bayes_mdp.inference.posterior import ConjugatePosterior
from bayes_mdp.inference.probe import Layout, Probe
from bayes_mdp.inference.refusals import check_sites
from bayes_mdp.inference.rows import DirichletRows, dirichlet_rows
from bayes_mdp.mdp.validation import check_probability_rows, first_index


class Detected(NamedTuple):
    """A conjugate prior as arrays, and where its leaves lie among the elements of the program's sites.

    Args:
        posterior: the belief before any data.
        layout: the elements of all sites in one vector.
        rows: [M K], the element behind each entry of the stacked Dirichlet rows, -1 for padding.
        possible: [*H S A O], outcomes of legal pairs that can be seen.
        cells: for each parameter of the reward law (the mean first) [L], the element behind each stacked reward leaf.
        assembly: how the parameters of the sites make the prior of `posterior`.
    """

    posterior: ConjugatePosterior
    layout: Layout
    rows: Int[np.ndarray, "M K"]
    possible: Bool[np.ndarray, "*H S A O"]
    cells: tuple[Int[np.ndarray, " L"], ...]
    assembly: Assembly


def detect(probe: Probe) -> Detected:
    """The closed form of a traced prior. Host side, in float64.

    Raises:
        NotConjugate: there is none, and which site is in the way.
        ValueError: a parameter of a leaf is out of its range.
    """
    check_sites(probe, alone=not probe.parents and not probe.held)
    program = probe.program
    assembly = Assembly(probe.of("Dirichlet"), program.space.n_outcomes)
    rows, row_elements, possible = detect_rows(probe, assembly)
    rewards, cell_elements, assembly = detect_rewards(probe, assembly, possible)
    posterior = conjugate_posterior(rows, rewards, program.space)
    return Detected(posterior, probe.layout, row_elements, possible, cell_elements, assembly)


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
    if not sites:  # Every row is known: one leaf row that nothing uses, of one outcome and so without a density.
        elements = [np.full((1, program.space.n_outcomes), -1)]
    stacked = _stack(elements, -1)
    prior = assembly.concentration({site.name: probe.parameters(site) for site in sites})
    index, fixed = probe.select("the transition law", probe.transition), probe.known(probe.transition)
    names = tuple((site.name, site.shape[:-1]) for site in sites)
    shape = (*program.space.shape, program.space.n_outcomes)
    legal = True if program.space.legal is None else program.space.legal[..., None]
    if _is_identity(index, stacked) and not fixed.any():
        return dirichlet_rows(prior, shape, sites=names), stacked, legal & (index >= 0)
    row_of, column_of = np.full((2, probe.layout.size + 1), -1)
    place = np.nonzero(stacked >= 0)
    row_of[stacked[place]], column_of[stacked[place]] = place
    row, column = row_of[index].max(-1), column_of[index]
    _check_whole(probe, stacked, np.where(index >= 0, row_of[index], row[..., None]), column)
    known = np.where((row < 0)[..., None], fixed, 0.0)
    if (row < 0).any():
        check_probability_rows("prior: transition_probs", np.where((row < 0)[..., None], known, 1.0 / known.shape[-1]))
    rows = dirichlet_rows(prior, shape, row=row, column=column, known=known, sites=names)
    return rows, stacked, legal & ((index >= 0) | (known > 0))


def _is_identity(index: Int[np.ndarray, "*H S A O"], stacked: Int[np.ndarray, "M K"]) -> bool:
    """Whether the law is the leaf rows, in their order."""
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
    """Every row of the law holds each column of one leaf row once, and nothing known beside it; or it is known.

    `rows` and `column` place each entry of the law in `stacked`; `rows` is the row's own where the entry has none.
    """
    row, ordered = rows.max(-1), np.sort(column, axis=-1)
    twice = ((np.diff(ordered, axis=-1) == 0) & (ordered[..., 1:] >= 0)).any(-1)
    width = np.append((stacked >= 0).sum(-1), 0)
    reasons: tuple[tuple[Any, str], ...] = (
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
