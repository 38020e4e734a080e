"""Agents in environments: `bayes-mdp demo` and `run`; `compare`, a leaderboard over small problems; a grid of runs from
a file, how far it is and what came out (`sweep`, `status`, `results`).
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bayes_mdp.cli.options import (
    UNEXPECTED,
    Commands,
    add_command,
    add_objective,
    check_outputs,
    count,
    objective_of,
    save_figure,
    seed,
)
from bayes_mdp.utils.messages import count_of

if TYPE_CHECKING:
    import xarray as xr

Listed = TypeVar("Listed", bound=tuple[str, ...] | None)
LEADERBOARD = "a leaderboard: agents on small problems, interquartile means with intervals, ranks, a figure"
GRID_OF_RUNS = "agents x environments x priors with their arguments, as a TOML file lists them; a killed sweep resumes"
_SECONDS = 15
_MOST_LINES = 500


def add_demo(commands: Commands) -> None:
    """The parser of `demo`."""
    parser = add_command(
        commands, "demo", _demo, "the whole workflow on FrozenLake: log, prior, posterior, policies, agents"
    )
    parser.add_argument("--out", type=Path, default=Path("bayes-mdp-demo"), help="folder for what it writes")
    parser.add_argument("--seed", type=seed, default=0, help="seed of every random number")


def _demo(arguments: argparse.Namespace) -> None:
    from bayes_mdp.experiments.demo import demo

    demo(arguments.out, seed=arguments.seed)


def add_run(commands: Commands) -> None:
    """The parser of `run`."""
    parser = add_command(
        commands, "run", _run, "an agent in an environment, many seeds in one compiled program", resumes=True
    )
    parser.add_argument("agent", help="a name of `list`")
    parser.add_argument("env", metavar="ENV[:SIZE]", help="a name of `list`, or a Gymnasium id with a table P")
    parser.add_argument("--prior", default="dirichlet_normal_gamma", help="a name of `list`, or MODULE:FUNCTION")
    add_objective(parser)
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--steps", type=count, help="number of steps")
    length.add_argument("--episodes", type=count, help="number of episodes")
    parser.add_argument("--seeds", type=count, default=20, help="number of seeds")
    parser.add_argument("--seed", type=seed, default=0, help="seed of the key")
    parser.add_argument("--replan", help="a number of steps, 'episode' or 'doubling' (default: the agent's)")
    parser.add_argument("--regret", choices=("objective", "average", "oracle_run", "bayes"), help="which regret")
    parser.add_argument("--out", type=Path, metavar="FILE", help="NetCDF file; a killed run resumes from beside it")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw the regret")


def _run(arguments: argparse.Namespace) -> None:
    import jax

    import bayes_mdp as bm
    from bayes_mdp.experiments.registry_names import find_agent, find_environment, find_prior
    from bayes_mdp.experiments.run_config import RunOptions

    check_outputs(arguments, "out", "figure")
    env = find_environment(arguments.env)
    agent = find_agent(arguments.agent, arguments.replan)
    objective = objective_of(arguments)
    if objective is None:
        horizon = env.mdp.horizon if isinstance(env, bm.Environment) else None
        objective = bm.Discounted(0.95) if horizon is None else bm.Episodic(horizon)
    result = bm.run(
        agent,
        env,
        prior=find_prior(arguments.prior),
        objective=objective,
        num_steps=arguments.steps,
        num_episodes=arguments.episodes,
        num_seeds=arguments.seeds,
        key=jax.random.key(arguments.seed),
        path=arguments.out,
        options=RunOptions(regret=arguments.regret),
    )
    print(summary_of_run(arguments.agent, env.name, result))
    if arguments.out:
        print(f"result: {arguments.out}")
    if arguments.figure:
        from bayes_mdp.experiments.plots.result_plots import plot_regret

        save_figure(plot_regret({arguments.agent: result}), arguments.figure)


def summary_of_run(agent: str, env: str, result: "xr.Dataset") -> str:
    """Total reward and final regret over the seeds, mean +- 95 % interval of the mean, as one line.

    Of a run measured in trials [TDBMA10]: the mean return of the trials of the last checkpoint.
    """
    from bayes_mdp.experiments.results import half_width

    if "trace_decay" in result:
        returns = result["reward"].to_numpy()[:, -1]
        interval = f" +- {half_width(returns):.3g}" if len(returns) > 1 else ""
        seeds = count_of(len(returns), "seed")
        return f"{agent} in {env}, {seeds}: mean return of the last trials {returns.mean():.6g}{interval}"
    totals = result["reward"].sum(str(result["reward"].dims[1])).to_numpy()
    regret = result["regret"].to_numpy()[:, -1]
    return (
        f"{agent} in {env}, {len(totals)} seeds: total reward {totals.mean():.6g} +- {half_width(totals):.3g}, "
        f"regret {regret.mean():.6g} +- {half_width(regret):.3g}"
        if len(totals) > 1
        else f"{agent} in {env}, 1 seed: total reward {totals[0]:.6g}, regret {regret[0]:.6g}"
    )


def add_compare(commands: Commands) -> None:
    """The parser."""
    parser = add_command(commands, "compare", _compare, LEADERBOARD, resumes=True)
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
        name_tasks,
    )
    from bayes_mdp.experiments.ranking import describe_compare, plot_compare
    from bayes_mdp.utils.files import check_file, new_folder

    default = QUICK_AGENTS if arguments.quick else None
    agents = comparison_agents(_names(arguments.agents, None, default), constants=arguments.constants)
    listed = _names(arguments.envs, tuple(PROBLEMS), QUICK_PROBLEMS if arguments.quick else DEFAULT_PROBLEMS)
    envs = name_tasks(listed, None, None, None)
    path, key = arguments.out / "compare.nc", jax.random.key(arguments.seed)
    sizes = f"{count_of(len(agents), 'agent')} on {count_of(len(envs), 'problem')}"
    print(f"{sizes}, about {_SECONDS} s an agent on an idle core", flush=True)
    with new_folder(arguments.out, "--out"):
        check_file(path.with_suffix(".png"))
        result = compare(agents, envs, key=key, num_seeds=arguments.seeds, path=path)
    print(describe_compare(result))
    print(f"result: {path}")
    save_figure(plot_compare(result), path.with_suffix(".png"))


def _names(given: str | None, every: Listed, default: Listed) -> Sequence[str] | Listed:
    """The names that were given, all of them for "all", or the default; None: all."""
    if given is None:
        return default
    return every if given == "all" else [name.strip() for name in given.split(",")]


def add_sweep(commands: Commands) -> None:
    """The parser of `sweep`."""
    parser = add_command(commands, "sweep", _sweep, GRID_OF_RUNS, resumes=True)
    parser.add_argument("config", type=Path, metavar="CONFIG.toml", help="arguments of `bayes_mdp.sweeps.sweep`")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder (default: the name of the file without .toml)")
    parser.add_argument(
        "--executor",
        metavar="WHERE",
        help="serial, processes:N, dask:N, or the address of a Dask scheduler (default: that of the file, or serial)",
    )
    parser.add_argument("--retries", type=count, help="of a cell that fails (default: that of the file, or 2)")


def _sweep(arguments: argparse.Namespace) -> int:
    from bayes_mdp.experiments.run_sweep import sweep
    from bayes_mdp.experiments.sweep_grid import read_sweep_config

    config = read_sweep_config(arguments.config)
    if arguments.out is None:
        arguments.out = _default_folder(arguments.config)
    stated = {
        name: getattr(arguments, name) for name in ("executor", "retries") if getattr(arguments, name) is not None
    }
    config["options"] = replace(config["options"], **stated)
    result = sweep(**config, path=arguments.out)
    print(summary_of_sweep(result))
    print(f"result: {arguments.out / 'results.nc'}")
    return UNEXPECTED if (result["status"] != "finished").any() else 0


def _default_folder(config: Path) -> Path:
    if config.suffix != ".toml":
        raise ValueError(
            f"--out is missing, expected a folder (the name of {str(config)!r} has no ending .toml to leave)"
        )
    return config.with_suffix("")


def add_status(commands: Commands) -> None:
    """The parser of `status`."""
    parser = add_command(commands, "status", _status, "how far the sweep in a folder is, and which cells failed")
    parser.add_argument("folder", type=Path, metavar="DIR", help="of a sweep")


def _status(arguments: argparse.Namespace) -> int:
    from bayes_mdp.experiments.sweep_folder import sweep_status

    status = sweep_status(arguments.folder)
    print(status)
    return UNEXPECTED if status.failed else 0


def add_results(commands: Commands) -> None:
    """The parser of `results`."""
    parser = add_command(
        commands, "results", _results, "one Dataset of the finished cells of a sweep, also while it runs"
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="of a sweep")
    parser.add_argument("--out", type=Path, metavar="FILE", help="NetCDF file to write")


def _results(arguments: argparse.Namespace) -> int:
    from bayes_mdp.experiments.sweep_folder import load_sweep
    from bayes_mdp.utils.files import write_netcdf

    check_outputs(arguments, "out")
    result = load_sweep(arguments.folder)
    print(summary_of_sweep(result))
    if arguments.out:
        write_netcdf(result, arguments.out)
        print(f"result: {arguments.out}")
    return UNEXPECTED if (result["status"] != "finished").any() else 0


def summary_of_sweep(result: "xr.Dataset") -> str:
    """One line for every cell: its settings, total reward and final regret, mean over the seeds; or why it failed."""
    import numpy as np

    number = result.sizes["cell"]
    columns = [str(name) for name, x in result.coords.items() if x.dims == ("cell",) and name != "cell"]
    lines = [f"{count_of(number, 'cell')}, {count_of(result.sizes['seed'], 'seed')} each"]
    for i in range(min(number, _MOST_LINES)):
        cell = result.isel(cell=i)
        settings = {name: cell[name].item() for name in columns}
        shown = " ".join(
            str(x) if name in ("agent", "env", "prior") else f"{name}={x}"
            for name, x in settings.items()
            if x != "" and not (isinstance(x, float) and math.isnan(x))
        )
        if cell["status"].item() != "finished":
            lines.append(f"  {shown}: {cell['status'].item()} {cell['error'].item()}".rstrip())
            continue
        reward, regret = cell["reward"].to_numpy(), cell["regret"].to_numpy()
        last = regret[:, np.isfinite(cell["time"].to_numpy())][:, -1]
        lines.append(f"  {shown}: reward {np.nansum(reward, 1).mean():.6g}, regret {last.mean():.6g}")
    lines += [f"  ... and {number - _MOST_LINES} more"] if number > _MOST_LINES else []
    return "\n".join(lines)
