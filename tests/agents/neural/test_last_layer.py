# pyright: reportArgumentType=false
"""A last layer written from the words of docs/how-to/train-deep-agents.md; what is said where a part lacks."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from bayes_mdp.agents.neural import (
    MLP,
    BonusDQN,
    DeepUBE,
    LastLayer,
    LastLayerPrior,
    NeuralUBE,
    RandomFeatures,
    Spec,
)
from bayes_mdp.deep import TrainOptions, train
from bayes_mdp.envs import deep_sea_observed
from bayes_mdp.inference.value import LinearGaussianPrior

SPEC = Spec((4, 4), np.dtype(np.float32), 2, 1)
KEY = jax.random.key(0)


class Diagonal(eqx.Module):
    """Independent weights: precision of each, 1 before data, plus the square of its feature at every step."""

    precision: Array

    def variance(self, features: Any) -> Any:
        return features**2 @ (1.0 / self.precision).T

    def initial_variance(self, features: Any) -> Any:
        return jnp.sum(features**2, -1)

    def update(self, features: Any, action: Any, target: Any = None) -> "Diagonal":
        return Diagonal(self.precision.at[action].add(features**2))


class DiagonalPrior(eqx.Module):
    """One class of belief."""

    kind: Any = eqx.field(default=Diagonal, static=True)

    def belief(self, n_actions: int, num_features: int) -> Any:
        return self.kind(jnp.ones((n_actions, num_features)))


# What a type checker reads.
A_BELIEF: LastLayer = Diagonal(jnp.ones((2, 4)))
A_PRIOR: LastLayerPrior = DiagonalPrior()


def agents(prior: Any) -> list[Any]:
    """All agents with a last layer."""
    trunk = MLP((16,))
    return [
        NeuralUBE(trunk=trunk, posterior=prior),
        BonusDQN(trunk=trunk, posterior=prior),
        DeepUBE(trunk=trunk, features=RandomFeatures(32), posterior=prior),
        DeepUBE(trunk=trunk, features=RandomFeatures(32), posterior=prior, shrink=False),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("place", [pytest.param(0, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.slow), 2])
def test_it_is_trained(place):
    """Twenty steps: each is in the belief once (features of unit norm add one to the precision), values are finite."""
    agent = agents(DiagonalPrior())[place]
    options = TrainOptions(replay_size=64, progress=False)
    training = train(agent, deep_sea_observed(4), num_steps=20, num_seeds=2, options=options)
    values = training.values(jnp.zeros((1, 4, 4)).at[0, 0, 0].set(1.0), seed=0)
    assert values.sd is not None and np.isfinite(values.q).all() and np.isfinite(values.sd).all()
    learner: Any = training.learner
    added = np.sum(learner.belief.precision - 1.0, axis=(1, 2))
    if isinstance(agent, DeepUBE):
        np.testing.assert_allclose(added, 20.0, rtol=1e-5)
    else:
        assert (added > 0).all()


@pytest.mark.parametrize("place", range(4))
def test_every_agent_takes_it(place):
    """By shapes alone."""
    agent = agents(DiagonalPrior())[place]
    learner = jax.eval_shape(lambda key: agent.init(key, SPEC), KEY)
    assert learner.belief.precision.shape == (2, 32 if isinstance(agent, DeepUBE) else 16)


class NoInitial(eqx.Module):
    precision: Array
    variance = Diagonal.variance
    update = Diagonal.update


class OneNumber(Diagonal):
    def variance(self, features: Any) -> Any:
        return jnp.sum(features**2, -1)


class EveryAction(Diagonal):
    def initial_variance(self, features: Any) -> Any:
        return self.variance(features)


class Growing(Diagonal):
    def update(self, features: Any, action: Any, target: Any = None) -> "Diagonal":
        return Growing(jnp.concatenate([self.precision, features]))


class NeedsRewards(Diagonal):
    def update(self, features: Any, action: Any, target: Any = None) -> "Diagonal":
        return NeedsRewards(self.precision.at[action].add(target[:, None] * features**2))


BROKEN = [
    (NoInitial, r"DiagonalPrior\.belief returned a NoInitial without initial_variance, expected a last layer with"),
    (OneNumber, r"OneNumber\.variance returned shape \(2,\) for 2 states, expected \(2, 2\): state, action"),
    (EveryAction, r"EveryAction\.initial_variance returned shape \(2, 2\) for 2 states, expected \(2,\): a number"),
    (Growing, r"Growing\.update returned Growing\(precision=f32\[4,32\]\), expected arrays like .*f32\[2,32\]"),
]


@pytest.mark.parametrize(("kind", "sentence"), BROKEN, ids=lambda x: getattr(x, "__name__", ""))
def test_what_is_missing_is_said(kind, sentence):
    agent = DeepUBE(features=RandomFeatures(32), posterior=DiagonalPrior(kind))
    with pytest.raises(TypeError, match=f"^{sentence}"):
        agent.init(KEY, SPEC)


def test_a_belief_that_needs_rewards_gets_them_from_deep_ube_alone():
    with_rewards, without = agents(DiagonalPrior(NeedsRewards))[2:]
    assert jax.eval_shape(lambda key: with_rewards.init(key, SPEC), KEY)
    sentence = r"^NeedsRewards\.update cannot take the features f32\[2,32\] of 2 states, without rewards as target"
    with pytest.raises(TypeError, match=sentence):
        without.init(KEY, SPEC)


@pytest.mark.parametrize("make", [NeuralUBE, BonusDQN, DeepUBE])
@pytest.mark.parametrize("wrong", [3, None, DiagonalPrior, Diagonal(jnp.ones((2, 4)))], ids=repr)
def test_no_prior_is_refused(make, wrong):
    with pytest.raises(TypeError, match=r"^posterior is .*, expected an object with belief\(n_actions, num_features\)"):
        make(posterior=wrong)


@pytest.mark.parametrize("prior", [DiagonalPrior(), LinearGaussianPrior()])
def test_numbers_on_hashed_features_are_refused(prior):
    """`DeepUBE` has 131,072 hashed units by default: a matrix of them (137 GB) is not made."""
    with pytest.raises(TypeError, match=r"\.variance cannot take the features i32\[2,8\] of 2 states"):
        DeepUBE(posterior=prior).init(KEY, SPEC)
