"""A decision model as its trace shows it: sites, dependences, conjugate data, and strategies' outcomes as a function.

The program is traced abstractly, in float64, with copies of the user's arrays; nothing is drawn. What depends on what
is read from the jaxpr (`degrees`), never from values.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.core import eval_jaxpr
from jax.extend.core import ClosedJaxpr
from jaxtyping import Array, Float
from numpyro import handlers

from bayes_mdp.decisions.strategies.site_law import SiteLaw
from bayes_mdp.inference.detection.degrees import Flow, output_flows, site_flow
from bayes_mdp.inference.detection.trace import CONJUGATE
from bayes_mdp.models.isolate import Isolated, traced_alone
from bayes_mdp.models.reward_laws import unwrap
from bayes_mdp.utils.typing import AnyArray
from bayes_mdp.utils.validation import described

Program: TypeAlias = Callable[[], Mapping[str, Any]]
"""A NumPyro program without arguments: strategy -> outcomes. An outcome is a scalar; `Any`: it may be traced."""
Values: TypeAlias = Mapping[str, Float[AnyArray, "..."]]
"""Site -> value."""
Message: TypeAlias = dict[str, Any]
"""What NumPyro records of a site."""

VALUE = "value"
"""The name of the outcome of a program that returns one number for each strategy."""

_PARAMETERS: dict[type, tuple[str, Callable[[Any], dict[str, Any]]]] = {
    **{law: (law.__name__, CONJUGATE[law]) for law in (dist.Dirichlet, dist.Beta, dist.Gamma, dist.MultivariateNormal)},
    dist.Exponential: ("Gamma", lambda law: {"concentration": jnp.ones_like(law.rate), "rate": law.rate}),
    dist.Normal: ("Normal", lambda law: {"loc": law.loc, "scale": law.scale}),
    dist.LogNormal: ("LogNormal", lambda law: {"loc": law.loc, "scale": law.scale}),
    dist.Uniform: ("Uniform", lambda law: {"low": law.low, "high": law.high}),
}
"""Laws of sites that `SiteLaw` knows. These types only: a subclass may change the density."""

_LIKELIHOODS: dict[type, tuple[str, str, Callable[[Any], dict[str, Any]]]] = {
    dist.MultinomialProbs: ("Dirichlet", "probs", lambda law: {"total": law.total_count}),
    dist.CategoricalProbs: ("Dirichlet", "probs", lambda law: {}),
    dist.BinomialProbs: ("Beta", "probs", lambda law: {"total": law.total_count}),
    dist.BernoulliProbs: ("Beta", "probs", lambda law: {"total": jnp.ones_like(law.probs)}),
    dist.Poisson: ("Gamma", "rate", lambda law: {}),
    dist.Exponential: ("Gamma", "rate", lambda law: {}),
    dist.Normal: ("Normal", "loc", lambda law: {"scale": law.scale}),
}
"""Laws of data: the family of the site that is conjugate, the parameter that must be it, what else must be known."""


class Link(NamedTuple):
    """An observed site whose law is conjugate for one latent site.

    Args:
        observed, latent: the names.
        kind: name of the type of the law of the data.
    """

    observed: str
    latent: str
    kind: str


@dataclass(frozen=True)
class ModelTrace:
    """A traced decision model.

    Args:
        strategies, outcomes: their names, in the order of the program.
        shapes: latent site -> shape of its value.
        families: latent site -> family in `site_law.FAMILIES`, or the name of the type of its law.
        parents: latent site -> sites that its law depends on.
        data: observed site or factor -> latent sites that its density depends on.
        links: conjugate data of single sites.
        flows: [strategies][outcomes], what each outcome is made of.
        closed: the jaxpr of all outputs, from the values of the latents in order.
        tree: of the outputs of `closed`; see `_Shown`.
        chosen: which of the program's strategies these are.
    """

    strategies: tuple[str, ...]
    outcomes: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...]]
    families: Mapping[str, str]
    parents: Mapping[str, frozenset[str]]
    data: Mapping[str, frozenset[str]]
    links: tuple[Link, ...]
    flows: tuple[tuple[Flow, ...], ...]
    closed: ClosedJaxpr = field(repr=False)
    tree: "_Shown" = field(repr=False)
    chosen: tuple[int, ...] = ()

    def outcomes_of(self, outputs: Sequence[Any]) -> list[list[Any]]:
        """The outcomes [strategies][outcomes] among the outputs of `closed`, or whatever stands for them."""
        # The tree of outputs is the same, whatever stands in its leaves: numbers, flows, symbols.
        shown: _Shown = jax.tree.unflatten(jax.tree.structure(self.tree), outputs)
        return [shown.outcomes[i] for i in self.chosen]

    def restrict(self, indices: Sequence[int]) -> "ModelTrace":
        """The same with some of its strategies."""
        strategies, flows, chosen = (tuple(x[i] for i in indices) for x in (self.strategies, self.flows, self.chosen))
        return replace(self, strategies=strategies, flows=flows, chosen=chosen)

    def blocks(self) -> list[tuple[str, ...]]:
        """Latent sites in groups that are independent of each other given the data, in order."""
        # Union of groups: a site with its parents, and all sites that one observation depends on.
        group = {name: {name} for name in self.shapes}
        together = [{name, *ancestors} for name, ancestors in self.parents.items()] + [
            set(sites) for sites in self.data.values()
        ]
        # Sites that share a parent or a datum are dependent given the data, and so are all that these reach.
        for linked in together:
            merged = set().union(*(group[name] for name in linked))
            group.update(dict.fromkeys(merged, merged))
        # Groups are named by their first site, in the order of the program.
        members_by_first = {min(map(list(self.shapes).index, members)): members for members in group.values()}
        order = list(self.shapes)
        return [tuple(sorted(members_by_first[first], key=order.index)) for first in sorted(members_by_first)]


class _Shown(NamedTuple):
    """What the traced function returns.

    Args:
        outcomes: [strategies][outcomes].
        densities: sample site -> log density.
        laws: latent site of a known family -> parameters, broadcast to its rows.
        linked: observed site of a law in `_LIKELIHOODS` -> the parameter, what else must be known, the data.
    """

    outcomes: list[list[Any]]
    densities: dict[str, Any]
    laws: dict[str, dict[str, Any]]
    linked: dict[str, tuple[Any, dict[str, Any], Any]]


@traced_alone
def run_program(program: Isolated, values: Values) -> tuple[Mapping[str, Message], Any]:
    """The sites of a run with these values, and what the program returns; sites without a value are drawn."""
    site_values: Any = dict(values)  # NumPyro's annotation asks for JAX arrays alone
    # A fixed seed: sites without a value are drawn, and only their shapes matter.
    seeded = handlers.seed(handlers.substitute(program, data=site_values), jax.random.key(0))
    with handlers.trace() as sites:
        returned = seeded()
    return sites, returned


def trace_model(program: Isolated) -> ModelTrace:
    """Trace a program in float64.

    Raises:
        TypeError: it does not return strategies and outcomes; it branches in Python on what it drew.
        ValueError: random numbers that are no site; params; sites that are subsampled, scaled or masked.
    """
    # Two runs: the first only for names and shapes, so that the second can take the values as inputs of one jaxpr.
    facts: dict[str, Any] = {}

    def shapes() -> list[Any]:
        sites, returned = run_program(program, {})
        _check_sites(sites)
        facts["names"] = {
            name: site for name, site in sites.items() if site["type"] == "sample" and not site["is_observed"]
        }
        facts["kinds"] = {n: type(unwrap(s["fn"])).__name__ for n, s in sites.items() if s["type"] == "sample"}
        facts["strategies"], facts["outcomes"] = _names(returned)
        return [site["value"] for site in facts["names"].values()]

    def run(values: list[Array]) -> _Shown:
        # All values as inputs: the jaxpr depends on nothing that was drawn.
        sites, returned = run_program(program, dict(zip(facts["names"], values, strict=True)))
        return _outputs(sites, returned)

    with jax.enable_x64(True):
        try:
            # No value is known inside `eval_shape`: a program that branches on one raises here.
            inputs = jax.eval_shape(shapes)
            _check_real(facts["names"], inputs)
            closed, tree = jax.make_jaxpr(run, return_shape=True)(inputs)
        except (jax.errors.TracerBoolConversionError, jax.errors.ConcretizationTypeError) as error:
            raise TypeError(
                "program: it branches in Python on a value that it drew, expected jnp.where or jax.lax.cond: "
                + str(error).split("\n", maxsplit=1)[0]
            ) from None
    names = list(facts["names"])
    # How each output depends on each site: by the equations of the program, not by trying numbers.
    flat = output_flows(closed.jaxpr, [site_flow(name) for name in names])
    # The same tree as the outputs, with a flow in each place.
    flows: _Shown = jax.tree.unflatten(jax.tree.structure(tree), flat)
    families = {
        name: _PARAMETERS.get(type(unwrap(site["fn"])), (facts["kinds"][name], None))[0]
        for name, site in facts["names"].items()
    }
    return ModelTrace(
        facts["strategies"],
        facts["outcomes"],
        {name: tuple(value.shape) for name, value in zip(names, inputs, strict=True)},
        families,
        # Parents: which sites enter the density of a site.
        {name: flows.densities[name].sites - {name} for name in names},
        {name: flow.sites for name, flow in flows.densities.items() if name not in facts["names"] and flow.sites},
        tuple(_links(flows, families, facts["kinds"])),
        tuple(tuple(row) for row in flows.outcomes),
        closed,
        tree,
        tuple(range(len(facts["strategies"]))),
    )


def numbers(trace: ModelTrace, values: Values) -> _Shown:
    """All outputs at some values; sites that are not given are zero (what depends on them means nothing)."""
    with jax.enable_x64(True):
        inputs = [jnp.asarray(values.get(name, jnp.zeros(shape)), float) for name, shape in trace.shapes.items()]
        # Evaluated, not compiled: it runs a few times only.
        flat = eval_jaxpr(trace.closed.jaxpr, trace.closed.consts, *inputs)
        return jax.tree.map(np.asarray, jax.tree.unflatten(jax.tree.structure(trace.tree), flat))


def law_in_closed_form(trace: ModelTrace, name: str) -> SiteLaw | None:
    """The exact posterior of a site that is a block of its own; None: there is no closed form.

    Raises:
        ValueError: data that the site's law cannot have made.
    """
    # A closed form needs a block of this site alone, whose data are all conjugate and depend on nothing else.
    attached = {observed for observed, sites in trace.data.items() if name in sites}
    links = {link.observed: link for link in trace.links if link.latent == name}
    if (name,) not in trace.blocks() or any(trace.data[site] != {name} for site in attached) or attached - set(links):
        return None
    # Parameters of a block of its own depend on no other site: zeros stand for all.
    at_zero = numbers(trace, {})
    if name not in at_zero.laws:
        return None
    law = SiteLaw(trace.families[name], dict(at_zero.laws[name]), trace.shapes[name])
    for observed in attached:
        data = _sufficient(trace, links[observed], law)
        if data is None:
            # One observation that is not conjugate leaves no closed form.
            return None
        law = law.update(data)
    return law


def _sufficient(trace: ModelTrace, link: Link, law: SiteLaw) -> dict[str, np.ndarray] | None:
    """Sufficient statistics of one observed site for the elements of `law`; None: there is no closed form."""
    # By `Flow.selects`, entry i of the parameter is factor[i] * site[index[i]]: found by two evaluations.
    parameter, known, seen = numbers(trace, {link.latent: np.ones(law.shape)}).linked[link.observed]
    factor = np.asarray(parameter, float)
    # With every element 1 the parameter shows the factors; with element i equal to 1 + i, the indices.
    numbered = np.asarray(1.0 + np.arange(law.size).reshape(law.shape))
    shown = np.asarray(numbers(trace, {link.latent: numbered}).linked[link.observed][0], float)
    with np.errstate(divide="ignore", invalid="ignore"):
        index = shown / factor - 1
    # Two elements that are mixed leave no integer behind, and the site is refused rather than rounded.
    if not np.all(np.isfinite(index)) or np.any(np.abs(index - np.rint(index)) > 1e-9):
        return None
    index, seen = np.rint(index).astype(int), np.asarray(seen, float)
    if law.family == "Dirichlet":
        return _row_counts(link, law, factor, index, seen)
    shape = np.broadcast_shapes(index.shape, seen.shape)
    index, factor, seen = (np.broadcast_to(x, shape).ravel() for x in (index, factor, seen))

    def sum_by_element(x: np.ndarray) -> np.ndarray:
        return np.bincount(index, np.broadcast_to(x, index.shape), law.size).reshape(law.shape)

    if law.family == "Normal":
        # y ~ N(f x, s^2): precision f^2 / s^2, weighted sum f y / s^2.
        precision = np.broadcast_to(np.asarray(known["scale"], float), shape).ravel() ** -2
        # Sums over all data of an element: conjugate updates add up.
        return {"precision": sum_by_element(precision * factor**2), "sum": sum_by_element(precision * factor * seen)}
    if law.family == "Beta":
        if np.any(factor != 1):
            return None
        # Trials and successes: what is left are failures.
        total = np.broadcast_to(np.asarray(known["total"], float), shape).ravel()
        _check_data(link, (seen >= 0) & (seen <= total) & (seen == np.rint(seen)), seen, "successes of the trials")
        return {"successes": sum_by_element(seen), "failures": sum_by_element(total - seen)}
    if np.any(factor <= 0):
        return None
    if link.kind == "Exponential":
        _check_data(link, seen >= 0, seen, "non-negative times")
        # Exponential times of rate f x: events and exposure of a gamma posterior.
        return {"events": sum_by_element(np.ones(seen.shape)), "exposure": sum_by_element(factor * seen)}
    _check_data(link, (seen >= 0) & (seen == np.rint(seen)), seen, "non-negative integers")
    # Poisson counts of rate f x: the factor is the exposure.
    return {"events": sum_by_element(seen), "exposure": sum_by_element(factor)}


def _row_counts(
    link: Link, law: SiteLaw, factor: np.ndarray, index: np.ndarray, seen: np.ndarray
) -> dict[str, np.ndarray] | None:
    """Counts of whole rows, each in its own order."""
    size = law.shape[-1]
    # A row must be taken whole and in order: of parts of it, or of permuted ones, the Dirichlet is not conjugate as it
    # stands.
    rows = index[..., :1] // size
    if index.shape[-1:] != (size,) or np.any(factor != 1) or np.any(index != rows * size + np.arange(size)):
        return None
    if link.kind.startswith("Categorical"):
        _check_data(link, (seen >= 0) & (seen < size) & (seen == np.rint(seen)), seen, f"categories 0..{size - 1}")
        # A category is a count of one.
        seen = np.eye(size)[seen.astype(int)]
    _check_data(link, (seen >= 0) & (seen == np.rint(seen)), seen, "non-negative integers")
    shape = np.broadcast_shapes(index.shape, seen.shape)
    flat_rows = np.broadcast_to(rows[..., 0], shape[:-1]).ravel()
    counts = np.zeros((law.size // size, size))
    np.add.at(counts, flat_rows, np.broadcast_to(seen, shape).reshape(-1, size))
    return {"counts": counts.reshape(law.shape)}


def _check_data(link: Link, good: np.ndarray, seen: np.ndarray, expected: str) -> None:
    if not np.all(good):
        index = tuple(int(i) for i in np.argwhere(~good)[0])
        place = f"[{', '.join(map(str, index))}]" if seen.size > 1 else ""
        raise ValueError(f"program: the data of {link.observed!r}{place} are {seen[index]:g}, expected {expected}")


def _links(flows: _Shown, families: Mapping[str, str], kinds: Mapping[str, str]) -> list[Link]:
    """Observed sites whose law is conjugate for one latent site, as the data flow shows."""
    links = []
    for name, (parameter, known, seen) in flows.linked.items():
        kind = next(key for key in _LIKELIHOODS if key.__name__ == kinds[name])
        # What else the law needs has to be known, the data included.
        other_inputs = [*known.values(), seen]
        site = parameter.selects
        known_others = not any(flow.sites for flow in other_inputs)
        is_conjugate = site is not None and families[site] == _LIKELIHOODS[kind][0]
        # Degree one in this site and in no other: the parameter is the site, up to a factor.
        if site is not None and is_conjugate and parameter.degrees == {site: 1} and known_others:
            links.append(Link(name, site, kinds[name]))
    return links


def _outputs(sites: Mapping[str, Message], returned: Mapping[str, Any]) -> _Shown:
    densities, laws, linked = {}, {}, {}
    for name, site in sites.items():
        if site["type"] != "sample":
            continue
        with warnings.catch_warnings():
            # Data that a law cannot have made are found by `_check_data`, which names them.
            warnings.filterwarnings("ignore", "Out-of-support values", UserWarning)
            # All sample sites have a density: it shows what depends on what.
            densities[name] = jnp.sum(site["fn"].log_prob(jnp.asarray(site["value"])))
        base, shape = unwrap(site["fn"]), jnp.shape(site["value"])
        if site["type"] == "sample" and not site["is_observed"]:
            if type(base) in _PARAMETERS:
                family, parameters = _PARAMETERS[type(base)]
                # A vector's parameters have a row for each vector; others are elementwise.
                rows = shape[:-1] if family == "MultivariateNormal" else shape
                trailing = {"loc": shape[-1:], "scale_tril": (*shape[-1:], *shape[-1:])}
                laws[name] = {
                    key: jnp.broadcast_to(x, (*rows, *trailing[key]) if family == "MultivariateNormal" else shape)
                    for key, x in parameters(base).items()
                }
        elif type(base) in _LIKELIHOODS:
            _, parameter, known = _LIKELIHOODS[type(base)]
            linked[name] = (getattr(base, parameter), known(base), site["value"])
    # One number for a strategy is an outcome called "value".
    table = {name: dict(value) if isinstance(value, Mapping) else {VALUE: value} for name, value in returned.items()}
    first = list(next(iter(table.values())))
    outcomes = [[jnp.asarray(row[outcome], float) for outcome in first] for row in table.values()]
    return _Shown(outcomes, densities, laws, linked)


def _names(returned: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Strategies and outcomes of what a program returns.

    Raises:
        TypeError, ValueError: it is no table of them.
    """
    if not isinstance(returned, Mapping) or not returned:
        raise TypeError(f"program returns {described(returned)}, expected strategy -> outcomes")
    first: tuple[str, ...] | None = None
    for strategy, row in returned.items():
        if not isinstance(strategy, str):
            raise TypeError(f"program returns the strategy {described(strategy)}, expected names")
        # A bare number is the only outcome of its strategy.
        cells = row if isinstance(row, Mapping) else {VALUE: row}
        outcomes = tuple(cells)
        first = outcomes if first is None else first
        if not outcomes or set(outcomes) != set(first):
            raise ValueError(
                f"program: strategy {strategy!r} has the outcomes {', '.join(map(repr, outcomes)) or 'none'}, expected "
                f"those of {next(iter(returned))!r}: {', '.join(map(repr, first)) or 'at least one'}"
            )
        for outcome, value in cells.items():
            if jnp.shape(value) != ():
                shape = jnp.shape(value)
                raise ValueError(f"program: {outcome!r} of {strategy!r} has shape {shape}, expected one number")
    assert first is not None
    return tuple(returned), first


def _check_sites(sites: Mapping[str, Message]) -> None:
    for name, site in sites.items():
        if site["type"] in ("param", "prng_key", "mutable"):
            raise ValueError(f"program: {name!r} is a {site['type']}, expected sample sites alone")
        if site["type"] == "plate" and site["args"][1] not in (None, site["args"][0]):
            raise ValueError(f"program: plate {name!r} is subsampled, expected whole plates")
        if site["type"] == "sample" and site["scale"] is not None:
            raise ValueError(f"program: site {name!r} is scaled, expected none of handlers.scale")


def _check_real(names: Iterable[str], values: Sequence[jax.ShapeDtypeStruct]) -> None:
    for name, value in zip(names, values, strict=True):
        if not jnp.issubdtype(value.dtype, jnp.floating):
            raise ValueError(f"program: site {name!r} is discrete, expected latent sites of real numbers")
