"""`LearnerChoices`: any agent of the library as a model of behaviour, replayed through a person's history."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from bayes_mdp.agents.common.learner import ChecksBelief, Learner
from bayes_mdp.agents.common.replan import as_rule, period_of, rule_for
from bayes_mdp.behaviour.behaviour_model import Parameter, Values, check_function
from bayes_mdp.inference.detection.degrees import output_flows, site_flow
from bayes_mdp.mdp import Agent, CanUpdate, Episodic, PlansFromState, Policy, Problem, ReplanContext, Transitions
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.mdp.agent import ReplanRule
from bayes_mdp.utils.validation import check_bool, check_type

LAPSE = "lapse"


class Replay(eqx.Module):
    """The state of a replayed agent.

    Args:
        agent: its own state.
        belief: the leaves of its posterior that data change; None: it learns by itself.
        policy: of the plan in force.
        visits, planned_visits: of every pair, now and when it was planned.
        time: of the replanning rule.
        step: since the episode began.
        planned_time, previous_time: the times of the plan in force and of the one before.
    """

    agent: PyTree
    belief: PyTree
    policy: PyTree
    visits: Float[Array, "*H S A"]
    planned_visits: Float[Array, "*H S A"]
    time: Int[Array, ""]
    step: Int[Array, ""]
    planned_time: Int[Array, ""]
    previous_time: Int[Array, ""]


class LearnerChoices(eqx.Module):
    """The choices of an agent of the library whose action probabilities are a closed form of what it has learnt.

    The agent plans and learns as in `bayes_mdp.run`: by its own rule `replan`, one transition at a time, from its own
    state or from a posterior. Under `Episodic(H)` the steps of an episode are counted: it is over at an end, or after H
    records.

    An agent that plans from random draws (PSRL, RLSVI, Thompson sampling held for a plan) has probabilities that are no
    closed form of its state: it is refused. Whether it does is read from its data flow.

    Args:
        make: parameters -> agent: `lambda p: SoftQ(p["temperature"], p["rate"])`. Traced: no branch on a number.
        parameters: name -> `Parameter`, those that `make` reads.
        problem: sizes, objective and first states that the agent is given.
        prior: a posterior before the person's data, for an agent that plans from one: `bm.infer(key, prior, None,
            space=space)`; None: it learns by itself.
        lapse: with probability `lapse` (one more parameter) a legal action is drawn uniformly: for an agent that never
            takes some actions, such as a greedy one.

    Raises:
        ValueError: an agent that is refused; a parameter "lapse" besides `lapse`. TypeError: an argument of another
            type, no agent, a posterior that the agent cannot use.
    """

    make: Callable[[Values], Agent[Any]]
    parameters: dict[str, Parameter]
    problem: Problem
    changing: PyTree
    constants: PyTree
    lapse: bool = eqx.field(static=True)

    def __init__(
        self,
        make: Callable[[Values], Agent[Any]],
        parameters: Mapping[str, Parameter],
        problem: Problem,
        *,
        prior: CanUpdate | None = None,
        lapse: bool = False,
    ) -> None:
        check_function("make", make)
        check_type("problem", problem, Problem, "a Problem")
        check_bool("lapse", lapse)
        if lapse and LAPSE in parameters:
            raise ValueError(f"parameters has {LAPSE!r}, expected another name: lapse=True adds it")
        self.make, self.problem, self.lapse = make, problem, lapse
        # The lapse is a parameter of the model, not of the agent.
        self.parameters = {**parameters, **({LAPSE: Parameter("unit")} if lapse else {})}
        # A typical agent, of values inside all supports, is made once, to learn what it is and needs.
        agent = make({name: parameter.constrain(0.0) for name, parameter in parameters.items()})
        if not isinstance(agent, Agent):
            raise TypeError(f"make returned a {type(agent).__name__}, expected an agent (see bayes_mdp.mdp.Agent)")
        self.changing, self.constants = None, None
        # What learns by itself has no posterior.
        if not isinstance(agent, Learner):
            if prior is None:
                raise TypeError(f"prior is None, expected a posterior: {type(agent).__name__} plans from one")
            require_ability(prior, CanUpdate, type(agent).__name__)
            if isinstance(agent, ChecksBelief):
                agent.check_belief(prior)
            self.changing, self.constants = _split(_on_device(prior), problem)
        self._refuse_random(agent)

    def _refuse_random(self, agent: Agent[Any]) -> None:
        """Raise a ValueError if action probabilities depend on a random key."""
        if not self._is_random(agent):
            return
        deterministic_agent = _drawing_at_every_step(agent)
        if deterministic_agent is not None and not self._is_random(deterministic_agent[1]):
            instead = f"{type(agent).__name__}({deterministic_agent[0]}), which draws anew at every step"
        else:
            instead = (
                "an agent whose probabilities are a closed form of what it has learnt, such as UBE(noise='per_step'), "
                "KLearning or BQL"
            )
        raise ValueError(
            f"agent is {type(agent).__name__}, whose action probabilities depend on its random draws: its choices have "
            f"no likelihood in closed form, expected {instead}"
        )

    def _is_random(self, agent: Agent[Any]) -> bool:
        """Whether a plan, or what the agent keeps beyond it, depends on a key: read from the data flow.

        An agent that plans for one state at a time searches by simulation: it does.
        """
        if isinstance(agent, PlansFromState):
            return True

        def first_plan(key: PRNGKeyArray) -> tuple[Float[Array, "S A"], PyTree]:
            start = agent.init(key, self.problem)
            policy, after = self._plan(agent, key, start, _on_device(self.changing))
            # At every state, in the first step: what a plan says at later ones comes from the same numbers.
            states = jnp.arange(self.problem.space.n_states)
            return jax.vmap(lambda s: self._log_probs(policy, s, jnp.int32(0)))(states), (start, after)

        # True may be wrong where an operation cancels; False is a proof: nothing leads from the key to the plan.
        closed = jax.make_jaxpr(first_plan)(jax.random.key(0))
        return any(flow.degrees for flow in output_flows(closed.jaxpr, [site_flow("key")]))

    def init(self, params: Values) -> Replay:
        """What the agent has before any data, and its first plan."""
        agent = self.make(params)
        # The key makes no difference, as `__init__` has proven.
        key, belief = jax.random.key(0), _on_device(self.changing)
        policy, state = self._plan(agent, key, agent.init(key, self.problem), belief)
        visits = jnp.zeros(self.problem.space.shape)
        zero = jnp.zeros((), jnp.int32)
        made = Replay(state, belief, policy, visits, visits, zero, zero, zero, zero)
        return jax.tree.map(jnp.asarray, made)

    def policy(self, params: Values, state: Replay, observation: Int[Array, ""]) -> Float[Array, " A"]:
        """Log-probabilities of the plan in force, with the lapse."""
        log_probs = self._log_probs(state.policy, observation, state.step)
        if not self.lapse:
            return log_probs
        legal = self.problem.space.legal
        allowed = jnp.ones_like(log_probs) if legal is None else jnp.asarray(legal)[observation].astype(log_probs.dtype)
        lapse = jnp.asarray(params[LAPSE])
        # A mixture of the agent's own choice and a uniform legal one; -inf where both give zero, without nan
        # derivatives.
        # Off zero before the logarithm: a masked branch has a derivative too.
        mixed = (1.0 - lapse) * jnp.exp(log_probs) + lapse * allowed / jnp.sum(allowed)
        return jnp.where(mixed > 0, jnp.log(jnp.where(mixed > 0, mixed, 1.0)), -jnp.inf)

    def update(self, params: Values, state: Replay, transition: Transitions) -> Replay:
        """Learn from a transition, and plan where the rule of the agent is due."""
        agent, problem = self.make(params), self.problem
        horizon = problem.objective.horizon
        ended = None if transition.terminated is None or not problem.space.ends else transition.terminated
        step = None if horizon is None else state.step
        data = Transitions(
            transition.state, transition.action, transition.reward, transition.next_state, ended, None, step
        )
        visits = state.visits.at[data.cell(problem.space)].add(1.0)
        # Steps are numbered where the agent plans for episodes.
        # 1. Learn: the agent in its own state, or its posterior.
        agent_state, belief = state.agent, state.belief
        if isinstance(agent, Learner):
            agent_state = agent.observe(problem, agent_state, data)
        else:
            belief = _changing(self._whole(belief).update(data), belief)
        # 2. Time goes on; an episode of `Episodic(H)` takes H steps of it even if it ends early.
        episode_over = jnp.zeros((), bool) if transition.terminated is None else jnp.asarray(transition.terminated)
        time, next_step = state.time + 1, state.step + 1
        if horizon is not None:
            episode_over = episode_over | (next_step >= horizon)
            # The rule counts whole episodes: the steps that were not taken are skipped.
            time = jnp.where(episode_over, state.time + horizon - state.step, time)
        next_step = jnp.where(episode_over, 0, next_step)
        # 3. Plan, if due.
        rule = rule_for(as_rule(agent.replan), problem.objective)
        policy, planned, plans = state.policy, state.planned_visits, (state.planned_time, state.previous_time)
        now = time.astype(state.planned_time.dtype), state.planned_time
        new, state_after = self._plan(agent, jax.random.key(0), agent_state, belief)
        # A plan after every choice: no comparison is needed.
        if period_of(rule, problem.objective) == 1:
            policy, agent_state, planned, plans = new, state_after, visits, now
        else:
            due = self._due(rule, state, time, next_step, visits)
            chosen = lambda a, b: jnp.where(due, a, b)  # noqa: E731
            fresh, in_force = (new, state_after, visits, now), (policy, agent_state, planned, plans)
            policy, agent_state, planned, plans = jax.tree.map(chosen, fresh, in_force)
        made = Replay(agent_state, belief, policy, visits, planned, time, next_step, *plans)
        # The carry of a scan keeps its dtypes.
        return jax.tree.map(lambda x, like: jnp.asarray(x).astype(like.dtype), made, state)

    def _due(
        self, rule: ReplanRule, state: Replay, time: Array, step: Array, visits: Float[Array, "*H S A"]
    ) -> Bool[Array, ""]:
        """Whether to plan before the next choice. Of an episode cut short the steps that are left are looked at too."""
        made = state.planned_visits, state.planned_time, state.previous_time
        context = lambda time, step: ReplanContext(time, step, step == 0, visits, *made)  # noqa: E731
        due = rule.due(context(time, step))
        if isinstance(self.problem.objective, Episodic) and self.problem.space.ends:
            horizon = self.problem.objective.horizon
            # The rule may have been due at one of the steps that were skipped.
            for ahead in range(1, horizon):
                passed = (state.time + ahead < time) & (state.step + ahead < horizon)
                due = due | (passed & rule.due(context(state.time + ahead, state.step + ahead)))
        return due

    def _plan(self, agent: Agent[Any], key: PRNGKeyArray, state: PyTree, belief: PyTree) -> tuple[Policy, PyTree]:
        return agent.plan(key, self.problem, state, None if belief is None else self._whole(belief))

    def _whole(self, belief: PyTree) -> Any:
        return eqx.combine(belief, _on_device(self.constants))

    def _log_probs(self, policy: Policy, state: Int[Array, ""], step: Int[Array, ""]) -> Float[Array, " A"]:
        actions = jnp.arange(self.problem.space.n_actions)
        return jax.vmap(lambda action: policy.log_prob(state, action, step))(actions)


def _drawing_at_every_step(agent: Agent[Any]) -> tuple[str, Agent[Any]] | None:
    """The same agent with the option, in words, by which it draws at every step instead of once for a plan."""
    for name, word in (("noise", "per_step"), ("choose", "thompson")):
        if getattr(agent, name, None) in ("per_plan", "single"):
            return f"{name}={word!r}", dataclasses.replace(agent, **{name: word})  # type: ignore[type-var]
    return None


def _on_device(tree: PyTree) -> PyTree:
    """Arrays in JAX's default widths."""

    def place(leaf: Any) -> Array:
        array = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
        return jnp.asarray(array, float) if jnp.issubdtype(array.dtype, jnp.floating) else jnp.asarray(array)

    return jax.tree.map(place, tree)


def _split(belief: Any, problem: Problem) -> tuple[PyTree, PyTree]:
    """(leaves that an update changes, the others), each with None in place of the other's leaves."""
    zero = jnp.int32(0)
    ends = jnp.asarray(False) if problem.space.ends else None
    example = Transitions(
        zero, zero, jnp.zeros(()), zero, ends, None, zero if isinstance(problem.objective, Episodic) else None
    )
    leaves, structure = jax.tree.flatten(belief)
    call = lambda leaves: jax.tree.leaves(jax.tree.unflatten(structure, leaves).update(example))  # noqa: E731
    # A leaf is constant where `update` hands the traced input itself on.
    jaxpr = jax.make_jaxpr(call)(leaves).jaxpr
    changes = [new is not old for new, old in zip(jaxpr.outvars, jaxpr.invars, strict=True)]
    return eqx.partition(belief, jax.tree.unflatten(structure, changes))


def _changing(belief: PyTree, like: PyTree) -> PyTree:
    present = jax.tree.map(lambda x: x is not None, like, is_leaf=lambda x: x is None)
    return eqx.filter(belief, present)
