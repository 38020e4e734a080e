"""What a value is, functions included: a digest that two of them share only where they compute the same.

A function is its code and all that the code reaches: closed-over values, defaults, the globals that it names, the
functions and classes among them, and so on; an object is its class and its state; an array its content. What comes with
an installed package is known by name and version, since its code does not change otherwise. Where a value hides what it
does (a generator, an open file, a lock), it has no identity: it could be continued as something else.
"""

import builtins
import copyreg
import dataclasses
import dis
import functools
import hashlib
import importlib
import importlib.util
import sys
import sysconfig
import types
import weakref
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

UNDESCRIBED_DEFAULT = "undescribed_default"
"""Metadata of a dataclass field that was added later: its default is no part of what identifies a record, so that what
was stored before is the same."""

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented))
_CONTAINERS = (int, float, complex, str, bytes, bytearray, tuple, list, dict, set, frozenset)
_DESCRIPTORS = (types.GetSetDescriptorType, types.MemberDescriptorType, types.WrapperDescriptorType)
_METHODS = (types.MethodDescriptorType, types.ClassMethodDescriptorType, types.MethodWrapperType)
_OF_EVERY_CLASS = frozenset(
    (
        "__module__",
        "__qualname__",
        "__doc__",
        "__dict__",
        "__weakref__",
        "__annotations__",
        "__annotate__",
        "__annotate_func__",
        "__annotations_cache__",
        "__firstlineno__",
        "__static_attributes__",
        "__dataclass_fields__",
        "__dataclass_params__",
        "__match_args__",
        "__abstractmethods__",
        "_abc_impl",
        "__parameters__",
        "__orig_bases__",
        "__protocol_attrs__",
        "_is_protocol",
        "_is_runtime_protocol",
        "__slotnames__",
        "__non_callable_proto_members__",
    )
)
_DYNAMIC = ("eval", "exec", "globals", "__import__")
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
    walk = _Walk(without, packaged)
    try:
        walk.feed(value, name)
    except UnidentifiedError:
        raise
    except RecursionError as error:
        raise UnidentifiedError(f"{name} is nested too deeply to be identified") from error
    except Exception as error:  # what is looked at may answer with an error of its own
        why = " ".join(str(error).split())[:100]
        raise UnidentifiedError(f"{name} holds something that cannot be looked at ({why})") from error
    return walk.digest.hexdigest()


_Seen: TypeAlias = dict[int | tuple[int, frozenset[str]], tuple[int, object]]
"""id (of a module: and the names that are used of it) -> (number, object): kept alive, so that no id is used twice."""


