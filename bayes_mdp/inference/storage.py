# pyright: strict, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeStubs=false
"""Save a posterior to one file, and load it: whole and unaltered, or not at all.

Format (version 3, little-endian): magic `BAYESMDP`, length of the header (8 bytes), header (JSON: format version,
library versions, the record tree, a table of arrays), the arrays one after the other, SHA-256 of all that (32 bytes).
No code is stored and none is run: what a posterior holds of a program (the prior, a kernel, a guide) is left out. A
posterior that was loaded updates as before; it cannot be refitted, and its prior cannot be drawn from; one in contexts
has those of the log alone (`StoredContexts`): rows of a new context take the program, so infer again for these.

The checksum says that a file is as it was written, not by whom: its numbers are believed.
"""

import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, TypeAlias, get_args

import equinox as eqx
import jax
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float, Int, PyTree
from numpyro.distributions import constraints, transforms

from bayes_mdp.inference.collapsed.collapsed_posterior import CollapsedPosterior
from bayes_mdp.inference.collapsed.hierarchy import Hierarchy
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior, LayeredPosterior
from bayes_mdp.inference.conjugate.dirichlet_rows import DirichletRows
from bayes_mdp.inference.conjugate.prior_rows import RepeatedRows
from bayes_mdp.inference.conjugate.regression import RegressionPrior, RegressionRewards
from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.inference.conjugate.rewards import KnownRewards
from bayes_mdp.inference.conjugate.site_table import SiteTable
from bayes_mdp.inference.context_posterior import ContextPosterior, Tables
from bayes_mdp.inference.draws.chains import Chains
from bayes_mdp.inference.draws.given_draws import GivenDraws
from bayes_mdp.inference.draws.methods import NUTS, SVI, Gibbs, Laplace
from bayes_mdp.inference.draws.weighted_samples import CountedSamples, PosteriorSamples
from bayes_mdp.inference.factorised.factorised_posterior import FactorisedPosterior
from bayes_mdp.inference.factorised.sampled_rewards import SampledRewards
from bayes_mdp.inference.families.family import FAMILIES
from bayes_mdp.inference.integrals.importance import Integration
from bayes_mdp.inference.integrals.mode_draws import ModeDraws
from bayes_mdp.inference.mixtures import Mixture
from bayes_mdp.inference.pooled_posterior import PooledPosterior
from bayes_mdp.inference.sampled.conditioned_program import Rows
from bayes_mdp.inference.sampled.recipe import Recipe
from bayes_mdp.inference.sampled.sampled_posterior import SampledPosterior
from bayes_mdp.mdp import MDP, Counts, StateActionSpace
from bayes_mdp.mdp.by_label import ProductLabel
from bayes_mdp.mdp.contexts import Column, Contexts, ContextSpace
from bayes_mdp.mdp.design import Design, Formula, Layout
from bayes_mdp.models.mdp_spec import RewardTable
from bayes_mdp.models.regressions import RowLaw
from bayes_mdp.models.reward_laws import law_of_parts, named_parts
from bayes_mdp.models.sufficient_statistics import Statistics
from bayes_mdp.utils.files import read_bytes, write_beside
from bayes_mdp.utils.messages import version_of
from bayes_mdp.utils.typing import Json
from bayes_mdp.utils.validation import check_type


@dataclass(frozen=True, eq=False)
class StoredColumn:
    """A column of covariates (see `bayes_mdp.mdp.contexts.Column`)."""

    name: str
    values: Float[np.ndarray, " C"] | Int[np.ndarray, " C"]
    levels: tuple[Hashable, ...] | None
    kind: str


@dataclass(frozen=True, eq=False)
class StoredLaw:
    """What coefficients are of: the record of a law without its columns (see `RowLaw`, `Design`)."""

    kind: str
    name: str
    columns: tuple[str, ...]
    mean: Float[np.ndarray, " p"]
    spread: Float[np.ndarray, " p"]
    standardised: bool
    outcomes: tuple[str, ...]
    fixed: str
    by: tuple[str, ...]
    of_rows: bool


