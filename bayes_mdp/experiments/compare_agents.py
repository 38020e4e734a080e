# pyright: strict, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeStubs=false
"""`compare`: agents on problems, every agent for the same number of seeds, one Dataset with the leaderboard.

The problems of the package (`PROBLEMS`) are small environments in episodes for every agent but `TSDE`. Each is
the tables of a named environment with its mean rewards mapped onto [0, 1] by one affine function, which changes neither
the best policies nor a normalised score, and rewards that are normal around them with standard deviation .1 (`NOISE`):
what agents assume of rewards (theorems want them in [0, 1]) then holds for all problems alike. Levels are therefore not
those of the papers that the environments come from.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar
from zlib import crc32

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.agents import AGENTS, Learner
from bayes_mdp.envs import chain, deep_sea, garnet, osband_chain, riverswim_episodic, wide_narrow
from bayes_mdp.experiments.describe import describe, describe_key, fingerprint, versions
from bayes_mdp.experiments.ranking import leaderboard
from bayes_mdp.experiments.results import COMPARE_FORMAT, json_attributes
from bayes_mdp.experiments.resume import Cells, folder_of
from bayes_mdp.experiments.rollout.regret import optimal_rate
from bayes_mdp.experiments.run_agent import run
from bayes_mdp.experiments.run_config import PriorLike, RunOptions, check_agent, episodes_of, space_of
from bayes_mdp.mdp import (
    MDP,
    Agent,
    AverageReward,
    CanUpdate,
    Environment,
    Episodic,
    NormalReward,
    Objective,
    SparseMDP,
    restart_at_ends,
)
from bayes_mdp.mdp.objectives import check_objective, require_undiscounted
from bayes_mdp.numerics.array_forms import to_float64
from bayes_mdp.parallel import ExecutorLike, check_executor
from bayes_mdp.planning import evaluate
from bayes_mdp.utils.files import check_file, check_folder, write_netcdf
from bayes_mdp.utils.progress import stage
from bayes_mdp.utils.validation import check_count, check_key, check_name, check_type, described

if TYPE_CHECKING:
    import xarray as xr


NOISE = 0.1
N_STATES, HORIZON, NUM_EPISODES = 8, 10, 500


@dataclass(frozen=True)
class Task:
    """What agents are compared on.

    Args:
        env: an `Environment`.
        objective: what agents plan for.
        length: number of episodes under `Episodic`, otherwise of steps.
        prior: as in `run`; None: for agents that need none.

    Raises:
        ValueError: `length` is below 1, episodes with a discount.
        TypeError: no `Environment`, no objective, no integer.
    """

    env: Environment
    objective: Objective
    length: int
    prior: PriorLike = None

    def __post_init__(self) -> None:
        check_type("env", self.env, Environment, "an Environment")
        check_objective(self.objective)
        require_undiscounted(self.objective, "runs of agents")
        check_count("length", self.length)

    @property
    def num_steps(self) -> int | None:
        """For `run`: the length, where it is measured in steps."""
        return None if isinstance(self.objective, Episodic) else self.length

    @property
    def num_episodes(self) -> int | None:
        """For `run`: the length, where it is measured in episodes."""
        return self.length if isinstance(self.objective, Episodic) else None


PROBLEMS: dict[str, Callable[[], Task]] = {
    # RiverSwim of TabulaRL, 6 states: the large reward is upstream, a small one downstream.
    "riverswim": lambda: _pad_task(riverswim_episodic()),
    # Chain of Strens, 5 states, slip .2: a small reward is near.
    "chain": lambda: _pad_task(chain()),
    # The stochastic chain of TabulaRL, 7 states: what pays is at the far end.
    "osband_chain": lambda: _pad_task(osband_chain(7, stochastic=True)),
    # A random MDP of 8 states with 3 successors of every pair: no exploration problem by design.
    "garnet": lambda: _pad_task(garnet(N_STATES, 2, 3)),
    # DeepSea of depth 8, rows that depend on the step: a random policy meets the goal once in 256 episodes.
    "deep_sea": lambda: unit_task(deep_sea(8), 8),
    # WideNarrow, 6 actions in one of 3 states: exploration that goes on costs.
    "wide_narrow": lambda: unit_task(wide_narrow(6), HORIZON),
}
"""Name -> factory of the task."""

DEFAULT_PROBLEMS = ("riverswim", "chain", "osband_chain", "garnet", "deep_sea")
QUICK_PROBLEMS = ("riverswim", "osband_chain", "garnet")


def _pad_task(env: Environment) -> Task:
    """The task padded to `N_STATES` states with states that nothing leads to and whose rows have 3 next states.

    All these tasks then have arrays of the same shapes, and an agent is compiled once for all of them.
    """
    mdp = env.mdp.to_dense()
    n, extra = mdp.n_states, N_STATES - mdp.n_states
    # States that nothing leads to change no value; three next states keep their rows as uncertain as others.
    rows = np.zeros((N_STATES, mdp.n_actions, N_STATES))
    rows[:n, :, :n] = mdp.transition_probs
    rows[n:, :, :3] = 1 / 3
    reward = np.concatenate([mdp.reward, np.full((extra, mdp.n_actions), np.min(mdp.reward))])
    padded = MDP(rows, reward, initial=np.pad(np.asarray(mdp.initial), (0, extra)))
    return unit_task(Environment(padded, NormalReward(padded.reward), name=env.name), HORIZON)


def unit_task(env: Environment, horizon: int) -> Task:
    """`NUM_EPISODES` with rewards mapped onto [0, 1], their noise, and a prior that knows its standard deviation."""
    from bayes_mdp.models import dirichlet_normal

    mdp = env.mdp.to_dense()
    reward = np.asarray(mdp.reward, np.float64)
    reward = (reward - reward.min()) / (reward.max() - reward.min())
    unit = MDP(mdp.transition_probs, reward, legal=mdp.legal, initial=mdp.initial)
    law = NormalReward(unit.reward, jnp.asarray(NOISE, unit.reward.dtype))
    # Total concentration 1: a flat Dirichlet over all states would outweigh the data of a short run.
    prior = dirichlet_normal(1.0 / mdp.n_states, 0.0, 1.0, NOISE)
    return Task(Environment(unit, law, name=env.name), Episodic(horizon), NUM_EPISODES, prior)


Item = TypeVar("Item")
AgentsLike: TypeAlias = Mapping[str, Agent[Any]] | Sequence[str | Agent[Any]] | Agent[Any] | str
"""Agents by name, or a sequence of them and of names of `AGENTS`, or one."""
EnvsLike: TypeAlias = Mapping[str, Environment | Task] | Sequence[str | Environment | Task] | Environment | Task | str
"""Environments or tasks by name, or a sequence of them and of names of `PROBLEMS`, or one."""
CellValues: TypeAlias = dict[str, np.ndarray | float | str]
"""What one pair of agent and problem leaves: `reward` [seed, checkpoint], `seconds`, `refused`."""

LEAST_SPAN = 1e-9
NUM_CHECKPOINTS = 20


CONSTANTS = ("scaled", "default")

SCALED: dict[str, dict[str, Any]] = {
    "bamcp": {"num_simulations": 100, "max_depth": 40},
    "beb": {"scale": 1.0},
    "bolt": {"eta": 1.0, "max_reward": 1.0},
    "boltzmann_q": {"temperature": 0.2, "learning_rate": 0.5},
    "count_bonus": {"reward_sd": NOISE},
    "epsilon_greedy_q": {"learning_rate": 0.5},
    "k_learning": {"noise": NOISE},
    "lmc_lsvi": {"inverse_temperature": 0.5 / NOISE**2, "regularization": NOISE**2},
    "rlsvi": {"noise": NOISE},
    "soft_q": {"temperature": 0.2, "learning_rate": 0.5},
    "soft_q_mean": {"temperature": 0.1},
    "ube": {"scale": 0.1},
    "ucb_h": {"scale": 0.01},
    "ucbvi": {"bonus_scale": 0.03},
    "ucfh": {"scale": 0.1},
    "ucrl2": {"scale": 0.1},
    "vapor": {"noise": NOISE},
}
"""Arguments that differ from the defaults with constants="scaled"; agents that are not named keep their defaults.

