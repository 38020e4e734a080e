"""`run`: an agent in an environment; a simulated one and many seeds at once are one compiled program."""

from pathlib import Path
from typing import TYPE_CHECKING

from jaxtyping import PRNGKeyArray

from bayes_mdp.experiments.describe import describe, describe_case
from bayes_mdp.experiments.gymnasium.gymnasium_run import run_gymnasium
from bayes_mdp.experiments.results import save_result, to_dataset
from bayes_mdp.experiments.resume import Snapshots
from bayes_mdp.experiments.rollout.execute import cumulative_regret, execute, prepare
from bayes_mdp.experiments.run_config import PriorLike, RunConfig, RunOptions, check_agent, check_case
from bayes_mdp.experiments.sweep_run import run_episodes
from bayes_mdp.mdp import Agent, Environment, Objective, SimulatedEnvironment
from bayes_mdp.mdp.objectives import check_objective
from bayes_mdp.utils.files import check_file
from bayes_mdp.utils.progress import Progress

if TYPE_CHECKING:
    import xarray as xr

    from bayes_mdp.experiments.run_config import RunEnvironment


def run(  # noqa: PLR0913 - the parts of an experiment
    agent: Agent,
    env: "RunEnvironment",
    *,
    objective: Objective,
    key: PRNGKeyArray,
    prior: PriorLike = None,
    num_steps: int | None = None,
    num_episodes: int | None = None,
    num_seeds: int = 1,
    regret: str | None = None,
    path: str | Path | None = None,
    options: RunOptions = RunOptions(),
) -> "xr.Dataset":
    """Run an agent for `num_seeds` independent seeds; compiled as one program, the same numbers for the same key.

    Seed i has a key of its own, so more seeds leave the first ones as they are. Under `Episodic(H)` the run is
    `num_episodes` episodes of at most H steps; otherwise `num_steps` steps, where an end of the environment is followed
    by a new first state at once.

    Regret, cumulative, by `regret` (None: "objective" under `Episodic`, else "average"):

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
        regret: see above.
        path: of the result.
        options: see `RunOptions`.

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
        ...     options=bm.RunOptions(progress=False),
        ... )
        >>> result["regret"].dims
        ('seed', 'checkpoint')
    """
    case = RunConfig(agent, env, objective, key, prior, num_steps, num_episodes, num_seeds, regret, options)
    if path is not None:
        check_file(path)
        check_file(f"{path}.partial")
    check_agent(agent)
    check_objective(objective)
    if case.in_episodes:
        result = run_episodes(case, path)
    else:
        _refuse_unlisted(env)
        result = _run_compiled(case, path) if isinstance(env, Environment) else run_gymnasium(case, path)
    if path is not None:
        save_result(result, path)
    return result


def _refuse_unlisted(env: object) -> None:
    if isinstance(env, SimulatedEnvironment):
        raise TypeError(
            f"env is a {type(env).__name__}, whose states are not listed: expected an agent that learns from whole "
            "episodes, Discounted or FirstExit, and num_episodes; or an Environment"
        )


def _run_compiled(case: RunConfig, path: str | Path | None) -> "xr.Dataset":
    check_case(case)
    # The order: everything that can be refused is, before the first compilation; the description needs the belief.
    prepared = prepare(case)
    belief = (prepared.belief, prepared.setting.constants)
    attributes = describe_case(case, environment=describe(case.env, "env"), space=prepared.space, belief=belief)
    layout, options = prepared.layout, case.options
    progress = Progress(layout.row_length * case.num_seeds, layout.num_rows, show=options.progress)
    snapshots = Snapshots(path, attributes, seconds=options.snapshot_seconds)
    outcome = execute(prepared, progress, snapshots)
    if prepared.listed is not None:
        attributes["compiler"] = "numba"
    return to_dataset(outcome, cumulative_regret(case, prepared, outcome), layout, prepared.space, attributes)
