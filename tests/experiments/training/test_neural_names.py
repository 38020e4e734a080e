"""Names of the command line: deep agents with settings, observed environments."""

import pytest

from bayes_mdp.agents.neural import DQN, MLP, NeuralUBE
from bayes_mdp.agents.neural.convolutions import NatureConv
from bayes_mdp.envs.observed.deep_sea_observed import DeepSeaObserved
from bayes_mdp.envs.observed.one_hot_observations import OneHotObserved
from bayes_mdp.experiments.training.neural_names import find_neural_agent, find_observed


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
