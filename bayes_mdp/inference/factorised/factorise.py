"""`prove_factors`: rows that have a closed form beside rewards that have none, apart; `fit_of`: inference of both.

What has to be proven: the sites behind the transition law and those behind the reward law are independent before any
data, and each law depends on its own sites alone. An observed next state then informs about the former and a reward,
given its outcome, about the latter: p(rows, rewards | data) = p(rows | next states) p(rewards | rewards seen). All of
it is read from the data flow of the program, with every other site as a hyperparameter of which the rows are free.
"""

import sys
from dataclasses import dataclass
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from numpyro import handlers

from bayes_mdp.inference.compiled_fit import Fit
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior, conjugate_posterior, refit
from bayes_mdp.inference.conjugate.rewards import known_rewards
from bayes_mdp.inference.conjugate.site_table import SiteTable, site_rows
from bayes_mdp.inference.detection.certify import certify
from bayes_mdp.inference.detection.detect import Detected
from bayes_mdp.inference.detection.detect_rows import ROW_FAMILIES, Assembly, bent, check_above, detect_rows
from bayes_mdp.inference.detection.probe import NotConjugate, Probe, first, inside
from bayes_mdp.inference.detection.trace import KNOWN, Message, Program
from bayes_mdp.inference.draws.methods import NUTS
from bayes_mdp.inference.factorised.factorised_posterior import FactorisedPosterior
from bayes_mdp.inference.factorised.integrate_rewards import allows_integral, weigh_rewards
from bayes_mdp.inference.factorised.sampled_rewards import SampledRewards, sampled_rewards
from bayes_mdp.inference.integrals.importance import MOST_NUMBERS
from bayes_mdp.inference.integrals.quadrature import NotIntegrableError
from bayes_mdp.inference.sampled.conditioned_program import DataStatistics
from bayes_mdp.inference.sampled.recipe import Recipe, recipe_for
from bayes_mdp.inference.sampled.sampled_fit import no_transitions, statistics_on_host
from bayes_mdp.mdp import Counts, StateActionSpace, Transitions
from bayes_mdp.mdp.data.transitions import without_rewards
from bayes_mdp.models.isolate import isolated, traced_alone
from bayes_mdp.models.mdp_spec import MDPSpec, Prior
from bayes_mdp.numerics.host_program import small_jit
from bayes_mdp.random.host_generator import host_generator


@dataclass(frozen=True, eq=False)
class Factors:
    """A program in two parts. Compares by what the program computes.

    Args:
        program: the whole program.
        rows: the belief about the rows before any data, with rewards that are nothing.
        row_sites, reward_sites: the latent sites of either part.
        rewards: the prior program of the rewards alone; its transition law means nothing.
    """

    program: Program
    rows: ConjugatePosterior
    row_sites: tuple[str, ...]
    reward_sites: tuple[str, ...]
    rewards: Prior

    def __hash__(self) -> int:
        return hash(self.program)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Factors) and self.program == other.program


def prove_factors(program: Program, rng: np.random.Generator) -> Factors:
    """The parts of a program, the closed form of its rows certified. Host side, in float64.

    Raises:
        NotConjugate: rows and rewards are not independent, or the rows have no closed form; names the site in the way.
        ValueError: a parameter of the rows is out of its range.
    """
    if program.law.family == KNOWN:
        raise NotConjugate("prior: the rewards are known, so that there is nothing beside the rows to sample")
    # Everything that the transition law depends on belongs to the rows; all other sites are to be free of it.
    # The transition law's sites, followed through the data flow.
    behind = Probe(program).depends(Probe(program).transition)
    rest = tuple(site.name for site in program.latents if site.name not in behind)
    if not rest:
        raise NotConjugate("prior: no site is left for the rewards alone")
    # Rows as conjugate sites, everything else as hyperparameters of which they have to be free.
    probe = Probe(program, rest)
    _check_independent(probe, behind)
    # The rows themselves, as on the exact route.
    assembly = Assembly(probe.of(*ROW_FAMILIES), program.space.n_outcomes)
    rows, elements, possible = detect_rows(probe, assembly)
    shape = program.space.shape
    table = SiteTable(
        tuple(probe.layout.shapes.items()),
        site_rows(elements, probe.layout.size),
        (),
        None,
        program.prior,
    )
    belief = conjugate_posterior(rows, known_rewards(np.zeros(shape)), program.space, table)
    detected = Detected(belief, probe.layout, elements, possible, (), assembly)
    # Certified at some values of the other sites: the rows do not depend on which.
    certify(program, detected, rng, held=_some_values(program, rest), rewards=False)
    prior = _rewards_alone(program, tuple(probe.layout.shapes))
    return Factors(program, belief, tuple(probe.layout.shapes), rest, prior)


