"""The arguments of `run` as one record, and the checks of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, no_type_check

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import PRNGKeyArray, PyTree

from bayes_mdp.agents import Learner
from bayes_mdp.agents.common.replan import as_rule, rule_for
from bayes_mdp.agents.model_free.trial_learning import EpisodeLearner
from bayes_mdp.inference.draws.methods import Method
from bayes_mdp.inference.route import METHODS
from bayes_mdp.mdp import (
    MDP,
    Agent,
    AverageReward,
    CanUpdate,
    Discounted,
    Environment,
    Episodic,
    FirstExit,
    Objective,
    PlansFromState,
    SimulatedEnvironment,
    SparseMDP,
    StateActionSpace,
)
from bayes_mdp.mdp.agent import ReplanRule
from bayes_mdp.mdp.objectives import check_objective, require_undiscounted
from bayes_mdp.mdp.space import check_space
from bayes_mdp.models.mdp_spec import Prior
from bayes_mdp.parallel import RETRIES, ExecutorLike, check_executor
from bayes_mdp.utils.identity import UNDESCRIBED_DEFAULT
from bayes_mdp.utils.typing import ArrayLike
from bayes_mdp.utils.validation import (
    check_bool,
    check_count,
    check_key,
    check_name,
    check_not_negative,
    check_type,
    described,
)

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.vector import VectorEnv

    GymnasiumEnv: TypeAlias = gymnasium.Env | VectorEnv
    GymnasiumSource: TypeAlias = str | Callable[[], GymnasiumEnv] | GymnasiumEnv
    RunEnvironment: TypeAlias = Environment | SimulatedEnvironment | GymnasiumSource

PriorLike: TypeAlias = Prior | CanUpdate | None
"""The prior of `run`: a program, a posterior that can `update`, or None for agents with a belief of their own."""

AgentState: TypeAlias = PyTree
"""The state of an agent, opaque to the loops."""

Devices: TypeAlias = int | Sequence[jax.Device] | None  # pyright: ignore[reportInvalidTypeForm]
"""How many of the devices of JAX's default kind, or which; None: one, JAX's default."""

BeliefTree: TypeAlias = PyTree
"""A posterior as a tree of arrays, or a part of one: None in place of the leaves of the other part."""

REGRETS = ("objective", "average", "oracle_run", "bayes")
COMPILERS = ("auto", "xla", "numba")
SNAPSHOT_SECONDS = 10.0
NUM_PARTICLES = 64
_MOST_STEPS = 2**31 - 1


@dataclass(frozen=True)
class RunOptions:
    """Options of `run` with defaults that seldom change.

    Args:
        space: the sizes and masks that the agent is given; None: the space of the posterior that is the prior, or the
            sizes of the environment, its legal actions, and whether it can end.
        num_checkpoints: approximate number of checkpoints of a run that is not measured under `Episodic` (each a whole
            number of plans, or of episodes).
        progress: show a progress bar where the output is a terminal and the run takes more than two seconds.
        snapshot_seconds: least time between two snapshots.
        env_prior: a NumPyro program from which regret="bayes" draws the environments; None: `prior`. With another
            program, the prior of the agent is misspecified.
        method: how a prior program is inferred, as for `infer`.
        num_particles: number of weighted draws in the belief of a seed, where a prior program is inferred by draws.
        refit_every: rows (episodes or checkpoints) between two checks of the effective sample size of a belief by
            weighted draws; None: about a hundred checks in a run. All seeds with a low effective sample size get a new
            belief from all their data, in one compiled call.
        target: Bool[*H S A], pairs whose visits are counted row by row; None: none. Not for a Gymnasium environment.
        table_rows: rows of the table of values for an environment whose states are not listed
            (`SimulatedEnvironment`).
        compiler: what makes machine code of the loop: "xla", for every run; "numba", a plain loop on the processor for
            agents that touch one state at a time (see `rollout.host.host_choice`), with the same random numbers and the
            results of "xla" to rounding; it needs the extra `fast`. "auto": "numba" where it can play the run and is
            installed, else "xla". Not part of the identity of a run: a snapshot is resumed by either.
        regret: which regret `run` computes, see there; None: "objective" under `Episodic`, else "average".
        devices: on which the seeds of a compiled run are played, in equal parts: a number of JAX's devices, or a list
            of them; None: JAX's default device. `num_seeds` is a multiple of their number. Not part of the identity of
            a run: a snapshot is resumed on any number of devices.

    Raises:
        TypeError, ValueError: one sentence about the option at fault.

    Example:
        >>> options = bm.experiments.RunOptions(num_checkpoints=5, progress=False)
        >>> result = bm.run(
        ...     bm.agents.EpsilonGreedyQ(),
        ...     bm.envs.chain(),
        ...     objective=bm.Discounted(0.9),
        ...     num_steps=100,
        ...     key=jax.random.key(0),
        ...     options=options,
        ... )
        >>> result.sizes["checkpoint"]
        5
    """

    space: StateActionSpace | None = None
    num_checkpoints: int = 100
    progress: bool = True
    snapshot_seconds: float = SNAPSHOT_SECONDS
    env_prior: "Prior | None" = None  # quoted: checked by `check_case`, with the prior
    method: str | Method = "auto"
    num_particles: int = NUM_PARTICLES
    refit_every: int | None = None
    target: ArrayLike | None = None
    table_rows: int = 2**18
    devices: Devices = None
    compiler: str = "auto"
    # Described with the run, as its `regret`.
    regret: str | None = field(default=None, metadata={UNDESCRIBED_DEFAULT: True})

    def __post_init__(self) -> None:
        check_type("options.space", self.space, (StateActionSpace, type(None)), "a StateActionSpace or None")
        for name in ("num_checkpoints", "num_particles", "table_rows"):
            check_count(f"options.{name}", getattr(self, name))
        if self.refit_every is not None:
            check_count("options.refit_every", self.refit_every)
        check_devices("options.devices", self.devices)
        check_name("options.compiler", self.compiler, COMPILERS)
        if self.regret is not None:
            check_name("options.regret", self.regret, REGRETS)
        check_bool("options.progress", self.progress)
        check_not_negative("options.snapshot_seconds", self.snapshot_seconds)
        if not isinstance(self.method, Method):
            check_name("options.method", self.method, METHODS, ", or a record NUTS(...), SVI(...), Laplace(...)")


@dataclass(frozen=True)
class SweepOptions(RunOptions):
    """Options of `sweep`: those of each `run`, and where and how often the cells are computed.

    Args:
        num_blocks: cells with the same settings, of `num_seeds` new seeds each.
        executor: where cells are computed (see `ExecutorLike`).
        retries: of a cell, in one call.

    Raises:
        TypeError, ValueError: one sentence about the option at fault.
        ImportError: `executor` is a Dask cluster, and Dask is not installed.

    Example:
        >>> bm.experiments.SweepOptions(executor="processes:2", progress=False).retries
        2
    """

    num_blocks: int = 1
    executor: ExecutorLike = None
    retries: int = RETRIES

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("options.num_blocks", self.num_blocks)
        check_executor(self.executor)
        check_count("options.retries", self.retries, 0)


@no_type_check
@dataclass(frozen=True)
class RunConfig:
    """The arguments of `run`.

    The annotations are quoted, for static checkers alone: `run` makes the record first and checks it then
    (`check_request`), so that until then a field may hold anything.
    """

    agent: "Agent"
    env: "RunEnvironment"
    objective: "Objective"
    key: "PRNGKeyArray"
    prior: "PriorLike"
    num_steps: "int | None"
    num_episodes: "int | None"
    num_seeds: "int"
    asked_regret: "str | None"
    options: "RunOptions"

    @property
    def environment(self) -> Environment:
        """`env`, where its states are listed.

        Raises:
            TypeError: it is no `Environment`.
        """
        if not isinstance(self.env, Environment):
            raise TypeError(f"env is a {type(self.env).__name__}, expected an Environment")
        return self.env

    @property
    def gymnasium_source(self) -> "GymnasiumSource":
        """`env`, where it is none of this package."""
        assert not isinstance(self.env, (Environment, SimulatedEnvironment))
        return self.env

    @property
    def regret(self) -> str:
        """The definition that was chosen, or the default: "objective" under `Episodic`, else "average"."""
        return self.asked_regret or ("objective" if isinstance(self.objective, Episodic) else "average")

    @property
    def length(self) -> int:
        """Number of episodes, or of steps (once checked)."""
        return int((self.num_episodes if self.objective.horizon or self.in_episodes else self.num_steps) or 0)

    @property
    def in_episodes(self) -> bool:
        """Whether the run is measured in episodes without a horizon."""
        goes_on = isinstance(self.objective, (Discounted, FirstExit))
        return goes_on and self.num_episodes is not None and bool(isinstance(self.agent, EpisodeLearner))

    @property
    def own_env(self) -> bool:
        """Whether every seed has an environment of its own."""
        return self.regret == "bayes"

    @property
    def env_prior(self) -> PriorLike:
        """What the environments of `own_env` are drawn from."""
        return self.prior if self.options.env_prior is None else self.options.env_prior

    @property
    def rule(self) -> ReplanRule:
        """When the agent plans."""
        return rule_for(as_rule(self.agent.replan), self.objective)

    @property
    def space(self) -> StateActionSpace:
        """The sizes and masks that the agent is given."""
        if self.options.space is not None:
            return self.options.space
        prior_space = getattr(self.prior, "space", None)
        if isinstance(prior_space, StateActionSpace):
            return prior_space
        return space_of(self.environment.mdp)


def space_of(mdp: MDP | SparseMDP) -> StateActionSpace:
    """The sizes and masks of an MDP."""
    legal = None if mdp.legal is None else np.asarray(mdp.legal)
    ends = mdp.end_probs is not None
    return StateActionSpace(mdp.n_states, mdp.n_actions, horizon=mdp.horizon, ends=ends, legal=legal)


def episodes_of(env: object, name: str) -> Episodic:
    """The objective of an environment that states how many steps an episode has.

    Raises:
        ValueError: it does not; the message has its `name`.
    """
    horizon = env.mdp.horizon if isinstance(env, Environment) else None
    if horizon is None:
        raise ValueError(f"objective is None, expected one for {name}, which has no horizon of its own")
    return Episodic(horizon)


def check_case(case: RunConfig) -> None:
    """Refuse a run that the compiled loop cannot play.

    Raises:
        ValueError, TypeError: one sentence about the argument at fault.
    """
    _ = case.environment
    check_request(case)
    check_sizes(case)
    seed_mesh(case.options.devices, case.num_seeds)
    if isinstance(case.objective, FirstExit) and case.regret in ("objective", "bayes"):
        # The value of a policy that never ends is minus infinity.
        raise ValueError(f"regret is {case.regret!r} for FirstExit, expected 'average' or 'oracle_run'")
    if case.own_env and (not callable(case.env_prior) or isinstance(case.env_prior, CanUpdate)):
        name = "prior" if case.options.env_prior is None else "options.env_prior"
        raise ValueError(f"{name} is no NumPyro program, expected one to draw environments from (regret='bayes')")
    if case.options.env_prior is not None and not case.own_env:
        raise ValueError(f"options.env_prior is given for regret={case.regret!r}, expected regret='bayes'")
    _check_target(case)


AGENT_PARTS = {
    "init": "init(key, problem), which returns its first state (None for an agent without one)",
    "plan": "plan(key, problem, state, belief), which returns (policy, next state)",
    "replan": "an attribute replan that says when to plan: None (the default of the objective), a number of steps, "
    "'episode', 'doubling', a rule or a function of the ReplanContext",
}
"""The required members of an agent, and what each is."""


def check_agent(agent: object, name: str = "agent") -> None:
    """Refuse what is no agent (see `Agent`), or none that a compiled program can hold.

    Args:
        agent: any object.
        name: of the argument, for the message.

    Raises:
        TypeError: a member is missing, a hyperparameter is no array and not static. ValueError, TypeError: as
            `as_rule`.
    """
    present = [part for part in AGENT_PARTS if hasattr(agent, part)]
    if isinstance(agent, type) or not present:
        raise TypeError(f"{name} is {described(agent)}, expected an agent (an object with init, plan and replan)")
    for part, purpose in AGENT_PARTS.items():
        if part not in present or (part != "replan" and not callable(getattr(agent, part))):
            raise TypeError(f"{name} is {described(agent)} without {part}, expected an agent with {purpose}")
    assert isinstance(agent, Agent)  # all of its members are there
    _check_leaves(name, agent)
    rule = as_rule(agent.replan)
    if rule is not None:
        _check_leaves(f"{name}.replan", rule)
    if isinstance(agent, PlansFromState) and (rule is None or rule.period != 1):
        raise ValueError(
            f"{name}.replan is {described(agent.replan)}, expected 1: an agent with plan_from plans every step"
        )


def _check_leaves(name: str, record: object) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(record):
        if leaf is record:
            raise TypeError(f"{name} is {described(record)}, which JAX cannot look into, expected an eqx.Module")
        if not isinstance(leaf, (jax.Array, np.ndarray, np.number, np.bool_, bool, int, float)):
            raise TypeError(
                f"{name}{jax.tree_util.keystr(path)} is {described(leaf)}, expected a number or an array, or a field "
                "that is static: eqx.field(static=True)"
            )


def check_request(case: RunConfig) -> None:
    """Refuse arguments that fit no environment.

    Raises:
        ValueError, TypeError: one sentence about the argument at fault.
    """
    check_agent(case.agent)
    check_objective(case.objective)
    require_undiscounted(case.objective, "runs of agents")
    check_key("key", case.key)
    check_count("num_seeds", case.num_seeds)
    check_type("options", case.options, RunOptions, "RunOptions")
    _check_length(case)
    check_name("regret", case.regret, REGRETS)
    searches = isinstance(case.agent, PlansFromState)
    if searches and isinstance(case.objective, Discounted) and case.regret in ("objective", "bayes"):
        # What it plays depends on the whole history: its value is that of no policy that could be evaluated.
        name = type(case.agent).__name__
        raise ValueError(
            f"regret is {case.regret!r} for Discounted, expected 'average' or 'oracle_run': {name} plans for the state "
            "it is in, and has no policy whose value could be taken"
        )
    if case.prior is None and not isinstance(case.agent, Learner):
        raise ValueError(f"prior is None, expected a prior or a posterior for {type(case.agent).__name__}")


def _check_length(case: RunConfig) -> None:
    names = ("num_steps", "num_episodes")
    name, other_name = names[::-1] if case.objective.horizon or case.in_episodes else names
    if getattr(case, other_name) is not None or getattr(case, name) is None:
        kind, in_episodes = (
            type(case.objective).__name__,
            other_name == "num_episodes" and case.num_episodes is not None,
        )
        why = f" (only agents that learn from whole episodes count them, unlike {type(case.agent).__name__})"
        why = why if in_episodes and not isinstance(case.agent, EpisodeLearner) else ""
        raise ValueError(f"{kind} runs are measured in {name}, expected it and not {other_name}{why}")
    check_count(name, getattr(case, name))
    steps = case.length * (case.objective.horizon or 1)
    if steps > _MOST_STEPS:
        raise ValueError(f"{name} is {getattr(case, name)} ({steps} steps), expected at most {_MOST_STEPS} steps")


def _check_target(case: RunConfig) -> None:
    if case.options.target is None:
        return
    target = np.asarray(case.options.target)
    if target.dtype != bool or target.shape != case.space.shape:
        raise ValueError(
            f"options.target is {target.dtype} of shape {target.shape}, expected bool of shape {case.space.shape}"
        )


def check_prior_space(prior: object, space: StateActionSpace) -> None:
    """Refuse a posterior as prior whose space has other sizes.

    Raises:
        ValueError, TypeError: one sentence.
    """
    prior_space = getattr(prior, "space", space)
    check_space(prior_space, "prior.space")
    if prior_space.shape != space.shape or prior_space.ends != space.ends:
        raise ValueError(
            f"prior is a posterior of shape {prior_space.shape} with ends={prior_space.ends}, expected {space.shape} "
            f"and {space.ends}"
        )


def check_sizes(case: RunConfig) -> None:
    """Refuse an environment, a space and a prior that do not fit each other.

    Raises:
        ValueError, TypeError: one sentence about the argument at fault.
    """
    mdp, space, objective = case.environment.mdp, case.space, case.objective
    for name, owned in (("env", mdp.horizon), ("space", space.horizon)):
        if owned is not None and owned != case.objective.horizon:
            raise ValueError(f"objective is {objective}, expected Episodic({owned}): {name} has {owned} steps")
    check_prior_space(case.prior, space)
    if mdp.horizon is not None and space.horizon is None:
        raise ValueError(f"space has no horizon, expected {mdp.horizon}, that of env")
    if mdp.end_probs is not None and isinstance(objective, AverageReward):
        raise ValueError("objective is AverageReward, expected another: env can end (see restart_at_ends)")
    sizes = (space.n_states, space.n_actions)
    if sizes != (mdp.n_states, mdp.n_actions):
        raise ValueError(
            f"space has {sizes} states and actions, expected {(mdp.n_states, mdp.n_actions)}, those of env"
        )
    if mdp.end_probs is not None and not space.ends:
        raise ValueError("space has ends=False, expected True: transitions of env can end an episode")


AXIS = "devices"


def check_devices(name: str, devices: object) -> None:
    """Refuse what are no devices.

    Raises:
        TypeError: neither an integer nor devices. ValueError: fewer than one, more than there are, or one twice.
    """
    if devices is None:
        return
    if isinstance(devices, (list, tuple)):
        wrong = next((i for i, device in enumerate(devices) if not isinstance(device, jax.Device)), None)
        if wrong is not None:
            raise TypeError(f"{name}[{wrong}] is {described(devices[wrong])}, expected a device (see jax.devices())")
        if not devices or len(set(devices)) < len(devices):
            raise ValueError(
                f"{name} has {len(devices)} devices, {len(set(devices))} different ones, expected each once"
            )
        return
    check_count(name, devices)
    present = jax.devices()
    if int(devices) > len(present):  # pyright: ignore[reportArgumentType] - an integer
        raise ValueError(
            f"{name} is {devices}, expected at most {len(present)}, the {present[0].platform} devices that JAX has"
        )


def seed_mesh(devices: Devices, num_seeds: int) -> Mesh | None:
    """The devices in a row, for the axis of seeds; None: the default device.

    Raises:
        ValueError: the number of seeds is no multiple of theirs.
    """
    if devices is None:
        return None
    chosen = list(jax.devices()[:devices] if isinstance(devices, int) else devices)
    if num_seeds % len(chosen):
        raise ValueError(f"num_seeds is {num_seeds}, expected a multiple of {len(chosen)}, the number of devices")
    return Mesh(np.asarray(chosen), (AXIS,))
