"""`infer`: prior and data to a posterior, by the best route that can be proven. Host side."""

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.inference.certify import certify
from bayes_mdp.inference.detect import detect
from bayes_mdp.inference.fitting import Fit
from bayes_mdp.inference.posterior import ConjugatePosterior
from bayes_mdp.inference.refit import refit
from bayes_mdp.inference.trace import Program, trace_program
from bayes_mdp.mdp import Counts, Log, StateActionSpace, Transitions
from bayes_mdp.mdp.validation import check_key, check_labels

METHODS = ("auto", "exact")
_NARROW: set[Any] = set()
"""Prior functions (their code, which closures share) that hold 32-bit arrays of their own."""


def infer(
    key: PRNGKeyArray,
    prior: Any,
    data: Transitions | Log | Counts | None = None,
    *,
    space: StateActionSpace,
    method: Any = "auto",
) -> ConjugatePosterior:
    """The posterior of `prior`, a NumPyro program space -> `World`, after `data`.

    Conjugacy is detected from the traced program, and certified: the posterior density, its constant (the log evidence)
    and the density of `bayes_mdp.models.joint(prior, space)` agree at random points to 1e-9. The proof is made once for
    a program (what it computes, not what it is called); data cost their counting.

    Args:
        key: a typed key; the exact route draws nothing.
        prior: the program.
        data: transitions, a log or counts; None: the prior as a posterior.
        space: what is known before any data.
        method: "auto" or "exact".

    Raises:
        ValueError: the prior has no exact posterior (names the site in the way), a parameter is out of range, data that
            the space or the prior cannot hold, an empty log, a method that is not there.
        TypeError: `data` or what the prior returns is of another type.
    """
    check_key("key", key)
    _check_arguments(prior, space, method)
    transitions = _check_data(data, space)
    with _room():
        posterior = jax.tree.map(np.array, _belief(prior, space))
        if isinstance(transitions, Counts):
            posterior = jax.tree.map(np.asarray, posterior.update(transitions))
    return posterior if transitions is None or isinstance(transitions, Counts) else refit(posterior, transitions)


@contextmanager
def _room() -> Iterator[None]:
    """float64; arrays that the program holds in float32 stay what they are, without a warning."""
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "scatter inputs have incompatible types", FutureWarning)
        yield


def _belief(prior: Any, space: StateActionSpace) -> ConjugatePosterior:
    """The belief before any data, with the numpy constants of the program in the precision of the room.

    JAX keeps the 32-bit copy of a numpy constant as long as a computation made from it outside the room lives, and
    takes it for the constant in here (seen in 0.10 and 0.12). Where that shows, it is made to forget them, once.
    """
    try:
        program = trace_program(prior, space)
        if not program.narrow or _code(prior) in _NARROW:
            return _prove(program)
    except (TypeError, jax.errors.JaxRuntimeError) as error:
        if isinstance(error, TypeError) and "same dtypes" not in str(error):
            raise
    jax.clear_caches()
    gc.collect()
    program = trace_program(prior, space)
    if program.narrow:
        _NARROW.add(_code(prior))
    try:
        return _prove(program)
    except jax.errors.JaxRuntimeError as error:
        # What JAX cannot be made to forget: a trace that failed half-way is never given back.
        raise ValueError(
            "prior: JAX holds 32-bit copies of numpy arrays that the program uses, expected 64-bit ones; "
            "make these arrays inside the program"
        ) from error


def fit_of_program(prior: Any, space: StateActionSpace, method: Any) -> Fit:
    """See `fit_for`."""
    _check_arguments(prior, space, method)
    with _room():
        posterior = jax.tree.map(np.array, _belief(prior, space))
    return Fit("exact", space, lambda transitions: posterior.update(transitions), lambda key, data: data)


def _code(prior: Any) -> Any:
    return getattr(prior, "__code__", type(prior))


@lru_cache(maxsize=64)
def _prove(program: Program) -> ConjugatePosterior:
    """The belief before any data, detected and certified. The random points depend on the program alone."""
    rng = np.random.default_rng(int(program.fingerprint, 16))
    detected = detect(program, rng)
    certify(program, detected, rng)
    return detected.posterior


def _check_arguments(prior: Any, space: Any, method: Any) -> None:
    if not callable(prior):
        raise TypeError(f"prior is a {type(prior).__name__}, expected a function space -> World")
    if not isinstance(space, StateActionSpace):
        raise TypeError(f"space is a {type(space).__name__}, expected a StateActionSpace")
    if not (isinstance(method, str) and method in METHODS):
        raise ValueError(f"method is {method!r}, expected 'auto' or 'exact'")


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
