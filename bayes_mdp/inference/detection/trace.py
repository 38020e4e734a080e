"""A prior program, traced without being run: its sites, their dependences, its laws as a pure function.

The program is traced abstractly (an eager trace would compile a sampler per site), in the caller's precision, with
copies of the user's arrays. What depends on what is read from the jaxpr (`dataflow`, `probe`). What was found out about
a program is kept (`mdp.space.program_cache`).
"""

import hashlib
import itertools
import math
import re
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Real
from numpyro import handlers
from numpyro.distributions import constraints

from bayes_mdp.inference.families.family import families_of, registrations, reward_laws
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.mdp.space import PLATE_NAMES, program_cache
from bayes_mdp.models.as_prior import JACOBIAN, PoweredDensity
from bayes_mdp.models.dirichlet_prior import SupportedDirichlet, SupportedSimplex
from bayes_mdp.models.isolate import Isolated, isolated_prior, traced_alone
from bayes_mdp.models.joint import OBSERVED_NEXT_STATE, OBSERVED_REWARD
from bayes_mdp.models.mdp_spec import Prior, RewardTable, check_spec, reward_table, transition_table
from bayes_mdp.models.normal_gamma_distribution import NormalGamma
from bayes_mdp.models.reward_laws import law_mean, law_variance, unwrap, without_laws
from bayes_mdp.numerics.jaxprs import inner_jaxprs
from bayes_mdp.utils.identity import UnidentifiedError, identity
from bayes_mdp.utils.typing import AnyArray, ArrayLike
from bayes_mdp.utils.validation import is_concrete

Arrays: TypeAlias = dict[str, Float[AnyArray, "..."]]
"""Parameters by their names."""

ParametersOf: TypeAlias = Callable[..., Arrays]
"""The parameters of a distribution."""

Message: TypeAlias = dict[str, Any]
"""What NumPyro records of a site."""

Density: TypeAlias = tuple[Float[AnyArray, "..."], Real[AnyArray, "..."] | float | None, Bool[AnyArray, "..."]]
"""The log density of a site, its scale (None: one), and whether its value is possible."""


class Laws(TypedDict):
    """What `Program.evaluate` returns.

    Args:
        parameters: {conjugate site: {parameter: array}}, one row for each row of the value; other sites have none.
        transition: Float[*H S A O].
        reward: {parameter of the law: Float[*H S A] or Float[*H S A O]}.
    """

    parameters: dict[str, Arrays]
    transition: Float[Array, "*H S A O"]
    reward: dict[str | int, Float[Array, "*cells"]]


Evaluate: TypeAlias = Callable[[Mapping[str, ArrayLike]], Laws]
"""{site: value} -> the laws at these values."""

CONJUGATE: dict[type, ParametersOf] = {
    dist.Dirichlet: lambda law: {"concentration": law.concentration},
    SupportedDirichlet: lambda law: {"concentration": law.concentration},
    NormalGamma: lambda law: {name: getattr(law, name) for name in NormalGamma.arg_constraints},
    dist.Normal: lambda law: {"loc": law.loc, "precision": law.scale**-2.0},
    dist.Gamma: lambda law: {"concentration": law.concentration, "rate": law.rate},
    dist.Beta: lambda law: {"concentration1": law.concentration1, "concentration0": law.concentration0},
    dist.MultivariateNormal: lambda law: {"loc": law.loc, "scale_tril": law.scale_tril},
}
"""Families of conjugate sites, and their parameters. These types only: a subclass may change the density."""

_LINEAR = {"Normal": {"loc": ("MultivariateNormal",)}}
"""Sites that are conjugate by a linear regression, which is no family of single cells."""


def site_families(law: str) -> dict[str, tuple[str, ...]]:
    """Parameters of a reward law -> the families of sites that are conjugate for them; empty: it has none."""
    families_by_parameter: dict[str, tuple[str, ...]] = {}
    # Families of single cells first, then linear regression, whose site is a vector of coefficients.
    for sites in (*(family.sites for family in families_of(law)), _LINEAR.get(law, {})):
        for parameter, families in sites.items():
            families_by_parameter[parameter] = tuple(
                dict.fromkeys((*families_by_parameter.get(parameter, ()), *families))
            )
    return families_by_parameter


