"""`sbc`: simulation-based calibration of an inference method under a prior. Host-side; it compiles its own program.

Talts et al. (2018), *Validating Bayesian inference algorithms with simulation-based calibration*: draw a truth from the
prior, data from the truth, draws from the posterior; the rank of the truth among the draws is uniform if the posterior
is right.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import jax
import numpy as np
import xarray as xr
from jaxtyping import PRNGKeyArray

from bayes_mdp.calibration.simulation_based.quantities import Quantity
from bayes_mdp.calibration.simulation_based.ranks import Behaviour, Design, Rank, StagedSimulation, simulation
from bayes_mdp.calibration.simulation_based.sbc_result import SBC
from bayes_mdp.inference.compiled_fit import Fit
from bayes_mdp.inference.detection.detect_rows import bent
from bayes_mdp.inference.detection.probe import Probe
from bayes_mdp.inference.detection.trace import trace_program
from bayes_mdp.inference.draws.methods import NUTS, Method
from bayes_mdp.inference.route import METHODS, fit_for
from bayes_mdp.mdp import AverageReward, Discounted, Episodic, Objective, StateActionSpace
from bayes_mdp.mdp.contexts import refuse_contexts
from bayes_mdp.mdp.objectives import check_objective
from bayes_mdp.mdp.space import check_space
from bayes_mdp.models.isolate import isolated_prior
from bayes_mdp.models.mdp_spec import Prior
from bayes_mdp.models.partial_pooling import PartialPooling
from bayes_mdp.numerics.host_program import QUICKEST, quick_jit
from bayes_mdp.parallel import ExecutorLike, Task, check_executor, run_tasks
from bayes_mdp.renamed import accepts_moved
from bayes_mdp.utils.files import check_file, read_netcdf, write_netcdf
from bayes_mdp.utils.identity import UnidentifiedError, identity
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.progress import DELAY, bar_of, stage
from bayes_mdp.utils.validation import check_count, check_functions, check_key, check_name, check_type

Simulation: TypeAlias = Callable[[PRNGKeyArray], dict[str, Rank]] | StagedSimulation
"""key -> ranks of one simulation; traceable, or in stages."""

CHUNK = 64
MAX_NUMBERS = 2**25
WRITE_EVERY = 5.0  # seconds; the file is written whole
PARTS_OF_MDPS = "prior, space, behaviour, objective, method or other quantities"


@dataclass(frozen=True)
class SbcOptions:
    """Options of `sbc` that seldom change; those of `check` are `CheckOptions`.

    Args:
        num_draws: of each posterior. They must be nearly independent: chains are thinned to this number.
        num_transitions: of each data set.
        method: as for `infer`, or a `Fit`. If a name leads to NUTS, one chain of four times `num_draws` is run for each
            data set (see `sampler`), not the four chains of `infer`; a `NUTS` is used as given.
        quantities: name -> function of a `Drawn` that gives a number. None: `default_quantities(space)`, and every
            latent site that the posterior draws by name: the number, each element of up to eight, the mean of more.
        behaviour: None: pairs at random, uniformly. A policy ([*H S] actions, [*H S A] probabilities or a `Policy`):
            its trajectory from a uniform first state. The values of the quantities are of this policy (None: uniform).
        executor: where the chunks of up to 64 simulations are computed (see `ExecutorLike`): the same numbers
            everywhere (under `jax.enable_x64` to rounding: there the last bits depend on what the process compiled
            before). Every worker compiles the program.

    Raises:
        TypeError, ValueError: one sentence about the option at fault.
        ImportError: `executor` is a Dask cluster, and Dask is not installed.

    Example:
        >>> bm.calibration.SbcOptions(num_transitions=5).num_draws
        100
    """

    num_draws: int = 100
    num_transitions: int = 100
    method: str | Method | Fit = "auto"
    quantities: Mapping[str, Quantity] | None = None
    behaviour: Behaviour = None
    executor: ExecutorLike = None

    def __post_init__(self) -> None:
        check_count("num_draws", self.num_draws)
        check_count("num_transitions", self.num_transitions)
        if not isinstance(self.method, (Method, Fit)):
            check_name("method", self.method, METHODS, ", or a record NUTS(...), SVI(...), Laplace(...)")
        check_functions("quantities", self.quantities)
        check_executor(self.executor)


@accepts_moved("calibration.sbc")
def sbc(
    key: PRNGKeyArray,
    prior: Prior,
    space: StateActionSpace,
    *,
    objective: Objective | None = None,
    num_simulations: int = 256,
    path: str | Path | None = None,
    options: SbcOptions = SbcOptions(),
) -> SBC:
    """Ranks of truths among posterior draws, and what they show of the posterior; `print` it for a verdict in words.

    All simulations run in one compiled program, in chunks, at the precision in force (float32, or float64 under
    `jax.enable_x64`). Simulation i does not depend on how many there are.

    Args:
        key: of all simulations.
        prior: a NumPyro program, space -> `MDPSpec`: the distribution of the truths.
        space: of the prior.
        objective: of the values. None: `Discounted(0.9)`, or `Episodic(H)` in a space with a horizon.
        num_simulations: number of truths, data sets and posteriors.
        path: a NetCDF file for the finished chunks, written every five seconds: the same call resumes from it.
        options: sizes of data sets and posteriors, the inference, what is compared, where it is computed (see
            `SbcOptions`).

    Raises:
        ValueError: a number out of range; a prior without such a fit; a file of other simulations; the average reward
            in a space where episodes end.
        TypeError: a posterior whose reward law cannot be drawn.
        FileNotFoundError: `path` lies in no folder that exists. PermissionError: nothing can be written there.

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(1, 1)
        >>> options = bm.calibration.SbcOptions(num_draws=15, num_transitions=5)
        >>> result = bm.calibration.sbc(jax.random.key(0), prior, space, num_simulations=32, options=options)
        >>> result.passed
        True
    """
    check_key("key", key)
    check_count("num_simulations", num_simulations)
    check_space(space)
    check_type("options", options, SbcOptions, "SbcOptions")
    refuse_contexts(space, "sbc")
    method, quantities, behaviour = options.method, options.quantities, options.behaviour
    if objective is not None:
        check_objective(objective)
    if objective is None:
        objective = Discounted(0.9) if space.horizon is None else Episodic(space.horizon)
    if isinstance(objective, AverageReward) and space.ends:
        raise ValueError("objective is AverageReward() and episodes can end, expected another objective")
    file = None if path is None else check_file(path)
    fit = method if isinstance(method, Fit) else fit_for(prior, space, method, sampler=sampler(options.num_draws))
    # Pooling draws from its program as it is.
    drawn = prior if isinstance(prior, PartialPooling) else _drawable(prior, space)
    design = Design(drawn, space, options.num_draws, options.num_transitions, quantities, behaviour, objective)
    request = (prior, space, quantities, behaviour, objective, method)
    attributes = {"method": fit.method, "options": options_of(method), "program": identity_of(request)}
    return SBC(run_simulations(key, design, fit, num_simulations, attributes, file, options.executor))


def _drawable(prior: Prior, space: StateActionSpace) -> Prior:
    """The prior, as truths are drawn from it.

    Raises:
        ValueError: running the program does not draw from its density.
    """
    read = isolated_prior(prior)
    with jax.enable_x64(True):
        program = trace_program(read, space)
        # Sites that are constant have no density to disagree with.
        constants = Probe(program).constants
    for site in program.sites:
        if (why := bent(site)) and site.name not in constants:
            raise ValueError(
                f"prior: site {site.name!r}: {why}, so that running the program does not draw truths from its prior, "
                "expected a prior of sample sites alone"
            )
    return read


def options_of(method: str | Method | Fit) -> str:
    """The method and its options as text, without addresses: the same in every process."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(method))


