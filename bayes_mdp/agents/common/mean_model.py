"""What optimistic agents plan with: the mean MDP of a belief, the variances of its rows and rewards, the horizon.

`MeanModel` is the mean MDP one step (layer) of an episode at a time; `plan_for_rewards` plans in it for rewards with a
bonus; the variances are those from which bonuses are made.
"""

import warnings
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bayes_mdp.agents.common.variance_equation import over_components, total_variance
from bayes_mdp.mdp import MDP, CanCount, CanMean, Discounted, Episodic, HasVariances, Objective, Problem, SparseMDP
from bayes_mdp.mdp.abilities import can_split, require_ability
from bayes_mdp.mdp.objectives import require_objective, require_undiscounted
from bayes_mdp.mdp.protocols import CanExpectNext
from bayes_mdp.numerics.products import tensordot
from bayes_mdp.planning import solve
from bayes_mdp.planning.solution import Solution, no_plan, where_legal
from bayes_mdp.utils.typing import AnyArray, IntScalar, RealLike, RealScalar
from bayes_mdp.utils.validation import is_concrete

Layer = Callable[[IntScalar, Float[Array, " S"]], Float[Array, "S A"]]
"""One backup: (step, values [S] of the next states) -> q [S A] of the step."""


@runtime_checkable
class CountedBelief(CanMean, CanCount, Protocol):
    """A posterior with a mean MDP and with the visits of every pair."""


Pairs = Float[Array, "*H S A"]
Moments = tuple[Pairs, Pairs, Bool[AnyArray, "S A"] | None]
"""Mean and variance of the mean rewards, and which pairs are legal (None: all)."""


class MeanModel(eqx.Module):
    """Posterior means of an episode of `horizon` steps, layer by layer.

    Args:
        reward: [*H S A], mean rewards.
        source: what applies the mean rows to values: a belief with `expected_next`, or its mean MDP.
        legal: Bool[S A], or None.
        horizon: H, number of steps.
    """

    reward: Float[Array, "*H S A"]
    source: CanExpectNext | MDP | SparseMDP
    legal: Bool[Array, "S A"] | None
    horizon: int = eqx.field(static=True)

    def at(self, table: Float[Array, "*H S A"], layer: IntScalar) -> Float[Array, "S A"]:
        """A table of pairs at one step (itself where it does not depend on the step).

        Args:
            table: of pairs, in any unit.
            layer: step of the episode, from 0.
        """
        return table if table.ndim == 2 else table[layer]

    def expected_next(self, values: Float[Array, " S"], layer: IntScalar) -> Float[Array, "S A"]:
        """sum_s' E[P(s' | s, a)] values(s') at one step; the value after an end is zero."""
        # An MDP by its rows; a belief may know a shorter way.
        if isinstance(self.source, (MDP, SparseMDP)):
            return self.source.at(layer).expected_next(values)
        return self.source.expected_next(values, layer)

    def action_values(self, layer: IntScalar, values: Float[Array, " S"]) -> Float[Array, "S A"]:
        """reward + E values(next) at one step.

        Args:
            layer: step of the episode, from 0.
            values: of the next states.
        """
        return self.at(self.reward, layer) + self.expected_next(values, layer)

    def backward(
        self, backup: Layer, value: Callable[[Float[Array, "S A"]], Float[Array, " S"]] | None = None
    ) -> Float[Array, "H S A"]:
        """q of every step, from the last to the first: q_h = backup(h, v_{h+1}), v_h = value(q_h), v_H = 0.

        Args:
            backup: (step, values of the next states) -> q of the step; illegal actions become -inf afterwards.
            value: q [S A] -> v [S]; None: the maximum over actions.
        """
        # Greedy by default; soft agents reduce in another way.
        value_of = value or (lambda q: jnp.max(q, -1))

        def step(values: Float[Array, " S"], layer: IntScalar) -> tuple[Float[Array, " S"], Float[Array, "S A"]]:
            q = where_legal(backup(layer, values), self.legal)
            return value_of(q), q

        end = jnp.zeros(self.reward.shape[-2], self.reward.dtype)
        return lax.scan(step, end, jnp.arange(self.horizon), reverse=True)[1]


def mean_model(belief: CanMean, objective: Objective, who: str) -> MeanModel:
    """The mean model of a belief for episodes. Traceable; mean rows are not built where the belief can apply them.

    Args:
        belief: with a mean; with a step axis or without (rows shared by all steps).
        objective: `Episodic`.
        who: the caller, for the messages: "UCBVI".

    Raises:
        TypeError: the belief has no mean. ValueError: another objective, or discounted episodes.
    """
    require_ability(belief, CanMean, who)
    horizon = require_objective(objective, who, Episodic).horizon
    require_undiscounted(objective, who)
    # A belief that applies its mean rows to values need not write them down: S A S numbers are saved.
    mean = belief.mean_mdp()  # under `jit` only the rewards of it are computed where `source` is the belief
    source = belief if isinstance(belief, CanExpectNext) else mean
    legal = None if mean.legal is None else jnp.asarray(mean.legal)
    return MeanModel(mean.reward, source, legal, horizon)