KNOWN = "known"
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class Site(NamedTuple):
    """What is fixed about a site: the family of its unwrapped distribution, its shape, and what bends its density.

    `rows` are the possible outcomes of a Dirichlet site; None: all of them. `bounded`: whether a constant is a density
    on its support; of a `discrete` site, whether its values are a finite list that does not depend on other sites.
    """

    name: str
    family: str
    shape: tuple[int, ...]
    observed: bool
    scaled: bool
    masked: bool
    rows: SupportedSimplex | None = None
    bounded: bool = True
    discrete: bool = False


class Law(NamedTuple):
    """What is fixed about the reward law: its family ("known": numbers, no law), whether it depends on the outcome."""

    family: str
    by_outcome: bool


@dataclass(frozen=True)
class Program:
    """A traced prior. Two programs with the same `fingerprint` are the same computation.

    Args:
        prior, space: what was traced; `prior` holds its own copies of the user's arrays.
        sites: every sample and param site, in order.
        law: the reward law.
        values: {latent site: shape and dtype of its value}.
        closed: the jaxpr (values of the latents in order, key) -> (`outputs`, densities of all sample sites).
        outputs: tree of the outputs of `closed`; see `Outputs`.
        evaluate: {site: value} -> `Laws`. Pure, to be jitted by the caller (see `compiled`).
        reward_at: {site: value} -> the reward law itself, in every cell. Pure, likewise.
        supports: {discrete latent site of finite support: the values of one element}.
        plates: {latent site: names of the plates of the space that it lies in}.
        fingerprint: digest of all of the above but `plates`, which only describe.
    """

    prior: Isolated = field(compare=False)
    space: StateActionSpace = field(compare=False)
    sites: tuple[Site, ...] = field(compare=False)
    law: Law = field(compare=False)
    values: Mapping[str, jax.ShapeDtypeStruct] = field(repr=False, compare=False)
    closed: ClosedJaxpr = field(repr=False, compare=False)
    outputs: "Outputs" = field(repr=False, compare=False)
    evaluate: Evaluate = field(repr=False, compare=False)
    reward_at: Callable[[Mapping[str, ArrayLike]], RewardTable] = field(repr=False, compare=False)
    supports: Mapping[str, np.ndarray] = field(repr=False, compare=False)
    plates: Mapping[str, tuple[str, ...]] = field(repr=False, compare=False)
    fingerprint: str

    @property
    def latents(self) -> tuple[Site, ...]:
        """The sites that are neither observed nor parameters."""
        return tuple(site for site in self.sites if not site.observed)

    @property
    def observed(self) -> tuple[tuple[str, int], ...]:
        """(Name, number of values) of every site that the program itself observes; a factor has no values."""
        sites = (site for site in self.sites if site.observed and site.family not in ("param", "Unit"))
        return tuple((site.name, math.prod(site.shape)) for site in sites)

    def generator(self) -> np.random.Generator:
        """Random numbers that depend on the program alone: the points of its proofs."""
        return np.random.default_rng(int(self.fingerprint, 16))

    def draws_prior(self, constants: Collection[str] = ()) -> bool:
        """Whether running the program draws from the prior: no factor, observation, scale or mask bends it.

        Args:
            constants: observed sites that are known to bend nothing.
        """
        # Constants are observed sites whose density no latent site enters.
        bent = (site.name for site in self.sites if site.observed or site.scaled or site.masked)
        return all(name in constants for name in bent)


class Outputs(NamedTuple):
    """What a traced prior shows.

    Args:
        laws: what `Program.evaluate` returns.
        densities: {sample site: (log density, scale or None, whether the value is possible)}.
        powers: {latent site around which there is a scale: that scale}.
    """

    laws: Laws
    densities: dict[str, Density]
    powers: dict[str, Float[Array, "..."]]


