"""`Recipe`: how a sampled belief is inferred, as a static value that compares by what the program computes."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree
from numpyro import handlers

from bayes_mdp.inference.detection.probe import Probe
from bayes_mdp.inference.detection.trace import (
    check_names,
    density,
    fingerprint,
    improper_value,
    is_bent,
    run_program,
    trace_program,
    unique_names,
)
from bayes_mdp.inference.draws.chains import Model, Site, trace_latents
from bayes_mdp.inference.draws.methods import NUTS, SVI, Laplace, Method
from bayes_mdp.inference.fitted import BENT, NO_PROGRAM
from bayes_mdp.inference.integrals.unconstrained_model import UnconstrainedModel
from bayes_mdp.inference.sampled.algorithms import Drawn, by_laplace, by_nuts, by_svi
from bayes_mdp.inference.sampled.conditioned_program import DataStatistics, Rows, conditioned, rows_of
from bayes_mdp.inference.summary import Observed
from bayes_mdp.mdp import StateActionSpace, Transitions
from bayes_mdp.models.isolate import traced_alone
from bayes_mdp.models.joint import Data, summarise
from bayes_mdp.models.mdp_spec import Prior, RewardTable, check_spec, reward_table, transition_table
from bayes_mdp.models.reward_laws import unwrap
from bayes_mdp.models.sufficient_statistics import has_statistics
from bayes_mdp.utils.typing import AnyArray

_ALGORITHMS = {NUTS: ("nuts", by_nuts), SVI: ("svi", by_svi), Laplace: ("laplace", by_laplace)}


class Facts(NamedTuple):
    """What tracing a program finds out beside its numbers."""

    latents: list[Site]
    bent: frozenset[str]
    law: type[dist.Distribution] | None
    structure: PyTree
    observed: Observed
    by_outcome: bool


@dataclass(frozen=True)
class Recipe:
    """A prior, a method, and what is fixed about them (built by `recipe_for`).

    Two recipes are equal if their programs are the same computation (sites, densities, laws; not what they are called)
    and their methods are equal: a compiled program serves both. A kernel or guide of one's own is compared by identity.

    Args:
        prior, space, method: as for `infer`.
        law: type of the reward law; None: rewards are known.
        latents: names of the latent sites.
        improper: those of them that cannot be drawn from (ImproperUniform).
        drawable: whether running the program draws from the prior: no factor, observation, scale or mask bends it, but
            for what is observed and tells of nothing.
        digest: of all that is computed.
        rewards_only: the data are the rewards, given the outcomes; the transition law is not looked at.
        observed: (name, number of values) of the sites that the program observes itself.
        log_constant: log density of what is observed and tells of nothing.
        by_outcome: whether the law of a reward depends on the outcome.
    """

    # The program is in the digest: equal computations have equal ones, whatever their objects are.
    prior: Prior | None = field(repr=False, compare=False)
    space: StateActionSpace = field(compare=False)
    method: Method
    law: type[dist.Distribution] | None = field(compare=False)
    latents: tuple[str, ...] = field(compare=False)
    improper: tuple[str, ...] = field(compare=False)
    drawable: bool = field(compare=False)
    digest: str
    rewards_only: bool = False
    observed: Observed | None = field(default=(), compare=False)
    log_constant: float = field(default=0.0, compare=False)
    by_outcome: bool = field(default=False, compare=False)

    @property
    def nuts(self) -> NUTS | None:
        """How chains are run; None: another method."""
        return self.method if isinstance(self.method, NUTS) else None

    def why_no_prior(self) -> str | None:
        """Why the prior cannot be drawn from, in words; None: it can."""
        if self.improper:
            names = ", ".join(map(repr, self.improper))
            # What stands in the way, the prior itself first.
            return f"the prior is improper: ImproperUniform at {names} is no distribution to draw from"
        return NO_PROGRAM if self.prior is None else None if self.drawable else BENT

    @property
    def name(self) -> str:
        """ "nuts", "svi" or "laplace"."""
        return _ALGORITHMS[type(self.method)][0]

    @property
    def num_draws(self) -> int:
        """Draws of one run."""
        chains = self.method.num_chains if isinstance(self.method, NUTS) else 1
        # A chain keeps `num_samples` of its own.
        return chains * self.method.num_samples

    @property
    def statistics_law(self) -> type[dist.Distribution] | None:
        """`law` where it has sufficient statistics, else None."""
        return self.law if self.law is not None and has_statistics(self.law) else None

    @traced_alone
    def summarise(self, data: Data) -> DataStatistics:
        """What the algorithms need of `data`. Traceable for transitions.

        Raises:
            ValueError, TypeError: as `bayes_mdp.models.joint.summarise`; no data at all for an improper prior.
        """
        # Improper sites have no draws: some value inside their support is enough for the shapes.
        summary = summarise(
            cast(Prior, handlers.substitute(self.prior, substitute_fn=improper_value)), self.space, data
        )
        # Without sufficient statistics the rewards are kept one by one.
        if isinstance(summary, Transitions):
            summary = rows_of(summary, self.space, by_outcome=self.by_outcome)
        if isinstance(data, Transitions) and not np.size(data.state):
            self.refuse_improper()
        return summary

    def refuse_improper(self) -> None:
        """Refuse to infer without data what has no proper prior.

        Raises:
            ValueError: names the first improper site.
        """
        if self.improper:
            raise ValueError(
                f"prior: site {self.improper[0]!r} is ImproperUniform, which without data is no distribution, expected "
                "a proper prior, or data"
            )

    @traced_alone
    def draw(self, key: PRNGKeyArray, data_statistics: DataStatistics) -> Drawn:
        """Draws of the latent sites after `data_statistics`. Traceable."""
        if self.prior is None:
            raise ValueError("the posterior was loaded and has no program, expected one from infer to refit")
        algorithm = _ALGORITHMS[type(self.method)][1]
        # The program conditioned on data, or on rewards alone given the outcomes.
        model = conditioned(self.prior, self.space, rewards_only=self.rewards_only)
        return algorithm(key, model, data_statistics, self.method)

    @traced_alone
    def draw_prior(self, key: PRNGKeyArray, number: int | None = None) -> Drawn:
        """Independent draws of the latent sites before any data. Traceable.

        Args:
            key: a typed key.
            number: of draws; None: `num_draws`.

        Raises:
            ValueError: the prior is improper.
        """
        self.refuse_improper()
        prior = cast(Prior, self.prior)

        def one(key: PRNGKeyArray) -> dict[str, Array]:
            # A draw of the prior is a run of the program.
            _, trace = run_program(prior, self.space, key=key)
            return {name: trace[name]["value"] for name in self.latents}

        return Drawn(jax.vmap(one)(jax.random.split(key, number or self.num_draws)), None, None)

    @traced_alone
    def tables(self, sites: Mapping[str, AnyArray]) -> tuple[Float[Array, "N *H S A O"], RewardTable]:
        """Transition probabilities and reward law of every draw; the arrays of the law have a leading axis N."""

        def one(values: dict[str, Array]) -> tuple[Array, RewardTable]:
            spec, _ = run_program(cast(Prior, self.prior), self.space, values)
            return transition_table(spec, self.space), reward_table(spec, self.space)

        return jax.vmap(one)({name: jnp.asarray(x) for name, x in sites.items()})

    @traced_alone
    def possible(self, sites: Mapping[str, AnyArray]) -> Bool[Array, " N"]:
        """Whether the density of every draw is above zero: a factor may rule out what can be drawn."""

        def one(values: dict[str, Array]) -> Array:
            # A factor of minus infinity, or a value outside a support.
            densities = map(density, samples_of(run_program(cast(Prior, self.prior), self.space, values)[1]))
            return jnp.stack([(log_prob > -jnp.inf).all() & inside.all() for log_prob, _, inside in densities]).all()

        return jax.vmap(one)({name: jnp.asarray(x) for name, x in sites.items()})

    def density_for(self, data_statistics: DataStatistics) -> Model:
        """The density that chains draw from.

        Args:
            data_statistics: that enter it.

        Raises:
            ValueError: it is none that a bridge could use, or data were lost.
        """
        # Three things that a bridge needs: a proper prior, draws of the posterior itself, all data.
        if self.improper:
            raise ValueError(
                f"prior: site {self.improper[0]!r} is ImproperUniform, whose density has no normalising constant, so "
                "that no evidence is defined, expected a proper prior"
            )
        if self.nuts is None:
            raise ValueError(
                f"posterior was inferred by {type(self.method).__name__}, whose draws are not of the posterior itself, "
                "expected one by chains: infer(key, prior, data, space=space, method=NUTS())"
            )
        if isinstance(data_statistics, Rows) and int(data_statistics.used) > data_statistics.capacity:
            raise ValueError("posterior: its buffer of rewards has overflowed, expected one that holds all of its data")
        return _density(replace(self, method=NUTS()))  # how it was sampled does not matter here


@traced_alone
def recipe_for(prior: Prior, space: StateActionSpace, method: Method, *, rewards_only: bool = False) -> Recipe:
    """Trace `prior` abstractly, and refuse what no algorithm here can do. Host side; nothing is compiled.

    Raises:
        ValueError: no latent site, two sites of one name or with a name of the library's own, a site to be enumerated.
        TypeError: the program does not return a `MDPSpec`; a method that is none of the records.
    """
    # Exact classes: an algorithm goes with each record.
    if type(method) not in _ALGORITHMS:
        raise TypeError(f"method is a {type(method).__name__}, expected NUTS(...), SVI(...) or Laplace(...)")
    facts_list: list[Facts] = []

    program = partial(_evaluate, prior, space, found=facts_list)
    # First trace: which sites there are. Second, with their values as inputs: what is computed, for the digest.
    jax.eval_shape(program, {})
    facts = facts_list[0]
    latents = {site["name"]: site for site in facts.latents}
    if not latents:
        raise ValueError("prior: the program has no latent site, expected an unknown quantity to infer")
    for name, site in latents.items():
        if site["infer"].get("enumerate") == "parallel":
            raise ValueError(
                f"prior: site {name!r} is marked to be enumerated, which leaves no draws of it, expected it unmarked: "
                "NUTS updates discrete sites by itself"
            )
    improper = tuple(name for name, site in latents.items() if isinstance(unwrap(site["fn"]), dist.ImproperUniform))
    # Traced as inputs: their values do not enter the digest.
    shapes = {name: jax.ShapeDtypeStruct(jnp.shape(s["value"]), s["value"].dtype) for name, s in latents.items()}
    law = facts.law
    digest = fingerprint(jax.make_jaxpr(program)(shapes), space, (tuple(latents), law, facts.structure, facts.observed))
    names, observed = tuple(latents), facts.observed
    with jax.enable_x64(True):
        # An observation that no latent site enters is a constant, and bends nothing.
        constants = Probe(trace_program(prior, space)).constants if facts.bent else {}
    drawable, constant = facts.bent <= constants.keys(), sum(constants.values())
    extra = rewards_only, observed, constant, facts.by_outcome
    return Recipe(prior, space, method, law, names, improper, drawable, digest, *extra)


def samples_of(trace: Mapping[str, Site]) -> list[Site]:
    """The sample sites of a trace."""
    return [site for site in trace.values() if site["type"] == "sample"]


def _evaluate(prior: Prior, space: StateActionSpace, values: dict[str, Array], found: list[Facts]) -> PyTree:
    """All numbers that inference depends on: log densities of the sites, the laws. Static facts go to `found`."""
    # Refuses two sites of one name.
    with unique_names():
        spec, trace = run_program(prior, space, values)
    check_spec(spec, space)
    check_names(trace)
    samples = samples_of(trace)
    latents = [site for site in samples if not site["is_observed"]]
    bent = frozenset(site["name"] for site in samples if is_bent(site))
    table = reward_table(spec, space)
    law = None if table.law is None else type(table.law)
    # A factor is observed too, and has no values.
    seen = [site for site in samples if site["is_observed"] and not isinstance(unwrap(site["fn"]), dist.Unit)]
    observed = tuple((site["name"], int(np.size(site["value"]))) for site in seen)
    found.append(Facts(latents, bent, law, jax.tree.structure(table), observed, table.by_outcome))
    # Everything that inference can see of a program: the digest of these is its identity.
    return [density(site) for site in samples], transition_table(spec, space), table


@lru_cache(maxsize=64)
def _density(recipe: Recipe) -> Model:
    """One model object for equal recipes: the bridge compiles for an object."""
    assert recipe.prior is not None
    return conditioned(recipe.prior, recipe.space, rewards_only=recipe.rewards_only)


@lru_cache(maxsize=64)
def unconstrained_model(recipe: Recipe) -> UnconstrainedModel:
    """The density of the latent sites given data, on the unconstrained scale.

    Args:
        recipe: with its program.
    """
    model = _density(recipe)
    sites = trace_latents(model, None)
    shapes = {site["name"]: jax.ShapeDtypeStruct(np.shape(site["value"]), site["value"].dtype) for site in sites}
    discrete = {site["name"] for site in sites if site["fn"].support.is_discrete}
    free = {name: x for name, x in shapes.items() if name not in discrete}
    return UnconstrainedModel(model, free, {name: shapes[name] for name in discrete}, {})
