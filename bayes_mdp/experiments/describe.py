"""A run in JSON: what was run, with which versions and which key."""

import dataclasses
import hashlib
import platform
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import bayes_mdp
from bayes_mdp.experiments.case import Case
from bayes_mdp.mdp import Picture, StateActionSpace

PACKAGES = ("jax", "jaxlib", "equinox", "numpyro", "numpy", "xarray")
_SHORT = 16


def describe(value: Any) -> Any:
    """JSON values for a record, array, function, number or container; long arrays by shape, dtype and SHA-256."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, Picture):
        return None  # no number depends on it
    if isinstance(value, (float, np.generic)):
        return value.item() if isinstance(value, np.generic) else value
    if isinstance(value, dict):
        return {str(name): describe(x) for name, x in value.items()}
    if isinstance(value, (tuple, list)):
        return [describe(x) for x in value]
    if isinstance(value, (np.ndarray, jax.Array)):
        return _array(np.asarray(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: describe(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"type": _name(type(value)), **fields}
    return _name(value if hasattr(value, "__qualname__") else type(value))


def fingerprint(tree: Any) -> str:
    """SHA-256 over the arrays of a tree, in order."""
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        array = np.ascontiguousarray(np.asarray(leaf))
        digest.update(f"{array.shape}{array.dtype}".encode() + array.tobytes())
    return digest.hexdigest()


def describe_key(key: Any) -> dict[str, Any]:
    """The implementation and the words of a key; `key_from` gives it back."""
    return {"impl": str(jax.random.key_impl(key)), "words": np.asarray(jax.random.key_data(key)).tolist()}


def key_from(description: dict[str, Any]) -> Any:
    """The key that `describe_key` described."""
    words = jnp.asarray(np.asarray(description["words"], np.uint32))
    return jax.random.wrap_key_data(words, impl=description["impl"])


def versions() -> dict[str, str]:
    """Versions of Python, of this package and of those that decide its numbers."""
    return {
        "python": platform.python_version(),
        "bayes_mdp": bayes_mdp.__version__,
        **{name: version(name) for name in PACKAGES},
    }


def first_difference(there: Any, here: Any, path: str = "") -> str | None:
    """A sentence part about the first entry in which two JSON values differ, or None."""
    if isinstance(there, dict) and isinstance(here, dict):
        for name in sorted({*there, *here}):
            found = first_difference(there.get(name), here.get(name), f"{path}.{name}" if path else name)
            if found is not None:
                return found
        return None
    return None if there == here else f"{path} is {there!r} there and {here!r} here"


def _array(array: np.ndarray) -> Any:
    if array.size <= _SHORT:
        return array.tolist()
    return {"shape": list(array.shape), "dtype": str(array.dtype), "sha256": fingerprint(array)}


def _name(thing: Any) -> str:
    return f"{getattr(thing, '__module__', '')}.{thing.__qualname__}"


def describe_case(case: Case, *, environment: Any, space: StateActionSpace, belief: Any) -> dict[str, Any]:
    """The attributes of a result: configuration, versions, key.

    Args:
        case: what was asked for.
        environment: JSON values.
        space: what the agent is told.
        belief: before any data.
    """
    configuration = {
        "agent": describe(case.agent),
        "replan": describe(case.rule),
        "environment": environment,
        "objective": describe(case.objective),
        "prior": describe(case.prior),
        "belief": fingerprint(belief),
        "space": describe(space),
        "num_steps": case.num_steps,
        "num_episodes": case.num_episodes,
        "num_seeds": case.num_seeds,
        "num_checkpoints": case.options.num_checkpoints,
        "regret": case.regret,
        "worlds": describe(case.options.worlds),
        "method": describe(case.options.method),
        "num_particles": case.options.num_particles,
        "refit_every": case.options.refit_every,
        "target": describe(case.options.target),
    }
    return {"configuration": configuration, "versions": versions(), "key": describe_key(case.key)}
