"""Detect conjugacy: from a traced prior to the tables of its closed-form posterior, or one sentence why not.

What has to be proven: given the data, the posterior of the program is a product of conjugate posteriors. It is, if

1. nothing but the conjugate sites and the laws has a density that they enter: no factor, observation, mask or scale, no
   site below them (`check_sites`);
2. every entry of a law is one element of a conjugate site, or known (`Probe.select`);
3. these elements make up whole Dirichlet rows, each in every row of the law that uses it (`detect_rows`);
4. and the parameters of each cell of the reward law are those of one conjugate cell, or known (`detect_rewards`), or
   its mean is linear in normal sites (`detect_regression`).

Then an observed transition multiplies the density of one Dirichlet row by one of its elements, and a reward multiplies
that of one cell by a likelihood of its family: textbook updates (Bernardo and Smith 1994, *Bayesian Theory*, section
5.2). All four are read from the data flow of the program (`probe`), none from values. The result is plain arrays;
`certify` checks them once more, by numbers, on the conditioned model.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior, conjugate_posterior
from bayes_mdp.inference.conjugate.site_table import SiteTable, site_rows
from bayes_mdp.inference.detection.assemble import Assembly
from bayes_mdp.inference.detection.detect_regression import detect_regression
from bayes_mdp.inference.detection.detect_rewards import Elements, detect_rewards
from bayes_mdp.inference.detection.detect_rows import detect_rows
from bayes_mdp.inference.detection.probe import Layout, NotConjugate, Probe
from bayes_mdp.inference.detection.site_checks import check_sites, row_sites


class Detected(NamedTuple):
    """A conjugate prior as arrays, and where its parts lie among the elements of the program's sites.

    Args:
        posterior: the belief before any data.
        layout: the elements of all conjugate sites in one vector.
        rows: [M K], the element behind each entry of the stacked Dirichlet rows, -1 for padding.
        possible: [*H S A O], outcomes of legal pairs that can be observed.
        cells: for each parameter of the reward law (the mean first) [L], the element behind each stacked cell.
        assembly: how the parameters of the sites make the prior of `posterior`.
        constants: observed sites whose density is a known number.
    """

    posterior: ConjugatePosterior
    layout: Layout
    rows: Int[np.ndarray, "M K"]
    possible: Bool[np.ndarray, "*H S A O"]
    cells: Elements
    assembly: Assembly
    constants: frozenset[str] = frozenset()


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
