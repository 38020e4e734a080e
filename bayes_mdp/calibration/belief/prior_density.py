"""The prior behind a posterior: draws from it, and the log density of its sites. Host-side, densities in float64."""

import math
from collections.abc import Mapping
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float, Key, PRNGKeyArray, PyTree
from numpyro import handlers
from numpyro.ops.provenance import eval_provenance
from scipy import stats

from bayes_mdp.calibration.belief.observed_data import before_data
from bayes_mdp.calibration.belief.parameter_draws import Draws, Run, block_size, check_draws, draw, of_tables
from bayes_mdp.calibration.belief.posterior_views import FittedPosterior, has_prior, program_of, sites_of
from bayes_mdp.inference.collapsed.collapsed_posterior import CollapsedPosterior
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.conjugate.dirichlet_rows import DirichletRows
from bayes_mdp.inference.conjugate.families import (
    BetaBelief,
    GammaBelief,
    NormalBelief,
    NormalGammaBelief,
    RewardBelief,
)
from bayes_mdp.inference.conjugate.reward_cells import KnownRewards
from bayes_mdp.inference.mixtures.mixture import Mixture
from bayes_mdp.inference.sampled.sampled_posterior import SampledPosterior
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.mdp.space import PLATE_NAMES
from bayes_mdp.models.mdp_spec import MDPSpec, Prior, RewardTable, reward_table, transition_table
from bayes_mdp.models.tracing import traced_alone

Terms = dict[str, Float[np.ndarray, " N"]]
Sites = Mapping[str, Any]  # name -> values; a tree with array leaves
Site = Mapping[str, Any]  # a site as NumPyro's trace describes it


def draw_prior(key: PRNGKeyArray, posterior: FittedPosterior, num_draws: int) -> Draws:
    """Draws of the prior, with the sites that the posterior holds.

    Raises:
        ValueError: the posterior was loaded from a file and has no program, or its prior is improper.
    """
    if not isinstance(posterior, CollapsedPosterior | SampledPosterior):
        return draw(key, before_data(posterior), num_draws)
    check_draws(posterior, num_draws)
    program = program_of(posterior)
    if program is None or not has_prior(posterior):
        raise ValueError("the posterior has no proper prior program (one that was loaded has none), expected one")
    drawn = draw_program(key, program, posterior.space, num_draws)
    sites = {name: drawn.run.sites[name] for name in sites_of(posterior)}
    return drawn._replace(run=Run(sites))


