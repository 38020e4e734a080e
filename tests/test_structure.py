"""The shape of the package: no circle of files, no name that two files share, nothing imported that the wheel lacks.

And its map: the journeys of docs/explanation/architecture.md name files that exist.
"""

import ast
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import bayes_mdp as bm
from bayes_mdp.mdp import protocols
from tests.thorough import listed

ROOT = Path(__file__).parents[1]
PACKAGE = "bayes_mdp"
OUTSIDE = {"reproductions", "benchmarks", "tests", "examples", "docs", "tools"}
SHARED_NAMES = {
    "__init__.py",
    "__main__.py",
    "behaviour.py",
    "compare.py",
    "decide.py",
    "next_experiment.py",
    "run.py",
    "sweep.py",
    "train.py",
}
"""Basenames that may stand in several folders: what Python asks for, and commands named as what they call."""


def _is_type_checking(node: ast.AST) -> bool:
    test = node.test if isinstance(node, ast.If) else None
    return getattr(test, "id", getattr(test, "attr", None)) == "TYPE_CHECKING"


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Every node below `node`, function bodies too, without what only a type checker reads."""
    for child in ast.iter_child_nodes(node):
        if not _is_type_checking(child):
            yield child
            yield from _statements(child)
        else:
            assert isinstance(child, ast.If)
            for statement in child.orelse:
                yield statement
                yield from _statements(statement)


@cache
def _names_in(text: str) -> list[str]:
    names = []
    for node in _statements(ast.parse(text)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def imported_names(file: Path) -> list[str]:
    """The dotted name of everything that a file imports: of `from a import b`, "a.b"."""
    return _names_in(file.read_text())


def imports_of(root: Path, package: str) -> dict[str, set[str]]:
    """Module -> the modules of the package whose files it names in an import, anywhere in its text.

    `from a.b import c` is an import of a/b/c.py if there is such a file, of a/b.py or a/b/__init__.py otherwise.
    """
    files = {
        ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): file
        for file in (root / package).rglob("*.py")
    }

    def module_of(name: str) -> str | None:
        return next((module for module in (name, name.rpartition(".")[0]) if module in files), None)

    graph: dict[str, set[str]] = {}
    for module, file in files.items():
        graph[module] = {found for name in imported_names(file) if (found := module_of(name))}
    return graph


def find_circle(graph: dict[str, set[str]]) -> list[str]:
    """One circle, as a list whose last entry is its first again; [] where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_files_import_each_other_in_a_circle():
    assert find_circle(imports_of(ROOT, PACKAGE)) == []


@pytest.mark.parametrize("deferred", [False, True], ids=["at the top", "in a function"])
def test_a_planted_circle_is_found(tmp_path, deferred):
    folder = tmp_path / "planted" / "part"
    folder.mkdir(parents=True)
    for file in (folder.parent, folder):
        (file / "__init__.py").touch()
    (folder / "a.py").write_text("from planted.part.b import X\n")
    (folder / "b.py").write_text("from planted.part import c\nX = c\n")
    third = "def y():\n    import planted.part.a\n" if deferred else "import planted.part.a\n"
    (folder / "c.py").write_text(third)
    circle = find_circle(imports_of(tmp_path, "planted"))
    assert circle[0] == circle[-1]
    assert set(circle) == {"planted.part.a", "planted.part.b", "planted.part.c"}


@pytest.mark.parametrize("condition", ["TYPE_CHECKING", "typing.TYPE_CHECKING"])
def test_what_only_a_type_checker_imports_makes_no_circle(tmp_path, condition):
    folder = tmp_path / "planted"
    folder.mkdir()
    (folder / "a.py").write_text("import planted.b\n")
    guarded = f"import typing\nfrom typing import TYPE_CHECKING\nif {condition}:\n    import planted.a\n"
    (folder / "b.py").write_text(guarded)
    assert find_circle(imports_of(tmp_path, "planted")) == []
    (folder / "b.py").write_text(guarded + "else:\n    import planted.a\n")
    assert find_circle(imports_of(tmp_path, "planted")) != []