def sampler(num_draws: int) -> NUTS:
    """One chain, four times as long as the number of draws that are kept of it."""
    return NUTS(num_warmup=300, num_samples=max(4 * num_draws, 200), num_chains=1)


def run_simulations(
    key: PRNGKeyArray,
    design: Design,
    fit: Fit,
    num: int,
    attributes: dict[str, str],
    path: Path | None,
    executor: ExecutorLike = None,
) -> xr.Dataset:
    """`run_in_chunks` of `simulation(design, fit)`: ranks of truths in posteriors of MDPs.

    Args:
        key, num, attributes, path: as there.
        design: what is simulated and examined.
        fit: the inference.
        executor: where the chunks are computed.

    Raises:
        ValueError: as `sbc`. RuntimeError: a chunk failed on the executor.
    """
    attributes = {**attributes, "num_draws": str(design.num_draws), "num_transitions": str(design.num_transitions)}
    # Chains take long: their bar is shown from the start.
    delay = DELAY if fit.method == "exact" else 0.0
    make, chunk = partial(simulation, design, fit), _chunk(design)
    return run_in_chunks(key, make, num, chunk, attributes, path, delay=delay, executor=executor)


def _chunk(design: Design) -> int:
    """How many simulations run side by side, given the memory.

    Raises:
        ValueError: not even one.
    """
    table = int(np.prod(design.space.shape)) * design.space.n_outcomes
    # Draws with their tables, and the likelihood of every transition.
    numbers = design.num_draws * (4 * table + design.num_transitions)
    return chunk_of(numbers, design.num_draws)


