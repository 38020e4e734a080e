"""What the docstrings of the public names leave out: the names of the reference, and their methods and properties.

The classes that a function returns and that nobody has to name are checked too (`tools.public_names.answers`).

    python tools/docstrings.py                 # counts and shares by rule, what is missing
    python tools/docstrings.py --rule shapes   # of one rule alone

The exit status is 1 where anything is missing. The rules:

- sentence: a docstring, with a whole sentence in its first line;
- parameters: every parameter, or field of a record, has an entry under `Args`, or its name stands in the text between
  backticks. Fields of a base class may be documented there;
- returns: a section `Returns`, "returns the ...", or a first sentence that names a thing ("The values of ..."): one
  that begins with a verb of `VERBS` does not say what comes back;
- shapes: an array has its shape in its annotation (jaxtyping; `RealLike` and `Numbers` are a number or what broadcasts,
  `float | Array` is one number, perhaps traced), or in the text: [S A], "one number", "broadcast";
- units: a real number names its quantity, one of the table of `docs/reference/units.md` (`tools/units.py`): by the name
  of the parameter or in its entry; where it is returned, in the text, which may name a parameter of the same unit;
- errors: a function that raises, or calls a function that checks an argument (`CHECKS`), names each of these errors;
- source: what comes from papers cites one as [KEY] of `docs/references.bib`: every agent of `AGENTS`, every environment
  of `ENVS`, `SIMULATED` and `OBSERVED`, all that is public in `envs.papers` and `inference.value`, the functions of
  `planning`. `EXEMPT` has the reason of those that do not;
- example: what `bayes_mdp`, `models` and `envs` export has an example (`>>>`), and of each family of agents one has;
  `tests/test_doctests.py` runs them.

A method that overrides one of a base class, or is required by a protocol that its class has all members of (`Agent`,
`CanSample`, ...), need not repeat what is said there: parameters, what is returned, shapes and errors may be documented
in either place. One that overrides a method of another library need not repeat its parameters.
"""

import argparse
import ast
import inspect
import re
import sys
from collections import Counter
from collections.abc import Container, Iterator
from functools import cache, cached_property
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools.bibliography import keys  # noqa: E402
from tools.public_names import ROOT as PACKAGE  # noqa: E402
from tools.public_names import answers, find, identity, public_names  # noqa: E402
from tools.units import last_name, needs_unit, says_unit, units  # noqa: E402

