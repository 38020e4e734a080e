# pyright: strict, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeStubs=false
"""`infer` (and `fit_for`, for many data sets): prior and data to a posterior, by the best route that can be proven.

`ready_made`: the belief of a ready prior (`bayes_mdp.models`) before any data, from its hyperparameters.

The closed form that `detection` would find in the program, array by array: every row of the law is a row of the site
`transition`, every cell of the rewards one of the site `reward`.
"""

import hashlib
import math
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, TypeAlias, overload

import jax
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray
from numpyro import handlers
from numpyro.primitives import Messenger

from bayes_mdp.inference import enumerated, pooled_posterior
from bayes_mdp.inference.collapsed import collapsed_posterior
from bayes_mdp.inference.collapsed.collapsed_posterior import COLLAPSED, CollapsedPosterior
from bayes_mdp.inference.collapsed.hierarchy import Hierarchy, prove_hierarchy
from bayes_mdp.inference.collapsed.integrate import IMPORTANCE, MOST_VALUES, QUADRATURE, method_of
from bayes_mdp.inference.compiled_fit import Fit
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior, conjugate_posterior, digests_of, refit
from bayes_mdp.inference.conjugate.dirichlet_rows import DirichletRows, dirichlet_rows
from bayes_mdp.inference.conjugate.prior_rows import RepeatedRows
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.conjugate.rewards import KnownRewards, Rewards, known_rewards
from bayes_mdp.inference.conjugate.site_table import SiteTable, site_rows
from bayes_mdp.inference.context_posterior import ContextPosterior, Infer, in_contexts
from bayes_mdp.inference.data_in_program import warn_counted_twice
from bayes_mdp.inference.detection.certify import certify
from bayes_mdp.inference.detection.detect import detect
from bayes_mdp.inference.detection.probe import IN_THE_WAY, NotConjugate, Probe, check_proper
from bayes_mdp.inference.detection.trace import KNOWN, Program, trace_program
from bayes_mdp.inference.draws.chains import warn_of
from bayes_mdp.inference.draws.methods import NUTS, SVI, Gibbs, Laplace, Method
from bayes_mdp.inference.enumerated import MAX_NUMBERS, Branches, branches_of
from bayes_mdp.inference.expert_choices import Softmax, prior_with_choices
from bayes_mdp.inference.factorised import factorised_posterior
from bayes_mdp.inference.factorised.factorised_posterior import FactorisedPosterior, prove_factors
from bayes_mdp.inference.families.bernoulli import BetaBelief
from bayes_mdp.inference.families.family import RewardBelief
from bayes_mdp.inference.families.normal import NormalBelief, NormalGammaBelief
from bayes_mdp.inference.families.poisson import GammaBelief
from bayes_mdp.inference.integrals.importance import MOST_NUMBERS
from bayes_mdp.inference.integrals.quadrature import MOST_NODES
from bayes_mdp.inference.mixtures import Mixture
from bayes_mdp.inference.pooled_posterior import PooledPosterior
from bayes_mdp.inference.sampled.sampled_fit import sampled_fit
from bayes_mdp.inference.sampled.sampled_posterior import SampledPosterior
from bayes_mdp.mdp import Counts, FoldedLog, Log, StateActionSpace, Transitions
from bayes_mdp.mdp.contexts import ContextSpace
from bayes_mdp.mdp.data.folded_log import Source
from bayes_mdp.mdp.data.transitions import check_log_labels, check_transitions
from bayes_mdp.mdp.protocols import CanWeighRewards
from bayes_mdp.mdp.space import program_cache
from bayes_mdp.models.default_prior import DefaultPrior
from bayes_mdp.models.dirichlet_prior import row_concentrations
from bayes_mdp.models.isolate import isolated_prior, tracing
from bayes_mdp.models.mdp_spec import Prior, broadcast_to_cells, known_by_outcome
from bayes_mdp.models.partial_pooling import PartialPooling
from bayes_mdp.models.priors import ClosedForm, ClosedForms, closed_form_of, ready
from bayes_mdp.models.reward_support import make_support
from bayes_mdp.numerics.array_forms import compact
from bayes_mdp.utils.messages import see, warn_user
from bayes_mdp.utils.progress import stage
from bayes_mdp.utils.typing import ArrayLike
from bayes_mdp.utils.validation import check_key, check_name, check_positive, check_type

METHODS = (
    "auto",
    "exact",
    "mixture",
    "quadrature",
    "importance",
    "collapsed",
    "factorised",
    "nuts",
    "svi",
    "laplace",
    "gibbs",
)
HIERARCHICAL = (QUADRATURE, IMPORTANCE, COLLAPSED)
"""Routes of conjugate sites under hyperparameters."""
ROUTE_WORDS = {
    "exact": "every site in closed form",
    "mixture": "one closed form for each value of the discrete sites",
    "quadrature": "a grid over the hyperparameters, the rest in closed form",
    "importance": "weighted draws of the hyperparameters, the rest in closed form",
    "collapsed": "chains draw the hyperparameters, the rest is in closed form",
    "factorised": "rows in closed form, what is behind the rewards by weighted draws or chains",
    "nuts": "chains draw every site",
    "gibbs": "chains draw what rows share, rows and rewards in closed form",
    "laplace": "weighted draws about the mode, whose weights are judged",
}
"""A route -> what it does, in messages and in `explain`."""

