"""Gymnasium's vector environments as the host-stepped loop sees them: every autoreset mode tells the same story.

Names of the command line: deep agents with settings, observed environments.
"""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import FrameStackObservation

from bayes_mdp.agents.neural import DQN, MLP, NeuralUBE
from bayes_mdp.agents.neural.networks import NatureConv
from bayes_mdp.agents.neural.replay import Stack
from bayes_mdp.envs.observed.one_hot_observations import DeepSeaObserved, OneHotObserved
from bayes_mdp.experiments.training.vector_env import HostEnv, Rules, find_neural_agent, find_observed, host_env
from tests.experiments.training.worlds import Counter, counters

MODES = list(AutoresetMode)


def rows(env: HostEnv, num_steps: int):
    """What a replay gets: the observation acted on, and the step; of all environments."""
    seen, out = env.reset(5), []
    for _ in range(num_steps):
        step = env.step(np.ones(env.num_envs, int))
        out.append((seen, step))
        seen = step.observation
    return out


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("truncates", [False, True])
def test_every_row_that_is_learnt_from_is_a_transition(mode, truncates):
    env = host_env(counters(mode, truncates=truncates))
    story = rows(env, 30)
    learnt, scores = np.zeros((2, 40)), [[], []]
    score, length = np.zeros(2), np.zeros(2, int)
    for (seen, step), (following, _) in pairwise(story):
        score, length = score + step.score, length + step.happened
        for e in range(2):
            episode, time = int(seen[e, 0]), seen[e, 1]
            if not step.truncated[e]:
                learnt[e, episode] += 1
                assert step.reward[e] == 10 * episode + time + 1 and step.happened[e]
                assert step.terminated[e] == (not truncates and time + 1 == 3 + e)
                if not step.terminated[e]:
                    assert following[e, 0] == seen[e, 0] and following[e, 1] == time + 1
            if step.ended[e]:
                scores[e].append(score[e])
                assert length[e] == 3 + e
            assert step.started[e] == step.fresh[e] == (following[e, 1] == 0)
        score, length = np.where(step.ended, 0, score), np.where(step.ended, 0, length)
    lost = truncates and mode is not AutoresetMode.NEXT_STEP  # what a truncation led to is seen in the next row alone
    for e in range(2):
        number = len(scores[e])
        assert number >= 4 and (learnt[e, :number] == 3 + e - lost).all()
        expected = [sum(10 * k + t for t in range(1, 4 + e)) for k in range(number)]
        np.testing.assert_allclose(scores[e], expected)


