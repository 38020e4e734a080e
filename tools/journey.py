"""How much of the package a piece of code passes through: files, functions, and the code lines of these files.

    python tools/journey.py SETUP CODE [--list]

SETUP and CODE are Python, given as text; SETUP runs first and is not counted, so that what it imports, or what it has
prepared, is apart. Modules that CODE imports itself are not counted as files of it, but its functions are. Functions
that JAX or NumPy call in other threads are not seen.
"""

import argparse
import io
import sys
import time
import tokenize
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

import bayes_mdp

PACKAGE = Path(bayes_mdp.__file__).resolve().parent
NOT_FUNCTIONS = ("<module>", "<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")
NOT_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


class Journey(NamedTuple):
    """What was passed.

    Args:
        functions: file of the package -> qualified names of its functions that ran, lambdas among them.
        lines: of code in these files: neither blank, nor comment, nor docstring.
        seconds: of the processor.
    """

    functions: dict[Path, list[str]]
    lines: int
    seconds: float

    def __str__(self) -> str:
        """The counts, on one line."""
        number = sum(map(len, self.functions.values()))
        return f"{len(self.functions)} files, {number} functions, {self.lines} code lines, {self.seconds:.3f} CPU-s"


def journey(run: Callable[[], object]) -> Journey:
    """What of the package `run` passes.

    Args:
        run: called once, and once only.
    """
    seen: set[CodeType] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        del argument
        if event == "call":
            seen.add(frame.f_code)

    start = time.process_time()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    seconds = time.process_time() - start
    functions: dict[Path, list[str]] = {}
    for code in seen:
        path = Path(code.co_filename)
        if PACKAGE in path.parents and code.co_name not in NOT_FUNCTIONS:
            functions.setdefault(path.relative_to(PACKAGE), []).append(f"{code.co_qualname}:{code.co_firstlineno}")
    return Journey(functions, sum(code_lines(PACKAGE / path) for path in functions), seconds)


def code_lines(path: Path) -> int:
    """Lines of a file that hold code.

    Args:
        path: of a Python file.
    """
    lines: set[int] = set()
    statement = True
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        # A string at the beginning of a statement is a docstring, or has no effect.
        if token.type not in NOT_CODE and not (statement and token.type == tokenize.STRING):
            lines.update(range(token.start[0], token.end[0] + 1))
            statement = False
        if token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            statement = True
    return len(lines - {0})


def main() -> None:
    """Read the command line, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("setup", help="Python, not counted: imports, data")
    parser.add_argument("code", help="Python, counted")
    parser.add_argument("--list", action="store_true", help="name every function")
    chosen = parser.parse_args()
    space: dict[str, object] = {}
    exec(chosen.setup, space)
    found = journey(lambda: exec(chosen.code, space))
    print(found)
    if chosen.list:
        for path, names in sorted(found.functions.items()):
            print(f"  {path}: {', '.join(sorted(names))}")


if __name__ == "__main__":
    main()
