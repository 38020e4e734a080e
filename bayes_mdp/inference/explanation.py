# pyright: strict, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeStubs=false
"""`explain`: the dry run of `infer`: the route of a prior and of each site; what is in the way of a better one."""

import math
from dataclasses import dataclass, replace

import jax
import numpy as np
from numpyro import handlers
from numpyro.primitives import Message

from bayes_mdp.inference.context_posterior import LARGE, describe_law, look_at, side_by_side
from bayes_mdp.inference.detection.detect_rows import ROW_FAMILIES, bent
from bayes_mdp.inference.detection.probe import IN_THE_WAY, Probe
from bayes_mdp.inference.detection.trace import Program, Site, site_families
from bayes_mdp.inference.draws.methods import NUTS
from bayes_mdp.inference.route import HIERARCHICAL, ROUTE_WORDS, Route, prove
from bayes_mdp.inference.sampled.recipe import recipe_for
from bayes_mdp.inference.sampled.sampled_fit import check_rows_of_prior
from bayes_mdp.inference.summary import describe_observed
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.mdp.contexts import ContextSpace
from bayes_mdp.mdp.space import PLATE_NAMES
from bayes_mdp.models.isolate import isolated_prior, tracing
from bayes_mdp.models.mdp_spec import MDPSpec, Prior
from bayes_mdp.models.priors import closed_form_of
from bayes_mdp.numerics.array_forms import compact
from bayes_mdp.utils.layout import Section, Table, as_html, as_text
from bayes_mdp.utils.messages import see

CONJUGATE_LAWS = {
    "StudentT": "Normal, or a normal-gamma prior: its predictive density is a Student-t",
    "Cauchy": "Normal",
    "Laplace": "Normal",
    "TruncatedNormal": "Normal",
    "HalfNormal": "LogNormal or Exponential",
    "Gamma": "Exponential or LogNormal",
    "Weibull": "Exponential or LogNormal",
    "NegativeBinomial2": "Poisson: its predictive density under a Gamma rate is negative binomial",
    "GammaPoisson": "Poisson: its predictive density under a Gamma rate is negative binomial",
    "Beta": "Bernoulli, or Binomial of a known count",
    "CategoricalLogits": "Categorical(probs=...)",
}
"""A reward law without conjugate sites -> laws that have some, for rewards of the same kind."""


@dataclass(frozen=True)
class SiteExplanation:
    """How one latent site is inferred.

    Args:
        name: of the site.
        family: of its distribution.
        shape: of its value.
        role: "rows", "rewards", "rows and rewards", or "hyperparameter" (only other sites depend on it).
        inferred: "closed form", "enumerated", "quadrature", "importance" or "chains".
        why: why it has no closed form; "": it has one.
        change: what to change in the prior to get one; "": nothing, or nothing is known that would help.
        varies: the axes (of "step", "state", "action", "outcome") along which its values differ; (): one value is
            shared by all; None: not known, it lies in no plate of the space and its elements cannot be followed.
    """

    name: str
    family: str
    shape: tuple[int, ...]
    role: str
    inferred: str
    why: str
    change: str
    varies: tuple[str, ...] | None = None

    @property
    def shared(self) -> str:
        """What a site of rows or rewards shares, in words; empty: nothing, or that is not known.

        A hyperparameter is there to be shared: nothing is said of it.
        """
        if self.role == "hyperparameter" or self.varies is None:
            return ""
        # Axes along which nothing of the site differs.
        constant_over = [name for name in ("state", "action") if name not in self.varies]
        return f"one value for all {' and '.join(f'{name}s' for name in constant_over)}" if constant_over else ""


@dataclass(frozen=True)
class Explanation:
    """How `infer` would proceed with a prior.

    Args:
        route: "exact", "mixture", "quadrature", "importance", "collapsed", "factorised" or "nuts".
        why_not: {better route: a sentence, why it cannot be taken}.
        sites: every latent site, in order.
        reward_law: the family of the law of one reward; "known": numbers.
        observed: (name, number of values) of the sites that the program observes itself.
        would_help: what would let a better route be taken, where that has been proven; empty: nothing is known.
        in_contexts: of a space with contexts, what the row laws share and which other methods serve, one line each.
    """

    route: str
    why_not: dict[str, str]
    sites: tuple[SiteExplanation, ...]
    reward_law: str
    observed: tuple[tuple[str, int], ...] = ()
    would_help: str = ""
    in_contexts: tuple[str, ...] = ()

    __str__ = as_text
    _repr_html_ = as_html

    def layout(self) -> Section:
        """The route, why no better one, the sites, and what would help."""
        notes = [f"site {site.name!r}: {site.shared}" for site in self.sites if site.shared]
        if self.observed:
            seen = describe_observed(self.observed)
            notes.append(f"{seen}: they count on top of the data given to infer {see('how-to/write-a-prior')}")
        notes += [
            f"{site.name}: {site.why}" + (f"; {site.change}" if site.change else "") for site in self.sites if site.why
        ]
        notes += [self.would_help] if self.would_help else []
        notes += self.in_contexts
        if any(site.why for site in self.sites):
            notes.append(f"Which forms are recognised: {see('reference/conjugate-forms')}")
        rows = []
        for site in self.sites:
            varies = "not known" if site.varies is None else ", ".join(site.varies) or "nothing"
            rows.append((site.name, site.family, str(list(site.shape)), varies, site.role, site.inferred))
        return Section(
            f"route: {self.route} ({ROUTE_WORDS.get(self.route, self.route)})",
            [
                *(f"not {name}: {why.removeprefix('prior: ')}" for name, why in self.why_not.items()),
                f"rewards: {self.reward_law}",
                Table(("site", "family", "shape", "varies over", "role", "inferred by"), rows, range(6)),
                *notes,
            ],
        )


