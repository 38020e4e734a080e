"""Deep agents: networks in JAX. They need the extra `deep`.

Start with `DQN`, or with `DeepUBE` where exploration is hard; `bm.deep.train` trains them. Their networks are `MLP`,
`MinAtarConv` and `NatureConv`, fixed features `HashedFeatures` and others; a belief about the last layer of your own
is a `LastLayer`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from bayes_mdp.agents.neural.dqn import DQN, BootstrappedDQN, Epsilon
from bayes_mdp.agents.neural.features import Box, Fourier, HashedFeatures, RadialBasis, RandomFeatures, Tiles, UnitPrior
from bayes_mdp.agents.neural.last_layer import BonusDQN, LastLayer, LastLayerPrior
from bayes_mdp.agents.neural.networks import MLP, MinAtarConv, NatureConv, OneHotMLP, Trunk
from bayes_mdp.agents.neural.neural_ube import DeepUBE, NeuralUBE, UncertaintyHead
from bayes_mdp.agents.neural.replay_learning import ActionOutput, NeuralAgent, QLearning, Spec
from bayes_mdp.renamed import with_old_names

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
    "UnitPrior",
]

if not TYPE_CHECKING:  # a type checker takes no name of 0.2
    __getattr__ = with_old_names(__name__)