def plan_for_rewards(
    belief: CanMean,
    problem: Problem,
    rewards: Callable[[Float[Array, "*H S A"]], Float[Array, "*H S A"]],
    start: Solution | None,
    who: str,
) -> tuple[Float[Array, "*H S A"], Int[Array, "*H S"] | None, Solution | None]:
    """The optimal plan of the mean MDP with other rewards: q, its actions (None: the best of q), the state to keep.

    Args:
        belief: with a mean.
        problem: episodes are planned for layer by layer, other objectives by `planning.solve`.
        rewards: the mean rewards -> those to plan for, [*H S A].
        start: the last plan.
        who: the caller, for the messages.

    Raises:
        TypeError: the belief has no mean. ValueError: as `planning.solve`.
    """
    objective = problem.objective
    if isinstance(objective, Episodic):
        # Backward induction is exact: no plan to start from, no state to keep.
        model = mean_model(belief, objective, who)
        model = eqx.tree_at(lambda m: m.reward, model, jnp.asarray(rewards(model.reward), model.reward.dtype))
        return model.backward(model.action_values), None, None
    mean = belief.mean_mdp()
    # Other rewards in the same rows: an ordinary planning problem, with a warm start.
    changed = eqx.tree_at(lambda m: m.reward, mean, jnp.asarray(rewards(mean.reward), mean.reward.dtype))
    solution = solve(changed, objective, start=start)
    return solution.q, solution.policy, solution


def warn_of_lost_optimism(name: str, value: RealLike, max_reward: float) -> None:
    """Warn where the value of unknown pairs lies below the largest reward of one step: they are then not explored.

    Args:
        name: of the option, for the message.
        value: of unknown pairs, in units of the return.
        max_reward: the largest mean reward of a step.
    """
    # Traced numbers cannot be compared.
    if is_concrete(value) and np.min(np.asarray(value)) < max_reward:
        least = float(np.min(np.asarray(value)))
        warnings.warn(
            f"{name} is {least:g}, below the largest reward {max_reward:g}: optimism is lost, expected at least the "
            "largest value of a state",
            UserWarning,
            stacklevel=3,
        )


def effective_horizon(objective: Objective, who: str) -> RealScalar:
    """H of an episode, 1 / (1 - discount) otherwise.

    Args:
        objective: `Episodic` or `Discounted`.
        who: whom the message names.

    Raises:
        ValueError: another objective, discounted episodes.
    """
    require_undiscounted(objective, who)
    objective = require_objective(objective, who, Discounted, Episodic)
    # The sum of discount^t.
    return objective.horizon if isinstance(objective, Episodic) else 1.0 / (1.0 - objective.discount)


def blank_plan(problem: Problem, who: str) -> Solution | None:
    """The state before any plan: None for episodes, which need no warm start.

    Args:
        problem: sizes, legal actions and objective.
        who: whom the message names.

    Raises:
        ValueError: as `effective_horizon`.
    """
    effective_horizon(problem.objective, who)
    return no_plan(problem)


class NeedsConcentrations(eqx.Module):
    """Base of agents that plan in the mean MDP, with bonuses from the concentrations of its rows."""

    def init(self, key: PRNGKeyArray, problem: Problem) -> Solution | None:
        """No plan yet; the state is the last plan, for a warm start (none is needed for episodes).

        Args:
            key: not used.
            problem: what is known of the MDP before any data.

        Raises:
            ValueError: an objective other than `Discounted` and `Episodic`.
        """
        del key
        return blank_plan(problem, type(self).__name__)

    def check_belief(self, belief: object) -> None:
        """Refuse a belief without mean, counts and concentrations.

        Raises:
            TypeError: an ability is missing. ValueError: it is represented by samples.
        """
        who = type(self).__name__
        require_ability(belief, CanMean, who)
        require_ability(belief, CanCount, who)
        # Concentrations are asked for here, so that a belief without them is refused before a run.
        row_variance_factor(belief, who)


def row_variance_factor(belief: object, who: str) -> Pairs:
    """1 / (c0 + 1), c0 the total concentration of a row; zero where the row is known. Of a mixture: its mean.

    Args:
        belief: with variances, or a mixture of such.
        who: whom the message names.

    Raises:
        TypeError: the belief has no variances. ValueError: it is represented by samples, which have no concentrations.
    """
    require_ability(belief.components if can_split(belief) else belief, HasVariances, who)
    try:
        factor = over_components(lambda part: part.variance_factor("dirichlet"), belief)
    except ValueError as error:
        raise ValueError(
            f"{who} needs the concentrations of Dirichlet rows, which a {type(belief).__name__} has not ({error}): use "
            "a posterior in closed form (infer with method='exact'), or PSRL"
        ) from error
    # 1 / (c0 + 1) is no posterior of a mixture, but its mean measures how well rows are known on average.
    return tensordot(jnp.asarray(belief.weights), factor, axes=1) if can_split(belief) else factor


# Compiled outside a trace too: called eagerly, a belief refuses a variance that does not exist; here it is inf, and
# the pair counts as unknown.
@jax.jit
def reward_moments(belief: CanMean) -> Moments:
    """Mean and epistemic variance of the mean rewards, and which pairs are legal (None: all).

    The variance is inf where it does not exist; of a mixture it is the total variance.

    Args:
        belief: with variances, or a mixture of such.
    """
    mean = belief.mean_mdp()
    # Law of total variance: variances within the components, and that of their means.
    means, variance = over_components(lambda b: (b.mean_mdp().reward, b.expected_reward_variance()), belief)
    if can_split(belief):
        # Relative to the first component: where all means agree the variance is exactly zero, without rounding error.
        variance = total_variance(jnp.asarray(belief.weights), means - means[:1], variance)[1]
    return mean.reward, variance, mean.legal


def mean_reward_variance(belief: CanMean) -> Pairs:
    """The variance of `reward_moments`.

    Args:
        belief: as of `reward_moments`.
    """
    return reward_moments(belief)[1]
