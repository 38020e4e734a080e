"""The contract of an agent: agents that a newcomer would write run, and what one lacks is said."""

import inspect
import re
import textwrap
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Int, PRNGKeyArray

import bayes_mdp as bm
from bayes_mdp.agents import Boltzmann, Greedy
from bayes_mdp.agents.common.mean_model import effective_horizon, mean_model
from bayes_mdp.agents.common.replan import Doubling, EveryEpisode, EverySteps, When, as_rule, rule_for
from bayes_mdp.envs import to_gymnasium
from bayes_mdp.experiments import Actor, RunOptions, compare, run
from bayes_mdp.mdp import (
    MDP,
    Agent,
    CanMean,
    Discounted,
    Environment,
    Episodic,
    Learner,
    NormalReward,
    Objective,
    Policy,
    Problem,
    ReplanContext,
    StateActionSpace,
    Transitions,
)
from bayes_mdp.models import dirichlet_normal
from bayes_mdp.sweeps import sweep
from bayes_mdp.utils.typing import IntScalar, Scalar

STEPS, EPISODES = 2, 12
SPACE = StateActionSpace(3, 2)
PRIOR = dirichlet_normal(noise_scale=0.1)
KEY = jax.random.key(0)
BELIEF = bm.infer(KEY, PRIOR, space=SPACE)
PLAYED = {"prior": PRIOR, "key": KEY, "num_seeds": 2, "num_episodes": 3}


def bandit_with_two_rooms() -> Environment:
    """Action 1 of state 0 leads to state 1 (pays 1 next), action 0 to state 2 (pays nothing); both go back."""
    rows, reward = np.zeros((3, 2, 3)), np.zeros((3, 2))
    rows[0, 0, 2], rows[0, 1, 1], rows[1:, :, 0], reward[1] = 1.0, 1.0, 1.0, 1.0
    mdp = MDP(rows, reward, initial=[1.0, 0.0, 0.0])
    return Environment(mdp, NormalReward(mdp.reward), name="two rooms")


class Uniform(eqx.Module):
    """A policy of one's own, no class of the package: actions at random."""

    num_actions: int = eqx.field(static=True)

    def act(self, key: PRNGKeyArray, state: IntScalar, step: IntScalar = 0) -> Int[Array, ""]:
        del state, step
        return jax.random.randint(key, (), 0, self.num_actions)

    def log_prob(self, state: IntScalar, action: IntScalar, step: IntScalar = 0) -> Float[Array, ""]:
        del state, action, step
        return -jnp.log(float(self.num_actions))


class Thinking(eqx.Module):
    """All of `Exploring` but its rule."""

    heat: float = 0.1

    def init(self, key: PRNGKeyArray, problem: Problem) -> Int[Array, ""]:
        del key, problem
        return jnp.zeros((), jnp.int32)

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: Int[Array, ""], belief: CanMean
    ) -> tuple[Boltzmann, Int[Array, ""]]:
        del key, problem
        reward = belief.mean_mdp().reward
        return Boltzmann(reward, self.heat / (1.0 + state)), state + 1


class Exploring(Thinking):
    """Typed as a newcomer would: a state, an ability, a policy. Softmax in the mean MDP, colder with every plan."""

    replan: int = 3


class Dithering(eqx.Module):
    """A learner: it needs no prior."""

    replan: None = None

    def init(self, key: PRNGKeyArray, problem: Problem) -> Float[Array, "S A"]:
        del key
        return jnp.zeros(problem.space.shape[-2:])

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: Float[Array, "S A"], belief: None
    ) -> tuple[Uniform, Float[Array, "S A"]]:
        del key, belief
        return Uniform(problem.space.n_actions), state

    def observe(
        self, problem: Problem, state: Float[Array, "S A"], transition: Transitions, weight: Scalar = 1.0
    ) -> Float[Array, "S A"]:
        del problem
        return state.at[transition.state, transition.action].add(weight)


# What a type checker reads: a newcomer's classes are agents, learners and policies.
AN_AGENT: Agent[CanMean] = Exploring()
A_LEARNER: Learner = Dithering()
A_POLICY: Policy = Uniform(2)


class _Without(eqx.Module):
    """All but `replan`."""

    def init(self, key, problem):
        return jnp.zeros((), jnp.int32)

    def plan(self, key, problem, state, belief) -> Any:
        return Greedy(jnp.zeros((3, 2))), state


