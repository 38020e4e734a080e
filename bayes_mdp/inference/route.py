"""`infer`: prior and data to a posterior, by the best route that can be proven. Host side."""

import gc
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.inference import collapsed_fit
from bayes_mdp.inference.certify import certify
from bayes_mdp.inference.chains import warn_of
from bayes_mdp.inference.collapse import prove_hierarchy
from bayes_mdp.inference.detect import detect
from bayes_mdp.inference.fitting import Fit
from bayes_mdp.inference.hierarchy import Hierarchy
from bayes_mdp.inference.methods import NUTS, SVI, Laplace, Method
from bayes_mdp.inference.posterior import ConjugatePosterior
from bayes_mdp.inference.refusals import NotConjugate
from bayes_mdp.inference.trace import Program, trace_program
from bayes_mdp.mdp import Counts, Log, StateActionSpace, Transitions
from bayes_mdp.mdp.validation import check_key, check_labels, check_name

METHODS = ("auto", "exact", "collapsed", "nuts", "svi", "laplace")
_NARROW: set[Any] = set()
"""Prior functions (their code, which closures share) that hold 32-bit arrays of their own."""
_LOG = logging.getLogger(__name__)


def infer(
    key: PRNGKeyArray,
    prior: Any,
    data: Transitions | Log | Counts | None = None,
    *,
    space: StateActionSpace,
    method: str | Method = "auto",
    sampler: NUTS = NUTS(),
) -> Any:
    """The posterior of `prior`, a NumPyro program space -> `World`, after `data`.

    "auto" takes the best route that it can prove on the traced program:

    * exact: all leaves (rows, rewards) are conjugate. Detected from the trace, and certified: the posterior density,
      its constant (the log evidence) and the density of `bayes_mdp.models.joint(prior, space)` agree at random points
      to 1e-9. The answer is a `ConjugatePosterior`.
    * collapsed: the leaves are conjugate given latent parents. They are integrated out of the program, certified
      likewise, and NUTS draws the parents: a `CollapsedPosterior`, a weighted mixture of conjugate posteriors.
    * sampled: everything else, by NUTS on the whole program: a `SampledPosterior`, weighted draws.

    The proof is made once for a program (what it computes, not what it is called), and what samples is compiled once
    for a program, a method and the shapes of the data. What is wrong with draws (r-hat, effective sample size,
    divergences) is a `SamplingWarning` that says what to do; the chains are kept as `posterior.mcmc`.

    Args:
        key: a typed key; the exact route draws nothing.
        prior: the program.
        data: transitions, a log or counts; None: the prior as a posterior.
        space: what is known before any data.
        method: "auto", "exact", "collapsed", or a record: `NUTS(...)`, `SVI(...)`, `Laplace(...)` ("nuts", "svi" and
            "laplace" are these with their defaults). A method that cannot be proven is refused.
        sampler: options of the chains where `method` is a name and its route takes chains.

    Raises:
        ValueError: the prior has no posterior by this method (names the site in the way), a parameter is out of range,
            data that the space or the prior cannot hold, an empty log, a method that is not there.
        TypeError: `data` or what the prior returns is of another type.
    """
    check_key("key", key)
    fit = fit_of_program(prior, space, method, sampler)
    transitions = _check_data(data, space)
    with _room():
        posterior = fit.on_host(key, transitions)
    if fit.method == "exact":
        return posterior
    if transitions is not None or posterior.mcmc is not None:
        warn_of(posterior)
    return posterior


def fit_of_program(prior: Any, space: StateActionSpace, method: Any, sampler: NUTS = NUTS()) -> Fit:
    """See `bayes_mdp.inference.fitting.fit_for`."""
    _check_arguments(prior, space, method)
    with _room():
        return _in_precision_of_the_room(prior, space, lambda program: _fit(program, method, sampler))


