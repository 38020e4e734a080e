"""`reproduce`: run a published experiment, put its numbers beside the published ones, keep both."""

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
from jaxtyping import PRNGKeyArray

from bayes_mdp.experiments.describe import describe, describe_key, machine, versions
from bayes_mdp.experiments.results import REPRODUCTION_FORMAT, json_attributes
from bayes_mdp.experiments.resume import Cells, folder_of
from bayes_mdp.parallel import ExecutorLike, check_executor
from bayes_mdp.utils.files import check_file, check_folder, write_beside, write_json, write_netcdf
from bayes_mdp.utils.validation import check_key, check_name, check_type, described
from reproductions.reproduction import SCALES, Reproduction, Row, Scale
from reproductions.verdicts import expected_verdicts, table, unexpected

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

REPRODUCTIONS = {
    "ube-fig2": "reproductions.ube.two_action_chain_fig2:REPRODUCTION",
    "ube-table1": "reproductions.ube.atari_games:TABLE1",
    "ube-fig5": "reproductions.ube.atari_games:FIGURE5",
    "wide-narrow": "reproductions.bmrl.joint_sampling:REPRODUCTION",
    "bmrl-deepsea": "reproductions.bmrl.regret_summaries:DEEP_SEA",
    "bmrl-widenarrow": "reproductions.bmrl.regret_summaries:WIDE_NARROW",
    "bmrl-priormdp": "reproductions.bmrl.regret_summaries:PRIOR_MDP",
    "klearning-fig1": "reproductions.klearning.deep_sea_facts:REPRODUCTION",
    "klearning-fig2": "reproductions.klearning.solve_times:REPRODUCTION",
    "klearning-fig3": "reproductions.klearning.film_strip:FIGURE3",
    "klearning-fig4": "reproductions.klearning.film_strip:FIGURE4",
    "tdbma-fig2": "reproductions.tdbma.returns_fig2:REPRODUCTION",
    "tdbma-fig3": "reproductions.tdbma.variations_fig3:REPRODUCTION",
    "oim-table1": "reproductions.oim.totals:TABLE1",
    "oim-table2": "reproductions.oim.totals:TABLE2",
    "oim-table3": "reproductions.oim.maze_times:REPRODUCTION",
    "oim-table4": "reproductions.oim.phase_tables:TABLE4",
    "oim-table5": "reproductions.oim.phase_tables:TABLE5",
    "oim-table6": "reproductions.oim.phase_tables:TABLE6",
    "luis-deepsea": "reproductions.luis.deep_sea_times:REPRODUCTION",
    "luis-sevenrooms": "reproductions.luis.seven_rooms_regret:REPRODUCTION",
    "bamcp-worlds": "reproductions.bamcp.worlds:REPRODUCTION",
    "valdettaro-fig3": "reproductions.valdettaro.synthetic_worlds:REPRODUCTION",
}
"""Name -> module:attribute of a `Reproduction`, loaded when it is asked for."""


def find_reproduction(name: str) -> Reproduction:
    """The experiment of that name.

    Raises:
        ValueError: no such experiment.
    """
    check_name("name", name, REPRODUCTIONS)
    module, _, attribute = REPRODUCTIONS[name].partition(":")
    return getattr(import_module(module), attribute)