MANY = 2**22
"""Concentrations of all components of a mixture from which on rows that repeat are kept once."""
MOVED = 0.2
"""Share of the mean of an outcome by which the prior of the rewards may move it, before a warning."""

InferredPosterior: TypeAlias = (
    ConjugatePosterior | Mixture | CollapsedPosterior | FactorisedPosterior | SampledPosterior | PooledPosterior
)
"""What `infer` returns, one class for each route."""


@overload
def infer(  # pyright: ignore[reportOverlappingOverload] (a space with contexts is a space too)
    key: PRNGKeyArray,
    prior: Prior,
    data: Log | None = None,
    *,
    space: ContextSpace,
    method: str | Method = "auto",
    sampler: NUTS = NUTS(),
) -> ContextPosterior: ...
@overload
def infer(
    key: PRNGKeyArray,
    prior: Prior,
    data: Transitions | Log | Counts | FoldedLog | None = None,
    *,
    space: StateActionSpace,
    method: str | Method = "auto",
    sampler: NUTS = NUTS(),
    choices: Softmax | None = None,
) -> InferredPosterior: ...
def infer(
    key: PRNGKeyArray,
    prior: Prior,
    data: Transitions | Log | Counts | FoldedLog | None = None,
    *,
    space: StateActionSpace,
    method: str | Method = "auto",
    sampler: NUTS = NUTS(),
    choices: Softmax | None = None,
) -> InferredPosterior | ContextPosterior:
    """The posterior of `prior`, a NumPyro program space -> `MDPSpec`, after `data`.

    "auto" takes the best route that it can prove on the traced program:

    * exact: all sites (rows, rewards) are conjugate, and every entry of a law is one element of a site, or known. This
      is proved from the data flow of the program, and checked numerically, site by site, against
      `bayes_mdp.models.joint(prior, space)`. The result is a `ConjugatePosterior`.
    * mixture: the same holds for every value of a few discrete sites, on which the program may branch. The result is a
      `Mixture` of conjugate posteriors, exact too.
    * quadrature, importance, collapsed: the sites of rows and rewards are conjugate given hyperparameters, which enter
      only their parameters. These sites are integrated out (with the same check). What remains is integrated over by a
      grid (up to two continuous hyperparameters) or by weighted draws (up to 100), and sampled by NUTS where there are
      more, where their discrete values are too many to be summed over, or where the integral fails (a line on stderr
      says so). The result is a `CollapsedPosterior`, a weighted mixture of conjugate posteriors; its `integration` says
      how far the integral may be off.
    * factorised: the rows are conjugate, the rewards are not, and they share no site. The rows are exact, and the
      parameters of the rewards alone are drawn, by importance sampling or, where that fails, by NUTS. The result is a
      `FactorisedPosterior`.
    * gibbs: only for `models.partial_pooling`, which has its own sampler. The result is a `PooledPosterior`.
    * sampled: everything else, by NUTS on the whole program. The result is a `SampledPosterior`, weighted draws.

    Where chains are run, one line on stderr names the route and what has no closed form, the first time for a program;
    `explain` says more, without data. The program is run on copies of its arrays: none of the user's own is traced in
    float64.

    The proof is made once for a program (identified by what it computes, not by its name), and a sampler is compiled
    once for a program, a method and the shapes of the data. If something is wrong with draws (r-hat, effective sample
    size, divergences), a `SamplingWarning` says what to do; the chains are kept as `posterior.mcmc`.

    In a space with contexts (that of a log with covariates) the result is a `ContextPosterior`, one posterior for each
    context: exact for a ready prior, whose rows are then by context, else by these routes for all contexts side by
    side. "gibbs" draws `models.stick_rows` by Polya-Gamma variables. "laplace" draws about the mode with weights, which
    is approximate, and refused where the weights are bad (Pareto k above .7).

    Data that the program itself observes (`numpyro.sample(..., obs=...)`) count in addition to `data`; a UserWarning is
    given if they may be the same data.

    Args:
        key: a typed key; the exact route draws nothing.
        prior: the program.
        data: transitions, a log, counts, or logs read in chunks; None: the prior as a posterior. Outcomes
            of a log (`read_log(outcomes=...)`) are learnt beside the reward, by the same prior, each as if it were the
            reward: `posterior.outcomes` (one of another size: `posterior.with_outcomes`).
        space: what is known before any data.
        method: "auto", "exact", "mixture", "quadrature" (up to three hyperparameters), "importance", "collapsed" or
            "factorised" (both by chains), or a record: `NUTS(...)`, `SVI(...)`, `Laplace(...)`, `Gibbs(...)` ("nuts",
            "svi", "laplace" and "gibbs" are these with their defaults). A closed form that cannot be proven for the
            program, and an integral that fails, raise an error.
        sampler: options of the chains, if `method` is a name and its route uses chains.
        choices: `inference.Softmax(...)`: the actions in the data are near-optimal and tell of the MDP too, by chains
            over the whole program. None: actions tell nothing of it. `update` learns from transitions alone.

    Raises:
        ValueError: the prior has no posterior by this method (the message names the site), a parameter is out of range,
            data are impossible under the space or the prior, the log is empty, or the method does not exist.
        TypeError: `data` or what the prior returns is of another type.

    Example:
        >>> prior, space = bm.models.dirichlet_normal(), bm.StateActionSpace(2, 2)
        >>> data = bm.Transitions([0, 1, 1], [0, 1, 0], [0.0, 1.0, 2.0], [1, 0, 1])
        >>> posterior = bm.infer(jax.random.key(0), prior, data, space=space)
        >>> posterior.method
        'exact'
        >>> row = posterior.mean_mdp().transition_probs[0, 0]
        >>> print(np.asarray(row).round(3))  # a flat prior, and one visit of state 1
        [0.333 0.667]
    """
    check_key("key", key)
    _check_arguments(prior, space, method, sampler)
    if isinstance(space, ContextSpace):
        return _in_contexts(partial(infer, sampler=sampler), key, prior, data, space, method, choices)
    # Arguments and data are checked before anything is traced: their errors are cheap and come first.
    transitions = _check_data(data, space)
    data = _without_covariates(data) if isinstance(data, Log) and data.covariates is not None else data
    if choices is not None:  # a prior in which the actions of the log are evidence too (an expert acted)
        prior, method = prior_with_choices(prior, choices, data, space, method, sampler)
    # What a ready prior is needs no proof. It observes nothing itself.
    belief, fit = _ready_fit(prior, space, method)
    program, why_not = None, {}
    if fit is None:
        with stage("infer (which route)"):
            program, (fit, why_not, *_) = prove(prior, space, method, sampler)
    if isinstance(data, FoldedLog):
        transitions = data.counts(space, by_outcome=_by_outcome(belief, program))
    # Known rewards are constants of the prior: a log that contradicts them has probability zero.
    if transitions is not None:
        rewards, known = None if belief is None else belief.reward_cells, None
        if program is not None:
            known = _known_rewards(program, proven=fit.method == "exact")
        elif isinstance(rewards, KnownRewards):
            known = Known(np.asarray(rewards.known), rewards.by_outcome)
        if known is not None:
            _check_known_rewards(space, transitions, known)
    # All routes in float64 on the host; the posterior's arrays keep that width.
    with jax.enable_x64(True):
        # Data that the program observes itself must not be given twice.
        if program is not None and transitions is not None:
            warn_counted_twice(program, transitions)
        if program is not None and why_not and fit.method not in ("exact", "mixture"):
            _say_once(program, f"infer: {route_line(fit.method, why_not)}\n")
        # A closed form that was ready is done before anything could be shown.
        with nullcontext() if program is None else stage(f"infer ({fit.method})"):
            posterior = _with_sources(fit.on_host(key, transitions), data)
            jax.block_until_ready(posterior)
    # Without data and without chains the draws are independent ones of the prior: nothing to warn of.
    if posterior.site_draws and (transitions is not None or posterior.chains is not None):
        warn_of(posterior.problems(), posterior.chains)
    if isinstance(data, Log | FoldedLog) and data.outcomes:
        # The same rows and key, with another column in place of the reward: one draw of all has the same rows.
        learnt = {name: _infer_outcome(name, key, prior, data, space, method, sampler) for name in data.outcomes}
        return posterior.with_outcomes(learnt)
    return posterior


