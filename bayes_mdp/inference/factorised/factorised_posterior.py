"""`FactorisedPosterior`: exact rows, and rewards as weighted draws: independent of each other given the data.

`prove_factors` shows that a program allows this; `fit_of` infers both. What has to be proven: the sites behind the
transition law and those behind the reward law are independent before any data, and each law depends on its own sites
alone. An observed next state then informs about the former and a reward, given its outcome, about the latter: p(rows,
rewards | data) = p(rows | next states) p(rewards | rewards seen). All of it is read from the data flow of the program,
with every other site as a hyperparameter of which the rows are free.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
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
from bayes_mdp.inference.draws.chains import Chains, Scalars, of_array
from bayes_mdp.inference.draws.methods import NUTS
from bayes_mdp.inference.factorised.integrate_rewards import allows_integral, rate_weights, weigh_rewards
from bayes_mdp.inference.factorised.sampled_rewards import SampledRewards, draw_rewards, sampled_rewards
from bayes_mdp.inference.fitted import Law
from bayes_mdp.inference.integrals.importance import LARGEST_K, LEAST_EFFECTIVE, MOST_NUMBERS, Integration
from bayes_mdp.inference.integrals.quadrature import NotIntegrableError
from bayes_mdp.inference.sampled.algorithms import Drawn, few_draws_left
from bayes_mdp.inference.sampled.conditioned_program import DataStatistics, Rows, overflow, with_capacity
from bayes_mdp.inference.sampled.recipe import Recipe, recipe_for
from bayes_mdp.inference.sampled.sampled_fit import no_transitions, statistics_on_host
from bayes_mdp.inference.summary import program_data
from bayes_mdp.mdp import Counts, FoldedLog, StateActionSpace, Transitions
from bayes_mdp.mdp.data.transitions import without_masked_rows, without_rewards
from bayes_mdp.mdp.space import program_cache
from bayes_mdp.models.isolate import isolated, traced_alone
from bayes_mdp.models.mdp_spec import MDPSpec, Prior
from bayes_mdp.numerics.host_program import small_jit
from bayes_mdp.numerics.numpy_or_jax import concrete_in_numpy, xp
from bayes_mdp.random.host_generator import host_generator
from bayes_mdp.random.resampling import systematic
from bayes_mdp.utils.typing import AnyArray, ArrayLike, IntScalar, RealScalar
from bayes_mdp.utils.validation import check_count, first_index, is_concrete

SHARE = 0.5


class FactorisedPosterior(ConjugatePosterior):
    """A `ConjugatePosterior` whose rows are exact and whose rewards are weighted draws (built by `infer`).

    Given the data, rows and rewards are independent, so that each has a posterior of its own. New data update the rows
    in closed form, and multiply the weight of a draw of the rewards by their likelihood under it: exact for the draws
    that it has. When few of them carry the weight, `refit` draws anew given all data.

    Args:
        share: the effective sample size, as a share of the number of draws, below which `needs_refit` is true.
        by_draws: whether the draws of the rewards are by importance sampling; False: by chains.
    """

    share: float = eqx.field(static=True, default=SHARE)
    by_draws: bool = eqx.field(static=True, default=False)

    @property
    def method(self) -> str:
        """How it was inferred."""
        return "factorised"

    @property
    def rewards(self) -> SampledRewards:
        """The belief about the rewards."""
        assert isinstance(self.reward_cells, SampledRewards)
        return self.reward_cells

    def picks(self, key: PRNGKeyArray, num: int) -> Int[np.ndarray, " N"]:
        """The draw of the rewards in each of the first draws of `pair_draws` under a key.

        Args:
            key: of the draws.
            num: how many.
        """
        return self.rewards.picks(key, num)

    @property
    def mcmc(self) -> Chains | None:
        """The chains behind the draws of the rewards; None: draws from the prior, thinned ones."""
        return self.rewards.mcmc

    @property
    def drawn_by(self) -> Recipe:
        """How the draws of the rewards were made."""
        return self.rewards.recipe

    @property
    def site_draws(self) -> Mapping[str, AnyArray]:
        """The draws of what is behind the rewards."""
        return self.rewards.sites

    @property
    def reward_data(self) -> DataStatistics:
        """What is kept of the rewards."""
        return self.rewards.data_statistics

    @property
    def integration(self) -> Integration | None:
        """How well the integral over what is behind the rewards is known; None: there was none."""
        return self.rewards.integration

    def law_at(self, key: PRNGKeyArray, k: IntScalar) -> Law:
        """One draw of the rows beside draw `k` of the rewards. Traceable.

        Args:
            key: of the rows.
            k: number of a draw of the rewards.
        """
        # Rows are independent of the draw of the rewards: draw k is used with fresh rows.
        return Law(self.transition_probs.sample(key), self.rewards.table_of((jnp.asarray(k),)))

    @property
    def log_weights(self) -> Float[AnyArray, " N"]:
        """Of the draws of the rewards, up to a constant."""
        return self.rewards.log_weights

    @property
    def num_draws(self) -> int:
        """Draws of the rewards."""
        return self.log_weights.shape[0]

    @property
    def log_evidence(self) -> float | Float[Array, ""]:
        """Refused: that of the rewards is no closed form.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "the rewards of a factorised posterior are draws, expected bayes_mdp.evidence(posterior), which estimates "
            "the log evidence and states its error"
        )

    @concrete_in_numpy
    def effective_sample_size(self) -> RealScalar:
        """1 / sum of the squared weights, from 1 to N: how many draws of the rewards carry the belief."""
        return 1.0 / xp.sum(self.rewards.weights**2)

    def needs_refit(self) -> Bool[Array, ""]:
        """Whether the effective sample size is below `share` of the draws. Traceable."""
        # Not "<": true for weights that are nan too.
        return ~(jnp.asarray(self.effective_sample_size()) >= self.share * self.num_draws)

    @property
    def refits_on_host(self) -> bool:
        """Whether `refit` is importance sampling in NumPy, which cannot be traced."""
        return self.by_draws and self.rewards.recipe.prior is not None

    def refit(self, key: PRNGKeyArray) -> "FactorisedPosterior":
        """The same belief with rewards drawn anew given all data: same shapes and dtypes, equal weights.

        By importance sampling where the draws are its own; by chains otherwise, which is traceable, and slow.

        Raises:
            ValueError: the program is not at hand (after `load`); the buffer of rewards has overflowed (see `reserve`;
                inside a trace the weights are nan).
        """
        if not is_concrete(key, self.log_weights, self.rewards.data_statistics):
            return self._refit(key)
        self._check_buffer(0)
        # Importance sampling anew, about the heaviest draws so far; only where the program is at hand.
        if self.refits_on_host:
            try:
                rewards = self._reweigh(host_generator(key))
            except NotIntegrableError:
                pass  # chains, below
            else:
                drawn = replace(self, reward_cells=rewards).thinned(key, self.num_draws)
                rewards = replace(drawn.rewards, data_statistics=self.rewards.data_statistics)
                like = replace(self.rewards, mcmc=None, integration=None)
                # Types of the old arrays: a compiled loop carries them.
                rewards = jax.tree.map(lambda new, old: np.asarray(new, np.asarray(old).dtype), rewards, like)
                return replace(self, reward_cells=rewards)
        with jax.enable_x64(np.asarray(self.log_weights).dtype == np.float64):
            # Copies: JAX may hold 32-bit versions of the arrays themselves.
            return jax.tree.map(np.asarray, _refit(jax.tree.map(np.array, self), key))

    def _refit(self, key: PRNGKeyArray) -> "FactorisedPosterior":
        key_run, key_thin = jax.random.split(key)
        rewards, data = self.rewards, self.rewards.data_statistics
        fresh = draw_rewards(rewards.recipe, key_run, data)
        if isinstance(data, Rows):
            # Rewards beyond the buffer are lost: weights of nan say so inside a trace.
            lost = data.used > data.capacity
            fresh = replace(fresh, log_weights=jnp.where(lost, jnp.nan, fresh.log_weights))
        refitted = replace(self, reward_cells=fresh)
        if rewards.mcmc is None or refitted.num_draws != self.num_draws:
            refitted = refitted.thinned(key_thin, self.num_draws)
        return jax.tree.map(lambda new, old: jnp.asarray(new, jnp.asarray(old).dtype), refitted, self)

    def thinned(self, key: PRNGKeyArray, num: int) -> "FactorisedPosterior":
        """`num` of the draws of the rewards, by weight (systematically), of equal weight, without chains. Traceable.

        Raises:
            ValueError: `num` is below 1. TypeError: no integer.
        """
        check_count("num", num)
        rewards = self.rewards
        # Systematic by weight: equal weights after it.
        index = systematic(key, jnp.asarray(rewards.weights), num)
        sites, table = jax.tree.map(lambda x: jnp.asarray(x)[index], (rewards.sites, rewards.table))
        equal = jnp.zeros(num, jnp.asarray(rewards.log_weights).dtype)
        thin = replace(rewards, sites=sites, table=table, log_weights=equal, mcmc=None, integration=None)
        return replace(self, reward_cells=thin)

    def _reweigh(self, rng: np.random.Generator) -> SampledRewards:
        """The belief about the rewards by importance sampling that starts where it is.

        Raises:
            NotIntegrableError: the weights are not to be relied on.
        """
        rewards = self.rewards
        # The mode has moved little: eight of the heaviest draws are where the search starts.
        heaviest = np.argsort(-np.asarray(rewards.log_weights))[:8]
        starts = {name: np.asarray(x)[heaviest] for name, x in rewards.sites.items()}
        data = jax.tree.map(np.asarray, rewards.data_statistics)
        return weigh_rewards(rewards.recipe, data, rng, starts)

    def reserve(self, num_transitions: int) -> "FactorisedPosterior":
        """The same belief with a buffer for so many more transitions; needed where a compiled loop updates it.

        Only reward laws without sufficient statistics keep their rewards one by one. Host side: shapes change.

        Args:
            num_transitions: so many.

        Raises:
            ValueError: a negative number. TypeError: no integer.
        """
        check_count("num_transitions", num_transitions, 0)
        data = with_capacity(self.rewards.data_statistics, num_transitions)
        return replace(self, reward_cells=replace(self.rewards, data_statistics=data))

    def update(
        self,
        transitions: Transitions | Counts | FoldedLog,
        weight: ArrayLike = 1.0,
        *,
        discount_data: RealScalar | None = None,
        allow_duplicates: bool = False,
    ) -> "FactorisedPosterior":
        """The belief after one transition, a block, or statistics: rows by conjugacy, draws by their likelihood.

        Args and errors: as `ConjugatePosterior.update`; a likelihood of zero under every draw (not inside a trace),
        `discount_data`, which draws of rewards cannot follow.
        """
        # On the host rewards find a larger buffer first; inside a trace its size is fixed.
        concrete = is_concrete(transitions, weight, self.log_weights) and discount_data is None
        if isinstance(transitions, Transitions) and concrete:
            with jax.ensure_compile_time_eval():  # where it stands inside a trace
                after = _learn_rows(self.reserve(int(np.size(transitions.state))), transitions, weight)
            return after if self.rewards.integration is None else after._integrate_again()
        updated = ConjugatePosterior.update(
            self, transitions, weight, discount_data=discount_data, allow_duplicates=allow_duplicates
        )
        assert isinstance(updated, FactorisedPosterior)
        return updated

    def _integrate_again(self) -> "FactorisedPosterior":
        """The same belief with the record of its integral by the new weights; integrated anew if these are poor."""
        rewards = self.rewards
        assert rewards.integration is not None
        weights, before = np.asarray(rewards.log_weights, np.float64), rewards.integration
        # Pareto k and effective size of the weights after new data decide whether the integral still holds.
        record = rate_weights(weights, float(before.log_evidence), before.numbers)
        if record.pareto_k < LARGEST_K and record.effective >= LEAST_EFFECTIVE:
            return replace(self, reward_cells=replace(rewards, integration=record))
        if self.refits_on_host:
            try:
                # The seed is the number of rewards: equal data, equal draws.
                return replace(
                    self, reward_cells=self._reweigh(np.random.default_rng(int(rewards.num_rewards_observed())))
                )
            except NotIntegrableError:
                pass
        # An integral that no longer holds has an error of nan: the evidence is not stated.
        stale = replace(record, error=np.asarray(np.nan))
        return replace(self, reward_cells=replace(rewards, integration=stale))

    def check(self, transitions: Transitions, weight: ArrayLike = 1.0) -> None:
        """Refuse transitions that the space, the rows or every draw of the rewards rules out. Host side.

        Raises:
            ValueError, TypeError: as `ConjugatePosterior.check`; a reward of density zero under every draw; a full
                buffer of rewards.
        """
        ConjugatePosterior.check(self, transitions, weight)
        valid = without_masked_rows(transitions, weight)
        if valid is None or valid.reward is None:
            return
        flat = jax.tree.map(np.atleast_1d, valid)
        by_outcome = self.rewards_by_outcome
        seen, _ = flat.observed_rewards(np.ones(flat.state.shape), by_outcome=by_outcome)
        # Masked rewards are replaced by zero: they may be nan.
        reward = np.where(seen > 0, np.asarray(flat.reward, float), 0.0)
        # Impossible only if every draw gives density zero.
        densities = _densities(self.rewards, flat.cell(self.space), flat.outcome(self.space), reward, seen)
        index = first_index(~np.isfinite(np.asarray(densities).max(0)))
        if index is not None:
            raise ValueError(
                f"transitions.reward{list(index)} is {reward[index]:g}, which has likelihood zero under each of the "
                f"{self.num_draws} draws of the rewards, expected a reward that the prior can give"
            )
        self._check_buffer(int((seen != 0).sum()))

    def _check_buffer(self, more: int) -> None:
        data = self.rewards.data_statistics
        if isinstance(data, Rows) and int(data.used) + more > data.capacity:
            raise ValueError(overflow(data, self.rewards.law))

    def derived_tables(self) -> dict[str, Scalars]:
        """`reward_mean` in each draw of its chains; empty where the draws are not those of its chains. Host side."""
        chains, rewards = self.mcmc, self.rewards
        if chains is None or not chains.are_those_of(rewards.sites, self.num_draws):
            return {}
        means = np.asarray(jax.vmap(lambda each: each.mean)(rewards.table))
        return {"reward_mean": of_array(means, (chains.num_chains, chains.num_samples))}

    def problems(self) -> list[str]:
        """Problems to know of before it is used, one sentence each; empty: none found. Host side."""
        problems = Drawn(self.rewards.sites, self.mcmc, None).problems(self.derived_tables())
        return problems + few_draws_left(float(self.effective_sample_size()), self.num_draws)

    def method_lines(self) -> dict[str, str]:
        """How it was inferred, and how many draws carry the weight, for `print`."""
        drawn = f"{self.num_draws} draws" if self.mcmc is None else self.mcmc.described()
        integration = self.rewards.integration
        if integration is not None and np.isfinite(integration.error):
            drawn = f"{self.num_draws} weighted draws, Pareto k {float(integration.pareto_k):.2f}"
        size = float(self.effective_sample_size())
        return {
            "method": f"factorised (rows in closed form, rewards by {drawn})",
            "weights": f"effective sample size {size:.4g} of {self.num_draws}",
            **program_data(self.rewards.recipe.observed),
        }


