"""`run` measured in trials: an agent that learns from whole trials, in a world with listed states or without."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from bayes_mdp.agents.common.replan import EveryEpisode
from bayes_mdp.experiments.describe import describe, describe_case
from bayes_mdp.experiments.progress import Progress
from bayes_mdp.experiments.results import FORMAT
from bayes_mdp.experiments.resume import Snapshots
from bayes_mdp.experiments.rollout.hashed_states import HashedStates, HashIndex
from bayes_mdp.experiments.rollout.regret import optimal_plan
from bayes_mdp.experiments.rollout.run_beliefs import on_device
from bayes_mdp.experiments.rollout.simulator import simulator
from bayes_mdp.experiments.rollout.sweep_loop import (
    FINISHED,
    Lane,
    TabularStates,
    TrialContext,
    Trials,
    begin_all,
    play,
)
from bayes_mdp.experiments.run_config import RunConfig, check_request, check_sizes
from bayes_mdp.mdp import Environment, FirstExit, Problem, SimulatedEnvironment, StateActionSpace
from bayes_mdp.planning.solve import refuse_improper
from bayes_mdp.random import fused_key

if TYPE_CHECKING:
    import xarray as xr

CHUNKS = 64  # of a call of `play`, each `trial_loop.CHUNK` iterations


class Prepared(NamedTuple):
    """A run in trials, ready to be played."""

    trials: Trials
    setting: TrialContext
    keys: Key[Array, " N"]


def run_trials(case: RunConfig, path: str | Path | None) -> "xr.Dataset":
    """What `run` does where it is measured in trials (see there).

    Raises:
        ValueError, TypeError: one sentence about the argument at fault.
    """
    check_request(case)
    _check(case)
    prepared = prepare(case)
    space = prepared.setting.problem.space
    attributes = describe_case(case, environment=describe(case.env, "env"), space=space, belief=None)
    if not isinstance(case.env, Environment):
        attributes["configuration"]["table_rows"] = case.options.table_rows
    optimum, why = _optimum(case)
    number, options = case.num_seeds * case.length, case.options
    progress = Progress(1, number, show=options.progress, unit=" trials")
    lanes = play_all(prepared, progress, Snapshots(path, attributes, seconds=options.snapshot_seconds))
    if why:
        attributes["regret_unknown"] = why
    log = np.asarray(lanes.log, np.float64)
    if isinstance(lanes.index, HashIndex):  # the share of all steps that were taken from a state without a row
        attributes["overflow"] = float(np.asarray(lanes.index.lost, np.float64).sum() / log[..., 1].sum())
    return trials_dataset(prepared.trials, log, optimum, attributes)


def prepare(case: RunConfig) -> Prepared:
    """Make everything that a run in trials needs."""
    number, env, agent = case.length, case.env, case.agent
    per_row = math.ceil(number / case.options.num_checkpoints)
    if isinstance(env, Environment):
        world, space, initial = TabularStates(simulator(env)), case.space, env.mdp.initial
    else:
        world, initial = _hashed(case), None
        space = StateActionSpace(world.num_rows, env.n_actions, ends=True)
    trials = Trials(
        number, per_row, math.ceil(number / per_row), agent.trial_steps, space.n_actions, space.legal is not None
    )
    key_seeds, _, _ = jax.random.split(fused_key(case.key), 3)  # as in `prepare.prepare`
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key_seeds, jnp.arange(case.num_seeds))
    return Prepared(trials, on_device(TrialContext(agent, world, Problem(space, case.objective, initial))), keys)


def _hashed(case: RunConfig) -> HashedStates:
    env: Any = case.env
    try:
        return HashedStates(env, case.options.table_rows)
    except ValueError as error:
        raise ValueError(f"options.table_rows: {error}") from error


def trials_dataset(
    trials: Trials, log: Float[np.ndarray, "N rows 4"], optimum: float, attributes: dict[str, Any]
) -> "xr.Dataset":
    """The Dataset of a run in trials, from the sums of every checkpoint (see `run`).

    Args:
        trials: the shape of the run.
        log: sums of `trial_loop.MEASURES`.
        optimum: optimal value of a trial; nan: not known.
        attributes: kept as JSON.
    """
    import xarray as xr

    ends = np.minimum(trials.per_row * np.arange(1, trials.num_rows + 1), trials.num_trials)
    number = np.diff(ends, prepend=0)
    reward, length, decays, mixed = np.moveaxis(log, -1, 0)
    regret = np.cumsum(optimum * number - reward, axis=1)
    decay = np.where(mixed > 0, decays / np.maximum(mixed, 1.0), np.nan)
    dims = ("seed", "checkpoint")
    return xr.Dataset(
        {
            "reward": (dims, reward / number, {"long_name": "mean return of a trial"}),
            "length": (dims, length / number, {"long_name": "mean steps of a trial"}),
            "trace_decay": (dims, decay, {"long_name": "mean weight lambda"}),
            "regret": (dims, regret, {"long_name": "cumulative regret"}),
        },
        coords={
            "seed": np.arange(log.shape[0]),
            "checkpoint": np.arange(trials.num_rows),
            "episode": ("checkpoint", ends, {"long_name": "trials so far"}),
        },
        attrs={"format": FORMAT, **{name: json.dumps(value) for name, value in attributes.items()}},
    )


def _check(case: RunConfig) -> None:
    """What a run in trials cannot do, beyond what no run can."""
    name, options = type(case.env).__name__, case.options
    if isinstance(case.env, Environment):
        check_sizes(case)
    elif not isinstance(case.env, SimulatedEnvironment):
        raise TypeError(f"env is a {name}, expected an Environment or a SimulatedEnvironment for a run in trials")
    elif options.space is not None:
        raise ValueError(f"options.space is given, expected None: the states of {name} are not listed")
    if case.regret != "average":
        raise ValueError(f"regret is {case.regret!r}, expected 'average' or None for a run in trials")
    for part in ("target", "worlds"):
        if getattr(options, part) is not None:
            raise ValueError(f"options.{part} is given, expected None for a run in trials")
    if case.agent.replan is not None and not isinstance(case.agent.replan, EveryEpisode):
        raise ValueError(f"replan is {case.agent.replan}, expected EveryLearnedEpisode() for a run in trials")


def _optimum(case: RunConfig) -> tuple[float, str]:
    """The optimal value of a trial; where it is not known, nan and why."""
    if not isinstance(case.env, Environment):
        return math.nan, "the states of the environment are not listed"
    if not isinstance(case.objective, FirstExit):
        return math.nan, "returns are undiscounted and the objective is Discounted"
    mdp = case.env.mdp
    plan = optimal_plan(mdp, case.objective)
    try:
        refuse_improper(mdp, plan)
    except ValueError as error:
        return math.nan, str(error)
    return float(np.asarray(mdp.initial, np.float64) @ plan.v), ""


def play_all(prepared: Prepared, progress: Progress, snapshots: Snapshots) -> Lane:
    """All lanes until they have finished, from the last snapshot where there is one: it holds them, and no rows."""
    trials, setting, keys = prepared
    done, lanes, _ = snapshots.restore(begin_all(trials, setting, keys))
    with progress as bar, snapshots as saved:
        while not np.all(np.asarray(lanes.phase) == FINISHED):
            lanes = play(trials, setting, keys, lanes, jnp.asarray([done, done + CHUNKS], jnp.int32))
            done += CHUNKS
            saved.keep(done, lanes)
            jax.block_until_ready(lanes)
            saved.write_if_old()
            bar.advance(int(np.sum(np.asarray(lanes.trial, np.int64))))
    return lanes
