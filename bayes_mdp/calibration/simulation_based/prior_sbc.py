"""`sbc`: simulation-based calibration of an inference method under a prior. Host-side; it compiles its own program.

Talts et al. (2018), *Validating Bayesian inference algorithms with simulation-based calibration*: draw a truth from the
prior, data from the truth, draws from the posterior; the rank of the truth among the draws is uniform if the posterior
is right.
"""

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import jax
import numpy as np
import xarray as xr
from jaxtyping import PRNGKeyArray

from bayes_mdp.calibration.simulation_based.quantities import Quantity
from bayes_mdp.calibration.simulation_based.ranks import Behaviour, Design, Rank, simulation
from bayes_mdp.calibration.simulation_based.sbc_result import SBC
from bayes_mdp.inference.compiled_fit import Fit
from bayes_mdp.inference.draws.methods import NUTS, Method
from bayes_mdp.inference.route import fit_for
from bayes_mdp.mdp import AverageReward, Discounted, Episodic, Objective, StateActionSpace
from bayes_mdp.mdp.files import check_file
from bayes_mdp.mdp.identity import UnidentifiedError, identity
from bayes_mdp.mdp.memory import check_memory
from bayes_mdp.mdp.netcdf import read_netcdf, write_netcdf
from bayes_mdp.mdp.objectives import check_objective
from bayes_mdp.mdp.space import check_space
from bayes_mdp.mdp.validation import check_count, check_functions, check_key
from bayes_mdp.models.mdp_spec import Prior

CHUNK = 64
MAX_NUMBERS = 2**25
DELAY = 2.0
_PARTS = "prior, space, behaviour, objective, method or other quantities"
WRITE_EVERY = 5.0  # seconds; the file is written whole


def sbc(  # noqa: PLR0913 - what is simulated, inferred and looked at
    key: PRNGKeyArray,
    prior: Prior,
    space: StateActionSpace,
    *,
    num_simulations: int = 256,
    num_draws: int = 100,
    num_transitions: int = 100,
    method: str | Method | Fit = "auto",
    quantities: Mapping[str, Quantity] | None = None,
    behaviour: Behaviour = None,
    objective: Objective | None = None,
    path: str | Path | None = None,
) -> SBC:
    """Ranks of truths among posterior draws, and what they show of the posterior; `print` it for a verdict in words.

    All simulations run in one compiled program, in chunks, at the precision in force (float32, or float64 under
    `jax.enable_x64`). Simulation i does not depend on how many there are.

    Args:
        key: of all simulations.
        prior: a NumPyro program, space -> `MDPSpec`: the distribution of the truths.
        space: of the prior.
        num_simulations: number of truths, data sets and posteriors.
        num_draws: of each posterior. They must be nearly independent: chains are thinned to this number.
        num_transitions: of each data set.
        method: as for `infer`, or a `Fit`. If a name leads to NUTS, one chain of four times `num_draws` is run for each
            data set (see `sampler`), not the four chains of `infer`; a `NUTS` is used as given.
        quantities: name -> function of a `Drawn` that gives a number. None: `default_quantities(space)`, and every
            latent site of one number that the posterior draws by name.
        behaviour: None: pairs at random, uniformly. A policy ([*H S] actions, [*H S A] probabilities or a `Policy`):
            its trajectory from a uniform first state. The values of the quantities are of this policy (None: uniform).
        objective: of the values. None: `Discounted(0.9)`, or `Episodic(H)` in a space with a horizon.
        path: a NetCDF file for the finished chunks, written every five seconds: the same call resumes from it.

    Raises:
        ValueError: a number out of range; a prior without such a fit; a file of other simulations; the average reward
            in a space where episodes end.
        TypeError: a posterior whose reward law cannot be drawn.
    """
    check_key("key", key)
    for name, value in (("simulations", num_simulations), ("draws", num_draws), ("transitions", num_transitions)):
        check_count(f"num_{name}", value)
    check_space(space)
    check_functions("quantities", quantities)
    if objective is not None:
        check_objective(objective)
    if objective is None:
        objective = Discounted(0.9) if space.horizon is None else Episodic(space.horizon)
    if isinstance(objective, AverageReward) and space.ends:
        raise ValueError("objective is AverageReward() and episodes can end, expected another objective")
    file = None if path is None else check_file(path)
    fit = method if isinstance(method, Fit) else fit_for(prior, space, method, sampler=sampler(num_draws))
    design = Design(prior, space, num_draws, num_transitions, quantities, behaviour, objective)
    asked = (prior, space, quantities, behaviour, objective, method)
    attributes = {"method": fit.method, "options": options_of(method), "program": identity_of(asked)}
    return SBC(run_simulations(key, design, fit, num_simulations, attributes, file))