@dataclass
class Facts:
    """What does not depend on values, noted while a program is traced; the fields are those of `Program`."""

    sites: tuple[Site, ...] = ()
    law: Law = field(default_factory=lambda: Law(KNOWN, by_outcome=False))
    values: dict[str, jax.ShapeDtypeStruct] = field(default_factory=dict)
    supports: dict[str, np.ndarray] = field(default_factory=dict)
    plates: dict[str, tuple[str, ...]] = field(default_factory=dict)


@lru_cache(maxsize=64)
def compiled(evaluate: Evaluate) -> Evaluate:
    """`Program.evaluate`, jitted: one compilation for all values, and sites at values that are no probabilities."""
    return jax.jit(evaluate)


_TRACED: set[str] = set()
"""Fingerprints of the programs of this process that are the same when they are run again."""
KEY = "(key)"
"""In place of a site: the random numbers that a program draws beside its sites."""


def trace_program(prior: Prior, space: StateActionSpace) -> Program:
    """Trace `prior(space)` in JAX's current default precision. Host side; nothing is compiled, nothing is drawn.

    A ready prior is known by its name and its arguments, and traced once; a program of the user's may have changed in
    ways that cannot be read, and is traced each time.

    Raises:
        ValueError: two sites have one name, the program is not the same function when it is run again.
        TypeError: the program does not return a `MDPSpec`, or branches in Python on what it drew.
    """
    # A digest of prior, space, precision and NumPyro's registry; a program of the user's has none.
    try:
        width = jax.dtypes.canonicalize_dtype(float).name
        digest = identity((prior, space, width, registrations()), packaged=True)
    except UnidentifiedError:
        return _trace(prior, space)
    return _trace_ready(_Ready(prior, space, digest))


@dataclass(frozen=True)
class _Ready:
    """A prior of this package, with all that it is made from; equal ones have one `fingerprint`."""

    prior: Prior = field(compare=False)
    space: StateActionSpace = field(compare=False)
    fingerprint: str


@traced_alone
def _trace(prior: Prior, space: StateActionSpace) -> Program:
    # Copies of the user's arrays: later changes in place must not change what was proven.
    prior = isolated_prior(prior)
    facts = Facts()

    def evaluate(values: Mapping[str, ArrayLike]) -> Laws:
        return _evaluate(prior, space, values, Facts())

    def trace_densities() -> tuple[ClosedJaxpr, Outputs]:
        # A function of its own each time: JAX would give back the first trace.
        def run(values: Mapping[str, ArrayLike], key: PRNGKeyArray) -> Outputs:
            laws = _evaluate(prior, space, values, facts, key)
            return Outputs(laws, *_densities(prior, space, values, key))

        return jax.make_jaxpr(run, return_shape=True)(facts.values, key)

    key = jax.random.key(0)
    # Traced twice: first for the static facts (shapes of the latent values), then as a jaxpr of those values; and the
    # jaxpr once more, because a program that draws by other means gives another one.
    with unique_names(), _explain_errors():
        jax.eval_shape(lambda: _evaluate(prior, space, {}, facts))
        closed, outputs = trace_densities()
        density_of_law = _density_of_law(prior, space, facts)
        digest = _digest(closed, space, facts, density_of_law)
        # What has been traced before was the same computation then: one that changes each time is not met again.
        if digest not in _TRACED and digest != _digest(trace_densities()[0], space, facts, density_of_law):
            raise ValueError(
                "prior: the program computes something else when it is run again (np.random, or a state that it "
                "changes?), expected one that draws by numpyro.sample alone"
            )
    # After the trace: what was called back can only be seen in the jaxpr.
    _refuse_callbacks(closed)
    _TRACED.add(digest)
    copied = ClosedJaxpr(closed.jaxpr, [_copy(x) for x in closed.consts])
    return Program(
        prior,
        space,
        facts.sites,
        facts.law,
        facts.values,
        copied,
        outputs,
        evaluate,
        partial(_reward_at, prior, space),
        facts.supports,
        facts.plates,
        digest,
    )


def _digest(closed: ClosedJaxpr, space: StateActionSpace, facts: Facts, density_of_law: str) -> str:
    supports = {name: (values.dtype, values.tolist()) for name, values in facts.supports.items()}
    return fingerprint(closed, space, (facts.sites, facts.law, supports, density_of_law))