def _check_independent(probe: Probe, behind: frozenset[str]) -> None:
    """The sites behind the rows have their own densities alone, free of all other sites; no other density sees them.

    Raises:
        NotConjugate: names the site in the way.
    """
    # p(rows, rewards | data) = p(rows | data) p(rewards | data): proven here from the data flow, not from numbers.
    program, rows = probe.program, frozenset(probe.layout.shapes)
    # Only Dirichlet-like sites have a closed form as rows.
    for site in program.sites:
        if site.name in behind and site.family not in ROW_FAMILIES:
            raise probe.refuse(
                site.name, "the transition law depends on it, and has a closed form over Dirichlet sites only"
            )
        why = bent(site)
        if why and (site.name in behind or site.family == "param"):
            raise probe.refuse(site.name, why)
    # A parameter of a row that depends on another site ties rows to it.
    for site in rows:
        for parameter, entries in probe.parameters_of[site].items():
            parents = probe.depends(entries)
            if parents:
                raise probe.refuse(first(program, parents), f"{parameter} of site {site!r} depends on it")
    # A common site would let rewards inform about rows.
    for entries in probe.reward.values():
        shared = probe.depends(entries) & rows
        if shared:
            raise probe.refuse(first(program, shared), "the transition law and the reward law both depend on it")
    # Factors, observations and the sites of the rewards: none sees a row.
    check_above(probe, rows)


