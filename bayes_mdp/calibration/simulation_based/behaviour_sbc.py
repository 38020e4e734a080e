"""`sbc_behaviour`: simulation-based calibration of the inference about people. Host-side; it compiles its own program.

Group and persons are drawn from the prior of `bayes_mdp.behaviour.numpyro_model`, they choose in an environment, and
the same program is fitted to their choices; the rank of a true parameter among the draws is uniform if the posterior
is right. Likelihood, simulation and sampler are tested together.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro import handlers

from bayes_mdp.behaviour import BehaviourModel, ChoiceLog, Task, numpyro_model
from bayes_mdp.behaviour.behaviour_model import check_model
from bayes_mdp.behaviour.fit_behaviour import POOLINGS, Pooling
from bayes_mdp.behaviour.jumps import refuse_jumps
from bayes_mdp.behaviour.likelihood import action_log_likelihood
from bayes_mdp.behaviour.simulate_choices import as_task, simulate_records
from bayes_mdp.calibration.simulation_based.prior_sbc import chunk_of, identity_of, options_of, run_in_chunks
from bayes_mdp.calibration.simulation_based.prior_sbc import sampler as short_sampler
from bayes_mdp.calibration.simulation_based.ranks import Rank, Sites, rank_of_truth
from bayes_mdp.calibration.simulation_based.sbc_result import LIKELIHOOD, SBC
from bayes_mdp.inference.draws.chains import run_chains
from bayes_mdp.inference.draws.methods import NUTS, check_sampler
from bayes_mdp.mdp import Environment
from bayes_mdp.models.isolate import traced_alone
from bayes_mdp.renamed import accepts_moved
from bayes_mdp.utils.files import check_file
from bayes_mdp.utils.messages import count_of
from bayes_mdp.utils.validation import check_count, check_functions, check_key, check_name, check_type

_PARTS = "model, environment, pooling, sampler or other quantities"


class DrawnBehaviour(NamedTuple):
    """Parameters of P persons, the truth or a draw of the posterior, and the choices of the simulation.

    Args:
        params: name -> [P], in the support and unit of the parameter.
        sites: latent sites of `numpyro_model`.
        log_likelihood: of all choices of each person.
        log: the choices.
    """

    params: dict[str, Float[Array, " P"]]
    sites: Sites
    log_likelihood: Float[Array, " P"]
    log: ChoiceLog


BehaviourQuantity: TypeAlias = Callable[[DrawnBehaviour], Float[Array, ""]]


class BehaviourDesign(NamedTuple):
    """What is simulated, fitted and examined; the fields are the arguments of `sbc_behaviour`.

    Args:
        fitted: the model whose parameters are inferred; the same as `model`, unless a fault is planted.
    """

    model: BehaviourModel
    fitted: BehaviourModel
    environment: Environment | Task
    num_subjects: int
    num_choices: int
    num_draws: int
    pooling: Pooling
    horizon: int | None
    sampler: NUTS
    quantities: Mapping[str, BehaviourQuantity] | None


@dataclass(frozen=True)
class SbcBehaviourOptions:
    """Options of `sbc_behaviour`: what is simulated, inferred and looked at.

    Args:
        num_subjects: persons of each simulation.
        num_choices: of each person.
        num_draws: of each posterior, thinned from the chains: they must be nearly independent.
        pooling: as for `behaviour.fit`.
        horizon: as for `behaviour.simulate`.
        sampler: None: one chain of four times `num_draws`, not the four chains of `behaviour.fit`.
        quantities: name -> function of a `DrawnBehaviour` that gives a number. None: every site of the group, every
            parameter of the first subject, and the log-likelihood of all choices.

    Raises:
        TypeError, ValueError: one sentence about the option at fault.

    Example:
        >>> bm.calibration.SbcBehaviourOptions(num_subjects=4, pooling="none").num_choices
        100
    """

    num_subjects: int = 10
    num_choices: int = 100
    num_draws: int = 100
    pooling: Pooling = "partial"
    horizon: int | None = None
    sampler: NUTS | None = None
    quantities: Mapping[str, BehaviourQuantity] | None = None

    def __post_init__(self) -> None:
        for name in ("num_subjects", "num_choices", "num_draws"):
            check_count(name, getattr(self, name))
        check_name("pooling", self.pooling, POOLINGS)
        if self.horizon is not None:
            check_count("horizon", self.horizon)
        check_functions("quantities", self.quantities)
        if self.sampler is not None:
            check_sampler(self.sampler)


@accepts_moved("calibration.sbc_behaviour")
def sbc_behaviour(
    key: PRNGKeyArray,
    model: BehaviourModel,
    environment: Environment | Task,
    *,
    num_simulations: int = 256,
    path: str | Path | None = None,
    options: SbcBehaviourOptions = SbcBehaviourOptions(),
) -> SBC:
    """Ranks of true parameters among those that `behaviour.fit` draws; `print` it for a verdict in words.

    As `sbc` of a prior over MDPs: all simulations run in one compiled program, in chunks, at the precision in force.
    The priors are those of `model.parameters`.

    Args:
        key: of all simulations.
        model: how persons choose and learn.
        environment: as for `behaviour.simulate`.
        num_simulations: number of groups, data sets and posteriors.
        path: a NetCDF file for the finished chunks, written every five seconds: the same call resumes from it.
        options: how many persons and choices, how they are inferred, what is compared (see `SbcBehaviourOptions`).

    Raises:
        ValueError: a number out of range; a model without parameters, or one that `behaviour.fit` refuses; fewer draws
            in the chains than `num_draws`; a file of other simulations.
        TypeError: an argument of another type.
        FileNotFoundError: `path` lies in no folder that exists. PermissionError: nothing can be written there.
    """
    check_key("key", key)
    check_model(model)
    check_count("num_simulations", num_simulations)
    check_type("options", options, SbcBehaviourOptions, "SbcBehaviourOptions")
    num_subjects, num_choices, num_draws = options.num_subjects, options.num_choices, options.num_draws
    pooling, horizon, quantities = options.pooling, options.horizon, options.quantities
    as_task(environment, horizon)
    file = None if path is None else check_file(path)
    sampler = short_sampler(num_draws) if options.sampler is None else options.sampler
    if not model.parameters:
        raise ValueError("model has no parameters, expected at least one to infer")
    # No draw is used twice.
    available = sampler.num_chains * sampler.num_samples
    if available < num_draws:
        raise ValueError(f"sampler makes {available} draws, expected at least num_draws, {num_draws}")
    if sampler.kernel is None:
        refuse_jumps(model, ends=as_task(environment, horizon)[1])
    design = BehaviourDesign(
        model, model, environment, num_subjects, num_choices, num_draws, pooling, horizon, sampler, quantities
    )
    # What two calls must share for one to resume the other.
    request = (model, environment, pooling, horizon, sampler, quantities, num_subjects, num_choices)
    attributes = {
        "method": "nuts",
        "options": options_of(sampler),
        "program": identity_of(request),
        "data": f"{count_of(num_choices, 'choice')} of {count_of(num_subjects, 'subject')} (pooling {pooling})",
        "num_draws": str(num_draws),
    }
    make = partial(simulation_of_behaviour, design)
    return SBC(run_in_chunks(key, make, num_simulations, _chunk(design), attributes, file, parts=_PARTS))


def _chunk(design: BehaviourDesign) -> int:
    """How many simulations run side by side."""
    actions = len(as_task(design.environment, design.horizon)[0].actions)
    # Draws of up to three sites of each parameter: mean, spread, z.
    drawn = design.sampler.num_chains * design.sampler.num_samples * 3 * len(design.model.parameters)
    return chunk_of(design.num_subjects * (design.num_choices * (8 + 4 * actions) + drawn), design.num_draws)


def simulation_of_behaviour(design: BehaviourDesign) -> Callable[[PRNGKeyArray], dict[str, Rank]]:
    """key -> `Rank` of every quantity in one simulated group. Traceable: vmap it over keys."""

    def one(key: PRNGKeyArray) -> dict[str, Rank]:
        key_truth, key_choices, key_fit, key_ties = jax.random.split(key, 4)
        truth, log = _simulate_group(design, key_truth, key_choices)
        program = numpyro_model(design.fitted, log, design.pooling)
        chains = run_chains(key_fit, program, log, design.sampler)
        # Evenly thinned, chains one after the other.
        total = design.sampler.num_chains * design.sampler.num_samples
        draw_index = np.linspace(0, total - 1, design.num_draws).round().astype(int)
        draws = {name: x.reshape(total, *x.shape[2:])[draw_index] for name, x in chains.draws.items()}
        # The truth comes first: quantities are computed for it and the draws in the same way.
        points = {name: jnp.concatenate([truth[name][None], x]) for name, x in draws.items()}
        # One point at a time: a likelihood of all choices each.
        values = jax.lax.map(lambda sites: _values(design, log, sites), points)
        ties = jax.random.split(key_ties, len(values))
        return OrderedDict((name, rank_of_truth(tie, values[name])) for tie, name in zip(ties, values, strict=True))

    return one


@traced_alone
def _simulate_group(
    design: BehaviourDesign, key_truth: PRNGKeyArray, key_choices: PRNGKeyArray
) -> tuple[Sites, ChoiceLog]:
    """The latent sites of a group drawn from the prior, and its choices."""
    task, ends = as_task(design.environment, design.horizon)
    shape = (design.num_subjects, design.num_choices)
    zero, labels = np.zeros(shape, np.int32), {"states": tuple(task.states), "actions": tuple(task.actions)}
    # As many records as there will be: the program reads their number.
    blank = ChoiceLog(zero, zero, np.zeros(shape), zero, zero == 1 if ends else None, **labels)
    # The prior: the program with its choices drawn anew. These are not used, so they are not computed either.
    program = handlers.seed(numpyro_model(design.model, blank, design.pooling), key_truth)
    trace = handlers.trace(program).get_trace(predict=True)
    sites = {name: x["value"] for name, x in trace.items() if x["type"] == "sample" and name != "choice"}
    # Under complete pooling all persons have the same value.
    params = {name: jnp.broadcast_to(trace[name]["value"], shape[:1]) for name in design.model.parameters}
    keys = jax.random.split(key_choices, design.num_subjects)
    columns = simulate_records(keys, design.model, params, task, design.num_choices, design.horizon)
    state, action, reward, following, ended = columns
    return sites, ChoiceLog(state, action, reward, following, ended if ends else None, np.ones(shape, bool), **labels)


@traced_alone
def _values(design: BehaviourDesign, log: ChoiceLog, sites: Sites) -> OrderedDict[str, Float[Array, ""]]:
    """Every quantity of one draw."""
    # The parameters of persons as the program makes them of its sites.
    program = handlers.substitute(numpyro_model(design.fitted, log, design.pooling), sites)
    # A key for what is not given: nothing of it is used.
    trace = handlers.trace(handlers.seed(program, jax.random.key(0))).get_trace()
    params = {name: jnp.broadcast_to(trace[name]["value"], (design.num_subjects,)) for name in design.fitted.parameters}
    drawn = DrawnBehaviour(params, sites, action_log_likelihood(design.fitted, params, log).sum(axis=1), log)
    if design.quantities is None:
        values = OrderedDict((name, x) for name, x in sites.items() if jnp.ndim(x) == 0)
        if design.pooling != "complete":
            # One person stands for all, who are exchangeable.
            values.update((f"{name} of subject 0", x[0]) for name, x in params.items())
        values[LIKELIHOOD] = drawn.log_likelihood.sum()
        return values
    values = OrderedDict((name, jnp.asarray(quantity(drawn))) for name, quantity in design.quantities.items())
    for name, value in values.items():
        if value.shape:
            raise ValueError(f"quantities[{name!r}] gives an array of shape {value.shape}, expected one number")
    return values