def _in_contexts(
    infer_alone: Infer,
    key: PRNGKeyArray,
    prior: Prior,
    data: Transitions | Log | Counts | FoldedLog | None,
    space: ContextSpace,
    method: str | Method,
    choices: Softmax | None,
) -> ContextPosterior:
    """`infer` in a space with contexts, with its warnings."""
    if choices is not None:
        raise ValueError("choices is given in a space with contexts, expected None there")
    posterior = in_contexts(infer_alone, key, prior, data, space, method)
    if posterior.base is None:  # else `infer` of all contexts has warned
        warn_of(posterior.problems(), None, stacklevel=4)
    return posterior


def _without_covariates(log: Log) -> Log:
    """The log for a space without contexts; a UserWarning says that its covariates are ignored there."""
    assert log.covariates is not None  # `infer` has looked
    warn_user(
        f"data has {log.covariates.contexts}, and space has none: they are ignored, and all subjects are taken to be "
        "alike; StateActionSpace.from_log(log) is the space with contexts, and a log that is read without covariates "
        f"says that none are meant {see('how-to/covariates')}"
    )
    return replace(log, covariates=None)


def _with_sources(
    posterior: InferredPosterior, data: Transitions | Log | Counts | FoldedLog | None
) -> InferredPosterior:
    """It remembers the logs that it has learnt from where it can learn from more."""
    if isinstance(data, FoldedLog):
        return posterior.with_sources(digests_of(data.sources))
    if isinstance(data, Log) and data.digest is not None:
        source = Source(data.source, data.digest, np.size(data.transitions.state))
        return posterior.with_sources(digests_of([source]))
    return posterior


def _infer_outcome(
    name: str,
    key: PRNGKeyArray,
    prior: Prior,
    data: Log | FoldedLog,
    space: StateActionSpace,
    method: str | Method,
    sampler: NUTS,
) -> InferredPosterior:
    """The posterior of an outcome, as if it were the reward: by its own default prior, or that of the reward."""
    prior = prior.outcome_priors.get(name, prior) if isinstance(prior, DefaultPrior) else prior
    try:
        posterior = infer(key, prior, data.of_outcome(name), space=space, method=method, sampler=sampler)
    except (ValueError, TypeError) as error:
        raise type(error)(
            f"outcome {name!r}, learnt as the reward is: {error} (another prior for it: log.of_outcome({name!r}) to "
            "infer, and posterior.with_outcomes) " + see("how-to/budgets")
        ) from None
    moved = _prior_shift(posterior)
    if moved > MOVED:
        warn_user(
            f"outcome {name!r}: the prior of the rewards, which it is learnt by, moves its mean by {moved:.0%} on "
            f"average over the transitions: give it a prior of its own size (infer with log.of_outcome({name!r}), then "
            "posterior.with_outcomes) " + see("how-to/budgets")
        )
    return posterior


