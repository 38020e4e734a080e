"""DQN with an intrinsic bonus: the local uncertainty added to the reward, the baseline of [UBE18] section 5.1."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from bayes_mdp.agents.neural.contract import ActionOutput, Spec, Values, Watched
from bayes_mdp.agents.neural.dqn import Epsilon, epsilon_greedy, q_loss, q_network, q_values
from bayes_mdp.agents.neural.last_layer import LastLayer, LastLayerPrior, belief_before_data, check_prior
from bayes_mdp.agents.neural.networks import MLP, Trunk, dense
from bayes_mdp.agents.neural.replay import Batch, Replay
from bayes_mdp.agents.neural.replay_learning import QLearning, Trained
from bayes_mdp.inference.value.linear_gaussian import LinearGaussianPrior
from bayes_mdp.utils.typing import AnyArray, RealScalar


class BonusLearner(NamedTuple):
    """What learning changes.

    Args:
        q: the network.
        belief: about its last layer, Sigma_a.
    """

    q: Trained
    belief: LastLayer


class BonusDQN(eqx.Module):
    """DQN whose reward is r + scale sqrt(phi(s)' Sigma_a phi(s)), of the step as it happened ([UBE18] section 5.1).

    Sigma_a is that of `NeuralUBE`: on the trunk's features when the step was taken, updated after every step. The
    uncertainty is not propagated to other states, unlike UBE.

    Args:
        trunk: the network up to its last layer, whose output are the features phi.
        learning: how it learns.
        epsilon: share of actions drawn at random.
        posterior: makes the belief about the last layer (see `LastLayerPrior`).
        scale: of the bonus; [UBE18]: 0.1.

    Raises:
        TypeError: `posterior` has no `belief`; what that returns is no `LastLayer` (when learning begins).
    """

    trunk: Trunk = eqx.field(default=MLP(), static=True)
    learning: QLearning = QLearning()
    epsilon: Epsilon = Epsilon()
    posterior: LastLayerPrior = LinearGaussianPrior()
    scale: RealScalar = 0.1

    def __check_init__(self) -> None:
        check_prior(self.posterior)

    def init(self, key: PRNGKeyArray, spec: Spec) -> BonusLearner:
        """Parameters, drawn; the belief before data."""
        network = self.learning.begin(q_network(key, self.trunk, spec))
        belief = belief_before_data(self.posterior, self.trunk, network.parameters["trunk"], spec, target=False)
        return BonusLearner(network, belief)

    def begin(self, key: PRNGKeyArray, spec: Spec) -> Float[Array, "E D"]:
        """Memory: the features of this step."""
        del key
        return jnp.zeros((spec.num_envs, self.trunk.num_features(spec.observation_shape)))

    def act(
        self,
        key: PRNGKeyArray,
        learner: BonusLearner,
        memory: Float[Array, "E D"],
        observation: AnyArray,
        started: Bool[Array, " E"],
        iteration: Int[Array, ""],
    ) -> ActionOutput:
        """Epsilon-greedy in Q, which includes the bonus; the replay keeps the bonus of the action."""
        del memory
        features = self.trunk.apply(learner.q.parameters["trunk"], observation)
        q = dense(learner.q.parameters["q"], features)
        action = epsilon_greedy(key, q, self.epsilon.at(iteration * len(started)))
        # nu = phi' Sigma_a phi of the action that is taken, before the belief is updated with it.
        variance = jnp.take_along_axis(learner.belief.variance(features), action[:, None], 1)[:, 0]
        return ActionOutput(action, features, self.scale * jnp.sqrt(jnp.maximum(variance, 0.0)))

    def learn(
        self,
        key: PRNGKeyArray,
        learner: BonusLearner,
        memory: Float[Array, "E D"],
        replay: Replay,
        iteration: Int[Array, ""],
    ) -> tuple[BonusLearner, Watched]:
        """Sigma_a after this step; gradient steps as in `DQN`."""
        now = iteration % replay.shape[0]
        # Sigma_a takes the step of this iteration at once, the network the batches of the replay.
        belief = learner.belief.update(memory, replay.rows.action[now])
        q, watched = self.learning.learn(key, learner.q, replay, iteration, self.loss)
        return BonusLearner(q, belief), watched | {"bonus": jnp.mean(replay.rows.extra[now])}

    def loss(self, parameters: PyTree, target: PyTree, batch: Batch) -> tuple[Float[Array, ""], Watched]:
        """As in `DQN`, the bonus added to the reward.

        Args:
            parameters: of the network.
            target: parameters of the target network.
            batch: of transitions.
        """
        paid = batch._replace(reward=batch.reward + batch.extra)
        return q_loss(self.trunk, self.learning, parameters, target, paid)

    def values(self, learner: BonusLearner, observation: AnyArray) -> Values:
        """Q, bonuses to come included, and sqrt(phi' Sigma_a phi), which is local."""
        features = self.trunk.apply(learner.q.parameters["trunk"], observation)
        local = jnp.sqrt(jnp.maximum(learner.belief.variance(features), 0.0))
        return Values(q_values(self.trunk, learner.q.parameters, observation), local)
