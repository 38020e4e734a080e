"""Deep agents: networks in JAX; one file per algorithm. They need the extra `deep`."""

from collections.abc import Callable

from bayes_mdp.agents.neural.bonus_dqn import BonusDQN
from bayes_mdp.agents.neural.bootstrapped import BootstrappedDQN
from bayes_mdp.agents.neural.contract import (
    ActionOutput,
    NeuralAgent,
    Spec,
    Values,
)
from bayes_mdp.agents.neural.convolutions import MinAtarConv, NatureConv
from bayes_mdp.agents.neural.deep_ube import DeepUBE
from bayes_mdp.agents.neural.dqn import DQN, Epsilon
from bayes_mdp.agents.neural.fixed_features import Box, Fourier, RadialBasis, RandomFeatures, Tiles
from bayes_mdp.agents.neural.hashed_features import HashedFeatures, UnitBelief, UnitPrior
from bayes_mdp.agents.neural.last_layer import LastLayer, LastLayerPrior
from bayes_mdp.agents.neural.networks import MLP, OneHotMLP, Trunk
from bayes_mdp.agents.neural.neural_ube import NeuralUBE, UncertaintyHead
from bayes_mdp.agents.neural.replay_learning import QLearning

NEURAL_AGENTS: dict[str, Callable[..., NeuralAgent]] = {
    "dqn": DQN,
    "neural_ube": NeuralUBE,
    "deep_ube": DeepUBE,
    "bonus_dqn": BonusDQN,
    "bootstrapped_dqn": BootstrappedDQN,
}
"""Name -> factory that can be called without arguments."""

__all__ = [
    "DQN",
    "MLP",
    "NEURAL_AGENTS",
    "ActionOutput",
    "BonusDQN",
    "BootstrappedDQN",
    "Box",
    "DeepUBE",
    "Epsilon",
    "Fourier",
    "HashedFeatures",
    "LastLayer",
    "LastLayerPrior",
    "MinAtarConv",
    "NatureConv",
    "NeuralAgent",
    "NeuralUBE",
    "OneHotMLP",
    "QLearning",
    "RadialBasis",
    "RandomFeatures",
    "Spec",
    "Tiles",
    "Trunk",
    "UncertaintyHead",
    "UnitBelief",
    "UnitPrior",
    "Values",
]
