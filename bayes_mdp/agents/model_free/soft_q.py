"""Soft Q-learning and Boltzmann Q-learning; the soft plan of the mean model, "RL as inference" without uncertainty.

[KL21] O'Donoghue, *Variational Bayesian Reinforcement Learning with Regret Bounds*, NeurIPS 2021 compares with soft
Q-learning at a fixed temperature and does not say whether it learns from samples (`SoftQ`) or plans (`SoftQMean`).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bayes_mdp.agents.common.learner import place_of
from bayes_mdp.agents.common.mean_model import mean_model
from bayes_mdp.agents.common.replan import EverySteps, ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import Boltzmann
from bayes_mdp.agents.model_free.tabular_q import TabularQ, bellman_target
from bayes_mdp.mdp import MDP, CanMean, Discounted, Episodic, Problem, SparseMDP, Transitions
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.mdp.objectives import require_objective
from bayes_mdp.planning.policy_arrays import action_values
from bayes_mdp.planning.solution import PolicyEvaluation, where_legal
from bayes_mdp.utils.identity import UNDESCRIBED_DEFAULT
from bayes_mdp.utils.typing import RealScalar, Scalar
from bayes_mdp.utils.validation import check_finite, check_fraction, check_positive

_MOST_SWEEPS, _ROUNDINGS = 100_000, 8
Carry = tuple[Float[Array, "S A"], Float[Array, ""], Int[Array, ""]]
"""Of the sweeps: q, its last change, sweeps made."""


def soft_max(q: Float[Array, "*rest A"], temperature: Scalar) -> Float[Array, "*rest"]:
    """temperature log sum_a exp(q_a / temperature): from max q to max q + temperature log A.

    Args:
        q: values of the actions; -inf where illegal.
        temperature: greater than 0, in units of the return.
    """
    return temperature * jax.nn.logsumexp(q / temperature, axis=-1)


def soft_fixed_point(
    mdp: MDP | SparseMDP, discount: RealScalar, temperature: Scalar, start: Float[Array, "S A"]
) -> PolicyEvaluation:
    """The fixed point of Q = r + discount E P tau log sum exp(Q / tau), by sweeps from `start`. Traceable.

    They stop where one changes no value by more than a few roundings of the largest. `gap` bounds the error of exact
    sweeps (rounding comes on top); `v` is the soft value, tau log sum exp(Q / tau).

    Args:
        mdp: without a step axis.
        discount: in [0, 1).
        temperature: tau, greater than 0, in units of the return.
    """
    dtype = mdp.reward.dtype
    discount = jnp.asarray(discount, dtype)

    def continues(loop: Carry) -> Bool[Array, ""]:
        q, change, count = loop
        # A change of a few roundings of the largest value is none.
        size = jnp.max(jnp.where(jnp.isfinite(q), jnp.abs(q), 0.0))
        return (change > _ROUNDINGS * jnp.finfo(dtype).eps * size) & (count < _MOST_SWEEPS)

    def sweep(loop: Carry) -> Carry:
        q, _, count = loop
        # A soft Bellman backup.
        new = action_values(mdp, soft_max(q, temperature), discount)
        return new, jnp.max(jnp.where(jnp.isfinite(new), jnp.abs(new - q), 0.0)), count + 1

    # A discounted soft backup is a contraction by `discount`, so plain sweeps converge.
    first = (start.astype(dtype), jnp.asarray(jnp.inf, dtype), jnp.int32(0))
    q, change, count = lax.while_loop(continues, sweep, first)
    # Contraction: |q - q*| <= discount / (1 - discount) |last change|.
    gap = change * discount / (1.0 - discount)
    gain = jnp.full((), jnp.nan, dtype)
    return PolicyEvaluation(q, soft_max(q, temperature), gain, count < _MOST_SWEEPS, count, gap)


class BoltzmannQ(TabularQ):
    """Q-learning ([Q89]: target r + discount max q(s', .)) with Boltzmann exploration.

    Args:
        temperature, learning_rate, initial_q, replan: as in `SoftQ`.
        falling_rate: the learning rate where the target lies below the value (a negative prediction error), in [0, 1];
            None: `learning_rate`.

    Raises:
        ValueError: a number outside its range.
        TypeError: no number, no rule of replanning.
    """

    temperature: float | Array = 0.05
    learning_rate: float | Array = 0.1
    initial_q: float | Array = 0.0
    replan: ReplanRule | None = eqx.field(default=EverySteps(1), converter=as_rule)
    falling_rate: float | Array | None = eqx.field(default=None, kw_only=True, metadata={UNDESCRIBED_DEFAULT: True})

    def __check_init__(self) -> None:
        check_positive("temperature", self.temperature)
        check_fraction("learning_rate", self.learning_rate)
        check_finite("initial_q", self.initial_q)
        if self.falling_rate is not None:
            check_fraction("falling_rate", self.falling_rate)

    @property
    def first_value(self) -> Scalar:
        """`initial_q`."""
        return self.initial_q

    def policy(self, q: Float[Array, "*H S A"]) -> Boltzmann:
        """Actions with probability proportional to exp(`q` / temperature)."""
        return Boltzmann(q, self.temperature)

    def observe(
        self, problem: Problem, state: Float[Array, "*H S A"], transition: Transitions, weight: Scalar = 1.0
    ) -> Float[Array, "*H S A"]:
        """As `TabularQ.observe`, by the rate of the sign of the error."""
        if self.falling_rate is None:
            return super().observe(problem, state, transition, weight)
        place = place_of(problem, transition)
        target = bellman_target(place, state, jnp.asarray(transition.reward), self.state_value)
        # The sign of the prediction error decides the rate.
        error = target - state[place.pair]
        # Continuous in the error, also as a program: maximum and minimum meet at 0.
        step = weight * (self.learning_rate * jnp.maximum(error, 0.0) + self.falling_rate * jnp.minimum(error, 0.0))
        return state.at[place.pair].add(jnp.where(jnp.asarray(weight) != 0, step, 0.0))


class SoftQ(BoltzmannQ):
    """Soft Q-learning (Haarnoja et al. 2017, tabular; Fox et al. 2016) at a fixed temperature tau.

    q(s, a) <- q(s, a) + learning_rate (r + discount tau log sum exp(q(s', .) / tau) - q(s, a)); nothing follows an end
    or the last step of an episode (0, not tau log A). Actions: probability proportional to exp(q / tau).

    Args:
        temperature: tau, in units of the reward; .05 in [KL21].
        learning_rate: in [0, 1].
        initial_q: initial value of every entry.
        falling_rate: as in `BoltzmannQ`.
        replan: when the policy is updated; every step by default. Under `Episodic` "episode" gives the
            same behaviour (a table has a row for every step) and runs faster.

    Raises:
        ValueError: a number outside its range.
    """

    def state_value(self, q: Float[Array, " A"]) -> Float[Array, ""]:
        """tau log sum exp(q / tau)."""
        return soft_max(q, self.temperature)


class SoftQMean(eqx.Module):
    """The Boltzmann policy of the soft values of the posterior-mean model: no bonus, no uncertainty.

    Args:
        temperature: tau, in units of the reward; .05 in [KL21].
        replan: as in `PSRL`.

    Raises:
        ValueError: `temperature` is not greater than zero.
        TypeError: no number, no rule of replanning.
    """

    temperature: float | Array = 0.05
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule)

    def __check_init__(self) -> None:
        check_positive("temperature", self.temperature)

    def check_belief(self, belief: object) -> None:
        """Refuse a belief without a mean.

        Raises:
            TypeError: no mean.
        """
        require_ability(belief, CanMean, "SoftQMean")

    def init(self, key: PRNGKeyArray, problem: Problem) -> Float[Array, "S A"] | None:
        """Under `Discounted` the initial values, for a warm start; None under `Episodic`.

        Raises:
            ValueError: another objective.
        """
        del key
        if isinstance(require_objective(problem.objective, "SoftQMean", Discounted, Episodic), Episodic):
            return None
        # -inf where illegal: its softmax weight is zero.
        return where_legal(jnp.zeros(problem.space.shape), problem.space.legal)

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: Float[Array, "S A"] | None, belief: CanMean
    ) -> tuple[Boltzmann, Float[Array, "S A"] | None]:
        """The Boltzmann policy of the soft values. No random number is used.

        Raises:
            TypeError: `belief` has no mean.
        """
        del key
        self.check_belief(belief)
        objective, legal = problem.objective, problem.space.legal
        # Episodes: backward induction, exact without a start.
        if not isinstance(objective, Discounted):
            # Q_h = r + E P tau log sum exp(Q_{h+1} / tau); nothing follows the last step (0, not tau log A).
            model = mean_model(belief, objective, "SoftQMean")
            q = model.backward(model.action_values, lambda q: soft_max(q, self.temperature))
            return Boltzmann(q, self.temperature, legal), None
        assert state is not None  # `init` gives it
        # From the last fixed point on.
        q = soft_fixed_point(belief.mean_mdp(), objective.discount, self.temperature, state).q
        return Boltzmann(q, self.temperature, legal), q
