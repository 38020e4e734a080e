"""DQN (Mnih et al. 2015): its network, its loss, epsilon-greedy actions and the schedule of epsilon."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from bayes_mdp.agents.neural.contract import ActionOutput, Spec, Values, Watched
from bayes_mdp.agents.neural.networks import MLP, Trunk, dense, dense_init
from bayes_mdp.agents.neural.replay import Batch, Replay
from bayes_mdp.agents.neural.replay_learning import QLearning, Trained
from bayes_mdp.utils.typing import AnyArray, IntScalar, RealScalar


class Epsilon(eqx.Module):
    """A linear schedule.

    Args:
        start, end: first and last value.
        steps: environment steps from one to the other.
    """

    start: RealScalar = 1.0
    end: RealScalar = 0.05
    steps: RealScalar = 250_000

    def at(self, step: IntScalar | Int[AnyArray, "..."]) -> Float[Array, "..."]:
        """Its value after so many environment steps, of the shape of `step`.

        Args:
            step: environment steps, one number or an array.
        """
        share = jnp.clip(step / self.steps, 0.0, 1.0)
        return jnp.asarray(self.start + share * (self.end - self.start))


def epsilon_greedy(key: PRNGKeyArray, q: Float[Array, "E A"], epsilon: RealScalar) -> Int[Array, " E"]:
    """The best action, or with probability epsilon one drawn uniformly from all.

    Args:
        key: of the draws.
        q: of every environment.
        epsilon: probability of a random action.
    """
    num_envs, n_actions = q.shape
    u = jax.random.uniform(key, (2, num_envs))
    # Both draws are made in any case: the random numbers do not depend on which one is used.
    drawn = jnp.minimum((u[0] * n_actions).astype(jnp.int32), n_actions - 1)
    return jnp.where(u[1] < epsilon, drawn, jnp.argmax(q, 1).astype(jnp.int32))


class DQN(eqx.Module):
    """Deep Q-learning with a target network and uniform replay, epsilon-greedy.

    Args:
        trunk: the network up to its last layer.
        learning: how it learns.
        epsilon: share of actions drawn at random.

    Example:
        >>> from bayes_mdp.agents.neural import DQN
        >>> env = bm.envs.deep_sea_observed(4)
        >>> options = bm.TrainOptions(num_envs=4, replay_size=64, progress=False)
        >>> bm.train(DQN(), env, num_steps=16, options=options).finished
        True
    """

    trunk: Trunk = eqx.field(default=MLP(), static=True)
    learning: QLearning = QLearning()
    epsilon: Epsilon = Epsilon()

    def init(self, key: PRNGKeyArray, spec: Spec) -> Trained:
        """Parameters, drawn."""
        return self.learning.begin(q_network(key, self.trunk, spec))

    def begin(self, key: PRNGKeyArray, spec: Spec) -> tuple[()]:
        """No memory."""
        del key, spec
        return ()

    def act(
        self,
        key: PRNGKeyArray,
        learner: Trained,
        memory: tuple[()],
        observation: AnyArray,
        started: Bool[Array, " E"],
        iteration: Int[Array, ""],
    ) -> ActionOutput:
        """The action of the largest value, or one at random."""
        q = q_values(self.trunk, learner.parameters, observation)
        return ActionOutput(epsilon_greedy(key, q, self.epsilon.at(iteration * len(started))), memory)

    def learn(
        self, key: PRNGKeyArray, learner: Trained, memory: tuple[()], replay: Replay, iteration: Int[Array, ""]
    ) -> tuple[Trained, Watched]:
        """Gradient steps on the squared error of one-step targets."""
        del memory
        return self.learning.learn(key, learner, replay, iteration, self.loss)

    def loss(self, parameters: PyTree, target: PyTree, batch: Batch) -> tuple[Float[Array, ""], Watched]:
        """Of a batch: its mean (squared rewards), and what is watched.

        Args:
            parameters: of the network.
            target: parameters of the target network.
            batch: of transitions.
        """
        return q_loss(self.trunk, self.learning, parameters, target, batch)

    def values(self, learner: Trained, observation: AnyArray) -> Values:
        """Q; DQN has no estimate of its error."""
        return Values(q_values(self.trunk, learner.parameters, observation))


def q_network(key: PRNGKeyArray, trunk: Trunk, spec: Spec) -> dict[str, PyTree]:
    """Parameters of a trunk and of the layer of Q on it.

    Args:
        key: of the draw.
        trunk: its sizes.
        spec: of the environments.
    """
    key_trunk, key_q = jax.random.split(key)
    width = trunk.num_features(spec.observation_shape)
    return {"trunk": trunk.init(key_trunk, spec.observation_shape), "q": dense_init(key_q, width, spec.n_actions)}


def q_values(trunk: Trunk, parameters: PyTree, observation: AnyArray) -> Float[Array, "B A"]:
    """Q of every action at B observations.

    Args:
        trunk: its sizes.
        parameters: of `q_network`.
        observation: [B ...].
    """
    return dense(parameters["q"], trunk.apply(parameters["trunk"], observation))


def q_loss(
    trunk: Trunk, learning: QLearning, parameters: PyTree, target: PyTree, batch: Batch
) -> tuple[Float[Array, ""], Watched]:
    """The loss of one-step Q-learning, and what is watched: it and the mean Q.

    Args:
        trunk: its sizes.
        learning: how the network learns.
        parameters: of the network.
        target: parameters of the target network.
        batch: of transitions.
    """
    q = q_values(trunk, parameters, batch.observation)
    # r + gamma max_a Q(s', a) of the target network; with `double` a is the online network's best action.
    next_q = q_values(trunk, target, batch.next_observation)
    online = q_values(trunk, parameters, batch.next_observation) if learning.double else None
    aim = learning.target(batch.reward, batch.terminated, next_q, online)
    taken = jnp.take_along_axis(q, batch.action[:, None], 1)[:, 0]
    loss = learning.error(taken, aim, batch.weight)
    return loss, {"loss": loss, "q": jnp.mean(taken)}
