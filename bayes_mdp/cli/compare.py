"""`bayes-mdp compare`: a leaderboard of agents over small problems."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from bayes_mdp.cli.options import Commands, add_command, count, save_figure, seed

Listed = TypeVar("Listed", bound=tuple[str, ...] | None)
TEXT = "a leaderboard: agents on small problems, interquartile means with intervals, ranks, a figure"


def add_compare(commands: Commands) -> None:
    """The parser."""
    parser = add_command(commands, "compare", _compare, TEXT, resumes=True)
    parser.add_argument("--agents", metavar="A,B,...", help="names of `list`, or 'all' (default: all)")
    parser.add_argument("--envs", metavar="X,Y,...", help="names of problems, or 'all' (default: five of six)")
    parser.add_argument("--seeds", type=count, default=10, help="number of seeds")
    parser.add_argument("--quick", action="store_true", help="fewer agents and problems, where none are named")
    parser.add_argument(
        "--constants",
        choices=("scaled", "default"),
        default="scaled",
        help="'scaled': small enough to learn in short runs; 'default': those of each agent, often its theorem's",
    )
    parser.add_argument("--out", type=Path, default=Path("bayes-mdp-compare"), help="folder for NetCDF and figure")
    parser.add_argument("--seed", type=seed, default=0, help="seed of the key")


def _compare(arguments: argparse.Namespace) -> None:
    import jax

    from bayes_mdp.experiments.compare_agents import (
        DEFAULT_PROBLEMS,
        PROBLEMS,
        QUICK_AGENTS,
        QUICK_PROBLEMS,
        compare,
        comparison_agents,
        named_tasks,
    )
    from bayes_mdp.experiments.ranking import describe_compare, plot_compare
    from bayes_mdp.utils.files import check_file, new_folder

    some = QUICK_AGENTS if arguments.quick else None
    agents = comparison_agents(_names(arguments.agents, None, some), constants=arguments.constants)
    listed = _names(arguments.envs, tuple(PROBLEMS), QUICK_PROBLEMS if arguments.quick else DEFAULT_PROBLEMS)
    envs = named_tasks(listed, None, None, None)
    path, key = arguments.out / "compare.nc", jax.random.key(arguments.seed)
    print(f"{len(agents)} agents on {len(envs)} problems, about {_SECONDS} s an agent on an idle core", flush=True)
    with new_folder(arguments.out, "--out"):
        check_file(path.with_suffix(".png"))
        result = compare(agents, envs, key=key, num_seeds=arguments.seeds, path=path)
    print(describe_compare(result))
    print(f"result: {path}")
    save_figure(plot_compare(result), path.with_suffix(".png"))


_SECONDS = 15


def _names(given: str | None, every: Listed, default: Listed) -> Sequence[str] | Listed:
    """The names that were given, all of them for "all", or the default; None: all."""
    if given is None:
        return default
    return every if given == "all" else [name.strip() for name in given.split(",")]