# Simulations, whatever is simulated: in chunks, with progress, resumed from a file. What `run_in_chunks` is given is
# compiled once in every process that runs chunks.


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
    # At most as many as fit; at least one.
    return int(np.clip(MAX_NUMBERS // numbers, 1, CHUNK))


def run_in_chunks(
    key: PRNGKeyArray,
    make: Callable[[], Simulation],
    num: int,
    chunk: int,
    attributes: dict[str, str],
    path: Path | None,
    *,
    delay: float = 0.0,
    parts: str = PARTS_OF_MDPS,
    executor: ExecutorLike = None,
) -> xr.Dataset:
    """`Rank` of every quantity as variables, with dims simulation, (draw,) quantity.

    Args:
        key: of all simulations; simulation i has the key `fold_in(key, i)`.
        make: makes the simulation; it is what travels to other processes.
        num: number of simulations.
        chunk: how many run side by side at most.
        attributes: of the dataset, `program` (see `identity_of`) among them; a file must have the same to be resumed.
        path: of the file that is resumed; None: none.
        delay: seconds before a bar of progress is shown.
        parts: what `program` identifies, in words.
        executor: where the chunks are computed; None: in this process.

    Raises:
        ValueError: the file holds simulations of another call, or this cannot be decided. RuntimeError: a chunk failed
            on the executor.
    """
    # The number of chunks that the largest chunk allows, then chunks of equal size: one compiled program.
    size = -(-num // -(-num // chunk))
    block = SimulationBlock(key, make, size)
    # Simulations of a file come first; the rest goes on from their number.
    stored = None if path is None or not path.exists() else _resume(path, key, make(), attributes, parts)
    done = [] if stored is None else [stored]
    count = 0 if stored is None else stored.sizes["simulation"]
    written = time.monotonic()
    with stage("simulations"), bar_of(num, " simulations", done=min(count, num), delay=delay) as bar:
        for ranks in _in_order(block, range(count, num, size), executor):
            # The first of a block has the number of those before it.
            done.append(dataset_of(ranks, count, attributes))
            count += size
            bar.update(min(size, num - bar.n))
            # Rewritten whole, and so not after every block.
            if path is not None and (count >= num or time.monotonic() - written > WRITE_EVERY):
                done = [_join(done)]
                write_netcdf(done[0], path)
                written = time.monotonic()
    return _join(done).isel(simulation=slice(num))


class SimulationBlock:
    """(first simulation) -> `Rank` of every quantity for `size` simulations. It compiles once in every process.

    Args:
        key: of all simulations.
        make: makes one simulation.
        size: number of simulations.
    """

    def __init__(self, key: PRNGKeyArray, make: Callable[[], Simulation], size: int) -> None:
        self._parts = key, make, size
        self._compiled: Callable[[int], dict[str, Rank]] | None = None

    def __call__(self, start: int) -> dict[str, Rank]:
        """Simulations `start` to `start + size - 1`."""
        # Compiled on the first call, in the process that runs it.
        if self._compiled is None:
            key, make, size = self._parts
            simulate = make()
            if isinstance(simulate, StagedSimulation):
                self._compiled = _run_stages(key, simulate, size)
            else:
                # Simulation i has the key fold_in(key, i), whatever the size of the block.
                number = np.arange(size)
                self._compiled = jax.jit(
                    lambda start: jax.vmap(lambda i: simulate(jax.random.fold_in(key, i)))(start + number)
                )
        return self._compiled(start)


def _run_stages(key: PRNGKeyArray, one: StagedSimulation, size: int) -> Callable[[int], dict[str, Rank]]:
    """The same in stages: what can be traced is compiled for all simulations of a block at once."""
    keys_of = jax.jit(lambda start: jax.vmap(lambda i: jax.random.fold_in(key, i))(start + np.arange(size)))
    simulate, examine = (quick_jit(jax.vmap(part), options=QUICKEST) for part in (one.simulate, one.examine))

    def run(start: int) -> dict[str, Rank]:
        keys = keys_of(start)
        simulated = simulate(keys)
        # Data of all simulations come to the host at once.
        data = jax.tree.map(np.asarray, simulated.data)
        inferred = [one.infer(keys[i], jax.tree.map(lambda x, i=i: x[i], data)) for i in range(size)]
        return examine(keys, simulated, *jax.tree.map(lambda *x: np.stack(x), *inferred))

    return run


def _in_order(block: SimulationBlock, starts: range, executor: ExecutorLike) -> Iterator[dict[str, Rank]]:
    """The blocks from all `starts`, in their order, which is not that in which an executor finishes them.

    Raises:
        RuntimeError: one failed on the executor.
    """
    if executor is None:
        yield from map(block, starts)
        return
    # Blocks that are finished before their turn wait here.
    early: dict[int, dict[str, Rank]] = {}
    left = iter(starts)
    awaited = next(left, None)
    for finished in run_tasks(block, [Task(str(start), (start,)) for start in starts], executor):
        if finished.value is None:
            raise RuntimeError(f"the simulations from {finished.name} on failed: {finished.error}")
        early[int(finished.name)] = finished.value
        while awaited in early:
            yield early.pop(awaited)
            awaited = next(left, None)


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


def _join(parts: list[xr.Dataset]) -> xr.Dataset:
    return xr.concat(parts, dim="simulation") if len(parts) > 1 else parts[0]


def _resume(
    path: Path,
    key: PRNGKeyArray,
    one: Simulation,
    attributes: dict[str, str],
    parts: str,
) -> xr.Dataset:
    """The finished simulations of a file, if they are of this call: same settings, same truth of simulation 0.

    Raises:
        ValueError: they are of another call, or this cannot be decided.
    """
    stored = read_netcdf(path, "a whole NetCDF file of simulations; remove it to start anew")
    expected = f"expected those of this call (path {str(path)!r}; remove it to start anew)"
    program = attributes["program"]
    if program.startswith("?"):
        raise ValueError(f"path may hold other simulations, as {program[2:]}, {expected}")
    for name, value in attributes.items():
        if name != "program" and stored.attrs.get(name) != value:
            raise ValueError(f"path holds simulations with {name} {stored.attrs.get(name)!r} not {value!r}, {expected}")
    if stored.attrs.get("program") != program:
        raise ValueError(f"path holds simulations of another {parts}, {expected}")
    # The key is not in the file: the truth of simulation 0 tells whether it is the same.
    # In stages all of simulation 0 is run; its truth is one of the results.
    if isinstance(one, StagedSimulation):
        truth = {name: rank.truth[0] for name, rank in _run_stages(key, one, 1)(0).items()}
    else:
        truth = jax.jit(lambda: {name: rank.truth for name, rank in one(jax.random.fold_in(key, 0)).items()})()
    names = stored.quantity.values.tolist()
    if sorted(truth) != sorted(names):
        raise ValueError(f"path holds the quantities {names}, {expected}")
    first = np.stack([np.asarray(truth[name]) for name in names])
    # To rounding: another machine may add in another order.
    if not np.allclose(first, stored.truth.values[0], rtol=1e-3, atol=1e-5, equal_nan=True):
        raise ValueError(f"path holds simulations of another key, {expected}")
    return stored