@dataclass(frozen=True, eq=False)
class StoredContexts:
    """A `ContextPosterior` without its program.

    Args:
        space: of the MDP in one context.
        columns: the covariates of its contexts.
        transitions, subjects: Float64[C], of the log in each context.
        process: what moves the covariates that vary.
        method: how it was inferred.
        num_chains: behind the draws.
        counts: Float64[C S A O], of the log.
        rows: Float64[N C S A O]; None: each context is a belief of its own.
        reward: Float64[N C S A].
        outcome_reward: Float64[C S A O], mean reward of every outcome; None: rewards do not depend on it.
        sites: {site: [N ...]}, draws of the latent sites.
        parts: the posterior of each context; None: contexts share their draws.
        laws: what the coefficients are of.
        weights: log evidence by weights and by curvature, Pareto k, what the draws are worth, their number; None: the
            draws were not weighted.
        doubts: problems to know of.
        outcomes: name -> posterior of an outcome learnt beside the reward.
        worth_each: how many independent draws each draw is worth at most.
    """

    space: StateActionSpace
    columns: tuple[StoredColumn, ...]
    transitions: Float[np.ndarray, " C"]
    subjects: Float[np.ndarray, " C"] | None
    process: str | None
    method: str
    num_chains: int
    counts: Float[np.ndarray, "C S A O"] | None
    rows: Float[np.ndarray, "N C S A O"] | None
    reward: Float[np.ndarray, "N C S A"] | None
    outcome_reward: Float[np.ndarray, "C S A O"] | None
    sites: dict[str, Any] | None
    parts: tuple[Any, ...] | None
    laws: tuple[StoredLaw, ...]
    weights: tuple[float, ...] | None
    doubts: tuple[str, ...]
    outcomes: "dict[str, StoredContexts] | None" = None
    worth_each: float = 1.0


def to_store(posterior: ContextPosterior) -> StoredContexts:
    """What a file keeps of a posterior in contexts.

    Args:
        posterior: as `infer` returns it; beliefs by context are worked out for every context.
    """
    contexts, number = posterior.contexts, len(posterior.contexts)
    # A belief for each context, or draws that they have in common.
    shared = posterior.parts is None
    # Beliefs by context are stored one by one, common draws as tables over all contexts.
    rows, reward = posterior.tables if shared else (None, None)
    laplace = posterior.laplace
    return StoredContexts(
        posterior.space.alone,
        tuple(StoredColumn(*column) for column in contexts.columns),
        # How often each context was seen, which tables and subgroups show.
        contexts.transitions,
        contexts.subjects,
        contexts.process,
        posterior.method,
        posterior.num_chains,
        posterior.counts,
        rows,
        reward,
        # Mean rewards by outcome, where they depend on it.
        posterior.outcome_reward(np.arange(number)),
        None if posterior.sites is None else {name: np.asarray(x) for name, x in posterior.sites.items()},
        None if shared else tuple(posterior.at(c) for c in range(number)),
        tuple(_row_law_record(law) for law in posterior.laws),
        # Five numbers of the approximation about the mode; its draws are in the tables.
        None if laplace is None else tuple(float(x) for x in laplace[3:]),
        posterior.doubts,
        # Outcomes beside the reward are posteriors of their own.
        {name: to_store(outcome) for name, outcome in posterior.paired.items()} or None,
        float(posterior.worth_each),
    )


def from_store(stored: StoredContexts) -> ContextPosterior:
    """The posterior that a file keeps.

    Args:
        stored: what was kept.

    Raises:
        ValueError: its parts do not fit each other.
    """
    contexts = Contexts(
        [Column(c.name, c.values, c.levels, c.kind) for c in stored.columns],
        stored.transitions,
        stored.subjects,
        stored.process,
    )
    space = ContextSpace.over(stored.space, contexts)
    # Every array is held against the sizes of the space before it is believed.
    full = (len(contexts), *space.shape, space.n_outcomes)
    for column in contexts.columns:
        _check_stored_shape(f"covariate {column.name!r}", np.shape(column.values), full[:1])
    parts = stored.parts
    if parts is not None:
        _check_stored_shape("parts", (len(parts),), full[:1])
    elif stored.rows is None or stored.reward is None:
        raise ValueError("it has neither draws nor a posterior of each context")
    else:
        # Draws first, then contexts.
        _check_stored_shape("rows", stored.rows.shape[1:], full)
        _check_stored_shape("reward", stored.reward.shape, (len(stored.rows), *full[:-1]))
    # The program is not there: new contexts are refused when they are asked for.
    return ContextPosterior(
        space,
        None,
        stored.method,
        stored.counts,
        stored.sites,
        None if parts is None else _ByPlace(contexts, parts),
        None if stored.rows is None or stored.reward is None else Tables(stored.rows, stored.reward),
        laws=tuple(map(_row_law, stored.laws)),
        laplace=None if stored.weights is None else _mode_draws(*stored.weights),
        doubts=tuple(stored.doubts),
        num_chains=stored.num_chains,
        mean_by_outcome=stored.outcome_reward,
        outcomes={name: from_store(outcome) for name, outcome in (stored.outcomes or {}).items()},
        worth_each=stored.worth_each,
    )


