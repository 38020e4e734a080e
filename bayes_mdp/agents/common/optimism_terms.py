"""What the optimistic agents share: how little is known of a row and of a reward, the scale of the future."""

import warnings
from typing import Any

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
from bayes_mdp.mdp.validation import check_finite, check_positive, check_that, is_concrete
from bayes_mdp.planning.solution import Solution

Pairs = Float[Array, "*H S A"]


def check_inside(name: str, value: Any) -> None:
    """Refuse what is not strictly between 0 and 1, where it can be seen.

    Raises:
        ValueError: as said.
    """
    check_that(name, value, lambda x: (x > 0) & (x < 1), "a number between 0 and 1")


def check_value(name: str, value: Any) -> None:
    """Refuse what is not finite, where it can be seen.

    Raises:
        ValueError: as said.
    """
    if is_concrete(value):
        check_finite(name, value)


def check_above_zero(name: str, value: Any) -> None:
    """Refuse what is not finite and greater than zero, where it can be seen.

    Raises:
        ValueError: as said.
    """
    if is_concrete(value):
        check_positive(name, value)


def warn_of_lost_optimism(name: str, value: Any, max_reward: float) -> None:
    """Warn where the value of what is unknown lies below the largest reward of one step: it is then not explored."""
    if is_concrete(value) and np.min(np.asarray(value)) < max_reward:
        least = float(np.min(np.asarray(value)))
        warnings.warn(
            f"{name} is {least:g}, below the largest reward {max_reward:g}: optimism is lost, expected at least the "
            "largest value of a state",
            UserWarning,
            stacklevel=3,
        )


def effective_horizon(objective: Objective, who: str) -> Any:
    """H of an episode, 1 / (1 - discount) otherwise.

    Raises:
        ValueError: another objective; `who` asks, for the sentence.
    """
    if isinstance(objective, Episodic):
        return objective.horizon
    if not isinstance(objective, Discounted):
        raise ValueError(f"objective is {type(objective).__name__}, expected Discounted or Episodic for {who}")
    return 1.0 / (1.0 - objective.discount)


def blank_plan(problem: Problem, who: str) -> Solution | None:
    """The state before any plan: None for episodes, which need no warm start.

    Raises:
        ValueError: as `effective_horizon`.
    """
    effective_horizon(problem.objective, who)
    return no_plan(problem)


class NeedsConcentrations(eqx.Module):
    """An agent that plans in the mean MDP with what the concentrations of the rows say; episodes or discounted."""

    def init(self, key: PRNGKeyArray, problem: Problem) -> Solution | None:
        """No plan yet; the state is the last plan, for a warm start (none is needed for episodes).

        Raises:
            ValueError: an objective other than `Discounted` and `Episodic`.
        """
        del key
        return blank_plan(problem, type(self).__name__)

    def check_belief(self, belief: Any) -> None:
        """Refuse a belief without mean, counts and concentrations.

        Raises:
            TypeError: an ability is missing. ValueError: it is given by draws.
        """
        who = type(self).__name__
        require_ability(belief, CanMean, who)
        require_ability(belief, CanCount, who)
        row_spread(belief, who)


def has_variances(belief: Any) -> bool:
    """Whether a belief, or the components of a mixture, knows its variances."""
    return isinstance(belief.components if can_split(belief) else belief, HasVariances)


def row_spread(belief: Any, who: str) -> Pairs:
    """1 / (c0 + 1), c0 the total concentration of a row; zero where the row is known. Of a mixture: the mean of it.

    Raises:
        TypeError: the belief has no variances. ValueError: it is given by draws, which have no concentrations.
    """
    require_ability(belief.components if can_split(belief) else belief, HasVariances, who)
    spread = over_components(lambda part: part.variance_factor("dirichlet"), belief)
    return jnp.tensordot(jnp.asarray(belief.weights), spread, axes=1) if can_split(belief) else spread


def reward_moments(belief: Any) -> tuple[Pairs, Pairs, Any]:
    """Mean and epistemic variance of the mean rewards, and which pairs are legal (None: all).

    The variance is inf where it does not exist; of a mixture it is the total variance.
    """
    return _moments(belief)


def reward_spread(belief: Any) -> Pairs:
    """The variance of `reward_moments`."""
    return reward_moments(belief)[1]


def unknown_reward(belief: Any) -> Bool[Array, "*H S A"]:
    """Where the mean reward is not known."""
    return reward_spread(belief) > 0


def _of_rewards(belief: Any) -> tuple[Any, Any, Any]:
    mean = belief.mean_mdp()
    means, variance = over_components(lambda b: (b.mean_mdp().reward, b.expected_reward_variance()), belief)
    if can_split(belief):
        # From the first on: where all agree the variance is zero, not rounding.
        variance = total_variance(jnp.asarray(belief.weights), means - means[:1], variance)[1]
    return mean.reward, variance, mean.legal


# Compiled also outside a trace: eagerly the belief would refuse a variance that does not exist, "unknown" here.
_moments = jax.jit(_of_rewards)