class _Walk:
    """One walk over all that a value reaches, in an order that does not depend on addresses."""

    def __init__(self, without: tuple[type, ...], packaged: bool, seen: _Seen | None = None) -> None:
        self.digest = hashlib.sha256()
        self._without, self._packaged = without, packaged
        self._seen: _Seen = {} if seen is None else dict(seen)
        self._names: frozenset[str] = frozenset()

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
        elif kind is np.ndarray or (isinstance(value, _ARRAYS) and kind.__module__.partition(".")[0] in _ARRAY_HOMES):
            self._array(value, where)
        else:
            # Of a module only that is taken up which a function names: another function may name more.
            key = (id(value), self._names) if isinstance(value, types.ModuleType) else id(value)
            if key in self._seen:
                self._put("again", self._seen[key][0])
                return
            self._seen[key] = len(self._seen), value
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
            self._put(name)
            self.feed(values[name], f"{where}.{name}")

    def _as_set(self, values: Iterable[object], where: str) -> None:
        digests = []
        for value in values:
            walk = _Walk(self._without, self._packaged, self._seen)
            walk._names = self._names
            walk.feed(value, where)
            digests.append(walk.digest.hexdigest())
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
        self._put("array", type(value).__name__, array.dtype.str, array.dtype.descr, array.shape)
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
        kind = type(value)
        home = package_name(value)
        if self._packaged and home is None and _is_own_code(value):
            raise UnidentifiedError(f"{where} is code of no package")
        if home is not None:
            self._put("named", home)
        elif isinstance(value, self._without):
            self._put("without")
        elif kind is types.FunctionType:
            self._function(value, where)
        elif kind is types.MethodType:
            self._each("method", (value.__func__, value.__self__), where)
        elif kind is types.BuiltinFunctionType:
            self._put("builtin", value.__qualname__)
            owner = value.__self__
            self.feed(getattr(owner, "__name__", None) if isinstance(owner, types.ModuleType) else owner, where)
        elif isinstance(value, types.ModuleType):
            self._module(value, where)
        elif isinstance(value, type):
            self._class(value, where)
        elif kind in (list, types.MappingProxyType, dict):
            items = value if kind is list else [part for item in value.items() for part in item]
            self._each(kind.__name__, items, where)
        elif kind is set:
            self._as_set(value, where)
        elif kind in (property, staticmethod, classmethod, functools.cached_property, functools.partialmethod):
            names = ("fget", "fset", "fdel", "__func__", "func", "args", "keywords")
            self._by_name(kind.__name__, {name: getattr(value, name, None) for name in names}, where)
        elif isinstance(value, partial):
            parts = {"func": value.func, "args": value.args, "keywords": tuple(sorted(value.keywords.items()))}
            self._by_name("partial", {**parts, "class": kind, "state": dict(vars(value))}, where)
        elif isinstance(value, (*_DESCRIPTORS, *_METHODS)):
            owner = getattr(value, "__objclass__", None)
            self._each("descriptor", (value.__name__, owner, getattr(value, "__self__", None)), where)
        elif isinstance(value, weakref.ReferenceType):
            self.feed(value(), where)
        elif kind is types.CellType:
            self.feed(_content(value), where)
        else:
            self._instance(value, where)

    def _function(self, function: types.FunctionType, where: str) -> None:
        self._put("function", function.__module__, function.__qualname__)
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        parts = {name: _content(cell) for name, cell in cells}
        before, self._names = self._names, frozenset(_all_names(function.__code__))
        self._code(function.__code__, where)
        self._by_name("closure", parts, where)
        self.feed(function.__defaults__, f"{where}.__defaults__")
        self._by_name("keywords", function.__kwdefaults__ or {}, where)
        self._by_name("attributes", vars(function), where)
        if _package_of(function.__module__) is None:
            self._by_name("globals", _globals(function, where), where)
        self._names = before

    def _module(self, module: types.ModuleType, where: str) -> None:
        """A module of the person: what of it the function names."""
        members = vars(module)
        self._by_name(
            f"module {module.__name__}", {name: members[name] for name in self._names if name in members}, where
        )

    def _class(self, kind: type, where: str) -> None:
        self._put("class", kind.__module__, kind.__qualname__)
        self._each("bases", (type(kind), *kind.__bases__), where)
        members = {name: x for name, x in vars(kind).items() if name not in _OF_EVERY_CLASS}
        self._by_name("members", {name: x for name, x in members.items() if not isinstance(x, _SLOTS)}, where)

    def _instance(self, value: Any, where: str) -> None:
        kind, hidden = type(value), _hidden_base(type(value))
        wrapped = getattr(value, "__wrapped__", None)
        self._put("instance")
        self.feed(kind, where)
        if isinstance(value, jax.custom_jvp | jax.custom_vjp):
            # Its derivatives are a part of what it computes.
            self._by_name("state", vars(value), where)
            return
        if hidden not in (object, *_CONTAINERS) and callable(wrapped):
            # Of jit and lru_cache: the rest is how it is called, not what it computes.
            self.feed(wrapped, where)
            return
        own_reduce = kind.__reduce_ex__ is not object.__reduce_ex__ or kind.__reduce__ is not object.__reduce__
        if hidden not in (object, *_CONTAINERS) or (own_reduce and _package_of(kind.__module__) is not None):
            self._reduce(value, where)
            return
        if hidden in (list, tuple):
            self._each("items", hidden.__iter__(value), where)
        elif hidden is dict:
            self._each("items", [part for item in dict.items(value) for part in item], where)
        elif hidden in (set, frozenset):
            self._as_set(hidden.__iter__(value), where)
        elif hidden is not object:
            self._put(_plain(_CONTENT[hidden](value)))
        self._by_name("state", _state(value), where)

    def _reduce(self, value: Any, where: str) -> None:
        """By the pickle protocol: how the object would be built."""
        try:
            registered = copyreg.dispatch_table.get(type(value))
            reduction = value.__reduce_ex__(2) if registered is None else registered(value)
        except Exception as error:  # pickling raises what it likes
            raise UnidentifiedError(f"{where} is a {type(value).__name__}, which does not show what it does") from error
        if isinstance(reduction, str) and isinstance(value, np.ufunc):  # of np.frompyfunc: the function is out of sight
            raise UnidentifiedError(f"{where} is a {type(value).__name__}, which does not show what it does")
        if isinstance(reduction, str):
            self._put("named", reduction)
            return
        parts = [list(part) if isinstance(part, Iterator) else part for part in reduction]
        self._each("reduced", parts, where)


