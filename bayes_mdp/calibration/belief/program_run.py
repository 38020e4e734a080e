"""A prior program, run at given values of its latent sites: deterministics, log densities, what axes mean; and the log
density of the prior at draws of a posterior. Host-side.

Everything is computed in float64, a block of draws at a time.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float, PRNGKeyArray, Shaped
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.ops.provenance import eval_provenance

from bayes_mdp.calibration.belief.draws import Draws
from bayes_mdp.inference.conjugate.dirichlet_rows import DirichletRows
from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.inference.detection.trace import improper_value
from bayes_mdp.inference.families.family import RewardBelief
from bayes_mdp.inference.fitted import NO_PROGRAM, Fitted
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.models.isolate import traced_alone
from bayes_mdp.models.mdp_spec import Prior
from bayes_mdp.models.reward_laws import unwrap
from bayes_mdp.utils.typing import AnyArray

BLOCK = 50
TINY, BELOW_ONE = float(np.finfo(np.float32).tiny), 1.0 - float(np.finfo(np.float64).epsneg)
Sites = Mapping[str, Shaped[AnyArray, "..."]]
Site = Mapping[str, Any]  # a site as NumPyro's trace describes it
Terms = dict[str, Float[np.ndarray, " N"]]


class SiteFacts(NamedTuple):
    """What is fixed about a latent or deterministic site.

    Args:
        kind: "latent" or "deterministic".
        shape: of its value.
        axes: for each axis, the name of its plate, or the one that `infer={"event_dims": [...]}` gives it; None: none.
        batch: number of leading axes that its log density has.
    """

    kind: str
    shape: tuple[int, ...]
    axes: tuple[str | None, ...]
    batch: int


class ProgramRun(NamedTuple):
    """N runs of a program.

    Args:
        deterministic: deterministic site -> [N ...].
        log_density: latent site -> [N *batch], log density given its parents.
    """

    deterministic: dict[str, AnyArray]
    log_density: dict[str, AnyArray]


@traced_alone
def site_facts(prior: Prior, space: StateActionSpace) -> dict[str, SiteFacts]:
    """What is fixed about the latent and deterministic sites, in order. Nothing is drawn or compiled."""
    facts: dict[str, SiteFacts] = {}

    def program(key: PRNGKeyArray) -> None:
        facts.update({name: _facts(site) for name, site in _trace(prior, space, key, {}).items() if _kind(site)})

    # Shapes alone are traced.
    jax.eval_shape(program, jax.random.key(0))
    return facts


def run_program(prior: Prior, space: StateActionSpace, sites: Sites, num_draws: int) -> ProgramRun:
    """The program at N given values of `sites` [N ...].

    Raises:
        ValueError: a latent site has no value: data may inform about it, so that it cannot be drawn here.
    """
    missing = [name for name, site in site_facts(prior, space).items() if site.kind == "latent" and name not in sites]
    if missing:
        raise ValueError(f"sites has no values of {missing[0]!r}, expected those of every latent site")

    @traced_alone
    def one(key: PRNGKeyArray, values: Sites) -> ProgramRun:
        traced = _trace(prior, space, key, values)
        # Observed sites have neither a value to report nor a prior.
        latent = {name: site for name, site in traced.items() if _kind(site) == "latent"}
        return ProgramRun(
            {name: jnp.asarray(site["value"]) for name, site in traced.items() if _kind(site) == "deterministic"},
            {name: _log_density(site) for name, site in latent.items()},
        )

    with jax.enable_x64(True):
        block = jax.jit(jax.vmap(one))
        size = min(BLOCK, num_draws)
        number = -(-num_draws // size)
        # The last block is filled up, by repeating draws, and cut below: one compiled program for any N.
        places = np.resize(np.arange(num_draws), (number, size))
        keys = jax.random.split(jax.random.key(0), (number, size))
        runs = [
            jax.tree.map(np.asarray, block(keys[i], {name: _float64(x[draw_index]) for name, x in sites.items()}))
            for i, draw_index in enumerate(places)
        ]
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:num_draws], *runs)


@traced_alone
def top_sites(prior: Prior, space: StateActionSpace) -> frozenset[str]:
    """The latent sites whose distribution depends on no other latent site.

    The dependence is read off the program: each log density is traced as a function of all sites.
    """
    shapes: dict[str, jax.ShapeDtypeStruct] = {}

    def densities(values: Sites) -> dict[str, Array]:
        traced = _trace(prior, space, jax.random.key(0), values)
        latent = {name: site for name, site in traced.items() if _kind(site) == "latent"}
        shapes.update({name: jax.ShapeDtypeStruct(x["value"].shape, x["value"].dtype) for name, x in latent.items()})
        return {name: site["fn"].log_prob(site["value"]) for name, site in latent.items()}

    # First the shapes of the latent sites, then which inputs each log density depends on.
    jax.eval_shape(densities, {})
    names = tuple(shapes)
    # `eval_provenance` takes the sites as keywords, and their names need not be identifiers: number them.
    numbered = {f"site{i}": shapes[name] for i, name in enumerate(names)}

    # A density depends at most on itself: then no latent site is above it.
    parents = eval_provenance(
        lambda **values: densities({name: values[f"site{i}"] for i, name in enumerate(names)}), **numbered
    )
    return frozenset(name for i, name in enumerate(names) if parents[name] <= {f"site{i}"})


def _trace(prior: Prior, space: StateActionSpace, key: PRNGKeyArray, values: Sites) -> dict[str, Site]:
    """The trace of one run at `values`; an improper site without a value has some possible one."""
    data: Any = dict(values)  # the annotation of NumPyro is too narrow
    # The innermost handler acts first: given values, then keys, then a possible value of an improper site.
    somewhere, substituted = handlers.substitute(substitute_fn=improper_value), handlers.substitute(data=data)
    with handlers.trace() as traced, somewhere, handlers.seed(rng_seed=key), substituted:
        prior(space)
    return dict(traced)


def _kind(site: Site) -> str | None:
    """ "latent", "deterministic" or None: observed, a parameter, a plate."""
    if site["type"] == "deterministic":
        return "deterministic"
    return "latent" if site["type"] == "sample" and not site["is_observed"] else None


def _facts(site: Site) -> SiteFacts:
    shape = tuple(jnp.shape(site["value"]))
    if site["type"] == "deterministic":
        # As for samples: the axes of the plates come first, those of one event follow.
        batch = max((-frame.dim for frame in site["cond_indep_stack"]), default=0)
        return SiteFacts("deterministic", shape, _axes(site, shape, batch), 0)
    batch = len(site["fn"].batch_shape)
    axes, named = _axes(site, shape, batch), tuple(site["infer"].get("event_dims", ()))
    if len(named) == len(shape) - batch:
        # Names were given to all event axes.
        axes = (*axes[:batch], *named)
    return SiteFacts("latent", shape, axes, batch)


def _axes(site: Site, shape: tuple[int, ...], batch: int) -> tuple[str | None, ...]:
    axes: list[str | None] = [None] * len(shape)
    # A plate of dimension d is the axis d before the event axes; an axis of another size was not broadcast to it.
    for frame in site["cond_indep_stack"]:
        place = batch + frame.dim
        if 0 <= place < len(shape) and shape[place] == frame.size:
            axes[place] = frame.name
    return tuple(axes)


def _log_density(site: Site) -> Float[Array, "*batch"]:
    law: dist.Distribution = site["fn"]
    # `scale` raises a density to a power: its logarithm is multiplied.
    terms = jnp.asarray(law.log_prob(_inside(law, site["value"])))
    return terms if site["scale"] is None else site["scale"] * terms


def _inside(law: dist.Distribution, value: AnyArray) -> AnyArray:
    """`value`, off the boundary of the support, which rounding in float32 can put it on."""
    support = unwrap(law).support
    if support is constraints.simplex or support is constraints.positive:
        return jnp.maximum(value, TINY)
    if support is constraints.unit_interval:
        return jnp.clip(value, TINY, BELOW_ONE)
    return value


def _float64(values: AnyArray) -> np.ndarray:
    """A copy, floats in float64: JAX may hold a float32 version of the original."""
    array = np.array(values)
    return array.astype(np.float64) if np.issubdtype(array.dtype, np.floating) else array


# The density of the prior.


def log_prior_of(posterior: Fitted, draws: Draws) -> Terms:
    """Log density, up to a constant, of the parameters without latent parents, at each draw: name -> [N].

    These are sites of the program; without a program the rows ("transition_probs") and rewards ("rewards") of a closed
    form. Parameters with latent parents belong to the model, which learns them through their parents (Kallioinen et al.
    2023, section 2.4).

    Raises:
        ValueError: a posterior without a program (one that was loaded has none).
    """
    why = why_no_log_prior(posterior)
    if why is not None:
        raise ValueError(f"posterior has no density of its prior, expected one from infer: {why}")
    program = posterior.program
    if program is None:
        return log_prior_of_closed_form(posterior, draws)
    run = run_program(program, posterior.space, draws.run.sites, len(draws.transition_probs))
    # Sites further down are part of the model that is learnt.
    top = top_sites(program, posterior.space)
    densities = {name: np.asarray(x) for name, x in run.log_density.items() if name in top}
    # All elements of a site are one term.
    return {name: x.reshape(len(x), -1).sum(1) for name, x in densities.items()}


def why_no_log_prior(posterior: Fitted) -> str | None:
    """Why the density of its prior is not known, in words; None: it is."""
    if posterior.program is not None:
        return None
    part = posterior.exact_part
    if part is None or not posterior.in_closed_form:
        return NO_PROGRAM
    rewards = part.reward_cells
    if not rewards.learns:
        # A reward that is a known function of what is drawn has another density, with a Jacobian.
        return None
    plain = isinstance(rewards, RewardCells) and rewards.coefficient is None
    return None if plain else f"{NO_PROGRAM}, and the density of its beliefs about rewards has no formula here"


def log_prior_of_closed_form(posterior: Fitted, draws: Draws) -> Terms:
    """Of the Dirichlet rows and of the reward parameters; one that several pairs share counts once."""
    part = posterior.exact_part
    assert part is not None  # else its density is not known
    prior = part.before_data()
    terms = {"transition_probs": _log_prior_rows(prior.transition_probs, draws.transition_probs)}
    rewards = prior.reward_cells
    if isinstance(rewards, RewardCells):
        # The density of each shared parameter once: at the first cell that uses it.
        site = np.arange(draws.rewards.known.size) if rewards.cell is None else np.ravel(rewards.cell)
        first = _first_places(site)
        parameters = [np.asarray(x, np.float64)[site[first]] for x in vars(rewards.prior).values()]
        # The prior of each parameter that is not shared.
        belief = type(rewards.prior)(*parameters)
        law = draws.rewards.law
        assert law is not None  # it is that of the belief
        # The draws hold the law: its parameters are read back from it.
        values = belief.laws[type(law)](law)
        drawn = (np.asarray(values[name], np.float64) for name in belief.sites)
        of_cells = [x.reshape(len(x), site.size, *x.shape[1 + draws.rewards.known.ndim :]) for x in drawn]
        terms["rewards"] = belief.log_prior(tuple(_inside_support(x[:, first], belief) for x in of_cells)).sum(1)
    return terms


def _log_prior_rows(rows: DirichletRows, probs: Float[np.ndarray, "N *H S A O"]) -> Float[np.ndarray, " N"]:
    prior = np.asarray(rows.concentration, np.float64).reshape(-1, probs.shape[-1])
    # Several pairs may share a row: it is counted once.
    table = np.arange(len(prior)) if rows.row is None else np.ravel(rows.row)
    first = _first_places(table)
    # log Dirichlet density without its constant, which no draw changes.
    flat = probs.reshape(len(probs), *prior.shape)[:, first].astype(np.float64)
    possible = prior[first] > 0
    # A probability may underflow to zero in float32: take the smallest normal number in its place.
    terms = np.where(possible, (prior[first] - 1.0) * np.log(np.maximum(flat, TINY)), 0.0)
    return terms.sum((1, 2))


def _first_places(table: np.ndarray) -> np.ndarray:
    """Where each entry >= 0 of `table` occurs first."""
    # Entries below zero stand for none.
    entries, places = np.unique(table, return_index=True)
    return places[entries >= 0]


def _inside_support(drawn: Float[np.ndarray, "N ..."], belief: RewardBelief) -> Float[np.ndarray, "N ..."]:
    """Draws on the boundary of the support, by rounding, moved inside."""
    ((family, *_), *remaining) = belief.sites.values()
    tiny = np.finfo(np.float32).tiny
    if family in ("Beta", "Dirichlet"):
        return np.clip(drawn, tiny, 1.0 - np.finfo(np.float64).epsneg)
    return np.maximum(drawn, tiny) if family == "Gamma" and not remaining else drawn
