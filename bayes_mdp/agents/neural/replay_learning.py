"""What a deep agent is, for those who train it (`init`, `begin`, `act`, `learn`, `values`), and Q-learning from replay.

Q-learning from replay (Mnih et al. 2015): when gradient steps are taken, the optimiser, the targets.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from bayes_mdp.agents.neural.replay import Batch, Replay, sample
from bayes_mdp.utils.messages import install
from bayes_mdp.utils.typing import AnyArray, IntScalar, RealLike, RealScalar

if TYPE_CHECKING:
    import optax


Learner = TypeVar("Learner")

Watched: TypeAlias = dict[str, Float[Array, ""]]
"""Numbers of the learner that are recorded, by name: losses, mean Q, ..."""


class Spec(NamedTuple):
    """What an agent is given about the environments that it learns in.

    Args:
        observation_shape: of one observation.
        observation_dtype: of its entries.
        n_actions: A.
        num_envs: E, environments that are stepped side by side.
    """

    observation_shape: tuple[int, ...]
    observation_dtype: np.dtype
    n_actions: int
    num_envs: int


class ActionOutput(NamedTuple):
    """What `act` returns.

    Args:
        action: of every environment.
        memory: what the next `act` needs: noise drawn for an episode, the member that acts, ...
        extra: what the replay keeps beside the transition: any tree of arrays [E ...]; () for nothing.
    """

    action: Int[Array, " E"]
    memory: PyTree
    extra: PyTree = ()


class Values(NamedTuple):
    """Estimates at some observations.

    Args:
        q: action values, in units of the reward.
        sd: their standard deviation as the agent believes it, before any scale; None: it has none.
        u: what the uncertainty Bellman equation says, a variance; None: it has none.
    """

    q: Float[Array, "B A"]
    sd: Float[Array, "B A"] | None = None
    u: Float[Array, "B A"] | None = None


@runtime_checkable
class NeuralAgent(Protocol[Learner]):
    """A deep agent. It holds hyperparameters only; every method is pure and traceable, for E environments at once.

    `iteration` counts steps of all E environments, from 0. It is the same for all seeds: under `vmap` over seeds, a
    condition that depends on it alone stays a branch of the compiled program and does not become a `select`.
    """

    def init(self, key: PRNGKeyArray, spec: Spec) -> Learner:
        """Parameters, optimiser states, posterior: what learning changes.

        Args:
            key: of the first parameters.
            spec: of the environments.
        """
        ...

    def begin(self, key: PRNGKeyArray, spec: Spec) -> PyTree:
        """The memory of `act` before the first step.

        Args:
            key: of what is drawn for the first episodes.
            spec: of the environments.
        """
        ...

    def act(
        self,
        key: PRNGKeyArray,
        learner: Learner,
        memory: PyTree,
        observation: AnyArray,
        started: Bool[Array, " E"],
        iteration: Int[Array, ""],
    ) -> ActionOutput:
        """An action for every environment.

        Args:
            key: of this iteration.
            learner: from `init` or the last `learn`.
            memory: from `begin` or the last `act`.
            observation: [E ...], one of each environment.
            started: where an episode begins.
            iteration: see the class.
        """
        ...

    def learn(
        self, key: PRNGKeyArray, learner: Learner, memory: PyTree, replay: Replay, iteration: Int[Array, ""]
    ) -> tuple[Learner, Watched]:
        """The learner after this iteration, and numbers to record.

        Args:
            key: of this iteration, another than that of `act`.
            learner: from `init` or the last `learn`.
            memory: what `act` left for the next iteration.
            replay: holds the row of this iteration already.
            iteration: see the class.
        """
        ...

    def values(self, learner: Learner, observation: AnyArray) -> Values:
        """Q, its standard deviation and u at B observations.

        Args:
            learner: from `init` or the last `learn`.
            observation: [B ...].
        """
        ...


Loss: TypeAlias = Callable[[PyTree, PyTree, Batch], tuple[Float[Array, ""], Watched]]
"""(parameters, parameters of the target network, batch) -> (mean loss, numbers to record)."""


class Trained(NamedTuple):
    """A network while it is trained.

    Args:
        parameters: of the network.
        target: the copy that targets are computed with.
        opt_state: of the optimiser.
    """

    parameters: PyTree
    target: PyTree
    opt_state: PyTree


class QLearning(eqx.Module):
    """How a network learns from replay.

    Args:
        discount: gamma.
        learning_rate: of the optimiser.
        optimizer: "adam", or "rmsprop" (Mnih's, centred; learning rate 2.5e-4 there).
        batch_size: transitions of one gradient step.
        learning_starts: transitions before the first one.
        train_every: iterations from one training to the next; an iteration is one step of every environment.
        gradient_steps: of one training.
        target_every: gradient steps from one copy of the target network to the next.
        huber: errors beyond 1 count linearly (Mnih's clipping) and not as squares.
        double: the target's action is that of the online network (double Q-learning).
    """

    discount: RealScalar = 0.99
    learning_rate: RealScalar = 2.5e-4
    optimizer: str = eqx.field(default="adam", static=True)
    batch_size: int = eqx.field(default=128, static=True)
    learning_starts: int = eqx.field(default=10_000, static=True)
    train_every: int = eqx.field(default=1, static=True)
    gradient_steps: int = eqx.field(default=1, static=True)
    target_every: int = eqx.field(default=50, static=True)
    huber: bool = eqx.field(default=False, static=True)
    double: bool = eqx.field(default=False, static=True)

    def __check_init__(self) -> None:
        from bayes_mdp.utils.validation import check_count, check_name

        check_name("optimizer", self.optimizer, _SCALES)
        for name in ("batch_size", "learning_starts", "train_every", "gradient_steps", "target_every"):
            check_count(name, getattr(self, name))

    def begin(self, parameters: PyTree) -> Trained:
        """Before the first gradient step.

        Args:
            parameters: of the network.
        """
        # The target network starts as a copy.
        return Trained(parameters, parameters, scale(self.optimizer).init(parameters))

    def first(self, num_envs: int) -> int:
        """The first iteration that trains.

        Args:
            num_envs: stepped side by side.
        """
        # As many iterations as fill the replay to `learning_starts`, and one at least.
        return max(-(-self.learning_starts // num_envs), 1)

    def learn(
        self, key: PRNGKeyArray, trained: Trained, replay: Replay, iteration: Int[Array, ""], loss: Loss
    ) -> tuple[Trained, Watched]:
        """The gradient steps of this iteration, if it is its turn, and the numbers of the last one (else nan).

        Args:
            key: of the batches.
            trained: as `begin` or the last call returned it.
            replay: holds the row of this iteration.
            iteration: counted from 0.
            loss: (parameters, parameters of the target, batch) -> (its mean, numbers to record).
        """
        # Every `train_every`th iteration from the first one that has enough transitions.
        since = iteration - self.first(replay.shape[1])
        due = (since >= 0) & (since % self.train_every == 0)

        def step(carry: Trained, i: IntScalar) -> tuple[Trained, Watched]:
            batch = sample(jax.random.fold_in(key, i), replay, iteration, self.batch_size)
            # Gradient steps so far, this one included: decides when the target network is copied.
            number = since // self.train_every * self.gradient_steps + i + 1
            return self._descend(carry, batch, loss, number % self.target_every == 0)

        def train(now: Trained) -> tuple[Trained, Watched]:
            # A single step needs no loop.
            if self.gradient_steps == 1:
                return step(now, 0)
            # Several steps: a scan, of which the last one's numbers are recorded.
            later, watched = jax.lax.scan(step, now, jnp.arange(self.gradient_steps))
            return later, jax.tree.map(lambda x: x[-1], watched)

        # A branch, not a select: no gradient is computed in iterations that do not train.
        shapes = jax.eval_shape(train, trained)[1]
        nothing = jax.tree.map(lambda x: jnp.full(x.shape, jnp.nan, x.dtype), shapes)
        return jax.lax.cond(due, train, lambda now: (now, nothing), trained)

    def _descend(self, trained: Trained, batch: Batch, loss: Loss, copy: Bool[Array, ""]) -> tuple[Trained, Watched]:
        # The target network is an argument of its own: no gradient reaches it.
        (_, watched), gradient = jax.value_and_grad(loss, has_aux=True)(trained.parameters, trained.target, batch)
        parameters, opt_state = descend(
            self.optimizer, self.learning_rate, trained.parameters, gradient, trained.opt_state
        )
        # Copied every so many gradient steps, not averaged.
        target = jax.lax.cond(copy, lambda: parameters, lambda: trained.target)
        return Trained(parameters, target, opt_state), watched

    def target(
        self,
        reward: Float[AnyArray, " B"],
        terminated: Bool[AnyArray, " B"],
        next_q: Float[AnyArray, "B A"],
        online_q: Float[AnyArray, "B A"] | None = None,
    ) -> Float[Array, " B"]:
        """r + gamma (1 - terminated) max_a Q(s', a), Q of the target network; `online_q` chooses a if `double`.

        Args:
            reward, terminated: of the transitions.
            next_q: of the target network.
        """
        # van Hasselt 2016: the online network chooses, the target network values.
        if self.double and online_q is not None:
            best = jnp.take_along_axis(next_q, jnp.argmax(online_q, 1)[:, None], 1)[:, 0]
        else:
            best = jnp.max(next_q, 1)
        return jnp.asarray(reward) + self.discount * jnp.where(terminated, 0.0, best)

    def error(
        self, predicted: Float[AnyArray, " B"], target: Float[AnyArray, " B"], weight: RealLike
    ) -> Float[Array, ""]:
        """Mean loss of a batch, in squared units of the reward; half a square, linear beyond 1 if `huber`.

        Args:
            predicted: Q of the action that was taken.
            target: r + g max Q', as `target` has it, in units of the reward.
            weight: factor of each loss, one number or [B].
        """
        # No gradient through the target.
        miss = predicted - jax.lax.stop_gradient(target)
        size = jnp.abs(miss)
        losses = jnp.where(size > 1, size - 0.5, 0.5 * miss**2) if self.huber else 0.5 * miss**2
        return jnp.mean(weight * losses)


_SCALES = ("adam", "rmsprop")


def scale(optimizer: str) -> "optax.GradientTransformation":
    """The optax transformation of gradients, before the learning rate.

    Args:
        optimizer: "adam" or "rmsprop".

    Raises:
        ImportError: optax is missing.
    """
    try:
        import optax
    except ImportError as error:
        raise ImportError(f"deep agents need optax: {install('deep')}") from error
    if optimizer == "adam":
        return optax.scale_by_adam(eps=1e-8)
    # Centred RMSProp: the gradient over its standard deviation (Mnih et al. 2015).
    return optax.scale_by_stddev(decay=0.95, eps=0.01)


def descend(
    optimizer: str, learning_rate: RealScalar, parameters: PyTree, gradient: PyTree, opt_state: PyTree
) -> tuple[PyTree, PyTree]:
    """Parameters and state of the optimiser after one step. The learning rate is a number that may be traced.

    Args:
        optimizer: "adam" or "rmsprop".
        learning_rate: of the step.
        parameters: before the step.
        gradient: of the loss.
        opt_state: before the step.
    """
    # optax scales the gradient; the learning rate is applied here as a traced number: another one needs no compilation.
    direction, opt_state = scale(optimizer).update(gradient, opt_state, parameters)
    return jax.tree.map(lambda p, d: p - learning_rate * d, parameters, direction), opt_state