def _prior_shift(posterior: InferredPosterior) -> float:
    """By how much the prior of the rewards moves their means, as a share of these, over all data; 0: not known."""
    data = posterior.data_reward() if isinstance(posterior, CanWeighRewards) else None
    if data is None:
        return 0.0
    # Shrinkage of the means, weighted by visits: how far the prior pulls them from the data.
    number, means = np.asarray(posterior.visit_counts(), np.float64), np.asarray(posterior.mean_mdp().reward)
    seen = (number > 0) & np.isfinite(np.asarray(data))
    moved, size = np.abs(means - np.asarray(data))[seen] @ number[seen], np.abs(np.asarray(data))[seen] @ number[seen]
    return float(moved / size) if size > 0 else 0.0


def fit_for(
    prior: Prior, space: StateActionSpace, method: str | Method = "auto", *, sampler: NUTS = NUTS()
) -> Fit[InferredPosterior]:
    """How `infer` would proceed, as a function of the data. Host side: the prior is traced and proven here, once.

    Args:
        prior: a NumPyro program, space -> `MDPSpec`.
        space: what is known before any data.
        method: as for `infer`.
        sampler: options of the chains, where `method` is a name and the route takes chains.

    Raises:
        ValueError, TypeError: as `infer`, but for what depends on the data.
    """
    _check_arguments(prior, space, method, sampler)
    fit = _ready_fit(prior, space, method)[1]
    return prove(prior, space, method, sampler)[1].fit if fit is None else fit


def _ready_fit(
    prior: Prior, space: StateActionSpace, method: str | Method
) -> tuple[ConjugatePosterior | None, Fit[ConjugatePosterior] | Fit[Mixture] | None]:
    """The belief of a ready prior before any data (of several: the first), and its inference; (None, None): it is no
    ready one, or another method is asked for."""
    # Several closed forms are a discrete mixture: "exact" alone does not mean that.
    belief = ready_made(prior, space) if method in ("auto", "exact", "mixture") else None
    if isinstance(belief, enumerated.Branches):
        return (None, None) if method == "exact" else (belief.components[0], enumerated.fit_of(belief))
    return (None, None) if belief is None or method == "mixture" else (belief, _fit_of(belief))


def prove(prior: Prior, space: StateActionSpace, method: str | Method, sampler: NUTS) -> "tuple[Program, Route]":
    """The traced prior, and the route that it takes. Host side: traced and proven once for a computation.

    Raises:
        ValueError, TypeError: as `infer`, but for what depends on the data.
    """
    _check_arguments(prior, space, method, sampler)
    with jax.enable_x64(True), tracing():
        # Random effects on rows bring their own sampler: Gibbs steps between concentration and rows.
        if isinstance(prior, PartialPooling):
            return _route_of_pooling(prior, space, method)
        program = trace_program(prior, space)
        return program, find_route(Question(program, method, sampler))


def _route_of_pooling(prior: PartialPooling, space: StateActionSpace, method: str | Method) -> "tuple[Program, Route]":
    """The route of the prior that brings its own sampler; the program is that of its rewards.

    Raises:
        ValueError: another method is asked for; rewards that are not conjugate.
    """
    if not isinstance(method, Gibbs) and method not in ("auto", "gibbs"):
        raise ValueError(f'method is {method!r}, expected "auto", "gibbs" or Gibbs(...) for a prior of partial_pooling')
    # The rewards beside rows that are nothing like those of the program.
    program = trace_program(prior.rewards(concentration=1.0), space)
    options = method if isinstance(method, Gibbs) else Gibbs()
    try:
        rewards = _exact_fit(program)
    except NotConjugate as error:
        raise ValueError(f"rewards of partial_pooling have to be conjugate, and these are not: {error}") from error
    fit = pooled_posterior.fit_of(prior, space, rewards, options)
    return program, Route(fit, {}, ("concentration", "usage_power", "state rows"))


class Known(NamedTuple):
    """Rewards that a prior knows.

    Args:
        reward: [*H S A], or [*H S A O].
        by_outcome: whether they depend on the outcome.
    """

    reward: Float[np.ndarray, "*cells"]
    by_outcome: bool


class Route(NamedTuple):
    """How a program is inferred.

    Args:
        fit: the inference.
        why_not: {better route: a sentence, why it cannot be taken}.
        drawn: the latent sites that are neither in closed form nor enumerated.
        enumerated: the discrete sites whose values are summed over.
        drawn_by: "chains", "quadrature" or "importance", which starts with weighted draws.
    """

    fit: Fit[InferredPosterior]
    why_not: dict[str, str]
    drawn: tuple[str, ...] = ()
    enumerated: tuple[str, ...] = ()
    drawn_by: str = "chains"