def test_no_two_files_share_a_name():
    places = defaultdict(list)
    for file in sorted((ROOT / PACKAGE).rglob("*.py")):
        places[file.name].append(str(file.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1 and name not in SHARED_NAMES} == {}


def test_the_package_imports_nothing_that_the_wheel_lacks():
    outside = {
        str(file.relative_to(ROOT)): sorted(found)
        for file in (ROOT / PACKAGE).rglob("*.py")
        if (found := {name for name in imported_names(file) if name.partition(".")[0] in OUTSIDE})
    }
    assert outside == {}


def test_tests_import_their_helpers_by_full_path():
    """`tests.inference.programs`, never `programs`: one file, one module, whatever the folder pytest was started in."""
    files = list((ROOT / "tests").rglob("*.py"))
    helpers = {file.stem for file in files} - {"conftest", "__init__"}
    bare = {
        str(file.relative_to(ROOT)): sorted(found)
        for file in files
        if (found := {name for name in imported_names(file) if name.partition(".")[0] in helpers})
    }
    assert bare == {}


def test_every_thorough_test_exists():
    """A test that was renamed would silently be in the default run again."""
    missing = []
    for name in sorted(listed()):
        file, _, function = name.partition("[")[0].partition("::")
        path = ROOT / file
        if not path.exists() or f"def {function.rpartition('::')[2]}(" not in path.read_text():
            missing.append(name)
    assert not missing, f"tests/thorough.txt lists {missing[0]}, which is no test"


def test_the_map_names_files_that_exist():
    """Three journeys, each of at most a dozen files, none twice; and every other path in the text."""
    text = (ROOT / "docs/explanation/architecture.md").read_text()
    journeys = [re.findall(r"^\| `([^`]+)` \|", part, re.M) for part in text.split("\n## ")[1:]]
    assert len(journeys) == 3
    for files in journeys:
        assert 5 < len(files) <= 12 and len(set(files)) == len(files)
    named = {name for name in re.findall(r"`([^`\s]+)`", text) if name.endswith(".py")}
    assert named >= {file for files in journeys for file in files}
    assert {name for name in named if not (ROOT / PACKAGE / name).is_file()} == set()


def test_a_protocol_in_an_annotation_can_be_checked():
    """CI runs tests with annotations checked, which a protocol without `runtime_checkable` stops at the first call."""
    plain = []
    for path in sorted((ROOT / "bayes_mdp").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ClassDef) or "runtime_checkable" in map(ast.unparse, node.decorator_list):
                continue
            if any(ast.unparse(base).startswith("Protocol") for base in node.bases):
                plain.append(f"{path.relative_to(ROOT)}: {node.name}")
    assert plain == ["bayes_mdp/models/isolate.py: _Wrapper"]  # which no annotation names


STRICT = """\
# pyright: strict, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeStubs=false
"""
"""Pyright's strict mode, but for what comes of libraries without types: scipy, xarray, jaxtyping's `PyTree`."""


def test_the_files_behind_the_face_are_typed_strictly():
    """Those that define a name of `bm.`, and the protocols, which all stand in the one file."""
    things = [getattr(bm, name) for name in bm.__all__ if not inspect.ismodule(getattr(bm, name))]
    doors = {Path(inspect.getfile(inspect.unwrap(thing))) for thing in things}
    doors.add(ROOT / PACKAGE / "mdp/protocols.py")
    lax = [str(path.relative_to(ROOT)) for path in doors if not path.read_text(encoding="utf-8").startswith(STRICT)]
    assert lax == [] and len(doors) > 20
    for role in ("Objective", "RewardLaw", "Policy", "Posterior", "Agent"):
        assert f"\n| `{role}` |" in str(protocols.__doc__)
        assert role == "Objective" or getattr(protocols, role).__module__ == protocols.__name__


def test_no_function_has_a_tower_of_overloads():
    """Two at most: a caller of a type checker learns more by them than a reader loses."""
    towers = defaultdict(int)
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and "overload" in map(ast.unparse, node.decorator_list):
                towers[node.name] += 1
    assert dict(towers) == {"infer": 2, "policy_value": 2, "read_log": 2, "restart_at_ends": 2}
