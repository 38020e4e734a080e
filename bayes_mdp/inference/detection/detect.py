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
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior, conjugate_posterior
from bayes_mdp.inference.conjugate.regression import RegressionPrior, RegressionRewards, regression_rewards
from bayes_mdp.inference.conjugate.site_table import SiteTable, site_rows
from bayes_mdp.inference.detection.degrees import is_affine
from bayes_mdp.inference.detection.detect_rewards import Elements, detect_rewards
from bayes_mdp.inference.detection.detect_rows import Assembly, check_sites, detect_rows, reward_sites, row_sites
from bayes_mdp.inference.detection.probe import Layout, NotConjugate, Probe, inside
from bayes_mdp.inference.detection.trace import Site
from bayes_mdp.utils.validation import check_positive, first_index


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
