"""What a prior program says, read without running it: its sites, who depends on whom, its laws as a pure function.

The program is traced abstractly (an eager trace would compile a sampler per site). Dependence is read off the traced
computation (`numpyro.ops.provenance`), so a parent of weight 1e-3 is a parent.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.ops.provenance import eval_provenance

from bayes_mdp.inference.fingerprint import constants, fingerprint
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.models.laws import unwrap
from bayes_mdp.models.normal_gamma import NormalGamma
from bayes_mdp.models.world import RewardTable, check_world, reward_table, transition_table

Parameters = Callable[[Any], dict[str, Any]]

LEAVES: dict[type, Parameters] = {
    dist.Dirichlet: lambda leaf: {"concentration": leaf.concentration},
    NormalGamma: lambda leaf: {name: getattr(leaf, name) for name in NormalGamma.arg_constraints},
    dist.Normal: lambda leaf: {"loc": leaf.loc, "precision": leaf.scale**-2.0},
    dist.Gamma: lambda leaf: {"concentration": leaf.concentration, "rate": leaf.rate},
    dist.Beta: lambda leaf: {"concentration1": leaf.concentration1, "concentration0": leaf.concentration0},
}
"""Families that can be conjugate leaves, and their parameters. These types only: a subclass may change the density."""

LAWS: dict[type, Parameters] = {
    dist.Normal: lambda law: {"loc": law.loc, "precision": law.scale**-2.0},
    dist.BernoulliProbs: lambda law: {"mean": law.probs},
    dist.BernoulliLogits: lambda law: {"mean": jax.nn.sigmoid(law.logits)},
    dist.Poisson: lambda law: {"mean": law.rate},
}
"""Reward laws that have a conjugate leaf, and the parameters that must select elements of leaves."""

KNOWN = "known"


class Site(NamedTuple):
    """What is fixed about a site: the family of its unwrapped distribution, its shape, and what bends its density."""

    name: str
    family: str
    shape: tuple[int, ...]
    observed: bool
    scaled: bool
    masked: bool


class Law(NamedTuple):
    """What is fixed about the reward law: its family ("known": numbers, no law), whether it depends on the outcome."""

    family: str
    by_outcome: bool


@dataclass(frozen=True, eq=False)
class Program:
    """A traced prior. Two programs with the same `fingerprint` are the same computation.

    Args:
        prior, space: what was traced.
        sites: every sample and param site, in order.
        law: the reward law.
        parents: for each leaf and each of its parameters, the latent sites that it depends on.
        law_parents: the latent sites that the transition law depends on, and each parameter of the reward law.
        evaluate: {site: value} -> {"leaves": {site: {parameter: array}}, "transition": [*H S A O],
            "reward": {parameter: [*H S A] or [*H S A O]}}. Pure, to be jitted by the caller.
        fingerprint: digest of all of the above.
        narrow: whether it holds arrays of 32-bit numbers.
        held: values of sites that count as known (see `given`).
    """

    prior: Any
    space: StateActionSpace
    sites: tuple[Site, ...]
    law: Law
    parents: dict[str, dict[str, frozenset[str]]]
    law_parents: dict[str, Any]
    evaluate: Callable[[dict[str, Any]], dict[str, Any]] = field(repr=False)
    fingerprint: str
    narrow: bool
    held: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Program) and self.fingerprint == other.fingerprint

    @property
    def latents(self) -> tuple[Site, ...]:
        """The sites that are neither observed nor parameters."""
        return tuple(site for site in self.sites if not site.observed)

    @property
    def drawable(self) -> bool:
        """Whether running the program draws from the prior: no factor, observation, scale or mask bends it."""
        return not any(site.observed or site.scaled or site.masked for site in self.sites)

    def given(self, values: Mapping[str, Any]) -> "Program":
        """The same program with some sites held at `values`: they, and sites that are observed, are no sites any more.

        Not to be used as a key: it compares equal to the program itself.
        """

        def others(parents: frozenset[str]) -> frozenset[str]:
            return parents - frozenset(values)

        def is_set(x: Any) -> bool:
            return isinstance(x, frozenset)

        return replace(
            self,
            sites=tuple(site for site in self.latents if site.name not in values),
            parents={
                name: jax.tree.map(others, parents, is_leaf=is_set)
                for name, parents in self.parents.items()
                if name not in values
            },
            law_parents=jax.tree.map(others, self.law_parents, is_leaf=is_set),
            held=dict(values),
        )


@lru_cache(maxsize=64)
def compiled(evaluate: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`Program.evaluate`, jitted: one compilation for all values, and leaves at values that are no probabilities."""
    return jax.jit(evaluate)