def _density_of_law(prior: Prior, space: StateActionSpace, facts: Facts) -> str:
    """A digest of the log density, mean and variance of a reward law that its name and its numbers do not say.

    Two mixtures, one of normal and one of Laplace laws, have the same name and the same numbers, and so have two
    classes of the user's.
    """
    if facts.law.family == KNOWN or families_of(facts.law.family):
        return registrations(facts.law.family)

    def run(values: Mapping[str, ArrayLike]) -> list[Array]:
        # Any reward in the support will do: the jaxpr of the density is wanted, not its value.
        law = _reward_at(prior, space, values).law
        assert law is not None  # it is no array
        reward = jnp.zeros(law.batch_shape, int if law.is_discrete else float)
        moments = [law.log_prob(reward), law_mean(law)]
        # Some laws have no variance in closed form: the density and the mean tell them apart then.
        try:
            return [*moments, law_variance(law)]
        except NotImplementedError:
            return moments

    return fingerprint(jax.make_jaxpr(run)(facts.values), space, ())


def _refuse_callbacks(closed: ClosedJaxpr | Jaxpr) -> None:
    """Refuse calls back to Python: what they compute cannot be read, and can change between two runs.

    Raises:
        ValueError: the program holds one.
    """
    jaxpr = closed.jaxpr if isinstance(closed, ClosedJaxpr) else closed
    for equation in jaxpr.eqns:
        if equation.primitive.name in ("pure_callback", "io_callback"):
            raise ValueError(
                f"prior: the program calls back to Python (jax.{equation.primitive.name}), and what that computes "
                "cannot be read, expected jax.numpy in its place, or numbers that are computed in front of the program"
            )
    # scan, cond and jit hold programs of their own.
    for inner in inner_jaxprs(jaxpr):
        _refuse_callbacks(inner)


def _copy(constant: ArrayLike) -> AnyArray:
    """A copy, of no meaning to JAX's caches; keys stay keys."""
    if isinstance(constant, jax.Array) and jnp.issubdtype(constant.dtype, jax.dtypes.extended):
        return constant
    return np.array(constant)


@contextmanager
def _explain_errors() -> Iterator[None]:
    """Turn JAX's errors about Python code that reads a traced value into one sentence.

    Raises:
        TypeError: an `if`, a float() or numpy function of a value that is drawn.
    """
    try:
        yield
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
        # The last frame that is not a library's: the line of the user's program.
        frames = traceback.extract_tb(error.__traceback__)
        line = next(
            (
                f"line {frame.lineno} of {frame.filename}"
                for frame in reversed(frames)
                if not _is_library(frame.filename)
            ),
            "",
        )
        raise TypeError(
            f"prior: Python looks at the value of a draw ({line or 'an if, a float() or a numpy function'}), expected "
            "jax.numpy in its place: jnp.where or lax.cond for an if, jnp for np"
        ) from error


def _is_library(filename: str) -> bool:
    parts = PurePath(filename).parts
    return any(name in parts for name in ("jax", "numpyro", "bayes_mdp", "equinox", "contextlib.py"))