@dataclass(eq=False)
class _ByPlace:
    """The posteriors of contexts that are beliefs of their own, as they were kept."""

    contexts: Contexts
    parts: tuple[Any, ...]

    def __call__(self, one: Contexts) -> Any:
        place = self.contexts.place(one)
        if place is None:
            raise ValueError(
                f"the log does not have the context {one.label(0)}, expected one that it has: a posterior that was "
                "read from a file has no program for others"
            )
        return self.parts[place]


def _mode_draws(evidence: float, by_curvature: float, pareto_k: float, effective: float, proposals: float) -> ModeDraws:
    # Its points are not needed again: what was found out about them is.
    none = np.zeros((0, 0))
    return ModeDraws(none, np.zeros(0), none, evidence, by_curvature, pareto_k, effective, int(proposals))


def _row_law_record(law: RowLaw) -> StoredLaw:
    design = law.design
    about = (law.kind, law.name, tuple(design.names), design.mean, design.spread)
    return StoredLaw(*about, law.standardised, law.outcomes, law.fixed, law.by, law.possible is not None)


def _row_law(stored: StoredLaw) -> RowLaw:
    # Columns are known by name and scale alone: enough for coefficients.
    none = np.zeros((0, 0, 0, len(stored.columns)))
    # A formula without terms: designs of new contexts cannot be built.
    design = Design(Formula(False, (), ()), {}, Layout((), ()), 0, stored.columns, stored.mean, stored.spread)
    possible = np.zeros((0, 0, 0), bool) if stored.of_rows else None
    about = (stored.kind, stored.name, none, design, stored.standardised, stored.outcomes, stored.fixed, stored.by)
    return RowLaw(*about, None, (), possible, None, 0)


