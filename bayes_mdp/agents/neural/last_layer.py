"""A belief about the last layer of a network, and DQN with its local uncertainty as a bonus ([UBE18] section 5.1).

The belief's contract and the one sentence where it is not kept come first; then the baseline agent, `BonusDQN`, to
whose rewards the local uncertainty is added.
"""

from typing import NamedTuple, Protocol, Self, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from bayes_mdp.agents.neural.dqn import Epsilon, epsilon_greedy, q_loss, q_network, q_values
from bayes_mdp.agents.neural.networks import MLP, Features, Trunk, dense
from bayes_mdp.agents.neural.replay import Batch, Replay
from bayes_mdp.agents.neural.replay_learning import ActionOutput, QLearning, Spec, Trained, Values, Watched
from bayes_mdp.inference.value.linear_gaussian import LinearGaussianPrior
from bayes_mdp.utils.typing import AnyArray, RealScalar
from bayes_mdp.utils.validation import described


@runtime_checkable
class LastLayer(Protocol):
    """A belief about the last layer, Q(s, a) = w_a . phi(s): how uncertain every action's value is at features phi.

    An `eqx.Module` whose fields are arrays, with three methods, all traced by JAX for all seeds at once. `features` of
    B states are what the agent's network gives: Float[B, D]; with `HashedFeatures` (the default of `DeepUBE`)
    Int[B, k], the active ones of D units. A `LastLayerPrior` makes the belief before data.
    """

    def variance(self, features: Features) -> Float[Array, "B A"]:
        """Variance of the value of every action, in units of the squared reward.

        Args:
            features: of B states.
        """
        ...

    def initial_variance(self, features: Features) -> Float[Array, " B"]:
        """What `variance` was before data, one number for all actions. `DeepUBE` alone calls it.

        Args:
            features: of B states.
        """
        ...

    def update(self, features: Features, action: Int[Array, " K"], target: Float[Array, " K"] | None = None) -> Self:
        """The belief after K states and the actions that were taken there; its arrays have the same shapes and dtypes.

        Args:
            features: of the states, K in place of B.
            action: taken there.
            target: the rewards that followed, from `DeepUBE` with `shrink=True`; None from all others: the belief then
                learns from the features alone, as [UBE18] does.
        """
        ...


@runtime_checkable
class LastLayerPrior(Protocol):
    """What `posterior=` takes: an `eqx.Module` of hyperparameters with one method, which makes the belief."""

    def belief(self, n_actions: int, num_features: int) -> LastLayer:
        """The belief before data, for A actions and D features.

        Args:
            n_actions: A.
            num_features: D.
        """
        ...


def check_prior(posterior: object) -> None:
    """Refuse what makes no belief.

    Args:
        posterior: what an agent was given.

    Raises:
        TypeError: no `belief`.
    """
    if isinstance(posterior, type) or not callable(getattr(posterior, "belief", None)):
        hint = " (a belief itself: give the object that makes it)" if isinstance(posterior, LastLayer) else ""
        raise TypeError(
            f"posterior is {described(posterior)}{hint}, expected an object with belief(n_actions, num_features), "
            "which returns the last layer before data (see LastLayerPrior)"
        )


def belief_before_data(
    posterior: LastLayerPrior, trunk: Trunk, parameters: PyTree, spec: Spec, *, target: bool
) -> LastLayer:
    """The belief that `posterior` makes, checked against `LastLayer` by shapes alone. Traceable.

    Args:
        posterior: the prior.
        trunk, parameters: what gives the features.
        spec: of the environments.
        target: whether the agent gives the rewards to `update`.

    Raises:
        TypeError: a method is missing, or returns something of another shape.
    """
    size = spec.n_actions, trunk.num_features(spec.observation_shape)
    # Two states: enough to tell the batch from the features.
    seen = jax.ShapeDtypeStruct((2, *spec.observation_shape), spec.observation_dtype)
    features = jax.eval_shape(trunk.apply, parameters, seen)
    # Shapes first: a matrix of all hashed units would not fit into memory.
    belief = jax.eval_shape(lambda: posterior.belief(*size))
    missing = [method for method in METHODS if not callable(getattr(belief, method, None))]
    if missing:
        raise TypeError(
            f"{type(posterior).__name__}.belief returned {described(belief)} without {', '.join(missing)}, expected a "
            f"last layer with {', '.join(METHODS)} (see LastLayer)"
        )
    _check_methods(belief, features, spec.n_actions, target)
    return posterior.belief(*size)


def _check_methods(belief: LastLayer, features: PyTree, n_actions: int, target: bool) -> None:
    """Call every method on the shapes of two states. Raises as `belief_before_data`."""
    name, kind = type(belief).__name__, eqx.tree_pformat(features, struct_as_array=True)
    # Two rows of actions and rewards, as shapes.
    rows = [jax.ShapeDtypeStruct((2,), jnp.int32), jax.ShapeDtypeStruct((2,), jnp.result_type(float))]
    calls = {"variance": [features], "initial_variance": [features], "update": [features, *rows[: 1 + target]]}
    shapes = {}
    # All three methods are evaluated abstractly.
    for method, arguments in calls.items():
        try:
            shapes[method] = jax.eval_shape(lambda b, *x, method=method: getattr(b, method)(*x), belief, *arguments)
        except (TypeError, ValueError, IndexError) as error:
            preposition = "with" if target else "without"
            raise TypeError(
                f"{name}.{method} cannot take the features {kind} of 2 states, {preposition} rewards as target "
                f"({str(error).splitlines()[0]}), expected a last layer that can: see LastLayer"
            ) from error
    for method, shape, axes in (
        ("variance", (2, n_actions), "state, action"),
        ("initial_variance", (2,), "a number for each state"),
    ):
        if jnp.shape(shapes[method]) != shape:
            raise TypeError(
                f"{name}.{method} returned shape {jnp.shape(shapes[method])} for 2 states, expected {shape}: {axes}"
            )
    # It is carried through a compiled loop: structure, shapes and dtypes have to stay.
    if outline(shapes["update"]) != outline(belief):
        raise TypeError(
            f"{name}.update returned {outline(shapes['update'])}, expected arrays like those before: {outline(belief)}"
        )


METHODS = ("variance", "initial_variance", "update")
"""Of a `LastLayer`."""


def outline(tree: PyTree) -> str:
    """Structure, shapes and dtypes of a tree, in words.

    Args:
        tree: of arrays.
    """
    return eqx.tree_pformat(jax.eval_shape(lambda x: jax.tree.map(jnp.asarray, x), tree), struct_as_array=True)


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
        # Features of the step, kept in memory for the update.
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
        # The bonus as it was when the step was taken.
        paid = batch._replace(reward=batch.reward + batch.extra)
        return q_loss(self.trunk, self.learning, parameters, target, paid)

    def values(self, learner: BonusLearner, observation: AnyArray) -> Values:
        """Q, bonuses to come included, and sqrt(phi' Sigma_a phi), which is local."""
        features = self.trunk.apply(learner.q.parameters["trunk"], observation)
        # Local: the uncertainty of this step, not that of what follows.
        local = jnp.sqrt(jnp.maximum(learner.belief.variance(features), 0.0))
        return Values(q_values(self.trunk, learner.q.parameters, observation), local)
