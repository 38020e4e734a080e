"""The compiled loop of a run: rows of segments of steps, of all seeds at once.

Time is cut into rows (episodes, or the steps between two checkpoints), and rows into segments: steps under one plan. A
segment is played in two passes. Only the states are sequential: the first pass is a scan that carries the state and
nothing else. Actions, rewards and data of the whole segment are then computed at once, and the belief is updated by one
block of transitions. The random numbers of the environment depend on the seed and the time alone, never on the agent:
agents are compared under the same random numbers, and a run that is resumed goes on with the same ones.

What an agent answers is checked while the program is traced, when shapes, dtypes and structures are known
(`make_plan`, `take_action`, `_one_by_one`): a check costs nothing when the program runs.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from bayes_mdp.agents.common.replan import period_of
from bayes_mdp.agents.model_free.trial_learning import EpisodeLearner
from bayes_mdp.experiments.rollout.regret import Truth
from bayes_mdp.experiments.rollout.simulator import Segment, Simulator
from bayes_mdp.experiments.run_config import AgentState, BeliefTree, RunConfig
from bayes_mdp.mdp import (
    Agent,
    KeepsAccount,
    Learner,
    PlansFromState,
    Policy,
    Problem,
    ReplanContext,
    Transitions,
)
from bayes_mdp.mdp.agent import DecisionPoint, ReplanRule
from bayes_mdp.models.reward_support import RewardSupport
from bayes_mdp.utils.typing import AnyArray, IntScalar, RealLike
from bayes_mdp.utils.validation import described, require_alike

SEEDS = "seeds"
"""The name of the axis of seeds under `vmap`."""

Weight: TypeAlias = float | Float[Array, "*k"]
"""Weights of transitions: 0 where a step was not taken."""

NUM_CHUNKS = 100
LEAST_SEGMENTS = 64  # of a chunk: a call costs about 0.1 ms


@dataclass(frozen=True)
class Layout:
    """The static shape of a run: it decides what is compiled.

    A row is an episode of `row_length` steps under `Episodic`, otherwise the steps between two checkpoints. A segment
    is `segment_length` steps under one plan, with one update of the belief. A chunk is the rows of one compiled call;
    between two chunks beliefs are refitted.

    Args:
        episodic: rows are episodes, each from a new first state.
        ends: transitions can end an episode.
        row_length: steps of a row (the last checkpoint may be shorter).
        segment_length: divides `row_length`.
        always: a plan before every segment; otherwise the replanning rule decides, in a branch.
        ragged: the number of steps is no multiple of the segment length.
        chunk_rows: rows of a chunk.
        num_rows: rows of the run.
        num_steps: steps of the run, those that an early end leaves unused included.
        values: every plan is evaluated, for the regret (see `regret.py`).
    """

    episodic: bool
    ends: bool
    row_length: int
    segment_length: int
    always: bool
    ragged: bool
    chunk_rows: int
    num_rows: int
    num_steps: int
    values: bool

    @property
    def restarts(self) -> bool:
        """An end is followed by a new first state at once (in a row of `Episodic`, by nothing)."""
        return self.ends and not self.episodic


def layout_of(case: RunConfig, *, ends: bool, values: bool, refits: bool = False) -> Layout:
    """The layout of a run.

    Args:
        case: the arguments of the run.
        ends, values: see `Layout`.
        refits: the belief may have to be refitted, which happens between chunks.
    """
    period, horizon, length = period_of(case.rule, case.objective), case.objective.horizon, case.length
    if horizon is None:
        # Rows are the steps between checkpoints: about `num_checkpoints` of them, a whole number of segments each.
        # Where the period of plans is not known before the run, every step may be followed by one.
        segment = min(period or 1, length)
        row = segment * max(1, round(length / segment / case.options.num_checkpoints))
        rows, steps, always = math.ceil(length / row), length, period is not None
    else:
        # Rows are episodes; one plan an episode needs no branch. Otherwise segments must divide both the period and the
        # horizon, so that every plan falls on the start of a segment.
        segment = 1 if period is None else math.gcd(period, horizon)
        row, rows, steps, always = horizon, length, length * horizon, period == horizon
    if refits:
        chunk = case.options.refit_every or math.ceil(rows / NUM_CHUNKS)
    else:
        chunk = max(math.ceil(rows / NUM_CHUNKS), math.ceil(LEAST_SEGMENTS / (row // segment)))
    return Layout(
        episodic=horizon is not None,
        ends=ends,
        row_length=row,
        segment_length=segment,
        always=always,
        ragged=steps % segment != 0,
        chunk_rows=min(rows, chunk),
        num_rows=rows,
        num_steps=steps,
        values=values,
    )


class RunContext(eqx.Module):
    """What does not change during a run.

    `constants` are the leaves of the belief that no update changes; `target`, Bool[*H S A] or None, the pairs whose
    visits are counted row by row; `support`, what every reward is compared with (None: nothing, see `paid_rewards`).
    """

    agent: Agent
    rule: ReplanRule
    problem: Problem
    simulator: Simulator
    truth: Truth
    constants: BeliefTree
    target: Bool[AnyArray, "*H S A"] | None = None
    support: RewardSupport | None = None


class PlanState(eqx.Module):
    """A plan that may be followed for more than one segment.

    Args:
        policy: of the plan.
        value: in the true MDP, where the regret needs it; by step under `Episodic`, whether or not the visits are.
        planned_visits: the visits when it was made.
        step: steps since the episode began.
        planned_time, previous_time: when it was made, and when the plan before it was.
    """

    policy: Policy
    value: Float[Array, "*T S"] | None
    planned_visits: Float[Array, "*H S A"]
    step: Int[Array, ""]
    planned_time: Int[Array, ""]
    previous_time: Int[Array, ""]


class RefusedReward(NamedTuple):
    """A transition whose reward the belief cannot hold.

    Args:
        time: its step, counted from the first of the run; -1: there is none.
        step: of the episode.
        state, action, outcome: indices.
        reward: that was paid.
    """

    time: Int[AnyArray, "*N"]
    step: Int[AnyArray, "*N"]
    state: Int[AnyArray, "*N"]
    action: Int[AnyArray, "*N"]
    outcome: Int[AnyArray, "*N"]
    reward: Float[AnyArray, "*N"]


class Carry(eqx.Module):
    """The state of one seed between two segments; outside `vmap`, of N seeds.

    Only what changes is carried: under `vmap` every array of it exists once per seed, and XLA may copy it at every
    segment. Constant leaves of the belief stay in the `RunContext`.

    Args:
        state: of the environment; S: the episode is over.
        agent_state: the state of the agent.
        belief: the leaves that updates change.
        visits: of every pair.
        plan: the plan in force, or None where every segment has a plan of its own.
        refused: the first transition whose reward the belief cannot hold; None: rewards are not compared.
    """

    state: Int[Array, "*N"]
    agent_state: AgentState
    belief: BeliefTree
    visits: Float[Array, "*H S A"]
    plan: PlanState | None
    refused: RefusedReward | None = None


class Row(NamedTuple):
    """The record of a row (with axes: of many rows, of many seeds).

    Args:
        reward: of the row.
        regret: of the row, where the loop measures it.
        refits: 1 where the belief was refitted before the row; None: it never is. Set by the host, not by the loop.
        target: visits of the target pairs; None: there are none.
    """

    reward: Float[AnyArray, "*rows"]
    regret: Float[AnyArray, "*rows"]
    refits: Float[AnyArray, "*rows"] | None = None
    target: Float[AnyArray, "*rows"] | None = None


Noise: TypeAlias = tuple[Key[Array, ""], Float[Array, ""], Int[Array, ""], Int[Array, ""]]
"""Of one step of a segment: key of the action, uniform number of the outcome, step of the episode, new first state."""


class RngKeys(NamedTuple):
    """The keys of one seed: outcomes and rewards, first states, plans, actions, the agent's start."""

    env: Key[Array, ""]
    reset: Key[Array, ""]
    plan: Key[Array, ""]
    act: Key[Array, ""]
    init: Key[Array, ""]