class Lives(Counter):
    """Three lives, one lost every second step, and a score of 7 a step."""

    def reset(self, *, seed=None, options=None):
        seen, _ = super().reset(seed=seed)
        return seen, {"lives": 3}

    def step(self, action):
        seen, _, over, cut, _ = super().step(action)
        return seen, 7.0, over, cut, {"lives": 3 - self.time // 2}


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_a_life_lost_ends_learning_and_the_score_goes_on(mode):
    env = host_env(SyncVectorEnv([lambda: Lives(6)], autoreset_mode=mode), rules=Rules(clip_rewards=True, lives=True))
    steps = [step for _, step in rows(env, 14)]
    first = steps[:6]
    assert [s.terminated[0] for s in first] == [False, True, False, True, False, True]
    assert [s.ended[0] for s in first] == [False] * 5 + [True]
    assert [s.started[0] for s in first][:5] == [False, True, False, True, False]
    assert not any(s.fresh[0] for s in first[:5])
    assert all(s.reward[0] == 1 and s.score[0] == 7 for s in first)
    again = 7 if mode is AutoresetMode.NEXT_STEP else 6  # the reset, where lives go up, is nothing lost
    assert [s.terminated[0] for s in steps[again : again + 6]] == [False, True] * 3


def test_frames_are_checked_against_those_before():
    def stacked(padding):
        inner = lambda: FrameStackObservation(Counter(5), 3, padding_type=padding)  # noqa: E731
        return SyncVectorEnv([inner, inner], autoreset_mode=AutoresetMode.SAME_STEP)

    for fill, padding in (("zeros", "zero"), ("first", "reset")):
        env = host_env(stacked(padding), rules=Rules(stack=Stack(3, fill)))
        assert len(rows(env, 12)) == 12 and env.spec.observation_shape == (3, 2)
        other = "zeros" if fill == "first" else "first"
        with pytest.raises(ValueError, match=r"environment 0 .* at step 0 frames that are not those before it"):
            rows(host_env(stacked(padding), rules=Rules(stack=Stack(3, other))), 1)
    with pytest.raises(ValueError, match=r"has shape \(2,\), expected 3 frames"):
        host_env(counters(MODES[0]), rules=Rules(stack=Stack(3))).reset(0)


def test_actions_may_begin_anywhere():
    env = Counter(4)
    env.action_space = Discrete(3, start=-1)
    taken, step = [], env.step
    env.step = lambda action: (taken.append(int(action)), step(action))[1]  # pyright: ignore[reportAttributeAccessIssue]
    ours = host_env([lambda: env])
    ours.reset(0)
    for action in (0, 1, 2):
        ours.step(np.array([action]))
    assert taken == [-1, 0, 1]


def test_ids_and_names():
    env = host_env("CartPole-v1", 3)
    assert (env.name, env.spec) == ("CartPole-v1", ((4,), np.float32, 2, 3))
    assert env.reset(3).dtype == np.float32
    env.close()
    assert host_env([Counter, Counter], name="two").name == "two"


@pytest.mark.parametrize(
    ("bug", "why"),
    [
        ("nan", r"the reward of environment 0 of SyncVectorEnv at step 2 is nan, expected a finite number"),
        ("shape", r"SyncVectorEnv failed at step 2 .* must have shape \(2,\) and type float32"),
    ],
)
def test_what_cannot_be_learnt_from_is_named(bug, why):
    def worlds():
        envs = [Counter(9, bug=bug), Counter(9)]
        envs[0].all = 2  # its fifth step comes at step 2
        return [lambda env=env: env for env in envs]

    env = host_env(worlds())
    env.reset(0)
    with pytest.raises(ValueError, match=why):
        for _ in range(5):
            env.step(np.zeros(2, int))


def test_an_observation_of_another_type_is_refused(monkeypatch):
    env = host_env("CartPole-v1", 2)
    env.reset(0)
    step = env.env.step
    monkeypatch.setattr(env.env, "step", lambda action: (step(action)[0].astype(np.float64), *step(action)[1:]))
    with pytest.raises(ValueError, match=r"at step 0 have shape \(2, 4\) and type float64, expected \(2, 4\) and flo"):
        env.step(np.zeros(2, int))


def other(space_name, space):
    """A counter with another space."""
    env = Counter()
    setattr(env, space_name, space)
    return env


def test_refusals():
    with pytest.raises(TypeError, match=r"the actions of Pendulum-v1 are Box\(.*expected a Discrete space"):
        host_env("Pendulum-v1", 2)
    with pytest.raises(TypeError, match=r"the observations of .* are Discrete\(5\), expected a Box"):
        host_env([lambda: other("observation_space", Discrete(5))])
    with pytest.raises(ValueError, match=r"env\[1\]\(\) has action_space Discrete\(4\), expected that of env\[0\]"):
        host_env([Counter, lambda: other("action_space", Discrete(4))])
    with pytest.raises(ValueError, match=r"env\[1\]\(\) has observation_space Box.*expected that of env\[0\]"):
        host_env([Counter, lambda: other("observation_space", Box(0, 1, (3,), np.float32))])
    with pytest.raises(ValueError, match=r"env is 'Nowhere-v0', expected an id that Gymnasium can make"):
        host_env("Nowhere-v0", 2)
    with pytest.raises(ValueError, match="num_envs is 0, expected an integer of at least 1"):
        host_env("CartPole-v1", 0)
    single: Any = Counter()
    with pytest.raises(TypeError, match="env is a Counter, expected a Gymnasium vector environment"):
        host_env(single)
    unknown = counters(MODES[0])
    unknown.metadata["autoreset_mode"] = None
    with pytest.raises(ValueError, match=r"env.metadata\['autoreset_mode'\] is None, expected one of AutoresetMode"):
        host_env(unknown)
    with pytest.raises(ValueError, match=r"gives no info\['lives'\]"):
        host_env(counters(MODES[0]), rules=Rules(lives=True)).reset(0)


def test_settings_reach_fields_of_fields():
    agent = find_neural_agent("dqn", ["learning.batch_size=32", "trunk=mlp:7,5", "learning.optimizer=rmsprop"])
    assert isinstance(agent, DQN)
    assert agent.learning.batch_size == 32 and agent.learning.optimizer == "rmsprop" and agent.trunk == MLP((7, 5))
    agent = find_neural_agent("neural_ube", ["beta=0.5", "trunk=nature"])
    assert isinstance(agent, NeuralUBE) and agent.trunk == NatureConv()


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("beta", "setting is 'beta', expected FIELD=VALUE"),
        ("learning.batch=3", "QLearning has no field 'batch', expected one of .*; did you mean 'batch_size'"),
        ("learning.batch_size=x", "setting 'learning.batch_size' is 'x', expected a number"),
        ("learning.batch_size=0", "batch_size is 0, expected an integer of at least 1"),
        ("learning.optimizer=sgd", "optimizer is 'sgd', expected one of adam, rmsprop"),
        ("trunk=mlp:", "trunk is 'mlp:', expected one of minatar, nature, or mlp:WIDTH"),
        ("trunk.widths.x=3", "tuple has no field 'x'"),
    ],
)
def test_wrong_settings(setting, sentence):
    with pytest.raises(ValueError, match=sentence):
        find_neural_agent("dqn", [setting])


def test_environments():
    assert find_observed("deep_sea:7").observation_shape == (7, 7)
    stochastic = find_observed("deep_sea_stochastic:7")
    assert isinstance(stochastic, DeepSeaObserved) and stochastic.stochastic
    assert find_observed("cartpole").observation_shape == (4,)
    chain = find_observed("chain")
    assert isinstance(chain, OneHotObserved) and chain.observation_shape == (5,)
    with pytest.raises(ValueError, match="env is 'cartpole:3', expected cartpole"):
        find_observed("cartpole:3")
    with pytest.raises(
        ValueError, match=r"env is 'deep_se', expected one of .* or gymnasium:ID; did you mean 'deep_sea'"
    ):
        find_observed("deep_se")
    with pytest.raises(ValueError, match="agent is 'dq', expected one of"):
        find_neural_agent("dq")
