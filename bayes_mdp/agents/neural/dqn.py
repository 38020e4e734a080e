"""DQN (Mnih et al. 2015): its network, its loss, epsilon-greedy actions and the schedule of epsilon; bootstrapped DQN.

Bootstrapped DQN has randomised prior functions (Osband et al. 2016, 2018), all members in one vmapped program.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from bayes_mdp.agents.neural.networks import MLP, Trunk, dense, dense_init
from bayes_mdp.agents.neural.replay import Batch, Replay
from bayes_mdp.agents.neural.replay_learning import ActionOutput, QLearning, Spec, Trained, Values, Watched
from bayes_mdp.utils.typing import AnyArray, IntScalar, RealScalar
from bayes_mdp.utils.validation import check_count


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
        # Linear, then constant.
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
    # u[0] picks the random action, u[1] says whether it is taken.
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
        >>> options = bm.deep.TrainOptions(num_envs=4, replay_size=64, progress=False)
        >>> bm.deep.train(DQN(), env, num_steps=16, options=options).finished
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
        # Environment steps so far: iterations times environments.
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
    td_target = learning.target(batch.reward, batch.terminated, next_q, online)
    # Q of the actions that were taken.
    taken = jnp.take_along_axis(q, batch.action[:, None], 1)[:, 0]
    loss = learning.error(taken, td_target, batch.weight)
    return loss, {"loss": loss, "q": jnp.mean(taken)}


class Ensemble(NamedTuple):
    """What learning changes (`nets`) and what it does not (`prior`); members are the leading axis of every array."""

    nets: Trained
    prior: PyTree


class Kept(NamedTuple):
    """What the replay keeps beside a transition.

    Args:
        mask: weight 1 for the members that learn from it.
        prior: the priors' values of its observation: they never change, so they are computed once.
    """

    mask: Float[Array, "*E M"]
    prior: Float[Array, "*E M A"]


class BootstrappedDQN(eqx.Module):
    """M networks, each plus a fixed random one; a member, drawn when an episode begins, acts greedily until it ends.

    The defaults are those of bsuite's `boot_dqn.default_agent` (replay of 10,000 transitions there).

    Args:
        trunk: of every member and of every prior.
        learning: how each member learns, from batches that all share.
        num_members: M.
        prior_scale: of the prior functions' values.
        mask_probability: that a member learns from a transition; drawn once for every transition and member.
        epsilon: share of actions drawn at random.

    Raises:
        ValueError: fewer than one member.
        TypeError: no integer.
    """

    trunk: Trunk = eqx.field(default=MLP((50, 50)), static=True)
    learning: QLearning = QLearning(learning_rate=1e-3, learning_starts=128, target_every=4)
    num_members: int = eqx.field(default=20, static=True)
    prior_scale: RealScalar = 5.0
    mask_probability: RealScalar = 1.0
    epsilon: Epsilon = Epsilon(0.0, 0.0)

    def __check_init__(self) -> None:
        check_count("num_members", self.num_members)

    def init(self, key: PRNGKeyArray, spec: Spec) -> Ensemble:
        """Members and priors, drawn alike: weights of variance 1 / inputs, biases 0."""
        # Half of the keys for the networks, half for the priors, which are never trained.
        keys = jax.random.split(key, (2, self.num_members))
        draw = jax.vmap(lambda k: bsuite_scale(q_network(k, self.trunk, spec)))
        nets, prior = draw(keys[0]), draw(keys[1])
        return Ensemble(self.learning.begin(nets), prior)

    def begin(self, key: PRNGKeyArray, spec: Spec) -> Int[Array, " E"]:
        """Memory: the member that acts in every environment."""
        return jax.random.randint(key, (spec.num_envs,), 0, self.num_members)

    def act(
        self,
        key: PRNGKeyArray,
        learner: Ensemble,
        memory: Int[Array, " E"],
        observation: AnyArray,
        started: Bool[Array, " E"],
        iteration: Int[Array, ""],
    ) -> ActionOutput:
        """The greedy action of the member of each environment."""
        key_member, key_mask, key_epsilon = jax.random.split(key, 3)
        num_envs = len(started)
        drawn = jax.random.randint(key_member, (num_envs,), 0, self.num_members)
        member = jnp.where(started, drawn, memory)  # one member for a whole episode: deep exploration
        prior = self.members(learner.prior, observation)
        # Osband, Aslanides and Cassirer 2018: a fixed random function beside every learnt one keeps members apart.
        q = self.members(learner.nets.parameters, observation) + self.prior_scale * prior
        member_q = q[jnp.arange(num_envs), member]
        # Bernoulli masks, drawn once for every transition and member: the bootstrap of the data.
        mask = jax.random.bernoulli(key_mask, self.mask_probability, (num_envs, self.num_members))
        action = epsilon_greedy(key_epsilon, member_q, self.epsilon.at(iteration * num_envs))
        return ActionOutput(action, member, Kept(mask.astype(prior.dtype), prior))

    def learn(
        self, key: PRNGKeyArray, learner: Ensemble, memory: Int[Array, " E"], replay: Replay, iteration: Int[Array, ""]
    ) -> tuple[Ensemble, Watched]:
        """Gradient steps of all members on the same batches."""
        del memory
        nets, watched = self.learning.learn(key, learner.nets, replay, iteration, self.loss)
        return Ensemble(nets, learner.prior), watched

    def members(self, parameters: PyTree, observation: AnyArray) -> Float[Array, "B M A"]:
        """Values of every member's network, the prior left out.

        Args:
            parameters: of the members' networks.
            observation: [B ...].
        """
        return jax.vmap(lambda p: q_values(self.trunk, p, observation), out_axes=1)(parameters)

    def loss(self, parameters: PyTree, target: PyTree, batch: Batch) -> tuple[Float[Array, ""], Watched]:
        """The members' losses (squared rewards), summed: each is the mean over the batch of what its mask lets through.

        Args:
            parameters: of the members' networks.
            target: parameters of their target networks.
            batch: of transitions.
        """

        def member_loss(p: PyTree, t: PyTree, mask: Array, prior: Array, next_prior: Array) -> tuple[Array, Array]:
            # Every member has its own target network and its own fixed prior: Q_m = f_m + scale p_m.
            next_q = q_values(self.trunk, t, batch.next_observation) + self.prior_scale * next_prior
            online = next_q
            if self.learning.double:
                online = q_values(self.trunk, p, batch.next_observation) + self.prior_scale * next_prior
            td_target = self.learning.target(batch.reward, batch.terminated, next_q, online)
            q = q_values(self.trunk, p, batch.observation) + self.prior_scale * prior
            taken = jnp.take_along_axis(q, batch.action[:, None], 1)[:, 0]
            return self.learning.error(taken, td_target, batch.weight * mask), jnp.mean(taken)

        extra, next_kept = batch.extra, batch.next_extra
        loss, q = jax.vmap(member_loss, in_axes=(0, 0, 1, 1, 1))(
            parameters, target, extra.mask, extra.prior, next_kept.prior
        )
        # The sum, so that no member's gradient is scaled by their number.
        return jnp.sum(loss), {"loss": jnp.mean(loss), "q": jnp.mean(q)}

    def values(self, learner: Ensemble, observation: AnyArray) -> Values:
        """Mean of the members and their standard deviation."""
        q = self.members(learner.nets.parameters, observation)
        # A member is its network plus its fixed prior.
        q = q + self.prior_scale * self.members(learner.prior, observation)
        return Values(jnp.mean(q, 1), jnp.std(q, 1))


def bsuite_scale(parameters: PyTree) -> PyTree:
    """Weights of variance 1 / inputs in place of 1 / (3 inputs), biases 0: how bsuite's networks begin.

    Args:
        parameters: of `dense_init`.
    """
    # sqrt(3) turns a uniform law of variance 1 / (3 inputs) into one of 1 / inputs.
    return jax.tree.map(lambda x: jnp.sqrt(3.0) * x if x.ndim > 1 else jnp.zeros_like(x), parameters)
