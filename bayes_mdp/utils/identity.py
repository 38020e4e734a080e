"""What a value is, functions included: a digest that two of them share only where they compute the same.

A function is its code, its name and all that the code reaches: closed-over values, defaults, the globals that it names,
the functions and classes among them, and so on; an object is its class and its state; an array its content. Where a
value does not show what it does (a generator, an open file, `eval`, a class that says itself how it is stored), it has
no identity.

What comes with an installed package is known by name and version, and its objects by what it stores of them. If a
function uses a name of a package that the person has set anew, that counts; what the package itself makes of it is out
of sight, as are files, clocks, the environment, and the state of the streams of random numbers that all programs share.
"""

import copyreg
import dataclasses
import dis
import functools
import gc
import hashlib
import importlib
import importlib.util
import pickle
import random
import sys
import sysconfig
import types
import weakref
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

UNDESCRIBED_DEFAULT = "undescribed_default"
"""Metadata of a dataclass field that was added later: its default is no part of what identifies a record, so that what
was stored before is the same."""

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented))
_CONTAINERS = (int, float, complex, str, bytes, bytearray, tuple, list, dict, set, frozenset)
_SLOTS = (types.GetSetDescriptorType, types.MemberDescriptorType)
_DESCRIPTORS = (*_SLOTS, types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType)
_WRAPPERS = (property, staticmethod, classmethod, functools.cached_property, functools.partialmethod)
_OF_EVERY_CLASS = (
    "__doc__",
    "__annotations__",
    "__annotate__",
    "__annotate_func__",
    "__annotations_cache__",
    "__firstlineno__",
    "__static_attributes__",
    "__dataclass_fields__",
    "__parameters__",
    "__orig_bases__",
    "__slotnames__",
    "_abc_impl",
)
"""Members of a class that say nothing of what it does, or change when it is used."""
_ANYTHING = frozenset(map(id, (eval, exec, globals, __import__, importlib.import_module, sys.modules)))
"""What reaches objects by words that are put together while a function runs."""
_STREAMS = frozenset((id(random.random.__self__), id(np.random.normal.__self__)))  # type: ignore[attr-defined]
"""The streams that all programs share."""
_OUT_OF_SIGHT = frozenset(("__doc__", "__annotations__", "__globals__", "f_globals"))
"""Attributes that are no part of the identity of a function: code that asks for them has none."""
_BY_WORD = frozenset(("getattr", "vars", "dir", "attrgetter", "methodcaller", "__dict__", "__getattribute__"))
"""Names in code that may use any member of a module."""
_COMPILED = ("PjitFunction", "PmapFunction", "_lru_cache_wrapper", "_ArrayFunctionDispatcher")
_STORING = ("__reduce_ex__", "__reduce__", "__getstate__", "__getnewargs_ex__", "__getnewargs__")
_MISSING = object()


class UnidentifiedError(ValueError):
    """One sentence: which part of a value cannot be identified."""


def identity(value: object, name: str = "value", *, without: tuple[type, ...] = (), packaged: bool = False) -> str:
    """SHA-256 of what `value` is: equal in every process for what is the same, another for what may compute otherwise.

    Args:
        value: a function, an array, a number, an object, a container of them.
        name: of the value, for the sentence.
        without: of objects of these classes the state does not count.
        packaged: refuse code of the person's own, which may look at files or clocks: these are no part of it.

    Raises:
        UnidentifiedError: it holds something that does not show what it does; names the first.
    """
    names: frozenset[str] = frozenset()
    try:
        # Of modules that counts which any code names: once more, until no member brings further names.
        while True:
            walk = _Walk(without, packaged, names)
            walk.feed(value, name)
            if walk.names <= names or not walk.asks_for_names:
                return walk.digest.hexdigest()
            names |= walk.names
    except UnidentifiedError:
        raise
    except RecursionError as error:
        raise UnidentifiedError(f"{name} is nested too deeply to be identified") from error
    except Exception as error:  # what is looked at may answer with an error of its own
        why = " ".join(str(error).split())[:100]
        raise UnidentifiedError(f"{name} holds something that cannot be looked at ({why})") from error