def reproduce(
    name: str,
    *,
    scale: Scale = "quick",
    key: PRNGKeyArray | None = None,
    path: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    executor: ExecutorLike = None,
) -> "tuple[xr.Dataset, Figure]":
    """Run a published experiment and print a table: published value, ours, its interval, verdict. Host side.

    A row agrees where our number lies in the band that the table names, differs where its whole 95 % interval lies
    outside, and is undecided in between. The verdict that each row must have is kept in `expected_verdicts.toml`;
    what differs from it is printed and kept in the attribute `unexpected` of the Dataset (JSON, a list of sentences;
    empty: all is as expected).

    With `path`, an experiment of many parts keeps each in a folder beside it (`<path>.cells`) as soon as it is
    finished: the same call goes on from there after a kill. The folder is removed when the result is written.

    Args:
        name: one of `REPRODUCTIONS`: "ube-fig2", "wide-narrow", "klearning-fig1" to "klearning-fig4",
            "bmrl-deepsea", "bmrl-widenarrow", "bmrl-priormdp", "tdbma-fig2", "tdbma-fig3", "ube-table1", "ube-fig5",
            "oim-table1" to "oim-table6", "luis-deepsea", "luis-sevenrooms", "bamcp-worlds", "valdettaro-fig3".
        scale: "full", the numbers of seeds and steps of the paper; or "quick".
        key: a typed key; None: `jax.random.key(0)`.
        path: a NetCDF file for the Dataset, in a folder that exists; the figure is kept beside it as PNG. None:
            neither.
        options: arguments of the experiment that differ from the scale's: {"games": ("pong",), "frames": 10**6} of
            "ube-table1".
        executor: where the parts of an experiment of many parts are computed (see `ExecutorLike`): the same numbers
            everywhere. Snapshots within a part are not kept then.

    Returns:
        The Dataset (`load_result` reads its file; the attributes hold configuration, versions, key and verdicts as
        JSON), and the figure.

    Raises:
        ValueError: no such experiment, scale or option; an executor for an experiment of one part.
        TypeError: `key` is no typed key.
        FileNotFoundError: `path` lies in no folder that exists.
    """
    reproduction = find_reproduction(name)
    check_name("scale", scale, SCALES)
    key = jax.random.key(0) if key is None else key
    check_key("key", key)
    check_executor(executor)
    if executor is not None and not reproduction.in_cells:
        raise ValueError(f"executor is {described(executor)}, expected None: {name} is one part")
    if path is not None:
        check_file(path)
        for place in (figure_path(path), manifest_path(path)):
            check_file(place)
        check_folder(folder_of(path))
    seconds = reproduction.seconds[scale]
    print(f"{name} ({reproduction.source}), {scale} scale: about {seconds:.0f} s on two cores", flush=True)
    options = _options(name, reproduction, scale, {} if options is None else options)
    configuration = {"name": name, "source": reproduction.source, "scale": scale, "options": describe(options)}
    cells = _cells(path, configuration, key, executor) if reproduction.in_cells else None
    result = reproduction.run(key=key, **options, **({} if cells is None else {"cells": cells}))
    rows = reproduction.rows(result)
    surprises = unexpected(rows, expected_verdicts(name), scale)
    result.attrs = _attributes(configuration, key, rows, surprises)
    print(table(rows))
    for sentence in surprises:
        print(f"NOT AS EXPECTED: {sentence}")
    figure = reproduction.figure(result)
    if path is not None:
        write_netcdf(result, path)
        write_beside(figure_path(path), lambda beside: figure.savefig(beside, dpi=150))
        manifest = {name: json.loads(x) for name, x in result.attrs.items() if name != "format"}
        manifest |= {"finished": datetime.now(UTC).date().isoformat(), "machine": machine()}
        write_json(manifest_path(path), manifest)
    if cells is not None:
        cells.remove()
    return result, figure


def _cells(path: str | Path | None, configuration: dict[str, Any], key: Any, executor: ExecutorLike) -> Cells:
    if path is None:
        return Cells(executor=executor)
    described_all = {"configuration": configuration, "versions": versions(), "key": describe_key(key)}
    return Cells(folder_of(path), described_all, executor)


def _options(name: str, reproduction: Reproduction, scale: Scale, changed: Mapping[str, Any]) -> dict[str, Any]:
    check_type("options", changed, Mapping, "a mapping from options to values")
    known = reproduction.options(scale)
    for option in changed:
        check_name(f"options of {name}", option, known)
    return known | dict(changed)


def manifest_path(path: str | Path) -> Path:
    """Where the manifest is: configuration, versions, key, verdicts, date and machine, to be read without a program."""
    return Path(path).with_suffix(".json")


def figure_path(path: str | Path) -> Path:
    """Where the figure of the result under `path` is kept."""
    return Path(path).with_suffix(".png")


def _finite(number: float) -> float | None:
    """None for a number that is not finite, which JSON cannot hold (a level that nobody reached)."""
    return float(number) if math.isfinite(number) else None


def _attributes(configuration: dict[str, Any], key: Any, rows: list[Row], surprises: list[str]) -> dict[str, str]:
    verdicts = [
        {
            "quantity": row.quantity,
            "published": row.published,
            "ours": _finite(row.ours),
            "half": _finite(row.half),
            "band": None if row.band is None else [str(bound) for bound in row.band],
            "verdict": row.verdict,
        }
        for row in rows
    ]
    attributes = {
        "configuration": configuration,
        "versions": versions(),
        "key": describe_key(key),
        "verdicts": verdicts,
        "unexpected": surprises,
    }
    return json_attributes(REPRODUCTION_FORMAT, attributes)