def _check_stored_shape(what: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if tuple(shape) != tuple(expected):
        raise ValueError(f"its {what} have shape {tuple(shape)}, expected {tuple(expected)}")


FORMAT_VERSION = 3
_MAGIC = b"BAYESMDP"
_LENGTH = 8
_DIGEST = hashlib.sha256().digest_size
_INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_DTYPES = ("bool", *_INTEGERS, "float16", "float32", "float64")
_LIBRARIES = ("bayes-mdp", "jax", "numpy")
_RECORDS = {
    record.__name__: record
    for record in (
        Chains,
        CollapsedPosterior,
        ConjugatePosterior,
        CountedSamples,
        Counts,
        DirichletRows,
        FactorisedPosterior,
        Gibbs,
        GivenDraws,
        Integration,
        KnownRewards,
        Laplace,
        LayeredPosterior,
        MDP,
        Mixture,
        NUTS,
        PooledPosterior,
        PosteriorSamples,
        Recipe,
        RepeatedRows,
        RegressionPrior,
        RegressionRewards,
        RewardCells,
        SiteTable,
        RewardTable,
        Rows,
        SVI,
        SampledPosterior,
        SampledRewards,
        StateActionSpace,
        Statistics,
        StoredColumn,
        StoredLaw,
        StoredContexts,
    )
}


def _records() -> dict[str, type[Any]]:
    """What a posterior is made of, by name; families that are registered too."""
    return _RECORDS | {family.__name__: family for family in FAMILIES}


_LATER = {**dict.fromkeys(("sources", "base_shares", "observed", "outcomes")), "worth_each": 1.0}
"""Fields that came later, and what they were before."""
_LAW_MODULES = {module.__name__: module for module in (dist, constraints, transforms)}
_LAW_KINDS = (dist.Distribution, constraints.Constraint, transforms.Transform)
Law: TypeAlias = dist.Distribution | constraints.Constraint[Any] | transforms.Transform[Any]
Storable: TypeAlias = (
    ConjugatePosterior
    | PosteriorSamples
    | Mixture
    | CollapsedPosterior
    | PooledPosterior
    | SampledPosterior
    | ContextPosterior
)


def save(posterior: Storable, path: str | os.PathLike[str]) -> None:
    """Write `posterior` to `path`; the file appears whole (it is written beside and renamed).

    Args:
        posterior: as `infer` returns it.
        path: of the file.

    Raises:
        TypeError, OSError: as `bayes_mdp.save`.
    """
    # A class outside this list may hold what no file can: refused, not half saved.
    check_type(
        "result",
        posterior,
        get_args(Storable),
        "a posterior as infer returns it, a Dataset that run or another function returned, or the draws of to_arviz",
    )
    # The tree is JSON with arrays by number; the arrays follow as raw bytes; a checksum over all of it ends the file.
    arrays: list[np.ndarray] = []
    kept = to_store(posterior) if isinstance(posterior, ContextPosterior) else posterior
    # Arrays are collected in the order in which the tree meets them.
    tree = _encode(kept, "posterior", arrays)
    header = {
        "format": FORMAT_VERSION,
        "libraries": {name: version_of(name) for name in _LIBRARIES},
        # Types and shapes stand in the header: the bytes are read without a mark.
        "arrays": [[array.dtype.name, list(array.shape)] for array in arrays],
        "tree": tree,
    }
    text = json.dumps(header).encode()
    # Length of the header in front, so that it can be read without the rest.
    body = b"".join([_MAGIC, len(text).to_bytes(_LENGTH, "little"), text, *(_bytes(array) for array in arrays)])
    content = body + hashlib.sha256(body).digest()
    # Written under another name and renamed: a file that is there is whole.
    write_beside(path, lambda beside: beside.write_bytes(content))


def load(path: str | os.PathLike[str]) -> Storable:
    """Read what `save` wrote, bit for bit; the arrays are numpy arrays.

    Nothing is allocated before the sizes that the header states are held against the arrays that are there.

    Args:
        path: of the file.

    Returns:
        The posterior, as it was saved.

    Raises:
        ValueError: the file is cut, altered, not of this format, of a version that is not known here, or its parts do
            not make a posterior.
        OSError: the file cannot be read.

    Example:
        >>> prior, space = bm.models.dirichlet_normal(), bm.StateActionSpace(2, 2)
        >>> bm.save(bm.infer(jax.random.key(0), prior, space=space), "posterior.bmdp")
        >>> bm.load("posterior.bmdp").space.shape
        (2, 2)
    """
    # Checksum before content: nothing of an altered file is interpreted.
    content = read_bytes(path, "a posterior that bayes_mdp.save wrote")
    # The last bytes are the checksum of all before.
    body, digest = content[:-_DIGEST], content[-_DIGEST:]
    if not body.startswith(_MAGIC):
        # Magic first: any other file gets its own message.
        raise ValueError(f"{path} is no saved posterior: it does not begin with {_MAGIC.decode()}")
    if hashlib.sha256(body).digest() != digest:
        raise ValueError(f"{path} is cut or altered: its checksum does not fit, expected the file as it was saved")
    header, rest = _header(path, body)
    try:
        posterior = _decode(header["tree"], _read_arrays(header["arrays"], rest))
        if isinstance(posterior, StoredContexts):
            return from_store(posterior)  # which checks that its parts fit
        _check_parts(posterior)
    except Exception as error:  # laws of NumPyro are built from the content of the file, and raise errors of any kind
        wrote, version_here = _writer(header), version_of("bayes-mdp")
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise ValueError(
            f"{path} holds no posterior that bayes-mdp {version_here} can read (bayes-mdp {wrote} wrote it): {why}"
        ) from error
    return posterior


def is_saved(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins as `save` begins one; `load` says whether it is whole.

    Args:
        path: of a file that is there.
    """
    with open(path, "rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def _header(path: str | os.PathLike[str], body: bytes) -> tuple[dict[str, Json], bytes]:
    """The header, and the bytes after it."""
    start = len(_MAGIC) + _LENGTH
    # The length of the header stands in front of it: no search for its end.
    end = start + int.from_bytes(body[len(_MAGIC) : start], "little")
    try:
        header = json.loads(body[start:end])
    except (ValueError, RecursionError):
        header = None
    if end > len(body) or not isinstance(header, dict):
        raise ValueError(f"{path} has no header that can be read, expected the file as save wrote it")
    if header.get("format") != FORMAT_VERSION:
        raise ValueError(f"{path} has format version {header.get('format')!r:.40}, expected {FORMAT_VERSION}")
    return header, body[end:]


def _writer(header: dict[str, Json]) -> str:
    libraries = header.get("libraries")
    # What a file says of its writer is shown, not believed.
    wrote = libraries.get("bayes-mdp") if isinstance(libraries, dict) else None
    return wrote[:40] if isinstance(wrote, str) else "of an unknown version"


def _check_parts(posterior: object) -> None:
    """Arrays and sizes of a posterior fit each other; only shapes are computed."""
    if not isinstance(posterior, Storable) or isinstance(posterior, ContextPosterior):
        raise ValueError(f"its root is a {type(posterior).__name__}")
    # Shapes alone: eval_shape runs the methods on outlines.
    # The masks of a mixture's components have an axis of components: the space of the whole is checked.
    if not isinstance(posterior, PosteriorSamples):
        posterior.space.__check_init__()
    # Abstract evaluation: a posterior whose parts do not fit fails here, and nothing is computed. (As an argument: of
    # numbers that are known a mean that does not exist would be refused.)
    outlines = {"mean rewards": jax.eval_shape(lambda parts: parts.mean_mdp().reward, posterior)}
    if not isinstance(posterior, PosteriorSamples) or isinstance(posterior, CountedSamples):
        outlines["visits"] = jax.eval_shape(lambda parts: parts.visit_counts(), posterior)
    shape = outlines["mean rewards"].shape if isinstance(posterior, PosteriorSamples) else posterior.space.shape
    for name, outline in outlines.items():
        if outline.shape != shape:
            raise ValueError(f"its {name} have shape {outline.shape}, expected {shape}")


def _encode(value: object, name: str, arrays: list[np.ndarray]) -> Json:
    """`value` as JSON; arrays are appended to `arrays` and referred to by number."""
    # The order matters: a NumPy scalar is a number, and a label a tuple of its own kind.
    if isinstance(value, np.generic) and value.ndim == 0:
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, ProductLabel):
        return {"label": _encode(tuple(value), name, arrays), "names": list(value.names)}
    if isinstance(value, tuple | list):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_encode(item, f"{name}[{i}]", arrays) for i, item in enumerate(value)]}
    if isinstance(value, dict):
        return {"dict": [[key, _encode(item, f"{name}[{key!r}]", arrays)] for key, item in value.items()]}
    record = _records().get(type(value).__name__)
    # The exact class: a subclass of the user's would not come back as itself.
    if record is not None and type(value) is record:
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(record)}
        fields = {key: _encode(item, f"{name}.{key}", arrays) for key, item in fields.items()}
        return {"record": type(value).__name__, "fields": fields}
    if isinstance(value, np.ndarray | jax.Array):
        if str(value.dtype) not in _DTYPES:
            raise TypeError(f"{name} is an array of {value.dtype}, expected one of {', '.join(_DTYPES)}")
        array = np.asarray(value)
        # What the components of a mixture share is a view that repeats it: it is kept once.
        repeats = array.ndim > 0 and array.strides[0] == 0 and len(array) > 1
        arrays.append(np.asarray(array[0]) if repeats else array)
        return {"array": len(arrays) - 1} | ({"repeated": len(array)} if repeats else {})
    if isinstance(value, type):
        return {"law_type": _law_name(value, name)}
    if isinstance(value, dist.Distribution):
        parts = _encode(named_parts(value), name, arrays)
        return {"named_law": _law_name(type(value), name), "parts": parts}
    if isinstance(value, _LAW_KINDS):
        # Constraints and transforms are trees: parameters, and what is static about them.
        parameters, static = value.tree_flatten()
        parts = _encode((tuple(parameters), static), name, arrays)
        return {"law": _law_name(type(value), name), "parts": parts}
    # Programs are dropped: a file holds no code.
    if isinstance(value, Hierarchy) or callable(value):
        return None
    raise TypeError(f"{name} is a {type(value).__name__}, expected a str, int, float, bool, None or a tuple of those")


def _decode(value: Json, arrays: list[np.ndarray]) -> PyTree:
    # Tags mirror those of _encode; a plain value has none.
    if not isinstance(value, dict):
        return value
    if "label" in value:
        return ProductLabel(_decode(value["label"], arrays), value["names"])
    if "tuple" in value:
        return tuple(_decode(item, arrays) for item in value["tuple"])
    if "list" in value:
        return [_decode(item, arrays) for item in value["list"]]
    if "dict" in value:
        return {key: _decode(item, arrays) for key, item in value["dict"]}
    if "array" in value:
        array = arrays[value["array"]]
        return np.broadcast_to(array, (value["repeated"], *array.shape)) if "repeated" in value else array
    if "law_type" in value:
        return _law_type(value["law_type"])
    if "named_law" in value or "law" in value:
        return _decode_law(value, arrays)
    kind = value["record"]
    # Names come from the file: only records of this list can be made.
    if not isinstance(kind, str) or kind not in (records := _records()):
        raise ValueError(f"it holds a record {kind!r:.40}, which is not known here")
    fields = {key: _decode(item, arrays) for key, item in value["fields"].items()}
    expected = {field.name for field in dataclasses.fields(records[kind])}
    # Fields that came later: files of this format were written without them.
    fields = {name: before for name, before in _LATER.items() if name in expected} | fields
    if set(fields) != expected:
        odd = sorted(set(fields) ^ expected)[0]
        raise ValueError(f"it holds a {kind} {'without' if odd in expected else 'with'} {odd[:40]!r}")
    if not issubclass(records[kind], eqx.Module):
        return records[kind](**fields)
    # As equinox does when it unflattens: converters would change the width of an array, and arrays of a mixture's
    # components have an axis in front.
    record = object.__new__(records[kind])
    for key, item in fields.items():
        object.__setattr__(record, key, item)
    return record


def _decode_law(value: dict[str, Any], arrays: list[np.ndarray]) -> Law:
    """A distribution by the names of its parameters; a constraint or a transform by their order."""
    named = "named_law" in value
    kind, parts = _law_type(value["named_law" if named else "law"]), value["parts"]
    if named and issubclass(kind, dist.Distribution):
        return law_of_parts(kind, *_decode(parts, arrays))
    if named or issubclass(kind, dist.Distribution):
        # Without names parameters stand in the order of the process that wrote them, which no other one knows.
        raise ValueError(
            f"it holds a {kind.__name__} law without the names of its parameters, as versions before 0.3 wrote it: "
            "which is which cannot be told, expected a posterior that is inferred and saved anew"
        )
    parameters, static = _decode(parts, arrays)
    return kind.tree_unflatten(static, parameters)


def _law_name(kind: type, name: str) -> list[str]:
    """Where NumPyro keeps this distribution, constraint or transform."""
    # Only what NumPyro itself exports: a name in a file cannot reach any other class.
    for module, home in _LAW_MODULES.items():
        if getattr(home, kind.__name__, None) is kind and issubclass(kind, _LAW_KINDS):
            return [module, kind.__name__]
    raise TypeError(f"{name} is or holds the class {kind.__name__}, expected NumPyro's own distributions")


def _law_type(where: list[str]) -> type[Law]:
    module, name = where
    kind = getattr(_LAW_MODULES[module], name)
    if not (isinstance(kind, type) and issubclass(kind, _LAW_KINDS)):
        raise ValueError(f"{name} is no distribution, expected what save wrote")
    return kind


def _bytes(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()


def _read_arrays(table: list[list[Json]], content: bytes) -> list[np.ndarray]:
    # Sizes from the header are compared with the bytes that are there before anything is allocated.
    sizes = []
    # Whole non-negative sizes and known types: nothing else enters a product.
    for i, (name, shape) in enumerate(table):
        if name not in _DTYPES or not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError(f"its array {i} is of type {name!r:.40} and shape {shape!r:.40}")
        sizes.append(math.prod(shape) * np.dtype(name).itemsize)
    if sum(sizes) != len(content):
        raise ValueError(f"its header states arrays of {sum(sizes)} bytes, where {len(content)} are there")
    arrays, start = [], 0
    for (name, shape), size in zip(table, sizes, strict=True):
        dtype = np.dtype(name).newbyteorder("<")
        # Little-endian on every machine, converted to the machine's own order.
        flat = np.frombuffer(content[start : start + size], dtype)
        arrays.append(flat.reshape(shape).astype(name))
        start += size
    return arrays