class _Walk:
    """One walk over all that a value reaches, in an order that does not depend on addresses.

    Args:
        without, packaged: as of `identity`.
        known: names in the code that is reached, as far as they are known.
    """

    def __init__(self, without: tuple[type, ...], packaged: bool, known: frozenset[str]) -> None:
        self.digest = hashlib.sha256()
        self.names: set[str] = set()
        self.asks_for_names = False
        self._without, self._packaged, self._known = without, packaged, known
        # id -> (number, object): kept alive, so that no id is used twice.
        self._seen: dict[int, tuple[int, object]] = {}
        self._homes: dict[int, object] = {}

    def feed(self, value: Any, where: str) -> None:
        """Take up a value; `where` is how it was reached."""
        kind = type(value)
        if kind in _PLAIN:
            self._put(kind.__name__, _plain(value))
        elif kind is tuple:
            self._each("tuple", value, where)
        elif kind is types.CodeType:
            self._code(value, where)
        elif kind is frozenset:
            self._as_set(value, where)
        elif kind is np.ndarray or (issubclass(kind, _ARRAYS) and kind.__module__.partition(".")[0] in _ARRAY_HOMES):
            self._array(value, where)
        elif id(value) in self._seen:
            self._put("again", self._seen[id(value)][0])
        else:
            self._seen[id(value)] = len(self._seen), value
            self._object(value, where)

    def _put(self, *parts: object) -> None:
        for part in parts:
            text = part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogatepass")
            self.digest.update(f"{len(text)}:".encode() + text)

    def _each(self, kind: str, values: Iterable[object], where: str) -> None:
        items = list(values)
        self._put(kind, len(items))
        for i, value in enumerate(items):
            self.feed(value, f"{where}[{i}]")

    def _by_name(self, kind: str, values: dict[Any, Any], where: str) -> None:
        """Values by name, whatever their order."""
        self._put(kind, len(values))
        for name in sorted(values, key=str):
            self._put(type(name).__name__, name)
            self.feed(values[name], f"{where}.{name}")

    def _as_set(self, values: Iterable[object], where: str) -> None:
        digests, digest, seen = [], self.digest, self._seen
        for value in values:
            # Each by itself: the order of a set is no part of it.
            self.digest, self._seen = hashlib.sha256(), dict(seen)
            self.feed(value, where)
            digests.append(self.digest.hexdigest())
        self.digest, self._seen = digest, seen
        self._put("set", *sorted(digests))

    def _array(self, value: Any, where: str) -> None:
        if isinstance(value, Tracer):
            raise UnidentifiedError(f"{where} is a traced value, which has no content yet")
        if isinstance(value, jax.Array):
            if value.is_deleted():
                raise UnidentifiedError(f"{where} is an array that was deleted")
            self._put("jax", getattr(value, "weak_type", False))
            if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
                self._put(jax.random.key_impl(value))
                value = jax.random.key_data(value)
        array = np.asarray(value)
        # Sums of NumPy round by the order in memory.
        self._put("array", type(value).__name__, array.dtype.str, array.dtype.descr, array.shape)
        self._put(array.flags.c_contiguous, array.flags.f_contiguous)
        if array.dtype.hasobject:
            self._each("objects", array.ravel().tolist(), where)
        else:
            self._put(np.ascontiguousarray(array).tobytes())

    def _code(self, code: types.CodeType, where: str) -> None:
        numbers = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        self._put("code", code.co_code, numbers, names, getattr(code, "co_exceptiontable", b""))
        constants = (None, *code.co_consts[1:]) if _has_docstring(code) else code.co_consts
        self._each("constants", constants, where)

    def _object(self, value: Any, where: str) -> None:  # noqa: PLR0912 - a list of kinds
        # By the type alone: `isinstance` believes what an object says of its class.
        kind = type(value)
        home = package_name(value)
        if self._packaged and home is None and _is_own_code(value):
            raise UnidentifiedError(f"{where} is code of no package")
        _refuse_dynamic(value, where)
        if home is not None:
            self._put("named", home)
            self._patches(value, where)
        elif issubclass(kind, self._without) or id(value) in _STREAMS:
            self._put("without")
        elif kind is types.FunctionType:
            self._function(value, where)
        elif kind is types.MethodType:
            self._each("method", (value.__func__, value.__self__), where)
        elif kind is types.BuiltinFunctionType:
            self._put("builtin", value.__qualname__)
            owner = value.__self__
            self.feed(getattr(owner, "__name__", None) if isinstance(owner, types.ModuleType) else owner, where)
        elif issubclass(kind, types.ModuleType):
            self._module(value, where)
        elif issubclass(kind, type):
            self._class(value, where)
        elif kind in (list, types.MappingProxyType, dict):
            items = value if kind is list else [part for item in value.items() for part in item]
            self._each(kind.__name__, items, where)
        elif kind is set:
            self._as_set(value, where)
        elif kind in _WRAPPERS:
            names = ("fget", "fset", "fdel", "__func__", "func", "args", "keywords")
            self._by_name(kind.__name__, {name: getattr(value, name, None) for name in names}, where)
        elif kind in (*_DESCRIPTORS, types.MethodWrapperType):
            owner = getattr(value, "__objclass__", None)
            self._each("descriptor", (value.__name__, owner, getattr(value, "__self__", None)), where)
        elif issubclass(kind, weakref.ReferenceType):
            self.feed(value(), where)
        else:
            self._instance(value, where)

    def _function(self, function: types.FunctionType, where: str) -> None:
        self._put("function", function.__module__, function.__qualname__, function.__name__)
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        parts = {name: _content(cell) for name, cell in cells}
        self._code(function.__code__, where)
        self._by_name("closure", parts, where)
        self.feed(function.__defaults__, f"{where}.__defaults__")
        self._by_name("keywords", function.__kwdefaults__ or {}, where)
        self._by_name("attributes", vars(function), where)
        if _package_of(function.__globals__.get("__name__")) is None:
            self._by_name("globals", self._globals(function, where), where)

    def _globals(self, function: types.FunctionType, where: str) -> dict[str, object]:
        """The globals that a function names, and the modules that it imports."""
        named: dict[str, object] = {}
        # Nested functions included: what a function could look up while it runs.
        for code in _codes(function.__code__):
            self.names.update(code.co_names)
            before: list[Any] = []
            for instruction in dis.get_instructions(code):
                name = instruction.argval
                if instruction.opname.startswith("LOAD") and instruction.opname.endswith(("GLOBAL", "NAME", "GLOBALS")):
                    named[name] = function.__globals__.get(name, function.__builtins__.get(name, _MISSING))
                elif name in _OUT_OF_SIGHT and instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                    raise UnidentifiedError(f"{where} uses {name}, {_HIDES}")
                elif instruction.opname == "IMPORT_NAME":
                    level = before[-2] if len(before) > 1 and isinstance(before[-2], int) else 0
                    package = function.__globals__.get("__package__")
                    named[f"import {name}"] = self._import("." * level + name, package, where)
                before.append(name)
        return named

    def _import(self, name: str, package: str | None, where: str) -> types.ModuleType | str:
        """The module that a function will import when it is called; its name where that cannot be done."""
        try:
            whole = importlib.util.resolve_name(name, package)
            known = _package_of(whole)
            if known is None:
                return importlib.import_module(whole)
        except Exception:  # a module raises what it likes; so will the function when it is called
            return name
        # A package is not loaded for this: nothing of what is not there has been set anew.
        for module in (whole.partition(".")[0], whole):
            self._patches(sys.modules.get(module), where)
        return known

    def _members(self, home: Any) -> dict[str, Any]:
        """Of a module or a class what any function names."""
        self.asks_for_names = True
        return {name: vars(home)[name] for name in sorted(self._known & vars(home).keys())}

    def _module(self, module: types.ModuleType, where: str) -> None:
        """A module of the person: what of it any function names; all of it, where names may be put together."""
        members = self._members(module)
        if self._known & _BY_WORD:
            members = {name: x for name, x in vars(module).items() if not name.startswith("__")}
        # Names may be made when they are asked for, by the module or its class.
        self._by_name(f"module {module.__name__}", {**members, "()": vars(module).get("__getattr__")}, where)
        self.feed(type(module), where)

    def _patches(self, home: Any, where: str) -> None:
        """The names of a module or class of a package that the person has set anew; nothing, where there are none."""
        if self._packaged or not isinstance(home, types.ModuleType | type) or id(home) in self._homes:
            return
        self._homes[id(home)] = home
        bases = home.__mro__ if isinstance(home, type) else (home,)
        for base in bases:
            package = _package_of(base.__module__ if isinstance(base, type) else base.__name__)
            for name, member in self._members(base).items():
                _refuse_dynamic(member, f"{where}.{name}")
                known = package_name(member)
                if known is not None and known.startswith(f"{package}:") and known.endswith((f".{name}", f":{name}")):
                    self._patches(member, f"{where}.{name}")
                elif known is not None or not _is_state(member, package):
                    self._put("set anew", name)
                    self.feed(member, f"{where}.{name}")

    def _class(self, kind: type, where: str) -> None:
        self._put("class", kind.__module__, kind.__qualname__)
        self._each("bases", (type(kind), *kind.__bases__), where)
        members = {name: x for name, x in vars(kind).items() if name not in _OF_EVERY_CLASS}
        self._by_name("members", {name: x for name, x in members.items() if not isinstance(x, _SLOTS)}, where)
        fields = vars(kind).get("__dataclass_fields__", {})
        self._by_name("metadata", {name: field.metadata for name, field in fields.items() if field.metadata}, where)

    def _instance(self, value: Any, where: str) -> None:
        kind, hidden = type(value), _hidden_base(type(value))
        in_sight = hidden in (object, *_CONTAINERS)
        self._put("instance")
        self.feed(kind, where)
        wrapped = getattr(value, "__wrapped__", None)
        if kind.__name__ in _COMPILED and any(wrapped is x for x in gc.get_referents(value)):
            # The function that it calls, not a name that `functools.wraps` gave it; the rest is how it is called.
            self.feed(wrapped, where)
            return
        bases = (base for base in kind.__mro__ if base is not object and base not in _CONTAINERS)
        says_how = any(not vars(base).keys().isdisjoint(_STORING) for base in bases)
        packaged = _package_of(kind.__module__) is not None
        if not in_sight or (says_how and packaged):
            self._reduce(value, where)
            if packaged:
                # What its package stores of it: caches are no part.
                return
        elif hidden in (list, tuple):
            self._each("items", hidden.__iter__(value), where)
        elif hidden is dict:
            self._each("items", [part for item in dict.items(value) for part in item], where)
        elif hidden in (set, frozenset):
            self._as_set(hidden.__iter__(value), where)
        elif hidden is not object:
            self._put(_plain(_CONTENT[hidden](value)))
        self._by_name("state", _state(value, where), where)

    def _reduce(self, value: Any, where: str) -> None:
        """By the pickle protocol: how the object would be built, if its package says so and not the person."""
        kind, refusal = type(value), UnidentifiedError(f"{where} is a {type(value).__name__}, {_HIDES}")
        places = [vars(base) for base in kind.__mro__ if _is_own_code(base)] + [getattr(value, "__dict__", {})]
        if hasattr(kind, "__next__") or not all(place.keys().isdisjoint(_STORING) for place in places):
            raise refusal
        try:
            registered = copyreg.dispatch_table.get(kind)
            reduction = value.__reduce_ex__(2) if registered is None else registered(value)
        except Exception as error:  # pickling raises what it likes
            raise refusal from error
        if isinstance(reduction, str):
            # By a name, under which it must be: a ufunc of np.frompyfunc is not, and its function is out of sight.
            module = pickle.whichmodule(value, reduction)  # type: ignore[attr-defined]
            if getattr(sys.modules.get(module), reduction, None) is not value:
                raise refusal
            self._put("named", reduction)
            return
        parts = [list(part) if isinstance(part, Iterator) else _without_cache(part) for part in reduction]
        self._each("reduced", parts, where)


