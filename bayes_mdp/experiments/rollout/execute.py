"""A compiled run from the host: prepare it, play it chunk by chunk, and account for its regret.

Seeds may be played on several devices, each of which plays its share of them with the program of one device. Nothing is
exchanged inside a chunk: what one seed waits for (`lax.pmax` over the axis of seeds in `time_loop`) are seeds of its
own device. The number of seeds is a multiple of that of the devices; a snapshot holds all seeds, and a run can be
resumed on another number of devices.

`play_until_solved` plays until the goal is reached often enough ([KL21] section 4); the goal is `RunOptions.target`,
pairs of a state and an action. [KL21]: "the first episode at which the agent has reached the rewarding state in at
least 10 % of the episodes so far". Taken literally, one lucky visit in the first ten episodes solves the problem; the
sustained rule does not count it.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree

from bayes_mdp.agents import Greedy, Learner
from bayes_mdp.agents.common.learner import ChecksLearnt, ChecksOptimism
from bayes_mdp.agents.common.replan import EverySteps
from bayes_mdp.experiments.describe import Json, describe, describe_case
from bayes_mdp.experiments.resume import Snapshots
from bayes_mdp.experiments.rollout.host.host_choice import (
    ListedEnvironment,
    chooses_numba,
    list_environment,
    why_not_sweeps,
)
from bayes_mdp.experiments.rollout.regret import Truth, optimal_plan, optimal_rate, truth_of
from bayes_mdp.experiments.rollout.run_beliefs import (
    Refits,
    changing,
    check_paid,
    initial_belief,
    learnable_rewards,
    list_outcomes,
    on_device,
    refuse_paid,
    split_constants,
    thins,
)
from bayes_mdp.experiments.rollout.simulator import Simulator, simulator
from bayes_mdp.experiments.rollout.time_loop import SEEDS, Carry, Layout, Row, RunContext, layout_of, play, start
from bayes_mdp.experiments.run_config import AXIS, BeliefTree, RunConfig, check_case, seed_mesh
from bayes_mdp.mdp import (
    CanUpdate,
    Discounted,
    Environment,
    Episodic,
    PlansFromState,
    Problem,
    StateActionSpace,
    Transitions,
)
from bayes_mdp.mdp.protocols import CanRefit, CanThin
from bayes_mdp.models.isolate import traced_alone
from bayes_mdp.numerics.array_forms import stack_trees
from bayes_mdp.numerics.host_program import QUICKEST, quick_jit
from bayes_mdp.random.threefry import fused_key, plain_key
from bayes_mdp.utils.memory import device_bytes, memory_limit, too_much
from bayes_mdp.utils.progress import Progress
from bayes_mdp.utils.typing import AnyArray, ArrayLike, IntScalar, RealLike
from bayes_mdp.utils.validation import check_count


class Prepared(NamedTuple):
    """A run, ready to be executed.

    `envs` is the environment, or one for every seed (`own_env`); `belief` the belief of all, or one for every seed
    (`own_belief`); `mesh` the devices that share the seeds (None: the default one); `listed` the environment for numba,
    where that plays the run (see `host_choice`).
    """

    layout: Layout
    own_env: bool
    own_belief: bool
    envs: Environment
    setting: RunContext
    keys: Key[Array, " N"]
    belief: BeliefTree
    space: StateActionSpace
    mesh: Mesh | None = None
    listed: ListedEnvironment | None = None


@partial(quick_jit, options=QUICKEST)
def _streams(
    key: Key[Array, ""], numbers: Int[Array, " N"]
) -> tuple[Key[Array, " N"], Key[Array, ""], Key[Array, " N"]]:
    """Keys of all seeds, of the belief, and of the environment of every seed."""
    key_seeds, key_belief, key_envs = jax.random.split(key, 3)
    # Seed n has the same numbers in a run of any number of seeds.
    fold_in_each = jax.vmap(jax.random.fold_in, (None, 0))
    return fold_in_each(key_seeds, numbers), key_belief, fold_in_each(key_envs, numbers)


def prepare(case: RunConfig) -> Prepared:
    """Make everything that a run needs (host side: the prior is inferred here, the true MDP is solved)."""
    # Three streams, whatever the run needs of them: a belief or an environment less does not shift the others.
    keys, key_belief, key_envs = _streams(fused_key(case.key), np.arange(case.num_seeds))
    # Environments that are drawn for each seed have no largest reward yet.
    if isinstance(case.agent, ChecksOptimism) and not case.own_env:
        case.agent.check_optimism(_largest_reward(case.environment))
    space, envs = case.space, case.environment
    if case.own_env:
        envs = _draw_environments(key_envs, case, space)
    sim = simulator(envs)
    # Whether every plan must be evaluated in the true MDP.
    values = case.regret in ("objective", "bayes") and isinstance(case.objective, (Episodic, Discounted))
    if not case.own_env:
        _check_lists(space, np.asarray(sim.outcome))
    truth = Truth()
    if values:
        by_action = isinstance(case.agent, PlansFromState)
        truth = truth_of(envs.mdp, case.objective, batched=case.own_env, by_action=by_action)
    belief, constants, own_belief, support = None, None, False, None
    if not isinstance(case.agent, Learner):
        whole = initial_belief(plain_key(key_belief), case.prior, space, case.agent, case.options.method)
        support = learnable_rewards(whole)
        if support is not None:
            support = check_paid(support, sim, envs.mdp, space, horizon=case.objective.horizon, batched=case.own_env)
        belief, constants, own_belief = _belief(key_belief, case, whole, sim)
    # A belief that may be refitted needs breaks between chunks, where the host can do it.
    refits = isinstance(belief, CanRefit)
    layout = layout_of(case, ends=envs.mdp.end_probs is not None, values=values, refits=refits)
    problem = Problem(space, case.objective, case.environment.mdp.initial)
    target = None if case.options.target is None else np.asarray(case.options.target)
    setting = on_device(RunContext(case.agent, case.rule, problem, sim, truth, constants, target, support))
    # Sharded last: what was prepared on the host is sent to each device once.
    mesh = seed_mesh(case.options.devices, case.num_seeds)
    setting = place_on_devices(mesh, setting, _specs(setting, case.own_env))
    keys, belief = place_on_devices(mesh, keys, EACH), place_on_devices(mesh, belief, EACH if own_belief else ALL)
    # The loop of numba plays what it can; XLA plays everything.
    why_not = why_not_sweeps(layout, setting, keys, own_env=case.own_env, mesh=mesh)
    listed = list_environment(setting.simulator) if chooses_numba(case.options.compiler, why_not) else None
    return Prepared(layout, case.own_env, own_belief, envs, setting, keys, belief, space, mesh, listed)


def _check_lists(space: StateActionSpace, outcome: Int[np.ndarray, "*H S A K"]) -> None:
    """Refuse a space that does not list a successor which the environment leads to: it would be counted nowhere.

    Raises:
        ValueError: names the pair and the successor.
    """
    if space.successors is None:
        return
    outcomes = np.broadcast_to(outcome, (*space.shape, outcome.shape[-1]))
    # Place by place, so that memory stays that of the lists.
    missing = np.stack([(space.successors != column[..., None]).all(-1) for column in np.moveaxis(outcomes, -1, 0)], -1)
    missing = missing if space.legal is None else missing & space.legal[..., None]
    if missing.any():
        entry = tuple(int(i) for i in np.argwhere(missing)[0])
        reached = "the end" if outcomes[entry] == space.n_states else f"state {outcomes[entry]}"
        pair = f"state {entry[-3]}, action {entry[-2]}"
        raise ValueError(f"space lists no successor {reached} of {pair}, expected every outcome of env")


def _largest_reward(env: Environment) -> float:
    reward, legal = np.asarray(env.mdp.reward), env.mdp.legal
    return float(np.max(reward if legal is None else np.where(legal, reward, -np.inf)))


def _belief(
    key: PRNGKeyArray, case: RunConfig, whole: CanUpdate, sim: Simulator
) -> tuple[BeliefTree, BeliefTree, bool]:
    """The leaves of the belief that a run changes, the others, and whether the first have an axis of seeds.

    They have one where the belief is weighted draws: every seed then gets draws of its own, so that the mean over seeds
    averages over them too.
    """
    key, space = plain_key(key), case.space
    has_draws, number = thins(whole, case.prior), case.options.num_particles
    if not case.own_env:  # the outcomes that one simulator can produce are those of all seeds
        shorter = list_outcomes(whole, sim.outcome, space)
        assert isinstance(shorter, CanUpdate)  # the same belief
        whole = shorter
    if not has_draws:
        return *split_constants(on_device(whole), _example(space)), False
    assert isinstance(whole, CanThin)
    # Thinned once for the split, whose structure is that of the draws of every seed.
    parts = split_constants(on_device(whole.thinned(key, num=number)), _example(space))
    # One seed after the other: a program for all of them takes longer to compile than 500 seeds take here.
    own_draws = (whole.thinned(jax.random.fold_in(key, seed), num=number) for seed in range(case.num_seeds))
    per_run = [changing(draws, parts[0]) for draws in own_draws]
    return on_device(stack_trees(per_run)), parts[1], True


def _example(space: StateActionSpace) -> Transitions:
    # Any transition will do: it is only traced, to see which leaves an update changes.
    number, index = jnp.zeros(()), jnp.zeros((), jnp.int32)
    ended = jnp.zeros((), bool) if space.ends else None
    return Transitions(index, index, number, index, ended, None, index)


@traced_alone
def _draw_environments(keys: Key[Array, " N"], case: RunConfig, space: StateActionSpace) -> Environment:
    """One environment for every seed, drawn from a program."""
    from numpyro import handlers

    from bayes_mdp.models import environment

    env, prior, initial = case.environment, case.env_prior, case.environment.mdp.initial
    assert callable(prior) and initial is not None  # `check_case`, `Environment`

    def draw(key: Key[Array, ""]) -> Environment:
        with handlers.seed(rng_seed=key):
            spec = prior(space)
        return environment(spec, space, initial, name=env.name)

    return jax.jit(jax.vmap(draw))(keys)


class Outcome(NamedTuple):
    """The result of a run: [seed, row] rewards and regrets, [seed, *H S A] visits; the number of refits, if any.

    `refits` [seed]: how many; `refit_cost`: see `Refits.cost`. `target`: visits of the target pairs, [seed, row].
    """

    reward: Float[np.ndarray, "N rows"]
    regret: Float[np.ndarray, "N rows"]
    visits: Float[np.ndarray, "N *H S A"]
    refits: Int[np.ndarray, " N"] | None = None
    refit_cost: dict[str, float] | None = None
    target: Float[np.ndarray, "N rows"] | None = None


EACH, ALL = PartitionSpec(AXIS), PartitionSpec()
"""An array that is cut along its axis of seeds, and one that every device has."""


def on_each_device(function: Callable[..., Any], mesh: Mesh | None, specs: tuple[PyTree, ...]) -> Callable[..., Any]:
    """`function` of arrays with an axis of seeds, on every device for its seeds; all it returns has that axis.

    Args:
        function: traceable.
        mesh: of `seed_mesh`; None: the function itself.
        specs: of its arguments, `EACH` or `ALL` for every array of each.
    """
    # Without a mesh one device plays all seeds.
    if mesh is None:
        return function
    return jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=EACH, check_vma=False)


def place_on_devices(mesh: Mesh | None, tree: PyTree, spec: PyTree) -> PyTree:
    """The arrays of a tree on the devices, once: else every call would send them again.

    Args:
        mesh: of `seed_mesh`; None: the tree as it is.
        tree: of arrays and keys.
        spec: of all of its arrays, or a tree like it.
    """
    if mesh is None:
        return tree
    specs = spec if not isinstance(spec, PartitionSpec) else jax.tree.map(lambda _: spec, tree)
    return jax.tree.map(lambda leaf, spec_of_leaf: jax.device_put(leaf, NamedSharding(mesh, spec_of_leaf)), tree, specs)


def check_seeds_fit(num_seeds: int, mesh: Mesh | None, carry: PyTree) -> None:
    """Refuse seeds whose state alone (before what a plan needs) takes more than half of the memory that is left.

    Devices that are CPUs share one memory; of others each has its own.

    Args:
        num_seeds: for the message.
        mesh: of `seed_mesh`.
        carry: the state of all seeds, or its shapes and types.

    Raises:
        ValueError: it does not fit.
    """
    # What the carries of all seeds take, from their shapes alone.
    needed = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(carry))
    devices = [jax.devices()[0]] if mesh is None else list(mesh.devices.flat)
    limit, whose_memory = memory_limit(), "half of what is free"
    left = [device_bytes(device) for device in devices]
    if all(x is not None for x in left):
        # Seeds are shared out evenly, and the device with the least memory left decides.
        needed, limit = needed / len(devices), min(x for x in left if x is not None) // 2
        whose_memory = "half of a device"
    if needed > limit:
        raise too_much(
            f"num_seeds is {num_seeds}", needed, limit, whose_memory, "fewer seeds take less, or more devices"
        )


@partial(jax.jit, static_argnames=("layout", "own", "mesh"))
def start_all(
    layout: Layout,
    own: tuple[bool, bool],
    setting: RunContext,
    keys: Key[Array, " N"],
    belief: BeliefTree,
    mesh: Mesh | None = None,
) -> Carry:
    """The carries of all seeds before the first step.

    Args:
        layout: the static shape of the run.
        own: whether each seed has an environment, a belief of its own.
        setting: what does not change.
        keys: of the seeds.
        belief: the leaves that change, of all seeds or of each.
        mesh: the devices that share the seeds.
    """
    own_env, own_belief = own
    axes = _axes(setting, own_env), 0, 0 if own_belief else None
    seeds = jax.vmap(partial(start, layout), in_axes=axes, axis_name=SEEDS)
    specs = _specs(setting, own_env), EACH, EACH if own_belief else ALL
    return on_each_device(seeds, mesh, specs)(setting, keys, belief)


@partial(jax.jit, static_argnames=("layout", "own_env", "mesh"), donate_argnames=("carry",))
def play_chunk(
    layout: Layout,
    own_env: bool,
    setting: RunContext,
    keys: Key[Array, " N"],
    carry: Carry,
    first_row: IntScalar,
    num_rows: IntScalar,
    mesh: Mesh | None = None,
) -> tuple[Carry, Row]:
    """One chunk for all seeds; compiled once for a layout, whatever the rows.

    Args:
        layout: the static shape of the run.
        own_env: whether each seed has an environment of its own.
        setting: what does not change.
        keys: of the seeds.
        carry: of the seeds; donated, so that tables are updated in place.
        first_row, num_rows: which rows; traced.
        mesh: the devices that share the seeds.
    """
    seeds = partial(play, layout, _axes(setting, own_env))
    specs = _specs(setting, own_env), EACH, EACH, ALL, ALL
    return on_each_device(seeds, mesh, specs)(setting, keys, carry, first_row, num_rows)


def execute(
    prepared: Prepared,
    progress: Progress,
    snapshots: Snapshots,
    *,
    stop: Callable[[Row], bool] | None = None,
) -> Outcome:
    """Play all rows, chunk by chunk, from the last snapshot where there is one.

    A run that is interrupted leaves a snapshot of its last chunk, and the interruption is raised to the caller.

    Args:
        prepared: the run.
        progress: advances with every chunk.
        snapshots: where the run is resumed from, and kept.
        stop: is called between two chunks with the rows so far [seed, row]; where it is true, no more is played.
    """
    layout, own_env, setting, keys = prepared.layout, prepared.own_env, prepared.setting, prepared.keys
    mesh, start_arguments = prepared.mesh, (setting, keys, prepared.belief, prepared.mesh)
    has_own = (own_env, prepared.own_belief)
    check_seeds_fit(keys.shape[0], mesh, start_all.eval_shape(layout, has_own, *start_arguments))
    carry = start_all(layout, has_own, *start_arguments)
    done, carry, rows = snapshots.restore(carry)
    if prepared.listed is not None and stop is None:
        return _execute_by_numba(prepared, prepared.listed, (done, carry, rows), progress, snapshots)
    refits = Refits(keys, prepared.belief, setting.constants)
    # Rows of a snapshot are the first chunk.
    chunks = [Row(**rows)] if rows else []
    refitted = np.zeros(keys.shape[0], bool)
    with progress as bar, snapshots as saved:
        bar.advance(done)
        for first in range(done, layout.num_rows, layout.chunk_rows):
            count = min(layout.chunk_rows, layout.num_rows - first)
            if stop is not None and chunks and stop(join(chunks, first)):
                break
            # Before the chunk, not after it: the snapshot is then older than the refit, which takes long.
            if refits.needed:
                belief, refitted = refits.renew(carry.belief, first)
                carry = replace(carry, belief=belief)
            carry, chunk = play_chunk(layout, own_env, setting, keys, carry, jnp.int32(first), jnp.int32(count), mesh)
            if refits.needed:  # noted in the first row of the chunk
                column = np.zeros(chunk.reward.shape)
                column[:, 0] = refitted
                chunk = chunk._replace(refits=column)
            chunks.append(chunk)
            done = first + count
            # Kept before it is computed, waited for, then written if the last snapshot is old: an interruption while
            # it waits finds this state, and writing overlaps with nothing.
            saved.keep(done, carry, partial(rows_so_far, chunks, done))
            jax.block_until_ready(chunk)
            if carry.refused is not None and setting.support is not None:
                refuse_paid(carry.refused, setting.support, setting.problem.space)
            saved.write_if_old()
            bar.advance(done)
    if isinstance(setting.agent, ChecksLearnt):
        setting.agent.check_learnt(carry.agent_state)
    rows = join(chunks, done)
    # One copy to the host, after the last chunk.
    outcome = Outcome(np.asarray(rows.reward), np.asarray(rows.regret), np.asarray(carry.visits))
    if rows.target is not None:
        outcome = outcome._replace(target=np.asarray(rows.target))
    if rows.refits is None:
        return outcome
    return outcome._replace(refits=rows.refits.sum(1).astype(int), refit_cost=refits.cost)


def _execute_by_numba(
    prepared: Prepared,
    env: ListedEnvironment,
    begun: tuple[int, Carry, Mapping[str, np.ndarray]],
    progress: Progress,
    snapshots: Snapshots,
) -> Outcome:
    """`execute` by the loop of numba, from where it stands: rows that were played, states, columns of these rows."""
    from bayes_mdp.experiments.rollout.host.host_sweeps import HostSweeps  # needs numba

    done, carry, rows = begun
    host = HostSweeps(prepared.layout, prepared.setting, env, prepared.keys, carry, done, rows.get("reward"))
    with progress as bar, snapshots as saved:
        saved.keep(host.done, host.carry, host.rows)  # once: all are written in place, together
        bar.advance(done)
        while host.done < prepared.layout.num_rows:
            host.play()
            saved.write_if_old()
            bar.advance(int(host.done))
    agent = prepared.setting.agent
    if isinstance(agent, ChecksLearnt):
        agent.check_learnt(host.carry.agent_state)
    played = host.rows()
    return Outcome(played["reward"], played["regret"], np.asarray(host.carry.visits))


def play_case(
    case: RunConfig, prepared: Prepared, path: str | Path | None, *, stop: Callable[[Row], bool] | None = None
) -> tuple[Outcome, dict[str, Json]]:
    """`execute` under a progress bar, from the snapshot beside `path`; what was played, and the attributes of it."""
    layout, options = prepared.layout, case.options
    belief = (prepared.belief, prepared.setting.constants)
    attributes = describe_case(case, environment=describe(case.env, "env"), space=prepared.space, belief=belief)
    progress = Progress(layout.row_length * case.num_seeds, layout.num_rows, show=options.progress)
    snapshots = Snapshots(path, attributes, seconds=options.snapshot_seconds)
    return execute(prepared, progress, snapshots, stop=stop), attributes


def join(chunks: list[Row], num_rows: int) -> Row:
    """The first `num_rows` rows of chunks [seed, chunk row]; only the last chunk may hold fewer than its width."""

    def column(*parts: AnyArray) -> np.ndarray:
        return np.concatenate([np.asarray(x, np.float64) for x in parts], axis=1)[:, :num_rows]

    return jax.tree.map(column, *chunks)


def rows_so_far(chunks: list[Row], num_rows: int) -> dict[str, np.ndarray]:
    """The columns of `join` by name, for a snapshot."""
    return {name: rows for name, rows in join(chunks, num_rows)._asdict().items() if rows is not None}


def _axes(setting: RunContext, own_env: bool) -> RunContext | None:
    """Which axis of the setting runs over seeds: none, but for simulators and truths of their own."""
    if not own_env:
        return None
    shared = jax.tree.map(lambda _: None, setting)
    zero_axes = jax.tree.map(lambda _: 0, (setting.simulator, setting.truth))
    return eqx.tree_at(lambda s: (s.simulator, s.truth), shared, zero_axes, is_leaf=lambda x: x is None)


def _specs(setting: RunContext, own_env: bool) -> PyTree:
    """Which arrays of the setting are cut along the seeds, where devices share them: those with an axis of them."""
    shared = jax.tree.map(lambda _: ALL, setting)
    if not own_env:
        return shared
    seed_specs = jax.tree.map(lambda _: EACH, (setting.simulator, setting.truth))
    return eqx.tree_at(lambda s: (s.simulator, s.truth), shared, seed_specs)


class Oracle(eqx.Module):
    """The agent of an oracle run: an optimal policy, nothing to learn."""

    q: Float[Array, "*H S A"]
    best: Int[Array, "*H S"]
    replan: EverySteps = EverySteps(1)

    def init(self, key: PRNGKeyArray, problem: Problem) -> None:
        """No state."""
        del key, problem

    def plan(self, key: PRNGKeyArray, problem: Problem, state: None, belief: object = None) -> tuple[Greedy, None]:
        """Greedy for the optimal q."""
        del key, problem, state, belief
        return Greedy(self.q, best=self.best), None

    def observe(self, problem: Problem, state: None, transition: Transitions, weight: RealLike = 1.0) -> None:
        """No state."""
        del problem, state, transition, weight


def cumulative_regret(case: RunConfig, prepared: Prepared, outcome: Outcome) -> Float[np.ndarray, "N rows"]:
    """Regret [seed, row], summed over rows, by the definition chosen (see `run`)."""
    if prepared.layout.values:
        return np.cumsum(outcome.regret, axis=1)
    if case.regret == "oracle_run":
        return np.cumsum(_oracle_rewards(case, prepared) - outcome.reward, axis=1)
    # Bayes' and objective regret have values of every plan; the others compare with the rate of an optimal policy.
    rate = optimal_rate(prepared.envs.mdp, case.objective, batched=prepared.own_env)
    # One value for each seed, or one for all.
    rate_of_seed = np.broadcast_to(np.asarray(rate, np.float64)[..., None], (outcome.reward.shape[0], 1))
    return np.cumsum(rate_of_seed * units(prepared.layout) - outcome.reward, axis=1)


def units(layout: Layout) -> np.ndarray:
    """The factor of the optimal rate, by rows: one for an episode, the number of steps for a checkpoint."""
    if layout.episodic:
        return np.ones(layout.num_rows)
    return np.diff(np.minimum(layout.row_length * np.arange(layout.num_rows + 1), layout.num_steps))


def _oracle_rewards(case: RunConfig, prepared: Prepared) -> Float[np.ndarray, "N rows"]:
    """Rewards of an optimal policy under the keys of the run (the environment's numbers depend on them alone)."""
    plan = optimal_plan(prepared.envs.mdp, case.objective)
    # The same keys: the oracle meets the same random numbers of the environment.
    oracle_agent = Oracle(jnp.asarray(plan.q, float), jnp.asarray(plan.policy))
    layout = replace(prepared.layout, always=True)
    setting = replace(prepared.setting, agent=oracle_agent, rule=EverySteps(1), constants=None, support=None)
    oracle = prepared._replace(layout=layout, setting=setting, belief=None, listed=None)
    silent = Progress(layout.row_length, layout.num_rows, show=False)
    return execute(oracle, silent, Snapshots(None, {})).reward


SHARE = 0.1
SUSTAINED_FROM = 100
CHUNK_EPISODES = 256


def time_to_solve(hits: ArrayLike, *, share: float = SHARE) -> Float[np.ndarray, "*N"]:
    """The literal rule of [KL21]: the first episode (from 1) by which at least `share` of all reached the goal.

    Args:
        hits: Bool[*N T], whether each of T episodes reached the goal.
        share: of the episodes so far, in (0, 1].

    Returns:
        Episodes; nan where the rule does not hold within T episodes.

    Raises:
        ValueError: `share` outside (0, 1].
    """
    return _first(_holds(hits, share), 1)


def sustained_time_to_solve(
    hits: ArrayLike, *, share: float = SHARE, first: int = SUSTAINED_FROM
) -> Float[np.ndarray, "*N"]:
    """The first episode, from `first` on, from which on the literal rule holds at every episode that was played.

    Args:
        hits: Bool[*N T], whether each of T episodes reached the goal.
        share: of the episodes so far, in (0, 1].
        first: earliest answer.

    Returns:
        Episodes; nan where there is no such episode.

    Raises:
        ValueError: `share` outside (0, 1], `first` below 1. TypeError: `first` is no integer.
    """
    check_count("first", first)
    holds = _holds(hits, share)
    # True from an episode on to the last: a conjunction that is accumulated from the end.
    ever_after = np.logical_and.accumulate(holds[..., ::-1], -1)[..., ::-1]
    return _first(ever_after[..., first - 1 :], first)


def first_visit(hits: ArrayLike) -> Float[np.ndarray, "*N"]:
    """The first episode (from 1) that reached the goal; nan where none did."""
    return _first(np.asarray(hits, bool), 1)


def _holds(hits: ArrayLike, share: float) -> Bool[np.ndarray, "*N T"]:
    if not 0 < share <= 1:
        raise ValueError(f"share is {share}, expected a number greater than 0, at most 1")
    hits = np.asarray(hits, bool)
    # Hits so far over episodes so far, at every episode.
    return np.cumsum(hits, -1) / np.arange(1, hits.shape[-1] + 1) >= share


def _first(true: Bool[np.ndarray, "*N T"], number: int) -> Float[np.ndarray, "*N"]:
    """Number of the first true entry, the entries counted from `number`; nan where there is none."""
    if not true.shape[-1]:
        return np.full(true.shape[:-1], np.nan)
    return np.where(true.any(-1), number + true.argmax(-1), np.nan)


class Solved(NamedTuple):
    """When each seed has solved its problem, in episodes; nan: not in those that were played.

    Args:
        literal: see `time_to_solve`.
        sustained: see `sustained_time_to_solve`.
        first_visit: first episode that reached the goal.
        episodes: how many were played, of each seed.
    """

    literal: Float[np.ndarray, " N"]
    sustained: Float[np.ndarray, " N"]
    first_visit: Float[np.ndarray, " N"]
    episodes: int


def play_until_solved(case: RunConfig, path: str | Path | None = None) -> Solved:
    """Play episodes until every seed has solved the problem by both rules, or there are no more. Host side.

    The run ends after a chunk of episodes in which every seed has kept the sustained rule for `SUSTAINED_FROM`
    episodes.

    Args:
        case: a run under `Episodic`, with `options.target`; `num_episodes` is the most that are played.
        path: snapshots are written beside it; the same call goes on from there. None: none.

    Raises:
        ValueError, TypeError: one sentence about the argument at fault.
    """
    check_case(case)
    if not isinstance(case.objective, Episodic):
        raise ValueError(f"objective is {type(case.objective).__name__}, expected Episodic")
    if case.options.target is None:
        raise ValueError("options.target is None, expected the pairs that are the goal")
    # Chunk by chunk, as an ordinary run; after each one `_all_solved` looks whether to go on.
    prepared = prepare(case)
    layout = replace(prepared.layout, chunk_rows=min(case.length, CHUNK_EPISODES))
    outcome, _ = play_case(case, prepared._replace(layout=layout), path, stop=_all_solved)
    hits = np.asarray(outcome.target) > 0
    return Solved(time_to_solve(hits), sustained_time_to_solve(hits), first_visit(hits), hits.shape[-1])


def _all_solved(rows: Row) -> bool:
    hits = np.asarray(rows.target) > 0
    return bool(np.all(sustained_time_to_solve(hits) <= hits.shape[-1] - SUSTAINED_FROM))