class Question(NamedTuple):
    """By which route a program is to be inferred.

    Args:
        program: traced.
        method: as asked for.
        sampler: options of the chains, where `method` is a name.
    """

    program: Program
    method: str | Method
    sampler: NUTS

    @property
    def space(self) -> StateActionSpace:
        """That of the program."""
        return self.program.space


@program_cache
def find_route(question: Question) -> Route:
    """The named route, or the best one that can be proven. Host side, in float64.

    Raises:
        ValueError: the named route cannot be proven (names the site in the way), or none serves.
    """
    program, method, sampler = question
    # Improper priors without data have no posterior: refused before any route.
    check_proper(program)
    why_not: dict[str, str] = {}

    def over_hyperparameters() -> Route:
        # A grid over at most two numbers, importance sampling over some more, chains over many (`method_of`).
        hierarchy = prove_hierarchy(program)
        best = method_of(hierarchy)
        chosen = best or COLLAPSED if method == "auto" else str(method)
        if chosen in (QUADRATURE, IMPORTANCE):
            _check_integrable(hierarchy, chosen, best)
        _check_discrete(program, hierarchy.hyperparameters, sampler)
        # Asked for by name it fails aloud; under "auto" chains take its place.
        fit = collapsed_posterior.fit_of(hierarchy, sampler, chosen, asked=method != "auto")
        if chosen == COLLAPSED:
            return Route(fit, why_not, hierarchy.hyperparameters)
        prior = hierarchy.hyper_prior
        return Route(fit, why_not, tuple(prior.free), tuple(prior.held), drawn_by=chosen)

    def over_branches() -> Route:
        branches = enumerated.prove_branches(program)
        return Route(enumerated.fit_of(branches), why_not, (), tuple(branches.values))

    def over_factors() -> Route:
        factors = prove_factors(program)
        _check_discrete(program, factors.reward_sites, sampler)
        by_draws = method == IMPORTANCE or (method == "auto" and sampler.kernel is None)
        fit = factorised_posterior.fit_of(factors, sampler, by_draws=by_draws, asked=method != "auto")
        weighted = by_draws and factorised_posterior.allows_weights(factors, sampler)
        return Route(fit, why_not, factors.reward_sites, drawn_by=IMPORTANCE if weighted else "chains")

    # In order of preference: no Monte Carlo error, a finite sum, an integral, rewards alone by draws.
    proofs: dict[str, Callable[[], Route]] = {
        "exact": lambda: Route(_exact_fit(program), why_not),
        "mixture": over_branches,
        COLLAPSED: over_hyperparameters,
        "factorised": over_factors,
    }
    # Weighted draws serve hierarchies, and rewards beside rows in closed form.
    proofs_to_try = (
        [COLLAPSED, "factorised"] if method == IMPORTANCE else [COLLAPSED if method == QUADRATURE else method]
    )
    # Best route first; the refusal of each is kept as the reason why it was not taken.
    for name, proof in proofs.items():
        if method != "auto" and name not in proofs_to_try:
            continue
        try:
            return proof()
        except NotConjugate as error:
            # A route that was asked for by name reports why it cannot be.
            if proofs_to_try[-1] == name:
                raise
            why_not[name] = str(error)
    if isinstance(method, Gibbs) or method == "gibbs":
        raise ValueError("method is Gibbs, expected a prior of models.partial_pooling, which alone is sampled by it")
    Probe(program)  # what no route infers rightly is refused
    # The last resort: every site by chains, the program as it is.
    named = {"auto": sampler, "nuts": sampler, "svi": SVI(), "laplace": Laplace()}
    chosen = named[method] if isinstance(method, str) else method
    drawn = tuple(site.name for site in program.latents)
    _check_discrete(program, drawn, chosen)
    return Route(sampled_fit(program.prior, program.space, chosen), why_not, drawn)


def _check_integrable(hierarchy: Hierarchy, method: str, best: str | None) -> None:
    """Refuse an integral that was asked for by name over more numbers than it takes.

    Raises:
        ValueError: the discrete hyperparameters have too many values, or there are too many continuous ones.
    """
    size = hierarchy.hyper_prior.dimension
    if best is None:
        raise ValueError(
            f"method is {method!r}, and the hyperparameters {', '.join(map(repr, hierarchy.hyperparameters))} are too "
            f"many (at most {MOST_NUMBERS} continuous numbers and {MOST_VALUES} joint values of discrete ones), "
            "expected 'collapsed'"
        )
    if method == QUADRATURE and size > max(MOST_NODES):
        raise ValueError(
            f"method is 'quadrature' over {size} numbers, expected 'importance' (a grid has at most 3 axes)"
        )


def _check_discrete(program: Program, drawn: tuple[str, ...], method: Method) -> None:
    """Refuse discrete sites that no chain can move.

    Raises:
        ValueError: names the first one.
    """
    if isinstance(method, NUTS) and method.kernel is not None:
        return
    for site in program.latents:
        if site.name in drawn and site.discrete and not site.bounded:
            # HMC needs gradients: discrete sites are enumerated, which needs a finite support known beforehand.
            raise ValueError(
                f"prior: site {site.name!r} ({site.family}) is discrete and has no finite list of values that is known "
                "in front of the program, which its chains need, expected dist.Categorical over all values that it may "
                "have, or a kernel of your own: NUTS(kernel=...)"
            )


@program_cache
def _exact_fit(program: Program) -> Fit[ConjugatePosterior]:
    return _fit_of(_prove(program)[0])