_HIDES = "which does not show what it does"
_ARRAYS = (np.generic, jax.Array, Tracer)
_ARRAY_HOMES = ("numpy", "jaxlib", "jax")
_CONTENT: dict[type, Any] = {
    int: int.__int__,
    float: float.__float__,
    complex: complex.__complex__,
    str: str.__str__,
    bytes: bytes.__bytes__,
    bytearray: bytes,
}


def _is_own_code(value: object) -> bool:
    """Whether it is a function, a class or a module of no package."""
    if isinstance(value, types.FunctionType):
        return _package_of(value.__globals__.get("__name__")) is None
    return isinstance(value, types.ModuleType | type) and _package_of(getattr(value, "__module__", None)) is None


def _is_state(value: Any, package: str | None) -> bool:
    """Whether it is an object of the package itself: its settings, its stream of random numbers, the environment."""
    owner = getattr(value, "__self__", value)
    is_code = isinstance(owner, types.ModuleType | type) or type(owner) in (*_PLAIN, *_CODE)
    is_code = is_code or _is_own_code(getattr(value, "__func__", None))
    return not is_code and _package_of(type(owner).__module__) == package


_CODE = (types.FunctionType, partial, np.ufunc, *_WRAPPERS)


def _without_cache(part: Any) -> Any:
    """A part of what is stored, without what pandas keeps in `_cache` when it is first asked for."""
    if type(part) is not tuple:
        return part
    return tuple(x for x in part if not (type(x) is dict and x.keys() == {"_cache"}))


