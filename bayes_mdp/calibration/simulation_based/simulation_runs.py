"""Simulations of simulation-based calibration, whatever is simulated: in chunks, with progress, resumed from a file.

Host-side; `run_in_chunks` compiles the simulation that it is given, once.
"""

import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import xarray as xr
from jaxtyping import PRNGKeyArray

from bayes_mdp.calibration.simulation_based.ranks import Rank
from bayes_mdp.mdp.identity import UnidentifiedError, identity
from bayes_mdp.mdp.memory import check_memory
from bayes_mdp.mdp.netcdf import read_netcdf, write_netcdf

CHUNK = 64
MAX_NUMBERS = 2**25
DELAY = 2.0
WRITE_EVERY = 5.0  # seconds; the file is written whole
PARTS_OF_MDPS = "prior, space, behaviour, objective, method or other quantities"


def identity_of(asked: object) -> str:
    """The identity of what is simulated and inferred; if it has none, a question mark and the reason."""
    try:
        return identity(asked, "the call")
    except UnidentifiedError as error:
        return f"? {error}"


def chunk_of(numbers: int, num_draws: int) -> int:
    """How many simulations of so many numbers each run side by side, given the memory.

    Raises:
        ValueError: not even one.
    """
    check_memory(f"num_draws is {num_draws}", 8.0 * numbers, "fewer draws take less")
    return int(np.clip(MAX_NUMBERS // numbers, 1, CHUNK))


def run_in_chunks(
    key: PRNGKeyArray,
    one: Callable[[PRNGKeyArray], dict[str, Rank]],
    num: int,
    chunk: int,
    attributes: dict[str, str],
    path: Path | None,
    *,
    delay: float = 0.0,
    parts: str = PARTS_OF_MDPS,
) -> xr.Dataset:
    """`Rank` of every quantity as variables, with dims simulation, (draw,) quantity.

    Args:
        key: of all simulations; simulation i has the key `fold_in(key, i)`.
        one: key -> ranks of one simulation; traceable.
        num: number of simulations.
        chunk: how many run side by side at most.
        attributes: of the dataset, `program` (see `identity_of`) among them; a file must have the same to be resumed.
        path: of the file that is resumed; None: none.
        delay: seconds before a bar of progress is shown.
        parts: what `program` identifies, in words.

    Raises:
        ValueError: the file holds simulations of another call, or this cannot be decided.
    """
    from tqdm import tqdm

    # The number of chunks that the largest chunk allows, then chunks of equal size: one compiled program.
    size = -(-num // -(-num // chunk))
    block = jax.jit(lambda start: jax.vmap(lambda i: one(jax.random.fold_in(key, i)))(start + np.arange(size)))
    found = None if path is None or not path.exists() else _resume(path, key, one, attributes, parts)
    done = [] if found is None else [found]
    count = 0 if found is None else found.sizes["simulation"]
    written = time.monotonic()
    # disable=None: silent if the output is no terminal.
    with tqdm(total=num, initial=min(count, num), unit=" simulations", delay=delay, disable=None) as bar:
        while count < num:
            done.append(dataset_of(block(count), count, attributes))
            count += size
            bar.update(min(size, num - bar.n))
            if path is not None and (count >= num or time.monotonic() - written > WRITE_EVERY):
                done = [_joined(done)]
                write_netcdf(done[0], path)
                written = time.monotonic()
    return _joined(done).isel(simulation=slice(num))


def dataset_of(ranks: dict[str, Rank], start: int, attributes: dict[str, str]) -> xr.Dataset:
    """The ranks of a chunk, whose first simulation has the number `start`."""
    names = list(ranks)
    columns: dict[str, tuple[tuple[str, ...], np.ndarray]] = {
        field: (("simulation", "quantity"), np.stack([np.asarray(getattr(ranks[name], field)) for name in names], -1))
        for field in Rank._fields
        if field != "draws"
    }
    columns["draws"] = (("simulation", "draw", "quantity"), np.stack([np.asarray(ranks[n].draws) for n in names], -1))
    length = len(columns["rank"][1])
    coords = {"simulation": np.arange(start, start + length), "quantity": np.array(names)}
    return xr.Dataset(columns, coords, attributes)


def _joined(parts: list[xr.Dataset]) -> xr.Dataset:
    return xr.concat(parts, dim="simulation") if len(parts) > 1 else parts[0]


def _resume(
    path: Path,
    key: PRNGKeyArray,
    one: Callable[[PRNGKeyArray], dict[str, Rank]],
    attributes: dict[str, str],
    parts: str,
) -> xr.Dataset:
    """The finished simulations of a file, if they are of this call: same settings, same truth of simulation 0.

    Raises:
        ValueError: they are of another call, or this cannot be decided.
    """
    found = read_netcdf(path, "a whole NetCDF file of simulations; remove it to start anew")
    expected = f"expected those of this call (path {str(path)!r}; remove it to start anew)"
    program = attributes["program"]
    if program.startswith("?"):
        raise ValueError(f"path may hold other simulations, as {program[2:]}, {expected}")
    for name, value in attributes.items():
        if name != "program" and found.attrs.get(name) != value:
            raise ValueError(f"path holds simulations with {name} {found.attrs.get(name)!r} not {value!r}, {expected}")
    if found.attrs.get("program") != program:
        raise ValueError(f"path holds simulations of another {parts}, {expected}")
    truth = jax.jit(lambda: {name: rank.truth for name, rank in one(jax.random.fold_in(key, 0)).items()})()
    names = found.quantity.values.tolist()
    if sorted(truth) != sorted(names):
        raise ValueError(f"path holds the quantities {names}, {expected}")
    first = np.stack([np.asarray(truth[name]) for name in names])
    if not np.allclose(first, found.truth.values[0], rtol=1e-3, atol=1e-5, equal_nan=True):
        raise ValueError(f"path holds simulations of another key, {expected}")
    return found
