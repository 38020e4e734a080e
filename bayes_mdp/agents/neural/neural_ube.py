"""UBE exploration with a network: as in [UBE18] Algorithm 1 (`NeuralUBE`, mode `paper`), and deeply (`DeepUBE`).

`DeepUBE` (mode `deep`) lists its changes against Algorithm 1.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from bayes_mdp.agents.neural.dqn import q_loss, q_network, q_values
from bayes_mdp.agents.neural.features import HashedFeatures, UnitPrior
from bayes_mdp.agents.neural.last_layer import LastLayer, LastLayerPrior, belief_before_data, check_prior
from bayes_mdp.agents.neural.networks import MLP, Dense, Features, Trunk, dense, dense_init
from bayes_mdp.agents.neural.replay import Batch, Replay
from bayes_mdp.agents.neural.replay_learning import (
    ActionOutput,
    QLearning,
    Spec,
    Trained,
    Values,
    Watched,
    descend,
    scale,
)
from bayes_mdp.inference.value.linear_gaussian import LinearGaussian, LinearGaussianPrior
from bayes_mdp.numerics.products import matmul
from bayes_mdp.utils.typing import AnyArray, RealScalar
from bayes_mdp.utils.validation import check_count, check_name


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
        # Width 0: u is linear in the features.
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
        # ReLU layers, then a linear one: u may come out negative, and is cut where it is used.
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
        # The head of u has its own parameters and optimiser: no gradient of it reaches the trunk.
        u = self.head.init(key_u, width, spec.n_actions)
        local = jnp.zeros((self.head.num_steps + 1, spec.num_envs))
        # Q and the trunk learn as in DQN.
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
        # Features once for both heads.
        features = self.trunk.apply(learner.q.parameters["trunk"], observation)
        q, u = dense(learner.q.parameters["q"], features), self.head.apply(learner.u, features)
        # Thompson sampling ([UBE18] Algorithm 1): a new z for every action, and u cut at 0.
        noise = jax.random.normal(key, q.shape)
        action = jnp.argmax(q + self.beta * noise * jnp.sqrt(jnp.maximum(u, 0.0)), 1).astype(jnp.int32)
        # The newest features go to the end of the memory.
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
        # phi' Sigma_a phi, before this step shrinks Sigma_a: the local uncertainty of [UBE18].
        variance = variance_of_action(learner.belief, memory[-1], action[-1])
        belief = learner.belief.update(memory[-1], action[-1])
        # A window of n + 1 local uncertainties slides by one.
        local = jnp.concatenate([learner.local[1:], variance[None]])
        target, weight = self.targets(learner.u, memory, action, local[:-1], terminated[:-1], truncated[:-1])
        weight = weight * (iteration >= n)  # n steps ago there was none

        # Only the head of u learns from this loss.
        def loss(u: PyTree) -> Float[Array, ""]:
            predicted = jnp.take_along_axis(self.head.apply(u, memory[0]), action[0][:, None], 1)[:, 0]
            return jnp.mean(weight * (target - predicted) ** 2)

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
        # The sum stops at the first truncation: j = n where there is none.
        cut = jnp.concatenate([truncated, jnp.ones((1, num_envs), bool)])
        stop = jnp.argmax(cut, 0)  # j of every environment
        # Ended at or before step k.
        ended = jnp.cumsum(terminated, 0) > 0
        alive = jnp.concatenate([jnp.ones((1, num_envs), bool), ~ended])  # no end before step k
        # Steps before the stop, and before an end.
        counted = alive[:n] & (jnp.arange(n)[:, None] < stop)
        # Variances scale with the square of the discount.
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
        # A variance is not negative, whatever the head says.
        u = jnp.maximum(self.head.apply(learner.u, features), 0.0)
        return Values(dense(learner.q.parameters["q"], features), jnp.sqrt(u), u)


def variance_of_action(
    belief: LastLayer, features: Float[Array, "E D"], action: Int[Array, " E"]
) -> Float[Array, " E"]:
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
    # One entry of [E A] for each environment.
    return jnp.take_along_axis(belief.variance(features), action[:, None], 1)[:, 0]


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
        # w begins near 1, its bound where `q_max` is 1: what was never seen is as uncertain as can be.
        w["q"] = Dense(0.1 * w["q"].weight, jnp.ones_like(w["q"].bias))
        # Two networks in one optimiser: Q and w.
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
        # u combines what the belief says now with what the head has learnt of the future.
        # u of the present state: local uncertainty and what the head says of the future.
        q, u = self.values_of(learner.nets.parameters, self.unknown(learner.belief, features), observation)
        # "episode": one |z| from the first step to the last; "action": a z for every action; else 1.
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
        # The replay is a ring: the row of this step.
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
        # w is what the network says of the future; u adds what is unknown now.
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
        # The optimistic action of the next state: with it exploration is deep.
        best = self.next_action(q_next, u_next, batch)[:, None]
        aim_w = jnp.where(batch.terminated, 0.0, jnp.take_along_axis(u_next, best, 1)[:, 0])
        # Double Q-learning takes the online network's maximiser.
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
        # Prioritised rows weigh less: importance weights of the replay.
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
        # Greedy for mean plus beta sd.
        return jnp.argmax(q + self.beta * jnp.sqrt(u), 1)

    def values(self, learner: DeepLearner, observation: AnyArray) -> Values:
        """Q, sqrt(u) and u."""
        features = self.features.apply(learner.features, observation)
        q, u = self.values_of(learner.nets.parameters, self.unknown(learner.belief, features), observation)
        return Values(q, jnp.sqrt(u), u)
