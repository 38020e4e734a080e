"""`bayes-mdp sweep`, `status` and `results`: a grid of runs from a file, how far it is, what came out."""

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

from bayes_mdp.cli.options import UNEXPECTED, Commands, add_command, check_outputs, count

if TYPE_CHECKING:
    import xarray as xr

TEXT = "agents x environments x priors with their arguments, as a TOML file lists them; a killed sweep resumes"


def add_sweep(commands: Commands) -> None:
    """The parser of `sweep`."""
    parser = add_command(commands, "sweep", _sweep, TEXT, resumes=True)
    parser.add_argument("config", type=Path, metavar="CONFIG.toml", help="arguments of `bayes_mdp.sweep`")
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
    config |= {
        name: getattr(arguments, name) for name in ("executor", "retries") if getattr(arguments, name) is not None
    }
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
    from bayes_mdp.experiments.results import save_result
    from bayes_mdp.experiments.sweep_folder import load_sweep

    check_outputs(arguments, "out")
    result = load_sweep(arguments.folder)
    print(summary_of_sweep(result))
    if arguments.out:
        save_result(result, arguments.out)
        print(f"result: {arguments.out}")
    return UNEXPECTED if (result["status"] != "finished").any() else 0


def summary_of_sweep(result: "xr.Dataset") -> str:
    """One line for every cell: its settings, total reward and final regret, mean over the seeds; or why it failed."""
    import numpy as np

    number = result.sizes["cell"]
    columns = [str(name) for name, x in result.coords.items() if x.dims == ("cell",) and name != "cell"]
    lines = [f"{number} cells, {result.sizes['seed']} seeds each"]
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


_MOST_LINES = 500