`noise` and `reward_sd` are what the problems of the package have. The others are round numbers of ours from other small
problems, not tuned on these: bonuses of theorems are so wide that no learning is visible in runs of this length.
"""

QUICK_AGENTS = ("psrl", "bql", "ube", "moment_matching", "k_learning", "ucbvi", "epsilon_greedy_q")


def comparison_agents(names: Iterable[str] | None = None, *, constants: str = "scaled") -> dict[str, Agent[Any]]:
    """Agents of the package by name, for `compare`.

    Args:
        names: of `AGENTS`; None: all.
        constants: "scaled", those of `SCALED`; "default", what each agent has without arguments.

    Raises:
        ValueError: no such agent, or other constants.
        TypeError: `names` is no list of names.
    """
    check_name("constants", constants, CONSTANTS)
    names = AGENTS if names is None else names
    if isinstance(names, str):
        raise TypeError(f"names is {described(names)}, expected a list of names of agents")
    check_type("names", names, Iterable, "a list of names of agents")
    names = tuple(names)
    for name in names:
        check_name("agent", name, AGENTS)
        if names.count(name) > 1:
            raise ValueError(f"agents holds {name!r} twice, expected each agent once")
    return {name: AGENTS[name](**(SCALED.get(name, {}) if constants == "scaled" else {})) for name in names}


def name_agents(agents: AgentsLike) -> dict[str, Agent[Any]]:
    """The agents by name: a mapping as it is; of a sequence names of `AGENTS` with their defaults, objects by class.

    Raises:
        ValueError: none, an unknown name, a name twice. TypeError: something that is no agent.
    """
    named = dict(agents) if isinstance(agents, Mapping) else list_by_name("agents", agents, _agent)
    if not named:
        raise ValueError("agents is empty, expected at least one")
    for name, agent in named.items():
        check_agent(agent, f"agents[{name!r}]")
    return {str(name): agent for name, agent in named.items()}


def _agent(item: str | Item) -> tuple[str, Agent[Any] | Item]:
    """A name becomes the agent; `name_agents` checks what else there is."""
    if isinstance(item, str):
        check_name("agent", item, AGENTS)
        return item, AGENTS[item]()
    return type(item).__name__, item


def list_by_name(what: str, items: object, named: Callable[[Any], tuple[str, Item]]) -> dict[str, Item]:
    """By name; one item alone is a sequence of one."""
    sequence = items if isinstance(items, (list, tuple, set, frozenset)) else [items]
    by_name: dict[str, Item] = {}
    for item in sequence:
        name, thing = named(item)
        if name in by_name:
            raise ValueError(f"{what} holds {name!r} twice, expected a mapping that gives each a name of its own")
        by_name[name] = thing
    return by_name


class Levels(NamedTuple):
    """Expected reward of an episode under `Episodic`, else of a step in the long run.

    Args:
        random: of the policy that acts uniformly at random (over legal actions).
        optimal: of an optimal policy.
        unknown: why no score can be normalised by them (one of them is then nan, or both are equal); else empty.
    """

    random: float
    optimal: float
    unknown: str = ""


def levels_of(mdp: MDP | SparseMDP, objective: Objective) -> Levels:
    """The levels of an MDP. Host side, float64.

    Without episodes they are gains, whatever the objective: where an end is followed by a new first state, and the
    first state does not matter in the long run. Where it does, they are unknown.
    """
    try:
        optimal = float(optimal_rate(mdp, objective))
        random = _random_rate(mdp, objective)
    except ValueError:  # the only one that a checked task can raise
        return Levels(np.nan, np.nan, "the optimal gain depends on the first state")
    if not np.isfinite(random):
        return Levels(np.nan, optimal, "the gain of the random policy depends on the first state")
    if optimal - random <= LEAST_SPAN * max(1.0, abs(optimal)):
        return Levels(random, np.nan, "a random policy is optimal: there is nothing to learn")
    return Levels(random, optimal)


def _random_rate(mdp: MDP | SparseMDP, objective: Objective) -> float:
    legal = np.ones((mdp.n_states, mdp.n_actions), bool) if mdp.legal is None else np.asarray(mdp.legal)
    episodic = isinstance(objective, Episodic)
    # In float64, since scores are divided by the difference of two levels.
    with jax.enable_x64(True):
        exact = to_float64(mdp)
        exact = exact if episodic else restart_at_ends(exact)
        probs = jnp.asarray(legal / legal.sum(-1, keepdims=True))
        answer = jax.device_get(_evaluate(exact, probs, objective if episodic else AverageReward()))
    if not episodic:
        # A gap that is not finite: the gain of the policy differs between first states.
        return float(answer.gain) if np.isfinite(answer.gap) else np.nan
    return float(answer.v[0] @ np.asarray(mdp.initial, np.float64))


_evaluate = jax.jit(evaluate)


def compare(
    agents: AgentsLike,
    envs: EnvsLike,
    *,
    key: PRNGKeyArray,
    num_seeds: int = 10,
    objective: Objective | None = None,
    length: int | None = None,
    prior: PriorLike = None,
    path: str | Path | None = None,
    executor: ExecutorLike = None,
    options: RunOptions = RunOptions(),
) -> "xr.Dataset":
    """Which agent explores faster: every agent on every problem, ranked by normalised scores. Host-side.

    Not to be confused with `compare_policies`, which evaluates policies under a posterior.

    The score of a run is (R - R_random) / (R* - R_random) of its total reward R: 0 is what the policy that acts
    uniformly at random earns in expectation, 1 what an optimal one does, both exact (`levels_of`); so it is the area
    under the learning curve, and can be below 0 and, by luck, above 1. Where one of the two is unknown the scores of
    the problem are nan and the problem does not count (`unscored` says why). A pair of agent and problem that `run`
    refuses has scores of nan and the message in `refused`; the other pairs are run.

    Agents get the same random numbers on a problem, whatever the other agents and problems are. `leaderboard` lists
    what is computed from the scores.

    With `path`, every finished (agent, problem) is kept in a folder beside it (`<path>.cells`): the same call resumes
    from there after a kill. The folder is removed when the result is written.

    Args:
        agents: a mapping name -> agent, or a sequence of agents and of names of `AGENTS` (with their defaults; see
            `comparison_agents` for constants with which all learn in short runs).
        envs: a mapping name -> `Environment` or `Task`, or a sequence of them and of names of `PROBLEMS`.
        key: a typed key.
        num_seeds: of every pair, at least 2.
        objective: of environments without a task; None: episodes of as many steps as the environment has.
        length: episodes under `Episodic`, else steps, of environments without a task; for a `Task` it replaces its own.
        prior: as in `run`, of environments without a task.
        path: of the NetCDF file, in a folder that exists.
        executor: where the pairs are run (see `ExecutorLike`): the same numbers everywhere, but for `seconds`.
        options: as in `run`, but for `regret`.

    Returns:
        A Dataset: `score` [agent, env, seed]; `curve` [agent, env, seed, checkpoint], the score of each twentieth of
        the run; `time` [env, checkpoint], episodes or steps at its end; `random`, `optimal` [env], per episode or step;
        `refused` [agent, env], `unscored` [env]; `seconds` [agent, env], compilation included; and what `leaderboard`
        returns. The attributes hold configuration, versions and key as JSON. `bm.load` reads the file.

    Raises:
        ValueError, TypeError: one sentence about the argument at fault; every pair was refused; the folder of the cells
            is that of another run. FileNotFoundError: `path` lies in no folder that exists.
        PermissionError: nothing can be written at `path`. ImportError: `executor` is a Dask cluster, and Dask is not
            installed.

    Example:
        >>> tasks = {
        ...     "chain": bm.experiments.Task(
        ...         bm.envs.chain(), bm.Discounted(0.9), 50, prior=bm.models.dirichlet_normal()
        ...     )
        ... }
        >>> agents = ["psrl", "epsilon_greedy_q"]
        >>> options = bm.experiments.RunOptions(progress=False)
        >>> result = bm.compare(agents, tasks, key=jax.random.key(0), num_seeds=2, options=options)
        >>> result["score"].dims
        ('agent', 'env', 'seed')
    """
    check_key("key", key)
    check_count("num_seeds", num_seeds, 2)
    players, tasks = name_agents(agents), name_tasks(envs, objective, length, prior)
    _check_priors(players, tasks)
    if path is not None:
        check_file(path)
        check_folder(folder_of(path))
    check_type("options", options, RunOptions, "RunOptions")
    if options.regret is not None:
        raise ValueError(f"options.regret is {options.regret!r}, expected None: scores are of the rewards received")
    check_executor(executor)
    show, options = options.progress, replace(options, progress=False)
    levels = {name: levels_of(task.env.mdp, task.objective) for name, task in tasks.items()}
    attributes = _attributes(players, tasks, num_seeds, options, key)
    cells = Cells(None if path is None else folder_of(path), attributes, executor)
    with stage("compare", show=show):
        played = _play_all(players, tasks, levels, {"key": key, "num_seeds": num_seeds, "options": options}, cells)
    result = _to_dataset(players, tasks, levels, played)
    result = result.merge(leaderboard(result, key=jax.random.fold_in(key, crc32(b"leaderboard"))))
    result.attrs = json_attributes(COMPARE_FORMAT, attributes)
    if path is not None:
        write_netcdf(result, path)
        cells.remove()
    return result


def name_tasks(envs: EnvsLike, objective: Objective | None, length: int | None, prior: PriorLike) -> dict[str, Task]:
    """The tasks by name; arguments as those of `compare`.

    Raises:
        ValueError, TypeError: none, an unknown name, a name twice, an environment without objective or length.
    """
    if length is not None:
        check_count("length", length)
    if objective is not None:
        check_objective(objective)
        require_undiscounted(objective, "runs of agents")
    named = envs if isinstance(envs, Mapping) else list_by_name("envs", envs, _name_env)
    if not named:
        raise ValueError("envs is empty, expected at least one")
    return {str(name): _task(str(name), env, objective, length, prior) for name, env in named.items()}


def _name_env(item: str | Item) -> tuple[str, Environment | Task | Item]:
    """A name becomes the problem; `_task` checks what else there is."""
    if isinstance(item, str):
        check_name("env", item, PROBLEMS)
        return item, PROBLEMS[item]()
    env = item.env if isinstance(item, Task) else item
    return getattr(env, "name", type(env).__name__), item


def _task(
    name: str, env: Environment | Task, objective: Objective | None, length: int | None, prior: PriorLike
) -> Task:
    if isinstance(env, Task):
        return env if length is None else replace(env, length=length)
    check_type(f"envs[{name!r}]", env, Environment, "an Environment or a Task")
    objective = objective or episodes_of(env, f"envs[{name!r}]")
    if length is None:
        unit = "episodes" if isinstance(objective, Episodic) else "steps"
        raise ValueError(f"length is None, expected a number of {unit} for envs[{name!r}]")
    return Task(env, objective, length, prior)


def _check_priors(players: Mapping[str, Agent[Any]], tasks: Mapping[str, Task]) -> None:
    # The first agent that needs a prior, and the first task that has none: together they are at fault.
    needs_prior = next((name for name, agent in players.items() if not isinstance(agent, Learner)), None)
    bare = next((name for name, task in tasks.items() if task.prior is None), None)
    if needs_prior is not None and bare is not None:
        raise ValueError(f"prior is None, expected a prior or a posterior for agent {needs_prior!r} on {bare!r}")


def _attributes(
    players: Mapping[str, Agent[Any]],
    tasks: Mapping[str, Task],
    num_seeds: int,
    options: RunOptions,
    key: PRNGKeyArray,
) -> dict[str, object]:
    configuration = {
        "agents": {name: describe(agent, f"agents[{name!r}]") for name, agent in players.items()},
        "envs": {
            name: {**describe(task, f"envs[{name!r}]"), "belief": _fingerprint(task)} for name, task in tasks.items()
        },
        "num_seeds": num_seeds,
        "options": describe(options, "options"),
    }
    return {"configuration": configuration, "versions": versions(), "key": describe_key(key)}


def _fingerprint(task: Task) -> str | None:
    """A hash of one draw of a program, which differs where its hyperparameters do; of the arrays of a posterior."""
    from numpyro import handlers

    if task.prior is None:
        return None
    if isinstance(task.prior, CanUpdate):
        return fingerprint(task.prior)
    # A program has no arrays to hash: what one fixed seed draws from it stands for it.
    sites = handlers.trace(handlers.seed(task.prior, rng_seed=0)).get_trace(space_of(task.env.mdp))
    return fingerprint([site["value"] for site in sites.values() if site["type"] == "sample"])


def _play_all(
    players: Mapping[str, Agent[Any]],
    tasks: Mapping[str, Task],
    levels: Mapping[str, Levels],
    shared: Mapping[str, Any],
    cells: Cells,
) -> dict[tuple[str, str], dict[str, np.ndarray]]:
    """Results of every pair. All problems of an agent in turn: those of equal shapes share its compiled program.

    `shared`: the arguments of `run` that are the same for all.
    """
    # By the name of the problem: all agents meet the same random numbers, whatever else is compared.
    keys = {name: jax.random.fold_in(shared["key"], crc32(name.encode())) for name in tasks}
    names, computes = {}, {}
    for agent, env in product(players, tasks):
        # "average" costs nothing, but needs the optimal gain.
        regret = "oracle_run" if np.isnan(levels[env].optimal) else "average"
        arguments = {**shared, "key": keys[env], "options": replace(shared["options"], regret=regret)}
        # The number, because names may hold what a file name may not.
        name = names[agent, env] = f"{len(names)}-{_plain(agent)}-{_plain(env)}"
        computes[name] = partial(_play, players[agent], tasks[env], arguments)
    results = cells.get_all(computes)
    played = {pair: results[name] for pair, name in names.items()}
    refused = [str(values["refused"]) for values in played.values()]
    if all(refused):
        raise ValueError(f"every agent was refused on every problem, the first: {refused[0]}")
    return played


def _plain(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name)


def _play(agent: Agent[Any], task: Task, arguments: Mapping[str, Any], path: Path | None) -> CellValues:
    """Rewards of the twentieths of every run [seed, checkpoint], seconds, why it was refused."""
    began, refused = time.perf_counter(), ""
    file = None if path is None else path.with_suffix(".nc")
    try:
        result = run(
            agent,
            task.env,
            objective=task.objective,
            prior=task.prior,
            num_steps=task.num_steps,
            num_episodes=task.num_episodes,
            path=file,
            **arguments,
        )
        reward = _parts(result, task.length)
    except (ValueError, TypeError, ImportError) as error:  # refused, or an extra is not installed
        reward, refused = np.full((arguments["num_seeds"], NUM_CHECKPOINTS), np.nan), str(error)
    if file is not None:
        file.unlink(missing_ok=True)
    return {"reward": reward, "seconds": time.perf_counter() - began, "refused": refused}


def _parts(result: "xr.Dataset", length: int) -> np.ndarray:
    """[seed, checkpoint], the reward of each twentieth; a row that a boundary cuts is shared in proportion."""
    reward = result["reward"].to_numpy().astype(np.float64)
    ends = np.asarray(result["time"]) if "time" in result.coords else np.arange(1, reward.shape[1] + 1)
    # The cumulative reward, interpolated at multiples of length / 20: no row has to end there.
    total = np.concatenate([np.zeros((len(reward), 1)), np.cumsum(reward, 1)], 1)
    grid = np.linspace(0, length, NUM_CHECKPOINTS + 1)
    return np.diff(np.stack([np.interp(grid, [0, *ends], returns) for returns in total]), axis=1)


def _to_dataset(
    players: Mapping[str, Agent[Any]],
    tasks: Mapping[str, Task],
    levels: Mapping[str, Levels],
    played: Mapping[tuple[str, str], Mapping[str, np.ndarray]],
) -> "xr.Dataset":
    import xarray as xr

    def table(name: str) -> np.ndarray:
        return np.array([[played[agent, env][name] for env in tasks] for agent in players])

    # score = (R - R_random) / (R* - R_random), of total rewards; a twentieth has a twentieth of the levels.
    random, optimal = (np.array([level[i] for level in levels.values()]) for i in range(2))
    length = np.array([task.length for task in tasks.values()])
    span = (optimal - random) * length
    reward = table("reward")
    base = (random * length)[:, None]
    score = (reward.sum(-1) - base) / span[:, None]
    curve = (reward * NUM_CHECKPOINTS - base[..., None]) / span[:, None, None]
    times = length[:, None] * np.arange(1, NUM_CHECKPOINTS + 1) / NUM_CHECKPOINTS
    pairs = ("agent", "env")
    return xr.Dataset(
        {
            "score": ((*pairs, "seed"), score, {"long_name": "normalised score"}),
            "curve": ((*pairs, "seed", "checkpoint"), curve, {"long_name": "normalised score of a twentieth"}),
            "random": ("env", random, {"long_name": "random policy, per episode or step"}),
            "optimal": ("env", optimal, {"long_name": "optimal policy, per episode or step"}),
            "refused": (pairs, table("refused").astype(object)),
            "unscored": ("env", np.array([level.unknown for level in levels.values()], object)),
            "seconds": (pairs, table("seconds"), {"units": "s"}),
        },
        coords={
            "agent": list(players),
            "env": list(tasks),
            "seed": np.arange(reward.shape[2]),
            "checkpoint": np.arange(NUM_CHECKPOINTS),
            "time": (("env", "checkpoint"), times),
        },
    )