def replanned(replan: Any) -> Any:
    """An agent whose rule is a plain attribute, as it is."""
    return type("Replanned", (_Without,), {"replan": replan})()


def written_in_the_docstring() -> Callable[[], Any]:
    """The example of `Agent`, as it is printed there."""
    code = re.search(r"::\n\n(.*)", inspect.cleandoc(Agent.__doc__ or ""), flags=re.S)
    assert code
    names: dict[str, Any] = {}
    text = textwrap.dedent(code[1])
    assert len([line for line in text.splitlines() if line.strip()]) <= 15
    exec(compile(text, "the docstring of Agent", "exec"), names)
    return names["MeanOfDraws"]


def _run(agent: Any, env: Any = None, objective: Objective | None = None, **more: Any) -> Any:
    options = RunOptions(space=SPACE, progress=False)
    return run(
        agent,
        bandit_with_two_rooms() if env is None else env,
        prior=None if isinstance(agent, Learner) else PRIOR,
        objective=objective or Episodic(STEPS),
        num_seeds=2,
        key=jax.random.key(0),
        options=options,
        **(more or {"num_episodes": EPISODES}),
    )


@pytest.mark.parametrize("make", [written_in_the_docstring(), Exploring, Dithering])
def test_a_newcomers_agent_runs(make):
    """By `run` and, step by step, by an `Actor`, with the same rewards."""
    agent = make()
    assert isinstance(agent, Agent) and isinstance(agent, Learner) == (make is Dithering)
    result = _run(agent)
    assert result.reward.shape == (2, EPISODES)
    stepped = _run(agent, to_gymnasium(bandit_with_two_rooms()))
    np.testing.assert_array_equal(stepped["reward"], result["reward"])


REPLANS = [
    (None, EveryEpisode()),
    (3, EverySteps(3)),
    (np.int64(3), EverySteps(3)),
    ("episode", EveryEpisode()),
    ("doubling", Doubling()),
    (Doubling(), Doubling()),
]


@pytest.mark.parametrize(("replan", "rule"), REPLANS, ids=repr)
def test_what_replan_may_be(replan, rule):
    """As an attribute of an agent that does not convert it."""
    assert rule_for(as_rule(replanned(replan).replan), Episodic(STEPS)) == rule
    assert rule_for(as_rule(replanned(replan).replan), Discounted(0.9)) == (EverySteps(20) if replan is None else rule)


def test_replan_may_be_a_method():
    """A function of the `ReplanContext`: here a plan at times 0, 3, 6, ..., as with the number 3."""

    class Thirds(Thinking):
        def replan(self, context: ReplanContext) -> Any:
            return context.time % 3 == 0

    assert isinstance(rule_for(as_rule(Thirds().replan), Discounted(0.9)), When)
    both = [_run(agent, objective=Discounted(0.9), num_steps=12) for agent in (Thirds(), Exploring())]
    np.testing.assert_array_equal(both[0]["visits"], both[1]["visits"])


@pytest.mark.parametrize("bad", [0, -1, 2.5, True, "weekly", Doubling, [3], np.float64(3.0)], ids=repr)
def test_another_replan_is_refused_in_one_sentence(bad):
    agent = replanned(bad)
    for call in (lambda: _run(agent), lambda: _act(agent)):
        with pytest.raises((ValueError, TypeError), match=r"^replan is .*, expected None .*'doubling'.*ReplanContext$"):
            call()


def _act(agent: Any) -> None:
    actor = Actor(agent, SPACE, objective=Episodic(STEPS), key=jax.random.key(0), prior=PRIOR)
    actor.reset(0)
    actor.act(0)


class _Whole(_Without):
    """A complete agent, of which subclasses break one part."""

    replan: Any = eqx.field(default=None, static=True)


class _NoInit(eqx.Module):
    replan = 1
    plan = _Without.plan


class _NoPlan(eqx.Module):
    replan = 1
    init = _Without.init


class _Plain:
    replan = 1
    init = _Without.init
    plan = _Without.plan


class _Text(_Whole):
    kind: str = "greedy"


class _NoPair(_Whole):
    def plan(self, key, problem, state, belief):
        return Greedy(jnp.zeros((3, 2)))


class _NoPolicy(_Whole):
    def plan(self, key, problem, state, belief):
        return jnp.zeros((3, 2)), state


class _OtherState(_Whole):
    def plan(self, key, problem, state, belief):
        return Greedy(jnp.zeros((3, 2))), (state, state)