def streams(key: Key[Array, ""]) -> RngKeys:
    """The streams of a seed."""
    return RngKeys(*jax.random.split(key, len(RngKeys._fields)))


def start(layout: Layout, setting: RunContext, key: Key[Array, ""], belief: BeliefTree) -> Carry:
    """The carry before the first step of one seed."""
    keys, agent, problem = streams(key), setting.agent, setting.problem
    agent_state = agent.init(keys.init, problem)
    visits = jnp.zeros(problem.space.shape)
    # Under Episodic the state is replaced by that of the first row.
    state = setting.simulator.reset(jax.random.fold_in(keys.reset, 0))
    refused = None
    if setting.support is not None:
        zero = jnp.int32(0)
        refused = RefusedReward(jnp.int32(-1), zero, zero, zero, zero, jnp.zeros(()))
    carry = Carry(state, agent_state, belief, visits, None, refused)
    if layout.always:
        return carry
    zero = jnp.int32(0)
    # The plan at time 0 has the key of time 0, as in a run that always plans.
    policy, agent_state = _plan(layout, setting, keys, carry, zero, zero)
    plan = PlanState(policy, _value(layout, setting, policy), visits, zero, zero, zero)
    return replace(carry, agent_state=agent_state, plan=plan)


def _plan(
    layout: Layout, setting: RunContext, keys: RngKeys, carry: Carry, time: Int[Array, ""], step: Int[Array, ""]
) -> tuple[Policy, AgentState]:
    """The plan of the agent at this time, in the state and by the belief of the carry; and the agent's new state."""
    # The belief in two parts is whole only where it is used.
    whole = eqx.combine(carry.belief, setting.constants)
    key = jax.random.fold_in(keys.plan, time)
    point = DecisionPoint(carry.state, step if layout.episodic else jnp.zeros_like(step))
    return make_plan(setting.agent, key, setting.problem, carry.agent_state, whole, point)


