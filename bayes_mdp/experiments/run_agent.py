# pyright: strict, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeStubs=false
"""`run`: an agent in an environment; a simulated one and many seeds at once are one compiled program.

An agent that learns from whole episodes is measured in episodes of any length (`run_episodes`), its states listed or
not; the loop is that of `sweep_loop`, or of numba. All others play the loop of `time_loop` through `execute`, or step
by step in Gymnasium.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray

from bayes_mdp.agents.common.replan import EveryEpisode, as_rule
from bayes_mdp.agents.model_free.trial_learning import EpisodeLearner
from bayes_mdp.experiments.describe import Json, describe, describe_case
from bayes_mdp.experiments.gymnasium_run import run_gymnasium
from bayes_mdp.experiments.results import FORMAT, json_attributes, to_dataset
from bayes_mdp.experiments.resume import Snapshots
from bayes_mdp.experiments.rollout.execute import cumulative_regret, play_case, prepare
from bayes_mdp.experiments.rollout.host.host_choice import (
    ListedEnvironment,
    chooses_numba,
    list_environment,
    why_not_episodes,
)
from bayes_mdp.experiments.rollout.regret import solve_in_float64
from bayes_mdp.experiments.rollout.run_beliefs import on_device
from bayes_mdp.experiments.rollout.simulator import simulator
from bayes_mdp.experiments.rollout.sweep_loop import (
    FINISHED,
    EpisodeContext,
    EpisodeLayout,
    HashedStates,
    HashIndex,
    SeedState,
    TabularStates,
    begin_all,
    play,
)
from bayes_mdp.experiments.run_config import (
    PriorLike,
    RunConfig,
    RunOptions,
    check_agent,
    check_case,
    check_request,
    check_sizes,
)
from bayes_mdp.mdp import Agent, Environment, FirstExit, Objective, Problem, SimulatedEnvironment, StateActionSpace
from bayes_mdp.mdp.objectives import check_objective
from bayes_mdp.planning.solve import refuse_improper
from bayes_mdp.random.threefry import fused_key
from bayes_mdp.renamed import accepts_moved
from bayes_mdp.utils.files import check_file, write_netcdf
from bayes_mdp.utils.progress import Progress, stage
from bayes_mdp.utils.validation import check_type

if TYPE_CHECKING:
    import xarray as xr

    from bayes_mdp.experiments.rollout.host.host_episodes import HostEpisodes
    from bayes_mdp.experiments.run_config import RunEnvironment


@accepts_moved("run")
def run(
    agent: Agent[Any],
    env: "RunEnvironment",
    *,
    objective: Objective,
    key: PRNGKeyArray,
    prior: PriorLike = None,
    num_steps: int | None = None,
    num_episodes: int | None = None,
    num_seeds: int = 1,
    path: str | Path | None = None,
    options: RunOptions = RunOptions(),
) -> "xr.Dataset":
    """Run an agent for `num_seeds` independent seeds; compiled as one program, the same numbers for the same key.

    Seed i has a key of its own, so more seeds leave the first ones as they are. Under `Episodic(H)` the run is
    `num_episodes` episodes of at most H steps; otherwise `num_steps` steps, where an end of the environment is followed
    by a new first state at once.

    Regret, cumulative, by `options.regret` (None: "objective" under `Episodic`, else "average"):

    * "objective": the shortfall of the policies that were followed, by exact evaluation in the true MDP. `Episodic`:
      the sum over episodes of E V*(s_0) - E V^pi(s_0) under the initial distribution; where the policy changes from pi
      to pi' inside an episode, in state s at step h, V^pi_h(s) - V^pi'_h(s) is added (the same in expectation).
      `Discounted`: the sum over steps of V*(s_t) - V^pi_t(s_t), pi_t the policy in force. `AverageReward`: "average".
    * "average": optimal gain times steps (optimal value of an episode times episodes) minus the rewards received.
    * "oracle_run": the rewards of an optimal policy that meets the same random numbers of the environment, minus the
      rewards received.
    * "bayes": as "objective" ("average" for `AverageReward`), but every seed has its own environment, drawn from
      `prior` (or `options.env_prior`); `env` gives sizes, horizon and first state. The mean over seeds estimates the
      Bayes regret.

    A Gymnasium environment runs step by step on the host, through an `Actor`. Its spaces are `Discrete`. `env` is an id
    or a function that makes one (every seed has its own), or an environment, which all seeds use one after the other,
    each from `reset(seed=...)`. Truncated transitions bootstrap. `num_steps` counts the steps of an environment, and of
    a vector environment those of all its environments together; episodes of `Episodic(H)` are cut after H steps.
    Regret is "average", where the MDP is known: an environment of `to_gymnasium`, a table `unwrapped.P` (its optimum
    has no time limit); elsewhere it is nan, and the attribute `regret_unknown` gives the reason. A killed run is
    resumed from its last finished seed.

    Agents that learn from whole episodes (`SarsaLambda`, `TDBMA`) also run under `Discounted` and `FirstExit` for
    `num_episodes` episodes, each from a first state to an end, or cut after `agent.trial_steps`. `env` is an
    `Environment`, or a `SimulatedEnvironment`, whose states get rows of a table at their first visit
    (`options.table_rows`). Rewards are undiscounted; regret is the optimal value of an episode times episodes minus the
    rewards received, nan under `Discounted` and where states are not listed (the attribute `regret_unknown` gives the
    reason).

    A prior without an exact posterior is represented by weighted draws, whose effective sample size falls with data.
    The run is played in compiled chunks; between two of them all seeds where it is low get new draws, inferred from all
    their data, in one compiled call (`options.refit_every`, `num_particles`, `method`; in Gymnasium, before every
    plan).

    With `path`, the result is written there as NetCDF, and snapshots beside it during the run: the same call resumes
    a killed run from its last snapshot, with the same result bit by bit. A finished file is replaced.

    Args:
        agent: an agent; its rule `replan` decides when it plans.
        env: an `Environment`; a `SimulatedEnvironment`; or a Gymnasium environment, vector environment, id, or function
            that makes one.
        objective: of the agent.
        key: a typed key.
        prior: a NumPyro program (see `bayes_mdp.models`), or a posterior that can `update`. Agents with a belief of
            their own do not use it.
        num_steps, num_episodes: the length, one of the two.
        num_seeds: number of seeds.
        path: of the result.
        options: the kind of regret, checkpoints, refits, devices (see `RunOptions`).

    Returns:
        A Dataset: `reward`, `regret` [seed, checkpoint | episode], `visits` [seed, *step, state, action]; with
        `options.target` its visits, `target_visits` [seed, checkpoint | episode]; where the belief is refitted `refits`
        [seed]. The attributes hold configuration, versions and key as JSON, `refit_cost`, and `compiler` where it was
        numba. A run in whole episodes: `reward` and `length`, mean return and steps of the episodes since the
        checkpoint before, `trace_decay`, the mean weight lambda of their steps (nan: no step had one), `regret`,
        cumulative [seed, checkpoint]; coordinate `episode` [checkpoint], episodes so far.

    Raises:
        ValueError, TypeError: one sentence about the argument at fault; also a snapshot of another run under `path`.
        FileNotFoundError: `path` lies in no folder that exists. PermissionError: nothing can be written there.

    Example:
        >>> result = bm.run(
        ...     bm.agents.PSRL(),
        ...     bm.envs.chain(),
        ...     prior=bm.models.dirichlet_normal(),
        ...     objective=bm.Discounted(0.9),
        ...     num_steps=20,
        ...     num_seeds=2,
        ...     key=jax.random.key(0),
        ...     options=bm.experiments.RunOptions(progress=False),
        ... )
        >>> result["regret"].dims
        ('seed', 'checkpoint')
    """
    check_type("options", options, RunOptions, "RunOptions")
    case = RunConfig(agent, env, objective, key, prior, num_steps, num_episodes, num_seeds, options.regret, options)
    if path is not None:
        check_file(path)
        check_file(f"{path}.partial")
    check_agent(agent)
    check_objective(objective)
    with stage("run", show=options.progress):
        if case.in_episodes:
            result = run_episodes(case, path)
        else:
            _require_listed_states(env)
            result = _run_by_steps(case, path) if isinstance(env, Environment) else run_gymnasium(case, path)
    if path is not None:
        write_netcdf(result, path)
    return result


def _require_listed_states(env: object) -> None:
    if isinstance(env, SimulatedEnvironment):
        raise TypeError(
            f"env is a {type(env).__name__}, whose states are not listed: expected an agent that learns from whole "
            "episodes, Discounted or FirstExit, and num_episodes; or an Environment"
        )


def _run_by_steps(case: RunConfig, path: str | Path | None) -> "xr.Dataset":
    check_case(case)
    # The order: everything that can be refused is, before the first compilation; the description needs the belief.
    prepared = prepare(case)
    outcome, attributes = play_case(case, prepared, path)
    if prepared.listed is not None:
        attributes["compiler"] = "numba"
    regret = cumulative_regret(case, prepared, outcome)
    return to_dataset(outcome, regret, prepared.layout, prepared.space, attributes)


CHUNKS = 64  # of a call of `play`, each `sweep_loop.CHUNK` iterations
CHUNKS_BY_NUMBA = 6400  # of a call, of all seeds together: some .05 seconds


class PreparedEpisodes(NamedTuple):
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
    prepared = prepare_episodes(case)
    space = prepared.setting.problem.space
    rows = {} if isinstance(case.env, Environment) else {"table_rows": case.options.table_rows}
    attributes = describe_case(case, environment=describe(case.env, "env"), space=space, belief=None, more=rows)
    optimum, why = _optimum(case)
    number, options = case.num_seeds * case.length, case.options
    progress = Progress(1, number, show=options.progress, unit=" episodes")
    seeds = play_episodes(prepared, progress, Snapshots(path, attributes, seconds=options.snapshot_seconds))
    if why:
        attributes["regret_unknown"] = why
    if prepared.listed is not None:
        attributes["compiler"] = "numba"
    log = np.asarray(seeds.log, np.float64)
    if isinstance(seeds.index, HashIndex):  # the share of all steps that were taken from a state without a row
        attributes["overflow"] = float(np.asarray(seeds.index.lost, np.float64).sum() / log[..., 1].sum())
    return episodes_dataset(prepared.layout, log, optimum, attributes)


def prepare_episodes(case: RunConfig) -> PreparedEpisodes:
    """Make everything that a run in whole episodes needs."""
    number, env, agent = case.length, case.env, _learner(case)
    # The last checkpoint may have fewer episodes than the others.
    per_row = math.ceil(number / case.options.num_checkpoints)
    if isinstance(env, Environment):
        rows, space, initial = TabularStates(simulator(env)), case.space, env.mdp.initial
    else:  # the states of the problem are then the rows of the hash table
        rows, initial = _hash_states(case), None
        space = StateActionSpace(rows.num_rows, rows.env.n_actions, ends=True)
    layout = EpisodeLayout(
        number, per_row, math.ceil(number / per_row), agent.trial_steps, space.n_actions, space.legal is not None
    )
    key_seeds, _, _ = jax.random.split(fused_key(case.key), 3)  # as in `execute.prepare`
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key_seeds, jnp.arange(case.num_seeds))
    setting = on_device(EpisodeContext(agent, rows, Problem(space, case.objective, initial)))
    by_numba = chooses_numba(case.options.compiler, why_not_episodes(setting, keys))
    listed = list_environment(rows.simulator) if by_numba and isinstance(rows, TabularStates) else None
    return PreparedEpisodes(layout, setting, keys, listed)


def _learner(case: RunConfig) -> EpisodeLearner:
    if not isinstance(case.agent, EpisodeLearner):
        raise TypeError(f"agent is a {type(case.agent).__name__}, expected one that learns from whole episodes")
    return case.agent


def _hash_states(case: RunConfig) -> HashedStates:
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
        attrs=json_attributes(FORMAT, attributes),
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
    plan = solve_in_float64(mdp, case.objective)
    try:
        refuse_improper(mdp, plan)
    except ValueError as error:
        return math.nan, str(error)
    return float(np.asarray(mdp.initial, np.float64) @ plan.v), ""


def play_episodes(prepared: PreparedEpisodes, progress: Progress, snapshots: Snapshots) -> SeedState:
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