@lru_cache(maxsize=64)
def compiled_laws(evaluate: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same without the parameters of the leaves, which are as large as the laws."""
    return jax.jit(lambda values: {k: v for k, v in evaluate(values).items() if k != "leaves"})


def trace_program(prior: Any, space: StateActionSpace) -> Program:
    """Trace `prior(space)` in JAX's current default precision. Host side; nothing is compiled, nothing is drawn.

    Raises:
        ValueError: two sites have one name.
        TypeError: the program does not return a `World`.
    """
    facts: dict[str, Any] = {}

    def evaluate(values: dict[str, Any]) -> dict[str, Any]:
        return _evaluate(prior, space, values, facts)

    with unique_names():
        jax.eval_shape(evaluate, {})
    sites, law, values = facts["sites"], facts["law"], facts["values"]
    closed = jax.make_jaxpr(lambda values: (evaluate(values), _densities(prior, space, values)))(values)
    # Site names are free, `eval_provenance` takes them as keywords: number them.
    names = tuple(values)
    found = eval_provenance(
        lambda **numbered: evaluate({name: numbered[f"_{i}"] for i, name in enumerate(names)}),
        **{f"_{i}": values[name] for i, name in enumerate(names)},
    )
    parents = jax.tree.map(
        lambda numbers: frozenset(names[int(i[1:])] for i in numbers),
        found,
        is_leaf=lambda x: isinstance(x, frozenset),
    )
    leaves = parents.pop("leaves")
    digest = fingerprint(closed, space, (sites, law))
    held = (np.asarray(x).dtype for x in constants(closed) if np.ndim(x))
    narrow = any(dtype in (np.float32, np.int32) for dtype in held)
    return Program(prior, space, sites, law, leaves, parents, evaluate, digest, narrow)


@contextmanager
def unique_names() -> Iterator[None]:
    """NumPyro's assertion that the sites of a program have names that differ, as a sentence.

    Raises:
        ValueError: two sites have one name.
    """
    try:
        yield
    except AssertionError as error:
        if "unique names" not in str(error):
            raise
        name = str(error).split("`")[1] if "`" in str(error) else "?"
        raise ValueError(
            f"the program has two sites called {name!r}, expected names that differ "
            "(observed_next_state and observed_reward are the library's own)"
        ) from error


def density(message: dict[str, Any]) -> tuple[Any, Any, Any]:
    """All that the trace of a site says of its density: the log density, its scale, whether the value is possible.

    The support has to be asked for: without NumPyro's validation, Uniform(0, 1) and Uniform(1, 2) have one log density.
    """
    law = message["fn"]
    return law.log_prob(message["value"]), message["scale"], law.support(message["value"])


def _densities(prior: Any, space: StateActionSpace, values: dict[str, Any]) -> list[Any]:
    """The density of every site: what `evaluate` does not show of the parents of leaves."""
    with handlers.trace() as trace, handlers.seed(rng_seed=0), handlers.substitute(data=values):
        prior(space)
    messages = [message for message in trace.values() if message["type"] == "sample"]
    return [density(message) for message in messages]


def _evaluate(prior: Any, space: StateActionSpace, values: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    """Run the program at `values`, note its static facts in `facts`, return the arrays of its leaves and laws."""
    somewhere = handlers.substitute(substitute_fn=improper_value)
    with handlers.trace() as trace, somewhere, handlers.seed(rng_seed=0), handlers.substitute(data=values):
        world = prior(space)
    check_world(world, space)
    messages = [message for message in trace.values() if message["type"] in ("sample", "param")]
    facts["sites"] = tuple(_site(message) for message in messages)
    latents = {m["name"]: m for m, site in zip(messages, facts["sites"], strict=True) if not site.observed}
    facts["values"] = {n: jax.ShapeDtypeStruct(jnp.shape(m["value"]), m["value"].dtype) for n, m in latents.items()}
    leaves = {name: _parameters(message) for name, message in latents.items()}
    facts["law"], reward = _reward(reward_table(world, space))
    return {"leaves": leaves, "transition": transition_table(world, space), "reward": reward}


def improper_value(message: dict[str, Any]) -> Any:
    """Some value for a site that has no draws, an improper one; None: it has a value, or draws its own."""
    latent = message["type"] == "sample" and message["value"] is None
    if not latent or not isinstance(unwrap(message["fn"]), dist.ImproperUniform):
        return None
    return message["fn"].support.feasible_like(jnp.zeros(message["fn"].shape()))


def _unwrap(fn: dist.Distribution) -> tuple[dist.Distribution, bool]:
    """The distribution inside expanded, independent and masked ones, and whether one of them masks."""
    leaf, masked = unwrap(fn), False
    while isinstance(leaf, dist.MaskedDistribution):
        leaf, masked = unwrap(leaf.base_dist), True
    return leaf, masked


def _site(message: dict[str, Any]) -> Site:
    if message["type"] == "param":
        return Site(message["name"], "param", (), True, False, False)
    leaf, masked = _unwrap(message["fn"])
    observed, scaled = bool(message["is_observed"]), message["scale"] is not None
    return Site(message["name"], _family(leaf, LEAVES), jnp.shape(message["value"]), observed, scaled, masked)


def _family(distribution: Any, known: dict[type, Parameters]) -> str:
    """The name of its type; of a type of the user's with the name of a known one, where it comes from too."""
    kind = type(distribution)
    impostor = kind not in known and kind.__name__ in {each.__name__ for each in known}
    return f"{kind.__module__}.{kind.__name__}" if impostor else kind.__name__


def _parameters(message: dict[str, Any]) -> dict[str, Any]:
    """Parameters of a leaf, one row for each row of its value; nothing for a site that is no leaf."""
    leaf, _ = _unwrap(message["fn"])
    if type(leaf) not in LEAVES:
        return {}
    shape = jnp.shape(message["value"])
    rows = shape if type(leaf) is dist.Dirichlet else shape[: len(shape) - leaf.event_dim]
    return {name: jnp.broadcast_to(value, rows) for name, value in LEAVES[type(leaf)](leaf).items()}


def _reward(table: RewardTable) -> tuple[Law, dict[Any, Any]]:
    """The reward law and the parameters to look at: those of `LAWS`, or all that another law holds."""
    law = table.law
    if law is None:
        return Law(KNOWN, table.by_outcome), {"mean": table.known}
    parameters = LAWS[type(law)](law) if type(law) in LAWS else dict(enumerate(jax.tree.leaves(law)))
    return Law(_family(law, LAWS), table.by_outcome), parameters
