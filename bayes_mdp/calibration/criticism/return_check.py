"""Does the belief expect the returns that the log has? The behaviour's value beside the mean return of its episodes."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray
from scipy.special import ndtr

from bayes_mdp.decisions.behaviour import behaviour_policy
from bayes_mdp.decisions.host_optima import action_values, pair_time, policy_mean
from bayes_mdp.decisions.policy_evaluation import policy_value
from bayes_mdp.inference.pair_draws import pairs_of_mdp
from bayes_mdp.mdp import Discounted, FirstExit, HasVariances, Log, Objective, StateActionSpace
from bayes_mdp.mdp.data.episode_returns import NO_END, NO_EPISODES, returns_of
from bayes_mdp.mdp.objectives import step_discount
from bayes_mdp.mdp.protocols import Posterior
from bayes_mdp.numerics.array_forms import to_float64
from bayes_mdp.utils.typing import AnyArray

DRAWS = 100
LARGE = 2**20  # numbers in a draw, from which the closed form takes the place of draws


class ReturnCheck(NamedTuple):
    """The mean return of the log's episodes, and what the belief says that it is.

    The p-value takes errors of both as independent and normal; as the belief has learnt from the same episodes it is
    conservative, and a heuristic in small logs.

    Args:
        observed, error: mean return and its standard error.
        expected, sd: mean and standard deviation over the posterior of the value of the behaviour.
    """

    observed: float
    error: float
    expected: float
    sd: float

    @property
    def p_value(self) -> float:
        """Two-sided."""
        spread = np.hypot(self.error, self.sd)
        return float(2 * ndtr(-abs(self.observed - self.expected) / max(spread, 1e-300)))


def return_check(
    key: PRNGKeyArray,
    posterior: Posterior,
    log: Log,
    space: StateActionSpace,
    objective: Objective,
    start: Float[np.ndarray, " S"],
) -> ReturnCheck | str:
    """The check; a reason, in words, where it cannot be made."""
    returns = returns_of(log, objective)
    if isinstance(returns, str):
        return f"it does not apply: {returns}" if returns.startswith((NO_EPISODES, NO_END)) else returns
    policy = behaviour_policy(log, space=space)
    error = returns.std(ddof=1) / len(returns) ** 0.5
    large = space.horizon is None and space.n_states * space.n_actions * space.n_outcomes >= LARGE
    linear = isinstance(posterior, HasVariances) and posterior.independent_rows
    if large and linear and isinstance(objective, Discounted | FirstExit):
        mean, sd = first_order(posterior, policy, objective, start)
        return ReturnCheck(float(returns.mean()), float(error), mean, sd)
    value = policy_value(key, posterior, policy, objective, initial=start, num_draws=DRAWS)
    return ReturnCheck(float(returns.mean()), float(error), value.mean, value.sd)


def first_order(
    posterior: Posterior, policy: Float[np.ndarray, "S A"], objective: Discounted | FirstExit, start: AnyArray
) -> tuple[float, float]:
    """Mean and standard deviation of a policy's value, to first order in the rows, which are independent.

    The value in the mean MDP, and the sum over pairs of time^2 times the variance of what the row leads to. It costs no
    draws; what it leaves out are terms of second order, of the size of the variances times the time in a loop.

    Args:
        posterior: with variances.
        policy: action probabilities.
        objective, start: of the value.
    """
    with jax.enable_x64(True):
        believed = to_float64(posterior)
        assert isinstance(believed, HasVariances)
        mdp = believed.mean_mdp()
        rows, drawn = pairs_of_mdp(mdp)
        values = policy_mean(policy, action_values(rows, drawn, policy, objective))
        spread = np.asarray(believed.bellman_variance(jnp.asarray(values), float(step_discount(objective))))
    first = np.asarray(start, np.float64)
    time = pair_time(rows, drawn, policy, objective, first)
    return float(values @ first), float(np.sqrt(np.where(time > 0, time**2 * spread, 0.0).sum()))
