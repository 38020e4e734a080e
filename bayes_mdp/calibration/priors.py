"""Log density of the top of the prior at draws of the posterior. Host-side, float64."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from numpyro import handlers
from numpyro.ops.provenance import eval_provenance
from scipy import stats

from bayes_mdp.calibration.beliefs import program_of
from bayes_mdp.calibration.draws import Draws
from bayes_mdp.calibration.observed import before_data
from bayes_mdp.calibration.programs import is_latent, log_prior
from bayes_mdp.inference.collapsed import CollapsedPosterior
from bayes_mdp.inference.families import BetaBelief, GammaBelief, NormalBelief, NormalGammaBelief
from bayes_mdp.inference.mixtures import Mixture
from bayes_mdp.inference.posterior import ConjugatePosterior
from bayes_mdp.inference.rewards import KnownRewards
from bayes_mdp.inference.sampled.posterior import SampledPosterior
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.models.joint import Prior
from bayes_mdp.models.tracing import traced_alone

Terms = dict[str, Float[np.ndarray, " N"]]


def log_prior_of(posterior: Any, draws: Draws) -> Terms:
    """What was assumed -> its log density at each draw, up to a constant: sites (or leaves) without latent parents.

    What has latent parents is a part of the model, learnt through them (Kallioinen et al. 2023, section 2.4).

    Raises:
        TypeError: a mixture, whose components are no draws of a site.
        ValueError: a posterior that was loaded, and has no program.
    """
    if isinstance(posterior, ConjugatePosterior):
        return _of_leaves(before_data(posterior), draws, rows=True, rewards=True)
    made = isinstance(posterior, Mixture) and bool(posterior.hyper)
    if not made and not isinstance(posterior, CollapsedPosterior | SampledPosterior):
        raise TypeError(f"posterior is a {type(posterior).__name__}, expected one as infer returns it")
    program = program_of(posterior)
    if program is None:
        raise ValueError("the posterior was loaded and has no program, expected one from infer to look at its prior")
    top = top_sites(program, posterior.space)
    terms = log_prior(program, posterior.space, draws.run.sites)
    found = {name: values for name, values in terms.items() if name in top}
    if isinstance(posterior, CollapsedPosterior):
        alike = [bool(np.all(np.ptp(np.asarray(v), axis=0) == 0)) for v in posterior.values]
        leaves = before_data(posterior.component(0))
        found |= _of_leaves(leaves, draws, rows=alike[0], rewards=len(alike) > 1 and all(alike[1:]))
    if isinstance(posterior, Mixture):
        tables, rewards = posterior.components.transition_probs, posterior.components.reward_cells
        same = [_all_share(x) for x in ((tables.prior, tables.row, tables.column, tables.known), rewards)]
        found |= _of_leaves(before_data(posterior.component(0)), draws, rows=same[0], rewards=same[1])
    return found


def _all_share(tables: Any) -> bool:
    """Whether all components share these arrays, whose first axis is theirs."""
    return all(bool((np.asarray(x) == np.asarray(x)[:1]).all()) for x in jax.tree.leaves(tables))


@traced_alone
def top_sites(prior: Prior, space: StateActionSpace) -> frozenset[str]:
    """The latent sites whose distribution depends on no other."""
    shapes: dict[str, Any] = {}

    def densities(values: dict[str, Any]) -> dict[str, Any]:
        program = handlers.substitute(handlers.seed(prior, jax.random.key(0)), data=values)
        traced = handlers.trace(program).get_trace(space)
        latent = {name: site for name, site in traced.items() if is_latent(site)}
        shapes.update({name: jax.ShapeDtypeStruct(x["value"].shape, x["value"].dtype) for name, x in latent.items()})
        return {name: site["fn"].log_prob(site["value"]) for name, site in latent.items()}

    jax.eval_shape(densities, {})
    names = tuple(shapes)
    # Site names are free, `eval_provenance` takes them as keywords: number them.
    numbered = {f"site{i}": shapes[name] for i, name in enumerate(names)}

    def by_number(**values: Any) -> dict[str, Any]:
        return densities({name: values[f"site{i}"] for i, name in enumerate(names)})

    parents = eval_provenance(by_number, **numbered)
    return frozenset(name for i, name in enumerate(names) if parents[name] <= {f"site{i}"})


def _of_leaves(prior: ConjugatePosterior, draws: Draws, *, rows: bool, rewards: bool) -> Terms:
    """Of the Dirichlet rows, and of the parameters of the rewards; a leaf that is shared counts once."""
    found: Terms = {}
    if rows:
        found["transition_probs"] = _of_rows(prior.transition_probs, draws.transition_probs)
    if rewards and not isinstance(prior.reward_cells, KnownRewards):
        cell = prior.reward_cells.cell
        first = _first_places(np.arange(draws.known.size) if cell is None else np.ravel(cell))
        leaf = np.arange(draws.known.size) if cell is None else np.ravel(cell)
        belief = jax.tree.map(lambda x: np.asarray(x, np.float64)[leaf[first]], prior.reward_cells.prior)
        drawn = [p.reshape(len(p), -1)[:, first] for p in draws.parameters]
        found["rewards"] = _of_rewards(belief, drawn).sum(1)
    return found


def _of_rows(rows: Any, probs: Float[np.ndarray, "N *H S A O"]) -> Float[np.ndarray, " N"]:
    prior = np.asarray(rows.concentration, np.float64).reshape(-1, probs.shape[-1])
    table = np.arange(len(prior)) if rows.row is None else np.ravel(rows.row)
    first = _first_places(table)
    flat = probs.reshape(len(probs), *prior.shape)[:, first].astype(np.float64)
    possible = prior[first] > 0
    # A draw may underflow.
    terms = np.where(possible, (prior[first] - 1.0) * np.log(np.maximum(flat, np.finfo(np.float32).tiny)), 0.0)
    return terms.sum((1, 2))


def _first_places(table: np.ndarray) -> np.ndarray:
    """Where each leaf is seen first."""
    leaves, places = np.unique(table, return_index=True)
    return places[leaves >= 0]


def _of_rewards(belief: Any, drawn: list[Float[np.ndarray, "N M"]]) -> Float[np.ndarray, "N M"]:
    mean = drawn[0]
    if isinstance(belief, NormalGammaBelief):
        scale = 1.0 / np.sqrt(belief.pseudo_count * drawn[1])
        precision = stats.gamma.logpdf(drawn[1], belief.concentration, scale=1.0 / np.asarray(belief.rate))
        return precision + stats.norm.logpdf(mean, belief.loc, scale)
    if isinstance(belief, NormalBelief):
        return stats.norm.logpdf(mean, belief.loc, belief.scale)
    tiny = np.finfo(np.float32).tiny
    if isinstance(belief, BetaBelief):
        inside = np.clip(mean, tiny, 1.0 - np.finfo(np.float64).epsneg)
        return stats.beta.logpdf(inside, belief.concentration1, belief.concentration0)
    assert isinstance(belief, GammaBelief)
    return stats.gamma.logpdf(np.maximum(mean, tiny), belief.concentration, scale=1.0 / np.asarray(belief.rate))