def _refuse_dynamic(value: object, where: str) -> None:
    if id(value) in _ANYTHING:
        raise UnidentifiedError(f"{where} calls {getattr(value, '__name__', 'sys.modules')}, {_HIDES}")


def _plain(value: object) -> str | bytes:
    """Of a number the digits that give it back."""
    if isinstance(value, bytes):
        return value
    return hex(value) if isinstance(value, int) else repr(value)


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return _MISSING


def _has_docstring(code: types.CodeType) -> bool:
    """Whether the first constant is nothing but documentation: no instruction loads it."""
    first = next(iter(code.co_consts), None)
    if not isinstance(first, str):
        return False
    loads = (i for i in dis.get_instructions(code) if i.opcode in dis.hasconst)
    return all(i.arg != 0 for i in loads)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def package_name(value: object) -> str | None:
    """Where an installed package keeps this very object, and its version; None: nowhere, or a package of the person."""
    if isinstance(value, types.ModuleType):
        package = _package_of(value.__name__)
        is_loaded = sys.modules.get(value.__name__) is value
        return f"{package}:{value.__name__}" if is_loaded and package is not None else None
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    module = getattr(value, "__module__", None)
    if isinstance(value, np.ufunc):
        module = "numpy" if hasattr(np, value.__name__) else "scipy.special"
    if not (isinstance(name, str) and isinstance(module, str)):
        return None
    package = _package_of(module)
    if package is None or module not in sys.modules or not _is_written_there(value):
        return None
    reached: Any = sys.modules[module]
    for part in name.split("."):
        reached = getattr(reached, part, None)
    return f"{package}:{module}.{name}" if reached is value else None


