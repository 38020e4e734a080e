"""`python -m benchmarks`: all speed benchmarks beside their peers, one file of ratios, compared with a stored one.

Exit codes: 0; 1 where a ratio fell below .7 of the stored one (.5 on another processor), or a benchmark failed; 2 for
wrong input (one sentence on stderr); 130 after Ctrl-C, which leaves a file that the same command completes.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bayes_mdp.cli import Parser, run_command
from bayes_mdp.cli.options import UNEXPECTED
from benchmarks.record.check import check
from benchmarks.record.comparison import FALL, compare, fallen
from benchmarks.record.registry import REGISTRY, Benchmark
from benchmarks.record.run_all import run_all
from benchmarks.record.stored import Record, load
from benchmarks.record.tables import describe_comparison, describe_record

STORED = Path(__file__).with_name("record.json")
"""The run of record."""


def main(argv: Sequence[str] | None = None, registry: Sequence[Benchmark] = REGISTRY) -> int:
    """Run the command; returns the exit code."""
    return run_command(build_parser(registry), argv)


def build_parser(registry: Sequence[Benchmark]) -> argparse.ArgumentParser:
    """The argument parser."""
    parser = Parser(
        prog="python -m benchmarks",
        description="Measure how fast the library is beside its peers; ratios are of CPU time, above 1 ours is faster.",
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", dest="size", action="store_const", const="quick", help="ten minutes (default)")
    size.add_argument("--full", dest="size", action="store_const", const="full", help="more lines and more turns")
    size.add_argument(
        "--check",
        dest="size",
        action="store_const",
        const="check",
        help=f"a minute: a few lines beside the stored run (code 1: a ratio is below {FALL} of it in three runs)",
    )
    size.add_argument("--list", action="store_true", help="list the benchmarks and what each needs, run nothing")
    size.add_argument("--from", dest="measured", type=Path, metavar="FILE", help="measure nothing, show this run")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[one.name for one in registry], help="only these")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="JSON, written after every benchmark, beside it the table (.md); an incomplete one is completed "
        "(default: results/benchmarks-SIZE.json)",
    )
    parser.add_argument("--overwrite", action="store_true", help="begin anew, whatever --out holds")
    parser.add_argument(
        "--compare", type=Path, metavar="FILE", help=f"a stored run (default of --check: benchmarks/{STORED.name})"
    )
    parser.add_argument("--verbose", action="store_true", help="show log messages, and the traceback of an error")
    parser.set_defaults(size="quick", resumes=True, command=lambda arguments: _run(arguments, registry))
    return parser


def _run(arguments: argparse.Namespace, registry: Sequence[Benchmark]) -> int:
    if arguments.list:
        for one in registry:
            print(f"{one.name:24s}{'in --check  ' if one.in_check else '':12s}{one.missing() or ''}".rstrip())
        return 0
    chosen = [one for one in registry if not arguments.only or one.name in arguments.only]
    stored = arguments.compare or (STORED if arguments.size == "check" and not arguments.measured else None)
    old = load(stored) if stored else None  # before any work
    if arguments.measured:
        record = load(arguments.measured)
        print(describe_record(record))
    elif arguments.size == "check":
        assert old is not None
        arguments.resumes = False
        record = _checked(chosen, old, arguments.out)
    else:
        record = _measured(chosen, arguments)
    broken = [name for name, one in record.benchmarks.items() if one.failed]
    code = UNEXPECTED if broken else 0
    return code if old is None else _compared(old, record) or code


def _measured(chosen: Sequence[Benchmark], arguments: argparse.Namespace) -> Record:
    """A run of quick or full: the file and the table beside it."""
    if arguments.out is None:
        arguments.out = Path("results", f"benchmarks-{arguments.size}.json")
        arguments.out.parent.mkdir(exist_ok=True)
    if arguments.out.suffix != ".json":
        raise ValueError(f"--out is {str(arguments.out)!r}, expected a name that ends in .json")
    record = run_all(chosen, arguments.size, arguments.out, _show, overwrite=arguments.overwrite)
    table = describe_record(record)
    arguments.out.with_suffix(".md").write_text(table + "\n")
    print(table)
    return record


def _checked(chosen: Sequence[Benchmark], old: Record, out: Path | None) -> Record:
    if not any(one.in_check for one in chosen):
        raise ValueError("--only names no benchmark of --check, see --list")
    with tempfile.TemporaryDirectory() as folder:
        return check(chosen, old, out or Path(folder, "check.json"), _show)


def _compared(old: Record, new: Record) -> int:
    """Print the comparison; the exit code."""
    changes = compare(old, new)
    if all(one.share is None for one in changes):
        raise ValueError("no line of this run is in the stored one, measure and store it again")
    print("\n" + describe_comparison(changes, old, new))
    fell = fallen(changes)
    for one in fell:
        print(f"FELL: {one.benchmark}, {one.name}, beside {one.peer}: {one.old:.2f} is now {one.new:.2f}")
    return UNEXPECTED if fell else 0


def _show(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