def options_of(method: str | Method | Fit) -> str:
    """The method and its options as text, without addresses: the same in every process."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(method))


def identity_of(asked: object) -> str:
    """The identity of what is simulated and inferred; if it has none, a question mark and the reason."""
    try:
        return identity(asked, "the call")
    except UnidentifiedError as error:
        return f"? {error}"


def sampler(num_draws: int) -> NUTS:
    """One chain, four times as long as the number of draws that are kept of it."""
    return NUTS(num_warmup=300, num_samples=max(4 * num_draws, 200), num_chains=1)


def run_simulations(
    key: PRNGKeyArray, design: Design, fit: Fit, num: int, attributes: dict[str, str], path: Path | None
) -> xr.Dataset:
    """`Rank` of every quantity as variables, with dims simulation, (draw,) quantity.

    Args:
        key: of all simulations; simulation i has the key `fold_in(key, i)`.
        design: what is simulated and examined.
        fit: the inference.
        num: number of simulations.
        attributes: of the dataset; a file must have the same to be resumed.
        path: of the file that is resumed; None: none.

    Raises:
        ValueError: as `sbc`.
    """
    from tqdm import tqdm

    one = simulation(design, fit)
    # The number of chunks that the largest chunk allows, then chunks of equal size: one compiled program.
    size = -(-num // -(-num // _chunk(design)))
    block = jax.jit(lambda start: jax.vmap(lambda i: one(jax.random.fold_in(key, i)))(start + np.arange(size)))
    attributes = {**attributes, "num_draws": str(design.num_draws), "num_transitions": str(design.num_transitions)}
    found = None if path is None or not path.exists() else _resume(path, key, one, attributes)
    done = [] if found is None else [found]
    count = 0 if found is None else found.sizes["simulation"]
    written = time.monotonic()
    # Chains take long: their bar is shown from the start. disable=None: silent if the output is no terminal.
    delay = DELAY if fit.method == "exact" else 0.0
    with tqdm(total=num, initial=min(count, num), unit=" simulations", delay=delay, disable=None) as bar:
        while count < num:
            done.append(_dataset(block(count), count, attributes))
            count += size
            bar.update(min(size, num - bar.n))
            if path is not None and (count >= num or time.monotonic() - written > WRITE_EVERY):
                done = [_joined(done)]
                write_netcdf(done[0], path)
                written = time.monotonic()
    return _joined(done).isel(simulation=slice(num))


def _chunk(design: Design) -> int:
    """How many simulations run side by side, given the memory.

    Raises:
        ValueError: not even one.
    """
    table = int(np.prod(design.space.shape)) * design.space.n_outcomes
    numbers = design.num_draws * (4 * table + design.num_transitions)
    check_memory(f"num_draws is {design.num_draws}", 8.0 * numbers, "fewer draws take less")
    return int(np.clip(MAX_NUMBERS // numbers, 1, CHUNK))


def _dataset(ranks: dict[str, Rank], start: int, attributes: dict[str, str]) -> xr.Dataset:
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
    path: Path, key: PRNGKeyArray, one: Callable[[PRNGKeyArray], dict[str, Rank]], attributes: dict[str, str]
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
        raise ValueError(f"path holds simulations of another {_PARTS}, {expected}")
    truth = jax.jit(lambda: {name: rank.truth for name, rank in one(jax.random.fold_in(key, 0)).items()})()
    names = found.quantity.values.tolist()
    if sorted(truth) != sorted(names):
        raise ValueError(f"path holds the quantities {names}, {expected}")
    first = np.stack([np.asarray(truth[name]) for name in names])
    if not np.allclose(first, found.truth.values[0], rtol=1e-3, atol=1e-5, equal_nan=True):
        raise ValueError(f"path holds simulations of another key, {expected}")
    return found
