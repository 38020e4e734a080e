"""Save a posterior to one file, and load it: whole and unaltered, or not at all.

Format (version 1, little-endian): magic `BAYESMDP`, length of the header (8 bytes), header (JSON: format version,
library versions, the record tree, a table of arrays), the arrays one after the other, SHA-256 of all that (32 bytes).
No code is stored and none is run: what a posterior holds of a program (the prior, a kernel, a guide) is left out. A
posterior that was loaded updates as before; it cannot be refitted, and its prior cannot be drawn from.
"""

import hashlib
import json
import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints, transforms

from bayes_mdp.inference.chains import Chains
from bayes_mdp.inference.collapsed import CollapsedPosterior
from bayes_mdp.inference.families import BetaBelief, GammaBelief, NormalBelief, NormalGammaBelief
from bayes_mdp.inference.hierarchy import Hierarchy
from bayes_mdp.inference.layered import LayeredPosterior
from bayes_mdp.inference.methods import NUTS, SVI, Laplace
from bayes_mdp.inference.mixtures import Mixture
from bayes_mdp.inference.posterior import ConjugatePosterior
from bayes_mdp.inference.rewards import KnownRewards, RewardCells
from bayes_mdp.inference.rows import DirichletRows
from bayes_mdp.inference.sampled.posterior import SampledPosterior
from bayes_mdp.inference.sampled.recipe import Recipe
from bayes_mdp.inference.sampled.seen import Rows
from bayes_mdp.inference.weighted import CountedDraws, Draws
from bayes_mdp.mdp import MDP, Counts, StateActionSpace
from bayes_mdp.mdp.files import write_beside
from bayes_mdp.models.statistics import Statistics
from bayes_mdp.models.world import RewardTable

FORMAT_VERSION = 1
_MAGIC = b"BAYESMDP"
_LENGTH = 8
_DIGEST = hashlib.sha256().digest_size
_LIBRARIES = ("bayes-mdp", "jax", "numpy")
_RECORDS = {
    record.__name__: record
    for record in (
        BetaBelief,
        Chains,
        CollapsedPosterior,
        ConjugatePosterior,
        CountedDraws,
        Counts,
        DirichletRows,
        Draws,
        GammaBelief,
        KnownRewards,
        Laplace,
        LayeredPosterior,
        MDP,
        Mixture,
        NUTS,
        NormalBelief,
        NormalGammaBelief,
        Recipe,
        RewardCells,
        RewardTable,
        Rows,
        SVI,
        SampledPosterior,
        StateActionSpace,
        Statistics,
    )
}
_LAW_MODULES = {module.__name__: module for module in (dist, constraints, transforms)}
_LAW_KINDS = (dist.Distribution, constraints.Constraint, transforms.Transform)
Storable = ConjugatePosterior | Draws | Mixture | CollapsedPosterior | SampledPosterior


def save(posterior: Storable, path: str | os.PathLike[str]) -> None:
    """Write `posterior` to `path`; the file appears whole (it is written beside and renamed).

    Raises:
        TypeError: not a posterior of this package, a state or action name that is no str, int, float, bool, None or
            tuple of those, a reward law that is not NumPyro's own.
        OSError: the file cannot be written.
    """
    if not isinstance(posterior, Storable):
        raise TypeError(
            f"posterior is a {type(posterior).__name__}, expected a posterior as infer returns it, Draws or a Mixture"
        )
    arrays: list[np.ndarray] = []
    tree = _encode(posterior, "posterior", arrays)
    header = {
        "format": FORMAT_VERSION,
        "libraries": {name: _version(name) for name in _LIBRARIES},
        "arrays": [[array.dtype.name, list(array.shape)] for array in arrays],
        "tree": tree,
    }
    text = json.dumps(header).encode()
    body = b"".join([_MAGIC, len(text).to_bytes(_LENGTH, "little"), text, *(_bytes(array) for array in arrays)])
    content = body + hashlib.sha256(body).digest()
    write_beside(path, lambda beside: beside.write_bytes(content))