def play(
    layout: Layout,
    axes: RunContext | None,
    setting: RunContext,
    keys: Key[Array, " N"],
    carry: Carry,
    first_row: IntScalar,
    num_rows: IntScalar,
) -> tuple[Carry, Row]:
    """Play `num_rows` rows (at most `layout.chunk_rows`) from `first_row` on; the rows of the result beyond are zero.

    All seeds are at the same step: the loops over rows and segments are theirs together, and what a segment does is
    mapped over them. A map outside the loops would give the same program, but JAX would trace each loop twice.

    Args:
        layout: the static shape of the run.
        axes: which axis of the setting runs over seeds, as for `jax.vmap`.
        setting: what does not change.
        keys: of the seeds.
        carry: of all seeds, before the first of these rows.
        first_row, num_rows: which rows; traced.

    Returns:
        The carries after them, and their records [N, chunk_rows].
    """
    streams_of_seeds = jax.vmap(streams)(keys)
    begin = jax.vmap(_begin_row, in_axes=(axes, 0, 0, None), axis_name=SEEDS)
    segment = jax.vmap(partial(_play_segment, layout), in_axes=(axes, 0, 0, None, None), axis_name=SEEDS)
    zeros = jnp.zeros(keys.shape[0])
    nothing = Row(zeros, zeros, target=None if setting.target is None else zeros)

    # A `fori_loop` with a traced number of rows: one program for full chunks and for the last, shorter one.
    def play_row(i: Int[Array, ""], loop: tuple[Carry, Row]) -> tuple[Carry, Row]:
        carry, rows = loop
        row, length = i + first_row, layout.segment_length
        segments = layout.row_length // length
        time = row * layout.row_length
        if layout.episodic:
            carry = begin(setting, streams_of_seeds, carry, row)
        else:  # the last row may be shorter
            segments = jnp.minimum(segments, (layout.num_steps - time + length - 1) // length)

        def play_next(k: Int[Array, ""], loop: tuple[Carry, Row]) -> tuple[Carry, Row]:
            carry, total = loop
            carry, row_of_segment = segment(setting, streams_of_seeds, carry, time + k * length, k * length)
            return carry, jax.tree.map(jnp.add, total, row_of_segment)

        carry, total = lax.fori_loop(0, segments, play_next, (carry, nothing))
        return carry, jax.tree.map(lambda all_rows, x: all_rows.at[:, i].set(x), rows, total)

    rows = jax.tree.map(lambda zeros: jnp.zeros((*zeros.shape, layout.chunk_rows)), nothing)
    return lax.fori_loop(0, num_rows, play_row, (carry, rows))


def _begin_row(setting: RunContext, keys: RngKeys, carry: Carry, row: Int[Array, ""]) -> Carry:
    """The carry in the first state of an episode; the key is that of the row, so that each can be replayed alone."""
    return replace(carry, state=setting.simulator.reset(jax.random.fold_in(keys.reset, row)))


def _play_segment(
    layout: Layout, setting: RunContext, keys: RngKeys, carry: Carry, time: Int[Array, ""], step: Int[Array, ""]
) -> tuple[Carry, Row]:
    """Plan (if due), act for `segment_length` steps, learn."""
    # 1. The plan: always a new one (no branch), or the one in force unless the replanning rule is due.
    if layout.always:
        policy, agent_state = _plan(layout, setting, keys, carry, time, step)
        carry, value = replace(carry, agent_state=agent_state), _value(layout, setting, policy)
        old_value = value
    else:
        assert carry.plan is not None
        old_value = carry.plan.value
        plan, agent_state = _plan_if_due(layout, setting, keys, carry, carry.plan, time, step)
        carry, policy, value = replace(carry, plan=plan, agent_state=agent_state), plan.policy, plan.value
    # 2. The steps under it, with the belief as it was: nothing is learnt inside a segment.
    block, state = _simulate(layout, setting, keys, policy, carry.state, time, step)
    # 3. Their regret: a function of the values of the two policies and of the states visited.
    regret = jnp.zeros(())
    if old_value is not None and value is not None:
        regret = setting.truth.regret(old_value, value, block, layout.episodic)
    elif layout.values:  # a plan for one state has no value of its own
        regret = setting.truth.lost_by_actions(block)
    # 4. One update by all of them; the state after the segment is set last, as `_learn` replaces other fields.
    carry = _compare(setting, _learn(layout, setting, carry, block), block, time)
    row = Row(jnp.sum(block.reward), regret, target=_target_visits(layout, setting, block))
    return replace(carry, state=state), row


def _compare(setting: RunContext, carry: Carry, block: Segment, time: Int[Array, ""]) -> Carry:
    """The carry, which remembers the first transition whose reward the belief cannot hold."""
    if setting.support is None or carry.refused is None:
        return carry
    space = setting.problem.space
    cell = (block.state, block.action) if space.horizon is None else (block.step, block.state, block.action)
    outcome = block.outcome if space.successors is None else space.place(cell, block.outcome)
    bad = ~setting.support.at(cell, outcome).holds(block.reward)
    bad = bad if block.live is None else bad & block.live
    # Only the first one of a run is remembered; it is refused on the host, after the chunk.
    first = jnp.argmax(bad)
    times = time + jnp.arange(bad.shape[0])
    columns = (times, block.step, block.state, block.action, block.outcome, block.reward)
    new = bad.any() & (carry.refused.time < 0)
    columns_after = (
        jnp.where(new, x[first].astype(old.dtype), old) for x, old in zip(columns, carry.refused, strict=True)
    )
    return replace(carry, refused=RefusedReward(*columns_after))


def _target_visits(layout: Layout, setting: RunContext, block: Segment) -> Float[Array, ""] | None:
    if setting.target is None:
        return None
    data, weight = _transitions(layout, setting.problem, block)
    return jnp.sum(weight * setting.target[data.cell(setting.problem.space)])


def _plan_if_due(
    layout: Layout,
    setting: RunContext,
    keys: RngKeys,
    carry: Carry,
    current: PlanState,
    time: Int[Array, ""],
    step: Int[Array, ""],
) -> tuple[PlanState, AgentState]:
    """Evaluate the replanning rule; where any seed is due, plan for all and keep the new plans of those that are.

    Under `vmap` a condition of each seed would become a select, and every segment would cost a plan. The maximum over
    the axis of seeds is one number for all: the branch stays a branch.
    """
    # Under Episodic the step follows from the row; otherwise it is counted from the last end.
    step = step if layout.episodic else current.step
    plans = current.planned_time, current.previous_time
    context = ReplanContext(time, step, step == 0, carry.visits, current.planned_visits, *plans)
    due = setting.rule.due(context) & (time > 0)  # the plan at time 0 was made by `start`

    def plan() -> tuple[PlanState, AgentState]:
        policy, agent_state = _plan(layout, setting, keys, carry, time, step)
        times = time.astype(current.planned_time.dtype), current.planned_time
        new = PlanState(policy, _value(layout, setting, policy), carry.visits, current.step, *times)
        return jax.tree.map(partial(jnp.where, due), (new, agent_state), (current, carry.agent_state))

    # One decision for all seeds: under `vmap` a branch of each would be computed for all.
    any_due = lax.pmax(due.astype(jnp.int32), SEEDS) > 0
    return lax.cond(any_due, plan, lambda: (current, carry.agent_state))


def _value(layout: Layout, setting: RunContext, policy: Policy) -> Float[Array, "*H S"] | None:
    if not layout.values or isinstance(setting.agent, PlansFromState):
        return None
    return setting.truth.value(policy, setting.problem.objective)


def _simulate(
    layout: Layout,
    setting: RunContext,
    keys: RngKeys,
    policy: Policy,
    state: Int[Array, ""],
    time: Int[Array, ""],
    step: Int[Array, ""],
) -> tuple[Segment, Int[Array, ""]]:
    """The steps of a segment, and the state after them (S: the episode is over)."""
    sim, last = setting.simulator, setting.problem.space.n_states
    # First pass, part 1: all random numbers of the segment at once, from (seed, time); outside the scan they are
    # vectorised, and the body of the scan is nothing but gathers and comparisons.
    offsets = jnp.arange(layout.segment_length)
    times, steps = time + offsets, step + offsets if layout.episodic else jnp.zeros_like(offsets)
    env_keys = jax.vmap(lambda t: jax.random.split(jax.random.fold_in(keys.env, t)))(times)
    act_keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(keys.act, times)
    uniform = jax.vmap(lambda key: jax.random.uniform(key, dtype=sim.threshold.dtype))(env_keys[:, 0])
    restart = (
        jax.vmap(lambda t: sim.reset(jax.random.fold_in(keys.reset, t)))(times + 1) if layout.restarts else offsets
    )

    # First pass, part 2, the only sequential one: state -> action -> next state. S: the episode is over; an absorbing
    # state, with actions and rewards (masked below) as in the last state of the table.
    def move(state: Int[Array, ""], x: Noise) -> tuple[Int[Array, ""], tuple[Int[Array, ""], Int[Array, ""]]]:
        act_key, u, step, first = x
        table_state = jnp.minimum(state, last - 1) if layout.ends else state
        outcome = sim.next_outcome(u, sim.cell(table_state, take_action(policy, act_key, table_state, step), step))
        next_state = outcome
        if layout.restarts:
            next_state = jnp.where(outcome == last, first, outcome)
        elif layout.ends:
            next_state = jnp.where(state == last, last, outcome)
        return next_state, (state, outcome)

    state, (states, outcomes) = lax.scan(move, state, (act_keys, uniform, steps, restart))
    # Second pass, vectorised: everything else is a function of the states. `act` is called again with the same keys,
    # which gives the same actions and is cheaper than to stack them in the scan.
    live = None
    if layout.ends and not layout.restarts:
        live, states = states < last, jnp.minimum(states, last - 1)
    if layout.ragged:  # the run ends inside this segment
        live = times < layout.num_steps
    actions = jax.vmap(partial(take_action, policy))(act_keys, states, steps)
    rewards = jax.vmap(sim.reward_law.sample)(env_keys[:, 1], sim.cell(states, actions, steps), outcomes)
    if live is not None:
        rewards = jnp.where(live, rewards, 0.0)
    return Segment(steps, states, actions, rewards, outcomes, live), state


def changing(belief: BeliefTree, like: BeliefTree) -> BeliefTree:
    """The leaves of `belief` where `like`, a first part of `split_constants`, has one; None elsewhere."""
    present = jax.tree.map(lambda x: x is not None, like, is_leaf=lambda x: x is None)
    return eqx.filter(belief, present)


def _learn(layout: Layout, setting: RunContext, carry: Carry, block: Segment) -> Carry:
    """The belief (or the state of the agent), the visits and the step of the episode after a segment."""
    problem, agent = setting.problem, setting.agent
    data, weight = _transitions(layout, problem, block)
    carry = replace(carry, visits=carry.visits.at[data.cell(problem.space)].add(weight))
    if carry.plan is not None and not layout.episodic:
        step = carry.plan.step + layout.segment_length
        if layout.ends:
            step = jnp.where(block.outcome[-1] == problem.space.n_states, 0, step)
        carry = replace(carry, plan=replace(carry.plan, step=step))
    if layout.segment_length == 1:  # one transition, without an axis: `update` then needs no scatter of a block
        data, weight = jax.tree.map(lambda x: jnp.reshape(x, ()), (data, weight))
    segment_is_episode = layout.episodic and layout.segment_length == layout.row_length
    if isinstance(agent, EpisodeLearner) and segment_is_episode:
        return replace(carry, agent_state=agent.observe_trial(problem, carry.agent_state, data, weight))
    if isinstance(agent, Learner):
        return replace(carry, agent_state=observe_block(agent, problem, carry.agent_state, data, weight))
    if isinstance(agent, KeepsAccount):
        carry = replace(carry, agent_state=observe_block(agent, problem, carry.agent_state, data, weight))
    # The belief is put together, updated, and taken apart again: constants are not carried.
    whole = eqx.combine(carry.belief, setting.constants).update(data, weight)
    return replace(carry, belief=changing(whole, carry.belief))


def _transitions(layout: Layout, problem: Problem, block: Segment) -> tuple[Transitions, Weight]:
    """The data of a segment and their weight: 0 where a step was not taken, so that shapes stay static."""
    last = problem.space.n_states
    terminated = block.outcome == last if layout.ends else None
    next_state = jnp.minimum(block.outcome, last - 1) if layout.ends else block.outcome
    step = block.step if layout.episodic else None
    weight = 1.0 if block.live is None else block.live.astype(block.reward.dtype)
    return Transitions(block.state, block.action, block.reward, next_state, terminated, None, step), weight


def observe_block(
    agent: Learner | KeepsAccount, problem: Problem, state: AgentState, data: Transitions, weight: RealLike
) -> AgentState:
    """The state of an agent that learns, or keeps account beside its belief, after transitions, one after the other."""
    name, observe = ("observe", agent.observe) if isinstance(agent, Learner) else ("account", agent.account)

    def see(state: AgentState, x: tuple[Transitions, Float[Array, ""]]) -> tuple[AgentState, None]:
        after = observe(problem, state, *x)
        require_alike(f"{type(agent).__name__}.{name}", state, after, "the state it was given")
        return after, None

    if jnp.ndim(data.state) == 0:
        return see(state, (data, jnp.asarray(weight)))[0]
    # A learner without a belief sees the transitions in their order, one after the other.
    weights = jnp.broadcast_to(jnp.asarray(weight, float), data.state.shape)
    return lax.scan(see, state, (data, weights))[0]


def make_plan(
    agent: Agent, key: PRNGKeyArray, problem: Problem, state: AgentState, belief: BeliefTree, at: DecisionPoint
) -> tuple[Policy, AgentState]:
    """`agent.plan`, or `agent.plan_from` where it has one, its answer checked. Traceable.

    Args:
        agent: see `Agent`.
        key: of the plan.
        problem: what is known of the MDP before any data.
        state: the agent's own.
        belief: the posterior, or None.
        at: where the next action is needed.

    Raises:
        TypeError: the answer is no pair, its first part no policy, its second part not like `state`.
    """
    name = f"{type(agent).__name__}.plan"
    if isinstance(agent, PlansFromState):
        name = f"{name}_from"
        answer = agent.plan_from(key, problem, state, belief, at)
    else:
        answer = agent.plan(key, problem, state, belief)
    if not (isinstance(answer, tuple) and len(answer) == 2):
        raise TypeError(f"{name} returned {_describe_value(answer)}, expected a pair: (policy, next state)")
    policy, after = answer
    if isinstance(policy, type) or not isinstance(policy, Policy):
        ready = "Greedy(q), Boltzmann(q, temperature), ... of bayes_mdp.agents"
        raise TypeError(
            f"{name} returned {_describe_value(policy)} as its policy, expected one with act and log_prob: {ready}"
        )
    require_alike(name, state, after, "the state it was given")
    return policy, after


def _describe_value(value: object) -> str:
    """A value in a message: a traced array is an array."""
    return "an array" if isinstance(value, jax.Array) else described(value)


def take_action(policy: Policy, key: PRNGKeyArray, state: IntScalar, step: IntScalar) -> Int[Array, ""]:
    """`policy.act`, its answer checked. Traceable.

    Raises:
        TypeError: it is not one integer.
    """
    action = jnp.asarray(policy.act(key, state, step))
    if action.shape or not jnp.issubdtype(action.dtype, jnp.integer):
        raise TypeError(
            f"{type(policy).__name__}.act returned {action.dtype} of shape {action.shape}, expected one integer, the "
            "index of an action"
        )
    return action