def _learn_rows(posterior: FactorisedPosterior, transitions: Transitions, weight: ArrayLike) -> FactorisedPosterior:
    """`update` on the host, in the precision of the posterior, compiled once for the shapes of the data."""
    posterior.check(transitions, weight)
    weights = np.broadcast_to(np.asarray(weight, float), np.shape(transitions.state))
    with jax.enable_x64(np.asarray(posterior.log_weights).dtype == np.float64):
        # Copies: JAX may hold 32-bit versions of the arrays themselves.
        return jax.tree.map(np.asarray, _learn(*jax.tree.map(np.array, (posterior, transitions, weights))))


# Compiled once for the shapes of the data.
_learn = jax.jit(FactorisedPosterior.update)
_refit = jax.jit(FactorisedPosterior._refit)
_densities = jax.jit(SampledRewards._densities)


@dataclass(frozen=True)
class Factors:
    """A program in two parts. Compares by what the program computes.

    Args:
        program: the whole program.
        rows: the belief about the rows before any data, with rewards that are nothing.
        reward_sites: the latent sites of that part.
        rewards: the prior program of the rewards alone; its transition law means nothing.
    """

    program: Program
    rows: ConjugatePosterior = field(compare=False)
    reward_sites: tuple[str, ...] = field(compare=False)
    rewards: Prior = field(compare=False)