def load(path: str | os.PathLike[str]) -> Storable:
    """Read what `save` wrote, bit for bit; the arrays are numpy arrays.

    Raises:
        ValueError: the file is cut, altered, not of this format, or of a version that is not known here.
        OSError: the file cannot be read.
    """
    content = Path(path).read_bytes()
    body, digest = content[:-_DIGEST], content[-_DIGEST:]
    if not body.startswith(_MAGIC):
        raise ValueError(f"{path} is no saved posterior: it does not begin with {_MAGIC.decode()}")
    if hashlib.sha256(body).digest() != digest:
        raise ValueError(f"{path} is cut or altered: its checksum does not fit, expected the file as it was saved")
    start = len(_MAGIC) + _LENGTH
    end = start + int.from_bytes(body[len(_MAGIC) : start], "little")
    header = json.loads(body[start:end])
    if header["format"] != FORMAT_VERSION:
        raise ValueError(f"{path} has format version {header['format']}, expected {FORMAT_VERSION}")
    return _decode(header["tree"], _read_arrays(header["arrays"], body[end:]))


def _encode(value: Any, name: str, arrays: list[np.ndarray]) -> Any:
    """`value` as JSON; arrays are appended to `arrays` and referred to by number."""
    if isinstance(value, np.generic) and value.ndim == 0:
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, tuple | list):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_encode(item, f"{name}[{i}]", arrays) for i, item in enumerate(value)]}
    if isinstance(value, dict):
        return {"dict": [[key, _encode(item, f"{name}[{key!r}]", arrays)] for key, item in value.items()]}
    if type(value).__name__ in _RECORDS and type(value) is _RECORDS[type(value).__name__]:
        fields = {key: _encode(item, f"{name}.{key}", arrays) for key, item in vars(value).items()}
        return {"record": type(value).__name__, "fields": fields}
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        arrays.append(np.asarray(value))
        return {"array": len(arrays) - 1}
    if isinstance(value, type):
        return {"law_type": _law_name(value, name)}
    if isinstance(value, _LAW_KINDS):
        parameters, static = value.tree_flatten()
        parts = _encode((tuple(parameters), static), name, arrays)
        return {"law": _law_name(type(value), name), "parts": parts}
    if isinstance(value, Hierarchy) or callable(value):
        return None
    raise TypeError(f"{name} is a {type(value).__name__}, expected a str, int, float, bool, None or a tuple of those")


def _decode(value: Any, arrays: list[np.ndarray]) -> Any:
    if not isinstance(value, dict):
        return value
    if "tuple" in value:
        return tuple(_decode(item, arrays) for item in value["tuple"])
    if "list" in value:
        return [_decode(item, arrays) for item in value["list"]]
    if "dict" in value:
        return {key: _decode(item, arrays) for key, item in value["dict"]}
    if "array" in value:
        return arrays[value["array"]]
    if "law_type" in value:
        return _law_type(value["law_type"])
    if "law" in value:
        parameters, static = _decode(value["parts"], arrays)
        return _law_type(value["law"]).tree_unflatten(static, parameters)
    fields = {key: _decode(item, arrays) for key, item in value["fields"].items()}
    # As equinox does when it unflattens: converters would change the width of an array.
    record = object.__new__(_RECORDS[value["record"]])
    for key, item in fields.items():
        object.__setattr__(record, key, item)
    return record


def _law_name(kind: type, name: str) -> list[str]:
    """Where NumPyro keeps this distribution, constraint or transform."""
    for module, home in _LAW_MODULES.items():
        if getattr(home, kind.__name__, None) is kind and issubclass(kind, _LAW_KINDS):
            return [module, kind.__name__]
    raise TypeError(f"{name} is or holds the class {kind.__name__}, expected NumPyro's own distributions")


def _law_type(where: list[str]) -> Any:
    module, name = where
    kind = getattr(_LAW_MODULES[module], name)
    if not (isinstance(kind, type) and issubclass(kind, _LAW_KINDS)):
        raise ValueError(f"{name} is no distribution, expected what save wrote")
    return kind


def _bytes(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()


def _read_arrays(table: list[Any], content: bytes) -> list[np.ndarray]:
    arrays, start = [], 0
    for name, shape in table:
        dtype = np.dtype(name).newbyteorder("<")
        size = int(np.prod(shape)) * dtype.itemsize
        flat = np.frombuffer(content[start : start + size], dtype)
        arrays.append(flat.reshape(shape).astype(name))
        start += size
    return arrays


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
