"""What the ablation of `neural_deep_sea.py` plays: `DeepUBE` with one change against [UBE18] undone, and a rival."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from bayes_mdp.agents.neural import DeepUBE, OneHotMLP, QLearning, RandomFeatures, UnitPrior
from bayes_mdp.agents.neural.dqn import q_values
from bayes_mdp.agents.neural.networks import Dense
from bayes_mdp.agents.neural.neural_ube import DeepLearner
from bayes_mdp.agents.neural.replay_learning import ActionOutput
from bayes_mdp.inference.value import LinearGaussianPrior

NET = OneHotMLP((64, 64))
DEEP = DeepUBE(trunk=NET)
LEARNING = DEEP.learning


class LiteralSum(DeepUBE):
    """u = nu + gamma^2 w: no share of what is unknown in what comes later."""

    def uncertainty(self, unknown: Any, w: Any) -> Any:
        """Capped like the other."""
        bound = self.q_max**2
        later = self.learning.discount**2 * jnp.clip(w, 0.0, bound)
        return jnp.minimum(self.local_scale * unknown + later, bound)


class GreedyFollowing(DeepUBE):
    """The head learns u of the action that is best by Q, as an on-policy reading has it."""

    def next_action(self, q: Any, u: Any, batch: Any) -> Any:
        """argmax Q."""
        del u, batch
        return jnp.argmax(q, 1)


class StoredFollowing(DeepUBE):
    """The head learns u of the action that was taken next, as in [UBE18]."""

    def next_action(self, q: Any, u: Any, batch: Any) -> Any:
        """a' of the transition."""
        del q, u
        return batch.next_action


class HeadIsU(DeepUBE):
    """u is the head: nu and the unknown share enter its target, not its use."""

    def uncertainty(self, unknown: Any, w: Any) -> Any:
        """The head."""
        del unknown
        return jnp.clip(w, 0.0, self.q_max**2)

    def loss(self, parameters: Any, target: Any, batch: Any, belief: Any) -> Any:
        """The whole formula in the target."""
        unknown = jnp.take_along_axis(self.unknown(belief, batch.extra), batch.action[:, None], 1)[:, 0]
        q_next, u_next = self.values_of(target, self.unknown(belief, batch.next_extra), batch.next_observation)
        best = self.next_action(q_next, u_next, batch)[:, None]
        later = jnp.where(batch.terminated, 0.0, jnp.take_along_axis(u_next, best, 1)[:, 0])
        aim_w = DeepUBE.uncertainty(self, unknown, later)
        aim_q = self.learning.target((1 - unknown) * batch.reward, batch.terminated, q_next)
        q, w = (
            jnp.take_along_axis(q_values(self.trunk, parameters[n], batch.observation), batch.action[:, None], 1)[:, 0]
            for n in ("q", "w")
        )
        loss = self.learning.error(q, aim_q, batch.weight) + self.learning.error(w, aim_w, batch.weight)
        return loss, {"loss": loss}


class LearnedFeatures(DeepUBE):
    """phi is the output of Q's trunk as it is now; Sigma_a is made of those of the steps as they were taken."""

    def init(self, key: Any, spec: Any) -> DeepLearner:
        """The belief is on the trunk's features."""
        learner = super().init(key, spec)
        width = self.trunk.num_features(spec.observation_shape)
        return learner._replace(belief=self.posterior.belief(spec.n_actions, width))

    def act(self, key: Any, learner: Any, memory: Any, observation: Any, started: Any, iteration: Any) -> ActionOutput:
        """argmax Q + beta sqrt(u); what is kept is phi."""
        del key, started, iteration
        features = self.trunk.apply(learner.nets.parameters["q"]["trunk"], observation)
        q, u = self.values_of(learner.nets.parameters, self.unknown(learner.belief, features), observation)
        return ActionOutput(jnp.argmax(q + self.beta * jnp.sqrt(u), 1).astype(jnp.int32), memory, features)

    def loss(self, parameters: Any, target: Any, batch: Any, belief: Any) -> Any:
        """phi afresh, of the online network."""
        trunk = jax.lax.stop_gradient(parameters["q"]["trunk"])
        now, later = (self.trunk.apply(trunk, x) for x in (batch.observation, batch.next_observation))
        return super().loss(parameters, target, batch._replace(extra=now, next_extra=later), belief)


class NoOptimism(DeepUBE):
    """The head begins about zero."""

    def init(self, key: Any, spec: Any) -> DeepLearner:
        """Bias 0."""
        learner = super().init(key, spec)
        bias = learner.nets.parameters["w"]["q"].bias
        parameters = eqx.tree_at(lambda p: p["w"]["q"].bias, learner.nets.parameters, jnp.zeros_like(bias))
        return learner._replace(nets=self.learning.begin(parameters))


class EpsilonGreedy(DeepUBE):
    """Uncertainty is learnt and not used: argmax Q, one action in twenty at random."""

    def act(self, key: Any, learner: Any, memory: Any, observation: Any, started: Any, iteration: Any) -> ActionOutput:
        """See above."""
        choice = super().act(key, learner, memory, observation, started, iteration)
        q = q_values(self.trunk, learner.nets.parameters["q"], observation)
        draw, which = jax.random.split(key)
        random = jax.random.randint(which, choice.action.shape, 0, q.shape[1])
        chance = jax.random.bernoulli(draw, 0.05, choice.action.shape)
        return choice._replace(action=jnp.where(chance, random, jnp.argmax(q, 1)).astype(jnp.int32))


class ErrorLearner(NamedTuple):
    """Networks of Q and f; the fixed g."""

    nets: Any
    fixed: Any


