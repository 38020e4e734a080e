"""Parts of the optimistic agents: variances of rows and of rewards, the effective horizon, checks of parameters."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from bayes_mdp.agents.common.assumptions import total_variance
from bayes_mdp.agents.common.mean_model import no_plan
from bayes_mdp.agents.common.variance_equation import over_components
from bayes_mdp.mdp import CanCount, CanMean, Discounted, Episodic, HasVariances, Objective, Problem
from bayes_mdp.mdp.abilities import can_split, require_ability
from bayes_mdp.mdp.objectives import require_undiscounted
from bayes_mdp.numerics.products import tensordot
from bayes_mdp.planning.solution import Solution
from bayes_mdp.utils.typing import AnyArray, RealLike, RealScalar
from bayes_mdp.utils.validation import check_finite, check_positive, check_that, is_concrete

Pairs = Float[Array, "*H S A"]
Moments = tuple[Pairs, Pairs, Bool[AnyArray, "S A"] | None]
"""Mean and variance of the mean rewards, and which pairs are legal (None: all)."""


def check_inside(name: str, value: object) -> None:
    """Refuse a number that is not strictly between 0 and 1, where it is concrete.

    Args:
        name: of the argument, for the message.
        value: of the argument.

    Raises:
        ValueError: an entry is out of range.
        TypeError: an entry is no number.
    """
    check_that(name, value, lambda x: (x > 0) & (x < 1), "a number between 0 and 1")


def check_value(name: str, value: object) -> None:
    """Refuse a number that is not finite, where it is concrete.

    Args:
        name: of the argument, for the message.
        value: of the argument.

    Raises:
        ValueError: an entry is not finite.
        TypeError: an entry is no number.
    """
    if is_concrete(value):
        check_finite(name, value)


def check_above_zero(name: str, value: object) -> None:
    """Refuse a number that is not finite and greater than zero, where it is concrete.

    Args:
        name: of the argument, for the message.
        value: of the argument.

    Raises:
        ValueError: an entry is out of range.
        TypeError: an entry is no number.
    """
    if is_concrete(value):
        check_positive(name, value)


def warn_of_lost_optimism(name: str, value: RealLike, max_reward: float) -> None:
    """Warn where the value of unknown pairs lies below the largest reward of one step: they are then not explored.

    Args:
        name: of the option, for the message.
        value: of unknown pairs, in units of the return.
        max_reward: the largest mean reward of a step.
    """
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
    if isinstance(objective, Episodic):
        return objective.horizon
    if not isinstance(objective, Discounted):
        raise ValueError(f"objective is {type(objective).__name__}, expected Discounted or Episodic for {who}")
    return 1.0 / (1.0 - objective.discount)


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
        row_variance_factor(belief, who)


def has_variances(belief: object) -> bool:
    """Whether a belief, or the components of a mixture, has variances in closed form.

    Args:
        belief: any posterior.
    """
    return isinstance(belief.components if can_split(belief) else belief, HasVariances)


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
    return tensordot(jnp.asarray(belief.weights), factor, axes=1) if can_split(belief) else factor


def reward_moments(belief: CanMean) -> Moments:
    """Mean and epistemic variance of the mean rewards, and which pairs are legal (None: all).

    The variance is inf where it does not exist; of a mixture it is the total variance.

    Args:
        belief: with variances, or a mixture of such.
    """
    return _moments(belief)


def mean_reward_variance(belief: CanMean) -> Pairs:
    """The variance of `reward_moments`.

    Args:
        belief: as of `reward_moments`.
    """
    return reward_moments(belief)[1]


def unknown_reward(belief: CanMean) -> Bool[Array, "*H S A"]:
    """Where the mean reward is not known.

    Args:
        belief: as of `reward_moments`.
    """
    return mean_reward_variance(belief) > 0


def _of_rewards(belief: CanMean) -> Moments:
    mean = belief.mean_mdp()
    means, variance = over_components(lambda b: (b.mean_mdp().reward, b.expected_reward_variance()), belief)
    if can_split(belief):
        # Relative to the first component: where all means agree the variance is exactly zero, without rounding error.
        variance = total_variance(jnp.asarray(belief.weights), means - means[:1], variance)[1]
    return mean.reward, variance, mean.legal


# Compiled outside a trace too: called eagerly, a belief refuses a variance that does not exist; here it is inf, and
# the pair counts as unknown.
_moments = jax.jit(_of_rewards)