def explain(prior: Prior, space: StateActionSpace) -> Explanation:
    """Which route `infer` would take for a prior, and for each of its sites; why not a better one, and what to change.

    No data, no chains. Host side. The proof is the one that `infer` makes, and is kept for it.

    Args:
        prior: a NumPyro program, space -> `MDPSpec`.
        space: what is known before any data.

    Returns:
        An `Explanation`; print it.

    Raises:
        ValueError, TypeError: as `infer`, for a program that no route infers; rows that do not sum to one in a draw of
            the prior.

    Example:
        >>> print(bm.explain(bm.models.dirichlet_bernoulli(), bm.StateActionSpace(2, 2)))
        route: exact (every site in closed form)
        rewards: BernoulliProbs
        site        family     shape      varies over    role     inferred by
        transition  Dirichlet  [2, 2, 2]  state, action  rows     closed form
        reward      Beta       [2, 2]     state, action  rewards  closed form
    """
    if isinstance(space, ContextSpace):
        return _explain_in_contexts(prior, space)
    # The same proof as infer's, and kept for it.
    program, route = prove(prior, space, "auto", NUTS())
    with jax.enable_x64(True), tracing():
        if route.fit.method == "nuts":  # closed forms have been checked by their proof
            check_rows_of_prior(recipe_for(isolated_prior(program.prior), program.space, NUTS()))
        # Which sites the rows and the rewards depend on, from the data flow.
        probe = Probe(program)
    behind_rows = probe.depends(probe.transition)
    behind_rewards = frozenset[str]().union(*(probe.depends(entries) for entries in probe.reward.values()))
    sites = []
    for site in program.latents:
        role = _role(site.name in behind_rows, site.name in behind_rewards)
        drawn = site.name in route.drawn
        route_of_site = route.drawn_by if drawn else "enumerated" if site.name in route.enumerated else "closed form"
        # A reason is needed only for what has no closed form.
        why, change = _reason(probe, site, role, route) if drawn else ("", "")
        varies = _varies(probe, site)
        sites.append(SiteExplanation(site.name, site.family, site.shape, role, route_of_site, why, change, varies))
    law, drawn = program.law.family, route.fit.method == "nuts"
    # Only for a whole program by chains, whose rewards stand in the way.
    # A program by chains may have rows that alone would collapse.
    helps = _would_collapse(program, behind_rewards - behind_rows) if drawn and law in CONJUGATE_LAWS else ""
    return Explanation(route.fit.method, dict(route.why_not), tuple(sites), law, program.observed, helps)


def _explain_in_contexts(prior: Prior, space: ContextSpace) -> Explanation:
    """Of all contexts side by side; of a ready prior, of one context."""
    # A ready prior in contexts is one closed form for each context.
    if closed_form_of(prior) is not None:
        told = explain(prior, space.alone)
        return replace(told, in_contexts=("rows of each context are a belief of their own, exact",))
    seen = look_at(prior, space)
    laws = seen.laws
    lines = [f"{law.name}: {line}" for law in laws for line in describe_law(law)]
    # Sticks with normal coefficients: Gibbs by augmentation.
    if laws and all(law.kind == "stick" and law.prior is not None for law in laws):
        lines.append("method='gibbs': Polya-Gamma variables draw these sticks, exact in the limit")
    if laws:
        lines.append("method='laplace': weighted draws about the mode; approximate, refused where Pareto k is above .7")
    cells = space.n_contexts * int(np.prod(space.shape))
    if seen.plain and cells > LARGE:
        lines.append(f"{cells} cells are many for chains, which method='auto' runs only where Pareto k is above .5")
        return Explanation("laplace", {}, (), "known", in_contexts=tuple(lines))
    # Without a record of laws all contexts are one large space.
    told = explain(side_by_side(prior, space), space.side_by_side)
    return replace(told, in_contexts=tuple(lines))


