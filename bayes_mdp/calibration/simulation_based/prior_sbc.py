"""`sbc`: simulation-based calibration of an inference method under a prior. Host-side; it compiles its own program.

Talts et al. (2018), *Validating Bayesian inference algorithms with simulation-based calibration*: draw a truth from the
prior, data from the truth, draws from the posterior; the rank of the truth among the draws is uniform if the posterior
is right.
"""

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import jax
import numpy as np
import xarray as xr
from jaxtyping import PRNGKeyArray

from bayes_mdp.calibration.simulation_based.quantities import Quantity
from bayes_mdp.calibration.simulation_based.ranks import Behaviour, Design, simulation
from bayes_mdp.calibration.simulation_based.sbc_result import SBC
from bayes_mdp.calibration.simulation_based.simulation_runs import chunk_of, identity_of, run_in_chunks
from bayes_mdp.inference.compiled_fit import Fit
from bayes_mdp.inference.detection.detect_rows import bent
from bayes_mdp.inference.detection.probe import Probe
from bayes_mdp.inference.detection.trace import trace_program
from bayes_mdp.inference.draws.methods import NUTS, Method
from bayes_mdp.inference.route import fit_for
from bayes_mdp.mdp import AverageReward, Discounted, Episodic, Objective, StateActionSpace
from bayes_mdp.mdp.objectives import check_objective
from bayes_mdp.mdp.space import check_space
from bayes_mdp.models.isolate import isolated_prior
from bayes_mdp.models.mdp_spec import Prior
from bayes_mdp.models.partial_pooling import PartialPooling
from bayes_mdp.parallel import ExecutorLike, check_executor
from bayes_mdp.utils.files import check_file
from bayes_mdp.utils.progress import DELAY
from bayes_mdp.utils.validation import check_count, check_functions, check_key


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
    executor: ExecutorLike = None,
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
        executor: where the chunks of up to 64 simulations are computed (see `ExecutorLike`): the same numbers
            everywhere (under `jax.enable_x64` to rounding: there the last bits depend on what the process compiled
            before). Every worker compiles the program.

    Raises:
        ValueError: a number out of range; a prior without such a fit; a file of other simulations; the average reward
            in a space where episodes end.
        TypeError: a posterior whose reward law cannot be drawn.
        FileNotFoundError: `path` lies in no folder that exists. PermissionError: nothing can be written there.

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(1, 1)
        >>> result = bm.sbc(
        ...     jax.random.key(0), prior, space, num_simulations=32, num_draws=15, num_transitions=5
        ... )
        >>> result.passed
        True
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
    check_executor(executor)
    file = None if path is None else check_file(path)
    fit = method if isinstance(method, Fit) else fit_for(prior, space, method, sampler=sampler(num_draws))
    drawn = prior if isinstance(prior, PartialPooling) else _drawable(prior, space)
    design = Design(drawn, space, num_draws, num_transitions, quantities, behaviour, objective)
    asked = (prior, space, quantities, behaviour, objective, method)
    attributes = {"method": fit.method, "options": options_of(method), "program": identity_of(asked)}
    return SBC(run_simulations(key, design, fit, num_simulations, attributes, file, executor))


def _drawable(prior: Prior, space: StateActionSpace) -> Prior:
    """The prior, as truths are drawn from it.

    Raises:
        ValueError: running the program does not draw from its density.
    """
    read = isolated_prior(prior)
    with jax.enable_x64(True):
        program = trace_program(read, space)
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
    numbers = design.num_draws * (4 * table + design.num_transitions)
    return chunk_of(numbers, design.num_draws)