class _OtherShape(_Whole):
    def plan(self, key, problem, state, belief):
        return Greedy(jnp.zeros((3, 2))), jnp.zeros(2, jnp.int32)


class _Soft(Uniform):
    def act(self, key, state, step=0):
        return jax.random.uniform(key)


class _NoIndex(_Whole):
    def plan(self, key, problem, state, belief):
        return _Soft(2), state


class _OtherMemory(_Whole):
    def observe(self, problem, state, transition, weight=1.0):
        return state > weight


REFUSED = [
    (_Without, "agent is a _Without without replan, expected an agent with an attribute replan that says when to plan"),
    (_NoInit, r"agent is a _NoInit without init, expected an agent with init\(key, problem\)"),
    (_NoPlan, r"agent is a _NoPlan without plan, expected an agent with plan\(key, problem, state, belief\)"),
    (_Plain, r"agent is a _Plain, which JAX cannot look into, expected an eqx\.Module"),
    (_Text, r"agent\.kind is 'greedy', expected a number or an array, or a field that is static"),
    (_NoPair, r"_NoPair\.plan returned a Greedy, expected a pair: \(policy, next state\)"),
    (_NoPolicy, r"_NoPolicy\.plan returned an array as its policy, expected one with act and log_prob"),
    (_OtherState, r"_OtherState\.plan returned a state of structure .*, expected that of the state it was given"),
    (_OtherShape, r"_OtherShape\.plan returned a state with int32 of shape \(2,\), expected int32 of shape \(\)"),
    (_NoIndex, r"_Soft\.act returned float32 of shape \(\), expected one integer, the index of an action"),
    (_OtherMemory, r"_OtherMemory\.observe returned a state with bool of shape \(\), expected int32 of shape \(\)"),
]


@pytest.mark.some(3)
@pytest.mark.parametrize(("make", "sentence"), REFUSED, ids=lambda x: getattr(x, "__name__", ""))
def test_what_is_missing_is_said(make, sentence):
    """By `run`, by an `Actor` (after a plan: `observe` is called before the next) and, before any run, by `compare`."""
    with pytest.raises(TypeError, match=f"^{sentence}"):
        _run(make())
    if make is not _OtherMemory:
        with pytest.raises(TypeError, match=f"^{sentence}"):
            _act(make())
    if sentence.startswith("agent"):
        with pytest.raises(TypeError, match=re.escape("agents['mine']") + f"{sentence.removeprefix('agent')}"):
            compare({"mine": make()}, [bandit_with_two_rooms()], key=jax.random.key(0), prior=PRIOR)


def test_a_problem_has_no_discounted_episodes():
    """No agent is given one, whoever calls it."""
    assert Problem(SPACE, Episodic(4, discount=1.0)).objective == Episodic(4)
    said = r"objective is Episodic\(horizon=4, discount=0.9\), expected Episodic\(4\): agents take no discount"
    with pytest.raises(ValueError, match=said):
        Problem(SPACE, Episodic(4, 0.9))


DISCOUNTED = r"objective is Episodic\(horizon=2, discount=0.9\), expected Episodic\(2\): {} take no discount"


@pytest.mark.parametrize(
    ("who", "call"),
    [
        ("runs of agents", lambda o: run(bm.agents.PSRL(), bandit_with_two_rooms(), objective=o, **PLAYED)),
        ("runs of agents", lambda o: run(bm.agents.PSRL(), "FrozenLake-v1", objective=o, **PLAYED)),
        ("runs of agents", lambda o: compare(["psrl"], ["chain"], objective=o, length=3, key=KEY, num_seeds=2)),
        ("runs of agents", lambda o: bm.experiments.Task(bandit_with_two_rooms(), o, 3)),
        ("runs of agents", lambda o: sweep(["psrl"], ["chain"], objective=o, num_episodes=3, key=KEY)),
        ("agents", lambda o: Actor(bm.agents.PSRL(), SPACE, objective=o, key=KEY, prior=PRIOR)),
        ("UCBVI", lambda o: mean_model(BELIEF, o, "UCBVI")),
        ("a bonus", lambda o: effective_horizon(o, "a bonus")),
    ],
)
def test_whoever_plays_refuses_discounted_episodes(who, call):
    with pytest.raises(ValueError, match=DISCOUNTED.format(who)):
        call(Episodic(2, 0.9))