def _some_values(program: Program, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Values of sites inside their supports; the rows do not depend on them."""

    def feasible(message: Message) -> Array | None:
        latent = message["type"] == "sample" and message["value"] is None
        return message["fn"].support.feasible_like(jnp.zeros(message["fn"].shape())) if latent else None

    @traced_alone
    def run() -> dict[str, Array]:
        somewhere = handlers.substitute(substitute_fn=feasible)
        with handlers.block(), handlers.trace() as trace, somewhere, handlers.seed(rng_seed=0):
            program.prior(program.space)
        return {name: jnp.asarray(trace[name]["value"]) for name in names}

    # Run by itself the program would be compiled operation by operation.
    return jax.tree.map(np.asarray, small_jit(run)())


def _rewards_alone(program: Program, rows: tuple[str, ...]) -> Prior:
    """The program with the sites of the rows hidden, at values that the rewards do not depend on."""
    # The rows stand still: the rewards are proven not to see them, so that any values inside the supports will do.
    row_sites = {site.name: np.asarray(inside(site)) for site in program.latents if site.name in rows}
    size = program.space.n_outcomes

    def rewards(space: StateActionSpace) -> MDPSpec:
        with handlers.block(hide=list(row_sites)), handlers.substitute(data=row_sites):  # type: ignore[arg-type]
            spec = program.prior(space)
        # Rows are uniform and known here: whatever they are, the rewards do not see them.
        return MDPSpec(np.full(size, 1.0 / size), spec.reward)

    return rewards


@lru_cache(maxsize=64)
def fit_of(factors: Factors, method: NUTS, *, by_draws: bool = False, asked: bool = True) -> Fit[FactorisedPosterior]:
    """Inference of the rows in closed form and of the rewards by draws, as a function of the data.

    Args:
        factors: proven.
        method: options of the chains.
        by_draws: whether the rewards are weighted draws by importance sampling; False: chains.
        asked: whether that was asked for by name: then chains do not take their place where they fail.

    Raises:
        ValueError: weighted draws are asked for of discrete or improper sites, or of too many.
    """
    recipe = _recipe_of(factors, method)
    # Weighted draws where the sites are continuous, proper and few; chains elsewhere.
    weighted = by_draws and allows_weights(factors, method)
    if by_draws and asked and not weighted:
        raise ValueError(
            f"method is 'importance', and what is behind the rewards ({', '.join(map(repr, factors.reward_sites))}) is "
            f"discrete, improper, or more than {MOST_NUMBERS} numbers, expected 'factorised': chains draw it"
        )

    def joined(rows: ConjugatePosterior, rewards: SampledRewards) -> FactorisedPosterior:
        return FactorisedPosterior(
            rows.transition_probs,
            rewards,
            rows.space,
            rows.visits,
            rows.constant,
            factors.rows.sites,
            by_draws=weighted,
        )

    def infer(key: PRNGKeyArray, data_statistics: tuple[ConjugatePosterior, DataStatistics]) -> FactorisedPosterior:
        rows, data = data_statistics
        return joined(rows, sampled_rewards(recipe, recipe.draw(key, data), data))

    def summarise(transitions: Transitions) -> tuple[ConjugatePosterior, DataStatistics]:
        # Next states inform the rows, rewards given their outcomes the rest.
        return _belief(factors).update(without_rewards(transitions)), recipe.summarise(transitions)

    def on_host(key: PRNGKeyArray, data: Transitions | Counts | None) -> FactorisedPosterior:
        rows = _belief(factors) if data is None else refit(_belief(factors), without_rewards(data))
        statistics = statistics_on_host(recipe, no_transitions() if data is None else data)
        # Before data both parts are draws of the prior.
        if data is None and recipe.drawable:
            rewards = _prior_by_draws(recipe, key, statistics)
        elif weighted:
            rewards = by_weight(key, statistics)
        else:
            rewards = _draw_rewards(recipe, key, statistics)
        return joined(rows, jax.tree.map(np.asarray, rewards))

    def by_weight(key: PRNGKeyArray, data: DataStatistics) -> SampledRewards:
        rng = host_generator(key)
        try:
            return weigh_rewards(recipe, jax.tree.map(np.asarray, data), rng)
        except NotIntegrableError as error:
            if asked:
                raise ValueError(
                    f"method is 'importance', and {error}, expected 'factorised': chains draw the sites of the rewards"
                ) from error
            sys.stderr.write(f"infer: chains draw what is behind the rewards, not importance sampling: {error}\n")
            return _draw_rewards(recipe, key, data)

    return Fit("factorised", factors.program.space, summarise, infer, on_host)


@lru_cache(maxsize=64)
def _recipe_of(factors: Factors, method: NUTS) -> Recipe:
    """Of the rewards alone."""
    # The program inside was read `as_prior`; the handlers around it here are the library's own.
    return recipe_for(isolated(factors.rewards), factors.program.space, method, rewards_only=True)


def allows_weights(factors: Factors, method: NUTS) -> bool:
    """Whether weighted draws serve the sites of the rewards; otherwise chains draw them.

    Args:
        factors: proven.
        method: options of the chains.
    """
    return allows_integral(_recipe_of(factors, method))


def _belief(factors: Factors) -> ConjugatePosterior:
    """A copy, as JAX keeps what it is given."""
    return jax.tree.map(np.array, factors.rows)


@partial(jax.jit, static_argnums=0)
def _draw_rewards(recipe: Recipe, key: PRNGKeyArray, data: DataStatistics) -> SampledRewards:
    """Draws given the data, compiled once for equal recipes and shapes."""
    return sampled_rewards(recipe, recipe.draw(key, data), data)


@partial(jax.jit, static_argnums=0)
def _prior_by_draws(recipe: Recipe, key: PRNGKeyArray, data: DataStatistics) -> SampledRewards:
    """Draws before any data, likewise."""
    return sampled_rewards(recipe, recipe.draw_prior(key), data)
