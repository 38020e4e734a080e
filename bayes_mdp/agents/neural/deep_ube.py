"""UBE that explores deeply: mode `deep`. `DeepUBE` lists the changes against [UBE18] Algorithm 1."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from bayes_mdp.agents.neural.contract import ActionOutput, Spec, Values, Watched
from bayes_mdp.agents.neural.dqn import q_network, q_values
from bayes_mdp.agents.neural.hashed_features import HashedFeatures, UnitPrior
from bayes_mdp.agents.neural.last_layer import LastLayer, LastLayerPrior, belief_before_data, check_prior
from bayes_mdp.agents.neural.networks import MLP, Dense, Features, Trunk
from bayes_mdp.agents.neural.replay import Batch, Replay
from bayes_mdp.agents.neural.replay_learning import QLearning, Trained
from bayes_mdp.utils.typing import AnyArray, RealScalar
from bayes_mdp.utils.validation import check_name

NOISE = ("none", "episode", "action")


class DeepLearner(NamedTuple):
    """What learning changes.

    Args:
        nets: the networks of Q and w.
        features: parameters of the fixed features.
        belief: on these features.
    """

    nets: Trained
    features: PyTree
    belief: LastLayer


class DeepUBE(eqx.Module):
    """UBE with fixed features and a local uncertainty that is always up to date.

    Changes against [UBE18] Algorithm 1, each with a row in the ablation of `benchmarks/neural_deep_sea.py`:

    1. phi is fixed and random, so that the belief on it is never stale: hashed, or any of unit norm.
    2. kappa = posterior over prior variance at (s, a) is the share still unknown, and nu = local_scale kappa.
    3. u is no head but min(nu + gamma^2 (kappa U + (1 - kappa) w), U), U = q_max^2, nu and kappa as they are now; w is
       the head, clipped to [0, U]. So u of what was never observed is about U, whatever the head returns.
    4. w learns u(s', a*) from replay, with a target network and nothing after an end; a* is the optimistic action.
    5. Actions are argmax Q + beta sqrt(u). Noise per action and step, as in [UBE18], has to agree along a whole way.
    6. The belief takes rewards beyond zero for noisy (`UnitBelief`), and Q learns from (1 - kappa) r.
    7. The last layer of w begins small, with bias 1; several gradient steps follow each iteration.

    Args:
        trunk: of Q and, with parameters of its own, of w.
        features: fixed; what they give is kept in the replay.
        learning: how both networks learn.
        posterior: makes the belief about the last layer on `features` (see `LastLayerPrior`).
        local_scale: nu of a pair that was never observed.
        q_max: largest value that Q can take, in units of the reward.
        beta: standard deviations of optimism.
        noise: "none"; "episode": beta times one |z| an episode, z of N(0, 1), shared by all states and actions;
            "action": beta times a z for every action at every step, as in [UBE18], which does not explore deeply.
        shrink: the belief is given the rewards, and Q learns from (1 - kappa) r, their posterior mean, and not from
            r: a first reward that is mostly noise has little weight. False for a belief whose targets are others
            (`LastLayerLaplace`).

    Raises:
        ValueError: `noise` is another name. TypeError: `posterior` has no `belief`; what that returns is no `LastLayer`
            (when learning begins).
    """

    trunk: Trunk = eqx.field(default=MLP((64, 64)), static=True)
    features: Trunk = eqx.field(default=HashedFeatures(), static=True)
    learning: QLearning = QLearning(
        learning_rate=1e-3, learning_starts=16, gradient_steps=4, target_every=4, discount=0.99
    )
    posterior: LastLayerPrior = UnitPrior()
    local_scale: RealScalar = 0.1
    q_max: RealScalar = 1.0
    beta: RealScalar = 1.5
    noise: str = eqx.field(default="none", static=True)
    shrink: bool = eqx.field(default=True, static=True)

    def __check_init__(self) -> None:
        check_name("noise", self.noise, NOISE)
        check_prior(self.posterior)

    def init(self, key: PRNGKeyArray, spec: Spec) -> DeepLearner:
        """Parameters, drawn; the last layer of w starts small, with bias 1."""
        key_q, key_w, key_features = jax.random.split(key, 3)
        w = q_network(key_w, self.trunk, spec)
        w["q"] = Dense(0.1 * w["q"].weight, jnp.ones_like(w["q"].bias))
        nets = self.learning.begin({"q": q_network(key_q, self.trunk, spec), "w": w})
        fixed = self.features.init(key_features, spec.observation_shape)
        belief = belief_before_data(self.posterior, self.features, fixed, spec, target=self.shrink)
        return DeepLearner(nets, fixed, belief)

    def begin(self, key: PRNGKeyArray, spec: Spec) -> Float[Array, " E"]:
        """Memory: the factor on beta of every environment's episode."""
        del key
        return jnp.ones(spec.num_envs)

    def act(
        self,
        key: PRNGKeyArray,
        learner: DeepLearner,
        memory: Float[Array, " E"],
        observation: AnyArray,
        started: Bool[Array, " E"],
        iteration: Int[Array, ""],
    ) -> ActionOutput:
        """argmax Q + beta sqrt(u), or with noise on beta."""
        del iteration
        features = self.features.apply(learner.features, observation)
        q, u = self.values_of(learner.nets.parameters, self.unknown(learner.belief, features), observation)
        if self.noise == "episode":
            memory = jnp.where(started, jnp.abs(jax.random.normal(key, memory.shape)), memory)
        factor = jax.random.normal(key, q.shape) if self.noise == "action" else memory[:, None]
        action = jnp.argmax(q + self.beta * factor * jnp.sqrt(u), 1).astype(jnp.int32)
        return ActionOutput(action, memory, features)

    def learn(
        self,
        key: PRNGKeyArray,
        learner: DeepLearner,
        memory: Float[Array, " E"],
        replay: Replay,
        iteration: Int[Array, ""],
    ) -> tuple[DeepLearner, Watched]:
        """Sigma_a after this step; gradient steps on Q and w."""
        del memory
        # The belief first: the targets of u in `loss` are computed with the belief after this step.
        now = iteration % replay.shape[0]
        rows = replay.rows
        reward = rows.reward[now] if self.shrink else None
        belief = learner.belief.update(rows.extra[now], rows.action[now], reward)
        nets, watched = self.learning.learn(
            key,
            learner.nets,
            replay,
            iteration,
            lambda parameters, target, batch: self.loss(parameters, target, batch, belief),
        )
        return DeepLearner(nets, learner.features, belief), watched

    def unknown(self, belief: LastLayer, features: Features) -> Float[Array, "B A"]:
        """kappa: the posterior variance over that before data.

        Args:
            belief: about the last layer.
            features: of B states.
        """
        return belief.variance(features) / jnp.maximum(belief.initial_variance(features), 1e-12)[:, None]

    def values_of(
        self, parameters: PyTree, unknown: Float[Array, "B A"], observation: AnyArray
    ) -> tuple[Float[Array, "B A"], Float[Array, "B A"]]:
        """Q and u of every action.

        Args:
            parameters: of both networks.
            unknown: kappa, the share that is still unknown.
            observation: [B ...].
        """
        w = q_values(self.trunk, parameters["w"], observation)
        return q_values(self.trunk, parameters["q"], observation), self.uncertainty(unknown, w)

    def uncertainty(self, unknown: Float[Array, "B A"], w: Float[Array, "B A"]) -> Float[Array, "B A"]:
        """u of the share still unknown and the learnt future part.

        Args:
            unknown: kappa, the share that is still unknown.
            w: the learnt future part, squared units of the return.
        """
        bound = self.q_max**2  # U, the largest variance of a value in [-q_max, q_max]
        # nu + gamma^2 (kappa U + (1 - kappa) w): what is unknown has the bound, what is known the head.
        future = unknown * bound + (1 - unknown) * jnp.clip(w, 0.0, bound)
        return jnp.minimum(self.local_scale * unknown + self.learning.discount**2 * future, bound)

    def loss(
        self, parameters: PyTree, target: PyTree, batch: Batch, belief: LastLayer
    ) -> tuple[Float[Array, ""], Watched]:
        """The loss of both networks on a batch (squared rewards), and what is watched.

        Args:
            parameters: of both networks.
            target: parameters of their target networks.
            batch: of transitions.
            belief: about the last layer.
        """
        # Head of the variance: w learns u(s', a*), u of the target network and the belief as it is now.
        unknown = self.unknown(belief, batch.next_extra)
        q_next, u_next = self.values_of(target, unknown, batch.next_observation)
        best = self.next_action(q_next, u_next, batch)[:, None]
        aim_w = jnp.where(batch.terminated, 0.0, jnp.take_along_axis(u_next, best, 1)[:, 0])
        online = q_values(self.trunk, parameters["q"], batch.next_observation) if self.learning.double else None
        # Q learns from the posterior mean of the reward, (1 - kappa) r: see `shrink`.
        reward = batch.reward
        if self.shrink:
            known = 1 - self.unknown(belief, batch.extra)
            reward = reward * jnp.take_along_axis(known, batch.action[:, None], 1)[:, 0]
        aim_q = self.learning.target(reward, batch.terminated, q_next, online)
        q, w = (
            jnp.take_along_axis(q_values(self.trunk, parameters[name], batch.observation), batch.action[:, None], 1)
            for name in ("q", "w")
        )
        q_loss = self.learning.error(q[:, 0], aim_q, batch.weight)
        w_loss = self.learning.error(w[:, 0], aim_w, batch.weight)
        return q_loss + w_loss, {"loss": q_loss, "u_loss": w_loss, "q": jnp.mean(q)}

    def next_action(self, q: Float[Array, "B A"], u: Float[Array, "B A"], batch: Batch) -> Int[Array, " B"]:
        """a*, the action whose u the head learns: the optimistic one. With the greedy one it does not explore.

        Args:
            q, u: of the next states, a variance.
            batch: of transitions.
        """
        del batch
        return jnp.argmax(q + self.beta * jnp.sqrt(u), 1)

    def values(self, learner: DeepLearner, observation: AnyArray) -> Values:
        """Q, sqrt(u) and u."""
        features = self.features.apply(learner.features, observation)
        q, u = self.values_of(learner.nets.parameters, self.unknown(learner.belief, features), observation)
        return Values(q, jnp.sqrt(u), u)
