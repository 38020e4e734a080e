"""A run in JSON: its configuration, versions and key; and what a report of a problem should say about the machine."""

import dataclasses
import hashlib
import os
import platform
import sys
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

import bayes_mdp
from bayes_mdp.experiments.run_config import BeliefTree, RunConfig
from bayes_mdp.mdp import Picture, StateActionSpace
from bayes_mdp.models.reward_laws import without_laws
from bayes_mdp.utils.identity import UnidentifiedError, added_defaults, identity, package_name
from bayes_mdp.utils.messages import version_of
from bayes_mdp.utils.typing import Json

PACKAGES = ("jax", "jaxlib", "equinox", "numpyro", "numpy", "xarray")
UNIDENTIFIED = "unidentified"
_SHORT = 16


def describe(value: object, name: str = "value") -> Json:
    """JSON values for a record, array, function, number or container; long arrays by shape, dtype and SHA-256.

    Functions and objects of the user are described by name and by `identity`, their code and all that it reaches;
    where there is no identity, "unidentified" gives the reason. `name` is that of the value, for this sentence.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, Picture):
        return None  # no number depends on it
    if isinstance(value, (float, np.generic)):
        return value.item() if isinstance(value, np.generic) else value
    if isinstance(value, dict):
        return {str(key): describe(x, f"{name}[{key!r}]") for key, x in value.items()} | _own(value, name)
    if isinstance(value, (tuple, list)):
        items = [describe(x, f"{name}[{i}]") for i, x in enumerate(value)]
        identity_of = _own(value, name)
        return {"type": _name(type(value)), "items": items, **identity_of} if identity_of else items
    if isinstance(value, (np.ndarray, jax.Array)):
        return _array(np.asarray(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        added = added_defaults(value)
        names = [field.name for field in dataclasses.fields(value) if field.name not in added]
        fields = {field: describe(getattr(value, field), f"{name}.{field}") for field in names}
        return {"type": _name(type(value)), **fields, **_own(value, name)}
    if package_name(value) is not None:
        return _name(value)
    return describe_by_name(value, name)


def describe_by_name(value: object, name: str, *, without: tuple[type, ...] = ()) -> dict[str, str]:
    """A function or an object by name and identity (see `identity` for the arguments)."""
    named = value if hasattr(value, "__qualname__") else type(value)
    return {"name": _name(named), **_identify(value, name, without)}


def _own(value: object, name: str) -> dict[str, str]:
    """The identity of the class of a record or container, where it is not of a package."""
    return {} if package_name(type(value)) is not None else _identify(value, name)


def _identify(value: object, name: str, without: tuple[type, ...] = ()) -> dict[str, str]:
    try:
        return {"sha256": identity(value, name, without=without)}
    except UnidentifiedError as error:
        return {UNIDENTIFIED: str(error)}


def why_not_identifying(description: Json) -> str | None:
    """Why a description does not identify its object; None: it does."""
    if isinstance(description, dict) and isinstance(description.get(UNIDENTIFIED), str):
        return description[UNIDENTIFIED]
    inner = description.values() if isinstance(description, dict) else description
    parts = inner if isinstance(description, (dict, list)) else ()
    return next((why for why in map(why_not_identifying, parts) if why is not None), None)


def fingerprint(tree: PyTree) -> str:
    """SHA-256 over the arrays of a tree, in order, those of laws by their names: the same in every process."""
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(without_laws(tree)):
        array = np.ascontiguousarray(np.asarray(leaf))
        digest.update(f"{array.shape}{array.dtype}".encode() + array.tobytes())
    return digest.hexdigest()


def describe_key(key: PRNGKeyArray) -> dict[str, Json]:
    """The implementation and the words of a key; `key_from` gives it back."""
    return {"impl": str(jax.random.key_impl(key)), "words": np.asarray(jax.random.key_data(key)).tolist()}


def key_from(description: Mapping[str, Json]) -> PRNGKeyArray:
    """The key that `describe_key` described."""
    words = jnp.asarray(np.asarray(description["words"], np.uint32))
    return jax.random.wrap_key_data(words, impl=description["impl"])


def versions() -> dict[str, str]:
    """Versions of Python, of this package and of those that decide its numbers."""
    return {
        "python": platform.python_version(),
        "bayes_mdp": bayes_mdp.__version__,
        **{name: version_of(name) for name in PACKAGES},
    }


def machine() -> str:
    """System, kind of processor and number of cores, for what is stored."""
    return f"{platform.system()}, {platform.machine()}, {os.cpu_count()} cores"


def first_difference(there: Json, here: Json, path: str = "") -> str | None:
    """A sentence part about the first entry in which two JSON values differ, or None."""
    if isinstance(there, dict) and isinstance(here, dict):
        for name in sorted({*there, *here}):
            difference = first_difference(there.get(name), here.get(name), f"{path}.{name}" if path else name)
            if difference is not None:
                return difference
        return None
    if there == here:
        return None
    if path.endswith(".sha256") and there is not None and here is not None:
        return f"{path.removesuffix('.sha256')} has other contents (values or code) there than here"
    return f"{path} is {there!r} there and {here!r} here"


def _array(array: np.ndarray) -> Json:
    if array.size <= _SHORT:
        return array.tolist()
    return {"shape": list(array.shape), "dtype": str(array.dtype), "sha256": fingerprint(array)}


def _name(thing: object) -> str:
    """Module and qualified name of a class or function."""
    return f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__')}"  # noqa: B009 - not every object has one


def describe_case(
    case: RunConfig,
    *,
    environment: Json,
    space: StateActionSpace,
    belief: BeliefTree,
    more: Mapping[str, Json] | None = None,
) -> dict[str, Json]:
    """The attributes of a result: configuration, versions, key.

    Args:
        case: the arguments of the run.
        environment: JSON values.
        space: the sizes and masks that the agent is given.
        belief: before any data.
        more: further entries of the configuration.
    """
    configuration: dict[str, Json] = {
        "agent": describe(case.agent, "agent"),
        "replan": describe(case.rule, "replan"),
        "environment": environment,
        "objective": describe(case.objective),
        "prior": describe(case.prior, "prior"),
        "belief": fingerprint(belief),
        "space": describe(space),
        "num_steps": case.num_steps,
        "num_episodes": case.num_episodes,
        "num_seeds": case.num_seeds,
        "num_checkpoints": case.options.num_checkpoints,
        "regret": case.regret,
        "env_prior": describe(case.options.env_prior, "env_prior"),
        "method": describe(case.options.method, "method"),
        "num_particles": case.options.num_particles,
        "refit_every": case.options.refit_every,
        "target": describe(case.options.target),
        **(more or {}),
    }
    return {"configuration": configuration, "versions": versions(), "key": describe_key(case.key)}


REQUIRED = ("numpyro", "jax", "jaxlib", "numpy", "scipy", "cvxpy", "arviz", "xarray", "equinox", "gymnasium")
OPTIONAL = ("numba", "optax", "distributed", "icu-sepsis", "ale-py")


def show_versions() -> None:
    """Print versions of Python, of this package and of those it uses, the devices, and the width of floats.

    Paste it into a report of a problem. Nothing is compiled; JAX's devices are started if they were not.

    Example:
        >>> bm.experiments.show_versions()
        bayes_mdp     ...
    """
    lines = {
        "bayes_mdp": bayes_mdp.__version__,
        "python": f"{platform.python_version()} ({sys.platform}, {platform.machine()})",
        **{name: version_of(name) for name in (*REQUIRED, *OPTIONAL)},
        "devices": ", ".join(str(device) for device in jax.devices()),
        "cores": str(os.cpu_count()),
        "float64": "on"
        if jax.config.read("jax_enable_x64")
        else "off (JAX's default; posteriors on the host are float64)",
    }
    width = max(map(len, lines))
    print("\n".join(f"{name:<{width}}  {value}" for name, value in lines.items()))