RULES = ("sentence", "parameters", "returns", "shapes", "units", "errors", "source", "example")
VERBS = re.compile(
    r"Add|Adjust|Allow|Apply|Append|Ask|Attach|Average|Build|Calculate|Call|Check|Choose|Clip|"
    r"Collect|Combine|Compare|Compile|Compute|Convert|Copy|Count|Create|Decide|Describe|Discount|"
    r"Divide|Drop|Draw|Estimate|Evaluate|Explain|Extend|Fill|Find|Fit|Fold|Follow|Generate|Get|"
    r"Give|Go|Infer|Initialise|Keep|Learn|List|Load|Look|Make|Map|Mark|Merge|Mix|Move|Multiply|"
    r"Normalise|Open|Parse|Pick|Plan|Play|Plot|Predict|Print|Propagate|Put|Raise|Read|Refit|"
    r"Refuse|Remove|Replace|Reset|Resume|Rewrap|Run|Sample|Save|Search|Select|Send|Set|Show|"
    r"Simulate|Solve|Sort|Split|Start|Stop|Sum|Summarise|Sweep|Take|Test|Train|Transform|Turn|"
    r"Update|Use|Wander|Wrap|Write"
)
"""First words of a sentence that says what is done."""
CHECKS = re.compile(r"^_?(check|require|refuse|validate)(_|$)|^as_(array|real|floats|mask|indices)$")
"""Names of functions that raise an error where an argument is wrong."""
ERROR = re.compile(r"\b[A-Z]\w*(?:Error|Warning|Interrupt)\b")
BARE = frozenset({"Array", "AnyArray", "ArrayLike", "ndarray"})
DTYPES = frozenset({"Float", "Int", "Bool", "Real", "Num", "UInt", "Shaped", "Inexact", "Complex", "Key", "Integer"})
SHAPE = re.compile(r"\[[^\]\n]*\]|\bshapes?\b|\bscalars?\b|\bbroadcasts?\b|\b(?:one|a) (?:real )?number\b|\bdimension")
CONTRACTS = (
    "mdp.protocols",
    "mdp.agent",
    "mdp.environment",
    "agents.common.learner",
    "agents.model_free.trial_learning",
)
"""Modules below the package whose protocols say what a method of that name takes and returns."""
EXEMPT = {
    "bayes_mdp.agents.CovarianceThompson": "the recursion of `value_covariance` is of this package",
    "bayes_mdp.agents.EpsilonGreedyMean": "a baseline of TabulaRL, public code",
    "bayes_mdp.agents.GaussianPSRL": "an agent of TabulaRL, public code",
    "bayes_mdp.agents.MonteCarloThompson": "sample moments of values: no paper's method",
}
"""Full name -> why it cites no paper."""
NOT_RAISED = {("bayes_mdp.calibration.diagnose", "ValueError"): "the number of draws that it has checked is 1"}
"""(Full name, error that a check can raise) -> why it is not raised here."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef


class Miss(NamedTuple):
    """What one docstring leaves out.

    Args:
        rule: one of `RULES`.
        name: full name of what is documented.
        what: the parameter, the error, ...
    """

    rule: str
    name: str
    what: str


class Report(NamedTuple):
    """How often each rule applied, and where it was not met."""

    applied: Counter[str]
    misses: list[Miss]

    def check(self, rule: str, name: str, wrong: list[str]) -> None:
        """Count one application, and a miss for each thing that is wrong."""
        self.applied[rule] += 1
        self.misses.extend(Miss(rule, name, what) for what in wrong)


class Source:
    """The source of one function or class, and where the names in it come from."""

    def __init__(self, module: str, qualname: str) -> None:
        self.module, self.qualname = module, qualname
        self.node = _definitions(module).get(qualname)

    @cached_property
    def doc(self) -> str:
        """The docstring, with one of `__init__`."""
        node = self.node
        if node is None:
            return ""
        text = ast.get_docstring(node) or ""
        own = self.method("__init__") if isinstance(node, ast.ClassDef) else None
        return text + ("\n\n" + own.doc if own is not None and own.doc else "")

    def method(self, name: str) -> "Source | None":
        """A method that is defined in this class."""
        own = Source(self.module, f"{self.qualname}.{name}")
        return own if isinstance(own.node, Definition) else None

    @property
    def fields(self) -> dict[str, ast.AnnAssign]:
        """Public fields of a class, by the annotations in its body."""
        body = self.node.body if isinstance(self.node, ast.ClassDef) else []
        found = {x.target.id: x for x in body if isinstance(x, ast.AnnAssign) and isinstance(x.target, ast.Name)}
        return {
            name: x
            for name, x in found.items()
            if not name.startswith("_") and "ClassVar" not in ast.unparse(x.annotation)
        }

    @property
    def described_fields(self) -> dict[str, str]:
        """Strings that stand below a field."""
        body = self.node.body if isinstance(self.node, ast.ClassDef) else []
        return {
            field.target.id: text.value.value
            for field, text in pairwise(body)
            if isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        }

    @property
    def parameters(self) -> dict[str, ast.expr | None]:
        """Annotations of the parameters of a function, but `self` and `cls`."""
        assert isinstance(self.node, Definition)
        a = self.node.args
        every = [*a.posonlyargs, *a.args, *a.kwonlyargs, *(x for x in (a.vararg, a.kwarg) if x is not None)]
        return {x.arg: x.annotation for x in every if x.arg not in ("self", "cls") and not x.arg.startswith("_")}


@cache
def _definitions(module: str) -> dict[str, ast.ClassDef | Definition]:
    """Every class and function of a module by its qualified name; of overloads the last."""
    found: dict[str, ast.ClassDef | Definition] = {}

    def enter(body: list[ast.stmt], before: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                found[before + node.name] = node
            if isinstance(node, ast.ClassDef):
                enter(node.body, f"{before}{node.name}.")
            elif isinstance(node, ast.If | ast.Try):
                enter(node.body, before)

    file = inspect.getsourcefile(import_module(module))
    if file is not None:
        enter(ast.parse(Path(file).read_text(encoding="utf-8")).body, "")
    return found


def source_of(thing: object) -> Source:
    """The source of a function or class, below its decorators."""
    plain = inspect.unwrap(thing) if callable(thing) else thing
    return Source(getattr(plain, "__module__", ""), getattr(plain, "__qualname__", ""))


# What a docstring says


def entries(doc: str) -> dict[str, str]:
    """The entries of the sections `Args` and `Attributes`: name -> text."""
    found: dict[str, str] = {}
    for section in re.finditer(r"^(?:Args|Attributes):\n((?:[ ]+.*\n?|\n)*)", doc, flags=re.M):
        depth = len(section[1]) - len(section[1].lstrip(" "))
        for entry in re.split(rf"\n(?= {{{depth}}}\S)", section[1].rstrip()):
            names, _, text = entry.strip().partition(":")
            for name in re.split(r",\s*", names):
                found[re.sub(r"\s*\(.*\)$", "", name).lstrip("*")] = text
    return found


def prose(doc: str) -> str:
    """The text without the sections of arguments, errors and examples."""
    return re.sub(r"^(?:Args|Attributes|Raises|Example):\n(?:[ ]+.*\n?|\n)*", "", doc, flags=re.M)


def said_of(name: str, doc: str) -> str | None:
    """What a docstring says of a parameter: its entry, and the sentences that name it; None where it does not."""
    code = rf"`(?:[^`\n]*[^\w.`])?{re.escape(name)}(?:\W[^`\n]*)?`"
    told = [sentence for sentence in _sentences(doc) if re.search(code, sentence)]
    own = entries(doc).get(name)
    return None if own is None and not told else " ".join([own or "", *told])


def _sentences(doc: str) -> list[str]:
    return re.split(r"(?<=[^.][.:;])\s+", doc)


def says_what_returns(doc: str) -> bool:
    """Whether a docstring says what comes back."""
    first = re.match(r"\W*(\w+)", doc)
    told = re.search(r"^Returns:|\b(?:is|are) returned\b|\b[Rr]eturns (?:it|an?|the|what|whether)\b", doc, flags=re.M)
    return bool(told) or bool(first and not VERBS.fullmatch(first[1]))


# What must be said


def needs_shape(annotation: ast.expr | None) -> bool:
    """Whether an annotation names an array without its shape."""
    if annotation is None:
        return False
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    if isinstance(annotation, ast.Subscript) and last_name(annotation.value) in DTYPES:
        axes = annotation.slice.elts[1] if isinstance(annotation.slice, ast.Tuple) else None
        return isinstance(axes, ast.Constant) and str(axes.value).strip() == "..."
    if isinstance(annotation, ast.Subscript) and last_name(annotation.value) in ("Callable", "Literal"):
        return False
    if isinstance(annotation, ast.BinOp):
        union = {last_name(x) for x in _alternatives(annotation)}
        if union & {"float", "int"} and "Array" in union:
            return False
    if last_name(annotation) in BARE:
        return True
    return any(needs_shape(child) for child in ast.iter_child_nodes(annotation) if isinstance(child, ast.expr))


def _alternatives(annotation: ast.expr) -> list[ast.expr]:
    """The parts of `x | y | z`."""
    if not isinstance(annotation, ast.BinOp):
        return [annotation]
    return [*_alternatives(annotation.left), *_alternatives(annotation.right)]


@cache
def errors_of(module: str, qualname: str) -> frozenset[str]:
    """Errors that a function raises itself, or the checks that it calls."""
    node = _definitions(module).get(qualname)
    return frozenset() if node is None else frozenset(_errors_in(node, module, qualname.rpartition(".")[0]))


def _errors_in(node: ast.AST, module: str, owner: str) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Raise) and inner.exc is not None:
            raised = inner.exc.func if isinstance(inner.exc, ast.Call) else inner.exc
            if ERROR.fullmatch(last_name(raised)) and last_name(raised) != "NotImplementedError":
                yield last_name(raised)
        elif isinstance(inner, ast.Call):
            yield from _errors_of_check(inner.func, module, owner)
        elif isinstance(inner, ast.keyword) and inner.arg == "converter":
            made = inner.value
            made = made.args[0] if isinstance(made, ast.Call) and made.args else made
            yield from _errors_of_check(made, module, owner, always=True)


def _errors_of_check(called: ast.expr, module: str, owner: str, *, always: bool = False) -> Iterator[str]:
    """Errors of a function that is called, where its name says that it checks."""
    name = last_name(called)
    if not name or not (always or CHECKS.match(name)):
        return
    if isinstance(called, ast.Attribute) and last_name(called.value) == "self":
        yield from errors_of(module, f"{owner}.{name}")
        return
    found = getattr(import_module(module), name, None)
    if inspect.isfunction(found) and (found.__module__, found.__qualname__) != (module, name):
        yield from errors_of(found.__module__, found.__qualname__)
    elif inspect.isfunction(found):
        yield from errors_of(module, name)


def missing_errors(expected: frozenset[str], docs: list[str]) -> list[str]:
    """Those that no docstring names; "Raises as `other`" stands for all."""
    if any(re.search(r"[Rr]aises:? +as +`|Raises:\n +[Aa]s +(?:of +)?`", doc) for doc in docs):
        return []
    return sorted(error for error in expected if not any(re.search(rf"\b{error}\b", doc) for doc in docs))


# The public names


@cache
def protocols() -> tuple[type, ...]:
    """The public protocols, and those of the files that say what the parts of the package ask of each other."""
    defined = [thing for module in CONTRACTS for thing in vars(import_module(f"{PACKAGE}.{module}")).values()]
    things = {id(thing): thing for thing in [*(find(name) for name in public_names()), *defined]}.values()
    return tuple(thing for thing in things if inspect.isclass(thing) and getattr(thing, "_is_protocol", False))


def _own(base: type, owner: type) -> bool:
    """Whether two classes are of one library."""
    return base.__module__.partition(".")[0] == owner.__module__.partition(".")[0]


@cache
def _members(protocol: type) -> frozenset[str]:
    bases = [base for base in protocol.__mro__ if _own(base, protocol)]
    return frozenset(
        name for base in bases for name in [*vars(base), *source_of(base).fields] if not name.startswith("_")
    )


@cache
def contracts(owner: type) -> tuple[Source, ...]:
    """The bases of a class, and the protocols that it has all members of."""
    bases = [base for base in owner.__mro__[1:] if _own(base, owner)]
    names = set(dir(owner)) | {name for base in owner.__mro__ for name in getattr(base, "__annotations__", {})}
    public = protocols() if owner.__module__.startswith(PACKAGE) else ()
    kept = [p for p in public if p is not owner and p not in bases and _members(p) <= names]
    kept += [base for p in kept for base in p.__mro__[1:] if _own(base, p) and base not in kept]
    return tuple(source_of(base) for base in [*bases, *kept])


def check_function(
    name: str, source: Source, report: Report, above: list[str], errors: frozenset[str], *, foreign: bool = False
) -> None:
    """Check the docstring of a function or a method against all rules but the source.

    Args:
        name: full name, for the report.
        source: of the function.
        report: grows.
        above: docstrings of the methods that it overrides or implements.
        errors: that must be named.
        foreign: whether it overrides a method of another library.
    """
    assert isinstance(source.node, Definition)
    docs = [source.doc, *above]
    check_sentence(name, source.doc, report)
    for parameter, annotation in source.parameters.items():
        told = [text for doc in docs if (text := said_of(parameter, doc)) is not None]
        report.check("parameters", name, [] if told or foreign else [parameter])
        if needs_shape(annotation):
            report.check("shapes", name, [] if any(map(has_shape, told)) else [parameter])
        check_unit(name, parameter, annotation, told, report)
    returned = source.node.returns
    if returned is not None and ast.unparse(returned) not in ("None", "NoReturn", "Self", "'Self'"):
        is_property = any("property" in ast.unparse(d) for d in source.node.decorator_list)
        report.check("returns", name, [] if is_property or any(map(says_what_returns, docs)) else ["what comes back"])
        if needs_shape(returned):
            report.check("shapes", name, [] if any(has_shape(prose(doc)) for doc in docs) else ["what comes back"])
        if needs_unit(returned):
            measured = {p for p, annotation in source.parameters.items() if needs_unit(annotation)}
            told = " ".join(map(prose, docs))
            same = any(re.search(rf"`(?:[^`\n]*\W)?{re.escape(p)}(?:\W[^`\n]*)?`", told) for p in measured)
            known = source.node.name in units().names or same or says_unit(told)
            report.check("units", name, [] if known else ["what comes back"])
    if errors:
        missing = missing_errors(errors, docs)
        report.check("errors", name, [error for error in missing if (name, error) not in NOT_RAISED])


def check_unit(name: str, parameter: str, annotation: ast.expr | None, told: list[str], report: Report) -> None:
    """Check that a real number says by its name or its text what quantity it is."""
    if needs_unit(annotation):
        known = parameter in units().names or any(map(says_unit, told))
        report.check("units", name, [] if known else [parameter])


def has_shape(text: str) -> bool:
    """Whether a text gives the shape of an array."""
    return any(not re.fullmatch(r"\[[A-Z]+\d\d\w?\]", found[0]) for found in SHAPE.finditer(text))


def check_sentence(name: str, doc: str, report: Report) -> None:
    """Check that there is a docstring and that a sentence ends in its first line."""
    first = doc.split("\n", 1)[0]
    whole = bool(re.search(r"[.:?!]$|[.?!] |::$", first))
    report.check("sentence", name, [] if whole else [first or "no docstring"])


def check_class(name: str, owner: type, report: Report) -> None:
    """Check the docstring of a class, of its fields and parameters, and of its own public methods and properties."""
    source = source_of(owner)
    assert isinstance(source.node, ast.ClassDef), name
    check_sentence(name, source.doc, report)
    above = contracts(owner)
    docs = [source.doc, *(base.doc for base in above)]
    made = source.method("__init__")
    below = source.described_fields
    if made is None:
        known: dict[str, ast.expr | None] = {field: x.annotation for field, x in source.fields.items()}
    else:
        known = made.parameters
    for parameter, annotation in known.items():
        told = [text for doc in docs if (text := said_of(parameter, doc)) is not None]
        told += [below[parameter]] if parameter in below else []
        report.check("parameters", name, [] if told else [parameter])
        if needs_shape(annotation):
            report.check("shapes", name, [] if any(map(has_shape, told)) else [parameter])
        check_unit(name, parameter, annotation, told, report)
    errors: set[str] = set()
    for check in ("__init__", "__check_init__", "__post_init__"):
        errors |= errors_of(source.module, f"{source.qualname}.{check}")
    for field in source.fields.values():
        errors |= set(_errors_in(field, source.module, source.qualname))
    if errors:
        report.check("errors", name, missing_errors(frozenset(errors), docs))
    for inner in source.node.body:
        if isinstance(inner, Definition) and not inner.name.startswith("_"):
            method = Source(source.module, f"{source.qualname}.{inner.name}")
            if method.node is inner:  # else an overload
                same = [x.doc for base in above if (x := base.method(inner.name)) is not None]
                if (ast.get_docstring(inner) is None) and inner.name in entries(source.doc):
                    continue  # a property that the class describes
                outside = [x for x in owner.__mro__ if x is not object and not _own(x, owner)]
                foreign = any(inner.name in vars(x) for x in outside)
                errors_there = errors_of(method.module, method.qualname)
                check_function(f"{name}.{inner.name}", method, report, same, errors_there, foreign=foreign)


# Where it comes from


def cites(text: str) -> bool:
    """Whether a text cites a key of the bibliography."""
    return any(key in keys() for key in re.findall(r"\[(\w+)\]", text))


def from_papers() -> set[str]:
    """Full names of what must cite a paper or be exempt: as in the docstring of this module."""
    from bayes_mdp.agents.agents_by_name import AGENTS
    from bayes_mdp.envs.envs_by_name import ENVS, OBSERVED, SIMULATED

    things = [*AGENTS.values(), *ENVS.values(), *SIMULATED.values(), *OBSERVED.values()]
    listed = {identity(thing) for thing in things}
    found = set()
    for name in documented():
        thing = find(name)
        within = source_of(thing).module
        planner = inspect.isroutine(thing) and within.startswith(f"{PACKAGE}.planning")
        paper = within.startswith((f"{PACKAGE}.inference.value", f"{PACKAGE}.envs.papers"))
        if planner or paper or identity(thing) in listed:
            found.add(name)
    return found


def check_source(name: str, thing: object, report: Report) -> None:
    """Check that a docstring cites a paper."""
    report.check("source", name, [] if cites(source_of(thing).doc) or name in EXEMPT else ["no paper is cited"])


def to_be_shown() -> set[str]:
    """Full names of what must have an example: what `bayes_mdp`, `models` and `envs` export."""
    found = set()
    for name in public_names():
        folder = name.split(".")[1:-1]
        if folder in ([], ["models"], ["envs"]):
            found.add(name)
    return found


def check_families(report: Report) -> None:
    """Check that of each family of agents, a package of `agents`, one class has an example."""
    shown: dict[str, bool] = {}
    for name in public_names():
        source = source_of(find(name))
        if source.module.startswith(f"{PACKAGE}.agents."):
            family = ".".join(source.module.split(".")[:3])
            shown[family] = shown.get(family, False) or ">>> " in source.doc
    for family, one in shown.items():
        report.check("example", family, [] if one else ["no example in the family"])


def documented() -> list[str]:
    """Full names of all that the reference documents: the public names, and the classes below the functions."""
    return [*public_names(), *(name for names in answers().values() for name in names)]


def check(things: dict[str, object], papers: Container[str], shown: Container[str]) -> Report:
    """Check functions and classes by their names; of those in `papers` the source, of those in `shown` the example."""
    report = Report(Counter(), [])
    for name, thing in things.items():
        if inspect.isclass(thing):
            check_class(name, thing, report)
        else:
            source = source_of(thing)
            check_function(name, source, report, [], errors_of(source.module, source.qualname))
        if name in papers:
            check_source(name, thing, report)
        if name in shown:
            report.check("example", name, [] if ">>> " in source_of(thing).doc else ["no example"])
    return report


def check_all() -> Report:
    """Check every public name, what they return, and that every exemption is needed."""
    papers = from_papers()
    report = check({name: find(name) for name in documented()}, papers, to_be_shown())
    check_families(report)
    for name in EXEMPT:
        if name not in papers or cites(source_of(find(name)).doc):
            report.misses.append(Miss("source", name, "need not be in EXEMPT"))
    return report


def main(arguments: list[str] | None = None) -> int:
    """Print the counts and what is missing; 1 where anything is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rule", choices=RULES, help="of one rule alone")
    rule = parser.parse_args(arguments).rule
    report = check_all()
    misses = [miss for miss in report.misses if rule in (None, miss.rule)]
    for miss in misses:
        print(f"{miss.rule:12}{miss.name}: {miss.what}")
    print(f"{'rule':12}{'checked':>8}{'missing':>8}{'share':>9}")
    for each in RULES:
        missing = sum(miss.rule == each for miss in report.misses)
        share = 1 - missing / max(report.applied[each], 1)
        print(f"{each:12}{report.applied[each]:8}{missing:8}{share:9.1%}")
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())
