"""What deep agents multiply in float32 on every device: all but hidden layers and convolutions."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents.neural import (
    DQN,
    MLP,
    BonusDQN,
    BootstrappedDQN,
    Box,
    DeepUBE,
    Fourier,
    NeuralUBE,
    QLearning,
    RandomFeatures,
    UncertaintyHead,
)
from bayes_mdp.experiments.training.training_loop import begin, iterate
from bayes_mdp.inference.value import LastLayerLaplacePrior, LinearGaussianPrior
from tests.agents.neural.walk import PLACES, Walk
from tests.tf32 import loose

LEARNING = QLearning(discount=0.9, batch_size=8, learning_starts=4)
WIDE = LinearGaussianPrior(1e6)
BOX = Box((0.0,) * PLACES, (1.0,) * PLACES)
AGENTS = {
    "dqn": lambda trunk: DQN(trunk, LEARNING),
    "double": lambda trunk: DQN(trunk, QLearning(batch_size=8, learning_starts=4, double=True, optimizer="rmsprop")),
    "bonus": lambda trunk: BonusDQN(trunk, LEARNING, posterior=WIDE),
    "bootstrapped": lambda trunk: BootstrappedDQN(trunk, LEARNING, num_members=2),
    "ube": lambda trunk: NeuralUBE(trunk, LEARNING, UncertaintyHead(4, num_steps=2), WIDE),
    "ube, covariance": lambda trunk: NeuralUBE(trunk, LEARNING, posterior=LinearGaussianPrior(1.0, square_root=False)),
    "ube, Laplace": lambda trunk: NeuralUBE(trunk, LEARNING, posterior=LastLayerLaplacePrior()),
    "deep ube, hashed": lambda trunk: DeepUBE(trunk, learning=LEARNING),
    "deep ube, random": lambda trunk: DeepUBE(trunk, RandomFeatures(8), LEARNING, WIDE),
    "deep ube, Fourier": lambda trunk: DeepUBE(trunk, Fourier(BOX, 1), LEARNING, WIDE),
}


def products(agent: Any) -> list[str]:
    """Those whose precision is left to the device, in an iteration of a run and in the values that it shows."""
    env, key = Walk(), jax.random.key(0)
    now = jax.eval_shape(lambda: begin(key, agent, env, 3, 32))
    seen = jnp.asarray(np.eye(PLACES, dtype=np.uint8))

    def step(now: Any) -> Any:
        later, told = iterate(key, agent, env, now, jnp.int32(9))
        return later, told, agent.values(later.learner, seen)

    return loose(jax.make_jaxpr(step)(now))


@pytest.mark.parametrize("name", AGENTS)
def test_all_but_hidden_layers(name, gpu_products):
    """Beliefs, targets, last layers, the head of u and features that are fixed: without hidden layers nothing is left
    to the device; with one, its product and that of its slope are."""
    assert products(AGENTS[name](MLP(()))) == []
    assert products(AGENTS[name](MLP((6,)))) != []