def _would_collapse(program: Program, of_rewards: frozenset[str]) -> str:
    """What would make a program collapsed: conjugate rewards, where its rows beside known rewards are; else empty."""

    # Sites of the rewards are held at one draw: the rows have been proven not to see them.
    def held(site: Message) -> object:
        return site["fn"](rng_key=jax.random.key(0)) if site["name"] in of_rewards else None

    def rows_alone(space: StateActionSpace) -> MDPSpec:
        # The sites of the rewards are hidden, at values that the rows do not depend on.
        with handlers.block(hide=list(of_rewards)), handlers.substitute(substitute_fn=held):  # type: ignore[arg-type]
            spec = program.prior(space)
        return MDPSpec(spec.transition_probs, np.zeros(()))

    try:
        # Prove the rows alone, beside rewards of zero: is what is left collapsed?
        _, route = prove(rows_alone, program.space, "auto", NUTS())
    except (ValueError, TypeError):  # nothing is claimed of a program that cannot be taken apart
        return ""
    if route.fit.method not in HIERARCHICAL:
        return ""
    law = CONJUGATE_LAWS[program.law.family]
    return f"with conjugate rewards, such as {law}, rows and rewards would have a closed form given the hyperparameters"


def _varies(probe: Probe, site: Site) -> tuple[str, ...] | None:
    """The axes along which the values of a site differ; None: not known."""
    space = probe.program.space
    axes = (*PLATE_NAMES[-len(space.shape) :], "outcome")
    # Plates that the program declares say over what the site varies, where its elements cannot be followed.
    plates, followed = set(probe.program.plates.get(site.name, ())), False
    # Where the elements of a conjugate site stand in the laws says more than its plates.
    elements = probe.layout.elements(site.name).ravel() if site.name in probe.layout.shapes else np.zeros(0, int)
    for entries in (probe.transition, *probe.reward.values()) if elements.size else ():
        element = compact(entries.element)
        # Elements of this site among those of the laws.
        mine = (element >= elements[0]) & (element <= elements[-1])
        followed |= bool(mine.any())
        for axis, name in enumerate(axes[: element.ndim]):
            # Which element of a row belongs to which outcome is no difference between rows.
            if name in plates or (name == "outcome" and entries is probe.transition):
                continue
            # Two elements along a line of this axis.
            low = np.where(mine, element, np.iinfo(element.dtype).max).min(axis)
            high = np.where(mine, element, -1).max(axis)
            if np.any((high >= 0) & (low != high)):
                plates.add(name)
    if plates:
        return tuple(name for name in axes if name in plates)
    # A single number varies over nothing.
    return () if followed or math.prod(site.shape) == 1 else None


def _role(rows: bool, rewards: bool) -> str:
    if rows and rewards:
        return "rows and rewards"
    return "rows" if rows else "rewards" if rewards else "hyperparameter"


def _reason(probe: Probe, site: Site, role: str, route: Route) -> tuple[str, str]:
    """Why a site has no closed form, and what to change in the prior."""
    # In order of certainty: what bends the density, its role, its family, then what the proofs said.
    said = bent(site)
    if said is not None:
        return said, "leave that out, where the model allows"
    if role == "hyperparameter":
        if route.fit.method in HIERARCHICAL:
            return "it is a parameter of conjugate sites, not a conjugate site", "a number in its place: exact"
        return _refusal(site, route) or _other(probe, route), ""
    if role == "rows and rewards":
        return "the transition law and the reward law both depend on it", "a site of its own for each"
    if role == "rows" and site.family not in ROW_FAMILIES:
        return (
            f"rows have a closed form over {' or '.join(ROW_FAMILIES)} sites",
            "write each row as one draw of dist.Dirichlet, of two outcomes as p and 1 - p of dist.Beta",
        )
    if role == "rewards":
        reason = _reward_reason(probe, site)
        if reason is not None:
            return reason
    return _refusal(site, route) or _other(probe, route), ""


def _reward_reason(probe: Probe, site: Site) -> tuple[str, str] | None:
    """What is wrong with the family of the law or of the site; None: neither."""
    law = probe.program.law.family
    of_law = site_families(law)
    if not of_law:
        alternative = CONJUGATE_LAWS.get(law)
        return (
            f"a {law} law of rewards has no conjugate sites",
            # Reward laws first, then the sites of their parameters.
            f"one that has some: {alternative}" if alternative else "",
        )
    for parameter, entries in probe.reward.items():
        families = of_law.get(str(parameter), ())
        if site.name in probe.depends(entries) and site.family not in families:
            label = f"{parameter} of a {law} law of rewards"
            if not families:
                return f"{label} has no conjugate site", "a number in its place"
            return f"{label} has a closed form over {' or '.join(families)} sites", f"dist.{families[0]} in its place"
    return None


def _refusal(site: Site, route: Route) -> str | None:
    """What the proofs said of this site, the last one first; None: nothing."""
    # The route that came closest says most.
    for sentence in reversed(list(route.why_not.values())):
        before, _, why = sentence.partition(IN_THE_WAY)
        if f"site {site.name!r}" in before and why:
            return why.partition(". method=")[0]
    return None


def _other(probe: Probe, route: Route) -> str:
    """The site that is in the way of the last route, and so of all that chains draw."""
    for sentence in reversed(list(route.why_not.values())):
        before, _, why = sentence.partition(IN_THE_WAY)
        named = [s.name for s in probe.program.latents if f"site {s.name!r}" in before]
        if why and named:
            return f"site {named[0]!r} prevents a closed form: {why.partition('. method=')[0]}"
    return "the program is sampled as a whole"
