"""How much of the package's signatures says nothing: the share of `Any` among parameters and return values.

    python tools/annotations.py                # shares by sub-package, the worst files
    python tools/annotations.py --limit 3      # and exit status 1 where the share of `Any` is above 3 percent

Every parameter (but `self` and `cls`) and every return value of a function or method counts once. It is

- `Any` where its annotation names `Any`, at any depth (`dict[str, Any]`, `Callable[..., Any]`), also through an alias
  of the same module (`Carry = tuple[Any, ...]`);
- missing where it has no annotation;
- vague where it names `object`, or a bare `dict`, `list`, `tuple`, `set` or `Callable`: right for a function that
  accepts anything and checks it, no help to a reader elsewhere.

The limit holds for `Any`, or, with `--strict`, for the three together.
"""

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "bayes_mdp"
KINDS = ("Any", "missing", "vague")
ANY = re.compile(r"\bAny\b")
VAGUE = re.compile(r"\bobject\b|\b(?:dict|list|tuple|set|frozenset|Callable)\b(?!\[)")


def any_aliases(tree: ast.Module) -> set[str]:
    """Names that a module defines as an annotation with `Any` in it."""
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name, value = node.targets[0].id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            name, value = node.target.id, node.value
        else:
            continue
        # An expression of types, not a table of values: no call, no comprehension.
        if isinstance(value, ast.Subscript | ast.BinOp | ast.Name) and ANY.search(ast.unparse(value)):
            found.add(name)
    return found


def kind_of(annotation: ast.expr | None, aliases: set[str]) -> str | None:
    """One of `KINDS`, or None for an annotation that says something."""
    if annotation is None:
        return "missing"
    text = ast.unparse(annotation)
    if ANY.search(text) or any(re.search(rf"\b{name}\b", text) for name in aliases):
        return "Any"
    return "vague" if VAGUE.search(text) else None


def annotations(tree: ast.Module) -> Iterator[ast.expr | None]:
    """The annotation of every parameter and return value; None where there is none."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        a = node.args
        every = [*a.posonlyargs, *a.args, *a.kwonlyargs, *(x for x in (a.vararg, a.kwarg) if x is not None)]
        yield from (x.annotation for x in every if x.arg not in ("self", "cls"))
        yield node.returns


def count(path: Path) -> Counter[str]:
    """How many annotations of each kind a file has; "all" counts every one."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    aliases, found = any_aliases(tree), Counter[str]()
    for annotation in annotations(tree):
        found["all"] += 1
        found[kind_of(annotation, aliases) or "named"] += 1
    return found


def folder_of(path: Path) -> str:
    """The sub-package a file is in, two levels deep, with dots."""
    return ".".join(path.relative_to(ROOT).parent.parts[:3])


def row(name: str, found: Counter[str]) -> str:
    """One line of the table."""
    shares = "".join(f"{found[kind] / max(found['all'], 1):9.1%}" for kind in KINDS)
    return f"{name:44}{found['all']:7}{shares}"


def main(arguments: list[str] | None = None) -> int:
    """Print the table; 1 where the share is above the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, help="largest share that is accepted, in percent")
    parser.add_argument("--strict", action="store_true", help="the limit holds for Any, missing and vague together")
    parser.add_argument("--worst", type=int, default=10, help="how many of the worst files to name (default: 10)")
    options = parser.parse_args(arguments)
    folders: dict[str, Counter[str]] = {}
    files: dict[str, Counter[str]] = {}
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        files[path.relative_to(ROOT).as_posix()] = found = count(path)
        folders[folder_of(path)] = folders.get(folder_of(path), Counter()) + found
    total = sum(files.values(), Counter[str]())
    print(f"{'':44}{'count':>7}" + "".join(f"{kind:>9}" for kind in KINDS))
    for name, found in [*folders.items(), ("all", total)]:
        print(row(name, found))
    worst = sorted(files, key=lambda name: -files[name]["Any"])[: options.worst]
    print("\nMost often Any:")
    for name in worst:
        print(f"  {files[name]['Any']:4} of {files[name]['all']:4}  {name}")
    counted = sum(total[kind] for kind in (KINDS if options.strict else KINDS[:1]))
    share = 100 * counted / max(total["all"], 1)
    if options.limit is not None and share > options.limit:
        print(f"\n{share:.1f} percent, expected at most {options.limit:g}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