def _fit_of(posterior: ConjugatePosterior) -> Fit[ConjugatePosterior]:
    """The inference of a prior whose belief before any data is `posterior`."""

    def on_host(key: PRNGKeyArray, data: Transitions | Counts | None) -> ConjugatePosterior:
        del key
        return jax.tree.map(np.array, posterior) if data is None else refit(posterior, data)

    def summarise(transitions: Transitions) -> ConjugatePosterior:
        return jax.tree.map(np.array, posterior).update(transitions)

    return Fit("exact", posterior.space, summarise, lambda key, data: data, on_host)


@program_cache
def _prove(program: Program) -> tuple[ConjugatePosterior, Known | None]:
    """The belief before any data, detected and certified, and known rewards. The random points depend on the program
    alone."""
    probe = Probe(program)
    detected = detect(probe)
    # Detection reads the jaxpr; certification compares densities at random points, by the seed of the program.
    certify(program, detected, program.generator())
    known = probe.known(probe.reward["mean"]) if program.law.family == KNOWN else None
    return detected.posterior, None if known is None else Known(known, program.law.by_outcome)


def route_line(method: str, why_not: dict[str, str]) -> str:
    """Which route is taken, and what has no closed form, on one line. `explain` says more."""
    first = next(iter(why_not.values()), "")  # what is in the way of a closed form, the best route
    reason = first.removeprefix("prior: ").partition(". method=")[0]
    # "site x does not allow ..." is an error's sentence: as information only the site is named.
    site, in_the_way, _ = reason.partition(IN_THE_WAY)
    if in_the_way:
        reason = f"{site} has no closed form"
    words = f"{method} ({ROUTE_WORDS[method]})" if method in ROUTE_WORDS else method
    return words + (f": {reason}" if reason else "")


@program_cache
def _lines_of(program: Program) -> set[str]:
    """The lines that were written about a program in this process."""
    del program
    return set()


def _say_once(program: Program, line: str) -> None:
    """Write a line about a program on stderr, the first time: `decide` and `criticise` infer it several times."""
    said = _lines_of(program)
    if line not in said:
        said.add(line)
        sys.stderr.write(line)


def _check_arguments(prior: object, space: object, method: object, sampler: object) -> None:
    check_type("sampler", sampler, NUTS, "NUTS(...)")
    if not callable(prior):
        raise TypeError(f"prior is a {type(prior).__name__}, expected a function space -> MDPSpec")
    program = prior
    # Handlers may be nested: look for a seed at any depth.
    while isinstance(program, Messenger):
        if isinstance(program, handlers.seed):
            raise ValueError(
                "prior is already seeded (numpyro.handlers.seed), so that its draws are constants, expected the "
                "program itself"
            )
        program = program.fn
    if not isinstance(space, StateActionSpace):
        raise TypeError(f"space is a {type(space).__name__}, expected a StateActionSpace")
    if not isinstance(method, Method):
        check_name("method", method, METHODS, ", or a record NUTS(...), SVI(...), Laplace(...)")


def _by_outcome(belief: ConjugatePosterior | None, program: Program | None) -> bool:
    """Whether rewards depend on the outcome, in the ready prior or in the program."""
    if belief is not None:
        return belief.rewards_by_outcome
    return program is not None and program.law.by_outcome


def _known_rewards(program: Program, *, proven: bool) -> Known | None:
    """The rewards of a program that knows them, in float64; of one that is `proven` they have been read already."""
    if program.law.family != KNOWN:
        return None
    with jax.enable_x64(True):
        known = _prove(program)[1] if proven else None
        if known is None:
            probe = Probe(program)
            known = Known(probe.known(probe.reward["mean"]), program.law.by_outcome)
    return known


def _check_known_rewards(space: StateActionSpace, data: Transitions | Counts, known: Known) -> None:
    """Refuse rewards of the log that are not the known ones of the prior.

    Raises:
        ValueError: names the first row (of counts: the first cell), the known and the observed value.
    """
    # Lower and upper bound of the support are the same number: the known reward.
    support = make_support(known.reward, known.reward, by_outcome=known.by_outcome)
    if isinstance(data, Counts):
        support.check_moments("data", data)
        return
    check_transitions(data, space)
    if data.reward is None:
        return
    # Weight zero marks rewards that were not observed, or have no outcome that they depend on.
    seen, _ = data.observed_rewards(np.ones(np.shape(data.state)), by_outcome=known.by_outcome)
    # Rows without an outcome are at place O: clipped for the look-up, and not looked at.
    cells = support.at(data.cell(space), np.minimum(data.outcome(space), space.n_outcomes - 1))
    cells.check("data.reward", np.asarray(data.reward, np.float64), seen != 0)


def _check_data(data: object, space: StateActionSpace) -> Transitions | Counts | None:
    if data is None or isinstance(data, Counts):
        return data
    if isinstance(data, FoldedLog):
        data.check(space)
        return None
    if isinstance(data, Log):
        check_log_labels("data", data, space)
        data = data.transitions
    if not isinstance(data, Transitions):
        raise TypeError(f"data is a {type(data).__name__}, expected Transitions, a Log, a FoldedLog or Counts")
    if not np.size(data.state):
        raise ValueError("data holds no transitions, expected at least one (or data=None for the prior)")
    return data


Sites = dict[str, tuple[int, ...]]
"""Site -> shape, in the order of the program."""


