"""Discrete latent sites of small support: each value gives a closed form of its own, the posterior is their mixture.

A law that branches on such a site has no common tables to collapse, but one exact posterior for each value of the site.
Each is detected and certified with the site held at that value, so that the branch is known. The weights are the prior
probabilities times the evidence of the data: Bayes' rule, nothing is sampled.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from bayes_mdp.inference.compiled_fit import Fit
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.conjugate.dirichlet_rows import DirichletRows
from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.inference.conjugate.site_table import SiteTable
from bayes_mdp.inference.detection.certify import certify
from bayes_mdp.inference.detection.detect import Detected, detect
from bayes_mdp.inference.detection.probe import NotConjugate, Probe, in_the_way
from bayes_mdp.inference.detection.trace import Program, joint_values
from bayes_mdp.inference.mixtures import Mixture
from bayes_mdp.inference.summary import Observed
from bayes_mdp.mdp import Counts, Transitions
from bayes_mdp.mdp.space import program_cache
from bayes_mdp.models.mdp_spec import Prior
from bayes_mdp.numerics.array_forms import own, stack_trees
from bayes_mdp.utils.typing import AnyArray

MAX_VALUES = 64
"""Joint values of the discrete sites that are enumerated."""
MAX_NUMBERS = 2**26
"""Probabilities that the components may hold together."""


@dataclass(frozen=True)
class Branches:
    """The closed forms of a program, one for each joint value of its discrete sites. Equal ones have one `fingerprint`.

    Args:
        prior: the program.
        fingerprint: of the program and its space.
        values: {site: [K ...]}.
        log_prior: [K], log probabilities of the values (factors and observations of the program included).
        components: the beliefs before any data, all of one structure.
        site_tables: of each component, where the other sites lie in its arrays.
        observed: (name, number of values) of the sites that the program observes itself.
    """

    prior: Prior = field(compare=False)
    fingerprint: str
    values: dict[str, np.ndarray] = field(compare=False)
    log_prior: np.ndarray = field(compare=False)
    components: tuple[ConjugatePosterior, ...] = field(compare=False)
    site_tables: tuple[SiteTable, ...] = field(compare=False)
    observed: Observed = field(default=(), compare=False)


@program_cache
def prove_branches(program: Program) -> Branches:
    """The closed forms of a program whose other sites are conjugate given its discrete ones, certified. Host side.

    Raises:
        NotConjugate: there is no discrete site of finite support, there are too many values, or one of the branches has
            no closed form (names the site in its way).
        ValueError: a parameter of a conjugate site is out of its range.
    """
    branches: list[tuple[dict[str, np.ndarray], float, Detected]] = []
    kept_sites, kept_rows = frozenset[str](), frozenset[str]()
    # Twice: a site that one branch uses belongs to the tables of all.
    for _ in range(2):
        branches = []
        for values in _joint_values(program):
            probe = Probe(program, held=values, kept=kept_sites, kept_rows=kept_rows)
            # Factors may rule out a value.
            log_prior = _log_prior(probe)
            if log_prior > -np.inf:
                # The closed form of this branch.
                branches.append((values, log_prior, detect(probe)))
        if not branches:
            raise NotConjugate("prior: no value of the discrete sites has a positive probability")
        assemblies = [detected.assembly for *_, detected in branches]
        # Sites that some branch needs; the others keep their prior there.
        used = frozenset(site.name for a in assemblies for site in (*a.joint, *a.plain, *a.gammas))
        rows = frozenset(site.name for a in assemblies for site in a.rows)
        if (used, rows) == (kept_sites, kept_rows):
            break
        kept_sites, kept_rows = used, rows
    rng = program.generator()
    for values, _, detected in branches:
        certify(program, detected, rng, held=values)
    # One structure for all components, so that they can be stacked and mapped over.
    names = tuple(branches[0][0])
    components = _alike([detected.posterior for *_, detected in branches])
    log_prior = np.array([log_prior for _, log_prior, _ in branches])
    return Branches(
        program.prior,
        program.fingerprint,
        {name: np.stack([values[name] for values, *_ in branches]) for name in names},
        # Observations and factors of the program belong to the prior: the evidence is that of the data given them.
        # A program that bends its prior has weights known up to a constant.
        log_prior if program.draws_prior() else _normalise(log_prior),
        components,
        tuple(replace(d.posterior.sites, program=None) for *_, d in branches if d.posterior.sites is not None),
        program.observed,
    )


def branches_of(
    prior: Prior, fingerprint: str, site: str, values: Sequence[int], components: Sequence[ConjugatePosterior]
) -> Branches:
    """The closed forms of a ready prior, one for each of equally likely values of a site.

    Args:
        prior, fingerprint: as of `Branches`.
        site: the discrete site.
        values: [K], of the site.
        components: [K], the beliefs before any data, with their tables of sites.
    """
    tables = tuple(replace(component.sites, program=None) for component in components if component.sites is not None)
    # All values are equally likely.
    log_prior = np.full(len(components), -math.log(len(components)))
    return Branches(prior, fingerprint, {site: np.asarray(values)}, log_prior, _alike(components), tables)


def _joint_values(program: Program) -> Iterator[dict[str, np.ndarray]]:
    """Every joint value of the discrete sites.

    Raises:
        NotConjugate: there are none, one has no finite support, or they have too many values.
    """
    # The Cartesian product of the supports of all elements, refused before it is built where it is too large.
    supports = {site: program.supports[site.name] for site in program.latents if site.name in program.supports}
    if not supports:
        raise NotConjugate("prior: no site is discrete with a finite list of values, expected one to enumerate")
    # Values of one element to the power of the number of elements.
    sizes = [len(values) ** math.prod(site.shape) for site, values in supports.items()]
    cells = math.prod((*program.space.shape, program.space.n_outcomes))
    # Every component holds a table of rows.
    max_values = max(1, min(MAX_VALUES, MAX_NUMBERS // cells))
    if math.prod(sizes) > max_values:
        site = next(iter(supports))
        number = f"{math.prod(sizes):.4g} joint values"
        why = f"the discrete sites have {number}, more than the {max_values} that are enumerated"
        raise in_the_way(program, site.name, why)
    yield from joint_values({s.name: v for s, v in supports.items()}, {s.name: s.shape for s in supports})


def _log_prior(probe: Probe) -> float:
    """Log probability of the held values, with the factors and observations that depend on them.

    Raises:
        NotConjugate: a site that is neither held nor conjugate, or whose density a conjugate site goes into.
    """
    for site in probe.sites:
        if site.name not in probe.layout.shapes:
            raise in_the_way(probe.program, site.name, "it is no conjugate site, whatever the discrete sites are")
    # Sites that are neither enumerated nor conjugate refuse; observed sites and factors must have constant density.
    total = 0.0
    for name, parts in probe.densities.items():
        number = probe.log_number(name)
        if number is None:
            dependences = frozenset().union(*(probe.depends(x) for x in parts if x is not None))
            site = next((s.name for s in probe.sites if s.name in dependences), name)
            raise in_the_way(probe.program, site, f"the density of site {name!r} depends on it")
        total += number
    return total


def _alike(posteriors: Sequence[ConjugatePosterior]) -> tuple[ConjugatePosterior, ...]:
    """The same beliefs with explicit tables, so that all have one structure."""
    rows = [posterior.transition_probs for posterior in posteriors]
    rewards = [posterior.reward_cells for posterior in posteriors]
    layered = {type(posterior) for posterior in posteriors}
    kind = layered.pop() if len(layered) == 1 else ConjugatePosterior
    # A table that one branch needs is given to all, as the identity where it changes nothing.
    alike_rows = _alike_rows(rows)
    cells = [cells_of_component for cells_of_component in rewards if isinstance(cells_of_component, RewardCells)]
    alike_rewards = _alike_cells(cells) if cells else rewards
    # No branch counts visits of its own: rows do it.
    counted = all(posterior.visits is None for posterior in posteriors)
    space = posteriors[0].space
    visits = None if counted else np.zeros(space.shape)
    # Data and constants start at zero.
    return tuple(kind(r, w, space, visits, np.zeros(())) for r, w in zip(alike_rows, alike_rewards, strict=True))


def _alike_rows(rows: Sequence[DirichletRows]) -> list[DirichletRows]:
    shape = rows[0].shape
    flags = {
        "unit_prior": all(r.unit_prior for r in rows),
        "independent": all(r.independent for r in rows),
        "known_listed": None,
    }
    plain = all(r.row is None and r.column is None for r in rows)
    if plain:
        return [replace(r, **flags) for r in rows]
    # Some branch has tables: all get explicit ones (identity where there was none).
    # Pairs in one vector: each its own row.
    lead = math.prod(shape[:-1])

    def explicit(r: DirichletRows) -> DirichletRows:
        row = np.arange(lead, dtype=np.int32).reshape(shape[:-1]) if r.row is None else r.row
        column = np.arange(shape[-1], dtype=np.int32) if r.column is None else r.column
        known = np.zeros(shape) if r.known is None else r.known
        column = np.array(np.broadcast_to(column, shape))
        return replace(r, row=row, column=column, known=np.asarray(known, np.float64), **flags)

    return [explicit(r) for r in rows]


def _alike_cells(cells: Sequence[RewardCells]) -> list[RewardCells]:
    shape = cells[0].shape
    flags = {name: all(getattr(c, name) for c in cells) for name in ("independent", "distinct")}
    affine = any(c.coefficient is not None for c in cells)
    if all(c.cell is None and c.known is None for c in cells) and not affine:
        return [replace(c, **flags) for c in cells]
    # Where no cell of a branch is known, any law of the family will do: it is not read.
    law = next((c.known_law for c in cells if c.known_law is not None), None)

    def explicit(c: RewardCells) -> RewardCells:
        cell = np.arange(math.prod(shape), dtype=np.int32).reshape(shape) if c.cell is None else c.cell
        known = np.zeros(shape) if c.known is None else np.asarray(c.known, np.float64)
        known_law = law if c.known_law is None else c.known_law
        if not affine:
            return replace(c, cell=cell, known=known, known_law=known_law, **flags)
        coefficient = np.ones(shape) if c.coefficient is None else np.asarray(c.coefficient)
        # An affine map of identity changes nothing.
        offset = np.zeros(shape) if c.offset is None else np.asarray(c.offset)
        return replace(c, cell=cell, known=known, known_law=known_law, coefficient=coefficient, offset=offset, **flags)

    return [explicit(c) for c in cells]


@lru_cache(maxsize=64)
def fit_of(branches: Branches) -> Fit[Mixture]:
    """Exact inference by enumeration, as a function of the data."""
    stacked = stack_trees(branches.components)
    log_prior, space = branches.log_prior, branches.components[0].space

    def posterior(components: ConjugatePosterior, log_weights: Float[AnyArray, " K"]) -> Mixture:
        return Mixture(
            components,
            log_weights,
            space,
            log_prior=log_prior,
            hyperparameters=dict(branches.values),
            program=branches.prior,
            site_tables=branches.site_tables,
            observed=branches.observed,
        )

    def on_host(key: PRNGKeyArray, data: Transitions | Counts | None) -> Mixture:
        del key
        if data is None:
            return posterior(own(stacked), _normalise(log_prior))
        # The stack, which is kept for other data, is read alone.
        before = posterior(stacked, _normalise(log_prior))
        return before.update(jax.tree.map(np.ravel, data) if isinstance(data, Transitions) else data)

    def summarise(transitions: Transitions) -> ConjugatePosterior:
        # The update of each branch by all data, side by side.
        return jax.vmap(lambda component: component.update(transitions))(jax.tree.map(np.array, stacked))

    def infer(key: PRNGKeyArray, data_statistics: ConjugatePosterior) -> Mixture:
        del key
        # Bayes' rule for the value: log prior plus log evidence of its closed form.
        evidence = jax.vmap(lambda component: component.log_evidence)(data_statistics)
        return posterior(data_statistics, jax.nn.log_softmax(jnp.asarray(log_prior) + evidence))

    def draws_on_host(key: PRNGKeyArray, data_statistics: ConjugatePosterior, num: int) -> Mixture:
        # Evidences in float64: their differences decide, and single precision loses them in a long log.
        del key, num
        statistics = [jax.tree.map(lambda x, k=k: np.asarray(x)[k], data_statistics) for k in range(len(log_prior))]
        evidence = np.array([float(component.log_evidence) for component in statistics])
        return posterior(data_statistics, _normalise(np.asarray(log_prior) + evidence))

    return Fit("mixture", space, summarise, infer, on_host, draws_on_host)


def _normalise(log_weights: Float[np.ndarray, " K"]) -> Float[np.ndarray, " K"]:
    return log_weights - np.logaddexp.reduce(log_weights)
