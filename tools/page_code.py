"""The Python of pages in lines of at most 80 letters, which no page cuts: `python tools/page_code.py [PAGE ...]`.

Every `python` block and `{code-cell}` is formatted by ruff, as the code of the package is. `--check` changes nothing;
the exit code is 1 where a line is longer.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 80
BLOCK = re.compile(r"^(?P<head>```(?:python|\{code-cell\} ipython3)\n)(?P<code>.*?)^```\n", re.S | re.M)
TAGS = re.compile(r"(?::[a-z-]+:.*\n)*\n?")
"""Options of a cell, which are not Python."""


def formatted(page: str) -> str:
    """The page with its code formatted.

    Args:
        page: the text.
    """

    def rewritten(match: re.Match[str]) -> str:
        tags = TAGS.match(match["code"])
        options = tags[0] if tags else ""
        return f"{match['head']}{options}{_format(match['code'][len(options) :])}```\n"

    return BLOCK.sub(rewritten, page)


def _format(code: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--line-length", str(WIDTH), "--stdin-filename", "block.py", "-"]
    return subprocess.run(command, input=code, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def long_lines(page: str) -> list[str]:
    """Lines of code that are longer.

    Args:
        page: the text.
    """
    return [line for match in BLOCK.finditer(page) for line in match["code"].splitlines() if len(line) > WIDTH]


def main(arguments: list[str]) -> int:
    """Format the pages; returns the exit code."""
    check = "--check" in arguments
    names = [name for name in arguments if not name.startswith("--")]
    pages = [Path(name) for name in names] or [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    wrong = 0
    for path in pages:
        before = path.read_text()
        after = formatted(before) if not check else before
        if after != before:
            path.write_text(after)
        for line in long_lines(after):
            wrong += 1
            print(f"{path.relative_to(ROOT) if path.is_absolute() else path}: {line}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
