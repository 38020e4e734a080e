"""What the Python of a page prints, stored below each of its blocks: `python tools/page_outputs.py [PAGE ...]`.

A page's blocks run from top to bottom in one namespace, in a folder where the demo's log lies. What a block prints
stands below it, in a `text` block after the line `<!-- printed -->`; a block that is there is replaced. Nothing is
stored of a block after the line `<!-- varies -->`, such as one that prints times. A picture that the page shows as
`../images/pages/PAGE-NAME.png` is the file `NAME.png` that its code has saved.
`tests/examples/test_pages.py` runs the pages again and compares what they print.
"""

import contextlib
import csv
import io
import os
import re
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

import gymnasium
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "images" / "pages"
EPISODES, LONGEST = 300, 100
MARK, VARIES = "<!-- printed -->", "<!-- varies -->"
BLOCK = re.compile(
    rf"^(?P<varies>{VARIES}\n)?```python\n(?P<code>.*?)^```\n(?:\n{MARK}\n```text\n(?P<printed>.*?)^```\n)?",
    re.S | re.M,
)
NUMBER = re.compile(r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[-+]?\d+)?")
CLOSE = 0.1
"""Numbers that two machines print may differ by this share: chains and times do."""


def blocks(page: str) -> list[tuple[str, str]]:
    """The code of every Python block, and what is stored below it ("" where nothing is).

    Args:
        page: the text.
    """
    return [(match["code"], match["printed"] or "") for match in BLOCK.finditer(page)]


def run_blocks(codes: list[str], name: str) -> list[str]:
    """What each prints, run one after the other in one namespace.

    Args:
        codes: the blocks.
        name: of the page, for tracebacks.
    """
    names: dict[str, object] = {"__name__": "__main__"}
    printed = []
    for code in codes:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(code, name, "exec"), names)
        printed.append("".join(f"{line.rstrip()}\n" for line in out.getvalue().rstrip().splitlines()))
    return printed


def with_outputs(page: str, printed: list[str]) -> str:
    """The page with these outputs below its blocks, in place of those that it has.

    Args:
        page: the text.
        printed: of each block.
    """
    outputs = iter(printed)

    def rewritten(match: re.Match[str]) -> str:
        output = next(outputs)
        varies = match["varies"] or ""
        stored = f"\n{MARK}\n```text\n{output}```\n" if output and not varies else ""
        return f"{varies}```python\n{match['code']}```\n{stored}"

    return BLOCK.sub(rewritten, page)


def pictures(page: str, name: str) -> dict[str, Path]:
    """The pictures that the code of a page draws: the file that it saves -> where the page shows it from.

    Args:
        page: the text.
        name: of the page, without its ending.
    """
    stored = re.findall(rf"\]\(\.\./images/pages/{re.escape(name)}-(\S+?\.png)\)", page)
    return {file: PICTURES / f"{name}-{file}" for file in stored}


def same_output(stored: str, printed: str) -> bool:
    """Whether two outputs have the same words, and numbers that are close; spaces do not count.

    Args:
        stored, printed: both outputs.
    """
    words, numbers = zip(*(_split(text) for text in (stored, printed)), strict=True)
    return words[0] == words[1] and all(
        abs(x - y) <= CLOSE * max(abs(x), abs(y), 1.0) for x, y in zip(*numbers, strict=True)
    )


def _split(text: str) -> tuple[list[str], list[float]]:
    numbers = [float(number.replace(",", "")) for number in NUMBER.findall(text)]
    return NUMBER.sub(" # ", text).split(), numbers


def write_demo_log(path: Path) -> None:
    """Random play on FrozenLake, in the columns of the log that `bayes-mdp demo` writes.

    Args:
        path: of the CSV file.
    """
    env, rng = gymnasium.make("FrozenLake-v1"), np.random.default_rng(0)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["episode", "cell", "move", "reward", "next_cell", "over"])
        for episode in range(EPISODES):
            cell, _ = env.reset(seed=episode)
            for _ in range(LONGEST):
                move = int(rng.integers(4))
                next_cell, reward, over, cut, _ = env.step(move)
                writer.writerow([episode, cell, move, reward, next_cell, over])
                cell = next_cell
                if over or cut:
                    break


def main(pages: list[str]) -> None:
    """Rewrite the pages."""
    for name in pages or [str(path) for path in sorted((ROOT / "docs" / "how-to").glob("*.md"))]:
        path = Path(name).resolve()
        page = path.read_text()
        codes = [code for code, _ in blocks(page)]
        here = os.getcwd()
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (Path(folder) / "bayes-mdp-demo").mkdir()
            write_demo_log(Path(folder) / "bayes-mdp-demo" / "log.csv")
            os.chdir(folder)
            try:
                printed = run_blocks(codes, path.name)
                PICTURES.mkdir(exist_ok=True)
                for file, place in pictures(page, path.stem).items():
                    shutil.copyfile(file, place)
            finally:
                os.chdir(here)
        path.write_text(with_outputs(page, printed))
        print(f"{path.name}: {sum(map(bool, printed))} of {len(codes)} blocks print", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
