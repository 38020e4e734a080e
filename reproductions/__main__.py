"""`python -m reproductions NAME`: a published experiment, its numbers beside the published ones. `list` names them all.

Exit codes: 0; 1 for a verdict that is not the expected one; 2 for wrong input (one sentence on stderr); 130 after
Ctrl-C. A killed experiment of many parts goes on from those that were finished, by the same command.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bayes_mdp.cli import Parser, run_command
from bayes_mdp.cli.options import UNEXPECTED, count, seed
from reproductions.reproduce import REPRODUCTIONS, figure_path, find_reproduction, manifest_path, reproduce


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    return run_command(build_parser(), argv)


def build_parser() -> argparse.ArgumentParser:
    """The argument parser, help with defaults."""
    parser = Parser(
        prog="python -m reproductions",
        description="Run a published experiment and print its numbers beside the published ones.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("name", help="of an experiment; 'list' names them all")
    parser.add_argument("--full", action="store_true", help="at the scale of the paper")
    parser.add_argument("--seed", type=seed, default=0, help="seed of the key")
    parser.add_argument("--out", type=Path, default=Path("bayes-mdp-reproduce"), help="folder for NetCDF and figure")
    parser.add_argument("--games", metavar="GAME,GAME", help="of Atari (ube-table1)")
    parser.add_argument("--agents", metavar="AGENT,AGENT", help="agents to train (ube-table1, ube-fig5)")
    parser.add_argument("--frames", type=count, help="frames of each training (ube-table1, ube-fig5)")
    parser.add_argument(
        "--executor", metavar="WHERE", help="for the parts: processes:N, dask:N, or the address of a Dask scheduler"
    )
    parser.add_argument("--verbose", action="store_true", help="show log messages, and the traceback of an error")
    parser.set_defaults(command=_run, resumes=True)
    return parser


def _run(arguments: argparse.Namespace) -> int:
    if arguments.name == "list":
        for name in REPRODUCTIONS:
            print(f"{name:<16} {find_reproduction(name).source}")
        return 0
    import jax

    from bayes_mdp.utils.files import new_folder

    if find_reproduction(arguments.name).one_thread:
        os.environ.setdefault("NPROC", "1")  # read when JAX starts its devices, which importing it does not
    scale = "full" if arguments.full else "quick"
    path = arguments.out / f"{arguments.name}-{scale}.nc"
    options, key = _changed(arguments), jax.random.key(arguments.seed)
    with new_folder(arguments.out, "--out"):
        result, _ = reproduce(
            arguments.name, scale=scale, key=key, path=path, options=options, executor=arguments.executor
        )
    print(f"result: {path}")
    print(f"figure: {figure_path(path)}")
    print(f"manifest: {manifest_path(path)}")
    return UNEXPECTED if json.loads(result.attrs["unexpected"]) else 0


def _changed(arguments: argparse.Namespace) -> dict[str, Any]:
    """Options of the experiment that the command names."""
    lists = {name: getattr(arguments, name) for name in ("games", "agents")}
    changed: dict[str, Any] = {name: tuple(text.split(",")) for name, text in lists.items() if text is not None}
    return changed if arguments.frames is None else changed | {"frames": arguments.frames}


if __name__ == "__main__":
    sys.exit(main())
