"""`run` measured in episodes of any length: an agent that learns from whole episodes, states listed or not."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from bayes_mdp.agents.common.replan import EveryEpisode, as_rule
from bayes_mdp.experiments.describe import Json, describe, describe_case
from bayes_mdp.experiments.results import FORMAT
from bayes_mdp.experiments.resume import Snapshots
from bayes_mdp.experiments.rollout.host.host_choice import (
    ListedEnvironment,
    chooses_numba,
    listed_environment,
    why_not_episodes,
)
from bayes_mdp.experiments.rollout.regret import solved
from bayes_mdp.experiments.rollout.run_beliefs import on_device
from bayes_mdp.experiments.rollout.simulator import simulator
from bayes_mdp.experiments.rollout.sweep_loop import (
    FINISHED,
    EpisodeContext,
    EpisodeLayout,
    HashedStates,
    HashIndex,
    SeedState,
    SweepLearner,
    TabularStates,
    begin_all,
    play,
)
from bayes_mdp.experiments.run_config import RunConfig, check_request, check_sizes
from bayes_mdp.mdp import Environment, FirstExit, Problem, SimulatedEnvironment, StateActionSpace
from bayes_mdp.planning.solve import refuse_improper
from bayes_mdp.random import fused_key
from bayes_mdp.utils.progress import Progress

if TYPE_CHECKING:
    import xarray as xr

    from bayes_mdp.experiments.rollout.host.host_episodes import HostEpisodes

CHUNKS = 64  # of a call of `play`, each `sweep_loop.CHUNK` iterations
CHUNKS_BY_NUMBA = 6400  # of a call, of all seeds together: some .05 seconds


class Prepared(NamedTuple):
    """A run in whole episodes, ready to be played; `listed`: the environment for numba, where that plays it."""

    layout: EpisodeLayout
    setting: EpisodeContext
    keys: Key[Array, " N"]
    listed: ListedEnvironment | None = None


def run_episodes(case: RunConfig, path: str | Path | None) -> "xr.Dataset":
    """`run` where it is measured in whole episodes (see there).

    Raises:
        ValueError, TypeError: one sentence about the argument at fault.
    """
    check_request(case)
    _check(case)
    prepared = prepare(case)
    space = prepared.setting.problem.space
    rows = {} if isinstance(case.env, Environment) else {"table_rows": case.options.table_rows}
    attributes = describe_case(case, environment=describe(case.env, "env"), space=space, belief=None, more=rows)
    optimum, why = _optimum(case)
    number, options = case.num_seeds * case.length, case.options
    progress = Progress(1, number, show=options.progress, unit=" episodes")
    seeds = play_all(prepared, progress, Snapshots(path, attributes, seconds=options.snapshot_seconds))
    if why:
        attributes["regret_unknown"] = why
    if prepared.listed is not None:
        attributes["compiler"] = "numba"
    log = np.asarray(seeds.log, np.float64)
    if isinstance(seeds.index, HashIndex):  # the share of all steps that were taken from a state without a row
        attributes["overflow"] = float(np.asarray(seeds.index.lost, np.float64).sum() / log[..., 1].sum())
    return episodes_dataset(prepared.layout, log, optimum, attributes)


def prepare(case: RunConfig) -> Prepared:
    """Make everything that a run in whole episodes needs."""
    number, env, agent = case.length, case.env, _learner(case)
    per_row = math.ceil(number / case.options.num_checkpoints)
    if isinstance(env, Environment):
        rows, space, initial = TabularStates(simulator(env)), case.space, env.mdp.initial
    else:  # the states of the problem are then the rows of the hash table
        rows, initial = _hashed(case), None
        space = StateActionSpace(rows.num_rows, rows.env.n_actions, ends=True)
    layout = EpisodeLayout(
        number, per_row, math.ceil(number / per_row), agent.trial_steps, space.n_actions, space.legal is not None
    )
    key_seeds, _, _ = jax.random.split(fused_key(case.key), 3)  # as in `execute.prepare`
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key_seeds, jnp.arange(case.num_seeds))
    setting = on_device(EpisodeContext(agent, rows, Problem(space, case.objective, initial)))
    by_numba = chooses_numba(case.options.compiler, why_not_episodes(setting, keys))
    listed = listed_environment(rows.simulator) if by_numba and isinstance(rows, TabularStates) else None
    return Prepared(layout, setting, keys, listed)


def _learner(case: RunConfig) -> SweepLearner:
    if not isinstance(case.agent, SweepLearner):
        raise TypeError(f"agent is a {type(case.agent).__name__}, expected one that learns from whole episodes")
    return case.agent


def _hashed(case: RunConfig) -> HashedStates:
    if not isinstance(case.env, SimulatedEnvironment):
        raise TypeError(f"env is a {type(case.env).__name__}, expected a SimulatedEnvironment")
    try:
        return HashedStates(case.env, case.options.table_rows)
    except ValueError as error:
        raise ValueError(f"options.table_rows: {error}") from error


def episodes_dataset(
    layout: EpisodeLayout, log: Float[np.ndarray, "N rows 4"], optimum: float, attributes: Mapping[str, Json]
) -> "xr.Dataset":
    """The Dataset of a run in whole episodes, from the sums of every checkpoint (see `run`).

    Args:
        layout: the shape of the run.
        log: sums of `sweep_loop.MEASURES`.
        optimum: optimal value of an episode; nan: not known.
        attributes: kept as JSON.
    """
    import xarray as xr

    ends = np.minimum(layout.per_row * np.arange(1, layout.num_rows + 1), layout.num_episodes)
    number = np.diff(ends, prepend=0)
    reward, length, decays, mixed = np.moveaxis(log, -1, 0)
    regret = np.cumsum(optimum * number - reward, axis=1)
    decay = np.where(mixed > 0, decays / np.maximum(mixed, 1.0), np.nan)
    dims = ("seed", "checkpoint")
    return xr.Dataset(
        {
            "reward": (dims, reward / number, {"long_name": "mean return of an episode"}),
            "length": (dims, length / number, {"long_name": "mean steps of an episode"}),
            "trace_decay": (dims, decay, {"long_name": "mean weight lambda"}),
            "regret": (dims, regret, {"long_name": "cumulative regret"}),
        },
        coords={
            "seed": np.arange(log.shape[0]),
            "checkpoint": np.arange(layout.num_rows),
            "episode": ("checkpoint", ends, {"long_name": "episodes so far"}),
        },
        attrs={"format": FORMAT, **{name: json.dumps(value) for name, value in attributes.items()}},
    )


def _check(case: RunConfig) -> None:
    """Refuse arguments that fit other runs, but none in whole episodes."""
    name, options = type(case.env).__name__, case.options
    replan = as_rule(case.agent.replan)
    if isinstance(case.env, Environment):
        check_sizes(case)
    elif not isinstance(case.env, SimulatedEnvironment):
        raise TypeError(
            f"env is a {name}, expected an Environment or a SimulatedEnvironment for a run in whole episodes"
        )
    elif options.space is not None:
        raise ValueError(f"options.space is given, expected None: the states of {name} are not listed")
    if case.regret != "average":
        raise ValueError(f"regret is {case.regret!r}, expected 'average' or None for a run in whole episodes")
    for part in ("target", "env_prior", "devices"):
        if getattr(options, part) is not None:
            raise ValueError(f"options.{part} is given, expected None for a run in whole episodes")
    if replan is not None and not isinstance(replan, EveryEpisode):
        raise ValueError(f"replan is {replan}, expected EveryLearnedEpisode() for a run in whole episodes")


def _optimum(case: RunConfig) -> tuple[float, str]:
    """The optimal value of an episode; where it is not known, nan and why."""
    if not isinstance(case.env, Environment):
        return math.nan, "the states of the environment are not listed"
    if not isinstance(case.objective, FirstExit):
        return math.nan, "returns are undiscounted and the objective is Discounted"
    mdp = case.env.mdp
    plan = solved(mdp, case.objective)
    try:
        refuse_improper(mdp, plan)
    except ValueError as error:
        return math.nan, str(error)
    return float(np.asarray(mdp.initial, np.float64) @ plan.v), ""


def play_all(prepared: Prepared, progress: Progress, snapshots: Snapshots) -> SeedState:
    """All seeds until they have finished, from the last snapshot where there is one: it holds them, and no rows."""
    layout, setting, keys, listed = prepared
    done, seeds, _ = snapshots.restore(begin_all(layout, setting, keys))
    if listed is not None:
        from bayes_mdp.experiments.rollout.host.host_episodes import HostEpisodes  # needs numba

        return _play_by_numba(HostEpisodes(layout, setting, listed, keys, seeds, done), progress, snapshots)
    with progress as bar, snapshots as saved:
        while not np.all(np.asarray(seeds.phase) == FINISHED):
            seeds = play(layout, setting, keys, seeds, jnp.asarray([done, done + CHUNKS], jnp.int32))
            done += CHUNKS
            saved.keep(done, seeds)
            jax.block_until_ready(seeds)
            saved.write_if_old()
            bar.advance(int(np.sum(np.asarray(seeds.episode, np.int64))))
    return seeds


def _play_by_numba(host: "HostEpisodes", progress: Progress, snapshots: Snapshots) -> SeedState:
    """`play_all` by the loop of numba, from where it stands."""
    with progress as bar, snapshots as saved:
        saved.keep(host.done, host.seeds)  # once: both are written in place, together
        while not np.all(host.phase == FINISHED):
            host.play(max(1, CHUNKS_BY_NUMBA // len(host.phase)))
            saved.write_if_old()
            bar.advance(int(np.sum(host.episode, dtype=np.int64)))
    return host.seeds