def _is_written_there(value: object) -> bool:
    """Whether no function around or inside it is of the person, who may have given it the name of another."""
    while value is not None:
        if isinstance(value, types.FunctionType) and _is_own_code(value):
            return False
        value = getattr(value, "__wrapped__", None) if not isinstance(value, type) else None
    return True


_PYTHON = "python"


@lru_cache(maxsize=4096)
def _package_of(module: str | None) -> str | None:
    """Name and version of the installed package of a module; None: it is the person's own."""
    if not isinstance(module, str):
        return None
    root = module.partition(".")[0]
    if root == "__main__":
        return None
    if root in sys.stdlib_module_names:
        return _PYTHON
    this_package = __name__.partition(".")[0]
    if root != this_package and not _belongs_to_site(root):
        return None
    try:
        return f"{root} {version(root)}"
    except PackageNotFoundError:
        return root


def _belongs_to_site(root: str) -> bool:
    loaded = sys.modules.get(root)
    try:
        spec = importlib.util.find_spec(root) if loaded is None else None
    except (ImportError, ValueError):
        spec = None
    place = getattr(loaded, "__file__", None) or (None if spec is None else spec.origin)
    if place is None:
        return False
    installed = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
    return any(folder in Path(place).resolve().parents for folder in installed)


def _hidden_base(kind: type) -> type:
    """The base of a class that keeps state out of sight of Python; `object`: none does."""
    for base in kind.__mro__:
        made_in_c = not base.__flags__ & copyreg._HEAPTYPE  # type: ignore[attr-defined]
        new = vars(base).get("__new__")
        if made_in_c or (isinstance(new, types.BuiltinFunctionType) and new.__self__ is base):
            return base
        if not any("__dict__" in vars(above) or "__slots__" in vars(above) for above in base.__mro__):
            return base
    return object


def _state(value: object, where: str) -> dict[str, object]:
    """Attributes in `__dict__` and slots; values that a class computes once and keeps are left out."""
    kind = type(value)
    slots_state = {}
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            mangled = (
                f"_{base.__name__.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name
            )
            if mangled not in ("__dict__", "__weakref__"):
                slots_state[mangled] = _slot(value, mangled)
    attributes = object.__getattribute__(value, "__dict__") if hasattr(value, "__dict__") else {}
    homes = [vars(base)["__dict__"] for base in kind.__mro__ if "__dict__" in vars(base)]
    if not all(isinstance(home, _SLOTS) for home in homes):
        raise UnidentifiedError(f"{where} is a {kind.__name__}, {_HIDES}")
    added = added_defaults(value)
    return {
        **slots_state,
        **{name: x for name, x in attributes.items() if name not in added and not _is_cache(kind, name)},
    }


def _slot(value: object, name: str) -> object:
    try:
        return object.__getattribute__(value, name)
    except AttributeError:
        return _MISSING


def added_defaults(record: object) -> list[str]:
    """The fields of a dataclass that are `UNDESCRIBED_DEFAULT` and have their defaults."""
    if not dataclasses.is_dataclass(record) or isinstance(record, type):
        return []
    added = [field for field in dataclasses.fields(record) if field.metadata.get(UNDESCRIBED_DEFAULT)]
    return [field.name for field in added if getattr(record, field.name) == field.default]


def _is_cache(kind: type, name: str) -> bool:
    """Whether the class computes this attribute when it is first read (`functools.cached_property` and kin)."""
    member = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)
    computes = hasattr(type(member), "__get__") and not hasattr(type(member), "__set__")
    return computes and not isinstance(member, (types.FunctionType, staticmethod, classmethod, type))