def _fit(program: Program, method: Any, sampler: NUTS) -> Fit:
    if method in ("auto", "exact"):
        try:
            return _exact_fit(program)
        except NotConjugate as error:
            if method == "exact":
                raise
            _LOG.info("not exact: %s", error)
    if method in ("auto", "collapsed"):
        try:
            return collapsed_fit.fit_of(_prove_hierarchy(program), sampler)
        except NotConjugate as error:
            if method == "collapsed":
                raise
            _LOG.info("not collapsed: %s", error)
    from bayes_mdp.inference.sampled.fits import sampled_fit

    named = {"auto": sampler, "nuts": sampler, "svi": SVI(), "laplace": Laplace()}
    return sampled_fit(program.prior, program.space, named[method] if isinstance(method, str) else method)


@lru_cache(maxsize=64)
def _exact_fit(program: Program) -> Fit:
    posterior = _prove(program)

    def on_host(key: PRNGKeyArray, data: Transitions | Counts | None) -> ConjugatePosterior:
        del key
        copy = jax.tree.map(np.array, posterior)
        return copy if data is None else collapsed_fit.seen_on_host(copy, data)

    def summarise(transitions: Transitions) -> ConjugatePosterior:
        return jax.tree.map(np.array, posterior).update(transitions)

    return Fit("exact", program.space, summarise, lambda key, data: data, on_host)


@contextmanager
def _room() -> Iterator[None]:
    """float64; arrays that the program holds in float32 stay what they are, without a warning."""
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "scatter inputs have incompatible types", FutureWarning)
        yield


def _in_precision_of_the_room(prior: Any, space: StateActionSpace, prove: Callable[[Program], Any]) -> Any:
    """`prove` of the traced prior, with the numpy constants of the program in the precision of the room.

    JAX keeps the 32-bit copy of a numpy constant as long as a computation made from it outside the room lives, and
    takes it for the constant in here (seen in 0.10 and 0.12). Where that shows, it is made to forget them, once.
    """
    try:
        program = trace_program(prior, space)
        if not program.narrow or _code(prior) in _NARROW:
            return prove(program)
    except (TypeError, jax.errors.JaxRuntimeError) as error:
        if isinstance(error, TypeError) and "same dtypes" not in str(error):
            raise
    jax.clear_caches()
    gc.collect()
    program = trace_program(prior, space)
    if program.narrow:
        _NARROW.add(_code(prior))
    try:
        return prove(program)
    except jax.errors.JaxRuntimeError as error:
        # What JAX cannot be made to forget: a trace that failed half-way is never given back.
        raise ValueError(
            "prior: JAX holds 32-bit copies of numpy arrays that the program uses, expected 64-bit ones; "
            "make these arrays inside the program"
        ) from error


def _code(prior: Any) -> Any:
    return getattr(prior, "__code__", type(prior))


@lru_cache(maxsize=64)
def _prove(program: Program) -> ConjugatePosterior:
    """The belief before any data, detected and certified. The random points depend on the program alone."""
    rng = np.random.default_rng(int(program.fingerprint, 16))
    detected = detect(program, rng)
    certify(program, detected, rng)
    return detected.posterior


@lru_cache(maxsize=64)
def _prove_hierarchy(program: Program) -> Hierarchy:
    """Likewise for conjugate leaves under latent parents."""
    return prove_hierarchy(program, np.random.default_rng(int(program.fingerprint, 16)))


def _check_arguments(prior: Any, space: Any, method: Any) -> None:
    if not callable(prior):
        raise TypeError(f"prior is a {type(prior).__name__}, expected a function space -> World")
    if not isinstance(space, StateActionSpace):
        raise TypeError(f"space is a {type(space).__name__}, expected a StateActionSpace")
    if not isinstance(method, Method):
        check_name("method", method, METHODS, ", or a record NUTS(...), SVI(...), Laplace(...)")


def _check_data(data: Any, space: StateActionSpace) -> Transitions | Counts | None:
    if data is None or isinstance(data, Counts):
        return data
    if isinstance(data, Log):
        check_labels("data.states", data.states, space.state_names)
        check_labels("data.actions", data.actions, space.action_names)
        data = data.transitions
    if not isinstance(data, Transitions):
        raise TypeError(f"data is a {type(data).__name__}, expected Transitions, a Log or Counts")
    if not np.size(data.state):
        raise ValueError("data holds no transitions, expected at least one (or data=None for the prior)")
    return data