_ARRAYS = (np.generic, jax.Array)
_ARRAY_HOMES = ("numpy", "jaxlib", "jax")
_CONTENT: dict[type, Any] = {
    int: int.__int__,
    float: float.__float__,
    complex: complex.__complex__,
    str: str.__str__,
    bytes: bytes.__bytes__,
    bytearray: bytes,
}
_SLOTS = (types.GetSetDescriptorType, types.MemberDescriptorType)


def _is_own_code(value: object) -> bool:
    """Whether it is a function, a class or a module of no package."""
    kinds = types.FunctionType, types.ModuleType, type
    return isinstance(value, kinds) and _package_of(getattr(value, "__module__", None)) is None


def _plain(value: object) -> str | bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool) or value is None:
        return repr(value)
    if isinstance(value, int):
        return hex(value)
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, complex):
        return f"{value.real.hex()} {value.imag.hex()}"
    return str(value)


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


def _all_names(code: types.CodeType) -> Iterator[str]:
    """What a code could look up in a module: names, and words that `getattr` could be given."""
    for inner_code in _codes(code):
        yield from inner_code.co_names
        yield from (x for x in inner_code.co_consts if isinstance(x, str) and x.isidentifier())


def _globals(function: types.FunctionType, where: str) -> dict[str, object]:
    """The globals that a function names, and the modules that it imports."""
    named: dict[str, object] = {}
    # Names in the byte code, nested functions included: what a function could look up while it runs.
    for code in _codes(function.__code__):
        before: list[Any] = []
        for instruction in dis.get_instructions(code):
            name = instruction.argval
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                if name in _DYNAMIC and name not in function.__globals__:
                    raise UnidentifiedError(f"{where} calls {name}, which does not show what it does")
                named[name] = function.__globals__.get(name, getattr(builtins, name, _MISSING))
            elif instruction.opname == "IMPORT_NAME":
                level = before[-2] if len(before) > 1 and isinstance(before[-2], int) else 0
                named[f"import {name}"] = _import("." * level + name, function.__globals__.get("__package__"))
            before.append(name)
    return named


def _import(name: str, package: str | None) -> types.ModuleType | str:
    """The module that a function will import when it is called; its name where that cannot be done."""
    try:
        whole = importlib.util.resolve_name(name, package)
        return _package_of(whole) or importlib.import_module(whole)
    except Exception:  # a module raises what it likes; so will the function when it is called
        return name


def package_name(value: object) -> str | None:
    """Where an installed package keeps this very object, and its version; None: nowhere, or a package of the person."""
    if isinstance(value, types.ModuleType):
        package = _package_of(value.__name__)
        return None if package is None else f"{package}:{value.__name__}"
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    module = getattr(value, "__module__", None) or ("numpy" if isinstance(value, np.ufunc) else None)
    if not (isinstance(name, str) and isinstance(module, str)):
        return None
    package = _package_of(module)
    if package is None or module not in sys.modules:
        return None
    reached: Any = sys.modules[module]
    for part in name.split("."):
        reached = getattr(reached, part, None)
    return f"{package}:{module}.{name}" if reached is value else None


@lru_cache(maxsize=4096)
def _package_of(module: str | None) -> str | None:
    """Name and version of the installed package of a module; None: it is the person's own."""
    if not isinstance(module, str):
        return None
    root = module.partition(".")[0]
    if root == "__main__":
        return None
    if root in sys.stdlib_module_names:
        return "python"
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
        if "__dict__" not in vars(base) and "__slots__" not in vars(base) and not _inherits_state(base):
            return base
    return object


def _inherits_state(kind: type) -> bool:
    return any("__dict__" in vars(base) or "__slots__" in vars(base) for base in kind.__mro__[1:])


def _state(value: object) -> dict[str, object]:
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
                slots_state[mangled] = getattr(value, mangled, _MISSING)
    attributes = getattr(value, "__dict__", {})
    added = added_defaults(value)
    return {
        **slots_state,
        **{name: x for name, x in attributes.items() if name not in added and not _is_cache(kind, name)},
    }


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