class ValueFunctionError(eqx.Module):
    """Universal value-function uncertainties (Zanger et al. 2025): the error of a network that learns a known value.

    g is a fixed random network of M outputs an action, f learns by temporal differences from the reward
    g(s, a) - gamma g(s', a'), whose value is g: where it has learnt enough, f = g. u is the mean of (f - g)^2 over M,
    in units of `scale`^2; a' is the optimistic action. Actions: argmax Q + beta sqrt(u).
    """

    trunk: Any = eqx.field(default=NET, static=True)
    learning: QLearning = LEARNING
    outputs: int = eqx.field(default=16, static=True)
    beta: Any = 1.0

    def init(self, key: Any, spec: Any) -> ErrorLearner:
        """All drawn; g with wide outputs."""
        keys = jax.random.split(key, 3)
        wide = spec._replace(n_actions=spec.n_actions * self.outputs)
        q, f, g = (_network(k, self.trunk, s) for k, s in zip(keys, (spec, wide, wide), strict=True))
        g = jax.tree.map(lambda x: 2 * x if x.ndim > 1 else x, g)
        return ErrorLearner(self.learning.begin({"q": q, "f": f}), g)

    def begin(self, key: Any, spec: Any) -> tuple[()]:
        """Nothing is remembered."""
        del key, spec
        return ()

    def _outputs(self, parameters: Any, observation: Any) -> Any:
        return q_values(self.trunk, parameters, observation).reshape(len(observation), -1, self.outputs)

    def act(self, key: Any, learner: Any, memory: Any, observation: Any, started: Any, iteration: Any) -> ActionOutput:
        """argmax Q + beta |f - g|."""
        del key, started, iteration
        now = learner.nets.parameters
        miss = self._outputs(now["f"], observation) - self._outputs(learner.fixed, observation)
        value = q_values(self.trunk, now["q"], observation) + self.beta * jnp.sqrt(jnp.mean(miss**2, -1))
        return ActionOutput(jnp.argmax(value, 1).astype(jnp.int32), memory)

    def learn(self, key: Any, learner: Any, memory: Any, replay: Any, iteration: Any) -> Any:
        """Gradient steps on Q and f."""
        del memory
        nets, watched = self.learning.learn(
            key, learner.nets, replay, iteration, lambda p, t, b: self.loss(p, t, b, learner.fixed)
        )
        return ErrorLearner(nets, learner.fixed), watched

    def loss(self, parameters: Any, target: Any, batch: Any, fixed: Any) -> Any:
        """Of both."""
        row = jnp.arange(len(batch.action))
        q_next = q_values(self.trunk, target["q"], batch.next_observation)
        f_next, g_next = (self._outputs(p, batch.next_observation) for p in (target["f"], fixed))
        deviation = jnp.sqrt(jnp.mean((f_next - g_next) ** 2, -1))
        best = jnp.argmax(q_next + self.beta * deviation, 1)
        later = jnp.where(batch.terminated[:, None], 0.0, (f_next - g_next)[row, best])
        aim_f = self._outputs(fixed, batch.observation)[row, batch.action] + self.learning.discount * later
        aim_q = self.learning.target(batch.reward, batch.terminated, q_next)
        q = q_values(self.trunk, parameters["q"], batch.observation)[row, batch.action]
        f = self._outputs(parameters["f"], batch.observation)[row, batch.action]
        loss = self.learning.error(q, aim_q, batch.weight) + self.learning.error(f, aim_f, batch.weight[:, None])
        return loss, {"loss": loss}


def _network(key: Any, trunk: Any, spec: Any) -> Any:
    from bayes_mdp.agents.neural.dqn import q_network

    parameters = q_network(key, trunk, spec)
    return parameters | {"q": Dense(parameters["q"].weight, jnp.zeros_like(parameters["q"].bias))}


def _full(width: int) -> dict[str, Any]:
    return {"features": RandomFeatures(width), "posterior": LinearGaussianPrior(variance=50.0)}


def _learning(**changes: Any) -> QLearning:
    return replace(LEARNING, **changes)


ABLATION: dict[str, Callable[[], Any]] = {
    "full covariance, 512 units": lambda: DeepUBE(NET, **_full(512)),
    "learned trunk as phi": lambda: LearnedFeatures(NET, posterior=LinearGaussianPrior(variance=50.0)),
    "u is the head": lambda: HeadIsU(NET),
    "u = nu + g^2 w": lambda: LiteralSum(NET),
    "a* greedy": lambda: GreedyFollowing(NET),
    "a' as stored": lambda: StoredFollowing(NET),
    "noise per action": lambda: DeepUBE(NET, noise="action"),
    "one |z| per episode": lambda: DeepUBE(NET, noise="episode"),
    "epsilon-greedy": lambda: EpsilonGreedy(NET),
    "head begins at 0": lambda: NoOptimism(NET),
    "one gradient step": lambda: DeepUBE(NET, learning=_learning(gradient_steps=1)),
    "two gradient steps": lambda: DeepUBE(NET, learning=_learning(gradient_steps=2)),
    "mean over the tables": lambda: DeepUBE(NET, posterior=UnitPrior(combine="mean")),
    "rewards without noise": lambda: DeepUBE(NET, posterior=UnitPrior(reward_noise=0.0), shrink=False),
    "uvu": lambda: ValueFunctionError(beta=1.0),
    "uvu, beta 3": lambda: ValueFunctionError(beta=3.0),
}
"""Name -> agent, each `deep` but for what its name states; the last two have another uncertainty."""