@dataclass(frozen=True)
class ReadyMade:
    """A ready prior of a space; equal ones have one `fingerprint`.

    Args:
        prior: with its own copies of the arrays, where it holds any.
        form: its closed form.
        space: sizes, names, masks.
        fingerprint: of the form and of the space.
    """

    prior: Prior = field(compare=False)
    form: ClosedForm = field(compare=False)
    space: StateActionSpace = field(compare=False)
    fingerprint: str


def ready_made(prior: Prior, space: StateActionSpace) -> ConjugatePosterior | Branches | None:
    """The belief before any data, one for each value of a discrete site where there is one; None: `prior` is no ready
    one with a closed form. Made once for equal ones.

    Raises:
        ValueError: hyperparameters that do not fit the space.
    """
    form = closed_form_of(prior)
    if form is None:
        return None
    forms = form.forms if isinstance(form, ClosedForms) else (form,)
    numbers = len(forms) * math.prod((*space.shape, space.n_outcomes))
    priors = _repeated_rows(forms, space) if len(forms) > 1 and numbers > MANY else None
    # More components than memory allows: `infer` takes the general way instead.
    if len(forms) > 1 and numbers > MAX_NUMBERS and priors is None:
        return None
    has_arrays = any(isinstance(value, np.ndarray) for ready_forms in forms for value in ready_forms.numbers)
    if has_arrays:
        # Its form goes with it, with copies of its arrays: who infers again with this program needs no proof either.
        copies: dict[int, np.ndarray] = {}
        copied_forms = tuple(_copy(each, copies) for each in forms)
        copied = form._replace(forms=copied_forms) if isinstance(form, ClosedForms) else copied_forms[0]
        prior = ready(isolated_prior(prior), copied)
    digests: dict[int, bytes] = {}
    about = repr(space).encode() + b"".join(_content(value, digests) for value in jax.tree.leaves(space))
    ready_forms = [ReadyMade(prior, each, space, _digest(each, about, digests)) for each in forms]
    if not isinstance(form, ClosedForms):
        return _belief(ready_forms[0])
    # Equal forms share one digest, by which proofs and compiled functions are remembered.
    digest = hashlib.sha256(
        f"{form.site} {len(ready_forms)} {' '.join(ready_form.fingerprint for ready_form in ready_forms)}".encode()
    )
    return branches_of(
        prior,
        digest.hexdigest(),
        form.site,
        range(len(ready_forms)),
        [_belief(each) for each in ready_forms] if priors is None else _beliefs(ready_forms, priors),
    )


def _copy(form: ClosedForm, copies: dict[int, np.ndarray]) -> ClosedForm:
    """The form with copies of its arrays; `copies` has those of arrays that forms share, by identity."""

    # Not by jax.tree.map, which sorts a dictionary by name: the order of the hyperparameters says what they are.
    def copy(value: ArrayLike) -> ArrayLike:
        return copies.setdefault(id(value), value.copy()) if isinstance(value, np.ndarray) else value

    numbers = {name: copy(value) for name, value in form.hyperparameters.items()}
    return form._replace(concentration=copy(form.concentration), hyperparameters=numbers)


def _digest(form: ClosedForm, about: bytes, digests: dict[int, bytes]) -> str:
    """Of a form and of what is said about its space; `digests` has those of arrays that forms share, by identity."""
    words = f" {form.rewards} {form.by_outcome} {tuple(form.hyperparameters)}".encode()
    parts = b"".join(_content(value, digests) for value in form.numbers)
    return hashlib.sha256(about + words + parts).hexdigest()


def _content(value: ArrayLike, digests: dict[int, bytes]) -> bytes:
    if isinstance(value, np.ndarray) and id(value) in digests:
        return digests[id(value)]
    array = np.asarray(value)
    # Type and shape first: equal bytes of another shape are another prior.
    content = hashlib.sha256(f"{array.dtype}{array.shape}".encode() + array.tobytes()).digest()
    if isinstance(value, np.ndarray):
        digests[id(value)] = content
    return content


@program_cache
def _belief(ready: ReadyMade) -> ConjugatePosterior:
    sites: Sites = {}
    with jax.enable_x64(True):
        rows, elements = _rows(ready.form, ready.space, sites)
        # Elements are numbered through all sites, in the order in which the program draws them.
        start = sum(int(np.prod(shape)) for shape in sites.values())
        rewards, cells = _rewards(ready.form, ready.space, sites, start)
        size = sum(int(np.prod(shape)) for shape in sites.values())
        table = SiteTable(tuple(sites.items()), site_rows(elements, size), cells, None, ready.prior)
        return conjugate_posterior(rows, rewards, ready.space, table)


def _beliefs(ready: list[ReadyMade], priors: list[RepeatedRows]) -> list[ConjugatePosterior]:
    """As `_belief` of each, with the concentrations of their rows as they are given."""
    space = ready[0].space
    shape = (*space.shape, space.n_outcomes)
    size = math.prod(shape)
    # All share one table of counts, which is written once.
    counts = np.zeros((math.prod(space.shape), space.n_outcomes))
    beliefs: list[ConjugatePosterior] = []
    for each, prior in zip(ready, priors, strict=True):
        sites: Sites = {"transition": shape}
        with jax.enable_x64(True):
            rewards, cells = _rewards(each.form, space, sites, size)
            names = (("transition", space.shape),)
            rows = DirichletRows(prior, counts, None, None, None, None, shape, False, True, names)
            table = SiteTable(tuple(sites.items()), None, cells, None, each.prior)
            beliefs.append(conjugate_posterior(rows, rewards, space, table))
    return beliefs