def draw_program(key: PRNGKeyArray, prior: Prior, space: StateActionSpace, num_draws: int) -> Draws:
    """Independent draws of the program, with every latent site in `run.sites`."""
    size = block_size(math.prod((*space.shape, space.n_outcomes)))

    @jax.jit
    def block(keys: Key[Array, " N"]) -> tuple[Array, RewardTable, dict[str, Array]]:
        return jax.vmap(lambda each: _run_program(prior, space, each))(keys)

    drawn = [block(jax.random.split(each, size)) for each in jax.random.split(key, -(-num_draws // size))]
    probs, rewards, sites = jax.tree.map(lambda *parts: np.concatenate(parts)[:num_draws], *drawn)
    return of_tables(probs, rewards, Run(sites))


@traced_alone
def _run_program(
    prior: Prior, space: StateActionSpace, key: PRNGKeyArray
) -> tuple[Float[Array, "*H S A O"], RewardTable, dict[str, Array]]:
    """Rows, reward law and latent sites of one draw."""
    with handlers.trace() as traced:
        spec = cast(MDPSpec, handlers.seed(prior, key)(space))
    latent = {name: site["value"] for name, site in traced.items() if is_latent(site)}
    return transition_table(spec, space), reward_table(spec, space), latent


def is_latent(site: Site) -> bool:
    """Whether a site of a trace is drawn, and not observed."""
    return site["type"] == "sample" and not site["is_observed"]


@traced_alone
def site_dims(prior: Prior, space: StateActionSpace) -> dict[str, tuple[str | None, ...]]:
    """Site -> the plate of the space along each of its axes; None: another axis."""
    found: dict[str, tuple[str | None, ...]] = {}

    def program(key: PRNGKeyArray) -> None:
        traced = handlers.trace(handlers.seed(prior, key)).get_trace(space)
        for name, site in traced.items():
            if is_latent(site):
                found[name] = _axes(site)

    jax.eval_shape(program, jax.random.key(0))
    return found


def _axes(site: Site) -> tuple[str | None, ...]:
    batch = len(site["fn"].batch_shape)
    axes: list[str | None] = [None] * jnp.ndim(site["value"])
    for frame in site["cond_indep_stack"]:
        place = batch + frame.dim
        if frame.name in PLATE_NAMES and jnp.shape(site["value"])[place] == frame.size:
            axes[place] = frame.name
    return tuple(axes)


def log_prior(prior: Prior, space: StateActionSpace, sites: Sites) -> Terms:
    """Log density of each of `sites` given its parents, in float64, at N values of them [N ...].

    Latent sites that are not in `sites` are drawn anew: they must not be parents of those that are.
    """

    def one(values: Sites) -> dict[str, Float[Array, ""]]:
        substituted = handlers.substitute(handlers.seed(prior, jax.random.key(0)), data=dict(values))
        traced = handlers.trace(substituted).get_trace(space)
        return {name: _log_density(traced[name]) for name in values}

    with jax.enable_x64(True):
        density = jax.jit(jax.vmap(one))(jax.tree.map(np.array, dict(sites)))
        return {name: np.asarray(values) for name, values in density.items()}


def _log_density(site: Site) -> Float[Array, ""]:
    law: dist.Distribution = site["fn"]
    terms = law.log_prob(site["value"])
    return jnp.sum(terms if site["scale"] is None else site["scale"] * terms)


def log_prior_of(posterior: FittedPosterior, draws: Draws) -> Terms:
    """Log density, up to a constant, of the parameters without latent parents, at each draw: name -> [N].

    These are sites of the program, and the rows ("transition_probs") and rewards ("rewards") in closed form.
    Parameters with latent parents belong to the model, which learns them through their parents (Kallioinen et al.
    2023, section 2.4).

    Raises:
        TypeError: a mixture of given posteriors, whose components are no draws of a site.
        ValueError: a posterior that was loaded and has no program.
    """
    if isinstance(posterior, ConjugatePosterior):
        return _closed_form(before_data(posterior), draws, rows=True, rewards=True)
    made = isinstance(posterior, Mixture) and bool(posterior.hyperparameters)
    if not made and not isinstance(posterior, CollapsedPosterior | SampledPosterior):
        raise TypeError(f"posterior is a {type(posterior).__name__}, expected one as infer returns it")
    program = program_of(posterior)
    if program is None:
        raise ValueError("the posterior was loaded and has no program, expected one from infer to look at its prior")
    top = top_sites(program, posterior.space)
    terms = log_prior(program, posterior.space, draws.run.sites)
    found = {name: values for name, values in terms.items() if name in top}
    # Rows and rewards in closed form have no latent parents if all components share their prior parameters.
    if isinstance(posterior, CollapsedPosterior):
        alike = [bool(np.all(np.ptp(np.asarray(v), axis=0) == 0)) for v in posterior.values]
        first = before_data(posterior.component(0))
        found |= _closed_form(first, draws, rows=alike[0], rewards=len(alike) > 1 and all(alike[1:]))
    if isinstance(posterior, Mixture):
        tables, rewards = posterior.components.transition_probs, posterior.components.reward_cells
        same = [_all_share(x) for x in ((tables.prior, tables.row, tables.column, tables.known), rewards)]
        found |= _closed_form(before_data(posterior.component(0)), draws, rows=same[0], rewards=same[1])
    return found


def _all_share(tables: PyTree) -> bool:
    """Whether all components, along the first axis of these arrays, have the same values."""
    return all(bool((np.asarray(x) == np.asarray(x)[:1]).all()) for x in jax.tree.leaves(tables))


@traced_alone
def top_sites(prior: Prior, space: StateActionSpace) -> frozenset[str]:
    """The latent sites whose distribution depends on no other latent site.

    The dependence is read off the program: each log density is traced as a function of all sites.
    """
    shapes: dict[str, jax.ShapeDtypeStruct] = {}

    def densities(values: Sites) -> dict[str, Array]:
        program = handlers.substitute(handlers.seed(prior, jax.random.key(0)), data=dict(values))
        traced = handlers.trace(program).get_trace(space)
        latent = {name: site for name, site in traced.items() if is_latent(site)}
        shapes.update({name: jax.ShapeDtypeStruct(x["value"].shape, x["value"].dtype) for name, x in latent.items()})
        return {name: site["fn"].log_prob(site["value"]) for name, site in latent.items()}

    jax.eval_shape(densities, {})
    names = tuple(shapes)
    # `eval_provenance` takes the sites as keywords, and their names need not be identifiers: number them.
    numbered = {f"site{i}": shapes[name] for i, name in enumerate(names)}

    def by_number(**values: Array) -> dict[str, Array]:
        return densities({name: values[f"site{i}"] for i, name in enumerate(names)})

    parents = eval_provenance(by_number, **numbered)
    return frozenset(name for i, name in enumerate(names) if parents[name] <= {f"site{i}"})


def _closed_form(prior: ConjugatePosterior, draws: Draws, *, rows: bool, rewards: bool) -> Terms:
    """Of the Dirichlet rows and of the reward parameters; one that several pairs share counts once."""
    found: Terms = {}
    if rows:
        found["transition_probs"] = _log_prior_rows(prior.transition_probs, draws.transition_probs)
    if rewards and not isinstance(prior.reward_cells, KnownRewards):
        cell = prior.reward_cells.cell
        site = np.arange(draws.known.size) if cell is None else np.ravel(cell)
        first = _first_places(site)
        belief = jax.tree.map(lambda x: np.asarray(x, np.float64)[site[first]], prior.reward_cells.prior)
        drawn = [p.reshape(len(p), -1)[:, first] for p in draws.parameters]
        found["rewards"] = _log_prior_rewards(belief, drawn).sum(1)
    return found


def _log_prior_rows(rows: DirichletRows, probs: Float[np.ndarray, "N *H S A O"]) -> Float[np.ndarray, " N"]:
    prior = np.asarray(rows.concentration, np.float64).reshape(-1, probs.shape[-1])
    table = np.arange(len(prior)) if rows.row is None else np.ravel(rows.row)
    first = _first_places(table)
    flat = probs.reshape(len(probs), *prior.shape)[:, first].astype(np.float64)
    possible = prior[first] > 0
    # A probability may underflow to zero in float32: take the smallest normal number in its place.
    terms = np.where(possible, (prior[first] - 1.0) * np.log(np.maximum(flat, np.finfo(np.float32).tiny)), 0.0)
    return terms.sum((1, 2))


def _first_places(table: np.ndarray) -> np.ndarray:
    """Where each entry >= 0 of `table` occurs first."""
    entries, places = np.unique(table, return_index=True)
    return places[entries >= 0]


def _log_prior_rewards(belief: RewardBelief, drawn: list[Float[np.ndarray, "N M"]]) -> Float[np.ndarray, "N M"]:
    mean = drawn[0]
    if isinstance(belief, NormalGammaBelief):
        scale = 1.0 / np.sqrt(belief.pseudo_count * drawn[1])
        precision = stats.gamma.logpdf(drawn[1], belief.concentration, scale=1.0 / np.asarray(belief.rate))
        return precision + stats.norm.logpdf(mean, belief.loc, scale)
    if isinstance(belief, NormalBelief):
        return stats.norm.logpdf(mean, belief.loc, belief.scale)
    # Draws on the boundary of the support, by rounding, are moved inside.
    tiny = np.finfo(np.float32).tiny
    if isinstance(belief, BetaBelief):
        inside = np.clip(mean, tiny, 1.0 - np.finfo(np.float64).epsneg)
        return stats.beta.logpdf(inside, belief.concentration1, belief.concentration0)
    assert isinstance(belief, GammaBelief)
    return stats.gamma.logpdf(np.maximum(mean, tiny), belief.concentration, scale=1.0 / np.asarray(belief.rate))