@contextmanager
def unique_names() -> Iterator[None]:
    """Turn NumPyro's assertion that sites have different names into one sentence.

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


def density(message: Message) -> Density:
    """All of the trace of a site that bears on its density: the log density, its scale, whether the value is possible.

    The support is needed: without NumPyro's validation, Uniform(0, 1) and Uniform(1, 2) have one log density.
    """
    law = message["fn"]
    return law.log_prob(message["value"]), message["scale"], jnp.asarray(law.support(message["value"]))


def _densities(
    prior: Prior, space: StateActionSpace, values: Mapping[str, ArrayLike], key: PRNGKeyArray
) -> tuple[dict[str, Density], dict[str, Float[Array, "..."]]]:
    """The density of every sample site, and the powers of those that are scaled."""
    # Given values give every site its density at these points, draws included.
    _, trace = run_program(prior, space, values, key)
    samples = {name: message for name, message in trace.items() if message["type"] == "sample"}
    # A power of a density (PoweredDensity) acts as a scale that NumPyro does not know of.
    powers = {n: jnp.asarray(m["fn"].power) for n, m in samples.items() if isinstance(m["fn"], PoweredDensity)}
    return {name: density(message) for name, message in samples.items()}, powers


NOTHING: Mapping[str, ArrayLike] = MappingProxyType({})


@traced_alone
def run_program(
    program: Callable[..., Any],
    argument: object,
    values: Mapping[str, ArrayLike] = NOTHING,
    key: PRNGKeyArray | int = 0,
) -> tuple[Any, dict[str, Message]]:
    """What a program returns, and its trace. Traceable.

    Args:
        program: of a space, or of data.
        argument: that.
        values: {site: value} of sites that are given.
        key: of the others, which are drawn; of those that have no draws some value is taken.
    """
    # Order matters: given values first, then some value for improper sites, then seeded draws.
    data: Any = values  # numpy arrays too: the annotation of `substitute` is too narrow
    somewhere, given = handlers.substitute(substitute_fn=improper_value), handlers.substitute(data=data)
    with handlers.block(), handlers.trace() as trace, somewhere, handlers.seed(rng_seed=key), given:
        returned = program(argument)
    return returned, trace


@traced_alone
def _evaluate(
    prior: Prior,
    space: StateActionSpace,
    values: Mapping[str, ArrayLike],
    facts: Facts,
    key: PRNGKeyArray | int = 0,
) -> Laws:
    """Run the program at `values`, note its static facts in `facts`, return the arrays of its sites and laws."""
    spec, trace = run_program(prior, space, values, key)
    # What the program returned is checked here once, with the names that the library keeps for itself.
    check_spec(spec, space)
    check_names(trace)
    messages = [message for message in trace.values() if message["type"] in ("sample", "param")]
    facts.sites = tuple(_site(message) for message in messages)
    # What does not depend on values is noted, what does is returned.
    latents = {m["name"]: m for m, site in zip(messages, facts.sites, strict=True) if not site.observed}
    facts.values = {
        n: jax.ShapeDtypeStruct(jnp.shape(m["value"]), jnp.result_type(m["value"])) for n, m in latents.items()
    }
    facts.supports = {name: support for name, m in latents.items() if (support := _support(m["fn"])) is not None}
    facts.plates = {name: _plates(message, space) for name, message in latents.items()}
    parameters = {name: _parameters(message) for name, message in latents.items()}
    facts.law, reward = _reward(reward_table(spec, space))
    return {"parameters": parameters, "transition": transition_table(spec, space), "reward": reward}


def check_names(names: Iterable[str]) -> None:
    """Refuse names of sites that the library or NumPyro's samplers use themselves.

    Raises:
        ValueError: names the first one.
    """
    for name in names:
        if name in (OBSERVED_NEXT_STATE, OBSERVED_REWARD) or (name.startswith("_") and name.endswith(JACOBIAN)):
            raise ValueError(f"prior: site {name!r} has a name of the library's own, expected another name")


@traced_alone
def _reward_at(prior: Prior, space: StateActionSpace, values: Mapping[str, ArrayLike]) -> RewardTable:
    """The reward law of the program at `values`."""
    return reward_table(run_program(prior, space, values)[0], space)


def _support(fn: dist.Distribution) -> np.ndarray | None:
    """All values of one element of a discrete site of finite support; None: it is no such site, or they are traced."""
    law: Any = unwrap(fn)
    if not law.support.is_discrete or law.event_shape:
        return None
    values = _list_values(law)
    return None if values is None else values.reshape(-1)


def _list_values(law: Any) -> np.ndarray | None:
    """The values of a discrete law; None: there is no such list, or it is one of other sites or other elements."""
    if not law.has_enumerate_support:
        return None
    # Values that do not depend on what is drawn are constants also inside a trace.
    with jax.ensure_compile_time_eval():
        try:
            return np.asarray(law.enumerate_support(expand=False))
        except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError, NotImplementedError):
            return None


def joint_values(
    supports: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]
) -> Iterator[dict[str, np.ndarray]]:
    """Every joint value of discrete sites; of none of them one, which is empty.

    Args:
        supports: {site: the values of one element}.
        shapes: {site: the shape of its value}.
    """
    # The values of one element, to the power of the number of elements, site by site.
    values_of_site = [
        [np.array(x, values.dtype).reshape(shapes[n]) for x in itertools.product(values, repeat=math.prod(shapes[n]))]
        for n, values in supports.items()
    ]
    for chosen in itertools.product(*values_of_site):
        yield dict(zip(supports, chosen, strict=True))


def improper_value(message: Message) -> Real[Array, "..."] | None:
    """Some value for a site that has no draws, an improper one; None: it has a value, or draws its own."""
    latent = message["type"] == "sample" and message["value"] is None
    if not latent or not isinstance(unwrap(message["fn"]), dist.ImproperUniform):
        return None
    # A point of the support: an improper site needs a value before anything can be traced.
    return message["fn"].support.feasible_like(jnp.zeros(message["fn"].shape()))


def _plates(message: Message, space: StateActionSpace) -> tuple[str, ...]:
    """The plates of the space around a site: its steps, states, actions."""
    # Plates that have the space's own name and size: a plate of the user's with another size is none of these.
    sizes = dict(zip(PLATE_NAMES[-len(space.shape) :], space.shape, strict=True))
    around = {(frame.name, frame.size) for frame in message["cond_indep_stack"]}
    return tuple(name for name, size in sizes.items() if (name, size) in around)


def _unwrap(fn: dist.Distribution) -> tuple[dist.Distribution, bool]:
    """The distribution inside expanded, independent, powered and masked ones, and whether one of them masks."""
    base, masked = unwrap(fn), False
    # Distributions can be wrapped several times; a mask at any depth counts.
    while isinstance(base, dist.MaskedDistribution | PoweredDensity):
        masked |= isinstance(base, dist.MaskedDistribution) and base._mask is not True
        base = unwrap(base.base_dist)
    return base, masked


def is_bent(message: Message) -> bool:
    """Whether drawing a sample site does not draw from its density: it is observed, scaled or masked."""
    return bool(message["is_observed"]) or _has_scale(message) or _unwrap(message["fn"])[1]


def _has_scale(message: Message) -> bool:
    return message["scale"] is not None or isinstance(message["fn"], PoweredDensity)


def _has_bounds(law: Any) -> bool:
    """Whether the support is a simplex, an interval with two ends, or a finite set, so that a constant has a sum."""
    # Only the ends of the support matter here, not its shape.
    support = law.support
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    if support.is_discrete:
        return _list_values(law) is not None
    if isinstance(support, SupportedSimplex) or support is constraints.simplex:
        return True
    ends = [getattr(support, name, np.inf) for name in ("lower_bound", "upper_bound")]
    # Ends that depend on other sites bound nothing: the length of the interval may have no mean.
    return all(is_concrete(end) and np.isfinite(end).all() for end in ends)


def _site(message: Message) -> Site:
    if message["type"] == "param":
        return Site(message["name"], "param", (), True, False, False)
    law, masked = _unwrap(message["fn"])
    observed, scaled = bool(message["is_observed"]), _has_scale(message)
    # The type itself, not a subclass: that may have overridden the density.
    rows = law.support if isinstance(law, SupportedDirichlet) and type(law) is SupportedDirichlet else None
    family = "Dirichlet" if rows is not None else _family(law, CONJUGATE)
    bounded = observed or _has_bounds(law)
    discrete = law.support is not None and law.support.is_discrete
    shape = jnp.shape(message["value"])
    return Site(message["name"], family, shape, observed, scaled, masked, rows, bounded, discrete)


def _family(distribution: dist.Distribution, known: Mapping[Any, ParametersOf]) -> str:
    """The name of its type; of a type of the user's with the name of a known one, where it comes from too."""
    # A class of the user's called Normal is not NumPyro's: it gets its module in front.
    kind = type(distribution)
    impostor = kind not in known and kind.__name__ in {known_kind.__name__ for known_kind in known}
    return f"{kind.__module__}.{kind.__name__}" if impostor else kind.__name__


