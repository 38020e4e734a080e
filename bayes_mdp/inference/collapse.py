"""The collapsed model: a prior program with its conjugate leaves integrated out, as NumPyro's kernels get it.

log p(parents, data) = log p(parents) + log evidence of the leaves given the parents (Dirichlet-multinomial rows,
normal-gamma and other conjugate marginals). The density of the parents stays NumPyro's own.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jaxtyping import Array, Float
from numpyro import handlers
from numpyro.infer.util import log_density

from bayes_mdp.inference.certify import certify
from bayes_mdp.inference.grouped import Grouped
from bayes_mdp.inference.hierarchy import Hierarchy, Values, find_hierarchy
from bayes_mdp.inference.posterior import ConjugatePosterior
from bayes_mdp.inference.refusals import NotConjugate
from bayes_mdp.inference.rewards import RewardCells
from bayes_mdp.inference.trace import Program, Site

EVIDENCE = "collapsed_evidence"


def collapsed_model(hierarchy: Hierarchy) -> Callable[[ConjugatePosterior | Grouped], None]:
    """The NumPyro model `model(seen)` of the parents alone; `seen` holds the statistics of the data, an argument."""

    def model(seen: ConjugatePosterior | Grouped) -> None:
        numpyro.factor(EVIDENCE, log_evidence(hierarchy, _parents_only(hierarchy), seen))

    return model


def log_evidence(hierarchy: Hierarchy, values: Values, seen: ConjugatePosterior | Grouped) -> Float[Array, ""]:
    """log p(data of `seen` | parents), the leaves integrated out."""
    if isinstance(seen, Grouped):
        return seen.log_evidence(hierarchy.given(values, seen.seen))
    return hierarchy.given(values, seen).log_evidence


def log_collapsed(hierarchy: Hierarchy, values: Values, seen: ConjugatePosterior) -> Float[Array, ""]:
    """log p(parents, data), for values in their own supports (no Jacobian)."""
    return jnp.asarray(log_density(handlers.seed(collapsed_model(hierarchy), 0), (seen,), {}, dict(values))[0])


def _parents_only(hierarchy: Hierarchy) -> dict[str, Array]:
    """Run the program with its leaves hidden; the values of the parents."""
    program = hierarchy.program
    leaves = {site.name: site for site in program.latents if site.name not in hierarchy.parents}
    dummies = {name: _somewhere(site) for name, site in leaves.items()}

    def hidden(message: dict[str, Any]) -> bool:
        return message["name"] in leaves or message["type"] == "deterministic"

    # A leaf at any value of its support: hidden, it adds no density, and nothing below reads it.
    with handlers.trace() as trace, handlers.block(hide_fn=hidden), handlers.substitute(data=dummies):
        program.prior(program.space)
    return {name: jnp.asarray(trace[name]["value"]) for name in hierarchy.parents}


def _somewhere(site: Site) -> Any:
    if site.family == "Dirichlet":
        return jnp.full(site.shape, 1.0 / site.shape[-1])
    if site.family == "NormalGamma":
        return jnp.broadcast_to(jnp.array([0.0, 1.0]), site.shape)
    return jnp.full(site.shape, 0.0 if site.family == "Normal" else 0.5)


def prove_hierarchy(program: Program, rng: np.random.Generator) -> Hierarchy:
    """The hierarchy of a program, certified at several values of its parents on the model that NUTS gets. Host side.

    Raises:
        NotConjugate: there is none, or its densities are not those of the program.
        ValueError: a parameter of a leaf is out of its range.
    """
    if any(site.name == EVIDENCE for site in program.sites):
        raise NotConjugate(f"prior: site {EVIDENCE!r} has a name of the library's own, expected another name")
    hierarchy, forms = find_hierarchy(program, rng)
    density = jax.jit(lambda values, seen: log_collapsed(hierarchy, values, seen))
    for held, detected in forms[1:]:

        def marginal(posterior: ConjugatePosterior, held: Program = held) -> float:
            return float(density(dict(held.held), _neutral(hierarchy, posterior)))

        certify(held, detected, rng, marginal=marginal)
    return hierarchy


def _neutral(hierarchy: Hierarchy, posterior: ConjugatePosterior) -> ConjugatePosterior:
    """What `posterior` has seen, with other prior parameters: the collapsed model must not read those."""
    prior = hierarchy.prior
    rows = replace(prior.transition_probs, counts=posterior.transition_probs.counts)
    rewards: Any = prior.reward_cells
    if isinstance(rewards, RewardCells):
        rewards = replace(rewards, data=posterior.reward_cells.data)  # type: ignore[union-attr]
    return replace(posterior, transition_probs=rows, reward_cells=rewards)
