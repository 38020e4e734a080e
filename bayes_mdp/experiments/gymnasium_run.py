"""`run` in a Gymnasium environment: seeds one after the other, step by step through an `Actor`, the same Dataset."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from bayes_mdp.agents import Learner
from bayes_mdp.experiments.actor import Actor
from bayes_mdp.experiments.describe import describe_case
from bayes_mdp.experiments.gymnasium_envs import (
    Known,
    ParallelEnvs,
    SingleEnv,
    Step,
    describe_env,
    known_mdp,
    open_env,
)
from bayes_mdp.experiments.results import to_dataset
from bayes_mdp.experiments.resume import Snapshots
from bayes_mdp.experiments.rollout.execute import Outcome, join, rows_so_far, units
from bayes_mdp.experiments.rollout.regret import optimal_rate
from bayes_mdp.experiments.rollout.run_beliefs import (
    COSTS,
    Refits,
    check_paid,
    initial_belief,
    learnable_rewards,
    list_outcomes,
    thins,
)
from bayes_mdp.experiments.rollout.simulator import simulator
from bayes_mdp.experiments.rollout.time_loop import Layout, Row, layout_of, streams
from bayes_mdp.experiments.run_config import BeliefTree, RunConfig, check_request, space_of
from bayes_mdp.mdp import AverageReward, Environment, StateActionSpace
from bayes_mdp.mdp.protocols import CanThin
from bayes_mdp.random.threefry import plain_key
from bayes_mdp.utils.progress import Progress

if TYPE_CHECKING:
    import xarray as xr


def play(
    opened: SingleEnv | ParallelEnvs, actor: Actor, layout: Layout, finish: Callable[[int], None], *, seed: int
) -> Float[np.ndarray, " rows"]:
    """The rewards of all rows of one seed, whether of one environment or of parallel ones.

    Args:
        opened: the environments.
        actor: chooses, and learns.
        layout: rows are episodes, or the steps between two checkpoints.
        finish: is told how many rows are over.
        seed: of the environments.
    """
    if isinstance(opened, ParallelEnvs):
        return _play_parallel(opened, actor, layout, finish, seed)
    return _play_one(opened, actor, layout, finish, seed)


def _play_one(
    opened: SingleEnv, actor: Actor, layout: Layout, finish: Callable[[int], None], seed: int
) -> Float[np.ndarray, " rows"]:
    """One environment: rows of steps, or episodes."""
    rewards, begins = np.zeros(layout.num_rows), True
    observation, first_seed = -1, seed
    for row in range(layout.num_rows):
        # Steps: an episode may go on in the next row. Episodes: every row is one.
        total, begins = 0.0, begins or layout.episodic
        steps = min(layout.row_length, layout.num_steps - row * layout.row_length)
        for _ in range(steps):
            if begins:
                # A seed is given once: later resets go on with the environment's own generator.
                observation, first_seed = opened.reset(first_seed), None
                actor.reset(observation)
            action = actor.act(observation)
            assert isinstance(action, int)
            next_state, reward, terminated, truncated = opened.step(action)
            actor.observe(observation, action, reward, next_state, terminated, truncated)
            total += reward
            observation, begins = next_state, terminated or truncated
            if begins and layout.episodic:
                break
        rewards[row] = total
        finish(row + 1)
    return rewards


def _play_parallel(
    opened: ParallelEnvs, actor: Actor, layout: Layout, finish: Callable[[int], None], seed: int
) -> Float[np.ndarray, " rows"]:
    """Parallel environments, whose transitions are counted one after the other; those after the last are dropped."""
    rewards, count = np.zeros(layout.num_rows), (Episodes if layout.episodic else Steps)(opened.num_envs, layout)
    observation = opened.reset(seed)
    actor.reset(observation, mask=count.plays)
    while count.rows_over < layout.num_rows:
        action = np.asarray(actor.act(observation))
        # Where H steps are over: an environment that goes on is refused, since it cannot be made to reset.
        step = opened.step(action, count.last)
        counted, rows = count.take(step)
        ends = (step.terminated, step.truncated)
        # The state of the transition, and not the one that is shown: that may be of a new episode.
        actor.observe(observation, action, step.reward, step.next_state, *ends, mask=counted)
        np.add.at(rewards, rows[counted], step.reward[counted])
        actor.reset(step.observation, mask=step.begins & count.plays)
        observation = step.observation
        finish(count.rows_over)
    return rewards


class Steps:
    """Which transitions count in a run of `num_steps`, and in which row; `rows_over` rows are finished."""

    def __init__(self, num_envs: int, layout: Layout) -> None:
        self._layout, self._taken, self.rows_over = layout, 0, 0
        self.plays, self.last = np.ones(num_envs, bool), np.zeros(num_envs, bool)

    def take(self, step: Step) -> tuple[Bool[np.ndarray, " B"], Int[np.ndarray, " B"]]:
        """Which environments count, and their rows."""
        # Transitions of one step are numbered in the order of the environments.
        layout, time = self._layout, self._taken + np.cumsum(step.happened) - 1
        counted = step.happened & (time < layout.num_steps)
        self._taken += int(counted.sum())
        # The last row may be a short one.
        self.rows_over = layout.num_rows if self._taken == layout.num_steps else self._taken // layout.row_length
        return counted, time // layout.row_length


class Episodes:
    """Which transitions count in a run of episodes, numbered in the order in which they begin.

    `plays`: the environments whose episode counts (no other is begun beyond the last); `last`: whether their next step
    is the last of it; `rows_over` episodes are finished.
    """

    def __init__(self, num_envs: int, layout: Layout) -> None:
        self._layout, self._next = layout, num_envs
        # The first episodes are those of the environments, in their order.
        self._row, self._step = np.arange(num_envs), np.zeros(num_envs, int)
        self.rows_over = 0
        self._look()

    def _look(self) -> None:
        self.plays = self._row < self._layout.num_rows
        self.last = self.plays & (self._step == self._layout.row_length - 1)

    def take(self, step: Step) -> tuple[Bool[np.ndarray, " B"], Int[np.ndarray, " B"]]:
        """Which environments count, and their episodes."""
        counted, rows = step.happened & self.plays, self._row.copy()
        ended = counted & (step.terminated | step.truncated | self.last)
        # The next numbers go to the environments whose episodes are over, in their order.
        self._step += counted
        self._step[ended] = 0
        self._row[ended] = self._next + np.arange(ended.sum())
        self._next += int(ended.sum())
        self.rows_over += int(ended.sum())
        self._look()
        return counted, rows


class PreparedGymnasium(NamedTuple):
    """A run, ready to be played: as `Prepared`, but for one environment that is already open."""

    case: RunConfig
    opened: SingleEnv | ParallelEnvs
    known: Known
    layout: Layout
    belief: BeliefTree
    belief_keys: Key[Array, " N"] | None
    keys: Key[Array, " N"]

    def belief_of(self, seed: int) -> BeliefTree:
        """Before any data; a belief that was inferred by draws is thinned for every seed by itself."""
        if self.belief_keys is None or not isinstance(self.belief, CanThin):
            return self.belief
        return self.belief.thinned(self.belief_keys[seed], self.case.options.num_particles)


def run_gymnasium(case: RunConfig, path: str | Path | None) -> "xr.Dataset":
    """`run` for a Gymnasium environment (see there). Host side.

    Raises:
        ValueError, TypeError: one sentence about the argument at fault.
    """
    opened = open_env(case.gymnasium_source)
    try:
        return _run(case, opened, path)
    finally:
        # Of ids and functions every seed has an environment of its own.
        if isinstance(case.env, str) or callable(case.env):
            opened.env.close()


def _run(case: RunConfig, opened: SingleEnv | ParallelEnvs, path: str | Path | None) -> "xr.Dataset":
    known = known_mdp(opened.env)
    space = _space(case, opened, known)
    case = replace(case, asked_regret=case.asked_regret or "average", options=replace(case.options, space=space))
    check_request(case)
    _check(case, opened)
    prepared = _prepare(case, opened, known)
    regret_rate, why = _rate(case, known)
    environment = describe_env(case.gymnasium_source, opened.env, opened.num_envs)
    attributes = describe_case(case, environment=environment, space=space, belief=prepared.belief)
    outcome = _play_all(prepared, Snapshots(path, attributes, seconds=case.options.snapshot_seconds))
    # Unknown rate: the regret is nan, and the attributes say why.
    regret = np.cumsum(regret_rate * units(prepared.layout) - outcome.reward, axis=1)
    if why:
        attributes["regret_unknown"] = why
    return to_dataset(outcome, regret, prepared.layout, space, attributes)


def _space(case: RunConfig, opened: SingleEnv | ParallelEnvs, known: Known) -> StateActionSpace:
    """The space of the options or of the posterior, or one from the properties of the environment."""
    space = case.options.space or getattr(case.prior, "space", None)
    if isinstance(space, StateActionSpace):
        return space
    if known.mdp is not None:
        return space_of(known.mdp)
    return StateActionSpace(opened.n_states, opened.n_actions, ends=not isinstance(case.objective, AverageReward))


def _check(case: RunConfig, opened: SingleEnv | ParallelEnvs) -> None:
    if case.regret != "average":
        raise ValueError(f"regret is {case.regret!r}, expected 'average' or None for a Gymnasium environment")
    for part in ("target", "devices"):
        if getattr(case.options, part) is not None:
            raise ValueError(f"options.{part} is given, expected None for a Gymnasium environment")
    if case.options.compiler == "numba":
        raise ValueError("options.compiler is 'numba', expected 'auto' or 'xla' for a Gymnasium environment")
    sizes, expected = (case.space.n_states, case.space.n_actions), (opened.n_states, opened.n_actions)
    if sizes != expected:
        raise ValueError(f"space has {sizes} states and actions, expected {expected}, those of env")


def _prepare(case: RunConfig, opened: SingleEnv | ParallelEnvs, known: Known) -> PreparedGymnasium:
    # The keys are those of a compiled run (see `prepare`).
    key_seeds, key_belief, _ = jax.random.split(plain_key(case.key), 3)
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key_seeds, jnp.arange(case.num_seeds))
    belief = belief_keys = None
    if not isinstance(case.agent, Learner):
        belief = initial_belief(key_belief, case.prior, case.space, case.agent, case.options.method)
        support = learnable_rewards(belief)
        env = None if known.mdp is None or known.law is None else Environment(known.mdp, known.law)
        if support is not None and env is not None:
            check_paid(support, simulator(env), env.mdp, case.space, horizon=case.objective.horizon)
        if thins(belief, case.prior):
            belief_keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key_belief, jnp.arange(case.num_seeds))
        if known.ours and env is not None:
            belief = list_outcomes(belief, simulator(env).outcome, case.space)
    layout = layout_of(case, ends=case.space.ends, values=False)
    return PreparedGymnasium(case, opened, known, layout, belief, belief_keys, keys)


def _rate(case: RunConfig, known: Known) -> tuple[float, str]:
    """The optimal reward of a step or episode; where it is not known, nan and why."""
    if known.mdp is None:
        return float("nan"), known.why
    try:
        return float(optimal_rate(known.mdp, case.objective)), ""
    except ValueError as error:
        return float("nan"), str(error)


def _play_all(prepared: PreparedGymnasium, snapshots: Snapshots) -> Outcome:
    """All seeds. A snapshot holds the finished seeds, as that of a compiled run holds the finished rows."""
    layout, shape, num_seeds = prepared.layout, prepared.case.space.shape, prepared.case.num_seeds
    # The carry of this run are the visits: what a finished seed leaves.
    done, visits, restored = snapshots.restore(jnp.zeros((num_seeds, *shape)))
    seeds = [Row(**restored)] if restored else []
    cost = dict.fromkeys(COSTS, 0.0)
    progress = Progress(layout.row_length, layout.num_rows * num_seeds, show=prepared.case.options.progress)
    with progress as bar, snapshots as saved:
        for seed in range(done, num_seeds):
            reward, actor = _play_seed(prepared, seed, bar)
            assert actor.refits is not None
            seeds.append(_column(reward, actor.refits))
            visits = visits.at[seed].set(actor.visits)
            cost = {name: cost[name] + actor.refits.cost[name] for name in COSTS}
            saved.keep(seed + 1, visits, partial(rows_so_far, seeds, seed + 1))
            saved.write_if_old()
    rows = join(seeds, num_seeds)
    reward = np.asarray(rows.reward).T
    outcome = Outcome(reward, np.zeros_like(reward), np.asarray(visits))
    return outcome if rows.refits is None else outcome._replace(refits=rows.refits.sum(0).astype(int), refit_cost=cost)


def _column(reward: Float[np.ndarray, " rows"], refits: Refits) -> Row:
    """The rows of one seed; the number of its refits is in the last one."""
    nothing = np.zeros((reward.size, 1))
    if not refits.needed:
        return Row(reward[:, None], nothing)
    number = nothing.copy()
    number[-1] = refits.cost["calls"]
    return Row(reward[:, None], nothing, number)


def _play_seed(prepared: PreparedGymnasium, seed: int, bar: Progress) -> tuple[Float[np.ndarray, " rows"], Actor]:
    """Rewards of the rows, and the actor at the end."""
    case, key = prepared.case, prepared.keys[seed]
    is_new = (isinstance(case.env, str) or callable(case.env)) and seed > 0
    opened = open_env(case.gymnasium_source) if is_new else prepared.opened
    belief = prepared.belief_of(seed)
    initial = None if prepared.known.mdp is None else prepared.known.mdp.initial
    actor = Actor(case.agent, case.space, objective=case.objective, key=key, prior=belief, initial=initial)
    # Gymnasium takes a seed of 31 bits: those of the stream that a compiled run draws its environment from.
    words = jax.random.key_data(streams(key).env)
    first_row = seed * prepared.layout.num_rows
    try:
        reward = play(
            opened, actor, prepared.layout, lambda rows: bar.advance(first_row + rows), seed=int(words[1]) >> 1
        )
    finally:
        if is_new:
            opened.env.close()
    return reward, actor