@program_cache
def prove_factors(program: Program) -> Factors:
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
    certify(program, detected, program.generator(), held=_some_values(program, rest), rewards=False)
    prior = _rewards_alone(program, tuple(probe.layout.shapes))
    return Factors(program, belief, rest, prior)


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

    before_data = jax.jit(lambda key, data: sampled_rewards(recipe, recipe.draw_prior(key), data))

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
        return joined(rows, draw_rewards(recipe, key, data))

    def summarise(transitions: Transitions) -> tuple[ConjugatePosterior, DataStatistics]:
        # Next states inform the rows, rewards given their outcomes the rest.
        rows = jax.tree.map(np.array, factors.rows).update(without_rewards(transitions))
        return rows, recipe.summarise(transitions)

    def on_host(key: PRNGKeyArray, data: Transitions | Counts | None) -> FactorisedPosterior:
        rows = jax.tree.map(np.array, factors.rows) if data is None else refit(factors.rows, without_rewards(data))
        statistics = statistics_on_host(recipe, no_transitions() if data is None else data)
        # Before data both parts are draws of the prior.
        if data is None and recipe.drawable:
            rewards = before_data(key, statistics)
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


_draw_rewards = jax.jit(draw_rewards, static_argnums=0)
"""`draw_rewards`, compiled once for equal recipes and shapes."""