def _parameters(message: Message) -> Arrays:
    """Parameters of a conjugate site, one row for each row of its value; of other sites nothing."""
    law, _ = _unwrap(message["fn"])
    if type(law) not in CONJUGATE:
        return {}
    shape = jnp.shape(message["value"])
    # The last axis of a vector site belongs to its rows; a normal-gamma has an event of two numbers.
    vector = type(law) in (dist.Dirichlet, SupportedDirichlet, dist.MultivariateNormal)
    rows = shape if vector else shape[: len(shape) - law.event_dim]
    parameters = {name: jnp.asarray(value, float) for name, value in CONJUGATE[type(law)](law).items()}
    # A matrix of the last axis of a row has one axis more.
    return {
        name: jnp.broadcast_to(value, (*rows, shape[-1]) if name == "scale_tril" else rows)
        for name, value in parameters.items()
    }


def _reward(table: RewardTable) -> tuple[Law, dict[str | int, Array]]:
    """The reward law and the parameters to look at: those that its family names, or all that another law holds."""
    # Reward laws are looked up by exact type; of others all parameters are looked at, by number.
    law, laws = table.law, reward_laws()
    if law is None:
        assert table.known is not None
        return Law(KNOWN, table.by_outcome), {"mean": table.known}
    # Those by name are sorted: the same in every process.
    named = laws[type(law)](law).items() if type(law) in laws else enumerate(jax.tree.leaves(without_laws(law)))
    parameters: dict[str | int, Array] = {name: jnp.asarray(value) for name, value in named}
    return Law(_family(law, laws), table.by_outcome), parameters


