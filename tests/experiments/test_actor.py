"""`Actor`: the same decisions as a compiled run, the exact law of every policy, one compilation, bad input refused."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.agents import PSRL, Boltzmann, EpsilonGreedy, EpsilonGreedyQ, Greedy, SarsaLambda
from bayes_mdp.agents.common.replan import EverySteps, as_rule
from bayes_mdp.agents.common.table_policies import GaussianThompson
from bayes_mdp.experiments import actor as actor_module
from bayes_mdp.experiments.actor import Actor
from bayes_mdp.mdp import AverageReward, Discounted, Episodic, StateActionSpace, Transitions
from bayes_mdp.utils.typing import ArrayLike
from tests.experiments.toy import ToyBelief

KEY = jax.random.key(11)
SPACE, TOY = StateActionSpace(3, 2), ToyBelief.of(3, 2)


def _actor(agent: Any = PSRL(5), **changes: Any) -> Actor:
    arguments: dict[str, Any] = {"objective": Discounted(0.9), "key": KEY, "prior": TOY}
    return Actor(agent, changes.pop("space", SPACE), **{**arguments, **changes})


def _walk(actor, num_steps, rng):
    """Random transitions; returns them."""
    rows = []
    actor.reset(0)
    state = 0
    for _ in range(num_steps):
        action, following, reward = actor.act(state), int(rng.integers(3)), float(rng.integers(3))
        actor.observe(state, action, reward, following, False, False)
        rows.append((state, action, reward, following))
        state = following
    return [np.array(x) for x in zip(*rows, strict=True)]


@pytest.mark.some(2)
@pytest.mark.parametrize("num_steps", [3, 5, 23])
def test_belief_is_the_posterior_of_all_that_was_observed(num_steps):
    """Buffered transitions included; looking changes nothing."""
    actor, other = _actor(), _actor()
    state, action, reward, following = _walk(actor, num_steps, np.random.default_rng(0))
    expected = TOY.update(Transitions(state, action, reward, following))
    for seen in (actor.belief, actor.belief):
        np.testing.assert_array_equal(seen.counts, expected.counts)
        np.testing.assert_array_equal(seen.reward_sum, expected.reward_sum)
    _walk(other, num_steps, np.random.default_rng(0))
    assert [actor.act(0), actor.act(2)] == [other.act(0), other.act(2)]
    assert actor.visits.sum() == num_steps
    assert isinstance(actor.policy, Greedy) and actor.policy.q.shape == (3, 2)


def test_a_full_buffer_is_learnt_from():
    """A plan every 2000 steps: nothing is lost in between."""
    actor = _actor(PSRL(2000))
    _walk(actor, 600, np.random.default_rng(1))
    assert float(actor.belief.counts.sum()) == 600


class Deaf(eqx.Module):
    """A belief that learns nothing."""

    nothing: Any

    def update(self, transitions, weight: ArrayLike = 1.0):
        """The same."""
        return self


LEARNS_NOTHING = Deaf(jnp.zeros(()))


class Fixed(eqx.Module):
    """An agent with a given policy."""

    policy: Any
    replan: Any = eqx.field(default=EverySteps(4), converter=as_rule)

    def init(self, key, problem):
        """No state."""

    def plan(self, key, problem, state, belief):
        """The policy, held anew where it can be."""
        holds = isinstance(self.policy, GaussianThompson) and self.policy.noise is not None
        return self.policy.hold(key) if holds else self.policy, None


MEAN = np.array([[0.0, 0.4, -0.3], [0.2, 0.0, 0.1]], np.float32)
SD = np.array([[0.5, 0.2, 1.0], [0.1, 0.3, 0.2]], np.float32)
FACTOR = np.linalg.cholesky(np.array([[[1.0, 0.5, 0.0], [0.5, 1.0, 0.3], [0.0, 0.3, 0.5]]] * 2)).astype(np.float32)
POLICIES = {
    "greedy": lambda: Greedy(MEAN),
    "boltzmann": lambda: Boltzmann(MEAN, 0.5),
    "epsilon": lambda: EpsilonGreedy(MEAN, 0.3),
    "fresh": lambda: GaussianThompson(MEAN, SD),
    "held": lambda: GaussianThompson(MEAN, SD, noise=np.zeros_like(MEAN)),
    "joint": lambda: GaussianThompson(MEAN, factor=FACTOR),
}
LAW_STEPS = 6000


def _actions(name):
    """Actions taken in state 0, a plan every four steps."""
    actor = Actor(
        Fixed(POLICIES[name]()), StateActionSpace(2, 3), objective=Discounted(0.9), key=KEY, prior=LEARNS_NOTHING
    )
    actor.reset(0)
    actions = []
    for _ in range(LAW_STEPS):
        actions.append(actor.act(0))
        actor.observe(0, actions[-1], 0.0, 0, False, False)
    return np.array(actions)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", POLICIES)
def test_actions_have_the_law_of_the_policy(name):
    """Frequencies, and how often two actions in a row agree, against exp(log_prob).

    A frequency of 6000 actions (held: of 1500 plans, of 3000 pairs for the agreement) has a standard deviation of at
    most .0065 (.0129, .0091); the bound is 5.5 of them (+ 1e-3, the error of the joint law): a false alarm has
    probability below 24 * 4e-8 < 1e-6. A fault of .08 (.15, .11) is caught with probability above .999.
    """
    actions, policy = _actions(name), POLICIES["fresh" if name == "held" else name]()
    law = np.exp([float(policy.log_prob(0, a)) for a in range(3)])
    each = actions[::4] if name == "held" else actions
    bound = 5.5 * 0.5 / np.sqrt([len(each), LAW_STEPS / 2]) + 1e-3
    assert np.abs(np.bincount(each, minlength=3) / len(each) - law).max() < bound[0]
    if name == "held":
        plans = actions.reshape(-1, 4)
        assert (plans == plans[:, :1]).all()
    else:
        agreement = np.sum(law**2)
        assert abs((actions[::2] == actions[1::2]).mean() - agreement) < bound[1]
        one_key = np.repeat(actions[::4], 4)  # a table whose rows share their key
        assert name == "greedy" or abs((one_key[::2] == one_key[1::2]).mean() - agreement) > bound[1]


def test_actions_follow_the_step_of_an_episode():
    """The table belongs to the step: also where episodes end early, and for parallel environments out of step."""
    q = np.eye(3, dtype=np.float32)[:, None, :].repeat(2, 1)  # [H S A]: action h at step h
    agent, space = Fixed(Greedy(q), "episode"), StateActionSpace(2, 3, ends=True)
    one = Actor(agent, space, objective=Episodic(3), key=KEY, prior=LEARNS_NOTHING)
    for length in (3, 1, 2, 3):
        one.reset(1)
        for step in range(length):
            assert one.act(1) == step
            one.observe(1, 2, 1.0, 0, step == length - 1 and length < 3, False)
        with pytest.raises(ValueError, match=r"act was called where no episode goes on, expected reset"):
            one.act(1)
    many = Actor(agent, space, objective=Episodic(3), key=KEY, prior=LEARNS_NOTHING)
    states = np.array([0, 1])
    many.reset(states)
    for expected, terminated in (([0, 0], [False, True]), ([1, 0], [False, False]), ([2, 1], [False, False])):
        assert np.asarray(many.act(states)).tolist() == expected
        many.observe(states, [0, 0], [0.0, 0.0], states, terminated, [False, False])
        if any(terminated):
            many.reset(states, mask=terminated)
    assert many.visits.sum() == 6


def test_parallel_environments_feed_one_belief():
    """The same posterior as from the transitions one by one; a mask leaves some out; the time is that of all."""
    times = []
    actor = _actor(PSRL(lambda moment: moment.time % 4 == 0))
    plan = actor._rule.note_plan
    actor._rule.note_plan = lambda stats: (times.append(stats.time), plan(stats))  # type: ignore[method-assign]
    rng, states, expected = np.random.default_rng(2), np.array([0, 1, 2]), TOY
    actor.reset(states)
    for i in range(8):
        action, following, reward = (
            np.asarray(actor.act(states)),
            rng.integers(3, size=3),
            rng.integers(3, size=3).astype(float),
        )
        assert action.shape == (3,)
        mask = np.array([True, i % 2 == 0, True])
        actor.observe(states, action, reward, following, [False] * 3, [False] * 3, mask=mask)
        for b in np.flatnonzero(mask):
            expected = expected.update(Transitions(states[b], action[b], reward[b], following[b]))
        states = np.where(mask, following, states)
    np.testing.assert_array_equal(actor.belief.counts, expected.counts)
    np.testing.assert_allclose(actor.belief.reward_sum, expected.reward_sum)
    assert times == [t for t in np.cumsum([0] + [3, 2] * 4)[:-1] if t == 0 or t % 4 == 0]


def test_every_episode_of_any_environment_is_planned_for_once():
    """Also while another environment waits at its first state; a new episode of either is due again."""
    actor, times = _actor(PSRL("episode")), []
    plan = actor._rule.note_plan
    actor._rule.note_plan = lambda stats: (times.append(stats.time), plan(stats))  # type: ignore[method-assign]
    actor.reset([0, 0])
    for i in range(4):
        action = actor.act([0, 0])
        actor.observe([0, 0], action, [0.0] * 2, [0, 0], [False] * 2, [i == 2, False], mask=[True, False])
        if i == 2:
            actor.reset([0, 0], mask=[True, False])
    assert times == [0, 3]


def test_actors_share_what_is_compiled():
    """Another key, another discount: nothing is traced again."""
    _walk(_actor(), 12, np.random.default_rng(0))
    before = actor_module.programs.cache_info().misses
    other = _actor(key=jax.random.key(5), objective=Discounted(0.5))
    _walk(other, 12, np.random.default_rng(0))
    assert actor_module.programs.cache_info().misses == before
    assert other._core is not None
    plan: Any = other._core._programs.plan
    assert plan._cache_size() == 1


def test_model_free_agents_learn_in_their_own_state():
    """Q-learning, by hand: the step of the episode counts under Episodic, nothing follows its last step or an end."""
    actor = Actor(EpsilonGreedyQ(0.5, 0.0), StateActionSpace(2, 2, ends=True), objective=Episodic(2), key=KEY)
    actor.reset(0)
    actor.observe(0, 1, 1.0, 1, False, False)
    actor.observe(1, 0, 2.0, 0, False, False)
    actor.reset(0)
    assert actor.act(0) == 1
    actor.observe(0, 1, 1.0, 1, False, True)
    q = np.zeros((2, 2, 2))
    q[0, 0, 1] = 0.5
    q[1, 1, 0] = 1.0
    q[0, 0, 1] += 0.5 * (1.0 + 1.0 - 0.5)  # truncated: bootstraps
    np.testing.assert_allclose(actor.belief, q)
    actor.reset(0)
    actor.observe(0, 1, 1.0, 1, True, False)
    q[0, 0, 1] += 0.5 * (1.0 - q[0, 0, 1])  # terminated: does not
    np.testing.assert_allclose(actor.belief, q)


@pytest.mark.parametrize("trial_steps", [3, 100])
def test_a_trial_that_is_cut_changes_the_policy_at_once(trial_steps):
    """As in a compiled run, whose rule is always due. No episode ends: the plan has the values of the table."""
    agent = SarsaLambda(0.5, learning_rate=0.5, trial_steps=trial_steps)
    actor = Actor(agent, StateActionSpace(3, 2), objective=Discounted(0.9), key=KEY)
    changed: list[bool] = []
    actor.reset(0)
    for _ in range(9):
        action = actor.act(0)
        assert isinstance(actor.policy, EpsilonGreedy)
        np.testing.assert_array_equal(actor.policy.q, actor.belief.tables.q)
        changed.append(bool(np.any(actor.policy.q)))
        actor.observe(0, action, 1.0, 0, False, False)
    assert changed == [step >= trial_steps for step in range(9)]


def test_terminated_is_the_end_and_truncated_is_not():
    """Counts of the outcomes: [state, action, next state or end]."""
    actor = _actor(space=StateActionSpace(3, 2, ends=True), prior=ToyBelief.of(3, 2, ends=True))
    for terminated, truncated in ((True, False), (False, True), (True, True), (False, False)):
        actor.reset(0)
        actor.observe(0, 1, 0.0, 2, terminated, truncated)
    np.testing.assert_array_equal(actor.belief.counts[0, 1], [0, 0, 2, 2])


def test_a_step_after_the_horizon_without_ends():
    """At the last step of Episodic(H), `terminated` of a space without ends is an ordinary transition."""
    actor = _actor(objective=Episodic(1))
    actor.reset(0)
    actor.observe(0, 1, 0.0, 2, True, False)
    assert actor.belief.counts[0, 1, 2] == 1


MASKED = StateActionSpace(
    3, 2, legal=[[1, 1], [1, 0], [1, 1]], support=np.array([[[1, 1, 0]] * 2, [[0, 1, 1]] * 2, [[1, 1, 1]] * 2])
)


@pytest.mark.parametrize(
    ("transition", "message"),
    [
        ((3, 0, 0.0, 0, False, False), "observation is 3, expected a state index from 0 to 2"),
        ((0.0, 0, 0.0, 0, False, False), "observation is 0.0, expected the index of a state"),
        ((0, 2, 0.0, 0, False, False), "action is 2, expected an action index from 0 to 1"),
        ((0, None, 0.0, 0, False, False), "action is None, expected the index of an action"),
        ((0, 0, None, 0, False, False), "reward is None, expected a number"),
        ((0, 0, np.nan, 0, False, False), "reward is nan, expected a finite number"),
        ((0, 0, 0.0, -1, False, False), "next_observation is -1, expected a state index from 0 to 2"),
        ((0, 0, 0.0, 0, True, False), "terminated is True, expected a space with ends=True"),
        ((1, 1, 0.0, 1, False, False), "action is 1, expected a legal action of state 1"),
        ((0, 1, 0.0, 2, False, False), "next_observation is 2, expected an outcome in the known support of state 0"),
    ],
)
def test_bad_transitions_are_refused(transition, message):
    """And leave no trace."""
    actor = _actor(space=MASKED)
    actor.reset(0)
    with pytest.raises((ValueError, TypeError), match=message):
        actor.observe(*transition)
    assert actor.visits.sum() == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"space": 3}, "space is [0-9]+, expected a StateActionSpace"),
        ({"objective": 0.9}, "objective is 0.9, expected Discounted"),
        ({"key": 3}, "key is 3, expected a typed key"),
        ({"prior": None}, "prior is None, expected a prior or a posterior for PSRL"),
        ({"prior": 3}, "update"),
        ({"space": StateActionSpace(3, 2, horizon=4)}, r"expected Episodic\(4\): space has 4 steps"),
        ({"space": StateActionSpace(3, 2, ends=True), "objective": AverageReward()}, "space with ends=False"),
        ({"initial": [1.0]}, r"initial has shape \(1,\), expected \(3,\)"),
        ({"initial": [0.5, 0.5, 0.5]}, "initial sums to 1.5"),
    ],
)
def test_bad_parts_are_refused(changes, message):
    """One sentence."""
    with pytest.raises((ValueError, TypeError), match=message):
        _actor(**changes)


def test_the_order_of_calls():
    """act and observe before reset, after an end; other shapes than at first."""
    actor = _actor()
    for call in (lambda: actor.act(0), lambda: actor.observe(0, 0, 0.0, 0, False, False)):
        with pytest.raises(ValueError, match=r"no episode goes on, expected reset\(observation\) first"):
            call()
    for shape in ((1, 2), (0,)):
        with pytest.raises(ValueError, match=r"observation has shape \(\d,.*\), expected a state, or one for each"):
            actor.reset(np.zeros(shape, int))
    actor.reset(0)
    actor.observe(0, 0, 0.0, 0, False, True)
    with pytest.raises(ValueError, match="no episode goes on"):
        actor.observe(0, 0, 0.0, 0, False, False)
    many = bm.Actor(PSRL(5), SPACE, objective=Discounted(0.9), key=KEY, prior=TOY)
    many.reset([0, 1])
    with pytest.raises(ValueError, match=r"observation has shape \(3,\), expected \(2,\) \(environment\)"):
        many.act([0, 1, 2])
    with pytest.raises(ValueError, match=r"observation\[1\] is 5, expected a state index"):
        many.act([0, 5])
