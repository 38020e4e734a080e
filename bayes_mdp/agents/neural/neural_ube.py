"""UBE exploration with a network ([UBE18] Algorithm 1), nothing changed: mode `paper`."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from bayes_mdp.agents.neural.contract import ActionOutput, Spec, Values, Watched
from bayes_mdp.agents.neural.dqn import q_loss, q_network
from bayes_mdp.agents.neural.last_layer import LastLayer, LastLayerPrior, belief_before_data, check_prior
from bayes_mdp.agents.neural.networks import MLP, Trunk, dense, dense_init
from bayes_mdp.agents.neural.replay import Batch, Replay
from bayes_mdp.agents.neural.replay_learning import QLearning, Trained, descend, scale
from bayes_mdp.inference.value.linear_gaussian import LinearGaussian, LinearGaussianPrior
from bayes_mdp.numerics.products import matmul
from bayes_mdp.utils.typing import AnyArray, RealScalar
from bayes_mdp.utils.validation import check_count


class UncertaintyHead(eqx.Module):
    """The network of u on the features, and how it learns.

    Its products are in float32 on every device: with a wide prior the first targets are large, and later u is what
    weights and biases of size 1 leave of each other.

    Args:
        width: of its hidden layer; 0: none, u is linear in the features.
        learning_rate: of its RMSProp ([UBE18] section 5.1).
        num_steps: n, steps of local uncertainty that are summed before u is bootstrapped; 1 or 150 in [UBE18].

    Raises:
        ValueError: a number that is too small. TypeError: no integer.
    """

    width: int = eqx.field(default=512, static=True)
    learning_rate: RealScalar = 1e-3
    num_steps: int = eqx.field(default=1, static=True)

    def __check_init__(self) -> None:
        check_count("width", self.width, 0)
        check_count("num_steps", self.num_steps)

    def init(self, key: PRNGKeyArray, num_features: int, n_actions: int) -> PyTree:
        """Its parameters.

        Args:
            key: of the draw.
            num_features: D.
            n_actions: A.
        """
        if not self.width:
            return (dense_init(key, num_features, n_actions),)
        first, last = jax.random.split(key)
        return dense_init(first, num_features, self.width), dense_init(last, self.width, n_actions)

    def apply(self, parameters: PyTree, features: Float[AnyArray, "B D"]) -> Float[Array, "B A"]:
        """u, a variance, which may come out below zero.

        Args:
            parameters: from `init`, or learned.
            features: of B states.
        """
        *inner, last = parameters
        for layer in inner:
            features = jax.nn.relu(dense(layer, features))
        return dense(last, features)


class UBELearner(NamedTuple):
    """What learning changes.

    Args:
        q: trunk and Q head.
        u, opt_state: parameters of the u head, state of its optimiser.
        belief: Sigma_a.
        local: local uncertainties of this step and the n before it, newest last.
    """

    q: Trained
    u: PyTree
    opt_state: PyTree
    belief: LastLayer
    local: Float[Array, "n_plus_1 E"]


class NeuralUBE(eqx.Module):
    """Q-learning plus a head u(s, a) that learns the uncertainty Bellman equation; Thompson noise beta z sqrt(u).

    Each step: y = phi(s)' Sigma_a phi(s) + gamma^2 u(s', a'), a' the action that was taken next (nothing after an end);
    a gradient step on (y - u(s, a))^2, none of it into the trunk; Sigma_a after phi(s). z is drawn afresh for every
    action at every step. The features of a step are those of the parameters that acted. [UBE18]: beta .01 on Atari.
    It does not explore deeply (`DeepUBE` does): u of a state never observed is an arbitrary output of its head.

    Args:
        trunk: the network up to its last layer, whose output are the features phi.
        learning: how Q learns, as in `DQN`.
        head: the network of u.
        posterior: makes the belief about the last layer (see `LastLayerPrior`).
        beta: scale of the noise.

    Raises:
        TypeError: `posterior` has no `belief`; what that returns is no `LastLayer` (when learning begins).
    """

    trunk: Trunk = eqx.field(default=MLP(), static=True)
    learning: QLearning = QLearning()
    head: UncertaintyHead = UncertaintyHead()
    posterior: LastLayerPrior = LinearGaussianPrior()
    beta: RealScalar = 0.01

    def __check_init__(self) -> None:
        check_prior(self.posterior)

    def init(self, key: PRNGKeyArray, spec: Spec) -> UBELearner:
        """Parameters, drawn; the belief before data."""
        key_q, key_u = jax.random.split(key)
        width = self.trunk.num_features(spec.observation_shape)
        u = self.head.init(key_u, width, spec.n_actions)
        local = jnp.zeros((self.head.num_steps + 1, spec.num_envs))
        q = self.learning.begin(q_network(key_q, self.trunk, spec))
        belief = belief_before_data(self.posterior, self.trunk, q.parameters["trunk"], spec, target=False)
        return UBELearner(q, u, scale("rmsprop").init(u), belief, local)

    def begin(self, key: PRNGKeyArray, spec: Spec) -> Float[Array, "n_plus_1 E D"]:
        """Memory: the features of this step and the n before it, newest last."""
        del key
        width = self.trunk.num_features(spec.observation_shape)
        return jnp.zeros((self.head.num_steps + 1, spec.num_envs, width))

    def act(
        self,
        key: PRNGKeyArray,
        learner: UBELearner,
        memory: Float[Array, "n_plus_1 E D"],
        observation: AnyArray,
        started: Bool[Array, " E"],
        iteration: Int[Array, ""],
    ) -> ActionOutput:
        """argmax Q + beta z sqrt(u)."""
        del started, iteration
        features = self.trunk.apply(learner.q.parameters["trunk"], observation)
        q, u = dense(learner.q.parameters["q"], features), self.head.apply(learner.u, features)
        noise = jax.random.normal(key, q.shape)
        action = jnp.argmax(q + self.beta * noise * jnp.sqrt(jnp.maximum(u, 0.0)), 1).astype(jnp.int32)
        return ActionOutput(action, jnp.concatenate([memory[1:], features[None]]))

    def learn(
        self,
        key: PRNGKeyArray,
        learner: UBELearner,
        memory: Float[Array, "n_plus_1 E D"],
        replay: Replay,
        iteration: Int[Array, ""],
    ) -> tuple[UBELearner, Watched]:
        """A gradient step on u of n steps ago, Sigma_a after this step, Q as in `DQN`.

        Raises:
            ValueError: the replay holds n rows or less.
        """
        num_rows, n = replay.shape[0], self.head.num_steps
        if num_rows <= n:
            raise ValueError(f"the replay holds {num_rows} rows, expected more than num_steps = {n}")
        q, watched = self.learning.learn(key, learner.q, replay, iteration, self.loss)
        # The rows of the last n + 1 steps, oldest first; nu of this step is that before the belief takes it.
        window = (iteration - n + jnp.arange(n + 1)) % num_rows
        action, terminated, truncated = (
            rows[window] for rows in (replay.rows.action, replay.rows.terminated, replay.rows.truncated)
        )
        variance = variance_of_taken(learner.belief, memory[-1], action[-1])
        belief = learner.belief.update(memory[-1], action[-1])
        local = jnp.concatenate([learner.local[1:], variance[None]])
        target, weight = self.targets(learner.u, memory, action, local[:-1], terminated[:-1], truncated[:-1])
        weight = weight * (iteration >= n)  # n steps ago there was none

        def loss(u: PyTree) -> Float[Array, ""]:
            own = jnp.take_along_axis(self.head.apply(u, memory[0]), action[0][:, None], 1)[:, 0]
            return jnp.mean(weight * (target - own) ** 2)

        u_loss, gradient = jax.value_and_grad(loss)(learner.u)
        u, opt_state = descend("rmsprop", self.head.learning_rate, learner.u, gradient, learner.opt_state)
        return UBELearner(q, u, opt_state, belief, local), watched | {"u_loss": u_loss, "local": jnp.mean(variance)}

    def targets(
        self,
        u: PyTree,
        features: Float[AnyArray, "n_plus_1 E D"],
        action: Int[AnyArray, "n_plus_1 E"],
        local: Float[AnyArray, "n E"],
        terminated: Bool[AnyArray, "n E"],
        truncated: Bool[AnyArray, "n E"],
    ) -> tuple[Float[Array, " E"], Float[Array, " E"]]:
        """y of the oldest of n + 1 steps, and its weight.

        y is the sum of gamma^2k nu_k up to an end or to n, plus gamma^2j u(s_j, a_j): j is n, or the first step that
        was truncated. Weight 0 where that is the oldest one.

        Args:
            u: parameters of the network of u.
            features: of the n + 1 steps, the oldest first.
            action: taken there.
            local: nu, of the first n steps.
            terminated, truncated: how each of these ended.
        """
        n, num_envs = local.shape
        cut = jnp.concatenate([truncated, jnp.ones((1, num_envs), bool)])
        stop = jnp.argmax(cut, 0)  # j of every environment
        ended = jnp.cumsum(terminated, 0) > 0
        alive = jnp.concatenate([jnp.ones((1, num_envs), bool), ~ended])  # no end before step k
        counted = alive[:n] & (jnp.arange(n)[:, None] < stop)
        factor = self.learning.discount ** (2 * jnp.arange(n + 1))
        everyone = jnp.arange(num_envs)
        # For n = 1 any other stop has weight 0, and `act` has computed u at these features: the compiler shares it.
        last = features[-1] if n == 1 else features[stop, everyone]
        at_stop = self.head.apply(u, last)[everyone, action[stop, everyone]]
        beyond = factor[stop] * jnp.where(alive[stop, everyone], jnp.maximum(at_stop, 0.0), 0.0)
        # y = sum_k gamma^2k nu_k + gamma^2j u(s_j, a_j), [UBE18] Algorithm 1 with n steps.
        return jnp.sum(jnp.where(counted, factor[:n, None] * local, 0.0), 0) + beyond, (stop > 0).astype(float)

    def loss(self, parameters: PyTree, target: PyTree, batch: Batch) -> tuple[Float[Array, ""], Watched]:
        """Of Q on a batch, as in `DQN`.

        Args:
            parameters: of the network.
            target: parameters of the target network.
            batch: of transitions.
        """
        return q_loss(self.trunk, self.learning, parameters, target, batch)

    def values(self, learner: UBELearner, observation: AnyArray) -> Values:
        """Q, sqrt(u) and u."""
        features = self.trunk.apply(learner.q.parameters["trunk"], observation)
        u = jnp.maximum(self.head.apply(learner.u, features), 0.0)
        return Values(dense(learner.q.parameters["q"], features), jnp.sqrt(u), u)


def variance_of_taken(belief: LastLayer, features: Float[Array, "E D"], action: Int[Array, " E"]) -> Float[Array, " E"]:
    """Variance of the value of the action that was taken in every environment.

    With one environment, only that action's matrix of a `LinearGaussian` is read, not those of the others (a megabyte
    each at 512 features). The expression is that of the update, so that the compiler computes it once.

    Args:
        belief: about the last layer.
        features: of E states.
        action: taken there.
    """
    if isinstance(belief, LinearGaussian) and len(action) == 1:
        rooted = matmul(features[0], belief.root[action[0]])  # phi' R, Sigma_a = noise R R'
        return (belief.noise_variance * matmul(rooted, rooted))[None]
    return jnp.take_along_axis(belief.variance(features), action[:, None], 1)[:, 0]
