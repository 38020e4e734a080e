"""Whether the code reads as English: function words among local names, participles among functions, comments.

    python tools/words.py                                         # the table by folder
    python tools/words.py bayes_mdp/agents --list                 # and every place in this folder
    python tools/words.py --function-words 1 --participles 3      # and exit status 1 above these percentages
    python tools/words.py bayes_mdp/planning --comments 10        # and exit status 1 below 10 comments in 100 lines

- A local name is a function word where it is one of `FUNCTION_WORDS`: it does not say what the variable holds. The
  names of nested functions count for each function that they stand in.
- A function is named by a participle where the first or the last word of its name is one: `joined`, `_drawn_rows`. A
  function is named by a verb or by the quantity that it returns.
- Comments are counted per line of code, without docstrings and blank lines.
"""

import argparse
import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FUNCTION_WORDS = """
found own near beside wide aim others other again off along wanted one ones where there here such same with of at by
into over under above below both each every all any some many more less much only once which what how apart away told
given kept held asked meant most few far whose then when
"""
PARTICIPLES = """
kept drawn given told held taken made done seen unseen shown found learnt built written gone chosen met sent spent
grown worn torn laid said thought bought begun shrunk
"""
"""Those without -ed; `known` and `unknown` are adjectives here."""
NOT_PARTICIPLES = """need seed feed speed embed bed red shed hundred expected"""
"""Words in -ed that are none, and `expected`: an expected value is a quantity."""
LAYOUT = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def is_participle(word: str) -> bool:
    """Whether a word is a participle."""
    return word in PARTICIPLES.split() or (word.endswith("ed") and word not in NOT_PARTICIPLES.split())


def functions(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, set[str], bool]]:
    """Every function with those of its local names that are function words, and whether a participle names it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            words = [word for word in node.name.lower().split("_") if word]
            ends = {*words[:1], *words[-1:]}
            yield node, local_names(node) & {*FUNCTION_WORDS.split()}, any(map(is_participle, ends))


def local_names(node: ast.AST) -> set[str]:
    """The names that a function assigns to."""
    return {x.id for x in ast.walk(node) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}


def code_and_comments(text: str, tree: ast.Module) -> tuple[int, int]:
    """The number of lines that hold code, without docstrings, and the number of comments."""
    docstrings, lines, comments = set[int](), set[int](), 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
            ast.get_docstring(node) is not None
        ):
            docstrings.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments += 1
        elif token.type not in LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings), comments


def count(path: Path) -> tuple[Counter[str], list[str]]:
    """The numbers of one file, and the places of its function words and participles."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    numbers, places = Counter[str](), list[str]()
    numbers["code"], numbers["comments"] = code_and_comments(text, tree)
    for node, words, participle in functions(tree):
        numbers.update(functions=1, locals=len(local_names(node)), words=len(words), participles=participle)
        if words or participle:
            places.append(f"{path}:{node.lineno} {node.name}: {', '.join(sorted(words)) or 'participle'}")
    return numbers, places


def percentages(numbers: Counter[str]) -> tuple[float, float, float]:
    """Function words in 100 local names, participles in 100 functions, comments in 100 lines of code."""
    pairs = (("words", "locals"), ("participles", "functions"), ("comments", "code"))
    words, participles, comments = (100 * numbers[part] / max(numbers[whole], 1) for part, whole in pairs)
    return words, participles, comments


def main(arguments: list[str] | None = None) -> int:
    """Print the table; 1 where a share is beyond its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="*", help="folders or files (default: the package)")
    parser.add_argument("--list", action="store_true", help="name every place")
    parser.add_argument("--function-words", type=float, help="largest share among local names, in percent")
    parser.add_argument("--participles", type=float, help="largest share among functions, in percent")
    parser.add_argument("--comments", type=float, help="smallest number of comments in 100 lines of code")
    options = parser.parse_args(arguments)
    totals: dict[str, Counter[str]] = {}
    places: list[str] = []
    for root in options.folders or [ROOT / "bayes_mdp"]:
        for path in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
            numbers, places_in_file = count(path)
            folder = path.relative_to(root).parent if root.is_dir() else Path()
            name = (root / Path(*folder.parts[:1])).as_posix().removeprefix(f"{ROOT.as_posix()}/")
            totals[name] = totals.get(name, Counter()) + numbers
            places += places_in_file
    total = sum(totals.values(), Counter[str]())
    print(f"{'':40}{'locals':>8}{'words':>8}{'functions':>11}{'participles':>13}{'code':>7}{'comments':>10}")
    for name, numbers in [*totals.items(), ("all", total)]:
        words, participles, comments = percentages(numbers)
        print(
            f"{name:40}{numbers['locals']:8}{words:7.1f}%{numbers['functions']:11}{participles:12.1f}%"
            f"{numbers['code']:7}{comments:9.1f}%"
        )
    if options.list:
        print("\n".join(places))
    words, participles, comments = percentages(total)
    refused = [
        f"{share:.1f} percent {what}, expected at {bound} {limit:g}"
        for share, what, limit, bound, excess in (
            (words, "function words", options.function_words, "most", 1),
            (participles, "participles", options.participles, "most", 1),
            (comments, "comments", options.comments, "least", -1),
        )
        if limit is not None and excess * share > excess * limit
    ]
    for line in refused:
        print(line, file=sys.stderr)
    return int(bool(refused))


if __name__ == "__main__":
    sys.exit(main())