def _repeated_rows(forms: Sequence[ClosedForm], space: StateActionSpace) -> list[RepeatedRows] | None:
    """The concentrations of the rows of each form, by the rows that differ, of all forms together.

    None: these are many; or some outcome is impossible, or stands for several.
    """
    if space.possible is not None or space.multiplicity is not None or space.n_outcomes == 1:
        return None
    # Of each concentration that forms share: its rows, and which of them each pair has.
    places: dict[int, tuple[int, Int[np.ndarray, " M"]]] = {}
    tables: list[Float[np.ndarray, "R O"]] = []
    start, most = 0, len(forms) * math.prod(space.shape) // 2
    for form in forms:
        if id(form.concentration) in places:
            continue
        with jax.enable_x64(True):
            small = compact(np.asarray(row_concentrations(form.concentration, space)[0]))
        if start + math.prod(small.shape[:-1]) > most or not (small > 0).all():
            return None
        tables.append(np.broadcast_to(small, (*small.shape[:-1], space.n_outcomes)).reshape(-1, space.n_outcomes))
        number = np.arange(start, start + len(tables[-1]), dtype=np.int32).reshape(small.shape[:-1])
        places[id(form.concentration)] = start, np.broadcast_to(number, space.shape).ravel()
        start += len(tables[-1])
    rows = np.concatenate(tables)
    return [RepeatedRows(np.float64(form.scale), rows, places[id(form.concentration)][1]) for form in forms]


def _rows(form: ClosedForm, space: StateActionSpace, sites: Sites) -> tuple[DirichletRows, Int[np.ndarray, "M K"]]:
    """The belief about the rows, and which element of the sites is which of its concentrations."""
    concentration, possible = row_concentrations(form.scale * np.asarray(form.concentration), space)
    shape = possible.shape
    # One possible outcome: probability one, nothing to learn.
    if (possible.sum(-1) == 1).all():
        # Known rows; the belief about them has one row that nothing uses.
        none = np.full(shape, -1)
        rows = dirichlet_rows(np.eye(1, shape[-1]), shape, row=none[..., 0], column=none, known=possible.astype(float))
        return rows, np.full((1, shape[-1]), -1)
    # An illegal pair that stays where it is may have no concentration there.
    positive = np.where(possible & (np.asarray(concentration) <= 0), 1.0, np.asarray(concentration))
    prior = np.where(possible, positive, 0.0).reshape(-1, shape[-1])
    check_positive("prior: transition.concentration", np.where(possible, positive, 1.0))
    # All rows [*H S A] are draws of one site, flattened to [rows, O] for the belief.
    sites["transition"] = shape
    return dirichlet_rows(prior, shape, sites=(("transition", shape[:-1]),)), np.arange(prior.size).reshape(prior.shape)


def _rewards(
    form: ClosedForm, space: StateActionSpace, sites: Sites, start: int
) -> tuple[Rewards, tuple[Int[np.ndarray, " L"], ...]]:
    """The belief about the rewards; for each of their parameters, the elements behind the cells."""
    if form.rewards == "known":
        reward = form.hyperparameters["reward"]
        # A number, a table by state and action, or one by outcome: every cell gets its known reward.
        by_outcome = known_by_outcome(np.shape(reward), space)
        return known_rewards(broadcast_to_cells("reward", reward, space, by_outcome), by_outcome=by_outcome), ()
    by_outcome = bool(form.by_outcome)
    names = form.hyperparameters.items()
    numbers = [np.asarray(broadcast_to_cells(name, value, space, by_outcome)) for name, value in names]
    shape = numbers[0].shape
    number = np.arange(numbers[0].size)
    paired = form.rewards == "normal_gamma"
    sites["reward"] = (*shape, 2) if paired else shape
    # Mean and precision of a normal-gamma lie side by side.
    elements = (start + 2 * number, start + 2 * number + 1) if paired else (start + number,)
    return reward_cells(
        _reward_belief(form, numbers), shape, by_outcome=by_outcome, sites=(("reward", shape),)
    ), elements


def _reward_belief(form: ClosedForm, numbers: list[Float[np.ndarray, "*cells"]]) -> RewardBelief:
    # Each family takes its hyperparameters in the order in which its prior names them.
    if form.rewards != "normal":
        families = {"normal_gamma": NormalGammaBelief, "bernoulli": BetaBelief, "poisson": GammaBelief}
        return families[form.rewards](*numbers)
    loc, scale, noise_scale = numbers
    # By way of the precisions that the program states, so that the numbers are those of `detection` to the last bit:
    # NumPy's power of an array differs there from that of C, by which known numbers are computed in it.
    small = compact(noise_scale)
    # scale^-2 may overflow to inf, which check_positive refuses by name below.
    with np.errstate(over="ignore", divide="ignore"):
        precision = scale.ravel() ** -2.0
        noise = np.broadcast_to(np.reshape([x**-2.0 for x in small.ravel()], small.shape), scale.shape)
        check_positive("prior: reward.precision", precision)
        return NormalBelief(loc.ravel(), precision**-0.5, noise.ravel() ** -0.5)