def fingerprint(closed: ClosedJaxpr, space: StateActionSpace, facts: object) -> str:
    """A digest of what a traced program computes: equal programs share proofs and compiled code, others never.

    The text of a jaxpr leaves out the values of arrays: they are added.
    """
    # Addresses in the text differ from run to run, and are cut out.
    text = f"{space!r}\n{facts!r}\n{closed.jaxpr}"
    digest = hashlib.sha256(ADDRESS.sub("", text).encode())
    for constant in (*jax.tree.leaves(space), *constants(closed)):
        array = np.asarray(constant)
        # Dtype and shape as well: the same bytes may be other numbers.
        digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def constants(closed: ClosedJaxpr) -> Iterator[ArrayLike]:
    """The arrays that a jaxpr holds: its constants, those of closed inner jaxprs, and array literals."""
    yield from closed.consts
    yield from _inner(closed.jaxpr)


def _inner(jaxpr: Jaxpr) -> Iterator[ArrayLike]:
    for equation in jaxpr.eqns:
        yield from (v.val for v in equation.invars if isinstance(v, Literal))
    for inner in inner_jaxprs(jaxpr):
        # Closed jaxprs bring constants of their own; open ones share those around them.
        yield from constants(inner) if isinstance(inner, ClosedJaxpr) else _inner(inner)


def dtypes(closed: ClosedJaxpr | Jaxpr) -> frozenset[np.dtype]:
    """The dtypes of all arrays of numbers that a traced program computes with."""
    jaxpr = closed.jaxpr if isinstance(closed, ClosedJaxpr) else closed
    # Every atom, constants and intermediates included: one float32 step among float64 ones is enough to lose digits.
    atoms = [
        *jaxpr.constvars,
        *jaxpr.invars,
        *(v for equation in jaxpr.eqns for v in (*equation.invars, *equation.outvars)),
    ]
    kinds = (atom.aval.dtype for atom in atoms if isinstance(atom.aval, ShapedArray))
    of_numbers = frozenset(dtype for dtype in kinds if isinstance(dtype, np.dtype))  # keys have none of numpy
    return of_numbers.union(*map(dtypes, inner_jaxprs(jaxpr)))


@program_cache
def _trace_ready(ready: _Ready) -> Program:
    return _trace(ready.prior, ready.space)
